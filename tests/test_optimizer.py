"""Weight decay, clipping and early stopping: their arithmetic."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import tiny_model
from tf_adapters import AdapterConfig, InputError, add_adapters, set_trainable
from tf_adapters.training.optimizer import make_optimizer


def stepped(gradients, **settings):
    """A matrix of twos and a vector of twos after one step at the rate 0.1."""
    variables = [tf.Variable(tf.fill(shape, 2.0), name=name) for name, shape in (("kernel", (2, 2)), ("bias", (2,)))]
    optimizer = make_optimizer(0.1, variables, **settings)
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
    optimizer = make_optimizer(0.1, [], clip_norm=3.0)
    # Four entries of 2 and two of sqrt(10): a norm of 6.
    kernel, bias = optimizer._clip_gradients([tf.fill((2, 2), 2.0), tf.fill((2,), 10**0.5)])
    np.testing.assert_allclose(kernel, 1.0, rtol=1e-6)
    np.testing.assert_allclose(bias, 10**0.5 / 2, rtol=1e-6)
    short = optimizer._clip_gradients([tf.fill((2, 2), 1.0)])
    np.testing.assert_allclose(short[0], 1.0, rtol=1e-6)


def test_of_adapters_the_kernels_decay_alone():
    model = tiny_model()
    set_trainable(add_adapters(model, AdapterConfig(4, scaling="learned", inner_norm="after"), seed=0))
    optimizer = make_optimizer(1e-3, model.trainable_variables, weight_decay=0.1)
    optimizer.build(model.trainable_variables)
    decays = {
        variable.name.rpartition("/")[2]
        for variable in model.trainable_variables
        if optimizer._use_weight_decay(variable)
    }
    others = {
        variable.name.rpartition("/")[2]
        for variable in model.trainable_variables
        if not optimizer._use_weight_decay(variable)
    }
    assert decays == {"kernel:0"} and others == {"bias:0", "gamma:0", "beta:0", "scaling:0"}


@pytest.mark.parametrize(
    "settings, message",
    [({"weight_decay": -1.0}, "weight_decay=-1.0 must be"), ({"clip_norm": 0.0}, "clip_norm=0.0 must be")],
)
def test_values_out_of_range_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        make_optimizer(0.1, [], **settings)
