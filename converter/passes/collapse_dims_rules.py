"""How each operator works on fewer axes. A handler gives the results in any shape of at most `most`
axes; see collapse_dims.py for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph import REDUCTIONS
from converter.graph.build import Builder, attrs_of, same_attrs
from converter.graph.infer import constant, known, rank_of, shape_of
from converter.graph.value import optional
from converter.passes.conv3d_to_2d import VOLUMES
from converter.passes.layout.rules import BROADCAST, UNARY

Values = Sequence[ir.Value]
FewerAxes = Callable[[ir.Node, Builder, int], Values | None]
_AXIS = {
    "Softmax": -1,
    "LogSoftmax": -1,
    "Hardmax": -1,
    "TopK": -1,
    "ArgMax": 0,
    "ArgMin": 0,
    "Split": 0,
    "Gather": 0,
    "Concat": 0,
}
_OF_ONE = frozenset(
    {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"}
)  # of one element: itself; others take its root or logarithm


def runs(kinds: Sequence[Hashable], sizes: Sequence[int]) -> list[list[int]]:
    """Neighbouring axes of one kind, axes of length 1 left out."""
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
    """On the shape that the data had before a Reshape, else on one axis."""
    x = node.inputs[0]
    assert x is not None
    before = x.producer()
    source = (
        before.inputs[0]
        if before is not None
        and before.op_type == "Reshape"
        and not before.domain
        and before.graph is node.graph
        else None
    )
    if source is None or not 0 < (rank_of(source) or 0) <= most or shape_of(source) is None:
        source = reshaped(b, x, [math.prod(_shape(x))])
    return [b.op(node.op_type, source, *node.inputs[1:], **same_attrs(node))]


def _broadcast(node: ir.Node, b: Builder, most: int) -> Values | None:
    values = [v for v in node.inputs if v is not None]
    rank = rank_of(node.outputs[0]) or 0
    full = [(1,) * (rank - len(_shape(v))) + _shape(v) for v in values]
    groups = runs([tuple(s[i] == 1 for s in full) for i in range(rank)], _shape(node.outputs[0]))
    if len(groups) > most:  # along too many axes: repeated first
        whole = [
            v
            if _shape(v) in ((), _shape(node.outputs[0]))
            else b.Expand(v, list(_shape(node.outputs[0])))
            for v in values
        ]
        return [b.op(node.op_type, *whole, **same_attrs(node))] if whole != values else None
    return [
        b.op(
            node.op_type,
            *(reshaped(b, v, _merged(s, groups)) for v, s in zip(values, full, strict=True)),
            **same_attrs(node),
        )
    ]


def _reduction(node: ir.Node, b: Builder, most: int) -> Values | None:
    x, shape = node.inputs[0], _shape(node.inputs[0])
    axes = known(node.inputs[1]) if optional(node, 1) is not None else np.zeros(0, np.int64)
    if axes is None or x is None:
        return None
    everything = not axes.size and not attrs_of(node).get("noop_with_empty_axes", 0)
    gone = set(range(len(shape))) if everything else {int(a) % len(shape) for a in axes.reshape(-1)}
    groups = runs([i in gone for i in range(len(shape))], shape)
    over = [k for k, group in enumerate(groups) if group[0] in gone]
    if len(groups) > most:
        return (
            _one_by_one(node, b, x, sorted(gone))
            if node.op_type in _OF_ONE and len(gone) > 1
            else None
        )
    if not over:  # axes of length 1 alone
        if node.op_type in _OF_ONE:
            return [x]
        return [b.op(node.op_type, reshaped(b, x, [math.prod(shape), 1]), [1], keepdims=0)]
    return [b.op(node.op_type, reshaped(b, x, _merged(shape, groups)), over, keepdims=0)]


def _one_by_one(node: ir.Node, b: Builder, x: ir.Value, axes: Sequence[int]) -> Values:
    """One axis after the other, which gives the same for sums, means, products and extremes."""
    for axis in axes:
        x = b.op(node.op_type, x, [axis], keepdims=1)
    return [x]


def _three(shape: Sequence[int], axis: int) -> list[int]:
    """What is before the axis, the axis, and what is behind it."""
    return [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]


def _along(node: ir.Node, b: Builder, most: int) -> Values:
    """Operators of one axis, Gather and Concat among them."""
    shape = _shape(node.inputs[0])
    axis = int(attrs_of(node).get("axis", _AXIS[node.op_type])) % len(shape)
    data = node.inputs if node.op_type == "Concat" else node.inputs[:1]
    rest: list[Any] = list(node.inputs[len(data) :])
    if node.op_type == "Gather":
        rest = [reshaped(b, rest[0], [math.prod(_shape(rest[0]))])]
    keep: dict[str, Any] = {"keepdims": 0} if node.op_type in ("ArgMax", "ArgMin") else {}
    flat = [reshaped(b, v, _three(_shape(v), axis)) for v in data if v is not None]
    return b.ops(
        node.op_type,
        *flat,
        *rest,
        outputs=len(node.outputs),
        axis=1,
        **same_attrs(node, "axis", "keepdims"),
        **keep,
    )


def _scaled(node: ir.Node, b: Builder, most: int) -> Values | None:
    """Quantising: one scale for all, or one for each place of an axis."""
    shape, scale = _shape(node.inputs[0]), _shape(node.inputs[1])
    if node.inputs[0] is None or len(scale) > 1:
        return None
    if math.prod(scale) == 1:
        points = [reshaped(b, v, []) for v in node.inputs[1:] if v is not None]
        return [
            b.op(
                node.op_type,
                reshaped(b, node.inputs[0], [math.prod(shape)]),
                *points,
                **same_attrs(node, "axis"),
            )
        ]
    axis = int(attrs_of(node).get("axis", 1)) % len(shape)
    return [
        b.op(
            node.op_type,
            reshaped(b, node.inputs[0], _three(shape, axis)),
            *node.inputs[1:],
            axis=1,
            **same_attrs(node, "axis"),
        )
    ]


def _cumulative(node: ir.Node, b: Builder, most: int) -> Values | None:
    shape, axis = _shape(node.inputs[0]), known(node.inputs[1])
    if axis is None or node.inputs[0] is None:
        return None
    flat = reshaped(b, node.inputs[0], _three(shape, int(axis.reshape(-1)[0]) % len(shape)))
    return [b.CumSum(flat, 1, **same_attrs(node))]


def _each(
    node: ir.Node, b: Builder, steps: Sequence[tuple[int, Callable[[ir.Value], ir.Value]]]
) -> Values:
    """Axis after axis, `step` on [before, axis, behind]."""
    x, shape = node.inputs[0], list(_shape(node.inputs[0]))
    assert x is not None
    for axis, step in steps:
        x = step(reshaped(b, x, _three(shape, axis)))
        shape[axis] = _shape(x)[1]
    return [x]


def _slice(node: ir.Node, b: Builder, most: int) -> Values | None:
    starts, ends, axes, strides = [known(v) for v in (*node.inputs[1:], *[None] * 2)][:4]
    rank = len(_shape(node.inputs[0]))
    if (
        starts is None
        or ends is None
        or any(v is not None and known(v) is None for v in node.inputs[1:])
    ):
        return None
    axes, strides = (
        np.arange(len(starts)) if axes is None else axes,
        np.ones(len(starts), np.int64) if strides is None else strides,
    )
    given = zip(axes.tolist(), starts.tolist(), ends.tolist(), strides.tolist(), strict=True)
    return _each(
        node, b, [(a % rank, partial(_cut, b, start=s, end=e, stride=t)) for a, s, e, t in given]
    )


def _cut(b: Builder, x: ir.Value, start: int, end: int, stride: int) -> ir.Value:
    return b.Slice(x, [start], [end], [1], [stride])


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
    """Tile and Expand."""
    before, after = _shape(node.inputs[0]), _shape(node.outputs[0])
    x = node.inputs[0]
    assert x is not None
    full = (1,) * (len(after) - len(before)) + before
    for axis, (n, m) in enumerate(zip(full, after, strict=True)):
        if n == m:
            continue
        three = _three([*after[:axis], *full[axis:]], axis)
        x = reshaped(b, x, three)
        x = (
            b.Expand(x, [three[0], m, three[2]])
            if node.op_type == "Expand"
            else b.Tile(x, [1, m // n, 1])
        )
    return [x]


def neighbours(sizes: Sequence[int], perm: Sequence[int]) -> list[list[int]]:
    """The axes in their new order, those that stay neighbours together, axes of length 1 left
    out.
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
    """Axes that stay neighbours are one; where too many are left, one after the other comes to the
    front.
    """
    x, shape = node.inputs[0], _shape(node.inputs[0])
    assert x is not None
    target = neighbours(
        shape, [int(i) for i in attrs_of(node).get("perm") or range(len(shape))[::-1]]
    )
    order = sorted(target)
    if len(order) <= most:
        return [
            b.Transpose(
                reshaped(b, x, _merged(shape, order)),
                perm=[order.index(run) for run in target] or [0],
            )
        ]
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
    """Matrices in one axis of batches; a vector is a row before a matrix, a column after it."""
    vectors = [len(_shape(v)) == 1 for v in node.inputs]
    out = _shape(node.outputs[0])
    batch = out[: len(out) - 2 + sum(vectors)]
    operands = []
    for v, is_vector, place in zip(node.inputs, vectors, (0, 1), strict=True):
        if v is None:
            return None
        v = b.Unsqueeze(v, [place]) if is_vector else v
        shape = _shape(v)
        own = (1,) * (len(batch) - len(shape) + 2) + shape[:-2]
        if own != batch and math.prod(own) != 1:
            v, own = b.Expand(v, [*batch, *shape[-2:]]), batch
        operands.append(
            reshaped(b, v, [*([math.prod(batch)] if own == batch else [1]), *shape[-2:]])
        )
    return [b.MatMul(*operands)]


