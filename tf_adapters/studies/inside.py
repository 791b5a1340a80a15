"""Studies that look into the models that they trained: how wide a minimum was found, whether gradients reach every
layer, and how far training moves what the blocks compute."""

import dataclasses
import math
import operator
import statistics
from typing import Tuple

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.ranges import Real, Whole
from tf_adapters.saving.atomic import remove_folder
from tf_adapters.studies.baselines import block_states, encoded
from tf_adapters.studies.comparison import Comparison, both_arms, option
from tf_adapters.studies.figure import by_task, heat_map, look, panels
from tf_adapters.studies.numbers import is_failed, of, rank, spread
from tf_adapters.tasks.rows import sample_rows


@dataclasses.dataclass(frozen=True)
class OfTrained(Comparison):
    """Base of the studies that train arms on tasks and then look into the models, of the best epochs."""

    keeps_last = False

    seeds: int = option(1, "Models of each arm, with the seeds from 0 on.", extends=True)

    def values_of(self, arm):
        return super().values_of(arm) + self.seeds

    def train(self, lab, task, arm, identity):
        return super().train(lab, task, arm, identity, keep=True)

    def run_arm(self, lab, task, name, arm, seed):
        from tf_adapters._keras import keras

        super().run_arm(lab, task, name, arm, seed)
        identities = self.identities(lab, task, name, arm, seed)
        runs = [*map(lab.find, identities)]
        if runs and not is_failed(rank(runs)[0]):
            identity = {key: rank(runs)[0][key] for key in identities[0]}

            def look():
                directory = lab.model_of(identity)
                if not directory.is_dir():  # values alone were brought here
                    self.train(lab, task, arm, identity)
                keras.mixed_precision.set_global_policy(self.precision)  # in another process it trained
                return self.look_into(lab, directory, *self.experiment(lab, arm, identity)[:2], identity)

            lab.value({**identity, "measured": self.name}, look)
        for identity in identities:
            remove_folder(lab.model_of(identity))

    def look_into(self, lab, directory, experiment, reported, identity):
        """What is found in a trained model, by its adapter directory, the `Experiment` that trained it, the reported
        rows, and the identity of its run; a dict for `Lab.value`."""
        raise NotImplementedError

    def summarise(self, values):
        return {
            "tasks": {
                task: {
                    arm: {"title": self.arms()[arm].title, **self.come_to(arm, found)} for arm, found in arms.items()
                }
                for task, arms in self.looks(values).items()
            }
        }

    def come_to(self, arm, found):
        """What an arm's values of `looks` come to, a dict for JSON."""
        raise NotImplementedError

    def looks(self, values):
        """What `look_into` found of `best_runs`: dict from a task to a dict from an arm to its values, a list."""
        run_of = operator.itemgetter("task", "arm", "learning_rate", "seed")
        newest = {run_of(value): value for value in values if value["measured"] == self.name}
        found = {}
        for task, arms in self.best_runs(values).items():
            for arm, runs in arms.items():
                if of_arm := [newest[run_of(run)] for run in runs if run_of(run) in newest]:
                    found.setdefault(task, {})[arm] = of_arm
        return found


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
    # Those of which what is predicted has logits to compute a loss of.
    kinds = ("classification", "regression", "multi-label", "token-classification", "multiple-choice")

    points_on_line: int = option(
        20, "Points on the line, at equal distances, beside those at 0 and 1.", smoke=3, range=Whole(2)
    )
    reach: float = option(2.0, "The line is drawn from minus this `a` to this one.", range=Real(above=0, such_as=2))
    head: str = option(
        "moved", "What of the head: `moved` with the rest, as the formula says, or `trained`.",
        values=("moved", "trained"),
    )  # fmt: skip

    columns = {
        "arm": of("title"),
        "loss at 1": of("losses", lambda losses: f"{losses['1.0000']:.3f}"),
        "least": of("losses", lambda losses: f"{min(losses.values()):.3f}"),
        "width of the training loss around 1": of("width_around", lambda width: f"{width['mean']:.2f}"),
        "sd": of("width_around", of("sd", "{:.2f}".format)),
        "distance of the weights": of("distance", "{:.3g}".format),
        "seeds": of("seeds"),
    }

    def look_into(self, lab, directory, experiment, reported, identity):
        from tf_adapters._keras import keras
        from tf_adapters.kinds.kind import Scorer
        from tf_adapters.models.state import state_of
        from tf_adapters.saving.directory import load_adapter

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
        with lab.observer.counting("moving along the line", len(places), "points") as advance:
            for place in places:
                for variable, start, end in zip(moved, before, after):
                    variable.assign(start + np.float32(place) * (end - start))
                for rows, found in ((reported, losses), (trained, training)):
                    found[f"{place:.4f}"] = kind.loss(rows, kind.unbounded(scorer, rows))
                advance(1)
        distance = sum(float(np.sum((end - start) ** 2)) for start, end in zip(before, after)) ** 0.5
        return {"losses": losses, "training_losses": training, "distance": distance}

    def come_to(self, arm, found):
        about = {"seeds": len(found)}
        # Studies of before have no losses of the rows that trained.
        for name in ("losses", "training_losses") if "training_losses" in found[0] else ("losses",):
            about[name] = {place: statistics.fmean(value[name][place] for value in found) for place in found[0][name]}
        about["distance"] = statistics.fmean(value["distance"] for value in found)
        about["width"] = width(about["losses"])
        if "training_losses" in about:
            about["width_around"] = spread(
                [width(value["training_losses"], around=1.0) for value in found], [value["seed"] for value in found]
            )
        return about

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
    """How long the part of the line is on which the loss is at most twice its least, by linear interpolation between
    places, words in a dict of losses; of what is connected with the place `around` alone, 0 if its loss is higher."""
    places = np.asarray(sorted(map(float, losses)))
    values = np.asarray([losses[place] for place in sorted(losses, key=float)])
    fine = np.linspace(places[0], places[-1], 4001)
    below = np.interp(fine, places, values) <= 2 * values.min()
    if around is not None:
        # Parts are numbered by how many points above the line there are before them.
        part = np.cumsum(~below)
        below &= part == part[np.abs(fine - around).argmin()]
    return float(below.mean() * (places[-1] - places[0]))


