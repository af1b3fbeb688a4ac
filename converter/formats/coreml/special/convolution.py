"""Convolutions in two and three dimensions and their transposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from converter.formats.coreml.blobs import dims, floats, operand, with_rank
from converter.formats.coreml.special.registry import lifts
from converter.graph.build import Builder
from converter.mapping.node import Layer, MappingError

Value = ir.Value


def borders(amounts: dict[str, Any] | None, name: str = "borderAmounts") -> list[int]:
    """[H start, W start, H end, W end] of BorderAmounts; nothing set is no border."""
    edges = (amounts or {}).get(name) or []
    if not edges:
        return [0, 0, 0, 0]
    if len(edges) != 2:
        raise MappingError(f"{len(edges)} border amounts, 2 are needed (height, width)", "R110")
    return [int(e["startEdgeSize"]) for e in edges] + [int(e["endEdgeSize"]) for e in edges]


def same_pads(size: Sequence[int | None], kernel: Sequence[int], stride: Sequence[int], upper: bool) -> list[int]:
    """Pads such that the output has ceil(size / stride) elements; `kernel` is the dilated one. `upper`: the odd element goes to the end."""
    begin, end = [], []
    for n, k, s in zip(size, kernel, stride, strict=True):
        if n is None and s != 1:
            raise MappingError("'same' padding needs static spatial dimensions", "X203", "fix the inputs with --inputs")
        total = max(0, k - 1) if n is None or s == 1 else max(0, (-(-n // s) - 1) * s + k - n)
        small, big = total // 2, total - total // 2
        begin.append(small if upper else big)
        end.append(big if upper else small)
    return [*begin, *end]


def dilated(kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]


def window_pads(p: dict[str, Any], x: Value, kernel: Sequence[int], stride: Sequence[int]) -> list[int]:
    """Explicit pads of `valid` or `same` for the last two axes; `kernel` is the dilated one."""
    if "same" in p:
        return same_pads(dims(x)[-2:], kernel, stride, p["same"].get("asymmetryMode") == "BOTTOM_RIGHT_HEAVY")
    return borders(p.get("valid", {}).get("paddingAmounts"))


def two(values: Sequence[int], default: int) -> list[int]:
    """A repeated [H, W] parameter with its documented default."""
    if values and len(values) != 2:
        raise MappingError(f"{list(values)} should have two elements (height, width)", "R110")
    return [int(v) for v in values] or [default, default]


@lifts("convolution")
def lift_convolution(layer: Layer, b: Builder) -> Value:
    p = layer.attrs
    kernel, stride, dilation = two(p["kernelSize"], 3), two(p["stride"], 1), two(p["dilationFactor"], 1)
    groups, x = int(p["nGroups"]) or 1, floats(b, operand(layer))
    out, per_kernel = int(p["outputChannels"]), int(p["kernelChannels"])
    transposed = bool(p["isDeconvolution"])
    if len(layer.inputs) > 1:
        weights = floats(b, operand(layer, 1))
    else:
        shape = [per_kernel, out // groups, *kernel] if transposed else [out, per_kernel, *kernel]
        weights = layer.blobs["weights"].lift(b, shape, axis=1 if transposed else 0)
    bias = b.const(layer.blobs["bias"].array([out]), f"{layer.name}.bias") if p["hasBias"] else None
    window: dict[str, Any] = {"strides": stride, "dilations": dilation, "group": groups, "kernel_shape": kernel}
    if transposed:
        pads, extra = deconvolution_pads(p, x, dilated(kernel, dilation), stride)
        return with_rank(b, x, 4, lambda v: b.op("ConvTranspose", v, weights, bias, pads=pads, output_padding=extra, **window))
    pads = window_pads(p, x, dilated(kernel, dilation), stride)
    return with_rank(b, x, 4, lambda v: b.op("Conv", v, weights, bias, pads=pads, **window))


def deconvolution_pads(p: dict[str, Any], x: Value, kernel: list[int], stride: list[int]) -> tuple[list[int], list[int]]:
    """Pads and output padding. `outputShape` decides where the output ends; where it starts is `valid`'s; `same` makes it size * stride."""
    n = len(kernel)
    pads = borders(p.get("valid", {}).get("paddingAmounts"))
    extra = [0] * n
    if p["outputShape"]:
        size = dims(x)[-n:]
        for i, target in enumerate(p["outputShape"]):
            if size[i] is None:
                raise MappingError("outputShape needs static spatial dimensions", "X203", "fix the inputs with --inputs")
            full = (size[i] - 1) * stride[i] + kernel[i]  # type: ignore[operator]
            end = full - pads[i] - int(target)
            pads[n + i], extra[i] = max(0, end), max(0, -end)
    elif "same" in p:
        upper = p["same"].get("asymmetryMode") == "BOTTOM_RIGHT_HEAVY"
        for i in range(n):
            crop = kernel[i] - stride[i]
            pads[i] = crop // 2 if upper else crop - crop // 2
            pads[n + i] = crop - pads[i]
            if crop < 0:
                pads[i], pads[n + i], extra[i] = 0, 0, -crop
    return pads, extra


