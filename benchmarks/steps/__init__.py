"""A training step: its time and memory, what it is fed and what it sends."""
