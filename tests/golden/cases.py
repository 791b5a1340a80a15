"""Adapter directories that older versions wrote, and the logits that they had: `python -m tests.golden.cases` adds
those that are not there.

Each stands in a folder `door/case`, with what its writer computed in `logits.npy`. The encoder is drawn from a seed
when it is needed. A directory that is here is never written again: that it still loads is what it is for.
"""

import json
import pathlib
import tempfile

import numpy as np

import tf_adapters
from tests.conftest import VOCABULARY, write_checkpoint
from tf_adapters import AdapterConfig, LoraConfig
from tf_adapters.methods import DoraConfig, FusionConfig, IA3Config
from tf_adapters.models.state import state_of

FOLDER = pathlib.Path(__file__).parent
DOORS = ("transformers", "keras-hub")
SMALL = {"bottleneck_size": 3, "init_stddev": 0.3}
HOULSBY = AdapterConfig(**SMALL)
# Name -> head, number of labels, method or None, what trains.
CASES = {
    "classification": ("classification", 2, HOULSBY, "adapters"),
    "regression": ("classification", 1, HOULSBY, "adapters"),
    "multi-label": ("classification", 4, HOULSBY, "adapters"),
    "token-classification": ("token-classification", 3, HOULSBY, "adapters"),
    "question-answering": ("question-answering", 2, HOULSBY, "adapters"),
    "multiple-choice": ("multiple-choice", 1, HOULSBY, "adapters"),
    "pretrained": ("masked-lm", 2, HOULSBY, "adapters"),
    "shared": ("classification", 3, AdapterConfig(**SMALL, sharing=2, activation="tanh"), "adapters"),
    "upper": (
        "classification", 3,
        AdapterConfig(**SMALL, blocks=(1,), placement="ffn", insertion="after-norm", train_layer_norm="none"),
        "adapters",
    ),
    "parallel": ("classification", 3, AdapterConfig(**SMALL, insertion="parallel", scaling="learned"), "adapters"),
    "deep": (
        "classification", 3,
        AdapterConfig(**SMALL, hidden_layers=2, inner_norm="before", interaction="multiply"), "adapters",
    ),
    "lora": ("classification", 3, LoraConfig(2, targets=("query", "value", "intermediate")), "adapters"),
    "dora": ("classification", 3, DoraConfig(2, targets=("query", "output")), "adapters"),
    "ia3": ("classification", 3, IA3Config(), "adapters"),
    "fusion": (
        "classification", 3,
        FusionConfig({"a": AdapterConfig(**SMALL), "b": AdapterConfig(2, init_stddev=0.3)}), "adapters",
    ),
    "full": ("classification", 3, None, "full"),
    "top-1": ("classification", 3, None, "top-1"),
    "layer-norm": ("classification", 3, None, "layer-norm"),
    "bias": ("classification", 3, None, "bias"),
}  # fmt: skip
KINDS = {"classification", "regression", "multi-label", "token-classification", "question-answering", "multiple-choice"}


def encoder(folder):
    """The encoder of all of them, in a folder."""
    write_checkpoint(
        folder, hidden_size=12, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=12,
    )  # fmt: skip
    return folder


def logits(model, head):
    """What a model of either door answers to three rows of nine tokens, the first padded."""
    random = np.random.default_rng(0)
    ids, mask = random.integers(5, len(VOCABULARY), (3, 9)).astype("int32"), np.ones((3, 9), "int32")
    ids[0, 5:], mask[0, 5:] = 0, 0
    given = {"ids": ids, "mask": mask, "types": np.zeros_like(ids)}
    if head == "multiple-choice":
        given = {name: np.stack([np.roll(value, -shift, 0) for shift in range(3)], 1) for name, value in given.items()}
    places = [1, 4, 2]  # of words to guess
    if state_of(model).door.NAME == "transformers":
        found = model(
            {"input_ids": given["ids"], "attention_mask": given["mask"], "token_type_ids": given["types"]},
            training=False,
        )
        if head == "question-answering":
            return np.stack([found.start_logits, found.end_logits], -1)
        return found.logits.numpy()[:, places] if head == "masked-lm" else found.logits.numpy()
    given = {
        "token_ids": given["ids"], "padding_mask": given["mask"], "segment_ids": given["types"],
        "mask_positions": np.tile(np.array(places, "int32"), (3, 1)),
    }  # fmt: skip
    found = model({name: given[name] for name in model.input}, training=False)
    if head == "question-answering":
        return np.stack([found["start_logits"], found["end_logits"]], -1)
    return np.asarray(found)


def trained(name, source, door):
    """A model with other weights than it began with, wherever it trains."""
    head, labels, config, mode = CASES[name]
    names = [f"label {number}" for number in range(labels)] if head.endswith("classification") else None
    model = tf_adapters.load_backbone(source, head=head, num_labels=labels, labels=names, door=door)
    state = state_of(model)
    state.origin(model)
    if config is not None:
        tf_adapters.add_adapters(model, config, seed=0)
    tf_adapters.set_trainable(model, mode)
    if config is not None:
        variables = [weight for layer in state.adapters[state.active].layers.values() for weight in layer.weights]
        variables += state.layer_norm_variables(model, config.train_layer_norm, config.blocks)
        variables += state.head_variables(model)
    else:
        variables = model.trainable_variables
    random = np.random.default_rng(1)
    for variable in variables:
        value = np.asarray(state.door.read(variable))
        variable.assign(value + random.normal(0, 0.2, value.shape).astype("float32"))
    return model


def write(name, source, door):
    """One directory and its logits."""
    directory, head = FOLDER / door / name, CASES[name][0]
    model = trained(name, source, door)
    task = {"name": name, "kind": name, "metric": "accuracy"} if name in KINDS else None
    tf_adapters.save_adapter(model, directory, task=task)
    (directory / "README.md").unlink()
    settings = directory / "tf_adapters.json"
    settings.write_text(settings.read_text().replace(json.dumps(str(source)), '"encoder"'))
    np.save(directory / "logits.npy", logits(model, head))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        source = encoder(pathlib.Path(folder))
        for door in DOORS:
            for name in CASES:
                if not (FOLDER / door / name).exists():
                    print(door, name)
                    write(name, source, door)
