"""Non-maximum suppression of fixed size: a mask over the boxes, and the survivors in descending
order.
"""

from __future__ import annotations

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.extensions import extension
from converter.graph.sizes import static
from converter.graph.value import BOOL, LOWEST


@extension
def SuppressionMask(
    b: Builder,
    boxes: Value,
    scores: Value,
    iou: Value,
    *,
    center_point_box: int = 0,
    most: int = -1,
) -> Value:
    """Return which of boxes[B, N, 4] survive in each class of scores[B, C, N]: bool [B, C, N].

    In descending order of score, a box is removed if it overlaps a surviving one by more than `iou`
    (float). Boxes with a score of -inf are always removed; at most `most` boxes of a class have
    another one, if it is not negative.
    """
    del most
    size = b.Shape(scores)
    bounds = [b.Reshape(iou, [1]), b.const(np.array([LOWEST], np.float32))]
    chosen = b.NonMaxSuppression(
        boxes, scores, size[2:3], *bounds, center_point_box=center_point_box
    )
    ones = b.Expand([1], b.Shape(chosen)[:1])
    return b.Cast(b.ScatterND(b.Expand(0, size), chosen, ones), to=BOOL)


def ranked(b: Builder, mask: Value, scores: Value, most: int) -> tuple[Value, Value, Value]:
    """Return the `most` best of mask[..., N] over finite scores[..., N]: scores and indices in
    descending order, and which of these are valid.
    """
    key = b.Where(mask, scores, -np.inf)
    rank = len(static(scores))
    values, positions = b.TopK(key, [min(most, static(scores)[-1])], outputs=2, axis=rank - 1)
    return values, positions, values > -np.inf


def one_class(b: Builder, boxes: Value, scores: Value, threshold: float) -> Value:
    """Return which of boxes[N, 4] with scores[N] survive: bool [N]."""
    mask = b.SuppressionMask(
        boxes[None],
        scores[None, None],
        np.array([threshold], np.float32),
    )
    return b.Squeeze(mask, [0, 1])
