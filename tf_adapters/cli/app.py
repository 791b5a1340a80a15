"""The commands. A new one is a file and a line here."""

import typer

from tf_adapters.cli.evaluate import evaluate
from tf_adapters.cli.info import info
from tf_adapters.cli.predict import predict
from tf_adapters.cli.train import train

app = typer.Typer(
    name="tf-adapters",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Adapters for the TensorFlow encoders of HuggingFace transformers: train, evaluate, predict.",
)
for command in (train, evaluate, predict, info):
    app.command(command.__name__)(command)


def _version(value: bool):
    if value:
        from tf_adapters._version import __version__

        print(f"tf-adapters {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
):
    """Adapters for the TensorFlow encoders of HuggingFace transformers: train, evaluate, predict."""
