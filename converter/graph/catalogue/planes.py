"""Pictures as a plane of brightness and planes of colour at half the resolution (BT.601, limited range), and as three channels."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.catalogue.selection import static
from converter.graph.extensions import extension

FLOAT = int(ir.DataType.FLOAT)


def _float(b: Builder, v: ir.Value) -> ir.Value:
    return v if v.dtype == ir.DataType.FLOAT else b.op("Cast", v, to=FLOAT)


def _stored(b: Builder, v: ir.Value, like: ir.Value) -> ir.Value:
    """Cut to 0..255, in the type of `like`; integers are rounded to the nearest, halves to even ones."""
    dtype = like.dtype or ir.DataType.FLOAT
    y = b.op("Clip", v, np.float32(0), np.float32(255))
    if dtype == ir.DataType.FLOAT:
        return y
    return b.op("Cast", y if dtype.is_floating_point() else b.op("Round", y), to=int(dtype))


@extension
def PlanesToColour(b: Builder, *planes: ir.Value, pairs: int = 1, order: str = "RGB") -> ir.Value:
    """y[N, H, W, 1] and colours -> [N, H, W, 3]. One input: all below each other, [N, 3H/2, W, 1].

    Colours are uv[N, H/2, W/2, 2] with `pairs`, else u and v[N, H/2, W/2, 1].
    """
    wide = [_float(b, v) for v in planes]
    luma, u, v = _whole(b, wide[0], bool(pairs)) if len(wide) == 1 else _separate(b, wide, bool(pairs))
    c = b.op("Mul", b.op("Sub", luma, np.float32(16)), np.float32(1.164))
    d, e = b.op("Sub", u, np.float32(128)), b.op("Sub", v, np.float32(128))
    red = b.op("Add", c, b.op("Mul", e, np.float32(1.596)))
    green = b.op("Sub", b.op("Sub", c, b.op("Mul", e, np.float32(0.813))), b.op("Mul", d, np.float32(0.391)))
    blue = b.op("Add", c, b.op("Mul", d, np.float32(2.018)))
    return _stored(b, b.op("Concat", *((red, green, blue) if order == "RGB" else (blue, green, red)), axis=3), planes[0])


def _twice(b: Builder, plane: ir.Value) -> ir.Value:
    """[N, h, w, 1] -> [N, 2h, 2w, 1], every value four times."""
    return b.op("Resize", plane, None, np.array([1, 2, 2, 1], np.float32), mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def _separate(b: Builder, planes: list[ir.Value], pairs: bool) -> list[ir.Value]:
    chroma = list(b.ops("Split", planes[1], [1, 1], axis=3, outputs=2)) if pairs else planes[1:]
    return [planes[0], *(_twice(b, p) for p in chroma)]


def _whole(b: Builder, x: ir.Value, pairs: bool) -> list[ir.Value]:
    batch, rows, width, _ = static(x)
    height = rows * 2 // 3
    luma, rest = b.op("Slice", x, [0], [height], [1]), b.op("Slice", x, [height], [rows], [1])
    if pairs:
        both = b.op("Reshape", rest, [batch, height // 2, width // 2, 2])
        return [luma, *(_twice(b, p) for p in b.ops("Split", both, [1, 1], axis=3, outputs=2))]
    both = b.op("Reshape", rest, [batch, 2, height // 2, width // 2])
    return [luma, *(_twice(b, b.op("Reshape", p, [batch, height // 2, width // 2, 1])) for p in b.ops("Split", both, [1, 1], axis=1, outputs=2))]


@extension
def ColourToPlanes(b: Builder, x: ir.Value, *, order: str = "RGB", single: int = 1) -> ir.Value | tuple[ir.Value, ...]:
    """[N, H, W, 3] -> y[N, H, W, 1] and the means of four colours uv[N, H/2, W/2, 2], or with `single` both below each other, [N, 3H/2, W, 1]."""
    batch, height, width, _ = static(x)
    parts = b.ops("Split", _float(b, x), [1, 1, 1], axis=3, outputs=3)
    red, green, blue = parts if order == "RGB" else parts[::-1]

    def mixed(r: float, g: float, bl: float, base: float) -> ir.Value:
        shares = [b.op("Mul", c, np.float32(f)) for c, f in ((red, r), (green, g), (blue, bl))]
        return _float(b, _stored(b, b.op("Add", b.op("Add", b.op("Add", *shares[:2]), shares[2]), np.float32(base)), x))

    luma = mixed(0.257, 0.504, 0.098, 16)
    chroma = b.op("Concat", mixed(-0.148, -0.291, 0.439, 128), mixed(0.439, -0.368, -0.071, 128), axis=3)
    blocks = b.op("Reshape", chroma, [batch, height // 2, 2, width // 2, 2, 2])
    means = b.op("Mul", b.op("ReduceSum", blocks, [2, 4], keepdims=0), np.float32(0.25))
    if not single:
        return _stored(b, luma, x), _stored(b, means, x)
    return _stored(b, b.op("Concat", luma, b.op("Reshape", means, [batch, height // 2, width, 1]), axis=1), x)
