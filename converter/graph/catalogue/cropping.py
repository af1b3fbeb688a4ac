"""Crops of boxes from images, resampled. Layout N, C, H, W."""

from __future__ import annotations

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.demands import of_counts
from converter.graph.extensions import extension
from converter.graph.sizes import arange, static
from converter.graph.value import FLOAT, INT64


@extension(x=4, boxes=2, indices=1)
def CropAndResize(
    b: Builder,
    x: Value,
    boxes: Value,
    indices: Value,
    *,
    crop_size: list[int],
    method: str = "BILINEAR",
    extrapolation_value: float = 0.0,
) -> Value:
    """Crop and resize, for each of boxes[n, 4] (y1, x1, y2, x2, where 0..1 are the first and the
    last pixel), the image indices[n]: [n, C, crop h, crop w].

    The corners of the box are sample points; a sample outside the image is `extrapolation_value`.
    method: BILINEAR or NEAREST. Source: TensorFlow, CropAndResize.
    """
    of_counts(2, crop_size=crop_size)
    _, _, height, width = static(x)
    rows, inside_y = _weights(b, boxes, 0, height, crop_size[0], method)
    columns, inside_x = _weights(b, boxes, 1, width, crop_size[1], method)
    images = b.Gather(x, b.Cast(indices, to=INT64), axis=0)
    y = rows[:, None] @ images @ b.Transpose(columns, perm=[0, 2, 1])[:, None]
    inside = inside_y[:, None, :, None] & inside_x[:, None, None]
    return b.Where(inside, y, extrapolation_value)


def _weights(
    b: Builder, boxes: Value, axis: int, size: int, count: int, method: str
) -> tuple[Value, Value]:
    """Return the weight of each pixel along the axis in each sample, [n, count, size], and which
    samples are inside, [n, count].
    """
    first, last = (boxes[:, a : a + 1] for a in (axis, axis + 2))
    if count > 1:
        step = (last - first) * ((size - 1) / (count - 1))
        at = first * float(size - 1) + step * b.const(arange(count, dtype=np.float32))
    else:
        at = (first + last) * (0.5 * (size - 1))
    inside = (at >= 0.0) & (at <= float(size - 1))
    pixels = b.const(arange(size, dtype=np.float32))
    at = at[:, :, None]
    if method == "NEAREST":
        return b.Cast(b.Equal(b.Floor(at + 0.5), pixels), to=FLOAT), inside
    return b.Relu(1.0 - b.Abs(at - pixels)), inside
