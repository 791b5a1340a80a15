"""A bank answers each row of a mixed batch as the model that was trained for its task, and so do its files."""

import concurrent.futures
import errno
import functools
import hashlib
import json
import linecache
import shutil
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from tests.conftest import VOCABULARY, encoder_of, is_refused, move_what_trains, seed_initializers, tiny_inputs
from tests.interrupts import interrupted
from tests.runs import said_without_us
from tf_adapters import (
    AdapterBank,
    AdapterConfig,
    InputError,
    add_adapters,
    export_bank,
    load_backbone,
    save_adapter,
    set_trainable,
)
from tf_adapters._keras import keras
from tf_adapters.layers.bank import RowStore, RowTable
from tf_adapters.models.state import state_of
from tf_adapters.pipeline import load_pipeline
from tf_adapters.serving import export, versions
from tf_adapters.serving.bank import outputs_by_task
from tf_adapters.serving.bank_graph import BankTasks
from tf_adapters.text import WordPiece

TEXTS = ["a great film", "", "dull " * 40, "the plot was not awful, but bad!", "\u00e9t\u00e9 \u4e2d x9", "great " * 9]
PAIRS = ["was it fun", "the cast", "", "great " * 9, "?", "dull"]
# name: (config or None, labels or None, task, max_length, layers of the head); for encoders of three blocks and more
ONE, PAIR = {"kind": "classification"}, {"text_pairs": True}
THREE = dict(bottleneck_size=5, sharing=2, activation="relu", train_layer_norm="none")
UPPER = dict(bottleneck_size=8, blocks=(1, 2), placement="ffn", train_layer_norm="all")
RANGED = {"kind": "regression", **PAIR, "value_range": [-0.1, 0.1]}
TASKS = {
    "film": (dict(bottleneck_size=8), ["bad", "good"], ONE, 24, 1),
    "shared": (dict(bottleneck_size=8, sharing="layer"), ["x", "y", "z"], ONE, 24, 1),
    "three": (THREE, ["a", "b"], ONE, 16, 2),
    "upper": (UPPER, list("abcde"), {"kind": "multi-label"}, 24, 1),
    "similar": (dict(bottleneck_size=5, activation="tanh"), None, RANGED, 24, 1),
    "head": (None, ["no", "yes"], {**ONE, **PAIR}, 16, 1),
}


def save_task(checkpoint, directory, config, labels, task, max_length, layers, *, seed=0, pooler=False):
    """An adapter directory whose trained weights are random."""
    seed_initializers(seed)
    model = load_backbone(checkpoint, num_labels=len(labels or "1"), labels=labels, head_layers=layers)
    if pooler:
        state_of(model).train_pooler(model)
    if config is not None:
        add_adapters(model, AdapterConfig(**config), seed=seed)
    set_trainable(model, "head" if config is None else "adapters")
    move_what_trains(model, seed)
    return save_adapter(model, directory, text=WordPiece.from_directory(checkpoint, max_length=max_length), task=task)


checkpoint = encoder_of(3)


@pytest.fixture(scope="module")
def directories(checkpoint, tmp_path_factory):
    """A folder with an adapter directory for each of `TASKS`, and one with a pooler of its own."""
    folder = tmp_path_factory.mktemp("adapters")
    for seed, (name, values) in enumerate(TASKS.items(), 4):  # by which rows have several labels
        save_task(checkpoint, folder / name, *values, seed=seed)
    save_task(checkpoint, folder / "pooler", *TASKS["film"], seed=9, pooler=True)
    return folder


@pytest.fixture(scope="module")
def few(checkpoint, directories):
    """A bank of two tasks, which differ in all that can; not to be changed."""
    return AdapterBank(str(checkpoint)).add("film", directories / "film").add("similar", directories / "similar")


@pytest.fixture(scope="module")
def bank(checkpoint, directories):
    """A bank of all tasks, whose rows are in another order than they, and some are free; not to be changed."""
    bank = AdapterBank(str(checkpoint)).add("gone", directories / "pooler").add("film", directories / "shared")
    for name in list(TASKS)[1:]:
        bank.add(name, directories / name)
    return bank.remove("gone").replace("film", directories / "film")


