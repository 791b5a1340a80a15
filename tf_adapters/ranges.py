"""Which numbers a setting may have, and what else is known of one: the command line and Python's functions both ask.

Comparisons are written so that NaN fails them.
"""

import dataclasses
import functools
import inspect
import math
import numbers
from typing import Callable, Optional, Tuple, cast

import numpy as np

from tf_adapters._types import Function
from tf_adapters.errors import InputError

# Of float32, without the numbers below it that processors take for 0.
LEAST_FLOAT, MOST_FLOAT = 2.0**-126, (2 - 2.0**-23) * 2.0**127
# Beyond it a layer would be wider than any encoder, by a typing error.
_WIDEST, _DEEPEST = 2**16, 2**8


@dataclasses.dataclass(frozen=True)
class Whole:
    """Integers from `least` to `most`."""

    least: int = 1
    most: int = 2**31 - 1

    def problem(self, value):
        """What is wrong with a value, as the end of a sentence, or None."""
        if not is_int(value) or value < self.least:
            return f"must be an integer of at least {self.least}"
        return None if value <= self.most else f"must be an integer of at most {self.most}"


@dataclasses.dataclass(frozen=True)
class Real:
    """Numbers of float32 that are `above` or `at_least` one, and, if that is given, `below` or `at_most` another;
    `such_as` a usual one."""

    above: float = None
    at_least: float = None
    below: float = None
    at_most: float = None
    such_as: float = None

    def problem(self, value):
        """As of `Whole`."""
        bounds = {"above": self.above, "of at least": self.at_least, "below": self.below, "at most": self.at_most}
        words = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None)
        words = f"must be a number {words}" + ("" if self.such_as is None else f", such as {self.such_as:g}")
        if is_real(value):
            value = float(np.float32(value))  # as the computation has it
            low = value > self.above if self.above is not None else value >= self.at_least
            high = value < self.below if self.below is not None else self.at_most is None or value <= self.at_most
            return None if low and high else words
        if isinstance(value, numbers.Real) and 0 < abs(value) < math.inf:
            return f"{words}, of those that float32 holds ({LEAST_FLOAT:.2g} to {MOST_FLOAT:.2g})"
        return words


_RATE = Real(at_least=0, below=1)
_LEARNING_RATE = Real(above=0, such_as=1e-3)

# By the name of the argument, which is mostly that of the option.
RANGES = {
    "accumulate": Whole(),
    "alpha": Real(above=0),
    "batch_size": Whole(),
    "bottleneck_size": Whole(most=_WIDEST),
    "checkpoint_seconds": Real(at_least=0),
    "clip_norm": Real(above=0, such_as=1),
    "count": Whole(),
    "dropout": _RATE,
    "epochs": Whole(),
    "epsilon": Real(above=0, such_as=1e-7),
    "fit_head_steps": Whole(0),
    "head_learning_rate": _LEARNING_RATE,
    "hidden_layers": Whole(most=_DEEPEST),
    "init_stddev": Real(at_least=0),
    "learning_rate": _LEARNING_RATE,
    "max_length": Whole(3),  # a special token, one token and a special token
    "mixout": _RATE,
    "patience": Whole(),
    "period": Whole(),
    "port": Whole(0, 65535),
    "random_drop": Whole(0),
    "rank": Whole(most=_WIDEST),
    "rate": Real(above=0, below=1, such_as=0.15),
    "save_every": Whole(),
    "seed": Whole(0, 2**32 - 1),
    "seeds": Whole(),
    "steps": Whole(),
    "trials": Whole(),
    "value_regularization": Real(at_least=0),
    "warmup_fraction": _RATE,
    "weight_decay": Real(at_least=0, such_as=0.01),
}

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
# What Keras 3 runs on.
BACKENDS = ("tensorflow", "jax", "torch")


