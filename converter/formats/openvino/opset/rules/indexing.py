"""Picking and placing elements by index."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.fields import BATCH_AND_TIME, SlicePlan, dim, leading_axes, words
from converter.formats.openvino.opset.rules.context import LiftContext, LowerContext, element_type
from converter.formats.openvino.opset.rules.fields import (
    IndexInput,
    NumberInput,
    computed,
    index_type,
    is_float,
)
from converter.formats.openvino.opset.rules.shape import MAX, MIN
from converter.graph.build import Builder
from converter.graph.demands import axis_of
from converter.graph.infer import Array, known, rank_of
from converter.graph.sizes import arange
from converter.mapping.codecs import Codec
from converter.mapping.fields import (
    Attr,
    AttrInput,
    Detail,
    Guard,
    InputType,
    RequireAttr,
    RequireKey,
    ignore,
)
from converter.mapping.rules import Custom, Rule, Table, custom, op

T = ir.DataType

# gathering ---------------------------------------------------------------------------------------


def gather_in_batch(r: LiftContext) -> None:
    """Gather with batch axes; the operator is the GatherND, whose batch axes come first."""
    x, indices, given = r.input(0), r.input(1), r.node.attrs["batch_dims"]
    n, k = r.rank(x), r.rank(indices)
    batch = given + k if given < 0 else given
    axis = axis_of(int(r.number(2, "the axis")), n)
    if not 0 < batch <= min(axis, k):
        raise MappingError(
            f"batch_dims={given} does not fit axis {axis} and indices of rank {k}", "R110"
        )
    perm = [*range(batch), axis, *(i for i in range(batch, n) if i != axis)]
    places = r.b.Unsqueeze(r.cast(indices, T.INT64), [-1])
    r.node.inputs, r.node.attrs["batch_dims"] = [r.transpose(x, perm), places], batch
    # batch, indices, the axes before the gathered one and after it -> batch, before, indices, after
    before = [*range(k, k + axis - batch)]
    order = [*range(batch), *before, *range(batch, k), *range(k + len(before), n + k - batch - 1)]
    r.after_first(lambda y: r.transpose(y, order))


def batch_axes_merged(r: LiftContext, y: ir.Value) -> ir.Value:
    """Merge the batch axes of the result of GatherND, as its first revision does."""
    batch = r.node.attrs["batch_dims"]
    if r.version >= 8 or batch < 2:
        return y
    return r.b.Reshape(y, r.b.Concat([-1], r.b.Shape(y, start=batch), axis=0))


# scattering --------------------------------------------------------------------------------------


def scatter_update(r: LiftContext) -> None:
    """Read ScatterUpdate as a ScatterND along axis 0; updates has the shape data[:axis] + indices +
    data[axis + 1:].
    """
    x, indices, updates = r.input(0), r.cast(r.input(1), T.INT64), r.input(2)
    n, k = r.rank(x), r.rank(indices)
    axis = axis_of(int(r.number(3, "the axis")), n)
    places = r.b.Unsqueeze(indices, [-1])
    if axis:
        perm = [*range(axis, axis + k), *range(axis), *range(axis + k, r.rank(updates))]
        updates = r.transpose(updates, perm)
        x = r.transpose(x, [axis, *(i for i in range(n) if i != axis)])
        back = [*range(1, axis + 1), 0, *range(axis + 1, n)]
        r.after_first(lambda y: r.transpose(y, back))
    r.set_inputs(x, places, updates)


REDUCTION = words("none", "min", "max", add="sum", mul="prod")
NEUTRAL = {"add": 0, "mul": 1, "min": 1, "max": -1}


def neutral(reduction: str, dtype: ir.DataType) -> float | int:
    """Return the neutral element of a reduction."""
    sign = NEUTRAL[reduction]
    if reduction in ("add", "mul"):
        return sign
    if dtype.is_floating_point():
        return sign * float("inf")
    if dtype == ir.DataType.BOOL:
        return int(sign > 0)
    info = np.iinfo(dtype.numpy())
    return int(info.max if sign > 0 else info.min)


def without_initial(r: LiftContext) -> None:
    """Replace the initial data, which do not count, by the neutral element."""
    x, reduction = r.input(0), r.node.attrs["reduction"]
    if reduction == "none":
        return
    assert x.dtype is not None
    start = filled_with(r, neutral(reduction, x.dtype), 2)
    axis, indices = r.node.attrs["axis"], r.node.inputs[1]
    r.data = r.b.ScatterElements(x, indices, start, axis=axis)


def filled_with(r: LiftContext, number: float, index: int) -> ir.Value:
    """Return a number in the type of the data and the shape of an operand."""
    return r.b.Expand(r.b.like(r.input(0), number), r.b.Shape(r.input(index)))


def mean_of_scattered(r: LiftContext) -> None:
    """The sum, divided by how many there are; the operator is the Div."""
    b, x, indices, updates = r.b, r.input(0), r.node.inputs[1], r.input(2)
    added: dict[str, Any] = {
        "axis": axis_of(r.ints(3, "the axis")[0], r.rank(x)),
        "reduction": "add",
    }
    if not is_float(x):
        raise MappingError("the mean of integers is not supported: its rounding is not specified")
    initial = r.attr("use_init_val", bool, True)
    start, count = x, filled_with(r, 1 if initial else 0, 0)
    if not initial:
        zeros = filled_with(r, 0, 2)
        start = b.ScatterElements(x, indices, zeros, axis=added["axis"])
    total = b.op("ScatterElements", start, indices, updates, **added)
    count = b.op("ScatterElements", count, indices, filled_with(r, 1, 2), **added)
    r.set_inputs(total, count if initial else b.Max(count, b.like(x, 1)))


def _along(r: LiftContext, b: Builder, axis: int) -> ir.Value:
    """Return the layer as if its axis were constant, created by `b`."""
    layer = replace(r.layer, inputs=[*r.layer.inputs[:3], b.const(axis)])
    return Table(SCATTER_ELEMENTS).lift(type(r)(layer, b, r.version, r.spelling))[0]


def each_axis(r: LiftContext) -> None:
    """Create one branch for each axis, if the axis is known only at run time; the operator is the
    If.
    """
    count = r.rank()
    wanted = r.reshape(r.cast(r.input(3), T.INT64), [])
    wanted = r.b.Mod(wanted, count)

    def chosen(b: Builder, axis: int) -> ir.Value:
        if axis == count - 1:
            return _along(r, b, axis)
        yes, no = b.body("axis"), b.body("other")
        yes.output(_along(r, yes, axis))
        no.output(chosen(no, axis + 1))
        is_this = b.Equal(wanted, axis)
        return b.If(is_this, then_branch=yes.graph, else_branch=no.graph)

    r.forwarded = [chosen(r.b, 0)]


class InitialCounts(RequireKey):
    """The initial data take part in a reduction; layers have a flag for this from opset12 on."""

    def __init__(self) -> None:
        super().__init__("use_init_val", True, absent=True, kind=bool)

    def lower(self, w: LowerContext) -> None:
        if w.version >= 12:
            super().lower(w)


def negated(r: LiftContext) -> None:
    """Negate the updates, so that a scatter that subtracts becomes one that adds."""
    updates = r.input(2)
    r.node.inputs[2] = r.b.like(updates, 0) - updates


# slices ------------------------------------------------------------------------------------------


def read_bounds(r: LiftContext) -> None:
    """Reorder the operands (data, starts, ends, steps, axes) to (data, starts, ends,
    axes, steps).
    """
    InputType((1, 2, 3, 4), flat=True).lift(r)
    x, starts, ends, steps, *axes = r.inputs(4, 5)
    r.set_inputs(x, starts, ends, axes[0] if axes else None, steps)


def write_bounds(w: LowerContext) -> None:
    """Write starts, ends and steps, 1 by default, and the axes if they are given."""
    starts, ends, axes, steps = (w.optional(i) for i in (1, 2, 3, 4))
    count = dim(w.input(1), 0)
    if steps is None and count is None:
        raise MappingError("the number of sliced axes is unknown")
    one = w.const([1] * (count or 0), "steps") if steps is None else steps
    bounds = [starts, ends, one] if axes is None else [starts, ends, one, axes]
    w.set_inputs(w.data, *(w.known(v) for v in bounds))


BOUNDS = Detail(read=read_bounds, write=write_bounds, inputs=(1, 2, 3, 4))


def strided_slice(r: LiftContext) -> ir.Value:
    """Apply the masks, then create a Slice, a Squeeze and an Unsqueeze."""
    none: list[int] = []
    more = {f"{k}_mask": none for k in ("new_axis", "shrink_axis", "ellipsis")}
    a, x, b = r.attributes(begin_mask=list, end_mask=list, **more), r.input(0), r.b
    bounds = [r.cast(r.input(i), T.INT64) for i in (1, 2)]
    begin, end = (v if rank_of(v) == 1 else r.reshape(v, [-1]) for v in bounds)
    lengths = {n for v in (begin, end) if (n := dim(v, 0)) is not None}
    if not lengths:
        raise MappingError("the number of sliced axes is unknown", "X203")
    count = min(lengths)
    steps = np.ones(count, np.int64) if r.optional(3) is None else known(r.optional(3))
    if steps is None:
        raise MappingError("the strides must be known at conversion time")
    if lengths | {steps.size} != {count}:
        raise MappingError("begin, end and strides must have the same length", "R105")
    masks = {k: ([*v, *[0] * count])[:count] for k, v in vars(a).items()}
    p = SlicePlan.of(count, r.rank(x), masks)
    y = _sliced(b, x, p, (begin, end), steps.reshape(-1), masks) if p.sliced else x
    y = b.Squeeze(y, p.shrunk) if p.shrunk else y
    y = b.Unsqueeze(y, p.new) if p.new else y
    return b.Identity(y) if y is x else y


def _sliced(
    b: Builder,
    x: ir.Value,
    p: SlicePlan,
    bounds: tuple[ir.Value, ir.Value],
    steps: Array,
    masks: dict[str, list[int]],
) -> ir.Value:
    axes, at = [axis for _, axis in p.sliced], [i for i, _ in p.sliced]
    marks = (np.array(masks[f"{k}_mask"], bool)[at] for k in ("begin", "end", "shrink_axis"))
    from_start, to_end, shrink = marks
    step = np.where(shrink, 1, steps[at])
    first, last = (
        b.Gather(v, at, axis=0) if array is None else array.reshape(-1)[at]
        for v, array in ((v, known(v)) for v in bounds)
    )

    def pick(mask: Any, yes: Any, no: Any) -> Any:
        """Select between numbers by a mask, as a constant if all of them are known."""
        if any(isinstance(v, ir.Value) for v in (mask, yes, no)):
            return b.Where(mask, yes, no)
        return np.where(mask, yes, no)

    if from_start.any():
        first = pick(from_start, np.where(step < 0, MAX, 0), first)
    if to_end.any():
        last = pick(to_end, np.where(step < 0, MIN, MAX), last)
    if shrink.any():
        is_last = b.Equal(first, [-1]) if isinstance(first, ir.Value) else first == -1
        last = pick(shrink, pick(is_last, MAX, first + 1), last)
    return b.Slice(x, first, last, axes, step)


def slice_scatter(r: LiftContext) -> None:
    """Read (data, updates, start, stop, step, axes); the operator is the last Reshape. Slicing the
    running numbers of the elements gives the indices of the updates.
    """
    InputType((2, 3, 4, 5), flat=True).lift(r)
    b, x, shape, flat = r.b, r.input(0), r.static(), [-1]
    _, updates, start, stop, step, *axes = r.inputs(5, 6)
    numbers = b.const(arange(int(np.prod(shape)), dtype=np.int64).reshape(shape))
    places = b.Slice(numbers, start, stop, axes[0] if axes else None, step)
    operands = (b.Reshape(v, flat) for v in (x, places, updates))
    r.set_inputs(b.ScatterElements(*operands, axis=0), list(shape))


def reversed_axes(r: LiftContext, axes: list[int]) -> None:
    """Reverse axes; the operator is a Slice."""
    k = len(axes)
    if not axes:
        r.forwarded = [r.b.Identity(r.input(0))]
    r.set_inputs(r.data, *(r.b.const(v) for v in ([-1] * k, [MIN] * k, axes, [-1] * k)))


def masked_axes(r: LiftContext) -> None:
    """Reverse the axes that the mask selects."""
    reversed_axes(r, [i for i, is_reversed in enumerate(r.ints(1, "the axes")) if is_reversed])


# one-hot, eye, range -----------------------------------------------------------------------------


def read_on_off(r: LiftContext) -> None:
    """(..., on, off) <-> [off, on]."""
    values = (r.reshape(r.input(i), [1]) for i in (3, 2))
    r.node.inputs[2:] = [r.b.Concat(*values, axis=0)]


def write_on_off(w: LowerContext) -> None:
    """Append both values of OneHot, the one for 1 first."""
    array, axis = known(w.input(2)), w.const(0)
    for i in (1, 0):
        if array is not None:
            value = w.const(array[i])
        else:
            value = w.emit("Gather", w.input(2), i, axis, batch_dims=0)
        w.layer.inputs.append(value)


ON_OFF = Detail(read=read_on_off, write=write_on_off, inputs=(2,))


def read_negative_indices(r: LiftContext) -> None:
    """Make negative indices invalid unless the mode is `normalize`; in ONNX they always count from
    the end.
    """
    kind = words("ignore_negative", "normalize")
    if r.attr("negative_indices_mode", kind, "ignore_negative") == "normalize":
        return
    indices = r.data
    assert indices.dtype is not None
    limit = r.cast(r.reshape(r.input(1), []), indices.dtype)
    negative = r.b.Less(indices, r.b.like(indices, 0))
    r.data = r.b.Where(negative, limit, indices)


def write_negative_indices(w: LowerContext) -> None:
    """Write that negative indices count from the end; needs opset 16."""
    w.needs(16)
    w.set(negative_indices_mode="normalize")


NEGATIVE_INDICES = Detail(
    read=read_negative_indices,
    write=write_negative_indices,
    keys=("negative_indices_mode",),
)


def eye(r: LiftContext) -> None:
    """Write ones where column - row is the third operand, copied for each element of the batch. The
    operator is the Cast.
    """
    b = r.b
    rows, columns, diagonal = (r.reshape(r.cast(r.input(i), T.INT64), []) for i in range(3))
    row, column = (b.Range(0, v, 1) for v in (rows, columns))
    r.set_inputs(b.Equal(column, b.Unsqueeze(row, [1]) + diagonal))
    if r.optional(3) is not None:
        batch = r.cast(r.input(3), T.INT64)
        r.after_first(lambda y: _copies(r, y, batch))


def _copies(r: LiftContext, matrix: ir.Value, batch: ir.Value) -> ir.Value:
    return r.b.Expand(matrix, r.b.Concat(batch, r.b.Shape(matrix), axis=0))


def write_eye(w: LowerContext) -> None:
    """Write the matrix as a constant, since its shape is constant."""
    (rows, columns), dtype = w.static(), w.out.dtype or T.FLOAT
    matrix = np.eye(rows, columns, w.attr("k"), dtype=dtype.numpy())
    w.set_inputs(matrix, [rows, columns])
    w.set(special_zero=False)


def read_range_type(r: LiftContext) -> None:
    """The type of the result, which in ONNX is that of the bounds; the first revision has none."""
    to = T(r.attr("output_type", COMPUTED, int(r.input(0).dtype or T.FLOAT)))
    work = to if to in (T.FLOAT, T.DOUBLE, T.INT16, T.INT32) else T.INT64
    scalars = (
        r.input(i) if rank_of(r.input(i)) == 0 else r.reshape(r.input(i), []) for i in range(3)
    )
    r.node.inputs = [r.cast(v, work) for v in scalars]
    r.after_first(lambda y: r.cast(y, to))


def write_range_type(w: LowerContext) -> None:
    """Write the type of a Range."""
    w.layer.attrs["output_type"] = element_type.lower(int(w.data.dtype or T.FLOAT))


RANGE_TYPE = Detail(read=read_range_type, write=write_range_type, keys=("output_type",))


# rows --------------------------------------------------------------------------------------------

COMPUTED = Codec(lambda v: int(computed(T(element_type.lift(v)))), element_type.lower)
KNOWN_AXIS = Guard("the axis must be constant", lift_if=lambda r: known(r.optional(3)) is not None)
UNKNOWN_AXIS = Guard("the axis must be computed", lift_if=lambda r: known(r.optional(3)) is None)
NO_MEAN = Guard(
    "reduction=mean is not supported", lift_if=lambda r: r.attr("reduction", str, "none") != "mean"
)
ALONG = (
    NO_MEAN,
    KNOWN_AXIS,
    index_type(1),
    AttrInput("axis", 3),
    Attr("reduction", kind=REDUCTION, default="none", since=12),
)
MEAN = (RequireKey("reduction", "mean", kind=str), ignore("use_init_val"), index_type(1))

GATHER = [
    op(
        "Gather",
        "Gather",
        RequireKey("batch_dims", 0, absent=True, kind=int),
        index_type(1),
        AttrInput("axis", 2),
    ),
    op(
        "GatherND",
        "Gather",
        Guard("batch_dims must be above 0", lift_if=lambda r: bool(r.attr("batch_dims", int, 0))),
        Attr("batch_dims", kind=int),
        before_lift=gather_in_batch,
        lift_only=True,
    ),
    op(
        "GatherND",
        "GatherND",
        Attr("batch_dims", kind=int, default=0),
        InputType((1,)),
        after_lift=batch_axes_merged,
    ),
    op("netconv::GatherTree", "GatherTree", example_inputs="4,2,3 4,2,3 2 ="),
]
SCATTER_ELEMENTS = [
    op(
        "ScatterElements",
        "ScatterElementsUpdate",
        InitialCounts(),
        *ALONG,
        example_inputs="4,3 =[[0,1,2]] 1,3",
    ),
    op(
        "ScatterElements",
        "ScatterElementsUpdate",
        RequireKey("use_init_val", False, kind=bool),
        *ALONG,
        before_lift=without_initial,
        lift_only=True,
    ),
    op(
        "Div",
        "ScatterElementsUpdate",
        KNOWN_AXIS,
        *MEAN,
        before_lift=mean_of_scattered,
        lift_only=True,
    ),
]
SCATTER = [
    op("ScatterND", "ScatterUpdate", before_lift=scatter_update, lift_only=True),
    *SCATTER_ELEMENTS,
    op(
        "If",
        "ScatterElementsUpdate",
        UNKNOWN_AXIS,
        ignore("reduction", "use_init_val"),
        before_lift=each_axis,
        lift_only=True,
    ),
    op(
        "ScatterND",
        "ScatterNDUpdate",
        Attr("reduction", kind=REDUCTION, default="none", since=15),
        InputType((1,)),
    ),
    op(
        "ScatterND",
        "ScatterNDUpdate",
        RequireKey("reduction", "sub", kind=str),
        RequireAttr("reduction", "add"),
        InputType((1,)),
        before_lift=negated,
        lift_only=True,
    ),
]
SLICE: list[Rule | Custom] = [
    op("Slice", "Slice", BOUNDS, since=8),
    custom("", "StridedSlice", lift=strided_slice),
    op("Reshape", "SliceScatter", before_lift=slice_scatter, lift_only=True),
    op(
        "Slice",
        "Reverse",
        RequireKey("mode", "index", kind=str),
        before_lift=lambda r: reversed_axes(r, r.ints(1, "the axes")),
        lift_only=True,
    ),
    op(
        "Slice",
        "Reverse",
        RequireKey("mode", "mask", kind=str),
        before_lift=masked_axes,
        lift_only=True,
    ),
    op(
        "ReverseSequence",
        "ReverseSequence",
        *BATCH_AND_TIME,
        IndexInput((1,)),
        before_lift=leading_axes,
        example_inputs="4,3 =[1,2,3]",
    ),
]
MADE = [
    op(
        "OneHot",
        "OneHot",
        Attr("axis", kind=int),
        index_type(0),
        NEGATIVE_INDICES,
        NumberInput(1, rank=1),
        ON_OFF,
    ),
    op("Cast", "Eye", Attr("to", "output_type", COMPUTED), before_lift=eye, lift_only=True),
    op(
        "EyeLike",
        "Reshape",
        Detail(write=write_eye, names=("k", "dtype"), keys=("special_zero",)),
        lower_only=True,
    ),
    op("Range", "Range", RANGE_TYPE, example_inputs="f32: f32: f32:"),
]

RULES = [*GATHER, *SCATTER, *SLICE, *MADE]
