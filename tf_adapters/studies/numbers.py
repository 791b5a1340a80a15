"""What studies say of runs in numbers: what a run scored, the best of several, spreads, and cells of tables."""

import math
import statistics

from tf_adapters.kinds import get_kind
from tf_adapters.tasks.metrics import METRICS


def about_rows(task, reported):
    """What a run says of its rows, a dict."""
    return {
        "metric": METRICS[task.metric].primary,
        "train_rows": len(task.train),
        "reported_rows": len(reported),
        "constant": constant_score(task, reported),
        "constant_loss": constant_loss(task, reported),
    }


def constant_score(task, reported):
    """The metric of answering each row alike, with the rows' most frequent label, or None."""
    kind = get_kind(task.kind)
    constant = kind.constant(reported, task.labels)
    return None if constant is None else kind.score(task.metric, reported, constant)[METRICS[task.metric].primary]


def constant_loss(task, reported):
    """The log loss of answering each row with the shares of the rows' labels; None of other kinds of tasks."""
    import numpy as np

    if task.kind != "classification":
        return None
    shares = np.unique(reported.labels, return_counts=True)[1] / len(reported)
    return float(-(shares * np.log(shares)).sum())


def at_floor(scores, run):
    """Whether an arm is within noise of the constant answer; None where there is no such answer, or no score.

    Noise is `1 / sqrt(rows)`, which is two standard errors of an accuracy of one half, and one of a correlation of
    nothing; or the 95 % interval of the mean over the seeds (Student's t), where that is greater. `scores` are of
    `spread`, and `run` is one of the arm's.
    """
    from scipy.stats import t

    if run.get("constant") is None or scores["mean"] is None:
        return None
    of_seeds = float(t.ppf(0.975, scores["n"] - 1)) * scores["sem"] if scores["n"] > 1 else 0.0
    return scores["mean"] - run["constant"] < max(of_seeds, run["reported_rows"] ** -0.5)


def of(name, shown=str):
    """A column of a table: a row's value of this name, shown by a function; nothing where the row has none."""
    return lambda row: "" if row.get(name) is None else shown(row[name])


def percent(value):
    """A share in percent, as a table shows it."""
    return "" if value is None else f"{100 * value:.2f}"


def trained_words(row):
    """How much an arm trains, as a table shows it."""
    number = of("trained_parameters", "{:,}".format)(row)
    return f"{number}, the pooler too" if row.get("trained_pooler") else number


def rate_words(row):
    """An arm's best rate, as a table shows it."""
    return f"{of('learning_rate', '{:g}'.format)(row)}{' (edge)' if row.get('at_edge') else ''}"


def interval_words(found):
    """A paired difference in points, with its interval."""
    mean, *bounds = (f"{100 * value:+.2f}" for value in (found["mean"], *(found["interval"] or ())))
    return f"{mean} ({' to '.join(bounds)})" if bounds else mean


# The columns of an arm's scores.
SCORES = {
    "score": lambda row: f"{percent(row['mean'])}{' (at the floor)' if row.get('at_floor') else ''}",
    "sd": of("sd", percent),
}


def is_failed(run):
    """Whether a run diverged, which is a finding about its rate, or has a score that is not a number."""
    return run.get("scores") is None or score_of(run) is None


def best_validation(run):
    """The best validation number of a run's epochs, of which some may have none."""
    numbers = (epoch[run["metric"]] for epoch in run["validation"])
    return max((number for number in numbers if number is not None), default=-math.inf)


def score_of(run, name="reported"):
    """The number that counts of a run, on the rows of that name."""
    return run["scores"][name][run["metric"]]


def rank(runs):
    """Runs of one seed, the best by validation first, of equal ones the smallest rate; failed ones are last."""
    return sorted(
        runs, key=lambda run: (is_failed(run), 0.0 if is_failed(run) else -best_validation(run), run["learning_rate"])
    )


def at_edge(rate, rates):
    """Whether a best rate is at the edge of its grid, which then may not hold the true best."""
    return len(set(rates)) > 1 and rate in (min(rates), max(rates))


def mean_of(numbers):
    """The mean of the numbers that are there, or None: an epoch of constant answers has no correlation."""
    there = [number for number in numbers if number is not None]
    return statistics.fmean(there) if there else None


def spread(values, seeds=None):
    """Dict of the values, their mean, standard deviation, standard error and number, None where there are too few; and
    of their seeds, where they are given."""
    sd = statistics.stdev(values) if len(values) > 1 else None
    return {
        "values": values,
        "mean": statistics.fmean(values) if values else None,
        "sd": sd,
        "sem": None if sd is None else sd / math.sqrt(len(values)),
        "n": len(values),
        **({} if seeds is None else {"seeds": seeds}),
    }


def paired_seeds(first, second):
    """`paired` of the seeds of both, of two dicts from a seed to a number; None where there are none."""
    both = sorted(set(first) & set(second))
    return paired(*([numbers[seed] for seed in both] for numbers in (first, second))) if both else None


def paired(first, second):
    """The mean of `first - second`, seed by seed, with Student's t interval of 95 %; a dict."""
    from scipy.stats import t

    differences = [a - b for a, b in zip(first, second)]
    result = {**spread(differences), "interval": None}
    if len(differences) > 1:
        margin = float(t.ppf(0.975, len(differences) - 1)) * result["sem"]
        result["interval"] = [result["mean"] - margin, result["mean"] + margin]
    return result
