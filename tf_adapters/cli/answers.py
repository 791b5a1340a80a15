"""The answers of `tf-adapters predict`: the columns of a CSV file, and a table on a terminal."""

import csv
import functools
import json
import warnings

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

# Cells of a terminal: the most of an answer, and the least of a text, whatever its width.
MOST_OF_ANSWER, LEAST_OF_TEXT = 40, 20
_BETWEEN = 2


def write_csv(file, chunks):
    """Write a row for each answer, in order; no more than a chunk is held.

    The names of the answer's columns do not depend on the input: a column of the input with one of them gets `input_`
    before it. JSON lines may differ in their keys; the columns are those of the first chunk.

    Args:
        file: text file.
        chunks: iterable of pairs: the records of a file's rows, dicts, or None where they have no columns; and what was
            answered to each, as `Kind.records`, or of several tasks a dict of these by the tasks' names.
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
            # The labels of a text read as in the training file; other lists are JSON, which can be read again.
            of_text = set(row) - {"error"} == {"labels", "probabilities"}
            text = "|".join if of_text else functools.partial(json.dumps, ensure_ascii=False)
            flat[name] = text(value) if isinstance(value, list) else value
    # A column of every file, whether a row has an error or not.
    return {**flat, "error": row.get("error")}


def show_answers(console, chunks):
    """Print tables of texts and their answers, one for each chunk; a row that does not fit the terminal is shortened.

    Args:
        console: Rich `Console`.
        chunks: iterable of pairs: a list of str, what was read of each row, and the list of their records, as
            `tf-adapters predict` writes them.
    """
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
