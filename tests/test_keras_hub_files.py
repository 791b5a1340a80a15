"""Files that Keras writes of a model with adapters: .keras, presets, weights, exports."""

import inspect
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

keras = pytest.importorskip("keras", minversion="3.10", reason="needs the extra `keras-hub`")
keras_hub = pytest.importorskip("keras_hub", reason="needs the extra `keras-hub`")

import tf_adapters  # noqa: E402
from tests.cases import nightly_but  # noqa: E402
from tests.keras_hub_models import (  # noqa: E402
    CLASSIFIERS,
    CONFIGS,
    FAMILIES,
    PLACES,
    answers,
    bits,
    fill,
    hidden,
    inputs,
    small_backbone,
    write_checkpoint,
)
from tf_adapters import InputError  # noqa: E402
from tf_adapters.models import frozen_digest  # noqa: E402
from tf_adapters.models.injection import active_adapter, adapter_names  # noqa: E402
from tf_adapters.models.keras_hub import door  # noqa: E402
from tf_adapters.models.keras_hub.loading import load_backbone  # noqa: E402
from tf_adapters.models.state import state_of  # noqa: E402

OPEN = {
    "all.keras": "from tf_adapters.models import load_keras_file as load",
    "preset": "import keras_hub, tf_adapters.models.keras_hub; load = keras_hub.models.TextClassifier.from_preset",
}
LOAD = """
import sys
import numpy as np

model = load(sys.argv[1])
import tf_adapters
from tests.keras_hub_models import answers

one = answers(model, sys.argv[2])
tf_adapters.set_active(model, "two")
two = answers(model, sys.argv[2])
tf_adapters.set_active(model, "one")
with tf_adapters.disable_adapters(model):
    plain = answers(model, sys.argv[2])
tf_adapters.save_adapter(model, sys.argv[3] + "/one")
tf_adapters.remove_adapters(model)
np.savez(sys.argv[3] + "/found.npz", one=one, two=two, plain=plain, removed=answers(model, sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("family", nightly_but(["bert"], CLASSIFIERS))
@pytest.mark.parametrize("file", nightly_but(["all.keras"], OPEN))
def test_a_keras_file_or_preset_has_all_adapters_and_the_encoder_without_them(checkpoints, tmp_path, family, file):
    model = load_backbone(checkpoints(family), labels=["no", "yes", "perhaps"])
    plain = answers(model, family)
    tf_adapters.add_adapters(model, CONFIGS["ia3"], name="gone", seed=3)
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], name="two", seed=2)
    fill(model, 2)
    two = answers(model, family)
    tf_adapters.add_adapters(model, CONFIGS["lora"], name="one", seed=1)
    fill(model, 1)
    tf_adapters.remove_adapters(model, name="gone")
    pretrained = {"directory": "words", "sha256": "0", "trainable": "adapters", "task": "words", "kind": None}
    state_of(model).adapters["one"].pretrained = pretrained
    tf_adapters.set_trainable(model)
    one = answers(model, family)
    with tf_adapters.disable_adapters(model):
        off = answers(model, family)
    tf_adapters.save_adapter(model, tmp_path / "one-before")
    (model.save if file == "all.keras" else model.save_to_preset)(str(tmp_path / file))
    done = in_a_new_process(OPEN[file] + LOAD, tmp_path / file, family, tmp_path)
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "found.npz")
    for name, value in {"one": one, "two": two, "plain": off, "removed": plain}.items():
        np.testing.assert_allclose(found[name], value, atol=2e-6, err_msg=name)
    about = [json.loads((tmp_path / name / "tf_adapters.json").read_text()) for name in ("one-before", "one")]
    assert about[0] == about[1] and about[1]["head"]["labels"] == ["no", "yes", "perhaps"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("family", "head"),
    [
        *((family, "multiple-choice") for family in FAMILIES),
        *((family, "masked-lm") for family in CLASSIFIERS),
        ("bert", "token-classification"),
    ],
)
def test_a_keras_file_has_every_head(checkpoints, tmp_path, family, head):
    model = load_backbone(checkpoints(family), head=head, num_labels=3)
    plain = answers(model, family)
    model.save(tmp_path / "before.keras")
    tf_adapters.set_trainable(tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1))
    fill(model)
    expected = answers(model, family)
    model.save(tmp_path / "all.keras")
    again = tf_adapters.models.load_keras_file(tmp_path / "all.keras")
    assert bits(again) == bits(model) and type(again).__name__ == type(model).__name__
    assert [weight.path for weight in again.trainable_weights] == [weight.path for weight in model.trainable_weights]
    np.testing.assert_allclose(answers(again, family), expected, atol=2e-6)
    assert tf_adapters.backbone_digest(again) == tf_adapters.backbone_digest(model)
    tf_adapters.remove_adapters(again)
    again.save(tmp_path / "after.keras")
    files = [tf_adapters.models.load_keras_file(tmp_path / f"{name}.keras") for name in ("before", "after")]
    for each in (again, *files):
        np.testing.assert_allclose(answers(each, family), plain, atol=2e-6)


def in_a_new_process(code, *words):
    words = [sys.executable, "-W", "ignore", "-c", code, *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1])}
    return subprocess.run(words, env=environment, capture_output=True, text=True)


def two_adapters(directory):
    """A task model whose pooler is a part of the head, with the adapters "two" and "one", which acts.

    Returns: the model, and what a backbone answers by the name of what acts, None for no adapter.
    """
    write_checkpoint("bert", directory)
    arrays = load_file(directory / "model.safetensors")
    arrays = {name: value for name, value in arrays.items() if "pooler" not in name}
    save_file(arrays, str(directory / "model.safetensors"))
    model, expected = load_backbone(directory, labels=["no", "yes", "perhaps"]), {}
    for seed, (name, config) in enumerate({"two": "houlsby", "one": "lora"}.items()):
        tf_adapters.add_adapters(model, CONFIGS[config], name=name, seed=seed)
        fill(model, seed)
    for name in ("two", "one"):
        tf_adapters.set_active(model, name)
        expected[name] = hidden(model.backbone)
    tf_adapters.set_trainable(model)
    with tf_adapters.disable_adapters(model):
        expected[None] = hidden(model.backbone)
    return model, expected


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["Backbone", "BertBackbone"])
def test_a_preset_of_a_task_has_a_backbone_with_all_adapters(tmp_path, kind):
    model, expected = two_adapters(tmp_path)
    model.save_to_preset(str(tmp_path / "preset"))
    again = getattr(keras_hub.models, kind).from_preset(str(tmp_path / "preset"))
    assert (adapter_names(again), active_adapter(again)) == (["two", "one"], "one")
    for name in ("one", "two"):
        tf_adapters.set_active(again, name)
        for key, value in hidden(again).items():
            np.testing.assert_allclose(value, expected[name][key], atol=2e-6, err_msg=f"{name} {key}")
    assert tf_adapters.backbone_digest(again) == tf_adapters.backbone_digest(model)
    tf_adapters.remove_adapters(again)
    np.testing.assert_allclose(hidden(again)["sequence_output"], expected[None]["sequence_output"], atol=2e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["the family's", "the model's"])
def test_a_preset_opens_by_its_own_class(tmp_path, kind):
    model, _ = two_adapters(tmp_path)
    one = answers(model, "bert")
    model.save_to_preset(str(tmp_path / "preset"))
    kind = keras_hub.models.BertTextClassifier if kind == "the family's" else type(model)
    again = kind.from_preset(str(tmp_path / "preset"))
    assert type(again) is type(model) and again.preprocessor is None
    assert door.config_of(again).label2id == {"no": 0, "yes": 1, "perhaps": 2}
    np.testing.assert_allclose(answers(again, "bert"), one, atol=2e-6)
    for each in (model, again):
        tf_adapters.set_active(each, "two")
    np.testing.assert_allclose(answers(again, "bert"), answers(model, "bert"), atol=2e-6)


def test_kerashub_finds_its_own_classes_for_its_own_presets(checkpoints):
    model = load_backbone(checkpoints("bert"))
    tf_adapters.add_adapters(model, CONFIGS["houlsby"])
    mine = type("Mine", (keras_hub.models.BertTextClassifier,), {})(small_backbone(), num_classes=2)
    tf_adapters.add_adapters(mine, CONFIGS["houlsby"])
    for kind in (keras_hub.models.BertBackbone, type(model.backbone)):
        found = {
            one
            for one in keras.saving.get_custom_objects().values()
            if inspect.isclass(one) and issubclass(one, keras_hub.models.TextClassifier) and one.backbone_cls == kind
        }
        assert found == {keras_hub.models.BertTextClassifier}
    assert type(model.backbone) != keras_hub.models.RobertaBackbone


@pytest.mark.nightly
def test_texts_go_through_a_preset(tmp_path):
    tokenizer = keras_hub.models.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"])
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=7)
    model = keras_hub.models.BertTextClassifier(small_backbone(), num_classes=2, preprocessor=preprocessor)
    tf_adapters.add_adapters(model, CONFIGS["houlsby"])
    fill(model)
    texts, directory = np.array(["good good", "bad"]), str(tmp_path / "preset")
    expected = model.predict(texts, verbose=0)
    model.save_to_preset(directory)
    again = keras_hub.models.TextClassifier.from_preset(directory)
    np.testing.assert_allclose(again.predict(texts, verbose=0), expected, atol=2e-6)
    for kind in (keras_hub.models.TextClassifierPreprocessor, keras_hub.models.BertTextClassifierPreprocessor):
        assert kind.from_preset(directory).sequence_length == 7
    assert keras_hub.tokenizers.Tokenizer.from_preset(directory).vocabulary_size() == 7


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["MaskedLM", "BertMaskedLM"])
def test_a_preset_may_be_of_masked_words(tmp_path, kind):
    model = load_backbone(write_checkpoint("bert", tmp_path, hidden_act="relu"), head="masked-lm")
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], name="two", seed=2)
    fill(model, 2)
    two = answers(model, "bert")
    tf_adapters.add_adapters(model, CONFIGS["lora"], name="one", seed=1)
    fill(model, 1)
    model.save_to_preset(str(tmp_path / "preset"))
    again = getattr(keras_hub.models, kind).from_preset(str(tmp_path / "preset"))
    np.testing.assert_allclose(answers(again, "bert"), answers(model, "bert"), atol=2e-6)
    tf_adapters.set_active(again, "two")
    np.testing.assert_allclose(answers(again, "bert"), two, atol=2e-6)


@pytest.mark.nightly
def test_a_preset_is_opened_as_kerashub_is_asked_to(tmp_path):
    model, _ = two_adapters(tmp_path)
    tf_adapters.models.freeze(model)
    model.save_to_preset(str(tmp_path / "preset"))
    other = keras_hub.models.TextClassifier.from_preset(str(tmp_path / "preset"), num_classes=5)
    assert answers(other, "bert").shape == (3, 5) and adapter_names(other) == ["two", "one"]
    assert list(door.config_of(other).id2label.values()) == [f"LABEL_{index}" for index in range(5)]
    assert tf_adapters.backbone_digest(other) == tf_adapters.backbone_digest(model)
    assert not other.trainable_weights
    half = keras_hub.models.TextClassifier.from_preset(str(tmp_path / "preset"), dtype="bfloat16")
    assert half.backbone.compute_dtype == "bfloat16" and adapter_names(half) == ["two", "one"]
    empty = keras_hub.models.TextClassifier.from_preset(str(tmp_path / "preset"), load_weights=False)
    assert tf_adapters.backbone_digest(empty) != tf_adapters.backbone_digest(model)


@pytest.mark.nightly
def test_a_backbone_opens_whose_task_trained_the_head_alone(checkpoints, tmp_path):
    model = load_backbone(checkpoints("bert"))
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1)
    fill(model)
    tf_adapters.set_trainable(model, "head")
    model.save_to_preset(str(tmp_path / "preset"))
    again = keras_hub.models.Backbone.from_preset(str(tmp_path / "preset"))
    assert not again.trainable_weights and adapter_names(again) == ["default"]
    np.testing.assert_allclose(hidden(again)["sequence_output"], hidden(model.backbone)["sequence_output"], atol=2e-6)


@pytest.mark.nightly
def test_a_task_around_a_backbone_of_a_preset_says_whose_the_adapters_are(tmp_path):
    model, expected = two_adapters(tmp_path)
    model.backbone.save_to_preset(str(tmp_path / "backbone"))
    task = keras_hub.models.TextClassifier.from_preset(str(tmp_path / "backbone"), num_classes=2, preprocessor=None)
    np.testing.assert_allclose(hidden(task.backbone)["sequence_output"], expected["one"]["sequence_output"], atol=2e-6)
    with pytest.raises(InputError, match="BertTextClassifier' was built around a backbone that has adapters already"):
        tf_adapters.set_trainable(task)
    assert adapter_names(task.backbone) == ["two", "one"]
    given = {name: inputs("bert")[1][name] for name in task.input}
    logits = task.predict(given, verbose=0)
    task.save_to_preset(str(tmp_path / "task"))
    again = keras_hub.models.TextClassifier.from_preset(str(tmp_path / "task"))
    np.testing.assert_allclose(again.predict(given, verbose=0), logits, atol=2e-6)
    tf_adapters.remove_adapters(again.backbone)
    np.testing.assert_allclose(hidden(again.backbone)["sequence_output"], expected[None]["sequence_output"], atol=2e-6)


@pytest.mark.nightly
def test_without_this_package_kerashub_says_what_to_import(tmp_path):
    model, _ = two_adapters(tmp_path)
    model.save_to_preset(str(tmp_path / "preset"))
    for kind in ("Backbone", "BertTextClassifier"):
        code = f"import sys, keras_hub; keras_hub.models.{kind}.from_preset(sys.argv[1])"
        assert (
            "BertBackbone (import tf_adapters.models.keras_hub)" in in_a_new_process(code, tmp_path / "preset").stderr
        )


@pytest.mark.nightly
def test_a_keras_file_of_a_model_that_trains_goes_on(tmp_path):
    from tf_adapters.models import load_keras_file

    write_checkpoint("bert", tmp_path, hidden_dropout_prob=0.0)
    model = load_backbone(tmp_path)
    tf_adapters.set_trainable(tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1))
    fill(model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=loss, metrics=[], jit_compile=False)
    data = inputs("bert")[1], np.array([0, 1, 1])
    model.train_on_batch(*data)
    expected = answers(model, "bert")
    model.save(tmp_path / "all.keras")
    again = load_keras_file(tmp_path / "all.keras")
    assert bits(again) == bits(model) and type(again).__name__ == "BertTextClassifier"
    assert [weight.path for weight in again.trainable_weights] == [weight.path for weight in model.trainable_weights]
    np.testing.assert_array_equal(answers(again, "bert"), expected)
    assert frozen_digest(again) == frozen_digest(model)
    assert tf_adapters.backbone_digest(again) == tf_adapters.backbone_digest(model)
    for one in (model, again):
        one.train_on_batch(*data)
    for one, other in zip(model.trainable_weights, again.trainable_weights):
        np.testing.assert_allclose(np.array(one), np.array(other), atol=1e-6, err_msg=one.path)
    with pytest.raises(NotImplementedError, match="belong to the BertTextClassifier around it"):
        keras.models.clone_model(again)  # which copies a model layer by layer


@pytest.mark.nightly
def test_a_keras_file_of_a_model_that_only_predicts_trains_nothing(checkpoints, tmp_path):
    model = load_backbone(checkpoints("bert"))
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1)
    fill(model)
    tf_adapters.models.freeze(model)
    model.save(tmp_path / "all.keras")
    assert not tf_adapters.models.load_keras_file(tmp_path / "all.keras").trainable_weights


@pytest.mark.nightly
def test_a_keras_file_keeps_what_trains_and_what_trained_before_the_adapters(checkpoints, tmp_path):
    def trains(model):
        return [weight.path for weight in model.trainable_weights]

    def again(model):
        model.save(tmp_path / "all.keras")
        return tf_adapters.models.load_keras_file(tmp_path / "all.keras")

    model = load_backbone(checkpoints("bert"))
    tf_adapters.set_trainable(model, "head")
    head = trains(model)
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], name="one", seed=1)
    tf_adapters.set_trainable(model)
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], name="two", seed=2)  # which acts, and does not train
    assert trains(again(model)) == trains(model) and any("one_layer" in path for path in trains(model))
    loaded = again(again(model))
    tf_adapters.remove_adapters(loaded)
    assert trains(loaded) == head
    tf_adapters.models.freeze(model)
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], name="three", seed=3)
    loaded = again(model)
    assert trains(loaded) == trains(model) == []
    tf_adapters.add_adapters(loaded, CONFIGS["houlsby"], name="four", seed=4)
    assert trains(loaded) == []


@pytest.mark.parametrize("family", ["roberta", pytest.param("deberta-v2", marks=pytest.mark.nightly)])
def test_an_encoder_of_a_checkpoint_keeps_its_own_numbers_in_a_keras_file_or_preset(tmp_path, family):
    write_checkpoint(family, tmp_path, hidden_act="relu", layer_norm_eps=1e-3)
    model = load_backbone(tmp_path)
    model.save(tmp_path / "plain.keras")
    model.save_to_preset(str(tmp_path / "plain"))
    for again in (
        keras.saving.load_model(tmp_path / "plain.keras"),
        keras_hub.models.TextClassifier.from_preset(str(tmp_path / "plain")),
    ):
        np.testing.assert_array_equal(answers(again, family), answers(model, family))


@pytest.mark.slow
def test_what_keras_files_cannot_hold_is_refused_and_leaves_no_file(checkpoints, tmp_path):
    model = load_backbone(checkpoints("bert"))
    tf_adapters.set_trainable(tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1))
    with pytest.raises(NotImplementedError, match="belong to the BertTextClassifier around it: save that"):
        model.backbone.save(tmp_path / "whole.keras")
    saves = (
        lambda: model.save(tmp_path / "whole.keras"),
        lambda: model.save_to_preset(str(tmp_path / "preset")),
        lambda: model.backbone.save_to_preset(str(tmp_path / "preset")),
    )
    for save in saves:
        with tf_adapters.disable_adapters(model), pytest.raises(NotImplementedError, match="inside disable_adapters"):
            save()
    tf_adapters.models.cast_frozen(model, "int8")
    for save in saves:
        with pytest.raises(NotImplementedError, match="after cast_frozen"):
            save()
    mine = type("Mine", (keras_hub.models.BertTextClassifier,), {})(small_backbone(), num_classes=2)
    backbone = small_backbone()
    own = keras.Model(backbone.input, keras.layers.Dense(5)(backbone(backbone.input)["sequence_output"]))
    for other, name in ((mine, "Mine"), (own, "Functional")):
        tf_adapters.add_adapters(other, CONFIGS["houlsby"])
        with pytest.raises(NotImplementedError, match=f"and this one is of {name}: keep it with model.save"):
            other.save_to_preset(str(tmp_path / "preset"))
    assert not list(tmp_path.iterdir())


def test_kerashubs_own_backbone_can_be_saved_again_when_its_adapters_are_gone(tmp_path):
    backbone = small_backbone()
    tf_adapters.add_adapters(backbone, CONFIGS["houlsby"])
    adapted = type(backbone)
    tf_adapters.remove_adapters(backbone)
    assert type(backbone) is not adapted
    backbone.save(tmp_path / "whole.keras")
    again = keras.saving.load_model(tmp_path / "whole.keras")
    assert bits(again) == bits(backbone)


def test_weights_of_all_adapters_come_back(checkpoints, tmp_path):
    model, other = load_backbone(checkpoints("bert")), load_backbone(checkpoints("bert"))
    for each in (model, other):
        tf_adapters.add_adapters(each, CONFIGS["shared"], seed=1)
    fill(model)
    model.save_weights(tmp_path / "all.weights.h5")
    other.load_weights(tmp_path / "all.weights.h5")
    np.testing.assert_array_equal(answers(other, "bert"), answers(model, "bert"))


# Exports


EXPORTS = {"tensorflow": ("tf_saved_model", "onnx", "litert"), "jax": ("tf_saved_model",)}


@pytest.mark.slow
@pytest.mark.parametrize("format", nightly_but(["tf_saved_model", "onnx"], ["tf_saved_model", "onnx", "litert"]))
@pytest.mark.parametrize("family", nightly_but(["distilbert"], CLASSIFIERS))
def test_an_exported_model_answers_the_same_for_rows_of_any_length(checkpoints, tmp_path, family, format):
    if format not in EXPORTS.get(keras.backend.backend(), ()):
        pytest.skip(f"Keras writes no {format} on {keras.backend.backend()} with what is installed here")
    if (family, format) == ("deberta-v2", "litert"):
        pytest.skip("its positions need operations that LiteRT has in TensorFlow's own runtime alone")
    model = load_backbone(checkpoints(family))
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1)
    fill(model)
    path = tmp_path / {"tf_saved_model": "1", "onnx": "model.onnx", "litert": "model.tflite"}[format]
    model.export(str(path), format=format, verbose=False)
    answer = RUNTIMES[format](path)
    for length in (9, 4, 13):
        given = {
            name: np.resize(value, (3, length)) for name, value in inputs(family)[1].items() if name in model.input
        }
        expected = model.predict(given, verbose=0)
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(answer(given), expected, atol=2e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("format", EXPORTS.get(keras.backend.backend(), ()))
@pytest.mark.parametrize("head", ["multiple-choice", "masked-lm"])
def test_an_exported_model_answers_any_number_of_choices_or_places(checkpoints, tmp_path, head, format):
    model = load_backbone(checkpoints("bert"), head=head)
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1)
    fill(model)
    path = tmp_path / {"tf_saved_model": "1", "onnx": "model.onnx", "litert": "model.tflite"}[format]
    model.export(str(path), format=format, verbose=False)
    answer = RUNTIMES[format](path)
    for count, length in ((3, 9), (2, 4)):
        shape = (3, count, length) if head == "multiple-choice" else (3, length)
        given = {name: np.resize(value, shape) for name, value in inputs("bert")[1].items()}
        if head == "masked-lm":
            given["mask_positions"] = np.tile(np.array(PLACES[:count], "int32"), (3, 1)) % length
        expected = model.predict(given, verbose=0)
        assert expected.shape[:2] == (3, count) and np.ptp(expected) > 1e-3
        np.testing.assert_allclose(answer(given), expected, atol=2e-6)


def saved_model(path):
    import tensorflow as tf

    served = tf.saved_model.load(path).signatures["serving_default"]
    wanted = served.structured_input_signature[1]

    def answer(given):
        return next(
            iter(served(**{name: tf.cast(value, wanted[name].dtype) for name, value in given.items()}).values())
        )

    return answer


def onnx_file(path):
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    kinds = {"tensor(float)": "float32", "tensor(int32)": "int32", "tensor(int64)": "int64"}

    def answer(given):
        return session.run(None, {one.name: given[one.name].astype(kinds[one.type]) for one in session.get_inputs()})[0]

    return answer


def litert_file(path):
    import tensorflow as tf

    interpreter = tf.lite.Interpreter(str(path))

    def answer(given):
        places = [(one, next(name for name in given if name in one["name"])) for one in interpreter.get_input_details()]
        for one, name in places:
            interpreter.resize_tensor_input(one["index"], given[name].shape)
        interpreter.allocate_tensors()
        for one, name in places:
            interpreter.set_tensor(one["index"], given[name].astype(one["dtype"]))
        interpreter.invoke()
        return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])

    return answer


RUNTIMES = {"tf_saved_model": saved_model, "onnx": onnx_file, "litert": litert_file}
WITHOUT_TENSORFLOW = """
import sys

