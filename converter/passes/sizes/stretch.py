"""Constants that meet data of another size, along one axis.

before:  Add(x[1,5,4], Expand(c, [1,3,4]))          after:  Add(x[1,5,4], Expand(c, [1,5,4]))

A constant can be extended if all its elements along the axis are equal, if they count in steps
of 1, or if an operator with a constant size made it. Tables of numbers cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from converter.graph import BROADCAST, UNARY
from converter.graph.build import RecordingBuilder, Value, same_attrs
from converter.graph.infer import Array, constant, known, shape_of
from converter.graph.names import Names
from converter.graph.value import optional
from converter.graph.verify.shapes_of import attribute
from converter.passes.sizes.regroup import Pair

MOST = 1 << 28  # elements of a constant that is extended


class Stretch:
    """Extends values; raise ValueError with the reason for those that cannot be.

    `old` has the shapes before the change, by value; `steps` are the values that were replaced, by
    which ones, and along which axis.
    """

    def __init__(self, old: Mapping[ir.Value, tuple[int, ...] | None], names: Names) -> None:
        self.old, self.names = old, names
        self.steps: list[tuple[ir.Value, ir.Value, int]] = []

    def extended(self, value: ir.Value, axis: int, pair: Pair, before: ir.Node) -> ir.Value:
        """Return the value with the new size along an axis; it is made before a node."""
        assert isinstance(before.graph, ir.Graph)
        array, node = constant(value), value.producer()
        b = RecordingBuilder(before.graph, self.names, before)
        if node is None and array is None:
            raise ValueError(
                f"the input {value.name!r} still has the size {pair.old}; give its shape, too"
            )
        made = None
        if node is not None and not node.domain:
            rule = _RULES.get(
                node.op_type, _elementwise if node.op_type in UNARY | BROADCAST else None
            )
            made = None if rule is None else rule(self, node, axis, pair, b)
        if made is None and array is not None:
            made = b.const(_longer(array, axis, pair), value.name or "const")
        if made is None:
            raise ValueError(
                f"a value has the old size {pair.old}, and no layer determines its new size"
            )
        self.steps.append((value, made, axis))
        return made


def _longer(array: Array, axis: int, pair: Pair) -> Array:
    """Return a constant with another size along an axis, if it is the same everywhere along the
    axis, or counts up or down; raise ValueError otherwise.
    """
    first = np.take(array, [0], axis)
    if array.size // pair.old * pair.new > MOST:
        raise ValueError(f"a constant would have more than {MOST} elements")
    if array.dtype != object and np.array_equal(
        array, np.broadcast_to(first, array.shape), array.dtype.kind in "fc"
    ):
        repeated: Array = np.repeat(first, pair.new, axis)
        return repeated
    if array.dtype.kind in "iu" and pair.old > 2:
        step = np.take(array, [1], axis).astype(np.int64) - first
        shape = [-1 if i == axis else 1 for i in range(array.ndim)]
        counts = np.array_equal(array, first + step * np.arange(pair.old).reshape(shape))
        if counts and (np.abs(step) == 1).all():
            longer = first + step * np.arange(pair.new).reshape(shape)
            counted: Array = longer.astype(array.dtype)
            return counted
    raise ValueError(f"a constant is a table of {pair.old} entries, and has none for {pair.new}")


Rule = Callable[[Stretch, ir.Node, int, Pair, RecordingBuilder], "ir.Value | None"]


def _again(node: ir.Node, b: RecordingBuilder, inputs: list[ir.Value | None]) -> Value:
    return b.op(node.op_type, *inputs, name=str(node.outputs[0].name), **same_attrs(node))


def _elementwise(
    s: Stretch, node: ir.Node, axis: int, pair: Pair, b: RecordingBuilder
) -> ir.Value | None:
    rank = len(shape_of(node.outputs[0]) or ())
    inputs: list[ir.Value | None] = []
    for value in node.inputs:
        sizes = shape_of(value) or ()
        own = axis - rank + len(sizes)
        follows = value is not None and own >= 0 and sizes[own] == pair.old != 1
        inputs.append(s.extended(value, own, pair, _before(b)) if follows and value else value)
    return _again(node, b, inputs)


def _before(b: RecordingBuilder) -> ir.Node:
    assert b.before is not None
    return b.before


def _expand(
    s: Stretch, node: ir.Node, axis: int, pair: Pair, b: RecordingBuilder
) -> ir.Value | None:
    x, target, sizes = node.inputs[0], constant(node.inputs[1]), shape_of(node.inputs[0])
    if target is None or x is None or sizes is None:
        return None
    rank = len(shape_of(node.outputs[0]) or ())
    own = axis - rank + len(sizes)
    if own >= 0 and sizes[own] != 1:
        x = s.extended(x, own, pair, _before(b))
    numbers = [1] * (rank - target.size) + [int(n) for n in target.reshape(-1)]
    if numbers[axis] == pair.old:
        numbers[axis] = pair.new
    return b.Expand(x, numbers)


def _filled(
    s: Stretch, node: ir.Node, axis: int, pair: Pair, b: RecordingBuilder
) -> ir.Value | None:
    target = constant(node.inputs[0])
    if target is None:
        return None
    numbers = [int(n) for n in target.reshape(-1)]
    numbers[axis] = pair.new
    return _again(node, b, [b.const(np.array(numbers, np.int64))])


def _tile(s: Stretch, node: ir.Node, axis: int, pair: Pair, b: RecordingBuilder) -> ir.Value | None:
    x, repeats, sizes = node.inputs[0], constant(node.inputs[1]), shape_of(node.inputs[0])
    if repeats is None or sizes is None or sizes[axis] != 1:
        return None
    numbers = [int(n) for n in repeats.reshape(-1)]
    numbers[axis] = pair.new
    return b.Tile(x, numbers)


def _slice(
    s: Stretch, node: ir.Node, axis: int, pair: Pair, b: RecordingBuilder
) -> ir.Value | None:
    """Take as many elements of a longer table."""
    sizes = shape_of(node.inputs[0])
    bounds = [constant(v) for v in node.inputs[1:]]
    if sizes is None or any(
        v is not None and k is None for v, k in zip(node.inputs[1:], bounds, strict=True)
    ):
        return None
    starts, ends, axes, steps = ([*bounds, None, None])[:4]
    assert starts is not None and ends is not None
    chosen = (
        [*range(starts.size)] if axes is None else [int(a) % len(sizes) for a in axes.reshape(-1)]
    )
    if axis not in chosen:
        longer = s.extended(node.inputs[0], axis, pair, _before(b)) if node.inputs[0] else None
        return None if longer is None else _again(node, b, [longer, *node.inputs[1:]])
    at = chosen.index(axis)
    begin, step = int(starts.reshape(-1)[at]), 1 if steps is None else int(steps.reshape(-1)[at])
    if begin < 0 or step != 1:
        return None
    if begin + pair.new > sizes[axis]:
        raise ValueError(f"a table has {sizes[axis]} entries, {begin + pair.new} are needed")
    moved = [int(n) for n in ends.reshape(-1)]
    moved[at] = begin + pair.new
    return b.Slice(node.inputs[0], starts, moved, *node.inputs[3:])


def _moved_axis(
    s: Stretch, node: ir.Node, axis: int, pair: Pair, b: RecordingBuilder
) -> ir.Value | None:
    """Extend the operand of an operator that moves axes."""
    x, sizes = node.inputs[0], shape_of(node.inputs[0])
    if x is None or sizes is None:
        return None
    rank = len(shape_of(node.outputs[0]) or ())
    axes = known(optional(node, 1))
    if node.op_type == "Transpose":
        own = attribute(node, "perm", list(range(len(sizes)))[::-1])[axis]
    elif axes is None:
        return None
    elif node.op_type == "Unsqueeze":
        added = {int(a) % rank for a in axes.reshape(-1)}
        if axis in added:
            return None
        own = axis - sum(a < axis for a in added)
    else:
        gone = {int(a) % len(sizes) for a in axes.reshape(-1)}
        own = [i for i in range(len(sizes)) if i not in gone][axis]
    return _again(node, b, [s.extended(x, own, pair, _before(b)), *node.inputs[1:]])


def _gather(
    s: Stretch, node: ir.Node, axis: int, pair: Pair, b: RecordingBuilder
) -> ir.Value | None:
    """Look up more entries of a table, with extended indices."""
    table, indices = node.inputs[0], node.inputs[1]
    sizes, positions = shape_of(table), shape_of(indices)
    if sizes is None or positions is None or indices is None:
        return None
    at = attribute(node, "axis", 0) % len(sizes)
    if not at <= axis < at + len(positions):
        return None
    longer = s.extended(indices, axis - at, pair, _before(b))
    found = known(longer)
    if found is None or (found >= sizes[at]).any():
        raise ValueError(f"a table has {sizes[at]} entries, more are needed")
    return _again(node, b, [table, longer])


def _range(
    s: Stretch, node: ir.Node, axis: int, pair: Pair, b: RecordingBuilder
) -> ir.Value | None:
    start, limit, step = (constant(v) for v in node.inputs)
    if start is None or limit is None or step is None or limit.dtype.kind not in "iu":
        return None
    end = start.reshape(()) + step.reshape(()) * pair.new
    return b.Range(node.inputs[0], b.const(np.asarray(end, limit.dtype)), node.inputs[2])


def _resize(
    s: Stretch, node: ir.Node, axis: int, pair: Pair, b: RecordingBuilder
) -> ir.Value | None:
    """Resize a constant to the size of the data that it is combined with."""
    sizes, rank = constant(optional(node, 3)), len(shape_of(node.outputs[0]) or ())
    axes = list(attribute(node, "axes", range(rank)))
    if sizes is None or axis not in axes:
        return None
    numbers = [int(n) for n in sizes.reshape(-1)]
    numbers[axes.index(axis)] = pair.new
    return _again(node, b, [*node.inputs[:3], b.const(np.array(numbers, np.int64))])


_RULES: dict[str, Rule] = {
    "Expand": _expand,
    "ConstantOfShape": _filled,
    "Tile": _tile,
    "Slice": _slice,
    "Gather": _gather,
    "Range": _range,
    "Resize": _resize,
    **dict.fromkeys(("Transpose", "Unsqueeze", "Squeeze"), _moved_axis),
}
