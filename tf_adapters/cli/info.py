"""`tf-adapters info` and `tasks`: what a directory holds, what adapters cost on a model, which tasks there are."""

import dataclasses
import functools
import json
import pathlib
from typing import Optional

from rich import box
from rich.table import Column, Table

from tf_adapters.cli.command import argument, option
from tf_adapters.cli.directories import json_text, local
from tf_adapters.cli.quiet import start, terminal
from tf_adapters.cli.report import mean_and_spread, show_numbers
from tf_adapters.errors import InputError
from tf_adapters.recipes import RECIPES
from tf_adapters.saving.hub import find_adapter
from tf_adapters.saving.model_card import described_origin, told
from tf_adapters.saving.settings import SETTINGS_FILE, directory_size, read_settings
from tf_adapters.tasks.registry import FAMILIES, TASKS
from tf_adapters.training.disk import RESUME_FOLDER


def info(
    source: argument(
        str,
        "Adapter directory, or a model: `minilm`, a directory with config.json; or the id of either on the "
        "HuggingFace hub, with or without `@revision`.",
    ),
    bottleneck_size: option(
        Optional[int],
        "Units of the bottleneck, for the table of a model. Default: each recipe's; LoRA's is its rank.",
        "--bottleneck-size",
        "--adapter-size",
    ) = None,
    as_json: option(bool, "Print JSON.", "--json") = False,
):
    """Show what an adapter directory holds, or what adapters would cost on a model.

    A model's configuration is enough: no weights are loaded.

    `tf-adapters info adapters/rotten-tomatoes`

    `tf-adapters info bert-base-uncased --bottleneck-size 256`
    """
    # A repository of an encoder has none of an adapter's files.
    console, directory = terminal(), local(source, functools.partial(find_adapter, required=False))
    trained = (directory / SETTINGS_FILE).exists()
    directory = directory if trained else pathlib.Path(source)
    if directory.is_dir() and not any((directory / name).exists() for name in (SETTINGS_FILE, "config.json")):
        raise InputError(
            f"{source} holds neither {SETTINGS_FILE} nor config.json: give an adapter directory or a model's directory."
        )
    if trained and bottleneck_size is not None:
        raise InputError(
            f"--bottleneck-size {bottleneck_size} is for a model, and {source} is an adapter directory: leave it out."
        )
    if trained:
        _show_directory(console, directory, as_json)
    else:
        start(console)
        _show_model(console, source, bottleneck_size, as_json)


def _show_directory(console, directory, as_json):
    settings = read_settings(directory)
    size = directory_size(directory)
    if as_json:
        problem = f"{directory} holds numbers that are not finite: train it again."
        print(json_text({**settings, "bytes": size}, problem=problem, indent=2))
        return
    task, backbone, head = settings["task"] or {}, settings["backbone"], settings["head"]
    parameters = settings["parameters"]
    rows = {
        "task": f"{task.get('name', 'unknown')} ({task.get('kind', 'unknown')})",
        "labels": ", ".join(head["labels"] or []) or f"{head['num_labels']} output(s)",
        "went on from": settings.get("pretrained_adapter") and described_origin(settings["pretrained_adapter"]),
        "recipe": settings["recipe"] or "none",
        "trained": f"{settings['trainable']}: {parameters['trained']:,} of {parameters['total']:,} parameters "
        f"({parameters['trained'] / parameters['total']:.2%})",
    }
    if task.get("kind") == "masked-lm":
        fitted = f"fitted here for {task['head_steps']:,} steps" if task["head_steps"] else "the encoder's own"
        rows["labels"] = f"none: it guesses hidden words; its head is {fitted}"
    rows = {name: value for name, value in rows.items() if value is not None}
    parts = ("adapter", "layer_norm", "head", "backbone")
    rows |= {f"trained {part}": f"{parameters[part]:,}" for part in parts if parameters[part]}
    if settings["training"]:
        rows["training"] = told(settings["training"])
    for split, numbers in (settings.get("seeds") or {}).get("summary", {}).items():
        rows[f"{split} over {numbers['n']} seeds"] = mean_and_spread(numbers)
    if backbone["weights_saved"]:
        rows["encoder weights"] = "trained and saved in this directory; the encoder is not shared with other adapters"
    for name, value in (settings["adapter"] or {}).items():
        rows[f"adapter {name}"] = "all" if name == "blocks" and value is None else str(value)
    rows["encoder"] = f"{backbone['source']} ({backbone['num_hidden_layers']} x {backbone['hidden_size']})"
    rows["encoder digest"] = backbone["sha256"]
    rows["head layers"] = str(head["layers"]) + (
        ", on the pooler, which pretraining left untrained" if head["pooler"] else ""
    )
    rows["size"] = f"{size / 1e6:.2f} MB ({size:,} bytes)"
    rows.update(settings["metrics"] or {})
    result = settings.get("result")
    if result:
        rows |= {f"{result['split']} {name}": value for name, value in result["numbers"].items()}
        rows |= {f"the same of {what}": value for what, value in result["without_training"].items()}
    if (directory / RESUME_FOLDER).is_dir():
        rows["run"] = "not finished: this is its best epoch so far; `train ... --resume` goes on with it"
    show_numbers(console, str(directory), rows)


