"""Reshaping, transposing, joining, splitting, padding, slicing, and moving blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.mlprogram.rules.context import LiftContext, LowerContext
from converter.formats.coreml.mlprogram.rules.fields import (
    axes_of,
    first_axis,
    listed,
    mil,
    numbers,
    size_of,
)
from converter.graph.demands import axis_of, of_length, shaped
from converter.graph.infer import constant, known
from converter.graph.sizes import arange
from converter.graph.symbolic import dimensions
from converter.graph.value import Value, known_sizes
from converter.mapping.concepts.axes import Axis, Permutation
from converter.mapping.concepts.pads import Pads
from converter.mapping.context import rank as rank_of
from converter.mapping.fields import (
    Attr,
    Detail,
    Field,
    Guard,
    ImpliedAttrs,
    InputType,
    RequireAttr,
    RequireKey,
)
from converter.mapping.rules import Custom, Rule, custom
from converter.passes.layout.axes import inverse

LARGE, SMALL = np.iinfo(np.int64).max, np.iinfo(np.int64).min + 1
IOS17 = 8  # the specification version
FAR = np.iinfo(np.int32).max


def read_sizes(r: LiftContext) -> None:
    """The sizes of the result.

    On reading, 0 takes the size at the same index: counted from the front before iOS17, from the
    end since. On writing, at most one size is unknown, or they are computed; scalars are squeezed
    or expanded.
    """
    shape = r.whole("shape")
    array = known(shape)
    r.set_input(1, shape)
    if array is not None and 0 in array:
        sizes, own = [int(n) for n in array], r.static(r.data)
        shift = len(own) - len(sizes) if r.version >= IOS17 else 0
        for i, n in enumerate(sizes):
            if n == 0:
                sizes[i] = own[i + shift] if 0 <= i + shift < len(own) else 1
        r.set_input(1, sizes)


def write_sizes(w: LowerContext) -> None:
    """Write a Reshape: with a constant shape of at most one -1, with a computed shape, or as
    squeeze, identity or expand_dims where a scalar is involved.
    """
    shape = w.out.shape
    sizes = None if shape is None else [n if isinstance(n, int) else -1 for n in shape]
    if sizes == []:
        w.layer.kind = "squeeze" if w.rank() else "identity"
    elif sizes is not None and not w.rank():
        w.layer.kind = "expand_dims"
        w.set(axes=list(range(len(sizes))))
    elif sizes is not None and sizes.count(-1) < 2:
        w.set(shape=sizes)
    elif w.node.op == "Reshape" and not copies(w):
        w.layer.attrs["shape"] = w.input(1)
    else:
        raise MappingError("at most one size may be unknown")


SIZES = Detail(
    read=read_sizes,
    write=write_sizes,
    keys=("shape",),
    names=("axis", "allowzero"),
    inputs=(1,),
)


def copies(w: LowerContext) -> bool:
    """Return whether a size of 0 copies the operand's size."""
    given = known(w.optional(1))
    return not w.attr("allowzero", 0) and given is not None and bool((given == 0).any())


def first_elements(w: LowerContext, axes: list[int]) -> None:
    """Write a squeeze of a dynamic shape as a slice of the first elements.

    A squeeze keeps an axis of a size that Core ML does not know, also if the source declares it.
    """
    removed = [i in axes for i in range(w.rank())]
    whole = [not one for one in removed]
    w.layer.kind = "slice_by_index"
    w.set(begin=[0] * len(removed), end=[int(one) for one in removed])
    w.set(begin_mask=whole, end_mask=whole, squeeze_mask=removed)


