"""Reads a checkpoint's tensors one at a time, under PyTorch names, from safetensors or h5.

These names depend neither on Keras scopes nor on injection.
"""

import contextlib
import importlib.util
import pathlib
import re

import ml_dtypes
import numpy as np

from tf_adapters.errors import InputError, shown
from tf_adapters.paths import check_readable, read_json, to_path

WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json", "tf_model.h5")
_DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL")
_MOST_DIMENSIONS = 8


class SafetensorsFiles:
    """One safetensors file or the shards of one checkpoint; iterates over names.

    Attributes:
        path: the file, or the index of the shards, for messages.
        size: int, bytes of the files.
        pytorch_layout: bool, whether matrices are transposed with regard to TensorFlow's: not in files that a
            TensorFlow model of transformers wrote, as their headers say.
    """

    def __init__(self, path, files):
        from safetensors import SafetensorError, safe_open

        self.path, self.size, self.pytorch_layout = path, 0, True
        self._where = {}
        for file in files:
            try:
                with open(file, "rb"):
                    pass  # of one that may not be read safetensors says that it is not there
                self.size += file.stat().st_size
                # TensorFlow's reader where there is one: older ones for NumPy have no bfloat16.
                handle = safe_open(str(file), framework="tf" if importlib.util.find_spec("tensorflow") else "np")
                names = list(handle.keys())
                ours = (handle.metadata() or {}).get("format") == "tf"
            except FileNotFoundError:
                raise InputError(f"{path} names {shown(file.name)}, which is not beside it.") from None
            except SafetensorError as error:
                raise InputError(
                    f"{file} is not a complete safetensors file ({str(error)[:200]}): fetch it again."
                ) from None
            except (OSError, ValueError) as error:  # also of a name that no file can have
                raise InputError(
                    f"{shown(str(file))} cannot be read: {getattr(error, 'strerror', None) or error}."
                ) from None
            if self._where and self.pytorch_layout == ours:
                raise InputError(f"{path} names files of PyTorch and of TensorFlow: fetch the files again.")
            self.pytorch_layout = not ours
            for name in names:
                part = handle.get_slice(name)
                if len(part.get_shape()) > _MOST_DIMENSIONS or part.get_dtype() not in _DTYPES:
                    raise InputError(
                        f"{file}: {shown(name)} has {len(part.get_shape())} dimensions of {part.get_dtype()}, and not "
                        f"at most {_MOST_DIMENSIONS} of {', '.join(_DTYPES)}."
                    )
                # TensorFlow's names lack the model's scope here, which the converter takes off.
                known_as = _modern(pytorch_name(f"model/{name}", part.get_shape())[0] if ours else name)
                if known_as in self._where:
                    raise InputError(f"{path} holds {shown(known_as)} twice: fetch the files again.")
                self._where[known_as] = (handle, name)

    def __iter__(self):
        return iter(self._where)

    def __len__(self):
        return len(self._where)

    def shape(self, name):
        """Shape as stored, a tuple."""
        handle, stored = self._where[name]
        return tuple(handle.get_slice(stored).get_shape())

    def read(self, name):
        """The tensor as a float32 NumPy array."""
        handle, stored = self._where[name]
        with np.errstate(over="ignore"):  # infinity is refused by who reads
            return np.asarray(handle.get_tensor(stored)).astype(np.float32)


class H5File:
    """A `tf_model.h5` of transformers, as of `SafetensorsFiles`; its matrices are laid out as TensorFlow's."""

    pytorch_layout = False

    def __init__(self, path):
        import h5py

        self.path = path
        check_readable(path)
        try:
            self.size = path.stat().st_size
            self._file = h5py.File(path, "r")
            self._where = {}
            self._file.visititems(self._note)
        except InputError:
            raise
        except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is not a complete HDF5 file ({error}): fetch it again.") from None

    def _note(self, path, item):
        if hasattr(item, "shape"):
            if item.external or item.is_virtual:
                raise InputError(
                    f"{self.path}: {shown(path)} is kept in another file, which is not read: fetch the model again."
                )
            if item.dtype.kind not in "fiu" or item.shape is None or "/" not in path:
                raise InputError(f"{self.path}: {shown(path)} is no weight of a layer: fetch the file again.")
            # The first level is the Keras layer's name, the second the model's scope.
            path = path.split("/", 1)[1]
            name = pytorch_name(path, item.shape)[0]
            # A variable of an adapter has "adapters" for its scope: keep it, for the loader to see.
            self._where[("adapters." if path.startswith("adapters/") else "") + _modern(name)] = item

    def __iter__(self):
        return iter(self._where)

    def __len__(self):
        return len(self._where)

    def shape(self, name):
        """Shape as stored, a tuple."""
        return tuple(self._where[name].shape)

    def read(self, name):
        """The tensor as a float32 NumPy array."""
        try:
            return np.asarray(self._where[name]).astype(np.float32)
        except (OSError, RuntimeError) as error:
            raise InputError(f"{self.path} is not a complete HDF5 file ({error}): fetch it again.") from None

    def close(self):
        self._file.close()


