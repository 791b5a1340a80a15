"""How far training moves what the blocks compute."""

import dataclasses
from typing import Tuple

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.ranges import Whole
from tf_adapters.studies.baselines import block_states, encoded
from tf_adapters.studies.comparison import both_arms, option
from tf_adapters.studies.figure import by_task, look
from tf_adapters.studies.inside import OfTrained
from tf_adapters.studies.numbers import spread


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

    def arms(self):
        return both_arms()

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