def alone(directories, name, texts=TEXTS, pairs=PAIRS):
    """Logits of a task's own model."""
    scorer, settings = load_pipeline(directories / name)
    return scorer.logits(tf.constant(texts), tf.constant(pairs) if settings["task"].get("text_pairs") else None)


def numpy_of(answer):
    return {name: value.numpy() for name, value in answer.items()}


def test_of_a_task_that_comes_the_others_are_not_looked_at(few):
    """Or the time to fill a bank grew with the square of its tasks."""
    of_film = BankTasks({"film": few.tasks["film"]}, few._now.graph).graph
    assert of_film != few._now.graph
    added = BankTasks({**few.tasks, "film": None}, of_film, "similar").graph
    assert added == BankTasks(few.tasks, of_film).graph == few._now.graph


@pytest.mark.slow
def test_a_mixed_batch_is_answered_as_by_each_task_alone(bank, directories):
    random = np.random.default_rng(0)
    expected = {name: alone(directories, name) for name in TASKS}
    assert {(logits > 0).sum() for logits in np.asarray(expected["upper"])} - {1}, "the best label is not all"
    rows = [(name, place) for name in TASKS for place in range(len(TEXTS))]
    random.shuffle(rows)
    names, places = [name for name, _ in rows], [place for _, place in rows]
    answer = numpy_of(bank.answer([TEXTS[place] for place in places], names, [PAIRS[place] for place in places]))
    assert not any(answer["error"])
    for row, (name, place) in enumerate(rows):
        logits, (_, labels, task, _, _) = expected[name][place], TASKS[name]
        outputs = len(logits)
        assert answer["outputs"][row] == outputs and not answer["logits"][row, outputs:].any()
        assert answer["num_labels"][row] == len(labels or ())
        np.testing.assert_allclose(answer["logits"][row, :outputs], logits, atol=1e-6)
        found = answer["probabilities"][row]
        assert not found[outputs:].any()
        if task["kind"] == "regression":
            np.testing.assert_allclose(answer["value"][row], np.clip(logits[0], -0.1, 0.1), atol=1e-6)
            assert not found.any() and answer["label"][row] == b""
        elif task["kind"] == "multi-label":
            np.testing.assert_allclose(found[:outputs], tf.sigmoid(logits), atol=1e-6)
            assert answer["label"][row].decode() == "|".join(label for label, logit in zip(labels, logits) if logit > 0)
        else:
            np.testing.assert_allclose(found[:outputs], tf.nn.softmax(logits), atol=1e-6)
            assert answer["label"][row].decode() == labels[logits.argmax()] and answer["value"][row] == 0
    assert len({tuple(row) for row in answer["logits"].round(4)}) > len(TEXTS), "the tasks differ"
    assert bank._now.graph.pools[0].table.used == 1 + 6 + 3 + 2, "an adapter that blocks share is kept once"


def test_the_identity_is_the_plain_encoder_bit_for_bit(few, checkpoint):
    inputs = tiny_inputs(batch=6, length=9)
    plain = load_backbone(checkpoint, head="none")(inputs)
    for tasks in ([""] * 6, ["", "film", "", "similar", "film", ""]):
        hidden, pooled = few.hidden_states({**inputs, "task": tf.constant(tasks)})
        same = [task == "" for task in tasks]
        np.testing.assert_array_equal(hidden.numpy()[same], plain.last_hidden_state.numpy()[same])
        np.testing.assert_allclose(pooled.numpy()[same], plain.pooler_output.numpy()[same], atol=1e-6)
    assert np.abs(hidden[1] - plain.last_hidden_state[1]).max() > 0.1


