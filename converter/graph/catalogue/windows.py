"""Extension operators with windows of their own: adaptive pooling, deformable convolution."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.catalogue.roi_align import interpolated
from converter.graph.demands import at_least, of_counts
from converter.graph.extensions import extension
from converter.graph.sizes import arange, demand_small, static
from converter.graph.value import INT64, array_type


def _bins(size: int, out: int) -> list[tuple[int, int]]:
    """Return the bins: bin i covers floor(i*size/out) to ceil((i+1)*size/out)."""
    demand_small(out)
    at_least(1, size=size)
    return [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]


@extension
def AdaptiveAveragePool(b: Builder, x: Value, *, output_size: list[int]) -> Value:
    """x [N, C, spatial...] averaged into `output_size` bins per spatial axis; bins may overlap.

    Bin i of n along an axis of S elements covers floor(i*S/n) up to ceil((i+1)*S/n). Source:
    OpenVINO, AdaptiveAvgPool-8.
    """
    shape = static(x)
    of_counts(len(shape) - 2, output_size=output_size)
    for i, out in enumerate(output_size):
        axis, size = i + 2, shape[i + 2]
        demand_small(size, out)
        weights = np.zeros((size, out), array_type(x))
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
    """Return the largest element of each bin and its index among the H*W... elements of its channel
    (int64).

    x [N, C, spatial...] -> two results [N, C, *output_size]; bins as in AdaptiveAveragePool.
    Source: OpenVINO, AdaptiveMaxPool-8.
    """
    shape = static(x)
    spatial = shape[2:]
    of_counts(len(spatial), output_size=output_size)
    index = arange(int(np.prod(spatial)), dtype=np.int64).reshape(spatial)
    bins = [_bins(s, o) for s, o in zip(spatial, output_size, strict=True)]
    widest = int(np.prod([max(e - s for s, e in axis) for axis in bins]))
    demand_small(*output_size, widest)
    table = np.zeros((int(np.prod(output_size)), widest), np.int64)
    for row, position in enumerate(np.ndindex(*output_size)):
        found = index[tuple(slice(*bins[i][p]) for i, p in enumerate(position))].reshape(-1)
        table[row] = np.concatenate([found, np.full(widest - len(found), found[-1])])
    values = b.Gather(b.Reshape(x, [shape[0], shape[1], -1]), table, axis=2)
    size = [shape[0], shape[1], *output_size]
    largest = b.ReduceMax(values, [3], keepdims=0)
    local = b.ArgMax(values, axis=3, keepdims=1)
    tables = b.Expand(table[None, None], [shape[0], shape[1], *table.shape])
    positions = b.GatherElements(tables, local, axis=3)
    return b.Reshape(largest, size), b.Reshape(positions, size)


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
    """Convolution of x [N,C,H,W] with taps that are moved by offset [N, 2*DG*KH*KW, OH, OW] (y, x
    pairs) and weighted by mask.

    Samples are bilinear. A tap outside the image is zero; a neighbor outside is left out with
    `bilinear_pad`, and otherwise it is clamped to the image (the tap itself must be in [0, H) x [0,
    W)). Source: OpenVINO, DeformableConvolution-8.
    """
    at_least(1, group=group, deformable_group=deformable_group)
    n, c, h, wd = static(x)
    o, _, kh, kw = static(w, "the weights")
    oh, ow = static(offset, "the offsets")[2:]
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
    dtype = array_type(x)
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
    """Sample flat [N, DG, C/DG, H*W] at positions [N, DG, taps, OH, OW] -> [N, DG, C/DG,
    taps*OH*OW].
    """
    h, w = size
    n, dg, c, count = shape

    at = [b.Reshape(v, [n, dg, 1, count]) for v in (px, py)]
    zero = b.like(flat, 0)
    lower = b.like(flat, -1) if pad else zero
    begun = b.operator("Greater" if pad else "GreaterOrEqual")
    ends = (w, h)
    inside = reduce(
        and_, [*(begun(v, lower) for v in at), *(v < m for v, m in zip(at, ends, strict=True))]
    )
    low = [b.Floor(v) for v in at]
    part = [v - f for v, f in zip(at, low, strict=True)]

    def pixel(column: Value, row: Value) -> Value:
        x, y = (b.Clip(v, zero, m - 1) for v, m in zip((column, row), ends, strict=True))
        index = b.Cast(y * w + x, to=INT64)
        value = b.GatherElements(flat, b.Expand(index, [n, dg, c, count]), axis=3)
        return b.Where(b.Equal(x, column) & b.Equal(y, row), value, zero) if pad else value

    high = [f + 1 for f in low]
    return b.Where(inside, interpolated(low, high, part, pixel), zero)
