"""`tf-adapters study NAME`: a command for each study, made of its class."""

import inspect
import pathlib
import types
from typing import Annotated, Optional, Union, get_args, get_origin

import typer

from tf_adapters.cli import options
from tf_adapters.cli.output import check_folder
from tf_adapters.cli.quiet import terminal
from tf_adapters.errors import InputError
from tf_adapters.studies.lab import STUDY_FILE, SUMMARY_FILE, TABLE_FILE, VALUES_FILE, Stopped
from tf_adapters.studies.study import options_of, title_of

_RUN = {
    "output": (
        Optional[pathlib.Path],
        typer.Option(help="Folder to write. Default: `studies/` and the study's name.", rich_help_panel="Run"),
        None,
    ),
    "smoke": (
        bool,
        typer.Option(
            "--smoke",
            help="So small that it only shows that the study runs, in a minute or two.",
            rich_help_panel="Run",
        ),
        False,
    ),
    "resume": (
        bool,
        typer.Option(
            "--resume",
            help="Go on with an interrupted study, or add seeds, tasks or rates to one: what is measured stays.",
            rich_help_panel="Run",
        ),
        False,
    ),
    "overwrite": (
        bool,
        typer.Option("--overwrite", help="Replace the study in the output folder.", rich_help_panel="Run"),
        False,
    ),
}


def study_command(study):
    """The function of a study's command, with its options as parameters."""
    kinds = {name: _word_of(field.type) for name, field in study.__dataclass_fields__.items()}
    parameters = {}
    for name, about in options_of(study).items():
        default = study.__dataclass_fields__[name].default
        several = about.of is not None
        help = about.help
        if several:
            help += " Several: with commas between them." + (f" Default: `{_words(default)}`." if default else "")
        elif default not in (None, False):
            help += f" Default: `{default}`."
        is_flag = default is False
        kind = bool if is_flag else Optional[str if several else kinds[name]]
        spelled = f"--{name.replace('_', '-')}"
        parameters[name] = (
            kind,
            typer.Option(spelled, help=help, rich_help_panel="Study", show_default=False),
            False if is_flag else None,
        )
    parameters |= _RUN

    def run(**values):
        given = {name: values[name] for name in options_of(study) if values[name] not in (None, False)}
        given = {name: _read(name, value, options_of(study)[name]) for name, value in given.items()}
        _run(study, given, **{name: values[name] for name in _RUN})

    run.__name__ = study.name
    run.__doc__ = f"{inspect.cleandoc(study.__doc__)}\n\nReproduces: {study.figures}.\n\n{_EXAMPLES}".replace(
        "NAME", study.name
    )
    run.__signature__ = inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
            for name, (kind, option, default) in parameters.items()
        ]
    )
    run.__annotations__ = {name: Annotated[kind, option] for name, (kind, option, _) in parameters.items()}
    return run


_EXAMPLES = (
    "Does it run? `tf-adapters study NAME --smoke`. The folder gets `values.csv` with every value, `summary.json`, and "
    "the figure as `NAME.png` and `NAME.svg`; `tf-adapters study page FOLDER` shows the figures of all studies below a "
    "folder on one page. A study that was interrupted goes on with the same command and `--resume`."
)


def _run(study, given, *, output, smoke, resume, overwrite):
    chosen = study.smoke(**given) if smoke else study(**given)
    output = output or pathlib.Path("studies", f"{study.name}-smoke" if smoke else study.name)
    options.check_precision(getattr(chosen, "precision", "float32"))
    begun, finished = (output / STUDY_FILE).exists(), (output / SUMMARY_FILE).exists()
    check_folder(
        output, marker=STUDY_FILE, what="a study", resume=resume, overwrite=overwrite, unfinished=begun,
        finished=finished, run="study",
    )  # fmt: skip
    from tf_adapters.cli.quiet import import_tensorflow
    from tf_adapters.saving.atomic import remove_file, remove_folder
    from tf_adapters.studies.lab import MODELS_FOLDER, RUNS_FOLDER

    console = terminal()
    with console.status("Loading TensorFlow ..."):
        import_tensorflow()
    if begun and overwrite:
        for name in (RUNS_FOLDER, MODELS_FOLDER):
            remove_folder(output / name)
        drawn = (f"{study.name}.png", f"{study.name}.svg")
        for name in (STUDY_FILE, VALUES_FILE, TABLE_FILE, SUMMARY_FILE, *drawn):
            remove_file(output / name)
    from tf_adapters.cli.study_report import Shown, show_summary
    from tf_adapters.studies.running import run

    try:
        summary = run(chosen, output, resume=resume, observer=Shown(console))
    except (Stopped, KeyboardInterrupt):
        console.print("Stopped; what is measured is kept. Go on with the same command and --resume.")
        raise typer.Exit(130) from None
    show_summary(console, chosen, summary, output)


def page(
    folder: Annotated[pathlib.Path, typer.Argument(help="Folder below which the studies are.", show_default=False)],
    output: Annotated[
        Optional[pathlib.Path], typer.Option(help="HTML file to write. Default: `index.html` in the folder.")
    ] = None,
    overwrite: options.Overwrite = False,
):
    """One HTML page with the figures and tables of all studies below a folder: `tf-adapters study page studies`."""
    from tf_adapters.cli.output import check_new_file
    from tf_adapters.studies.page import write_page

    output = output or folder / "index.html"
    check_new_file(output, overwrite=overwrite)
    count = write_page(folder, output)
    terminal().print(f"{count} studies on {output}")


def summary_of(study):
    """A study in a line, with the figures that it reproduces."""
    return f"{title_of(study)} *{study.figures}*"


def _word_of(annotation):
    """The type of a field without `Optional`."""
    if get_origin(annotation) in (Union, types.UnionType):
        return next(part for part in get_args(annotation) if part is not type(None))
    return annotation


def _words(values):
    return ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)


def _read(name, value, about):
    if about.of is None:
        return value
    option = f"--{name.replace('_', '-')}"
    try:
        return tuple(about.of(word.strip()) for word in value.split(",") if word.strip())
    except ValueError:
        kind = {int: "whole numbers", float: "numbers"}[about.of]
        raise InputError(f"{option} {value} must be {kind} with commas between them.") from None
