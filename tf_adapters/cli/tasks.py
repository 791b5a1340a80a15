"""`tf-adapters tasks`."""

import json
from typing import Annotated, Optional

import typer

from tf_adapters.cli.command import option
from tf_adapters.cli.quiet import terminal
from tf_adapters.errors import InputError


def tasks(
    prefix: Annotated[
        Optional[str], typer.Argument(help="Show the names that start so, such as `glue/` or `xnli/`.")
    ] = None,
    as_json: option(bool, "Print JSON.", "--json") = False,
):
    """List the named tasks: what they are, by what they are scored, and where their rows come from.

    Those with "yes" under "real rows" were run by this package's authors on the published rows; the others on small
    files in the published layout.

    `tf-adapters tasks crowdflower/`
    """
    from tf_adapters.tasks.registry import ABOUT, FAMILIES

    shown = {name: about for name, about in ABOUT.items() if name.startswith(prefix or "")}
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
