"""Batches of encoded rows: stateless and resumable for training, sorted by length for prediction."""

import dataclasses
import functools
from typing import Optional, Union

import numpy as np
import tensorflow as tf

from tf_adapters._installation import usable_cores
from tf_adapters.errors import InputError
from tf_adapters.ranges import is_int
from tf_adapters.text.tokenizer import check_positive

_MOST_BATCHES_IN_A_WINDOW = 50
# Windows whose texts are cut at the same time, and batches that wait.
_CUT_AT_ONCE, _BATCHES_AHEAD = min(8, usable_cores()), 8


def steps_per_epoch(rows_count, *, batch_size, drop_remainder=False):
    """Return how many batches one epoch of `rows_count` rows has, an int.

    Raises: InputError, if the epoch would have none.
    """
    check_positive(rows_count, "rows_count")
    check_positive(batch_size, "batch_size")
    steps = rows_count // batch_size if drop_remainder else -(-rows_count // batch_size)
    if steps == 0:
        raise InputError(
            f"{{batch_size}} exceeds the {rows_count} rows and drop_remainder drops them all: give less.",
            batch_size=batch_size,
        )
    return steps


def default_lengths(max_length):
    """Return at most six ascending lengths for XLA, an int tuple that ends with `max_length`.

    XLA compiles once for each shape, so a batch is padded to one of few.
    """
    check_positive(max_length, "max_length")
    powers = [length for length in (16, 32, 64, 128, 256) if length < max_length]
    return (*powers, max_length)


def padding_multiple(*, fast=False, steps=0, repaid=1000):
    """What to pad batches to a multiple of, an int: few tokens of padding against few shapes.

    Of short sentences, rounding up to a multiple of 8 makes most of the padding that sorted batches have. On a CPU a
    new shape costs plain blocks next to nothing, and fast ones a compilation, which many steps repay. The
    matrix units of GPUs want a multiple of 8.

    Args:
        fast: bool, whether the model's blocks are those of `models.transformers.fast`.
        steps: int, how many batches there will be.
        repaid: int, how many batches repay the shapes that multiples of 4 have more than those of 8.
    """
    if tf.config.list_physical_devices("GPU"):
        return 8
    if not fast:
        return 2
    return 4 if steps >= repaid else 8


