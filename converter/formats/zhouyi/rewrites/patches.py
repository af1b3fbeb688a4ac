"""Windows taken apart: convolutions by weights that are only known at run time, and the places of
the greatest elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.rewrites.operands import (
    Geometry,
    attributes,
    geometry,
    padded,
    static,
)
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.graph.sizes import arange
from converter.graph.value import Value, operand, optional

LARGEST = 1 << 24  # elements of a table of places
MOST_PLACES = 1 << 12  # of a window, each of which becomes a layer


def computed_weights(node: ir.Node, b: Builder) -> Value:
    """A convolution by weights that are only known at run time: the patches of the data times the
    weights, group by group.
    """
    w, bias, g, group = operand(node, 1), optional(node, 2), geometry(node), group_of(node)
    out, places = static(node.outputs[0]), math.prod(g.kernel.tolist())
    if places > MOST_PLACES:
        shown = " x ".join(map(str, g.kernel))
        raise MappingError(f"a window of {shown} places is too large to be written out")
    x = padded(b, operand(node), g.begin, g.end)
    n, channels = static(x)[:2]
    width, size = channels // group, math.prod(out[2:])
    parts = []
    for place in np.ndindex(*g.kernel):
        first = place * g.dilations
        under = b.Slice(x, first, first + (g.out - 1) * g.strides + 1, g.axes, g.strides)
        parts.append(b.Reshape(under, [n, group, width, 1, size]))
    patches = b.Reshape(b.Concat(*parts, axis=3), [n, group, width * places, size])
    rows = b.Reshape(w, [1, group, out[1] // group, width * places])
    y = b.Reshape(rows @ patches, out)
    return y if bias is None else y + column(b, bias, out)


def group_of(node: ir.Node) -> int:
    return int(attributes(node).get("group", 1))


def column(b: Builder, bias: Value, shape: Sequence[int]) -> Value:
    """A number for each channel of data of this shape."""
    return b.Reshape(bias, [1, -1, *[1] * (len(shape) - 2)])


def computed_kernel(node: ir.Node, b: Builder) -> Value:
    """A transposed convolution: zeros between the data, and a convolution by the mirrored
    weights.
    """
    x, w, g, group = operand(node), operand(node, 1), geometry(node), group_of(node)
    channels, width, *kernel = static(w)
    for axis, stride in zip(g.axes, g.strides.tolist(), strict=True):
        x = _apart(b, x, axis, stride)
    front = g.reach - transposed_begin(node, g)
    behind = g.out + g.reach - front - static(x)[2:]
    x = padded(b, x, np.maximum(front, 0), np.maximum(behind, 0))
    cut = np.maximum(-front, 0)
    x = b.Slice(x, cut, cut + g.out + g.reach, g.axes)
    for axis, k in zip(g.axes, kernel, strict=True):
        w = b.Gather(w, arange(k)[::-1].copy(), axis=axis) if k > 1 else w
    rows = b.Reshape(w, [group, channels // group, width, *kernel])
    rows = b.Transpose(rows, perm=[0, 2, 1, *(a + 1 for a in g.axes)])
    weights = b.Reshape(rows, [group * width, channels // group, *kernel])
    how: dict[str, Any] = {"kernel_shape": kernel, "strides": [1] * len(kernel)}
    how |= {"dilations": g.dilations, "pads": [0] * (2 * len(kernel)), "group": group}
    y: Value = b.Conv(x, weights, optional(node, 2), **how)
    return y


def transposed_begin(node: ir.Node, g: Geometry) -> Array:
    """The padding in front of a transposed convolution; with a given output shape ONNX divides what
    is too much between both ends.
    """
    a = attributes(node)
    if not a.get("output_shape"):
        return g.begin
    total = whole_size(g) + np.array(a.get("output_padding") or 0) - g.out
    return np.asarray(total - total // 2)


def whole_size(g: Geometry) -> Array:
    """The result of a transposed convolution from which no padding is taken off."""
    return np.asarray(g.strides * (g.data - 1) + g.reach + 1)


def _apart(b: Builder, x: Value, axis: int, stride: int) -> Value:
    """stride - 1 zeros between neighbours along `axis`."""
    shape = static(x)
    size = shape[axis]
    if stride == 1 or size == 1:
        return x
    wide = b.Pad(b.Unsqueeze(x, [axis + 1]), [0, stride - 1], None, [axis + 1])
    flat = b.Reshape(wide, [*shape[:axis], size * stride, *shape[axis + 1 :]])
    return b.Slice(flat, [0], [(size - 1) * stride + 1], [axis])


def best_places(node: ir.Node, b: Builder) -> tuple[Value, ...] | None:
    """The greatest elements and where they are, flattened over N, C, spatial: what the format has
    only for plain windows over two axes.
    """
    x, a, g, out = operand(node), attributes(node), geometry(node), static(node.outputs[0])
    rank = len(g.kernel)
    if a.get("storage_order", 0) or (rank == 2 and not a.get("ceil_mode", 0)):
        return None
    if math.prod((*out, *g.kernel.tolist())) > LARGEST:
        raise MappingError("the windows are too many to write each of their places down")
    first = [arange(n) * s - p for n, s, p in zip(g.out, g.strides, g.begin, strict=True)]
    steps = [arange(k) * d for k, d in zip(g.kernel, g.dilations, strict=True)]
    # of each axis the places under all windows: axes of windows, then axes within a window
    open_grid = np.ix_(*first, *steps)
    lines = [open_grid[i] + open_grid[i + rank] for i in range(rank)]
    outside = [(v < 0) | (v >= n) for v, n in zip(lines, g.data, strict=True)]
    places = np.ravel_multi_index(lines, tuple(g.data), mode="clip").reshape(math.prod(g.out), -1)
    missing = np.any(np.broadcast_arrays(*outside), axis=0).reshape(places.shape)
    return _greatest(b, x, places, missing, out)


def _greatest(
    b: Builder, x: Value, places: Array, missing: Array, out: Sequence[int]
) -> tuple[Value, Value]:
    """places, missing [windows, K]: the elements of each window by their index over the spatial
    axes, and which of them are padding.
    """
    (n, c, *spatial), (windows, k) = static(x), places.shape
    size = math.prod(spatial)
    flat = b.Gather(b.Reshape(x, [n, c, size]), places.reshape(-1), axis=2)
    under = b.Reshape(flat, [n, c, windows, k])
    if missing.any():
        everywhere = b.const(np.broadcast_to(missing, [n, c, windows, k]))
        under = b.Where(everywhere, b.like(x, -np.inf), under)
    best = b.ArgMax(under, axis=3, keepdims=1)
    all_places = arange(n * c).reshape(n, c, 1, 1) * size + places
    index = b.GatherElements(all_places, best, axis=3)
    return b.Reshape(b.ReduceMax(under, [3], keepdims=0), [*out]), b.Reshape(index, [*out])
