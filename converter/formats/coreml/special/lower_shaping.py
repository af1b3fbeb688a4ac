"""Reshaping, joining, splitting, filling and padding -> layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.lowering import attrs_with_defaults, rank_of_value, shape_list, small, x_of
from converter.formats.coreml.special.lower_arithmetic import core, scalar
from converter.formats.coreml.special.registry import lowers
from converter.graph.infer import shape_of
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node

Value = ir.Value


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
    if shape is not None and rank_of_value(x) > 5:
        x = flattened(x)
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


def flattened(x: Value) -> Value:
    """The tensor of at most 5 axes that a tensor of more axes is a mere reshaping of, when there is one."""
    source: Value | None = x
    while source is not None and rank_of_value(source) > 5:
        node = source.producer()
        if node is None or node.domain or node.op_type not in ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"):
            return x
        source = node.inputs[0]
    return x if source is None else source


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
        size = shape_list(x)
        length = size[axis] if size is not None else None
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


MOST_ONES = 1 << 20


@lowers("Expand")
def lower_expand(near: Node, low: Lowering) -> None:
    x, out = x_of(near), near.outputs[0]
    shape = shape_of(out)
    if shape is not None:
        low.add("broadcastToStatic", [x], near.outputs, {"targetShape": list(shape) or [1]})
    elif (sizes := small(near.input(1))) is None or rank_of_value(out) != rank_of_value(x):
        low.add("broadcastToDynamic", [x, _reached(near, low)], near.outputs)
    elif math.prod(int(n) for n in sizes) > MOST_ONES:
        raise MappingError("an Expand of unknown dimensions to a constant shape that is large")
    else:  # a size of 1 leaves the operand's as it is, which only arithmetic does
        low.add("multiplyBroadcastable", [x, core(low).const(np.ones([int(n) for n in sizes], np.float32))], near.outputs)


def _reached(near: Node, low: Lowering) -> Value:
    """The shape that an Expand leads to. ONNX's may be smaller than the operand's, or shorter, where that stays as it is; the layer's must hold it."""
    x, shape, c, node = x_of(near), x_of(near, 1), core(low), near.outputs[0].producer()
    if node is not None and (node.metadata_props.get("netconv.format"), node.metadata_props.get("netconv.type")) == ("coreml", "broadcastToDynamic"):
        return shape  # by the rules of the layer that it was
    own, rank = shape_list(x), rank_of_value(near.outputs[0])
    asked = (shape_list(shape) or [None])[0]
    if own is not None and all(d == 1 for d in own) and asked == rank:
        return shape
    here = c.one("getShape", [x], [len(own or [])]) if own is None or None in own else c.const(own)
    sizes = []
    for value, count in ((shape, asked), (here, rank_of_value(x))):
        if count is None:
            raise MappingError("an Expand to a shape of unknown length")
        ones = [c.const([1] * (rank - count))] if count < rank else []
        sizes.append(c.one("concatND", [*ones, value], [rank], {"axis": 0}) if ones else value)
    return c.one("maxBroadcastable", sizes, [rank])


@lowers("Tile")
def lower_tile(near: Node, low: Lowering) -> None:
    reps = small(near.input(1))
    if reps is not None:
        low.add("tile", [x_of(near)], near.outputs, {"reps": [int(r) for r in reps]})
    else:
        low.add("tile", [x_of(near), near.input(1)], near.outputs)


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
        _dynamic_pad(near, low, value, rank, mode, axes)
        return
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


def _dynamic_pad(near: Node, low: Lowering, value: float, rank: int, mode: str, axes: list[Any]) -> None:
    """[before.., after..] known only at run time as the pairs that the layer takes."""
    if mode != "constant" or axes != list(range(rank)):
        raise MappingError("pads of some axes, or not constant, that are known only at run time")
    c = core(low)
    halves = c.one("reshapeStatic", [near.input(1)], [2, rank], {"targetShape": [2, rank]})
    pairs = c.one("transpose", [halves], [rank, 2], {"axes": [1, 0]})
    amounts = c.one("reshapeStatic", [pairs], [2 * rank], {"targetShape": [2 * rank]})
    low.add("constantPad", [x_of(near), amounts], near.outputs, {"value": value})


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
