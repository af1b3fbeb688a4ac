"""Boxes cut out of images and resampled. Layout N, C, H, W."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.catalogue.selection import FLOAT, static
from converter.graph.extensions import extension
from converter.graph.sizes import arange


@extension
def CropAndResize(
    b: Builder, x: ir.Value, boxes: ir.Value, indices: ir.Value, *, crop_size: list[int], method: str = "BILINEAR", extrapolation_value: float = 0.0
) -> ir.Value:
    """For each of boxes[n, 4] (y1, x1, y2, x2, where 0..1 are the first and the last pixel) of image indices[n]: [n, C, crop h, crop w].

    Corners of the box are sampled themselves; a sample outside the image is `extrapolation_value`.
    """
    _, _, height, width = static(x)
    rows, inside_y = _weights(b, boxes, 0, height, crop_size[0], method)
    columns, inside_x = _weights(b, boxes, 1, width, crop_size[1], method)
    images = b.op("Gather", x, b.op("Cast", indices, to=int(ir.DataType.INT64)), axis=0)
    y = b.op("MatMul", b.op("MatMul", b.op("Unsqueeze", rows, [1]), images), b.op("Unsqueeze", b.op("Transpose", columns, perm=[0, 2, 1]), [1]))
    inside = b.op("And", b.op("Unsqueeze", inside_y, [1, 3]), b.op("Unsqueeze", inside_x, [1, 2]))
    return b.op("Where", inside, y, b.like(y, extrapolation_value))


def _weights(b: Builder, boxes: ir.Value, axis: int, size: int, count: int, method: str) -> tuple[ir.Value, ir.Value]:
    """[n, count, size]: how much of each pixel along the axis goes into each sample; and which samples lie inside, [n, count]."""
    first, last = (b.op("Slice", boxes, [a], [a + 1], [1]) for a in (axis, axis + 2))
    if count > 1:
        step = b.op("Mul", b.op("Sub", last, first), (size - 1) / (count - 1))
        at = b.op("Add", b.op("Mul", first, float(size - 1)), b.op("Mul", step, b.const(arange(count, dtype=np.float32))))
    else:
        at = b.op("Mul", b.op("Add", first, last), 0.5 * (size - 1))
    inside = b.op("And", b.op("GreaterOrEqual", at, 0.0), b.op("LessOrEqual", at, float(size - 1)))
    pixels = b.const(arange(size, dtype=np.float32))
    at = b.op("Unsqueeze", at, [2])
    if method == "NEAREST":
        return b.op("Cast", b.op("Equal", b.op("Floor", b.op("Add", at, 0.5)), pixels), to=FLOAT), inside
    return b.op("Relu", b.op("Sub", 1.0, b.op("Abs", b.op("Sub", at, pixels)))), inside
