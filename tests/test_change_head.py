"""Another head on an encoder that is in memory once."""

import functools

import numpy as np
import pytest

from tests.cases import nightly_but
from tests.conftest import is_refused, randomize
from tests.families import FAMILIES, family_inputs, family_model, write_family_checkpoint
from tf_adapters import AdapterConfig, add_adapters, load_backbone, remove_adapters, set_trainable
from tf_adapters._keras import keras
from tf_adapters.models import change_head
from tf_adapters.models.state import state_of
from tf_adapters.models.weight_files import named_weights

HEADS = {
    "token-classification": {"labels": ["A", "B", "C"]},
    "classification": {"num_labels": 4},
    "question-answering": {},
}


def new(make, *arguments, **options):
    keras.utils.set_random_seed(5)
    return make(*arguments, **options)


@pytest.mark.parametrize("family", nightly_but(["distilbert"], FAMILIES))
def test_it_is_what_loading_would_give_on_the_same_variables(family, tmp_path):
    write_family_checkpoint(family_model(family), tmp_path)
    model = load_backbone(tmp_path, head="classification", num_labels=2)
    inputs = family_inputs(family)
    for head, options in HEADS.items():
        encoder = {id(variable) for variable in state_of(model).backbone_variables(model)}
        pooler = state_of(model).family.pooler(model)
        encoder -= set() if pooler is None else {id(variable) for variable in pooler.weights}
        other = new(change_head, model, head=head, **options)
        expected = new(load_backbone, tmp_path, head=head, **options)
        assert encoder < {id(variable) for variable in other.weights}
        ours, theirs = (named_weights(each.weights) for each in (other, expected))
        assert list(ours) == list(theirs)
        for name in ours:
            np.testing.assert_array_equal(ours[name][0].numpy(), theirs[name][0].numpy(), err_msg=name)
        states = state_of(other), state_of(expected)
        assert len({state.digest(each) for state, each in zip(states, (other, expected))}) == 1
        assert bool(states[0].newly_initialized) == bool(states[1].newly_initialized)
        for each in (other, expected):
            randomize(add_adapters(each, AdapterConfig(bottleneck_size=4, init_stddev=0.5), seed=1))
            set_trainable(each, "adapters")
        assert [v.shape for v in other.trainable_variables] == [v.shape for v in expected.trainable_variables]
        for value, wanted in zip(other(inputs).to_tuple(), expected(inputs).to_tuple()):
            np.testing.assert_array_equal(value, wanted)
        model = remove_adapters(other)


def test_models_that_it_does_not_fit_are_refused(checkpoint):
    model = load_backbone(checkpoint)
    is_refused("no head of masked words", change_head, model, head="masked-lm")
    is_refused("head='poetry' is unknown", change_head, model, head="poetry")


def test_an_encoder_that_is_no_longer_that_of_its_files_is_refused(checkpoint, tmp_path):
    model = load_backbone(checkpoint)
    model.save_weights(tmp_path / "as-it-came.h5")
    kernel = model.bert.encoder.layer[0].intermediate.dense.kernel
    kernel.assign(kernel + 0.1)
    model.save_weights(tmp_path / "other.h5")
    change = functools.partial(change_head, model, head="token-classification")
    for file in ("other.h5", "as-it-came.h5", "other.h5"):
        model.load_weights(tmp_path / file)
        if file == "other.h5":
            is_refused("changed since it was loaded", change)
        else:
            change()
