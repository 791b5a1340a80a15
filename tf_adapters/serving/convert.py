"""Files for ONNX Runtime and LiteRT: ids in, logits out, of one task or of a bank; and whether an export answers as its
model."""

import contextlib
import dataclasses
import json
import logging
import math
import re
import sys
import tempfile
import time
from typing import Optional

import numpy as np
import tensorflow as tf

from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.methods.lora import Lora
from tf_adapters.models.door import only_on_tensorflow
from tf_adapters.models.injection import merged
from tf_adapters.models.state import state_of
from tf_adapters.ranges import check_choice
from tf_adapters.saving.atomic import replacing
from tf_adapters.saving.directory import kind_of_model
from tf_adapters.serving.versions import FORMATS, QUANTIZED, check_export_file
from tf_adapters.tasks.metrics import METRICS
from tf_adapters.tasks.own_files import get_reader

# The newest set of operations that tf2onnx writes.
ONNX_OPSET = 18
_IDS = {"onnx": tf.int64, "litert": tf.int32}
_MOST_BYTES = 2**31 - 2**20  # of a file's message


def export_file(model, path, *, format, text=None, task=None, quantize="none"):
    """Write one file that another runtime loads.

    Its inputs are `input_ids`, `attention_mask` and, if the encoder has them, `token_type_ids`, integers
    `(batch, length)` of any size: int64 of ONNX, as tokenizers give them, and int32 of LiteRT. Its outputs are float32
    `logits`, or `start_logits` and `end_logits` of question answering. Text has to be cut into ids outside: neither
    runtime has BERT's tokenizer among its operations. An ONNX file has the labels and the text settings in its
    metadata.

    Of an `AdapterBank` each row names its task: `task`, such integers `(batch,)`, is its place in the metadata's
    `tasks`. The outputs are `logits`, float32 `(batch, widest)`, and `outputs`, int32 `(batch,)`, how many of them are
    the task's.

    Args:
        model: a model with a head, its active adapter included, of plain blocks (`fast=False`); or an `AdapterBank`.
        path: of a new file.
        format: `"onnx"`, which needs tf2onnx (`pip install "tf_adapters[onnx]"`), or `"litert"`.
        text: `WordPiece` of training, whose settings are kept, or None.
        task: as in `export_saved_model`.
        quantize: `"int8"` for an ONNX file whose products and embeddings are in eight bits (see `onnx_graph`), but for
            the adapters, the head and the pooler; or `"none"`. `check_export` says what that loses.

    Returns: the path.

    Raises:
        InputError: the file is there or cannot be written, tf2onnx is missing, or an operation of the model has no
            counterpart, which the message names; a bank is empty, or larger than the 2 GiB that a file may have.
    """
    check_choice("format", format, FORMATS[1:])
    check_choice("quantize", quantize, QUANTIZED)
    if quantize != "none" and format != "onnx":
        raise InputError("{quantize} is for {format} 'onnx': leave it out.", quantize=quantize, format=format)
    path = check_export_file(path, format)
    # A class that nobody has imported has no instances.
    if isinstance(model, getattr(sys.modules.get("tf_adapters.serving.bank"), "AdapterBank", ())):
        content = _of_bank(model, format, quantize)
    else:
        only_on_tensorflow(model, "export_file")
        content = _of_model(model, format, text, task, quantize)
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return path


def _of_model(model, format, text, task, quantize):
    state = state_of(model)
    if state.fast:
        raise InputError(
            "A model of fast blocks holds parts that XLA compiles, which no other runtime has: load it with fast=False."
        )
    kind = get_kind(kind_of_model(model, task))
    kind.check_model(model, f"task={task!r}")
    names = state.family.takes(model)
    specs = [tf.TensorSpec([None, None], _IDS[format], name=name) for name in names]

    @tf.function(input_signature=specs, autograph=state.family.autograph)
    def function(*ids):
        inputs = _int32(names, ids)
        logits = tf.cast(state.door.logits_of_rows(model, inputs), tf.float32)
        if kind.name == "question-answering":
            return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
        return {"logits": logits}

    config = state.door.config_of(model)
    labels = [config.id2label[index] for index in range(config.num_labels)]
    about = {
        "task": json.dumps(task or {}),
        "labels": json.dumps(labels if get_reader(kind.name).named else []),
        "text": json.dumps(None if text is None else text.settings()),
        "backbone_sha256": state.digest(model),
    }
    # In eight bits most of a small update of a kernel would be lost: there it stays beside the kernel.
    with merged(model) if quantize == "none" else contextlib.nullcontext(), state.door.as_matrices(model):
        kept = [*_updates(state), *state.adapter_variables(), *state.head_variables(model), *_pooler(model)]
        return _onnx(function, specs, about, quantize, kept) if format == "onnx" else _litert(function)


