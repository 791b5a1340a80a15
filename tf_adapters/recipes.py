"""The papers' complete settings, as data.

A recipe holds everything that a run needs besides the data and the backbone.
Where a paper and its published code differ, `source` says which one is followed.
"""

import collections.abc
import dataclasses
from typing import Optional

from tf_adapters import methods
from tf_adapters.config import MethodConfig
from tf_adapters.errors import InputError

# Of full and top-N fine-tuning, for which no recipe is.
FULL_LEARNING_RATE = 5e-5


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One paper's setting for adapter tuning, or for what it compares adapters with.

    Attributes:
        name: str, as given to `get_recipe` and `--recipe`.
        adapter: `AdapterConfig` or another `MethodConfig`; of no account where `trainable` is not `"adapters"`.
        head_layers: 1, or 2 for a dense layer with tanh before the classifier.
        learning_rate: float, the peak of the schedule.
        epochs, batch_size, max_length: ints; max_length counts special tokens.
        warmup_fraction: float, share of the steps with a rising learning rate,
            after which it falls linearly to zero.
        dropout: float, of the encoder and the head while training, or None for the encoder's own.
        trainable: str, what trains, as in `set_trainable`.
        source: str, paper, section, and what is followed where sources differ.
    """

    name: str
    adapter: MethodConfig
    head_layers: int
    learning_rate: float
    epochs: int
    batch_size: int
    max_length: int
    source: str
    warmup_fraction: float = 0.1
    dropout: Optional[float] = None
    trainable: str = "adapters"


_REPORT = (
    "Mohebbi & Rajaei, section 6.1 (Adam, 3e-4, 10 epochs on GLUE; 1e-4 and 50 epochs on the additional tasks) and "
    "table 1. Batch size and length are not stated: those of Houlsby et al. and their code (32, 128)."
)

_LORA = dict(head_layers=1, learning_rate=5e-4, epochs=60, batch_size=16, max_length=512, warmup_fraction=0.06)


def _baseline():
    return dict(adapter=methods.AdapterConfig(), head_layers=1, max_length=128)


class _Recipes(collections.abc.Mapping):
    """The recipes by name, in the order of the papers. Each is made at its first use: a help text that names them needs
    no TensorFlow."""

    def __init__(self, makers):
        self._makers, self._made = makers, {}

    def __getitem__(self, name):
        if name not in self._made:
            self._made[name] = Recipe(name=name, **self._makers[name]())
        return self._made[name]

    def __iter__(self):
        return iter(self._makers)

    def __len__(self):
        return len(self._makers)


RECIPES = _Recipes(
    {
        "default": lambda: dict(
            adapter=methods.AdapterConfig(
                bottleneck_size=64, activation="gelu", init_stddev=3e-2, train_layer_norm="all"
            ),
            head_layers=1,
            learning_rate=1e-3,
            epochs=3,
            batch_size=32,
            dropout=0.0,
            max_length=128,
            source=(
                "This package's own, no paper's: the adapters of houlsby-2019 with a learning rate and a number of "
                "epochs for a first result in minutes. Initialisation 3e-2 and no dropout in the frozen encoder are "
                "what benchmarks/quality.py found better on SST-2's validation rows."
            ),
        ),
        "houlsby-2019": lambda: dict(
            adapter=methods.AdapterConfig(
                bottleneck_size=64, activation="gelu", init_stddev=1e-2, train_layer_norm="all"
            ),
            head_layers=1,
            learning_rate=3e-4,
            epochs=20,
            batch_size=32,
            max_length=128,
            source=(
                "Houlsby et al. 2019, sections 2.1, 3.1, 3.2 and 3.6. Follows the paper: initialisation 1e-2, GELU, "
                "two unshared adapters per block, all LayerNorms. Learning rate and epochs are the middle and the "
                "longer of its sweep ({3e-5, 3e-4, 3e-3} x {3, 20}); the length is the published code's, the paper "
                "states none."
            ),
        ),
        "houlsby-code-2019": lambda: dict(
            adapter=methods.AdapterConfig(
                bottleneck_size=64, activation="gelu_tanh", init_stddev=1e-3, train_layer_norm="all"
            ),
            head_layers=1,
            learning_rate=3e-4,
            epochs=5,
            batch_size=32,
            max_length=128,
            source=(
                "The code published with Houlsby et al. 2019 (google-research/adapter-bert). Follows the code where "
                "the paper differs: initialisation 1e-3 instead of 1e-2 and the tanh approximation of GELU."
            ),
        ),
        "report-per-layer": lambda: dict(
            adapter=methods.AdapterConfig(bottleneck_size=64, sharing="layer", train_layer_norm="none"),
            head_layers=1,
            learning_rate=3e-4,
            epochs=10,
            batch_size=32,
            max_length=128,
            source=_REPORT
            + " Its model 'Houlsby': one adapter for both places of a block, LayerNorms and pooler frozen. "
            "The report attributes this sharing to Houlsby et al., whose adapters are not shared.",
        ),
        "report-unshared": lambda: dict(
            adapter=methods.AdapterConfig(bottleneck_size=64, sharing="none", train_layer_norm="encoder"),
            head_layers=2,
            learning_rate=3e-4,
            epochs=10,
            batch_size=32,
            max_length=128,
            source=_REPORT
            + " Its model 'not shared': the count of table 1, 3,006,720, is that of the encoder's LayerNorms (not the "
            "embeddings') and of the first of the two classifiers.",
        ),
        "report-3-shared": lambda: dict(
            adapter=methods.AdapterConfig(bottleneck_size=64, sharing=3, train_layer_norm="none"),
            head_layers=1,
            learning_rate=3e-4,
            epochs=10,
            batch_size=32,
            max_length=128,
            source=_REPORT + " Its model '3-shared': one adapter for the six places of three consecutive blocks.",
        ),
        "he-2021": lambda: dict(
            adapter=methods.AdapterConfig(bottleneck_size=64, activation="tanh", train_layer_norm="all"),
            head_layers=1,
            learning_rate=1e-4,
            epochs=20,
            batch_size=16,
            max_length=128,
            source=(
                "He et al. 2021, equation 1, sections 2.1 and 3.2, table 10 (GLUE column). The text gives 20 epochs "
                "for both suites where table 10 gives 10 for TAE; this is the GLUE setting. On TAE the paper uses size "
                "256. Initialisation is not stated: Houlsby et al.'s."
            ),
        ),
        "han-2021": lambda: dict(
            adapter=methods.AdapterConfig(bottleneck_size=48, activation="swish", train_layer_norm="none"),
            head_layers=1,
            learning_rate=1e-4,
            epochs=20,
            batch_size=32,
            max_length=256,
            source=(
                "Han et al. 2021, section 2 and table 2: Houlsby adapters with the defaults of adapter-transformers 1 "
                "(swish, reduction 16, that is 48 units on BERT-base, LayerNorms frozen). That library initialises by "
                "N(0, 0.02); here it is Houlsby et al.'s truncated 1e-2, which the paper's text refers to."
            ),
        ),
        "pfeiffer-2021": lambda: dict(
            adapter=methods.AdapterConfig(
                bottleneck_size=48,
                activation="relu",
                placement="ffn",
                insertion="after-norm",
                init_stddev=2e-2,
                train_layer_norm="none",
            ),
            head_layers=1,
            learning_rate=1e-4,
            epochs=30,
            batch_size=32,
            max_length=128,
            source=(
                "Pfeiffer et al. 2021 (AdapterFusion), sections 3 and 4: one adapter per block behind the feed-forward "
                "layer, a sixteenth of BERT-base's 768 units, ReLU, pretrained LayerNorm used twice and frozen, 1e-4 "
                "for at most 30 epochs. Initialisation is that of the published library (adapters' seq_bn), batch size "
                "and length are Houlsby et al.'s. The best epoch is kept; training does not stop before the last."
            ),
        ),
        "hu-2022": lambda: dict(
            adapter=methods.LoraConfig(rank=8, alpha=8, targets=("query", "value")),
            **_LORA,
            source=(
                "Hu et al. 2022 (LoRA), section 4.2 and appendix D.1, table 9: RoBERTa-base on SST-2, whose other "
                "tasks have 4e-4 or 5e-4 and 25 to 80 epochs. Initialisation is that of the published code (uniform), "
                "the paper's text says Gaussian. AdamW there, Adam here."
            ),
        ),
        "liu-2024-dora": lambda: dict(
            adapter=methods.DoraConfig(rank=8, alpha=8, targets=("query", "value")),
            **_LORA,
            source=(
                "Liu et al. 2024 (DoRA), section 4. The paper trains decoders; rank, targets, rate, epochs, batches "
                "and length are those of hu-2022, with which it compares. The magnitude is learned relative to the "
                "pretrained one."
            ),
        ),
        "liu-2022": lambda: dict(
            adapter=methods.IA3Config(),
            head_layers=1,
            learning_rate=3e-3,
            epochs=3,
            batch_size=8,
            max_length=128,
            warmup_fraction=0.06,
            source=(
                "Liu et al. 2022 ((IA)^3), sections 3.3 and 3.5: keys, values and inner activations scaled, 3e-3 with "
                "a linear warm-up over 6 % of the steps, batches of 8. The paper's is T0, an encoder and decoder, for "
                "1,000 steps of Adafactor without a new head; the optimiser, epochs, head and length here are this "
                "package's own."
            ),
        ),
        "houlsby-2019-full": lambda: dict(
            trainable="full",
            learning_rate=3e-5,
            epochs=20,
            batch_size=32,
            source=(
                "Houlsby et al. 2019, section 3.3: full fine-tuning, and with --trainable top-N variable fine-tuning. "
                "One of its rates ({1e-5, 3e-5, 1e-4, 3e-3}) and the shortest of its epochs ({20, 50, 100}); `tune "
                "--space houlsby-2019-top-n` has all."
            ),
            **_baseline(),
        ),
        "houlsby-2019-layer-norm": lambda: dict(
            trainable="layer-norm",
            learning_rate=3e-4,
            epochs=20,
            batch_size=32,
            source=(
                "Houlsby et al. 2019, section 3.4 and figure 4: LayerNorms alone, 40 thousand parameters on "
                "BERT-base. Its rate is not stated: the middle of the adapters' ({3e-5, 3e-4, 3e-3})."
            ),
            **_baseline(),
        ),
        "he-2021-full": lambda: dict(
            trainable="full",
            learning_rate=2e-5,
            epochs=20,
            batch_size=16,
            source=(
                "He et al. 2021, section 3.2 and appendix A.2: full fine-tuning on GLUE, one of the rates searched "
                "(1e-5 to 5e-5) and the batch size of he-2021; on TAE it is 2e-5 too. `tune --space he-2021-glue-full` "
                "has the search."
            ),
            **_baseline(),
        ),
        "han-2021-full": lambda: dict(
            trainable="full",
            learning_rate=2e-5,
            epochs=10,
            batch_size=32,
            source="Han et al. 2021, table 3: fine-tuning without adapters, 2e-5 for 10 epochs in batches of 32, 128 "
            "tokens.",
            **_baseline(),
        ),
    }
)


def get_recipe(name: str) -> Recipe:
    """Return the `Recipe` called `name`; raises InputError with the known names otherwise."""
    if name not in RECIPES:
        raise InputError(f"{{recipe}} is unknown: the recipes are {', '.join(RECIPES)}.", recipe=name)
    return RECIPES[name]


def usual_settings(recipe, trainable="adapters"):
    """What a run has where nothing else is asked for: dict of epochs, learning_rate, batch_size and dropout.

    A recipe for adapters has a rate that would destroy pretrained weights, which its dropout does not protect either.

    Args:
        recipe: `Recipe`.
        trainable: str, as in `set_trainable`.
    """
    settings = {name: getattr(recipe, name) for name in ("epochs", "learning_rate", "batch_size", "dropout")}
    changes_encoder = trainable == "full" or trainable.startswith("top-")
    if trainable == recipe.trainable or (changes_encoder and recipe.trainable == "full"):
        return settings
    if trainable != "adapters":
        settings["dropout"] = None
    if changes_encoder:
        settings["learning_rate"] = FULL_LEARNING_RATE
    return settings


def changed_adapter(recipe, changes):
    """The recipe's adapter with other values: `changes`, a dict by the names of its fields."""
    if "rank" in changes and "alpha" not in changes and recipe.adapter.alpha == recipe.adapter.rank:
        # A scale of 1 stays one.
        changes = {**changes, "alpha": None}
    return dataclasses.replace(recipe.adapter, **changes)
