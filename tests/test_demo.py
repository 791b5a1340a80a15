"""The page of `tf-adapters demo`: its function, its endpoint on loopback, and the page in a browser."""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request

import numpy as np
import pytest

from tests.test_shared_encoder import KINDS, save_kind
from tf_adapters.cli import demo_page
from tf_adapters.errors import InputError
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
    for name in encoder.tasks:
        assert demo_page.answer_of(encoder, name, TYPED) == RECORDS[name]
    assert encoder.asked == [
        ("film", ["Ada sang </b>"], None),
        ("tags", ["Ada sang </b>"], None),
        ("score", ["Ada sang </b>"], ["Bob danced"]),
        ("words", ["Ada sang </b>"], None),
        ("spans", ["Who danced?"], [CONTEXT]),
        ("choice", ["Ada sang </b>"], [["and sang", "and sang", "and flew"]]),
    ]


def test_what_cannot_be_answered_is_said_and_not_raised():
    encoder = Recorded(records={**RECORDS, "film": InputError("The text is of no use: give another.")})
    for name, given, message in (
        ("film", {"text": " \n"}, "Fill in: text."),
        ("score", {"text": "a"}, "Fill in: second text."),
        ("spans", {"question": None, "context": ""}, "Fill in: question, context."),
        ("choice", {**TYPED, "choices": "one\n\n"}, "Give at least two choices, one a line."),
        ("film", {"text": "a \ud800 b"}, "The text holds half of a surrogate pair, which is no character: remove it."),
    ):
        assert demo_page.answer_of(encoder, name, given) == {"error": message}
    assert not encoder.asked
    assert demo_page.answer_of(encoder, "film", TYPED) == {"error": "The text is of no use: give another."}


def test_the_answer_is_marked_in_the_context_by_characters():
    (pieces, best) = demo_page.DISPLAYS["question-answering"][1](RECORDS["spans"], TYPED)
    assert pieces == [("Ada \U0001f600 sang, ", None), ("Bob", "answer"), (" danced.", None)]
    assert best == [["Bob", 0.75], ["Bob", 0.25]]
    whole = {**RECORDS["spans"], "start": 0, "end": len(CONTEXT)}
    assert demo_page.DISPLAYS["question-answering"][1](whole, TYPED)[0] == [(CONTEXT, "answer")]


def test_words_without_a_name_are_not_highlighted():
    (pieces, table) = demo_page.DISPLAYS["token-classification"][1](RECORDS["words"], TYPED)
    assert pieces == [("Ada", "B-X"), (" ", None), ("sang", None), (" ", None), ("</b>", "I-X")]
    assert table == [["Ada", "B-X", 0.75], ["sang", "O", 0.5], ["</b>", "I-X", 0.25]]


@contextlib.contextmanager
def served(page):
    """The URL of a page on a free port of loopback, served by a thread."""
    with demo_page.listen("127.0.0.1", 0) as listener:
        server = demo_page.server_of(page)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield demo_page.address_of(listener, "127.0.0.1")
        finally:
            server.should_exit = True
            thread.join(20)


def client_of(url):
    from gradio_client import Client

    return Client(url, verbose=False)


def values(outputs):
    """What is visible of an endpoint's outputs, which are values or updates of components."""
    plain = [one if isinstance(one, dict) and "__type__" in one else {"value": one} for one in outputs]
    return [one.get("value") for one in plain if one.get("visible", True) and "value" in one]


@pytest.mark.slow
@needs_gradio
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_endpoint_answers_on_loopback_with_every_kind_and_the_page_names_no_other_place():
    broken = {"labels": None, "probabilities": dict.fromkeys("abc"), "error": NOT_FINITE}
    encoder = Recorded(records={**RECORDS, "tags": broken})
    with served(demo_page.build_page(encoder)) as url:
        with urllib.request.urlopen(url) as response:
            policy, html = response.headers["content-security-policy"], response.read().decode()
        client = client_of(url)
        outputs = client.predict(list(RECORDS), *(TYPED[field] for field in demo_page.FIELDS), api_name="/answer")
        nothing = client.predict([], *(TYPED[field] for field in demo_page.FIELDS), api_name="/answer")
    text = json.dumps(outputs)
    assert '"label": "<b>good"' in text and f"No answer: {NOT_FINITE}" in text and '"value": "2.5000"' in text
    assert '"token": "Bob", "class_or_confidence": "answer"' in text
    assert [asked for asked, *_ in encoder.asked] == list(RECORDS)
    assert values(nothing) == []
    assert "default-src 'self'" in policy and "http" not in policy
    # What a browser would load by itself: scripts, styles, fonts, pictures.
    loaded = re.findall(r"<(?:script|link|img)\b[^>]*?(?:src|href)=\"(https?:[^\"]*)\"", html)
    assert [address for address in loaded if not address.startswith(url)] == []
    assert "fonts.googleapis" not in html and '"analytics_enabled":false' in html.replace(" ", "")
    assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"


