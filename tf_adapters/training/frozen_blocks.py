"""The outputs of the frozen lower blocks, computed once and read in every epoch."""

import contextlib
import errno
import pathlib

import numpy as np
import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters.errors import NAME, InputError
from tf_adapters.models.state import state_of
from tf_adapters.models.transaction import replaced
from tf_adapters.text.batching import padding_multiple, sorted_batches

_CHUNK_EXAMPLES = 1024


def frozen_depth(model):
    """How many blocks from the bottom up compute the same in every epoch, an int of at least 1.

    They and the embeddings have no weight that trains, no adapter and no dropout.

    Raises: InputError, if there are none; the message says what stands against it.
    """
    state = state_of(model)
    main, blocks = state.family.main_layer(model), state.family.blocks(model)
    trains = {id(variable) for variable in model.trainable_variables}
    adapted = {block for (block, _), site in state.sites.items() if site.adapters}
    drops = {id(dropout) for _, _, dropout, rate in state.family.dropout_layers(model) if rate}

    def problem(layer):
        if any(id(variable) in trains for variable in layer.weights):
            hint = "; train_layer_norm='adapted' (--train-layer-norm adapted) leaves LayerNorms without an adapter out"
            return "trains" + hint * (state.trainable == "adapters")
        if any(id(part) in drops for part in layer.submodules):
            return "has dropout; dropout=0 (--dropout 0) switches it off"
        return None

    hint = "has an adapter; blocks=range(3, 6) (--blocks 3-5) leaves out three"
    reasons = [hint if number in adapted else problem(block) for number, block in enumerate(blocks)]
    for where, reason in (
        ("the embedding layer", problem(main.embeddings)),
        *(("block 0", reason) for reason in reasons[:1]),
    ):
        if reason is not None:
            raise InputError(
                f"{{cache_frozen}} needs blocks at the bottom that never change, but {where} {reason}.",
                cache_frozen=True,
            )
    return next((depth for depth, reason in enumerate(reasons) if reason is not None), len(blocks))


class StoredStates:
    """Outputs of block `depth - 1` for encoded examples, without padding, in a memory-mapped file that has no name.

    Args:
        depth: int, as `frozen_depth` says.
        examples: rows or `PackedExamples`, as `training_batches` takes them.
        folder: where to make the file; the disk's space is free again after `close`, or when the process ends.
        progress: function called with the number of examples done so far after each batch, or None.

    Attributes:
        tokens, bytes: ints, how many tokens there are, and the size of the file.
    """

    def __init__(self, model, depth, examples, tokenizer, folder, *, batch_size, progress=None):
        lower, count = lower_blocks(model, depth), len(examples)
        (output,) = lower.get_concrete_function().outputs
        self.size, self.dtype = output.shape[-1], output.dtype
        # Where each example's tokens begin, in tokens, and where the last one's end.
        self._starts = np.zeros(count + 1, np.int64)
        fast = state_of(model).fast
        padding = {"multiple_of": padding_multiple(fast=fast), "fill": fast}
        path = pathlib.Path(folder) / "frozen_blocks.bin"
        try:
            with open(path, "wb") as file:
                for first in range(0, count, _CHUNK_EXAMPLES):
                    index = np.arange(first, min(first + _CHUNK_EXAMPLES, count))
                    encoded = examples.encode(tokenizer, tf.constant(index))
                    ends = np.cumsum(encoded["input_ids"].row_lengths().numpy())
                    self._starts[index + 1] = self._starts[first] + ends
                    batches = sorted_batches(encoded, batch_size=batch_size, tokenizer=tokenizer, **padding)
                    file.write(self._chunk(lower, batches, np.concatenate([[0], ends]), first, progress).tobytes())
            self.tokens = int(self._starts[-1])
            self.bytes = self.tokens * self.size * self.dtype.size
            self._map = np.memmap(path, self.dtype.as_numpy_dtype, "r", shape=(self.tokens, self.size))
        except OSError as error:
            hint = "the outputs of the frozen blocks do not fit; " if error.errno == errno.ENOSPC else ""
            raise InputError(
                f"{path} cannot be written ({error.strerror}): {hint}leave {{cache_frozen}} out and start anew with "
                "{overwrite}, or write to another disk.",
                cache_frozen=True,
                overwrite=NAME,
            ) from None
        finally:
            # What is mapped stays readable without a name, and no kill leaves it behind.
            path.unlink(missing_ok=True)

    def _chunk(self, lower, batches, starts, done, progress):
        """The states of a chunk of examples, one after the other, `(tokens, hidden)`."""
        chunk = np.empty((starts[-1], self.size), self.dtype.as_numpy_dtype)
        for positions, inputs in batches:
            states = lower(inputs).numpy()[: len(positions)]
            real = inputs["attention_mask"].numpy()[: len(positions)].astype(bool)
            chunk[(starts[positions][:, np.newaxis] + np.arange(real.shape[1]))[real]] = states[real]
            done += len(positions)
            if progress is not None:
                progress(done)
        return chunk

    def inputs(self, encoded, rows):
        """Inputs of `UpperBlocks`, in a graph too, for a batch of padded tensors, whose mask is kept; `rows` are the
        examples' numbers, int64 `(batch,)`."""
        mask = encoded["attention_mask"]
        states = tf.numpy_function(self._read, [rows, tf.shape(mask)[1]], self.dtype, stateful=False)
        return {"states": tf.ensure_shape(states, [None, None, self.size]), "attention_mask": mask}

    def close(self):
        """Give the memory and the disk's space back; TensorFlow keeps the function that reads, and with it this
        object."""
        self._map = self._starts = None

    def _read(self, rows, length):
        places = self._starts[rows][:, np.newaxis] + np.arange(length)
        real = places < self._starts[rows + 1][:, np.newaxis]
        states = np.zeros((len(rows), length, self.size), self._map.dtype)
        states[real] = self._map[places[real]]
        return states


