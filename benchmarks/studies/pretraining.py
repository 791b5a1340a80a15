"""Task-adaptive pretraining and then training, against training alone, at a small budget."""

import hashlib
import json
import pathlib
import time

from benchmarks.pairing import mean_and_spread, paired_difference
from benchmarks.provenance import ROOT, git_state, installed_versions, log
from benchmarks.result_file import RESULTS
from benchmarks.studies import study
from benchmarks.studies.training_runs import Runs
from benchmarks.table_parts import Table, mean_and_sd, of_settings, origin, short_difference

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
        of_task = {
            method: {seed: run for (name, of, seed), run in newest.items() if (name, of) == (task, method)}
            for method in METHODS
        }
        seeds = sorted(set(of_task["alone"]) & set(of_task["pretrained"]))
        values = {method: [of_task[method][seed]["primary"] for seed in seeds] for method in METHODS}
        any_run = of_task["alone"][seeds[0]]
        summary[task] = {
            "pretraining": numbers,
            **{name: any_run[name] for name in ("metric", "constant", "train_rows", "reported_rows")},
            "seeds": seeds,
            **{method: {"values": values[method], **mean_and_spread(values[method])} for method in METHODS},
            "pretrained - alone": paired_difference(values["pretrained"], values["alone"]),
        }
    return summary


