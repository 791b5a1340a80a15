"""Trains a task by `model.fit`, keeps the best epoch, and survives being killed."""

import importlib.util
import pathlib

import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters.errors import InputError
from tf_adapters.models.state import state_of
from tf_adapters.models.transaction import transaction
from tf_adapters.models.upper_blocks import UpperBlocks
from tf_adapters.ranges import in_range
from tf_adapters.text.batching import default_lengths, padding_multiple, steps_per_epoch
from tf_adapters.training.accumulation import GradientAccumulation
from tf_adapters.training.checkpointing import GradientCheckpointing
from tf_adapters.training.dropout import seed_dropout
from tf_adapters.training.freezing import AdapterFreezing
from tf_adapters.training.frozen_blocks import frozen_depth
from tf_adapters.training.kinds import get_kind
from tf_adapters.training.mixout import Mixout
from tf_adapters.training.optimizer import make_optimizer
from tf_adapters.training.run import Reporter, Run
from tf_adapters.training.schedules import WarmupLinearDecay
from tf_adapters.training.strategies import get_workers, in_scope
from tf_adapters.training.trainable import frozen_digest, learned_variables


@in_range
@in_scope
def fit(
    model,
    task,
    wordpiece,
    *,
    output,
    epochs=None,
    steps=None,
    period=None,
    keep_periods=False,
    learning_rate,
    batch_size=32,
    accumulate=1,
    checkpoint_gradients=False,
    warmup_fraction=0.1,
    dropout=None,
    weight_decay=0.0,
    clip_norm=None,
    mixout=0.0,
    freeze_adapters=None,
    freeze_epochs=None,
    patience=None,
    seed=0,
    jit_compile=False,
    cache_frozen=False,
    resume=False,
    recipe=None,
    kind=None,
    checkpoint_seconds=30.0,
    tensorboard=False,
    reporter=None,
    strategy=None,
):
    """Train what `set_trainable` chose, with Adam and linear warm-up and decay.

    After each epoch the validation rows are scored and the adapter directory is replaced if
    the task's metric rose. `output/.resume` holds the state of the run, rewritten every
    `checkpoint_seconds` and after each epoch, and goes when training ends. A run that
    was killed at any moment and resumed ends bit-equal to one that was not, on the
    same machine. SIGINT and SIGTERM save the state and stop after the step at work.

    Args:
        model: a sequence classification model after `set_trainable`.
        task: `Task`.
        wordpiece: `WordPiece`.
        output: path of the adapter directory to write.
        epochs, batch_size: ints.
        steps, period: ints, in place of `epochs`: how many steps there are, and after how many of them validation rows are scored,
            which must divide them. What is said of an epoch is then that of a period.
        keep_periods: bool, keep what was trained after each period in `output/step-N`, N the steps.
        accumulate: int, in how many parts the rows of a step are computed, to take less memory; the gradient is the whole batch's.
        checkpoint_gradients: bool, compute each block once more in the backward pass instead of keeping what its gradient needs, to take less
            memory; see `training.checkpointing.GradientCheckpointing`.
        learning_rate: float, the peak.
        warmup_fraction: float, share of the steps with a rising rate.
        dropout: float in [0, 1), of the encoder and the head, or None for the encoder's own.
        weight_decay, clip_norm: as of `training.optimizer.make_optimizer`.
        mixout: float in [0, 1), the probability with which an entry of a matrix is that of the beginning in a step; see
            `training.mixout.Mixout`. He et al. have it in place of every dropout: give `dropout=0`.
        freeze_adapters: float in (0, 1], the importance below which an adapter stops training (SAFE), or None; see
            `training.freezing.AdapterFreezing`.
        freeze_epochs: `(first, last)`, when that threshold begins to rise from 0 and when it is reached; None for a tenth and half of the
            epochs.
        patience: int, epochs without a better validation result after which training stops early, or None for all epochs. The
            learning rate falls as if all were done.
        seed: int, decides the order of the rows and the dropout.
        jit_compile: bool, compile the training step with XLA; batches are then padded to a
            small set of lengths, and the last, partial batch of an epoch is dropped.
        cache_frozen: bool, compute the outputs of the blocks below the first one that trains or has an adapter only once,
            and read them in every epoch from a memory-mapped file on the disk of `output`. For AdapterDrop, top-N and a
            trained head; what is frozen must have no dropout.
        resume: bool, go on with the run that `output` holds.
        recipe: str or None, kept in the directory.
        kind: `Kind` in place of the one that `task.kind` names, or None.
        checkpoint_seconds: float, time between two states.
        tensorboard: bool, write `output/tensorboard` too.
        reporter: `Reporter` or None.
        strategy: `tf.distribute.Strategy` in whose scope the model was made, or None; see `training.strategies.make_strategy`.
            `batch_size` is that of all its devices together, and without dropout the result that of one, up to rounding.

    Returns: `FitResult`. The model has the best epoch's weights.

    Raises:
        InputError: a value out of range, nothing to resume, another run's state; its
            subclass DivergedError: a loss that is not finite.
    """
    if (epochs is None) == (steps is None) or (steps is None) != (period is None):
        raise InputError(f"epochs={epochs!r}, steps={steps!r}, period={period!r}: give epochs, or steps and period.")
    state = state_of(model)
    if state.trainable is None:
        raise InputError("Call set_trainable(model, ...) before fit, so that it is known what trains.")
    trains = {id(variable) for variable in model.trainable_variables}
    if state.trainable == "adapters" and not (state.acting_name and any(id(v) in trains for v in learned_variables(state.owner))):
        raise InputError(
            f"What set_trainable(model, 'adapters') chose is not the adapter that acts ({state.acting_name!r}): make the one that is to train "
            "active, outside of disable_adapters, and call it again."
        )
    if tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise InputError("tensorboard=True (--tensorboard) needs the package tensorboard: run `pip install tensorboard`.")
    kind = kind or get_kind(task.kind)
    examples = kind.examples(task.train, wordpiece)
    if jit_compile and len(examples) < batch_size:
        raise InputError(
            f"batch_size={batch_size} is above the {len(examples)} training examples, and with XLA only full batches "
            "train."
        )
    if accumulate > batch_size or (accumulate > 1 and jit_compile):
        why = "its parts have no fixed sizes, which XLA needs" if jit_compile else f"a step has batch_size={batch_size} rows"
        raise InputError(f"accumulate={accumulate!r} cannot be: {why}; leave it out or lower it.")
    if checkpoint_gradients and mixout:
        raise InputError(f"checkpoint_gradients=True does not go with mixout={mixout!r}, whose masks are of one pass: leave one of them out.")
    workers = get_workers(
        strategy, batch_size=batch_size, jit_compile=jit_compile, cache_frozen=cache_frozen, accumulate=accumulate > 1, mixout=mixout,
        random_drop=state.active and getattr(state.adapters[state.active].config, "random_drop", 0),
    )  # fmt: skip
    of_epoch = steps_per_epoch(len(examples), batch_size=batch_size, drop_remainder=jit_compile)
    if steps is None:
        steps, chosen_period = epochs * of_epoch, of_epoch
    elif steps % period:
        raise InputError(f"steps={steps} must be a multiple of period={period}: give {-(-steps // period) * period}.")
    else:
        chosen_period = period
    reporter = reporter or Reporter()

    @transaction
    def prepared(model):
        """The run, before its first step: what is refused until then leaves the model as it was."""
        nonlocal freeze_epochs
        dropout_layers = seed_dropout(model, seed, rate=dropout)
        losses = kind.losses()
        # What Keras trains: the model, or the part of it that is not computed beforehand.
        depth = frozen_depth(model) if cache_frozen else 0
        trained = kind.trained(model, jit_compile=jit_compile)
        if cache_frozen and trained is not model:
            raise InputError(f"cache_frozen=True: what {kind.name} reads of a text is another in each step; leave it out.")
        trained = UpperBlocks(model, depth) if depth else trained
        if mixout:
            trained = Mixout(trained, model, mixout, seed=seed)
            dropout_layers = dropout_layers + trained.dropouts
        if checkpoint_gradients:
            trained = GradientCheckpointing(trained, model)
        freezing = None
        if freeze_adapters is None and freeze_epochs is not None:
            raise InputError(f"freeze_epochs={freeze_epochs!r} says when freeze_adapters freezes: give both, or neither.")
        if freeze_adapters is not None:
            if epochs is None or strategy is not None:
                raise InputError(f"freeze_adapters={freeze_adapters!r} goes with epochs, and without a strategy: leave it out.")
            if freeze_epochs is None:
                freeze_epochs = (max(1, epochs // 10), max(2, epochs // 2))
            trained = freezing = AdapterFreezing(
                trained, model, threshold=freeze_adapters, epochs=freeze_epochs, examples=examples, wordpiece=wordpiece
            )
        if accumulate > 1:
            trained = GradientAccumulation(trained, accumulate, kind.loss_weight)
        trained = workers.wrap(trained)
        trained.compile(
            optimizer=make_optimizer(
                WarmupLinearDecay(learning_rate, steps, warmup_fraction=warmup_fraction),
                model.trainable_variables,
                weight_decay=weight_decay,
                clip_norm=clip_norm,
            ),
            jit_compile=jit_compile,
            **losses,
        )
        if trained is not model:
            # As it would be otherwise: `evaluate` works afterwards.
            model.compile(optimizer=trained.optimizer, jit_compile=jit_compile, **kind.losses())
        metrics = tf.nest.flatten(losses["metrics"])
        trained.optimizer.build(model.trainable_variables)
        for note in getattr(examples, "notes", ()):
            reporter.note(note)
        run = Run(
            model=model,
            trained=trained,
            freezing=freezing,
            depth=depth,
            task=task,
            kind=kind,
            examples=examples,
            wordpiece=wordpiece,
            output=workers.folder(pathlib.Path(output), resume),
            workers=workers,
            steps=steps,
            steps_per_epoch=chosen_period,
            keep_periods=keep_periods,
            settings={
                "epochs": epochs,
                "steps": None if period is None else steps,
                "period": period,
                "kind": kind.settings(),
                "learning_rate": learning_rate,
                "batch_size": batch_size,
                "accumulate": accumulate,
                "checkpoint_gradients": checkpoint_gradients,
                "warmup_fraction": warmup_fraction,
                "dropout": dropout,
                "weight_decay": weight_decay,
                "clip_norm": clip_norm,
                "mixout": mixout,
                "freeze_adapters": freeze_adapters,
                "freeze_epochs": None if freeze_adapters is None else list(freeze_epochs),
                "patience": patience,
                "seed": seed,
                "strategy": workers.name,
                "jit_compile": jit_compile,
                "fast": state.fast,
                "cached_blocks": depth,
                "padded_to": padding_multiple(fast=state.fast, steps=steps),
                "precision": keras.mixed_precision.global_policy().name,
                "trainable": state.trainable,
                "adapter": state.adapters[state.active].config.to_dict() if state.active else None,
                "pretrained_adapter": state.pretrained_adapter and state.pretrained_adapter["sha256"],
                "text": wordpiece.settings(),
                "frozen_weights": frozen_digest(model),
                "training_rows": len(task.train),
                "training_data": task.train.digest(),
                "validation_data": task.validation.digest(),
            },
            variables={
                "trainable": model.trainable_variables,
                "optimizer": _optimizer_variables(trained.optimizer),
                "dropout": [layer.generator.state for layer in dropout_layers],
                "metric": workers.per_replica([variable for metric in metrics for variable in metric.variables]),
            },
            scorer=kind.scorer(
                model,
                wordpiece,
                batch_size=batch_size,
                lengths=default_lengths(wordpiece.max_length) if jit_compile else None,
                jit_compile=jit_compile,
            ),
            recipe=recipe,
            checkpoint_seconds=checkpoint_seconds,
            tensorboard=tensorboard,
            reporter=reporter,
        )
        workers.same_settings(run.settings)
        if resume:
            run.restore()
        return run

    return prepared(model).train(-(-steps // of_epoch), batch_size, seed, jit_compile)


def _optimizer_variables(optimizer):
    variables = list(optimizer.variables)
    if isinstance(optimizer, keras.mixed_precision.LossScaleOptimizer):
        known = {id(variable) for variable in variables}
        scale = optimizer._loss_scale
        extra = [getattr(scale, name, None) for name in ("_current_loss_scale", "_counter")]
        variables += [variable for variable in extra if variable is not None and id(variable) not in known]
    return variables
