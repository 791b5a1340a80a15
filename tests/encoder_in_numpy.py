"""A tiny BERT with adapters and LoRA in NumPy, which shares no code with the package: a reference of what a model
computes."""

import numpy as np
from scipy.special import erf

HEADS, EPSILON = 2, 1e-12


def layer_norm(states, gamma, beta):
    centred = states - states.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON) * gamma + beta


def gelu(values):
    return values * 0.5 * (1 + erf(values / np.sqrt(2)))


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def logits(weights, adapter, inputs, blocks=(0, 1)):
    """Logits of a sequence classification model, float64 `(batch, labels)`.

    Args:
        weights: dict from a variable's name without its model's, such as `bert/pooler/dense/kernel:0`, to its value.
        adapter: dict from keys of a saved directory (`layer.0.ffn.down.kernel`, `layer.1.query.a`) to values, or None.
        inputs: dict of `input_ids`, `attention_mask` and `token_type_ids`, int arrays `(batch, length)`.
        blocks: those in which the adapter acts.
    """
    weights = {name.removesuffix(":0"): np.asarray(value, np.float64) for name, value in weights.items()}
    adapter = {key: np.asarray(value, np.float64) for key, value in (adapter or {}).items()}
    ids, mask, types = (np.asarray(inputs[name]) for name in ("input_ids", "attention_mask", "token_type_ids"))

    def dense(states, name, key=None):
        outputs = states @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]
        if f"{key}.a" in adapter:
            outputs = outputs + states @ adapter[f"{key}.a"] @ adapter[f"{key}.b"]
        return outputs

    def norm(states, name):
        return layer_norm(states, weights[f"{name}/LayerNorm/gamma"], weights[f"{name}/LayerNorm/beta"])

    def adapted(states, block, place):
        keys = [
            key
            for key in (f"layer.{block}.{place}", f"layer.{block}")
            if f"{key}.down.kernel" in adapter and block in blocks
        ]
        for key in keys:
            inner = gelu(states @ adapter[f"{key}.down.kernel"] + adapter[f"{key}.down.bias"])
            states = states + inner @ adapter[f"{key}.up.kernel"] + adapter[f"{key}.up.bias"]
        return states

    def split(states):
        return states.reshape(*states.shape[:2], HEADS, -1).transpose(0, 2, 1, 3)

    embeddings = "bert/embeddings"
    states = (
        weights[f"{embeddings}/word_embeddings/weight"][ids]
        + weights[f"{embeddings}/token_type_embeddings/embeddings"][types]
    )
    states = norm(states + weights[f"{embeddings}/position_embeddings/embeddings"][: ids.shape[1]], embeddings)
    for block in range(2):
        name, lora = f"bert/encoder/layer_._{block}", f"layer.{block}." if block in blocks else "none."
        query, key, value = (
            split(dense(states, f"{name}/attention/self/{part}", lora + part)) for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(query.shape[-1]) - 10000.0 * (1 - mask[:, None, None, :])
        context = (softmax(scores) @ value).transpose(0, 2, 1, 3).reshape(states.shape)
        states = norm(
            adapted(dense(context, f"{name}/attention/output/dense"), block, "attention") + states,
            f"{name}/attention/output",
        )
        inner = gelu(dense(states, f"{name}/intermediate/dense"))
        states = norm(adapted(dense(inner, f"{name}/output/dense"), block, "ffn") + states, f"{name}/output")
    return dense(np.tanh(dense(states[:, 0], "bert/pooler/dense")), "classifier")
