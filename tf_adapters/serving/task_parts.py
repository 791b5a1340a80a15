"""What of an adapter directory a bank stores."""

import dataclasses

import numpy as np

from tf_adapters.config import DENSE_PLACES, one_name
from tf_adapters.errors import InputError
from tf_adapters.layers.bank import POOLS
from tf_adapters.methods import config_from_dict
from tf_adapters.models.origin import called
from tf_adapters.models.state import state_of
from tf_adapters.saving.directory import check_computes, read_adapter
from tf_adapters.saving.settings import kind_of
from tf_adapters.tasks.labels import KINDS, check_joinable
from tf_adapters.text.tokenizer import check_length, load_tokenizer


class Encoder:
    """What adapters of a bank must agree with: the facts of a plain model without a head; InputError if it was
    changed since it was loaded.

    Attributes:
        model: as given.
        family: its `Family`.
        ops: module of `layers.ops`.
        digest, source: of the encoder's weights, as adapter directories have them.
        hidden_size, depth: ints.
        norm_names: list of str, the keys of its LayerNorms in a directory.
        norms: list of float32 arrays `(2, units)`, gamma and beta of each.
        pooler: list of kernel and bias of the pooler that the classifier stands on, variables; empty where it has none.
        pooler_names: list of str, the keys of these in a directory.
        row_places: those of `config.DENSE_PLACES` whose layers read the rows of a batch and nothing else.
        head_activation: function between the dense layers of the head.
        computes: dict of what it computes beside its weights; see `models.door`.
    """

    def __init__(self, model):
        state, family = state_of(model), state_of(model).family
        config, array = state.door.config_of(model), state.door.array
        if state.changed(model):
            raise InputError(
                "The encoder was changed since it was loaded, and adapters were trained on it as it was: load it again."
            )
        norms, origin = family.layer_norms(model, "all"), state.origin(model)
        self.model, self.family, self.ops, self.source = model, family, state.door.ops, state.source
        self.digest = origin.digest if family.pooled_classifier else origin.digest_without_pooler
        self.hidden_size, self.depth = config.hidden_size, len(family.blocks(model))
        self.pooler = list(family.pooler(model).weights) if family.pooled_classifier else []
        saved = state.door.named_weights(model, [norm.gamma for norm in norms] + self.pooler)
        saved = {id(variable): name.removeprefix(f"{family.prefix(model)}.") for name, (variable, _) in saved.items()}
        self.norm_names = [f"backbone.{saved[id(norm.gamma)].rpartition('.')[0]}" for norm in norms]
        self.norms = [np.stack([array(norm.gamma), array(norm.beta)]) for norm in norms]
        self.pooler_names = [f"head.{saved[id(variable)]}" for variable in self.pooler]
        self.row_places = family.row_places(config)
        self.head_activation = self.ops.activation(one_name(family.head_activation(config)))
        self.computes = state.door.computes(model)

    def stacked(self, norms):
        """Such a list as `norms` in one array, zeros behind the units of the narrower ones."""
        width = max(each.shape[1] for each in norms)
        return np.stack([np.pad(each, [(0, 0), (0, width - each.shape[1])]) for each in norms])

    def dense(self, block, place):
        """The dense layer at one of `config.DENSE_PLACES`, otherwise None."""
        if place not in DENSE_PLACES:
            return None
        owner, attribute = self.family.dense(self.family.blocks(self.model)[block], place)
        return getattr(owner, attribute)


@dataclasses.dataclass(frozen=True)
class TaskParts:
    """A task as a bank stores it.

    Attributes:
        sites: dict from `(block, place)` to the key of what stands there.
        adapters: dict from key to `(class of layers.bank.POOLS, size, row)`.
    """

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
    saved, head = settings["backbone"], settings["head"]
    # Its digest is of an encoder without a pooler.
    kind = kind_of(settings["task"], head["type"], head["num_labels"])
    if kind not in KINDS or head["type"] != "classification":
        raise InputError(f"{directory} is for {kind}: a bank holds tasks on texts ({', '.join(KINDS)}).")
    if saved["sha256"] != encoder.digest:
        raise InputError(
            f"{directory} was trained on another encoder ({called(saved['source'], saved['sha256'])}) than the bank's "
            f"({called(encoder.source, encoder.digest)})."
        )
    check_computes(saved, encoder.computes, directory)
    if saved["weights_saved"]:
        raise InputError(f"{directory} changed weights of the encoder itself, not beside it. Export it by itself.")
    if settings["text"] is None:
        raise InputError(f"{directory} was saved without text settings; pass text= to save_adapter.")
    return settings, arrays


