"""Shapes: reshaping, broadcasting, padding, splitting, permuting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from converter.formats.openvino.opset.fields import element_type
from converter.formats.openvino.opset.special.base import (
    Emit,
    attributes,
    dim,
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
        return b.op("Reshape", x, shape if target is None else _settled(x, target))
    if target is None and rank_of(x) == 0:
        return b.op("Reshape", x, shape)
    if target is not None and np.any(target == -1):
        size = shape_of(x)
        if size is None:
            raise MappingError("a Reshape to 0 and -1 of a dynamic shape", "X203")
        target = np.where(target == -1, 0, target)
        return b.op("Reshape", x, [int(v) for v in target], allowzero=1)
    return b.op("Reshape", x, shape, allowzero=1)


def _settled(x: ir.Value, target: npt.NDArray[np.int64]) -> list[int]:
    """-1 beside a copied dimension as the number that it stands for: the copied one may turn out to be 0, and ONNX divides by it."""
    copied, wild = np.flatnonzero(target == 0), np.flatnonzero(target == -1)
    left = [d for i, d in enumerate(x.shape or ()) if i not in copied]
    if copied.size and wild.size == 1 and left and all(isinstance(d, int) for d in left):
        others = math.prod(int(t) for t in target if t > 0)
        target = np.where(target == -1, math.prod(int(d) for d in left if isinstance(d, int)) // others, target)
    return [int(t) for t in target]


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
    if known(axes) is None:
        return b.op("Squeeze", x, int64(b, axes, flat=True))
    wanted = [near_axis(i, rank(x)) for i in ints(axes, "the axes")]
    if not wanted:
        return b.op("Squeeze", x)
    return b.op("Squeeze", x, sorted({i for i in wanted if dim(x, i) in (1, None)}))


@lowers("Squeeze", "Unsqueeze")
def lower_squeeze(node: Node, low: Lowering) -> None:
    """Without axes, but with a known rank of the result, those of the axes that are known to have one entry: the runtime would know no rank."""
    e, x, axes = Emit(node, low), node.input(0), node.input(1)
    before, after = (None if v is None or v.shape is None else list(v.shape) for v in (x, node.outputs[0]))
    ones = None if axes is not None or before is None else [i for i, d in enumerate(before) if d == 1]
    if axes is None and after is None:
        raise MappingError("which axes have one entry depends on the data", "X203", help="fix the shapes with --inputs")
    if axes is not None and known(axes) is None:
        sizes = None if after is None else _sizes_behind(None, after, None)
        if sizes is not None:
            e.out("Reshape", x, sizes, special_zero=False)
            return
        if rank_of(axes) != 0 and dim(axes, 0) is None:
            raise MappingError("the axes are computed: the runtime does not know the rank of the result", "X203", "make the axes constant")
    if (
        node.op == "Squeeze"
        and low.version < 15
        and after is not None
        and (sizes := _sizes_behind(axes, after, None if before is None else len(before))) is not None
    ):
        e.out("Reshape", x, sizes, special_zero=True)  # the runtime takes a Squeeze of then behind a recurrent layer for another
    elif ones and before is not None and after is not None and len(before) - len(ones) == len(after):
        e.out(node.op, x, ones)
    elif ones == [] and after is not None and before is not None and len(before) == len(after):
        e.out("Reshape", x, e.op("ShapeOf", x, output_type="i64"), special_zero=False)
    else:
        e.out(node.op, x, *([e.ints(axes)] if axes is not None else []))


def _sizes_behind(axes: ir.Value | None, after: list[Any], before: int | None) -> list[int] | None:
    """The sizes for a Reshape where 0 copies a size: numbers, but for one that is not known, and those in front of the first axis."""
    found = known(axes)
    kept = 0 if found is None or before is None else min((int(i) % before for i in found.reshape(-1)), default=0)
    sizes = [d if isinstance(d, int) else 0 if i < kept else -1 for i, d in enumerate(after)]
    return sizes if sizes.count(-1) < 2 and 0 not in after else None


@lifts("Unsqueeze")
def lift_unsqueeze(layer: Layer, b: Builder) -> ir.Value:
    return b.op("Unsqueeze", operand(layer, 0), int64(b, operand(layer, 1), flat=True))


@lifts("Split")
def lift_split(layer: Layer, b: Builder) -> list[ir.Value]:
    a, x = attributes(layer, num_splits=int), operand(layer, 0)
    axis = int(scalar(operand(layer, 1), "the axis"))
    size = dim(x, near_axis(axis, rank(x)))
    if a.num_splits != len(layer.outputs):
        raise MappingError(f"num_splits={a.num_splits}, but there are {len(layer.outputs)} outputs", "R105")
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
    elif sizes is None:
        whole_ = b.op("Shape", x, start=near_axis(axis, rank(x)), end=near_axis(axis, rank(x)) + 1)
        stated = b.op("Max", lengths, [0])
        rest_ = b.op("Sub", whole_, b.op("ReduceSum", stated, [0], keepdims=1))
        lengths = b.op("Where", b.op("Less", lengths, [0]), rest_, lengths)
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
    count, n = dim(repeats, 0), rank_of(x)
    if count is None or n is None:
        given_repeats, given_axes = b.op("Shape", repeats), b.op("Shape", b.op("Shape", x))
        most, one = b.op("Max", given_repeats, given_axes), np.ones(1, np.int64)
        repeats = b.op("Concat", b.op("ConstantOfShape", b.op("Sub", most, given_repeats), value=one), repeats, axis=0)
        sizes = b.op("Concat", b.op("ConstantOfShape", b.op("Sub", most, given_axes), value=one), b.op("Shape", x), axis=0)
        x = b.op("Reshape", x, sizes, allowzero=1)
    elif count < n:
        repeats = b.op("Concat", [1] * (n - count), repeats, axis=0)
    elif count > n:
        x = b.op("Unsqueeze", x, list(range(count - n)))
    return b.op("Tile", x, repeats)


@lowers("Tile")
def lower_tile(node: Node, low: Lowering) -> None:
    """There are as many repeats as axes; those that are computed are applied axis by axis: of several at a time the runtime makes garbage."""
    e, x, repeats = Emit(node, low), given(node, 0), given(node, 1)
    n = rank_of(x)
    if known(repeats) is not None or n is None or n < 2:
        e.out("Tile", x, e.ints(repeats) if rank_of(repeats) in (1, None) else e.reshape(repeats, [-1]))
        return
    counts = e.op("Reshape", repeats, [n], special_zero=False)
    parts = [low.value("count", repeats.dtype, [1]) for _ in range(n)]
    e.out("Split", counts, np.array(0, np.int64), outputs=parts, num_splits=n)
    one = np.ones(1, (repeats.dtype or ir.DataType.INT64).numpy())
    for i, part in enumerate(parts):
        each = e.op("Concat", *[one] * i, part, *[one] * (n - 1 - i), dtype=repeats.dtype, axis=0)
        if i < n - 1:
            x = e.op("Tile", x, each)
    e.out("Tile", x, each)


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
