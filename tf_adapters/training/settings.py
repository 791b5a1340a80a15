"""How a task is trained: each choice once, with its help and what it excludes; numbers have their ranges in ranges.py.

The options of the command line, the dimensions of a search, what a resumed run compares and what an adapter directory
keeps are read from these fields. A new choice is a field here, and its effect where training is put together. Behind
them stand the strategies, and TF_CONFIG, which says who works together. Nothing here loads TensorFlow.
"""

import dataclasses
import importlib.util
from typing import Optional

from tf_adapters.errors import InputError
from tf_adapters.paths import parse_json
from tf_adapters.ranges import RANGES, Real, check_fields, choice, choices_of
from tf_adapters.recipes import FULL_LEARNING_RATE


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """How `fit` trains. Either `epochs` is given, or `steps`, and then `period`, which divides them.

    The attributes are described by their `Choice.help`, which `choices()` has by name.

    Raises:
        InputError: a value out of its range, or two that exclude each other.

    Example:
    >>> settings = TrainingSettings(epochs=3, learning_rate=1e-3)
    >>> result = fit(model, task, tokenizer, "adapters/mine", settings)
    """

    epochs: Optional[int] = choice(
        None,
        "Passes over the training rows. Without a recipe 3.",
        of_recipe=True,
        searched="int",
        kept=True,
        unit="passes",
    )
    steps: Optional[int] = choice(None, "Steps to train, in place of `epochs`.", kept=True, unit="steps")
    period: Optional[int] = choice(
        None,
        "Score the validation rows every so many steps, in place of each epoch: `log.csv` then has a learning curve. "
        "What is said of an epoch is then that of such a period, and the last one is a whole one too.",
        option="validate-every",
        unit="steps",
        source="He et al. 2021, figure 5 and table 6 (every 20)",
    )
    keep_periods: bool = choice(
        False, "Keep what was trained after each period in `step-N` of the output.", compared=False
    )
    learning_rate: float = choice(
        None,
        "Peak of the schedule, which rises over the first tenth of the steps and falls to 0. 1e-4 to 3e-3 are usual "
        "for adapters, 2e-5 to 1e-4 for `full` and `top-N`, which have 5e-5 if none is given. Without a recipe 1e-3.",
        of_recipe=True,
        searched="float",
        kept=True,
        unit="per step",
    )
    batch_size: int = choice(
        32,
        "Rows per step, those of all devices together. Without a recipe 32.",
        of_recipe=True,
        searched="int",
        kept=True,
        unit="rows",
    )
    accumulate: int = choice(
        1,
        "Compute each step's rows in this many parts, to take less memory; the result is the same.",
        one_device=True,
        unit="parts",
        panel="Memory and speed",
    )
    checkpoint_gradients: bool = choice(
        False,
        "Compute each block once more in the backward pass instead of keeping what its gradient needs: less memory, "
        "longer steps, the same result but for rounding.",
        option="gradient-checkpointing",
        source="Chen et al. 2016, section 4.1",
        panel="Memory and speed",
    )
    warmup_fraction: float = choice(
        0.1, "Share of the steps with a rising rate.", of_recipe=True, kept=True, unit="share of the steps"
    )
    dropout: Optional[float] = choice(
        None,
        "Dropout of the encoder and the head, in place of the encoder's own (BERT's is 0.1), which the papers' recipes "
        "leave. Adapters have `--adapter-dropout`. Without a recipe 0.",
        of_recipe=True,
        searched="float",
        kept=True,
        unit="share of the units",
        panel="Loss and regularisers",
    )
    weight_decay: float = choice(
        0.0,
        "AdamW's decay of the matrices that train, times the learning rate; 0.01 is usual for `full`.",
        of_recipe=True,
        searched="float",
        kept=True,
        unit="share a step, times the learning rate",
        source="Loshchilov & Hutter 2019",
        panel="Loss and regularisers",
    )
    clip_norm: Optional[float] = choice(
        None,
        "Greatest norm of the gradient; 1 is usual. A rate that makes a run collapse may do with it.",
        of_recipe=True,
        searched="float",
        kept=True,
        unit="norm of all gradients",
        panel="Loss and regularisers",
    )
    epsilon: float = choice(
        1e-7,
        "What Adam adds to the root of the second moment.",
        of_recipe=True,
        kept=True,
        unit="root of the second moment",
        source="Kingma & Ba 2015, algorithm 1",
    )
    bias_correction: bool = choice(
        True,
        "Whether Adam's moments are corrected for having begun at zero.",
        of_recipe=True,
        kept=True,
        source="Kingma & Ba 2015, section 3; without it: Devlin et al. 2019, published code",
    )
    decay_from_start: bool = choice(
        False,
        "Count the fall of the rate from the first step, in place of the end of the rise.",
        of_recipe=True,
        kept=True,
        source="Houlsby et al. 2019, published code",
    )
    mixout: float = choice(
        0.0,
        "Mixout: probability with which an entry of a matrix is the pretrained one in a step. He et al. (2021) have "
        "0.9, with `--dropout 0`.",
        searched="float",
        kept=True,
        one_device=True,
        unit="share of the entries",
        source="Lee et al. 2020, section 3; He et al. 2021, table 7",
        panel="Loss and regularisers",
    )
    label_smoothing: float = choice(
        0.0,
        "Share of each label that is spread evenly over all of them; 0.1 is usual. For classification, of several "
        "labels too.",
        range=Real(at_least=0, below=1, such_as=0.1),
        searched="float",
        kept=True,
        of_kinds=True,
        unit="share of a label",
        source="Szegedy et al. 2016, section 7",
        panel="Loss and regularisers",
    )
    class_weights: Optional[str] = choice(
        None,
        "`balanced`: a row counts the more, the rarer its label is, so that each label counts alike; for a class that "
        "is never predicted. For classification, of several labels too.",
        kept=True,
        of_kinds=True,
        values=("balanced",),
        source="King & Zeng 2001, section 4.2",
        panel="Loss and regularisers",
    )
    tune_thresholds: bool = choice(
        False,
        "For several labels: after training, choose the threshold of each label on the validation rows, where its F1 "
        "is highest, and keep it in the head's bias, so that a probability of 0.5 decides everywhere as before. For "
        "labels that are rarely or never predicted.",
        kept=True,
        one_device=True,
        of_kinds=True,
        source="Lipton et al. 2014, section 4",
        panel="Loss and regularisers",
    )
    patience: Optional[int] = choice(
        None,
        "Stop after this many epochs without a better validation result. Default: all epochs.",
        kept=True,
        unit="epochs",
    )
    seed: int = choice(0, "Decides every random choice.", kept=True, panel="Run")
    jit_compile: bool = choice(
        False, "Compile the step with XLA, once per padded length.", option="xla", kept=True, one_device=True,
        panel="Memory and speed",
    )  # fmt: skip
    cache_frozen: bool = choice(
        False,
        "Compute the outputs of the lower blocks that never change once for all epochs, and keep them on disk while "
        "training. For `--blocks 3-5 --train-layer-norm adapted` (AdapterDrop), `--trainable top-N` or `head`, with "
        "`--dropout 0`.",
        compared=False,  # the run compares how many blocks
        one_device=True,
        first_door=True,
        panel="Memory and speed",
    )
    checkpoint_seconds: float = choice(
        30.0, "Seconds between two saved states of the run.", compared=False, unit="seconds", panel="Run"
    )
    tensorboard: bool = choice(
        False, "Write TensorBoard logs to `tensorboard/` in the output directory.", compared=False, panel="Run"
    )
    recipe: Optional[str] = choice(
        None, "Name of the recipe that decided the rest, for the adapter directory.", compared=False
    )

    def __post_init__(self):
        check_fields(self)
        if (self.epochs is None) == (self.steps is None) or (self.steps is not None and self.period is None):
            raise InputError(
                "{epochs}, {steps}, {period}: give epochs, or steps and period.",
                **{name: getattr(self, name) for name in ("epochs", "steps", "period")},
            )
        if self.learning_rate is None:
            raise InputError("{learning_rate}: give one, such as 1e-3 for adapters.", learning_rate=None)
        if self.steps is not None and self.steps % self.period:
            raise InputError(
                f"{{steps}} must be a multiple of period={self.period}: give "
                f"{-(-self.steps // self.period) * self.period}.",
                steps=self.steps,
            )
        check_together(self.to_dict())

    def check_kind(self, kind):
        """Raise InputError if a choice is given that is not for this `Kind` of task."""
        for name, about in choices().items():
            fits = name not in kind.without and (not about.of_kinds or name in kind.choices)
            if not fits and is_given(name, getattr(self, name)):
                raise InputError(
                    f"{{{name}}} is not for tasks of the kind {kind.name!r}: leave it out.",
                    **{name: getattr(self, name)},
                )

    def to_dict(self):
        """The fields, a dict for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def of_recipe(cls, recipe, trainable=None, **given):
        """What a recipe trains with, but for what is given; `trainable` as in `set_trainable`, None for the
        recipe's. Steps come in place of its epochs."""
        usual = usual_settings(recipe, trainable or recipe.trainable)
        usual |= {} if given.get("steps") is None else {"epochs": None}
        return cls(**{**usual, "recipe": recipe.name, **given})

    @classmethod
    def from_dict(cls, values):
        """Settings of a dict that `to_dict`, or an older version's, gave; names that are no fields are an
        InputError."""
        unknown = sorted(values.keys() - choices().keys())
        if unknown:
            raise InputError(
                f"settings: {', '.join(unknown)} is no field of TrainingSettings: use some of {', '.join(choices())}."
            )
        return cls(**values)

    def of(self, about):
        """The values of the fields whose `Choice` has the attribute `about`, such as "kept"; a dict for JSON."""
        return {name: value for name, value in self.to_dict().items() if getattr(choices()[name], about)}


