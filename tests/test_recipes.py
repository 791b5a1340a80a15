"""Each recipe against what its paper, or its published code, states."""

import pytest

from tests.conftest import is_refused
from tf_adapters.recipes import RECIPES, get_recipe

# What a recipe has where its source states nothing else: one adapter for each place, one classifier, Adam, a tenth of
# the steps warm-up and linear decay (Houlsby et al. 2019, section 3.1), the encoder's own dropout.
USUAL = {
    "trainable": "adapters", "head_layers": 1, "warmup_fraction": 0.1, "decay_from_start": False, "weight_decay": 0.0,
    "clip_norm": None, "epsilon": 1e-7, "bias_correction": True, "dropout": None,
}  # fmt: skip
USUAL_ADAPTER = {"sharing": "none", "placement": "both", "insertion": "sequential", "init_distribution": "truncated"}
# "Follows Devlin et al. (2018)": Houlsby et al., section 3.1; Devlin et al. 2019, appendix A.2: decay of 0.01.
DEVLIN = {"weight_decay": 0.01}
HOULSBY = {"activation": "gelu", "init_stddev": 1e-2, "train_layer_norm": "all"}  # sections 2.1 and 3.6
REPORT = {"bottleneck_size": 64, "activation": "gelu", "init_stddev": 1e-2}  # section 6.1
REPORT_CODE = {  # modeling_tf_adapter_bert.py, and what run_tf_glue_adapter_bert.py freezes
    **{"bottleneck_size": 64, "activation": "gelu_tanh", "init_stddev": 1e-3, "train_layer_norm": "encoder"}
}
HE = {"activation": "tanh", "train_layer_norm": "all"}  # equation 1, section 2.1
NORMAL = {"init_stddev": 0.02, "init_distribution": "normal"}
CODE_RUN = {"learning_rate": 3e-4, "epochs": 10, "batch_size": 32, "max_length": 128, "epsilon": 1e-6}


def run(learning_rate, epochs=None, batch_size=None, max_length=None, **others):
    """What is stated of a run."""
    stated = dict(learning_rate=learning_rate, epochs=epochs, batch_size=batch_size, max_length=max_length)
    return {**{name: value for name, value in stated.items() if value is not None}, **others}


def full(*stated, **others):
    """A baseline without adapters."""
    return run(*stated, trainable="full", **others), {}


LORA = run(5e-4, 60, 16, 512, warmup_fraction=0.06)

