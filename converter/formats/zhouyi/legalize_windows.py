"""Windows that the format lacks: over one axis, with explicit padding, taken apart into patches;
and products of unequal ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.types import numpy_type
from converter.graph.build import Builder, attrs_of, defaults
from converter.graph.infer import Array, constant
from converter.graph.sizes import arange
from converter.graph.value import Value, operand, optional, with_operators
from converter.graph.windows import transposed_pads
from converter.mapping import context
from converter.mapping.concepts import window
from converter.mapping.lowering import view_of
from converter.passes.images import window_over_images
from converter.record import record


def static(value: ir.Value) -> list[int]:
    """Return the shape of a value. Raises MappingError if it is dynamic."""
    return list(context.static(value, str(value.name)))


def attributes(node: ir.Node) -> dict[str, Any]:
    """Return the attributes with the schema's defaults filled in."""
    return {**defaults(node.op_type, node.domain), **attrs_of(node)}


# geometry -----------------------------------------------------------------------------------------


@record
class Geometry:
    """A window over the spatial axes, a number for each of them.

    `data`, `out`  sizes of operand and result
    `begin`, `end` the padding
    `reach`        the distance between the first and the last element under the window
    """

    data: Array
    out: Array
    kernel: Array
    strides: Array
    dilations: Array
    begin: Array
    end: Array

    @property
    def reach(self) -> Array:
        return (self.kernel - 1) * self.dilations

    @property
    def axes(self) -> list[int]:
        """Return the indices of the spatial axes of the data."""
        return list(range(2, len(self.kernel) + 2))


def geometry(node: ir.Node) -> Geometry:
    """Return the geometry of a convolution or a pooling."""
    near = view_of(node)
    near.attrs = attributes(node)
    kernel = near.attrs.get("kernel_shape") or window.weights_kernel(near)
    found = window.Geometry.of(near, kernel)
    data, out = (static(v)[2:] for v in (operand(node), node.outputs[0]))
    first = (np.array(v, np.int64) for v in (data, out, *found.steps))
    return Geometry(*first, *np.split(np.array(found.pads, np.int64), 2))


def padded(b: Builder, x: Value, begin: Array, end: Array) -> Value:
    """Pad the spatial axes with zeros at both ends."""
    return b.Pad(x, [0, 0, *begin, 0, 0, *end]) if begin.any() or end.any() else x


# patches ------------------------------------------------------------------------------------------

LARGEST = 1 << 24  # elements of a table of indices
MOST_POSITIONS = 1 << 12  # of a window, each of which becomes a layer


