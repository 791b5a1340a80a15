"""How the time and the memory of a step grow with batch, length, depth, bottleneck, adapters on a model, and tasks in a
bank, beside full fine-tuning and beside the step's matrix products. Random weights of MiniLM's shape, rows without
padding; everything but the one quantity stays as it is."""

import pathlib
import tempfile

import numpy as np

from benchmarks.pairing import summarise_steps
from benchmarks.peers.worker_protocol import Worker
from benchmarks.result import RESULTS, ROOT, at_least_1, finish, log, make_parser, parse_arguments, usable_cores
from benchmarks.start import command
from benchmarks.steps.batches import write_random_bert
from benchmarks.steps.gpu import MODELS, step_flops
from benchmarks.steps.step import PRECISIONS, alternate
from benchmarks.steps.step_table import ARMS
from benchmarks.table_parts import Table, in_notes, markdown, of_settings, origin

#: What one row takes where another quantity grows. A bank's tasks are small, so that 10,000 fit into memory.
BASE = {"batch": 8, "length": 64, "depth": 6, "bottleneck": 64, "adapters": 1, "tasks": 1}
AXES = {
    "batch": (4, 8, 16, 32, 64, 128), "length": (16, 32, 64, 128, 256, 512), "depth": (2, 4, 8, 16, 32),
    "bottleneck": (8, 32, 128, 512), "adapters": (1, 2, 4, 8, 16, 32), "tasks": (1, 10, 100, 1000, 10_000),
}  # fmt: skip
OF_A_TASK = {"bottleneck": 4}
AXIS_ARMS = {"adapters": ("fast",), "tasks": ("routed",)}  # a fully fine-tuned model has one of each
USUAL_ARMS = ("fast", "full")
_LEGEND = {"fast": "adapters, fast", "full": "full fine-tuning", "routed": "bank, forward only"}
# Exponents are those of the largest values, where what every step costs hardly counts any more.
FITTED = 3
# By so much more the time's exponent is above the products' where something else has begun to count.
TOLERATED = 0.1


def parse(arguments=None):
    parser = make_parser(f"{__doc__} One quantity a run.", smoke="the first two values, one step")
    parser.add_argument("axis", choices=AXES, help="what grows")
    parser.add_argument("--values", nargs="+", type=at_least_1, help="default: those of the recorded results")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--rounds", type=at_least_1, default=5, help="turns of each arm, in alternation")
    parser.add_argument("--steps", type=at_least_1, default=2, help="steps in a turn")
    parser.add_argument("--threads", type=at_least_1, default=usable_cores(), help="of each arm")
    options = parse_arguments(parser, arguments, lambda options: f"growth-{options.axis}", rounds=1, steps=1)
    options.values = sorted(set(options.values or AXES[options.axis]))[: 2 if options.smoke else None]
    return options


def main():
    options = parse()
    finish("growth", options, ("axis", "precision", "rounds", "steps", "threads"), run(options), table)
    if not options.smoke and options.output.parent == RESULTS:
        draw(RESULTS / "growth.svg")


def run(options):
    """Each value's arms, `rows`, and how they grow, `exponents`."""
    rows = []
    for value in options.values:
        work = {**BASE, **(OF_A_TASK if options.axis == "tasks" else {}), options.axis: value}
        log(f"{options.axis} {value}:")
        rows.append({"value": value, "arms": measure(work, options)})
    arms = rows[0]["arms"]
    return {"rows": rows, "exponents": {arm: exponents(rows, arm) for arm in arms}}


def measure(work, options):
    """What each arm takes for this work; each is a process of its own, and they compute in turns."""
    workers, found = {}, {}
    with tempfile.TemporaryDirectory(prefix="tf_adapters-benchmark-") as folder:
        folder = pathlib.Path(folder)
        config = {**MODELS["minilm"], "num_hidden_layers": work["depth"], "num_attention_heads": 12}
        write_random_bert(folder / "model", vocab_size=1000, **config)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        words += [f"word{number}" for number in range(1000 - len(words))]
        (folder / "model" / "vocab.txt").write_text("\n".join(words) + "\n")
        ids = np.random.default_rng(0).integers(5, 1000, (work["batch"], work["length"]), np.int32)
        batch = {"input_ids_0": ids, "attention_mask_0": np.ones_like(ids), "labels_0": ids[:, 0] % 2}
        np.savez(folder / "batches.npz", **batch)
        given = {"directory": str(folder / "model"), "batches": str(folder / "batches.npz"), "seed": 0, "xla": False}
        given |= {"learning_rate": 1e-5, "threads": options.threads, "precision": options.precision}
        given |= {name: work[name] for name in ("bottleneck", "adapters", "tasks")}
        environment = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"}
        try:
            for arm in AXIS_ARMS.get(options.axis, USUAL_ARMS):
                words = command("steps.tf_worker")
                workers[arm] = Worker(arm, words, environment=environment, log=folder / f"{arm}.log")
                built = workers[arm].ask("build", arm=arm, **given)
                found[arm] = {name: built[name] for name in ("build_s", "built_rss_mib")}
                found[arm] |= workers[arm].ask("warm-up")
                found[arm]["gflop"] = products(work, arm, config) / 1e9
            turns, _ = alternate(workers, rounds=options.rounds, steps=options.steps, log=log)
            for arm, worker in workers.items():
                found[arm] |= worker.ask("finish") | summarise_steps(turns[arm], work["batch"])
        finally:
            for worker in workers.values():
                worker.close()
    return found


