"""Files that Keras writes: whole models, which are refused where adapters are, weights and exports."""

import copy
import importlib.util
import pickle

import numpy as np
import pytest

import tf_adapters
from tests.cases import nightly_but
from tests.conftest import VOCABULARY
from tests.keras_hub_models import (
    BACKEND,
    CONFIGS,
    FAMILIES,
    OF_MASKED_WORDS,
    PLACES,
    adapted,
    answers,
    given,
    inputs,
    keras,
    keras_hub,
    small_backbone,
    write_checkpoint,
)
from tests.runs import said_by
from tf_adapters import AdapterBank, AdapterConfig, InputError
from tf_adapters._keras3_internals import layers_of
from tf_adapters.kinds import get_kind
from tf_adapters.models.keras_files import REFUSAL
from tf_adapters.models.keras_hub.loading import load_backbone
from tf_adapters.models.state import state_of
from tf_adapters.pipeline import load_pipeline
from tf_adapters.serving.convert import export_file, runner_of
from tf_adapters.serving.export import export_saved_model
from tf_adapters.text.tokenizer import load_tokenizer
from tf_adapters.training.step_keras3 import _seed_dropout

# How Keras and KerasHub write or copy a whole model, into a path without an ending.
WAYS = {
    "keras": lambda model, path: model.save(f"{path}.keras"),
    "h5": lambda model, path: model.save(f"{path}.h5"),
    "folder": lambda model, path: model.save(path, zipped=False),
    "function": lambda model, path: keras.saving.save_model(model, f"{path}.keras"),
    "preset": lambda model, path: model.save_to_preset(path),
    "config": lambda model, path: type(model).from_config(model.get_config()),
    "clone": lambda model, path: keras.models.clone_model(model),
    "json": lambda model, path: model.to_json(),
    "copy": lambda model, path: copy.deepcopy(model),
    "pickle": lambda model, path: pickle.loads(pickle.dumps(model)),
}


