"""Files and folders that are either whole or not there.

What is under way lies beside them in a folder of another name, and its writer holds that folder's lock, which ends with
the process, however it ends. The next writer beside it removes what nobody holds.
"""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import threading
import time

from tf_adapters.errors import InputError
from tf_adapters.paths import to_path

_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tf_adapters\.tmp")


@contextlib.contextmanager
def replacing(path):
    """Yield the path of an empty file, which takes the place of `path` when the block succeeds.

    A library may put a file of its own there: its mode becomes what the umask says.

    Raises:
        InputError: the folder cannot be written to, or the disk is full.
    """
    path = to_path(path)
    try:
        with folder_beside(path) as folder:
            temporary = folder / "file"
            temporary.touch()
            mode = stat.S_IMODE(temporary.stat().st_mode)
            yield temporary
            temporary.chmod(mode)
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {reason(error)}.") from None


@contextlib.contextmanager
def folder_beside(path):
    """Yield a new folder beside `path`, to be filled and renamed; what is left of it goes when the block ends. OSError
    if it cannot be made."""
    path = to_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_dead(path.parent)
    temporary, handle = _locked_folder(path)
    try:
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(temporary)
        os.close(handle)


_HELD = {}  # the thread that holds a folder, by the folder's device and number


@contextlib.contextmanager
def only_writer(folder, *, wait=60.0):
    """Make a folder, if it is not there, and hold it for the block; what this thread holds already is its own.

    Args:
        folder: path.
        wait: float, for so many seconds the second of two writers waits: another save ends soon, a run does not.

    Raises:
        InputError: another writer has it, or it cannot be made.
    """
    folder = to_path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {reason(error)}.") from None
    try:
        about, thread = os.fstat(handle), threading.get_ident()
        key = about.st_dev, about.st_ino
        if _HELD.get(key) == thread:
            yield
            return
        _wait_for(handle, folder, wait)
        try:
            _HELD[key] = thread
            yield
        finally:
            _HELD.pop(key, None)
    finally:
        os.close(handle)


def _wait_for(handle, folder, seconds):
    ends = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= ends:
                raise InputError(
                    f"{folder} is being written by another process, or by another thread: wait until it ends, or give "
                    "another directory."
                ) from None
            time.sleep(0.05)
            continue
        except OSError:
            pass  # the file system has no locks
        return


def remove_folder(path):
    """Remove a folder, if it is there, in one stroke: killed meanwhile, nothing of it is left under its name, or all;
    InputError if it cannot be removed."""
    path = to_path(path)
    if not path.is_dir():
        return
    temporary = _temporary_name(path)
    try:
        os.rename(path, temporary)
    except OSError:
        temporary = path  # a layer of a container's file system cannot rename
    try:
        shutil.rmtree(temporary, ignore_errors=temporary != path)
    except OSError as error:
        raise InputError(f"{path} cannot be removed: {reason(error)}.") from None
    remove_dead(path.parent)


def remove_file(path):
    """Remove a file, if it is there; InputError if it cannot be removed."""
    try:
        to_path(path).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be removed: {reason(error)}.") from None


def remove_dead(folder):
    """Remove what killed writers left in a folder."""
    try:
        found = [entry.path for entry in os.scandir(folder) if is_temporary(entry.name)]
    except OSError:
        return
    for path in found:
        # One that is gone, that its writer holds, or that lies where there are no locks, is left alone.
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
            finally:
                os.close(handle)


def is_temporary(name):
    """Whether a name in a folder is one of what is under way, or of what a killed writer left."""
    return _TEMPORARY.fullmatch(name) is not None


def holds_files(folder):
    """Whether there is a file in a folder or below, other than what a killed writer left; False if there is no such
    folder."""
    for _, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not is_temporary(name)]
        if not all(map(is_temporary, names)):
            return True
    return False


def reason(error):
    """What the operating system, or TensorFlow in its place, said in an exception; a line without a full stop."""
    text = getattr(error, "strerror", None) or getattr(error, "message", None) or str(error)
    return text.strip().partition("\n")[0].rstrip(".")


def write_text(path, text):
    """Write a text file in one stroke."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_safetensors(path, arrays, metadata=None):
    """Write NumPy arrays by name as one safetensors file in one stroke; `metadata` are strings for its header."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with replacing(path) as temporary:
        try:
            save_file(arrays, str(temporary), metadata=metadata)
        except SafetensorError as error:
            # The Rust writer wraps what the operating system said.
            raise OSError(str(error)) from None


def _locked_folder(path):
    while True:
        temporary = _temporary_name(path)
        temporary.mkdir()
        # Before it is locked, another writer may take it for a dead one's.
        with contextlib.suppress(FileNotFoundError):
            handle = _locked(temporary)
            if temporary.exists():
                return temporary, handle
            os.close(handle)


def _locked(folder):
    """A handle of a folder, which holds its lock until it is closed; not where the file system has no locks."""
    handle = os.open(folder, os.O_RDONLY)
    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def _temporary_name(path):
    # Without the name of `path`, which may be as long as a name can be.
    return path.with_name(f".{secrets.token_hex(8)}.tf_adapters.tmp")
