"""`tf-adapters export`."""

import json
import pathlib
import shlex
from typing import Annotated

import typer

from tf_adapters.cli import options
from tf_adapters.cli.hub import local
from tf_adapters.cli.output import check_writable
from tf_adapters.cli.terminal import terminal
from tf_adapters.cli.trained import encoder_source, load_bank, named_directories
from tf_adapters.errors import InputError
from tf_adapters.saving.settings import task_of
from tf_adapters.serving.places import check_export_file, check_version_directory

STORAGES = ("float32", "bfloat16", "float16")
FORMATS = ("saved-model", "onnx", "litert")
# TensorFlow Serving's newest release when this version was written.
NEWEST_SERVER = (2, 20)


def export(
    directories: Annotated[
        list[str],
        typer.Argument(
            metavar="DIRECTORY...",
            help="Adapter directory, or `owner/name` of one on the HuggingFace hub; with `--adapters` any number, each "
            "as `DIRECTORY` or `NAME=DIRECTORY`.",
        ),
    ],
    output: Annotated[
        pathlib.Path,
        typer.Option(
            help="Version directory to write, whose last part is a number: `serving/film/1`; of other formats, the "
            "file."
        ),
    ],
    format: Annotated[
        str,
        typer.Option(
            help="`saved-model`; or, for ONNX Runtime and LiteRT, `onnx` or `litert`: one file that takes ids and "
            "returns logits."
        ),
    ] = "saved-model",
    adapters: Annotated[
        bool,
        typer.Option(
            "--adapters",
            help="Write one model of all the directories' tasks on one encoder, whose requests name a task for each "
            "text.",
        ),
    ] = False,
    storage: Annotated[
        str,
        typer.Option(help="How frozen weights are stored: `float32`, or `bfloat16` or `float16` in half the space."),
    ] = "float32",
    adapter_storage: Annotated[
        str, typer.Option(help="With `--adapters`: how adapters are stored, likewise.")
    ] = "float32",
    model: options.Source = None,
):
    """Write a SavedModel for TensorFlow Serving: raw text in, label and probabilities out.

    It needs tensorflow and tensorflow-text to load, and nothing of this package. A server that watches the folder above
    the version takes the highest number. TensorFlow Serving's newest release is 2.20: what TensorFlow 2.21 writes gives
    the same answers in TensorFlow 2.20, and a server itself was not tried.

    `tf-adapters export adapters/rotten-tomatoes --output serving/film/1`

    Many tasks in one model, each by the name of its directory or a name of your own; the tasks of a batch may be mixed,
    and each new version shares the encoder's file with the one before:

    `tf-adapters export --adapters adapters/* spam=adapters/sms --output serving/all/1`

    For other runtimes, without the tokenizer: `tf-adapters export adapters/rotten-tomatoes --format onnx --output
    film.onnx`

    In Python: `tf.saved_model.load("serving/film/1").signatures["serving_default"](text=tf.constant(["a quiet
    film"]))`, after `import tensorflow_text`.
    """
    for option, value in (("--storage", storage), ("--adapter-storage", adapter_storage)):
        if value not in STORAGES:
            raise InputError(f"{option} {value} is unknown: use one of {', '.join(STORAGES)}.")
    if adapter_storage != "float32" and not adapters:
        raise InputError("--adapter-storage is for --adapters: add it, or use --storage.")
    if format not in FORMATS:
        raise InputError(f"--format {format} is unknown: use one of {', '.join(FORMATS)}.")
    check_writable(output)
    if format != "saved-model":
        check_export_file(output, format)
        if adapters or len(directories) > 1 or storage != "float32":
            raise InputError(f"--format {format} is for one task in float32: leave out --adapters and --storage.")
        _export_file(local(directories[0]), output, format, model)
        return
    check_version_directory(output)
    if adapters:
        inputs = _export_bank(directories, output, storage, adapter_storage, model)
    elif len(directories) > 1:
        raise InputError(f"{len(directories)} directories were given: give --adapters to write one model of them all.")
    else:
        inputs = _export_one(local(directories[0]), output, storage, model)
    files = [path for path in output.rglob("*") if path.is_file()]
    shared = sum(path.stat().st_size for path in files if path.stat().st_nlink > 1)
    note = f", of which {shared / 1e6:.1f} MB are shared with another version" if shared else ""
    console = terminal()
    console.print(f"Written to {output} ({sum(path.stat().st_size for path in files) / 1e6:.1f} MB{note}).")
    code = (
        "import tensorflow as tf, tensorflow_text; "
        f'print(tf.saved_model.load({json.dumps(str(output))}).signatures["serving_default"]({inputs}))'
    )
    import tensorflow as tf

    note = server_note(tf.__version__)
    if note:
        console.print(note)
    console.print(f"Try it:\n  python -c {shlex.quote(code)}", soft_wrap=True)


