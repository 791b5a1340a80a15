"""A SavedModel answers as the model that it was made of."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.conftest import VOCABULARY, encoder_of, is_refused, randomize, tiny_inputs
from tests.runs import said_without_us
from tf_adapters import AdapterConfig, add_adapters, load_backbone
from tf_adapters.kinds import get_kind
from tf_adapters.kinds.kind import Scorer
from tf_adapters.serving import versions
from tf_adapters.serving.export import export_saved_model
from tf_adapters.tasks.own_files import get_reader
from tf_adapters.tasks.rows import Rows
from tf_adapters.tasks.words import WordRows
from tf_adapters.text import WordPiece

TEXTS = ["a great film", "", "dull " * 40, "the plot was not awful, but very bad!", "\u00e9t\u00e9 \u4e2d x9"]
PAIRS = ["was it fun", "the cast", "", "great " * 9, "?"]
LABELS = ["negative", "positive", "neither"]
KINDS = ["classification", "regression", "multi-label", "token-classification", "question-answering"]


checkpoint = encoder_of(2)


@pytest.fixture(scope="module")
def wordpiece(checkpoint):
    return WordPiece.from_directory(checkpoint, max_length=24)


def adapted(checkpoint, kind="classification", fast=False, scale=0.1):
    names = () if kind in ("regression", "question-answering") else LABELS
    head = dict(head=get_kind(kind).head, num_labels=get_kind(kind).num_labels(names), labels=names or None)
    model = add_adapters(load_backbone(checkpoint, **head), AdapterConfig(8, init_stddev=0.3), seed=1, fast=fast)
    return randomize(model, scale=scale)


@pytest.fixture(scope="module")
def exported(checkpoint, wordpiece, tmp_path_factory):
    """A model, and what was loaded of its export."""
    model = adapted(checkpoint)
    directory = tmp_path_factory.mktemp("serving") / "film" / "1"
    assert export_saved_model(model, directory, text=wordpiece) == directory
    assert [path.name for path in directory.parent.iterdir()] == ["1"]
    umask = os.umask(0)
    os.umask(umask)
    for path in (directory, *directory.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o777 if path.is_dir() else 0o666) & ~umask, path
    return model, directory, tf.saved_model.load(str(directory))


def call(loaded, signature, **inputs):
    return {name: value.numpy() for name, value in loaded.signatures[signature](**inputs).items()}


@pytest.mark.parametrize("signature", ["serving_default", "serving_jit"])
def test_text_is_answered_as_by_the_model(exported, wordpiece, signature):
    model, _, loaded = exported
    expected = Scorer(model, wordpiece).logits(tf.constant(TEXTS))
    found = call(loaded, signature, text=tf.constant(TEXTS))
    np.testing.assert_allclose(found["logits"], expected, atol=2e-6)
    np.testing.assert_allclose(found["probabilities"], tf.nn.softmax(expected), atol=1e-6)
    assert [label.decode() for label in found["label"]] == [LABELS[best] for best in expected.argmax(-1)]
    assert found["logits"].dtype == np.float32 and not any(found["error"])
    if signature == "serving_default":
        one = call(loaded, signature, text=tf.constant([TEXTS[3], b"dull \xff"]))
        assert one["error"].tolist() == [b"", b"the text is not UTF-8"]
        np.testing.assert_allclose(one["logits"][0], expected[3], atol=2e-6)


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
    for dtype in (tf.int32, tf.int64):
        mask_of, types_of = {"attention_mask": tf.cast(mask, dtype)}, {"token_type_ids": tf.zeros([2, 5], dtype)}
        for more in ({}, mask_of, types_of, {**mask_of, **types_of}):
            np.testing.assert_allclose(loaded.tokens(tf.cast(ids, dtype), **more)["logits"], expected, atol=2e-6)
    assert len(loaded.tokens.concrete_functions) == 2
    # An id that int32 cannot hold is none that it becomes by its last bits.
    with pytest.raises(tf.errors.InvalidArgumentError, match="2147483647"):
        loaded.tokens(tf.constant([[2**32 + 7]], tf.int64))
    # Runtimes that have no strings can convert it.
    assert not any(spec.dtype == tf.string for spec in loaded.signatures["tokens"].structured_outputs.values())
    # As a server fills in what a request leaves out.
    graph = tf.compat.v1.Graph()
    with tf.compat.v1.Session(graph=graph) as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], str(directory))
        for name, dtype in {"tokens": np.int32, "tokens_int64": np.int64}.items():
            signature = meta.signature_def[name]
            feeds = {signature.inputs["input_ids"].name: ids.numpy().astype(dtype)}
            np.testing.assert_allclose(session.run(signature.outputs["logits"].name, feeds), expected, atol=2e-6)
            assert {info.dtype for info in signature.inputs.values()} == {tf.as_dtype(dtype).as_datatype_enum}


def batched(*requests):
    """What TensorFlow Serving makes of waiting requests: each is padded by its own first element (its AddPadding)."""

    def joined(rows):
        longest = max(each.shape[1] for each in rows)
        sizes = [[[0, 0], [0, longest - each.shape[1]]] for each in rows]
        return tf.concat([tf.pad(each, size, constant_values=each[0, 0]) for each, size in zip(rows, sizes)], 0)

    return {name: joined([request[name] for request in requests]) for name in requests[0]}


def test_requests_that_a_server_computes_as_one_batch_are_answered_as_alone(exported):
    model, _, loaded = exported
    absent = tf.constant([[-1]])
    short = {"input_ids": tf.constant([[2, 7, 8, 3]]), "attention_mask": absent, "token_type_ids": absent}
    rows = {"input_ids": tf.constant([[2, 9, 10, 3, 11, 3], [2, 12, 3, 0, 0, 0]])}
    rows["attention_mask"] = tf.cast(rows["input_ids"] != 0, tf.int32)
    rows["token_type_ids"] = tf.constant([[0, 0, 0, 0, 1, 1], [0] * 6])
    long = {"input_ids": tf.constant([[2, *range(7, 14), 3]]), "attention_mask": absent, "token_type_ids": absent}
    plain = [{"input_ids": of["input_ids"], "attention_mask": 0 * of["input_ids"] + 1} for of in (short, long)]
    expected = [model(inputs).logits for inputs in (plain[0], rows, plain[1])]
    for number, requests in enumerate(((short, long), (short, rows, long))):
        found = call(loaded, "tokens", **batched(*requests))["logits"]
        wanted = np.concatenate(expected if number else expected[::2])
        np.testing.assert_allclose(found, wanted, atol=2e-6)
    assert np.ptp(wanted, 0).max() > 0.01


def test_label_names_settings_and_no_more_than_is_needed_are_inside(exported, wordpiece):
    model, directory, loaded = exported
    assert [name.decode() for name in call(loaded, "labels")["labels"]] == LABELS
    about = json.loads((directory / "assets.extra" / "tf_adapters.json").read_text())
    assert about["labels"] == LABELS and about["text"] == wordpiece.settings()
    stored = {name: shape for name, shape in tf.train.list_variables(str(directory / "variables" / "variables"))}
    numbers = sum(int(np.prod(shape)) for name, shape in stored.items() if name.startswith("read/"))
    weights = sum(int(np.prod(variable.shape)) for variable in model.weights)
    assert weights <= numbers <= weights + 2 * 2 + 2, (
        "each weight once, a gate for each site, which adapter acts, which head"
    )


def test_requests_for_warming_up_leave_out_what_compiles_for_each_shape(exported):
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    _, directory, loaded = exported
    records = tf.data.TFRecordDataset(str(directory / "assets.extra" / "tf_serving_warmup_requests"))
    requests = [logs.PredictionLog.FromString(record.numpy()).predict_log.request for record in records]
    names = [request.model_spec.signature_name for request in requests]
    assert names == [name for name in ("serving_default", "tokens", "tokens_int64") for _ in range(2)]
    for request in requests:
        inputs = {name: tf.constant(tf.make_ndarray(tensor)) for name, tensor in request.inputs.items()}
        assert np.isfinite(call(loaded, request.model_spec.signature_name, **inputs)["logits"]).all()


def test_requests_that_a_signature_does_not_take_are_refused(exported, tmp_path):
    _, directory, _ = exported
    (tmp_path / "assets.extra").mkdir()
    (tmp_path / "saved_model.pb").symlink_to(directory / "saved_model.pb")

    def write(name="tokens", dtype=tf.int32, shape=(None, None), more=()):
        specs = [tf.TensorSpec(shape, dtype, "input_ids"), *(tf.TensorSpec([None], tf.string, one) for one in more)]
        function = tf.function(lambda *inputs: inputs[0], input_signature=specs, autograph=False)
        versions.write_requests(tmp_path / "assets.extra" / versions.WARM_UP_FILE, {name: function})

    write()
    versions.check_requests(tmp_path)
    for changes, wrong in (
        ({"name": "others"}, "'others' takes .., and not 'input_ids' as it is in record 1"),
        ({"dtype": tf.int64}, "'input_ids'"),
        ({"shape": [None] * 3}, "'input_ids'"),
        ({"more": ["task"]}, "'task'"),
        ({"name": "serving_default"}, "takes .'text'., and not 'input_ids'"),
    ):
        write(**changes)
        is_refused(f"{versions.WARM_UP_FILE}: the signature .*{wrong}", versions.check_requests, tmp_path)
    with tf.io.TFRecordWriter(str(tmp_path / "assets.extra" / versions.WARM_UP_FILE)) as writer:
        writer.write(b"\x32\xff")
    is_refused("record 1 is no PredictionLog", versions.check_requests, tmp_path)


def test_an_export_says_how_a_server_may_compute_waiting_requests_together(exported):
    _, directory, _ = exported
    one, other = (
        (directory / name).read_text() for name in ("batching_params.pbtxt", "assets.extra/batching_parameters.txt")
    )
    lines = [line for line in one.splitlines() if line[0] != "#"]
    found = [re.fullmatch(r"(\w+)(?: \{ value: (?:\d+) \}|: true)", line).group(1) for line in lines]
    # tensorflow_serving/servables/tensorflow/session_bundle_config.proto
    known = {"max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads"}
    assert set(found) == known | {"pad_variable_length_inputs"} and one == other


@pytest.mark.slow
def test_the_commands_of_the_documentation_answer(exported, tmp_path):
    """Those of `saved_model_cli` in docs/serving.md."""
    _, directory, loaded = exported
    (tmp_path / "serving" / "film").mkdir(parents=True)
    (tmp_path / "serving" / "film" / "1").symlink_to(directory)
    page = (pathlib.Path(__file__).parents[1] / "docs" / "serving.md").read_text()
    (block,) = re.findall(r"```bash\n *(python -c[^`]*saved_model_cli.*?)```", page, re.DOTALL)
    plain = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    block = block.replace("python ", shlex.quote(sys.executable) + " ")
    shown = subprocess.run(["bash", "-ec", block], cwd=tmp_path, capture_output=True, text=True, timeout=600, env=plain)
    assert shown.returncode == 0, shown.stderr[-2000:]
    keys = re.findall(r"Result for output key (\w+):", shown.stdout)
    assert keys == ["error", "label", "logits", "probabilities", "logits", "probabilities"]


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
    model = adapted(checkpoint, "regression")
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", nightly_but(KINDS[:1], KINDS))
def test_logits_that_are_not_finite_are_an_error_of_their_row(checkpoint, wordpiece, tmp_path, kind):
    model = adapted(checkpoint, kind)
    # An embedding of "awful" that no LayerNorm can take.
    table = next(variable for variable in model.variables if "word_embeddings" in variable.name)
    table.scatter_nd_update([[VOCABULARY.index("awful")]], [np.where(np.arange(table.shape[1]) % 2, 3e38, -3e38)])
    task = {"kind": kind, "value_range": [0, 1]} if kind == "regression" else {"kind": kind}
    loaded = tf.saved_model.load(str(export_saved_model(model, tmp_path / "1", text=wordpiece, task=task)))
    texts = ["a great film", "an awful film", "dull " * 40 + "awful", "dull"]
    # A text alone is cut where the encoder ends; words and contexts are not.
    broken, inputs = [1], {"text": tf.constant(texts)}
    rows = Rows(inputs["text"], value_range=(0, 1)) if kind == "regression" else Rows(inputs["text"])
    if kind == "question-answering":
        broken, inputs = [1, 2], {"question": tf.constant(["was it fun"] * 4), "context": inputs["text"]}
        rows = get_reader(kind).of_texts(["was it fun"] * 4, texts)
    elif kind == "token-classification":
        broken, rows = [1, 2], WordRows(tf.strings.split(inputs["text"]))
    found = call(loaded, "serving_default", **inputs)
    assert found.pop("error").tolist() == [b"the logits are not finite" if row in broken else b"" for row in range(4)]
    for values in found.values():
        assert not any(values[row].any() if values.dtype != object else any(np.ravel(values[row])) for row in broken)
    names = LABELS if model.config.num_labels == 3 else []
    records = get_kind(kind).records(rows, get_kind(kind).predict(Scorer(model, wordpiece), rows), names)
    for row, record in enumerate(records):
        assert ("error" in record) == (row in broken)
        json.dumps(record, allow_nan=False)
        empty = [
            v is None or v == dict.fromkeys(LABELS) for k, v in record.items() if k not in ("id", "words", "error")
        ]
        assert all(empty) or row not in broken
    ids = tf.constant([[2, VOCABULARY.index(word), 3] for word in ("great", "awful")])
    tokens = call(loaded, "tokens", input_ids=ids, attention_mask=tf.ones_like(ids), token_type_ids=0 * ids)
    assert all(np.isfinite(values[0]).all() and not np.isfinite(values[1]).any() for values in tokens.values())


SENTENCES = ["a great film", "", "dull " * 60, "the\u3000plot \t was\nnot\xa0awful , but !", "x9 " + "great film " * 11]


@pytest.mark.slow
@pytest.mark.parametrize("signature", ["serving_default", pytest.param("serving_jit", marks=pytest.mark.nightly)])
def test_words_are_labelled_as_by_predict_whatever_the_length(checkpoint, wordpiece, tmp_path, signature):
    model, loaded = export_of(checkpoint, wordpiece, tmp_path, "token-classification")
    words = tf.ragged.constant([sentence.split() for sentence in SENTENCES], dtype=tf.string)
    expected = get_kind("token-classification").predict(Scorer(model, wordpiece), WordRows(words))
    found = call(loaded, signature, text=tf.constant(SENTENCES))
    assert found["logits"].shape == (5, 60, 3)
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
    inputs = tiny_inputs(batch=2, length=9)
    np.testing.assert_allclose(call(loaded, "tokens", **inputs)["logits"], model(inputs).logits, atol=2e-6)
    assert call(loaded, signature, text=tf.constant(["", " "]))["label"].shape == (2, 0)
    assert call(loaded, signature, text=tf.constant([], tf.string))["logits"].shape[0] == 0


def export_of(checkpoint, wordpiece, folder, kind):
    model = adapted(checkpoint, kind, scale=0.3)
    export_saved_model(model, folder / "1", text=wordpiece, task={"kind": kind})
    return model, tf.saved_model.load(str(folder / "1"))


@pytest.mark.slow
def test_questions_are_answered_as_by_predict_whatever_the_length(checkpoint, wordpiece, tmp_path):
    model, loaded = export_of(checkpoint, wordpiece, tmp_path, "question-answering")
    inputs = tiny_inputs(batch=2, length=9)
    outputs, found = model(inputs), call(loaded, "tokens", **inputs)
    for name in ("start_logits", "end_logits"):
        np.testing.assert_allclose(found[name], outputs[name], atol=2e-6)
    assert set(loaded.signatures) == {"serving_default", "serving_jit", "tokens", "tokens_int64"}
    long = "\u00c9t\u00e9 " * 3 + "the cast was fun and good !" * 9
    contexts = ["the film was great , but the plot was dull .", "", long, "a"]
    questions = ["was it fun ?", "what ?", "was the cast good " * 9, ""]
    rows = get_reader("question-answering").of_texts(questions, contexts)
    expected = get_kind("question-answering").predict(Scorer(model, wordpiece), rows)
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
    inputs = dict(question=tf.constant(["what ?"] * 2), context=tf.constant([b"\xff film", b"the film"]))
    broken = call(loaded, "serving_default", **inputs)
    assert broken["answer"][0].decode() in "\ufffd film" and broken["answer"][1] in b"the film"


@pytest.mark.nightly
def test_fast_blocks_are_exported_as_plain_ones_for_servers_that_compile_nothing(checkpoint, wordpiece, tmp_path):
    model = adapted(checkpoint, fast=True)
    expected = Scorer(model, wordpiece).logits(tf.constant(TEXTS))
    export_saved_model(model, tmp_path / "1", text=wordpiece)
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    for signature in ("serving_default", "serving_jit"):
        np.testing.assert_allclose(call(loaded, signature, text=tf.constant(TEXTS))["logits"], expected, atol=2e-6)
    inputs = tiny_inputs(batch=3, length=9)
    np.testing.assert_allclose(call(loaded, "tokens", **inputs)["logits"], model(inputs).logits, atol=2e-6)
    names = ("serving_default", "tokens", "labels", "serving_jit")
    assert [name for name in names if compiled_functions(tmp_path / "1", name)] == ["serving_jit"]
    # The model itself goes on as it was.
    np.testing.assert_array_equal(Scorer(model, wordpiece).logits(tf.constant(TEXTS)), expected)


def compiled_functions(directory, signature):
    """Names of the functions in a signature's graph, and in those that it calls, that XLA must compile."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString((directory / "saved_model.pb").read_bytes()).meta_graphs[0]
    library = {function.signature.name: function for function in saved.graph_def.library.function}
    (output, *_) = saved.signature_def[signature].outputs.values()
    nodes, seen = [node for node in saved.graph_def.node if node.name == output.name.partition(":")[0]], set()
    found, must = set(), ("_XlaMustCompile", "_XlaCompile")
    while nodes:
        node = nodes.pop()
        found |= {node.name} if node.attr[must[0]].b else set()
        called = {node.op} | {name.name for value in node.attr.values() for name in (value.func, *value.list.func)}
        for name in (called & set(library)) - seen:
            seen.add(name)
            nodes += library[name].node_def
            found |= {name} if any(library[name].attr[key].b for key in must) else set()
    assert seen
    return found


