"""Constants that a layer of legacy IR holds itself, although the graph adds them behind it.

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
from converter.graph.infer import Array, constant, rank_of, shape_of
from converter.graph.names import Names
from converter.graph.value import optional, producer_of
from converter.graph.walk import all_graphs
from converter.passes.dead_code import remove_dead_code

BLOCK = 16  # channels that the engine computes together


def fuse(model: ir.Model) -> None:
    names = Names(model)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            if node.op_type == "Add" and not node.domain:
                _bias(node, names)
        for node in list(graph):
            if node.op_type == "BatchNormalization" and not node.domain:
                _into_filters(node, names)
    remove_dead_code(model)


def _into_filters(norm: ir.Node, names: Names) -> None:
    """Scales behind a convolution go into its filters where their number is no multiple of 16: the
    engine of 2020.2 makes one layer of both, with scales for whole blocks of 16 channels, and those
    beyond the last channel are whatever lies in memory. A NaN among them reaches the next layer.
    """
    x, rest = norm.inputs[0], [constant(v) for v in norm.inputs[1:]]
    conv = producer_of(x)
    if (
        x is None
        or conv is None
        or (conv.op_type, conv.domain) != ("Conv", "")
        or len(x.uses()) != 1
        or x.is_graph_output()
        or any(v is None or v.dtype != np.float32 for v in rest)
    ):
        return
    weights, bias = constant(conv.inputs[1]), constant(optional(conv, 2))
    unknown = weights is None or (bias is None and optional(conv, 2) is not None)
    if weights is None or unknown or len(weights) % BLOCK == 0:
        return
    gamma, beta, mean, variance = (v.astype(np.float64) for v in rest if v is not None)
    scale = gamma / np.sqrt(variance + attrs_of(norm).get("epsilon", 1e-5))
    shift = beta + ((0 if bias is None else bias) - mean) * scale
    filters = weights * scale.reshape(-1, *[1] * (weights.ndim - 1))
    b = builder_before(norm, names)
    b.source = {k: v for k, v in conv.metadata_props.items() if k.startswith("netconv.")}
    arrays = (v.astype(np.float32) for v in (filters, shift))
    replace(norm, [b.op("Conv", conv.inputs[0], *arrays, **attrs_of(conv))], b)


def _bias(add: ir.Node, names: Names) -> None:
    """Moves the constant of `add` into the layer in front of it, when that has no bias and nobody
    else reads it.
    """
    for data, other in ((add.inputs[0], add.inputs[1]), (add.inputs[1], add.inputs[0])):
        before = producer_of(data)
        if (
            data is None
            or other is None
            or before is None
            or before.domain
            or len(data.uses()) != 1
            or data.is_graph_output()
        ):
            continue
        if before.op_type == "Mul" and _scale_shift(add, before, other, names):
            return
        bias = _constant_bias(before, data, other)
        if bias is not None and shape_of(data) == shape_of(add.outputs[0]):
            b = builder_before(add, names)
            b.source = {k: v for k, v in before.metadata_props.items() if k.startswith("netconv.")}
            replace(add, [_with(before, b, bias)], b)
            return


def _scale_shift(add: ir.Node, mul: ir.Node, shift: ir.Value, names: Names) -> bool:
    shape = list(shape_of(add.outputs[0]) or ())
    biases = per_channel(shift, shape) if len(shape) >= 4 and shape[1] > 1 else None
    for x, factor in ((mul.inputs[0], mul.inputs[1]), (mul.inputs[1], mul.inputs[0])):
        scales = per_channel(factor, shape) if biases is not None and factor is not None else None
        if x is None or scales is None or biases is None or shape_of(x) != tuple(shape):
            continue
        b = builder_before(add, names)
        b.source = {k: v for k, v in mul.metadata_props.items() if k.startswith("netconv.")}
        replace(
            add,
            [
                b.BatchNormalization(
                    x,
                    scales,
                    biases,
                    np.zeros_like(scales),
                    np.ones_like(scales),
                    epsilon=0.0,
                )
            ],
            b,
        )
        return True
    return False


def _constant_bias(node: ir.Node, data: ir.Value, other: ir.Value) -> Array | None:
    shape = shape_of(data)
    if node.op_type not in ("Conv", "ConvTranspose", "MatMul"):
        return None
    if (
        shape is None
        or optional(node, 2) is not None
        or node.inputs[1] is None
        or node.inputs[1].const_value is None
    ):
        return None
    if node.op_type in ("Conv", "ConvTranspose"):
        return per_channel(other, list(shape))
    array = constant(other) if other.const_value is not None else None
    matrices = (
        node.op_type == "MatMul"
        and node.inputs[0] is not None
        and rank_of(node.inputs[0]) == 2
        and rank_of(node.inputs[1]) == 2
    )
    if array is None or not matrices or array.size != shape[1] or array.shape[-1:] != (shape[1],):
        return None
    return array.reshape(-1)


def _with(node: ir.Node, b: Builder, bias: Array) -> ir.Value:
    if node.op_type == "MatMul":
        return b.Gemm(*node.inputs, b.const(bias, "bias"))
    return b.op(node.op_type, *node.inputs[:2], b.const(bias, "bias"), **attrs_of(node))