@dataclasses.dataclass(frozen=True)
class Gradients(OfTrained):
    """Norms of the loss's gradient by block, pooler and head over training, of frozen layers too.

    The model is looked at every `every` steps. The L2 norms are those of the same training batches each time, without
    dropout, and their mean is taken. A block's are those of the weights that were pretrained, whether they train or
    not; adapters have a row of their own.
    """

    name = "gradients"
    figures = "Han et al. 2021, figure 3"
    paper = "han-2021"
    kinds = ("classification", "multi-label", "regression")

    every: int = option(50, "Steps between two looks.", smoke=2, range=Whole())
    batches: int = option(8, "Training batches that are looked at.", smoke=2, range=Whole())

    columns = {
        "arm": of("title"),
        "layer": of("group"),
        "at the start": lambda row: f"{row['norms'][0]:.3g}",
        "halfway": lambda row: f"{row['norms'][len(row['norms']) // 2]:.3g}",
        "at the end": lambda row: f"{row['norms'][-1]:.3g}",
    }

    def arms(self):
        return both_arms(period=self.every, keep_periods=True)

    def look_into(self, lab, directory, experiment, reported, identity):
        from tf_adapters._keras import keras
        from tf_adapters.models.state import state_of
        from tf_adapters.saving.directory import load_adapter

        keras.backend.clear_session()
        seed = identity["seed"]
        model, tokenizer = experiment.build(seed)
        task, batch_size = experiment.task_of(seed), experiment.settings.batch_size
        batches = batches_of(model, tokenizer, task, batch_size, self.batches, seed)
        norms = gradient_norms(model, task, batches)
        found = {"0": norms()}
        folders = sorted(directory.glob("step-*"), key=lambda path: int(path.name[5:]))
        with lab.observer.counting("looking at gradients", len(folders), "steps") as advance:
            for folder in folders:
                load_adapter(model, folder, name=state_of(model).active or "default")
                found[folder.name[5:]] = norms()
                advance(1)
        return {"norms": found}

    def come_to(self, arm, found):
        seeds = [value["norms"] for value in found]
        steps = list(seeds[0])
        return {
            "steps": [int(step) for step in steps],
            "norms": {
                group: [statistics.fmean(seed[step][group] for seed in seeds) for step in steps]
                for group in seeds[0][steps[0]]
            },
            "seeds": len(seeds),
        }

    def table_rows(self, about):
        for arm in about.values():
            yield from ({"title": arm["title"], "group": group, "norms": of} for group, of in arm["norms"].items())

    def draw(self, summary, figure):
        arms = {f"{task}: {arm['title']}": arm for task, arms in summary["tasks"].items() for arm in arms.values()}
        titles, maps = list(arms), list(arms.values())
        logs = [np.log10(np.maximum(np.asarray(list(arm["norms"].values())), 1e-12)) for arm in maps]
        low, high = min(log.min() for log in logs), max(log.max() for log in logs)
        for panel, arm, log in zip(panels(figure, titles, width=4.2, columns=2), maps, logs):
            image = heat_map(panel, figure, log, label="log10 of the L2 norm", low=low, high=high, text=False)
            image.set_extent((-0.5, log.shape[1] - 0.5, log.shape[0] - 0.5, -0.5))
            panel.set_aspect("auto")
            panel.set_yticks(range(log.shape[0]), list(arm["norms"]))
            places = range(0, len(arm["steps"]), max(1, math.ceil(len(arm["steps"]) / 6)))
            panel.set_xticks(list(places), [arm["steps"][place] for place in places])
            panel.set_xlabel("steps")


