"""Color spaces: RGB images and YUV with chroma at half the resolution, packed into one row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from converter.errors import MappingError
from converter.graph.build import Builder, Value
from converter.graph.demands import at_least, of_length
from converter.graph.extensions import SOME, extension
from converter.graph.infer import Array
from converter.graph.sizes import arange, static

# chroma planes after Y: U then V, V then U, or interleaved
PLANES, PAIRS = {"I420": (0, 1), "YV12": (1, 0)}, {"NV12": (0, 1), "NV21": (1, 0)}


def _matrix(coefficient: Sequence[float], shift: int) -> tuple[Array, Array, Array]:
    """Return the offset of the input, the offset of the output, and the matrix [out, in]."""
    of_length(15, coefficient=coefficient)
    at_least(0, shift=shift)
    if shift > 62:
        raise MappingError(f"shift={shift} must not exceed 62 bits", "R110")
    c = np.asarray(coefficient, np.float64)
    return c[:3], c[3:6], c[6:15].reshape(3, 3)


@extension(x=4)
def RgbToYuv(
    b: Builder, x: Value, *, coefficient: Sequence[float], shift: int, format: str = "I420"
) -> Value:
    """Convert x[N, H, W, 3] in 0..255 -> [N, H*W*3/2]: floor(M rgb - offset M + rounding) /
    2**shift + offset, with the chroma of every other pixel.

    Source: the vendor's executor, which multiplies the offset by the transpose of M.
    """
    n, h, w, _ = static(x)
    before, after, m = _matrix(coefficient, shift)
    bias = -before @ m + after * 2.0**shift + 512
    y = x @ b.const(m.T.astype(np.float32)) + b.const(bias.astype(np.float32))
    y = b.Clip(b.Floor(y) * 2.0**-shift, 0.0, 255.0)
    light = b.Reshape(y[:, :, :, :1], [n, h * w])
    colors = y[:, : h // 2 * 2 : 2, : w // 2 * 2 : 2, 1:3]
    order = PLANES.get(format) or PAIRS[format]
    colors = b.Gather(colors, np.array(order), axis=3)
    if format in PLANES:
        colors = b.Transpose(colors, perm=[0, 3, 1, 2])
    return b.Concat(light, b.Reshape(colors, [n, 2 * (h // 2) * (w // 2)]), axis=1)


@extension(x=SOME)
def YuvToRgb(
    b: Builder,
    x: Value,
    *,
    height: int,
    width: int,
    coefficient: Sequence[float],
    shift: int,
    format: str = "I420",
) -> Value:
    """Return the inverse of RgbToYuv, [N, H, W, 3] rounded and clamped to 0..255; chroma is
    interpolated between rows, then (3:1) between columns.
    """
    n, small = static(x)[0], [height // 2, width // 2]
    before, after, m = _matrix(coefficient, shift)
    light = b.Reshape(x[:, : height * width], [n, 1, height, width])
    rest = x[:, height * width : height * width + 2 * small[0] * small[1]]
    pairs = b.Reshape(rest, [n, *small, 2]) if format in PAIRS else None
    colors = (
        b.Reshape(rest, [n, 2, *small]) if pairs is None else b.Transpose(pairs, perm=[0, 3, 1, 2])
    )
    colors = b.Gather(colors, np.array(PLANES.get(format) or PAIRS[format]), axis=1)
    yuv = b.Transpose(
        b.Concat(light, _widened(b, colors, height, width), axis=1), perm=[0, 2, 3, 1]
    )
    rgb = (yuv - b.const(before.astype(np.float32))) @ b.const(m.T.astype(np.float32))
    rgb = (rgb + 128.0) * 2.0**-shift + b.const(after.astype(np.float32))
    return b.Clip(b.Round(rgb), 0.0, 255.0)


def _widened(b: Builder, colors: Value, height: int, width: int) -> Value:
    """Upsample [N, 2, h, w] -> [N, 2, height, width]: odd inner rows are means, inner columns are
    weighted 3:1 towards the nearer neighbor of the same pair.
    """
    y = b.Gather(colors, arange(height) * (height // 2) // height, axis=2)
    y = b.Gather(y, arange(width) * (width // 2) // width, axis=3)
    inner = arange(1, height - 1)
    odd = inner[inner % 2 == 1]
    rows = arange(height)
    above, below = (
        b.Gather(y, np.maximum(rows - 1, 0), axis=2),
        b.Gather(y, np.minimum(rows + 1, height - 1), axis=2),
    )
    mean = b.Round(above * 0.5 + below * 0.5)
    y = b.Where(np.isin(rows, odd).reshape(1, 1, height, 1), mean, y)
    columns = arange(width)
    left = np.where(columns % 2 == 1, 0.75, 0.25).astype(np.float32)
    before, behind = (
        b.Gather(y, np.maximum(columns - 1, 0), axis=3),
        b.Gather(y, np.minimum(columns + 1, width - 1), axis=3),
    )
    mixed = b.Round(before * b.const(left) + behind * b.const(1 - left))
    return b.Where(((columns > 0) & (columns < width - 1)).reshape(1, 1, 1, width), mixed, y)
