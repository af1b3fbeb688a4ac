"""Operations that move data."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.ops.args import Args, lifts
from converter.graph.infer import rank_of, shape_of
from converter.mapping.node import MappingError


def int64(a: Args, name: str) -> ir.Value:
    """An int32 tensor operand where ONNX wants int64."""
    value = a.stored(name)
    return a.b.const(value.const_value.numpy().astype(np.int64), name) if value.const_value is not None else a.b.op("Cast", value, to=int(ir.DataType.INT64))


def rank(a: Args, name: str = "input") -> int:
    found = rank_of(a.stored(name))
    if found is None:
        raise MappingError(f"the rank of {name!r} must be known")
    return found


def axis(a: Args, name: str = "axis", default: int = -1) -> int:
    return a.integer(name, default) % max(1, rank(a))


@lifts("RESHAPE")
def reshape(a: Args) -> ir.Value:
    return a.b.op("Reshape", a.real("input"), int64(a, "shape"))


@lifts("CONCATENATION")
def concatenation(a: Args) -> ir.Value:
    return a.b.op("Concat", *a.reals_of("inputs"), axis=a.integer("axis"))


@lifts("PACK")
def pack(a: Args) -> ir.Value:
    return a.b.op("Concat", *(a.b.op("Unsqueeze", v, [a.integer("axis")]) for v in a.reals_of("inputs")), axis=a.integer("axis"))


@lifts("TRANSPOSE")
def transpose(a: Args) -> ir.Value:
    return a.b.op("Transpose", a.real("input"), perm=a.ints("permutation") if a.has("permutation") else list(range(rank(a)))[::-1])


@lifts("SQUEEZE")
def squeeze(a: Args) -> ir.Value:
    axes = a.ints("axes") if a.has("axes") else []
    return a.b.op("Squeeze", a.real("input"), axes or None)


@lifts("EXPAND_DIMS")
def expand_dims(a: Args) -> ir.Value:
    return a.b.op("Unsqueeze", a.real("input"), [a.integer("axis")])


@lifts("PAD", "PAD_V2")
def pad(a: Args) -> ir.Value:
    """Pairs (before, after) for each axis; the value is real zero, or `pad_value` (an integer in the input's scale when quantised)."""
    x, amounts, value = a.real("input"), a.array("paddings").reshape(-1, 2), 0.0
    if a.name == "PAD_V2":
        value = a.number("pad_value")
        operand = a.operand("input")
        if operand.scale and a.operand("pad_value").type.name == "INT32":
            value = (value - operand.zero_point) * operand.scale
    return a.b.op("Pad", x, amounts.T.reshape(-1).astype(np.int64), a.b.like(x, value), mode="constant")


@lifts("MIRROR_PAD")
def mirror_pad(a: Args) -> ir.Value:
    """Mode 0 reflects without the border element, mode 1 (symmetric) with it."""
    x, amounts = a.real("input"), a.array("paddings").reshape(-1, 2)
    if a.integer("mode") == 0:
        return a.b.op("Pad", x, amounts.T.reshape(-1).astype(np.int64), mode="reflect")
    for i, (size, (before, after)) in enumerate(zip(a.shape(), amounts.tolist(), strict=True)):
        if before or after:
            order = [*range(before - 1, -1, -1), *range(size), *range(size - 1, size - 1 - after, -1)]
            x = a.b.op("Gather", x, order, axis=i)
    return x


@lifts("SLICE")
def slice_(a: Args) -> ir.Value:
    begin, size = a.ints("begin"), a.ints("size")
    ends = [np.iinfo(np.int64).max if s == -1 else b + s for b, s in zip(begin, size, strict=True)]
    return a.b.op("Slice", a.real("input"), begin, ends, list(range(len(begin))))


@lifts("STRIDED_SLICE")
def strided_slice(a: Args) -> ir.Value:
    """Bit i of a mask: the bound of axis i is ignored, or the axis is taken at `begin` and dropped."""
    begin, end, strides = a.ints("begin"), a.ints("end"), a.ints("strides")
    begin_mask, end_mask, shrink = a.integer("begin_mask"), a.integer("end_mask"), a.integer("shrink_axis_mask")
    large = np.iinfo(np.int64).max
    starts, stops, steps = [], [], []
    for i, (s, e, step) in enumerate(zip(begin, end, strides, strict=True)):
        if shrink >> i & 1:
            s, e, step = s, s + 1 if s != -1 else large, 1
        else:
            s = (large if step < 0 else 0) if begin_mask >> i & 1 else s
            e = (-large if step < 0 else large) if end_mask >> i & 1 else e
        starts.append(s)
        stops.append(e)
        steps.append(step)
    y = a.b.op("Slice", a.real("input"), starts, stops, list(range(len(begin))), steps)
    dropped = [i for i in range(len(begin)) if shrink >> i & 1]
    return a.b.op("Squeeze", y, dropped) if dropped else y


@lifts("SPLIT")
def split(a: Args) -> tuple[ir.Value, ...]:
    return a.b.ops("Split", a.real("input"), axis=axis(a), num_outputs=a.integer("count"), outputs=a.integer("count"))


@lifts("GATHER")
def gather(a: Args) -> ir.Value:
    return a.b.op("Gather", a.real("input"), a.stored("indices"), axis=axis(a))


@lifts("TILE")
def tile(a: Args) -> ir.Value:
    return a.b.op("Tile", a.real("input"), int64(a, "multiples"))


@lifts("REVERSE")
def reverse(a: Args) -> ir.Value:
    i = a.ints("axis")[0]
    return a.b.op("Slice", a.real("input"), [-1], [np.iinfo(np.int64).min + 1], [i], [-1])


@lifts("FILL", raw=True)
def fill(a: Args) -> ir.Value:
    return a.b.op("Expand", a.stored("value"), int64(a, "shape"))


@lifts("RANK", raw=True)
def rank_operation(a: Args) -> ir.Value:
    return a.b.op("Cast", a.b.op("Size", a.b.op("Shape", a.stored("input"))), to=int(ir.DataType.INT32))


@lifts("DEPTH_TO_SPACE")
def depth_to_space(a: Args) -> ir.Value:
    return a.twin("DepthToSpace", a.real("input"), blocksize=a.integer("block_size"), mode="DCR")


@lifts("SPACE_TO_DEPTH")
def space_to_depth(a: Args) -> ir.Value:
    return a.twin("SpaceToDepth", a.real("input"), blocksize=a.integer("block_size"))


@lifts("CHANNEL_SHUFFLE")
def channel_shuffle(a: Args) -> ir.Value:
    """Axis size = groups * m; seen as [groups, m] and transposed."""
    shape, i, groups = list(a.shape()), axis(a), a.integer("groups")
    if i == len(shape) - 1 and len(shape) == 4:
        return a.twin("ShuffleChannels", a.real("input"), extension=True, group=groups)
    split_ = a.b.op("Reshape", a.real("input"), [*shape[:i], groups, shape[i] // groups, *shape[i + 1 :]])
    order = [*range(i), i + 1, i, *range(i + 2, len(shape) + 1)]
    return a.b.op("Reshape", a.b.op("Transpose", split_, perm=order), shape)


def first_layout(a: Args, x: ir.Value) -> ir.Value:
    return x if a.domain == "" else a.b.op("Transpose", x, perm=[0, 3, 1, 2])


def own_layout(a: Args, x: ir.Value) -> ir.Value:
    return x if a.domain == "" else a.b.op("Transpose", x, perm=[0, 2, 3, 1])


def static(x: ir.Value) -> tuple[int, ...]:
    shape = shape_of(x)
    if shape is None:
        raise MappingError("the shape must be static", "X203")
    return shape


@lifts("BATCH_TO_SPACE_ND")
def batch_to_space(a: Args) -> ir.Value:
    """[bh*bw*N, C, H, W] -> [N, C, H*bh, W*bw]."""
    bh, bw = a.ints("block_sizes")
    x = first_layout(a, a.real("input"))
    n, c, h, w = static(x)
    y = a.b.op("Transpose", a.b.op("Reshape", x, [bh, bw, n // (bh * bw), c, h, w]), perm=[2, 3, 4, 0, 5, 1])
    return own_layout(a, a.b.op("Reshape", y, [n // (bh * bw), c, h * bh, w * bw]))


@lifts("SPACE_TO_BATCH_ND")
def space_to_batch(a: Args) -> ir.Value:
    """Pads height and width, then [N, C, H*bh, W*bw] -> [bh*bw*N, C, H, W]."""
    (bh, bw), ((top, bottom), (left, right)) = a.ints("block_sizes"), a.array("paddings").reshape(2, 2).tolist()
    x = a.b.op("Pad", first_layout(a, a.real("input")), [0, 0, top, left, 0, 0, bottom, right])
    n, c, h, w = static(x)
    y = a.b.op("Transpose", a.b.op("Reshape", x, [n, c, h // bh, bh, w // bw, bw]), perm=[3, 5, 0, 1, 2, 4])
    return own_layout(a, a.b.op("Reshape", y, [n * bh * bw, c, h // bh, w // bw]))


@lifts("EMBEDDING_LOOKUP", raw=True)
def embedding_lookup(a: Args) -> ir.Value:
    return a.b.op("Gather", a.stored("values"), a.stored("lookups"), axis=0)


@lifts("HASHTABLE_LOOKUP", raw=True)
def hashtable_lookup(a: Args) -> tuple[ir.Value, ir.Value]:
    """Rows of `values` whose key equals the lookup; a miss gives zero bytes and hit 0."""
    equal = a.b.op("Equal", a.b.op("Unsqueeze", a.stored("lookups"), [1]), a.b.op("Unsqueeze", a.stored("keys"), [0]))
    found = a.b.op("Cast", equal, to=int(ir.DataType.INT32))
    hits = a.b.op("ReduceMax", found, [1], keepdims=0)
    values = a.stored("values")
    rows = a.b.op("Gather", values, a.b.op("ArgMax", found, axis=1, keepdims=0), axis=0)
    hit = a.b.op("Reshape", a.b.op("Cast", hits, to=int(ir.DataType.BOOL)), [-1, *[1] * (rank(a, "values") - 1)])
    return a.b.op("Where", hit, rows, a.b.like(values, 0)), a.b.op("Cast", hits, to=int(ir.DataType.UINT8))
