"""Which weights train, and in how many bits the others are kept. Freezing happens in this file and nowhere else."""

import dataclasses
import math
import re
from typing import Optional

from tf_adapters._types import Model
from tf_adapters.errors import InputError
from tf_adapters.models.origin import check_not_cast, digest_of, is_cast
from tf_adapters.models.state import is_bias, state_of
from tf_adapters.models.transaction import transaction

MODES = ("adapters", "full", "top-N", "layer-norm", "bias", "head")


@transaction
def set_trainable(model: Model, mode: str = "adapters", *, head: bool = True) -> Model:
    """Choose the weights that train, before `compile` or after it.

    A model that was compiled or trained already goes on with its optimizer: what trained before and still does keeps
    its moments.

    Args:
        model: a model of transformers or KerasHub, with adapters or without.
        mode: str, one of

            - `"adapters"`: the active adapter, the LayerNorms that its config names, the head.
            - `"full"`: everything, the active adapter included.
            - `"top-N"`: the N topmost blocks without adapters, the pooler and the head
              (variable fine-tuning). N equal to the depth is full fine-tuning, embeddings
              included, as in Houlsby et al., section 3.3.
            - `"layer-norm"`: all pretrained LayerNorms and the head.
            - `"bias"`: every bias of the encoder, the LayerNorms' included, and the head (BitFit, Ben Zaken et al.
              2022).
            - `"head"`: the head alone.

            Adapters that are not active never train.
        head: bool, whether the head trains too; False for one that was pretrained, such as that of masked words.

    Returns: the model.

    Raises:
        InputError: unknown mode, N out of range, `"adapters"` without adapters, or weights that `cast_frozen` rounded.

    Reference: Houlsby et al. 2019, sections 2.1, 3.3 and 3.4.
    """
    state = state_of(model)
    variables = _chosen_variables(model, state, mode)
    before = state.owner.pretrained or {"trainable": "adapters"}
    saving = dict.fromkeys((before["trainable"], "full"))
    if before["trainable"] != "adapters" and mode not in saving:
        raise InputError(
            f"{{mode}}: the encoder's own weights are those of {before['directory']}, which only "
            f"{' or '.join(map(repr, saving))} saves again.",
            mode=mode,
        )
    if not head:
        frozen = {id(variable) for variable in state.head_variables(model)}
        variables = [variable for variable in variables if id(variable) not in frozen]
        if not variables:
            raise InputError("{head}: with {mode} nothing would train.", head=False, mode=mode)
    check_not_cast(variables, f"mode={mode!r}")
    chosen = {id(variable) for variable in variables}
    state.door.keep_float32(model, state)
    state.origin(model)
    state.door.choose(model, state, chosen)
    state.trainable = mode
    state.door.follow(model)
    return model


@transaction
def freeze(model):
    """Let nothing train: for a model that only predicts.

    `save_adapter` refuses such a model, since nothing says any more what was trained.

    Returns: the model.
    """
    state = state_of(model)
    state.door.keep_float32(model, state)
    state.door.freeze(model, state)
    state.trainable = None
    state.door.follow(model)
    return model


@transaction
def cast_frozen(model: Model, dtype: Optional[str] = None) -> Model:
    """Keep the encoder's frozen kernels and embeddings in fewer bits, and no longer in float32.

    A transformers model keeps them in the dtype that it computes in: under `mixed_bfloat16` and `mixed_float16` they
    take half the memory and are not cast at every step; without such a policy nothing happens. Results stay what they
    are.

    A model of KerasHub keeps them in `"int8"`, a quarter of the memory, and computes their products in it, as Keras'
    own `quantize` does. Results change by the rounding. Methods in dense layers compute with what the eight bits stand
    for, and so does `save_adapter` for weights that training had changed before.

    Biases, LayerNorms, adapters, the head and whatever trains stay in float32. Adapters are saved and loaded as before.
    The float32 values are given up. A `set_trainable` that would train them raises InputError from then on, and so do
    `change_head`, `merge_adapter`, and `remove_adapters` of the last adapter, if it was there before the cast.
    Checkpoints of the whole model from before do not fit any more; transformers' `save_pretrained` writes the rounded
    values, and in bfloat16 only `safe_serialization=True` makes files that can be read again. `save_weights` refuses
    `.h5` then.

    Call it after `set_trainable` and before `compile`, or for a model that only predicts, after `freeze`.

    Args:
        dtype: None for a model of transformers, `"int8"` for one of KerasHub.

    Returns: the model.

    Raises:
        InputError: nothing is frozen, because neither was called; another dtype than the model's door has.
    """
    state = state_of(model)
    door, origin = state.door, state.origin(model)
    if dtype != door.FEWER_BITS:
        raise InputError(f"{{dtype}} must be {door.FEWER_BITS!r} for a {type(model).__name__}.", dtype=dtype)
    trains = {id(variable) for variable in model.trainable_variables}
    frozen = {id(variable) for variable in state.backbone_variables(model)} - trains
    exchanged = door.cast_frozen(model, state, frozen)
    for old, new in exchanged:
        origin.exchange(old, new)
    if exchanged:
        # These keep the old variables alive, and the model before the adapters cannot be restored any more.
        state.freezing = None
        door.forget_traces(model)
    elif state.trainable is None and len(trains) == len(model.weights) and not any(map(is_cast, model.weights)):
        raise InputError("cast_frozen(model): nothing is frozen: call set_trainable(model, ...) or freeze(model).")
    return model


