"""Task-adaptive pretraining: adapters, or everything, learn to guess hidden words of a task's own texts."""

import dataclasses
from typing import TYPE_CHECKING, Any, Dict, Optional

from tf_adapters._types import Model, PathLike
from tf_adapters.config import MethodConfig
from tf_adapters.errors import NAME, DivergedError, InputError
from tf_adapters.kinds.masked_lm import MaskedLanguageModelling
from tf_adapters.models.injection import add_adapters
from tf_adapters.models.state import state_of
from tf_adapters.models.trainable import cast_frozen, set_trainable
from tf_adapters.paths import to_path
from tf_adapters.ranges import in_range
from tf_adapters.saving.atomic import only_writer, remove_dead, remove_folder
from tf_adapters.saving.directory import load_adapter
from tf_adapters.saving.settings import SETTINGS_FILE, read_settings
from tf_adapters.training.disk import HEAD_FOLDER, RESUME_FOLDER, refuse_other
from tf_adapters.training.fit import fit
from tf_adapters.training.run import FitResult, Reporter
from tf_adapters.training.settings import TrainingSettings
from tf_adapters.training.strategies import refuse_workers

if TYPE_CHECKING:
    from tf_adapters.text.tokenizer import Tokenizer

# Of a head that did not come with the encoder.
HEAD_STEPS, HEAD_LEARNING_RATE = 500, 1e-3


@dataclasses.dataclass(frozen=True)
class PretrainResult:
    """What `pretrain` returns.

    Attributes:
        head: dict of the validation numbers of the fitted head on the frozen encoder, or None if none was fitted.
        run: `FitResult` of the run, or of the head's if that was interrupted.
    """

    head: Optional[Dict[str, float]]
    run: FitResult


def check_pretraining(model, tokenizer, adapter, fit_head_steps):
    """How many steps fit a new head; raises InputError as `pretrain`, whose arguments these are, before it begins."""
    state = state_of(model)
    if state.family.head_of(model) != MaskedLanguageModelling.head or state.adapters:
        raise InputError('model: pretraining takes load_backbone(source, head="masked-lm"), without adapters.')
    config = state.door.config_of(model)
    if tokenizer.mask_id is not None and tokenizer.mask_id >= config.vocab_size:
        raise InputError(
            f"model: its vocabulary of {config.vocab_size} has no place for the mask, {tokenizer.mask_id}: give "
            "the files that belong together."
        )
    if fit_head_steps is None:
        fit_head_steps = 0 if state.pretrained_head else HEAD_STEPS
    if not fit_head_steps and not state.pretrained_head:
        raise InputError(
            "{fit_head_steps}: this checkpoint has no head of masked words: fit one, for which 500 steps are usual.",
            fit_head_steps=0,
        )
    if adapter is not None:
        adapter.sites(config.num_hidden_layers)
    return fit_head_steps


@in_range
def pretrain(
    model: Model,
    texts: Any,
    tokenizer: "Tokenizer",
    *,
    output: PathLike,
    adapter: Optional[MethodConfig] = None,
    steps: int,
    save_every: int,
    learning_rate: float,
    fit_head_steps: Optional[int] = None,
    head_learning_rate: float = HEAD_LEARNING_RATE,
    rate: float = 0.15,
    whole_words: bool = False,
    seed: int = 0,
    fast: bool = False,
    resume: bool = False,
    reporter: Optional[Reporter] = None,
    head_reporter: Optional[Reporter] = None,
    strategy: Any = None,
    **settings: Any,
) -> PretrainResult:
    """Train by masked-language modelling, and keep an adapter directory every `save_every` steps.

    Where the checkpoint has no head of masked words, one is fitted first, on the frozen encoder; afterwards a head that
    stays as it is asks of the adapters that they make the hidden words easier to guess. With `adapter=None` everything
    trains, the head too.

    Args:
        model: as `load_backbone(source, head="masked-lm")` returns it.
        texts: `Task` of the kind "masked-lm", as of `tasks.own_files`; the validation texts measure perplexity.
        tokenizer: `Tokenizer`; a text is cut at its `max_length`.
        output: path. It becomes the adapter directory of the least perplexity, and `output/step-N` that after N steps.
        adapter: `MethodConfig` of what trains, or None for everything.
        steps, save_every: ints; the first a multiple of the second.
        learning_rate: float, the peak.
        fit_head_steps: int, for how many steps a new head is fitted, 0 for none; None for 500 if the checkpoint has
            none. Its directory is `output/head`.
        head_learning_rate: float, the peak of these steps.
        rate, whole_words: as of `kinds.masked_lm.Masking`.
        seed: int, decides masks, order, dropout and initial weights.
        fast: as in `add_adapters`.
        resume: bool, go on with the run that `output` holds, in either part.
        reporter, head_reporter: `Reporter` of the run and of the head's, or None.
        strategy: as in `fit`.
        settings: further fields of `TrainingSettings`, such as batch_size; a mixout is not of the head.

    Returns: `PretrainResult`.

    Raises:
        InputError: as `fit`; a model with another head, or with adapters.

    Reference: Gururangan et al. 2020, section 4; He et al. 2021, section 3.1 (TAPT with adapters); Han et al. 2021,
    section 3 (TSP).
    """
    refuse_workers(strategy, "pretraining")
    state, output = state_of(model), to_path(output)
    fit_head_steps = check_pretraining(model, tokenizer, adapter, fit_head_steps)
    kind = MaskedLanguageModelling(rate=rate, whole_words=whole_words, head_steps=fit_head_steps)
    whole = TrainingSettings(
        steps=steps, period=save_every, keep_periods=True, learning_rate=learning_rate, seed=seed, **settings
    )
    with only_writer(output, wait=0):
        head = None
        if fit_head_steps:
            folder = output / HEAD_FOLDER
            begun = resume and (folder / RESUME_FOLDER).is_dir()
            if not resume:
                remove_folder(folder)
            if begun or not (folder / SETTINGS_FILE).exists():
                set_trainable(model, "head")
                of_head = dict(steps=fit_head_steps, period=fit_head_steps, learning_rate=head_learning_rate)
                own = dataclasses.replace(whole, keep_periods=False, mixout=0.0, **of_head)
                try:
                    result = fit(
                        model, texts, tokenizer, folder, own, kind=kind, resume=begun, reporter=head_reporter,
                        strategy=strategy,
                    )  # fmt: skip
                except DivergedError as error:
                    message = error.template.replace("{learning_rate}", "{head_learning_rate}")
                    raise DivergedError(message, head_learning_rate=NAME) from None
                if result.interrupted:
                    return PretrainResult(None, result)
            else:
                remove_dead(folder)
                saved, now = read_settings(folder), {"learning_rate": head_learning_rate, "seed": seed}
                refuse_other(
                    folder, "a head that was fitted", {**saved["training"], **saved["task"]}, kind.settings() | now
                )
            load_adapter(model, folder)
            head = {name.removeprefix("validation "): value for name, value in read_settings(folder)["metrics"].items()}
        if adapter is not None:
            add_adapters(model, adapter, seed=seed, fast=fast)
        set_trainable(model, "full" if adapter is None else "adapters", head=adapter is None)
        if state.door.NAME == "transformers":
            cast_frozen(model)
        begun = resume and (output / RESUME_FOLDER).is_dir()
        run = fit(model, texts, tokenizer, output, whole, kind=kind, resume=begun, reporter=reporter, strategy=strategy)
        return PretrainResult(head, run)
