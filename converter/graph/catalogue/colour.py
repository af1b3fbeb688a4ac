"""Colour spaces: RGB images and YUV with colours at half the resolution, packed into one row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.catalogue.selection import static
from converter.graph.extensions import extension
from converter.graph.infer import Array
from converter.graph.sizes import arange

# planes behind Y: U then V, V then U, or pairs
PLANES, PAIRS = {"I420": (0, 1), "YV12": (1, 0)}, {"NV12": (0, 1), "NV21": (1, 0)}


def _matrix(coefficient: Sequence[float]) -> tuple[Array, Array, Array]:
    """Offset of the input, offset of the output, and the matrix [out, in]."""
    c = np.asarray(coefficient, np.float64)
    return c[:3], c[3:6], c[6:15].reshape(3, 3)


@extension
def RgbToYuv(b: Builder, x: ir.Value, *, coefficient: Sequence[float], shift: int, format: str = "I420") -> ir.Value:
    """x[N, H, W, 3] in 0..255 -> [N, H*W*3/2]: floor(M (rgb - offset) + rounding) / 2**shift + offset, colours of every other pixel."""
    n, h, w, _ = static(x)
    before, after, m = _matrix(coefficient)
    bias = -m @ before + after * 2.0**shift + 512
    y = b.op("Add", b.op("MatMul", x, b.const(m.T.astype(np.float32))), b.const(bias.astype(np.float32)))
    y = b.op("Clip", b.op("Mul", b.op("Floor", y), 2.0**-shift), 0.0, 255.0)
    light = b.op("Reshape", b.op("Slice", y, [0], [1], [3]), [n, h * w])
    colours = b.op("Slice", y, [0, 0, 1], [h // 2 * 2, w // 2 * 2, 3], [1, 2, 3], [2, 2, 1])
    order = PLANES.get(format) or PAIRS[format]
    colours = b.op("Gather", colours, np.array(order), axis=3)
    if format in PLANES:
        colours = b.op("Transpose", colours, perm=[0, 3, 1, 2])
    return b.op("Concat", light, b.op("Reshape", colours, [n, 2 * (h // 2) * (w // 2)]), axis=1)


@extension
def YuvToRgb(b: Builder, x: ir.Value, *, height: int, width: int, coefficient: Sequence[float], shift: int, format: str = "I420") -> ir.Value:
    """The inverse of RgbToYuv, [N, H, W, 3] rounded and cut to 0..255; colours are interpolated between rows, then (3:1) between columns."""
    n, small = static(x)[0], [height // 2, width // 2]
    before, after, m = _matrix(coefficient)
    light = b.op("Reshape", b.op("Slice", x, [0], [height * width], [1]), [n, 1, height, width])
    rest = b.op("Slice", x, [height * width], [height * width + 2 * small[0] * small[1]], [1])
    pairs = b.op("Reshape", rest, [n, *small, 2]) if format in PAIRS else None
    colours = b.op("Reshape", rest, [n, 2, *small]) if pairs is None else b.op("Transpose", pairs, perm=[0, 3, 1, 2])
    colours = b.op("Gather", colours, np.array(PLANES.get(format) or PAIRS[format]), axis=1)
    yuv = b.op("Transpose", b.op("Concat", light, _widened(b, colours, height, width), axis=1), perm=[0, 2, 3, 1])
    rgb = b.op("MatMul", b.op("Sub", yuv, b.const(before.astype(np.float32))), b.const(m.T.astype(np.float32)))
    rgb = b.op("Add", b.op("Mul", b.op("Add", rgb, 128.0), 2.0**-shift), b.const(after.astype(np.float32)))
    return b.op("Clip", b.op("Round", rgb), 0.0, 255.0)


def _widened(b: Builder, colours: ir.Value, height: int, width: int) -> ir.Value:
    """[N, 2, h, w] -> [N, 2, height, width]: odd inner rows are means, inner columns weighted 3 to 1 towards the nearer neighbour of the same pair."""
    y = b.op("Gather", colours, arange(height) * (height // 2) // height, axis=2)
    y = b.op("Gather", y, arange(width) * (width // 2) // width, axis=3)
    inner = arange(1, height - 1)
    odd = inner[inner % 2 == 1]
    rows = arange(height)
    above, below = b.op("Gather", y, np.maximum(rows - 1, 0), axis=2), b.op("Gather", y, np.minimum(rows + 1, height - 1), axis=2)
    mean = b.op("Round", b.op("Add", b.op("Mul", above, 0.5), b.op("Mul", below, 0.5)))
    y = b.op("Where", b.const(np.isin(rows, odd).reshape(1, 1, height, 1)), mean, y)
    columns = arange(width)
    left = np.where(columns % 2 == 1, 0.75, 0.25).astype(np.float32)
    before, behind = b.op("Gather", y, np.maximum(columns - 1, 0), axis=3), b.op("Gather", y, np.minimum(columns + 1, width - 1), axis=3)
    mixed = b.op("Round", b.op("Add", b.op("Mul", before, b.const(left)), b.op("Mul", behind, b.const(1 - left))))
    return b.op("Where", b.const(((columns > 0) & (columns < width - 1)).reshape(1, 1, 1, width)), mixed, y)
