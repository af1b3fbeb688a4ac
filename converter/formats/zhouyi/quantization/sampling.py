"""Samples of images at the points of a grid, inside boxes and inside regions."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import IntegerLiftContext
from converter.formats.zhouyi.quantization.requantize import (
    INT16,
    bounded,
    cut,
    double,
    floor,
    int64,
    low_32_bits,
    shifted,
)
from converter.formats.zhouyi.rules.fields import words
from converter.formats.zhouyi.unsupported import undocumented
from converter.graph.build import Builder, open_builder
from converter.graph.demands import not_zero
from converter.graph.sizes import arange
from converter.graph.value import Value, stack
from converter.mapping.codecs import enum

MOST_ELEMENTS = 1 << 26  # elements that are read for all regions together


@dataclass
class Pixels:
    """The pixels [N, all, C] of images as doubles; `sizes` are those of the axes between
    N and C.
    """

    b: Builder
    flat: Value
    sizes: list[int]

    @classmethod
    def of(cls, r: IntegerLiftContext, x: Value) -> Pixels:
        """Return the pixels of images, whose height and width become one axis."""
        batch, *sizes, channels = r.static(x)
        return cls(r.b, r.b.Reshape(x, [batch, int(np.prod(sizes)), channels]), sizes)

    def at(self, image: Value | None, positions: Sequence[Value], wraps: bool = False) -> Value:
        """Return the pixels at the coordinates [N, P] of each axis, [N, P, C]: clamped to the
        image, or with `wraps` as a flat index without clamping. `image` [N, P] if the images are
        not the rows themselves.
        """
        b, total = self.b, None
        for position, size in zip(positions, self.sizes, strict=True):
            inside = position if wraps else bounded(position, 0, size - 1)
            total = inside if total is None else total * size + inside
        assert total is not None
        count = float(np.prod(self.sizes))
        if wraps:
            total = total - floor(total / count) * count
        if image is None:
            return b.GatherND(self.flat, int64(total[..., None]), batch_dims=1)
        return b.GatherND(self.flat, int64(stack((image, total))))


def crossed(v: Value, axis: int, full: list[int]) -> Value:
    """Repeat numbers of rows [R, h] (axis 0) or of columns [R, w] for all their crossings, [R, h *
    w]; `full` is [R, h, w].
    """
    b = open_builder()
    return b.Reshape(b.Expand(b.Unsqueeze(v, [2 - axis]), full), [full[0], full[1] * full[2]])


# grids -------------------------------------------------------------------------------------------


def lift_grid_sample(r: IntegerLiftContext) -> Value:
    """Read GridSample: coordinates with fractional bits, from a table for 8-bit grids;
    interpolation weights between two pixels are truncated, first along x, then y, then z.
    """
    b, x, grid = r.b, r.whole(0), r.input(1)
    *shape, axes = r.static(grid)
    nearest = r.attr("method", enum(words("NEAREST BILINEAR LINEAR"))) == "NEAREST"
    zeros = r.attr("padding_mode", enum(words("ZEROS BORDER"))) == "ZEROS"
    pixels = Pixels.of(r, x)
    points = b.Reshape(grid, [shape[0], int(np.prod(shape[1:])), axes])
    positions, shares, bits = [], [], []
    for i, name in enumerate("xyz"[:axes]):
        point, size = points[..., i], pixels.sizes[-1 - i]
        found = _in_table if axes == 2 and r.width(1)[0] <= 8 else _in_bits
        position, share = found(r, point, i, size, nearest)
        positions.append(position)
        shares.append(share)
        bits.append(r.bit_count(f"coordinate_{name}_shift"))
    fill = float(-r.input_zeros[0]) if zeros else None
    y = _between(pixels, positions, [] if nearest else shares, bits, fill)
    return r.stored(b.Reshape(bounded(y, *r.limits()), [*shape, r.static(x)[-1]]))


def _in_table(
    r: IntegerLiftContext, point: Value, axis: int, size: int, nearest: bool
) -> tuple[Value, Value | None]:
    name = "xy"[axis]
    if not r.width(1)[1]:
        raise undocumented("where an unsigned coordinate of a grid lies in its table")
    position = r.entries(f"lut{name}", point, 1)
    return position, None if nearest else r.entries(f"{name}_terp", point, 1)


def _in_bits(
    r: IntegerLiftContext, point: Value, axis: int, size: int, nearest: bool
) -> tuple[Value, Value | None]:
    behind = r.bit_count(f"coordinate_{'xyz'[axis]}_shift")
    if min(r.scales.size, r.shifts.size) <= axis:
        raise MappingError("one scale and one shift per axis of the grid are needed", "R110")
    x = (double(point) + r.input_zeros[1]) * r.scales[axis]
    at = shifted(x, r.shifts[axis]) + (size - 1) * 2.0 ** (behind - 1)
    at = bounded(at, *INT16)
    if nearest:
        at = bounded(at + 2.0 ** (behind - 1), *INT16)
        return shifted(at, behind), None
    position = shifted(at, behind)
    return position, at - position * 2.0**behind


def _between(
    pixels: Pixels,
    positions: list[Value],
    shares: Sequence[Value | None],
    bits: list[int],
    fill: float | None,
) -> Value:
    """Interpolate between the pixels at `positions` (x first) and the next ones; without `shares`
    return those at `positions`.
    """
    b, axis = pixels.b, len(shares) - 1
    if axis < 0:
        y = pixels.at(None, positions[::-1])
        if fill is None:
            return y
        pairs = zip(positions, pixels.sizes[::-1], strict=True)
        inside = functools.reduce(operator.and_, [(p >= 0) & (p <= size - 1) for p, size in pairs])
        return b.Where(inside[..., None], y, fill)
    share = shares[axis]
    assert share is not None
    beyond = [p + 1.0 if i == axis else p for i, p in enumerate(positions)]
    low, high = (_between(pixels, p, shares[:axis], bits, fill) for p in (positions, beyond))
    return low + shifted((high - low) * share[..., None], bits[axis])


# boxes -------------------------------------------------------------------------------------------


def lift_crop_and_resize(r: IntegerLiftContext) -> Value:
    """Read CropAndResize: boxes are integers without their zero point; step sizes and interpolation
    weights are truncated, products within a row of pixels to 32 bits.
    """
    b, x = r.b, r.whole(0)
    boxes, images = r.whole(1), double(b.Reshape(r.input(2), [-1]))
    nearest = r.attr("method", enum(words("NEAREST BILINEAR"))) == "NEAREST"
    crop, pixels = r.count_list("crop_size", 2), Pixels.of(r, x)
    scale, shift = float(r.scales[0]), int(r.shifts[0])
    not_zero(scale_value=scale)
    count = r.static(boxes)[0]
    lines = [_line(b, boxes[..., i], boxes[..., i + 2], crop[i], pixels.sizes[i]) for i in (0, 1)]
    positions, shares, inside = [], [], []
    for line, size in zip(lines, pixels.sizes, strict=True):
        low = shifted(line * scale, shift)
        inside.append((line >= 0) & (low <= size - 1))
        if nearest:
            low = shifted(line * scale + 2.0 ** (shift - 1), shift)
        positions.append(low)
        shares.append(line - cut(low * (2.0**shift / scale)))
    row, column, by_row, by_column, *both = (
        crossed(v, axis, [count, *crop])
        for pair in (positions, shares, inside)
        for axis, v in enumerate(pair)
    )
    image = b.Expand(images[:, None], [count, crop[0] * crop[1]])
    if nearest:
        y = pixels.at(image, [row, column])
    else:
        by_row, by_column = (v[..., None] for v in (by_row, by_column))
        lines_of = []
        for at in (row, row + 1.0):
            left, right = (pixels.at(image, [at, c]) for c in (column, column + 1.0))
            product = low_32_bits((right - left) * by_column * scale)
            lines_of.append(left + shifted(product, shift))
        top, bottom = lines_of
        y = top + shifted((bottom - top) * by_row * scale, shift)
    known = (both[0] & both[1])[..., None]
    y = b.Where(known, y, r.attr("extrapolation_value", float, 0.0))
    return r.stored(b.Reshape(bounded(y, *r.limits()), [count, *crop, r.static(x)[-1]]))


def _line(b: Builder, first: Value, last: Value, count: int, size: int) -> Value:
    """Return [B, count]: coordinates along one axis of boxes."""
    start = (first * (size - 1))[:, None]
    if count < 2:
        return start
    step = cut((last - first) * ((size - 1) * 256) / (count - 1))
    return start + shifted(step, 8)[:, None] * arange(count, dtype=np.float64)


# regions -----------------------------------------------------------------------------------------


def lift_max_roi_pool(r: IntegerLiftContext) -> Value:
    """Return the largest quantized value in each part of a region, 0 in an empty one."""
    b, x = r.b, r.whole(0)
    _, height, width, channels = r.static(x)
    rois = b.Reshape(r.double(1), [-1, 5])
    count, (rows, columns) = r.static(rois)[0], pooled_shape(r)
    if count * rows * height * width * channels > MOST_ELEMENTS:
        raise MappingError(
            f"{count} regions of an image of this size would make the graph too large"
        )
    by = r.number_list("spatial", 2)
    part = b.Gather(x, int64(rois[..., 0]))[:, None]  # [R, 1, H, W, C]
    for axis, parts, size in ((0, rows, height), (1, columns, width)):
        mask = _parts(b, [rois[..., 1 + axis + 2 * e] for e in (0, 1)], by[axis], parts, size)
        shape = [count, parts, size, 1, 1] if axis == 0 else [count, 1, parts, size, 1]
        spread = part if axis == 0 else b.Unsqueeze(part, [2])
        inside = b.Where(b.Reshape(mask, shape), spread, -(2.0**40))
        part = b.ReduceMax(inside, [2 + axis], keepdims=0)
    return r.stored(b.Where(part < -(2.0**39), 0, part))


def _parts(b: Builder, ends: list[Value], by: float, parts: int, size: int) -> Value:
    """Return bool [R, parts, size]: which pixels of an axis belong to which part of a region."""
    first, last = (shifted(e * by + 32768.0, 16) for e in ends)
    length = b.Max(last - first + 1.0, 1)[:, None]
    i, start = arange(parts, dtype=np.float64), first[:, None]
    low = floor(length * i / parts) + start
    high = b.Ceil(length * (i + 1) / parts) + start
    low, high = (b.Unsqueeze(bounded(v, 0, size), [2]) for v in (low, high))
    position = arange(size, dtype=np.float64)
    return (low <= position) & (high > position)


def pooled_shape(r: IntegerLiftContext) -> list[int]:
    """Return the rows and columns to which a region is pooled."""
    return r.count_list("pooled_shape", 2, list(r.declared() or ())[-3:-1])
