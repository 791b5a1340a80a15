"""Entry point of `tf-adapters`, and its commands. A new one is a function and a line here."""

import errno
import functools
import importlib.util
import os
import sys
import warnings

from tf_adapters._installation import MissingPackageError, __version__, check_installation

ABOUT = "Adapters for the TensorFlow encoders of HuggingFace transformers: train, evaluate, predict, export."


def main(arguments=None):
    """Run the command line and return its exit status.

    0, 1 if the reader of the output has gone, 2 for a user's mistake, 130 when interrupted.
    """
    try:
        check_installation()
    except MissingPackageError as error:
        return _refused(error)
    # Before TensorFlow is imported, which reads them once.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if importlib.util.find_spec("tf_keras") is not None:
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            # Typer reports a wrong option itself, and leaves by SystemExit in every case.
            program()(args=arguments, prog_name="tf-adapters")
        except SystemExit as stop:
            return stop.code or 0
        except KeyboardInterrupt:  # before a command began
            print("interrupted", file=sys.stderr)
            return 130
        except MissingPackageError as error:
            return _refused(error)  # of a command that is for the first door alone
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            # Files are checked where they are written; this is the standard output of a full disk. Python is to flush
            # what is left in its buffer to nowhere at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _refused(f"the standard output cannot be written: {error.strerror}.")
    return 0


@functools.cache
def program():
    """The commands, a `typer.Typer`; they are imported here, once what they need is known to be installed."""
    import typer

    from tf_adapters.cli.command import Command, command
    from tf_adapters.cli.demo import demo
    from tf_adapters.cli.evaluate import evaluate
    from tf_adapters.cli.export import convert, export
    from tf_adapters.cli.info import info, tasks
    from tf_adapters.cli.predict import predict
    from tf_adapters.cli.pretrain import pretrain
    from tf_adapters.cli.serve import serve
    from tf_adapters.cli.study import page, study_command
    from tf_adapters.cli.submit import push, submit
    from tf_adapters.cli.train import train
    from tf_adapters.cli.tune import tune
    from tf_adapters.studies import STUDIES

    about = {"no_args_is_help": True, "rich_markup_mode": "markdown"}
    app = typer.Typer(name="tf-adapters", help=ABOUT, add_completion=False, pretty_exceptions_enable=False, **about)
    for one in (train, tune, pretrain, evaluate, predict, demo, serve, export, convert, push, submit, tasks, info):
        app.command(one.__name__, cls=Command)(command(one))
    analyses = "The papers' analyses: each measures, resumes after a kill, and draws its figure."
    studies = typer.Typer(name="study", help=analyses, **about)
    for study in STUDIES.values():
        summary = f"{study.about()} *{study.figures}*"
        studies.command(study.name, cls=Command, short_help=summary)(command(study_command(study)))
    studies.command("page", cls=Command)(command(page))
    app.add_typer(studies)

    def show_version(value: bool):
        if value:
            print(f"tf-adapters {__version__}")
            raise typer.Exit()

    @app.callback(help=ABOUT)
    def options(
        version: bool = typer.Option(
            False, "--version", callback=show_version, is_eager=True, help="Show the version."
        ),
    ):
        pass

    return app


def _refused(error):
    print(f"error: {error}", file=sys.stderr)
    return 2


def _show_warning(message, category, filename, lineno, file=None, line=None):
    print(f"warning: {message}", file=sys.stderr)


def entry_point():
    """Console script."""
    _prepare_streams()
    sys.exit(main())


def _prepare_streams():
    """A standard stream that the shell closed (`2>&-`) is nowhere: its number would be the next file's. What the
    terminal's encoding lacks is shown escaped, as Python does for errors."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))
    sys.stdout.reconfigure(errors="backslashreplace")
