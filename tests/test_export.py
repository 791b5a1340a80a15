"""A SavedModel answers as the model that it was made of."""

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.conftest import VOCABULARY, randomize, tiny_inputs
from tf_adapters import AdapterConfig, InputError, WordPiece, add_adapters, load_backbone, set_trainable
from tf_adapters.kinds import get_kind
from tf_adapters.kinds.scoring import Scorer
from tf_adapters.kinds.spans import served_n_best
from tf_adapters.serving.export import export_saved_model
from tf_adapters.tasks.rows import Rows
from tf_adapters.tasks.spans import SpanRowsBuilder, n_best_spans
from tf_adapters.tasks.words import WordRows

TEXTS = ["a great film", "", "dull " * 40, "the plot was not awful, but very bad!", "\u00e9t\u00e9 \u4e2d x9"]
PAIRS = ["was it fun", "the cast", "", "great " * 9, "?"]
LABELS = ["negative", "positive", "neither"]


@pytest.fixture(scope="module")
def wordpiece(checkpoint):
    return WordPiece.from_directory(checkpoint, max_length=24)


def adapted(checkpoint, labels=LABELS, fast=False):
    model = load_backbone(checkpoint, num_labels=1 if labels is None else len(labels), labels=labels)
    return randomize(
        add_adapters(model, AdapterConfig(bottleneck_size=8, init_stddev=0.3), seed=1, fast=fast), scale=0.1
    )


@pytest.fixture(scope="module")
def exported(checkpoint, wordpiece, tmp_path_factory):
    """A model, and what was loaded of its export."""
    model = adapted(checkpoint)
    directory = tmp_path_factory.mktemp("serving") / "film" / "1"
    assert export_saved_model(model, directory, text=wordpiece) == directory
    assert [path.name for path in directory.parent.iterdir()] == ["1"]
    return model, directory, tf.saved_model.load(str(directory))


def call(loaded, signature, **inputs):
    return {name: value.numpy() for name, value in loaded.signatures[signature](**inputs).items()}


@pytest.mark.slow
def test_a_text_that_is_not_utf8_has_an_error_and_the_other_rows_their_answers(exported):
    loaded = exported[2]
    whole = call(loaded, "serving_default", text=tf.constant(["a great film", "dull"]))
    found = call(loaded, "serving_default", text=tf.constant([b"a great film", b"dull \xff", b"dull"]))
    assert found["error"].tolist() == [b"", b"the text is not UTF-8", b""]
    np.testing.assert_allclose(found["logits"][[0, 2]], whole["logits"], atol=1e-6)


@pytest.mark.parametrize("signature", ["serving_default", "serving_jit"])
def test_text_is_answered_as_by_the_model(exported, wordpiece, signature):
    model, _, loaded = exported
    expected = Scorer(model, wordpiece).logits(tf.constant(TEXTS))
    found = call(loaded, signature, text=tf.constant(TEXTS))
    np.testing.assert_allclose(found["logits"], expected, atol=2e-6)
    np.testing.assert_allclose(found["probabilities"], tf.nn.softmax(expected), atol=1e-6)
    assert [label.decode() for label in found["label"]] == [LABELS[best] for best in expected.argmax(-1)]
    assert found["logits"].dtype == np.float32
    one = call(loaded, signature, text=tf.constant(TEXTS[3:4]))
    np.testing.assert_allclose(one["logits"], expected[3:4], atol=2e-6)