def test_an_unknown_task_and_a_broken_text_leave_the_other_rows_unharmed(few, directories):
    texts, tasks = [b"a great film", b"\xff\xfe great", b"a great film", b"dull"], ["film", "film", "nobody", "similar"]
    answer = numpy_of(few.answer(texts, tasks, [None, None, None, ""]))
    assert [error.decode() for error in answer["error"]] == ["", "the text is not UTF-8", "unknown task 'nobody'", ""]
    expected = alone(directories, "film", ["a great film"], None)
    np.testing.assert_allclose(answer["logits"][0, :2], expected[0], atol=1e-6)
    assert not any(answer[name][1:3].any() for name in ("logits", "probabilities", "outputs", "label"))
    assert np.isfinite(answer["probabilities"]).all() and answer["outputs"].tolist() == [2, 0, 0, 1]
    assert answer["num_labels"].tolist() == [2, 0, 0, 0], "a regression has no probabilities"
    # A pair that a task does not read does not matter.
    assert few.answer(["dull"], ["film"], [b"\xff"])["error"].numpy()[0] == b""
    assert b"UTF-8" in few.answer(["dull"], ["similar"], [b"\xff"])["error"].numpy()[0]
    assert b"unknown task" in few.answer(["dull"], [b"\xff"])["error"].numpy()[0]
    is_refused("a row of the task 'similar', which reads two texts", few.answer, ["dull"], "similar")
    rows = ["dull"] * 2, ["film", "similar"]
    found, expected = (few.answer(*rows, [single, "the cast"])["logits"].numpy() for single in (None, ""))
    np.testing.assert_array_equal(found, expected)
    nothing = tf.constant([], tf.string)
    assert all(len(value) == 0 for value in few.answer(nothing, nothing).values())


@pytest.mark.parametrize(
    "storage, tolerance", [("bfloat16", 0.1), pytest.param("float16", 0.01, marks=pytest.mark.nightly)]
)
def test_adapters_can_be_kept_in_half_the_space(checkpoint, directories, storage, tolerance):
    bank = AdapterBank(str(checkpoint), storage=storage).add("film", directories / "film")
    found, expected = bank.answer(TEXTS, "film")["logits"].numpy(), alone(directories, "film")
    assert 0 < np.abs(found - expected).max() < tolerance
    assert bank._now.graph.pools[0].table.stores[2].variable.dtype == storage


def test_a_bank_answers_under_a_policy_of_half_the_bits(checkpoint, directories):
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        found = AdapterBank(str(checkpoint)).add("film", directories / "film").answer(TEXTS, "film")["logits"]
    finally:
        keras.mixed_precision.set_global_policy("float32")
    np.testing.assert_allclose(found, alone(directories, "film"), atol=0.02)


