"""`tf-adapters evaluate`."""

import dataclasses
import functools
import pathlib
from typing import List, Optional

from tf_adapters.cli.command import argument, option
from tf_adapters.cli.data import LabelOptions
from tf_adapters.cli.directories import check_new_file, check_pairs, json_text, load_scorer, local, reading_of
from tf_adapters.cli.options import AdapterHelp, DataDir, DoorOptions, Overwrite, ScoringOptions, refuse
from tf_adapters.cli.quiet import counting, share_cores, start, terminal
from tf_adapters.cli.report import check_plot, draw_confusion, show_bad_rows, show_numbers, show_results
from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.saving.atomic import write_text
from tf_adapters.saving.settings import read_settings, task_of
from tf_adapters.tasks.analysis import INDO_EUROPEAN, OTHER_FAMILIES, class_report, group_means, language_of
from tf_adapters.tasks.files import BadRows
from tf_adapters.tasks.metrics import METRICS
from tf_adapters.tasks.own_files import metric_of, rows_from_file
from tf_adapters.tasks.rows import with_value_range

MEANS = (
    "Means over languages (He et al. 2021: target is all but the source, distant is outside the Indo-European family)"
)
# Kinds whose rows do not have one label each.
WITHOUT_CONFUSION = ("multi-label", "regression", "question-answering", "multiple-choice", "masked-lm")
_data = functools.partial(option, panel="Data")


def evaluate(
    directory: argument(pathlib.Path, AdapterHelp),
    *,
    task: _data(
        Optional[List[str]],
        "Named task, again for each further one (`--task xnli/sw --task xnli/ur`). Default: the one that the directory "
        "was trained on.",
    ) = None,
    data_dir: DataDir = None,
    split: _data(Optional[str], "Split of the task. Default: test where it has labels, otherwise validation.") = None,
    input_file: _data(
        Optional[List[pathlib.Path]], "Your labelled rows, in place of a task, again for each further file.", "--input"
    ) = None,
    reading: LabelOptions,
    metric: option(
        Optional[str], "accuracy, f1 (of the second label), macro-f1, ... Default: the one that chose the best epoch."
    ) = None,
    source_language: option(str, "Language that was trained on, for the means over several languages.") = "en",
    scoring: ScoringOptions,
    where: DoorOptions,
    output: option(Optional[pathlib.Path], "Write the numbers to this JSON file too.") = None,
    plot: option(
        Optional[pathlib.Path], "Draw the confusion matrix of the first data set to this .png, .pdf or .svg file."
    ) = None,
    overwrite: Overwrite = False,
):
    """Score an adapter directory on labelled rows, class by class.

    The task that it was trained on: `tf-adapters evaluate adapters/rotten-tomatoes`

    Your own rows: `tf-adapters evaluate adapters/mine --input test.csv --text-column text --label-column label`

    One adapter on several languages: `tf-adapters evaluate adapters/nli --task xnli/en --task xnli/sw --task xnli/ur`
    """
    if input_file:
        given = {"task": task[0] if task else None, "split": split, "data_dir": data_dir}
        refuse(given, f"and --input {input_file[0]} exclude each other: give one of them")
    if source_language not in INDO_EUROPEAN | OTHER_FAMILIES:
        raise InputError(f"--source-language {source_language} is not a known language code, such as en.")
    for word, path in (("--output", output), ("--plot", plot)):
        if path is not None:
            check_new_file(path, overwrite=overwrite, option=word)
    if plot is not None:
        check_plot(plot)
    door = where.choose(scoring.fast)
    given, directory = directory, local(directory)
    settings = read_settings(directory)
    kind, labels = task_of(settings)
    if plot is not None and kind in WITHOUT_CONFUSION:
        raise InputError(
            f"--plot {plot}: {directory} is of the kind {kind}, which has no confusion matrix, as its rows do not have "
            "one label each: leave it out."
        )
    reading.dialect()
    said = dataclasses.asdict(reading)
    columns = {name: said[name] for name in ("text_column", "text_pair_column", "label_column")}
    if not input_file:
        of_files = {name: value for name, value in said.items() if name not in columns}
        refuse(of_files, "goes with --input FILE: add that, or leave it out")
    bad_rows = BadRows() if said.pop("skip_bad_rows") else None
    readings = [reading_of([settings], path, said) for path in input_file or ()]
    for each, _ in readings:
        check_pairs(settings, each.get("text_pair_column"), directory)

    console = terminal()
    start(console, door=door, precision=scoring.precision, first=share_cores)
    from tf_adapters.pipeline import labelled_rows

    metric = metric_of(kind, metric or (settings["task"] or {}).get("metric"), labels)
    if input_file:
        sets = []
        # Before the encoder is loaded, so that a mistake in the second file shows at once.
        for path, (each, note) in zip(input_file, readings):
            if note:
                console.print(note)
            rows = rows_from_file(path, kind=kind, labels=labels, bad_rows=bad_rows, **each)
            sets.append((path.name, with_value_range(rows, settings["task"])))
    else:
        sets = [labelled_rows(directory, name, split=split, data_dir=data_dir, **columns) for name in task or [None]]
    show_bad_rows(console, bad_rows)
    about = {"batch_size": scoring.batch_size, "fast": scoring.fast, "door": door}
    scorer, _ = load_scorer(directory, scoring.model, console, **about)
    results = [_score(console, scorer, kind, labels, metric, name, rows) for name, rows in sets]
    problem = f"{directory} predicts numbers that are not finite: train it again."
    json_text(results, problem=problem)  # which refuses them, before any is shown
    show_results(console, given, results, metric, settings)
    means = _means(dict(zip(task, results)), metric, source_language) if task and len(task) > 1 else {}
    if means:
        show_numbers(console, MEANS, means)
    if output is not None:
        several = {"results": results, "means": means}
        content = {"directory": str(given), "metric": metric, **(results[0] if len(results) == 1 else several)}
        write_text(output, json_text(content, problem=problem, indent=2) + "\n")
    if plot is not None:
        draw_confusion(results[0], plot)


def _score(console, scorer, kind_name, labels, metric, name, rows):
    """Everything that is known of one data set, as a dict for JSON."""
    kind = get_kind(kind_name)
    with counting(console, f"scoring {name}", total=len(rows)) as advance:
        outputs = kind.predict(scorer, rows, progress=advance)
    result = {"data": name, "rows": len(rows), "metrics": kind.score(metric, rows, outputs)}
    interval = kind.interval(metric, rows, outputs)
    constant = kind.constant(rows, labels)
    result["interval"] = interval and list(interval)
    result["constant"] = None if constant is None else kind.score(metric, rows, constant)[METRICS[metric].primary]
    classes = kind.classes(rows, outputs)
    if classes is not None:
        report = class_report(*classes, labels)
        result["classes"] = report.classes
        result["confusion"] = None if report.confusion is None else report.confusion.tolist()
        result["most_confused"] = [] if report.confusion is None else report.most_confused()
    return result


def _means(results, metric, source):
    languages = [language_of(task) for task in results]
    if None in languages or len(set(languages)) < len(languages):
        return {}
    scores = (result["metrics"][METRICS[metric].primary] for result in results.values())
    return group_means(dict(zip(languages, scores)), source=source)
