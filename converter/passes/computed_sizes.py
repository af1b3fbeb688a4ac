"""Computation of sizes that are known only at run time, for targets that treat shapes like any
other tensor.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attrs_of
from converter.graph.infer import rank_of
from converter.passes.decompositions.activations import x_of

D = ir.DataType


def flatten(node: ir.Node, b: Builder) -> Value | None:
    """Flatten to two axes, of which one size is unknown and computed from the shape."""
    x, rank, axis = x_of(node), rank_of(x_of(node)), int(attrs_of(node).get("axis", 1))
    if rank is None or axis % (rank or 1) == 0:
        return None
    front = b.Shape(x)[: axis % rank]
    size = b.ReduceProd(front, [0], keepdims=1)
    return b.Reshape(x, b.Concat(size, [-1], axis=0))


def shape(node: ir.Node, b: Builder) -> Value | None:
    """Compute a part of a shape."""
    a = attrs_of(node)
    start, end = a.get("start", 0), a.get("end")
    if not start and end is None:
        return None
    return b.Shape(x_of(node))[start:end]


def size(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite Size as the product of Shape."""
    return b.ReduceProd(b.Shape(x_of(node)), [0], keepdims=0)


def gathered_slice(node: ir.Node, b: Builder, axes: list[int]) -> Value:
    """Rewrite a Slice with one Gather per axis.

    before: Slice(x, start, end, axes, step)    after: Gather(x, Range(start, end, step), axis)

    The bounds are counted from the front and clamped to the axis. If the size of the result is
    known, it determines the number of indices from the start.
    """
    x, shape = x_of(node), b.Cast(b.Shape(x_of(node)), to=D.INT64)
    sizes = node.outputs[0].shape or ()
    starts, ends, *more = node.inputs[1:]
    steps = more[1] if len(more) > 1 else None
    for place, axis in enumerate(axes):
        size = b.Gather(shape, np.array(axis))
        start, end, step = (
            b.Gather(b.Cast(v, to=D.INT64), np.array(place)) if v is not None else b.const(1)
            for v in (starts, ends, steps)
        )
        forth = b.Greater(step, b.const(0))
        least = b.Where(forth, b.const(0), b.const(-1))
        first, last = (
            b.Max(b.Min(b.Where(v < 0, v + size, v), most), lowest)
            for v, most, lowest in (
                (start, b.Where(forth, size, size - 1), b.const(0)),
                (end, size, least),
            )
        )
        count = sizes[axis] if sizes else None
        positions = (
            first + b.const(np.arange(count)) * step
            if isinstance(count, int)
            else b.Range(first, last, step)
        )
        x = b.Gather(x, positions, axis=axis)
    return x
