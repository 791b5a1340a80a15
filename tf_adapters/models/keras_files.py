"""What Keras itself writes of a model with adapters: files of its weights, and whole-model files, which are refused.

A file of weights holds what is on the model, and nothing that waits in `ModelState`.
"""

import functools
import json
import os
import zipfile

from tf_adapters.errors import InputError
from tf_adapters.models.origin import check_not_cast, checksum, is_cast
from tf_adapters.paths import read_json

# Keras builds a whole model anew from its configuration, which knows of no adapter; transformers and KerasHub drop
# weights that their classes have no place for. What acts, what trains and what the encoder has without adapters would
# be lost too.
REFUSAL = (
    "A file or copy of a whole model keeps no adapters: keep the adapter with tf_adapters.save_adapter(model, "
    "directory), or make the model a plain one first, by tf_adapters.remove_adapters(model) or, of LoRA, DoRA or "
    "(IA)^3 through door='transformers', by tf_adapters.merge_adapter(model)."
)


def refusing(sentence):
    """What stands for a method of Keras that a model with adapters cannot have."""

    def refuse(*arguments, **settings):
        raise NotImplementedError(sentence)

    return refuse


# For what writes a whole model, and for `get_config`, which Keras asks before it does. Where Keras writes computation
# alone, as in `export`, it passes over a `get_config` that is not implemented.
refuse = refusing(REFUSAL)


def check_all_is_on_the_model(name, adapters, enabled):
    """Raise InputError where a file of a model's weights would not hold all that its adapters need, or give it back."""
    if len(adapters) > 1:
        raise InputError(
            f"{name}: each adapter of the model ({', '.join(adapters)}) has its own head: use save_adapter."
        )
    if not enabled:
        raise InputError(f"{name}: inside disable_adapters(model) its LayerNorms are not on the model: do it outside.")


class KeptInDirectories:
    """Mixin for a layer that is there only while adapters are."""

    # Models around it may have a configuration without it. Keras saves assets in whole files, and none with weights.
    get_config = save_assets = refuse


class SiteInFiles(KeptInDirectories):
    """Mixin for a site, which Keras asks where it writes or reads the weights of a larger model around the encoder, and
    TensorFlow where `tf.train.Checkpoint` does."""

    def save_own_variables(self, store):
        self._check_in_files("save_weights")
        super().save_own_variables(store)

    def load_own_variables(self, store):
        self._check_in_files("load_weights")
        super().load_own_variables(store)

    def _trackable_children(self, save_type="checkpoint", **settings):
        if save_type == "checkpoint":
            self._check_in_files("tf.train.Checkpoint")
        return super()._trackable_children(save_type, **settings)

    def _check_in_files(self, name):
        acts = self.acting is None or not self.adapters or self.acting.number.numpy() != 0
        check_all_is_on_the_model(name, self.adapters, acts)


def watch(model, state):
    """Let `save_weights` and `load_weights` of a model, and of a backbone inside, do what is right by its `ModelState`.

    With one adapter, as Keras' ModelCheckpoint needs it, all that differs is on the model. With several, each has
    LayerNorms and a head that a file cannot hold, and inside `disable_adapters` it would hold those of nobody.
    """
    for one in (model, state.family.main_layer(model)):
        if hasattr(type(one), "load_weights"):
            vars(one)["save_weights"] = functools.partial(_save, one, state)
            vars(one)["load_weights"] = functools.partial(_load, one, model, state)
            vars(one)["set_weights"] = functools.partial(_set, one, model, state)


def _save(one, state, filepath, *arguments, **settings):
    check_all_is_on_the_model("save_weights", state.adapters, state.enabled)
    if str(filepath).endswith("5") and any(variable.dtype == "bfloat16" for variable in filter(is_cast, one.weights)):
        raise InputError("save_weights: no .h5 file gives back the bfloat16 of cast_frozen: leave .h5 out of the path.")
    return type(one).save_weights(one, filepath, *arguments, **settings)


def _set(one, model, state, weights):
    try:
        return type(one).set_weights(one, weights)
    finally:
        state.act(model)


def _load(one, model, state, filepath, *arguments, **settings):
    check_all_is_on_the_model("load_weights", state.adapters, state.enabled)
    before, undo = _frozen(model, state), state.door.Undo(model, state)
    for variable in one.weights:
        undo.remember(variable)
    try:
        result = _read(one, filepath, *arguments, **settings)
        _check_adapters_came(state, str(filepath))
        if _frozen(model, state) != before:
            if state.adapters:
                raise InputError(
                    "load_weights: the file is of another encoder, or one that was trained: load that encoder first, "
                    "add the adapter, and call set_trainable as then."
                )
            check_not_cast(model.weights, "load_weights of another encoder")
            state.forget_origin()
        return result
    except BaseException:
        undo.restore()
        raise
    finally:
        # A file may hold the switches of the model that wrote it.
        state.act(model)


def _read(one, filepath, *arguments, **settings):
    try:
        return type(one).load_weights(one, filepath, *arguments, **settings)
    except FileNotFoundError:
        raise
    # Of HDF5, of archives, of what lists several files, and of TensorFlow's checkpoints that end too early.
    except (OSError, zipfile.BadZipFile, json.JSONDecodeError, IndexError) as error:
        raise InputError(
            f"load_weights: {filepath} is damaged, or no file of weights ({error}); write it anew with save_weights."
        ) from error


def _check_adapters_came(state, path):
    """Raise InputError unless the adapter has the values of the file's: where it finds a part of them alone, since the
    adapter has another name, or stands or is shared otherwise, Keras says nothing."""
    wanted = [state.door.array(variable) for variable in state.adapter_variables()]
    shapes, read = {tuple(value.shape) for value in wanted}, {}
    if path.endswith((".h5", ".json")):
        import h5py

        for number, part in enumerate(_parts(path)):

            def look(name, item, number=number):
                if getattr(item, "shape", None) in shapes:
                    read[f"{number}/{name}"] = item[()]

            with h5py.File(part) as file:
                file.visititems(look)
    elif os.path.exists(f"{path}.index"):
        import tensorflow as tf

        reader = tf.train.load_checkpoint(path)
        for name, shape in reader.get_variable_to_shape_map().items():
            if ".OPTIMIZER_SLOT" not in name and tuple(shape) in shapes:
                read[name] = reader.get_tensor(name)
    else:
        return
    sums = {name: checksum(value) for name, value in read.items()}
    wanted = set(map(checksum, wanted))
    unread = [name for name, value in sums.items() if "adapters/" in name and value not in wanted]
    if unread or not wanted <= set(sums.values()):
        raise InputError(
            f"load_weights: {path} has another adapter than {state.active!r}: add one of its name, method and places."
        )


def _parts(path):
    """The HDF5 files of a file of weights: itself, or those that Keras 3 wrote beside an index (`max_shard_size`)."""
    if path.endswith(".h5"):
        return [path]
    files = read_json(path, "save it again")["weight_map"].values()
    names = {name for each in files for name in (each if isinstance(each, list) else [each])}
    return [os.path.join(os.path.dirname(path), name) for name in sorted(names)]


def _frozen(model, state):
    """Checksums of the encoder's weights that no training of this model changes."""
    trains = model.trainable_variables
    if state.trainable is None:
        config = None if state.active is None else state.owner.config
        trains = [] if config is None else state.layer_norm_variables(model, config.train_layer_norm, config.blocks)
    trains = {id(variable) for variable in trains}
    return [checksum(state.door.array(v)) for v in state.backbone_variables(model) if id(v) not in trains]
