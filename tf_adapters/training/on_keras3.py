"""What Keras 3 trains: a model of KerasHub, on TensorFlow, JAX or PyTorch."""

import dataclasses

import keras

from tf_adapters._keras3_internals import (
    layers_of,
    let_attentions_drop,
    let_compiler_recurse,
    seed_generator,
    set_dropout,
    sync_state,
)
from tf_adapters.errors import InputError
from tf_adapters.layers.ops import keras3 as ops
from tf_adapters.models.keras_hub.door import Called, compiles_shapes
from tf_adapters.models.keras_hub.site import Site
from tf_adapters.text.batching import default_lengths
from tf_adapters.training.optimizer import make_optimizer, warmup_linear_decay
from tf_adapters.training.settings import check_door


class Trained:
    """What Keras trains, as the settings say; attributes and methods as of `training.on_keras2.Trained`."""

    depth = 0

    def __init__(self, model, kind, examples, tokenizer, settings, workers):
        self.model, self.kind, self.examples, self.tokenizer = model, kind, examples, tokenizer
        self.settings, self.workers = settings, workers
        self._seeds = _seed_dropout(model, settings.seed, settings.dropout)
        trained = kind.trained(model, jit_compile=settings.jit_compile)
        self.keras_model = Called(model) if trained is model else trained

    @classmethod
    def checked(cls, settings, kind, strategy):
        """The settings as they act; InputError for what this Keras does not train."""
        check_door(settings.to_dict(), "keras-hub")
        if strategy is not None:
            raise InputError("{strategy} is for {door}: leave it out.", strategy=strategy, door="transformers")
        # With few lengths and full batches alone, so that shapes stay few.
        return dataclasses.replace(settings, jit_compile=True) if compiles_shapes() else settings

    @property
    def identity(self):
        """What else a run is only resumed with, a dict for JSON."""
        return {"door": "keras-hub", "backend": keras.backend.backend()}

    @property
    def precision(self):
        """Keras' policy, a str."""
        return keras.config.dtype_policy().name

    def lengths(self, tokenizer):
        """Of padded batches, where each shape is compiled; otherwise None."""
        return default_lengths(tokenizer.max_length) if self.settings.jit_compile else None

    def compile(self, steps):
        """Give it its optimiser, for so many steps in all; the variables of a run's state by the names of groups."""
        settings, losses = self.settings, self.kind.losses(self.settings, self.examples, ops)
        rate = warmup_linear_decay(ops)(
            settings.learning_rate,
            steps,
            warmup_fraction=settings.warmup_fraction,
            from_start=settings.decay_from_start,
        )
        trains = self.model.trainable_variables
        names = ("weight_decay", "clip_norm", "epsilon", "bias_correction")
        optimizer = make_optimizer(ops, rate, trains, **{name: getattr(settings, name) for name in names})
        if settings.jit_compile:
            let_compiler_recurse()
        self.keras_model.compile(optimizer=optimizer, jit_compile=settings.jit_compile, **losses)
        optimizer = self.keras_model.optimizer
        optimizer.build(trains)
        # `evaluate` works afterwards, and so does Keras' `save`, which can write down the plain loss alone.
        plain = self.kind.losses(ops=ops)
        del plain["metrics"]
        self.model.compile(optimizer=optimizer, jit_compile=settings.jit_compile, **plain)
        return {
            "trainable": list(trains),
            "optimizer": list(optimizer.variables),
            "dropout": [seeds.state for seeds in self._seeds],
            "metric": [variable for metric in keras.tree.flatten(losses["metrics"]) for variable in metric.variables],
        }

    def callback(self, run):
        """A callback of Keras that tells `run`."""
        return _Callback(run)

    def sync(self):
        """Let variables have the values of the latest step; on JAX a training keeps them to itself."""
        sync_state(self.keras_model)

    def end(self):
        """Training is over."""


class _Callback(keras.callbacks.Callback):
    def __init__(self, run):
        super().__init__()
        self.on_epoch_begin, self.on_epoch_end = run.on_epoch_begin, run.on_epoch_end
        self.on_train_batch_begin, self.on_train_batch_end = run.on_train_batch_begin, run.on_train_batch_end


def _seed_dropout(model, seed, rate):
    """Let every random number of training follow from one seed.

    Args:
        rate: float, for the encoder and the head, or None for the rates that they were built with.

    Returns: list of keras.random.SeedGenerator, in an order that depends on the model alone.
    """
    sites = [layer for layer in layers_of(model) if isinstance(layer, Site)]
    of_adapters = {id(one) for site in sites for adapter in site.adapters.values() for one in layers_of(adapter)}
    found = []
    for layer in layers_of(model):
        if not isinstance(layer, keras.layers.Dropout):
            continue
        built_with = getattr(layer, "_tf_adapters_rate", layer.rate)
        layer._tf_adapters_rate = built_with
        set_dropout(layer, built_with if rate is None or id(layer) in of_adapters else rate)
        if layer.rate:
            found.append(layer.seed_generator)
    let_attentions_drop(model)
    found += [drop.seeds for site in sites for drop in site.drops.values() if drop.seeds is not None]
    distinct = list({id(one): one for one in found}.values())
    for number, one in enumerate(distinct):
        seed_generator(one, (seed * 1_000_003 + number) % 2**31)
    return distinct
