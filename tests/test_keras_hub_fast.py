"""Fast blocks of KerasHub's models compute what plain ones compute, on TensorFlow; other backends refuse them."""

import numpy as np
import pytest

import tf_adapters
from tests.cases import nightly_but
from tests.conftest import is_refused, randomize
from tests.keras_hub_models import (
    BACKEND,
    CONFIGS,
    LABELS,
    answers,
    bits,
    given,
    keras,
    keras_hub,
    small_backbone,
    write_checkpoint,
)
from tf_adapters import LoraConfig
from tf_adapters.models import cast_frozen
from tf_adapters.models.injection import adapter_names
from tf_adapters.models.keras_hub import door
from tf_adapters.models.keras_hub.loading import load_backbone
from tf_adapters.models.state import state_of

pytestmark = pytest.mark.skipif(BACKEND != "tensorflow", reason="needs TensorFlow, as fast blocks do themselves")
FAMILIES = ("bert", "roberta", "camembert", "xlm-roberta", "distilbert", "albert")


def adapted(checkpoint, fast, config=CONFIGS["houlsby"], mode="adapters", **settings):
    keras.utils.set_random_seed(0)  # of the head
    model = load_backbone(checkpoint, **settings)
    tf_adapters.add_adapters(model, config, seed=1, fast=fast)
    randomize(model, scale=0.1)
    return tf_adapters.set_trainable(model, mode)


def both(*arguments, **settings):
    """A model of plain blocks and one of fast ones."""
    return [adapted(arguments[0], fast, *arguments[1:], **settings) for fast in (False, True)]


def assert_same_answers(models, family, atol=2e-6):
    expected, found = (answers(model, family) for model in models)
    assert np.abs(expected).max() > 1e-2
    np.testing.assert_allclose(found, expected, atol=atol)


def logits_and_gradients(model, family, training=False):
    import tensorflow as tf

    @tf.function
    def compute():
        with tf.GradientTape() as tape:
            logits = tf.cast(model(given(model, family), training=training), tf.float32)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS, logits))
        return logits, tape.gradient(loss, [variable.value for variable in model.trainable_variables])

    logits, gradients = compute()
    return logits.numpy(), [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]


CASES = [
    *((family, "houlsby", "adapters", None) for family in FAMILIES),
    *(("bert", config, "adapters", None) for config in CONFIGS if config not in ("dropped", "houlsby")),
    ("bert", "houlsby", "full", None),
    ("roberta", "lora", "full", None),
    ("albert", "houlsby", "adapters", 0.0),
]
QUICK = [("roberta", "houlsby", "adapters", None), ("bert", "lora", "adapters", None), CASES[-1]]


@pytest.mark.parametrize("family, config, mode, rate", nightly_but(QUICK, CASES))
def test_fast_logits_and_gradients_are_those_of_plain_blocks(checkpoints, tmp_path, family, config, mode, rate):
    """An encoder whose rate of dropout is 0 in training too."""
    source = checkpoints(family) if rate is None else write_checkpoint(family, tmp_path, hidden_dropout_prob=rate)
    models = both(source, CONFIGS[config], mode)
    (logits, gradients), (found, of_fast) = (logits_and_gradients(model, family, rate == 0) for model in models)
    np.testing.assert_allclose(found, logits, atol=2e-6)
    whole = np.sqrt(sum(np.square(gradient).sum() for gradient in gradients))
    for one, other in zip(of_fast, gradients, strict=True):
        assert np.linalg.norm(one - other) < 2e-5 * max(np.linalg.norm(other), 1e-2 * whole)


def test_only_what_a_head_reads_is_computed_and_the_backbone_answers_every_token(checkpoints, monkeypatch):
    plain, fast = both(checkpoints("bert"))
    expected = answers(plain.backbone, "bert")
    asked = []
    attend = tf_adapters.layers.attention.attend
    monkeypatch.setattr(
        tf_adapters.layers.attention,
        "attend",
        lambda *given, queries, **named: asked.append(queries) or attend(*given, queries=queries, **named),
    )
    np.testing.assert_allclose(answers(fast, "bert"), answers(plain, "bert"), atol=2e-6)
    assert asked[-1] == 1 and set(asked[:-1]) == {None}
    np.testing.assert_allclose(answers(fast.backbone, "bert"), expected, atol=2e-6)
    assert asked[-1] is None


HEADS = [("bert", "token-classification"), ("bert", "masked-lm")]
HEADS += [(family, "multiple-choice") for family in ("bert", "roberta", "electra", "distilbert")]