def batches_of(model, tokenizer, task, batch_size, batches, seed):
    """So many batches of a task's training rows, a list of `(inputs, targets)`."""
    from tf_adapters.models.state import state_of
    from tf_adapters.text.batching import training_batches

    kind, family = get_kind(task.kind), state_of(model).family
    examples = kind.examples(task.train, tokenizer)
    padder = kind.padder(tokenizer, examples)
    found = training_batches(examples, padder, batch_size=batch_size, epochs=1, seed=seed).take(batches)
    return [(family.inputs(inputs), kind.targets(labels)) for inputs, labels in found]


def gradient_norms(model, task, batches):
    """A function that gives a dict from a group of the model's weights, as of `groups_of`, to the mean over batches of
    the L2 norm of the loss's gradient of all of them, a float."""
    import tensorflow as tf

    from tf_adapters.models.transformers.heads import outputs_of

    groups, loss = groups_of(model), get_kind(task.kind).losses()["loss"]
    variables = [variable for group in groups.values() for variable in group]

    @tf.function(reduce_retracing=True)
    def norms(inputs, targets):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = tf.reduce_mean(loss(targets, outputs_of(model(inputs, training=False))))
        gradients, found = iter(tape.gradient(value, variables)), {}
        for name, group in groups.items():
            parts = [part for part in [next(gradients) for _ in group] if part is not None]
            parts = [tf.cast(tf.convert_to_tensor(part), tf.float32) for part in parts]
            found[name] = tf.linalg.global_norm(parts or [tf.zeros([])])
        return found

    def mean():
        found = [norms(*batch) for batch in batches]
        return {name: float(sum(of_batch[name] for of_batch in found) / len(found)) for name in groups}

    return mean


def groups_of(model):
    """The weights of a model by where they stand: dict from a group's name to its variables, none twice."""
    from tf_adapters.models.state import state_of

    state = state_of(model)
    taken, groups = set(), {}

    def take(name, variables):
        chosen = [variable for variable in variables if id(variable) not in taken and variable.dtype.is_floating]
        taken.update(map(id, chosen))
        if chosen:
            groups[name] = chosen

    main, adapters, head = state.family.main_layer(model), [], state.head_variables(model)
    for adapter in state.adapters.values():
        adapters += [variable for layer in adapter.layers.values() for variable in layer.weights]
    # Adapters and head first, which blocks and the model would count as theirs.
    take("adapters", adapters)
    take("head", head)
    for number, block in enumerate(state.family.blocks(model)):
        take(f"block {number}", block.weights)
    pooler = getattr(main, "pooler", None)
    take("pooler", () if pooler is None else pooler.weights)
    take("embeddings", main.weights)
    order = ["embeddings", *(name for name in groups if name.startswith("block ")), "pooler", "adapters", "head"]
    return {name: groups[name] for name in order if name in groups}