@dataclasses.dataclass(frozen=True)
class Exclusion:
    """Two choices of which at most one may be given, and why; with `first_door` for models of transformers alone."""

    first: str
    second: str
    why: str
    first_door: bool = False


EXCLUSIONS = (
    Exclusion("mixout", "checkpoint_gradients", "masks of Mixout are of one pass"),
    Exclusion("accumulate", "jit_compile", "the parts of a step have no fixed sizes, which XLA needs", first_door=True),
)


def check_packages(values):
    """Raise InputError if a package is missing that a choice needs; `values` as in `check_together`."""
    if values.get("tensorboard") and importlib.util.find_spec("tensorboard") is None:
        raise InputError(
            "{tensorboard} needs the package tensorboard: run `pip install tensorboard`.", tensorboard=True
        )


def check_together(values):
    """Raise InputError if values, a dict by the names of fields that may lack some, cannot be together."""
    _check_exclusions(values, first_door=False)
    parts, rows = values.get("accumulate", 1), values.get("batch_size")
    if rows is not None and parts > rows:
        raise InputError(
            "{accumulate} is above the rows of a step, {batch_size}: lower it.", accumulate=parts, batch_size=rows
        )


def _check_exclusions(values, first_door):
    for exclusion in (one for one in EXCLUSIONS if one.first_door == first_door):
        given = {name: values.get(name) for name in (exclusion.first, exclusion.second)}
        if all(name in values and is_given(name, value) for name, value in given.items()):
            names = " and ".join(f"{{{name}}}" for name in given)
            raise InputError(f"{names} exclude each other ({exclusion.why}): leave one of them out.", **given)


