"""Windows taken apart: convolutions by weights that are only known at run time, and the places of the greatest elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.ops.fields import explicit_pads, kernel_of
from converter.formats.zhouyi.rewrites.register import attributes, operand, optional, static
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.graph.sizes import arange
from converter.mapping.drive import near_of
from converter.mapping.node import MappingError, Node

LARGEST = 1 << 24  # elements of a table of places
MOST_PLACES = 1 << 12  # of a window, each of which becomes a layer


def filled(node: ir.Node) -> Node:
    near = near_of(node)
    near.attrs = attributes(node)
    return near


def _pieces(b: Builder, x: ir.Value, kernel: Sequence[int], dilations: Sequence[int], strides: Sequence[int], out: Sequence[int]) -> list[ir.Value]:
    """For each place of the window the elements under it: [N, C, *out] each."""
    if math.prod(kernel) > MOST_PLACES:
        raise MappingError(f"a window of {' x '.join(map(str, kernel))} places is too large to be written out")
    pieces = []
    for place in np.ndindex(*kernel):
        first = [int(i) * d for i, d in zip(place, dilations, strict=True)]
        last = [f + (o - 1) * s + 1 for f, o, s in zip(first, out, strides, strict=True)]
        pieces.append(b.op("Slice", x, first, last, list(range(2, len(out) + 2)), list(strides)))
    return pieces


def computed_weights(node: ir.Node, b: Builder) -> ir.Value:
    """A convolution by weights that are only known at run time: the patches of the data times the weights, group by group."""
    x, w, bias, a = operand(node), operand(node, 1), optional(node, 2), attributes(node)
    kernel, near = kernel_of(filled(node)), filled(node)
    rank, out, group = len(kernel), static(node.outputs[0]), a.get("group", 1)
    pads, strides, dilations = explicit_pads(near, kernel), a.get("strides") or [1] * rank, a.get("dilations") or [1] * rank
    if any(pads):
        x = b.op("Pad", x, [0, 0, *pads[:rank], 0, 0, *pads[rank:]])
    n, channels = static(x)[:2]
    size, places = int(np.prod(out[2:])), int(np.prod(kernel))
    parts = [b.op("Reshape", part, [n, group, channels // group, 1, size]) for part in _pieces(b, x, kernel, dilations, strides, out[2:])]
    patches = b.op("Reshape", b.op("Concat", *parts, axis=3), [n, group, channels // group * places, size])
    rows = b.op("Reshape", w, [1, group, out[1] // group, channels // group * places])
    y = b.op("Reshape", b.op("MatMul", rows, patches), out)
    return y if bias is None else b.op("Add", y, b.op("Reshape", bias, [1, -1, *[1] * rank]))


def computed_kernel(node: ir.Node, b: Builder) -> ir.Value:
    """A transposed convolution: zeros between the data, and a convolution by the mirrored weights."""
    x, w, bias, a = operand(node), operand(node, 1), optional(node, 2), attributes(node)
    shape, out, group = static(x), static(node.outputs[0]), a.get("group", 1)
    _, width, *kernel = static(w)
    rank = len(kernel)
    strides, dilations = a.get("strides") or [1] * rank, a.get("dilations") or [1] * rank
    for axis, s in enumerate(strides, 2):
        x = _apart(b, x, axis, s)
    full = [s * (n - 1) + (k - 1) * d + 1 for n, k, s, d in zip(shape[2:], kernel, strides, dilations, strict=True)]
    begin = first_pads(a, full, out[2:], rank)
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    front = [r - p for r, p in zip(reach, begin, strict=True)]
    behind = [o + r - f - n for o, r, f, n in zip(out[2:], reach, front, static(x)[2:], strict=True)]
    x = b.op("Pad", x, [0, 0, *(max(0, f) for f in front), 0, 0, *(max(0, e) for e in behind)])
    cut = [max(0, -f) for f in front]
    x = b.op("Slice", x, cut, [c + o + r for c, o, r in zip(cut, out[2:], reach, strict=True)], list(range(2, rank + 2)))
    mirrored = w
    for axis, k in enumerate(kernel, 2):
        mirrored = b.op("Gather", mirrored, arange(k)[::-1].copy(), axis=axis) if k > 1 else mirrored
    rows = b.op("Reshape", mirrored, [group, shape[1] // group, width, *kernel])
    rows = b.op("Transpose", rows, perm=[0, 2, 1, *range(3, rank + 3)])
    weights = b.op("Reshape", rows, [group * width, shape[1] // group, *kernel])
    return b.op("Conv", x, weights, bias, group=group, dilations=list(dilations), strides=[1] * rank, pads=[0] * (2 * rank), kernel_shape=list(kernel))


def first_pads(a: dict[str, Any], full: list[int], out: list[int], rank: int) -> list[int]:
    """The padding in front; with a given output shape ONNX divides what is too much between both ends."""
    extra = a.get("output_padding") or [0] * rank
    auto = a.get("auto_pad", "NOTSET")
    if not a.get("output_shape") and auto not in ("SAME_UPPER", "SAME_LOWER"):
        return list(a.get("pads") or [0] * (2 * rank))[:rank]
    total = [f + e - o for f, e, o in zip(full, extra, out, strict=True)]
    return [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total]


def _apart(b: Builder, x: ir.Value, axis: int, stride: int) -> ir.Value:
    """stride - 1 zeros between neighbours along `axis`."""
    shape = static(x)
    if stride == 1 or shape[axis] == 1:
        return x
    wide = b.op("Reshape", x, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    pads = [0] * (2 * len(shape) + 2)
    pads[len(shape) + 1 + axis + 1] = stride - 1
    flat = b.op("Reshape", b.op("Pad", wide, pads), [*shape[:axis], shape[axis] * stride, *shape[axis + 1 :]])
    return b.op("Slice", flat, [0], [(shape[axis] - 1) * stride + 1], [axis])


def best_places(node: ir.Node, b: Builder) -> tuple[ir.Value, ...] | None:
    """The greatest elements and where they are, flattened over N, C, spatial: what the format has only for plain windows over two axes."""
    x, a = operand(node), attributes(node)
    shape, out = static(x), static(node.outputs[0])
    near = filled(node)
    kernel = kernel_of(near)
    rank = len(kernel)
    if a.get("storage_order", 0) or (rank == 2 and not a.get("ceil_mode", 0)):
        return None
    strides, dilations, pads = a.get("strides") or [1] * rank, a.get("dilations") or [1] * rank, explicit_pads(near, kernel)
    lines = [arange(o)[:, None] * s - p + arange(k) * d for o, s, p, k, d in zip(out[2:], strides, pads, kernel, dilations, strict=False)]
    inside = [(line >= 0) & (line < n) for line, n in zip(lines, shape[2:], strict=True)]
    if int(np.prod(out)) * int(np.prod(kernel)) > LARGEST:
        raise MappingError("the windows are too many to write each of their places down")
    table, valid = np.zeros([1] * (2 * rank), np.int64), np.ones([1] * (2 * rank), bool)
    for i, (line, good) in enumerate(zip(lines, inside, strict=True)):
        spread = [line.shape[0] if j == i else line.shape[1] if j == i + rank else 1 for j in range(2 * rank)]
        table = table * shape[2 + i] + np.clip(line, 0, shape[2 + i] - 1).reshape(spread)
        valid = valid & good.reshape(spread)
    full = [*out[2:], *kernel]
    places = np.broadcast_to(table, full).reshape(int(np.prod(out[2:])), -1)
    missing = ~np.broadcast_to(valid, full).reshape(places.shape)
    return _greatest(b, x, places, missing, out)


def _greatest(b: Builder, x: ir.Value, places: Array, missing: Array, out: Sequence[int]) -> tuple[ir.Value, ir.Value]:
    """places, missing [windows, K]: the elements of each window by their index over the spatial axes, and which of them are padding."""
    shape, (windows, k) = static(x), places.shape
    n, c, size = shape[0], shape[1], int(np.prod(shape[2:]))
    under = b.op("Reshape", b.op("Gather", b.op("Reshape", x, [n, c, size]), b.const(places.reshape(-1)), axis=2), [n, c, windows, k])
    if missing.any():
        under = b.op("Where", b.const(np.broadcast_to(missing, [n, c, windows, k])), b.like(x, -np.inf), under)
    best = b.op("ArgMax", under, axis=3, keepdims=1)
    first = arange(n * c).reshape(n, c, 1, 1) * size
    index = b.op("GatherElements", b.const(np.broadcast_to(first + places, [n, c, windows, k])), best, axis=3)
    return b.op("Reshape", b.op("ReduceMax", under, [3], keepdims=0), list(out)), b.op("Reshape", index, list(out))
