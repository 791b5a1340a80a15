"""Pretraining on a task's own texts before training on its labels."""

import dataclasses
import math
from typing import Tuple

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.ranges import Whole
from tf_adapters.studies.comparison import RATE, Comparison, both_arms, option, paired_by_seed
from tf_adapters.studies.figure import SCORE, boxes, finish, line, look, panels
from tf_adapters.studies.lab import Stopped
from tf_adapters.studies.numbers import SCORES, interval_words, is_failed, mean_of, of, percent, rate_words, spread
from tf_adapters.studies.rows import load
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
