"""What an adapter directory was trained for."""


def task_of(settings):
    """Kind of task and names of the labels, in index order, from the directory's settings."""
    head = settings["head"]
    kind = (settings["task"] or {}).get("kind", "classification")
    if kind == "regression":
        return kind, ()
    # Names that transformers gives by default are not stored.
    return kind, tuple(head["labels"] or (f"LABEL_{index}" for index in range(head["num_labels"])))
