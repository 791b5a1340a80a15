"""`tf-adapters info`."""

import json
import pathlib

import typer


def info(
    source: str = typer.Argument(help="Adapter directory, or a model: `minilm`, a directory with config.json, a hub id."),
    adapter_size: int = typer.Option(64, help="Units of the bottleneck in the table of a model."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
):
    """Show what an adapter directory holds, or what adapters would cost on a model.

    A model's configuration is enough: no weights are loaded.
    """
    from rich.console import Console

    from tf_adapters.saving.layout import SETTINGS_FILE

    console = Console(highlight=False, soft_wrap=True)
    if (pathlib.Path(source) / SETTINGS_FILE).exists():
        _show_directory(console, pathlib.Path(source), as_json)
    else:
        _show_model(console, source, adapter_size, as_json)


def _show_directory(console, directory, as_json):
    from tf_adapters.cli.quiet import import_tensorflow

    import_tensorflow()
    from tf_adapters.cli.report import show_numbers
    from tf_adapters.saving.directory import directory_size, read_settings

    settings = read_settings(directory)
    size = directory_size(directory)
    if as_json:
        print(json.dumps({**settings, "bytes": size}, indent=2, ensure_ascii=False))
        return
    task, backbone, head = settings["task"] or {}, settings["backbone"], settings["head"]
    parameters = settings["parameters"]
    rows = {
        "task": f"{task.get('name', 'unknown')} ({task.get('kind', 'unknown')})",
        "labels": ", ".join(head["labels"] or []) or f"{head['num_labels']} output(s)",
        "recipe": settings["recipe"] or "none",
        "trained": f"{settings['trainable']}: {parameters['trained']:,} of {parameters['total']:,} parameters "
        f"({parameters['trained'] / parameters['total']:.2%})",
    }
    rows.update(
        {
            f"trained {kind.replace('_', ' ')}": f"{parameters[kind]:,}"
            for kind in ("adapter", "layer_norm", "head", "backbone")
            if parameters[kind]
        }
    )
    if backbone["weights_saved"]:
        rows["encoder weights"] = "trained and saved in this directory; the encoder is not shared with other adapters"
    rows.update({f"adapter {name}": str(value) for name, value in (settings["adapter"] or {}).items()})
    rows["encoder"] = f"{backbone['source']} ({backbone['num_hidden_layers']} x {backbone['hidden_size']})"
    rows["encoder digest"] = backbone["sha256"]
    rows["head layers"] = str(head["layers"])
    rows["size"] = f"{size / 1e6:.2f} MB ({size:,} bytes)"
    rows.update(settings["metrics"] or {})
    show_numbers(console, str(directory), rows)


def _show_model(console, source, adapter_size, as_json):
    import dataclasses

    from rich.table import Table

    from tf_adapters.cli.quiet import import_tensorflow

    import_tensorflow()
    from tf_adapters.models.loading import find_files, read_config
    from tf_adapters.recipes import RECIPES

    family, config = read_config(find_files(source, config_only=True))
    sizes = family.parameters(config)
    rows = []
    for recipe in RECIPES.values():
        adapter = dataclasses.replace(recipe.adapter, bottleneck_size=adapter_size)
        count = len(set(adapter.sites(config.num_hidden_layers).values()))
        adapters = count * adapter.parameters_per_adapter(config.hidden_size)
        norms = sizes["layer_norm"][adapter.train_layer_norm]
        head = (recipe.head_layers - 1) * (config.hidden_size + 1) * config.hidden_size
        rows.append(
            {
                "recipe": recipe.name,
                "adapters": count,
                "adapter": adapters,
                "layer_norm": norms,
                "head": head,
                "trained": adapters + norms + head,
                "share": (adapters + norms + head) / sizes["total"],
            }
        )
    if as_json:
        print(json.dumps({"source": source, "model_type": family.model_type, "total": sizes["total"], "recipes": rows}, indent=2))
        return
    console.print(
        f"{source}: {family.model_type}, {config.num_hidden_layers} blocks of {config.hidden_size}, "
        f"{sizes['total']:,} parameters without a head, {config.max_position_embeddings} positions"
    )
    table = Table(
        title=f"Trained parameters with adapters of {adapter_size} units, without the last classifier", title_justify="left"
    )
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="left" if name == "recipe" else "right")
    for row in rows:
        table.add_row(*(f"{v:.2%}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else v for v in row.values()))
    console.print(table)
