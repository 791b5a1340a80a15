"""The PyTorch half of adapterhub_parity.py, and the maker of tests/adapterhub: run it with PyTorch and `adapters`.

    python benchmarks/adapterhub_torch.py make FOLDER       # tiny encoders, adapters on them, and what they compute
    python benchmarks/adapterhub_torch.py check FOLDER      # the adapters below FOLDER/exported, against what they ought to compute
    python benchmarks/adapterhub_torch.py fixtures tests/adapterhub
"""

import argparse
import json
import pathlib
import warnings

import numpy as np

SIZES = dict(vocab_size=60, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=48, max_position_embeddings=40)
FAMILIES = {
    "albert": {**SIZES, "embedding_size": 16},
    "bert": SIZES,
    "deberta-v2": {**SIZES, "relative_attention": True, "position_buckets": 8, "pos_att_type": ["c2p", "p2c"], "norm_rel_ebd": "layer_norm", "share_att_key": True},
    "distilbert": {"vocab_size": 60, "dim": 32, "n_layers": 3, "n_heads": 2, "hidden_dim": 48, "max_position_embeddings": 40},
    "electra": {**SIZES, "embedding_size": 16},
    "roberta": {**SIZES, "pad_token_id": 1, "type_vocab_size": 1},
    "xlm-roberta": {**SIZES, "pad_token_id": 1, "type_vocab_size": 1},
}  # fmt: skip
PRESETS = {
    "double_seq_bn": ("double_seq_bn", dict(reduction_factor=4)),
    "seq_bn": ("seq_bn", dict(reduction_factor=4)),
    "par_bn": ("par_bn", dict(reduction_factor=4)),
    "scaled_par_bn": ("scaled_par_bn", dict(reduction_factor=4)),
    "norm_before": ("double_seq_bn", dict(reduction_factor=5, ln_before=True, non_linearity="gelu")),
    "norm_after": ("seq_bn", dict(reduction_factor=4, ln_after=True, leave_out=[1], non_linearity="gelu_new")),
}


def build(family, presets, seed=0):
    """A model with an adapter of random weights for each preset."""
    import adapters
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(family, num_labels=3, **FAMILIES[family])
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.eval()
    return model, lambda: _add(adapters, torch, model, presets)


def _add(adapters, torch, model, presets):
    adapters.init(model)
    for preset in presets:
        name, changes = PRESETS[preset]
        model.add_adapter(preset, config=adapters.AdapterConfig.load(name, **changes))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(f".{preset}." in name for preset in presets):
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.eval()


def inputs_of(model, seed=0):
    import torch

    random = np.random.default_rng(seed)
    ids = random.integers(5, 60, (3, 9))
    mask = np.ones((3, 9), np.int64)
    pad = model.config.pad_token_id or 0
    ids[0, 5:], mask[0, 5:] = pad, 0
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


def computed(model, inputs):
    import torch

    with torch.no_grad():
        outputs = model(**inputs, output_hidden_states=True)
    return {"hidden_states": outputs.hidden_states[-1][inputs["attention_mask"] == 1].numpy(), "logits": outputs.logits.numpy()}


def make(folder, families=FAMILIES, presets=PRESETS, safetensors=True):
    for family in families:
        model, add = build(family, presets)
        model.save_pretrained(folder / family / "model", safe_serialization=True)
        add()
        inputs = inputs_of(model)
        np.savez(folder / family / "inputs.npz", **{name: value.numpy().astype(np.int32) for name, value in inputs.items()})
        for preset in presets:
            model.set_active_adapters(preset)
            # The library cannot write a LayerNorm before the projection in safetensors: its weights are there twice.
            tensors = safetensors and preset != "norm_before"
            model.save_adapter(str(folder / family / preset), preset, with_head=True, use_safetensors=tensors)
            np.savez(folder / family / preset / "expected.npz", **computed(model, inputs))


def check(folder):
    """Print the greatest difference of each exported adapter as JSON."""
    import adapters
    import transformers

    differences = {}
    for directory in sorted((folder / "exported").glob("*/*")):
        family, preset = directory.parent.name, directory.name
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder / family / "model")
        adapters.init(model)
        name = model.load_adapter(str(directory), set_active=True, with_head=True, use_safetensors=True)
        model.set_active_adapters(name)
        model.eval()
        found = computed(model, inputs_of(model))
        with np.load(folder / family / preset / "expected.npz") as expected:
            differences[f"{family}/{preset}"] = {key: float(np.abs(found[key] - expected[key]).max()) for key in found}
    print(json.dumps(differences))


def fixtures(folder):
    """What the tests read: one family in both formats, a flexible head, names and formats of first versions."""
    import adapters
    import torch

    make(folder, families=["bert"], presets=[preset for preset in PRESETS if preset != "norm_after"])
    bert = folder / "bert"
    # The first versions' file: no version, names of their own, gelu for its approximation, PyTorch's format before 1.6.
    old = folder / "bert-v1"
    model, add = build("bert", ["double_seq_bn"])
    PRESETS["v1"] = ("double_seq_bn", dict(reduction_factor=4, non_linearity="gelu_new"))
    adapters.init(model)
    _add(adapters, torch, model, ["v1"])
    model.set_active_adapters("v1")
    model.save_adapter(str(old), "v1", with_head=False)
    np.savez(old / "expected.npz", **computed(model, inputs_of(model)))
    state = torch.load(old / "pytorch_adapter.bin")
    renamed = {
        key.replace("attention.output.adapters.", "attention.output.attention_text_task_adapters.").replace(
            ".output.adapters.", ".output.layer_text_task_adapters."
        ): value
        for key, value in state.items()
    }
    torch.save(renamed, old / "pytorch_adapter.bin", _use_new_zipfile_serialization=False)
    settings = json.loads((old / "adapter_config.json").read_text())
    settings["config"]["non_linearity"] = "gelu"
    settings["config"]["inv_adapter"] = "nice"
    del settings["version"]
    settings["type"] = "text_task"
    (old / "adapter_config.json").write_text(json.dumps(settings, indent=2))
    flexible = folder / "bert-flexible"
    model = adapters.BertAdapterModel.from_pretrained(bert / "model")
    model.add_adapter("flexible", config=adapters.AdapterConfig.load("seq_bn", reduction_factor=4))
    model.add_classification_head("flexible", num_labels=3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "flexible" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.set_active_adapters("flexible")
    model.eval()
    model.save_adapter(str(flexible), "flexible", with_head=True, use_safetensors=True)
    np.savez(flexible / "expected.npz", **computed(model, inputs_of(model)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["make", "check", "fixtures"])
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    {"make": make, "check": check, "fixtures": fixtures}[options.do](options.folder)


if __name__ == "__main__":
    main()