def test_bad_input_is_named_and_nothing_is_left(exported, wordpiece, tmp_path):
    model, directory, _ = exported
    words = {"task": {"kind": "token-classification"}}
    for path, options, message in (
        (directory, {}, r"film/1 is there already.*film/2"),
        (tmp_path / "film" / "01", {}, "must end in a version number.*film/1[.]"),
        (tmp_path / "1", {"storage": "int8"}, "storage='int8'.*bfloat16"),
        (tmp_path / "1", {"text": "bert"}, "must be a tokenizer of this"),
        (tmp_path / "1", words, "needs a model with the head 'token-classification'"),
    ):
        is_refused(message, export_saved_model, model, path, **{"text": wordpiece, **options})
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_command_exports_what_it_trained_and_its_hint_needs_nothing_of_ours(cli, adapter_directory, tmp_path):
    output = tmp_path / "a film's \N{CLAPPER BOARD}" / "1"
    done = cli("export", adapter_directory, "--output", output)
    assert done.status == 0, done.err
    assert "'label'" in said_without_us(done.out)
    (tmp_path / "rows.txt").write_text("a great film\n")
    predicted = json.loads(cli("predict", adapter_directory, "--input", tmp_path / "rows.txt").out)
    answer = call(tf.saved_model.load(str(output)), "serving_default", text=tf.constant(["a great film"]))
    assert answer["label"][0].decode() == predicted["label"]
    np.testing.assert_allclose(answer["probabilities"][0], list(predicted["probabilities"].values()), atol=1e-6)


def test_export_says_which_server_reads_what_a_newer_tensorflow_wrote():
    from tf_adapters.cli.export import server_note

    assert server_note("2.19.1") is None and server_note("2.20.0") is None
    note = server_note("2.21.0-rc1")
    assert "newest release is 2.20, and TensorFlow 2.21 wrote this" in note and "a server was not tried" in note
