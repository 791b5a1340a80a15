"""Counts what this process does to the files of a folder, and kills it, or lets the disk be full, at a chosen one; for
kills.py."""

import builtins
import errno
import io
import os
import re
import signal

# What takes a path first, of the module os; pathlib, shutil and tempfile all call these.
_OF_PATHS = ("rename", "replace", "unlink", "remove", "mkdir", "rmdir", "link", "truncate")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# A full disk still removes files; a read-only one does nothing.
_FAILURES = {
    "full disk": (errno.ENOSPC, ("open", "mkdir", "fsync", "link")),
    "read-only": (errno.EROFS, ("open", "fsync", *_OF_PATHS)),
}


class FileOperations:
    """Notes each operation, such as `replace tf_adapters.json`, and does what was planned at one of them.

    Args:
        folder: path; what happens elsewhere does not count.
        file: binary file that each operation is written to as a line before it happens, or None.
        at: int, the number of the operation at which it happens, or None.
        event: `"kill before"` or `"kill after"` it, or, from it on, `"full disk"` or `"read-only"`.
    """

    def __init__(self, folder, *, file=None, at=None, event=None):
        self.folder, self.file, self.at, self.event = os.path.realpath(folder), file, at, event
        self.count = 0

    def install(self):
        """Take the place of Python's own functions for the rest of the process."""
        for name in _OF_PATHS:
            setattr(os, name, self._of_path(name, getattr(os, name)))
        os.fsync = self._of_handle("fsync", os.fsync)
        os.open = self._opening(os.open, lambda flags: bool(flags & _WRITING))
        opening = self._opening(io.open, lambda mode: any(letter in mode for letter in "wxa+"))
        builtins.open = io.open = opening

    def _of_path(self, name, function):
        def operate(path, *arguments, dir_fd=None, **settings):
            # Of two paths the second says what is made.
            shown = arguments[0] if name in ("rename", "replace", "link") else path
            more = {} if dir_fd is None else {"dir_fd": dir_fd}
            return self._happen(name, _absolute(shown, dir_fd), lambda: function(path, *arguments, **more, **settings))

        return operate

    def _of_handle(self, name, function):
        return lambda handle: self._happen(name, os.readlink(f"/proc/self/fd/{handle}"), lambda: function(handle))

    def _opening(self, function, writes):
        def operate(path, mode="r", *arguments, **settings):
            call = lambda: function(path, mode, *arguments, **settings)  # noqa: E731
            if not writes(mode) or isinstance(path, int):
                return call()
            return self._happen("open", _absolute(path, settings.get("dir_fd")), call)

        return operate

    def _happen(self, name, path, call):
        if not path.startswith(self.folder + os.sep):
            return call()
        number, self.count = self.count, self.count + 1
        if self.file is not None:
            self.file.write(f"{name} {shown_path(path[len(self.folder) + 1 :])}\n".encode())
            self.file.flush()
        if number == self.at and self.event == "kill before":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.at is not None and number >= self.at and self.event in _FAILURES:
            code, failing = _FAILURES[self.event]
            if name in failing:
                raise OSError(code, os.strerror(code), path)
        result = call()
        if number == self.at and self.event == "kill after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def shown_path(path):
    """A path without what differs from one run to the next."""
    return re.sub(r"\b[0-9a-f]{16}\b", "#", path)


def _absolute(path, dir_fd):
    path = os.fsdecode(path)
    return os.path.abspath(path if dir_fd is None else os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), path))