def computed_weights(node: ir.Node, b: Builder) -> Value:
    """Rewrite a convolution with weights that are known only at run time: patches of the data times
    the weights, group by group.
    """
    w, bias, g, group = operand(node, 1), optional(node, 2), geometry(node), group_of(node)
    out, positions = static(node.outputs[0]), math.prod(g.kernel.tolist())
    if positions > MOST_POSITIONS:
        shown = " x ".join(map(str, g.kernel))
        raise MappingError(f"a window of {shown} elements is too large to enumerate")
    x = padded(b, operand(node), g.begin, g.end)
    n, channels = static(x)[:2]
    width, size = channels // group, math.prod(out[2:])
    parts = []
    for place in np.ndindex(*g.kernel):
        first = place * g.dilations
        under = b.Slice(x, first, first + (g.out - 1) * g.strides + 1, g.axes, g.strides)
        parts.append(b.Reshape(under, [n, group, width, 1, size]))
    patches = b.Reshape(b.Concat(*parts, axis=3), [n, group, width * positions, size])
    rows = b.Reshape(w, [1, group, out[1] // group, width * positions])
    y = b.Reshape(rows @ patches, out)
    return y if bias is None else y + column(b, bias, out)


def group_of(node: ir.Node) -> int:
    """Return the number of groups, 1 by default."""
    return int(attributes(node).get("group", 1))


def column(b: Builder, bias: Value, shape: Sequence[int]) -> Value:
    """Return one number for each channel, in a shape that broadcasts to data of this shape."""
    return b.Reshape(bias, [1, -1, *[1] * (len(shape) - 2)])


def computed_kernel(node: ir.Node, b: Builder) -> Value:
    """Rewrite a transposed convolution as zeros between the data, and a convolution with the
    mirrored weights.
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
    """Return the padding before a transposed convolution."""
    pads, _ = transposed_pads(attributes(node), g.data.tolist(), g.kernel.tolist())
    return np.array(pads[: len(g.kernel)], np.int64)


def uncropped_size(g: Geometry) -> Array:
    """Return the size of a transposed convolution's result before the padding is cropped."""
    return np.asarray(g.strides * (g.data - 1) + g.reach + 1)


def _apart(b: Builder, x: Value, axis: int, stride: int) -> Value:
    """Insert stride - 1 zeros between neighbors along `axis`."""
    shape = static(x)
    size = shape[axis]
    if stride == 1 or size == 1:
        return x
    wide = b.Pad(b.Unsqueeze(x, [axis + 1]), [0, stride - 1], None, [axis + 1])
    flat = b.Reshape(wide, [*shape[:axis], size * stride, *shape[axis + 1 :]])
    return b.Slice(flat, [0], [(size - 1) * stride + 1], [axis])


def pool_with_indices(node: ir.Node, b: Builder) -> tuple[Value, ...] | None:
    """Rewrite max pooling with indices, flattened over N, C, spatial, for windows that the format
    does not support: all but plain ones over two axes.
    """
    x, a, g, out = operand(node), attributes(node), geometry(node), static(node.outputs[0])
    rank = len(g.kernel)
    if a.get("storage_order", 0) or (rank == 2 and not a.get("ceil_mode", 0)):
        return None
    if math.prod((*out, *g.kernel.tolist())) > LARGEST:
        raise MappingError("the windows are too many to enumerate")
    first = [arange(n) * s - p for n, s, p in zip(g.out, g.strides, g.begin, strict=True)]
    steps = [arange(k) * d for k, d in zip(g.kernel, g.dilations, strict=True)]
    # for each axis the indices under all windows: axes of windows, then axes within a window
    open_grid = np.ix_(*first, *steps)
    lines = [open_grid[i] + open_grid[i + rank] for i in range(rank)]
    outside = [(v < 0) | (v >= n) for v, n in zip(lines, g.data, strict=True)]
    positions = np.ravel_multi_index(lines, tuple(g.data), mode="clip").reshape(
        math.prod(g.out), -1
    )
    missing = np.any(np.broadcast_arrays(*outside), axis=0).reshape(positions.shape)
    return _greatest(b, x, positions, missing, out)


def _greatest(
    b: Builder, x: Value, positions: Array, missing: Array, out: Sequence[int]
) -> tuple[Value, Value]:
    """Return the elements of each window by their index over the spatial axes, and a mask of
    padding: positions, missing [windows, K].
    """
    (n, c, *spatial), (windows, k) = static(x), positions.shape
    size = math.prod(spatial)
    flat = b.Gather(b.Reshape(x, [n, c, size]), positions.reshape(-1), axis=2)
    under = b.Reshape(flat, [n, c, windows, k])
    if missing.any():
        under = b.Where(np.broadcast_to(missing, [n, c, windows, k]), -np.inf, under)
    best = b.ArgMax(under, axis=3, keepdims=1)
    indices = arange(n * c).reshape(n, c, 1, 1) * size + positions
    index = b.GatherElements(indices, best, axis=3)
    return b.Reshape(b.ReduceMax(under, [3], keepdims=0), [*out]), b.Reshape(index, [*out])


# windows ------------------------------------------------------------------------------------------


def conv(node: ir.Node, b: Builder) -> ir.Value | None:
    """Return whether a layer has constant weights and biases over two or three axes."""
    if len(static(operand(node))) == 3:
        return window_over_images(node, b)
    bias = optional(node, 2)
    if bias is not None and constant(bias) is None and constant(operand(node, 1)) is not None:
        return _separate_bias(node, b, bias)
    return computed_weights(node, b) if constant(operand(node, 1)) is None else None


def _separate_bias(node: ir.Node, b: Builder, bias: Value) -> ir.Value:
    y = b.op(node.op_type, operand(node), operand(node, 1), **attributes(node))
    return with_operators(y) + column(b, bias, static(node.outputs[0]))


def conv_transpose(node: ir.Node, b: Builder) -> ir.Value | None:
    """Write output padding and a given output shape as less padding, and as zeros at the end where
    the padding does not suffice.
    """
    x, w, bias = operand(node), operand(node, 1), optional(node, 2)
    if constant(w) is None:
        return computed_kernel(node, b)
    if len(static(x)) == 3:
        return window_over_images(node, b)
    if bias is not None and constant(bias) is None:
        return _separate_bias(node, b, bias)
    g = geometry(node)
    begin = transposed_begin(node, g)
    end = uncropped_size(g) - begin - g.out
    short, rank = np.maximum(-end, 0), len(begin)
    y = b.ConvTranspose(
        x,
        w,
        None if short.any() else bias,
        group=group_of(node),
        kernel_shape=g.kernel,
        strides=g.strides,
        dilations=g.dilations,
        pads=[*begin, *np.maximum(end, 0)],
    )
    if not short.any():
        return y
    y = b.Pad(y, [0] * (rank + 4) + short.tolist())
    return y if bias is None else y + column(b, bias, static(node.outputs[0]))


def pool(node: ir.Node, b: Builder) -> ir.Value | tuple[ir.Value, ...] | None:
    """Write rounding up as more padding at the end, where the common decomposition uses a separate
    Pad. If an average counts its padding, the data are padded before.
    """
    x, a = operand(node), attributes(node)
    shape = static(x)
    if len(node.outputs) != 1:
        return pool_with_indices(node, b)
    if len(shape) == 3:
        return window_over_images(node, b)
    g = geometry(node)
    last = (g.out - 1) * g.strides
    if (last >= g.data + g.begin).any():
        raise MappingError("a window that begins in the padding at the end is not supported")
    if not a.get("ceil_mode", 0):
        return _larger(node, b, g) if node.op_type == "LpPool" else None
    over = np.maximum(0, last + g.reach + 1 - g.data - g.begin - g.end)
    kept = {k: v for k, v in a.items() if k not in ("ceil_mode", "pads")}
    begin, end = g.begin, g.end
    if node.op_type == "AveragePool" and a.get("count_include_pad", 0) and over.any():
        x = padded(b, x, begin, end)
        begin, end = 0 * begin, 0 * end
    if over.any():
        kept.pop("count_include_pad", None)
    return b.op(node.op_type, x, **kept, pads=[*begin, *end + over])


def _larger(node: ir.Node, b: Builder, g: Geometry) -> ir.Value | None:
    """Compute powers other than 1 and 2, and other ranks, from an average of powers."""
    x, a = operand(node), attributes(node)
    p = float(a["p"])
    if len(g.kernel) == 2 and p in (1, 2):
        return None
    kept = {k: v for k, v in a.items() if k in ("kernel_shape", "strides", "pads", "dilations")}
    mean: Value = b.AveragePool(b.Abs(x) ** p, **kept, count_include_pad=1)
    return (mean * float(np.prod(g.kernel))) ** (1.0 / p)


def computed_scale(node: ir.Node, b: Builder) -> ir.Value | None:
    """Write computed scale and shift as operators after the layer, which the common decomposition
    does not use at all.
    """
    x, a = operand(node), attributes(node)
    shape = static(x)
    ones = np.ones(shape[1], numpy_type(x))
    plain: Value = b.operator(node.op_type)(x, ones, np.zeros_like(ones), **a)
    scale, shift = (column(b, operand(node, i), shape) for i in (1, 2))
    return plain * scale + shift


def mat_mul(node: ir.Node, b: Builder) -> ir.Value | None:
    """Equally many axes, equal batches: leading ones by Reshape, broadcast by Tile; fewer layers
    than the common decomposition makes. One matrix for all rows of a batch is multiplied by the
    rows of one matrix, so that constant weights are stored once.
    """
    x, y = operand(node), operand(node, 1)
    sx, sy = static(x), static(y)
    if len(sx) == len(sy) and sx[:-2] == sy[:-2] and len(sx) >= 2:
        return None
    sx, sy = ([1, *sx] if len(sx) == 1 else sx), ([*sy, 1] if len(sy) == 1 else sy)
    rank = max(len(sx), len(sy))
    sx, sy = [1] * (rank - len(sx)) + sx, [1] * (rank - len(sy)) + sy
    batch = [max(m, n) if m and n else 0 for m, n in zip(sx[:-2], sy[:-2], strict=True)]

    if math.prod(sy[:-2]) == 1 < math.prod(sx[:-2]):
        rows = b.Reshape(x, [math.prod(sx[:-1]), sx[-1]])
        z = rows @ (y if len(static(y)) == 2 else b.Reshape(y, sy[-2:]))
        return b.Reshape(z, static(node.outputs[0]))

    def fitting(v: Value, shape: list[int]) -> Value:
        v = v if static(v) == shape else b.Reshape(v, shape)
        times = [m // n if n else 1 for m, n in zip(batch, shape[:-2], strict=True)]
        return v if shape[:-2] == batch else b.Tile(v, [*times, 1, 1])

    z = fitting(x, sx) @ fitting(y, sy)
    return z if static(z) == static(node.outputs[0]) else b.Reshape(z, static(node.outputs[0]))
