"""Reshaping, transposing, joining, splitting, padding, and moving blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.lite.shape import PACK, RANK
from converter.formats.nnapi.collector import NARROW
from converter.formats.nnapi.rules.context import LiftContext, LowerContext
from converter.graph.demands import at_least, shaped
from converter.graph.infer import known, shape_of
from converter.graph.sizes import arange, demand_small
from converter.mapping.codecs import same
from converter.mapping.concepts.axes import Axis, Permutation, permutation
from converter.mapping.concepts.pads import Pads
from converter.mapping.fields import (
    Attr,
    Detail,
    Field,
    Group,
    Guard,
    InputType,
    RequireAttr,
    RequireKey,
)
from converter.mapping.rules import Custom, Rule, custom, op, ops
from converter.record import record

# reshape and transpose ---------------------------------------------------------------------------


class Shape(Field):
    """Input 1 <-> `shape`. A shape that is known only at run time is replaced by the declared shape
    of the result, if there is one.
    """

    names = ("allowzero", "axis", "perm")  # of operators that are written as this one
    inputs = (1,)
    blobs = ("shape",)

    def lift(self, r: LiftContext) -> None:
        given, stated = r.layer.blobs["shape"], r.output().dimensions
        if stated and shape_of(given) not in (None, (len(stated),)):
            raise MappingError(
                f"the shape of the result contradicts the {len(stated)} elements of shape", "R105"
            )
        if known(given) is not None or not stated or 0 in stated:
            r.set_input(1, r.cast(given, ir.DataType.INT64))
        else:
            r.set_input(1, r.b.const(np.array(stated, np.int64), "shape"))

    def lower(self, w: LowerContext) -> None:
        w.set(shape=list(w.result_shape()) or [1])


class AddedAxis(Field):
    """The additional axis of length 1 of the result <-> `axis`."""

    names = ("allowzero", "axis")  # of operators that are written as this one
    inputs = (1,)
    keys = ("axis",)

    def lift(self, r: LiftContext) -> None:
        r.set_input(1, [r.attr("axis", int)])

    def lower(self, w: LowerContext) -> None:
        added = w.added(w.ref(0), list(w.result_shape()))
        if not added:
            raise MappingError("only one axis of length 1 can be added")
        w.set(axis=added[0])


def read_squeezed_axes(r: LiftContext) -> None:
    """The axes of length 1 to remove <-> `axes`; without it all of them."""
    if axes := r.attr("axes", list, []):
        r.set_input(1, axes)


def write_squeezed_axes(w: LowerContext) -> None:
    """Write the axes of a Squeeze, if it names any."""
    if w.has(1):
        w.set(axes=w.ints(1, "the axes"))


SQUEEZED_AXES = Detail(
    read=read_squeezed_axes, write=write_squeezed_axes, inputs=(1,), keys=("axes",)
)


def stays(w: LowerContext) -> bool:
    """Return whether a permutation only moves axes of length 1, so that the data do not change."""
    dims = w.static()
    moved = [i for i in permutation(w) if dims[i] != 1]
    return moved == sorted(moved) and len(dims) <= 4


def expands(w: LowerContext) -> bool:
    """Level 6 reshapes integers too; lower levels only add an axis."""
    dtype = w.data.dtype
    return w.version < 6 and NARROW.get(dtype or ir.DataType.FLOAT, dtype) == ir.DataType.INT32


def same_dimensions(t: LowerContext) -> None:
    """Write an operator that keeps the dimensions of its operand as no operation at all."""
    dims = t.about(t.real(t.data)).dimensions
    if t.quantized or dims != (list(t.result_shape()) or [1]):
        raise no_match("the dimensions must not change")
    t.alias(t.node.outputs[0], t.data)


EXPANDS = Guard("a Reshape is used for floating-point data, and from feature level 6", expands)

# join and split ----------------------------------------------------------------------------------


def read_equal_parts(r: LiftContext) -> None:
    """Read the number of equal parts; other sizes are written as slices."""
    r.set(num_outputs=r.attr("count", int))


def write_equal_parts(w: LowerContext) -> None:
    """Write the number of parts, which must have one size."""
    count = len(w.node.outputs)
    sizes = {w.result_shape(i)[w.axis()] for i in range(count)}
    if len(sizes) > 1 or len(w.static()) > 4:
        raise MappingError("the parts must have one size, and the data at most four axes")
    w.set(count=count)


EQUAL_PARTS = Detail(
    read=read_equal_parts,
    write=write_equal_parts,
    names=("num_outputs",),
    inputs=(1,),
    keys=("count",),
)


def as_vector(r: LiftContext) -> None:
    """Return a scalar of the graph as a vector of one element."""
    if r.rank(r.data) == 0:
        r.data = r.reshape(r.data, [1])


def write_repeated(w: LowerContext) -> None:
    """Write an Expand as the number of repetitions of each axis."""
    out = w.result_shape()
    dims = [1] * (len(out) - len(w.static())) + list(w.static())
    w.operands[0] = w.reshaped(w.ref(0), dims)
    many = [1 if n == m else m for n, m in zip(dims, out, strict=True)]
    w.set(multiples=many or [1])


REPEATED = Detail(write=write_repeated, inputs=(1,), keys=("multiples",))


def write_times_ones(w: LowerContext) -> None:
    """Write an Expand as a product with ones in the shape of the result."""
    dims = list(w.result_shape()) or [1]
    demand_small(*dims)
    w.set(b=w.number(np.ones(dims), w.ref(0)), activation=0)


TIMES_ONES = Detail(write=write_times_ones, inputs=(1,), keys=("b", "activation"))


def old_and_real(w: LowerContext) -> bool:
    """Return whether the feature level is below 3 and the data are not quantized."""
    return w.version < 3 and not w.quantized


def read_filled(r: LiftContext) -> None:
    """Read a scalar `value`, which may be computed, in a given shape."""
    r.set_inputs(r.layer.blobs["value"], r.cast(r.data, ir.DataType.INT64))


FILLED = Detail(read=read_filled, blobs=("value",))


# pads --------------------------------------------------------------------------------------------


class Amounts(Pads):
    """The operand `paddings`: pairs (before, after) for each axis."""

    keys = ("paddings",)

    def read(self, r: LiftContext) -> ir.Value:
        pairs = shaped(r.array("paddings"), r.rank(r.data), 2, what="paddings")
        return r.b.const(pairs.T.reshape(-1).astype(np.int64), "pads")

    def write(self, w: LowerContext, before: list[int], after: list[int]) -> None:
        w.set(paddings=np.array([before, after], np.int32).T)


@record
class PadValue(Field):
    """The value of the padding at input 2 <-> zero, or `pad_value` if it is given (`said`). With
    quantized data it is an integer in their scale.
    """

    said: bool
    inputs = (2,)

    def __post_init__(self) -> None:
        self.keys = ("pad_value",) if self.said else ()

    def lift(self, r: LiftContext) -> None:
        value = float(r.attr("pad_value", same)) if self.said else 0.0
        operand = r.operand("input")
        if operand.scale and self.said and r.operand("pad_value").type.name == "INT32":
            value = (value - operand.zero_point) * operand.scale
        r.set_input(2, r.b.like(r.data, value))

    def lower(self, w: LowerContext) -> None:
        array = w.constant(2, "the value").reshape(-1)[0] if w.has(2) else 0.0
        value = float(array)
        if not self.said:
            if value != 0 or (w.version >= 3 and np.signbit(value)):
                raise MappingError("the padding value must be 0")
            return
        operand = w.about(w.ref(0))
        stored = round(value / operand.scale) + operand.zero_point if operand.scale else value
        w.set(pad_value=stored)


class Symmetric(Field):
    """Symmetric padding, which mirrors the data with the border element: a Gather for each axis."""

    names = ("axis",)
    inputs = (1,)
    keys = ("paddings",)

    def lift(self, r: LiftContext) -> None:
        pairs = shaped(r.array("paddings"), r.rank(r.data), 2, what="paddings").tolist()
        at_least(0, paddings=[n for pair in pairs for n in pair])
        axes = [i for i, pair in enumerate(pairs) if any(pair)] or [0]
        sizes = r.static(r.data)
        orders = [np.pad(arange(sizes[i]), pairs[i], "symmetric") for i in axes]
        for axis, order in zip(axes[:-1], orders, strict=False):
            r.data = r.b.Gather(r.data, order, axis=axis)
        r.set_input(1, orders[-1])
        r.set(axis=axes[-1])


# blocks ------------------------------------------------------------------------------------------


def space_to_batch_pads() -> Group:
    """Return the field for paddings of height and width, which NNAPI has as pairs."""

    def lift(r: LiftContext) -> dict[str, Any]:
        given = np.array(r.layer.attrs["paddings"])
        (top, bottom), (left, right) = shaped(given, 2, 2, what="paddings").tolist()
        return {"pads": [top, left, bottom, right]}

    def lower(w: LowerContext) -> dict[str, Any]:
        top, left, bottom, right = w.attr("pads")
        return {"paddings": [[top, bottom], [left, right]]}

    return Group(("pads",), ("paddings",), lift, lower)


def read_shuffled(r: LiftContext) -> None:
    """Read a shuffle: an axis of groups * m elements is reshaped to [groups, m] and transposed."""
    shape, groups = list(r.static(r.data)), r.count("groups")
    i = r.attr("axis", int) % len(shape)
    parts = [*shape[:i], groups, shape[i] // groups, *shape[i + 1 :]]
    r.data = r.b.Reshape(r.data, parts)
    r.set(perm=[*range(i), i + 1, i, *range(i + 2, len(parts))])
    r.after_first(lambda y: r.b.Reshape(y, shape))


SHUFFLED = Detail(read=read_shuffled, names=("perm",), keys=("axis", "groups"))


def of_channels(r: LiftContext) -> bool:
    """Return whether the axis is the last of four, the channels of images."""
    return r.attr("axis", int) in (3, -1) and r.shape()[3:] != ()


OF_CHANNELS = Guard(
    "only the channels of images are supported by this operation", lift_if=of_channels
)
BLOCKS = Attr("block_size", "block_sizes", list)
RULES: list[Rule | Custom] = [
    custom("Reshape Flatten Squeeze Unsqueeze", "", lower=same_dimensions),
    op("Unsqueeze", "EXPAND_DIMS", EXPANDS, AddedAxis(), example_inputs="i32:2,3 =[1]"),
    op(
        "Reshape",
        "EXPAND_DIMS",
        EXPANDS,
        AddedAxis(),
        lower_only=True,
        example_inputs="i32:2 =[2,1]",
    ),
    op("Flatten", "EXPAND_DIMS", EXPANDS, AddedAxis(), lower_only=True, example_inputs="i32:3"),
    op("Reshape", "RESHAPE", Shape()),
    *ops("Flatten=RESHAPE Squeeze=RESHAPE Unsqueeze=RESHAPE", Shape(), lower_only=True),
    op("Squeeze", "SQUEEZE", SQUEEZED_AXES, lift_only=True),
    op(
        "Transpose",
        "RESHAPE",
        Guard("data must not be moved in memory", stays),
        Shape(),
        lower_only=True,
        example_inputs="1,3",
    ),
    op("Transpose", "TRANSPOSE", Permutation("permutation", absent=True)),
    op("Concat", "CONCATENATION", Axis()),
    PACK,
    op("Split", "SPLIT", Axis(), EQUAL_PARTS),
    op("Tile", "TILE", InputType((1,)), before_lift=as_vector),
    op(
        "Expand",
        "MUL",
        Guard("the data must not be repeated", old_and_real),
        TIMES_ONES,
        lower_only=True,
    ),
    op("Expand", "TILE", REPEATED, lower_only=True),
    op("Expand", "FILL", FILLED, lift_only=True),
    RANK,
    op("Pad", "PAD", RequireAttr("mode", "constant"), Amounts(), PadValue(False)),
    op("Pad", "PAD_V2", RequireAttr("mode", "constant"), Amounts(), PadValue(True)),
    op("Pad", "MIRROR_PAD", RequireAttr("mode", "reflect"), RequireKey("mode", 0), Amounts()),
    op("Gather", "MIRROR_PAD", RequireKey("mode", 1), Symmetric(), lift_only=True),
    op(
        "DepthToSpace",
        "DEPTH_TO_SPACE",
        RequireAttr("mode", "DCR"),
        Attr("blocksize", "block_size", int),
    ),
    op("SpaceToDepth", "SPACE_TO_DEPTH", Attr("blocksize", "block_size", int)),
    op("netconv::BatchToSpace", "BATCH_TO_SPACE_ND", BLOCKS, example_inputs="4,3,4,4"),
    op(
        "netconv::SpaceToBatch",
        "SPACE_TO_BATCH_ND",
        BLOCKS,
        space_to_batch_pads(),
        example_inputs="1,3,4,4",
    ),
    op(
        "netconv::ShuffleChannels",
        "CHANNEL_SHUFFLE",
        OF_CHANNELS,
        Group((), ("axis",), lower_=lambda w: {"axis": 3}),
        Attr("group", "groups", int),
        example_inputs="1,4,3,3",
    ),
    op("Transpose", "CHANNEL_SHUFFLE", SHUFFLED, lift_only=True),
]
