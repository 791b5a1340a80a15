"""What a directory of `adapters` or PEFT has that has no like here is named, and the model stays as it was."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.test_adapterhub import FILES
from tf_adapters import InputError, load_backbone
from tf_adapters.adapterhub import import_adapter
from tf_adapters.models.state import state_of

BERT = FILES / "bert"
DENSES = ("attention.self.query", "attention.self.key", "attention.self.value", "intermediate.dense", "output.dense")
FULL_NAMES = [
    f"bert.encoder.layer.{block}.{dense}" for block in range(3) for dense in (*DENSES, "attention.output.dense")
]


@pytest.fixture(scope="module")
def model():
    return load_backbone(BERT / "model", num_labels=3)


def as_it_was(model):
    return not state_of(model).adapters and not state_of(model).newly_initialized


def changed(tmp_path, source, settings=None, arrays=None):
    """A copy of a directory with other settings or weights."""
    directory = shutil.copytree(BERT / source, tmp_path / "changed")
    kind = source.partition("-")[0]
    if settings is not None:
        path = directory / ("adapter_fusion_config.json" if kind == "fusion" else "adapter_config.json")
        content = json.loads(path.read_text())
        settings(content)
        path.write_text(json.dumps(content))
    if arrays is not None:
        names = {"fusion": "model_adapter_fusion", "peft": "adapter_model"}
        path = directory / f"{names.get(kind, 'adapter')}.safetensors"
        found = load_file(path)
        arrays(found)
        save_file(found, path)
    return directory


def keys(**values):
    return {"settings": lambda content: content.update(values)}


def config(**values):
    return {"settings": lambda content: content["config"].update(values)}


def put(key, *shape, value=0.0):
    return {"arrays": lambda found: found.update({key: np.full(shape, value, np.float32)})}


def drop(key):
    return {"arrays": lambda found: found.pop(key)}


def moved(before, after):
    def change(found):
        for key in [key for key in found if before in key]:
            found[key.replace(before, after)] = found.pop(key)

    return {"arrays": change}


def of_block(number):
    return f"bert.encoder.layer.{number}.output.adapters.double_seq_bn."


LORA = "bert.encoder.layer.1.intermediate.dense.loras.lora."
FUSED = "bert.encoder.layer.2.output.adapter_fusion_layer.first,second."
PEFT = "base_model.model."
OF_PEFT = PEFT + "bert.encoder.layer.1.output.dense.lora_A.weight"
ADAPTERS = [
    (config(use_gating=True), "use_gating=True"),
    (config(phm_layer=True), "phm_layer=True"),
    (config(residual_before_ln=False), "residual_before_ln=False"),
    (config(scaling="channel"), "scaling='channel'"),
    (config(ln_before=True, ln_after=True), "second LayerNorm"),
    (config(non_linearity="leakyrelu"), "non_linearity='leakyrelu'"),
    (config(inv_adapter="nice"), "inv_adapter='nice'"),
    (config(architecture="reft"), "architecture 'reft': bottleneck, lora, fusion, peft can"),
    (config(leave_out=[0]), "which adapter_config.json leaves out"),
    (keys(hidden_size=768), "hidden_size=768, and this model has hidden_size=32"),
    (keys(model_type="roberta"), "model_type='roberta', and this model has model_type='bert'"),
    (keys(peft_type="IA3"), "is PEFT's with peft_type='IA3'"),
    (keys(name="another"), "for which this model has no place"),
    (put(of_block(1) + "adapter_up.weight", 32, 7), r"up.kernel of block 1 \(ffn\) is \(7, 32\), and must be \(8, 32"),
    (drop(of_block(0) + "adapter_up.bias"), r"up.bias of block 0 \(ffn\) is missing"),
    (put(of_block(9) + "adapter_up.bias", 32), "for which this model has no place"),
    (put(of_block(0) + "gate.weight", 32), "'gate.weight' in an adapter"),
]
LORAS = [
    (config(composition_mode="scale"), r"composition_mode='scale'.*\(IA\)\^3 .*before its activation"),
    (config(use_gating=True), "use_gating=True"),
    (config(use_dora=True), "use_dora=True cannot be imported: DoRA"),
    (config(vera_d=0.1), "vera_d=0.1 cannot be imported: VeRA"),
    (config(architecture="mtl_lora"), "architecture 'mtl_lora': .*lora"),
    (config(selfattn_lora=False, intermediate_lora=False, output_lora=False), "there is no LoRA"),
    (config(r=0), "rank=0"),
    (config(r=2), r"a of block 0 \(query\) is \(32, 3\), and must be \(32, 2\)"),
    (config(output_lora=False), r"block \d \(output\), which adapter_config.json leaves out"),
    (config(leave_out=[2]), r"block 2 \(\w+\), which adapter_config.json leaves out"),
    (keys(name="another"), "a bert's names begin as 'bert.encoder.layer.0.attention.self.query.loras.another.' does"),
    (drop(LORA + "lora_B"), r"b of block 1 \(intermediate\) is missing, and must be \(3, 48\)"),
    (put(LORA + "lora_A", 3, 8), r"a of block 1 \(intermediate\) is \(8, 3\), and must be \(32, 3\)"),
    (put(LORA + "m.weight", 48, 1), r"'m.weight' of block 1 \(intermediate\)"),
    (put(LORA + "lora_A", 3, 32, value=np.nan), "lora.lora_A holds NaN or infinity"),
    (put(LORA.replace("1", "7") + "lora_A", 3, 32), "'bert.encoder.layer.7.*for which this model has no place"),
]
FUSIONS = [
    (config(value=False), r"value=False cannot be imported: FusionLayer has only True \('dynamic'\)"),
    (config(temperature=True), "temperature=True"),
    (config(residual_before=True), "residual_before=True"),
    (config(query_before_ln=True), "query_before_ln=True"),
    (keys(adapter_names=["../first", "second"]), "adapter_names=.*must be names of letters, digits"),
    (keys(adapter_names=["first", "third"]), "'third', which is neither in it nor beside it"),
    (keys(adapter_names=["first"]), "at least two adapters"),
    (keys(hidden_size=64), "hidden_size=64, and this model has hidden_size=32"),
    (drop(FUSED + "value.weight"), r"value.kernel of block 2 \(ffn\) is missing, and must be \(32, 32\)"),
    (put(FUSED + "key.bias", 32, value=np.inf), "key.bias holds NaN or infinity"),
    (put(FUSED + "dense.weight", 1, 32), "'dense.weight' in a fusion"),
]
PEFTS = [
    (keys(peft_type="IA3"), "peft_type='IA3': of PEFT's directories those of 'LORA'"),
    (keys(bias="lora_only"), "bias='lora_only'"),
    (keys(rank_pattern={"query": 4}), "rank_pattern={'query': 4}"),
    (keys(of_the_future=True), "of_the_future=True cannot be imported"),
    (keys(init_lora_weights="pissa"), "init_lora_weights='pissa' cannot be imported: it changes the encoder's own"),
    (keys(init_lora_weights=[[]]), "init_lora_weights="),
    (keys(r=2), r"a of block 0 \(query\) is \(32, 3\), and must be \(32, 2\)"),
    (keys(r=10**400), "rank=100"),
    (keys(lora_alpha=0), "alpha=0"),
    (keys(lora_alpha=1e39), "alpha=1e.39 must be a number above 0, of those that float32 holds"),
    (keys(lora_alpha=10**400), "alpha=1000"),
    (keys(lora_alpha="x"), "alpha='x'"),
    (keys(target_modules=["query"]), r"has LoRA in block \d \(\w+\), which adapter_config.json leaves out"),
    (keys(target_modules=["q_lin"]), "names no dense layer such as 'bert.encoder.layer.0.attention.self.query'"),
    (keys(target_modules=None), "target_modules=None names no dense layer"),
    (keys(target_modules=FULL_NAMES[:-1]), "LoraConfig has the same layers in every block"),
    (keys(target_modules=3), "target_modules=3 cannot be imported"),
    (keys(target_modules=[["query"]]), "it must be a string or a list of them"),
    (keys(target_modules="(query"), "no regular expression that is read here .missing "),
    (keys(target_modules=r"(?!x).*query"), "no regular expression that is read here .invalid perl operator"),
    (keys(target_modules="a" * 1001), "no regular expression that is read here .it has more than 1000 characters"),
    (keys(exclude_modules=["attention.output.dense"]), r"has LoRA in block \d \(attention_output\), which"),
    (keys(exclude_modules=r".*\.2\..*"), "has LoRA in block 2"),
    (keys(layers_to_transform="1"), "must be a number"),
    (keys(layers_to_transform=[0, 1]), "has LoRA in block 2"),
    (keys(layers_to_transform=0, layers_pattern="layer"), "has LoRA in block [12]"),
    (keys(layers_to_transform=0, layers_pattern="blocks"), "names no dense layer"),
    (keys(target_modules=["query"], layers_to_transform=[1], layers_pattern="(layer"), "no regular expression"),
    (keys(task_type="TOKEN_CLS"), "a head for token-classification, and this model is a TFBertForSequence"),
    (
        keys(task_type=None, auto_mapping={"base_model_class": "BertForQuestionAnswering"}),
        "a head for question-answering",
    ),
    (moved(".bert.", ".roberta."), r"holds '(roberta|classifier)\..*"),
    (moved("layer.2", "layer.5"), "layer.5.*for which this model has no place: a bert's names begin as 'bert.encoder"),
    (drop(OF_PEFT), r"a of block 1 \(output\) is missing, and must be \(48, 3\)"),
    (moved("lora_B.weight", "lora_B.bias"), "'lora_B.bias' of block 0"),
    (drop(PEFT + "classifier.bias"), "lacks 'classifier.bias', which this model's head has"),
    (moved("classifier", "score"), "holds 'score.bias', for which this model's head has no weight"),
    (put(PEFT + "classifier.weight", 2, 32), r"classifier.weight is \(32, 2\), .*load the encoder with as many"),
    *(
        (put(PEFT + name, 2, 2), f"holds '{name}', which is of the encoder itself")
        for name in (
            "bert.embeddings.word_embeddings.weight",
            "embeddings.word_embeddings.weight",
            "bert.encoder.layer.1.attention.output.LayerNorm.bias",
            "bert.of_the_future.weight",
            "bert.embeddings.word_embeddings.token_adapter.trainable_tokens_delta",
        )
    ),
]


@pytest.mark.parametrize(
    "source, change, message",
    [
        (source, *case)
        for source, cases in {"double_seq_bn": ADAPTERS, "lora": LORAS, "fusion": FUSIONS, "peft": PEFTS}.items()
        for case in cases
    ]
    + [("peft-pooler", drop(PEFT + "bert.pooler.dense.bias"), "lacks 'bert.pooler.dense.bias'")],
)
def test_what_has_no_like_here_or_does_not_fit_is_named_and_the_model_stays(model, source, change, message, tmp_path):
    directory = changed(tmp_path, source, **change)
    with pytest.raises(InputError, match=message):
        import_adapter(model, directory)
    assert as_it_was(model)


def test_a_weight_of_the_encoder_in_pefts_file_is_refused_without_the_head_too(model, tmp_path):
    directory = changed(tmp_path, "peft", **put(PEFT + "bert.embeddings.word_embeddings.weight", 2, 2))
    with pytest.raises(InputError, match="which is of the encoder itself"):
        import_adapter(model, directory, head=False)
    assert as_it_was(model)
