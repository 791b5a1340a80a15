"""The first door: the TensorFlow models of transformers, on Keras 2. The only room that touches their code."""

import logging

from tf_adapters._installation import submodules_of

# transformers 4.5x says this each time one of its TensorFlow classes is made; the package's
# upper bound on transformers is the answer to it. Nothing else is silenced.
logging.getLogger("transformers.modeling_tf_utils").addFilter(
    lambda record: "TensorFlow and JAX classes are deprecated" not in record.getMessage()
)

__getattr__ = submodules_of(__name__)
