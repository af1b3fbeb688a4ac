"""Images as a luma plane and chroma planes at half the resolution (BT.601, limited range), and as
three channels.
"""

from __future__ import annotations

import numpy as np

from converter.errors import MappingError
from converter.graph.build import Builder, Value
from converter.graph.catalogue.overlaps import as_float
from converter.graph.extensions import extension
from converter.graph.sizes import static
from converter.graph.value import FLOAT


def _stored(b: Builder, v: Value, like: Value) -> Value:
    """Clamp to 0..255 in the type of `like`; integers are rounded to nearest, ties to even."""
    dtype = like.dtype or FLOAT
    y = b.Clip(v, 0.0, 255.0)
    if dtype == FLOAT:
        return y
    return b.Cast(y if dtype.is_floating_point() else b.Round(y), to=dtype)


@extension(planes=4)
def PlanesToColor(b: Builder, *planes: Value, pairs: int = 1, order: str = "RGB") -> Value:
    """Convert y[N, H, W, 1] and chroma -> [N, H, W, 3]. A single input has all planes below each
    other, [N, 3H/2, W, 1].

    The chroma is uv[N, H/2, W/2, 2] with `pairs`, else u and v[N, H/2, W/2, 1]. Result 0..255 in
    the type of the input, channels in `order` (RGB or BGR). Source: OpenVINO, NV12toRGB-8 and
    I420toRGB-8.
    """
    if len(planes) not in (1, 2 if pairs else 3):
        raise MappingError(f"a picture of {len(planes)} planes is not supported", "R105")
    wide = [as_float(b, v) for v in planes]
    luma, u, v = (
        _planes(b, wide[0], bool(pairs)) if len(wide) == 1 else _separate(b, wide, bool(pairs))
    )
    c = (luma - 16) * 1.164
    d, e = u - 128, v - 128
    red = c + e * 1.596
    green = c - e * 0.813 - d * 0.391
    blue = c + d * 2.018
    return _stored(
        b,
        b.Concat(*((red, green, blue) if order == "RGB" else (blue, green, red)), axis=3),
        planes[0],
    )


def _twice(b: Builder, plane: Value) -> Value:
    """Return [N, h, w, 1] -> [N, 2h, 2w, 1], with every value four times."""
    return b.Resize(
        plane,
        None,
        np.array([1, 2, 2, 1], np.float32),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def _separate(b: Builder, planes: list[Value], pairs: bool) -> list[Value]:
    chroma = list(b.Split(planes[1], [1, 1], axis=3, outputs=2)) if pairs else planes[1:]
    return [planes[0], *(_twice(b, p) for p in chroma)]


def _planes(b: Builder, x: Value, pairs: bool) -> list[Value]:
    batch, rows, width, _ = static(x)
    height = rows * 2 // 3
    luma, rest = x[:, :height], x[:, height:rows]
    if pairs:
        both = b.Reshape(rest, [batch, height // 2, width // 2, 2])
        return [luma, *(_twice(b, p) for p in b.Split(both, [1, 1], axis=3, outputs=2))]
    both = b.Reshape(rest, [batch, 2, height // 2, width // 2])
    return [
        luma,
        *(
            _twice(b, b.Reshape(p, [batch, height // 2, width // 2, 1]))
            for p in b.Split(both, [1, 1], axis=1, outputs=2)
        ),
    ]


@extension(x=4)
def ColorToPlanes(
    b: Builder, x: Value, *, order: str = "RGB", single: int = 1
) -> Value | tuple[Value, ...]:
    """Convert [N, H, W, 3] -> y[N, H, W, 1] and the means of four chroma values uv[N, H/2, W/2, 2],
    or with `single` both below each other, [N, 3H/2, W, 1].
    """
    batch, height, width, _ = static(x)
    parts = b.Split(as_float(b, x), [1, 1, 1], axis=3, outputs=3)
    red, green, blue = parts if order == "RGB" else parts[::-1]

    def mixed(r: float, g: float, bl: float, base: float) -> Value:
        shares = [c * f for c, f in ((red, r), (green, g), (blue, bl))]
        return as_float(b, _stored(b, b.Add(*shares[:2]) + shares[2] + base, x))

    luma = mixed(0.257, 0.504, 0.098, 16)
    chroma = b.Concat(mixed(-0.148, -0.291, 0.439, 128), mixed(0.439, -0.368, -0.071, 128), axis=3)
    blocks = b.Reshape(chroma, [batch, height // 2, 2, width // 2, 2, 2])
    means = b.ReduceSum(blocks, [2, 4], keepdims=0) * 0.25
    if not single:
        return _stored(b, luma, x), _stored(b, means, x)
    return _stored(b, b.Concat(luma, b.Reshape(means, [batch, height // 2, width, 1]), axis=1), x)