class OfOnesOwn(keras.Model):
    """Has a model inside, of which its configuration says nothing."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def call(self, inputs):
        return self.inner(inputs)

    def get_config(self):
        return {}


def with_adapters_inside(model):
    """A task model, its backbone, and models around either or some of its layers, by what they are."""
    backbone, states = model.backbone, keras.Input((None, model.backbone.hidden_dim))
    block = backbone.transformer_layers[0]
    own = OfOnesOwn(model)
    own({name: np.ones((1, 2), "int32") for name in model.input})
    return {
        "model": model,
        "backbone": backbone,
        "around the model": keras.Model(model.input, keras.layers.Dense(2)(model(model.input))),
        "around the backbone": keras.Model(backbone.input, backbone(backbone.input)),
        "sequential": keras.Sequential([backbone]),
        "up to a block": keras.Model(backbone.input, block.output),
        "a block": keras.Model(states, block(states)),
        "its attention": keras.Model(states, block._self_attention_layer(states, states)),
        "of one's own": own,
    }


@pytest.mark.parametrize("method", nightly_but(["lora", "houlsby"], ["lora", "houlsby", "dora", "ia3", "fusion"]))
def test_no_whole_file_or_copy_of_adapters_is_made_and_all_are_refused(checkpoints, tmp_path, method):
    model = adapted(load_backbone(checkpoints("bert"), head="masked-lm"), method, fast=False)
    before, layers = answers(model, "bert"), [id(layer) for layer in layers_of(model)]
    for name, one in with_adapters_inside(model).items():
        for way, write in WAYS.items():
            if way == "preset" and not hasattr(one, "save_to_preset"):
                continue
            if name == "of one's own" and way in ("h5", "config", "clone", "json"):
                continue  # these have no weights
            if name == "its attention" and method in ("houlsby", "fusion"):
                continue  # adapters stand behind it
            (tmp_path / f"{name} {way}").mkdir()
            with pytest.raises(NotImplementedError) as refused:
                write(one, str(tmp_path / f"{name} {way}" / "file"))
            assert str(refused.value) == REFUSAL, (name, way)
    written = [path for path in (tmp_path / "model keras", tmp_path / "model preset") for path in path.iterdir()]
    assert not written and layers == [id(layer) for layer in layers_of(model)]
    with tf_adapters.disable_adapters(model), pytest.raises(NotImplementedError, match="save_adapter"):
        model.save(tmp_path / "all.keras")
    np.testing.assert_array_equal(answers(model, "bert"), before)


@pytest.mark.parametrize(
    ("family", "head"),
    nightly_but(
        [("roberta", "masked-lm")],
        [
            *((family, "masked-lm") for family in OF_MASKED_WORDS),
            *((family, "classification") for family in FAMILIES),
            *(("bert", head) for head in ("multiple-choice", "token-classification", "question-answering")),
        ],
    ),
)
def test_without_adapters_whole_files_and_copies_answer_as_the_checkpoint_says(tmp_path, family, head):
    # Neither is what KerasHub's classes have.
    model = load_backbone(write_checkpoint(family, tmp_path, hidden_act="relu", layer_norm_eps=1e-3), head=head)
    before = answers(model, family)
    tf_adapters.remove_adapters(adapted(model, "lora"))
    back = {
        "keras": lambda path: keras.saving.load_model(f"{path}.keras"),
        "folder": keras.saving.load_model,
        "preset": getattr(keras_hub.models, "MaskedLM" if head == "masked-lm" else "TextClassifier").from_preset,
    }
    for way, write in WAYS.items():
        if way == "preset" and not hasattr(model, "save_to_preset"):
            continue
        made = write(model, str(tmp_path / way))
        if way in back:
            made = back[way](str(tmp_path / way))
        elif way == "config":
            made.set_weights(model.get_weights())
        elif way not in ("copy", "pickle"):
            continue
        np.testing.assert_array_equal(answers(made, family), before, err_msg=way)


def test_a_file_of_weights_has_no_say_in_what_acts(checkpoints, tmp_path):
    config, file, outers = AdapterConfig(bottleneck_size=3), str(tmp_path / "all.weights.h5"), []
    for number in (1, 2):
        model = load_backbone(checkpoints("bert"))
        if number == 2:
            tf_adapters.remove_adapters(adapted(model, config, name="one"))
        adapted(model, config, name="one", seed=number)
        outers.append(keras.Model(model.input, model(model.input)))  # which has Keras' own `save_weights`
    outers[0].save_weights(file)
    outers[1].load_weights(file)
    state = state_of(model)
    assert int(state.acting.number) == state.adapters["one"].number == 2
    for site in state.sites.values():
        assert int(site.active_slot) == site.slots["one"] and float(site.gates["one"]) == 1
    np.testing.assert_array_equal(*(answers(outer, "bert") for outer in outers))


def test_kerashub_finds_its_own_classes_for_its_own_presets(checkpoints):
    load_backbone(checkpoints("bert"), head="masked-lm")
    for kind in (keras_hub.models.BertBackbone, type(load_backbone(checkpoints("bert"), head="none"))):
        registered = [one for one in keras.saving.get_custom_objects().values() if isinstance(one, type)]
        tasks = {one for one in registered if issubclass(one, keras_hub.models.Task) and one.backbone_cls == kind}
        assert keras_hub.models.BertMaskedLM in tasks and not any(hasattr(one, "own") for one in tasks)
        assert kind != keras_hub.models.RobertaBackbone


def test_removal_puts_back_what_trains_and_what_drops():
    model = keras_hub.models.BertTextClassifier(small_backbone(), num_classes=2)
    block = model.backbone.transformer_layers[1]
    model.backbone.token_embedding.trainable = block._feedforward_layer_norm.trainable = False
    model.output_dense.bias.trainable = False
    dropouts = [layer for layer in layers_of(model) if isinstance(layer, keras.layers.Dropout)]
    attention = block._self_attention_layer

    def noted():
        return (
            [one.trainable for one in (*model.weights, *layers_of(model))],
            [layer.rate for layer in dropouts],
            attention._dropout,
        )

    before = noted()
    tf_adapters.set_trainable(tf_adapters.add_adapters(model, CONFIGS["lora"]))
    _seed_dropout(model, 0, 0.3)
    assert attention._dropout == 0.3 and noted() != before
    tf_adapters.remove_adapters(model)
    assert noted() == before


# Exports

EXPORTS = {"tensorflow": ("tf_saved_model", "onnx", "litert"), "jax": ("tf_saved_model",)}
FILES = {"tf_saved_model": "1", "onnx": "model.onnx", "litert": "model.tflite"}
#: How many places or choices, and tokens, the rows of a head have.
SIZES = {
    "classification": [(0, 9), (0, 4), (0, 13)],
    "multiple-choice": [(3, 9), (2, 4)],
    "masked-lm": [(3, 9), (2, 4)],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "family, head, format",
    nightly_but(
        [("distilbert", "classification", "tf_saved_model"), ("distilbert", "classification", "onnx")],
        [
            *((family, "classification", format) for family in FAMILIES for format in FILES),
            *(("bert", head, format) for head in ("multiple-choice", "masked-lm") for format in FILES),
        ],
    ),
)
def test_an_exported_model_answers_the_same_for_rows_of_any_size(checkpoints, tmp_path, family, head, format):
    if format not in EXPORTS.get(BACKEND, ()):
        pytest.skip(f"Keras writes no {format} on {BACKEND} with what is installed here")
    if (family, format) == ("deberta-v2", "litert"):
        pytest.skip("its positions need operations that LiteRT has in TensorFlow's own runtime alone")
    model = adapted(load_backbone(checkpoints(family), head=head))
    model.export(str(tmp_path / FILES[format]), format=format, verbose=False)
    answer, usual = RUNTIMES[format](tmp_path / FILES[format]), given(model, family)
    for count, length in SIZES[head]:
        shape = (3, count, length) if head == "multiple-choice" else (3, length)
        asked = {name: np.resize(value, shape) for name, value in usual.items()}
        if head == "masked-lm":
            asked["mask_positions"] = np.tile(np.array(PLACES[:count], "int32"), (3, 1)) % length
        expected = model.predict(asked, verbose=0)
        assert np.ptp(expected) > 1e-3 and (head == "classification" or expected.shape[:2] == (3, count))
        np.testing.assert_allclose(answer(asked), expected, atol=2e-6)


def saved_model(path):
    import tensorflow as tf

    served = tf.saved_model.load(path).signatures["serving_default"]
    wanted = served.structured_input_signature[1]

    def answer(given):
        (answers,) = served(**{name: tf.cast(value, wanted[name].dtype) for name, value in given.items()}).values()
        return answers

    return answer


def onnx_file(path):
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    kinds = {"tensor(float)": "float32", "tensor(int32)": "int32", "tensor(int64)": "int64"}

    def answer(given):
        return session.run(None, {one.name: given[one.name].astype(kinds[one.type]) for one in session.get_inputs()})[0]

    return answer


def litert_file(path):
    import tensorflow as tf

    call = tf.lite.Interpreter(str(path)).get_signature_runner()
    kinds = {name: about["dtype"] for name, about in call.get_input_details().items()}
    return lambda given: [*call(**{name: given[name].astype(kind) for name, kind in kinds.items()}).values()][0]


RUNTIMES = {"tf_saved_model": saved_model, "onnx": onnx_file, "litert": litert_file}
# What records of a kind of task say; what is asked; the labels.
TEXTS = ["a great film", "x9", "the plot was not awful , but very bad !", "dull " * 40]
KINDS = {
    "classification": ("probabilities", {"text": TEXTS}, ["no", "yes", "maybe"]),
    "multi-label": ("probabilities", {"text": TEXTS, "text_pair": TEXTS[::-1]}, ["no", "yes", "maybe"]),
    "regression": ("value", {"text": TEXTS}, ()),
    "token-classification": ("labels", {"text": TEXTS}, ["no", "yes", "maybe"]),
    "question-answering": ("answer", {"question": ["was it fun"] * 4, "context": TEXTS}, ()),
    "multiple-choice": ("probabilities", {"text": TEXTS, "choices": [["good", "bad", "a film"]] * 4}, ()),
}


def kept(folder, family, kind, config):
    """An adapter directory of a kind of task."""
    source = write_checkpoint(family, folder / "encoder", vocab_size=len(VOCABULARY))
    (source / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    of_kind, (_, asked, labels) = get_kind(kind), KINDS[kind]
    head = {"head": of_kind.head, "num_labels": of_kind.num_labels(labels), "labels": list(labels) or None}
    model = tf_adapters.set_trainable(adapted(load_backbone(source, **head), config))
    about = {"kind": kind, "text_pairs": len(asked) > 1, "value_range": [-9, 9] if kind == "regression" else None}
    tf_adapters.save_adapter(model, folder / "kept", text=load_tokenizer(model, max_length=24), task=about)
    return folder / "kept"


def told(answer):
    """A row's answer as text or numbers."""
    answer = list(answer.values()) if isinstance(answer, dict) else answer
    if isinstance(answer, (list, np.ndarray)) and isinstance(answer[0], (str, bytes)):
        return "|".join(map(told, filter(None, answer)))
    return answer.decode() if isinstance(answer, bytes) else answer


