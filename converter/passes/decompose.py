"""Canonical operators written with simpler canonical operators: ways out that every target may use.

Each function takes the node and a builder and returns the replacement value(s), or None when it does not apply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of
from converter.graph.infer import constant, rank_of, shape_of

Decomposition = Callable[[ir.Node, Builder], "ir.Value | Sequence[ir.Value | None] | None"]
DECOMPOSITIONS: dict[tuple[str, str], Decomposition] = {}


def decomposes(*op_types: str, domain: str = "") -> Callable[[Decomposition], Decomposition]:
    def enter(f: Decomposition) -> Decomposition:
        for name in op_types:
            assert (domain, name) not in DECOMPOSITIONS, name
            DECOMPOSITIONS[domain, name] = f
        return f

    return enter


def constant_of(attributes: Mapping[str, ir.Attr]) -> Any:
    """The array of a Constant node's one attribute."""
    (a,) = attributes.values()
    if a.name == "value":
        return a.as_tensor().numpy()
    dtype = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}.get(a.name)
    return np.array(a.value, dtype)


def _x(node: ir.Node) -> ir.Value:
    assert node.inputs[0] is not None
    return node.inputs[0]


@decomposes("Gemm")
def gemm(node: ir.Node, b: Builder) -> ir.Value | None:
    """alpha * A' B' + beta * C with the transposes and factors folded into constant operands where they are constant."""
    a, w = node.inputs[0], node.inputs[1]
    attrs = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0, **attrs_of(node)}
    assert a is not None and w is not None
    if attrs["transA"]:
        a = b.op("Transpose", a, perm=[1, 0])
    weight = constant(w)
    if weight is not None:
        weight = weight.T if attrs["transB"] else weight
        w = b.const(weight if attrs["alpha"] == 1.0 else (weight * np.asarray(attrs["alpha"], weight.dtype)), str(w.name))
    elif attrs["transB"]:
        w = b.op("Transpose", w, perm=[1, 0])
    y = b.op("MatMul", a, w)
    if weight is None and attrs["alpha"] != 1.0:
        y = b.op("Mul", y, b.like(y, attrs["alpha"]))
    c = node.inputs[2] if len(node.inputs) > 2 else None
    if c is None:
        return y
    if attrs["beta"] != 1.0:
        c = b.op("Mul", c, b.like(c, attrs["beta"]))
    return b.op("Add", y, c)