@pytest.mark.parametrize("family, head", nightly_but(HEADS[:1], HEADS))
def test_every_head_gets_the_tokens_that_it_reads(checkpoints, family, head):
    assert_same_answers(both(checkpoints(family), head=head), family, atol=3e-6)


def test_dropout_is_drawn_anew_and_follows_the_models_own_seeds(checkpoints):
    model = adapted(checkpoints("bert"), True)
    dropouts = [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.Dropout) and layer.rate]
    generators = [layer.seed_generator for layer in dropouts]
    assert len(generators) == 3 * model.backbone.num_layers + 2
    before = [np.array(one.state) for one in generators]
    asked = given(model, "bert")
    first, second = (np.asarray(model(asked, training=True)) for _ in range(2))
    assert np.abs(first - second).max() > 1e-3
    for one, state in zip(generators, before):
        np.testing.assert_array_equal(np.array(one.state), state + [0, 2])
        one.state.assign(state)
    np.testing.assert_array_equal(model(asked, training=True), first)
    rows = {name: np.repeat(value, 200, axis=0) for name, value in asked.items()}
    drawn = np.asarray(model(rows, training=True)).reshape(len(first), 200, -1)
    np.testing.assert_allclose(drawn.mean(1), model(asked), atol=0.05)


@pytest.mark.slow
def test_adapters_are_switched_in_traced_graphs_and_removed_bit_for_bit(checkpoints):
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    model = load_backbone(checkpoints("bert"))
    before, kinds = bits(model), [type(block) for block in state_of(model).family.blocks(model)]
    plain, encoded = answers(model, "bert"), answers(model.backbone, "bert")
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], name="a", seed=1, fast=True)
    randomize(model, 1, scale=0.1)
    one = tf.function(lambda: model(given(model, "bert"), training=False))
    of_a = one().numpy()
    with tf_adapters.disable_adapters(model):
        hidden = answers(model.backbone, "bert")
        np.testing.assert_allclose(one(), answers(model, "bert"), atol=2e-6)
    np.testing.assert_allclose(hidden, encoded, atol=2e-6)
    tf_adapters.add_adapters(model, CONFIGS["one a block"], name="b", seed=2)
    randomize(model, 2, scale=0.1)
    assert np.isnan(one()).all()
    two = tf.function(lambda: model(given(model, "bert"), training=False))
    assert np.abs(of_a - two().numpy()).max() > 1e-3
    tf_adapters.set_active(model, "a")
    np.testing.assert_allclose(two(), of_a, atol=2e-6)
    np.testing.assert_allclose(one(), of_a, atol=2e-6)
    tf_adapters.remove_adapters(model)
    assert bits(model) == before and [type(block) for block in state_of(model).family.blocks(model)] == kinds
    np.testing.assert_array_equal(answers(model, "bert"), plain)


@pytest.mark.parametrize("groups, inner, last", [(1, 2, False), pytest.param(2, 2, True, marks=pytest.mark.nightly)])
def test_a_block_that_is_computed_several_times_computes_every_token(tmp_path, groups, inner, last):
    changes = {"num_hidden_layers": 2, "num_hidden_groups": groups, "inner_group_num": inner}
    models = both(write_checkpoint("albert", tmp_path, **changes))
    assert state_of(models[1]).original_blocks[-1].is_last == last
    assert_same_answers(models, "albert")


def test_values_that_keras_hands_over_are_those_that_compute(checkpoints):
    model = adapted(checkpoints("bert"), True)
    own = {id(variable) for variable in state_of(model).adapter_variables()}
    values = [variable.value + 0.3 * (id(variable) in own) for variable in model.trainable_variables]
    rest = [variable.value for variable in model.non_trainable_variables]
    found, _ = model.stateless_call(values, rest, given(model, "bert"), training=False)
    for variable, value in zip(model.trainable_variables, values):
        variable.assign(value)
    np.testing.assert_allclose(found, model(given(model, "bert")), atol=2e-6)


@pytest.mark.parametrize("dropout", [0.1, pytest.param(0.0, marks=pytest.mark.nightly)])
def test_a_row_of_padding_alone_gets_the_same_answer(tmp_path, dropout):
    plain, fast = both(write_checkpoint("bert", tmp_path, hidden_dropout_prob=dropout))
    rows = given(plain, "bert")
    rows["padding_mask"] = rows["padding_mask"] * np.array([[0], [1], [1]], "int32")
    np.testing.assert_allclose(fast(rows), plain(rows), atol=2e-6)


