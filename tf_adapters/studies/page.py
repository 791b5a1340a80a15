"""One HTML page with the figures and tables of all studies below a folder."""

import html
import json

from tf_adapters.errors import NAME, InputError
from tf_adapters.json_input import read_json
from tf_adapters.paths import to_path
from tf_adapters.saving.atomic import write_text
from tf_adapters.studies.lab import SUMMARY_FILE

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em; color: #222; }
h2 { margin: 2.5em 0 0; border-top: 1px solid #ddd; padding-top: 1em; }
figure { margin: 1em 0; } figure svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 13px; } td, th { padding: .2em .8em .2em 0; text-align: left; }
tr { border-bottom: 1px solid #eee; } .source, details { color: #666; font-size: 13px; } nav a { margin-right: 1em; }
"""


def write_page(folder, output):
    """Write the page; the number of studies on it.

    Raises:
        InputError: there is no finished study below the folder.
    """
    from tf_adapters.studies import STUDIES
    from tf_adapters.studies.study import title_of

    folder, parts, names = to_path(folder), [], []
    for path in sorted(folder.rglob(SUMMARY_FILE)):
        content = read_json(path, "make the study anew")
        study = STUDIES.get(content.get("study"))
        if study is None:
            continue
        name = str(path.parent.relative_to(folder)) if path.parent != folder else study.name
        drawing = path.parent / f"{study.name}.svg"
        if not drawing.is_file():
            raise InputError(
                f"{drawing} is missing: run the study again with the same options and {{resume}}.", resume=NAME
            )
        svg = drawing.read_text(encoding="utf-8")
        columns, rows = study(**_arguments(study, content["settings"])).table(content["summary"])
        head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(word)}</td>' for word in row)}</tr>" for row in rows)
        settings = html.escape(json.dumps(content["settings"], indent=1))
        anchor = name.replace("/", "-")
        names.append(f'<a href="#{anchor}">{html.escape(name)}</a>')
        parts.append(
            f'<h2 id="{anchor}">{html.escape(name)}</h2><p>{html.escape(title_of(study))}</p>'
            f'<p class="source">{html.escape(study.figures)}; {content["values"]:,} values, '
            f"{html.escape(', '.join(f'{package} {version}' for package, version in content['versions'].items()))}</p>"
            f"<figure>{_named_apart(svg[svg.index('<svg') :], anchor)}</figure>"
            f"<table><tr>{head}</tr>{body}</table><details><summary>settings</summary><pre>{settings}</pre></details>"
        )
    if not parts:
        raise InputError(f"{folder} has no finished study below it: run `tf-adapters study NAME` first.")
    write_text(
        output,
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Studies</title><style>{_STYLE}</style>'
        f"<h1>Studies</h1><nav>{''.join(names)}</nav>{''.join(parts)}</html>\n",
    )
    return len(parts)


def _arguments(study, settings):
    from tf_adapters.studies.study import options_of

    known = options_of(study)
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in settings.items() if name in known
    }


def _named_apart(svg, prefix):
    """The figure with names of its own: two on a page would share clip paths and markers."""
    for mark in ('id="', 'href="#', "url(#"):
        svg = svg.replace(mark, f"{mark}{prefix}-")
    return svg
