"""Shapes and slices -> layers."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.coreml.lowering import rank_of_value, shape_list, small, x_of
from converter.formats.coreml.special.lower_arithmetic import core
from converter.formats.coreml.special.registry import lowers
from converter.graph.infer import shape_of
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node

Value = ir.Value
FAR = 1 << 30  # "to the end" and beyond


@lowers("Shape")
def lower_shape(near: Node, low: Lowering) -> None:
    x = x_of(near)
    rank = rank_of_value(x)
    start = int(near.attrs.get("start", 0))
    end = int(near.attrs.get("end", rank))
    if rank == 0:
        raise MappingError("the shape of a scalar has no elements")
    if (start, end) == (0, rank):
        low.add("getShape", [x], near.outputs)
        return
    whole = core(low).one("getShape", [x], [rank])
    _slice(low, whole, near.outputs, [start], [end], [0], [1], 1)


def _slice(low: Lowering, x: Value, outputs: list[Value], starts: list[int], ends: list[int], axes: list[int], steps: list[int], rank: int) -> None:
    begin, end, step, first, last = [0] * rank, [FAR] * rank, [1] * rank, [True] * rank, [True] * rank
    size = shape_list(x) or [None] * rank
    for s, e, a, d in zip(starts, ends, axes, steps, strict=True):
        axis = a % rank
        begin[axis], end[axis], step[axis] = max(-FAR, min(s, FAR)), max(-FAR, min(e, FAR)), d
        first[axis] = s <= -FAR or s == 0 if d > 0 else s >= FAR
        last[axis] = e >= FAR if d > 0 else e <= -FAR
        if size[axis] is not None and d > 0 and s < -size[axis]:
            begin[axis], first[axis] = 0, True
    attrs = {"beginIds": begin, "endIds": end, "strides": step, "beginMasks": first, "endMasks": last, "squeezeMasks": [False] * rank}
    low.add("sliceStatic", [x], outputs, attrs)


@lowers("Slice")
def lower_slice(near: Node, low: Lowering) -> None:
    x = x_of(near)
    rank = rank_of_value(x)
    if 0 in (shape_of(near.outputs[0]) or ()):
        raise MappingError("a Slice without elements")
    starts, ends = small(near.input(1)), small(near.input(2))
    axes = small(near.input(3)) if near.input(3) is not None else list(range(len(starts or ends or [])))
    steps = small(near.input(4)) if near.input(4) is not None else [1] * len(axes or [])
    if axes is None:
        raise MappingError("the axes of a Slice must be constant")
    if starts is not None and ends is not None and steps is not None:
        _slice(low, x, near.outputs, starts, ends, axes, steps, rank)
    else:
        _dynamic_slice(near, low, x, [int(a) % rank for a in axes], None if steps is None else [int(s) for s in steps], rank)


def _dynamic_slice(near: Node, low: Lowering, x: Value, axes: list[int], steps: list[int] | None, rank: int) -> None:
    """Limits known only at run time: spread over all axes, the others masked."""
    starts, ends = near.input(1), near.input(2)
    axes = axes or list(range(rank))
    masked = [i not in axes for i in range(rank)]
    step = [steps[axes.index(i)] if i in axes and steps else 1 for i in range(rank)]
    known_ends = small(ends)
    last = list(masked)
    for i in axes:
        if known_ends is not None and known_ends[axes.index(i)] >= FAR:
            last[i] = True
    inputs = [x, *(_spread(low, v, axes, rank, 0) for v in (starts, ends))]
    if steps is None:
        inputs.append(_spread(low, near.input(4), axes, rank, 1))
    attrs = {"strides": step, "beginMasks": masked, "endMasks": last}  # masks for squeezing, even if they are all false, need another version
    low.add("sliceDynamic", inputs, near.outputs, attrs)


def _spread(low: Lowering, value: Value | None, axes: list[int], rank: int, other: int) -> Value:
    """Limits or steps for some axes as those for all (`other` elsewhere)."""
    c = core(low)
    found = small(value)
    if found is not None:
        return c.const([min(max(found[axes.index(i)], -FAR), FAR) if i in axes else other for i in range(rank)])
    assert value is not None
    if axes == list(range(rank)):
        return value
    return c.one("scatter", [c.const([other] * rank), c.const(axes), value], [rank], {"axis": 0, "mode": "SCATTER_UPDATE"})
