"""What `train`, `evaluate`, `pretrain` and `tune` print and draw at the end; Matplotlib is the extra `plots`."""

import importlib.util
import shlex

import numpy as np
from rich import box
from rich.table import Column, Table

from tf_adapters.cli.quiet import counting
from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.saving.atomic import remove_file, replacing
from tf_adapters.saving.settings import directory_size, read_settings
from tf_adapters.tasks.metrics import METRICS
from tf_adapters.training.disk import read_log
from tf_adapters.training.settings import is_given, option_of

EXAMPLES = 4
MOST_COLUMNS = 8
EXTENSIONS = (".png", ".pdf", ".svg")
CURVE_FILE, PERPLEXITY_FILE = "learning-curve.png", "perplexity.png"


def show_numbers(console, title, numbers):
    """Print a table of named numbers, a dict or pairs."""
    table = Table(Column(no_wrap=True), Column(overflow="fold"), show_header=False)
    for name, value in numbers.items() if isinstance(numbers, dict) else numbers:
        table.add_row(name.replace("_", " "), f"{value:.4f}" if isinstance(value, float) else str(value))
    # Not as the table's title, which is broken into lines of the table's width.
    console.print(title)
    console.print(table, soft_wrap=False)


def show_bad_rows(console, bad_rows):
    """Say how many rows were left out (`BadRows` or None), and what was wrong with the first."""
    if bad_rows is not None and bad_rows.count:
        console.print(f"{bad_rows.count:,} unusable rows were left out, among them:")
        for example in bad_rows.examples:
            console.print(f"  {example}")


def show_results(console, directory, results, metric, settings):
    """Print what `evaluate` found: numbers, how certain they are, and for one data set the classes."""
    primary = METRICS[metric].primary
    for result in results:
        rows = dict(result["metrics"])
        if result["interval"]:
            low, high = result["interval"]
            rows[f"{primary}, 95 % interval"] = f"{low:.4f} to {high:.4f} (bootstrap over rows)"
        if result["constant"] is not None:
            rows[f"{primary} of one constant answer"] = result["constant"]
        show_numbers(console, f"{directory} on {result['data']}", {**rows, "rows": f"{result['rows']:,}"})
        if len(results) == 1 and result.get("classes"):
            _show_classes(console, result)
    for sentence in of_one_label(metric, list(results[0].get("classes") or ())):
        console.print(sentence)
    console.print(_reliability(settings))


def of_one_label(metric, labels):
    """Which label the metric is of, a list of one sentence; of none where it is of all."""
    return [f"F1 is of the label {labels[1]}, the second of the two."] if metric == "f1" else []


def _show_classes(console, result):
    classes = result["classes"]
    table = right_aligned("label", "precision", "recall", "F1", "rows")
    for label, numbers in classes.items():
        values = (f"{numbers[name]:.3f}" for name in ("precision", "recall", "f1"))
        table.add_row(label, *values, f"{numbers['rows']:,}")
    console.print(table)
    if result["confusion"] is None:
        return
    if len(classes) <= MOST_COLUMNS:
        table = Table("true \\ predicted", *(Column(label, justify="right") for label in classes), box=box.SIMPLE)
        for label, row in zip(classes, result["confusion"]):
            table.add_row(label, *(f"{count:,}" for count in row))
        console.print(table)
    elif result["most_confused"]:
        console.print("Most confused (--plot draws all):")
        for true, taken, count in result["most_confused"]:
            console.print(f"  {true} taken for {taken}: {count:,}")


def right_aligned(first, *others):
    """A table for numbers behind a first column, with the names of its columns."""
    others = (Column(name.replace("_", " "), justify="right", overflow="fold") for name in others)
    return Table(first, *others, box=box.SIMPLE)


def mean_and_spread(numbers):
    """What `summary_of_seeds` found, in words."""
    spread = "" if numbers["sd"] is None else f", sd {numbers['sd']:.4f}, s.e.m. {numbers['sem']:.4f}"
    return f"mean {numbers['mean']:.4f}{spread}"


def _reliability(settings):
    """What the spread over seeds is known to be, in a sentence."""
    seeds, training = settings.get("seeds"), settings.get("training") or {}
    if seeds:
        split = "test" if "test" in seeds["summary"] else "validation"
        numbers = seeds["summary"][split]
        return (
            f"This is seed {training.get('seed')}, the best by validation of {numbers['n']}, whose {split} "
            f"{seeds['metric']} has {mean_and_spread(numbers)}."
        )
    seed = f" ({training['seed']})" if "seed" in training else ""
    return f"One seed{seed}: how much another one differs is not known; `train --seeds 5` measures it."


def predict_held_out(console, model, task, tokenizer, batch_size):
    """Score a trained model on the task's held-out rows, and show how far it is; arguments as of
    `training.experiment.score`."""
    from tf_adapters.training.experiment import held_out_rows, score

    with counting(console, "scoring", total=len(held_out_rows(task)[1])) as advance:
        return score(model, tokenizer, task, batch_size=batch_size, progress=advance)


