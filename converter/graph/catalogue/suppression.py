"""Non-maximum suppression of fixed size: a mask over the boxes, and what it leaves in falling order."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.catalogue.selection import static
from converter.graph.extensions import extension

LOWEST = float(np.finfo(np.float32).min)


@extension
def SuppressionMask(b: Builder, boxes: ir.Value, scores: ir.Value, iou: ir.Value, *, center_point_box: int = 0) -> ir.Value:
    """bool [B, C, N]: which of boxes[B, N, 4] survive within each class of scores[B, C, N].

    From the best score down, a box is out when it overlaps one that stays by more than `iou` (float). A score of -inf is out at once.
    """
    size = b.op("Shape", scores)
    bounds = [b.op("Reshape", iou, [1]), b.const(np.array([LOWEST], np.float32))]
    chosen = b.op("NonMaxSuppression", boxes, scores, b.op("Slice", size, [2], [3]), *bounds, center_point_box=center_point_box)
    ones = b.op("Expand", b.const([1]), b.op("Slice", b.op("Shape", chosen), [0], [1]))
    return b.op("Cast", b.op("ScatterND", b.op("Expand", b.const(0), size), chosen, ones), to=int(ir.DataType.BOOL))


def ranked(b: Builder, mask: ir.Value, scores: ir.Value, most: int) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Of mask[..., N] over finite scores[..., N] the `most` best: scores and places in falling order, and which of these are real."""
    key = b.op("Where", mask, scores, b.like(scores, -np.inf))
    rank = len(static(scores))
    values, places = b.ops("TopK", key, [min(most, static(scores)[-1])], outputs=2, axis=rank - 1)
    return values, places, b.op("Greater", values, b.like(scores, -np.inf))


def one_class(b: Builder, boxes: ir.Value, scores: ir.Value, threshold: float) -> ir.Value:
    """bool [N]: which of boxes[N, 4] with scores[N] survive."""
    mask = b.ext("SuppressionMask", b.op("Unsqueeze", boxes, [0]), b.op("Unsqueeze", scores, [0, 1]), b.const(np.array([threshold], np.float32)))
    return b.op("Squeeze", mask, [0, 1])
