"""Values without elements, for engines whose kernels do not take them or are wrong on them.

before:  Y[2,0] = Resize(X[2,3], sizes=[2,0])       after:  Y = a constant of shape [2,0]
before:  Y[2,3] = MatMul(A[2,0], B[0,3])            after:  Y = zeros[2,3]
before:  Y[2] = ReduceMax(X[2,0], axes=[1])         after:  Y = [-inf, -inf]
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attributes, attrs_of, builder_before
from converter.graph.extensions import replace
from converter.graph.infer import Array, known, shape_of
from converter.graph.names import Names
from converter.graph.value import Value, operand, optional
from converter.graph.walk import all_graphs
from converter.passes.dead_code import remove_dead_code

LARGEST = 1 << 20  # elements of a constant that stands for sums of nothing


def fold_empty(model: ir.Model) -> None:
    """Replace values without elements, and products and reductions of none, by constants."""
    names, changed = Names(model), False
    for graph in all_graphs(model.graph):
        for node in list(graph):
            if node.op_type == "Resize":
                _state_size(node)
            if is_empty(node):
                b = builder_before(node, names)
                replace(node, [b.const(_none_of(v)) for v in node.outputs], b)
                changed = True
            elif node.op_type in OF_NOTHING and not node.domain:
                b = builder_before(node, names)
                result = OF_NOTHING[node.op_type](node, b)
                if result is not None:
                    replace(node, [result], b)
                    changed = True
    if changed:
        remove_dead_code(model)


def _state_size(node: ir.Node) -> None:
    """Give an image that is resized to nothing its shape, which ONNX's inference leaves open."""
    x, out = shape_of(node.inputs[0]), node.outputs[0]
    scales, sizes = (known(optional(node, i)) for i in (2, 3))
    if x is None or shape_of(out) is not None:
        return
    axes = [int(a) % len(x) for a in attrs_of(node).get("axes", None) or range(len(x))]
    shape = list(x)
    if sizes is not None and sizes.size == len(axes):
        found = [int(n) for n in sizes.reshape(-1)]
    elif scales is not None and scales.size == len(axes):
        found = [math.floor(x[a] * f) for a, f in zip(axes, scales.reshape(-1), strict=True)]
    else:
        return
    for axis, n in zip(axes, found, strict=True):
        shape[axis] = n
    if 0 in shape:
        out.shape = ir.Shape(shape)


def is_empty(node: ir.Node) -> bool:
    """Whether no result of a node has an element."""
    for value in node.outputs:
        shape = shape_of(value)
        if shape is None or 0 not in shape or value.dtype in (None, ir.DataType.STRING):
            return False
    return bool(node.outputs)


def _none_of(value: ir.Value) -> Array:
    return np.zeros(shape_of(value) or (0,), (value.dtype or ir.DataType.FLOAT).numpy())


def product_of_nothing(node: ir.Node, b: Builder) -> Value | None:
    """The product of matrices [M, 0] and [0, N]: zeros, or the addend of a Gemm."""
    x, shape = shape_of(operand(node)), shape_of(node.outputs[0])
    if x is None or shape is None or 0 not in x or math.prod(shape) > LARGEST:
        return None
    zeros = b.const(np.zeros(shape, (node.outputs[0].dtype or ir.DataType.FLOAT).numpy()))
    addend = optional(node, 2) if node.op_type == "Gemm" else None
    if addend is None:
        return zeros
    beta = float(attrs_of(node).get("beta", 1.0))
    scaled = addend if beta == 1 else b.Mul(addend, b.like(addend, beta))
    return b.Add(zeros, scaled)


def reduction_of_nothing(node: ir.Node, b: Builder) -> Value | None:
    """What a reduction over an axis without elements begins with."""
    x, shape, dtype = shape_of(operand(node)), shape_of(node.outputs[0]), operand(node).dtype
    if x is None or shape is None or 0 not in x or dtype is None or dtype == ir.DataType.BOOL:
        return None
    given = optional(node, 1)
    axes = np.zeros(0, np.int64) if given is None else known(given)
    if axes is None or math.prod(shape) > LARGEST:
        return None
    if not len(axes) and attributes(node)["noop_with_empty_axes"]:
        return None
    kind = np.dtype(dtype.numpy())
    start = {"ReduceSum": 0, "ReduceProd": 1}.get(node.op_type)
    if start is None:
        sign = -1 if node.op_type == "ReduceMax" else 1
        limits = None if dtype.is_floating_point() else np.iinfo(kind)
        ends = (-np.inf, np.inf) if limits is None else (limits.min, limits.max)
        return b.const(np.full(shape, ends[sign > 0], kind))
    return b.const(np.full(shape, start, kind))


OF_NOTHING = {
    **dict.fromkeys(("MatMul", "Gemm"), product_of_nothing),
    **dict.fromkeys(("ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd"), reduction_of_nothing),
}
