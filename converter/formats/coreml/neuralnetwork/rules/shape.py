"""Layers that change shapes: reshaping, concatenating, splitting, repeating, filling, padding.

Tensors have at least one axis: a scalar of the graph is [1] here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.coreml.neuralnetwork import operands as blobs
from converter.formats.coreml.neuralnetwork.collector import rank_of_value, scalar
from converter.formats.coreml.neuralnetwork.rules.context import LiftContext, LowerContext
from converter.formats.coreml.neuralnetwork.rules.fields import (
    ANY,
    FIX,
    OneType,
    StaticResult,
    border_amounts,
    borders,
    flat,
    shape_of_last,
    static_slice,
)
from converter.graph import SAME_ELEMENTS
from converter.graph.build import Builder
from converter.graph.demands import axis_of
from converter.graph.infer import known, rank_of, shape_of
from converter.graph.known import may_copy
from converter.graph.sizes import arange
from converter.mapping.codecs import Codec
from converter.mapping.concepts.axes import Axis, Permutation
from converter.mapping.concepts.pads import Pads
from converter.mapping.fields import (
    Attr,
    Const,
    Detail,
    Field,
    Guard,
    Nested,
    RequireAttr,
    RequireKey,
    ignore,
)
from converter.mapping.rules import Custom, Rule, custom, op

Value = ir.Value
MOST_ONES = 1 << 20


# axes of size one --------------------------------------------------------------------------------


class SizeOne(Field):
    """The axes to remove or insert. If there are none, or if the preceding operator did the
    opposite, the value before it is used.
    """

    keys: tuple[str, ...] = ("axes",)
    inputs = (1,)
    opposite = "Squeeze"

    def lift(self, r: LiftContext) -> None:
        if (axes := self.axes(r)) is None:
            return
        before = blobs.undone(r.data, self.opposite, axes)
        if before is not None or not axes:
            r.alias(before or r.data)
        r.set_input(1, axes)

    def axes(self, r: LiftContext) -> list[int] | None:
        """Return the new axes, counted from the front."""
        axes = r.attr("axes", list)
        rank = blobs.rank(r) + len(axes)
        return sorted(axis_of(a, rank) for a in axes)

    def lower(self, w: LowerContext) -> None:
        rank, axes = w.rank(), constant_axes(w)
        if not axes or (rank == 0 and len(axes) == 1):
            w.alias(w.data)
        elif rank == 0:
            raise no_match("only scalars are supported by this layer")
        w.set(axes=sorted(a % (rank + len(axes)) for a in axes))


def constant_axes(w: LowerContext) -> list[int]:
    """Return the axes of the second operand. Raises MappingError if they are computed."""
    axes = w.known(1)
    if axes is None:
        raise MappingError("the axes must be constant")
    return [int(a) for a in axes]


class RemovedAxes(SizeOne):
    """The axes to remove; the last remaining one is kept."""

    keys = ("axes", "squeezeAll")
    opposite = "Unsqueeze"

    def axes(self, r: LiftContext) -> list[int] | None:
        size = blobs.dims(r)
        axes = sorted(axis_of(a, len(size)) for a in r.attr("axes", list))
        if r.attr("squeezeAll", bool):
            if None in size:
                return None
            axes = [i for i, d in enumerate(size) if d == 1]
        return axes[1:] if len(axes) == len(size) else axes

    def lower(self, w: LowerContext) -> None:
        rank = w.rank()
        if not w.has(1):
            w.set(squeezeAll=True)
        elif not (axes := constant_axes(w)) or rank == 1:
            w.alias(w.data)
        else:
            w.set(axes=sorted(a % rank for a in axes))


class Ones(StaticResult):
    """Axes of length 1 that are added to a number, which has one axis here."""

    def lower(self, w: LowerContext) -> None:
        w.set(targetShape=[1] * rank_of_value(w.out))


# shapes ------------------------------------------------------------------------------------------


class TargetShape(StaticResult):
    """The shape of the result, if known; it may contain -1."""

    def lift(self, r: LiftContext) -> None:
        r.data = blobs.unreshaped(r.data)
        super().lift(r)

    def lower(self, w: LowerContext) -> None:
        x, shape, wanted = w.data, shape_of(w.out), w.known(1)
        if shape is None and (wanted is None or 0 in wanted):
            raise no_match("the shape must be known at conversion time")
        if shape is not None:
            w.layer.inputs = [flattened(x)]
        w.set(targetShape=list(shape if shape is not None else wanted or ()) or [1])


def flattened(x: Value) -> Value:
    """Return the tensor of at most 5 axes of which a tensor with more axes is only a reshape, if
    there is one.
    """
    source: Value | None = x
    while source is not None and rank_of_value(source) > 5:
        node = source.producer()
        if node is None or node.domain or node.op_type not in SAME_ELEMENTS:
            return x
        source = node.inputs[0]
    return x if source is None else source


class KeptSizes(StaticResult):
    """A shape of the rank of the input, in which 0 keeps a size."""

    def lower(self, w: LowerContext) -> None:
        wanted = w.known(1)
        if wanted is None:
            raise no_match("the shape must be known at conversion time")
        if len(wanted) != w.rank():
            raise MappingError(
                "a Reshape that copies dimensions (0) to another rank is not supported"
            )
        w.set(targetShape=[int(d) for d in wanted])


def channels_last(r: LiftContext, x: Value) -> Value:
    """Transpose [...,C,H,W] to [...,H,W,C]."""
    rank = blobs.rank(x, 3)
    return r.b.Transpose(x, perm=[*range(rank - 3), rank - 2, rank - 1, rank - 3])


def of_planes(r: LiftContext) -> tuple[list[int | None], list[int]]:
    """Return the leading sizes and [C,H,W] of a target, which keeps the leading sizes, or is
    [Seq,C,H,W].
    """
    target, rank = r.attr("targetShape", list), blobs.rank(r, 3)
    if len(target) not in (3, 4):
        raise MappingError(f"targetShape must have 3 or 4 elements, got {len(target)}", "R110")
    lead = blobs.dims(r)[: rank - 3]
    return [target[0], lead[1]] if len(target) == 4 and rank == 5 else lead, target[-3:]


def planes(r: LiftContext) -> None:
    """Set the target of a Reshape to [C,H,W], after the leading axes."""
    lead, sizes = of_planes(r)
    r.set_input(1, blobs.shape_as(r.b, [*lead, *sizes], r.data))
    r.data = blobs.unreshaped(r.data)


def pixels(r: LiftContext) -> None:
    """Reshape in the order H, W, C on both sides; the operator is the Transpose after it."""
    lead, (c, h, w) = of_planes(r)
    shape, n = blobs.shape_as(r.b, [*lead, h, w, c], r.input(0)), len(lead)
    r.data = r.b.Reshape(channels_last(r, r.input(0)), shape)
    r.set(perm=[*range(n), n + 2, n, n + 1])


def vector(r: LiftContext) -> None:
    """Reshape [...,C,H,W] to [...,C*H*W,1,1]."""
    x = r.input(0)
    size, rank = blobs.dims(x), blobs.rank(x, 3)
    tail = size[rank - 3 :]
    count = -1 if None in tail else math.prod(int(d or 0) for d in tail)
    shape = blobs.shape_as(r.b, [*size[: rank - 3], count, 1, 1], x)
    r.data = channels_last(r, x) if r.attr("mode", str) == "CHANNEL_LAST" else x
    r.set_input(1, shape)


def permuted(r: LiftContext) -> None:
    """Permute the axes [Seq,C,H,W], numbered 0 to 3; the batch axis stays."""
    order, rank = r.attr("axis", list), blobs.rank(r)
    if sorted(order) != [0, 1, 2, 3]:
        raise MappingError(f"axis={order} is not a permutation of 0 to 3", "R110")
    place = [0, 2, 3, 4]
    if rank == 5:
        r.set(perm=[place[order[0]], 1, *(place[a] for a in order[1:])])
    elif rank == 4 and order[0] == 0:
        r.set(perm=[0, *order[1:]])
    else:
        raise MappingError(f"permute of a tensor of rank {rank} is not supported", "R105")


def slice_shape(w: LowerContext) -> None:
    """Return the sizes from `start` to `end`, for a slice after it."""
    rank = w.rank()
    start, end = int(w.attr("start")), int(w.attr("end", rank))
    if rank == 0:
        raise MappingError("the shape of a scalar has no elements")
    if (start, end) != (0, rank):
        whole = w.result("shape")
        whole.shape = ir.Shape([rank])
        w.after_emit(
            lambda: w.put("sliceStatic", whole, **static_slice([rank], {0: (start, end, 1)}))
        )


# joining, splitting, repeating -------------------------------------------------------------------


def sequence_or_channels(r: LiftContext) -> None:
    """Read the axis: -3, or -5 for a `sequenceConcat`."""
    back = 5 if r.attr("sequenceConcat", bool) else 3
    r.set(axis=blobs.rank(r, back) - back)


def drop_empty_operands(w: LowerContext) -> None:
    """Drop operands without elements; a single remaining one is the result."""
    values = [v for v in w.node.inputs if v is not None and 0 not in (shape_of(v) or ())]
    w.layer.inputs = list(values)
    if len(values) == 1:
        w.alias(values[0])


DROP_EMPTY_OPERANDS = Detail(write=drop_empty_operands)


def interleaved(r: LiftContext) -> None:
    """Interleave the elements of the operands."""
    b, values, axis = r.b, r.node.inputs, r.node.attrs["axis"]
    length = blobs.dims(r)[axis]
    if length is not None:
        order = arange(length * len(values)).reshape(len(values), length).T.reshape(-1)
        r.after_first(lambda y: b.Gather(y, order, axis=axis))
        return
    r.node.inputs = [b.Unsqueeze(v, [axis + 1]) for v in values]
    r.set(axis=axis + 1)
    r.after_first(lambda y: _joined(b, y, axis))


def _joined(b: Builder, y: ir.Value, axis: int) -> ir.Value:
    """Merge axis `axis` with the next one."""
    shape = b.Shape(y)
    return b.Reshape(y, b.Concat(shape[:axis], [-1], shape[axis + 2 :], axis=0))


def stacked(r: LiftContext) -> None:
    """Insert the axis of a stack into each operand."""
    axis = r.axis("axis", blobs.rank(r) + 1)
    r.node.inputs = [blobs.unsqueeze(r.b, v, [axis]) for v in r.node.inputs if v is not None]
    r.set(axis=axis)


def equal_parts(r: LiftContext) -> None:
    """Split the channels into as many equal parts as there are results."""
    r.set(axis=blobs.rank(r, 3) - 3, num_outputs=len(r.layer.outputs))


class SplitSizes(Field):
    """The sizes of the parts, given or equal. If the axis is not divisible, the first parts are
    longer by one here; in ONNX the last one is shorter.
    """

    names = ("num_outputs",)
    keys = ("splitSizes", "numSplits")
    inputs = (1,)

    def lift(self, r: LiftContext) -> None:
        count, length = len(r.layer.outputs), blobs.dims(r)[r.node.attrs["axis"]]
        sizes = r.attr("splitSizes", list)
        if not sizes and length is not None:
            sizes = [length // count + (1 if i < length % count else 0) for i in range(count)]
        if sizes:
            r.set_input(1, sizes)
        else:
            r.set(num_outputs=count)

    def lower(self, w: LowerContext) -> None:
        count = len(w.node.outputs)
        sizes, dims = w.known(1), w.dims(w.data)
        if w.has(1) and sizes is None:
            raise MappingError("the sizes of a Split must be constant")
        length = dims[w.attr("axis", 0)] if dims is not None else None
        if sizes is None and length is not None:
            part = -(-length // count)
            sizes = [min(part, max(0, length - i * part)) for i in range(count)]
        if sizes is not None and 0 in sizes:
            raise MappingError("a Split into empty parts is not supported")
        if count == 1:
            w.alias(w.data)
        elif sizes is not None and len(set(sizes)) > 1:
            w.set(splitSizes=[int(s) for s in sizes])
        else:
            w.set(numSplits=count)


def read_repeats(r: LiftContext) -> None:
    """Return the number of times along each of the last axes, as numbers of the layer or its second
    input.
    """
    repeats, rank = r.optional(1), blobs.rank(r)
    if repeats is None:
        amounts = r.attr("reps", list)
        r.data = blobs.unsqueeze(r.b, r.data, list(range(len(amounts) - rank)))
        r.set_input(1, [*[1] * (rank - len(amounts)), *amounts])
        return
    count = blobs.dims(repeats := blobs.vector(r.b, repeats))[0]
    if count is not None and count != rank:
        repeats = r.b.Concat([1] * (rank - count), repeats, axis=0)
    r.node.inputs[1] = repeats


def write_repeats(w: LowerContext) -> None:
    """Write constant repetitions as an attribute, computed ones as an operand."""
    repeats = w.known(1)
    if repeats is None:
        w.layer.inputs.append(w.input(1))
    else:
        w.set(reps=[int(n) for n in repeats])


REPEATS = Detail(read=read_repeats, write=write_repeats, keys=("reps",), inputs=(1,))


def repeat_sequence(r: LiftContext) -> None:
    """Repeat the first of five axes; zero times is once."""
    rest = [1] * (blobs.rank(r, 5) - 1)
    r.set_input(1, [r.attr("nRepetitions", int) or 1, *rest])


# filling -----------------------------------------------------------------------------------------


class WidenedTarget(Field):
    """The target shape of an Expand. In ONNX it may have smaller or fewer sizes than the operand,
    which keeps its own there; in the layer it must contain them.
    """

    def lower(self, w: LowerContext) -> None:
        if w.origin == ("coreml", "broadcastToDynamic"):
            return  # by the rules of the layer that it was
        x, shape = w.data, w.input(1)
        known_sizes, rank = w.dims(x), rank_of_value(w.out)
        own = [None] if known_sizes is None else known_sizes  # none of a scalar
        asked = (w.dims(shape) or [None])[0]
        if all(d == 1 for d in own) and asked == rank:
            return
        here = w.emit("getShape", x, shape=[w.rank()]) if None in own else w.const(own)
        sizes = []
        for value, count in ((shape, asked), (here, w.rank())):
            if count is None:
                raise MappingError("an Expand to a shape of unknown length is not supported")
            ones = [[1] * (rank - count)] if count < rank else []
            whole = w.emit("concatND", *ones, value, shape=[rank], axis=0) if ones else value
            sizes.append(whole)
        w.layer.inputs[1] = w.emit("maxBroadcastable", *sizes, shape=[rank])


def multiply_ones(w: LowerContext) -> None:
    """Expand by arithmetic, since a size of 1 keeps the operand's size."""
    sizes = w.known(1)
    if sizes is None or rank_of_value(w.out) != w.rank():
        raise no_match("the shape must be known at conversion time")
    if math.prod(int(n) for n in sizes) > MOST_ONES:
        message = "an Expand of dynamic dimensions to a large constant shape is not supported"
        raise MappingError(message)
    w.layer.inputs[1] = w.const(np.ones([int(n) for n in sizes], np.float32))


