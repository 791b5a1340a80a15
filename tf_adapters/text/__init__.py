"""Text to tensors: the same operations in the input pipeline and in the served graph."""
