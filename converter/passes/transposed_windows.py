"""Transposed convolutions whose padding is not the same at both ends."""

from __future__ import annotations

import onnx_ir as ir

from converter.graph.build import Builder, Value, attrs_of
from converter.graph.infer import constant, shape_of
from converter.graph.value import optional
from converter.graph.windows import halves, overhang
from converter.passes.decompositions.activations import x_of


def transposed(node: ir.Node, b: Builder) -> Value | None:
    """Without padding, which is cut off behind; places beyond the image are zeros and the bias."""
    if (given := optional(node, 2)) is not None and constant(given) is None:
        return None
    a, x, shape = attrs_of(node), x_of(node), shape_of(node.outputs[0])
    weights = shape_of(x_of(node, 1))
    if shape is None or weights is None or x.shape is None:
        return None
    rank, sizes = len(shape) - 2, shape_of(x)
    pads = begins(a, node, sizes, weights, shape)
    if sizes is None or pads is None:
        return None
    kept = {k: a[k] for k in ("strides", "dilations", "group") if k in a}
    y = b.ConvTranspose(*node.inputs[:2], kernel_shape=list(weights[2:]), **kept)
    own = shape_of(y)
    if own is None:
        return None
    missing = [max(0, p + n - m) for p, n, m in zip(pads, shape[2:], own[2:], strict=True)]
    if any(missing):
        y = b.Pad(y, [0] * (rank + 2) + [0, 0, *missing])
    axes = list(range(2, rank + 2))
    ends = [p + n for p, n in zip(pads, shape[2:], strict=True)]
    y = b.Slice(y, pads, ends, axes)
    bias = [*node.inputs, None, None][2]
    return y if bias is None else y + b.Reshape(bias, [-1, *[1] * rank])


def begins(
    a: dict[str, object],
    node: ir.Node,
    sizes: tuple[int, ...] | None,
    weights: tuple[int, ...],
    shape: tuple[int, ...],
) -> list[int] | None:
    """What is cut off in front of each axis."""
    rank = len(shape) - 2
    scheme, given = a.get("auto_pad", "NOTSET"), a.get("pads")
    if scheme in ("NOTSET", "VALID") and not a.get("output_shape"):
        return [int(n) for n in list(given or [0] * rank)[:rank]]  # type: ignore[call-overload]
    if sizes is None:
        return None
    strides, dilations = (list(a.get(k) or [1] * rank) for k in ("strides", "dilations"))  # type: ignore[call-overload]
    more = list(a.get("output_padding") or [0] * rank)  # type: ignore[call-overload]
    axes = zip(shape[2:], weights[2:], strides, dilations, sizes[2:], strict=True)
    totals = [overhang(*axis) + extra for axis, extra in zip(axes, more, strict=True)]
    return halves(totals, upper=scheme != "SAME_LOWER")[:rank]
