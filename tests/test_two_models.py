"""Two models on one encoder: its adapters belong to the model through which they were added."""

import numpy as np
import pytest

from tests.conftest import randomize, tiny_inputs, tiny_model
from tf_adapters import (
    AdapterConfig,
    InputError,
    LoraConfig,
    active_adapter,
    add_adapters,
    change_head,
    load_backbone,
    remove_adapters,
    save_adapter,
    set_trainable,
)

SMALL = AdapterConfig(bottleneck_size=4)


@pytest.mark.parametrize("how", ["its encoder", "its blocks", "one block"])
@pytest.mark.parametrize("known", [True, False])
def test_a_second_model_on_an_adapted_encoder_is_refused_and_the_first_answers_as_before(how, known):
    model, inputs = tiny_model(), tiny_inputs()
    randomize(add_adapters(model, SMALL, name="film", seed=1))
    wanted, other = model(inputs).logits.numpy(), tiny_model(num_labels=3)
    if known:
        set_trainable(other, "head")
    if how == "its encoder":
        other.bert = model.bert
    elif how == "its blocks":
        other.bert.encoder = model.bert.encoder
    else:
        other.bert.encoder.layer[2] = model.bert.encoder.layer[2]
    for operation in (add_adapters, remove_adapters, active_adapter, set_trainable):
        with pytest.raises(InputError, match=r"adapters \(film\) that were added to another model, TFBertFor.*"):
            operation(other)
    np.testing.assert_array_equal(model(inputs).logits.numpy(), wanted)
    remove_adapters(model)
    add_adapters(other, LoraConfig(rank=2), name="mail")
    with pytest.raises(InputError, match=r"adapters \(mail\) that were added to another model, TFBertFor.*"):
        set_trainable(model, "head")


def test_a_model_whose_adapted_encoder_was_exchanged_is_refused(tmp_path):
    model, other = tiny_model(), tiny_model(seed=1)
    set_trainable(add_adapters(model, SMALL), "adapters")
    own = model.bert
    model.bert = other.bert
    with pytest.raises(
        InputError, match=r"another encoder than when its adapters \(default\) were added: put that one"
    ):
        save_adapter(model, tmp_path / "a")
    model.bert = own
    save_adapter(model, tmp_path / "a")


def test_of_models_that_change_head_made_one_has_the_adapters(checkpoint):
    first = load_backbone(checkpoint)
    second, inputs = change_head(first, num_labels=3), tiny_inputs()
    randomize(add_adapters(second, SMALL, seed=1))
    wanted = second(inputs).logits.numpy()
    for operation in (add_adapters, change_head):
        with pytest.raises(InputError, match="were added to another model"):
            operation(first)
    np.testing.assert_array_equal(second(inputs).logits.numpy(), wanted)
    remove_adapters(second)
    change_head(first)


def test_an_addition_that_fails_leaves_the_encoder_to_others():
    model, other = tiny_model(), tiny_model()
    other.bert = model.bert
    with pytest.raises(InputError, match="blocks"):
        add_adapters(model, AdapterConfig(bottleneck_size=4, blocks=(99,)))
    with pytest.raises(InputError, match="head"):
        add_adapters(model, SMALL, head="poetry")
    add_adapters(other, SMALL)


class TestOnKerasHub:
    @pytest.fixture(autouse=True)
    def door(self, checkpoints):
        pytest.importorskip("keras_hub", reason="needs the extra `keras-hub`")
        from tests.keras_hub_models import fill, inputs, keras_hub

        self.classifier = keras_hub.models.BertTextClassifier
        self.fill, self.inputs = fill, inputs("bert")[1]
        self.model = load_backbone(str(checkpoints("bert")), door="keras-hub")

    @pytest.mark.parametrize("through", ["the backbone", "a second task model"])
    def test_a_second_model_is_refused_and_the_first_answers_as_before(self, through):
        model = self.model
        add_adapters(model, SMALL, name="film", seed=1)
        self.fill(model)
        wanted = model.predict(self.inputs, verbose=0)
        other = model.backbone
        if through == "a second task model":
            other = self.classifier(model.backbone, num_classes=3, preprocessor=None)
        for operation in (add_adapters, remove_adapters, set_trainable):
            with pytest.raises(InputError, match=r"adapters \(film\) that were added to another model, BertTextCl"):
                operation(other)
        np.testing.assert_array_equal(model.predict(self.inputs, verbose=0), wanted)
        remove_adapters(model)
        add_adapters(other, SMALL, name="mail")
        with pytest.raises(InputError, match=r"adapters \(mail\) that were added to another model"):
            add_adapters(model, SMALL)
