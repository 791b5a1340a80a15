"""Every option of every command with values that it cannot have: refused in a sentence, before TensorFlow where that is
possible."""

import contextlib
import inspect
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time
import typing

from benchmarks.provenance import log
from benchmarks.result_file import apart, finish, make_parser, parse_arguments
from benchmarks.table_parts import Table, in_notes, of_settings, origin

NUMBERS = ("0", "-1", "nan", "inf", "-inf", "1e300", "1e-320", str(2**64))
LONG = "a" * 300
# Options of this panel are names of columns, files and tasks, of which a number is one like any other.
PANEL_OF_NAMES = "Data"
# What runs until it is interrupted: that it would load TensorFlow is enough.
SERVES = ("demo",)


class Reached(BaseException):
    """A command would load TensorFlow now."""


def bases(folder, output):
    """A short run of each command: its arguments and its options, in `folder` as `prepare` left it. A new command is a
    line here."""
    files = [
        "--model",
        folder / "encoder",
        "--train",
        folder / "train.csv",
        "--validation",
        folder / "dev.csv",
        "--max-length",
        16,
    ]
    small = ["--adapter-size", 2, "--epochs", 1, "--batch-size", 8]
    search = [
        "--space",
        "none",
        "--vary",
        "adapter-size=2,3",
        "--vary",
        "epochs=1",
        "--vary",
        "batch-size=8",
        "--trials",
        1,
    ]
    texts = [
        "--model",
        folder / "encoder",
        "--train",
        folder / "train.csv",
        "--validation",
        folder / "train.csv",
        "--max-length",
        16,
        "--adapter-size",
        2,
        "--batch-size",
        4,
    ]
    return {
        "train": ([], [*files, *small, "--output", output]),
        "tune": ([], [*files, *search, "--output", output]),
        "pretrain": ([], [*texts, "--steps", 2, "--save-every", 1, "--fit-head-steps", 1, "--output", output]),
        "evaluate": ([folder / "adapter"], ["--input", folder / "dev.csv", "--output", f"{output}.json"]),
        "predict": ([folder / "adapter"], ["--input", folder / "dev.csv", "--output", f"{output}.jsonl"]),
        "demo": ([folder / "adapter"], ["--port", 0]),
        "export": ([folder / "adapter"], ["--output", output / "1"]),
        "convert": ([folder / "hub"], ["--model", folder / "encoder", "--no-head", "--output", output]),
        "push": (
            [folder / "adapter", "someone/adapter"],
            ["--base-model", "none"],
        ),  # without a token, which is refused
        "submit": ([folder / "adapter"], ["--output", output]),  # of no task of GLUE, which is refused
        "tasks": ([], []),
        "info": ([folder / "encoder"], []),
    }


def commands():
    """Click's commands by name, as Typer makes them; not those of `study`, whose options tests/test_studies.py asks."""
    import typer.main

    from tf_adapters.cli.app import app

    found = typer.main.get_command(app).commands
    return {name: command for name, command in found.items() if not hasattr(command, "commands")}


def numbers_of(name):
    """Names of a command's parameters that take numbers alone; Typer's versions keep types in different places."""
    from tf_adapters.cli.app import app

    (callback,) = (registered.callback for registered in app.registered_commands if registered.name == name)
    hints = {parameter.name: parameter.annotation for parameter in inspect.signature(callback).parameters.values()}
    return {parameter for parameter, hint in hints.items() if {int, float} & set(simple_types(hint))}


def simple_types(hint):
    """The types in a hint such as `Annotated[Optional[int], ...]`."""
    if typing.get_origin(hint) is typing.Annotated:
        return simple_types(typing.get_args(hint)[0])
    return [one for inner in typing.get_args(hint) for one in simple_types(inner)] or [hint]


def cases(name):
    """Lists of words, each to be added to a command's short run: every option that takes a value, with each value that
    is tried."""
    found, numbers, command = [], numbers_of(name), commands()[name]
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            found.append([""])
        elif not (parameter.is_flag or parameter.count):
            is_number = parameter.name in numbers
            values = ["", *(NUMBERS if is_number or parameter.rich_help_panel not in (None, PANEL_OF_NAMES) else ())]
            values += [] if is_number else [LONG]
            found += [[f"{parameter.opts[0]}={value}"] for value in values]
    return found


def search_cases():
    """The same for what `tune` may vary, which TensorFlow is needed to know."""
    from tf_adapters.tuning.spaces import DIMENSIONS

    return [
        [f"--vary={dimension.option.removeprefix('--')}={value}"]
        for dimension in DIMENSIONS.values()
        for value in NUMBERS
    ]


def run(name, words, folder, output, *, stop=False):
    """Run a command's short run with some words in addition.

    Args:
        name, words: str, and a list of str: one argument that takes the place of all others, or options.
        folder, output: paths, as of `bases`; the second is removed afterwards.
        stop: bool, end where TensorFlow would be loaded.

    Returns: `(outcome, message)`, the outcome one of

        - "refused": status 2, one sentence that names the option, nothing written;
        - "ran": status 0, and all JSON that was written is JSON; or training that diverged, which is said;
        - "reached": it would have loaded TensorFlow;
        - "failed": anything else.
    """
    from tf_adapters.cli import quiet
    from tf_adapters.cli.main import main

    arguments, options = bases(folder, output)[name]
    before = names_below(folder)
    replaced = words and not words[0].startswith("-")
    line = [name, *(words if replaced else [*arguments]), *options, *([] if replaced else words)]
    out, err, load, here = io.StringIO(), io.StringIO(), quiet.import_tensorflow, os.getcwd()

    def reached(first=None):
        raise Reached

    quiet.import_tensorflow = reached if stop else load
    try:
        os.chdir(folder)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main([str(word) for word in line])
    except Reached:
        return "reached", ""
    except Exception as error:  # which is what is looked for
        return "failed", f"{type(error).__name__}: {error}"
    finally:
        os.chdir(here)
        quiet.import_tensorflow = load
        written = names_below(folder) - before
        broken = [
            path.name
            for path in (folder / one for one in written)
            if path.suffix == ".json" and not is_json(path.read_text())
        ]
        for path in (output, output.with_name(f"{output.name}.json"), output.with_name(f"{output.name}.jsonl")):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    message = err.getvalue()
    if status == 2:
        ours = message.startswith("error: ") and message.count("\n") == 1
        theirs = "Usage: tf-adapters" in message
        if ours and "training diverged" in message:
            return "ran", message  # of a number that is legal, and too great
        if written:
            return "failed", f"refused, and wrote {sorted(written)[:3]}: {message}"
        return ("refused" if ours or theirs else "failed"), message
    if status == 0 and not broken:
        return "ran", ""
    return "failed", f"status {status}, broken JSON {broken}: {message[-500:]}"


