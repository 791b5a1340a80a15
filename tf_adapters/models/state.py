"""What the package remembers about a model between calls."""

import dataclasses
import hashlib
from typing import Dict, List, Optional

import numpy as np

from tf_adapters.config import MethodConfig
from tf_adapters.errors import InputError
from tf_adapters.models.family import family_of
from tf_adapters.models.names import named_weights


@dataclasses.dataclass
class NamedAdapter:
    """One adapter of a model.

    Attributes:
        config: its MethodConfig.
        layers: dict from the key in a saved directory (`layer.0.ffn`) to the MethodLayer.
        values: values of the LayerNorms and the head while another adapter is active,
            aligned with `ModelState.switched`; None while this one is.
    """

    config: MethodConfig
    layers: Dict[str, object]
    values: Optional[List[np.ndarray]] = None


class ModelState:
    """Adapters, originals and origin of one model; a plain object that Keras does not track.

    Attributes:
        family: the model's `Family`.
        adapters: dict from name to NamedAdapter.
        active: name of the active adapter, or None.
        active_blocks: the blocks whose adapters act, a frozenset, or None for all.
        enabled: False inside `disable_adapters`.
        sites: dict from `(block, place)` to AdapterSite or DenseSite.
        original_blocks: the blocks before injection.
        original_parts: list of `(layer, name of a layer of it, that layer before injection)`.
        fast: bool, whether the blocks are those of `models.fast`.
        switched: variables whose values belong to the active adapter: LayerNorms, then head.
        pristine: their values before injection.
        freezing: list of `(layer, trainable, its trainable and its other weights)` before injection; None if
            `cast_frozen` replaced some of them since.
        dropouts: `Family.dropout_layers` before injection.
        cast: variables that `cast_frozen` put in place of float32 ones.
        newly_initialized: layers of the encoder that pretraining did not train; they train
            and are saved with the head. See `untrained_layers`.
        pretrained_head: bool, whether all of the head came with the pretrained encoder.
        pretrained_adapter: what `load_pretrained_adapter` loaded, a dict for JSON, or None.
        trainable: what `set_trainable` was last called with, or None.
        source, directory: where `load_backbone` found the weights.
    """

    def __init__(self, model):
        self.family = family_of(model)
        self.adapters = {}
        self.active = None
        self.active_blocks = None
        self.enabled = True
        self.sites = {}
        self.original_blocks = None
        self.original_parts = []
        self.fast = False
        self.switched = []
        self.pristine = []
        self.freezing = []
        self.dropouts = []
        self.cast = []
        self.newly_initialized = untrained_layers(model, self.family)
        self.pretrained_head = False
        self.pretrained_adapter = None
        self.trainable = None
        self.source = None
        self.directory = None
        self._digest = None

    def adapter_variables(self):
        """Variables of every adapter, each once."""
        layers = {id(layer): layer for adapter in self.adapters.values() for layer in adapter.layers.values()}
        return [variable for layer in layers.values() for variable in layer.weights]

    def head_variables(self, model):
        """Variables outside the pretrained encoder, and those of it that pretraining did not train."""
        fresh = [variable for layer in self.newly_initialized for variable in layer.weights]
        inside = {id(variable) for variable in self.family.main_layer(model).weights} - {id(v) for v in fresh}
        return [variable for variable in model.weights if id(variable) not in inside]

    def backbone_variables(self, model):
        """Variables of the pretrained encoder: no adapters, no head."""
        other = {id(variable) for variable in self.adapter_variables() + self.head_variables(model)}
        if self.family.pooler(model) is not None and not self.family.reads_pooler(model):
            # What it holds makes no difference, and a checkpoint may lack it.
            other |= {id(variable) for variable in self.family.pooler(model).weights}
        return [variable for variable in model.weights if id(variable) not in other]

    def layer_norm_variables(self, model, which="all", adapted=None):
        """Variables of the pretrained LayerNorms; see `Family.layer_norms`."""
        return [variable for norm in self.family.layer_norms(model, which, adapted) for variable in norm.weights]

    def train_pooler(self, model):
        """Let the pooler be a part of the head from now on, as it is in what is about to be loaded.

        The encoder's digest stays the one that it had with its pooler.
        """
        if self.newly_initialized:
            return
        if self.adapters:
            raise InputError("A head with a pooler of its own fits a model without adapters alone: load it into a model of its own.")
        self.digest(model)
        self.newly_initialized = [self.family.pooler(model)]

    def digest(self, model):
        """SHA-256 of the pretrained encoder before any training, as hexadecimal digits.

        Over the canonical names and float32 bytes of all pretrained tensors, sorted by
        name; the head does not count. Computed once, by the first call of `add_adapters`,
        `set_trainable` or this one, so that full fine-tuning later does not change it.
        """
        if self._digest is None:
            self._digest = digest_of(self.backbone_variables(model))
        return self._digest

    def digest_without_pooler(self, model):
        """As `digest`, of an encoder that has none, as under a head of masked words or of words; computed from the weights as they are.

        The LayerNorms count as they were before any adapter.
        """
        pooler = self.family.pooler(model)
        out = set() if pooler is None else {id(variable) for variable in pooler.weights}
        before = {id(variable): value for variable, value in zip(self.switched, self.pristine)}
        return digest_of([variable for variable in self.backbone_variables(model) if id(variable) not in out], before)

    def forget_digest(self):
        """The encoder is another one from now on."""
        self._digest = None


def digest_of(variables, values=None):
    """SHA-256 over canonical names and float32 bytes of variables, sorted by name; `values` has those of some by their id."""
    hasher = hashlib.sha256()
    named = named_weights(variables)
    for name in sorted(named):
        variable, _ = named[name]
        hasher.update(f"{name} {tuple(variable.shape)}\n".encode())
        value = (values or {}).get(id(variable))
        hasher.update(np.ascontiguousarray(variable.numpy() if value is None else value, dtype=np.float32))
    return hasher.hexdigest()


def state_of(model):
    """The ModelState of a model, made at the first call.

    Raises:
        InputError: the model is not a supported transformers TensorFlow model, or not built.
    """
    state = getattr(model, "_tf_adapters", None)
    if state is None:
        family_of(model)
        if not model.built or not model.weights:
            raise InputError(
                f"model={type(model).__name__} has no weights yet: call it once, or model.build_in_name_scope(), first."
            )
        state = model._tf_adapters = ModelState(model)
    return state


def untrained_layers(model, family):
    """The pooler, in a list, where the encoder was pretrained and its pooler was not; otherwise an empty list.

    Encoders that were trained by mean pooling or masked words alone lack a pooler, or carry
    it as it was initialised (all-MiniLM-L6-v2). The sign is a bias of zeros, which no
    training leaves, beside blocks whose biases are not zeros. A frozen random projection in
    front of the classifier would cost accuracy, so such a pooler is a part of the head.
    """
    if not family.reads_pooler(model):
        return []
    pooler = family.pooler(model)
    block = family.blocks(model)[0]
    return [pooler] if not _has_biases(pooler) and _has_biases(block) else []


def _has_biases(layer):
    return any(np.any(variable.numpy()) for variable in layer.weights if variable.name.endswith("bias:0"))


def backbone_digest(model):
    """SHA-256 of the model's pretrained encoder as it was before any training; see `ModelState.digest`."""
    return state_of(model).digest(model)


def backbone_directory(model):
    """Folder of the files that `load_backbone` read, where the vocabulary is, or None for a model built otherwise."""
    return state_of(model).directory
