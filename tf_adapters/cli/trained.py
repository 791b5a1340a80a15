"""What an adapter directory was trained for."""

from tf_adapters.errors import InputError


def task_of(settings):
    """Kind of task and names of the labels, in index order, from the directory's settings."""
    head = settings["head"]
    kind = (settings["task"] or {}).get("kind", "classification")
    if kind in ("regression", "question-answering"):
        return kind, ()
    # Names that transformers gives by default are not stored.
    return kind, tuple(head["labels"] or (f"LABEL_{index}" for index in range(head["num_labels"])))


def check_pairs(settings, text_pair_column, directory):
    """Raise InputError if single texts are given to an adapter that was trained on pairs, or pairs to another."""
    trained = (settings["task"] or {}).get("text_pairs")
    if trained and text_pair_column is None:
        raise InputError(f"{directory} was trained on pairs of texts: give the second by --text-pair-column.")
    if trained is False and text_pair_column is not None:
        raise InputError(
            f"--text-pair-column {text_pair_column}: {directory} was trained on single texts; leave it out."
        )
