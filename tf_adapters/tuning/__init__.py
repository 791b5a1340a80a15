"""Search of hyperparameters with keras-tuner, which is the extra `tuner`."""

import os

from tf_adapters._installation import submodules_of
from tf_adapters.errors import InputError

__getattr__ = submodules_of(__name__, AdapterHyperModel="search", AdapterTuner="search")
NAME, HOST, PORT = "KERASTUNER_TUNER_ID", "KERASTUNER_ORACLE_IP", "KERASTUNER_ORACLE_PORT"


def worker_name():
    """What this process is in a search of several, by keras-tuner's environment variables: "chief", a worker's name, or
    None in a search of one process.

    Raises:
        InputError: only some of the variables are set, or the port is none.
    """
    values = {name: os.environ.get(name, "") for name in (NAME, HOST, PORT)}
    missing = [name for name, value in values.items() if not value]
    if len(missing) == len(values):
        return None
    if missing:
        raise InputError(f"{missing[0]} is not set: a search of several processes needs {NAME}, {HOST} and {PORT}.")
    if not values[PORT].isdecimal() or not 1 <= int(values[PORT]) <= 65535:
        raise InputError(f"{PORT}={values[PORT]!r} must be a number from 1 to 65535.")
    # As keras-tuner takes it.
    return "chief" if "chief" in values[NAME] else values[NAME]
