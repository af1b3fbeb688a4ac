"""Boxes that are rotated around their center: rows (center x, center y, width, height, angle in
radians).
"""

from __future__ import annotations

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.catalogue.overlaps import (
    NOTHING,
    as_int64,
    fullest,
    greedy,
    length,
    numbers,
    over_union,
)
from converter.graph.extensions import extension
from converter.graph.value import FLOAT

Point = tuple[Value, Value]


@extension
def NMSRotated(
    b: Builder,
    boxes: Value,
    scores: Value,
    most: Value,
    iou: Value,
    least: Value,
    *,
    clockwise: int = 1,
) -> tuple[Value, Value]:
    """Suppress boxes[B, N, 5] that overlap a better one of their class by more than `iou`;
    scores[B, C, N].

    Candidates exceed `least`; at most `most` boxes of each class. Rows [image, class, box] int64
    [K, 3] and scores [K], class by class in descending order. `clockwise`: positive angles rotate
    from x to y (y points down). Source: OpenVINO, NMSRotated-13.
    """
    classes, count = length(b, scores, 1), length(b, scores, 2)
    each = b.Reshape(scores, b.Concat([-1], count, axis=0))
    usable = each > b.Reshape(least, [1])
    values, positions = b.TopK(
        b.Where(usable, each, NOTHING), fullest(b, usable), outputs=2, axis=1
    )
    rows = (numbers(b, length(b, each, 0)) / classes)[:, None] * count + positions
    shapes = b.Gather(b.Reshape(_outlines(b, boxes, bool(clockwise)), [-1, 9]), rows)
    stays = greedy(
        b, shapes, values > NOTHING, _overlap, b.Reshape(iou, [1]), most=as_int64(b, most)
    )
    at = b.Transpose(b.NonZero(stays), perm=[1, 0])
    group = at[:, :1]
    box = b.GatherND(positions, at)[:, None]
    return b.Concat(group / classes, group % classes, box, axis=1), b.GatherND(values, at)


def _outlines(b: Builder, boxes: Value, clockwise: bool) -> Value:
    """Return x of the four corners in order, their y, and the area: [.., 9]."""
    x, y, w, h, angle = b.Split(boxes, [1] * 5, outputs=5, axis=-1)
    if not clockwise:
        angle = -angle
    cos, sin = b.Cos(angle), b.Sin(angle)
    along, across = (
        w * np.array([-0.5, 0.5, 0.5, -0.5], np.float32),
        h * np.array([-0.5, -0.5, 0.5, 0.5], np.float32),
    )
    px = x + (along * cos - across * sin)
    py = y + (along * sin + across * cos)
    return b.Concat(px, py, w * h, axis=-1)


def _overlap(b: Builder, one: Value, many: Value) -> Value:
    """Return the intersection over union of outlines: [G, 1, 9] with [G, K, 9] -> [G, K]; 0 if one
    has no area.

    The intersection is the polygon of the corners inside the other box and of the points where
    edges cross.
    """
    x1, y1, area1 = b.Split(one, [4, 4, 1], outputs=3, axis=2)
    x2, y2, area2 = b.Split(many, [4, 4, 1], outputs=3, axis=2)
    found = [
        _crossings(b, (x1, y1), (x2, y2)),
        _inside(b, (x1, y1), (x2, y2)),
        _inside(b, (x2, y2), (x1, y1)),
    ]
    shape = b.Concat(b.Shape(x2, end=2), [-1], axis=0)
    target = b.Concat(b.Shape(x2, end=2), [4], axis=0)
    valid = b.Concat(
        b.Reshape(found[0][2], shape), *(b.Expand(f[2], target) for f in found[1:]), axis=2
    )
    x, y = (
        b.Concat(
            b.Reshape(found[0][i], shape), *(b.Expand(f[i], target) for f in found[1:]), axis=2
        )
        for i in (0, 1)
    )
    common = _area(b, x, y, valid)
    area1, area2 = b.Squeeze(area1, [2]), b.Squeeze(area2, [2])
    real = b.Min(area1, area2) > 0.0
    return over_union(b, common, area1, area2, real)


def _edges(b: Builder, p: Point) -> Point:
    """Return the vector from each corner to the next one."""
    x, y = (b.Gather(v, np.array([1, 2, 3, 0]), axis=2) - v for v in p)
    return x, y


def _cross(b: Builder, p: Point, q: Point) -> Value:
    return p[0] * q[1] - q[0] * p[1]


def _crossings(b: Builder, p: Point, q: Point) -> tuple[Value, Value, Value]:
    """Return x, y and whether it exists of each point where an edge of p meets one of q: [G, K, 4,
    4].
    """

    def spread(v: Point, axis: int) -> Point:
        x, y = (b.Unsqueeze(part, [axis]) for part in v)
        return x, y

    (px, py), (rx, ry) = spread(p, 3), spread(_edges(b, p), 3)
    (qx, qy), s = spread(q, 2), spread(_edges(b, q), 2)
    turn = _cross(b, s, (rx, ry))
    apart = qx - px, qy - py
    skew = b.Abs(turn) > 1e-14
    turn = b.Where(skew, turn, 1.0)
    t1, t2 = _cross(b, s, apart) / turn, _cross(b, (rx, ry), apart) / turn
    least, greatest = b.Min(t1, t2), b.Max(t1, t2)
    on = skew & ((least >= 0.0) & (greatest <= 1.0))
    return px + rx * t1, py + ry * t1, on


def _inside(b: Builder, p: Point, q: Point) -> tuple[Value, Value, Value]:
    """Return the corners of p and whether they are inside q: between the ends of both edges at its
    first corner.
    """
    corner = [v[:, :, :1] for v in q]
    x, y = (v - c for v, c in zip(p, corner, strict=True))
    within = None
    for end in (1, 3):
        ex, ey = (v[:, :, end : end + 1] - c for v, c in zip(q, corner, strict=True))
        reach = x * ex + y * ey
        size = ex * ex + ey * ey
        between = (reach >= 0.0) & (reach <= size)
        within = between if within is None else within & between
    assert within is not None
    return p[0], p[1], within


def _area(b: Builder, x: Value, y: Value, valid: Value) -> Value:
    """Return the area of the convex polygons whose corners are the valid ones of [G, K, P] points,
    in any order and with duplicates.
    """
    number = b.Max(b.ReduceSum(b.Cast(valid, to=FLOAT), [2], keepdims=1), 1.0)
    x, y = (v - b.ReduceSum(b.Where(valid, v, 0.0), [2], keepdims=1) / number for v in (x, y))
    around = b.Where(valid, _direction(b, x, y), 9.0)
    order = b.TopK(around, [24], outputs=2, axis=2, largest=0)[1]
    x, y, valid = (b.GatherElements(v, order, axis=2) for v in (x, y, valid))
    x, y = (b.Where(valid, v, v[:, :, :1]) for v in (x, y))
    after = np.array([*range(1, 24), 0])
    crosses = _cross(b, (x, y), (b.Gather(x, after, axis=2), b.Gather(y, after, axis=2)))
    area = b.Abs(b.ReduceSum(crosses, [2], keepdims=0)) * 0.5
    some = b.Squeeze(valid[:, :, :1], [2])
    return b.Where(some, area, 0.0)


def _direction(b: Builder, x: Value, y: Value) -> Value:
    """Return a number that increases with the angle of (x, y), from -1 to 3."""
    size = b.Abs(x) + b.Abs(y)
    part = y / b.Where(b.Equal(size, 0.0), 1.0, size)
    return b.Where(x < 0.0, 2.0 - part, part)
