"""claims.py: the verdicts on the papers' claims follow from the recorded values."""

import json
import re

import pytest

from benchmarks import tables
from benchmarks.studies import claims, evidence
from tests.benchmarks.support import BENCHMARKS
from tf_adapters.studies import STUDIES
from tf_adapters.studies.numbers import paired, spread

STUDIES_PAGE, RESULTS_PAGE = (BENCHMARKS.parent / page for page in ("docs/studies.md", "docs/results.md"))
PAPERS = {"report": "report", "Houlsby": "Houlsby et al. 2019", "He": "He et al. 2021", "Han": "Han et al. 2021"}


def arm(title, values, minus_full=None, at_edge=False):
    mean = sum(values) / len(values)
    return {
        "title": title, "values": values, "mean": mean, "sd": 0.01, "at_edge": at_edge, "trained_parameters": 1000,
        "minus_full": minus_full and {"mean": sum(minus_full) / 2, "interval": list(minus_full)},
    }  # fmt: skip


def record(folder, name, tasks, **settings):
    (folder / name).mkdir(parents=True)
    document = {"summary": {"tasks": tasks}, "settings": {"rows": 1000, "epochs": 3, "seeds": 3, **settings}}
    (folder / name / "summary.json").write_text(json.dumps(document))


def sharing(houlsby):
    arms = {
        "full": arm("full fine-tuning", [0.6, 0.62, 0.64]), "houlsby": arm("Houlsby", [0.6, 0.61, 0.65], houlsby, True),
        "unshared": arm("unshared", [0.6, 0.61, 0.65], (-0.1, 0.1)),
        "per-layer": {**arm("one per layer", [0.612, 0.651, 0.601], (-0.1, 0.1)), "seeds": [1, 2, 0]},
        "3-shared": arm("3-shared", [0.602, 0.612, 0.652], (-0.1, 0.1)),
    }  # fmt: skip
    return {"metric": "accuracy", "arms": arms}


def rows_of(text):
    lines = text.splitlines()
    assert lines[0] == "| claim | found here | verdict |" and lines[1] == "| --- | --- | --- |"
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def test_each_task_has_its_line_and_its_verdict(tmp_path):
    recorded = claims.Recorded(tmp_path / "studies")
    assert claims.make(recorded) == ""
    record(recorded.folder, "sharing-cola", {"glue/cola": sharing((-0.003, 0.002))})
    record(recorded.folder, "sharing-stsb", {"glue/mrpc": sharing((-0.06, 0.01))})
    record(recorded.folder, "sharing-1000", {"glue/rte": sharing((-0.02, 0.03))})
    first, second = rows_of(claims.make(recorded))
    assert first[0].startswith("Adapters score within 0.4 points")
    assert first[2] == "holds: CoLA; not seen: MRPC; cannot tell: RTE"
    lines = first[1].split("<br>")
    said = "CoLA (accuracy; 1,000 rows, 3 epochs, 3 seeds; `sharing-cola`†): full fine-tuning 62.0 ± 1.0; less that: "
    assert lines[0].startswith(said)
    assert "Houlsby -0.1 (-0.3 to +0.2)" in lines[0] and "edge of the grid: 1 of 5 arms" in lines[0]
    brief, _ = rows_of(claims.make(recorded, brief=True))
    assert brief[::2] == first[::2]
    assert brief[1].split("<br>") == [
        "CoLA: -0.1 (-0.3 to +0.2)",
        "MRPC: -2.5 (-6.0 to +1.0)",
        "RTE: +0.5 (-2.0 to +3.0)",
    ]
    assert lines[3] == f"Houlsby less full fine-tuning, mean of 3 tasks: {100 * (-0.0005 - 0.025 + 0.005) / 3:+.1f}"
    # +0.13 (-0.01 to +0.28) and +0.20 (+0.20 to +0.20): paired by seed, though each spreads by several points.
    assert second[2] == "holds" and "one per layer +0.1 (-0.0 to +0.3), 3-shared +0.2 (+0.2 to +0.2)" in second[1]


def test_a_verdict_is_that_of_a_difference_and_its_interval():
    for interval, bounds, expected in (
        ((0.1, 0.5), {"above": 0}, "holds"), ((-0.1, 0.5), {"above": 0}, "cannot tell"),
        ((-0.5, 0.1), {"above": 0}, "not seen"), ((-0.3, -0.1), {"below": 0}, "holds"),
        ((-0.4, 0.4), {"above": -0.5, "below": 0.5}, "holds"),
        ((-0.4, 0.6), {"above": -0.5, "below": 0.5}, "cannot tell"),
        ((0.4, 0.8), {"above": -0.5, "below": 0.5}, "not seen"),
    ):  # fmt: skip
        assert evidence.says({"mean": sum(interval) / 2, "interval": interval}, **bounds) == expected


