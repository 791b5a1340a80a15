"""The PyTorch half of adapterhub_parity.py, and the maker of tests/adapterhub: run it with PyTorch, `adapters` and
PEFT.

python -m benchmarks adapterhub_torch make FOLDER       # tiny encoders, adapters on them, and what they compute
python -m benchmarks adapterhub_torch check FOLDER      # the adapters below FOLDER/exported
python -m benchmarks adapterhub_torch fixtures tests/adapterhub
"""

import argparse
import json
import pathlib
import warnings

import numpy as np

SIZES = dict(
    vocab_size=60, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=48,
    max_position_embeddings=40,
)  # fmt: skip
FAMILIES = {
    "albert": {**SIZES, "embedding_size": 16},
    "bert": SIZES,
    "deberta-v2": {
        **SIZES, "relative_attention": True, "position_buckets": 8, "pos_att_type": ["c2p", "p2c"],
        "norm_rel_ebd": "layer_norm", "share_att_key": True,
    },
    "distilbert": dict(vocab_size=60, dim=32, n_layers=3, n_heads=2, hidden_dim=48, max_position_embeddings=40),
    "electra": {**SIZES, "embedding_size": 16},
    "roberta": {**SIZES, "pad_token_id": 1, "type_vocab_size": 1},
    "xlm-roberta": {**SIZES, "pad_token_id": 1, "type_vocab_size": 1},
}  # fmt: skip
# What PEFT alone has LoRA for.
PEFT_FAMILIES = {"camembert": FAMILIES["roberta"], "mpnet": SIZES}
PRESETS = {
    **{name: (name, dict(reduction_factor=4)) for name in ("double_seq_bn", "seq_bn", "par_bn", "scaled_par_bn")},
    "norm_before": ("double_seq_bn", dict(reduction_factor=5, ln_before=True, non_linearity="gelu")),
    "norm_after": ("seq_bn", dict(reduction_factor=4, ln_after=True, leave_out=[1], non_linearity="gelu_new")),
    "lora": ("lora", dict(r=3, alpha=6, attn_matrices=["q", "k", "v"], intermediate_lora=True, output_lora=True)),
    "lora_values": ("lora", dict(r=4, alpha=5, attn_matrices=["v"], leave_out=[1], dropout=0.1)),
    "ia3": ("ia3", {}),
}
# Saved as pickles; the first because the library cannot write a LayerNorm before the projection in safetensors: its
# weights are there twice.
PICKLED = ("norm_before", "lora_values", "fusion-both")
# Adapters that are fused, by their names.
FUSIONS = {
    "fusion": {
        "first": ("seq_bn", dict(reduction_factor=4, leave_out=[1])),
        "second": ("seq_bn", dict(reduction_factor=8, non_linearity="gelu", leave_out=[1])),
    },
    "fusion-both": {
        "one": ("double_seq_bn", dict(reduction_factor=4)), "two": ("double_seq_bn", dict(reduction_factor=8)),
        "three": ("double_seq_bn", dict(reduction_factor=16)),
    },
    "fusion-parallel": {name: ("par_bn", dict(reduction_factor=4)) for name in ("left", "right")},
}  # fmt: skip
# The dense layers of a block as PEFT's suffixes.
PEFT_TARGETS = {
    "albert": ["query", "key", "value", "attention.dense", "ffn", "ffn_output"],
    "deberta-v2": ["query_proj", "key_proj", "value_proj", "intermediate.dense", "output.dense"],
    "distilbert": ["q_lin", "k_lin", "v_lin", "out_lin", "lin1", "lin2"],
    "mpnet": ["attn.q", "attn.k", "attn.v", "attn.o", "intermediate.dense", "output.dense"],
}
BERTS_TARGETS = ["query", "key", "value", "intermediate.dense", "output.dense"]
# Dense layers of the head that PEFT does not save by itself.
PEFT_HEADS = {"deberta-v2": ["pooler"], "distilbert": ["pre_classifier"]}
# Settings of PEFT's LoRA, and how the directory is written.
PEFT = {
    "peft": (dict(task_type="SEQ_CLS", r=3, lora_alpha=6, lora_dropout=0.1), dict(safe_serialization=True)),
    "peft-pattern": (
        dict(r=4, lora_alpha=6, use_rslora=True, init_lora_weights="gaussian"), dict(safe_serialization=False),
    ),
    "peft-pooler": (
        dict(task_type="SEQ_CLS", r=2, layers_to_transform=[0, 2], modules_to_save=["classifier", "pooler"]), {},
    ),
    "peft-all-linear": (dict(task_type="SEQ_CLS", r=2, target_modules="all-linear"), {}),
}  # fmt: skip
# The classifier's activation, with which a flexible head computes what the family's own does.
ACTIVATIONS = {"deberta-v2": "gelu", "distilbert": "relu", "electra": "gelu"}
# What stands on the encoder: a class of transformers, or the method and arguments that add a flexible head.
HEADS = {
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "multiple-choice": "AutoModelForMultipleChoice",
    "tagging": ("add_tagging_head", dict(num_labels=3, layers=1)),
    "flexible-questions": ("add_qa_head", dict(layers=1)),
    "two-layers": ("add_classification_head", dict(num_labels=3, layers=2)),
    "three-layers": ("add_classification_head", dict(num_labels=3, layers=3)),
    "on-pooler": ("add_classification_head", dict(num_labels=3, layers=1, use_pooler=True)),
    "two-on-pooler": ("add_classification_head", dict(num_labels=3, layers=2, use_pooler=True)),
    "first-token": ("add_classification_head", dict(num_labels=3, layers=1)),
}  # fmt: skip


