"""A lock that many readers share and one writer has alone."""

import contextlib
import threading


class SharedLock:
    """Readers run side by side; a writer waits for those that run, and those that come wait for it."""

    def __init__(self):
        self._condition = threading.Condition()
        self._readers, self._writers = 0, 0
        self._writing = threading.Lock()

    @contextlib.contextmanager
    def shared(self):
        """For the time of a read."""
        with self._condition:
            self._condition.wait_for(lambda: not self._writers)
            self._readers += 1
        try:
            yield
        finally:
            with self._condition:
                self._readers -= 1
                self._condition.notify_all()

    @contextlib.contextmanager
    def alone(self):
        """For the time of a change."""
        with self._writing:
            with self._condition:
                self._writers += 1
                self._condition.wait_for(lambda: not self._readers)
            try:
                yield
            finally:
                with self._condition:
                    self._writers -= 1
                    self._condition.notify_all()