_AXES3 = ("Depth", "Height", "Width")
_CUSTOM = ("Front", "Top", "Left", "Back", "Bottom", "Right")


def three(p: dict[str, Any], name: str) -> list[int]:
    return [int(p[f"{name}{axis}"]) or 1 for axis in _AXES3]


def pads3(p: dict[str, Any], x: Value, kernel: Sequence[int], stride: Sequence[int]) -> list[int]:
    """Explicit pads [front, top, left, back, bottom, right] of CUSTOM, VALID or SAME."""
    if p["paddingType"] == "SAME":
        return same_pads(dims(x)[-3:], kernel, stride, True)
    return [0] * 6 if p["paddingType"] == "VALID" else [int(p[f"customPadding{side}"]) for side in _CUSTOM]


@lifts("convolution3d")
def lift_convolution3d(layer: Layer, b: Builder) -> Value:
    p = layer.attrs
    kernel, stride, dilation = three(p, "kernel"), three(p, "stride"), three(p, "dilation")
    groups, out, into = int(p["nGroups"]) or 1, int(p["outputChannels"]), int(p["inputChannels"])
    x = floats(b, operand(layer))
    bias = b.const(layer.blobs["bias"].array([out]), f"{layer.name}.bias") if p["hasBias"] else None
    window: dict[str, Any] = {"strides": stride, "dilations": dilation, "group": groups, "kernel_shape": kernel}
    big = dilated(kernel, dilation)
    if not p["isDeconvolution"]:
        weights = layer.blobs["weights"].lift(b, [out, into // groups, *kernel])
        pads = pads3(p, x, big, stride)
        return with_rank(b, x, 5, lambda v: b.op("Conv", v, weights, bias, pads=pads, **window))
    weights = layer.blobs["weights"].lift(b, [into, out // groups, *kernel], axis=1)
    pads, extra = _deconvolution3d_pads(p, x, big, stride)
    return with_rank(b, x, 5, lambda v: b.op("ConvTranspose", v, weights, bias, pads=pads, output_padding=extra, **window))


def _deconvolution3d_pads(p: dict[str, Any], x: Value, kernel: list[int], stride: list[int]) -> tuple[list[int], list[int]]:
    pads = [0] * 6 if p["paddingType"] != "CUSTOM" else [int(p[f"customPadding{side}"]) for side in _CUSTOM]
    extra = [0] * 3
    size = dims(x)[-3:]
    target: list[int | None] = [int(t) for t in p["outputShape"]] or [None] * 3
    for i in range(3):
        wanted = target[i]
        if wanted is None and p["paddingType"] == "SAME":
            crop = kernel[i] - stride[i]
            pads[i], pads[3 + i], extra[i] = max(0, crop) // 2, max(0, crop) - max(0, crop) // 2, max(0, -crop)
        elif wanted is not None:
            if size[i] is None:
                raise MappingError("outputShape needs static spatial dimensions", "X203", "fix the inputs with --inputs")
            end = (size[i] - 1) * stride[i] + kernel[i] - pads[i] - wanted  # type: ignore[operator]
            pads[3 + i], extra[i] = max(0, end), max(0, -end)
    return pads, extra
