"""Trained on one language, tried on others."""

import dataclasses
from typing import Tuple

from tf_adapters.errors import InputError
from tf_adapters.ranges import Real, Whole
from tf_adapters.studies.comparison import Arm, Comparison, held_out, load
from tf_adapters.studies.figure import arms_by_task
from tf_adapters.studies.numbers import about_rows, is_failed, percent, spread
from tf_adapters.studies.study import option


@dataclasses.dataclass(frozen=True)
class CrossLingual(Comparison):
    """Zero-shot transfer: trained on one language, scored on the test rows of others.

    Means are over languages: all of them, the targets (without the source) and the distant ones (outside of
    Indo-European). Where a language has several treebanks, their rows are joined, so that it counts once.
    """

    name = "cross-lingual"
    figures = "He et al. 2021, tables 3 to 5 and 12 to 15"
    paper = "he-2021-xtreme"

    tasks: Tuple[str, ...] = option(("ud/en_ewt",), "The task that trains, one language.", of=str)
    others: Tuple[str, ...] = option(
        ("ud/fr_sequoia", "ud/tr_imst"), "Tasks of other languages with the same labels.", of=str, extends=True
    )
    sizes: Tuple[int, ...] = option(
        (256,), "Sizes of the adapters.", of=int, smoke=(8,), extends=True, range=Whole(most=2**16)
    )
    shares: Tuple[float, ...] = option(
        (1.0,),
        "Shares of the training rows, such as 0.05.",
        of=float,
        extends=True,
        range=Real(above=0, at_most=1, such_as=0.05),
    )

    def check(self):
        super().check()
        if len(self.tasks) != 1:
            raise InputError("{tasks} must be the one task that trains.", tasks=list(self.tasks))
        for name in ("sizes", "shares"):
            if not getattr(self, name):
                raise InputError(f"{{{name}}} is empty: give one at least.", **{name: []})

    def arms(self):
        kinds = {
            f"adapters of {size}" if len(self.sizes) > 1 else "adapters": {"adapter": {"bottleneck_size": size}}
            for size in self.sizes
        }
        kinds["full fine-tuning"] = {"trainable": "full", "adapter": None}
        return {
            f"{title.removesuffix(' fine-tuning')}{ending}": Arm(f"{title}{ending}", **about)
            for share in self.shares
            for ending in ["" if share == 1 else f", {share:.4g} of the rows"]
            for title, about in kinds.items()
        }

    def rows_of(self, identity):
        share = float(identity["arm"].partition(", ")[2].split(" ")[0] or 1)
        task = load(identity["task"], self.data_dir, self.metric)
        rows = self.rows if share == 1 else max(1, round(share * len(task.train)))
        return held_out(
            task, rows=rows, validation_rows=self.validation_rows, reported_rows=self.reported_rows,
            seed=identity["seed"],
        )  # fmt: skip

    def train(self, lab, task, arm, identity, **others):
        from tf_adapters.tasks.registry import load_split

        experiment, reported, data = self.experiment(lab, task, arm, identity, **others)
        splits = {name: load_split(name, "test", data_dir=self.data_dir) for name in self.others}
        for name, split in splits.items():
            if (split.kind, tuple(split.labels)) != (data.kind, tuple(data.labels)):
                raise InputError(
                    f"{{others}}: {name} has other labels than {task}: leave it out.", others=list(self.others)
                )
        found = {task: reported, **{name: split.rows for name, split in splits.items()}}
        scored = {language: joined(rows) for language, rows in by_language(found).items()}
        done = lab.train(identity, experiment, seed=identity["seed"], scored={"reported": reported, **scored})
        return {**done, **about_rows(data, reported)}

    def summarise(self, values):
        from tf_adapters.tasks.analysis import group_means, language_of

        (task,), summary = self.tasks, super().summarise(values)
        for about in summary["tasks"].values():
            for name, row in about["arms"].items():
                runs = [run for run in self.best_runs(values)[task][name] if not is_failed(run)]
                scores = [
                    {
                        language: numbers[run["metric"]]
                        for language, numbers in run["scores"].items()
                        if language != "reported"
                    }
                    for run in runs
                ]
                means = [group_means(of_seed, source=language_of(task)) for of_seed in scores]
                row["languages"] = {key: spread([of_seed[key] for of_seed in scores]) for key in scores[0]}
                row["groups"] = {key: spread([of_seed[key] for of_seed in means]) for key in means[0]}
        return summary

    def table(self, summary):
        (about,) = summary["tasks"].values()
        some = next(iter(about["arms"].values()))
        names = [*some["groups"], *some["languages"]]
        rows = []
        for row in about["arms"].values():
            both = {**row["languages"], **row["groups"]}
            rows.append(
                [row["title"], *(f"{percent(both[name]['mean'])} ± {percent(both[name]['sd'])}" for name in names)]
            )
        return ["arm", *names], rows

    def draw(self, summary, figure):
        (about,) = summary["tasks"].values()
        both = {name: {**row["languages"], **row["groups"]} for name, row in about["arms"].items()}
        arms_by_task(
            figure,
            {
                place: {
                    "metric": about["metric"],
                    "arms": {name: {**row[place], "title": about["arms"][name]["title"]} for name, row in both.items()},
                }
                for place in next(iter(both.values()))
            },
        )


def by_language(rows):
    """Dict from a language to the rows of its tasks, a list; a task whose name has none stands for itself."""
    from tf_adapters.tasks.analysis import language_of

    found = {}
    for task, of_task in rows.items():
        found.setdefault(language_of(task) or task, []).append(of_task)
    return found


def joined(rows):
    """The rows of several splits as one."""
    import numpy as np
    import tensorflow as tf

    first = rows[0]
    if len(rows) == 1:
        return first
    if hasattr(first, "words"):
        parts = {name: tf.concat([getattr(part, name) for part in rows], 0) for name in ("words", "labels")}
        return dataclasses.replace(first, **parts)
    index = [np.arange(len(part)) for part in rows]
    texts = zip(*(part.texts(of_part) for part, of_part in zip(rows, index)))
    text, pair = (None if parts[0] is None else tf.concat(parts, 0) for parts in texts)
    return dataclasses.replace(first, text=text, text_pair=pair, labels=np.concatenate([part.labels for part in rows]))
