"""The non-maximum suppression model at the end of detection pipelines. Source:
NonMaximumSuppression.proto.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.build import Builder
from converter.graph.value import known_sizes

Value = ir.Value


def lift_suppression_model(b: Builder, nms: Any, env: dict[str, Value]) -> None:
    """Confidences [N,C] and coordinates [N,4] (center x, center y, width, height) -> those of the
    boxes that survive, best first.
    """
    names = (nms.confidenceInputFeatureName, nms.coordinatesInputFeatureName)
    if missing := [n for n in names if n not in env]:
        message = f"the suppression reads {missing[0]!r}, which no layer writes"
        raise MappingError(message, "R105")
    with b.provenance(format="coreml", type="nonMaximumSuppression"):
        scores, boxes = (_table(b, env[n]) for n in names)
        iou = env.get(nms.iouThresholdInputFeatureName) or b.const(
            [nms.iouThreshold], dtype="float32"
        )
        threshold = env.get(nms.confidenceThresholdInputFeatureName) or b.const(
            [nms.confidenceThreshold], dtype="float32"
        )
        per_class = nms.WhichOneof("SuppressionMethod") == "pickTop" and nms.pickTop.perClass
        rows = _survivors(b, scores, boxes, iou, threshold, per_class)
        env[nms.confidenceOutputFeatureName] = b.Gather(scores, rows, axis=0)
        env[nms.coordinatesOutputFeatureName] = b.Gather(boxes, rows, axis=0)


def _table(b: Builder, value: Value) -> Value:
    """Return the last two axes as a float matrix."""
    sizes = known_sizes(value) or [None]
    return value if len(sizes) == 2 else b.Reshape(value, [-1, sizes[-1] or 4])


def _survivors(
    b: Builder, scores: Value, boxes: Value, iou: Value, threshold: Value, per_class: bool
) -> Value:
    """Row numbers of the boxes that are kept, by descending score."""
    best = b.ReduceMax(scores, [1], keepdims=0)
    per_box = b.Unsqueeze(best, [0, 1])
    if per_class:
        labels = b.ArgMax(scores, axis=1, keepdims=0)
        classes = b.Range(0, b.Squeeze(b.Shape(scores, start=1), [0]), 1)
        mine = b.Equal(b.Unsqueeze(labels, [0]), b.Unsqueeze(classes, [1]))
        per_box = b.Unsqueeze(b.Where(mine, best, -1.0), [0])
    count = b.Shape(scores, start=0, end=1)
    picked = b.NonMaxSuppression(
        b.Unsqueeze(boxes, [0]), per_box, count, iou, threshold, center_point_box=1
    )
    rows = b.Squeeze(b.Slice(picked, [2], [3], [1]), [1])
    order = b.TopK(b.Gather(best, rows, axis=0), b.Shape(rows), outputs=2, axis=0)[1]
    return b.Gather(rows, order, axis=0)
