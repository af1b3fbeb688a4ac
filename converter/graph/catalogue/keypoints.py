"""Extension operators on heat maps, and on boxes of classes.

Source: Android's NeuralNetworksTypes.h.
"""

from __future__ import annotations

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.catalogue.overlaps import decoded
from converter.graph.extensions import extension
from converter.graph.sizes import static
from converter.graph.value import INT64


@extension(rois=2, deltas=2, index=1, image=2)
def TransformBoxes(b: Builder, rois: Value, deltas: Value, index: Value, image: Value) -> Value:
    """Move and scale rois [n, 4] (x1, y1, x2, y2) by deltas [n, 4c] (dx, dy, log of width and
    height), with one box per class.

    The result [n, 4c] is clipped to the image of the box: image [batch, 2] has heights and widths,
    index [n] the batch index. Source: NNAPI, AXIS_ALIGNED_BBOX_TRANSFORM.
    """
    n, width = static(deltas)
    sides = b.Gather(image, b.Cast(index, to=INT64), axis=0)
    limits = b.Gather(sides, np.array([1, 0]), axis=1)  # width, height
    low, high = (rois[:, i : i + 2] for i in (0, 2))
    size = (high - low)[:, None]  # [n, 1, 2]
    middle = ((low + high) * 0.5)[:, None]
    each = b.Reshape(deltas, [n, width // 4, 4])
    each = each if rois.dtype == deltas.dtype else b.CastLike(each, rois)
    bound = b.Concat(limits, limits, axis=1)[:, None]
    inside = b.Max(b.Min(decoded(b, middle, size, each), bound), 0)
    return b.Reshape(inside, [n, width])


@extension
def HeatmapKeypoints(b: Builder, x: Value, boxes: Value) -> tuple[Value, Value]:
    """Return, for each map of x [n, k, s, s], the score [n, k] and the position [n, k, 2] (x, y) of
    its maximum in the box [n, 4] (x1, y1, x2, y2).

    The maximum is that of the parabola through the largest element and its eight neighbors
    (mirrored at the border), at most 1.5 elements away. Source: NNAPI, HEATMAP_MAX_KEYPOINT.
    """
    n, k, height, width = static(x)
    flat = b.Reshape(x, [n, k, height * width])
    position = b.ArgMax(flat, axis=2, keepdims=1)
    column, row = (position % width, position / width)
    grid = {
        (i, j): b.GatherElements(flat, _neighbor(b, row, column, i, j, height, width), axis=2)
        for i in (-1, 0, 1)
        for j in (-1, 0, 1)
    }
    dx, dy, score = _peak(b, grid)
    x1, y1, x2, y2 = b.Split(boxes, [1] * 4, outputs=4, axis=1)
    found = []
    for at, delta, size, low, high in (
        (column, dx, width, x1, x2),
        (row, dy, height, y1, y2),
    ):
        relative = (b.CastLike(at, x) + delta + 0.5) / size
        first, last = (b.CastLike(v[:, None], x) for v in (low, high))
        found.append(relative * (last - first) + first)
    return b.Squeeze(score, [2]), b.CastLike(b.Concat(*found, axis=2), boxes)


def _neighbor(
    b: Builder, row: Value, column: Value, i: int, j: int, height: int, width: int
) -> Value:
    """Return the flat index of a neighbor; one row or column outside is mirrored."""
    parts = []
    for at, step, size in ((row, i, height), (column, j, width)):
        moved = b.Abs(at + step)
        last = b.const(np.int64(size - 1))
        parts.append(last - b.Abs(last - moved))
    return parts[0] * width + parts[1]


def _peak(b: Builder, g: dict[tuple[int, int], Value]) -> tuple[Value, Value, Value]:
    """Return Newton's step from the center of a 3 x 3 grid, and the value there; no step if the
    curvature has no inverse.
    """
    middle = g[0, 0]

    b0, b1 = (g[0, -1] - g[0, 1]) * 0.5, (g[-1, 0] - g[1, 0]) * 0.5
    a00 = g[0, -1] - middle * 2 + g[0, 1]
    a11 = g[-1, 0] - middle * 2 + g[1, 0]
    a01 = (g[1, 1] - g[1, -1] + (g[-1, -1] - g[-1, 1])) * 0.25
    first, second = a00 * a11, a01 * a01
    determinant = first - second
    least = b.Max(first, second) * 1e-5 + 1e-5
    flat = b.Abs(determinant) < least
    safe = b.Where(flat, 1, determinant)
    steps = [(a11 * b0 - a01 * b1) / safe, (a00 * b1 - a01 * b0) / safe]
    longest = b.Max(b.Max(b.Abs(steps[0]), b.Abs(steps[1])), 1.5)
    dx, dy = (b.Where(flat, 0, s * (1.5 / longest)) for s in steps)
    bent = (a00 * dx + a01 * dy) * dx + (a01 * dx + a11 * dy) * dy
    slope = b0 * dx + b1 * dy
    return dx, dy, middle - slope + bent * 0.5
