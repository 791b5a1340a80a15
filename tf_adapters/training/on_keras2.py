"""What Keras 2 trains: a model of transformers, with everything that settings change in its step."""

import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters._keras_internals import loss_scale_variables
from tf_adapters.errors import InputError
from tf_adapters.layers.ops import keras2 as ops
from tf_adapters.models.transformers.graphs import hold_gradients_weakly
from tf_adapters.models.transformers.upper_blocks import UpperBlocks
from tf_adapters.text.batching import default_lengths
from tf_adapters.training.frozen_blocks import frozen_depth
from tf_adapters.training.optimizer import make_optimizer, warmup_linear_decay
from tf_adapters.training.step import GradientAccumulation, GradientCheckpointing, Mixout, TrainingStep, seed_dropout


class Trained:
    """What Keras trains, as the settings say.

    Attributes:
        model, kind, examples, tokenizer, settings, workers: as given.
        keras_model: what Keras' `fit` is called on: `TrainingStep`.
        depth: int, how many of the lowest blocks are computed beforehand.
        identity: dict for JSON, what else a run is only resumed with.
    """

    identity = {"door": "transformers", "backend": "tensorflow"}

    @classmethod
    def checked(cls, settings, kind, strategy):
        """The settings as they act; InputError for what this Keras does not train."""
        return settings

    def __init__(self, model, kind, examples, tokenizer, settings, workers):
        self.model, self.kind, self.examples, self.tokenizer, self.settings, self.workers = (
            model,
            kind,
            examples,
            tokenizer,
            settings,
            workers,
        )
        dropouts = seed_dropout(model, settings.seed, rate=settings.dropout)
        self.depth = frozen_depth(model) if settings.cache_frozen else 0
        trained = kind.trained(model, jit_compile=settings.jit_compile)
        if settings.cache_frozen and trained is not model:
            raise InputError(
                f"{{cache_frozen}}: what {kind.name} reads of a text is another in each step; leave it out.",
                cache_frozen=True,
            )
        changes = []
        if settings.mixout:
            changes.append(Mixout(model, settings.mixout, seed=settings.seed))
        if settings.checkpoint_gradients:
            changes.append(GradientCheckpointing(model))
        if settings.accumulate > 1:
            changes.append(GradientAccumulation(settings.accumulate, kind.loss_weight))
        self._dropouts = [*dropouts, *(dropout for change in changes for dropout in change.dropouts)]
        trained = UpperBlocks(model, self.depth) if self.depth else trained
        self.keras_model = TrainingStep(trained, changes)

    @property
    def precision(self):
        """Keras' policy, a str."""
        return keras.mixed_precision.global_policy().name

    def lengths(self, tokenizer):
        """Of padded batches, where each shape is compiled; otherwise None."""
        return default_lengths(tokenizer.max_length) if self.settings.jit_compile else None

    def compile(self, steps):
        """Give it its optimiser, for so many steps in all.

        Returns: every variable that a step reads or changes, lists by the names of groups; those of `metric` are the
        epoch's running means.
        """
        settings, losses = self.settings, self.kind.losses(self.settings, self.examples)
        optimizer = make_optimizer(
            ops,
            warmup_linear_decay(ops)(
                settings.learning_rate,
                steps,
                warmup_fraction=settings.warmup_fraction,
                from_start=settings.decay_from_start,
            ),
            self.model.trainable_variables,
            **{name: getattr(settings, name) for name in ("weight_decay", "clip_norm", "epsilon", "bias_correction")},
        )
        self.keras_model.compile(optimizer=optimizer, jit_compile=settings.jit_compile, **losses)
        # `evaluate` works afterwards.
        self.model.compile(
            optimizer=self.keras_model.optimizer,
            jit_compile=settings.jit_compile,
            **self.kind.losses(settings, self.examples),
        )
        self.keras_model.optimizer.build(self.model.trainable_variables)
        optimizer = self.keras_model.optimizer
        return {
            "trainable": self.model.trainable_variables,
            "optimizer": [*optimizer.variables, *loss_scale_variables(optimizer)],
            "dropout": [layer.generator.state for layer in self._dropouts],
            "metric": [variable for metric in tf.nest.flatten(losses["metrics"]) for variable in metric.variables],
        }

    def callback(self, run):
        """A callback of Keras that tells `run`."""
        return _Callback(run)

    def sync(self):
        """Let variables have the values of the latest step; here they always do."""

    def end(self):
        """Training is over."""
        hold_gradients_weakly()


class _Callback(keras.callbacks.Callback):
    def __init__(self, run):
        super().__init__()
        self.on_epoch_begin, self.on_epoch_end = run.on_epoch_begin, run.on_epoch_end
        self.on_train_batch_begin, self.on_train_batch_end = run.on_train_batch_begin, run.on_train_batch_end
