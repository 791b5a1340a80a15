"""What the package remembers about a model between calls: its adapters, and the task heads, of which
these may have several."""

import dataclasses
from typing import Dict, NamedTuple, Optional, Tuple

import numpy as np

from tf_adapters.config import MethodConfig
from tf_adapters.errors import InputError
from tf_adapters.models.door import door_of
from tf_adapters.models.keras_files import watch
from tf_adapters.models.origin import Origin, check_not_cast
from tf_adapters.ranges import is_int

# transformers keeps a name for each: a number from a damaged file must not fill the memory.
MOST_LABELS = 2**20
# Kinds of heads that an adapter may bring to a model with another. That of masked words shares the embeddings.
SWITCHED = ("classification", "token-classification", "question-answering", "multiple-choice")


class HeadShape(NamedTuple):
    """What decides a head's layers: heads of one shape compute by one graph.

    Attributes:
        head: name in `Family.heads`, or None of a model class that is not there.
        num_labels: int, outputs.
        layers: 1, or 2 for a `TwoLayerHead`.
    """

    head: Optional[str]
    num_labels: int
    layers: int = 1


@dataclasses.dataclass(eq=False)
class Held:
    """Variables of the model that several owners take in turns.

    Attributes:
        variables: list.
        holder: the `Owner` whose values are in them, or None.
        kept: dict from each other owner to its values, a list aligned with the variables.
    """

    variables: list
    holder: object
    kept: Dict[object, list] = dataclasses.field(default_factory=dict, init=False)

    def values_of(self, owner, read):
        """An owner's values; `read` reads a variable."""
        return list(self.kept[owner] if owner in self.kept else map(read, self.variables))

    def take(self, owner, read, write):
        """Put an owner's values into the variables, and keep those of the holder."""
        if owner is self.holder:
            return
        kept = dict(self.kept)
        if self.holder is not None:
            kept[self.holder] = self.values_of(self.holder, read)
        for variable, value in zip(self.variables, kept.pop(owner)):
            write(variable, value)
        self.kept, self.holder = kept, owner

    def drop(self, owner):
        """Forget an owner that is gone."""
        self.kept = {other: values for other, values in self.kept.items() if other is not owner}
        self.holder = None if self.holder is owner else self.holder


@dataclasses.dataclass(eq=False)
class Head(Held):
    """The layers of one shape of head, on the model or waiting beside it.

    Attributes:
        shape: `HeadShape`.
        model_class: the class that computes with them.
        layers: dict from the model's attribute to the layer.
        number: int, which no other head of this model has or had; the one before the first adapter has 0.
    """

    shape: HeadShape
    model_class: type
    layers: Dict[str, object]
    number: int = 0


def check_head(num_labels, labels, head, head_layers):
    """Raise InputError for a head that no encoder can have."""
    if head_layers not in (1, 2) or (head_layers == 2 and head != "classification"):
        raise InputError("{head_layers} must be 1, or 2 for head='classification'.", head_layers=head_layers)
    if labels is None and (not is_int(num_labels) or not 1 <= num_labels <= MOST_LABELS):
        raise InputError(
            f"{{num_labels}} must be an integer of at least 1, and at most {MOST_LABELS:,}.", num_labels=num_labels
        )
    if labels is not None:
        names = labels if isinstance(labels, (list, tuple)) else ()  # a set has no order
        if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise InputError("{labels} must be a list of different names.", labels=labels)
        if num_labels not in (2, len(labels)):  # 2 is `load_backbone`'s default
            raise InputError("{num_labels} and {labels} differ: give one.", num_labels=num_labels, labels=labels)
        num_labels = len(labels)
    if head == "question-answering" and num_labels != 2:
        raise InputError("{num_labels}: a head for questions has 2 outputs, begin and end.", num_labels=num_labels)


