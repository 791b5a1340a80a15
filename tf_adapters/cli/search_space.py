"""What `--space` and `--vary` of `tf-adapters tune` say."""

from tf_adapters.cli import options
from tf_adapters.errors import InputError

# What is searched on a scale of factors if a range is given.
LOGARITHMIC = ("bottleneck_size", "init_stddev", "learning_rate")


def read_space(name, vary):
    """The values to search and the recipe around them."""
    from tf_adapters.tuning.spaces import DIMENSIONS, get_space

    preset = None if name == "none" else get_space(name)
    values = dict(preset.values) if preset else {}
    names = {dimension.option.removeprefix("--"): name for name, dimension in DIMENSIONS.items()}
    for text in vary:
        option, equals, choice = text.partition("=")
        option = option.strip().removeprefix("--")
        if not equals:
            raise InputError(f"--vary {text} must look like adapter-size=8,64,256 or learning-rate=1e-4..3e-3.")
        if option not in names:
            raise InputError(f"--vary {text}: {option!r} cannot be searched; use one of {', '.join(names)}.")
        values[names[option]] = _read_choice(text, names[option], choice.strip())
    if not values:
        raise InputError("--space none is empty: say what to search by --vary, such as --vary adapter-size=8,64,256.")
    return values, preset.recipe if preset else None


def _read_choice(text, name, choice):
    from tf_adapters.tuning.spaces import DIMENSIONS, Range

    types = DIMENSIONS[name].types
    read = {
        "int": int,
        "float": float,
        "word": str,
        "int or word": options.number_or_word,
        "float or word": options.float_or_word,
    }[types]
    try:
        if ".." in choice:
            low, high = (read(part) for part in choice.split("..", 1))
            return Range(low, high, log=name in LOGARITHMIC)
        return tuple(read(part.strip()) for part in choice.split(",") if part.strip())
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"--vary {text}: {choice!r} must hold {types}s, such as {'8,64' if types == 'int' else '0.001,0.01'}."
        ) from None


def take_most_epochs(values):
    """The most epochs of a space, which Hyperband may give to a trial; takes them out of the space."""
    from tf_adapters.tuning.spaces import Range

    choice = values.pop("epochs", None)
    if choice is None:
        raise InputError("--tuner hyperband needs to know the most epochs: give --vary epochs=10, or a range.")
    return choice.high if isinstance(choice, Range) else max(choice)
