"""Learning curves: does a result hold while training goes on?"""

import dataclasses
import statistics
from typing import Optional, Tuple

from tf_adapters.errors import InputError
from tf_adapters.ranges import Whole
from tf_adapters.studies.comparison import Comparison, both_arms
from tf_adapters.studies.cross_lingual import joined
from tf_adapters.studies.figure import COLOURS, panels
from tf_adapters.studies.numbers import is_failed, percent
from tf_adapters.studies.study import option


@dataclasses.dataclass(frozen=True)
class Curves(Comparison):
    """Loss and score of the rows that choose, every few steps of training, with adapters and full fine-tuning.

    The mean over all evaluations and the best one tell how much a result depends on when training stops. The rate is
    the first of each list: nothing is chosen. With `--others` the rows are the validation rows of other languages.
    """

    keeps_last = False
    name = "curves"
    figures = "He et al. 2021, figures 5, 9 and 10, table 6"
    paper = "he-2021"

    others: Tuple[str, ...] = option(
        (), "Tasks of other languages with the same labels, whose validation rows are looked at.", of=str
    )
    every: int = option(20, "Steps between two evaluations.", smoke=2, range=Whole())
    epochs: Optional[int] = option(None, "Passes over the training rows. Default: each recipe's.", smoke=2)

    def arms(self):
        rates = {"adapters": self.learning_rates[:1], "full": self.full_learning_rates[:1]}
        return {name: dataclasses.replace(arm, rates=rates[name]) for name, arm in both_arms(period=self.every).items()}

    def rows_of(self, identity):
        from tf_adapters.tasks.registry import load_split

        data, reported = super().rows_of(identity)
        splits = [load_split(name, "validation", data_dir=self.data_dir) for name in self.others]
        for name, split in zip(self.others, splits):
            if (split.kind, tuple(split.labels)) != (data.kind, tuple(data.labels)):
                raise InputError(
                    f"{{others}}: {name} has other labels than {data.name}: leave it out.", others=list(self.others)
                )
        if splits:
            data = dataclasses.replace(data, validation=joined([split.rows for split in splits]))
        return data, reported

    def summarise(self, values):
        summary = {"tasks": {}}
        for task, arms in self.best_runs(values).items():
            about = {}
            for name, runs in arms.items():
                runs = [run for run in runs if not is_failed(run)]
                if not runs:
                    continue
                metric, count = runs[0]["metric"], min(len(run["validation"]) for run in runs)

                def mean(number):
                    return [
                        statistics.fmean(run["validation"][place][number] for run in runs) for place in range(count)
                    ]

                scores = mean(metric)
                about[name] = {
                    "title": self.arms()[name].title,
                    "metric": metric,
                    "steps": [self.every * (place + 1) for place in range(count)],
                    "scores": scores,
                    "losses": mean("loss") if "loss" in runs[0]["validation"][0] else None,
                    "mean": statistics.fmean(scores),
                    "best": statistics.fmean(max(epoch[metric] for epoch in run["validation"]) for run in runs),
                    "last": scores[-1],
                    "seeds": len(runs),
                }
            if about:
                summary["tasks"][task] = about
        return summary

    def table(self, summary):
        columns = ["task", "arm", "mean over evaluations", "best", "last", "least loss", "last loss", "seeds"]
        rows = []
        for task, arms in summary["tasks"].items():
            for arm in arms.values():
                losses = (
                    [""] * 2 if arm["losses"] is None else [f"{min(arm['losses']):.3f}", f"{arm['losses'][-1]:.3f}"]
                )
                rows.append(
                    [f"{task}, {arm['metric']}", arm["title"], percent(arm["mean"]), percent(arm["best"])]
                    + [percent(arm["last"]), *losses, str(arm["seeds"])]
                )
        return columns, rows

    def draw(self, summary, figure):
        tasks = summary["tasks"]
        titles = [title for task in tasks for title in (f"{task}: loss", f"{task}: score")]
        axes = panels(figure, titles, width=3.6, columns=2)
        for place, arms in enumerate(tasks.values()):
            of_loss, of_score = axes[2 * place : 2 * place + 2]
            for number, arm in enumerate(arms.values()):
                common = {"color": COLOURS[number], "label": arm["title"]}
                if arm["losses"] is not None:
                    of_loss.plot(arm["steps"], arm["losses"], **common)
                of_score.plot(arm["steps"], [100 * score for score in arm["scores"]], **common)
            of_loss.set_ylabel("loss")
            of_score.set_ylabel(f"{next(iter(arms.values()))['metric']}, %")
            for panel in (of_loss, of_score):
                panel.set_xlabel("steps")
                panel.legend()