@dataclasses.dataclass(eq=False)
class Owner:
    """What belongs to an adapter, or to the encoder without one, and is on the model only while it acts.

    Its values of the pretrained LayerNorms, of a pooler that is a part of the head and of the head are kept by the
    `Held` of `ModelState.switched` and by `stands`.

    Attributes:
        stands: the `Head` whose layers it has, or None without adapters.
        labels: `id2label` and `label2id` of the configuration, which go with the head; None while they are in the
            model's.
        pretrained: what `load_pretrained_adapter` loaded, a dict for JSON, or None.
    """

    stands: Optional[Head] = None
    labels: Optional[Tuple[dict, dict]] = None
    pretrained: Optional[dict] = None


@dataclasses.dataclass(eq=False)
class NamedAdapter(Owner):
    """One adapter of a model.

    Attributes:
        config: its MethodConfig.
        layers: dict from the key in a saved directory (`layer.0.ffn`) to the MethodLayer.
        number: int, which no other adapter of this model has or had.
    """

    config: MethodConfig = None
    layers: Dict[str, object] = dataclasses.field(default_factory=dict)
    number: int = 0


class ModelState:
    """Adapters, originals and origin of one model; a plain object that Keras does not track.

    What acts is written here and in no other place: `active`, `active_blocks` and `suspensions`. `let` changes it, with
    all that follows: the sites' switches, the LayerNorms, the head and its label names.

    Attributes:
        named: str, the model's class and name.
        door: the model's door, as of `models.door`.
        family: the model's family.
        adapters: dict from name to NamedAdapter.
        plain: `Owner` of the encoder without an adapter.
        active: name of the active adapter, or None.
        active_blocks: the blocks whose adapters act, a frozenset, or None for all.
        suspensions: frozenset with an object for each `disable_adapters` that was entered and not left.
        acting: `Acting` of the sites.
        sites: dict from `(block, place)` to the door's site.
        original_blocks: the blocks before injection.
        original_parts: list of `(layer, name of a layer of it, that layer before injection)`.
        fast: bool, whether the blocks are those of `models.transformers.fast`.
        switched: dict of `Held`: `"norms"`, the pretrained LayerNorms, and `"pooler"`, one that is a part of the head;
            empty without adapters.
        head: the `Head` that is on the model, or None without adapters.
        freezing: what trained before injection, as the door notes it; None if `cast_frozen` replaced some of it since.
        dropouts: `Family.dropout_layers` before injection.
        newly_initialized: layers of the encoder that pretraining did not train; they train
            and are saved with the head. See `untrained_layers`.
        pooler_came: bool, whether the pooler is among them because the head of an adapter brought it.
        pretrained_head: bool, whether all of the head came with the pretrained encoder.
        trainable: what `set_trainable` was last called with, or None.
        source, directory: where `load_backbone` found the weights; of a preset of KerasHub the source alone.
        tokenizer: function that says what cuts the texts of a preset (`models.keras_hub.presets`), otherwise None.
        undo: what the `transaction` that is going on would undo, or None.
    """

    def __init__(self, model):
        self.named = f"{type(model).__name__} {model.name!r}"
        self.door = door_of(model)
        self.family = self.door.family_of(model)
        self.adapters = {}
        self.plain = Owner()
        self.active = None
        self.active_blocks = None
        self.suspensions = frozenset()
        self.acting = self.door.Acting()
        self.sites = {}
        self.original_blocks = None
        self.original_parts = []
        self.fast = False
        self.switched = {}
        self.head = None
        self.freezing = []
        self.dropouts = []
        self.newly_initialized = untrained_layers(model, self.family)
        self.pooler_came = self.pretrained_head = False
        self.trainable = None
        self.source = None
        self.directory = self.tokenizer = None
        self.undo = None
        self._origin = None

    @property
    def enabled(self):
        """False inside `disable_adapters`."""
        return not self.suspensions

    @property
    def acting_name(self):
        """Name of the adapter that computes now, or None."""
        return self.active if self.enabled else None

    @property
    def owner(self):
        """The active adapter, or `plain`: whose head, label names and origin the model has."""
        return self.plain if self.active is None else self.adapters[self.active]

    def write(self, variable, value):
        """Assign a variable, so that the transaction that is going on can undo it."""
        if self.undo is not None:
            self.undo.remember(variable)
        variable.assign(value)

    def let(self, model, **changes):
        """Change what acts (`active`, `active_blocks`, `suspensions`), in graphs already traced too."""
        before, config = self.owner, self.door.config_of(model)
        for name, value in changes.items():
            setattr(self, name, value)
        owner = self.owner
        if owner is not before:
            before.labels = dict(config.id2label), dict(config.label2id)
            config.id2label, config.label2id = map(dict, owner.labels)
            owner.labels = None
            self.stand(model, owner.stands)
        for group, held in self._held(owner).items():
            plain = group == "norms" and self.acting_name is None
            held.take(self.plain if plain else owner, self.door.read, self.write)
        self.write(self.acting.number, self.adapters[self.acting_name].number if self.acting_name else 0)
        for (block, _), site in self.sites.items():
            acts = self.active_blocks is None or block in self.active_blocks
            site.activate(self.acting_name if acts else None, self.write)

    def act(self, model):
        """Let the switches say what acts, whatever came into their variables."""
        self.let(model)
        if self.head is not None:
            self.write(self.acting.head, self.head.number)

    def _held(self, owner):
        """Dict of the `Held` that an owner has a part in; empty without adapters."""
        return {**self.switched, "head": owner.stands} if self.switched else {}

    def stand(self, model, head):
        """Let the layers of a `Head` be the model's, and the model's class the one that computes with them."""
        if head is self.head:
            return
        self.door.stand(self, model, head)
        self.head, self.acting.traced_head = head, head.number
        self.write(self.acting.head, head.number)
        self.door.forget_traces(model)

    def keep_head(self, model):
        """Let the encoder without an adapter have the head that is on the model, with its values and label names."""
        for group, held in self._held(self.owner).items():
            if group != "norms":
                held.kept = {**held.kept, self.plain: held.values_of(self.owner, self.door.read)}
        self.plain.stands = self.head
        config = self.door.config_of(model)
        self.plain.labels = dict(config.id2label), dict(config.label2id)

    @property
    def heads(self):
        """Every `Head`, the one of the encoder without an adapter first."""
        owners = [self.plain, *self.adapters.values()]
        return list(dict.fromkeys(owner.stands for owner in owners if owner.stands is not None))

    def copy_of_plain(self, model, head=None, **adapter):
        """A `NamedAdapter` whose LayerNorms, head (or the values `head` of another one) and label names are those of
        the encoder without one, as far as nothing else is given."""
        plain, config = self.plain, self.door.config_of(model)
        labels = plain.labels or (config.id2label, config.label2id)
        made = NamedAdapter(**{"stands": plain.stands, "labels": tuple(map(dict, labels)), **adapter})
        for group, held in self._held(made).items():
            values = head if group == "head" and head is not None else held.values_of(plain, self.door.read)
            held.kept = {**held.kept, made: values}
        return made

    def drop(self, name):
        """Forget an adapter that does not act, and what it had."""
        gone = self.adapters[name]
        for held in (*self.switched.values(), *self.heads):
            held.drop(gone)
        self.adapters = {other: adapter for other, adapter in self.adapters.items() if adapter is not gone}

    def label_names(self, model, owner):
        """An owner's label names in index order, a list; None where they are transformers' own `LABEL_0`."""
        id2label = self.door.config_of(model).id2label if owner.labels is None else owner.labels[0]
        names = [id2label[index] for index in sorted(id2label)]
        return None if names == [f"LABEL_{index}" for index in range(len(names))] else names

    def name_labels(self, model, names):
        """Give the outputs of the head that is on the model their names."""
        config = self.door.config_of(model)
        config.id2label = dict(enumerate(names))
        config.label2id = {label: index for index, label in enumerate(names)}

    def order_outputs(self, model, known, read):
        """Put the outputs of the head on the model, which a checkpoint calls `known`, in the order of its label names,
        where both have the same; `read` are the ids of the variables that the checkpoint gave."""
        names = self.label_names(model, self.plain) or []
        if known == names or sorted(known) != sorted(names):
            return
        order = [known.index(name) for name in names]
        for variable in [v for v in self.head_variables(model) if v.shape[-1] == len(names)][-2:]:
            if id(variable) in read:
                variable.assign(self.door.array(variable)[..., order])

    def put(self, owner, variable, value):
        """Give an owner's LayerNorms or head, or any other variable, a value; what is not on the model now is kept for
        later."""
        for held in self._held(owner).values():
            if owner in held.kept and any(variable is other for other in held.variables):
                pairs = zip(held.variables, held.kept[owner])
                value = self.door.constant(value, variable)
                values = [value if variable is other else before for other, before in pairs]
                held.kept = {**held.kept, owner: values}
                return
        assert not any(variable is other for head in self.heads if head is not owner.stands for other in head.variables)
        self.write(variable, value)

    def values_of(self, owner):
        """Dict from a variable's id to a value of `owner`'s that is not in the variable now."""
        return {
            id(variable): value
            for held in self._held(owner).values()
            for variable, value in zip(held.variables, held.kept.get(owner, ()))
        }

    def adapter_variables(self):
        """Variables of every adapter, each once."""
        layers = {id(layer): layer for adapter in self.adapters.values() for layer in adapter.layers.values()}
        return [variable for layer in layers.values() for variable in layer.weights]

    def output_bias(self, model):
        """The variable that the head adds to its logits last, `(labels,)`."""
        shape = (self.door.config_of(model).num_labels,)
        variables = self.door.head_on(model, self.family, None).variables
        return [variable for variable in variables if tuple(variable.shape) == shape][-1]

    def head_variables(self, model):
        """Variables outside the pretrained encoder, and those of it that pretraining did not train."""
        # Under a head that another adapter brought nothing may read the pooler.
        fresh = self.newly_initialized if self.family.reads_pooler(model) else []
        fresh = [variable for layer in fresh for variable in layer.weights]
        inside = {id(variable) for variable in self.family.main_layer(model).weights} - {id(v) for v in fresh}
        return [variable for variable in self.door.weights(model) if id(variable) not in inside]

    def backbone_variables(self, model):
        """Variables of the pretrained encoder: no adapters, no head."""
        other = {id(variable) for variable in self.adapter_variables() + self.head_variables(model)}
        if self.family.pooler(model) is not None and not self.family.reads_pooler(model):
            # What it holds makes no difference, and a checkpoint may lack it.
            other |= {id(variable) for variable in self.family.pooler(model).weights}
        return [variable for variable in self.door.weights(model) if id(variable) not in other]

    def layer_norm_variables(self, model, which="all", adapted=None):
        """Variables of the pretrained LayerNorms; see `Family.layer_norms`."""
        return [variable for norm in self.family.layer_norms(model, which, adapted) for variable in norm.weights]

    def train_pooler(self, model, for_adapter=True):
        """Let the pooler be a part of the head from now on, as it is in what is about to be loaded: until the adapters
        are removed, if that is `for_adapter`.

        The encoder's digest stays the one that it had with its pooler.
        """
        if self.newly_initialized:
            return
        if self.adapters:
            raise InputError("A head with a pooler of its own fits a model without adapters alone: load it into one.")
        self.origin(model)
        self.newly_initialized, self.pooler_came = [self.family.pooler(model)], for_adapter

    def origin(self, model):
        """The `Origin` of the encoder, noted by the first call: before any training, that is in `add_adapters` or
        `set_trainable`."""
        if self._origin is None:
            pooler = self.family.pooler(model)
            pooler = [] if pooler is None else pooler.weights
            variables, values = self.backbone_variables(model), self.values_of(self.plain)
            check_not_cast(variables, "The digest of an encoder")
            self._origin = Origin(self.door, model, variables, pooler, values)
            # Not before the first adapter alone: of a plain model, too, a file of another encoder makes this one stale.
            watch(model, self)
        return self._origin

    def digest(self, model):
        """`Origin.digest`, which adapter directories name; without the pooler where the head does not read it."""
        origin = self.origin(model)
        return origin.digest if self.family.reads_pooler(model) else origin.digest_without_pooler

    def changed(self, model, owner=None):
        """Variables of the pretrained encoder that are not as they were at its origin.

        Args:
            owner: the `Owner` whose LayerNorms count; None for `plain`.
        """
        return self.origin(model).changed(self.backbone_variables(model), self.values_of(owner or self.plain))

    def forget_origin(self):
        """The encoder is another one from now on."""
        self._origin = None


