"""Trains a task by `model.fit`, keeps the best epoch, and survives being killed."""

import contextlib
from typing import TYPE_CHECKING, Any, Optional

from tf_adapters._types import Model, PathLike
from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.models.injection import check_acts
from tf_adapters.models.state import state_of
from tf_adapters.models.trainable import frozen_digest, learned_variables
from tf_adapters.models.transaction import transaction
from tf_adapters.paths import to_path
from tf_adapters.saving.atomic import only_writer
from tf_adapters.tasks.rows import Task
from tf_adapters.text.batching import padding_multiple, steps_per_epoch
from tf_adapters.training.run import FitResult, Reporter, Run
from tf_adapters.training.settings import TrainingSettings, check_packages
from tf_adapters.training.strategies import Alone, Workers, scope_of, strategy_for

if TYPE_CHECKING:
    from tf_adapters.text.tokenizer import Tokenizer


def fit(
    model: Model,
    task: Task,
    tokenizer: "Tokenizer",
    output: Optional[PathLike] = None,
    settings: Optional[TrainingSettings] = None,
    *,
    kind: Any = None,
    resume: bool = False,
    reporter: Optional[Reporter] = None,
    strategy: Any = None,
    **fields: Any,
) -> FitResult:
    """Train what `set_trainable` chose, with Adam and linear warm-up and decay.

    After each epoch the validation rows are scored and the adapter directory is replaced if
    the task's metric rose. `output/.resume` holds the state of the run, rewritten every
    `checkpoint_seconds` and after each epoch, and goes when training ends. A run that
    was killed at any moment and resumed ends bit-equal to one that was not, on the
    same machine. SIGINT and SIGTERM save the state and stop after the step at work.

    Args:
        model: a transformers TensorFlow model after `set_trainable`, or a task model of KerasHub; what does not go
            through the second door is refused.
        task: `Task`.
        tokenizer: `Tokenizer`.
        output: path of the adapter directory to write.
        settings: `TrainingSettings`, or None with some of its fields as keywords: `epochs=3, learning_rate=1e-3`.
        kind: `Kind` in place of the one that `task.kind` names, or None.
        resume: bool, go on with the run that `output` holds.
        reporter: `Reporter` or None.
        strategy: `tf.distribute.Strategy` in whose scope the model was made, or None; see
            `training.strategies.make_strategy`. `batch_size` is that of all its devices together, and without dropout
            the result that of one, up to rounding. Several workers share `output`, which the chief writes; they save
            their state every 100 steps.

    Returns: `FitResult`. The model has the best epoch's weights; where a signal `interrupted`, those of the last step.

    Raises:
        InputError: a value out of range, nothing to resume, another run's state, another process that writes to
            `output`; its subclass DivergedError: a loss that is not finite.
    """
    if output is None:
        raise InputError("{output}: give the directory to write.", output=None)
    if settings is not None and fields:
        raise InputError(f"settings and {', '.join(fields)} are given: leave one of them out.")
    settings = TrainingSettings(**fields) if settings is None else settings
    if not isinstance(settings, TrainingSettings):
        raise InputError(
            "{settings} are no TrainingSettings: give TrainingSettings(epochs=..., learning_rate=...).",
            settings=settings,
        )
    return fit_by(settings, model, task, tokenizer, output, kind, resume, reporter, strategy)


def fit_by(settings, model, task, tokenizer, output, kind, resume, reporter, strategy, *, keep_state=False):
    """As `fit`. With `keep_state` the state stays when training ends, for the caller to remove after what follows:
    until then `resume` trains nothing more, and comes to the same result."""
    strategy = strategy_for(model, strategy)
    with contextlib.ExitStack() as held:
        held.enter_context(scope_of(strategy))
        given = kind, resume, reporter or Reporter(), strategy
        run = _begun(model, task, tokenizer, to_path(output), settings, *given, held)
        result = run.train()
        if not (result.interrupted or keep_state):
            run.remove_state()
        return result


