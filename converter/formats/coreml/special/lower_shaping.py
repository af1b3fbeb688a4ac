"""Shapes, joining, splitting, slicing, indexing, reduction -> layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.lowering import attrs_with_defaults, numbers, rank_of_value, shape_list, small, x_of
from converter.formats.coreml.special.lower_arithmetic import core, scalar
from converter.formats.coreml.special.registry import lowers
from converter.graph.infer import shape_of
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node

Value = ir.Value
FAR = 1 << 30  # "to the end" and beyond


def to_static(low: Lowering, x: Value, outputs: list[Value], shape: list[int]) -> None:
    low.add("reshapeStatic", [x], outputs, {"targetShape": shape or [1]})


@lowers("Reshape")
def lower_reshape(near: Node, low: Lowering) -> None:
    """Static where the result is; else -1 or the kept dimensions (0) say what is not known, else the shape is an input."""
    x, target, out = x_of(near), near.input(1), near.outputs[0]
    if any(d == 0 for d in shape_of(x) or ()):
        raise MappingError("tensors without elements have no place in Core ML")
    shape = shape_of(out)
    wanted = small(target)
    if shape is not None:
        to_static(low, x, near.outputs, list(shape))
    elif wanted is not None and 0 not in wanted:
        to_static(low, x, near.outputs, [int(d) for d in wanted])
    elif wanted is not None and len(wanted) == rank_of_value(x):
        low.add("rankPreservingReshape", [x], near.outputs, {"targetShape": [int(d) for d in wanted]})
    elif wanted is not None:
        raise MappingError("a Reshape that copies dimensions (0) to another rank")
    else:
        low.add("reshapeDynamic", [x, target], near.outputs)


@lowers("Squeeze Unsqueeze")
def lower_squeeze(near: Node, low: Lowering) -> None:
    """Rank 0 is written as [1]."""
    x, out = x_of(near), near.outputs[0]
    axes, rank = small(near.input(1)) if near.input(1) is not None else None, rank_of_value(x)
    if near.op == "Squeeze" and axes is None:
        low.add("squeeze", [x], near.outputs, {"squeezeAll": True})
    elif axes is None:
        raise MappingError("the axes must be constant")
    elif not axes or (near.op == "Squeeze" and rank == 1) or (near.op == "Unsqueeze" and rank == 0 and len(axes) == 1):
        core(low).alias(out, x)
    elif rank == 0:
        to_static(low, x, near.outputs, [1] * len(axes))
    elif near.op == "Squeeze":
        low.add("squeeze", [x], near.outputs, {"axes": sorted(int(a) % rank for a in axes)})
    else:
        low.add("expandDims", [x], near.outputs, {"axes": sorted(int(a) % (rank + len(axes)) for a in axes)})


@lowers("Flatten")
def lower_flatten(near: Node, low: Lowering) -> None:
    axis, rank = int(attrs_with_defaults(near)["axis"]), rank_of_value(x_of(near))
    if axis == 0 or axis == rank:
        raise MappingError("a Flatten into one row or column")
    low.add("flattenTo2D", [x_of(near)], near.outputs, {"axis": axis})


@lowers("Transpose")
def lower_transpose(near: Node, low: Lowering) -> None:
    x = x_of(near)
    perm = near.attrs.get("perm") or list(range(rank_of_value(x)))[::-1]
    low.add("transpose", [x], near.outputs, {"axes": [int(a) for a in perm]})


@lowers("Concat")
def lower_concat(near: Node, low: Lowering) -> None:
    values = [v for v in near.inputs if v is not None and 0 not in (shape_of(v) or ())]
    if len(values) == 1:
        core(low).alias(near.outputs[0], values[0])
    else:
        low.add("concatND", values, near.outputs, {"axis": int(near.attrs["axis"])})


@lowers("Split")
def lower_split(near: Node, low: Lowering) -> None:
    x, axis = x_of(near), int(attrs_with_defaults(near).get("axis", 0))
    sizes = small(near.input(1)) if near.input(1) is not None else None
    if near.input(1) is not None and sizes is None:
        raise MappingError("the sizes of a Split must be constant")
    count = len(near.outputs)
    if sizes is None:  # ONNX: the last part is shorter
        length = (shape_list(x) or [])[axis]
        part = -(-length // count) if length is not None else 0
        sizes = [min(part, max(0, length - i * part)) for i in range(count)] if length is not None else None
    if sizes is not None and 0 in sizes:
        raise MappingError("a Split into parts without elements")
    if count == 1:
        core(low).alias(near.outputs[0], x)
        return
    attrs: dict[str, Any] = {"axis": axis}
    attrs |= {"splitSizes": [int(s) for s in sizes]} if sizes is not None and len(set(sizes)) > 1 else {"numSplits": count}
    low.add("splitND", [x], near.outputs, attrs)


@lowers("Expand")
def lower_expand(near: Node, low: Lowering) -> None:
    x, out = x_of(near), near.outputs[0]
    shape = shape_of(out)
    if shape is not None:
        low.add("broadcastToStatic", [x], near.outputs, {"targetShape": list(shape) or [1]})
    elif rank_of_value(out) != rank_of_value(x) or small(near.input(1)) is None:
        low.add("broadcastToDynamic", [x, near.input(1)], near.outputs)
    else:
        raise MappingError("an Expand of unknown dimensions to a constant shape")


@lowers("Tile")
def lower_tile(near: Node, low: Lowering) -> None:
    reps = small(near.input(1))
    if reps is not None:
        low.add("tile", [x_of(near)], near.outputs, {"reps": [int(r) for r in reps]})
    else:
        low.add("tile", [x_of(near), near.input(1)], near.outputs)


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
    if axes is None or steps is None:
        raise MappingError("axes and steps of a Slice must be constant")
    if starts is not None and ends is not None:
        _slice(low, x, near.outputs, starts, ends, axes, steps, rank)
    else:
        _dynamic_slice(near, low, x, [int(a) % rank for a in axes], [int(s) for s in steps], rank)


def _dynamic_slice(near: Node, low: Lowering, x: Value, axes: list[int], steps: list[int], rank: int) -> None:
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
    begin, end = (_spread(low, v, axes, rank) for v in (starts, ends))
    attrs = {"strides": step, "beginMasks": masked, "endMasks": last, "squeezeMasks": [False] * rank}
    low.add("sliceDynamic", [x, begin, end], near.outputs, attrs)


def _spread(low: Lowering, value: Value | None, axes: list[int], rank: int) -> Value:
    """Limits for some axes as limits for all (zeros elsewhere)."""
    c = core(low)
    found = small(value)
    if found is not None:
        return c.const([min(max(found[axes.index(i)], -FAR), FAR) if i in axes else 0 for i in range(rank)])
    assert value is not None
    if axes == list(range(rank)):
        return value
    return c.one("scatter", [c.const([0] * rank), c.const(axes), value], [rank], {"axis": 0, "mode": "SCATTER_UPDATE"})


@lowers("Gather")
def lower_gather(near: Node, low: Lowering) -> None:
    """A scalar index takes its axis away. A lookup in a constant table is an embedding."""
    x, indices, out = x_of(near), x_of(near, 1), near.outputs[0]
    axis = int(near.attrs.get("axis", 0))
    if x.dtype == ir.DataType.STRING:
        raise MappingError("texts have no place in Core ML's tensors")
    shape = shape_list(out)
    if rank_of_value(indices) == 0 and rank_of_value(x) > 1:
        inner = list(shape) if shape is not None else None
        if inner is not None:
            inner.insert(axis % rank_of_value(x), 1)
        y = core(low).one("gather", [x, indices], inner, {"axis": axis})
        low.add("squeeze", [y], near.outputs, {"axes": [axis % rank_of_value(x)]})
    else:
        low.add("gather", [x, indices], near.outputs, {"axis": axis})


@lowers("GatherElements")
def lower_gather_elements(near: Node, low: Lowering) -> None:
    low.add("gatherAlongAxis", [x_of(near), x_of(near, 1)], near.outputs, {"axis": int(near.attrs.get("axis", 0))})


@lowers("GatherND")
def lower_gather_nd(near: Node, low: Lowering) -> None:
    if near.attrs.get("batch_dims", 0):
        raise MappingError("batch_dims of GatherND")
    low.add("gatherND", [x_of(near), x_of(near, 1)], near.outputs)


_MODES = {"none": "SCATTER_UPDATE", "add": "SCATTER_ADD", "mul": "SCATTER_MUL", "max": "SCATTER_MAX", "min": "SCATTER_MIN"}


@lowers("ScatterND ScatterElements")
def lower_scatter(near: Node, low: Lowering) -> None:
    mode = _MODES[near.attrs.get("reduction", "none")]
    values = [x_of(near, i) for i in range(3)]
    if near.op == "ScatterND":
        low.add("scatterND", values, near.outputs, {"mode": mode})
    else:
        low.add("scatterAlongAxis", values, near.outputs, {"mode": mode, "axis": int(near.attrs.get("axis", 0))})


@lowers("OneHot")
def lower_one_hot(near: Node, low: Lowering) -> None:
    values, depth = numbers(near.input(2), "the values of OneHot").reshape(-1), small(near.input(1))
    attrs = {"axis": int(near.attrs.get("axis", -1)), "offValue": float(values[0]), "onValue": float(values[1])}
    if depth is not None:
        low.add("oneHot", [x_of(near)], near.outputs, {**attrs, "oneHotVectorSize": int(depth[0])})
    else:
        low.add("oneHot", [x_of(near), near.input(1)], near.outputs, attrs)


@lowers("ConstantOfShape")
def lower_fill(near: Node, low: Lowering) -> None:
    array = near.attrs.get("value")
    value = float(np.asarray(array).reshape(-1)[0]) if array is not None else 0.0
    shape = shape_of(near.outputs[0])
    if shape is not None:
        low.add("fillStatic", [], near.outputs, {"value": value, "targetShape": list(shape) or [1]})
    else:
        low.add("fillDynamic", [x_of(near)], near.outputs, {"value": value})


@lowers("Range")
def lower_range(near: Node, low: Lowering) -> None:
    start, step = scalar(near.input(0)), scalar(near.input(2))
    inputs = [x_of(near, 1)]
    if start is None or step is None:
        inputs.append(x_of(near, 0))
    if step is None:
        inputs.append(x_of(near, 2))
    low.add("rangeDynamic", inputs, near.outputs, {"startValue": start or 0.0, "stepSizeValue": step if step is not None else 1.0})


@lowers("Pad")
def lower_pad(near: Node, low: Lowering) -> None:
    x, mode = x_of(near), near.attrs.get("mode", "constant")
    rank, pads = rank_of_value(x), small(near.input(1))
    axes = small(near.input(3)) if near.input(3) is not None else list(range(rank))
    value = scalar(near.input(2)) if near.input(2) is not None else 0.0
    if axes is None or value is None:
        raise MappingError("axes and value of a Pad must be constant")
    if pads is None:
        raise MappingError("pads that are known only at run time")
    n = len(axes)
    before, after = [0] * rank, [0] * rank
    for i, a in enumerate(axes):
        before[a % rank], after[a % rank] = int(pads[i]), int(pads[n + i])
    if min(before + after) < 0:
        raise MappingError("negative pads")
    if mode == "constant":
        low.add("constantPad", [x], near.outputs, {"value": value, "padAmounts": [v for pair in zip(before, after, strict=True) for v in pair]})
        return
    if mode not in ("reflect", "edge") or any(before[:-2]) or any(after[:-2]) or rank < 2:
        raise MappingError(f"padding mode {mode} beyond the last two axes")
    edges = [{"startEdgeSize": before[i], "endEdgeSize": after[i]} for i in (-2, -1)]
    low.add("padding", [x], near.outputs, {{"reflect": "reflection", "edge": "replication"}[mode]: {}, "paddingAmounts": {"borderAmounts": edges}})


@lowers("Trilu")
def lower_trilu(near: Node, low: Lowering) -> None:
    k = small(near.input(1)) if near.input(1) is not None else [0]
    if k is None:
        raise MappingError("k of Trilu must be constant")
    low.add("upperTriangular" if near.attrs.get("upper", 1) else "lowerTriangular", [x_of(near)], near.outputs, {"k": int(k[0])})


@lowers("ReverseSequence")
def lower_reverse_sequence(near: Node, low: Lowering) -> None:
    batch, time = int(near.attrs.get("batch_axis", 1)), int(near.attrs.get("time_axis", 0))
    if batch > time:
        raise MappingError("a batch axis behind the time axis")
    low.add("reverseSeq", [x_of(near), x_of(near, 1)], near.outputs, {"batchAxis": batch, "sequenceAxis": time})