def show_report(console, model, task, output, result, seconds, settings, held_out):
    """Print held-out results, what was trained, sizes, times, examples and what to do next."""
    from tf_adapters.models.state import state_of
    from tf_adapters.models.trainable import parameter_counts
    from tf_adapters.training.experiment import keep

    counts = parameter_counts(model)
    kind, rows, outputs = get_kind(task.kind), held_out.rows, held_out.outputs
    with console.status("Training on the words alone, to compare ..."):
        others = keep(task, output, held_out)
    primary, split, fresh = METRICS[task.metric].primary, held_out.split, state_of(model).newly_initialized
    if settings.period is None:
        best = "best epoch", f"{result.best_epoch} of {settings.epochs}, by validation"
    else:
        of_all = f" of {result.steps}" if result.steps else ""  # which is not kept of several seeds
        best = "best step", f"{result.best_epoch * settings.period}{of_all}, by validation"
    parts = {kind: getattr(counts, kind) for kind in ("adapter", "layer_norm", "head", "backbone")}
    precision = state_of(model).door.ops.keras.mixed_precision.global_policy().name
    size = f"{len(rows):,} rows" + (f", in {precision}" if precision != "float32" else "")
    table = [
        *((f"{split} {name}", f"{value:.4f}  ({size})") for name, value in held_out.numbers.items()),
        *((f"{split} {primary} of {what}", value) for what, value in others.items()),
        best,
        ("trained", f"{counts.trainable:,} of {counts.total:,} parameters ({counts.share:.2%})"),
        ("", ", ".join(f"{kind.replace('_', ' ')} {number:,}" for kind, number in parts.items() if number)),
        ("", "the head includes the pooler: pretraining left it untrained" if fresh else None),
        ("saved", f"{output} ({directory_size(output) / 1e6:.2f} MB)"),
        ("time", f"{seconds:.0f} s, {result.seconds:.0f} s of it training and validation"),
    ]
    show_numbers(console, f"{task.name}: result", [(name, value) for name, value in table if value is not None])
    curve = draw_curve(output, METRICS[task.metric].primary)
    if curve is not None:
        console.print(f"Learning curve: {curve}", soft_wrap=True)
    chosen = np.linspace(0, len(rows) - 1, min(EXAMPLES, len(rows))).astype(int)
    for warning in warnings(kind, task, held_out, others, settings):
        console.print(warning)
    console.print(f"Predictions on {held_out.split} rows that were not trained on, and in brackets what is right:")
    for index in chosen:
        prediction, text = kind.describe(rows, int(index), outputs[index], task.labels)
        right = kind.truth(rows, int(index), task.labels)
        console.print(f"  {prediction}  [{shorten(right)}]  {shorten(text)}")
    console.print("Next:")
    for command in (
        kind.example_command(shlex.quote(str(output)), rows) + through_door_of(model),
        f"tf-adapters info {shlex.quote(str(output))}",
        "tf-adapters train --help",
    ):
        console.print(f"  {command}", soft_wrap=True)


def through_door_of(model):
    """What a command to copy ends with so that it goes through a model's door, a str."""
    from tf_adapters.models.state import state_of

    door = state_of(model).door
    return "" if door.NAME == "transformers" else f" --door {door.NAME} --backend {door.ops.keras.backend.backend()}"


def warnings(kind, task, held_out, others, settings):
    """What a reader should know of a result before using it, a list of sentences; `others` of `without_training`,
    `settings` are those that it was trained with."""
    score, sentences = held_out.numbers[METRICS[task.metric].primary], of_one_label(task.metric, task.labels)
    for what, value in others.items():
        if value >= score and score < 1:
            sentences.append(
                f"Careful: this is no better than {what}. More --epochs, another --learning-rate (1e-4 to 3e-3) or "
                "`tf-adapters tune` may help."
            )
    classes = kind.classes(held_out.rows, held_out.outputs)
    if classes is not None:
        true, predicted = (np.asarray(part) for part in classes)
        of_label = [
            part.sum(0) if part.ndim == 2 else np.bincount(part, minlength=len(task.labels))
            for part in (true, predicted)
        ]
        never = np.flatnonzero((of_label[0] > 0) & (of_label[1] == 0))
        if len(never):
            names = ", ".join(f"{task.labels[number]} ({of_label[0][number]:,})" for number in never[:MOST_COLUMNS])
            more = f" and {len(never) - MOST_COLUMNS} more" if len(never) > MOST_COLUMNS else ""
            options = {"class_weights": " balanced", "tune_thresholds": ""}
            left = [name for name in options if name in kind.choices and not is_given(name, getattr(settings, name))]
            advice = [f"{option_of(name)}{options[name]} and" for name in left]
            advice = " ".join([*advice, "more --epochs may help."])
            sentences.append(
                f"Never predicted, though {held_out.split} rows have them (how many): {names}{more}. "
                f"{advice[0].upper()}{advice[1:]}"
            )
    return sentences


