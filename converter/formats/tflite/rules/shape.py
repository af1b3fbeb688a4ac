"""Reshaping, transposing, joining, splitting, padding, slicing, and moving blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.lite.elementwise import number
from converter.formats.lite.shape import PACK, RANK
from converter.formats.tflite.rules.context import (
    LARGEST,
    TENSOR_INT32,
    TENSOR_INT64,
    Dims,
    LiftContext,
    LowerContext,
    dims_of,
)
from converter.formats.tflite.rules.fields import (
    Int64Operand,
    OneScale,
    axes_of,
    axis_of,
    constant_of,
    data,
    one_axis,
)
from converter.graph.demands import at_least, shaped
from converter.graph.infer import Array, known, rank_of, shape_of
from converter.graph.known import may_copy
from converter.graph.sizes import mirrored
from converter.graph.value import Value, operand
from converter.mapping.concepts.axes import Axis, Permutation
from converter.mapping.concepts.pads import Pads
from converter.mapping.concepts.parts import complete_sizes
from converter.mapping.fields import Attr, Detail, Field, Guard, RequireAttr, RequireKey, ignore
from converter.mapping.rules import Custom, Rule, custom, op, ops

LARGE, SMALL = np.iinfo(np.int64).max, np.iinfo(np.int64).min + 1


# reshape and transpose ---------------------------------------------------------------------------


def read_shape(r: LiftContext) -> None:
    """Read the shape, an input or an option; 0 means a size of 0."""
    given = r.optional(1)
    if given is None:
        given = constant_of(r, r.attr("new_shape", list, []), "shape")
    if rank_of(given) == 0:
        given = r.b.Reshape(given, [1])
    array = known(given)
    if array is not None and 0 in array and -1 not in array:
        r.set(allowzero=1)
    r.set_inputs(data(r), r.whole(given))


def write_shape(w: LowerContext) -> None:
    """Write the target shape; operand and result share one scale."""
    w.place(1, wanted_shape(w))
    w.one_scale()


WANTED_SHAPE = Detail(
    read=read_shape, write=write_shape, names=("allowzero",), inputs=(1,), keys=("new_shape",)
)


def wanted_shape(t: LowerContext) -> ir.Value:
    """Return the shape of the result as RESHAPE takes it: at most one -1, and 0 is a size of 0."""
    out = t.node.outputs[0]
    found = None if out.shape is None else dims_of(out)
    if found is not None and found.count(None) < 2 and (0 not in found or None not in found):
        return t.int32([-1 if n is None else n for n in found], "shape")
    value = t.optional(1)
    given = known(value)
    if value is None or t.node.op != "Reshape":
        raise MappingError("the sizes of the result are unknown", "X203")
    if given is None and (t.attr("allowzero", 0) or not may_copy(value)):
        return small(t, value)
    if given is not None and 0 not in given:
        return t.int32(given, "shape")
    raise MappingError("sizes that are copied from the input are not supported")


def small(t: LowerContext, value: ir.Value, largest: bool = False) -> ir.Value:
    """Return indices or sizes as int32; with `largest` larger numbers are clamped."""
    return t.indices(value, largest)


def write_out_shape(w: LowerContext) -> None:
    """Write the shape of the result, for operators that are reshapes."""
    w.place(1, wanted_shape(w))
    w.one_scale()


OUT_SHAPE = Detail(write=write_out_shape, names=("axis",), inputs=(1,))


def read_squeezed_axes(r: LiftContext) -> None:
    """Read the axes of length 1 to remove; all of them if none are listed."""
    if axes := r.attr("squeeze_dims", list):
        r.set_input(1, constant_of(r, axes, "axes"))


def write_squeezed_axes(w: LowerContext) -> None:
    """Write the axes of a Squeeze, not negative; operand and result share one scale."""
    axes = w.ints(1, "the axes", [])
    w.layer.attrs["squeeze_dims"] = [a % max(1, w.rank()) for a in axes]
    w.one_scale()


SQUEEZED_AXES = Detail(
    read=read_squeezed_axes, write=write_squeezed_axes, inputs=(1,), keys=("squeeze_dims",)
)


def read_added_axis(r: LiftContext) -> None:
    """Reshape the axis to a vector."""
    r.node.inputs[1] = r.b.Reshape(r.whole(1), [-1])


def write_added_axis(w: LowerContext) -> None:
    """Write the axis of an Unsqueeze. Raises MappingError unless it is one."""
    axes = w.ints(1, "the axes")
    if len(axes) != 1:
        raise MappingError("one axis must be added")
    w.place(1, w.int32(axes[0], "axis"))
    w.one_scale()


ADDED_AXIS = Detail(read=read_added_axis, write=write_added_axis, inputs=(1,))


class JoinedAxis(Axis):
    """The axis of a concatenation."""

    def lower(self, w: LowerContext) -> None:
        super().lower(w)
        # of quantized types only uint8 is rescaled to a common scale
        first = w.data.dtype if not w.quantized else w.real(w.data).dtype
        if first != ir.DataType.UINT8:
            w.one_scale()


def unpacked(r: LiftContext) -> list[ir.Value]:
    """Return the slices of size 1 along an axis, which is removed."""
    axis, count = r.attr("axis", int), r.attr("num", int)
    outputs = len(r.operator.outputs)
    if outputs != count:
        raise MappingError(f"{count} parts are declared for {outputs} outputs", "R105")
    return [r.b.Gather(data(r), i, axis=axis) for i in range(outputs)]


# split -------------------------------------------------------------------------------------------


def read_equal_parts(r: LiftContext) -> None:
    """Read the inputs [axis, data]; the number of parts is an option."""
    x = r.input(1)
    r.node.attrs |= {
        "axis": one_axis(r, 0, r.rank(x)),
        "num_outputs": r.attr("num_splits", int),
    }
    r.set_inputs(x)


def write_equal_parts(w: LowerContext) -> None:
    """Write the axis and the number of parts, which must have one known size."""
    axis, count = axis_of(w), len(w.node.outputs)
    parts = {dims_of(v)[axis] for v in w.node.outputs}
    if len(parts) > 1 or None in parts:
        raise no_match("the parts must have one size")
    w.layer.inputs = [w.int32(axis, "axis"), w.data]
    w.layer.attrs["num_splits"] = count
    w.one_scale()


EQUAL_PARTS = Detail(
    read=read_equal_parts,
    write=write_equal_parts,
    names=("axis", "num_outputs"),
    inputs=(1,),
    keys=("num_splits",),
)


def read_listed_parts(r: LiftContext) -> None:
    """Read the inputs [data, sizes, axis]; one of the sizes may be -1: the rest of the axis."""
    x = data(r)
    axis = r.node.attrs["axis"] = one_axis(r, 2, r.rank(x))
    r.set_inputs(x, complete_sizes(r, x, r.whole(1), axis))


def write_listed_parts(w: LowerContext) -> None:
    """Write the sizes of the parts. Raises MappingError X203 if they are not known."""
    axis = axis_of(w)
    parts = [dims_of(v)[axis] for v in w.node.outputs]
    if None in parts and not w.has(1):
        raise MappingError("the sizes of the parts must be known", "X203")
    lengths = small(w, w.input(1)) if None in parts else w.int32(parts, "sizes")
    w.layer.inputs = [w.data, lengths, w.int32(axis, "axis")]
    w.layer.attrs["num_splits"] = len(parts)
    w.one_scale()


LISTED_PARTS = Detail(
    read=read_listed_parts,
    write=write_listed_parts,
    names=("axis", "num_outputs"),
    inputs=(1,),
    keys=("num_splits",),
)


# pads --------------------------------------------------------------------------------------------


class Paddings(Pads):
    """Pairs (before, after) of padding amounts for each axis."""

    computed = True

    def read(self, r: LiftContext) -> ir.Value:
        return r.whole(r.b.Reshape(r.b.Transpose(r.input(1), perm=[1, 0]), [-1]))

    def write(self, w: LowerContext, before: list[int], after: list[int]) -> None:
        w.one_scale()
        w.place(1, w.int32(np.array([before, after]).T, "paddings"))

    def write_computed(self, w: LowerContext, amounts: ir.Value) -> None:
        w.one_scale()
        rank = w.rank()
        halves = w.emit("RESHAPE", small(w, amounts), w.int32([2, rank]), shape=[2, rank])
        w.place(1, w.emit("TRANSPOSE", halves, w.int32([1, 0]), shape=[rank, 2]))


class Zeros(Field):
    """A padding value of zero, which is the zero point for quantized values."""

    inputs = (2,)

    def lower(self, w: LowerContext) -> None:
        value = number(w.input(2)) if w.has(2) else 0.0
        if value != 0 or np.signbit(value):
            raise no_match("the padding value must be 0")


class PadValue(Field):
    """The value of constant padding."""

    inputs = (2,)

    def lift(self, r: LiftContext) -> None:
        value = r.optional(2)
        if value is not None:
            r.node.inputs[2] = r.b.Reshape(value, [])

    def lower(self, w: LowerContext) -> None:
        value = w.input(2)
        found = number(value)
        if found is not None:
            value = w.like(w.real(w.data), found)
        elif w.quantized:
            raise MappingError("the padding value must be constant")
        w.place(2, value)


class Symmetric(Field):
    """Symmetric padding, which mirrors the data with the border element: a Gather for each axis."""

    names = ("axis",)
    inputs = (1,)

    def lift(self, r: LiftContext) -> None:
        shape = r.static(data(r))
        given = np.array(r.ints(1, "the padding"))
        pairs = shaped(given, len(shape), 2, what="the padding").tolist()
        at_least(0, padding=given.tolist())
        axes = [i for i, pair in enumerate(pairs) if any(pair)] or [0]
        orders = [mirrored(shape[i], *pairs[i]) for i in axes]
        for axis, order in zip(axes[:-1], orders, strict=False):
            r.data = r.b.Gather(data(r), order, axis=axis)
        r.node.inputs[1] = r.b.const(orders[-1])
        r.set(axis=axes[-1])


def read_dilations(r: LiftContext) -> None:
    """Insert `n - 1` times a value between two elements of an axis that is dilated by n: it is
    added after each element, and then cut off after the last one.
    """
    b, x, steps = r.b, data(r), r.ints(1, "the dilations")
    rank, value = r.rank(x), b.Reshape(r.input(2), [])
    if len(steps) != rank or min(steps, default=1) < 1:
        raise MappingError(f"the dilations {steps} do not fit {rank} axes", "R105")
    axes = [i for i, n in enumerate(steps) if n > 1]
    if not axes:
        r.forwarded = [b.Identity(x)]
        return
    joint = insert_gaps(r, x, steps, axes, value)
    r.set_inputs(joint, [0] * len(axes), [1 - steps[i] for i in axes], axes)


def insert_gaps(r: LiftContext, x: Value, steps: list[int], axes: list[int], value: Value) -> Value:
    """Insert `n - 1` times a value after each element of the axes that are dilated by n."""
    b = r.b
    after = [i + 1 + k for k, i in enumerate(axes)]  # a new axis after each that is dilated
    pads = np.zeros((2, len(steps) + len(axes)), np.int64)
    pads[1, after] = [steps[i] - 1 for i in axes]
    apart = b.Pad(b.Unsqueeze(x, after), pads.reshape(-1), value)
    return b.Reshape(apart, b.Shape(x) * np.array(steps, np.int64), allowzero=1)


DILATIONS = Detail(read=read_dilations)


# slices ------------------------------------------------------------------------------------------


MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def read_ranges(r: LiftContext) -> None:
    """Starts, ends, axes and steps of a Slice <-> begin and end of all axes, with masks for those
    that are omitted. Further masks denote an ellipsis, a new axis, and a single index whose axis is
    removed.
    """
    begin, end, steps = read_bounds(r)
    begins, ends, ellipsis, new, shrinks = read_masks(r, len(steps))
    axes, added = axes_of_ranges(r.rank(), ellipsis, new, shrinks)
    kept = np.flatnonzero(~(ellipsis | new))
    gone = axes[kept][shrinks[kept]]
    if len(kept):
        first, last = (r.b.Gather(v, kept, axis=0) for v in (begin, end))
        first, last = apply_masks(
            r, first, last, *(v[kept] for v in (begins, ends, shrinks, steps))
        )
        r.set_inputs(data(r), first, last, axes[kept], np.where(shrinks, 1, steps)[kept])
    else:
        r.forwarded = [data(r)]
    r.after_first(lambda y: r.b.Squeeze(y, gone) if len(gone) else y)
    r.after_first(lambda y: r.b.Unsqueeze(y, added) if len(added) else y)


def read_bounds(r: LiftContext) -> tuple[Value, Value, Array]:
    """Return begins and ends, which may be computed, and steps."""
    steps, begin, end = np.array(r.ints(3, "the strides")), r.whole(1), r.whole(2)
    if 0 in steps or not shape_of(begin) == shape_of(end) == steps.shape:
        raise MappingError(
            "begins, ends and strides must have the same length, and no stride may be 0", "R105"
        )
    return begin, begin + end if r.attr("offset", bool) else end, steps


def read_masks(r: LiftContext, count: int) -> tuple[Array, ...]:
    """Return each mask as a boolean for each range; an ellipsis is no new axis."""
    begins, ends, ellipsis, new, shrinks = (
        np.array([r.attr(k, int) >> i & 1 for i in range(count)], bool) for k in MASKS
    )
    return begins, ends, ellipsis, new & ~ellipsis, shrinks


def axes_of_ranges(rank: int, ellipsis: Array, new: Array, shrinks: Array) -> tuple[Array, Array]:
    """Return the axis of the data for each range, and the new axes of the result."""
    count = np.count_nonzero(~(ellipsis | new))
    between = rank - count  # number of axes covered by an ellipsis
    if between < 0 or ellipsis.sum() > 1:
        message = f"{count} ranges and {ellipsis.sum()} ellipses do not fit {rank} axes"
        raise MappingError(message, "R105")
    axes = exclusive_sum(np.where(ellipsis, between, ~new))
    return axes, exclusive_sum(np.where(ellipsis, between, new | ~shrinks))[new]


def apply_masks(
    r: LiftContext,
    first: Value,
    last: Value,
    begins: Array,
    ends: Array,
    shrinks: Array,
    steps: Array,
) -> tuple[Value, Value]:
    """Apply the masks to starts and ends: those omitted reach the border, and a range whose axis is
    removed has one element.
    """
    first = r.b.Where(begins & ~shrinks, np.where(steps > 0, 0, LARGE), first)
    after = r.b.Where(r.b.Equal(first, -1), LARGE, first + 1)
    last = r.b.Where(ends, np.where(steps > 0, LARGE, SMALL), last)
    return first, r.b.Where(shrinks, after, last)


def write_ranges(w: LowerContext) -> None:
    """Write a Slice as STRIDED_SLICE: begins, ends and strides of all axes, and the masks."""
    order, strides = axes_and_strides(w)
    rank, sizes = len(strides), dims_of(w.data)
    least = [-n if n is not None and s < 0 else -LARGE for n, s in zip(sizes, strides, strict=True)]
    starts, begins = bounds(w, 1, order, rank, [least[axis] for axis in order])
    ends, ending = bounds(w, 2, order, rank)
    w.place(1, begins)
    w.place(2, ending)
    w.place(3, w.int32(strides, "strides"))
    w.layer.attrs |= masks_of(order, strides, sizes, starts, ends)
    w.one_scale()


def axes_and_strides(w: LowerContext) -> tuple[list[int], list[int]]:
    """Return the axis of each range, and the strides of all axes."""
    rank = w.rank()
    count = w.static(1, "the starts")[0]
    order = [a % rank for a in w.ints(3, "the axes", range(count))]
    steps = w.ints(4, "the steps", [1] * count)
    strides, sizes = [1] * rank, dims_of(w.data)
    for axis, step in zip(order, steps, strict=True):
        strides[axis] = bounded(step, sizes[axis])
    return order, strides


def masks_of(
    order: Sequence[int], strides: Sequence[int], sizes: Dims, starts: Any, ends: Any
) -> dict[str, int]:
    """Return the masks of axes whose ranges begin with the first element, or end after the last.

    `starts`, `ends`: of the axes in `order`, None where they are computed.
    """
    begin_mask = end_mask = (1 << len(strides)) - 1
    for place, axis in enumerate(order):
        step, size = strides[axis], sizes[axis]
        first, last = (None if v is None else int(v[place]) for v in (starts, ends))
        if first is None or not from_the_end(first, step, size):
            begin_mask &= ~(1 << axis)
        if last is None or not to_the_end(last, step, size):
            end_mask &= ~(1 << axis)
    return {"begin_mask": begin_mask, "end_mask": end_mask}


RANGES = Detail(read=read_ranges, write=write_ranges, inputs=(1, 2, 3, 4), keys=(*MASKS, "offset"))


def exclusive_sum(counts: Array) -> Array:
    """Return the sum of the counts before each position."""
    return np.asarray(np.cumsum(counts) - counts)


def bounded(step: int, size: int | None) -> int:
    """Limit a step to the length of the axis, which selects the same elements: kernels do not
    support -2^31.
    """
    most = LARGEST if size is None else max(1, size)
    if size is None and abs(step) > LARGEST:
        raise MappingError(f"step {step} along an axis of unknown size is not supported", "X204")
    return max(-most, min(step, most))


def from_the_end(first: int, step: int, size: int | None) -> bool:
    """Return whether a range includes the first element in its direction."""
    if step > 0:
        return first == 0 or (size is not None and first <= -size)
    return first >= LARGEST or (size is not None and first >= size - 1) or first == -1


def to_the_end(last: int, step: int, size: int | None) -> bool:
    """Return whether a range includes the last element in its direction."""
    if step > 0:
        return last >= LARGEST or (size is not None and last >= size)
    return last <= -LARGEST or (size is not None and last < -size)


def bounds(
    t: LowerContext, index: int, order: Sequence[int], rank: int, least: Sequence[int] = (-LARGE,)
) -> tuple[Any, ir.Value]:
    """Return starts or ends (None where computed), and a vector of them for all axes; 0 for axes
    without a range.

    `least`: the lower bound of known ones, since a backward range begins with the first element in
    ONNX where the kernel finds none.
    """
    value = t.input(index)
    array = known(value)
    if array is not None:
        array = np.maximum(array.reshape(-1).astype(np.int64), least)
        line = np.zeros(rank, np.int64)
        line[list(order)] = np.clip(array.reshape(-1), -LARGEST, LARGEST)
        return array.reshape(-1), t.int32(line, "bounds")
    computed = small(t, value, largest=True)
    if list(order) == list(range(rank)):
        return None, computed
    parts = []
    for axis in range(rank):
        if axis in order:
            place = t.int32([order.index(axis)])
            parts.append(t.emit("SLICE", computed, place, t.int32([1]), shape=[1]))
        else:
            parts.append(t.int32([0]))
    return None, t.emit("CONCATENATION", *parts, shape=[rank], axis=0)


def write_begin_and_size(w: LowerContext) -> None:
    """Write known bounds without steps as begin and size of all axes."""
    rank = w.rank()
    starts, ends = w.ints(1, "the starts"), w.ints(2, "the ends")
    axes = w.ints(3, "the axes", range(len(starts)))
    if w.has(4) and set(w.ints(4, "the steps")) > {1}:
        raise no_match("only steps of 1 are supported")
    shape, begin, size = dims_of(w.data), [0] * rank, [-1] * rank
    for axis, first, last in zip(axes, starts, ends, strict=True):
        begin[axis % rank], size[axis % rank] = begin_and_size(first, last, shape[axis % rank])
    w.place(1, w.int32(begin, "begin"))
    w.place(2, w.int32(size, "size"))
    w.one_scale()


def begin_and_size(first: int, last: int, length: int | None) -> tuple[int, int]:
    """Return begin and size of a range along an axis of some length."""
    if length is None:
        raise no_match("the axis must have a static size")
    begin, end, _ = slice(first, last).indices(length)
    return begin, max(0, end - begin)


BEGIN_AND_SIZE = Detail(write=write_begin_and_size, inputs=(1, 2, 3, 4))


def read_sizes(r: LiftContext) -> None:
    """Convert starts and sizes of all axes (-1: all the rest) to the starts and ends of a Slice."""
    begin, size = r.whole(1), r.whole(2)
    sizes = known(size)
    if sizes is not None and (sizes == -1).all():
        r.set_inputs(data(r), begin, np.full(sizes.shape, LARGE))
    else:
        r.set_inputs(data(r), begin, r.b.Where(r.b.Equal(size, -1), LARGE, begin + size))


def write_sizes(w: LowerContext) -> None:
    """Write a Slice whose ends are computed from starts and sizes, as SLICE."""
    choice = w.input(2).producer()
    if w.has(3) or choice is None or choice.op_type != "Where":
        raise no_match("ends must be starts plus sizes, or the end of the axis")
    size = chosen_sizes(w, choice)
    w.place(1, small(w, w.input(1)))
    w.place(2, small(w, size))


def chosen_sizes(w: LowerContext, choice: ir.Node) -> ir.Value:
    """Return the sizes of ends that are a choice between the last one and starts + sizes."""
    test, largest, end = (operand(choice, i) for i in range(3))
    equal, total = test.producer(), end.producer()
    if equal is None or total is None or (equal.op_type, total.op_type) != ("Equal", "Add"):
        raise no_match("ends must be starts plus sizes, or the end of the axis")
    size, left, most = operand(equal), known(equal.inputs[1]), known(largest)
    if left is None or (left != -1).any() or most is None or (most < LARGEST).any():
        raise no_match("ends must be starts plus sizes, or the end of the axis")
    if not same(total.inputs[0], w.input(1)) or total.inputs[1] is not size:
        raise no_match("ends must be starts plus sizes, or the end of the axis")
    return size


ENDS_OF_SIZES = Detail(read=read_sizes, write=write_sizes, inputs=(1, 2, 3, 4))


def same(a: ir.Value | None, b: ir.Value) -> bool:
    """Return whether two values are one, or equal constants."""
    x, y = known(a), known(b)
    return a is b or (x is not None and y is not None and np.array_equal(x, y))


def without_steps(w: LowerContext) -> bool:
    """Return whether all steps are 1."""
    steps = known(w.optional(4))
    return not w.has(4) or (steps is not None and bool((steps == 1).all()))


def reversed_axes(r: LiftContext) -> None:
    """Set the inputs of a Slice that reverses the axes; without any, it is an Identity."""
    axes = axes_of(r, 1, r.rank(data(r)))
    n = len(axes)
    if axes:
        r.set_inputs(data(r), [-1] * n, [SMALL] * n, axes, [-1] * n)
    else:
        r.forwarded = [r.b.Identity(data(r))]


def leading_axes(r: LiftContext) -> None:
    """Transpose time and batch to the first two axes, as ONNX requires, and back."""
    (time, batch), rank = (r.node.attrs[k] for k in ("time_axis", "batch_axis")), r.rank(data(r))
    if time == batch or not (0 <= time < rank and 0 <= batch < rank):
        raise MappingError(f"axes {time} and {batch} do not fit rank {rank}", "R110")
    if {time, batch} != {0, 1}:
        order = [time, batch, *(i for i in range(rank) if i not in (time, batch))]
        r.data = r.transpose(data(r), order)
        r.set(time_axis=0, batch_axis=1)
        r.after_first(lambda y: r.transpose(y, [order.index(i) for i in range(rank)]))


# sizes -------------------------------------------------------------------------------------------


def joint_shape(r: LiftContext) -> None:
    """Return the broadcast shape of two shapes."""
    one = np.zeros(1, np.int64)
    r.set_inputs(r.b.Add(*(r.b.ConstantOfShape(r.whole(i), value=ir.Tensor(one)) for i in (0, 1))))


class SmallRepeats(Int64Operand):
    """Repeats or lengths, stored as int32."""

    def lower(self, w: LowerContext) -> None:
        w.place(1, small(w, w.input(1)))
        w.one_scale()


class ExpandShape(Int64Operand):
    """The shape of an Expand, whose sizes of 1 keep the sizes of the data."""

    def lower(self, w: LowerContext) -> None:
        found = shape_of(w.out)
        if found is not None:
            shape = w.int32(found, "shape")
        else:
            own = w.emit("SHAPE", w.data, dtype=INT32, shape=[w.rank()], out_type=TENSOR_INT32)
            wanted = small(w, w.input(1))
            shape = w.emit("BROADCAST_ARGS", own, wanted, shape=[None])
        w.place(1, shape)
        w.one_scale()


def write_shape_slice(w: LowerContext) -> None:
    """Write a Shape with 64 bits; a part of it is sliced after the operator."""
    w.layer.attrs["out_type"] = TENSOR_INT64
    rank = w.rank()
    first, last, _ = slice(w.attr("start", 0), w.attr("end", None)).indices(rank)
    if (first, last) != (0, rank):
        result = w.result("whole")
        result.shape = ir.Shape([rank])
        ends = w.int32([first]), w.int32([max(0, last - first)])
        w.after_emit(lambda: w.put("SLICE", result, *ends))


SHAPE_SLICE = Detail(write=write_shape_slice, names=("start", "end"))


def read_filled(r: LiftContext) -> None:
    """Read the inputs [shape, value]."""
    r.set_inputs(r.input(1), r.whole(0))


def write_filled(w: LowerContext) -> None:
    """Write the shape, and the value as a scalar."""
    value = w.attr("value", None)
    array = np.zeros(1, np.float32) if value is None else np.asarray(value)
    w.layer.inputs = [small(w, w.data), w.const(array.reshape(()))]


FILLED = Detail(read=read_filled, write=write_filled, names=("value",), inputs=(0,))


INT32 = ir.DataType.INT32


def single(r: LiftContext) -> None:
    """Return first element, last element and step of a range as scalars."""
    r.node.inputs = [r.b.Reshape(r.input(i), []) for i in range(3)]


def lower_count(w: LowerContext) -> None:
    """Write the product of all sizes."""
    rank = w.rank()
    shape = w.emit("SHAPE", w.data, dtype=ir.DataType.INT64, shape=[rank], out_type=TENSOR_INT64)
    w.put("REDUCE_PROD", shape, w.int32([0]), keep_dims=False)


# blocks ------------------------------------------------------------------------------------------


def amounts(r: LiftContext, what: str) -> Array:
    """Return pairs (before, after) at input 2 for the axes after the first that have blocks."""
    n, rank = len(r.ints(1, "the blocks")), r.rank(data(r))
    if n >= rank:
        raise MappingError(f"{n} blocks do not fit rank {rank}", "R105")
    return np.asarray(shaped(np.array(r.ints(2, what)), n, 2, what=what))


def blocks_of(r: LiftContext) -> Array:
    """Return the sizes of the blocks, which are at least 1."""
    blocks = r.ints(1, "the blocks")
    at_least(1, blocks=blocks)
    return np.array(blocks, np.int64)


def pads_after_first(pads: Array, rank: int) -> Array:
    """Return pairs (before, after) for the axes after the first as Pad takes them for all axes."""
    whole = np.zeros((rank, 2), np.int64)
    whole[1 : len(pads) + 1] = pads
    return whole.T.reshape(-1)


def blocks_into_batch(r: LiftContext) -> None:
    """Move the blocks of the axes after the first, padded with zeros, into the first axis, where
    they vary slower than the batch.
    """
    b, blocks, x, pads = r.b, blocks_of(r), r.data, amounts(r, "the padding")
    n, rank = len(blocks), r.rank(x)
    if pads.any():
        x = b.Pad(x, pads_after_first(pads, rank))
    shape = b.Shape(x)
    inner, rest = b.Gather(shape, np.arange(1, n + 1), axis=0) / blocks, shape[n + 1 :]
    columns = (b.Reshape(v, [-1, 1]) for v in (inner, blocks))
    pairs = b.Reshape(b.Concat(*columns, axis=1), [-1])
    x = b.Reshape(x, b.Concat(shape[:1], pairs, rest, axis=0))
    perm = [*range(2, 2 * n + 1, 2), 0, *range(1, 2 * n, 2), *range(2 * n + 1, rank + n)]
    r.set_inputs(b.Transpose(x, perm=perm), b.Concat([-1], inner, rest, axis=0))


def blocks_out_of_batch(r: LiftContext) -> None:
    """Split the first axis into blocks, join them to the axes after it, and crop these."""
    b, blocks, x, crops = r.b, blocks_of(r), r.data, amounts(r, "the crops")
    at_least(0, crops=crops.reshape(-1).tolist())
    n, rank, shape = len(blocks), r.rank(x), b.Shape(x)
    batch = shape[:1] / np.int64(math.prod(blocks))
    x = b.Reshape(x, b.Concat(blocks, batch, shape[1:], axis=0))
    pairs = [i for k in range(n) for i in (n + 1 + k, k)]
    x = b.Transpose(x, perm=[n, *pairs, *range(2 * n + 1, rank + n)])
    inner = b.Gather(shape, np.arange(1, n + 1), axis=0) * blocks
    r.set_inputs(x, b.Concat(batch, inner, shape[n + 1 :], axis=0))
    axes, ends = list(range(1, n + 1)), [-int(e) if e else LARGE for _, e in crops]
    if crops.any():
        r.after_first(lambda y: r.b.Slice(y, crops[:, 0], ends, axes))


ADDS_ONE = Guard(
    "only one axis of length 1 can be added",
    lower_if=lambda w: w.static(1, "the axes") == (1,),
)
BLOCKS = (Attr("blocksize", "block_size", int), OneScale())
STEPLESS = Guard("only steps of 1 are supported", lower_if=without_steps)
RULES: list[Rule | Custom] = [
    op("Reshape", "RESHAPE", WANTED_SHAPE),
    *ops("Flatten=RESHAPE", OUT_SHAPE, lower_only=True),
    op("Transpose", "TRANSPOSE", Permutation(1), OneScale()),
    op("Squeeze", "SQUEEZE", SQUEEZED_AXES),
    op("Unsqueeze", "EXPAND_DIMS", ADDS_ONE, ADDED_AXIS, example_inputs="2,3 =[1]"),
    op("Unsqueeze", "RESHAPE", OUT_SHAPE, lower_only=True, example_inputs="2,3 =[0,1]"),
    # no kernel of LiteRT applies the activation
    op("Concat", "CONCATENATION", JoinedAxis(), ignore("fused_activation_function")),
    PACK,
    custom("", "UNPACK", unpacked),
    op("Split", "SPLIT", EQUAL_PARTS),
    op("Split", "SPLIT_V", LISTED_PARTS, example_inputs="6,4 =[2,4] -> 2"),
    op("Pad", "PAD", RequireAttr("mode", "constant"), Paddings(), Zeros()),
    op(
        "Pad",
        "PADV2",
        RequireAttr("mode", "constant"),
        Paddings(),
        PadValue(),
        example_inputs="2,3 =[1,0,0,1] =(5)",
    ),
    op("Pad", "MIRROR_PAD", RequireAttr("mode", "reflect"), RequireKey("mode", 0), Paddings()),
    op("Gather", "MIRROR_PAD", RequireKey("mode", 1), Symmetric(), lift_only=True),
    op("Slice", "DILATE", DILATIONS, lift_only=True),
    op("Slice", "SLICE", STEPLESS, BEGIN_AND_SIZE, lower_only=True, example_inputs="4,6 =[1] =[4]"),
    op(
        "Slice",
        "SLICE",
        ENDS_OF_SIZES,
        example_inputs="4,6 =i64:[1,2] "
        f"Where(Equal(i64:2;=i64:[-1,-1]);=i64:[{LARGE},{LARGE}];Add($1;#1))",
    ),
    op("Slice", "STRIDED_SLICE", RANGES, example_inputs="4,6 =[1] =[4] =[1] =[2]"),
    op("Slice", "REVERSE_V2", before_lift=reversed_axes, lift_only=True),
    op(
        "ReverseSequence",
        "REVERSE_SEQUENCE",
        Attr("time_axis", "seq_dim", int),
        Attr("batch_axis", "batch_dim", int),
        SmallRepeats(),
        before_lift=leading_axes,
        example_inputs="4,3 =[1,2,3]",
    ),
    op("Shape", "SHAPE", SHAPE_SLICE, example_inputs="n,3"),
    custom("Size", "", lower=lower_count),
    RANK,
    op("Shape", "BROADCAST_ARGS", before_lift=joint_shape, lift_only=True),
    op("Tile", "TILE", SmallRepeats()),
    op("Expand", "BROADCAST_TO", ExpandShape()),
    op("Expand", "FILL", FILLED, lift_only=True),
    op("ConstantOfShape", "FILL", FILLED, lower_only=True, example_inputs="i64:2"),
    op("Range", "RANGE", before_lift=single, example_inputs="=i64:(0) Size(n,3) =i64:(1)"),
    op("DepthToSpace", "DEPTH_TO_SPACE", RequireAttr("mode", "DCR"), *BLOCKS),
    op("SpaceToDepth", "SPACE_TO_DEPTH", *BLOCKS),
    op("Reshape", "SPACE_TO_BATCH_ND", before_lift=blocks_into_batch, lift_only=True),
    op("Reshape", "BATCH_TO_SPACE_ND", before_lift=blocks_out_of_batch, lift_only=True),
]
