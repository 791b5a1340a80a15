"""`tf-adapters export` and `convert`: adapter directories as what other programs read."""

import dataclasses
import importlib.util
import json
import pathlib
import shlex
from typing import Optional

from tf_adapters.adapterhub.description import find_directory, read_description
from tf_adapters.cli.command import argument, option, with_options_of
from tf_adapters.cli.data import LabelOptions
from tf_adapters.cli.directories import (
    check_writable,
    encoder_source,
    load_bank,
    load_scorer,
    local,
    named_directories,
    reading_of,
)
from tf_adapters.cli.options import DataDir, DoorOptions, Overwrite, Source, refuse
from tf_adapters.cli.quiet import counting, start, terminal
from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.saving import settings as saved
from tf_adapters.serving.versions import FORMATS, QUANTIZED, STORAGES, check_export_file, check_version_directory
from tf_adapters.tasks.own_files import metric_of, rows_from_file
from tf_adapters.tasks.rows import with_value_range

LOST = 0.005  # of the metric, above which an export is not recommended
# TensorFlow Serving's newest release when this version was written.
NEWEST_SERVER = (2, 20)


@with_options_of(LabelOptions, without=("format", "skip_bad_rows"))
class CheckOptions:
    """How the rows of `--check` are read."""


def export(
    directories: argument(
        list[str],
        "Adapter directory, or `owner/name` of one on the HuggingFace hub; with `--adapters` any number, each "
        "as `DIRECTORY` or `NAME=DIRECTORY`.",
        "DIRECTORY...",
    ),
    *,
    output: option(
        pathlib.Path,
        "Version directory to write, whose last part is a number: `serving/film/1`; of other formats, the file.",
    ),
    format: option(
        str,
        "`saved-model`; or, for ONNX Runtime and LiteRT, `onnx` or `litert`: one file that takes ids and returns "
        "logits.",
        values=FORMATS,
    ) = "saved-model",
    adapters: option(
        bool,
        "Write one model of all the directories' tasks on one encoder, whose requests name a task for each text.",
        "--adapters",
    ) = False,
    storage: option(
        str, "How frozen weights are stored: `float32`, or `bfloat16` or `float16` in half the space.", values=STORAGES
    ) = "float32",
    adapter_storage: option(str, "With `--adapters`: how adapters are stored, likewise.", values=STORAGES) = "float32",
    quantize: option(
        str,
        "`int8`: an ONNX file whose products and embeddings are in eight bits, but for adapters and head. What that "
        "loses is measured on the rows of `--check`, or a named task's own.",
        values=QUANTIZED,
    ) = "none",
    check: option(
        Optional[pathlib.Path],
        "Labelled rows, as of `evaluate --input`: the export is scored beside the model, and how many labels are "
        "others and how far the logits are apart is said.",
    ) = None,
    reading: CheckOptions,
    data_dir: DataDir = None,
    model: Source = None,
    where: DoorOptions,
):
    """Write a SavedModel for TensorFlow Serving: raw text in, label and probabilities out.

    It needs tensorflow and tensorflow-text to load, and nothing of this package. A server that watches the folder above
    the version takes the highest number. TensorFlow Serving's newest release is 2.20: what TensorFlow 2.21 writes gives
    the same answers in TensorFlow 2.20, and a server itself was not tried.

    `tf-adapters export adapters/rotten-tomatoes --output serving/film/1`

    Many tasks in one model, each by the name of its directory or a name of your own; the tasks of a batch may be mixed:

    `tf-adapters export --adapters adapters/* spam=adapters/sms --output serving/all/1`

    For other runtimes, without the tokenizer: `tf-adapters export adapters/rotten-tomatoes --format onnx --output
    film.onnx`; with `--adapters` of many tasks, which a request names by their numbers; with `--quantize int8` in eight
    bits, and `--check FILE` says of any export what it scores on labelled rows beside the model.

    Where KerasHub is installed in place of transformers, `--door keras-hub` writes the same.

    In Python: `tf.saved_model.load("serving/film/1").signatures["serving_default"](text=tf.constant(["a quiet
    film"]))`, after `import tensorflow_text`.
    """
    _check_options(format, adapters, storage, adapter_storage, quantize, check, len(directories))
    reading = dataclasses.asdict(reading)
    if check is None:
        refuse(reading, "goes with --check FILE: add that, or leave it out")
    door = where.choose(writes_graphs=True)
    check_writable(output)
    if format == "saved-model":
        check_version_directory(output)
    else:
        check_export_file(output, format)
    rows = None
    if adapters:
        named = named_directories(directories)
        model = encoder_source(named, model)
    else:
        directory = local(directories[0])
        rows = _rows_to_check(directory, check, quantize, data_dir, door, reading)
    console = terminal()
    start(console, door=door)
    from tf_adapters.kinds.kind import EXAMPLES
    from tf_adapters.serving.convert import export_file
    from tf_adapters.serving.export import export_bank, export_saved_model

    if adapters:
        made = load_bank(named, model, console, storage=adapter_storage, door=door)
        write, about, ids = export_bank, {}, "ids and the number of each row's task"
        inputs = f'text=tf.constant(["a quiet film"]), task=tf.constant([{_literal(next(iter(named)))}])'
        if any(task.text_pairs for task in made.tasks.values()):
            inputs += ', text_pair=tf.constant([""])'
    else:
        scorer, settings = load_scorer(directory, model, console, door=door)
        made, write, ids = scorer.model, export_saved_model, "ids"
        about = {"text": scorer.tokenizer, "task": settings["task"]}
        names = get_kind(saved.task_of(settings)[0]).served_texts(settings["task"] or {})
        inputs = ", ".join(f"{name}=tf.constant([{json.dumps(EXAMPLES[name])}])" for name in names)
    if format == "saved-model":
        with console.status("Tracing and writing ..."):
            write(made, output, storage=storage, **about)
        _say_version(output, inputs)
    else:
        with console.status("Converting and writing ..."):
            export_file(made, output, format=format, quantize=quantize, **about)
        console.print(f"Written to {output} ({output.stat().st_size / 1e6:.1f} MB): {ids} in, logits out.")
    if rows is not None:
        _say_check(console, scorer, settings, rows, output, format)
    elif quantize != "none":
        console.print(f"What --quantize {quantize} loses was not measured: give labelled rows by --check FILE.")


