"""Many adapters in a few variables, of which each example of a batch takes its own."""

import contextlib
import contextvars

import numpy as np
import tensorflow as tf

from tf_adapters.errors import InputError
from tf_adapters.layers.ops import keras2

_STAND_INS = contextvars.ContextVar("stand_ins", default={})


@contextlib.contextmanager
def standing_in(variables):
    """While it is open, this thread reads other variables than those of some `RowStore`s.

    Args:
        variables: dict from `id(store)` to the variable.
    """
    token = _STAND_INS.set(variables)
    try:
        yield
    finally:
        _STAND_INS.reset(token)


class RowStore(tf.Module):
    """Rows of one shape in one variable whose number of rows may change without a new trace.

    Args:
        first: array, row 0; its shape and dtype are those of all rows.
        dtype: how rows are stored; None for that of `first`.
    """

    def __init__(self, first, *, dtype=None, name=None):
        super().__init__(name=name)
        first = tf.convert_to_tensor(first)
        self.row_shape = tuple(first.shape)
        self.variable = tf.Variable(
            tf.cast(first, dtype or first.dtype)[tf.newaxis], shape=[None, *self.row_shape], trainable=False, name=name
        )

    @property
    def capacity(self):
        """Rows that there is room for, an int."""
        return int(tf.raw_ops.VariableShape(input=self.variable.handle).numpy()[0])

    @property
    def row_nbytes(self):
        """Bytes of a row."""
        return int(np.prod(self.row_shape, dtype=np.int64)) * self.variable.dtype.size

    @property
    def read_from(self):
        """The variable that graphs read: its own, or the one that `standing_in` names."""
        return _STAND_INS.get().get(id(self), self.variable)

    def resize(self, rows):
        """Make room for `rows` rows in all; those before are kept."""
        missing = rows - self.capacity
        if missing > 0:
            empty = tf.zeros([], self.variable.dtype)
            self.variable.assign(
                tf.pad(self.variable, [[0, missing], *[[0, 0]] * len(self.row_shape)], constant_values=empty)
            )
        elif missing < 0:
            self.variable.assign(self.variable.read_value()[:rows])

    def set(self, places, values):
        """Overwrite rows."""
        if len(places):
            values = tf.cast(tf.convert_to_tensor(values), self.variable.dtype)
            tf.raw_ops.ResourceScatterUpdate(
                resource=self.variable.handle, indices=tf.constant(places, tf.int32), updates=values
            )

    def gather(self, rows, dtype=None):
        """The rows of an int32 tensor, cast."""
        rows = tf.convert_to_tensor(rows)
        # TensorFlow forgets the shape of rows whose number it does not know.
        found = tf.ensure_shape(tf.gather(self.read_from, rows), [*rows.shape, *self.row_shape])
        return found if dtype is None else tf.cast(found, dtype)


class RowTable(tf.Module):
    """Several `RowStore`s whose rows belong together and are given out and taken back together.

    Row 0 is there from the start and stays. The stores grow by doubling.

    Args:
        stores: list of `RowStore` with one row each.
    """

    def __init__(self, stores, *, name=None):
        super().__init__(name=name)
        self.stores = tuple(stores)
        self._used, self._free = 1, set()

    @property
    def capacity(self):
        """Rows that there is room for, an int."""
        return min(store.capacity for store in self.stores)

    @property
    def used(self):
        """Rows that hold something, row 0 included, an int."""
        return self._used - len(self._free)

    @property
    def emptied(self):
        """Whether all rows but row 0 were taken back; not of a table that never had others."""
        return self.used == 1 < self._used

    @property
    def row_nbytes(self):
        """Bytes of a row in all stores."""
        return sum(store.row_nbytes for store in self.stores)

    @property
    def nbytes(self):
        """Bytes of all stores."""
        return sum(store.capacity * store.row_nbytes for store in self.stores)

    def reserve(self, rows):
        """Make room for that many rows more than are used."""
        self._grow(self.used + rows)

    def put(self, *columns):
        """Store rows in free places.

        Args:
            columns: an array `(count, ...)` for each store.

        Returns: their places, a list of int. If it fails, nothing is given out.
        """
        count = len(columns[0])
        places = sorted(self._free)[:count]
        places += range(self._used, self._used + count - len(places))
        end = max([self._used, *(1 + place for place in places)])
        if end > self.capacity:
            self._grow(max(2 * self.capacity, end))
        for store, values in zip(self.stores, columns):
            store.set(places, values)
        self._free -= set(places)
        self._used = end
        return places

    def saved(self):
        """What `restore` takes to undo all that comes after, as long as no row in use is overwritten."""
        return self.stores, self._used, frozenset(self._free), [store.capacity for store in self.stores]

    def restore(self, saved):
        """Be as when `saved()` returned that."""
        self.stores, self._used, free, capacities = saved
        self._free = set(free)
        for store, rows in zip(self.stores, capacities):
            store.resize(rows)

    def release(self, places):
        """Take rows back."""
        self._free |= set(places) - {0}

    def trim(self):
        """Give back the room behind the last row in use, and clear what is free before it."""
        while self._used - 1 in self._free:
            self._used -= 1
            self._free.remove(self._used)
        for store in self.stores:
            store.resize(self._used)
            store.set(sorted(self._free), tf.zeros([len(self._free), *store.row_shape], store.variable.dtype))

    def set_width(self, store, width):
        """Make the rows of a store of vectors so long, by empty entries or by leaving the last ones out.

        Returns: the store that takes its place.
        """
        rows = store.variable.read_value()[:, :width]
        empty = tf.zeros([], store.variable.dtype)
        rows = tf.pad(rows, [[0, 0], [0, width - rows.shape[1]]], constant_values=empty)
        other = RowStore(rows[0], name=store.name)
        other.variable.assign(rows)
        self.stores = tuple(other if kept is store else kept for kept in self.stores)
        return other

    def _grow(self, rows):
        for store in self.stores:
            if store.capacity < rows:
                store.resize(rows)


class AdapterPool(tf.Module):
    """Bottleneck adapters of one size and activation; row 0 is the identity.

    Args:
        hidden_size, bottleneck_size: ints.
        activation: str, as in `AdapterLayer`.
        dtype: of the stored weights.

    Reference: Houlsby et al. 2019, section 2.1.
    """

    def __init__(self, hidden_size, bottleneck_size, activation, *, dtype="float32", name=None):
        super().__init__(name=name)
        self.bottleneck_size, self.activation = bottleneck_size, activation
        self._activation_function = keras2.activation(activation)
        shapes = {
            "down_kernel": (hidden_size, bottleneck_size), "down_bias": (bottleneck_size,),
            "up_kernel": (bottleneck_size, hidden_size), "up_bias": (hidden_size,),
        }  # fmt: skip
        self.table = RowTable(
            [RowStore(tf.zeros(shape, tf.float32), dtype=dtype, name=part) for part, shape in shapes.items()]
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


class HeadPool(tf.Module):
    """Classifiers of one size: one dense layer, or two with tanh between them.

    Args:
        hidden_size: int.
        width: int, the most outputs that a head of this pool has.
        layers: 1 or 2.
    """

    def __init__(self, hidden_size, width, layers, *, name=None):
        super().__init__(name=name)
        self.width, self.layers = width, layers
        shapes = [(hidden_size, hidden_size), (hidden_size,)] * (layers - 1) + [(hidden_size, width), (width,)]
        self.table = RowTable([RowStore(tf.zeros(shape), name=f"head_{place}") for place, shape in enumerate(shapes)])

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
