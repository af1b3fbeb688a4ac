"""Shapes and the order of elements: reshaping, broadcasting, splitting, padding, blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.fields import (
    BLOCKS,
    BLOCKS_APART,
    amounts_of,
    dim,
    rearranged,
    words,
)
from converter.formats.openvino.opset.rules.context import LiftContext, LowerContext, element_type
from converter.formats.openvino.opset.rules.fields import (
    BROADCAST,
    IndexInput,
    scalar,
)
from converter.graph.demands import at_least, axis_of, of_counts, of_length
from converter.graph.infer import Array, known, rank_of, shape_of
from converter.graph.value import Value
from converter.graph.windows import of_all_axes, same_pads
from converter.mapping.concepts.axes import Permutation
from converter.mapping.concepts.parts import complete_sizes
from converter.mapping.fields import (
    Attr,
    AttrInput,
    Detail,
    Field,
    Guard,
    InputType,
    Outputs,
    OutputType,
    RequireAttr,
    RequireKey,
    ignore,
    ignore_inputs,
)
from converter.mapping.node import Node
from converter.mapping.rules import Custom, Rule, custom, op

T = ir.DataType
MIN, MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max


# shapes ------------------------------------------------------------------------------------------


def gather_sizes(w: LowerContext) -> None:
    """Read a Gather of some dimensions of the shape."""
    indices = list(range(w.rank()))[w.attr("start") : w.attr("end", None)]
    w.set_inputs(shape_as_int64(w), indices, 0)
    w.set(batch_dims=0)


def shape_as_int64(w: LowerContext) -> ir.Value:
    """Emit the shape of the data as int64."""
    return w.emit("ShapeOf", w.data, dtype=T.INT64, output_type="i64")


def multiply_sizes(w: LowerContext) -> None:
    """Compute the number of elements as the product of the dimensions."""
    w.set_inputs(shape_as_int64(w), [0])
    w.set(keep_dims=False)


def read_special_zero(r: LiftContext) -> None:
    """Read `special_zero`: 0 keeps the dimension, as in ONNX without allowzero."""
    copies, x, shape = r.attr("special_zero", bool), r.input(0), r.node.input(1)
    target: Any = known(shape)
    if rank_of(r.input(1)) not in (None, 1):
        raise MappingError("a shape must be a vector", "R105")
    if copies or (target is not None and not np.any(target == 0)):
        r.node.inputs[1] = shape if target is None else r.b.value(_settled(x, target))
    elif target is not None or rank_of(x) != 0:
        r.set(allowzero=1)
        if target is not None and np.any(target == -1):
            if shape_of(x) is None:
                raise MappingError(
                    "a Reshape to 0 and -1 of a dynamic shape is not supported", "X203"
                )
            # the runtime takes it for 1, and for 0 where it infers the shape later
            r.node.inputs[1] = r.b.const(np.where(target == -1, 1, target))


def write_special_zero(w: LowerContext) -> None:
    """Write whether a size of 0 copies that of the data."""
    w.set(special_zero=not w.attr("allowzero"))


SPECIAL_ZERO = Detail(
    read=read_special_zero,
    write=write_special_zero,
    names=("allowzero",),
    keys=("special_zero",),
)


def _settled(x: ir.Value, target: Array) -> list[int]:
    """Replace a -1 next to a copied dimension by its number.

    The copied dimension may be 0 at run time, and ONNX divides by it.
    """
    copied, wild = np.flatnonzero(target == 0), np.flatnonzero(target == -1)
    left = [d for i, d in enumerate(x.shape or ()) if i not in copied]
    if copied.size and wild.size == 1 and left and all(isinstance(d, int) for d in left):
        others = math.prod(int(t) for t in target if t > 0)
        whole = math.prod(int(d) for d in left if isinstance(d, int))
        target = np.where(target == -1, whole // others, target)
    return [int(t) for t in target]


class SizeOneAxes(Field):
    """The axes of a Squeeze or an Unsqueeze.

    A Reshape where the runtime would not know the rank of the result.
    """

    def lift(self, r: LiftContext) -> None:
        axes = r.optional(1)
        if axes is None or r.node.op == "Unsqueeze" or known(axes) is None:
            InputType((1,), flat=True).lift(r)
            return
        x = r.input(0)
        wanted = {axis_of(i, r.rank(x)) for i in r.ints(1, "the axes")}
        ones = sorted(i for i in wanted if dim(x, i) in (1, None))
        r.node.inputs[1:] = [r.b.const(ones)] if wanted else []

    def lower(self, w: LowerContext) -> None:
        x, axes, after = w.data, w.optional(1), w.out.shape
        ones = [i for i, d in enumerate(x.shape) if d == 1] if x.shape is not None else None
        same_rank = ones is not None and after is not None and w.rank() - len(ones) == len(after)
        if axes is None and not same_rank:
            message = "the axes of size 1 are not known at conversion time"
            raise MappingError(message, "X203", "fix the shapes with --inputs")
        if (target := self._reshaped(w)) is not None:
            self._reshape(w, *target)
        elif axes is None and same_rank:
            if ones:
                w.set_inputs(x, ones)
            else:
                self._reshape(w, w.emit("ShapeOf", x, output_type="i64"), False)
        elif axes is not None:
            w.layer.inputs[1] = w.operand(w.known(axes))

    def _reshape(self, w: LowerContext, target: Any, zero: bool) -> None:
        w.layer.kind = "Reshape"
        w.set_inputs(w.data, target)
        w.set(special_zero=zero)

    def _reshaped(self, w: LowerContext) -> tuple[list[int], bool] | None:
        """Return the sizes for a Reshape, and whether 0 copies a size."""
        axes, after = w.optional(1), w.out.shape
        if axes is not None and known(axes) is None:
            if (
                after is not None
                and (sizes := _reshape_target(None, list(after), None)) is not None
            ):
                return sizes, False
            if rank_of(axes) != 0 and dim(axes, 0) != 1:
                message = (
                    "the axes are computed, so the runtime does not know the rank of the result"
                )
                raise MappingError(message, "X203", "make the axes constant")
        if w.node.op == "Unsqueeze" or w.version >= 15 or after is None:
            return None
        # runtimes of before opset 15 mistake a Squeeze after a recurrent layer for another one
        sizes = _reshape_target(axes, list(after), rank_of(w.data))
        return None if sizes is None else (sizes, True)


def _reshape_target(
    axes: ir.Value | None, after: list[Any], before: int | None
) -> list[int] | None:
    """Return the sizes for a Reshape where 0 copies a size.

    They are numbers, except for one that is not known, and those before the first axis.
    """
    found, kept = known(axes), 0
    if found is not None and before is not None:
        kept = min((int(i) % before for i in found.reshape(-1)), default=0)
    sizes = [d if isinstance(d, int) else 0 if i < kept else -1 for i, d in enumerate(after)]
    return sizes if sizes.count(-1) < 2 and 0 not in after else None


# splitting ---------------------------------------------------------------------------------------


def in_equal_parts(r: LiftContext) -> None:
    """Set the sizes of equal parts, if the axis has a known size. Raises MappingError R105 if it
    cannot be split so.
    """
    x, count, given = r.input(0), r.node.attrs["num_outputs"], len(r.layer.outputs)
    size = dim(x, axis_of(r.node.attrs["axis"], r.rank(x)))
    if count != given:
        raise MappingError(f"num_splits={count}, but there are {given} outputs", "R105")
    if size is None:
        return
    if size % count:
        raise MappingError(f"{size} elements cannot be split into {count} equal parts", "R105")
    del r.node.attrs["num_outputs"]
    r.node.inputs[1] = r.b.const([size // count] * count)


class Lengths(Field):
    """The lengths of the parts, an input after the axis; one of them may be -1, the rest.

    Without lengths the parts are equal.
    """

    names = ("num_outputs",)

    def lift(self, r: LiftContext) -> None:
        x, lengths = r.input(0), r.cast(r.input(2), T.INT64)
        axis = axis_of(r.node.attrs["axis"], r.rank(x))
        r.set_inputs(x, complete_sizes(r, x, lengths, axis))

    def lower(self, w: LowerContext) -> None:
        w.layer.inputs[2:] = [w.operand(self._lengths(w))]

    def _lengths(self, w: LowerContext) -> Any:
        if w.has(1):
            return w.known(w.input(1))
        size, parts = dim(w.data, axis_of(w.attr("axis"), w.rank())), len(w.node.outputs)
        if size is None:
            message = "the length of the parts depends on a dynamic dimension"
            raise MappingError(message, "X203")
        each = -(-size // parts)
        return [each] * (parts - 1) + [size - each * (parts - 1)]


# broadcasting ------------------------------------------------------------------------------------


def read_broadcast_mode(r: LiftContext) -> None:
    """Read the mode: numpy and bidirectional are Expand; explicit lists the target's axis for each
    axis of the input.
    """
    mode, target = r.attr("mode", str, "numpy"), r.node.inputs[1]
    if mode in ("explicit", "none"):
        if r.optional(2) is None:
            raise MappingError("the axes mapping is absent", "R105")
        axes = r.ints(2, "the axes mapping")
        count = None if target is None else dim(target, 0)
        if count is None:
            raise MappingError("the rank of the target shape is unknown", "X203")
        r.set_inputs(unsqueeze_to(r, axes, count), target)
    elif mode not in ("numpy", "bidirectional"):
        raise MappingError(f"mode={mode!r} is not supported")
    del r.node.inputs[2:]  # the first revision has axes in any mode


def write_broadcast_mode(w: LowerContext) -> None:
    """Write the mode of Broadcast that is ONNX's Expand."""
    w.set(mode="bidirectional")


