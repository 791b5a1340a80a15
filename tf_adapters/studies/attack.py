"""How easily a trained classifier is fooled: by PWWS words are replaced by synonyms, the most salient first, until it
changes its mind.

Ren et al. 2019, Generating Natural Language Adversarial Examples through Probability Weighted Word Saliency.
"""

import collections
import contextlib
import copy
import dataclasses
import functools
import re
from typing import Dict, List, Optional, Tuple

import numpy as np

from tf_adapters.errors import NAME, InputError
from tf_adapters.kinds import get_kind
from tf_adapters.paths import to_path
from tf_adapters.ranges import Whole
from tf_adapters.saving.settings import task_of
from tf_adapters.studies.comparison import option
from tf_adapters.studies.figure import by_task, line
from tf_adapters.studies.inside import OfTrained
from tf_adapters.studies.numbers import of, percent, spread
from tf_adapters.studies.transfer import Pretraining
from tf_adapters.tasks.metrics import probabilities
from tf_adapters.tasks.rows import Rows, sample_rows
from tf_adapters.tasks.words import WordRows

_TEXTS_AT_ONCE = 64
# Stands in a text for a word that the tokenizer does not know; a letter of one Slavonic manuscript.
UNKNOWN = "\ua66e"
# Words that carry grammar: a synonym of "be" or "that" makes no sentence.
FUNCTION_WORDS = frozenset(
    "a about above after again against all am an and any are as at be because been before being below between both but "
    "by can cannot could did do does doing don down during each few for from further had has have having he her here "
    "hers herself him himself his how i if in into is it its itself just may me might more most must my myself no nor "
    "not now of off on once only or other our ours ourselves out over own s same shall she should so some such t than "
    "that the their theirs them themselves then there these they this those through to too under until up us very was "
    "we were what when where which while who whom whose why will with would you your yours yourself yourselves n't 's "
    "'re 've 'll 'd 'm".split()
)
# Universal part-of-speech tags of the words that have synonyms, and WordNet's letters for them.
OPEN_CLASSES = {"NOUN": "n", "VERB": "v", "ADJ": "a", "ADV": "r"}
_PIECES = re.compile(r"\w+(?:['’-]\w+)*|\W")


