"""`tf-adapters predict`."""

import dataclasses
import itertools
import pathlib
import sys
from typing import Annotated, Optional

import typer

from tf_adapters.cli.answers import write_csv
from tf_adapters.cli.command import option
from tf_adapters.cli.options import DoorOptions, Overwrite, ReadingOptions, ScoringOptions
from tf_adapters.cli.output import check_new_file, json_text
from tf_adapters.cli.quiet import start, terminal
from tf_adapters.cli.trained import check_pairs, encoder_source, load_bank, local, named_directories, reading_of
from tf_adapters.errors import InputError
from tf_adapters.saving.settings import read_settings, task_of

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
    *,
    input_file: option(
        str,
        "Rows to label: .csv, .tsv, .jsonl, .txt (a text per line), or - for lines of standard input; for words also "
        ".conllu and column files, for questions also SQuAD's JSON.",
        "--input",
        panel="Data",
    ),
    reading: ReadingOptions,
    output: option(
        Optional[str],
        "File to write: .jsonl, an object a row with its answer; .csv, the columns of the input and the answer's; - "
        "writes JSON lines to standard output. Default: -, and on a terminal a table.",
    ) = None,
    shard: option(
        Optional[str], "Label one part of the file alone: `2/8` is the second of eight equal parts.", panel="Data"
    ) = None,
    overwrite: Overwrite = False,
    scoring: ScoringOptions,
    where: DoorOptions,
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
    door = where.choose(scoring.fast)
    one = len(directories) == 1 and ("=" not in directories[0] or pathlib.Path(directories[0]).is_dir())
    named = {"": local(directories[0])} if one else _several(directories, scoring, door)
    settings = {name: read_settings(path) for name, path in named.items()}
    kind = task_of(settings[""])[0] if one else "classification"
    source = scoring.model if one else encoder_source(named, scoring.model)
    reading, note = reading_of(list(settings.values()), input_file, dataclasses.asdict(reading))
    _check_tasks(named, settings, reading.get("text_pair_column"))
    as_csv = output is not None and output.endswith(".csv")
    reading.update(kind=kind, chunk_rows=CHUNK_ROWS, keep_all_columns=as_csv)
    chunks = _chunks(input_file, shard, reading)
    # A wrong name or column shows before the model is loaded.
    chunks = itertools.chain([next(chunks)], chunks)

    console = terminal(stderr=True)
    start(console, door=door, precision=scoring.precision)
    if note:
        console.print(note, markup=False)
    load = _label_by_one if one else _label_by_several
    label = load(console, named, settings, source, scoring, door)
    from tf_adapters.cli.progress import counting

    on_terminal = sys.stdout.isatty()
    to_stdout = output in (None, "-")
    # A bar and the rows would overwrite each other on one terminal.
    with counting(
        console, "predicting", unit="rows" if one else "answers", shown=not (to_stdout and on_terminal)
    ) as advance:
        if output is None and on_terminal:
            from tf_adapters.cli.answers import show_answers

            show_answers(terminal(), _with_texts(kind, chunks, label, advance))
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


def _several(directories, scoring, door):
    """Several directories by their names."""
    of_one = ["--fast"] if scoring.fast else []
    of_one += [f"--door {door}"] if door != "transformers" else []
    of_one += [f"--precision {scoring.precision}"] if scoring.precision != "float32" else []
    for word in of_one:
        raise InputError(f"{word} is for one directory: leave it out, or predict the directories one after the other.")
    return named_directories(directories)


def _check_tasks(named, settings, text_pair_column):
    """Raise InputError for kinds of tasks that cannot be together, and for texts or pairs that a task does not read."""
    if "" in named:
        check_pairs(settings[""], text_pair_column, named[""])
        return
    for name, directory in named.items():
        kind, _ = task_of(settings[name])
        if kind not in KINDS:
            raise InputError(
                f"{directory} is for {kind}, which is predicted by itself: several directories may be for "
                f"{', '.join(KINDS)}."
            )
    pairs = [name for name in named if (settings[name]["task"] or {}).get("text_pairs")]
    for name in pairs:
        check_pairs(settings[name], text_pair_column, named[name])
    if text_pair_column is not None and not pairs:
        raise InputError(
            f"--text-pair-column {text_pair_column}: all of these directories were trained on single texts; leave it "
            "out."
        )


def _label_by_one(console, named, settings, source, scoring, door):
    """A function of rows and progress to their records, by an adapter that has the encoder to itself."""
    from tf_adapters.kinds import get_kind
    from tf_adapters.pipeline import load_pipeline

    with console.status("Loading the encoder ..."):
        about = {"batch_size": scoring.batch_size, "fast": scoring.fast, "door": door}
        scorer, _ = load_pipeline(named[""], backbone=source, **about)
    (kind, labels), value_range = task_of(settings[""]), (settings[""]["task"] or {}).get("value_range")
    kind = get_kind(kind)

    def label(rows, progress):
        if value_range is not None:
            rows = dataclasses.replace(rows, value_range=tuple(value_range))
        return kind.records(rows, kind.predict(scorer, rows, progress=progress), labels)

    return label


def _label_by_several(console, named, settings, source, scoring, door):
    """The same by adapters that share the encoder: a record has an entry for each."""
    from tf_adapters.kinds import get_kind
    from tf_adapters.serving.bank import BankScorer

    scorer = BankScorer(load_bank(named, source, console), batch_size=scoring.batch_size)
    tasks = {name: task_of(of_task) for name, of_task in settings.items()}

    def label(rows, progress):
        outputs = scorer.outputs(rows.text, rows.text_pair, progress=progress)
        records = {name: get_kind(kind).records(rows, outputs[name], labels) for name, (kind, labels) in tasks.items()}
        return [dict(zip(records, row)) for row in zip(*records.values())]

    return label


def _chunks(input_file, shard, reading):
    from tf_adapters.tasks.files import is_stream, shown_name
    from tf_adapters.tasks.own_files import unlabelled_chunks
    from tf_adapters.tasks.splitting import parse_shard, shard_chunks

    if shard is None:
        return unlabelled_chunks(input_file, **reading)
    index, count = parse_shard(shard)
    if is_stream(input_file):
        raise InputError(
            f"--shard {shard} reads its input twice, and {shown_name(input_file)} can be read once: give a file."
        )
    return shard_chunks(lambda: unlabelled_chunks(input_file, **reading), index, count)
