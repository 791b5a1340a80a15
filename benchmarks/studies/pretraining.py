"""Task-adaptive pretraining and then training, against training alone, at a small budget."""

import argparse
import hashlib
import json
import os
import pathlib
import sys

from benchmarks.pairing import mean_and_spread, paired_difference
from benchmarks.provenance import ROOT, provenance
from benchmarks.result_file import RESULTS
from benchmarks.studies.tasks import constant_score, prepare
from benchmarks.studies.training_runs import Runs, make_run
from benchmarks.table_parts import Table, of_settings, origin

METHODS = ("alone", "pretrained")


def summarise(runs, pretrained):
    """Means, spreads and paired differences by task, as a dict for JSON.

    Args:
        runs: list of runs, as `runs.jsonl` has them; of each task, method and seed the newest counts.
        pretrained: dict from task to the numbers of its pretraining.
    """
    newest = {(run["settings"]["task"], run["method"], run["seed"]): run for run in runs if run["method"] in METHODS}
    summary = {}
    for task, numbers in pretrained.items():
        of_task = {method: {seed: run for (name, of, seed), run in newest.items() if (name, of) == (task, method)} for method in METHODS}
        seeds = sorted(set(of_task["alone"]) & set(of_task["pretrained"]))
        values = {method: [of_task[method][seed]["primary"] for seed in seeds] for method in METHODS}
        any_run = of_task["alone"][seeds[0]]
        summary[task] = {
            "pretraining": numbers, **{name: any_run[name] for name in ("metric", "constant", "train_rows", "reported_rows")}, "seeds": seeds,
            **{method: {"values": values[method], **mean_and_spread(values[method])} for method in METHODS},
            "pretrained - alone": paired_difference(values["pretrained"], values["alone"]),
        }  # fmt: skip
    return summary


def describe(summary):
    """The summary as lines of text, in per cent."""
    lines = []
    for task, row in summary.items():
        before, after = (row["pretraining"][name]["perplexity"] for name in ("before", "after"))
        lines.append(f"{task}, {row['metric']} (constant answer {100 * row['constant']:.1f}); held-out perplexity {before:.1f} to {after:.1f}")
        lines += [f"  {method:12}{shown(row[method])}" for method in METHODS]
        lines.append(f"  difference  {difference(row['pretrained - alone'])}")
    return "\n".join(lines)


def shown(numbers):
    """Mean and standard deviation in per cent, as text."""
    return f"{100 * numbers['mean']:.1f}" + ("" if numbers["sd"] is None else f" ± {100 * numbers['sd']:.1f}")


def difference(numbers):
    """A paired difference in points with its interval, as text."""
    low, high = numbers["interval"] or (None, None)
    return f"{100 * numbers['mean']:+.1f}" + ("" if low is None else f" ({100 * low:+.1f} to {100 * high:+.1f})")