def build(family, presets, seed=0):
    """A model with an adapter of random weights for each preset."""
    import adapters
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(family, num_labels=3, **{**FAMILIES, **PEFT_FAMILIES}[family])
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    _move(model, lambda name, parameter: True, 0.05)
    return model, lambda: _add(adapters, model, presets)


def _move(model, is_chosen, by=0.2):
    """Add noise to the parameters of which a function of name and parameter says so; the model computes then."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_chosen(name, parameter):
                parameter.add_(by * torch.randn_like(parameter))
    model.eval()


def _add(adapters, model, presets):
    adapters.init(model)
    for preset in presets:
        name, changes = PRESETS[preset]
        model.add_adapter(preset, config=adapters.AdapterConfig.load(name, **changes))
    _move(model, lambda name, _: any(f".{preset}." in name for preset in presets))


def inputs_of(model, seed=0):
    random = np.random.default_rng(seed)
    ids = random.integers(5, 60, (3, 9))
    mask = np.ones((3, 9), np.int64)
    pad = model.config.pad_token_id or 0
    ids[0, 5:], mask[0, 5:] = pad, 0
    return {"input_ids": ids, "attention_mask": mask}


def of_choices(inputs):
    """Each row beside the one before it, as two choices: `(rows, 2, length)`."""
    return {name: np.stack([value, np.roll(value, 1, axis=0)], axis=1) for name, value in inputs.items()}


def computed(model, inputs):
    import torch

    if type(model).__name__.endswith("ForMultipleChoice"):
        inputs = of_choices(inputs)
    with torch.no_grad():
        outputs = model(**{name: torch.tensor(value) for name, value in inputs.items()}, output_hidden_states=True)
    return compared(outputs, inputs["attention_mask"])


def compared(outputs, mask):
    """Last hidden states and logits as NumPy arrays, of tensors of either library, without what stands at padding:
    nothing reads it, and DeBERTa's two implementations leave different things there."""
    states, logits = np.asarray(outputs["hidden_states"][-1]), outputs.get("logits")
    if logits is None:
        logits = np.stack([outputs["start_logits"], outputs["end_logits"]], axis=-1)
    logits, real = np.asarray(logits), mask.reshape(-1, mask.shape[-1]) == 1
    return {"hidden_states": states[real], "logits": logits[real] if logits.ndim == 3 else logits}


def make(folder, families=FAMILIES, presets=PRESETS):
    for family in families:
        model, add = build(family, presets)
        write_encoder(folder / family, model)
        add()
        for preset in presets:
            directory = folder / family / preset
            model.set_active_adapters(preset)
            model.save_adapter(str(directory), preset, with_head=True, use_safetensors=preset not in PICKLED)
            np.savez(directory / "expected.npz", **computed(model, inputs_of(model)))


def write_encoder(folder, model):
    model.save_pretrained(folder / "model", safe_serialization=True)
    np.savez(folder / "inputs.npz", **{name: value.astype(np.int32) for name, value in inputs_of(model).items()})


