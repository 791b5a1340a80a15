"""What Keras 2 trains: a model of transformers, with everything that settings change in its step."""

from tf_adapters._keras import keras
from tf_adapters._keras_internals import loss_scale_variables
from tf_adapters.errors import InputError
from tf_adapters.layers.ops import keras2
from tf_adapters.models.transformers.graphs import hold_gradients_weakly
from tf_adapters.models.transformers.upper_blocks import UpperBlocks
from tf_adapters.training import trained
from tf_adapters.training.frozen_blocks import frozen_depth
from tf_adapters.training.settings import check_door
from tf_adapters.training.step import GradientAccumulation, GradientCheckpointing, Mixout, TrainingStep, seed_dropout


class Trained(trained.Trained):
    """As of `trained.Trained`; `keras_model` is a `TrainingStep`."""

    ops = keras2
    identity = {"door": "transformers", "backend": "tensorflow"}

    @classmethod
    def checked(cls, settings, kind, strategy):
        """The settings as they act; InputError for what this Keras does not train."""
        check_door(settings.to_dict(), "transformers")
        return settings

    def __init__(self, model, kind, examples, tokenizer, settings, workers):
        super().__init__(model, kind, examples, tokenizer, settings, workers)
        dropouts = seed_dropout(model, settings.seed, rate=settings.dropout)
        self.depth = frozen_depth(model) if settings.cache_frozen else 0
        inner = kind.trained(model, jit_compile=settings.jit_compile)
        if settings.cache_frozen and inner is not model:
            raise InputError(
                f"{{cache_frozen}}: what {kind.name} reads of a text is another in each step; leave it out.",
                cache_frozen=True,
            )
        changes = []
        if settings.mixout:
            changes.append(mixout := Mixout(model, settings.mixout, seed=settings.seed))
            self.begun = mixout.begun
        if settings.checkpoint_gradients:
            changes.append(GradientCheckpointing(model))
        if settings.accumulate > 1:
            changes.append(GradientAccumulation(settings.accumulate, kind.loss_weight))
        dropouts = [*dropouts, *(dropout for change in changes for dropout in change.dropouts)]
        self.draws = [layer.generator.state for layer in dropouts]
        self.keras_model = TrainingStep(UpperBlocks(model, self.depth) if self.depth else inner, changes)

    @property
    def precision(self):
        """Keras' policy, a str."""
        return keras.mixed_precision.global_policy().name

    def optimizer_variables(self, optimizer):
        """As of `trained.Trained`."""
        return [*optimizer.variables, *loss_scale_variables(optimizer)]

    def end(self):
        """Training is over."""
        hold_gradients_weakly()
