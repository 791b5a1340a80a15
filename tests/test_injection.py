import numpy as np
import pytest
import tensorflow as tf
import transformers

from tests.conftest import randomize, tiny_config, tiny_inputs, tiny_model
from tf_adapters import (
    AdapterConfig,
    InputError,
    active_adapter,
    adapter_names,
    add_adapters,
    backbone_digest,
    disable_adapters,
    remove_adapters,
    set_active,
)
from tf_adapters.models.transformers.bert import (
    FAMILY,
    TFBertAdapterLayer,
    TFBertAdapterOutput,
    TFBertAdapterSelfOutput,
)

STRONG = AdapterConfig(bottleneck_size=4, init_stddev=1.0)
INPUTS = tiny_inputs()


def logits(model):
    return model(INPUTS).logits.numpy()


@pytest.mark.parametrize("head", sorted(set(FAMILY.heads) - {"multiple-choice", "none"}))
def test_untrained_adapters_with_zero_up_projection_leave_every_head_bit_equal(head):
    model = tiny_model(head)
    before = logits(model) if head != "question-answering" else model(INPUTS).start_logits.numpy()
    add_adapters(model, AdapterConfig(bottleneck_size=4, init_stddev=0.0))
    after = logits(model) if head != "question-answering" else model(INPUTS).start_logits.numpy()
    assert np.array_equal(before, after)


def test_adapters_at_the_papers_initialisation_change_the_output_a_little():
    model = tiny_model("none")
    before = model(INPUTS).last_hidden_state.numpy()
    add_adapters(model, AdapterConfig(bottleneck_size=8), seed=0)
    change = np.abs(model(INPUTS).last_hidden_state.numpy() - before).max()
    # Eight adapters add about sqrt(32 * 8) * 1e-4 * |h| each to LayerNorm outputs of size 1.
    assert 0 < change < 0.02


def test_blocks_are_subclasses_of_transformers_own_and_adopt_their_layers():
    model = tiny_model()
    original = model.bert.encoder.layer[1]
    kernel = original.bert_output.dense.kernel
    names = [weight.name for weight in model.weights]
    add_adapters(model, STRONG)
    block = model.bert.encoder.layer[1]
    assert isinstance(block, TFBertAdapterLayer) and isinstance(block, type(original))
    assert isinstance(block.attention.dense_output, TFBertAdapterSelfOutput)
    assert isinstance(block.bert_output, TFBertAdapterOutput)
    assert block.bert_output.dense.kernel is kernel
    assert block.attention is original.attention
    backbone = [weight.name for weight in model.weights if not weight.name.startswith("adapters/")]
    assert sorted(backbone) == sorted(names)


def test_adapter_output_is_the_papers_formula_between_dense_and_layer_norm():
    model = randomize(add_adapters(tiny_model(), STRONG, seed=1))
    site = model.bert.encoder.layer[0].bert_output
    (adapter,) = site.adapters.values()
    hidden = tf.random.normal((2, 3, 64), seed=0)
    residual = tf.random.normal((2, 3, 32), seed=1)
    dense = site.dense(hidden)
    squeezed = dense @ adapter.down_kernel + adapter.down_bias
    inner = 0.5 * squeezed * (1 + tf.math.erf(squeezed / np.sqrt(2)))
    summed = (dense + inner @ adapter.up_kernel + adapter.up_bias + residual).numpy()
    expected = (summed - summed.mean(-1, keepdims=True)) / np.sqrt(summed.var(-1, keepdims=True) + 1e-12)
    expected = expected * site.LayerNorm.gamma + site.LayerNorm.beta
    np.testing.assert_allclose(site(hidden, residual), expected, atol=1e-5)


def test_remove_adapters_restores_the_model_exactly():
    from tf_adapters import set_trainable
    from tf_adapters._keras import keras

    model = tiny_model()
    before, weights = logits(model), [weight.name for weight in model.weights]
    blocks = list(model.bert.encoder.layer)
    outputs = [block.attention.dense_output for block in blocks]
    add_adapters(model, AdapterConfig(bottleneck_size=4, train_layer_norm="all"))
    set_trainable(model, "adapters")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, run_eagerly=True)
    model.fit(INPUTS, np.array([0, 1, 0]), epochs=2, verbose=0)
    assert not np.array_equal(logits(model), before)
    remove_adapters(model)
    assert np.array_equal(logits(model), before)
    assert [weight.name for weight in model.weights] == weights
    assert all(one is other for one, other in zip(model.bert.encoder.layer, blocks))
    assert all(block.attention.dense_output is output for block, output in zip(blocks, outputs))
    assert adapter_names(model) == [] and active_adapter(model) is None
    with pytest.raises(InputError, match="no adapters to remove"):
        remove_adapters(model)


def test_several_named_adapters_switch_after_tracing():
    model = tiny_model()
    plain = logits(model)
    results = {}
    for index, name in enumerate(("first", "second", "third")):
        add_adapters(
            model, AdapterConfig(4 + index, sharing=("none", "layer", 3)[index], init_stddev=1.0), name=name, seed=index
        )
        randomize(model, index, head=False)
        assert active_adapter(model) == name
        results[name] = logits(model)
    traced = tf.function(lambda inputs: model(inputs).logits)
    # Float32 rounding of one graph against eager execution.
    for name in ("second", "first", "third", "first"):
        set_active(model, name)
        np.testing.assert_allclose(traced(INPUTS), results[name], atol=1e-5)
        np.testing.assert_allclose(model.predict(dict(INPUTS), verbose=0).logits, results[name], atol=1e-5)
        with disable_adapters(model):
            assert np.array_equal(logits(model), plain)
            np.testing.assert_allclose(traced(INPUTS), plain, atol=1e-5)
        np.testing.assert_allclose(traced(INPUTS), results[name], atol=1e-5)
    assert traced.experimental_get_tracing_count() == 1
    assert len({result.tobytes() for result in results.values()}) == 3