# A model in two parts: the blocks up to a depth, and what stands above them.


_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


@contextlib.contextmanager
def _with_layers(model, blocks, embeddings=None):
    """While a graph is traced, the encoder has these blocks; with other embeddings given, they are not the lowest
    ones."""
    family = state_of(model).family
    main = family.main_layer(model)
    changes = [(family.stack(model), "layer", list(blocks))]
    if embeddings is not None:
        changes.append((main, "embeddings", embeddings))
        changes += [(owner, attribute, None) for owner, attribute in family.beside_lowest(model)]
    with replaced(changes):
        yield main


def lower_blocks(model, depth):
    """The embeddings and the first `depth` blocks in inference: a tf.function from the dict of int32 `(batch, length)`
    tensors that the model takes to hidden states, `(batch, length, hidden)`."""
    family = state_of(model).family
    blocks, specs = family.blocks(model)[:depth], {name: tf.TensorSpec((None, None), tf.int32) for name in _INPUTS}

    @tf.function(input_signature=[specs], autograph=family.autograph)
    def lower(inputs):
        with _with_layers(model, blocks) as main:
            # With hidden states asked for, no block is computed for its first token alone.
            return main(family.inputs(inputs), output_hidden_states=True, training=False).last_hidden_state

    return lower


class UpperBlocks(keras.Model):
    """A model that goes on with the block `first`, where its lower blocks ended; it has the model's own weights.

    Call arguments:
        inputs: dict of `states`, `(batch, length, hidden)`, the outputs of block `first - 1`, and
            int32 `attention_mask`, `(batch, length)`.
    """

    def __init__(self, model, first):
        super().__init__(name="upper_blocks", dtype=model.dtype_policy)
        self.whole = model
        self.first = first

    def call(self, inputs, training=None):
        blocks = state_of(self.whole).family.blocks(self.whole)[self.first :]

        def pass_on(*_, inputs_embeds, **__):
            return inputs_embeds

        with _with_layers(self.whole, blocks, pass_on):
            return self.whole(
                {"inputs_embeds": inputs["states"], "attention_mask": inputs["attention_mask"]}, training=training
            )
