"""Exported models answer in other runtimes as in TensorFlow: its C API and command line, ONNX Runtime, OpenVINO,
LiteRT."""

import collections
import json
import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.conftest import encoder_of, is_refused, randomize, tiny_inputs
from tests.families import FAMILIES, family_inputs, family_model, write_family_checkpoint
from tests.test_bank import TASKS as BANKED
from tests.test_bank import save_task
from tf_adapters import AdapterBank, AdapterConfig, InputError, LoraConfig, add_adapters, load_backbone
from tf_adapters.kinds.kind import Scorer
from tf_adapters.methods import DoraConfig
from tf_adapters.models.state import state_of
from tf_adapters.serving import convert
from tf_adapters.serving.convert import export_file
from tf_adapters.serving.export import export_saved_model
from tf_adapters.text import WordPiece

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples" / "serving"
TEXTS = ["a great film", "", "dull " * 40]
HEADS = ["classification", "token-classification", "question-answering"]
RUNTIMES = [(format, head) for format in ("onnx", "litert") for head in HEADS]


checkpoint = encoder_of(3)


@pytest.fixture(scope="module")
def wordpiece(checkpoint):
    return WordPiece.from_directory(checkpoint, max_length=24)


def adapted(checkpoint, head="classification", config=AdapterConfig(8, init_stddev=0.3)):
    labels = None if head == "question-answering" else ["x", "y", "z"]
    model = load_backbone(checkpoint, head=head, num_labels=2 if labels is None else 3, labels=labels)
    return randomize(add_adapters(model, config, seed=1), scale=0.1)


@pytest.fixture(scope="module")
def banked(checkpoint, tmp_path_factory):
    """A bank of all kinds of tasks, some of whose rows are free."""
    bank, folder = AdapterBank(str(checkpoint)), tmp_path_factory.mktemp("tasks")
    for seed, (name, values) in enumerate(BANKED.items()):
        bank.add(name, save_task(checkpoint, folder / name, *values, seed=seed))
    return bank.add("gone", folder / "film").remove("gone")


def numpy_inputs(batch, length):
    return {name: value.numpy() for name, value in tiny_inputs(batch=batch, length=length).items()}


def runner_of(path):
    """A function of inputs to a file's outputs by their names."""
    if path.suffix == ".tflite":
        runner = tf.lite.Interpreter(str(path)).get_signature_runner("serving_default")
        return lambda inputs: runner(**inputs)
    session = pytest.importorskip("onnxruntime").InferenceSession(str(path))
    names = [value.name for value in session.get_inputs()]
    outputs = [value.name for value in session.get_outputs()]
    return lambda inputs: dict(zip(outputs, session.run(outputs, {name: np.int64(inputs[name]) for name in names})))


def shapes(values):
    """`(type, *sizes)` by the name of each input or output of an ONNX graph."""
    from onnx import TensorProto

    tensors, kind = {value.name: value.type.tensor_type for value in values}, TensorProto.DataType.Name
    return {
        name: (kind(tensor.elem_type), *(size.dim_param or size.dim_value for size in tensor.shape.dim))
        for name, tensor in tensors.items()
    }


def outputs_of(model, inputs):
    outputs = model(inputs)
    return {name: outputs[name].numpy() for name in ("logits", "start_logits", "end_logits") if name in outputs}


