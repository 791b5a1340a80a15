"""A bank holds adapters of every method on every family, and answers each row as its own model; so do its files."""

import importlib.util
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests import tokenizers
from tests.conftest import is_refused, move_what_trains
from tests.families import FAMILIES, family_model, write_family_checkpoint
from tf_adapters import (
    AdapterBank,
    AdapterConfig,
    LoraConfig,
    add_adapters,
    export_bank,
    load_backbone,
    load_tokenizer,
    save_adapter,
    set_trainable,
)
from tf_adapters.config import DENSE_PLACES
from tf_adapters.methods import FusionConfig, IA3Config
from tf_adapters.methods.dora import DoraConfig
from tf_adapters.models.transformers.heads import logits_of_rows
from tf_adapters.serving.convert import export_file

TEXTS = ["a great film", "dull plot, it is bad and not fun at all", "great"]
# For encoders of two blocks.
METHODS = {
    "unshared": AdapterConfig(bottleneck_size=5),
    "lora": LoraConfig(rank=3, alpha=5),
    "ia3": IA3Config(),
    "pfeiffer": AdapterConfig(bottleneck_size=5, insertion="after-norm", placement="ffn", train_layer_norm="none"),
    "dora": DoraConfig(rank=2, alpha=3, targets=("value", "output")),
    "parallel": AdapterConfig(bottleneck_size=5, insertion="parallel", scaling=4.0, train_layer_norm="none"),
    "one": AdapterConfig(bottleneck_size=5, sharing="layer", activation="relu"),
    "blocks": AdapterConfig(bottleneck_size=5, sharing=2),
    "lora-everywhere": LoraConfig(rank=2, targets=DENSE_PLACES, train_layer_norm="encoder", blocks=(1,)),
    "lora-inner": LoraConfig(rank=3, alpha=5, targets=("value", "intermediate", "output")),
    "variant": AdapterConfig(
        bottleneck_size=5, hidden_layers=2, inner_norm="after", scaling="learned", interaction="multiply"
    ),
    "fusion": FusionConfig({name: AdapterConfig(bottleneck_size=5) for name in "ab"}),
    "normed": AdapterConfig(bottleneck_size=5, hidden_layers=3, inner_norm="before", scaling=0.5, activation="tanh"),
}
# What differs between families is where methods stand, not what they compute.
PLACED = ["unshared", "lora", "ia3", "pfeiffer", "dora", "lora-inner"]
# Of this one, queries and keys are made of what all rows share too.
SHARED_DISTANCES = {"lora", "ia3", "lora-everywhere"}
MADE_WITH = {
    "distilbert": {"n_layers": 2},
    "albert": {"num_hidden_layers": 2, "num_hidden_groups": 2},
    # What KerasHub computes of DeBERTa-v2, with another head.
    "deberta-v3": {"num_hidden_layers": 2, "conv_kernel_size": 0, "pooler_hidden_act": "tanh"},
}


def made(family, folder, methods):
    """A bank of a task for each method, and what each task's model answers, by name."""
    sizes, family = MADE_WITH.get(family, {"num_hidden_layers": 2}), family.replace("v3", "v2")
    of = {"electra": "bert", "distilbert": "bert"}.get(family, family)
    write_family_checkpoint(family_model(family, vocab_size=500, **sizes), folder / "encoder", bare=True)
    for file in tokenizers.directory(of).iterdir():
        shutil.copy(file, folder / "encoder")
    model = load_backbone(folder / "encoder")
    tokenizer, bank, expected = load_tokenizer(model, max_length=16), AdapterBank(folder / "encoder"), {}
    for name in methods:
        add_adapters(model, METHODS[name], name=name, num_labels=3 if name == "parallel" else None)
        set_trainable(model, "adapters")
        move_what_trains(model, len(expected))
        expected[name] = logits_of_rows(model, tokenizer(TEXTS)).numpy()
        save_adapter(model, folder / name, text=tokenizer, task={"kind": "classification"})
    return bank, expected


