"""The state of a run in one file, replaced in one stroke, so that a killed run goes on bit-equal."""

import json
import os
import pathlib

import numpy as np

from tf_adapters.errors import NAME, InputError
from tf_adapters.json_input import parse_json
from tf_adapters.paths import check_readable
from tf_adapters.saving.atomic import write_safetensors


class ResumeFile:
    """Saves and restores every variable that a training step reads or changes.

    Args:
        path: the file.
        variables: dict from a group's name to its list of variables; the same lists, in the
            same order, in the run that saves and in the one that restores.
    """

    def __init__(self, path, variables):
        self.path = pathlib.Path(path)
        self._variables = {
            f"{group}.{index}": variable
            for group, members in variables.items()
            for index, variable in enumerate(members)
        }

    def save(self, info):
        """Write the variables and `info`, a dict that JSON can hold."""
        arrays = {name: np.asarray(variable.numpy()) for name, variable in self._variables.items()}
        write_safetensors(self.path, arrays, metadata={"info": json.dumps(info)})

    def restore(self):
        """Assign the variables.

        Returns: the `info` of the run that saved.

        Raises:
            InputError: there is no such file, it is damaged, or it belongs to a run with other variables.
        """
        from safetensors.numpy import load_file

        info = read_info(self.path)
        arrays = load_file(self.path)
        if {name: array.shape for name, array in arrays.items()} != {
            name: tuple(variable.shape) for name, variable in self._variables.items()
        }:
            raise InputError(f"{self.path} belongs to another run: start anew with {{overwrite}}.", overwrite=NAME)
        for name, variable in self._variables.items():
            variable.assign(arrays[name])
        return info


def refuse_other(output, held, before, now):
    """Raise InputError if what is there was made with other settings than what is to go on with it.

    Args:
        output: path.
        held: str, what is there: "a run", "a search".
        before: dict of its settings.
        now: dict of this one's, of which those count that the other has too.
    """
    for name, value in json.loads(json.dumps(now)).items():
        known = before.get(name, value)
        if known != value:
            raise InputError(
                f"{output} holds {held} with another {name} ({known!r}, now {value!r}): resume with the same "
                "arguments, or start anew with {overwrite}.",
                overwrite=NAME,
            )


def read_info(path):
    """The `info` of a saved run, without its variables.

    Raises:
        InputError: there is no such file, or it is damaged.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="np") as file:
            return parse_json(file.metadata()["info"])
    except FileNotFoundError:
        if os.path.exists(path):
            check_readable(path)
        raise InputError(f"{path}: there is no run to resume; start it without {{resume}}.", resume=NAME) from None
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}): start anew with {{overwrite}}.", overwrite=NAME) from None
