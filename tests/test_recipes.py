"""Each recipe against what its paper, or its published code, states."""

import pytest

from tf_adapters.errors import InputError
from tf_adapters.recipes import RECIPES, get_recipe

# What a recipe has where its source states nothing else: one adapter for each place, one classifier, Adam, a tenth of
# the steps warm-up and linear decay (Houlsby et al. 2019, section 3.1), the encoder's own dropout.
USUAL = {
    "trainable": "adapters",
    "head_layers": 1,
    "warmup_fraction": 0.1,
    "decay_from_start": False,
    "weight_decay": 0.0,
    "clip_norm": None,
    "epsilon": 1e-7,
    "bias_correction": True,
    "dropout": None,
}
USUAL_ADAPTER = {"sharing": "none", "placement": "both", "insertion": "sequential", "init_distribution": "truncated"}
# "Follows Devlin et al. (2018)": Houlsby et al., section 3.1; Devlin et al. 2019, appendix A.2: decay of 0.01.
DEVLIN = {"weight_decay": 0.01}
HOULSBY = {"activation": "gelu", "init_stddev": 1e-2, "train_layer_norm": "all"}  # sections 2.1 and 3.6
REPORT = {"bottleneck_size": 64, "activation": "gelu", "init_stddev": 1e-2}  # section 6.1
REPORT_CODE = {  # modeling_tf_adapter_bert.py, and what run_tf_glue_adapter_bert.py freezes
    **{"bottleneck_size": 64, "activation": "gelu_tanh", "init_stddev": 1e-3, "train_layer_norm": "encoder"}
}
HE = {"activation": "tanh", "train_layer_norm": "all"}  # equation 1, section 2.1
CODE_RUN = {"learning_rate": 3e-4, "epochs": 10, "batch_size": 32, "max_length": 128, "epsilon": 1e-6}