def _check_options(format, adapters, storage, adapter_storage, quantize, check, count):
    if adapter_storage != "float32" and not adapters:
        raise InputError("--adapter-storage is for --adapters: add it, or use --storage.")
    if format != "saved-model" and (storage != "float32" or adapter_storage != "float32"):
        raise InputError(f"--format {format} is for float32: leave out --storage and --adapter-storage.")
    if quantize != "none" and format != "onnx":
        raise InputError(f"--quantize {quantize} is for --format onnx: add it.")
    if adapters and (quantize != "none" or check is not None):
        raise InputError("--quantize and --check are for one task: leave out --adapters.")
    checked = quantize != "none" or check is not None
    if checked and format == "onnx" and importlib.util.find_spec("onnxruntime") is None:
        raise InputError('ONNX files are checked by ONNX Runtime: run `pip install "tf_adapters[onnx]"`.')
    if count > 1 and not adapters:
        raise InputError(f"{count} directories were given: give --adapters to write one model of them all.")


def _rows_to_check(directory, file, quantize, data_dir, door="transformers", reading=None):
    """`(name, labelled rows)` to check an export on, or None."""
    settings = saved.read_settings(directory)
    named = (settings["task"] or {}).get("name") not in (None, "files")
    if file is None and (quantize == "none" or not named):
        return None
    start(terminal(), door=door)
    from tf_adapters.pipeline import labelled_rows

    if file is None:
        try:
            return labelled_rows(directory, data_dir=data_dir)
        except InputError:
            if data_dir is not None:
                raise
            return None  # the export says that nothing was measured
    kind, labels = saved.task_of(settings)
    reading, _ = reading_of([settings], file, {"format": None, **reading})
    if (settings["task"] or {}).get("text_pairs"):
        reading.setdefault("text_pair_column", "text_pair")
    rows = rows_from_file(file, kind=kind, labels=labels, **reading)
    return file.name, with_value_range(rows, settings["task"])


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


def _say_check(console, scorer, settings, named_rows, output, format):
    from tf_adapters.serving.convert import check_export, runner_of

    (kind, labels), (name, rows) = saved.task_of(settings), named_rows
    metric = metric_of(kind, (settings["task"] or {}).get("metric"), labels)
    run = runner_of(output, format)
    with counting(console, f"checking on {name}", total=2 * len(rows)) as advance:
        found = check_export(scorer, run, rows, kind=kind, metric=metric, progress=advance)
    changed = "" if found.changed is None else f"{found.changed:,} labels are others; "
    console.print(
        f"Checked on {found.rows:,} rows of {name}: {found.metric} {100 * found.after:.2f} %, of the model "
        f"{100 * found.before:.2f} %; {changed}logits are at most {found.largest_difference:.2g} apart; "
        f"{found.seconds_after:.1f} s, in TensorFlow {found.seconds_before:.1f} s."
    )
    if found.before - found.after > LOST:
        console.print(f"It loses more than {100 * LOST:g} points: do not use it without another thought.")


def _literal(text):
    # With the character itself: JSON's escapes of one beyond U+FFFF are no such character in Python.
    return json.dumps(text, ensure_ascii=False)


def _say_version(output, inputs):
    import tensorflow as tf

    console, size = terminal(), sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    console.print(f"Written to {output} ({size / 1e6:.1f} MB).")
    note = server_note(tf.__version__)
    if note:
        console.print(note)
    code = (
        "import tensorflow as tf, tensorflow_text; "
        f'print(tf.saved_model.load({_literal(str(output))}).signatures["serving_default"]({inputs}))'
    )
    console.print(f"Try it:\n  python -c {shlex.quote(code)}", soft_wrap=True)