RANGES.update({name: about.range for name, about in choices_of(TrainingSettings).items() if about.range})


def usual_settings(recipe, trainable="adapters"):
    """What a run has where nothing else is asked for: dict of the fields of `TrainingSettings` that recipes decide.

    A recipe for adapters has a rate that would destroy pretrained weights, which its dropout does not protect either.
    InputError for a recipe of pretraining.
    """
    recipe.check_labels()
    settings = {name: getattr(recipe, name) for name, choice in choices().items() if choice.of_recipe}
    changes_encoder = trainable == "full" or trainable.startswith("top-")
    if trainable == recipe.trainable or (changes_encoder and recipe.trainable == "full"):
        return settings
    if trainable != "adapters":
        settings["dropout"] = None
    if changes_encoder:
        settings["learning_rate"] = FULL_LEARNING_RATE
    return settings


def choices():
    """The `Choice` of each field of `TrainingSettings`, a dict in their order."""
    return choices_of(TrainingSettings)


def is_given(name, value):
    """Whether a value is another than the field's default."""
    return value != TrainingSettings.__dataclass_fields__[name].default


def for_one_device(values):
    """Those of the values, a dict by the names of fields, that were given and are not for several devices."""
    return {name: value for name, value in values.items() if choices()[name].one_device and is_given(name, value)}


