"""Rewrites of operators that Core AI does not have, better than the common decompositions
(`converter/passes/decompositions`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.coreai.rules.fields import pad_ends_runtime
from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import Builder, Value, attributes, attrs_of, same_attrs
from converter.graph.catalogue.overlaps import corner_overlap, greedy, plain_corners
from converter.graph.infer import constant, known, rank_of, shape_of
from converter.graph.symbolic import sizes_in
from converter.graph.value import LOWEST, known_sizes, optional
from converter.graph.windows import halves, of_all_axes, overhang
from converter.passes.computed_sizes import flatten, gathered_slice, shape, size
from converter.passes.decompositions import DECOMPOSITIONS
from converter.passes.decompositions.activations import power_of_one_type, x_of
from converter.passes.decompositions.indexing import own_indices, strides_of
from converter.passes.decompositions.linear import bias_after
from converter.passes.decompositions.recurrent import looped, recurrent
from converter.passes.indices import cut_elements
from converter.passes.legalize import Rewrite, Rewrites, either
from converter.passes.transposed_windows import transposed

D = ir.DataType
_SMALL = (D.INT8, D.UINT8, D.INT16, D.UINT16)
_LINES = ("kernel_shape", "strides", "dilations", "output_padding", "output_shape")
_LEAST = np.iinfo(np.int64).min


# comparisons and rounding -------------------------------------------------------------------------


def or_equal(node: ir.Node, b: Builder) -> Value:
    """Compute "greater or equal" as "greater, or equal", since "not less" is wrong for NaN."""
    x, y = x_of(node), x_of(node, 1)
    if node.op_type == "LessOrEqual":
        x, y = y, x
    return b.Or(b.Greater(x, y), b.Equal(x, y))


def floor(node: ir.Node, b: Builder) -> Value:
    """Round to the nearest integer, and subtract 1 if that is larger than the number; infinities
    are preserved.
    """
    x = x_of(node)
    near = b.Round(x)
    if node.op_type == "Floor":
        return b.Where(b.Greater(near, x), near - 1.0, near)
    return b.Where(b.Greater(x, near), near + 1.0, near)


def sign(node: ir.Node, b: Builder) -> Value:
    """Rewrite Sign as comparisons; NaN stays NaN."""
    x = x_of(node)
    zero, one = b.like(x, 0), b.like(x, 1)
    if x.dtype is not None and x.dtype.is_integer() and not x.dtype.is_signed():
        return b.Where(b.Equal(x, zero), zero, one)
    below = b.Where(b.Greater(zero, x), b.like(x, -1), b.Where(b.Equal(x, zero), zero, x))
    return b.Where(b.Greater(x, zero), one, below)


def modulo(node: ir.Node, b: Builder) -> Value | None:
    """Compute the remainder with the sign of the divisor from the one with the sign of the
    dividend.
    """
    x, y = x_of(node), x_of(node, 1)
    if attributes(node)["fmod"]:
        return None
    rest = b.Mod(x, y, fmod=1)
    zero = b.like(x, 0)
    if x.dtype is not None and x.dtype.is_integer() and not x.dtype.is_signed():
        return rest
    differ = b.Xor(b.Greater(zero, rest), b.Greater(zero, y))
    return b.Where(b.And(differ, ~b.Equal(rest, zero)), rest + y, rest)


def computed_in(wide: ir.DataType, own: Callable[[ir.DataType], bool]) -> Rewrite:
    """Return a rewrite of an operator that casts data of the types `own` to another type for the
    computation.
    """

    def rewrite(node: ir.Node, b: Builder) -> Value | None:
        x = x_of(node)
        if x.dtype is None or not own(x.dtype):
            return None
        rest = [b.Cast(v, to=wide) if v is not None and v.dtype == x.dtype else v
                for v in node.inputs[1:]]  # fmt: skip
        y = b.op(node.op_type, b.Cast(x, to=wide), *rest, **attrs_of(node))
        return b.Cast(y, to=x.dtype) if node.outputs[0].dtype == x.dtype else y

    return rewrite


in_integers = computed_in(D.INT32, lambda dtype: dtype == D.BOOL)
# totals of integers: one that overflows ends the process of the runtime
wide_total = computed_in(D.INT64, lambda t: t.is_integer() and t not in (D.INT64, D.UINT64))
in_floats = computed_in(D.DOUBLE, lambda dtype: not dtype.is_floating_point())


# windows ------------------------------------------------------------------------------------------


def padded(node: ir.Node, b: Builder) -> Value | None:
    """Pad the image before a window, which has no padding in Core AI: with zeros for an average,
    with the lowest number for a maximum.
    """
    a, x = attributes(node), x_of(node)
    if len(node.outputs) > 1 and node.outputs[1].uses():
        return None
    axes = (rank_of(x) or 2) - 2
    found = _amounts(node, a, axes)
    if found is None or axes < 1:
        return None
    pads, more = found
    if not any(pads) and not any(more):
        return None
    kept = same_attrs(node, "pads", "auto_pad", "ceil_mode", "count_include_pad")
    kept = {k: v for k, v in kept.items() if k != "storage_order"}
    window: Callable[..., Value] = b.operator(node.op_type)
    whole = [p + m for p, m in zip(pads, more, strict=True)]
    dtype = x.dtype or D.FLOAT
    if node.op_type == "MaxPool":
        least = -math.inf if dtype.is_floating_point() else int(dtype.min)
        return window(b.Pad(x, of_all_axes(whole), b.like(x, least)), **kept)
    padding = b.like(x, 0)
    image = b.Pad(x, of_all_axes(whole), padding)
    if node.op_type == "Conv":
        return window(image, *node.inputs[1:], **kept)
    mean = window(image, **kept)
    if a["count_include_pad"] and not any(more):
        return mean
    return mean / window(_counted(x, pads, more, a["count_include_pad"], b), **kept)


def _counted(x: Value, pads: list[int], more: list[int], include: int, b: Builder) -> Value:
    """Return an image of one channel with 1 for each element that counts in an average, and 0 in
    the padding that does not.
    """
    sizes = known_sizes(x) or []
    if None in sizes[2:]:
        ones = b.Expand(b.like(x, 1), b.Concat([1, 1], b.Shape(x)[2:], axis=0))
        inner = b.Pad(ones, of_all_axes(pads), b.like(x, include))
        return b.Pad(inner, of_all_axes(more), b.like(x, 0))
    array = np.ones([1, 1, *(n or 0 for n in sizes[2:])], (x.dtype or D.FLOAT).numpy())
    for amounts, value in ((pads, include), (more, 0)):
        pairs = np.array(of_all_axes(amounts)).reshape(2, -1).T
        array = np.pad(array, pairs, constant_values=value)
    return b.const(array)


def _amounts(node: ir.Node, a: dict[str, Any], axes: int) -> tuple[list[int], list[int]] | None:
    """Return the padding of the operator, and the amount by which the last windows extend beyond
    it.
    """
    scheme, none = a.get("auto_pad", "NOTSET"), [0] * (2 * axes)
    given = [int(p) for p in a.get("pads") or none] if scheme == "NOTSET" else none
    if scheme in ("NOTSET", "VALID") and not a.get("ceil_mode", 0):
        return given, none
    sizes, out = shape_of(x_of(node)), shape_of(node.outputs[0])
    kernel = a.get("kernel_shape") or (shape_of(x_of(node, 1)) or ())[2:]
    if sizes is None or out is None or not kernel:
        return None
    lines = [list(a.get(k) or [1] * axes) for k in ("strides", "dilations")]
    each = zip(sizes[2:], kernel, *lines, out[2:], strict=True)
    totals = [overhang(*axis) for axis in each]
    if scheme in ("SAME_UPPER", "SAME_LOWER"):
        return halves(totals, scheme == "SAME_UPPER"), none
    begins, ends = given[:axes], given[axes:]
    left = [max(0, t - p - q) for t, p, q in zip(totals, begins, ends, strict=True)]
    return given, [*[0] * axes, *left]


def one_axis(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite a window over one axis as one over an image of height 1."""
    if rank_of(x_of(node)) != 3 or (len(node.outputs) > 1 and node.outputs[1].uses()):
        return None
    a, rest = attrs_of(node), list(node.inputs[1:])
    a |= {k: [int(k != "output_padding"), *a[k]] for k in _LINES if a.get(k)}
    if a.get("pads"):
        a["pads"] = [0, a["pads"][0], 0, a["pads"][1]]
    if rest and rest[0] is not None and node.op_type.startswith("Conv"):
        rest[0] = b.Unsqueeze(rest[0], [2])
    return b.Squeeze(b.op(node.op_type, b.Unsqueeze(x_of(node), [2]), *rest, **a), [2])