# Recipe -> what the run has, and what the adapter has.
STATED = {
    # Section 4 and the appendix's table of pretraining; the published code's command.
    "gururangan-2020": full(1e-4, 100, 256, 512, warmup_fraction=0.06, epsilon=1e-6, weight_decay=0.01),
    # Section 3.2: of {3e-5, 3e-4, 3e-3} x {3, 20} x {8, 64, 256}; batches: section 3.1.
    "houlsby-2019": (run(3e-4, 20, 32, **DEVLIN), {"bottleneck_size": 64, **HOULSBY}),
    # Section 3.3: of {1e-5, 3e-5, 1e-4, 3e-3} x {20, 50, 100} x {2, ..., 64}.
    "houlsby-2019-additional": (run(1e-4, 50, 32, **DEVLIN), {"bottleneck_size": 64, **HOULSBY}),
    # optimization.py; modeling.py; the README's command.
    "houlsby-code-2019": (
        run(3e-4, 5, 32, 128, **DEVLIN, clip_norm=1.0, epsilon=1e-6, bias_correction=False, decay_from_start=True),
        {"bottleneck_size": 64, "activation": "gelu_tanh", "init_stddev": 1e-3, "train_layer_norm": "all"},
    ),
    # Section 3.2, which takes Devlin et al.'s numbers: appendix A.3 there. Section 3.3. Section 3.4, figure 4.
    "houlsby-2019-full": full(3e-5, 3, 32, **DEVLIN),
    "houlsby-2019-additional-full": full(3e-5, 20, 32, **DEVLIN),
    "houlsby-2019-layer-norm": (run(3e-4, 20, 32, trainable="layer-norm", **DEVLIN), {}),
    # Sections 6.1 and 6.2, tables 1 and 3.
    "report-per-layer": (run(3e-4, 10), {**REPORT, "sharing": "layer", "train_layer_norm": "none"}),
    "report-unshared": (run(3e-4, 10, head_layers=2), {**REPORT, "train_layer_norm": "encoder"}),
    "report-3-shared": (run(3e-4, 10), {**REPORT, "sharing": 3, "train_layer_norm": "none"}),
    "report-additional": (run(1e-4, 50, head_layers=2), {**REPORT, "train_layer_norm": "encoder"}),
    "report-per-layer-code": (CODE_RUN, {**REPORT_CODE, "sharing": "layer"}),
    "report-unshared-code": (CODE_RUN, REPORT_CODE),
    "report-3-shared-code": (CODE_RUN, {**REPORT_CODE, "sharing": 3}),
    # Table 10: GLUE, TAE (the size: table 1); table 11: POS and NER (the size: table 3), XNLI.
    "he-2021": (run(1e-4, 20, 16), {"bottleneck_size": 64, **HE}),
    "he-2021-full": full(2e-5, 20, 16),
    "he-2021-tae": (run(1e-4, 10, 16, 512), {"bottleneck_size": 256, **HE}),
    "he-2021-tae-full": full(2e-5, 10, 16, 512),
    "he-2021-xtreme": (run(5e-5, 5, 32), {"bottleneck_size": 256, **HE}),
    "he-2021-xtreme-full": full(2e-5, 5, 32),
    "he-2021-xnli": (run(4e-5, 5, 32), {"bottleneck_size": 256, **HE}),
    "he-2021-xnli-full": full(1e-5, 5, 32),
    # Table 2; section 2 and adapter-transformers 1: swish, reduction 16, N(0, 0.02), LayerNorms frozen. Table 3.
    "han-2021": (
        run(1e-4, 20, 32, 256), {**NORMAL, "bottleneck_size": 48, "activation": "swish", "train_layer_norm": "none"}
    ),
    "han-2021-full": full(2e-5, 10, 32, 128),
    # Sections 3 and 4.
    "pfeiffer-2021": (
        run(1e-4, 30),
        {"bottleneck_size": 48, "activation": "relu", "placement": "ffn", "insertion": "after-norm",
         **NORMAL, "train_layer_norm": "none"},
    ),
    # LoRA, section 4.2 and table 9. DoRA, section 4, beside LoRA's setting. (IA)^3, sections 3.3 and 3.5.
    "hu-2022": (LORA, {"method": "lora", "rank": 8, "alpha": 8.0, "targets": ["query", "value"]}),
    "liu-2024-dora": (LORA, {"method": "dora", "rank": 8, "targets": ["query", "value"]}),
    "liu-2022": (run(3e-3, batch_size=8, warmup_fraction=0.06), {"method": "ia3"}),
}  # fmt: skip


@pytest.mark.parametrize("name", STATED)
def test_a_recipe_has_what_its_source_states(name):
    recipe, (stated, adapter) = get_recipe(name), STATED[name]
    expected = {**USUAL, **stated}
    assert {field: getattr(recipe, field) for field in expected} == expected
    if recipe.trainable == "adapters":
        expected = {**(USUAL_ADAPTER if "method" not in adapter else {}), **adapter}
        found = recipe.adapter.to_dict()
        assert {field: found[field] for field in expected} == expected
    assert len(recipe.source) > 60


def test_every_recipe_but_the_package_s_own_is_stated():
    assert set(RECIPES) - {"default"} == set(STATED)
    is_refused("recipe='houlsby'.*houlsby-2019", get_recipe, "houlsby")
