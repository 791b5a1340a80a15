"""Text to tensors: the same operations in the input pipeline and in the served graph."""

from tf_adapters._installation import submodules_of

__getattr__ = submodules_of(
    __name__, ByteLevelBpe="byte_bpe", SentencePiece="sentencepiece", WordPiece="wordpiece", training_batches="batching"
)
