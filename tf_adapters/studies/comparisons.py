"""Studies that compare scores: of initial weights, shared adapters, sizes, numbers of rows, rates, seeds, Mixout, and
while training goes on."""

import dataclasses
import functools
import math
import statistics
from typing import Optional, Tuple

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.ranges import Real, Whole
from tf_adapters.studies.baselines import BASELINES
from tf_adapters.studies.comparison import FULL, RATE, Arm, Comparison, both_arms, option, paired_by_seed, several
from tf_adapters.studies.figure import COLOURS, band, boxes, by_task, finish, line, look, panels
from tf_adapters.studies.numbers import (
    SCORES,
    at_edge,
    at_floor,
    best_validation,
    interval_words,
    is_failed,
    mean_of,
    of,
    percent,
    rate_words,
    score_of,
    spread,
)
from tf_adapters.studies.rows import few_rows, joined, load, splits_of

SIZE = Whole(most=2**16)


@dataclasses.dataclass(frozen=True)
class Init(Comparison):
    """Adapters that start at different standard deviations, from almost the identity to far from it.

    The rate is chosen for each standard deviation. Houlsby et al. find no difference below 1e-2, and a loss above it.
    """

    name = "init"
    figures = "Houlsby et al. 2019, figure 6 right"

    sigmas: Tuple[float, ...] = several(
        tuple(10.0**power for power in range(-7, 1)), "Standard deviations of the adapters' initial weights.",
        Real(above=0, such_as=1e-2), smoke=(1e-4, 1e-1),
    )  # fmt: skip

    def arms(self):
        return {f"{sigma:.15g}": Arm(f"sigma {sigma:g}", adapter={"init_stddev": sigma}) for sigma in self.sigmas}

    def draw(self, summary, figure):
        panel = figure.subplots()
        for number, (task, about) in enumerate(summary["tasks"].items()):
            found = sorted((float(name), row) for name, row in about["arms"].items())
            band(panel, *zip(*found), number, f"{task}, {about['metric']}")
            if about["constant"] is not None:
                panel.axhline(100 * about["constant"], color=look(number)["color"], linestyle=":", linewidth=1)
        finish(panel, "standard deviation of the initial weights", "score, % (mean, standard error)", log=True)


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
            "full": FULL,
            "houlsby": Arm("Houlsby"),
            "unshared": Arm("unshared", recipe="report-unshared"),
            "per-layer": Arm("one per layer", recipe="report-per-layer"),
            "3-shared": Arm("3-shared", recipe="report-3-shared"),
        }

    def more(self, name, by_arm):
        return {"minus_full": None if name == "full" else paired_by_seed(by_arm[name], by_arm.get("full", ()))}


@dataclasses.dataclass(frozen=True)
class Mixout(Comparison):
    """Full fine-tuning and adapters, with dropout and with Mixout in its place, on few rows.

    Mixout leaves the head alone, which was not pretrained; with it there is no dropout, in the head neither. It mixes
    entry by entry, as in the code of Lee et al.; He et al. speak of neurons.
    """

    name = "mixout"
    figures = "He et al. 2021, table 7"
    paper = "he-2021"

    rows: int = option(1000, "Training rows, drawn by the seed.", smoke=32, range=Whole())
    rate: float = option(0.9, "Probability with which an entry is the initial one.", range=Real(above=0, below=1))
    seeds: int = option(5, "Trainings at the best rate, with the seeds from 0 on.", smoke=2, extends=True)

    def arms(self):
        mixed = {"mixout": self.rate, "dropout": 0.0}
        return {
            "full": FULL,
            "full-mixout": dataclasses.replace(FULL, title="full fine-tuning, Mixout", settings=mixed),
            "adapters": Arm("adapters"),
            "adapters-mixout": Arm("adapters, Mixout", settings=mixed),
        }


