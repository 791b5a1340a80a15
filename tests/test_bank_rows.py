"""Rows of a bank's variables: each is given out once, and computes as by hand."""

import numpy as np
import pytest
import tensorflow as tf

from tf_adapters.layers.bank import AdapterPool, RowStore, RowTable


def test_row_zero_of_a_pool_is_the_identity_and_others_are_by_hand():
    pool = AdapterPool(4, 2, "tanh")
    random = np.random.default_rng(0)
    adapters = [
        tuple(random.normal(size=shape).astype(np.float32) for shape in ((4, 2), (2,), (2, 4), (4,))) for _ in range(2)
    ]
    assert pool.put(adapters) == [1, 2]
    hidden = random.normal(size=(3, 5, 4)).astype(np.float32)
    found = pool(tf.constant(hidden), tf.constant([2, 0, 1])).numpy()
    np.testing.assert_array_equal(found[1], hidden[1])
    for row, (down, down_bias, up, up_bias) in ((0, adapters[1]), (2, adapters[0])):
        np.testing.assert_allclose(
            found[row], hidden[row] + np.tanh(hidden[row] @ down + down_bias) @ up + up_bias, atol=1e-5
        )


def test_rows_are_given_out_once_and_used_again():
    stores = RowStore(np.zeros((1, 3), np.float32), name="vector"), RowStore(np.zeros(1, np.int32), name="number")
    table = RowTable(stores)
    assert table.put(np.ones((3, 3)), [4, 5, 6]) == [1, 2, 3] and table.capacity == 4
    table.release([2])
    assert table.used == 3 and table.put(np.full((2, 3), 7.0), [8, 9]) == [2, 4] and table.capacity == 5
    np.testing.assert_array_equal(stores[0].gather([0, 1, 2, 3, 4])[:, 0], [0, 1, 7, 1, 7])
    np.testing.assert_array_equal(stores[1].gather([0, 1, 2, 3, 4]), [0, 4, 8, 6, 9])
    assert table.nbytes == 5 * 16 and table.used == 5
    with pytest.raises(ValueError):
        table.put(np.ones((1, 3)), None)
    assert table.used == 5
    copied = table.copy([4, 1])
    np.testing.assert_array_equal(copied.stores[1].variable, [0, 9, 4])
    assert copied.capacity == copied.used == 3 and copied.put(np.zeros((1, 3)), [3]) == [3]
