"""Sampling at computed positions as Gather, Floor and arithmetic, if the shapes are known."""

from __future__ import annotations

import itertools
from functools import reduce
from operator import add, and_

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attributes
from converter.graph.infer import shape_of
from converter.graph.interpolation import cubic_factors
from converter.graph.sizes import arange
from converter.graph.value import INT64, array_type, operands
from converter.graph.verify.shapes_of import window_of
from converter.passes.decompositions.activations import back, is_float, wide, x_of
from converter.passes.decompositions.table import Table
from converter.record import record

Tap = tuple[Value, Value | None, Value | None]  # index, whether it is inside the image, weight


def affine_grid(node: ir.Node, b: Builder) -> Value | None:
    """Multiply the pixel positions of an image, in -1..1 with the last axis first, by the matrix of
    each sample.
    """
    theta, out = x_of(node), shape_of(node.outputs[0])
    if out is None or theta.dtype is None:
        return None
    extents, axes = out[1:-1], len(out) - 2
    corners = bool(attributes(node)["align_corners"])
    lines = [np.linspace(-1, 1, n) if corners else (2 * arange(n) + 1) / n - 1 for n in extents]
    positions = np.stack([*reversed(np.meshgrid(*lines, indexing="ij")), np.ones(extents)]).reshape(
        axes + 1, -1
    )
    transposed = b.Transpose(
        theta @ b.const(positions.astype(theta.dtype.numpy()), "places"), perm=[0, 2, 1]
    )
    return b.Reshape(transposed, list(out))


def grid_sample(node: ir.Node, b: Builder) -> Value | None:
    """Gather the neighbors of each sampled position from the flattened image and sum them with
    their weights.

    Positions are computed in single precision, because half precision cannot represent fractions of
    pixels in large images, nor every pixel beyond 2048.
    """
    x, grid, attrs = wide(b, x_of(node)), wide(b, x_of(node, 1)), attributes(node)
    shape, out = shape_of(x), shape_of(node.outputs[0])
    if shape is None or out is None or not is_float(x):
        return None
    extents, count = shape[2:], int(np.prod(out[2:]))
    parts = len(extents)
    positions = b.Reshape(grid, [out[0], count, parts])
    columns = b.Split(positions, [1] * parts, outputs=parts, axis=2)
    taps = []
    for extent, column in zip(extents, reversed(columns), strict=True):
        axis = _Axis(extent, attrs["mode"], attrs["padding_mode"], bool(attrs["align_corners"]))
        taps.append(axis.taps(b, axis.pixels(b.Reshape(column, [out[0], count]))))
    flat = b.Reshape(x, [*shape[:2], int(np.prod(extents))])
    sampled = (
        _sampled(b, flat, extents, chosen, [out[0], out[1], count])
        for chosen in itertools.product(*taps)
    )
    total = reduce(add, sampled)
    return back(b, b.Reshape(total, list(out)), x_of(node))


@record
class _Axis:
    """One axis of the image, with the modes of GridSample."""

    extent: int
    mode: str
    padding: str
    corners: bool

    def pixels(self, g: Value) -> Value:
        """Convert positions in -1..1 to pixels."""
        if self.corners:
            return (g + 1) * ((self.extent - 1) / 2)
        return (g + 1) * (self.extent / 2) - 0.5

    def taps(self, b: Builder, position: Value) -> list[Tap]:
        """Return the neighbors of each position."""
        if self.padding == "border" and self.mode != "cubic":
            # clip the position itself, as PyTorch and onnxruntime do, except in cubic mode
            position = self._clipped(b, position)
        elif self.padding == "reflection":
            position = self._reflected(b, position)
        if self.mode == "nearest":
            return [self._tap(b, b.Round(position), None)]
        low = b.Floor(position)
        rest = position - low
        one = b.like(rest, 1)
        other = one - rest
        if self.mode == "linear":
            weights = {0: other, 1: rest}
        else:
            distances = {-1: rest + one, 0: rest, 1: other, 2: other + one}
            weights = {i: _cubic(d, i in (0, 1)) for i, d in distances.items()}
        return [self._tap(b, low + i, w) for i, w in weights.items()]

    def _tap(self, b: Builder, index: Value, weight: Value | None) -> Tap:
        reflects = self.padding == "reflection"
        kept = self._clipped(b, self._reflected(b, index) if reflects else index)
        inside = b.Equal(kept, index) if self.padding == "zeros" else None
        return b.Cast(kept, to=INT64), inside, weight

    def _clipped(self, b: Builder, x: Value) -> Value:
        return b.Clip(x, 0, self.extent - 1)

    def _reflected(self, b: Builder, x: Value) -> Value:
        """Reflect positions at the centers or, without `corners`, the outer edges of the outermost
        pixels (a triangle wave).
        """
        low, width = (0.0, self.extent - 1.0) if self.corners else (-0.5, float(self.extent))
        if width == 0:
            return x * 0
        start, period = x - low, b.like(x, 2 * width)
        turn = start - b.Floor(start / period) * period
        return width + low - b.Abs(turn - width)


