"""What is a family's own: its heads, depth, size, checkpoints and words. tests/test_table.py has what all share, and
tests/families.py makes the models."""

import functools
import inspect

import numpy as np
import pytest
import tensorflow as tf
from transformers.models.bert.modeling_tf_bert import TFBertOutput, TFBertSelfOutput

from tests.cases import nightly_but
from tests.conftest import is_refused, tiny_model
from tests.families import FAMILIES, family_inputs, family_model, write_family_checkpoint
from tf_adapters import AdapterConfig, add_adapters, load_backbone, load_tokenizer, remove_adapters, set_trainable
from tf_adapters._keras import keras
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.bert_like import BERT
from tf_adapters.models.transformers.family import get_family

_HEADS = [(family, head) for family in FAMILIES for head in get_family(family).heads]
_QUICK = {("deberta-v2", "masked-lm"), ("electra", "classification"), ("mpnet", "classification")}
_QUICK |= {("distilbert", "multiple-choice"), ("roberta", "token-classification")}
HEADS = nightly_but(_QUICK, _HEADS)

#: A family's model, made once a process; not to be changed.
plain_model = functools.cache(family_model)


@pytest.mark.parametrize("family, head", HEADS)
def test_adapters_that_add_nothing_leave_every_head_bit_equal_and_go_without_a_trace(family, head):
    model = family_model(family, head)
    inputs = family_inputs(family, choices=2 if head == "multiple-choice" else None)
    before = model(inputs)[0]
    add_adapters(model, AdapterConfig(bottleneck_size=4, init_stddev=0.3), seed=0)
    assert not np.allclose(model(inputs)[0], before, rtol=0, atol=1e-6)
    for layer in state_of(model).adapters["default"].layers.values():
        layer.up_kernel.assign(tf.zeros_like(layer.up_kernel))
    np.testing.assert_array_equal(model(inputs)[0], before)
    set_trainable(model, "adapters")
    remove_adapters(model)
    np.testing.assert_array_equal(model(inputs)[0], before)
    assert len(model.trainable_variables) == len(model.weights)


@pytest.mark.parametrize("family", FAMILIES)
def test_depth_and_parameters_follow_from_the_configuration(family):
    model, described = plain_model(family), get_family(family)
    main, wanted = described.main_layer(model), described.parameters(model.config)
    assert sum(int(tf.size(variable)) for variable in main.weights) == wanted["total"]
    norms = state_of(model).layer_norm_variables(model, "all")
    assert sum(int(tf.size(variable)) for variable in norms) == wanted["layer_norm"]["all"]
    # A block of its own for every depth, or one for all.
    assert len(described.blocks(model)) == (1 if family == "albert" else 3) == described.depth(model.config)


def test_alberts_adapter_acts_at_every_depth_of_its_block():
    model = family_model("albert")
    add_adapters(model, AdapterConfig(bottleneck_size=4, init_stddev=0.3), seed=0)
    calls = []
    layer = state_of(model).adapters["default"].layers["layer.0.ffn"]
    call = layer.call
    layer.call = lambda *arguments, **options: (calls.append(1), call(*arguments, **options))[1]
    model(family_inputs("albert"))
    assert len(calls) == 3
    is_refused("the encoder has 1 blocks", add_adapters, model, AdapterConfig(blocks=(2,)), name="upper")


@pytest.mark.parametrize(
    "family, bare",
    nightly_but(
        [(family, bool(number % 2)) for number, family in enumerate(FAMILIES)],
        [(family, bare) for family in FAMILIES for bare in (False, True)],
    ),
)
def test_checkpoints_in_pytorchs_names_are_read_and_the_words_that_they_lack_are_named(family, bare, tmp_path):
    model = plain_model(family)
    write_family_checkpoint(model, tmp_path, bare=bare)
    loaded = load_backbone(tmp_path, num_labels=2)
    assert type(loaded) is type(model)
    main, other = (get_family(family).main_layer(each) for each in (model, loaded))
    for one, two in zip(main.weights, other.weights):
        np.testing.assert_array_equal(one, two, err_msg=one.name)
    assert state_of(model).digest(model) == state_of(loaded).digest(loaded)
    is_refused("holds no ", load_tokenizer, loaded)


def test_sites_follow_transformers_call_signature_and_are_built_at_injection():
    for ours, theirs in zip(BERT.block_class.site_classes.values(), (TFBertSelfOutput, TFBertOutput)):
        assert list(inspect.signature(ours.call).parameters) == list(inspect.signature(theirs.call).parameters)
    model = add_adapters(tiny_model(), AdapterConfig(4))
    # Before any call: transformers' explicit build() methods do not reach new sub-layers.
    assert len([variable for variable in model.weights if "adapters/" in variable.name]) == 32
    assert all(layer.built for layer in model.submodules if isinstance(layer, keras.layers.Layer) and layer.weights)
