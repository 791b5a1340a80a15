"""The README.md of an adapter directory."""

import json

_PREDICT = "tf-adapters predict DIRECTORY --input -"


def _line(options="", **texts):
    """The command that predicts one line of JSON."""
    return f"echo '{json.dumps(texts)}' | {_PREDICT} --format jsonl{options}"


# What to do with a directory of this kind.
_COMMANDS = {
    "masked-lm": "tf-adapters train --from-pretrained-adapter DIRECTORY --train train.csv --output adapters/mine",
    "token-classification": f"echo 'words with spaces between them' | {_PREDICT}",
    "question-answering": _line(question="Who sang?", context="Ada sang."),
    "multiple-choice": _line(text="She sat", choices=["down.", "fish."]),
}
_OF_PAIRS = _line(" --text-pair-column text_pair", text="One text", text_pair="Another")
_MOST_LABELS_IN_A_TITLE = 4
_BEGINNING = """---
library_name: tf-adapters
tags: [adapter, tensorflow, keras]
---

# {title}

Trained with tf_adapters {version}: {what}.
"""
_USE = """
Licence: what the encoder's and the data's allow; this file knows of none.

## Use

```bash
{command}
```

```python
import tf_adapters
model, settings = tf_adapters.load_trained("DIRECTORY")
```
"""


def model_card(settings):
    """Markdown text that tells a reader what the directory with these settings holds and how to use it."""
    backbone, head, parameters = settings["backbone"], settings["head"], settings["parameters"]
    task = settings["task"] or {}
    title = _title(task, head) + (f" on {backbone['source']}" if backbone["source"] else "")
    what = f"`{settings['trainable']}`" + (f", recipe `{settings['recipe']}`" if settings["recipe"] else "")
    lines = [_BEGINNING.format(title=title, version=settings["tf_adapters_version"], what=what)]
    if backbone["weights_saved"]:
        lines += ["The encoder's own weights were trained too and are part of this directory.", ""]
    lines += _result(settings)
    lines += _notes(settings, task)
    rows = [("Trained parameters", f"{parameters['trained']:,} of {parameters['total']:,}")]
    rows += [
        (f"- {kind}", f"{parameters[kind]:,}")
        for kind in ("adapter", "layer_norm", "head", "backbone")
        if parameters[kind]
    ]
    if settings["adapter"]:
        rows += [(f"Adapter {key}", value) for key, value in settings["adapter"].items()]
    pooler = ", with the encoder's pooler" if head["pooler"] else ""
    rows += [
        ("Encoder", "{source} ({model_type}, {num_hidden_layers} x {hidden_size})".format(**backbone)),
        ("Encoder digest", backbone["sha256"]),
        ("Head", f"{head['type']}, {head['layers']} layer(s){pooler}"),
    ]
    if task.get("kind") != "masked-lm":
        rows.append(("Labels", ", ".join(head["labels"]) if head["labels"] else head["num_labels"]))
    rows += [(name, f"{value:.4f}") for name, value in (settings["metrics"] or {}).items() if isinstance(value, float)]
    if settings["training"]:
        rows.append(("Training", told(settings["training"])))
    lines += ["## Settings", "", "| | |", "|---|---|"] + [f"| {name} | {_cell(value)} |" for name, value in rows]
    if task.get("source"):
        lines += ["", f"Data: {task['source']}"]
    usual = _OF_PAIRS if task.get("text_pairs") else f"echo 'a text' | {_PREDICT}"
    lines.append(_USE.format(command=_COMMANDS.get(task.get("kind")) or usual))
    return "\n".join(lines)


def _notes(settings, task):
    """The lines that say what else a reader should know of its training."""
    lines, pretrained = [], settings.get("pretrained_adapter")
    if (settings["training"] or {}).get("tune_thresholds"):
        lines += [
            "The threshold of each label was tuned on validation rows. It is in the head's bias: a probability above "
            "0.5 means that a row has the label.",
            "",
        ]
    if pretrained:
        lines += [f"It went on from {described_origin(pretrained)}.", ""]
    if task.get("kind") == "masked-lm":
        head_steps = task.get("head_steps")
        came = "came with the encoder"
        if head_steps:
            came = f"was fitted on the frozen encoder for {head_steps:,} steps first"
        lines += [
            f"It learned to guess hidden words of texts, and knows no task yet. The head of masked words {came}.",
            "",
        ]
    return lines


def _title(task, head):
    """What the adapter is for; tasks of the user's own files have no name of their own."""
    name = task.get("name")
    if name not in (None, "files"):
        return name
    labels = head["labels"] or []
    if not labels:
        return f"Adapter for {task['kind'].replace('-', ' ')}" if task.get("kind") else "Adapter"
    more = " ..." if len(labels) > _MOST_LABELS_IN_A_TITLE else ""
    return f"Adapter for {', '.join(map(_cell, labels[:_MOST_LABELS_IN_A_TITLE]))}{more}"


def told(values):
    """What of a run's settings is worth a line, a str."""
    return ", ".join(
        f"{name.replace('_', ' ')} {f'{value:g}' if isinstance(value, float) else value}"
        for name, value in values.items()
        if value is not None and not isinstance(value, bool)
    )


def _result(settings):
    """The lines that say what came out; none where nobody looked."""
    result, seeds = settings.get("result"), settings.get("seeds")
    if result is None and not seeds:
        return []
    lines = ["## Result", ""]
    if result is not None:
        numbers = {name.replace("_", " "): value for name, value in result["numbers"].items()}
        numbers |= {f"the same of {_cell(what)}": value for what, value in result["without_training"].items()}
        lines += [f"On {result['rows']:,} {result['split']} rows, which were not trained on:", "", "| | |", "|---|---|"]
        lines += [f"| {name} | {_number(value)} |" for name, value in numbers.items()]
    for split, numbers in (seeds or {}).get("summary", {}).items():
        spread = "" if numbers["sd"] is None else f", standard deviation {numbers['sd']:.4f}"
        lines += ["", f"Over {numbers['n']} seeds: {split} {seeds['metric']} {numbers['mean']:.4f}{spread}."]
    if result is not None and result["classes"]:
        lines += ["", "| label | precision | recall | F1 | rows |", "|---|---|---|---|---|"]
    for label, row in ((result or {}).get("classes") or {}).items():
        values = " | ".join(_number(row[name]) for name in ("precision", "recall", "f1"))
        lines.append(f"| {_cell(label)} | {values} | {row['rows']} |")
    if result is not None:
        made = ", ".join(f"{_cell(name)} {_cell(version)}" for name, version in result["versions"].items())
        lines += ["", f"{_cell(result['date'])}; {made}."]
    return [*lines, ""]


def _number(value):
    return "not finite" if value is None else f"{value:.4f}"


def described_origin(pretrained):
    """What training went on from, of the settings' `pretrained_adapter`, in words."""
    text = f"{pretrained['directory']} ({pretrained['task']}"
    if pretrained["kind"] == "masked-lm":
        head_steps = pretrained["head_steps"]
        head = f"a head that was fitted for {head_steps:,} steps" if head_steps else "the encoder's own head"
        text += f": hidden words, {pretrained['step']:,} steps, with {head}"
    return text + ")"


def _cell(value):
    return str(value).replace("|", "\\|").replace("\n", " ")