BROADCAST_MODE = Detail(
    read=read_broadcast_mode,
    write=write_broadcast_mode,
    keys=("mode", "axis", "broadcast_spec"),
)


def unsqueeze_to(r: LiftContext, axes: list[int], count: int) -> ir.Value:
    """The input with its axis i at `axes[i]` of `count` axes, the others of size 1."""
    x = r.input(0)
    if len(axes) != r.rank(x) or axes != sorted(axes):
        raise MappingError(f"axes mapping {axes} does not fit rank {r.rank(x)}", "R105")
    missing = [i for i in range(count) if i not in axes]
    return r.b.Unsqueeze(x, missing) if missing else x


def broadcast_value(w: LowerContext) -> None:
    """Broadcast a constant to the shape."""
    value = w.attr("value", None)
    fill = np.zeros((), np.float32) if value is None else np.asarray(value).reshape(())
    w.set_inputs(fill, w.known(w.data))
    w.set(mode="numpy")


class Repeats(Field):
    """Fewer repeats than axes apply to the last ones; more repeats add leading axes.

    ONNX has as many repeats as axes. Computed repeats are written axis by axis: the runtime gives
    wrong results for several at a time.
    """

    def lift(self, r: LiftContext) -> None:
        b, x, repeats = r.b, r.input(0), r.node.inputs[1]
        assert repeats is not None
        count, n = dim(repeats, 0), rank_of(x)
        if count is None or n is None:
            own = b.Shape(repeats), b.Shape(b.Shape(x))
            ones = [self._ones(r, b.Max(*own) - v) for v in own]
            repeats = b.Concat(ones[0], repeats, axis=0)
            sizes = b.Concat(ones[1], b.Shape(x), axis=0)
            x = b.Reshape(x, sizes, allowzero=1)
        elif count < n:
            repeats = b.Concat([1] * (n - count), repeats, axis=0)
        elif count > n:
            x = b.Unsqueeze(x, list(range(count - n)))
        r.set_inputs(x, repeats)

    def _ones(self, r: LiftContext, count: ir.Value) -> ir.Value:
        return r.b.ConstantOfShape(count, value=np.ones(1, np.int64))

    def lower(self, w: LowerContext) -> None:
        x, repeats, n = w.data, w.input(1), rank_of(w.data)
        if known(repeats) is not None or n is None or n < 2:
            flat = rank_of(repeats) in (1, None) or known(repeats) is not None
            repeats = repeats if flat else w.reshape(repeats, [-1])
            w.layer.inputs[1] = w.operand(w.known(repeats))
            return
        flat_repeats = w.reshape(repeats, [n])
        parts = [w.temporary("count", repeats.dtype, [1]) for _ in range(n)]
        w.put("Split", flat_repeats, 0, outputs=parts, num_splits=n)
        one = w.const(np.ones(1, (repeats.dtype or T.INT64).numpy()))
        one_axis = [[*[one] * i, part, *[one] * (n - 1 - i)] for i, part in enumerate(parts)]
        turns = [w.emit("Concat", *counts, dtype=repeats.dtype, axis=0) for counts in one_axis]
        for turn in turns[:-1]:
            x = w.emit("Tile", x, turn)
        w.set_inputs(x, turns[-1])