def refused(cli, *arguments):
    outcome = cli("demo", *arguments)
    assert outcome.status == 2 and not outcome.out and "Traceback" not in outcome.err
    assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
    return outcome.err


def write_settings(directory, **changes):
    """A directory that has settings and nothing that could be loaded."""
    backbone = {
        "source": "minilm", "model_type": "bert", "hidden_size": 32, "num_hidden_layers": 4, "sha256": "0",
        "weights_saved": False,
    }  # fmt: skip
    settings = {
        "format_version": 1, "adapter": {}, "trainable": "adapters", "recipe": None, "task": None, "metrics": None,
        "text": {"max_length": 8}, "training": None,
        "head": {"type": "classification", "layers": 1, "num_labels": 2, "labels": None, "pooler": False},
        "parameters": dict.fromkeys(("total", "trained", "adapter", "layer_norm", "head", "backbone"), 1),
        "weights": {"sha256": "0"}, **changes,
    }  # fmt: skip
    settings["backbone"] = {**backbone, **changes.get("backbone", {})}
    directory.mkdir()
    (directory / "tf_adapters.json").write_text(json.dumps(settings))
    return directory


def test_what_the_command_cannot_do_is_one_sentence_before_anything_is_loaded(cli, tmp_path, monkeypatch):
    from tf_adapters.serving import shared_encoder

    monkeypatch.setattr(shared_encoder.SharedEncoder, "__init__", lambda *_, **__: pytest.fail("it was loaded"))
    film, large = write_settings(tmp_path / "film"), write_settings(tmp_path / "large", backbone={"hidden_size": 64})
    texts = write_settings(tmp_path / "texts", task={"kind": "masked-lm"})
    silent = write_settings(tmp_path / "silent", text=None)
    assert "there is no such directory" in refused(cli, tmp_path / "none")
    assert "holds no tf_adapters.json" in refused(cli, tmp_path)
    assert "was trained on another encoder (minilm)" in refused(cli, film, large)
    assert "knows no task yet" in refused(cli, texts)
    assert "without text settings" in refused(cli, silent)
    assert "both called 'film'" in refused(cli, film, film)
    assert "--port 65536 must be an integer of at" in refused(cli, film, "--port", 65536)
    find = importlib.util.find_spec
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == "gradio" else find(name, *rest))
        assert 'run `pip install "tf_adapters[demo]"`' in refused(cli, film)


@needs_gradio
def test_a_port_that_is_taken_and_a_host_that_is_elsewhere_are_said_before_anything_is_loaded(cli, tmp_path):
    film = write_settings(tmp_path / "film")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"--port {port} of 127.0.0.1 is taken: give another, or 0" in refused(cli, film, "--port", port)
    assert "--host 192.0.2.1 is no address of this machine" in refused(cli, film, "--host", "192.0.2.1", "--port", 0)
    assert "--host no.such.host.invalid is no address" in refused(cli, film, "--host", "no.such.host.invalid")


@contextlib.contextmanager
def command(*arguments):
    """The URL that `tf-adapters demo` prints, and its process; it ends by Ctrl-C."""
    given = [sys.executable, "-m", "tf_adapters", "demo", *map(str, arguments), "--port", "0"]
    with subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert "http" in line, process.stderr.read()
            yield re.search(r"http://\S+", line).group(), process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            finally:
                process.kill()


