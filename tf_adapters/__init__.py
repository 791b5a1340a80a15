"""Bottleneck adapters for the TensorFlow encoders of HuggingFace transformers, native to Keras.

The names below are imported at first use, so that `import tf_adapters` costs
milliseconds and brings in nothing that is not needed.
"""

import importlib
import os
import sys

from tf_adapters._installation import __version__, check_installation, submodules_of

try:
    check_installation()
except ImportError:
    # The command line imports this package before its own code can catch the error, and shows it then. While Python
    # looks for what `-m` names, that is not in sys.argv yet.
    by_module = sys.argv[0] == "-m" and "tf_adapters" in sys.orig_argv
    if os.path.basename(sys.argv[0]) != "tf-adapters" and not by_module:
        raise

# Read when TensorFlow first computes: on a CPU it then keeps the memory that tensors leave, which the system would have
# to clear for each step anew. The limit, 64 GiB unless it is said, is beyond any machine.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", str(2**24))

# What most programs need. The rest is public in its room: `tf_adapters.models.freeze`, `tf_adapters.text.WordPiece`.
_PUBLIC = {
    "AdapterBank": "serving.bank",
    "AdapterConfig": "methods.bottleneck",
    "Experiment": "training.experiment",
    "InputError": "errors",
    "LoraConfig": "methods.lora",
    "TrainingSettings": "training.settings",
    "add_adapters": "models.injection",
    "disable_adapters": "models.injection",
    "evaluate": "pipeline",
    "export_bank": "serving.export",
    "export_saved_model": "serving.export",
    "fit": "training.fit",
    "get_recipe": "recipes",
    "load_adapter": "saving.directory",
    "load_backbone": "models.door",
    "load_task": "tasks",
    "load_tokenizer": "text.tokenizer",
    "load_trained": "saving.directory",
    "merge_adapter": "models.injection",
    "parameter_counts": "models.trainable",
    "predict": "pipeline",
    "pretrain": "training.pretrain",
    "remove_adapters": "models.injection",
    "save_adapter": "saving.directory",
    "set_active": "models.injection",
    "set_trainable": "models.trainable",
    "task_from_files": "tasks",
}
__all__ = ["__version__", *sorted(_PUBLIC)]
_submodule = submodules_of(__name__)


def __getattr__(name):
    module = _PUBLIC.get(name)
    if module is None:
        return _submodule(name)
    value = getattr(importlib.import_module(f"tf_adapters.{module}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted([*globals(), *__all__])
