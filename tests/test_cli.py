"""The command line on a tiny encoder: what each command writes, prints and returns."""

import csv
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

SCRIPT = os.path.join(os.path.dirname(sys.executable), "tf-adapters")


def read_jsonl(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def shell(command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


# Help and installation


@pytest.mark.parametrize(
    "command", ["train", "tune", "evaluate", "predict", "demo", "info", "tasks", "submit", "export"]
)
def test_help_shows_an_example_of_the_command(cli, command):
    outcome = cli(command, "--help")
    assert outcome.status == 0
    assert f"tf-adapters {command} " in outcome.out.replace("Usage: tf-adapters", "")


def test_no_command_lists_the_commands(cli):
    assert all(
        command in cli().out for command in ("train", "evaluate", "predict", "info", "tasks", "submit", "export")
    )


def test_version_is_the_package_s(cli):
    import tf_adapters

    assert cli("--version").out == f"tf-adapters {tf_adapters.__version__}\n"


def test_defaults_in_the_help_are_those_of_the_default_recipe(cli):
    from tf_adapters.recipes import RECIPES

    help_text = re.sub(r"[│\s]+", " ", cli("train", "--help").out)
    recipe = RECIPES["default"]
    found = re.findall(r"Without a recipe ([\d.e-]+)\. ", help_text)
    assert [float(number) for number in found] == [
        recipe.max_length,
        recipe.adapter.bottleneck_size,
        recipe.adapter.init_stddev,
        recipe.epochs,
        recipe.learning_rate,
        recipe.batch_size,
        recipe.dropout,
    ]
    for name in RECIPES:
        assert name in help_text
    panels = ("Data", "Adapter", "LoRA", "Training", "Memory and speed", "Loss and regularisers", "Run")
    assert all(f"─ {panel} ─" in help_text for panel in panels)


def test_importing_the_package_imports_nothing_heavy():
    heavy = (
        "tensorflow tf_keras keras transformers tensorflow_text tensorflow_datasets sklearn scipy typer rich".split()
    )
    code = f"import sys, tf_adapters; print([name for name in {heavy} if name in sys.modules])"
    assert shell([sys.executable, "-c", code]).stdout == "[]\n"


@pytest.mark.nightly
def test_the_package_is_the_command_line_too():
    outcome = shell([sys.executable, "-m", "tf_adapters", "--version"])
    assert (outcome.returncode, outcome.stderr) == (0, "") and outcome.stdout.startswith("tf-adapters ")
    outcome = shell([sys.executable, "-m", "tf_adapters", "info", "no/such/directory/here"])
    assert outcome.returncode == 2 and outcome.stderr.startswith("error: ")


def test_command_line_with_transformers_5_says_what_to_install(tmp_path):
    metadata = tmp_path / "transformers-5.1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: transformers\nVersion: 5.1.0\n")
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    result = shell([SCRIPT, "info", "minilm"], env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
    assert result.returncode == 2
    assert result.stderr == (
        "error: tf_adapters needs the TensorFlow classes of transformers 4, and transformers 5.1.0 has none: "
        "run `pip install 'transformers>=4.48,<5'`.\n"
    )


@pytest.mark.parametrize(
    "hidden, message",
    [
        ("tf_keras", "run `pip install tf-keras` in the version of your TensorFlow"),
        ("transformers", "run `pip install 'transformers>=4.48,<5'`"),
    ],
)
def test_missing_package_is_one_sentence_at_import_and_at_the_command_line(hidden, message):
    code = f"""
import importlib.metadata, importlib.util, sys
find_spec, version = importlib.util.find_spec, importlib.metadata.version
importlib.util.find_spec = lambda name, *rest: None if name in ({hidden!r}, "keras_hub") else find_spec(name, *rest)
def hide(name):
    if name == {hidden!r}:
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)
importlib.metadata.version = hide
sys.argv[0] = sys.argv[1]
import tf_adapters
"""
    outcome = shell([sys.executable, "-c", code, "script.py"])
    assert outcome.returncode == 1 and message in outcome.stderr.splitlines()[-1]
    assert "PackageError: tf_adapters needs " in outcome.stderr.splitlines()[-1]
    outcome = shell(
        [
            sys.executable,
            "-c",
            f"{code}from tf_adapters.cli.main import entry_point\nentry_point()",
            "/usr/bin/tf-adapters",
        ]
    )
    assert outcome.returncode == 2 and message in outcome.stderr
    assert outcome.stderr.startswith("error: ") and outcome.stderr.count("\n") == 1


def test_pairs_and_single_texts_are_not_mixed_up(cli, adapter_directory, sentences, tmp_path):
    arguments = ("predict", adapter_directory, "--input", sentences / "test.csv", "--output", tmp_path / "o.jsonl")
    outcome = cli(*arguments, "--text-pair-column", "label")
    assert outcome.status == 2 and "was trained on single texts" in outcome.err
    copy = tmp_path / "pairs"
    shutil.copytree(adapter_directory, copy)
    settings = json.loads((copy / "tf_adapters.json").read_text())
    settings["task"]["text_pairs"] = True
    (copy / "tf_adapters.json").write_text(json.dumps(settings))
    for command in ("predict", "evaluate"):
        outcome = cli(command, copy, "--input", sentences / "test.csv")
        assert outcome.status == 2 and "give the second by --text-pair-column" in outcome.err


# Training


def test_train_writes_an_adapter_directory_and_reports_the_test_rows(cli, train_arguments, tmp_path):
    output = tmp_path / "adapters" / "mine"
    arguments = [argument for argument in train_arguments if not argument.startswith("--adapter-size")]
    outcome = cli(*arguments, "--output", output, "--trainable", "head")
    assert outcome.status == 0 and outcome.err == ""
    names = {path.name for path in output.iterdir()} - {"learning-curve.png"}  # which needs Matplotlib
    assert names == {"README.md", "adapter.safetensors", "log.csv", "tf_adapters.json"}
    # 32 x 2 weights and 2 biases of the classifier
    assert "Training 66 of " in outcome.out and "test accuracy" in outcome.out
    assert [row["epoch"] for row in read_csv(output / "log.csv")] == ["1", "2"]
    settings = json.loads((output / "tf_adapters.json").read_text())
    assert settings["trainable"] == "head" and settings["adapter"] is None
    assert settings["head"]["labels"] == ["negative", "positive"]


@pytest.mark.slow
def test_options_override_the_recipe(cli, train_arguments, tmp_path):
    options = "--recipe report-3-shared --epochs 1 --adapter-size 3 --sharing 2 --blocks 0-1 --activation tanh"
    options = [*options.split(), "--placement", "ffn"]
    assert cli(*train_arguments, *options, "--max-train-rows", 40, "--output", tmp_path / "a").status == 0
    settings = json.loads((tmp_path / "a" / "tf_adapters.json").read_text())
    assert settings["recipe"] == "report-3-shared"
    adapter = settings["adapter"]
    assert (adapter["bottleneck_size"], adapter["sharing"], adapter["activation"]) == (3, 2, "tanh")
    assert (adapter["blocks"], adapter["placement"], adapter["train_layer_norm"]) == ([0, 1], "ffn", "none")
    # one adapter of 2 x 3 x 32 + 32 + 3
    assert settings["parameters"]["adapter"] == 227


@pytest.mark.slow
def test_interrupted_run_refuses_other_options_and_resumes_to_the_same_bytes(
    cli, train_arguments, adapter_directory, tmp_path, monkeypatch
):
    from tf_adapters.cli.progress import TrainingProgress

    def interrupt(self, done, numbers):
        if done == 7:  # in the second epoch of five steps
            os.kill(os.getpid(), signal.SIGINT)

    output = tmp_path / "a"
    with monkeypatch.context() as patch:
        patch.setattr(TrainingProgress, "step", interrupt)
        outcome = cli(*train_arguments, "--output", output)
    assert outcome.status == 130
    assert "Stopped after step 7" in outcome.out and "the same command and --resume" in outcome.out

    before = contents(output)
    refused = cli(*train_arguments, "--output", output, "--resume", "--learning-rate", "0.5")
    assert refused.status == 2 and "a run with another --learning-rate (0.001, now 0.5)" in refused.err
    refused = cli(*train_arguments, "--output", output)
    assert refused.status == 2 and "go on with it by --resume, or replace it by --overwrite" in refused.err
    assert contents(output) == before

    resumed = cli(*train_arguments, "--output", output, "--resume")
    assert resumed.status == 0 and "Resuming after step 7 of 10" in resumed.out
    for name in ("adapter.safetensors", "log.csv"):
        assert (output / name).read_bytes() == (adapter_directory / name).read_bytes()
    assert not (output / ".resume").exists()


def contents(directory):
    """All files below a directory, with their bytes."""
    return {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_overwritten_adapter_stays_until_the_new_one_has_an_epoch(
    cli, train_arguments, adapter_directory, tmp_path, monkeypatch
):
    import shutil

    from tf_adapters.cli.progress import TrainingProgress

    output = tmp_path / "a"
    shutil.copytree(adapter_directory, output)
    kept = (output / "adapter.safetensors").read_bytes()
    monkeypatch.setattr(TrainingProgress, "step", lambda self, done, numbers: os.kill(os.getpid(), signal.SIGTERM))
    assert cli(*train_arguments, "--output", output, "--overwrite", "--seed", "5").status == 130
    assert (output / "adapter.safetensors").read_bytes() == kept
    assert "not finished" in cli("info", output).out


# Use


def test_evaluate_agrees_with_the_predicted_labels(cli, adapter_directory, sentences, tmp_path):
    test = sentences / "test.csv"
    outcome = cli("evaluate", adapter_directory, "--input", test, "--output", tmp_path / "numbers.json")
    assert outcome.status == 0 and outcome.err == ""
    predicted = [row["label"] for row in cli("predict", adapter_directory, "--input", test).rows()]
    truth = [row["label"] for row in read_csv(test)]
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert numbers["metrics"]["accuracy"] == np.mean([a == b for a, b in zip(predicted, truth)])
    assert numbers["rows"] == 40 and f"{numbers['metrics']['accuracy']:.4f}" in outcome.out


@pytest.mark.nightly
def test_every_input_format_gives_the_same_predictions_in_order(cli, adapter_directory, sentences, tmp_path):
    texts = [row["text"] for row in read_csv(sentences / "test.csv")]
    (tmp_path / "t.txt").write_text("".join(text + "\n" for text in texts))
    (tmp_path / "t.tsv").write_text("text\tid\n" + "".join(f"{text}\t{i}\n" for i, text in enumerate(texts)))
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress((sentences / "test.csv").read_bytes()))
    (tmp_path / "t.data").write_bytes((sentences / "test.csv").read_bytes())
    expected = cli("predict", adapter_directory, "--input", sentences / "test.csv").rows()
    assert len(expected) == 40
    for row in expected:
        assert list(row) == ["label", "probabilities"] and list(row["probabilities"]) == ["negative", "positive"]
        assert row["label"] == max(row["probabilities"], key=row["probabilities"].get)
        assert sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-6)
    for name, options in (
        ("t.txt", []),
        ("t.tsv", []),
        ("t.jsonl", ["--text-column", "body"]),
        ("t.csv.gz", []),
        ("t.data", ["--format", "csv"]),
    ):
        assert cli("predict", adapter_directory, "--input", tmp_path / name, *options).rows() == expected, name
    piped = cli("predict", adapter_directory, "--input", "-", stdin=(tmp_path / "t.txt").read_bytes())
    assert piped.rows() == expected and piped.err == ""

    for name in ("p.jsonl", "p.csv"):
        assert cli("predict", adapter_directory, "--input", tmp_path / "t.txt", "--output", tmp_path / name).out == ""
    assert read_jsonl(tmp_path / "p.jsonl") == expected
    assert [
        {"label": row["label"], "probabilities": {k: float(row[f"probability_{k}"]) for k in ("negative", "positive")}}
        for row in read_csv(tmp_path / "p.csv")
    ] == expected


def test_predict_holds_one_chunk_at_a_time_and_keeps_the_order(cli, adapter_directory, tmp_path, monkeypatch):
    from tf_adapters.cli import predict
    from tf_adapters.tasks import files, readers

    (tmp_path / "t.txt").write_text("".join(f"the film {'is ' * (i % 7)}{i}\n" for i in range(50)))
    whole = cli("predict", adapter_directory, "--input", tmp_path / "t.txt").rows()
    read, ahead, read_chunks, load = [], [], files.read_chunks, predict._label_by_one

    def counted(*arguments, **options):
        for chunk in read_chunks(*arguments, **options):
            read.append(len(chunk))
            yield chunk

    def watched(*arguments):
        label = load(*arguments)

        def watched_label(*arguments):
            ahead.append(len(read))
            return label(*arguments)

        return watched_label

    monkeypatch.setattr(predict, "CHUNK_ROWS", 8)
    monkeypatch.setattr(readers, "read_chunks", counted)
    monkeypatch.setattr(predict, "_label_by_one", watched)
    chunked = cli("predict", adapter_directory, "--input", tmp_path / "t.txt").rows()
    assert ahead == [1, 2, 3, 4, 5, 6, 7] and read == [8] * 6 + [2]
    assert [row["label"] for row in chunked] == [row["label"] for row in whole]
    # Padding differs between the two, hence rounding of float32.
    np.testing.assert_allclose(
        [row["probabilities"]["positive"] for row in chunked],
        [row["probabilities"]["positive"] for row in whole],
        atol=1e-6,
    )


def test_predict_reads_the_first_rows_before_it_loads_the_model(cli, adapter_directory, tmp_path):
    (tmp_path / "t.csv").write_text("body\nx\n")
    outcome = cli("predict", adapter_directory, "--model", tmp_path / "no encoder", "--input", tmp_path / "t.csv")
    assert outcome.status == 2 and "has no column 'text'" in outcome.err


@pytest.mark.slow
def test_regression_on_pairs_runs_from_files_to_values(cli, train_arguments, tmp_path):
    rows = "".join(f"the film {i},a story {i % 3},{i / 10}\n" for i in range(24))
    (tmp_path / "pairs.csv").write_text("first,second,score\n" + rows)
    columns = ["--text-column", "first", "--text-pair-column", "second"]
    model = train_arguments[1]
    outcome = cli(
        "train", model, "--train", tmp_path / "pairs.csv", "--validation", tmp_path / "pairs.csv", *columns,
        "--label-column", "score", "--kind", "regression", "--epochs", "1", "--max-length", "32",
        "--output", tmp_path / "a",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    assert "validation pearson spearman" in outcome.out and "--text-pair-column" in outcome.out
    outcome = cli("evaluate", tmp_path / "a", "--input", tmp_path / "pairs.csv", *columns, "--label-column", "score")
    assert outcome.status == 0 and "mse" in outcome.out
    predicted = cli("predict", tmp_path / "a", "--input", tmp_path / "pairs.csv", *columns).rows()
    assert [list(row) for row in predicted] == [["value"]] * 24
    assert all(isinstance(row["value"], float) for row in predicted)
    cli("predict", tmp_path / "a", "--input", tmp_path / "pairs.csv", *columns, "--output", tmp_path / "p.csv")
    assert [float(row["value"]) for row in read_csv(tmp_path / "p.csv")] == [row["value"] for row in predicted]
    # The columns are those of training where others are not named.
    outcome = cli("predict", tmp_path / "a", "--input", tmp_path / "pairs.csv", "--text-column", "first")
    assert outcome.rows() == predicted
    assert outcome.err.endswith("pairs.csv is read as the training file: --text-pair-column second\n")
    (tmp_path / "single.csv").write_text("text\na film\n")
    assert "has no column 'first'" in cli("predict", tmp_path / "a", "--input", tmp_path / "single.csv").err


@pytest.mark.slow
def test_multi_label_run_in_half_precision_keeps_the_names_of_labels_as_they_are(
    cli, train_arguments, tmp_path, float32_policy
):
    names = ["[/b]", "a, b", 'so-called "fun"', "naïve ☃", ":ok:", "LABEL_7"]
    rows = [{"text": f"the film {i}", "label": [names[i % 6], names[(i + 1) % 6]][: 1 + i % 2]} for i in range(24)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = train_arguments[1]
    outcome = cli(
        "train", model, "--train", tmp_path / "t.jsonl", "--validation", tmp_path / "t.jsonl", "--kind", "multi-label",
        "--epochs", "1", "--max-length", "32", "--precision", "mixed_float16", "--output", tmp_path / "a[/i]",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    float32_policy("float32")
    assert all(name in outcome.out for name in names) and "a[/i]" in outcome.out
    assert all(name in cli("info", tmp_path / "a[/i]").out for name in names)
    predicted = cli("predict", tmp_path / "a[/i]", "--input", tmp_path / "t.jsonl").rows()
    for row in predicted:
        assert list(row["probabilities"]) == sorted(names)
        assert row["labels"] == [name for name, value in row["probabilities"].items() if value > 0.5]
    cli("predict", tmp_path / "a[/i]", "--input", tmp_path / "t.jsonl", "--output", tmp_path / "p.csv")
    for found, row in zip(read_csv(tmp_path / "p.csv"), predicted):
        assert found["labels"] == "|".join(row["labels"])
        assert float(found['probability_so-called "fun"']) == row["probabilities"]['so-called "fun"']


# Info


def test_info_of_a_configuration_counts_what_each_recipe_trains(cli, checkpoint, tmp_path):
    (tmp_path / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    found = json.loads(cli("info", tmp_path, "--json", "--adapter-size", "5").out)
    recipes = {row["recipe"]: row for row in found["recipes"]}
    one = 2 * 5 * 32 + 32 + 5
    assert recipes["houlsby-2019"]["adapter"] == 8 * one
    assert recipes["houlsby-2019"]["layer_norm"] == (2 * 4 + 1) * 64
    assert recipes["report-3-shared"]["trained"] == 2 * one
    assert recipes["report-unshared"]["head"] == 32 * 32 + 32
    assert recipes["hu-2022"]["adapter"] == 4 * 8 * 2 * (32 + 32) and recipes["hu-2022"]["layer_norm"] == 0
    assert recipes["liu-2022"]["adapter"] == 4 * (32 + 32 + 64)
    table = cli("info", tmp_path).out
    assert f"{8 * (2 * 64 * 32 + 32 + 64):,}" in table
    # Those of the same numbers share a row.
    lines = [line.split() for line in table.splitlines() if line.strip().startswith(("default", "houlsby"))]
    assert [len(words) for words in lines] == [9, 1, 1, 1] and lines[3] == ["houlsby-code-2019"]


def test_info_of_a_model_fits_80_columns(cli, tmp_path, checkpoint, monkeypatch):
    base = dict(
        hidden_size=768, num_hidden_layers=12, intermediate_size=3072, vocab_size=30522, max_position_embeddings=512
    )
    config = {**json.loads((checkpoint / "config.json").read_text()), **base}
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("COLUMNS", "80")
    table = cli("info", tmp_path).out
    assert "…" not in table and "1,189,632" in table and "3,006,720" in table
    assert max(map(len, table.splitlines()[1:])) <= 80


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
        result = subprocess.run(
            [SCRIPT, "predict", adapter_directory, "--input", "-"],
            input=b"a film\n",
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert result.returncode == 2
    assert result.stderr == b"error: the standard output cannot be written: No space left on device.\n"


@pytest.mark.nightly
def test_predict_needs_the_same_memory_for_ten_times_the_rows(adapter_directory, tmp_path):
    code = (
        "import resource, sys; from tf_adapters.cli.main import main; status = main(sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss); sys.exit(status)"
    )
    peaks = []
    for rows in (5_000, 50_000):
        (tmp_path / "t.txt").write_text("the film is not that good but the story was great fun and awful\n" * rows)
        output = tmp_path / f"{rows}.jsonl"
        command = [
            sys.executable,
            "-c",
            code,
            "predict",
            adapter_directory,
            "--input",
            tmp_path / "t.txt",
            "--output",
            output,
        ]
        result = shell(list(map(str, command)))
        assert result.returncode == 0, result.stderr
        peaks.append(int(result.stdout) / 1024)
        assert sum(1 for _ in open(output)) == rows
    assert peaks[1] - peaks[0] < 40  # MiB; the texts and probabilities of 45,000 rows held at once are more


@pytest.mark.nightly
def test_fast_trains_the_same_task_and_is_for_adapters(cli, train_arguments, tmp_path):
    outcome = cli(*train_arguments, "--fast", f"--output={tmp_path / 'a'}")
    assert outcome.status == 0 and (tmp_path / "a" / "adapter.safetensors").exists()
    found = re.search(r"Tracing and compiling took about (\d+) s of (\d+) s", outcome.out + outcome.err)
    assert 0 < int(found[1]) <= int(found[2])
    outcome = cli(*train_arguments[:-2], "--fast", "--trainable=head", f"--output={tmp_path / 'b'}")
    assert outcome.status == 2 and "--fast is for adapters, and --trainable head trains none" in outcome.err


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--fast"], ["--fast", "--precision=mixed_bfloat16"]])
def test_fast_scoring_gives_the_same_up_to_rounding(cli, adapter_directory, sentences, float32_policy, options):
    predict = ["predict", adapter_directory, "--input", sentences / "test.csv"]
    plain, fast = cli(*predict).rows(), cli(*predict, *options).rows()
    tolerance = 1e-5 if len(options) == 1 else 0.05
    for one, other in zip(plain, fast, strict=True):
        assert abs(one["probabilities"]["positive"] - other["probabilities"]["positive"]) < tolerance
    outcome = cli("evaluate", adapter_directory, "--input", sentences / "test.csv", *options)
    assert outcome.status == 0
    assert "--precision half is unknown" in cli(*predict, "--precision", "half").err
