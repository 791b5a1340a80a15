"""What stands for a user's mistake, and a kind of it that a search expects."""

#: Stands for an argument's name alone.
NAME = object()
# What Python says in place of an option that no function has.
_IN_PYTHON = {"overwrite": "resume=False"}


class InputError(ValueError):
    """A value that the caller gave cannot be used.

    The message is one sentence (or two) that names the argument, the value it
    got and the fix. The command line prints it without a traceback and exits
    with status 2; any other exception is a defect of this package.

    Args:
        message: str, in which `{name}` stands for each of the `values`.
        values: arguments by name, and what was given, or `NAME` where no value is to be named. Python spells them
            `name=value`, the command line `--name value`.

    Example:
    >>> str(InputError("{batch_size} is above the 2 training examples.", batch_size=4))
    'batch_size=4 is above the 2 training examples.'
    """

    def __init__(self, message, **values):
        self.template, self.values = message, values
        super().__init__(self.spelled(_as_argument))

    def spelled(self, spell):
        """The message with `spell(name, value)` in place of each argument."""
        message = self.template
        for name, value in self.values.items():
            message = message.replace(f"{{{name}}}", spell(name, value))
        return message


class DivergedError(InputError):
    """Training came to numbers that are not finite: the learning rate is too high."""


def _as_argument(name, value):
    return _IN_PYTHON.get(name, name) if value is NAME else f"{name}={shown(value)}"


def shown(value, most=80):
    """`repr` of a value for a message, shortened: it may come from a file."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."
