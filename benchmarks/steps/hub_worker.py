"""The arms of the second door, on the backend that KERAS_BACKEND names; started by step.py.

A step is `train_on_batch` of the model that `fit` trains: its inputs are tensors, and Keras 3 wraps no data set around
them.
"""

import numpy as np

from benchmarks.peers.worker_protocol import RANK, Arm, read_batches, serve
from benchmarks.result import installed_versions
from benchmarks.steps.tf_worker import set_threads


class HubArm(Arm):
    """Adapters, full fine-tuning or KerasHub's own LoRA: one optimiser step on one batch."""

    def __init__(self, settings):
        import keras

        import tf_adapters
        from tf_adapters.kinds import get_kind
        from tf_adapters.layers.ops import keras3
        from tf_adapters.models.keras_hub.door import Called
        from tf_adapters.training.step_keras3 import PartsAtOnce, TrainingStep, _seed_dropout

        what = settings["arm"].rpartition("-")[2]
        what, fast = ("adapters", True) if what == "fast" else (what, False)
        model = tf_adapters.load_backbone(settings["directory"], num_labels=2, door="keras-hub")
        if what == "adapters":
            config = tf_adapters.AdapterConfig(bottleneck_size=settings["bottleneck"], train_layer_norm="encoder")
            tf_adapters.add_adapters(model, config, seed=settings["seed"], fast=fast)
        if what == "lora":
            model.backbone.enable_lora(RANK)  # four matrices of each block: those of query and value
        else:
            tf_adapters.set_trainable(model, what)
        self.model, self._what = model, what
        self.called, self.at_once = Called(model), None
        if (parts := _parts(settings)) > 1:
            weigh, seeds = get_kind("classification").loss_weight, _seed_dropout(model, settings["seed"], None)
            at_once = PartsAtOnce(parts, weigh, seeds)
            self.called, self.at_once = TrainingStep(self.called, at_once=at_once), at_once if fast else None
        self.called.compile(
            optimizer=keras3.Adam(settings["learning_rate"]),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile="-jit-" in settings["arm"] or keras.backend.backend() == "jax",
        )
        self.batches = [
            ({"token_ids": ids, "padding_mask": mask, "segment_ids": np.zeros_like(ids)}, labels)
            for ids, mask, labels in read_batches(settings["batches"])
        ]
        self.batch_count = len(self.batches)
        self.trained_parameters = int(sum(np.prod(weight.shape) for weight in model.trainable_variables))
        names = ("keras", "keras-hub", keras.backend.backend(), "numpy", "tf_adapters")
        self.details = {"versions": installed_versions(*names)}

    def ahead(self):
        """As in `fit`."""
        if self.at_once is None:
            return super().ahead()
        from tf_adapters.training.parts import compiling_ahead

        return compiling_ahead(self.at_once.rehearsal(self.model), self.batches, self.at_once.parts)

    def step(self, index):
        float(self.called.train_on_batch(*self.batches[index]))  # reading the loss waits for the step

    def save(self, directory):
        if self._what == "adapters":
            import tf_adapters

            tf_adapters.save_adapter(self.model, directory)


def _parts(settings):
    """As of `tf_worker`."""
    backend, _, what = settings["arm"].partition("-hub-")
    return settings["threads"] if backend == "tensorflow" and what in ("adapters", "fast") else 1


def make_arm(settings):
    """The arm that `settings["arm"]` names: `BACKEND-hub-WHAT`, `tensorflow-jit-hub-WHAT`."""
    import keras

    backend = keras.backend.backend()
    if backend == "torch":
        import torch

        torch.set_num_threads(settings["threads"])
    elif backend == "tensorflow":
        set_threads(settings["threads"], _parts(settings))
    keras.utils.set_random_seed(settings["seed"])
    keras.config.set_dtype_policy(settings["precision"])
    return HubArm(settings)


def main():
    serve(make_arm)
