"""Plots that commands write; Matplotlib is the extra `plots`."""

import importlib.util

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.saving.atomic import replacing

EXTENSIONS = (".png", ".pdf", ".svg")


def check_plot(path):
    """Raise InputError unless a plot can be written to a file of that name."""
    if path.suffix not in EXTENSIONS:
        raise InputError(f"--plot {path}: the name must end in {', '.join(EXTENSIONS)}.")
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError(f"--plot {path} needs Matplotlib: run `pip install matplotlib`.")


def draw_confusion(result, path):
    """Draw the confusion matrix of one result of `evaluate`: colours are shares of a true label's rows."""
    from matplotlib.figure import Figure

    counts, names = np.array(result["confusion"]), list(result["classes"])
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    side = max(4.0, 1.5 + 0.45 * len(names))
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    axes.set_title(result["data"])
    if len(names) <= 20:
        for (row, column), count in np.ndenumerate(counts):
            axes.text(
                column,
                row,
                f"{count:,}",
                ha="center",
                va="center",
                color="white" if shares[row, column] > 0.5 else "black",
            )
    figure.colorbar(image, label="share of the true label's rows")
    _save(figure, path)


def draw_trials(rows, names, metric, path):
    """Draw a search: a line for each trial through what it had of each `names` to its `metric`; grey and dashed if it
    failed."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.5 + 1.6 * len(names), 4.5), layout="constrained")
    axes = figure.add_subplot()
    heights = {
        name: _heights([row["values"].get(name) for row in rows], axes, place) for place, name in enumerate(names)
    }
    found = [row["objective"] for row in rows]
    heights[metric] = _heights(found, axes, len(names), most_levels=1)
    places = range(len(names) + 1)
    for row, line in zip(rows, zip(*heights.values())):
        if row["objective"] is None:
            axes.plot(places[:-1], line[:-1], color="0.6", linestyle="--", marker="x")
        else:
            axes.plot(places, line, color=colormaps["viridis"](line[-1]), marker="o", alpha=0.8)
    for place in places:
        axes.axvline(place, color="0.85", zorder=0)
    axes.set_xticks(places, [name.replace("_", " ") for name in heights])
    axes.set_yticks([])
    axes.set_xlim(-0.3, len(names) + 0.6)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    _save(figure, path)


def draw_perplexity(log, before, path):
    """Draw held-out perplexity, pairs of step and value, over the steps, and what it was before, unless that is
    None."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    points = log if before is None else [(0, before), *log]
    axes.plot(*zip(*points), marker="o")
    axes.set_xlabel("steps")
    axes.set_ylabel("perplexity of hidden words, held-out texts")
    axes.set_yscale("log")
    axes.grid(which="both", color="0.9")
    _save(figure, path)


def draw_curve(log, metric, path):
    """Draw a run's losses, and the validation rows' `metric`, over the steps; `log` is a list of dicts of floats."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.5), layout="constrained")
    losses, scores = figure.subplots(1, 2)
    steps = [row["step"] for row in log]
    drawn = ((losses, "training_loss", "training"), (losses, "validation_loss", "validation"))
    for axes, name, label in (*drawn, (scores, f"validation_{metric}", "validation")):
        if all(name in row for row in log):
            axes.plot(steps, [row[name] for row in log], marker="o", markersize=3, label=label)
    for axes, name in ((losses, "loss"), (scores, metric.replace("_", " "))):
        axes.set_xlabel("steps")
        axes.set_ylabel(name)
        axes.grid(color="0.9")
        axes.legend()
    _save(figure, path)


def _heights(values, axes, place, most_levels=6):
    """Where values stand on a vertical axis from 0 to 1, at which their names are written; NaN for None.

    Numbers of more than `most_levels` values are drawn to scale, fewer at equal distances.
    """
    known = [value for value in values if value is not None]
    numeric = known and all(isinstance(value, (int, float)) for value in known)
    levels = sorted(set(known)) if numeric else list(dict.fromkeys(known))
    if numeric and len(levels) > most_levels:
        # Factors, where they matter more than differences.
        scale = np.log if levels[0] > 0 and levels[-1] / levels[0] >= 10 else np.asarray
        low, high = scale(levels[0]), scale(levels[-1])
        at = {level: float((scale(level) - low) / (high - low)) for level in levels}
        named = (levels[0], levels[-1])
    else:
        at = {level: index / (len(levels) - 1) if len(levels) > 1 else 0.5 for index, level in enumerate(levels)}
        named = levels
    for level in named:
        text = f"{level:.3g}" if isinstance(level, float) else str(level)
        axes.annotate(text, (place, at[level]), xytext=(4, 3), textcoords="offset points", fontsize=8)
    return [np.nan if value is None else at[value] for value in values]


def _save(figure, path):
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=150)
