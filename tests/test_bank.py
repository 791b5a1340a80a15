"""A bank answers each row of a mixed batch as the model that was trained for its task."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import VOCABULARY, tiny_inputs, write_checkpoint
from tests.interrupts import interrupted
from tf_adapters import (
    AdapterBank,
    AdapterConfig,
    InputError,
    WordPiece,
    add_adapters,
    load_backbone,
    load_trained,
    save_adapter,
    set_trainable,
)
from tf_adapters.kinds.scoring import Scorer
from tf_adapters.layers.bank import AdapterPool, RowStore, RowTable
from tf_adapters.models.state import state_of
from tf_adapters.serving.export_bank import export_bank
from tf_adapters.serving.locks import SharedLock
from tf_adapters.serving.scoring import BankScorer

TEXTS = [
    "a great film",
    "",
    "dull " * 40,
    "the plot was not awful, but very bad!",
    "\u00e9t\u00e9 \u4e2d x9",
    "great " * 9,
]
PAIRS = ["was it fun", "the cast", "", "great " * 9, "?", "dull"]
# name: (config or None, labels or None, task, max_length, layers of the head)
TASKS = {
    "film": (dict(bottleneck_size=8), ["bad", "good"], {"kind": "classification"}, 24, 1),
    "shared": (dict(bottleneck_size=8, sharing="layer"), ["x", "y", "z"], {"kind": "classification"}, 24, 1),
    "three": (
        dict(bottleneck_size=5, sharing=3, activation="relu", train_layer_norm="none"),
        ["a", "b"],
        {"kind": "classification"},
        16,
        2,
    ),
    "upper": (
        dict(bottleneck_size=8, blocks=(2, 3), placement="ffn", train_layer_norm="all"),
        list("abcde"),
        {"kind": "multi-label"},
        24,
        1,
    ),
    "similar": (
        dict(bottleneck_size=5, activation="tanh"),
        None,
        {"kind": "regression", "text_pairs": True, "value_range": [-0.1, 0.1]},
        24,
        1,
    ),
    "head": (None, ["no", "yes"], {"kind": "classification", "text_pairs": True}, 16, 1),
}


def save_task(
    checkpoint, directory, config, labels, task, max_length, layers, *, seed=0, trainable="adapters", pooler=False
):
    """An adapter directory whose trained weights are random."""
    model = load_backbone(
        checkpoint, num_labels=1 if labels is None else len(labels), labels=labels, head_layers=layers
    )
    if pooler:
        state_of(model).train_pooler(model)
    if config is not None:
        add_adapters(model, AdapterConfig(**config), seed=seed)
    set_trainable(model, trainable if config is not None else "head")
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign_add(random.normal(0, 0.2, variable.shape))
    return save_adapter(model, directory, text=WordPiece.from_directory(checkpoint, max_length=max_length), task=task)


@pytest.fixture(scope="module")
def directories(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    for seed, (name, values) in enumerate(TASKS.items()):
        save_task(checkpoint, folder / name, *values, seed=seed)
    save_task(checkpoint, folder / "pooler", *TASKS["film"], seed=9, pooler=True)
    return folder


@pytest.fixture(scope="module")
def bank(checkpoint, directories):
    bank = AdapterBank(str(checkpoint))
    for name in TASKS:
        bank.add(name, directories / name)
    return bank


def alone(directories, name, texts=TEXTS, pairs=PAIRS):
    """Logits of a task's own model."""
    model, settings = load_trained(directories / name)
    wordpiece = WordPiece.from_directory(settings["backbone"]["source"], max_length=settings["text"]["max_length"])
    pairs = tf.constant(pairs) if settings["task"].get("text_pairs") else None
    return Scorer(model, wordpiece).logits(tf.constant(texts), pairs)


def numpy_of(answer):
    return {name: value.numpy() for name, value in answer.items()}


@pytest.mark.slow
def test_a_mixed_batch_is_answered_as_by_each_task_alone(bank, directories):
    random = np.random.default_rng(0)
    expected = {name: alone(directories, name) for name in TASKS}
    rows = [(name, place) for name in TASKS for place in range(len(TEXTS))]
    random.shuffle(rows)
    names, places = [name for name, _ in rows], [place for _, place in rows]
    answer = numpy_of(bank.answer([TEXTS[place] for place in places], names, [PAIRS[place] for place in places]))
    assert not any(answer["error"])
    for row, (name, place) in enumerate(rows):
        logits, (_, labels, task, _, _) = expected[name][place], TASKS[name]
        outputs = len(logits)
        assert answer["outputs"][row] == outputs and not answer["logits"][row, outputs:].any()
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


def test_the_identity_is_the_plain_encoder_bit_for_bit(bank, checkpoint):
    inputs = tiny_inputs(batch=6, length=9)
    plain = load_backbone(checkpoint, head="none")(inputs)
    for tasks in ([""] * 6, ["", "film", "", "three", "similar", ""]):
        hidden, pooled = bank.hidden_states({**inputs, "task": tf.constant(tasks)})
        same = [task == "" for task in tasks]
        np.testing.assert_array_equal(hidden.numpy()[same], plain.last_hidden_state.numpy()[same])
        np.testing.assert_allclose(pooled.numpy()[same], plain.pooler_output.numpy()[same], atol=1e-6)
    assert np.abs(hidden[1] - plain.last_hidden_state[1]).max() > 0.1


