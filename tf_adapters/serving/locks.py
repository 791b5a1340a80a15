"""A lock that many readers share and one writer has alone."""

import contextlib
import threading


class SharedLock:
    """Readers run side by side; a writer waits for those that run, and those that come wait for it.

    Nobody waits for ever: a writer waits for the readers that came before it alone, and a reader for one writer,
    however soon the next one comes. A thread that reads may begin to read again.
    """

    def __init__(self):
        self._queue, self._writing = threading.Lock(), threading.Lock()
        self._reads = set()  # an Event each
        self._written = threading.Event()  # of the writer that came last
        self._written.set()
        self._here = threading.local()

    @contextlib.contextmanager
    def shared(self):
        """For the time of a read."""
        if getattr(self._here, "reads", False):
            yield
            return
        over = threading.Event()
        # What ends a turn is called by ExitStack: there is no line here on which an interrupt would leave the lock
        # taken.
        with contextlib.ExitStack() as end:
            end.callback(over.set)
            end.callback(self._reads.discard, over)
            with self._queue:
                written = self._written
                self._reads.add(over)
            written.wait()
            end.callback(setattr, self._here, "reads", False)
            self._here.reads = True
            yield

    @contextlib.contextmanager
    def alone(self):
        """For the time of a change."""
        over = threading.Event()
        with self._writing, contextlib.ExitStack() as end:
            end.callback(over.set)
            with self._queue:
                running = list(self._reads)
                self._written = over
            for read in running:
                read.wait()
            yield
