"""Every task at a small budget: adapter tuning and full fine-tuning on MiniLM beside the constant answer."""

import argparse
import dataclasses
import json
import os
import pathlib
import sys

from benchmarks.pairing import mean_and_spread, paired_difference
from benchmarks.provenance import provenance
from benchmarks.result_file import RESULTS
from benchmarks.studies.training_runs import Runs, held_out_of_train, make_run
from benchmarks.table_parts import METHOD_TITLES, MODEL_TITLES, NOTES, README, Table, mean_and_sd, of_settings, origin, short_difference

METHODS = ("adapters", "full")
# Further ways of adapter tuning, which should change nothing but its speed.
VARIANTS = ("fast", "unsorted")
# Each name, and further ones whose test split is scored by the same model (zero-shot).
TASKS = {
    "glue/cola": (), "glue/sst2": (), "glue/mrpc": (), "glue/rte": (), "glue/stsb": (), "glue/wnli": (),
    "tae/chemprot": (), "tae/acl-arc": (), "tae/scierc": (),
    "crowdflower/airline": (), "crowdflower/corporate-messaging": (), "crowdflower/emotion": (),
    "crowdflower/global-warming": (), "sms-spam": (),
    "ud/en_ewt": ("ud/fr_sequoia", "ud/tr_imst"), "ner/ncbi-disease": (), "xquad/en": (),
}  # fmt: skip
# Questions come with a paragraph.
LENGTHS = {"question-answering": 256}
# Of a task without a labelled test split, at most a fifth of the training rows chooses the epoch.
VALIDATION_SHARE = 5


def prepare(task, settings, seed):
    """The task at the study's budget, and the labelled rows to report on.

    Where the test split has labels it is reported, and validation chooses the epoch; otherwise
    validation is reported, and rows of the training split, drawn by the seed, choose.
    """
    from tf_adapters.tasks.rows import sample_rows

    if task.test is not None and task.test.labels is not None:
        train = sample_rows(task.train, count=settings["rows"], seed=seed)
        validation = sample_rows(task.validation, count=settings["validation_rows"], seed=seed)
        return dataclasses.replace(task, train=train, validation=validation, test=None), task.test
    held_out = min(settings["validation_rows"], len(task.train) // VALIDATION_SHARE)
    return held_out_of_train(task, min(settings["rows"], len(task.train) - held_out), held_out, seed)[:2]


def constant_score(task, reported):
    """The metric of answering each row alike, with the rows' most frequent label, or None."""
    from tf_adapters.kinds import get_kind
    from tf_adapters.tasks.metrics import METRICS

    kind = get_kind(task.kind)
    constant = kind.constant(reported, task.labels)
    return None if constant is None else kind.score(task.metric, reported, constant)[METRICS[task.metric].primary]


def summarise(runs):
    """Means, spreads and paired differences by task, as a dict for JSON.

    Args:
        runs: list of runs, as `runs.jsonl` has them.

    Returns: dict from task to metric, rows, constant score, and for each set of reported rows
        ("reported", and the names of zero-shot ones) and method mean, sd, sem and n.
    """
    from collections import defaultdict

    by_task = defaultdict(lambda: defaultdict(list))
    for run in runs:
        by_task[run["settings"]["task"]][run["method"]].append(run)
    chosen = {
        name: {method: {run["seed"]: run for run in at_best_rate(of_method)} for method, of_method in by_method.items()}
        for name, by_method in by_task.items()
    }
    return {name: _summarise_task(by_method) for name, by_method in chosen.items()}


def at_best_rate(runs):
    """Of one method's runs on a task those at one learning rate: the best by validation at the first seed that was run.

    A run that diverged is worse than any other; of equal rates the lowest counts.
    """
    first = [run for run in runs if run["seed"] == runs[0]["seed"]]
    best = max(first, key=lambda run: (run.get("validation_best") is not None, run.get("validation_best") or 0.0, -run["learning_rate"]))
    return [run for run in runs if run["learning_rate"] == best["learning_rate"]]


def _summarise_task(by_method):
    any_run = next(run for runs in by_method.values() for run in runs.values())
    summary = {name: any_run[name] for name in ("metric", "train_rows", "reported_rows", "constant")}
    summary["results"] = {}
    for scored in any_run["primary"]:
        values = {
            method: {seed: run["primary"][scored] for seed, run in runs.items() if run["primary"] is not None}
            for method, runs in by_method.items()
        }
        result = {
            method: {**mean_and_spread(list(scores.values())), "learning_rate": next(iter(by_method[method].values()))["learning_rate"]}
            for method, scores in values.items() if scores
        }  # fmt: skip
        for one, other in [("adapters", "full"), *[(variant, "adapters") for variant in VARIANTS]]:
            both = [seed for seed in values.get(one, ()) if seed in values.get(other, ())]
            if both:
                result[f"{one} - {other}"] = paired_difference(*[[values[method][seed] for seed in both] for method in (one, other)])
        summary["results"][scored] = result
    return summary


def describe(summary):
    """The summary as lines of text, in per cent: mean and standard deviation."""
    methods = methods_of(summary)
    lines = [f"{'task':34}{'metric':18}{'rows':>7}{'constant':>9}{''.join(f'{method:>15}' for method in methods)}  n"]
    for name, task in summary.items():
        for scored, result in task["results"].items():
            title = name if scored == "reported" else f"  on {scored}"
            constant = task["constant"] if scored == "reported" else None
            cells = [f"{_cell(result.get(method)):>15}" for method in methods]
            n = max(result[method]["n"] for method in methods if method in result)
            lines.append(
                f"{title:34}{task['metric']:18}{task['train_rows']:7,}{'' if constant is None else f'{100 * constant:.1f}':>9}"
                f"{''.join(cells)}  {n}"
            )
    return "\n".join(lines)


def methods_of(summary):
    """The methods that a summary's tasks were run with."""
    results = [result for task in summary.values() for result in task["results"].values()]
    return [method for method in (*METHODS, *VARIANTS) if any(method in result for result in results)]


def _cell(numbers):
    if numbers is None:
        return "-"
    spread = "" if numbers["sd"] is None else f" ± {100 * numbers['sd']:.1f}"
    return f"{100 * numbers['mean']:.1f}{spread}"


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__ + " Tasks whose files are not below --data-dir are named and passed over. Each finished run is one "
        "line of runs.jsonl in the output folder: the same command goes on where a killed one stopped, and more --seeds "
        "are added to those there.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--data-dir", required=True, help="folder that holds the tasks' files in its folders")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), metavar="TASK", help="names, as `tf-adapters tasks` lists")
    parser.add_argument(
        "--methods", nargs="+", default=METHODS, choices=(*METHODS, *VARIANTS), metavar="METHOD",
        help="adapters, full; fast: adapters with fast blocks in mixed_bfloat16; unsorted: adapters on batches of random rows, not "
        "of rows of like length",
    )
    parser.add_argument("--model", default="minilm", help="minilm, a checkpoint directory, or a hub id")
    parser.add_argument("--rows", type=int, default=2000, help="at most this many training rows, sampled by the seed")
    parser.add_argument("--validation-rows", type=int, default=500, help="at most this many rows choose the epoch")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--bottleneck", type=int, default=64, help="units of an adapter")
    parser.add_argument("--train-layer-norm", default="all", help="none, adapted, encoder or all")
    rates = "; of several, a task has the best by validation at the first seed"
    parser.add_argument("--adapter-learning-rate", type=float, nargs="+", default=[1e-3], help="of adapter tuning, without dropout" + rates)
    parser.add_argument("--init-stddev", type=float, default=0.03, help="of the adapters")
    parser.add_argument("--full-learning-rate", type=float, nargs="+", default=[5e-5], help="of full fine-tuning" + rates)
    parser.add_argument("--max-length", type=int, default=128, help="tokens kept of a text; questions have 256")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), default="float32")
    parser.add_argument(
        "--output", type=pathlib.Path,
        help="folder; default: benchmarks/results/tasks-minilm, or variants-minilm with one of the methods fast and unsorted",
    )
    return parser.parse_args(arguments)


