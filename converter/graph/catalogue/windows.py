"""Extension operators with windows of their own: adaptive pooling, deformable convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.build import Builder, Value
from converter.graph.demands import at_least, of_counts
from converter.graph.extensions import extension
from converter.graph.infer import shape_of
from converter.graph.sizes import arange, demand_small


def _static(x: Value, what: str) -> tuple[int, ...]:
    shape = shape_of(x)
    if shape is None:
        raise MappingError(
            f"the shape of {what} must be static", "X203", "fix the shapes with --inputs"
        )
    return shape


def _bins(size: int, out: int) -> list[tuple[int, int]]:
    """Bin i covers floor(i*size/out) to ceil((i+1)*size/out)."""
    demand_small(out)
    at_least(1, size=size)
    return [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]


@extension
def AdaptiveAveragePool(b: Builder, x: Value, *, output_size: list[int]) -> Value:
    """x [N, C, spatial...] averaged into `output_size` bins per spatial axis; bins may overlap.

    Bin i of n along an axis of S elements covers floor(i*S/n) up to ceil((i+1)*S/n). Source:
    OpenVINO, AdaptiveAvgPool-8.
    """
    shape = _static(x, "the input")
    of_counts(len(shape) - 2, output_size=output_size)
    for i, out in enumerate(output_size):
        axis, size = i + 2, shape[i + 2]
        weights = np.zeros((size, out), (x.dtype or ir.DataType.FLOAT).numpy())
        for j, (start, end) in enumerate(_bins(size, out)):
            weights[start:end, j] = 1 / (end - start)
        perm = list(range(len(shape)))
        perm[axis], perm[-1] = perm[-1], perm[axis]
        moved = b.Transpose(x, perm=perm) if axis != len(shape) - 1 else x
        moved = moved @ b.const(weights)
        x = b.Transpose(moved, perm=perm) if axis != len(shape) - 1 else moved
    return x


@extension
def AdaptiveMaxPool(b: Builder, x: Value, *, output_size: list[int]) -> tuple[Value, Value]:
    """The largest of each bin and its position among the H*W... elements of its channel (int64).

    x [N, C, spatial...] -> two results [N, C, *output_size]; bins as in AdaptiveAveragePool.
    Source: OpenVINO, AdaptiveMaxPool-8.
    """
    shape = _static(x, "the input")
    spatial = shape[2:]
    of_counts(len(spatial), output_size=output_size)
    index = arange(int(np.prod(spatial)), dtype=np.int64).reshape(spatial)
    bins = [_bins(s, o) for s, o in zip(spatial, output_size, strict=True)]
    widest = int(np.prod([max(e - s for s, e in axis) for axis in bins]))
    demand_small(*output_size, widest)
    table = np.zeros((int(np.prod(output_size)), widest), np.int64)
    for row, place in enumerate(np.ndindex(*output_size)):
        found = index[tuple(slice(*bins[i][p]) for i, p in enumerate(place))].reshape(-1)
        table[row] = np.concatenate([found, np.full(widest - len(found), found[-1])])
    values = b.Gather(b.Reshape(x, [shape[0], shape[1], -1]), table, axis=2)
    size = [shape[0], shape[1], *output_size]
    largest = b.ReduceMax(values, [3], keepdims=0)
    local = b.ArgMax(values, axis=3, keepdims=1)
    tables = b.Expand(table[None, None], [shape[0], shape[1], *table.shape])
    places = b.GatherElements(tables, local, axis=3)
    return b.Reshape(largest, size), b.Reshape(places, size)


@extension(x=4, offset=4, w=4)
def DeformableConvolution(
    b: Builder,
    x: Value,
    offset: Value,
    w: Value,
    mask: Value | None = None,
    *,
    strides: list[int],
    pads: list[int],
    dilations: list[int],
    group: int = 1,
    deformable_group: int = 1,
    bilinear_pad: int = 0,
) -> Value:
    """Convolution of x [N,C,H,W] whose taps are moved by offset [N, 2*DG*KH*KW, OH, OW] (y, x
    pairs) and weighted by mask.

    Samples are bilinear. A tap that lies outside of the image is zero; a neighbour outside is left
    out with `bilinear_pad`, and otherwise the neighbour is clamped to the image (the tap itself
    must lie in [0, H) x [0, W)). Source: OpenVINO, DeformableConvolution-8.
    """
    n, c, h, wd = _static(x, "the input")
    o, _, kh, kw = _static(w, "the weights")
    oh, ow = _static(offset, "the offsets")[2:]
    dg, taps = deformable_group, kh * kw
    split = b.Reshape(offset, [n, dg, taps, 2, oh, ow])
    ky, kx = np.divmod(arange(taps), kw)
    shape = (1, 1, taps, oh, ow)
    rows = np.broadcast_to(
        (arange(oh) * strides[0] - pads[0])[:, None] + (ky * dilations[0])[:, None, None],
        (taps, oh, ow),
    ).reshape(shape)
    columns = np.broadcast_to(
        (arange(ow) * strides[1] - pads[1])[None, :] + (kx * dilations[1])[:, None, None],
        (taps, oh, ow),
    ).reshape(shape)
    dtype = (x.dtype or ir.DataType.FLOAT).numpy()
    py = b.Gather(split, 0, axis=3) + b.const(rows.astype(dtype))
    px = b.Gather(split, 1, axis=3) + b.const(columns.astype(dtype))
    flat = b.Reshape(x, [n, dg, c // dg, h * wd])
    sampled = _bilinear(
        b, flat, py, px, (h, wd), (n, dg, c // dg, taps * oh * ow), bool(bilinear_pad)
    )
    if mask is not None:
        sampled = sampled * b.Reshape(mask, [n, dg, 1, taps * oh * ow])
    columns_ = b.Reshape(sampled, [n, group, (c // group) * taps, oh * ow])
    filters = b.Reshape(w, [1, group, o // group, (c // group) * taps])
    return b.Reshape(filters @ columns_, [n, o, oh, ow])


def _bilinear(
    b: Builder, flat: Value, py: Value, px: Value, size: tuple[int, int], shape: Any, pad: bool
) -> Value:
    """flat [N, DG, C/DG, H*W] at positions [N, DG, taps, OH, OW] -> [N, DG, C/DG, taps*OH*OW]."""
    h, w = size
    n, dg, c, count = shape

    def row(v: Value) -> Value:
        return b.Reshape(v, [n, dg, 1, count])

    py, px = row(py), row(px)
    zero = b.like(flat, 0)
    lower = b.like(flat, -1) if pad else zero
    inside = _all(
        b,
        [b.operator("Greater" if pad else "GreaterOrEqual")(v, lower) for v in (py, px)]
        + [v < m for v, m in ((py, h), (px, w))],
    )
    y0, x0 = b.Floor(py), b.Floor(px)
    fy, fx = py - y0, px - x0
    total: Value | None = None
    for dy in (0, 1):
        for dx in (0, 1):
            wy = fy if dy else 1 - fy
            wx = fx if dx else 1 - fx
            yy, xx = y0 + dy, x0 + dx
            cy, cx = (b.Clip(yy, zero, b.like(flat, h - 1)), b.Clip(xx, zero, b.like(flat, w - 1)))
            index = b.Cast(cy * w + cx, to=ir.DataType.INT64)
            value = b.GatherElements(flat, b.Expand(index, [n, dg, c, count]), axis=3)
            weight = wy * wx
            if pad:
                weight = b.Where(_all(b, [b.Equal(cy, yy), b.Equal(cx, xx)]), weight, zero)
            part = value * weight
            total = part if total is None else total + part
    assert total is not None
    return b.Where(inside, total, zero)


def _all(b: Builder, conditions: list[Value]) -> Value:
    result = conditions[0]
    for v in conditions[1:]:
        result = result & v
    return result
