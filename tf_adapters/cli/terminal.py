"""What the commands print to."""

from rich.console import Console


def terminal(stderr=False):
    """A Rich console that prints text as it is: a label may well be `[/b]` or `:ok:`."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)
