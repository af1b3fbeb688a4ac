"""Rewrites for opsets below 21: computed inputs that were attributes then."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph import REDUCTIONS
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import constant, rank_of, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.value import operand, optional
from converter.graph.walk import all_graphs
from converter.passes.decompositions.reductions import each_alone, reduces_nothing
from converter.passes.legalize import Rewrites

_INT64 = ir.DataType.INT64


_PAIRS = {ir.DataType.INT4: ir.DataType.INT2, ir.DataType.UINT4: ir.DataType.UINT2}
_BYTES = {ir.DataType.INT4: ir.DataType.INT8, ir.DataType.UINT4: ir.DataType.UINT8}


def bytes_for_nibbles(model: ir.Model) -> None:
    """Store 4-bit constants, which opset 21 introduced, as bytes, if all consumers only use the
    numbers. Changes the model in place.
    """
    for graph in all_graphs(model.graph):
        found = {
            v
            for v in graph.initializers.values()
            if v.dtype in _BYTES and v.const_value is not None and not v.is_graph_output()
        }
        while strange := {
            v for v in found if not all(_reads_numbers(u.node, u.idx, found) for u in v.uses())
        }:
            found -= strange
        for value in found:
            assert value.const_value is not None and value.dtype is not None
            wide = _BYTES[value.dtype]
            value.const_value = LazyTensor(
                value.const_value.numpy().astype(wide.numpy()), name=value.name
            )
            value.type = ir.TensorType(wide)


def pairs_of_bits(model: ir.Model) -> None:
    """Store 4-bit constants as 2-bit ones, which opset 25 introduced, if all numbers fit and all
    consumers only use the numbers. Changes the model in place.
    """
    for graph in all_graphs(model.graph):
        found = {
            v
            for v in graph.initializers.values()
            if v.dtype in _PAIRS and v.const_value is not None and not v.is_graph_output()
            if all(u.node.op_type == "DequantizeLinear" for u in v.uses()) and _fits(v)
        }
        while strange := {
            v for v in found if not all(_reads_numbers(u.node, u.idx, found) for u in v.uses())
        }:
            found -= strange
        for value in found:
            assert value.const_value is not None and value.dtype is not None
            narrow = _PAIRS[value.dtype]
            numbers = value.const_value.numpy().astype(np.int8).astype(narrow.numpy())
            value.const_value = LazyTensor(numbers, narrow, name=value.name)
            value.type = ir.TensorType(narrow)


def _fits(value: ir.Value) -> bool:
    """Return whether two bits hold all numbers of a 4-bit constant."""
    assert value.const_value is not None
    numbers = value.const_value.numpy().astype(np.int8)
    low, high = (-2, 1) if value.dtype == ir.DataType.INT4 else (0, 3)
    return bool(numbers.size and numbers.min() >= low and numbers.max() <= high)


def _reads_numbers(node: ir.Node, index: int, found: set[ir.Value]) -> bool:
    if node.op_type == "DequantizeLinear":
        return index != 1 and all(
            v is None or v in found for v in (node.inputs[0], optional(node, 2))
        )
    return node.op_type == "Cast"


def shape_range(node: ir.Node, b: Builder) -> ir.Value:
    """Replace start and end of Shape by a Slice of the full shape."""
    attrs = attrs_of(node)
    return b.Shape(operand(node))[attrs.get("start") : attrs.get("end")]


def reduction(node: ir.Node, b: Builder) -> ir.Value | None:
    """Rewrite a reduction over no axes as an operation on each element; computed axes are tested
    one by one.
    """
    x, axes = operand(node), optional(node, 1)
    if reduces_nothing(node):
        return each_alone(node, b)
    if axes is None or constant(axes) is not None:
        return None
    if node.op_type == "ReduceMean":
        kept, ones = int(attrs_of(node).get("keepdims", 1)), b.Expand(b.like(x, 1), b.Shape(x))
        return b.ReduceSum(x, axes, keepdims=kept) / b.ReduceSum(ones, axes, keepdims=kept)
    alone = node.op_type in ("ReduceMax", "ReduceMin", "ReduceProd")
    return _one_by_one(node, x, axes, b) if alone else None


def _one_by_one(node: ir.Node, x: ir.Value, axes: ir.Value, b: Builder) -> ir.Value | None:
    """Apply for each axis the reduction along it, selected by whether the axis is one of the given
    ones.
    """
    rank, count = rank_of(x), shape_of(axes)
    if rank is None or not count or not count[0]:
        return None
    positions = _nonnegative_axes(b, axes, rank)
    y = x
    for i in range(rank):
        meant = b.ReduceMax(b.Cast(b.Equal(positions, i), to=ir.DataType.INT32), [0], keepdims=0)
        bodies: dict[str, Any] = {}
        for name in ("then_branch", "else_branch"):
            inner = b.body(f"{node.op_type.lower()}_{i}_{name}")
            inner.output(
                inner.op(node.op_type, y, [i], keepdims=1)
                if name == "then_branch"
                else inner.Identity(y)
            )
            bodies[name] = inner.graph
        y = b.If(b.Cast(meant, to=ir.DataType.BOOL), **bodies)
        y.type, y.shape = x.type, ir.Shape([None] * rank)
    return y if attrs_of(node).get("keepdims", 1) else b.Squeeze(y, positions)


def _nonnegative_axes(b: Builder, axes: ir.Value, rank: int) -> ir.Value:
    """Return axes as int64, without negative ones."""
    number = b.Cast(axes, to=_INT64)
    return b.Where(number < 0, number + rank, number)


def _all_axes(
    b: Builder, given: ir.Value, axes: Any, neutral: Any, rank: int, times: int = 1
) -> ir.Value:
    """Return values for all axes: `given` for the axes `axes` (repeated `times` times), `neutral`
    for the others.
    """
    positions = _nonnegative_axes(b, axes, rank)
    index = b.Concat(*(positions + i * rank for i in range(times)), axis=0)
    return b.ScatterElements(neutral, index, given, axis=0)


def pad(node: ir.Node, b: Builder) -> ir.Value | None:
    """List the amounts of all axes."""
    x, axes = operand(node), optional(node, 3)
    rank = rank_of(x)
    if axes is None or rank is None:
        return None
    every = _all_axes(b, operand(node, 1), axes, np.zeros(2 * rank, np.int64), rank, times=2)
    return b.Pad(x, every, optional(node, 2), mode=attrs_of(node).get("mode"))


def resize(node: ir.Node, b: Builder) -> ir.Value | None:
    """List the region, scales or sizes of all axes."""
    x, attrs = operand(node), attrs_of(node)
    axes, rank = attrs.pop("axes", None), rank_of(x)
    stretched = attrs.get("keep_aspect_ratio_policy", "stretch") == "stretch"
    if not axes or rank is None or attrs.get("antialias", 0) or not stretched:
        return None
    roi, scales, sizes = (optional(node, i) for i in (1, 2, 3))
    chosen = b.const(np.array(axes, np.int64))
    dtype = roi.dtype.numpy() if roi is not None and roi.dtype is not None else np.float32
    whole = [
        None
        if roi is None
        else _all_axes(b, roi, chosen, np.repeat([0, 1], rank).astype(dtype), rank, times=2),
        None if scales is None else _all_axes(b, scales, chosen, np.ones(rank, np.float32), rank),
        None if sizes is None else _all_axes(b, sizes, chosen, b.Shape(x), rank),
    ]
    return b.op("Resize", x, *whole, **attrs)


REWRITES: Rewrites = {
    ("", "Shape"): shape_range,
    ("", "Pad"): pad,
    ("", "Resize"): resize,
    **{("", kind): reduction for kind in REDUCTIONS if kind != "ReduceSum"},
}