def test_tokens_are_answered_and_the_mask_follows_from_the_padding(exported):
    model, directory, loaded = exported
    inputs = tiny_inputs(batch=3, length=9)
    found = call(loaded, "tokens", **inputs)
    np.testing.assert_allclose(found["logits"], model(inputs).logits, atol=2e-6)
    nothing = tf.zeros([0, 0], tf.int32)
    ids = tf.constant([[3, 7, 8, 0, 0], [3, 9, 10, 11, 4]])
    mask = tf.cast(ids != 0, tf.int32)
    found = call(loaded, "tokens", input_ids=ids, attention_mask=nothing, token_type_ids=nothing)
    expected = model({"input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * ids}).logits
    np.testing.assert_allclose(found["logits"], expected, atol=2e-6)
    # As a server fills in what a request leaves out.
    graph = tf.compat.v1.Graph()
    with tf.compat.v1.Session(graph=graph) as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], str(directory))
        signature = meta.signature_def["tokens"]
        outputs = session.run(signature.outputs["logits"].name, {signature.inputs["input_ids"].name: ids.numpy()})
    np.testing.assert_allclose(outputs, expected, atol=2e-6)


def test_label_names_settings_and_no_more_than_is_needed_are_inside(exported, wordpiece):
    model, directory, loaded = exported
    assert [name.decode() for name in call(loaded, "labels")["labels"]] == LABELS
    about = json.loads((directory / "assets.extra" / "tf_adapters.json").read_text())
    assert about["labels"] == LABELS and about["text"] == wordpiece.settings()
    stored = {name: shape for name, shape in tf.train.list_variables(str(directory / "variables" / "variables"))}
    numbers = sum(int(np.prod(shape)) for name, shape in stored.items() if name.startswith("read/"))
    weights = sum(int(np.prod(variable.shape)) for variable in model.weights)
    assert weights <= numbers <= weights + 4 * 2 + 2, (
        "each weight once, a gate for each site, which adapter acts, which head"
    )


def test_requests_for_warming_up_leave_out_what_compiles_for_each_shape(exported):
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    _, directory, loaded = exported
    records = tf.data.TFRecordDataset(str(directory / "assets.extra" / "tf_serving_warmup_requests"))
    requests = [logs.PredictionLog.FromString(record.numpy()).predict_log.request for record in records]
    assert [request.model_spec.signature_name for request in requests] == ["serving_default"] * 2 + ["tokens"] * 2
    for request in requests:
        inputs = {name: tf.constant(tf.make_ndarray(tensor)) for name, tensor in request.inputs.items()}
        assert np.isfinite(call(loaded, request.model_spec.signature_name, **inputs)["logits"]).all()


@pytest.mark.parametrize("storage, tolerance", nightly_but([], [("bfloat16", 0.1), ("float16", 0.01)]))
def test_frozen_weights_can_be_stored_in_half_the_space(checkpoint, exported, wordpiece, tmp_path, storage, tolerance):
    model, whole, _ = exported
    names = [weight.name for weight in model.weights]
    directory = export_saved_model(model, tmp_path / "1", text=wordpiece, storage=storage)
    found = call(tf.saved_model.load(str(directory)), "serving_default", text=tf.constant(TEXTS))["logits"]
    expected = Scorer(model, wordpiece).logits(tf.constant(TEXTS))
    assert 0 < np.abs(found - expected).max() < tolerance and found.dtype == np.float32
    sizes = [(path / "variables" / "variables.data-00000-of-00001").stat().st_size for path in (directory, whole)]
    assert sizes[0] < 0.65 * sizes[1]
    assert names == [weight.name for weight in model.weights] and model.dtype == "float32"


@pytest.mark.nightly
def test_pairs_regression_and_several_labels(checkpoint, wordpiece, tmp_path):
    two = tf.constant(TEXTS), tf.constant(PAIRS)
    model = adapted(checkpoint, labels=None)
    task = {"kind": "regression", "text_pairs": True, "value_range": [0, 0.05]}
    export_saved_model(model, tmp_path / "pairs" / "1", text=wordpiece, task=task)
    found = call(tf.saved_model.load(str(tmp_path / "pairs" / "1")), "serving_default", text=two[0], text_pair=two[1])
    expected = Scorer(model, wordpiece).logits(*two)
    np.testing.assert_allclose(found["logits"], expected, atol=2e-6)
    np.testing.assert_allclose(found["value"], np.clip(expected[:, 0], 0, 0.05), atol=2e-6)
    model = adapted(checkpoint)
    # So that each label is chosen for some of the texts.
    model.classifier.bias.assign_sub(np.median(Scorer(model, wordpiece).logits(two[0]), 0))
    export_saved_model(model, tmp_path / "several" / "1", text=wordpiece, task={"kind": "multi-label"})
    found = call(tf.saved_model.load(str(tmp_path / "several" / "1")), "serving_default", text=two[0])
    expected = Scorer(model, wordpiece).logits(two[0])
    np.testing.assert_allclose(found["probabilities"], tf.sigmoid(expected), atol=1e-6)
    joined = ["|".join(label for label, logit in zip(LABELS, row) if logit > 0) for row in expected]
    assert [row.decode() for row in found["labels"]] == joined and len(set(joined)) > 1