def _chosen_variables(model, state, mode):
    family = state.family
    head = state.head_variables(model)
    active = state.adapters.get(state.active)
    if mode == "head":
        return head
    if mode == "layer-norm":
        return head + state.layer_norm_variables(model)
    if mode == "bias":
        return head + [variable for variable in state.backbone_variables(model) if is_bias(variable.name, "beta")]
    if mode == "adapters":
        if active is None:
            raise InputError(
                "{mode}: the model has no adapters: call add_adapters(model, config), or choose another mode.",
                mode="adapters",
            )
        norms = state.layer_norm_variables(model, active.config.train_layer_norm, active.config.blocks)
        return head + learned_variables(active) + norms
    blocks = family.blocks(model)
    match = re.fullmatch(r"top-(\d{1,4})", mode) if isinstance(mode, str) else None
    if match and not 1 <= int(match[1]) <= len(blocks):
        raise InputError(f"{{mode}}: N must be from 1 to {len(blocks)}, the number of the encoder's blocks.", mode=mode)
    if mode == "full" or (match and int(match[1]) == len(blocks)):
        return head + state.backbone_variables(model) + (learned_variables(active) if mode == "full" and active else [])
    if match:
        adapters = {id(variable) for variable in state.adapter_variables()}
        top = blocks[-int(match[1]) :] + ([family.pooler(model)] if family.reads_pooler(model) else [])
        return head + [v for layer in top for v in layer.weights if id(v) not in adapters]
    raise InputError(f"{{mode}} is unknown: use one of {', '.join(MODES)}, with a number for N.", mode=mode)


def learned_variables(adapter):
    """The weights of a `NamedAdapter` that train with it."""
    return [variable for layer in adapter.layers.values() for variable in layer.learned]


@dataclasses.dataclass(frozen=True)
class ParameterCounts:
    """Numbers of parameters.

    Attributes:
        total: all of the model, every adapter on it included, and of heads the one that is on it.
        trainable: those that train; the sum of the four below.
        adapter, layer_norm, head, backbone: trainable ones of each kind; `backbone` is
            the pretrained encoder without its LayerNorms.
    """

    total: int
    trainable: int
    adapter: int
    layer_norm: int
    head: int
    backbone: int

    @property
    def share(self):
        """Trainable parameters over the total, from 0 to 1."""
        return self.trainable / self.total


def parameter_counts(model: Model) -> ParameterCounts:
    """Count the parameters of a model by what they are; see `ParameterCounts`."""
    state = state_of(model)
    trainable = {id(variable) for variable in model.trainable_variables}
    norms = {id(variable) for variable in state.layer_norm_variables(model)}

    def count(variables):
        return sum(math.prod(variable.shape) for variable in variables if id(variable) in trainable)

    backbone = state.backbone_variables(model)
    return ParameterCounts(
        total=sum(math.prod(variable.shape) for variable in state.door.weights(model)),
        trainable=sum(math.prod(variable.shape) for variable in model.trainable_variables),
        adapter=count(state.adapter_variables()),
        layer_norm=count(variable for variable in backbone if id(variable) in norms),
        head=count(state.head_variables(model)),
        backbone=count(variable for variable in backbone if id(variable) not in norms),
    )


def frozen_digest(model):
    """SHA-256 of every weight that does not train; equal before and after `fit`."""
    door, trains = state_of(model).door, {id(variable) for variable in model.trainable_variables}
    return digest_of(door, model, [weight for weight in door.weights(model) if id(weight) not in trains])
