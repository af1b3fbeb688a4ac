"""Sizes that are known only when the network runs, computed from shapes: for targets that compute
with shapes as with any numbers.
"""

from __future__ import annotations

import onnx_ir as ir

from converter.graph.build import Builder, Value, attrs_of
from converter.graph.infer import rank_of
from converter.passes.decompositions.activations import x_of


def flatten(node: ir.Node, b: Builder) -> Value | None:
    """Two sizes, of which one is not known: that of the shape is computed."""
    x, rank, axis = x_of(node), rank_of(x_of(node)), int(attrs_of(node).get("axis", 1))
    if rank is None or axis % (rank or 1) == 0:
        return None
    front = b.Shape(x)[: axis % rank]
    size = b.ReduceProd(front, [0], keepdims=1)
    return b.Reshape(x, b.Concat(size, [-1], axis=0))


def shape(node: ir.Node, b: Builder) -> Value | None:
    """A part of a shape."""
    a = attrs_of(node)
    start, end = a.get("start", 0), a.get("end")
    if not start and end is None:
        return None
    return b.Shape(x_of(node))[start:end]


def size(node: ir.Node, b: Builder) -> Value | None:
    return b.ReduceProd(b.Shape(x_of(node)), [0], keepdims=0)
