"""Known failures of this stack, and the test that shows that the package does not meet each.

The numbers are those of the project's list of traps; tests that stand with their subject
are named here, the others follow below.
"""

import importlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import tiny_inputs, tiny_model, write_checkpoint
from tf_adapters import AdapterConfig, WordPiece, add_adapters, load_adapter, load_backbone, save_adapter, set_trainable
from tf_adapters._keras import keras

TESTS = {
    1: "test_loading:test_pytorch_named_safetensors_are_read_exactly",
    2: "test_traps:test_the_notice_of_tensorflow_classes_is_silenced_and_no_other",
    5: "test_trainable:test_head_logits_and_loss_are_float32_under_mixed_precision",
    6: "test_fit:test_xla_compiles_once_per_batch_shape",
    7: "test_trainable:test_exact_names_that_train_for_each_recipe",
    8: "test_trainable:test_frozen_weights_are_bit_equal_after_a_real_fit_and_every_chosen_one_moves",
    9: "test_traps:test_directory_saved_in_one_freeze_state_loads_in_another",
    10: "test_directory:test_loading_into_a_fresh_backbone_gives_bit_equal_logits",
    11: "test_loading:test_directory_that_holds_adapters_fails_loudly",
    12: "test_injection:test_several_named_adapters_switch_after_tracing",
    13: "test_injection:test_one_seed_gives_the_same_adapters_and_no_two_weights_alike",
    14: "test_traps:test_shared_adapters_carry_no_users_path_and_are_saved_once",
    15: "test_traps:test_thin_saved_model_gives_the_same_numbers_and_a_smaller_graph",
    16: "test_traps:test_sites_follow_transformers_call_signature_and_are_built_at_injection",
}


@pytest.mark.parametrize("trap", sorted(TESTS))
def test_each_trap_has_its_test(trap):
    module, name = TESTS[trap].split(":")
    assert callable(getattr(importlib.import_module(f"tests.{module}"), name))


@pytest.mark.slow
def test_the_notice_of_tensorflow_classes_is_silenced_and_no_other(tmp_path):
    write_checkpoint(tmp_path)
    script = (
        "import logging, sys, tf_adapters\n"
        "model = tf_adapters.load_backbone(sys.argv[1])\n"
        "logging.getLogger('transformers.modeling_tf_utils').warning('another notice')\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, text=True, timeout=300, check=True
    )
    assert "classes are deprecated" not in result.stderr
    assert "another notice" in result.stderr


def test_directory_saved_in_one_freeze_state_loads_in_another(checkpoint, tmp_path):
    config = AdapterConfig(4, init_stddev=0.5, train_layer_norm="all")
    model = set_trainable(add_adapters(load_backbone(checkpoint), config, seed=0), "adapters")
    for index, variable in enumerate(model.trainable_variables):
        variable.assign_add(tf.fill(variable.shape, 0.01 * index))
    save_adapter(model, tmp_path)
    for mode in ("head", "full", "adapters"):
        other = set_trainable(add_adapters(load_backbone(checkpoint), config, seed=1), mode)
        load_adapter(other, tmp_path)
        assert np.array_equal(other(tiny_inputs()).logits, model(tiny_inputs()).logits)


def test_shared_adapters_carry_no_users_path_and_are_saved_once(tmp_path):
    from safetensors.numpy import load_file

    model = set_trainable(add_adapters(tiny_model(), AdapterConfig(4, sharing=2)), "adapters")
    names = {variable.name for variable in model.weights if variable.name.startswith("adapters/")}
    assert names == {
        f"adapters/default/layers.{group}/{part}/{weight}:0"
        for group in ("0-1", "2-3")
        for part in ("down", "up")
        for weight in ("kernel", "bias")
    }
    save_adapter(model, tmp_path)
    assert sum(key.startswith("layer") for key in load_file(tmp_path / "adapter.safetensors")) == 8


@pytest.mark.nightly
def test_thin_saved_model_gives_the_same_numbers_and_a_smaller_graph(checkpoint, tmp_path):
    model = add_adapters(load_backbone(checkpoint), AdapterConfig(4, init_stddev=0.5), seed=0)
    wordpiece = WordPiece.from_directory(checkpoint, max_length=16)

    class Served(tf.Module):
        def __init__(self):
            super().__init__()
            self.variables_ = list(model.weights)
            self.switches = [
                site.switch
                for block in model.bert.encoder.layer
                for site in (block.attention.dense_output, block.bert_output)
            ]
            self.acting = model.bert.encoder.layer[0].attention.dense_output.acting
            self.tokenizer = wordpiece

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def __call__(self, text):
            return model(self.tokenizer(text), training=False).logits

    text = tf.constant(["a great film", "the plot was dull and the cast awful"])
    tf.saved_model.save(Served(), str(tmp_path / "thin"))
    model.predict(dict(wordpiece(text)), verbose=0)
    tf.saved_model.save(model, str(tmp_path / "whole"))
    loaded = tf.saved_model.load(str(tmp_path / "thin"))
    # One graph against eager execution: float32 rounding.
    np.testing.assert_allclose(loaded(text), model(wordpiece(text)).logits, atol=1e-6)
    thin, whole = ((tmp_path / name / "saved_model.pb").stat().st_size for name in ("thin", "whole"))
    assert thin < whole / 2


def test_sites_follow_transformers_call_signature_and_are_built_at_injection():
    import inspect

    from transformers.models.bert.modeling_tf_bert import TFBertOutput, TFBertSelfOutput

    from tf_adapters.models.transformers.bert import TFBertAdapterOutput, TFBertAdapterSelfOutput

    for ours, theirs in ((TFBertAdapterOutput, TFBertOutput), (TFBertAdapterSelfOutput, TFBertSelfOutput)):
        assert list(inspect.signature(ours.call).parameters) == list(inspect.signature(theirs.call).parameters)
    model = add_adapters(tiny_model(), AdapterConfig(4))
    # Before any call: transformers' explicit build() methods do not reach new sub-layers.
    assert len([variable for variable in model.weights if "adapters/" in variable.name]) == 32
    assert all(layer.built for layer in model.submodules if isinstance(layer, keras.layers.Layer) and layer.weights)
