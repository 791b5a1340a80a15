"""How wide the minimum is that training found."""

import dataclasses
import statistics

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.ranges import Real, Whole
from tf_adapters.studies.comparison import OfTrained, both_arms
from tf_adapters.studies.figure import by_task, look
from tf_adapters.studies.numbers import of, spread
from tf_adapters.studies.study import option

HEADS = ("moved", "trained")


@dataclasses.dataclass(frozen=True)
class Landscape(OfTrained):
    """The loss on the line through the weights before and after training: f(a) = L(w0 + a (w1 - w0)).

    All weights that train are moved: of adapters the adapters, their LayerNorms and the head. `w0` are the adapters and
    the head as they were drawn. With `--head trained` the head stays as training left it. The losses are those of the
    rows that trained, and of the reported ones, without dropout. A width is that of the part of the line around `a = 1`
    on which the loss of the rows that trained is at most twice its least.
    """

    name = "landscape"
    figures = "He et al. 2021, figure 6"
    paper = "he-2021"

    points_on_line: int = option(
        20, "Points on the line, at equal distances, beside those at 0 and 1.", smoke=3, range=Whole(2)
    )
    reach: float = option(2.0, "The line is drawn from minus this `a` to this one.", range=Real(above=0, such_as=2))
    head: str = option("moved", "What of the head: `moved` with the rest, as the formula says, or `trained`.")
    seeds: int = option(1, "Models of each arm, with the seeds from 0 on.", extends=True)

    columns = {
        "arm": of("title"),
        "loss at 1": of("losses", lambda losses: f"{losses['1.0000']:.3f}"),
        "least": of("losses", lambda losses: f"{min(losses.values()):.3f}"),
        "width of the training loss around 1": of("width_around", lambda width: f"{width['mean']:.2f}"),
        "sd": of("width_around", of("sd", "{:.2f}".format)),
        "distance of the weights": of("distance", "{:.3g}".format),
        "seeds": of("seeds"),
    }

    def check(self):
        super().check()
        if self.head not in HEADS:
            raise InputError(f"{{head}} is none of {', '.join(HEADS)}.", head=self.head)

    def arms(self):
        return both_arms()

    def check_task(self, task):
        from tf_adapters.kinds import get_kind
        from tf_adapters.kinds.kind import Kind

        if type(get_kind(task.kind)).loss is Kind.loss:
            raise InputError(
                f"{{tasks}}: what is predicted of the kind {task.kind} has no logits to compute a loss of: leave "
                f"{task.name} out.",
                tasks=list(self.tasks),
            )

    def look_into(self, lab, directory, experiment, reported, identity):
        from tf_adapters._keras import keras
        from tf_adapters.kinds import get_kind
        from tf_adapters.kinds.kind import Scorer
        from tf_adapters.models.state import state_of
        from tf_adapters.saving.directory import load_adapter
        from tf_adapters.tasks.rows import sample_rows

        keras.backend.clear_session()
        model, tokenizer = experiment.build(identity["seed"])
        kind, state = get_kind(experiment.task_of(identity["seed"]).kind), state_of(model)
        head = {id(variable) for variable in state.head_variables(model)} if self.head == "trained" else ()
        moved = [variable for variable in model.trainable_variables if id(variable) not in head]
        before = [variable.numpy() for variable in moved]
        load_adapter(model, directory, name=state.active or "default")
        after = [variable.numpy() for variable in moved]
        scorer, losses, training = Scorer(model, tokenizer, batch_size=experiment.settings.batch_size), {}, {}
        trained = experiment.task_of(identity["seed"]).train
        trained = sample_rows(trained, count=min(len(trained), len(reported)), seed=0)
        # The paper's points are neither at 0 nor at 1, where the models stand.
        places = np.union1d(np.linspace(-self.reach, self.reach, self.points_on_line), (0.0, 1.0))
        with lab.counting("moving along the line", len(places), "points") as advance:
            for place in places:
                for variable, start, end in zip(moved, before, after):
                    variable.assign(start + np.float32(place) * (end - start))
                for rows, found in ((reported, losses), (trained, training)):
                    found[f"{place:.4f}"] = kind.loss(rows, kind.predict(scorer, rows))
                advance(1)
        distance = sum(float(np.sum((end - start) ** 2)) for start, end in zip(before, after)) ** 0.5
        return {"losses": losses, "training_losses": training, "distance": distance}

    def summarise(self, values):
        summary = {"tasks": {}}
        for task, arms in self.looks(values).items():
            summary["tasks"][task] = {}
            for arm, found in arms.items():
                summary["tasks"][task][arm] = about = {"title": self.arms()[arm].title, "seeds": len(found)}
                # Studies of before have no losses of the rows that trained.
                for name in ("losses", "training_losses") if "training_losses" in found[0] else ("losses",):
                    places = found[0][name]
                    about[name] = {place: statistics.fmean(value[name][place] for value in found) for place in places}
                about["distance"] = statistics.fmean(value["distance"] for value in found)
                about["width"] = width(about["losses"])
                if "training_losses" in about:
                    about["width_around"] = spread([width(value["training_losses"], around=1.0) for value in found])
        return summary

    def draw(self, summary, figure):
        for panel, arms in by_task(figure, summary["tasks"], "a: 0 before training, 1 after", "loss", width=4.0):
            for number, arm in enumerate(arms.values()):
                dashed = {"linestyle": "--", "color": look(number)["color"]}
                for name, title, style in (
                    ("losses", arm["title"], look(number)),
                    ("training_losses", f"{arm['title']}, rows that trained", dashed),
                ):
                    losses = {float(place): loss for place, loss in arm.get(name, {}).items()}
                    if losses:
                        panel.plot(list(losses), list(losses.values()), label=title, **style)
            for place in (0, 1):
                panel.axvline(place, color="0.8", zorder=0)
            panel.set_yscale("log")


def width(losses, around=None):
    """How long the part of the line is on which the loss is at most twice its least, by linear interpolation.

    Args:
        losses: dict from a place, a word, to the loss there.
        around: float, a place: only what is connected with it counts, 0 if its own loss is higher. None for all.
    """
    places = np.asarray(sorted(map(float, losses)))
    values = np.asarray([losses[place] for place in sorted(losses, key=float)])
    fine = np.linspace(places[0], places[-1], 4001)
    below = np.interp(fine, places, values) <= 2 * values.min()
    if around is not None:
        # Parts are numbered by how many points above the line there are before them.
        part = np.cumsum(~below)
        below &= part == part[np.abs(fine - around).argmin()]
    return float(below.mean() * (places[-1] - places[0]))
