"""Houlsby, Pfeiffer, parallel adapters and LoRA at equal numbers of trained parameters, each at its best learning rate."""

import argparse
import json
import os
import pathlib
import sys

from benchmarks.pairing import mean_and_spread, paired_difference
from benchmarks.provenance import provenance
from benchmarks.result_file import RESULTS
from benchmarks.studies.tasks import constant_score, prepare
from benchmarks.studies.training_runs import Runs, make_run
from benchmarks.table_parts import MODEL_TITLES, Table, mean_and_sd, of_settings, origin, short_difference

# Method -> the config's name, the field that is its size, and what else it has. LayerNorms train where the paper's do.
METHODS = {
    "houlsby": ("AdapterConfig", "bottleneck_size", {"init_stddev": 0.03, "train_layer_norm": "all"}),
    "pfeiffer": ("AdapterConfig", "bottleneck_size", {"activation": "relu", "placement": "ffn", "insertion": "after-norm", "init_stddev": 0.03, "train_layer_norm": "none"}),
    "parallel": ("AdapterConfig", "bottleneck_size", {"activation": "relu", "placement": "ffn", "insertion": "parallel", "scaling": 4.0, "init_stddev": 0.03, "train_layer_norm": "none"}),
    "lora": ("LoraConfig", "rank", {}),
}  # fmt: skip


def sized(method, parameters, encoder):
    """The method's config whose number of trained parameters, LayerNorms included, is nearest.

    Args:
        method: key of `METHODS`.
        parameters: int.
        encoder: dict of depth, hidden_size, intermediate_size, and layer_norm (what "none", "encoder" and "all" have).
    """
    import tf_adapters

    name, field, others = METHODS[method]

    def config(size):
        return getattr(tf_adapters, name)(**{field: size}, **others)

    def distance(size):
        return abs(count(config(size), encoder) - parameters)

    size = 1
    while distance(2 * size) < distance(size):
        size *= 2
    return config(min(range(max(1, size // 2), 2 * size + 1), key=distance))


def count(config, encoder):
    """Trained parameters of a config beside the head."""
    own = config.parameters(encoder["depth"], encoder["hidden_size"], encoder["intermediate_size"])
    return own + encoder["layer_norm"][config.train_layer_norm]


def describe_encoder(source):
    """What `sized` needs of an encoder, a dict."""
    import transformers

    from tf_adapters.models.family import get_family
    from tf_adapters.models.loading import find_files

    config = transformers.AutoConfig.from_pretrained(find_files(source))
    family = get_family(config.model_type)
    return {
        "depth": family.depth(config), "hidden_size": config.hidden_size, "intermediate_size": family.intermediate_size(config),
        "layer_norm": family.parameters(config)["layer_norm"],
    }  # fmt: skip


def study(tasks, *, rates, seeds, find, do):
    """The grid of rates at the first seed, then each method's best rate at the others.

    Args:
        tasks: names.
        rates: floats.
        seeds: ints.
        find: function of task, method, rate and seed that returns a finished run, or None.
        do: function of the same that runs it and returns the run; a run whose "validation_best" is None diverged.

    Returns: dict from task to a dict from method to its runs at the best rate, in the order of the seeds.
    """

    def get(*identity):
        return find(*identity) or do(*identity)

    chosen = {}
    for task in tasks:
        chosen[task] = {}
        for method in METHODS:
            grid = [get(task, method, rate, seeds[0]) for rate in rates]
            finished = [run for run in grid if run.get("validation_best") is not None]
            if not finished:
                raise RuntimeError(f"{method} diverged on {task} at every learning rate: give lower ones.")
            best = max(finished, key=lambda run: (run["validation_best"], -run["learning_rate"]))
            chosen[task][method] = [best] + [get(task, method, best["learning_rate"], seed) for seed in seeds[1:]]
    return chosen


def summarise(chosen, rates):
    """Means, spreads and differences from houlsby by task and method, as a dict for JSON."""
    summary = {}
    for task, methods in chosen.items():
        summary[task] = {"metric": methods["houlsby"][0]["metric"], "constant": methods["houlsby"][0]["constant"], "methods": {}}
        houlsby = [run["primary"] for run in methods["houlsby"]]
        for method, runs in methods.items():
            values = [run["primary"] for run in runs]
            failed = [run["seed"] for run in runs if run["primary"] is None]
            if failed:
                raise RuntimeError(f"{method} diverged on {task} at its best rate with seed {failed[0]}: give lower rates.")
            rate = runs[0]["learning_rate"]
            summary[task]["methods"][method] = {
                "learning_rate": rate, "at_edge_of_grid": len(rates) > 1 and rate in (min(rates), max(rates)),
                "trained_parameters": runs[0]["trained_parameters"], "config": runs[0]["config"], "values": values, **mean_and_spread(values),
                "minus houlsby": None if method == "houlsby" else paired_difference(values, houlsby),
            }  # fmt: skip
    return summary


def describe(summary):
    """The summary as lines of text, in per cent."""
    lines = []
    for task, row in summary.items():
        lines.append(f"{task}, {row['metric']} (constant answer: {100 * row['constant']:.1f})")
        lines.append(f"  {'method':10}{'trained':>10}{'best rate':>11}{'mean %':>9}{'sd':>7}   minus houlsby")
        for method, numbers in row["methods"].items():
            spread = "-" if numbers["sd"] is None else f"{100 * numbers['sd']:.2f}"
            lines.append(
                f"  {method:10}{numbers['trained_parameters']:10,}{numbers['learning_rate']:11g}{100 * numbers['mean']:9.2f}{spread:>7}   "
                f"{difference(numbers['minus houlsby'])}" + ("  (rate at the edge of its grid)" if numbers["at_edge_of_grid"] else "")
            )
    return "\n".join(lines)


def difference(numbers):
    """A paired difference in points, with its interval, as text."""
    return short_difference(numbers) or "-"


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__ + " The rate is chosen at the first seed, and the epoch always, on rows of the training split that nothing else "
        "uses; reported are the task's own validation rows. Each finished run is one line of runs.jsonl in the output folder: the "
        "same command goes on where a killed one stopped.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--data-dir", required=True, help="folder that holds the tasks' files in its folders")
    parser.add_argument("--tasks", nargs="+", default=["glue/sst2", "glue/cola"], metavar="TASK")
    parser.add_argument("--model", default="minilm", help="minilm, a checkpoint directory, or a hub id")
    parser.add_argument("--parameters", type=int, default=310_000, help="trained beside the head; each method's size is the nearest to it")
    parser.add_argument("--learning-rates", type=float, nargs="+", default=[3e-4, 1e-3, 3e-3])
    parser.add_argument("--rows", type=int, default=2000, help="training rows, sampled by the seed")
    parser.add_argument("--validation-rows", type=int, default=500, help="rows that choose rate and epoch")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="the rates are compared at the first")
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), default="float32")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS / "methods-minilm", help="folder")
    return parser.parse_args(arguments)


