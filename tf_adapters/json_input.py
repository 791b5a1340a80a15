"""JSON that somebody else wrote: data that is nested without end, or is no JSON at all, is one kind of error."""

import json
import math
import re

from tf_adapters.errors import InputError, shown
from tf_adapters.paths import to_path

# More than any file that is read has; beyond it, comparing, printing or writing a value may end in a RecursionError.
MOST_LEVELS = 50
_TOO_DEEP = f"it is nested more than {MOST_LEVELS} levels deep"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(text):
    """The value in a JSON text; ValueError, with a message for users, whatever is wrong with it."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level = [[value]]
    for _ in range(MOST_LEVELS + 1):
        values = (inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer))
        level = [inner for inner in values if isinstance(inner, (dict, list))]
        if not level:
            return value
    raise ValueError(_TOO_DEEP)


def objects(content, names, path):
    """Entries of a JSON object that are objects themselves, in a list; an empty one for what is missing or null.

    Raises:
        InputError: one of them is something else.
    """
    found = [{} if content.get(name) is None else content[name] for name in names]
    for name, value in zip(names, found):
        if not isinstance(value, dict):
            raise InputError(f"{path}: {name}={shown(value)} must be a JSON object: restore the file.")
    return found


def read_json(path, advice="restore the file", **values):
    """The object in a JSON file.

    Args:
        path: of the file.
        advice: str, what to do about a damaged one, for the message.
        values: arguments that the advice names, as of `InputError`.

    Raises:
        InputError: the file cannot be read, is not JSON in UTF-8, or holds something else than an object.
    """
    try:
        text = to_path(path).read_text(encoding="utf-8")
        content = parse_json(text)
        if _SURROGATE.search(text):
            json.dumps(content, ensure_ascii=False).encode("utf-8")  # half of a pair is no character: nothing takes it
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: {advice}.", **values) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.", **values) from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}): {advice}.", **values) from None
    if not isinstance(content, dict):
        raise InputError(
            f"{path} holds a {type(content).__name__} where a JSON object is expected: {advice}.", **values
        )
    return content


def finite(value):
    """JSON has no NaN and no infinity: None in their place."""
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
