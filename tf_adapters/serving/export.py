"""SavedModels for TensorFlow Serving, of one task or of a bank: raw text in, labels out."""

import hashlib
import pathlib
from typing import TYPE_CHECKING, Any, Dict, Optional

import tensorflow as tf

from tf_adapters._types import Model, PathLike
from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.kinds.kind import NOT_FINITE, NOT_UTF8
from tf_adapters.models.door import only_on_tensorflow
from tf_adapters.models.injection import merged
from tf_adapters.models.state import state_of
from tf_adapters.models.transaction import replaced
from tf_adapters.ranges import check_choice
from tf_adapters.saving.directory import kind_of_model
from tf_adapters.serving.versions import STORAGES, check_version_directory, write_version
from tf_adapters.tasks.labels import check_joinable
from tf_adapters.tasks.own_files import get_reader
from tf_adapters.text.batching import default_lengths
from tf_adapters.text.tokenizer import INPUTS, Tokenizer, check_text, is_utf8

if TYPE_CHECKING:
    from tf_adapters.serving.bank import AdapterBank


def export_saved_model(
    model: Model,
    directory: PathLike,
    *,
    text: Tokenizer,
    task: Optional[Dict[str, Any]] = None,
    storage: str = "float32",
) -> pathlib.Path:
    """Write a version directory for TensorFlow Serving.

    Loading it needs tensorflow and tensorflow-text and nothing else. Its signatures:

    - `serving_default`: `text`, strings `(batch,)`, and for tasks on pairs `text_pair`; for a token classification,
      `text` whose words white space separates; for question answering, `question` and `context`. Of any number, any
      length, empty too; tokens and windows are those of training.
    - `tokens` and `tokens_int64`: `input_ids`, `(batch, length)`, in int32 and in int64; requests may leave out
      `attention_mask` (then what is not padding counts) and `token_type_ids` (then zeros), or give -1 for them.
      [CLS] at a row's end is padding of the server's. They have numbers alone, so that OpenVINO, which knows no
      strings, can convert them. TensorFlow's own `signatures[...]` in Python wants every input, and so the loaded
      object has a function `tokens` too, of either dtype, where they may be left out.
    - `serving_jit`: as `serving_default`, compiled by XLA, once for each batch size and each of at most six
      lengths, at the first request of that shape.
    - `labels`: no input; `labels`, strings `(labels,)`.

    The outputs are float32 `logits`, `(batch, outputs)`, and by the kind of task `label` (string) and
    `probabilities`; `labels` (strings joined by `|`) and `probabilities`; or `value`. Of a token classification they
    have one entry for each `word`, `(batch, words)`, with empty strings and zeros behind the last; `probabilities` is
    the label's. Question answering has `answer`, `start`, `end`, `probability`, `n_best` and `n_best_probabilities`. Of
    texts there is also `error`, strings `(batch,)`: empty; or that the row's text is not UTF-8, which is answered with
    U+FFFD in the places; or that its logits are not finite, and then the row has empty strings and zeros.

    Args:
        model: a model with a head for sequences, tokens or questions, its active adapter included.
        directory: path of the new version, whose last part is a number: `serving/sst2/1`.
        text: `Tokenizer` of training.
        task: dict with `kind`, `text_pairs` and `value_range` as an adapter directory's settings have it under
            "task", or None for a classification of single texts.
        storage: str, how frozen kernels and embeddings are stored: `"float32"`, or `"bfloat16"` or `"float16"` in
            half the space, to be cast at each request; results then differ by their rounding.

    Returns: path of the directory. It appears when it is complete.

    Raises:
        InputError: the directory is there, its name is no number, or it cannot be written; a kind of task
            that is not the model's; a model of KerasHub on JAX or PyTorch.
    """
    only_on_tensorflow(model, "export_saved_model")
    directory = check_version_directory(directory)
    check_choice("storage", storage, STORAGES)
    check_text(model, text)
    task = task or {}
    kind = get_kind(kind_of_model(model, task))
    kind.check_model(model, f"task={task!r}")
    config = state_of(model).door.config_of(model)
    names = [config.id2label[index] for index in range(config.num_labels)]
    check_joinable(names, kind.name)
    about = {
        "task": task,
        "labels": names,
        "text": text.settings(),
        "storage": storage,
        "backbone_sha256": state_of(model).digest(model),
    }
    # LoRA and (IA)^3 cost nothing in a graph whose weights have them.
    with merged(model):
        root, functions = _served(model, text, kind, task, names, storage)
        return write_version(directory, root, functions, about)


