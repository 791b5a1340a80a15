"""`tf-adapters stream`: tasks one after the other on one encoder."""

import json
import shutil

import numpy as np
import pytest

from tests.conftest import write_csv
from tests.runs import content
from tf_adapters.cli import stream as module
from tf_adapters.training.run import Run


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two tasks of texts, with two and three labels, and one of words."""
    root = tmp_path_factory.mktemp("customers")
    for name, rows in (("acme", 64), ("globex", 48)):
        (root / name).mkdir()
        for seed, split in enumerate(("train", "dev")):
            write_csv(root / name / f"{split}.csv", rows, seed=seed)
    path = root / "globex" / "train.csv"
    path.write_text(path.read_text().replace("positive", "yes").replace("negative", "no") + "the plot,maybe\n")
    path = root / "globex" / "dev.csv"
    path.write_text(path.read_text().replace("positive", "yes").replace("negative", "no"))
    (root / "words").mkdir()
    rows = ("1 good ADJ", "2 film NOUN", "", "1 very ADV", "2 dull ADJ", "")
    columns = (row.split() for row in rows)
    sentence = "".join(f"{row[0]}\t{row[1]}\t_\t{row[2]}" + 6 * "\t_" + "\n" if row else "\n" for row in columns)
    for split in ("train", "validation"):
        (root / "words" / f"{split}.conllu").write_text(sentence * 20)
    return [root / name for name in ("acme", "words", "globex")]


@pytest.fixture(scope="module")
def settings(checkpoint):
    return [f"--model={checkpoint}", "--max-length=16", "--adapter-size=4", "--epochs=2", "--batch-size=16", "--seed=3"]


@pytest.fixture(scope="module")
def streamed(folders, settings, tmp_path_factory):
    from tf_adapters.cli.main import main

    output = tmp_path_factory.mktemp("streamed") / "out"
    assert main(["stream", *map(str, folders), *settings, f"--output={output}"]) == 0
    return output


@pytest.mark.nightly
def test_each_directory_is_the_one_that_train_writes_for_the_task_alone(cli, streamed, folders, settings, tmp_path):
    for folder in folders:
        files = [
            f"--{option}={next(folder.glob(pattern))}"
            for option, pattern in (("train", "train.*"), ("validation", "[dv]*"))
        ]
        assert cli("train", *files, *settings, f"--output={tmp_path / folder.name}").status == 0
        assert content(tmp_path / folder.name) == content(streamed / folder.name), folder.name


@pytest.mark.nightly
def test_predictions_are_the_same_bits_at_the_end_and_parameters_are_counted(streamed):
    record = json.loads((streamed / "stream.json").read_text())
    assert list(record["tasks"]) == ["acme", "words", "globex"]
    assert all(row["predictions_unchanged"] for row in record["tasks"].values())
    assert len({row["predictions_sha256"] for row in record["tasks"].values()}) == 3
    for name, row in record["tasks"].items():
        saved = json.loads((streamed / name / "tf_adapters.json").read_text())
        assert row["trained"] == saved["parameters"]["trained"] and row["head"] == saved["parameters"]["head"]
    assert record["encoder"]["sha256"] == saved["backbone"]["sha256"]
    # Embeddings (tokens, 64 positions, 2 types) and their LayerNorm, 4 blocks of 32 with 64 inside, the pooler.
    from tests.conftest import VOCABULARY

    block = 4 * (32 * 32 + 32) + (32 * 64 + 64) + (64 * 32 + 32) + 4 * 32
    assert record["encoder"]["parameters"] == (len(VOCABULARY) + 64 + 2) * 32 + 64 + 4 * block + 32 * 32 + 32
    assert (streamed / "parameters.png").stat().st_size > 1000


@pytest.mark.nightly
def test_a_killed_stream_goes_on_with_the_task_at_work(cli, streamed, folders, settings, tmp_path, monkeypatch):
    steps, real = [], Run.on_train_batch_end

    def counted(self, batch, logs=None):
        real(self, batch, logs)
        steps.append(self.task.kind)
        if len(steps) == 12:  # 8 of the first task, then within the second
            raise SystemExit(9)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "on_train_batch_end", counted)
        arguments = ["stream", *folders, *settings, f"--output={tmp_path / 'out'}"]
        assert cli(*arguments).status == 9
    assert steps[-1] == "token-classification"
    assert cli(*arguments).status == 2 and cli(*arguments, "--resume", "--epochs=3").status == 2
    steps.clear()
    with monkeypatch.context() as patched:
        patched.setattr(
            Run, "on_train_batch_end", lambda *rest, **more: (steps.append(rest[0].task.kind), real(*rest, **more))
        )
        outcome = cli(*arguments, "--resume")
    assert outcome.status == 0 and "acme: done before" in outcome.out, outcome.err
    assert steps[0] == "token-classification" and steps.count("classification") == 8  # 2 epochs of 49 rows in 4 batches
    for name in ("acme", "words", "globex"):
        assert content(tmp_path / "out" / name) == content(streamed / name), name


@pytest.mark.nightly
@pytest.mark.parametrize("what", ["encoder", "predictions"])
def test_a_change_is_found(cli, folders, settings, tmp_path, monkeypatch, what):
    real = module._verify

    def meddling(console, runners, backbone, output, record):
        if what == "encoder":
            variable = next(variable for variable in backbone.weights if "query/kernel" in variable.name)
            variable.assign(np.nextafter(variable.numpy(), np.float32(9)))
        else:
            digest = record.tasks["acme"]["predictions_sha256"]
            record.tasks["acme"]["predictions_sha256"] = digest[::-1]
        real(console, runners, backbone, output, record)

    monkeypatch.setattr(module, "_verify", meddling)
    arguments = ["stream", folders[0], *settings, "--epochs=1", f"--output={tmp_path / 'out'}"]
    if what == "encoder":
        outcome = cli(*arguments)
        assert outcome.status == 2 and "its encoder was changed since it was loaded" in outcome.err
    else:
        with pytest.raises(RuntimeError, match="Predictions differ .* acme"):
            cli(*arguments)


def test_mistakes_are_one_sentence(cli, folders, settings, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "two").mkdir()
    for name in ("train.csv", "train.tsv"):
        (tmp_path / "two" / name).touch()
    (tmp_path / "acme").mkdir()
    for name in ("train.csv", "dev.csv"):
        (tmp_path / "acme" / name).write_text((folders[0] / name).read_text())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    for arguments, message in (
        ([tmp_path / "empty"], "holds no train.*"),
        ([tmp_path / "two"], "holds train.csv and train.tsv"),
        ([folders[0], tmp_path / "acme"], "two tasks would be called 'acme'"),
        (["glue/cola", "--label-column=x"], "--label-column x is of folders of your own"),
        ([folders[0], f"--output={tmp_path / 'full'}"], "holds other files than a stream"),
        ([folders[0], f"--output={tmp_path / 'full'}", "--resume"], "holds no stream"),
        ([folders[0], "--recipe=houlsby-2019-full"], "trains the encoder itself"),
        ([folders[0], "--label-column=topic"], "topic"),
        ([folders[0], "rotten-tomatoez"], "There is no task 'rotten-tomatoez'"),
    ):
        outcome = cli(
            "stream", *arguments, *settings, *([] if "--output" in str(arguments) else [f"--output={tmp_path / 'out'}"])
        )
        assert outcome.status == 2 and message in outcome.err and outcome.err.count("\n") == 1, (arguments, outcome.err)
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_other_columns_are_another_stream_and_a_mistake_removes_nothing(cli, streamed, folders, settings, tmp_path):
    shutil.copytree(streamed, tmp_path / "out")
    arguments = ["stream", *folders, *settings, f"--output={tmp_path / 'out'}"]
    outcome = cli(*arguments, "--resume", "--text-column=label", "--label-column=text")
    assert outcome.status == 2 and "holds a stream with another text_column (None, now 'label')" in outcome.err
    assert content(tmp_path / "out") == content(streamed)
    outcome = cli(*arguments, "--overwrite", "--blocks=0-99")
    assert outcome.status == 2 and "--blocks" in outcome.err
    assert content(tmp_path / "out" / "acme") == content(streamed / "acme")


@pytest.mark.parametrize("wrong", [["--sharing", 99], pytest.param(["--model", "nowhere"], marks=pytest.mark.nightly)])
def test_a_mistake_that_shows_with_the_encoder_leaves_nothing(
    cli, wrong, train_arguments, sentences, tmp_path, monkeypatch
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "task").mkdir()
    for name in ("train", "validation"):
        shutil.copy(sentences / f"{name}.csv", tmp_path / "task" / f"{name}.csv")
    (model,) = (word for word in train_arguments if word.startswith("--model="))
    outcome = cli("stream", tmp_path / "task", model, "--max-length", 16, *wrong, "--output", tmp_path / "out")
    assert outcome.status == 2 and not (tmp_path / "out").exists()