def read_limits(r: LiftContext) -> None:
    """Start, end and step <-> inputs end, start, step; omitted inputs are parameters."""
    given = [_scalar(r, v) for v in r.node.inputs if v is not None]
    if not given:
        raise MappingError("the end of the range is missing", "R105")
    start: Any = given[1] if len(given) > 1 else r.attr("startValue", float)
    step: Any = given[2] if len(given) > 2 else r.attr("stepSizeValue", float)
    r.set_inputs(start, given[0], step)


def write_limits(w: LowerContext) -> None:
    """Write a Range: the end is an operand, start and step are attributes if they are constant."""
    start, step = scalar(w.data), scalar(w.input(2))
    w.layer.inputs = [w.input(1)]
    if start is None or step is None:
        w.layer.inputs.append(w.data)
    if step is None:
        w.layer.inputs.append(w.input(2))
    w.set(startValue=start or 0.0, stepSizeValue=1.0 if step is None else step)


LIMITS = Detail(
    read=read_limits,
    write=write_limits,
    keys=("startValue", "endValue", "stepSizeValue"),
    inputs=(0, 1, 2),
)


def _scalar(r: LiftContext, value: Value) -> Value:
    array = known(value)
    if array is not None and array.size != 1:
        raise MappingError(f"a limit of a range must be one number, got {array.size}", "R105")
    if array is not None:
        return r.b.const(array.reshape(()).astype(np.float32))
    return value if rank_of(value) == 0 else r.b.Reshape(value, [])