sys.modules.update(dict.fromkeys(("tensorflow", "tensorflow_text", "tf_keras", "transformers")))
import keras
import numpy as np

import tf_adapters

model = tf_adapters.load_backbone(sys.argv[1], head="token-classification", num_labels=3, door="keras-hub")
tf_adapters.set_trainable(tf_adapters.add_adapters(model, tf_adapters.AdapterConfig(bottleneck_size=4)))
tokens = np.arange(24, dtype="int32").reshape(3, 8)
inputs = {"token_ids": tokens, "padding_mask": np.ones_like(tokens), "segment_ids": np.zeros_like(tokens)}
model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
before = model.evaluate(inputs, tokens % 3, verbose=0)
model.fit(inputs, tokens % 3, epochs=6, verbose=0)
assert model.evaluate(inputs, tokens % 3, verbose=0) < before
tf_adapters.save_adapter(model, sys.argv[2])
again, _ = tf_adapters.load_trained(sys.argv[2], door="keras-hub")
np.testing.assert_array_equal(again.predict(inputs, verbose=0), model.predict(inputs, verbose=0))
assert not [name for name in sys.modules if name.startswith("tensorflow.")]
"""


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="needs another backend than TensorFlow")
def test_adapters_live_where_there_is_no_tensorflow(checkpoints, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1])}
    words = [sys.executable, "-W", "ignore", "-c", WITHOUT_TENSORFLOW, checkpoints("bert"), tmp_path / "kept"]
    done = subprocess.run([str(word) for word in words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
