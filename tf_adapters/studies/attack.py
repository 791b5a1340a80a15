"""How easily a trained classifier is fooled by synonyms."""

import dataclasses
from typing import Optional, Tuple

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.ranges import Whole
from tf_adapters.saving.settings import task_of
from tf_adapters.studies.comparison import option
from tf_adapters.studies.figure import by_task, line
from tf_adapters.studies.inside import OfTrained
from tf_adapters.studies.numbers import of, percent, spread
from tf_adapters.studies.pretraining import Pretraining
from tf_adapters.studies.pwws import (
    OPEN_CLASSES,
    Text,
    WordNet,
    attack,
    entities_of,
    entity_swaps,
    read_wordnet,
    reading_unknown,
)
from tf_adapters.tasks.metrics import probabilities
from tf_adapters.tasks.rows import Rows, sample_rows
from tf_adapters.tasks.words import WordRows

_TEXTS_AT_ONCE = 64


@dataclasses.dataclass(frozen=True)
class Attack(Pretraining, OfTrained):
    """PWWS: how often synonyms from WordNet turn a right answer into a wrong one, with adapters and full fine-tuning.

    The success rate is the share of the texts answered rightly whose answer turns. With `--checkpoints` models after
    task-adaptive pretraining are attacked too. Without `--tagger` a word's part of speech is the one as which it is
    most frequent; with `--entities` names are swapped for the most frequent one of the other classes.
    """

    name = "attack"
    figures = "Han et al. 2021, figure 5; Ren et al. 2019"
    packages = ("nltk",)
    kinds = ("classification",)

    texts: int = option(500, "Reported texts that are attacked, drawn by the seed 0.", smoke=6, range=Whole())
    wordnet: Optional[str] = option(
        None,
        "Folder with WordNet's files (`data.noun`, ...). Default: where `python -m nltk.downloader wordnet` put them.",
    )
    tagger: Optional[str] = option(
        None, "Adapter directory that tags words with universal parts of speech (`ud/en_ewt`)."
    )
    entities: Optional[str] = option(None, "Adapter directory that tags names (`B-PER`, `I-PER`, ...).")
    checkpoints: Tuple[int, ...] = option(
        (), "Steps of pretraining after which training begins.", of=int, range=Whole()
    )
    keep: str = option("best", "Which epoch's model is attacked: only the `best`.")
    seeds: int = option(1, "Models of each arm, with the seeds from 0 on.", extends=True)

    columns = {
        "arm": of("title"),
        "accuracy": of("accuracy", of("mean", percent)),
        "success rate": of("success", of("mean", percent)),
        "95 %": of("interval", lambda bounds: " to ".join(map(percent, bounds))),
        "accuracy after": of("after", of("mean", percent)),
        "words replaced": of("replaced", of("mean", percent)),
        "texts": of("texts", "{:,}".format),
        "seeds": of("success", of("n")),
    }

    def check(self):
        if self.checkpoints:
            super().check()
        else:
            OfTrained.check(self)

    def measure(self, lab):
        read_wordnet(self.wordnet)  # which says what is missing before anything trains
        super().measure(lab)

    def look_into(self, lab, directory, experiment, reported, identity):
        import tensorflow as tf

        from tf_adapters.pipeline import load_pipeline

        task = experiment.task_of(identity["seed"])
        kind = get_kind(task.kind)
        rows = sample_rows(reported, count=self.texts, seed=0)
        strings = [text.decode() for text in rows.text.numpy()]
        texts, labels = [Text.of(text) for text in strings], rows.labels.tolist()
        candidates = self._candidates(texts, labels, task)
        scorer, _ = load_pipeline(directory, batch_size=experiment.settings.batch_size, fast=experiment.fast or None)
        scorer.tokenizer = reading_unknown(scorer.tokenizer)

        def answers(variants):
            text = tf.constant([text for _, text in variants])
            pair = None if rows.text_pair is None else tf.gather(rows.text_pair, [number for number, _ in variants])
            return probabilities(kind.predict(scorer, Rows(text, pair)), kind=kind.name)

        found = []
        with lab.observer.counting("attacking", len(texts), "texts") as advance:
            for start in range(0, len(texts), _TEXTS_AT_ONCE):
                part = slice(start, start + _TEXTS_AT_ONCE)

                def of_part(variants, start=start):
                    return answers([(start + number, text) for number, text in variants])

                found += attack(texts[part], labels[part], of_part, candidates[part])
                advance(len(texts[part]))
        tried = [one for one in found if one.success is not None]
        won = [one for one in tried if one.success]
        examples = [{"before": strings[place], "after": one.text} for place, one in enumerate(found) if one.success]
        return {
            "accuracy": len(tried) / len(found),
            "success": len(won) / len(tried) if tried else None,
            "after": (len(tried) - len(won)) / len(found),
            "replaced": float(np.mean([len(one.changed) / one.words for one in won])) if won else None,
            "texts": len(found),
            "examples": examples[:5],
        }

    def _candidates(self, texts, labels, task):
        """For each text and each of its words what may stand in its place."""
        words, thesaurus = [text.words for text in texts], WordNet(read_wordnet(self.wordnet))
        parts = [[None] * len(of_text) for of_text in words]
        if self.tagger is not None:
            tags = tags_of(self.tagger, words)
            parts = [[OPEN_CLASSES.get(tag, "") for tag in of_text] for of_text in tags]
        found = [
            [thesaurus.synonyms(word, part) if part != "" else [] for word, part in zip(*both)]
            for both in zip(words, parts)
        ]
        if self.entities is not None:
            trained = [Text.of(text.decode()).words for text in task.train.text.numpy()]
            swaps = entity_swaps(trained, tags_of(self.entities, trained), task.train.labels.tolist())
            for of_text, tags, label in zip(found, tags_of(self.entities, words), labels):
                for kind, first, last in entities_of(tags):
                    # A name of several words goes as one: the first gives way to all of the other name.
                    of_text[first] = [swaps[label, kind]] if (label, kind) in swaps and first == last else []
        return found

    def summarise(self, values):
        return OfTrained.summarise(self, values)

    def come_to(self, arm, found):
        numbers = ("success", "accuracy", "after", "replaced")
        return {
            "steps": int(arm.partition(", ")[2] or 0),
            **{name: spread([value[name] for value in found if value[name] is not None]) for name in numbers},
            "interval": wilson(found),
            "texts": found[0]["texts"],
            "examples": found[0]["examples"],
        }

    def draw(self, summary, figure):
        for panel, arms in by_task(figure, summary["tasks"], "steps of pretraining", "attacks that succeed, %"):
            for number, name in enumerate(("adapters", "full")):
                rows = [
                    {"title": arm["title"], "steps": arm["steps"], **arm["success"]}
                    for key, arm in arms.items() if key.partition(",")[0] == name
                ]  # fmt: skip
                line(panel, rows, "steps", number)
            panel.set_ylim(0, 100)


