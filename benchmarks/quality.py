"""SST-2 on MiniLM: adapter tuning against full fine-tuning, each at its own best learning rate and dropout."""

import argparse
import gc
import json
import os
import pathlib
import sys
import tempfile
import time

from pairing import mean_and_spread, paired_difference
from provenance import git_state, provenance
from worker_protocol import installed_versions

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
METHODS = ("adapters", "full")


class Runs:
    """The finished runs of a folder: `runs.jsonl`, one line each, only ever added to.

    Args:
        folder: path; made when the first run is added.
    """

    def __init__(self, folder):
        self.path = pathlib.Path(folder) / "runs.jsonl"
        self.runs = []
        if not self.path.exists():
            return
        text = self.path.read_bytes()
        complete = text[: text.rfind(b"\n") + 1]
        if complete != text:
            # A killed command left half a line; the next one must not continue it.
            os.truncate(self.path, len(complete))
        self.runs = [json.loads(line) for line in complete.decode().splitlines()]

    def find(self, settings, identity):
        """The finished run with these settings and this method, learning rate, dropout and seed, or None."""
        for run in self.runs:
            # The first runs were made before dropout was a part of the grid, with the encoder's own.
            if run["settings"] == settings and all(run.get(name) == value for name, value in identity.items()):
                return run
        return None

    def add(self, run):
        """Append one finished run."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(run) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.runs.append(run)


def study(settings, *, grids, seeds, runs, train, log=print):
    """Do what is missing: the grid at the first seed, then its best point at the others.

    The point is chosen by the validation rows, which the reported rows have no part in.

    Args:
        settings: dict that a run must equal to count as this study's.
        grids: dict from method to its points, pairs of learning rate and dropout (None: the
            encoder's own).
        seeds: ints; the grid is run at the first.
        runs: `Runs`.
        train: function of method, learning rate, dropout and seed that returns a run's results, a dict.
        log: function for progress lines.

    Returns: dict from method to its runs at the best point, in the order of the seeds.
    """
    total = sum(map(len, grids.values())) + len(grids) * (len(seeds) - 1)
    count = 0

    def get(method, rate, dropout, seed):
        nonlocal count
        count += 1
        what = f"run {count}/{total}: {method}, learning rate {rate:g}, dropout {_dropout(dropout)}, seed {seed}"
        identity = {"method": method, "learning_rate": rate, "dropout": dropout, "seed": seed}
        run = runs.find(settings, identity)
        if run is None:
            log(f"{what} ...")
            run = {**identity, **train(**identity), **identity, "settings": settings}
            runs.add(run)
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

    first = {method: [get(method, *point, seeds[0]) for point in points] for method, points in grids.items()}
    best = {}
    for method, grid in first.items():
        chosen = choose(grid)
        point = chosen["learning_rate"], chosen.get("dropout")
        log(f"{method}: best learning rate {point[0]:g} with dropout {_dropout(point[1])}")
        best[method] = [chosen] + [get(method, *point, seed) for seed in seeds[1:]]
    return best


def _dropout(rate):
    return "of the encoder" if rate is None else f"{rate:g}"


def choose(grid):
    """The run with the highest validation accuracy; of equal ones that of the smallest rate."""
    grid = [run for run in grid if run["accuracy"] is not None]
    if not grid:
        raise RuntimeError("Training diverged at every learning rate of the grid: give lower ones.")
    return max(grid, key=lambda run: (run["validation_best"], -run["learning_rate"]))


def summarise(best, grids):
    """Means, spreads and the paired difference, as a dict for JSON; accuracies from 0 to 1."""
    methods = {}
    for method, runs in best.items():
        failed = [run["seed"] for run in runs if run["accuracy"] is None]
        if failed:
            raise RuntimeError(f"{method} diverged at its best learning rate with seed {failed[0]}: give a lower grid.")
        rate = runs[0]["learning_rate"]
        rates = sorted({rate for rate, _ in grids[method]})
        methods[method] = {
            "learning_rate": rate,
            "dropout": runs[0].get("dropout"),
            "grid": grids[method],
            # A best rate at the edge says that the grid may not hold the true best.
            "at_edge_of_grid": len(rates) > 1 and rate in (rates[0], rates[-1]),
            "trained_parameters": runs[0]["trained_parameters"],
            "accuracies": [run["accuracy"] for run in runs],
            **mean_and_spread([run["accuracy"] for run in runs]),
            "seconds": mean_and_spread([run["seconds"] for run in runs])["mean"],
        }
    difference = paired_difference(methods["adapters"]["accuracies"], methods["full"]["accuracies"])
    return {"methods": methods, "adapters - full": difference}


def describe(summary):
    """The summary as lines of text, in percentage points."""
    titles = f"{'method':10}{'best rate':>10}{'dropout':>16}{'mean %':>9}{'sd':>7}{'s.e.m.':>8}{'trained':>13}{'s/run':>8}"
    lines = [f"{titles}  accuracies"]
    for method, row in summary["methods"].items():
        accuracies = " ".join(f"{100 * value:.2f}" for value in row["accuracies"])
        edge = "  (rate at the edge of its grid)" if row["at_edge_of_grid"] else ""
        lines.append(
            f"{method:10}{row['learning_rate']:10g}{_dropout(row['dropout']):>16}{100 * row['mean']:9.2f}{_points(row['sd']):>7}"
            f"{_points(row['sem']):>8}{row['trained_parameters']:13,}{row['seconds']:8.0f}  {accuracies}{edge}"
        )
    difference = summary["adapters - full"]
    text = f"adapters - full: {100 * difference['mean']:+.2f} points"
    if difference["interval"]:
        low, high = difference["interval"]
        text += f", 95 % interval {100 * low:+.2f} to {100 * high:+.2f} (paired t, {difference['n']} seeds)"
    return "\n".join([*lines, text])


def _points(value):
    return "-" if value is None else f"{100 * value:.2f}"


def make_trainer(settings, model_source, data_dir):
    """The function that trains and scores one run; loads TensorFlow and the data once."""
    import dataclasses

    import numpy as np
    import tf_adapters
    from tf_adapters._keras import keras
    from tf_adapters.models.loading import find_files
    from tf_adapters.tasks.metrics import METRICS
    from tf_adapters.training.scoring import Scorer

    task = tf_adapters.load_task(settings["task"], data_dir=data_dir)
    reported = task.validation
    needed = settings["rows"] + settings["validation_rows"]
    if needed > len(task.train):
        sys.exit(f"--rows and --validation-rows ask for {needed} rows, and the training split has {len(task.train)}.")
    wordpiece = tf_adapters.WordPiece.from_directory(find_files(model_source), max_length=settings["max_length"])
    versions = installed_versions("tensorflow", "tf-keras", "transformers", "numpy", "tf_adapters")
    git = git_state()  # now: a commit during the study does not change the code that runs
    keras.mixed_precision.set_global_policy(settings["precision"])

    def train(method, learning_rate, dropout, seed):
        started = time.monotonic()
        keras.backend.clear_session()
        keras.utils.set_random_seed(seed)
        # Both methods see the same rows at one seed: that is the pair.
        order = np.random.RandomState(seed).permutation(len(task.train))[:needed]
        data = dataclasses.replace(
            task,
            train=task.train.take(order[: settings["rows"]]),
            validation=task.train.take(order[settings["rows"] :]),
            test=None,
        )
        model = tf_adapters.load_backbone(model_source, labels=list(task.labels))
        if method == "adapters":
            config = tf_adapters.AdapterConfig(bottleneck_size=settings["bottleneck"], sharing="none")
            tf_adapters.add_adapters(model, config, seed=seed)
        tf_adapters.set_trainable(model, method)
        about = {
            "trained_parameters": tf_adapters.parameter_counts(model).trainable,
            "versions": versions,
            "git": git,
        }
        epochs = _Epochs()
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = tf_adapters.fit(
                    model,
                    data,
                    wordpiece,
                    output=pathlib.Path(folder) / "run",
                    epochs=settings["epochs"],
                    learning_rate=learning_rate,
                    dropout=dropout,
                    batch_size=settings["batch_size"],
                    seed=seed,
                    reporter=epochs.reporter(),
                )
            except tf_adapters.InputError as error:
                # A rate that is too high is a finding about the grid, not the end of the study.
                if "diverged" not in str(error):
                    raise
                failure = f"training diverged after {len(epochs.accuracies)} epochs"
                return {"accuracy": None, "failure": failure, **about}
        if result.interrupted:
            raise KeyboardInterrupt
        logits = Scorer(model, wordpiece, batch_size=settings["batch_size"]).logits(reported.text, reported.text_pair)
        del model
        gc.collect()
        return {
            "accuracy": METRICS["accuracy"](reported.labels, logits)["accuracy"],
            "reported_rows": len(reported),
            "best_epoch": result.best_epoch,
            "validation_best": max(epochs.accuracies),
            "validation_accuracies": epochs.accuracies,
            "seconds": round(time.monotonic() - started, 1),
            "training_seconds": round(result.seconds, 1),
            **about,
        }

    return train


class _Epochs:
    """Collects the validation accuracies and shows that a run advances."""

    def __init__(self):
        self.accuracies = []

    def reporter(self):
        from tf_adapters.training.fit import Reporter

        outer = self

        class Collector(Reporter):
            def start(self, steps, done):
                self.steps, self.shown = steps, time.monotonic()

            def step(self, done, numbers):
                if time.monotonic() - self.shown > 20:
                    self.shown = time.monotonic()
                    _log(f"  step {done}/{self.steps}, loss {numbers['loss']:.3f}")

            def epoch(self, epoch, numbers, best):
                outer.accuracies.append(numbers["accuracy"])
                _log(f"  epoch {epoch}: validation {100 * numbers['accuracy']:.2f} %")

        return Collector()


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
    parser.add_argument("--epochs", type=int, default=3, help="of both methods")
    parser.add_argument("--batch-size", type=int, default=32, help="of both methods")
    parser.add_argument("--bottleneck", type=int, default=64, help="units of an adapter")
    parser.add_argument("--max-length", type=int, default=128, help="tokens kept of a sentence")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="the grid is run at the first")
    parser.add_argument("--adapter-learning-rates", type=float, nargs="+", default=[3e-4, 1e-3, 3e-3])
    parser.add_argument("--full-learning-rates", type=float, nargs="+", default=[2e-5, 5e-5, 1e-4, 2e-4])
    parser.add_argument(
        "--dropouts", type=float, nargs="*", default=[0.0],
        help="in the grid of both methods, besides the encoder's own",
    )
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), default="float32")
    parser.add_argument("--output", type=pathlib.Path, help="folder; default: benchmarks/results/sst2-minilm")
    parser.add_argument("--smoke", action="store_true", help="64 rows, 1 epoch, 2 seeds, nothing kept: does it run?")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.rows, options.validation_rows, options.epochs, options.seeds = 64, 32, 1, [0, 1]
        options.adapter_learning_rates, options.full_learning_rates, options.dropouts = [1e-3], [5e-5], []
    if len(set(options.seeds)) != len(options.seeds):
        parser.error("--seeds names a seed twice.")
    return options


def main():
    options = parse()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    names = ("task", "rows", "validation_rows", "epochs", "batch_size", "bottleneck", "max_length", "precision")
    is_path = os.path.isdir(options.model)
    name_of_model = os.path.basename(os.path.abspath(options.model)) if is_path else options.model
    settings = {"model": name_of_model, **{name: getattr(options, name) for name in names}}
    rates = {"adapters": options.adapter_learning_rates, "full": options.full_learning_rates}
    grids = {
        method: [(rate, dropout) for dropout in (None, *options.dropouts) for rate in values]
        for method, values in rates.items()
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.output or (pathlib.Path(temporary) if options.smoke else RESULTS / "sst2-minilm")
        runs = Runs(folder)
        try:
            best = study(
                settings,
                grids=grids,
                seeds=options.seeds,
                runs=runs,
                train=_lazily(settings, options.model, options.data_dir),
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
        summary["reported_rows"] = best["adapters"][0]["reported_rows"]
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


if __name__ == "__main__":
    main()
