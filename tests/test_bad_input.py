"""A user's mistakes at the command line: one sentence, status 2, no traceback, and every file as it was."""

import json
import os
import shutil

import numpy as np
import pytest

from tests.conftest import write_checkpoint

GOOD = "text,label\na good film,positive\na bad film,negative\n"


@pytest.fixture
def work(tmp_path, monkeypatch, train_arguments):
    """The working directory of a test: two good files, and the encoder as `encoder`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.csv").write_text(GOOD)
    (tmp_path / "dev.csv").write_text(GOOD)
    (tmp_path / "encoder").symlink_to(train_arguments[1].partition("=")[2])
    return tmp_path


@pytest.fixture
def adapter(work, adapter_directory):
    """A copy of an adapter directory as `adapter`, which a test may damage."""
    shutil.copytree(adapter_directory, work / "adapter")
    return work / "adapter"


@pytest.fixture
def refused(cli, work):
    """Runs a command that must fail, and looks at how; returns the message."""

    def run(*arguments, stdin=b"", says):
        before = tree(work)
        outcome = cli(*arguments, stdin=stdin)
        assert outcome.status == 2, outcome.out + outcome.err
        assert says in outcome.err
        assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
        assert "Traceback" not in outcome.out + outcome.err
        assert tree(work) == before
        return outcome.err

    return run


def tree(directory):
    """Every path below a directory, with the bytes of the files."""
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(directory.rglob("*"))}


def train(*options, **changes):
    values = {"model": "encoder", "train": "train.csv", "validation": "dev.csv", "max-length": 32, "output": "out"}
    values.update({name.replace("_", "-"): value for name, value in changes.items()})
    return ["train", *(f"--{name}={value}" for name, value in values.items() if value is not None), *options]


# Files


@pytest.mark.parametrize(
    "content, says",
    [
        (b"", "train.csv is empty: give a file with a header and at least one row"),
        (b"text,label\n", "train.csv has a header and no rows"),
        (
            b"sentence,label\na,b\n",
            "train.csv has no column 'text': the columns of its first line are 'sentence', 'label'",
        ),
        (b"text,score\na,b\n", "has no column 'label'"),
        (b"text,label\na,x\nb,x\n", "train.csv has only the label 'x': training needs rows of at least two classes"),
        (b"text,label\n ,x\nb,y\n", "train.csv, line 2: column 'text' is empty; fill it in or remove the row"),
        (b"text,label\na,x\nb,\n", "train.csv, line 3: the label is empty"),
        (
            b"text,label\nna\xefve,x\nb,y\n",
            "train.csv, line 2: byte 0xef is not UTF-8; with --encoding cp1252 it reads 'naïve,x'",
        ),
        (b'text,label\n"a,x\nb,y\n', 'a quote (") is opened in this row and never closed'),
        (b"text,label\na,b,c\n", "line 2: has 3 fields where the header has 2"),
    ],
    ids="empty header-only no-text-column no-label-column one-class no-text no-label latin-1 open-quote fields".split(),
)
def test_unusable_training_file_is_refused(refused, work, content, says):
    (work / "train.csv").write_bytes(content)
    refused(*train(), says=says)


def test_nan_for_a_text_is_refused(refused, work):
    (work / "train.jsonl").write_text('{"text": NaN, "label": "a"}\n{"text": "b", "label": "b"}\n')
    refused(*train(train="train.jsonl"), says="train.jsonl, line 1: column 'text' is empty")


@pytest.mark.slow
def test_label_that_training_has_not_is_refused(refused, work, adapter):
    (work / "dev.csv").write_text("text,label\na,positive\nb,neutral\n")
    says = "dev.csv, line 3: the label 'neutral' is not among those of the training rows ('negative', 'positive')"
    refused(*train(), says=says)
    refused("evaluate", adapter, "--input", "dev.csv", says=says)


def test_files_that_are_not_there_are_refused(refused):
    refused(*train(train="no.csv"), says="no.csv does not exist: check the path")
    refused(*train(validation="no.csv"), says="no.csv does not exist")
    refused(*train(train="encoder"), says="encoder is a directory: give a file")


def test_text_of_100_000_characters_is_used(cli, adapter, work):
    (work / "long.jsonl").write_text(json.dumps({"text": "a good film " * 8400}) + "\n")
    outcome = cli("predict", adapter, "--input", "long.jsonl")
    assert outcome.status == 0 and len(outcome.rows()) == 1


# Options


@pytest.mark.parametrize(
    "options, says",
    [
        (["--adapter-size=0"], "--bottleneck-size 0 must be an integer of at least 1"),
        (["--recipe=houlsby"], "--recipe houlsby is unknown: the recipes are default, houlsby-2019"),
        (["--activation=gleu"], "--activation gleu"),
        (["--sharing=1"], "--sharing 1 must be 'none', 'layer' or an integer of at least 2"),
        (["--sharing=99"], "--sharing 99: 2 blocks have adapters; give 2 for one adapter of them all, or less"),
        (["--sharing=all"], "--sharing all is unknown: use 'none', 'layer' or an integer"),
        (["--placement=up"], "--placement up is unknown: use one of both, attention, ffn"),
        (["--train-layer-norm=some"], "--train-layer-norm some is unknown"),
        (["--adapter-dropout=1"], "--adapter-dropout 1.0 must be a number of at least 0 and below 1"),
        (["--blocks=top"], "--blocks top must look like 5-11 or 0,2,4"),
        (["--blocks=0,0"], "--blocks (0, 0) names a block twice"),
        (["--blocks=0-2"], "--blocks (0, 1, 2): the encoder has 2 blocks"),
        (["--trainable=top-99"], "--trainable top-99: N must be from 1 to 2"),
        (["--trainable=some"], "--trainable some is unknown: use one of adapters, full, top-N"),
        (["--trainable=head", "--sharing=layer"], "--sharing is for adapters, and --trainable head trains none"),
        (["--precision=float16"], "--precision float16 is unknown: use one of float32, mixed_bfloat16, mixed_float16"),
        (["--learning-rate=0"], "--learning-rate 0.0 must be a number above 0"),
        (["--dropout=1"], "--dropout 1.0 must be a number of at least 0 and below 1"),
        (["--batch-size=4", "--xla"], "--batch-size 4 is above the 2 training examples"),
        (["--max-train-rows=0"], "--max-train-rows 0 must be an integer of at least 1"),
        (["--seed=-1"], "--seed -1 must be an integer of at least 0"),
        (["--max-length=65"], "--max-length 65 is beyond the 64 positions of encoder: give 64 or less"),
        (["--max-length=2"], "--max-length 2 must be an integer of at least 3"),
        (["--kind=ranking"], "ranking"),
        (["--metric=bleu"], "bleu"),
        (["--metric=pearson-spearman"], "pearson-spearman"),
        (["--task=glue/sst2"], "--task glue/sst2 and --train train.csv exclude each other"),
        (["--data-dir=tfds"], "--data-dir tfds belongs to --task NAME"),
        (["--resume"], "--resume: out holds no interrupted run; start one without --resume"),
        (["--resume", "--overwrite"], "--resume and --overwrite exclude each other"),
    ],
    ids=lambda value: " ".join(value).replace("--", "") if isinstance(value, list) else "",
)
def test_value_that_an_option_cannot_have_is_refused(refused, options, says):
    refused(*train(*options), says=says)


@pytest.mark.parametrize(
    "arguments, says",
    [
        (train(validation="1.5"), "--validation 1.5 must be a file, or a share of the training rows such as 0.1"),
        (train(validation="nan"), "--validation nan must be a file, or a share"),
        (train(train=None), "--validation dev.csv goes with --train FILE: add --train FILE, or --task NAME"),
        (train(train=None, validation=None, text_column="x"), "--text-column x goes with --train FILE"),
        (
            train(train=None, task="rotten-tomatoes"),
            "--validation dev.csv goes with --train FILE: task 'rotten-tomatoes'",
        ),
        (train(train=None, validation=None, task="rotten-tomatos"), "did you mean 'rotten-tomatoes'"),
        (train(output=None), "--output DIR is needed"),
    ],
    ids="share-above-1 no-share no-train column-without-file file-beside-task unknown-task no-output".split(),
)
def test_options_that_do_not_go_together_are_refused(refused, arguments, says):
    refused(*arguments, says=says)


def test_value_of_another_type_is_refused_by_the_parser(cli, work):
    outcome = cli(*train("--epochs=many"))
    assert outcome.status == 2 and "--epochs" in outcome.err
    assert not (work / "out").exists()


# Output


def test_output_that_is_not_empty_is_refused_and_kept(refused, work, adapter):
    refused(*train(output="adapter"), says="--output adapter is not empty: replace it by --overwrite")
    refused(*train(output="train.csv"), says="--output train.csv is a file: give a directory")
    (work / "mine").mkdir()
    (work / "mine" / "README.md").write_text("a year of work")
    refused(*train("--overwrite", output="mine"), says="mine holds other files than an adapter; remove them yourself")


def test_overwrite_with_a_mistake_elsewhere_keeps_the_adapter(refused, adapter):
    refused(*train("--overwrite", output="adapter", model="nowhere/"), says="nowhere/")
    refused(*train("--overwrite", output="adapter", text_column="x"), says="has no column 'x'")
    refused(*train("--overwrite", "--max-length=65", output="adapter"), says="--max-length 65")


def test_output_where_nothing_can_be_written_is_refused(refused, adapter):
    refused(*train(output="train.csv/out"), says="train.csv is not a directory")
    refused("predict", adapter, "--input", "train.csv", "--output", "train.csv/p.csv", says="is not a directory")
    refused("evaluate", adapter, "--input", "train.csv", "--output", "train.csv/p.json", says="is not a directory")
    # Writable by its mode, but not in fact.
    refused(*train(output="/proc/self/out"), says="/proc/self/out")
    refused("predict", adapter, "--input", "train.csv", "--output", "/proc/p.csv", says="/proc/p.csv cannot be written")


def test_output_file_that_is_there_is_kept(refused, cli, adapter, work):
    (work / "p.csv").write_text("precious")
    predict = ["predict", adapter, "--input", "train.csv", "--output", "p.csv"]
    refused(*predict, says="--output p.csv is there already: replace it by --overwrite")
    refused("evaluate", adapter, "--input", "train.csv", "--output", "p.csv", says="--output p.csv is there already")
    refused(*predict[:-1], "p.xlsx", says="--output p.xlsx: the name must end in .jsonl or .csv")
    assert cli(*predict, "--overwrite").status == 0
    assert (work / "p.csv").read_text().startswith("text,input_label,label,")


def test_file_whose_later_row_is_malformed_gives_no_output(refused, adapter, work, monkeypatch):
    monkeypatch.setattr("tf_adapters.cli.predict.CHUNK_ROWS", 4)
    (work / "t.csv").write_text("text\n" + "a film\n" * 11 + "one,two\n")
    (work / "p.jsonl").write_text("precious")
    predict = ["predict", adapter, "--input", "t.csv", "--output"]
    refused(*predict, "new.csv", says="t.csv, line 13: has 2 fields where the header has 1")
    refused(*predict, "p.jsonl", "--overwrite", says="t.csv, line 13")


def test_standard_input_without_a_line_is_refused(refused, adapter):
    refused("predict", adapter, "--input", "-", says="standard input is empty")
    refused(
        "predict", adapter, "--input", "-", stdin=b"\xff\xff\n", says="standard input, line 1: byte 0xff is not UTF-8"
    )


# Adapter directories


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_directory_without_an_adapter_is_refused(refused, work, command):
    refused(command, "no", "--input", "train.csv", says="no: there is no such directory")
    refused(
        command, "encoder", "--input", "train.csv", says="encoder is no adapter directory: it holds no tf_adapters.json"
    )
    refused(command, "train.csv", "--input", "train.csv", says="train.csv")


def test_adapter_of_another_encoder_is_refused(refused, work, adapter):
    write_checkpoint(work / "other", num_hidden_layers=2, seed=9)
    predict = ["predict", adapter, "--input", "train.csv", "--model"]
    refused(*predict, "other", says="was trained on another encoder")
    write_checkpoint(work / "deeper", num_hidden_layers=3)
    refused(*predict, "deeper", says="num_hidden_layers=2, and this model has num_hidden_layers=3")
    settings = json.loads((adapter / "tf_adapters.json").read_text())
    settings["backbone"]["source"] = "gone/"
    (adapter / "tf_adapters.json").write_text(json.dumps(settings))
    refused(*predict[:-1], says="Give another place by --model")


@pytest.mark.parametrize("command", [["predict", "--input=train.csv"], ["evaluate", "--input=train.csv"]])
def test_damaged_adapter_directory_is_refused(refused, adapter, command):
    weights, settings = adapter / "adapter.safetensors", adapter / "tf_adapters.json"
    whole, text = weights.read_bytes(), settings.read_text()
    weights.write_bytes(whole[:-100])
    refused(*command, adapter, says="adapter.safetensors is missing, truncated or not the file")
    weights.unlink()
    refused(*command, adapter, says="adapter.safetensors is missing")
    weights.write_bytes(whole)
    settings.write_text(text[:200])
    refused(*command, adapter, says="tf_adapters.json is not JSON")
    settings.write_text(text.replace('"format_version": 1', '"format_version": 99'))
    refused(*command, adapter, says="has format_version 99; this version of tf_adapters reads up to 1: upgrade it")


def test_evaluating_without_rows_is_refused(refused, adapter):
    refused("evaluate", adapter, says="adapter was trained on files: give the rows to score by --input FILE")
    refused("evaluate", adapter, "--input=dev.csv", "--split=test", says="--split test and --input dev.csv exclude")
    refused("evaluate", adapter, "--input=dev.csv", "--metric=matthew", says="matthew")
    refused(
        "evaluate", adapter, "--input=dev.csv", "--batch-size=0", says="--batch-size 0 must be an integer of at least 1"
    )
    refused("predict", adapter, "--input=dev.csv", "--format=xml", says="'xml'")


# Encoders


def damaged(work, name, damage):
    """A copy of the encoder after `damage(its folder)`."""
    shutil.copytree(work / "encoder", work / name)
    damage(work / name)
    return name


def change_config(**values):
    def damage(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **values}))

    return damage


def truncate_weights(folder):
    os.truncate(folder / "model.safetensors", 5000)


def spoil_weights(folder):
    from safetensors.numpy import load_file, save_file

    arrays = load_file(folder / "model.safetensors")
    arrays["encoder.layer.1.output.dense.bias"] = np.full_like(arrays["encoder.layer.1.output.dense.bias"], np.nan)
    save_file(arrays, folder / "model.safetensors")


@pytest.mark.parametrize(
    "damage, says",
    [
        (lambda folder: (folder / "config.json").unlink(), "holds no config.json, so it is no transformers model"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is not JSON"),
        (change_config(model_type="gpt2"), "model_type='gpt2' is not supported"),
        (change_config(num_hidden_layers=3), "lacks 16 weights of the encoder that config.json describes"),
        (change_config(hidden_size=64), "config.json asks for"),
        (truncate_weights, "model.safetensors is not a complete safetensors file"),
        (lambda folder: (folder / "model.safetensors").unlink(), "holds none of model.safetensors"),
        (spoil_weights, "encoder.layer.1.output.dense.bias holds NaN or infinity"),
        (lambda folder: (folder / "vocab.txt").unlink(), "holds no WordPiece vocabulary"),
    ],
    ids="no-config damaged-config gpt2 deeper wider truncated no-weights nan no-vocabulary".split(),
)
def test_encoder_that_cannot_be_used_is_refused(refused, work, damage, says):
    model = damaged(work, "broken", damage)
    refused(*train(model=model), says=says)


def test_info_of_something_else_is_refused(refused, work):
    refused("info", "train.csv", says="error: train.csv is a file: give the directory")
    refused("info", work, says="holds neither tf_adapters.json nor config.json")
    refused("info", "encoder", "--adapter-size=0", says="--bottleneck-size 0 must be an integer of at least 1")
    refused("info", "./encoders", says="error: ./encoders: there is no such directory")
