"""Pooling in two and three dimensions."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.formats.coreml.blobs import dims, floats, operand, with_rank
from converter.formats.coreml.special.convolution import pads3, three, two, window_pads
from converter.formats.coreml.special.registry import lifts
from converter.graph.build import Builder
from converter.mapping.node import Layer

Value = ir.Value
_GLOBAL = {"MAX": "GlobalMaxPool", "AVERAGE": "GlobalAveragePool", "L2": "GlobalLpPool"}


@lifts("pooling")
def lift_pooling(layer: Layer, b: Builder) -> Value:
    p, x = layer.attrs, floats(b, operand(layer))
    kind = p["type"]
    if p["globalPooling"]:
        return with_rank(b, x, 4, lambda v: b.op(_GLOBAL[kind], v, p=2 if kind == "L2" else None))
    kernel, stride = two(p["kernelSize"], 3), two(p["stride"], 1)
    ceil = 0
    if "includeLastPixel" in p:
        amounts = two(p["includeLastPixel"]["paddingAmounts"], 0)
        pads, ceil = [*amounts, *amounts], 1
    else:
        pads = window_pads(p, x, kernel, stride)
    return with_rank(b, x, 4, lambda v: _pool(b, v, kind, kernel, stride, pads, ceil, bool(p["avgPoolExcludePadding"])))


def _pool(b: Builder, x: Value, kind: str, kernel: list[int], stride: list[int], pads: list[int], ceil: int, exclude: bool) -> Value:
    """One pooling node. Pads that reach beyond the kernel, which ONNX's pooling does not take, are a Pad of their own."""
    window: dict[str, Any] = {"kernel_shape": kernel, "strides": stride}
    if ceil and not any(pads) and not _cuts(dims(x)[-len(kernel) :], kernel, stride):
        ceil = 0
    if any(s >= k for s, k in zip(pads, kernel * 2, strict=True)) and kind != "AVERAGE":
        n = len(kernel)
        x = b.op("Pad", x, [0, 0, *pads[:n], 0, 0, *pads[n:]], float("-inf") if kind == "MAX" else 0.0)
        pads = [0] * (2 * n)
    if kind == "AVERAGE":
        return _average(b, x, kernel, stride, pads, ceil, exclude)
    if kind == "L2":
        return b.op("LpPool", x, pads=pads, ceil_mode=ceil, p=2, **window)
    return b.op("MaxPool", x, pads=pads, ceil_mode=ceil, **window)


def _cuts(size: list[int | None], kernel: list[int], stride: list[int]) -> bool:
    """Whether rounding up makes a difference."""
    return any(n is None or (n - k) % s for n, k, s in zip(size, kernel, stride, strict=True))


def _average(b: Builder, x: Value, kernel: list[int], stride: list[int], pads: list[int], ceil: int, exclude: bool) -> Value:
    """The mean of a window. Unless padding is excluded the count is always the kernel's, even where rounding up adds more padding."""
    if exclude or not (ceil or any(s >= k for s, k in zip(pads, kernel * 2, strict=True))):
        return b.op("AveragePool", x, kernel_shape=kernel, strides=stride, pads=pads, ceil_mode=ceil, count_include_pad=0 if exclude else int(any(pads)))
    n = len(kernel)
    size = dims(x)[-n:]
    if not ceil or None not in size:
        after = [p + (_beyond(int(d or 0), k, s, p, q) if ceil else 0) for d, k, s, q, p in zip(size, kernel, stride, pads[:n], pads[n:], strict=True)]
        amounts: Any = [0, 0, *pads[:n], 0, 0, *after]
    else:
        amounts = b.op("Concat", [0, 0, *pads[:n], 0, 0], _beyond_at_run_time(b, x, kernel, stride, pads), axis=0)
    return b.op("AveragePool", b.op("Pad", x, amounts, 0.0), kernel_shape=kernel, strides=stride, pads=[0] * (2 * n))


def _beyond(size: int, kernel: int, stride: int, after: int, before: int) -> int:
    """How far the last window of rounding up reaches beyond the padded input; it must not begin in the padding after it."""
    whole = size + before + after
    steps = -(-(whole - kernel) // stride)
    if (before or after) and steps * stride >= size + before:
        steps -= 1
    return max(0, steps * stride + kernel - whole)


def _beyond_at_run_time(b: Builder, x: Value, kernel: list[int], stride: list[int], pads: list[int]) -> Value:
    """The pads after each axis, `_beyond` included, in shape arithmetic."""
    n = len(kernel)
    size = b.op("Shape", x, start=2)
    whole = b.op("Add", size, [pads[i] + pads[n + i] for i in range(n)])
    steps = b.op("Div", b.op("Add", whole, [s - k - 1 for k, s in zip(kernel, stride, strict=True)]), stride)
    padded = [int(bool(pads[i] or pads[n + i])) for i in range(n)]
    late = b.op("GreaterOrEqual", b.op("Mul", steps, stride), b.op("Add", size, pads[:n]))
    steps = b.op("Sub", steps, b.op("Mul", b.op("Cast", late, to=int(ir.DataType.INT64)), padded))
    return b.op("Add", b.op("Max", b.op("Sub", b.op("Add", b.op("Mul", steps, stride), kernel), whole), 0), pads[n:])


@lifts("pooling3d")
def lift_pooling3d(layer: Layer, b: Builder) -> Value:
    p, x = layer.attrs, floats(b, operand(layer))
    kernel, stride = three(p, "kernel"), three(p, "stride")
    pads = pads3(p, x, kernel, stride)
    return with_rank(b, x, 5, lambda v: _pool(b, v, p["type"], kernel, stride, pads, 0, bool(p["countExcludePadding"])))


@lifts("globalPooling3d")
def lift_global_pooling3d(layer: Layer, b: Builder) -> Value:
    kind = _GLOBAL[layer.attrs["type"]]
    return with_rank(b, floats(b, operand(layer)), 5, lambda v: b.op(kind, v))
