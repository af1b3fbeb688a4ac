"""Parameters that are computed at run time, while the shapes are known."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attrs_of
from converter.graph.infer import constant, known, shape_of
from converter.graph.sizes import arange
from converter.graph.value import optional
from converter.passes.decompositions.activations import x_of
from converter.passes.decompositions.table import Table


def computed_axis(node: ir.Node, b: Builder) -> Value | None:
    """Compute a CumSum with a computed axis along every axis, and select the requested one."""
    shape, source = shape_of(x_of(node)), node.inputs[1]
    if shape is None or source is None or constant(source) is not None or not 0 < len(shape) <= 6:
        return None
    axis = b.Reshape(source, [1] * len(shape))
    result: Value | None = None
    for i in range(len(shape)):
        one = b.CumSum(x_of(node), i, **attrs_of(node))
        chosen = b.Equal(axis, i) | b.Equal(axis, i - len(shape))
        result = one if result is None else b.Where(chosen, one, result)
    return result


def computed_start(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite a Slice with computed bounds and a result of known size as a Gather of start, start +
    step, ...; a negative start counts from the end.
    """
    x, shape, out = x_of(node), shape_of(x_of(node)), shape_of(node.outputs[0])
    starts, axes, steps = (
        node.inputs[1],
        *(optional(node, i) for i in (3, 4)),
    )
    if (
        shape is None
        or out is None
        or starts is None
        or (constant(starts) is not None and constant(node.inputs[2]) is not None)
    ):
        return None
    chosen = list(range(len(shape))) if axes is None else known(axes)
    strides = np.ones(len(shape), np.int64) if steps is None else known(steps)
    if chosen is None or strides is None or np.any(np.asarray(strides)[: len(chosen)] < 1):
        return None
    for i, (axis, step) in enumerate(zip(chosen, strides, strict=False)):
        position = int(axis) % len(shape)
        if out[position] == shape[position]:
            continue
        start = b.Gather(starts, np.array([i]))
        behind = start + shape[position]
        first = b.Max(b.Where(start < 0, behind, start), 0)
        rows = b.const(
            (arange(out[position]) * int(step)).astype(
                start.dtype.numpy() if start.dtype else np.int64
            )
        )
        x = b.Gather(x, first + rows, axis=position)
    return x


TABLE: Table = {
    ("", "Slice"): computed_start,
}
