"""`tf-adapters predict`, and its answers: the columns of a CSV file, and a table on a terminal."""

import csv
import dataclasses
import functools
import itertools
import json
import pathlib
import sys
import warnings
from typing import Optional

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from tf_adapters.cli.command import argument, option
from tf_adapters.cli.data import ReadingOptions
from tf_adapters.cli.directories import (
    check_new_file,
    check_pairs,
    encoder_source,
    json_text,
    load_bank,
    load_scorer,
    local,
    named_directories,
    reading_of,
)
from tf_adapters.cli.options import DoorOptions, Overwrite, ScoringOptions
from tf_adapters.cli.quiet import counting, share_cores, start, terminal
from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.saving.atomic import replacing
from tf_adapters.saving.settings import read_settings, task_of
from tf_adapters.tasks.files import is_stream, shown_name
from tf_adapters.tasks.labels import KINDS
from tf_adapters.tasks.own_files import get_reader
from tf_adapters.tasks.rows import parse_shard, shard_chunks, with_value_range

CHUNK_ROWS = 1024
# Cells of a terminal: the most of an answer, and the least of a text, whatever its width.
MOST_OF_ANSWER, LEAST_OF_TEXT = 40, 20
_BETWEEN = 2


def predict(
    directories: argument(
        list[str],
        "Adapter directory, or `owner/name` or `owner/name@revision` of one on the HuggingFace hub; or "
        "several, each as `DIRECTORY` or `NAME=DIRECTORY`.",
        "DIRECTORY...",
    ),
    *,
    input_file: option(
        str,
        "Rows to label: .csv, .tsv, .jsonl, .txt (a text per line), or - for lines of standard input; for words also "
        ".conllu and column files, for questions also SQuAD's JSON.",
        "--input",
        panel="Data",
    ),
    reading: ReadingOptions,
    output: option(
        Optional[str],
        "File to write: .jsonl, an object a row with its answer; .csv, the columns of the input and the answer's; - "
        "writes JSON lines to standard output. Default: -, and on a terminal a table.",
    ) = None,
    shard: option(
        Optional[str], "Label one part of the file alone: `2/8` is the second of eight equal parts.", panel="Data"
    ) = None,
    overwrite: Overwrite = False,
    scoring: ScoringOptions,
    where: DoorOptions,
):
    """Label texts: one object a row, in order, with `label` and `probabilities`; on a terminal a table of them.

    Regression gives `value`, multi-label gives `labels`, words give `words` and `labels`, questions give `answer`
    and `n_best`. A row without an answer, because the logits are not finite, has nulls and an `error`. Files of any
    length are read and written in constant memory; the output file appears when it is complete.

    A CSV has the input's columns in their order, and then the answer's, whose names are always the same: a column of
    the input with one of them, such as `label`, is called `input_label`.

    A file: `tf-adapters predict adapters/rotten-tomatoes --input reviews.csv --text-column text --output labels.jsonl`

    Several tasks, whose adapters share one encoder in memory; each row's object has an entry for each task:

    `tf-adapters predict adapters/film spam=adapters/sms --input messages.csv --output labels.jsonl`

    A large file on several machines: `--shard 1/8 --output part-1.jsonl` on the first, `--shard 2/8` on the second; the
    parts one after the other are the whole file's output, up to rounding (of .csv, each has the header).

    A line: `echo 'a quiet, moving film' | tf-adapters predict adapters/rotten-tomatoes --input -`
    """
    if output not in (None, "-"):
        if not output.endswith((".csv", ".jsonl")):
            raise InputError(f"--output {output}: the name must end in .jsonl or .csv, or be - for standard output.")
        check_new_file(output, overwrite=overwrite)
    door = where.choose(scoring.fast)
    one = len(directories) == 1 and ("=" not in directories[0] or pathlib.Path(directories[0]).is_dir())
    if not one and (scoring.fast or scoring.precision != "float32"):
        word = "--fast" if scoring.fast else f"--precision {scoring.precision}"
        raise InputError(f"{word} is for one directory: leave it out, or predict the directories one after the other.")
    named = {"": local(directories[0])} if one else named_directories(directories)
    settings = {name: read_settings(path) for name, path in named.items()}
    kind = task_of(settings[""])[0] if one else "classification"
    source = scoring.model if one else encoder_source(named, scoring.model)
    reading.dialect()
    reading, note = reading_of(list(settings.values()), input_file, dataclasses.asdict(reading))
    _check_tasks(named, settings, reading.get("text_pair_column"))
    as_csv = output is not None and output.endswith(".csv")
    reading.update(kind=kind, chunk_rows=CHUNK_ROWS, keep_all_columns=as_csv)
    chunks = _chunks(input_file, shard, reading)
    # A wrong name or column shows before the model is loaded.
    chunks = itertools.chain([next(chunks)], chunks)

    console = terminal(stderr=True)
    # A bank computes one batch at a time.
    start(console, door=door, precision=scoring.precision, first=share_cores if one else None)
    if note:
        console.print(note)
    label = _labeller(console, named, settings, source, scoring, door)
    on_terminal, to_stdout = sys.stdout.isatty(), output in (None, "-")
    # A bar and the rows would overwrite each other on one terminal.
    with counting(
        console, "predicting", unit="rows" if one else "answers", shown=not (to_stdout and on_terminal)
    ) as advance:
        if output is None and on_terminal:
            kind, read = get_kind(kind), (chunk.rows() for chunk in chunks)
            texts = (([kind.text(rows, row) for row in range(len(rows))], label(rows, advance)) for rows in read)
            show_answers(terminal(), texts)
            console.print("All probabilities: --output - for JSON lines, --output FILE.csv or FILE.jsonl for a file.")
        else:
            answered = ((getattr(chunk, "records", None), label(chunk.rows(), advance)) for chunk in chunks)
            _write("-" if to_stdout else output, answered)


