"""Tables of what earlier commands recorded, which `tf-adapters tune` and `tf-adapters study` now do."""

from benchmarks.table_parts import (
    METHOD_TITLES,
    NOTES,
    RESULTS_PAGE,
    Table,
    in_notes,
    in_points,
    listed,
    markdown,
    mean_and_sd,
    of_settings,
    origin,
    short_difference,
    titled,
)

# Ways of adapter tuning that change nothing but its speed.
VARIANTS = ("fast", "unsorted")


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


def quality(result):
    """Markdown of SST-2, by adapter tuning and full fine-tuning, each at its own best learning rate and dropout."""
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


def methods(result):
    """Markdown of one result of methods at equal numbers of trained parameters: for each task a row for each method."""
    settings, rows = result["settings"], []
    for task, row in result["tasks"].items():
        for method, numbers in row["methods"].items():
            size = numbers["config"].get("bottleneck_size", numbers["config"].get("rank"))
            edge = " (edge of the grid)" if numbers["at_edge_of_grid"] else ""
            rows.append((
                f"{task}, {row['metric']}", f"{100 * row['constant']:.1f}", f"{method}, {size}",
                f"{numbers['trained_parameters']:,}", f"{numbers['learning_rate']:g}{edge}", mean_and_sd(numbers),
                short_difference(numbers["minus houlsby"], "-"),
            ))  # fmt: skip
    return markdown(
        f"Methods at equal numbers of trained parameters on {titled(settings)}",
        "| task | constant answer | method | trained | best rate | result, % | minus Houlsby, points (95 %) |",
        "lrlrrrl", rows,
        origin(result, f"{settings['rows']:,} rows, {settings['epochs']} epochs, {listed(result['seeds'])}"),
    )  # fmt: skip


def tasks(result):
    """Markdown of one summary of many tasks at a small budget."""
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
                *(mean_and_sd(numbers.get(method)) for method in methods),
                *(short_difference(numbers.get(f"{variant} - adapters")) for variant in variants),
                max(numbers[method]["n"] for method in methods if method in numbers),
            ))  # fmt: skip
    for name, problem in result["passed_over"].items():
        rows.append((name, f"not run: {problem.splitlines()[0]}", *[""] * (len(titles) + 3)))
    undertrained = (
        f"Full fine-tuning had few rates and {settings['epochs']} epochs, and on several tasks it is undertrained: no "
        "gain of adapters is to be read from these columns. They show that every task trains."
    )
    return markdown(
        f"{'Variants of adapter tuning' if variants else 'Tasks'}, {titled(settings)}: at most "
        f"{settings['rows']:,} training rows, {settings['epochs']} epochs, mean ± standard deviation over seeds, in %",
        f"| | metric | training rows | constant answer | {' | '.join(titles)} | seeds |",
        "llrr" + "r" * len(titles) + "r", rows, *[undertrained] * ("full" in methods),
        origin(result, "tasks.py" + _rates(scores, methods)),
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


SEARCH = Table(search, of_settings("task", "model", "rows", "epochs"), in_notes)
PRETRAINING = Table(pretraining, of_settings("model", "rows", "epochs", "steps"), in_notes)
QUALITY = Table(quality, of_settings("task", "model", "rows", "epochs"))
METHODS = Table(methods, of_settings("model", "rows", "epochs", "parameters"))
TASKS = Table(
    tasks,
    lambda result: (*of_settings("model", "rows", "epochs")(result), *_methods(result)),
    # Those of all tasks stand on the page of results.
    lambda result: RESULTS_PAGE if len({*result["tasks"], *result["passed_over"]}) >= 17 else NOTES,
)
