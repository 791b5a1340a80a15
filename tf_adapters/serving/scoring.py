"""What all tasks of a bank say of the same texts."""

import numpy as np
import tensorflow as tf

from tf_adapters.text.batching import padding_multiple, sorted_batches


class BankScorer:
    """Answers texts by every task of a bank; they are cut into tokens once for each length and pairing that tasks want.

    Args:
        bank: `AdapterBank` with at least one task.
        batch_size: int, texts in a batch.
    """

    def __init__(self, bank, *, batch_size=32):
        self.bank, self.batch_size = bank, batch_size

    def outputs(self, text, text_pair=None, *, progress=None):
        """What each task says of each text.

        Args:
            text, text_pair: string tensors `(rows,)`; text_pair may be None where no task is on pairs.
            progress: function called after each batch with its number of texts times tasks, or None.

        Returns: dict from a task's name to a float32 NumPy array `(rows, outputs)`, logits, or values of a regression,
            in the order of the rows; NaN in a row without an answer.
        """
        tasks, rows = self.bank.tasks, int(text.shape[0])
        found = {name: np.empty((rows, max(1, len(task.labels))), np.float32) for name, task in tasks.items()}
        for pairs, max_length in {(task.text_pairs, task.max_length): None for task in tasks.values()}:
            tokenizer = self.bank.tokenizer.with_max_length(max_length)
            alike = [name for name, task in tasks.items() if (task.text_pairs, task.max_length) == (pairs, max_length)]
            encoded = tokenizer.encode(text, text_pair if pairs else None)
            for positions, inputs in sorted_batches(
                encoded, batch_size=self.batch_size, tokenizer=tokenizer, multiple_of=padding_multiple()
            ):
                for name in alike:
                    answers = self.bank({"task": tf.fill([len(positions)], name), **inputs})
                    regression = tasks[name].kind == "regression"
                    values = answers["value"][:, tf.newaxis] if regression else answers["logits"]
                    values = tf.where((answers["error"] == "")[:, tf.newaxis], values, np.nan)
                    found[name][positions] = values[:, : found[name].shape[1]].numpy()
                if progress is not None:
                    progress(len(positions) * len(alike))
        return found