def table(result):
    """Markdown of one summary of tasks.py."""
    settings = result["settings"]
    model = MODEL_TITLES.get(settings["model"], settings["model"])
    scores = [numbers for task in result["tasks"].values() for numbers in task["results"].values()]
    methods = [method for method in METHOD_TITLES if any(method in numbers for numbers in scores)]
    variants = [method for method in methods if method in VARIANTS]
    columns = "".join(f" {METHOD_TITLES[method]} |" for method in methods)
    columns += "".join(f" {method} minus adapters, points |" for method in variants)
    title = "Variants of adapter tuning" if variants else "Tasks"
    lines = [
        f"**{title}, {model}: at most {settings['rows']:,} training rows, {settings['epochs']} epochs, mean ± standard "
        "deviation over seeds, in %**",
        "",
        f"| | metric | training rows | constant answer |{columns} seeds |",
        "|---|---|---:|---:|" + "---:|" * (len(methods) + len(variants) + 1),
    ]
    for name, task in result["tasks"].items():
        for scored, numbers in task["results"].items():
            own = scored == "reported"
            constant = f"{100 * task['constant']:.1f}" if own and task["constant"] is not None else ""
            cells = " | ".join(
                [mean_and_sd(numbers.get(method)) for method in methods]
                + [short_difference(numbers.get(f"{variant} - adapters")) for variant in variants]
            )
            seeds = max(numbers[method]["n"] for method in methods if method in numbers)
            lines.append(
                f"| {name if own else f'{name}, zero-shot on {scored}'} | {task['metric'].replace('_', ' ')} "
                f"| {task['train_rows']:,} | {constant} | {cells} | {seeds} |"
            )
    for name, problem in result["passed_over"].items():
        lines.append(f"| {name} | not run: {problem.splitlines()[0]} |" + " |" * (len(methods) + len(variants) + 3))
    lines += ["", origin(result, "tasks.py" + _rates(scores, methods))]
    return "\n".join(lines)