def roll(r: LiftContext) -> ir.Value:
    """Roll each axis separately: elements shifted past the end reappear at the beginning."""
    r.attributes()
    b, x = r.b, r.input(0)
    shifts, axes = r.ints(1, "the shift"), r.ints(2, "the axes")
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    of_length(len(axes), shift=shifts)
    total: dict[int, int] = {}
    for axis, shift in zip(axes, shifts, strict=True):
        axis = axis_of(axis, r.rank(x))
        total[axis] = total.get(axis, 0) + shift
    for axis, shift in total.items():
        size = r.static(x)[axis]
        if size and shift % size:
            cut = size - shift % size
            parts = b.Slice(x, [cut], [size], [axis]), b.Slice(x, [0], [cut], [axis])
            x = b.Concat(*parts, axis=axis)
    return b.Identity(x) if x is r.input(0) else x


# padding -----------------------------------------------------------------------------------------


class Padding(Field):
    """(data, begins, ends, fill) <-> (data, amounts, fill, axes)."""

    inputs = (1, 2, 3)

    def lift(self, r: LiftContext) -> None:
        x, fill = r.input(0), r.optional(3)
        both: Any = [known(r.input(i)) for i in (1, 2)]
        computed = any(v is None for v in both)
        if computed:
            amounts = r.b.Concat(*(r.cast(r.input(i), T.INT64) for i in (1, 2)), axis=0)
        else:
            pads = [int(v) for v in np.concatenate([v.reshape(-1) for v in both])]
            if 2 * both[0].size != len(pads):
                raise MappingError(f"{len(pads)} amounts of padding do not fit the data", "R105")
            if r.node.attrs["mode"] != "constant":
                x, pads = cropped(r, x, pads)
            amounts = r.b.const(pads)
        r.set_inputs(x, amounts)
        zero = (array := known(fill)) is not None and not array.any()
        constant = r.node.attrs["mode"] == "constant" and not zero
        if constant and fill is not None and x.dtype is not None:
            fill = r.cast(fill, x.dtype)
            r.node.inputs.append(fill if rank_of(fill) == 0 else r.reshape(fill, []))

    def lower(self, w: LowerContext) -> None:
        pads, axes, n = known(w.input(1)), known(w.optional(3)), w.rank()
        if pads is None or (w.has(3) and axes is None):
            amounts = self._computed(w, n)
        else:
            both = amounts_of(pads, axes, n)
            if (both < 0).any() and (w.version < 12 or w.attr("mode") != "constant"):
                raise MappingError("negative padding is not supported here")
            amounts = [w.const(v, "pads") for v in both]
        w.set_inputs(w.data, *amounts)
        if w.attr("mode") == "constant":
            w.layer.inputs.append(self._fill(w))

    def _fill(self, w: LowerContext) -> ir.Value:
        fill = w.optional(2)
        if fill is None:
            return w.const(np.zeros((), (w.data.dtype or T.FLOAT).numpy()), "fill")
        array = known(fill)
        return scalar(w, fill) if array is None else w.const(array.reshape(()), "fill")

    def _computed(self, w: LowerContext, n: int) -> list[ir.Value]:
        """Return amounts, or the axes they are for, that are known only at run time."""
        zero, amounts, axes = w.const(0), w.input(1), w.optional(3)
        halves = [w.temporary("pads", T.INT64) for _ in range(2)]
        w.put("Split", w.known(amounts), zero, outputs=halves, num_splits=2)
        if axes is None:
            return halves
        axes = w.emit("Convert", axes, dtype=T.INT64, destination_type="i64")
        axes = w.emit("FloorMod", axes, [n], auto_broadcast="numpy")
        none = w.const([0] * n)
        return [w.emit("ScatterElementsUpdate", none, axes, v, zero) for v in halves]