def test_an_unknown_task_and_a_broken_text_leave_the_other_rows_unharmed(bank, directories):
    texts, tasks = [b"a great film", b"\xff\xfe great", b"a great film", b"dull"], ["film", "film", "nobody", "three"]
    answer = numpy_of(bank.answer(texts, tasks))
    assert [error.decode() for error in answer["error"]] == ["", "the text is not UTF-8", "unknown task 'nobody'", ""]
    expected = alone(directories, "film", ["a great film"], None)
    np.testing.assert_allclose(answer["logits"][0, :2], expected[0], atol=1e-6)
    for row in (1, 2):
        assert not answer["logits"][row].any() and not answer["probabilities"][row].any()
        assert answer["outputs"][row] == 0 and answer["label"][row] == b""
    assert np.isfinite(answer["probabilities"]).all() and answer["outputs"].tolist() == [2, 0, 0, 2]
    # A pair that a task does not read does not matter.
    assert bank.answer(["dull"], ["film"], [b"\xff"])["error"].numpy()[0] == b""
    assert b"UTF-8" in bank.answer(["dull"], ["similar"], [b"\xff"])["error"].numpy()[0]
    assert all(
        len(value) == 0
        for value in numpy_of(bank.answer(tf.constant([], tf.string), tf.constant([], tf.string))).values()
    )


@pytest.mark.slow
def test_logits_that_are_not_finite_are_an_error_of_their_row(checkpoint, directories, tmp_path):
    bank = AdapterBank(str(checkpoint))
    for name in ("film", "upper", "similar", "head"):
        bank.add(name, directories / name)
    # A word that no LayerNorm can take.
    table = bank.backbone.bert.embeddings.weight
    table.scatter_nd_update([[VOCABULARY.index("awful")]], [np.where(np.arange(32) % 2, 3e38, -3e38)])
    texts, tasks = ["an awful film"] * 5, ["film", "film", "upper", "similar", "head"]
    texts[1] = "a great film"
    export_bank(bank, tmp_path / "serving" / "1")
    served = tf.saved_model.load(str(tmp_path / "serving" / "1")).signatures["serving_default"]
    for answer in (
        bank.answer(texts, tasks),
        served(text=tf.constant(texts), task=tf.constant(tasks), text_pair=tf.constant([""] * 5)),
    ):
        answer = numpy_of(answer)
        wanted = ["the logits are not finite"] * 5
        wanted[1] = ""
        assert [error.decode() for error in answer["error"]] == wanted
        for row in (0, 2, 3, 4):
            assert answer["label"][row] == b"" and answer["outputs"][row] == 0 and answer["value"][row] == 0
            assert not answer["logits"][row].any() and not answer["probabilities"][row].any()
        np.testing.assert_allclose(answer["logits"][1, :2], alone(directories, "film", texts[1:2], None)[0], atol=1e-6)
        assert answer["label"][1] != b""
    for values in BankScorer(bank).outputs(tf.constant(texts[:2]), tf.constant(["", ""])).values():
        assert np.isnan(values[0]).all() and np.isfinite(values[1]).all()


@pytest.mark.slow
def test_it_is_a_keras_model(bank, directories):
    inputs = {**tiny_inputs(batch=3, length=8), "task": tf.constant(["film", "shared", "film"])}
    called = numpy_of(bank(inputs))
    predicted = bank.predict(inputs, batch_size=2, verbose=0)
    np.testing.assert_allclose(called["logits"], predicted["logits"], atol=1e-6)
    assert called["label"].tolist() == predicted["label"].tolist()
    ids = tf.constant([[2, 7, 8, 3, 0, 0]])
    model, _ = load_trained(directories / "film")
    expected = model(
        {"input_ids": ids, "attention_mask": tf.cast(ids != 0, tf.int32), "token_type_ids": 0 * ids}
    ).logits
    np.testing.assert_allclose(bank({"task": ["film"], "input_ids": ids})["logits"][:, :2], expected, atol=1e-6)
    assert isinstance(bank, tf.keras.Model)
    assert not bank.trainable_variables or not any("down" in variable.name for variable in bank.trainable_variables)


