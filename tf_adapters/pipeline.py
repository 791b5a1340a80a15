"""From a trained model, or its adapter directory, to answers for texts."""

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Union

from tf_adapters._types import Model, PathLike
from tf_adapters.errors import NAME, InputError, shown
from tf_adapters.kinds import get_kind
from tf_adapters.kinds.kind import NAMED, Scorer
from tf_adapters.models.door import quiet_about_poolers
from tf_adapters.models.state import state_of
from tf_adapters.models.trainable import cast_frozen, freeze
from tf_adapters.ranges import in_range
from tf_adapters.saving.directory import kind_of_model, load_trained
from tf_adapters.saving.hub import find_adapter
from tf_adapters.saving.settings import read_settings, task_of
from tf_adapters.tasks.labels import check_label_names
from tf_adapters.tasks.own_files import get_reader, kept_reading, metric_of, rows_from_file
from tf_adapters.tasks.registry import load_split
from tf_adapters.tasks.rows import with_value_range
from tf_adapters.text.tokenizer import check_text, load_tokenizer, trained_tokenizer

if TYPE_CHECKING:
    from tf_adapters.tasks.rows import Rows
    from tf_adapters.text.tokenizer import Tokenizer

_TRAINED = "single texts", "pairs of texts"


@in_range
def load_pipeline(directory, *, backbone=None, batch_size=32, fast=None, door=None):
    """Rebuild model and text settings of an adapter directory.

    Args:
        directory: path, or `owner/name` or `owner/name@revision` on the hub.
        backbone: source of the encoder, or None for the one that the directory names.
        batch_size: int.
        fast: as in `add_adapters`.
        door: as in `load_backbone`.

    Returns: `(Scorer, settings)`.

    Raises:
        InputError: the directory or its encoder cannot be used, or the encoder's vocabulary
            is not the one of training.
    """
    directory = find_adapter(directory)
    with quiet_about_poolers():
        model, settings = load_trained(directory, backbone=backbone, fast=fast, door=door)
    freeze(model)
    if state_of(model).door.NAME == "transformers":
        cast_frozen(model)
    tokenizer = trained_tokenizer(model, settings["text"], directory)
    return Scorer(model, tokenizer, batch_size=batch_size), settings


def labelled_rows(directory, task=None, *, split=None, **options):
    """What `(name, Rows)` an adapter directory is scored on.

    Args:
        directory: path.
        task: name of a task with the directory's labels, or None for the one that it was trained on.
        split: name of a split, or None for test where its labels are known, otherwise validation.
        options: of `load_split`.

    Raises:
        InputError: the directory was trained on files, or the task has other labels, or none.
    """
    settings = read_settings(directory)
    kind, labels = task_of(settings)
    task = task or (settings["task"] or {}).get("name")
    if task in (None, "files"):
        raise InputError(f"{directory} was trained on files: give the rows to score by {{input}}.", input=NAME)
    candidates = [split] if split is not None else ["test", "validation"]
    for candidate in candidates:
        try:
            found = load_split(task, candidate, **options)
        except InputError:
            if candidate == candidates[-1]:
                raise
            continue
        if found.rows.labels is not None:
            break
    if found.rows.labels is None:
        raise InputError(
            f"{{split}}: the labels of task {task!r} were never published for it; use validation.", split=candidate
        )
    if found.kind != kind or found.labels != labels:
        raise InputError(
            f"Task {task!r} has labels {', '.join(found.labels) or 'none (regression)'}, and {directory} was "
            f"trained for {', '.join(labels) or 'regression'}: give the task or the files that it was trained for."
        )
    return f"{task}, {candidate} split", found.rows


def predict(
    model: Union[Model, PathLike],
    texts: Sequence[Any],
    text_pairs: Optional[Sequence[Any]] = None,
    *,
    kind: Optional[str] = None,
    tokenizer: "Optional[Tokenizer]" = None,
    backbone: Optional[PathLike] = None,
    batch_size: int = 32,
    fast: Optional[bool] = None,
    door: Optional[str] = None,
    progress: Optional[Callable[[int], None]] = None,
) -> List[Dict[str, Any]]:
    """What a trained model answers to texts, as `tf-adapters predict` writes it.

    Args:
        model: path of an adapter directory, or its `owner/name` or `owner/name@revision` on the hub; or a model whose
            active adapter answers.
        texts: list of str. For token classification lists of words, or texts that are cut at white space; for question
            answering the questions.
        text_pairs: list of second texts, where the model was trained on pairs; for question answering the contexts.
            None otherwise.
        kind: str, what the labels of a model are, as `Task.kind`; None for what its head says: without anything else
            `"classification"`, or `"regression"` with one output. A directory knows its kind.
        tokenizer: `Tokenizer` of a model, or None for its encoder's. A directory knows its own.
        backbone, batch_size, fast, door: of a directory, as in `load_pipeline`.
        progress: function called with the number of texts done after each batch, or None.

    Returns: a list of dicts, one a text: `label` and `probabilities`, `labels`, `value`, or `answer`. A text whose
        logits are not finite has an `error`, and None in place of its answers.

    Raises:
        InputError: as `load_pipeline`; no texts but something else, pairs where there were none in training, or the
            reverse.

    Example:
    >>> (answer,) = predict("adapters/film", ["a quiet, moving film"])
    >>> sorted(answer), sorted(answer["probabilities"])
    (['label', 'probabilities'], ['negative', 'positive'])
    """
    scorer, kind, labels, task = _scorer(model, kind, tokenizer, batch_size, backbone=backbone, fast=fast, door=door)
    pairs = task.get("text_pairs")
    if pairs not in (None, text_pairs is not None) and kind.name != "question-answering":
        raise InputError(
            f"{{text_pairs}}: {model} was trained on {_TRAINED[bool(pairs)]}, give it these.",
            text_pairs="given" if text_pairs is not None else None,
        )
    if isinstance(texts, (str, bytes)) or isinstance(text_pairs, (str, bytes)):
        raise InputError("texts must be a list of texts: give [text] for one.")
    texts, text_pairs = list(texts), None if text_pairs is None else list(text_pairs)
    if text_pairs is not None and len(text_pairs) != len(texts):
        raise InputError(f"text_pairs has {len(text_pairs)} texts and texts {len(texts)}: give one for each.")
    rows = with_value_range(get_reader(kind.name).of_texts(texts, text_pairs), task) if texts else ()
    return kind.records(rows, kind.predict(scorer, rows, progress=progress), labels) if len(rows) else []


