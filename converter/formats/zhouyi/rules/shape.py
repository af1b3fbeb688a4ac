"""Layers that only move data: shapes, axes, pieces, padding, blocks of space and batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.rules.context import LiftContext
from converter.formats.zhouyi.rules.fields import (
    constant_of,
    int64,
    pad_keys,
    reads,
    word,
    words,
)
from converter.graph.demands import at_least, axis_of, of_length, representable
from converter.graph.infer import Array, constant
from converter.graph.sizes import arange, demand_small, mirrored
from converter.graph.value import Value
from converter.mapping.codecs import enum
from converter.mapping.concepts.axes import Axis, Permutation, permutation
from converter.mapping.concepts.pads import Pads
from converter.mapping.context import LowerContext, as_integers, static
from converter.mapping.fields import Attr, Const, Detail, Field, Guard, attrs, ignore_inputs, spread
from converter.mapping.rules import custom, op, ops

# shapes and axes ---------------------------------------------------------------------------------


class NewShape(Field):
    """The shape of the result: `shape`, else the declared one, since other tools write nothing
    else.
    """

    names = ("allowzero", "axis", "perm")
    keys = ("shape",)
    inputs = (1,)

    def lift(self, r: LiftContext) -> None:
        declared = r.declared()
        default = () if declared is None else (list(declared),)
        shape = r.attr("shape", list, *default)
        r.set_input(1, shape)
        if declared is not None and 0 in declared:
            r.node.attrs["allowzero"] = 1

    def lower(self, w: LowerContext) -> None:
        w.set(shape=list(static(w.out)))


def keeps_order(shape: Sequence[int], perm: Sequence[int]) -> bool:
    """Return whether a permutation only moves axes of size 1, so that the data do not change."""
    moved = [p for p in perm if shape[p] != 1]
    return moved == sorted(moved)


def transpose(w: LowerContext, value: ir.Value, out: ir.Value, perm: Sequence[int]) -> None:
    """Add a Transpose before or after the operator; a Reshape if that is equivalent."""
    shape = static(value)
    if keeps_order(shape, perm):
        w.put("Reshape", value, outputs=[out], shape=[shape[p] for p in perm])
    else:
        w.put("Transpose", value, outputs=[out], perm=list(perm))


# pieces ------------------------------------------------------------------------------------------


def read_bounds(r: LiftContext) -> None:
    """Read begin, end and stride for every axis; a negative end counts from the end.


    Bounds outside of the axis are clamped as in ONNX; written bounds are explicit.
    """
    begin = r.attr("begin", list)
    bounds = [begin, r.attr("end", list), r.attr("axis", list, list(range(len(begin))))]
    bounds.append(r.attr("strides", list, [1] * len(begin)))
    if len({len(v) for v in bounds}) > 1:
        raise MappingError("begin, end and strides must have the same length", "R110")
    r.node.inputs = [r.input(0), *map(r.b.const, bounds)]


def write_bounds(w: LowerContext) -> None:
    """Write begin, end and strides of all axes, from constant bounds."""
    shape = w.static()
    starts, ends = (constant_of(w, i, "the bounds").tolist() for i in (1, 2))
    steps = [1] * len(starts)
    if w.optional(4) is not None:
        steps = constant_of(w, 4, "the steps").tolist()
    begin, end, strides = [0] * len(shape), list(shape), [1] * len(shape)
    for a, start, stop, step in zip(_axes(w), starts, ends, steps, strict=False):
        begin[a], end[a], strides[a] = _bounds(start, stop, step, shape[a])
    w.set(begin=begin, end=end, strides=strides)


BOUNDS = Detail(
    read=read_bounds,
    write=write_bounds,
    folds=True,
    inputs=(1, 2, 3, 4),
    keys=("begin", "end", "strides", "axis"),
)


def _axes(w: LowerContext) -> list[int]:
    """Return the fourth operand, counted from the front; all axes where it is omitted."""
    rank = w.rank()
    given = range(rank) if w.optional(3) is None else constant_of(w, 3, "the axes")
    return [axis_of(int(a), rank) for a in given]


def _bounds(start: int, stop: int, step: int, size: int) -> tuple[int, int, int]:
    """Return explicit bounds; -size - 1 is the end of a reversed range that includes the first
    element.
    """
    first, last, step = slice(start, stop, step).indices(size)
    return first, (last if step > 0 or last >= 0 else -size - 1), step


def pairs_of(r: LiftContext, key: str) -> list[list[int]]:
    """Return a list of pairs, which may also be flat."""
    found: Any = r.layer.attrs.get(key)
    if found is None:
        raise MappingError(f"required attribute {key!r} is absent", "R110")
    pairs = found
    if isinstance(found, list) and found and all(isinstance(v, int) for v in found):
        pairs = [found[i : i + 2] for i in range(0, len(found), 2)]
    if not isinstance(pairs, list) or not all(_is_pair(p) for p in pairs):
        raise MappingError(f"{key}={found!r} must be a list of pairs", "R110")
    return pairs


def _is_pair(p: Any) -> bool:
    return isinstance(p, list) and len(p) == 2 and all(isinstance(v, int) for v in p)


def cropped(r: LiftContext) -> None:
    """Return begin and end for every axis."""
    starts, ends = np.array(checked_pairs(r, "crops"), np.int64).T
    r.node.inputs = [r.input(0), *map(r.b.const, (starts, ends, arange(len(starts))))]


def read_pieces(r: LiftContext) -> None:
    """Read the sizes of the results: a constant input, or equal ones <-> `splits`."""
    splits = r.attr("splits", list)
    r.set_input(1, splits)
    r.outputs = len(splits)


def write_pieces(w: LowerContext) -> None:
    """Write the sizes of the parts, which must be static."""
    axis = axis_of(int(w.attr("axis")), w.rank())
    w.set(splits=[static(v)[axis] for v in w.node.outputs])


PIECES = Detail(
    read=read_pieces,
    write=write_pieces,
    names=("num_outputs",),
    inputs=(1,),
    keys=("splits",),
)


def repeated(r: LiftContext) -> None:
    """Pad fewer repeats than the declared size with zeros, as in the vendor's executor; without an
    axis the data are flattened.
    """
    b, x, repeats = r.b, r.input(0), constant(r.input(1))
    axis = axis_of(r.node.attrs.setdefault("axis", 0), len(r.static(x)))
    if "axis" not in r.layer.attrs:
        x, axis = b.Reshape(x, [-1]), 0
    count, declared = r.static(x)[axis], r.declared(0)
    if repeats is not None:
        counts = _counts(repeats, count)
        if declared is None or counts.sum() >= r.declared_size(0, axis):
            r.node.inputs = [x, b.const(np.repeat(arange(count), counts))]
            return
    _followed_by_zeros(r, x, axis)


def _followed_by_zeros(r: LiftContext, x: ir.Value, axis: int) -> None:
    """Return the repeated slices, followed by zeros up to the declared size."""
    b, count = r.b, r.static(x)[axis]
    number = b.Expand(b.Reshape(r.cast(r.input(1), ir.DataType.INT64), [-1]), [count])
    every = b.const(arange(r.declared_size(0, axis)).reshape(-1, 1))
    behind = b.GreaterOrEqual(every, b.CumSum(number, np.array(0))[None])
    place = b.ReduceSum(b.Cast(behind, to=ir.DataType.INT64), [1], keepdims=0)
    # the index after the last element is that of a zero
    spare = [0] * (2 * len(r.static(x)))
    spare[len(spare) // 2 + axis] = 1
    r.node.inputs = [b.Pad(x, spare), place]


def _counts(repeats: Array, count: int) -> Array:
    """Return the number of times each of `count` slices is repeated: constants, one for all or one
    for each.
    """
    given = as_integers(repeats, "the repeats")
    at_least(0, repeats=given)
    if len(given) not in (1, count):
        raise MappingError(f"{len(given)} repeats do not fit {count} slices", "R105")
    counts = np.broadcast_to(np.array(given), (count,))
    demand_small(sum(counts.tolist()))
    return counts


# padding -----------------------------------------------------------------------------------------

PAD_MODES = words("constant reflect edge wrap")
WIDE = (ir.DataType.INT64, ir.DataType.UINT64, ir.DataType.INT32, ir.DataType.UINT32)


def checked_pairs(r: LiftContext, key: str) -> list[list[int]]:
    """Return a pair for every axis of the data."""
    pairs, rank = pairs_of(r, key), len(r.shape)
    if len(pairs) != rank:
        raise MappingError(f"{key} has {len(pairs)} pairs, but the data have {rank} axes", "R105")
    return pairs


class Amounts(Pads):
    """A pair for every axis, and `constant_value`: a constant input."""

    folds = True
    inputs = (1, 2, 3)
    keys = ("pads", "constant_value")
    negative = ("constant",)

    def read(self, r: LiftContext) -> Array:
        if r.layer.attrs.get("mode", "CONSTANT") == "CONSTANT":
            r.set_input(2, r.b.like(r.data, r.attr("constant_value", float, 0.0)))
        return np.array(checked_pairs(r, "pads"), np.int64).T.reshape(-1)

    def write(self, w: LowerContext, before: list[int], after: list[int]) -> None:
        x, value = w.input(0), 0.0
        if w.optional(2) is not None:
            value = float(constant_of(w, 2, "the value").reshape(-1)[0])
        if x.dtype in WIDE and abs(value) > 1 << 24:
            raise MappingError(f"the value {value:.0f} has too many digits", "X204")
        w.layer.attrs["pads"] = [list(pair) for pair in zip(before, after, strict=True)]
        w.set(constant_value=float(bool(value)) if x.dtype == ir.DataType.BOOL else value)


def by_mirror(r: LiftContext) -> Value:
    """Mirror the data with the border element repeated."""
    x = r.data
    for axis, (begin, end) in enumerate(checked_pairs(r, "pads")):
        if begin or end:
            x = r.b.Gather(x, mirrored(r.static(x)[axis], begin, end), axis=axis)
    return x


def _run_mode(w: LowerContext) -> bool:
    return w.attr("mode") in ("constant", "reflect")


# the others are read, but the vendor's executor does not support them
RUN_MODES = Guard("mode must be constant or reflect", _run_mode)
SYMMETRIC = Guard(
    "mode must be SYMMETRIC", lift_if=lambda r: r.layer.attrs.get("mode") == "SYMMETRIC"
)

# blocks of space, batch and channels -------------------------------------------------------------

BLOCK = ("block_size_y", "block_size_x")


class SquareBlock(Field):
    """One block size for both axes."""

    names = ("blocksize",)
    keys = BLOCK

    def lift(self, r: LiftContext) -> None:
        r.node.attrs["blocksize"] = block_of(r)[0]

    def lower(self, w: LowerContext) -> None:
        w.set(**dict.fromkeys(BLOCK, int(w.attr("blocksize"))))


def block_of(r: LiftContext) -> tuple[int, int]:
    """Return the height and the width of a block."""
    y, x = (r.count(k) for k in BLOCK)
    return y, x


def _is_square(r: LiftContext) -> bool:
    y, x = block_of(r)
    return y == x


def space_of_depth(r: LiftContext) -> None:
    """Move blocks of channels to the image; the channel order is block y, block x, C (DCR) or C,
    block y, block x (CRD).
    """
    x, (by, bx), b = r.input(0), block_of(r), r.b
    n, h, w, c = r.static(x, axes=4)
    rest = c // (by * bx)
    modes = {
        "DCR": ([by, bx, rest], [0, 1, 3, 2, 4, 5]),
        "CRD": ([rest, by, bx], [0, 1, 4, 2, 5, 3]),
    }
    inner, perm = modes[r.attr("mode", enum(words("DCR CRD")), "DCR")]
    moved = b.Transpose(b.Reshape(x, [n, h, w, *inner]), perm=perm)
    r.node.inputs = [moved, b.const([n, h * by, w * bx, rest])]


def depth_of_space(r: LiftContext) -> None:
    """Set the operands of a Reshape that moves blocks of height and width to the channels."""
    x, (by, bx), b = r.input(0), block_of(r), r.b
    n, h, w, c = r.static(x, axes=4)
    split = b.Reshape(x, [n, h // by, by, w // bx, bx, c])
    moved = b.Transpose(split, perm=[0, 1, 3, 2, 4, 5])
    r.node.inputs = [moved, b.const([n, h // by, w // bx, by * bx * c])]


class Crops(Field):
    """The crop of the result: read as a Slice after the operator, never written."""

    keys = ("crop_top", "crop_left", "crop_bottom", "crop_right")

    def lift(self, r: LiftContext) -> None:
        top, left, bottom, right = (r.attr(k, int) for k in self.keys)

        def finish(results: list[ir.Value]) -> list[ir.Value]:
            _, h, w, _ = r.static(results[0])
            ends = [h - bottom, w - right]
            return [r.b.Slice(results[0], [top, left], ends, [1, 2])]

        if any((top, left, bottom, right)):
            r.after_emit(finish)

    def lower(self, w: LowerContext) -> None:
        w.set(**dict.fromkeys(self.keys, 0))


def read_shares(r: LiftContext) -> None:
    """Read `splits`: the result in that many pieces along the channels; 1 is written."""
    parts, r.outputs = r.count("splits", 1), 1

    def finish(results: list[ir.Value]) -> list[ir.Value]:
        channels = r.static(results[0])[-1]
        if channels % parts:
            raise MappingError(f"splits={parts} does not fit {channels} channels", "R110")
        sizes = [channels // parts] * parts
        return list(r.b.Split(results[0], sizes, axis=-1, outputs=parts))

    if parts != 1:
        r.after_emit(finish)


def write_shares(w: LowerContext) -> None:
    """Write that the result is not split."""
    w.set(splits=1)


SHARES = Detail(read=read_shares, write=write_shares, keys=("splits",))


def lift_batch_to_space_nd(r: LiftContext) -> ir.Value:
    """Lift BatchToSpaceND as Reshape, Transpose, Reshape, and a Slice that crops."""
    b, x, block = r.b, r.input(0), r.attr("block_size", list)
    shape, m = list(r.static(x)), len(block)
    at_least(1, block_size=block)
    if not 0 < m < len(shape):
        raise MappingError(f"block_size={block} does not fit data of {len(shape)} axes", "R110")
    crops = pairs_of(r, "crops") if "crops" in r.layer.attrs else [[0, 0]] * m
    of_length(m, crops=crops)
    n = shape[0] // int(np.prod(block))
    split = b.Reshape(x, [*block, n, *shape[1:]])
    inner = [a for i in range(m) for a in (m + 1 + i, i)]
    transposed = b.Transpose(split, perm=[m, *inner, *range(2 * m + 1, m + len(shape))])
    size = [s * k for s, k in zip(shape[1:], block, strict=False)]
    whole = b.Reshape(transposed, [n, *size, *shape[1 + m :]])
    starts, ends = [c[0] for c in crops], [size[i] - crops[i][1] for i in range(m)]
    return b.Slice(whole, starts, ends, list(range(1, m + 1)))


# new tensors -------------------------------------------------------------------------------------


def filled_with(r: LiftContext) -> None:
    """Return one value in a computed shape, in the declared type."""
    declared = r.declared_type
    value = r.layer.attrs.get("value", 0.0)
    value = value[0] if isinstance(value, list) and value else value
    array = representable(value, np.float32 if declared is None else declared.numpy(), "value")
    r.node.inputs = [r.b.const(array), r.cast(r.input(0), ir.DataType.INT64)]


def lift_dummy(r: LiftContext) -> list[ir.Value]:
    """Return the data unchanged."""
    return [r.b.Identity(v) for v in r.operands]


def lift_meshgrid(r: LiftContext) -> list[ir.Value]:
    """Compute numpy.meshgrid: `xy` swaps the first two axes, `sparse` keeps axes of length 1."""
    values = r.operands
    sizes, count = [r.static(v, axes=1)[0] for v in values], len(values)
    xy = r.attr("indexing", enum({True: "XY", False: "IJ"}), True) and count > 1
    axes = [1, 0, *range(2, count)] if xy else list(range(count))
    full, sparse = [sizes[a] for a in axes], r.attr("sparse", bool, 0)
    result: list[ir.Value] = []
    for i, v in enumerate(values):
        thin = [sizes[i] if a == axes[i] else 1 for a in range(count)]
        shaped = r.b.Reshape(v, thin)
        result.append(shaped if sparse else r.b.Expand(shaped, full))
    return result


SQUARE = Guard("blocks must not be square", lift_if=_is_square)
OBLONG = Guard("blocks must be square", lift_if=lambda r: not _is_square(r))
MODE = word("mode", "mode", words("DCR CRD"), default="DCR")
NEW_SHAPE = NewShape()
IN_ORDER = Guard(
    "the axes must keep their order", lambda w: keeps_order(w.static(), permutation(w))
)

RULES = [
    op("Reshape", "Reshape", NEW_SHAPE),
    *ops("Flatten=Reshape Squeeze=Reshape Unsqueeze=Reshape", NEW_SHAPE, lower_only=True),
    op("Transpose", "Reshape", IN_ORDER, NEW_SHAPE, lower_only=True, example_inputs="1,3"),
    op("Transpose", "Transpose", Permutation()),
    # the format's document has the constants of the bounds as a second operand, too
    op("Slice", "Slice", BOUNDS, ignore_inputs(1)),
    op("Slice", "Crop", reads("crops"), before_lift=cropped, lift_only=True),
    op("Pad", "Pad", RUN_MODES, word("mode", "mode", PAD_MODES, default="constant"), Amounts()),
    op(
        "Identity",
        "Pad",
        SYMMETRIC,
        reads("pads", "mode", "constant_value"),
        before_lift=by_mirror,
        lift_only=True,
    ),
    op("Concat", "Concat", Axis(), example_inputs="2,3 2,3"),
    op("Split", "Split", Axis(), PIECES, example_inputs="4,6 =[3,3] -> 2"),
    op("Tile", "Tile", Const(1, "repeats", list), example_inputs="2,3 =2"),
    op(
        "Gather",
        "Repeat",
        Attr("axis", kind=int, default=None),
        before_lift=repeated,
        lift_only=True,
    ),
    op("DepthToSpace", "DepthToSpace", SQUARE, SquareBlock(), MODE, example_inputs="1,8,2,2"),
    op(
        "Reshape",
        "DepthToSpace",
        OBLONG,
        reads(*BLOCK, "mode"),
        before_lift=space_of_depth,
        lift_only=True,
    ),
    op("SpaceToDepth", "SpaceToDepth", SQUARE, SquareBlock(), example_inputs="1,2,4,4"),
    op(
        "Reshape", "SpaceToDepth", OBLONG, reads(*BLOCK), before_lift=depth_of_space, lift_only=True
    ),
    op(
        "netconv::SpaceToBatch",
        "SpaceToBatch",
        spread("block_size", *BLOCK, kind=int),
        spread("pads", *pad_keys(), kind=int),
        example_inputs="1,4,6,6",
    ),
    op(
        "netconv::BatchToSpace",
        "BatchToSpace",
        spread("block_size", *BLOCK, kind=int),
        Crops(),
        example_inputs="4,2,3,3",
    ),
    custom("", "BatchToSpaceND", lift=lift_batch_to_space_nd),
    op(
        "netconv::ShuffleChannels",
        "ChannelShuffle",
        Guard("only data of rank 4 are supported", lambda w: w.rank() == 4),
        Attr("group", kind=int),
        SHARES,
        example_inputs="1,4,8,8",
    ),
    op(
        "ReverseSequence",
        "ReverseSequence",
        int64(1),
        *attrs(batch_axis=1, time_axis=0),
        example_inputs="3,2 2",
    ),
    op(
        "Shape",
        "Shape",
        Attr("start", kind=int, default=None),
        Attr("end", kind=int, default=None),
        lift_only=True,
    ),
    op(
        "Trilu",
        "Trilu",
        Const(1, "k", int, default=0),
        Attr("upper", kind=bool, default=1),
        lift_only=True,
        example_inputs="3,3 =(1)",
    ),
    op("Expand", "ConstantOfShape", reads("value"), before_lift=filled_with, lift_only=True),
    custom("", "Dummy", lift=lift_dummy),
    custom("", "Meshgrid", lift=lift_meshgrid),
]
