"""Reshaping, transposing, joining, splitting, padding, slicing, and moving blocks."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.mlprogram.rules.context import Several, reading
from converter.formats.mlprogram.rules.fields import (
    Whole,
    axes_of,
    data,
    listed,
    mil,
    numbers,
    whole,
)
from converter.graph.infer import known
from converter.graph.value import Value, with_operators
from converter.mapping.context import Reading
from converter.mapping.fields import Attr, Field, Only
from converter.mapping.rules import Custom, Rule, custom, op

LARGE, SMALL = np.iinfo(np.int64).max, np.iinfo(np.int64).min + 1
IOS17 = 8  # the specification version


def reshaped(r: Reading) -> Value:
    """0 takes the size at its place: from the front before iOS17, from behind since."""
    t, b = reading(r), r.b
    x, shape = t.value("x"), whole(r, t.value("shape"))
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


class Squeezed(Field):
    keys = ("axes",)

    def lift(self, r: Reading) -> None:
        if (axes := listed(r, "axes")) is not None:
            r.node.set_input(1, numbers(r, axes, "axes"))


class Permutation(Field):
    keys = ("perm",)
    names = ("perm",)

    def lift(self, r: Reading) -> None:
        rank, perm = r.rank(data(r)), listed(r, "perm") or []
        found = [p % rank for p in perm] if rank else []
        if sorted(found) != list(range(rank)):
            raise MappingError(f"{perm} is no permutation of {rank} axes", "R110")
        r.node.attrs["perm"] = found


def concat(r: Reading) -> ir.Value:
    """`interleave`: one place of each value in turn."""
    t, b, axis = reading(r), r.b, r.attr("axis", int)
    values = [
        b.Reshape(v, [1]) if v.shape is not None and not v.shape else v for v in t.values("values")
    ]
    if not r.attr("interleave", bool, False):
        return b.Concat(*values, axis=axis)
    rank = r.rank(values[0])
    axis %= rank
    stacked = b.Concat(*(b.Unsqueeze(v, [axis + 1]) for v in values), axis=axis + 1)
    shape = b.Shape(values[0])
    front, back = b.Slice(shape, [0], [axis], [0]), b.Slice(shape, [axis + 1], [LARGE], [0])
    return b.Reshape(stacked, b.Concat(front, [-1], back, axis=0))


def stacked(r: Reading) -> None:
    axis = r.node.attrs["axis"]
    r.node.inputs = [r.b.Unsqueeze(v, [axis]) for v in r.node.inputs]


class Parts(Field):
    """A number of equal parts, or the size of each."""

    keys = ("num_splits", "split_sizes")
    names = ("num_outputs",)

    def lift(self, r: Reading) -> None:
        if "split_sizes" in r.layer.attrs:
            sizes = whole(r, reading(r).value("split_sizes"))
            r.node.set_input(1, sizes)
        else:
            r.node.attrs["num_outputs"] = r.attr("num_splits", int)


class Amounts(Field):
    """Pairs of amounts for the last axes -> all before, then all behind, of all axes."""

    keys = ("pad",)

    def lift(self, r: Reading) -> None:
        rank, given = r.rank(data(r)), whole(r, reading(r).value("pad"))
        (count,) = r.static(given, "the amounts")
        if count % 2 or count // 2 > rank:
            raise MappingError(f"{count} amounts for {rank} axes", "R110")
        missing = rank - count // 2
        pairs = r.b.Transpose(r.b.Reshape(given, [-1, 2]), perm=[1, 0])
        filled = r.b.Pad(pairs, [0, missing, 0, 0]) if missing else pairs
        r.node.set_input(1, r.b.Reshape(filled, [-1]))


class PadMode(Field):
    keys = ("mode", "constant_val")
    names = ("mode",)

    def lift(self, r: Reading) -> None:
        modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
        mode = r.attr("mode", str, "constant")
        if mode not in modes:
            raise MappingError(f"mode {mode!r} is not known", "R110")
        r.node.attrs["mode"] = modes[mode]
        if mode == "constant":
            value = r.attr("constant_val", float, 0.0)
            r.node.set_input(2, r.b.like(data(r), value))


# slices ------------------------------------------------------------------------------------------


class Ranges:
    """What begin, end, stride and masks say of each axis."""

    def __init__(self, r: Reading, x: ir.Value) -> None:
        t, b = reading(r), r.b
        self.rank = r.rank(x)
        begin, end = whole(r, t.value("begin")), whole(r, t.value("end"))
        self.strides = listed(r, "stride") or [1] * self.rank
        masks = [
            np.array(t.array(k).reshape(-1), bool) if t.has(k) else np.zeros(self.rank, bool)
            for k in ("begin_mask", "end_mask", "squeeze_mask")
        ]
        if len(self.strides) != self.rank or any(len(m) != self.rank for m in masks):
            raise MappingError(f"ranges of another number than {self.rank} axes", "R110")
        first, last, self.squeezed = masks
        down = np.array(self.strides) < 0
        start = b.Where(first & ~self.squeezed, np.where(down, LARGE, 0), begin)
        behind = b.Where(b.Equal(start, np.int64(-1)), np.int64(LARGE), start + np.int64(1))
        stop = b.Where(last, np.where(down, SMALL, LARGE), end)
        self.start, self.stop = start, b.Where(self.squeezed, behind, stop)
        pairs = zip(self.strides, self.squeezed, strict=True)
        self.strides = [1 if s else n for n, s in pairs]


def sliced(r: Reading) -> Value:
    x = reading(r).value("x")
    ranges = Ranges(r, x)
    y = r.b.Slice(x, ranges.start, ranges.stop, list(range(ranges.rank)), ranges.strides)
    gone = [int(i) for i in np.flatnonzero(ranges.squeezed)]
    return r.b.Squeeze(y, gone) if gone else y


def updated(r: Reading) -> Value:
    """The places that a slice would take get other values."""
    t, b = reading(r), r.b
    x, update = t.value("x"), t.value("update")
    ranges = Ranges(r, x)
    axes = list(range(ranges.rank))
    gone = [int(i) for i in np.flatnonzero(ranges.squeezed)]
    if gone:
        update = b.Unsqueeze(update, gone)
    count = b.Size(x)
    places = b.Reshape(b.Range(np.int64(0), count, np.int64(1)), b.Shape(x))
    chosen = b.Slice(places, ranges.start, ranges.stop, axes, ranges.strides)
    spread = b.Expand(update, b.Shape(chosen))
    flat = b.ScatterElements(
        b.Reshape(x, [-1]), b.Reshape(chosen, [-1]), b.Reshape(spread, [-1]), axis=0
    )
    return b.Reshape(flat, b.Shape(x))


def by_size(r: Reading) -> Value:
    """`size` -1 is all that is left; a negative begin counts from the end."""
    t, b = reading(r), r.b
    x, begin, size = t.value("x"), whole(r, t.value("begin")), whole(r, t.value("size"))
    begin = b.Where(begin < b.like(begin, 0), begin + b.Shape(x), begin)
    end = b.Where(b.Equal(size, np.int64(-1)), np.int64(LARGE), begin + size)
    return b.Slice(x, begin, end)


def reverse(r: Reading) -> Value:
    x = reading(r).value("x")
    axes = axes_of(r, x)
    n = len(axes)
    return r.b.Slice(x, [-1] * n, [SMALL] * n, axes, [-1] * n) if n else r.b.Identity(x)


def reverse_sequence(r: Reading) -> Value:
    t, b = reading(r), r.b
    x, time, batch = t.value("x"), r.attr("seq_axis", int, 0), r.attr("batch_axis", int, 0)
    lengths, rank = whole(r, t.value("lengths")), r.rank(x)
    time, batch = time % rank, batch % rank
    if time == batch:
        raise MappingError("lengths of the axis that is turned round", "R110")
    order = [time, batch, *(i for i in range(rank) if i not in (time, batch))]
    y = b.ReverseSequence(r.transpose(x, order), lengths, time_axis=0, batch_axis=1)
    return with_operators(r.transpose(y, [order.index(i) for i in range(rank)]))


def windows(r: Reading) -> Value:
    """Windows of an axis, along a new axis behind it."""
    x, size, step = reading(r).value("x"), r.attr("size", int), r.attr("stride", int, 1)
    axis = r.attr("axis", int) % r.rank(x)
    count = (r.static(x)[axis] - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)
    return r.b.Gather(x, places.astype(np.int64), axis=axis)


# sizes -------------------------------------------------------------------------------------------


def filled(r: Reading) -> Value:
    t = reading(r)
    value = t.given("value")
    number = r.b.const(np.float32(0)) if value is None else value
    shape = r.b.Shape(t.value("ref_tensor")) if t.has("ref_tensor") else whole(r, t.value("shape"))
    return r.b.Expand(number, shape)


def reshaped_like(r: Reading) -> Value:
    """The shape is made of ranges of other shapes."""
    t, b = reading(r), r.b
    parts = []
    begins, ends, masks = (_flat(r, k) for k in ("begins", "ends", "end_masks"))
    for i, ref in enumerate(t.values("ref_tensors")):
        last = LARGE if masks[i] else int(ends[i])
        parts.append(b.Slice(b.Shape(ref), [int(begins[i])], [last], [0]))
    return b.Reshape(t.value("x"), b.Concat(*parts, axis=0))


def _flat(r: Reading, key: str) -> list[int]:
    found = reading(r).layer.attrs[key] if reading(r).has(key) else []
    return [int(n) for n in np.asarray(found).reshape(-1)]


def flattened(r: Reading) -> Value:
    """Two axes: the product of those before `axis`, and of the others."""
    x = reading(r).value("x")
    axis = r.attr("axis", int, 1)
    return r.b.Flatten(x, axis=axis + r.rank(x) if axis < 0 else axis)


def steps(r: Reading) -> Value:
    nothing = np.zeros(0, np.int64)
    t = reading(r)
    return r.b.Range(*(r.b.Reshape(t.value(k), nothing) for k in ("start", "end", "step")))


def band(r: Reading) -> Value:
    """Entries at most `lower` below and `upper` above the diagonal; negative is all."""
    x = reading(r).value("x")
    lower, upper = r.attr("lower", int, -1), r.attr("upper", int, -1)
    rows, columns = r.static(x)[-2:]
    m, n = np.arange(rows)[:, None], np.arange(columns)[None]
    mask = ((lower < 0) | (m - n <= lower)) & ((upper < 0) | (n - m <= upper))
    return r.b.Where(r.b.const(mask, "band"), x, r.b.like(x, 0))


# blocks ------------------------------------------------------------------------------------------


def unshuffled(r: Reading) -> Value:
    """[n, c, h * f, w * f] -> [n, c * f * f, h, w], the channels slower than the blocks."""
    x, f = reading(r).value("x"), r.attr("downscale_factor", int)
    n, c, h, w = r.static(x)
    y = r.b.Reshape(x, [n, c, h // f, f, w // f, f])
    return r.b.Reshape(r.b.Transpose(y, perm=[0, 1, 3, 5, 2, 4]), [n, c * f * f, h // f, w // f])


def space_to_batch(r: Reading) -> Value:
    t, b = reading(r), r.b
    x, (bh, bw) = t.value("x"), listed(r, "block_shape") or (1, 1)
    (top, bottom), (left, right) = t.array("paddings").reshape(2, 2).tolist()
    x = b.Pad(x, [0, 0, top, left, 0, 0, bottom, right])
    n, c, h, w = r.static(x)
    y = b.Transpose(b.Reshape(x, [n, c, h // bh, bh, w // bw, bw]), perm=[3, 5, 0, 1, 2, 4])
    return b.Reshape(y, [n * bh * bw, c, h // bh, w // bw])


def batch_to_space(r: Reading) -> Value:
    t, b = reading(r), r.b
    x, (bh, bw) = t.value("x"), listed(r, "block_shape") or (1, 1)
    (top, bottom), (left, right) = t.array("crops").reshape(2, 2).tolist()
    n, c, h, w = r.static(x)
    n //= bh * bw
    y = b.Transpose(b.Reshape(x, [bh, bw, n, c, h, w]), perm=[2, 3, 4, 0, 5, 1])
    y = b.Reshape(y, [n, c, h * bh, w * bw])
    return b.Slice(y, [top, left], [h * bh - bottom, w * bw - right], [2, 3])


def crop(r: Reading) -> Value:
    x = reading(r).value("x")
    (top, bottom), (left, right) = (listed(r, k) or [] for k in ("crop_height", "crop_width"))
    ends = [-n if n else LARGE for n in (bottom, right)]
    return r.b.Slice(x, [top, left], ends, [-2, -1])


RULES: list[Rule | Custom] = [
    custom("", "reshape", reshaped),
    custom("", "reshape_like", reshaped_like),
    mil("Transpose", "transpose", "x", Permutation()),
    mil("Squeeze", "squeeze", "x", Squeezed()),
    mil("Unsqueeze", "expand_dims", "x", Squeezed()),
    custom("", "flatten2d", flattened),
    custom("", "concat", concat),
    op("Concat", "stack", Several("values"), Attr("axis", kind=int), before_lift=stacked),
    mil("Split", "split", "x", Attr("axis", kind=int), Parts()),
    mil("Tile", "tile", "x reps", Whole(1)),
    mil("Shape", "shape", "x"),
    mil("Pad", "pad", "x", Amounts(), PadMode()),
    mil(
        "DepthToSpace",
        "depth_to_space",
        "x",
        Attr("blocksize", "block_size", int),
        Only("mode", "DCR"),
    ),
    mil(
        "DepthToSpace",
        "pixel_shuffle",
        "x",
        Attr("blocksize", "upscale_factor", int),
        Only("mode", "CRD"),
    ),
    mil("SpaceToDepth", "space_to_depth", "x", Attr("blocksize", "block_size", int)),
    custom("", "pixel_unshuffle", unshuffled),
    custom("", "space_to_batch", space_to_batch),
    custom("", "batch_to_space", batch_to_space),
    custom("", "slice_by_index", sliced),
    custom("", "slice_by_size", by_size),
    custom("", "slice_update", updated),
    custom("", "reverse", reverse),
    custom("", "reverse_sequence", reverse_sequence),
    custom("", "sliding_windows", windows),
    custom("", "fill fill_like", filled),
    custom("", "range_1d", steps),
    custom("", "band_part", band),
    custom("", "crop", crop),
]