def names_of_outputs(config):
    """What a `config.json` (its dict) calls the outputs of the head, a list in index order, empty unless complete."""
    names = config.get("id2label")
    ordered = [names.get(str(number)) for number in range(len(names))] if isinstance(names, dict) else []
    return ordered if all(isinstance(name, str) for name in ordered) else []


def _modern(name):
    """Checkpoints converted from the first TensorFlow release call LayerNorm's weights gamma and beta."""
    return re.sub(r"(?<=LayerNorm\.)(gamma|beta)$", lambda found: {"gamma": "weight", "beta": "bias"}[found[0]], name)


def read_tensors(path):
    """All tensors of a safetensors file, a dict from name to float32 array; InputError if it is damaged, or holds
    something that no weight is: NaN, infinity, too many dimensions."""
    path = to_path(path)
    file = SafetensorsFiles(path, [path])
    arrays = {name: file.read(name) for name in file}
    check_finite(arrays, path)
    return arrays


def shard_names(index):
    """Names of the files that an index of shards names, without folders, sorted; InputError if it is none."""
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not shards or not all(isinstance(shard, str) for shard in shards.values()):
        raise InputError(f"{index} is not an index of safetensors shards.")
    return sorted({pathlib.Path(shard).name for shard in shards.values()})


@contextlib.contextmanager
def open_weights(directory, candidates):
    """Open the first of the `candidates` that the directory holds; InputError if none is there, or it cannot be
    read."""
    directory = to_path(directory)
    for candidate in candidates:
        path = directory / candidate
        if not path.exists():
            continue
        if candidate.endswith(".h5"):
            with contextlib.closing(H5File(path)) as file:
                yield file
        elif candidate.endswith(".index.json"):
            shards = shard_names(path)
            yield SafetensorsFiles(path, [directory / shard for shard in shards])
        else:
            yield SafetensorsFiles(path, [path])
        return
    pickles = sorted(path.name for path in directory.glob("*.bin"))
    advice = f"; {pickles[0]} is a pickle, which is never opened: use a revision with safetensors" if pickles else ""
    raise InputError(f"{directory} holds none of {', '.join(candidates)}{advice}.")


def check_finite(arrays, source, *, dtype="float32"):
    """Raise InputError if an array holds NaN or infinity, which answer a label and no error, or what the dtype of the
    variables that are to have it cannot hold; `source` is the path of what was read."""
    largest = float(ml_dtypes.finfo(dtype).max)
    for name, value in arrays.items():
        # Not by an array of comparisons, which takes five times as long. NaN is passed on, and compares as false.
        if value.size and not -largest <= float(value.min()) <= float(value.max()) <= largest:
            what = f"numbers beyond what {dtype} holds: store it as float32"
            if dtype == "float32":
                what = "NaN or infinity (or what float32 cannot hold): train or fetch the weights again"
            raise InputError(f"{source}: {name} holds {what}.")