@dataclasses.dataclass(frozen=True)
class Attack(OfTrained, Pretraining):
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

    def check_inputs(self):
        super().check_inputs()
        read_wordnet(self.wordnet)

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
        words, reader = [text.words for text in texts], read_wordnet(self.wordnet)
        parts = [[None] * len(of_text) for of_text in words]
        if self.tagger is not None:
            tags = tags_of(self.tagger, words)
            parts = [[OPEN_CLASSES.get(tag, "") for tag in of_text] for of_text in tags]
        found = [
            [synonyms(reader, word, part) if part != "" else [] for word, part in zip(*both)]
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
    from scipy.stats import binomtest

    tried = sum(round(value["accuracy"] * value["texts"]) for value in found)
    won = sum(round((value["accuracy"] - value["after"]) * value["texts"]) for value in found)
    return [*map(float, binomtest(won, tried).proportion_ci(method="wilson"))] if tried else [0.0, 1.0]


def tags_of(directory, sentences):
    """The tags that a trained tagger, an adapter directory, gives the words of sentences: a list of lists of str."""
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


@dataclasses.dataclass(frozen=True)
class Attacked:
    """What an attack on one text came to; `success` is None for a text that the classifier got wrong before."""

    text: str  # changed, or the text itself if it was not attacked
    success: Optional[bool]
    changed: list  # of (word, replacement), in the order in which they were replaced
    words: int  # of the text


@dataclasses.dataclass(frozen=True)
class Text:
    """A text in pieces, which are words at some `places`, and otherwise what stands between them."""

    pieces: List[str]
    places: List[int]

    @classmethod
    def of(cls, text):
        """Cut a text."""
        pieces = _PIECES.findall(text)
        return cls(pieces, [place for place, piece in enumerate(pieces) if piece[0].isalnum()])

    @property
    def words(self):
        """The words, a list of str."""
        return [self.pieces[place] for place in self.places]

    def replaced(self, replacements):
        """The text with other words: a dict from a word's number to what stands in its place."""
        pieces = list(self.pieces)
        for number, word in replacements.items():
            pieces[self.places[number]] = word
        return "".join(pieces)


def synonyms(reader, word, part=None):
    """Other words of the same meanings and part of speech, a sorted list of str of the same capitalisation.

    Args:
        reader: `WordNetCorpusReader` of the package nltk.
        word: str.
        part: "n", "v", "a" or "r"; None for the part as which WordNet's texts have the word most often.
    """
    found = _look_up(reader, word.lower(), part)
    return [name.capitalize() for name in found] if word[:1].isupper() else found


@functools.cache
def _look_up(reader, word, part):
    if word in FUNCTION_WORDS or not word.isalpha():
        return []
    part = part or _usual_part(reader, word)
    if part is None:
        return []
    lemmas = [lemma for synset in reader.synsets(word, pos=part) for lemma in synset.lemmas()]
    names = {lemma.name().replace("_", " ").lower() for lemma in lemmas} - {word, reader.morphy(word, part)}
    return sorted(name for name in names if all(one.replace("-", "").isalpha() for one in name.split()))


def _usual_part(reader, word):
    counts = collections.Counter()
    for part in OPEN_CLASSES.values():
        base = reader.morphy(word, part)
        for synset in reader.synsets(word, pos=part) if base else ():
            # Of parts that no counted text has, the one of most meanings.
            own = [lemma.count() for lemma in synset.lemmas() if lemma.name().lower() == base]
            counts[part] += sum(own) + 1e-3
    return counts.most_common(1)[0][0] if counts else None


@functools.cache
def read_wordnet(folder=None):
    """nltk's reader of WordNet, of a folder or of nltk's own places; InputError if it is not there."""
    import nltk
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    if folder is None:
        for place in ("corpora/wordnet", "corpora/wordnet.zip/wordnet/"):
            with contextlib.suppress(LookupError):
                root = nltk.data.find(place)
                break
        else:
            how = "run `python -m nltk.downloader wordnet`, or give a folder with its files by {wordnet}"
            raise InputError(f"WordNet is missing: {how}.", wordnet=NAME)
    else:
        root = to_path(folder)
        if not (root / "data.noun").is_file():
            raise InputError(
                "{wordnet} has no file data.noun: give the folder of WordNet's files.", wordnet=str(folder)
            )
        # nltk opens nothing elsewhere.
        if str(root.resolve()) not in nltk.data.path:
            nltk.data.path.append(str(root.resolve()))
        root = nltk.data.FileSystemPathPointer(str(root.resolve()))

    class EnglishAlone(WordNetCorpusReader):
        def map_wn(self, version="wordnet"):
            """None; other languages need it, of a WordNet in nltk's own places."""

    try:
        return EnglishAlone(root, None)
    except PermissionError as error:
        raise InputError(f"{{wordnet}}: {error}", wordnet=str(folder or root)) from None


def attack(texts, labels, probabilities, candidates):
    """Attack texts together, in four passes over all their variants.

    The saliency of a word is what the probability of the text's class loses when the word is unknown. Each word's
    replacement is the candidate that takes most of that probability. Words are replaced in the order of the product of
    that loss and the softmax of the saliencies, each on top of those before, until the answer changes.

    Args:
        texts: list of `Text`.
        labels: list of ints, the true classes; a text that is answered wrongly is not attacked.
        probabilities: function of a list of `(text's number, str)` that returns an array, `(variants, classes)`.
        candidates: list, for each text a list, for each of its words a list of str.

    Returns: list of `Attacked`.

    Reference: Ren et al. 2019, sections 3.2 and 3.3.
    """

    def ask(variants):
        """The probabilities of texts, dicts by keys of which a text's number is the first."""
        found = probabilities([(key[0], text) for key, text in variants.items()]) if variants else ()
        return dict(zip(variants, np.asarray(found)))

    before = [*ask({(number,): text.replaced({}) for number, text in enumerate(texts)}).values()]
    attacked = [
        number for number, label in enumerate(labels) if before[number].argmax() == label and texts[number].places
    ]
    variants = {
        (number, word, replacement): texts[number].replaced({word: UNKNOWN if replacement is None else replacement})
        for number in attacked
        for word, replacements in enumerate(candidates[number])
        for replacement in [None, *replacements]
    }
    lost = {number: {} for number in attacked}
    saliency = {number: np.zeros(len(texts[number].places)) for number in attacked}
    for (number, word, replacement), row in ask(variants).items():
        loss = before[number][labels[number]] - row[labels[number]]
        if replacement is None:
            saliency[number][word] = loss
        elif word not in lost[number] or loss > lost[number][word][0]:
            lost[number][word] = loss, replacement
    # Words as they are replaced: the loss of each times the softmax of the saliencies, the greatest first.
    orders = {}
    for number in attacked:
        weights = np.exp(saliency[number] - saliency[number].max())
        weights /= weights.sum()
        orders[number] = sorted(lost[number], key=lambda word: -lost[number][word][0] * weights[word])
    variants = {
        (number, count): texts[number].replaced({word: lost[number][word][1] for word in order[:count]})
        for number, order in orders.items()
        for count in range(1, len(order) + 1)
    }
    flipped: Dict[int, int] = {}
    for (number, count), row in ask(variants).items():
        if row.argmax() != labels[number]:
            flipped.setdefault(number, count)
    found = []
    for number, text in enumerate(texts):
        success = number in flipped if number in orders else None
        changed = {word: lost[number][word][1] for word in orders.get(number, ())[: flipped.get(number)]}
        words = [(text.words[word], replacement) for word, replacement in changed.items()]
        found.append(Attacked(text.replaced(changed), success, words, len(text.places)))
    return found


def reading_unknown(tokenizer):
    """A tokenizer that reads `UNKNOWN` as one token, its unknown one.

    "[UNK]" itself is read as text, and a byte-level vocabulary has tokens for every text, so that its unknown one is
    put where the word's stand. The tokenizer that is given stays as it is.
    """
    import tensorflow as tf

    def ids(text):
        return tokenizer.tokenize(tf.constant([text]))[0].numpy()

    # Alone, behind a space and behind a mark, whose tokens may differ; the longest first.
    spelled = {tuple(ids(before + UNKNOWN)[len(ids(before.strip())) :]) for before in ("", "a ", "(")}
    spelled = sorted(filter(None, spelled), key=len, reverse=True)

    def tokenize(text):
        found = tokenizer.tokenize(text)
        flat, rows = found.flat_values.numpy().copy(), found.value_rowids().numpy()
        stays = np.ones(len(flat), bool)
        for word in spelled:
            places = np.arange(len(flat) - len(word) + 1)
            at = [flat[places + offset] == token for offset, token in enumerate(word)]
            same = rows[places] == rows[places + len(word) - 1] if len(places) else places
            for place in np.flatnonzero(np.logical_and.reduce([*at, same])):
                if stays[place : place + len(word)].all():
                    flat[place] = tokenizer.unk_id
                    stays[place + 1 : place + len(word)] = False
        counts = np.bincount(rows[stays], minlength=int(found.nrows()))
        return tf.RaggedTensor.from_row_lengths(flat[stays], counts)

    reading = copy.copy(tokenizer)
    reading.tokenize = tokenize
    return reading


def entity_swaps(texts, tags, labels):
    """What names are swapped for: dict from a class and a type of entity to the most frequent name of that type in the
    texts of the other classes that the class does not have itself.

    `texts` are lists of words with `tags` such as `B-PER`, `I-PER` and `O`, and of the classes `labels`.

    Reference: Ren et al. 2019, section 3.2 (NE_adv).
    """
    counts = collections.defaultdict(collections.Counter)
    for words, of_words, label in zip(texts, tags, labels):
        for kind, first, last in entities_of(of_words):
            counts[label, kind][" ".join(words[first : last + 1])] += 1
    swaps = {}
    for label, kind in counts:
        others = collections.Counter()
        for (other, of_kind), names in counts.items():
            if of_kind == kind and other != label:
                others.update(names)
        left = [(name, count) for name, count in others.items() if name not in counts[label, kind]]
        if left:
            swaps[label, kind] = max(left, key=lambda pair: (pair[1], pair[0]))[0]
    return swaps


def entities_of(tags):
    """The entities of a sentence's tags: list of `(type, first word, last word)`."""
    from seqeval.metrics.sequence_labeling import get_entities

    # seqeval takes any tag for an entity's, `NOUN` too.
    return get_entities([tag if tag.startswith(("B-", "I-")) else "O" for tag in tags])