def table(result):
    """Markdown of one result."""
    settings = result["settings"]
    lines = [
        f"**Task-adaptive pretraining of adapters, {settings['model']}: mean ± standard deviation over seeds, in %**", "",
        "| task | metric | training rows | held-out perplexity, before and after | constant answer | training alone | **pretrained, then trained** | "
        "difference, points (95 %) |", "|---|---|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for task, row in result["tasks"].items():
        before, after = (row["pretraining"][name]["perplexity"] for name in ("before", "after"))
        lines.append(
            f"| {task} | {row['metric'].replace('_', ' ')} | {row['train_rows']:,} | {before:.0f}, {after:.0f} | {100 * row['constant']:.1f} | "
            f"{shown(row['alone'])} | {shown(row['pretrained'])} | {difference(row['pretrained - alone'])} |"
        )
    what = (
        f"{settings['steps']:,} steps of masked words, after {settings['fit_head_steps']:,} that fitted a new head on the frozen encoder (no "
        f"reachable checkpoint has one); then {settings['epochs']} epochs, seeds {', '.join(map(str, result['seeds']))}"
    )
    return "\n".join([*lines, "", origin(result, what)])


TABLE = Table(table, of_settings("model", "rows", "epochs", "steps"))


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__ + " A task's adapters are pretrained once, on all its training texts, and then trained with every seed. Each "
        "finished run is one line of runs.jsonl in the output folder: the same command goes on where a killed one stopped.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--data-dir", required=True, help="folder that holds the tasks' files in its folders")
    parser.add_argument("--tasks", nargs="+", default=["tae/acl-arc", "tae/scierc"], metavar="TASK")
    parser.add_argument("--model", default="minilm", help="minilm, a checkpoint directory, or a hub id")
    parser.add_argument("--fit-head-steps", type=int, default=1500)
    parser.add_argument("--head-learning-rate", type=float, default=3e-3)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--pretraining-learning-rate", type=float, default=1e-3)
    parser.add_argument("--pretraining-batch-size", type=int, default=16)
    parser.add_argument("--rows", type=int, default=2000, help="at most this many training rows, sampled by the seed")
    parser.add_argument("--validation-rows", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--bottleneck", type=int, default=64, help="units of an adapter")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / ".benchmark-pretrained", help="folder of the pretrained adapters")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS / "pretraining-minilm", help="folder")
    return parser.parse_args(arguments)


def main():
    options = parse()
    runs = Runs(options.output)
    names = (
        "fit_head_steps", "head_learning_rate", "steps", "pretraining_learning_rate", "pretraining_batch_size", "rows", "validation_rows",
        "epochs", "batch_size", "bottleneck", "max_length",
    )  # fmt: skip
    settings = {"model": os.path.basename(options.model), **{name: getattr(options, name) for name in names}}
    settings |= {"precision": "float32", "train_layer_norm": "all"}
    try:
        pretrained = {task: study(task, {**settings, "task": task}, options, runs) for task in options.tasks}
    except KeyboardInterrupt:
        _log("Stopped; the finished runs are kept, and the same command goes on.")
        sys.exit(130)
    except RuntimeError as error:
        sys.exit(str(error))
    ours = [run for run in runs.runs if run["settings"] == {**settings, "task": run["settings"]["task"]}]
    document = {"kind": "pretraining", **provenance(), "settings": settings, "seeds": options.seeds, "tasks": summarise(ours, pretrained)}
    document |= {name: runs.runs[-1][name] for name in ("versions", "git")}
    (options.output / "summary.json").write_text(json.dumps(document, indent=1) + "\n")
    print(describe(document["tasks"]))
    print(f"Written to {os.path.relpath(options.output)}/summary.json")


def study(name, settings, options, runs):
    """Do what is missing of one task; the numbers of its pretraining."""
    import tf_adapters
    from tf_adapters.tasks.metrics import METRICS

    task = tf_adapters.load_task(name, data_dir=options.data_dir)
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
    folder = options.work / settings["model"] / f"{name.replace('/', '-')}-{digest}"
    done = runs.find(settings, {"method": "pretraining"})
    if done is None or not (folder / "tf_adapters.json").exists():
        done = {"method": "pretraining", "seed": 0, "settings": settings, **_pretrain(task, settings, options, folder)}
        runs.add(done)
    run = make_run(settings, options.model)
    config = tf_adapters.AdapterConfig(bottleneck_size=settings["bottleneck"], init_stddev=0.03, train_layer_norm="all")
    for seed in options.seeds:
        for method in METHODS:
            identity = {"method": method, "learning_rate": options.learning_rate, "seed": seed}
            if runs.find(settings, identity) is not None:
                continue
            _log(f"{name}, {method}, seed {seed} ...")
            data, reported = prepare(task, settings, seed)
            went_on_from = folder if method == "pretrained" else None
            found = run(
                data, {"reported": reported}, "adapters", seed, learning_rate=options.learning_rate, dropout=0.0, config=config,
                pretrained=went_on_from, log=_log,
            )  # fmt: skip
            metric, scores = METRICS[task.metric].primary, found["scores"]
            if scores is None:
                raise RuntimeError(f"{name}, {method}, seed {seed}: {found['failure']}; give a lower --learning-rate.")
            runs.add({
                **identity, **found, "settings": settings, "metric": metric, "constant": constant_score(task, reported),
                "train_rows": len(data.train), "reported_rows": len(reported), "primary": scores["reported"][metric],
            })  # fmt: skip
            _log(f"  reported {100 * scores['reported'][metric]:.1f} %")
    return {name: done[name] for name in ("before", "after", "train_texts", "held_out_texts")}


def _pretrain(task, settings, options, folder):
    """Pretrain a task's adapters; goes on with what the folder holds."""
    import time

    import tf_adapters
    from benchmarks.provenance import git_state, installed_versions
    from tf_adapters._keras import keras
    from tf_adapters.training.run import Reporter

    class Log(Reporter):
        def step(self, done, numbers):
            if done % 50 == 0:
                _log(f"  step {done}, loss {numbers['loss']:.3f}")

        def epoch(self, epoch, numbers, best):
            _log(f"  held-out perplexity {numbers['perplexity']:.2f}, accuracy {numbers['accuracy']:.3f}")

    started = time.monotonic()
    about = {"git": git_state(), "versions": installed_versions("tensorflow", "tf-keras", "transformers", "numpy", "tf_adapters")}
    texts = tf_adapters.without_labels(task)
    keras.utils.set_random_seed(0)
    model = tf_adapters.load_backbone(options.model, head="masked-lm")
    _log(f"{task.name}: pretraining on {len(texts.train):,} texts ...")
    result = tf_adapters.pretrain(
        model, texts, tf_adapters.load_tokenizer(model, max_length=settings["max_length"]), output=folder,
        adapter=tf_adapters.AdapterConfig(bottleneck_size=settings["bottleneck"], init_stddev=0.03, train_layer_norm="all"),
        steps=settings["steps"], save_every=settings["steps"] // 5, learning_rate=settings["pretraining_learning_rate"],
        fit_head_steps=settings["fit_head_steps"], head_learning_rate=settings["head_learning_rate"],
        batch_size=settings["pretraining_batch_size"], dropout=0.0, seed=0, resume=folder.exists(), reporter=Log(), head_reporter=Log(),
    )  # fmt: skip
    if result.run.interrupted:
        raise KeyboardInterrupt
    after = {name: value for name, value in result.run.metrics.items()}
    counts = {"train_texts": len(texts.train), "held_out_texts": len(texts.validation)}
    return {"before": result.head, "after": after, **counts, "seconds": round(time.monotonic() - started, 1), **about}


def _log(line):
    print(line, file=sys.stderr, flush=True)
