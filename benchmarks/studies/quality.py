"""SST-2 on MiniLM: adapter tuning against full fine-tuning, each at its own best learning rate and dropout."""

import itertools
import pathlib
import sys
import tempfile

from benchmarks.result import RESULTS, at_least_1
from benchmarks.studies import study
from benchmarks.studies.training_runs import Runs, held_out_of_train
from benchmarks.table_parts import METHOD_TITLES, Table, in_points, listed, markdown, of_settings, origin, titled
from tf_adapters.studies.numbers import at_edge, paired, spread

# What the grid is over; None stands for the encoder's own dropout and for the paper's 0.01.
POINT = ("learning_rate", "dropout", "init_stddev")


def summarise(best, grids):
    """Means, spreads and the paired difference, as a dict for JSON; accuracies from 0 to 1."""
    methods = {}
    for method, runs in best.items():
        study.check_finished(method, runs)
        accuracies, further = ([run[name] for run in runs] for name in ("accuracy", "further_accuracy"))
        rates = [point["learning_rate"] for point in grids[method]]
        methods[method] = {
            **{name: runs[0].get(name) for name in (*POINT, "trained_parameters")}, "grid": grids[method],
            "at_edge_of_grid": at_edge(runs[0]["learning_rate"], rates), "accuracies": accuracies,
            **spread(accuracies), "further": spread(further), "further_accuracies": further,
            "validation_mean": study.mean_validation(runs),
            "seconds": spread([run["seconds"] for run in runs])["mean"],
        }  # fmt: skip
    differences = {
        name: paired(methods["adapters"][values], methods["full"][values])
        for name, values in (("adapters - full", "accuracies"), ("adapters - full, further rows", "further_accuracies"))
    }
    return {"methods": methods, **differences}


def make_trainer(settings, options):
    """The function that trains and scores one run."""

    def split(task, settings, seed):
        needed = settings["rows"] + settings["validation_rows"] + options.further_rows
        if needed > len(task.train):
            there = len(task.train)
            sys.exit(f"--rows, --validation-rows and --further-rows ask for {needed} rows; there are {there}.")
        data, reported, further = held_out_of_train(task, settings["rows"], settings["validation_rows"], seed)
        return data, {"reported": reported, "further": further(options.further_rows)}

    trainer = study.Trainer(options, settings, split=split)

    def train(task, identity):
        run = trainer(task, identity)
        scores = run.pop("scores")
        if scores is None:
            return {"accuracy": None, **run}
        accuracies = {"accuracy": scores["reported"]["accuracy"], "further_accuracy": scores["further"]["accuracy"]}
        return {**run, **accuracies, "further_rows": options.further_rows}

    return train


def parse(arguments=None):
    parser = study.parser(
        f"{__doc__} Learning rate, dropout and epoch are chosen on validation rows that are sampled from the training "
        "split; the accuracies reported are those of the task's own validation split, which chooses nothing.",
        "task model rows validation_rows epochs batch_size bottleneck train_layer_norm max_length seeds precision "
        "output",
        task="glue/sst2", rows=8000, validation_rows=1000,
    )  # fmt: skip
    parser.add_argument("--data-dir", help="folder with tfds glue/sst2; default: tensorflow_datasets' own")
    help = "rows of the training split that nothing else uses, scored too"
    parser.add_argument("--further-rows", type=int, default=6000, help=help)
    parser.add_argument("--adapter-learning-rates", type=float, nargs="+", default=[5e-4, 1e-3, 2e-3, 3e-3])
    parser.add_argument("--full-learning-rates", type=float, nargs="+", default=[2e-5, 5e-5, 1e-4, 2e-4])
    number = {"type": lambda text: None if text == "default" else float(text), "nargs": "+", "metavar": "X"}
    parser.add_argument("--adapter-dropouts", default=[0.0], **number, help="of the encoder; `default` for its own")
    parser.add_argument("--full-dropouts", default=[None], **number, help="the same for full fine-tuning")
    parser.add_argument("--init-stddevs", default=[None, 0.03], **number, help="of the adapters; `default` for 0.01")
    parser.add_argument("--finalists", type=at_least_1, default=2, help="points of a grid that are run at every seed")
    parser.add_argument("--smoke", action="store_true", help="64 rows, 1 epoch, 2 seeds, nothing kept: does it run?")
    options = parser.parse_args(arguments)
    if options.smoke:
        vars(options).update(rows=64, validation_rows=32, further_rows=32, epochs=1, seeds=[0, 1])
        vars(options).update(adapter_learning_rates=[1e-3], full_learning_rates=[5e-5], init_stddevs=[None])
    if len(set(options.seeds)) != len(options.seeds):
        parser.error("--seeds names a seed twice.")
    return options


def table(result):
    """Markdown of one summary of quality.py."""
    settings, methods = result["settings"], result["methods"]
    rows = [
        (
            METHOD_TITLES[method], f"{row['learning_rate']:g}{' (edge of its grid)' if row['at_edge_of_grid'] else ''}",
            "encoder's" if row["dropout"] is None else f"{row['dropout']:g}",
            "" if method == "full" else f"{row['init_stddev'] or 0.01:g}",
            *map(in_points, (row["mean"], row["sd"], row["sem"])), f"{row['trained_parameters']:,}",
        )
        for method, row in methods.items()
    ]  # fmt: skip
    means = (f"{METHOD_TITLES[method]} {in_points(row['further']['mean'])} %" for method, row in methods.items())
    return markdown(
        f"{settings['task']}, {titled(settings)}: {settings['rows']:,} training rows, {settings['epochs']} epochs, "
        f"accuracy on {result['reported_rows']:,} rows that chose nothing",
        "| | best learning rate | dropout | adapters' init | accuracy, % | sd | s.e.m. | trained parameters |",
        "lrrrrrrr", rows,
        f"Adapters minus full fine-tuning: {_difference(result['adapters - full'])}. On {result['further_rows']:,} "
        "further rows of the training split, phrases of the same sentences as the training rows: "
        f"{', '.join(means)}; {_difference(result['adapters - full, further rows'])}.",
        origin(result, listed(result["seeds"])),
    )  # fmt: skip


def _difference(difference):
    text = f"{100 * difference['mean']:+.2f} points"
    if difference["interval"]:
        low, high = difference["interval"]
        text += f", 95 % interval {100 * low:+.2f} to {100 * high:+.2f} (paired t, {difference['n']} seeds)"
    return text


TABLE = Table(table, of_settings("task", "model", "rows", "epochs"))


def main():
    options = parse()
    values = {
        "adapters": (options.adapter_learning_rates, options.adapter_dropouts, options.init_stddevs),
        "full": (options.full_learning_rates, options.full_dropouts, [None]),
    }
    grids = {method: [dict(zip(POINT, point)) for point in itertools.product(*axes)] for method, axes in values.items()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.output or (pathlib.Path(temporary) if options.smoke else RESULTS / "sst2-minilm")
        kept = options.output or not options.smoke
        study.finish("quality", folder, lambda: outcome(options, grids, Runs(folder)), table, kept=kept)


def outcome(options, grids, runs):
    """Do the runs; a run and the summary."""
    names = "task rows validation_rows epochs batch_size bottleneck train_layer_norm max_length precision further_rows"
    settings = study.settings_of(options, names)
    train = make_trainer(settings, options)
    best = study.conduct(runs, settings, [options.task], grids, options.seeds, train, finalists=options.finalists)
    best = best[options.task]
    rows = {name: best["adapters"][0][name] for name in ("reported_rows", "further_rows")}
    return best["adapters"][0], {"settings": settings, "seeds": options.seeds, **summarise(best, grids), **rows}
