"""Reductions, sorting, counting."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.fields import element_type
from converter.formats.openvino.opset.special.base import (
    Emit,
    attributes,
    cast,
    dim,
    filled,
    given,
    int64,
    is_float,
    lifts,
    lowers,
    near_axis,
    operand,
    optional,
    rank,
    scalar,
)
from converter.graph.build import Builder
from converter.graph.infer import known, rank_of, shape_of
from converter.graph.sizes import arange
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType
REDUCES = ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceSum", "ReduceL1", "ReduceL2")

SMALL = (T.INT8, T.UINT8, T.INT16, T.UINT16)  # not summed by ONNX


@lifts(*REDUCES)
def lift_reduce(layer: Layer, b: Builder) -> ir.Value:
    """No axes reduce nothing."""
    a, x, axes = attributes(layer, keep_dims=False), operand(layer, 0), int64(b, operand(layer, 1), flat=True)
    values = known(axes)
    noop = None if values is not None and values.size else 1
    if x.dtype in SMALL and layer.kind != "ReduceMean":
        return b.op("Cast", b.op(layer.kind, b.op("Cast", x, to=int(T.INT32)), axes, keepdims=int(a.keep_dims), noop_with_empty_axes=noop), to=int(x.dtype))
    if layer.kind == "ReduceMean" and not is_float(x):
        return _integer_mean(b, x, axes, a.keep_dims)
    return b.op(layer.kind, x, axes, keepdims=int(a.keep_dims), noop_with_empty_axes=noop)


def _integer_mean(b: Builder, x: ir.Value, axes: ir.Value, keep: bool) -> ir.Value:
    values = known(axes)
    if values is None or not values.size:
        raise MappingError("the axes of an integer mean must be known")
    return b.ext("IntegerMean", x, axes=[near_axis(int(v), rank(x)) for v in values], keepdims=int(keep))


@lowers("IntegerMean", domain="netconv")
def lower_integer_mean(node: Node, low: Lowering) -> None:
    """One layer: engines that merge a sum and a division round the quotient otherwise."""
    Emit(node, low).out("ReduceMean", node.input(0), list(node.attrs["axes"]), keep_dims=bool(filled(node)["keepdims"]))


@lifts("ReduceLogicalAnd", "ReduceLogicalOr")
def lift_reduce_logical(layer: Layer, b: Builder) -> ir.Value:
    a, x, axes = attributes(layer, keep_dims=False), operand(layer, 0), int64(b, operand(layer, 1), flat=True)
    kind = "ReduceMin" if layer.kind == "ReduceLogicalAnd" else "ReduceMax"
    small = b.op(kind, b.op("Cast", cast(b, x, T.BOOL), to=int(T.INT32)), axes, keepdims=int(a.keep_dims), noop_with_empty_axes=1)
    return b.op("Cast", small, to=int(T.BOOL))


@lowers(*REDUCES)
def lower_reduce(node: Node, low: Lowering) -> None:
    a, x, axes = filled(node), given(node, 0), node.input(1)
    values: Any = known(axes)
    empty = axes is None or (values is not None and values.size == 0)
    if values is None and not empty and not a["noop_with_empty_axes"] and dim(given(node, 1), 0) in (0, None):
        raise MappingError("the axes must be known: whether there are any decides what is reduced")
    if empty:
        values = arange(0 if a["noop_with_empty_axes"] else rank(x))
    kind = node.op
    if x.dtype == T.BOOL:
        kind = {"ReduceMin": "ReduceLogicalAnd", "ReduceMax": "ReduceLogicalOr"}.get(kind, "")
        if not kind:
            raise MappingError("of booleans")
        if values is None:
            raise MappingError("the axes of booleans are computed")
    if kind in ("ReduceL1", "ReduceL2") and low.version < 4:
        raise MappingError(f"{kind} needs opset4", "X206")
    e = Emit(node, low)
    if values is not None:
        e.out(kind, x, values.astype(np.int64), keep_dims=bool(a["keepdims"]))
    elif a["keepdims"] or rank_of(given(node, 1)) == 0 or dim(given(node, 1), 0) is not None:  # how many there are says the rank of the result
        e.out(kind, x, axes, keep_dims=bool(a["keepdims"]))
    elif (shape := shape_of(node.outputs[0])) is not None:
        e.out("Reshape", e.op(kind, x, axes, keep_dims=True), list(shape), special_zero=False)
    else:
        raise MappingError("the axes are computed: the runtime does not know the rank of the result", "X203", "make the axes constant, or the shapes static")


@lifts("CumSum")
def lift_cumsum(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, exclusive=False, reverse=False)
    axis = optional(layer, 1)
    at = b.const(np.int64(0)) if axis is None else int64(b, axis)
    at = b.op("Reshape", at, np.zeros(0, np.int64)) if rank_of(at) != 0 else at
    return b.op("CumSum", operand(layer, 0), at, exclusive=int(a.exclusive), reverse=int(a.reverse))


@lowers("CumSum")
def lower_cumsum(node: Node, low: Lowering) -> None:
    e, a, axis = Emit(node, low), filled(node), given(node, 1)
    if (value := known(axis)) is not None:
        e.out("CumSum", node.input(0), value.reshape(()).astype(np.int64), exclusive=bool(a["exclusive"]), reverse=bool(a["reverse"]))
        return
    at = e.op("Reshape", axis, np.zeros(0, np.int64), special_zero=False) if rank_of(axis) != 0 else axis
    e.out("CumSum", node.input(0), at, exclusive=bool(a["exclusive"]), reverse=bool(a["reverse"]))


@lifts("TopK")
def lift_topk(layer: Layer, b: Builder) -> list[ir.Value]:
    """Of equal elements the one in front comes first; `sort=index` orders what was selected by position."""
    a = attributes(layer, axis=int, mode=str, sort=str, index_element_type="i32", stable=False)
    x, k = operand(layer, 0), int64(b, operand(layer, 1), flat=True)
    if a.mode not in ("max", "min") or a.sort not in ("value", "index", "none"):
        raise MappingError(f"mode={a.mode!r} sort={a.sort!r} is not known", "R110")
    values, places = b.ops("TopK", x, k, axis=a.axis, largest=int(a.mode == "max"), sorted=1, outputs=2)
    if a.sort == "index":
        places = b.ops("TopK", places, k, axis=a.axis, largest=0, sorted=1, outputs=2)[0]
        values = b.op("GatherElements", x, places, axis=a.axis)
    return [values, cast(b, places, T(element_type.lift(a.index_element_type)))]


@lowers("TopK")
def lower_topk(node: Node, low: Lowering) -> None:
    e, a, k = Emit(node, low), filled(node), given(node, 1)
    count = known(k)
    size: Any = count.reshape(()).astype(np.int64) if count is not None else e.op("Squeeze", k, [0])
    extra: dict[str, Any] = {"stable": True} if low.version >= 11 else {}
    e.out("TopK", node.input(0), size, axis=a["axis"], mode="max" if a["largest"] else "min", sort="value", index_element_type="i64", **extra)


@lowers("ArgMax", "ArgMin")
def lower_arg(node: Node, low: Lowering) -> None:
    """TopK of one; for the last of equal elements the axis is reversed."""
    e, a, x = Emit(node, low), filled(node), given(node, 0)
    axis = near_axis(a["axis"], rank(x))
    extra: dict[str, Any] = {"stable": True} if low.version >= 11 else {}
    source = x
    size = dim(x, axis) or 0
    if a["select_last_index"]:
        if not size:
            raise MappingError("select_last_index on a dynamic axis", "X203")
        source = e.op("Slice", x, [-1], [np.iinfo(np.int64).min + 1], [-1], [axis])
    values = low.value("values", x.dtype, None)
    places = low.value("places", T.INT64, None)
    mode = "max" if node.op == "ArgMax" else "min"
    e.out("TopK", source, np.array(1), outputs=[values, places], axis=axis, mode=mode, sort="value", index_element_type="i64", **extra)
    if a["select_last_index"]:
        last = e.op("Subtract", np.array(size - 1, np.int64), places, auto_broadcast="numpy")
        places = last
    if a["keepdims"]:
        shape = e.op("ShapeOf", places, output_type="i64")
        e.out("Reshape", places, shape, special_zero=False)
    else:
        e.out("Squeeze", places, [axis])


@lifts("NonZero")
def lift_nonzero(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, output_type="i64")
    return cast(b, b.op("NonZero", operand(layer, 0)), T(element_type.lift(a.output_type)))


@lowers("NonZero")
def lower_nonzero(node: Node, low: Lowering) -> None:
    Emit(node, low).out("NonZero", node.input(0), output_type="i64")


@lifts("Unique")
def lift_unique(layer: Layer, b: Builder) -> list[ir.Value]:
    a = attributes(layer, sorted=True, index_element_type="i64", count_element_type="i64")
    axis = optional(layer, 1)
    at = None if axis is None else int(scalar(axis, "the axis"))
    found = b.ops("Unique", operand(layer, 0), axis=at, sorted=int(a.sorted), outputs=4)
    index, count = T(element_type.lift(a.index_element_type)), T(element_type.lift(a.count_element_type))
    return [found[0], cast(b, found[1], index), cast(b, found[2], index), cast(b, found[3], count)]


@lowers("Unique")
def lower_unique(node: Node, low: Lowering) -> None:
    if low.version < 10:
        raise MappingError("Unique needs opset10", "X206")
    a = filled(node)
    more = [low.value("unique", T.INT64, None) for _ in range(4 - len(node.outputs))]
    axis = [np.array(a["axis"], np.int64)] if a.get("axis") is not None else []
    Emit(node, low).out(
        "Unique", node.input(0), *axis, outputs=[*node.outputs, *more], sorted=bool(a["sorted"]), index_element_type="i64", count_element_type="i64"
    )


@lifts("Bucketize")
def lift_bucketize(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, output_type="i64", with_right_bound=True)
    return _count(b, operand(layer, 0), operand(layer, 1), a.with_right_bound, a.output_type)


def _count(b: Builder, x: ir.Value, bounds: ir.Value, right: bool, output_type: str) -> ir.Value:
    """How many bounds lie below each element (with equality when the left bound belongs to the bucket)."""
    wide = T.FLOAT if is_float(x) or is_float(bounds) else T.INT64
    wide = T.DOUBLE if T.DOUBLE in (x.dtype, bounds.dtype) else wide
    points = b.op("Unsqueeze", cast(b, x, wide), [-1])
    edges = cast(b, bounds, wide)
    if rank(bounds) > 1:
        edges = b.op("Unsqueeze", edges, [-2])
    below = b.op("Less" if right else "LessOrEqual", edges, points)
    return cast(b, b.op("ReduceSum", b.op("Cast", below, to=int(T.INT64)), [-1], keepdims=0), T(element_type.lift(output_type)))


@lifts("SearchSorted")
def lift_search(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, right_mode=False, output_type="i64")
    return _count(b, operand(layer, 1), operand(layer, 0), not a.right_mode, a.output_type)
