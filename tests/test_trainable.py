"""Which weights train: their exact names for every recipe and mode, what a real fit changes, and how many they are."""

import re

import numpy as np
import pytest
import tensorflow as tf
import transformers

from tests.cases import nightly_but
from tests.conftest import is_refused, tiny_inputs, tiny_model
from tests.families import FAMILIES, family_model
from tf_adapters import AdapterConfig, add_adapters, get_recipe, parameter_counts, remove_adapters, set_trainable
from tf_adapters._keras import keras
from tf_adapters.models import freeze
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.bert_like import BERT
from tf_adapters.models.transformers.heads import use_two_layer_head
from tf_adapters.recipes import PRETRAINING, RECIPES

DEPTH = 4
DENSE = [f"attention/self/{name}" for name in ("query", "key", "value")]
DENSE += ["attention/output/dense", "intermediate/dense", "output/dense"]
HEAD = {"classifier/kernel", "classifier/bias"}


def names(model):
    found = [re.sub(r"^tf_bert_[^/]*/", "", variable.name[: -len(":0")]) for variable in model.trainable_variables]
    assert len(found) == len(set(found))
    return set(found)


def norms(blocks=range(DEPTH), embeddings=False):
    found = {
        f"bert/encoder/layer_._{b}/{place}/LayerNorm/{w}"
        for b in blocks
        for place in ("attention/output", "output")
        for w in ("gamma", "beta")
    }
    return found | ({"bert/embeddings/LayerNorm/gamma", "bert/embeddings/LayerNorm/beta"} if embeddings else set())


def dense(blocks):
    return {f"bert/encoder/layer_._{b}/{name}/{w}" for b in blocks for name in DENSE for w in ("kernel", "bias")}


KERNELS = tuple(f"{part}/{w}" for part in ("down", "up") for w in ("kernel", "bias"))


def adapters(keys, name="default", parts=KERNELS):
    return {f"adapters/{name}/{key}/{part}" for key in keys for part in parts}


EMBEDDINGS = {
    "bert/embeddings/word_embeddings/weight",
    "bert/embeddings/token_type_embeddings/embeddings",
    "bert/embeddings/position_embeddings/embeddings",
}
POOLER = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
BIASES = {name for name in dense(range(DEPTH)) | norms(embeddings=True) | POOLER if name.endswith(("bias", "beta"))}
ALL = EMBEDDINGS | dense(range(DEPTH)) | norms(embeddings=True) | POOLER | HEAD
BOTH = [f"layer.{b}.{place}" for b in range(DEPTH) for place in ("attention", "ffn")]
PER_BLOCK, FFN = [f"layer.{b}" for b in range(DEPTH)], [f"layer.{b}.ffn" for b in range(DEPTH)]
THREE = adapters(["layers.0-2", "layers.3-3"])
QUERY_VALUE = [f"layer.{b}.{place}" for b in range(DEPTH) for place in ("query", "value")]
IA3 = [f"layer.{b}.{place}" for b in range(DEPTH) for place in ("key", "value", "output")]
TWO_LAYERS = {f"classifier/{layer}/{w}" for layer in ("hidden", "output") for w in ("kernel", "bias")}
HOULSBY = adapters(BOTH) | norms(embeddings=True) | HEAD
_OF_HOULSBY = ("houlsby-2019", "houlsby-2019-additional", "he-2021", "he-2021-tae", "he-2021-xtreme", "he-2021-xnli")
OF_RECIPES = {
    **dict.fromkeys(("default", "houlsby-code-2019", *_OF_HOULSBY), HOULSBY),
    "report-per-layer": adapters(PER_BLOCK) | HEAD,
    "report-per-layer-code": adapters(PER_BLOCK) | norms() | HEAD,
    "report-unshared": adapters(BOTH) | norms() | TWO_LAYERS,
    "report-additional": adapters(BOTH) | norms() | TWO_LAYERS,
    "report-unshared-code": adapters(BOTH) | norms() | HEAD,
    "report-3-shared": THREE | HEAD,
    "report-3-shared-code": THREE | norms() | HEAD,
    "han-2021": adapters(BOTH) | HEAD,
    "pfeiffer-2021": adapters(FFN) | HEAD,
    "hu-2022": adapters(QUERY_VALUE, parts="ab") | HEAD,
    "liu-2024-dora": adapters(QUERY_VALUE, parts=("a", "b", "magnitude")) | HEAD,
    "liu-2022": adapters(IA3, parts=("scale",)) | HEAD,
    "houlsby-2019-layer-norm": norms(embeddings=True) | HEAD,
    **{f"{name}-full": ALL for name in (*_OF_HOULSBY, "han-2021")},
}


