"""A user's mistakes at the command line: one sentence, status 2, no traceback, and every file as it was."""

import json
import os
import shutil

import pytest

from tests.conftest import write_checkpoint

GOOD = "text,label\na good film,positive\na bad film,negative\n"
TRAIN = "train --model=encoder --train=train.csv --validation=dev.csv --max-length=32 --output=out"
PREDICT = "predict adapter --input=train.csv"
EVALUATE = "evaluate adapter --input=dev.csv"


@pytest.fixture
def work(tmp_path, monkeypatch, train_arguments):
    """The working directory of a test: two good files, two others, and the encoder as `encoder`."""
    monkeypatch.chdir(tmp_path)
    for name in ("train.csv", "dev.csv"):
        (tmp_path / name).write_text(GOOD)
    (tmp_path / "mine").mkdir()
    for name in ("mine/README.md", "p.csv"):
        (tmp_path / name).write_text("a year of work")
    (tmp_path / "encoder").symlink_to(train_arguments[1].partition("=")[2])
    return tmp_path


@pytest.fixture
def adapter(work, adapter_directory):
    """A copy of an adapter directory as `adapter`, which a test may damage."""
    shutil.copytree(adapter_directory, work / "adapter")
    return work / "adapter"


# Files


def test_unusable_training_file_is_refused(refused, work):
    (work / "train.csv").write_text("text,label\na,other\nb,y\n")
    refused(*TRAIN.split(), says="dev.csv, line 2: the label 'positive' is not among those of the training rows")


def test_text_of_100_000_characters_is_used(cli, adapter, work):
    (work / "long.jsonl").write_text(json.dumps({"text": "a good film " * 8400}) + "\n")
    outcome = cli("predict", adapter, "--input", "long.jsonl")
    assert outcome.status == 0 and len(outcome.rows()) == 1


# Words


@pytest.mark.parametrize(
    "words, says",
    [
        (f"{TRAIN} --adapter-dropout=1", "--adapter-dropout 1.0 must be a number of at least 0 and below 1"),
        (f"{TRAIN} --blocks=0-2", "--blocks (0, 1, 2): the encoder has 2 blocks"),
        (f"{TRAIN} --trainable=top-99", "--trainable top-99: N must be from 1 to 2"),
        (f"{TRAIN} --trainable=head --sharing=layer", "--sharing is for adapters, and --trainable head trains none"),
        (f"{TRAIN} --precision=half", "--precision half is unknown: use one of float32, mixed_bfloat16, mixed_float16"),
        (f"{TRAIN} --batch-size=4 --xla", "--batch-size 4 is above the 2 training examples"),
        (f"{TRAIN} --max-length=65", "--max-length 65 is beyond the 64 positions of ./encoder: give 64 or less"),
        (f"{TRAIN} --task=glue/sst2", "--task glue/sst2 and --train train.csv exclude each other"),
        (f"{TRAIN} --data-dir=tfds", "--data-dir tfds belongs to --task NAME"),
        (f"{TRAIN} --resume", "--resume: out holds no interrupted run; start one without --resume"),
        (f"{TRAIN} --resume --overwrite", "--resume and --overwrite exclude each other"),
        (f"{TRAIN} --train=no.csv", "no.csv does not exist: check the path"),
        ("train --output=out --validation=dev.csv", "--validation dev.csv goes with --train FILE: add --train FILE"),
        ("train --output=out --task=rotten-tomatos", "did you mean 'rotten-tomatoes'"),
        # What a message of Python's functions calls by name is called by its option.
        ("train --output=out --task=imdb_reviews --data-dir=dev.csv", "--data-dir is 'dev.csv'"),
        ("train --train=train.csv", "--output DIR is needed"),
        # Where to write
        (f"{TRAIN} --output=adapter", "--output adapter is not empty: replace it by --overwrite"),
        (f"{TRAIN} --output=train.csv", "--output train.csv is a file: give a directory"),
        (f"{TRAIN} --output=train.csv/out", "train.csv is not a directory"),
        (f"{TRAIN} --output=mine --overwrite", "mine holds other files than an adapter; remove them yourself"),
        # Writable by its mode, but not in fact.
        (f"{TRAIN} --output=/proc/self/out", "/proc/self/out"),
        (f"{PREDICT} --output=p.csv", "--output p.csv is there already: replace it by --overwrite"),
        (f"{PREDICT} --output=p.xlsx", "--output p.xlsx: the name must end in .jsonl or .csv"),
        # A mistake elsewhere keeps what was to be replaced.
        (f"{TRAIN} --output=adapter --overwrite --model=nowhere/", "nowhere/"),
        (f"{TRAIN} --output=adapter --overwrite --text-column=x", "has no column 'x'"),
        # What is read
        ("predict adapter --input=-", "standard input is empty"),
        (f"{PREDICT} --format=xml", "'xml'"),
        ("predict no --input=train.csv", "no: there is no such directory"),
        ("predict dev.csv --input=train.csv", "dev.csv: this is a file, and not a directory that train"),
        ("evaluate dev.csv --input=train.csv", "dev.csv: this is a file, and not a directory that train"),
        ("evaluate encoder --input=dev.csv", "encoder is no adapter directory: it holds no tf_adapters.json"),
        ("evaluate adapter", "adapter was trained on files: give the rows to score by --input."),
        (f"{EVALUATE} --split=test", "--split test and --input dev.csv exclude"),
        (f"{EVALUATE} --metric=matthew", "matthew"),
        ("info train.csv", "error: train.csv is a file: give the directory"),
        ("info .", "holds neither tf_adapters.json nor config.json"),
    ],
    ids=lambda value: value.replace(TRAIN, "").replace("--", "") if "=" in value else None,
)
def test_words_that_cannot_be_are_refused(refused, adapter, words, says):
    refused(*words.split(), says=says)


