"""SST-2 on MiniLM: adapter tuning against full fine-tuning, each at its own best learning rate and dropout."""

import argparse
import itertools
import json
import os
import pathlib
import sys
import tempfile

from benchmarks.pairing import mean_and_spread, paired_difference
from benchmarks.provenance import provenance
from benchmarks.result_file import RESULTS
from benchmarks.studies.training_runs import Runs, held_out_of_train, make_run
from benchmarks.table_parts import METHOD_TITLES, MODEL_TITLES, Table, of_settings, origin

METHODS = ("adapters", "full")
# What the grid is over; None stands for the encoder's own dropout and for the paper's 0.01.
POINT = ("learning_rate", "dropout", "init_stddev")


def study(settings, *, grids, seeds, runs, train, finalists=1, further_rows=None, log=print):
    """Do what is missing: the grid at the first seed, then its best points at the others.

    Points are chosen by the validation rows, which the reported rows have no part in: the finalists by
    the first seed, and of them the one with the best mean over the seeds.

    Args:
        settings: dict that a run must equal to count as this study's.
        grids: dict from method to its points, dicts of learning_rate, dropout (None: the encoder's
            own) and init_stddev (None: 0.01, of Houlsby et al.).
        seeds: ints; the grid is run at the first.
        runs: `Runs`.
        train: function of method, seed and a point's values that returns a run's results, a dict.
        finalists: int, how many points of a grid are run at every seed.
        further_rows: int, how many further rows `train` scores, or None.
        log: function for progress lines.

    Returns: dict from method to its runs at the best point, in the order of the seeds.
    """
    total = sum(len(grid) + min(finalists, len(grid)) * (len(seeds) - 1) for grid in grids.values())
    count = 0

    def complete(run):
        """A run that reports no further rows, or another number of them, is done again."""
        if run["accuracy"] is None or further_rows in (None, run.get("further_rows")):
            return run
        log(f"Once more, for the further rows: {run['method']}, {_describe_point(run)}, seed {run['seed']} ...")
        return do({name: run.get(name) for name in ("method", *POINT, "seed")})

    def do(identity):
        run = {**train(**identity), **identity, "settings": settings}
        runs.add(run)
        return run

    def get(method, point, seed):
        nonlocal count
        count += 1
        what = f"run {count}/{total}: {method}, {_describe_point(point)}, seed {seed}"
        identity = {"method": method, **point, "seed": seed}
        run = runs.find(settings, identity)
        if run is None:
            log(f"{what} ...")
            run = do(identity)
        else:
            log(f"{what}, done before")
        if run["accuracy"] is None:
            log(f"  failed: {run['failure']}")
        else:
            log(
                f"  validation {100 * run['validation_best']:.2f} % (epoch {run['best_epoch']}), "
                f"reported rows {100 * run['accuracy']:.2f} %, {run['seconds']:.0f} s"
            )
        return run

    first = {method: [get(method, point, seeds[0]) for point in points] for method, points in grids.items()}
    best = {}
    for method, grid in first.items():
        candidates = []
        for chosen in rank(grid)[:finalists]:
            point = {name: chosen.get(name) for name in POINT}
            candidates.append([chosen] + [get(method, point, seed) for seed in seeds[1:]])
        # Sorting is stable: of equal means the one that the first seed prefers.
        candidates.sort(key=_mean_validation, reverse=True)
        best[method] = [complete(run) for run in candidates[0]]
        log(f"{method}: best is {_describe_point(best[method][0])}")
    return best


def _mean_validation(runs):
    diverged = any(run["accuracy"] is None for run in runs)
    return -1.0 if diverged else sum(run["validation_best"] for run in runs) / len(runs)


def _describe_point(point):
    return f"learning rate {point['learning_rate']:g}" + "".join(
        f", {name.replace('_', ' ')} {point[name]:g}" for name in POINT[1:] if point.get(name) is not None
    )


