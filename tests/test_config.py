import dataclasses

import numpy as np
import pytest

from tests.conftest import is_refused
from tf_adapters import AdapterConfig, InputError, get_recipe
from tf_adapters.config import MethodConfig, read_blocks
from tf_adapters.layers.method import MethodLayer
from tf_adapters.training.settings import usual_settings


def test_json_round_trip_keeps_every_field():
    config = AdapterConfig(7, sharing=3, placement="ffn", blocks=(2, 0), init_stddev=0.0, train_layer_norm="all")
    assert AdapterConfig.from_json(config.to_json()) == config
    assert config.blocks == (0, 2)
    assert set(config.to_dict()) == {"method", *(field.name for field in dataclasses.fields(AdapterConfig))}


def test_blocks_are_read_from_an_options_text():
    assert read_blocks("5-7") == (5, 6, 7) and read_blocks("0, 2,4") == (0, 2, 4)
    for text in ("top", "5-3", "1,", "0-99999999999"):
        is_refused(f"blocks='{text}' must look like 5-11 or 0,2,4", read_blocks, text)


def test_unknown_key_is_refused():
    is_refused("reduction_factor.*bottleneck_size", AdapterConfig.from_dict, {"reduction_factor": 16})
    is_refused("not JSON", AdapterConfig.from_json, "{")


def test_bad_value_is_named():
    for values, message in (
        ({"bottleneck_size": 0}, "bottleneck_size=0"),
        ({"sharing": 1}, "sharing=1"),
        ({"sharing": "block"}, "sharing='block'"),
        ({"placement": "top"}, "placement='top'"),
        ({"activation": "gleu"}, "activation='gleu'.*gelu_tanh"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"blocks": ()}, r"blocks=\(\)"),
        ({"blocks": (1, 1)}, "twice"),
        ({"blocks": "12"}, "blocks='12'"),
    ):
        is_refused(message, AdapterConfig, **values)


def test_sharing_placement_and_blocks_decide_which_sites_use_one_adapter():
    assert len(set(AdapterConfig().sites(12).values())) == 24
    assert len(set(AdapterConfig(sharing="layer").sites(12).values())) == 12
    three = AdapterConfig(sharing=3).sites(12)
    assert len(three) == 24
    assert sorted(set(three.values())) == ["layers.0-2", "layers.3-5", "layers.6-8", "layers.9-11"]
    # Blocks that are left over at the top share one.
    sites = AdapterConfig(sharing=5).sites(12)
    assert list(dict.fromkeys(sites.values())) == ["layers.0-4", "layers.5-9", "layers.10-11"]
    assert sites[10, "attention"] == sites[11, "ffn"] == "layers.10-11"
    assert list(AdapterConfig(placement="attention", blocks=(1, 3)).sites(4)) == [(1, "attention"), (3, "attention")]
    assert list(AdapterConfig(sharing=2, blocks=range(1, 4)).sites(4).values())[-1] == "layers.3-3"
    is_refused("the encoder has 4 blocks, the last is 3", AdapterConfig(blocks=(4,)).sites, 4)


def test_no_more_blocks_share_an_adapter_than_there_are():
    assert set(AdapterConfig(sharing=2).sites(2).values()) == {"layers.0-1"}
    advice = "2 blocks have adapters; give 2 for one adapter of them all, or less"
    for config, depth in ((AdapterConfig(sharing=99), 2), (AdapterConfig(sharing=3, blocks=(0, 2)), 12)):
        is_refused(f"sharing={config.sharing}: {advice}", config.sites, depth)


def test_parameters_follow_the_formula():
    """Houlsby et al. 2019, section 2.1: 2md + d + m at d = 768."""
    for size, parameters in {1: 2305, 8: 13064, 64: 99136, 512: 787712}.items():
        assert AdapterConfig(bottleneck_size=size).parameters_per_adapter(768) == parameters


def test_a_run_has_the_recipes_rate_where_it_is_for_what_trains():
    for recipe, trainable, *expected in (
        ("houlsby-2019", "adapters", 3e-4, None),
        # A rate of adapters would destroy pretrained weights.
        ("houlsby-2019", "full", 5e-5, None),
        ("default", "head", 1e-3, None),
        ("default", "adapters", 1e-3, 0.0),
        ("han-2021-full", "full", 2e-5, None),
    ):
        settings = usual_settings(get_recipe(recipe), trainable)
        assert [settings["learning_rate"], settings["dropout"]] == expected, recipe


def test_a_method_that_declares_nothing_is_refused_where_more_is_needed():
    class Scale(MethodConfig):
        method = "scale"

    class ScaleLayer(MethodLayer):
        pass

    layer = ScaleLayer()
    with pytest.raises(InputError, match="ScaleLayer is no update of a dense layer's weights and cannot be merged"):
        layer.merged(np.zeros((2, 2)), np.zeros(2))
    assert not layer.is_fused(training=False) and not layer.low_rank
    assert not Scale().is_bottleneck and "method 'scale', which a bank does not compute" in Scale().why_not_banked()
    assert AdapterConfig().is_bottleneck
