"""How well hidden tokens are guessed."""

import dataclasses
from typing import Tuple

import numpy as np

from tf_adapters.errors import InputError


@dataclasses.dataclass(frozen=True)
class Perplexity:
    """Perplexity of the hidden tokens, the exponential of their mean cross-entropy.

    Call arguments:
        labels: of no account: the texts are their own.
        outputs: float array `(rows, 3)`: sum of the cross-entropies, number of hidden tokens, number of those guessed.

    Returns: dict of `log_likelihood` (the mean, in nats; greater is better, and it counts), `perplexity` and
    `accuracy`.

    Raises: InputError, if no token is hidden.
    """

    name: str = "perplexity"
    primary: str = "log_likelihood"
    kinds: Tuple[str, ...] = ("masked-lm",)

    def __call__(self, labels, outputs):
        loss, count, right = np.asarray(outputs, np.float64).sum(0)
        if not count:
            raise InputError("outputs has no hidden token: the held-out texts are too few or too short; give more.")
        with np.errstate(over="ignore"):
            return {
                "log_likelihood": float(-loss / count),
                "perplexity": float(np.exp(loss / count)),
                "accuracy": float(right / count),
            }
