"""What the texts name is there."""

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]


def test_the_tests_that_the_docs_name_are_there():
    text = (ROOT / "docs" / "robustness.md").read_text(encoding="utf-8")
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    names, files = set(re.findall(r"`(test_\w+)`", text)), set(re.findall(r"`(test_\w+\.py)`", text))
    assert len(names) > 20 and [name for name in names if f"def {name}(" not in tests] == []
    assert files and [file for file in files if not (ROOT / "tests" / file).exists()] == []


def test_times_of_the_doors_are_those_of_the_results():
    text, folder = (ROOT / "docs" / "keras-hub.md").read_text(encoding="utf-8"), ROOT / "benchmarks" / "results"
    shown = {
        "first door": "adapters", "first door, fast": "fast", "KerasHub, TensorFlow": "tensorflow-hub-adapters",
        "KerasHub, TensorFlow, fast": "tensorflow-hub-fast", "KerasHub, TensorFlow, XLA": "tensorflow-jit-hub-adapters",
        "KerasHub, JAX": "jax-hub-adapters", "KerasHub, PyTorch": "torch-hub-adapters",
        "`adapters` on PyTorch": "torch-adapters",
    }  # fmt: skip
    names = [f"{batches}-{precision}" for batches in ("short", "t128") for precision in ("float32", "mixed_bfloat16")]
    results = [json.loads((folder / f"minilm-{name}-doors-2026-11-25.json").read_text("utf-8")) for name in names]
    for title, arm in shown.items():
        times = (f"{result['arms'][arm]['step_ms']['median']:,.0f}" for result in results)
        assert f"| {title} | {' | '.join(times)} |\n" in text
    # What is said below: as quick as the first door.
    for result in results:
        fast, first = (result["arms"][arm]["step_ms"]["median"] for arm in ("tensorflow-hub-fast", "fast"))
        assert fast < 1.1 * first


def test_every_recorded_study_is_linked_and_every_link_leads_somewhere():
    folder = ROOT / "benchmarks" / "results" / "studies"
    text = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    linked = re.findall(r"\(\.\./benchmarks/results/studies/([\w-]+)/([\w-]+\.svg)\)", text)
    assert linked and [one for one in linked if not (folder / "/".join(one)).exists()] == []
    recorded = {path.parent.name for path in folder.glob("*/summary.json")}
    assert recorded - {name for name, _ in linked} == set()
