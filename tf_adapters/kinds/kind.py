"""The interface between the training loop, the commands and the kinds of tasks; and logits of any number of texts."""

import collections
import concurrent.futures
import copy
import itertools
import json
import shlex

import numpy as np
import tensorflow as tf

from tf_adapters._installation import usable_cores
from tf_adapters.errors import InputError
from tf_adapters.models.state import state_of
from tf_adapters.tasks.analysis import bootstrap_interval
from tf_adapters.tasks.labels import check_label_names
from tf_adapters.tasks.metrics import METRICS
from tf_adapters.tasks.own_files import get_reader
from tf_adapters.text.batching import default_lengths, padding_multiple, sorted_batches

NOT_FINITE = "the logits are not finite"
NOT_UTF8 = "the text is not UTF-8"
# Heads of whose outputs each means a label, or is the number.
NAMED = ("classification", "token-classification")
#: Of each of `Kind.served_texts`.
EXAMPLES = {
    "text": "a quiet , moving film",
    "text_pair": "it moves",
    "question": "Who sang?",
    "context": "Ada sang, Bob danced.",
    "choices": ["It moves.", "It rests."],
}
# Batches of short texts, of 32, that save by less padding what XLA takes to compile the shapes of multiples of 4.
_REPAID = 256
#: Batches that a `Scorer` computes at once. On a CPU one leaves cores idle: between its operations, and in small ones.
AT_ONCE = min(4, usable_cores())
# What a record has of the row itself.
_OF_THE_ROW = ("id", "words")


