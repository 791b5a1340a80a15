"""`tf-adapters train` through each door: the README's own task, the same seeds, the scores side by side."""

import json
import pathlib
import subprocess
import sys

from benchmarks.result import at_least_1, finish, log, make_parser, parse_arguments
from benchmarks.table_parts import Table, in_points, markdown, of_settings, origin, short_difference
from tf_adapters.studies.numbers import paired, spread

# Of the first all others are subtracted.
ARMS = {
    "transformers": ["--door", "transformers"],
    "transformers-fast": ["--door", "transformers", "--fast"],
    "keras-hub-tensorflow": ["--door", "keras-hub", "--backend", "tensorflow"],
    "keras-hub-tensorflow-fast": ["--door", "keras-hub", "--backend", "tensorflow", "--fast"],
    "keras-hub-jax": ["--door", "keras-hub", "--backend", "jax"],
    "keras-hub-torch": ["--door", "keras-hub", "--backend", "torch"],
}


def parse(arguments=None):
    goes_on = "A run that was interrupted goes on, of the same folder."
    parser = make_parser(f"{__doc__} {goes_on}", smoke="64 rows, one epoch")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["transformers", "keras-hub-jax"])
    parser.add_argument("--seeds", type=at_least_1, default=3)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("doors"), help="where the runs lie")
    parser.add_argument("--options", default="", help="further words for `train`, such as '--max-train-rows 4000'")
    return parse_arguments(parser, arguments, "doors", seeds=2, options="--max-train-rows 64 --epochs 1")


def run(options):
    """Train each arm; dict of arms with their scores from 0 to 1, and differences from the first."""
    arms = {}
    for arm in options.arms:
        folder = options.folder / arm
        if not (folder / "tf_adapters.json").exists():
            log(f"{arm}: {options.seeds} seeds ...")
            words = ["train", *ARMS[arm], "--seeds", str(options.seeds), "--output", str(folder)]
            words += [*options.options.split(), *(["--resume"] if folder.exists() else [])]
            subprocess.run([sys.executable, "-m", "tf_adapters", *words], check=True)
        settings = json.loads((folder / "tf_adapters.json").read_text(encoding="utf-8"))
        scores = [one["test"] for one in settings["seeds"]["runs"]]
        arms[arm] = {"metric": settings["seeds"]["metric"], "scores": scores, **spread(scores)}
        if len(arms) > 1:
            arms[arm]["minus_first"] = paired(scores, arms[options.arms[0]]["scores"])
    return {"arms": arms}


def table(result):
    """Markdown of one result of doors.py."""
    settings, arms, rows = result["settings"], result["arms"], []
    first, metric = next(iter(arms)), next(iter(arms.values()))["metric"]
    for arm, found in arms.items():
        spread = "" if found["sd"] is None else f" ± {in_points(found['sd'])}"
        rows.append((arm, in_points(found["mean"]) + spread, short_difference(found.get("minus_first"))))
    further = f", `{settings['options']}`" if settings["options"] else ""
    return markdown(
        "The README's task through each door", f"| door, backend | test {metric} | minus {first}, points (95 %) |",
        "lll", rows, origin(result, f"`tf-adapters train`{further}, {settings['seeds']} seeds"),
    )  # fmt: skip


TABLE = Table(table, of_settings("options", "seeds"))


def main():
    options = parse()
    finish("doors", options, ("arms", "seeds", "options"), run(options), table)
