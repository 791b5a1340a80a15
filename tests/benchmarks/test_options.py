"""Every option of every command refuses what it cannot have, before TensorFlow is loaded; the whole campaign is
benchmarks/options.py."""

import contextlib
import inspect
import io
import pathlib
import shutil

import pytest

from benchmarks.campaigns import options
from tests.benchmarks.support import step_result

NEVER = ("-1", "nan", "1e300")


@pytest.fixture(scope="module")
def folder(train_arguments, sentences, adapter_directory, tmp_path_factory):
    """What `options.prepare` makes, out of what other tests made."""
    folder = tmp_path_factory.mktemp("options")
    (encoder,) = (word.removeprefix("--model=") for word in train_arguments if word.startswith("--model="))
    for name, source in {"encoder": encoder, "adapter": adapter_directory, "hub": adapter_directory}.items():
        shutil.copytree(source, folder / name)
    for name in ("train.csv", "dev.csv"):
        shutil.copy(sentences / ("train.csv" if "train" in name else "validation.csv"), folder / name)
    return folder


# The longest lists of options.
LONG = ("tune", "pretrain")


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=[pytest.mark.nightly] * (name in LONG)) for name in options.commands()]
)
def test_values_that_no_option_can_have_are_refused_before_tensorflow(folder, command):
    numbers = options.numbers_of(command)
    words = {parameter.opts[0] for parameter in options.commands()[command].params if parameter.name in numbers}
    for case in options.cases(command):
        name, _, value = case[0].rpartition("=")
        if value == "" or (name in words and value in NEVER):
            outcome, message = options.run(command, case, folder, folder / "written", stop=True)
            assert outcome == "refused", (case, outcome, message)
            assert value != "" or "is empty" in message or "Invalid value" in message


@pytest.mark.parametrize("command", ["train", "tune", "pretrain", "evaluate", "predict", "submit"])
def test_integers_beyond_what_tensorflow_counts_are_refused(folder, command):
    hints = {
        "batch_size": "--batch-size",
        "seed": "--seed",
        "epochs": "--epochs",
        "seeds": "--seeds",
        "trials": "--trials",
        "bottleneck_size": "--bottleneck-size",
    }
    for option in (hints[name] for name in options.numbers_of(command) & hints.keys()):
        outcome, message = options.run(command, [f"{option}={2**64}"], folder, folder / "written", stop=True)
        assert outcome == "refused" and f"{option} {2**64} must be an integer of at most" in message


@pytest.mark.parametrize("command", options.commands())
def test_every_option_that_takes_numbers_has_a_range(command):
    from tf_adapters.cli.app import app
    from tf_adapters.cli.command import limits_of

    (callback,) = (one.callback for one in app.registered_commands if one.name == command)
    parameters = inspect.signature(callback).parameters
    assert all(limits_of(parameters[name]).range is not None for name in options.numbers_of(command))


@pytest.mark.parametrize("command", ["train", "tune", "pretrain", "evaluate", "predict", "convert", "export"])
def test_output_of_300_letters_is_refused_in_a_sentence(folder, command):
    for output in (options.LONG, f"new/{options.LONG}", f"{'b' * 250}.jsonl"):
        outcome, message = options.run(command, [f"--output={output}"], folder, folder / "written", stop=True)
        if outcome != "reached":  # export and convert look at it once TensorFlow is there
            assert outcome == "refused" and ("longer than" in message or "must end in" in message), message


def test_words_after_a_variable_that_is_not_set_are_not_the_folder_here(cli, folder, monkeypatch):
    monkeypatch.chdir(folder)
    outcome = cli("train", "--train", "train.csv", "--validation", "dev.csv", "--output", "")
    assert (outcome.status, outcome.err) == (2, "error: --output is empty: give it a value, or leave it out.\n")


def test_outcomes_are_told_apart(folder, monkeypatch):
    from tf_adapters.cli import main

    def command(status, err="", write=None):
        def run(arguments):
            print(err, end="", file=__import__("sys").stderr)
            if write is not None:
                (folder / "left.json").write_text(write)
            return status

        return run

    for does, expected in (
        (command(2, "error: no.\n"), "refused"),
        (command(2, "Traceback\n"), "failed"),
        (command(1, "error: no.\n"), "failed"),
        (command(2, "error: no.\n", "{}"), "failed"),
        (command(0), "ran"),
        (command(0, "", "{}"), "ran"),
        (command(0, "", "[NaN]"), "failed"),
    ):
        monkeypatch.setattr(main, "main", does)
        with contextlib.redirect_stdout(io.StringIO()):
            assert options.run("info", [], folder, folder / "written")[0] == expected
        pathlib.Path(folder / "left.json").unlink(missing_ok=True)


def test_the_table_counts_every_command():
    row = {"options": 2, "cases": 20, "refused_before_tensorflow": 17, "refused_after": 1, "ran": 2, "failures": []}
    about = {
        "kind": "options",
        "settings": {},
        "commands": {"info": row},
        "seconds": 5,
        "versions": {},
        "file": "a.json",
        "link": "a.json",
    }
    shown = options.table({**step_result(), **about})
    assert "| info | 2 | 20 | 17 | 1 | 2 | 0 |" in shown
