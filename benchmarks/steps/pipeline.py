"""Input pipeline: rows per second against what a training step consumes, and memory by the size of a file."""

import pathlib
import tempfile
import time

from benchmarks.provenance import log, resident_mib
from benchmarks.result_file import apart, at_least_1, finish, make_parser, parse_arguments
from benchmarks.table_parts import Table, of_settings, origin


def parse(arguments=None):
    parser = make_parser(
        description=__doc__
        + " The sentences of SST-2's training split are repeated, each with a number at its end, to make "
        "CSV files of the sizes asked for. For each size a fresh process reads the file as `tf-adapters train` does, "
        "and goes over batches of 32 that are sorted by length: once with the batches alone, and once with a step of "
        "adapter tuning on MiniLM after each.",
        smoke="200 and 2,000 rows",
    )
    parser.add_argument("--rows", type=at_least_1, nargs="+", default=[50_000, 5_000_000], help="sizes of the files")
    parser.add_argument("--batches", type=at_least_1, default=2000, help="batches of the pipeline alone")
    parser.add_argument("--steps", type=at_least_1, default=100, help="training steps")
    parser.add_argument("--batch-size", type=at_least_1, default=32)
    return parse_arguments(parser, arguments, "pipeline", rows=[200, 2000], batches=5, steps=2)


def table(result):
    """Markdown of one result of pipeline.py."""
    settings = result["settings"]
    lines = [
        f"**Input pipeline and a step of adapter tuning on MiniLM, batches of {settings['batch_size']}**",
        "",
        "| rows of the file | MiB | read, s | pipeline, rows/s | training, rows/s | ratio | resident MiB: libraries, "
        "file read, peak |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for size in result["sizes"]:
        memory = size["resident_mib"]
        lines.append(
            f"| {size['rows']:,} | {size['file_mib']:.0f} | {size['reading_s']:.1f} | {size['pipeline_rows_s']:,.0f} | "
            f"{size['training_rows_s']:,.0f} | {size['ratio']:.1f} | {memory['libraries']:,.0f}, "
            f"{memory['after_reading']:,.0f}, {memory['peak_of_batches']:,.0f} |"
        )
    return "\n".join([*lines, "", origin(result, f"{settings['batches']} batches, {settings['steps']} steps")])


TABLE = Table(table, of_settings("batch_size"))


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        sizes = []
        for rows in options.rows:
            path = pathlib.Path(folder) / f"{rows}.csv"
            write_rows(path, rows, options.data_dir)
            log(f"{rows:,} rows, {path.stat().st_size / 2**20:.0f} MiB ...")
            sizes.append({"rows": rows, "file_mib": path.stat().st_size / 2**20, **apart(measure, path, options)})
            path.unlink()
    finish("pipeline", options, ("batch_size", "batches", "steps"), {"sizes": sizes}, table)


def write_rows(path, rows, data_dir):
    """A CSV file of that many different rows."""
    import csv

    import tf_adapters

    task = tf_adapters.load_task("glue/sst2", data_dir=data_dir)
    sentences, labels = [text.decode().strip() for text in task.train.text.numpy()], task.train.labels.tolist()
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        count = len(sentences)
        writer.writerows((f"{sentences[row % count]} {row}", labels[row % count]) for row in range(rows))


def measure(path, options):
    """One file in this process: seconds to read it, rows per second, and resident memory in MiB."""
    import tf_adapters
    from tf_adapters._keras import keras
    from tf_adapters.models.transformers.loading import find_files
    from tf_adapters.tasks.own_files import rows_from_file
    from tf_adapters.text.batching import training_batches

    wordpiece = tf_adapters.WordPiece.from_directory(find_files("minilm"), max_length=128)
    wordpiece(["warm up"])
    before = resident_mib()
    started = time.perf_counter()
    rows = rows_from_file(path, kind="classification", labels=("0", "1"))
    reading = time.perf_counter() - started
    after_reading = resident_mib()
    batches = training_batches(rows, wordpiece, batch_size=options.batch_size, epochs=1, seed=0)
    count, seen, peak, started = 0, 0, 0.0, None
    for inputs, labels in batches:
        if started is None:  # the first batch waits for the shuffle and the tracing
            started = time.perf_counter()
            continue
        count, seen = count + 1, seen + int(labels.shape[0])
        if count % 50 == 0:
            peak = max(peak, resident_mib())
        if count == options.batches:
            break
    pipeline = seen / (time.perf_counter() - started)

    model = tf_adapters.load_backbone("minilm", num_labels=2)
    tf_adapters.set_trainable(tf_adapters.add_adapters(model, tf_adapters.AdapterConfig(64)), "adapters")
    model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    # The same batches again and again: the pipeline is not in the time of a step.
    cached = batches.take(8).cache().repeat()
    model.fit(cached, steps_per_epoch=8, epochs=1, verbose=0)
    started = time.perf_counter()
    model.fit(cached, steps_per_epoch=options.steps, epochs=1, verbose=0)
    training = options.steps * options.batch_size / (time.perf_counter() - started)
    return {
        "reading_s": reading,
        "pipeline_rows_s": pipeline,
        "training_rows_s": training,
        "ratio": pipeline / training,
        "resident_mib": {"libraries": before, "after_reading": after_reading, "peak_of_batches": peak},
    }
