"""The tasks of a bank at one moment, and the graph that answers each row of a batch by its own; neither changes."""

import dataclasses
import functools
import weakref
from typing import Any, Dict, Optional

import numpy as np
import tensorflow as tf

from tf_adapters.errors import InputError
from tf_adapters.kinds.kind import NOT_FINITE, NOT_UTF8
from tf_adapters.layers.bank import HeadPool, RowTable
from tf_adapters.models.site import PLACES, Routes, sites_of
from tf_adapters.models.state import state_of
from tf_adapters.tasks.labels import KINDS
from tf_adapters.text.tokenizer import is_utf8, no_autograph

# What the tables say of a task, before the number of its pool at each of `PLACES` and its row at each site.
_COLUMNS = ("norms", "pooler", "head_pool", "head", "kind", "outputs", "text")
_LARGEST = np.finfo(np.float32).max


class Rows:
    """Rows of a table. It takes them back when neither the bank nor a call that is under way refers to them."""

    def __init__(self, table, places):
        self.table, self.places = table, places
        weakref.finalize(self, table.release, places)


@dataclasses.dataclass(frozen=True)
class BankedTask:
    """What the bank knows of a task.

    Attributes:
        kind: str, `"classification"`, `"multi-label"` or `"regression"`.
        labels: tuple of str; of a regression none.
        text_pairs: bool.
        max_length: int, tokens that are kept of its texts.
        outputs: int, its logits.
        value_range: least and greatest value of a regression, or None.
    """

    kind: str
    labels: tuple
    text_pairs: bool
    max_length: int
    outputs: int
    value_range: Optional[tuple]
    # Where its weights are: the pool at each place, the rows by what they are of (`"norms"`, `"pooler"`, `"head"` or a
    # pool), and which row of a pool stands at each site (-1: none).
    pools: Dict[str, Any] = dataclasses.field(repr=False, compare=False)
    heads: HeadPool = dataclasses.field(repr=False, compare=False)
    rows: Dict[Any, Rows] = dataclasses.field(repr=False, compare=False)
    sites: Dict[Any, np.ndarray] = dataclasses.field(repr=False, compare=False)


