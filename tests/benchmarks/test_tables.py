"""tables.py: which results are shown, and where."""

import json

from benchmarks import tables
from tests.benchmarks.support import run_script, step_result

STEP_TABLE = """\
**BERT-base (12 x 768), random weights, 16 rows of 128 tokens, float32**

| | ms per step (min to max) | examples/s | tracing and compiling, s | peak memory, MiB | trained parameters \
| saved, MB |
|---|---:|---:|---:|---:|---:|---:|
| **adapters**, tf_adapters | 2000 (1990 to 2010) | 8.0 | 16.0 | 4,000 | 2,417,666 | 9.7 |
| full fine-tuning, TensorFlow | 3000 (2990 to 3010) | 5.3 | 14.0 | 5,000 | 109,483,778 | 437.0 |

| step time, paired by round | median | interval |
|---|---:|---:|
| full / adapters | 1.50 | 1.45 to 1.55 |

<sub>5 rounds of 4 steps, glue/sst2, validation split; 2 cores of A Processor; TensorFlow 2.21.0, PyTorch 2.13.0; \
2026-01-02, commit 0123456; [a.json](results/a.json).</sub>"""
OVERVIEW = """\
**How long a training step takes**

| | adapters, ms | full / adapters | PyTorch `adapters` / adapters | adapters / fast | full / fast \
| KerasHub on TensorFlow / adapters | on JAX / adapters | on PyTorch / adapters |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
| BERT-base (12 x 768), random weights, 16 rows of 128 tokens, float32 | 2000 | 1.50 |  |  |  |  |  |  |

<sub>Medians, paired by round. \
[benchmarks/README.md](../benchmarks/README.md#further-results) has their intervals, memory and machines.</sub>"""


def test_table_of_a_step_result(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(step_result()))
    results = tables.read_results(tmp_path)
    assert tables.make_tables(results, tables.NOTES) == STEP_TABLE
    assert tables.make_tables(results, claimed="| claims |") == f"| claims |\n\n{OVERVIEW}"


def test_the_pages_are_checked_and_written(tmp_path):
    page, notes, results = tmp_path / "docs" / "results.md", tmp_path / "benchmarks" / "README.md", tmp_path / "results"
    claims = notes.with_name("results") / "studies" / "README.md"
    for folder in (results, page.parent, claims.parent):
        folder.mkdir(parents=True)
    (results / "a.json").write_text(json.dumps(step_result()))
    common = {key: step_result()[key] for key in ("date", "machine", "git")}
    of_files = {"kind": "int8", "versions": {}, "settings": {"rounds": 3}, "tasks": {}, **common}
    (results / "b.json").write_text(json.dumps(of_files))
    (results / "c.json").write_text(json.dumps({**of_files, "kind": "of a command that is gone"}))
    arguments = ("tables", "--root", str(tmp_path), "--results", str(results))
    page.write_text("no markers")
    done = run_script(*arguments)
    assert done.returncode == 2 and "benchmarks:start" in done.stderr
    for path in (page, notes, claims):
        path.write_text(f"before\n{tables.START}\nold\n{tables.END}\nafter\n")
    assert run_script(*arguments, "--check").returncode == 1
    assert "old" in page.read_text()
    assert run_script(*arguments).returncode == 0
    assert page.read_text() == f"before\n{tables.START}\n{OVERVIEW}\n{tables.END}\nafter\n"
    assert STEP_TABLE in notes.read_text()
    assert "**ONNX files in eight bits**" in notes.read_text() and "[b.json](results/b.json)" in notes.read_text()
    assert "c.json" not in notes.read_text()
    assert claims.read_text() == f"before\n{tables.START}\nNo results yet.\n{tables.END}\nafter\n"
    assert run_script(*arguments, "--check").returncode == 0
    page.write_text(page.read_text().replace("1.50", "1.51"))
    done = run_script(*arguments, "--check")
    assert done.returncode == 1 and "docs/results.md are" in done.stderr and "benchmarks/README.md" not in done.stderr


def test_the_tables_in_the_repository_are_those_of_its_results():
    done = run_script("tables", "--check")
    assert done.returncode == 0, done.stderr
