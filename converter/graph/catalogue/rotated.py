"""Boxes that are turned around their centre: rows (centre x, centre y, width, height, angle in radians)."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.catalogue.overlaps import FLOAT, INT64, NOTHING, fullest, greedy, length, numbers
from converter.graph.extensions import extension

Value = ir.Value
Point = tuple[Value, Value]


@extension
def NMSRotated(b: Builder, boxes: Value, scores: Value, most: Value, iou: Value, least: Value, *, clockwise: int = 1) -> tuple[Value, Value]:
    """Suppression of boxes[B, N, 5] that overlap a better one of their class by more than `iou`; scores[B, C, N].

    Candidates exceed `least`; at most `most` boxes of each class. Rows [image, class, box] int64 [K, 3] and scores [K], class by class and
    falling. `clockwise`: positive angles turn from x to y (y points down). Source: OpenVINO, NMSRotated-13.
    """
    classes, count = length(b, scores, 1), length(b, scores, 2)
    each = b.op("Reshape", scores, b.op("Concat", [-1], count, axis=0))
    usable = b.op("Greater", each, b.op("Reshape", least, [1]))
    values, places = b.ops("TopK", b.op("Where", usable, each, NOTHING), fullest(b, usable), outputs=2, axis=1)
    rows = b.op("Add", b.op("Mul", b.op("Unsqueeze", b.op("Div", numbers(b, length(b, each, 0)), classes), [1]), count), places)
    shapes = b.op("Gather", b.op("Reshape", _outlines(b, boxes, bool(clockwise)), [-1, 9]), rows)
    limit = b.op("Reshape", b.op("Cast", most, to=INT64), [1])
    stays = greedy(b, shapes, b.op("Greater", values, NOTHING), _overlap, b.op("Reshape", iou, [1]), most=limit)
    at = b.op("Transpose", b.op("NonZero", stays), perm=[1, 0])
    group = b.op("Slice", at, [0], [1], [1])
    box = b.op("Unsqueeze", b.op("GatherND", places, at), [1])
    return b.op("Concat", b.op("Div", group, classes), b.op("Mod", group, classes), box, axis=1), b.op("GatherND", values, at)


def _outlines(b: Builder, boxes: Value, clockwise: bool) -> Value:
    """x of the four corners in turn, their y, and the area: [.., 9]."""
    x, y, w, h, angle = b.ops("Split", boxes, [1] * 5, outputs=5, axis=-1)
    if not clockwise:
        angle = b.op("Neg", angle)
    cos, sin = b.op("Cos", angle), b.op("Sin", angle)
    along, across = b.op("Mul", w, np.array([-0.5, 0.5, 0.5, -0.5], np.float32)), b.op("Mul", h, np.array([-0.5, -0.5, 0.5, 0.5], np.float32))
    px = b.op("Add", x, b.op("Sub", b.op("Mul", along, cos), b.op("Mul", across, sin)))
    py = b.op("Add", y, b.op("Add", b.op("Mul", along, sin), b.op("Mul", across, cos)))
    return b.op("Concat", px, py, b.op("Mul", w, h), axis=-1)


def _overlap(b: Builder, one: Value, many: Value) -> Value:
    """Intersection over union of outlines: [G, 1, 9] with [G, K, 9] -> [G, K]; 0 where one has no area.

    The common part is the polygon of the corners that lie within the other box and of the points where edges cross.
    """
    x1, y1, area1 = b.ops("Split", one, [4, 4, 1], outputs=3, axis=2)
    x2, y2, area2 = b.ops("Split", many, [4, 4, 1], outputs=3, axis=2)
    found = [_crossings(b, (x1, y1), (x2, y2)), _inside(b, (x1, y1), (x2, y2)), _inside(b, (x2, y2), (x1, y1))]
    shape = b.op("Concat", b.op("Shape", x2, end=2), [-1], axis=0)
    whole = b.op("Concat", b.op("Shape", x2, end=2), [4], axis=0)
    valid = b.op("Concat", b.op("Reshape", found[0][2], shape), *(b.op("Expand", f[2], whole) for f in found[1:]), axis=2)
    x, y = (b.op("Concat", b.op("Reshape", found[0][i], shape), *(b.op("Expand", f[i], whole) for f in found[1:]), axis=2) for i in (0, 1))
    common = _area(b, x, y, valid)
    area1, area2 = b.op("Squeeze", area1, [2]), b.op("Squeeze", area2, [2])
    real = b.op("Greater", b.op("Min", area1, area2), 0.0)
    return b.op("Where", real, b.op("Div", common, b.op("Sub", b.op("Add", area1, area2), common)), 0.0)


def _edges(b: Builder, p: Point) -> Point:
    """From each corner to the next one."""
    x, y = (b.op("Sub", b.op("Gather", v, np.array([1, 2, 3, 0]), axis=2), v) for v in p)
    return x, y


def _cross(b: Builder, p: Point, q: Point) -> Value:
    return b.op("Sub", b.op("Mul", p[0], q[1]), b.op("Mul", q[0], p[1]))


def _crossings(b: Builder, p: Point, q: Point) -> tuple[Value, Value, Value]:
    """x, y and whether it exists of each point where an edge of p meets one of q: [G, K, 4, 4]."""

    def spread(v: Point, axis: int) -> Point:
        x, y = (b.op("Unsqueeze", part, [axis]) for part in v)
        return x, y

    (px, py), (rx, ry) = spread(p, 3), spread(_edges(b, p), 3)
    (qx, qy), s = spread(q, 2), spread(_edges(b, q), 2)
    turn = _cross(b, s, (rx, ry))
    apart = b.op("Sub", qx, px), b.op("Sub", qy, py)
    skew = b.op("Greater", b.op("Abs", turn), 1e-14)
    turn = b.op("Where", skew, turn, 1.0)
    t1, t2 = b.op("Div", _cross(b, s, apart), turn), b.op("Div", _cross(b, (rx, ry), apart), turn)
    least, greatest = b.op("Min", t1, t2), b.op("Max", t1, t2)
    on = b.op("And", skew, b.op("And", b.op("GreaterOrEqual", least, 0.0), b.op("LessOrEqual", greatest, 1.0)))
    return b.op("Add", px, b.op("Mul", rx, t1)), b.op("Add", py, b.op("Mul", ry, t1)), on


def _inside(b: Builder, p: Point, q: Point) -> tuple[Value, Value, Value]:
    """The corners of p and whether they lie within q: between the ends of both edges at its first corner."""
    corner = [b.op("Slice", v, [0], [1], [2]) for v in q]
    x, y = (b.op("Sub", v, c) for v, c in zip(p, corner, strict=True))
    within = None
    for end in (1, 3):
        ex, ey = (b.op("Sub", b.op("Slice", v, [end], [end + 1], [2]), c) for v, c in zip(q, corner, strict=True))
        reach = b.op("Add", b.op("Mul", x, ex), b.op("Mul", y, ey))
        size = b.op("Add", b.op("Mul", ex, ex), b.op("Mul", ey, ey))
        between = b.op("And", b.op("GreaterOrEqual", reach, 0.0), b.op("LessOrEqual", reach, size))
        within = between if within is None else b.op("And", within, between)
    assert within is not None
    return p[0], p[1], within


def _area(b: Builder, x: Value, y: Value, valid: Value) -> Value:
    """Area of the convex polygons whose corners are the valid ones of [G, K, P] points, in any order and more than once."""
    number = b.op("Max", b.op("ReduceSum", b.op("Cast", valid, to=FLOAT), [2], keepdims=1), 1.0)
    x, y = (b.op("Sub", v, b.op("Div", b.op("ReduceSum", b.op("Where", valid, v, 0.0), [2], keepdims=1), number)) for v in (x, y))
    around = b.op("Where", valid, _direction(b, x, y), 9.0)
    order = b.ops("TopK", around, [24], outputs=2, axis=2, largest=0)[1]
    x, y, valid = (b.op("GatherElements", v, order, axis=2) for v in (x, y, valid))
    x, y = (b.op("Where", valid, v, b.op("Slice", v, [0], [1], [2])) for v in (x, y))
    after = np.array([*range(1, 24), 0])
    turned = _cross(b, (x, y), (b.op("Gather", x, after, axis=2), b.op("Gather", y, after, axis=2)))
    area = b.op("Mul", b.op("Abs", b.op("ReduceSum", turned, [2], keepdims=0)), 0.5)
    some = b.op("Squeeze", b.op("Slice", valid, [0], [1], [2]), [2])
    return b.op("Where", some, area, 0.0)


def _direction(b: Builder, x: Value, y: Value) -> Value:
    """A number that grows with the angle of (x, y), from -1 to 3."""
    size = b.op("Add", b.op("Abs", x), b.op("Abs", y))
    part = b.op("Div", y, b.op("Where", b.op("Equal", size, 0.0), 1.0, size))
    return b.op("Where", b.op("Less", x, 0.0), b.op("Sub", 2.0, part), part)