def computes_parts(settings, trainable, random_drop):
    """Whether a CPU computes a step's rows in parts at once, as several devices would.

    Args:
        settings: `TrainingSettings`.
        trainable: as `mode` of `set_trainable`.
        random_drop: int, of the adapter that trains.
    """
    # A gradient of the whole encoder would take longer to add up.
    alone = trainable != "adapters" or random_drop or settings.checkpoint_gradients
    return not alone and not for_one_device(settings.to_dict())


def check_rows(batch_size, devices):
    """Raise InputError if a batch does not divide among so many devices."""
    if batch_size % devices:
        raise InputError(
            f"{{batch_size}} rows of a step do not divide among {devices} devices: give a multiple of them.",
            batch_size=batch_size,
        )


def check_door(values, door):
    """Raise InputError if some of the values, a dict by the names of fields, are not for models of this door."""
    if door == "transformers":
        _check_exclusions(values, first_door=True)
    for name, value in values.items():
        if door != "transformers" and choices()[name].first_door and is_given(name, value):
            raise InputError(
                f"{{{name}}} is for {{door}}: leave it out, or take that door.", **{name: value}, door="transformers"
            )


def option_of(name):
    """The option of the command line for a field, such as "--batch-size"."""
    return choices()[name].options_of(name)[0]


# Of several workers

STRATEGIES = ("mirrored", "multi-worker")
_EXAMPLE = (
    'TF_CONFIG=\'{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}\''
)
_JOBS = ("chief", "worker")


@dataclasses.dataclass(frozen=True)
class Cluster:
    """How many processes there are, and this one's number, from 0; that one writes."""

    workers: int = 1
    number: int = 0

    @property
    def chief(self):
        return self.number == 0


def read_cluster(environment):
    """The `Cluster` of the variable TF_CONFIG; InputError, with one that is right, where it is not set or not what a
    multi-worker training needs."""
    text = environment.get("TF_CONFIG", "")
    if not text.strip():
        raise _error("it is not set")
    try:
        config = parse_json(text)
    except ValueError as error:
        raise _error(f"it is not JSON ({error})") from None
    cluster, task = (config.get(name) if isinstance(config, dict) else None for name in ("cluster", "task"))
    if not isinstance(cluster, dict) or not all(job in _JOBS and _are_addresses(cluster[job]) for job in cluster):
        raise _error('its "cluster" must be an object with a list of addresses HOST:PORT for "worker"')
    order = [(job, index) for job in _JOBS for index in range(len(cluster.get(job, ())))]
    if len(order) < 2 or len(cluster.get("chief", ())) > 1:
        raise _error('its "cluster" must have two workers or more, of which one may be the "chief"')
    own = (task.get("type"), task.get("index")) if isinstance(task, dict) else None
    if own not in order:
        known = ", ".join(f"{job} {index}" for job, index in order)
        raise _error(
            f'its "task" must say which worker this process is, by "type" and "index" ({known}), and is {task!r}'
        )
    return Cluster(workers=len(order), number=order.index(own))


def _are_addresses(value):
    return isinstance(value, list) and all(
        isinstance(address, str) and address.rpartition(":")[2].isdecimal() for address in value
    )


def _error(reason):
    return InputError(
        f"{{strategy}} needs the environment variable TF_CONFIG, and {reason}. On the first of two machines: "
        f"{_EXAMPLE}; on the second the index is 1.",
        strategy="multi-worker",
    )