@pytest.fixture
def broken_word():
    """Makes the embedding of "awful" one that no LayerNorm can take, for the time of a test."""
    changed = []

    def make(model):
        table = next(variable for variable in model.variables if "word_embeddings" in variable.name)
        changed.append((table, table.numpy()))
        row = np.where(np.arange(table.shape[1]) % 2, 3e38, -3e38)
        table.scatter_nd_update([[VOCABULARY.index("awful")]], [row])

    yield make
    for table, values in changed:
        table.assign(values)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    nightly_but(
        ["classification"],
        ["classification", "regression", "multi-label", "token-classification", "question-answering"],
    ),
)
def test_logits_that_are_not_finite_are_an_error_of_their_row(checkpoint, wordpiece, broken_word, tmp_path, kind):
    labels = [] if kind in ("regression", "question-answering") else LABELS
    model = load_backbone(
        checkpoint, head=get_kind(kind).head, num_labels=get_kind(kind).num_labels(labels), labels=labels or None
    )
    add_adapters(model, AdapterConfig(bottleneck_size=8, init_stddev=0.3), seed=1)
    broken_word(model)
    task = {"kind": kind, "value_range": [0, 1]} if kind == "regression" else {"kind": kind}
    loaded = tf.saved_model.load(str(export_saved_model(model, tmp_path / "1", text=wordpiece, task=task)))
    texts = ["a great film", "an awful film", "dull " * 40 + "awful", "dull"]
    builder = SpanRowsBuilder(labelled=False)
    for row, text in enumerate(texts):
        builder.add(str(row), "was it fun", text)
    if kind == "question-answering":
        rows, inputs = builder.rows(), {"question": tf.constant(["was it fun"] * 4), "context": tf.constant(texts)}
        broken = [1, 2]
    else:
        words = kind == "token-classification"
        rows, inputs = (
            WordRows(tf.strings.split(tf.constant(texts))) if words else Rows(tf.constant(texts)),
            {"text": tf.constant(texts)},
        )
        # A text alone is cut where the encoder ends.
        broken = [1, 2] if words else [1]
    if kind == "regression":
        rows = dataclasses.replace(rows, value_range=(0, 1))
    found = call(loaded, "serving_default", **inputs)
    assert [error.decode() for error in found.pop("error")] == [
        "the logits are not finite" if row in broken else "" for row in range(4)
    ]
    for values in found.values():
        assert not any(values[row].any() if values.dtype != object else any(np.ravel(values[row])) for row in broken)
    records = get_kind(kind).records(rows, get_kind(kind).predict(Scorer(model, wordpiece), rows), labels)
    for row, record in enumerate(records):
        assert ("error" in record) == (row in broken)
        json.dumps(record, allow_nan=False)
    answers = {"id", "words", "error"}
    assert all(
        value is None or value == dict.fromkeys(LABELS)
        for row in broken
        for name, value in records[row].items()
        if name not in answers
    )
    ids = tf.constant([[2, VOCABULARY.index(word), 3] for word in ("great", "awful")])
    tokens = call(loaded, "tokens", input_ids=ids, attention_mask=tf.ones_like(ids), token_type_ids=0 * ids)
    assert all(np.isfinite(values[0]).all() and not np.isfinite(values[1]).any() for values in tokens.values())


