"""What a run trains, whichever Keras: the model with its optimiser, and what else a step reads or changes."""

import tensorflow as tf

from tf_adapters.errors import InputError
from tf_adapters.models.state import state_of
from tf_adapters.ranges import checked
from tf_adapters.text.batching import default_lengths
from tf_adapters.training.optimizer import make_optimizer, warmup_linear_decay

_TOLD = ("on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_train_batch_end")


class Trained:
    """What Keras trains, as the settings say.

    Attributes:
        ops: module of `layers.ops`, whose Keras it is.
        model, kind, examples, tokenizer, settings, workers: as given.
        keras_model: what Keras' `fit` is called on.
        draws: list of variables, the states of random numbers.
        begun: list of variables, what Mixout mixes with: what the matrices were when the run began.
        depth: int, how many of the lowest blocks are computed beforehand.
        parts: int, how many batches of Keras a step has.
        identity: dict for JSON, what else a run is only resumed with.
        precision: str, Keras' policy.
    """

    ops, depth, parts = None, 0, 1

    def __init__(self, model, kind, examples, tokenizer, settings, workers):
        self.model, self.kind, self.examples, self.tokenizer = model, kind, examples, tokenizer
        self.settings, self.workers, self.begun = settings, workers, []

    def lengths(self, tokenizer):
        """Of padded batches, where each shape is compiled; otherwise None."""
        return default_lengths(tokenizer.max_length) if self.settings.jit_compile else None

    def compile(self, steps):
        """Give it its optimiser, for so many steps in all.

        Returns: every variable that a step reads or changes, lists by the names of groups; those of `metric` are the
        epoch's running means.
        """
        settings, losses = self.settings, self.kind.losses(self.settings, self.examples, self.ops)
        rate = warmup_linear_decay(self.ops)(
            settings.learning_rate,
            steps,
            warmup_fraction=settings.warmup_fraction,
            from_start=settings.decay_from_start,
            parts=self.parts,
        )
        trains, names = self.model.trainable_variables, ("weight_decay", "clip_norm", "epsilon", "bias_correction")
        optimizer = make_optimizer(self.ops, rate, trains, **{name: getattr(settings, name) for name in names})
        if self.parts > 1:
            optimizer.gradient_accumulation_steps = self.parts
        self.keras_model.compile(optimizer=optimizer, jit_compile=settings.jit_compile, **losses)
        optimizer = self.keras_model.optimizer
        optimizer.build(trains)
        # `evaluate` works afterwards.
        self.model.compile(optimizer=optimizer, jit_compile=settings.jit_compile, **self.losses_afterwards())
        return {
            "trainable": list(trains),
            "optimizer": self.optimizer_variables(optimizer),
            "dropout": self.draws,
            **({"begun": self.begun} if self.begun else {}),
            "metric": [variable for metric in tf.nest.flatten(losses["metrics"]) for variable in metric.variables],
        }

    def losses_afterwards(self):
        """Arguments for `compile` of the model itself."""
        return self.kind.losses(self.settings, self.examples, self.ops)

    def optimizer_variables(self, optimizer):
        """Those that its steps read or change, a list."""
        return list(optimizer.variables)

    def batches(self, batches):
        """What Keras' `fit` takes, from what `workers` make of the batches of steps."""
        return batches

    def callback(self, run):
        """A callback of Keras that tells `run`."""
        callback = self.ops.keras.callbacks.Callback()
        for name in _TOLD:
            setattr(callback, name, getattr(run, name))
        return callback

    def sync(self):
        """Let variables have the values of the latest step."""

    def end(self):
        """Training is over."""


def matrices_to_mix(model, layers, rate):
    """What Mixout mixes of a model: the matrices of the encoder and of adapters that train.

    Args:
        layers: those that compute with matrices.

    Returns: for each matrix the places that hold it, list of `(layer, attribute, variable)`.

    Raises: InputError, for a rate out of range, or where there is none.
    """
    if not checked("mixout", rate):
        raise InputError("{mixout} must be above 0, such as 0.9.", mixout=rate)
    head = {id(variable) for variable in state_of(model).head_variables(model)}
    trains = {id(variable) for variable in model.trainable_variables if len(variable.shape) >= 2} - head
    places = {}
    for layer in layers:
        for attribute, value in vars(layer).items():
            # A bias of Keras 3's attention has an axis for heads.
            if id(value) in trains and attribute != "bias":
                places.setdefault(id(value), []).append((layer, attribute, value))
    if not places:
        raise InputError(
            "{mixout}: no matrix of the encoder or of adapters trains, so there is nothing to mix.", mixout=rate
        )
    return list(places.values())
