"""Tables of what earlier commands recorded, which `tf-adapters tune` and `tf-adapters study pretraining` now do."""

from benchmarks.table_parts import Table, in_notes, mean_and_sd, of_settings, origin, short_difference


def search(result):
    """Markdown of a search of adapter size and learning rate over seeds."""
    rates = sorted({cell["learning_rate"] for cell in result["cells"]})
    settings, best = result["settings"], result["best"]
    lines = [
        f"**Search on {settings['task']}, {settings['model']}: validation {settings['metric']} by adapter size and "
        "learning rate, mean ± standard deviation over seeds, in %**",
        "",
        "| size | " + " | ".join(f"{rate:g}" for rate in rates) + " |",
        "|---:|" + "---:|" * len(rates),
    ]
    for size in sorted({cell["bottleneck_size"] for cell in result["cells"]}):
        cells = {cell["learning_rate"]: cell for cell in result["cells"] if cell["bottleneck_size"] == size}
        # Of a trial that failed what its first seeds gave does not count.
        shown = {rate: "failed" if cell["message"] else mean_and_sd(cell, "-") for rate, cell in cells.items()}
        if size == best["bottleneck_size"]:
            shown[best["learning_rate"]] = f"**{shown[best['learning_rate']]}**"
        lines.append(f"| {size} | " + " | ".join(shown.get(rate, "-") for rate in rates) + " |")
    test = ", ".join(f"{name.replace('_', ' ')} {100 * value:.1f}" for name, value in (result["test"] or {}).items())
    what = f"{settings['rows']:,} rows, {settings['epochs']} epochs, {settings['seeds']} seeds"
    # The coefficient of an answer that never changes.
    what += "; a constant answer has 0.0" if settings["metric"] == "matthews" else ""
    return "\n".join([*lines, "", origin(result, f"{what}; test of the best adapter: {test} %")])


def pretraining(result):
    """Markdown of task-adaptive pretraining and then training beside training alone."""
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


SEARCH = Table(search, of_settings("task", "model", "rows", "epochs"), in_notes)
PRETRAINING = Table(pretraining, of_settings("model", "rows", "epochs", "steps"), in_notes)