@pytest.mark.slow
@pytest.mark.parametrize("format, head", nightly_but([("onnx", "classification")], RUNTIMES))
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_another_runtime_computes_the_same_for_any_size(checkpoint, wordpiece, tmp_path, format, head):
    pytest.importorskip("tf2onnx")
    model, task = adapted(checkpoint, head), {"kind": head}
    path = tmp_path / {"onnx": "model.onnx", "litert": "model.tflite"}[format]
    run = runner_of(export_file(model, path, format=format, text=wordpiece, task=task))
    for batch, length in ((3, 10), (1, 5)):
        inputs = numpy_inputs(batch, length)
        found = run(inputs)
        for name, values in outputs_of(model, inputs).items():
            np.testing.assert_allclose(found[name], values, atol=2e-6)
    if format == "onnx":
        loaded = pytest.importorskip("onnx").load(str(path))
        about = {entry.key: json.loads(entry.value) for entry in loaded.metadata_props if entry.key[0] != "b"}
        assert about["labels"] == ([] if head == "question-answering" else ["x", "y", "z"])
        assert about["text"] == wordpiece.settings() and about["task"] == task
        # Three blocks with two LayerNorms, two adapters and a GELU between them each, and the embeddings' LayerNorm.
        operations = collections.Counter(node.op_type for node in loaded.graph.node)
        assert (operations["LayerNormalization"], operations["Gelu"], operations["Erf"]) == (7, 9, 0)
        ids = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), ("INT64", "batch", "length"))
        assert shapes(loaded.graph.input) == ids


