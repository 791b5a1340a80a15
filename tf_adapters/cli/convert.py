"""`tf-adapters convert`."""

import pathlib
from typing import Optional

from tf_adapters.adapterhub.description import find_directory, read_description
from tf_adapters.cli.command import argument, option
from tf_adapters.cli.directories import check_writable, local
from tf_adapters.cli.options import Overwrite, Source
from tf_adapters.cli.quiet import start, terminal
from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.saving.settings import read_settings


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
        trained = read_settings(directory)["parameters"]
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