def _updates(state):
    """The second matrices of low-rank updates as they are multiplied: with their scale."""
    layers = [] if state.active is None else state.adapters[state.active].layers.values()
    return [layer.scaling * layer.b for layer in layers if isinstance(layer, Lora)]


def _int32(names, ids):
    return {name: tf.cast(values, tf.int32) for name, values in zip(names, ids)}


def _pooler(model):
    pooler = state_of(model).family.pooler(model)
    return [] if pooler is None else pooler.weights


def _of_bank(bank, format, quantize):
    if not bank.tasks:
        raise InputError("{model} is an empty bank: add(name, directory) a task first.", model=bank)
    size = bank.nbytes + sum(4 * math.prod(weight.shape) for weight in bank.backbone.weights)
    if size > _MOST_BYTES:
        raise InputError(
            f"The bank's weights take {size / 2**30:.1f} GiB, and a file holds 2: make banks of fewer tasks."
        )
    names = state_of(bank.backbone).family.takes(bank.backbone)
    specs = [tf.TensorSpec([None, None], _IDS[format], name=name) for name in names]
    specs.append(tf.TensorSpec([None], _IDS[format], name="task"))
    with bank.packed() as tasks, state_of(bank.backbone).door.as_matrices(bank.backbone):

        @tf.function(input_signature=specs, autograph=False)
        def function(*inputs):
            # A number beyond int32 would be that of another task.
            task = tf.cast(tf.clip_by_value(inputs[-1], tf.int32.min, tf.int32.max), tf.int32)
            return tasks.numbered_logits(_int32(names, inputs) | {"task": task})

        known = list(tasks.tasks.values())
        about = {
            "tasks": json.dumps(list(tasks.tasks)),
            "kinds": json.dumps([task.kind for task in known]),
            "labels": json.dumps([task.labels for task in known]),
            "text_pairs": json.dumps([task.text_pairs for task in known]),
            "max_length": json.dumps([task.max_length for task in known]),
            "value_range": json.dumps([task.value_range for task in known]),
            "text": json.dumps(bank.tokenizer.settings()),
            "backbone_sha256": bank.digest,
        }
        # A bank's vectors are tables of rows, which look like embeddings.
        kept = [
            *_pooler(bank.backbone),
            *(store.variable for table in tasks.graph.row_tables for store in table.stores),
        ]
        return _onnx(function, specs, about, quantize, kept) if format == "onnx" else _litert(function)


def _onnx(function, specs, about, quantize, kept):
    import onnx
    import tf2onnx
    from tf2onnx.optimizer import back_to_back_optimizer

    from tf_adapters.serving.onnx_graph import in_integers, tidied

    # It drops the first of two reshapes, of which the second may copy sizes (tf2onnx 1.17).
    back_to_back_optimizer._func_map.pop(("Reshape",), None)  # noqa: SLF001
    logging.getLogger("tf2onnx").setLevel(logging.CRITICAL)
    model, _ = tf2onnx.convert.from_function(
        function, input_signature=specs, opset=ONNX_OPSET, custom_op_handlers={"Erfc": (_erfc, [])}
    )
    unknown = sorted(
        {node.op_type for node in model.graph.node if not onnx.defs.has(node.op_type, ONNX_OPSET, node.domain or "")}
    )
    if unknown:
        raise InputError(f"The model has operations that ONNX lacks: {', '.join(unknown)}.")
    # TensorFlow appends the number of the output.
    for value in (*model.graph.input, *model.graph.output):
        name = value.name.partition(":")[0]
        _rename(model.graph, value.name, name)
        value.name = name
    model = tidied(model)
    if quantize == "int8":
        model, _ = in_integers(model, [np.float32(variable.numpy()) for variable in kept if len(variable.shape) == 2])
    onnx.helper.set_model_props(model, about)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _erfc(context, node, name, args):
    """ONNX has erf, and TensorFlow's exact GELU is made of its complement."""
    one = context.make_const(f"{node.name}/one", np.float32(1))
    erf = context.make_node("Erf", [node.input[0]])
    shape, dtype, outputs = context.get_shape(node.output[0]), context.get_dtype(node.output[0]), node.output
    context.remove_node(node.name)
    context.make_node(
        "Sub", [one.output[0], erf.output[0]], name=node.name, outputs=outputs, shapes=[shape], dtypes=[dtype]
    )


