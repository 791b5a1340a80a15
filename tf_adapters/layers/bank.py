"""Many adapters of any method in a few variables, of which each example of a batch takes its own; and of the variables
of several adapters those of one."""

import copy

import numpy as np
import tensorflow as tf

from tf_adapters.errors import InputError
from tf_adapters.layers.method import INNER_NORM_EPSILON

# A branch of a switch is given what all of them read. One switch of N lists would have N times N of them.
_AT_ONCE = 4


def _at(index, lists):
    """Of lists of tensors the one at an index, int32 scalar, from 0 on; any of them where the index is outside."""
    if len(lists) <= _AT_ONCE:
        return tf.switch_case(index, [lambda one=one: [tf.identity(value) for value in one] for one in lists])
    starts = range(0, len(lists), _AT_ONCE)
    groups = [_at(tf.maximum(index - start, 0), lists[start : start + _AT_ONCE]) for start in starts]
    return _at(index // _AT_ONCE, groups)


def pick(place, choices):
    """Of lists of like tensors the one at a place, from 1 on; zeros for 0.

    The gradient of what was not picked is zero. It has no branches, as `tf.switch_case`'s own has: of those each would
    make zeros for what all others read.

    Args:
        place: int32 scalar.
        choices: lists of tensors that have the same shapes and dtypes, by their order.
    """
    count = len(choices[0])

    @tf.custom_gradient
    def picked(*flat):
        lists = [flat[start : start + count] for start in range(0, len(flat), count)]
        values = _at(place, [[tf.zeros_like(value) for value in lists[0]], *lists])

        def gradient(*upstream):
            chosen = [tf.equal(place, number) for number in range(1, len(lists) + 1)]
            return [tf.where(here, of_one, 0) for here in chosen for of_one in upstream]

        return values, gradient

    return picked(*[value for choice in choices for value in choice])


class RowStore:
    """Rows of one shape in one variable whose number of rows may change without a new trace.

    Args:
        rows: array `(rows, ...)`, those that are there from the start.
        dtype: how rows are stored; None for that of `rows`.
        name: str, of the variable.
    """

    def __init__(self, rows, *, name, dtype=None):
        rows = tf.convert_to_tensor(rows)
        self.row_shape, self.name = tuple(rows.shape[1:]), name
        rows = tf.cast(rows, dtype or rows.dtype)
        self.variable = tf.Variable(rows, shape=[None, *self.row_shape], trainable=False, name=name)

    @property
    def capacity(self):
        """Rows that there is room for, an int."""
        return int(tf.raw_ops.VariableShape(input=self.variable.handle).numpy()[0])

    @property
    def row_nbytes(self):
        """Bytes of a row."""
        return int(np.prod(self.row_shape, dtype=np.int64)) * self.variable.dtype.size

    def grow(self, rows):
        """Make room for `rows` rows in all; those before are kept."""
        missing = rows - self.capacity
        if missing > 0:
            self.variable.assign(tf.pad(self.variable, [[0, missing], *[[0, 0]] * len(self.row_shape)]))

    def set(self, places, values):
        """Overwrite rows."""
        values = tf.cast(tf.convert_to_tensor(values), self.variable.dtype)
        tf.raw_ops.ResourceScatterUpdate(
            resource=self.variable.handle, indices=tf.constant(places, tf.int32), updates=values
        )

    def gather(self, rows, dtype=None):
        """The rows of an int32 tensor, cast."""
        rows = tf.convert_to_tensor(rows)
        # TensorFlow forgets the shape of rows whose number it does not know.
        found = tf.ensure_shape(tf.gather(self.variable, rows), [*rows.shape, *self.row_shape])
        return found if dtype is None else tf.cast(found, dtype)


class RowTable:
    """Several `RowStore`s whose rows belong together and are given out and taken back together.

    Rows that are there from the start stay; row 0 is one of them. The stores grow by a quarter.

    Args:
        stores: list of `RowStore` with equally many rows.
    """

    def __init__(self, stores):
        self.stores, self._free = tuple(stores), []

    @property
    def capacity(self):
        """Rows that there is room for, an int."""
        return min(store.capacity for store in self.stores)

    @property
    def used(self):
        """Rows that hold something, row 0 included, an int."""
        return self.capacity - len(self._free)

    @property
    def row_nbytes(self):
        """Bytes of a row in all stores."""
        return sum(store.row_nbytes for store in self.stores)

    @property
    def nbytes(self):
        """Bytes of all stores."""
        return sum(store.capacity * store.row_nbytes for store in self.stores)

    def put(self, *columns):
        """Store rows in free places. Only one thread may do so at a time.

        Args:
            columns: an array `(count, ...)` for each store.

        Returns: their places, a list of int. If it fails, nothing is given out.
        """
        count, capacity = len(columns[0]), self.capacity
        if len(self._free) < count:
            grown = max(capacity + capacity // 4, capacity + count - len(self._free))
            for store in self.stores:
                store.grow(grown)
            self._free[:0] = reversed(range(capacity, grown))
        places = self._free[-count:][::-1]
        for store, values in zip(self.stores, columns):
            store.set(places, values)
        del self._free[-count:]
        return places

    def release(self, places):
        """Take rows back, in any thread."""
        self._free[:0] = places

    def copy(self, places):
        """A table that holds row 0 and the rows of these places behind it, in their order."""
        rows = tf.constant([0, *places], tf.int32)
        return RowTable([RowStore(tf.gather(store.variable, rows), name=store.name) for store in self.stores])


class _Pool:
    """What has its rows in a `RowTable`."""

    def copy(self, places):
        """The same with the rows of these places alone, as `RowTable.copy`."""
        other = copy.copy(self)
        other.table = self.table.copy(places)
        return other


class MethodPool(_Pool):
    """The weights of one method and one size, of which each row of a batch takes its own; row 0 changes nothing.

    A subclass says how it is called, and, of a config, a place and the `(inputs, outputs)` of what stands there:
    `size_of`, by which tasks share a pool; `saved`, the shapes of a directory's parts by their names; and `row`, what
    is stored of them, whose shapes by name `_shapes` has of a size.

    Args:
        size: tuple, as of `size_of`.
        ops: module of `layers.ops`, whose activations are computed.
        dtype: of the stored weights; row 0 is zero.

    Attributes:
        side: `"outputs"`, or `"inputs"` of a pool that changes what a dense layer reads.
        insertion: what a bottleneck reads, as of `AdapterConfig`.
        elementwise: bool, whether it costs so little that rows of others take part.

    Call arguments:
        rows: int32 tensor, `(batch,)`.
        states: float tensor, `(batch, length, units)`, what is changed.
        inputs: float tensor, `(batch, length, inputs)`, what the method reads.

    Returns: as `states`.
    """

    side, insertion, elementwise = "outputs", None, False

    def __init__(self, size, ops, *, dtype="float32"):
        shapes = self._shapes(*size)
        self.size, self.parts = size, tuple(shapes)
        name = "_".join(map(str, (type(self).__name__, *size)))
        self.table = RowTable(
            [RowStore(tf.zeros((1, *shape)), dtype=dtype, name=f"{name}_{part}") for part, shape in shapes.items()]
        )

    def put(self, rows):
        """Store a list of rows, as of `row`; their places, a list of int."""
        return self.table.put(*(np.stack([row[part] for row in rows]) for part in self.parts))

    def weights(self, rows, dtype):
        """Each row's weights by their names; vectors as `(batch, 1, units)`."""
        found = [store.gather(rows, dtype) for store in self.table.stores]
        return {part: each if each.shape.rank == 3 else each[:, tf.newaxis] for part, each in zip(self.parts, found)}


class AdapterPool(MethodPool):
    """Bottleneck adapters: `h + A(x)` or `h * (1 + A(x))`. The factor on `A(x)` is in the up-projection.

    Reference: Houlsby et al. 2019, sections 2.1 and 3.6.
    """

    def __init__(self, size, ops, *, dtype="float32"):
        super().__init__(size, ops, dtype=dtype)
        _, _, activation, self.insertion, self.layers, self.inner_norm, self.interaction = size
        self._activation_function = ops.activation(activation)

    @staticmethod
    def _shapes(hidden_size, m, activation, insertion, layers, inner_norm, interaction):
        widths = {"down": (hidden_size, m), "up": (m, hidden_size)}
        widths |= {f"hidden_{number}": (m, m) for number in range(1, layers)}
        shapes = {f"{name}.kernel": shape for name, shape in widths.items()}
        shapes |= {f"{name}.bias": shape[1:] for name, shape in widths.items()}
        return shapes | ({} if inner_norm == "none" else dict.fromkeys(("norm.gamma", "norm.beta"), (hidden_size,)))

    @staticmethod
    def size_of(config, place, shape):
        names = ("bottleneck_size", "activation", "insertion", "hidden_layers", "inner_norm", "interaction")
        return (shape[0], *(getattr(config, name) for name in names))

    @classmethod
    def saved(cls, config, place, shape):
        learned = {"learned.scaling": ()} if config.scaling == "learned" else {}
        return cls._shapes(*cls.size_of(config, place, shape)) | learned

    @staticmethod
    def row(config, arrays, dense):
        factor = arrays.pop("learned.scaling") if config.scaling == "learned" else config.scaling
        scaled = {part: np.float32(factor) * arrays[part] for part in ("up.kernel", "up.bias")}
        return {**arrays, **scaled}

    def __call__(self, rows, states, inputs):
        weights = self.weights(rows, states.dtype)

        def project(states, name):
            return tf.matmul(states, weights[f"{name}.kernel"]) + weights[f"{name}.bias"]

        def normalise(states):
            return layer_norm(states, weights["norm.gamma"], weights["norm.beta"], INNER_NORM_EPSILON)

        inner = normalise(inputs) if self.inner_norm == "before" else inputs
        for name in ("down", *(f"hidden_{number}" for number in range(1, self.layers))):
            inner = self._activation_function(project(inner, name))
        update = project(inner, "up")
        update = normalise(update) if self.inner_norm == "after" else update
        return states + (states * update if self.interaction == "multiply" else update)


class LoraPool(MethodPool):
    """Low-rank updates of dense layers: `y + x A B`. The scale is in `B`.

    One product with factors that are gathered for each row is never slower than a product over the ranks of all tasks,
    of which a row keeps its own, and does not grow with the number of tasks.

    Reference: Hu et al. 2022, section 4.1.
    """

    @classmethod
    def _shapes(cls, inputs, units, rank):
        return {"a": (inputs, rank), "b": (rank, units)}

    @staticmethod
    def size_of(config, place, shape):
        return (*shape, config.rank)

    @classmethod
    def saved(cls, config, place, shape):
        return LoraPool._shapes(*shape, config.rank)

    @staticmethod
    def row(config, arrays, dense):
        return {**arrays, "b": np.float32(config.alpha / config.rank) * arrays["b"]}

    def __call__(self, rows, states, inputs):
        weights = self.weights(rows, states.dtype)
        return states + tf.matmul(tf.matmul(inputs, weights["a"]), weights["b"])


class DoraPool(LoraPool):
    """Low-rank updates beside a magnitude: `y + (y - bias) e + x A B`, where `e` and the scale of `B` follow from the
    lengths of the kernel's columns with the update and without it.

    Reference: Liu et al. 2024, section 4.1.
    """

    @classmethod
    def _shapes(cls, inputs, units, rank):
        return {**super()._shapes(inputs, units, rank), "excess": (units,), "shift": (units,)}

    @classmethod
    def saved(cls, config, place, shape):
        return {**super().saved(config, place, shape), "magnitude": shape[1:]}

    @staticmethod
    def row(config, arrays, dense):
        kernel, a, b = (values.astype(np.float64) for values in (dense.kernel.numpy(), arrays["a"], arrays["b"]))
        scaling = config.alpha / config.rank
        before, after = (np.linalg.norm(values, axis=0) for values in (kernel, kernel + scaling * a @ b))
        factor = arrays["magnitude"] * before / after
        row = {"a": a, "b": scaling * b * factor, "excess": factor - 1, "shift": (1 - factor) * dense.bias.numpy()}
        return {part: values.astype(np.float32) for part, values in row.items()}

    def __call__(self, rows, states, inputs):
        weights = self.weights(rows, states.dtype)
        update = tf.matmul(tf.matmul(inputs, weights["a"]), weights["b"])
        return states + states * weights["excess"] + weights["shift"] + update


class ScalePool(MethodPool):
    """(IA)^3: what goes into a dense layer, or comes out of it, is scaled: `x (1 + e)`.

    Reference: Liu et al. 2022, section 3.3.
    """

    elementwise = True

    def __init__(self, size, ops, *, dtype="float32"):
        super().__init__(size, ops, dtype=dtype)
        self.side = size[1]

    @staticmethod
    def _shapes(units, side):
        return {"excess": (units,)}

    @staticmethod
    def size_of(config, place, shape):
        side = config.side(place)
        return shape[side == "outputs"], side

    @classmethod
    def saved(cls, config, place, shape):
        return {"scale": cls.size_of(config, place, shape)[:1]}

    @staticmethod
    def row(config, arrays, dense):
        return {"excess": arrays["scale"] - 1}

    def __call__(self, rows, states, inputs):
        return states * (1 + self.weights(rows, states.dtype)["excess"])


# `method` of a config -> what computes it for rows of many tasks.
POOLS = {"bottleneck": AdapterPool, "lora": LoraPool, "dora": DoraPool, "ia3": ScalePool}


def layer_norm(states, gamma, beta, epsilon):
    """A LayerNorm over the last axis, in float32, whose gamma and beta may be each row's own, `(batch, 1, units)`."""
    wide = tf.cast(states, tf.float32)
    mean, variance = tf.nn.moments(wide, [-1], keepdims=True)
    gamma, beta = (tf.cast(values, tf.float32) for values in (gamma, beta))
    return tf.cast(tf.nn.batch_normalization(wide, mean, variance, beta, gamma, epsilon), states.dtype)


class HeadPool(_Pool):
    """Classifiers of one size: one dense layer, or two with an activation between them.

    Args:
        hidden_size: int.
        width: int, the most outputs that a head of this pool has.
        layers: 1 or 2.
        activation: function between the layers.
    """

    def __init__(self, hidden_size, width, layers, activation=tf.tanh):
        self.width, self.layers, self._activation_function = width, layers, activation
        shapes = [(hidden_size, hidden_size), (hidden_size,)] * (layers - 1) + [(hidden_size, width), (width,)]
        name = f"heads_{layers}_{width}"
        self.table = RowTable(
            [RowStore(tf.zeros((1, *shape)), name=f"{name}_{place}") for place, shape in enumerate(shapes)]
        )

    def put(self, arrays):
        """Store a head: kernel and bias of each layer; its row, in a list."""
        if arrays[-1].shape[0] > self.width:
            raise InputError(f"a head of {arrays[-1].shape[0]} outputs has no room in {self.width}.")
        missing = self.width - arrays[-1].shape[0]
        arrays = [*arrays[:-2], np.pad(arrays[-2], [(0, 0), (0, missing)]), np.pad(arrays[-1], [(0, missing)])]
        return self.table.put(*(array[np.newaxis] for array in arrays))

    def __call__(self, pooled, rows):
        """Logits `(batch, width)` of `pooled`, `(batch, hidden_size)`, by the heads `rows`, `(batch,)`."""
        weights = [store.gather(rows, pooled.dtype) for store in self.table.stores]
        for place in range(0, len(weights), 2):
            pooled = tf.squeeze(tf.matmul(pooled[:, tf.newaxis], weights[place]), 1) + weights[place + 1]
            if place + 2 < len(weights):
                pooled = self._activation_function(pooled)
        return pooled
