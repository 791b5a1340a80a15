"""The arms of step.py that answer batches of many tasks from one AdapterBank."""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks.provenance import available_memory_gib, installed_versions

DIRECTORIES = 4


def split_routed(arm):
    """`routed-1000` or `routed-1000-single` as the number of resident adapters and whether rows come one at a time."""
    parts = arm.split("-")
    single = parts[-1] == "single"
    number = parts[1] if len(parts) > 1 + single else "32"
    if parts[0] != "routed" or not number.isdecimal() or int(number) < 1 or len(parts) > 2 + single:
        raise ValueError(f"{arm!r} must be routed, routed-N, routed-single or routed-N-single")
    return int(number), single


def noisy_bank(source, directories, tasks, seed=0):
    """An AdapterBank of tasks `task 0`, ..., each the adapter of one of the directories with noise of its own on every
    weight.

    Returns: the bank.
    """
    from tf_adapters import AdapterBank

    random = np.random.default_rng(seed)
    content = {}

    class NoisyBank(AdapterBank):
        def _read(self, directory):
            if directory not in content:
                content[directory] = super()._read(directory)
            settings, arrays = content[directory]
            return settings, {
                name: value + random.standard_normal(value.shape, np.float32) * 0.01 for name, value in arrays.items()
            }

    bank = NoisyBank(source)
    for number in range(tasks):
        bank.add(f"task {number}", directories[number % len(directories)])
    return bank


def write_adapters(source, folder, bottleneck, seed):
    """Adapter directories of random weights on an encoder; list of paths."""
    import tf_adapters

    model = tf_adapters.load_backbone(source, num_labels=2)
    tf_adapters.add_adapters(model, tf_adapters.AdapterConfig(bottleneck_size=bottleneck), seed=seed)
    tf_adapters.set_trainable(model, "adapters")
    wordpiece = tf_adapters.WordPiece.from_directory(tf_adapters.backbone_directory(model), max_length=128)
    paths = []
    for number in range(DIRECTORIES):
        paths.append(pathlib.Path(folder) / str(number))
        tf_adapters.save_adapter(model, paths[-1], text=wordpiece, task={"kind": "classification", "text_pairs": False})
    return paths


def noisy_copies(directories, folder, count, texts, seed):
    """Yield adapter directories and what their own models say: each given one, and `count - 1` copies with noise on
    every trained weight.

    Returns: iterator of `(path, logits)`, an array `(texts, outputs)`.
    """
    import tensorflow as tf

    import tf_adapters
    from tf_adapters.pipeline import load_pipeline

    random = np.random.default_rng(seed)
    for number, directory in enumerate(directories):
        scorer, settings = load_pipeline(directory)
        yield directory, scorer.logits(tf.constant(texts))
        tf_adapters.set_trainable(scorer.model, settings["trainable"])
        for copy in range(1, count):
            for variable in scorer.model.trainable_variables:
                variable.assign_add(0.01 * random.standard_normal(variable.shape, np.float32))
            path = pathlib.Path(folder) / f"{number}-{copy}"
            tf_adapters.save_adapter(scorer.model, path, text=scorer.tokenizer, task=settings["task"])
            yield path, scorer.logits(tf.constant(texts))


class RoutedArm:
    """The logits of one batch, each row of another task."""

    trained_parameters = 0

    def __init__(self, settings):
        import tensorflow as tf

        resident, self.single = split_routed(settings["arm"])
        with tempfile.TemporaryDirectory() as folder:
            paths = write_adapters(settings["directory"], folder, settings["bottleneck"], settings["seed"])
            self.bank = noisy_bank(settings["directory"], paths, resident, settings["seed"])
        random, self.batches = np.random.default_rng(settings["seed"]), []
        with np.load(settings["batches"]) as arrays:
            for index in range(len(arrays.files) // 3):
                ids, mask = (arrays[f"{name}_{index}"] for name in ("input_ids", "attention_mask"))
                tasks = np.resize(random.permutation(resident), len(ids))
                names = [f"task {number}" for number in tasks]
                if self.single:
                    lengths = mask.sum(1)
                    rows = [(names[row : row + 1], ids[row : row + 1, :length]) for row, length in enumerate(lengths)]
                    calls = [(task, row, np.ones_like(row)) for task, row in rows]
                else:
                    calls = [(names, ids, mask)]
                self.batches.append([
                    {"task": tf.constant(task), "input_ids": tf.constant(ids), "attention_mask": tf.constant(mask),
                     "token_type_ids": tf.zeros_like(ids)}
                    for task, ids, mask in calls
                ])  # fmt: skip
        self.batch_count = len(self.batches)
        versions = installed_versions("tensorflow", "tf-keras", "transformers", "numpy", "tf_adapters")
        # The identity, row 0 of each table, is not one of the adapters, nor is free room.
        per_adapter = sum(table.row_nbytes * (table.used - 1) for table in self.bank.tables) / resident
        task = next(iter(self.bank.tasks.values()))
        own = sum(len(rows.places) * rows.table.row_nbytes for rows in task.rows.values())
        self.details = {
            "versions": versions,
            "resident": resident,
            "bytes_per_adapter": per_adapter,
            "weights_per_adapter": own,
        }

    def step(self, index):
        for inputs in self.batches[index]:
            self.bank(inputs)["logits"].numpy()

    def save(self, directory):
        # Exporting copies the weights once more in memory.
        if self.single or 2.5 * self.bank.nbytes / 2**30 > available_memory_gib():
            return {}
        from tf_adapters import export_bank

        started = time.perf_counter()
        version = export_bank(self.bank, pathlib.Path(directory) / "1")
        exported = time.perf_counter() - started
        del self.bank  # the process that loads it needs the room
        done = subprocess.run([sys.executable, "-c", _LOAD, str(version)], capture_output=True, text=True, check=True)
        return {"export_s": exported, **json.loads(done.stdout.splitlines()[-1])}


# A server's start, without TensorFlow's own import: reading the version, and the first answer.
_LOAD = """
import json, pathlib, sys, time
import tensorflow as tf, tensorflow_text
started = time.perf_counter()
function = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
loaded = time.perf_counter()
answer = function(text=tf.constant(["a quiet film"]), task=tf.constant(["task 0"]))
if answer["error"].numpy()[0]:
    sys.exit(answer["error"].numpy()[0])
answered = time.perf_counter()
status = pathlib.Path("/proc/self/status").read_text().splitlines()
peak = [int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:")]
print(json.dumps({"load_s": loaded - started, "first_answer_s": answered - loaded, "loaded_rss_mib": peak[0]}))
"""
