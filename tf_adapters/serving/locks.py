"""A lock that many readers share and one writer has alone."""

import contextlib
import threading


class SharedLock:
    """Readers run side by side; a writer waits for those that run, and those that come wait for it.

    A thread that reads may begin to read again.
    """

    def __init__(self):
        self._condition = threading.Condition()
        self._readers, self._writers = 0, 0
        self._writing = threading.Lock()
        self._here = threading.local()

    @contextlib.contextmanager
    def shared(self):
        """For the time of a read."""
        if getattr(self._here, "reads", False):
            yield
            return
        with self._condition:
            self._condition.wait_for(lambda: not self._writers)
            self._readers += 1
        self._here.reads = True
        try:
            yield
        finally:
            self._here.reads = False
            with self._condition:
                self._readers -= 1
                self._condition.notify_all()

    @contextlib.contextmanager
    def alone(self):
        """For the time of a change."""
        with self._writing:
            with self._condition:
                self._writers += 1
            try:
                with self._condition:
                    self._condition.wait_for(lambda: not self._readers)
                yield
            finally:
                with self._condition:
                    self._writers -= 1
                    self._condition.notify_all()
