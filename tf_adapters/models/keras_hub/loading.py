"""Pretrained encoders as models of KerasHub, with the checkpoint's own numbers."""

from tf_adapters.errors import InputError
from tf_adapters.json_input import read_json
from tf_adapters.models.heads import check_head
from tf_adapters.models.keras_hub import door
from tf_adapters.models.keras_hub.checkpoint import activation_of, follow, follow_in_head
from tf_adapters.models.keras_hub.families import FAMILIES
from tf_adapters.models.keras_hub.heads import HEADS
from tf_adapters.models.loading import find_here
from tf_adapters.models.state import state_of
from tf_adapters.models.weight_files import WEIGHT_FILES, check_finite, open_weights


def load_backbone(source, *, head="classification", num_labels=2, labels=None, dtype=None):
    """Load a pretrained encoder as a model of KerasHub; see `tf_adapters.load_backbone`.

    KerasHub's own converters leave out what a checkpoint says of its activation, its epsilon and its token types
    (`docs/keras-hub.md`). Here hidden states are those of transformers' TensorFlow models within 1e-5.

    Args:
        source: as of `tf_adapters.load_backbone`; not the hub.
        head: `"classification"`, `"token-classification"`, `"question-answering"`, `"multiple-choice"`, `"masked-lm"`
            or `"none"`, which is the backbone.
        num_labels, labels: as of `tf_adapters.load_backbone`.
        dtype: dtype or dtype policy of Keras for the backbone; None for the global one.

    Returns: a KerasHub task model or backbone.
    """
    check_head(num_labels, labels, head, 1)
    directory = find_here(source)
    if directory is None:
        raise InputError("{source} is no directory here: fetch the model first, and give its directory.", source=source)
    config = read_json(directory / "config.json")
    model_type = config.get("model_type")
    if model_type not in FAMILIES:
        raise InputError(
            f"{{model_type}} has no backbone of this door: it has {', '.join(sorted(FAMILIES))}.", model_type=model_type
        )
    family = FAMILIES[model_type]
    known = [*family.tasks, *HEADS, "none"]
    if head not in known:
        raise InputError(f"{{head}}: {model_type} of this door has {', '.join(map(repr, known))}.", head=head)
    model = _build(family, config, head, num_labels if labels is None else len(labels), dtype, directory)
    lacks_pooler, found = _read_weights(model, family, directory)
    if labels is not None:
        about = door.config_of(model)
        about.id2label = dict(enumerate(labels))
        about.label2id = {label: index for index, label in enumerate(labels)}
    state = state_of(model)
    state.pretrained_head = all(id(variable) in found for variable in state.head_variables(model))
    state.source, state.directory = str(source), str(directory)
    if lacks_pooler and family.reads_pooler(model):
        state.newly_initialized = [family.pooler(model)]
    door.keep_float32(model, state)
    return model


def _build(family, config, head, num_labels, dtype, directory):
    try:
        backbone = family.backbone(**family.arguments(config), dtype=dtype)
        activation_of(config)
    except InputError:
        raise
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{directory / 'config.json'} describes no encoder that KerasHub can build ({str(error)[:200]}): restore "
            "the file."
        ) from error
    follow(backbone, family, {**config, "model_type": family.model_type})
    if head == "none":
        return backbone
    if head == "masked-lm":
        model = family.tasks[head](backbone)
        follow_in_head(model, family, backbone._tf_adapters_checkpoint)
        return model
    if head == "classification":
        return family.tasks[head](backbone, num_classes=num_labels, **family.head_arguments(config, backbone))
    return HEADS[head](backbone, num_labels, **HEADS[head].arguments(family, config, backbone))


def _read_weights(model, family, directory):
    """Assign every weight of the checkpoint, one tensor in memory at a time.

    Returns: whether it lacks the pooler, and the ids of the variables that it has.
    """
    named = {name: (variable, transposed) for variable, name, transposed in family.names(model)}
    prefix, missing, read = family.prefix_name + ".", [], set()
    with open_weights(directory, WEIGHT_FILES) as weights:
        bare = not any(key.startswith(prefix) for key in weights)
        keys = {prefix + key if bare else key: key for key in weights}
        for name, (variable, transposed) in named.items():
            if name not in keys:
                missing.append(name)
                continue
            turned = transposed and weights.pytorch_layout
            expected, found = door.shape(variable), weights.shape(keys[name])
            if found != (expected[::-1] if turned else expected):
                if not name.startswith(prefix):
                    continue  # a head for another number of labels
                raise InputError(
                    f"{weights.path}: {keys[name]} has shape {found}, and config.json asks for {expected}."
                )
            value = weights.read(keys[name])
            check_finite({keys[name]: value}, weights.path)
            variable.assign((value.T if turned else value).reshape(tuple(variable.shape)))
            read.add(id(variable))
        pooler = f"{prefix}{family.pooler_name}." if family.pooler_name else None
        lost = [name for name in missing if name.startswith(prefix) and not (pooler and name.startswith(pooler))]
        if lost:
            raise InputError(
                f"{weights.path} lacks {len(lost)} weights of the encoder that config.json describes, {lost[0]} the "
                "first: the file belongs to another architecture or is incomplete."
            )
    return any(pooler and name.startswith(pooler) for name in missing), read
