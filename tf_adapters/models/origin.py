"""Which pretrained encoder a model has, and what of it training has changed since."""

import hashlib
import zlib

import numpy as np

from tf_adapters.models.transformers.names import named_weights


class Origin:
    """The encoder of a model as it was before anything was trained or loaded.

    Attributes:
        digest: SHA-256 over the canonical names and float32 bytes of its tensors, sorted by name, as hexadecimal
            digits.
        digest_without_pooler: the same, of what an encoder without a pooler has.
    """

    def __init__(self, variables, pooler, values):
        """
        Args:
            variables: the encoder's.
            pooler: those of its pooler, or none.
            values: dict from a variable's id to its value where that is not the one it has now.
        """
        outside = {id(variable) for variable in pooler}
        self.digest = digest_of(variables, values)
        self.digest_without_pooler = digest_of([v for v in variables if id(v) not in outside], values)
        self._prints = {id(variable): _print(variable, values) for variable in variables}

    def changed(self, variables, values):
        """Those of the encoder's variables whose bits are others now; arguments as above."""
        return [v for v in variables if id(v) in self._prints and self._prints[id(v)] != _print(v, values)]

    def exchange(self, old, new):
        """Note that `new` stands for `old` from now on, with a value that counts as unchanged if the old one was."""
        if self._prints.get(id(old)) == _print(old, {}):
            self._prints[id(new)] = _print(new, {})
        elif id(old) in self._prints:
            self._prints[id(new)] = None


def digest_of(variables, values=None):
    """SHA-256 over canonical names and float32 bytes of variables, sorted by name; `values` has those of some by their
    id."""
    hasher, named = hashlib.sha256(), named_weights(variables)
    for name in sorted(named):
        variable, _ = named[name]
        hasher.update(f"{name} {tuple(variable.shape)}\n".encode())
        hasher.update(np.ascontiguousarray(_value(variable, values or {}), dtype=np.float32))
    return hasher.hexdigest()


def _value(variable, values):
    value = values.get(id(variable))
    return np.asarray(variable.read_value() if value is None else value)


def _print(variable, values):
    # A checksum tells a changed weight from an unchanged one, at some four times SHA-256's speed; nobody forges it in
    # one process.
    return zlib.crc32(np.ascontiguousarray(_value(variable, values)).view(np.uint8))
