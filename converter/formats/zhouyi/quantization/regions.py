"""Means of samples inside regions of images: RoiAlign and PyramidROIAlign."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from dataclasses import dataclass

import numpy as np

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import IntegerLiftContext
from converter.formats.zhouyi.quantization.requantize import (
    EXACT,
    UINT16,
    bits_of,
    bounded,
    cut,
    double,
    floor,
    limits_of_bits,
    low_32_bits,
    rescale,
    shifted,
    single,
)
from converter.formats.zhouyi.quantization.sampling import (
    MOST_ELEMENTS,
    Pixels,
    crossed,
    pooled_shape,
)
from converter.formats.zhouyi.rules.detection import (
    corner_size,
    four_maps,
    is_half_pixel,
    of_level,
    override,
)
from converter.formats.zhouyi.rules.fields import words
from converter.graph.build import Builder
from converter.graph.demands import of_length
from converter.graph.sizes import arange
from converter.graph.value import Value
from converter.mapping.codecs import enum

# areas at which the next coarser feature map begins, of boxes in parts of 2 ** 15
PARTS = (6418977.0, 25675908.0, 102703631.0)


def _single(x: Value) -> Value:
    """Round to 32-bit floats."""
    return double(single(x))


@dataclass
class Along:
    """Samples of regions along an axis, [R, cells * samples]: the pixel, the next one, and the
    weights of both.

    `count` [R, 1] or [1, 1]: how many samples a cell has; where the region decides, only so many of
    `samples` are real. `known`: those that lie on the image.
    """

    axis: Axis
    low: Value
    high: Value
    of_low: Value
    of_high: Value
    samples: int
    count: Value
    known: Value | None = None

    def real(self) -> list[Value]:
        """Return the masks of samples that count; none if all do."""
        found = [] if self.known is None else [self.known]
        if self.axis.decided:
            number = np.tile(arange(self.samples, dtype=np.float64), self.axis.cells)
            found.append(self.count > number)
        return found


@dataclass
class Crossings:
    """The crossings of the samples of both axes of `count` regions: [R, rows * columns, ...]."""

    b: Builder
    rows: Along
    columns: Along
    count: int

    def __post_init__(self) -> None:
        self.height, self.width = (a.axis.cells * a.samples for a in (self.rows, self.columns))

    def spread(self, v: Value, axis: int) -> Value:
        """Repeat numbers of rows [R, h] (axis 0) or columns [R, w] for all crossings."""
        return crossed(v, axis, [self.count, self.height, self.width])

    def corners(self, pixels: Pixels, bits: int, image: Value, wraps: bool = False) -> list[Value]:
        """Return the four pixels around each crossing [R, rows * columns, C], each times the
        product of its weights, which have lost `bits` bits.

        `image` [R]: which image each region is in.
        """
        b, found = self.b, []
        decided = self.rows.axis.decided or self.columns.axis.decided
        image = self.spread(b.Expand(image[:, None], [self.count, self.height]), 0)
        ends = (((a.low, a.of_low), (a.high, a.of_high)) for a in (self.rows, self.columns))
        for (row, by_row), (column, by_column) in itertools.product(*ends):
            weight = self.spread(by_row, 0) * self.spread(by_column, 1)
            if decided and wraps:  # RoiAlign then rounds its products of floats
                weight = b.Round(_single(weight) * 2.0**-bits)
            else:
                weight = shifted(weight, bits)
            at = [self.spread(row, 0), self.spread(column, 1)]
            found.append(weight[..., None] * pixels.at(image, at, wraps=wraps))
        return found

    def by_cell(self, v: Value, missing: float = 0.0) -> Value:
        """Return [R, cells, samples, cells, samples, C], with `missing` for samples that do not
        exist.
        """
        b, rows, columns = self.b, self.rows, self.columns
        real = [self.spread(m, i) for i, a in enumerate((rows, columns)) for m in a.real()]
        if real:
            mask = functools.reduce(operator.and_, real)[..., None]
            v = b.Where(mask, v, missing)
        shape = [rows.axis.cells, rows.samples, columns.axis.cells, columns.samples]
        return b.Reshape(v, [self.count, *shape, -1])

    def numbers(self) -> Value:
        """Return the number of samples of a cell: [R, 1, 1, 1] or [1, 1, 1, 1]."""
        return self.b.Unsqueeze(self.rows.count * self.columns.count, [2, 3])

    def demand_small(self, channels: int) -> None:
        """Raise MappingError if the samples would make the graph too large."""
        if self.count * self.height * self.width * channels > MOST_ELEMENTS:
            what = f"{self.count} regions of up to {self.height} x {self.width} samples"
            raise MappingError(f"{what} would make the graph too large")


@dataclass(frozen=True)
class Axis:
    """One axis of the cells of a region: 0 is vertical, 1 horizontal. `samples` is the number of
    samples of a cell, 0 or less if it depends on the region; `size` that of the image; `bits` that
    of fractional bits of coordinates.
    """

    index: int
    cells: int
    samples: int
    size: int
    bits: int
    half: bool

    @property
    def decided(self) -> bool:
        """Return whether the region decides how many samples a cell has."""
        return self.samples <= 0

    @property
    def offset(self) -> float:
        return 2.0 ** (self.bits - 1) if self.half else 0.0

    def length(self, b: Builder, ends: list[Value]) -> Value:
        """Return the length between two ends; it is at least 1 without half pixels."""
        found = ends[1] - ends[0]
        return found if self.half else b.Max(found, 2.0**self.bits)

    def counted(self, b: Builder, length: Value, longest: float) -> tuple[Value, int]:
        """Return how many samples the cells of each region have [R, 1], and the most."""
        if not self.decided:
            return b.const(np.full((1, 1), float(self.samples))), self.samples
        cell = float(self.cells << self.bits)
        number = b.Max(b.Ceil(length[:, None] / cell), 1)
        return number, max(1, math.ceil(longest / cell))

    def sample_positions(
        self, b: Builder, first: Value, step: Value, between: Value, most: int
    ) -> Value:
        """Return [R, cells * most]: the coordinates of samples, at odd multiples of `between` from
        the start of each cell.
        """
        i, k = arange(self.cells, dtype=np.float64), arange(most, dtype=np.float64) * 2 + 1
        start = step[:, None] * i + first[:, None]
        at = b.Unsqueeze(start, [2]) + b.Unsqueeze(between, [1, 2]) * k
        return b.Reshape(at, [-1, self.cells * most])


# one image ---------------------------------------------------------------------------------------


def lift_roi_align(r: IntegerLiftContext) -> Value:
    """Means, or maxima, of the samples of each cell; interpolation weights between pixels are
    truncated.

    A region that ends before it starts, or after the image, gives 0; samples before the first pixel
    are taken from the other end of the image, as the executor indexes it.
    """
    b, samples, bits = r.b, r.attr("sample", list), r.bit_count("spatial_shift_value", least=0)
    of_length(2, sample=samples)
    mean = r.attr("method", enum(words("AVG MAX"))) == "AVG"
    x = r.double(0)
    batch, *sizes, channels = r.static(x)
    rois = b.Reshape(r.double(1), [-1, 5])
    half = r.attr("coordinate_transformation_mode", str, "HALF_PIXEL") == "HALF_PIXEL"
    first, _ = r.factors(2)
    image, sides, good = rois[..., 0], [], []
    for i, cells in enumerate(pooled_shape(r)):
        axis = Axis(i, cells, samples[i], sizes[i], bits, half)
        ends, along = (_decided if min(samples) <= 0 else _fixed)(r, rois, axis)
        good += [ends[0] <= ends[1], ends[1] <= axis.size << bits]
        sides.append(along)
    good += [image >= 0, image <= batch - 1]
    crossings = Crossings(b, sides[0], sides[1], r.static(rois)[0])
    crossings.demand_small(channels)
    image = bounded(image, 0, batch - 1)
    products = crossings.corners(Pixels.of(r, x), bits, image, wraps=True)
    if mean:
        total = crossings.by_cell(functools.reduce(operator.add, products))
        y = b.ReduceSum(total, [2, 4], keepdims=0)
    else:
        largest = crossings.by_cell(functools.reduce(b.Max, products), -(2.0**53))
        y = b.ReduceMax(largest, [2, 4], keepdims=0)
    y = y * (first * 2.0**-bits)
    if min(samples) <= 0:
        numbers = crossings.numbers()
        y = y / ((numbers * numbers if mean else numbers) * float(np.prod(pooled_shape(r))))
    known = b.Unsqueeze(functools.reduce(operator.and_, good), [1, 2, 3])
    y = b.Where(known, b.Round(y), 0) - r.zeros[0]
    return r.stored(bounded(y, *r.limits()))


def _pair(r: IntegerLiftContext, key: str, count: int, index: int) -> tuple[float, int]:
    """Return one of `count` multipliers and shifts; `key` has a placeholder for "scale" and
    "shift".
    """
    keys = [key.format(part) for part in ("scale", "shift")]
    scale, shift = (r.number_list(k, count)[index] for k in keys)
    return scale, bits_of(shift, keys[1])


def _ends(r: IntegerLiftContext, rois: Value, axis: Axis, by: float) -> list[Value]:
    """Start and end of regions along an axis, scaled."""
    corners = (rois[..., 1 + axis.index + 2 * e] * by for e in (0, 1))
    return [cut(_single(x) * 2.0 ** -r.shifts[1]) for x in corners]


def _fixed(r: IntegerLiftContext, rois: Value, axis: Axis) -> tuple[list[Value], Along]:
    """Return start and end of regions, and the number of samples that the layer declares."""
    b, by, bits = r.b, r.number_list("spatial_scale_value", 2)[axis.index], axis.bits
    ends = [e * by - axis.offset for e in _ends(r, rois, axis, float(r.scales[1]))]
    cell, cell_bits = _pair(r, "bin_{}_value", 2, axis.index)
    step, step_bits = _pair(r, "grid_{}_value", 2, axis.index)
    length = axis.length(b, ends)
    stride = cut(_single(length * cell) * 2.0**-cell_bits)
    between = cut(stride * step * 2.0**-step_bits)
    at = axis.sample_positions(b, ends[0], stride, between, axis.samples)
    low = shifted(at, bits)
    count, most = axis.counted(b, length, 0.0)
    whole = 2.0**bits
    return ends, _neighbors(b, axis, most, count, (low, at - low * whole, whole))


def _decided(r: IntegerLiftContext, rois: Value, axis: Axis) -> tuple[list[Value], Along]:
    """Return the samples if the region determines their number along at least one axis: coordinates
    are quotients, whose remainders become the weights.
    """
    b, bits, cells = r.b, axis.bits, axis.cells
    by = r.number_list("spatial_scale_value", 2)[axis.index] * float(r.scales[1])
    ends = [e - axis.offset for e in _ends(r, rois, axis, by)]
    length = axis.length(b, ends)
    before = min(r.input_limits(1)[0] + r.input_zeros[1], 0) * by * 2.0 ** -r.shifts[1]
    count, most = axis.counted(b, length, (axis.size << bits) + axis.offset - before)
    cell = float(cells << bits)
    step = cut(length / cell)
    rest = length - step * cell
    spread, whole_length = count * cell, length[:, None]
    between = cut(whole_length / spread)
    left = b.Unsqueeze(whole_length - between * spread, [2])
    i, k = arange(axis.cells, dtype=np.float64), arange(most, dtype=np.float64)
    start, start_rest = (b.Unsqueeze(v[:, None] * i, [2]) for v in (step, rest))
    start_rest = start_rest + b.Unsqueeze(ends[0] * cells, [1, 2])
    count_3, spread_3, between_3 = (b.Unsqueeze(v, [2]) for v in (count, spread, between))
    behind = start_rest * count_3 * 2.0 + spread_3 * between_3 + left + left * k * 2.0
    whole = spread_3 * 2.0
    beyond = cut(behind / whole)
    low, share = start + between_3 * k + beyond, behind - beyond * whole
    flat = [b.Reshape(v, [-1, axis.cells * most]) for v in (low, share)]
    along = _neighbors(b, axis, most, count, (flat[0], flat[1], spread * 2.0))
    along.of_low, along.of_high = (cut(v * 0.5) for v in (along.of_low, along.of_high))
    return ends, along


def _neighbors(
    b: Builder, axis: Axis, most: int, count: Value, place: tuple[Value, Value, Value | float]
) -> Along:
    """Return the samples at a pixel, with the weight of the next one and the sum of both weights.
    For the last pixel there is no next one.
    """
    low, share, whole = place
    last = float(axis.size - 1)
    inside = low < last
    share = b.Where(inside, share, 0)
    low, high = b.Where(inside, low, last), b.Where(inside, low + 1.0, last)
    return Along(axis, low, high, whole - share, share, most, count)


# a pyramid of images -----------------------------------------------------------------------------


def lift_pyramid(r: IntegerLiftContext) -> Value:
    """Boxes y1, x1, y2, x2 [1, R, 4] cut out of the one of four feature maps that suits their area:
    means of samples, or with proposal_normalized one sample for a cell.
    """
    b, (boxes, *maps) = r.b, four_maps(r, [r.double(i) for i in range(len(r.layer.inputs))])
    boxes = b.Squeeze(boxes, [0])
    parts = r.attr("proposal_normalized", bool, False)
    low, high = b.Split(boxes, [2, 2], outputs=2, axis=1)
    area = low_32_bits(b.ReduceProd(high - low, [1], keepdims=0))
    if parts:
        area = area - floor(area * 2.0**-31) * 2.0**31
        pieces = [_from_edges(r, boxes, m) for m in maps]
        return r.stored(bounded(of_level(b, area, PARTS, pieces), *r.limits()))
    # areas and levels have 32 bits in the executor, for any size of the boxes
    first, second, third = ((v + 2**31) % 2**32 - 2.0**31 for v in r.number_list("levels", 3))
    masks = [(area >= first) & (area < second), (area >= second) & (area < third), area >= third]
    pieces = [_means(r, boxes, m, level) for level, m in enumerate(maps)]
    return r.stored(override(b, pieces[0], masks, pieces[1:]))


def _means(r: IntegerLiftContext, boxes: Value, features: Value, level: int) -> Value:
    """Return the means of the samples of all boxes [R, 4], for one feature map: [R, height, width,
    C].
    """
    b, bits, samples = r.b, r.bit_count("spatial_shift", least=0), r.attr("sample", list)
    of_length(2, sample=samples)
    _, *sizes, channels = r.static(features)
    scale, shift = _pair(r, "input_{}", 4, level)
    by = scale * 2.0**-shift
    sides, empty = [], []
    for i, side in enumerate(("height", "width")):
        axis = Axis(i, r.count(f"resize_{side}"), samples[i], sizes[i], bits, is_half_pixel(r))
        along, length = _of_box(r, boxes, axis, by)
        sides.append(along)
        empty.append(b.Equal(length, 0))
    count = r.static(boxes)[0]
    crossings = Crossings(b, sides[0], sides[1], count)
    crossings.demand_small(channels)
    image = b.const(np.zeros(count))
    products = crossings.corners(Pixels.of(r, features), bits, image)
    total = crossings.by_cell(functools.reduce(operator.add, products))
    low, high = limits_of_bits(*r.width(1 + level))
    widest = max(-low, high) + abs(r.input_zeros[1 + level])
    total = _summed(r, total, widest * 2.0**bits)
    scale, shift = _pair(r, "{}_value", 4, level)
    if min(samples) > 0:
        by = scale * 2.0 ** -(shift + bits)
    else:
        total = floor(_single(total * scale) / crossings.numbers())
        by = 2.0 ** -(shift + bits)
    y = rescale(total, by, r.zeros[0], r.limits())
    none = b.Unsqueeze(empty[0] | empty[1], [1, 2, 3])
    return b.Where(none, 0, y)


def _of_box(r: IntegerLiftContext, boxes: Value, axis: Axis, by: float) -> tuple[Along, Value]:
    """Return the samples of boxes along one axis, and the lengths of the boxes; samples more than a
    pixel outside of the image are excluded.
    """
    b, bits = r.b, axis.bits
    ends = [rescale(boxes[..., axis.index + 2 * e], by, 0, UINT16) - axis.offset for e in (0, 1)]
    length = axis.length(b, ends)
    largest = r.input_limits(0)[1] + r.input_zeros[0]
    count, most = axis.counted(b, length, min(largest * by + 1, UINT16[1]))
    step = cut(length / axis.cells)
    between = cut(step[:, None] / (count * 2.0))
    at = axis.sample_positions(b, ends[0], step, b.Squeeze(between, [1]), most)
    low = shifted(at, bits)
    share, known = at - low * 2.0**bits, (low >= -1) & (low <= axis.size)
    low, high = (bounded(v, 0, axis.size - 1) for v in (low, low + 1.0))
    return Along(axis, low, high, 2.0**bits - share, share, most, count, known), length


def _summed(r: IntegerLiftContext, x: Value, largest: float) -> Value:
    """Return the sum of the samples of each cell, as 32-bit floats that are added one after the
    other.
    """
    b, (count, cells, rows, across, columns, channels) = r.b, r.static(x)
    number = rows * columns
    if largest * number <= EXACT:
        return b.ReduceSum(x, [2, 4], keepdims=0)
    floats = b.Transpose(single(x), perm=[0, 1, 3, 2, 4, 5])
    flat = b.Reshape(floats, [count, cells, across, number, channels])
    return double(b.CumSum(flat, 3)[:, :, :, -1])


def _from_edges(r: IntegerLiftContext, boxes: Value, features: Value) -> Value:
    """Return samples from edge to edge of all boxes [R, 4], for one feature map: [R, height, width,
    C]. The executor uses the width of a feature map as its height when it scales the boxes.
    """
    b, bits, count = r.b, r.bit_count("box_input_qvalue", least=0), r.static(boxes)[0]
    _, *sizes, channels = r.static(features)
    size, most = corner_size(r), float((1 << bits) - 1)
    lows: list[Value] = []
    highs: list[Value] = []
    shares: list[Value] = []
    for axis in (0, 1):
        first, last = (boxes[..., axis + 2 * e] for e in (0, 1))
        span = float(sizes[1 - axis] - 1)
        step = shifted(cut(low_32_bits((last - first) * span * 256.0) / (size[axis] - 1.0)), 8)
        steps = step[:, None] * arange(size[axis], dtype=np.float64)
        place = bounded((first * span)[:, None] + steps, 0, (sizes[axis] - 1) * most)
        found = shifted(place, bits), shifted(place + most, bits)
        share = place - floor(place * 2.0**-15) * 2.0**15
        for kept, v in zip((lows, highs, shares), (*found, share), strict=True):
            kept.append(b.Reshape(crossed(v, axis, [count, *size]), [1, -1]))
    pixels = Pixels.of(r, features)
    (top, bottom), (left, right) = zip(lows, highs, strict=True)
    top_left, top_right, bottom_left, bottom_right = (
        pixels.at(None, [row, column]) for row in (top, bottom) for column in (left, right)
    )
    down, across = (v[..., None] for v in shares)
    both = shifted(down * across, bits)
    y = (top_left + bottom_right - top_right - bottom_left) * both + top_left * 2.0**bits
    y = y + (top_right - top_left) * across + (bottom_left - top_left) * down
    return b.Reshape(shifted(y, bits), [count, *size, channels])