@pytest.mark.nightly
def test_openvino_reads_onnx_and_computes_new_shapes_right(checkpoint, banked, tmp_path):
    openvino = pytest.importorskip("openvino")
    pytest.importorskip("tf2onnx")
    model = adapted(checkpoint)
    one, several = (
        openvino.compile_model(openvino.Core().read_model(str(file)), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        for file in (
            export_file(model, tmp_path / "model.onnx", format="onnx"),
            export_file(banked, tmp_path / "bank.onnx", format="onnx"),
        )
    )
    for batch, length in ((3, 10), (1, 5), (4, 12), (3, 10), (2, 7)):
        inputs = numpy_inputs(batch, length)
        ids = {name: np.int64(values) for name, values in inputs.items()}
        np.testing.assert_allclose(one(ids)["logits"], model(inputs).logits, atol=5e-6)
        expected = banked({**inputs, "task": tf.constant(list(BANKED)[:batch])})
        np.testing.assert_allclose(several({**ids, "task": np.arange(batch)})["logits"], expected["logits"], atol=5e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_has_whole_operations_in_onnx(family, tmp_path):
    onnx = pytest.importorskip("onnx")
    write_family_checkpoint(family_model(family), tmp_path / "encoder")
    model = load_backbone(tmp_path / "encoder", num_labels=3)
    add_adapters(model, AdapterConfig(bottleneck_size=8, activation="gelu_tanh", init_stddev=0.3), seed=1)
    randomize(model, scale=0.1)
    path = export_file(model, tmp_path / "model.onnx", format="onnx")
    operations = collections.Counter(node.op_type for node in onnx.load(str(path)).graph.node)
    assert operations["Gelu"] > 2 and operations["LayerNormalization"] > 4
    assert not {"Erf", "Pow", "Reciprocal"} & set(operations)
    inputs = family_inputs(family)
    found = runner_of(path)({name: value.numpy() for name, value in inputs.items()})["logits"]
    np.testing.assert_allclose(found, model(inputs).logits, atol=5e-6)


def test_a_reshape_in_onnx_copies_sizes_of_what_it_is_given_in_tensorflow():
    runtime = [pytest.importorskip(package) for package in ("tf2onnx", "onnxscript", "onnxruntime")][-1]
    kernel = np.arange(64, dtype=np.float32).reshape(8, 8)

    @tf.function(input_signature=[tf.TensorSpec([None, None, 8], name="x")], autograph=False)
    def heads(x):
        product = tf.tensordot(x, kernel, 1)
        sizes = tf.shape(product)
        return {"y": tf.reshape(product, [sizes[0], sizes[1], 2, 4]) * 2.0}

    session = runtime.InferenceSession(convert._onnx(heads, heads.input_signature, {}, "none", []))
    x = np.ones((2, 3, 8), np.float32)
    np.testing.assert_array_equal(session.run(["y"], {"x": x})[0], heads(x)["y"])


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["onnx", pytest.param("tflite", marks=pytest.mark.nightly)])
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_a_bank_in_another_runtime_answers_each_row_by_its_task(banked, tmp_path, suffix):
    format = "onnx" if suffix == "onnx" else "litert"
    run = runner_of(export_file(banked, tmp_path / f"bank.{suffix}", format=format))
    inputs, names = numpy_inputs(len(BANKED), 10), list(reversed(BANKED))
    expected = banked({**inputs, "task": tf.constant(names)})
    places = np.array([list(BANKED).index(name) for name in names], np.int32)
    found = run({**inputs, "task": places})
    np.testing.assert_allclose(found["logits"], expected["logits"], atol=2e-6)
    np.testing.assert_array_equal(found["outputs"], expected["outputs"])
    assert len(set(found["outputs"].tolist())) > 2 and np.abs(found["logits"]).max() > 0.01
    if format == "onnx":
        loaded = pytest.importorskip("onnx").load(str(tmp_path / "bank.onnx"))
        ids = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), ("INT64", "batch", "length"))
        assert shapes(loaded.graph.input) == {**ids, "task": ("INT64", "batch")}
        assert shapes(loaded.graph.output) == {"logits": ("FLOAT", "batch", 8), "outputs": ("INT32", "batch")}
        # Of each row its own, with the same statistics.
        operations = collections.Counter(node.op_type for node in loaded.graph.node)
        assert (operations["LayerNormalization"], operations["Gelu"], operations["Sqrt"]) == (7, 9, 0)
        about = {entry.key: json.loads(entry.value) for entry in loaded.metadata_props if entry.key[0] != "b"}
        upper = about["tasks"].index("upper")
        assert about["tasks"] == list(BANKED) and about["labels"][upper] == list("abcde")
        assert about["kinds"][upper] == "multi-label"
        assert about["value_range"] == [value[2].get("value_range") for value in BANKED.values()]
        with pytest.raises(Exception, match="out of bounds|indices element"):
            run({**inputs, "task": places + 1})


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [AdapterConfig(8), AdapterConfig(8, scaling=3.0), LoraConfig(2, alpha=6), DoraConfig(2, alpha=6)]
)
def test_products_in_eight_bits_are_near_and_of_each_row_alone(config, checkpoint, tmp_path):
    onnx = pytest.importorskip("onnx")
    model = adapted(checkpoint, config=config)
    path = export_file(model, tmp_path / "model.onnx", format="onnx", quantize="int8")
    run, inputs = runner_of(path), numpy_inputs(4, 10)
    found, expected = run(inputs)["logits"], model(inputs).logits.numpy()
    assert 1e-6 < np.abs(found - expected).max() < 0.02 * np.abs(expected).max() + 0.01
    for row in range(4):
        alone = run({name: value[row : row + 1] for name, value in inputs.items()})["logits"]
        np.testing.assert_allclose(alone, found[row : row + 1], atol=1e-6)
    graph = onnx.load(str(path)).graph
    # Three blocks with query, key, value, output and two of the feed-forward part; the rest is as it was.
    assert collections.Counter(node.op_type for node in graph.node)["MatMulInteger"] == 18
    kept = {onnx.numpy_helper.to_array(tensor).tobytes() for tensor in graph.initializer}
    for variable in state_of(model).adapter_variables():
        scaled = variable.numpy() * np.float32(config.alpha / config.rank if "/b:" in variable.name else 1)
        assert variable.shape.rank != 2 or scaled.tobytes() in kept


