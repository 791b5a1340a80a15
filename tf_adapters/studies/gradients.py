"""Do gradients reach every layer while training goes on?"""

import dataclasses
import math
import statistics

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.ranges import Whole
from tf_adapters.studies.comparison import OfTrained, both_arms
from tf_adapters.studies.figure import heat_map, panels
from tf_adapters.studies.numbers import of
from tf_adapters.studies.study import option


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

    every: int = option(50, "Steps between two looks.", smoke=2, range=Whole())
    batches: int = option(8, "Training batches that are looked at.", smoke=2, range=Whole())
    seeds: int = option(1, "Models of each arm, with the seeds from 0 on.", extends=True)

    columns = {
        "arm": of("title"),
        "layer": of("group"),
        "at the start": lambda row: f"{row['norms'][0]:.3g}",
        "halfway": lambda row: f"{row['norms'][len(row['norms']) // 2]:.3g}",
        "at the end": lambda row: f"{row['norms'][-1]:.3g}",
    }

    def arms(self):
        return both_arms(period=self.every, keep_periods=True)

    def check_task(self, task):
        if task.kind not in ("classification", "multi-label", "regression"):
            raise InputError(
                f"{{tasks}}: {task.name} is of the kind {task.kind}, and gradients are looked at of one answer a text.",
                tasks=list(self.tasks),
            )

    def look_into(self, lab, directory, experiment, reported, identity):
        from tf_adapters._keras import keras
        from tf_adapters.models.state import state_of
        from tf_adapters.saving.directory import load_adapter

        keras.backend.clear_session()
        seed = identity["seed"]
        model, tokenizer = experiment.build(seed)
        norms = GradientNorms(
            model, tokenizer, experiment.task_of(seed), experiment.settings.batch_size, self.batches, seed
        )
        found = {"0": norms()}
        folders = sorted(directory.glob("step-*"), key=lambda path: int(path.name[5:]))
        with lab.counting("looking at gradients", len(folders), "steps") as advance:
            for folder in folders:
                load_adapter(model, folder, name=state_of(model).active or "default")
                found[folder.name[5:]] = norms()
                advance(1)
        return {"norms": found}

    def summarise(self, values):
        return {
            "tasks": {
                task: {arm: self._mean_norms(arm, found) for arm, found in arms.items()}
                for task, arms in self.looks(values).items()
            }
        }

    def _mean_norms(self, arm, found):
        """What an arm's seeds come to, a dict."""
        seeds = [value["norms"] for value in found]
        steps = list(seeds[0])
        return {
            "title": self.arms()[arm].title,
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


class GradientNorms:
    """Norms of the loss's gradient on fixed batches, by groups of a model's weights.

    Args:
        model: a transformers TensorFlow model.
        tokenizer: `Tokenizer`.
        task: `Task` whose training rows make the batches.
        batch_size, batches, seed: ints.

    Call: dict from a group (`embeddings`, `block 0`, ..., `pooler`, `adapters`, `head`) to the mean over the batches of
        the L2 norm of the gradient of all its weights, a float.
    """

    def __init__(self, model, tokenizer, task, batch_size, batches, seed):
        import tensorflow as tf

        from tf_adapters.kinds import get_kind
        from tf_adapters.models.state import state_of
        from tf_adapters.models.transformers.heads import outputs_of
        from tf_adapters.text.batching import training_batches

        kind, family = get_kind(task.kind), state_of(model).family
        examples = kind.examples(task.train, tokenizer)
        found = training_batches(
            examples, kind.padder(tokenizer, examples), batch_size=batch_size, epochs=1, seed=seed
        ).take(batches)
        self.batches = [(family.inputs(inputs), kind.targets(labels)) for inputs, labels in found]
        self.groups = groups_of(model)
        variables = [variable for group in self.groups.values() for variable in group]
        loss = kind.losses()["loss"]

        @tf.function(reduce_retracing=True)
        def norms(inputs, targets):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(variables)
                value = tf.reduce_mean(loss(targets, outputs_of(model(inputs, training=False))))
            gradients = iter(tape.gradient(value, variables))
            squares = {}
            for name, group in self.groups.items():
                parts = [next(gradients) for _ in group]
                known = [tf.cast(tf.convert_to_tensor(part), tf.float32) for part in parts if part is not None]
                squares[name] = tf.add_n([tf.reduce_sum(tf.square(part)) for part in known] or [tf.zeros([])])
            return {name: tf.sqrt(square) for name, square in squares.items()}

        self._norms = norms

    def __call__(self):
        found = [self._norms(*batch) for batch in self.batches]
        return {name: float(sum(norms[name] for norms in found) / len(found)) for name in self.groups}


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