def wilson(found):
    """The 95 % interval of a success rate over all texts that were attacked, by Wilson's score."""
    tried = sum(round(value["accuracy"] * value["texts"]) for value in found)
    if not tried:
        return [0.0, 1.0]
    won = sum(round((value["accuracy"] - value["after"]) * value["texts"]) for value in found)
    z, share = 1.959964, won / tried
    middle = (share + z**2 / (2 * tried)) / (1 + z**2 / tried)
    reach = z / (1 + z**2 / tried) * (share * (1 - share) / tried + z**2 / (4 * tried**2)) ** 0.5
    return [max(0.0, middle - reach), min(1.0, middle + reach)]


def tags_of(directory, sentences):
    """The tags that a trained tagger gives words.

    Args:
        directory: path of an adapter directory of the kind "token-classification".
        sentences: list of lists of words.

    Returns: list of lists of str.
    """
    import tensorflow as tf

    from tf_adapters.pipeline import load_pipeline

    scorer, settings = load_pipeline(directory)
    kind, labels = task_of(settings)
    if kind != "token-classification":
        raise InputError(f"{directory} was trained for {kind}, and words are to be tagged: give a tagger's directory.")
    rows = WordRows(tf.ragged.constant(sentences, dtype=tf.string, ragged_rank=1))
    outputs = get_kind(kind).predict(scorer, rows)
    tags = [labels[index] for index in outputs.flat.argmax(-1)]
    splits = rows.words.row_splits.numpy()
    return [tags[first:last] for first, last in zip(splits, splits[1:])]