@pytest.mark.skipif(BACKEND != "tensorflow", reason="exports are graphs of TensorFlow")
@pytest.mark.slow
@pytest.mark.parametrize(
    "family, kind, config",
    nightly_but(
        [("bert", "classification", "houlsby"), ("bert", "question-answering", "lora")],
        [
            *(("bert", kind, "houlsby") for kind in KINDS if kind != "question-answering"),
            *(("bert", "question-answering", config) for config in ("lora", "dora", "ia3")),
            ("distilbert", "multi-label", "houlsby"),
        ],
    ),
)
def test_an_export_of_texts_answers_as_predict_and_as_the_first_doors(tmp_path, family, kind, config):
    import tensorflow as tf

    directory, loaded = kept(tmp_path, family, kind, config), {}
    says, texts, _ = KINDS[kind]
    records = tf_adapters.predict(directory, *texts.values(), door="keras-hub")
    for door in ("keras-hub", "transformers") if importlib.util.find_spec("tf_keras") else ("keras-hub",):
        scorer, settings = load_pipeline(directory, door=door)
        about = {"text": scorer.tokenizer, "task": settings["task"]}
        loaded[door] = tf.saved_model.load(str(export_saved_model(scorer.model, tmp_path / door / "1", **about)))
    encoded = {name: value.numpy() for name, value in scorer.tokenizer(tf.constant(TEXTS)).items()}
    ids = {"tokens": encoded, "tokens_int64": {name: value.astype("int64") for name, value in encoded.items()}}
    asked = {**ids, **dict.fromkeys(("serving_default", "serving_jit"), texts), "labels": {}}
    for signature in loaded["keras-hub"].signatures:
        given = {name: tf.constant(value) for name, value in asked[signature].items()}
        found = [
            {name: value.numpy() for name, value in one.signatures[signature](**given).items()}
            for one in loaded.values()
        ]
        for name, values in found[0].items():
            for other in found[1:]:
                if values.dtype == object:
                    assert values.tolist() == other[name].tolist(), (signature, name)
                else:
                    np.testing.assert_allclose(values, other[name], atol=1e-5, err_msg=f"{signature}, {name}")
        if signature.startswith("serving"):
            answers = list(map(told, found[0]["label" if kind == "token-classification" else says]))
            wanted = [told(record[says]) for record in records]
            if isinstance(wanted[0], str):
                assert answers == wanted and len(set(wanted)) > 1
            else:
                np.testing.assert_allclose(answers, wanted, atol=1e-5)
                assert np.ptp(wanted, 0).max() > 1e-3
            assert not any(found[0]["error"])