def rewrite(directory, target, *, labels=None, arrays=None, **settings_of):
    """A copy of an adapter directory with other settings, and arrays that are functions of the old ones."""
    shutil.copytree(directory, target)
    path, settings = target / "adapter.safetensors", json.loads((target / "tf_adapters.json").read_text())
    content = load_file(path)
    for key, change in (arrays or {}).items():
        content[key] = change(content[key])
    save_file(content, path)
    settings["weights"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    for part, changes in settings_of.items():
        settings[part].update(changes)
    settings["head"]["labels"] = labels or settings["head"]["labels"]
    (target / "tf_adapters.json").write_text(json.dumps(settings))
    return target


UP, HEAD = "layer.0.attention.up.kernel", "head.classifier.weight"
REFUSED = [
    (dict(backbone={"sha256": 64 * "0"}), "trained on another encoder"),
    (dict(backbone={"activation": "gelu_tanh"}), "with activation='gelu_tanh', and this model computes with"),
    (dict(backbone={"weights_saved": True}), "changed weights of the encoder itself.*Export it by itself"),
    (dict(text={"do_lower_case": False}), "do_lower_case=False"),
    (dict(text={"max_length": 999}), "max_length=999 is beyond the 64 positions"),
    (dict(text={"max_length": 4}, task={"text_pairs": True}), "max_length=4, which has no room for two texts"),
    (dict(task={"kind": "regression"}), "'task.kind' is 'regression', and the head is for classification with 2"),
    (
        dict(
            task={"kind": "token-classification"}, head={"type": "token-classification"}, backbone={"sha256": 64 * "1"}
        ),
        "is for token-classification: a bank holds tasks on texts",
    ),
    *((dict(labels=labels), "names the labels .* of a head of 2|'head.labels' is") for labels in ([1, 2], ["a"])),
    *(
        (dict(task={"value_range": value}), "value_range")
        for value in ([0, float("nan")], [1, 0], [0], "ab", [0, "b"], [float("-inf"), 1])
    ),
    *(
        (dict(arrays={key: functools.partial(np.full_like, fill_value=value)}), f"adapter.safetensors: {key} holds NaN")
        for key in (UP, HEAD)
        for value in (np.nan, np.inf)
    ),
]


def test_what_does_not_belong_or_is_damaged_is_refused_and_changes_nothing(few, checkpoint, directories, tmp_path):
    before, now, rows = few.tasks, few._now, [table.used for table in few.tables]
    film = directories / "film"
    for number, (changes, message) in enumerate(REFUSED):
        changed = rewrite(film, tmp_path / str(number), **changes)
        for change, name in ((few.add, "new"), (few.replace, "film")):
            is_refused(message, change, name, changed)
    empty, half = AdapterBank(str(checkpoint)), AdapterBank(str(checkpoint), storage="float16")
    large = rewrite(film, tmp_path / "large", arrays={UP: lambda array: array * 1e6})
    is_refused("a task of that name.*replace", few.add, "film", film)
    is_refused("there is no such directory", few.add, "new", tmp_path / "nowhere")
    is_refused("not empty", few.add, "", film)
    is_refused("string of characters", few.add, "\udc80", film)
    is_refused("'nobody'.*no such task; it has 'film'", few.remove, "nobody")
    is_refused("'nobody'.*no such task; it has 'film'", few.replace, "nobody", film)
    is_refused("storage='int8'", AdapterBank, str(checkpoint), storage="int8")
    is_refused(f"{UP} .*beyond what float16 holds", half.add, "film", large)
    is_refused("is empty: add", empty.answer, ["a"], ["b"])
    is_refused("equally many", few.answer, ["a", "b"], ["film"] * 3)
    for inputs, message in (
        (tiny_inputs(), "inputs lack 'task'"),
        ({**tiny_inputs(), "task": ["film"] * 3, "label": [1]}, "inputs have 'label'"),
        ({"task": ["film"], "input_ids": [[2.0]]}, "input_ids is of float32: give int32 or int64"),
        ({**tiny_inputs(), "task": ["film"]}, "task must have one entry for each row"),
        *(({"task": ["film"], "input_ids": [[2, wrong]]}, "numbers from 0 to") for wrong in (-1, 10**9)),
    ):
        with pytest.raises(InputError, match=message):  # to which Keras adds what it was given
            few(inputs)
    assert few._now is now and few.tasks == before and rows == [table.used for table in few.tables]
    empty.add("film", large)


def test_a_new_graph_is_run_by_one_thread_before_others_come(checkpoint, directories, monkeypatch):
    """TensorFlow optimises a graph at its first run; side by side each of 64 threads would do so for itself, at 20 MB
    each."""
    bank, runs = AdapterBank(str(checkpoint)).add("film", directories / "film"), []

    def function(*_, **__):
        def run(*arguments):
            runs.append("begun")
            if len(runs) == 1:
                time.sleep(0.5)  # the others come as far as they can
            runs.append("ended")

        run.get_concrete_function = lambda: None
        return run

    monkeypatch.setattr(tf, "function", function)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(bank.answer, [["a film"]] * 8, ["film"] * 8))
    assert len(runs) == 16 and runs[:2] == ["begun", "ended"]


# Changes


@pytest.mark.slow
def test_ids_are_answered_outside_graphs_alone(bank):
    inputs = {"input_ids": tf.constant([[2, 7, 8, 3, 0, 0]]), "task": tf.constant(["film"])}
    whole = {**inputs, "attention_mask": [[1, 1, 1, 1, 0, 0]], "token_type_ids": [[0] * 6]}
    np.testing.assert_array_equal(bank(inputs)["logits"], bank(whole)["logits"])
    for ids in (np.array([[2, 7, 8, 3, 0, 0]]), tf.constant([[2, 7, 8, 3, 0, 0]], tf.int64)):
        np.testing.assert_array_equal(bank({**inputs, "input_ids": ids})["logits"], bank(whole)["logits"])
    with pytest.raises(InputError, match="in a graph, whose tasks could not change: call it outside tf.function"):
        tf.function(bank.__call__, autograph=False)(inputs)


