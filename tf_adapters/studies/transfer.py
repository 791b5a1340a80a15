"""Studies of transfer: pretrained on a task's own texts before training on its labels, and trained on one language,
tried on others."""

import dataclasses
import math
from typing import Tuple

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.ranges import Real, Whole
from tf_adapters.studies.comparison import RATE, Arm, Comparison, both_arms, option, paired_by_seed, several
from tf_adapters.studies.figure import SCORE, arms_by_task, boxes, finish, line, look, panels
from tf_adapters.studies.lab import Stopped
from tf_adapters.studies.numbers import (
    SCORES,
    interval_words,
    is_failed,
    mean_of,
    of,
    percent,
    rate_words,
    score_of,
    spread,
)
from tf_adapters.studies.rows import by_language, load, splits_of
from tf_adapters.tasks.analysis import group_means, language_of
from tf_adapters.tasks.own_files import without_labels

PRETRAINING = {"measured": "pretraining"}


@dataclasses.dataclass(frozen=True)
class Pretraining(Comparison):
    """Adapters and full fine-tuning, alone and after task-adaptive pretraining, over the steps of pretraining.

    Adapters, or the whole encoder, first learn to guess hidden words of the task's own training texts (TAPT, or TSP);
    each of the `checkpoints` is then trained on the labels with each seed. A head of hidden words is fitted first, on
    the frozen encoder, where the checkpoint of the encoder has none.

    Curves, and the boxes over epochs, are of the rows that choose, from one training each: an epoch's score is not that
    of a training which ends there. The boxes over checkpoints are of reported scores.
    """

    name = "pretraining"
    figures = "Han et al. 2021, table 1, figures 1, 4, 9, 10 and 13; He et al. 2021, table 1"
    paper = "han-2021"

    checkpoints: Tuple[int, ...] = option(
        (500, 1000, 2000), "Steps of pretraining after which training begins.", of=int, smoke=(2, 4), range=Whole()
    )
    pretraining_rate: float = option(1e-3, "Peak rate of the adapters' pretraining.", range=RATE)
    full_pretraining_rate: float = option(1e-4, "Peak rate of the encoder's pretraining.", range=RATE)
    pretraining_batch_size: int = option(32, "Texts per step of pretraining.", smoke=4, range=Whole())
    fit_head_steps: int = option(1500, "Steps that fit a new head of hidden words.", smoke=2, range=Whole(0))
    keep: str = option(
        "last", "Which epoch counts: the `last`, as of Han et al., or the `best` by the rows that choose."
    )
    seeds: int = option(5, "Trainings at the best rate, with the seeds from 0 on.", smoke=1, extends=True)

    columns = {
        "arm": lambda row: row["title"].partition(",")[0],
        "pretraining": lambda row: f"{row['steps']:,} steps" if row["steps"] else "none",
        "rate": rate_words,
        **SCORES,
        "sd over epochs": lambda row: percent(row.get("curve", {}).get("sd")),
        "minus alone (95 %)": of("minus_alone", interval_words),
        "seeds": of("n"),
    }

    def check(self):
        super().check()
        steps = sorted(self.checkpoints)
        if any(step % steps[0] for step in steps):
            raise InputError(
                "{checkpoints} must be multiples of the least of them, such as 500,1000,2000.",
                checkpoints=list(self.checkpoints),
            )

    def arms(self):
        arms = both_arms()
        for name in ("adapters", "full"):
            for step in sorted(self.checkpoints):
                arms[f"{name}, {step}"] = dataclasses.replace(arms[name], title=f"{arms[name].title}, {step:,} steps")
        return arms

    def measure(self, lab):
        for task in self.tasks:
            for name in ("adapters", "full") if self.checkpoints else ():
                identity = {**PRETRAINING, "task": task, "arm": name}
                lab.value(identity, lambda identity=identity: self._pretrain(lab, identity))
        super().measure(lab)

    def _pretrain(self, lab, identity):
        from tf_adapters._keras import keras
        from tf_adapters.models.state import state_of
        from tf_adapters.models.transformers.loading import load_backbone
        from tf_adapters.text.tokenizer import load_tokenizer
        from tf_adapters.training.pretrain import pretrain

        keras.backend.clear_session()
        keras.mixed_precision.set_global_policy(self.precision)
        keras.utils.set_random_seed(0)
        folder, steps = lab.model_of(identity), sorted(self.checkpoints)
        task, name = identity["task"], identity["arm"]
        recipe = self.recipe_of(self.arms()[name])
        data = without_labels(load(task, self.data_dir))
        if self.rows is not None:
            data, _ = self.rows_of({**identity, "seed": 0})
            data = without_labels(data)
        model = load_backbone(self.model, head="masked-lm")
        tokenizer = load_tokenizer(model, max_length=self.max_length or recipe.max_length)
        result = pretrain(
            model, data, tokenizer, output=folder, adapter=None if name == "full" else recipe.adapter,
            steps=steps[-1], save_every=math.gcd(*steps),
            learning_rate=self.pretraining_rate if name == "adapters" else self.full_pretraining_rate,
            fit_head_steps=0 if state_of(model).pretrained_head else self.fit_head_steps,
            batch_size=self.pretraining_batch_size, dropout=self.dropout,
            fast=self.fast and name != "full", resume=folder.exists(),
            reporter=lab.observer.training(None, math.gcd(*steps)),
            head_reporter=lab.observer.training(None, self.fit_head_steps),
        )  # fmt: skip
        if result.run.interrupted:
            raise Stopped
        return {"head": result.head, "numbers": dict(result.run.metrics), "texts": len(data.train)}

    def experiment(self, lab, arm, identity):
        experiment, reported, data = super().experiment(lab, arm, identity)
        name, _, step = identity["arm"].partition(", ")
        if step:
            pretraining = {**PRETRAINING, "task": identity["task"], "arm": name}
            folder = lab.model_of(pretraining) / f"step-{step}"
            if not folder.is_dir():  # values alone were brought here
                self._pretrain(lab, pretraining)
            experiment = dataclasses.replace(experiment, pretrained=folder)
        return experiment, reported, data

    def summarise(self, values):
        summary = super().summarise(values)
        for task, about in summary["tasks"].items():
            about["pretraining"] = {
                value["arm"]: {name: value[name] for name in ("head", "numbers", "texts")}
                for value in values
                if value["measured"] == "pretraining" and value["task"] == task
            }
        return summary

    def more(self, name, by_arm):
        base, _, step = name.partition(", ")
        runs = [run for run in by_arm[name] if not is_failed(run)]
        curves = ([look[run["metric"]] for look in run.get("every_epoch", run["validation"])] for run in runs)
        scores = [mean_of(of_seeds) for of_seeds in zip(*curves)]
        return {
            "steps": int(step or 0),
            "minus_alone": paired_by_seed(runs, by_arm[base]) if step else None,
            # With None for an epoch that has no score in any run.
            "curve": {**spread([score for score in scores if score is not None]), "values": scores},
        }

    def draw(self, summary, figure):
        titles = ("", ": adapters", ": full fine-tuning", ": spread over epochs")
        axes = iter(panels(figure, [f"{task}{title}" for task in summary["tasks"] for title in titles], columns=4))
        for about in summary["tasks"].values():
            arms = {"adapters": [], "full": []}
            for name, row in about["arms"].items():
                arms[name.partition(",")[0]].append(row)
            panel = next(axes)
            for number, rows in enumerate(arms.values()):
                line(panel, rows, "steps", number)
            finish(panel, "steps of pretraining", SCORE, about)
            for rows in arms.values():
                panel = next(axes)
                for number, row in enumerate(rows):
                    scores = 100 * np.array(row["curve"]["values"], float)
                    panel.plot(range(1, len(scores) + 1), scores, label=f"{row['steps']:,} steps", **look(number))
                finish(panel, "epochs", f"{about['metric']}, %, of the rows that choose")
            panel = next(axes)
            for number, rows in enumerate(arms.values()):
                groups = [row["curve"]["values"] for row in rows]
                # The last box: of each checkpoint what is reported.
                groups.append([row["mean"] for row in rows if row["steps"] and row["mean"] is not None])
                boxes(panel, groups, [*(str(row["steps"]) for row in rows), "over\ncheckpoints"], number, of=2)
                panel.plot([], [], "s", color=look(number)["color"], label=rows[0]["title"])
            finish(panel, "steps of pretraining", f"{about['metric']}, %")


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
        return Comparison.rows_of(dataclasses.replace(self, rows=rows), identity)

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
