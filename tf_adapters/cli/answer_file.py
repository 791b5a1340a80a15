"""The CSV file that `tf-adapters predict` writes: the input's columns, and behind them the answer's."""

import csv
import functools
import json
import warnings


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