def test_intervals_of_shares_and_spreads():
    # Newcombe (1998), table II, case (a), method 10: 56 of 70 and 48 of 80, with Wilson's intervals of each.
    shares = ((56 / 70, (0.6918, 0.8769)), (48 / 80, (0.4904, 0.7000)))
    assert evidence.of_shares(*shares)["interval"] == pytest.approx([0.0524, 0.3339], abs=2e-3)
    # Of 20 and 20 seeds the F test at 5 % asks for a ratio of variances of 2.53.
    of_20 = [{"sd": sd, "n": 20} for sd in (1.0, 2.53**0.5 + 0.01, 2.53**0.5 - 0.01, 0.0)]
    words = [evidence.says(evidence.of_spreads(of_20[0], other), below=1) for other in of_20[1:3]]
    assert words == ["holds", "cannot tell"] and evidence.of_spreads(of_20[0], of_20[3]) is None
    assert evidence.says(evidence.of_spreads(of_20[1], of_20[0]), below=1) == "not seen"


class Recomputed(claims.Recorded):
    """What is recorded, with every number from `values.csv` and `runs.jsonl` anew."""

    def document(self, name):
        document = super().document(name)
        if document and (self.folder / name / "values.csv").exists():
            document["summary"] = evidence.summarised(document, self.values(name))
        return document

    def other(self, name):
        document = super().other(name)
        if name == "search-cola-minilm":
            for cell in document["cells"]:
                cell.update(spread(cell["values"]))
        elif name == "sst2-minilm":
            lines = (self.folder.parent / name / "runs.jsonl").read_text().splitlines()
            runs = [run for run in map(json.loads, lines) if "further_accuracy" in run]
            found = {}
            for method, about in document["methods"].items():
                chosen = ("learning_rate", "dropout", "init_stddev")
                of_one = [r for r in runs if r["method"] == method and all(r.get(n) == about[n] for n in chosen)]
                found[method] = [[r[key] for r in of_one] for key in ("accuracy", "further_accuracy")]
                about.update(spread(found[method][0]))
            pairs = [paired(*pair) for pair in zip(found["adapters"], found["full"])]
            document.update(zip(("adapters - full", "adapters - full, further rows"), pairs))
        else:
            for task, about in document["tasks"].items():
                self._anew(name, task, about)
        return document

    def _anew(self, name, task, about):
        scores = {}
        for run in evidence.at_best_rates([r for r in self.other_runs(name) if r["settings"]["task"] == task]):
            scores.setdefault(run["method"], []).append(run["scores"]["reported"][run["metric"]])
        if name == "methods-minilm":
            for method, row in about["methods"].items():
                row.update(spread(scores[method]))
                row["minus houlsby"] = paired(scores[method], scores["houlsby"])
            return
        into, one, other = (
            (about, "pretrained", "alone") if name == "pretraining-minilm"
            else (about["results"]["reported"], "adapters", "full")
        )  # fmt: skip
        for method in (one, other):
            into[method].update(spread(scores[method]))
        into[f"{one} - {other}"] = paired(scores[one], scores[other])


def section(page=BENCHMARKS.parent / claims.PAGE):
    return page.read_text("utf-8").split(tables.START)[1].split(tables.END)[0].strip()


def test_every_number_of_the_verdict_tables_follows_from_the_recorded_values():
    assert rows_of(section()) == rows_of(claims.make(Recomputed(claims.KEPT)))
    brief = claims.make(Recomputed(claims.KEPT), brief=True)
    assert section(RESULTS_PAGE).startswith(f"{brief}\n\n")
    assert [row[::2] for row in rows_of(brief)] == [row[::2] for row in rows_of(section())]


def test_no_study_is_credited_with_what_it_does_not_make():
    """The page's table of the papers has for each study the tables and figures that the study names, and no others."""
    credited = {name: set() for name in STUDIES}
    for line in STUDIES_PAGE.read_text("utf-8").splitlines():
        cells = line.strip("| ").split(" | ")
        for name in re.findall(r"`study ([\w-]+)", cells[2]) if len(cells) > 2 and cells[0] in PAPERS else ():
            if not cells[2].startswith("none"):
                credited[name] |= {(cells[0], *one) for one in pieces(cells[1])}
    named = {
        name: {
            (paper, *one)
            for part in study.figures.split("; ") for paper, title in PAPERS.items() if part.startswith(title)
            for one in pieces(part)
        }
        for name, study in STUDIES.items()
    }  # fmt: skip
    assert credited == named


def pieces(words):
    """The tables and figures that are named, such as `("figure", 5)`."""
    for kind, numbers in re.findall(r"(table|figure)s? (\d+(?:(?:, | and | to )\d+)*)", words):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", numbers):
            yield from ((kind, number) for number in range(int(first), int(last or first) + 1))


def test_what_is_not_to_be_relied_on_is_marked():
    page = STUDIES_PAGE.read_text("utf-8")
    for name, marks in re.findall(r"results/studies/([\w-]+)/[\w-]+\.svg\)([†‡]*)", page):
        settings = json.loads((claims.KEPT / name / "summary.json").read_text())["settings"]
        on_few = "glue/cola" in settings["tasks"] and (settings["rows"] or max(settings["counts"])) <= 2000
        assert marks == "†" * (name in evidence.ELSEWHERE) + "‡" * on_few, name
    assert f"accuracy is {100 * claims.Recorded(claims.KEPT).constant_accuracies['glue/cola']:.1f} %" in page
    assert {name for name, mark in re.findall(r"`([\w-]+)`(†?)", section()) if mark} == set(evidence.ELSEWHERE)