def make_heads(folder, families=FAMILIES, heads=HEADS):
    """An adapter with each head, on the encoders that `make` wrote."""
    import adapters
    import torch
    import transformers

    for family in families:
        encoder = folder / family / "model"
        for head in heads:
            torch.manual_seed(0)
            if isinstance(HEADS[head], str):
                labels = 2 if head == "question-answering" else 3
                named = {"num_labels": labels, "ignore_mismatched_sizes": True}
                model = getattr(transformers, HEADS[head]).from_pretrained(encoder, **named)
                adapters.init(model)
            else:
                add, arguments = HEADS[head]
                model = adapters.AutoAdapterModel.from_pretrained(encoder)
                getattr(model, add)(head, activation_function=ACTIVATIONS.get(family, "tanh"), **arguments)
            model.add_adapter(head, config=adapters.AdapterConfig.load("seq_bn", reduction_factor=16))
            encoders = model.base_model_prefix
            _move(model, lambda name, _: f".{head}." in name or not name.startswith(encoders))  # noqa: B023
            model.set_active_adapters(head)
            try:
                expected = computed(model, inputs_of(model))
            except KeyError as error:
                # A head on the pooler of an encoder that has none.
                print(f"{family} computes nothing with the head {head}: {error!r}")
                continue
            model.save_adapter(str(folder / family / head), head, with_head=True, use_safetensors=True)
            np.savez(folder / family / head / "expected.npz", **expected)


def make_fusions(folder, families=FAMILIES, fusions=FUSIONS):
    """Adapters and a fusion of them, on the encoders that `make` wrote."""
    import adapters
    import torch
    import transformers

    for family in families:
        for fusion in fusions:
            torch.manual_seed(0)
            model = transformers.AutoModelForSequenceClassification.from_pretrained(folder / family / "model")
            model.config._name_or_path = ""
            adapters.init(model)
            for name, (preset, changes) in FUSIONS[fusion].items():
                model.add_adapter(name, config=adapters.AdapterConfig.load(preset, **changes))
            fused = adapters.composition.Fuse(*FUSIONS[fusion])
            model.add_adapter_fusion(fused)
            _move(model, lambda name, _: ".adapters." in name or ".adapter_fusion_layer." in name)
            model.set_active_adapters(fused)
            directory, tensors = folder / family / fusion, fusion not in PICKLED
            model.save_all_adapters(str(directory), with_head=False, use_safetensors=tensors)
            model.save_adapter_fusion(str(directory), fused, use_safetensors=tensors)
            model.save_head(str(directory), use_safetensors=tensors)
            np.savez(directory / "expected.npz", **computed(model, inputs_of(model)))


def make_peft(folder, families=(*FAMILIES, *PEFT_FAMILIES), variants=PEFT):
    """PEFT's LoRA, on the encoders that `make` wrote, and on those that `adapters` has not."""
    import peft
    import torch
    import transformers

    for family in families:
        encoder = folder / family / "model"
        if family in PEFT_FAMILIES:
            write_encoder(folder / family, build(family, ())[0])
        for variant in variants:
            torch.manual_seed(0)
            settings, saving = PEFT[variant]
            if variant == "peft-pooler" and family != "bert":
                continue
            targets = PEFT_TARGETS.get(family, BERTS_TARGETS)
            if variant == "peft-pattern":
                settings = {**settings, "target_modules": rf".*\.\d+\..*({targets[0]}|{targets[2]})"}
            elif family in PEFT_HEADS:
                settings = {**settings, "modules_to_save": PEFT_HEADS[family]}
            model = transformers.AutoModelForSequenceClassification.from_pretrained(encoder)
            model.config._name_or_path = model.name_or_path = ""
            model = peft.get_peft_model(model, peft.LoraConfig(**{"target_modules": targets, **settings}))
            _move(model, lambda _, parameter: parameter.requires_grad)
            directory = folder / family / variant
            model.save_pretrained(str(directory), **saving)
            (directory / "README.md").unlink(missing_ok=True)
            np.savez(directory / "expected.npz", **computed(model, inputs_of(model)))


