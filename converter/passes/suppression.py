"""ONNX's non-maximum suppression by Core ML's layer; there is no common decomposition."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attributes
from converter.graph.infer import shape_of
from converter.graph.value import optional
from converter.passes.constants import evaluate_constant

Value = ir.Value
LOWEST = -3.0e38


def non_max_suppression(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite boxes [B,N,4] and scores [B,C,N] to rows (batch, class, box): each class of each
    image is one batch element of the layer.

    The layer returns the best box even if no box survives; its score identifies this case.
    """
    boxes, scores = node.inputs[:2]
    size = shape_of(scores) if scores is not None else None
    most = optional(node, 2)
    if boxes is None or scores is None or size is None or most is None:
        return None
    batch, classes, count = size
    known_limit = evaluate_constant(most)
    limit: Value | int = (
        most if known_limit is None else min(int(known_limit.reshape(-1)[0]), count)
    )
    if known_limit is not None and int(known_limit.reshape(-1)[0]) < 1:
        return None
    iou, threshold = (
        node.inputs[i]
        if i < len(node.inputs) and node.inputs[i] is not None
        else b.const(np.float32(d))
        for i, d in ((3, 0.0), (4, LOWEST))
    )
    assert iou is not None and threshold is not None
    centered = boxes if attributes(node)["center_point_box"] else _centered(b, boxes)
    tiled = b.Reshape(
        b.Tile(b.Unsqueeze(centered, [1]), [1, classes, 1, 1]),
        [batch * classes, count, 4],
    )
    column = b.Reshape(scores, [batch * classes, count, 1])
    _, best, indices, _ = b.SuppressBoxes(tiled, column, iou, threshold, limit, outputs=4)
    high = b.Reshape(best, [batch * classes, -1]) > threshold
    valid = b.And(b.GreaterOrEqual(indices, 0), high)
    rows = b.Transpose(b.NonZero(valid), perm=[1, 0])
    found = b.Unsqueeze(b.GatherND(indices, rows), [1])
    element = b.Slice(rows, [0], [1], [1])
    image = element / classes
    return b.Concat(image, element - (image * classes), found, axis=1)


def _centered(b: Builder, boxes: Value) -> Value:
    """Convert [y1,x1,y2,x2] of any two opposite corners to [center x, center y, width, height]."""
    y1, x1, y2, x2 = b.Split(boxes, outputs=4, axis=2, num_outputs=4)
    center = [(p + q) * 0.5 for p, q in ((x1, x2), (y1, y2))]
    return b.Concat(
        *center,
        *(b.Abs(p - q) for p, q in ((x1, x2), (y1, y2))),
        axis=2,
    )
