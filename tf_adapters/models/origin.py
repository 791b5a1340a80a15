"""Which pretrained encoder a model has, what of it training has changed since, and in how many bits it is kept."""

import hashlib
import zlib
from typing import Optional

import numpy as np

from tf_adapters._types import Model
from tf_adapters.errors import InputError
from tf_adapters.models.door import door_of


class Origin:
    """The encoder of a model as it was before anything was trained or loaded.

    Attributes:
        digest: SHA-256 over the canonical names and float32 bytes of its tensors, sorted by name, as hexadecimal
            digits.
        digest_without_pooler: the same, of what an encoder without a pooler has.
    """

    def __init__(self, door, model, variables, pooler, values):
        """
        Args:
            door: the model's, as of `models.door`.
            model: what names its variables.
            variables: the encoder's.
            pooler: those of its pooler, or none.
            values: dict from a variable's id to its value where that is not the one it has now.
        """
        self._array, outside = door.array, {id(variable) for variable in pooler}
        self.digest = digest_of(door, model, variables, values)
        self.digest_without_pooler = digest_of(door, model, [v for v in variables if id(v) not in outside], values)
        self._prints = {id(variable): self._print(variable, values) for variable in variables}

    def changed(self, variables, values):
        """Those of the encoder's variables whose bits are others now; arguments as above."""
        return [v for v in variables if id(v) in self._prints and self._prints[id(v)] != self._print(v, values)]

    def exchange(self, old, new):
        """Note that `new` stands for `old` from now on, with a value that counts as unchanged if the old one was."""
        if self._prints.get(id(old)) == self._print(old, {}):
            self._prints[id(new)] = self._print(new, {})
        elif id(old) in self._prints:
            self._prints[id(new)] = None

    def _print(self, variable, values):
        return checksum(self._array(variable, values.get(id(variable))))


def checksum(array):
    """Tells a changed weight from an unchanged one, at some four times SHA-256's speed; nobody forges it in one
    process."""
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8))


def digest_of(door, model, variables, values=None):
    """SHA-256 over canonical names and float32 bytes of variables, sorted by name; `values` has those of some by their
    id."""
    hasher, named, values = hashlib.sha256(), door.named_weights(model, variables), values or {}
    for name in sorted(named):
        variable, _ = named[name]
        hasher.update(f"{name} {door.shape(variable)}\n".encode())
        hasher.update(np.ascontiguousarray(door.array(variable, values.get(id(variable))), dtype=np.float32))
    return hasher.hexdigest()


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
