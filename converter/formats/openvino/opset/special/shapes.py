"""Shapes: reshaping, broadcasting, padding, splitting, permuting."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.fields import element_type
from converter.formats.openvino.opset.special.base import (
    Emit,
    attributes,
    cast,
    dim,
    filled,
    given,
    int64,
    ints,
    lifts,
    lowers,
    near_axis,
    operand,

    optional,
    rank,
    scalar,
    static,
    transpose,
)
from converter.graph.build import Builder
from converter.graph.infer import known, rank_of, shape_of
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType

@lifts("Transpose")
def lift_transpose(layer: Layer, b: Builder) -> ir.Value:
    return b.op("Transpose", operand(layer, 0), perm=ints(operand(layer, 1), "the order") or None)

@lowers("Transpose")
def lower_transpose(node: Node, low: Lowering) -> None:
    x = given(node, 0)
    perm = node.attrs.get("perm") or list(range(rank(x)))[::-1]
    Emit(node, low).out("Transpose", x, perm)

@lifts("ShapeOf")
def lift_shape(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, output_type="i64")
    shape = b.op("Shape", operand(layer, 0))
    return shape if a.output_type == "i64" else b.op("Cast", shape, to=element_type.lift(a.output_type))

@lowers("Shape")
def lower_shape(node: Node, low: Lowering) -> None:
    e, a = Emit(node, low), node.attrs
    if not a.get("start", 0) and a.get("end") is None:
        e.out("ShapeOf", node.input(0), output_type="i64")
        return
    n = rank(given(node, 0))
    indices = list(range(n))[a.get("start", 0) : a.get("end")]
    e.out("Gather", e.op("ShapeOf", node.input(0), dtype=T.INT64, output_type="i64"), indices, np.array(0, np.int64), batch_dims=0)

@lowers("Size")
def lower_size(node: Node, low: Lowering) -> None:
    e = Emit(node, low)
    e.out("ReduceProd", e.op("ShapeOf", node.input(0), dtype=T.INT64, output_type="i64"), [0], keep_dims=False)

@lifts("Reshape")
def lift_reshape(layer: Layer, b: Builder) -> ir.Value:
    """`special_zero`: 0 keeps the dimension, as in ONNX by default."""
    a = attributes(layer, special_zero=bool)
    x, shape = operand(layer, 0), int64(b, operand(layer, 1), flat=True)
    target = known(shape)
    if a.special_zero or (target is not None and not np.any(target == 0)):
        return b.op("Reshape", x, shape)
    if target is None and rank_of(x) == 0:
        return b.op("Reshape", x, shape)
    if target is not None and np.any(target == -1):
        size = shape_of(x)
        if size is None:
            raise MappingError("a Reshape to 0 and -1 of a dynamic shape", "X203")
        target = np.where(target == -1, 0, target)
        return b.op("Reshape", x, [int(v) for v in target], allowzero=1)
    return b.op("Reshape", x, shape, allowzero=1)

@lowers("Reshape")
def lower_reshape(node: Node, low: Lowering) -> None:
    e = Emit(node, low)
    e.out("Reshape", node.input(0), e.ints(node.input(1)), special_zero=not node.attrs.get("allowzero", 0))

@lifts("Squeeze")
def lift_squeeze(layer: Layer, b: Builder) -> ir.Value:
    attributes(layer, allow_axis_skip=False)
    x, axes = operand(layer, 0), optional(layer, 1)
    if axes is None:
        return b.op("Squeeze", x)
    wanted = [near_axis(i, rank(x)) for i in ints(axes, "the axes")]
    if not wanted:
        return b.op("Squeeze", x)
    return b.op("Squeeze", x, sorted({i for i in wanted if dim(x, i) in (1, None)}))

@lowers("Squeeze", "Unsqueeze")
def lower_squeeze(node: Node, low: Lowering) -> None:
    e = Emit(node, low)
    e.out(node.op, node.input(0), *([e.ints(node.input(1))] if node.input(1) is not None else []))

@lifts("Unsqueeze")
def lift_unsqueeze(layer: Layer, b: Builder) -> ir.Value:
    return b.op("Unsqueeze", operand(layer, 0), int64(b, operand(layer, 1), flat=True))

@lifts("Split")
def lift_split(layer: Layer, b: Builder) -> list[ir.Value]:
    a, x = attributes(layer, num_splits=int), operand(layer, 0)
    axis = int(scalar(operand(layer, 1), "the axis"))
    size = dim(x, near_axis(axis, rank(x)))
    lengths = [size // a.num_splits] * a.num_splits if size is not None else None
    if size is not None and size % a.num_splits:
        raise MappingError(f"{size} cannot be split in {a.num_splits} equal parts", "R105")
    return list(b.ops("Split", x, lengths, axis=axis, num_outputs=None if lengths else a.num_splits, outputs=a.num_splits))

@lifts("VariadicSplit")
def lift_variadic_split(layer: Layer, b: Builder) -> list[ir.Value]:
    attributes(layer)
    x, lengths = operand(layer, 0), int64(b, operand(layer, 2), flat=True)
    axis = int(scalar(operand(layer, 1), "the axis"))
    sizes = known(lengths)
    if sizes is not None and np.any(sizes == -1):
        whole, rest = dim(x, near_axis(axis, rank(x))), int(sizes[sizes != -1].sum())
        if whole is None:
            length = b.op("Sub", b.op("Shape", x, start=near_axis(axis, rank(x)), end=near_axis(axis, rank(x)) + 1), [rest])
            at = int(np.argmax(sizes == -1))
            lengths = b.op("Concat", *[v for v in (sizes[:at], length, sizes[at + 1 :]) if isinstance(v, ir.Value) or len(v)], axis=0)
        else:
            lengths = b.const(np.where(sizes == -1, whole - rest, sizes))
    return list(b.ops("Split", x, lengths, axis=axis, outputs=len(layer.outputs)))

@lowers("Split")
def lower_split(node: Node, low: Lowering) -> None:
    e, x, axis = Emit(node, low), given(node, 0), node.attrs.get("axis", 0)
    lengths = node.input(1)
    parts = len(node.outputs)
    if lengths is not None:
        e.out("VariadicSplit", x, np.array(axis, np.int64), e.ints(lengths))
        return
    size = dim(x, near_axis(axis, rank(x)))
    if size is None:
        raise MappingError("the length of the parts depends on a dynamic dimension", "X203")
    each = -(-size // parts)
    e.out("VariadicSplit", x, np.array(axis, np.int64), [each] * (parts - 1) + [size - each * (parts - 1)])

@lifts("Broadcast")
def lift_broadcast(layer: Layer, b: Builder) -> ir.Value:
    """numpy and bidirectional are Expand; explicit says which axes of the target the input's axes are."""
    a = attributes(layer, "axis", "broadcast_spec", mode="numpy")
    x, target = operand(layer, 0), int64(b, operand(layer, 1), flat=True)
    if a.mode in ("explicit", "none"):
        if (mapping := optional(layer, 2)) is None:
            raise MappingError("the axes mapping is absent", "R105")
        count = dim(target, 0)
        if count is None:
            raise MappingError("the rank of the target shape is unknown", "X203")
        return b.op("Expand", place_axes(b, x, ints(mapping, "the axes mapping"), count), target)
    if a.mode not in ("numpy", "bidirectional"):
        raise MappingError(f"mode={a.mode!r} cannot be expressed")
    return b.op("Expand", x, target)