def test_output_file_that_is_there_is_replaced_if_asked(cli, adapter, work):
    assert cli(*PREDICT.split(), "--output=p.csv", "--overwrite").status == 0
    assert (work / "p.csv").read_text().startswith("text,input_label,label,")


def test_file_whose_later_row_is_malformed_gives_no_output(refused, adapter, work, monkeypatch):
    monkeypatch.setattr("tf_adapters.cli.predict.CHUNK_ROWS", 4)
    (work / "t.csv").write_text("text\n" + "a film\n" * 11 + "one,two\n")
    predict = ["predict", adapter, "--input", "t.csv", "--output"]
    refused(*predict, "new.csv", says="t.csv, line 13: has 2 fields where the header has 1")
    refused(*predict, "p.csv", "--overwrite", says="t.csv, line 13")


# Adapter directories


def test_adapter_of_another_encoder_is_refused(refused, work, adapter):
    write_checkpoint(work / "other", num_hidden_layers=2, seed=9)
    refused(*PREDICT.split(), "--model=other", says="was trained on another encoder")
    write_checkpoint(work / "deeper", num_hidden_layers=3)
    refused(*PREDICT.split(), "--model=deeper", says="num_hidden_layers=2, and this model has num_hidden_layers=3")
    settings = json.loads((adapter / "tf_adapters.json").read_text())
    settings["backbone"]["source"] = "gone/"
    (adapter / "tf_adapters.json").write_text(json.dumps(settings))
    refused(*PREDICT.split(), says="Give another place by --model")


def test_damaged_adapter_directory_is_refused(refused, adapter):
    weights, settings = adapter / "adapter.safetensors", adapter / "tf_adapters.json"
    whole, text = weights.read_bytes(), settings.read_text()
    weights.write_bytes(whole[:-100])
    refused(*PREDICT.split(), says="adapter.safetensors is missing, truncated or not the file")
    weights.write_bytes(whole)
    settings.write_text(text.replace('"format_version": 1', '"format_version": 99'))
    refused(*EVALUATE.split(), says="has format_version 99; this version of tf_adapters reads up to 1: upgrade it")


# Encoders


def test_encoder_that_cannot_be_used_is_refused(refused, work):
    for file, damage, says in (
        ("config.json", os.unlink, "holds no config.json, so it is no transformers model"),
        ("model.safetensors", lambda path: os.truncate(path, 5000), "is not a complete safetensors file"),
        ("vocab.txt", os.unlink, "holds no WordPiece vocabulary"),
    ):
        shutil.copytree(work / "encoder", work / "broken[" / "i]", dirs_exist_ok=True)
        damage(work / "broken[" / "i]" / file)
        refused(*TRAIN.split(), "--model=broken[/i]", says=says)
