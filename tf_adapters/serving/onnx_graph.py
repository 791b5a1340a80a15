"""What an ONNX graph from TensorFlow becomes: one operation for a LayerNorm and for a GELU, and named sizes."""

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.version_converter
from onnxscript.rewriter import pattern, rewrite

# The first set of operations that has Gelu.
OPSET = 20


def tidied(model, sizes=("batch", "length")):
    """The same model with whole operations, whose inputs and outputs share the names of their sizes.

    Args:
        model: `onnx.ModelProto` as tf2onnx makes it.
        sizes: names of the sizes that are unknown, by the axis.

    Returns: `onnx.ModelProto` of the operations of `OPSET`.
    """
    _without_infinity(model.graph)
    model = onnx.version_converter.convert_version(model, OPSET)
    model = rewrite(model, pattern_rewrite_rules=[_LayerNorm.rule(), _Gelu.rule(), _TanhGelu.rule()])
    for value in (*model.graph.input, *model.graph.output):
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            if not dimension.HasField("dim_value"):
                dimension.dim_param = sizes[axis]
    # Names of sizes inside the graph are TensorFlow's guesses.
    del model.graph.value_info[:]
    return model


def _without_infinity(graph):
    """Put the least finite number in the place of minus infinity.

    Of a row that is masked as a whole, a softmax of infinities has no value, and tf2onnx multiplies that by 0 where
    TensorFlow chooses 0 (DeBERTa).
    """
    for place, tensor in enumerate(graph.initializer):
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and np.isneginf(values).any():
            finite = np.maximum(values, np.finfo(np.float32).min)
            graph.initializer[place].CopyFrom(onnx.numpy_helper.from_array(finite, tensor.name))


class _LayerNorm(pattern.RewriteRuleClassBase):
    """As Keras computes it: x * t + (beta - mean * t) with t = gamma / sqrt(variance + epsilon)."""

    def pattern(self, op, x, axes, axes_of_variance, epsilon, gamma, beta):
        mean = op.ReduceMean(x, axes)
        difference = op.Sub(x, mean)
        variance = op.ReduceMean(op.Mul(difference, difference), axes_of_variance)
        scale = op.Mul(op.Reciprocal(op.Sqrt(op.Add(variance, epsilon))), gamma)
        return op.Add(op.Mul(x, scale), op.Sub(beta, op.Mul(mean, scale)))

    def check(self, context, x, axes, axes_of_variance, epsilon, gamma, beta):
        found = pattern.MatchResult()
        values = [value.const_value for value in (axes, axes_of_variance, epsilon, gamma, beta)]
        if any(value is None for value in values):
            return found.fail("Something of it is no constant.")
        axes, others, epsilon, gamma, beta = (value.numpy() for value in values)
        # Gamma has the size of the last axis, and so that is the one.
        if axes.size != 1 or not (axes == others).all() or epsilon.size != 1 or gamma.ndim != 1 or beta.ndim != 1:
            return found.fail("It normalises other axes.")
        return found

    def rewrite(self, op, x, axes, axes_of_variance, epsilon, gamma, beta):
        return op.LayerNormalization(x, gamma, beta, axis=-1, epsilon=float(epsilon.const_value.numpy().item()))


class _Gelu(pattern.RewriteRuleClassBase):
    """0.5 x erfc(-x / sqrt(2)), as `tf.nn.gelu` computes it."""

    def pattern(self, op, x):
        return op.Mul(op.Mul(0.5, x), op.Sub(1.0, op.Erf(op.Mul(op.Neg(x), 0.7071067690849304))))

    def rewrite(self, op, x):
        return op.Gelu(x)


class _TanhGelu(pattern.RewriteRuleClassBase):
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""

    def pattern(self, op, x):
        inner = op.Add(x, op.Mul(0.044714998453855515, op.Pow(x, 3.0)))
        return op.Mul(op.Mul(0.5, x), op.Add(1.0, op.Tanh(op.Mul(0.7978845834732056, inner))))

    def rewrite(self, op, x):
        return op.Gelu(x, approximate="tanh")