def place_axes(b: Builder, x: ir.Value, axes: list[int], count: int) -> ir.Value:
    """`x` with its axis i at `axes[i]` of `count` axes, the others of size 1."""
    if rank(x) == 1 and not axes:
        axes = [count - 1]
    if len(axes) != rank(x) or axes != sorted(axes):
        raise MappingError(f"the axes mapping {axes} does not fit rank {rank(x)}", "R105")
    missing = [i for i in range(count) if i not in axes]
    return b.op("Unsqueeze", x, missing) if missing else x

@lowers("Expand")
def lower_expand(node: Node, low: Lowering) -> None:
    e = Emit(node, low)
    e.out("Broadcast", node.input(0), e.ints(node.input(1)), mode="bidirectional")

@lowers("ConstantOfShape")
def lower_constant_of_shape(node: Node, low: Lowering) -> None:
    e = Emit(node, low)
    fill = node.attrs.get("value")
    fill = np.zeros((), np.float32) if fill is None else np.asarray(fill).reshape(())
    shape = known(node.input(0))
    if shape is not None and shape.size == 0:
        e.out("Reshape", fill.reshape(1), np.zeros(0, np.int64), special_zero=False)
        return
    e.out("Broadcast", fill, e.ints(node.input(0)), mode="numpy")

