"""Of the site: this package's docstrings in the sections that Griffe knows."""

import re

import griffe

# A section's first line: its title, and perhaps its text, which may go on below.
TITLE = re.compile(
    r"(Args|Attributes|Call arguments|Args, call arguments|Example|Raises|Reference|Returns):(?: (\S.*))?$"
)


class Sections(griffe.Extension):
    """Griffe wants a blank line before each section, its text indented below the title, and `Examples`."""

    def on_object(self, *, obj, loader, **kwargs):
        if not obj.is_alias and obj.docstring is not None:
            obj.docstring.value = "\n".join(_sections(obj.docstring.value.splitlines()))


def _sections(lines):
    while lines:
        title = TITLE.match(lines[0])
        if title is None:
            yield lines.pop(0)
            continue
        lines.pop(0)
        body = []
        # An example's lines may stand below the title without an indentation; all others' are indented.
        while lines and not TITLE.match(lines[0]) and (lines[0].strip() or _goes_on(lines)):
            body.append(lines.pop(0))
        yield from ("", *_section(*title.groups(), body), "")


def _goes_on(lines):
    following = next((line for line in lines if line.strip()), "")
    return following.startswith(" ")


def _section(title, text, body):
    if title == "Example":
        return ["Examples:", *(line if line.startswith(" ") or not line else f"    {line}" for line in body)]
    words = " ".join([text, *(line.strip() for line in body)]) if text else None
    if words and title == "Raises":
        return ["Raises:", "    " + re.sub(r"^(\w+), ", r"\1: ", words)]
    if words:
        return [f"**{title}:** {words}"]
    return ["Other Parameters:" if title == "Call arguments" else f"{title}:", *body]
