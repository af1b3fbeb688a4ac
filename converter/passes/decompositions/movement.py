"""Movements of data as Reshape, Transpose, Slice, Concat and Expand, if the shapes are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attributes, attrs_of
from converter.graph.infer import constant, known, rank_of, shape_of
from converter.graph.known import may_copy
from converter.graph.sizes import arange, static
from converter.graph.value import INT64, array_type, known_sizes, optional
from converter.passes.decompositions.activations import x_of
from converter.passes.decompositions.table import Table

END = np.iinfo(np.int64).max  # of a slice to the end of an axis


def split(node: ir.Node, b: Builder) -> Sequence[Value] | None:
    """Use one Slice per part."""
    x, axis = x_of(node), attributes(node)["axis"]
    sizes = [o.shape[axis] if o.shape is not None else None for o in node.outputs]
    if not all(isinstance(s, int) for s in sizes):
        return _computed_parts(node, b)
    ends = np.cumsum([int(s) for s in sizes if isinstance(s, int)])
    return [
        b.Slice(x, [int(e - s)], [int(e)], [axis])
        for s, e in zip(sizes, ends, strict=True)
        if isinstance(s, int)
    ]


def _computed_parts(node: ir.Node, b: Builder) -> Sequence[Value] | None:
    """Split an axis of dynamic size: by computed sizes, or into equal parts but for the last."""
    x, given, rank = x_of(node), optional(node, 1), rank_of(x_of(node))
    if rank is None:
        return None
    axis, count = attributes(node)["axis"] % rank, len(node.outputs)
    if given is not None:
        lengths = [given[i : i + 1] for i in range(count)]
    else:
        size = b.Shape(x, start=axis, end=axis + 1)
        lengths = [(size + (count - 1)) / count] * count
    parts, start = [], b.const([0])
    for length in lengths:
        end = start + length
        parts.append(b.Slice(x, start, end, [axis]))
        start = end
    return parts


def _dims(b: Builder, x: Value) -> list[Any] | None:
    """Return the size of each axis, of dynamic ones as a value of one element; None without a
    rank.
    """
    sizes = known_sizes(x)
    if sizes is None or None not in sizes:
        return None if sizes is None else [*sizes]
    own = b.Shape(x)
    return [own[i : i + 1] if n is None else n for i, n in enumerate(sizes)]


def _shape(b: Builder, sizes: Sequence[Any]) -> Any:
    """Return a shape of such sizes."""
    if all(isinstance(n, int) for n in sizes):
        return [*sizes]
    return b.Concat(*([n] if isinstance(n, int) else n for n in sizes), axis=0)


def _quotient(size: Any, divisor: int) -> Any:
    return size // divisor if isinstance(size, int) else size / divisor


def depth_to_space(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite DepthToSpace as Reshape, Transpose, Reshape."""
    dims, attrs = _dims(b, x_of(node)), attributes(node)
    if dims is None:
        return None
    (n, c, h, w), s = dims, attrs["blocksize"]
    first, depth = attrs["mode"] == "DCR", _quotient(c, s**2)
    blocks = [n, s, s, depth, h, w] if first else [n, depth, s, s, h, w]
    split = b.Reshape(x_of(node), _shape(b, blocks))
    transposed = b.Transpose(split, perm=[0, 3, 4, 1, 5, 2] if first else [0, 1, 4, 2, 5, 3])
    return b.Reshape(transposed, _shape(b, [n, depth, h * s, w * s]))


