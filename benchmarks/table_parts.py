"""What the benchmarks' tables have in common; each benchmark makes its own, and tables.py collects them."""

from typing import Callable, NamedTuple

RESULTS_PAGE, NOTES = "docs/results.md", "benchmarks/README.md"
METHOD_TITLES = {
    "adapters": "**adapters**", "full": "full fine-tuning", "fast": "adapters, fast, bfloat16",
    "unsorted": "adapters, batches of random rows",
}  # fmt: skip
MODEL_TITLES = {
    "minilm": "MiniLM (6 x 384)", "bert-base": "BERT-base (12 x 768)",
    "granite-embedding-30m-english": "granite-embedding-30m-english (RoBERTa, 6 x 384)",
}  # fmt: skip


class Table(NamedTuple):
    """How the results of one kind are shown: Markdown, what makes two results the same measurement, of which only the
    newest is shown, and in which file."""

    make: Callable
    key: Callable  # strings and numbers only: they are sorted
    place: Callable = lambda result: RESULTS_PAGE


def of_settings(*names):
    """A table's key: these of the settings."""
    return lambda result: tuple(result["settings"][name] for name in names)


def in_notes(result):
    """A table's place: the notes beside the benchmarks."""
    return NOTES


def titled(settings):
    """The model of settings in words."""
    return MODEL_TITLES.get(settings["model"], settings["model"])


def listed(seeds):
    """Seeds in words."""
    return f"seeds {', '.join(map(str, seeds))}"


def markdown(title, head, sides, rows, *below):
    """A table below its title: its first line, `l` or `r` for each column, rows of cells, and paragraphs below."""
    rule = "".join("---:|" if side == "r" else "---|" for side in sides)
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in rows]
    return "\n\n".join([f"**{title}**", "\n".join([head, f"|{rule}", *lines]), *below])


def mean_and_sd(numbers, missing=""):
    """Of a dict of mean and sd, or None, in per cent."""
    if numbers is None:
        return missing
    return f"{100 * numbers['mean']:.1f}" + ("" if numbers["sd"] is None else f" ± {100 * numbers['sd']:.1f}")


def in_ratio(ratio):
    """A ratio of `pairing.paired_ratio` with its interval, or the range of few rounds; empty for None."""
    if ratio is None:
        return ""
    low, high = ratio["interval"] or (ratio["min"], ratio["max"])
    return f"{ratio['median']:.2f} ({low:.2f} to {high:.2f})"


def in_points(value, missing=""):
    """Of a share, or None, in per cent with two digits."""
    return missing if value is None else f"{100 * value:.2f}"


def short_difference(difference, missing="", digits=2):
    """Of a dict of mean and interval, or None, in points."""
    if difference is None:
        return missing
    mean, *bounds = (f"{100 * value:+.{digits}f}" for value in (difference["mean"], *(difference["interval"] or ())))
    return mean + (f" ({bounds[0]} to {bounds[1]})" if bounds else "")


def origin(result, what):
    """The line below a table: what was done, the machine, versions, date, commit and file."""
    versions = result["versions"]
    if result["kind"] in ("gpu", "step"):
        versions = {**versions.get("torch", {}), **versions.get("jax", {}), **versions.get("tensorflow", {})}
    names = {"tensorflow": "TensorFlow", "jax": "JAX", "keras": "Keras", "torch": "PyTorch"}
    names |= {"adapters": "adapters", "peft": "peft"}
    used = ", ".join(f"{label} {versions[name]}" for name, label in names.items() if name in versions)
    machine, git = result["machine"], result["git"]
    commit = (git["commit"] or "unknown")[:7] + (" with changes" if git["dirty"] else "")
    busy = result.get("busy_cores_in_pauses", 0)
    warning = f" Other programs used {busy:.1f} cores meanwhile." if busy > 0.15 else ""
    cores = f"{machine['cores']} cores" if machine["cores"] > 1 else "1 core"
    return (
        f"<sub>{what}; {cores} of {machine['cpu']}; {used}; {result['date'][:10]}, commit {commit}; "
        f"[{result['file']}]({result['link']}).{warning}</sub>"
    )
