"""`tf-adapters submit`: the files of GLUE's evaluation server."""

import dataclasses
import json
import shutil
import zipfile

import numpy as np
import pytest

from tests.conftest import SHARED, write_checkpoint
from tests.test_named_tasks import write, write_glue
from tf_adapters import AdapterConfig, add_adapters, load_backbone, save_adapter, set_trainable
from tf_adapters.kinds.sentences import Regression
from tf_adapters.tasks import glue
from tf_adapters.tasks.glue import GLUE, SUBMISSIONS
from tf_adapters.text import WordPiece

FILES = {submission.file: submission for submission in SUBMISSIONS}


def test_the_server_takes_these_files_with_these_numbers_of_rows():
    assert {file: submission.rows for file, submission in FILES.items()} == {
        "CoLA.tsv": 1063, "SST-2.tsv": 1821, "MRPC.tsv": 1725, "STS-B.tsv": 1379, "QQP.tsv": 390965,
        "MNLI-m.tsv": 9796, "MNLI-mm.tsv": 9847, "QNLI.tsv": 5463, "RTE.tsv": 3000, "WNLI.tsv": 146, "AX.tsv": 1104,
    }  # fmt: skip
    assert {submission.task.config for submission in SUBMISSIONS} == {task.config for task in GLUE}


def test_predictions_are_the_words_of_the_server():
    for names, words in (
        ("CoLA SST-2 MRPC QQP WNLI", ["0", "1"]),
        ("QNLI RTE", ["entailment", "not_entailment"]),
        ("MNLI-m MNLI-mm AX", ["entailment", "neutral", "contradiction"]),
    ):
        for name in names.split():
            assert FILES[f"{name}.tsv"].predictions(np.eye(len(words))) == words
    assert FILES["STS-B.tsv"].predictions(np.array([[-0.2], [3.14159], [5.2]])) == ["0.000", "3.142", "5.000"]


@pytest.mark.skipif(not (SHARED / "data/glue").is_dir(), reason="needs the original GLUE files in ../shared/data/glue")
def test_official_sizes_are_those_of_the_published_test_files():
    here = [one for one in SUBMISSIONS if one.task.config in ("cola", "sst2", "mrpc", "stsb", "rte", "wnli")]
    assert [len(one.task.test_rows(data_dir=SHARED / "data")[0]) for one in here] == [one.rows for one in here]


# The command, on adapters that were never trained


def glue_data(folder):
    """A GLUE download with small test sets."""
    write_glue(folder)
    pairs = (f"{i}\tthe film\tit was {word}" for i, word in enumerate(["dull", "good", "a", "fun", "b"]))
    write(folder / "RTE/test.tsv", "index\tsentence1\tsentence2", *pairs)
    write(folder / "STS-B/test.tsv", "index\tsentence1\tsentence2", "0\tc\td", "1\te\tf")
    return folder


