"""A SavedModel of many tasks: text and the name of a task in, each row answered by its own."""

import pathlib

import tensorflow as tf

from tf_adapters._types import PathLike
from tf_adapters.errors import InputError
from tf_adapters.models.transformers.site import replaced
from tf_adapters.serving.bank import AdapterBank
from tf_adapters.serving.export import STORAGES, given, module_of, stored_as, write_version
from tf_adapters.serving.places import check_version_directory
from tf_adapters.serving.shards import share_backbone


def export_bank(bank: AdapterBank, directory: PathLike, *, storage: str = "float32") -> pathlib.Path:
    """Write a version directory for TensorFlow Serving with all tasks of a bank.

    Loading it needs tensorflow and tensorflow-text and nothing else. Its signatures:

    - `serving_default`: `text` and `task`, strings `(batch,)`, in any order and mixture; `text_pair`, which servers may
      leave out, is read for tasks on pairs alone.
    - `tokens`: `input_ids`, int32 `(batch, length)`, and `task`; servers may leave out `attention_mask` (then what is
      not padding counts) and `token_type_ids` (then zeros).
    - `labels`: `task`; `labels`, strings `(batch, widest)`, the names in the order of the probabilities.
    - `tasks`: no input; `task` and `kind`, strings `(tasks,)`.

    The outputs of the first two are those of a call of the bank. A row whose task is unknown, or whose text is not
    UTF-8, has an `error` that says so, and the other rows are answered.

    The variables lie in two files. The first holds the encoder: where an older version in the same folder has the same,
    the new one is a hard link to it and takes no space of its own.

    Args:
        bank: an `AdapterBank` with at least one task; free room in it is given back. Changes wait until it is written.
        directory: path of the new version, whose last part is a number: `serving/all/1`.
        storage: str, how frozen kernels and embeddings of the encoder are stored, as in `export_saved_model`; how
            adapters are is the bank's own.

    Returns: path of the directory. It appears when it is complete.

    Raises:
        InputError: the directory is there, its name is no number, or it cannot be written; an empty bank.
    """
    directory = check_version_directory(directory)
    if storage not in STORAGES:
        raise InputError(f"{{storage}} is unknown: use one of {', '.join(map(repr, STORAGES))}.", storage=storage)
    if not isinstance(bank, AdapterBank) or not bank.tasks:
        raise InputError("{bank} must be an AdapterBank with at least one task: add(name, directory).", bank=bank)
    bank.trim()
    stored = stored_as(bank.backbone, storage)
    encoder = [*bank.backbone.weights, *(variable for _, _, variable in stored)]
    # Saving traces the signatures once more.
    with bank.fixed_tasks() as table:
        tasks = {
            name: {
                "kind": task.kind,
                "labels": list(task.labels),
                "text_pairs": task.text_pairs,
                "max_length": task.max_length,
            }
            for name, task in bank.tasks.items()
        }
        about = {
            "tasks": tasks,
            "text": {name: value for name, value in bank.tokenizer.settings().items() if name != "max_length"},
            "storage": {"backbone": storage, "adapters": bank.storage},
            "backbone_sha256": bank.digest,
        }
        functions = _functions(bank, stored)
        root = module_of(functions, text=bank.tokenizer, table=table)
        # The encoder's variables first and in an order of their own, so that their file does not depend on the tasks.
        read = {id(variable): variable for variable in root.read}
        shared = [read.pop(id(variable)) for variable in encoder if id(variable) in read]
        root.read = [*shared, *read.values()]
        return write_version(
            directory, root, functions, about, finish=lambda path: share_backbone(path, len(shared), directory.parent)
        )


def _functions(bank, stored):
    def with_storage(function):
        def traced(*arguments):
            with (
                bank.tracing,
                replaced([(layer, attribute, tf.cast(variable, tf.float32)) for layer, attribute, variable in stored]),
            ):
                return function(*arguments)

        return traced

    answer_texts, answer_tokens = with_storage(bank.answer_texts), with_storage(bank.answer_tokens)
    text, task = (tf.TensorSpec([None], tf.string, name=name) for name in ("text", "task"))
    pair = tf.TensorSpec([None], tf.string, name="text_pair")
    no_pair, nothing = tf.constant([], tf.string), tf.zeros([0, 0], tf.int32)
    ids = [
        tf.TensorSpec([None, None], tf.int32, name=name) for name in ("input_ids", "attention_mask", "token_type_ids")
    ]

    @tf.function(input_signature=[text, task, pair], autograph=False)
    def serving_default(text, task, text_pair=no_pair):
        return answer_texts(text, given(text_pair, tf.zeros_like(text)), task)

    @tf.function(input_signature=[ids[0], task, *ids[1:]], autograph=False)
    def tokens(input_ids, task, attention_mask=nothing, token_type_ids=nothing):
        return answer_tokens({
            "input_ids": input_ids,
            "task": task,
            "attention_mask": given(attention_mask, tf.cast(input_ids != bank.tokenizer.pad_id, tf.int32)),
            "token_type_ids": given(token_type_ids, tf.zeros_like(input_ids)),
        })  # fmt: skip

    @tf.function(input_signature=[task], autograph=False)
    def labels(task):
        return {"labels": bank.label_names(task)}

    names, kinds = tf.constant(list(bank.tasks)), tf.constant([task.kind for task in bank.tasks.values()])

    @tf.function(input_signature=[], autograph=False)
    def tasks():
        return {"task": tf.identity(names), "kind": tf.identity(kinds)}

    return {"serving_default": serving_default, "tokens": tokens, "labels": labels, "tasks": tasks}
