"""What the texts name is there."""

import csv
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]


def test_the_tests_that_the_docs_name_are_there():
    text = (ROOT / "docs" / "robustness.md").read_text(encoding="utf-8")
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    names, files = set(re.findall(r"`(test_\w+)`", text)), set(re.findall(r"`(test_\w+\.py)`", text))
    assert len(names) > 30 and [name for name in names if f"def {name}(" not in tests] == []
    assert files and [file for file in files if not (ROOT / "tests" / file).exists()] == []


def newest(kind):
    paths = sorted((ROOT / "benchmarks" / "results").glob(f"{kind}-*.json"))
    return json.loads(paths[-1].read_text(encoding="utf-8"))


def test_counts_of_campaigns_are_those_of_the_newest_results():
    fuzz, kills, load, options = map(newest, ("fuzz", "kills", "load", "options"))
    cases = sum(row["cases"] for row in kills["commands"].values())
    requests, wrong = (
        sum(len(v) if isinstance(v := load[part][name], list) else v for part in ("bank", "export"))
        for name in ("requests", "wrong")
    )
    tried = sum(row["cases"] for row in options["commands"].values())
    failures = sum(len(row["failures"]) for row in options["commands"].values())
    recorded = {
        "fuzzing": f"{fuzz['cases']:,} files, {len(fuzz['failures'])} failed",
        "kills": f"{cases} cases, {len(kills['failed'])} failed",
        "load": f"{requests:,} requests, {wrong} wrong answers",
        "options": f"{tried:,} cases, {failures} failed",
    }
    text = (ROOT / "docs" / "robustness.md").read_text(encoding="utf-8")
    rows = {row[0]: row[-1] for line in text.splitlines() if len(row := line.strip("| ").split(" | ")) == 4}
    assert {campaign: rows[campaign] for campaign in recorded} == recorded


def test_what_is_said_of_the_landscape_is_what_was_recorded():
    path = ROOT / "benchmarks" / "results" / "studies" / "landscape" / "summary.json"
    arms = json.loads(path.read_text(encoding="utf-8"))["summary"]["tasks"]["glue/cola"]
    adapters, full = arms["adapters"], arms["full"]
    after, before = [f"{arm['losses']['1.0000']:.2f}" for arm in (adapters, full)], adapters["losses"]["0.0000"]
    text = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    assert (
        f"over {adapters['width']:.2f} units of the line with adapters, over {full['width']:.2f} with full fine-tuning"
        "; "
        f"after training it is {after[0]} and {after[1]}, above the {before:.2f} from before it" in text
    )


def test_what_is_said_of_similarity_is_what_was_recorded():
    path = ROOT / "benchmarks" / "results" / "studies" / "similarity" / "summary.json"
    arms = json.loads(path.read_text(encoding="utf-8"))["summary"]["tasks"]["glue/cola"]
    adapters, full = arms["adapters"]["blocks"], arms["full"]["blocks"]

    def both(block):
        return [f"{arm[block]['mean']:.2f} ± {arm[block]['sd']:.2f}" for arm in (adapters, full)]

    text = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    last, before = both(6), both(5)
    assert (
        f"is {last[0]} with adapters, {last[1]} with full fine-tuning; the one before it {before[0]} and {before[1]}; "
        in text
    )
    lower = max(abs(adapters[block]["mean"] - full[block]["mean"]) for block in (1, 2, 3))
    assert f"in the lower three blocks they differ by {lower:.2f} at most" in text


def test_what_is_said_of_curves_is_what_was_recorded():
    folder = ROOT / "benchmarks" / "results" / "studies" / "curves"
    ends, least = {"adapters": [], "full": []}, []
    with open(folder / "values.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            places = sorted(int(key.split(".")[1]) for key in row if key.endswith(".loss") and row[key])
            losses = [float(row[f"validation.{place}.loss"]) for place in places]
            ends[row["arm"]].append(losses[-1])
            least.append(min(losses))
    adapters, full = (f"{min(ends[arm]):.2f} to {max(ends[arm]):.2f}" for arm in ("adapters", "full"))
    text = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    assert f"ends at {adapters} with adapters, at {full} with full fine-tuning" in text
    assert f"both were at {min(least):.2f} to {max(least):.2f} before" in text
    arms = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["summary"]["tasks"]["glue/cola"]
    scores = [f"{100 * arms[arm]['mean']:.1f} ({100 * arms[arm]['best']:.1f})" for arm in ("adapters", "full")]
    assert f"every 20 steps: {scores[0]} and {scores[1]} |" in text


def test_what_is_said_of_ablation_is_what_was_recorded():
    path = ROOT / "benchmarks" / "results" / "studies" / "ablation" / "summary.json"
    maps = json.loads(path.read_text(encoding="utf-8"))["summary"]["maps"]

    def drops(span, task=""):
        return [100 * found["drops"][span] for title, found in maps.items() if title.startswith(task)]

    worst = {
        task: max(max(drops(f"{block}-{block}", task)) for block in range(6)) for task in ("glue/cola", "glue/sst2")
    }
    text = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    assert f"CoLA: by at most {worst['glue/cola']:.1f} %; SST-2: by at most {worst['glue/sst2']:.1f} %" in text
    everything = drops("0-5", "glue/sst2")
    assert f"SST-2: {min(everything):.0f} to {max(everything):.0f} % are lost" in text
    of_cola = [
        (found["whole"]["mean"] * (1 - found["drops"]["0-5"]), found["constant"])
        for title, found in maps.items()
        if "cola" in title
    ]
    assert all(abs(left - constant) < 0.005 for left, constant in of_cola)
    halves = [f"{min(drops(span)):.1f} to {max(drops(span)):.1f} %" for span in ("0-2", "3-5")]
    assert (
        f"lower three blocks of 6 the score falls by {halves[0]}, without those of the upper three by {halves[1]}"
        in text
    )
