"""How the frozen weights of an encoder are kept in memory, whatever Keras it is of."""

from typing import Optional

from tf_adapters._types import Model
from tf_adapters.errors import InputError
from tf_adapters.models.door import door_of


def cast_frozen(model: Model, dtype: Optional[str] = None) -> Model:
    """Keep the encoder's frozen kernels and embeddings in fewer bits, and no longer in float32.

    A transformers model keeps them in the dtype that it computes in: under `mixed_bfloat16` and `mixed_float16` they
    take half the memory and are not cast at every step; without such a policy nothing happens. Results stay what they
    are, but for fast blocks, where the scale of the scores is folded into the rounded query kernel.

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
    door = door_of(model)
    if dtype != door.FEWER_BITS:
        raise InputError(f"{{dtype}} must be {door.FEWER_BITS!r} for a {type(model).__name__}.", dtype=dtype)
    return door.cast_frozen(model)


def is_cast(variable):
    """Whether `cast_frozen` put a variable in place of a float32 one, through whichever model."""
    return hasattr(variable, "_tf_adapters_cast")


def check_frozen(model, state, trains):
    """Raise InputError where nothing was frozen, and so nothing is to be cast; `trains` are the ids of what trains."""
    if state.trainable is None and len(trains) == len(model.weights) and not any(map(is_cast, model.weights)):
        raise InputError(
            "cast_frozen(model): nothing is frozen; call set_trainable(model, ...) or freeze(model) first."
        )


def check_not_cast(variables, what):
    """Raise InputError if `what` needs the float32 values of a variable that no longer has them."""
    lost = next(filter(is_cast, variables), None)
    if lost is not None:
        raise InputError(
            f"{what} needs the encoder's float32 weights, and cast_frozen replaced them ({lost.name} is "
            f"{getattr(lost.dtype, 'name', lost.dtype)} now): load the model again, and leave cast_frozen out."
        )
