"""Upsampling, bilinear resizing, cropping with resizing, rearrangement of pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.blobs import dims, floats, operand, rank, with_rank
from converter.formats.coreml.special.registry import lifts
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.graph.sizes import arange
from converter.mapping.node import Layer, MappingError

Value = ir.Value
NEAREST: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
_LINEAR = {"DEFAULT": "asymmetric", "ALIGN_CORNERS_TRUE": "align_corners", "ALIGN_CORNERS_FALSE": "half_pixel"}


@lifts("upsample")
def lift_upsample(layer: Layer, b: Builder) -> Value:
    p, x = layer.attrs, floats(b, operand(layer))
    factors = [float(f) for f in (p["fractionalScalingFactor"] or p["scalingFactor"] or [1, 1])]
    if p["mode"] == "NN":
        return with_rank(b, x, 4, lambda v: b.op("Resize", v, None, [1.0, 1.0, *factors], **NEAREST))
    mode = _LINEAR[p["linearUpsampleMode"]]
    if all(f.is_integer() for f in factors):
        return with_rank(b, x, 4, lambda v: b.op("Resize", v, None, [1.0, 1.0, *factors], mode="linear", coordinate_transformation_mode=mode))
    if mode == "asymmetric":
        size = dims(x)[-2:]
        if None in size:
            raise MappingError("fractional factors need static spatial dimensions", "X203", "fix the inputs with --inputs")
        out = [int(np.floor(int(n or 0) * f)) for n, f in zip(size, factors, strict=True)]
        return resample(b, x, [sampling_grid("UPSAMPLE", int(n or 0), m) for n, m in zip(size, out, strict=True)])
    return with_rank(b, x, 4, lambda v: _to_floor(b, v, factors, mode))


def _to_floor(b: Builder, x: Value, factors: list[float], mode: str) -> Value:
    """To floor(factor * size); the positions follow from the sizes, not from the factors."""
    size = dims(x)
    if None not in size:
        sizes: Any = [*(int(n or 0) for n in size[:2]), *(int(np.floor(int(n or 0) * f)) for n, f in zip(size[2:], factors, strict=True))]
    else:
        scaled = b.op("Mul", b.op("Cast", b.op("Shape", x), to=int(ir.DataType.FLOAT)), [1.0, 1.0, *factors])
        sizes = b.op("Cast", b.op("Floor", scaled), to=int(ir.DataType.INT64))
    return b.op("Resize", x, None, None, sizes, mode="linear", coordinate_transformation_mode=mode)


def sampling_grid(mode: str, size: int, count: int) -> Array:
    """The `count` positions on [0, size-1] at which a SamplingMode reads."""
    i = arange(count, dtype=np.float64)
    last = size - 1
    if mode == "ALIGN_ENDPOINTS_MODE" and count == 1:
        return np.array([last / 2])
    if mode in ("STRICT_ALIGN_ENDPOINTS_MODE", "ALIGN_ENDPOINTS_MODE"):
        return i * (last / (count - 1)) if count > 1 else np.zeros(1)
    if mode in ("UPSAMPLE_MODE", "UPSAMPLE"):
        spacing = (size - size / count) / (count - 1) if count > 1 else 0.0
        return np.minimum(last, i * spacing)
    if mode == "ROI_ALIGN_MODE":
        spacing = max(1.0, last) / count
        return np.minimum(last, (i + 0.5) * spacing)
    raise MappingError(f"sampling mode {mode!r} is not known", "R110")


def resample(b: Builder, x: Value, grids: list[Array]) -> Value:
    """Bilinear values at the crossings of two grids of positions on the last two axes."""
    for axis, grid in ((-2, grids[0]), (-1, grids[1])):
        size = dims(x)[axis]
        low = np.clip(np.floor(grid), 0, int(size or 1) - 1).astype(np.int64)
        high = np.minimum(low + 1, int(size or 1) - 1)
        part = (grid - low).astype(np.float32)
        part = part.reshape(-1, 1) if axis == -2 else part
        a = b.op("Gather", x, b.const(low), axis=axis)
        if not part.any():
            x = a
            continue
        c = b.op("Gather", x, b.const(high), axis=axis)
        x = b.op("Add", a, b.op("Mul", b.op("Sub", c, a), b.const(part)))
    return x


@lifts("resizeBilinear")
def lift_resize_bilinear(layer: Layer, b: Builder) -> Value:
    x = floats(b, operand(layer))
    target = [int(t) for t in layer.attrs["targetSize"]] or [1, 1]
    mode = layer.attrs.get("mode", {}).get("samplingMethod", "STRICT_ALIGN_ENDPOINTS_MODE")
    size = dims(x)[-2:]
    if None in size:
        raise MappingError("resizeBilinear needs static spatial dimensions", "X203", "fix the inputs with --inputs")
    plain = {"STRICT_ALIGN_ENDPOINTS_MODE": "align_corners", "ALIGN_ENDPOINTS_MODE": "align_corners", "UPSAMPLE_MODE": "asymmetric"}.get(mode)
    exact = mode != "UPSAMPLE_MODE" or all(t % int(n or 1) == 0 for n, t in zip(size, target, strict=True))
    if plain and exact and min(target) > 1 and min(int(n or 0) for n in size) > 1:
        lead = dims(x)[:-2]
        whole = b.const([*(int(d or 0) for d in lead[-2:]), *target]) if None not in lead[-2:] else None
        if whole is not None and rank(x) == 4:
            return b.op("Resize", x, None, None, whole, mode="linear", coordinate_transformation_mode=plain)
    return resample(b, x, [sampling_grid(mode, int(n or 0), t) for n, t in zip(size, target, strict=True)])


@lifts("cropResize")
def lift_crop_resize(layer: Layer, b: Builder) -> Value:
    """Features [1,B,C,H,W] and boxes [N,1,4 or 5,1,1] -> [N,B or 1,C,h,w]."""
    p = layer.attrs
    return b.ext(
        "CropResize",
        floats(b, operand(layer)),
        floats(b, operand(layer, 1)),
        size=[int(t) for t in p["targetSize"]] or [1, 1],
        sampling=p.get("mode", {}).get("samplingMethod", "STRICT_ALIGN_ENDPOINTS_MODE").removesuffix("_MODE").lower(),
        coordinates=p.get("boxIndicesMode", {}).get("boxMode", "CORNERS_HEIGHT_FIRST").lower(),
        normalized=int(p["normalizedCoordinates"]),
        spatial_scale=p["spatialScale"] or 1.0,
    )


@lifts("reorganizeData")
def lift_reorganize(layer: Layer, b: Builder) -> Value:
    size, x = int(layer.attrs["blockSize"]), operand(layer)
    mode = layer.attrs["mode"]
    if mode == "SPACE_TO_DEPTH":
        return with_rank(b, floats(b, x), 4, lambda v: b.op("SpaceToDepth", v, blocksize=size))
    order = {"DEPTH_TO_SPACE": "DCR", "PIXEL_SHUFFLE": "CRD"}[mode]
    return with_rank(b, floats(b, x), 4, lambda v: b.op("DepthToSpace", v, blocksize=size, mode=order))