@lifts("Tile")
def lift_tile(layer: Layer, b: Builder) -> ir.Value:
    """Fewer repeats than axes mean the last ones; more repeats add axes in front."""
    x, repeats = operand(layer, 0), int64(b, operand(layer, 1), flat=True)
    count, n = dim(repeats, 0), rank(x)
    if count is None:
        raise MappingError("the number of repeats is unknown", "X203")
    if count < n:
        repeats = b.op("Concat", [1] * (n - count), repeats, axis=0)
    elif count > n:
        x = b.op("Unsqueeze", x, list(range(count - n)))
    return b.op("Tile", x, repeats)

@lowers("Tile")
def lower_tile(node: Node, low: Lowering) -> None:
    e = Emit(node, low)
    e.out("Tile", node.input(0), e.ints(node.input(1)))

@lifts("Pad")
def lift_pad(layer: Layer, b: Builder) -> ir.Value:
    a, x = attributes(layer, pad_mode=str), operand(layer, 0)
    amounts = [int64(b, operand(layer, i), flat=True) for i in (1, 2)]
    fill = optional(layer, 3)
    if a.pad_mode == "symmetric":
        return _symmetric(b, x, *(ints(v, "the padding") for v in amounts))
    if a.pad_mode not in ("constant", "edge", "reflect"):
        raise MappingError(f"pad_mode={a.pad_mode!r} is not known", "R110")
    both = [known(v) for v in amounts]
    joined: Any = [int(v) for v in np.concatenate(both)] if all(v is not None for v in both) else b.op("Concat", *amounts, axis=0)  # type: ignore[arg-type]
    if a.pad_mode != "constant":
        if isinstance(joined, list) and min(joined, default=0) < 0:
            x, joined = _cropped(b, x, joined)
        return b.op("Pad", x, joined, mode=a.pad_mode)
    if fill is not None and x.dtype is not None:
        fill = cast(b, fill, x.dtype)
        fill = b.op("Reshape", fill, np.zeros(0, np.int64)) if rank_of(fill) != 0 else fill
    return b.op("Pad", x, joined, fill, mode="constant")

def _cropped(b: Builder, x: ir.Value, pads: list[int]) -> tuple[ir.Value, list[int]]:
    """Negative padding is cut off first: the values to repeat are those of the rest."""
    n = len(pads) // 2
    axes = [i for i in range(n) if pads[i] < 0 or pads[n + i] < 0]
    ends = [min(pads[n + i], 0) or np.iinfo(np.int64).max for i in axes]
    return b.op("Slice", x, [max(0, -pads[i]) for i in axes], ends, axes), [max(0, p) for p in pads]

def _symmetric(b: Builder, x: ir.Value, begin: list[int], end: list[int]) -> ir.Value:
    """Mirrors with the border element repeated."""
    x, pads = _cropped(b, x, [*begin, *end]) if min([*begin, *end], default=0) < 0 else (x, [*begin, *end])
    n = len(begin)
    for axis in range(n):
        before, after = pads[axis], pads[n + axis]
        parts: list[ir.Value] = [x]
        if before:
            parts.insert(0, b.op("Slice", x, [before - 1], [np.iinfo(np.int64).min], [axis], [-1]))
        if after:
            parts.append(b.op("Slice", x, [-1], [-after - 1], [axis], [-1]))
        x = b.op("Concat", *parts, axis=axis) if len(parts) > 1 else x
    return x