class Squeezed(Field):
    """The axes of a squeeze."""

    keys, inputs = ("axes",), (1,)

    def lower(self, w: LowerContext) -> None:
        if w.has(1):
            rank = rank_of(w.node.outputs[0], "the result") if self.more else w.rank()
            axes = sorted(a % max(1, rank) for a in w.ints(1, "axes"))
            if not axes:
                raise MappingError("the axes are missing")
            if not self.more and None in (known_sizes(w.data) or ()):
                first_elements(w, axes)
            else:
                w.layer.attrs["axes"] = axes

    def __init__(self, more: bool = False) -> None:
        self.more = more

    def lift(self, r: LiftContext) -> None:
        if (axes := listed(r, "axes")) is not None:
            r.node.set_input(1, numbers(r, axes, "axes"))


def lines_of_scalars(r: LiftContext) -> None:
    """Unsqueeze scalars before they are concatenated."""
    r.node.inputs = [
        r.b.Reshape(v, [1]) if v.shape is not None and not v.shape else v for v in r.operands()
    ]


def interleaved(r: LiftContext) -> None:
    """Interleave the elements of the operands."""
    axis, shape = r.node.attrs["axis"] % r.rank(r.data), r.b.Shape(r.data)
    r.set(axis=axis + 1)
    r.set_inputs(*(r.b.Unsqueeze(v, [axis + 1]) for v in r.operands()))
    sizes = r.b.Concat(shape[:axis], [-1], shape[axis + 1 :], axis=0)
    r.after_first(lambda y: r.b.Reshape(y, sizes))


def stacked(r: LiftContext) -> None:
    """Insert the axis of a stack into each operand."""
    axis = r.node.attrs["axis"]
    r.node.inputs = [r.b.Unsqueeze(v, [axis]) for v in r.node.inputs]


def write_repeats(w: LowerContext) -> None:
    """Return the number of times each axis is repeated, of 32 bits."""
    if constant(w.input(1)) is not None:
        w.layer.attrs["reps"] = w.ints(1, "the repeats")


def read_parts(r: LiftContext) -> None:
    """A number of equal parts, or the size of each."""
    if "split_sizes" in r.layer.attrs:
        sizes = r.whole("split_sizes")
        r.node.set_input(1, sizes)
    else:
        r.node.attrs["num_outputs"] = r.attr("num_splits", int)


def write_parts(w: LowerContext) -> None:
    """Write equal parts as their number, others as their sizes. Raises MappingError for a single
    part and for unknown sizes.
    """
    axis = first_axis(w, w.attr("axis", 0))
    sizes: list[Any] = [size_of(v, axis) for v in w.node.outputs if v.shape is not None]
    if len(sizes) < 2:
        raise MappingError("a single part is not supported")
    # parts of an axis that may not divide into them differ in size when the network runs
    if len(set(sizes)) == 1 and not w.has(1) and (isinstance(sizes[0], int) or divides(w, axis)):
        w.set(num_splits=len(sizes))
    elif any(not isinstance(n, int) for n in sizes):
        raise MappingError("parts of unknown size are not supported")
    else:
        w.set(split_sizes=sizes)


def divides(w: LowerContext, axis: int) -> bool:
    """Return whether the size of a dynamic axis is a multiple of the number of parts."""
    whole, count = (dimensions(w.data) or [])[axis:], len(w.node.outputs)
    return bool(whole) and whole[0].floordiv(count) * count == whole[0]


PARTS = Detail(
    read=read_parts,
    write=write_parts,
    keys=("num_splits", "split_sizes"),
    names=("num_outputs",),
    inputs=(1,),
)