@pytest.mark.slow
def test_tasks_come_and_go_without_a_new_trace(checkpoint, directories, tmp_path):
    bank, text = AdapterBank(str(checkpoint)).add("first", directories / "film"), ["a great film"]
    bank.answer(text, ["first"])
    graph, names = bank._now.graph, ["one", "two", "three"]
    for seed, name in enumerate(names):
        bank.add(name, save_task(checkpoint, tmp_path / name, *TASKS["film"], seed=seed + 10))
    logits = bank.answer(text * 4, ["first", *names])["logits"].numpy()
    for row, name in zip(logits[1:], names):
        np.testing.assert_allclose(row, alone(tmp_path, name, text, None)[0], atol=1e-6)
    bank.replace("one", tmp_path / "two").remove("three")
    answer = numpy_of(bank.answer(text * 4, ["first", *names]))
    assert answer["error"][3] == b"unknown task 'three'" and not answer["logits"][3].any()
    np.testing.assert_array_equal(answer["logits"][:3], logits[[0, 2, 2]])
    # The replacement stood beside what it replaced for a moment.
    size = bank.nbytes
    for _ in range(9):
        bank.add("again", tmp_path / "three")
        np.testing.assert_allclose(bank.answer(text, "again")["logits"][0], logits[3], atol=1e-6)
        bank.remove("again")
    assert bank.nbytes == size, "what was given back is used again"
    assert bank._now.graph is graph and graph.functions["answer_texts"].experimental_get_tracing_count() == 1


@pytest.mark.slow
def test_sizes_lengths_and_labels_that_no_task_has_any_more_are_gone(checkpoint, directories):
    bank = AdapterBank(str(checkpoint)).add("three", directories / "three").add("film", directories / "film")
    texts, tasks, expected = ["a great film", "dull"], ["three", "film"], []
    for more in ((), ("upper", "pooler", "head"), ()):
        for name in more:
            bank.add(name, directories / name)
        expected.append(numpy_of(bank.answer(texts, tasks))["logits"])
        np.testing.assert_allclose(expected[-1][:, :2], expected[0], atol=1e-6)
        for name in more:
            bank.remove(name)
    assert [logits.shape for logits in expected] == [(2, 2), (2, 8), (2, 2)]
    graph = bank._now.graph
    assert (len(graph.pools), len(graph.heads), graph.own_poolers) == (2, 2, False)
    bank.remove("three").remove("film")
    assert bank.answer(["a"], ["film"])["error"].numpy()[0] == b"unknown task 'film'" and not bank._now.graph.pools
    bank.add("film", directories / "film")
    np.testing.assert_allclose(bank.answer(texts[1:], "film")["logits"][0], expected[0][1], atol=1e-6)


@pytest.mark.slow
def test_calls_and_changes_from_several_threads_never_mix(checkpoint, directories):
    """Each answer is that of the one or the other adapter, never of a mixture, and the bystander's never changes."""
    texts, wanted = ["a great film"] * 2, [alone(directories, name)[0] for name in ("film", "pooler")]
    bank = AdapterBank(str(checkpoint)).add("still", directories / "film").add("moving", directories / "film")
    stop, wrong, counts = threading.Event(), [], [0, 0]

    def ask():
        while not stop.is_set() and not wrong:
            try:
                logits = bank.answer(texts, ["still", "moving"])["logits"].numpy()[:, :2]
                near = [np.abs(logits[1] - values).max() < 1e-5 for values in wanted]
                assert np.abs(logits[0] - wanted[0]).max() < 1e-5 and sum(near) == 1, logits
                counts[near.index(True)] += 1
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(8):
        bank.replace("moving", directories / ("film" if turn % 2 else "pooler"))
        # Three labels, where there were two, are another graph: all threads trace anew, and again when they go.
        bank.add("passing", directories / ("shared" if turn % 5 == 0 else "film")).remove("passing")
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not wrong and all(counts) and list(bank.tasks) == ["still", "moving"]


