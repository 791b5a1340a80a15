"""A bank called by many clients at once while its tasks come and go, and then its export by as many."""

import faulthandler
import os
import pathlib
import sys
import tempfile
import threading
import time

from benchmarks.provenance import log, resident_mib
from benchmarks.result_file import at_least_1, finish, make_parser, parse_arguments
from benchmarks.table_parts import Table, in_notes, of_settings, origin

TOLERANCE = 1e-5
WORDS = "the a film movie is was not good bad great awful fun dull plot cast and but very it that story".split()
# Bottleneck size, labels, kept tokens and layers of the head; the last comes and goes, so that each time all graphs are
# traced anew.
SHAPES = ((8, 2, 24, 1), (8, 3, 24, 1), (16, 2, 16, 2), (16, 5, 24, 1), (8, 2, 16, 1), (5, 9, 20, 1))
PASSING = len(SHAPES) - 1
PASSING_EVERY = 10  # changes of a writer


def parse(arguments=None):
    parser = make_parser(
        description=__doc__
        + " Every row's logits are compared with those of the adapter's own model; a task that changes while a request "
        "runs may be answered as before or as after. It fails on the first wrong answer, and when no request ends "
        "for a time. The encoder is tiny and random.",
        smoke="20 tasks and 300 requests of 8 clients",
    )
    parser.add_argument("--clients", type=at_least_1, default=64, help="threads that send requests")
    parser.add_argument(
        "--writers", type=at_least_1, default=2, help="threads that add, replace and remove tasks without a pause"
    )
    parser.add_argument("--tasks", type=at_least_1, default=200, help="tasks in the bank")
    parser.add_argument("--requests", type=at_least_1, default=20_000, help="to the bank, and as many to its export")
    parser.add_argument("--rows", type=at_least_1, default=4, help="at most so many rows in a request")
    parser.add_argument(
        "--stall-seconds", type=float, default=300.0, help="without an answer, after which it has failed"
    )
    parser.add_argument(
        "--growth-mib",
        type=float,
        default=64.0,
        help="of resident memory in the second half, above which it has failed",
    )
    parser.add_argument("--seed", type=int, default=0)
    return parse_arguments(parser, arguments, "load", clients=8, tasks=20, requests=300)


