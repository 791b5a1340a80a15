"""What an ONNX graph from TensorFlow becomes: whole operations, named sizes, and products in eight bits. Needs onnx.

One operation stands for a LayerNorm and one for a GELU.

Of the products in eight bits, weights have a range for each column. Activations have one for each row of a product,
that is for each token, found when it is computed: no text has to be seen before, and an answer depends on no other text
of its batch. Products of a range for a whole tensor, which is what ONNX Runtime's own dynamic quantisation has, lose
more and depend on the batch (Dettmers et al. 2022, section 2, call these vector-wise and tensor-wise).

The integers are unsigned by signed. Processors with AVX2 and without VNNI add pairs of such products in sixteen bits,
which may overflow: check a file on the processor where it will run.
"""

import numpy as np
import onnx
import onnx.version_converter
from onnx import TensorProto, helper, numpy_helper
from onnxscript import ir
from onnxscript.rewriter import pattern, rewrite

# The first set of operations that has Gelu.
OPSET = 20
_LARGEST = 127
_TINY = 1e-18  # in the place of the range of a row of zeros
_WORDS = 1000  # a matrix of at least so many rows from which rows are taken holds embeddings


def tidied(model):
    """An `onnx.ModelProto` as tf2onnx makes it, with whole operations of `OPSET`; its inputs and outputs then share the
    names of their sizes."""
    _without_infinity(model.graph)
    model = onnx.version_converter.convert_version(model, OPSET)
    rules = (_LayerNorm, _LayerNormOfKeras3, _Gelu, _TanhGelu)
    model = rewrite(model, pattern_rewrite_rules=[rule.rule() for rule in rules])
    for value in (*model.graph.input, *model.graph.output):
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            if not dimension.HasField("dim_value"):
                dimension.dim_param = ("batch", "length")[axis]
    # Names of sizes inside the graph are TensorFlow's guesses.
    del model.graph.value_info[:]
    return model


def _without_infinity(graph):
    """Put the least finite number in the place of minus infinity.

    Of a row that is masked as a whole, a softmax of infinities has no value, and tf2onnx multiplies that by 0 where
    TensorFlow chooses 0 (DeBERTa).
    """
    for place, tensor in enumerate(graph.initializer):
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and np.isneginf(values).any():
            finite = np.maximum(values, np.finfo(np.float32).min)
            graph.initializer[place].CopyFrom(numpy_helper.from_array(finite, tensor.name))


class _LayerNorm(pattern.RewriteRuleClassBase):
    """As Keras computes it: x * t + (beta - mean * t) with t = gamma / sqrt(variance + epsilon)."""

    def pattern(self, op, x, axes, axes_of_variance, epsilon, gamma, beta):
        mean = op.ReduceMean(x, axes)
        difference = op.Sub(x, mean)
        variance = op.ReduceMean(op.Mul(difference, difference), axes_of_variance)
        scale = op.Mul(op.Reciprocal(op.Sqrt(op.Add(variance, epsilon))), gamma)
        return op.Add(op.Mul(x, scale), self.shift(op, mean, scale, beta))

    def shift(self, op, mean, scale, beta):
        return op.Sub(beta, op.Mul(mean, scale))

    def check(self, context, x, axes, axes_of_variance, epsilon, gamma, beta):
        found = pattern.MatchResult()
        values = [value.const_value for value in (axes, axes_of_variance, epsilon)]
        if any(value is None for value in values):
            return found.fail("Something of it is no constant.")
        axes, others, epsilon = (value.numpy() for value in values)
        if axes.size != 1 or not (axes == others).all() or epsilon.size != 1:
            return found.fail("It normalises other axes.")
        if _is_vector(gamma) and _is_vector(beta):
            return found  # Gamma has the size of the last axis, and so that is the one.
        if x.shape is None or not isinstance(x.shape[-1], int) or axes.item() not in (-1, len(x.shape) - 1):
            return found.fail("The size that it normalises is unknown.")
        return found

    def rewrite(self, op, x, axes, axes_of_variance, epsilon, gamma, beta):
        how = {"axis": -1, "epsilon": float(epsilon.const_value.numpy().item())}
        if _is_vector(gamma) and _is_vector(beta):
            return op.LayerNormalization(x, gamma, beta, **how)
        # Each row of a bank has its own.
        ones = op.Constant(value=ir.tensor(np.ones(x.shape[-1], np.float32)))
        return op.Add(op.Mul(op.LayerNormalization(x, ones, **how), gamma), beta)


class _LayerNormOfKeras3(_LayerNorm):
    """x * t + (-mean * t + beta), with the same t."""

    def shift(self, op, mean, scale, beta):
        return op.Add(op.Mul(op.Neg(mean), scale), beta)


def _is_vector(value):
    return value.const_value is not None and value.const_value.numpy().ndim == 1


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


