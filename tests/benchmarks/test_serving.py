"""serving.py: which answers are right while tasks change, how requests are counted, and its smallest run."""

import http.server
import importlib.util
import json
import threading
import time

import pytest

from benchmarks.peers.serving import Generations, load, summary
from tests.benchmarks.support import run_script
from tests.conftest import write_checkpoint

EXPECTED = {"old": {"a": [0.25, 0.75]}, "new": {"a": [0.5, 0.5]}}


def answered(*probabilities, error=None):
    named = {str(number): value for number, value in enumerate(probabilities)}
    return {"answers": [{"error": error} if error else {"label": "0", "probabilities": named}]}


def test_an_answer_is_right_by_what_was_there_while_its_request_was_under_way():
    generations, rows = Generations(EXPECTED, {"film": "old"}), [("film", "a")]
    old, new, gone = answered(0.25, 0.75), answered(0.5, 0.5), answered(error="there is no task 'film'")

    def right(found, began):
        return not generations.wrong(rows, 200, found, began, time.monotonic())

    first = time.monotonic()
    assert right(old, first) and not right(new, first) and not right(gone, first)
    with generations.change(film="new"):
        assert right(old, time.monotonic()) and right(new, time.monotonic())
    after = time.monotonic()
    assert right(new, after) and not right(old, after)
    assert right(old, first)
    with generations.change(film=None):
        assert right(gone, time.monotonic()) and right(new, time.monotonic())
    after = time.monotonic()
    assert right(gone, after) and not right(new, after) and not right(answered(error="other"), after)
    # A task that never was, an answer too few, another status.
    assert not generations.wrong([("none", "a")], 200, gone, first, after)
    assert not right({"answers": []}, after) and generations.wrong(rows, 500, old, first, first)


def test_requests_are_counted_and_each_answer_is_looked_at():
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            content = json.dumps(answered(*EXPECTED[body["task"][0]]["a"])).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    generations, left = Generations(EXPECTED, {"old": "old", "new": "old"}), iter(range(12))
    tasks = iter(["old", "new"] * 6)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        seconds, whole, wrong = load(
            server.server_port, 3, lambda: next(left, None) is not None, lambda source: [(next(tasks), "a")],
            generations.wrong,
        )  # fmt: skip
        server.shutdown()
    assert len(seconds) == 12 and max(seconds) <= whole
    assert [row[:2] for row in wrong] == [("new", "a")] * 6


def test_percentiles_are_the_shortest_time_within_which_so_many_were_answered():
    found = summary([number / 1000 for number in range(100, 0, -1)], 2.0)
    assert found == pytest.approx({"requests_per_second": 50, "p50_ms": 50, "p95_ms": 95, "p99_ms": 99})
    assert summary([0.003], 1.0)["p99_ms"] == 3


@pytest.mark.nightly
@pytest.mark.timeout(1500)
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra serve")
def test_the_smallest_run_asks_a_bank_and_single_deployments(tmp_path):
    write_checkpoint(tmp_path, num_hidden_layers=2)
    done = run_script("serving", "--smoke", "--model", str(tmp_path), "--arms", "bank", "separate", "--bottleneck", "4")
    assert done.returncode == 0, done.stderr
    lines = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| a ")]
    assert [(line[0], line[2], line[-1]) for line in lines] == [
        (f"| {name}", clients, "0 |")
        for name in ("a bank of all tasks", "a deployment for each task")
        for clients in ("1", "2")
    ]
    assert "of which 0 were answered wrongly" in done.stdout