# Recipe -> what the run has, and what the adapter has.
STATED = {
    "gururangan-2020": (  # section 4 and the appendix's table of pretraining; the published code's command
        {
            **{"trainable": "full", "learning_rate": 1e-4, "epochs": 100, "batch_size": 256, "max_length": 512},
            **{"warmup_fraction": 0.06, "epsilon": 1e-6, "weight_decay": 0.01},
        },
        {},
    ),
    "houlsby-2019": (  # section 3.2: of {3e-5, 3e-4, 3e-3} x {3, 20} x {8, 64, 256}; batches: section 3.1
        {"learning_rate": 3e-4, "epochs": 20, "batch_size": 32, **DEVLIN},
        {"bottleneck_size": 64, **HOULSBY},
    ),
    "houlsby-2019-additional": (  # section 3.3: of {1e-5, 3e-5, 1e-4, 3e-3} x {20, 50, 100} x {2, ..., 64}
        {"learning_rate": 1e-4, "epochs": 50, "batch_size": 32, **DEVLIN},
        {"bottleneck_size": 64, **HOULSBY},
    ),
    "houlsby-code-2019": (  # optimization.py; modeling.py; the README's command
        {
            **{"learning_rate": 3e-4, "epochs": 5, "batch_size": 32, "max_length": 128, "weight_decay": 0.01},
            **{"clip_norm": 1.0, "epsilon": 1e-6, "bias_correction": False, "decay_from_start": True},
        },
        {"bottleneck_size": 64, "activation": "gelu_tanh", "init_stddev": 1e-3, "train_layer_norm": "all"},
    ),
    "houlsby-2019-full": (  # section 3.2, which takes Devlin et al.'s numbers: appendix A.3 there
        {"trainable": "full", "learning_rate": 3e-5, "epochs": 3, "batch_size": 32, **DEVLIN},
        {},
    ),
    "houlsby-2019-additional-full": (  # section 3.3
        {"trainable": "full", "learning_rate": 3e-5, "epochs": 20, "batch_size": 32, **DEVLIN},
        {},
    ),
    "houlsby-2019-layer-norm": (  # section 3.4, figure 4
        {"trainable": "layer-norm", "learning_rate": 3e-4, "epochs": 20, "batch_size": 32, **DEVLIN},
        {},
    ),
    "report-per-layer": (  # sections 6.1 and 6.2, table 1
        {"learning_rate": 3e-4, "epochs": 10},
        {**REPORT, "sharing": "layer", "train_layer_norm": "none"},
    ),
    "report-unshared": (
        {"learning_rate": 3e-4, "epochs": 10, "head_layers": 2},
        {**REPORT, "train_layer_norm": "encoder"},
    ),
    "report-3-shared": (
        {"learning_rate": 3e-4, "epochs": 10},
        {**REPORT, "sharing": 3, "train_layer_norm": "none"},
    ),
    "report-additional": (  # section 6.1, table 3
        {"learning_rate": 1e-4, "epochs": 50, "head_layers": 2},
        {**REPORT, "train_layer_norm": "encoder"},
    ),
    "report-per-layer-code": (CODE_RUN, {**REPORT_CODE, "sharing": "layer"}),
    "report-unshared-code": (CODE_RUN, REPORT_CODE),
    "report-3-shared-code": (CODE_RUN, {**REPORT_CODE, "sharing": 3}),
    "he-2021": (  # table 10, GLUE
        {"learning_rate": 1e-4, "epochs": 20, "batch_size": 16},
        {"bottleneck_size": 64, **HE},
    ),
    "he-2021-full": ({"trainable": "full", "learning_rate": 2e-5, "epochs": 20, "batch_size": 16}, {}),
    "he-2021-tae": (  # table 10, TAE; the size: table 1
        {"learning_rate": 1e-4, "epochs": 10, "batch_size": 16, "max_length": 512},
        {"bottleneck_size": 256, **HE},
    ),
    "he-2021-tae-full": (
        {"trainable": "full", "learning_rate": 2e-5, "epochs": 10, "batch_size": 16, "max_length": 512},
        {},
    ),
    "he-2021-xtreme": (  # table 11, POS and NER; the size: table 3
        {"learning_rate": 5e-5, "epochs": 5, "batch_size": 32},
        {"bottleneck_size": 256, **HE},
    ),
    "he-2021-xtreme-full": ({"trainable": "full", "learning_rate": 2e-5, "epochs": 5, "batch_size": 32}, {}),
    "he-2021-xnli": (  # table 11, XNLI
        {"learning_rate": 4e-5, "epochs": 5, "batch_size": 32},
        {"bottleneck_size": 256, **HE},
    ),
    "he-2021-xnli-full": ({"trainable": "full", "learning_rate": 1e-5, "epochs": 5, "batch_size": 32}, {}),
    "han-2021": (  # table 2; section 2 and adapter-transformers 1: swish, reduction 16, N(0, 0.02), LayerNorms frozen
        {"learning_rate": 1e-4, "epochs": 20, "batch_size": 32, "max_length": 256},
        {
            **{"bottleneck_size": 48, "activation": "swish", "init_stddev": 0.02, "init_distribution": "normal"},
            "train_layer_norm": "none",
        },
    ),
    "han-2021-full": (  # table 3
        {"trainable": "full", "learning_rate": 2e-5, "epochs": 10, "batch_size": 32, "max_length": 128},
        {},
    ),
    "pfeiffer-2021": (  # sections 3 and 4
        {"learning_rate": 1e-4, "epochs": 30},
        {
            **{"bottleneck_size": 48, "activation": "relu", "placement": "ffn", "insertion": "after-norm"},
            **{"init_stddev": 0.02, "init_distribution": "normal", "train_layer_norm": "none"},
        },
    ),
    "hu-2022": (  # LoRA, section 4.2 and table 9
        {"learning_rate": 5e-4, "epochs": 60, "batch_size": 16, "max_length": 512, "warmup_fraction": 0.06},
        {"method": "lora", "rank": 8, "alpha": 8.0, "targets": ["query", "value"]},
    ),
    "liu-2022": (  # (IA)^3, sections 3.3 and 3.5
        {"learning_rate": 3e-3, "batch_size": 8, "warmup_fraction": 0.06},
        {"method": "ia3"},
    ),
    "liu-2024-dora": (  # DoRA, section 4, beside LoRA's setting
        {"learning_rate": 5e-4, "epochs": 60, "batch_size": 16, "max_length": 512, "warmup_fraction": 0.06},
        {"method": "dora", "rank": 8, "targets": ["query", "value"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STATED)
def test_a_recipe_has_what_its_source_states(name):
    recipe, (run, adapter) = get_recipe(name), STATED[name]
    expected = {**USUAL, **run}
    assert {field: getattr(recipe, field) for field in expected} == expected
    if recipe.trainable == "adapters":
        expected = {**(USUAL_ADAPTER if "method" not in adapter else {}), **adapter}
        found = recipe.adapter.to_dict()
        assert {field: found[field] for field in expected} == expected
    assert len(recipe.source) > 60


def test_every_recipe_but_the_package_s_own_is_stated():
    assert set(RECIPES) - {"default"} == set(STATED)
    with pytest.raises(InputError, match="recipe='houlsby'.*houlsby-2019"):
        get_recipe("houlsby")
