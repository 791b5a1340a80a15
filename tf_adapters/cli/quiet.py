"""Imports TensorFlow without the lines that its C++ parts print before any log level applies."""

import contextlib
import logging
import os
import sys
import tempfile

from tf_adapters._installation import MissingPackageError
from tf_adapters.errors import InputError


@contextlib.contextmanager
def _without_native_stderr():
    """Send what is written to file descriptor 2 to a file, which is shown if the block fails.

    Not when the user interrupts it.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        except (InputError, MissingPackageError):
            raise  # its sentence says all
        except Exception:
            os.dup2(kept, 2)
            file.seek(0)
            os.write(2, file.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def import_tensorflow(first=None, door="transformers"):
    """Import TensorFlow, and the Keras and the model classes of a door, quietly.

    Args:
        first: function of nothing that TensorFlow's first operation must not precede, or None.

    Returns: what `first` returns, or None.
    """
    with _without_native_stderr():
        import tensorflow as tf
        from absl import logging as absl_logging
        from huggingface_hub.utils import logging as hub_logging

        from tf_adapters.models.door import door_called

        door_called(door)
        tf.get_logger().setLevel(logging.ERROR)
        # tensorflow_datasets warns of its own features there.
        absl_logging.set_verbosity(absl_logging.ERROR)
        # Without a network it would print every retry.
        hub_logging.set_verbosity_error()
        made = None if first is None else first()
        # The first op makes TensorFlow look for devices, and say so.
        tf.constant(0)
    return made
