"""Exported models answer in other runtimes as in TensorFlow: its C API and command line, ONNX Runtime, OpenVINO,
LiteRT."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import randomize, tiny_inputs
from tf_adapters import AdapterConfig, InputError, LoraConfig, WordPiece, add_adapters, load_backbone
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
    *(pytest.param(head, marks=pytest.mark.slow) for head in ("token-classification", "question-answering")),
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
    about = {entry.key: entry.value for entry in onnx.load(str(path)).metadata_props}
    assert json.loads(about["labels"]) == ([] if head == "question-answering" else ["x", "y", "z"])
    assert json.loads(about["text"]) == wordpiece.settings()


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
            "leave out --adapters and --storage",
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


@pytest.mark.slow
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