def lift_range(r: LiftContext) -> Value:
    """Return the constant of a static range. Raises MappingError R110 for a step of 0 and for more
    than 2^28 elements.
    """
    limits = [r.attr(key, float) for key in ("startValue", "endValue", "stepSizeValue")]
    start, end, step = limits
    if step == 0 or not np.isfinite(limits).all():
        message = f"the limits of a range must be finite and its step not 0, got {limits}"
        raise MappingError(message, "R110")
    return r.b.const(arange(start, end, step, dtype=np.float32), r.layer.name)


def band(r: LiftContext) -> None:
    """Write the band of a matrix: a negative number keeps the whole triangle; the operator removes
    the lower one.
    """
    lower, upper = r.attr("numLower", int), r.attr("numUpper", int)
    if upper >= 0:
        r.data = r.b.Trilu(r.data, upper, upper=0)
    r.set_input(1, -lower)
    if lower < 0:
        r.alias(r.data)


# padding -----------------------------------------------------------------------------------------


class Borders(Pads):
    """The amounts of the last two axes."""

    keys, inputs, last = ("paddingAmounts",), (1, 2, 3), 2

    def read(self, r: LiftContext) -> list[int]:
        top, left, bottom, right = borders(r.attr("paddingAmounts", dict, {}))
        lead = [0] * (blobs.rank(r, 2) - 2)
        return [*lead, top, left, *lead, bottom, right]

    def write(self, w: LowerContext, before: list[int], after: list[int]) -> None:
        if len(before) < 2:
            raise MappingError(f"mode={w.attr('mode')!r} pads two axes, but the data have fewer")
        w.set(paddingAmounts=border_amounts([*before[-2:], *after[-2:]]))


