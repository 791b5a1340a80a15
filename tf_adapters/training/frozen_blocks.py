"""The outputs of the frozen lower blocks, computed once and read in every epoch."""

import contextlib

import numpy as np
import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters.errors import InputError
from tf_adapters.layers.dropout import dropout_layers
from tf_adapters.models.state import state_of
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
    drops = {id(dropout) for _, _, dropout in dropout_layers(model) if dropout.rate}

    def problem(layer):
        if any(id(variable) in trains for variable in layer.weights):
            return "has weights that train (train_layer_norm='adapted', --train-layer-norm adapted, leaves them out)"
        if any(id(part) in drops for part in layer.submodules):
            return "has dropout (dropout=0, --dropout 0, switches it off)"
        return None

    depth, reason = 0, problem(main.embeddings)
    where = "the embedding layer"
    if reason is None:
        for depth, block in enumerate(blocks):
            reason = "has an adapter (blocks=range(3, 6), --blocks 3-5, leaves three out)" if depth in adapted else problem(block)
            where = f"block {depth}"
            if reason is not None:
                break
        else:
            depth = len(blocks)
    if not depth:
        raise InputError(f"cache_frozen=True (--cache-frozen) needs blocks at the bottom that never change, and {where} {reason}.")
    return depth


@contextlib.contextmanager
def _with_layers(model, blocks, embeddings=None):
    """While a graph is traced, the encoder has these blocks, and other embeddings if they are given."""
    main = state_of(model).family.main_layer(model)
    changes = [(vars(main.encoder), "layer", list(blocks))]
    if embeddings is not None:
        changes.append((vars(main), "embeddings", embeddings))
    before = [attributes[name] for attributes, name, _ in changes]
    # Around Keras' own bookkeeping: the layers are the model's before and after.
    for attributes, name, value in changes:
        attributes[name] = value
    try:
        yield main
    finally:
        for (attributes, name, _), value in zip(changes, before):
            attributes[name] = value


class UpperBlocks(keras.Model):
    """A model that goes on where its lower blocks ended; it has the model's own weights.

    Args:
        model: a transformers TensorFlow model.
        first: int, the first block that is computed.

    Call arguments:
        inputs: dict of `states`, `(batch, length, hidden)`, the outputs of block `first - 1`, and
            int32 `attention_mask`, `(batch, length)`.

    Returns: the logits, or for a span head the dict of `start_logits` and `end_logits`.
    """

    def __init__(self, model, first):
        super().__init__(name="upper_blocks")
        self.whole = model
        self.first = first

    def call(self, inputs, training=None):
        blocks = state_of(self.whole).family.blocks(self.whole)[self.first :]

        def pass_on(*_, inputs_embeds, **__):
            return inputs_embeds

        with _with_layers(self.whole, blocks, pass_on):
            outputs = self.whole(
                {"inputs_embeds": inputs["states"], "attention_mask": inputs["attention_mask"]}, training=training
            )
        if "logits" in outputs:
            return outputs.logits
        return {name: outputs[name] for name in ("start_logits", "end_logits")}


class StoredStates:
    """Outputs of block `depth - 1` for encoded examples, in a memory-mapped file without padding.

    Args:
        model: a transformers TensorFlow model.
        depth: int, as `frozen_depth` says.
        examples: rows or `PackedExamples`, as `training_batches` takes them.
        wordpiece: `WordPiece`.
        path: of the file to write; what is there is replaced.
        batch_size: int.
        progress: function called with the number of examples done so far, or None.

    Attributes:
        tokens: int, how many there are.
        bytes: int, size of the file.

    Raises: InputError, if the file cannot be written.
    """

    def __init__(self, model, depth, examples, wordpiece, path, *, batch_size, progress=None):
        self.path = path
        blocks, fast = state_of(model).family.blocks(model)[:depth], state_of(model).fast
        specs = {name: tf.TensorSpec((None, None), tf.int32) for name in ("input_ids", "attention_mask", "token_type_ids")}

        @tf.function(input_signature=[specs])
        def lower(inputs):
            with _with_layers(model, blocks) as main:
                # With hidden states asked for, no block is computed for its first token alone.
                return main(inputs, output_hidden_states=True, training=False).last_hidden_state

        (output,) = lower.get_concrete_function().outputs
        self.size, self.dtype = output.shape[-1], output.dtype
        dtype, count = self.dtype.as_numpy_dtype, len(examples)
        # Where each example's tokens begin, in tokens, and where the last one's end.
        self.starts = np.zeros(count + 1, np.int64)
        try:
            with open(path, "wb") as file:
                for first in range(0, count, _CHUNK_EXAMPLES):
                    after = min(first + _CHUNK_EXAMPLES, count)
                    encoded = examples.encode(wordpiece, tf.range(first, after, dtype=tf.int64))
                    ends = np.cumsum(encoded["input_ids"].row_lengths().numpy())
                    starts = np.concatenate([[0], ends[:-1]])
                    self.starts[first + 1 : after + 1] = self.starts[first] + ends
                    chunk = np.empty((ends[-1], self.size), dtype)
                    batches = sorted_batches(
                        encoded, batch_size=batch_size, wordpiece=wordpiece, multiple_of=padding_multiple(fast=fast), fill=fast
                    )
                    for positions, inputs in batches:
                        states = lower(inputs).numpy()[: len(positions)]
                        real = inputs["attention_mask"].numpy()[: len(positions)].astype(bool)
                        chunk[(starts[positions][:, np.newaxis] + np.arange(real.shape[1]))[real]] = states[real]
                    file.write(chunk.tobytes())
                    if progress is not None:
                        progress(after)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise InputError(
                f"{path} cannot be written ({error.strerror}): the outputs of the frozen blocks do not fit; leave "
                "cache_frozen (--cache-frozen) out, or write to another disk."
            ) from None
        self.tokens = int(self.starts[-1])
        self.bytes = self.tokens * self.size * self.dtype.size
        self._map = np.memmap(path, dtype, "r", shape=(self.tokens, self.size))

    def inputs(self, encoded, rows):
        """Inputs of `UpperBlocks` for a batch, in a graph too.

        Args:
            encoded: dict of the padded tensors of the batch; its mask is kept.
            rows: int64 tensor `(batch,)`, the examples' numbers.
        """
        mask = encoded["attention_mask"]
        states = tf.numpy_function(self._read, [rows, tf.shape(mask)[1]], self.dtype, stateful=False)
        return {"states": tf.ensure_shape(states, [None, None, self.size]), "attention_mask": mask}

    def _read(self, rows, length):
        places = self.starts[rows][:, np.newaxis] + np.arange(length)
        real = places < self.starts[rows + 1][:, np.newaxis]
        states = np.zeros((len(rows), length, self.size), self._map.dtype)
        states[real] = self._map[places[real]]
        return states
