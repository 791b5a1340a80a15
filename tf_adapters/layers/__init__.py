"""Pure Keras layers that know nothing of HuggingFace."""