def table(result):
    """Markdown of one result."""
    settings = result["settings"]
    lines = [
        f"**Task-adaptive pretraining of adapters, {settings['model']}: mean ± standard deviation over seeds, in %**",
        "",
        "| task | metric | training rows | held-out perplexity, before and after | constant answer | training alone | "
        "**pretrained, then trained** | difference, points (95 %) |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for task, row in result["tasks"].items():
        before, after = (row["pretraining"][name]["perplexity"] for name in ("before", "after"))
        lines.append(
            f"| {task} | {row['metric'].replace('_', ' ')} | {row['train_rows']:,} | {before:.0f}, {after:.0f} | "
            f"{100 * row['constant']:.1f} | {mean_and_sd(row['alone'])} | {mean_and_sd(row['pretrained'])} | "
            f"{short_difference(row['pretrained - alone'], digits=1)} |"
        )
    what = (
        f"{settings['steps']:,} steps of masked words, after {settings['fit_head_steps']:,} that fitted a new head on "
        f"the frozen encoder (no reachable checkpoint has one); then {settings['epochs']} epochs, seeds "
        f"{', '.join(map(str, result['seeds']))}"
    )
    return "\n".join([*lines, "", origin(result, what)])


TABLE = Table(table, of_settings("model", "rows", "epochs", "steps"))


def parse(arguments=None):
    parser = study.parser(
        __doc__
        + " A task's adapters are pretrained once, on all its training texts, and then trained with every seed.",
        "data_dir tasks model rows validation_rows epochs batch_size bottleneck max_length seeds output",
        tasks=["tae/acl-arc", "tae/scierc"],
        output=RESULTS / "pretraining-minilm",
    )
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--fit-head-steps", type=int, default=1500)
    parser.add_argument("--head-learning-rate", type=float, default=3e-3)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--pretraining-learning-rate", type=float, default=1e-3)
    parser.add_argument("--pretraining-batch-size", type=int, default=16)
    parser.add_argument(
        "--work", type=pathlib.Path, default=ROOT / ".benchmark-pretrained", help="folder of the pretrained adapters"
    )
    return parser.parse_args(arguments)


def main():
    options = parse()
    study.finish("pretraining", options.output, lambda: outcome(options, Runs(options.output)), table)


def outcome(options, runs):
    """Do what is missing; a run and the summary."""
    names = (
        "fit_head_steps head_learning_rate steps pretraining_learning_rate pretraining_batch_size rows validation_rows"
    )
    settings = study.settings_of(options, f"{names} epochs batch_size bottleneck max_length")
    settings |= {"precision": "float32", "train_layer_norm": "all"}
    pretrained = conduct(settings, options, runs)
    ours = [run for run in runs.runs if run["settings"] == {**settings, "task": run["settings"]["task"]}]
    return runs.runs[-1], {"settings": settings, "seeds": options.seeds, "tasks": summarise(ours, pretrained)}


def conduct(settings, options, runs):
    """Do what is missing; the numbers of each task's pretraining."""
    trainer, folders, pretrained = study.Trainer(options, settings), {}, {}
    for name in options.tasks:
        of_task = {**settings, "task": name}
        digest = hashlib.sha256(json.dumps(of_task, sort_keys=True).encode()).hexdigest()[:8]
        folders[name] = options.work / settings["model"] / f"{name.replace('/', '-')}-{digest}"
        done = runs.find(of_task, {"method": "pretraining"})
        if done is None or not (folders[name] / "tf_adapters.json").exists():
            done = _pretrain(trainer.load(name), settings, options, folders[name])
            runs.add({"method": "pretraining", "seed": 0, "settings": of_task, **done})
        pretrained[name] = {key: done[key] for key in ("before", "after", "train_texts", "held_out_texts")}

    def train(name, identity):
        folder = folders[name] if identity["method"] == "pretrained" else None
        run = trainer(name, identity, method="adapters", dropout=0.0, config=adapters_of(settings), pretrained=folder)
        if run["primary"] is None:
            what = f"{name}, {identity['method']}, seed {identity['seed']}"
            raise RuntimeError(f"{what}: {run['failure']}; give a lower --learning-rate.")
        return {**run, "primary": run["primary"]["reported"]}

    points = [{"learning_rate": options.learning_rate}]
    study.conduct(runs, settings, options.tasks, dict.fromkeys(METHODS, points), options.seeds, train)
    return pretrained


def adapters_of(settings):
    """The adapters that are pretrained and trained."""
    import tf_adapters

    return tf_adapters.AdapterConfig(bottleneck_size=settings["bottleneck"], init_stddev=0.03, train_layer_norm="all")


def _pretrain(task, settings, options, folder):
    """Pretrain a task's adapters; goes on with what the folder holds."""
    import tf_adapters
    from tf_adapters._keras import keras
    from tf_adapters.training.run import Reporter

    class Log(Reporter):
        def step(self, done, numbers):
            if done % 50 == 0:
                log(f"  step {done}, loss {numbers['loss']:.3f}")

        def epoch(self, epoch, numbers, best):
            log(f"  held-out perplexity {numbers['perplexity']:.2f}, accuracy {numbers['accuracy']:.3f}")

    started = time.monotonic()
    about = {
        "git": git_state(),
        "versions": installed_versions("tensorflow", "tf-keras", "transformers", "numpy", "tf_adapters"),
    }
    texts = tf_adapters.without_labels(task)
    keras.utils.set_random_seed(0)
    model = tf_adapters.load_backbone(options.model, head="masked-lm")
    log(f"{task.name}: pretraining on {len(texts.train):,} texts ...")
    result = tf_adapters.pretrain(
        model,
        texts,
        tf_adapters.load_tokenizer(model, max_length=settings["max_length"]),
        output=folder,
        adapter=adapters_of(settings),
        steps=settings["steps"],
        save_every=settings["steps"] // 5,
        learning_rate=settings["pretraining_learning_rate"],
        fit_head_steps=settings["fit_head_steps"],
        head_learning_rate=settings["head_learning_rate"],
        batch_size=settings["pretraining_batch_size"],
        dropout=0.0,
        seed=0,
        resume=folder.exists(),
        reporter=Log(),
        head_reporter=Log(),
    )
    if result.run.interrupted:
        raise KeyboardInterrupt
    counts = {"train_texts": len(texts.train), "held_out_texts": len(texts.validation)}
    return {
        "before": result.head,
        "after": dict(result.run.metrics),
        **counts,
        "seconds": round(time.monotonic() - started, 1),
        **about,
    }