def check(folder):
    """Print the greatest differences of each exported adapter as JSON: with the class of its head, and where it becomes
    a flexible one."""
    import adapters
    import transformers

    differences = {}
    for directory in sorted((folder / "exported").glob("*/*")):
        family, name = directory.parent.name, directory.name
        described = json.loads((directory / "head_config.json").read_text())
        encoder = folder / family / "model"
        models = {}
        if not described["config"]:
            named = {"num_labels": described["num_labels"], "ignore_mismatched_sizes": True}
            models[""] = getattr(transformers, described["model_class"]).from_pretrained(encoder, **named)
        if not described["model_class"].endswith("ForMultipleChoice"):
            models["flexible " if models else ""] = adapters.AutoAdapterModel.from_pretrained(encoder)
        with np.load(folder / family / name / "expected.npz") as expected:
            found = differences[f"{family}/{name}"] = {}
            for which, model in models.items():
                for key, value in _loaded(model, directory).items():
                    found[which + key] = float(np.abs(value - expected[key]).max())
    print(json.dumps(differences))


def _loaded(model, directory):
    """What a model computes with the adapter, or the fused ones, and the head of a directory."""
    import adapters

    adapters.init(model)
    if (directory / "adapter_fusion_config.json").exists():
        names = json.loads((directory / "adapter_fusion_config.json").read_text())["adapter_names"]
        for name in names:
            model.load_adapter(str(directory / name), with_head=False, use_safetensors=True)
        model.load_adapter_fusion(str(directory), use_safetensors=True)
        model.set_active_adapters(adapters.composition.Fuse(*names))
    else:
        name = model.load_adapter(str(directory), set_active=True, with_head=True, use_safetensors=True)
        model.set_active_adapters(name)
    model.eval()
    return computed(model, inputs_of(model))


def fixtures(folder):
    """What the tests read: one family in both formats, a flexible head, names and formats of first versions."""
    import adapters
    import torch

    loras = ("lora", "lora_values")
    make(folder, ["bert"], [preset for preset in PRESETS if preset not in ("norm_after", "ia3", *loras)])
    make(folder, ["bert"], loras)
    make_heads(folder, ["bert"], [head for head in HEADS if head not in ("first-token", "two-layers")])
    make_fusions(folder, ["bert"], ["fusion", "fusion-both"])
    make_peft(folder, ["bert"])
    bert = folder / "bert"
    # The first versions' file: no version, names of their own, gelu for its approximation, PyTorch's format before 1.6.
    old = folder / "bert-v1"
    model, add = build("bert", ["double_seq_bn"])
    PRESETS["v1"] = ("double_seq_bn", dict(reduction_factor=4, non_linearity="gelu_new"))
    adapters.init(model)
    _add(adapters, model, ["v1"])
    model.set_active_adapters("v1")
    model.save_adapter(str(old), "v1", with_head=False)
    np.savez(old / "expected.npz", **computed(model, inputs_of(model)))
    state = torch.load(old / "pytorch_adapter.bin")
    names = {"attention.output.adapters.": "attention.output.attention_text_task_adapters."}
    names[".output.adapters."] = ".output.layer_text_task_adapters."
    for old_name, name in names.items():
        state = {key.replace(old_name, name): value for key, value in state.items()}
    torch.save(state, old / "pytorch_adapter.bin", _use_new_zipfile_serialization=False)
    settings = json.loads((old / "adapter_config.json").read_text())
    settings["config"].update(non_linearity="gelu", inv_adapter="nice")
    del settings["version"]
    settings["type"] = "text_task"
    (old / "adapter_config.json").write_text(json.dumps(settings, indent=2))
    flexible = folder / "bert-flexible"
    model = adapters.BertAdapterModel.from_pretrained(bert / "model")
    model.add_adapter("flexible", config=adapters.AdapterConfig.load("seq_bn", reduction_factor=4))
    model.add_classification_head("flexible", num_labels=3)
    _move(model, lambda name, _: "flexible" in name)
    model.set_active_adapters("flexible")
    model.save_adapter(str(flexible), "flexible", with_head=True, use_safetensors=True)
    np.savez(flexible / "expected.npz", **computed(model, inputs_of(model)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["make", "check", "fixtures"])
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    of_make = (make, make_heads, make_fusions, make_peft)
    for function in {"make": of_make, "check": [check], "fixtures": [fixtures]}[options.do]:
        function(options.folder)
