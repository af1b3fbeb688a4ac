"""Fusion of constants that the graph adds after an operator into its legacy IR layer.

before:  y = Conv(x, w); z = Add(y, c[1,C,1,1])        after:  z = Conv(x, w, c[C])
before:  y = MatMul(x[N,I], w[I,O]); z = Add(y, c[O])  after:  z = Gemm(x, w, c)
before:  y = Mul(x, s[1,C,1,1]); z = Add(y, c[1,C,1,1])
after:   z = BatchNormalization(x, s, c, 0, 1), which is ScaleShift
before:  z = BatchNormalization(Conv(x, w[8,C,3,3]), s, c, m, v)
after:   z = Conv(x, w', c')
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.legacy.rules.context import per_channel
from converter.graph.build import Builder, attrs_of, builder_before
from converter.graph.extensions import replace
from converter.graph.infer import constant, rank_of, shape_of
from converter.graph.names import Names
from converter.graph.value import optional, producer_of
from converter.graph.walk import all_graphs
from converter.passes.dead_code import remove_dead_code

BLOCK = 16  # channels that the engine computes together


def fuse(model: ir.Model) -> None:
    """Fuse Adds into biases, and BatchNormalizations into filters, in all graphs."""
    names = Names(model)
    for graph in all_graphs(model.graph):
        for op_type, step in (("Add", _bias), ("BatchNormalization", _into_filters)):
            for node in list(graph):
                if node.op_type == op_type and not node.domain:
                    step(node, names)
    remove_dead_code(model)


def _maker(value: ir.Value | None) -> ir.Node | None:
    """Return the ONNX operator that produces a value with a single consumer, else None."""
    node = producer_of(value)
    if value is None or node is None or node.domain or value.is_graph_output():
        return None
    return node if len(value.uses()) == 1 else None


def _into_filters(norm: ir.Node, names: Names) -> None:
    """Fold scales after a convolution into its filters if their number is not a multiple of 16. The
    engine of 2020.2 fuses both into one layer, with scales for whole blocks of 16 channels, and
    reads those after the last channel from uninitialized memory. A NaN among them reaches the next
    layer.
    """
    conv, rest = _maker(norm.inputs[0]), [constant(v) for v in norm.inputs[1:]]
    if conv is None or conv.op_type != "Conv":
        return
    weights, bias = constant(conv.inputs[1]), constant(optional(conv, 2))
    if weights is None or (bias is None and optional(conv, 2) is not None):
        return
    if len(weights) % BLOCK == 0 or any(v is None or v.dtype != np.float32 for v in rest):
        return
    gamma, beta, mean, variance = (v.astype(np.float64) for v in rest if v is not None)
    scale = gamma / np.sqrt(variance + attrs_of(norm).get("epsilon", 1e-5))
    shift = beta + ((0 if bias is None else bias) - mean) * scale
    filters = weights * scale.reshape(-1, *[1] * (weights.ndim - 1))
    b = builder_before(norm, names, conv)
    arrays = (v.astype(np.float32) for v in (filters, shift))
    replace(norm, [b.Conv(conv.inputs[0], *arrays, **attrs_of(conv))], b)


def _bias(add: ir.Node, names: Names) -> None:
    """Move the constant of `add` into the preceding layer, if that has no bias and a single
    consumer.
    """
    shape = shape_of(add.outputs[0])
    for data, other in (add.inputs, add.inputs[::-1]):
        before = _maker(data)
        if before is None or shape is None or other is None:
            continue
        b = builder_before(add, names, before)
        y = None
        if before.op_type == "Mul":
            y = _scale_shift(before, other, shape, b)
        elif before.op_type in ("Conv", "ConvTranspose", "MatMul") and shape_of(data) == shape:
            y = _with_bias(before, other, shape, b)
        if y is not None:
            replace(add, [y], b)
            return


def _scale_shift(
    mul: ir.Node, shift: ir.Value, shape: tuple[int, ...], b: Builder
) -> ir.Value | None:
    biases = per_channel(shift, shape) if len(shape) >= 4 and shape[1] > 1 else None
    for x, factor in (mul.inputs, mul.inputs[::-1]):
        scales = per_channel(factor, shape)
        if biases is not None and scales is not None and shape_of(x) == shape:
            none = np.zeros_like(scales), np.ones_like(scales)
            return b.BatchNormalization(x, scales, biases, *none, epsilon=0.0)
    return None


def _with_bias(
    node: ir.Node, other: ir.Value, shape: tuple[int, ...], b: Builder
) -> ir.Value | None:
    x, weights = node.inputs[:2]
    if optional(node, 2) is not None or weights is None or weights.const_value is None:
        return None
    if node.op_type != "MatMul":
        bias = per_channel(other, shape)
        if bias is None:
            return None
        write, constant_bias = b.operator(node.op_type), b.const(bias, "bias")
        biased: ir.Value = write(x, weights, constant_bias, **attrs_of(node))
        return biased
    array = constant(other) if other.const_value is not None else None
    if array is None or rank_of(x) != 2 or rank_of(weights) != 2:
        return None
    row = array.size == shape[1] and array.shape[-1:] == shape[1:]
    return b.Gemm(x, weights, b.const(array.reshape(-1), "bias")) if row else None