def rank(grid):
    """The runs that did not diverge, the highest validation accuracy first; of equal ones that of the smallest rate."""
    grid = [run for run in grid if run["accuracy"] is not None]
    if not grid:
        raise RuntimeError("Training diverged at every learning rate of the grid: give lower ones.")
    return sorted(grid, key=lambda run: (-run["validation_best"], run["learning_rate"]))


def summarise(best, grids):
    """Means, spreads and the paired difference, as a dict for JSON; accuracies from 0 to 1."""
    methods = {}
    for method, runs in best.items():
        failed = [run["seed"] for run in runs if run["accuracy"] is None]
        if failed:
            raise RuntimeError(f"{method} diverged at its best learning rate with seed {failed[0]}: give a lower grid.")
        rate = runs[0]["learning_rate"]
        rates = sorted({point["learning_rate"] for point in grids[method]})
        methods[method] = {
            "learning_rate": rate,
            "dropout": runs[0].get("dropout"),
            "init_stddev": runs[0].get("init_stddev"),
            "grid": grids[method],
            # A best rate at the edge says that the grid may not hold the true best.
            "at_edge_of_grid": len(rates) > 1 and rate in (rates[0], rates[-1]),
            "trained_parameters": runs[0]["trained_parameters"],
            "accuracies": [run["accuracy"] for run in runs],
            **mean_and_spread([run["accuracy"] for run in runs]),
            "further": mean_and_spread([run["further_accuracy"] for run in runs]),
            "further_accuracies": [run["further_accuracy"] for run in runs],
            "validation_mean": _mean_validation(runs),
            "seconds": mean_and_spread([run["seconds"] for run in runs])["mean"],
        }
    differences = {
        name: paired_difference(methods["adapters"][values], methods["full"][values])
        for name, values in (("adapters - full", "accuracies"), ("adapters - full, further rows", "further_accuracies"))
    }
    return {"methods": methods, **differences}


def describe(summary):
    """The summary as lines of text, in percentage points."""
    titles = f"{'method':10}{'best rate':>10}{'dropout':>9}{'init':>6}{'mean %':>9}{'sd':>7}{'s.e.m.':>8}{'trained':>13}{'s/run':>8}"
    lines = [f"{titles}  accuracies"]
    for method, row in summary["methods"].items():
        accuracies = " ".join(f"{100 * value:.2f}" for value in row["accuracies"])
        edge = "  (rate at the edge of its grid)" if row["at_edge_of_grid"] else ""
        lines.append(
            f"{method:10}{row['learning_rate']:10g}{_value(row['dropout']):>9}{_value(row['init_stddev']):>6}{100 * row['mean']:9.2f}{_points(row['sd']):>7}"
            f"{_points(row['sem']):>8}{row['trained_parameters']:13,}{row['seconds']:8.0f}  {accuracies}{edge}"
        )
    for name in ("adapters - full", "adapters - full, further rows"):
        difference = summary[name]
        text = f"{name}: {100 * difference['mean']:+.2f} points"
        if difference["interval"]:
            low, high = difference["interval"]
            text += f", 95 % interval {100 * low:+.2f} to {100 * high:+.2f} (paired t, {difference['n']} seeds)"
        lines.append(text)
    return "\n".join(lines)


def _value(value):
    return "-" if value is None else f"{value:g}"


def _points(value):
    return "-" if value is None else f"{100 * value:.2f}"