@pytest.mark.skipif(BACKEND != "tensorflow", reason="exports are graphs of TensorFlow")
@pytest.mark.slow
@pytest.mark.parametrize(
    "family, format",
    nightly_but(
        [("distilbert", "onnx")],
        [(family, format) for family in ("distilbert", "bert") for format in ("onnx", "litert")],
    ),
)
def test_a_file_of_ids_answers_as_the_model(checkpoints, tmp_path, family, format):
    model, asked = adapted(load_backbone(checkpoints(family), num_labels=3), "dora"), inputs(family)[0]
    onnx = pytest.importorskip("onnx")
    path = export_file(model, tmp_path / "model", format=format)
    expected = state_of(model).door.forward(model)({"token_type_ids": np.zeros_like(asked["input_ids"]), **asked})
    assert np.ptp(expected) > 1e-3
    np.testing.assert_allclose(runner_of(path, format)(asked), expected, atol=2e-6)
    if format == "onnx":
        graph, ids = onnx.load(str(path)).graph, onnx.TensorProto.INT64
        types = {one.name: (one.type.tensor_type.elem_type, *sizes(one)) for one in graph.input}
        assert types == dict.fromkeys(asked, (ids, "batch", "length"))
        assert [(one.name, *sizes(one)) for one in graph.output] == [("logits", "batch", 3)]
        assert sum(node.op_type == "LayerNormalization" for node in graph.node) == 7
        rounded = export_file(model, tmp_path / "other", format="onnx", quantize="int8")
        assert [node.op_type for node in onnx.load(str(rounded)).graph.node].count("MatMulInteger") == 18
        assert 0 < np.abs(runner_of(rounded, format)(asked) - expected).max() < 0.03 * np.ptp(expected)


def sizes(value):
    return [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]


@pytest.mark.skipif(BACKEND == "tensorflow", reason="needs another backend than TensorFlow")
def test_what_is_no_graph_of_tensorflow_is_not_exported(checkpoints, tmp_path):
    model = adapted(load_backbone(checkpoints("bert")))
    for write in (
        lambda: export_saved_model(model, tmp_path / "1", text=None),
        lambda: export_file(model, tmp_path / "a", format="litert"),
        lambda: AdapterBank(checkpoints("bert"), door="keras-hub"),
    ):
        with pytest.raises(InputError, match=f"Keras is on {BACKEND}: .*--backend tensorflow"):
            write()


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


@pytest.mark.skipif(BACKEND == "tensorflow", reason="needs another backend than TensorFlow")
def test_adapters_live_where_there_is_no_tensorflow(checkpoints, tmp_path):
    said_by(WITHOUT_TENSORFLOW, checkpoints("bert"), tmp_path / "kept")