class Amounts(Pads):
    """Pairs of padding amounts for the last axes; modes other than constant support at most two
    axes.
    """

    keys, last, computed = ("pad",), 2, True

    def read(self, r: LiftContext) -> Value:
        rank, given = r.rank(r.data), r.whole("pad")
        (count,) = r.static(given, "the amounts", axes=1)
        if count % 2 or count // 2 > rank:
            raise MappingError(f"{count} amounts are given for {rank} axes", "R110")
        missing = rank - count // 2
        pairs = r.b.Transpose(r.b.Reshape(given, [-1, 2]), perm=[1, 0])
        filled = r.b.Pad(pairs, [0, missing, 0, 0]) if missing else pairs
        return r.b.Reshape(filled, [-1])

    def write(self, w: LowerContext, before: list[int], after: list[int]) -> None:
        first = 0 if w.attr("mode") == "constant" else max(0, len(before) - self.last)
        pairs = zip(before[first:], after[first:], strict=True)
        w.layer.attrs["pad"] = [n for pair in pairs for n in pair]

    def write_computed(self, w: LowerContext, amounts: ir.Value) -> None:
        kind, rank = ir.DataType.INT32, w.rank()
        table = w.made("reshape", kind, [2, rank], x=amounts, shape=[2, rank])
        transposed = w.made("transpose", kind, [rank, 2], x=table, perm=[1, 0])
        w.layer.attrs["pad"] = w.made("reshape", kind, [2 * rank], x=transposed, shape=[2 * rank])


class PadMode(Field):
    """The mode of a pad, and the value of constant padding."""

    keys = ("mode", "constant_val")
    names = ("mode",)
    inputs = (2,)

    def lower(self, w: LowerContext) -> None:
        modes = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}
        mode = w.attr("mode")
        if mode not in modes:
            raise MappingError(f"mode={mode!r} is not supported")
        w.set(mode=modes[mode])
        if mode == "constant":
            array = w.constant(2, "the value") if w.has(2) else None
            w.set(constant_val=0.0 if array is None else float(array.reshape(-1)[0]))

    def lift(self, r: LiftContext) -> None:
        modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
        mode = r.attr("mode", str, "constant")
        if mode not in modes:
            raise MappingError(f"mode={mode!r} is not known", "R110")
        r.node.attrs["mode"] = modes[mode]
        if mode == "constant":
            value = r.attr("constant_val", float, 0.0)
            r.node.set_input(2, r.b.like(r.data, value))


# slices ------------------------------------------------------------------------------------------


class Ranges(Field):
    """First element, last element and step along all axes, and which axes are removed from the
    result.
    """

    keys = ("begin", "end", "stride", "begin_mask", "end_mask", "squeeze_mask")
    inputs = (1, 2, 3, 4)

    def lift(self, r: LiftContext) -> None:
        *ranges, gone = self.read(r)
        r.set_inputs(r.data, *ranges)
        if gone:
            r.after_first(lambda y: r.b.Squeeze(y, gone))

    def read(self, r: LiftContext) -> tuple[Value, Value, list[int], list[int], list[int]]:
        """Return starts, ends, axes and steps of a Slice, and the axes to remove after it."""
        b, rank = r.b, r.rank(r.data)
        begin, end = r.whole("begin"), r.whole("end")
        strides = listed(r, "stride") or [1] * rank
        masks = [
            np.array(r.array(k).reshape(-1), bool) if r.has(k) else np.zeros(rank, bool)
            for k in self.keys[3:]
        ]
        bounds = [known_sizes(v) for v in (begin, end)]
        counts = [len(strides), *map(len, masks), *(n[0] for n in bounds if n is not None and n)]
        if any(n not in (rank, None) for n in counts):
            raise MappingError(f"the ranges must have one element for each of {rank} axes", "R110")
        first, last, squeezed = masks
        down = np.array(strides) < 0
        start = b.Where(first & ~squeezed, np.where(down, LARGE, 0), begin)
        behind = b.Where(b.Equal(start, -1), LARGE, start + 1)
        stop = b.Where(squeezed, behind, b.Where(last, np.where(down, SMALL, LARGE), end))
        strides = [1 if s else n for n, s in zip(strides, squeezed, strict=True)]
        return start, stop, list(range(rank)), strides, [int(i) for i in np.flatnonzero(squeezed)]

    def lower(self, w: LowerContext) -> None:
        rank = w.rank()
        if constant(w.optional(1)) is None or constant(w.optional(2)) is None:
            self.computed(w, rank)
            return
        firsts, lasts = w.ints(1, "the starts"), w.ints(2, "the ends")
        axes = [a % rank for a in w.ints(3, "the axes", range(rank))]
        steps = w.ints(4, "the steps", [1] * len(firsts))
        ranges = [(0, 0, 1, True, True)] * rank
        for axis, *limits in zip(axes, firsts, lasts, steps, strict=False):
            ranges[axis] = _range(size_of(w.data, axis), *limits)
        w.set(**{k: list(n) for k, n in zip(self.keys, zip(*ranges, strict=True), strict=False)})
        w.set(squeeze_mask=[False] * rank)

    def computed(self, w: LowerContext, rank: int) -> None:
        """Return computed bounds for all axes, in order."""
        axes = w.ints(3, "the axes", range(rank))
        steps = w.ints(4, "the steps", [1] * len(axes))
        if [a % rank for a in axes] != list(range(rank)) or any(n < 1 for n in steps):
            raise MappingError("computed bounds of some axes only are not supported")
        sizes = [n if isinstance(n, int) else -1 for n in w.out.shape or ()]
        if 1 < sizes.count(-1) < rank:
            raise MappingError(
                "a computed range needs a known size, which a program cannot declare", "X203"
            )
        w.layer.attrs |= {"begin": w.input(1), "end": w.input(2), "stride": steps}
        if sizes and sizes.count(-1) < rank:  # a reshape declares the known sizes
            part = w.temporary("slice_by_index", w.data.dtype, [None] * rank)
            w.layer.outputs = [part]
            w.after_emit(lambda: w.operation("reshape", x=part, shape=sizes))


