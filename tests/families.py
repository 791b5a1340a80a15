"""A tiny model of every family, in memory and on disk."""

import json
import pathlib

import numpy as np

from tests.conftest import VOCABULARY, seed_initializers

_SIZES = dict(
    vocab_size=len(VOCABULARY),
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=48,
    max_position_embeddings=40,
)
_ROBERTA = {**_SIZES, "type_vocab_size": 1, "pad_token_id": 1}
FAMILIES = {
    "albert": {**_SIZES, "embedding_size": 16},
    "bert": _SIZES,
    "camembert": _ROBERTA,
    "deberta-v2": {
        **_SIZES,
        "relative_attention": True,
        "position_buckets": 8,
        "pos_att_type": ["c2p", "p2c"],
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "position_biased_input": False,
        "type_vocab_size": 0,
        "conv_kernel_size": 3,
    },
    "distilbert": {
        "vocab_size": len(VOCABULARY),
        "dim": 32,
        "n_layers": 3,
        "n_heads": 2,
        "hidden_dim": 48,
        "max_position_embeddings": 40,
    },
    "electra": {**_SIZES, "embedding_size": 16},
    "mpnet": {**_SIZES, "relative_attention_num_buckets": 8},
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
}

# What KerasHub's classes can compute of them.
KERAS_HUB = {**FAMILIES, "deberta-v2": {**FAMILIES["deberta-v2"], "conv_kernel_size": 0}}


def family_model(family, head="classification", *, seed=0, **changes):
    """A built model with random weights, every bias included, so that none passes for untrained."""
    from tf_adapters.models.transformers.family import get_family

    seed_initializers(seed)
    described = get_family(family)
    model = described.heads[head](described.config_class(**{**FAMILIES[family], **changes}))
    model.build_in_name_scope()
    random = np.random.default_rng(seed)
    for variable in model.weights:
        if "bias" in variable.name or "beta" in variable.name:
            variable.assign(random.normal(0, 0.05, variable.shape))
    return model


def family_inputs(family, *, choices=None, seed=0):
    """Three rows of nine tokens, the first padded, or so many of each of several choices."""
    import tensorflow as tf

    from tf_adapters.models.transformers.family import get_family

    random, pad = np.random.default_rng(seed), FAMILIES[family].get("pad_token_id", 0)
    shape = (3, 9) if choices is None else (3, choices, 9)
    ids, mask = random.integers(5, len(VOCABULARY), shape), np.ones(shape, np.int32)
    ids[0, ..., 5:], mask[0, ..., 5:] = pad, 0
    inputs = {"input_ids": tf.constant(ids, tf.int32), "attention_mask": tf.constant(mask)}
    if get_family(family).token_types:
        inputs["token_type_ids"] = tf.zeros(shape, tf.int32)
    return inputs


def write_family_checkpoint(model, directory, *, bare=False):
    """The encoder as PyTorch would write it: of a model with a head, or by itself without the prefix."""
    from safetensors.numpy import save_file

    from tf_adapters.models.state import state_of
    from tf_adapters.models.weight_files import named_weights, to_pytorch

    directory, prefix = pathlib.Path(directory), model.base_model_prefix + "."
    directory.mkdir(parents=True, exist_ok=True)
    named = named_weights(state_of(model).family.main_layer(model).weights)
    arrays = {
        name: np.ascontiguousarray(to_pytorch(variable, transposed)) for name, (variable, transposed) in named.items()
    }
    assert all(name.startswith(prefix) for name in arrays)
    save_file(
        {name.removeprefix(prefix) if bare else name: value for name, value in arrays.items()},
        str(directory / "model.safetensors"),
    )
    (directory / "config.json").write_text(
        json.dumps({**model.config.to_dict(), "model_type": model.config.model_type})
    )