def check(answer, names, expected):
    logits = np.asarray(answer["logits"])
    assert not any(np.asarray(answer["error"]))
    for row, name in enumerate(names):
        np.testing.assert_allclose(logits[row, : expected[name].shape[1]], expected[name][row % 3], atol=1e-5)


def answered(family, folder, methods, whole=False):
    """Compare each row of a mixed batch with its own model."""
    bank, expected = made(family, folder, methods)
    banks = [bank]
    if importlib.util.find_spec("keras_hub") and family not in ("mpnet", "deberta-v2"):
        banks.append(AdapterBank(folder / "encoder", door="keras-hub"))
    # Neighbours have other tasks.
    texts, names = np.repeat(TEXTS, len(methods)), list(methods) * 3
    order = np.arange(len(names)).reshape(3, -1).T.ravel()
    texts, names = texts[order], [names[place] for place in order]
    for bank in banks:
        for name in methods:
            bank.add(name, folder / name)
        check(bank.answer(texts, names), names, expected)
    spread = np.std([values[:, :2] for values in expected.values()], 0).min()
    assert spread > 1e-3, "the tasks differ"
    return banks, expected, texts, names


def test_rows_of_several_methods_share_a_batch(tmp_path):
    answered("bert", tmp_path, ["unshared", "lora", "ia3", "pfeiffer"])


@pytest.mark.slow
def test_files_of_banks_answer_each_row_by_its_method(tmp_path):
    runtime = [pytest.importorskip(package) for package in ("tf2onnx", "onnxscript", "onnxruntime")][-1]
    banks, expected, texts, names = answered("bert", tmp_path, ["unshared", "lora"])
    for version, bank in enumerate(banks):
        session = runtime.InferenceSession(export_file(bank, tmp_path / f"{version}.onnx", format="onnx"))
        given = {name: np.asarray(values, np.int64) for name, values in bank.tokenizer(texts).items()}
        given["task"] = np.array([list(bank.tasks).index(name) for name in names])
        logits = session.run(["logits"], {one.name: given[one.name] for one in session.get_inputs()})[0]
        check({"logits": logits, "error": []}, names, expected)


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(family, marks=pytest.mark.slow if family in ("bert", "deberta-v2") else pytest.mark.nightly)
        for family in (*FAMILIES, "deberta-v3")
    ],
)
def test_every_family_answers_by_every_method(family, tmp_path):
    refused = {"fusion"} | (SHARED_DISTANCES if "deberta" in family else set())
    methods = [name for name in (METHODS if family == "bert" else PLACED) if name not in refused]
    banks, expected, texts, names = answered(family, tmp_path, methods)
    for version, bank in enumerate(banks):
        if family in ("bert", "deberta-v2", "roberta"):
            export_bank(bank, tmp_path / "all" / str(version))
            loaded = tf.saved_model.load(str(tmp_path / "all" / str(version)))
            served = loaded.signatures["serving_default"](text=tf.constant(texts), task=tf.constant(names))
            check(served, names, expected)
        if "deberta" not in family:
            # As files for other runtimes have it: every pool computes all rows.
            numbers = [list(bank.tasks).index(name) for name in names]
            inputs = {**bank.tokenizer(texts), "task": tf.constant(numbers)}
            found = tf.function(bank._now.numbered_logits, autograph=False)(inputs)
            check({**found, "error": []}, names, expected)


@pytest.mark.slow
def test_what_has_no_routed_form_is_refused_with_the_reason(tmp_path):
    for family, name, message in (
        ("deberta-v2", "lora", "dense layer 'query', which in a deberta-v2 encoder also reads"),
        ("deberta-v2", "ia3", "dense layer 'key', which in a deberta-v2 encoder also reads"),
        ("bert", "fusion", "fuses adapters by three matrices .*: export it by itself"),
    ):
        bank, _ = made(family, tmp_path, [name])
        is_refused(message, bank.add, name, tmp_path / name)
        assert not bank.tasks and all(table.used == 1 for table in bank.tables)
