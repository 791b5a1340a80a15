"""What a search may vary, and the papers' grids, as data."""

import dataclasses
import re
from typing import Dict, Optional

from tf_adapters.errors import InputError
from tf_adapters.methods.bottleneck import AdapterConfig
from tf_adapters.methods.lora import LoraConfig
from tf_adapters.ranges import RANGES, checked, choices_of, is_real
from tf_adapters.recipes import changed_adapter
from tf_adapters.training.settings import choices, option_of


@dataclasses.dataclass(frozen=True)
class Range:
    """Every number between two.

    Args:
        low, high: ints or floats, both included.
        log: bool, whether each factor is as likely as another of its size, rather than each difference.

    Raises:
        InputError: `low` is not below `high`, or not above 0 with `log`.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self):
        if not (is_real(self.low) and is_real(self.high)) or self.low >= self.high or (self.log and self.low <= 0):
            raise InputError(
                f"space: the range {self.low!r}..{self.high!r} must go from a number up to a greater one"
                + (", both above 0." if self.log else ".")
            )

    def __contains__(self, value):
        return is_real(value) and self.low <= value <= self.high

    def __str__(self):
        return f"{self.low:g}..{self.high:g}"


@dataclasses.dataclass(frozen=True)
class Dimension:
    """Something that may vary."""

    option: str  # of `tf-adapters train`
    types: str  # what its values are: "int", "float", "word", "int or word", "float or word"
    field: Optional[str] = None  # the adapter's field that it sets; None for a setting of the run


DIMENSIONS = {
    "trainable": Dimension("--trainable", "word"),
    **{
        about.name_of(field): Dimension(about.options_of(field)[0], about.searched, field)
        for config in (AdapterConfig, LoraConfig)
        for field, about in choices_of(config).items()
        if about.searched
    },
    **{name: Dimension(option_of(name), choice.searched) for name, choice in choices().items() if choice.searched},
}


@dataclasses.dataclass(frozen=True)
class Space:
    """What a search varies, and around what."""

    name: str  # as given to `AdapterHyperModel` and `--space`
    recipe: str  # the `Recipe` that has everything else
    values: Dict[str, object]  # from a name in `DIMENSIONS` to a tuple, one value of which alone is fixed, or a `Range`
    source: str  # paper and section, and what is added


_SIZES_OF_HE = (64, 128, 256)
_RATES_OF_HE = (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)
_TOP_N = tuple(f"top-{n}" for n in (1, 2, 3, 5, 7, 9, 11, 12))
_ADDITIONAL = {"learning_rate": (1e-5, 3e-5, 1e-4, 3e-3), "epochs": (20, 50, 100)}

SPACES = {
    name: Space(name, *about)
    for name, about in {
        "default": (
            "default",
            {
                "bottleneck_size": tuple(2**power for power in range(1, 10)),
                "learning_rate": Range(3e-5, 3e-3, log=True),
                "epochs": (3, 5, 10),
                "sharing": ("none", "layer", 3),
                "activation": ("gelu", "relu", "swish", "tanh"),
                "init_stddev": Range(1e-3, 1e-1, log=True),
                "train_layer_norm": ("none", "encoder", "all"),
            },
            "This package's own: what the papers vary, over what they found useful. For a random or Bayesian search.",
        ),
        "houlsby-2019-glue": (
            "houlsby-2019",
            {"learning_rate": (3e-5, 3e-4, 3e-3), "epochs": (3, 20), "bottleneck_size": (8, 64, 256)},
            "Houlsby et al. 2019, section 3.2. The paper runs 5 seeds and keeps the best by validation.",
        ),
        "houlsby-2019-additional": (
            "houlsby-2019",
            {**_ADDITIONAL, "bottleneck_size": (2, 4, 8, 16, 32, 64)},
            "Houlsby et al. 2019, section 3.3. The paper chose the epochs by hand from learning curves.",
        ),
        "houlsby-2019-top-n": (
            "houlsby-2019",
            {**_ADDITIONAL, "trainable": _TOP_N},
            "Houlsby et al. 2019, section 3.3: variable fine-tuning of an encoder of 12 blocks, without adapters.",
        ),
        "houlsby-2019-squad": (
            "houlsby-2019",
            {
                "learning_rate": (3e-5, 1e-4, 3e-4, 1e-3),
                "epochs": (3, 10, 20),
                "bottleneck_size": tuple(2**power for power in range(10)),
            },
            "Houlsby et al. 2019, section 3.5 and figure 5; the sizes are those of figure 4, of which the text "
            "names 2 and 64.",
        ),
        "houlsby-2019-squad-top-n": (
            "houlsby-2019",
            {"learning_rate": (3e-5, 5e-5, 1e-4), "epochs": (2, 3, 5), "trainable": _TOP_N},
            "Houlsby et al. 2019, section 3.5 and figure 5: fine-tuning; the numbers of blocks are those of "
            "section 3.3.",
        ),
        "he-2021-tae": (
            "he-2021-tae",
            {"learning_rate": (2e-5, 5e-5, 1e-4, 2e-4), "bottleneck_size": _SIZES_OF_HE},
            "He et al. 2021, appendix A.2; batch size and epochs of table 10.",
        ),
        "he-2021-glue": (
            "he-2021",
            {"bottleneck_size": _SIZES_OF_HE},
            "He et al. 2021, appendix A.2: the size for each task, at the rate, batch size and epochs of table 10.",
        ),
        "he-2021-glue-full": (
            "he-2021",
            {"learning_rate": _RATES_OF_HE, "batch_size": (16, 32), "trainable": ("full",)},
            "He et al. 2021, appendix A.2: full fine-tuning; epochs of table 10.",
        ),
        "he-2021-xtreme": (
            "he-2021-xtreme",
            {"learning_rate": _RATES_OF_HE, "bottleneck_size": _SIZES_OF_HE},
            "He et al. 2021, appendix A.2 (UD-POS, Wikiann NER, XNLI); epochs of table 11.",
        ),
    }.items()
}


def get_space(name):
    """Return the `Space` called `name`; raises InputError with the known names otherwise."""
    if name not in SPACES:
        raise InputError(f"{{space}} is unknown: the spaces are {', '.join(SPACES)}.", space=name)
    return SPACES[name]


def check_values(values, recipe):
    """A search space, a dict from a name in `DIMENSIONS` to a sequence of values, one value or a `Range`, checked
    against what a recipe has: dict from name to a tuple or a `Range`."""
    if not isinstance(values, dict):
        raise InputError("{space} must be the name of a space or a dict from names to values.", space=values)
    values = dict(values)
    for name, choice in values.items():
        if name not in DIMENSIONS:
            raise InputError(f"space: {name!r} cannot be searched: use one of {', '.join(DIMENSIONS)}.")
        if not isinstance(choice, Range):
            choice = tuple(choice) if isinstance(choice, (list, tuple, range)) else (choice,)
            if not choice:
                raise InputError(f"space: {name} is empty: give it a value at least, or leave it out.")
            if len(set(choice)) != len(choice):
                raise InputError(f"space: {name} has a value twice: {', '.join(map(str, choice))}.")
        elif DIMENSIONS[name].types not in ("int", "float"):
            raise InputError(f"space: {name} has no range, only values such as {DIMENSIONS[name].types}s.")
        values[name] = choice
    if not any(map(varies, values.values())):
        raise InputError(
            "space is empty: nothing varies in it; give two values or a range, such as learning_rate=(1e-4, 1e-3)."
        )
    modes = values.get("trainable", (recipe.trainable,))
    fields = {field.name for field in dataclasses.fields(recipe.adapter)}
    for name, choice in values.items():
        dimension = DIMENSIONS[name]
        if dimension.field is not None and "adapters" not in modes:
            raise InputError(
                f"space: {name} is for adapters, and trainable is {', '.join(modes)}: leave one of them out."
            )
        if dimension.field is not None and dimension.field not in fields:
            raise InputError(
                f"space: {name} is no setting of the method of recipe {recipe.name} ({recipe.adapter.method})."
            )
        for value in (choice.low, choice.high) if isinstance(choice, Range) else choice:
            _check_value(name, dimension.field, value, recipe)
    return values


def varies(choice):
    """Whether a tuple of values or a `Range` has more than one."""
    return isinstance(choice, Range) or len(choice) > 1


def check_depth(values, depth, source):
    """Raise InputError if a space asks for more blocks than an encoder has."""
    for name in ("sharing", "trainable"):
        for value in values.get(name, ()):
            match = re.fullmatch(r"(?:top-)?(\d+)", str(value))
            if match and not 1 <= int(match[1]) <= depth:
                raise InputError(
                    f"space: {name} {value} contradicts the model: {source} has {depth} blocks; leave that value out."
                )


def _check_value(name, field, value, recipe):
    if field is not None:
        try:
            changed_adapter(recipe, {field: value})
        except InputError as error:
            raise InputError(f"space: {error}") from None
    elif name in RANGES:
        checked(name, value, shown=f"space: {name}={value!r}")
    elif name == "trainable":
        from tf_adapters.models.trainable import MODES  # imports Keras

        if re.sub(r"^top-\d+$", "top-N", str(value)) not in MODES:
            raise InputError(
                f"space: trainable={value!r} is unknown: use one of {', '.join(MODES)}, with a number for N."
            )
