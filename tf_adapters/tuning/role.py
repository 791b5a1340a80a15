"""What a process is in a search of several, as keras-tuner's environment variables say."""

import dataclasses
import errno
import os
import re
import socket

from tf_adapters.errors import InputError

NAME, HOST, PORT = "KERASTUNER_TUNER_ID", "KERASTUNER_ORACLE_IP", "KERASTUNER_ORACLE_PORT"
CHIEF = "chief"


@dataclasses.dataclass(frozen=True)
class Role:
    """The chief, which hands out the trials, or one of the workers, which train them.

    Attributes:
        name: str, "chief" or the worker's name.
        host: str, the chief's address.
        port: int, the chief's.
    """

    name: str
    host: str
    port: int

    @property
    def is_chief(self):
        return self.name == CHIEF

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    def check_free(self):
        """Raise InputError if the chief cannot listen at its address."""
        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            socket.create_server((self.host.strip("[]"), self.port), family=family).close()
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                advice = f"end the chief or the program that does, or choose another {PORT}"
            else:
                advice = f"{HOST} must be an address of this machine, or {NAME} a worker's, such as tuner0"
            # Python adds the address to what the operating system says.
            reason = (error.strerror or str(error)).partition(" (")[0].lower()
            raise InputError(f"The chief cannot listen at {self.address} ({reason}): {advice}.") from None


def read_role():
    """The `Role` of this process, or None where the variables are not set.

    Raises:
        InputError: a variable is missing, or has a value that is of no use.
    """
    given = [name for name in (NAME, HOST, PORT) if name in os.environ]
    if not given:
        return None
    values = {name: os.environ.get(name, "") for name in (NAME, HOST, PORT)}
    for name, value in values.items():
        if not value:
            raise InputError(
                f"{name} is not set, but {' and '.join(other for other in given if other != name)}: a search of "
                "several processes needs all three, one of a single process none."
            )
    if not values[PORT].isdecimal() or not 1 <= int(values[PORT]) <= 65535:
        raise InputError(f"{PORT}={values[PORT]!r} must be a number from 1 to 65535.")
    if not re.fullmatch(r"[\w.-]+", values[NAME]):
        raise InputError(f"{NAME}={values[NAME]!r} names files: use letters, digits, '-', '_' and '.', such as tuner0.")
    if CHIEF in values[NAME] and values[NAME] != CHIEF:
        raise InputError(
            f"{NAME}={values[NAME]!r} has {CHIEF!r} in it, and keras-tuner takes it for the chief: use {CHIEF}, or "
            "tuner0."
        )
    return Role(values[NAME], values[HOST], int(values[PORT]))