def make_trainer(settings, model_source, data_dir, further_rows):
    """The function that trains and scores one run; loads TensorFlow and the data once."""
    import tf_adapters

    task = tf_adapters.load_task(settings["task"], data_dir=data_dir)
    needed = settings["rows"] + settings["validation_rows"] + further_rows
    if needed > len(task.train):
        sys.exit(f"--rows, --validation-rows and --further-rows ask for {needed} rows, and the training split has {len(task.train)}.")
    run = make_run(settings, model_source)

    def train(method, seed, **point):
        data, reported, further = held_out_of_train(task, settings["rows"], settings["validation_rows"], seed)
        further = further(further_rows)
        done = run(data, {"reported": reported, "further": further}, method, seed, log=_log, **point)
        scores = done.pop("scores")
        if scores is None:
            return {"accuracy": None, **done}
        return {
            "accuracy": scores["reported"]["accuracy"], "reported_rows": len(reported),
            "further_accuracy": scores["further"]["accuracy"], "further_rows": len(further), **done,
        }  # fmt: skip

    return train


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__ + " Learning rate, dropout and epoch are chosen on validation rows that are sampled from "
        "the training split; the accuracies reported are those of the task's own validation split (SST-2: 872 "
        "rows), which chooses nothing. Each finished run is one line of runs.jsonl in the output folder: the same "
        "command goes on where a killed one stopped.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--data-dir", help="folder with tfds glue/sst2; default: tensorflow_datasets' own")
    parser.add_argument("--task", default="glue/sst2", help="a classification task scored by accuracy")
    parser.add_argument("--model", default="minilm", help="minilm, a checkpoint directory, or a hub id")
    parser.add_argument("--rows", type=int, default=8000, help="training rows, sampled by the seed")
    parser.add_argument("--validation-rows", type=int, default=1000, help="rows that choose rate and epoch")
    parser.add_argument(
        "--further-rows", type=int, default=6000, help="rows of the training split that nothing else uses, scored too"
    )
    parser.add_argument("--epochs", type=int, default=3, help="of both methods")
    parser.add_argument("--batch-size", type=int, default=16, help="of both methods")
    parser.add_argument("--bottleneck", type=int, default=64, help="units of an adapter")
    parser.add_argument("--train-layer-norm", default="all", help="none, adapted, encoder or all")
    parser.add_argument("--max-length", type=int, default=128, help="tokens kept of a sentence")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="the grid is run at the first")
    parser.add_argument("--adapter-learning-rates", type=float, nargs="+", default=[5e-4, 1e-3, 2e-3, 3e-3])
    parser.add_argument("--full-learning-rates", type=float, nargs="+", default=[2e-5, 5e-5, 1e-4, 2e-4])
    number = {"type": lambda text: None if text == "default" else float(text), "nargs": "+", "metavar": "X"}
    parser.add_argument("--adapter-dropouts", default=[0.0], **number, help="of the encoder; `default` for its own")
    parser.add_argument("--full-dropouts", default=[None], **number, help="the same for full fine-tuning")
    parser.add_argument("--init-stddevs", default=[None, 0.03], **number, help="of the adapters; `default` for 0.01")
    parser.add_argument("--finalists", type=int, default=2, help="points of a grid that are run at every seed")
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), default="float32")
    parser.add_argument("--output", type=pathlib.Path, help="folder; default: benchmarks/results/sst2-minilm")
    parser.add_argument("--smoke", action="store_true", help="64 rows, 1 epoch, 2 seeds, nothing kept: does it run?")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.rows, options.validation_rows, options.further_rows, options.epochs = 64, 32, 32, 1
        options.seeds = [0, 1]
        options.adapter_learning_rates, options.full_learning_rates, options.init_stddevs = [1e-3], [5e-5], [None]
    if options.finalists < 1:
        parser.error(f"--finalists {options.finalists} must be at least 1.")
    if len(set(options.seeds)) != len(options.seeds):
        parser.error("--seeds names a seed twice.")
    return options


