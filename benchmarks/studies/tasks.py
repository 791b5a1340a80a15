"""Every task at a small budget: adapter tuning and full fine-tuning on MiniLM beside the constant answer."""

import collections
import sys

from benchmarks import table_parts as parts
from benchmarks.result import RESULTS
from benchmarks.studies import study
from benchmarks.studies.training_runs import Runs
from benchmarks.table_parts import METHOD_TITLES, NOTES, RESULTS_PAGE, Table, of_settings
from tf_adapters.studies.numbers import paired, spread

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


def summarise(runs):
    """Means, spreads and paired differences of runs, as `runs.jsonl` has them: a dict from task to metric, rows,
    constant score, and for each set of reported rows ("reported", and the names of zero-shot ones) each method's."""
    by_task = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in runs:
        by_task[run["settings"]["task"]][run["method"]].append(run)
    chosen = {
        name: {method: {run["seed"]: run for run in at_best_rate(of_method)} for method, of_method in by_method.items()}
        for name, by_method in by_task.items()
    }
    return {name: _summarise_task(by_method) for name, by_method in chosen.items()}


def at_best_rate(runs):
    """Of one method's runs on a task those at one learning rate: the best by validation at the first seed that was
    run."""
    best = study.rank([run for run in runs if run["seed"] == runs[0]["seed"]])[0]
    return [run for run in runs if run["learning_rate"] == best["learning_rate"]]


def _summarise_task(by_method):
    any_run = next(run for runs in by_method.values() for run in runs.values())
    summary = {name: any_run[name] for name in ("metric", "train_rows", "reported_rows", "constant")}
    summary["results"] = {}
    for scored in any_run["primary"]:
        result, values = {}, {}
        for method, runs in by_method.items():
            found = {seed: run["primary"][scored] for seed, run in runs.items() if run["primary"] is not None}
            if found:
                rate = next(iter(runs.values()))["learning_rate"]
                values[method] = found
                result[method] = {**spread(list(found.values())), "learning_rate": rate}
        for one, other in [("adapters", "full"), *[(variant, "adapters") for variant in VARIANTS]]:
            both = [seed for seed in values.get(one, ()) if seed in values.get(other, ())]
            if both:
                pair = [[values[method][seed] for seed in both] for method in (one, other)]
                result[f"{one} - {other}"] = paired(*pair)
        summary["results"][scored] = result
    return summary


def parse(arguments=None):
    parser = study.parser(
        f"{__doc__} Tasks whose files are not below --data-dir are named and passed over. More --seeds are added.",
        "data_dir tasks model rows validation_rows epochs batch_size bottleneck train_layer_norm max_length seeds "
        "precision output",
        tasks=list(TASKS),
    )
    parser.add_argument(
        "--methods", nargs="+", default=METHODS, choices=(*METHODS, *VARIANTS), metavar="METHOD",
        help="adapters, full; fast: adapters with fast blocks in mixed_bfloat16; unsorted: adapters on batches of "
        "random rows, not of rows of like length",
    )  # fmt: skip
    rates = {"type": float, "nargs": "+"}
    more = "; of several, a task has the best by validation at the first seed"
    parser.add_argument("--adapter-learning-rate", **rates, default=[1e-3], help=f"adapters, without dropout{more}")
    parser.add_argument("--init-stddev", type=float, default=0.03, help="of the adapters")
    parser.add_argument("--full-learning-rate", **rates, default=[5e-5], help=f"of full fine-tuning{more}")
    options = parser.parse_args(arguments)
    usual = "variants-minilm" if set(options.methods) & set(VARIANTS) else "tasks-minilm"
    options.output = options.output or RESULTS / usual
    return options