def table(result):
    """Markdown of one result of load.py."""
    settings, columns = result["settings"], [result["bank"], result["export"]]
    rows = {
        "requests, of rows": [f"{one['requests']:,}, {one['rows']:,}" for one in columns],
        "wrong answers": [f"{len(one['wrong'])}" for one in columns],
        "changes meanwhile": [f"{one['changes']:,}" for one in columns],
        "resident memory, MiB: at first, at half, at the end": [
            ", ".join(f"{one['resident_mib'][place]:,.0f}" for place in (0, len(one["resident_mib"]) // 2, -1))
            for one in columns
        ],
        "seconds": [f"{one['seconds']:,.0f}" for one in columns],
    }
    return "\n".join(
        [
            f"**A bank of {settings['tasks']:,} tasks and its export, each called by {settings['clients']} clients at "
            "once**",
            "",
            "| | bank, while tasks come and go | its export |",
            "|---|---:|---:|",
            *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()),
            "",
            origin(result, f"tiny random encoder, {settings['writers']} threads that change the bank without a pause"),
        ]
    )


TABLE = Table(table, of_settings("clients", "writers", "tasks"), in_notes)


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        measured = load(options, pathlib.Path(folder))
    finish("load", options, ("clients", "writers", "tasks", "requests", "rows", "seed"), measured, table)
    sys.stdout.flush()
    failed = any(one["wrong"] or growth(one) > options.growth_mib for one in (measured["bank"], measured["export"]))
    # Threads that hang would keep the process.
    os._exit(1 if failed else 0)


def load(options, folder):
    """Run both loads; a dict of what `Load.run` returned for `bank` and `export`."""
    import tensorflow as tf

    import tf_adapters

    encoder = write_encoder(folder / "encoder", options.seed)
    directories = [
        write_adapter(encoder, folder / str(number), shape, seed=number) for number, shape in enumerate(SHAPES)
    ]
    texts = make_texts(60, options.seed)
    expected = [expected_logits(directory, texts) for directory in directories]
    bank, tasks = tf_adapters.AdapterBank(str(encoder)), Tasks(options.tasks, directories)
    for name, versions in tasks.history.items():
        bank.add(name, directories[versions[0]])
    of_bank = Load(options, tasks, texts, expected, lambda text, task: bank.answer(text, task)).run(
        [lambda seed, stop: change(bank, tasks, options.writers, seed, stop)] * options.writers
    )
    if of_bank["wrong"]:
        return {"bank": of_bank, "export": {**of_bank, "wrong": ["not run"]}}
    tf_adapters.export_bank(bank, folder / "served" / "1")
    bank = None
    served = tf.saved_model.load(str(folder / "served" / "1")).signatures["serving_default"]

    def call(text, task):
        return served(text=tf.constant(text), task=tf.constant(task))

    return {"bank": of_bank, "export": Load(options, tasks.at_rest(), texts, expected, call).run()}


class Tasks:
    """What each task's requests may be answered by: from the last change that was complete when a request began, on.

    Args:
        count: int, of tasks.
        directories: paths of adapters.
        versions: int, the tasks have the first so many of these.

    Attributes:
        history: dict from a name to the numbers of its directories, one after the other; None where it was removed.
        complete: dict from a name to the place in its history of the last change that was complete.
        changes: dict from a kind of change to a number.
    """

    def __init__(self, count, directories, versions=PASSING):
        self.directories, self.versions = directories, versions
        self.changes = {"added": 0, "replaced": 0, "removed": 0}
        self.history = {f"task {number}": [number % versions] for number in range(count)}
        self.complete = dict.fromkeys(self.history, 0)

    def at_rest(self):
        """The same without a past."""
        rest = Tasks(0, self.directories)
        rest.history = {name: versions[-1:] for name, versions in self.history.items()}
        rest.complete = dict.fromkeys(rest.history, 0)
        return rest

    def change(self, bank, names, random):
        """Add, replace or remove one of the tasks of these names."""
        name, version = names[random.integers(len(names))], int(random.integers(self.versions))
        history = self.history[name]
        if history[-1] is None:
            kind = "added"
        else:
            kind = "removed" if random.integers(4) == 0 else "replaced"
        history.append(None if kind == "removed" else version)
        if kind == "removed":
            bank.remove(name)
        else:
            (bank.add if kind == "added" else bank.replace)(name, self.directories[version])
        self.complete[name] = len(history) - 1
        self.changes[kind] += 1


def change(bank, tasks, writers, seed, stop):
    """Change this writer's tasks until it is told to stop."""
    import numpy as np

    random, passing = np.random.default_rng([seed, 1]), f"passing {seed}"
    names, number = list(tasks.history)[seed % writers :: writers], 0
    while names and not stop.is_set():
        tasks.change(bank, names, random)
        number += 1
        if number % PASSING_EVERY == 0:
            bank.add(passing, tasks.directories[PASSING]).remove(passing)


class Load:
    """Requests of mixed tasks from many threads, each answer compared with what the adapters alone say.

    Args:
        options: with `clients`, `requests`, `rows`, `seed` and `stall_seconds`, as `parse` has them.
        tasks: `Tasks`.
        texts: list of str.
        expected: list of float arrays `(texts, outputs)`, one for each directory.
        call: function of texts and tasks that returns `logits` and `error`.
    """

    def __init__(self, options, tasks, texts, expected, call):
        self.options, self.tasks, self.texts, self.expected, self.call = options, tasks, texts, expected, call
        self.requests = self.rows = 0
        self.wrong, self.lock, self.stop = [], threading.Lock(), threading.Event()

    def run(self, writers=()):
        """Send the requests; a dict of counts, seconds and resident memory in MiB."""
        self.call(self.texts[:1], list(self.tasks.history)[:1])
        seed, options, memory = self.options.seed, self.options, []
        threads = [
            threading.Thread(target=self._guarded, args=(self._ask, seed + number), daemon=True)
            for number in range(options.clients)
        ]
        threads += [
            threading.Thread(target=self._guarded, args=(writer, seed + number), daemon=True)
            for number, writer in enumerate(writers)
        ]
        started = shown = changed = time.perf_counter()
        for thread in threads:
            thread.start()
        last = 0
        while not self.stop.wait(0.05):
            now, requests = time.perf_counter(), self.requests
            if requests > last:
                last, changed = requests, now
            elif now - changed > options.stall_seconds:
                self._stalled("no request ended")
            if requests * 20 >= options.requests * len(memory):
                memory.append(resident_mib())
            if now - shown > 10:
                shown = now
                log(f"{requests:,} requests, {sum(self.tasks.changes.values()):,} changes, {resident_mib():,.0f} MiB")
        for thread in threads:
            thread.join(options.stall_seconds)
            if thread.is_alive():
                self._stalled("a thread does not end")
                break
        memory.append(resident_mib())
        return {
            "requests": self.requests,
            "rows": self.rows,
            "wrong": self.wrong,
            "changes": sum(self.tasks.changes.values()),
            "seconds": time.perf_counter() - started,
            "resident_mib": memory,
        }

    def _stalled(self, what):
        faulthandler.dump_traceback()
        self._fail(f"{what} for {self.options.stall_seconds:.0f} s")

    def _fail(self, what):
        log(what)
        self.wrong.append(what)
        self.stop.set()

    def _guarded(self, function, seed):
        try:
            function(seed, self.stop)
        except Exception as error:
            self._fail(repr(error))

    def _ask(self, seed, stop):
        import numpy as np

        random, names, history = np.random.default_rng(seed), list(self.tasks.history), self.tasks.history
        while not stop.is_set():
            rows = int(random.integers(1, self.options.rows + 1))
            tasks = [names[place] for place in random.integers(0, len(names), rows)]
            places = random.integers(0, len(self.texts), rows)
            before = [self.tasks.complete[name] for name in tasks]
            answer = self.call([self.texts[place] for place in places], tasks)
            logits, errors, outputs = (answer[name].numpy() for name in ("logits", "error", "outputs"))
            for row, (name, place) in enumerate(zip(tasks, places)):
                allowed = history[name][before[row] :]
                if not any(
                    self._is_right(version, place, logits[row], errors[row], outputs[row]) for version in allowed
                ):
                    self._fail(f"{name}: {logits[row].tolist()}, {errors[row]!r}; allowed {allowed}")
            with self.lock:
                self.requests += 1
                self.rows += rows
                if self.requests >= self.options.requests:
                    stop.set()

    def _is_right(self, version, place, logits, error, outputs):
        if version is None:
            return error.startswith(b"unknown task") and not logits.any()
        wanted = self.expected[version][place]
        return (
            not error
            and outputs == len(wanted)
            and abs(logits[: len(wanted)] - wanted).max() < TOLERANCE
            and not logits[len(wanted) :].any()
        )


def write_encoder(folder, seed):
    """A tiny random BERT with a tokenizer; its path."""
    import transformers

    from tf_adapters._keras import keras

    keras.utils.set_random_seed(seed)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    model = transformers.TFBertModel(config)
    model.build_in_name_scope()
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    return folder


def write_adapter(encoder, folder, shape, *, seed):
    """An adapter directory with random trained weights; its path."""
    import numpy as np

    import tf_adapters

    size, labels, length, layers = shape
    model = tf_adapters.load_backbone(str(encoder), num_labels=labels, head_layers=layers)
    tf_adapters.add_adapters(model, tf_adapters.AdapterConfig(bottleneck_size=size), seed=seed)
    tf_adapters.set_trainable(model, "adapters")
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign_add(random.normal(0, 0.2, variable.shape))
    wordpiece = tf_adapters.WordPiece.from_directory(encoder, max_length=length)
    return tf_adapters.save_adapter(model, folder, text=wordpiece, task={"kind": "classification", "text_pairs": False})


def expected_logits(directory, texts):
    """What an adapter's own model says of texts."""
    import tensorflow as tf

    import tf_adapters

    model, settings = tf_adapters.load_trained(directory)
    wordpiece = tf_adapters.WordPiece.from_directory(
        settings["backbone"]["source"], max_length=settings["text"]["max_length"]
    )
    encoded = wordpiece.encode(tf.constant(texts))
    return model(wordpiece.pad(encoded, length=tf.reduce_max(encoded["input_ids"].row_lengths()))).logits.numpy()


def make_texts(count, seed):
    """Texts of 0 to 40 words."""
    import numpy as np

    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, int(length))) for length in random.integers(0, 41, count)]


def growth(measured):
    """MiB of resident memory in the second half of a load."""
    memory = measured["resident_mib"]
    return memory[-1] - memory[len(memory) // 2]