def server_note(version):
    """What to know of TensorFlow Serving where this version of TensorFlow wrote the export, or None."""
    written = tuple(int(part) for part in version.split(".")[:2])
    if written <= NEWEST_SERVER:
        return None
    here, newest = (".".join(map(str, numbers)) for numbers in (written, NEWEST_SERVER))
    return (
        f"TensorFlow Serving's newest release is {newest}, and TensorFlow {here} wrote this. TensorFlow {newest} reads "
        f"such files; a server was not tried. If yours refuses it, export with TensorFlow {newest}."
    )


def _export_one(directory, output, storage, model):
    from tf_adapters.saving.settings import read_settings

    read_settings(directory)
    console = _load_tensorflow()
    from tf_adapters.kinds import get_kind
    from tf_adapters.pipeline import load_pipeline
    from tf_adapters.serving.export import export_saved_model

    with console.status("Loading the encoder ..."):
        scorer, settings = load_pipeline(directory, backbone=model)
    with console.status("Tracing and writing ..."):
        export_saved_model(scorer.model, output, text=scorer.tokenizer, task=settings["task"], storage=storage)
    kind, _ = task_of(settings)
    examples = {
        "text": "a quiet , moving film",
        "text_pair": "it moves",
        "question": "Who sang?",
        "context": "Ada sang, Bob danced.",
        "choices": ["It moves.", "It rests."],
    }
    names = get_kind(kind).served_texts(settings["task"] or {})
    return ", ".join(f"{name}=tf.constant([{json.dumps(examples[name])}])" for name in names)


def _export_file(directory, output, format, model):
    from tf_adapters.saving.settings import read_settings

    read_settings(directory)
    console = _load_tensorflow()
    from tf_adapters.pipeline import load_pipeline
    from tf_adapters.serving.convert import export_file

    with console.status("Loading the encoder ..."):
        scorer, settings = load_pipeline(directory, backbone=model)
    with console.status("Converting and writing ..."):
        export_file(scorer.model, output, format=format, text=scorer.tokenizer, task=settings["task"])
    console.print(f"Written to {output} ({output.stat().st_size / 1e6:.1f} MB): ids in, logits out.")


def _export_bank(directories, output, storage, adapter_storage, model):
    named = named_directories(directories)
    source = encoder_source(named, model)
    console = _load_tensorflow()
    from tf_adapters.serving.export_bank import export_bank

    bank = load_bank(named, source, console, storage=adapter_storage)
    with console.status("Tracing and writing ..."):
        export_bank(bank, output, storage=storage)
    task = json.dumps(next(iter(named)))
    return f'text=tf.constant(["a quiet film"]), task=tf.constant([{task}]), text_pair=tf.constant([""])'


def _load_tensorflow():
    from tf_adapters.cli.quiet import import_tensorflow

    console = terminal()
    with console.status("Loading TensorFlow ..."):
        import_tensorflow()
    return console