def cropped(r: LiftContext, x: Value, pads: list[int]) -> tuple[Value, list[int]]:
    """Crop negative padding first: the values to repeat are those of the rest."""
    n = len(pads) // 2
    axes = [i for i in range(n) if pads[i] < 0 or pads[n + i] < 0]
    if not axes:
        return x, pads
    ends = [min(pads[n + i], 0) or MAX for i in axes]
    rest = r.b.Slice(x, [max(0, -pads[i]) for i in axes], ends, axes)
    return rest, [max(0, p) for p in pads]


def mirrored(r: LiftContext) -> None:
    """Mirror the data with the border element repeated."""
    amounts = [*r.ints(1, "the padding"), *r.ints(2, "the padding")]
    b, (x, pads) = r.b, cropped(r, r.input(0), amounts)
    n = len(pads) // 2
    for axis in range(n):
        before, after = pads[axis], pads[n + axis]
        parts = [x]
        if before:
            parts.insert(0, b.Slice(x, [before - 1], [MIN], [axis], [-1]))
        if after:
            parts.append(b.Slice(x, [-1], [-after - 1], [axis], [-1]))
        x = b.Concat(*parts, axis=axis) if len(parts) > 1 else x
    r.forwarded = [x]


# blocks ------------------------------------------------------------------------------------------


