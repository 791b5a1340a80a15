"""What the words say without an encoder: the baselines that a fine-tuned encoder must beat."""

import numpy as np

from tf_adapters.tasks.metrics import METRICS

# Of logistic regression, or of ridge regression the inverse; validation chooses.
STRENGTHS = (0.1, 1.0, 10.0, 100.0)


def tf_idf(task, rows, *, seed=0, most_rows=None, strengths=STRENGTHS):
    """Words and pairs of words, weighted by TF-IDF, and a linear model, whose strength validation chooses.

    Args:
        task: `Task` of the kind "classification", "multi-label" or "regression".
        rows: labelled `Rows` to predict.
        seed: int.
        most_rows: int, at most so many training rows, drawn by the seed; None for all.
        strengths: floats that are tried.

    Returns: `(outputs of the rows, as of the kind's Kind.predict; numbers of the validation rows, a dict; parameters)`.

    Raises:
        ValueError: the texts have no words.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    from tf_adapters.tasks.rows import sample_rows

    training = task.train if most_rows is None else sample_rows(task.train, count=most_rows, seed=seed)
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2 if len(training) > 1000 else 1)
    features = vectors.fit_transform(texts_of(training))
    validation, rest = (vectors.transform(texts_of(other)) for other in (task.validation, rows))
    metric, best = METRICS[task.metric], None
    for strength in strengths:
        fitted = _fitted(task, features, training.labels, strength, seed)
        numbers = metric(task.validation.labels, fitted(validation))
        if best is None or numbers[metric.primary] > best[1][metric.primary]:
            best = fitted, numbers
    fitted, numbers = best
    return fitted(rest), numbers, features.shape[1] * max(1, len(task.labels))


def _fitted(task, features, labels, strength, seed):
    """A function from features to outputs."""
    from sklearn.linear_model import LogisticRegression, Ridge

    def logistic(targets):
        return LogisticRegression(C=strength, max_iter=1000, random_state=seed).fit(features, targets)

    if task.kind == "regression":
        model = Ridge(alpha=1 / strength, random_state=seed).fit(features, labels)
        return lambda others: model.predict(others)[:, np.newaxis]
    if task.kind == "multi-label":
        # A label that every row has, or none, needs no model.
        models = [
            logistic(column) if column.min() < column.max() else float(20 * column[0] - 10) for column in labels.T
        ]

        def decide(others):
            columns = [
                np.full(others.shape[0], model) if isinstance(model, float) else model.decision_function(others)
                for model in models
            ]
            return np.stack(columns, axis=1)

        return decide
    present = np.unique(labels)
    model = logistic(labels) if len(present) > 1 else None

    def score(others):
        scores = np.full((others.shape[0], len(task.labels)), -1e3)
        scores[:, present] = 0.0 if model is None else model.predict_log_proba(others)
        return scores

    return score


def word_lookup(task, rows):
    """Each word's most frequent label in training, and the most frequent of all for a new one.

    Args:
        task: `Task` of the kind "token-classification".
        rows: labelled `WordRows` to predict.

    Returns: float32 array `(words of all rows, labels)`.
    """
    words, labels = task.train.words.flat_values.numpy(), task.train.labels.flat_values.numpy()
    known, number = np.unique(words, return_inverse=True)
    counts = np.zeros((len(known), len(task.labels)), np.int64)
    np.add.at(counts, (number, labels), 1)
    new = rows.words.flat_values.numpy()
    place = np.minimum(np.searchsorted(known, new), len(known) - 1)
    best = np.where(known[place] == new, counts.argmax(1)[place], counts.sum(0).argmax())
    return np.eye(len(task.labels), dtype=np.float32)[best]


def texts_of(rows):
    """First and second texts in one, for words that know no order; a list of str."""
    parts = [part.numpy() for part in rows.texts(range(len(rows))) if part is not None]
    return [" ".join(text.decode() for text in row) for row in zip(*parts)]