def _cubic(d: Value, inner: bool) -> Value:
    """Return the cubic convolution kernel at a distance of 0..1 (inner) or 1..2."""
    first, second, *others = cubic_factors(-0.75, inner)
    y = first * d + second
    for factor in others:
        y = y * d + factor
    return y


def _sampled(
    b: Builder, flat: Value, extents: tuple[int, ...], chosen: tuple[Tap, ...], shape: list[int]
) -> Value:
    """Return one neighbor of every position, times its weights: flat [N,C,pixels] ->
    [N,C,positions].
    """
    (index, _, _), *others = chosen
    for extent, (at, _, _) in zip(extents[1:], others, strict=True):
        index = index * np.array(extent, np.int64) + at
    y = b.GatherElements(flat, b.Expand(index[:, None], shape), axis=2)
    for _, _, weight in chosen:
        if weight is not None:
            y = y * weight[:, None]
    inside = [i for _, i, _ in chosen if i is not None]
    return b.Where(reduce(and_, inside)[:, None], y, 0) if inside else y


def deform_conv(node: ir.Node, b: Builder) -> Value | None:
    """Sample the input of each tap of the filter, then convolve with a 1 x 1 filter that has one
    channel per channel and tap.
    """
    attrs = attributes(node)
    x, w, offset, bias, mask = operands(node, 5)
    shapes = [shape_of(v) or () for v in (x, w, offset)]
    if len(shapes[0]) != 4 or not all(shapes) or not is_float(x):
        return None
    (n, c, *size), (m, per, *kernel), (_, _, *out) = shapes
    groups, taps = attrs["offset_group"], int(np.prod(kernel))
    moved = b.Reshape(wide(b, offset), [n * groups, taps, 2, *out])
    lines = []
    for axis in (0, 1):
        center = _centers(node, axis, kernel, out).astype(array_type(moved))
        position = b.Gather(moved, axis, axis=2) + center
        lines.append((position + 0.5) * (2 / size[axis]) - 1)
    grid = b.Reshape(
        b.Concat(*(v[..., None] for v in reversed(lines)), axis=-1),
        [n * groups, taps * out[0], out[1], 2],
    )
    seen = b.GridSample(b.Reshape(x, [n * groups, c // groups, *size]), grid)
    seen = b.Reshape(seen, [n * groups, c // groups, taps, *out])
    if mask is not None:
        seen = seen * b.Reshape(mask, [n * groups, 1, taps, *out])
    data, filters = (b.Reshape(seen, [n, c * taps, *out]), b.Reshape(w, [m, per * taps, 1, 1]))
    return b.Conv(data, filters, bias, group=attrs["group"], kernel_shape=[1, 1])


def _centers(node: ir.Node, axis: int, kernel: list[int], out: list[int]) -> np.ndarray:
    """Return the tap positions without offsets: [taps, height, width]."""
    strides, dilations, pads = window_of(node, 2)
    tap = np.indices(kernel)[axis].reshape(-1, 1, 1) * dilations[axis]
    return np.asarray(np.indices(out)[axis][None] * strides[axis] + tap - pads[axis])


def max_unpool(node: ir.Node, b: Builder) -> Value | None:
    """Scatter each number to its index in the flattened result of the pooling's size; a larger
    `output_shape` adds zeros at the end.
    """
    x, index, out = x_of(node), x_of(node, 1), shape_of(node.outputs[0])
    shape = shape_of(x)
    if shape is None or x.dtype is None or (len(node.inputs) > 2 and out is None):
        return None
    kernel = attributes(node)["kernel_shape"]
    strides, _, pads = window_of(node, len(kernel))
    size = [
        (n - 1) * s + k - p - q
        for n, s, k, p, q in zip(
            shape[2:], strides, kernel, pads, pads[len(kernel) :], strict=False
        )
    ]
    whole = [*shape[:2], *size]
    zeros = b.const(np.zeros(int(np.prod(whole)), x.dtype.numpy()), "zeros")
    y = b.Reshape(
        b.ScatterElements(zeros, b.Reshape(index, [-1]), b.Reshape(x, [-1]), axis=0), whole
    )
    wanted = list(out) if out is not None else whole
    if wanted == whole:
        return y
    return (
        b.Pad(y, [0] * len(whole) + [w - h for w, h in zip(wanted, whole, strict=True)])
        if all(w >= h for w, h in zip(wanted, whole, strict=True))
        else None
    )


TABLE: Table = {
    ("", "AffineGrid"): affine_grid,
    ("", "GridSample"): grid_sample,
    ("", "DeformConv"): deform_conv,
    ("", "MaxUnpool"): max_unpool,
}
