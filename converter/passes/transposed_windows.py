"""Transposed convolutions with different padding at each end."""

from __future__ import annotations

import onnx_ir as ir

from converter.graph.build import Builder, Value, attrs_of
from converter.graph.infer import constant, shape_of
from converter.graph.value import optional
from converter.graph.windows import transposed_pads
from converter.passes.decompositions.activations import x_of


def transposed(node: ir.Node, b: Builder) -> Value | None:
    """Convolve without padding and crop the result; elements beyond the image are zeros plus the
    bias.
    """
    if (given := optional(node, 2)) is not None and constant(given) is None:
        return None
    a, x, shape = attrs_of(node), x_of(node), shape_of(node.outputs[0])
    weights = shape_of(x_of(node, 1))
    if shape is None or weights is None or x.shape is None:
        return None
    rank, sizes = len(shape) - 2, shape_of(x)
    if sizes is None:
        return None
    pads = transposed_pads(a, sizes[2:], weights[2:])[0][:rank]
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
