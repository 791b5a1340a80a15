"""The papers' complete settings, as data.

A recipe holds everything that a run needs besides the data and the backbone.
Where a paper and its published code differ, `source` says which one is followed.
"""

import dataclasses
from typing import Optional

from tf_adapters.config import MethodConfig
from tf_adapters.errors import InputError
from tf_adapters.methods import AdapterConfig, DoraConfig, IA3Config, LoraConfig

# Of full and top-N fine-tuning, for which no recipe is.
FULL_LEARNING_RATE = 5e-5
# Of pretraining on hidden words.
PRETRAINING = ("gururangan-2020",)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One paper's setting for adapter tuning, or for what it compares adapters with.

    What a row does not say is what most sources have, here and in `AdapterConfig`.

    Attributes:
        name: str, as given to `get_recipe` and `--recipe`.
        adapter: `AdapterConfig` or another `MethodConfig`; of no account where `trainable` is not `"adapters"`, None of
            pretraining.
        head_layers: 1, or 2 for a dense layer with tanh before the classifier.
        learning_rate: float, the peak of the schedule.
        epochs, batch_size, max_length: ints; max_length counts special tokens.
        warmup_fraction: float, share of the steps with a rising learning rate,
            after which it falls linearly to zero.
        decay_from_start: bool, whether that fall is counted from the first step.
        weight_decay, clip_norm, epsilon, bias_correction: of Adam, as in `make_optimizer`.
        dropout: float, of the encoder and the head while training, or None for the encoder's own.
        trainable: str, what trains, as in `set_trainable`.
        source: str, paper, section, and what is followed where sources differ.
    """

    name: str
    adapter: MethodConfig
    learning_rate: float
    epochs: int
    source: str
    head_layers: int = 1
    batch_size: int = 32
    max_length: int = 128
    warmup_fraction: float = 0.1
    decay_from_start: bool = False
    weight_decay: float = 0.0
    clip_norm: Optional[float] = None
    epsilon: float = 1e-7
    bias_correction: bool = True
    dropout: Optional[float] = None
    trainable: str = "adapters"

    def check_labels(self):
        """Raise InputError for a recipe of pretraining, which learns from texts without labels."""
        if self.name in PRETRAINING:
            raise InputError(
                "{recipe} learns from texts without labels: give it to `tf-adapters pretrain`, and another one here.",
                recipe=self.name,
            )


def _report(source, *, sharing="none", train_layer_norm="none", **others):
    adapter = AdapterConfig(init_stddev=1e-2, sharing=sharing, train_layer_norm=train_layer_norm)
    source = (
        "Mohebbi & Rajaei, section 6.1 (Adam, 3e-4, 10 epochs on GLUE; 1e-4 and 50 epochs on the additional tasks) and "
        "table 1. Batch size, length and initialisation are not stated: those of Houlsby et al. and their code (32, "
        f"128, 1e-2). {source}"
    )
    return {"adapter": adapter, "learning_rate": 3e-4, "epochs": 10, "source": source, **others}


def _houlsby(rate, epochs, source, **others):
    source = (
        f"Houlsby et al. 2019, {source} 'Follows Devlin et al. (2018)': the decay of 0.01; epsilon and clipping, which "
        "no paper states, are in houlsby-code-2019."
    )
    adapter = AdapterConfig(init_stddev=1e-2, train_layer_norm="all")
    usual = {"adapter": adapter, "learning_rate": rate, "epochs": epochs, "source": source, "weight_decay": 0.01}
    return {**usual, **others}


def _report_code(sharing):
    return dict(
        adapter=AdapterConfig(activation="gelu_tanh", init_stddev=1e-3, sharing=sharing, train_layer_norm="encoder"),
        learning_rate=3e-4,
        epochs=10,
        epsilon=1e-6,
        source="The code published with Mohebbi & Rajaei's report (TF-Adapter-BERT). Follows the code where the report "
        "differs: initialisation 1e-3, the tanh approximation of GELU, epsilon 1e-6, one classifier, and the encoder's "
        "LayerNorms train, which the counts of its table 1 have in the model 'not shared' alone. The code has the "
        "model 'Houlsby' (one adapter for both places of a block); the other sharings are put into it here.",
    )


def _he(size, rate, epochs, source, **others):
    return dict(
        adapter=AdapterConfig(bottleneck_size=size, activation="tanh", init_stddev=1e-2, train_layer_norm="all"),
        learning_rate=rate,
        epochs=epochs,
        **others,
        source=f"He et al. 2021, equation 1, section 2.1, {source} Initialisation, warm-up and the layers of the head "
        "are not stated: those of Houlsby et al. (1e-2, a tenth of the steps, one layer).",
    )


def _full(rate, epochs, source, **others):
    return {**_FULL, "learning_rate": rate, "epochs": epochs, "source": source, **others}


_FULL = {"adapter": AdapterConfig(), "trainable": "full"}


_UNSHARED = dict(train_layer_norm="encoder", head_layers=2)
_LORA = dict(learning_rate=5e-4, epochs=60, batch_size=16, max_length=512, warmup_fraction=0.06)


#: The recipes by name, in the order of the papers.
RECIPES = {
    name: Recipe(name=name, **about)
    for name, about in {
        "default": dict(
            adapter=AdapterConfig(),
            learning_rate=1e-3,
            epochs=3,
            dropout=0.0,
            source=(
                "This package's own, no paper's: the adapters of houlsby-2019 with a learning rate and a number of "
                "epochs for a first result in minutes. Initialisation 3e-2 and no dropout in the frozen encoder are "
                "what the benchmark `quality` found better on SST-2's validation rows."
            ),
        ),
        "houlsby-2019": _houlsby(
            3e-4,
            20,
            "sections 2.1, 3.1, 3.2 and 3.6. Follows the paper: initialisation 1e-2, GELU, two unshared adapters per "
            "block, all LayerNorms. Learning rate and epochs are the middle and the longer of its sweep ({3e-5, 3e-4, "
            "3e-3} x {3, 20}); the length is the published code's, the paper states none.",
        ),
        "houlsby-2019-additional": _houlsby(
            1e-4,
            50,
            "section 3.3: the 17 additional tasks. One of its rates ({1e-5, 3e-5, 1e-4, 3e-3}), the middle of its "
            "epochs ({20, 50, 100}, chosen by hand from learning curves) and the largest of its sizes ({2, 4, 8, 16, "
            "32, 64}). `tune --space houlsby-2019-additional` has all. The length is the published code's.",
        ),
        "houlsby-code-2019": dict(
            adapter=AdapterConfig(activation="gelu_tanh", init_stddev=1e-3, train_layer_norm="all"),
            learning_rate=3e-4,
            epochs=5,
            source=(
                "The code published with Houlsby et al. 2019 (google-research/adapter-bert). Follows the code where "
                "the paper differs: initialisation 1e-3 instead of 1e-2, the tanh approximation of GELU, and its "
                "optimiser (optimization.py): AdamW with a decay of 0.01 on matrices, epsilon 1e-6, moments without "
                "bias correction, gradients clipped to a norm of 1, and a rate that falls from the first step on."
            ),
            weight_decay=0.01,
            clip_norm=1.0,
            epsilon=1e-6,
            bias_correction=False,
            decay_from_start=True,
        ),
        "report-per-layer": _report(
            "Its model 'Houlsby': one adapter for both places of a block, LayerNorms and pooler frozen. The report "
            "attributes this sharing to Houlsby et al., whose adapters are not shared.",
            sharing="layer",
        ),
        "report-unshared": _report(
            "Its model 'not shared': the count of table 1, 3,006,720, is that of the encoder's LayerNorms (not the "
            "embeddings') and of the first of the two classifiers.",
            **_UNSHARED,
        ),
        "report-3-shared": _report(
            "Its model '3-shared': one adapter for the six places of three consecutive blocks.", sharing=3
        ),
        "report-additional": _report(
            "Table 3: its model 'not shared' on the additional tasks.", **_UNSHARED, learning_rate=1e-4, epochs=50
        ),
        "report-per-layer-code": _report_code("layer"),
        "report-unshared-code": _report_code("none"),
        "report-3-shared-code": _report_code(3),
        "he-2021": _he(
            64,
            1e-4,
            20,
            "section 3.2 and table 10 (GLUE). The text gives 20 epochs for both suites where table 10 gives 10 for "
            "TAE.",
            batch_size=16,
        ),
        "he-2021-tae": _he(
            256,
            1e-4,
            10,
            "section 3.1 and table 10 (TAE); the text gives 20 epochs. The length is not stated: the encoder's limit, "
            "as of Gururangan et al. 2020, whose tasks and baselines these are.",
            batch_size=16,
            max_length=512,
        ),
        "he-2021-xtreme": _he(
            256, 5e-5, 5, "section 4 and table 11 (UD-POS and Wikiann). The length is XTREME's published code's."
        ),
        "he-2021-xnli": _he(256, 4e-5, 5, "section 4 and table 11 (XNLI). The length is XTREME's published code's."),
        "han-2021": dict(
            adapter=AdapterConfig(
                bottleneck_size=48,
                activation="swish",
                init_stddev=2e-2,
                init_distribution="normal",
                train_layer_norm="none",
            ),
            learning_rate=1e-4,
            epochs=20,
            max_length=256,
            source=(
                "Han et al. 2021, section 2 and table 2: Houlsby adapters with the defaults of adapter-transformers 1 "
                "(swish, reduction 16, that is 48 units on BERT-base, LayerNorms frozen, initialisation N(0, 0.02)). "
                "It 'follows the setup from Mosbach et al.' (2020), from whom the tenth of warm-up and the linear fall "
                "are."
            ),
        ),
        "pfeiffer-2021": dict(
            adapter=AdapterConfig(
                bottleneck_size=48,
                activation="relu",
                placement="ffn",
                insertion="after-norm",
                init_stddev=2e-2,
                init_distribution="normal",
                train_layer_norm="none",
            ),
            learning_rate=1e-4,
            epochs=30,
            source=(
                "Pfeiffer et al. 2021 (AdapterFusion), sections 3 and 4: one adapter per block behind the feed-forward "
                "layer, a sixteenth of BERT-base's 768 units, ReLU, pretrained LayerNorm used twice and frozen, 1e-4 "
                "for at most 30 epochs. Initialisation is that of the published library (adapters' seq_bn), batch size "
                "and length are Houlsby et al.'s. The best epoch is kept; training does not stop before the last."
            ),
        ),
        "hu-2022": dict(
            adapter=LoraConfig(rank=8, alpha=8, targets=("query", "value")),
            **_LORA,
            source=(
                "Hu et al. 2022 (LoRA), section 4.2 and appendix D.1, table 9: RoBERTa-base on SST-2, whose other "
                "tasks have 4e-4 or 5e-4 and 25 to 80 epochs. Initialisation is that of the published code (uniform), "
                "the paper's text says Gaussian. AdamW there, Adam here."
            ),
        ),
        "liu-2024-dora": dict(
            adapter=DoraConfig(rank=8, alpha=8, targets=("query", "value")),
            **_LORA,
            source=(
                "Liu et al. 2024 (DoRA), section 4. The paper trains decoders; rank, targets, rate, epochs, batches "
                "and length are those of hu-2022, with which it compares. The magnitude is learned relative to the "
                "pretrained one."
            ),
        ),
        "liu-2022": dict(
            adapter=IA3Config(),
            learning_rate=3e-3,
            epochs=3,
            batch_size=8,
            warmup_fraction=0.06,
            source=(
                "Liu et al. 2022 ((IA)^3), sections 3.3 and 3.5: keys, values and inner activations scaled, 3e-3 with "
                "a linear warm-up over 6 % of the steps, batches of 8. The paper's is T0, an encoder and decoder, for "
                "1,000 steps of Adafactor without a new head; the optimiser, epochs, head and length here are this "
                "package's own."
            ),
        ),
        "houlsby-2019-full": _houlsby(
            3e-5,
            3,
            "section 3.2: full fine-tuning on GLUE, whose numbers are Devlin et al.'s (3 epochs, batches of 32, the "
            "best of 5e-5, 4e-5, 3e-5 and 2e-5).",
            **_FULL,
        ),
        "houlsby-2019-additional-full": _houlsby(
            3e-5,
            20,
            "section 3.3: full fine-tuning on the additional tasks, and with --trainable top-N variable fine-tuning. "
            "One of its rates ({1e-5, 3e-5, 1e-4, 3e-3}), the shortest of its epochs ({20, 50, 100}); `tune --space "
            "houlsby-2019-top-n` has all.",
            **_FULL,
        ),
        "houlsby-2019-layer-norm": _houlsby(
            3e-4,
            20,
            "section 3.4 and figure 4: LayerNorms alone, 40 thousand parameters on BERT-base. Its rate is not stated: "
            "the middle of the adapters' ({3e-5, 3e-4, 3e-3}).",
            **{**_FULL, "trainable": "layer-norm"},
        ),
        "he-2021-full": _full(
            2e-5,
            20,
            "He et al. 2021, section 3.2, appendix A.2 and table 10: full fine-tuning on GLUE, one of the rates "
            "searched (1e-5 to 5e-5). `tune --space he-2021-glue-full` has the search. Warm-up is not stated: a tenth.",
            batch_size=16,
        ),
        "he-2021-tae-full": _full(
            2e-5,
            10,
            "He et al. 2021, appendix A.2 and table 10: full fine-tuning on TAE.",
            batch_size=16,
            max_length=512,
        ),
        "he-2021-xtreme-full": _full(
            2e-5, 5, "He et al. 2021, appendix A.2 and table 11: full fine-tuning on UD-POS and Wikiann."
        ),
        "he-2021-xnli-full": _full(1e-5, 5, "He et al. 2021, appendix A.2 and table 11: full fine-tuning on XNLI."),
        "han-2021-full": _full(
            2e-5,
            10,
            "Han et al. 2021, table 3: fine-tuning without adapters, 2e-5 for 10 epochs in batches of 32, 128 tokens. "
            "The schedule is not stated: as with adapters.",
        ),
        "gururangan-2020": _full(
            1e-4,
            100,
            "Gururangan et al. 2020, section 4 and the table of hyperparameters for pretraining: task-adaptive "
            "pretraining of the whole encoder, what He et al. 2021 call ft + TAPT. With the published code's 16 texts "
            "at a time `--accumulate 16`. Adam's second decay is 0.98 there, and 0.999 here.",
            batch_size=256,
            max_length=512,
            adapter=None,
            warmup_fraction=0.06,
            epsilon=1e-6,
            weight_decay=0.01,
        ),
    }.items()
}


def get_recipe(name: str) -> Recipe:
    """Return the `Recipe` called `name`; raises InputError with the known names otherwise."""
    if name not in RECIPES:
        raise InputError(f"{{recipe}} is unknown: the recipes are {', '.join(RECIPES)}.", recipe=name)
    return RECIPES[name]


def changed_adapter(recipe, changes):
    """The recipe's adapter with other values: `changes`, a dict by the names of its fields."""
    if "rank" in changes and "alpha" not in changes and recipe.adapter.alpha == recipe.adapter.rank:
        # A scale of 1 stays one.
        changes = {**changes, "alpha": None}
    return dataclasses.replace(recipe.adapter, **changes)
