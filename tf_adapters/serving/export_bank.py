"""A SavedModel of many tasks: text and the name of a task in, each row answered by its own."""

import pathlib

import tensorflow as tf

from tf_adapters._types import PathLike
from tf_adapters.errors import InputError
from tf_adapters.models.transformers.site import replaced
from tf_adapters.serving.bank import AdapterBank
from tf_adapters.serving.bank_files import BankLayout
from tf_adapters.serving.export import STORAGES, given, module_of, stored_as, write_version
from tf_adapters.serving.places import check_version_directory


def export_bank(bank: AdapterBank, directory: PathLike, *, storage: str = "float32") -> pathlib.Path:
    """Write a version directory for TensorFlow Serving with all tasks of a bank.

    Loading it needs tensorflow and tensorflow-text and nothing else. Its signatures:

    - `serving_default`: `text` and `task`, strings `(batch,)`, in any order and mixture. Where the bank has tasks on
      pairs also `text_pair`, which servers may leave out; it is read for these tasks alone.
    - `tokens`: `input_ids`, int32 `(batch, length)`, and `task`; servers may leave out `attention_mask` (then what is
      not padding counts) and `token_type_ids` (then zeros).
    - `labels`: `task`; `labels`, strings `(batch, widest)`, the names in the order of the probabilities.
    - `tasks`: no input; `task` and `kind`, strings `(tasks,)`.

    The outputs of the first two are those of a call of the bank. A row whose task is unknown, or whose text is not
    UTF-8, has an `error` that says so, and the other rows are answered.

    `assets.extra/tf_serving_warmup_requests` has requests that TensorFlow Serving answers for itself before it says
    that the version is available.

    The encoder lies in one file, tasks in others. What an older version in the same folder has, the new one has by hard
    links, which take no space: it writes the tasks that are new, the graphs and the list of the tasks. Where the file
    system has no links, files are copied. Tasks are written anew where they lie in many small files, or in files of
    which more than half is no longer used.

    Args:
        bank: an `AdapterBank` with at least one task; sizes that no task has are dropped. Changes wait until it is
            written.
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
    bank.drop_sizes()
    stored = stored_as(bank.backbone, storage)
    encoder = {id(variable): variable for variable in [*bank.backbone.weights, *(of for _, _, of in stored)]}
    with bank.unchanged():
        layout = BankLayout(bank)

        def weights():
            return replaced([(layer, attribute, tf.cast(of, tf.float32)) for layer, attribute, of in stored])

        # Saving traces the signatures once more.
        with bank.fixed_tasks(layout.slots, weights) as table, layout.in_graphs():
            functions = _functions(bank)
            root = module_of(functions, text=bank.tokenizer, table=table)
            read = {id(variable): variable for variable in root.read}
            # In an order of their own, so that their file does not depend on the tasks.
            root.encoder = [variable for number, variable in encoder.items() if number in read]
            root.rows = layout.variables
            apart = {id(variable) for variable in (*root.encoder, *root.rows.values())}
            root.read = [variable for number, variable in read.items() if number not in apart]
            keys = {f"encoder/{number}/.ATTRIBUTES/VARIABLE_VALUE" for number in range(len(root.encoder))}
            return write_version(
                directory, root, functions, _about(bank, storage),
                finish=lambda path: layout.write(path, keys, directory.parent), task=list(bank.tasks)[:8],
            )  # fmt: skip


def _about(bank, storage):
    tasks = {
        name: {
            "kind": task.kind, "labels": list(task.labels), "text_pairs": task.text_pairs, "max_length": task.max_length
        }
        for name, task in bank.tasks.items()
    }  # fmt: skip
    return {
        "tasks": tasks,
        "text": {name: value for name, value in bank.tokenizer.settings().items() if name != "max_length"},
        "storage": {"backbone": storage, "adapters": bank.storage},
        "backbone_sha256": bank.digest,
    }


def _functions(bank):
    text, task = (tf.TensorSpec([None], tf.string, name=name) for name in ("text", "task"))
    pair = tf.TensorSpec([None], tf.string, name="text_pair")
    no_pair, nothing = tf.constant([], tf.string), tf.zeros([0, 0], tf.int32)
    ids = [
        tf.TensorSpec([None, None], tf.int32, name=name) for name in ("input_ids", "attention_mask", "token_type_ids")
    ]

    @tf.function(input_signature=[text, task], autograph=False)
    def of_texts(text, task):
        return bank.answer_texts(text, tf.zeros_like(text), task)

    @tf.function(input_signature=[text, task, pair], autograph=False)
    def of_pairs(text, task, text_pair=no_pair):
        return bank.answer_texts(text, given(text_pair, tf.zeros_like(text)), task)

    @tf.function(input_signature=[ids[0], task, *ids[1:]], autograph=False)
    def tokens(input_ids, task, attention_mask=nothing, token_type_ids=nothing):
        return bank.answer_tokens({
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

    has_pairs = any(of.text_pairs for of in bank.tasks.values())
    default = of_pairs if has_pairs else of_texts
    return {"serving_default": default, "tokens": tokens, "labels": labels, "tasks": tasks}