def _range(size: Any, start: int, end: int, step: int) -> tuple[int, int, int, bool, bool]:
    """Return first, last and step of an axis, and whether the range includes both ends of the axis;
    counted from the front if the size is known.
    """
    if isinstance(size, int):
        first, last, _ = slice(start, end, step).indices(size)
        return first, max(0, last), step, False, last < 0
    first_of_all = start == -1 or start >= FAR if step < 0 else start == 0 or start <= -FAR
    last_of_all = end <= -FAR if step < 0 else end >= FAR
    begin, stop = (0 if first_of_all else start), (0 if last_of_all else end)
    return begin, stop, step, first_of_all, last_of_all


class Replaced(Ranges):
    """Replace the elements that a slice would select, as indices into the flattened tensor."""

    def lift(self, r: LiftContext) -> None:
        *ranges, gone = self.read(r)
        x, update = r.operands()
        line, shape = np.array([-1]), r.b.Shape(x)
        places = r.b.Reshape(r.b.Range(0, r.b.Size(x), 1), shape)
        chosen = r.b.Slice(places, *ranges)
        update = r.b.Unsqueeze(update, gone) if gone else update
        spread = r.b.Expand(update, r.b.Shape(chosen))
        r.set(axis=0)
        r.set_inputs(*(r.b.Reshape(v, line) for v in (x, chosen, spread)))
        r.after_first(lambda y: r.b.Reshape(y, shape))


def read_lengths(r: LiftContext) -> None:
    """Read the begin of each axis (negative: from the end) and its length; -1 means the rest."""
    begin, size = (r.whole(k) for k in ("begin", "size"))
    begin = r.b.Where(begin < 0, begin + r.b.Shape(r.data), begin)
    end = r.b.Where(r.b.Equal(size, -1), LARGE, begin + size)
    r.set_inputs(r.data, begin, end)


def reverse_axes(r: LiftContext) -> None:
    """Reverse axes; all if none are given."""
    axes = axes_of(r, r.data)
    ones = [-1] * len(axes)
    r.set_inputs(r.data, ones, [SMALL] * len(axes), axes, ones)
    if not axes:
        r.forwarded = [r.b.Identity(r.data)]


