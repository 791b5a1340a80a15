"""Exported models answer in other runtimes as in TensorFlow: its C API and command line, ONNX Runtime, OpenVINO,
LiteRT."""

import collections
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import randomize, tiny_inputs
from tests.families import FAMILIES, family_inputs, family_model, write_family_checkpoint
from tests.test_bank import TASKS as BANKED
from tests.test_bank import save_task
from tf_adapters import AdapterBank, AdapterConfig, InputError, LoraConfig, WordPiece, add_adapters, load_backbone
from tf_adapters.kinds.scoring import Scorer
from tf_adapters.models.state import state_of
from tf_adapters.serving import convert
from tf_adapters.serving.convert import export_file
from tf_adapters.serving.export import export_saved_model

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples" / "serving"
TEXTS = ["a great film", "", "dull " * 40]
TASKS = {
    "classification": {"kind": "classification"},
    "token-classification": {"kind": "token-classification"},
    "question-answering": {"kind": "question-answering"},
}

HEADS = [
    "classification",
    *(pytest.param(head, marks=pytest.mark.nightly) for head in ("token-classification", "question-answering")),
]


@pytest.fixture(scope="module")
def wordpiece(checkpoint):
    return WordPiece.from_directory(checkpoint, max_length=24)


def adapted(checkpoint, head="classification", **config):
    labels = None if head == "question-answering" else ["x", "y", "z"]
    model = load_backbone(checkpoint, head=head, num_labels=2 if labels is None else 3, labels=labels)
    return randomize(
        add_adapters(model, AdapterConfig(**{"bottleneck_size": 8, "init_stddev": 0.3, **config}), seed=1), scale=0.1
    )


@pytest.fixture(scope="module")
def served(checkpoint, wordpiece, tmp_path_factory):
    model = adapted(checkpoint)
    return model, export_saved_model(model, tmp_path_factory.mktemp("serving") / "1", text=wordpiece)


def outputs_of(model, inputs):
    outputs = model(inputs)
    return {name: outputs[name].numpy() for name in ("logits", "start_logits", "end_logits") if name in outputs}


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_onnx_runtime_computes_the_same_for_any_size(checkpoint, wordpiece, tmp_path, head):
    onnxruntime = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("tf2onnx")
    model = adapted(checkpoint, head)
    path = export_file(model, tmp_path / "model.onnx", format="onnx", text=wordpiece, task=TASKS[head])
    session = onnxruntime.InferenceSession(str(path))
    for batch, length in ((3, 10), (1, 5)):
        inputs = tiny_inputs(batch=batch, length=length)
        expected = outputs_of(model, inputs)
        found = dict(
            zip(expected, session.run(list(expected), {name: value.numpy() for name, value in inputs.items()}))
        )
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, atol=1e-4)
            assert np.abs(found[name] - values).max() < 2e-6
    loaded = onnx.load(str(path))
    about = {entry.key: entry.value for entry in loaded.metadata_props}
    assert json.loads(about["labels"]) == ([] if head == "question-answering" else ["x", "y", "z"])
    assert json.loads(about["text"]) == wordpiece.settings()
    # Four blocks with two LayerNorms, two adapters and a GELU between them each, and the embeddings' LayerNorm.
    operations = collections.Counter(node.op_type for node in loaded.graph.node)
    assert (operations["LayerNormalization"], operations["Gelu"], operations["Erf"]) == (9, 12, 0)
    sizes = {
        value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in loaded.graph.input
    }
    assert sizes == dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), ["batch", "length"])


