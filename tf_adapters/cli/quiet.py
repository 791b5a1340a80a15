"""What the commands print to and count on, and TensorFlow without what its C++ parts print before any log level
applies."""

import contextlib
import importlib
import logging
import os
import pathlib
import sys
import tempfile
import time

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from tf_adapters._installation import MissingPackageError, usable_cores
from tf_adapters.errors import InputError

# What TensorFlow, Keras 2 and transformers import where it is installed, and do without where it is not: a third of the
# time of their import.
_OPTIONAL = ("jax", "pandas", "scipy", "sklearn")
SECONDS_BETWEEN_LINES = 15.0
# A step of new shapes is compiled first. One that takes longer than both does so, as far as can be seen.
SECONDS_OF_A_LONG_STEP, TIMES_OF_A_LONG_STEP = 1.0, 5.0
_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}


class _Console(Console):
    def status(self, status, **settings):
        return super().status(Text(status), **settings)  # of a str it would read markup all the same


def terminal(stderr=False):
    """A Rich console that prints text as it is: a label may well be `[/b]` or `:ok:`.

    On a terminal lines are broken between words. Elsewhere they stay whole, and so does everywhere what is printed with
    `soft_wrap=True`: a command to copy.
    """
    console = _Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    console.soft_wrap = not console.is_terminal
    return console


class _Note(ProgressColumn):
    """What is at work, and its latest number; that a step compiles, while it takes much longer than usual ones."""

    def __init__(self, description):
        super().__init__()
        self.description = description

    def render(self, task):
        note, since = task.fields["note"], task.fields.get("since")
        if since is not None and not task.finished:
            long = max(SECONDS_OF_A_LONG_STEP, TIMES_OF_A_LONG_STEP * task.fields["usual"])
            note = "compiling" if time.monotonic() - since > long else note
        return Text(f"{self.description} {note}")


def bar(console, description, unit):
    return Progress(
        _Note(description),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("elapsed,"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        transient=True,
    )


@contextlib.contextmanager
def counting(console, description, total=None, shown=True, unit="rows"):
    """Yield a function to call with the number of rows, or what `unit` says, that are done since the last call."""
    if shown and console.is_terminal:
        with bar(console, description, unit) as progress:
            item = progress.add_task("", total=total, note="")
            yield lambda count: progress.advance(item, count)
        return
    done, printed = 0, time.monotonic()

    def advance(count):
        nonlocal done, printed
        done += count
        if shown and time.monotonic() - printed >= SECONDS_BETWEEN_LINES:
            printed = time.monotonic()
            console.print(f"{description} {done:,}" + (f" of {total:,} {unit}" if total is not None else f" {unit}"))

    yield advance


def start(console, *, door="transformers", precision="float32", first=None, waiting=""):
    """Load TensorFlow, and say so, with what is waited for too; models that follow are built in this precision, Keras'
    policy. Door, `first` and what is returned are as of `import_tensorflow`."""
    with console.status(f"Loading TensorFlow{waiting} ..."):
        made = import_tensorflow(first, door)
    from tf_adapters.models.door import door_called

    note = precision_note(precision)
    if note:
        console.print(note)
    door_called(door).ops.keras.mixed_precision.set_global_policy(precision)
    return made


def import_tensorflow(first=None, door="transformers"):
    """Import TensorFlow, and the Keras and the model classes of a door, quietly; returns what `first` returns, a
    function of nothing that TensorFlow's first operation must not precede."""
    with _without_native_stderr():
        from tf_adapters.models.door import door_called

        if door == "transformers" and not {"tensorflow", "transformers"} & sys.modules.keys():
            with _hidden(_OPTIONAL):
                # TensorFlow imports the Keras that the first one chooses.
                for module in ("tf_adapters._keras", "transformers.modeling_tf_utils"):
                    importlib.import_module(module)
        import tensorflow as tf
        from absl import logging as absl_logging
        from huggingface_hub.utils import logging as hub_logging

        door_called(door)
        tf.get_logger().setLevel(logging.ERROR)
        # tensorflow_datasets warns of its own features there.
        absl_logging.set_verbosity(absl_logging.ERROR)
        # Without a network it would print every retry.
        hub_logging.set_verbosity_error()
        made = None if first is None else first()
        # The first op makes TensorFlow look for devices, and say so.
        tf.constant(0)
    return made


def share_cores():
    """As `first` of `start`: each of the batches that a `Scorer` computes at once, and of the parts of a step, has its
    share of the cores, unless TF_NUM_INTRAOP_THREADS says otherwise. Threads that wait for each other in every
    operation cost time. On another backend TensorFlow reads texts alone."""
    import tensorflow as tf

    from tf_adapters.kinds.kind import AT_ONCE

    if "TF_NUM_INTRAOP_THREADS" not in os.environ and not tf.config.list_physical_devices("GPU"):
        with contextlib.suppress(RuntimeError):  # in a program that has computed already
            tf.config.threading.set_intra_op_parallelism_threads(max(1, usable_cores() // AT_ONCE))


@contextlib.contextmanager
def _hidden(packages):
    """Let packages that are not imported yet seem not to be installed."""
    absent = set(packages) - sys.modules.keys()
    sys.modules.update(dict.fromkeys(absent))
    try:
        yield
    finally:
        for package in absent:
            del sys.modules[package]


@contextlib.contextmanager
def _without_native_stderr():
    """Send what is written to file descriptor 2 to a file, which is shown if the block fails.

    Not when the user interrupts it.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        except (InputError, MissingPackageError):
            raise  # its sentence says all
        except Exception:
            os.dup2(kept, 2)
            file.seek(0)
            os.write(2, file.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def has_bfloat16(cpu_info="/proc/cpuinfo"):
    """Whether the processor multiplies in bfloat16; None where another device computes, or nothing is known."""
    import tensorflow as tf

    if any(map(tf.config.list_physical_devices, ("GPU", "TPU"))):
        return None
    try:
        return not _BFLOAT16.isdisjoint(pathlib.Path(cpu_info).read_text(encoding="utf-8", errors="replace").split())
    except OSError:
        return None  # not Linux


def precision_note(precision, cpu_info="/proc/cpuinfo"):
    """A sentence for the user where `precision` costs time on this processor in place of saving it, or None."""
    if precision != "mixed_bfloat16" or has_bfloat16(cpu_info) is not False:
        return None
    return (
        "This processor has no bfloat16 instructions (avx512_bf16, amx_bf16): --precision mixed_bfloat16 saves memory "
        "here, and takes about twice as long as float32."
    )
