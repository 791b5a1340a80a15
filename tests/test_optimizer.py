"""Weight decay, clipping and early stopping: their arithmetic."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import tiny_model
from tf_adapters import AdapterConfig, add_adapters, set_trainable
from tf_adapters.layers.ops import keras2
from tf_adapters.training.trained import make_optimizer, warmup_linear_decay


def stepped(gradients, **settings):
    """A matrix of twos and a vector of twos after one step at the rate 0.1."""
    variables = [tf.Variable(tf.fill(shape, 2.0), name=name) for name, shape in (("kernel", (2, 2)), ("bias", (2,)))]
    optimizer = make_optimizer(keras2, 0.1, variables, **settings)
    optimizer.build(variables)
    optimizer.apply_gradients(
        zip([tf.fill(variable.shape, value) for variable, value in zip(variables, gradients)], variables)
    )
    return [variable.numpy() for variable in variables]


def test_matrices_decay_and_vectors_do_not():
    plain = stepped([1.0, 1.0])
    kernel, bias = stepped([1.0, 1.0], weight_decay=0.5)
    # The rate times the decay times the weight, beside Adam's own step.
    np.testing.assert_allclose(plain[0] - kernel, 0.1 * 0.5 * 2.0, rtol=1e-5)
    np.testing.assert_array_equal(bias, plain[1])


def test_the_gradient_of_all_weights_together_is_clipped():
    optimizer = make_optimizer(keras2, 0.1, [], clip_norm=3.0)
    # Four entries of 2 and two of sqrt(10): a norm of 6.
    kernel, bias = optimizer._clip_gradients([tf.fill((2, 2), 2.0), tf.fill((2,), 10**0.5)])
    np.testing.assert_allclose(kernel, 1.0, rtol=1e-6)
    np.testing.assert_allclose(bias, 10**0.5 / 2, rtol=1e-6)
    np.testing.assert_allclose(optimizer._clip_gradients([tf.fill((2, 2), 1.0)])[0], 1.0, rtol=1e-6)


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_an_embeddings_gradient_is_clipped_as_a_whole(decay):
    optimizer = make_optimizer(keras2, 0.1, [], clip_norm=2.0, weight_decay=decay)
    # The first row occurs twice: a norm of 4, of which the occurrences by themselves would have 3.2.
    rows = tf.IndexedSlices(tf.constant([[1.5**0.5], [3.0], [1.5**0.5], [1.0]]), tf.constant([0, 1, 0, 2]), (4, 1))
    clipped = tf.convert_to_tensor(optimizer._clip_gradients([rows])[0])
    np.testing.assert_allclose(clipped[:, 0], [1.5**0.5, 1.5, 0.5, 0.0], rtol=1e-6)


def test_of_adapters_the_kernels_decay_alone():
    model = tiny_model()
    set_trainable(add_adapters(model, AdapterConfig(4, scaling="learned", inner_norm="after"), seed=0))
    optimizer = make_optimizer(keras2, 1e-3, model.trainable_variables, weight_decay=0.1)
    optimizer.build(model.trainable_variables)
    names = {True: set(), False: set()}
    for variable in model.trainable_variables:
        names[bool(optimizer._use_weight_decay(variable))].add(variable.name.rpartition("/")[2])
    assert names == {True: {"kernel:0"}, False: {"bias:0", "gamma:0", "beta:0", "scaling:0"}}


def test_published_adam_by_hand():
    """Two steps of the optimiser that was published with BERT: no bias correction, decoupled decay of the matrix."""
    variable, vector = tf.Variable([[1.0]]), tf.Variable([1.0])
    optimizer = make_optimizer(keras2, 0.1, [variable, vector], weight_decay=0.01, epsilon=1e-6, bias_correction=False)
    optimizer.build([variable, vector])
    weights, moments = {True: 1.0, False: 1.0}, (0.0, 0.0)
    for gradient in (0.5, -2.0):
        optimizer.apply_gradients([(tf.constant([[gradient]]), variable), (tf.constant([gradient]), vector)])
        moments = 0.9 * moments[0] + 0.1 * gradient, 0.999 * moments[1] + 0.001 * gradient**2
        update = moments[0] / (moments[1] ** 0.5 + 1e-6)
        weights = {decays: weight - 0.1 * (update + 0.01 * decays * weight) for decays, weight in weights.items()}
        np.testing.assert_allclose(variable.numpy(), weights[True], rtol=1e-5)
        np.testing.assert_allclose(vector.numpy(), weights[False], rtol=1e-5)
    assert int(optimizer.iterations) == 2


def test_sparse_gradients_are_not_corrected_either():
    dense, sparse = tf.Variable([[1.0], [2.0]]), tf.Variable([[1.0], [2.0]])
    for variable, gradient in (
        (dense, tf.constant([[0.5], [0.0]])),
        (sparse, tf.IndexedSlices(tf.constant([[0.5]]), tf.constant([0]), tf.constant([2, 1]))),
    ):
        optimizer = make_optimizer(keras2, 0.1, [variable], bias_correction=False)
        optimizer.build([variable])
        optimizer.apply_gradients([(gradient, variable)])
    # 0.1 * (0.1 * 0.5) / (0.001 ** 0.5 * 0.5): more than three times Adam's first step, which is the rate.
    np.testing.assert_allclose(dense.numpy()[0, 0], 1 - 0.1 * 0.1 / 0.001**0.5, rtol=1e-4)
    np.testing.assert_array_equal(dense.numpy(), sparse.numpy())


def test_a_fall_that_is_counted_from_the_start_is_lower_after_the_rise():
    """optimization.py of Houlsby et al.'s code: `peak * step / warmup`, then `peak * (1 - step / steps)`."""
    WarmupLinearDecay = warmup_linear_decay(keras2)
    schedule = WarmupLinearDecay(1.0, 10, warmup_fraction=0.2, from_start=True)
    found = [float(schedule(step)) for step in range(11)]
    np.testing.assert_allclose(found, [0.0, 0.5, *(1 - step / 10 for step in range(2, 11))], atol=1e-6)
    assert WarmupLinearDecay(**schedule.get_config()).get_config() == schedule.get_config()