def test_a_product_in_eight_bits_by_hand():
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    from tf_adapters.serving.onnx_graph import in_integers

    x = np.array([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0], [100.0, 1.0, 0.4]], np.float32)
    w = np.array([[1.0, 10.0], [2.0, -5.0], [-4.0, 0.0]], np.float32)
    make, kind = onnx.helper.make_node, onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [make("MatMul", ["x", "w"], ["y"])], "one", [onnx.helper.make_tensor_value_info("x", kind, [3, 3])],
        [onnx.helper.make_tensor_value_info("y", kind, [3, 2])], [onnx.numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    opset = [onnx.helper.make_opsetid("", 20)]
    model, count = in_integers(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), [])
    (found,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    rows, columns = np.array([[2], [1e-18], [100]]) / 127, np.array([[4, 10]]) / 127
    expected = (np.round(x / rows) * rows) @ (np.round(w / columns) * columns)
    assert count == 1 and np.abs(found[0] - x[0] @ w).max() > 1e-3
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    model, count = in_integers(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), [w])
    assert count == 0


@pytest.mark.nightly
def test_an_export_is_checked_on_labelled_rows(cli, adapter_directory, sentences, tmp_path):
    rows = sentences / "validation.csv"
    for format, name, more in (
        ("onnx", "a.onnx", ("--quantize", "int8")), ("onnx", "b.onnx", ()), ("litert", "c.tflite", ()),
        ("saved-model", "1", ()), ("saved-model", "2", ("--storage", "bfloat16")),
    ):  # fmt: skip
        done = cli("export", adapter_directory, "--format", format, "--output", tmp_path / name, "--check", rows, *more)
        assert done.status == 0 and "labels are others; logits are at most" in done.out, done.err
        assert ("Checked on" in done.out) and "validation.csv" in done.out


@pytest.mark.slow
def test_the_command_writes_a_file_and_says_of_eight_bits_that_nothing_measured_them(cli, adapter_directory, tmp_path):
    for path, format, said in (
        (tmp_path / "film.tflite", ["litert"], "ids in, logits out"),
        (
            tmp_path / "film.onnx",
            ["onnx", "--quantize", "int8"],
            "loses was not measured: give labelled rows by --check",
        ),
    ):
        done = cli("export", adapter_directory, "--output", path, "--format", *format)
        assert done.status == 0 and said in done.out and path.stat().st_size > 10_000, done.err


def test_a_named_task_without_its_data_is_exported_unmeasured(adapter_directory, monkeypatch, tmp_path):
    from tf_adapters.cli.export import _rows_to_check
    from tf_adapters.saving import settings

    def missing(*args, **options):
        raise InputError("It is not there.")

    monkeypatch.setattr("tf_adapters.pipeline.labelled_rows", missing)
    known = settings.read_settings(adapter_directory)
    monkeypatch.setattr(settings, "read_settings", lambda directory: {**known, "task": {"name": "glue/sst2"}})
    assert _rows_to_check(adapter_directory, None, "int8", None) is None
    is_refused("not there", _rows_to_check, adapter_directory, None, "int8", tmp_path)


def test_a_check_compares_scores_labels_and_logits(checkpoint, wordpiece):
    from tf_adapters.serving.convert import check_export
    from tf_adapters.tasks.rows import Rows

    scorer = Scorer(adapted(checkpoint), wordpiece, batch_size=2)
    texts = tf.constant(["a great film", "dull", "the cast", "awful fun"])
    logits = scorer.logits(texts)
    rows = Rows(texts, None, logits.argmax(-1).astype(np.int32))
    same = check_export(scorer, scorer.forward, rows, kind="classification", metric="accuracy")
    assert (same.before, same.after, same.changed, same.largest_difference) == (1.0, 1.0, 0, 0.0)
    how, threads = dict(kind="classification", metric="accuracy"), set()

    def run(inputs):  # LiteRT's is not for several threads, and logits are compared in the order of their batches
        threads.add(threading.current_thread())
        return scorer.forward(inputs)

    assert check_export(scorer, run, rows, **how).largest_difference == 0.0
    assert threads == {threading.current_thread()}
    turned = check_export(scorer, lambda inputs: -scorer.forward(inputs), rows, **how)
    assert turned.after == 0.0 and turned.changed == 4 and turned.rows == 4
    np.testing.assert_allclose(turned.largest_difference, 2 * np.abs(logits).max(), rtol=1e-5)
    with pytest.raises(InputError, match="not all of them finite"):
        check_export(scorer, lambda inputs: np.nan * scorer.forward(inputs), rows, **how)