def read_of_channels(r: LiftContext) -> None:
    """Swap axes before and after the operator, which works on axis 1; the layer works on
    any axis.
    """
    x, b = r.input(0), r.b
    axis, n = axis_of(r.attr("axis", int, 1), r.rank(x)), r.rank(x)
    if n == 1:
        r.data = b.Unsqueeze(x, [0])
        r.after_first(lambda y: b.Squeeze(y, [0]))
    elif axis != 1:
        perm = list(range(n))
        perm[1], perm[axis] = axis, 1
        r.data = r.transpose(x, perm)
        r.after_first(lambda y: r.transpose(y, perm))


def write_of_channels(w: LowerContext) -> None:
    """Write the axis of the channels, 1."""
    w.set(axis=1)


OF_CHANNELS = Detail(read=read_of_channels, write=write_of_channels, keys=("axis",))


def space_to_batch(r: LiftContext) -> None:
    """(data, block, begins, ends): padded and split into blocks.

    The positions in the block become a part of the batch, before the batch axis.
    """
    block, pads = (
        r.ints(1, "the block shape"),
        [v for i in (2, 3) for v in r.ints(i, "the padding")],
    )
    of_length(r.rank(), block_shape=block)
    of_length(2 * len(block), pads=pads)
    at_least(1, block_shape=block)
    x = r.b.Pad(r.input(0), pads) if any(pads) else r.input(0)
    n, rest = len(block), [d // s for d, s in zip(r.static(x), block, strict=True)]
    split = [v for pair in zip(rest, block, strict=True) for v in pair]
    perm = [*(2 * i + 1 for i in range(n)), *(2 * i for i in range(n))]
    r.forwarded = [rearranged(r, x, split, perm, [rest[0] * math.prod(block), *rest[1:]])]


def batch_to_space(r: LiftContext) -> None:
    """(data, block, begins, ends): the positions in the block come from the batch.

    The padding is cropped.
    """
    x, block, shape = r.input(0), r.ints(1, "the block shape"), r.static(least=1)
    begin, end = r.ints(2, "the crops"), r.ints(3, "the crops")
    of_length(len(shape), block_shape=block, crops_begin=begin, crops_end=end)
    at_least(1, block_shape=block)
    n, rest = len(block), [shape[0] // math.prod(block), *shape[1:]]
    perm = [v for i in range(n) for v in (n + i, i)]
    size = [d * s for d, s in zip(rest, block, strict=True)]
    y = rearranged(r, x, [*block, *rest], perm, size)
    if any(begin) or any(end):
        stop = [d - e for d, e in zip(size, end, strict=True)]
        y = r.b.Slice(y, begin, stop, list(range(n)))
    r.forwarded = [y]


def image_patches(r: LiftContext) -> ir.Value:
    """Extract windows of an image: the channels of each output position are (row, column, channel)
    of its window.
    """
    a, b, x = r.attributes(sizes=list, strides=list, rates=list, auto_pad=str), r.b, r.input(0)
    of_counts(2, sizes=a.sizes, strides=a.strides, rates=a.rates)
    size, pads = r.static(x, axes=4)[2:], [0, 0, 0, 0]
    if a.auto_pad != "valid":
        upper = a.auto_pad == "same_upper"
        pads = same_pads(size, a.sizes, a.strides, a.rates, upper=upper)
    if any(pads):
        x = b.Pad(x, of_all_axes(pads))
    axes = list(zip(r.static(x)[2:], a.sizes, a.rates, a.strides, strict=True))
    out = [(f - (k - 1) * d - 1) // s + 1 for f, k, d, s in axes]
    if min(out) <= 0:
        raise MappingError("the window is larger than the image", "R105")
    parts = []
    for place in np.ndindex(*a.sizes):
        start = [i * d for i, d in zip(place, a.rates, strict=True)]
        stop = [i + (o - 1) * s + 1 for i, o, s in zip(start, out, a.strides, strict=True)]
        parts.append(b.Slice(x, start, stop, [2, 3], a.strides))
    return b.Concat(*parts, axis=1) if len(parts) > 1 else parts[0]


def _has_sizes_of_data(node: Node) -> bool:
    """Return whether the indices are known to have the sizes of the data; an unknown size of the
    data may be larger.
    """
    shapes = [
        list(v.shape) if v is not None and v.shape is not None else [] for v in node.inputs[:2]
    ]
    if not shapes[0] or not shapes[1]:
        return True
    axis = node.attrs.get("axis", 0) % len(shapes[0])
    return all(
        i == axis or a == b or not isinstance(b, int)
        for i, (a, b) in enumerate(zip(*shapes, strict=False))
    )


# rows --------------------------------------------------------------------------------------------


def rank_is_known(w: LowerContext) -> bool:
    """Return whether the rank of the result is known: not if its shape is an operand of unknown
    length, the last one.
    """
    return dim(w.input(-1), 0) is not None or w.out.shape is not None


KNOWN_RANK = Guard(
    "the rank of the result is unknown, but the runtime needs known ranks",
    rank_is_known,
    code="X203",
)
NO_SCALAR = Guard(
    "scalars are not supported by the runtime",
    lambda w: rank_of(w.optional(0)) != 0 or rank_of(w.out) != 0,
)
IMAGE = Guard("only data of rank 4 are supported", lift_if=lambda r: r.rank() == 4)
BLOCK_SIZE = Attr("blocksize", "block_size", int, default=1)
MODE = Attr("mode", "pad_mode", words("constant", "edge", "reflect"))

SHAPES: list[Rule | Custom] = [
    op("Transpose", "Transpose", Permutation(1, absent=True)),
    op(
        "Shape",
        "ShapeOf",
        RequireAttr("start", 0),
        RequireAttr("end", None),
        OutputType("output_type", element_type),
    ),
    op(
        "Shape",
        "Gather",
        Detail(write=gather_sizes, names=("start", "end"), keys=("batch_dims",)),
        lower_only=True,
    ),
    op(
        "Size",
        "ReduceProd",
        Detail(write=multiply_sizes, keys=("keep_dims",)),
        lower_only=True,
    ),
    op("Reshape", "Reshape", KNOWN_RANK, IndexInput((1,)), SPECIAL_ZERO),
    op("Squeeze", "Squeeze", SizeOneAxes(), ignore("allow_axis_skip")),
    op("Unsqueeze", "Unsqueeze", SizeOneAxes()),
    op("Split", "VariadicSplit", AttrInput("axis", 1), Lengths(), example_inputs="4,6 =[2,4]"),
    op(
        "Split",
        "Split",
        AttrInput("axis", 1),
        Attr("num_outputs", "num_splits", int),
        before_lift=in_equal_parts,
        lift_only=True,
    ),
    op(
        "Expand",
        "Broadcast",
        NO_SCALAR,
        KNOWN_RANK,
        IndexInput((1,)),
        BROADCAST_MODE,
        ignore_inputs(2),  # axes, which the first revision has in any mode
    ),
    op(
        "ConstantOfShape",
        "Broadcast",
        KNOWN_RANK,
        Detail(write=broadcast_value, names=("value",), keys=("mode",)),
        lower_only=True,
        example_inputs="=[2,3]",
    ),
    op("Tile", "Tile", NO_SCALAR, InputType((1,), flat=True), Repeats()),
    custom("", "Roll", lift=roll),
]

PADDING = [
    op(
        "Pad",
        "Pad",
        Guard("mode='wrap' is not supported", lambda w: w.attr("mode") != "wrap"),
        NO_SCALAR,
        MODE,
        Padding(),
    ),
    op(
        "Concat",
        "Pad",
        RequireKey("pad_mode", "symmetric", kind=str),
        before_lift=mirrored,
        lift_only=True,
    ),
]

IN_BLOCKS: list[Rule | Custom] = [
    op("DepthToSpace", "DepthToSpace", IMAGE, BLOCK_SIZE, Attr("mode", kind=BLOCKS)),
    op(
        "SpaceToDepth",
        "SpaceToDepth",
        IMAGE,
        BLOCK_SIZE,
        RequireKey("mode", "blocks_first", kind=str),
    ),
    *BLOCKS_APART,
    op(
        "netconv::ShuffleChannels",
        "ShuffleChannels",
        Attr("group", kind=int, default=1),
        OF_CHANNELS,
        example_inputs="1,4,8,8",
    ),
    op("Reshape", "SpaceToBatch", before_lift=space_to_batch, lift_only=True),
    op("Reshape", "BatchToSpace", before_lift=batch_to_space, lift_only=True),
    custom("", "ExtractImagePatches", lift=image_patches),
]

RULES = [
    *SHAPES,
    *PADDING,
    *IN_BLOCKS,
    op("Concat", "Concat", Attr("axis", kind=int)),
    op("Where", "Select", BROADCAST),
    op(
        "GatherElements",
        "GatherElements",
        Attr("axis", kind=int),
        Guard(
            "indices must have the sizes of the data along the other axes",
            lambda w: _has_sizes_of_data(w.node),
        ),
        since=6,
        example_inputs="6,1 =6,1",
    ),
    op("Softmax", "SoftMax", Attr("axis", kind=int, default=1), example_inputs="2,3"),
    op(
        "LogSoftmax",
        "LogSoftmax",
        Attr("axis", kind=int, default=1),
        since=5,
        example_inputs="2,3",
    ),
    op(
        "GridSample",
        "GridSample",
        Attr("align_corners", kind=bool, default=0),
        Attr("mode", kind=words("nearest", linear="bilinear", cubic="bicubic"), default="linear"),
        Attr("padding_mode", kind=words("zeros", "border", "reflection"), default="zeros"),
        Guard(
            "only samples of two spatial axes are supported",
            lambda w: w.node.inputs[0] is None or rank_of(w.node.inputs[0]) in (None, 4),
        ),
        since=9,
        example_inputs="1,2,4,4 1,3,3,2",
    ),
    op(
        "netconv::StringPack",
        "StringTensorPack",
        InputType((2,), T.UINT8),
        since=15,
        example_inputs="i32:2 i32:2 u8:5",
    ),
    op(
        "netconv::StringUnpack",
        "StringTensorUnpack",
        Outputs((T.INT32, T.INT32, T.UINT8)),
        since=15,
        example_inputs="s:2",
    ),
]