def evaluate(
    model: Union[Model, PathLike],
    rows: "Union[Rows, PathLike]",
    *,
    metric: Optional[str] = None,
    kind: Optional[str] = None,
    tokenizer: "Optional[Tokenizer]" = None,
    backbone: Optional[PathLike] = None,
    batch_size: int = 32,
    fast: Optional[bool] = None,
    door: Optional[str] = None,
    progress: Optional[Callable[[int], None]] = None,
) -> Dict[str, float]:
    """A trained model's numbers on labelled rows.

    Args:
        model, kind, tokenizer, backbone, batch_size, fast, door, progress: as in `predict`.
        rows: rows with labels, such as `load_task("glue/sst2").validation`, or the path of a file with them, which is
            read as a directory's training file was, in UTF-8; of the labels that the model was trained for. Of a file
            in another encoding give `task_from_files(...).test`.
        metric: str, one of `tasks.metrics.METRICS`; None for the directory's, or what is usual of the kind.

    Returns: dict of floats by the metric's names, such as `{"accuracy": 0.93}`.

    Raises:
        InputError: as `load_pipeline`; rows without labels, or a metric of another kind.
    """
    scorer, kind, labels, task = _scorer(model, kind, tokenizer, batch_size, backbone=backbone, fast=fast, door=door)
    given, pairs = "The rows", task.get("text_pairs")
    if isinstance(rows, (str, os.PathLike)):
        given, reading = rows, kept_reading(task.get("reading"), rows, format=None)
        rows = rows_from_file(given, kind=kind.name, labels=labels, **reading)
    if hasattr(rows, "text_pair"):
        if pairs not in (None, rows.text_pair is not None):
            raise InputError(
                f"{given}: {model} was trained on {_TRAINED[bool(pairs)]}: give task_from_files(...).test, which says "
                "what columns have them."
            )
        rows = rows if rows.value_range else with_value_range(rows, task)
    if getattr(rows, "labels", None) is None:
        raise InputError(
            "{rows} have no labels to compare with: give labelled rows, such as task.validation.", rows=rows
        )
    if kind.name not in (kinds := getattr(rows, "kinds", (kind.name,))):
        raise InputError(f"The rows are for {' or '.join(kinds)}, and the model answers {kind.name}.")
    if kind.head in NAMED and rows.label_names:
        check_label_names(
            "The rows", rows.label_names, "the model", labels or kind.num_labels(()), "give rows read in its order"
        )
    metric = metric_of(kind.name, metric or task.get("metric"), labels)
    return kind.score(metric, rows, kind.predict(scorer, rows, progress=progress))


def _scorer(model, kind, tokenizer, batch_size, **of_directory):
    """`(Scorer, Kind, names of the labels, what a directory says of its task)` of a directory or a model; arguments as
    of `predict`."""
    is_directory = isinstance(model, (str, os.PathLike))
    has, other = ("a directory", "a model") if is_directory else ("a model", "a directory")
    for name, value in ({"kind": kind, "tokenizer": tokenizer} if is_directory else of_directory).items():
        if value is not None:
            raise InputError(f"{name}={shown(value)} is of {other}, and {has} has its own: leave it out.")
    if is_directory:
        scorer, settings = load_pipeline(model, batch_size=batch_size, **of_directory)
        name, labels = task_of(settings)
        return scorer, get_kind(name), labels, settings["task"] or {}
    config, kind = state_of(model).door.config_of(model), get_kind(kind or kind_of_model(model))
    kind.check_model(model, f"kind={kind.name!r}")
    labels = tuple(config.id2label[i] for i in range(config.num_labels)) if get_reader(kind.name).named else ()
    tokenizer = tokenizer or load_tokenizer(model)
    check_text(model, tokenizer)
    return Scorer(model, tokenizer, batch_size=batch_size), kind, labels, {}
