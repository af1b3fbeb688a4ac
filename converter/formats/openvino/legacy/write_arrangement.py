"""Canonical operators that move, cut, join and look up elements -> legacy layers."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.legacy.access import kind_before
from converter.formats.openvino.legacy.register import lowers
from converter.formats.openvino.legacy.types import COMPARISONS, LOGIC
from converter.formats.openvino.legacy.writing import const, csv, finish, ints, ints_of, is_float, need, reshaped, scalar_of, static, step, widened
from converter.graph.infer import constant, known
from converter.graph.sizes import arange
from converter.mapping.codecs import number_text
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node
from converter.passes import indices


@lowers("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def lower_reshape(node: Node, low: Lowering) -> None:
    """All are the static shape of the result; what was a layer of another name before stays one."""
    x, out = need(node, 0), node.outputs[0]
    before, after = static(x), static(out)
    kind = kind_before(out)
    places = {"Unsqueeze": _extra(before, after), "Squeeze": _extra(after, before)}.get(kind)
    if places:
        low.add(kind, [x, ints(low, places)], [out])
    elif kind == "Flatten" and after == [before[0], math.prod(before[1:])]:
        low.add(kind, [x], [out], {"axis": "1", "end_axis": "-1"})
    else:
        finish(low, x, out)


def _extra(few: list[int], many: list[int]) -> list[int]:
    """The axes of length 1 that `many` has besides those of `few`; none where that is not all there is between them."""
    found, left = [], list(few)
    for axis, size in enumerate(many):
        if left and left[0] == size:
            left.pop(0)
        elif size == 1:
            found.append(axis)
        else:
            return []
    return [] if left else found


@lowers("Transpose")
def lower_transpose(node: Node, low: Lowering) -> None:
    x, out = need(node, 0), node.outputs[0]
    order = list(node.attrs.get("perm") or range(len(static(x)))[::-1])
    if len(order) < 2:
        finish(low, x, out)  # a Permute of one axis gives memory that nobody wrote
    else:
        low.add("Permute", [x], [out], {"order": csv(order)})


@lowers("Concat")
def lower_concat(node: Node, low: Lowering) -> None:
    parts = [v for v in node.inputs if v is not None]
    low.add("Concat", parts, node.outputs, {"axis": str(node.attrs["axis"] % len(static(node.outputs[0])))})


@lowers("Split")
def lower_split(node: Node, low: Lowering) -> None:
    """Equal pieces are Split, others Slice; one piece is nothing at all. The ports have the sizes."""
    x = need(node, 0)
    axis = node.attrs.get("axis", 0) % len(static(x))
    sizes = [static(o)[axis] for o in node.outputs]
    if len(sizes) == 1:
        finish(low, x, node.outputs[0])
    elif not all(o.uses() or o.is_graph_output() for o in node.outputs):  # an unused port would become an output of the net
        starts = np.cumsum([0, *sizes])
        for out, start in zip(node.outputs, starts, strict=False):
            if out.uses() or out.is_graph_output():
                cut(low, x, out, {axis: int(start)})
    elif len(set(sizes)) == 1 or kind_before(node.outputs[0]) == "Split":
        low.add("Split", [x], node.outputs, {"axis": str(axis), "num_split": str(len(sizes))})
    else:
        low.add("Slice", [x], node.outputs, {"axis": str(axis)})


@lowers("Slice")
def lower_slice(node: Node, low: Lowering) -> None:
    """Crop with offset and length; StridedSlice where a step is not 1."""
    x, out = need(node, 0), node.outputs[0]
    size, lengths = static(x), static(out)
    starts = ints_of(node, 1, "starts")
    axes = ints_of(node, 3, "axes") if node.input(3) is not None else list(range(len(starts)))
    axes = [a % len(size) for a in axes]
    steps = ints_of(node, 4, "steps") if node.input(4) is not None else [1] * len(starts)
    first = {a: range(size[a])[slice(s, None, st)][0] if lengths[a] else 0 for a, s, st in zip(axes, starts, steps, strict=True)}
    if all(s == 1 for s in steps):
        cut(low, x, out, {a: first[a] for a in axes if size[a] != lengths[a]} or {axes[0]: first[axes[0]]})
    else:
        strided(low, x, out, first, dict(zip(axes, steps, strict=True)))


def cut(low: Lowering, x: ir.Value, out: ir.Value, starts: Mapping[int, int]) -> None:
    """As much as `out` has from each of the starts on; Crop knows tensors of 2, 4 and 5 axes."""
    lengths = static(out)
    if len(lengths) in (2, 4, 5):
        low.add("Crop", [x], [out], {"axis": csv(list(starts)), "offset": csv(list(starts.values())), "dim": csv([lengths[a] for a in starts])})
    else:
        strided(low, x, out, starts, dict.fromkeys(starts, 1))


def strided(low: Lowering, x: ir.Value, out: ir.Value, first: Mapping[int, int], pace: Mapping[int, int]) -> None:
    size, lengths = static(x), static(out)
    begin = [first.get(a, 0) for a in range(len(size))]
    stride = [pace.get(a, 1) for a in range(len(size))]
    end, mask = [], []
    for a, (b, s, n) in enumerate(zip(begin, stride, lengths, strict=True)):
        last = b + s * n
        mask.append(0 if last < 0 or a not in pace else 1)  # there is no number for "before the first element"
        end.append(max(last, 0) if mask[-1] else 0)
    attrs = {"begin_mask": csv([1 if a in pace else 0 for a in range(len(size))]), "end_mask": csv(mask)}
    attrs |= {k: csv([0] * len(size)) for k in ("new_axis_mask", "shrink_axis_mask", "ellipsis_mask")}
    low.add("StridedSlice", [x, ints(low, begin), ints(low, end), ints(low, stride)], [out], attrs)


@lowers("Tile")
def lower_tile(node: Node, low: Lowering) -> None:
    """One layer for each axis that is repeated; tensors of more than five axes as rows, one for each place in front of that axis."""
    x, out = need(node, 0), node.outputs[0]
    repeats = [(a, r) for a, r in enumerate(ints_of(node, 1, "repeats")) if r != 1]
    shape = static(x)
    if not repeats:
        finish(low, x, out)
        return
    for i, (axis, count) in enumerate(repeats):
        shape = [n * count if a == axis else n for a, n in enumerate(shape)]
        attrs = {"axis": str(axis), "tiles": str(count)}
        if len(shape) > 5:
            rows = math.prod(shape[:axis])
            attrs["axis"] = "1"
            x = reshaped(low, x, [rows, math.prod(shape[axis:]) // count])
            x = reshaped(low, step(low, "Tile", [x], out, [rows, math.prod(shape[axis:])], attrs), shape)
            if i == len(repeats) - 1:
                finish(low, x, out)
        elif i == len(repeats) - 1:
            low.add("Tile", [x], [out], attrs)
        else:
            x = step(low, "Tile", [x], out, shape, attrs)


@lowers("Expand")
def lower_expand(node: Node, low: Lowering) -> None:
    x, out = need(node, 0), node.outputs[0]
    shape = static(out)
    wide = widened(low, x, len(shape))
    if static(wide) == shape:
        finish(low, x, out)
    else:
        low.add("Broadcast", [wide, ints(low, shape)], [out])


@lowers("Gather")
def lower_gather(node: Node, low: Lowering) -> None:
    """Constant indices are written without signs and never as a scalar."""
    x, indices, out = need(node, 0), need(node, 1), node.outputs[0]
    size = static(x)
    axis = node.attrs.get("axis", 0) % len(size)
    array = constant(indices)
    if array is not None:
        indices = const(low, np.where(array < 0, array + size[axis], array).astype(np.int32).reshape(array.shape or (1,)))
    else:
        count = len(static(indices))
        indices = indices if 1 <= count <= 5 else reshaped(low, indices, [math.prod(static(indices))])
        indices = indices if kind_before(out) else _from_zero(low, indices, size[axis])
    shape = [*size[:axis], *static(indices), *size[axis + 1 :]]
    if shape == static(out):
        low.add("Gather", [x, indices], [out], {"axis": str(axis)})
    else:
        finish(low, step(low, "Gather", [x, indices], out, shape, {"axis": str(axis)}), out)


def _from_zero(low: Lowering, indices: ir.Value, size: int) -> ir.Value:
    """Indices that are known at run time only, counted from 0 on: below 0 the engine finds nothing."""
    shape = static(indices)
    zero, length = (const(low, np.full([1] * len(shape), n, _numpy(indices))) for n in (0, size))
    below = step(low, "Eltwise", [indices, zero], indices, shape, {"operation": "less"})
    added = step(low, "Eltwise", [below, length], indices, shape, {"operation": "mul"})
    return step(low, "Eltwise", [indices, added], indices, shape, {"operation": "sum"})


def _numpy(value: ir.Value) -> np.dtype:
    return value.dtype.numpy() if value.dtype is not None else np.dtype(np.float32)


@lowers("Pad")
def lower_pad(node: Node, low: Lowering) -> None:
    x, out = need(node, 0), node.outputs[0]
    rank, mode = len(static(x)), node.attrs.get("mode", "constant")
    amounts = ints_of(node, 1, "the pads")
    if node.input(3) is not None:
        axes = [a % rank for a in ints_of(node, 3, "the axes")]
        full = [0] * (2 * rank)
        for i, a in enumerate(axes):
            full[a], full[rank + a] = amounts[i], amounts[len(axes) + i]
        amounts = full
    if mode not in ("constant", "edge", "reflect") or min(amounts, default=0) < 0:
        raise MappingError(f"padding by {amounts} in mode {mode!r} is not known to the target")
    value = 0.0 if node.input(2) is None else scalar_of(node.input(2))
    if value is None:
        raise MappingError("the value of the pads must be constant")
    attrs = {"pads_begin": csv(amounts[:rank]), "pads_end": csv(amounts[rank:]), "pad_mode": mode}
    low.add("Pad", [x], [out], attrs | ({"pad_value": number_text(value)} if mode == "constant" else {}))


@lowers(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
def lower_reduce(node: Node, low: Lowering) -> None:
    """Axes as a second input; without any all are meant, unless the operator says that none are."""
    x, out = need(node, 0), node.outputs[0]
    rank = len(static(x))
    axes = [a % rank for a in ints_of(node, 1, "the axes")] if node.input(1) is not None else []
    if not axes:
        if node.attrs.get("noop_with_empty_axes"):
            raise MappingError("a reduction over no axes is not known to the target")
        axes = list(range(rank))
    if rank == 0:
        raise MappingError("a reduction of a scalar is not known to the target")
    keep = bool(node.attrs.get("keepdims", 1))
    shape = [1 if a in axes else n for a, n in enumerate(static(x))]
    if node.op == "ReduceMax" and is_float(x) and not never_negative(x):  # the engine begins with the smallest number above 0
        turned = step(low, "Power", [x], x, static(x), NEGATIVE)
        least = step(low, "ReduceMin", [turned, ints(low, axes)], out, shape, {"keep_dims": "True"})
        if keep:
            low.add("Power", [least], [out], NEGATIVE)
        else:
            finish(low, step(low, "Power", [least], out, shape, NEGATIVE), out)
    elif not keep and len(axes) == rank:
        inner = step(low, node.op, [x, ints(low, axes)], out, shape, {"keep_dims": "True"})
        finish(low, inner, out)
    else:
        low.add(node.op, [x, ints(low, axes)], [out], {"keep_dims": str(keep)})


NEGATIVE = {"power": "1", "scale": "-1", "shift": "0"}


def never_negative(value: ir.Value) -> bool:
    """Whether a value is known to have no numbers below 0."""
    producer = value.producer()
    return producer is not None and not producer.domain and producer.op_type in ("Relu", "Sigmoid", "Softmax", "Exp", "Abs", "Sqrt", *COMPARISONS, *LOGIC)


@lowers("OneHot")
def lower_one_hot(node: Node, low: Lowering) -> None:
    """The layer writes floats, whatever its port says, and does not count from the end."""
    if not kind_before(node.outputs[0]) and not indices.never_negative(node.input(0)):
        raise MappingError("indices below zero, which count from the end, have no counterpart")
    depth, values = ints_of(node, 1, "the depth")[0], known(node.input(2))
    if values is None:
        raise MappingError("the values must be constant")
    x, out = reshaped(low, need(node, 0), static(need(node, 0)) or [1]), node.outputs[0]
    shape = static(x)
    axis = node.attrs.get("axis", -1) % len(static(out)) if static(need(node, 0)) else 1
    shape.insert(axis, depth)
    attrs = {"axis": str(axis), "depth": str(depth), "on_value": number_text(values[1]), "off_value": number_text(values[0])}
    if shape == static(out) and is_float(out):
        low.add("OneHot", [x], [out], attrs)
        return
    numbers = step(low, "OneHot", [x], const(low, np.float32(0)), shape, attrs)
    if shape == static(out):
        low.add("Convert", [numbers], [out], {"precision": "I32"})
    else:
        finish(low, numbers if is_float(out) else step(low, "Convert", [numbers], out, shape, {"precision": "I32"}), out)


@lowers("ReverseSequence")
def lower_reverse_sequence(node: Node, low: Lowering) -> None:
    attrs = {"batch_axis": str(node.attrs.get("batch_axis", 1)), "seq_axis": str(node.attrs.get("time_axis", 0))}
    low.add("ReverseSequence", [need(node, 0), need(node, 1)], node.outputs, attrs)


@lowers("ShuffleChannels", domain="netconv")
def lower_shuffle_channels(node: Node, low: Lowering) -> None:
    if len(static(need(node, 0))) != 4:
        raise MappingError("ShuffleChannels is known for images only")
    low.add("ShuffleChannels", [need(node, 0)], node.outputs, {"axis": "1", "group": str(node.attrs["group"])})


@lowers("Range")
def lower_range(node: Node, low: Lowering) -> None:
    static(node.outputs[0])
    low.add("Range", [reshaped(low, need(node, i), [1]) for i in range(3)], node.outputs)


@lowers("ScatterND")
def lower_scatter_nd(node: Node, low: Lowering) -> None:
    """Elements scattered into a constant of one number are SparseToDense; nothing else is known."""
    data, indices = _filling(need(node, 0), low), need(node, 1)
    shape = static(node.outputs[0])
    if data is None or node.attrs.get("reduction", "none") != "none":
        raise MappingError("ScatterND is known into a tensor of one number only")
    if is_float(need(node, 2)):
        raise MappingError("ScatterND is known for integers only")
    if len(static(indices)) != 2 or static(indices)[1] != len(shape):
        raise MappingError("ScatterND is known for single elements only")
    low.add("SparseToDense", [indices, ints(low, shape), need(node, 2), data], node.outputs)


def _filling(value: ir.Value, low: Lowering) -> ir.Value | None:
    """The number of which all of `value` consists."""
    array, producer = constant(value), value.producer()
    if array is not None and array.size and (array == array.reshape(-1)[0]).all():
        return const(low, array.reshape(-1)[0])
    if producer is not None and producer.op_type == "Expand" and producer.inputs[0] is not None and np.prod(static(producer.inputs[0])) == 1:
        return reshaped(low, producer.inputs[0], [])
    return None


@lowers("Resize")
def lower_resize(node: Node, low: Lowering) -> None:
    """Interp (corners aligned, or from the corner) and Resample (half pixels). Nearest is compared pixel by pixel."""
    x, out = need(node, 0), node.outputs[0]
    size, wanted = static(x), static(out)
    if size == wanted:
        finish(low, x, out)
        return
    if len(size) != 4 or size[:2] != wanted[:2]:
        raise MappingError("only the two spatial axes of images can be resized")
    mode, where = node.attrs.get("mode", "nearest"), node.attrs.get("coordinate_transformation_mode", "half_pixel")
    scales = known(node.input(2)) if node.input(2) is not None else None
    if node.input(2) is not None and scales is None:
        raise MappingError("the scales must be constant")
    factors = list(scales[-2:]) if scales is not None and scales.size >= 2 else [w / n for n, w in zip(size[2:], wanted[2:], strict=True)]
    sides = list(zip(size[2:], wanted[2:], (float(f) for f in factors), strict=True))
    if mode == "nearest":
        rounding = node.attrs.get("nearest_mode", "round_prefer_floor")
        if any((_nearest(*s, where, rounding) != _nearest(s[0], s[1], s[1] / s[0], "half_pixel", "round_prefer_ceil")).any() for s in sides):
            raise MappingError(f"nearest in {where!r} by {rounding!r} takes other pixels than Resample")
        kind, attrs = "Resample", {"type": "caffe.ResampleParameter.NEAREST", "antialias": "0", "factor": number_text(wanted[2] / size[2])}
    elif mode != "linear" or node.attrs.get("exclude_outside"):
        raise MappingError(f"mode={mode!r} is not known to the target")
    else:
        kind, attrs = _linear(node, where, sides)
    low.add(kind, [x], [out], attrs)


def _linear(node: Node, where: str, sides: list[tuple[int, int, float]]) -> tuple[str, dict[str, str]]:
    antialias = int(node.attrs.get("antialias", 0))
    shrinks = antialias and any(w < n for n, w, _ in sides)
    for name in ("half_pixel", "align_corners", "asymmetric"):
        if shrinks and name != "half_pixel":
            break
        if all(np.allclose(_source(*s, where), _source(s[0], s[1], s[1] / s[0], name), atol=1e-4) for s in sides):
            if name == "half_pixel":
                return "Resample", {"type": "caffe.ResampleParameter.LINEAR", "antialias": str(antialias), "factor": number_text(sides[0][1] / sides[0][0])}
            attrs = {"align_corners": "1" if name == "align_corners" else "0", "pad_beg": "0", "pad_end": "0"}
            return "Interp", attrs | {"height": str(sides[0][1]), "width": str(sides[1][1])}
    raise MappingError(f"linear in {where!r} is not known to the target")


def _source(size: int, wanted: int, factor: float, where: str) -> np.ndarray:
    """Where each pixel of the result lies in the source, inside of the image."""
    at = arange(wanted, dtype=np.float64)
    if where == "align_corners":
        found = at * ((size - 1) / (wanted - 1)) if wanted > 1 else at * 0
    elif where == "asymmetric":
        found = at / factor
    elif where in ("half_pixel", "pytorch_half_pixel"):
        found = (at + 0.5) / factor - 0.5 if where == "half_pixel" or wanted > 1 else at * 0
    elif where == "half_pixel_symmetric":
        found = size / 2 * (1 - wanted / (factor * size)) + (at + 0.5) / factor - 0.5
    else:
        raise MappingError(f"coordinate_transformation_mode={where!r} is not known to the target")
    return np.clip(found, 0, size - 1)


def _nearest(size: int, wanted: int, factor: float, where: str, rounding: str) -> np.ndarray:
    at = _source(size, wanted, factor, where)
    at = np.round(at, 6)
    if rounding in ("floor", "ceil"):
        found = np.floor(at) if rounding == "floor" else np.ceil(at)
    else:
        found = np.floor(at + 0.5) if rounding == "round_prefer_ceil" else np.ceil(at - 0.5)
    return np.asarray(np.clip(found, 0, size - 1))