def test_rows_that_a_call_reads_are_not_overwritten(checkpoint, directories):
    """A call that began before a task was replaced and other tasks came answers as the task was."""
    bank = AdapterBank(str(checkpoint)).add("film", directories / "film")
    before, text = bank._now, tf.constant(TEXTS)
    task = tf.fill([len(TEXTS)], "film")

    def answer(now):
        arguments = text, tf.zeros_like(text), task, now.slots(task), now.tables
        return now.graph.answer_texts(*arguments)["logits"].numpy()

    expected = answer(before)
    bank.replace("film", directories / "pooler").add("more", directories / "film").add("others", directories / "shared")
    np.testing.assert_array_equal(answer(before), expected)
    assert np.abs(answer(bank._now)[:, :2] - expected).max() > 0.01
    used = [table.used for table in bank.tables]
    del before
    assert [table.used for table in bank.tables] == [used[0] - 6, used[1] - 1, *used[2:3], used[3] - 1, *used[4:]]


@pytest.mark.slow
def test_a_change_that_is_interrupted_anywhere_leaves_the_bank_as_it_was(checkpoint, directories):
    bank = AdapterBank(str(checkpoint)).add("film", directories / "film").add("shared", directories / "shared")
    texts, tasks = ["a great film", "dull", "", "a"], ["film", "shared", "three", "own"]
    for operation in (
        lambda: bank.add("three", directories / "three"),
        lambda: bank.add("own", directories / "pooler"),
        lambda: bank.replace("shared", directories / "three"),
        lambda: bank.remove("own"),
    ):
        expected, before = numpy_of(bank.answer(texts, tasks)), bank._now
        for place in interrupted(operation, files=("serving/bank.py", "serving/bank_graph.py"), done=set()):
            if linecache.getline(*place).strip() == "return self":
                break  # it is done
            assert bank._now is before, place
            for name, values in numpy_of(bank.answer(texts, tasks)).items():
                np.testing.assert_array_equal(values, expected[name], err_msg=str(place))
        assert bank._now is not before
    assert sorted(bank.tasks) == ["film", "shared", "three"]
    assert np.ptp(bank.answer(["dull"] * 2, ["shared", "three"])["logits"], 0).max() < 1e-6


# Files


@pytest.fixture(scope="module")
def served(bank, tmp_path_factory):
    return export_bank(bank, tmp_path_factory.mktemp("serving") / "all" / "1")


@pytest.mark.slow
def test_a_served_bank_answers_as_the_bank_and_holds_nothing_else(bank, served):
    loaded, names = tf.saved_model.load(str(served)).signatures, [*TASKS, "nobody"]
    texts, pairs = [*TEXTS, "dull"], [*PAIRS, ""]
    expected = numpy_of(bank.answer(texts, names, pairs))
    inputs = {"text": tf.constant(texts), "task": tf.constant(names), "text_pair": tf.constant(pairs)}
    found = numpy_of(loaded["serving_default"](**inputs))
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    in_python = tf.saved_model.load(str(served))
    same = in_python.serving_default(text=tf.constant(texts[:1]), task=tf.constant(["film"]))["logits"]
    np.testing.assert_allclose(same, expected["logits"][:1], atol=1e-6)
    mixed = in_python.serving_default(inputs["text"][-2:], inputs["task"][-2:], tf.constant(["was it fun", ""]))
    wanted = bank.answer(texts[-2:], names[-2:], ["was it fun", None])["logits"]
    np.testing.assert_allclose(mixed["logits"], wanted, atol=1e-6)
    for dtype in (tf.int32, tf.int64):
        ids = tf.constant([[2, 7, 8, 3, 0, 0]], dtype)
        (one, *others) = (
            in_python.tokens(ids, tf.constant(["film"]), **more)["logits"]
            for more in ({}, {"attention_mask": tf.cast(ids != 0, dtype)}, {"token_type_ids": 0 * ids})
        )
        for logits in (*others, bank({"input_ids": ids, "task": ["film"]})["logits"]):
            np.testing.assert_allclose(one, logits, atol=1e-6)
    known = numpy_of(loaded["tasks"]())
    assert [name.decode() for name in known["task"]] == list(bank.tasks)
    assert known["kind"].tolist() == [task.kind.encode() for task in bank.tasks.values()]
    labels = loaded["labels"](task=tf.constant(["shared", "similar", "nobody"]))["labels"].numpy()
    assert [[label.decode() for label in row if label] for row in labels] == [["x", "y", "z"], [], []]
    about = json.loads((served / "assets.extra" / "tf_adapters.json").read_text())
    upper = {"kind": "multi-label", "labels": list("abcde"), "text_pairs": False, "max_length": 24}
    assert about["tasks"]["upper"] == upper
    shapes = [shape for _, shape in tf.train.list_variables(str(served / "variables" / "variables"))]
    assert sorted(shape[0] for shape in shapes if shape[1:] == [32, 8]) == [1 + 1, 1 + 6 + 3 + 2], (
        "a head's, and no free rows"
    )


