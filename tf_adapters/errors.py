"""What stands for a user's mistake, and a kind of it that a search expects."""


class InputError(ValueError):
    """A value that the caller gave cannot be used.

    The message is one sentence (or two) that names the argument, the value it
    got and the fix. The command line prints it without a traceback and exits
    with status 2; any other exception is a defect of this package.
    """


class DivergedError(InputError):
    """Training came to numbers that are not finite: the learning rate is too high."""


def shown(value, most=80):
    """`repr` of a value for a message, shortened: it may come from a file."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."