def table(result):
    """Markdown of one summary of tasks.py."""
    settings, rows = result["settings"], []
    scores = [numbers for task in result["tasks"].values() for numbers in task["results"].values()]
    methods = [method for method in METHOD_TITLES if any(method in numbers for numbers in scores)]
    variants = [method for method in methods if method in VARIANTS]
    titles = [METHOD_TITLES[method] for method in methods]
    titles += [f"{method} minus adapters, points" for method in variants]
    for name, task in result["tasks"].items():
        for scored, numbers in task["results"].items():
            own = scored == "reported"
            rows.append((
                name if own else f"{name}, zero-shot on {scored}", task["metric"].replace("_", " "),
                f"{task['train_rows']:,}",
                f"{100 * task['constant']:.1f}" if own and task["constant"] is not None else "",
                *(parts.mean_and_sd(numbers.get(method)) for method in methods),
                *(parts.short_difference(numbers.get(f"{variant} - adapters")) for variant in variants),
                max(numbers[method]["n"] for method in methods if method in numbers),
            ))  # fmt: skip
    for name, problem in result["passed_over"].items():
        rows.append((name, f"not run: {problem.splitlines()[0]}", *[""] * (len(titles) + 3)))
    undertrained = (
        f"Full fine-tuning had few rates and {settings['epochs']} epochs, and on several tasks it is undertrained: no "
        "gain of adapters is to be read from these columns. They show that every task trains."
    )
    return parts.markdown(
        f"{'Variants of adapter tuning' if variants else 'Tasks'}, {parts.titled(settings)}: at most "
        f"{settings['rows']:,} training rows, {settings['epochs']} epochs, mean ± standard deviation over seeds, in %",
        f"| | metric | training rows | constant answer | {' | '.join(titles)} | seeds |",
        "llrr" + "r" * len(titles) + "r", rows, *[undertrained] * ("full" in methods),
        parts.origin(result, "tasks.py" + _rates(scores, methods)),
    )  # fmt: skip


def _rates(scores, methods):
    """The learning rates that the methods had, where there were several, in words."""
    rates = {}
    for method in methods:
        found = {numbers[method].get("learning_rate") for numbers in scores if method in numbers}
        rates[method] = sorted(found - {None})
    if all(len(of_method) < 2 for of_method in rates.values()):
        return ""
    listed = (f"{method} {' or '.join(f'{rate:g}' for rate in of_method)}" for method, of_method in rates.items())
    return f"; learning rates, chosen for each task by validation at the first seed: {', '.join(listed)}"


def _methods(result):
    results = (numbers for task in result["tasks"].values() for numbers in task["results"].values())
    return sorted({name for numbers in results for name in numbers})


TABLE = Table(
    table,
    lambda result: (*of_settings("model", "rows", "epochs")(result), *_methods(result)),
    lambda result: RESULTS_PAGE if set(TASKS) <= {*result["tasks"], *result["passed_over"]} else NOTES,
)


def main():
    options = parse()
    runs = Runs(options.output)
    study.finish("tasks", options.output, lambda: outcome(options, runs), table)


def outcome(options, runs):
    """Do the runs that are missing; a run and the summary of all that are there."""
    passed_over = conduct(options, runs)
    if not runs.runs:
        sys.exit(f"No task's files were found below {options.data_dir}: {passed_over}")
    settings = {name: value for name, value in runs.runs[-1]["settings"].items() if name != "task"}
    return runs.runs[-1], {"passed_over": passed_over, "tasks": summarise(runs.runs), "settings": settings}


def conduct(options, runs):
    """Do the runs that are missing; returns why tasks were not run, a dict."""
    names = "rows validation_rows epochs batch_size bottleneck train_layer_norm max_length precision"
    settings = study.settings_of(options, names)
    adapters = {"dropout": 0.0, "init_stddev": options.init_stddev}
    others = {"full": {"dropout": None, "init_stddev": None}, "fast": {**adapters, "precision": "mixed_bfloat16"}}
    rates = {"full": options.full_learning_rate}
    arms = {
        method: [
            {**others.get(method, adapters), "learning_rate": rate}
            for rate in rates.get(method, options.adapter_learning_rate)
        ]
        for method in options.methods
    }
    passed_over, trainer = {}, study.Trainer(options, settings, lengths=LENGTHS, others=TASKS)
    study.conduct(runs, settings, options.tasks, arms, options.seeds, trainer, passed_over=passed_over)
    return passed_over