def products(work, arm, config):
    """Operations of a step's matrix products, the adapters' included; of `routed`, of a forward pass."""
    encoder = step_flops(work["batch"], work["length"], "full" if arm == "full" else "adapters", config)
    if arm == "full":
        return encoder
    adapters = 2 * work["batch"] * work["length"] * work["depth"] * 4 * config["hidden_size"] * work["bottleneck"]
    if arm == "routed":
        return step_flops(work["batch"], work["length"], "full", config) / 3 + adapters
    return encoder + 3 * adapters


def exponents(rows, arm):
    """By which power of the value the largest ones' time, products, and memory grow: a dict.

    Memory counts from what the arm of the least value takes before its first step: what the libraries take.
    """
    values, found = [row["value"] for row in rows][-FITTED:], [row["arms"][arm] for row in rows]
    libraries = found[0]["built_rss_mib"]
    series = {
        "time": [one["step_ms"]["median"] for one in found],
        "products": [one["gflop"] for one in found],
        "memory": [max(one["peak_rss_mib"] - libraries, 1.0) for one in found],
    }
    return {name: float(np.polyfit(np.log(values), np.log(of[-FITTED:]), 1)[0]) for name, of in series.items()}


def table(result):
    """Markdown of one result."""
    rows, of_arms = [], result["exponents"]
    for row in result["rows"]:
        cells = []
        for arm in of_arms:
            one = row["arms"][arm]
            times = one["step_ms"]
            cells.append(f"{times['median']:.0f} ({times['min']:.0f} to {times['max']:.0f})")
            cells += [f"{one['gflop']:.1f}", f"{one['peak_rss_mib']:,.0f}", f"{one['build_s']:.0f}"]
        rows.append((f"{row['value']:,}", *cells))
    cells = []
    for found in of_arms.values():
        faster = found["time"] > found["products"] + TOLERATED
        cells.append(f"{found['time']:.2f}" + (" (above the products')" if faster else ""))
        cells += [f"{found['products']:.2f}", f"{found['memory']:.2f}", ""]
    rows.append(("exponent", *cells))
    axis = result["settings"]["axis"]
    titles = map(_title, of_arms)
    head = f"| {axis} | " + " | ".join(f"{name}: ms | products, GFLOP | peak MiB | build s" for name in titles) + " |"
    others = {**BASE, **(OF_A_TASK if axis == "tasks" else {})}
    kept = ", ".join(f"{name} {value}" for name, value in others.items() if name != axis)
    what = (
        f"{kept}; {result['settings']['precision']}; medians (least to greatest) of {result['settings']['rounds']} "
        f"turns; exponents of the largest {FITTED} values, of memory beyond the libraries'"
    )
    return markdown(f"How a step grows with {axis}", head, "r" * (1 + 4 * len(of_arms)), rows, origin(result, what))


def _title(arm):
    return ARMS[arm].format("so many").replace("**", "")


TABLE = Table(table, of_settings("axis", "precision"), in_notes)


def draw(path):
    """Write the picture of each result: time over its quantity, and as a dotted line that of the matrix products."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    from benchmarks.tables import read_results
    from tf_adapters.studies.figure import look, panels

    results = [result for result in read_results(RESULTS) if result["kind"] == "growth"]
    figure = Figure(layout="constrained")
    titles = [f"{result['settings']['axis']}, {result['settings']['precision']}" for result in results]
    for panel, result in zip(panels(figure, titles), results):
        values = [row["value"] for row in result["rows"]]
        highest = 0.0
        for number, arm in enumerate(result["exponents"]):
            found = [row["arms"][arm] for row in result["rows"]]
            times, flops = [one["step_ms"]["median"] for one in found], [one["gflop"] for one in found]
            panel.plot(values, times, label=_LEGEND[arm], **look(number))
            # As long as the products would take at the speed of the greatest value.
            limit = [one / flops[-1] * times[-1] for one in flops]
            panel.plot(values, limit, linestyle=":", color=look(number)["color"])
            highest = max(highest, *times, *limit)
        panel.set(xscale="log", yscale="log", xlabel=result["settings"]["axis"], ylabel="ms a step")
        # Room for the legend; and of what does not grow the noise would look like growth.
        panel.set_ylim(min(panel.get_ylim()[0], highest / 30), 3 * highest)
        panel.set_xticks(values, [f"{value:,}" for value in values])
        panel.xaxis.set_minor_locator(NullLocator())
        panel.legend(loc="upper left")
    figure.savefig(path, metadata={"Date": None})
    log(f"Drawn: {path.relative_to(ROOT)}")
