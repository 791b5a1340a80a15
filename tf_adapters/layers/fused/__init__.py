"""What stands between the matrix products of an encoder block, compiled, with gradients in closed form.

Matrix products stay with TensorFlow's kernels (oneDNN on CPUs). What stands between them is a few operations that read
and write each tensor once: both directions of each are an XLA program of their own, since differentiating
through a program would split it up again. Inside a graph that is compiled as a whole the programs are inlined, and
XLA sees one.

The operations know nothing of layers. They take and return tensors of any floating type; the programs compute in
float32, and gradients of biases, gamma and beta are summed in it. Each operation is made once (`functools.cache`),
whatever number of layers asks for it: they then share its compilations.
"""

from tf_adapters._submodules import submodules_of

__getattr__ = submodules_of(__name__)