def show_seeds(console, runs):
    """Print every seed's numbers, their mean and their spread."""
    columns = [split for split in ("validation", "test") if split in runs.summary()]
    table = right_aligned("seed", *(f"{split} {runs.metric}" for split in columns))
    best = runs.best()["seed"]
    for run in runs.runs:
        mark = "  kept" if run["seed"] == best else ""
        table.add_row(f"{run['seed']}{mark}", *(f"{run[split]:.4f}" for split in columns))
    table.add_section()
    for name, title in (("mean", "mean"), ("sd", "standard deviation"), ("sem", "standard error")):
        table.add_row(title, *(f"{runs.summary()[split][name]:.4f}" for split in columns))
    console.print(table)


def show_pretraining(console, model, output, result, seconds):
    """Print and draw how perplexity fell."""
    from tf_adapters.models.state import state_of

    log = [(int(row["step"]), row["validation_perplexity"]) for row in read_log(output)]
    before = result.head and result.head["perplexity"]
    drawn = importlib.util.find_spec("matplotlib") is not None
    if drawn:
        draw_perplexity(log, before, output / PERPLEXITY_FILE)
    parameters, numbers = read_settings(output)["parameters"], result.run.metrics
    rows = {} if before is None else {"held-out perplexity before, with the fitted head": f"{before:.2f}"}
    rows |= {
        "held-out perplexity": f"{numbers['perplexity']:.2f}",
        "hidden words guessed": f"{numbers['accuracy']:.2%}",
        "best step": f"{log[result.run.best_epoch - 1][0]:,} of {log[-1][0]:,}",
        "trained": f"{parameters['trained']:,} of {parameters['total']:,} parameters",
        "saved": f"{output} ({directory_size(output) / 1e6:.2f} MB), and {len(log)} checkpoints step-N",
        "plot": str(output / PERPLEXITY_FILE) if drawn else "none: `pip install matplotlib` for one",
        "time": f"{seconds:.0f} s",
    }
    show_numbers(console, "Pretraining: result", rows)
    if not state_of(model).pretrained_head:
        console.print(
            "The head of masked words was fitted here, on these texts: perplexities compare within this run, not with "
            "published ones."
        )


def shorten(text, width=60):
    """At most `width` characters of a text, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


# Plots


def check_plot(path):
    """Raise InputError unless a plot can be written to a file of that name."""
    if path.suffix not in EXTENSIONS:
        raise InputError(f"--plot {path}: the name must end in {', '.join(EXTENSIONS)}.")
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError(f"--plot {path} needs Matplotlib: run `pip install matplotlib`.")


def draw_confusion(result, path):
    """Draw the confusion matrix of one result of `evaluate`: colours are shares of a true label's rows."""
    # Two dollar signs would begin and end a formula.
    counts, names = np.array(result["confusion"]), [name.replace("$", r"\$") for name in result["classes"]]
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    side = max(4.0, 1.5 + 0.45 * len(names))
    figure, axes = _figure(side + 1, side)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="predicted", ylabel="true", title=result["data"].replace("$", r"\$"))
    if len(names) <= 20:
        for (row, column), count in np.ndenumerate(counts):
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=color)
    figure.colorbar(image, label="share of the true label's rows")
    _save(figure, path)


def draw_trials(rows, names, metric, path):
    """Draw a search: a line for each trial through what it had of each `names` to its `metric`; grey and dashed if it
    failed."""
    from matplotlib import colormaps

    figure, axes = _figure(2.5 + 1.6 * len(names), 4.5)
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
    axes.spines[:].set_visible(False)
    _save(figure, path)


def draw_perplexity(log, before, path):
    """Draw held-out perplexity, pairs of step and value, over the steps, and what it was before, unless that is
    None."""
    figure, axes = _figure(6, 4)
    points = log if before is None else [(0, before), *log]
    axes.plot(*zip(*points), marker="o")
    axes.set(xlabel="steps", ylabel="perplexity of hidden words, held-out texts", yscale="log")
    axes.grid(which="both", color="0.9")
    _save(figure, path)


def draw_curve(output, metric):
    """Draw a run's losses, and the validation rows' `metric`, over the steps of its `log.csv`; the path, or None
    without Matplotlib or where there are too few points."""
    path, log = output / CURVE_FILE, read_log(output)
    remove_file(path)
    if importlib.util.find_spec("matplotlib") is None or len(log) < 2:
        return None
    figure, (losses, scores) = _figure(8, 3.5, columns=2)
    steps = [row["step"] for row in log]
    drawn = ((losses, "training_loss", "training"), (losses, "validation_loss", "validation"))
    for axes, name, label in (*drawn, (scores, f"validation_{metric}", "validation")):
        if all(name in row for row in log):
            axes.plot(steps, [row[name] for row in log], marker="o", markersize=3, label=label)
    for axes, name in ((losses, "loss"), (scores, metric.replace("_", " "))):
        axes.set(xlabel="steps", ylabel=name)
        axes.grid(color="0.9")
        axes.legend()
    _save(figure, path)
    return path


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


def _figure(width, height, columns=1):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, columns)


def _save(figure, path):
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=150)
