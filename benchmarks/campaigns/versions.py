"""What a new version of a bank takes on disk, in time and in memory, over the number of its tasks."""

import gc
import json
import pathlib
import shutil
import tempfile
import time

from benchmarks.provenance import log, peak_mib, resident_mib
from benchmarks.result_file import apart, at_least_1, finish, make_parser, parse_arguments
from benchmarks.table_parts import Table, in_notes, of_settings, origin

_TEXT = "a quiet, moving film"
CHANGES = ("added", "replaced", "removed")


def parse(arguments=None):
    parser = make_parser(
        description=__doc__
        + " Tasks differ in all of their adapters' weights, which are random. A version's own bytes "
        "are those of the files that no other version has.",
        smoke="3 tasks of 2 units",
    )
    parser.add_argument("--model", default="minilm", help="minilm, a checkpoint directory, or a hub id")
    parser.add_argument("--tasks", type=at_least_1, nargs="+", default=[201, 1000], help="tasks in the bank")
    parser.add_argument("--bottleneck", type=at_least_1, default=64, help="units of an adapter")
    parser.add_argument("--storage", default="float32", help="how adapters are kept: float32, bfloat16 or float16")
    return parse_arguments(parser, arguments, "versions", tasks=[3], bottleneck=2)


def table(result):
    """Markdown of one result of versions.py."""
    settings = result["settings"]
    lines = [
        f"**Versions of a bank on disk, {settings['model']}, adapters of {settings['bottleneck']} units in "
        f"{settings['storage']}**",
        "",
        "| tasks | a task, MB | first version, MB | new bytes over a task's: one added, replaced, removed | "
        "resident MiB: bank, peak of exports | loaded: largest difference of logits |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for one in result["banks"]:
        size = one["task_bytes"]
        new = ", ".join(f"{one[change]['own_bytes'] / size:.2f}" for change in CHANGES)
        lines.append(
            f"| {one['tasks']:,} | {size / 1e6:.2f} | {one['first']['bytes'] / 1e6:,.0f} | "
            f"{new} | "
            f"{one['bank_mib']:,.0f}, {one['peak_mib']:,.0f} | {one['loaded']['largest_difference']:.0e} |"
        )
    return "\n".join([*lines, "", origin(result, "random adapters; a task's bytes are those of its directory")])


TABLE = Table(table, of_settings("model", "bottleneck", "storage"), in_notes)


def main():
    options = parse()
    banks = [apart(measure, count, options.model, options.bottleneck, options.storage) for count in options.tasks]
    finish("versions", options, ("model", "tasks", "bottleneck", "storage"), {"banks": banks}, table)


def measure(count, model, bottleneck, storage):
    """Export a bank of so many tasks, and again after each change; a dict of bytes, seconds and memory."""
    import tf_adapters

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        template, directory = _template(model, bottleneck, folder), folder / "task"
        bank = tf_adapters.AdapterBank(model, storage=storage)

        def put(name, seed, how="add"):
            _vary(template, directory, seed)
            getattr(bank, how)(name, directory)

        put("task 0", 0)
        bank.reserve(count + 1, directory)  # growing takes old and new rows at once
        for number in range(1, count):
            put(f"task {number}", number)
            if number % 100 == 0:
                log(f"{number} of {count} tasks, {resident_mib():,.0f} MiB")
        found = {
            "tasks": count,
            "task_bytes": sum(path.stat().st_size for path in directory.iterdir()),
            "bank_mib": resident_mib(),
        }
        changes = {
            "first": lambda: None,
            "added": lambda: put("new", count),
            "replaced": lambda: put("task 0", count + 1, "replace"),
            "removed": lambda: bank.remove("new"),
        }
        for number, (name, change) in enumerate(changes.items(), start=1):
            change()
            begun = time.monotonic()
            version = tf_adapters.export_bank(bank, folder / "all" / str(number))
            found[name] = {"seconds": time.monotonic() - begun, **_sizes(version)}
            log(f"{count} tasks, {name}: {json.dumps(found[name])}")
        found["peak_mib"] = peak_mib()
        names = list(bank.tasks)
        asked = [names[place * (len(names) - 1) // 15] for place in range(16)]
        logits = bank.answer([_TEXT] * len(asked), asked)["logits"].numpy()
        bank = None
        gc.collect()
        # In a process of its own: two banks of thousands of tasks are larger than most memories.
        return {**found, "loaded": apart(_loaded, version, asked, logits)}


def _loaded(version, asked, logits):
    """The seconds that loading a version takes, and how far its answers are from the bank's."""
    import numpy as np
    import tensorflow as tf
    import tensorflow_text  # noqa: F401

    begun = time.monotonic()
    served = tf.saved_model.load(str(version))
    seconds, texts = time.monotonic() - begun, [_TEXT] * len(asked)
    answer = served.signatures["serving_default"](text=tf.constant(texts), task=tf.constant(asked))
    return {"seconds": seconds, "largest_difference": float(np.abs(answer["logits"] - logits).max())}


def _sizes(version):
    files = [path.stat() for path in version.rglob("*") if path.is_file()]
    return {
        "bytes": sum(file.st_size for file in files),
        "own_bytes": sum(file.st_size for file in files if file.st_nlink == 1),
        "files": len(files),
    }


def _template(model, bottleneck, folder):
    """An adapter directory of this encoder."""
    import tf_adapters
    from tf_adapters.text.wordpiece import WordPiece

    loaded = tf_adapters.load_backbone(model, num_labels=2)
    tf_adapters.add_adapters(loaded, tf_adapters.AdapterConfig(bottleneck_size=bottleneck))
    tf_adapters.set_trainable(loaded, "adapters")
    source = tf_adapters.models.state.state_of(loaded).directory
    text = WordPiece.from_directory(source, max_length=128)
    return tf_adapters.save_adapter(loaded, folder / "template", text=text, task={"kind": "classification"})


def _vary(template, directory, seed):
    """Write the directory with other weights."""
    import hashlib

    import numpy as np
    from safetensors.numpy import load_file, save_file

    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(template, directory)
    about = json.loads((directory / "tf_adapters.json").read_text(encoding="utf-8"))
    path, random = directory / about["weights"]["file"], np.random.default_rng(seed)
    arrays = load_file(path)
    for key, array in arrays.items():
        if ".down." in key or ".up." in key:
            arrays[key] = random.standard_normal(array.shape, np.float32) * 0.02
    save_file(arrays, path, metadata={"format": "pt"})
    about["weights"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (directory / "tf_adapters.json").write_text(json.dumps(about), encoding="utf-8")
