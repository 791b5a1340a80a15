"""What of an adapter directory a bank stores."""

import dataclasses

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.methods import config_from_dict
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.names import pytorch_name
from tf_adapters.models.transformers.routing import norm_layers
from tf_adapters.saving.directory import check_computes, read_adapter
from tf_adapters.tasks.labels import KINDS
from tf_adapters.text.wordpiece import WordPiece


@dataclasses.dataclass(frozen=True)
class Encoder:
    """What adapters of a bank must agree with.

    Attributes:
        digest, source, directory: of the encoder's weights, as in its state.
        hidden_size, depth: ints.
        norm_names: list of str, the keys of its LayerNorms in a directory.
        norms: float32 array `(LayerNorms, 2, hidden_size)`, gamma and beta of each.
        computes: dict of what it computes beside its weights; see `models.door`.
    """

    digest: str
    source: str
    directory: str
    hidden_size: int
    depth: int
    norm_names: list
    norms: np.ndarray
    computes: dict

    @classmethod
    def of(cls, model):
        """The facts of a plain model without a head."""
        state, config = state_of(model), model.config
        if state.changed(model):
            raise InputError(
                "The encoder was changed since it was loaded, and adapters were trained on it as it was: load it again."
            )
        norms = norm_layers(state.family, model)
        return cls(
            digest=state.digest(model), source=state.source, directory=state.directory, hidden_size=config.hidden_size,
            depth=config.num_hidden_layers,
            norm_names=[_saved_name(model, norm.gamma).rpartition(".")[0] for norm in norms],
            norms=np.stack([[norm.gamma.numpy(), norm.beta.numpy()] for norm in norms]),
            computes=state.door.computes(model),
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class TaskParts:
    """A task as a bank stores it."""

    config: object
    sites: dict
    adapters: dict
    norms: object
    pooler: object
    classifier: list
    outputs: int
    kind: str
    labels: tuple
    value_range: object
    text: tuple
    tokenizer: object


def read_task(directory, encoder):
    """Settings and arrays of an adapter directory, if a bank of this `Encoder` can hold it, otherwise an InputError."""
    settings, arrays = read_adapter(directory)
    saved = settings["backbone"]
    if saved["sha256"] != encoder.digest:
        raise InputError(
            f"{directory} was trained on another encoder ({saved['source']}, digest {saved['sha256'][:12]}...) than "
            f"the bank's ({encoder.source}, digest {encoder.digest[:12]}...)."
        )
    check_computes(saved, encoder.computes, directory)
    if saved["weights_saved"]:
        raise InputError(
            f"{directory} changed weights of the encoder itself ({settings['trainable']}): only what was trained "
            "beside a frozen encoder can share it. Export it by itself."
        )
    kind = (settings["task"] or {}).get("kind", "classification")
    if kind not in KINDS or settings["head"]["type"] != "classification":
        raise InputError(f"{directory} is for {kind}: a bank holds tasks on texts ({', '.join(KINDS)}).")
    if settings["text"] is None:
        raise InputError(f"{directory} was saved without text settings; pass text= to save_adapter.")
    return settings, arrays


def task_parts(settings, arrays, directory, encoder, tokenizer):
    """What of a directory goes where in a bank, checked before anything is stored.

    Args:
        settings, arrays: as `read_task` returns them.
        directory: path, for messages.
        encoder: `Encoder`.
        tokenizer: the bank's `WordPiece`, or None for the one that the settings ask for.

    Returns: `TaskParts`.
    """
    text, task, head = settings["text"], settings["task"] or {}, settings["head"]
    if tokenizer is None:
        tokenizer = WordPiece.from_directory(encoder.directory, max_length=text["max_length"])
    for key, value in tokenizer.settings().items():
        if key != "max_length" and text.get(key) != value:
            raise InputError(
                f"{directory} was trained with {key}={text.get(key)!r}, and the bank's tokenizer has {value!r}."
            )
    config = None if settings["adapter"] is None else config_from_dict(settings["adapter"])
    if config is not None and (problem := config.why_not_banked()) is not None:
        raise InputError(f"{directory} {problem}: export it by itself.")
    sites = {} if config is None else config.sites(encoder.depth)

    def take(key, shape, transpose=False):
        if key not in arrays:
            raise InputError(f"{directory} lacks {key!r}.")
        value = arrays[key].T if transpose else arrays[key]
        if value.shape != shape:
            raise InputError(f"{directory}: {key} has shape {value.shape}, and the bank needs {shape}.")
        return value

    hidden = encoder.hidden_size
    adapters = {}
    if config is not None:
        m = config.bottleneck_size
        for key in set(sites.values()):
            shapes = {"down.kernel": (hidden, m), "down.bias": (m,), "up.kernel": (m, hidden), "up.bias": (hidden,)}
            adapters[key] = tuple(take(f"{key}.{part}", shape) for part, shape in shapes.items())
    norms = None
    if any(f"{name}.weight" in arrays for name in encoder.norm_names):
        norms = encoder.norms.copy()
        for number, name in enumerate(encoder.norm_names):
            if f"{name}.weight" in arrays:
                norms[number] = take(f"{name}.weight", (hidden,)), take(f"{name}.bias", (hidden,))
    pooler = None
    if head["pooler"]:
        pooler = take("head.pooler.dense.weight", (hidden, hidden), True), take("head.pooler.dense.bias", (hidden,))
    outputs = head["num_labels"]
    names = ("hidden", "output") if head["layers"] == 2 else (None,)
    classifier = []
    for layer in names:
        prefix = "head.classifier" + (f".{layer}" if layer else "")
        width = hidden if layer == "hidden" else outputs
        classifier += [take(f"{prefix}.weight", (hidden, width), True), take(f"{prefix}.bias", (width,))]
    value_range = task.get("value_range")
    if value_range is not None and not _is_range(value_range):
        raise InputError(
            f"{directory} has value_range={str(value_range)[:100]}: it must be the least and the greatest value, two "
            "finite numbers."
        )
    labels = head["labels"] or [f"LABEL_{number}" for number in range(outputs)]
    if len(labels) != outputs or not all(isinstance(label, str) and is_encodable(label) for label in labels):
        raise InputError(
            f"{directory} names the labels {labels!r} of a head of {outputs} outputs: it must be one string each."
        )
    return TaskParts(
        config=config, sites=sites, adapters=adapters, norms=norms, pooler=pooler, classifier=classifier,
        outputs=outputs,
        kind=task.get("kind", "classification"), labels=tuple(labels),
        value_range=value_range, text=(bool(task.get("text_pairs")), text["max_length"]), tokenizer=tokenizer,
    )  # fmt: skip


def _is_range(value):
    numbers = (
        isinstance(value, (list, tuple)) and len(value) == 2 and all(type(number) in (int, float) for number in value)
    )
    return numbers and abs(value[0]) < np.inf and abs(value[1]) < np.inf and value[0] <= value[1]


def is_encodable(text):
    """Whether a str can be written as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _saved_name(model, variable):
    """The key that an adapter directory has for a weight of the encoder."""
    name, _ = pytorch_name(variable.name, variable.shape)
    return "backbone." + name.removeprefix(model.base_model_prefix + ".")
