"""The README.md of an adapter directory as the HuggingFace hub wants it: with metadata that it can index."""

from tf_adapters.errors import InputError

LIBRARY = "tf-adapters"
TAGS = ("adapter", "tensorflow", "keras")
# Kind of task -> the hub's name for it.
_TASKS = {
    "classification": "text-classification",
    "multi-label": "text-classification",
    "regression": "text-classification",
    "token-classification": "token-classification",
    "question-answering": "question-answering",
    "multiple-choice": "multiple-choice",
    "masked-lm": "fill-mask",
}
# Our names of metrics -> those of the `evaluate` library, which the hub knows.
_METRICS = {
    "matthews": "matthews_correlation",
    "spearman": "spearmanr",
    "pearson": "pearsonr",
    "macro_f1": "f1",
    "micro_f1": "f1",
}
_SPLITS = ("validation", "test")


def hub_card(text, settings, repository, *, base_model=None, license=None):
    """The text of a model card with metadata for the hub.

    What the card's own metadata says beyond that stays: a licence, a language, further tags.

    Args:
        text: str, the directory's README.md.
        settings: content of its `tf_adapters.json`.
        repository: str, `owner/name`, which takes the place of DIRECTORY in the commands.
        base_model: str or None, the encoder's id on the hub.
        license: str or None, as the hub spells it (`apache-2.0`); None for what the card says.

    Raises:
        InputError: the card's own metadata cannot be read.
    """
    from huggingface_hub import ModelCard

    try:
        # A card without metadata is one for which ModelCard would print a warning.
        card = ModelCard(text if text.startswith("---") else f"---\n{{}}\n---\n{text}")
    except Exception as error:  # of the parser that huggingface_hub has
        raise InputError(
            f"The metadata at the top of README.md cannot be read ({str(error).splitlines()[0][:200]}): correct it, or "
            "remove README.md, which is then made anew."
        ) from None
    data, kind = card.data, (settings["task"] or {}).get("kind")
    data.library_name, data.pipeline_tag = LIBRARY, data.pipeline_tag or _TASKS.get(kind)
    tags = [data.tags] if isinstance(data.tags, str) else data.tags or []
    data.tags = list(dict.fromkeys([*tags, *TAGS, settings["backbone"]["model_type"]]))
    data.base_model = base_model or data.base_model
    data.license = license or data.license
    results = _results(settings, kind)
    if results:
        data.model_name, data.eval_results = repository.partition("/")[2], results
    card.text = card.text.replace("DIRECTORY", repository)
    return str(card)


def _results(settings, kind):
    """The directory's metrics as `EvalResult`s; those of texts without a task, or of no number, are left out."""
    from huggingface_hub import EvalResult

    if kind not in _TASKS:
        return []
    name, results = settings["task"].get("name") or "unknown", []
    kept, numbers = settings.get("result"), dict(settings["metrics"] or {})
    if kept is not None:
        numbers |= {f"{kept['split']} {name}": value for name, value in kept["numbers"].items()}
    for metric, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        split, _, rest = metric.partition(" ")
        split, metric_name = (split, rest) if split in _SPLITS and rest else (None, metric)
        results.append(
            EvalResult(
                task_type=_TASKS[kind],
                dataset_type=name,
                dataset_name=name,
                dataset_split=split,
                metric_type=_METRICS.get(metric_name, metric_name),
                metric_name=metric,
                metric_value=value,
            )
        )
    return results
