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
from tf_adapters.layers.ops import keras3
from tf_adapters.models.keras_hub.door import Called, compiles_shapes
from tf_adapters.models.keras_hub.site import Site
from tf_adapters.text.batching import in_parts
from tf_adapters.training import trained
from tf_adapters.training.settings import check_door, check_rows
from tf_adapters.training.step_keras3 import GradientCheckpointing, Mixout, TrainingStep


class Trained(trained.Trained):
    """As of `trained.Trained`; `keras_model` is a `TrainingStep`."""

    ops = keras3

    def __init__(self, model, kind, examples, tokenizer, settings, workers):
        super().__init__(model, kind, examples, tokenizer, settings, workers)
        if keras.backend.backend() == "jax" and any(len(of.value.devices()) != devices() for of in model.variables):
            raise InputError(
                "{model} was made under another keras.distribution: call set_distribution first, and load it after.",
                model=type(model).__name__,
            )
        self.parts = settings.accumulate
        self.draws = [seeds.state for seeds in _seed_dropout(model, settings.seed, settings.dropout)]
        inner = kind.trained(model, jit_compile=settings.jit_compile)
        if self.parts > 1:
            self._check_parts(counts_rows=inner is model)
        changes = [GradientCheckpointing(model)] if settings.checkpoint_gradients else []
        if settings.mixout:
            changes.append(mixout := Mixout(model, settings.mixout, seed=settings.seed))
            self.draws += [seeds.state for seeds in mixout.seeds]
            self.begun = mixout.begun
        self.keras_model = TrainingStep(Called(model) if inner is model else inner, changes)
        if settings.jit_compile:
            let_compiler_recurse()

    @classmethod
    def checked(cls, settings, kind, strategy):
        """The settings as they act; InputError for what this Keras does not train."""
        check_door(settings.to_dict(), "keras-hub")
        if strategy is not None:
            raise InputError("{strategy} is for {door}: leave it out.", strategy=strategy, door="transformers")
        if devices() > 1:
            # Keras spreads each part of a step.
            check_rows(settings.batch_size, devices() * settings.accumulate)
        # With few lengths and full batches alone, so that shapes stay few.
        return dataclasses.replace(settings, jit_compile=True) if compiles_shapes() else settings

    @property
    def identity(self):
        """What else a run is only resumed with, a dict for JSON."""
        return {"door": "keras-hub", "backend": keras.backend.backend(), "devices": devices()}

    @property
    def precision(self):
        """Keras' policy, a str."""
        return keras.config.dtype_policy().name

    def losses_afterwards(self):
        """The plain loss: with another Keras' `save` cannot write the model down."""
        plain = self.kind.losses(ops=self.ops)
        del plain["metrics"]
        return plain

    def _check_parts(self, counts_rows):
        """InputError where the parts of a step would not come to the same as the whole."""
        settings, rest, why = self.settings, len(self.examples) % self.settings.batch_size, None
        if self.precision == "mixed_float16":
            why = "Keras skips a part whose gradient overflows, and counts the others wrongly; take mixed_bfloat16"
        elif settings.jit_compile and not counts_rows:
            why = "a compiled step has places for what is hidden in a batch, and not in its parts; leave it out"
        elif not settings.jit_compile and 0 < rest < self.parts:
            why = f"the last step of an epoch has fewer rows than parts, {rest}; take another batch_size"
        if why is not None:
            raise InputError(f"{{accumulate}}: {why}.", accumulate=self.parts)

    def batches(self, batches):
        """A step's parts are batches of Keras, whose optimiser adds up their gradients."""
        return in_parts(batches, self.parts, self.kind.loss_weight) if self.parts > 1 else batches

    def callback(self, run):
        """A callback of Keras that tells `run` of steps, whose parts are Keras' batches."""
        callback, parts = super().callback(run), self.parts
        began, ended = callback.on_train_batch_begin, callback.on_train_batch_end
        callback.on_train_batch_begin = lambda batch, logs=None: batch % parts or began(batch, logs)
        callback.on_train_batch_end = lambda batch, logs=None: (batch + 1) % parts or ended(batch, logs)
        return callback

    def sync(self):
        """On JAX a training keeps the values to itself."""
        sync_state(self.keras_model)


def spread_over_devices():
    """Let Keras spread each batch over the devices of this machine, for models that are made from now on.

    Raises: InputError, where there is one device, or on another backend than JAX.
    """
    backend, count = keras.backend.backend(), 1
    if backend == "jax":
        count = len(keras.distribution.list_devices())
    if count < 2:
        why = "JAX sees one" if backend == "jax" else f"Keras takes them on JAX alone, and runs on {backend}"
        raise InputError(f"{{strategy}} needs two devices or more, and {why}: leave it out.", strategy="mirrored")
    keras.distribution.set_distribution(keras.distribution.DataParallel())


def devices():
    """Over how many devices Keras spreads a batch, an int."""
    spread = keras.distribution.distribution()
    return 1 if spread is None else spread.device_mesh.devices.size


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
