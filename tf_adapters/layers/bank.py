"""Many adapters in a few variables, of which each example of a batch takes its own."""

import numpy as np
import tensorflow as tf

from tf_adapters.errors import InputError
from tf_adapters.layers.activation import get_activation


class RowStore(tf.Module):
    """Rows of one shape in one variable whose number of rows may change without a new trace.

    The variable grows by doubling. Row 0 is there from the start and stays.

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
        self._capacity, self._used, self._free = 1, 1, set()

    @property
    def capacity(self):
        """Rows that the variable has room for, an int."""
        return self._capacity

    @property
    def used(self):
        """Rows that hold something, row 0 included, an int."""
        return self._used - len(self._free)

    @property
    def nbytes(self):
        """Bytes of the variable."""
        return self._capacity * int(np.prod(self.row_shape, dtype=np.int64)) * self.variable.dtype.size

    def reserve(self, rows):
        """Make room for that many rows in all; what is there stays."""
        if rows <= self._capacity:
            return
        missing = tf.zeros([rows - self._capacity, *self.row_shape], self.variable.dtype)
        self.variable.assign(tf.concat([self.variable.read_value(), missing], 0))
        self._capacity = rows

    def put(self, values):
        """Store rows, `(count, ...)`, in free places; their indices, a list of int."""
        count = len(values)
        new = max(0, self._used + count - len(self._free) - self._capacity)
        if new:
            self.reserve(max(2 * self._capacity, self._capacity + new))
        places = sorted(self._free)[:count]
        places += range(self._used, self._used + count - len(places))
        self.set(places, values)
        self._free -= set(places)
        self._used = max(self._used, 1 + max(places, default=0))
        return places

    def set(self, places, values):
        """Overwrite rows."""
        if len(places):
            values = tf.cast(tf.convert_to_tensor(values), self.variable.dtype)
            tf.raw_ops.ResourceScatterUpdate(resource=self.variable.handle, indices=tf.constant(places, tf.int32), updates=values)

    def release(self, places):
        """Give rows back."""
        self._free |= set(places) - {0}

    def widened(self, count):
        """A store whose rows are longer by `count` empty entries, with what is there."""
        other = RowStore(tf.pad(self.variable[0], [[0, count]], constant_values=tf.zeros([], self.variable.dtype)), name=self.name)
        other.variable.assign(tf.pad(self.variable.read_value(), [[0, 0], [0, count]], constant_values=tf.zeros([], self.variable.dtype)))
        other._capacity, other._used, other._free = self._capacity, self._used, set(self._free)
        return other

    def trim(self):
        """Give back the room behind the last row."""
        if self._used < self._capacity:
            self.variable.assign(self.variable.read_value()[: self._used])
            self._capacity = self._used
            self._free &= set(range(self._used))

    def gather(self, rows, dtype=None):
        """The rows of an int32 tensor, cast."""
        rows = tf.convert_to_tensor(rows)
        # TensorFlow forgets the shape of rows whose number it does not know.
        found = tf.ensure_shape(tf.gather(self.variable, rows), [*rows.shape, *self.row_shape])
        return found if dtype is None else tf.cast(found, dtype)


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
        self._activation_function = get_activation(activation)
        shapes = {
            "down_kernel": (hidden_size, bottleneck_size), "down_bias": (bottleneck_size,),
            "up_kernel": (bottleneck_size, hidden_size), "up_bias": (hidden_size,),
        }  # fmt: skip
        for part, shape in shapes.items():
            setattr(self, part, RowStore(tf.zeros(shape, tf.float32), dtype=dtype, name=part))

    @property
    def stores(self):
        """The four `RowStore`s, kernel and bias of the down- and the up-projection."""
        return self.down_kernel, self.down_bias, self.up_kernel, self.up_bias

    def put(self, adapters):
        """Store adapters, a list of tuples of the four arrays in `stores`' order; their rows, a list of int."""
        # All four have the same places free.
        return [store.put(np.stack(parts)) for store, parts in zip(self.stores, zip(*adapters))][0]

    def release(self, rows):
        """Give rows back."""
        for store in self.stores:
            store.release(rows)

    def __call__(self, hidden_states, rows):
        """`h + W_up f(W_down h + b_down) + b_up` with weights of each example's own.

        Args:
            hidden_states: float tensor, `(batch, length, hidden_size)`.
            rows: int32 tensor, `(batch,)`; 0 returns the hidden states bit for bit.

        Returns: as `hidden_states`.
        """
        down, down_bias, up, up_bias = (store.gather(rows, hidden_states.dtype) for store in self.stores)
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
        self.stores = tuple(RowStore(tf.zeros(shape), name=f"head_{place}") for place, shape in enumerate(shapes))

    def put(self, arrays):
        """Store a head: kernel and bias of each layer; its row, an int."""
        if arrays[-1].shape[0] > self.width:
            raise InputError(f"a head of {arrays[-1].shape[0]} outputs has no room in {self.width}.")
        missing = self.width - arrays[-1].shape[0]
        arrays = [*arrays[:-2], np.pad(arrays[-2], [(0, 0), (0, missing)]), np.pad(arrays[-1], [(0, missing)])]
        return [store.put(array[np.newaxis]) for store, array in zip(self.stores, arrays)][0][0]

    def release(self, row):
        """Give a row back."""
        for store in self.stores:
            store.release([row])

    def __call__(self, pooled, rows):
        """Logits `(batch, width)` of `pooled`, `(batch, hidden_size)`, by the heads `rows`, `(batch,)`."""
        weights = [store.gather(rows, pooled.dtype) for store in self.stores]
        for place in range(0, len(weights), 2):
            pooled = tf.squeeze(tf.matmul(pooled[:, tf.newaxis], weights[place]), 1) + weights[place + 1]
            if place + 2 < len(weights):
                pooled = tf.tanh(pooled)
        return pooled
