"""What a study is: its options, what it measures, what that comes to, and its figure."""

import dataclasses
import pathlib
from typing import Callable, ClassVar, Optional

from tf_adapters.errors import InputError
from tf_adapters.ranges import RANGES, checked
from tf_adapters.studies.numbers import table_of

#: The file in a study's folder with its settings and what it found.
SUMMARY_FILE = "summary.json"


@dataclasses.dataclass(frozen=True)
class Option:
    """What is known of a field of a `Study` besides its type and its default.

    Attributes:
        help: str, for the command line and the documentation; Markdown.
        of: for a field of several values, what reads one of its words (`str`, `int` or `float`); None for one of one.
        smoke: the value with which `--smoke` shows that the study runs, or None for the default.
        range: `ranges.Whole` or `ranges.Real` of each number, or None for the one that ranges.py has for the name.
        extends: bool, whether a study that has begun may go on with more values.
    """

    help: str
    of: Optional[Callable] = None
    smoke: object = None
    range: object = None
    extends: bool = False


def option(default, help, **about):
    """A field of a `Study` that is an option of its command."""
    return dataclasses.field(default=default, metadata={"option": Option(help, **about)})


@dataclasses.dataclass(frozen=True)
class Study:
    """Base of the studies: a frozen dataclass whose fields are its options.

    A subclass measures by `lab.value`, which keeps each result, so that a killed study goes on.

    Attributes:
        name: str, that of the command.
        figures: str, what it reproduces: papers with figures and tables.
        packages: names of packages that it needs and the library does not.
        columns: dict from the title of a column of its table to a function of a row, a dict, that gives a word.
    """

    name: ClassVar[str] = ""
    figures: ClassVar[str] = ""
    packages: ClassVar[tuple] = ()
    columns: ClassVar[dict] = {}

    def __post_init__(self):
        for name, about in options_of(type(self)).items():
            value = getattr(self, name)
            if about.of is not None:
                value = (value,) if isinstance(value, (str, int, float)) else tuple(value or ())
                object.__setattr__(self, name, value)
                if len(set(value)) != len(value):
                    raise InputError(f"{{{name}}} has a value twice: give each once.", **{name: list(value)})
            if about.range is not None or name in RANGES:
                for number in value if about.of is not None else (value,):
                    if number is not None:
                        _check_number(name, number, about.range)
        self.check()

    def check(self):
        """Raise InputError for options that do not fit together, before anything is loaded."""

    def measure(self, lab):
        """Measure what is missing, by `Lab.value`."""
        raise NotImplementedError

    def summarise(self, values):
        """What the measured values come to, a dict for JSON.

        Args:
            values: list of dicts, what identifies a value beside what was measured, in the order of measuring.
        """
        raise NotImplementedError

    def table(self, summary):
        """The summary as `(columns, rows)`, lists of words: a row of `columns` for each arm of a task, or each of
        `table_rows`."""
        return table_of(summary["tasks"], self.columns, self.table_rows)

    def table_rows(self, about):
        """The rows of what a summary says of a task, dicts."""
        return about.get("arms", about).values()

    def draw(self, summary, figure):
        """Draw the summary on an empty Matplotlib figure."""
        raise NotImplementedError

    def changes(self):
        """What options change of the papers' recipes, a dict for JSON."""
        return {}

    def settings(self):
        """The options, a dict for JSON."""
        values = {name: getattr(self, name) for name in options_of(type(self))}
        return {
            name: [*value] if isinstance(value, tuple) else str(value) if isinstance(value, pathlib.Path) else value
            for name, value in values.items()
        }

    @classmethod
    def of_settings(cls, settings):
        """The study of some `settings()`, of which other versions may have had more."""
        return cls(**{name: value for name, value in settings.items() if name in options_of(cls)})

    @classmethod
    def smoke(cls, **given):
        """The study so small that it only shows that it runs."""
        small = {name: about.smoke for name, about in options_of(cls).items() if about.smoke is not None}
        return cls(**{**small, **given})


def options_of(study):
    """The `Option` of each field of a class of studies, a dict in their order."""
    return {field.name: field.metadata["option"] for field in dataclasses.fields(study) if "option" in field.metadata}


def title_of(study):
    """The first sentence of a class of studies' docstring."""
    return " ".join((study.__doc__ or "").split("\n\n")[0].split())


def _check_number(name, value, allowed):
    if allowed is None:
        checked(name, value)
        return
    problem = allowed.problem(value)
    if problem:
        raise InputError(f"{{{name}}} {problem}.", **{name: value})
