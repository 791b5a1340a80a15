"""The client of examples/serving against servers that answer as TensorFlow Serving documents, and its configuration."""

import concurrent.futures
import importlib.util
import io
import json
import pathlib
import re
import urllib.error

import pytest

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples" / "serving"
ROWS = {"text": ["a great film", "dull \u00e9t\u00e9", "the cast"], "task": ["film", "upper", "nobody"]}
ROWS["text_pair"] = [""] * 3
ANSWERS = [
    {"label": "a \u00e9", "probabilities": [0.25, 0.75], "error": ""},
    {"label": "", "probabilities": [0.5, 0.0], "error": ""},
    {"label": "", "probabilities": [0.0, 0.0], "error": "unknown task 'nobody'"},
]
MISSING = "Servable not found for request: Latest(other)"


def served(model, signature, inputs):
    """What a server's session gives, or None of a model that there is not."""
    if model != "all":
        return None
    assert signature == "serving_default" and inputs == ROWS
    return {name: [answer[name] for answer in ANSWERS] for name in ANSWERS[0]}


@pytest.fixture
def client(monkeypatch):
    """The example, whose requests over REST meet the columnar `predict` of a server at http://server."""
    spec = importlib.util.spec_from_file_location("client", EXAMPLES / "client.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    asked = []

    def urlopen(request, timeout):
        url = request if isinstance(request, str) else request.full_url
        server, model, verb = re.fullmatch(r"(http://\w+)/v1/models/(\w+)(:predict)?", url).groups()
        if server != "http://server":
            raise urllib.error.URLError("Connection refused")
        if verb is None:
            # A server is there before its model is.
            asked.append(model)
            state = "LOADING" if len(asked) < 3 or model != "all" else "AVAILABLE"
            found = {"model_version_status": [{"version": "1", "state": state, "status": {}}]}
        else:
            body = json.loads(request.data)
            assert request.get_method() == "POST" and set(body) == {"signature_name", "inputs"}
            if lacks := sorted(ROWS.keys() - body["inputs"]):
                sentence = f"Missing named input: {lacks[0]} in 'inputs' object."
                raise urllib.error.HTTPError(url, 400, "Bad Request", {}, io.BytesIO(sentence.encode()))
            found = {"outputs": served(model, body["signature_name"], body["inputs"])}
            if found["outputs"] is None:
                raise urllib.error.HTTPError(url, 404, "Not Found", {}, io.BytesIO(MISSING.encode()))
        return io.BytesIO(json.dumps(found).encode())

    monkeypatch.setattr(module.urllib.request, "urlopen", urlopen)
    return module


@pytest.fixture
def grpc_server():
    """The address of a gRPC server of PredictionService."""
    grpc = pytest.importorskip("grpc")
    pytest.importorskip("tensorflow_serving.apis")
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            arrays = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
            inputs = {name: [text.decode() for text in array] for name, array in arrays.items()}
            found = served(request.model_spec.name, request.model_spec.signature_name, inputs)
            if found is None:
                context.abort(grpc.StatusCode.NOT_FOUND, MISSING)
            response = predict_pb2.PredictResponse()
            for name, value in found.items():
                response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
            return response

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


def test_rest(client):
    assert client.ask_rest("http://server", "all", ROWS) == ANSWERS
    for server, model, inputs, message in (
        ("http://server", "other", ROWS, "answered 404.*Servable not found"),
        ("http://server", "all", {"text": ["a"], "task": ["film"]}, "answered 400: Missing named input: text_pair"),
        ("http://nobody", "all", ROWS, "does not answer"),
    ):
        with pytest.raises(RuntimeError, match=message):
            client.ask_rest(server, model, inputs)


def test_a_client_waits_until_the_model_is_available(client):
    client.wait_until_ready("http://server", "all", 20)
    with pytest.raises(RuntimeError, match="no version of other that is available after 0.1 s: LOADING"):
        client.wait_until_ready("http://server", "other", 0.1)
    with pytest.raises(RuntimeError, match="after 0 s: .*refused"):
        client.wait_until_ready("http://nobody", "all", 0)


def test_grpc(client, grpc_server):
    assert client.ask_grpc(grpc_server, "all", ROWS) == ANSWERS
    with pytest.raises(RuntimeError, match="answered NOT_FOUND: Servable not found"):
        client.ask_grpc(grpc_server, "other", ROWS)


def test_the_command_prints_one_answer_a_line(client, monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["client.py", "--rest", "http://server", *arguments])
        client.main()
        return capsys.readouterr().out.splitlines()

    lines = run("--task", "film", "--task", "upper", "--task", "nobody", *ROWS["text"])
    assert [json.loads(line) for line in lines] == ANSWERS
    with pytest.raises(SystemExit, match="2"):
        run("--task", "film", "--task", "upper", *ROWS["text"])
    assert "3 texts and 2 tasks" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="answered 404"):
        run("--model", "other", "--task", "film", "a")


def test_the_configuration_is_what_the_server_reads():
    pytest.importorskip("tensorflow_serving")
    from google.protobuf import text_format
    from tensorflow_serving.config import model_server_config_pb2

    text = (EXAMPLES / "models.config").read_text()
    (config,) = text_format.Parse(text, model_server_config_pb2.ModelServerConfig()).model_config_list.config
    assert (config.name, config.base_path, config.model_platform) == ("all", "/models/all", "tensorflow")


def test_the_container_file_has_files_that_are_there_and_ports_that_are_open():
    lines = (EXAMPLES / "Containerfile").read_text().splitlines()
    instructions = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    assert [name for name, _ in instructions] == ["ARG", "FROM", "COPY", "COPY", "EXPOSE", "ENTRYPOINT", "CMD"]
    first, (*files, target) = (value.split() for name, value in instructions if name == "COPY")
    values = dict(instructions)
    assert first == ["serving", "/models"] and files == ["models.config"]
    assert all((EXAMPLES / name).is_file() for name in files)
    command = json.loads(values["ENTRYPOINT"]) + json.loads(values["CMD"])
    assert f"--model_config_file={target}" in command
    assert {"--enable_batching=true", "--enable_per_model_batching_parameters=true"} < set(command)
    assert {option.partition("=")[2] for option in command if "port" in option} == set(values["EXPOSE"].split())
