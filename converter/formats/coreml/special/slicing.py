"""Slices, windows and reversal."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.blobs import axis_of, bools, dims, floats, ints, operand, rank, squeeze, vector
from converter.formats.coreml.special.registry import lifts
from converter.graph.build import Builder
from converter.graph.infer import known
from converter.graph.sizes import arange
from converter.mapping.node import Layer, MappingError

Value = ir.Value
LAST, FIRST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


@lifts("slice")
def lift_slice(layer: Layer, b: Builder) -> Value:
    p, x = layer.attrs, operand(layer)
    axis = {"CHANNEL_AXIS": -3, "HEIGHT_AXIS": -2, "WIDTH_AXIS": -1}[p["axis"]]
    return b.op("Slice", x, [int(p["startIndex"])], [int(p["endIndex"])], [rank(x, -axis) + axis], [int(p["stride"]) or 1])


def masks(values: Any, count: int) -> list[bool]:
    """One for each axis; what is missing is false, what is too much (coremltools pads to five axes) says nothing."""
    found = [bool(v) for v in values][:count]
    return found + [False] * (count - len(found))


def strided(b: Builder, x: Value, begin: list[int], end: list[int], p: dict[str, list[Any]]) -> Value:
    """The numpy slice of `begin`, `end` and `strides`; masks mean "from the start" and "to the end" in the stride's direction.

    A squeezed axis takes the element at `begin` and goes away (but never the last axis of all).
    """
    r = rank(x)
    step = [int(s) for s in p["strides"]] or [1] * r
    if not len(begin) == len(end) == len(step) == r:
        raise MappingError(f"begin, end and strides have {len(begin)}, {len(end)}, {len(step)} elements for {r} axes", "R110")
    from_start, to_end, gone = (masks(p[k], r) for k in ("beginMasks", "endMasks", "squeezeMasks"))
    starts: list[int] = []
    ends: list[int] = []
    steps: list[int] = []
    axes: list[int] = []
    for i in range(r):
        if gone[i]:
            start, stop, s = begin[i], begin[i] + 1 if begin[i] != -1 else LAST, 1
        else:
            s = step[i]
            start = begin[i] if not from_start[i] else 0 if s > 0 else LAST
            stop = end[i] if not to_end[i] else LAST if s > 0 else FIRST
        if (start, stop, s) != (0, LAST, 1):
            starts, ends, steps, axes = [*starts, start], [*ends, stop], [*steps, s], [*axes, i]
    y = b.op("Slice", x, starts, ends, axes, steps) if axes else x
    squeezed = [i for i in range(r) if gone[i]]
    return squeeze(b, y, squeezed[1:] if len(squeezed) == r else squeezed)


@lifts("sliceStatic")
def lift_slice_static(layer: Layer, b: Builder) -> Value:
    p = layer.attrs
    return strided(b, operand(layer), [int(v) for v in p["beginIds"]], [int(v) for v in p["endIds"]], p)


@lifts("sliceDynamic")
def lift_slice_dynamic(layer: Layer, b: Builder) -> Value:
    """begin is input 1; end, strides and the masks are further inputs or parameters. Masks that squeeze must be known.

    coremltools gives strides and masks for five axes where nobody says how many there are: those beyond the last axis mean nothing.
    """
    x, p = operand(layer), dict(layer.attrs)
    r = rank(x)
    given: dict[str, Value] = {}
    for index, key in enumerate(("strides", "beginMasks", "endMasks", "squeezeMasks"), 3):
        if index < len(layer.inputs):
            found = known(operand(layer, index))
            if found is not None:
                p[key] = found.reshape(-1).astype(np.int64).tolist()
            elif key == "squeezeMasks":
                raise MappingError("squeezeMasks must be known without running the network: they decide the rank", "X202")
            else:
                given[key] = _first(b, vector(b, operand(layer, index)), r)
    p["strides"] = p["strides"][:r]
    begin = operand(layer, 1)
    end = operand(layer, 2) if len(layer.inputs) > 2 else b.const([int(v) for v in p["endIds"]])
    first, last = known(begin), known(end)
    if first is not None and last is not None and not given:
        return strided(b, x, first.reshape(-1).astype(np.int64).tolist(), last.reshape(-1).astype(np.int64).tolist(), p)
    return _computed(b, x, vector(b, begin), vector(b, end), p, given)


def _first(b: Builder, values: Value, count: int) -> Value:
    size = dims(values)[0]
    return values if size is not None and size <= count else b.op("Slice", values, [0], [count])


def _computed(b: Builder, x: Value, begin: Value, end: Value, p: dict[str, list[Any]], given: dict[str, Value]) -> Value:
    """A slice whose limits are values. Masks that nothing can set are left out."""
    r = rank(x)
    gone = np.array(masks(p["squeezeMasks"], r))
    step = given.get("strides") or b.const(np.array([int(s) for s in p["strides"]] or [1] * r, np.int64))
    if gone.any():
        step = b.op("Where", b.const(gone), 1, step)
    forward = b.op("Greater", step, 0)
    for key, ahead, back in (("beginMasks", 0, LAST), ("endMasks", LAST, FIRST)):
        mask = b.op("And", bools(b, given[key]), b.const(~gone)) if key in given else b.const(np.array(masks(p[key], r)) & ~gone)
        fixed = known(mask)
        if fixed is None or fixed.any():
            open_end = b.op("Where", mask, b.op("Where", forward, ahead, back), begin if key == "beginMasks" else end)
            begin, end = (open_end, end) if key == "beginMasks" else (begin, open_end)
    if gone.any():
        after = b.op("Where", b.op("Equal", begin, -1), LAST, b.op("Add", begin, 1))
        end = b.op("Where", b.const(gone), after, end)
    y = b.op("Slice", x, begin, end, list(range(r)), step)
    for i in range(r):  # one element, whatever begin is
        if gone[i] and y.shape is not None:
            y.shape = ir.Shape([1 if i == k else d for k, d in enumerate(y.shape)])
    axes = [i for i in range(r) if gone[i]]
    return squeeze(b, y, axes[1:] if len(axes) == r else axes)


@lifts("sliceBySize")
def lift_slice_by_size(layer: Layer, b: Builder) -> Value:
    x, size = operand(layer), int(layer.attrs["size"])
    axis = axis_of(int(layer.attrs["axis"]), rank(x))
    begin = b.op("Reshape", ints(b, operand(layer, 1)), [1])
    at = known(begin)
    if at is not None:
        start = int(at[0])
        return b.op("Slice", x, [start], [start + size if start >= 0 or start + size < 0 else LAST], [axis])
    length = b.op("Slice", b.op("Shape", x), [axis], [axis + 1])
    start_value = b.op("Where", b.op("Less", begin, [0]), b.op("Add", begin, length), begin)
    y = b.op("Slice", x, start_value, b.op("Add", start_value, [size]), [axis])
    y.shape = ir.Shape([size if i == axis else d for i, d in enumerate(x.shape)]) if x.shape is not None else y.shape
    return y


@lifts("slidingWindows")
def lift_sliding_windows(layer: Layer, b: Builder) -> Value:
    """[.., L, ..] -> [.., M, W, ..]: M windows of W elements, one every `step`."""
    p, x = layer.attrs, operand(layer)
    axis, width, step = axis_of(int(p["axis"]), rank(x)), int(p["windowSize"]), int(p["step"]) or 1
    length = dims(x)[axis]
    offsets = arange(width)
    if length is not None:
        return b.op("Gather", x, b.const(arange(0, length - width + 1, step)[:, None] + offsets), axis=axis)
    size = b.op("Squeeze", b.op("Slice", b.op("Shape", x), [axis], [axis + 1]), [0])
    starts = b.op("Range", 0, b.op("Sub", size, width - 1), step)
    return b.op("Gather", x, b.op("Add", b.op("Unsqueeze", starts, [1]), b.const(offsets)), axis=axis)


@lifts("reverse")
def lift_reverse(layer: Layer, b: Builder) -> Value:
    x = operand(layer)
    axes = [i for i, flag in enumerate(layer.attrs["reverseDim"]) if flag]
    return b.op("Slice", x, [-1] * len(axes), [FIRST] * len(axes), axes, [-1] * len(axes)) if axes else b.op("Identity", x)


@lifts("reverseSeq")
def lift_reverse_sequence(layer: Layer, b: Builder) -> Value:
    """The first n elements of each batch along the sequence axis; ONNX wants the two axes in front."""
    p, x = layer.attrs, floats(b, operand(layer))
    r = rank(x)
    batch, time = axis_of(int(p["batchAxis"]), r), axis_of(int(p["sequenceAxis"]), r)
    lengths = vector(b, operand(layer, 1))
    if {batch, time} == {0, 1}:
        return b.op("ReverseSequence", x, lengths, batch_axis=batch, time_axis=time)
    order = [batch, time, *(i for i in range(r) if i not in (batch, time))]
    y = b.op("ReverseSequence", b.op("Transpose", x, perm=order), lengths, batch_axis=0, time_axis=1)
    return b.op("Transpose", y, perm=[order.index(i) for i in range(r)])