def _rename(graph, old, new):
    for node in graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                if name == old:
                    names[place] = new


def _litert(function):
    root = tf.Module(name="model")
    root.function = function
    root.read = list(function.get_concrete_function().variables)
    with tempfile.TemporaryDirectory() as folder:
        # By way of a SavedModel, so that inputs and outputs keep their names in a signature.
        tf.saved_model.save(root, folder, signatures={"serving_default": function})
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=["serving_default"])
        try:
            return converter.convert()
        except Exception as error:
            found = sorted(set(re.findall(r"(tf\.\w+)", str(error))))
            if type(error).__name__ != "ConverterError" or not found:
                raise
            raise InputError(f"The model has operations that LiteRT lacks: {', '.join(found)}.") from None


# Whether an export answers as the model that it was made of, on labelled rows


@dataclasses.dataclass(frozen=True)
class Check:
    """What was found.

    Attributes:
        metric: str, the number that counts of the task.
        before, after: floats, that number of the model and of the export.
        rows: int, rows that were scored.
        changed: int, labels that are others; None for answers that are no labels.
        largest_difference: float, of logits.
        seconds_before, seconds_after: floats.
    """

    metric: str
    before: float
    after: float
    rows: int
    changed: Optional[int]
    largest_difference: float
    seconds_before: float
    seconds_after: float


def check_export(scorer, run, rows, *, kind, metric, progress=None):
    """Score labelled rows by a model and by its export, in the same batches.

    Args:
        scorer: `Scorer` of the model.
        run: the export as a function, as `Scorer.by` takes it.
        rows: labelled rows of the kind.
        kind, metric: str.
        progress: function called with the number of rows done after each batch, twice for each row; or None.

    Returns: `Check`.
    """
    of_kind, kept, differences = get_kind(kind), [], []

    def keep(inputs):
        kept.append(scorer.forward(inputs))
        return kept[-1]

    def compare(inputs):
        logits, expected = run(inputs), kept.pop(0)
        if logits.shape != expected.shape or not np.isfinite(logits).all():
            raise InputError(f"The export answers {logits.shape} logits, not all of them finite, for {expected.shape}.")
        differences.append(float(np.abs(logits - expected).max(initial=0.0)))
        return logits

    found = []
    for forward in (keep, compare):
        begun = time.monotonic()
        outputs = of_kind.predict(scorer.by(forward), rows, progress=progress)
        found.append((outputs, time.monotonic() - begun))
    (before, seconds_before), (after, seconds_after) = found
    primary = METRICS[metric].primary
    classes = [of_kind.classes(rows, outputs) for outputs in (before, after)]
    return Check(
        metric=primary,
        before=of_kind.score(metric, rows, before)[primary],
        after=of_kind.score(metric, rows, after)[primary],
        rows=len(rows),
        changed=None if classes[0] is None else int(np.sum(np.asarray(classes[0][1]) != np.asarray(classes[1][1]))),
        largest_difference=max(differences),
        seconds_before=seconds_before,
        seconds_after=seconds_after,
    )


def runner_of(path, format):
    """A function of ids that answers by the export at a path (of `"onnx"` also its bytes), one of `FORMATS`, for
    `check_export`."""
    if format == "onnx":
        try:
            import onnxruntime
        except ImportError as error:
            raise InputError(f"ONNX files are checked by ONNX Runtime ({error}): `pip install onnxruntime`.") from None
        held = onnxruntime.InferenceSession(path if isinstance(path, bytes) else str(path))
        names, outputs = ([value.name for value in values] for values in (held.get_inputs(), held.get_outputs()))

        def call(**inputs):
            ids = {name: np.asarray(values, np.int64) for name, values in inputs.items()}
            return dict(zip(outputs, held.run(outputs, ids)))

    elif format == "litert":
        held = call = tf.lite.Interpreter(str(path)).get_signature_runner("serving_default")
        names = list(call.get_input_details())
    else:
        held = tf.saved_model.load(str(path))
        call = held.signatures["tokens"]
        names = list(call.structured_input_signature[1])

    def run(inputs):
        found = {name: np.asarray(value) for name, value in call(**{name: inputs[name] for name in names}).items()}
        if "start_logits" in found:
            return np.stack([found["start_logits"], found["end_logits"]], -1)
        logits = found["logits"]
        return logits[:, np.newaxis] if logits.ndim == 1 else logits

    run.model = held  # its variables live as long as it does
    return run
