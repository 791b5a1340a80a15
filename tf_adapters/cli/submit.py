"""`tf-adapters submit` and `push`: what is handed to GLUE's evaluation server, and to the HuggingFace hub."""

import contextlib
import os
import pathlib
import zipfile
from typing import List, Optional

import numpy as np

from tf_adapters.cli.command import argument, option
from tf_adapters.cli.directories import check_writable, load_scorer, local
from tf_adapters.cli.options import DataDir, Overwrite, ScoringOptions
from tf_adapters.cli.quiet import counting, share_cores, start, terminal
from tf_adapters.cli.report import show_numbers
from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.saving.atomic import folder_beside, reason
from tf_adapters.saving.hub import push_adapter
from tf_adapters.saving.settings import read_settings, task_of
from tf_adapters.tasks import glue

CHUNK_ROWS = 4096
ZIP = "submission.zip"


def submit(
    directories: argument(
        List[pathlib.Path], "Adapter directories, or `owner/name` of ones on the HuggingFace hub, each of a glue/ task."
    ),
    *,
    output: option(pathlib.Path, "Folder to write the server's files to."),
    data_dir: DataDir = None,
    zip_file: option(bool, f"Also pack the files into {ZIP} in that folder.", "--zip") = False,
    overwrite: Overwrite = False,
    scoring: ScoringOptions,
):
    """Label GLUE's test sets, in the files that its evaluation server takes.

    The names, headers and label words are the server's, the rows stand in the order of the test files, and their
    number is checked against the official one before anything is predicted. The files appear when all are complete.

    `tf-adapters submit adapters/cola adapters/mnli --data-dir glue_data --output submission --zip`
    """
    submissions = _plan([local(directory) for directory in directories])
    files = [submission.file for _, submission in submissions]
    if output.exists() and not output.is_dir():
        raise InputError(f"--output {output} is a file: give a folder.")
    there = [file for file in (*files, ZIP) if (output / file).exists()]
    if there and not overwrite:
        raise InputError(f"--output {output} holds {', '.join(there)}: replace by --overwrite, or give another folder.")
    check_writable(output / files[0])
    console = terminal()
    start(console, precision=scoring.precision, first=share_cores)
    with console.status("Reading the test rows ..."):
        submissions = _with_rows(console, submissions, data_dir)
    with _complete_folder(output, stale=ZIP) as folder:
        for directory in dict.fromkeys(directory for directory, *_ in submissions):
            _predict(console, directory, [own for other, *own in submissions if other == directory], folder, scoring)
        files = [submission.file for _, submission, *_ in submissions]
        if zip_file:
            with zipfile.ZipFile(folder / ZIP, "w", zipfile.ZIP_DEFLATED) as archive:
                for file in files:
                    archive.write(folder / file, file)
    show_numbers(console, str(output), {one.file: f"{one.rows:,} rows" for _, one, *_ in submissions})
    missing = [submission.file for submission in glue.SUBMISSIONS if submission.file not in files]
    if missing:
        console.print(f"Not written, and wanted by the server for a whole score: {', '.join(missing)}.")


def _plan(directories):
    """Pairs of a directory and a `Submission`, in the server's order; needs no TensorFlow."""
    of_task = {}
    for directory in directories:
        settings = read_settings(directory)
        name = (settings["task"] or {}).get("name")
        task = next((submission.task for submission in glue.SUBMISSIONS if submission.task.name == name), None)
        if task is None:
            raise InputError(
                f"{directory} was trained on task {name!r}: give adapters that were trained on glue/ tasks."
            )
        if name in of_task:
            raise InputError(f"{of_task[name]} and {directory} were both trained on {name}: give one of them.")
        kind, labels = task_of(settings)
        if (kind, labels) != (task.kind, task.labels):
            raise InputError(
                f"{directory} has the labels {', '.join(labels) or 'none (regression)'}, and those of {name} are "
                f"{', '.join(task.labels) or 'none (regression)'}: train it on --task {name}."
            )
        of_task[name] = directory
    return [(of_task[one.task.name], one) for one in glue.SUBMISSIONS if one.task.name in of_task]


