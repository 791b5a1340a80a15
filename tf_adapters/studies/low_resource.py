"""Few training rows: are adapters better there?"""

import dataclasses
from typing import Tuple

from tf_adapters.errors import InputError
from tf_adapters.ranges import Real, Whole
from tf_adapters.studies.comparison import Arm, Comparison, load
from tf_adapters.studies.figure import band, panels
from tf_adapters.studies.numbers import constant_row, paired, rate_words, score_of, score_words
from tf_adapters.studies.study import option


@dataclasses.dataclass(frozen=True)
class LowResource(Comparison):
    """Adapters and full fine-tuning on few training rows; the size of the adapters may be chosen by task.

    The protocol is He et al.'s: rows are drawn by the seed, another 1,000 of the training split choose epoch, rate and
    size, and the original validation split is reported (test, where the task has labelled test rows).
    """

    name = "low-resource"
    figures = "He et al. 2021, table 2, figure 3"
    paper = "he-2021"

    counts: Tuple[float, ...] = option(
        (1000,), "Numbers of training rows; below 1, such as 0.05, shares of those that there are.", of=float,
        smoke=(16, 0.3), extends=True, range=Real(above=0, such_as=1000),
    )  # fmt: skip
    sizes: Tuple[int, ...] = option(
        (64,),
        "Sizes of the adapters among which validation chooses. With several, adapters are searched more than full "
        "fine-tuning.",
        of=int, smoke=(8,), extends=True, range=Whole(most=2**16),
    )  # fmt: skip
    seeds: int = option(5, "Trainings at the best rate and size, with the seeds from 0 on.", smoke=2, extends=True)
    rows: int = option(None, "Not for this study, which has `--counts`.", range=Whole())

    def check(self):
        super().check()
        if self.rows is not None:
            raise InputError("{rows} is not for this study: give {counts}.", rows=self.rows, counts=list(self.counts))

    def arms(self):
        arms = {}
        for count in self.counts:
            arms[f"adapters, {count:g}"] = Arm("adapters")
            arms[f"full, {count:g}"] = Arm("full fine-tuning", trainable="full", adapter=None)
        return arms

    def points(self, arm):
        points = super().points(arm)
        return (
            [{**point, "size": size} for size in self.sizes for point in points] if arm.adapter is not None else points
        )

    def adapter_of(self, identity):
        return {"bottleneck_size": identity["size"]} if "size" in identity else {}

    def rows_of(self, identity):
        count, task = float(identity["arm"].rpartition(" ")[2]), load(identity["task"], self.data_dir, self.metric)
        count = int(count * len(task.train)) if count < 1 else int(count)
        return few_rows(task, count, self.validation_rows, self.reported_rows, identity["seed"])

    def summarise(self, values):
        summary, best = super().summarise(values), self.best_runs(values)
        for task, about in summary["tasks"].items():
            for name, row in about["arms"].items():
                row["rows"] = best[task][name][0]["train_rows"]
                row["size"] = best[task][name][0].get("size")
            for count in self.counts:
                runs = [
                    {run["seed"]: run for run in best[task].get(f"{arm}, {count:g}", ()) if run["scores"]}
                    for arm in ("adapters", "full")
                ]
                seeds = [seed for seed in runs[0] if seed in runs[1]]
                if seeds:
                    pairs = [[score_of(of_arm[seed]) for seed in seeds] for of_arm in runs]
                    about["arms"][f"adapters, {count:g}"]["minus_full"] = paired(*pairs)
        return summary

    def table(self, summary):
        columns = ["task", "rows", "arm", "size", "rate", "score", "sd", "minus full (95 %)", "seeds"]
        rows = []
        for task, about in summary["tasks"].items():
            for row in about["arms"].values():
                rows.append(
                    [f"{task}, {about['metric']}", f"{row['rows']:,}", row["title"], str(row["size"] or "")]
                    + [rate_words(row), *score_words(row), interval_words(row.get("minus_full")), str(row["n"])]
                )
            rows += constant_row(f"{task}, {about['metric']}", about, columns)
        return columns, rows

    def draw(self, summary, figure):
        tasks = summary["tasks"]
        for panel, (task, about) in zip(panels(figure, list(tasks)), tasks.items()):
            for number, title in enumerate(("adapters", "full fine-tuning")):
                rows = sorted(
                    (row for row in about["arms"].values() if row["title"] == title), key=lambda row: row["rows"]
                )
                band(panel, [row["rows"] for row in rows], rows, number, title)
            if about["constant"] is not None:
                panel.axhline(100 * about["constant"], color="0.5", linestyle=":", label="constant answer")
            panel.set_xscale("log")
            panel.set_xlabel("training rows")
            panel.set_ylabel(f"{about['metric']}, % (mean, standard error)")
            panel.legend()


def few_rows(task, count, validation_rows, reported_rows, seed):
    """`(Task of so many training rows, labelled rows to report)`, all validation rows from the training split."""
    import numpy as np

    from tf_adapters.tasks.rows import sample_rows

    available = len(task.train)
    if count < 1 or count + validation_rows > available:
        raise InputError(
            f"{{counts}}: {task.name} has {available:,} training rows, of which {validation_rows:,} choose the epoch: "
            f"give at least one row, and at most {available - validation_rows:,}.",
            counts=count,
        )
    order = np.random.RandomState(seed).permutation(available)
    data = dataclasses.replace(
        task, train=task.train.take(np.sort(order[:count])),
        validation=task.train.take(np.sort(order[count : count + validation_rows])), test=None,
    )  # fmt: skip
    labelled = task.test is not None and task.test.labels is not None
    reported = task.test if labelled else task.validation
    return data, reported if reported_rows is None else sample_rows(reported, count=reported_rows, seed=0)


def interval_words(row):
    """A paired difference in points, with its interval."""
    if not row:
        return ""
    words = f"{100 * row['mean']:+.2f}"
    return (
        words
        if row["interval"] is None
        else f"{words} ({100 * row['interval'][0]:+.2f} to {100 * row['interval'][1]:+.2f})"
    )