SENTENCES = [
    "a great film",
    "",
    "dull " * 60,
    "the plot \t was\nnot awful , but very bad !",
    "x9 " + "great film " * 11,
    "great",
]


@pytest.mark.slow
@pytest.mark.parametrize("signature", ["serving_default", pytest.param("serving_jit", marks=pytest.mark.nightly)])
def test_words_are_labelled_as_by_predict_whatever_the_length(checkpoint, wordpiece, tagger, signature):
    model, loaded = tagger
    words = tf.strings.split(tf.constant(SENTENCES))
    expected = get_kind("token-classification").predict(Scorer(model, wordpiece), WordRows(words))
    found = call(loaded, signature, text=tf.constant(SENTENCES))
    assert found["logits"].shape == (6, 60, 3)
    for row, sentence in enumerate(words.to_list()):
        count = len(sentence)
        assert found["word"][row, :count].tolist() == sentence and not any(found["word"][row, count:])
        np.testing.assert_allclose(found["logits"][row, :count], expected[row], atol=2e-6)
        assert found["label"][row, :count].tolist() == [LABELS[best].encode() for best in expected[row].argmax(-1)]
        np.testing.assert_allclose(
            found["probabilities"][row, :count], tf.nn.softmax(expected[row]).numpy().max(-1, initial=0), atol=1e-6
        )
        assert not found["logits"][row, count:].any() and not any(found["label"][row, count:])
    assert len({label for row in found["label"] for label in row if label}) > 1
    assert call(loaded, signature, text=tf.constant(["", " "]))["label"].shape == (2, 0)
    assert call(loaded, signature, text=tf.constant([], tf.string))["logits"].shape[0] == 0


@pytest.fixture(scope="module")
def tagger(checkpoint, wordpiece, tmp_path_factory):
    model = load_backbone(checkpoint, head="token-classification", num_labels=3, labels=LABELS)
    add_adapters(model, AdapterConfig(bottleneck_size=8, init_stddev=0.5), seed=1)
    randomize(model, scale=0.2)
    directory = tmp_path_factory.mktemp("words") / "1"
    export_saved_model(model, directory, text=wordpiece, task={"kind": "token-classification"})
    return model, tf.saved_model.load(str(directory))


@pytest.mark.nightly
def test_ids_of_words_and_of_questions_have_logits(tagger, asker):
    inputs = tiny_inputs(batch=2, length=9)
    model, loaded = tagger
    found = call(loaded, "tokens", **inputs)
    np.testing.assert_allclose(found["logits"], model(inputs).logits, atol=2e-6)
    np.testing.assert_allclose(found["probabilities"], tf.nn.softmax(model(inputs).logits), atol=1e-6)
    assert [name.decode() for name in call(loaded, "labels")["labels"]] == LABELS
    model, loaded = asker
    found, outputs = call(loaded, "tokens", **inputs), model(inputs)
    for name in ("start_logits", "end_logits"):
        np.testing.assert_allclose(found[name], outputs[name], atol=2e-6)
    assert set(loaded.signatures) == {"serving_default", "serving_jit", "tokens"}


@pytest.fixture(scope="module")
def asker(checkpoint, wordpiece, tmp_path_factory):
    model = load_backbone(checkpoint, head="question-answering")
    add_adapters(model, AdapterConfig(bottleneck_size=8, init_stddev=0.5), seed=2)
    randomize(model, scale=0.2)
    directory = tmp_path_factory.mktemp("questions") / "1"
    export_saved_model(model, directory, text=wordpiece, task={"kind": "question-answering"})
    return model, tf.saved_model.load(str(directory))


