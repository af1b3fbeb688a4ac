"""Pooling: sizes that follow from the declared output, indices of maxima and what is made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.ops.fields import explicit_pads, keys, pad_keys, spatial
from converter.formats.zhouyi.special.register import choose, lifts, lowers, need, need_int, need_ints, operand, static, twin
from converter.formats.zhouyi.special.windows import window_attrs
from converter.graph.build import Builder
from converter.graph.infer import shape_of
from converter.graph.sizes import arange
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

OPS = {"MAX": "MaxPool", "AVG": "AveragePool", "L1": "LpPool", "L2": "LpPool"}


def overhang(layer: Layer, size: list[int], attrs: dict[str, list[int]]) -> list[int]:
    """How far the last windows reach over the padded data: the declared output decides, as in the vendor's reader; else `ceil_mode`."""
    declared = shape_of(layer.outputs[0]) if layer.outputs else None
    rank = len(size)
    result = []
    for i, (n, k, s, d) in enumerate(zip(size, attrs["kernel_shape"], attrs["strides"], attrs["dilations"], strict=True)):
        room = n + attrs["pads"][i] + attrs["pads"][i + rank] - (k - 1) * d - 1
        if room < 0 or s < 1:
            raise MappingError(f"a window of {(k - 1) * d + 1} does not fit into {n} with its padding", "R105")
        count = declared[i + 1] if declared is not None and len(declared) == rank + 2 else -(-room // s) + 1 if layer.attrs.get("ceil_mode") else room // s + 1
        if count not in (room // s + 1, -(-room // s) + 1):
            raise MappingError(f"layer_top_shape says {count} windows, {room // s + 1} fit", "R105")
        result.append(max(0, (count - 1) * s - room))
    return result


@lifts("Pooling", "Pooling3D")
def lift_pooling(layer: Layer, b: Builder) -> ir.Value:
    rank, x = (3 if layer.kind == "Pooling3D" else 2), operand(layer)
    op, attrs = choose(layer, "method", OPS), window_attrs(layer, rank)
    over = overhang(layer, list(static(x)[1:-1]), attrs)
    more: dict[str, Any] = {}
    if op == "AveragePool":
        more["count_include_pad"] = int(bool(need(layer, "count_include_pad", True)))
        if more["count_include_pad"] and any(over):  # the divisor is the whole window there
            p, none = attrs["pads"], [0] * rank
            x = b.op("Pad", x, [0, *p[:rank], 0, 0, *[a + o for a, o in zip(p[rank:], over, strict=True)], 0])
            attrs["pads"], over = [*none, *none], none
    if op == "LpPool":
        more["p"] = 1 if layer.attrs["method"].upper() == "L1" else 2
    if any(over):
        more["ceil_mode"] = 1
    return twin(b, op, x, **attrs, **more)[0]


@lifts("AdaptivePool")
def lift_adaptive(layer: Layer, b: Builder) -> ir.Value:
    """Bins floor(i * size / n) .. ceil((i + 1) * size / n) of each axis."""
    x, sizes = operand(layer), need_ints(layer, "output_size")
    reduce = choose(layer, "method", {"AVG": "ReduceMean", "MAX": "ReduceMax"})
    if len(sizes) != 2:
        raise MappingError(f"output_size={sizes} are not two sizes", "R110")
    for axis, n in ((1, sizes[0]), (2, sizes[1])):
        size = static(x)[axis]
        parts = [b.op(reduce, b.op("Slice", x, [i * size // n], [-(-(i + 1) * size // n)], [axis]), [axis]) for i in range(n)]
        x = b.op("Concat", *parts, axis=axis) if n > 1 else parts[0]
    return x


@lowers("GlobalAveragePool", "GlobalMaxPool")
def lower_global(node: Node, low: Lowering) -> None:
    size = spatial(node)
    rank = len(size)
    if rank not in (2, 3):
        raise MappingError(f"pooling over {rank} axes has no counterpart")
    attrs: dict[str, Any] = {"method": "AVG" if node.op == "GlobalAveragePool" else "MAX", "ceil_mode": False}
    attrs |= dict(zip(keys("kernel", rank), size, strict=True)) | {k: 1 for k in (*keys("stride", rank), *keys("dilation", rank))}
    attrs |= {k: 0 for k in pad_keys(rank)} | ({"count_include_pad": True} if attrs["method"] == "AVG" else {})
    low.add("Pooling" if rank == 2 else "Pooling3D", node.inputs, node.outputs, attrs)


@lowers("MaxPool")
def lower_max_pool(node: Node, low: Lowering) -> None:
    """With indices: MaxPoolingWithArgMax, flattened over N, C, H, W as in ONNX."""
    if len(node.outputs) == 1:
        layer = low.mapping.table.lower(node, low.version)
        low.add(layer.kind, layer.inputs, layer.outputs, layer.attrs)
        return
    kernel = list(node.attrs["kernel_shape"])
    if len(kernel) != 2 or node.attrs.get("ceil_mode", 0) or node.attrs.get("storage_order", 0):
        raise MappingError("indices of other than plain 2-D pooling have no counterpart")
    attrs: dict[str, Any] = {"flatten_dim": "NCHW", "ceil_mode": False, "storage_order": 0}
    for stem, values in (("kernel", kernel), ("stride", node.attrs.get("strides") or [1, 1]), ("dilation", node.attrs.get("dilations") or [1, 1])):
        attrs |= dict(zip(keys(stem, 2), values, strict=True))
    attrs |= dict(zip(pad_keys(2), explicit_pads(node, kernel), strict=True))
    low.add("MaxPoolingWithArgMax", node.inputs, node.outputs, attrs)


@lifts("MaxPoolingWithArgMax")
def lift_arg_max(layer: Layer, b: Builder) -> list[ir.Value]:
    x, attrs = operand(layer), window_attrs(layer, 2)
    order = choose(layer, "flatten_dim", {m: m for m in ("NHWC", "HWC", "HW", "NCHW")}, "HWC")
    if need_int(layer, "storage_order", 0):
        raise MappingError("storage_order=1 has no counterpart")
    more: dict[str, Any] = {"ceil_mode": 1} if any(overhang(layer, list(static(x)[1:-1]), attrs)) else {}
    y, index = twin(b, "MaxPool", x, outputs=2, **attrs, **more)
    return [y, flatten_as(b, index, static(x), order)]


def flatten_as(b: Builder, index: ir.Value, shape: tuple[int, ...], order: str) -> ir.Value:
    """Indices over N, C, H, W of data with the shape N, H, W, C -> indices over the axes in `order`."""
    if order == "NCHW":
        return index
    _, h, w, c = shape
    at = b.op("Mod", index, h * w)
    if order == "HW":
        return at
    plane = b.op("Div", index, h * w)
    flat = b.op("Add", b.op("Mul", at, c), b.op("Mod", plane, c))
    return flat if order == "HWC" else b.op("Add", flat, b.op("Mul", b.op("Div", plane, c), h * w * c))


@lifts("MaxUnpool", "UpsampleByIndex")
def lift_unpool(layer: Layer, b: Builder) -> ir.Value:
    """Zeros, with the data at their indices; channels-last."""
    x = operand(layer)
    index = b.op("Cast", operand(layer, 1), to=int(ir.DataType.INT64))
    declared = shape_of(layer.outputs[0]) if layer.outputs else None
    shape = need_ints(layer, "output_shape", need_ints(layer, "shape", declared or ()))
    if len(shape) != 4 or need_int(layer, "storage_order", 0):
        raise MappingError("only 4-D data in row-major order have a counterpart")
    order = choose(layer, "flatten_dim", {m: m for m in ("NHWC", "HWC", "HW", "NCHW")}, "HWC")
    flat = _absolute(b, index, static(x), shape, order)
    zeros = b.const(np.zeros(int(np.prod(shape)), x.dtype.numpy() if x.dtype else np.float32), "zeros")
    filled = b.op("ScatterElements", zeros, b.op("Reshape", flat, [-1]), b.op("Reshape", x, [-1]), axis=0)
    return b.op("Reshape", filled, shape)


def _absolute(b: Builder, index: ir.Value, small: tuple[int, ...], shape: list[int], order: str) -> ir.Value:
    """Indices flattened by `order` -> indices over all of N, H, W, C of `shape`."""
    n, h, w, c = shape
    batch = arange(n).reshape(n, 1, 1, 1) * (h * w * c)
    if order == "NHWC":
        return index
    if order == "HWC":
        return b.op("Add", index, b.const(batch))
    if order == "HW":
        return b.op("Add", b.op("Mul", index, c), b.const(batch + arange(c)))
    at, plane = b.op("Mod", index, h * w), b.op("Div", index, h * w)
    flat = b.op("Add", b.op("Mul", at, c), b.op("Mod", plane, c))
    return b.op("Add", flat, b.op("Mul", b.op("Div", plane, c), h * w * c))
