"""The tables of step.py's results."""

from benchmarks.pairing import BEFORE, tracing_seconds
from benchmarks.table_parts import NOTES, Table, in_notes, markdown, of_settings, origin, titled

_HUB_ARMS = {"adapters": "**adapters**", "full": "full fine-tuning", "lora": "KerasHub's own LoRA r=8"}
_HUB_BACKENDS = {"tensorflow": "TensorFlow", "tensorflow-jit": "TensorFlow, XLA", "jax": "JAX", "torch": "PyTorch"}
ARMS = {
    "adapters": "**adapters**, tf_adapters", "checkpointed-adapters": "the same, gradient checkpointing",
    "fast": "**adapters, fast**, tf_adapters", "checkpointed-fast": "the same, gradient checkpointing",
    "fast-upper": "adapters in the upper half, fast, no dropout",
    "fast-upper-cached": "the same on stored outputs of the lower half",
    **{
        f"{backend}-hub-{what}": f"{title}, KerasHub, Keras 3 on {keras}"
        for what, title in _HUB_ARMS.items() for backend, keras in _HUB_BACKENDS.items()
    },
    "tensorflow-hub-fast": "**adapters, fast**, KerasHub, Keras 3 on TensorFlow",
    "full": "full fine-tuning, TensorFlow", "checkpointed-full": "the same, gradient checkpointing",
    "program-fast": "**adapters, fast**, tf_adapters, TensorFlow's program",
    "program-adapters": "**adapters**, tf_adapters, TensorFlow's program",
    "program-full": "full fine-tuning, TensorFlow's program",
    "torch-adapters": "adapters, PyTorch `adapters`", "torch-full": "full fine-tuning, PyTorch",
    "torch-compiled-adapters": "adapters, PyTorch `adapters`, `torch.compile`",
    "torch-bfloat16-adapters": "adapters, PyTorch `adapters`, weights in bfloat16",
    "torch-compiled-full": "full fine-tuning, PyTorch, `torch.compile`",
    "lora": "**LoRA r=8**, tf_adapters", "fast-lora": "**LoRA r=8, fast**, tf_adapters",
    "torch-lora": "LoRA r=8, PyTorch `peft`", "products": "the matrix products of the fast step alone",
    "texts": "a batch's texts alone: tokens and padding", "forward-plain": "forward only, plain encoder",
    "forward-adapters": "forward only, **with adapters**",
    "forward-fast": "forward only, **with adapters, fast**",
    "torch-forward-adapters": "forward only, PyTorch `adapters`",
    "routed": "forward only, **bank of {} adapters, each row its own task**",
    "routed-single": "the same, one row at a time",
    "routed-lora": "forward only, **bank of {} LoRAs, each row its own task**",
    "torch-routed-lora": "forward only, PyTorch `peft`, {} LoRAs, each row its own task (`adapter_names`)",
    "torch-switch": "forward only, PyTorch `adapters`, one row at a time, adapters switched",
}  # fmt: skip
# Of the overview: the title of a ratio of step times.
RATIOS = {
    "full / adapters": "full / adapters", "torch-adapters / adapters": "PyTorch `adapters` / adapters",
    "adapters / fast": "adapters / fast", "full / fast": "full / fast",
    "tensorflow-hub-adapters / adapters": "KerasHub on TensorFlow / adapters",
    "jax-hub-adapters / adapters": "on JAX / adapters", "torch-hub-adapters / adapters": "on PyTorch / adapters",
}  # fmt: skip


def overview(results):
    """Markdown of how long steps take to one another, a row for each plain result whose steps train; "" without one."""
    rows = []
    for result in results:
        shown = [result["ratios"].get(name) for name in RATIOS]
        if any(shown) and not any(_kinds(result)[:5]):  # doors have columns of their own
            cells = [f"{ratio['median']:.2f}" if ratio else "" for ratio in shown]
            rows.append((_title(result), f"{result['arms']['adapters']['step_ms']['median']:.0f}", *cells))
    note = f"Medians, paired by round. [{NOTES}](../{NOTES}#further-results) has their intervals, memory and machines."
    head = f"| | adapters, ms | {' | '.join(RATIOS.values())} |"
    sides = "lr" + "r" * len(RATIOS)
    return markdown("How long a training step takes", head, sides, rows, f"<sub>{note}</sub>") if rows else ""


