"""StridedSlice: masks first, then a Slice, a Squeeze and an Unsqueeze."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.special.base import attributes, dim, int64, lifts, operand, optional, rank
from converter.graph.build import Builder
from converter.graph.infer import known
from converter.mapping.node import Layer, MappingError

MAX = np.iinfo(np.int64).max
MIN = np.iinfo(np.int64).min


@dataclass
class Plan:
    """Per entry of begin: which axis of the input it is about, and what happens there."""

    sliced: list[tuple[int, int]] = field(default_factory=list)  # (entry, axis)
    shrunk: list[int] = field(default_factory=list)  # axes of the input
    new: list[int] = field(default_factory=list)  # axes of the result


def plan(count: int, n: int, new: list[int], shrink: list[int], ellipsis: list[int]) -> Plan:
    """Walks over the entries; an ellipsis covers the axes that no other entry speaks of."""
    result, axis, out = Plan(), 0, 0
    covered = sum(1 for i in range(count) if not ellipsis[i] and not new[i])
    for i in range(count):
        if ellipsis[i]:
            axis += n - covered
            out += n - covered
        elif new[i]:
            result.new.append(out)
            out += 1
        else:
            if axis >= n:
                raise MappingError("more entries than axes", "R105")
            result.sliced.append((i, axis))
            if shrink[i]:
                result.shrunk.append(axis)
            else:
                out += 1
            axis += 1
    return result


@lifts("StridedSlice")
def lift_strided_slice(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, begin_mask=list, end_mask=list, new_axis_mask=[], shrink_axis_mask=[], ellipsis_mask=[])
    x = operand(layer, 0)
    begin, end = (int64(b, operand(layer, i), flat=True) for i in (1, 2))
    count = dim(begin, 0) if dim(begin, 0) is not None else dim(end, 0)
    if count is None:
        raise MappingError("the number of sliced axes is unknown", "X203")
    strides = optional(layer, 3)
    steps = np.ones(count, np.int64) if strides is None else known(strides)
    if steps is None:
        raise MappingError("the strides must be known when converting")
    masks = {k: ([*v, *[0] * count])[:count] for k, v in vars(a).items()}
    p = plan(count, rank(x), masks["new_axis_mask"], masks["shrink_axis_mask"], masks["ellipsis_mask"])
    y = _sliced(b, x, p, (begin, end), np.asarray(steps).reshape(-1), masks) if p.sliced else x
    if p.shrunk:
        y = b.op("Squeeze", y, p.shrunk)
    if p.new:
        y = b.op("Unsqueeze", y, p.new)
    return b.op("Identity", y) if y is x else y


def _sliced(b: Builder, x: ir.Value, p: Plan, bounds: tuple[ir.Value, ir.Value], steps: Any, masks: dict[str, list[int]]) -> ir.Value:
    known_bounds = [known(v) for v in bounds]
    axes, at = [axis for _, axis in p.sliced], [i for i, _ in p.sliced]
    step = [1 if masks["shrink_axis_mask"][i] else int(steps[i]) for i in at]
    if all(k is not None for k in known_bounds):
        starts, ends = [], []
        for i, s in zip(at, step, strict=True):
            lo, hi = (int(k.reshape(-1)[i]) for k in known_bounds)  # type: ignore[union-attr]
            if masks["shrink_axis_mask"][i]:
                lo = 0 if masks["begin_mask"][i] else lo
                starts.append(lo)
                ends.append(lo + 1 if lo != -1 else MAX)
                continue
            starts.append((MAX if s < 0 else 0) if masks["begin_mask"][i] else lo)
            ends.append((MIN if s < 0 else MAX) if masks["end_mask"][i] else hi)
        return b.op("Slice", x, starts, ends, axes, step)
    return b.op("Slice", x, *_computed(b, bounds, at, step, masks), axes, step)


def _computed(b: Builder, bounds: tuple[ir.Value, ir.Value], at: list[int], step: list[int], masks: dict[str, list[int]]) -> tuple[ir.Value, ir.Value]:
    """Bounds that are computed, with the masks laid over them."""
    begin, end = (b.op("Gather", v, at, axis=0) for v in bounds)
    negative = np.array(step) < 0
    first = np.array([bool(masks["begin_mask"][i]) for i in at])
    if first.any():
        begin = b.op("Where", b.const(first), b.const(np.where(negative, MAX, 0)), begin)
    last = np.array([bool(masks["end_mask"][i]) for i in at])
    if last.any():
        end = b.op("Where", b.const(last), b.const(np.where(negative, MIN, MAX)), end)
    shrink = np.array([bool(masks["shrink_axis_mask"][i]) for i in at])
    if shrink.any():
        behind = b.op("Where", b.op("Equal", begin, [-1]), b.const(np.int64(MAX)), b.op("Add", begin, [1]))
        end = b.op("Where", b.const(shrink), behind, end)
    return begin, end
