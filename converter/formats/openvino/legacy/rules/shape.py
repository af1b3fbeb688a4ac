"""Layers that move, cut and join elements.

The ports have the sizes; attributes and operands only repeat them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.openvino.fields import BLOCKS, BLOCKS_APART, SlicePlan, words
from converter.formats.openvino.legacy.rules.context import (
    MOST_AXES,
    LiftContext,
    LowerContext,
    is_float,
)
from converter.formats.openvino.legacy.rules.fields import (
    FLOATS,
    MARK_LAYER,
    NO_AXES,
    SQUEEZE_ALL,
    ToPort,
)
from converter.graph.demands import axis_of, of_length
from converter.graph.open_sizes import sizes_in_file
from converter.graph.sizes import mirrored
from converter.mapping.concepts.axes import Axis, Permutation
from converter.mapping.concepts.pads import Pads
from converter.mapping.fields import (
    Attr,
    Detail,
    Field,
    Guard,
    RequireAttr,
    RequireKey,
    WriteKey,
    ignore,
    ignore_inputs,
)
from converter.mapping.rules import Custom, Rule, custom, op
from converter.record import record

# the shape alone ---------------------------------------------------------------------------------


def extra_axes(few: list[int], many: list[int]) -> list[int]:
    """Return the axes of length 1 that `many` has in addition to those of `few`; none if they
    differ otherwise.
    """
    found, left = [], list(few)
    for axis, size in enumerate(many):
        if left and left[0] == size:
            left.pop(0)
        elif size == 1:
            found.append(axis)
        else:
            return []
    return [] if left else found


@record
class OriginalKind(Field):
    """A Reshape that was a layer of another type, and is written as one again; `axes` of that layer
    follow from the shapes.
    """

    kind: str

    def lower(self, w: LowerContext) -> None:
        before, after = w.shape(), w.shape(w.out)
        axes = {"Unsqueeze": (before, after), "Squeeze": (after, before)}.get(self.kind)
        found = extra_axes(*axes) if axes else []
        flat = bool(before) and after == [before[0], math.prod(before[1:])]
        if w.before() != self.kind or not (found if axes else flat):
            raise MappingError(f"the layer must be {self.kind}")
        w.set_inputs(w.data, *([found] if axes else []))
        if not axes:
            w.set(axis=1, end_axis=-1)


TO_PORT = (ToPort(), MARK_LAYER)
GIVEN_BY_PORT = ignore_inputs(1)
CHANGED = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")

RESHAPES = [
    *(
        op("Reshape", kind, *TO_PORT, OriginalKind(kind), *ignored, example_inputs=given)
        for kind, ignored, given in (
            ("Unsqueeze", [ignore("expand_dim"), GIVEN_BY_PORT], "2,3 =[2,1,3]"),
            ("Squeeze", [ignore("keep_at_least_1d"), GIVEN_BY_PORT], "2,1,3 =[2,3]"),
            ("Flatten", [ignore("axis", "end_axis")], "2,1,3 =[2,3]"),
        )
    ),
    op(
        "Reshape",
        "Reshape",
        *TO_PORT,
        # the port takes precedence over them and the second input
        ignore("dim", "shape", "axis", "num_axes", "end_axis", "special_zero"),
        GIVEN_BY_PORT,
        example_inputs="2,3 =[3,2]",
    ),
    op("Reshape", "Squeeze", NO_AXES, SQUEEZE_ALL, lower_only=True, example_inputs="1 =[]"),
    op("Squeeze", "Squeeze", NO_AXES, SQUEEZE_ALL, lower_only=True, example_inputs="1 =[0]"),
    *(op(name, "Reshape", ToPort(), lower_only=True) for name in CHANGED[1:]),
]


# axes --------------------------------------------------------------------------------------------


def cast_to_port(r: LiftContext) -> None:
    """Cast operands of several types to the type of the port."""
    kinds = {v.dtype for v in r.node.inputs if v is not None}
    if len(kinds) > 1:
        to = r.declared()
        r.node.inputs = [r.cast(v, to) for v in r.node.inputs if v is not None]


ONE_AXIS = Guard("only one axis is supported", lower_if=lambda w: len(w.shape()) < 2)


# pieces ------------------------------------------------------------------------------------------


class Pieces(Field):
    """Pieces with the lengths of the output ports."""

    names = ("axis", "num_outputs")
    keys = ("axis", "num_split", "num_splits", "out_sizes", "slice_point")
    inputs = (1,)

    def lift(self, r: LiftContext) -> None:
        axis = r.axis(1)
        sizes = [r.dims(i, least=axis + 1)[axis] for i in range(r.outputs)]
        total = r.static()[axis]
        if sum(sizes) != total:
            message = f"the output ports have {sum(sizes)} of {total} elements along axis {axis}"
            raise MappingError(message, "R105")
        r.set(axis=axis)
        r.set_inputs(r.data, r.b.const(sizes, "sizes"))

    def lower(self, w: LowerContext) -> None:
        axis = w.attr("axis", 0) % len(w.shape())
        if not all(w.used(i) for i in range(len(w.node.outputs))):
            raise MappingError(
                "every output must have a consumer, because an unused port would "
                "be an output of the network"
            )
        w.set(axis=axis)
        if w.layer.kind == "Split":
            w.set(num_split=len(w.node.outputs))


def equal_pieces(w: LowerContext) -> bool:
    """Return whether all parts have one size, or the operator was read from a legacy Split."""
    axis = w.attr("axis", 0)
    sizes = {w.shape(v)[axis] for v in w.node.outputs}
    return len(sizes) == 1 or w.before() == "Split"


def cuts(w: LowerContext) -> None:
    """Write each used piece as a separate slice if some are unused. A single piece is the whole."""
    outputs = w.node.outputs
    if len(outputs) == 1:
        w.finish(w.data)
        return
    axis = w.attr("axis", 0) % len(w.shape())
    starts = np.cumsum([0, *(w.shape(v)[axis] for v in outputs)]).tolist()
    for i, (out, start) in enumerate(zip(outputs, starts, strict=False)):
        if w.used(i):
            cut(w, w.data, out, {axis: start})


def cut(w: LowerContext, x: ir.Value, out: ir.Value, starts: Mapping[int, int]) -> None:
    """Slice from each of the starts to the size of `out`; Crop supports tensors of 2, 4 and 5
    axes.
    """
    if len(w.shape(out)) in (2, 4, 5):
        w.put("Crop", x, outputs=[out], **crop(w.shape(out), starts))
    else:
        attrs, operands = strides(w, x, out, starts, dict.fromkeys(starts, 1))
        w.put("StridedSlice", x, *operands, outputs=[out], **attrs)


def crop(lengths: list[int], starts: Mapping[int, int]) -> dict[str, list[int]]:
    """Return the attributes of a Crop: offsets and lengths along the axes of `starts`."""
    axes = list(starts)
    return {"axis": axes, "offset": list(starts.values()), "dim": [lengths[a] for a in axes]}


def strides(
    w: LowerContext, x: ir.Value, out: ir.Value, first: Mapping[int, int], pace: Mapping[int, int]
) -> tuple[dict[str, list[int]], list[list[int]]]:
    """Return the masks, and begin, end and stride of each axis. No number means "before the first
    element".
    """
    size, lengths = w.shape(x), w.shape(out)
    begin = [first.get(a, 0) for a in range(len(size))]
    stride = [pace.get(a, 1) for a in range(len(size))]
    last = [b + s * n for b, s, n in zip(begin, stride, lengths, strict=True)]
    mask = [int(v >= 0 and a in pace) for a, v in enumerate(last)]
    end = [v if m else 0 for v, m in zip(last, mask, strict=True)]
    nothing = [0] * len(size)
    attrs = {"begin_mask": [int(a in pace) for a in range(len(size))], "end_mask": mask}
    attrs |= dict.fromkeys(("new_axis_mask", "shrink_axis_mask", "ellipsis_mask"), nothing)
    return attrs, [begin, end, stride]


@record
class Slice:
    """Starts and steps of a Slice by axis, with negative numbers resolved."""

    first: dict[int, int]
    steps: dict[int, int]

    @classmethod
    def of(cls, w: LowerContext) -> Slice:
        """Return the first indices and the steps of a Slice along its axes."""
        size, lengths, starts = w.shape(), w.shape(w.out), w.ints(1, "starts")
        axes = w.ints(3, "axes", range(len(starts)))
        axes = [a % len(size) for a in axes]
        steps = w.ints(4, "steps", [1] * len(starts))
        along = zip(axes, starts, steps, strict=True)
        first = {a: range(size[a])[slice(s, None, t)][0] if lengths[a] else 0 for a, s, t in along}
        return cls(first, dict(zip(axes, steps, strict=True)))


class Crop(Field):
    """A crop in one of three forms, which the attributes determine. The port determines the size of
    the result.
    """

    keys = ("axis", "offset", "dim", "crop_begin", "crop_end")
    inputs = (1, 2, 3, 4)

    def lift(self, r: LiftContext) -> None:
        out, given = r.dims(), r.layer.attrs
        axes = [axis_of(a, len(out)) for a in r.attr("axis", list, [1])]
        key = "crop_begin" if "crop_begin" in given else "offset"
        starts = r.attr(key, list, [0] * len(axes))
        if len(starts) != len(axes):
            raise MappingError(
                f"{len(axes)} axes and {len(starts)} offsets are given, but need the same number",
                "R110",
            )
        # other axes are cut at the end
        sizes = sizes_in_file(r.data)
        if len(sizes) != len(out):
            raise MappingError(f"{len(sizes)} axes are cropped to {len(out)}", "R105")
        others = [i for i, n in enumerate(sizes) if i not in axes and n not in (None, out[i])]
        axes, starts = [*axes, *others], [*starts, *[0] * len(others)]
        ends = [s + out[a] for s, a in zip(starts, axes, strict=True)]
        r.set_inputs(r.data, *(r.b.const(v) for v in (starts, ends, axes)))

    def lower(self, w: LowerContext) -> None:
        size, lengths, found = w.shape(), w.shape(w.out), Slice.of(w)
        if len(size) not in (2, 4, 5) or any(s != 1 for s in found.steps.values()):
            raise MappingError("Crop needs adjacent axes, and tensors of rank 2, 4 or 5")
        first = found.first
        short = {a: s for a, s in first.items() if size[a] != lengths[a]}
        whole = dict(list(first.items())[:1]) or {0: 0}  # a Crop has one axis at least
        w.set(**crop(lengths, short or whole))


class MaskedSlice(Field):
    """Operands begin, end and strides; a mask bit of 1 means that the value of begin or end is
    used. New and removed axes follow from the shape of the port.
    """

    keys = ("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask")
    inputs = (1, 2, 3, 4)

    def lift(self, r: LiftContext) -> None:
        size, begin, end = r.static(), r.ints(1, "begin"), r.ints(2, "end")
        count = min(len(begin), len(end))
        stride = [1] * count if r.optional(3) is None else r.ints(3, "stride")
        of_length(count, stride=stride)
        masks = {}
        for key in self.keys:
            given = r.attr(key, list, [])
            default = int(key in ("begin_mask", "end_mask"))
            masks[key] = [*given, *[default] * (count - len(given))]
        cuts = []
        for i, axis in SlicePlan.of(count, len(size), masks).sliced:
            first, last, step = begin[i], end[i], stride[i]
            if masks["shrink_axis_mask"][i]:
                last, step = first + 1 if first != -1 else size[axis], 1
            else:
                if not masks["begin_mask"][i]:
                    first = 0 if step > 0 else size[axis] - 1
                if not masks["end_mask"][i]:
                    last = size[axis] if step > 0 else -size[axis] - 1
            if (first, last, step) != (0, size[axis], 1):
                cuts.append((first, last, axis, step))
        operands = zip(*cuts or [(0, size[0], 0, 1)], strict=True)
        r.set_inputs(r.data, *map(list, operands))

    def lower(self, w: LowerContext) -> None:
        found = Slice.of(w)
        size, lengths = w.shape(), w.shape(w.out)
        first, pace = found.first, found.steps
        if all(s == 1 for s in pace.values()):
            short = [a for a in first if size[a] != lengths[a]] or list(first)[:1]
            first, pace = {a: first[a] for a in short}, dict.fromkeys(short, 1)
        attrs, operands = strides(w, w.data, w.out, first, pace)
        w.set(**attrs)
        w.set_inputs(w.data, *operands)


# spreading ---------------------------------------------------------------------------------------


class Tiles(Field):
    """One layer for each axis that is repeated.

    Tensors of more than five axes are flattened to rows, one for each element of the axes before
    that axis.
    """

    keys = ("axis", "tiles")
    inputs = (1,)

    def lift(self, r: LiftContext) -> None:
        axis = r.axis(-1)
        r.set_inputs(r.data, [r.attr("tiles", int) if i == axis else 1 for i in range(r.rank())])

    def lower(self, w: LowerContext) -> None:
        x = w.data
        repeats = [(a, n) for a, n in enumerate(w.ints(1, "repeats")) if n != 1]
        if not repeats:
            raise no_match("no axis is repeated")
        shape, *front, last = w.shape(), *repeats
        for axis, count in front:
            shape[axis] *= count
            x, given, attrs = self._rows(w, x, shape, axis, count)
            x = w.reshaped(w.emit("Tile", x, shape=given, **attrs), shape)
        shape[last[0]] *= last[1]
        x, given, attrs = self._rows(w, x, shape, *last)
        w.set_inputs(x)
        w.set(**attrs)
        w.gives(given)

    def _rows(
        self, w: LowerContext, x: ir.Value, shape: list[int], axis: int, count: int
    ) -> tuple[ir.Value, list[int], dict[str, Any]]:
        """Return the value that is repeated to `shape`, the resulting shape, and the attributes."""
        if len(shape) <= MOST_AXES:
            return x, shape, {"axis": axis, "tiles": count}
        rows, row = math.prod(shape[:axis]), math.prod(shape[axis:])
        return w.reshaped(x, [rows, row // count]), [rows, row], {"axis": 1, "tiles": count}


class Spread(ToPort):
    """Input 0 broadcast to the shape of the port; input 1 contains the same shape."""

    def lower(self, w: LowerContext) -> None:
        shape = w.shape(w.out)
        wide = w.widened(w.data, len(shape))
        if w.shape(wide) == shape:
            raise no_match("no axis is broadcast")
        w.set_inputs(wide, shape)


def filling(r: LiftContext) -> None:
    """Read a fill: input 1 is the number, input 0 the shape."""
    value = r.input(1)
    value = value if not r.static(value) else r.b.Reshape(value, [])
    r.set_inputs(value, list(r.dims()))


# borders -----------------------------------------------------------------------------------------


class Amounts(Pads):
    """pads_begin and pads_end; `pad_value` <-> input 2."""

    keys = ("pads_begin", "pads_end", "pad_value")
    inputs = (1, 2, 3)

    def read(self, r: LiftContext) -> list[int]:
        if r.node.attrs["mode"] == "constant":
            r.set_input(2, r.b.like(r.input(0), r.attr("pad_value", float, 0.0)))
        return [*r.attr("pads_begin", list), *r.attr("pads_end", list)]

    def write(self, w: LowerContext, before: list[int], after: list[int]) -> None:
        value = w.number(2) if w.has(2) else 0.0
        if value is None:
            raise MappingError("the padding value must be constant")
        if value and not is_float(w.data):  # the engine writes the bits of the number's float
            raise MappingError("the padding value of integers must be 0")
        w.set(pads_begin=before, pads_end=after)
        if w.attr("mode") == "constant":
            w.set(pad_value=value)


def by_mirror(r: LiftContext) -> None:
    """Pad with the `symmetric` mode, which repeats the edge: a Gather along each axis, since ONNX
    does not support it.
    """
    x = r.input(0)
    amounts = [r.attr(k, list) for k in ("pads_begin", "pads_end")]
    of_length(r.rank(x), pads_begin=amounts[0], pads_end=amounts[1])
    for axis, pair in enumerate(zip(*amounts, strict=True)):
        if any(pair):
            x = r.b.Gather(x, mirrored(r.static(x)[axis], *pair), axis=axis)
    r.set_inputs(x)


# blocks ------------------------------------------------------------------------------------------


def shuffled(r: LiftContext) -> None:
    """Shuffle channels along an axis other than 1; the operator is the last Reshape."""
    size, group = list(r.static()), r.count("group", 1)
    axis, rank = r.axis(1), len(size)
    split = r.b.Reshape(r.input(0), [*size[:axis], group, size[axis] // group, *size[axis + 1 :]])
    order = [*range(axis), axis + 1, axis, *range(axis + 2, rank + 1)]
    r.data = r.b.Transpose(split, perm=order)


IMAGES = Guard("only data of rank 4 are supported", lift_if=lambda r: r.rank() == 4)
FIRST = Guard("mode must be blocks_first", lift_if=lambda r: r.attr("mode", BLOCKS, "DCR") == "DCR")
CHANNELS = Guard(
    "ShuffleChannels is only supported for data of rank 4",
    lambda w: len(w.shape()) == 4,
    lambda r: r.axis(1) == 1,
)
BLOCK = Attr("blocksize", "block_size", int, 1)

# the engine's own DepthToSpace is wrong for more than one channel
REARRANGED = [
    op(
        "DepthToSpace",
        "DepthToSpace",
        IMAGES,
        BLOCK,
        Attr("mode", kind=BLOCKS, default="DCR"),
        lift_only=True,
    ),
    op("SpaceToDepth", "SpaceToDepth", IMAGES, FIRST, BLOCK, ignore("mode"), lift_only=True),
    *BLOCKS_APART,
    op(
        "netconv::ShuffleChannels",
        "ShuffleChannels",
        FLOATS,
        CHANNELS,
        Attr("group", kind=int, default=1),
        WriteKey("axis", 1),
        example_inputs="1,4,8,8",
    ),
    op(
        "Reshape",
        "ShuffleChannels",
        ToPort(),
        ignore("axis", "group"),
        before_lift=shuffled,
        lift_only=True,
    ),
]


SEVERAL = Guard(
    "a Split into one part is not supported",
    lambda w: len(w.node.outputs) > 1,
    lambda r: r.outputs > 1,
)
ONE_PORT = Guard("only one output port is supported by this rule", lift_if=lambda r: r.outputs == 1)


def same_count(w: LowerContext) -> bool:
    """Return whether data and result have as many elements."""
    return math.prod(w.shape()) == math.prod(w.shape(w.out))


PAD_MODE = words("constant", "edge", "reflect")
NOT_SPREAD = Guard("the data must not be broadcast", lambda w: same_count(w))
NO_REPEATS = Guard("the data must not be repeated", lambda w: set(w.ints(1, "repeats")) <= {1})

RULES: list[Rule | Custom] = [
    *RESHAPES,
    *REARRANGED,
    op(
        "Transpose",
        "Reshape",
        ONE_AXIS,
        ToPort(),
        RequireAttr("perm", [0]),
        lower_only=True,
        example_inputs="3",
    ),
    op("Transpose", "Permute", Permutation("order", absent=True)),
    op("Concat", "Concat", Axis(default=1), Detail(read=cast_to_port)),
    *(
        op("Identity", kind, ONE_PORT, ignore(*Pieces.keys), lift_only=True)
        for kind in ("Split", "Slice")
    ),
    op(
        "Split",
        "Split",
        SEVERAL,
        Guard("the parts must have one size", equal_pieces),
        Pieces(),
        MARK_LAYER,
        example_inputs="2,6 =[3,3]",
    ),
    op("Split", "Slice", SEVERAL, Pieces(), MARK_LAYER, example_inputs="2,6 =[1,5]"),
    op("Tile", "Reshape", NO_REPEATS, ToPort(), lower_only=True, example_inputs="2,3 =[1,1]"),
    op("Tile", "Tile", Tiles()),
    op("Expand", "Broadcast", Spread(), ignore("mode", "axis", "num_axes"), GIVEN_BY_PORT),
    op("Expand", "Reshape", NOT_SPREAD, ToPort(), lower_only=True, example_inputs="3 =[1,3]"),
    op(
        "Expand",
        "Expand",
        Spread(),
        ignore("mode", "axis", "num_axes"),
        GIVEN_BY_PORT,
        lift_only=True,
    ),
    op("Expand", "Fill", ignore_inputs(0), before_lift=filling, lift_only=True),
    op(
        "Identity",
        "Pad",
        RequireKey("pad_mode", "symmetric", kind=str),
        ignore(*Amounts.keys),
        before_lift=by_mirror,
        lift_only=True,
    ),
    op(
        "Pad",
        "Pad",
        Attr("mode", "pad_mode", PAD_MODE, "constant"),
        Amounts(),
        example_inputs="2,3 =[0,1,1,0]",
    ),
    # a second input is of the size that the port has
    op("Slice", "Crop", Crop(), ignore_inputs(1), example_inputs="2,6 =[1] =[3] =[1]"),
    op("Slice", "StridedSlice", MaskedSlice(), example_inputs="2,6 =[1] =[6] =[1] =[2]"),
    custom("Split", "", lower=cuts),
]
