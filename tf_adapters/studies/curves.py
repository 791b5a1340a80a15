"""Learning curves: does a result hold while training goes on?"""

import dataclasses
import statistics
from typing import Optional, Tuple

from tf_adapters.ranges import Whole
from tf_adapters.studies.comparison import Comparison, both_arms
from tf_adapters.studies.figure import COLOURS, finish, panels
from tf_adapters.studies.numbers import is_failed, of, percent
from tf_adapters.studies.rows import joined, splits_of
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

    columns = {
        "arm": of("title"),
        "mean over evaluations": of("mean", percent),
        "best": of("best", percent),
        "last": of("last", percent),
        "least loss": of("losses", lambda losses: f"{min(losses):.3f}"),
        "last loss": of("losses", lambda losses: f"{losses[-1]:.3f}"),
        "seeds": of("seeds"),
    }

    def arms(self):
        rates = {"adapters": self.learning_rates[:1], "full": self.full_learning_rates[:1]}
        return {name: dataclasses.replace(arm, rates=rates[name]) for name, arm in both_arms(period=self.every).items()}

    def rows_of(self, identity):
        data, reported = super().rows_of(identity)
        others = splits_of(self.others, "validation", data, self.data_dir)
        if others:
            data = dataclasses.replace(data, validation=joined(list(others.values())))
        return data, reported

    def summarise(self, values):
        summary = {"tasks": {}}
        for task, arms in self.best_runs(values).items():
            finished = {name: [run for run in runs if not is_failed(run)] for name, runs in arms.items()}
            about = {name: self._curve(self.arms()[name].title, runs) for name, runs in finished.items() if runs}
            if about:
                summary["tasks"][task] = about
        return summary

    def _curve(self, title, runs):
        """What an arm's runs come to, a dict."""
        metric, looks = runs[0]["metric"], list(zip(*(run["validation"] for run in runs)))
        scores, losses = [statistics.fmean(look[metric] for look in of_seeds) for of_seeds in looks], None
        if "loss" in looks[0][0]:
            losses = [statistics.fmean(look["loss"] for look in of_seeds) for of_seeds in looks]
        return {
            "title": title,
            "metric": metric,
            "steps": [self.every * (place + 1) for place in range(len(looks))],
            "scores": scores,
            "losses": losses,
            "mean": statistics.fmean(scores),
            "best": statistics.fmean(max(look[metric] for look in run["validation"]) for run in runs),
            "last": scores[-1],
            "seeds": len(runs),
        }

    def draw(self, summary, figure):
        titles = [title for task in summary["tasks"] for title in (f"{task}: loss", f"{task}: score")]
        axes = iter(panels(figure, titles, width=3.6, columns=2))
        for arms in summary["tasks"].values():
            of_loss, of_score = next(axes), next(axes)
            for number, arm in enumerate(arms.values()):
                common = {"color": COLOURS[number], "label": arm["title"]}
                if arm["losses"] is not None:
                    of_loss.plot(arm["steps"], arm["losses"], **common)
                of_score.plot(arm["steps"], [100 * score for score in arm["scores"]], **common)
            finish(of_loss, "steps", "loss")
            finish(of_score, "steps", f"{arm['metric']}, %")