def _layer_norm(node: ir.Node, b: Builder, most: int) -> Values | None:
    x, shape = node.inputs[0], _shape(node.inputs[0])
    axis = int(attrs_of(node).get("axis", -1)) % len(shape)
    others = [v for v in node.inputs[1:] if v is not None]
    if x is None or len(node.outputs) > 1 or any(shape_of(v) != shape[axis:] for v in others):
        return None
    inner = math.prod(shape[axis:])
    flat = [reshaped(b, v, [inner]) for v in others]
    return [
        b.LayerNormalization(
            reshaped(b, x, [math.prod(shape[:axis]), inner]),
            *flat,
            axis=-1,
            **same_attrs(node, "axis"),
        )
    ]


HANDLERS: dict[str, FewerAxes] = {
    **dict.fromkeys(UNARY - {"CastLike", "Dropout", "DynamicQuantizeLinear"}, _unary),
    **dict.fromkeys(BROADCAST, _broadcast),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(_AXIS, _along),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _scaled),
    **dict.fromkeys(("Tile", "Expand"), _repeated),
    "CumSum": _cumulative,
    "Slice": _slice,
    "Pad": _pad,
    "Transpose": _transpose,
    "MatMul": _product,
    "LayerNormalization": _layer_norm,
    **VOLUMES,
}