def _title(result):
    settings, lengths = result["settings"], result["batches"]["lengths"]
    length = f"{lengths[0]}" if min(lengths) == max(lengths) else f"{min(lengths)} to {max(lengths)}"
    weights = ", random weights" if result["weights"] == "random" else ""
    threads = ", one thread" if settings["threads"] == 1 else ""
    bottleneck = "" if settings["bottleneck"] == 64 else f", bottleneck of {settings['bottleneck']}"
    return (
        f"{titled(settings)}{weights}, {settings['batch_size']} rows of {length} tokens, {settings['precision']}"
        f"{', XLA' if settings['xla'] else ''}{bottleneck}{threads}"
    )


def table(result):
    """Markdown of one result of step.py."""
    settings, batches, places, rows = result["settings"], result["batches"], list(ARMS), []
    resident = {arm: row.get("resident", 0) for arm, row in result["arms"].items()}
    for arm in sorted(
        resident, key=lambda arm: (places.index(_shown_as(arm)), resident[arm], arm.startswith(BEFORE), arm)
    ):
        row = result["arms"][arm]
        _, _, precision = arm.partition("@")
        title = ARMS[_shown_as(arm)].format(f"{resident[arm]:,}")
        title += f", at {settings['before'][:7]}" if arm.startswith(BEFORE) else ""
        step, memory = row["step_ms"], f"{row['peak_rss_mib']:,.0f}"
        memory += f" (libraries {row['libraries_rss_mib']:,.0f})" if "libraries_rss_mib" in row else ""
        rows.append((
            title + (precision and f", {precision}"),
            f"{step['median']:.0f} ({step['min']:.0f} to {step['max']:.0f})", f"{row['examples_per_second']:.1f}",
            f"{tracing_seconds(row, len(batches['lengths'])):.1f}", memory,
            f"{row['trained_parameters']:,}" if row["trained_parameters"] else "",
            f"{row['saved_bytes'] / 1e6:.1f}" if row["saved_bytes"] else "",
        ))  # fmt: skip
    ratios = [] if not result["ratios"] else ["| step time, paired by round | median | interval |", "|---|---:|---:|"]
    for name, ratio in result["ratios"].items():
        low, high = ratio["interval"] or (ratio["min"], ratio["max"])
        kind = "" if ratio["interval"] else " (range)"
        ratios.append(f"| {name} | {ratio['median']:.2f} | {low:.2f} to {high:.2f}{kind} |")
    profiled = {arm: row["profile_ms"] for arm, row in result["arms"].items() if "profile_ms" in row}
    head = (
        "| | ms per step (min to max) | examples/s | tracing and compiling, s | peak memory, MiB | trained parameters "
        "| saved, MB |"
    )
    below = origin(result, f"{settings['rounds']} rounds of {settings['steps']} steps, {batches['text']}")
    more = filter(None, ["\n".join(ratios), _profiles(profiled)])
    return markdown(_title(result), head, "lrrrrrr", rows, *more, below)


def _profiles(profiled):
    """Markdown of dicts of ms by what operations do, by their arms; "" without one."""
    if not profiled:
        return ""
    kinds = list(next(iter(profiled.values())))
    rows = [
        f"| {ARMS[_shown_as(arm)]} | {' | '.join(f'{row[kind]:.1f}' for kind in kinds)} |"
        for arm, row in profiled.items()
    ]
    head = f"| ms of a step's operations, added up over threads | {' | '.join(kinds)} |"
    return "\n".join([head, f"|---|{'---:|' * len(kinds)}", *rows])


def _shown_as(arm):
    """The entry of ARMS that an arm is shown as."""
    kind = arm.removeprefix(BEFORE).partition("@")[0]
    if kind in ARMS or not kind.startswith("routed"):
        return kind
    return "routed-single" if kind.endswith("single") else "routed"


def _kinds(result):
    """What else than plain steps a result is of: stored outputs, LoRA, gradient checkpointing, a change, stronger
    peers, doors."""
    arms = list(result["arms"])
    return (
        any("upper" in arm for arm in arms),
        any(arm in arms for arm in ("lora", "fast-lora", "routed-lora")),
        any("checkpointed" in arm for arm in arms),
        "before" in result["settings"],
        any("compiled" in arm for arm in arms),
        any("-hub-" in arm for arm in arms),
    )


TABLE = Table(
    table,
    lambda result: (
        *of_settings("model", "batches", "precision", "batch_size", "bottleneck", "xla", "threads")(result),
        *_kinds(result),
        *sorted({row["resident"] for row in result["arms"].values() if "resident" in row}),
    ),
    in_notes,
)
