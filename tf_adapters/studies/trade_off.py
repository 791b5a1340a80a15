"""Score against parameters over many tasks."""

import dataclasses
import statistics

from tf_adapters.errors import InputError
from tf_adapters.ranges import Whole
from tf_adapters.studies.baselines import BASELINES
from tf_adapters.studies.comparison import Arm
from tf_adapters.studies.figure import COLOURS, look
from tf_adapters.studies.numbers import at_edge, best_validation, is_failed, percent, score_of
from tf_adapters.studies.size import Size
from tf_adapters.studies.study import option


@dataclasses.dataclass(frozen=True)
class TradeOff(Size):
    """What parameters buy over many tasks: scores minus full fine-tuning's, and the parameters that N tasks take.

    Of each size and task the run with the best validation counts, as in the paper. The lines are the medians over the
    tasks, the bands reach from the 20th to the 80th percentile. The parameters of N tasks are those of one encoder and
    N adapters, or of N models where the encoder itself trains. The macro score is the mean over the tasks. The paper's
    AutoML baseline, a week of 30 machines, is not made: `--baselines` has small ones that stand in for it.
    """

    name = "trade-off"
    figures = "Houlsby et al. 2019, figures 1 and 3, tables 1 and 2"

    sizes: tuple = option(
        (8, 64, 256), "Sizes of the adapters.", of=int, smoke=(2, 8), extends=True, range=Whole(most=2**16)
    )
    baselines: tuple = option(
        (), "Arms that fine-tune nothing: of `tf-idf` (words, linear), `network` (words, a small one) and `layer-mix` "
        "(a weighted mean of the frozen encoder's blocks, linear).", of=str, extends=True,
    )  # fmt: skip
    top: tuple = option(
        (1, 2, 3), "Numbers of uppermost blocks that train.", of=int, smoke=(1,), extends=True, range=Whole()
    )

    def check(self):
        super().check()
        for name in self.baselines:
            if name not in BASELINES:
                raise InputError(f"{{baselines}}: {name!r} is none of {', '.join(BASELINES)}.", baselines=name)

    def arms(self):
        # Strengths are tried inside of the linear model of words.
        rates = {"tf-idf": (0.0,), "network": (3e-4, 1e-3, 3e-3), "layer-mix": (3e-4, 1e-3, 3e-3)}
        baselines = {name: Arm(name, trainable=name, adapter=None, rates=rates[name]) for name in self.baselines}
        return {**super().arms(), **baselines}

    def summarise(self, values):
        from tf_adapters.models.transformers.loading import find_files, read_config

        best = {}
        for task, arms in self.best_runs(values).items():
            best[task] = {
                name: max((run for run in runs if not is_failed(run)), key=best_validation)
                for name, runs in arms.items()
                if any(not is_failed(run) for run in runs)
            }
        best = {task: arms for task, arms in best.items() if "full" in arms}
        family, config = read_config(find_files(self.model, config_only=True))
        encoder, summary = (
            family.parameters(config)["total"],
            {"encoder": family.parameters(config)["total"], "arms": {}},
        )
        for name, arm in self.arms().items():
            runs = {task: arms[name] for task, arms in best.items() if name in arms}
            if not runs:
                continue
            minus = [score_of(run) - score_of(best[task]["full"]) for task, run in runs.items()]
            trained = statistics.fmean(run["trained_parameters"] for run in runs.values())
            rates = [point["learning_rate"] for point in self.points(arm)]
            # With all of the encoder trained nothing is shared; models of words have none; otherwise it is kept once.
            together = (0 if name in ("full", "tf-idf", "network") else encoder) + len(runs) * trained
            summary["arms"][name] = {
                "title": arm.title,
                "trained_parameters": trained,
                "times_encoder": together / encoder,
                "macro": statistics.fmean(map(score_of, runs.values())),
                "minus_full": dict(zip(runs, minus)),
                "percentiles": {str(share): percentile(minus, share) for share in (20, 50, 80)},
                "at_edge": sum(at_edge(run["learning_rate"], rates) for run in runs.values()),
                "tasks": len(runs),
            }
        return summary

    def table(self, summary):
        columns = ["arm", "trained, of one task", "all tasks, encoders", "macro score", "median minus full"]
        columns += ["20 % to 80 %", "tasks", "best rate at an edge"]
        rows = []
        for arm in summary["arms"].values():
            low, middle, high = (f"{100 * arm['percentiles'][share]:+.2f}" for share in ("20", "50", "80"))
            rows.append(
                [
                    arm["title"],
                    f"{arm['trained_parameters']:,.0f}",
                    f"{arm['times_encoder']:.2f}",
                    percent(arm["macro"]),
                ]
                + [middle, f"{low} to {high}", str(arm["tasks"]), str(arm["at_edge"])]
            )
        return columns, rows

    def draw(self, summary, figure):
        panel = figure.subplots()
        for number, (label, start) in enumerate((("adapters", "adapters-"), ("uppermost blocks", "top-"))):
            rows = [
                row for name, row in summary["arms"].items() if name.startswith(start) or (number and name == "full")
            ]
            rows.sort(key=lambda row: row["trained_parameters"])
            places = [row["trained_parameters"] for row in rows]
            low, middle, high = ([100 * row["percentiles"][share] for row in rows] for share in ("20", "50", "80"))
            panel.plot(places, middle, label=label, **look(number))
            panel.fill_between(places, low, high, color=COLOURS[number], alpha=0.2, linewidth=0)
        for number, name in enumerate(name for name in BASELINES if name in summary["arms"]):
            row = summary["arms"][name]
            panel.plot(
                row["trained_parameters"], 100 * row["percentiles"]["50"], label=row["title"], **look(number + 2)
            )
        panel.axhline(0, color="0.5", linestyle=":")
        panel.set_xscale("log")
        panel.set_xlabel("trained parameters of a task")
        panel.set_ylabel("score minus full fine-tuning's, points")
        panel.legend()


def percentile(values, share):
    """A percentile of some numbers, by linear interpolation."""
    import numpy as np

    return float(np.percentile(values, share))