@pytest.mark.slow
def test_questions_are_answered_as_by_predict_whatever_the_length(wordpiece, asker):
    model, loaded = asker
    contexts = [
        "the film was great , but the plot was dull .",
        "",
        "\u00c9t\u00e9 " * 3 + "the cast was fun and good !" * 9,
        "a",
    ]
    questions = ["was it fun ?", "what ?", "was the cast good " * 9, ""]
    builder = SpanRowsBuilder(labelled=False)
    for row, (question, context) in enumerate(zip(questions, contexts)):
        builder.add(str(row), question, context)
    expected = get_kind("question-answering").predict(Scorer(model, wordpiece), builder.rows())
    found = call(loaded, "serving_default", question=tf.constant(questions), context=tf.constant(contexts))
    for row, answer in enumerate(expected):
        assert found["answer"][row].decode() == answer.text
        assert (found["start"][row], found["end"][row]) == (answer.start, answer.end)
        assert found["probability"][row] == pytest.approx(answer.probability, abs=1e-5)
        count = len(answer.n_best)
        assert [text.decode() for text in found["n_best"][row, :count]] == [other.text for other in answer.n_best]
        np.testing.assert_allclose(
            found["n_best_probabilities"][row, :count], [other.probability for other in answer.n_best], atol=1e-5
        )
        assert not any(found["n_best"][row, count:]) and not found["n_best_probabilities"][row, count:].any()
    assert len(expected[2].n_best) == 20 and len(expected[1].n_best) == 0
    jit = call(loaded, "serving_jit", question=tf.constant(questions), context=tf.constant(contexts))
    assert jit["answer"].tolist() == found["answer"].tolist()
    broken = call(
        loaded,
        "serving_default",
        question=tf.constant(["what ?"] * 2),
        context=tf.constant([b"\xff film", b"the film"]),
    )
    assert broken["answer"][0].decode() in "\ufffd film" and broken["answer"][1] in b"the film"


def test_n_best_spans_in_a_graph_are_those_of_predict():
    random = np.random.default_rng(0)
    row, start = random.integers(0, 4, 300) + (random.integers(0, 4, 300) > 2), random.integers(0, 9, 300)
    end, score = start + random.integers(1, 5, 300), random.integers(-9, 9, 300).astype(np.float32) / 2
    keep = row != 2
    row, start, end, score = (values[keep] for values in (row, start, end, score))
    expected = n_best_spans(row, start, end, score, rows=6, count=7)
    found = served_n_best(*(tf.constant(values) for values in (row, start, end, score)), rows=6, count=7)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, np.minimum(other, 7) if other.ndim == 1 else other, atol=1e-6)


@pytest.mark.nightly
def test_fast_blocks_are_exported_as_plain_ones_for_servers_that_compile_nothing(checkpoint, wordpiece, tmp_path):
    model = adapted(checkpoint, fast=True)
    set_trainable(model, "adapters")
    random = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign_add(random.normal(0, 0.1, variable.shape))
    expected = Scorer(model, wordpiece).logits(tf.constant(TEXTS))
    export_saved_model(model, tmp_path / "1", text=wordpiece)
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    for signature in ("serving_default", "serving_jit"):
        np.testing.assert_allclose(call(loaded, signature, text=tf.constant(TEXTS))["logits"], expected, atol=2e-6)
    inputs = tiny_inputs(batch=3, length=9)
    np.testing.assert_allclose(call(loaded, "tokens", **inputs)["logits"], model(inputs).logits, atol=2e-6)
    compiled = {
        name: compiled_functions(tmp_path / "1", name)
        for name in ("serving_default", "tokens", "labels", "serving_jit")
    }
    assert [name for name, found in compiled.items() if found] == ["serving_jit"], compiled
    # The model itself goes on as it was.
    np.testing.assert_array_equal(Scorer(model, wordpiece).logits(tf.constant(TEXTS)), expected)