def training_batches(
    rows,
    tokenizer,
    *,
    batch_size,
    epochs,
    seed,
    start_step=0,
    lengths=None,
    multiple_of=8,
    drop_remainder=False,
    inputs_of=None,
):
    """Return all batches of a training, from `start_step` on, as one dataset.

    Each epoch is a permutation of the rows, cut into windows of up to 50 batches. Rows of a window are sorted by
    length, so that rows of like length share a batch and padding is small, and its batches come in shuffled order. What
    remains of an epoch, fewer than `batch_size` rows, is its last batch; these are random ones, not the longest.

    A batch depends on `seed` and its step alone: no iterator state is needed to resume, and `start_step=k` yields what
    the stream from 0 yields from element k on, at the cost of one epoch's permutation and one window.

    Args:
        rows: `Rows` with labels, or `PackedExamples`.
        tokenizer: `Tokenizer`.
        batch_size: int.
        epochs: int.
        seed: int.
        start_step: int, steps done before, over all epochs.
        lengths: ascending ints of which the last is at least `tokenizer.max_length`: a batch is padded to the smallest
            that holds its longest row (`default_lengths` gives some). None: to a multiple of `multiple_of`.
        multiple_of: int.
        drop_remainder: bool, leave out the last batch of an epoch where it is not full; in each it holds other rows.
        inputs_of: function of a batch's padded tensors, as below, and its rows' numbers, int64 `(batch,)`, that returns
            what to feed in their place; or None.
    Returns: `tf.data.Dataset` of `(inputs, labels)`: a dict of the int32 tensors `input_ids`, `attention_mask` and
        `token_type_ids`, `(batch, length)`, and labels `(batch, ...)`, or `(batch, length)` with -1 where a token has
        none; with the number of steps left as its cardinality.
    Raises: InputError, for arguments that cannot be used.
    Reference: the windows are the mega-batches of `group_by_length` in HuggingFace's Trainer.
    """
    steps = _checked_steps(rows, batch_size, epochs, seed, start_step, drop_remainder)
    count, total, lengths = len(rows), steps * epochs, _checked_lengths(lengths, tokenizer)
    per_token = isinstance(rows.labels, tf.RaggedTensor)
    with tf.device("CPU:0"):
        all_labels = rows.labels if per_token else tf.constant(rows.labels)

    window_batches = min(_MOST_BATCHES_IN_A_WINDOW, max(1, count // (4 * batch_size)))
    window_rows = window_batches * batch_size
    used = steps * batch_size if drop_remainder else count
    windows = -(-used // window_rows)  # in an epoch

    def shuffle(stop, number):
        return tf.random.experimental.stateless_shuffle(
            tf.range(stop, dtype=tf.int64), seed=tf.stack([seed, number]), alg="philox"
        )

    @tf.autograph.experimental.do_not_convert
    def windows_of_epoch(epoch):
        # Even numbers shuffle rows, odd ones batches.
        permutation = shuffle(count, 2 * epoch)
        numbers = tf.data.Dataset.range(tf.where(epoch == first_epoch, first_window, 0), windows)
        return numbers.map(
            functools.partial(encoded_window, epoch, permutation), num_parallel_calls=_CUT_AT_ONCE, deterministic=True
        )

    @tf.autograph.experimental.do_not_convert
    def encoded_window(epoch, permutation, window):
        start, stop = window * window_rows, tf.minimum((window + 1) * window_rows, used)
        index = permutation[start:stop]
        encoded = rows.encode(tokenizer, index)

        batches = tf.size(index, out_type=tf.int64) // batch_size
        full = batches * batch_size
        by_length = tf.argsort(encoded["input_ids"].row_lengths()[:full], stable=True)
        shuffled = shuffle(batches, 2 * (epoch * windows + window) + 1)
        by_length = tf.gather(tf.reshape(by_length, [-1, batch_size]), shuffled)
        remainder = tf.range(full, tf.size(index, out_type=tf.int64))
        order = tf.concat([tf.cast(tf.reshape(by_length, [-1]), tf.int64), remainder], axis=0)
        encoded = {name: tf.gather(ragged, order) for name, ragged in encoded.items()}
        index = tf.gather(index, order)
        return encoded, index, tf.gather(all_labels, index)

    @tf.autograph.experimental.do_not_convert
    def batches_of_window(encoded, index, window_labels):
        window_size = encoded["input_ids"].nrows(out_type=tf.int64)
        starts = tf.data.Dataset.range(0, window_size, batch_size)
        return starts.map(functools.partial(padded_batch, encoded, index, window_labels))

    @tf.autograph.experimental.do_not_convert
    def padded_batch(encoded, index, window_labels, start):
        batch = {name: ragged[start : start + batch_size] for name, ragged in encoded.items()}
        inputs, batch_labels = pad_to(batch, tokenizer, lengths, multiple_of), window_labels[start : start + batch_size]
        if per_token:
            batch_labels = batch_labels.to_tensor(-1, shape=tf.shape(inputs["input_ids"]))
        if inputs_of is not None:
            inputs = inputs_of(inputs, index[start : start + batch_size])
        if drop_remainder:
            for tensor in (*inputs.values(), batch_labels):
                tensor.set_shape([batch_size, *tensor.shape[1:]])
        return inputs, batch_labels

    seed = tf.constant(seed, tf.int64)
    first_epoch, step = divmod(int(start_step), steps)
    first_window, skipped = divmod(step, window_batches)
    first_window = tf.constant(first_window, tf.int64)
    dataset = tf.data.Dataset.range(first_epoch, epochs).flat_map(windows_of_epoch)
    dataset = dataset.flat_map(batches_of_window).skip(skipped)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(total - int(start_step)))
    # The thread that tunes a dataset may sleep on for up to a minute after the last batch, while the end of training
    # waits for it.
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(_BATCHES_AHEAD).with_options(options)


def part_of(inputs, targets, number, parts, weigh):
    """One of the parts of a batch; one that would have no row has one, of which its share is nothing.

    Args:
        inputs, targets: tensors of the batch, or dicts of them.
        number: int64 scalar, from 0.
        parts: int, into how many the batch is cut.
        weigh: function of targets that returns what the loss is a mean over, a float32 scalar: rows, or words.

    Returns: its inputs and targets, and its share of what the batch's loss is a mean over, a float32 scalar.
    """
    rows = tf.shape(tf.nest.flatten(targets)[0], tf.int64)[0]
    start, stop = rows * number // parts, rows * (number + 1) // parts
    share = weigh(tf.nest.map_structure(lambda tensor: tensor[start:stop], targets)) / tf.maximum(weigh(targets), 1.0)
    filled = tf.maximum(stop, start + 1)
    return *tf.nest.map_structure(lambda tensor: tensor[start:filled], (inputs, targets)), share


def in_parts(batches, parts, weigh):
    """A dataset of the parts of its batches, each with a weight for each row, by which the mean of their losses is the
    batch's; arguments as of `part_of`, where each part has a row."""

    def weighted(inputs, targets, number):
        inputs, targets, share = part_of(inputs, targets, number, parts, weigh)
        rows = tf.shape(tf.nest.flatten(targets)[0])[:1]
        return inputs, targets, tf.fill(rows, share * parts)

    numbers = tf.data.Dataset.range(parts)
    return batches.flat_map(lambda inputs, targets: numbers.map(lambda number: weighted(inputs, targets, number)))


def _checked_steps(rows, batch_size, epochs, seed, start_step, drop_remainder):
    """Steps of an epoch of `training_batches`, or an InputError."""
    count = len(rows)
    if count == 0:
        raise InputError("rows holds 0 examples: training needs at least one.")
    if rows.labels is None:
        raise InputError("rows.labels is None: training needs labels; give a split that has them.")
    labels_count = int(rows.labels.nrows()) if isinstance(rows.labels, tf.RaggedTensor) else len(rows.labels)
    if labels_count != count:
        raise InputError(f"rows.labels has {labels_count} entries for {count} rows: give one label a row.")
    steps = steps_per_epoch(count, batch_size=batch_size, drop_remainder=drop_remainder)
    check_positive(epochs, "epochs")
    if not is_int(seed) or not 0 <= seed < 2**63:
        raise InputError("{seed} must be an integer from 0 to 2**63 - 1.", seed=seed)
    if not is_int(start_step) or not 0 <= start_step <= steps * epochs:
        raise InputError(
            f"{{start_step}} must be an integer from 0 to the {steps * epochs} steps.", start_step=start_step
        )
    return steps


def sorted_batches(encoded, *, batch_size, tokenizer, lengths=None, multiple_of=8, fill=False):
    """Cut one chunk of encoded rows into batches of like length, for prediction.

    Args:
        encoded: dict, as `Tokenizer.encode` returns it, in eager mode.
        batch_size: int.
        tokenizer: `Tokenizer` that encoded them.
        lengths, multiple_of: as in `training_batches`.
        fill: bool, fill the first batch up to `batch_size` with rows of padding alone, so
            that shapes stay few.
    Returns: an iterator of `(positions, inputs)`: NumPy int64 array of where the
        first `len(positions)` rows of the batch stand in `encoded`, and the dict of
        dense tensors that `WordPiece.pad` returns. Each row comes once.
    Raises: InputError, for arguments that cannot be used.
    """
    check_positive(batch_size, "batch_size")
    lengths = _checked_lengths(lengths, tokenizer)

    def batches():
        order = np.argsort(encoded["input_ids"].row_lengths().numpy(), kind="stable")
        # The batch that is not full has the shortest rows: padding to fill it up costs least there.
        for start in range(-(-len(order) % batch_size), len(order), batch_size):
            positions = order[max(start, 0) : start + batch_size]
            batch = {name: tf.gather(ragged, positions) for name, ragged in encoded.items()}
            missing = batch_size - len(positions)
            if fill and missing:
                empty = tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int32), tf.zeros([missing], tf.int64))
                batch = {name: tf.concat([ragged, empty], axis=0) for name, ragged in batch.items()}
            yield positions, pad_to(batch, tokenizer, lengths, multiple_of)

    return batches()