def state_of(model):
    """The ModelState of a model, made at the first call.

    Raises:
        InputError: the model is none that a door takes, or not built; its encoder has the adapters of another model, or
            no longer those that were added to it.
    """
    state = getattr(model, "_tf_adapters", None)
    family = door_of(model).family_of(model) if state is None else state.family
    _check_whose(model, family, state)
    if state is None:
        if not model.built or not model.weights:
            raise InputError("{model} has no weights yet: call it once, or build it.", model=type(model).__name__)
        state = model._tf_adapters = ModelState(model)
    return state


def take_encoder(model, state):
    """Write on the encoder whose adapters stand in it: on variables that every block has and nothing replaces."""
    for variable in state.layer_norm_variables(model):
        variable._tf_adapters = state
    watch(model, state)  # which another model on the encoder may have done since this one did


def step_made_anew(model):
    """What stands for a model's `train_function` until Keras makes it: `fit` asks for it before its first epoch alone,
    and a callback may change what trains after any."""

    def make_and_take(*inputs):
        model.make_train_function(force=True)
        return model.train_function(*inputs)

    return make_and_take


def mark_of(variable):
    """The `ModelState` whose adapters stand, or stood, in the encoder of a variable; None where nobody wrote one."""
    return getattr(variable, "_tf_adapters", None)


