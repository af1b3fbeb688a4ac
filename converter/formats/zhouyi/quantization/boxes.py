"""Boxes moved by deltas, grouped by class, fused and suppressed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from converter.formats.zhouyi.quantization.context import IntegerLiftContext
from converter.formats.zhouyi.quantization.requantize import (
    T,
    bits_of,
    bounded,
    cut,
    double,
    entry,
    floor,
    int64,
    limits_of_bits,
    low_32_bits,
    of_sizes,
    shifted,
    single,
)
from converter.formats.zhouyi.rules.detection import at_most, chosen_proposals
from converter.formats.zhouyi.rules.fields import words
from converter.formats.zhouyi.unsupported import undocumented
from converter.graph.build import Builder
from converter.graph.catalogue.compact import first_true_indices, take, total
from converter.graph.catalogue.ssd import class_of, grouped
from converter.graph.demands import of_length
from converter.graph.infer import Array
from converter.graph.sizes import arange, demand_small, static
from converter.graph.value import Value, stack
from converter.mapping.codecs import enum

COORDINATES = 32767.0  # of boxes within 0..1
# bits that areas lose, and those of the threshold, where the vendor's executor has them built in
AREA_BITS, IOU_BITS = 15, 11


def _typed(r: IntegerLiftContext, results: Sequence[Value]) -> list[Value]:
    """Return results in the types that the file declares, clamped to their ranges."""
    pairs = enumerate(zip(map(double, results), r.types, strict=False))
    return r.all_stored(bounded(v, *r.limits(i)) if t.is_integer() else v for i, (v, t) in pairs)


def _shifted_32(x: Value, bits: int) -> Value:
    """Return x >> bits of 32-bit integers; a negative `bits` leaves only the sign."""
    return shifted(low_32_bits(x), bits if 0 <= bits < 31 else 31)


# moved -------------------------------------------------------------------------------------------


def _scaling(r: IntegerLiftContext, name: str, count: int) -> tuple[list[int], list[int]]:
    """Return the lists NAME_scale_value and NAME_shift_value."""
    keys = [f"{name}_{k}_value" for k in ("scale", "shift")]
    scales, shifts = (r.attr(k, list) for k in keys)
    of_length(count, **dict(zip(keys, (scales, shifts), strict=True)))
    return scales, [bits_of(shift, keys[1]) for shift in shifts]


def _moved(
    r: IntegerLiftContext, boxes: Value, deltas: Value, ports: tuple[int, int], order: Sequence[int]
) -> list[Value]:
    """Return y1, x1, y2, x2 (with their zero point) moved by dy, dx and dh, dw (integers), in 15
    bits.

    `ports` of the boxes and of the deltas, `order` of these numbers in both.
    """
    box, delta = ([v[..., i] for i in order] for v in (boxes, deltas))
    scales, shifts = _scaling(r, "box", 5)
    lost, (box_bits, _), (bits, _) = r.bit_count("delta_shift"), *map(r.width, ports)
    rounding = 2.0 ** (shifts[4] - 1) if shifts[4] > 1 else 0
    ends = []
    for axis, name in enumerate("hw"):
        low, high = box[axis], box[2 + axis]
        side, center = high - low, shifted(low + high, 1)
        fraction_bits = shifts[axis] - lost
        step = shifted(low_32_bits(side * scales[axis]), lost)
        move = (delta[axis] + r.input_zeros[ports[1]]) * step + 2.0 ** (fraction_bits - 1)
        center = shifted(low_32_bits(move), fraction_bits) + center
        center = bounded(center, *limits_of_bits(box_bits + bits, True))
        grown = r.entries(f"t{name}_lut", delta[2 + axis], ports[1]) * scales[2 + axis]
        half = shifted(low_32_bits(side * shifted(grown, 16)), shifts[2 + axis] - 16)
        half = bounded(half, *limits_of_bits(box_bits, False))
        edges = (low_32_bits(e * scales[4] + rounding) for e in (center - half, center + half))
        ends.append([bounded(shifted(e, shifts[4]), 0, COORDINATES) for e in edges])
    return [axis[k] for k in (0, 1) for axis in ends]


def lift_bounding_box(r: IntegerLiftContext) -> Value:
    """Lift BoundingBox, which moves boxes by deltas, and quantize the result."""
    return r.stored(stack(_moved(r, r.double(0), r.whole(1), (0, 1), range(4))))


def lift_multibox(r: IntegerLiftContext) -> list[Value]:
    """Return rows (class, score, x1, y1, x2, y2) of the anchors whose best class passes the
    threshold, followed by rows of -1.
    """
    b, scores = r.b, r.whole(0)
    batch, classes, anchors = r.static(scores)
    own = scores[:, 1:classes]
    best = b.ReduceMax(own, [1], keepdims=0)
    label = double(b.ArgMax(own, axis=1, keepdims=0))
    delta = b.Reshape(r.whole(1), [batch, anchors, 4])
    box = b.Expand(b.Reshape(r.double(2), [-1, anchors, 4])[:1], [batch, anchors, 4])
    order = (1, 0, 3, 2)
    moved = _moved(r, box, delta, (2, 1), order)
    score = (best + r.input_zeros[0]) * r.attr("score_scale_value", int)
    score = bounded(shifted(score, r.bit_count("score_shift_value")), *r.limits())
    rows = stack([label, score, *(moved[i] for i in order)])
    mask = best > r.attr("score_threshold_value", int)
    places, real = first_true_indices(b, mask, anchors)
    return _typed(r, [take(b, rows, places, real, -1.0), total(b, mask, anchors)])


# grouped by class --------------------------------------------------------------------------------


def lift_decode_box(r: IntegerLiftContext) -> list[Value]:
    """Read DecodeBox: integer anchors, transformed by lookup tables, and scores above the threshold
    with their zero point.
    """
    b = r.b
    if len(r.layer.inputs) > 2:
        raise undocumented("along which axis the input of anchors stores the four numbers")
    fraction_bits, clip = r.bit_count("box_shift"), r.attr("clip", bool, True)
    scores = single(r.double(0))
    wide, classes = r.static(scores)[2], r.attr("class_num", int)
    edges: list[Value] = []
    for axis, side in enumerate(("height", "width")):
        most = r.attr(f"image_{side}", int)
        at, length = _from_anchors(r, axis, fraction_bits)
        half = shifted(bounded(length, 0, most), 1)
        ends = [at - half, at + half]
        edges += [bounded(v, 0, most) for v in ends] if clip else ends
    boxes = single(stack([edges[i] for i in (0, 2, 1, 3)]))
    own = b.Transpose(scores[..., wide - classes :], perm=[0, 2, 1])
    threshold, sizes = float(r.attr("score_threshold_uint8", int)), map(r.declared_size, (0, 1))
    return _typed(r, grouped(b, own, boxes, threshold, *sizes))


def _from_anchors(r: IntegerLiftContext, axis: int, fraction_bits: int) -> tuple[Value, Value]:
    """Return centers and lengths of boxes along an axis: anchors moved by tables, truncated by
    `fraction_bits` fractional bits.
    """
    size, center = (r.flat(k) for k in ("hw"[axis] + "a", "yx"[axis] + "center"))
    move, grown = (r.entries(f"t{'yxhw'[i]}_lut", r.input(1)[..., i], 1) for i in (axis, 2 + axis))
    moved = _shifted_32(move * size, fraction_bits) + center
    return moved, _shifted_32(grown * size, fraction_bits)


def lift_proposal(r: IntegerLiftContext) -> list[Value]:
    """Return integer anchors, moved by tables; scores above the threshold unchanged."""
    b, edges = r.b, []
    for axis, side in enumerate(("height", "width")):
        at, length = _from_anchors(r, axis, r.bit_count("box_shift_value"))
        half, most = length / 2.0, r.attr(side, int)
        edges.append([b.Round(bounded(v, 0, most)) for v in (at - half, at + half)])
    boxes = single(stack([axis[k] for k in (0, 1) for axis in edges]))
    own = single(r.whole(0)[..., 1])
    mask = own > r.attr("score_threshold_value", int)
    return _typed(r, chosen_proposals(r, own, boxes, mask))


def lift_generated_proposals(r: IntegerLiftContext) -> list[Value]:
    """Return the best boxes of each image, larger than min_size, without a better neighbor: anchors
    as integers, moved and grown by tables of the stored deltas x, y, w, h.
    """
    b, lost = r.b, r.bit_count("delta_shift")
    batch = r.shape[0]
    scores = b.Reshape(r.whole(0), [batch, -1])
    count, size = r.static(scores)[1], r.count("post_nms_topn")
    demand_small(batch, size)
    deltas, unit = b.Reshape(r.input(1), [batch, count, 4]), r.attr("anchor_scale", int)
    edges: list[list[Value]] = []
    for axis, side in enumerate(("width", "height")):
        length, center = r.flat("wh"[axis] + "a_q"), r.flat("xy"[axis] + "center_a_q")
        move, grown = (
            r.entries(f"{k}_lut", deltas[..., i], 1) for k, i in (("xy", axis), ("wh", 2 + axis))
        )
        at = _shifted_32(move * length, lost) + center
        half = cut(_shifted_32(grown * length, lost) / 2.0)
        most = (r.attr(f"image_{side}", int) - 1) * unit
        edges.append([bounded(v, 0, most) for v in (at - half, at + half)])
    most = min(r.count("pre_nms_topn"), count)
    best, order = b.TopK(scores, [most], axis=1, outputs=2)
    sides = [b.GatherElements(edges[1 - k % 2][k // 2], order, axis=1) for k in range(4)]
    least = r.attr("min_size", int)
    large = (sides[2] - sides[0] > least) & (sides[3] - sides[1] > least)
    best = b.Where(large, best, -np.inf)
    overlaps = Overlaps(sides, AREA_BITS, r.attr("iou_threshold", float), IOU_BITS, None)
    turns = min(size, most)
    at, value, real = _kept(b, best, overlaps, -np.inf, turns)
    value = b.Where(real, value, 0)
    boxes = take(b, stack([sides[i] for i in (1, 0, 3, 2)]), at, real)
    value, boxes = b.Pad(value, [0, 0, 0, size - turns]), b.Pad(boxes, [0] * 4 + [size - turns, 0])
    zeros = b.const(np.zeros((batch, size, 1)))
    return _typed(r, [value, boxes, zeros, total(b, real, turns, keepdims=1)])


def lift_region(r: IntegerLiftContext) -> list[Value]:
    """Read Region: scores as quotients of table values, boxes from tables of a sigmoid and of
    powers.
    """
    b, x = r.b, r.whole(0)
    batch, height, width, count, depth = r.static(x)
    if not r.width()[1]:
        raise undocumented("where an unsigned value of a Region lies in its tables")
    scores = _scores_of_region(r, x)
    sizes = of_sizes(r.blob("qanchors_lut"), "qanchors_lut", 2 * count)
    sizes = sizes.reshape(count, 2).astype(np.float64)
    up, lost = r.attr("wh_exp_scale", int), r.bit_count("wh_exp_shift")
    cells = (
        arange(height, dtype=np.float64).reshape(height, 1, 1),
        arange(width, dtype=np.float64).reshape(width, 1),
    )
    edges: list[Value] = []
    for axis, (name, shift) in enumerate((("h", "row_shift"), ("w", "col_shift"))):
        by, fraction_bits = r.attr(f"grid_{name}_scale", int), r.bit_count(f"grid_{name}_shift")
        grid, place = r.bit_count(shift), r.entries("xy_sigmoid_lut", x[..., 1 - axis])
        at = shifted(low_32_bits((place + cells[axis] * 2.0**grid) * by), fraction_bits)
        anchor = np.floor(sizes[:, 1 - axis] * by * 2.0**-fraction_bits)
        grown = low_32_bits(r.entries("wh_exp_lut", x[..., 3 - axis]) * up)
        side = low_32_bits(shifted(grown, lost) * anchor)
        half = shifted(shifted(side, r.bit_count(f"anchors_exp_{name}_shift")), 1)
        edges += [bounded(v, 0, 2.0**grid) for v in (at - half, at + half)]
    boxes = b.Reshape(stack([edges[i] for i in (0, 2, 1, 3)]), [batch, -1, 4])
    flat = b.Transpose(b.Reshape(scores, [batch, -1, depth - 5]), perm=[0, 2, 1])
    size = r.attr("max_box_num", int, r.declared_size(1, 1))
    threshold = float(r.attr("obj_thresh", int))
    kept, counts, number, values, labels = grouped(
        b, single(flat), single(boxes), threshold, size, depth - 5
    )
    return _typed(r, [values, kept, counts, labels, number])


def _scores_of_region(r: IntegerLiftContext, x: Value) -> Value:
    """Return the share of each class times the confidence, 0 if it does not exceed the
    threshold.
    """
    b, own, (bits, _) = r.b, x[..., 5:], r.width()
    most = (1 << bits) - 1
    below = own - b.ReduceMax(own, [4]) + most
    power = double(r.looked_up(below, "score_softmax_lut", bits, False))
    sure = r.entries("conf_sigmoid_lut", x[..., 4:5])
    value = shifted(power * sure, r.bit_count("conf_sigmoid_shift"))
    whole = b.ReduceSum(power, [4])
    least = shifted(whole * r.attr("obj_thresh", int), 8)
    return cut(b.Where(value <= least, 0, value) * most / b.Max(whole, 1))


def lift_region_fuse(r: IntegerLiftContext) -> list[Value]:
    """Read RegionFuse: scores and boxes of both lists are first rescaled to one scale,
    truncated.
    """
    b, inputs = r.b, [r.input(i) for i in range(10)]
    for port, key in ((0, "score"), (2, "box")):
        for i, (scale, shift) in enumerate(zip(*_scaling(r, key, 2), strict=True), port):
            x = shifted(low_32_bits(r.whole(i) * scale), shift)
            inputs[i] = bounded(x, *limits_of_bits(*r.width(i)))
    size, classes = r.declared_size(0), r.declared_size(3)
    found = b.FuseRegions(*map(single, inputs), size=size, classes=classes, outputs=5)
    return _typed(r, found)


# suppressed --------------------------------------------------------------------------------------


@dataclass
class Overlaps:
    """Boxes of each group [G, n], and the effect of their overlaps on the scores.

    `table`: multipliers and shifts by the overlap of two boxes; without it, a box whose overlap
    exceeds `threshold` / 2 ** `fraction_bits` is removed. Areas are shifted right by `lost` bits.
    """

    sides: list[Value]
    lost: int
    threshold: float
    fraction_bits: int
    table: tuple[Array, Array] | None

    def areas(self, b: Builder) -> Value:
        """Return the areas of the boxes, shifted right by `lost` bits."""
        y0, x0, y1, x1 = self.sides
        found = b.Abs((y1 - y0) * (x1 - x0))  # of more than 32 bits where scores fade
        return shifted(found if self.table else low_32_bits(found), self.lost)

    def edges(self, b: Builder) -> list[Value]:
        """Return the smaller and the larger coordinates of each box."""
        pairs = (self.sides[:2], self.sides[2:])
        return [b.operator(op)(x, y) for op in ("Min", "Max") for x, y in zip(*pairs, strict=True)]

    def left(self, b: Builder, edges: list[Value], area: Value, at: Value, scores: Value) -> Value:
        """Return the scores after the box at [G, 1] of each group is selected."""
        own = [b.GatherElements(v, at, axis=1) for v in (*edges, area)]
        spans = [
            b.Max(b.Min(edges[2 + i], own[2 + i]) - b.Max(edges[i], own[i]), 0) for i in (0, 1)
        ]
        shared = shifted(low_32_bits(spans[0] * spans[1]), self.lost)
        union = area + own[4] - shared
        if self.table is None:
            most = shifted(union * self.threshold, self.fraction_bits)
            return b.Where(shared > most, -np.inf, scores)
        none = b.Equal(union, 0)
        part = b.Where(none, 0, shared * float(self.table[0].size - 1))
        part = int64(floor(part / b.Where(none, 1, union)))
        up, down = (entry(v, part) for v in self.table)
        alive = scores > -np.inf
        faded = low_32_bits(b.Where(alive, scores, 0) * up)
        return b.Where(alive, floor(faded * down), scores)


def lift_nms(r: IntegerLiftContext) -> list[Value]:
    """Read NMS: greedy suppression within each class, with overlaps compared, or looked up, as
    integers.
    """
    b, soft = r.b, r.attr("method", enum(words("HARD GAUSSIAN")), "HARD") == "GAUSSIAN"
    least = r.attr("score_threshold", float, -np.inf)
    if soft and least < 0:
        raise undocumented("which of the scores below 0 decay first when all pass the threshold")
    box = r.double(0)
    counts, number = (single(r.input(i)) for i in (1, 2))
    (batch, n, _), classes = r.static(box), r.static(counts)[1]
    scores = b.Reshape(r.whole(3), [batch, n])
    label, real, starts = class_of(b, counts, None, b.Reshape(number, [batch, 1]), n)
    own = b.Equal(label[:, None], arange(classes, dtype=np.float32).reshape(classes, 1))
    own = own & real[:, None]
    first = b.Where(own, scores[:, None], -np.inf)
    size = r.declared_size(0, 1)
    per_class = r.attr("max_output_size", int, size)
    overlaps = _overlaps(r, [box[..., i] for i in range(4)], classes, soft)
    turns = max(1, min(n, per_class))
    least = least if per_class else np.inf
    found = _kept(b, b.Reshape(first, [-1, n]), overlaps, least, turns)
    at, value, mask = (b.Reshape(v, [batch, -1]) for v in found)
    places, good = first_true_indices(b, mask, size)
    place = take(b, at, places, good)
    taken = shifted(low_32_bits(take(b, box, place, good) * r.scales[0]), r.shifts[0])
    inner = single(place) - b.GatherElements(starts, place, axis=1)
    inner = b.Where(good, inner, 0)
    many = b.ReduceSum(single(b.Reshape(mask, [batch, classes, turns])), [2], keepdims=0)
    return _typed(r, [taken, at_most(r, many, size), take(b, value, places, good), inner])


def _overlaps(r: IntegerLiftContext, sides: list[Value], classes: int, soft: bool) -> Overlaps:
    b, lost = r.b, r.bit_count("areas_shift")
    batch, n = r.static(sides[0])
    spread = [
        b.Reshape(b.Expand(v[:, None], [batch, classes, n]), [batch * classes, n]) for v in sides
    ]
    if soft:
        up, down = (r.flat(f"gaussian_{k}_lut") for k in ("scale", "shift"))
        return Overlaps(spread, lost, 0.0, 0, (up, 2.0**-down))
    spelled = next((k for k in _IOU_SHIFT if k in r.layer.attrs), _IOU_SHIFT[0])
    return Overlaps(spread, lost, r.attr("iou_threshold", float), r.bit_count(spelled), None)


_IOU_SHIFT = ("iou_threshold_shift", "iou_thresh_shift")


def _kept(
    b: Builder, scores: Value, overlaps: Overlaps, least: float, turns: int
) -> tuple[Value, Value, Value]:
    """Return for each group and iteration: the index of the best box, its score, and whether it is
    kept.

    scores[G, n] -> int64, double and bool [G, turns].
    """
    edges, area = overlaps.edges(b), overlaps.areas(b)
    with b.loop(turns, scores) as t:
        (left,) = t.states
        at = t.ArgMax(left, axis=1, keepdims=1)
        top = t.ReduceMax(left, [1])
        alive = top > least
        chosen = t.Equal(at, arange(static(scores)[1])[None])
        after = t.Where(alive, overlaps.left(t, edges, area, at, left), left)
        after = t.Where(chosen, -np.inf, after)
        _, *found = t.end(after, *(t.Squeeze(v, [1]) for v in (at, top, int64(alive))))
    at, top, kept = (b.Transpose(v, perm=[1, 0]) for v in found)
    return at, top, b.Cast(kept, to=T.BOOL)