@pytest.mark.nightly
def test_the_c_api_answers_texts(checkpoint, wordpiece, tmp_path):
    model = adapted(checkpoint)
    directory = export_saved_model(model, tmp_path / "1", text=wordpiece)

    def run(*arguments):
        environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
        command = [sys.executable, EXAMPLES / "c_api_client.py", directory, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)

    done = run(*(f"text={text}" for text in TEXTS))
    assert done.returncode == 0, done.stderr[-2000:]
    answer, expected = json.loads(done.stdout), Scorer(model, wordpiece).logits(tf.constant(TEXTS))
    np.testing.assert_allclose(answer["logits"], expected, atol=2e-6)
    assert answer["label"] == ["xyz"[best] for best in expected.argmax(-1)]
    assert "import tensorflow" not in (EXAMPLES / "c_api_client.py").read_text()
    done = run("text=a", "text=b", "task=c")
    assert done.returncode == 2 and "given once for each row" in done.stderr


def test_what_no_file_can_hold_is_named(refused, adapter_directory, checkpoint, tmp_path, monkeypatch):
    (tmp_path / "there").touch()
    onnx, new, there = ("--format", "onnx"), ("--output", tmp_path / "1"), ("--output", tmp_path / "there")
    for arguments, message in (
        ((*onnx, *there), "is there already"),
        (("--format", "torch", *new), "--format torch is unknown"),
        ((*onnx, *new, "--storage", "float16"), "leave out --storage and --adapter-storage"),
        (("--quantize", "int4", *new), "--quantize int4 is unknown: use one of none, int8"),
        (("--quantize", "int8", *new), "--quantize int8 is for --format onnx: add it"),
        (("--check", tmp_path / "none.csv", "--text-column=a", *new), "none.csv"),
        (("--adapters", "--check", tmp_path / "there", *new), "are for one task: leave out --adapters"),
    ):
        refused("export", adapter_directory, *arguments, says=message)
    fast = add_adapters(load_backbone(checkpoint, num_labels=2), AdapterConfig(bottleneck_size=8), fast=True)
    bank = AdapterBank(str(checkpoint)).add("film", save_task(checkpoint, tmp_path / "film", *BANKED["film"]))
    monkeypatch.setattr(convert, "_MOST_BYTES", 1000)
    file = tmp_path / "a"
    is_refused("fast=False", export_file, fast, file, format="onnx")
    is_refused("format='torch'", export_file, fast, file, format="torch")
    is_refused("is an empty bank: add", export_file, AdapterBank(str(checkpoint)), file, format="onnx")
    is_refused("take 0.0 GiB, and a file holds 2: make banks of fewer tasks", export_file, bank, file, format="onnx")
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(InputError, match=r"pip install \"tf_adapters\[onnx\]\""):
        export_file(load_backbone(checkpoint), tmp_path / "a", format="onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["film", "there"]


@pytest.mark.nightly
def test_an_operation_without_a_counterpart_is_named(checkpoint, tmp_path, monkeypatch):
    pytest.importorskip("tf2onnx")
    model = adapted(checkpoint)
    door, real = state_of(model).door, state_of(model).door.logits_of_rows
    monkeypatch.setattr(door, "logits_of_rows", lambda *given: tf.math.betainc(1.0, 1.0, tf.sigmoid(real(*given))))
    is_refused("operations that ONNX lacks: Betainc", export_file, model, tmp_path / "a", format="onnx")
    is_refused(r"operations that LiteRT lacks: tf\.Betainc", export_file, model, tmp_path / "a", format="litert")
    assert not list(tmp_path.iterdir())