def test_what_fast_blocks_do_not_know_computes_as_it_is(checkpoints):
    models = []
    for fast in (False, True):
        keras.utils.set_random_seed(0)
        model = load_backbone(checkpoints("bert"))
        for block in state_of(model).family.blocks(model):
            dense = block._feedforward_intermediate_dense
            block.activation = dense.activation = keras.activations.relu6  # relu's equal up to 6
            dense.kernel.assign(60 * dense.kernel)
        models.append(tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1, fast=fast))
    assert_same_answers(models, "bert")
    before = answers(model, "bert")
    dense.activation = keras.activations.tanh  # of the fast one, after its adapters came
    assert np.abs(answers(model, "bert") - before).max() > 1e-3


def test_a_classifier_of_your_own_may_read_every_token():
    class Mean(keras_hub.models.BertTextClassifier):
        def __init__(self, backbone, num_classes):
            dense = keras.layers.Dense(num_classes)
            mean = keras.layers.GlobalAveragePooling1D()(backbone(backbone.input)["sequence_output"])
            super(keras_hub.models.BertTextClassifier, self).__init__(inputs=backbone.input, outputs=dense(mean))
            self.backbone, self.output_dense, self.num_classes = backbone, dense, num_classes

    found = []
    for fast in (False, True):
        keras.utils.set_random_seed(0)
        model = Mean(small_backbone(), 2)
        tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1, fast=fast)
        found.append(np.asarray(model({name: value % 50 for name, value in given(model, "bert").items()})))
    np.testing.assert_allclose(*found, atol=2e-6)


@pytest.mark.nightly
def test_exports_have_no_compiled_parts(checkpoints, tmp_path):
    import tensorflow as tf

    model = adapted(checkpoints("bert"), True)
    expected = answers(model, "bert")
    model.export(str(tmp_path / "serving"), verbose=False)
    assert b"_XlaMustCompile\x12\x02(\x01" not in (tmp_path / "serving" / "saved_model.pb").read_bytes()
    served = tf.saved_model.load(str(tmp_path / "serving"))
    np.testing.assert_allclose(served.serve(given(model, "bert")), expected, atol=2e-6)
    model.export(str(tmp_path / "model.tflite"), format="litert", verbose=False)
    assert b"FlexErf" not in (tmp_path / "model.tflite").read_bytes()


@pytest.mark.nightly
def test_weights_in_other_types_give_the_answers_of_plain_blocks(checkpoints):
    models = both(checkpoints("bert"))
    exact = answers(models[0], "bert")
    for model in models:
        cast_frozen(model, "int8")
    assert_same_answers(models, "bert")
    for model in both(checkpoints("bert"), dtype="mixed_bfloat16"):
        np.testing.assert_allclose(answers(model, "bert"), exact, atol=0.1 * np.abs(exact).max())


@pytest.mark.nightly
def test_masks_of_pairs_of_tokens_are_kept(checkpoints):
    import tensorflow as tf

    from tf_adapters.models.keras_hub.fast import first_token_only

    plain, fast = both(checkpoints("bert"))
    random = np.random.default_rng(0)
    states = tf.constant(random.normal(size=(3, 9, plain.backbone.hidden_dim)), tf.float32)
    pairs = tf.constant(random.random((3, 9, 9)) > 0.4)
    blocks = [state_of(model).original_blocks[-1] for model in (plain, fast)]
    one, other = (block(states, attention_mask=pairs) for block in blocks)
    np.testing.assert_allclose(other, one, atol=1e-5)
    with first_token_only():
        np.testing.assert_allclose(blocks[1](states, attention_mask=pairs)[:, 0], one[:, 0], atol=1e-5)
    other, scores = blocks[1](states, attention_mask=pairs, return_attention_scores=True)
    assert scores.shape == (3, plain.backbone.num_heads, 9, 9)
    np.testing.assert_allclose(other, one, atol=1e-5)


def test_what_has_no_fast_blocks_says_so_and_stays_as_it_was(checkpoints, monkeypatch):
    add, model = tf_adapters.add_adapters, load_backbone(checkpoints("deberta-v2"))
    is_refused("fast=True: deberta-v2 has no fast blocks; leave it out", add, model, fast=True)
    model = load_backbone(checkpoints("bert"))
    monkeypatch.setattr(door.keras.backend, "backend", lambda: "jax")
    is_refused("fast=True: fast blocks are TensorFlow's, and Keras is on jax", add, model, LoraConfig(), fast=True)
    assert adapter_names(model) == [] and not state_of(model).fast
