"""Every option of every command with a value that it cannot have: one sentence, status 2, nothing written, and no
TensorFlow."""

import inspect
import shutil
import typing

import pytest
import typer.main

from tf_adapters.cli import quiet
from tf_adapters.cli.app import app
from tf_adapters.cli.command import limits_of

TRAIN = "--model={0}/encoder --train={0}/train.csv --validation={0}/dev.csv --max-length=16 --output={0}/written"
# The words of a short run of each command, in a folder. A new command is a line here.
RUNS = {
    "train": f"{TRAIN} --adapter-size=2 --epochs=1 --batch-size=8",
    "tune": f"{TRAIN} --space=none --vary=adapter-size=2,3 --vary=epochs=1 --trials=1",
    "pretrain": f"{TRAIN} --adapter-size=2 --steps=2 --save-every=1 --fit-head-steps=1",
    "evaluate": "{0}/adapter --input={0}/dev.csv --output={0}/written.json",
    "predict": "{0}/adapter --input={0}/dev.csv --output={0}/written.jsonl",
    "demo": "{0}/adapter --port=0",
    "serve": "{0}/adapter",
    "export": "{0}/adapter --output={0}/written/1",
    "convert": "{0}/adapter --model={0}/encoder --no-head --output={0}/written",
    "push": "{0}/adapter someone/adapter --base-model=none",
    "submit": "{0}/adapter --output={0}/written",
    "tasks": "",
    "info": "{0}/encoder",
}
# Those of `study` are asked by test_studies.py.
COMMANDS = {
    name: command for name, command in typer.main.get_command(app).commands.items() if not hasattr(command, "commands")
}
# What no option that takes numbers can have, beside nothing.
NEVER = ("-1", "nan", "1e300")
LONG = "a" * 300


def numbers_of(name):
    """Names of a command's parameters that take numbers alone; Typer's versions keep types in different places."""
    (callback,) = (registered.callback for registered in app.registered_commands if registered.name == name)
    hints = {parameter.name: parameter.annotation for parameter in inspect.signature(callback).parameters.values()}
    return {parameter for parameter, hint in hints.items() if {int, float} & set(simple_types(hint))}


def simple_types(hint):
    """The types in a hint such as `Annotated[Optional[int], ...]`."""
    if typing.get_origin(hint) is typing.Annotated:
        return simple_types(typing.get_args(hint)[0])
    return [one for inner in typing.get_args(hint) for one in simple_types(inner)] or [hint]


def wrong_words(name):
    """Every option of a command that takes a value, with each value that it cannot have; of an argument, nothing."""
    numbers = numbers_of(name)
    for parameter in COMMANDS[name].params:
        if parameter.param_type_name == "argument":
            yield ""
        elif not (parameter.is_flag or parameter.count):
            for value in ("", *(NEVER if parameter.name in numbers else ())):
                yield f"{parameter.opts[0]}={value}"


class Reached(BaseException):
    """A command would load TensorFlow now."""


@pytest.fixture(scope="module")
def folder(train_arguments, sentences, adapter_directory, tmp_path_factory):
    """What the short runs read."""
    folder = tmp_path_factory.mktemp("options")
    (encoder,) = (word.removeprefix("--model=") for word in train_arguments if word.startswith("--model="))
    for name, source in {"encoder": encoder, "adapter": adapter_directory}.items():
        shutil.copytree(source, folder / name)
    for name, source in {"train": "train", "dev": "validation"}.items():
        shutil.copy(sentences / f"{source}.csv", folder / f"{name}.csv")
    return folder


@pytest.fixture
def refusal(cli, folder, monkeypatch):
    """What a command says of a word more: `refusal(command, word)`, or None if it would load TensorFlow."""

    def reached(first=None):
        raise Reached

    monkeypatch.setattr(quiet, "import_tensorflow", reached)
    monkeypatch.chdir(folder)
    files = sorted(folder.rglob("*"))

    def run(command, word):
        words = RUNS[command].format(folder).split()
        words = [*words, word] if word.startswith("-") else [word, *(each for each in words if each.startswith("-"))]
        try:
            outcome = cli(command, *words)
        except Reached:
            return None
        ours = outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
        assert outcome.status == 2 and (ours or "Usage: tf-adapters" in outcome.err), (command, word, outcome.err)
        assert sorted(folder.rglob("*")) == files, (command, word)
        return outcome.err

    return run


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=[pytest.mark.nightly] * (name in ("tune", "pretrain"))) for name in COMMANDS]
)
def test_values_that_no_option_can_have_are_refused_before_tensorflow(refusal, command):
    for word in wrong_words(command):
        message = refusal(command, word)
        assert message is not None, f"{command} {word} loads TensorFlow"
        assert word.rpartition("=")[2] or "is empty" in message or "Invalid value" in message, (word, message)


@pytest.mark.parametrize("command", ["train", "tune", "pretrain", "evaluate", "predict", "submit"])
def test_integers_beyond_what_tensorflow_counts_are_refused(refusal, command):
    for name in numbers_of(command) & {"batch_size", "seed", "epochs", "seeds", "trials", "adapter_size"}:
        option = f"--{name.replace('_', '-')}"
        assert f"{option} {2**64} must be an integer of at most" in refusal(command, f"{option}={2**64}")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_that_takes_numbers_has_a_range(command):
    (callback,) = (registered.callback for registered in app.registered_commands if registered.name == command)
    parameters = inspect.signature(callback).parameters
    assert all(limits_of(parameters[name]).range for name in numbers_of(command))


@pytest.mark.parametrize("command", ["train", "tune", "pretrain", "evaluate", "predict", "convert", "export"])
def test_output_of_300_letters_is_refused_in_a_sentence(refusal, command):
    for output in (LONG, f"new/{LONG}", f"{'b' * 250}.jsonl"):
        message = refusal(command, f"--output={output}")
        # export and convert look at it once TensorFlow is there.
        assert message is None or "longer than" in message or "must end in" in message, message


def test_words_after_a_variable_that_is_not_set_are_not_the_folder_here(cli, folder, monkeypatch):
    monkeypatch.chdir(folder)
    outcome = cli("train", "--train", "train.csv", "--validation", "dev.csv", "--output", "")
    assert (outcome.status, outcome.err) == (2, "error: --output is empty: give it a value, or leave it out.\n")
