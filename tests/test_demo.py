"""The page of `tf-adapters demo`: its function, its endpoint on loopback, and the page in a browser."""

import importlib.util
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.conftest import is_refused
from tests.test_shared_encoder import KINDS, save_kind
from tf_adapters.cli import demo
from tf_adapters.kinds.kind import NOT_FINITE
from tf_adapters.serving.shared_encoder import SharedTask

needs_gradio = pytest.mark.skipif(
    not importlib.util.find_spec("gradio"), reason="needs Gradio: pip install 'tf_adapters[demo]'"
)
CONTEXT = "Ada \U0001f600 sang, Bob danced."
TYPED = {
    "text": "Ada sang </b>",
    "text_pair": "Bob danced",
    "question": "Who danced?",
    "context": CONTEXT,
    "choices": "and sang\n\n and sang \nand flew",
}
RECORDS = {
    "film": {"label": "<b>good", "probabilities": {"bad": 0.25, "<b>good": 0.75}},
    "tags": {"labels": ["a", "b"], "probabilities": {"a": 0.9, "b": 0.75, "c": 0.125}},
    "score": {"value": 2.5},
    "words": {"words": ["Ada", "sang", "</b>"], "labels": ["B-X", "O", "I-X"], "probabilities": [0.75, 0.5, 0.25]},
    "spans": {
        "id": "0", "answer": "Bob", "probability": 0.75, "start": 12, "end": 15,
        "n_best": [{"answer": "Bob", "probability": 0.75}, {"answer": "Bob", "probability": 0.25}],
    },
    "choice": {"choice": 2, "answer": "and flew", "probabilities": [0.25, 0.125, 0.625]},
}  # fmt: skip


class Recorded:
    """In place of a `SharedEncoder`: gives the records above, and keeps what it was asked."""

    def __init__(self, names=tuple(RECORDS), records=RECORDS):
        self.tasks = {
            name: SharedTask(name, {"task": {"kind": KINDS[name][0], **KINDS[name][2]}}, KINDS[name][0], ())
            for name in names
        }
        self.records, self.asked = records, []

    def answer(self, name, texts, text_pairs=None):
        self.asked.append((name, texts, text_pairs))
        if isinstance(self.records[name], Exception):
            raise self.records[name]
        return [self.records[name]]


def test_each_task_is_asked_with_what_it_reads():
    encoder = Recorded()
    for name, task in encoder.tasks.items():
        fields = demo.fields_of(task)
        assert demo.answer_of(encoder, name, demo.texts_of(fields, [TYPED[field] for field in fields])) == RECORDS[name]
    assert encoder.asked == [
        ("film", ["Ada sang </b>"], None),
        ("tags", ["Ada sang </b>"], None),
        ("score", ["Ada sang </b>"], ["Bob danced"]),
        ("words", ["Ada sang </b>"], None),
        ("spans", ["Who danced?"], [CONTEXT]),
        ("choice", ["Ada sang </b>"], [["and sang", "and sang", "and flew"]]),
    ]


def test_what_is_missing_is_said():
    for fields, given, message in [
        (("question", "context"), (None, " \n"), "Fill in: question, context."),
        (("text", "choices"), ("a", "one\n\n"), "Give at least two choices, one a line."),
    ]:
        is_refused(message, demo.texts_of, fields, given)


def test_answers_are_marked_and_choices_numbered():
    shown = {kind: value_of for kind, (_, value_of) in demo.SHOWN.items()}
    pieces = [("Ada \U0001f600 sang, ", None), ("Bob", "answer"), (" danced.", None)]
    assert shown["question-answering"](RECORDS["spans"], ["", CONTEXT]) == pieces
    words = [("Ada", "B-X"), (" ", None), ("sang", None), (" ", None), ("</b>", "I-X")]
    assert shown["token-classification"](RECORDS["words"], []) == words
    choices = shown["multiple-choice"](RECORDS["choice"], ["", ["and sang", "and sang", "and flew"]])
    assert choices == {"1. and sang": 0.25, "2. and sang": 0.125, "3. and flew": 0.625}


@pytest.mark.slow
@needs_gradio
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_page_answers_for_every_kind():
    from gradio_client import Client

    encoder = Recorded(records={**RECORDS, "tags": {"error": NOT_FINITE}})
    page = demo.build_page(encoder)
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, ssr_mode=False)
    try:
        client = Client(url, verbose=False)
        for number, (name, task) in enumerate(encoder.tasks.items()):
            given, endpoint = [TYPED[field] for field in demo.fields_of(task)], f"/answer{f'_{number}' * (number > 0)}"
            if name == "tags":
                with pytest.raises(Exception, match="No answer: "):
                    client.predict(*given, api_name=endpoint)
            else:
                assert client.predict(*given, api_name=endpoint)[1] == RECORDS[name]
    finally:
        page.close()
    assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"


def test_what_the_command_cannot_do_is_one_sentence_before_anything_is_loaded(
    refused, adapter_directory, tmp_path, monkeypatch
):
    from tf_adapters.serving import shared_encoder

    monkeypatch.setattr(shared_encoder.SharedEncoder, "__init__", lambda *_, **__: pytest.fail("it was loaded"))
    film = adapter_directory
    refused("demo", tmp_path / "none", says="there is no such directory")
    refused("demo", film, film, says="both called 'sentiment'")
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == "gradio" else find(name, *rest))
    refused("demo", film, says='run `pip install "tf_adapters[demo]"`')


@needs_gradio
@pytest.mark.nightly
def test_the_command_serves_what_predict_answers_until_it_is_interrupted(cli, refused, checkpoint, tmp_path):
    from gradio_client import Client

    for seed, name in enumerate(("film", "words")):
        save_kind(checkpoint, tmp_path / name, name, seed=seed)
    given = [sys.executable, "-m", "tf_adapters", "demo", tmp_path / "film", f"names={tmp_path / 'words'}", "--port=0"]
    process = subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        url = re.search(r"http://127.0.0.1:\S+", process.stdout.readline()).group()
        client = Client(url, verbose=False)
        film, names = (client.predict("a great film", api_name=f"/answer{more}")[1] for more in ("", "_1"))
        port = int(url.rstrip("/").rpartition(":")[2])
        says = f"There can be no page at --host 127.0.0.1 --port {port}"
        refused("demo", tmp_path / "film", "--port", port, says=says)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0 and "Traceback" not in process.stderr.read()
    finally:
        process.kill()
    for name, found, key in (("film", film, "probabilities"), ("words", names, "labels")):
        (row,) = cli("predict", tmp_path / name, "--input", "-", stdin=b"a great film\n").rows()
        assert found[key] == row[key]
