"""The example pipeline on Beam's direct runner, against the bank that it serves."""

import importlib.util
import json
import pathlib
import sys

import numpy as np
import pytest

from tests.test_bank import TASKS, save_task
from tf_adapters import AdapterBank, export_bank

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "score_with_beam.py"
ROWS = [
    {"text": text, "task": task}
    for text in ("a great film", "dull \u00e9t\u00e9", "", "the cast " * 9)
    for task in ("film", "upper", "nobody")
]


@pytest.fixture(scope="module")
def example():
    pytest.importorskip("apache_beam")
    spec = importlib.util.spec_from_file_location("score_with_beam", EXAMPLE)
    module = sys.modules["score_with_beam"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def bank(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("beam")
    bank = AdapterBank(str(checkpoint))
    for seed, name in enumerate(("film", "upper")):
        bank.add(name, save_task(checkpoint, folder / name, *TASKS[name], seed=seed))
    export_bank(bank, folder / "all" / "1")
    return bank, folder / "all" / "1"


@pytest.mark.nightly
def test_the_pipeline_answers_every_line_as_the_bank_does(example, bank, tmp_path):
    bank, version = bank
    lines = [json.dumps(row) for row in ROWS] + ["not JSON", '{"text": "no task"}', '{"text": 5, "task": "film"}']
    for part in (0, 1):
        (tmp_path / f"in-{part}.jsonl").write_text("\n".join(lines[part::2]) + "\n", encoding="utf-8")
    # The default runner would look for a binary to download.
    options = ["--runner=BundleBasedDirectRunner", "--batch-size=5"]
    example.main([f"--model={version}", f"--input={tmp_path}/in-*.jsonl", f"--output={tmp_path}/out", *options])
    found = {}
    for path in tmp_path.glob("out-*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            found[row["text"], row["task"]] = row
    assert len(found) == len(ROWS)
    expected = bank.answer([row["text"] for row in ROWS], [row["task"] for row in ROWS])
    for number, row in enumerate(ROWS):
        answer = found[row["text"], row["task"]]
        np.testing.assert_allclose(answer["logits"], expected["logits"][number], atol=1e-6)
        for name in ("label", "error"):
            assert answer[name] == expected[name][number].numpy().decode()
    unreadable = "".join(path.read_text() for path in tmp_path.glob("out-unreadable-*"))
    assert sorted(unreadable.splitlines()) == sorted(lines[len(ROWS) :])
