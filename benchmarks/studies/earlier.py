"""Tables of what earlier commands recorded, which `tf-adapters tune` and `tf-adapters study pretraining` now do."""

from benchmarks.table_parts import Table, in_notes, listed, markdown, mean_and_sd, of_settings, origin, short_difference


def search(result):
    """Markdown of a search of adapter size and learning rate over seeds."""
    settings, best, cells = result["settings"], result["best"], {}
    for cell in result["cells"]:
        # Of a trial that failed what its first seeds gave does not count.
        shown = "failed" if cell["message"] else mean_and_sd(cell, "-")
        is_best = all(cell[name] == best[name] for name in ("bottleneck_size", "learning_rate"))
        cells[cell["bottleneck_size"], cell["learning_rate"]] = f"**{shown}**" if is_best else shown
    sizes, rates = (sorted(set(values)) for values in zip(*cells))
    test = ", ".join(f"{name.replace('_', ' ')} {100 * value:.1f}" for name, value in (result["test"] or {}).items())
    what = f"{settings['rows']:,} rows, {settings['epochs']} epochs, {settings['seeds']} seeds"
    # The coefficient of an answer that never changes.
    what += "; a constant answer has 0.0" if settings["metric"] == "matthews" else ""
    return markdown(
        f"Search on {settings['task']}, {settings['model']}: validation {settings['metric']} by adapter size and "
        "learning rate, mean ± standard deviation over seeds, in %",
        f"| size | {' | '.join(f'{rate:g}' for rate in rates)} |", "r" * (1 + len(rates)),
        [(size, *(cells.get((size, rate), "-") for rate in rates)) for size in sizes],
        origin(result, f"{what}; test of the best adapter: {test} %"),
    )  # fmt: skip


def pretraining(result):
    """Markdown of task-adaptive pretraining and then training beside training alone."""
    settings, rows = result["settings"], []
    for task, row in result["tasks"].items():
        before, after = (row["pretraining"][name]["perplexity"] for name in ("before", "after"))
        rows.append((
            task, row["metric"].replace("_", " "), f"{row['train_rows']:,}", f"{before:.0f}, {after:.0f}",
            f"{100 * row['constant']:.1f}", mean_and_sd(row["alone"]), mean_and_sd(row["pretrained"]),
            short_difference(row["pretrained - alone"], digits=1),
        ))  # fmt: skip
    what = (
        f"{settings['steps']:,} steps of masked words, after {settings['fit_head_steps']:,} that fitted a new head on "
        f"the frozen encoder (no reachable checkpoint has one); then {settings['epochs']} epochs, "
        f"{listed(result['seeds'])}"
    )
    return markdown(
        f"Task-adaptive pretraining of adapters, {settings['model']}: mean ± standard deviation over seeds, in %",
        "| task | metric | training rows | held-out perplexity, before and after | constant answer | training alone | "
        "**pretrained, then trained** | difference, points (95 %) |",
        "llrrrrrr", rows, origin(result, what),
    )  # fmt: skip


SEARCH = Table(search, of_settings("task", "model", "rows", "epochs"), in_notes)
PRETRAINING = Table(pretraining, of_settings("model", "rows", "epochs", "steps"), in_notes)
