"""`tf-adapters export`."""

import json
import pathlib
import shlex
from typing import Annotated

import typer

from tf_adapters.cli import options
from tf_adapters.cli.terminal import terminal
from tf_adapters.errors import InputError

STORAGES = ("float32", "bfloat16", "float16")


def export(
    directory: Annotated[pathlib.Path, typer.Argument(help="Adapter directory.")],
    output: Annotated[
        pathlib.Path, typer.Option(help="Version directory to write; its last part is a number: `serving/film/1`.")
    ],
    storage: Annotated[
        str,
        typer.Option(help="How frozen weights are stored: `float32`, or `bfloat16` or `float16` in half the space."),
    ] = "float32",
    model: options.Source = None,
):
    """Write a SavedModel for TensorFlow Serving: raw text in, label and probabilities out.

    It needs tensorflow and tensorflow-text to load, and nothing of this package. A server that watches the folder above the
    version takes the highest number.

    `tf-adapters export adapters/rotten-tomatoes --output serving/film/1`

    In Python: `tf.saved_model.load("serving/film/1").signatures["serving_default"](text=tf.constant(["a quiet film"]))`, after
    `import tensorflow_text`.
    """
    if storage not in STORAGES:
        raise InputError(f"--storage {storage} is unknown: use one of {', '.join(STORAGES)}.")
    from tf_adapters.saving.settings import read_settings

    read_settings(directory)
    from tf_adapters.cli.quiet import import_tensorflow

    console = terminal()
    with console.status("Loading TensorFlow ..."):
        import_tensorflow()
    from tf_adapters.serving.export import check_version_directory, export_saved_model
    from tf_adapters.training.pipeline import load_pipeline

    check_version_directory(output)
    with console.status("Loading the encoder ..."):
        scorer, settings = load_pipeline(directory, backbone=model)
    with console.status("Tracing and writing ..."):
        export_saved_model(scorer.model, output, text=scorer.wordpiece, task=settings["task"], storage=storage)
    size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    console.print(f"Written to {output} ({size / 1e6:.1f} MB).")
    inputs = 'text=tf.constant(["a quiet film"])'
    if (settings["task"] or {}).get("text_pairs"):
        inputs += ', text_pair=tf.constant(["it moves"])'
    code = (
        "import tensorflow as tf, tensorflow_text; "
        f'print(tf.saved_model.load({json.dumps(str(output))}).signatures["serving_default"]({inputs}))'
    )
    console.print(f"Try it:\n  python -c {shlex.quote(code)}")