def test_a_graph_older_than_an_adapter_answers_not_a_number_rather_than_something_else():
    model = randomize(add_adapters(tiny_model(), STRONG, name="old", seed=0))
    single = tf.function(lambda inputs: model(inputs).logits)
    before = single(INPUTS).numpy()
    add_adapters(model, STRONG, name="new", seed=1)
    double = tf.function(lambda inputs: model(inputs).logits)
    assert np.isfinite(double(INPUTS)).all()
    assert np.isnan(single(INPUTS)).all()
    add_adapters(model, STRONG, name="newest", seed=2)
    assert np.isnan(double(INPUTS)).all()
    set_active(model, "old")
    assert np.array_equal(single(INPUTS), before)
    assert np.isfinite(model.predict(dict(INPUTS), verbose=0).logits).all()


def test_each_adapter_has_its_own_layer_norms_and_head():
    model = add_adapters(tiny_model(), STRONG, name="a", seed=0)
    norm, classifier = model.bert.encoder.layer[2].bert_output.LayerNorm, model.classifier
    pristine = classifier.kernel.numpy()
    norm.gamma.assign(tf.fill((32,), 2.0))
    classifier.kernel.assign(tf.fill((32, 2), 3.0))
    add_adapters(model, STRONG, name="b", seed=0)
    assert np.array_equal(norm.gamma, np.ones(32)) and np.array_equal(classifier.kernel, pristine)
    set_active(model, "a")
    assert (norm.gamma.numpy() == 2).all() and (classifier.kernel.numpy() == 3).all()
    with disable_adapters(model):
        assert (norm.gamma.numpy() == 1).all() and (classifier.kernel.numpy() == 3).all()
    assert (norm.gamma.numpy() == 2).all()
    remove_adapters(model, name="a")
    assert active_adapter(model) == "b" and (norm.gamma.numpy() == 1).all()


def test_disable_adapters_restores_after_an_error():
    model = randomize(add_adapters(tiny_model(), STRONG, seed=0))
    before = logits(model)
    with pytest.raises(RuntimeError), disable_adapters(model):
        raise RuntimeError
    assert np.array_equal(logits(model), before)


def test_mistakes_are_named():
    model = add_adapters(tiny_model(), STRONG)
    with pytest.raises(InputError, match="name='default'.*already"):
        add_adapters(model, STRONG)
    with pytest.raises(InputError, match="name='x y'"):
        add_adapters(model, STRONG, name="x y")
    with pytest.raises(InputError, match="no such adapter; it has 'default'"):
        set_active(model, "other")
    with pytest.raises(InputError, match="the encoder has 4 blocks"):
        add_adapters(model, AdapterConfig(blocks=(9,)), name="deep")
    assert adapter_names(model) == ["default"]
    with pytest.raises(InputError, match="config=64 must be an AdapterConfig"):
        add_adapters(model, 64, name="n")
    with pytest.raises(InputError, match="no weights yet"):
        add_adapters(transformers.TFBertForSequenceClassification(tiny_config()))
    with pytest.raises(InputError, match="not a transformers TensorFlow model"):
        add_adapters(tf.Module())


@pytest.mark.parametrize("sharing, adapters", [("none", 8), ("layer", 4), (2, 2), (3, 2)])
def test_shared_sites_use_one_layer_and_count_once(sharing, adapters):
    plain = sum(int(np.prod(weight.shape)) for weight in tiny_model().weights)
    model = add_adapters(tiny_model(), AdapterConfig(bottleneck_size=5, sharing=sharing))
    layers = {
        id(a)
        for block in model.bert.encoder.layer
        for site in (block.attention.dense_output, block.bert_output)
        for a in site.adapters.values()
    }
    assert len(layers) == adapters
    total = sum(int(np.prod(weight.shape)) for weight in model.weights)
    assert total - plain == adapters * (2 * 5 * 32 + 32 + 5)
    names = [weight.name for weight in model.weights]
    assert len(names) == len(set(names))


def test_one_seed_gives_the_same_adapters_and_no_two_weights_alike():
    def kernels(seed):
        model = add_adapters(tiny_model(), AdapterConfig(bottleneck_size=32), seed=seed)
        return [
            weight.numpy()
            for weight in model.weights
            if weight.name.endswith("kernel:0") and "adapters/" in weight.name
        ]

    one = kernels(1)
    assert all(np.array_equal(a, b) for a, b in zip(one, kernels(1)))
    assert len({kernel.tobytes() for kernel in one + kernels(2)}) == 32


def test_the_digest_ignores_adapters_and_head_and_sees_every_encoder_weight():
    model = tiny_model()
    digest = backbone_digest(model)
    add_adapters(model, STRONG)
    assert backbone_digest(model) == digest
    assert backbone_digest(tiny_model("none")) == digest
    other = tiny_model()
    word = other.bert.embeddings.weight
    word.scatter_nd_update([[3, 0]], [np.nextafter(word[3, 0], np.float32(1))])
    assert backbone_digest(other) != digest


def test_model_with_adapters_compiles_whole_with_xla():
    model = randomize(add_adapters(tiny_model(), STRONG, seed=0))
    randomize(add_adapters(model, AdapterConfig(3, init_stddev=1.0), name="b", seed=1), 1)
    compiled = tf.function(lambda inputs: model(inputs).logits, jit_compile=True)
    for name in ("default", "b"):
        set_active(model, name)
        np.testing.assert_allclose(compiled(INPUTS), logits(model), atol=1e-5)