def table(result):
    """Markdown of one result of methods.py: for each task a row for each method."""
    lines = [
        f"**Methods at equal numbers of trained parameters on {MODEL_TITLES.get(result['settings']['model'], result['settings']['model'])}**", "",
        "| task | method | trained | best rate | result, % | minus Houlsby, points (95 %) |", "|---|---|---:|---:|---:|---|",
    ]  # fmt: skip
    for task, row in result["tasks"].items():
        for method, numbers in row["methods"].items():
            size = numbers["config"].get("bottleneck_size", numbers["config"].get("rank"))
            edge = " (edge of the grid)" if numbers["at_edge_of_grid"] else ""
            lines.append(
                f"| {task}, {row['metric']} | {method}, {size} | {numbers['trained_parameters']:,} | {numbers['learning_rate']:g}{edge} | "
                f"{mean_and_sd(numbers)} | {difference(numbers['minus houlsby'])} |"
            )
    settings = result["settings"]
    what = f"{settings['rows']:,} rows, {settings['epochs']} epochs, seeds {', '.join(map(str, result['seeds']))}"
    return "\n".join([*lines, "", origin(result, what)])


TABLE = Table(table, of_settings("model", "rows", "epochs", "parameters"))


def main():
    options = parse()
    runs = Runs(options.output)
    names = ("parameters", "rows", "validation_rows", "epochs", "batch_size", "max_length", "precision")
    settings = {"model": os.path.basename(options.model), **{name: getattr(options, name) for name in names}}

    def find(task, method, rate, seed):
        return runs.find({**settings, "task": task}, {"method": method, "learning_rate": rate, "seed": seed})

    try:
        chosen = study(options.tasks, rates=options.learning_rates, seeds=options.seeds, find=find, do=_doing(options, settings, runs))
        summary = summarise(chosen, options.learning_rates)
    except KeyboardInterrupt:
        _log("Stopped; the finished runs are kept, and the same command goes on.")
        sys.exit(130)
    except RuntimeError as error:
        sys.exit(str(error))
    first = chosen[options.tasks[0]]["houlsby"][0]
    about = {"seeds": options.seeds, "learning_rates": options.learning_rates, "settings": settings}
    document = {"kind": "methods", **provenance(), **about, "tasks": summary} | {name: first[name] for name in ("versions", "git")}
    (options.output / "summary.json").write_text(json.dumps(document, indent=1) + "\n")
    print(describe(summary))
    print(f"Written to {os.path.relpath(options.output)}/summary.json")


def _doing(options, settings, runs):
    """The function that does one run; loads TensorFlow and each task once, when they are needed."""
    made = {}

    def do(task_name, method, rate, seed):
        import tf_adapters
        from tf_adapters.tasks.metrics import METRICS as TASK_METRICS

        if "run" not in made:
            made["encoder"] = describe_encoder(options.model)
            made["run"] = make_run(settings, options.model)
        if task_name not in made:
            made[task_name] = tf_adapters.load_task(task_name, data_dir=options.data_dir)
        config = sized(method, settings["parameters"], made["encoder"])
        _log(f"{task_name}, {method}, learning rate {rate:g}, seed {seed} ...")
        data, reported = prepare(made[task_name], settings, seed)
        done = made["run"](data, {"reported": reported}, method, seed, learning_rate=rate, dropout=0.0, config=config, log=_log)
        scores, metric = done["scores"], TASK_METRICS[data.metric].primary
        run = {
            "method": method, "learning_rate": rate, "seed": seed, **done, "settings": {**settings, "task": task_name}, "metric": metric,
            "config": config.to_dict(), "constant": constant_score(made[task_name], reported), "reported_rows": len(reported),
            "primary": scores and scores["reported"][metric],
        }  # fmt: skip
        runs.add(run)
        return run

    return do


def _log(line):
    print(line, file=sys.stderr, flush=True)
