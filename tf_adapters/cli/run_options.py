"""The options of the panel "Run": how a task is trained."""

import dataclasses
from typing import Annotated, Optional

import typer

from tf_adapters.cli import options
from tf_adapters.errors import InputError


def _run(*names, **settings):
    return typer.Option(*names, rich_help_panel="Run", **settings)


@dataclasses.dataclass
class RunOptions:
    """The options by the names of the commands' parameters; None where a recipe decides."""

    epochs: Annotated[Optional[int], _run(help="Passes over the training rows. Without a recipe 3.")] = None
    learning_rate: Annotated[
        Optional[float],
        _run(
            help="Peak of the schedule, which rises over the first tenth of the steps and falls to 0. 1e-4 to 3e-3 "
            "are usual for adapters, 2e-5 to 1e-4 for `full` and `top-N`, which have 5e-5 if none is given. Without a "
            "recipe 1e-3."
        ),
    ] = None
    batch_size: Annotated[Optional[int], _run(help="Rows per step. Without a recipe 32.")] = None
    dropout: Annotated[
        Optional[float],
        _run(
            help="Dropout of the encoder and the head, in place of the encoder's own (BERT's is 0.1), which the papers' "
            "recipes leave. Adapters have `--adapter-dropout`. Without a recipe 0."
        ),
    ] = None
    weight_decay: Annotated[
        float, _run(help="AdamW's decay of the matrices that train, times the learning rate; 0.01 is usual for `full`.")
    ] = 0.0
    clip_norm: Annotated[
        Optional[float], _run(help="Greatest norm of the gradient; 1 is usual. A rate that makes a run collapse may do with it.")
    ] = None
    mixout: Annotated[
        float,
        _run(help="Mixout: probability with which an entry of a matrix is the pretrained one in a step. He et al. (2021) have 0.9, with `--dropout 0`."),
    ] = 0.0
    freeze_adapters: Annotated[
        Optional[float],
        _run(
            help="SAFE: stop training each adapter that changes the representation at its place by less than this (1 - CKA, from 0 to 1), "
            "so that steps get shorter and smaller. For bottleneck adapters; `train` prints what each freezing found."
        ),
    ] = None
    freeze_epochs: Annotated[
        Optional[str],
        _run(help="With `--freeze-adapters`: the epochs between which its threshold rises from 0, such as `1-5`. Default: a tenth to half."),
    ] = None
    accumulate: Annotated[int, _run(help="Compute each step's rows in this many parts, to take less memory; the result is the same.")] = 1
    gradient_checkpointing: Annotated[
        bool,
        _run(
            "--gradient-checkpointing",
            help="Compute each block once more in the backward pass instead of keeping what its gradient needs: less memory, longer "
            "steps, the same result but for rounding.",
        ),
    ] = False
    patience: Annotated[
        Optional[int], _run(help="Stop after this many epochs without a better validation result. Default: all epochs.")
    ] = None
    seed: Annotated[int, _run(help="Decides every random choice.")] = 0
    precision: options.Precision = "float32"
    xla: Annotated[bool, _run("--xla", help="Compile the step with XLA, once per padded length.")] = False
    fast: options.Fast = False
    cache_frozen: Annotated[
        bool,
        _run(
            "--cache-frozen",
            help="Compute the outputs of the lower blocks that never change once for all epochs, and keep them on disk while "
            "training. For `--blocks 3-5 --train-layer-norm adapted` (AdapterDrop), `--trainable top-N` or `head`, with "
            "`--dropout 0`.",
        ),
    ] = False
    checkpoint_seconds: Annotated[
        float, _run("--checkpoint-seconds", help="Seconds between two saved states of the run.")
    ] = 30.0
    tensorboard: Annotated[
        bool, _run("--tensorboard", help="Write TensorBoard logs to `tensorboard/` in the output directory.")
    ] = False

    def settings(self, max_length):
        """The values by name, and `max_length`; a dict.

        Raises:
            InputError: some exclude each other.
        """
        settings = {**dataclasses.asdict(self), "max_length": max_length, "freeze_epochs": _parse_epochs(self.freeze_epochs)}
        if settings["freeze_epochs"] is not None and settings["freeze_adapters"] is None:
            raise InputError("--freeze-epochs says when --freeze-adapters freezes: give both, or neither.")
        if settings["mixout"] and settings["gradient_checkpointing"]:
            raise InputError("--mixout and --gradient-checkpointing exclude each other: leave one of them out.")
        options.check_precision(self.precision)
        return settings


def _parse_epochs(text):
    if text is None:
        return None
    first, _, last = text.partition("-")
    # Nine digits: Python reads no number of thousands of them.
    if not all(number.isdecimal() and len(number) <= 9 for number in (first, last)) or int(first) >= int(last):
        raise InputError(f"--freeze-epochs {text} must be two numbers of epochs, the first below the last, such as 1-5.")
    return int(first), int(last)
