"""A worker's line to the chief: it is kept while a trial trains, and its end is one sentence."""

import contextlib
import threading
import time

import grpc

from tf_adapters._keras_internals import line_to_chief
from tf_adapters.errors import InputError
from tf_adapters.tuning.hypermodel import keras_tuner
from tf_adapters.tuning.role import CHIEF, HOST, NAME, PORT

# How long a worker waits for the chief's answer: until it has started, or has been started again.
ANSWER_SECONDS = 60.0
# How often a worker that trains tells that it is there.
ASK_SECONDS = 10.0
# How often one without a trial asks for one.
IDLE_SECONDS = 1.0


class ChiefStub:
    """The calls of keras-tuner's service, for its `OracleClient`, with `ANSWER_SECONDS` for each rather than an hour.

    The chief may end and start again within them. Asking twice is no harm: a worker has one trial, and a trial ends
    once.

    Args:
        role: `Role`.

    Raises:
        FatalValueError: of keras-tuner, caused by an InputError; a call is not answered, or answered by an error.
    """

    def __init__(self, role):
        self._role = role
        # gRPC would come to wait two minutes between two attempts.
        channel = grpc.insecure_channel(role.address, options=[("grpc.max_reconnect_backoff_ms", 2000)])
        self._stub, self._first = line_to_chief(channel)
        self._met = False

    def meet(self):
        """Wait for the chief; raises InputError if none answers."""
        try:
            self.GetSpace(self._first)
        except keras_tuner.errors.FatalError as error:
            raise error.__cause__ from None
        self._met = True

    def __getattr__(self, name):
        def call(request, **settings):
            return self._call(getattr(self._stub, name), request)

        return call

    def _call(self, method, request):
        end = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                return method(request, wait_for_ready=True, timeout=max(0.0, end - time.monotonic()))
            except grpc.RpcError as error:
                code = error.code()
                if code == grpc.StatusCode.UNAVAILABLE and time.monotonic() < end:
                    time.sleep(0.1)
                    continue
                if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    message = self._silence()
                else:
                    message = (
                        f"What answers at {self._role.address} is no chief of this search, or it failed: "
                        f"{error.details()}."
                    )
                raise keras_tuner.errors.FatalValueError(message) from InputError(message)

    def _silence(self):
        address, seconds = self._role.address, f"{ANSWER_SECONDS:g} seconds"
        if self._met:
            silence, fix = (
                f"The chief at {address} has not answered",
                "start it again (`tune` with --resume), then this worker",
            )
        else:
            silence, fix = (
                f"No chief has answered at {address}",
                f"start it there with {NAME}={CHIEF}, or correct {HOST} and {PORT}",
            )
        return f"{silence} for {seconds}: {fix}."


@contextlib.contextmanager
def heard(oracle, worker):
    """While the block trains, let the chief know that the worker is there, by asking for the trial that it has."""
    done = threading.Event()

    def ask():
        while not done.wait(ASK_SECONDS):
            # If the chief is gone, the report of the trial says so.
            with contextlib.suppress(keras_tuner.errors.FatalError):
                oracle.create_trial(worker)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        # Before the trial ends, or the last question would be answered here with the word to go.
        thread.join()