def _show_model(console, source, bottleneck_size, as_json):
    from tf_adapters.models.transformers.loading import find_files, read_config

    try:
        with console.status(f"Reading the configuration of {source} ..."):
            family, config = read_config(find_files(source, config_only=True))
    except InputError as error:
        hint = " info has no table of presets: give a model of transformers." if "door" in error.values else ""
        raise InputError(error.template + hint, **error.values) from None
    total = family.parameters(config)["total"]
    rows = _recipe_rows(family, config, bottleneck_size)
    if as_json:
        about = {"source": source, "model_type": family.model_type, "total": total, "recipes": rows}
        print(json.dumps(about, indent=2))
        return
    console.print(
        f"{source}: {family.model_type}, {config.num_hidden_layers} blocks of {config.hidden_size}, "
        f"{family.positions(config)} positions,\n{total:,} parameters without a head"
    )
    names = ("adapters", "adapter", "norms", "head", "trained", "share")
    columns = [Column("recipe", overflow="fold"), *(Column(name, justify="right", no_wrap=True) for name in names)]
    title = "What each recipe trains, without the last classifier"
    table = Table(*columns, title=title, title_justify="left", box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    alike = {}
    for row in rows:
        alike.setdefault(tuple(value for name, value in row.items() if name != "recipe"), []).append(row)
    for row, *others in alike.values():
        table.add_row(
            "\n".join(each["recipe"] for each in (row, *others)),
            f"{row['adapters']} x {row['bottleneck_size']}" if row["bottleneck_size"] else str(row["adapters"]),
            *(f"{row[name]:,}" for name in ("adapter", "layer_norm", "head", "trained")),
            f"{row['share']:.2%}",
        )
    console.print(table, soft_wrap=False)


def _recipe_rows(family, config, bottleneck_size):
    """Parameters that each recipe trains on a model, as dicts."""
    sizes = family.parameters(config)
    rows = []
    for recipe in RECIPES.values():
        if recipe.trainable != "adapters":
            continue  # their names say it
        adapter = recipe.adapter
        if bottleneck_size is not None and adapter.is_bottleneck:
            adapter = dataclasses.replace(adapter, bottleneck_size=bottleneck_size)
        depth, inner = family.depth(config), family.intermediate_size(config)
        try:
            count = len(set(adapter.sites(depth).values()))
        except InputError:
            continue  # more blocks are to share an adapter than there are
        adapters = adapter.parameters(depth, config.hidden_size, inner)
        norms = sizes["layer_norm"]["encoder" if adapter.train_layer_norm == "adapted" else adapter.train_layer_norm]
        if adapter.train_layer_norm == "adapted" and adapter.blocks is not None:
            norms = norms * len(adapter.blocks) // depth
        size = getattr(adapter, "bottleneck_size", getattr(adapter, "rank", None))
        head = (recipe.head_layers - 1) * (config.hidden_size + 1) * config.hidden_size
        rows.append(
            {
                "recipe": recipe.name,
                "adapters": count,
                "bottleneck_size": size,
                "adapter_size": size,  # as older versions called it
                "adapter": adapters,
                "layer_norm": norms,
                "head": head,
                "trained": adapters + norms + head,
                "share": (adapters + norms + head) / sizes["total"],
            }
        )
    return rows


def tasks(
    prefix: argument(Optional[str], "Show the names that start so, such as `glue/` or `xnli/`.") = None,
    as_json: option(bool, "Print JSON.", "--json") = False,
):
    """List the named tasks: what they are, by what they are scored, and where their rows come from.

    Those with "yes" under "real rows" were run by this package's authors on the published rows; the others on small
    files in the published layout.

    `tf-adapters tasks crowdflower/`
    """
    shown = {name: about for name, about in TASKS.items() if name.startswith(prefix or "")}
    if not shown:
        raise InputError(f"{prefix}: no task's name starts so; `tf-adapters tasks` lists all.")
    if as_json:
        fields = ("kind", "metric", "origin", "run_on_real_rows")
        listed = {name: {field: getattr(about, field) for field in fields} for name, about in shown.items()}
        print(json.dumps(listed, indent=2))
        return
    console = terminal()
    rows = [("task", "kind", "metric", "real rows", "rows from")] + [
        (name, about.kind, about.metric, "yes" if about.run_on_real_rows else "no", about.origin)
        for name, about in shown.items()
    ]
    # Lines, not a table of the terminal's width: origins are long, and lines can be searched by grep.
    widths = [max(map(len, column)) for column in list(zip(*rows))[:-1]]
    for *cells, origin in rows:
        console.print("  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths)), origin]))
    families = ", ".join(f"{family}..." for family in FAMILIES if family.startswith(prefix or ""))
    if families:
        console.print(f"Also, by the name of their data: {families}")
    console.print("Also the names of TensorFlow Datasets with texts and one label, such as imdb_reviews.")
