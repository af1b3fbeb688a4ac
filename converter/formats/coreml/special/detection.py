"""Non-maximum suppression."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.formats.coreml.blobs import floats, ints, operand
from converter.formats.coreml.special.registry import lifts
from converter.graph.build import Builder
from converter.mapping.node import Layer

Value = ir.Value


@lifts("NonMaximumSuppression")
def lift_suppression(layer: Layer, b: Builder) -> tuple[Value, ...]:
    """Inputs boxes, scores and optionally IoU threshold, score threshold and the number of boxes."""
    p = layer.attrs
    boxes, scores = floats(b, operand(layer, 0)), floats(b, operand(layer, 1))

    def setting(index: int, key: str) -> Any:
        return floats(b, operand(layer, index)) if index < len(layer.inputs) else float(p[key])

    limit: Any = ints(b, operand(layer, 4)) if len(layer.inputs) > 4 else int(p["maxBoxes"])
    per_class = int(p["perClassSuppression"])
    return b.exts("SuppressBoxes", boxes, scores, setting(2, "iouThreshold"), setting(3, "scoreThreshold"), limit, outputs=4, per_class=per_class)