@decomposes("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: ir.Node, b: Builder) -> ir.Value | None:
    rank = rank_of(_x(node))
    if rank is None:
        return None
    kind = "ReduceMean" if node.op_type == "GlobalAveragePool" else "ReduceMax"
    return b.op(kind, _x(node), list(range(2, rank)), keepdims=1)


@decomposes("Flatten")
def flatten(node: ir.Node, b: Builder) -> ir.Value | None:
    """Both extents are written as numbers where they are known: -1 beside a dimension that may be 0 means nothing."""
    axis, rank = int(attrs_of(node).get("axis", 1)), rank_of(_x(node))
    if rank is None:
        return b.op("Reshape", _x(node), [0, -1]) if axis == 1 else None
    dims = list(_x(node).shape or ())
    before, after = _product(dims[: axis % rank if axis < 0 else axis]), _product(dims[axis % rank if axis < 0 else axis :])
    if before is None and not after:
        return b.op("Reshape", _x(node), [0, -1]) if axis == 1 else None
    return b.op("Reshape", _x(node), [-1 if before is None else before, -1 if after is None else after])


def _product(dims: Sequence[Any]) -> int | None:
    return math.prod(dims) if all(isinstance(d, int) for d in dims) else None


@decomposes("Squeeze", "Unsqueeze")
def static_reshape(node: ir.Node, b: Builder) -> ir.Value | None:
    shape = shape_of(node.outputs[0])
    return None if shape is None else b.op("Reshape", _x(node), list(shape))


@decomposes("Sum", "Max")
def variadic(node: ir.Node, b: Builder) -> ir.Value | None:
    """Three or more operands pairwise; one operand is itself; two stay (Sum becomes Add)."""
    operands = [v for v in node.inputs if v is not None]
    kind = {"Sum": "Add"}.get(node.op_type, node.op_type)
    if len(operands) == 1:
        return b.op("Identity", operands[0])
    if len(operands) == 2 and kind == node.op_type:
        return None
    result = operands[0]
    for v in operands[1:]:
        result = b.op(kind, result, v)
    return result


@decomposes("Mean")
def mean(node: ir.Node, b: Builder) -> ir.Value:
    total = b.op("Sum", *node.inputs)
    return b.op("Div", total, b.like(total, len(node.inputs)))


@decomposes("Sub")
def sub(node: ir.Node, b: Builder) -> ir.Value | None:
    y = node.inputs[1]
    assert y is not None
    array = constant(y)
    if array is not None and array.dtype.kind == "f":
        return b.op("Add", _x(node), b.const(-array, str(y.name)))
    return b.op("Add", _x(node), b.op("Mul", y, b.like(y, -1))) if y.dtype is not None and y.dtype.is_signed() else None


@decomposes("Neg")
def neg(node: ir.Node, b: Builder) -> ir.Value:
    return b.op("Mul", _x(node), b.like(_x(node), -1))


@decomposes("Reciprocal")
def reciprocal(node: ir.Node, b: Builder) -> ir.Value:
    return b.op("Div", b.like(_x(node), 1), _x(node))


@decomposes("Div")
def div(node: ir.Node, b: Builder) -> ir.Value | None:
    """By a float constant: times its reciprocal."""
    array = constant(node.inputs[1])
    if array is None or array.dtype.kind != "f" or not np.all(array):
        return None
    return b.op("Mul", _x(node), b.const((1.0 / array.astype(np.float64)).astype(array.dtype)))


def trains(node: ir.Node) -> bool:
    """Whether a Dropout is, or may be, in training mode: then it drops elements by chance."""
    mode = node.inputs[2] if len(node.inputs) > 2 else None
    flag = None if mode is None else constant(mode)
    return mode is not None and (flag is None or bool(flag.any()))


@decomposes("Identity", "Dropout")
def identity(node: ir.Node, b: Builder) -> ir.Value | None:
    """Vanishes where the boundary does not need it."""
    x = _x(node)
    if node.op_type == "Dropout" and trains(node):
        return None
    if len(node.outputs) > 1 and (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
        return None
    if node.outputs[0].is_graph_output() and (x.is_graph_input() or x.is_graph_output() or x.is_initializer() or x.graph is not node.graph):
        return None
    return x


@decomposes("BatchNormalization")
def batch_normalization(node: ir.Node, b: Builder) -> ir.Value | Sequence[ir.Value | None] | None:
    """x * scale/sqrt(var+eps) + (bias - mean*scale/sqrt(var+eps)) for constant statistics, step by step for others; by those of the batch in training."""
    if attrs_of(node).get("training_mode", 0):
        return _of_the_batch(node, b)
    arrays = [constant(v) for v in node.inputs[1:]]
    rank = rank_of(_x(node))
    if rank is None:
        return None
    if any(a is None for a in arrays):
        return _of_values(node, b, [-1, *[1] * (rank - 2)])
    scale, bias, mean_, var = (np.asarray(a, np.float64) for a in arrays if a is not None)
    dtype = arrays[0].dtype if arrays[0] is not None else np.float32
    with np.errstate(invalid="ignore", divide="ignore"):  # a variance below 0 gives what the operator gives
        factor = scale / np.sqrt(var + attrs_of(node).get("epsilon", 1e-5))
    shape = (-1, *[1] * (rank - 2))
    y = b.op("Mul", _x(node), b.const(factor.reshape(shape).astype(dtype)))
    return b.op("Add", y, b.const((bias - mean_ * factor).reshape(shape).astype(dtype)))


def _of_values(node: ir.Node, b: Builder, column: list[int]) -> ir.Value | None:
    """Statistics that are computed."""
    columns = [b.op("Reshape", v, column) for v in node.inputs[1:] if v is not None]
    if len(columns) < 4:
        return None
    scale, bias, centre, spread = columns
    deviation = b.op("Sqrt", b.op("Add", spread, b.like(spread, attrs_of(node).get("epsilon", 1e-5))))
    return b.op("Add", b.op("Mul", b.op("Div", b.op("Sub", _x(node), centre), deviation), scale), bias)


def _of_the_batch(node: ir.Node, b: Builder) -> Sequence[ir.Value | None] | None:
    """The result, and the running mean and variance moved towards those of the batch."""
    x, rank, attrs = _x(node), rank_of(_x(node)), attrs_of(node)
    scale, bias, mean_, var = node.inputs[1:5]
    if rank is None or scale is None or bias is None:
        return None
    axes, column = [i for i in range(rank) if i != 1], [-1, *[1] * (rank - 2)]
    centre = b.op("ReduceMean", x, axes, keepdims=1)
    apart = b.op("Sub", x, centre)
    spread = b.op("ReduceMean", b.op("Mul", apart, apart), axes, keepdims=1)
    y = b.op("Div", apart, b.op("Sqrt", b.op("Add", spread, b.like(x, attrs.get("epsilon", 1e-5)))))
    y = b.op("Add", b.op("Mul", y, b.op("Reshape", scale, column)), b.op("Reshape", bias, column))
    share = float(attrs.get("momentum", 0.9))
    running = [
        b.op("Add", b.op("Mul", old, b.like(x, share)), b.op("Mul", b.op("Reshape", new, [-1]), b.like(x, 1 - share)))
        for old, new in ((mean_, centre), (var, spread))
    ]
    return [y, *running][: len(node.outputs)]
