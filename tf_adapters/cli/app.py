"""The commands. A new one is a file and a line here."""

import typer

from tf_adapters.cli.command import Command, command
from tf_adapters.cli.convert import convert
from tf_adapters.cli.demo import demo
from tf_adapters.cli.evaluate import evaluate
from tf_adapters.cli.export import export
from tf_adapters.cli.info import info
from tf_adapters.cli.predict import predict
from tf_adapters.cli.pretrain import pretrain
from tf_adapters.cli.push import push
from tf_adapters.cli.serve import serve
from tf_adapters.cli.study import page, study_command, summary_of
from tf_adapters.cli.submit import submit
from tf_adapters.cli.tasks import tasks
from tf_adapters.cli.train import train
from tf_adapters.cli.tune import tune
from tf_adapters.studies import STUDIES

app = typer.Typer(
    name="tf-adapters",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Adapters for the TensorFlow encoders of HuggingFace transformers: train, evaluate, predict, export.",
)
for one in (train, tune, pretrain, evaluate, predict, demo, serve, export, convert, push, submit, tasks, info):
    app.command(one.__name__, cls=Command)(command(one))

studies = typer.Typer(
    name="study",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="The papers' analyses: each measures, resumes after a kill, and draws its figure.",
)
for study in STUDIES.values():
    studies.command(study.name, cls=Command, short_help=summary_of(study))(command(study_command(study)))
studies.command("page", cls=Command)(command(page))
app.add_typer(studies)


def _version(value: bool):
    if value:
        from tf_adapters._version import __version__

        print(f"tf-adapters {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
):
    """Adapters for the TensorFlow encoders of HuggingFace transformers: train, evaluate, predict, export."""
