"""Task heads, of which the adapters of a model may have several."""

import dataclasses
from typing import Dict, NamedTuple, Optional

from tf_adapters.errors import InputError

# transformers keeps a name for each: a number from a damaged file must not fill the memory.
MOST_LABELS = 2**20
# Kinds of heads that an adapter may bring to a model with another. That of masked words shares the embeddings.
SWITCHED = ("classification", "token-classification", "question-answering", "multiple-choice")


class HeadShape(NamedTuple):
    """What decides a head's layers: heads of one shape compute by one graph.

    Attributes:
        head: name in `Family.heads`, or None of a model class that is not there.
        num_labels: int, outputs.
        layers: 1, or 2 for a `TwoLayerHead`.
    """

    head: Optional[str]
    num_labels: int
    layers: int = 1


@dataclasses.dataclass(eq=False)
class Held:
    """Variables of the model that several owners take in turns.

    Attributes:
        variables: list.
        holder: the `Owner` whose values are in them, or None.
        kept: dict from each other owner to its values, a list aligned with the variables.
    """

    variables: list
    holder: object
    kept: Dict[object, list] = dataclasses.field(default_factory=dict, init=False)

    def values_of(self, owner, read):
        """An owner's values; `read` reads a variable."""
        return list(self.kept[owner] if owner in self.kept else map(read, self.variables))

    def take(self, owner, read, write):
        """Put an owner's values into the variables, and keep those of the holder."""
        if owner is self.holder:
            return
        kept = dict(self.kept)
        if self.holder is not None:
            kept[self.holder] = self.values_of(self.holder, read)
        for variable, value in zip(self.variables, kept.pop(owner)):
            write(variable, value)
        self.kept, self.holder = kept, owner

    def drop(self, owner):
        """Forget an owner that is gone."""
        self.kept = {other: values for other, values in self.kept.items() if other is not owner}
        self.holder = None if self.holder is owner else self.holder


@dataclasses.dataclass(eq=False)
class Head(Held):
    """The layers of one shape of head, on the model or waiting beside it.

    Attributes:
        shape: `HeadShape`.
        model_class: the class that computes with them.
        layers: dict from the model's attribute to the layer.
        number: int, which no other head of this model has or had; the one before the first adapter has 0.
    """

    shape: HeadShape
    model_class: type
    layers: Dict[str, object]
    number: int = 0


def check_head(num_labels, labels, head, head_layers):
    """Raise InputError for a head that no encoder can have."""
    if head_layers not in (1, 2) or (head_layers == 2 and head != "classification"):
        raise InputError("{head_layers} must be 1, or 2 for head='classification'.", head_layers=head_layers)
    if labels is None and (not isinstance(num_labels, int) or not 1 <= num_labels <= MOST_LABELS):
        raise InputError(
            f"{{num_labels}} must be an integer of at least 1, and at most {MOST_LABELS:,}.", num_labels=num_labels
        )
