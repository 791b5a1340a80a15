"""Padding of training batches: its share of all tokens, and how many shapes there are to compile."""

from benchmarks.result_file import at_least_1, finish, make_parser, parse_arguments
from benchmarks.table_parts import Table, in_notes, of_settings, origin


def parse(arguments=None):
    parser = make_parser(
        description=__doc__
        + " Every batch of an epoch of SST-2 is made as training makes it, by the way batches are padded. Nothing "
        "is timed, so the machine may be busy.",
        smoke="200 rows",
    )
    parser.add_argument("--batch-size", type=at_least_1, nargs="+", default=[16, 32], help="rows of a batch")
    parser.add_argument("--rows", type=at_least_1, help="at most this many training rows; default: all")
    parser.add_argument("--max-length", type=int, default=128, help="tokens kept of a text")
    parser.add_argument("--seed", type=int, default=0)
    return parse_arguments(parser, arguments, "padding", rows=200)


def table(result):
    """Markdown of one result of padding.py."""
    lines = ["**Padding of an epoch of SST-2, sorted within shuffled windows**", "",
             "| rows of a batch | batches | padding, % of the tokens | shapes |", "|---:|---|---:|---:|"]  # fmt: skip
    for way in result["ways"]:
        lines.append(f"| {way['batch_size']} | {way['way']} | {100 * way['padding']:.1f} | {way['shapes']} |")
    return "\n".join([*lines, "", origin(result, f"{result['rows']:,} rows")])


TABLE = Table(table, of_settings(), in_notes)


def main():
    options = parse()
    finish("padding", options, ("batch_size", "max_length", "seed"), measure(options), table)


def measure(options):
    """Dict of the number of rows, and `ways`: a list of dicts, one for each size of batches and way of padding."""
    import tf_adapters
    from tf_adapters.models.transformers.loading import find_files
    from tf_adapters.tasks.rows import sample_rows
    from tf_adapters.text.batching import default_lengths, training_batches

    wordpiece = tf_adapters.WordPiece.from_directory(find_files("minilm"), max_length=options.max_length)
    rows = tf_adapters.load_task("glue/sst2", data_dir=options.data_dir).train
    if options.rows is not None and options.rows < len(rows):
        rows = sample_rows(rows, count=options.rows, seed=options.seed)
    found = []
    for size in options.batch_size:
        ways = {f"sorted, to a multiple of {multiple}": {"multiple_of": multiple} for multiple in (1, 2, 4, 8)}
        ways[f"sorted, to one of {len(default_lengths(options.max_length))} lengths"] = {
            "lengths": default_lengths(options.max_length)
        }
        for name, how in ways.items():
            batches = training_batches(rows, wordpiece, batch_size=size, epochs=1, seed=options.seed, **how)
            found.append({"batch_size": size, "way": name, **shares(batch for batch, _ in batches)})
        found.append(
            {
                "batch_size": size,
                "way": "unsorted, to a multiple of 1",
                **shares(random_batches(rows, wordpiece, size, options.seed)),
            }
        )
    return {"rows": len(rows), "ways": found}


def random_batches(rows, wordpiece, size, seed):
    """Batches of rows in random order, each padded to its longest."""
    import numpy as np

    order = np.random.RandomState(seed).permutation(len(rows))
    for start in range(0, len(order), size):
        yield wordpiece.pad(rows.encode(wordpiece, order[start : start + size]), multiple_of=1)


def shares(batches):
    """Tokens, the padding as a share of them, and the number of shapes; dict."""
    tokens, places, shapes = 0, 0, set()
    for batch in batches:
        mask = batch["attention_mask"].numpy()
        tokens, places = tokens + int(mask.sum()), places + mask.size
        shapes.add(mask.shape)
    return {"tokens": tokens, "padding": places / tokens - 1, "shapes": len(shapes)}