def table(result):
    """Markdown of one summary of quality.py."""
    settings = result["settings"]
    model = MODEL_TITLES.get(settings["model"], settings["model"])
    lines = [
        f"**{settings['task']}, {model}: {settings['rows']:,} training rows, {settings['epochs']} epochs, accuracy on "
        f"{result['reported_rows']:,} rows that chose nothing**",
        "",
        "| | best learning rate | dropout | adapters' init | accuracy, % | sd | s.e.m. | trained parameters |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for method, row in result["methods"].items():
        lines.append(
            f"| {METHOD_TITLES[method]} | {row['learning_rate']:g}{' (edge of its grid)' if row['at_edge_of_grid'] else ''} "
            f"| {_dropout(row['dropout'])} | {_init(method, row)} | {100 * row['mean']:.2f} | {_in_points(row['sd'])} | {_in_points(row['sem'])} "
            f"| {row['trained_parameters']:,} |"
        )
    lines += ["", f"Adapters minus full fine-tuning: {_difference(result['adapters - full'])}."]
    if "further_rows" in result:
        means = ", ".join(f"{METHOD_TITLES[method]} {100 * row['further']['mean']:.2f} %" for method, row in result["methods"].items())
        lines[-1] += (
            f" On {result['further_rows']:,} further rows of the training split, phrases of the same sentences as the training rows: "
            f"{means}; {_difference(result['adapters - full, further rows'])}."
        )
    lines += ["", origin(result, f"seeds {', '.join(map(str, result['seeds']))}")]
    return "\n".join(lines)


def _difference(difference):
    text = f"{100 * difference['mean']:+.2f} points"
    if difference["interval"]:
        low, high = difference["interval"]
        text += f", 95 % interval {100 * low:+.2f} to {100 * high:+.2f} (paired t, {difference['n']} seeds)"
    return text


def _dropout(rate):
    return "encoder's" if rate is None else f"{rate:g}"


def _init(method, row):
    return "" if method == "full" else "0.01" if row["init_stddev"] is None else f"{row['init_stddev']:g}"


def _in_points(value):
    return "" if value is None else f"{100 * value:.2f}"


TABLE = Table(table, of_settings("task", "model", "rows", "epochs"))


def main():
    options = parse()
    names = (
        "task", "rows", "validation_rows", "epochs", "batch_size", "bottleneck", "train_layer_norm", "max_length",
        "precision",
    )
    is_path = os.path.isdir(options.model)
    name_of_model = os.path.basename(os.path.abspath(options.model)) if is_path else options.model
    settings = {"model": name_of_model, **{name: getattr(options, name) for name in names}}
    values = {
        "adapters": (options.adapter_learning_rates, options.adapter_dropouts, options.init_stddevs),
        "full": (options.full_learning_rates, options.full_dropouts, [None]),
    }
    grids = {method: [dict(zip(POINT, point)) for point in itertools.product(*axes)] for method, axes in values.items()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.output or (pathlib.Path(temporary) if options.smoke else RESULTS / "sst2-minilm")
        runs = Runs(folder)
        try:
            best = study(
                settings,
                grids=grids,
                seeds=options.seeds,
                runs=runs,
                train=_lazily(settings, options.model, options.data_dir, options.further_rows),
                finalists=options.finalists,
                further_rows=options.further_rows,
                log=_log,
            )
            outcome = summarise(best, grids)
        except KeyboardInterrupt:
            _log("Stopped; the finished runs are kept, and the same command goes on.")
            sys.exit(130)
        except RuntimeError as error:
            sys.exit(str(error))
        summary = {"kind": "quality", **provenance(), "settings": settings, "seeds": options.seeds, **outcome}
        # Of the runs, which may be older than this command.
        summary |= {name: best["adapters"][0][name] for name in ("versions", "git")}
        summary |= {name: best["adapters"][0][name] for name in ("reported_rows", "further_rows")}
        (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
        print(describe(summary))
        if options.output or not options.smoke:
            print(f"Written to {os.path.relpath(folder)}/summary.json")


def _lazily(*arguments):
    """A trainer that is made at the first run that is missing."""
    made = []

    def train(**run):
        if not made:
            _log("Loading TensorFlow and the data ...")
            made.append(make_trainer(*arguments))
        return made[0](**run)

    return train


def _log(line):
    print(line, file=sys.stderr, flush=True)
