"""Disks on which nothing more can be written."""

import contextlib
import errno
import io
import os
from unittest import mock

FULL, READ_ONLY = errno.ENOSPC, errno.EROFS


@contextlib.contextmanager
def failing(folder, code):
    """Let Python write nothing below a folder: of a full disk files may still be removed, of a read-only one nothing
    changes."""
    folder = os.path.realpath(folder)

    def refusing(function, *, writes=lambda *arguments: True):
        def call(path, *arguments, **settings):
            inside = not isinstance(path, int) and os.path.realpath(path).startswith(folder + os.sep)
            if inside and writes(*arguments, *settings.values()):
                raise OSError(code, os.strerror(code), os.fspath(path))
            return function(path, *arguments, **settings)

        return call

    def writes_by_flags(flags, *rest):
        return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))

    def writes_by_mode(mode="r", *rest):
        return any(letter in str(mode) for letter in "wxa+")

    names = ("mkdir",) if code == FULL else ("mkdir", "replace", "rename", "unlink", "rmdir", "truncate")
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(mock.patch.object(os, name, refusing(getattr(os, name))))
        stack.enter_context(mock.patch.object(os, "open", refusing(os.open, writes=writes_by_flags)))
        opening = refusing(io.open, writes=writes_by_mode)
        stack.enter_context(mock.patch("builtins.open", opening))
        stack.enter_context(mock.patch.object(io, "open", opening))
        yield


def tree(folder):
    """All paths below a folder with their bytes, None for folders."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }
