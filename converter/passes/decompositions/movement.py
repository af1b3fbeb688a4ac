"""Movements of data in Reshape, Transpose, Slice, Concat and Expand, where the shapes are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attributes, attrs_of
from converter.graph.infer import constant, known, rank_of, shape_of
from converter.graph.sizes import arange
from converter.graph.value import INT64, optional
from converter.passes.decompositions.activations import x_of
from converter.passes.decompositions.table import Table


def split(node: ir.Node, b: Builder) -> Sequence[Value] | None:
    """One Slice for each part."""
    x, axis = x_of(node), attributes(node)["axis"]
    sizes = [o.shape[axis] if o.shape is not None else None for o in node.outputs]
    if not all(isinstance(s, int) for s in sizes):
        return None
    ends = np.cumsum([int(s) for s in sizes if isinstance(s, int)])
    return [
        b.Slice(x, [int(e - s)], [int(e)], [axis])
        for s, e in zip(sizes, ends, strict=True)
        if isinstance(s, int)
    ]


def depth_to_space(node: ir.Node, b: Builder) -> Value | None:
    shape, attrs = shape_of(x_of(node)), attributes(node)
    if shape is None:
        return None
    (n, c, h, w), s = shape, attrs["blocksize"]
    first = attrs["mode"] == "DCR"
    split = b.Reshape(
        x_of(node), [n, s, s, c // s**2, h, w] if first else [n, c // s**2, s, s, h, w]
    )
    turned = b.Transpose(split, perm=[0, 3, 4, 1, 5, 2] if first else [0, 1, 4, 2, 5, 3])
    return b.Reshape(turned, [n, c // s**2, h * s, w * s])


def space_to_depth(node: ir.Node, b: Builder) -> Value | None:
    shape, s = shape_of(x_of(node)), attrs_of(node)["blocksize"]
    if shape is None:
        return None
    n, c, h, w = shape
    split = b.Reshape(x_of(node), [n, c, h // s, s, w // s, s])
    return b.Reshape(b.Transpose(split, perm=[0, 3, 5, 1, 2, 4]), [n, c * s * s, h // s, w // s])


def expand(node: ir.Node, b: Builder) -> Value | None:
    """Leading axes of one, then Tile."""
    before, after = shape_of(x_of(node)), shape_of(node.outputs[0])
    if before is None or after is None:
        return None
    ones = (1,) * (len(after) - len(before)) + before
    x = x_of(node) if ones == before else b.Reshape(x_of(node), list(ones))
    repeats = [a // o if o else 1 for o, a in zip(ones, after, strict=True)]
    if any(a % o for o, a in zip(ones, after, strict=True) if o):
        return None
    return b.Tile(x, repeats) if any(r != 1 for r in repeats) else b.Identity(x)


def tile(node: ir.Node, b: Builder) -> Value | None:
    """The tensor beside itself, axis after axis."""
    repeats = known(node.inputs[1])
    if repeats is None or repeats.max(initial=0) > 64 or repeats.min(initial=1) < 1:
        return None
    x = x_of(node)
    for axis, count in enumerate(repeats.tolist()):
        if count > 1:
            x = b.Concat(*[x] * count, axis=axis)
    return x if x is not node.inputs[0] else b.Identity(x)


def trilu(node: ir.Node, b: Builder) -> Value | None:
    """Where column - row reaches k (upper), or does not pass it (lower), the data, else zeros."""
    x, upper = x_of(node), bool(attributes(node)["upper"])
    given = optional(node, 1)
    shape, offset = shape_of(x), constant(given) if given is not None else np.array(0)
    if shape is not None and offset is not None:
        places = arange(shape[-1])[None, :] - arange(shape[-2])[:, None]
        mask = b.const(places >= offset if upper else places <= offset, "mask")
    else:
        rows, columns = (_count(b, x, axis) for axis in (-2, -1))
        limit = b.Reshape(given, [1, 1]) if offset is None else offset.reshape(1, 1)
        compare = b.operator("GreaterOrEqual" if upper else "LessOrEqual")
        mask = compare(columns - rows[:, None], limit)
    return b.Where(mask, x, 0)


def _count(b: Builder, x: Value, axis: int) -> Value:
    """The places along an axis, whose length may be known at run time only."""
    shape = shape_of(x)
    if shape is not None:
        return b.const(arange(shape[axis]))
    size = b.Gather(b.Shape(x), axis, axis=0)
    return b.Range(0, size, 1)


def eye_like(node: ir.Node, b: Builder) -> Value | None:
    shape, dtype = shape_of(x_of(node)), node.outputs[0].dtype
    if shape is None or dtype is None:
        return None
    return b.Identity(np.eye(shape[0], shape[1], k=attributes(node)["k"]).astype(dtype.numpy()))


def pad(node: ir.Node, b: Builder) -> Value | None:
    """Constant padding: blocks of the value before and behind, a Slice where the amount is
    negative. Other modes: look-ups along each axis.
    """
    return _blocks(node, b) if attributes(node)["mode"] == "constant" else _looked_up(node, b)


def _looked_up(node: ir.Node, b: Builder) -> Value | None:
    x, shape, amounts = x_of(node), shape_of(x_of(node)), known(node.inputs[1])
    chosen = known(optional(node, 3))
    if shape is None or amounts is None or (len(node.inputs) > 3 and chosen is None):
        return None
    axes = [
        int(a) % len(shape)
        for a in (chosen.reshape(-1) if chosen is not None else range(len(shape)))
    ]
    for axis, before, after in zip(axes, *amounts.reshape(2, -1).tolist(), strict=True):
        rows = arange(max(-before, 0), shape[axis] - max(-after, 0))
        if before or after:
            x = b.Gather(
                x,
                np.pad(rows, (max(before, 0), max(after, 0)), str(attrs_of(node)["mode"])),  # type: ignore[call-overload]
                axis=axis,
            )
    return x if x is not node.inputs[0] else b.Identity(x)


def _blocks(node: ir.Node, b: Builder) -> Value | None:
    x, shape, amounts = x_of(node), shape_of(x_of(node)), known(node.inputs[1])
    value = constant(node.inputs[2]) if optional(node, 2) is not None else np.array(0)
    chosen = known(optional(node, 3))
    if shape is None or amounts is None or value is None or x.dtype is None:
        return None
    axes = [
        int(a) % len(shape)
        for a in (chosen.reshape(-1) if chosen is not None else range(len(shape)))
    ]
    extents, dtype = list(shape), x.dtype.numpy()
    for axis, before, after in zip(axes, *amounts.reshape(2, -1).tolist(), strict=True):
        if before < 0 or after < 0:
            x = b.Slice(x, [max(-before, 0)], [extents[axis] - max(-after, 0)], [axis])
        blocks = [
            np.full([*extents[:axis], n, *extents[axis + 1 :]], value.reshape(()), dtype)
            if n > 0
            else None
            for n in (before, after)
        ]
        if any(block is not None for block in blocks):
            x = b.Concat(*[v for v in (blocks[0], x, blocks[1]) if v is not None], axis=axis)
        extents[axis] += before + after
    return x if x is not node.inputs[0] else b.Identity(x)


def concat(node: ir.Node, b: Builder) -> Value | None:
    return b.Identity(x_of(node)) if len(node.inputs) == 1 else None


def compress(node: ir.Node, b: Builder) -> Value | None:
    """A known condition is a look-up; what is behind its end is left away."""
    condition, axis = constant(node.inputs[1]), attrs_of(node).get("axis")
    if condition is None:
        return None
    x = x_of(node) if axis is not None else b.Reshape(x_of(node), [-1])
    return b.Gather(x, np.flatnonzero(condition), axis=axis or 0)


def may_copy(shape: ir.Value | None) -> bool:
    """Whether a shape for Reshape has zeros, which copy a size, as far as can be seen: a constant
    is looked at, who feeds an input may give some, and computed sizes are sizes.
    """
    found = known(shape)
    if found is not None:
        return 0 in found
    node = None if shape is None else shape.producer()
    if node is None:
        return True
    return node.op_type in ("Cast", "Identity") and may_copy(node.inputs[0])


def reshape(node: ir.Node, b: Builder) -> Value | None:
    """Zeros that copy a size of the operand: taken from its shape."""
    x, given = x_of(node), optional(node, 1)
    if given is None or attributes(node)["allowzero"] or not may_copy(given):
        return None
    target, own = known(given), b.Shape(x)
    if target is None:
        rank, count = rank_of(x), (shape_of(given) or (None,))[0]
        if rank is None or count is None:
            return None
        own = own[:count] if count < rank else own
        own = b.Concat(own, [1] * (count - rank), axis=0) if count > rank else own
        sizes = b.Cast(given, to=INT64)
        return b.Reshape(x, b.Where(b.Equal(sizes, 0), own, sizes))
    parts = [own[i : i + 1] if n == 0 else b.const([int(n)]) for i, n in enumerate(target.tolist())]
    return b.Reshape(x, b.Concat(*parts, axis=0))


TABLE: Table = {
    ("", "Reshape"): reshape,
    ("", "Split"): split,
    ("", "DepthToSpace"): depth_to_space,
    ("", "SpaceToDepth"): space_to_depth,
    ("", "Expand"): expand,
    ("", "Tile"): tile,
    ("", "Trilu"): trilu,
    ("", "EyeLike"): eye_like,
    ("", "Pad"): pad,
    ("", "Concat"): concat,
    ("", "Compress"): compress,
}