def _served(model, text, kind, task, names, storage):
    """What to save: an object with the variables, tables and constants that the graphs read, and the signatures.

    The model is not a part of it: its layers' own functions would be saved too.
    """
    names = tf.constant(names) if get_reader(kind.name).named else None
    stored, door, family = _stored_as(model, storage), state_of(model).door, state_of(model).family

    def logits(inputs):
        with (
            door.plain(model),
            replaced([(layer, attribute, tf.cast(variable, tf.float32)) for layer, attribute, variable in stored]),
        ):
            return tf.cast(door.logits_of_rows(model, inputs), tf.float32)

    compiled = tf.function(logits, jit_compile=True, autograph=family.autograph)
    # The largest part of each signature, which all of them call.
    logits = tf.function(logits, input_signature=[dict(zip(INPUTS, _ids(tf.int32)))], autograph=family.autograph)

    def answer(score, *texts, lengths=None):
        def forward(encoded):
            longest = tf.reduce_max(tf.concat([encoded["input_ids"].row_lengths(), [1]], 0))
            if lengths is not None:
                longest = tf.reduce_min(tf.boolean_mask(lengths, lengths >= longest))
            return score(text.pad(encoded, length=longest))

        readable = [is_utf8(strings) for strings in texts]
        # Of several strings in a row all count.
        readable = tf.reduce_all([each if each.shape.rank == 1 else tf.reduce_all(each, 1) for each in readable], 0)
        answers = kind.serve(texts, text, forward, names, task)
        finite = answers.pop("finite")
        answers = {
            name: tf.where(_like(finite, values), values, tf.zeros([], values.dtype))
            for name, values in answers.items()
        }
        return {**answers, "error": tf.where(finite, tf.where(readable, "", NOT_UTF8), NOT_FINITE)}

    lengths = tf.constant(default_lengths(text.max_length), tf.int64)
    texts = [kind.served_spec(name) for name in kind.served_texts(task)]

    @tf.function(autograph=False)
    def tokens(input_ids, attention_mask=-1, token_type_ids=-1):
        inputs = _completed(text, input_ids, attention_mask, token_type_ids)
        return kind.served_tokens(logits(inputs), task)

    def tokens_of(dtype):
        ids, absent = _ids(dtype), tf.constant([[-1]], dtype)
        traced = tokens.get_concrete_function(*_optional(ids))

        @tf.function(input_signature=ids, autograph=False)
        def of_dtype(input_ids, attention_mask=absent, token_type_ids=absent):
            return traced(input_ids, attention_mask, token_type_ids)

        return of_dtype

    functions = {
        "serving_default": tf.function(lambda *texts: answer(logits, *texts), input_signature=texts, autograph=False),
        "tokens": tokens_of(tf.int32),
        "tokens_int64": tokens_of(tf.int64),
        "serving_jit": tf.function(
            lambda *texts: answer(compiled, *texts, lengths=lengths), input_signature=texts, autograph=False
        ),
    }
    if names is not None:
        functions["labels"] = tf.function(lambda: {"labels": tf.identity(names)}, input_signature=[], autograph=False)
    return module_of(functions, text=text, tokens=tokens), functions


def _like(rows, values):
    """A tensor `(rows,)` with as many axes as another has."""
    return tf.reshape(rows, [-1, *[1] * (values.shape.rank - 1)])


