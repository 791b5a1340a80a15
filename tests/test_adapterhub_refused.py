"""What a directory of `adapters` or PEFT has that has no like here is named, and the model stays as it was."""

import json
import shutil

import numpy as np
import pytest

from tests.conftest import is_refused, randomize
from tests.test_adapterhub import BERT, FULL_NAMES, HEADS, PREFIX, ROW, changed, described, keys, new_model
from tf_adapters import InputError, add_adapters, set_active, set_trainable
from tf_adapters.adapterhub import import_adapter
from tf_adapters.adapterhub.description import read_head_description
from tf_adapters.models.state import state_of


@pytest.fixture(scope="module")
def model():
    return new_model()


def refuses(model, directory, message, **options):
    """A directory is refused with these words, and the model has no adapter and no pooler of a head then."""
    is_refused(message, import_adapter, model, directory, **options)
    assert not state_of(model).adapters and not state_of(model).newly_initialized


def config(**values):
    return {"settings": lambda content: {**content, "config": {**content["config"], **values}}}


def put(key, *shape, value=0.0):
    return {"arrays": lambda found: {**found, key: np.full(shape, value, np.float32)}}


def drop(key):
    return {"arrays": lambda found: {name: value for name, value in found.items() if name != key}}


def moved(before, after):
    return {"arrays": lambda found: {key.replace(before, after): value for key, value in found.items()}}


def of_block(number):
    return f"bert.encoder.layer.{number}.output.adapters.double_seq_bn."


LORA = "bert.encoder.layer.1.intermediate.dense.loras.lora."
FUSED = "bert.encoder.layer.2.output.adapter_fusion_layer.first,second."
ADAPTERS = [
    (config(scaling="channel"), "scaling='channel'"),
    (config(ln_before=True, ln_after=True), "second LayerNorm"),
    (config(non_linearity="leakyrelu"), "non_linearity='leakyrelu'"),
    (config(inv_adapter="nice"), "inv_adapter='nice'"),
    (config(architecture="reft"), "architecture 'reft': bottleneck, lora, fusion, peft can"),
    (keys(hidden_size=768), "hidden_size=768, and this model has hidden_size=32"),
    (keys(name="another"), "for which this model has no place"),
    (put(of_block(1) + "adapter_up.weight", 32, 7), r"up.kernel of block 1 \(ffn\) is \(7, 32\), and must be \(8, 32"),
    (drop(of_block(0) + "adapter_up.bias"), r"up.bias of block 0 \(ffn\) is missing"),
]
LORAS = [
    (config(composition_mode="scale"), r"composition_mode='scale'.*\(IA\)\^3 .*before its activation"),
    (config(use_dora=True), "use_dora=True cannot be imported: DoRA"),
    (config(selfattn_lora=False, intermediate_lora=False, output_lora=False), "there is no LoRA"),
    (config(output_lora=False), r"block \d \(output\), which adapter_config.json leaves out"),
    (drop(LORA + "lora_B"), r"b of block 1 \(intermediate\) is missing, and must be \(3, 48\)"),
    (put(LORA.replace("1", "7") + "lora_A", 3, 32), "'bert.encoder.layer.7.*for which this model has no place"),
]
FUSIONS = [
    (config(value=False), r"value=False cannot be imported: FusionLayer has only True \('dynamic'\)"),
    (keys(adapter_names=["../first", "second"]), "adapter_names=.*must be names of letters, digits"),
    (keys(adapter_names=["first", "third"]), "'third', which is neither in it nor beside it"),
    (put(FUSED + "key.bias", 32, value=np.inf), "key.bias holds NaN or infinity"),
]
PEFTS = [
    (keys(peft_type="IA3"), "peft_type='IA3': of PEFT's directories those of 'LORA'"),
    (keys(bias="lora_only"), "bias='lora_only'"),
    (keys(rank_pattern={"query": 4}), "rank_pattern={'query': 4}"),
    (keys(init_lora_weights="pissa"), "init_lora_weights='pissa' cannot be imported: it changes the encoder's own"),
    (keys(r=10**400), "rank=100"),
    (keys(target_modules=["query"]), r"has LoRA in block \d \(\w+\), which adapter_config.json leaves out"),
    (keys(target_modules=["q_lin"]), "names no dense layer such as 'bert.encoder.layer.0.attention.self.query'"),
    (keys(target_modules=FULL_NAMES[:-1]), "LoraConfig has the same layers in every block"),
    (keys(target_modules="(query"), "no regular expression that is read here .missing "),
    (keys(exclude_modules=["attention.output.dense"]), r"has LoRA in block \d \(attention_output\), which"),
    (keys(layers_to_transform=0, layers_pattern="layer"), "has LoRA in block [12]"),
    (keys(task_type="TOKEN_CLS"), "a head for token-classification, and this model is a TFBertForSequence"),
    (moved(".bert.", ".roberta."), r"holds '(roberta|classifier)\..*"),
    (moved("layer.2", "layer.5"), "layer.5.*for which this model has no place: a bert's names begin as 'bert.encoder"),
    (drop(PREFIX + "classifier.bias"), "lacks 'classifier.bias', which this model's head has"),
    (moved("classifier", "score"), "holds 'score.bias', for which this model's head has no weight"),
    (put(PREFIX + "classifier.weight", 2, 32), r"classifier.weight is \(32, 2\), .*load the encoder with as many"),
    *(
        (put(PREFIX + name, 2, 2), f"holds '{name}', which is of the encoder itself")
        for name in (
            "bert.embeddings.word_embeddings.weight",
            "bert.encoder.layer.1.attention.output.LayerNorm.bias",
            "bert.of_the_future.weight",
        )
    ),
]
CASES = [
    (source, *case)
    for source, cases in {"double_seq_bn": ADAPTERS, "lora": LORAS, "fusion": FUSIONS, "peft": PEFTS}.items()
    for case in cases
]