@pytest.fixture(scope="module")
def trained(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    for seed, name in enumerate(("film", "words", "spans")):
        save_kind(checkpoint, folder / name, name, seed=seed)
    return folder


def spread(folder, name):
    """Lets the weights of a saved directory be so large that its logits are not finite."""
    from safetensors.numpy import load_file, save_file

    from tf_adapters.saving.stored_weights import sha256_of

    weights, path = folder / name / "adapter.safetensors", folder / name / "tf_adapters.json"
    arrays = load_file(weights)
    save_file({key: np.full_like(value, 3e38) if "head" in key else value for key, value in arrays.items()}, weights)
    settings = json.loads(path.read_text())
    settings["weights"]["sha256"] = sha256_of(weights)
    path.write_text(json.dumps(settings))


@needs_gradio
@pytest.mark.nightly
def test_the_command_serves_what_predict_answers_until_it_is_interrupted(cli, trained, tmp_path):
    shutil.copytree(trained / "film", tmp_path / "broken")
    spread(tmp_path, "broken")
    directories = [trained / "film", f"names={trained / 'words'}", trained / "spans", tmp_path / "broken"]
    with command(*directories) as (url, process):
        assert url.startswith("http://127.0.0.1:")
        client = client_of(url)
        everything = ["film", "names", "spans", "broken"]
        outputs = json.dumps(client.predict(everything, "a great film", "what", "it was dull", api_name="/answer"))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""
    rows = cli("predict", trained / "film", "--input", "-", stdin=b"a great film\n").rows()
    words = cli("predict", trained / "words", "--input", "-", stdin=b"a great film\n").rows()
    for label, value in rows[0]["probabilities"].items():
        found = re.search(rf'"label": "{label}", "confidence": ([\d.e-]+)', outputs).group(1)
        assert float(found) == pytest.approx(value, abs=1e-5)
    assert json.dumps([["a", words[0]["labels"][0], round(words[0]["probabilities"][0], 4)]])[1:-1] in outputs
    assert outputs.count(f"No answer: {NOT_FINITE}") == 1


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium, by Playwright: its own, or the system's."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
    system = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_api.sync_playwright() as playwright:
        if system is None and not os.path.exists(playwright.chromium.executable_path):
            pytest.skip("needs a browser: apt install chromium, or playwright install chromium")
        browser = playwright.chromium.launch(executable_path=system, args=["--no-sandbox"])
        yield browser
        browser.close()


@needs_gradio
@pytest.mark.nightly
@pytest.mark.parametrize("size", [(1280, 900), (390, 844)], ids=["desktop", "phone"])
def test_the_page_in_a_browser_shows_answers_and_asks_no_other_machine(browser, size):
    from playwright import sync_api

    broken = {"value": None, "error": NOT_FINITE}
    encoder = Recorded(records={**RECORDS, "score": broken})
    elsewhere, problems = [], []
    with served(demo_page.build_page(encoder)) as url:
        page = browser.new_page(viewport=dict(zip(("width", "height"), size)))
        page.on("request", lambda request: elsewhere.append(request.url) if is_elsewhere(request.url, url) else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(url)
        for field, text in TYPED.items():
            page.locator(f"#field-{field} textarea, #field-{field} input").first.fill(text)
        # On a busy machine a click may come before the page's own code listens.
        for _ in range(6):
            page.locator("#answer").click()
            with contextlib.suppress(sync_api.TimeoutError):
                page.get_by_text("75%").first.wait_for(timeout=10_000)
                break
        shown = page.inner_text("body")
        assert "<b>good" in shown and "75%" in shown and "B-X" in shown
        assert page.locator(".row-error:visible textarea, .row-error:visible input").first.input_value() == (
            f"No answer: {NOT_FINITE}"
        )
        marked = page.locator(".token.highlighted", has_text="Bob").first
        assert marked.is_visible() and "answer" in marked.inner_text().lower()
        assert page.locator(".token.highlighted").all_inner_texts()[:2] == ["Ada", "</b>"]
        if "SCREENS" in os.environ:
            page.screenshot(path=os.path.join(os.environ["SCREENS"], f"demo-{size[0]}.png"), full_page=True)
        # Whoever asks one adapter sees its fields and its answer alone.
        for name in RECORDS:
            if name != "film":
                page.get_by_label(name, exact=True).first.uncheck()
        page.locator("#field-question").wait_for(state="hidden")
        assert page.locator("#field-text").is_visible()
        page.locator("#answer").click()
        page.get_by_text("B-X").first.wait_for(state="hidden")
        assert encoder.asked[-1] == ("film", [TYPED["text"]], None)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.close()
    assert elsewhere == [] and problems == []


def is_elsewhere(address, url):
    return not address.startswith((url, "data:", "blob:"))