def export_bank(bank: "AdapterBank", directory: PathLike, *, storage: str = "float32") -> pathlib.Path:
    """Write a version directory for TensorFlow Serving with all tasks of a bank.

    Loading it needs tensorflow and tensorflow-text and nothing else. Its signatures:

    - `serving_default`: `text` and `task`, strings `(batch,)`, in any order and mixture. Where the bank has tasks on
      pairs also `text_pair`, which servers may leave out; it is read for these tasks alone.
    - `tokens` and `tokens_int64`: `task`, and the rest as in `export_saved_model`.
    - `labels`: `task`; `labels`, strings `(batch, widest)`, the names in the order of the probabilities.
    - `tasks`: no input; `task` and `kind`, strings `(tasks,)`.

    The loaded object has functions `serving_default` and `tokens` too, for Python, as in `export_saved_model`.

    The outputs of the first three are those of a call of the bank. A row whose task is unknown, or whose text is not
    UTF-8, has an `error` that says so, and the other rows are answered.

    `assets.extra/tf_serving_warmup_requests` has requests that TensorFlow Serving answers for itself before it says
    that the version is available.

    Args:
        bank: an `AdapterBank` with at least one task. Changes wait until it is written, and its adapters are in memory
            twice meanwhile.
        directory: path of the new version, whose last part is a number: `serving/all/1`.
        storage: str, how frozen kernels and embeddings of the encoder are stored, as in `export_saved_model`; how
            adapters are is the bank's own.

    Returns: path of the directory. It appears when it is complete.

    Raises:
        InputError: the directory is there, its name is no number, or it cannot be written; an empty bank.
    """
    from tf_adapters.serving.bank import AdapterBank

    directory = check_version_directory(directory)
    check_choice("storage", storage, STORAGES)
    if not isinstance(bank, AdapterBank) or not bank.tasks:
        raise InputError("{bank} must be an AdapterBank with at least one task: add(name, directory).", bank=bank)
    with bank.packed() as tasks:
        names = tf.lookup.KeyValueTensorInitializer(
            tf.constant(list(tasks.tasks)), tf.range(1, 1 + len(tasks.tasks), dtype=tf.int32)
        )
        table = tf.lookup.StaticHashTable(names, default_value=-1)
        functions, in_python = _functions_of_bank(tasks, table, _stored_as(bank.backbone, storage))
        root = module_of(functions, text=bank.tokenizer, table=table, **in_python)
        told = ("kind", "labels", "text_pairs", "max_length")
        about = {
            "tasks": {name: {key: getattr(task, key) for key in told} for name, task in tasks.tasks.items()},
            "text": {name: value for name, value in bank.tokenizer.settings().items() if name != "max_length"},
            "storage": {"backbone": storage, "adapters": bank.storage},
            "backbone_sha256": bank.digest,
        }
        return write_version(directory, root, functions, about, task=list(tasks.tasks)[:8])


def _functions_of_bank(tasks, table, stored):
    """The signatures, and what Python calls in the place of two of them; dicts from name to `tf.function`."""
    graph = tasks.graph
    text, task, pair = (tf.TensorSpec([None], tf.string, name=name) for name in ("text", "task", "text_pair"))
    no_pair = tf.constant([""])

    # The largest part of each signature, which all of them call.
    @tf.function(input_signature=[dict(zip(INPUTS, _ids(tf.int32))), graph.column_specs()], autograph=False)
    def logits(inputs, columns):
        with replaced([(layer, attribute, tf.cast(of, tf.float32)) for layer, attribute, of in stored]):
            return graph.logits(inputs, columns)

    @tf.function(autograph=False)
    def texts(text, task, text_pair=""):
        absent = tf.reduce_all(text_pair == "")
        text_pair = tf.cond(absent, lambda: tf.zeros_like(text), lambda: tf.reshape(text_pair, [-1]))
        return graph.answer_texts(text, text_pair, task, table.lookup(task), tasks.tables, logits)

    traced_texts = texts.get_concrete_function(text, task, tf.TensorSpec(None, tf.string, name="text_pair"))

    @tf.function(input_signature=[text, task], autograph=False)
    def of_texts(text, task):
        return traced_texts(text, task, no_pair)

    @tf.function(input_signature=[text, task, pair], autograph=False)
    def of_pairs(text, task, text_pair=no_pair):
        return traced_texts(text, task, text_pair)

    @tf.function(autograph=False)
    def tokens(input_ids, task, attention_mask=-1, token_type_ids=-1):
        inputs = _completed(graph.tokenizer, input_ids, attention_mask, token_type_ids)
        return graph.answer_tokens(inputs, task, table.lookup(task), tasks.tables, logits)

    def tokens_of(dtype):
        (ids, *optional), absent = _ids(dtype), tf.constant([[-1]], dtype)
        traced = tokens.get_concrete_function(ids, task, *_optional([ids, *optional])[1:])

        @tf.function(input_signature=[ids, task, *optional], autograph=False)
        def of_dtype(input_ids, task, attention_mask=absent, token_type_ids=absent):
            return traced(input_ids, task, attention_mask, token_type_ids)

        return of_dtype

    @tf.function(input_signature=[task], autograph=False)
    def labels(task):
        return {"labels": tf.gather(tasks.tables["labels"], tf.maximum(table.lookup(task), 0))}

    names, kinds = tf.constant(list(tasks.tasks)), tf.constant([of.kind for of in tasks.tasks.values()])

    @tf.function(input_signature=[], autograph=False)
    def known():
        return {"task": tf.identity(names), "kind": tf.identity(kinds)}

    default = of_pairs if any(of.text_pairs for of in tasks.tasks.values()) else of_texts
    signatures = {"serving_default": default, "tokens": tokens_of(tf.int32), "tokens_int64": tokens_of(tf.int64)}
    return {**signatures, "labels": labels, "tasks": known}, {"serving_default": texts, "tokens": tokens}