def task_parts(settings, arrays, directory, encoder, tokenizer):
    """The `TaskParts` of what `read_task` returns, checked before anything is stored; `tokenizer` is the bank's, or
    None for the one that the settings ask for."""
    text, task, head = settings["text"], settings["task"] or {}, settings["head"]
    check_length(encoder.model, text["max_length"])
    if tokenizer is None:
        tokenizer = load_tokenizer(encoder.model, max_length=text["max_length"])
    if task.get("text_pairs") and text["max_length"] < tokenizer.pair_specials + 2:
        raise InputError(f"{directory} has max_length={text['max_length']}, which has no room for two texts.")
    for key, value in tokenizer.settings().items():
        if key != "max_length" and text.get(key) != value:
            raise InputError(f"{directory} was trained with {key}={text.get(key)!r}, and the bank has {value!r}.")
    config = None if settings["adapter"] is None else config_from_dict(settings["adapter"])
    if config is not None and config.method not in POOLS:
        raise InputError(f"{directory} {config.why_not_banked()}: export it by itself.")
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
    for (block, place), key in sites.items():
        if key in adapters:
            continue
        dense, pool = encoder.dense(block, place), POOLS[config.method]
        if dense is not None and place not in encoder.row_places:
            raise InputError(
                f"{directory} changes the dense layer {place!r}, which in a {encoder.family.model_type} encoder also "
                "reads embeddings that all rows share: export it by itself."
            )
        shape = (hidden, hidden) if dense is None else tuple(dense.kernel.shape)
        saved = {part: take(f"{key}.{part}", wanted) for part, wanted in pool.saved(config, place, shape).items()}
        adapters[key] = pool, pool.size_of(config, place, shape), pool.row(config, saved, dense)
    norms = None
    if any(f"{name}.weight" in arrays for name in encoder.norm_names):
        norms = list(encoder.norms)
        for number, name in enumerate(encoder.norm_names):
            if f"{name}.weight" in arrays:
                shape = norms[number].shape[1:]
                norms[number] = np.stack([take(f"{name}.{part}", shape) for part in ("weight", "bias")])
        norms = encoder.stacked(norms)
    pooler = None
    if head["pooler"] and encoder.pooler:
        kernel, bias = encoder.pooler_names
        pooler = take(kernel, (hidden, hidden), True), take(bias, (hidden,))
    outputs = head["num_labels"]
    layers = encoder.family.classifier
    layers = [f"{layers[0]}.{name}" for name in ("hidden", "output")] if head["layers"] == 2 else layers
    classifier = []
    for layer in layers:
        width = outputs if layer == layers[-1] else hidden
        classifier += [take(f"head.{layer}.weight", (hidden, width), True), take(f"head.{layer}.bias", (width,))]
    value_range = task.get("value_range")
    if value_range is not None and not _is_range(value_range):
        raise InputError(
            f"{directory} has value_range={str(value_range)[:100]}: it must be two finite numbers, the least first."
        )
    labels = head["labels"] or [f"LABEL_{number}" for number in range(outputs)]
    if len(labels) != outputs or not all(isinstance(label, str) and is_encodable(label) for label in labels):
        raise InputError(
            f"{directory} names the labels {labels!r} of a head of {outputs} outputs: it must be one string each."
        )
    kind = kind_of(task, head["type"], outputs)
    check_joinable(labels, kind)
    return TaskParts(
        sites=sites, adapters=adapters, norms=norms, pooler=pooler, classifier=classifier,
        outputs=outputs, kind=kind, labels=tuple(labels),
        value_range=value_range, text=(bool(task.get("text_pairs")), text["max_length"]), tokenizer=tokenizer,
    )  # fmt: skip


def _is_range(value):
    two = isinstance(value, (list, tuple)) and len(value) == 2
    return two and all(type(number) in (int, float) for number in value) and -np.inf < value[0] <= value[1] < np.inf


def is_encodable(text):
    """Whether a str can be written as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