def pad_to(encoded, tokenizer, lengths, multiple_of=8):
    """Pad to the smallest of `lengths` that fits; without, to the next multiple."""
    if lengths is None or len(lengths) == 1:
        return tokenizer.pad(encoded, length=lengths and lengths[0], multiple_of=multiple_of)
    longest = tf.reduce_max(encoded["input_ids"].row_lengths())
    choices = tf.constant(lengths, tf.int64)
    return tokenizer.pad(encoded, length=tf.reduce_min(tf.boolean_mask(choices, choices >= longest)))


def _checked_lengths(lengths, tokenizer):
    if lengths is None:
        return None
    lengths = tuple(lengths)
    whole = all(is_int(length) and length > 0 for length in lengths)
    if not lengths or not whole or list(lengths) != sorted(set(lengths)):
        raise InputError(
            f"{{lengths}} must be ascending positive integers, as default_lengths({tokenizer.max_length}).",
            lengths=lengths,
        )
    if lengths[-1] < tokenizer.max_length:
        raise InputError(
            f"{{lengths}} has no place for a row of the tokenizer's max_length={tokenizer.max_length}.", lengths=lengths
        )
    return lengths


@dataclasses.dataclass(frozen=True)
class PackedExamples:
    """Encoded examples without padding, one after the other; `training_batches` takes them in place of rows.

    Attributes:
        input_ids, token_type_ids: int32 RaggedTensors, `(examples, (tokens))`.
        labels: int32 RaggedTensor of the same shape, one label a token and -1 where a token
            has none; or NumPy array, `(examples, ...)`; or None.
    """

    input_ids: tf.RaggedTensor
    token_type_ids: tf.RaggedTensor
    labels: Optional[Union[np.ndarray, tf.RaggedTensor]] = None

    def __len__(self):
        return int(self.input_ids.nrows())

    def encode(self, tokenizer, index):
        """The examples at an int64 tensor of indices, a dict as of `Tokenizer.encode`; also in a graph."""
        return {"input_ids": tf.gather(self.input_ids, index), "token_type_ids": tf.gather(self.token_type_ids, index)}
