"""One backbone and the adapters of many tasks: each row of a batch names its own."""

import contextlib
import dataclasses
import threading
from typing import Any, Dict, Optional

import numpy as np
import tensorflow as tf

from tf_adapters._types import Model, PathLike
from tf_adapters.errors import InputError
from tf_adapters.layers.bank import HeadPool, RowStore, RowTable
from tf_adapters.models.door import choose_door, door_called, load_backbone, quiet_about_poolers
from tf_adapters.models.state import state_of
from tf_adapters.models.weight_files import check_finite
from tf_adapters.ranges import check_choice
from tf_adapters.serving.bank_graph import BankedTask, BankGraph, BankTasks, Rows
from tf_adapters.serving.task_parts import Encoder, is_encodable, read_task, task_parts
from tf_adapters.serving.versions import STORAGES
from tf_adapters.text.batching import padding_multiple, sorted_batches
from tf_adapters.text.tokenizer import INPUTS, Tokenizer, checked_text


class AdapterBank:
    """A pretrained encoder with many tasks' adapters, LayerNorms and heads, chosen per row of a batch.

    What methods train is kept once each, in one pool for each method and size, and heads in one for each size (a power
    of two of outputs). Rows of different methods share a batch. An adapter of a size that is there is
    added, replaced and removed without a new trace; a new size costs one, and so does one that goes.

    Calls and changes may come from several threads. A call answers by the tasks as they were when it began, and changes
    come one after the other. A change that fails leaves the bank as it was. What a task took is used again as soon as
    no call reads it.

    Args:
        backbone: source of the encoder, as in `load_backbone`.
        door: as in `load_backbone`. Adapters that were trained through either go into it.
        storage: str, how adapters are kept: `"float32"`, or `"bfloat16"` or `"float16"` in half the space, cast for
            each batch; results then differ by their rounding. LayerNorms and heads stay float32.

    Call arguments:
        inputs: dict of `task`, strings `(batch,)`, and the int32 or int64 tensors `input_ids` and, if need be,
            `attention_mask` and `token_type_ids`, `(batch, length)`. Not in a `tf.function`, whose tasks could not
            change: `export_bank` writes a graph.

    Returns: dict of tensors with one row for each of the batch. `logits`, float32 `(batch, widest)`, of which the first
        `outputs`, int32 `(batch,)`, are the task's, and zeros follow; `probabilities`, likewise the first `num_labels`,
        of a regression none; `label`, string, several joined by `|`; `value`, float32, of a regression; and `error`,
        string, empty if there is an answer. The row of a task that is not in the bank, or whose logits are not finite,
        has zeros, and the error says so.

    Raises:
        InputError: the encoder cannot be loaded, an unknown storage.

    Example:
    >>> bank = AdapterBank("minilm").add("film", "adapters/film").add("spam", "adapters/sms")
    >>> answer = bank.answer(["a quiet film", "win a prize"], ["film", "spam"])
    >>> answer["error"].numpy().tolist()
    [b'', b'']
    """

    # Set in `_become` alone.
    _now: BankTasks

    def __init__(self, backbone: PathLike, *, storage: str = "float32", door: Optional[str] = None) -> None:
        check_choice("storage", storage, STORAGES)
        backend = door_called(choose_door(door)).backend()
        if backend != "tensorflow":
            raise InputError(
                f"Several tasks at once make a bank, which is a graph of TensorFlow, and Keras is on {backend}: give "
                "--backend tensorflow, or in Python set KERAS_BACKEND=tensorflow."
            )
        self.storage = storage
        with quiet_about_poolers():
            self.backbone: Model = load_backbone(backbone, head="none", door=door)
        state = state_of(self.backbone)
        state.door.make_routable(state.family, self.backbone)
        self._encoder = Encoder(self.backbone)
        self._lock = threading.RLock()
        pooler = [
            RowStore(tf.convert_to_tensor(variable)[tf.newaxis], name=name)
            for name, variable in zip(("pooler_kernel", "pooler_bias"), self._encoder.pooler)
        ]
        norms = self._encoder.stacked(self._encoder.norms)
        graph = BankGraph(
            backbone=self.backbone,
            tokenizer=None,
            lock=self._lock,
            norms=RowTable([RowStore(norms[np.newaxis], name="layer_norms")]),
            poolers=RowTable(pooler) if pooler else None,
        )
        self._become({}, graph)

    @property
    def digest(self) -> str:
        """SHA-256 of the encoder's weights, as adapter directories have it."""
        return self._encoder.digest

    @property
    def tasks(self) -> "Dict[str, BankedTask]":
        """The tasks in the bank: dict from name to `BankedTask`."""
        return dict(self._now.tasks)

    @property
    def tokenizer(self) -> Optional[Tokenizer]:
        """The tokenizer of all tasks, or None of a bank that was always empty."""
        return self._now.graph.tokenizer

    @property
    def nbytes(self) -> int:
        """Bytes that the adapters, LayerNorms and heads of all tasks take, free room included."""
        return sum(table.nbytes for table in self.tables)

    @property
    def tables(self):
        """Every `RowTable`."""
        return self._now.graph.row_tables

    def add(self, name: str, directory: PathLike) -> "AdapterBank":
        """Add the adapter directory of a task.

        Args:
            name: str, by which requests ask for it.
            directory: path, as `save_adapter` or `tf-adapters train` wrote it.

        Returns: the bank.

        Raises:
            InputError: the name is taken or empty; the adapter is of another encoder or tokenizer; it changed weights
                of the encoder itself, is of a method that rows cannot have of their own, or answers words or spans. The
                bank is then as it was.
        """
        return self._put(name, directory, new=True)

    def replace(self, name: str, directory: PathLike) -> "AdapterBank":
        """Put another adapter directory in the place of a task, as `add` does; a call sees the one or the other.

        The two need not have the same labels: an answer carries the names of the directory that it is from.
        """
        return self._put(name, directory, new=False)

    def remove(self, name: str) -> "AdapterBank":
        """Take a task out; requests for it are answered by an error. Returns the bank."""
        with self._lock:
            self._check_name(name, new=False)
            self._become({other: task for other, task in self.tasks.items() if other != name}, self._now.graph)
            return self

    def __call__(self, inputs):
        for verb, names in (("lack", {"task", "input_ids"} - set(inputs)), ("have", set(inputs) - {"task", *INPUTS})):
            for name in sorted(names):
                raise InputError(f"inputs {verb} {name!r}: give task, input_ids, attention_mask and token_type_ids.")
        if not tf.executing_eagerly():
            raise InputError("A bank was called in a graph, whose tasks could not change: call it outside tf.function.")
        now = self._now
        task, ids = _task_and_ids(inputs, now.graph)
        specs = [dict.fromkeys(INPUTS, tf.TensorSpec([None, None], tf.int32)), tf.TensorSpec([None], tf.string)]
        return self._run(now, "answer_tokens", specs, ids, task)

    def answer(self, text: Any, task: Any, text_pair: Any = None) -> Dict[str, tf.Tensor]:
        """Answer texts, each by the task of its row.

        Args:
            text: strings, `(batch,)`.
            task: strings, `(batch,)`, or one for all.
            text_pair: strings, `(batch,)`, or None, for all or for rows of a list; what rows of tasks on single texts
                have there is not read.

        Returns: as a call does, with an error for the row of a text that is not UTF-8 too.

        Raises:
            InputError: other shapes; no second text for a task that reads two.
        """
        now, text, pairs = self._now, checked_text(text, "text"), text_pair
        task = tf.fill(text.shape, task) if isinstance(task, (str, bytes)) else checked_text(task, "task")
        if pairs is None or isinstance(pairs, (list, tuple)):
            pairs = [None] * text.shape[0] if pairs is None else pairs
            text_pair = ["" if pair is None else pair for pair in pairs]
            without = {
                name.decode("utf-8", "replace") for name, pair in zip(task.numpy().tolist(), pairs) if pair is None
            }
            for name in without & now.tasks.keys():
                if now.tasks[name].text_pairs:
                    raise InputError(f"text_pair is None in a row of the task {name!r}, which reads two texts.")
        text_pair = checked_text(text_pair, "text_pair")
        if not text.shape == task.shape == text_pair.shape:
            raise InputError(
                f"text, task and text_pair: give equally many, not {text.shape[0]}, {task.shape} and {text_pair.shape}."
            )
        if now.graph.tokenizer is None:
            raise InputError("The bank is empty: add(name, directory) a task, whose settings say how texts are cut.")
        return self._run(now, "answer_texts", [tf.TensorSpec([None], tf.string)] * 3, text, text_pair, task)

    def hidden_states(self, inputs):
        """The encoder's last hidden states, and what heads read of the first token: its states, after the pooler where
        the family's classifiers stand on it. Each row has its task's adapters.

        Args:
            inputs: as of a call; the task `""` is the plain encoder, bit for bit.

        Returns: float32 tensors `(batch, length, hidden)` and `(batch, hidden)`.
        """
        now = self._now
        task, ids = _task_and_ids(inputs, now.graph)
        return now.graph.encoder_outputs(ids, now.graph.columns(now.slots(task), now.tables))

    @contextlib.contextmanager
    def packed(self):
        """A copy of the bank's `BankTasks` without free room, for an export; changes and new graphs wait meanwhile."""
        with self._lock:
            yield self._now.packed()

    def _run(self, now, method, specs, *arguments):
        """What a method of the graph answers, whose last arguments are the tasks, their slots and the tables."""
        slots = now.slots(arguments[-1])
        specs = [
            *specs,
            tf.TensorSpec([None], tf.int32),
            {name: tf.TensorSpec([None, *table.shape[1:]], table.dtype) for name, table in now.tables.items()},
        ]
        return now.graph.run(method, specs, *arguments, slots, now.tables)

    # Changes

    def _become(self, tasks, graph, new=None):
        """All that a change changes; a call reads it once."""
        self._now = BankTasks(tasks, graph, new)

    def _put(self, name, directory, new):
        if not isinstance(name, str) or not name or not is_encodable(name):
            raise InputError("{name} must be a string of characters, and not empty.", name=name)
        with self._lock:
            self._check_name(name, new)
            graph = self._now.graph
            settings, arrays = read_task(directory, self._encoder)
            parts = task_parts(settings, arrays, directory, self._encoder, graph.tokenizer)
            rows = {key: row for key, (*_, row) in parts.adapters.items()}
            stored = {f"{key}.{part}": array for key, row in rows.items() for part, array in row.items()}
            check_finite(stored, directory, dtype=self.storage)
            task = self._stored(parts, graph)
            graph = dataclasses.replace(graph, tokenizer=parts.tokenizer) if graph.tokenizer is None else graph
            self._become({**self.tasks, name: task}, graph, name if new and self.tasks else None)
            return self

    def _stored(self, parts, graph):
        """Put parts into free rows; returns the `BankedTask`, to which no name leads yet."""
        rows, pools, sites, encoder, places = {}, {}, {}, self._encoder, graph.sites
        for kind, size in dict.fromkeys(adapter[:2] for adapter in parts.adapters.values()):
            known = [pool for pool in graph.pools if type(pool) is kind and pool.size == size]
            pool = known[0] if known else kind(size, encoder.ops, dtype=self.storage)
            mine = {key: row for key, (*of, row) in parts.adapters.items() if of == [kind, size]}
            rows[pool] = Rows(pool.table, pool.put(list(mine.values())))
            adapters, sites[pool] = list(mine), np.full(len(places), -1)
            for site, key in parts.sites.items():
                if key in mine:
                    sites[pool][places[site]], pools[site[1]] = adapters.index(key), pool
        if parts.norms is not None:
            rows["norms"] = Rows(graph.norms, graph.norms.put(parts.norms[np.newaxis]))
        if parts.pooler is not None:
            rows["pooler"] = Rows(graph.poolers, graph.poolers.put(*(value[np.newaxis] for value in parts.pooler)))
        # A power of two, so that tasks of like sizes have one pool.
        size = len(parts.classifier) // 2, 1 << (parts.outputs - 1).bit_length()
        known = [heads for heads in graph.heads if (heads.layers, heads.width) == size]
        heads = known[0] if known else HeadPool(encoder.hidden_size, size[1], size[0], encoder.head_activation)
        rows["head"] = Rows(heads.table, heads.put(parts.classifier))
        labels = () if parts.kind == "regression" else parts.labels
        value_range = None if parts.value_range is None else tuple(parts.value_range)
        weights = {"pools": pools, "heads": heads, "rows": rows, "sites": sites}
        return BankedTask(parts.kind, labels, *parts.text, parts.outputs, value_range, **weights)

    def _check_name(self, name, new):
        tasks = self._now.tasks
        if new and name in tasks:
            raise InputError("{name}: the bank has a task of that name, which replace() exchanges.", name=name)
        if not new and name not in tasks:
            known = ", ".join(map(repr, list(tasks)[:20])) or "none"
            raise InputError(f"{{name}}: the bank has no such task; it has {known}.", name=name)


