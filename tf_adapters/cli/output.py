"""Looks at a path that a command will write to, before any long work."""

import json
import os
import pathlib

from tf_adapters.errors import InputError
from tf_adapters.saving.atomic import is_temporary
from tf_adapters.training.disk import remove_leftovers


def check_writable(path, *, option="--output"):
    """Raise InputError unless `path` can be made where it says."""
    path = pathlib.Path(path)
    ancestor = path.absolute().parent
    while not os.path.lexists(ancestor):
        ancestor = ancestor.parent
    # What is written has a longer name until it is complete.
    longest = os.pathconf(ancestor, "PC_NAME_MAX") - len(".12345678.tmp.")
    for part in path.absolute().relative_to(ancestor).parts:
        if len(os.fsencode(part)) > longest:
            raise InputError(
                f"{option} {str(path)[:60]}...: {part[:20]}... is longer than the {longest} bytes of a name here; give "
                "a shorter one."
            )
    if not ancestor.is_dir():
        raise InputError(f"{option} {path}: {ancestor} is not a directory; give a path below one.")
    if not os.access(ancestor, os.W_OK | os.X_OK):
        raise InputError(f"{option} {path}: {ancestor} cannot be written to; give a path where you may write.")


def check_folder(
    output, *, marker, what, resume, overwrite, unfinished, finished, leftovers=False, run="interrupted run"
):
    """Raise InputError unless a command may write to a folder, or go on with what is there.

    Args:
        output: path.
        marker: str, name of a file that the command writes to it.
        what: str, what the folder becomes: "an adapter".
        resume, overwrite: the flags.
        unfinished: bool, whether the folder holds something that `--resume` goes on with.
        finished: bool, whether it holds what an earlier command came to.
        leftovers: bool, whether it holds what a killed command of this kind left and nobody goes on with.
        run: str, what `--resume` goes on with.
    """
    if output.exists() and not output.is_dir():
        raise InputError(f"--output {output} is a file: give a directory.")
    check_writable(output / marker)
    if resume and overwrite:
        raise InputError("--resume and --overwrite exclude each other: give one of them.")
    if resume and not unfinished:
        if finished:
            remove_leftovers(output)
            raise InputError(
                f"--resume: {output} holds no {run}, but what one came to: use it, or replace it by --overwrite."
            )
        raise InputError(f"--resume: {output} holds no {run}; start one without --resume.")
    if resume or not holds_files(output):
        return
    if not (unfinished or finished or leftovers):
        raise InputError(
            f"--output {output} holds other files than {what}; remove them yourself, or give another directory."
        )
    if not overwrite:
        advice = (
            "go on with it by --resume, or replace it by --overwrite" if unfinished else "replace it by --overwrite"
        )
        raise InputError(f"--output {output} is not empty: {advice}, or give another directory.")


def json_text(content, *, problem, **layout):
    """JSON as the standard has it, without NaN and infinity; raises InputError of `problem`, a sentence, where a number
    is one of them."""
    try:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, **layout)
    except ValueError:
        raise InputError(problem) from None


def holds_files(folder):
    """Whether there is a file in a folder or below, other than what a killed writer left; False if there is no such
    folder."""
    for _, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not is_temporary(name)]
        if not all(map(is_temporary, names)):
            return True
    return False


def check_new_file(path, *, overwrite, option="--output"):
    """Raise InputError unless a file may be written to `path`."""
    path = pathlib.Path(path)
    if path.is_dir():
        raise InputError(f"{option} {path} is a directory: give the name of a file.")
    if path.exists() and not overwrite:
        raise InputError(f"{option} {path} is there already: replace it by --overwrite, or give another name.")
    check_writable(path, option=option)