@pytest.mark.nightly
def test_openvino_reads_onnx_and_computes_new_shapes_right(checkpoint, tmp_path):
    openvino = pytest.importorskip("openvino")
    pytest.importorskip("tf2onnx")
    model = adapted(checkpoint)
    path = export_file(model, tmp_path / "model.onnx", format="onnx")
    bank = AdapterBank(str(checkpoint))
    for seed, (name, values) in enumerate(BANKED.items()):
        bank.add(name, save_task(checkpoint, tmp_path / name, *values, seed=seed))
    many = export_file(bank, tmp_path / "bank.onnx", format="onnx")
    one, several = (
        openvino.compile_model(openvino.Core().read_model(str(file)), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        for file in (path, many)
    )
    for batch, length in ((3, 10), (1, 5), (4, 12), (3, 10), (2, 7)):
        inputs = {name: value.numpy() for name, value in tiny_inputs(batch=batch, length=length).items()}
        np.testing.assert_allclose(one(inputs)["logits"], model(inputs).logits, atol=5e-6)
        places = np.arange(batch, dtype=np.int32)
        expected = bank({**inputs, "task": tf.constant(list(BANKED)[:batch])})
        np.testing.assert_allclose(several({**inputs, "task": places})["logits"], expected["logits"], atol=5e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_has_whole_operations_in_onnx(family, tmp_path):
    onnxruntime, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    write_family_checkpoint(family_model(family), tmp_path / "encoder")
    model = load_backbone(tmp_path / "encoder", num_labels=3)
    add_adapters(model, AdapterConfig(bottleneck_size=8, activation="gelu_tanh", init_stddev=0.3), seed=1)
    randomize(model, scale=0.1)
    path = export_file(model, tmp_path / "model.onnx", format="onnx")
    operations = collections.Counter(node.op_type for node in onnx.load(str(path)).graph.node)
    assert operations["Gelu"] > 2 and operations["LayerNormalization"] > 4
    assert not {"Erf", "Pow", "Reciprocal"} & set(operations)
    inputs = family_inputs(family)
    names = [value.name for value in onnxruntime.InferenceSession(str(path)).get_inputs()]
    found = onnxruntime.InferenceSession(str(path)).run(["logits"], {name: inputs[name].numpy() for name in names})[0]
    np.testing.assert_allclose(found, model(inputs).logits, atol=5e-6)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["onnx", pytest.param("litert", marks=pytest.mark.nightly)])
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_a_bank_in_another_runtime_answers_each_row_by_its_task(checkpoint, tmp_path, format):
    bank = AdapterBank(str(checkpoint))
    for seed, (name, values) in enumerate(BANKED.items()):
        bank.add(name, save_task(checkpoint, tmp_path / name, *values, seed=seed))
    bank.add("gone", tmp_path / "film").remove("gone")
    path = export_file(bank, tmp_path / "bank", format=format)
    inputs = {name: value.numpy() for name, value in tiny_inputs(batch=len(BANKED), length=10).items()}
    names = list(reversed(BANKED))
    expected = bank({**inputs, "task": tf.constant(names)})
    places = np.array([list(BANKED).index(name) for name in names], np.int32)
    if format == "onnx":
        onnxruntime, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
        session = onnxruntime.InferenceSession(str(path))
        logits, outputs = session.run(["logits", "outputs"], {**inputs, "task": places})
        about = {
            entry.key: json.loads(entry.value) for entry in onnx.load(str(path)).metadata_props if entry.key[0] != "b"
        }
        upper = about["tasks"].index("upper")
        assert about["tasks"] == list(BANKED) and about["labels"][upper] == list("abcde")
        assert about["kinds"][upper] == "multi-label"
        with pytest.raises(Exception, match="out of bounds|indices element"):
            session.run(["logits"], {**inputs, "task": places + 1})
    else:
        runner = tf.lite.Interpreter(str(path)).get_signature_runner("serving_default")
        found = runner(**inputs, task=places)
        logits, outputs = found["logits"], found["outputs"]
    np.testing.assert_allclose(logits, expected["logits"], atol=2e-6)
    np.testing.assert_array_equal(outputs, expected["outputs"])
    assert len(set(outputs.tolist())) > 2 and np.abs(logits).max() > 0.01


@pytest.fixture(scope="module")
def int8(checkpoint, tmp_path_factory):
    """A model, and a session of it in eight bits."""
    onnxruntime, _ = pytest.importorskip("onnxruntime"), pytest.importorskip("tf2onnx")
    model = adapted(checkpoint)
    path = export_file(model, tmp_path_factory.mktemp("int8") / "model.onnx", format="onnx", quantize="int8")
    return model, path, onnxruntime.InferenceSession(str(path))


@pytest.mark.slow
def test_products_in_eight_bits_are_near_and_of_each_row_alone(int8):
    onnx = pytest.importorskip("onnx")
    model, path, session = int8
    inputs = {name: value.numpy() for name, value in tiny_inputs(batch=4, length=10).items()}
    (found,), expected = session.run(["logits"], inputs), model(inputs).logits.numpy()
    difference = np.abs(found - expected).max()
    assert 1e-6 < difference < 0.02 * np.abs(expected).max() + 0.01
    for row in range(4):
        (alone,) = session.run(["logits"], {name: value[row : row + 1] for name, value in inputs.items()})
        np.testing.assert_allclose(alone, found[row : row + 1], atol=1e-6)
    graph = onnx.load(str(path)).graph
    operations = collections.Counter(node.op_type for node in graph.node)
    # Four blocks with query, key, value, output and two of the feed-forward part; the rest is as it was.
    assert operations["MatMulInteger"] == 24
    kept = {onnx.numpy_helper.to_array(tensor).tobytes() for tensor in graph.initializer}
    for variable in state_of(model).adapter_variables():
        assert variable.shape.rank != 2 or variable.numpy().tobytes() in kept


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
    for arguments, message in (
        (("--quantize", "int4"), "--quantize int4 is unknown: use one of none, int8"),
        (("--quantize", "int8"), "--quantize int8 is for --format onnx: add it"),
        (("--quantize", "int8", "--format", "onnx"), "was trained on files: give labelled rows by --check FILE"),
        (("--check", tmp_path / "none.csv"), "none.csv"),
        (("--adapters", "--check", rows), "are for one task: leave out --adapters"),
    ):
        done = cli("export", adapter_directory, "--output", tmp_path / "9", *arguments)
        assert done.status == 2 and message in done.err and "Traceback" not in done.err, done.err
        assert not (tmp_path / "9").exists()


def test_a_check_compares_scores_labels_and_logits(checkpoint, wordpiece):
    from tf_adapters.serving.check import check_export
    from tf_adapters.tasks.rows import Rows

    scorer = Scorer(adapted(checkpoint), wordpiece, batch_size=2)
    texts = tf.constant(["a great film", "dull", "the cast", "awful fun"])
    logits = scorer.logits(texts)
    rows = Rows(texts, None, logits.argmax(-1).astype(np.int32))
    same = check_export(scorer, scorer.forward, rows, kind="classification", metric="accuracy")
    assert (same.before, same.after, same.changed, same.largest_difference) == (1.0, 1.0, 0, 0.0)
    turned = check_export(
        scorer, lambda inputs: -scorer.forward(inputs), rows, kind="classification", metric="accuracy"
    )
    assert turned.after == 0.0 and turned.changed == 4 and turned.rows == 4
    np.testing.assert_allclose(turned.largest_difference, 2 * np.abs(logits).max(), rtol=1e-5)
    with pytest.raises(InputError, match="not all of them finite"):
        check_export(
            scorer, lambda inputs: np.nan * scorer.forward(inputs), rows, kind="classification", metric="accuracy"
        )


def test_a_bank_that_no_file_holds_is_refused(checkpoint, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="is an empty bank: add"):
        export_file(AdapterBank(str(checkpoint)), tmp_path / "a", format="onnx")
    bank = AdapterBank(str(checkpoint)).add("film", save_task(checkpoint, tmp_path / "film", *BANKED["film"]))
    monkeypatch.setattr(convert, "_MOST_BYTES", 1000)
    with pytest.raises(InputError, match="take 0.0 GiB, and a file holds 2: make banks of fewer tasks"):
        export_file(bank, tmp_path / "a", format="onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["film"]


@pytest.mark.nightly
def test_lora_takes_nothing_in_a_file_of_another_runtime(checkpoint, tmp_path):
    model = load_backbone(checkpoint, num_labels=3, labels=["x", "y", "z"])
    export_file(model, tmp_path / "plain.tflite", format="litert")
    add_adapters(model, LoraConfig(rank=4), seed=0)
    for number, weight in enumerate(state_of(model).adapter_variables()):
        weight.assign_add(tf.random.stateless_normal(weight.shape, (0, number), stddev=0.2))
    export_file(model, tmp_path / "lora.tflite", format="litert")
    plain, lora = (tf.lite.Interpreter(str(tmp_path / f"{name}.tflite")) for name in ("plain", "lora"))
    operations = [sorted(each["op_name"] for each in interpreter._get_ops_details()) for interpreter in (plain, lora)]
    assert operations[0] == operations[1] and "FULLY_CONNECTED" in operations[0]
    runner, inputs = lora.get_signature_runner("serving_default"), tiny_inputs()
    np.testing.assert_allclose(
        runner(**{name: value.numpy() for name, value in inputs.items()})["logits"], model(inputs).logits, atol=1e-5
    )


@pytest.mark.nightly
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_litert_computes_the_same_for_any_size(checkpoint, tmp_path, head):
    model = adapted(checkpoint, head)
    path = export_file(model, tmp_path / "model.tflite", format="litert", task=TASKS[head])
    runner = tf.lite.Interpreter(str(path)).get_signature_runner("serving_default")
    for batch, length in ((3, 10), (1, 5)):
        inputs = tiny_inputs(batch=batch, length=length)
        found = runner(**{name: value.numpy() for name, value in inputs.items()})
        for name, values in outputs_of(model, inputs).items():
            np.testing.assert_allclose(found[name], values, atol=2e-6)


@pytest.mark.nightly
def test_openvino_computes_the_tokens_signature(served):
    """With fixed sizes: of dynamic ones OpenVINO 2026.4 computes the first request of each shape wrongly."""
    openvino = pytest.importorskip("openvino")
    model, directory = served
    loaded = tf.saved_model.load(str(directory))
    signature = loaded.signatures["tokens"]
    for batch, length in ((3, 10), (1, 5)):
        inputs = tiny_inputs(batch=batch, length=length)
        converted = openvino.convert_model(signature)
        converted.reshape({name: [batch, length] for name in inputs})
        compiled = openvino.compile_model(converted, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        found = compiled({name: value.numpy() for name, value in inputs.items()})
        logits, probabilities = (
            next(value for key, value in found.items() if key.any_name.startswith(name)) for name in ("logits", "prob")
        )
        np.testing.assert_allclose(logits, model(inputs).logits, atol=2e-6)
        np.testing.assert_allclose(probabilities, tf.nn.softmax(model(inputs).logits), atol=2e-6)


def run(*arguments):
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )


@pytest.mark.nightly
def test_the_c_api_answers_texts(served, wordpiece):
    model, directory = served
    done = run(EXAMPLES / "c_api_client.py", directory, *(f"text={text}" for text in TEXTS))
    assert done.returncode == 0, done.stderr[-2000:]
    answer, expected = json.loads(done.stdout), Scorer(model, wordpiece).logits(tf.constant(TEXTS))
    np.testing.assert_allclose(answer["logits"], expected, atol=2e-6)
    assert answer["label"] == ["xyz"[best] for best in expected.argmax(-1)]
    assert "import tensorflow" not in (EXAMPLES / "c_api_client.py").read_text()
    for arguments, message in (
        (("text",), "must be NAME=STRING"),
        (("text=a", "text=b", "task=c"), "given once for each row"),
        (("name=a",), "the inputs of serving_default are text"),
        (("text=a", "--signature", "none"), "the model has"),
    ):
        done = run(EXAMPLES / "c_api_client.py", directory, *arguments)
        assert done.returncode == 2 and message in done.stderr


@pytest.mark.nightly
def test_saved_model_cli_runs_ids_and_texts(served, wordpiece, tmp_path):
    model, directory = served
    # It does not know tensorflow-text's operations by itself.
    code = "import sys, tensorflow_text; from tensorflow.python.tools.saved_model_cli import main; sys.exit(main())"

    def logits(signature, *inputs):
        done = run("-c", code, "run", "--dir", directory, "--tag_set", "serve", "--signature_def", signature, *inputs)
        assert done.returncode == 0, done.stderr[-2000:]
        numbers = done.stdout.split("Result for output key logits:\n")[1].split("Result")[0]
        return np.array(numbers.replace("[", " ").replace("]", " ").split(), float).reshape(-1, 3)

    inputs = tiny_inputs(batch=2, length=4)
    for name, value in inputs.items():
        np.save(tmp_path / f"{name}.npy", value)
    found = logits("tokens", "--inputs", ";".join(f"{name}={tmp_path / name}.npy" for name in inputs))
    np.testing.assert_allclose(found, model(inputs).logits, atol=1e-5)
    found = logits("serving_default", "--input_exprs", 'text=["a great film", "dull"]')
    np.testing.assert_allclose(found, Scorer(model, wordpiece).logits(tf.constant(["a great film", "dull"])), atol=1e-5)


@pytest.mark.slow
def test_a_file_is_written_by_the_command_and_what_cannot_be_is_named(
    cli, adapter_directory, checkpoint, tmp_path, monkeypatch
):
    path = tmp_path / "film.tflite"
    done = cli("export", adapter_directory, "--format", "litert", "--output", path)
    assert done.status == 0 and "ids in, logits out" in done.out and path.stat().st_size > 10_000, done.err
    for arguments, message in (
        (("--format", "litert", "--output", path), "is there already"),
        (("--format", "torch", "--output", tmp_path / "1"), "--format torch is unknown"),
        (
            ("--format", "onnx", "--output", tmp_path / "1", "--storage", "float16"),
            "leave out --storage and --adapter-storage",
        ),
    ):
        done = cli("export", adapter_directory, *arguments)
        assert done.status == 2 and message in done.err and "Traceback" not in done.err
    fast = load_backbone(checkpoint, num_labels=2)
    add_adapters(fast, AdapterConfig(bottleneck_size=8), fast=True)
    with pytest.raises(InputError, match="fast=False"):
        export_file(fast, tmp_path / "a", format="onnx")
    with pytest.raises(InputError, match="format='torch'"):
        export_file(fast, tmp_path / "a", format="torch")
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(InputError, match=r"pip install \"tf_adapters\[onnx\]\""):
        export_file(adapted(checkpoint), tmp_path / "a", format="onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["film.tflite"]


@pytest.mark.nightly
def test_an_operation_without_a_counterpart_is_named(checkpoint, tmp_path, monkeypatch):
    pytest.importorskip("tf2onnx")
    model = adapted(checkpoint)
    real = convert.logits_of_rows
    monkeypatch.setattr(convert, "logits_of_rows", lambda *given: tf.math.betainc(1.0, 1.0, tf.sigmoid(real(*given))))
    with pytest.raises(InputError, match="operations that ONNX lacks: Betainc"):
        export_file(model, tmp_path / "a", format="onnx")
    with pytest.raises(InputError, match=r"operations that LiteRT lacks: tf\.Betainc"):
        export_file(model, tmp_path / "a", format="litert")
    assert not list(tmp_path.iterdir())
