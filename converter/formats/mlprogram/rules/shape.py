"""Reshaping, transposing, joining, splitting, padding, slicing, and moving blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.mlprogram.rules.context import Reading, Several, Writing
from converter.formats.mlprogram.rules.fields import (
    Whole,
    axes_of,
    first_axis,
    listed,
    mil,
    numbers,
    size_of,
)
from converter.graph.demands import at_least, axis_of, of_counts, of_length, shaped
from converter.graph.infer import constant, known
from converter.graph.sizes import arange
from converter.graph.value import Value
from converter.mapping.context import rank as rank_of
from converter.mapping.fields import Attr, Field, Only
from converter.mapping.rules import Custom, Rule, custom, op

LARGE, SMALL = np.iinfo(np.int64).max, np.iinfo(np.int64).min + 1
IOS17 = 8  # the specification version
FAR = np.iinfo(np.int32).max


def reshaped(r: Reading) -> Value:
    """0 takes the size at its place: from the front before iOS17, from behind since."""
    b = r.b
    x, shape = r.x, r.whole("shape")
    array = known(shape)
    if array is not None and 0 in array:
        sizes, own = [int(n) for n in array], r.static(x)
        late = r.version >= IOS17
        for i, n in enumerate(sizes):
            j = i - len(sizes) + len(own) if late else i
            if n == 0:
                sizes[i] = own[j] if 0 <= j < len(own) else 1
        return b.Reshape(x, sizes)
    return b.Reshape(x, shape)


def write_reshape(w: Writing) -> None:
    """Into sizes that are known but for one, or are computed; one element without axes is
    squeezed.
    """
    x, out = w.data, w.node.outputs[0]
    sizes = None if out.shape is None else [n if isinstance(n, int) else -1 for n in out.shape]
    if sizes == [] and not w.rank():
        w.operation("identity", x=x)
    elif sizes == []:
        w.operation("squeeze", x=x)
    elif sizes is not None and not w.rank():
        w.operation("expand_dims", x=x, axes=list(range(len(sizes))))
    elif sizes is not None and sizes.count(-1) < 2:
        w.operation("reshape", x=x, shape=sizes)
    elif w.node.op == "Reshape" and not copies(w):
        w.operation("reshape", x=x, shape=w.input(1))
    else:
        raise MappingError("several sizes that are not known")


def copies(w: Writing) -> bool:
    """Whether a size of 0 stands for that of the operand."""
    given = known(w.optional(1))
    return not w.attr("allowzero", 0) and given is not None and bool((given == 0).any())


class Squeezed(Field):
    keys, inputs = ("axes",), (1,)

    def lower(self, w: Writing) -> None:
        if w.has(1):
            rank = rank_of(w.node.outputs[0], "the result") if self.more else w.rank()
            axes = sorted(a % max(1, rank) for a in w.ints(1, "axes"))
            if not axes:
                raise MappingError("no axes")
            w.layer.attrs["axes"] = axes

    def __init__(self, more: bool = False) -> None:
        self.more = more

    def lift(self, r: Reading) -> None:
        if (axes := listed(r, "axes")) is not None:
            r.node.set_input(1, numbers(r, axes, "axes"))


class Permutation(Field):
    keys = ("perm",)
    names = ("perm",)

    def lift(self, r: Reading) -> None:
        rank, perm = r.rank(r.data), listed(r, "perm") or []
        found = [p % rank for p in perm] if rank else []
        if sorted(found) != list(range(rank)):
            raise MappingError(f"{perm} is no permutation of {rank} axes", "R110")
        r.node.attrs["perm"] = found

    def lower(self, w: Writing) -> None:
        perm = list(w.attr("perm", None) or range(w.rank())[::-1])
        if not perm:
            raise MappingError("a value without axes")
        w.set(perm=perm)


def concat(r: Reading) -> ir.Value:
    """`interleave`: one place of each value in turn."""
    b, axis = r.b, r.attr("axis", int)
    values = [
        b.Reshape(v, [1]) if v.shape is not None and not v.shape else v for v in r.values("values")
    ]
    if not r.attr("interleave", bool, False):
        return b.Concat(*values, axis=axis)
    rank = r.rank(values[0])
    axis %= rank
    stacked = b.Concat(*(b.Unsqueeze(v, [axis + 1]) for v in values), axis=axis + 1)
    shape = b.Shape(values[0])
    front, back = shape[:axis], shape[axis + 1 :]
    return b.Reshape(stacked, b.Concat(front, [-1], back, axis=0))


def write_concat(w: Writing) -> None:
    values = [v for v in w.node.inputs if v is not None]
    if len(values) < 2:
        raise MappingError("one value is joined with none")
    axis = first_axis(w, w.attr("axis"))
    w.operation("concat", values=values, axis=axis, interleave=False)


def stacked(r: Reading) -> None:
    axis = r.node.attrs["axis"]
    r.node.inputs = [r.b.Unsqueeze(v, [axis]) for v in r.node.inputs]


class Repeats(Field):
    """How often each axis is repeated, of 32 bits."""

    def lower(self, w: Writing) -> None:
        if constant(w.input(1)) is not None:
            w.layer.attrs["reps"] = w.ints(1, "the repeats")


def _in_pairs(w: Writing, rank: int) -> ir.Value:
    """All amounts before and all behind -> those of each axis in turn."""
    kind = ir.DataType.INT32
    table = w.made("reshape", kind, [2, rank], x=w.input(1), shape=[2, rank])
    turned = w.made("transpose", kind, [rank, 2], x=table, perm=[1, 0])
    return w.made("reshape", kind, [2 * rank], x=turned, shape=[2 * rank])


class Parts(Field):
    """A number of equal parts, or the size of each."""

    keys = ("num_splits", "split_sizes")
    names = ("num_outputs",)
    inputs = (1,)

    def lower(self, w: Writing) -> None:
        axis = first_axis(w, w.attr("axis", 0))
        sizes: list[Any] = [size_of(v, axis) for v in w.node.outputs if v.shape is not None]
        if len(sizes) < 2:
            raise MappingError("one part")
        if len(set(sizes)) == 1 and not w.has(1):
            w.set(num_splits=len(sizes))
        elif any(not isinstance(n, int) for n in sizes):
            raise MappingError("parts of sizes that are not known")
        else:
            w.set(split_sizes=sizes)

    def lift(self, r: Reading) -> None:
        if "split_sizes" in r.layer.attrs:
            sizes = r.whole("split_sizes")
            r.node.set_input(1, sizes)
        else:
            r.node.attrs["num_outputs"] = r.attr("num_splits", int)


class Amounts(Field):
    """Pairs of amounts for the last axes -> all before, then all behind, of all axes."""

    keys, inputs = ("pad",), (1, 3)

    def lower(self, w: Writing) -> None:
        rank, given = w.rank(), w.optional(3)
        if constant(w.optional(1)) is None and given is None and w.attr("mode") == "constant":
            w.layer.attrs["pad"] = _in_pairs(w, rank)
            return
        amounts = w.ints(1, "the amounts")
        axes = range(rank) if given is None else [a % rank for a in w.ints(3, "the axes")]
        half, pairs = len(amounts) // 2, [[0, 0] for _ in range(rank)]
        for i, axis in enumerate(axes):
            pairs[axis] = [amounts[i], amounts[half + i]]
        if min(amounts, default=0) < 0:
            raise MappingError("negative amounts")
        last = 2 if w.attr("mode") != "constant" else rank
        if any(any(p) for p in pairs[: max(0, rank - last)]):
            raise MappingError("a mode that knows the last two axes alone")
        w.layer.attrs["pad"] = [n for p in pairs[max(0, rank - last) :] for n in p]

    def lift(self, r: Reading) -> None:
        rank, given = r.rank(r.data), r.whole("pad")
        (count,) = r.static(given, "the amounts", axes=1)
        if count % 2 or count // 2 > rank:
            raise MappingError(f"{count} amounts for {rank} axes", "R110")
        missing = rank - count // 2
        pairs = r.b.Transpose(r.b.Reshape(given, [-1, 2]), perm=[1, 0])
        filled = r.b.Pad(pairs, [0, missing, 0, 0]) if missing else pairs
        r.node.set_input(1, r.b.Reshape(filled, [-1]))


class PadMode(Field):
    keys = ("mode", "constant_val")
    names = ("mode",)
    inputs = (2,)

    def lower(self, w: Writing) -> None:
        modes = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}
        mode = w.attr("mode")
        if mode not in modes:
            raise MappingError(f"mode {mode!r}")
        w.set(mode=modes[mode])
        if mode == "constant":
            array = w.constant(2, "the value") if w.has(2) else None
            w.set(constant_val=0.0 if array is None else float(array.reshape(-1)[0]))

    def lift(self, r: Reading) -> None:
        modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
        mode = r.attr("mode", str, "constant")
        if mode not in modes:
            raise MappingError(f"mode {mode!r} is not known", "R110")
        r.node.attrs["mode"] = modes[mode]
        if mode == "constant":
            value = r.attr("constant_val", float, 0.0)
            r.node.set_input(2, r.b.like(r.data, value))


# slices ------------------------------------------------------------------------------------------


class Ranges:
    """What begin, end, stride and masks say of each axis."""

    def __init__(self, r: Reading, x: ir.Value) -> None:
        b = r.b
        self.rank = r.rank(x)
        begin, end = r.whole("begin"), r.whole("end")
        self.strides = listed(r, "stride") or [1] * self.rank
        masks = [
            np.array(r.array(k).reshape(-1), bool) if r.has(k) else np.zeros(self.rank, bool)
            for k in ("begin_mask", "end_mask", "squeeze_mask")
        ]
        if len(self.strides) != self.rank or any(len(m) != self.rank for m in masks):
            raise MappingError(f"ranges of another number than {self.rank} axes", "R110")
        first, last, self.squeezed = masks
        down = np.array(self.strides) < 0
        start = b.Where(first & ~self.squeezed, np.where(down, LARGE, 0), begin)
        behind = b.Where(b.Equal(start, -1), LARGE, start + 1)
        stop = b.Where(last, np.where(down, SMALL, LARGE), end)
        self.start, self.stop = start, b.Where(self.squeezed, behind, stop)
        pairs = zip(self.strides, self.squeezed, strict=True)
        self.strides = [1 if s else n for n, s in pairs]


def sliced(r: Reading) -> Value:
    x = r.x
    ranges = Ranges(r, x)
    y = r.b.Slice(x, ranges.start, ranges.stop, list(range(ranges.rank)), ranges.strides)
    gone = [int(i) for i in np.flatnonzero(ranges.squeezed)]
    return r.b.Squeeze(y, gone) if gone else y


def write_slice(w: Writing) -> None:
    """Ranges of all axes."""
    x, rank = w.data, w.rank()
    starts, ends = w.optional(1), w.optional(2)
    if constant(starts) is None or constant(ends) is None:
        _slice_at_places(w, rank)
        return
    firsts, lasts = w.ints(1, "the starts"), w.ints(2, "the ends")
    axes = [a % rank for a in w.ints(3, "the axes", range(rank))]
    steps = w.ints(4, "the steps", [1] * len(firsts))
    ranges = [(0, 0, 1, True, True)] * rank
    for axis, *limits in zip(axes, firsts, lasts, steps, strict=False):
        ranges[axis] = _range(size_of(x, axis), *limits)
    keys = ("begin", "end", "stride", "begin_mask", "end_mask")
    given = {k: list(n) for k, n in zip(keys, zip(*ranges, strict=True), strict=True)}
    squeezed = [False] * rank
    w.operation("slice_by_index", x=x, **given, squeeze_mask=squeezed)


def _range(size: Any, start: int, end: int, step: int) -> tuple[int, int, int, bool, bool]:
    """First, last and step of an axis, and whether it begins and ends where the axis does; of a
    size that is known counted from the front.
    """
    if isinstance(size, int):
        first, last, _ = slice(start, end, step).indices(size)
        return first, max(0, last), step, False, last < 0
    first_of_all = start >= FAR if step < 0 else start == 0
    last_of_all = end <= -FAR if step < 0 else end >= FAR
    if step < 0 and start == -1:
        first_of_all = True
    begin, stop = (0 if first_of_all else start), (0 if last_of_all else end)
    return begin, stop, step, first_of_all, last_of_all


def _slice_at_places(w: Writing, rank: int) -> None:
    """Bounds that are computed, of all axes in their order."""
    axes = w.ints(3, "the axes", range(rank))
    steps = w.ints(4, "the steps", [1] * len(axes))
    if [a % rank for a in axes] != list(range(rank)) or any(n < 1 for n in steps):
        raise MappingError("computed bounds of some axes")
    x, out = w.data, w.node.outputs[0]
    sizes = [n if isinstance(n, int) else -1 for n in out.shape or ()]
    given = {"x": x, "begin": w.input(1), "end": w.input(2), "stride": steps}
    if 1 < sizes.count(-1) < rank:
        raise MappingError("a computed range, of a size that a program cannot be told", "X203")
    if not sizes or sizes.count(-1) == rank:
        w.operation("slice_by_index", **given)
        return
    part = w.made("slice_by_index", x.dtype, [None] * rank, **given)
    w.operation("reshape", x=part, shape=sizes)  # which says the sizes that are known


def updated(r: Reading) -> Value:
    """The places that a slice would take get other values."""
    b = r.b
    x, update = r.x, r.value("update")
    ranges = Ranges(r, x)
    axes = list(range(ranges.rank))
    gone = [int(i) for i in np.flatnonzero(ranges.squeezed)]
    if gone:
        update = b.Unsqueeze(update, gone)
    count = b.Size(x)
    places = b.Reshape(b.Range(0, count, 1), b.Shape(x))
    chosen = b.Slice(places, ranges.start, ranges.stop, axes, ranges.strides)
    spread = b.Expand(update, b.Shape(chosen))
    flat = b.ScatterElements(
        b.Reshape(x, [-1]), b.Reshape(chosen, [-1]), b.Reshape(spread, [-1]), axis=0
    )
    return b.Reshape(flat, b.Shape(x))


def by_size(r: Reading) -> Value:
    """`size` -1 is all that is left; a negative begin counts from the end."""
    b = r.b
    x, begin, size = r.x, r.whole("begin"), r.whole("size")
    begin = b.Where(begin < b.like(begin, 0), begin + b.Shape(x), begin)
    end = b.Where(b.Equal(size, -1), LARGE, begin + size)
    return b.Slice(x, begin, end)


def reverse(r: Reading) -> Value:
    x = r.x
    axes = axes_of(r, x)
    n = len(axes)
    return r.b.Slice(x, [-1] * n, [SMALL] * n, axes, [-1] * n) if n else r.b.Identity(x)


def reverse_sequence(r: Reading) -> Value:
    b = r.b
    x, time, batch = r.x, r.attr("seq_axis", int, 0), r.attr("batch_axis", int, 0)
    lengths, rank = r.whole("lengths"), r.rank(x)
    time, batch = axis_of(time, rank), axis_of(batch, rank)
    if time == batch:
        raise MappingError("lengths of the axis that is turned round", "R110")
    order = [time, batch, *(i for i in range(rank) if i not in (time, batch))]
    y = b.ReverseSequence(r.transpose(x, order), lengths, time_axis=0, batch_axis=1)
    return r.transpose(y, [order.index(i) for i in range(rank)])


def write_reverse_sequence(w: Writing) -> None:
    axes = {"seq_axis": w.attr("time_axis"), "batch_axis": w.attr("batch_axis")}
    w.operation("reverse_sequence", x=w.data, lengths=w.input(1), **axes)


def windows(r: Reading) -> Value:
    """Windows of an axis, along a new axis behind it."""
    x, size, step = r.x, r.attr("size", int), r.attr("stride", int, 1)
    at_least(1, size=size, stride=step)
    axis = axis_of(r.attr("axis", int), r.rank(x))
    places = arange((r.static(x)[axis] - size) // step + 1)[:, None] * step + arange(size)
    return r.b.Gather(x, places.astype(np.int64), axis=axis)


def write_shape(w: Writing) -> None:
    if w.attr("start", 0) or w.attr("end", None) is not None:
        raise MappingError("a part of the shape")
    w.operation("shape", x=w.data)


def write_fill(w: Writing) -> None:
    value = w.attr("value", None)
    array = (
        np.zeros(1, np.float32)
        if value is None
        else np.asarray(getattr(value, "numpy", lambda: value)())
    )
    number = w.const(array.reshape(()), "value")
    w.operation("fill", shape=w.data, value=number)


def write_range(w: Writing) -> None:
    start, end, step = (w.input(i) for i in range(3))
    w.operation("range_1d", end=end, start=start, step=step)


# sizes -------------------------------------------------------------------------------------------


def filled(r: Reading) -> Value:
    value = r.given("value")
    number = r.b.const(np.float32(0)) if value is None else value
    shape = r.b.Shape(r.value("ref_tensor")) if r.has("ref_tensor") else r.whole("shape")
    return r.b.Expand(number, shape)


def reshaped_like(r: Reading) -> Value:
    """The shape is made of ranges of other shapes."""
    b = r.b
    parts = []
    begins, ends, masks = (_flat(r, k) for k in ("begins", "ends", "end_masks"))
    refs = r.values("ref_tensors")
    of_length(len(refs), begins=begins, ends=ends, end_masks=masks)
    for i, ref in enumerate(refs):
        last = LARGE if masks[i] else int(ends[i])
        parts.append(b.Shape(ref)[int(begins[i]) : last])
    return b.Reshape(r.x, b.Concat(*parts, axis=0))


def _flat(r: Reading, key: str) -> list[int]:
    found = r.layer.attrs[key] if r.has(key) else []
    return [int(n) for n in np.asarray(found).reshape(-1)]


def flattened(r: Reading) -> Value:
    """Two axes: the product of those before `axis`, and of the others."""
    x = r.x
    axis = r.attr("axis", int, 1)
    return r.b.Flatten(x, axis=axis + r.rank(x) if axis < 0 else axis)


def steps(r: Reading) -> Value:
    return r.b.Range(*(r.b.Reshape(r.value(k), []) for k in ("start", "end", "step")))


def band(r: Reading) -> Value:
    """Entries at most `lower` below and `upper` above the diagonal; negative is all."""
    x = r.x
    for key, upper in (("upper", 0), ("lower", 1)):
        if (most := r.attr(key, int, -1)) >= 0:
            x = r.b.Trilu(x, r.b.const(np.int64(-most if upper else most)), upper=upper)
    return x


def write_triangle(w: Writing) -> None:
    """A band whose one side is open."""
    k = w.ints(1, "k")[0] if w.has(1) else 0
    upper = bool(w.attr("upper"))
    if (k > 0) if upper else (k < 0):
        raise MappingError("a band without its diagonal")
    sides = {"lower": -k, "upper": -1} if upper else {"lower": -1, "upper": k}
    w.operation("band_part", x=w.data, **sides)


# blocks ------------------------------------------------------------------------------------------


def unshuffled(r: Reading) -> Value:
    """[n, c, h * f, w * f] -> [n, c * f * f, h, w], the channels slower than the blocks."""
    x, f = r.x, r.count("downscale_factor")
    n, c, h, w = r.static(x, axes=4)
    y = r.b.Reshape(x, [n, c, h // f, f, w // f, f])
    return r.b.Reshape(r.b.Transpose(y, perm=[0, 1, 3, 5, 2, 4]), [n, c * f * f, h // f, w // f])


def _block(r: Reading) -> list[int]:
    """Height and width of a block."""
    size = listed(r, "block_shape") or [1, 1]
    of_counts(2, block_shape=size)
    return size


def space_to_batch(r: Reading) -> Value:
    b = r.b
    x, (bh, bw) = r.x, _block(r)
    (top, bottom), (left, right) = shaped(r.array("paddings"), 2, 2, what="paddings").tolist()
    r.static(x, axes=4)
    x = b.Pad(x, [0, 0, top, left, 0, 0, bottom, right])
    n, c, h, w = r.static(x)
    y = b.Transpose(b.Reshape(x, [n, c, h // bh, bh, w // bw, bw]), perm=[3, 5, 0, 1, 2, 4])
    return b.Reshape(y, [n * bh * bw, c, h // bh, w // bw])


def batch_to_space(r: Reading) -> Value:
    b = r.b
    x, (bh, bw) = r.x, _block(r)
    (top, bottom), (left, right) = shaped(r.array("crops"), 2, 2, what="crops").tolist()
    n, c, h, w = r.static(x, axes=4)
    n //= bh * bw
    y = b.Transpose(b.Reshape(x, [bh, bw, n, c, h, w]), perm=[2, 3, 4, 0, 5, 1])
    y = b.Reshape(y, [n, c, h * bh, w * bw])
    return b.Slice(y, [top, left], [h * bh - bottom, w * bw - right], [2, 3])


def crop(r: Reading) -> Value:
    x = r.x
    height, width = (listed(r, k) or [] for k in ("crop_height", "crop_width"))
    of_length(2, crop_height=height, crop_width=width)
    (top, bottom), (left, right) = height, width
    ends = [-n if n else LARGE for n in (bottom, right)]
    return r.b.Slice(x, [top, left], ends, [-2, -1])


RULES: list[Rule | Custom] = [
    custom("Reshape Flatten", "reshape", reshaped, write_reshape),
    custom("", "reshape_like", reshaped_like),
    mil("Transpose", "transpose", "x", Permutation()),
    mil("Squeeze", "squeeze", "x", Squeezed(), given="2,1,3 =[1]"),
    mil("Unsqueeze", "expand_dims", "x", Squeezed(True), given="2,3 =[1]"),
    custom("", "flatten2d", flattened),
    custom("Concat", "concat", concat, write_concat),
    op(
        "Concat",
        "stack",
        Several("values"),
        Attr("axis", kind=int),
        before_lift=stacked,
        lift_only=True,
    ),
    mil("Split", "split", "x", Attr("axis", kind=int), Parts(), given="2,6 -> 2"),
    mil("Tile", "tile", "x reps", Whole(1), Repeats(), given="2,3 =[2,1]"),
    mil("Shape", "shape", "x", lift_only=True),
    custom("Shape", "shape", None, write_shape),
    mil("Pad", "pad", "x", Amounts(), PadMode(), given="2,3,4,4 =[0,0,1,1,0,0,1,1]"),
    mil(
        "DepthToSpace",
        "depth_to_space",
        "x",
        Attr("blocksize", "block_size", int),
        Only("mode", "DCR"),
        given="1,8,4,4",
    ),
    mil(
        "DepthToSpace",
        "pixel_shuffle",
        "x",
        Attr("blocksize", "upscale_factor", int),
        Only("mode", "CRD"),
        given="1,8,4,4",
    ),
    mil(
        "SpaceToDepth",
        "space_to_depth",
        "x",
        Attr("blocksize", "block_size", int),
        given="1,4,4,4",
    ),
    custom("", "pixel_unshuffle", unshuffled),
    custom("", "space_to_batch", space_to_batch),
    custom("", "batch_to_space", batch_to_space),
    custom("Slice", "slice_by_index", sliced, write_slice),
    custom("", "slice_by_size", by_size),
    custom("", "slice_update", updated),
    custom("", "reverse", reverse),
    custom("ReverseSequence", "reverse_sequence", reverse_sequence, write_reverse_sequence),
    custom("", "sliding_windows", windows),
    custom("ConstantOfShape", "fill fill_like", filled, write_fill),
    custom("Range", "range_1d", steps, write_range),
    custom("Trilu", "band_part", band, write_triangle),
    custom("", "crop", crop),
]
