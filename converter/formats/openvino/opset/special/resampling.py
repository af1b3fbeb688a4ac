"""Interpolation as products with matrices: what Resize has no name for."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.special.base import is_float, rank, static, transpose
from converter.graph.build import Builder
from converter.graph.infer import Array, known
from converter.graph.sizes import arange
from converter.mapping.node import MappingError


def resampled(b: Builder, x: ir.Value, target: ir.Value, axes: list[int], by_scales: bool, a: Any) -> ir.Value:
    """Axis by axis: every weight of these modes is a product of one weight for each axis."""
    values = known(target)
    if values is None:
        raise MappingError(f"mode={a.mode!r} with these options needs a constant size")
    y = x if is_float(x) else b.op("Cast", x, to=int(ir.DataType.FLOAT))
    for axis, value in zip(axes, values.reshape(-1), strict=True):
        size = int(static(x)[axis])
        scale = float(value) if by_scales else int(value) / size
        out = int(np.floor(size * np.float32(scale))) if by_scales else int(value)
        if out != size or scale != 1:
            y = _along(b, y, axis, weights(a, size, out, scale))
    return y if is_float(x) else b.op("Cast", b.op("Round", y), to=int(x.dtype or ir.DataType.FLOAT))


def _along(b: Builder, x: ir.Value, axis: int, matrix: Array) -> ir.Value:
    """Sums over the axis with the rows of matrix[out, in] as weights."""
    last = rank(x) - 1
    swap = [last if i == axis else axis if i == last else i for i in range(last + 1)]
    columns = b.const(np.ascontiguousarray(matrix.T).astype((x.dtype or ir.DataType.FLOAT).numpy()), "weights")
    return transpose(b, b.op("MatMul", transpose(b, x, swap), columns), swap)


def weights(a: Any, size: int, out: int, scale: float) -> Array:
    """[out, size] of the mode's weights, as OpenVINO's specification of Interpolate defines them."""
    from converter.formats.openvino.opset.special.resize import source_positions

    at = source_positions(arange(out, dtype=np.float64), scale, size, out, a.coordinate_transformation_mode)[:, None]
    places = arange(size)[None, :]
    if a.mode == "cubic":
        return _cubic(at, size, a.cube_coeff)
    if a.mode == "linear_onnx":
        return np.asarray(np.maximum(0, 1 - np.abs(np.clip(at, 0, size - 1) - places)))
    sharpness = scale if a.antialias else 1.0
    reach = 2 if scale > 1 else int(np.ceil(2 / sharpness))
    near = np.abs(places - np.floor(at + 0.5)) <= reach
    found = np.maximum(0, 1 - np.abs(sharpness * (at - places))) * near
    total = found.sum(1, keepdims=True)
    return np.asarray(np.where(total == 0, 0, found / np.where(total == 0, 1, total)))


def _bicubic(d: Array, a: float) -> Array:
    """The cubic kernel at distance d."""
    d = np.abs(d)
    inner, outer = ((a + 2) * d - (a + 3)) * d * d + 1, (((d - 5) * d + 8) * d - 4) * a
    return np.asarray(np.where(d < 1, inner, np.where(d < 2, outer, 0)))


def _cubic(at: Array, size: int, a: float) -> Array:
    """Four neighbours; those outside are the border's."""
    found = np.zeros((len(at), size))
    base = np.floor(at[:, 0]).astype(np.int64)
    for i in range(-1, 3):
        np.add.at(found, (arange(len(at)), np.clip(base + i, 0, size - 1)), _bicubic(at[:, 0] - (base + i), a))
    return found
