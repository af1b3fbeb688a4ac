"""Sampling at computed places in Gather, Floor and arithmetic, where the shapes are known."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attrs_of
from converter.graph.infer import shape_of
from converter.graph.interpolation import cubic_factors
from converter.graph.sizes import arange
from converter.passes.decompositions.activations import back, is_float, wide, x_of
from converter.passes.decompositions.table import Table

_INT = int(ir.DataType.INT64)
Tap = tuple[Value, Value | None, Value | None]  # index, whether it lies inside, weight


def affine_grid(node: ir.Node, b: Builder) -> Value | None:
    """The places of the pixels of an image in -1..1, last axis first, times the matrix of each
    sample.
    """
    theta, out = x_of(node), shape_of(node.outputs[0])
    if out is None or theta.dtype is None:
        return None
    extents, axes = out[1:-1], len(out) - 2
    corners = bool(attrs_of(node).get("align_corners", 0))
    lines = [np.linspace(-1, 1, n) if corners else (2 * arange(n) + 1) / n - 1 for n in extents]
    places = np.stack([*reversed(np.meshgrid(*lines, indexing="ij")), np.ones(extents)]).reshape(
        axes + 1, -1
    )
    turned = b.Transpose(
        theta @ b.const(places.astype(theta.dtype.numpy()), "places"), perm=[0, 2, 1]
    )
    return b.Reshape(turned, list(out))


def grid_sample(node: ir.Node, b: Builder) -> Value | None:
    """Of each sampled place the neighbours along every axis, gathered from the flattened image and
    summed with their weights.

    Half precision has no place between two pixels of a large image, and beyond 2048 not even every
    pixel: places are computed in single.
    """
    x, grid, attrs = wide(b, x_of(node)), wide(b, x_of(node, 1)), attrs_of(node)
    shape, out = shape_of(x), shape_of(node.outputs[0])
    if shape is None or out is None or not is_float(x):
        return None
    extents, count = shape[2:], int(np.prod(out[2:]))
    mode, padding, corners = (
        attrs.get("mode", "linear"),
        attrs.get("padding_mode", "zeros"),
        bool(attrs.get("align_corners", 0)),
    )
    columns = b.Split(
        b.Reshape(grid, [out[0], count, len(extents)]),
        [1] * len(extents),
        outputs=len(extents),
        axis=2,
    )
    taps = []
    for extent, column in zip(extents, reversed(columns), strict=True):
        place = _place(b, b.Reshape(column, [out[0], count]), extent, corners)
        taps.append(
            _taps(
                b, place, extent, mode, padding, corners, float(attrs.get("cubic_coeff_a", -0.75))
            )
        )
    flat, total = b.Reshape(x, [*shape[:2], int(np.prod(extents))]), None
    for chosen in itertools.product(*taps):
        part = _sampled(b, flat, extents, chosen, [out[0], out[1], count])
        total = part if total is None else total + part
    return None if total is None else back(b, b.Reshape(total, list(out)), x_of(node))


def _place(b: Builder, g: Value, extent: int, corners: bool) -> Value:
    """From -1..1 to pixels."""
    if corners:
        return (g + 1) * ((extent - 1) / 2)
    return (g + 1) * (extent / 2) - 0.5


def _taps(
    b: Builder, place: Value, extent: int, mode: str, padding: str, corners: bool, a: float
) -> list[Tap]:
    """The neighbours along one axis."""
    if (
        padding == "border" and mode != "cubic"
    ):  # there each neighbour is taken from the border, as PyTorch and onnxruntime do
        place = _clipped(b, place, extent)
    elif padding == "reflection":
        place = _reflected(b, place, extent, corners)
    if mode == "nearest":
        return [_tap(b, b.Round(place), extent, padding, corners, None)]
    low = b.Floor(place)
    rest = place - low
    one = b.like(rest, 1)
    if mode == "linear":
        near = [(0, one - rest), (1, rest)]
    else:
        near = [
            (i, _cubic(b, d, a, i in (0, 1)))
            for i, d in zip((-1, 0, 1, 2), _distances(b, rest, one), strict=True)
        ]
    return [_tap(b, low + i, extent, padding, corners, w) for i, w in near]


def _distances(b: Builder, rest: Value, one: Value) -> list[Value]:
    other = one - rest
    return [rest + one, rest, other, other + one]


def _cubic(b: Builder, d: Value, a: float, inner: bool) -> Value:
    """The convolution kernel of cubic interpolation at a distance of 0..1 (inner) or 1..2."""
    factors = cubic_factors(a, inner)
    y: Any = b.like(d, factors[0])
    for factor in factors[1:]:
        y = y * d + factor
    return y  # type: ignore[no-any-return]


def _tap(
    b: Builder, index: Value, extent: int, padding: str, corners: bool, weight: Value | None
) -> Tap:
    if padding == "reflection":
        return (
            b.Cast(_clipped(b, _reflected(b, index, extent, corners), extent), to=_INT),
            None,
            weight,
        )
    kept = _clipped(b, index, extent)
    return (b.Cast(kept, to=_INT), b.Equal(kept, index) if padding == "zeros" else None, weight)


def _clipped(b: Builder, x: Value, extent: int) -> Value:
    return b.Clip(x, b.like(x, 0), b.like(x, extent - 1))


def _reflected(b: Builder, x: Value, extent: int, corners: bool) -> Value:
    """A wave of triangles between the centres of the outer pixels, or their outer edges."""
    low, width = (0.0, float(extent - 1)) if corners else (-0.5, float(extent))
    if width == 0:
        return x * 0
    start, period = x - low, b.like(x, 2 * width)
    turn = start - b.Floor(start / period) * period
    return width + low - b.Abs(turn - width)


def _sampled(
    b: Builder, flat: Value, extents: tuple[int, ...], chosen: tuple[Tap, ...], shape: list[int]
) -> Value:
    """One neighbour of every place, times its weights. flat [N,C,pixels] -> [N,C,places]."""
    index: Any = None
    for extent, (at, _, _) in zip(extents, chosen, strict=True):
        index = at if index is None else index * np.array(extent, np.int64) + at
    y = b.GatherElements(flat, b.Expand(b.Unsqueeze(index, [1]), shape), axis=2)
    for _, _, weight in chosen:
        if weight is not None:
            y = y * b.Unsqueeze(weight, [1])
    inside = [i for _, i, _ in chosen if i is not None]
    if not inside:
        return y
    every = inside[0]
    for other in inside[1:]:
        every = every & other
    return b.Where(b.Unsqueeze(every, [1]), y, b.like(y, 0))


def deform_conv(node: ir.Node, b: Builder) -> Value | None:
    """What each tap of the filter sees is sampled, and the filter is one over 1 x 1 pixels of as
    many channels as it has taps.
    """
    attrs = attrs_of(node)
    operands = [*node.inputs, None, None]
    x, w, offset, bias, mask = operands[:5]
    shapes = [shape_of(v) for v in (x, w, offset) if v is not None]
    if (
        x is None
        or w is None
        or offset is None
        or len(shapes) != 3
        or None in shapes
        or len(shapes[0] or ()) != 4
        or not is_float(x)
    ):
        return None
    (n, c, *size), (m, per, *kernel), (_, _, *out) = (list(s or ()) for s in shapes)
    groups, taps = int(attrs.get("offset_group", 1)), int(np.prod(kernel))
    moved = b.Reshape(wide(b, offset), [n * groups, taps, 2, *out])
    lines = []
    for axis in (0, 1):
        centre = b.const(
            _centres(attrs, axis, kernel, out).astype(
                np.float64 if moved.dtype == ir.DataType.DOUBLE else np.float32
            )
        )
        place = b.Gather(moved, axis, axis=2) + centre
        lines.append((place + 0.5) * (2 / size[axis]) - 1)
    grid = b.Reshape(
        b.Concat(*(b.Unsqueeze(v, [-1]) for v in reversed(lines)), axis=-1),
        [n * groups, taps * out[0], out[1], 2],
    )
    seen = b.GridSample(
        b.Reshape(x, [n * groups, c // groups, *size]),
        grid,
        mode="linear",
        padding_mode="zeros",
        align_corners=0,
    )
    seen = b.Reshape(seen, [n * groups, c // groups, taps, *out])
    if mask is not None:
        seen = seen * b.Reshape(mask, [n * groups, 1, taps, *out])
    data, filters = (b.Reshape(seen, [n, c * taps, *out]), b.Reshape(w, [m, per * taps, 1, 1]))
    plain = {
        "group": attrs.get("group", 1),
        "kernel_shape": [1, 1],
        "strides": [1, 1],
        "pads": [0] * 4,
        "dilations": [1, 1],
    }
    y: Value = b.Conv(data, filters, bias, **plain)
    return y


def _centres(attrs: dict[str, Any], axis: int, kernel: list[int], out: list[int]) -> np.ndarray:
    """Where the taps look without offsets: [taps, height, width]."""
    stride, dilation = ((attrs.get(k) or [1, 1])[axis] for k in ("strides", "dilations"))
    tap = np.indices(kernel)[axis].reshape(-1, 1, 1) * dilation
    return np.asarray(
        np.indices(out)[axis][None] * stride + tap - (attrs.get("pads") or [0] * 4)[axis]
    )


def max_unpool(node: ir.Node, b: Builder) -> Value | None:
    """Each number goes to its place in the flattened result of the pooling's size; a larger
    `output_shape` adds zeros behind.
    """
    x, index, attrs, out = x_of(node), x_of(node, 1), attrs_of(node), shape_of(node.outputs[0])
    shape = shape_of(x)
    if shape is None or x.dtype is None or (len(node.inputs) > 2 and out is None):
        return None
    kernel = attrs["kernel_shape"]
    strides, pads = (
        attrs.get("strides") or [1] * len(kernel),
        attrs.get("pads") or [0] * 2 * len(kernel),
    )
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