@dataclasses.dataclass(frozen=True)
class BankGraph:
    """Answers rows of a batch by rows of pools. What a task is, the `tables` of a `BankTasks` say at each call.

    Attributes:
        backbone: a plain model without a head.
        tokenizer: `Tokenizer`, or None as long as the bank is empty.
        lock: lock that is held while a graph is traced, since the backbone's layers are exchanged meanwhile.
        norms: `RowTable`; row 0 is the encoder's own.
        poolers: the same, or None where the classifier stands on no pooler of the encoder.
        own_poolers: bool, whether a task has a pooler of its own.
        stands: tuple of `(one of PLACES, MethodPool)`.
        heads: tuple of `HeadPool`.
        texts: tuple of `(bool, int)`, ways of cutting texts: pairs or not, and the tokens that are kept.
        functions: dict from the name of a method to its `tf.function`.
    """

    backbone: Any
    tokenizer: Any
    lock: Any
    norms: RowTable
    poolers: Optional[RowTable]
    own_poolers: bool = False
    stands: tuple = ()
    heads: tuple = ()
    texts: tuple = ()
    functions: Dict[str, Any] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def width(self):
        """The most labels that a row has room for, an int."""
        return max([2, *(pool.width for pool in self.heads)])

    @property
    def pools(self):
        """The pools, each once, a tuple."""
        return tuple(dict.fromkeys(pool for _, pool in self.stands))

    def pools_at(self, place):
        """The pools at one of `PLACES`, in the order of their numbers there."""
        return [pool for where, pool in self.stands if where == place]

    @property
    def sites(self):
        """Dict from `(block, place)` to the number of a site."""
        blocks = state_of(self.backbone).family.blocks(self.backbone)
        return {site: number for number, site in enumerate(sites_of(len(blocks)))}

    def run(self, name, signature, *arguments):
        """What a method of that name says to tensors of a signature, `tf.TensorSpec`s, in a graph, which is kept."""
        if name in self.functions:
            return self.functions[name](*arguments)
        with self.lock:
            if name not in self.functions:
                traced = tf.function(getattr(self, name), autograph=False, input_signature=signature)
                traced.get_concrete_function()
                # TensorFlow optimises a graph at its first run, and threads that run it side by side would each do so.
                try:
                    return traced(*arguments)
                finally:
                    self.functions[name] = traced
        return self.functions[name](*arguments)

    def answer_texts(self, text, text_pair, task, slot, tables, logits=None):
        """Answers to strings `(batch,)`, as `AdapterBank.answer` returns them.

        Args:
            text, text_pair, task: strings.
            slot: int32 `(batch,)`, the row of each one's task in the tables; -1 where there is none.
            tables: as of a `BankTasks`.
            logits: function that stands for `self.logits`, or None.
        """
        with tf.control_dependencies([_same_rows(text, task, "text"), _same_rows(text_pair, task, "text_pair")]):
            task = tf.identity(task)
        columns = self.columns(slot, tables)
        encoded = self._encode(text, text_pair, columns)
        longest = tf.reduce_max(tf.concat([encoded["input_ids"].row_lengths(), [1]], 0))
        found = (logits or self.logits)(self.tokenizer.pad(encoded, length=longest), columns)
        pairs = tf.gather([pairs for pairs, _ in self.texts], columns["text"])
        readable = is_utf8(text) & (is_utf8(text_pair) | ~pairs)
        return _answers(found, columns, task, readable, tables)

    def answer_tokens(self, inputs, task, slot, tables, logits=None):
        """Answers to a dict of `INPUTS`, int32 `(batch, length)`; the rest as of `answer_texts`."""
        with tf.control_dependencies([_same_rows(inputs["input_ids"], task, "input_ids")]):
            task = tf.identity(task)
        columns = self.columns(slot, tables)
        found = (logits or self.logits)(inputs, columns)
        return _answers(found, columns, task, tf.ones_like(slot, tf.bool), tables)

    def completed(self, inputs):
        """A dict of `INPUTS` in int32, of which the mask and the types may be missing: they follow from the ids."""
        try:
            inputs = {name: tf.convert_to_tensor(value) for name, value in inputs.items()}
        except (TypeError, ValueError) as error:
            raise InputError(f"inputs are no tensors ({error}): give int32 or int64.") from None
        for name, value in inputs.items():
            if not value.dtype.is_integer:
                raise InputError(f"{name} is of {value.dtype.name}: give int32 or int64.")
            inputs[name] = tf.saturate_cast(value, tf.int32)
        pad_id, ids = self.tokenizer.pad_id if self.tokenizer is not None else 0, inputs["input_ids"]
        otherwise = {"attention_mask": tf.cast(ids != pad_id, tf.int32), "token_type_ids": tf.zeros_like(ids)}
        return {**otherwise, **inputs}

    def columns(self, slot, tables):
        """What the tables say of each row, a dict; slot 0, the plain encoder, stands for tasks that are not there."""
        found = tf.gather(tables["slots"], tf.maximum(slot, 0))
        first, sites = len(_COLUMNS), len(_COLUMNS) + len(PLACES)
        columns = dict(zip(_COLUMNS, tf.unstack(found[:, :first], axis=1)))
        return {**columns, "pool": found[:, first:sites], "sites": found[:, sites:], "slot": slot}

    def column_specs(self):
        """The `tf.TensorSpec`s of `columns`."""
        wide = {"pool": len(PLACES), "sites": len(self.sites)}
        wide = {name: tf.TensorSpec([None, columns], tf.int32) for name, columns in wide.items()}
        return {**dict.fromkeys((*_COLUMNS, "slot"), tf.TensorSpec([None], tf.int32)), **wide}

    def _encode(self, text, text_pair, columns):
        """Texts as ids, each by its task's length and with its pair if its task has pairs; ragged."""
        parts, places = [], []
        for number, (pairs, max_length) in enumerate(self.texts):
            tokenizer = self.tokenizer.with_max_length(max_length)
            if len(self.texts) == 1:
                return tokenizer.encode(text, text_pair if pairs else None)
            places.append(tf.where(columns["text"] == number)[:, 0])
            texts = (tf.gather(strings, places[-1]) for strings in ((text, text_pair) if pairs else (text,)))
            parts.append(tokenizer.encode(*texts))
        order = tf.math.invert_permutation(tf.concat(places, 0))
        return {name: tf.gather(tf.concat([part[name] for part in parts], 0), order) for name in parts[0]}

    def encoder_outputs(self, inputs, columns, whole=False):
        """Hidden states and pooled first tokens.

        Args:
            inputs: dict of `INPUTS`, of which it reads those that the encoder takes.
            columns: as `columns` returns them.
            whole: bool, whether each pool computes all rows, of which others' have its identity: a graph without
                sorting.
        """
        norms, sites = self.norms.stores[0].gather(columns["norms"]), self.sites
        shares = {
            place: _Shares(self.pools_at(place), columns["pool"][:, number], whole)
            for number, place in enumerate(PLACES)
        }

        def rows_of(site, states):
            # Without this all weights are gathered first, and have left the processor's caches when they are used.
            with tf.control_dependencies([states]):
                return columns["sites"][:, sites[site]]

        def change(site, states, reads):
            inputs = {pool: reads[pool.insertion]() for pool in self.pools_at(site[1]) if pool.side == "outputs"}
            if not inputs:
                return states
            share = shares[site[1]]
            if share.apart:
                # The rows keep their order, on which a product's rounding depends.
                rows, parts = rows_of(site, states), []
                for pool, index in share.apart.items():
                    values = share.of(pool, rows), states, inputs[pool]
                    parts.append(pool(*(tf.gather(each, index) for each in values)))
                states = tf.dynamic_stitch(list(share.apart.values()), parts)
            for pool, read in inputs.items():
                if pool not in share.apart:
                    states = pool(share.of(pool, rows_of(site, states)), states, read)
            return states

        def before(site, inputs):
            for pool in self.pools_at(site[1]):
                if pool.side == "inputs":
                    inputs = pool(shares[site[1]].of(pool, rows_of(site, inputs)), inputs, None)
            return inputs

        def norm(number, units):
            gamma, beta = norms[:, number, 0, :units], norms[:, number, 1, :units]
            return gamma[:, tf.newaxis], beta[:, tf.newaxis]

        places = frozenset(place for place, _ in self.stands)
        routes = Routes(*map(no_autograph, (change, before, norm)), places=places)
        with self.lock:
            state = state_of(self.backbone)
            hidden = state.door.encode(state.family, self.backbone, inputs, routes)
        return hidden, self._pooled(hidden[:, 0], columns)

    def _pooled(self, first, columns):
        """What the heads read of the first token's states, `(batch, hidden)`, float32 under any policy."""
        first = tf.cast(first, tf.float32)
        if self.poolers is None:
            return first
        if not self.own_poolers:
            kernel, bias = (store.variable[0] for store in self.poolers.stores)
            return tf.tanh(tf.matmul(first, kernel) + bias)
        kernel, bias = (store.gather(columns["pooler"]) for store in self.poolers.stores)
        return tf.tanh(tf.squeeze(tf.matmul(first[:, tf.newaxis], kernel), 1) + bias)

    @property
    def row_tables(self):
        """The `RowTable`s in which tasks have rows, a list."""
        tables = [*(pool.table for pool in self.pools + self.heads), self.norms, self.poolers]
        return [table for table in tables if table is not None]

    def logits(self, inputs, columns, whole=False):
        """Logits `(batch, width)` of each row's head, zeros behind the last one; arguments as of `encoder_outputs`."""
        _, pooled = self.encoder_outputs(inputs, columns, whole)
        logits = tf.zeros([tf.shape(pooled)[0], self.width])
        for number, pool in enumerate(self.heads):
            missing = [[0, 0], [0, self.width - pool.width]]
            if len(self.heads) == 1:
                return tf.pad(pool(pooled, columns["head"]), missing)
            if whole:
                # Row 0 of a head's size has no weights, and adds nothing.
                rows = tf.where(columns["head_pool"] == number, columns["head"], 0)
                logits += tf.pad(pool(pooled, rows), missing)
                continue
            places = tf.where(columns["head_pool"] == number)
            found = pool(tf.gather(pooled, places[:, 0]), tf.gather(columns["head"], places[:, 0]))
            logits = tf.tensor_scatter_nd_update(logits, places, tf.pad(found, missing))
        return logits


