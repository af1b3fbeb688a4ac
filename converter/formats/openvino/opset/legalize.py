"""Rewrites of canonical operators for the opsets that have no row.

Other operators are left to the common decompositions and to the bodies of extension operators; each
rewrite states its advantage over them.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.fields import dim
from converter.formats.openvino.opset.rules.elementwise import compared_extreme
from converter.formats.openvino.opset.rules.fields import RESIZED_AT_ONCE
from converter.graph.build import Builder, Value, attrs_of
from converter.graph.infer import known, rank_of, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.sizes import arange
from converter.graph.value import operands, optional
from converter.passes.decompositions.activations import x_of
from converter.passes.decompositions.bitwise import BITS, by_digits
from converter.passes.decompositions.recurrent import looped
from converter.passes.legalize import Rewrites
from converter.passes.small_types import FLOATS

T = ir.DataType


def bias_apart(node: ir.Node, b: Builder) -> Value | None:
    """Separate the bias of a convolution, which the opsets do not have."""
    bias, rank = optional(node, 2), rank_of(x_of(node, 1))
    if bias is None or rank is None:
        return None
    shape, tensor = [1, -1, *[1] * (rank - 2)], bias.const_value
    plain = tensor is not None and tensor.numpy().reshape(shape)
    added = b.Reshape(bias, shape) if tensor is None else b.const(plain, str(bias.name))
    y: Value = b.operator(node.op_type)(*node.inputs[:2], **attrs_of(node))
    return y + added


def gather_elements(node: ir.Node, b: Builder) -> Value | None:
    """The opsets want data and indices of the same sizes but along the axis, which may be dynamic.

    The data are cropped by Gather: the runtime removes a Slice before GatherElements, and then
    rejects the sizes.
    """
    x, indices = x_of(node), x_of(node, 1)
    if indices.shape is None or x.shape is None:
        return None
    axis = attrs_of(node).get("axis", 0) % len(x.shape)
    for i, (size, whole) in enumerate(zip(indices.shape, x.shape, strict=True)):
        if i != axis and isinstance(size, int) and size != whole:
            x = b.Gather(x, arange(size), axis=i)
    return b.GatherElements(x, indices, axis=axis)


def bitwise(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite bitwise operators before opset 13, by digits of 32 bits.

    The runtime has no unsigned numbers to take negative ones apart in, and computes in 32 bits.
    """
    return by_digits(node, b) if x_of(node).dtype in (T.INT32, T.INT64) else None


def resize_in_steps(node: ir.Node, b: Builder) -> Value | None:
    """Resize more axes than the runtime supports at once: the last ones first, then the others."""
    x, attrs, (_, _, scales, sizes) = x_of(node), attrs_of(node), operands(node, 4)
    shape, rank, wanted = shape_of(x), rank_of(x), known(scales if sizes is None else sizes)
    if attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch" or rank not in RESIZED_AT_ONCE:
        return None
    axes = [a % rank for a in attrs.get("axes") or range(rank)]
    if wanted is None or shape is None or wanted.size != len(axes):
        return None
    same = [1] * len(axes) if sizes is None else [shape[a] for a in axes]
    changed = [i for i, (n, v) in enumerate(zip(same, wanted, strict=True)) if v != n]
    most = RESIZED_AT_ONCE[rank]
    if len(changed) <= most:
        return None
    for part in (changed[-most:], changed[:-most]):
        target = [wanted[part]] if sizes is None else [None, wanted[part]]
        x = b.Resize(x, None, *target, **{**attrs, "axes": [axes[i] for i in part]})
    return x


def blocks_last(node: ir.Node, b: Builder) -> Value | None:
    """Keep constant weights in blocks whose blocks are along an axis other than the last.

    The axis is moved to the end, and back afterwards.
    """
    a, n, given = (
        attrs_of(node),
        rank_of(node.outputs[0]),
        [v for v in node.inputs if v is not None],
    )
    tensors = [v.const_value for v in given]
    if not a.get("block_size", 0) or not n or any(t is None or len(t.shape) != n for t in tensors):
        return None
    axis = a.get("axis", 1) % n
    if axis == n - 1:
        return None
    order = [*(i for i in range(n) if i != axis), axis]
    moved = (
        b.const(
            LazyTensor.of(t).derived(
                lambda array: array.transpose(order), shape=[t.shape.numpy()[i] for i in order]
            ),
            str(t.name),
        )
        for t in tensors
        if t is not None
    )
    y = b.DequantizeLinear(*moved, axis=n - 1, block_size=a["block_size"])
    return b.Transpose(y, perm=[order.index(i) for i in range(n)])