class Scorer:
    """Computes logits in batches sorted by length, traced once for all calls.

    Args:
        model: a model with a head.
        tokenizer: `Tokenizer`.
        batch_size: int.
        lengths: tuple of padded lengths for XLA, or None to pad as `padding_multiple` says.
        jit_compile: bool, compile with XLA; then `lengths` should be given.
    """

    def __init__(self, model, tokenizer, *, batch_size=32, lengths=None, jit_compile=False):
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        door = state_of(model).door
        always = door.compiles_shapes()
        self.lengths = default_lengths(tokenizer.max_length) if always and lengths is None else lengths
        # Threads do not know another's strategy; JAX and PyTorch have threads of their own.
        alone = door.backend() != "tensorflow" or tf.distribute.has_strategy() or tf.config.list_physical_devices("GPU")
        self.at_once, self._computed = 1 if alone else AT_ONCE, 0
        # What is compiled for each shape should meet few.
        self.fill = jit_compile or always or state_of(model).fast
        self.forward = door.forward(model, jit_compile=jit_compile)

    def by(self, forward):
        """A scorer of the same batches whose logits another function computes, called in their order from one thread.

        Args:
            forward: function of a dict of int32 tensors `(batch, length)` that returns logits, as the model does.
        """
        scorer = copy.copy(self)
        scorer.forward, scorer.at_once = forward, 1
        return scorer

    def batches(self, encoded):
        """Logits of encoded examples, a batch at a time.

        Args:
            encoded: dict, as `Tokenizer.encode` returns it.

        Returns: iterator of `(positions, logits)`: int64 array of where the batch's examples
            stand in `encoded`, and their float32 logits, `(examples, labels)`,
            `(examples, length, labels)` for tokens, or `(examples, length, 2)`, start and
            end, for spans; each example comes once, padding examples never.
        """
        first = not self._computed
        batches = self.inputs(encoded)
        # What is traced and optimised now is so once, in this thread.
        for positions, inputs in itertools.islice(batches, 1 if first else 0):
            yield positions, self.forward(inputs)[: len(positions)]
        for positions, logits in _computed(batches, self.forward, self.at_once):
            yield positions, logits[: len(positions)]

    def inputs(self, encoded):
        """Batches of encoded examples by length, as `sorted_batches` yields them."""
        # Nobody knows how many texts come: after as many batches as repay them, there are more shapes.
        multiple = padding_multiple(fast=state_of(self.model).fast, steps=self._computed, repaid=_REPAID)
        rows, size = int(encoded["input_ids"].nrows()), self.batch_size
        # Few rows are computed at once too, as smaller batches.
        if 2 * rows <= size * self.at_once:
            size = -(-size // self.at_once)
        self._computed += -(-rows // size)
        return sorted_batches(
            encoded,
            batch_size=size,
            tokenizer=self.tokenizer,
            lengths=self.lengths,
            multiple_of=multiple,
            fill=self.fill,
        )

    def logits(self, text, text_pair=None, *, progress=None):
        """Logits of a chunk of texts.

        Args:
            text, text_pair: string tensors `(rows,)`; text_pair may be None.
            progress: function called with the number of rows done after each batch, or None.

        Returns: float32 NumPy array, `(rows, labels)`, in the order of the rows.
        """
        encoded = self.tokenizer.encode(text, text_pair)
        result, rows = None, int(text.shape[0])
        for positions, logits in self.batches(encoded):
            if result is None:
                result = np.empty((rows, *logits.shape[1:]), np.float32)
            result[positions] = logits
            if progress is not None:
                progress(len(positions))
        return result


def _computed(batches, compute, at_once):
    """Pairs of positions and what `compute` returns for inputs, in the order of such batches, several at a time."""
    if at_once == 1:
        yield from ((positions, compute(inputs)) for positions, inputs in batches)
        return
    waiting = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        try:
            for positions, inputs in batches:
                waiting.append((positions, pool.submit(compute, inputs)))
                if len(waiting) > at_once:
                    positions, computed = waiting.popleft()
                    yield positions, computed.result()
            for positions, computed in waiting:
                yield positions, computed.result()
        finally:
            for _, computed in waiting:
                computed.cancel()


class Kind:
    """A kind of task: which head, which examples, which loss, and what logits mean.

    *Rows* are what a task holds and what is predicted, one each: a text, a sentence of
    words, a question. *Examples* are what the encoder reads: one for each row, or several
    where a row is longer than the encoder's window.

    Attributes:
        name: str, as `Task.kind` and `--kind`.
        head: str, as in `load_backbone`.
        choices: tuple of names of those fields of `TrainingSettings` that only some kinds have, and this one has.
        without: tuple of names of fields of `TrainingSettings` that this kind cannot have.
        max_length: int, the usual `Tokenizer.max_length` where a recipe's is not for it, or None.
    """

    name = None
    head = "classification"
    choices, without = (), ()
    max_length = None

    def num_labels(self, labels):
        """Outputs of the head for these label names."""
        return max(1, len(labels))

    def check_model(self, model, what, labels=None):
        """Raise InputError unless a model has this kind's head, with an output for each label in the same order.

        Args:
            what: str, the subject of the message, such as `"The task"`.
            labels: label names in index order, none where the kind has none; None if they are not known.
        """
        state = state_of(model)
        head = state.family.head_of(model)
        if head != self.head:
            raise InputError(
                f"{what} needs a model with the head {self.head!r}, and this {type(model).__name__} has {head!r}: load "
                f"the encoder with head={self.head!r}, or give what the model was trained for."
            )
        if self.head in NAMED and (labels is not None or not get_reader(self.name).named):
            check_label_names(
                what, labels or self.num_labels(()), "the model",
                state.label_names(model, state.owner) or state.door.config_of(model).num_labels,
                "give load_backbone (or add_adapters) these labels in the task's order, or num_labels=1 for regression",
            )  # fmt: skip

    def losses(self, settings=None, examples=None, ops=None):
        """Arguments for `compile`: `loss`, of `targets(...)` and the model's outputs, and `metrics`.

        `settings` are `TrainingSettings`, or None where none of the kind's `choices` is given; `examples` are those
        that train, for what their labels decide. `ops` is the module of `layers.ops` whose Keras trains; None for the
        first door's.

        The metrics are the loss's means over an epoch: Keras' own running mean of it
        cannot be restored in the middle of one.
        """
        raise NotImplementedError

    def loss_weight(self, targets):
        """How many terms the loss of a batch is a mean over, a float32 scalar: rows, unless the kind says otherwise."""
        return tf.cast(tf.shape(tf.nest.flatten(targets)[0])[0], tf.float32)

    def settings(self):
        """What else decides a run of this kind, a dict for JSON."""
        return {}

    def trained(self, model, *, jit_compile):
        """What Keras trains: the model, or one around it."""
        return model

    def scorer(self, model, tokenizer, **options):
        """What `predict` takes; `options` are those of `Scorer`."""
        return Scorer(model, tokenizer, **options)

    def running_loss(self, logs):
        """The loss's mean over the epoch so far, from the logs that Keras gives a callback."""
        return logs["loss_mean"]

    def about(self, rows):
        """What `predict` and `evaluate` must know of the training rows; a dict for JSON."""
        return {}

    def targets(self, labels):
        """What the loss takes, from a batch's labels as `training_batches` gives them."""
        return labels

    def batch(self, inputs, labels, seed, tokenizer, lengths=None):
        """A batch of `training_batches` as the model and the loss take it; `seed`, int64 `(2,)`, is of this step
        alone, and `lengths` are those of `training_batches` for `tokenizer`'s own rows."""
        return inputs, self.targets(labels)

    def examples(self, rows, tokenizer):
        """Training examples of rows, for `training_batches`."""
        return rows

    def padder(self, tokenizer, examples):
        """The `Tokenizer` that pads `examples` to batches, which `batch` takes; its `max_length` holds the longest."""
        return tokenizer

    def predict(self, scorer, rows, *, progress=None):
        """What the model says of each row, in the rows' order.

        Args:
            scorer: `Scorer`.
            rows: the kind's rows, with labels or without.
            progress: function called with the number of rows done after each batch, or None.

        Returns: a sequence of one output a row, as `score`, `records` and `describe` take it.
        """
        raise NotImplementedError

    def unbounded(self, scorer, rows):
        """What `predict` returns, before it is put into the rows' range of values: what `loss` is of."""
        return self.predict(scorer, rows)

    def bounded(self, rows, outputs):
        """What `unbounded` returned, in the rows' range of values."""
        return outputs

    def score(self, metric, rows, outputs):
        """Numbers of a metric by name, from labelled rows and what `predict` returned."""
        return METRICS[metric](rows.labels, outputs)

    def loss(self, rows, outputs, ops=None):
        """The mean loss of labelled rows, a float, from what `unbounded` returned; None where that has no logits.
        `ops` as of `losses`."""
        return None

    def classes(self, rows, outputs):
        """True and predicted classes for `analysis.class_report`, int arrays; None where there are no classes."""
        return None

    def constant(self, rows, labels):
        """Outputs of the best guess that looks at no row (the most frequent class), or None."""
        return None

    def words_alone(self, task, rows):
        """What the words of labelled rows say without an encoder: `(what is tried, outputs)`, or None."""
        return None

    def thresholds(self, metric, rows, outputs):
        """What the logits of labelled rows must exceed for the best decisions, float32 `(labels,)`, 0 where 0 is best;
        None where decisions have no thresholds. Arguments as of `score`."""
        return None

    def interval(self, metric, rows, outputs):
        """A 95 % bootstrap interval over rows of a metric's main number, or None where it is not defined."""
        primary = METRICS[metric].primary
        if not isinstance(outputs, np.ndarray):
            return None

        def score(index):
            return METRICS[metric](rows.labels[index], outputs[index])[primary]

        return bootstrap_interval(score, len(rows), resamples=1000 if len(rows) <= 20_000 else 100)

    def served_texts(self, task):
        """Names of the string inputs of a served model; `task` is an adapter directory's settings of it."""
        raise NotImplementedError

    def served_spec(self, name):
        """The `TensorSpec` of one of `served_texts`; its first axis are the rows."""
        return tf.TensorSpec([None], tf.string, name=name)

    def serve(self, texts, tokenizer, forward, names, task):
        """What a served model answers to texts, in a graph.

        Args:
            texts: list of string tensors, as `served_texts` names them and `served_spec` describes them.
            tokenizer: `Tokenizer`.
            forward: function of ragged encoded examples, as of `Tokenizer.encode`, that returns their float32 logits as
                `Scorer.batches` describes them.
            names: string tensor `(outputs,)` of the labels, or None.
            task: as in `served_texts`.

        Returns: dict of tensors whose first axis are the rows; `finite`, bool, says whether all logits of a row are.
        """
        raise NotImplementedError

    def served_tokens(self, logits, task):
        """What a served model answers to ids, in a graph: a dict of numbers made of the encoder's float32 logits."""
        return {"probabilities": tf.nn.softmax(logits), "logits": logits}

    def records(self, rows, outputs, labels):
        """One JSON object for each row, for `tf-adapters predict`; a list of dicts.

        A row whose logits are not finite has None in place of each answer, and an `error`.
        """
        finite = self.finite(outputs)
        with np.errstate(invalid="ignore"):
            records = self._records(rows, outputs, labels)
        return [
            record if fine else {**_without_answers(record), "error": NOT_FINITE}
            for record, fine in zip(records, finite.tolist())
        ]

    def finite(self, outputs):
        """Whether all logits of a row are finite, a bool array `(rows,)`, from what `predict` returned."""
        return np.isfinite(outputs).all(-1)

    def _records(self, rows, outputs, labels):
        raise NotImplementedError

    def example_command(self, directory, rows):
        """A `tf-adapters predict` command to try on a directory (quoted for the shell)."""
        example = self.example(rows)
        if list(example) == ["text"]:
            return f"echo {shlex.quote(example['text'])} | tf-adapters predict {directory} --input -"
        pair = " --text-pair-column text_pair" if "text_pair" in example else ""
        line = shlex.quote(json.dumps(example, ensure_ascii=False))
        return f"echo {line} | tf-adapters predict {directory} --input - --format jsonl{pair}"

    def example(self, rows):
        """What such a command reads, a dict by `served_texts`."""
        return {name: EXAMPLES[name] for name in self.served_texts(self.about(rows))}

    def text(self, rows, index):
        """What was read of one row, a str: a text, both texts of a pair, a sentence's words, a question."""
        raise NotImplementedError

    def describe(self, rows, index, output, labels):
        """One row and its prediction in words, a pair of str: `("positive (0.98)", "a quiet film")`."""
        raise NotImplementedError

    def truth(self, rows, index, labels):
        """The label of a labelled row in words, as `describe` says predictions."""
        raise NotImplementedError


def _without_answers(record):
    return {
        name: value if name in _OF_THE_ROW else dict.fromkeys(value) if isinstance(value, dict) else None
        for name, value in record.items()
    }
