"""The report's own question: how much may adapters share?"""

import dataclasses

from tf_adapters.studies.comparison import Arm, Comparison, paired, score_of
from tf_adapters.studies.figure import look


@dataclasses.dataclass(frozen=True)
class Sharing(Comparison):
    """Adapters of each place, of each block and of three blocks beside full fine-tuning: scores and counts.

    The models are the report's: `unshared` trains the encoder's LayerNorms and has two classifier layers; in
    `per-layer` and `3-shared` LayerNorms are frozen. `houlsby` follows the study's recipe, that of Houlsby et al. 2019,
    whose adapters are not shared: all LayerNorms train, and there is one classifier.
    """

    name = "sharing"
    figures = "report, tables 1, 2 and 3"

    def arms(self):
        return {
            "full": Arm("full fine-tuning", trainable="full", adapter=None),
            "houlsby": Arm("Houlsby"),
            "unshared": Arm("unshared", recipe="report-unshared"),
            "per-layer": Arm("one per layer", recipe="report-per-layer"),
            "3-shared": Arm("3-shared", recipe="report-3-shared"),
        }

    def summarise(self, values):
        summary, best = super().summarise(values), self.best_runs(values)
        for task, about in summary["tasks"].items():
            full = {run["seed"]: run for run in best[task].get("full", ()) if run["scores"]}
            for name, row in about["arms"].items():
                pairs = [
                    (score_of(run), score_of(full[run["seed"]]))
                    for run in best[task][name]
                    if run["scores"] and run["seed"] in full
                ]
                row["minus_full"] = None if name == "full" or not pairs else paired(*zip(*pairs))
        return summary

    def draw(self, summary, figure):
        tasks = list(summary["tasks"])
        figure.set_size_inches(max(5.2, 1.6 + 1.1 * len(tasks)), 3.8)
        panel, arms = figure.subplots(), list(self.arms())
        width = 0.8 / len(arms)
        for number, name in enumerate(arms):
            for place, task in enumerate(tasks):
                row = summary["tasks"][task]["arms"].get(name)
                if row is None or row["mean"] is None:
                    continue
                at = place + (number - (len(arms) - 1) / 2) * width
                label = row["title"] if place == 0 else None
                look_of = look(number)
                panel.errorbar(
                    at,
                    100 * row["mean"],
                    yerr=100 * (row["sd"] or 0.0),
                    capsize=2,
                    linestyle="",
                    label=label,
                    **look_of,
                )
                panel.plot(
                    [at] * row["n"],
                    [100 * value for value in row["values"]],
                    ".",
                    color=look_of["color"],
                    markersize=2.5,
                    alpha=0.6,
                )
        for place, task in enumerate(tasks):
            constant = summary["tasks"][task]["constant"]
            if constant is not None:
                panel.plot([place - 0.42, place + 0.42], [100 * constant] * 2, color="0.5", linestyle=":",
                           label="constant answer" if place == 0 else None)  # fmt: skip
        panel.set_xticks(range(len(tasks)), [f"{task}\n{summary['tasks'][task]['metric']}" for task in tasks])
        panel.set_ylabel("score, % (mean and sd over seeds)")
        panel.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.22))
