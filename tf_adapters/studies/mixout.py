"""Mixout beside adapters."""

import dataclasses

from tf_adapters.ranges import Real, Whole
from tf_adapters.studies.comparison import Arm, Comparison
from tf_adapters.studies.figure import COLOURS
from tf_adapters.studies.study import option


@dataclasses.dataclass(frozen=True)
class Mixout(Comparison):
    """Full fine-tuning and adapters, with dropout and with Mixout in its place, on few rows.

    Mixout leaves the head alone, which was not pretrained; with it there is no dropout, in the head neither. It mixes
    entry by entry, as in the code of Lee et al.; He et al. speak of neurons.
    """

    name = "mixout"
    figures = "He et al. 2021, table 7"

    rows: int = option(1000, "Training rows, drawn by the seed.", smoke=32, range=Whole())
    rate: float = option(0.9, "Probability with which an entry is the initial one.", range=Real(above=0, below=1))
    recipe: str = option("he-2021", "Recipe of adapters.")
    full_recipe: str = option("he-2021-full", "Recipe of full fine-tuning.")
    seeds: int = option(5, "Trainings at the best rate, with the seeds from 0 on.", smoke=2, extends=True)

    def arms(self):
        mixed = {"mixout": self.rate, "dropout": 0.0}
        return {
            "full": Arm("full fine-tuning", trainable="full", adapter=None),
            "full-mixout": Arm("full fine-tuning, Mixout", trainable="full", adapter=None, settings=mixed),
            "adapters": Arm("adapters"),
            "adapters-mixout": Arm("adapters, Mixout", settings=mixed),
        }

    def draw(self, summary, figure):
        draw_bars(self, summary, figure)


def draw_bars(study, summary, figure):
    """A group of bars for each task, a bar for each arm, with one standard deviation."""
    tasks, arms = list(summary["tasks"]), study.arms()
    figure.set_size_inches(max(5.2, 1.5 + 1.3 * len(tasks)), 3.8)
    panel, width = figure.subplots(), 0.8 / len(arms)
    for number, (name, arm) in enumerate(arms.items()):
        rows = [(place, summary["tasks"][task]["arms"].get(name)) for place, task in enumerate(tasks)]
        rows = [(place, row) for place, row in rows if row and row["mean"] is not None]
        panel.bar(
            [place + (number - (len(arms) - 1) / 2) * width for place, _ in rows],
            [100 * row["mean"] for _, row in rows],
            width=0.9 * width, yerr=[100 * (row["sd"] or 0.0) for _, row in rows], capsize=2,
            color=COLOURS[number % len(COLOURS)], label=arm.title, error_kw={"linewidth": 0.8},
        )  # fmt: skip
    panel.set_xticks(range(len(tasks)), [f"{task}\n{summary['tasks'][task]['metric']}" for task in tasks])
    panel.set_ylabel("score, % (mean and sd over seeds)")
    panel.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, 1.25))