def outputs_by_task(bank, text, text_pair=None, *, batch_size=32, progress=None):
    """What each task of a bank says of each text; these are cut into tokens once for each length and pairing.

    Args:
        bank: `AdapterBank`.
        text, text_pair: string tensors `(rows,)`; text_pair may be None where no task is on pairs.
        batch_size: int, texts in a batch.
        progress: function called after each batch with its number of texts times tasks, or None.

    Returns: dict from a task's name to a float32 NumPy array `(rows, outputs)`, logits, or values of a regression, in
        the order of the rows; NaN in a row without an answer.
    """
    tasks, rows = bank.tasks, int(text.shape[0])
    found = {name: np.empty((rows, max(1, len(task.labels))), np.float32) for name, task in tasks.items()}
    for pairs, max_length in {(task.text_pairs, task.max_length): None for task in tasks.values()}:
        tokenizer = bank.tokenizer.with_max_length(max_length)
        alike = [name for name, task in tasks.items() if (task.text_pairs, task.max_length) == (pairs, max_length)]
        encoded = tokenizer.encode(text, text_pair if pairs else None)
        for positions, inputs in sorted_batches(
            encoded, batch_size=batch_size, tokenizer=tokenizer, multiple_of=padding_multiple()
        ):
            for name in alike:
                answers = bank({"task": tf.fill([len(positions)], name), **inputs})
                values = answers["value"][:, tf.newaxis] if tasks[name].kind == "regression" else answers["logits"]
                values = tf.where((answers["error"] == "")[:, tf.newaxis], values, np.nan)
                found[name][positions] = values[:, : found[name].shape[1]].numpy()
            if progress is not None:
                progress(len(positions) * len(alike))
    return found


def _task_and_ids(inputs, graph):
    """What a call is given, checked before a graph has it."""
    task = checked_text(inputs["task"], "task")
    ids = graph.completed({name: value for name, value in inputs.items() if name != "task"})
    state, shape = state_of(graph.backbone), ids["input_ids"].shape
    config = state.door.config_of(graph.backbone)
    words, most = config.vocab_size, state.family.positions(config)
    for name, value in ids.items():
        if value.shape.rank != 2 or value.shape != shape or shape[0] != task.shape[0]:
            raise InputError(f"{name} is {value.shape}, not (batch, length); task must have one entry for each row.")
    if shape[1] > most or tf.reduce_any((ids["input_ids"] < 0) | (ids["input_ids"] >= words)):
        raise InputError(f"input_ids must be numbers from 0 to {words - 1}, at most {most} in a row.")
    return task, ids
