"""Adapters of several kinds on one encoder in memory, each asked by its name."""

import threading

import pytest

from tests.conftest import move_what_trains, write_checkpoint
from tf_adapters import AdapterConfig, InputError, add_adapters, load_backbone, save_adapter, set_trainable
from tf_adapters import predict as predict_alone
from tf_adapters.serving.shared_encoder import SharedEncoder, read_tasks
from tf_adapters.text import WordPiece

RANGED = {"text_pairs": True, "value_range": [-0.1, 0.1]}
# name: kind, arguments of load_backbone, further settings of the task, a row
KINDS = {
    "words": ("token-classification", dict(head="token-classification", labels=["O", "B-X", "I-X"]), {}, ["a film"]),
    "film": ("classification", dict(labels=["bad", "good"]), {}, ["a great film"]),
    "other": ("classification", dict(labels=["no", "yes"], head_layers=2), {}, ["a great film"]),
    "tags": ("multi-label", dict(labels=["a", "b", "c"]), {}, ["a great film"]),
    "score": ("regression", dict(num_labels=1), RANGED, ["a great film", "dull"]),
    "spans": ("question-answering", dict(head="question-answering"), {}, ["what was it", "it was a great film " * 9]),
    "choice": ("multiple-choice", dict(head="multiple-choice", num_labels=1), {}, ["a film", ["dull", "dull", "fun"]]),
}


def save_kind(checkpoint, directory, name, *, seed=0, adapter=True, max_length=24):
    """An adapter directory of a kind of task, whose trained weights are random."""
    kind, head, task, _ = KINDS[name]
    model = load_backbone(checkpoint, **head)
    if adapter:
        add_adapters(model, AdapterConfig(bottleneck_size=4), seed=seed)
    set_trainable(model, "adapters" if adapter else "head")
    move_what_trains(model, seed, scale=0.3)
    text = WordPiece.from_directory(checkpoint, max_length=max_length)
    return save_adapter(model, directory, text=text, task={"kind": kind, **task})


@pytest.fixture(scope="module")
def directories(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds")
    for seed, name in enumerate(KINDS):
        save_kind(checkpoint, folder / name, name, seed=seed)
    return folder


def columns(name):
    text, *second = KINDS[name][3]
    return [text], second or None


def assert_same_record(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if key == "n_best":
            for one, other in zip(found[key][:3], value[:3], strict=True):
                assert_same_record(one, other)
        elif isinstance(value, (float, dict)) or (value and isinstance(value, list) and isinstance(value[0], float)):
            assert found[key] == pytest.approx(value, abs=1e-5)
        else:
            assert found[key] == value


@pytest.mark.nightly
def test_adapters_of_every_kind_give_on_one_encoder_what_each_gives_alone_from_any_thread(directories):
    done = []
    encoder = SharedEncoder(read_tasks({name: directories / name for name in KINDS}), progress=done.append)
    assert sum(done) == len(KINDS) == len(encoder.tasks)
    alone = {name: predict_alone(directories / name, *columns(name)) for name in KINDS}
    # Twice, so that each answers after another head has stood on the encoder.
    for name in [*KINDS, *reversed(KINDS)]:
        (record,), (expected,) = encoder.answer(name, *columns(name)), alone[name]
        assert "error" not in record, name
        assert_same_record(record, expected)
    expected, wrong = {name: encoder.answer(name, *columns(name)) for name in ("film", "words", "tags")}, []

    def ask(name):
        for _ in range(10):
            wrong.extend([name] if encoder.answer(name, *columns(name)) != expected[name] else ())

    threads = [threading.Thread(target=ask, args=[name]) for name in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.slow
def test_one_directory_may_hold_a_head_alone_and_of_several_each_has_an_adapter(checkpoint, directories, tmp_path):
    save_kind(checkpoint, tmp_path / "head", "film", adapter=False)
    (record,) = SharedEncoder(read_tasks({"head": tmp_path / "head"})).answer("head", ["a great film"])
    assert_same_record(record, predict_alone(tmp_path / "head", ["a great film"])[0])
    with pytest.raises(InputError, match="or a head without an adapter .head., and shares its encoder with nobody"):
        read_tasks({"film": directories / "film", "head": tmp_path / "head"})
    assert len(read_tasks({"film": directories / "film", "head": tmp_path / "head"}, heads_alone=True)) == 2


def test_another_encoder_and_an_adapter_that_is_not_there_are_refused(checkpoint, tmp_path):
    write_checkpoint(tmp_path / "smaller", num_hidden_layers=2)
    write_checkpoint(tmp_path / "alike", seed=1)
    for name, encoder in {"film": checkpoint, "other": tmp_path / "smaller", "third": tmp_path / "alike"}.items():
        save_kind(encoder, tmp_path / name, "film")
    with pytest.raises(InputError, match="other was trained on another encoder .*smaller.* than .*film"):
        read_tasks({"film": tmp_path / "film", "other": tmp_path / "other"})
    with pytest.raises(InputError, match="third was trained on another encoder .*the weights are not"):
        SharedEncoder(read_tasks({"film": tmp_path / "film", "third": tmp_path / "third"}))
    with pytest.raises(InputError, match="There is no adapter 'spam': ask one of 'film'"):
        SharedEncoder(read_tasks({"film": tmp_path / "film"})).answer("spam", ["a"])