def _write(output, chunks):
    if output == "-":
        # JSON is UTF-8, whatever the terminal's encoding.
        sys.stdout.reconfigure(encoding="utf-8")
        _write_jsonl(sys.stdout, chunks)
        return
    write, errors = (write_csv, "replace") if output.endswith(".csv") else (_write_jsonl, "strict")
    # What JSON lines hold in columns that nobody read may be half of a surrogate pair.
    with replacing(output) as temporary, open(temporary, "w", encoding="utf-8", errors=errors, newline="") as file:
        write(file, chunks)


def _write_jsonl(file, chunks):
    problem = "A row holds numbers that are not finite: train the adapter again."
    for _, rows in chunks:
        file.writelines(json_text(row, problem=problem) + "\n" for row in rows)
        file.flush()


def _check_tasks(named, settings, text_pair_column):
    """Raise InputError for kinds of tasks that cannot be together, and for texts or pairs that a task does not read."""
    if "" in named:
        check_pairs(settings[""], text_pair_column, named[""])
        return
    for name, directory in named.items():
        kind, _ = task_of(settings[name])
        if kind not in KINDS:
            raise InputError(
                f"{directory} is for {kind}, which is predicted by itself: several directories may be for "
                f"{', '.join(KINDS)}."
            )
    pairs = [name for name in named if (settings[name]["task"] or {}).get("text_pairs")]
    for name in pairs:
        check_pairs(settings[name], text_pair_column, named[name])
    if text_pair_column is not None and not pairs:
        raise InputError(
            f"--text-pair-column {text_pair_column}: all of these directories were trained on single texts; leave it "
            "out."
        )


def _labeller(console, named, settings, source, scoring, door):
    """A function of rows and progress to their records; of several adapters, which share the encoder, a record has an
    entry for each."""
    tasks, batch_size = {name: task_of(of_task) for name, of_task in settings.items()}, scoring.batch_size
    if "" in named:
        scorer, _ = load_scorer(named[""], source, console, batch_size=batch_size, fast=scoring.fast, door=door)
        kind, labels = get_kind(tasks[""][0]), tasks[""][1]

        def label(rows, progress):
            rows = with_value_range(rows, settings[""]["task"])
            return kind.records(rows, kind.predict(scorer, rows, progress=progress), labels)

        return label
    from tf_adapters.serving.bank import outputs_by_task

    bank = load_bank(named, source, console, door=door)

    def label_by_each(rows, progress):
        outputs = outputs_by_task(bank, rows.text, rows.text_pair, batch_size=batch_size, progress=progress)
        records = {name: get_kind(kind).records(rows, outputs[name], labels) for name, (kind, labels) in tasks.items()}
        return [dict(zip(records, row)) for row in zip(*records.values())]

    return label_by_each


def _chunks(input_file, shard, reading):
    read = functools.partial(get_reader(reading["kind"]).chunks, input_file, **reading)
    if shard is None:
        return read()
    index, count = parse_shard(shard)
    if is_stream(input_file):
        raise InputError(
            f"--shard {shard} reads its input twice, and {shown_name(input_file)} can be read once: give a file."
        )
    return shard_chunks(read, index, count)


def write_csv(file, chunks):
    """Write a row for each answer, in order; no more than a chunk is held, whose first has the columns: JSON lines may
    differ in their keys.

    A chunk is a pair: the records of a file's rows, dicts, or None where they have no columns; and what was answered to
    each, as `Kind.records`, or of several tasks a dict of these by the tasks' names.
    """
    writer, columns, left_out = csv.writer(file), None, {}
    for records, answers in chunks:
        answers = [_flat(row) for row in answers]
        if columns is None:
            names = list(answers[0])
            columns = _columns(records or (), names)
            writer.writerow([*columns.values(), *names])
        for number, answer in enumerate(answers):
            record = {} if records is None else records[number]
            left_out.update(dict.fromkeys(record.keys() - columns.keys()))
            writer.writerow([*(_cell(record.get(name)) for name in columns), *(answer.get(name) for name in names)])
    if left_out:
        shown = ", ".join(repr(name[:60]) for name in sorted(left_out)[:5])
        warnings.warn(
            f"Keys that come up late in the input are not in the CSV ({shown}): write .jsonl, or give the first rows "
            "all keys."
        )


