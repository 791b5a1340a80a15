"""The README.md of an adapter directory."""


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
    rows = [("Trained parameters", f"{parameters['trained']:,} of {parameters['total']:,}")]
    rows += [(f"- {kind}", f"{parameters[kind]:,}") for kind in ("adapter", "layer_norm", "head", "backbone") if parameters[kind]]
    if settings["adapter"]:
        rows += [(f"Adapter {key}", value) for key, value in settings["adapter"].items()]
    rows += [
        ("Encoder", f"{backbone['source']} ({backbone['model_type']}, {backbone['num_hidden_layers']} x {backbone['hidden_size']})"),
        ("Encoder digest", backbone["sha256"]),
        ("Head", f"{head['type']}, {head['layers']} layer(s)" + (", with the encoder's pooler" if head["pooler"] else "")),
        ("Labels", ", ".join(head["labels"]) if head["labels"] else head["num_labels"]),
    ]
    rows += [(name, f"{value:.4f}") for name, value in (settings["metrics"] or {}).items() if isinstance(value, float)]
    lines += ["| | |", "|---|---|"] + [f"| {name} | {_cell(value)} |" for name, value in rows]
    if task.get("source"):
        lines += ["", f"Data: {task['source']}"]
    lines += [
        "",
        "## Use",
        "",
        "```bash",
        "tf-adapters predict DIRECTORY --input texts.csv --text-column text --output predictions.jsonl",
        "```",
        "",
        "```python",
        "import tf_adapters",
        'model, settings = tf_adapters.load_trained("DIRECTORY")',
        "```",
        "",
    ]
    return "\n".join(lines)


def _cell(value):
    return str(value).replace("|", "\\|").replace("\n", " ")
