"""Of the site: a page with every command and option, made of the program's own help."""

import typer.main
from mkdocs.structure.files import File

PAGE = "reference/command-line.md"
START = """# tf-adapters

The text is that of `tf-adapters COMMAND --help`.
"""


def on_files(files, config):
    """Called by MkDocs with the site's files."""
    files.append(File.generated(config, PAGE, content=page()))
    return files


def page():
    """Markdown of all commands."""
    from tf_adapters.cli.main import program

    return "\n".join([START, *_commands(typer.main.get_command(program()), ())])


def _commands(group, names):
    for name, command in group.commands.items():
        words = (*names, name)
        yield f"{'#' * (len(words) + 1)} {' '.join(words)}\n\n{(command.help or '').strip()}\n"
        if hasattr(command, "commands"):
            yield from _commands(command, words)
        else:
            yield from _panels(command)


def _panels(command):
    panels = {}
    for parameter in command.params:
        is_option = parameter.opts[0].startswith("-")
        panel = getattr(parameter, "rich_help_panel", None) or ("Options" if is_option else "Arguments")
        panels.setdefault(panel, []).append(_line(parameter, is_option))
    for panel, lines in panels.items():
        yield f"**{panel}**\n\n" + "\n".join(lines) + "\n"


def _line(parameter, is_option):
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    about = ["required"] if parameter.required else []
    default = None if callable(parameter.default) else parameter.default
    about += [f"default `{default}`"] if default not in (None, False, ()) and default != [] else []
    shown = names if is_option else f"`{(parameter.metavar or parameter.name).upper()}`"
    brackets = f" ({', '.join(about)})" if about else ""
    return f"- {shown}{brackets}: {(parameter.help or '').strip()}"
