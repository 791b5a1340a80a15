"""Ask a TensorFlow Serving server for the answers of several tasks at once, over REST or gRPC.

    python examples/serving/client.py --task film "a quiet film" --task spam "win a prize now"
    python examples/serving/client.py --grpc localhost:8500 --task film "a quiet film"
    python examples/serving/client.py --wait 60 --task film "a quiet film"

REST needs Python alone; gRPC needs `pip install tensorflow-serving-api`. The model is one that
`tf-adapters export --adapters` wrote; of a single task on texts, leave out --task.
"""

import argparse
import json
import sys
import time
import urllib.error
import urllib.request

SECONDS = 30


def ask_rest(server, model, inputs, signature="serving_default"):
    """The answers of a server over REST.

    Args:
        server: str, `"http://localhost:8501"`.
        model: str, its name on the server.
        inputs: dict from input to a list with one string a row.
        signature: str.

    Returns: list of one dict a row.
    """
    body = json.dumps({"signature_name": signature, "inputs": inputs}).encode()
    request = urllib.request.Request(
        f"{server.rstrip('/')}/v1/models/{model}:predict", data=body, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            outputs = json.load(response)["outputs"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{server} answered {error.code}: {error.read().decode(errors='replace')}") from None
    except OSError as error:
        raise RuntimeError(f"{server} does not answer: {error}") from None
    if not isinstance(outputs, dict):  # a signature of one output
        outputs = {"output": outputs}
    return [dict(zip(outputs, row)) for row in zip(*outputs.values())]


def wait_until_ready(server, model, seconds):
    """Wait until a server says over REST that a version of the model is available: its warm-up requests are answered.

    Args:
        server, model: as of `ask_rest`.
        seconds: float, after which a RuntimeError says what the server said last.
    """
    end, said = time.monotonic() + seconds, "nothing"
    while True:
        try:
            with urllib.request.urlopen(f"{server.rstrip('/')}/v1/models/{model}", timeout=SECONDS) as response:
                states = [status["state"] for status in json.load(response)["model_version_status"]]
        except urllib.error.HTTPError as error:
            states, said = [], f"{error.code}: {error.read().decode(errors='replace')}"
        except OSError as error:
            states, said = [], str(error)
        if "AVAILABLE" in states:
            return
        said = ", ".join(states) or said
        if time.monotonic() >= end:
            raise RuntimeError(f"{server} has no version of {model} that is available after {seconds:g} s: {said}")
        time.sleep(0.2)


def ask_grpc(server, model, inputs, signature="serving_default"):
    """The same over gRPC; `server` is `"localhost:8500"`."""
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    for name, strings in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(strings, tf.string))
    with grpc.insecure_channel(server) as channel:
        try:
            response = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=SECONDS)
        except grpc.RpcError as error:
            raise RuntimeError(f"{server} answered {error.code().name}: {error.details()}") from None
    outputs = {name: tf.make_ndarray(tensor).tolist() for name, tensor in response.outputs.items()}
    rows = [dict(zip(outputs, row)) for row in zip(*outputs.values())]
    return [{name: _decoded(value) for name, value in row.items()} for row in rows]


def _decoded(value):
    if isinstance(value, list):
        return [_decoded(entry) for entry in value]
    return value.decode() if isinstance(value, bytes) else value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+", metavar="TEXT")
    parser.add_argument(
        "--task", action="append", default=[], help="of a text: once for each, in their order, or once for all"
    )
    parser.add_argument("--rest", default="http://localhost:8501", metavar="URL")
    parser.add_argument("--grpc", metavar="HOST:PORT", help="ask over gRPC instead")
    parser.add_argument("--model", default="all", help="its name on the server")
    parser.add_argument(
        "--wait", type=float, metavar="SECONDS", help="first wait over REST until the model is available"
    )
    options = parser.parse_args()
    inputs = {"text": options.texts}
    if options.task:
        tasks = options.task * len(options.texts) if len(options.task) == 1 else options.task
        if len(tasks) != len(options.texts):
            parser.error(
                f"{len(options.texts)} texts and {len(options.task)} tasks: give --task once, or once for each text."
            )
        inputs |= {"task": tasks, "text_pair": [""] * len(tasks)}  # REST wants every input of a bank
    try:
        if options.wait is not None:
            wait_until_ready(options.rest, options.model, options.wait)
        answers = (
            ask_grpc(options.grpc, options.model, inputs)
            if options.grpc
            else ask_rest(options.rest, options.model, inputs)
        )
    except RuntimeError as error:
        sys.exit(str(error))
    for answer in answers:
        print(json.dumps(answer, ensure_ascii=False))


if __name__ == "__main__":
    main()
