"""Trained on one language, tried on others."""

import dataclasses
from typing import Tuple

from tf_adapters.errors import InputError
from tf_adapters.ranges import Real, Whole
from tf_adapters.studies.comparison import Arm, Comparison, option, several
from tf_adapters.studies.figure import arms_by_task
from tf_adapters.studies.numbers import is_failed, percent, score_of, spread
from tf_adapters.studies.rows import by_language, held_out, load, splits_of
from tf_adapters.tasks.analysis import group_means, language_of


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
        ("ud/fr_sequoia", "ud/tr_imst"), "Tasks of other languages with the same labels.", of=str
    )
    sizes: Tuple[int, ...] = several((256,), "Sizes of the adapters.", Whole(most=2**16), smoke=(8,))
    shares: Tuple[float, ...] = several(
        (1.0,), "Shares of the training rows, such as 0.05.", Real(above=0, at_most=1, such_as=0.05)
    )

    def check(self):
        super().check()
        if len(self.tasks) != 1:
            raise InputError("{tasks} must be the one task that trains.", tasks=list(self.tasks))
        for name in ("sizes", "shares"):
            if not getattr(self, name):
                raise InputError(f"{{{name}}} is empty: give one at least.", **{name: []})

    def arms(self):
        # The size is in the name, by which a run is found again.
        kinds = {f"adapters of {size}": {"adapter": {"bottleneck_size": size}} for size in self.sizes}
        kinds["full fine-tuning"] = {"trainable": "full"}
        return {
            f"{title.removesuffix(' fine-tuning')}{ending}": Arm(f"{title}{ending}", **about)
            for share in self.shares
            for ending in ["" if share == 1 else f", {share:.15g} of the rows"]
            for title, about in kinds.items()
        }

    def rows_of(self, identity):
        share = float(identity["arm"].partition(", ")[2].split(" ")[0] or 1)
        task = load(identity["task"], self.data_dir, self.metric)
        rows = max(1, round(share * min(self.rows or len(task.train), len(task.train))))
        return held_out(
            task, rows=rows, validation_rows=self.validation_rows, reported_rows=self.reported_rows,
            seed=identity["seed"],
        )  # fmt: skip

    def further_rows(self, task, data, reported):
        return by_language({task: reported, **splits_of(self.others, "test", data, self.data_dir)})

    def more(self, name, by_arm):
        runs = [run for run in by_arm[name] if not is_failed(run)]
        names = [name for name in runs[0]["scores"] if name != "reported"] if runs else ()
        scores = [{language: score_of(run, language) for language in names} for run in runs]
        means = [group_means(of_seed, source=language_of(self.tasks[0]) or self.tasks[0]) for of_seed in scores]
        return {
            kind: {key: spread([of_seed[key] for of_seed in found]) for key in (found[0] if found else ())}
            for kind, found in (("languages", scores), ("groups", means))
        }

    def table(self, summary):
        (about,) = summary["tasks"].values()
        places = [{**row["groups"], **row["languages"]} for row in about["arms"].values()]
        columns = max(places, key=len)  # an arm of which every run failed has none
        rows = [
            [
                row["title"],
                *(f"{percent(of_arm[at]['mean'])} ± {percent(of_arm[at]['sd'])}" if of_arm else "" for at in columns),
            ]
            for row, of_arm in zip(about["arms"].values(), places)
        ]
        return ["arm", *columns], rows

    def draw(self, summary, figure):
        (about,), drawn = summary["tasks"].values(), {}
        for name, row in about["arms"].items():
            for place, scores in {**row["languages"], **row["groups"]}.items():
                of_place = drawn.setdefault(place, {"metric": about["metric"], "arms": {}})
                of_place["arms"][name] = {**scores, "title": row["title"]}
        arms_by_task(figure, drawn)