def _check_whose(model, family, state):
    """Raise InputError unless the adapters in the model's encoder are those that were added to this very model."""
    marks = [mark_of(variable) for norm in family.layer_norms(model, "all") for variable in norm.weights]
    others = [mark for mark in marks if mark is not None and mark.adapters and mark is not state]
    named = f"{type(model).__name__} {model.name!r}"
    if others:
        raise InputError(
            f"{{model}} stands on an encoder with adapters ({', '.join(others[0].adapters)}) that were added to "
            f"another model, {others[0].named}: go on with that one, remove_adapters from it, or load anew.",
            model=named,
        )
    if state is not None and state.adapters and not all(mark is state for mark in marks):
        raise InputError(
            f"{{model}} has another encoder than when its adapters ({', '.join(state.adapters)}) were added: put that "
            "one back, or load the model anew.",
            model=named,
        )


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
    return any(np.any(np.asarray(weight)) for weight in layer.weights if is_bias(weight.name))


def is_bias(name, *others):
    """Whether a variable is called a bias, or something else that counts as one: a LayerNorm's is `"beta"`."""
    return name.rpartition("/")[2].removesuffix(":0") in ("bias", *others)


def backbone_digest(model):
    """SHA-256 of the model's pretrained encoder as it was before any training; see `Origin`."""
    return state_of(model).digest(model)


def backbone_directory(model):
    """Folder of the files that `load_backbone` read, where the vocabulary is, or None for a model built otherwise."""
    return state_of(model).directory
