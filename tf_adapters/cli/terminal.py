"""What the commands print to."""

from rich.console import Console


def terminal(stderr=False):
    """A Rich console that prints text as it is: a label may well be `[/b]` or `:ok:`.

    On a terminal lines are broken between words. Elsewhere they stay whole, and so does everywhere what is printed with
    `soft_wrap=True`: a command to copy.
    """
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    console.soft_wrap = not console.is_terminal
    return console
