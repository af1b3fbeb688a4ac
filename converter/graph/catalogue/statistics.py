"""Normalisations by statistics of the input itself."""

from __future__ import annotations

import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.extensions import extension


@extension
def NormalizeL2(b: Builder, x: ir.Value, *, axes: list[int], eps: float = 1e-10, eps_mode: str = "add") -> ir.Value:
    """x divided by the Euclidean norm over `axes`: sqrt(sum x^2 + eps) with eps_mode "add", sqrt(max(sum x^2, eps)) with "max"."""
    total = b.op("ReduceSum", b.op("Mul", x, x), list(axes), keepdims=1, noop_with_empty_axes=1) if axes else b.op("Mul", x, x)
    return b.op("Div", x, b.op("Sqrt", b.op("Max" if eps_mode == "max" else "Add", total, b.like(x, eps))))


@extension
def GRN(b: Builder, x: ir.Value, *, bias: float = 1e-6) -> ir.Value:
    """Global response normalisation: x divided by sqrt(bias + sum of x^2 over the channels (axis 1))."""
    total = b.op("ReduceSum", b.op("Mul", x, x), [1], keepdims=1)
    return b.op("Div", x, b.op("Sqrt", b.op("Add", total, b.like(x, bias))))


@extension
def MVN(b: Builder, x: ir.Value, *, axes: list[int], normalize_variance: int = 1, eps: float = 1e-9, eps_mode: str = "inside_sqrt") -> ir.Value:
    """x minus its mean over `axes` and, if asked, divided by sqrt(variance + eps) ("inside_sqrt") or sqrt(variance) + eps ("outside_sqrt")."""
    centred = b.op("Sub", x, b.op("ReduceMean", x, list(axes), keepdims=1))
    if not normalize_variance:
        return centred
    variance = b.op("ReduceMean", b.op("Mul", centred, centred), list(axes), keepdims=1)
    inside, outside = (eps, 0.0) if eps_mode == "inside_sqrt" else (0.0, eps)
    deviation = b.op("Add", b.op("Sqrt", b.op("Add", variance, b.like(x, inside))), b.like(x, outside))
    return b.op("Div", centred, deviation)


@extension
def BinaryConvolution(
    b: Builder,
    x: ir.Value,
    w: ir.Value,
    *,
    strides: list[int],
    pads: list[int],
    dilations: list[int],
    pad_value: float = 0.0,
    group: int = 1,
) -> ir.Value:
    """Convolution of 0/1 values that stand for -1/+1 (xnor, popcount): x[N, C, ...] with w[O, C/group, ...], padded by `pad_value` first."""
    rank = len(strides)
    if any(pads):
        x = b.op("Pad", x, [0, 0, *pads[:rank], 0, 0, *pads[rank:]], b.like(x, pad_value))
    signs = [b.op("Sub", b.op("Mul", v, b.like(v, 2)), b.like(v, 1)) for v in (x, w)]
    return b.op("Conv", *signs, strides=list(strides), dilations=list(dilations), pads=[0] * (2 * rank), group=group)