def pad_value(w: LowerContext) -> float:
    """Return the value of a Pad, 0 by default. Raises MappingError if it is computed."""
    value = w.scalar(2) if w.has(2) else 0.0
    if value is None:
        raise MappingError("the value of a Pad must be constant")
    return value


class PadValue(Field):
    """The padding value, `value` of the layer."""

    keys = ("value",)
    inputs = (2,)

    def lift(self, r: LiftContext) -> None:
        if value := r.attr("value", float):
            r.set_input(2, np.array(value, np.float32))

    def lower(self, w: LowerContext) -> None:
        w.set(value=pad_value(w))


class Pairs(Pads):
    """Amounts [before0, after0, before1, ..]: numbers of the layer or, flattened, its second input.

    They may also be the sizes to reach, where 0 means no padding on that side.
    """

    keys, computed = ("padAmounts", "padToGivenOutputSizeMode"), True

    def read(self, r: LiftContext) -> list[int] | Value:
        x, rank = r.input(0), blobs.rank(r)
        sizes = r.attr("padToGivenOutputSizeMode", bool)
        if r.optional(1) is not None:
            return self._computed(r, sizes)
        amounts = r.attr("padAmounts", list)
        if len(amounts) != 2 * rank:
            raise MappingError(
                f"{len(amounts)} amounts are given for {rank} axes (2 for each)", "R110"
            )
        if sizes:
            amounts = [_missing(t, n) for t, n in zip(amounts, _doubled(x), strict=True)]
        return [*amounts[::2], *amounts[1::2]]

    def _computed(self, r: LiftContext, sizes: bool) -> Value:
        b, x = r.b, r.input(0)
        pairs = b.Reshape(blobs.ints(b, r.input(1)), [blobs.rank(x), 2])
        if sizes:
            missing = b.Max(pairs - b.Unsqueeze(b.Shape(x), [1]), 0)
            pairs = b.Where(pairs > 0, missing, 0)
        return b.Reshape(b.Transpose(pairs, perm=[1, 0]), [-1])

    def write(self, w: LowerContext, before: list[int], after: list[int]) -> None:
        w.set(padAmounts=[n for pair in zip(before, after, strict=True) for n in pair])

    def write_computed(self, w: LowerContext, amounts: Value) -> None:
        n = w.rank()
        halves = w.emit("reshapeStatic", amounts, shape=[2, n], targetShape=[2, n])
        pairs = w.emit("transpose", halves, shape=[n, 2], axes=[1, 0])
        line = w.emit("reshapeStatic", pairs, shape=[2 * n], targetShape=[2 * n])
        w.layer.inputs.append(line)


