"""Search of hyperparameters with keras-tuner, which is the extra `tuner`."""