@pytest.mark.slow
def test_tasks_come_and_go_without_a_new_trace(checkpoint, directories, tmp_path):
    bank = AdapterBank(str(checkpoint)).add("first", directories / "film")
    bank.answer(["a film"], ["first"])
    traced = bank._book.functions["texts"]
    others = [save_task(checkpoint, tmp_path / str(seed), *TASKS["film"], seed=seed + 10) for seed in range(5)]
    for place, directory in enumerate(others):
        bank.add(f"task {place}", directory)
    names = [f"task {place}" for place in range(5)]
    logits = bank.answer(["a great film"] * 6, ["first", *names])["logits"].numpy()
    for row, directory in zip(logits[1:], others):
        np.testing.assert_allclose(row, alone(tmp_path, directory.name, ["a great film"], None)[0], atol=1e-6)
    capacity = bank._pools[0].table.capacity
    bank.replace("task 0", others[1]).remove("task 3")
    answer = numpy_of(bank.answer(["a great film"] * 6, ["first", *names]))
    np.testing.assert_array_equal(answer["logits"][1], answer["logits"][2])
    assert answer["error"][4] == b"unknown task 'task 3'" and not answer["logits"][4].any()
    np.testing.assert_array_equal(answer["logits"][[0, 2, 3, 5]], logits[[0, 2, 3, 5]])
    bank.add("again", others[3])
    assert bank._pools[0].table.capacity == capacity, "what was given back is used again"
    np.testing.assert_allclose(bank.answer(["a great film"], "again")["logits"][0], logits[4], atol=1e-6)
    assert bank._book.functions["texts"] is traced and traced.experimental_get_tracing_count() == 1
    assert sorted(bank.tasks) == ["again", "first", "task 0", "task 1", "task 2", "task 4"]
    bank.add("another size", directories / "three")
    bank.answer(["a film"], "another size")
    assert bank._book.functions["texts"] is not traced


def test_shared_adapters_are_kept_once(checkpoint, directories):
    used = {}
    for name in ("film", "shared", "upper"):
        bank = AdapterBank(str(checkpoint)).add(name, directories / name)
        used[name] = bank._pools[0].table.used
    assert used == {"film": 1 + 8, "shared": 1 + 4, "upper": 1 + 2}


def test_memory_of_many_like_adapters_is_that_of_their_weights(checkpoint, directories):
    bank, tasks = AdapterBank(str(checkpoint)), 50
    empty = bank.nbytes
    bank.reserve(tasks, directories / "film")
    for place in range(tasks):
        bank.add(f"task {place}", directories / "film")
    bank.trim()
    adapter = 8 * (2 * 8 * 32 + 8 + 32)
    weights = 4 * (adapter + 8 * 2 * 32 + 2 * 32 + 2)
    # The embeddings' LayerNorm is kept beside the blocks', and each task has a line in the tables.
    extra = 4 * (2 * 32 + 8 + 8 + 2)
    assert (bank.nbytes - empty) / tasks == pytest.approx(weights + extra, rel=0.05)


@pytest.mark.parametrize(
    "storage, tolerance", [("bfloat16", 0.1), pytest.param("float16", 0.01, marks=pytest.mark.nightly)]
)
def test_adapters_can_be_kept_in_half_the_space(checkpoint, directories, storage, tolerance):
    bank = AdapterBank(str(checkpoint), storage=storage).add("film", directories / "film")
    found, expected = bank.answer(TEXTS, "film")["logits"].numpy(), alone(directories, "film")
    assert 0 < np.abs(found - expected).max() < tolerance
    assert bank._pools[0].table.stores[2].variable.dtype == storage