def read_weights(door, named, prefix, directory, kept=()):
    """Assign every weight of an encoder's checkpoint, one tensor in memory at a time.

    Args:
        door: the model's, as of `models.door`.
        named: dict from PyTorch's name to `(variable, whether PyTorch transposes it)`.
        prefix: str, what names of the encoder begin with.
        directory: path.
        kept: ids of variables that must have the checkpoint's values already.

    Returns: whether it lacks the pooler, and the ids of the variables that it has.

    Raises:
        InputError: it is of another encoder, incomplete or damaged.
    """
    prefix, found = prefix + ".", set()
    pooler = prefix + "pooler."
    with open_weights(directory, WEIGHT_FILES) as weights:
        # A checkpoint of the bare encoder lacks the prefix.
        bare = not any(key.startswith(prefix) for key in weights)
        keys = {prefix + key if bare else key: key for key in weights}
        missing = [name for name in named if name.startswith(prefix) and name not in keys]
        lost = [name for name in missing if not name.startswith(pooler)]
        if lost:
            raise InputError(
                f"{weights.path} lacks {len(lost)} weights of the encoder in config.json, {lost[0]} the first: it is "
                "of another model, or cut short."
            )
        _refuse_unread(weights, [key for key in keys if key not in named], prefix, pooler)
        for name, (variable, transposed) in named.items():
            if name not in keys:
                continue
            # Weights read from h5 are laid out as TensorFlow's own.
            transposed = transposed and weights.pytorch_layout
            shape, expected = weights.shape(keys[name]), door.shape(variable)
            expected = expected[::-1] if transposed else expected
            if shape != expected:
                if not name.startswith(prefix):
                    continue  # a head for another number of labels
                raise InputError(f"{weights.path}: {keys[name]} has shape {shape} and config.json asks for {expected}.")
            value = weights.read(keys[name])
            check_finite({keys[name]: value}, weights.path)
            value = value.T if transposed else value
            if id(variable) in kept:
                # A pooler of the files fits no other encoder, however this one came to its values.
                if not np.array_equal(variable.numpy(), value.astype(np.float32)):
                    raise InputError(
                        f"model: its encoder was changed since it was loaded ({name}, {weights.path}): load it again."
                    )
                continue
            variable.assign(value.reshape(tuple(variable.shape)))
            found.add(id(variable))
    return bool(missing), found


def _refuse_unread(weights, unread, prefix, pooler):
    """Raise InputError for weights of an encoder that a model would silently drop; `unread` are their names."""
    adapters = [key for key in unread if "adapter" in key]
    if adapters:
        raise InputError(
            f"{weights.path} holds adapters ({adapters[0]}, ...): load the encoder, then use load_adapter."
        )
    extra = [key for key in unread if key.startswith(prefix) and not key.startswith(pooler)]
    extra = [key for key in extra if not key.endswith("embeddings.position_ids")]
    if extra:
        raise InputError(
            f"{weights.path} has {len(extra)} encoder weights that config.json does not describe, {extra[0]} the "
            "first: that is of another model."
        )


def pytorch_name(name, shape):
    """PyTorch name of a TensorFlow weight, and whether the matrix is transposed there.

    Args:
        name: str, a variable name such as
            `tf_bert_model/bert/encoder/layer_._0/output/dense/kernel:0`.
        shape: its shape.

    Returns: `("bert.encoder.layer.0.output.dense.weight", True)`.
    """
    # The first part is the model's name; `layer_._0` is layer 0, and what stands before `___` is left out.
    first, *parts = name.replace(":0", "").split("/")
    parts[:-1] = [part.rpartition("___")[2] for part in parts[:-1]]
    *owners, last = [part for part in "/".join(parts).replace("_._", "/").split("/") if part] or [first]
    kinds = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}
    return ".".join([*owners, kinds.get(last, last)]), last == "kernel" and len(shape) == 2


def named_weights(variables):
    """TensorFlow's variables under their PyTorch names, as of `by_name`."""
    return by_name(variables, lambda variable: pytorch_name(variable.name, variable.shape))


def by_name(variables, name_of):
    """Variables under the names that a function gives, each once: dict from name to `(variable, transposed)`, in the
    order given."""
    named = {}
    for variable in variables:
        name, transposed = name_of(variable)
        if name in named and named[name][0] is not variable:
            raise RuntimeError(f"Two weights are called {name}.")
        named[name] = (variable, transposed)
    return named


def to_pytorch(variable, transposed):
    """The value of a variable of TensorFlow, as of `as_stored`."""
    return as_stored(variable.numpy(), transposed)


def as_stored(array, transposed):
    """A weight as files have it: float32, matrices of the encoder and the head in PyTorch's layout."""
    array = np.asarray(array, dtype=np.float32)
    return np.ascontiguousarray(array.T) if transposed else array
