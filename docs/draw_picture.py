"""Draws docs/picture.svg: where adapters stand in a block, and several tasks on one encoder.

    python docs/draw_picture.py

Boxes bring their own ground; lines and words outside of them are grey enough for light and dark pages.
"""

import pathlib
from xml.sax.saxutils import escape

PICTURE = pathlib.Path(__file__).with_name("picture.svg")
WIDTH, HEIGHT = 960, 470
LINE = "#707c89"
FROZEN, TRAINED, PLAIN = ("#dbe4ee", "#8fa3b8"), ("#ffb77d", "#d9731a"), ("#f4f6f8", "#b3bec9")
EITHER = ("#ffe9d6", "#d9731a")  # LayerNorms, which most recipes train
TASKS = (
    ("film", "a quiet, moving film", "positive", ("#ffb77d", "#d9731a")),
    ("spam", "win a prize now", "spam", ("#9fdcb4", "#2f9a5a")),
    ("topics", "the bank cut its rate", "finance", ("#c9b8f2", "#7a5bd0")),
)


def box(x, y, width, height, text, colours=FROZEN, *, size=15, bold=False):
    """A box with a line of text in its middle."""
    fill, stroke = colours
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="7" fill="{fill}" stroke="{stroke}" '
        f'stroke-width="1.5"/>{words(x + width / 2, y + height / 2 + size * 0.36, text, size=size, bold=bold)}'
    )


def words(x, y, text, *, size=15, colour="#1d2733", anchor="middle", bold=False):
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"{weight}>'
        f"{escape(text)}</text>"
    )


def path(*points, arrow=True):
    """A line through points, with a head at its end."""
    line = " L".join(f"{x:g} {y:g}" for x, y in points)
    end = ' marker-end="url(#head)"' if arrow else ""
    return f'<path d="M{line}" fill="none" stroke="{LINE}" stroke-width="1.6"{end}/>'


def block():
    """A block of BERT from the bottom up, two adapters in it, and the layers of one."""
    rows = (
        (388, "Self-attention", FROZEN),
        (334, "Adapter", TRAINED),
        (280, "Add and LayerNorm", EITHER),
        (208, "Feed-forward", FROZEN),
        (154, "Adapter", TRAINED),
        (100, "Add and LayerNorm", EITHER),
    )
    left, width, height = 62, 168, 34
    middle = left + width / 2
    parts = [words(middle, 40, "A block of BERT", colour=LINE, size=17, bold=True)]
    parts += [box(left, y, width, height, text, colours) for y, text, colours in rows]
    tops = [y for y, _, _ in rows]
    parts.append(path((middle, 456), (middle, tops[0] + height)))
    parts += [path((middle, lower), (middle, upper + height)) for lower, upper in zip(tops, tops[1:])]
    parts.append(path((middle, tops[-1]), (middle, 66)))
    for start, end in ((440, 280), (260, 100)):  # around a sub-layer
        parts.append(path((middle, start), (36, start), (36, end + height / 2), (left, end + height / 2)))
    # What an adapter is.
    x, wide, narrow = 292, 130, 70
    centre = x + wide / 2
    parts.append(path((left + width, 171), (270, 171), arrow=False))
    parts.append(
        f'<rect x="270" y="96" width="174" height="262" rx="10" fill="none" stroke="{TRAINED[1]}" '
        'stroke-width="1.5" stroke-dasharray="5 4"/>'
    )
    parts += [
        words(centre - 5, 84, "An adapter", colour=LINE, size=15, bold=True),
        box(x - 5, 296, wide, 34, "768 to 64", TRAINED),
        box(x - 5 + (wide - narrow) / 2, 238, narrow, 32, "GELU", PLAIN),
        box(x - 5, 180, wide, 34, "64 to 768", TRAINED),
        box(x - 5 + (wide - 40) / 2, 124, 40, 30, "+", PLAIN, size=18),
        path((centre - 5, 352), (centre - 5, 330)),
        path((centre - 5, 296), (centre - 5, 270)),
        path((centre - 5, 238), (centre - 5, 214)),
        path((centre - 5, 180), (centre - 5, 154)),
        path((centre - 5, 345), (432, 345), (432, 139), (centre + 15, 139)),
        path((centre - 5, 124), (centre - 5, 104)),
    ]
    return parts


def tasks():
    """Texts of several tasks through one encoder, an adapter and a head for each."""
    parts = [words(712, 40, "Several tasks on one frozen encoder", colour=LINE, size=17, bold=True)]
    parts.append(box(640, 72, 186, 300, "", FROZEN))
    parts.append(words(733, 98, "Encoder", size=15, bold=True))
    parts.append(words(733, 356, "frozen, in memory once", size=13))
    for row, (name, text, label, colours) in enumerate(TASKS):
        y = 116 + row * 76
        parts += [
            words(484, y + 15, text, size=14, colour=LINE, anchor="start"),
            path((484, y + 27), (656, y + 27)),
            box(660, y + 8, 146, 38, f"adapters: {name}", colours, size=13),
            path((806, y + 27), (846, y + 27)),
            box(850, y + 8, 88, 38, label, colours, size=13),
        ]
    return parts


def legend():
    parts = []
    entries = (
        (300, 414, "frozen", FROZEN),
        (396, 414, "trained or frozen, by the recipe", EITHER),
        (676, 414, "trained, a few megabytes a task", TRAINED),
    )
    for x, y, text, (fill, stroke) in entries:
        parts.append(
            f'<rect x="{x}" y="{y}" width="18" height="18" rx="4" fill="{fill}" stroke="{stroke}" stroke-width="1.5"/>'
        )
        parts.append(words(x + 26, y + 14, text, size=14, colour=LINE, anchor="start"))
    return parts


def picture():
    """The picture, SVG text."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="-apple-system, Segoe UI, Helvetica, Arial, sans-serif">'
        "<title>Adapters in a block of BERT, and several tasks on one encoder</title>"
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L10 5 L0 10 z" fill="{LINE}"/></marker></defs>'
    )
    return "\n".join([head, *block(), *tasks(), *legend(), "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