@pytest.mark.slow
def test_a_request_may_leave_out_the_pair_the_mask_and_the_types(bank, served):
    """As a server does it: a session on the graph, defaults filled in; and so it warms itself up."""
    ids = np.array([[2, 7, 8, 3, 0, 0], [2, 9, 10, 11, 12, 3]], np.int32)
    expected = bank({"input_ids": ids, "task": ["film", "shared"]})["logits"].numpy()
    of_texts = bank.answer(TEXTS, "film")["logits"].numpy()
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    records = tf.data.TFRecordDataset(str(served / "assets.extra" / "tf_serving_warmup_requests"))
    records = list(records.as_numpy_iterator())
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        signatures = tf.compat.v1.saved_model.load(session, ["serve"], str(served)).signature_def

        def ask(name, output, **inputs):
            feeds = {signatures[name].inputs[key].name: value for key, value in inputs.items()}
            return session.run(signatures[name].outputs[output].name, feeds)

        found = ask("tokens", "logits", input_ids=ids, task=["film", "shared"])
        np.testing.assert_allclose(found, expected, atol=1e-6)
        texts = ask("serving_default", "logits", text=TEXTS, task=["film"] * len(TEXTS))
        np.testing.assert_allclose(texts, of_texts, atol=1e-6)
        assert ask("serving_default", "label", text=["a", "b"], task=["film", "?"])[1] == b""
        asked = []
        for record in records:
            request = logs.PredictionLog.FromString(record).predict_log.request
            inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
            asked.append((request.model_spec.signature_name, inputs))
            assert set(ask(asked[-1][0], "error", **inputs).tolist()) == {b""}
        rows = [(name, len(inputs["task"])) for name, inputs in asked]
        signed = ("serving_default", "tokens", "tokens_int64")
        assert rows == [(name, count) for name in signed for count in (1, 8)]
        # Of several rows each task, and texts as long as may be.
        assert set(asked[1][1]["task"].tolist()) == {name.encode() for name in TASKS}
        assert min(map(len, asked[1][1]["text"].tolist())) > 1000


@pytest.mark.slow
def test_logits_that_are_not_finite_are_an_error_of_their_row(bank, directories, served):
    loaded, words, texts = tf.saved_model.load(str(served)), bank.backbone.bert.embeddings.weight, ["an awful film"] * 5
    texts[1], tasks = "a great film", ["film", "film", "upper", "similar", "head"]
    inputs = {"text": tf.constant(texts), "task": tf.constant(tasks), "text_pair": tf.constant([""] * 5)}
    expected, before = alone(directories, "film", texts[1:2], None)[0], words.numpy()
    (served_words,) = (variable for variable in loaded.read if variable.shape == words.shape)
    try:
        for table in (words, served_words):
            # A word that no LayerNorm can take.
            table.scatter_nd_update([[VOCABULARY.index("awful")]], [np.where(np.arange(32) % 2, 3e38, -3e38)])
        for answer in (bank.answer(texts, tasks, [""] * 5), loaded.signatures["serving_default"](**inputs)):
            answer, bad = numpy_of(answer), [0, 2, 3, 4]
            assert answer["error"].tolist() == [b"" if row == 1 else b"the logits are not finite" for row in range(5)]
            assert not any(answer[name][bad].any() for name in ("outputs", "value", "logits", "probabilities"))
            assert not any(answer["label"][bad]) and answer["label"][1]
            np.testing.assert_allclose(answer["logits"][1, :2], expected, atol=1e-6)
        for values in outputs_by_task(bank, inputs["text"][:2], tf.constant(["", ""])).values():
            assert np.isnan(values[0]).all() and np.isfinite(values[1]).all()
    finally:
        words.assign(before)


