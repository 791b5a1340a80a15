"""Figures that a paper could print, each as PNG and SVG, and a page of them."""

import html
import json

from tf_adapters.errors import NAME, InputError
from tf_adapters.paths import read_json, to_path
from tf_adapters.saving.atomic import replacing, write_text

#: The file in a study's folder with its settings and what it found.
SUMMARY_FILE = "summary.json"
WIDTH, HEIGHT = 5.2, 3.6
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f")
MARKERS = "osD^vPX*"
SCORE = "{metric}, % (mean, standard error)"
LONGEST = 36  # characters of a label along y in one line
_STYLE = {
    "font.size": 9, "axes.titlesize": 9, "axes.labelsize": 9, "legend.fontsize": 8, "legend.handlelength": 1.5,
    "xtick.labelsize": 8, "ytick.labelsize": 8, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "0.9", "grid.linewidth": 0.6, "axes.axisbelow": True, "lines.linewidth": 1.4,
    "lines.markersize": 4, "legend.framealpha": 0.85, "legend.edgecolor": "none", "svg.fonttype": "none",
    "svg.hashsalt": "tf_adapters", "savefig.dpi": 200,
}  # fmt: skip


def write_figure(study, summary, folder):
    """Draw a study's summary as `NAME.png` and `NAME.svg`."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        study.draw(summary, figure)
        for ending, metadata in (("png", {}), ("svg", {"Date": None})):
            with replacing(folder / f"{study.name}.{ending}") as temporary:
                figure.savefig(temporary, format=ending, metadata=metadata)


def panels(figure, titles, *, width=3.4, height=2.9, columns=3):
    """One panel for each title, side by side and then below: a list of Matplotlib axes."""
    columns = min(columns, max(1, len(titles)))
    rows = -(-len(titles) // columns)
    figure.set_size_inches(max(WIDTH, width * columns), max(HEIGHT, height * rows))
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, title in zip(axes, titles):
        panel.set_title(title, parse_math=False)  # a label may have a "$"
    for panel in axes[len(titles) :]:
        panel.remove()
    return list(axes[: len(titles)])


def by_task(figure, tasks, x, y=SCORE, *, log=False, **size):
    """Yield a panel and what it is of for each task, and name its axes when it is drawn; arguments of `finish`."""
    for panel, (task, about) in zip(panels(figure, list(tasks), **size), tasks.items()):
        yield panel, about
        finish(panel, x, y, about, log=log)


def finish(panel, x, y=SCORE, about=None, *, log=False):
    """Draw the constant answer, name the axes, `{metric}` in `y` for the task's, and write the legend; `about` is a
    task's dict, perhaps with `metric` and `constant`, and with `log` distances along x are those of logarithms."""
    about = about or {}
    if about.get("constant") is not None:
        panel.axhline(100 * about["constant"], color="0.5", linestyle=":", label="constant answer")
    if log:
        panel.set_xscale("log")
    panel.set_xlabel(x)
    label = y.format(metric=about.get("metric"))
    panel.set_ylabel(label if len(label) <= LONGEST else label.replace(" (", "\n("))
    panel.legend()


def look(number):
    """Colour and marker of a series, a dict for Matplotlib."""
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}


def band(panel, places, rows, number, label):
    """Draw the means of rows, dicts of `numbers.spread`, with a band of one standard error where there is one, and of a
    single mean with a bar; rows without a mean are passed over, and `number` is the series'."""
    import matplotlib.transforms
    import numpy as np

    known = [(place, row["mean"], row["sem"] or 0.0) for place, row in zip(places, rows) if row["mean"] is not None]
    if not known:
        return
    x, means, errors = map(np.asarray, zip(*known))
    if len(x) == 1:
        # Side by side, for series often stand at one place; in points, whatever the axis.
        shift = matplotlib.transforms.ScaledTranslation((number - 0.5) / 10, 0, panel.figure.dpi_scale_trans)
        panel.errorbar(
            x, 100 * means, 100 * errors, label=label, capsize=3, transform=panel.transData + shift, **look(number)
        )
        panel.update_datalim([(x[0], 100 * (means - errors)[0]), (x[0], 100 * (means + errors)[0])])
        return
    panel.plot(x, 100 * means, label=label, **look(number))
    panel.fill_between(x, 100 * (means - errors), 100 * (means + errors), color=look(number)["color"], alpha=0.2, lw=0)


def line(panel, rows, x, number, label=None):
    """Draw the means of arms, dicts of `numbers.spread` and of the place `x`, in its order; labelled as the first of
    them. Arguments of `band`."""
    rows = sorted(rows, key=lambda row: row[x])
    if rows:
        band(panel, [row[x] for row in rows], rows, number, label or rows[0]["title"])