@pytest.mark.parametrize(
    "source, change, message",
    [*CASES, ("peft-pooler", drop(PREFIX + "bert.pooler.dense.bias"), "lacks 'bert.pooler.dense.bias'")],
)
def test_what_has_no_like_here_or_does_not_fit_is_named_and_the_model_stays(model, source, change, message, tmp_path):
    refuses(model, changed(tmp_path, source, **change), message)


@pytest.mark.parametrize(
    "patterns",
    [{"target_modules": r"(\w+\.?)+!"}, {"target_modules": ["query"], "exclude_modules": r"((a?){30}){30}.*!"}],
)
def test_a_pattern_that_would_backtrack_for_ever_takes_no_time(model, patterns, tmp_path):
    refuses(model, changed(tmp_path, "peft", **keys(**patterns)), "names no dense layer|leaves out")


def test_a_weight_of_the_encoder_in_pefts_file_is_refused_without_the_head_too(model, tmp_path):
    directory = changed(tmp_path, "peft", **put(PREFIX + "bert.embeddings.word_embeddings.weight", 2, 2))
    refuses(model, directory, "which is of the encoder itself", head=False)


def test_what_no_directory_can_have_is_refused(model, tmp_path):
    refuses(model, tmp_path, "has no adapter_config.json")
    refuses(model, BERT / "peft-all-linear", "'bert.pooler.dense.lora_A.weight', for which this model has no place")
    # The name is known to be wrong once the head is read, and its pooler.
    refuses(model, BERT / "peft-pooler", "must consist of letters", name="a b")
    lora, second = BERT / "lora", BERT / "fusion" / "second"
    adapters = {"first": lora, "second": second}
    refuses(model, BERT / "fusion", "lora holds lora: bottleneck adapters are fused", adapters=adapters)
    refuses(model, lora, "are what a fusion is of", adapters={"first": lora})
    mixed = shutil.copytree(BERT / "fusion", tmp_path / "mixed")
    shutil.copy(lora / "adapter_config.json", mixed)
    refuses(model, mixed, "holds an adapter and a fusion: put each into a directory of its own")


def test_adapters_that_are_fused_otherwise_there_are_refused(model, tmp_path):
    directory = shutil.copytree(BERT / "fusion", tmp_path / "fusion")
    for name in ("first", "second"):
        content = described(directory / name)
        content["config"]["is_parallel"] = True
        (directory / name / "adapter_config.json").write_text(json.dumps(content))
    refuses(model, directory, "'first' has insertion='parallel'")


