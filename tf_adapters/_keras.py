"""The one place that chooses Keras; everything else imports it from here.

transformers' TensorFlow models are Keras 2 models, so Keras is `tf_keras`, and
`TF_USE_LEGACY_KERAS` is set for libraries that look at it.
"""

import os

from tf_adapters._installation import check_first_door

check_first_door()
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import tf_keras as keras  # noqa: E402

__all__ = ["keras"]
