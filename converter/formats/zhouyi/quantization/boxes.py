"""Boxes moved by deltas, grouped by class, fused and suppressed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import IntegerReading
from converter.formats.zhouyi.quantization.requantize import (
    T,
    bits_of,
    bounded,
    cut,
    limits_of_bits,
    low_32_bits,
    of_sizes,
    shifted,
    stored,
)
from converter.formats.zhouyi.rules.detection import chosen_proposals
from converter.formats.zhouyi.rules.fields import words
from converter.graph.build import Builder
from converter.graph.catalogue.compact import front, static, take, total
from converter.graph.catalogue.ssd import class_of, grouped
from converter.graph.demands import of_length
from converter.graph.infer import Array
from converter.graph.sizes import arange, demand_small
from converter.graph.value import Value
from converter.mapping.codecs import enum

COORDINATES = 32767.0  # of boxes within 0..1
# bits that areas lose, and those of the threshold, where the vendor's executor has them built in
AREA_BITS, IOU_BITS = 15, 11


def _stacked(r: IntegerReading, parts: Sequence[Value]) -> Value:
    return r.b.Concat(*(r.b.Unsqueeze(p, [-1]) for p in parts), axis=-1)


def _typed(r: IntegerReading, results: Sequence[Value]) -> list[Value]:
    """Results as the file declares them, within the ranges of their types."""
    found = []
    for i, (v, t) in enumerate(zip(results, r.tensors.types, strict=False)):
        wide = v if v.dtype == T.DOUBLE else r.b.Cast(v, to=T.DOUBLE)
        found.append(stored(r.b, bounded(r.b, wide, *r.limits(i)) if t.is_integer() else wide, t))
    return found


def _halved(r: IntegerReading, x: Value) -> Value:
    return shifted(r.b, x, 1)


def _shifted_32(r: IntegerReading, x: Value, bits: int) -> Value:
    """x >> bits of 32-bit integers, of which negative numbers of bits leave the sign alone."""
    return shifted(r.b, low_32_bits(r.b, x), bits if 0 <= bits < 31 else 31)


# moved -------------------------------------------------------------------------------------------


def _moved(
    r: IntegerReading, box: Sequence[Value], delta: Sequence[Value], ports: Sequence[int]
) -> list[Value]:
    """y1, x1, y2, x2 (with their zero point) moved by dy, dx (with theirs) and dh, dw (as stored),
    in 15 bits. `ports` of the boxes and of the deltas.
    """
    b = r.b
    scales, shifts = (r.attr(f"box_{k}_value", list) for k in ("scale", "shift"))
    of_length(5, box_scale_value=scales, box_shift_value=shifts)
    for shift in shifts:
        bits_of(shift, "box_shift_value")
    lost, (box_bits, _), (bits, signed) = (
        r.bit_count("delta_shift"),
        r.width(ports[0]),
        r.width(ports[1]),
    )
    ends: tuple[list[Value], list[Value]] = ([], [])
    for axis, name in enumerate("hw"):
        low, high = box[axis], box[2 + axis]
        side, centre = high - low, _halved(r, low + high)
        behind = shifts[axis] - lost
        step = shifted(b, low_32_bits(b, side * float(scales[axis])), lost)
        move = low_32_bits(b, delta[axis] * step + 2.0 ** (behind - 1))
        centre = bounded(
            b, shifted(b, move, behind) + centre, *limits_of_bits(box_bits + bits, True)
        )
        grown = b.Cast(r.looked_up(delta[2 + axis], f"t{name}_lut", bits, signed), to=T.DOUBLE)
        grown = shifted(b, grown * float(scales[2 + axis]), 16)
        half = shifted(b, low_32_bits(b, side * grown), shifts[2 + axis] - 16)
        half = bounded(b, half, *limits_of_bits(box_bits, False))
        for found, edge in zip(ends, (centre - half, centre + half), strict=True):
            rounding = 2.0 ** (shifts[4] - 1) if shifts[4] > 1 else 0.0
            y = shifted(b, low_32_bits(b, edge * float(scales[4]) + rounding), shifts[4])
            found.append(bounded(b, y, 0, COORDINATES))
    return [*ends[0], *ends[1]]


def lift_bounding_box(r: IntegerReading) -> Value:
    zero, box, delta = float(r.tensors.input_zeros[1]), r.whole(0), r.whole(1)
    box = box + float(r.tensors.input_zeros[0])
    deltas = [delta[..., i] for i in range(4)]
    deltas = [deltas[0] + zero, deltas[1] + zero, *deltas[2:]]
    return r.stored(_stacked(r, _moved(r, [box[..., i] for i in range(4)], deltas, (0, 1))))


def lift_multibox(r: IntegerReading) -> list[Value]:
    """Rows (class, score, x1, y1, x2, y2) of the anchors whose best class passes the threshold, -1
    behind them.
    """
    b, zeros = r.b, r.tensors.input_zeros
    scores = r.whole(0)
    batch, classes, anchors = r.static(scores)
    own = scores[:, 1:classes]
    best = b.ReduceMax(own, [1], keepdims=0)
    label = b.Cast(b.ArgMax(own, axis=1, keepdims=0), to=T.DOUBLE)
    delta = b.Reshape(r.whole(1), [batch, anchors, 4])
    box = b.Reshape(r.whole(2), [-1, anchors, 4])[:1] + float(zeros[2])
    box = b.Expand(box, [batch, anchors, 4])
    order = (1, 0, 3, 2)
    deltas = [delta[..., i] + (float(zeros[1]) if i < 2 else 0.0) for i in order]
    moved = _moved(r, [box[..., i] for i in order], deltas, (2, 1))
    score = (best + float(zeros[0])) * float(r.attr("score_scale_value", int))
    score = bounded(b, shifted(b, score, r.bit_count("score_shift_value")), *r.limits())
    rows = _stacked(r, [label, score, *(moved[i] for i in order)])
    mask = best > float(r.attr("score_threshold_value", int))
    places, real = front(b, mask, anchors)
    return _typed(r, [take(b, rows, places, real, -1.0), total(b, mask, anchors)])


# grouped by class --------------------------------------------------------------------------------


def lift_decode_box(r: IntegerReading) -> list[Value]:
    """Anchors as integers, moved by tables; scores above the threshold with their zero point."""
    b = r.b
    if len(r.layer.inputs) > 2:
        raise MappingError("on which of its axes does the input of anchors hold the four numbers?")
    behind, clip = r.bit_count("box_shift"), r.attr("clip", bool, True)
    scores = b.Cast(r.double(0), to=T.FLOAT)
    wide, classes = r.static(scores)[2], r.attr("class_num", int)
    edges: list[Value] = []
    for axis, side in enumerate(("height", "width")):
        most = float(r.attr(f"image_{side}", int))
        at, length = _from_anchors(r, axis, behind)
        half = _halved(r, bounded(b, length, 0, most))
        ends = [at - half, at + half]
        edges += [bounded(b, v, 0, most) for v in ends] if clip else ends
    boxes = b.Cast(_stacked(r, [edges[i] for i in (0, 2, 1, 3)]), to=T.FLOAT)
    own = b.Transpose(scores[:, :, wide - classes : wide], perm=[0, 2, 1])
    threshold = float(r.attr("score_threshold_uint8", int))
    return _typed(
        r, grouped(b, own, boxes, threshold, r.declared_size(0, 1), r.declared_size(1, 1))
    )


def _from_anchors(r: IntegerReading, axis: int, behind: int) -> tuple[Value, Value]:
    """Centres and lengths of boxes along an axis: anchors moved by tables, `behind` bits behind the
    point are cut off.
    """
    size, centre = (
        r.blob(k).reshape(-1).astype(np.float64) for k in ("hw"[axis] + "a", "yx"[axis] + "center")
    )
    move, grown = (
        _from_table(r, f"t{k}_lut", i) for k, i in (("yx"[axis], axis), ("hw"[axis], 2 + axis))
    )
    return _shifted_32(r, move * size, behind) + centre, _shifted_32(r, grown * size, behind)


def lift_proposal(r: IntegerReading) -> list[Value]:
    """Anchors as integers, moved by tables; scores above the threshold as they are stored."""
    b, edges = r.b, []
    for axis, side in enumerate(("height", "width")):
        at, length = _from_anchors(r, axis, r.bit_count("box_shift_value"))
        half, most = length / 2.0, float(r.attr(side, int))
        edges.append([b.Round(bounded(b, v, 0, most)) for v in (at - half, at + half)])
    boxes = b.Cast(_stacked(r, [axis[k] for k in (0, 1) for axis in edges]), to=T.FLOAT)
    own = b.Cast(r.whole(0)[..., 1], to=T.FLOAT)
    mask = own > float(r.attr("score_threshold_value", int))
    return _typed(r, chosen_proposals(r, own, boxes, mask))


def lift_generated_proposals(r: IntegerReading) -> list[Value]:
    """The best boxes of each image, larger than min_size, without a better neighbour: anchors as
    integers, moved and grown by tables of the stored deltas x, y, w, h.
    """
    b, lost = r.b, r.bit_count("delta_shift")
    batch = r.static(r.input(0))[0]
    scores = b.Reshape(r.whole(0), [batch, -1])
    count, size = r.static(scores)[1], r.count("post_nms_topn")
    demand_small(batch, size)
    deltas, unit = b.Reshape(r.input(1), [batch, count, 4]), r.attr("anchor_scale", int)
    edges: list[list[Value]] = []
    for axis, side in enumerate(("width", "height")):
        length, centre = (
            r.blob(f"{'wh' if k == 'a' else 'xy'}"[axis] + k + "_q").reshape(-1).astype(np.float64)
            for k in ("a", "center_a")
        )
        move, grown = (
            b.Cast(r.looked_up(deltas[..., i], f"{k}_lut", *r.width(1)), to=T.DOUBLE)
            for k, i in (("xy", axis), ("wh", 2 + axis))
        )
        at = _shifted_32(r, move * length, lost) + centre
        half = cut(b, _shifted_32(r, grown * length, lost) / 2.0)
        most = float((r.attr(f"image_{side}", int) - 1) * unit)
        edges.append([bounded(b, v, 0, most) for v in (at - half, at + half)])
    most = min(r.count("pre_nms_topn"), count)
    best, order = b.TopK(scores, [most], axis=1, outputs=2)
    sides = [b.GatherElements(edges[1 - k % 2][k // 2], order, axis=1) for k in range(4)]
    least = float(r.attr("min_size", int))
    large = (sides[2] - sides[0] > least) & (sides[3] - sides[1] > least)
    best = b.Where(large, best, -np.inf)
    overlaps = Overlaps(sides, AREA_BITS, r.attr("iou_threshold", float), IOU_BITS, None)
    turns = min(size, most)
    found = _kept(b, best, overlaps, -np.inf, turns)
    at, value, kept = (b.Transpose(v, perm=[1, 0]) for v in found)
    real = b.Cast(kept, to=T.BOOL)
    value = b.Where(real, value, 0)
    boxes = take(b, _stacked(r, [sides[i] for i in (1, 0, 3, 2)]), at, real)
    value, boxes = b.Pad(value, [0, 0, 0, size - turns]), b.Pad(boxes, [0] * 4 + [size - turns, 0])
    zeros = b.const(np.zeros((batch, size, 1)))
    return _typed(r, [value, boxes, zeros, total(b, real, turns, keepdims=1)])


def _from_table(r: IntegerReading, name: str, index: int) -> Value:
    bits, signed = r.width(1)
    return r.b.Cast(r.looked_up(r.input(1)[..., index], name, bits, signed), to=T.DOUBLE)


def lift_region(r: IntegerReading) -> list[Value]:
    """Scores as quotients of tables, boxes from tables of a sigmoid and of powers."""
    b, x = r.b, r.whole(0)
    (bits, signed), (batch, height, width, count, depth) = r.width(0), r.static(x)
    if not signed:
        raise MappingError("where in its tables does an unsigned number of a Region lie?")
    scores = _scores_of_region(r, x, bits)
    sizes = of_sizes(r.blob("qanchors_lut"), "qanchors_lut", 2 * count)
    sizes = sizes.reshape(count, 2).astype(np.float64)
    up, lost = r.attr("wh_exp_scale", int), r.bit_count("wh_exp_shift")
    cells = (
        arange(height, dtype=np.float64).reshape(height, 1, 1),
        arange(width, dtype=np.float64).reshape(width, 1),
    )
    edges: list[Value] = []
    for axis, (name, shift) in enumerate((("h", "row_shift"), ("w", "col_shift"))):
        by, behind = r.attr(f"grid_{name}_scale", int), r.bit_count(f"grid_{name}_shift")
        grid, place = r.bit_count(shift), _whole_table(r, x, "xy_sigmoid_lut", 1 - axis, bits)
        at = shifted(b, low_32_bits(b, (place + cells[axis] * 2.0**grid) * float(by)), behind)
        anchor = np.floor(sizes[:, 1 - axis] * by * 2.0**-behind)
        grown = low_32_bits(b, _whole_table(r, x, "wh_exp_lut", 3 - axis, bits) * float(up))
        side = low_32_bits(b, shifted(b, grown, lost) * anchor)
        half = _halved(r, shifted(b, side, r.bit_count(f"anchors_exp_{name}_shift")))
        edges += [bounded(b, v, 0, 2.0**grid) for v in (at - half, at + half)]
    boxes = b.Reshape(_stacked(r, [edges[i] for i in (0, 2, 1, 3)]), [batch, -1, 4])
    flat = b.Transpose(
        b.Reshape(scores, [batch, height * width * count, depth - 5]), perm=[0, 2, 1]
    )
    size = r.attr("max_box_num", int, r.declared_size(1, 1))
    threshold = float(r.attr("obj_thresh", int))
    kept, counts, number, values, labels = grouped(
        b, b.Cast(flat, to=T.FLOAT), b.Cast(boxes, to=T.FLOAT), threshold, size, depth - 5
    )
    return _typed(r, [values, kept, counts, labels, number])


def _whole_table(r: IntegerReading, x: Value, name: str, index: int, bits: int) -> Value:
    return r.b.Cast(r.looked_up(x[..., index], name, bits, True), to=T.DOUBLE)


def _scores_of_region(r: IntegerReading, x: Value, bits: int) -> Value:
    """The share of each class times the confidence, 0 where it does not pass the threshold."""
    b, own = r.b, x[..., 5:]
    below = own - b.ReduceMax(own, [4]) + float((1 << bits) - 1)
    power = b.Cast(r.looked_up(below, "score_softmax_lut", bits, False), to=T.DOUBLE)
    sure = b.Unsqueeze(_whole_table(r, x, "conf_sigmoid_lut", 4, bits), [4])
    value = shifted(b, power * sure, r.bit_count("conf_sigmoid_shift"))
    whole = b.ReduceSum(power, [4])
    least = shifted(b, whole * float(r.attr("obj_thresh", int)), 8)
    value = b.Where(value <= least, 0, value)
    return cut(b, value * float((1 << bits) - 1) / b.Max(whole, 1))


def lift_region_fuse(r: IntegerReading) -> list[Value]:
    """Scores and boxes of both lists on one scale first, cut off."""
    b, inputs = r.b, [r.input(i) for i in range(10)]
    for port, key in ((0, "score"), (2, "box")):
        scales, shifts = (r.attr(f"{key}_{k}_value", list) for k in ("scale", "shift"))
        of_length(2, **{f"{key}_scale_value": scales, f"{key}_shift_value": shifts})
        for i in (0, 1):
            info = np.iinfo(r.tensors.input_types[port + i].numpy())
            x = low_32_bits(b, r.whole(port + i) * float(scales[i]))
            x = shifted(b, x, shifts[i])
            inputs[port + i] = bounded(b, x, float(info.min), float(info.max))
    floats = [b.Cast(v, to=T.FLOAT) for v in inputs]
    size, classes = r.declared_size(0, 1), r.declared_size(3, 1)
    return _typed(r, b.exts("FuseRegions", *floats, size=size, classes=classes, outputs=5))


# suppressed --------------------------------------------------------------------------------------


@dataclass
class Overlaps:
    """Boxes of each group [G, n] and how they take from each other's scores.

    `table`: multipliers and shifts by the share of two boxes; without, a box is out whose share
    passes `threshold` / 2 ** `behind`. Areas lose `lost` bits.
    """

    sides: list[Value]
    lost: int
    threshold: float
    behind: int
    table: tuple[Array, Array] | None

    def areas(self, b: Builder) -> Value:
        y0, x0, y1, x1 = self.sides
        found = b.Abs((y1 - y0) * (x1 - x0))  # of more than 32 bits where scores fade
        return shifted(b, found if self.table else low_32_bits(b, found), self.lost)

    def edges(self, b: Builder) -> list[Value]:
        pairs = (self.sides[:2], self.sides[2:])
        return [b.operator(op)(x, y) for op in ("Min", "Max") for x, y in zip(*pairs, strict=True)]

    def left(self, b: Builder, edges: list[Value], area: Value, at: Value, scores: Value) -> Value:
        """The scores when the box at [G, 1] of each group is kept."""
        own = [b.GatherElements(v, at, axis=1) for v in (*edges, area)]
        spans = [
            b.Max(b.Min(edges[2 + i], own[2 + i]) - b.Max(edges[i], own[i]), 0) for i in (0, 1)
        ]
        shared = shifted(b, low_32_bits(b, spans[0] * spans[1]), self.lost)
        union = area + own[4] - shared
        if self.table is None:
            most = shifted(b, union * self.threshold, self.behind)
            return b.Where(shared > most, -np.inf, scores)
        none = b.Equal(union, 0)
        part = b.Where(none, 0, shared * float(self.table[0].size - 1))
        part = b.Cast(b.Floor(part / b.Where(none, 1, union)), to=T.INT64)
        up, down = (b.Gather(b.const(v, "fading"), part) for v in self.table)
        alive = scores > -np.inf
        faded = low_32_bits(b, b.Where(alive, scores, 0) * up)
        return b.Where(alive, b.Floor(faded * down), scores)


def lift_nms(r: IntegerReading) -> list[Value]:
    """Greedy suppression within each class; a share is compared, or looked up, as an integer."""
    b, soft = r.b, r.attr("method", enum(words("HARD GAUSSIAN")), "HARD") == "GAUSSIAN"
    least = r.attr("score_threshold", float, -np.inf)
    if soft and least < 0:
        raise MappingError("which of the scores below 0 fade first, when all pass the threshold?")
    box = r.whole(0) + float(r.tensors.input_zeros[0])
    counts, number = (b.Cast(r.input(i), to=T.FLOAT) for i in (1, 2))
    (batch, n, _), classes = r.static(box), r.static(counts)[1]
    scores = b.Reshape(r.whole(3), [batch, n])
    label, real, starts = class_of(b, counts, None, b.Reshape(number, [batch, 1]), n)
    own = b.Equal(b.Unsqueeze(label, [1]), arange(classes, dtype=np.float32).reshape(classes, 1))
    own = own & b.Unsqueeze(real, [1])
    first = b.Where(own, b.Unsqueeze(scores, [1]), -np.inf)
    size = r.declared_size(0, 1)
    per_class = r.attr("max_output_size", int, size)
    overlaps = _overlaps(r, [box[..., i] for i in range(4)], classes, soft)
    turns = max(1, min(n, per_class))
    at, value, kept = _kept(
        b, b.Reshape(first, [-1, n]), overlaps, least if per_class else np.inf, turns
    )
    found = [b.Reshape(b.Transpose(v, perm=[1, 0]), [batch, -1]) for v in (at, value, kept)]
    at, value, mask = found[0], found[1], b.Cast(found[2], to=T.BOOL)
    places, good = front(b, mask, size)
    place = take(b, at, places, good)
    taken = take(b, box, place, good)
    up, behind = float(r.scales[0]), int(r.shifts[0])
    taken = shifted(b, low_32_bits(b, taken * up), behind)
    inner = b.Cast(place, to=T.FLOAT) - b.GatherElements(starts, place, axis=1)
    inner = b.Where(good, inner, 0)
    many = b.ReduceSum(
        b.Cast(b.Reshape(mask, [batch, classes, turns]), to=T.FLOAT), [2], keepdims=0
    )
    room = size - b.CumSum(many, np.array(1), exclusive=1)
    many = b.Min(many, b.Max(room, 0))
    return _typed(r, [taken, many, take(b, value, places, good), inner])


def _overlaps(r: IntegerReading, sides: list[Value], classes: int, soft: bool) -> Overlaps:
    b, lost = r.b, r.bit_count("areas_shift")
    batch, n = r.static(sides[0])
    spread = [
        b.Reshape(b.Expand(b.Unsqueeze(v, [1]), [batch, classes, n]), [batch * classes, n])
        for v in sides
    ]
    if soft:
        up, down = (
            r.blob(f"gaussian_{k}_lut").reshape(-1).astype(np.float64) for k in ("scale", "shift")
        )
        return Overlaps(spread, lost, 0.0, 0, (up, 2.0**-down))
    spelled = next((k for k in _IOU_SHIFT if k in r.layer.attrs), _IOU_SHIFT[0])
    return Overlaps(spread, lost, r.attr("iou_threshold", float), r.bit_count(spelled), None)


_IOU_SHIFT = ("iou_threshold_shift", "iou_thresh_shift")


def _kept(
    b: Builder, scores: Value, overlaps: Overlaps, least: float, turns: int
) -> tuple[Value, Value, Value]:
    """Of each turn and group: the place of the best box, its score, and whether it is kept.

    scores[G, n] -> int64, double and int64 [turns, G].
    """
    groups, n = static(scores)
    edges, area = overlaps.edges(b), overlaps.areas(b)
    with b.body("suppression") as t:
        t.input("turn", T.INT64, [])
        go = t.input("go", T.BOOL, [])
        left = t.input("left", T.DOUBLE, [groups, n])
        at = t.ArgMax(left, axis=1, keepdims=1)
        top = t.ReduceMax(left, [1])
        alive = top > least
        chosen = t.Equal(at, t.const(arange(n).reshape(1, n)))
        after = t.Where(alive, overlaps.left(t, edges, area, at, left), left)
        after = t.Where(chosen, -np.inf, after)
        flat = [t.Squeeze(v, [1]) for v in (at, top, t.Cast(alive, to=T.INT64))]
        t.output(t.Identity(go), after, *flat)
    found = b.Loop(
        b.const(np.array(turns)), b.const(np.array(True)), scores, outputs=4, body=t.graph
    )
    return found[1], found[2], found[3]
