"""The client of examples/serving against servers that answer as TensorFlow Serving documents, and its configuration."""

import concurrent.futures
import http.server
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.test_bank import TASKS, save_task
from tf_adapters import AdapterBank, export_bank

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples" / "serving"
TEXTS, NAMES = ["a great film", "dull \u00e9t\u00e9", "the cast"], ["film", "upper", "nobody"]


def load_client():
    spec = importlib.util.spec_from_file_location("client", EXAMPLES / "client.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def served(checkpoint, tmp_path_factory):
    """A function of (signature, inputs) that answers as a server's session, and the bank."""
    folder = tmp_path_factory.mktemp("server")
    bank = AdapterBank(str(checkpoint))
    for seed, name in enumerate(("film", "upper")):
        bank.add(name, save_task(checkpoint, folder / name, *TASKS[name], seed=seed))
    directory = export_bank(bank, folder / "all" / "1")
    graph = tf.Graph()
    with graph.as_default():
        session = tf.compat.v1.Session(graph=graph)
        signatures = tf.compat.v1.saved_model.load(session, ["serve"], str(directory)).signature_def

    def run(name, inputs):
        signature = signatures[name]
        feeds = {signature.inputs[key].name: value for key, value in inputs.items()}
        return session.run({key: info.name for key, info in signature.outputs.items()}, feeds)

    yield run, bank, directory.parent
    session.close()


@pytest.fixture
def rest(served):
    """The address of a server of the REST API's columnar `predict`."""
    run = served[0]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            # A server is there before its model is.
            Handler.asked = getattr(Handler, "asked", 0) + 1
            state = "LOADING" if Handler.asked < 3 or self.path != "/v1/models/all" else "AVAILABLE"
            self.answer(200, {"model_version_status": [{"version": "1", "state": state, "status": {}}]})

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert set(request) == {"signature_name", "inputs"}
            if self.path != "/v1/models/all:predict":
                status, answer = 404, {"error": "Servable not found for request: Latest(other)"}
            else:
                found = run(request["signature_name"], request["inputs"])
                decoded = np.vectorize(lambda value: value.decode(), otypes=[object])
                lists = {
                    name: (decoded(value) if value.dtype == object else value).tolist() for name, value in found.items()
                }
                status, answer = 200, {"outputs": lists}
            self.answer(status, answer)

        def answer(self, status, answer):
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def grpc_server(served):
    """The address of a gRPC server of PredictionService."""
    grpc = pytest.importorskip("grpc")
    apis = pytest.importorskip("tensorflow_serving.apis")
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    assert apis
    run = served[0]

    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            if request.model_spec.name != "all":
                context.abort(grpc.StatusCode.NOT_FOUND, "Servable not found for request: Latest(other)")
            response = predict_pb2.PredictResponse()
            inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
            for name, value in run(request.model_spec.signature_name, inputs).items():
                response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
            return response

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


def check(answers, bank):
    expected = bank.answer(TEXTS, NAMES)
    assert [answer["label"].encode() for answer in answers] == expected["label"].numpy().tolist()
    np.testing.assert_allclose([answer["logits"] for answer in answers], expected["logits"], atol=1e-6)
    np.testing.assert_allclose([answer["probabilities"] for answer in answers], expected["probabilities"], atol=1e-6)
    assert [answer["error"] for answer in answers] == ["", "", "unknown task 'nobody'"]


@pytest.mark.slow
def test_rest(served, rest):
    client = load_client()
    check(client.ask_rest(rest, "all", {"text": TEXTS, "task": NAMES}), served[1])
    assert [row["task"] for row in client.ask_rest(rest, "all", {}, signature="tasks")] == ["film", "upper"]
    with pytest.raises(RuntimeError, match="answered 404.*Servable not found"):
        client.ask_rest(rest, "other", {"text": TEXTS, "task": NAMES})
    with pytest.raises(RuntimeError, match="does not answer"):
        client.ask_rest("http://127.0.0.1:9", "all", {"text": TEXTS, "task": NAMES})


@pytest.mark.slow
def test_a_client_waits_until_the_model_is_available(rest):
    client = load_client()
    client.wait_until_ready(rest, "all", 20)
    with pytest.raises(RuntimeError, match="no version of other that is available after 0.1 s: LOADING"):
        client.wait_until_ready(rest, "other", 0.1)
    with pytest.raises(RuntimeError, match="after 0 s: .*refused"):
        client.wait_until_ready("http://127.0.0.1:9", "all", 0)


def test_a_server_can_answer_the_requests_for_warming_up(served):
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    run, directory = served[0], served[2]
    (version,) = directory.iterdir()
    records = tf.data.TFRecordDataset(str(version / "assets.extra" / "tf_serving_warmup_requests"))
    requests = [logs.PredictionLog.FromString(record.numpy()).predict_log.request for record in records]
    asked = [(request.model_spec.signature_name, tf.make_ndarray(request.inputs["task"]).size) for request in requests]
    assert asked == [("serving_default", 1), ("serving_default", 8), ("tokens", 1), ("tokens", 8)]
    for request in requests:
        assert "text_pair" not in request.inputs
        found = run(
            request.model_spec.signature_name,
            {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()},
        )
        assert set(found["error"].tolist()) == {b""} and np.ptp(found["logits"]) > 0
    # Of several rows each task, and texts as long as may be.
    assert set(tf.make_ndarray(requests[1].inputs["task"]).tolist()) == {b"film", b"upper"}
    assert min(map(len, tf.make_ndarray(requests[1].inputs["text"]).tolist())) > 1000


def test_grpc(served, grpc_server):
    client = load_client()
    check(client.ask_grpc(grpc_server, "all", {"text": TEXTS, "task": NAMES}), served[1])
    with pytest.raises(RuntimeError, match="answered NOT_FOUND: Servable not found"):
        client.ask_grpc(grpc_server, "other", {"text": TEXTS, "task": NAMES})


def test_the_command_prints_one_answer_a_line(rest, served):
    def run(*arguments):
        return subprocess.run(
            [sys.executable, str(EXAMPLES / "client.py"), "--rest", rest, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    done = run("--task", "film", "--task", "upper", "--task", "nobody", *TEXTS)
    assert done.returncode == 0, done.stderr
    check([json.loads(line) for line in done.stdout.splitlines()], served[1])
    assert len(run("--task", "film", *TEXTS).stdout.splitlines()) == 3
    done = run("--task", "film", "--task", "upper", *TEXTS)
    assert done.returncode == 2 and "3 texts and 2 tasks" in done.stderr
    done = run("--model", "other", "--task", "film", "a")
    assert done.returncode == 1 and "answered 404" in done.stderr and "Traceback" not in done.stderr


def test_the_configuration_is_what_the_server_reads():
    pytest.importorskip("tensorflow_serving")
    from google.protobuf import text_format
    from tensorflow_serving.config import model_server_config_pb2

    text = (EXAMPLES / "models.config").read_text()
    (config,) = text_format.Parse(text, model_server_config_pb2.ModelServerConfig()).model_config_list.config
    assert (config.name, config.base_path, config.model_platform) == ("all", "/models/all", "tensorflow")
    assert config.model_version_policy.latest.num_versions == 1


def test_the_batching_parameters_have_the_servers_names():
    lines = (EXAMPLES / "batching_parameters.txt").read_text().splitlines()
    found = dict(
        re.fullmatch(r"(\w+)(?: \{ value: (?:\d+) \}|: true)", line).group(1, 0) for line in lines if line[0] != "#"
    )
    # tensorflow_serving/servables/tensorflow/session_bundle_config.proto
    known = {"max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads"}
    assert set(found) == known | {"pad_variable_length_inputs"}


def test_the_container_file_has_known_instructions_and_its_files_are_there():
    lines = [
        line for line in (EXAMPLES / "Containerfile").read_text().splitlines() if line and not line.startswith("#")
    ]
    instructions = [line.split(" ", 1) for line in lines]
    assert [name for name, _ in instructions] == ["ARG", "FROM", "COPY", "COPY", "EXPOSE", "ENTRYPOINT", "CMD"]
    values = {}
    for name, value in instructions:
        values.setdefault(name, []).append(value)
    first, (*files, target) = (copy.split() for copy in values["COPY"])
    assert first == ["serving", "/models"] and files == ["models.config", "batching_parameters.txt"]
    assert all((EXAMPLES / name).is_file() for name in files)
    command = json.loads(values["ENTRYPOINT"][0]) + json.loads(values["CMD"][0])
    assert all(re.fullmatch(r"--\w+=\S+", option) for option in command[1:])
    for option, name in (("model_config_file", files[0]), ("batching_parameters_file", files[1])):
        assert f"--{option}={target}{name}" in command
    ports = {option.partition("=")[2] for option in command if "port" in option}
    assert ports == set(values["EXPOSE"][0].split())
