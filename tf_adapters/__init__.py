"""Bottleneck adapters for the TensorFlow encoders of HuggingFace transformers, native to Keras.

The names below are imported at first use, so that `import tf_adapters` costs
milliseconds and brings in nothing that is not needed.
"""

import importlib
import os
import sys

from tf_adapters._installation import check_installation
from tf_adapters._submodules import submodules_of
from tf_adapters._version import __version__

_installation_error = None
try:
    check_installation()
except ImportError as error:
    # The console script imports this package before its own code can catch the error, and shows it then.
    if os.path.basename(sys.argv[0]) != "tf-adapters":
        raise
    _installation_error = error

_PUBLIC = {
    "AdapterBank": "serving.bank",
    "AdapterConfig": "methods.bottleneck",
    "AdapterLayer": "methods.bottleneck",
    "FusionConfig": "methods.fusion",
    "IA3Config": "methods.ia3",
    "InputError": "errors",
    "LoraConfig": "methods.lora",
    "Experiment": "training.experiment",
    "Recipe": "recipes",
    "TrainingSettings": "training.settings",
    "WordPiece": "text.wordpiece",
    "ByteLevelBpe": "text.byte_bpe",
    "SentencePiece": "text.sentencepiece",
    "load_tokenizer": "text.loading",
    "active_adapter": "models.injection",
    "adapter_names": "models.injection",
    "add_adapters": "models.injection",
    "backbone_digest": "models.state",
    "backbone_directory": "models.state",
    "cast_frozen": "models.storage",
    "change_head": "models.loading",
    "disable_adapters": "models.injection",
    "evaluate": "pipeline",
    "export_bank": "serving.export_bank",
    "export_saved_model": "serving.export",
    "fit": "training.fit",
    "freeze": "models.trainable",
    "fuse_adapters": "saving.fusing",
    "frozen_digest": "models.trainable",
    "get_recipe": "recipes",
    "load_adapter": "saving.directory",
    "load_backbone": "models.loading",
    "load_pretrained_adapter": "saving.pretrained",
    "load_task": "tasks",
    "load_trained": "saving.directory",
    "make_strategy": "training.strategies",
    "merge_adapter": "models.merging",
    "parameter_counts": "models.trainable",
    "predict": "pipeline",
    "pretrain": "training.pretrain",
    "remove_adapters": "models.injection",
    "save_adapter": "saving.directory",
    "set_active": "models.injection",
    "set_trainable": "models.trainable",
    "task_from_files": "tasks",
    "texts_from_files": "tasks.unlabelled",
    "without_labels": "tasks.unlabelled",
}
# They need an extra, and so are not in __all__: `from tf_adapters import *` works without it.
_OF_EXTRAS = {
    "AdapterHyperModel": "tuning.hypermodel",
    "AdapterTuner": "tuning.tuner",
}
__all__ = ["__version__", *sorted(_PUBLIC)]
_submodule = submodules_of(__name__)


def __getattr__(name):
    module = _PUBLIC.get(name) or _OF_EXTRAS.get(name)
    if module is None:
        return _submodule(name)
    value = getattr(importlib.import_module(f"tf_adapters.{module}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted([*globals(), *__all__, *_OF_EXTRAS])
