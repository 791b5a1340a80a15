"""Many adapters in a few variables, of which each example of a batch takes its own."""

import copy

import numpy as np
import tensorflow as tf

from tf_adapters.errors import InputError
from tf_adapters.layers.ops import keras2


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


class AdapterPool(_Pool):
    """Bottleneck adapters of one size and activation; row 0 is the identity.

    Args:
        hidden_size, bottleneck_size: ints.
        activation: str, as in `AdapterLayer`.
        dtype: of the stored weights.

    Reference: Houlsby et al. 2019, section 2.1.
    """

    def __init__(self, hidden_size, bottleneck_size, activation, *, dtype="float32"):
        self.bottleneck_size, self.activation = bottleneck_size, activation
        self._activation_function = keras2.activation(activation)
        shapes = {
            "down_kernel": (hidden_size, bottleneck_size), "down_bias": (bottleneck_size,),
            "up_kernel": (bottleneck_size, hidden_size), "up_bias": (hidden_size,),
        }  # fmt: skip
        name = f"adapters_{bottleneck_size}_{activation}"
        self.table = RowTable(
            [RowStore(tf.zeros((1, *shape)), dtype=dtype, name=f"{name}_{part}") for part, shape in shapes.items()]
        )

    def put(self, adapters):
        """Store adapters, a list of tuples of kernel and bias of the down- and the up-projection; their rows, a list of
        int."""
        return self.table.put(*(np.stack(parts) for parts in zip(*adapters)))

    def __call__(self, hidden_states, rows):
        """`h + W_up f(W_down h + b_down) + b_up` with weights of each example's own.

        Args:
            hidden_states: float tensor, `(batch, length, hidden_size)`.
            rows: int32 tensor, `(batch,)`; 0 returns the hidden states bit for bit.

        Returns: as `hidden_states`.
        """
        down, down_bias, up, up_bias = (store.gather(rows, hidden_states.dtype) for store in self.table.stores)
        inner = self._activation_function(tf.matmul(hidden_states, down) + down_bias[:, tf.newaxis])
        return hidden_states + (tf.matmul(inner, up) + up_bias[:, tf.newaxis])


class HeadPool(_Pool):
    """Classifiers of one size: one dense layer, or two with tanh between them.

    Args:
        hidden_size: int.
        width: int, the most outputs that a head of this pool has.
        layers: 1 or 2.
    """

    def __init__(self, hidden_size, width, layers):
        self.width, self.layers = width, layers
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
                pooled = tf.tanh(pooled)
        return pooled
