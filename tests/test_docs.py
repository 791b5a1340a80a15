"""What the texts name is there, and what they say is so."""

import ast
import importlib
import inspect
import json
import pathlib
import re
import subprocess
import sys

import tf_adapters

ROOT = pathlib.Path(__file__).parents[1]


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def test_the_tests_that_the_docs_name_are_there():
    text = read("docs/robustness.md")
    tests = "\n".join(read(path) for path in (ROOT / "tests").rglob("test_*.py"))
    names, files = set(re.findall(r"`(test_\w+)`", text)), set(re.findall(r"`(test_\w+\.py)`", text))
    assert len(names) > 15 and [name for name in names if f"def {name}(" not in tests] == []
    assert files and [file for file in files if not (ROOT / "tests" / file).exists()] == []


def test_times_of_the_doors_are_those_of_the_results():
    text, folder = read("docs/keras-hub.md"), ROOT / "benchmarks" / "results"
    shown = {
        "first door": "adapters", "first door, fast": "fast", "KerasHub, TensorFlow": "tensorflow-hub-adapters",
        "KerasHub, TensorFlow, fast": "tensorflow-hub-fast", "KerasHub, TensorFlow, XLA": "tensorflow-jit-hub-adapters",
        "KerasHub, JAX": "jax-hub-adapters", "KerasHub, PyTorch": "torch-hub-adapters",
        "`adapters` on PyTorch": "torch-adapters",
    }  # fmt: skip
    names = [f"{batches}-{precision}" for batches in ("short", "t128") for precision in ("float32", "mixed_bfloat16")]
    results = [json.loads((folder / f"minilm-{name}-doors-2026-11-29.json").read_text("utf-8")) for name in names]
    for title, arm in shown.items():
        times = (f"{result['arms'][arm]['step_ms']['median']:,.0f}" for result in results)
        assert f"| {title} | {' | '.join(times)} |\n" in text
    # What is said below: as quick as the first door.
    assert max(result["ratios"]["tensorflow-hub-fast / fast"]["median"] for result in results) < 1.1


def test_every_recorded_study_is_linked_and_every_link_leads_somewhere():
    folder = ROOT / "benchmarks" / "results" / "studies"
    linked = re.findall(r"\(\.\./benchmarks/results/studies/([\w-]+)/([\w-]+\.svg)\)", read("docs/studies.md"))
    assert linked and [one for one in linked if not (folder / "/".join(one)).exists()] == []
    assert {path.parent.name for path in folder.glob("*/summary.json")} - {name for name, _ in linked} == set()


def test_messages_of_the_troubleshooting_page_are_those_of_the_package():
    constants = [
        node.value
        for path in (ROOT / "tf_adapters").rglob("*.py")
        for node in ast.walk(ast.parse(read(path)))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    text = read("docs/troubleshooting.md").split("## Messages of other packages")[0]
    messages = re.findall(r"^### (.*)$", text, re.MULTILINE)
    parts = [part.strip() for message in messages for part in message.split("...") if part.strip()]
    assert len(parts) > 10
    assert [part for part in parts if not any(part in constant for constant in constants)] == []


def test_the_reference_has_every_public_name_once():
    pages = {page.stem: read(page) for page in (ROOT / "docs" / "reference").glob("*.md")}
    shown = [name for text in pages.values() for name in re.findall(r"^::: tf_adapters\.([\w.]+)$", text, re.MULTILINE)]
    assert len(shown) == len(set(shown))
    # A Keras layer is made when it is asked for; the page shows the class that it is made of.
    made = re.findall(r"^`tf_adapters\.methods\.(\w+)` is the Keras layer of", pages["methods"], re.MULTILINE)
    last = {name.rpartition(".")[2] for name in shown} | set(made)
    public = {*tf_adapters._PUBLIC, "Recipe"}
    for room in ("methods", "models", "saving", "tasks", "text", "training", "tuning"):
        public |= set(inspect.getclosurevars(vars(tf_adapters)["__getattr__"](room).__getattr__).nonlocals["public"])
    assert public - last == set()
    for name in shown:
        module, _, attribute = name.rpartition(".")
        if not module.startswith("tuning"):  # which is an extra
            found = getattr(importlib.import_module(f"tf_adapters.{module}" if module else "tf_adapters"), attribute)
            assert inspect.getdoc(found), name


def test_the_readme_is_short_and_the_picture_is_the_scripts():
    text = read("README.md")
    assert len(text.splitlines()) <= 150 and len(text.split()) <= 1200
    code = "import runpy, sys; sys.stdout.write(runpy.run_path('docs/draw_picture.py')['picture']())"
    drawn = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert drawn == read("docs/picture.svg")


def test_files_that_pages_name_are_there():
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = re.sub(r"^```.*?^```", "", read(page), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
        for path in re.findall(r"`((?:examples|tests|benchmarks|docs)/[\w./-]+)`", text):
            assert (ROOT / path).exists(), f"{page.name}: {path}"