def names_below(folder):
    """Paths of all files below a folder, as a set of str."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def is_json(text):
    """Whether a text is JSON as the standard has it, without NaN and Infinity."""

    def refuse(constant):
        raise ValueError(constant)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


def prepare(folder):
    """What the short runs read: an encoder of two blocks, rows, an adapter directory and AdapterHub's form of it."""
    from tests.conftest import write_checkpoint, write_csv
    from tf_adapters.cli.main import main

    write_checkpoint(folder / "encoder", num_hidden_layers=2)
    for seed, (file, rows) in enumerate({"train.csv": 24, "dev.csv": 8}.items()):
        write_csv(folder / file, rows, seed=seed)
    for words in (
        bases(folder, folder / "adapter")["train"][1] + ["--train-layer-norm", "none"],
        ["convert", folder / "adapter", "--output", folder / "hub"],
    ):
        words = words if words[0] == "convert" else ["train", *words]
        with contextlib.redirect_stdout(io.StringIO()):
            status = main([str(word) for word in words])
        if status:
            raise RuntimeError(f"The preparation failed: {words}")


def parse(arguments=None):
    parser = make_parser(
        description=__doc__
        + f" Options are found in the commands themselves. Those that take numbers get {', '.join(NUMBERS)} and "
        "nothing; those that take words get nothing and 300 letters, and in the panels of settings the numbers too. "
        "What a command takes is run to its end on a tiny encoder. Nothing is timed, so the machine may be busy.",
        smoke="two commands",
    )
    parser.add_argument("--commands", nargs="+", help="these commands alone")
    return parse_arguments(parser, arguments, "options", commands=["info", "tasks"])


def campaign(names, folder):
    """What came of each command's cases: dict from its name to counts, `"failures"` among them, a list."""
    output, found, waiting = folder / "written", {}, []
    for name in names:
        row = found[name] = {
            "options": 0,
            "cases": 0,
            "refused_before_tensorflow": 0,
            "refused_after": 0,
            "ran": 0,
            "failures": [],
        }
        words = cases(name)
        row["options"], row["cases"] = len({case[0].rpartition("=")[0] for case in words}), len(words)
        for case in words:
            outcome, message = run(name, case, folder, output, stop=True)
            if "tensorflow" in sys.modules:
                raise RuntimeError(f"{name} {case} loads TensorFlow without saying so.")
            if outcome == "reached" and name in SERVES:
                row["ran"] += 1
            elif outcome == "reached":
                waiting.append((name, case))
            elif outcome == "failed":
                row["failures"].append([*case, message])
            else:
                row["refused_before_tensorflow" if outcome == "refused" else "ran"] += 1
    if "tune" in names:
        varied = search_cases()
        found["tune"]["cases"] += len(varied)
        waiting += [("tune", case) for case in varied]
    for number, (name, case) in enumerate(waiting):
        log(f"{number + 1} of {len(waiting)}: {name} {case[0][:60]}")
        from tf_adapters._keras import keras

        keras.backend.clear_session()
        outcome, message = run(name, case, folder, output)
        if outcome == "failed":
            found[name]["failures"].append([*case, message])
        else:
            found[name]["refused_after" if outcome == "refused" else "ran"] += 1
    return found


def table(result):
    """Markdown of one result of options.py."""
    lines = [
        "**Options with values that they cannot have**", "",
        "| command | options | values tried | refused before TensorFlow | refused later | legal, and ran | failures |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for name, row in result["commands"].items():
        counts = (
            row["options"],
            row["cases"],
            row["refused_before_tensorflow"],
            row["refused_after"],
            row["ran"],
            len(row["failures"]),
        )
        lines.append(f"| {name} | " + " | ".join(f"{count:,}" for count in counts) + " |")
    return "\n".join([*lines, "", origin(result, "options.py")])


TABLE = Table(table, of_settings(), in_notes)


def describe(result):
    """The result as lines of text."""
    lines = []
    for name, row in result["commands"].items():
        lines.append(
            f"{name:10}"
            + ", ".join(f"{count} {key.replace('_', ' ')}" for key, count in row.items() if key != "failures")
        )
        lines += [f"  FAILED: {' '.join(map(str, failure))}" for failure in row["failures"]]
    return "\n".join([*lines, f"{result['seconds']:.0f} s"])


def main():
    options = parse()
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", HF_HUB_OFFLINE="1", COLUMNS="200")
    names = options.commands or list(commands())
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        # Its TensorFlow stays out of this process.
        apart(prepare, pathlib.Path(folder))
        found = campaign(names, pathlib.Path(folder).resolve())
    finish("options", options, (), {"commands": found, "seconds": round(time.monotonic() - started)}, describe)
    if any(row["failures"] for row in found.values()):
        sys.exit(1)
