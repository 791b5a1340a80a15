"""One backbone and the adapters of many tasks: each row of a batch names its own."""

import contextlib
import dataclasses
import threading
from typing import Any, Dict, Optional, Union

import numpy as np
import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters._types import PathLike
from tf_adapters.errors import InputError
from tf_adapters.layers.bank import AdapterPool, HeadPool, RowStore, RowTable
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.loading import load_backbone
from tf_adapters.models.transformers.routing import Routes, encode, site_places
from tf_adapters.models.weight_files import check_finite
from tf_adapters.serving.answers import KINDS, answers_of, is_utf8
from tf_adapters.serving.locks import SharedLock
from tf_adapters.serving.task_parts import Encoder, is_encodable, read_task, task_parts
from tf_adapters.text.tokenizer import Tokenizer

# What a slot says, before the rows of its adapters at each site.
_COLUMNS = ("pool", "norms", "pooler", "head_pool", "head", "kind", "outputs", "text")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_LARGEST = np.finfo(np.float32).max


@dataclasses.dataclass(frozen=True)
class BankedTask:
    """What the bank knows of a task.

    Attributes:
        slot: int, its row in the bank's tables.
        kind: str, `"classification"`, `"multi-label"` or `"regression"`.
        labels: tuple of str; of a regression none.
        text_pairs: bool.
        max_length: int, tokens that are kept of its texts.
    """

    slot: int
    kind: str
    labels: tuple
    text_pairs: bool
    max_length: int
    rows: dict = dataclasses.field(repr=False, default_factory=dict)


