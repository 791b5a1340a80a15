"""How much a result depends on the rate and on chance."""

import dataclasses
import statistics

from tf_adapters.ranges import Whole
from tf_adapters.studies.comparison import RATE, Comparison, both_arms, identity_of
from tf_adapters.studies.figure import boxes, look, panels
from tf_adapters.studies.numbers import at_floor, constant_row, is_failed, percent, score_of, score_words, spread
from tf_adapters.studies.study import option


@dataclasses.dataclass(frozen=True)
class Stability(Comparison):
    """Adapters and full fine-tuning at each rate with many seeds: boxes, and the share of collapsed runs.

    A run has collapsed if its score is not above the constant answer's by a tenth of what the best run of all is.
    """

    name = "stability"
    figures = "He et al. 2021, figure 4; Han et al. 2021, figure 2"
    paper = "he-2021"

    learning_rates: tuple = option(
        (2e-5, 4e-5, 6e-5, 8e-5, 1e-4),
        "Rates of both arms, or of adapters.",
        of=float,
        smoke=(1e-4, 1e-3),
        extends=True,
        range=RATE,
    )
    full_learning_rates: tuple = option(
        (2e-5, 4e-5, 6e-5, 8e-5, 1e-4), "Rates of full fine-tuning.", of=float, smoke=(1e-4,), extends=True, range=RATE
    )
    seeds: int = option(20, "Trainings at each rate, with the seeds from 0 on.", smoke=2, extends=True)
    rows: int = option(1000, "Training rows, drawn by the seed.", smoke=32, range=Whole())

    def arms(self):
        return both_arms()

    def measure(self, lab):
        self.check_tasks()
        arms = self.arms()
        lab.expect(len(self.tasks) * self.seeds * sum(len(self.points(arm)) for arm in arms.values()))
        for seed in range(self.seeds):
            for task in self.tasks:
                for name, arm in arms.items():
                    for point in self.points(arm):
                        identity = identity_of(task, name, point, seed)
                        lab.value(identity, lambda arm=arm, identity=identity: self.train(lab, task, arm, identity))

    def summarise(self, values):
        summary = {"tasks": {}}
        for task in self.tasks:
            runs = [self.counted(value) for value in values if value["task"] == task and value["seed"] < self.seeds]
            finished = [run for run in runs if not is_failed(run)]
            if not finished:
                continue
            constant = finished[0]["constant"] or 0.0
            line = constant + 0.1 * (max(map(score_of, finished)) - constant)
            kept = ("metric", "constant", "constant_loss")
            about = {**{name: finished[0].get(name) for name in kept}, "arms": {}}
            for name, arm in self.arms().items():
                about["arms"][name] = {"title": arm.title, "rates": {}}
                for point in self.points(arm):
                    of_rate = [
                        run for run in runs if run["arm"] == name and run["learning_rate"] == point["learning_rate"]
                    ]
                    scores = [score_of(run) for run in of_rate if not is_failed(run)]
                    collapsed = sum(score <= line for score in scores) + len(of_rate) - len(scores)
                    about["arms"][name]["rates"][f"{point['learning_rate']:g}"] = {
                        **spread(scores),
                        "at_floor": at_floor(spread(scores), finished[0]),
                        "collapsed": collapsed / len(of_rate) if of_rate else None,
                        "median": statistics.median(scores) if scores else None,
                    }
            summary["tasks"][task] = about
        return summary

    def table(self, summary):
        columns = ["task", "arm", "rate", "score", "sd", "median", "collapsed", "seeds"]
        rows = []
        for task, about in summary["tasks"].items():
            for arm in about["arms"].values():
                for rate, row in arm["rates"].items():
                    rows.append(
                        [f"{task}, {about['metric']}", arm["title"], rate, *score_words(row), percent(row["median"])]
                        + [f"{percent(row['collapsed'])} %", str(row["n"])]
                    )
            rows += constant_row(f"{task}, {about['metric']}", about, columns)
        return columns, rows

    def draw(self, summary, figure):
        tasks = summary["tasks"]
        for panel, (task, about) in zip(panels(figure, list(tasks), width=4.6), tasks.items()):
            rates = sorted({rate for arm in about["arms"].values() for rate in arm["rates"]}, key=float)
            for number, arm in enumerate(about["arms"].values()):
                groups = [arm["rates"].get(rate, {}).get("values", []) for rate in rates]
                boxes(panel, groups, rates, number, of=len(about["arms"]))
                panel.plot([], [], "s", color=look(number)["color"], label=arm["title"])
            if about["constant"] is not None:
                panel.axhline(100 * about["constant"], color="0.5", linestyle=":", label="constant answer")
            panel.set_xlabel("learning rate")
            panel.set_ylabel(f"{about['metric']}, %")
            panel.legend()
