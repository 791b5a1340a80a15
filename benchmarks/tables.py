"""Makes the benchmark tables of the documentation from the JSON files of benchmarks/results."""

import argparse
import json
import os
import pathlib
import sys

from benchmarks import doors, int8, predict
from benchmarks.peers import adapterhub_parity, serving
from benchmarks.result import RESULTS, ROOT, log
from benchmarks.steps import gpu, growth, step_table
from benchmarks.studies import claims, earlier
from benchmarks.table_parts import NOTES, RESULTS_PAGE

START, END = "<!-- benchmarks:start -->", "<!-- benchmarks:end -->"
# By the kind that a result names.
TABLES = {
    "adapterhub-parity": adapterhub_parity.TABLE, "doors": doors.TABLE, "gpu": gpu.TABLE, "growth": growth.TABLE,
    "int8": int8.TABLE, "methods": earlier.METHODS, "predict": predict.TABLE, "pretraining": earlier.PRETRAINING,
    "quality": earlier.QUALITY, "search": earlier.SEARCH, "serving": serving.TABLE, "step": step_table.TABLE,
    "tasks": earlier.TASKS,
}  # fmt: skip


def read_results(folder):
    """All results below a folder, of steps as `*.json`, of studies as `*/summary.json`: a list of dicts, ordered by
    what they measure. Of those with the same key (model, batches, settings) only the newest counts; those without a
    table are left out."""
    folder = pathlib.Path(folder)
    newest = {}
    for path in sorted([*folder.glob("*.json"), *folder.glob("*/summary.json")]):
        result = json.loads(path.read_text(encoding="utf-8"))
        if result["kind"] not in TABLES:
            continue
        key = (result["kind"], *TABLES[result["kind"]].key(result))
        if key not in newest or newest[key]["date"] < result["date"]:
            newest[key] = {**result, "file": path.relative_to(folder).as_posix()}
    return [newest[key] for key in sorted(newest)]


def make_tables(results, file=RESULTS_PAGE, claimed=""):
    """Markdown of the results that have their place in `file`, a path from the repository's root. On the page of
    results they stand behind the table of claims, `claimed`, and an overview of step times."""
    links = os.path.relpath("benchmarks/results", os.path.dirname(file) or ".")
    tables = [
        TABLES[result["kind"]].make({**result, "link": f"{links}/{result['file']}"})
        for result in results
        if TABLES[result["kind"]].place(result) == file
    ]
    if file == RESULTS_PAGE:
        tables = [claimed, step_table.overview([r for r in results if r["kind"] == "step"]), *tables]
    return "\n\n".join(filter(None, tables)) or "No results yet."


def replace_section(text, tables):
    """A page's text with `tables` between the two marker lines; ValueError without them."""
    if text.count(START) != 1 or text.count(END) != 1 or text.index(START) > text.index(END):
        raise ValueError(f"it must hold the lines {START} and {END}, once each and in this order")
    before, rest = text.split(START)
    return f"{before}{START}\n{tables}\n{END}{rest.split(END)[1]}"


def main():
    parser = argparse.ArgumentParser(
        description=f"{__doc__} They stand in {RESULTS_PAGE}, {NOTES} and {claims.PAGE} between the lines {START} and "
        f"{END}; everything else there stays as it is."
    )
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="folder of the pages; default: the repository")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS, help="default: benchmarks/results")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a table is out of date")
    options = parser.parse_args()
    changed = {}
    for file in (RESULTS_PAGE, NOTES, claims.PAGE):
        try:
            old = (options.root / file).read_text(encoding="utf-8")
            recorded = claims.Recorded(options.results / "studies")
            if file == claims.PAGE:
                made = claims.make(recorded) or "No results yet."
            else:
                made = make_tables(read_results(options.results), file, claims.make(recorded, brief=True))
            new = replace_section(old, made)
        except (OSError, ValueError) as error:
            log(f"{options.root / file}: {error}")
            sys.exit(2)
        if new != old:
            changed[file] = new
    if options.check:
        if changed:
            sys.exit(f"The tables of {' and '.join(changed)} are out of date: run python -m benchmarks tables")
        return
    for file, text in changed.items():
        (options.root / file).write_text(text, encoding="utf-8")
    print(f"Updated {' and '.join(changed)}." if changed else "Nothing to do.")