def convert(
    directory: argument(
        pathlib.Path,
        "Adapter directory of AdapterHub's, PEFT's or this package's, or `owner/name` or "
        "`owner/name@revision` of one on the HuggingFace hub.",
    ),
    *,
    output: option(pathlib.Path, "Directory to write: AdapterHub's of this package's, and this package's of others."),
    model: Source = None,
    head: option(bool, "With the prediction head, if there is one.") = True,
    max_length: option(
        Optional[int],
        "Tokens that are kept of a text, which the others' files do not say. Default: 384 for questions, or else 128.",
    ) = None,
    text_pairs: option(bool, "It was trained on pairs of texts, which the others' files do not say.") = False,
    overwrite: Overwrite = False,
):
    """Turn a directory of AdapterHub's into one of this package, or the other way round, without PyTorch; or read one
    of PEFT's.

    Exchanged with AdapterHub are bottleneck adapters (double_seq_bn, seq_bn, par_bn, scaled_par_bn and their like),
    LoRA, AdapterFusion (its adapters are found by their names in the fusion's directory or beside it), and heads of
    classification, token classification and question answering. Of PEFT's directories those of LoRA are read, with the
    head in `modules_to_save`. All of them name the encoder, and nothing says that its weights are the same: give the
    very one by `--model`.

    From AdapterHub or PEFT: `tf-adapters convert AdapterHub/bert-base-uncased-pf-sst2 --output adapters/sst2`

    To AdapterHub: `tf-adapters convert adapters/sst2 --output hub/sst2`, which PyTorch's
    `model.load_adapter("hub/sst2", use_safetensors=True)` reads; of a fusion, `load_adapter` its folders and
    `load_adapter_fusion` the directory.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())) and not overwrite:
        raise InputError(f"--output {output} is there already: choose another, or give --overwrite.")
    check_writable(output / "adapter_config.json")
    name = directory.resolve().name
    if not directory.exists():
        directory, name = local(directory, find_directory), name.partition("@")[0]
    if not directory.is_dir():
        raise InputError(f"{directory}: there is no such directory.")
    ours = (directory / "tf_adapters.json").is_file()
    source = model
    if ours:
        trained = saved.read_settings(directory)["parameters"]
        if trained["layer_norm"] or trained["backbone"]:
            raise InputError(
                f"{directory}: the encoder's LayerNorms were trained too, or more of it, which AdapterHub's files do "
                "not hold: train with --train-layer-norm none, or by a recipe that leaves them, such as pfeiffer-2021."
            )
    elif model is None:
        _, settings = read_description(directory)
        source = settings.get("model_name") or settings.get("base_model_name_or_path")
        if not source:
            raise InputError(f"{directory} does not name its encoder: give --model.")

    console = terminal()
    start(console)
    with console.status("Loading the encoder ..."):
        if ours:
            written = _to_hub(directory, name, output, model, head)
        else:
            written = _from_hub(directory, output, source, head, max_length, text_pairs)
    console.print(written)


def _to_hub(directory, name, output, model, head):
    from tf_adapters.adapterhub import export_adapter
    from tf_adapters.saving.directory import load_trained

    trained, settings = load_trained(directory, backbone=model)
    # PyTorch finds a fusion by its adapters' names.
    fusion = (settings["adapter"] or {}).get("method") == "fusion"
    export_adapter(trained, output, name=None if fusion else name, head=head)
    kind, units = settings["backbone"]["model_type"], settings["backbone"]["hidden_size"]
    return f"Written to {output}, for {kind} models of {units} units in PyTorch's adapters."


def _from_hub(directory, output, source, head, max_length, text_pairs):
    from tf_adapters import load_backbone, load_tokenizer, parameter_counts, save_adapter, set_trainable
    from tf_adapters.adapterhub import import_adapter
    from tf_adapters.adapterhub.bridge import describe_head

    described = describe_head(directory) if head else None
    kind = "classification" if described is None else _kind(described)
    fields = ("head", "labels", "head_layers") if described is not None else ()
    model = load_backbone(source, **{field: getattr(described, field) for field in fields})
    settings = import_adapter(model, directory, head=described is not None)
    set_trainable(model, "adapters")
    text = load_tokenizer(model, max_length=max_length or get_kind(kind).max_length)
    task = {"name": settings.get("name"), "kind": kind, "text_pairs": text_pairs}
    save_adapter(model, output, text=text, task=task)
    note = (
        "" if described is not None else " It has no head: the one in this directory is random, and is to be trained."
    )
    return f"Written to {output}: {parameter_counts(model).adapter:,} parameters of adapters.{note}"


def _kind(described):
    """The kind of task that a head is for."""
    if described.head != "classification":
        return described.head
    if described.flexible is not None and described.flexible["head_type"] == "multilabel_classification":
        return "multi-label"
    return "classification" if len(described.labels) > 1 else "regression"