def crop_image(r: LiftContext) -> None:
    """Crop height and width at both ends."""
    amounts = {k: listed(r, k) or [] for k in ("crop_height", "crop_width")}
    of_length(2, **amounts)
    r.set_inputs(r.data, *inner(*amounts.values()))


CROP_IMAGE = Detail(read=crop_image, keys=("crop_height", "crop_width"))


def inner(height: Sequence[int], width: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Return starts, ends and axes of a Slice that crops these amounts at the start and the end."""
    (top, bottom), (left, right) = height, width
    return [top, left], [-n if n else LARGE for n in (bottom, right)], [-2, -1]


def read_time_and_batch(r: LiftContext) -> None:
    """Read the axes of the steps and of the sequences; they are moved to the front and back."""
    rank = r.rank(r.data)
    time, batch = (axis_of(r.attr(k, int, 0), rank) for k in ("seq_axis", "batch_axis"))
    if time == batch:
        raise MappingError("the lengths of the reversed axis cannot be converted", "R110")
    order = [time, batch, *(i for i in range(rank) if i not in (time, batch))]
    r.data = r.transpose(r.data, order)
    r.set(time_axis=0, batch_axis=1)
    r.after_first(lambda y: r.transpose(y, inverse(order)))


def write_time_and_batch(w: LowerContext) -> None:
    """Write the axes of time and batch."""
    w.set(seq_axis=w.attr("time_axis"), batch_axis=w.attr("batch_axis"))


TIME_AND_BATCH = Detail(
    read=read_time_and_batch,
    write=write_time_and_batch,
    keys=("seq_axis", "batch_axis"),
    names=("time_axis", "batch_axis"),
)


def gather_windows(r: LiftContext) -> None:
    """Gather the windows of an axis along a new axis after it."""
    size, step = r.count("size"), r.count("stride", 1)
    axis = axis_of(r.attr("axis", int), r.rank(r.data))
    places = arange((r.static(r.data)[axis] - size) // step + 1)[:, None] * step + arange(size)
    r.set(axis=axis)
    r.set_input(1, places.astype(np.int64))


# sizes -------------------------------------------------------------------------------------------


def fill_value(w: LowerContext) -> None:
    """Read the number of a ConstantOfShape."""
    value = w.attr("value", None)
    array = np.float32(0) if value is None else getattr(value, "numpy", lambda: value)()
    w.layer.attrs["value"] = w.const(np.asarray(array).reshape(()), "value")


def zero(r: LiftContext) -> None:
    """Read the value to broadcast, which is 0 by default."""
    if r.node.input(0) is None:
        r.set_input(0, np.float32(0))


def like(r: LiftContext) -> None:
    """Set the shape of an Expand to that of another tensor; without a value it fills with 0."""
    zero(r)
    r.set_input(1, r.b.Shape(r.node.input(1)))


def read_shape_ranges(r: LiftContext) -> None:
    """Read sizes that are slices of the shapes of other values."""
    refs = r.values("ref_tensors")
    given = {k: r.layer.attrs[k] if r.has(k) else [] for k in ("begins", "ends", "end_masks")}
    lists = {k: [int(n) for n in np.ravel(v)] for k, v in given.items()}
    of_length(len(refs), **lists)
    ranges = zip(refs, *lists.values(), strict=True)
    parts = [r.b.Shape(v)[i : LARGE if all_ else j] for v, i, j, all_ in ranges]
    r.set_input(1, r.b.Concat(*parts, axis=0))


def read_band(r: LiftContext) -> None:
    """Read the number of diagonals to keep below and above the main one; negative means all.
    Written, one side is unlimited.
    """
    below, above = (r.attr(k, int, -1) for k in ("lower", "upper"))
    if below >= 0 and above >= 0:
        r.data = r.b.Trilu(r.data, r.b.const(np.int64(above)), upper=0)
    elif below < 0 and above < 0:
        r.forwarded = [r.data]
    upper = below >= 0
    r.set_input(1, r.b.const(np.int64(-below if upper else above)))
    r.set(upper=int(upper))


def write_band(w: LowerContext) -> None:
    """Write a Trilu as a band below or above a diagonal, which must contain the main one."""
    k, upper = w.ints(1, "k", [0])[0], bool(w.attr("upper"))
    if (k > 0) if upper else (k < 0):
        raise MappingError("a band without its diagonal is not supported")
    w.set(lower=-k if upper else -1, upper=-1 if upper else k)


BAND = Detail(
    read=read_band,
    write=write_band,
    keys=("lower", "upper"),
    names=("upper",),
    inputs=(1,),
)


# blocks ------------------------------------------------------------------------------------------


def unshuffled(r: LiftContext) -> Value:
    """Rearrange [n, c, h * f, w * f] to [n, c * f * f, h, w], with the channel as the slowest of
    the new channels.
    """
    x, f = r.x, r.count("downscale_factor")
    n, c, h, w = r.static(x, axes=4)
    y = r.b.Reshape(x, [n, c, h // f, f, w // f, f])
    return r.b.Reshape(r.b.Transpose(y, perm=[0, 1, 3, 5, 2, 4]), [n, c * f * f, h // f, w // f])


def read_margins(r: LiftContext) -> None:
    """Read the zeros to pad before and after height and width."""
    pairs = shaped(r.array("paddings"), 2, 2, what="paddings")
    r.set(pads=pairs.T.reshape(-1).tolist())


def write_margins(w: LowerContext) -> None:
    """Write the padding before and after each axis as pairs."""
    w.set(paddings=np.reshape(w.attr("pads"), (2, 2)).T.tolist())


MARGINS = Detail(read=read_margins, write=write_margins, keys=("paddings",), names=("pads",))


class Crops(Field):
    """The crop after the operator, at both ends of height and width."""

    keys = ("crops",)

    def lift(self, r: LiftContext) -> None:
        ranges = inner(*shaped(r.array("crops"), 2, 2, what="crops").tolist())
        r.after_first(lambda y: r.b.Slice(y, *ranges))

    def lower(self, w: LowerContext) -> None:
        w.set(crops=[[0, 0], [0, 0]])


BLOCK = Attr("block_size", "block_shape", list, [1, 1])
JOINED = (Detail(read=lines_of_scalars), Axis(signed=True))


def range_of_floats(r: LiftContext) -> None:
    """Compute a half-precision Range in float32, since ONNX's Range does not support float16."""
    if all(v is None or v.dtype != ir.DataType.FLOAT16 for v in r.node.inputs):
        return
    r.node.inputs[:] = [v and r.cast(v, ir.DataType.FLOAT) for v in r.node.inputs]
    r.after_first(lambda y: r.cast(y, ir.DataType.FLOAT16))


HAS_AXES = Guard("transposing a scalar is not supported", lambda w: w.rank() > 0)
RULES: list[Rule | Custom] = [
    mil("Reshape", "reshape", "x", SIZES),
    mil("Flatten", "reshape", "x", SIZES, lower_only=True),
    mil(
        "Reshape",
        "reshape_like",
        "x",
        Detail(read=read_shape_ranges, keys=("ref_tensors", "begins", "ends", "end_masks")),
        lift_only=True,
    ),
    mil("Flatten", "flatten2d", "x", Attr("axis", kind=int, default=1), lift_only=True),
    mil("Transpose", "transpose", "x", HAS_AXES, Permutation()),
    mil("Squeeze", "squeeze", "x", Squeezed(), example_inputs="2,1,3 =[1]"),
    mil("Unsqueeze", "expand_dims", "x", Squeezed(True), example_inputs="2,3 =[1]"),
    mil(
        "Concat",
        "concat",
        "values*",
        Guard("a Concat of a single input is not supported", lambda w: len(w.node.inputs) > 1),
        *JOINED,
        RequireKey("interleave", False, absent=True, kind=bool),
        example_inputs="2,3 2,3",
    ),
    mil(
        "Concat",
        "concat",
        "values*",
        *JOINED,
        RequireKey("interleave", True, kind=bool),
        before_lift=interleaved,
        lift_only=True,
    ),
    mil(
        "Concat",
        "stack",
        "values*",
        Attr("axis", kind=int),
        before_lift=stacked,
        lift_only=True,
    ),
    mil("Split", "split", "x", Attr("axis", kind=int), PARTS, example_inputs="2,6 -> 2"),
    mil(
        "Tile",
        "tile",
        "x reps",
        InputType((1,)),
        Detail(write=write_repeats),
        example_inputs="2,3 =[2,1]",
    ),
    mil(
        "Shape",
        "shape",
        "x",
        Guard(
            "start and end are not supported",
            lambda w: not w.attr("start", 0) and w.attr("end", None) is None,
        ),
        ImpliedAttrs(("start", "end")),
        example_inputs="n,3",
    ),
    mil("Pad", "pad", "x", Amounts(), PadMode(), example_inputs="2,3,4,4 =[0,0,1,1,0,0,1,1]"),
    mil(
        "DepthToSpace",
        "depth_to_space",
        "x",
        Attr("blocksize", "block_size", int),
        RequireAttr("mode", "DCR"),
        example_inputs="1,8,4,4",
    ),
    mil(
        "DepthToSpace",
        "pixel_shuffle",
        "x",
        Attr("blocksize", "upscale_factor", int),
        RequireAttr("mode", "CRD"),
        example_inputs="1,8,4,4",
    ),
    mil(
        "SpaceToDepth",
        "space_to_depth",
        "x",
        Attr("blocksize", "block_size", int),
        example_inputs="1,4,4,4",
    ),
    custom("", "pixel_unshuffle", unshuffled),
    mil("netconv::SpaceToBatch", "space_to_batch", "x", BLOCK, MARGINS, example_inputs="1,2,4,4"),
    mil("netconv::BatchToSpace", "batch_to_space", "x", BLOCK, Crops(), example_inputs="4,2,4,4"),
    mil("Slice", "slice_by_index", "x", Ranges()),
    mil(
        "Slice",
        "slice_by_size",
        "x",
        Detail(read=read_lengths, keys=("begin", "size")),
        lift_only=True,
    ),
    mil("Slice", "reverse", "x", Detail(read=reverse_axes, keys=("axes",)), lift_only=True),
    mil("Slice", "crop", "x", CROP_IMAGE, lift_only=True),
    mil("ScatterElements", "slice_update", "x update", Replaced(), lift_only=True),
    mil(
        "ReverseSequence",
        "reverse_sequence",
        "x lengths",
        InputType((1,)),
        TIME_AND_BATCH,
        example_inputs="3,2,4 i64:2",
    ),
    mil(
        "Gather",
        "sliding_windows",
        "x",
        Detail(read=gather_windows, keys=("axis", "size", "stride")),
        lift_only=True,
    ),
    mil("Expand", "fill", "value? shape", InputType((1,)), before_lift=zero, lift_only=True),
    mil("Expand", "fill_like", "value? ref_tensor", before_lift=like, lift_only=True),
    mil(
        "ConstantOfShape",
        "fill",
        "shape",
        Detail(write=fill_value, keys=("value",), names=("value",)),
        lower_only=True,
        example_inputs="i64:2",
    ),
    mil(
        "Range",
        "range_1d",
        "start end step",
        InputType((0, 1, 2), None, scalar=True),
        Detail(read=range_of_floats),
        example_inputs="=i64:(0) i64: =i64:(1)",
    ),
    mil("Trilu", "band_part", "x", BAND, example_inputs="4,4 =(0)"),
]
