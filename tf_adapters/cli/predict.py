"""`tf-adapters predict`."""

import dataclasses
import itertools
import pathlib
import sys
from typing import Annotated, Optional

import typer

from tf_adapters.cli import options
from tf_adapters.cli.answer_file import write_csv
from tf_adapters.cli.output import check_new_file, json_text
from tf_adapters.cli.terminal import terminal
from tf_adapters.cli.trained import check_pairs, encoder_source, load_bank, local, named_directories, reading_of
from tf_adapters.errors import InputError
from tf_adapters.saving.settings import task_of

CHUNK_ROWS = 1024
# Kinds that can share an encoder, as in serving.bank_graph, which needs TensorFlow.
KINDS = ("classification", "multi-label", "regression")


def predict(
    directories: Annotated[
        list[str],
        typer.Argument(
            metavar="DIRECTORY...",
            help="Adapter directory, or `owner/name` or `owner/name@revision` of one on the HuggingFace hub; or "
            "several, each as `DIRECTORY` or `NAME=DIRECTORY`.",
        ),
    ],
    input_file: Annotated[
        str,
        typer.Option(
            "--input",
            help="Rows to label: .csv, .tsv, .jsonl, .txt (a text per line), or - for lines of standard input; for "
            "words also .conllu and column files, for questions also SQuAD's JSON.",
            rich_help_panel="Data",
        ),
    ],
    text_column: options.TextColumn = None,
    text_pair_column: options.TextPairColumn = None,
    format: options.Format = None,
    encoding: options.Encoding = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    output: Annotated[
        Optional[str],
        typer.Option(
            help="File to write: .jsonl, an object a row with its answer; .csv, the columns of the input and the "
            "answer's; - writes JSON lines to standard output. Default: -, and on a terminal a table."
        ),
    ] = None,
    shard: Annotated[
        Optional[str],
        typer.Option(
            help="Label one part of the file alone: `2/8` is the second of eight equal parts.", rich_help_panel="Data"
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    model: options.Source = None,
    batch_size: options.BatchSize = 32,
    precision: options.Precision = "float32",
    fast: options.Fast = False,
    door: options.Door = None,
    backend: options.Backend = None,
):
    """Label texts: one object a row, in order, with `label` and `probabilities`; on a terminal a table of them.

    Regression gives `value`, multi-label gives `labels`, words give `words` and `labels`, questions give `answer`
    and `n_best`. A row without an answer, because the logits are not finite, has nulls and an `error`. Files of any
    length are read and written in constant memory; the output file appears when it is complete.

    A CSV has the input's columns in their order, and then the answer's, whose names are always the same: a column of
    the input with one of them, such as `label`, is called `input_label`.

    A file: `tf-adapters predict adapters/rotten-tomatoes --input reviews.csv --text-column text --output labels.jsonl`

    Several tasks, whose adapters share one encoder in memory; each row's object has an entry for each task:

    `tf-adapters predict adapters/film spam=adapters/sms --input messages.csv --output labels.jsonl`

    A large file on several machines: `--shard 1/8 --output part-1.jsonl` on the first, `--shard 2/8` on the second; the
    parts one after the other are the whole file's output.

    A line: `echo 'a quiet, moving film' | tf-adapters predict adapters/rotten-tomatoes --input -`
    """
    if output not in (None, "-"):
        if not output.endswith((".csv", ".jsonl")):
            raise InputError(f"--output {output}: the name must end in .jsonl or .csv, or be - for standard output.")
        check_new_file(output, overwrite=overwrite)
    options.check_precision(precision)
    door = options.check_door(door, backend, fast)
    given = {"format": format, "text_column": text_column, "text_pair_column": text_pair_column}
    given.update(encoding=encoding, header=header, delimiter=delimiter)
    if len(directories) == 1 and ("=" not in directories[0] or pathlib.Path(directories[0]).is_dir()):
        labeller = _One(local(directories[0]), model, fast, door)
    else:
        labeller = _Several(directories, model, precision, fast, door)
    reading, note = reading_of(labeller.settings, input_file, given)
    labeller.check_pairs(reading.get("text_pair_column"))
    as_csv = output is not None and output.endswith(".csv")
    reading.update(kind=labeller.kind, chunk_rows=CHUNK_ROWS, keep_all_columns=as_csv)
    chunks = _chunks(input_file, shard, reading)
    # A wrong name or column shows before the model is loaded.
    chunks = itertools.chain([next(chunks)], chunks)

    from tf_adapters.cli.quiet import import_tensorflow

    console = terminal(stderr=True)
    with console.status("Loading TensorFlow ..."):
        import_tensorflow(door=door)
    options.use_precision(precision, console, door)
    if note:
        console.print(note, markup=False)
    label = labeller.load(console, batch_size)
    from tf_adapters.cli.progress import counting

    on_terminal = sys.stdout.isatty()
    to_stdout = output in (None, "-")
    # A bar and the rows would overwrite each other on one terminal.
    with counting(console, "predicting", unit=labeller.unit, shown=not (to_stdout and on_terminal)) as advance:
        if output is None and on_terminal:
            from tf_adapters.cli.answer_table import show_answers

            show_answers(terminal(), _with_texts(labeller.kind, chunks, label, advance))
            console.print("All probabilities: --output - for JSON lines, --output FILE.csv or FILE.jsonl for a file.")
        else:
            answered = ((getattr(chunk, "records", None), label(chunk.rows(), advance)) for chunk in chunks)
            _write("-" if to_stdout else output, answered)


def _with_texts(kind, chunks, label, progress):
    """What was read of each chunk's rows, and their records."""
    from tf_adapters.kinds import get_kind

    kind = get_kind(kind)
    for chunk in chunks:
        rows = chunk.rows()
        yield [kind.text(rows, index) for index in range(len(rows))], label(rows, progress)


def _write(output, chunks):
    from tf_adapters.saving.atomic import replacing

    if output == "-":
        # JSON is UTF-8, whatever the terminal's encoding.
        sys.stdout.reconfigure(encoding="utf-8")
        _write_jsonl(sys.stdout, chunks)
        return
    write, errors = (write_csv, "replace") if output.endswith(".csv") else (_write_jsonl, "strict")
    # What JSON lines hold in columns that nobody read may be half of a surrogate pair.
    with replacing(output) as temporary, open(temporary, "w", encoding="utf-8", errors=errors, newline="") as file:
        write(file, chunks)


def _write_jsonl(file, chunks):
    problem = "A row holds numbers that are not finite: train the adapter again."
    for _, rows in chunks:
        file.writelines(json_text(row, problem=problem) + "\n" for row in rows)
        file.flush()


class _One:
    """Rows labelled by one adapter directory, which has the encoder to itself."""

    unit = "rows"

    def __init__(self, directory, model, fast, door):
        from tf_adapters.saving.settings import read_settings

        self.directory, self.model, self.about = directory, model, {"fast": fast, "door": door}
        self.settings = [read_settings(directory)]
        self.kind, self.labels = task_of(self.settings[0])

    def check_pairs(self, text_pair_column):
        check_pairs(self.settings[0], text_pair_column, self.directory)

    def load(self, console, batch_size):
        from tf_adapters.kinds import get_kind
        from tf_adapters.pipeline import load_pipeline

        with console.status("Loading the encoder ..."):
            scorer, _ = load_pipeline(self.directory, backbone=self.model, batch_size=batch_size, **self.about)
        kind, value_range = get_kind(self.kind), (self.settings[0]["task"] or {}).get("value_range")

        def label(rows, progress):
            if value_range is not None:
                rows = dataclasses.replace(rows, value_range=tuple(value_range))
            return kind.records(rows, kind.predict(scorer, rows, progress=progress), self.labels)

        return label


class _Several:
    """Rows labelled by several adapter directories on one encoder, each under its name."""

    kind, unit = "classification", "answers"

    def __init__(self, directories, model, precision, fast, door):
        from tf_adapters.saving.settings import read_settings

        if fast or precision != "float32" or door != "transformers":
            option = "--fast" if fast else f"--door {door}" if door != "transformers" else f"--precision {precision}"
            raise InputError(
                f"{option} is for one directory: leave it out, or predict the directories one after the other."
            )
        self.named = named_directories(directories)
        self.source = encoder_source(self.named, model)
        self.settings = [read_settings(path) for path in self.named.values()]
        self.tasks = {name: task_of(of_task) for name, of_task in zip(self.named, self.settings)}
        for name, (kind, _) in self.tasks.items():
            if kind not in KINDS:
                raise InputError(
                    f"{self.named[name]} is for {kind}, which is predicted by itself: several directories may be for "
                    f"{', '.join(KINDS)}."
                )

    def check_pairs(self, text_pair_column):
        pairs = [
            (directory, settings)
            for directory, settings in zip(self.named.values(), self.settings)
            if (settings["task"] or {}).get("text_pairs")
        ]
        for directory, settings in pairs:
            check_pairs(settings, text_pair_column, directory)
        if text_pair_column is not None and not pairs:
            raise InputError(
                f"--text-pair-column {text_pair_column}: all of these directories were trained on single texts; leave "
                "it out."
            )

    def load(self, console, batch_size):
        from tf_adapters.kinds import get_kind
        from tf_adapters.serving.bank import BankScorer

        scorer = BankScorer(load_bank(self.named, self.source, console), batch_size=batch_size)

        def label(rows, progress):
            outputs = scorer.outputs(rows.text, rows.text_pair, progress=progress)
            records = {
                name: get_kind(kind).records(rows, outputs[name], labels) for name, (kind, labels) in self.tasks.items()
            }
            return [dict(zip(records, row)) for row in zip(*records.values())]

        return label


def _chunks(input_file, shard, reading):
    from tf_adapters.tasks.files import is_stream, shown_name
    from tf_adapters.tasks.own_files import unlabelled_chunks
    from tf_adapters.tasks.shards import parse_shard, shard_chunks

    if shard is None:
        return unlabelled_chunks(input_file, **reading)
    index, count = parse_shard(shard)
    if is_stream(input_file):
        raise InputError(
            f"--shard {shard} reads its input twice, and {shown_name(input_file)} can be read once: give a file."
        )
    return shard_chunks(lambda: unlabelled_chunks(input_file, **reading), index, count)