@pytest.mark.slow
def test_the_bank_answers_while_a_version_is_written_and_a_full_disk_leaves_none(bank, monkeypatch, tmp_path):
    during, write, before = [], export.write_version, bank.answer(TEXTS, "film")["logits"].numpy()

    def ask_too(*arguments, **options):
        thread = threading.Thread(target=lambda: during.append(bank.answer(TEXTS, "film")["logits"].numpy()))
        thread.start()
        thread.join(60)
        return write(*arguments, **options)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(export, "write_version", ask_too)
    monkeypatch.setattr(versions, "write_requests", full)
    is_refused("9 cannot be written: No space left on device", export_bank, bank, tmp_path / "all" / "9")
    assert not list((tmp_path / "all").iterdir())
    np.testing.assert_array_equal(during[0], before)


def test_what_cannot_be_exported_is_named(few, checkpoint, tmp_path):
    (tmp_path / "all" / "1").mkdir(parents=True)
    is_refused("all/1 is there already", export_bank, few, tmp_path / "all" / "1")
    is_refused("at least one task: add", export_bank, AdapterBank(str(checkpoint)), tmp_path / "all" / "2")
    is_refused("storage='int8'", export_bank, few, tmp_path / "all" / "2", storage="int8")
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["1"]


@pytest.mark.slow
def test_the_command_writes_a_bank_and_its_hint_needs_nothing_of_ours(cli, refused, directories, served, tmp_path):
    film, upper, output = directories / "film", directories / "upper", tmp_path / "all" / "1"
    half = ("--storage", "bfloat16", "--adapter-storage", "float16")
    done = cli("export", "--adapters", film, f"words={upper}", "--output", output, *half)
    assert done.status == 0, done.err
    assert "'label'" in said_without_us(done.out)
    about = json.loads((output / "assets.extra" / "tf_adapters.json").read_text())
    assert list(about["tasks"]) == ["film", "words"]
    sizes = [sum(file.stat().st_size for file in path.glob("variables/*")) for path in (output, served)]
    assert sizes[0] < 0.6 * sizes[1]
    export = "export", "--output", tmp_path / "3"
    refused(*export, film, upper, says="give --adapters")
    refused(*export, "--adapters", film, film, says="are both called 'film'")
    refused(*export, "--adapters", film, "--adapter-storage", "int4", says="--adapter-storage int4 is unknown")
    nowhere = tmp_path / "lr=0.1"
    refused(*export, "--adapters", nowhere, says="lr=0.1: there is no such directory, and none called 0.1")
    refused(*export, film, "--adapter-storage", "float16", says="--adapter-storage is for --adapters")


# Rows of variables


def test_rows_are_given_out_once_and_used_again():
    stores = RowStore(np.zeros((1, 3), np.float32), name="vector"), RowStore(np.zeros(1, np.int32), name="number")
    table = RowTable(stores)
    assert table.put(np.ones((3, 3)), [4, 5, 6]) == [1, 2, 3] and table.capacity == 4
    table.release([2])
    assert table.used == 3 and table.put(np.full((2, 3), 7.0), [8, 9]) == [2, 4] and table.capacity == 5
    np.testing.assert_array_equal(stores[0].gather([0, 1, 2, 3, 4])[:, 0], [0, 1, 7, 1, 7])
    np.testing.assert_array_equal(stores[1].gather([0, 1, 2, 3, 4]), [0, 4, 8, 6, 9])
    assert table.nbytes == 5 * 16 and table.used == 5
    with pytest.raises(ValueError):
        table.put(np.ones((1, 3)), None)
    assert table.used == 5
    copied = table.copy([4, 1])
    np.testing.assert_array_equal(copied.stores[1].variable, [0, 9, 4])
    assert copied.capacity == copied.used == 3 and copied.put(np.zeros((1, 3)), [3]) == [3]
