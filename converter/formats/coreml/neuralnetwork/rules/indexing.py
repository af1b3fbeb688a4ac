"""Gathering, scattering, slicing, reversing.

Indices are floats in the file and integers in the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.coreml.neuralnetwork import operands as blobs
from converter.formats.coreml.neuralnetwork.collector import rank_of_value
from converter.formats.coreml.neuralnetwork.rules.context import LiftContext, LowerContext
from converter.formats.coreml.neuralnetwork.rules.fields import (
    ANY,
    FAR,
    KEEP_ONE_AXIS,
    ONE,
    SEVERAL,
    ConstOrInput,
    borders,
    of_type,
    static_slice,
)
from converter.formats.coreml.neuralnetwork.rules.matmul import transposed
from converter.graph.infer import known, shape_of
from converter.graph.sizes import arange
from converter.graph.value import producer_operand
from converter.mapping.codecs import enum
from converter.mapping.fields import (
    Attr,
    Detail,
    Field,
    Guard,
    InputType,
    RequireAttr,
    any_type,
    ignore,
)
from converter.mapping.rules import Custom, Rule, custom, op
from converter.passes.constants import is_constant
from converter.passes.indices import NOT_NEGATIVE, cut_axes
from converter.passes.layout.axes import inverse

Value = ir.Value
LAST, FIRST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


# gathering ---------------------------------------------------------------------------------------


def squeeze_index_axis(w: LowerContext) -> None:
    """Read a scalar index, which removes its axis, as an index of one element followed by a
    squeeze.
    """
    rank, axis = rank_of_value(w.data), w.attr("axis")
    if rank_of_value(w.input(1)) or rank < 2:
        return
    sizes = w.dims(w.out)
    gathered = w.result("gathered")
    if sizes is not None:
        sizes.insert(axis % rank, 1)
        gathered.shape = ir.Shape(sizes)
    w.after_emit(lambda: w.put("squeeze", gathered, axes=[axis % rank]))


def _has_sizes_of_data(w: LowerContext) -> bool:
    scatter = w.node.op != "GatherElements"
    return not cut_axes(int(w.attr("axis")), w.data, w.input(1), scatter)


SAME_SIZES = Guard(
    "indices must have the sizes of the data along the other axes", _has_sizes_of_data
)


def lookup(r: LiftContext, indices: Value, rows: int, width: int) -> Value:
    """Look up rows of the table, which is stored as [width, rows]; the result has one axis more
    than `indices`.
    """
    table = r.transpose(r.weights("weights", [width, rows]), [1, 0])
    y = r.b.Gather(table, blobs.ints(r.b, indices), axis=0)
    return (y + r.plain("bias", [width])) if r.attr("hasBias", bool) else y


def lift_embedding(r: LiftContext) -> Value:
    """Read an embedding: indices [...,1,1,1] give vectors [...,C,1,1]."""
    x, sizes = r.input(0), (r.attr("inputDim", int), r.attr("outputChannels", int))
    n = blobs.rank(x, 3)
    if n == 3:
        y = lookup(r, r.b.Reshape(x, [-1]), *sizes)
        return r.b.Reshape(y, [-1, 1, 1])
    y = lookup(r, blobs.squeeze(r.b, x, [n - 3, n - 2, n - 1]), *sizes)
    return r.b.Unsqueeze(y, [n - 2, n - 1])


def lift_embedding_nd(r: LiftContext) -> Value:
    """Read an embedding: indices [...,1] give vectors [...,C]."""
    x = r.input(0)
    n = blobs.rank(x)
    indices = blobs.squeeze(r.b, x, [n - 1]) if n > 1 else x
    return lookup(r, indices, r.attr("vocabSize", int), r.attr("embeddingSize", int))


def lower_embedding(w: LowerContext) -> None:
    """Write a lookup that was an embedding layer as one again. Others may have negative indices,
    which embeddings do not support.
    """
    table, indices, (_, kind) = w.data, w.input(1), w.origin
    size, rank = shape_of(table), rank_of_value(indices)
    embeds = kind.startswith("embedding") and 1 <= rank <= 4 and not w.attr("axis")
    if not embeds or not is_constant(table) or size is None or len(size) != 2:
        raise no_match("only an embedding lookup is supported by this layer")
    sizes = w.dims(indices)
    column = None if sizes is None else [*sizes, 1]
    x = w.emit("expandDims", indices, shape=column, axes=[rank])
    attrs = {"vocabSize": size[0], "embeddingSize": size[1]}
    weights = {"weights": transposed(w, table)}
    w.low.add("embeddingND", [x], w.node.outputs, attrs, weights)


# scattering --------------------------------------------------------------------------------------

MODES = {
    "none": "SCATTER_UPDATE",
    "add": "SCATTER_ADD",
    "mul": "SCATTER_MUL",
    "max": "SCATTER_MAX",
    "min": "SCATTER_MIN",
}
MODE = enum(MODES)
# subtraction adds the opposite, division multiplies by the inverse
INVERSE = {"SCATTER_SUB": ("add", "Neg"), "SCATTER_DIV": ("mul", "Reciprocal")}


class Mode(Field):
    """The reduction that combines updates with the data."""

    names = ("reduction",)
    keys = ("mode",)

    def lift(self, r: LiftContext) -> None:
        mode = r.attr("mode", str)
        if mode in INVERSE:
            r.node.attrs["reduction"], inverse = INVERSE[mode]
            r.node.inputs[2] = r.b.op(inverse, r.node.inputs[2])
        else:
            r.set(reduction=r.attr("mode", MODE))

    def lower(self, w: LowerContext) -> None:
        w.layer.attrs["mode"] = MODE.lower(w.attr("reduction"))


def reordered(r: LiftContext, order: list[int]) -> None:
    """Transpose the axes of the first input into this order for the operator, and back
    afterwards.
    """
    r.data = r.b.Transpose(r.data, perm=order)
    r.after_first(lambda y: r.b.Transpose(y, perm=inverse(order)))


def read_rows(r: LiftContext) -> None:
    """Read a scatter of rows along one axis, container[..., indices, ...] op= updates, as a
    ScatterND with that axis first; the indices get an additional axis.
    """
    b, (_, indices, updates) = r.b, r.inputs(3)
    rank, n = blobs.rank(r), blobs.rank(r.input(1))
    axis = r.axis("axis", rank)
    r.set_input(1, b.Unsqueeze(indices, [n]))
    if axis == 0:
        return
    front = [*range(axis, axis + n), *range(axis), *range(axis + n, rank + n - 1)]
    r.set_input(2, b.Transpose(updates, perm=front))
    reordered(r, [axis, *(i for i in range(rank) if i != axis)])


def write_rows(w: LowerContext) -> None:
    """Write a ScatterND of rows along axis 0, with the indices before their last axis of 1 was
    added.
    """
    rows = producer_operand(w.input(1), "Unsqueeze") or producer_operand(w.input(1), "Reshape")
    before, after = shape_of(rows), shape_of(w.input(1))
    if not before or after != (*before, 1):
        raise no_match("the indices must select whole rows")
    w.layer.inputs[1], w.layer.attrs["axis"] = rows, 0


SCATTERED_ROWS = Detail(read=read_rows, write=write_rows, keys=("axis",))


def read_on_off(r: LiftContext) -> None:
    """Read the two values."""
    values = [r.attr(key, float) for key in ("offValue", "onValue")]
    r.set_input(2, np.array(values, np.float32))


def write_on_off(w: LowerContext) -> None:
    """Write the values of OneHot as attributes."""
    off, on = w.numbers(2, "the values of OneHot").reshape(-1)
    w.set(offValue=float(off), onValue=float(on))


ON_OFF = Detail(read=read_on_off, write=write_on_off, keys=("offValue", "onValue"), inputs=(2,))


# slicing -----------------------------------------------------------------------------------------


def masks(values: Any, count: int) -> list[bool]:
    """Return one mask bit for each axis; missing ones are false, superfluous ones (coremltools pads
    to five axes) are ignored.
    """
    found = [bool(v) for v in values][:count]
    return found + [False] * (count - len(found))


def strided(
    r: LiftContext, begin: list[int], end: list[int], p: Mapping[str, list[Any]]
) -> tuple[list[list[int]], list[int]]:
    """[starts, ends, axes, steps] of the numpy slice, and the axes to remove.

    Masks mean "from the start" and "to the end" in the stride's direction. A squeezed axis selects
    the element at `begin` and is removed (except for the last remaining axis).
    """
    rank = blobs.rank(r)
    step = [int(s) for s in p["strides"]] or [1] * rank
    if not len(begin) == len(end) == len(step) == rank:
        counts = f"{len(begin)}, {len(end)}, {len(step)} elements for {rank} axes"
        raise MappingError(
            f"begin, end and strides must have one element per axis, got {counts}", "R110"
        )
    kinds = (masks(p[k], rank) for k in ("beginMasks", "endMasks", "squeezeMasks"))
    pieces: list[tuple[int, int, int, int]] = []
    gone = []
    for i, (from_start, to_end, squeezed) in enumerate(zip(*kinds, strict=True)):
        start, stop, s = begin[i], end[i], step[i]
        if squeezed:
            stop, s = start + 1 if start != -1 else LAST, 1
            gone.append(i)
        else:
            start = (0 if s > 0 else LAST) if from_start else start
            stop = (LAST if s > 0 else FIRST) if to_end else stop
        if (start, stop, s) != (0, LAST, 1):
            pieces.append((start, stop, i, s))
    return [list(c) for c in zip(*pieces, strict=True)], gone[1:] if len(gone) == rank else gone


def read_strided(r: LiftContext) -> None:
    """The numpy slice of `beginIds`, `endIds` and `strides` <-> constant operands."""
    begin, end = r.attr("beginIds", list), r.attr("endIds", list)
    pieces, gone = strided(r, begin, end, r.layer.attrs)
    r.set_inputs(*r.node.inputs, *pieces)
    if not pieces:
        r.alias(r.data)
    r.after_first(lambda y: blobs.squeeze(r.b, y, gone))


def write_strided(w: LowerContext) -> None:
    """Write a Slice whose limits are constant."""
    starts, ends, axes, steps = limits(w)
    if starts is None or ends is None or steps is None:
        raise no_match("the limits must be known at conversion time")
    size, rank = w.dims(w.data), w.rank()
    parts = zip(axes, starts, ends, steps, strict=True)
    w.set(**static_slice(size or [None] * rank, {a % rank: (s, e, d) for a, s, e, d in parts}))


STRIDED = Detail(
    read=read_strided,
    write=write_strided,
    keys=("beginIds", "endIds", "strides", "beginMasks", "endMasks", "squeezeMasks"),
    inputs=(1, 2, 3, 4),
)


def limits(w: LowerContext) -> Any:
    """Return starts, ends, axes and steps of a Slice; None for those known only at run time."""
    if 0 in (shape_of(w.out) or ()):
        raise MappingError("a Slice without elements is not supported")
    starts, ends = w.known(1), w.known(2)
    count = len(starts or ends or [])
    axes = w.known(3) if w.has(3) else list(range(count))
    if axes is None:
        raise MappingError("the axes of a Slice must be constant")
    steps = w.known(4) if w.has(4) else [1] * len(axes)
    return starts, ends, axes, steps


def lift_dynamic(r: LiftContext) -> Value:
    """begin is input 1; end, strides and the masks are further inputs or parameters. Masks that
    squeeze must be known.

    coremltools gives strides and masks for five axes if the rank is unknown: those beyond the last
    axis have no effect.
    """
    x, b, p = r.input(0), r.b, dict(r.layer.attrs)
    rank = blobs.rank(x)
    given: dict[str, Value] = {}
    for index, key in enumerate(("strides", "beginMasks", "endMasks", "squeezeMasks"), 3):
        if index < len(r.layer.inputs):
            found = known(r.input(index))
            if found is not None:
                p[key] = found.reshape(-1).astype(np.int64).tolist()
            elif key == "squeezeMasks":
                message = "squeezeMasks must be known without running the network"
                raise MappingError(f"{message}, because they determine the rank")
            else:
                given[key] = _first(r, blobs.vector(b, r.input(index)), rank)
    p["strides"] = p["strides"][:rank]
    begin = r.input(1)
    end = r.input(2) if len(r.layer.inputs) > 2 else b.const(r.attr("endIds", list))
    ends = [known(v) for v in (begin, end)]
    if None in [v if v is None else True for v in ends] or given:
        return _computed(r, blobs.vector(b, begin), blobs.vector(b, end), p, given)
    first, last = (np.asarray(v).reshape(-1).astype(np.int64).tolist() for v in ends)
    pieces, gone = strided(r, first, last, p)
    return blobs.squeeze(b, b.Slice(x, *pieces) if pieces else x, gone)


def _first(r: LiftContext, values: Value, count: int) -> Value:
    size = blobs.dims(values)[0]
    return values if size is not None and size <= count else r.b.Slice(values, [0], [count])


def _computed(
    r: LiftContext, begin: Value, end: Value, p: dict[str, list[Any]], given: dict[str, Value]
) -> Value:
    """Write a slice with computed limits; masks without any bit set are omitted."""
    x, b = r.input(0), r.b
    rank = blobs.rank(x)
    gone = np.array(masks(p["squeezeMasks"], rank))
    steps = np.array([int(s) for s in p["strides"]] or [1] * rank, np.int64)
    step = given.get("strides") or b.const(steps)
    if gone.any():
        step = b.Where(gone, 1, step)
    forward = b.Greater(step, 0)

    def opened(key: str, value: Value, ahead: int, back: int) -> Value:
        fixed = np.array(masks(p[key], rank)) & ~gone
        mask: ir.Value = b.const(fixed)
        if key in given:
            mask = blobs.bools(b, given[key]) & b.const(~gone)
        elif not fixed.any():
            return value
        return b.Where(mask, b.Where(forward, ahead, back), value)

    begin, end = opened("beginMasks", begin, 0, FAR), opened("endMasks", end, FAR, -FAR)
    if gone.any():
        after = b.Where(b.Equal(begin, -1), FAR, begin + 1)
        end = b.Where(gone, after, end)
    y = b.Slice(x, begin, end, list(range(rank)), step)
    axes = np.flatnonzero(gone).tolist()
    if y.shape is not None:  # one element, for any begin
        y.shape = ir.Shape([1 if i in axes else d for i, d in enumerate(y.shape)])
    return blobs.squeeze(b, y, axes[1:] if len(axes) == rank else axes)


def lower_dynamic(w: LowerContext) -> None:
    """Write a Slice whose bounds are known only at run time: bounds for all axes, with masks for
    the axes that are not sliced.
    """
    rank, (_, ends, axes, steps) = w.rank(), limits(w)
    axes = [int(a) % rank for a in axes] or list(range(rank))
    masked = [i not in axes for i in range(rank)]
    step = [int(steps[axes.index(i)]) if i in axes and steps else 1 for i in range(rank)]
    last = list(masked)
    for i, a in enumerate(axes):
        last[a] = ends is not None and ends[i] >= FAR
    inputs = [w.data, *(_spread(w, i, axes, 0) for i in (1, 2))]
    if steps is None:
        inputs.append(_spread(w, 4, axes, 1))
    # masks for squeezing, even if they are all false, need another version
    w.put("sliceDynamic", *inputs, strides=step, beginMasks=masked, endMasks=last)


def _spread(w: LowerContext, index: int, axes: list[int], other: int) -> Value:
    """Extend bounds or steps for some axes to all axes; the others get `other`."""
    rank, found = w.rank(), w.known(index)
    if found is not None:
        every = range(rank)
        near = {a: min(max(v, -FAR), FAR) for a, v in zip(axes, found, strict=True)}
        return w.const([near.get(i, other) for i in every])
    if axes == list(range(rank)):
        return w.input(index)
    operands = ([other] * rank, axes, w.input(index))
    return w.emit("scatter", *operands, shape=[rank], axis=0, mode="SCATTER_UPDATE")


def lift_by_size(r: LiftContext) -> Value:
    """Lift a slice of constant size at an index that may be computed; negative ones count from the
    end.
    """
    x, b, size = r.input(0), r.b, r.attr("size", int)
    axis = r.axis("axis", blobs.rank(x))
    begin = b.Reshape(blobs.ints(b, r.input(1)), [1])
    at = known(begin)
    if at is not None:
        start = int(at[0])
        end = start + size if start >= 0 or start + size < 0 else LAST
        return b.Slice(x, [start], [end], [axis])
    length = b.Shape(x)[axis : axis + 1]
    first = b.Where(b.Less(begin, [0]), begin + length, begin)
    y = b.Slice(x, first, b.Add(first, [size]), [axis])
    if x.shape is not None:
        y.shape = ir.Shape([size if i == axis else d for i, d in enumerate(x.shape)])
    return y


def piece(r: LiftContext) -> None:
    """Slice one of the last three axes from `startIndex` to `endIndex`."""
    back = {"CHANNEL_AXIS": 3, "HEIGHT_AXIS": 2, "WIDTH_AXIS": 1}[r.attr("axis", str)]
    axis = blobs.rank(r, back) - back
    start, end = r.attr("startIndex", int), r.attr("endIndex", int)
    r.set_inputs(*r.node.inputs, [start], [end], [axis], [r.attr("stride", int) or 1])


def inner_part(r: LiftContext) -> None:
    """Crop the borders."""
    rank = blobs.rank(r, 2)
    top, left, bottom, right = borders(r.layer.attrs.get("cropAmounts"))
    ends = [-n if n else LAST for n in (bottom, right)]
    r.set_inputs(*r.node.inputs, [top, left], ends, [rank - 2, rank - 1])


def part_like(r: LiftContext) -> None:
    """Crop the first input to height and width of the second, from `offset` on."""
    rank, like = blobs.rank(r, 2), r.input(1)
    offset, size = r.attr("offset", list) or [0, 0], blobs.dims(like)[-2:]
    if (len(offset), len(size)) != (2, 2):
        message = (
            f"offset={offset} with an input of rank {len(size)} does not crop height and width"
        )
        raise MappingError(message, "R105")
    ends: Any = [o + int(n or 0) for o, n in zip(offset, size, strict=True)]
    if None in size:
        ends = r.b.Add(r.b.Shape(like, start=-2), offset)
    r.set_inputs(r.data, offset, ends, [rank - 2, rank - 1])


def backwards(r: LiftContext) -> None:
    """Set the inputs of a Slice that reverses the flagged axes; without any, it is an Identity."""
    axes = [i for i, flag in enumerate(r.attr("reverseDim", list)) if flag]
    n = len(axes)
    r.set_inputs(*r.node.inputs, [-1] * n, [FIRST] * n, axes, [-1] * n)
    if not axes:
        r.alias(r.b.Identity(r.data))


def windows(r: LiftContext) -> None:
    """Split an axis into windows: [..., L, ...] -> [..., M, W, ...], M windows of W elements, one
    every `step`.
    """
    b, x, width, step = r.b, r.input(0), r.attr("windowSize", int), r.attr("step", int) or 1
    axis = r.axis("axis", blobs.rank(x))
    length, offsets = blobs.dims(x)[axis], arange(width)
    r.set(axis=axis)
    if length is not None:
        starts: ir.Value = b.const(arange(0, length - width + 1, step)[:, None] + offsets)
    else:
        size = b.Squeeze(b.Shape(x)[axis : axis + 1], [0])
        first = b.Range(0, size - (width - 1), step)
        starts = b.Unsqueeze(first, [1]) + b.const(offsets)
    r.set_input(1, starts)


def read_batch_and_sequence(r: LiftContext) -> None:
    """Read the first n elements of each batch along the sequence axis; ONNX requires the two axes
    first.
    """
    rank = blobs.rank(r)
    batch, time = (r.axis(key, rank) for key in ("batchAxis", "sequenceAxis"))
    if {batch, time} != {0, 1}:
        reordered(r, [batch, time, *(i for i in range(rank) if i not in (batch, time))])
        batch, time = 0, 1
    r.set(batch_axis=batch, time_axis=time)


def write_batch_and_sequence(w: LowerContext) -> None:
    """Write the axes of a ReverseSequence; the batch must come first."""
    batch, time = (int(w.attr(name)) for name in ("batch_axis", "time_axis"))
    if batch > time:
        raise MappingError("the batch axis must come before the time axis")
    w.set(batchAxis=batch, sequenceAxis=time)


BATCH_AND_SEQUENCE = Detail(
    read=read_batch_and_sequence,
    write=write_batch_and_sequence,
    names=("batch_axis", "time_axis"),
    keys=("batchAxis", "sequenceAxis"),
)


DATA, INDICES = any_type(0), of_type(1)
AXIS = Attr("axis", kind=int)
ONE_HOT = (of_type(0), ConstOrInput(1, "oneHotVectorSize", shape=(1,)), ON_OFF, AXIS)
CROPPED = ignore("cropAmounts", "offset")
NO_TEXT = Guard(
    "strings are not supported by Core ML",
    lambda w: w.data.dtype != ir.DataType.STRING,
)

RULES: list[Rule | Custom] = [
    custom("Gather", "embeddingND", lift_embedding_nd, lower_embedding),
    custom("", "embedding", lift_embedding),
    op("Gather", "gather", NO_TEXT, DATA, INDICES, AXIS, Detail(write=squeeze_index_axis)),
    op("GatherND", "gatherND", DATA, INDICES, RequireAttr("batch_dims", 0), KEEP_ONE_AXIS),
    op(
        "GatherElements",
        "gatherAlongAxis",
        SAME_SIZES,
        DATA,
        INDICES,
        AXIS,
        example_inputs="2,3 =i64:2,1",
    ),
    op(
        "ScatterND",
        "scatter",
        INDICES,
        Mode(),
        SCATTERED_ROWS,
        example_inputs="4,3 Unsqueeze(=i64:2;=[1]) 2,3",
    ),
    op("ScatterND", "scatterND", INDICES, Mode()),
    op(
        "ScatterElements",
        "scatterAlongAxis",
        SAME_SIZES,
        INDICES,
        Mode(),
        AXIS,
        example_inputs="2,3 =i64:2,1 2,1",
    ),
    op("OneHot", "oneHot", NOT_NEGATIVE, *ONE_HOT, example_inputs="=i64:2,3 =i64:[7] =[0,1]"),
    op("netconv::OneHotFromFront", "oneHot", *ONE_HOT, example_inputs="i64:2,3 =i64:[7] =[0,1]"),
    op("Slice", "sliceStatic", ANY, STRIDED),
    custom("Slice", "sliceDynamic", lift_dynamic, lower_dynamic),
    custom("", "sliceBySize", lift_by_size),
    op(
        "Slice",
        "slice",
        ANY,
        ignore("startIndex", "endIndex", "stride", "axis"),
        before_lift=piece,
        lift_only=True,
    ),
    op("Slice", "crop", ANY, ONE, CROPPED, before_lift=inner_part, lift_only=True),
    op("Slice", "crop", ANY, SEVERAL, CROPPED, before_lift=part_like, lift_only=True),
    op("Slice", "reverse", ANY, ignore("reverseDim"), before_lift=backwards, lift_only=True),
    op(
        "Gather",
        "slidingWindows",
        ANY,
        ignore("axis", "windowSize", "step"),
        before_lift=windows,
        lift_only=True,
    ),
    op(
        "ReverseSequence",
        "reverseSeq",
        InputType((1,), flat=True),
        BATCH_AND_SEQUENCE,
        example_inputs="2,3 i64:2",
    ),
]
