"""Examples that were encoded beforehand."""

import dataclasses
from typing import Optional, Union

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class PackedExamples:
    """Encoded examples without padding, one after the other; `training_batches` takes them in place of rows.

    Attributes:
        input_ids, token_type_ids: int32 RaggedTensors, `(examples, (tokens))`.
        labels: int32 RaggedTensor of the same shape, one label a token and -1 where a token
            has none; or NumPy array, `(examples, ...)`; or None.
    """

    input_ids: tf.RaggedTensor
    token_type_ids: tf.RaggedTensor
    labels: Optional[Union[np.ndarray, tf.RaggedTensor]] = None

    def __len__(self):
        return int(self.input_ids.nrows())

    def encode(self, tokenizer, index):
        """The examples at an int64 tensor of indices, a dict as of `Tokenizer.encode`; also in a graph."""
        return {"input_ids": tf.gather(self.input_ids, index), "token_type_ids": tf.gather(self.token_type_ids, index)}