def _with_rows(console, submissions, data_dir):
    """The submissions whose test rows are there, with these as of `GlueTask.test_rows`; raises InputError unless they
    are as many as they should be."""
    checked, where = [], data_dir or "the data folder"
    for directory, submission in submissions:
        task, split = submission.task, submission.split
        if submission.optional and not task.has_test_rows(split, data_dir=data_dir):
            console.print(f"{submission.file} is left out: its rows are not in {where}.")
            continue
        index, rows = task.test_rows(split, data_dir=data_dir)
        if len(rows) != submission.rows:
            raise InputError(
                f"{submission.file}: the {split} split of {task.name} in {where} has {len(rows):,} rows, and the "
                f"official one has {submission.rows:,}: get the original file again."
            )
        checked.append((directory, submission, index, rows))
    return checked


def _predict(console, directory, submissions, folder, scoring):
    from tf_adapters._keras import keras

    # The model of the directory before is of no more use.
    keras.backend.clear_session()
    about = {"batch_size": scoring.batch_size, "fast": scoring.fast}
    scorer, _ = load_scorer(directory, scoring.model, console, **about)
    for submission, index, rows in submissions:
        kind = get_kind(submission.task.kind)
        with (
            open(folder / submission.file, "w", encoding="utf-8", newline="") as file,
            counting(console, submission.file, total=len(rows)) as advance,
        ):
            file.write(glue.HEADER)
            for chosen in rows.slices(CHUNK_ROWS):
                outputs = kind.predict(scorer, rows.take(chosen), progress=advance)
                if not np.isfinite(outputs).all():
                    raise InputError(f"{directory} predicts numbers that are not finite: train it again.")
                words = submission.predictions(outputs)
                file.writelines(f"{index[row]}\t{word}\n" for row, word in zip(chosen, words))


@contextlib.contextmanager
def _complete_folder(output, *, stale):
    """Yield a temporary folder, whose files move to `output` when the block succeeds; none does otherwise.

    A file named `stale` in `output` goes then, if the block did not make it anew.
    """
    try:
        with folder_beside(output.absolute()) as temporary:
            yield temporary
            if output.exists():
                (output / stale).unlink(missing_ok=True)
                for file in sorted(temporary.iterdir()):
                    os.replace(file, output / file.name)
            else:
                temporary.rename(output)
    except OSError as error:
        raise InputError(f"--output {output} cannot be written: {reason(error)}.") from None


def push(
    directory: argument(pathlib.Path, "Adapter directory."),
    repository: argument(str, "Repository on the HuggingFace hub; made if it is not there.", "OWNER/NAME"),
    private: option(bool, "Make the repository one that only its owner may read.", "--private") = False,
    revision: option(Optional[str], "Branch to upload to, made if it is not there. Default: the main one.") = None,
    message: option(Optional[str], "Message of the commit.") = None,
    base_model: option(
        Optional[str],
        "Id of the encoder on the hub, for a directory that was trained on a folder of yours; `none` if the hub does "
        "not have it.",
    ) = None,
    license: option(Optional[str], "Licence of the adapter, as the hub spells it: `apache-2.0`, `mit`.") = None,
):
    """Upload an adapter directory to the HuggingFace hub, with its model card.

    The adapter's settings, weights and README.md go up in one commit, and nothing else that lies in the directory.
    The token is that of `hf auth login`, or in HF_TOKEN.

    `tf-adapters push adapters/film someone/film-adapter --license mit`

    `predict`, `evaluate`, `info`, `export` and `convert` take the id in place of a directory then.
    """
    address = push_adapter(
        directory, repository, private=private, revision=revision, message=message, base_model=base_model,
        license=license,
    )  # fmt: skip
    given = repository if revision is None else f"{repository}@{revision}"
    console = terminal()
    console.print(f"Uploaded to {address}")
    console.print(
        f"Use it:\n  tf-adapters info {given}\n  tf-adapters predict {given} --input texts.csv", soft_wrap=True
    )