@dataclasses.dataclass(frozen=True)
class Choice:
    """What is known of a field of settings, of a study or of a method's config besides its type and its default."""

    help: str  # for the command line and the documentation; Markdown
    unit: Optional[str] = None  # what a number counts
    source: Optional[str] = None  # paper and section
    range: object = None  # `Whole` or `Real`; None where `RANGES` has it for other users of the name too
    option: Optional[str] = None  # of the command line, without its dashes; None for the field's name
    alias: Optional[str] = None  # another name of that option
    read: Optional[Callable[[str], object]] = None  # from an option's text to the value; None where the type reads it
    of_recipe: bool = False  # a recipe decides where nothing is given
    searched: Optional[str] = None  # a search's values: "int", "float", "word", "int or word", "float or word"
    kept: bool = False  # an adapter directory says what it was trained with
    compared: bool = True  # a run is only resumed with the same value
    one_device: bool = False  # it is not for a strategy of several devices
    first_door: bool = False  # it is for models of transformers alone
    of_kinds: bool = False  # it is only for the kinds of tasks that name it
    values: Optional[Tuple[str, ...]] = None  # the words that it can be; with `of` each of its words
    panel: Optional[str] = "Training"  # where the command line's help has it
    metavar: Optional[str] = None  # what that has for the value; None for the type
    of: Optional[Callable] = None  # what reads a word of several values of a study: `str`, `int` or `float`
    smoke: object = None  # the value with which a study's `--smoke` shows that it runs; None for the default
    extends: bool = False  # a study that has begun may go on with more values

    def name_of(self, field):
        """What the field is called beside those of other classes, such as `adapter_dropout`."""
        return (self.option or field).replace("-", "_")

    def options_of(self, field):
        """The options of the command line, such as `["--batch-size"]`; an alias is last."""
        words = [self.name_of(field).replace("_", "-"), *([self.alias] if self.alias else [])]
        return [f"--{word}" for word in words]


def choice(default, help, **about):
    """A dataclass' field with a `Choice`."""
    return dataclasses.field(default=default, metadata={"choice": Choice(help, **about)})


def choices_of(settings):
    """The `Choice` of each field of a dataclass that has one, a dict in their order."""
    fields = dataclasses.fields(settings)
    return {field.name: field.metadata["choice"] for field in fields if "choice" in field.metadata}


def number_or_word(text):
    """The value of an option's text for a field that is a number or a word."""
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


def is_int(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_real(value):
    """Whether it is a number that float32 holds: finite, and 0 or not too near it."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return is_number and (value == 0 or LEAST_FLOAT <= abs(value) <= MOST_FLOAT)


def checked(name, value, *, shown=None):
    """The value of a setting, one of `RANGES`, as a plain int or float; InputError, which begins by `shown` or
    `name=value`, if it is out of range."""
    problem = RANGES[name].problem(value)
    if problem is not None:
        raise InputError(f"{shown or f'{{{name}}}'} {problem}.", **{name: value})
    return int(value) if isinstance(RANGES[name], Whole) else float(value)


def in_range(function: Function) -> Function:
    """The function, which first checks all of its arguments that are in `RANGES`; None is one only where it is the
    default."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def run(*arguments, **settings):
        bound = signature.bind(*arguments, **settings)
        for parameter in signature.parameters.values():
            several = parameter.kind is parameter.VAR_KEYWORD
            values = bound.arguments.get(parameter.name, {}) if several else bound.arguments
            for name in values.keys() & RANGES.keys() & (values.keys() if several else {parameter.name}):
                if values[name] is not None or not (several or parameter.default is None):
                    values[name] = checked(name, values[name])
        return function(*bound.args, **bound.kwargs)

    # Keras 3 looks at a layer's own, without what `functools.wraps` says.
    run.__signature__ = signature  # type: ignore[attr-defined]
    return cast(Function, run)


def check_choice(name, value, values):
    """Raise InputError unless a value is one of some words."""
    if value not in values:
        raise InputError(f"{{{name}}} is unknown: use one of {', '.join(values)}.", **{name: value})


def check_fields(config):
    """Check the numbers, and the words of each `Choice`, of a frozen dataclass, whose `__post_init__` calls this."""
    words = {name: about.values for name, about in choices_of(config).items() if about.values is not None}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in words and (value is not None or field.default is not None):
            check_choice(field.name, value, words[field.name])
        if field.name in RANGES and (value is not None or field.default is not None):
            object.__setattr__(config, field.name, checked(field.name, value))


def check_seeds(seed, seeds):
    """Raise InputError unless there are that many seeds from one on."""
    most = RANGES["seed"].most
    if seed + seeds - 1 > most:
        raise InputError(f"{{seeds}} from {seed} on are more than there are: the last seed is {most}.", seeds=seeds)