@lowers("Pad")
def lower_pad(node: Node, low: Lowering) -> None:
    e, x, mode = Emit(node, low), given(node, 0), filled(node)["mode"]
    if mode == "wrap":
        raise MappingError("mode='wrap' cannot be expressed")
    pads = known(node.input(1))
    if pads is None:
        raise MappingError("the padding must be constant")
    n = rank(x)
    axes = ints(node.input(3), "the axes") if node.input(3) is not None else list(range(n))
    begin, end = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for i, axis in enumerate(axes):
        begin[axis], end[axis] = pads[i], pads[len(axes) + i]
    if (begin < 0).any() or (end < 0).any():
        if low.version < 12 or mode != "constant":
            raise MappingError("negative padding cannot be expressed here")
    fill: Any = node.input(2) if mode == "constant" else None
    if fill is None:
        fill = np.zeros((), (x.dtype or T.FLOAT).numpy())
    elif known(fill) is not None:
        fill = known(fill).reshape(())  # type: ignore[union-attr]
    e.out("Pad", x, begin, end, fill if mode == "constant" else None, pad_mode=mode)

@lifts("Reverse")
def lift_reverse(layer: Layer, b: Builder) -> ir.Value:
    a, x = attributes(layer, mode=str), operand(layer, 0)
    if a.mode not in ("index", "mask"):
        raise MappingError(f"mode={a.mode!r} is not known", "R110")
    found = ints(operand(layer, 1), "the axes")
    axes = found if a.mode == "index" else [i for i, v in enumerate(found) if v]
    if not axes:
        return b.op("Identity", x)
    k = len(axes)
    return b.op("Slice", x, [-1] * k, [np.iinfo(np.int64).min] * k, axes, [-1] * k)

@lifts("ReverseSequence")
def lift_reverse_sequence(layer: Layer, b: Builder) -> ir.Value:
    a, x = attributes(layer, batch_axis=0, seq_axis=1), operand(layer, 0)
    n = rank(x)
    batch, time = near_axis(a.batch_axis, n), near_axis(a.seq_axis, n)
    lengths = int64(b, operand(layer, 1), flat=True)
    if (batch, time) in ((0, 1), (1, 0)):
        return b.op("ReverseSequence", x, lengths, batch_axis=batch, time_axis=time)
    perm = [batch, time, *(i for i in range(n) if i not in (batch, time))]
    y = b.op("ReverseSequence", transpose(b, x, perm), lengths, batch_axis=0, time_axis=1)
    return transpose(b, y, [int(i) for i in np.argsort(perm)])

@lowers("ReverseSequence")
def lower_reverse_sequence(node: Node, low: Lowering) -> None:
    a = filled(node)
    e = Emit(node, low)
    e.out("ReverseSequence", node.input(0), e.ints(node.input(1)), batch_axis=a["batch_axis"], seq_axis=a["time_axis"])

@lifts("Roll")
def lift_roll(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer, 0)
    shifts, axes = ints(operand(layer, 1), "the shift"), ints(operand(layer, 2), "the axes")
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    total: dict[int, int] = {}
    for axis, shift in zip(axes, shifts, strict=True):
        total[near_axis(axis, rank(x))] = total.get(near_axis(axis, rank(x)), 0) + shift
    for axis, shift in total.items():
        size = static(x)[axis]
        if size and shift % size:
            cut = size - shift % size
            tail, head = b.op("Slice", x, [cut], [size], [axis]), b.op("Slice", x, [0], [cut], [axis])
            x = b.op("Concat", tail, head, axis=axis)
    return b.op("Identity", x) if x is operand(layer, 0) else x

