"""Of the site: a page for each notebook of examples/notebooks, with its outputs, and the links to notebooks."""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "examples" / "notebooks"
PAGES = "notebooks"
# What a cell prints has a class of its own, which site.css sets apart from code.
TEMPLATE = """{%- extends 'markdown/index.md.j2' -%}
{% block stream %}
``` {.text .printed}
{{ output.text | strip_ansi | trim('\\n') }}
```
{% endblock stream %}
{% block data_text scoped %}
``` {.text .printed}
{{ output.data['text/plain'] | trim('\\n') }}
```
{% endblock data_text %}
"""
LINK = re.compile(r"\]\(((?:\.\./)*(?:examples/notebooks/)?)(\w+)\.ipynb(#[^)]*)?\)")


def on_files(files, config):
    """Called by MkDocs with the site's files."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        text, images = page(path)
        files.append(File.generated(config, f"{PAGES}/{path.stem}.md", content=text))
        for name, content in images.items():
            files.append(File.generated(config, f"{PAGES}/{name}", content=content))
    return files


def page(path):
    """The Markdown of a notebook, and its images: a dict from name to bytes."""
    from nbconvert import MarkdownExporter

    exporter = MarkdownExporter(raw_template=TEMPLATE)
    text, resources = exporter.from_filename(str(path), resources={"unique_key": path.stem})
    # The pages lie beside the guides, and what is drawn needs words for those who do not see it.
    text = text.replace("](../../docs/", "](../").replace("![png](", "![What the cell above draws.](")
    return text, resources["outputs"]


def on_page_markdown(markdown, page, config, files):
    """Called by MkDocs with a page's text: a link to a notebook is one to its page."""

    def to_page(match):
        name, place = match.group(2), match.group(3) or ""
        here = posixpath.dirname(page.file.src_uri)
        return f"]({posixpath.relpath(f'{PAGES}/{name}.md', here or '.')}{place})"

    return LINK.sub(to_page, markdown)