@dataclasses.dataclass(frozen=True)
class Size(Comparison):
    """Adapters of different sizes, the uppermost blocks, and LayerNorms alone: score against trained parameters.

    Top-N fine-tuning trains the N uppermost blocks and the head; with all blocks it is full fine-tuning but for the
    embeddings. Full fine-tuning is a line.
    """

    name = "size"
    figures = "Houlsby et al. 2019, figures 4 and 5; He et al. 2021, table 5"

    sizes: Tuple[int, ...] = several(
        tuple(2**power for power in range(10)), "Sizes of the adapters.", SIZE, smoke=(2, 8)
    )
    learning_rates: Tuple[float, ...] = several(
        (3e-5, 3e-4, 3e-3), "Rates that are tried of each size, and of LayerNorms.", RATE, smoke=(1e-3,)
    )
    full_learning_rates: Tuple[float, ...] = several(
        (2e-5, 3e-5, 5e-5), "Rates that are tried of full and top-N fine-tuning.", RATE, smoke=(1e-4,)
    )
    top: Tuple[int, ...] = several(
        (), "Numbers of uppermost blocks that train. Default: 1 to all of them.", Whole(), smoke=(1,)
    )

    def arms(self):
        arms = {}
        for size in self.sizes:
            arms[f"adapters-{size}"] = Arm(f"adapters of {size}", adapter={"bottleneck_size": size})
        for count in self.top or range(1, _encoder_of(self.model)["depth"] + 1):
            arms[f"top-{count}"] = Arm(f"top {count}", trainable=f"top-{count}")
        norms = Arm("LayerNorms", trainable="layer-norm", recipe="houlsby-2019-layer-norm")
        return {**arms, "layer-norm": norms, "full": FULL}

    def draw(self, summary, figure):
        series = {"adapters": "adapters-", "uppermost blocks": "top-", "LayerNorms": "layer-norm"}
        for panel, about in by_task(figure, summary["tasks"], "trained parameters", log=True, width=4.0):
            for number, (label, start) in enumerate(series.items()):
                rows = [row for name, row in about["arms"].items() if name.startswith(start)]
                line(panel, rows, "trained_parameters", number, label)
            full = about["arms"].get("full")
            if full and full["mean"] is not None:
                panel.axhline(100 * full["mean"], color=look(6)["color"], linestyle="--", label="full fine-tuning")


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

    sizes: tuple = several((8, 64, 256), "Sizes of the adapters.", SIZE, smoke=(2, 8))
    baselines: tuple = option(
        (), "Arms that fine-tune nothing: of `tf-idf` (words, linear), `network` (words, a small one) and `layer-mix` "
        "(a weighted mean of the frozen encoder's blocks, linear).", of=str, extends=True, values=tuple(BASELINES),
    )  # fmt: skip
    top: tuple = several((1, 2, 3), "Numbers of uppermost blocks that train.", Whole(), smoke=(1,))

    columns = {
        "arm": of("title"),
        "trained, of one task": of("trained_parameters", "{:,.0f}".format),
        "all tasks, encoders": of("times_encoder", "{:.2f}".format),
        "macro score": of("macro", percent),
        "median minus full": lambda row: f"{100 * row['percentiles']['50']:+.2f}",
        "20 % to 80 %": lambda row: " to ".join(f"{100 * row['percentiles'][share]:+.2f}" for share in ("20", "80")),
        "tasks": of("tasks"),
        "best rate at an edge": of("at_edge"),
    }

    def arms(self):
        # Strengths are tried inside of the linear model of words.
        rates = {"tf-idf": (0.0,), "network": (3e-4, 1e-3, 3e-3), "layer-mix": (3e-4, 1e-3, 3e-3)}
        baselines = {name: Arm(name, trainable=name, rates=rates[name]) for name in self.baselines}
        return {**super().arms(), **baselines}

    def summarise(self, values):
        best = {}
        for task, arms in self.best_runs(values).items():
            finished = {name: [run for run in runs if not is_failed(run)] for name, runs in arms.items()}
            best[task] = {name: max(runs, key=best_validation) for name, runs in finished.items() if runs}
        best = {task: arms for task, arms in best.items() if "full" in arms}
        encoder = _encoder_of(self.model)["parameters"]
        summary = {"encoder": encoder, "arms": {}}
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
                "percentiles": {str(share): float(np.percentile(minus, share)) for share in (20, 50, 80)},
                "at_edge": sum(at_edge(run["learning_rate"], rates) for run in runs.values()),
                "tasks": len(runs),
            }
        return summary

    def table(self, summary):
        rows = [[cell(row) for cell in self.columns.values()] for row in summary["arms"].values()]
        return [*self.columns], rows

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
            middle = 100 * row["percentiles"]["50"]
            panel.plot(row["trained_parameters"], middle, label=row["title"], **look(number + 2))
        panel.axhline(0, color="0.5", linestyle=":")
        finish(panel, "trained parameters of a task", "score minus full fine-tuning's, points", log=True)