# positions ----------------------------------------------------------------------------------------


def gather(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite Gather: one index is a slice; several select rows of the operand with that axis
    first.
    """
    x, index = x_of(node), x_of(node, 1)
    rank, depth = rank_of(x), rank_of(index)
    if rank is None or depth is None or 0 in (known_sizes(index) or []):
        return None
    axis, number = int(attributes(node)["axis"]) % rank, constant(index)
    if number is not None and not depth:
        i = int(number)
        part = b.Slice(x, [i], [i + 1 if i != -1 else np.iinfo(np.int64).max], [axis])
        return b.Squeeze(part, [axis])
    order = [axis, *(i for i in range(rank) if i != axis)]
    rows = x if not axis else b.Transpose(x, perm=order)
    y = b.GatherND(rows, b.Unsqueeze(b.Cast(index, to=D.INT64), [-1]))
    if not axis:
        return y
    own, rest = list(range(depth)), list(range(depth, depth + rank - 1))
    return b.Transpose(y, perm=[*rest[:axis], *own, *rest[axis:]])


def backwards(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite a Slice with negative steps: select the elements in ascending order, then reverse the
    axes.
    """
    x, sizes = x_of(node), known_sizes(x_of(node))
    found = [known(optional(node, i)) for i in range(1, 5)]
    if sizes is None or found[3] is None or found[0] is None or found[1] is None:
        return None
    axes = range(len(found[0])) if found[2] is None else found[2]
    parts: list[list[int]] = []
    reversed_axes = []
    for start, end, axis, step in zip(found[0], found[1], axes, found[3], strict=True):
        place = int(axis) % len(sizes)
        n = sizes[place]
        if step < 0:
            if n is None:
                return None
            chosen = range(n)[int(start) : int(end) : int(step)]
            first, last = (chosen[-1], chosen[0] + 1) if chosen else (0, 0)
            parts.append([first, last, place, -int(step)])
            reversed_axes.append(place)
        else:
            parts.append([int(start), int(end), place, int(step)])
    if not reversed_axes:
        return None
    y = b.Slice(x, *(list(line) for line in zip(*parts, strict=True)))
    many = len(reversed_axes)
    return b.Slice(y, [-1] * many, [_LEAST] * many, reversed_axes, [-1] * many)


def slice_of_all(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite a Slice of computed axes: compute bounds for all axes, the full range for those that
    are not sliced.
    """
    x, rank = x_of(node), rank_of(x_of(node))
    axes, steps = optional(node, 3), known(optional(node, 4))
    if rank is None or axes is None or known(axes) is not None:
        return None
    if optional(node, 4) is not None and (steps is None or (steps != 1).any()):
        return None
    index = b.Cast(axes, to=D.INT64)
    index = b.Where(b.Greater(b.const(np.int64(0)), index), index + rank, index)
    whole = ([0] * rank, [np.iinfo(np.int64).max] * rank)
    given = [b.Cast(x_of(node, i), to=D.INT64) for i in (1, 2)]
    lines = [
        b.ScatterElements(b.const(np.array(w, np.int64)), index, g, axis=0)
        for w, g in zip(whole, given, strict=True)
    ]
    return b.Slice(x, *lines, list(range(rank)))


def picked_slice(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite a Slice with computed steps, or with negative steps between computed bounds, as a
    Gather of positions.
    """
    x, rank, axes = x_of(node), rank_of(x_of(node)), known(optional(node, 3))
    count = known_sizes(optional(node, 1))
    if rank is None or not count or count[0] is None or (axes is None and optional(node, 3)):
        return None
    own = list(range(count[0])) if axes is None else [int(a) % rank for a in axes]
    made = gathered_slice(node, b, own)
    return made if made is not x else None


def squeeze(node: ir.Node, b: Builder) -> Value | None:
    """Remove axes whose size is not known to be 1 by a reshape."""
    x, rank = x_of(node), rank_of(x_of(node))
    given, sizes = known(optional(node, 1)), known_sizes(x_of(node))
    if rank is None or sizes is None:
        return None
    if 0 in sizes:
        out = shape_of(node.outputs[0])
        return None if out is None else b.Reshape(x, list(out), allowzero=1)
    if given is None or node.op_type == "Unsqueeze":
        return None
    axes = {int(a) % rank for a in given}
    kept = [b.Shape(x)[i : i + 1] for i in range(rank) if i not in axes]
    return b.Reshape(x, b.Concat(*kept, axis=0) if kept else [])


def _joined(node: ir.Node, b: Builder) -> Value:
    """Rewrite Pad as one Concat for each axis, of the padding before, the operand, and the padding
    after.
    """
    x, given = x_of(node), b.Cast(x_of(node, 1), to=D.INT64)
    rank, amounts = rank_of(x) or 0, sizes_in(node.inputs[1]) or []
    value = optional(node, 2)
    fill = b.like(x, 0) if value is None else b.Reshape(value, [1] * rank)
    for axis in range(rank):
        ends = [axis, axis + rank]
        if [amounts[i] for i in ends if i < len(amounts)] == [0, 0]:
            continue
        own = b.Shape(x)
        sizes = [b.Concat(own[:axis], given[i : i + 1], own[axis + 1 :], axis=0) for i in ends]
        before, after = (b.Expand(fill, s) for s in sizes)
        x = b.Concat(before, x, after, axis=axis)
    return x


def pad(node: ir.Node, b: Builder) -> Value | None:
    """Use amounts for all axes; elements that a Pad removes are sliced off before."""
    x, rank, mode = x_of(node), rank_of(x_of(node)), attributes(node)["mode"]
    axes, amounts = known(optional(node, 3)), constant(optional(node, 1))
    if rank is None or (axes is None and optional(node, 3) is not None):
        return None
    own = list(range(rank)) if axes is None else [int(i) % rank for i in axes]
    sizes = known_sizes(x) or [None] * rank
    if mode == "constant" and own == list(range(rank)) and pad_ends_runtime(sizes, amounts is None):
        return _joined(node, b)
    if amounts is None:
        if own == list(range(rank)):
            return None
        zero, given, count = b.const([0]), b.Cast(x_of(node, 1), to=D.INT64), len(own)
        pieces = [
            given[own.index(i) + k : own.index(i) + k + 1] if i in own else zero
            for k in (0, count)
            for i in range(rank)
        ]
        return b.Pad(x, b.Concat(*pieces, axis=0), optional(node, 2), mode=mode)
    whole = np.zeros((2, rank), np.int64)
    whole[:, own] = amounts.reshape(2, -1)
    cut = np.minimum(whole, 0)
    if cut.any():
        ends = [int(n) or np.iinfo(np.int64).max for n in cut[1]]
        x = b.Slice(x, (-cut[0]).tolist(), ends, list(range(rank)))
    elif axes is None:
        return None
    return b.Pad(x, np.maximum(whole, 0).reshape(-1), optional(node, 2), mode=mode)


def scattered(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite a ScatterND that combines elements as one along the flattened operand."""
    x, index, updates = x_of(node), x_of(node, 1), x_of(node, 2)
    reduction = attributes(node)["reduction"]
    sizes, depth = shape_of(x), (known_sizes(index) or [None])[-1]
    if reduction == "none":
        return _in_rows(node, b)
    if sizes is None or depth is None or shape_of(index) is None:
        return None
    rest = math.prod(sizes[depth:])
    extents = np.array(sizes[:depth], np.int64)
    index = b.Cast(index, to=D.INT64)
    index = b.Where(b.Greater(b.const(np.int64(0)), index), index + extents, index)
    steps = np.array(strides_of(sizes)[:depth], np.int64)
    first = b.ReduceSum(index * steps, np.array([-1]), keepdims=0)
    each = b.Reshape(first, [-1, 1]) + np.arange(rest, dtype=np.int64)[None]
    return _in_a_line(b, x, each, updates, reduction)


def _in_a_line(b: Builder, x: Value, index: Value, updates: Value, reduction: str) -> Value:
    """Scatter to elements by their index in the flattened operand."""
    operands = (b.Reshape(v, [-1]) for v in (x, index, updates))
    made = b.ScatterElements(*operands, axis=0, reduction=reduction)
    return b.Reshape(made, list(shape_of(x) or ()))


def scattered_elements(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite a ScatterElements with fewer indices along other axes as one along the flattened
    operand.
    """
    x, index, updates = x_of(node), x_of(node, 1), x_of(node, 2)
    sizes, places, a = shape_of(x), shape_of(index), attributes(node)
    if sizes is None or places is None:
        return None
    axis, steps = int(a["axis"]) % len(sizes), strides_of(sizes)
    index = b.Cast(index, to=D.INT64)
    index = b.Where(b.Greater(b.const(np.int64(0)), index), index + sizes[axis], index)
    own = np.broadcast_to(own_indices(places, steps, axis), places)
    each = index * steps[axis] + b.const(np.asarray(own, np.int64))
    return _in_a_line(b, x, each, updates, a["reduction"])


def _in_rows(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite a ScatterElements along the last axis, with the indices as rows."""
    x, index, updates = x_of(node), x_of(node, 1), x_of(node, 2)
    own, depth, rank = known_sizes(x), (known_sizes(index) or [None])[-1], rank_of(index)
    if own is None or depth is None or rank is None or rank <= 2:
        return None
    rows = b.Reshape(index, [-1, depth])
    tail = b.Shape(x)[depth:] if depth < len(own) else b.const(np.zeros(0, np.int64))
    return b.ScatterND(x, rows, b.Reshape(updates, b.Concat([-1], tail, axis=0)))


def reduced(node: ir.Node, b: Builder) -> Any:
    """Rewrite a reduction over no elements as the constant that ONNX defines, and one over no axes
    as an operation on each element.
    """
    x, sizes, out = x_of(node), known_sizes(x_of(node)), shape_of(node.outputs[0])
    if sizes is None or 0 not in sizes or out is None:
        return in_integers(node, b) or (
            in_floats(node, b) if node.op_type == "ReduceMean" else None
        )
    dtype = (x.dtype or D.FLOAT).numpy()
    ends = (
        [-np.inf, np.inf] if dtype.kind not in "iu" else [np.iinfo(dtype).min, np.iinfo(dtype).max]
    )
    empty = {"ReduceSum": 0, "ReduceProd": 1, "ReduceMax": ends[0], "ReduceMin": ends[1]}
    value = empty.get(node.op_type, np.nan)
    return b.Expand(b.const(np.array(value, dtype)), list(out))


def last_of_equals(node: ir.Node, b: Builder) -> Value | None:
    """Select the last of equal elements: the first one from the end."""
    x, a = x_of(node), attrs_of(node)
    rank = rank_of(x)
    if not a.get("select_last_index") or rank is None:
        return None
    axis = int(a.get("axis", 0)) % rank
    reversed_axes = b.Slice(x, [-1], [_LEAST], [axis], [-1])
    first = b.op(node.op_type, reversed_axes, **{**a, "select_last_index": 0})
    length = b.Shape(x)[axis : axis + 1] - 1
    return b.Reshape(length, []) - first


def repeated(node: ir.Node, b: Builder) -> Value | None:
    """Repeat the elements of an image of dynamic size by integer factors."""
    x, a, factors = x_of(node), attributes(node), constant(optional(node, 2))
    rank, rule = rank_of(x), a["coordinate_transformation_mode"]
    nearest = a["mode"] == "nearest" and (
        rule == "half_pixel" or (rule == "asymmetric" and a["nearest_mode"] == "floor")
    )
    if factors is None or rank is None or not nearest or shape_of(x) is not None:
        return None
    axes = [int(i) % rank for i in a.get("axes") or range(rank)]
    if len(factors) != len(axes) or (factors < 1).any() or (factors % 1).any():
        return None
    counts = np.ones(rank, np.int64)
    counts[axes] = factors.astype(np.int64)
    after = [2 * i + 1 for i in range(rank)]
    line = np.stack([np.ones(rank, np.int64), counts], 1).reshape(-1)
    return b.Reshape(b.Tile(b.Unsqueeze(x, after), line), b.Shape(x) * counts)


# boxes --------------------------------------------------------------------------------------------


def suppression_mask(node: ir.Node, b: Builder) -> Value:
    """Decide for one box after the other, in descending order of score, in a loop."""
    boxes, scores, iou = (x_of(node, i) for i in range(3))
    size = b.Shape(scores)
    count = size[2:3]
    corners = plain_corners(b, boxes, bool(attributes(node).get("center_point_box", 0)))
    values, order = b.TopK(scores, count, axis=2, largest=1, sorted=1, outputs=2)
    shape = b.Concat(size, [4], axis=0)
    chosen = b.GatherElements(
        b.Expand(b.Unsqueeze(corners, [1]), shape), b.Expand(b.Unsqueeze(order, [3]), shape), axis=2
    )
    groups = b.Concat([-1], count, [4], axis=0)
    usable = b.Reshape(b.Greater(values, b.like(values, LOWEST)), b.Concat([-1], count, axis=0))
    limit = b.Reshape(iou, [1, 1])
    stays = greedy(b, b.Reshape(chosen, groups), usable, corner_overlap(0.0), limit)
    none = b.Expand(b.const(np.array(False)), size)
    return b.ScatterElements(none, order, b.Reshape(stays, size), axis=2)


def suppress(node: ir.Node, b: Builder) -> Value | None:
    """Return the rows (image, class, box) of the boxes that remain after suppression, those of each
    class in descending order of score.
    """
    boxes, scores, most = x_of(node), x_of(node, 1), optional(node, 2)
    if most is None:
        return None
    iou = optional(node, 3) or b.const(np.float32(0))
    least = optional(node, 4)
    high = scores
    if least is not None:
        real = b.Greater(scores, b.Reshape(least, []))
        high = b.Where(real, scores, b.like(scores, -np.inf))
    centered = attributes(node)["center_point_box"]
    mask = b.SuppressionMask(boxes, high, b.Reshape(iou, [1]), center_point_box=centered)
    key = b.Where(mask, high, b.like(scores, -np.inf))
    limit = b.Min(b.Shape(scores)[2:3], b.Max(b.Reshape(most, [1]), b.const([0])))
    values, places = b.TopK(key, limit, axis=2, largest=1, sorted=1, outputs=2)
    rows = b.Transpose(b.NonZero(b.Greater(values, b.like(values, -np.inf))), perm=[1, 0])
    found = b.Unsqueeze(b.GatherND(places, rows), [1])
    return b.Concat(rows[:, :2], found, axis=1)


def _after(own: Rewrite, name: str) -> Rewrite:
    """Return the rewrite that tries the target's own one first, then the common decomposition."""
    return either(own, DECOMPOSITIONS["", name])


def _chain(*rewrites: Rewrite) -> Rewrite:
    return reduce(either, rewrites)


REWRITES: Rewrites = {
    ("", "Less"): lambda node, b: b.Greater(x_of(node, 1), x_of(node)),
    **{("", n): or_equal for n in ("LessOrEqual", "GreaterOrEqual")},
    **{("", n): floor for n in ("Floor", "Ceil")},
    ("", "Sign"): sign,
    ("", "Mod"): modulo,
    ("", "Neg"): lambda node, b: x_of(node) * -1,
    ("", "CumSum"): wide_total,
    ("", "Pow"): either(power_of_one_type, in_floats),
    **{("", n): in_floats for n in ("Sqrt", "Exp", "Log", "Softmax")},
    **{("", n): in_integers for n in ("Add", "Mul", "Sub", "Abs", "ArgMax", "TopK")},
    **{("", n): _after(in_integers, n) for n in ("Max", "Min")},
    **{("", n): reduced for n in ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin")},
    ("", "ReduceMean"): reduced,
    ("", "ArgMax"): _chain(last_of_equals, in_integers),
    ("", "ArgMin"): _after(last_of_equals, "ArgMin"),
    ("", "Conv"): _chain(padded, bias_after, one_axis),
    ("", "ConvTranspose"): _chain(bias_after, one_axis, transposed),
    ("", "MaxPool"): _chain(padded, one_axis),
    ("", "AveragePool"): _chain(in_floats, padded, one_axis),
    ("", "MatMul"): wide_total,
    ("", "Gather"): gather,
    ("", "Slice"): _chain(backwards, slice_of_all, picked_slice),
    ("", "Squeeze"): squeeze,
    ("", "Unsqueeze"): squeeze,
    ("", "Pad"): pad,
    ("", "ScatterND"): scattered,
    ("", "Resize"): repeated,
    ("", "GatherElements"): cut_elements,
    ("", "ScatterElements"): scattered_elements,
    ("", "Flatten"): flatten,
    ("", "Shape"): shape,
    ("", "Size"): size,
    ("", "NonMaxSuppression"): suppress,
    (EXTENSION_DOMAIN, "SuppressionMask"): suppression_mask,
    **{("", n): either(recurrent, looped) for n in ("LSTM", "GRU", "RNN")},
}
