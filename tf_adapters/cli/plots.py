"""Plots that commands write; Matplotlib is the extra `plots`."""

import importlib.util

import numpy as np

from tf_adapters.errors import InputError

EXTENSIONS = (".png", ".pdf", ".svg")


def check_plot(path):
    """Raise InputError unless a plot can be written to a file of that name."""
    if path.suffix not in EXTENSIONS:
        raise InputError(f"--plot {path}: the name must end in {', '.join(EXTENSIONS)}.")
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError(f"--plot {path} needs Matplotlib: run `pip install matplotlib`.")


def draw_confusion(result, path):
    """Draw the confusion matrix of one result of `evaluate`: colours are shares of a true label's rows."""
    if not result.get("confusion"):
        raise InputError(f"--plot {path}: {result['data']} has no confusion matrix, which needs one label a row.")
    from matplotlib.figure import Figure

    from tf_adapters.saving.atomic import replacing

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
            axes.text(column, row, f"{count:,}", ha="center", va="center", color="white" if shares[row, column] > 0.5 else "black")
    figure.colorbar(image, label="share of the true label's rows")
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=150)