def save_untrained(directory, checkpoint, config, *, bias):
    """An adapter directory of a GLUE task whose head's bias is set."""
    task = next(task for task in GLUE if task.config == config)
    labels = list(task.labels)
    model = load_backbone(checkpoint, head="classification", num_labels=len(labels) or 1, labels=labels or None)
    add_adapters(model, AdapterConfig(bottleneck_size=2), seed=0)
    set_trainable(model, "adapters")
    model.classifier.bias.assign(bias)
    about = {"name": task.name, "kind": task.kind, "metric": task.metric}
    return save_adapter(model, directory, text=WordPiece.from_directory(checkpoint, max_length=16), task=about)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folder with data/ and the adapter directories rte/, stsb/ and mnli/, which are not to be changed."""
    folder = tmp_path_factory.mktemp("submit")
    glue_data(folder / "data")
    write_checkpoint(folder / "encoder", num_hidden_layers=1)
    for config, bias in {"rte": [0.0, 0.0], "stsb": [7.0], "mnli": [0.0, 5.0, 0.0]}.items():
        save_untrained(folder / config, folder / "encoder", config, bias=bias)
    return folder


@pytest.fixture
def small_sizes(monkeypatch):
    """Test sets of 5, 2, 1, 1 and 1 rows are the official ones."""
    rows = {"RTE.tsv": 5, "STS-B.tsv": 2, "MNLI-m.tsv": 1, "MNLI-mm.tsv": 1, "AX.tsv": 1}
    small = tuple(dataclasses.replace(s, rows=rows.get(s.file, s.rows)) for s in SUBMISSIONS)
    monkeypatch.setattr(glue, "SUBMISSIONS", small)


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
def test_submit_writes_each_file_in_the_order_of_its_test_rows(
    cli, refused, trained, small_sizes, tmp_path, monkeypatch
):
    monkeypatch.setattr("tf_adapters.cli.submit.CHUNK_ROWS", 2)
    directories = [trained / config for config in ("rte", "stsb", "mnli")]
    output = tmp_path / "sent" / "glue"
    outcome = cli("submit", *directories, "--data-dir", trained / "data", "--output", output, "--zip")
    assert outcome.status == 0, outcome.err
    files = ["AX.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "RTE.tsv", "STS-B.tsv"]
    assert sorted(path.name for path in output.iterdir()) == sorted([*files, "submission.zip"])
    assert [path.name for path in output.parent.iterdir()] == ["glue"]  # nothing temporary is left
    with zipfile.ZipFile(output / "submission.zip") as archive:
        assert sorted(archive.namelist()) == files
        assert all(archive.read(file) == (output / file).read_bytes() for file in files)
    # What `predict` says of the same rows, with the same index.
    rte = lines(output / "RTE.tsv")
    predicted = cli(
        "predict", trained / "rte", "--input", trained / "data/RTE/test.tsv", "--text-column=sentence1",
        "--text-pair-column=sentence2",
    ).rows()  # fmt: skip
    assert rte == ["index\tprediction", *(f"{i}\t{row['label']}" for i, row in enumerate(predicted))]
    # About 7 by its bias, and beyond what a score can be.
    assert lines(output / "STS-B.tsv") == ["index\tprediction", "0\t5.000", "1\t5.000"]
    for file in ("MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"):
        assert lines(output / file) == ["index\tprediction", "0\tneutral"]
    missing = "CoLA.tsv, SST-2.tsv, MRPC.tsv, QQP.tsv, QNLI.tsv, WNLI.tsv."
    assert f"Not written, and wanted by the server for a whole score: {missing}" in outcome.out

    # Again, by --overwrite alone; a zip of other files does not stay.
    again = ("submit", trained / "rte", "--data-dir", trained / "data", "--output", output)
    refused(*again, says=f"--output {output} holds RTE.tsv, submission.zip: replace by --overwrite, or give another")
    (output / "RTE.tsv").write_text("old")
    assert cli(*again, "--overwrite").status == 0
    assert lines(output / "RTE.tsv") == rte and not (output / "submission.zip").exists()
    assert (output / "AX.tsv").exists()


def test_an_error_in_the_middle_leaves_no_file(refused, trained, small_sizes, tmp_path, monkeypatch):
    broken = lambda self, scorer, rows, *, progress=None: np.full((len(rows), 1), np.nan)  # noqa: E731
    monkeypatch.setattr(Regression, "predict", broken)
    (tmp_path / "out").mkdir()
    words = ("submit", trained / "rte", trained / "stsb", f"--data-dir={trained / 'data'}", f"--output={tmp_path}/out")
    refused(*words, says=f"{trained}/stsb predicts numbers that are not finite: train it again.")


def test_the_diagnostic_set_is_left_out_where_it_is_not_there(cli, trained, small_sizes, tmp_path):
    shutil.copytree(trained / "data/MNLI", tmp_path / "data/MNLI")
    outcome = cli("submit", trained / "mnli", "--data-dir", tmp_path / "data", "--output", tmp_path / "out")
    assert outcome.status == 0 and f"AX.tsv is left out: its rows are not in {tmp_path}/data." in outcome.out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["MNLI-m.tsv", "MNLI-mm.tsv"]


def test_what_cannot_be_submitted_is_refused(refused, trained, tmp_path):
    submit, other = ("submit", f"--output={tmp_path / 'out'}"), tmp_path / "other"
    says = f"RTE.tsv: the test split of glue/rte in {trained}/data has 5 rows, and the official one has 3,000: get the"
    refused(*submit, trained / "rte", "--data-dir", trained / "data", says=says)
    shutil.copytree(trained / "rte", other)
    refused(*submit, trained / "rte", other, says=f"{other} were both trained on glue/rte: give one of them.")
    settings = json.loads((other / "tf_adapters.json").read_text())
    settings["task"]["name"] = "files"
    (other / "tf_adapters.json").write_text(json.dumps(settings))
    refused(*submit, other, says=f"{other} was trained on task 'files': give adapters that were trained on glue/ tasks")
    settings["task"]["name"] = "glue/rte"
    settings["head"]["labels"].reverse()
    (other / "tf_adapters.json").write_text(json.dumps(settings))
    says = f"{other} has the labels not_entailment, entailment, and those of glue/rte are entailment, not_entailment"
    refused(*submit, other, says=says)
