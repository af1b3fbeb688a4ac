"""Normalizations by statistics of the input itself."""

from __future__ import annotations

from converter.graph.build import Builder, Value
from converter.graph.extensions import extension


@extension
def NormalizeL2(
    b: Builder, x: Value, *, axes: list[int], eps: float = 1e-10, eps_mode: str = "add"
) -> Value:
    """x divided by the Euclidean norm over `axes`: sqrt(sum x^2 + eps) with eps_mode "add",
    sqrt(max(sum x^2, eps)) with "max".

    Result: the shape of x. Source: OpenVINO, NormalizeL2-1.
    """
    total = b.ReduceSum(x * x, list(axes), keepdims=1, noop_with_empty_axes=1) if axes else x * x
    return x / b.Sqrt(b.operator("Max" if eps_mode == "max" else "Add")(total, b.like(x, eps)))


@extension
def GRN(b: Builder, x: Value, *, bias: float = 1e-6) -> Value:
    """Global response normalization: x divided by sqrt(bias + sum of x^2 over the channels (axis
    1)).

    x[N, C, ...]; result: the shape of x. Source: OpenVINO, GRN-1.
    """
    total = b.ReduceSum(x * x, [1], keepdims=1)
    return x / b.Sqrt(total + bias)


@extension
def MVN(
    b: Builder,
    x: Value,
    *,
    axes: list[int],
    normalize_variance: int = 1,
    eps: float = 1e-9,
    eps_mode: str = "inside_sqrt",
) -> Value:
    """x minus its mean over `axes` and, optionally, divided by sqrt(variance + eps) ("inside_sqrt")
    or sqrt(variance) + eps ("outside_sqrt").

    Result: the shape of x. Source: OpenVINO, MVN-6.
    """
    centered = x - b.ReduceMean(x, list(axes), keepdims=1)
    if not normalize_variance:
        return centered
    variance = b.ReduceMean(centered * centered, list(axes), keepdims=1)
    inside, outside = (eps, 0.0) if eps_mode == "inside_sqrt" else (0.0, eps)
    deviation = b.Sqrt(variance + inside) + outside
    return centered / deviation


@extension
def BinaryConvolution(
    b: Builder,
    x: Value,
    w: Value,
    *,
    strides: list[int],
    pads: list[int],
    dilations: list[int],
    pad_value: float = 0.0,
    group: int = 1,
) -> Value:
    """Convolution of signs (xnor, popcount): x[N, C, ...], in which positive numbers represent +1
    and all others -1, with the bits w[O, C/group, ...], in which 1 represents +1 and 0 represents
    -1.

    The signs are padded by `pad_value` (-1, 0 or +1). pads: all begins, then all ends. Source:
    OpenVINO, BinaryConvolution-1, as its CPU plugin computes it.
    """
    rank = len(strides)
    signs = b.Where(x > 0, b.like(x, 1), b.like(x, -1))
    if any(pads):
        signs = b.Pad(signs, [0, 0, *pads[:rank], 0, 0, *pads[rank:]], b.like(x, pad_value))
    return b.Conv(
        signs,
        w * 2 - 1,
        strides=list(strides),
        dilations=list(dilations),
        pads=[0] * (2 * rank),
        group=group,
    )
