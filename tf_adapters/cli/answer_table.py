"""What `tf-adapters predict` shows on a terminal."""

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

# Cells of a terminal: the most of an answer, and the least of a text, whatever its width.
MOST_OF_ANSWER, LEAST_OF_TEXT = 40, 20
_BETWEEN = 2


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
