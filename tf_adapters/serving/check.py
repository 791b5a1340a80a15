"""Whether an export answers as the model that it was made of, on labelled rows."""

import copy
import dataclasses
import time
from typing import Optional

import numpy as np
import tensorflow as tf

from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.tasks.metrics import METRICS


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
        run: function of a dict of int32 tensors `(batch, length)` that returns the export's logits, as the scorer's
            model returns them.
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
            raise InputError(
                f"The export answers {logits.shape} logits, not all of them finite, where the model answers "
                f"{expected.shape}."
            )
        differences.append(float(np.abs(logits - expected).max(initial=0.0)))
        return logits

    found = []
    for forward in (keep, compare):
        asked = copy.copy(scorer)
        asked.forward = forward
        begun = time.monotonic()
        outputs = of_kind.predict(asked, rows, progress=progress)
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
    """A function of ids that answers by an exported file or version, for `check_export`.

    Args:
        path: of the export.
        format: `"saved-model"`, `"onnx"` or `"litert"`.

    Raises:
        InputError: ONNX Runtime is not installed.
    """
    if format == "onnx":
        return _onnx(path)
    if format == "litert":
        call = tf.lite.Interpreter(str(path)).get_signature_runner("serving_default")
        names = list(call.get_input_details())
    else:
        loaded = tf.saved_model.load(str(path))
        call = loaded.signatures["tokens"]
        names = list(call.structured_input_signature[1])

    def run(inputs):
        return _logits({name: np.asarray(value) for name, value in call(**{n: inputs[n] for n in names}).items()})

    run.model = None if format == "litert" else loaded  # its variables live as long as it does
    return run


def _onnx(path):
    try:
        import onnxruntime
    except ImportError:
        raise InputError("A check of ONNX files needs ONNX Runtime: run `pip install onnxruntime`.") from None
    session = onnxruntime.InferenceSession(path if isinstance(path, bytes) else str(path))
    names = [value.name for value in session.get_inputs()]
    outputs = [value.name for value in session.get_outputs()]
    return lambda inputs: _logits(
        dict(zip(outputs, session.run(outputs, {name: np.asarray(inputs[name]) for name in names})))
    )


def _logits(outputs):
    if "start_logits" in outputs:
        return np.stack([outputs["start_logits"], outputs["end_logits"]], -1)
    logits = outputs["logits"]
    return logits[:, np.newaxis] if logits.ndim == 1 else logits
