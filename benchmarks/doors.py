"""`tf-adapters train` through each door: the README's own task, the same seeds, scores and whole processes' seconds.

`usual` is the command without options, and `before` the same of another checkout.
"""

import json
import pathlib
import subprocess
import sys
import time

from benchmarks.pairing import extremes, in_turn, paired_ratio
from benchmarks.result import ROOT, at_least_1, finish, git_state, log, make_parser, parse_arguments
from benchmarks.table_parts import Table, in_points, in_ratio, markdown, of_settings, origin, short_difference
from tf_adapters.studies.numbers import paired, spread

# Of the first all others are subtracted.
ARMS = {
    "transformers": "--door transformers --precision float32 --no-fast",
    "transformers-fast": "--door transformers --precision float32 --fast",
    "transformers-bfloat16": "--door transformers --precision mixed_bfloat16 --fast",
    "keras-hub-tensorflow": "--door keras-hub --backend tensorflow --precision float32 --no-fast",
    "keras-hub-tensorflow-fast": "--door keras-hub --backend tensorflow --precision float32 --fast",
    "keras-hub-tensorflow-bfloat16": "--door keras-hub --backend tensorflow --precision mixed_bfloat16 --fast",
    "keras-hub-jax": "--door keras-hub --backend jax",
    "keras-hub-torch": "--door keras-hub --backend torch",
    "usual": "",
    "before": "",
}
# The command of the checkout that the first word names, wherever this process was started.
_COMMAND = "import runpy, sys; sys.path[0] = sys.argv.pop(1); runpy.run_module('tf_adapters', run_name='__main__')"


def parse(arguments=None):
    goes_on = "Each seed of an arm is a process of its own. What is done in the folder is not done again."
    parser = make_parser(f"{__doc__} {goes_on}", smoke="64 rows, one epoch")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["transformers", "keras-hub-jax"])
    parser.add_argument("--seeds", type=at_least_1, default=3)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("doors"), help="where the runs lie")
    parser.add_argument("--options", default="", help="further words for `train`, such as '--max-train-rows 4000'")
    help = "another checkout of this project, whose command the arm `before` is"
    parser.add_argument("--before", type=pathlib.Path, metavar="CHECKOUT", help=help)
    options = parse_arguments(parser, arguments, "doors", seeds=2, options="--max-train-rows 64 --epochs 1")
    if (options.before is not None) != ("before" in options.arms):
        parser.error("the arm `before` and --before go together.")
    if options.before and not (options.before / "tf_adapters").is_dir():
        parser.error(f"--before {options.before} is no checkout of this project.")
    return options


def run(options):
    """Train each arm with each seed, in turns; dict of arms with their scores from 0 to 1, the seconds of their
    processes, differences from the first arm and its seconds as a multiple of theirs."""
    done = {arm: [] for arm in options.arms}
    for seed in range(options.seeds):
        for arm in in_turn(options.arms, seed):
            done[arm].append(_trained(arm, seed, options))
    arms = {}
    for arm, runs in done.items():
        scores, seconds = ([run[what] for run in runs] for what in ("score", "seconds"))
        arms[arm] = {"metric": runs[0]["metric"], "scores": scores, **spread(scores), "seconds": seconds}
        if len(arms) > 1:
            first = arms[options.arms[0]]
            arms[arm]["minus_first"] = paired(scores, first["scores"])
            arms[arm]["first_over_this"] = paired_ratio(
                *([[one] for one in of["seconds"]] for of in (first, arms[arm]))
            )
    return {"arms": arms, **({"before": git_state(options.before)["commit"]} if options.before else {})}


def _trained(arm, seed, options):
    """Score and seconds of a process, which ran before if it is done."""
    folder = options.folder / arm / str(seed)
    kept = folder.with_suffix(".json")
    if not kept.exists():
        words = [
            "train",
            *ARMS[arm].split(),
            "--seed",
            seed,
            "--output",
            folder,
            "--overwrite",
            *options.options.split(),
        ]
        checkout = options.before.resolve() if arm == "before" else ROOT
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", _COMMAND, *map(str, [checkout, *words])], check=True)
        seconds = time.perf_counter() - begun
        numbers = json.loads((folder / "tf_adapters.json").read_text(encoding="utf-8"))["result"]["numbers"]
        metric, score = next(iter(numbers.items()))
        log(f"{arm}, seed {seed}: {metric} {score:.4f} in {seconds:.0f} s")
        kept.write_text(json.dumps({"metric": metric, "score": score, "seconds": seconds}), encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8"))


def table(result):
    """Markdown of one result of doors.py."""
    settings, arms, rows = result["settings"], result["arms"], []
    first, metric = next(iter(arms)), next(iter(arms.values()))["metric"]
    timed = all("seconds" in found for found in arms.values())  # results of before are not
    for arm, found in arms.items():
        spread = "" if found["sd"] is None else f" ± {in_points(found['sd'])}"
        row = (arm, in_points(found["mean"]) + spread, short_difference(found.get("minus_first")))
        if timed:
            row += (f"{extremes(found['seconds'])['median']:.0f}", in_ratio(found.get("first_over_this")))
        rows.append(row)
    further = f", `{settings['options']}`" if settings["options"] else ""
    further += f"; before: commit {result['before'][:7]}" if "before" in result else ""
    head = f"| door, backend | test {metric} | minus {first}, points (95 %) |"
    if timed:
        head += f" whole process, s | {first} / this |"
    return markdown(
        "`train` through each door, on the README's task if none is named", head, "lllrl" if timed else "lll", rows,
        origin(result, f"`tf-adapters train`{further}, {settings['seeds']} seeds"),
    )  # fmt: skip


TABLE = Table(table, lambda result: (*of_settings("options", "seeds")(result), "before" in result))


def main():
    options = parse()
    finish("doors", options, ("arms", "seeds", "options"), run(options), table)
