"""SAFE. Son et al. 2025, Not All Adapters Matter: Selective Adapter Freezing for Memory-Efficient Fine-Tuning of
Language Models."""

import functools

import numpy as np
import tensorflow as tf

from tf_adapters.errors import InputError
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.fast import FastSite
from tf_adapters.models.transformers.site import AdapterSite
from tf_adapters.text.batching import sorted_batches
from tf_adapters.training.step import Change

_SAMPLE_ROWS = 32


class AdapterFreezing(Change):
    """Adapters stop training, one after the other, once they change too little.

    After each epoch an adapter whose importance is below that epoch's threshold is frozen for the rest of the run. Its
    importance is `1 - CKA(X, X + A(X))`: how much it changes the representation at its place, over the tokens of some
    training rows in inference; the greatest of its places, if it is shared. Where all adapters of a block are frozen
    its LayerNorms are too, and those below it down to the next block with adapters, so that nothing below the lowest
    adapter that trains has a gradient or keeps anything for it. The optimiser leaves frozen weights as they are,
    whatever its moments.

    The idea, importance by CKA, a threshold that rises, and freezing for good, is the paper's, of which only the
    abstract and summaries were at hand. Which two representations are compared, the rows, the cubic rise and what
    LayerNorms do are choices of this package.

    Args:
        model: a transformers TensorFlow model after `set_trainable(model, "adapters")`.
        threshold, epochs: `TrainingSettings.freeze_adapters`, the final threshold, and `freeze_epochs`, `(first,
            last)`: up to the end of the first nothing is frozen, and from the last on the threshold is the final one.
        examples, tokenizer: training examples and their `Tokenizer`.

    Attributes:
        frozen: tuple of the keys of the frozen adapters, such as `"layer.0.ffn"`, in the order in which they were
            frozen.

    Raises:
        InputError: no bottleneck adapters that train.

    Reference: Son et al. 2025; CKA: Kornblith et al. 2019, Similarity of Neural Network Representations Revisited,
    section 3.
    """

    def __init__(self, model, *, threshold, epochs, examples, tokenizer):
        state = state_of(model)
        if state.trainable != "adapters" or not state.adapters[state.active].config.is_bottleneck:
            raise InputError(
                "{freeze_adapters} is for bottleneck adapters (set_trainable(model, 'adapters')): leave it out.",
                freeze_adapters=threshold,
            )
        self.model, self.threshold, self.epochs, self.frozen = model, threshold, tuple(epochs), ()
        rows = np.unique(np.linspace(0, len(examples) - 1, _SAMPLE_ROWS).astype(np.int64))
        ((_, inputs),) = sorted_batches(
            examples.encode(tokenizer, tf.constant(rows)), batch_size=len(rows), tokenizer=tokenizer
        )
        self._sample = state.family.inputs(inputs)
        keys = {id(layer): key for key, layer in state.adapters[state.active].layers.items()}
        self._places = [
            (block, site, keys[id(site.adapters[state.active])])
            for (block, _), site in state.sites.items()
            if state.active in site.adapters
        ]

    def after_epoch(self, epoch):
        """Freeze what is below the threshold of an epoch (from 1) that has ended.

        Returns: dict from the keys of the adapters that were frozen to their importances.
        """
        threshold = freezing_threshold(epoch, self.threshold, *self.epochs)
        importances = self.importances() if threshold else {}
        frozen = {key: value for key, value in importances.items() if value < threshold and key not in self.frozen}
        self.frozen += tuple(frozen)
        return frozen

    def importances(self):
        """Dict from each adapter's key to its importance, a float from 0 to 1."""
        inputs, found = dict(self._sample), {}
        mask = inputs["attention_mask"].numpy().astype(bool)

        def record(site, key, hidden_states, input_tensor, training):
            outputs = type(site).adapt(site, hidden_states, input_tensor, training)
            before, after = (tf.cast(tensor, tf.float64).numpy()[mask] for tensor in (hidden_states, outputs))
            found[key] = max(found.get(key, 0.0), 1 - linear_cka(before, after))
            return outputs

        for _, site, key in self._places:
            vars(site)["adapt"] = functools.partial(record, site, key)
            if isinstance(site, FastSite):
                # Its own computation has no step to the adapter.
                vars(site)["call"] = functools.partial(AdapterSite.call, site)
        try:
            # With hidden states asked for, no block is computed for its first token alone.
            state_of(self.model).family.main_layer(self.model)(inputs, output_hidden_states=True, training=False)
        finally:
            for _, site, _ in self._places:
                vars(site).pop("adapt", None), vars(site).pop("call", None)
        return found

    def left_out(self):
        state = state_of(self.model)
        layers = [state.adapters[state.active].layers[key] for key in self.frozen]
        training = {block for block, _, key in self._places if key not in self.frozen}
        adapted = sorted({block for block, _, _ in self._places})
        norms = [(-1, state.family.main_layer(self.model).embeddings.LayerNorm)]
        for index, block in enumerate(state.family.blocks(self.model)):
            norms += [(index, norm) for norm in state.family.block_layer_norms(block)]
        for index, norm in norms:
            # Without adapters of its own it goes with the next block above that has some.
            block = next((block for block in adapted if block >= index), None)
            if block is not None and block not in training:
                layers.append(norm)
        return [variable for layer in layers for variable in layer.weights]


def freezing_threshold(epoch, final, first, last):
    """`final (1 - (1 - (epoch - first) / (last - first))^3)` between the two epochs, 0 before and `final` behind.

    Reference: Zhu & Gupta 2017, To prune, or not to prune, equation 1.
    """
    share = min(max((epoch - first) / (last - first), 0.0), 1.0)
    return final * (1 - (1 - share) ** 3)


def linear_cka(x, y):
    """Similarity of two representations of the same examples, from 0 to 1: `|Y'X|^2 / (|X'X| |Y'Y|)`, of centred
    columns.

    Args:
        x, y: float arrays, `(examples, features)`; the features may differ in number.

    Reference: Kornblith et al. 2019, section 3, "Linear CKA".
    """
    x, y = (values - values.mean(0) for values in (x, y))
    return float(np.linalg.norm(y.T @ x) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)))