@pytest.fixture(scope="module")
def made():
    return {}


@pytest.fixture
def plain(made):
    """Function of a number of head layers that returns a model without adapters, made once; any mode may be set."""

    def get(head_layers=1):
        if head_layers not in made:
            made[head_layers] = tiny_model()
            if head_layers == 2:
                use_two_layer_head(made[2])
        return made[head_layers]

    yield get
    for model in made.values():
        if state_of(model).adapters:
            remove_adapters(model)


@pytest.mark.parametrize("recipe", OF_RECIPES)
def test_exact_names_that_train_for_each_recipe(recipe, plain):
    chosen = get_recipe(recipe)
    model = plain(chosen.head_layers)
    if chosen.trainable == "adapters":
        add_adapters(model, chosen.adapter)
    set_trainable(model, chosen.trainable)
    assert names(model) == OF_RECIPES[recipe]

    assert set(OF_RECIPES) == set(RECIPES) - set(PRETRAINING)


MODES = {
    "full": ALL | adapters(BOTH),
    "top-3": dense([1, 2, 3]) | norms([1, 2, 3]) | POOLER | HEAD,
    "top-4": ALL,
    "layer-norm": norms(embeddings=True) | HEAD,
    "bias": BIASES | HEAD,
    "head": HEAD,
    "adapters": HOULSBY,
}


@pytest.mark.parametrize("mode", MODES)
def test_exact_names_that_train_for_each_mode(mode, plain):
    model = add_adapters(plain(), AdapterConfig(bottleneck_size=2))
    # From whatever state the model is in.
    for before in ("full", "bias"):
        set_trainable(model, before)
        set_trainable(model, mode)
        assert names(model) == MODES[mode]
    for block in model.bert.encoder.layer:
        found = [variable.name.rpartition("/")[2] for variable in block.intermediate.dense.weights]
        assert found == (["bias:0", "kernel:0"] if mode == "bias" else ["kernel:0", "bias:0"])


def test_unknown_modes_and_missing_adapters_are_named(plain):
    is_refused("call add_adapters", set_trainable, plain(), "adapters")
    model = add_adapters(plain(), AdapterConfig(2))
    for mode in ("top-0", "top-5", "top", None, "layer_norm"):
        is_refused(f"mode={mode!r}", set_trainable, model, mode)


def test_counts_on_bert_base_equal_the_papers():
    """By the formulas that tests/test_table.py and tests/test_families.py hold against models."""
    sizes = BERT.parameters(transformers.BertConfig())
    assert (sizes["total"], sizes["layer_norm"]["all"]) == (109_482_240, 38_400)
    assert sizes["layer_norm"]["encoder"] == 36_864
    papers = {"report-per-layer": 1_189_632, "report-unshared": 3_006_720, "report-3-shared": 396_544}
    for recipe, expected in papers.items():
        chosen = get_recipe(recipe)
        norms = sizes["layer_norm"][chosen.adapter.train_layer_norm]
        first_of_two_layers = (chosen.head_layers == 2) * 769 * 768
        assert chosen.adapter.parameters(12, 768, 3072) + norms + first_of_two_layers == expected


def test_head_logits_and_loss_are_float32_under_mixed_precision(float32_policy):
    float32_policy("mixed_bfloat16")
    model = add_adapters(tiny_model(num_hidden_layers=1), AdapterConfig(bottleneck_size=4))
    set_trainable(model, "adapters")
    output = model(tiny_inputs(), labels=tf.constant([0, 1, 0]), output_hidden_states=True)
    assert output.hidden_states[-1].dtype == "bfloat16"
    assert output.logits.dtype == tf.float32
    # More digits than half precision could hold.
    assert np.any(output.logits.numpy() != output.logits.numpy().astype(np.float16).astype(np.float32))
    assert output.loss.dtype == tf.float32
    assert all(variable.dtype == tf.float32 for variable in model.weights)


# After compile