def test_what_does_not_belong_is_refused_and_changes_nothing(bank, checkpoint, directories, tmp_path):
    other = tmp_path / "other"
    write_checkpoint(other, seed=9)
    save_task(other, tmp_path / "foreign", *TASKS["film"])
    save_task(checkpoint, tmp_path / "full", *TASKS["film"], trainable="full")
    write_checkpoint(tmp_path / "approximate", hidden_act="gelu_new")
    save_task(tmp_path / "approximate", tmp_path / "gelu", *TASKS["film"])
    (tmp_path / "cased").mkdir()
    write_checkpoint(tmp_path / "cased" / "encoder")
    (tmp_path / "cased" / "encoder" / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    save_task(tmp_path / "cased" / "encoder", tmp_path / "cased" / "task", *TASKS["film"])
    save_task(checkpoint, tmp_path / "words", *TASKS["film"][:2], {"kind": "token-classification"}, 24, 1)
    before, rows = bank.tasks, [table.used for table in bank.tables]
    for name, directory, message in (
        ("film", directories / "film", "a task of that name.*replace"),
        ("new", tmp_path / "foreign", "trained on another encoder"),
        ("new", tmp_path / "gelu", "with activation='gelu_tanh', and this model computes with activation='gelu'"),
        ("new", tmp_path / "full", "changed weights of the encoder itself.*Export it by itself"),
        ("new", tmp_path / "cased" / "task", "do_lower_case=False"),
        ("new", tmp_path / "words", "is for token-classification: a bank holds tasks on texts"),
        ("new", tmp_path / "nowhere", "there is no such directory"),
        ("", directories / "film", "not empty"),
        ("\udc80", directories / "film", "string of characters"),
    ):
        with pytest.raises(InputError, match=message):
            bank.add(name, directory)
    for change in (bank.remove, lambda name: bank.replace(name, directories / "film")):
        with pytest.raises(InputError, match="'nobody'.*no such task; it has 'film'"):
            change("nobody")
    with pytest.raises(InputError, match="storage='int8'"):
        AdapterBank(str(checkpoint), storage="int8")
    with pytest.raises(InputError, match="is empty: add"):
        AdapterBank(str(checkpoint)).answer(["a"], ["b"])
    with pytest.raises(InputError, match="equally many"):
        bank.answer(["a", "b"], ["film"] * 3)
    with pytest.raises(InputError, match="inputs lack 'task'"):
        bank(tiny_inputs())
    with pytest.raises(InputError, match="inputs have 'label'"):
        bank({**tiny_inputs(), "task": ["film"] * 3, "label": [1]})
    with pytest.raises(tf.errors.InvalidArgumentError, match="task must have one entry for each row"):
        bank({**tiny_inputs(), "task": ["film"]})
    assert bank.tasks == before and rows == [table.used for table in bank.tables]


def test_labels_that_do_not_fit_the_head_are_refused(checkpoint, directories, tmp_path):
    bank = AdapterBank(str(checkpoint))
    for labels in ([1, 2], ["a"], ["a", "b", "c"]):
        shutil.copytree(directories / "film", tmp_path / str(labels))
        path = tmp_path / str(labels) / "tf_adapters.json"
        settings = json.loads(path.read_text())
        settings["head"]["labels"] = labels
        path.write_text(json.dumps(settings))
        with pytest.raises(InputError, match="names the labels .* of a head of 2 outputs|'head.labels' is"):
            bank.add("film", path.parent)
    assert not bank.tasks and bank.nbytes == AdapterBank(str(checkpoint)).nbytes


def rewrite(directory, target, *, task=None, **arrays):
    """A copy of an adapter directory with other arrays or another task, each a function of the old one."""
    from safetensors.numpy import load_file, save_file

    shutil.copytree(directory, target)
    path, settings = target / "adapter.safetensors", json.loads((target / "tf_adapters.json").read_text())
    content = load_file(path)
    for name, change in arrays.items():
        (key,) = (key for key in content if key.endswith(name.replace("_", ".")))
        content[key] = change(content[key])
    save_file(content, path)
    settings["weights"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    settings["task"].update(task or {})
    (target / "tf_adapters.json").write_text(json.dumps(settings))
    return target


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_weights_that_are_not_finite_are_refused(checkpoint, directories, tmp_path, value):
    bank = AdapterBank(str(checkpoint))
    for name in ("layer_0_attention_down_kernel", "head_classifier_weight"):
        damaged = rewrite(
            directories / "film",
            tmp_path / name,
            **{name: lambda array: np.where(array == array[1, 1], value, array.astype(np.float64))},
        )
        for change in (lambda: bank.add("film", damaged), lambda: bank.reserve(1, damaged)):
            with pytest.raises(
                InputError, match=f"{name}/adapter.safetensors: {name.replace('_', '.')} holds NaN or infinity"
            ):
                change()
    assert not bank.tasks


def test_weights_beyond_what_the_bank_stores_are_refused(checkpoint, directories, tmp_path):
    large = rewrite(directories / "film", tmp_path / "large", layer_0_attention_up_kernel=lambda array: array * 1e6)
    with pytest.raises(InputError, match="layer.0.attention.up.kernel .*beyond what float16 holds"):
        AdapterBank(str(checkpoint), storage="float16").add("film", large)
    AdapterBank(str(checkpoint), storage="bfloat16").add("film", large)


@pytest.mark.parametrize("value_range", [[0, float("nan")], [1, 0], [0], "ab", [0, "b"], [float("-inf"), 1]])
def test_a_range_of_values_that_is_none_is_refused(checkpoint, directories, tmp_path, value_range):
    damaged = rewrite(directories / "similar", tmp_path / "similar", task={"value_range": value_range})
    with pytest.raises(InputError, match="value_range"):
        AdapterBank(str(checkpoint)).add("similar", damaged)


def test_room_for_tasks_with_more_labels_leaves_the_others_as_they_are(checkpoint, directories):
    bank = AdapterBank(str(checkpoint)).add("film", directories / "film").reserve(3, directories / "upper")
    np.testing.assert_allclose(bank.answer(TEXTS, "film")["logits"][:, :2], alone(directories, "film"), atol=1e-6)


@pytest.mark.slow
def test_a_graph_of_the_users_is_right_or_says_that_it_is_old(checkpoint, directories):
    bank = AdapterBank(str(checkpoint)).add("film", directories / "film")
    ids = tf.constant([[2, 7, 8, 3, 0, 0]])
    graph = tf.function(lambda ids: bank({"task": tf.constant(["film"]), "input_ids": ids}))
    states = tf.function(lambda ids: bank.hidden_states({"task": tf.constant(["film"]), "input_ids": ids})[1])
    np.testing.assert_allclose(graph(ids)["logits"], bank({"task": ["film"], "input_ids": ids})["logits"], atol=1e-6)
    assert np.isfinite(states(ids)).all()
    bank.add("three", directories / "three")
    assert b"trace this graph anew" in graph(ids)["error"].numpy()[0] and not graph(ids)["logits"].numpy().any()
    assert np.isnan(states(ids)).all()
    assert bank({"task": ["film"], "input_ids": ids})["error"].numpy()[0] == b""


def test_removed_adapters_are_given_back_and_cleared(checkpoint, directories):
    bank = AdapterBank(str(checkpoint)).add("film", directories / "film").trim()
    size = bank.nbytes
    bank.add("more", directories / "film").add("again", directories / "film").remove("more").trim()
    kernel = bank._pools[0].table.stores[0].variable.numpy()
    assert len(kernel) == 1 + 3 * 8 and not kernel[9:17].any() and kernel[17:].any()
    bank.remove("again").trim()
    assert bank.nbytes == size


@pytest.mark.parametrize("called", ["texts", "tokens"])
def test_a_new_graph_is_run_by_one_thread_before_others_come(checkpoint, directories, monkeypatch, called):
    """TensorFlow optimises a graph at its first run; side by side each of 64 threads would do so for itself, at 20 MB
    each."""
    bank, runs, ended, make = AdapterBank(str(checkpoint)).add("film", directories / "film"), [], [], tf.function
    requests = [lambda: bank({"task": ["film"], "input_ids": [[2, 7, 3]]}), lambda: bank.answer(["a film"], "film")]

    def counted(function, **options):
        real = make(function, **options)

        def run(*arguments):
            first = not runs
            runs.append(first)
            if first:
                # The others have come as far as they can.
                time.sleep(0.5)
                assert len(runs) == 1
            answer = real(*arguments)
            ended.append(first)
            return answer

        run.get_concrete_function = real.get_concrete_function
        return run

    monkeypatch.setattr(tf, "function", counted)
    threads = [threading.Thread(target=requests[called == "texts"]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(ended) == 8 and ended[0]


@pytest.mark.nightly
def test_what_no_task_has_any_more_is_dropped(checkpoint, directories, tmp_path):
    """Sizes, numbers of labels and lengths that come and go leave nothing, and what stays answers as before."""
    bank = AdapterBank(str(checkpoint))
    bank.add("three", directories / "three").add("head", directories / "head").add("film", directories / "film").trim()
    size, texts, tasks = bank.nbytes, ["a great film", "dull", "the plot"], ["three", "film", "head"]
    expected = numpy_of(bank.answer(texts, tasks, texts))
    trackables = len(bank._self_tracked_trackables)
    for turn in range(3):
        config = dict(bottleneck_size=9 + turn)
        labels = [str(number) for number in range(9 + 8 * turn)]
        save_task(
            checkpoint,
            tmp_path / str(turn),
            config,
            labels,
            {"kind": "classification", "text_pairs": bool(turn % 2)},
            25 + turn,
            1 + turn % 2,
        )
        bank.add("passing", tmp_path / str(turn)).remove("passing")
        # One that is emptied waits for the next change of the structure, so that a size may go and come again without a
        # trace.
        assert (len(bank._pools), len(bank._head_pools), len(bank._texts)) == (3, 3, 4)
    for name in ("three", "film"):
        bank.remove(name)
    bank.add("film", directories / "film").add("three", directories / "three").trim()
    assert (len(bank._pools), len(bank._head_pools), len(bank._texts)) == (2, 2, 3)
    assert bank.nbytes == size and len(bank._self_tracked_trackables) == trackables
    found = numpy_of(bank.answer(texts, tasks, texts))
    for name, values in expected.items():
        np.testing.assert_allclose(
            found[name], values, atol=1e-6
        ) if values.dtype == np.float32 else np.testing.assert_array_equal(found[name], values)
    for name in tasks:
        bank.remove(name)
    assert bank.trim().nbytes == AdapterBank(str(checkpoint)).nbytes and not bank._pools and not bank._head_pools
    assert bank.answer(["a"], ["film"])["error"].numpy()[0] == b"unknown task 'film'"
    bank.add("film", directories / "film")
    np.testing.assert_allclose(bank.answer(texts[1:2], "film")["logits"][0], expected["logits"][1][:2], atol=1e-6)


def test_room_that_was_reserved_is_kept_until_it_is_given_back(checkpoint, directories):
    bank = AdapterBank(str(checkpoint)).reserve(9, directories / "film").add("three", directories / "three")
    assert [pool.table.capacity for pool in bank._pools] == [1 + 9 * 8, 1 + 2]
    assert [pool.bottleneck_size for pool in bank.trim()._pools] == [5]


@pytest.mark.slow
def test_calls_and_changes_from_several_threads_never_mix(checkpoint, directories, tmp_path):
    """Each answer is that of the one or the other adapter, never of a mixture, and the bystander's never changes."""
    versions = [save_task(checkpoint, tmp_path / str(seed), *TASKS["film"], seed=seed + 20) for seed in range(2)]
    bank = AdapterBank(str(checkpoint)).add("still", directories / "film").add("moving", versions[0])
    wanted = [alone(tmp_path, str(seed), ["a great film"], None)[0] for seed in range(2)]
    still = alone(directories, "film", ["a great film"], None)[0]
    stop, wrong, counts = threading.Event(), [], [0, 0]

    def ask():
        while not stop.is_set():
            try:
                logits = bank.answer(["a great film"] * 2, ["still", "moving"])["logits"].numpy()[:, :2]
            except Exception as error:
                wrong.append(error)
                return
            near = [np.abs(logits[1] - values).max() < 1e-5 for values in wanted]
            if np.abs(logits[0] - still).max() > 1e-5 or sum(near) != 1:
                wrong.append(logits)
            else:
                counts[near.index(True)] += 1

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(20):
            bank.replace("moving", versions[(turn + 1) % 2])
            # Three labels, where there were two, are another structure: all threads trace anew.
            bank.add(f"passing {turn}", directories / ("shared" if turn > 9 else "film"))
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not wrong and all(counts) and len(bank.tasks) == 22


def test_rows_are_reused_grown_and_trimmed():
    stores = RowStore(np.zeros(3, np.float32)), RowStore(np.zeros((), np.int32))
    table = RowTable(stores)
    assert table.put(np.ones((3, 3)), [4, 5, 6]) == [1, 2, 3] and table.capacity == 4
    table.release([2])
    assert table.used == 3 and table.put(np.full((2, 3), 7.0), [8, 9]) == [2, 4] and table.capacity == 8
    np.testing.assert_array_equal(stores[0].gather([0, 1, 2, 3, 4])[:, 0], [0, 1, 7, 1, 7])
    np.testing.assert_array_equal(stores[1].gather([0, 1, 2, 3, 4]), [0, 4, 8, 6, 9])
    table.reserve(20)
    assert table.capacity == 25 and table.nbytes == 25 * 16
    table.release([0, 2, 4])
    table.trim()
    assert table.capacity == 4 and table.used == 3, "row 0 stays, and the last one that is used"
    np.testing.assert_array_equal(stores[0].gather([1, 2, 3])[:, 0], [1, 0, 1])
    assert table.put(np.full((1, 3), 5.0), [1]) == [2]


@pytest.mark.slow
def test_what_fails_halfway_gives_no_row_out(checkpoint, directories, monkeypatch):
    bank = AdapterBank(str(checkpoint)).add("film", directories / "film")
    used = [table.used for table in bank.tables]
    with monkeypatch.context() as patch:
        real = RowStore.set

        def fail(store, places, values):
            if store is bank._labels:
                raise MemoryError("no room")
            real(store, places, values)

        patch.setattr(RowStore, "set", fail)
        with pytest.raises(MemoryError):
            bank.add("shared", directories / "shared")
    assert (
        list(bank.tasks) == ["film"] and [table.used for table in bank.tables][: len(used) - 3] == used[: len(used) - 3]
    )
    bank.add("shared", directories / "shared")
    found = bank.answer(TEXTS * 2, ["film"] * 6 + ["shared"] * 6)["logits"].numpy()
    np.testing.assert_allclose(found[6:, :3], alone(directories, "shared"), atol=1e-6)
    np.testing.assert_allclose(found[:6, :2], alone(directories, "film"), atol=1e-6)


def test_row_zero_of_a_pool_is_the_identity_and_others_are_by_hand():
    pool = AdapterPool(4, 2, "tanh")
    random = np.random.default_rng(0)
    adapters = [
        tuple(random.normal(size=shape).astype(np.float32) for shape in ((4, 2), (2,), (2, 4), (4,))) for _ in range(2)
    ]
    assert pool.put(adapters) == [1, 2]
    hidden = random.normal(size=(3, 5, 4)).astype(np.float32)
    found = pool(tf.constant(hidden), tf.constant([2, 0, 1])).numpy()
    np.testing.assert_array_equal(found[1], hidden[1])
    for row, (down, down_bias, up, up_bias) in ((0, adapters[1]), (2, adapters[0])):
        np.testing.assert_allclose(
            found[row], hidden[row] + np.tanh(hidden[row] @ down + down_bias) @ up + up_bias, atol=1e-5
        )


def test_a_writer_waits_for_readers_and_readers_for_the_writer():
    lock, events = SharedLock(), []
    entered, leave = threading.Event(), threading.Event()

    def read():
        with lock.shared():
            entered.set()
            leave.wait(10)
            events.append("read")

    def write():
        with lock.alone():
            events.append("written")

    reader, writer = threading.Thread(target=read), threading.Thread(target=write)
    reader.start()
    assert entered.wait(10)
    writer.start()
    writer.join(0.2)
    assert writer.is_alive() and not events
    leave.set()
    for thread in (reader, writer):
        thread.join(10)
    assert events == ["read", "written"]
    with lock.shared(), lock.shared():
        pass


def test_readers_are_let_in_between_writers_that_never_pause():
    lock, stop, reads = SharedLock(), threading.Event(), []

    def write():
        while not stop.is_set():
            with lock.alone():
                time.sleep(0.005)

    def read():
        for _ in range(20):
            with lock.shared():
                reads.append(None)

    threads = [threading.Thread(target=target, daemon=True) for target in [write, *[read] * 64]]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join(10)
        if thread.is_alive():
            break
    stop.set()
    threads[0].join(10)
    assert len(reads) == 20 * 64 and not threads[0].is_alive()


def test_a_lock_is_free_after_an_interrupt_at_any_line():
    lock = SharedLock()

    def use():
        with lock.shared(), lock.shared():
            pass
        with lock.alone():
            pass

    for place in interrupted(use):
        thread = threading.Thread(target=use, daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive(), place
        assert not lock._reads


@pytest.mark.parametrize("waiting", ["shared", "alone"])
def test_a_lock_is_free_after_an_interrupt_of_who_waits_for_it(waiting, monkeypatch):
    """What was running goes on alone, and the next one still waits for it."""
    lock, events = SharedLock(), []
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with (lock.alone if waiting == "shared" else lock.shared)():
            entered.set()
            leave.wait(10)
            events.append("held")

    def change():
        with lock.alone():
            events.append("changed")

    holder, changer = (threading.Thread(target=target, daemon=True) for target in (hold, change))
    holder.start()
    assert entered.wait(10)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Event, "wait", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            with getattr(lock, waiting)():
                pass
    changer.start()
    changer.join(0.2)
    assert changer.is_alive() and not events
    leave.set()
    for thread in (holder, changer):
        thread.join(10)
    assert events == ["held", "changed"]


# What fails leaves no trace


def state_of_bank(bank):
    """All that a bank is: its book, and each table's rows in use."""
    book = bank._book
    names, slots = (values.numpy().tolist() for values in bank._table.export())
    lists = list(bank._pools), list(bank._head_pools), list(bank._texts), bank._labels, bank.predict_function
    tables = [
        (table, table.stores, table._used, set(table._free), table.capacity, table.nbytes) for table in bank.tables
    ]
    arrays = []
    for table in bank.tables:
        used = sorted(set(range(table._used)) - table._free)
        arrays += [
            store.variable.numpy()[used].tobytes()
            if store.variable.dtype != tf.string
            else store.variable.numpy()[used].tolist()
            for store in table.stores
        ]
    return (
        dict(book.tasks),
        dict(book.functions),
        book.tokenizer,
        book.structure,
        bank._structure.numpy(),
        dict(zip(names, slots)),
        lists,
        tables,
        arrays,
    )


def check_interrupts(checkpoint, directories, whole, **options):
    """Raise at every line of each operation on a bank, which must answer as before, and at the end as if nothing had
    been."""
    bank = AdapterBank(str(checkpoint)).add("film", directories / "film").add("head", directories / "head")
    bank.add("gone", directories / "film").add("shared", directories / "shared").remove("gone")
    texts, tasks = ["a great film", "dull", "", "the plot", "a"], ["film", "shared", "head", "three", "upper"]
    for operation in (
        lambda: bank.trim(),
        lambda: bank.add("three", directories / "three"),
        lambda: bank.reserve(3, directories / "upper"),
        lambda: bank.add("upper", directories / "upper"),
        lambda: bank.add("own", directories / "pooler"),
        lambda: bank.replace("shared", directories / "three"),
        lambda: bank.remove("upper"),
    ):
        expected = numpy_of(bank.answer(texts, tasks, texts))
        state = state_of_bank(bank)
        for place in interrupted(operation, **options):
            assert state_of_bank(bank) == state, place
            for name, values in numpy_of(bank.answer(texts, tasks, texts)).items():
                np.testing.assert_array_equal(values, expected[name], err_msg=str(place))
    assert sorted(bank.tasks) == ["film", "head", "own", "shared", "three"]
    expected = whole.answer(texts[:3], ["film", "three", "three"])["logits"][:, :2]
    np.testing.assert_allclose(
        bank.answer(texts[:3], ["film", "shared", "three"])["logits"][:, :2], expected, atol=1e-6
    )


@pytest.mark.slow
def test_a_change_that_is_interrupted_anywhere_leaves_the_bank_as_it_was(bank, checkpoint, directories):
    check_interrupts(
        checkpoint, directories, bank, files=("serving/bank.py", "layers/bank.py", "serving/locks.py"), done=set()
    )


@pytest.mark.nightly
def test_a_change_that_is_interrupted_at_any_line_of_the_package_leaves_the_bank_as_it_was(
    bank, checkpoint, directories
):
    check_interrupts(checkpoint, directories, bank, done=set())


def test_a_graph_that_is_traced_during_a_change_is_of_one_structure(checkpoint, directories, monkeypatch):
    bank, threads = AdapterBank(str(checkpoint)).add("film", directories / "film"), []
    graph = tf.function(lambda ids: bank({"task": tf.constant(["film", "three"]), "input_ids": ids}))
    ids, make = tf.constant([[2, 7, 8, 3], [2, 7, 8, 3]]), AdapterPool.__init__

    def traced_meanwhile(*arguments, **options):
        threads.append(threading.Thread(target=lambda: graph.get_concrete_function(ids)))
        threads[-1].start()
        threads[-1].join(1)
        make(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(AdapterPool, "__init__", traced_meanwhile)
        bank.add("three", directories / "three")
    threads[0].join(60)
    np.testing.assert_allclose(
        graph(ids)["logits"], bank({"task": ["film", "three"], "input_ids": ids})["logits"], atol=1e-6
    )


# Export


@pytest.fixture(scope="module")
def served(bank, tmp_path_factory):
    folder = tmp_path_factory.mktemp("serving") / "all"
    export_bank(bank, folder / "1")
    return folder


@pytest.mark.slow
def test_a_served_bank_answers_as_the_bank(bank, served):
    loaded = tf.saved_model.load(str(served / "1"))
    names = [*TASKS, "nobody"]
    texts, pairs = [*TEXTS, "dull"], [*PAIRS, ""]
    expected = numpy_of(bank.answer(texts, names, pairs))
    found = numpy_of(
        loaded.signatures["serving_default"](
            text=tf.constant(texts), task=tf.constant(names), text_pair=tf.constant(pairs)
        )
    )
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    known = numpy_of(loaded.signatures["tasks"]())
    assert [name.decode() for name in known["task"]] == list(TASKS)
    assert known["kind"].tolist() == [bank.tasks[name].kind.encode() for name in TASKS]
    labels = loaded.signatures["labels"](task=tf.constant(["shared", "similar", "nobody"]))["labels"].numpy()
    assert [[label.decode() for label in row if label] for row in labels] == [["x", "y", "z"], [], []]
    about = json.loads((served / "1" / "assets.extra" / "tf_adapters.json").read_text())
    assert about["tasks"]["upper"] == {
        "kind": "multi-label",
        "labels": list("abcde"),
        "text_pairs": False,
        "max_length": 24,
    }


@pytest.mark.slow
def test_a_request_may_leave_out_the_pair_the_mask_and_the_types(bank, served):
    """As a server does it: a session on the graph, defaults filled in."""
    ids = np.array([[2, 7, 8, 3, 0, 0], [2, 9, 10, 11, 12, 3]], np.int32)
    expected = bank({"input_ids": ids, "task": ["film", "shared"]})["logits"].numpy()
    of_texts = bank.answer(TEXTS, "film")["logits"].numpy()
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        signatures = tf.compat.v1.saved_model.load(session, ["serve"], str(served / "1")).signature_def

        def ask(name, output, **inputs):
            signature = signatures[name]
            return session.run(
                signature.outputs[output].name, {signature.inputs[key].name: value for key, value in inputs.items()}
            )

        found = ask("tokens", "logits", input_ids=ids, task=["film", "shared"])
        np.testing.assert_allclose(found, expected, atol=1e-6)
        texts = ask("serving_default", "logits", text=TEXTS, task=["film"] * len(TEXTS))
        np.testing.assert_allclose(texts, of_texts, atol=1e-6)
        assert ask("serving_default", "label", text=["a", "b"], task=["film", "?"])[1] == b""


def test_an_encoder_of_another_family_is_refused(tmp_path):
    from tests.families import family_model, write_family_checkpoint

    write_family_checkpoint(family_model("electra"), tmp_path)
    with pytest.raises(InputError, match="has model_type='electra': a bank is for bert alone"):
        AdapterBank(str(tmp_path))


def test_what_cannot_be_exported_is_named(bank, checkpoint, served, tmp_path):
    with pytest.raises(InputError, match="all/1 is there already"):
        export_bank(bank, served / "1")
    with pytest.raises(InputError, match="at least one task: add"):
        export_bank(AdapterBank(str(checkpoint)), tmp_path / "1")
    with pytest.raises(InputError, match="storage='int8'"):
        export_bank(bank, tmp_path / "1", storage="int8")
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
def test_it_loads_where_only_tensorflow_and_tensorflow_text_are(bank, served):
    code = f"""
import json, sys, tensorflow as tf, tensorflow_text
answer = tf.saved_model.load({str(served / "1")!r}).signatures["serving_default"](
    text=tf.constant({TEXTS!r}), task=tf.constant({list(TASKS)!r}), text_pair=tf.constant({PAIRS!r}))
assert not {{"tf_adapters", "transformers", "tf_keras", "safetensors"}} & {{name.split(".")[0] for name in sys.modules}}
print(json.dumps(answer["logits"].numpy().tolist()))
"""
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    np.testing.assert_allclose(json.loads(done.stdout), bank.answer(TEXTS, list(TASKS), PAIRS)["logits"], atol=1e-6)


@pytest.mark.slow
def test_the_command_writes_a_bank_and_its_hint_runs(cli, directories, tmp_path):
    output = tmp_path / "all" / "1"
    done = cli("export", "--adapters", directories / "film", f"words={directories / 'upper'}", "--output", output)
    assert done.status == 0, done.err
    command = done.out.split("Try it:\n")[1].strip().replace("python", sys.executable, 1)
    shown = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=300, check=False)
    assert shown.returncode == 0 and "'label'" in shown.stdout, shown.stderr[-2000:]
    about = json.loads((output / "assets.extra" / "tf_adapters.json").read_text())
    assert list(about["tasks"]) == ["film", "words"]
    done = cli("export", "--adapters", directories / "film", "--output", tmp_path / "all" / "2")
    assert done.status == 0 and "are shared with another version" in done.out
    for arguments, message in (
        ((directories / "film", directories / "upper", "--output", tmp_path / "3"), "give --adapters"),
        (
            ("--adapters", directories / "film", directories / "film", "--output", tmp_path / "3"),
            "are both called 'film'",
        ),
        (("--adapters", directories / "film", "--output", output), "is there already"),
        (
            ("--adapters", directories / "film", "--output", tmp_path / "3", "--adapter-storage", "int4"),
            "--adapter-storage int4 is unknown",
        ),
        (("--adapters", tmp_path / "nowhere", "--output", tmp_path / "3"), "nowhere: there is no such directory"),
        (
            ("--adapters", tmp_path / "lr=0.1", "--output", tmp_path / "3"),
            "lr=0.1: there is no such directory, and none called 0.1",
        ),
        (
            (directories / "film", "--output", tmp_path / "3", "--adapter-storage", "float16"),
            "--adapter-storage is for --adapters",
        ),
    ):
        done = cli("export", *arguments)
        assert done.status == 2 and message in done.err and "Traceback" not in done.err, done.err
