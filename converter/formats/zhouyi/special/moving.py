"""Layers that only move data: shapes, pieces, padding, indices, blocks of space and batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.ops.fields import axis_of
from converter.formats.zhouyi.special.register import (
    choose,
    fixed,
    index_of,
    lifts,
    lowers,
    need,
    need_int,
    need_ints,
    need_number,
    operand,
    places,
    static,
    truth_of,
)
from converter.graph.build import Builder
from converter.graph.infer import constant, shape_of
from converter.graph.sizes import arange
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

PAD_MODES = {"CONSTANT": "constant", "REFLECT": "reflect", "EDGE": "edge", "WRAP": "wrap"}
REDUCTIONS = {"NONE": "none", "ADD": "add", "MUL": "mul", "MAX": "max", "MIN": "min"}


@lifts("Reshape")
def lift_reshape(layer: Layer, b: Builder) -> ir.Value:
    """`shape`, else the declared output: other tools write no more."""
    declared = shape_of(layer.outputs[0]) if layer.outputs else None
    return b.op("Reshape", operand(layer), need_ints(layer, "shape", declared), allowzero=1 if declared is not None and 0 in declared else None)


@lowers("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def lower_reshape(node: Node, low: Lowering) -> None:
    low.add("Reshape", [operand(node)], node.outputs, {"shape": list(static(node.outputs[0]))})


def turn(low: Lowering, value: ir.Value, out: ir.Value, perm: Sequence[int]) -> None:
    """A Transpose; where only axes of 1 change places, the data stay as they are and a Reshape says so."""
    shape = static(value)
    moved = [p for p in perm if shape[p] != 1]
    if moved == sorted(moved):
        low.add("Reshape", [value], [out], {"shape": [shape[p] for p in perm]})
    else:
        low.add("Transpose", [value], [out], {"perm": list(perm)})


@lowers("Transpose")
def lower_transpose(node: Node, low: Lowering) -> None:
    rank = len(static(operand(node)))
    turn(low, operand(node), node.outputs[0], [int(p) for p in node.attrs.get("perm") or reversed(range(rank))])


@lifts("Slice")
def lift_slice(layer: Layer, b: Builder) -> ir.Value:
    """One entry per axis; an end below zero counts from behind, beyond both ends it is cut off as in ONNX."""
    x, begin, end = operand(layer), need_ints(layer, "begin"), need_ints(layer, "end")
    strides = need_ints(layer, "strides", [1] * len(begin))
    axes = need_ints(layer, "axis", range(len(begin)))
    if not len(begin) == len(end) == len(strides) == len(axes):
        raise MappingError("begin, end and strides are not equally long", "R110")
    return b.op("Slice", x, begin, end, axes, strides)


@lowers("Slice")
def lower_slice(node: Node, low: Lowering) -> None:
    x = operand(node)
    shape = static(x)
    axes = [axis_of(int(a), len(shape)) for a in fixed(node, 3, "the axes")] if node.input(3) is not None else range(len(shape))
    starts, ends = (fixed(node, i, "the bounds").tolist() for i in (1, 2))
    steps = fixed(node, 4, "the steps").tolist() if node.input(4) is not None else [1] * len(starts)
    begin, end, strides = [0] * len(shape), list(shape), [1] * len(shape)
    for a, start, stop, step in zip(axes, starts, ends, steps, strict=False):
        begin[a], end[a], strides[a] = _bounds(start, stop, step, shape[a])
    low.add("Slice", [x], node.outputs, {"begin": begin, "end": end, "strides": strides})


def _bounds(start: int, stop: int, step: int, size: int) -> tuple[int, int, int]:
    """Explicit bounds; the end of a walk backwards past the first element is written as -size - 1."""
    first, last, step = slice(start, stop, step).indices(size)
    return first, (last if step > 0 or last >= 0 else -size - 1), step


@lifts("Crop")
def lift_crop(layer: Layer, b: Builder) -> ir.Value:
    """Pairs of begin and end for every axis."""
    pairs = _pairs(need(layer, "crops"), "crops")
    return b.op("Slice", operand(layer), [p[0] for p in pairs], [p[1] for p in pairs], list(range(len(pairs))))


def _pairs(value: Any, key: str) -> list[list[int]]:
    if isinstance(value, list) and value and all(isinstance(v, int) for v in value) and len(value) % 2 == 0:
        value = [value[i : i + 2] for i in range(0, len(value), 2)]
    if not isinstance(value, list) or not all(isinstance(p, list) and len(p) == 2 and all(isinstance(v, int) for v in p) for p in value):
        raise MappingError(f"{key}={value!r} is not a list of pairs", "R110")
    return value


@lifts("Pad")
def lift_pad(layer: Layer, b: Builder) -> ir.Value:
    x, pairs = operand(layer), _pairs(need(layer, "pads"), "pads")
    if len(pairs) != len(static(x)):
        raise MappingError(f"pads has {len(pairs)} pairs, the data have {len(static(x))} axes", "R105")
    mode = str(layer.attrs.get("mode", "CONSTANT")).upper()
    if mode == "SYMMETRIC":
        return _symmetric(b, x, pairs)
    amounts = [p[0] for p in pairs] + [p[1] for p in pairs]
    mode = choose(layer, "mode", PAD_MODES, "CONSTANT")
    return b.op("Pad", x, amounts, b.like(x, need_number(layer, "constant_value", 0.0)) if mode == "constant" else None, mode=mode)


def _symmetric(b: Builder, x: ir.Value, pairs: list[list[int]]) -> ir.Value:
    """Mirrored at the edge, the edge included."""
    for axis, (begin, end) in enumerate(pairs):
        if begin or end:
            x = b.op("Gather", x, np.pad(arange(static(x)[axis]), (begin, end), mode="symmetric"), axis=axis)
    return x


@lowers("Pad")
def lower_pad(node: Node, low: Lowering) -> None:
    x = operand(node)
    mode, rank = node.attrs.get("mode", "constant"), len(static(x))
    amounts = fixed(node, 1, "the amounts").tolist()
    axes = [axis_of(int(a), rank) for a in fixed(node, 3, "the axes")] if node.input(3) is not None else list(range(rank))
    pads = [[0, 0] for _ in range(rank)]
    for i, a in enumerate(axes):
        pads[a] = [amounts[i], amounts[i + len(axes)]]
    if min(min(p) for p in pads) < 0 and mode != "constant":
        raise MappingError("negative amounts have a counterpart only for constants")
    value = float(fixed(node, 2, "the value").reshape(-1)[0]) if node.input(2) is not None else 0.0
    words = {"constant": "CONSTANT", "reflect": "REFLECT"}  # the others are read, but the vendor's executor does not know them
    if mode not in words:
        raise MappingError(f"mode={mode!r} has no counterpart")
    if x.dtype is not None and x.dtype == ir.DataType.BOOL:
        value = float(bool(value))
    if x.dtype in (ir.DataType.INT64, ir.DataType.UINT64, ir.DataType.INT32, ir.DataType.UINT32) and abs(value) > 1 << 24:
        raise MappingError(f"the value {value:.0f} has too many digits", "X204")
    low.add("Pad", [x], node.outputs, {"pads": pads, "mode": words[mode], "constant_value": float(str(np.float32(value)))})


@lifts("Split")
def lift_split(layer: Layer, b: Builder) -> list[ir.Value]:
    splits = need_ints(layer, "splits")
    return list(b.ops("Split", operand(layer), splits, axis=need_int(layer, "axis"), outputs=len(splits)))


@lowers("Split")
def lower_split(node: Node, low: Lowering) -> None:
    rank = len(static(operand(node)))
    axis = axis_of(int(node.attrs.get("axis", 0)), rank)
    low.add("Split", [operand(node)], node.outputs, {"axis": axis, "splits": [static(v)[axis] for v in node.outputs]})


@lifts("Repeat")
def lift_repeat(layer: Layer, b: Builder) -> ir.Value:
    """How often each element occurs must be known; without an axis the data are flattened."""
    x, repeats = operand(layer), constant(operand(layer, 1))
    if repeats is None:
        raise MappingError("computed repeats make a shape that is not known", "X203")
    axis = layer.attrs.get("axis")
    if axis is None:
        x, axis = b.op("Reshape", x, [-1]), 0
    counts = np.broadcast_to(repeats.reshape(-1), (static(x)[axis],))
    return b.op("Gather", x, np.repeat(arange(len(counts)), counts), axis=axis)


@lifts("Gather")
def lift_gather(layer: Layer, b: Builder) -> ir.Value:
    """batch_dims > 0: along one axis behind the batch axes, for each batch its own indices."""
    x, indices = operand(layer), places(b, operand(layer, 1))
    axis, batch = axis_of(need_int(layer, "axis", 0), len(static(x))), need_int(layer, "batch_dims", 0)
    if batch == 0:
        return b.op("Gather", x, indices, axis=axis)
    # the axis comes first behind the batch axes, GatherND does the rest, and what stood between goes back to its place
    rank, between = len(static(x)), axis - batch
    if between < 0:
        raise MappingError(f"axis={axis} lies within batch_dims={batch}", "R110")
    moved = b.op("Transpose", x, perm=[*range(batch), axis, *range(batch, axis), *range(axis + 1, rank)]) if between else x
    found = b.op("GatherND", moved, b.op("Unsqueeze", index_of(b, indices), [-1]), batch_dims=batch)
    count = len(static(indices)) - batch
    order = [*range(batch), *range(batch + count, batch + count + between), *range(batch, batch + count), *range(batch + count + between, rank - 1 + count)]
    return b.op("Transpose", found, perm=order) if between else found


@lowers("Gather")
def lower_gather(node: Node, low: Lowering) -> None:
    axis = axis_of(int(node.attrs.get("axis", 0)), len(static(operand(node))))
    low.add("Gather", node.inputs, node.outputs, {"axis": axis, "batch_dims": 0})


@lifts("GatherND")
def lift_gather_nd(layer: Layer, b: Builder) -> ir.Value:
    return b.op("GatherND", operand(layer), index_of(b, operand(layer, 1)), batch_dims=need_int(layer, "batch_dims", 0))


@lowers("GatherND")
def lower_gather_nd(node: Node, low: Lowering) -> None:
    low.add("GatherND", node.inputs, node.outputs, {"batch_dims": int(node.attrs.get("batch_dims", 0))})


@lifts("GatherElements")
def lift_gather_elements(layer: Layer, b: Builder) -> ir.Value:
    return b.op("GatherElements", operand(layer), places(b, operand(layer, 1)), axis=need_int(layer, "axis", 0))


@lifts("ScatterElements")
def lift_scatter_elements(layer: Layer, b: Builder) -> ir.Value:
    reduction = choose(layer, "reduction", REDUCTIONS, "NONE")
    return b.op("ScatterElements", operand(layer), places(b, operand(layer, 1)), operand(layer, 2), axis=need_int(layer, "axis"), reduction=reduction)


@lifts("ScatterND")
def lift_scatter_nd(layer: Layer, b: Builder) -> ir.Value:
    reduction = choose(layer, "reduction", REDUCTIONS, "NONE")
    return b.op("ScatterND", operand(layer), index_of(b, operand(layer, 1)), operand(layer, 2), reduction=reduction)


@lowers("ScatterElements", "ScatterND")
def lower_scatter(node: Node, low: Lowering) -> None:
    attrs: dict[str, Any] = {"reduction": node.attrs.get("reduction", "none").upper()}
    if attrs["reduction"] not in ("NONE", "ADD", "MUL"):
        raise MappingError(f"reduction={node.attrs['reduction']!r} has no counterpart: the format knows NONE, ADD and MUL")
    if node.op == "ScatterElements":
        attrs["axis"] = axis_of(int(node.attrs.get("axis", 0)), len(static(operand(node))))
    low.add(node.op, node.inputs, node.outputs, attrs)


@lifts("ReverseSequence")
def lift_reverse_sequence(layer: Layer, b: Builder) -> ir.Value:
    lengths = index_of(b, operand(layer, 1))
    return b.op("ReverseSequence", operand(layer), lengths, batch_axis=need_int(layer, "batch_axis", 1), time_axis=need_int(layer, "time_axis", 0))


@lifts("Compress")
def lift_compress(layer: Layer, b: Builder) -> ir.Value:
    return b.op("Compress", operand(layer), truth_of(b, operand(layer, 1)), axis=layer.attrs.get("axis"))