@transaction
def _begun(model, task, tokenizer, output, settings, kind, resume, reporter, strategy, held):
    """The `Run` before its next step, which has its folder for as long as `held`, an `ExitStack`, is open; what is
    refused until then leaves the model as it was."""
    state = _checked_state(model)
    check_packages(settings.to_dict())
    kind = kind or get_kind(task.kind)
    settings.check_kind(kind)
    if state.door.NAME == "transformers":
        from tf_adapters.training.step import Trained
    else:
        from tf_adapters.training.step_keras3 import Trained
    settings = Trained.checked(settings, strategy)
    kind.check_model(model, "The task", task.labels)
    examples = kind.examples(task.train, tokenizer)
    if settings.jit_compile and len(examples) < settings.batch_size:
        raise InputError(
            f"{{batch_size}} is above the {len(examples)} training examples, and with XLA only full batches train.",
            batch_size=settings.batch_size,
        )
    random_drop = 0
    if state.active:
        config, depth = state.adapters[state.active].config, len(state.family.blocks(model))
        random_drop, adapted = config.random_drop, len({block for block, _ in config.sites(depth)})
        if random_drop > adapted:
            raise InputError(
                f"{{random_drop}}: {adapted} blocks have adapters; give {adapted} or less.", random_drop=random_drop
            )
    workers = Alone() if strategy is None else Workers(strategy, settings, random_drop)
    of_epoch = steps_per_epoch(len(examples), batch_size=settings.batch_size, drop_remainder=settings.jit_compile)
    period = settings.period or of_epoch
    if settings.epochs and period > settings.epochs * of_epoch:
        raise InputError(
            f"{{period}} is above the {settings.epochs * of_epoch} steps that epochs={settings.epochs} has on "
            f"{len(examples)} training examples: give as many or less.",
            period=period,
        )
    steps = settings.steps or -(-settings.epochs * of_epoch // period) * period

    if task.labels:
        state.name_labels(model, task.labels)
    trained = Trained(model, kind, examples, tokenizer, settings, workers)
    variables = trained.compile(steps)
    for note in getattr(examples, "notes", ()):
        reporter.note(note)
    compared = _compared(model, task, tokenizer, trained, steps)
    workers.check(output, compared)
    run = Run(
        trained=trained,
        task=task,
        output=output,
        steps=steps,
        steps_per_epoch=period,
        passes=-(-steps // of_epoch),
        compared=compared,
        variables=variables,
        reporter=reporter,
    )
    # What resumes takes values from the folder, and cuts its log, when it has it; it makes none.
    if workers.chief and (output.is_dir() or not resume):
        held.enter_context(only_writer(output, wait=0))
    if resume:
        run.restore()
    return run


def _checked_state(model):
    """The `ModelState`; InputError unless it is known what trains, and that it acts."""
    state = state_of(model)
    if state.trainable is None:
        raise InputError("Call set_trainable(model, ...) before fit, so that it is known what trains.")
    check_acts(state, "fit")
    trains = {id(variable) for variable in model.trainable_variables}
    if state.trainable == "adapters" and not (
        state.acting_name and any(id(v) in trains for v in learned_variables(state.owner))
    ):
        raise InputError(
            f"What set_trainable(model, 'adapters') chose is not the adapter that acts ({state.acting_name!r}): make "
            "the one that is to train active, and call it again."
        )
    others = [name for name in state.adapters if name != state.active]
    norms = {id(variable) for variable in state.layer_norm_variables(model)}
    saved = [v for v in state.backbone_variables(model) if id(v) in trains] if others else []
    if any(id(v) not in norms for v in [*saved, *(state.changed(model, state.owner) if others else ())]):
        raise InputError(
            f"The encoder's own weights train or were changed (set_trainable(model, {state.trainable!r})), on which "
            f"other adapters ({', '.join(others)}) were not trained: remove them first, or train in another model."
        )
    return state


def _compared(model, task, tokenizer, trained, steps):
    """Everything that decides what a run comes to, a dict for JSON."""
    state, settings = state_of(model), trained.settings
    return {
        **settings.of("compared"),
        "kind": trained.kind.settings(),
        "strategy": trained.workers.name,
        "fast": state.fast,
        "cached_blocks": trained.depth,
        "padded_to": padding_multiple(fast=state.fast, steps=steps),
        "precision": trained.precision,
        **trained.identity,
        "trainable": state.trainable,
        "adapter": state.adapters[state.active].config.to_dict() if state.active else None,
        "pretrained_adapter": state.owner.pretrained and state.owner.pretrained["sha256"],
        "text": tokenizer.settings(),
        "frozen_weights": frozen_digest(model),
        "metric": task.metric,
        "label_names": list(task.labels),
        "value_range": getattr(task.train, "value_range", None),
        "training_rows": len(task.train),
        "training_data": task.train.digest(),
        "validation_data": task.validation.digest(),
    }