def test_a_second_adapter_that_does_not_fit_leaves_the_first_as_it_is():
    model = new_model()
    import_adapter(model, BERT / "peft", name="lora")
    before = model(ROW).logits
    is_refused("already has an adapter of that name", import_adapter, model, BERT / "lora")
    is_refused("fits a model without adapters alone", import_adapter, model, BERT / "peft-pooler", name="second")
    assert list(state_of(model).adapters) == ["lora"]
    np.testing.assert_array_equal(model(ROW).logits, before)
    # What is imported stands on the encoder's own head, whoever brought the one that acts.
    add_adapters(model, num_labels=7, name="own", seed=0)
    own = randomize(model)(ROW).logits
    import_adapter(model, BERT / "double_seq_bn", name="second")
    import_adapter(alone := new_model(), BERT / "double_seq_bn")
    np.testing.assert_allclose(model(ROW).logits, alone(ROW).logits, atol=1e-6)
    set_active(model, "own")
    np.testing.assert_array_equal(model(ROW).logits, own)
    set_trainable(model := new_model(), "full")
    model.trainable_variables[0].assign_add(model.trainable_variables[0] * 0.1)
    is_refused("the weights of this model's were changed since", import_adapter, model, BERT / "lora")


# Heads


@pytest.mark.parametrize(
    "name, change, message",
    [
        ("tagging", config(layers=2), "'tagging' of 2 layer.s. with tanh, and that of a .* has 1 layer.s.: pass"),
        ("on-pooler", config(use_pooler=False), "of 1 .* has 2 .* with tanh or 1 layer.s. on the pooler"),
        ("two-on-pooler", config(activation_function="relu"), "of 2 layer.s. with relu on the pooler"),
        ("tagging", config(head_type="dependency_parsing"), "head 'dependency_parsing': classification, .* are read"),
        ("question-answering", keys(model_class="BertForMaskedLM"), "'BertForMaskedLM': .*ForTokenClassification"),
        ("tagging", keys(name="another"), "holds 'heads.tagging.1.bias', for which this model's head has no weight"),
    ],
)
def test_heads_that_compute_something_else_are_refused(name, change, message, tmp_path):
    directory = shutil.copytree(BERT / name, tmp_path / "changed")
    content = change["settings"](described(directory, "head_config"))
    (directory / "head_config.json").write_text(json.dumps(content))
    refuses(new_model(**{"num_labels": 2, **HEADS[name][0]}), directory, message)


def test_heads_of_another_size_or_kind_and_damaged_ones_are_refused(model, tmp_path):
    # The weights of a head for words have the same names and shapes.
    words = "for token-classification, and this model is a TFBertForSequenceClassification: load the encoder"
    refuses(model, BERT / "token-classification", words)
    directory = shutil.copytree(BERT / "seq_bn", tmp_path / "copied")
    (directory / "head_config.json").write_text("{")
    refuses(model, directory, "head_config.json is not JSON.*pass head=False")
    two = new_model(num_labels=2)
    refuses(two, BERT / "seq_bn", "load the encoder with as many labels, or pass head=False")
    import_adapter(two, BERT / "seq_bn", head=False, name="mine")
    assert list(state_of(two).adapters) == ["mine"]


def test_labels_are_in_the_order_of_their_numbers_and_missing_ones_are_named(tmp_path):
    head = described(BERT / "tagging", "head_config")
    wrong = [(label2id, None) for label2id in (None, {"a": "first"}, {"a": 1, "b": 1})]
    for label2id, expected in (({"b": 1, "c": "2", "a": 0}, ["a", "b", "c"]), *wrong):
        head["config"]["label2id"] = label2id
        (tmp_path / "head_config.json").write_text(json.dumps(head))
        found = read_head_description(tmp_path)
        if expected is not None:
            assert found.labels == expected
            continue
        with pytest.raises(InputError, match="does not name the labels of the head .*pass head=False"):
            found.labels
