"""Layers that the document does not describe, though the vendor's parser writes them; what they mean is what the vendor's executor does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.ops.windows import CONV_2D
from converter.formats.zhouyi.special.register import blob, choose, fixed, index_of, lifts, lowers, need, need_int, operand, static
from converter.formats.zhouyi.special.windows import window_attrs
from converter.graph.build import Builder
from converter.graph.infer import constant, shape_of
from converter.graph.sizes import arange
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

INT32, FLOAT = int(ir.DataType.INT32), int(ir.DataType.FLOAT)


@lifts("Dummy")
def lift_dummy(layer: Layer, b: Builder) -> list[ir.Value]:
    """Nothing happens."""
    return [b.op("Identity", operand(layer, i)) for i in range(len(layer.inputs))]


@lifts("DivMod")
def lift_div_mod(layer: Layer, b: Builder) -> list[ir.Value]:
    """Quotient, rounded down (FLOOR) or towards 0 (TRUNC), and what remains; a divisor of 0 gives 0 for both."""
    floor = choose(layer, "mode", {"FLOOR": True, "TRUNC": False}, "FLOOR")
    x, y = (b.op("Cast", operand(layer, i), to=INT32) for i in (0, 1))
    nought = b.op("Equal", y, b.like(y, 0))
    divisor = b.op("Where", nought, b.like(y, 1), y)
    rest = b.op("Mod", x, divisor, fmod=0 if floor else 1)
    quotient = b.op("Div", b.op("Sub", x, rest), divisor)
    dtype = operand(layer).dtype or ir.DataType.INT32
    return [b.op("Cast", b.op("Where", nought, b.like(v, 0), v), to=int(dtype)) for v in (quotient, rest)]


@lifts("ConvInteger")
def lift_conv_integer(layer: Layer, b: Builder) -> ir.Value:
    """x[N, H, W, C] and weights[O, ky, kx, I], less their zero points, with sums of 32 bits."""
    x, weights = operand(layer), blob(layer, "weights")
    attrs = window_attrs(layer, 2)
    near = b.const(weights.transpose(np.argsort(CONV_2D)), f"{layer.name}.weights")
    zeros = [
        b.const(np.array(need_int(layer, key, 0), t))
        for key, t in (("x_zero_point", x.dtype.numpy() if x.dtype else np.uint8), ("w_zero_point", weights.dtype))
    ]
    y = b.op("ConvInteger", b.op("Transpose", x, perm=[0, 3, 1, 2]), near, *zeros, group=need_int(layer, "group", 1), **attrs)
    y = b.op("Transpose", y, perm=[0, 2, 3, 1])
    biases = layer.blobs.get("biases")
    return y if biases is None or not np.asarray(biases).any() else b.op("Add", y, b.const(np.asarray(biases).reshape(-1).astype(np.int32)))


@lifts("MatMulInteger")
def lift_mat_mul_integer(layer: Layer, b: Builder) -> ir.Value:
    operands = []
    for i, key in enumerate(("trans_a", "trans_b")):
        v = operand(layer, i)
        rank = len(static(v))
        operands.append(b.op("Transpose", v, perm=[*range(rank - 2), rank - 1, rank - 2]) if layer.attrs.get(key) else v)
    zeros = [
        b.const(np.array(need_int(layer, key, 0), v.dtype.numpy() if v.dtype else np.uint8))
        for key, v in zip(("a_zero_point", "b_zero_point"), operands, strict=True)
    ]
    return b.op("MatMulInteger", *operands, *zeros)


@lifts("OverlapAdd")
def lift_overlap_add(layer: Layer, b: Builder) -> ir.Value:
    """Frames [..., frames, length], each `frame_step` behind the one before, added up: [..., (frames - 1) * step + length]."""
    x, step = operand(layer), need_int(layer, "frame_step", 1)
    *outer, frames, length = static(x)
    if not 1 <= step <= length:
        raise MappingError(f"frame_step={step} with frames of {length}", "R110")
    size, rows = (frames - 1) * step + length, math.prod(outer)
    places = (arange(frames)[:, None] * step + arange(length)).reshape(-1)
    zeros = b.const(np.zeros([rows, size], x.dtype.numpy() if x.dtype else np.float32))
    index = b.const(np.broadcast_to(places, [rows, frames * length]))
    added = b.op("ScatterElements", zeros, index, b.op("Reshape", x, [rows, frames * length]), axis=1, reduction="add")
    return b.op("Reshape", added, [*outer, size])


@lifts("Col2Im")
def lift_col2im(layer: Layer, b: Builder) -> ir.Value:
    """Columns [N, C * places, L] added up to [N, C, H, W]; the sizes of image and window are constant inputs."""
    image, window = (constant(operand(layer, i)) for i in (1, 2))
    if image is None or window is None:
        raise MappingError("the sizes of image and window must be constant", "X203")
    if image.size != 2:
        raise MappingError("for other than two axes the executor adds up other places than its own formula says", "X202")
    a = {k: [need_int(layer, f"{k}_{axis}", 1) for axis in "yx"] for k in ("stride", "dilation")}
    pads = [need_int(layer, f"pad_{side}", 0) for side in ("top", "left", "bottom", "right")]
    sizes = [b.const(v.reshape(-1).astype(np.int64)) for v in (image, window)]
    return b.op("Col2Im", operand(layer), *sizes, strides=a["stride"], dilations=a["dilation"], pads=pads)


@lowers("Col2Im")
def lower_col2im(node: Node, low: Lowering) -> None:
    sizes = [fixed(node, i, "the sizes").reshape(-1) for i in (1, 2)]
    if sizes[0].size != 2:
        raise MappingError("only images of two axes have a counterpart")
    from converter.formats.zhouyi.special.register import constant_value

    attrs: dict[str, Any] = {}
    for k in ("stride", "dilation"):
        attrs |= dict(zip((f"{k}_y", f"{k}_x"), (int(v) for v in node.attrs.get(f"{k}s") or [1, 1]), strict=True))
    attrs |= dict(zip(("pad_top", "pad_left", "pad_bottom", "pad_right"), (int(v) for v in node.attrs.get("pads") or [0] * 4), strict=True))
    low.add("Col2Im", [operand(node), *(constant_value(low, v.astype(np.int32), "size") for v in sizes)], node.outputs, attrs)


@lifts("RotaryEmbedding")
def lift_rotary(layer: Layer, b: Builder) -> ir.Value:
    """x[B, heads, S, D] or [B, S, heads * D]; caches of cosines and sines [P, D / 2] or [B, P, D / 2]; position ids [B, S] or none: 0, 1, ..."""
    x, shape = operand(layer), static(operand(layer))
    flat = len(shape) == 3
    if flat:
        heads = need_int(layer, "num_heads")
        x = b.op("Transpose", b.op("Reshape", x, [shape[0], shape[1], heads, shape[2] // heads]), perm=[0, 2, 1, 3])
    batch, heads, steps, size = static(x)
    wide = need_int(layer, "rotary_embedding_dim", size)
    wide = size if wide < 1 else wide
    cos, sin = (_positions(layer, b, operand(layer, i), batch, steps, wide // 2) for i in (1, 2))
    turned = b.op("Slice", x, [0], [wide], [3])
    between = bool(need(layer, "interleaved", 0))
    if between:
        pairs = b.op("Reshape", turned, [batch, heads, steps, wide // 2, 2])
        first, second = (b.op("Squeeze", v, [4]) for v in b.ops("Split", pairs, [1, 1], outputs=2, axis=4))
    else:
        first, second = b.ops("Split", turned, [wide // 2] * 2, outputs=2, axis=3)
    real = b.op("Sub", b.op("Mul", cos, first), b.op("Mul", sin, second))
    other = b.op("Add", b.op("Mul", sin, first), b.op("Mul", cos, second))
    if between:
        y = b.op("Reshape", b.op("Concat", b.op("Unsqueeze", real, [4]), b.op("Unsqueeze", other, [4]), axis=4), [batch, heads, steps, wide])
    else:
        y = b.op("Concat", real, other, axis=3)
    y = b.op("Concat", y, b.op("Slice", x, [wide], [size], [3]), axis=3) if wide < size else y
    return b.op("Reshape", b.op("Transpose", y, perm=[0, 2, 1, 3]), list(shape)) if flat else y


def _positions(layer: Layer, b: Builder, cache: ir.Value, batch: int, steps: int, half: int) -> ir.Value:
    """[B, 1, S, half]: the rows of the cache at the positions."""
    ids = index_of(b, operand(layer, 3)) if len(layer.inputs) > 3 else b.const(np.broadcast_to(arange(steps), [batch, steps]))
    cache = b.op("Slice", cache, [0], [half], [-1])
    rows = b.op("Gather", cache, ids, axis=0) if len(static(cache)) == 2 else b.op("GatherND", cache, b.op("Unsqueeze", ids, [-1]), batch_dims=1)
    return b.op("Unsqueeze", rows, [1])


@lifts("SlotUpdate")
def lift_slot_update(layer: Layer, b: Builder) -> ir.Value:
    """x[B, views, L, D]: the rows of each view are added at the places that its list of indices names."""
    x, declared = operand(layer), shape_of(layer.outputs[0])
    batch, views, _, size = static(x)
    if declared is None or len(layer.inputs) - 1 != views:
        raise MappingError(f"{views} views need as many lists of indices, and layer_top_shape", "R105")
    y = b.const(np.zeros(declared, x.dtype.numpy() if x.dtype else np.float32))
    for i in range(views):
        index = index_of(b, operand(layer, 1 + i))
        count = static(index)[0]
        rows = b.op("Slice", x, [i, 0], [i + 1, count], [1, 2])
        spread = b.op("Expand", b.op("Reshape", index, [1, count, 1]), [batch, count, size])
        y = b.op("ScatterElements", y, spread, b.op("Reshape", rows, [batch, count, size]), axis=1, reduction="add")
    return y


@lifts("QueryRebatch")
def lift_query_rebatch(layer: Layer, b: Builder) -> ir.Value:
    """The rows of x[B, Q, D] that each list of indices names, side by side and filled up with zeros: [B, lists, longest, D]."""
    x = operand(layer)
    lists = [index_of(b, operand(layer, i)) for i in range(1, len(layer.inputs))]
    longest = max(static(v)[0] for v in lists)
    parts = []
    for v in lists:
        rows = b.op("Gather", x, v, axis=1)
        missing = longest - static(v)[0]
        rows = b.op("Pad", rows, [0, 0, 0, 0, missing, 0]) if missing else rows
        parts.append(b.op("Unsqueeze", rows, [1]))
    return b.op("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
