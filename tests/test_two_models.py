"""Two models on one encoder: its adapters belong to the model through which they were added."""

import numpy as np
import pytest

from tests.conftest import is_refused, randomize, tiny_inputs, tiny_model
from tests.table import DOORS, bits
from tf_adapters import (
    AdapterConfig,
    LoraConfig,
    add_adapters,
    load_backbone,
    remove_adapters,
    save_adapter,
    set_trainable,
)
from tf_adapters.models import active_adapter, change_head

SMALL = AdapterConfig(bottleneck_size=4)


def its_encoder(model, other):
    other.bert = model.bert
    return other


def its_blocks(model, other):
    other.bert.encoder = model.bert.encoder
    return other


def one_block(model, other):
    other.bert.encoder.layer[1] = model.bert.encoder.layer[1]
    return other


def a_second_task_model(model, other):
    from keras_hub.models import BertTextClassifier

    return BertTextClassifier(model.backbone, num_classes=3, preprocessor=None)


@pytest.mark.parametrize(
    "name, how, known",
    [
        ("first", its_encoder, True),
        ("first", its_blocks, False),
        ("first", one_block, False),
        ("second", lambda model, other: model.backbone, False),
        ("second", a_second_task_model, False),
    ],
)
def test_a_second_model_on_an_adapted_encoder_is_refused_and_the_first_answers_as_before(name, how, known):
    if name not in DOORS:
        pytest.skip("needs another door")
    door = DOORS[name]
    model, other = door.build("bert"), door.build("bert") if name == "first" else None
    randomize(add_adapters(model, SMALL, name="film", seed=1))
    wanted = door.called(model, door.given(model, "bert"))
    if known:
        set_trainable(other, "head")
    other = how(model, other)
    for operation in (add_adapters, remove_adapters, active_adapter, set_trainable):
        is_refused(r"adapters \(film\) that were added to another model, (TFBert|BertText)", operation, other)
    np.testing.assert_array_equal(door.called(model, door.given(model, "bert")), wanted)
    remove_adapters(model)
    add_adapters(other, LoraConfig(rank=2), name="mail")
    is_refused(r"adapters \(mail\) that were added to another model, ", set_trainable, model, "head")


def test_a_model_whose_adapted_encoder_was_exchanged_is_refused(tmp_path):
    model, other = (tiny_model(seed=seed, num_hidden_layers=1) for seed in range(2))
    set_trainable(add_adapters(model, SMALL), "adapters")
    own = model.bert
    model.bert = other.bert
    message = r"another encoder than when its adapters \(default\) were added: put that one"
    is_refused(message, save_adapter, model, tmp_path / "a")
    model.bert = own
    save_adapter(model, tmp_path / "a")


def test_of_models_that_change_head_made_one_has_the_adapters(checkpoint):
    first = load_backbone(checkpoint)
    second, inputs = change_head(first, num_labels=3), tiny_inputs()
    randomize(add_adapters(second, SMALL, seed=1))
    before = bits(second)
    for operation in (add_adapters, change_head):
        is_refused("were added to another model", operation, first)
    is_refused("it has adapters.*remove_adapters first", change_head, second)
    assert bits(second) == before and first(inputs).logits.shape == (3, 2)
    remove_adapters(second)
    change_head(first)


def test_an_addition_that_fails_leaves_the_encoder_to_others():
    model, other = tiny_model(num_hidden_layers=1), tiny_model(num_hidden_layers=1)
    other.bert = model.bert
    is_refused("blocks", add_adapters, model, AdapterConfig(bottleneck_size=4, blocks=(99,)))
    is_refused("head", add_adapters, model, SMALL, head="poetry")
    add_adapters(other, SMALL)
