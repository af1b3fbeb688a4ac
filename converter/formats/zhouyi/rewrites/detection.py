"""Suppression of boxes by the format's own layer, which takes boxes class by class and gives the
places of those that stay.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.rewrites.operands import attributes, static
from converter.graph.build import Builder
from converter.graph.infer import constant
from converter.graph.sizes import arange
from converter.graph.value import Value, operand

LOWEST = float(np.finfo(np.float32).min)


def suppression_mask(node: ir.Node, b: Builder) -> Value:
    """Each class as an image of its own; the places that the NMS keeps become ones in a row of
    zeros.
    """
    boxes, scores, iou = operand(node), operand(node, 1), constant(operand(node, 2))
    if iou is None:
        raise MappingError("the overlap must be constant: the target stores it with the layer")
    batch, classes, n = static(scores)
    images = batch * classes
    if attributes(node).get("center_point_box", 0):
        boxes = corners(b, boxes)
    each = b.Reshape(b.Tile(b.Reshape(boxes, [batch, 1, n, 4]), [1, classes, 1, 1]), [images, n, 4])
    counts, one = (
        b.const(np.full([images, 1], v, np.float32), name)
        for v, name in ((n, "counts"), (1, "classes"))
    )
    attrs: dict[str, Any] = {
        "size": n,
        "per_class": n,
        "iou_threshold": float(iou.reshape(-1)[0]),
        "score_threshold": LOWEST,
    }
    _, kept, _, inner = b.GroupedNMS(
        each, counts, one, b.Reshape(scores, [images, n]), outputs=4, **attrs
    )
    real = b.const(arange(n, dtype=np.float32)[None]) < kept
    places = b.Where(real, inner, b.like(inner, n))
    ones = b.const(np.ones([images, n], np.float32), "ones")
    marked = b.ScatterElements(
        b.const(np.zeros([images, n + 1], np.float32)),
        b.Cast(places, to=ir.DataType.INT64),
        ones,
        axis=1,
    )
    mask = b.Reshape(b.Slice(marked, [0], [n], [1]), [batch, classes, n])
    return b.Cast(mask, to=ir.DataType.BOOL)


def corners(b: Builder, boxes: Value) -> Value:
    """Centre x, y, width, height -> y1, x1, y2, x2: the layer's own reader ignores
    `center_point_box`.

    A box of negative size overlaps nothing; its corners would be those of a box of the opposite
    size, as the layer takes any two.
    """
    x, y, w, h = b.Split(boxes, [1, 1, 1, 1], outputs=4, axis=2)
    half = [b.Relu(v) * b.like(v, 0.5) for v in (h, w)]
    return b.Concat(
        *(b.op(op, v, half[i]) for op in ("Sub", "Add") for i, v in enumerate((y, x))), axis=2
    )