@dataclasses.dataclass(frozen=True)
class LowResource(Comparison):
    """Adapters and full fine-tuning on few training rows; the size of the adapters may be chosen by task.

    The protocol is He et al.'s: rows are drawn by the seed, another 1,000 of the training split choose epoch, rate and
    size, and the original validation split is reported (test, where the task has labelled test rows).
    """

    name = "low-resource"
    figures = "He et al. 2021, table 2, figure 3"
    paper = "he-2021"

    counts: Tuple[float, ...] = several(
        (1000,), "Numbers of training rows; below 1, such as 0.05, shares of those that there are.",
        Real(above=0, such_as=1000), smoke=(16, 0.3),
    )  # fmt: skip
    sizes: Tuple[int, ...] = several(
        (64,), "Sizes of the adapters among which validation chooses. With several, adapters are searched more than "
        "full fine-tuning.", SIZE, smoke=(8,),
    )  # fmt: skip
    seeds: int = option(5, "Trainings at the best rate and size, with the seeds from 0 on.", smoke=2, extends=True)
    rows: int = option(None, "Not for this study, which has `--counts`.", range=Whole())

    columns = {
        "rows": of("rows", "{:,}".format), "arm": of("title"), "size": of("size"), "rate": rate_words, **SCORES,
        "minus full (95 %)": of("minus_full", interval_words), "seeds": of("n"),
    }  # fmt: skip

    def check(self):
        super().check()
        if self.rows is not None:
            raise InputError("{rows} is not for this study: give {counts}.", rows=self.rows, counts=list(self.counts))

    def arms(self):
        both = {"adapters": Arm("adapters"), "full": FULL}
        return {f"{name}, {count:.15g}": arm for count in self.counts for name, arm in both.items()}

    def points(self, arm):
        points = super().points(arm)
        return (
            [{**one, "size": size} for size in self.sizes for one in points] if arm.trainable == "adapters" else points
        )

    def adapter_of(self, identity):
        return {"bottleneck_size": identity["size"]} if "size" in identity else {}

    def rows_of(self, identity):
        count, task = float(identity["arm"].rpartition(" ")[2]), load(identity["task"], self.data_dir, self.metric)
        count = int(count * len(task.train)) if count < 1 else int(count)
        return few_rows(task, count, self.validation_rows, self.reported_rows, identity["seed"])

    def more(self, name, by_arm):
        (kind, _, count), runs = name.partition(", "), by_arm[name]
        about = {"rows": runs[0]["train_rows"], "size": runs[0].get("size")}
        if kind == "adapters":
            about["minus_full"] = paired_by_seed(runs, by_arm.get(f"full, {count}", ()))
        return about

    def draw(self, summary, figure):
        for panel, about in by_task(figure, summary["tasks"], "training rows", log=True):
            for number, title in enumerate(("adapters", "full fine-tuning")):
                line(panel, [row for row in about["arms"].values() if row["title"] == title], "rows", number)


@dataclasses.dataclass(frozen=True)
class Stability(Comparison):
    """Adapters and full fine-tuning at each rate with many seeds: boxes, and the share of collapsed runs.

    A run has collapsed if its score is not above the constant answer's by a tenth of what the best run of all is.
    """

    name = "stability"
    figures = "He et al. 2021, figure 4; Han et al. 2021, figure 2"
    paper = "he-2021"
    chooses = False

    learning_rates: tuple = several(
        (2e-5, 4e-5, 6e-5, 8e-5, 1e-4), "Rates of both arms, or of adapters.", RATE, smoke=(1e-4, 1e-3)
    )
    full_learning_rates: tuple = several(
        (2e-5, 4e-5, 6e-5, 8e-5, 1e-4), "Rates of full fine-tuning.", RATE, smoke=(1e-4,)
    )
    seeds: int = option(20, "Trainings at each rate, with the seeds from 0 on.", smoke=2, extends=True)
    rows: int = option(1000, "Training rows, drawn by the seed.", smoke=32, range=Whole())

    columns = {
        "arm": of("title"), "rate": of("rate"), **SCORES, "median": of("median", percent),
        "collapsed": lambda row: f"{percent(row['collapsed'])} %", "seeds": of("n"),
    }  # fmt: skip

    def summarise(self, values):
        summary, arms = {"tasks": {}}, self.arms()
        for task in self.tasks:
            runs = {(name, point["learning_rate"]): [] for name, arm in arms.items() for point in self.points(arm)}
            for run in map(self.counted, values):
                if run["task"] == task and run["seed"] < self.seeds and (run["arm"], run["learning_rate"]) in runs:
                    runs[run["arm"], run["learning_rate"]].append(run)
            finished = [run for of_rate in runs.values() for run in of_rate if not is_failed(run)]
            if not finished:
                continue
            constant = finished[0]["constant"] or 0.0
            line = constant + 0.1 * (max(map(score_of, finished)) - constant)
            kept = ("metric", "constant", "constant_loss")
            about = {**{name: finished[0].get(name) for name in kept}, "arms": {}}
            for (name, rate), of_rate in runs.items():
                of_arm = about["arms"].setdefault(name, {"title": arms[name].title, "rates": {}})
                scores = {run["seed"]: score_of(run) for run in of_rate if not is_failed(run)}
                collapsed = sum(score <= line for score in scores.values()) + len(of_rate) - len(scores)
                found = spread([*scores.values()], [*scores])
                of_arm["rates"][f"{rate:g}"] = {
                    **found,
                    "at_floor": at_floor(found, finished[0]),
                    "collapsed": collapsed / len(of_rate) if of_rate else None,
                    "median": statistics.median(scores.values()) if scores else None,
                }
            summary["tasks"][task] = about
        return summary

    def table_rows(self, about):
        for arm in about["arms"].values():
            yield from ({**row, "title": arm["title"], "rate": rate} for rate, row in arm["rates"].items())

    def draw(self, summary, figure):
        for panel, about in by_task(figure, summary["tasks"], "learning rate", "{metric}, %", width=4.6):
            rates = sorted({rate for arm in about["arms"].values() for rate in arm["rates"]}, key=float)
            for number, arm in enumerate(about["arms"].values()):
                groups = [arm["rates"].get(rate, {}).get("values", []) for rate in rates]
                boxes(panel, groups, rates, number, of=len(about["arms"]))
                panel.plot([], [], "s", color=look(number)["color"], label=arm["title"])


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
        "least loss": of("least_loss", "{:.3f}".format),
        "last loss": of("last_loss", "{:.3f}".format),
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
        metric, looks = runs[0]["metric"], list(zip(*(run["validation"] for run in runs)))
        scores = [mean_of(look[metric] for look in of_seeds) for of_seeds in looks]
        losses = [mean_of(look.get("loss") for look in of_seeds) for of_seeds in looks]
        return {
            "title": title,
            "metric": metric,
            "steps": [self.every * (place + 1) for place in range(len(looks))],
            "scores": scores,
            "losses": losses,
            "least_loss": min((loss for loss in losses if loss is not None), default=None),
            "last_loss": losses[-1],
            "mean": mean_of(scores),
            "best": mean_of(filter(math.isfinite, map(best_validation, runs))),
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
                of_loss.plot(arm["steps"], np.array(arm["losses"], float), **common)
                of_score.plot(arm["steps"], 100 * np.array(arm["scores"], float), **common)
            finish(of_loss, "steps", "loss")
            finish(of_score, "steps", f"{arm['metric']}, %")


@functools.lru_cache
def _encoder_of(model):
    """The depth of a pretrained encoder and how many parameters it has, a dict."""
    from tf_adapters.models.transformers.loading import find_files, read_config

    family, config = read_config(find_files(model, config_only=True))
    return {"depth": family.depth(config), "parameters": family.parameters(config)["total"]}
