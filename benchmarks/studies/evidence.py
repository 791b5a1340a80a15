"""What is recorded of the papers' studies, and what a number with its interval says of a claim."""

import csv
import dataclasses
import functools
import json
import math

from benchmarks.studies.recorded import read
from tf_adapters.studies.numbers import paired_seeds

HOLDS, NOT_SEEN, UNCLEAR = "holds", "not seen", "cannot tell"
# Studies whose commit is not in this repository's history.
ELSEWHERE = ("ablation", "attack", "init", "low-resource-cola-sst2", "sharing-cola", "sharing-sst2", "size")
_TITLES = {
    "glue/cola": "CoLA", "glue/sst2": "SST-2", "glue/mrpc": "MRPC", "glue/rte": "RTE", "glue/stsb": "STS-B",
    "tae/acl-arc": "ACL-ARC", "tae/scierc": "SciERC", "tae/chemprot": "ChemProt", "tae/imdb": "IMDB",
    "crowdflower/airline": "airline", "crowdflower/corporate-messaging": "corporate messaging",
    "crowdflower/emotion": "emotion", "crowdflower/global-warming": "global warming", "sms-spam": "SMS spam",
    "ud/en_ewt": "UD English", "xquad/en": "XQuAD",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Found:
    """A task of a recorded study: its title, its summary, the study's settings, and how it was trained, in words."""

    title: str
    about: dict
    settings: dict
    words: str


class Recorded:
    """The recorded studies of a folder, and the results of other commands beside it."""

    def __init__(self, folder):
        self.folder = folder

    def tasks(self, *names):
        """Yield a `Found` for each task of the studies that are recorded."""
        for name in names:
            document = self.document(name)
            for task, about in (document["summary"]["tasks"] if document else {}).items():
                rates = {arm: row.get("learning_rate") for arm, row in about.get("arms", {}).items()}
                runs = [run for run in self.runs(name, task) if rates.get(run["arm"]) in (None, run["learning_rate"])]
                yield self._found(task, about, document["settings"], about.get("metric"), runs, name)

    def others(self, name):
        """Yield a `Found` for each task of a result of another command, if it is there."""
        document = self.other(name)
        for task, about in document["tasks"].items() if document else ():
            runs = [run for run in self.other_runs(name) if run["settings"].get("task") == task and "metric" in run]
            settings = {**document["settings"], "seeds": len({run["seed"] for run in runs})}
            yield self._found(task, about, settings, about["metric"], at_best_rates(runs), name)

    def _found(self, task, about, settings, metric, runs, name):
        # Both are there of some tasks: what was trained by its paper's recipe, and what was before there were recipes.
        title = _TITLES.get(task, task) + (", by its recipe" if "recipe" in settings else "")
        source = f"`{name}`{'†' if name in ELSEWHERE else ''}"
        source += ", unfinished" if (self.folder / name / "values.jsonl").exists() else ""
        rows = {"rows": about["train_rows"]} if "train_rows" in about else {}
        words = [metric, budget({**settings, **rows}), self.beside(task, runs), source]
        return Found(title, about, settings, f"{title} ({'; '.join(word for word in words if word)})")

    def beside(self, task, runs):
        """What the constant answer scores, for beside a task's figures, and how many models are more accurate."""
        constant = next((run["constant"] for run in runs if run.get("constant") is not None), None)
        if constant is None:
            return None
        words, accuracies = f"constant answer {100 * constant:.1f}", [run["accuracy"] for run in runs]
        share = self.constant_accuracies.get(task)
        if runs[0]["metric"] == "accuracy" or share is None or None in accuracies:
            return words
        shown = sorted({f"{100 * one:.1f}" for one in (min(accuracies), max(accuracies))})
        above = sum(one > share for one in accuracies)
        words += f"; accuracy {' to '.join(shown)}, the constant answer's {100 * share:.1f}"
        return words + (f", more in {above} of {len(accuracies)} models" if above else "")

    @functools.cached_property
    def constant_accuracies(self):
        """Dict from a task to the accuracy of its most frequent label on the reported rows, as ablation counted it."""
        document = self.document("ablation")
        maps = document["summary"]["maps"] if document else {}
        return {title.partition(",")[0]: one["constant"] for title, one in maps.items() if one["number"] == "accuracy"}

    def document(self, name):
        """A study's `settings` and `summary`, a dict, or None; of an unfinished one, of the seeds that are done."""
        folder = self.folder / name
        if (folder / "summary.json").exists():
            return read(folder / "summary.json")
        values = self.values(name)
        # All arms are run with one seed, then with the next.
        done = max((value.get("seed", 0) for value in values), default=0)
        if done < 2:
            return None
        begun = read(folder / "study.json")
        begun["settings"]["seeds"] = done
        return {"settings": begun["settings"], "summary": summarised(begun, values)}

    def values(self, name):
        """A study's measured values, a list of dicts: as they were measured, or as `values.csv` has them."""
        folder = self.folder / name
        if (folder / "values.jsonl").exists():
            return [json.loads(line) for line in (folder / "values.jsonl").read_text(encoding="utf-8").splitlines()]
        if not (folder / "values.csv").exists():
            return []
        with open(folder / "values.csv", encoding="utf-8", newline="") as file:
            return [nested(row) for row in csv.DictReader(file)]

    def runs(self, name, task):
        """The runs of a study on a task that did not diverge, with their accuracy or None."""
        runs = [run for run in self.values(name) if (run["measured"], run["task"]) == ("run", task)]
        return [{**run, "accuracy": run["scores"]["reported"].get("accuracy")} for run in runs if run.get("scores")]

    def maps(self, name):
        """Yield `(Found, maps of its variants, number of reported rows)` for each task of an ablation."""
        document, by_task = self.document(name), {}
        counts = {value["task"]: value["rows"] for value in self.values(name) if "rows" in value}
        for title, one in (document["summary"]["maps"] if document else {}).items():
            by_task.setdefault(title.partition(",")[0], []).append(one)
        for task, maps in by_task.items():
            one, whole = maps[0], [variant["whole"]["mean"] for variant in maps]
            models = [{"metric": one["number"], "constant": one["constant"], "accuracy": mean} for mean in whole]
            yield self._found(task, {}, document["settings"], one["number"], models, name), maps, counts[task]

    def other(self, name):
        """The summary of a result of another command, a dict, or None."""
        path = self.folder.parent / name / "summary.json"
        return read(path) if path.exists() else None

    def other_runs(self, name):
        """The runs of a result of another command that did not diverge, with their accuracy or None."""
        lines = (self.folder.parent / name / "runs.jsonl").read_text(encoding="utf-8").splitlines()
        runs = [run for run in map(json.loads, lines) if run.get("scores")]
        return [{**run, "accuracy": run["scores"]["reported"].get("accuracy")} for run in runs]


def at_best_rates(runs):
    """Of each method those at its best rate by validation at the first seed that was run, a list."""
    found = []
    for name in dict.fromkeys(run["method"] for run in runs):
        of_method = [run for run in runs if run["method"] == name]
        first = [run for run in of_method if run["seed"] == of_method[0]["seed"]]
        best = min(first, key=lambda run: (-run["validation_best"], run["learning_rate"]))
        found += [run for run in of_method if run["learning_rate"] == best["learning_rate"]]
    return found


def summarised(document, values):
    """What values come to by their study, whose `study` and `settings` are in a dict."""
    from tf_adapters.studies import get_study

    return get_study(document["study"]).of_settings(document["settings"]).summarise(values)


def nested(row):
    """A value as it was measured, of its row of `values.csv`, whose columns are the names within, with dots."""
    found = {}
    for column, word in row.items():
        # A landscape's names are numbers, with dots of their own.
        *outer, last = column.split(".", 1 if column.startswith(("losses.", "training_losses.")) else -1)
        inside = found
        for name in outer if word != "" else ():
            inside = inside.setdefault(name, {})
        if word != "":
            inside[last] = word if column in ("measured", "task", "arm", "metric", "number") else _number(word)
    if found["measured"] == "run":
        found.setdefault("scores", None)
    return _listed(found)


def _number(word):
    for of in (int, float):
        try:
            return of(word)
        except ValueError:
            pass
    return word


def _listed(value):
    """With lists where the names are numbers from 1 on."""
    if not isinstance(value, dict):
        return value
    value = {name: _listed(part) for name, part in value.items()}
    return list(value.values()) if list(value) == [str(place + 1) for place in range(len(value))] else value


def score(numbers):
    """Mean ± standard deviation, in per cent."""
    return f"{100 * numbers['mean']:.1f} ± {100 * numbers['sd']:.1f}"


def difference(numbers, factor=100, digits=1):
    """A difference with its 95 % interval, of shares in points."""
    mean, low, high = (f"{factor * value:+.{digits}f}" for value in (numbers["mean"], *numbers["interval"]))
    return f"{mean} ({low} to {high})"


def reach(numbers, digits=1):
    """The least and the greatest of numbers."""
    return f"{min(numbers):.{digits}f} to {max(numbers):.{digits}f}"


def per_cent(shares):
    """The least and the greatest of shares, in per cent."""
    return reach([100 * share for share in shares])


def ratio_of(numbers):
    """A ratio with its 95 % interval, or what is said where there is none."""
    if numbers is None:
        return "unknown"
    return f"{numbers['mean']:.2f} ({' to '.join(f'{bound:.2f}' for bound in numbers['interval'])})"


def budget(settings):
    """What a task was trained with, in words."""
    rows, seeds = settings.get("rows"), settings["seeds"]
    words = [f"{rows:,} rows"] if rows else [f"{count:,.0f} rows" for count in settings.get("counts", ())[:1]]
    return ", ".join([*words, f"{settings['epochs']} epochs", f"{seeds} seed{'s' if seeds > 1 else ''}"])


def edges(arms):
    """What is to be said of the rates of arms: at the edge of those that were tried."""
    count = sum(arm["at_edge"] for arm in arms.values())
    return f"; best rate at the edge of the grid: {count} of {len(arms)} arms" if count else ""


def one_rate(settings):
    """What is to be said of arms of many sizes that had one rate each."""
    return "; one rate for all sizes, chosen for none" if len(settings["learning_rates"]) == 1 else ""


def says(numbers, above=-math.inf, below=math.inf):
    """The verdict on the claim that a difference lies between two bounds, by its `mean` and its `interval`."""
    low, high = numbers["interval"]
    if above < low and high < below:
        return HOLDS
    return UNCLEAR if above < numbers["mean"] < below else NOT_SEEN


def shown_by(condition, seeds):
    """The verdict on a claim of which numbers without an interval say yes or no."""
    return (HOLDS if condition else NOT_SEEN) + (" (one seed)" if seeds == 1 else "")


def least(words):
    """The verdict on a claim of several parts, which holds where each does."""
    return next(word for word in (NOT_SEEN, UNCLEAR, HOLDS) if word in words)


def of_shares(first, second):
    """The difference of two shares with Newcombe's interval, of their means and Wilson's intervals."""
    (p, (low, high)), (q, (least_q, most_q)) = first, second
    less, more = math.hypot(p - low, most_q - q), math.hypot(high - p, q - least_q)
    return {"mean": p - q, "interval": [p - q - less, p - q + more]}


def of_spreads(first, second):
    """The ratio of two standard deviations, with the interval of the F test; None where one is zero."""
    from scipy.stats import f

    if not first["sd"] or not second["sd"]:
        return None
    ratio, (low, high) = first["sd"] / second["sd"], f.ppf([0.025, 0.975], first["n"] - 1, second["n"] - 1)
    return {"mean": ratio, "interval": [ratio / float(high) ** 0.5, ratio / float(low) ** 0.5]}


def by_seed(runs, number):
    """The paired difference of a number of each run, a function: adapters less full fine-tuning, seed by seed."""
    adapters, full = ({run["seed"]: number(run) for run in runs if run["arm"] == arm} for arm in ("adapters", "full"))
    return paired_seeds(adapters, full)


def of_seeds(arm):
    """Dict from a seed to a value of `spread`; by place where it has no seeds, as of studies of before."""
    return dict(zip(arm.get("seeds") or range(len(arm["values"])), arm["values"]))


def apart_by_seed(arm, other):
    """The paired difference of two spreads, seed by seed."""
    return paired_seeds(of_seeds(arm), of_seeds(other))


def verdict(of_each):
    """One verdict of those of several tasks, a dict from title to verdict."""
    kinds = {}
    for title, word in of_each.items():
        kinds.setdefault(word, []).append(title)
    if len(kinds) == 1:
        return next(iter(kinds))
    return "; ".join(f"{word}: {', '.join(titles)}" for word, titles in kinds.items())