class AdapterBank(keras.Model):
    """A pretrained encoder with many tasks' adapters, LayerNorms and heads, chosen per row of a batch.

    Adapters of any sharing, placement and blocks are kept once each, in one pool for each pair of bottleneck size
    and activation, and heads in one for each size (a power of two of outputs). An adapter of a size that is there is
    added, replaced and removed without a new trace; a new size costs one, and so do more labels than any task has.
    Calls and changes may come from several threads: a call sees a task as it was before a change or after it.

    Args:
        backbone: source of the encoder, as in `load_backbone`.
        storage: str, how adapters are kept: `"float32"`, or `"bfloat16"` or `"float16"` in half the space, cast for
            each batch; results then differ by their rounding. LayerNorms and heads stay float32.

    Call arguments:
        inputs: dict of `task`, strings `(batch,)`, and the int32 tensors `input_ids` and, if need be, `attention_mask`
            and `token_type_ids`, `(batch, length)`.

    Returns: dict of tensors with one row for each of the batch. `logits`, float32 `(batch, widest)`, of which the first
        `outputs`, int32 `(batch,)`, are the task's, and zeros follow; `probabilities`, likewise; `label`, string,
        several joined by `|`; `value`, float32, of a regression; and `error`, string, empty if there is an answer. The
        row of a task that is not in the bank, or whose logits are not finite, has zeros, and the error says so.

    Raises:
        InputError: the encoder cannot be loaded, an unknown storage.

    Example:
    >>> bank = AdapterBank("minilm").add("film", "adapters/film").add("spam", "adapters/sms")
    >>> answer = bank.answer(["a quiet film", "win a prize"], ["film", "spam"])
    >>> answer["error"].numpy().tolist()
    [b'', b'']
    """

    def __init__(self, backbone: Union[keras.Model, PathLike], *, storage: str = "float32") -> None:
        super().__init__(name="adapter_bank")
        if storage not in ("float32", "bfloat16", "float16"):
            raise InputError("{storage} is unknown: use 'float32', 'bfloat16' or 'float16'.", storage=storage)
        self.storage = storage
        self.backbone = load_backbone(backbone, head="none")
        if state_of(self.backbone).family.model_type != "bert":
            raise InputError(
                f"{{backbone}} has model_type={self.backbone.config.model_type!r}: a bank is for bert alone.",
                backbone=str(backbone),
            )
        self._encoder = Encoder.of(self.backbone)
        family = self._family = state_of(self.backbone).family
        self._places = {place: number for number, place in enumerate(site_places(self._encoder.depth))}
        self._norms = RowTable([RowStore(self._encoder.norms, name="layer_norms")])
        pooler = family.pooler(self.backbone)
        self._pooler_activation = pooler.dense.activation
        self._poolers = RowTable(
            [
                RowStore(variable, name=name)
                for variable, name in zip(pooler.dense.weights, ("pooler_kernel", "pooler_bias"))
            ]
        )
        self._slots = RowStore(np.zeros(len(_COLUMNS) + len(self._places), np.int32), name="slots")
        self._ranges = RowStore(np.array([-_LARGEST, _LARGEST], np.float32), name="ranges")
        labels = RowStore(np.array([b""] * 2), name="labels")
        self._rows = RowTable([self._slots, self._ranges, labels])
        # Of a graph that was traced before the bank's structure changed, no answer would be right.
        self._structure = tf.Variable(0, trainable=False, name="structure")
        self._table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int32, default_value=-1, name="tasks")
        self._book = _Book(labels)

    @property
    def _pools(self):
        return self._book.pools

    @property
    def _head_pools(self):
        return self._book.head_pools

    @property
    def _texts(self):
        return self._book.texts

    @property
    def _labels(self):
        return self._book.labels

    @property
    def digest(self) -> str:
        """SHA-256 of the encoder's weights, as adapter directories have it."""
        return self._encoder.digest

    @property
    def tasks(self) -> "Dict[str, BankedTask]":
        """The tasks in the bank: dict from name to `BankedTask`."""
        return dict(self._book.tasks)

    @property
    def tokenizer(self) -> Optional[Tokenizer]:
        """The tokenizer of all tasks, or None of a bank that is empty."""
        return self._book.tokenizer

    @property
    def nbytes(self) -> int:
        """Bytes that the adapters, LayerNorms and heads of all tasks take, free room included."""
        return sum(table.nbytes for table in self.tables)

    @property
    def tables(self):
        """Every `RowTable`."""
        return [*(pool.table for pool in (*self._pools, *self._head_pools)), self._norms, self._poolers, self._rows]

    def add(self, name: str, directory: PathLike) -> "AdapterBank":
        """Add the adapter directory of a task.

        Args:
            name: str, by which requests ask for it.
            directory: path, as `save_adapter` or `tf-adapters train` wrote it.

        Returns: the bank.

        Raises:
            InputError: the name is taken or empty; the adapter is of another encoder or tokenizer; it
                changed weights of the encoder itself, or answers words or spans. The bank is then as it was.
        """
        return self._put(name, directory, new=True)

    def replace(self, name: str, directory: PathLike) -> "AdapterBank":
        """Put another adapter directory in the place of a task, as `add` does; calls see the one or the other."""
        return self._put(name, directory, new=False)

    def remove(self, name: str) -> "AdapterBank":
        """Take a task out; requests for it are answered by an error. Returns the bank."""
        with self._change():
            self._check_name(name, new=False)
            self._table.remove(tf.constant([name]))
            self._release(self._book.tasks.pop(name).rows)
            return self

    def reserve(self, tasks: int, directory: PathLike) -> "AdapterBank":
        """Make room for that many more tasks like the one in a directory, so that the bank does not grow by
        doubling."""
        parts = self._parts(directory)
        with self._change():
            self._widen_labels(parts.outputs)
            self._head_pool(parts).table.reserve(tasks)
            self._rows.reserve(tasks)
            if parts.config is not None:
                self._pool(parts.config).table.reserve(tasks * len(parts.adapters))
            for table, part in ((self._norms, parts.norms), (self._poolers, parts.pooler)):
                if part is not None:
                    table.reserve(tasks)
            return self

    def trim(self) -> "AdapterBank":
        """Give back free room behind the last adapter, clear what removed ones left, and drop sizes that no task has.

        What comes next grows the bank again; a size that was dropped costs a trace.

        Returns: the bank.
        """
        with self._change():
            self._drop_unused()
            for table in self.tables:
                table.trim()
            return self

    def drop_sizes(self) -> "AdapterBank":
        """Drop sizes of adapters and heads that no task has, whose part of each graph is for nothing.

        Returns: the bank.
        """
        with self._change():
            self._drop_unused()
            return self

    def _drop_unused(self):
        self._drop(lambda pool: pool.table.used == 1)
        width = max([2, *(pool.width for pool in self._head_pools)])
        if width < self._labels.row_shape[0]:
            self._set_width(width)

    def call(self, inputs, training=False):
        if not tf.executing_eagerly():
            return self.answer_tokens(inputs)
        inputs = self._complete(inputs)
        with self._book.lock.shared():
            spec = {
                name: tf.TensorSpec([None] if name == "task" else [None, None], value.dtype)
                for name, value in inputs.items()
            }
            return self._run("tokens", self.answer_tokens, [spec], inputs)

    def predict(self, *arguments, **options):
        """As of every Keras model; changes of the bank wait until it is done."""
        with self._book.lock.shared():
            return super().predict(*arguments, **options)

    def predict_on_batch(self, x):
        """As of every Keras model; changes of the bank wait until it is done."""
        with self._book.lock.shared():
            return super().predict_on_batch(x)

    def answer(self, text: Any, task: Any, text_pair: Any = None) -> Dict[str, tf.Tensor]:
        """Answer texts, each by the task of its row.

        Args:
            text: strings, `(batch,)`.
            task: strings, `(batch,)`, or one for all.
            text_pair: strings, `(batch,)`, or None; what rows of tasks on single texts have there is not read.

        Returns: as a call does, with an error for the row of a text that is not UTF-8 too.

        Raises:
            InputError: other shapes.
        """
        text = tf.convert_to_tensor(text, tf.string)
        task = tf.convert_to_tensor(task, tf.string)
        if text.shape.rank != 1 or task.shape.rank > 1:
            raise InputError(
                f"text of shape {text.shape} and task of shape {task.shape}: give strings of shape (batch,)."
            )
        task = tf.broadcast_to(task, text.shape) if task.shape.rank == 0 else task
        text_pair = tf.zeros_like(text) if text_pair is None else tf.convert_to_tensor(text_pair, tf.string)
        if not text.shape == task.shape == text_pair.shape:
            raise InputError(
                f"text, task and text_pair have {text.shape[0]}, {task.shape} and {text_pair.shape} rows: give equally "
                "many."
            )
        if self._book.tokenizer is None:
            raise InputError(
                "The bank is empty: add(name, directory) a task first, whose settings say how texts are cut."
            )
        with self._book.lock.shared():
            spec = tf.TensorSpec([None], tf.string)
            return self._run("texts", self.answer_texts, [spec] * 3, text, text_pair, task)

    def answer_texts(self, text, text_pair, task):
        """`answer` for use inside a graph, on string tensors `(batch,)`.

        A graph is of the bank's structure when it was traced: after an adapter of a new size its rows have errors.
        """
        with self._book.tracing:
            with tf.control_dependencies([_same_rows(text, task, "text"), _same_rows(text_pair, task, "text_pair")]):
                task = tf.identity(task)
            slots, known = self._look_up(task)
            encoded = self._encode(text, text_pair, slots)
            longest = tf.reduce_max(tf.concat([encoded["input_ids"].row_lengths(), [1]], 0))
            logits = self._logits(self._book.tokenizer.pad(encoded, length=longest), slots)
            pairs = tf.gather([pairs for pairs, _ in self._texts], slots["text"])
            readable = is_utf8(text) & (is_utf8(text_pair) | ~pairs)
            return self._answers(logits, slots, task, known, readable)

    def hidden_states(self, inputs):
        """The encoder's last hidden states and the pooled first token, each row with its task's adapters.

        Args:
            inputs: as of a call; the task `""` is the plain encoder, bit for bit.

        Returns: float32 tensors `(batch, length, hidden)` and `(batch, hidden)`.
        """
        inputs = self._complete(inputs)
        with self._book.lock.shared():
            return self._encoder_outputs(inputs, self._look_up(inputs["task"])[0])

    # Graphs

    def unchanged(self):
        """A context in which changes of the bank wait."""
        return self._book.lock.shared()

    @contextlib.contextmanager
    def fixed_tasks(self, slots, weights=contextlib.nullcontext):
        """While this thread traces graphs, task names are looked up in a table that never changes, which the context
        yields.

        Args:
            slots: dict from the name of each task to its row among the slots.
            weights: function of a context in which the encoder's graph is traced.
        """
        with self.unchanged():
            keys, values = tf.constant(list(slots)), tf.constant(list(slots.values()), tf.int32)
            table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), default_value=-1)
            here = self._book.here
            with contextlib.ExitStack() as end:
                end.callback(vars(here).clear)
                here.table = table
                # All graphs that are traced now call the encoder's, which is the largest part of each.
                here.logits = self._shared_logits(weights)
                yield table

    def _shared_logits(self, weights):
        """`_logits_of` as a graph of its own."""

        def logits(inputs, slots):
            with self._book.tracing, weights():
                return self._logits_of(inputs, slots)

        ids = tf.TensorSpec([None, None], tf.int32)
        slots = {
            **dict.fromkeys((*_COLUMNS, "slot"), tf.TensorSpec([None], tf.int32)),
            "sites": tf.TensorSpec([None, len(self._places)], tf.int32),
        }
        return tf.function(logits, input_signature=[dict.fromkeys(INPUTS, ids), slots], autograph=False)

    def numbered_logits(self, inputs):
        """Logits where `task`, int32 `(batch,)`, is the place of each row's task in `tasks`; for use inside a graph.

        The graph has no strings, and no rows are sorted by their sizes: each size computes all rows, of which others'
        have its identity.

        Returns: dict of `logits`, float32 `(batch, widest)`, and `outputs`, int32 `(batch,)`.
        """
        places = tf.constant([task.slot for task in self._book.tasks.values()], tf.int32)
        with self._book.tracing, contextlib.ExitStack() as end:
            end.callback(vars(self._book.here).clear)
            self._book.here.whole = True
            slots = self._columns(tf.gather(places, inputs["task"]))
            return {"logits": self._logits(inputs, slots), "outputs": slots["outputs"]}

    def named_tables(self):
        """The `RowTable`s of what tasks have of their own, by names that say what a row is; a dict."""
        pools = {f"adapters_{pool.bottleneck_size}_{pool.activation}_{self.storage}": pool for pool in self._pools}
        heads = {f"heads_{pool.layers}_{pool.width}": pool for pool in self._head_pools}
        tables = {name: pool.table for name, pool in {**pools, **heads}.items()}
        return {**tables, "norms": self._norms, "poolers": self._poolers}

    def slots_as(self, moved):
        """The rows of the slots' stores if the tasks were in their order, and their rows elsewhere.

        Args:
            moved: dict from a task's name to a dict from `(id(table), row)` to the row that it would have.

        Returns: list of `(store, array)`.
        """
        places = [0, *(task.slot for task in self._book.tasks.values())]
        arrays = {store: tf.gather(store.variable, places).numpy() for store in self._rows.stores}
        column = {name: number for number, name in enumerate(_COLUMNS)}
        for row, name in zip(arrays[self._slots][1:], self._book.tasks):
            new = moved[name]
            head = self._head_pools[row[column["head_pool"]]].table
            of = {"norms": self._norms, "pooler": self._poolers, "head": head}
            for field in ("norms", "pooler", "head"):
                row[column[field]] = new.get((id(of[field]), row[column[field]]), 0)
            if self._pools:
                pool = self._pools[row[column["pool"]]].table
                row[len(_COLUMNS) :] = [new.get((id(pool), place), 0) for place in row[len(_COLUMNS) :]]
        return list(arrays.items())

    def label_names(self, task):
        """The names of each task's labels, strings `(batch, widest)`, for use inside a graph."""
        with self._book.tracing:
            return self._labels.gather(tf.maximum(self._look_up(task)[0]["slot"], 0))

    def answer_tokens(self, inputs):
        """A call, for use inside a graph, as `answer_texts` is."""
        with self._book.tracing:
            inputs = self._complete(inputs)
            with tf.control_dependencies([_same_rows(inputs["input_ids"], inputs["task"], "input_ids")]):
                task = tf.identity(inputs["task"])
            slots, known = self._look_up(task)
            return self._answers(self._logits(inputs, slots), slots, task, known, tf.ones_like(known))

    def _complete(self, inputs):
        """The four inputs as tensors; what is missing follows from the ids."""
        missing = {"task", "input_ids"} - set(inputs)
        if missing:
            raise InputError(
                f"inputs lack {sorted(missing)[0]!r}: give task and input_ids, and attention_mask if there is padding."
            )
        unknown = set(inputs) - {"task", "input_ids", "attention_mask", "token_type_ids"}
        if unknown:
            raise InputError(
                f"inputs have {sorted(unknown)[0]!r}: give task, input_ids, attention_mask and token_type_ids alone."
            )
        inputs = {
            name: tf.convert_to_tensor(value, tf.string if name == "task" else tf.int32)
            for name, value in inputs.items()
        }
        pad_id, ids = self.tokenizer.pad_id if self.tokenizer is not None else 0, inputs["input_ids"]
        otherwise = {"attention_mask": tf.cast(ids != pad_id, tf.int32), "token_type_ids": tf.zeros_like(ids)}
        return {**otherwise, **inputs}

    def _look_up(self, task):
        """The columns of each row's slot, and whether there is one; slot 0, the identity, stands for the others."""
        fixed = getattr(self._book.here, "table", None)
        slot = tf.ensure_shape((self._table if fixed is None else fixed).lookup(task), [None])
        if fixed is None:
            # -2 in a graph of another structure.
            slot = tf.where(tf.equal(self._structure, self._book.structure), slot, -2)
        return self._columns(slot), slot >= 0

    def _columns(self, slot):
        found = self._slots.gather(tf.maximum(slot, 0))
        columns = dict(zip(_COLUMNS, tf.unstack(found[:, : len(_COLUMNS)], axis=1)))
        return {**columns, "sites": found[:, len(_COLUMNS) :], "slot": slot}

    def _encode(self, text, text_pair, slots):
        """Texts as ids, each by its task's length and with its pair if its task has pairs; ragged."""
        parts, places = [], []
        for number, (pairs, max_length) in enumerate(self._texts):
            tokenizer = self._book.tokenizer.with_max_length(max_length)
            if len(self._texts) == 1:
                return tokenizer.encode(text, text_pair if pairs else None)
            places.append(tf.where(slots["text"] == number)[:, 0])
            texts = (tf.gather(strings, places[-1]) for strings in ((text, text_pair) if pairs else (text,)))
            parts.append(tokenizer.encode(*texts))
        order = tf.math.invert_permutation(tf.concat(places, 0))
        return {name: tf.gather(tf.concat([part[name] for part in parts], 0), order) for name in parts[0]}

    def _encoder_outputs(self, inputs, slots):
        inputs = {name: inputs[name] for name in INPUTS}
        # The rows keep their order, on which a product's rounding depends.
        places = [tf.where(slots["pool"] == number)[:, 0] for number in range(len(self._pools))]
        norms, whole = self._norms.stores[0].gather(slots["norms"]), getattr(self._book.here, "whole", False)

        def adapt(hidden_states, site):
            # Without this all weights are gathered first, and have left the processor's caches when they are used.
            with tf.control_dependencies([hidden_states]):
                rows = slots["sites"][:, site]
            if whole:
                for number, pool in enumerate(self._pools):
                    hidden_states = pool(hidden_states, tf.where(slots["pool"] == number, rows, 0))
                return hidden_states
            if len(self._pools) < 2:
                return self._pools[0](hidden_states, rows) if self._pools else hidden_states
            parts = [
                pool(tf.gather(hidden_states, index), tf.gather(rows, index))
                for pool, index in zip(self._pools, places)
            ]
            return tf.dynamic_stitch([tf.cast(index, tf.int32) for index in places], parts)

        def pool(first):
            if self._poolers.used == 1:
                kernel, bias = (store.read_from[0] for store in self._poolers.stores)
                return self._pooler_activation(tf.matmul(first, kernel) + bias)
            kernel, bias = (store.gather(slots["pooler"]) for store in self._poolers.stores)
            return self._pooler_activation(tf.squeeze(tf.matmul(first[:, tf.newaxis], kernel), 1) + bias)

        routes = Routes(adapt=adapt, norm=lambda number: (norms[:, number, 0], norms[:, number, 1]), pool=pool)
        with self._book.tracing:
            hidden_states, pooled = encode(self._family, self.backbone, inputs, routes)
        stale = tf.reduce_any(slots["slot"] == -2)
        return tuple(tf.where(stale, tf.constant(np.nan, states.dtype), states) for states in (hidden_states, pooled))

    def _logits(self, inputs, slots):
        """Logits `(batch, widest)` of each row's head, zeros behind the last one."""
        inputs = {name: inputs[name] for name in INPUTS}
        return getattr(self._book.here, "logits", self._logits_of)(inputs, slots)

    def _logits_of(self, inputs, slots):
        _, pooled = self._encoder_outputs(inputs, slots)
        widest = self._labels.row_shape[0]
        logits = tf.zeros([tf.shape(pooled)[0], widest])
        for number, pool in enumerate(self._head_pools):
            if len(self._head_pools) == 1:
                logits = _widen(pool(pooled, slots["head"]), widest)
                break
            if getattr(self._book.here, "whole", False):
                # Row 0 of a head's size has no weights, and adds nothing.
                rows = tf.where(slots["head_pool"] == number, slots["head"], 0)
                logits += _widen(pool(pooled, rows), widest)
                continue
            places = tf.where(slots["head_pool"] == number)
            index = places[:, 0]
            found = pool(tf.gather(pooled, index), tf.gather(slots["head"], index))
            logits = tf.tensor_scatter_nd_update(logits, places, _widen(found, widest))
        return logits

    def _answers(self, logits, slots, task, known, readable):
        slot = tf.maximum(slots["slot"], 0)
        return answers_of(
            logits,
            slots,
            task=task,
            known=known,
            readable=readable,
            names=self._labels.gather(slot),
            ranges=self._ranges.gather(slot),
        )

    def _run(self, name, function, signature, *arguments):
        """What a function says in a graph, which is kept until the bank's structure changes."""
        with self._book.tracing:
            if name not in self._book.functions:
                traced = tf.function(function, autograph=False, input_signature=signature)
                traced.get_concrete_function()
                # TensorFlow optimises a graph at its first run, and threads that run it side by side would each do so.
                try:
                    return traced(*arguments)
                finally:
                    self._book.functions[name] = traced
            traced = self._book.functions[name]
        return traced(*arguments)

    # Changes

    @contextlib.contextmanager
    def _change(self):
        """Alone with the bank: what fails in the context, wherever, leaves it as it was."""
        # A graph of the user's that is being traced in another thread sees one structure too.
        with self._book.lock.alone(), self._book.tracing:
            saved = self._saved()
            try:
                yield
            except BaseException:
                self._restore(*saved)
                raise

    def _saved(self):
        """What `_restore` takes. Rows in use are never overwritten, but for those of the slots."""
        tables = [(table, table.saved()) for table in self.tables]
        return self._book.saved(), self.predict_function, self._slots.variable.numpy(), tables

    def _restore(self, book, predict_function, slots, tables):
        self._book.restore(book)
        self.predict_function = predict_function
        self._structure.assign(self._book.structure)
        tasks = self._book.tasks
        self._table.remove(self._table.export()[0])
        self._table.insert(
            tf.constant(list(tasks), tf.string), tf.constant([task.slot for task in tasks.values()], tf.int32)
        )
        for table, saved in tables:
            table.restore(saved)
        self._slots.variable.assign(slots)

    def _put(self, name, directory, new):
        if not isinstance(name, str) or not name or not is_encodable(name):
            raise InputError("{name} must be a string of characters, and not empty.", name=name)
        self._check_name(name, new)
        parts = self._parts(directory)
        with self._change():
            self._check_name(name, new)
            structure = self._book.structure
            task = self._store(parts)
            self._book.tokenizer = self._book.tokenizer or parts.tokenizer
            before = self._book.tasks.get(name)
            self._table.insert(tf.constant([name]), tf.constant([task.slot]))
            self._book.tasks[name] = task
            if before is not None:
                self._release(before.rows)
            if structure != self._book.structure:
                # It costs no further trace.
                self._drop(lambda pool: pool.table.emptied)
            return self

    def _parts(self, directory):
        settings, arrays = self._read(directory)
        parts = task_parts(settings, arrays, directory, self._encoder, self._book.tokenizer)
        stored = {
            key: array for key, array in arrays.items() if key.rpartition(".")[0].rpartition(".")[0] in parts.adapters
        }
        check_finite(stored, directory, dtype=self.storage)
        return parts

    def _read(self, directory):
        return read_task(directory, self._encoder)

    def _store(self, parts):
        """Put parts into free rows; returns the `BankedTask`, which no name leads to yet."""
        rows = {}
        columns, sites = dict.fromkeys(_COLUMNS, 0), np.zeros(len(self._places), np.int32)

        def put(table, places):
            rows[table] = places
            return places[0]

        if parts.config is not None:
            pool = self._pool(parts.config)
            put(pool.table, pool.put(list(parts.adapters.values())))
            columns["pool"] = self._pools.index(pool)
            row_of = dict(zip(parts.adapters, rows[pool.table]))
            for place, key in parts.sites.items():
                sites[self._places[place]] = row_of[key]
        if parts.norms is not None:
            columns["norms"] = put(self._norms, self._norms.put(parts.norms[np.newaxis]))
        if parts.pooler is not None:
            if self._poolers.used == 1:
                self._change_structure()
            columns["pooler"] = put(self._poolers, self._poolers.put(*(value[np.newaxis] for value in parts.pooler)))
        self._widen_labels(parts.outputs)
        head = self._head_pool(parts)
        columns |= {"head_pool": self._head_pools.index(head), "head": put(head.table, head.put(parts.classifier))}
        if parts.text not in self._texts:
            self._texts.append(parts.text)
            self._change_structure()
        columns |= {"kind": KINDS.index(parts.kind), "outputs": parts.outputs, "text": self._texts.index(parts.text)}
        names = () if parts.kind == "regression" else parts.labels
        slot_row = np.concatenate([[columns[name] for name in _COLUMNS], sites]).astype(np.int32)
        range_row = np.array(parts.value_range or (-_LARGEST, _LARGEST), np.float32)
        label_row = np.array([*names, *[""] * (self._labels.row_shape[0] - len(names))], object)
        slot = put(self._rows, self._rows.put(slot_row[np.newaxis], range_row[np.newaxis], label_row[np.newaxis]))
        return BankedTask(slot, parts.kind, names, *parts.text, rows)

    def _release(self, rows):
        for table, places in rows.items():
            table.release(places)

    def _pool(self, config):
        for pool in self._pools:
            if (pool.bottleneck_size, pool.activation) == (config.bottleneck_size, config.activation):
                return pool
        self._change_structure()
        hidden = self.backbone.config.hidden_size
        self._pools.append(
            AdapterPool(
                hidden,
                config.bottleneck_size,
                config.activation,
                dtype=self.storage,
                name=f"adapters_{len(self._pools)}",
            )
        )
        return self._pools[-1]

    def _head_pool(self, parts):
        layers, width = len(parts.classifier) // 2, _power_of_two(parts.outputs)
        for pool in self._head_pools:
            if (pool.layers, pool.width) == (layers, width):
                return pool
        self._change_structure()
        self._head_pools.append(
            HeadPool(self.backbone.config.hidden_size, width, layers, name=f"heads_{len(self._head_pools)}")
        )
        return self._head_pools[-1]

    def _widen_labels(self, outputs):
        width = _power_of_two(outputs)
        if width > self._labels.row_shape[0]:
            self._set_width(width)

    def _set_width(self, width):
        self._change_structure()
        self._book.labels = self._rows.set_width(self._labels, width)

    def _drop(self, is_unused):
        """Drop pools for which a function is true, and ways of cutting texts that no task has."""
        texts = {(task.text_pairs, task.max_length) for task in self._book.tasks.values()}
        before = {"pool": self._pools, "head_pool": self._head_pools, "text": self._texts}
        after = {
            "pool": [pool for pool in self._pools if not is_unused(pool)],
            "head_pool": [pool for pool in self._head_pools if not is_unused(pool)],
            # Rows without a task are cut too.
            "text": [text for text in self._texts if text in texts] or self._texts[:1],
        }
        if all(len(after[name]) == len(before[name]) for name in before):
            return
        self._change_structure()
        slots = self._slots.variable.numpy()
        for name, kept in after.items():
            # The place of what is dropped stands in free rows alone, and where there is no adapter: there each pool is
            # the identity.
            places = [kept.index(item) if item in kept else 0 for item in before[name]] or [0]
            slots[:, _COLUMNS.index(name)] = np.take(places, slots[:, _COLUMNS.index(name)])
        self._slots.variable.assign(slots)
        self._book.pools, self._book.head_pools, self._book.texts = after.values()

    def _change_structure(self):
        self._book.functions.clear()
        self.predict_function = None
        self._book.structure += 1
        self._structure.assign(self._book.structure)

    def _check_name(self, name, new):
        if new and name in self._book.tasks:
            raise InputError(
                "{name}: the bank has a task of that name; replace() puts another adapter in its place.", name=name
            )
        if not new and name not in self._book.tasks:
            known = ", ".join(map(repr, list(self._book.tasks)[:20])) or "none"
            raise InputError(f"{{name}}: the bank has no such task; it has {known}.", name=name)


class _Book:
    """What Keras must not track: it would keep what was dropped."""

    def __init__(self, labels):
        self.pools, self.head_pools, self.texts, self.labels = [], [], [], labels
        self.tasks, self.functions, self.tokenizer, self.lock = {}, {}, None, SharedLock()
        # The backbone's layers are exchanged while a graph is traced, by one thread at a time; nor does the bank change
        # meanwhile.
        self.tracing = threading.RLock()
        self.structure, self.here = 0, threading.local()

    def saved(self):
        lists = list(self.pools), list(self.head_pools), list(self.texts), self.labels
        return lists, dict(self.tasks), dict(self.functions), self.tokenizer, self.structure

    def restore(self, saved):
        lists, self.tasks, self.functions, self.tokenizer, self.structure = saved
        self.pools, self.head_pools, self.texts, self.labels = lists


def _power_of_two(number):
    return 1 << (number - 1).bit_length()


def _widen(logits, width):
    return tf.pad(logits, [[0, 0], [0, width - logits.shape[1]]])


def _same_rows(values, task, name):
    rows = tf.shape(values)[0]
    return tf.debugging.assert_equal(tf.size(task), rows, f"task must have one entry for each row of {name}")