def top_k(node: ir.Node, b: Builder) -> list[Value] | None:
    """Rewrite a TopK before opset 11, which does not order equal elements (`sorted=0`: arbitrary
    order).

    All elements are sorted; each gets the number of its group of equal elements times their count,
    plus its index, as a unique key. The smallest keys give the indices in order.
    """
    x, k, a, rank = x_of(node), node.inputs[1], attrs_of(node), rank_of(node.outputs[0])
    if rank is None:
        return None
    axis = a.get("axis", -1) % rank
    count = dim(x, axis) or 1
    if (2**31 // count) ** 2 < count:
        return None  # two digits are not enough
    size = b.Shape(x)[axis : axis + 1]
    values, positions = b.TopK(x, size, axis=axis, largest=a.get("largest", 1), sorted=0, outputs=2)
    before, behind = b.Slice(values, [0], [-1], [axis]), b.Slice(values, [1], [_FAR], [axis])
    new = b.Cast(~b.Equal(before, behind), to=T.INT64)
    first = [int(i == axis) for i in range(rank)]
    group = b.CumSum(b.Pad(new, [*first, *[0] * rank], b.like(new, 0)), axis)
    if count > MOST_KEYS:
        found = _sort_in_steps(b, group, positions, count, axis)
        return [b.Slice(v, [0], k, [axis]) for v in (values, found)]
    keys = b.TopK(group * size + positions, k, axis=axis, largest=0, sorted=0, outputs=2)[0]
    return [b.Slice(values, [0], k, [axis]), keys % size]


def _sort_in_steps(b: Builder, group: Value, positions: Value, size: int, axis: int) -> Value:
    """Sort indices by group, then by index, for keys of more than 32 bits: sort by index, by the
    low digit of the group, and by the high one, each key combined with the previous order.
    """

    def sort(keys: Value) -> Value:
        order: Value = b.TopK(keys, [size], axis=axis, largest=0, sorted=0, outputs=2)[1]
        return order

    base, rank = 2**31 // size, rank_of(positions) or 1
    steps = b.Reshape(np.arange(size), [-1] + [1] * (rank - axis - 1))
    order = sort(positions)
    for digit in (group % np.int64(base), group / np.int64(base)):
        keys = b.GatherElements(digit, order, axis=axis) * np.int64(size) + steps
        order = b.GatherElements(order, sort(keys), axis=axis)
    found: Value = b.GatherElements(positions, order, axis=axis)
    return found


def first_best_index(node: ir.Node, b: Builder) -> Value | None:
    """Return the smallest index of the largest element; before opset 11, TopK may return any of
    several equal elements.
    """
    x, a, rank = x_of(node), attrs_of(node), rank_of(x_of(node))
    if rank is None:
        return None
    axis, last = a.get("axis", 0) % rank, a.get("select_last_index", 0)
    best = b.operator("ReduceMax" if node.op_type == "ArgMax" else "ReduceMin")(x, [axis])
    size = b.Gather(b.Shape(x), axis, axis=0)
    count = b.Reshape(b.Range(0, size, 1), [-1] + [1] * (rank - axis - 1))
    positions = b.Where(b.Equal(x, best), count, b.like(count, 0) if last else size - 1)
    pick = b.operator("ReduceMax" if last else "ReduceMin")
    found: Value = pick(positions, [axis], keepdims=a.get("keepdims", 1))
    return found


def all_infinite(node: ir.Node, b: Builder) -> Value | None:
    """Return whether the largest number is minus infinity: whether all numbers are."""
    a = attrs_of(node)
    found = compared_extreme(node.op_type, node.inputs, a)
    if found is None:
        return None
    reduced, infinity = found
    whether = b.Equal(x_of(reduced), b.like(x_of(reduced), infinity))
    hidden: Value = b.ReduceMin(whether, *reduced.inputs[1:], **attrs_of(reduced))
    return hidden


def scalar_as_is(node: ir.Node, b: Builder) -> Value | None:
    """Remove a Tile, Pad or Expand of a scalar to a scalar."""
    return b.Identity(x_of(node)) if rank_of(node.outputs[0]) == 0 else None


MOST_KEYS = 46340  # its square is the largest in 32 bits
_FAR = 1 << 30  # to the end


def by_integers(node: ir.Node, b: Builder) -> Value | None:
    """Compute the maximum or minimum of booleans along computed axes as integers."""
    x = x_of(node)
    if x.dtype != ir.DataType.BOOL:
        return None
    reduced = b.operator(node.op_type)
    whole = reduced(b.Cast(x, to=ir.DataType.INT32), *node.inputs[1:], **attrs_of(node))
    return b.Cast(whole, to=ir.DataType.BOOL)


def in_bounds(node: ir.Node, b: Builder) -> Value | None:
    """Clamp numbers to the range of an 8-bit type before a Cast; NaN stays NaN."""
    to = node.outputs[0].dtype
    if to not in FLOATS:
        return None
    x = x_of(node)
    x = (
        x
        if x.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16)
        else b.Cast(x, to=ir.DataType.FLOAT)
    )
    limit = b.like(x, FLOATS[to][2])
    bounded = b.Where(b.IsNaN(x), x, b.Max(b.Min(x, limit), -limit))
    return b.Cast(bounded, to=to, saturate=0)


REWRITES: Rewrites = {
    ("", "Cast"): in_bounds,
    **{("", name): by_integers for name in ("ReduceMax", "ReduceMin")},
    ("", "TopK"): top_k,
    **{("", name): first_best_index for name in ("ArgMax", "ArgMin")},
    ("", "DequantizeLinear"): blocks_last,
    ("", "Resize"): resize_in_steps,
    **{("", name): bitwise for name in BITS},
    ("", "GatherElements"): gather_elements,
    **{("", name): all_infinite for name in ("Equal", "IsInf")},
    **{("", name): scalar_as_is for name in ("Expand", "Tile", "Pad")},
    # features that LSTMSequence lacks (peepholes, coupled gates), for any number of time steps
    ("", "LSTM"): looped,
    **{("", name): bias_apart for name in ("Conv", "ConvTranspose")},
}
