"""The README.md of an adapter directory."""

# What to do with a directory of this kind; with others, predict.
_COMMANDS = {
    "masked-lm": "tf-adapters train --from-pretrained-adapter DIRECTORY --train train.csv --validation dev.csv "
    "--output adapters/mine"
}


def model_card(settings):
    """Markdown text that tells a reader what an adapter directory holds and how to use it.

    Args:
        settings: content of `tf_adapters.json`.
    """
    backbone, head, parameters = settings["backbone"], settings["head"], settings["parameters"]
    task = settings["task"] or {}
    lines = [
        "---",
        "library_name: tf_adapters",
        "tags: [adapter, tensorflow, keras]",
        "---",
        "",
        f"# {task.get('name', 'Adapter')} on {backbone['source']}",
        "",
        f"Trained with tf_adapters {settings['tf_adapters_version']}: `{settings['trainable']}`"
        + (f", recipe `{settings['recipe']}`" if settings["recipe"] else "")
        + ".",
        "",
    ]
    if backbone["weights_saved"]:
        lines += ["The encoder's own weights were trained too and are part of this directory.", ""]
    pretrained = settings.get("pretrained_adapter")
    if pretrained:
        lines += [f"It went on from {described_origin(pretrained)}.", ""]
    if task.get("kind") == "masked-lm":
        head_steps = task.get("head_steps")
        came = (
            f"was fitted on the frozen encoder for {head_steps:,} steps first"
            if head_steps
            else "came with the encoder"
        )
        lines += [
            f"It learned to guess hidden words of texts, and knows no task yet. The head of masked words {came}.",
            "",
        ]
    rows = [("Trained parameters", f"{parameters['trained']:,} of {parameters['total']:,}")]
    rows += [
        (f"- {kind}", f"{parameters[kind]:,}")
        for kind in ("adapter", "layer_norm", "head", "backbone")
        if parameters[kind]
    ]
    if settings["adapter"]:
        rows += [(f"Adapter {key}", value) for key, value in settings["adapter"].items()]
    rows += [
        (
            "Encoder",
            f"{backbone['source']} ({backbone['model_type']}, {backbone['num_hidden_layers']} x "
            f"{backbone['hidden_size']})",
        ),
        ("Encoder digest", backbone["sha256"]),
        (
            "Head",
            f"{head['type']}, {head['layers']} layer(s)" + (", with the encoder's pooler" if head["pooler"] else ""),
        ),
    ]
    if task.get("kind") != "masked-lm":
        rows.append(("Labels", ", ".join(head["labels"]) if head["labels"] else head["num_labels"]))
    rows += [(name, f"{value:.4f}") for name, value in (settings["metrics"] or {}).items() if isinstance(value, float)]
    lines += ["| | |", "|---|---|"] + [f"| {name} | {_cell(value)} |" for name, value in rows]
    if task.get("source"):
        lines += ["", f"Data: {task['source']}"]
    lines += [
        "",
        "## Use",
        "",
        "```bash",
        _COMMANDS.get(
            task.get("kind"),
            "tf-adapters predict DIRECTORY --input texts.csv --text-column text --output predictions.jsonl",
        ),
        "```",
        "",
        "```python",
        "import tf_adapters",
        'model, settings = tf_adapters.load_trained("DIRECTORY")',
        "```",
        "",
    ]
    return "\n".join(lines)


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