def _doubled(x: Value) -> list[int | None]:
    return [d for size in blobs.dims(x) for d in (size, size)]


def _missing(target: int, size: int | None) -> int:
    """Return the amount that is missing to reach a size."""
    if target and size is None:
        raise MappingError("padding to an output size needs static shapes", "X203", FIX)
    return max(0, target - int(size or 0)) if target else 0


NUMBER = Codec(int, lambda v: int(np.asarray(v).reshape(-1)[0]))
K = Const(1, "k", NUMBER, node_default=0)
FILL = Codec(lambda v: np.array([v], np.float32), lambda v: float(np.asarray(v).reshape(-1)[0]))
FILL_VALUE = Attr("value", kind=FILL, node_default=0.0)
COLUMN = Guard(
    "a Flatten into one row or column is not supported",
    lambda w: w.attr("axis") not in (0, w.rank()),
)
SCALAR = Guard("only scalars are supported by this layer", lambda w: w.rank() == 0)
CONSTANT = RequireAttr("mode", "constant")


# where a size is 0, `allowzero` means an empty tensor, which Core ML lacks
NO_ZEROS = Detail(read=lambda r: r.set(allowzero=0), names=("allowzero",))

RULES: list[Rule | Custom] = [
    op("Squeeze", "squeeze", ANY, RemovedAxes()),
    op("Unsqueeze", "expandDims", ANY, SizeOne()),
    op(
        "Unsqueeze", "reshapeStatic", SCALAR, Ones(1), example_inputs="f32: =[0,1]", lower_only=True
    ),
    op("Reshape", "reshapeStatic", ANY, TargetShape(1), NO_ZEROS),
    op(
        "Reshape",
        "rankPreservingReshape",
        ANY,
        KeptSizes(1),
        NO_ZEROS,
        example_inputs="2,n,3 =[0,3,-1]",
    ),
    op(
        "Reshape",
        "reshapeDynamic",
        ANY,
        flat(1),
        NO_ZEROS,
        Guard(
            "zeros that copy a dimension to another rank are not supported",
            lambda w: w.attr("allowzero", 0) or not may_copy(w.node.inputs[1]),
        ),
        example_inputs="n,6 Shape(6,n)",
    ),
    op("Reshape", "reshapeLike", ANY, before_lift=shape_of_last, lift_only=True),
    op(
        "Reshape",
        "reshape",
        ANY,
        RequireKey("mode", "CHANNEL_FIRST"),
        ignore("targetShape"),
        before_lift=planes,
        lift_only=True,
    ),
    op(
        "Transpose",
        "reshape",
        ANY,
        RequireKey("mode", "CHANNEL_LAST"),
        ignore("targetShape"),
        before_lift=pixels,
        lift_only=True,
    ),
    op("Reshape", "flatten", ANY, ignore("mode"), before_lift=vector, lift_only=True),
    op("Flatten", "flattenTo2D", ANY, COLUMN, Attr("axis", kind=int)),
    op("Transpose", "permute", ANY, ignore("axis"), before_lift=permuted, lift_only=True),
    op("Transpose", "transpose", ANY, Permutation("axes", absent=True)),
    op("Shape", "getShape", ANY, Detail(write=slice_shape, names=("start", "end"))),
    op(
        "Concat",
        "concat",
        OneType(),
        ignore("sequenceConcat"),
        before_lift=sequence_or_channels,
        lift_only=True,
    ),
    op(
        "Concat",
        "concatND",
        RequireKey("interleave", False),
        OneType(),
        Attr("axis", kind=int),
        DROP_EMPTY_OPERANDS,
    ),
    op(
        "Concat",
        "concatND",
        RequireKey("interleave", True),
        OneType(),
        Axis(),
        before_lift=interleaved,
        lift_only=True,
    ),
    op("Concat", "stack", OneType(), ignore("axis"), before_lift=stacked, lift_only=True),
    op("Split", "split", ANY, ignore("nOutputs"), before_lift=equal_parts, lift_only=True),
    op("Split", "splitND", ANY, Axis(), SplitSizes(), example_inputs="4,6 =[2,4]"),
    op("Tile", "tile", ANY, REPEATS),
    op(
        "Tile",
        "sequenceRepeat",
        ANY,
        ignore("nRepetitions"),
        before_lift=repeat_sequence,
        lift_only=True,
    ),
    op("ConstantOfShape", "fillStatic", FILL_VALUE, StaticResult(0), example_inputs="=[2,3]"),
    op(
        "ConstantOfShape",
        "fillLike",
        ANY,
        FILL_VALUE,
        before_lift=shape_of_last,
        lift_only=True,
    ),
    op("ConstantOfShape", "fillDynamic", FILL_VALUE, flat(0), example_inputs="i64:2"),
    op("Expand", "broadcastToStatic", ANY, StaticResult(1)),
    op(
        "Expand",
        "broadcastToLike",
        ANY,
        before_lift=shape_of_last,
        lift_only=True,
    ),
    op(
        "Expand",
        "multiplyBroadcastable",
        Detail(write=multiply_ones),
        example_inputs="1,n =[4,1]",
        lower_only=True,
    ),
    op(
        "Expand",
        "broadcastToDynamic",
        ANY,
        flat(1),
        WidenedTarget(),
        example_inputs="1,1 i64:2",
    ),
    op("Range", "rangeDynamic", LIMITS, example_inputs="=(1.0) f32: =(0.5)"),
    custom("", "rangeStatic", lift_range),
    op("Trilu", "upperTriangular", RequireAttr("upper", 1), K, example_inputs="3,3 =i64:"),
    op("Trilu", "lowerTriangular", RequireAttr("upper", 0), K, example_inputs="3,3 =i64:"),
    op(
        "Trilu",
        "matrixBandPart",
        RequireAttr("upper", 1),
        ignore("numLower", "numUpper"),
        before_lift=band,
        lift_only=True,
    ),
    op("Pad", "constantPad", CONSTANT, Pairs(), PadValue()),
    op(
        "Pad",
        "padding",
        CONSTANT,
        Borders(),
        Nested("constant", PadValue()),
        example_inputs="2,3 =[1,0,0,2] =",
        lift_only=True,
    ),
    op("Pad", "padding", Nested("reflection"), RequireAttr("mode", "reflect"), Borders()),
    op("Pad", "padding", Nested("replication"), RequireAttr("mode", "edge"), Borders()),
]