def compiled(mode, optimizer, **settings):
    model = add_adapters(tiny_model(num_hidden_layers=2), AdapterConfig(4, init_stddev=0.3), seed=0)
    set_trainable(model, mode)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), **settings)
    return model


def names_that_move(model):
    before = [variable.numpy() for variable in model.weights]
    model.fit(tiny_inputs(), np.array([0, 1, 0]), epochs=2, verbose=0)
    return {weight.name for weight, value in zip(model.weights, before) if not np.array_equal(weight.numpy(), value)}


def names_that_should(model):
    # The bias of the keys shifts every score of a query alike, so that it has no gradient.
    return {variable.name for variable in model.trainable_variables if "/key/bias" not in variable.name}


@pytest.mark.slow
def test_what_is_chosen_after_compile_and_after_fit_is_what_trains():
    model = compiled("adapters", keras.optimizers.Adam(0.01))
    set_trainable(model, "head")
    head = {variable.name for variable in model.classifier.weights}
    assert names_that_move(model) == names_that_should(model) == head
    for mode in ("adapters", "top-1", "head"):
        set_trainable(model, mode)
        moved = names_that_move(model)
        assert head <= moved <= {variable.name for variable in model.trainable_variables}
        assert moved >= {name for name in names_that_should(model) if "embeddings" not in name}


class Unfreeze(keras.callbacks.Callback):
    """Train the adapters too, from the second epoch on."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 0:
            set_trainable(self.model, "adapters")


def test_a_callback_changes_what_trains_between_the_epochs_of_fit_as_between_two():
    trained, rows = [], (tiny_inputs(), np.array([0, 1, 0]))
    for epochs in ((2,), (1, 1)):
        keras.utils.set_random_seed(0)
        model = compiled("head", keras.optimizers.Adam(0.01))
        for count in epochs:
            model.fit(*rows, epochs=count, batch_size=2, shuffle=False, verbose=0, callbacks=[Unfreeze()])
        trained.append([variable.numpy() for variable in model.trainable_variables])
    assert len(trained[0]) > 2
    for within, between in zip(*trained, strict=True):
        np.testing.assert_array_equal(within, between)


@pytest.mark.nightly
def test_what_goes_on_training_keeps_its_moments_and_the_optimizer_is_the_same_object():
    model = compiled("head", optimizer := keras.optimizers.Adam(0.01))
    names_that_move(model)

    def moments_of_head():
        places = [optimizer._index_dict[optimizer._var_key(variable)] for variable in model.classifier.weights]
        return [optimizer._momentums[place].numpy() for place in places]

    moments = moments_of_head()
    assert all(np.abs(moment).max() > 0 for moment in moments)
    set_trainable(model, "adapters")
    assert model.optimizer is optimizer and optimizer.iterations == 2
    assert all(np.array_equal(moment, value) for moment, value in zip(moments, moments_of_head()))
    assert len(optimizer.variables) == 1 + 2 * len(model.trainable_variables)  # the number of steps too
    optimizer.learning_rate = 0.0
    assert names_that_move(model) == set()


def test_a_matrix_that_transformers_resized_is_frozen_and_saved_as_the_others_are():
    model = add_adapters(tiny_model(), AdapterConfig(4), seed=0)
    model.resize_token_embeddings(model.config.vocab_size + 3)
    embeddings = model.get_input_embeddings().weight
    for mode, trains in (("adapters", False), ("full", True), ("head", False)):
        set_trainable(model, mode)
        assert any(embeddings is variable for variable in model.trainable_variables) == trains
    assert any(embeddings is variable for variable in state_of(model).changed(model))


def test_a_frozen_model_does_not_train_though_it_was_compiled_before():
    model = freeze(compiled("head", keras.optimizers.Adam(0.01), run_eagerly=True))
    assert model.trainable_variables == [] and names_that_move(model) == set()


@pytest.mark.parametrize("family", nightly_but(["roberta", "mpnet"], [one for one in FAMILIES if one != "albert"]))
def test_poolers_that_no_head_reads_do_not_train_with_the_top_blocks(family):
    model = set_trainable(family_model(family, "classification"), "top-1")
    counts = parameter_counts(model)
    assert counts.trainable == counts.adapter + counts.layer_norm + counts.head + counts.backbone, family
    assert counts.backbone > 0 and state_of(model).trainable == "top-1"