def _rates(scores, methods):
    """The learning rates that the methods had, where there were several, in words."""
    rates = {method: sorted({numbers[method]["learning_rate"] for numbers in scores if "learning_rate" in numbers.get(method, {})}) for method in methods}
    if all(len(of_method) < 2 for of_method in rates.values()):
        return ""
    listed = ", ".join(f"{method} {' or '.join(f'{rate:g}' for rate in of_method)}" for method, of_method in rates.items())
    return f"; learning rates, chosen for each task by validation at the first seed: {listed}"


def _methods(result):
    return sorted({name for task in result["tasks"].values() for numbers in task["results"].values() for name in numbers})


TABLE = Table(
    table,
    lambda result: (*of_settings("model", "rows", "epochs")(result), *_methods(result)),
    lambda result: NOTES if set(VARIANTS) & set(_methods(result)) else README,
)


def main():
    options = parse()
    study_name = "variants" if set(options.methods) & set(VARIANTS) else "tasks"
    folder = options.output or RESULTS / f"{study_name}-minilm"
    runs = Runs(folder)
    try:
        passed_over = study(options, runs)
    except KeyboardInterrupt:
        _log("Stopped; the finished runs are kept, and the same command goes on.")
        sys.exit(130)
    if not runs.runs:
        sys.exit(f"No task's files were found below {options.data_dir}: {passed_over}")
    summary = {"kind": "tasks", **provenance(), "passed_over": passed_over, "tasks": summarise(runs.runs)}
    summary["settings"] = {name: value for name, value in runs.runs[-1]["settings"].items() if name != "task"}
    summary |= {name: runs.runs[-1][name] for name in ("versions", "git")}
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(describe(summary["tasks"]))
    print(f"Written to {os.path.relpath(folder)}/summary.json")


def study(options, runs):
    """Do the runs that are missing, seed by seed, so that a stopped study has all tasks; returns why tasks were not run."""
    names = ("rows", "validation_rows", "epochs", "batch_size", "bottleneck", "train_layer_norm", "max_length", "precision")
    settings = {"model": os.path.basename(options.model), **{name: getattr(options, name) for name in names}}
    adapters = {"dropout": 0.0, "init_stddev": options.init_stddev}
    points = {
        "adapters": adapters, "full": {"dropout": None, "init_stddev": None}, "fast": {**adapters, "precision": "mixed_bfloat16"},
        "unsorted": adapters,
    }  # fmt: skip
    rates = {method: options.full_learning_rate if method == "full" else options.adapter_learning_rate for method in points}

    def runs_of(name, method, seed):
        """What is to be run: at the first seed every rate, and then the best."""
        grid = [{"method": method, **points[method], "learning_rate": rate, "seed": options.seeds[0]} for rate in rates[method]]
        found = [runs.find({**settings, "task": name}, run) for run in grid]
        if seed == options.seeds[0] or None in found:
            return grid if seed == options.seeds[0] else []
        return [{**grid[0], "learning_rate": at_best_rate(found)[0]["learning_rate"], "seed": seed}]

    passed_over = {}
    for seed in options.seeds:
        for name in options.tasks:
            wanted = [run for method in options.methods for run in runs_of(name, method, seed)]
            missing = [run for run in wanted if runs.find({**settings, "task": name}, run) is None]
            if missing and name not in passed_over:
                problem = _run_task(name, {**settings, "task": name}, missing, options, runs)
                if problem:
                    passed_over[name] = problem
    return passed_over


def _run_task(name, settings, missing, options, runs):
    """Run one task at one seed; returns why it cannot be, or None."""
    import tf_adapters
    from tf_adapters.tasks.metrics import METRICS
    from tf_adapters.tasks.registry import load_split

    try:
        task = tf_adapters.load_task(name, data_dir=options.data_dir)
        others = {
            other: load_split(other, "test", data_dir=options.data_dir).rows for other in TASKS.get(name, ())
        }
    except tf_adapters.InputError as error:
        _log(f"{name}: passed over: {error}")
        return str(error)
    seed = missing[0]["seed"]
    data, reported = prepare(task, settings, seed)
    run = make_run({**settings, "max_length": LENGTHS.get(task.kind, settings["max_length"])}, options.model)
    for identity in missing:
        _log(f"{name}, {identity['method']}, learning rate {identity['learning_rate']:g}, seed {seed}: {len(data.train):,} training rows ...")
        done = run(data, {"reported": reported, **others}, **identity, log=_log)
        primary = METRICS[task.metric].primary
        scores = done["scores"]
        runs.add({
            **identity, **done, "settings": settings, "metric": primary, "train_rows": len(data.train),
            "reported_rows": len(reported), "constant": constant_score(task, reported),
            "primary": scores and {scored: numbers[primary] for scored, numbers in scores.items()},
        })  # fmt: skip
        if scores:
            _log("  " + ", ".join(f"{scored} {100 * numbers[primary]:.1f} %" for scored, numbers in scores.items()))
    return None


def _log(line):
    print(line, file=sys.stderr, flush=True)