class _Shares:
    """Which rows of a batch are whose at a place.

    Args:
        pools: list of `MethodPool`, those of the place.
        number: int32 `(batch,)`, which of them each row's task has; of tasks that have none it does not matter.
        whole: bool, as of `BankGraph.encoder_outputs`.

    Attributes:
        apart: dict from the pools that compute their own rows alone to the places of these in the batch, int32.
    """

    def __init__(self, pools, number, whole):
        self.pools, self.number, self.apart = pools, number, {}
        apart = [pool for pool in pools if not pool.elementwise]
        if len(apart) > 1 and not whole:
            mine = [number == pools.index(pool) for pool in apart]
            # The first one's identity is for rows of none.
            mine[0] = ~tf.reduce_any(mine[1:], 0)
            self.apart = {pool: tf.cast(tf.where(rows)[:, 0], tf.int32) for pool, rows in zip(apart, mine)}

    def of(self, pool, rows):
        """The rows of a pool, and 0 where another one's weights stand."""
        return rows if len(self.pools) == 1 else tf.where(self.number == self.pools.index(pool), rows, 0)


class BankTasks:
    """The tasks of a bank at one moment.

    Args:
        tasks: dict from name to `BankedTask`.
        before: `BankGraph`, which is taken over where it can answer for these tasks too.
        new: name of the one task that `before` does not answer for yet, or None: all are looked through, for which a
            bank of thousands has no time while it is filled.

    Attributes:
        tasks: as given.
        graph: `BankGraph`.
        tables: dict of tensors with a row for each task behind one for the plain encoder: `slots`, int32, where its
            weights are; `ranges`, float32, its least and greatest value; `labels`, strings.
        numbers: dict from a task's name, bytes, to its row in the tables.
    """

    def __init__(self, tasks, before, new=None):
        self.tasks = tasks
        known = dataclasses.replace(before, own_poolers=False, stands=(), heads=(), texts=()) if new is None else before
        tasks = tasks.values() if new is None else [tasks[new]]
        texts = _in_order(before.texts, [*known.texts, *((task.text_pairs, task.max_length) for task in tasks)])
        stands = [*known.stands, *(stand for task in tasks for stand in task.pools.items())]
        graph = dataclasses.replace(
            before,
            own_poolers=known.own_poolers or any("pooler" in task.rows for task in tasks),
            stands=_in_order(before.stands, stands),
            heads=_in_order(before.heads, [*known.heads, *(task.heads for task in tasks)]),
            texts=texts or before.texts[:1],  # rows without a task are cut too
            functions={},
        )
        self.graph = before if graph == before else graph

    # Of a bank that is being filled, nobody asks for these.
    @functools.cached_property
    def numbers(self):
        return {name.encode(): number for number, name in enumerate(self.tasks, start=1)}

    @functools.cached_property
    def tables(self):
        graph, size = self.graph, 1 + len(self.tasks)
        at, sites = {place: graph.pools_at(place) for place in PLACES}, len(_COLUMNS) + len(PLACES)
        slots = np.zeros((size, sites + len(graph.sites)), np.int32)
        ranges = np.full((size, 2), [-_LARGEST, _LARGEST], np.float32)
        labels = np.full((size, graph.width), b"", object)
        for number, task in enumerate(self.tasks.values(), start=1):
            first = {name: rows.places[0] for name, rows in task.rows.items()}
            values = {
                "norms": first.get("norms", 0),
                "pooler": first.get("pooler", 0),
                "head_pool": graph.heads.index(task.heads),
                "head": first["head"],
                "kind": KINDS.index(task.kind),
                "outputs": task.outputs,
                "text": graph.texts.index((task.text_pairs, task.max_length)),
            }
            pools = [at[place].index(task.pools[place]) if place in task.pools else 0 for place in PLACES]
            slots[number, :sites] = [*(values[name] for name in _COLUMNS), *pools]
            for pool, rows in task.sites.items():
                # The last one stands for -1, none.
                slots[number, sites:] += np.array([*task.rows[pool].places, 0])[rows]
            if task.value_range is not None:
                ranges[number] = task.value_range
            labels[number, : len(task.labels)] = [label.encode() for label in task.labels]
        return {"slots": tf.constant(slots), "ranges": tf.constant(ranges), "labels": tf.constant(labels)}

    def slots(self, task):
        """The row in the tables of each task, strings `(batch,)`, as int32 `(batch,)`; -1 where there is none."""
        return tf.constant([self.numbers.get(name, -1) for name in task.numpy().tolist()], tf.int32)

    def packed(self):
        """A copy whose tables hold what the tasks have and nothing else, for an export."""
        graph = self.graph
        pools = graph.pools + graph.heads
        held = {table: [] for table in graph.row_tables}
        tasks, places = {}, {}
        for name, task in self.tasks.items():
            for part, rows in task.rows.items():
                first = 1 + len(held[rows.table])
                held[rows.table] += rows.places
                places[name, part] = list(range(first, first + len(rows.places)))
        copies = {pool: pool.copy(held[pool.table]) for pool in pools}
        tables = {pool.table: copied.table for pool, copied in copies.items()}
        tables |= {table: table.copy(rows) for table, rows in held.items() if table not in tables}
        for name, task in self.tasks.items():
            rows = {part: Rows(tables[old.table], places[name, part]) for part, old in task.rows.items()}
            tasks[name] = dataclasses.replace(
                task,
                pools={place: copies[pool] for place, pool in task.pools.items()},
                heads=copies[task.heads],
                rows={copies.get(part, part): of for part, of in rows.items()},
                sites={copies[pool]: rows for pool, rows in task.sites.items()},
            )
        before = dataclasses.replace(graph, norms=tables[graph.norms], poolers=tables.get(graph.poolers), functions={})
        return BankTasks(tasks, before)

    def numbered_logits(self, inputs):
        """Logits where `task`, int32 `(batch,)`, is the place of each row's task in `tasks`; for use in a graph.

        The graph has no strings, and no rows are sorted by their sizes.

        Returns: dict of `logits`, float32 `(batch, widest)`, and `outputs`, int32 `(batch,)`.
        """
        columns = self.graph.columns(1 + inputs["task"], self.tables)
        return {"logits": self.graph.logits(inputs, columns, whole=True), "outputs": columns["outputs"]}


