"""Rules for computing each operator on fewer axes.

A handler returns the results in any shape of at most `most` axes; see collapse_dims.py for the
rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph import BROADCAST, REDUCTIONS
from converter.graph.build import Builder, attributes, attrs_of, same_attrs
from converter.graph.infer import constant, known, rank_of, shape_of
from converter.graph.value import operand, optional, producer_if
from converter.passes.conv3d_to_2d import VOLUMES
from converter.passes.layout.rules import UNARY

Values = Sequence[ir.Value]
FewerAxes = Callable[[ir.Node, Builder, int], Values | None]
_OF_ONE_AXIS = [
    "Softmax",
    "LogSoftmax",
    "Hardmax",
    "TopK",
    "ArgMax",
    "ArgMin",
    "Split",
    "Gather",
    "Concat",
]
# the identity on a single element, unlike reductions that take its root or logarithm
_OF_ONE = frozenset({"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"})


def runs(kinds: Sequence[Hashable], sizes: Sequence[int]) -> list[list[int]]:
    """Group adjacent axes of the same kind, without axes of length 1."""
    found: list[list[int]] = []
    for i, kind in enumerate(kinds):
        if sizes[i] == 1:
            continue
        if found and kinds[found[-1][-1]] == kind:
            found[-1].append(i)
        else:
            found.append([i])
    return found


def reshaped(b: Builder, value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """Return a value in another shape; a constant is reshaped at once."""
    array = constant(value)
    if array is not None:
        return b.const(array.reshape(shape), str(value.name))
    return value if shape_of(value) == tuple(shape) else b.Reshape(value, list(shape))


def _shape(value: ir.Value | None) -> tuple[int, ...]:
    shape = shape_of(value)
    assert shape is not None
    return shape


def _merged(sizes: Sequence[int], groups: list[list[int]]) -> list[int]:
    return [math.prod(sizes[i] for i in group) for group in groups] or [1]


def _unary(node: ir.Node, b: Builder, most: int) -> Values:
    """Compute on the shape that the data had before a Reshape, or else on one axis."""
    before = producer_if(node.inputs[0], "Reshape")
    source = before.inputs[0] if before is not None and before.graph is node.graph else None
    if source is None or not 0 < (rank_of(source) or 0) <= most or shape_of(source) is None:
        source = reshaped(b, operand(node), [math.prod(_shape(node.inputs[0]))])
    return [b.op(node.op_type, source, *node.inputs[1:], **same_attrs(node))]


def _broadcast(node: ir.Node, b: Builder, most: int) -> Values | None:
    values, out = [v for v in node.inputs if v is not None], _shape(node.outputs[0])
    full = [(1,) * (len(out) - len(_shape(v))) + _shape(v) for v in values]
    groups = runs([tuple(s[i] == 1 for s in full) for i in range(len(out))], out)
    if len(groups) > most:  # broadcast over too many axes: expand first
        flat = [v if _shape(v) in ((), out) else b.Expand(v, list(out)) for v in values]
        if flat == values:
            return None
    else:
        flat = [reshaped(b, v, _merged(s, groups)) for v, s in zip(values, full, strict=True)]
    return [b.op(node.op_type, *flat, **same_attrs(node))]


def _reduction(node: ir.Node, b: Builder, most: int) -> Values | None:
    x, shape = operand(node), _shape(node.inputs[0])
    axes = known(node.inputs[1]) if optional(node, 1) is not None else np.zeros(0, np.int64)
    if axes is None:
        return None
    everything = not axes.size and not attributes(node)["noop_with_empty_axes"]
    gone = set(range(len(shape))) if everything else {int(a) % len(shape) for a in axes.reshape(-1)}
    groups = runs([i in gone for i in range(len(shape))], shape)
    over = [k for k, group in enumerate(groups) if group[0] in gone]
    if len(groups) > most:  # reduce one axis at a time, if that has the same result
        if node.op_type not in _OF_ONE or len(gone) == 1:
            return None
        return [reduce(lambda y, axis: b.op(node.op_type, y, [axis]), sorted(gone), x)]
    if not over:  # only axes of length 1
        if node.op_type in _OF_ONE:
            return [x]
        return [b.op(node.op_type, reshaped(b, x, [math.prod(shape), 1]), [1], keepdims=0)]
    return [b.op(node.op_type, reshaped(b, x, _merged(shape, groups)), over, keepdims=0)]


def _three(shape: Sequence[int], axis: int) -> list[int]:
    """Return the product of the sizes before the axis, its size, and the product of those after
    it.
    """
    return [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]


def _along(node: ir.Node, b: Builder, most: int) -> Values:
    """Rewrite operators that work along one axis, including Gather and Concat."""
    shape = _shape(node.inputs[0])
    axis = attributes(node)["axis"] % len(shape)
    data = node.inputs if node.op_type == "Concat" else node.inputs[:1]
    rest: list[Any] = list(node.inputs[len(data) :])
    if node.op_type == "Gather":
        rest = [reshaped(b, rest[0], [math.prod(_shape(rest[0]))])]
    keep: dict[str, Any] = {"keepdims": 0} if node.op_type in ("ArgMax", "ArgMin") else {}
    flat = [reshaped(b, v, _three(_shape(v), axis)) for v in data if v is not None]
    attrs = {**same_attrs(node, "keepdims"), "axis": 1, **keep}
    return b.ops(node.op_type, *flat, *rest, outputs=len(node.outputs), **attrs)


def _scaled(node: ir.Node, b: Builder, most: int) -> Values | None:
    """Rewrite quantization with a single scale, or with one scale per element of an axis."""
    shape, scale, others = _shape(node.inputs[0]), _shape(node.inputs[1]), node.inputs[1:]
    if len(scale) > 1:
        return None
    if math.prod(scale) == 1:
        points: list[Any] = [reshaped(b, v, []) for v in others if v is not None]
        sizes, axis = [math.prod(shape)], None
    else:
        points, axis = list(others), 1
        sizes = _three(shape, attributes(node)["axis"] % len(shape))
    flat = reshaped(b, operand(node), sizes)
    return [b.op(node.op_type, flat, *points, axis=axis, **same_attrs(node, "axis"))]


def _cumulative(node: ir.Node, b: Builder, most: int) -> Values | None:
    shape, axis = _shape(node.inputs[0]), known(node.inputs[1])
    if axis is None:
        return None
    flat = reshaped(b, operand(node), _three(shape, int(axis.reshape(-1)[0]) % len(shape)))
    return [b.CumSum(flat, 1, **same_attrs(node))]


def _each(
    node: ir.Node, b: Builder, steps: Sequence[tuple[int, Callable[[ir.Value], ir.Value]]]
) -> Values:
    """Apply `step` to one axis after the other, on data of shape [before, axis, after]."""
    x: ir.Value = operand(node)
    shape = list(_shape(x))
    for axis, step in steps:
        x = step(reshaped(b, x, _three(shape, axis)))
        shape[axis] = _shape(x)[1]
    return [x]


def _slice(node: ir.Node, b: Builder, most: int) -> Values | None:
    if any(v is not None and known(v) is None for v in node.inputs[1:]):
        return None
    starts, ends, axes, strides = (known(optional(node, i)) for i in range(1, 5))
    assert starts is not None and ends is not None
    axes = np.arange(len(starts)) if axes is None else axes
    strides = np.ones(len(starts), np.int64) if strides is None else strides
    rank = len(_shape(node.inputs[0]))

    def cut(x: ir.Value, start: int, end: int, stride: int) -> ir.Value:
        return b.Slice(x, [start], [end], [1], [stride])

    given = zip(*(v.tolist() for v in (axes, starts, ends, strides)), strict=True)
    steps = [(a % rank, partial(cut, start=s, end=e, stride=t)) for a, s, e, t in given]
    return _each(node, b, steps)


def _pad(node: ir.Node, b: Builder, most: int) -> Values | None:
    amounts, rank = known(node.inputs[1]), len(_shape(node.inputs[0]))
    chosen = optional(node, 3)
    axes = known(chosen) if chosen is not None else np.arange(rank)
    if amounts is None or axes is None:
        return None
    value = optional(node, 2)
    given = [
        (int(a) % rank, p, q)
        for a, p, q in zip(axes, *amounts.reshape(2, -1).tolist(), strict=True)
        if p or q
    ]

    def padded(x: ir.Value, before: int, after: int) -> ir.Value:
        return b.op("Pad", x, [0, before, 0, 0, after, 0], value, **same_attrs(node))

    return _each(node, b, [(a, partial(padded, before=p, after=q)) for a, p, q in given])


def _repeated(node: ir.Node, b: Builder, most: int) -> Values:
    """Rewrite Tile and Expand."""
    x: ir.Value = operand(node)
    before, after = _shape(x), _shape(node.outputs[0])
    full = (1,) * (len(after) - len(before)) + before
    for axis, (n, m) in enumerate(zip(full, after, strict=True)):
        if n == m:
            continue
        front, _, behind = three = _three([*after[:axis], *full[axis:]], axis)
        sizes = [front, m, behind] if node.op_type == "Expand" else [1, m // n, 1]
        x = b.op(node.op_type, reshaped(b, x, three), sizes)
    return [x]


def neighbors(sizes: Sequence[int], perm: Sequence[int]) -> list[list[int]]:
    """Return the axes in their new order, grouping those that stay adjacent and leaving out axes of
    length 1.
    """
    kept = [i for i in range(len(sizes)) if sizes[i] != 1]
    found: list[list[int]] = []
    for axis in (i for i in perm if sizes[i] != 1):
        if found and kept.index(axis) == kept.index(found[-1][-1]) + 1:
            found[-1].append(axis)
        else:
            found.append([axis])
    return found


def _transpose(node: ir.Node, b: Builder, most: int) -> Values:
    """Merge axes that stay adjacent; if too many are left, move one after the other to the
    front.
    """
    x: ir.Value = operand(node)
    shape = _shape(x)
    target = neighbors(shape, attrs_of(node).get("perm") or range(len(shape))[::-1])
    order = sorted(target)
    if len(order) <= most:
        perm = [order.index(run) for run in target] or [0]
        return [b.Transpose(reshaped(b, x, _merged(shape, order)), perm=perm)]
    for done, run in enumerate(target):
        at = order.index(run)
        if at == done:
            continue
        parts = (order[:done], order[done:at], [run], order[at + 1 :])
        sizes = [math.prod(shape[i] for group in part for i in group) for part in parts]
        x = b.Transpose(reshaped(b, x, sizes), perm=[0, 2, 1, 3])
        order = [*parts[0], run, *parts[1], *parts[3]]
    return [x]


def _product(node: ir.Node, b: Builder, most: int) -> Values | None:
    """Merge the batch axes of a MatMul; a vector becomes a row as first operand, a column as second
    one.
    """
    vectors = [len(_shape(v)) == 1 for v in node.inputs]
    out = _shape(node.outputs[0])
    batch = out[: len(out) - 2 + sum(vectors)]
    operands = []
    for place, is_vector in enumerate(vectors):
        v: ir.Value = operand(node, place)
        v = b.Unsqueeze(v, [place]) if is_vector else v
        shape = _shape(v)
        own = (1,) * (len(batch) - len(shape) + 2) + shape[:-2]
        if own != batch and math.prod(own) != 1:
            v, own = b.Expand(v, [*batch, *shape[-2:]]), batch
        count = math.prod(batch) if own == batch else 1
        operands.append(reshaped(b, v, [count, *shape[-2:]]))
    return [b.MatMul(*operands)]


def _layer_norm(node: ir.Node, b: Builder, most: int) -> Values | None:
    x, shape = operand(node), _shape(node.inputs[0])
    axis = attributes(node)["axis"] % len(shape)
    others = [v for v in node.inputs[1:] if v is not None]
    if len(node.outputs) > 1 or any(shape_of(v) != shape[axis:] for v in others):
        return None
    inner = math.prod(shape[axis:])
    flat = [reshaped(b, x, [math.prod(shape[:axis]), inner])]
    flat += [reshaped(b, v, [inner]) for v in others]
    return [b.op("LayerNormalization", *flat, axis=-1, **same_attrs(node, "axis"))]


_SCALED = ("QuantizeLinear", "DequantizeLinear")
_OF_ONE_OPERAND = UNARY - {"CastLike", "Dropout", "DynamicQuantizeLinear"}
ELEMENTWISE = _OF_ONE_OPERAND | BROADCAST | set(_SCALED)
HANDLERS: dict[str, FewerAxes] = {
    **dict.fromkeys(_OF_ONE_OPERAND, _unary),
    **dict.fromkeys(BROADCAST, _broadcast),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(_OF_ONE_AXIS, _along),
    **dict.fromkeys(_SCALED, _scaled),
    **dict.fromkeys(("Tile", "Expand"), _repeated),
    "CumSum": _cumulative,
    "Slice": _slice,
    "Pad": _pad,
    "Transpose": _transpose,
    "MatMul": _product,
    "LayerNormalization": _layer_norm,
    **VOLUMES,
}
