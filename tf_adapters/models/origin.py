"""Which pretrained encoder a model has, what of it training has changed since, and what of it is kept in fewer bits."""

import hashlib
import zlib

import numpy as np

from tf_adapters.errors import InputError


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
        self._array, self._pooler = door.array, {id(variable) for variable in pooler}
        self.digest = digest_of(door, model, variables, values)
        self.digest_without_pooler = digest_of(door, model, [v for v in variables if id(v) not in self._pooler], values)
        self._prints = {id(variable): self._print(variable, values) for variable in variables}

    def changed(self, variables, values):
        """Those of the encoder's variables whose bits are others now, or that took others' place (transformers'
        `resize_token_embeddings`); arguments as above."""
        known = [v for v in variables if id(v) in self._prints or id(v) not in self._pooler]
        return [v for v in known if self._prints.get(id(v)) != self._print(v, values)]

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


def called(source, digest):
    """How an encoder is called in messages."""
    return f"{source or 'given as a model'}, digest {digest[:12]}..."


def is_cast(variable):
    """Whether `cast_frozen` put a variable in place of a float32 one, through whichever model."""
    return hasattr(variable, "_tf_adapters_cast")


def check_not_cast(variables, what):
    """Raise InputError if `what` needs the float32 values of a variable that no longer has them."""
    lost = next(filter(is_cast, variables), None)
    if lost is not None:
        raise InputError(
            f"{what} needs the encoder's float32 weights, and cast_frozen replaced them ({lost.name} is "
            f"{getattr(lost.dtype, 'name', lost.dtype)} now): load the model again, without cast_frozen."
        )
