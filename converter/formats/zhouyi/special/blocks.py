"""Blocks of space, batch and channels; grids of indices."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.special.register import choose, constant_value, fixed, lifts, lowers, need, need_int, need_ints, operand, static, twin
from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import Builder
from converter.graph.infer import constant
from converter.graph.sizes import arange, demand_small
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node


def _block(layer: Layer) -> tuple[int, int]:
    return need_int(layer, "block_size_y"), need_int(layer, "block_size_x")


@lifts("DepthToSpace")
def lift_depth_to_space(layer: Layer, b: Builder) -> ir.Value:
    """Channel order block y, block x, C (DCR) or C, block y, block x (CRD); blocks need not be square."""
    x, (by, bx) = operand(layer), _block(layer)
    mode = choose(layer, "mode", {"DCR": "DCR", "CRD": "CRD"}, "DCR")
    if by == bx:
        return twin(b, "DepthToSpace", x, blocksize=by, mode=mode)[0]
    n, h, w, c = static(x)
    inner = [by, bx, c // (by * bx)] if mode == "DCR" else [c // (by * bx), by, bx]
    split = b.op("Reshape", x, [n, h, w, *inner])
    return b.op("Reshape", b.op("Transpose", split, perm=[0, 1, 3, 2, 4, 5] if mode == "DCR" else [0, 1, 4, 2, 5, 3]), [n, h * by, w * bx, c // (by * bx)])


@lifts("SpaceToDepth")
def lift_space_to_depth(layer: Layer, b: Builder) -> ir.Value:
    x, (by, bx) = operand(layer), _block(layer)
    if by == bx:
        return twin(b, "SpaceToDepth", x, blocksize=by)[0]
    n, h, w, c = static(x)
    split = b.op("Reshape", x, [n, h // by, by, w // bx, bx, c])
    return b.op("Reshape", b.op("Transpose", split, perm=[0, 1, 3, 2, 4, 5]), [n, h // by, w // bx, by * bx * c])


@lifts("SpaceToBatch")
def lift_space_to_batch(layer: Layer, b: Builder) -> ir.Value:
    pads = [need_int(layer, f"pad_{side}") for side in ("top", "left", "bottom", "right")]
    return twin(b, "SpaceToBatch", operand(layer), base=EXTENSION_DOMAIN, block_size=list(_block(layer)), pads=pads)[0]


@lowers("SpaceToBatch", domain=EXTENSION_DOMAIN)
def lower_space_to_batch(node: Node, low: Lowering) -> None:
    attrs = dict(zip(("pad_top", "pad_left", "pad_bottom", "pad_right"), node.attrs["pads"], strict=True))
    low.add("SpaceToBatch", node.inputs, node.outputs, {**_block_keys(node), **attrs})


@lifts("BatchToSpace")
def lift_batch_to_space(layer: Layer, b: Builder) -> ir.Value:
    """The crop is a Slice behind."""
    top, bottom, left, right = (need_int(layer, f"crop_{side}") for side in ("top", "bottom", "left", "right"))
    whole = twin(b, "BatchToSpace", operand(layer), base=EXTENSION_DOMAIN, block_size=list(_block(layer)))[0]
    _, h, w, _ = static(whole)
    return b.op("Slice", whole, [top, left], [h - bottom, w - right], [1, 2]) if any((top, bottom, left, right)) else whole


@lowers("BatchToSpace", domain=EXTENSION_DOMAIN)
def lower_batch_to_space(node: Node, low: Lowering) -> None:
    crops = {f"crop_{side}": 0 for side in ("left", "right", "top", "bottom")}
    low.add("BatchToSpace", node.inputs, node.outputs, {**_block_keys(node), **crops})


def _block_keys(node: Node) -> dict[str, int]:
    return {"block_size_y": int(node.attrs["block_size"][0]), "block_size_x": int(node.attrs["block_size"][1])}


@lifts("ChannelShuffle")
def lift_channel_shuffle(layer: Layer, b: Builder) -> list[ir.Value]:
    x, parts = operand(layer), need_int(layer, "splits", 1)
    y = twin(b, "ShuffleChannels", x, base=EXTENSION_DOMAIN, group=need_int(layer, "group"))[0]
    if parts == 1:
        return [y]
    channels = static(x)[-1]
    return list(b.ops("Split", y, [channels // parts] * parts, axis=-1, outputs=parts))


@lowers("ShuffleChannels", domain=EXTENSION_DOMAIN)
def lower_channel_shuffle(node: Node, low: Lowering) -> None:
    if len(static(operand(node))) != 4:
        raise MappingError("the layer takes data of four axes")
    low.add("ChannelShuffle", node.inputs, node.outputs, {"group": int(node.attrs["group"]), "splits": 1})


@lifts("Meshgrid")
def lift_meshgrid(layer: Layer, b: Builder) -> list[ir.Value]:
    """numpy.meshgrid: `xy` swaps the first two axes, `sparse` leaves axes of 1."""
    values = [operand(layer, i) for i in range(len(layer.inputs))]
    sizes = [static(v)[0] for v in values]
    xy = choose(layer, "indexing", {"XY": True, "IJ": False}, "XY") and len(values) > 1
    axes = [1, 0, *range(2, len(values))] if xy else list(range(len(values)))
    full = [sizes[axes[i]] for i in range(len(values))]
    result = []
    for i, v in enumerate(values):
        thin = [sizes[i] if a == axes[i] else 1 for a in range(len(values))]
        shaped = b.op("Reshape", v, thin)
        result.append(shaped if need(layer, "sparse", False) else b.op("Expand", shaped, full))
    return result


@lifts("OneHot")
def lift_one_hot(layer: Layer, b: Builder) -> ir.Value:
    """`values` are off and on; an index out of range, a negative one too, is off everywhere."""
    x, values, depth, axis = operand(layer), need(layer, "values"), need_int(layer, "depth"), need_int(layer, "axis", -1)
    if not isinstance(values, list) or len(values) != 2:
        raise MappingError(f"values={values!r} are not two numbers", "R110")
    declared = layer.outputs[0].dtype if layer.outputs else None
    dtype = declared.numpy() if declared is not None else np.dtype(np.float32)
    wide = b.op("Unsqueeze", x, [axis])
    rank = len(static(x)) + 1
    demand_small(depth)
    classes = arange(depth).reshape([depth if a == (axis + rank if axis < 0 else axis) else 1 for a in range(rank)])
    hit = b.op("Equal", b.op("Cast", wide, to=int(ir.DataType.INT64)), b.const(classes, "classes"))
    return b.op("Where", hit, b.const(np.array(values[1], dtype)), b.const(np.array(values[0], dtype)))


@lowers("OneHot")
def lower_one_hot(node: Node, low: Lowering) -> None:
    """Indices below zero count from behind in ONNX; they are refused unless the indices are known or unsigned."""
    x = operand(node)
    depth, values = int(fixed(node, 1, "the depth").reshape(-1)[0]), fixed(node, 2, "the values").reshape(-1)
    known = constant(x)
    axis = int(node.attrs.get("axis", -1))
    if known is None and (x.dtype is None or x.dtype.is_signed()):
        raise MappingError("indices below zero, which count from behind, have no counterpart")
    if known is not None:
        wrapped = np.where(known < 0, known + depth, known)
        x = constant_value(low, wrapped.astype(np.int32), "indices")
    attrs = {"depth": depth, "values": [float(str(np.float32(v))) for v in values], "axis": axis + len(static(node.outputs[0])) if axis < 0 else axis}
    low.add("OneHot", [x], node.outputs, attrs)


@lifts("Trilu")
def lift_trilu(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer)
    return b.op("Trilu", x, b.const(np.array(need_int(layer, "k", 0), np.int64)), upper=int(bool(need(layer, "upper", True))))


@lifts("Shape")
def lift_shape(layer: Layer, b: Builder) -> ir.Value:
    return b.op("Shape", operand(layer), start=layer.attrs.get("start"), end=layer.attrs.get("end"))


@lifts("ConstantOfShape")
def lift_constant_of_shape(layer: Layer, b: Builder) -> ir.Value:
    declared = layer.outputs[0].dtype if layer.outputs else None
    value = need(layer, "value", 0.0)
    value = value[0] if isinstance(value, list) and value else value
    return b.op("Expand", b.const(np.array(value, declared.numpy() if declared is not None else np.float32)), cast_shape(b, operand(layer)))


def cast_shape(b: Builder, shape: ir.Value) -> ir.Value:
    array = constant(shape)
    return b.op("Cast", shape, to=int(ir.DataType.INT64)) if array is None else b.const(array.astype(np.int64))


@lifts("NonZero")
def lift_non_zero(layer: Layer, b: Builder) -> ir.Value:
    return b.op("NonZero", operand(layer))


@lifts("BatchToSpaceND")
def lift_batch_to_space_nd(layer: Layer, b: Builder) -> ir.Value:
    x, block = operand(layer), need_ints(layer, "block_size")
    crops = need(layer, "crops", [[0, 0]] * len(block))
    shape, m = list(static(x)), len(block)
    n = shape[0] // int(np.prod(block))
    split = b.op("Reshape", x, [*block, n, *shape[1:]])
    perm = [m] + [a for i in range(m) for a in (m + 1 + i, i)] + list(range(2 * m + 1, m + len(shape)))
    whole = b.op("Reshape", b.op("Transpose", split, perm=perm), [n, *(s * k for s, k in zip(shape[1:], block, strict=False)), *shape[1 + m :]])
    starts, ends = [c[0] for c in crops], [shape[1 + i] * block[i] - crops[i][1] for i in range(m)]
    return b.op("Slice", whole, starts, ends, list(range(1, m + 1)))