def in_integers(model, kept):
    """The model with the constant matrices of its products, and its embeddings, in eight bits.

    Args:
        model: `onnx.ModelProto`; it is changed.
        kept: list of arrays, matrices that stay as they are: the adapters' and the head's.

    Returns: `(model, number of matrices)`.
    """
    graph, writer = model.graph, _Writer()
    constants = {tensor.name: tensor for tensor in graph.initializer}
    kept = {(array.shape, array.tobytes()) for array in map(np.ascontiguousarray, kept)}
    count = 0
    for node in graph.node:
        place = {"MatMul": 1, "Gather": 0}.get(node.op_type)
        if place is None or node.input[place] not in constants:
            writer.nodes.append(node)
            continue
        name = node.input[place]
        matrix = numpy_helper.to_array(constants[name])
        suits = matrix.dtype == np.float32 and matrix.ndim == 2 and (matrix.shape, matrix.tobytes()) not in kept
        if node.op_type == "Gather":
            suits = suits and len(matrix) >= _WORDS
        if not suits:
            writer.nodes.append(node)
            continue
        write = writer.product if node.op_type == "MatMul" else writer.rows
        write(node, name, matrix)
        count += 1
    used = {name for node in writer.nodes for name in node.input}
    tensors = [tensor for tensor in graph.initializer if tensor.name in used] + list(writer.constants.values())
    for field, values in ((graph.node, writer.nodes), (graph.initializer, tensors)):
        del field[:]
        field.extend(values)
    onnx.checker.check_model(model)
    return model, count


class _Writer:
    """The nodes and constants of a new graph."""

    def __init__(self):
        self.nodes, self.constants, self._integers = [], {}, {}

    def product(self, node, name, matrix):
        """A product with a matrix, of integers."""
        (values, scale), output = self._integers_of(node.input[0]), node.output[0]
        weights, ranges = self._matrix(name, matrix, axis=0)
        self._add("MatMulInteger", [values, weights, self._constant("zero", np.uint8(128))], f"{output}/int32")
        self._add("Cast", [f"{output}/int32"], f"{output}/float", to=TensorProto.FLOAT)
        self._add("Mul", [scale, ranges], f"{output}/scale")
        self._add("Mul", [f"{output}/float", f"{output}/scale"], output)

    def rows(self, node, name, matrix):
        """Rows of a matrix, which are taken as integers."""
        weights, ranges = self._matrix(name, matrix, axis=1)
        rows, output = node.input[1], node.output[0]
        self._add("Gather", [weights, rows], f"{output}/int8", axis=0)
        self._add("Gather", [ranges, rows], f"{output}/scale", axis=0)
        self._add("Cast", [f"{output}/int8"], f"{output}/float", to=TensorProto.FLOAT)
        self._add("Mul", [f"{output}/float", f"{output}/scale"], output)

    def _integers_of(self, values):
        """The names of a tensor's integers, from 1 to 255 with 128 for 0, and of the size of 1 in each row."""
        if values not in self._integers:
            name = f"{values}/uint8"
            last = self._constant("last", np.array([-1]))
            self._add("ReduceMax", [values, last], f"{name}/most", keepdims=1)
            self._add("ReduceMin", [values, last], f"{name}/least", keepdims=1)
            self._add("Neg", [f"{name}/least"], f"{name}/most below")
            most = [f"{name}/most", f"{name}/most below", self._constant("tiny", np.float32(_TINY))]
            self._add("Max", most, f"{name}/size")
            self._add("Mul", [f"{name}/size", self._constant("step", np.float32(1 / _LARGEST))], f"{name}/scale")
            self._add("Reciprocal", [f"{name}/scale"], f"{name}/inverse")
            self._add("Mul", [values, f"{name}/inverse"], f"{name}/scaled")
            # Processors multiply unsigned by signed eight bits; signed by signed takes several times as long.
            one, zero = self._constant("one", np.float32(1)), self._constant("zero", np.uint8(128))
            self._add("QuantizeLinear", [f"{name}/scaled", one, zero], name)
            self._integers[values] = name, f"{name}/scale"
        return self._integers[values]

    def _matrix(self, name, matrix, axis):
        """The names of a matrix' integers and of their sizes, one for each column (`axis=0`) or row."""
        sizes = np.maximum(np.abs(matrix).max(axis, keepdims=True), _TINY) / _LARGEST
        integers = np.clip(np.round(matrix / sizes), -_LARGEST, _LARGEST).astype(np.int8)
        for suffix, array in (("int8", integers), ("sizes", sizes.astype(np.float32))):
            self.constants[f"{name}/{suffix}"] = numpy_helper.from_array(array, f"{name}/{suffix}")
        return f"{name}/int8", f"{name}/sizes"

    def _constant(self, name, value):
        name = f"int8/{name}"
        self.constants.setdefault(name, numpy_helper.from_array(np.asarray(value), name))
        return name

    def _add(self, operation, inputs, output, **attributes):
        self.nodes.append(helper.make_node(operation, inputs, [output], **attributes))