def module_of(functions, **parts):
    """A `tf.Module` with the variables that functions read, and parts that they need (tables, constants)."""
    root = tf.Module(name="served")
    for name, part in parts.items():
        setattr(root, name, part)
    read = [variable for function in functions.values() for variable in function.get_concrete_function().variables]
    # TensorFlow gives them in another order in each process; the same model is to be the same file. Of Keras 3 several
    # have one name.
    read = {id(variable): variable for variable in read}.values()
    root.read = sorted(read, key=lambda variable: (variable.name, hashlib.sha256(variable.numpy().tobytes()).digest()))
    return root


def _ids(dtype):
    """The `tf.TensorSpec`s of `INPUTS`."""
    return [tf.TensorSpec([None, None], dtype, name=name) for name in INPUTS]


def _optional(ids):
    """Specs of ids, of which all but the first may be the number -1."""
    return [ids[0], *(tf.TensorSpec(None, spec.dtype, name=spec.name) for spec in ids[1:])]


def _completed(tokenizer, input_ids, attention_mask, token_type_ids):
    """A dict of `INPUTS`, int32; rows of -1 in the mask and the types follow from the ids; in a graph."""
    ids, mask, types = (tf.saturate_cast(values, tf.int32) for values in (input_ids, attention_mask, token_type_ids))

    def given(values, otherwise):
        def rows():
            missing = tf.shape(otherwise)[1] - tf.shape(values)[1]
            whole = tf.reshape(tf.pad(values, [[0, 0], [0, missing]], constant_values=-1), tf.shape(otherwise))
            return tf.where(whole < 0, otherwise, whole)

        return tf.cond(tf.reduce_all(values < 0), lambda: otherwise, rows)

    # A server that batches requests pads each input by its first element, to the longest that there is of it: ids by
    # [CLS], a mask by 1.
    places = tf.range(tf.shape(ids)[1])
    last = tf.reduce_max(tf.where(ids != tokenizer.cls_id, places, 0), 1, keepdims=True)
    mask = tf.where(places <= last, given(mask, tf.cast(ids != tokenizer.pad_id, tf.int32)), 0)
    return dict(zip(INPUTS, (ids, mask, given(types, tf.zeros_like(ids)))))


def _stored_as(model, storage):
    """What to read in place of some layers' weights: list of `(layer, attribute, variable)`."""
    if storage == "float32":
        return []
    state = state_of(model)
    sites = [site for site in state.sites.values() if getattr(site, "merged", None) is not None]
    merged, unread = [site.merged for site in sites], {id(site.dense.kernel) for site in sites}
    known = [variable for variable in state.backbone_variables(model) if len(state.door.shape(variable)) == 2]
    known = [variable for variable in known if id(variable) not in unread] + [layer.kernel for layer in merged]
    matrices = {id(variable) for variable in known if tf.as_dtype(variable.dtype) == tf.float32}
    return [
        (layer, attribute, tf.Variable(tf.cast(variable, storage), trainable=False, name=attribute.lstrip("_")))
        for layer in [*state.door.layers_of(state.family.main_layer(model)), *merged]
        for attribute, variable in list(vars(layer).items())
        if id(variable) in matrices
    ]
