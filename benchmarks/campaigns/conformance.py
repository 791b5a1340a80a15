"""Runs the conformance tests, every encoder family with every variant of adapter and every head, and keeps what each
found."""

import argparse
import json
import os
import pathlib
import subprocess
import sys

from benchmarks.provenance import ROOT
from benchmarks.result_file import finish, fresh_processes, make_parser, parse_arguments, write_whole
from benchmarks.start import command
from benchmarks.table_parts import Table, in_notes, origin

EVERY = "slow or not slow"
BACKENDS = ("tensorflow", "jax", "torch")
SUITE = [ROOT / "tests" / "test_table.py", ROOT / "tests" / "test_families.py"]


def parse(arguments=None):
    parser = make_parser(
        description=__doc__
        + " Families, variants and heads are those that pytest reports. A test that asserts several properties "
        "announces each before it does (`record_property('checks', ...)`), so that of a failed one it is known which; "
        "one that asserts a refusal hands over the reason (`record_property('refused', ...)`), and one that compares "
        "the largest differences (`record_property('differences', ...)`).",
        smoke="without --select the quick tests of DistilBERT",
    )
    parser.add_argument(
        "--tests",
        type=pathlib.Path,
        nargs="+",
        help="files of tests whose parameter `family` names an encoder family; default: tests/test_table.py and "
        "tests/test_families.py, with --backends the second door's rows of the first",
    )
    parser.add_argument("--select", help="run these alone, an expression as pytest's -k")
    parser.add_argument(
        "--workers", type=int, default=2, help="processes at a time; each has one family's tests and ends with them"
    )
    parser.add_argument(
        "--backends",
        nargs="+",
        choices=BACKENDS,
        help="backends of Keras 3, one after the other; the table then has a row for each, with the differences",
    )
    parser.add_argument("--torch-python", help="Python with PyTorch beside this package's requirements, for torch")
    parser.add_argument(
        "--folder",
        type=pathlib.Path,
        default=pathlib.Path("conformance"),
        help="where a run of several backends keeps what each found; it goes on with the others",
    )
    parser.add_argument("--cases", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parse_arguments(parser, arguments, "conformance")
    if options.tests is None:
        options.tests = SUITE[: 1 if options.backends else None]
        options.select = options.select or ("second" if options.backends else None)
    if options.backends and "torch" in options.backends and options.torch_python is None:
        parser.error("torch needs --torch-python, a Python that has PyTorch beside this package.")
    return options


def table(result):
    """Markdown of one result of conformance.py: a column for each family, a row for each variant, head or property."""
    families = sorted({case["parameters"]["family"] for case in result["cases"] if "family" in case["parameters"]})
    if result["settings"].get("backends"):
        return _table_of_backends(result, families)
    groups, alone, notes = {}, [], []
    for case in result["cases"]:
        if "family" not in case["parameters"]:
            alone.append(case)
            continue
        others = [
            value if isinstance(value, str) else f"{name}={value}"
            for name, value in case["parameters"].items()
            if name != "family"
        ]
        groups.setdefault(case["test"], {}).setdefault(", ".join(others), {})[case["parameters"]["family"]] = case
    lines = [
        "**What the tests of every family found**",
        "",
        f"| | {' | '.join(families)} |",
        "|---|" + "---|" * len(families),
    ]
    for test, rows in groups.items():
        # What a cell of the group stands for; one that announced less says so.
        checks = list(
            dict.fromkeys(check for row in rows.values() for case in row.values() for check in case["checks"])
        )
        title = f"**{_sentence(test)}**" + (f" ({'; '.join(checks)})" if checks else "")
        if list(rows) != [""]:
            lines.append(f"| {title} |" + " |" * len(families))
        for name, row in rows.items():
            cells = (_conformance_cell(row[family], checks, notes) if family in row else "" for family in families)
            lines.append(f"| {name or title} | {' | '.join(cells)} |")
    lines.append("")
    if alone:
        others = (f"{_sentence(case['test'])} {_conformance_cell(case, case['checks'], notes)}" for case in alone)
        lines += [f"Beside these: {'; '.join(others)}.", ""]
    lines += [*(f"{number}. {note}" for number, note in enumerate(notes, 1)), *([""] if notes else [])]
    selected = f", of those that `{result['settings']['select']}` selects" if result["settings"]["select"] else ""
    seconds = sum(case["seconds"] for case in result["cases"])
    return "\n".join([*lines, origin(result, f"{len(result['cases'])} tests{selected}, {seconds:,.0f} s")])


def _table_of_backends(result, families):
    """A row for each backend and what was measured on it, a column for each family."""
    title = f"{len({case['parameters']['variant'] for case in result['cases']})} variants"
    lines = [
        "**Both doors, on each backend of Keras 3: how many variants hold, and the largest difference from the first "
        "door**",
        "",
        f"| | {' | '.join(families)} |",
        "|---|" + "---|" * len(families),
    ]
    for backend in result["settings"]["backends"]:
        cases = [case for case in result["cases"] if case["parameters"]["backend"] == backend]
        of = [[case for case in cases if case["parameters"]["family"] == family] for family in families]
        lines.append(f"| **{backend}**: of {title} hold | {' | '.join(map(_holding, of))} |")
        for name in dict.fromkeys(name for case in cases for name in case["differences"]):
            values = ([case["differences"][name] for case in each if name in case["differences"]] for each in of)
            lines.append(f"| {backend}: {name} | {' | '.join(f'{max(each):.1e}' if each else '' for each in values)} |")
    checks = dict.fromkeys(check for case in result["cases"] for check in case["checks"])
    failed = [case for case in result["cases"] if case["outcome"] != "passed" or case["refused"]]
    lines += ["", f"Each holds: {'; '.join(checks)}.", ""]
    for case in failed:
        where = ", ".join(case["parameters"][name] for name in ("family", "variant", "backend"))
        reason = [case["outcome"], *case["checks"][-1:], case["reason"]]
        reason = ["refused by both doors", case["refused"]] if case["outcome"] == "passed" else reason
        lines.append(f"- {where}: {': '.join(reason)}")
    lines += [""] * bool(failed)
    seconds = sum(case["seconds"] for case in result["cases"])
    return "\n".join([*lines, origin(result, f"{len(result['cases'])} tests, {seconds:,.0f} s")])


def _holding(cases):
    variants = {}
    for case in cases:
        variants.setdefault(case["parameters"]["variant"], []).append(case)
    refused = sum(any(case["refused"] for case in each) for each in variants.values())
    held = sum(all(c["outcome"] == "passed" and not c["refused"] for c in each) for each in variants.values())
    return f"{held}" + (f", {refused} refused" if refused else "")


def _sentence(test):
    return test.removeprefix("test_").replace("_", " ")


def _conformance_cell(case, checks, notes):
    """One cell; the reasons go to `notes`, each once."""
    outcome = case["outcome"]
    if outcome == "passed" and case["refused"] is None:
        return "✓" if len(case["checks"]) == len(checks) else f"✓ ({len(case['checks'])} of {len(checks)})"
    if outcome == "not run":
        return "**not run**"
    reason = case["refused"] if outcome == "passed" else case["reason"]
    word = {"passed": "refused", "skipped": "skipped", "failed": ": ".join(["**failed**", *case["checks"][-1:]])}[
        outcome
    ]
    if reason not in notes:
        notes.append(reason)
    return f"{word} <sup>{notes.index(reason) + 1}</sup>"


def _key(result):
    return result["settings"]["select"] or "", " ".join(result["settings"].get("backends", ()))


TABLE = Table(table, _key, in_notes)


def main():
    options = parse()
    measured = run_on_backends(options) if options.backends else run(options)
    if options.cases is not None:
        write_whole(options.cases, measured)
        return
    settings = ("select", "backends") if options.backends else ("select",)
    finish("conformance", options, settings, measured, describe)
    sys.exit(any(case["outcome"] == "failed" for case in measured["cases"]))


def run(options):
    """Run the tests; dict of cases, in the order in which pytest collects them.

    A family's tests have a process of their own: what XLA compiled stays in memory as long as the process. With a file
    of cases, those that passed before are not run again, and it is written anew after each family.
    """
    chosen = ["-m", EVERY] + (["-k", options.select] if options.select else [])
    if options.smoke and not options.select:
        chosen = ["-m", "not slow and not nightly", "-k", "distilbert"]
    cases, places = run_pytest([*map(str, options.tests), *chosen, "--collect-only"])
    kept, parts = [], {}
    if options.cases is not None and options.cases.exists():
        kept = json.loads(options.cases.read_text(encoding="utf-8"))["cases"]
    passed = {_identity(case): case for case in kept if case["outcome"] == "passed"}
    for test, case in cases.items():
        if _identity(case) in passed:
            cases[test] = passed[_identity(case)]
        else:
            parts.setdefault(case["parameters"].get("family", ""), []).append(places[test])
    with fresh_processes(options.workers, max_tasks_per_child=1) as pool:
        for found, _ in pool.map(run_pytest, ([*tests, "-m", EVERY] for tests in parts.values())):
            cases |= found
            if options.cases is not None:
                write_whole(options.cases, {"cases": list(cases.values())})
    return {"cases": list(cases.values())}


def _identity(case):
    return case["test"], *sorted(case["parameters"].items())


def run_on_backends(options):
    """As `run`, in a process for each backend of Keras 3, whose cases have the parameter `backend`.

    What passed is kept in a file of the folder for each backend, and not run again.
    """
    found = []
    options.folder.mkdir(parents=True, exist_ok=True)
    for backend in options.backends:
        path = options.folder / f"{backend}.json"
        python = options.torch_python if backend == "torch" else sys.executable
        words = command("campaigns.conformance", python=python)
        words += [
            "--tests",
            *map(str, options.tests),
            "--workers",
            str(options.workers),
            "--cases",
            str(path),
            "--smoke",
        ]
        words += ["--select", options.select or "test"]
        subprocess.run(words, env={**os.environ, "KERAS_BACKEND": backend}, check=True)
        for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
            found.append({**case, "parameters": {**case["parameters"], "backend": backend}})
    return {"cases": found}


def run_pytest(arguments):
    """Run pytest in this process; `cases` and `places` of `Reports`."""
    import pytest

    reports = Reports()
    status = pytest.main(
        [*arguments, f"--rootdir={ROOT}", "-c", str(ROOT / "setup.cfg"), "-q", "-p", "no:cacheprovider"],
        plugins=[reports],
    )
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        sys.exit(f"pytest did not come to its end ({status!r}): there is no result.")
    return reports.cases, reports.places


class Reports:
    """A plugin of pytest that keeps what it says of each test.

    Attributes:
        cases: dict from a test's id to a dict: `test`, its function's name; `parameters`; `outcome`, "passed",
            "failed", "skipped" or "not run"; `checks`, the properties that it announced, of which a failed one did not
            hold the last; `differences`, a dict from what it compared to the largest difference; `refused`, the reason
            of a refusal that it asserts, or None; `reason` of a failure or skip; `seconds`.
        places: dict from a test's id to one that pytest takes in whatever folder.
    """

    def __init__(self):
        self.cases, self.places = {}, {}

    def pytest_collection_finish(self, session):
        for item in session.items:
            self.places[item.nodeid] = f"{item.path}::{item.nodeid.partition('::')[2]}"
            self.cases[item.nodeid] = {
                "test": getattr(item, "originalname", item.name),
                "parameters": _parameters(item),
                "outcome": "not run",
                "checks": [],
                "differences": {},
                "refused": None,
                "reason": "",
                "seconds": 0.0,
            }

    def pytest_runtest_logreport(self, report):
        case = self.cases[report.nodeid]
        case["seconds"] = round(case["seconds"] + report.duration, 3)
        case["checks"] = [value for name, value in report.user_properties if name == "checks"]
        for name, value in report.user_properties:
            if name == "differences":
                case["differences"] |= value
        case["refused"] = next((str(value) for name, value in report.user_properties if name == "refused"), None)
        if report.failed:
            case["outcome"], case["reason"] = "failed", _first_line(report)
        elif report.skipped:
            case["outcome"], case["reason"] = "skipped", getattr(report, "wasxfail", "") or str(report.longrepr[-1])
        elif report.when == "call":
            case["outcome"] = "passed"


def _parameters(item):
    given = item.callspec.params if hasattr(item, "callspec") else {}
    return {name: value if isinstance(value, (str, bool, int)) else repr(value) for name, value in given.items()}


def _first_line(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash else str(report.longrepr)).strip().splitlines()[0]


def describe(result):
    """The result as lines of text."""
    cases = result["cases"]
    outcomes = [case["outcome"] for case in cases]
    counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in dict.fromkeys(outcomes))
    lines = [f"{len(cases)} tests in {sum(case['seconds'] for case in cases):.0f} s: {counts}"]
    for case in cases:
        if case["outcome"] != "passed":
            which = ", ".join(f"{name}={value}" for name, value in case["parameters"].items())
            lines.append(f"{case['outcome']}: {case['test']}({which}) {case['checks'][-1:] or ''} {case['reason']}")
    return "\n".join(lines)
