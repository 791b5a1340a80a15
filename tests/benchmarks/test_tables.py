"""tables.py: which results are shown, and where."""

import json

from benchmarks import tables
from tests.benchmarks.support import step_result

STEP_TABLE = """\
**BERT-base (12 x 768), random weights, 16 rows of 128 tokens, float32**

| | ms per step (min to max) | examples/s | tracing and compiling, s | peak memory, MiB | trained parameters \
| saved, MB |
|---|---:|---:|---:|---:|---:|---:|
| **adapters**, tf_adapters | 2000 (1990 to 2010) | 8.0 | 16.0 | 4,000 (libraries 700) | 2,417,666 | 9.7 |
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


def test_the_pages_are_checked_and_written(tmp_path, monkeypatch, capsys):
    def run(*more):
        """The exit status, or the sentence in its place."""
        monkeypatch.setattr("sys.argv", ["tables", f"--root={tmp_path}", f"--results={results}", *more])
        try:
            tables.main()
        except SystemExit as end:
            return end.code

    page, notes, results = tmp_path / "docs" / "results.md", tmp_path / "benchmarks" / "README.md", tmp_path / "results"
    claims = notes.with_name("results") / "studies" / "README.md"
    for folder in (results, page.parent, claims.parent):
        folder.mkdir(parents=True)
    (results / "a.json").write_text(json.dumps(step_result()))
    (results / "older.json").write_text(json.dumps(step_result(date="2025-01-02T03:04:05+00:00")))
    one_core = step_result(settings={**step_result()["settings"], "threads": 1})
    (results / "one-core.json").write_text(json.dumps(one_core))
    common = {key: step_result()[key] for key in ("date", "machine", "git")}
    of_files = {"kind": "int8", "versions": {}, "settings": {"rounds": 3}, "tasks": {}, **common}
    (results / "b.json").write_text(json.dumps(of_files))
    (results / "c.json").write_text(json.dumps({**of_files, "kind": "of a command that is gone"}))
    page.write_text("no markers")
    assert run() == 2 and "benchmarks:start" in capsys.readouterr().err
    for path in (page, notes, claims):
        path.write_text(f"before\n{tables.START}\nold\n{tables.END}\nafter\n")
    assert "are out of date" in run("--check") and "old" in page.read_text()
    assert run() is None
    assert "float32, one thread | 2000 |" in page.read_text() and "[one-core.json]" in notes.read_text()
    (results / "one-core.json").unlink()
    run()
    assert page.read_text() == f"before\n{tables.START}\n{OVERVIEW}\n{tables.END}\nafter\n"
    assert STEP_TABLE in notes.read_text()
    assert "**ONNX files in eight bits**" in notes.read_text() and "[b.json](results/b.json)" in notes.read_text()
    assert not any(name in notes.read_text() for name in ("c.json", "older.json"))
    assert claims.read_text() == f"before\n{tables.START}\nNo results yet.\n{tables.END}\nafter\n"
    assert run("--check") is None
    page.write_text(page.read_text().replace("1.50", "1.51"))
    assert "docs/results.md are" in run("--check")


def test_the_tables_in_the_repository_are_those_of_its_results(monkeypatch):
    monkeypatch.setattr("sys.argv", ["tables", "--check"])
    tables.main()
