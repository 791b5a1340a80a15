"""Every option of every command with a value that it cannot have: one sentence, status 2, nothing written, and no
TensorFlow."""

import functools
import inspect
import shutil
import typing

import pytest
import typer.main

from tf_adapters.cli import quiet
from tf_adapters.cli.command import limits_of
from tf_adapters.cli.main import program

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
get_command = functools.cache(typer.main.get_command)
# Those of `study` are asked by test_studies.py.
COMMANDS = {
    name: command for name, command in get_command(program()).commands.items() if not hasattr(command, "commands")
}
# What no option that takes numbers can have, beside nothing.
NEVER = ("-1", "nan")
LONG = "a" * 300


def parameters_of(name):
    """The parameters of a command's function, by name."""
    (callback,) = (registered.callback for registered in program().registered_commands if registered.name == name)
    return inspect.signature(callback).parameters


def numbers_of(name):
    """Names of a command's parameters that take numbers alone; Typer's versions keep types in different places."""
    hints = {parameter.name: parameter.annotation for parameter in parameters_of(name).values()}
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

    def reached(*_):
        raise Reached

    monkeypatch.setattr(quiet, "import_tensorflow", reached)
    # Typer would make all commands anew for each word.
    monkeypatch.setattr(typer.main, "get_command", get_command)
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


def test_every_option_that_takes_numbers_has_a_range():
    for command in COMMANDS:
        parameters = parameters_of(command)
        assert all(limits_of(parameters[name]).range for name in numbers_of(command)), command


@pytest.mark.parametrize("command", ["train", "predict", "export"])
def test_output_of_300_letters_is_refused_in_a_sentence(refusal, command):
    for output in (LONG, f"new/{LONG}", f"{'b' * 250}.jsonl"):
        message = refusal(command, f"--output={output}")
        # export and convert look at it once TensorFlow is there.
        assert message is None or "longer than" in message or "must end in" in message, message