def space_to_depth(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite SpaceToDepth as Reshape, Transpose, Reshape."""
    dims, s = _dims(b, x_of(node)), attrs_of(node)["blocksize"]
    if dims is None:
        return None
    n, c, h, w = dims
    rows, columns = _quotient(h, s), _quotient(w, s)
    split = b.Reshape(x_of(node), _shape(b, [n, c, rows, s, columns, s]))
    transposed = b.Transpose(split, perm=[0, 3, 5, 1, 2, 4])
    return b.Reshape(transposed, _shape(b, [n, c * s * s, rows, columns]))


def expand(node: ir.Node, b: Builder) -> Value | None:
    """Insert leading axes of length 1, then Tile."""
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
    """Concatenate the tensor with itself, one axis after the other."""
    repeats = known(node.inputs[1])
    if repeats is None or repeats.max(initial=0) > 64 or repeats.min(initial=1) < 1:
        return None
    x = x_of(node)
    for axis, count in enumerate(repeats.tolist()):
        if count > 1:
            x = b.Concat(*[x] * count, axis=axis)
    return x if x is not node.inputs[0] else b.Identity(x)


def trilu(node: ir.Node, b: Builder) -> Value | None:
    """Keep the data where column - row >= k (upper) or <= k (lower), with zeros elsewhere."""
    x, upper = x_of(node), bool(attributes(node)["upper"])
    given = optional(node, 1)
    shape, offset = shape_of(x), constant(given) if given is not None else np.array(0)
    if shape is not None and offset is not None:
        positions = arange(shape[-1])[None, :] - arange(shape[-2])[:, None]
        mask = b.const(positions >= offset if upper else positions <= offset, "mask")
    else:
        rows, columns = (_count(b, x, axis) for axis in (-2, -1))
        limit = b.Reshape(given, [1, 1]) if offset is None else offset.reshape(1, 1)
        compare = b.operator("GreaterOrEqual" if upper else "LessOrEqual")
        mask = compare(columns - rows[:, None], limit)
    return b.Where(mask, x, 0)


def _count(b: Builder, x: Value, axis: int) -> Value:
    """Return the indices along an axis, whose length may be known only at run time."""
    shape = shape_of(x)
    if shape is not None:
        return b.const(arange(shape[axis]))
    size = b.Gather(b.Shape(x), axis, axis=0)
    return b.Range(0, size, 1)


def eye_like(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite EyeLike of a static shape as a constant."""
    shape, dtype = shape_of(x_of(node)), node.outputs[0].dtype
    if shape is None or dtype is None:
        return None
    return b.Identity(np.eye(shape[0], shape[1], k=attributes(node)["k"]).astype(dtype.numpy()))


def pad(node: ir.Node, b: Builder) -> Value | None:
    """Pad with constants by concatenating blocks, with a Slice for negative amounts; other modes
    use lookups along each axis.
    """
    if (every := _pad_every_axis(node, b)) is not None:
        return every
    x, sizes, amounts = x_of(node), known_sizes(x_of(node)), known(node.inputs[1])
    given, mode = optional(node, 3), str(attributes(node)["mode"])
    filled = mode == "constant" and optional(node, 2) is not None
    value = constant(node.inputs[2]) if filled else np.array(0)
    chosen = np.arange(len(sizes or ())) if given is None else known(given)
    if sizes is None or amounts is None or chosen is None or value is None:
        return None
    if None in sizes and mode != "edge":
        return None
    axes = [int(a) % len(sizes) for a in chosen]
    for axis, before, after in zip(axes, *amounts.reshape(2, -1).tolist(), strict=True):
        if not before and not after:
            continue
        if mode == "constant":
            x = _between_blocks(b, x, axis, (before, after), value)
        elif (size := sizes[axis]) is not None:
            rows = arange(max(-before, 0), size - max(-after, 0))
            margins: Any = max(before, 0), max(after, 0)
            x = b.Gather(x, np.pad(rows, margins, mode), axis=axis)  # type: ignore[call-overload]
        else:
            x = _between_ends(b, x, axis, (before, after))
    return x if x is not node.inputs[0] else b.Identity(x)


def _between_ends(b: Builder, x: Value, axis: int, amounts: tuple[int, int]) -> Value:
    """Repeat the first and the last element of an axis of unknown size, which is sliced where
    amounts are negative.
    """
    before, after = amounts
    if before < 0 or after < 0:
        x = b.Slice(x, [max(-before, 0)], [min(after, 0) or END], [axis])
    parts: list[Value] = []
    for count, start, end in ((before, 0, 1), (after, -1, END)):
        repeats = [count if i == axis else 1 for i in range(rank_of(x) or 0)]
        ends = [b.Tile(b.Slice(x, [start], [end], [axis]), repeats)] if count > 0 else []
        parts += [*ends, x] if start == 0 else ends
    return b.Concat(*parts, axis=axis) if len(parts) > 1 else x


def _pad_every_axis(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite a Pad of some axes by computed amounts with amounts for all axes."""
    x, rank, axes = x_of(node), rank_of(x_of(node)), known(optional(node, 3))
    if axes is None or rank is None or constant(node.inputs[1]) is not None:
        return None
    amounts, zero = x_of(node, 1), b.const(np.zeros(1, np.int64))
    own, count = [int(a) % rank for a in axes], len(axes)
    positions = [own.index(i) if i in own else None for i in range(rank)]
    pieces = [
        zero if j is None else amounts[j + k : j + k + 1] for k in (0, count) for j in positions
    ]
    return b.Pad(x, b.Concat(*pieces, axis=0), node.inputs[2], mode=attributes(node)["mode"])


def _between_blocks(
    b: Builder, x: Value, axis: int, amounts: tuple[int, int], value: np.ndarray
) -> Value:
    """Concatenate blocks of one value before and after an axis, which is sliced where amounts are
    negative.
    """
    cut = [max(-n, 0) for n in amounts]
    if any(cut):
        x = b.Slice(x, [cut[0]], [static(x)[axis] - cut[1]], [axis])
    before, behind = (list(static(x)) for _ in amounts)
    before[axis], behind[axis] = (max(n, 0) for n in amounts)
    first, last = (np.full(size, value.reshape(()), array_type(x)) for size in (before, behind))
    parts: list[Any] = [*([first] if first.size else []), x, *([last] if last.size else [])]
    return b.Concat(*parts, axis=axis) if len(parts) > 1 else x


def concat(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite Concat of one input as Identity."""
    return b.Identity(x_of(node)) if len(node.inputs) == 1 else None


def compress(node: ir.Node, b: Builder) -> Value | None:
    """Look up the elements for which the condition is true; elements after its end are dropped."""
    condition, axis = constant(node.inputs[1]), attrs_of(node).get("axis")
    x = x_of(node) if axis is not None else b.Reshape(x_of(node), [-1])
    if condition is not None:
        return b.Gather(x, np.flatnonzero(condition), axis=axis or 0)
    positions = b.NonZero(b.Cast(node.inputs[1], to=ir.DataType.INT32))
    return b.Gather(x, b.Reshape(positions, [-1]), axis=axis or 0)


def reshape(node: ir.Node, b: Builder) -> Value | None:
    """Replace zeros, which copy a size of the operand, by entries of its shape."""
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