def boxes(panel, groups, labels, number, *, of):
    """Draw a box for each group of shares or None, in percent, with them as points; `of` series stand side by side."""
    import numpy as np

    width = 0.7 / of
    colour = look(number)["color"]
    for place, values in enumerate(groups):
        at = place + (number - (of - 1) / 2) * width
        values = 100 * np.array([value for value in values if value is not None], np.float64)
        if len(values):
            panel.boxplot(
                values, positions=[at], widths=0.8 * width, showfliers=False, patch_artist=True,
                boxprops={"facecolor": colour, "alpha": 0.3, "edgecolor": colour},
                medianprops={"color": colour}, whiskerprops={"color": colour}, capprops={"color": colour},
            )  # fmt: skip
            spread = np.linspace(-0.2, 0.2, len(values)) * width if len(values) > 1 else [0.0]
            panel.plot(at + np.asarray(spread), values, ".", color=colour, markersize=3, alpha=0.7)
    panel.set_xticks(range(len(labels)), labels)
    panel.set_xlim(-0.6, len(labels) - 0.4)


def arms_by_task(figure, tasks):
    """Draw each arm's mean with one standard deviation, and its values, in a group for each task: of a dict from a task
    to a dict of `metric`, perhaps `constant`, and `arms`, dicts of a title and `numbers.spread`."""
    figure.set_size_inches(max(WIDTH, 1.6 + 1.1 * len(tasks)), 3.8)
    panel = figure.subplots()
    names = list(dict.fromkeys(name for about in tasks.values() for name in about["arms"]))
    for place, about in enumerate(tasks.values()):
        for number, name in enumerate(names):
            row, at = about["arms"].get(name), place + (number - (len(names) - 1) / 2) * 0.8 / len(names)
            if row is None or row["mean"] is None:
                continue
            panel.errorbar(
                at, 100 * row["mean"], yerr=100 * (row["sd"] or 0.0), capsize=2, linestyle="",
                label=row["title"], **look(number),
            )  # fmt: skip
            values = [100 * value for value in row["values"]]
            panel.plot([at] * len(values), values, ".", color=look(number)["color"], markersize=2.5, alpha=0.6)
        if about.get("constant") is not None:
            panel.plot([place - 0.42, place + 0.42], [100 * about["constant"]] * 2, color="0.5", linestyle=":",
                       label="constant answer")  # fmt: skip
    panel.set_xticks(range(len(tasks)), [f"{task}\n{about['metric']}" for task, about in tasks.items()])
    panel.set_ylabel("score, % (mean and sd over seeds)")
    handles, labels = panel.get_legend_handles_labels()
    of_label = dict(zip(labels, handles))  # of several tasks one
    panel.legend(of_label.values(), of_label.keys(), ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.22))


def heat_map(panel, figure, matrix, *, label, low=None, high=None, text=None):
    """Draw a matrix, NaN left white, with numbers in its cells where there are few, unless `text` is False."""
    import numpy as np

    panel.grid(False)
    image = panel.imshow(np.ma.masked_invalid(matrix), cmap="viridis", vmin=low, vmax=high, origin="upper")
    figure.colorbar(image, ax=panel, label=label, shrink=0.85)
    if matrix.shape[0] <= 12 and text is not False:
        for (row, column), value in np.ndenumerate(matrix):
            if np.isfinite(value):
                red, green, blue, _ = image.cmap(image.norm(value))
                dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
                shown = (text or "{:.0f}").format(value)
                shown = shown if float(shown) else "0"
                panel.text(column, row, shown, ha="center", va="center", fontsize=6, color="w" if dark else "k")
    return image


_PAGE_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em; color: #222; }
h2 { margin: 2.5em 0 0; border-top: 1px solid #ddd; padding-top: 1em; }
figure { margin: 1em 0; } figure svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 13px; } td, th { padding: .2em .8em .2em 0; text-align: left; }
tr { border-bottom: 1px solid #eee; } .source, details { color: #666; font-size: 13px; } nav a { margin-right: 1em; }
"""


def write_page(folder, output):
    """Write the page; the number of studies on it. InputError if there is no finished study below the folder."""
    from tf_adapters.studies import STUDIES

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
        svg, anchor = drawing.read_text(encoding="utf-8").partition("<svg")[2], name.replace("/", "-")
        for mark in ('id="', 'href="#', "url(#"):  # two figures on a page would share clip paths and markers
            svg = svg.replace(mark, f"{mark}{anchor}-")
        columns, rows = study.of_settings(content["settings"]).table(content["summary"])
        head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(word)}</td>' for word in row)}</tr>" for row in rows)
        settings = html.escape(json.dumps(content["settings"], indent=1))
        names.append(f'<a href="#{anchor}">{html.escape(name)}</a>')
        parts.append(
            f'<h2 id="{anchor}">{html.escape(name)}</h2><p>{html.escape(study.about())}</p>'
            f'<p class="source">{html.escape(study.figures)}; {content["values"]:,} values, '
            f"{html.escape(', '.join(f'{package} {version}' for package, version in content['versions'].items()))}</p>"
            f"<figure><svg{svg}</figure>"
            f"<table><tr>{head}</tr>{body}</table><details><summary>settings</summary><pre>{settings}</pre></details>"
        )
    if not parts:
        raise InputError(f"{folder} has no finished study below it: run `tf-adapters study NAME` first.")
    write_text(
        output,
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Studies</title><style>{_PAGE_STYLE}</style>'
        f"<h1>Studies</h1><nav>{''.join(names)}</nav>{''.join(parts)}</html>\n",
    )
    return len(parts)