def _in_order(before, used):
    """A tuple of what is used, once each: what was there before in its order, and what is new behind."""
    used = dict.fromkeys(used)
    return tuple([item for item in before if item in used] + [item for item in used if item not in before])


def _answers(logits, columns, task, readable, tables):
    """The outputs of an `AdapterBank`, in a graph, where the logits of tasks that were asked for are known; `readable`
    says of each row whether its text is UTF-8."""
    slot = tf.maximum(columns["slot"], 0)
    shown = tf.strings.unicode_transcode(task, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)
    missing = tf.strings.join(["unknown task '", shown, "'"])
    finite, known = tf.reduce_all(tf.math.is_finite(logits), -1), columns["slot"] >= 0
    error = tf.where(known, tf.where(readable, tf.where(finite, "", NOT_FINITE), NOT_UTF8), missing)
    outputs = tf.where(error == "", columns["outputs"], 0)
    given = tf.range(tf.shape(logits)[1]) < outputs[:, tf.newaxis]
    kind = {name: columns["kind"] == number for number, name in enumerate(KINDS)}
    several, number = kind["multi-label"], kind["regression"]
    logits = tf.where(given, logits, 0.0)
    # Of a row without outputs the softmax has nothing to divide by.
    softmax = tf.nn.softmax(tf.where(given | (outputs == 0)[:, tf.newaxis], logits, -np.inf))
    probabilities = tf.where(
        given & ~number[:, tf.newaxis], tf.where(several[:, tf.newaxis], tf.sigmoid(logits), softmax), 0.0
    )
    best = tf.one_hot(tf.argmax(probabilities, -1), tf.shape(logits)[1], on_value=True, off_value=False)
    chosen = tf.where(several[:, tf.newaxis], logits > 0, best) & given & ~number[:, tf.newaxis]
    chosen_names = tf.ragged.boolean_mask(tf.gather(tables["labels"], slot), chosen)
    low, high = tf.unstack(tf.gather(tables["ranges"], slot), axis=1)
    value = tf.minimum(tf.maximum(logits[:, 0], low), high)
    return {
        "label": tf.strings.reduce_join(chosen_names, -1, separator="|"),
        "probabilities": probabilities,
        "logits": logits,
        "outputs": outputs,
        "num_labels": tf.where(number, 0, outputs),
        "value": tf.where(number & (outputs > 0), value, 0.0),
        "error": error,
    }


def _same_rows(values, task, name):
    rows = tf.shape(values)[0]
    return tf.debugging.assert_equal(tf.size(task), rows, f"task must have one entry for each row of {name}")
