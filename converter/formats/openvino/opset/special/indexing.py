"""Picking and placing elements by index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.constants import computed
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
    opset,
    optional,
    rank,
    scalar,
    static,
    transpose,
)
from converter.graph.build import Builder
from converter.graph.infer import known, rank_of
from converter.graph.sizes import arange
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType
INDEX = (T.INT32, T.INT64)


def indices_of(b: Builder, value: ir.Value) -> ir.Value:
    """ONNX takes int32 and int64 indices only."""
    return value if value.dtype in INDEX else cast(b, value, T.INT64)


@lifts("Gather")
def lift_gather(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, batch_dims=0)
    x, indices = operand(layer, 0), indices_of(b, operand(layer, 1))
    axis = int(scalar(operand(layer, 2), "the axis"))
    batch = a.batch_dims + rank(indices) if a.batch_dims < 0 else a.batch_dims
    if not batch:
        return b.op("Gather", x, indices, axis=axis)
    axis = near_axis(axis, rank(x))
    if not 0 < batch <= min(axis, rank(indices)):
        raise MappingError(f"batch_dims={a.batch_dims} is impossible for axis {axis} and indices of rank {rank(indices)}", "R110")
    perm = [*range(batch), axis, *(i for i in range(batch, rank(x)) if i != axis)]
    y = b.op("GatherND", transpose(b, x, perm), b.op("Unsqueeze", cast(b, indices, T.INT64), [-1]), batch_dims=batch)
    # batch, indices, the axes before the gathered one, those behind it -> batch, before, indices, behind
    before, inner = axis - batch, rank(indices) - batch
    behind = rank(x) - axis - 1
    middle = batch + inner
    order = [*range(batch), *range(middle, middle + before), *range(batch, middle), *range(middle + before, middle + before + behind)]
    return transpose(b, y, order)


@lowers("Gather")
def lower_gather(node: Node, low: Lowering) -> None:
    Emit(node, low).out("Gather", node.input(0), node.input(1), np.array(node.attrs.get("axis", 0), np.int64), batch_dims=0)


@lifts("GatherND")
def lift_gather_nd(layer: Layer, b: Builder) -> ir.Value:
    """The first revision merges the batch axes of its result."""
    a = attributes(layer, batch_dims=0)
    y = b.op("GatherND", operand(layer, 0), cast(b, operand(layer, 1), T.INT64), batch_dims=a.batch_dims)
    if opset(layer) >= 8 or a.batch_dims < 2:
        return y
    return b.op("Reshape", y, b.op("Concat", [-1], b.op("Shape", y, start=a.batch_dims), axis=0))


@lowers("GatherND")
def lower_gather_nd(node: Node, low: Lowering) -> None:
    Emit(node, low).out("GatherND", *node.inputs, batch_dims=node.attrs.get("batch_dims", 0))


@lifts("GatherTree")
def lift_gather_tree(layer: Layer, b: Builder) -> ir.Value:
    return b.ext("GatherTree", *(operand(layer, i) for i in range(4)))


@lowers("GatherTree", domain="netconv")
def lower_gather_tree(node: Node, low: Lowering) -> None:
    Emit(node, low).out("GatherTree", *node.inputs)


@lifts("ScatterUpdate")
def lift_scatter_update(layer: Layer, b: Builder) -> ir.Value:
    """updates has the shape data[:axis] + indices + data[axis + 1:]."""
    x, indices, updates = operand(layer, 0), cast(b, operand(layer, 1), T.INT64), operand(layer, 2)
    axis, k = near_axis(int(scalar(operand(layer, 3), "the axis")), rank(x)), rank(indices)
    if axis:
        perm = [*range(axis, axis + k), *range(axis), *range(axis + k, rank(updates))]
        updates = transpose(b, updates, perm)
        turn = [axis, *(i for i in range(rank(x)) if i != axis)]
        x = transpose(b, x, turn)
    y = b.op("ScatterND", x, b.op("Unsqueeze", indices, [-1]), updates)
    return transpose(b, y, [*range(1, axis + 1), 0, *range(axis + 1, rank(x))]) if axis else y


REDUCTIONS = {"none": "none", "sum": "add", "prod": "mul", "min": "min", "max": "max"}
NEUTRAL: dict[str, Any] = {"sum": lambda t: 0, "mean": lambda t: 0, "prod": lambda t: 1, "min": lambda t: _extreme(t, 1), "max": lambda t: _extreme(t, -1)}


def _extreme(dtype: ir.DataType, sign: int) -> float | int:
    kind = dtype.numpy()
    if dtype.is_floating_point():
        return sign * float("inf")
    info = np.iinfo(kind)
    return int(info.max if sign > 0 else info.min)


@lifts("ScatterElementsUpdate")
def lift_scatter_elements(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, reduction="none", use_init_val=True)
    x, at = operand(layer, 0), operand(layer, 3)
    if known(at) is None:
        return each_axis(b, at, rank(x), lambda inner, axis: _scattered(layer, inner, a, axis))
    return _scattered(layer, b, a, near_axis(int(scalar(at, "the axis")), rank(x)))


def each_axis(b: Builder, at: ir.Value, count: int, make: Callable[[Builder, int], ir.Value]) -> ir.Value:
    """An axis that is known at run time only: one branch for each."""
    wanted = b.op("Mod", b.op("Reshape", cast(b, at, T.INT64), np.zeros(0, np.int64)), b.const(np.int64(count)))
    return _branch(b, wanted, 0, count, make)


def _branch(b: Builder, wanted: ir.Value, axis: int, count: int, make: Callable[[Builder, int], ir.Value]) -> ir.Value:
    if axis == count - 1:
        return make(b, axis)
    yes, no = b.body("axis"), b.body("other")
    yes.output(make(yes, axis))
    no.output(_branch(no, wanted, axis + 1, count, make))
    return b.op("If", b.op("Equal", wanted, b.const(np.int64(axis))), then_branch=yes.graph, else_branch=no.graph)


def _scattered(layer: Layer, b: Builder, a: Any, axis: int) -> ir.Value:
    x, indices, updates = operand(layer, 0), indices_of(b, operand(layer, 1)), operand(layer, 2)
    if a.reduction == "none":
        return b.op("ScatterElements", x, indices, updates, axis=axis)
    if a.reduction not in NEUTRAL or x.dtype is None:
        raise MappingError(f"reduction={a.reduction!r} is not known", "R110")
    if a.reduction == "mean" and not is_float(x):
        raise MappingError("the mean of integers depends on a rounding that is not specified")
    start = x
    if not a.use_init_val:
        neutral = b.op("Expand", b.like(x, NEUTRAL[a.reduction](x.dtype)), b.op("Shape", updates))
        start = b.op("ScatterElements", x, indices, neutral, axis=axis)
    if a.reduction != "mean":
        return b.op("ScatterElements", start, indices, updates, axis=axis, reduction=REDUCTIONS[a.reduction])
    total = b.op("ScatterElements", start, indices, updates, axis=axis, reduction="add")
    ones = b.op("Expand", b.like(x, 1), b.op("Shape", updates))
    none = b.op("Expand", b.like(x, 1 if a.use_init_val else 0), b.op("Shape", x))
    count = b.op("ScatterElements", none, indices, ones, axis=axis, reduction="add")
    return b.op("Div", total, count if a.use_init_val else b.op("Max", count, b.like(x, 1)))


@lowers("ScatterElements")
def lower_scatter_elements(node: Node, low: Lowering) -> None:
    a, axis = filled(node), np.array(node.attrs.get("axis", 0), np.int64)
    back = {v: k for k, v in REDUCTIONS.items()}[a["reduction"]]
    if back != "none" and low.version < 12:
        raise MappingError("a reduction needs opset12", "X206")
    extra: dict[str, Any] = {"reduction": back, "use_init_val": True} if low.version >= 12 else {}
    Emit(node, low).out("ScatterElementsUpdate", *node.inputs, axis, **extra)


@lifts("ScatterNDUpdate")
def lift_scatter_nd(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, reduction="none")
    x, indices, updates = operand(layer, 0), cast(b, operand(layer, 1), T.INT64), operand(layer, 2)
    if a.reduction == "sub":
        return b.op("ScatterND", x, indices, b.op("Sub", b.like(updates, 0), updates), reduction="add")
    if a.reduction not in REDUCTIONS:
        raise MappingError(f"reduction={a.reduction!r} is not known", "R110")
    return b.op("ScatterND", x, indices, updates, reduction=REDUCTIONS[a.reduction])


@lowers("ScatterND")
def lower_scatter_nd(node: Node, low: Lowering) -> None:
    back = {v: k for k, v in REDUCTIONS.items()}[filled(node)["reduction"]]
    if back != "none" and low.version < 15:
        raise MappingError("a reduction needs opset15", "X206")
    Emit(node, low).out("ScatterNDUpdate", *node.inputs, reduction=back if low.version >= 15 else None)


@lifts("Slice")
def lift_slice(layer: Layer, b: Builder) -> ir.Value:
    """(data, start, stop, step, axes)"""
    x, axes = operand(layer, 0), optional(layer, 4)
    start, stop, step = (int64(b, operand(layer, i), flat=True) for i in (1, 2, 3))
    return b.op("Slice", x, start, stop, None if axes is None else int64(b, axes, flat=True), step)


@lowers("Slice")
def lower_slice(node: Node, low: Lowering) -> None:
    e = Emit(node, low)
    if low.version < 8:
        raise MappingError("Slice needs opset8", "X206")
    starts, ends, axes, steps = (node.input(i) for i in (1, 2, 3, 4))
    count = dim(given(node, 1), 0)
    if steps is None and count is None:
        raise MappingError("the number of sliced axes is unknown")
    step: Any = [1] * (count or 0) if steps is None else e.ints(steps)
    e.out("Slice", node.input(0), e.ints(starts), e.ints(ends), step, *([] if axes is None else [e.ints(axes)]))


@lifts("SliceScatter")
def lift_slice_scatter(layer: Layer, b: Builder) -> ir.Value:
    """(data, updates, start, stop, step, axes): the elements are numbered, the slice of the numbers says where updates go."""
    x, updates, axes = operand(layer, 0), operand(layer, 1), optional(layer, 5)
    start, stop, step = (int64(b, operand(layer, i), flat=True) for i in (2, 3, 4))
    shape = static(x)
    numbers = b.const(arange(int(np.prod(shape)), dtype=np.int64).reshape(shape))
    places = b.op("Reshape", b.op("Slice", numbers, start, stop, None if axes is None else int64(b, axes, flat=True), step), [-1])
    flat = b.op("ScatterElements", b.op("Reshape", x, [-1]), places, b.op("Reshape", updates, [-1]), axis=0)
    return b.op("Reshape", flat, list(shape))


@lifts("OneHot")
def lift_one_hot(layer: Layer, b: Builder) -> ir.Value:
    """(indices, depth, on, off). Negative indices are out of range unless the mode is `normalize`, as it always is in ONNX."""
    a = attributes(layer, axis=int, negative_indices_mode="ignore_negative")
    indices, depth = operand(layer, 0), operand(layer, 1)
    indices = indices_of(b, indices)
    if a.negative_indices_mode == "ignore_negative":
        limit = cast(b, b.op("Reshape", depth, np.zeros(0, np.int64)), indices.dtype or T.INT64)
        indices = b.op("Where", b.op("Less", indices, b.like(indices, 0)), limit, indices)
    elif a.negative_indices_mode != "normalize":
        raise MappingError(f"negative_indices_mode={a.negative_indices_mode!r} is not known", "R110")
    values = b.op("Concat", *(b.op("Reshape", operand(layer, i), [1]) for i in (3, 2)), axis=0)
    return b.op("OneHot", indices, b.op("Reshape", cast(b, depth, T.INT64), [1]), values, axis=a.axis)


@lowers("OneHot")
def lower_one_hot(node: Node, low: Lowering) -> None:
    e, indices, depth, values = Emit(node, low), given(node, 0), given(node, 1), given(node, 2)
    if low.version < 16:
        raise MappingError("negative indices need opset16", "X206")
    if indices.dtype not in INDEX:
        indices = e.op("Convert", indices, dtype=T.INT64, destination_type="i64")
    array = known(values)
    zero, one, axis = (np.array(v, np.int64) for v in (0, 1, 0))
    off, on = (e.op("Gather", values, i, axis, batch_dims=0) for i in (zero, one)) if array is None else (array[0], array[1])
    count = known(depth)
    size: Any = np.array(int(count.reshape(-1)[0]), np.int64) if count is not None else depth
    if count is None:
        size = e.op("Convert", depth, dtype=T.INT64, destination_type="i64") if depth.dtype not in INDEX else depth
        size = e.op("Reshape", size, np.zeros(0, np.int64), special_zero=False) if rank_of(depth) != 0 else size
    e.out("OneHot", indices, size, on, off, axis=filled(node)["axis"], negative_indices_mode="normalize")


@lifts("Eye")
def lift_eye(layer: Layer, b: Builder) -> ir.Value:
    """Ones where column - row is the third operand; copies for each place of a batch."""
    to = computed(T(element_type.lift(attributes(layer, output_type=str).output_type)))
    rows, columns, diagonal = (b.op("Reshape", int64(b, operand(layer, i)), np.zeros(0, np.int64)) for i in range(3))
    zero, one = b.const(np.int64(0)), b.const(np.int64(1))
    row, column = (b.op("Range", zero, v, one) for v in (rows, columns))
    eye = b.op("Cast", b.op("Equal", column, b.op("Add", b.op("Unsqueeze", row, [1]), diagonal)), to=int(to))
    batch = optional(layer, 3)
    return eye if batch is None else b.op("Expand", eye, b.op("Concat", int64(b, batch, flat=True), b.op("Shape", eye), axis=0))


@lowers("EyeLike")
def lower_eye_like(node: Node, low: Lowering) -> None:
    out, shape = node.outputs[0], static(given(node, 0))
    eye = np.eye(shape[0], shape[1], filled(node)["k"], dtype=(out.dtype or T.FLOAT).numpy())
    Emit(node, low).out("Reshape", eye, list(shape), special_zero=False)


@lifts("Range")
def lift_range(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, output_type="")
    bounds = [operand(layer, i) for i in range(3)]
    to = computed(T(element_type.lift(a.output_type))) if a.output_type else bounds[0].dtype
    assert to is not None
    work = to if to in (T.FLOAT, T.DOUBLE, T.INT16, T.INT32) else T.INT64
    flat = [cast(b, b.op("Reshape", v, np.zeros(0, np.int64)) if rank_of(v) != 0 else v, work) for v in bounds]
    y = b.op("Range", *flat)
    return y if work == to else b.op("Cast", y, to=int(to))


@lowers("Range")
def lower_range(node: Node, low: Lowering) -> None:
    out = given(node, 0)
    Emit(node, low).out("Range", *node.inputs, output_type=element_type.lower(int(out.dtype or T.FLOAT)))