def _columns(records, answers):
    """What the columns of these records are called beside those of the answers, a dict by their own names."""
    columns, taken = {}, set(answers)
    for name in dict.fromkeys(name for record in records for name in record):
        free = name
        while free in taken:
            free = f"input_{free}"
        columns[name] = free
        taken.add(free)
    return columns


def _cell(value):
    """A cell of the input; what is no text is JSON, which can be read again."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _flat(row):
    """One CSV row: probabilities in a column each, and of several tasks their names before the columns'."""
    if all(isinstance(value, dict) for value in row.values()):
        return {f"{task}_{name}": value for task, record in row.items() for name, value in _flat(record).items()}
    flat = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat.update({f"probability_{label}": number for label, number in value.items()})
        else:
            # The labels of a text as in a file with the usual separator; other lists are JSON, which can be read again.
            of_text = set(row) - {"error"} == {"labels", "probabilities"}
            text = "|".join if of_text else functools.partial(json.dumps, ensure_ascii=False)
            flat[name] = text(value) if isinstance(value, list) else value
    # A column of every file, whether a row has an error or not.
    return {**flat, "error": row.get("error")}


def show_answers(console, chunks):
    """Print a table for each of some chunks, pairs of a list of str, what was read of each row, and the list of their
    records, as `tf-adapters predict` writes them; a row that does not fit the terminal is shortened."""
    for texts, records in chunks:
        rows = [cells(record) for record in records]
        names = list(dict.fromkeys(name for row in rows for name in row if name != "error"))
        if any("error" in row for row in rows):
            names.append("error")
        columns = {name: [_one_line(row.get(name, "")) for row in rows] for name in names}
        widths = [max(cell_len(_one_line(name)), *map(cell_len, values)) for name, values in columns.items()]
        others = sum(min(width, MOST_OF_ANSWER) + _BETWEEN for width in widths)
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _BETWEEN - 1, 0, 0))
        table.add_column("text", no_wrap=True)
        for name in names:
            right = name in ("probability", "value")
            table.add_column(_one_line(name), justify="right" if right else "left", no_wrap=True)
        room = max(LEAST_OF_TEXT, console.width - others)
        for text, *values in zip(texts, *columns.values()):
            shown = [_shortened(_one_line(text), room), *(_shortened(value, MOST_OF_ANSWER) for value in values)]
            table.add_row(*shown)
        console.print(table, soft_wrap=False)


def cells(record):
    """A record's cells by the names of their columns, a dict of str; `error` only where there is one.

    Of several tasks each has a column, with the probability behind the label.
    """
    if all(isinstance(value, dict) for value in record.values()):
        of_tasks = {task: cells(answers) for task, answers in record.items()}
        errors = "; ".join(f"{task}: {row['error']}" for task, row in of_tasks.items() if "error" in row)
        return {**{task: _joined(row) for task, row in of_tasks.items()}, **({"error": errors} if errors else {})}
    return {**_answers(record), **({"error": record["error"]} if record.get("error") else {})}


def _answers(record):
    if "value" in record:
        return {"value": _number(record["value"])}
    likely = record.get("probabilities")
    if "words" in record:
        words = zip(record["words"], record["labels"] or (), likely or ())
        marked = [f"{word}/{label} {value:.2f}" for word, label, value in words if label != "O"]
        return {"labels": " ".join(marked) or ("" if record.get("error") else "(none)")}
    if "labels" in record:
        chosen = record["labels"]
        shown = "" if chosen is None else ", ".join(chosen) or "(none)"
        return {"labels": shown, "probability": ", ".join(_number(likely[label]) for label in chosen or ())}
    if "label" in record:
        label = record["label"]
        return {"label": label or "", "probability": _number(None if label is None else likely[label])}
    value = record["probability"] if "probability" in record else max(likely) if likely else None
    return {"answer": record["answer"] or "", "probability": _number(value)}


def _number(value):
    return "" if value is None else f"{value:.4f}"


def _joined(row):
    answer = next(iter(row.values()))
    return f"{answer} ({row['probability']})" if row.get("probability") else answer


def _one_line(text):
    """A text without line breaks, and without what would command the terminal."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def _shortened(text, room):
    text = Text(text)
    text.truncate(room, overflow="ellipsis")
    return text
