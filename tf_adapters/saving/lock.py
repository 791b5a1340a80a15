"""A file that one process at a time holds."""

import contextlib
import fcntl

from tf_adapters.errors import InputError
from tf_adapters.paths import to_path


@contextlib.contextmanager
def holding(path, *, message=None):
    """Hold the lock of a file, made if it is not there, until the block ends or the process does, however it does.

    Args:
        path: the file; its content is left as it is.
        message: str, the error's if another process holds it, or None to wait for that one.

    Raises:
        InputError: another process holds it, and there is a `message`; it cannot be made.
    """
    path = to_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if message else 0))
        except BlockingIOError:
            raise InputError(message) from None
        except OSError:
            # A file system without locks.
            pass
        yield
