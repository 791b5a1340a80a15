"""Which blocks' adapters matter: each span of them is taken out of a trained model."""

import dataclasses
import functools
from typing import Optional, Tuple

import numpy as np

from tf_adapters.errors import NAME, InputError
from tf_adapters.kinds import get_kind
from tf_adapters.ranges import choices_of
from tf_adapters.saving.settings import read_settings, task_of
from tf_adapters.studies.comparison import Arm, option
from tf_adapters.studies.figure import heat_map, panels
from tf_adapters.studies.inside import OfTrained
from tf_adapters.studies.numbers import percent, spread
from tf_adapters.tasks.metrics import METRICS
from tf_adapters.tasks.own_files import rows_from_file
from tf_adapters.tasks.rows import sample_rows

# Each is an arm's recipe, None for the study's own, and what it changes of the adapter.
VARIANTS = {
    "houlsby": (None, {}),
    "unshared": ("report-unshared", {}),
    "per-layer": ("report-per-layer", {}),
    "3-shared": ("report-3-shared", {}),
    "frozen-norms": (None, {"train_layer_norm": "none"}),
}

# Options of a study of directories that were trained before.
_OF_DIRECTORIES = (
    "directories", "input", "split", "data_dir", "number", "reported_rows", "batch_size", "fast",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Ablation(OfTrained):
    """What a trained model loses when the adapters of some blocks are taken out, for every span of blocks.

    Nothing is trained again, and LayerNorms and head stay: `frozen-norms`, whose LayerNorms do not train, shows what
    the head carries alone. Without `directories`, each variant is trained on the tasks first: `houlsby` by the study's
    recipe, `unshared`, `per-layer` and `3-shared` by the report's. The number is by default the accuracy, where a task
    has one: taken out altogether, the adapters leave about the constant answer, whose Matthews coefficient is 0.
    """

    name = "ablation"
    figures = "Houlsby et al. 2019, figure 6 left; report, figure 8"

    directories: Tuple[str, ...] = option(
        (), "Adapter directories, in place of training: their own task's rows are scored.", of=str, extends=True
    )
    input: Optional[str] = option(None, "With `directories`: a file of labelled rows, in place of their own task's.")
    split: Optional[str] = option(None, "With `directories`: the split that is scored. Default: test, or validation.")
    variants: Tuple[str, ...] = option(
        ("houlsby",),
        f"What is trained: of {', '.join(f'`{name}`' for name in VARIANTS)}.",
        of=str,
        extends=True,
        values=tuple(VARIANTS),
    )
    number: Optional[str] = option(
        None, "What is compared: `accuracy`, `matthews`, ... Default: accuracy, if it has one."
    )
    seeds: int = option(1, "Models of each variant, with the seeds from 0 on.", extends=True)

    def check(self):
        idle = [name for name in choices_of(type(self)) if name not in _OF_DIRECTORIES]
        idle, why = (idle, "nothing trains with") if self.directories else (("input", "split"), "it goes with")
        if self.input is not None and self.split is not None:
            raise InputError("{input} and {split}: a file has no splits; leave one out.", input=NAME, split=NAME)
        for name in idle:
            field, value = self.__dataclass_fields__[name], getattr(self, name)
            usual = {"recipe": self.paper, "full_recipe": f"{self.paper}-full"}.get(name, field.default)
            if value not in (usual, field.metadata["choice"].smoke):
                value = list(value) if isinstance(value, tuple) else value
                raise InputError(f"{{{name}}}: {why} {{directories}}; leave it out.", **{name: value}, directories=NAME)
        if not self.directories:
            super().check()

    def arms(self):
        trained = () if self.directories else [name for name in VARIANTS if name in self.variants]
        return {name: Arm(name, recipe=VARIANTS[name][0], adapter=VARIANTS[name][1]) for name in trained}

    def check_inputs(self):
        if not self.directories:
            super().check_inputs()
        for directory in self.directories:
            if read_settings(directory)["adapter"] is None:
                raise InputError(
                    f"{{directories}}: {directory} was trained without adapters, so that there is nothing to take out.",
                    directories=list(self.directories),
                )
            self._rows(directory)

    def measure(self, lab):
        if not self.directories:
            super().measure(lab)
            return
        lab.total = len(self.directories)
        for directory in self.directories:
            identity = {"measured": self.name, "task": directory, "arm": directory, "seed": 0}
            rows, weights = self._rows(directory), read_settings(directory)["weights"]["sha256"]
            measure = functools.partial(self._ablate, lab, directory, self.batch_size or 32, rows)
            lab.value(identity, measure, {"weights": weights, "data": rows.digest()})

    def _rows(self, directory):
        from tf_adapters.pipeline import labelled_rows

        if self.input is None:
            return labelled_rows(directory, split=self.split, data_dir=self.data_dir)[1]
        kind, labels = task_of(read_settings(directory))
        return rows_from_file(self.input, kind=kind, labels=labels)

    def look_into(self, lab, directory, experiment, reported, identity):
        return self._ablate(lab, directory, experiment.settings.batch_size, reported)

    def _ablate(self, lab, directory, batch_size, rows):
        from tf_adapters.models.injection import set_active
        from tf_adapters.models.state import state_of
        from tf_adapters.pipeline import load_pipeline

        scorer, settings = load_pipeline(directory, batch_size=batch_size, fast=self.fast or None)
        (kind_name, labels), state = task_of(settings), state_of(scorer.model)
        kind, metric, name = get_kind(kind_name), settings["task"]["metric"], state.active
        depth = len(state.family.blocks(scorer.model))
        blocks = sorted({block for block, _ in state.adapters[name].config.sites(depth)})
        if self.reported_rows is not None:
            rows = sample_rows(rows, count=self.reported_rows, seed=0)

        def score(left):
            set_active(scorer.model, name, blocks=left)
            return kind.score(metric, rows, kind.predict(scorer, rows))

        whole = score(blocks)
        number = self.number or ("accuracy" if "accuracy" in whole else METRICS[metric].primary)
        if number not in whole:
            raise InputError(f"{{number}} is none of {', '.join(whole)}, which the task has.", number=self.number)
        spans = [(first, last) for first in range(len(blocks)) for last in range(first, len(blocks))]
        found = {}
        with lab.observer.counting("ablating", len(spans), "spans") as advance:
            for first, last in spans:
                left = [block for place, block in enumerate(blocks) if not first <= place <= last]
                found[f"{blocks[first]}-{blocks[last]}"] = score(left)[number]
                advance(1)
        set_active(scorer.model, name)
        constant = kind.constant(rows, labels)
        return {
            "number": number,
            "whole": whole[number],
            "spans": found,
            "blocks": blocks,
            "rows": len(rows),
            "constant": None if constant is None else kind.score(metric, rows, constant)[number],
        }

    def summarise(self, values):
        maps = {}
        of_directories = {
            value["task"]: {value["arm"]: [value]} for value in values if value["task"] in self.directories
        }
        for task, arms in (of_directories or self.looks(values)).items():
            for arm, found in arms.items():
                maps[arm if arm == task else f"{task}, {arm}"] = _mean_map(found)
        return {"maps": maps}

    def table(self, summary):
        columns = ["model", "number", "all adapters", "worst single block", "all taken out", "constant answer"]
        rows = []
        for title, found in summary["maps"].items():
            drops, blocks = found["drops"], found["blocks"]
            worst = max(blocks, key=lambda block: drops[f"{block}-{block}"])
            rows.append(
                [title, found["number"], percent(found["whole"]["mean"])]
                + [f"block {worst}: {-100 * drops[f'{worst}-{worst}']:+.1f} %"]
                + [f"{-100 * drops[f'{blocks[0]}-{blocks[-1]}']:+.1f} %", percent(found["constant"])]
            )
        return columns, rows

    def draw(self, summary, figure):
        # Variants of a task are compared by eye: one scale, side by side.
        deepest, tasks = {}, [title.partition(", ")[0] for title in summary["maps"]]
        for task, found in zip(tasks, summary["maps"].values()):
            deepest[task] = max(deepest.get(task, 0.0), *found["drops"].values())
        variants = max(map(tasks.count, tasks), default=1)
        columns = variants if 1 < variants < len(tasks) else 3
        axes = panels(figure, list(summary["maps"]), width=3.8, height=3.3, columns=columns)
        for panel, (title, found) in zip(axes, summary["maps"].items()):
            low = -100 * deepest[title.partition(", ")[0]]
            blocks = found["blocks"]
            matrix = np.full((len(blocks),) * 2, np.nan)
            for span, drop in found["drops"].items():
                first, last = map(int, span.split("-"))
                matrix[blocks.index(first), blocks.index(last)] = -100 * drop
            heat_map(
                panel, figure, matrix, label=f"relative change of {found['number']}, %", low=low, high=0.0,
                text="{:.1f}" if len(blocks) <= 8 else None,
            )  # fmt: skip
            panel.set_xticks(range(len(blocks)), blocks)
            panel.set_yticks(range(len(blocks)), blocks)
            panel.set_xlabel("last block without its adapters")
            panel.set_ylabel("first")


def _mean_map(values):
    """The mean over seeds of the relative drops, and what they are of."""
    drops = {}
    for span in values[0]["spans"]:
        of_seeds = [1 - value["spans"][span] / value["whole"] if value["whole"] else 0.0 for value in values]
        drops[span] = sum(of_seeds) / len(of_seeds)
    same = {name: values[0][name] for name in ("number", "blocks", "constant")}
    return {**same, "whole": spread([value["whole"] for value in values]), "drops": drops}