@dataclasses.dataclass(frozen=True)
class Similarity(OfTrained):
    """Representational similarity (RSA) of each block's outputs before and after training.

    The same tokens, drawn from the reported rows without special ones, go through both models. The cosines of all pairs
    of them are a matrix for each block, and the similarity is the Pearson correlation of the two matrices' upper
    triangles. Block 0 stands for the embeddings.
    """

    name = "similarity"
    figures = "He et al. 2021, figures 2, 7 and 8"
    paper = "he-2021"

    others: Tuple[str, ...] = option(
        (), "Tasks of other languages, whose rows the models are looked at with too.", of=str
    )
    tokens: int = option(5000, "Tokens that are drawn.", smoke=40, range=Whole(3, 20_000))

    def look_into(self, lab, directory, experiment, reported, identity):
        from tf_adapters._keras import keras
        from tf_adapters.models.transformers.loading import load_backbone
        from tf_adapters.saving.directory import load_trained
        from tf_adapters.tasks.registry import load_split
        from tf_adapters.text.tokenizer import load_tokenizer

        keras.backend.clear_session()
        looked_at = {identity["task"]: reported}
        looked_at.update({name: load_split(name, "test", data_dir=self.data_dir).rows for name in self.others})
        plain = load_backbone(self.model)
        tokenizer = load_tokenizer(plain, max_length=self.max_length or experiment.recipe.max_length)
        batch_size = experiment.settings.batch_size
        chosen = {name: draw_tokens(tokenizer, rows, self.tokens, name) for name, rows in looked_at.items()}
        before = {name: states_of_tokens(plain, tokenizer, tokens, batch_size) for name, tokens in chosen.items()}
        del plain
        model, _ = load_trained(directory)
        found = {name: [] for name in looked_at}
        with lab.observer.counting("comparing", sum(map(len, before.values())), "blocks") as advance:
            for name, tokens in chosen.items():
                after = states_of_tokens(model, tokenizer, tokens, batch_size)
                for one, other in zip(before[name], after):
                    found[name].append(similarity(one, other))
                    advance(1)
        return {"similarity": found.pop(identity["task"]), "others": found, "tokens": self.tokens}

    def summarise(self, values):
        found = {}
        for task, arms in self.looks(values).items():
            for arm, of_seeds in arms.items():
                for value in of_seeds:
                    on = {f"{task} on {name}": blocks for name, blocks in value.get("others", {}).items()}
                    for title, blocks in {task: value["similarity"], **on}.items():
                        found.setdefault(title, {}).setdefault(arm, {})[value["seed"]] = blocks
        return {
            "tasks": {
                title: {
                    arm: {
                        "title": self.arms()[arm].title,
                        "blocks": [spread(list(block), [*seeds]) for block in zip(*seeds.values())],
                    }
                    for arm, seeds in arms.items()
                }
                for title, arms in found.items()
            }
        }

    def table(self, summary):
        arms = [(task, arm) for task, of_task in summary["tasks"].items() for arm in of_task.values()]
        depth = max((len(arm["blocks"]) for _, arm in arms), default=0)
        rows = [
            [task, arm["title"], *(f"{block['mean']:.3f}" for block in arm["blocks"]), str(arm["blocks"][0]["n"])]
            for task, arm in arms
        ]
        return ["task", "arm", *(f"block {block}" for block in range(depth)), "seeds"], rows

    def draw(self, summary, figure):
        axes = "block, 0 for the embeddings", "similarity to the pretrained encoder"
        for panel, arms in by_task(figure, summary["tasks"], *axes):
            for number, arm in enumerate(arms.values()):
                means, deviations = ([block[name] or 0.0 for block in arm["blocks"]] for name in ("mean", "sd"))
                panel.errorbar(range(len(means)), means, yerr=deviations, capsize=2, label=arm["title"], **look(number))
            panel.set_ylim(top=1.02)


def draw_tokens(tokenizer, rows, count, task):
    """So many tokens of some rows, drawn by a fixed seed, none of them special: what `Tokenizer.encode` gives of the
    texts, and the rows and places of the tokens that are drawn. InputError if the rows have fewer."""
    texts = encoded(tokenizer, rows.plain())
    ids = texts["input_ids"]
    flat, row = ids.flat_values.numpy(), ids.value_rowids().numpy()
    place = np.arange(len(flat)) - ids.row_starts().numpy()[row]
    usable = np.flatnonzero(~np.isin(flat, [tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id]))
    if len(usable) < count:
        raise InputError(
            f"{{tokens}}: the reported rows of {task} have {len(usable):,} beside special ones: give no more.",
            tokens=count,
        )
    # RandomState's stream is frozen by NumPy.
    drawn = np.sort(np.random.RandomState(0).permutation(usable)[:count])
    return texts, row[drawn], place[drawn]


def states_of_tokens(model, tokenizer, chosen, batch_size):
    """What the embeddings and each block compute of some tokens, as `draw_tokens` gives them: a list of float32 arrays,
    `(tokens, hidden)`."""
    from tf_adapters.text.batching import sorted_batches

    states, (texts, rows, places), found = block_states(model), chosen, None
    for positions, inputs in sorted_batches(texts, batch_size=batch_size, tokenizer=tokenizer):
        in_batch = np.full(texts["input_ids"].nrows(), -1)
        in_batch[positions] = np.arange(len(positions))
        drawn = np.flatnonzero(in_batch[rows] >= 0)
        if not len(drawn):
            continue
        blocks = states(inputs)
        if found is None:
            found = [np.empty((len(rows), block.shape[-1]), np.float32) for block in blocks]
        for array, block in zip(found, blocks):
            array[drawn] = block.numpy()[in_batch[rows[drawn]], places[drawn]]
    return found


def similarity(one, other):
    """Pearson correlation of the upper triangles of two matrices of cosines, a float.

    Args:
        one, other: arrays `(tokens, hidden)` of the same tokens.

    Reference: He et al. 2021, section 2.2; Laakso & Cottrell 2000.
    """

    def cosines(rows):
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return (rows @ rows.T)[np.triu_indices(len(rows), 1)]

    a, b = cosines(np.asarray(one, np.float32)), cosines(np.asarray(other, np.float32))
    # Means in float64: of millions of pairs, float32 would lose digits.
    a, b = a - a.mean(dtype=np.float64), b - b.mean(dtype=np.float64)
    return float(np.dot(a, b) / np.sqrt(np.dot(a, a) * np.dot(b, b)))