def compiled_functions(directory, signature):
    """Names of the functions in a signature's graph, and in those that it calls, that XLA must compile."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString((directory / "saved_model.pb").read_bytes())
    graph, library = saved.meta_graphs[0].graph_def, {}
    for function in graph.library.function:
        library[function.signature.name] = function
    (output, *_) = saved.meta_graphs[0].signature_def[signature].outputs.values()
    nodes, seen, found = [node for node in graph.node if node.name == output.name.partition(":")[0]], set(), set()
    assert nodes
    while nodes:
        node = nodes.pop()
        if node.attr["_XlaMustCompile"].b:
            found.add(node.name)
        called = {node.op} | {name.name for value in node.attr.values() for name in (value.func, *value.list.func)}
        for name in (called & set(library)) - seen:
            seen.add(name)
            nodes += library[name].node_def
            if any(library[name].attr[key].b for key in ("_XlaMustCompile", "_XlaCompile")):
                found.add(name)
    return found


@pytest.mark.slow
def test_it_loads_where_only_tensorflow_and_tensorflow_text_are(exported, wordpiece):
    model, directory, _ = exported
    code = f"""
import json, sys, tensorflow as tf, tensorflow_text
answer = tf.saved_model.load({str(directory)!r}).signatures["serving_default"](text=tf.constant({TEXTS!r}))
others = {{"tf_adapters", "transformers", "tf_keras", "safetensors", "tokenizers"}}
assert not others & {{name.split(".")[0] for name in sys.modules}}
print(json.dumps(answer["logits"].numpy().tolist()))
"""
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    np.testing.assert_allclose(json.loads(done.stdout), Scorer(model, wordpiece).logits(tf.constant(TEXTS)), atol=2e-6)


def test_bad_input_is_named_and_nothing_is_left(exported, wordpiece, tmp_path):
    model, directory, _ = exported
    with pytest.raises(InputError, match=r"film/1 is there already.*film/2"):
        export_saved_model(model, directory, text=wordpiece)
    with pytest.raises(InputError, match="must end in a version number.*film/1"):
        export_saved_model(model, tmp_path / "film", text=wordpiece)
    with pytest.raises(InputError, match="storage='int8'.*bfloat16"):
        export_saved_model(model, tmp_path / "1", text=wordpiece, storage="int8")
    with pytest.raises(InputError, match="must be the tokenizer"):
        export_saved_model(model, tmp_path / "1", text="bert")
    with pytest.raises(
        InputError, match="needs a model with the head 'token-classification', and this TFBertForSequence"
    ):
        export_saved_model(model, tmp_path / "1", text=wordpiece, task={"kind": "token-classification"})
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        export_saved_model(model, tmp_path / "file" / "1", text=wordpiece)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.slow
def test_the_command_exports_what_it_trained_and_its_hint_runs(cli, adapter_directory, tmp_path):
    output = tmp_path / "film" / "1"
    done = cli("export", adapter_directory, "--output", output)
    assert done.status == 0, done.err
    command = done.out.split("Try it:\n")[1].strip()
    shown = subprocess.run(
        command.replace("python", sys.executable, 1),
        shell=True,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert shown.returncode == 0 and "'label'" in shown.stdout, shown.stderr[-2000:]
    (tmp_path / "rows.txt").write_text("a great film\n")
    predicted = json.loads(cli("predict", adapter_directory, "--input", tmp_path / "rows.txt").out)
    answer = call(tf.saved_model.load(str(output)), "serving_default", text=tf.constant(["a great film"]))
    assert answer["label"][0].decode() == predicted["label"]
    np.testing.assert_allclose(answer["probabilities"][0], list(predicted["probabilities"].values()), atol=1e-6)
    for options, message in (
        (("--output", output), "is there already"),
        (("--output", tmp_path / "film"), "must end in a version number"),
        (("--output", tmp_path / "2", "--storage", "int8"), "--storage int8 is unknown"),
    ):
        done = cli("export", adapter_directory, *options)
        assert done.status == 2 and message in done.err and "Traceback" not in done.err


def test_export_says_which_server_reads_what_a_newer_tensorflow_wrote():
    from tf_adapters.cli.export import server_note

    assert server_note("2.19.1") is None and server_note("2.20.0") is None
    note = server_note("2.21.0-rc1")
    assert "newest release is 2.20, and TensorFlow 2.21 wrote this" in note and "a server was not tried" in note
