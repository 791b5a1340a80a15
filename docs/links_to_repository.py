"""Of the site: links to the repository's other files, which it does not hold, become the files' paths.

A link to a file that is not there stops the build, as the strict mode does for links between pages.
"""

import pathlib
import posixpath
import re

from mkdocs.exceptions import PluginError

ROOT = pathlib.Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)]*)?\)")


def on_page_markdown(markdown, page, config, files):
    """Called by MkDocs with a page's text."""

    def path_of(match):
        text, target = match.group(1), match.group(2)
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), target))
        if path.startswith("docs/"):
            return match.group(0)
        if path.startswith("..") or not (ROOT / path).exists():
            raise PluginError(f"{page.file.src_uri}: the link to {target} leads to no file of the repository.")
        return f"`{path}`" if text.strip("`") in path else f"{text} (`{path}`)"

    parts = re.split(r"(^```.*?^```)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else LINK.sub(path_of, part) for part in parts)
