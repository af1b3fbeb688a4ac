"""Canonical operators rewritten for NNAPI, where no operation says them at a feature level: arithmetic, reductions, padding, selections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.legalise_integers import INTEGER
from converter.formats.nnapi.legalise_integers import sign as sign_of_integers
from converter.formats.nnapi.legalise_numbers import FLOATS, MOVES, NUMBERS, remainder
from converter.formats.nnapi.legalise_recurrent import RECURRENT
from converter.formats.nnapi.legalise_shapes import MOST, SHAPES
from converter.formats.nnapi.ops.lookups import counts_from_front
from converter.graph.build import Builder, attrs_of, same_attrs
from converter.graph.infer import constant, known, shape_of
from converter.graph.sizes import arange
from converter.passes.indices import from_front
from converter.passes.legalise import Rewrite, Rewrites
from converter.passes.ranks import with_fewer_axes

LARGEST_BOUND = 256.0  # a bound is added and taken away again below level 3: small ones lose nothing that matters


def rewrites(level: int) -> Rewrites:
    """Below level 3 some of them trade an operation that is missing for several that are there."""
    return with_fewer_axes({**REWRITES, **SHAPES, **RECURRENT, **(BELOW_3 if level < 3 else {}), **(BELOW_4 if level < 4 else {})}, MOST)


def x_of(node: ir.Node, index: int = 0) -> ir.Value:
    value = node.inputs[index]
    assert value is not None
    return value


def times(b: Builder, x: ir.Value, factor: float) -> ir.Value:
    return b.op("Mul", x, b.like(x, factor))


def plus(b: Builder, x: ir.Value, addend: float) -> ir.Value:
    return b.op("Add", x, b.like(x, addend))


def between(b: Builder, x: ir.Value, low: float, high: float) -> ir.Value:
    return b.op("Clip", x, b.like(x, low), b.like(x, high))


def negative_part(b: Builder, x: ir.Value) -> ir.Value:
    """max(-x, 0)."""
    return b.op("Relu", times(b, x, -1))


def clip(node: ir.Node, b: Builder) -> ir.Value | None:
    """max(x, low) = relu(x - low) + low; min(x, high) = high - relu(high - x)."""
    x = x_of(node)
    bounds = [known(node.inputs[i]) if i < len(node.inputs) and node.inputs[i] is not None else None for i in (1, 2)]
    if x.dtype not in FLOATS or any(v is not None and v is not x and known(v) is None for v in node.inputs):
        return None
    low, high = (None if a is None else float(a.reshape(-1)[0]) for a in bounds)
    if any(v is not None and abs(v) > LARGEST_BOUND for v in (low, high)) or (low is None and high is None):
        return None
    if low is not None:
        x = plus(b, b.op("Relu", plus(b, x, -low)), low) if low else b.op("Relu", x)
    if high is not None:
        x = plus(b, times(b, b.op("Relu", plus(b, times(b, x, -1), high)), -1), high)
    return x


def leaky_relu(node: ir.Node, b: Builder) -> ir.Value:
    x = x_of(node)
    return b.op("PRelu", x, np.array([attrs_of(node).get("alpha", 0.01)], x.dtype.numpy() if x.dtype else np.float32))


def prelu(node: ir.Node, b: Builder) -> ir.Value:
    """relu(x) - slope * relu(-x)."""
    x, slope = x_of(node), x_of(node, 1)
    array = constant(slope)
    negated = b.const(-array) if array is not None else times(b, slope, -1)
    return b.op("Add", b.op("Relu", x), b.op("Mul", negative_part(b, x), negated))


def hard_sigmoid(node: ir.Node, b: Builder) -> ir.Value:
    """relu(relu1(alpha * x + beta))."""
    a = {"alpha": 0.2, "beta": 0.5, **attrs_of(node)}
    return b.op("Relu", between(b, plus(b, times(b, x_of(node), a["alpha"]), a["beta"]), -1, 1))


def hard_swish(node: ir.Node, b: Builder) -> ir.Value:
    """x * (relu6(x + 3) / 6): in this order a large x stays what it is."""
    x = x_of(node)
    return b.op("Mul", x, times(b, between(b, plus(b, x, 3), 0, 6), 1 / 6))


def elu(node: ir.Node, b: Builder) -> ir.Value:
    """relu(x) + alpha * (exp(-relu(-x)) - 1)."""
    x = x_of(node)
    low = plus(b, b.op("Exp", times(b, negative_part(b, x), -1)), -1)
    return b.op("Add", b.op("Relu", x), times(b, low, attrs_of(node).get("alpha", 1.0)))


def ceil(node: ir.Node, b: Builder) -> ir.Value:
    return times(b, b.op("Floor", times(b, x_of(node), -1)), -1)


def sign(node: ir.Node, b: Builder) -> ir.Value | None:
    x = x_of(node)
    if x.dtype not in FLOATS:
        return None
    zero, kind = b.like(x, 0), int(x.dtype)
    return b.op("Sub", b.op("Cast", b.op("Greater", x, zero), to=kind), b.op("Cast", b.op("Less", x, zero), to=kind))


def cos(node: ir.Node, b: Builder) -> ir.Value:
    return b.op("Sin", plus(b, x_of(node), np.pi / 2))


def hyperbolic(node: ir.Node, b: Builder) -> ir.Value:
    x = x_of(node)
    other = b.op("Exp", times(b, x, -1))
    return times(b, b.op("Sub" if node.op_type == "Sinh" else "Add", b.op("Exp", x), other), 0.5)


_ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def erf(node: ir.Node, b: Builder) -> ir.Value:
    """Abramowitz and Stegun 7.1.26, off by at most 1.5e-7: 1 - t * p(t) * exp(-x^2) with t = 1 / (1 + 0.3275911 |x|)."""
    x = x_of(node)
    size = b.op("Abs", x)
    t = b.op("Div", b.like(x, 1), plus(b, times(b, size, 0.3275911), 1))
    total = times(b, t, _ERF[-1])
    for c in _ERF[-2::-1]:
        total = b.op("Mul", plus(b, total, c), t)
    positive = plus(b, times(b, b.op("Mul", total, b.op("Exp", times(b, b.op("Mul", x, x), -1))), -1), 1)
    return b.op("Where", b.op("Less", x, b.like(x, 0)), times(b, positive, -1), positive)


def is_nan(node: ir.Node, b: Builder) -> ir.Value:
    return b.op("Not", b.op("Equal", x_of(node), x_of(node)))


def lp_normalization(node: ir.Node, b: Builder) -> ir.Value | None:
    a = {"axis": -1, "p": 2, **attrs_of(node)}
    shape = shape_of(x_of(node))
    if shape is None:
        return None
    if a["p"] == 2:
        return b.ext("NormalizeL2", x_of(node), axes=[a["axis"] % len(shape)], eps=1e-12, eps_mode="max")
    return b.op("Div", x_of(node), b.op("ReduceSum", b.op("Abs", x_of(node)), [a["axis"]], keepdims=1))


def plane(node: ir.Node) -> tuple[tuple[int, ...], bool] | None:
    """The shape of a reduction over height and width of a rank-4 float tensor, and whether it keeps them."""
    x = x_of(node)
    shape, axes = shape_of(x), known(node.inputs[1]) if len(node.inputs) > 1 else None
    if shape is None or len(shape) != 4 or axes is None or x.dtype not in FLOATS or sorted(int(a) % 4 for a in axes.reshape(-1)) != [2, 3]:
        return None
    return shape, bool(attrs_of(node).get("keepdims", 1))


def reduce_plane(node: ir.Node, b: Builder) -> ir.Value | None:
    """A pool whose window is the whole plane."""
    found = plane(node)
    if found is None:
        return None
    (n, c, h, w), keep = found
    kind = "MaxPool" if node.op_type == "ReduceMax" else "AveragePool"
    y = b.op(kind, x_of(node), kernel_shape=[h, w])
    if node.op_type == "ReduceSum":
        y = times(b, y, h * w)
    return y if keep else b.op("Reshape", y, [n, c])


def where(node: ir.Node, b: Builder) -> ir.Value | Sequence[ir.Value] | None:
    """All operands in the shape of the result."""
    shape = shape_of(node.outputs[0])
    if shape is None or all(shape_of(v) == shape for v in node.inputs if v is not None):
        return truth(node, b)
    return b.op("Where", *(expanded(b, v, shape) for v in node.inputs if v is not None))


def expanded(b: Builder, value: ir.Value, shape: Sequence[int]) -> ir.Value:
    array = constant(value)
    if array is not None:
        return b.const(np.ascontiguousarray(np.broadcast_to(array, shape)), str(value.name))
    return value if shape_of(value) == tuple(shape) else b.op("Expand", value, list(shape))


def truth(node: ir.Node, b: Builder) -> ir.Value | Sequence[ir.Value] | None:
    """Truth values are moved as 0.0 and 1.0."""
    first = 1 if node.op_type == "Where" else 0
    inputs = list(node.inputs)
    if node.outputs[0].dtype != ir.DataType.BOOL:
        return None
    for i, v in enumerate(inputs):
        if i >= first and v is not None and v.dtype == ir.DataType.BOOL:
            inputs[i] = b.op("Cast", v, to=int(ir.DataType.FLOAT))
    made = b.ops(node.op_type, *inputs, outputs=len(node.outputs), **same_attrs(node))
    return [b.op("Cast", y, to=int(ir.DataType.BOOL)) for y in made]


def gather(node: ir.Node, b: Builder) -> ir.Value | Sequence[ir.Value] | None:
    """Indices of a Gather count from the front."""
    shape, axis, index = shape_of(x_of(node)), attrs_of(node).get("axis", 0), x_of(node, 1)
    if shape is None or counts_from_front(node):
        return truth(node, b)
    return b.op("Gather", x_of(node), from_front(b, index, shape[axis]), axis=axis)


def pad(node: ir.Node, b: Builder) -> ir.Value | None:
    """Modes that repeat elements pick them axis by axis; a negative amount is a Slice."""
    shape, amounts = shape_of(x_of(node)), known(x_of(node, 1))
    mode = attrs_of(node).get("mode", "constant")
    if shape is None or amounts is None:
        return None
    given = known(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] is not None else arange(len(shape))
    if given is None:
        return None
    pairs = {int(a) % len(shape): (int(p), int(q)) for a, p, q in zip(given, *amounts.reshape(2, -1), strict=True)}
    x = x_of(node)
    if mode == "constant":
        return cropped(node, b, x, shape, pairs)
    numpy_mode: Any = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}[mode]
    for axis, (before, after) in pairs.items():
        order = np.pad(arange(shape[axis]), (max(before, 0), max(after, 0)), numpy_mode)
        order = order[max(-before, 0) : len(order) - max(-after, 0)]
        if len(order) != shape[axis] or before:
            x = b.op("Gather", x, order.astype(np.int64), axis=axis)
    return x


def cropped(node: ir.Node, b: Builder, x: ir.Value, shape: Sequence[int], pairs: dict[int, tuple[int, int]]) -> ir.Value | None:
    if all(min(p) >= 0 for p in pairs.values()):
        return truth(node, b)  # type: ignore[return-value]
    axes = list(pairs)
    starts, ends = [max(-pairs[a][0], 0) for a in axes], [shape[a] - max(-pairs[a][1], 0) for a in axes]
    x = b.op("Slice", x, starts, ends, axes)
    amounts = [max(pairs[a][0], 0) for a in axes] + [max(pairs[a][1], 0) for a in axes]
    return b.op("Pad", x, amounts, node.inputs[2] if len(node.inputs) > 2 else None, axes) if any(amounts) else x


def crd(node: ir.Node, b: Builder) -> ir.Value | None:
    """Channels in the order of CRD are brought into that of DCR."""
    shape, block = shape_of(x_of(node)), attrs_of(node)["blocksize"]
    if shape is None or attrs_of(node).get("mode", "DCR") == "DCR":
        return None
    order = arange(shape[1]).reshape(-1, block * block).T.reshape(-1)
    return b.op("DepthToSpace", b.op("Gather", x_of(node), order, axis=1), blocksize=block, mode="DCR")


def either(first: Rewrite, second: Rewrite) -> Rewrite:
    """The first that applies."""

    def both(node: ir.Node, b: Builder) -> ir.Value | Sequence[ir.Value | None] | None:
        found = first(node, b)
        return second(node, b) if found is None else found

    return both


REWRITES: dict[tuple[str, str], Rewrite] = {
    ("", "LeakyRelu"): leaky_relu, ("", "HardSigmoid"): hard_sigmoid, ("", "Ceil"): ceil, ("", "Sign"): either(sign_of_integers, sign), ("", "Cos"): cos,
    ("", "Mod"): remainder, ("", "Sinh"): hyperbolic, ("", "Cosh"): hyperbolic, ("", "IsNaN"): is_nan, ("", "Erf"): erf,
    ("", "LpNormalization"): lp_normalization,
    ("", "Where"): where, ("", "Pad"): pad, ("", "DepthToSpace"): crd,
    **{("", op): truth for op in ("Reshape", "Expand", "Tile", "Split")},
    ("", "Gather"): gather,
    **{("", op): either(rewrite, truth) for op, rewrite in MOVES.items()},
    **{("", op): rewrite for op, rewrite in (*NUMBERS.items(), *INTEGER.items())},
}  # fmt: skip
BELOW_3: dict[tuple[str, str], Rewrite] = {
    ("", "Clip"): clip, ("", "PRelu"): prelu,
    **{("", op): reduce_plane for op in ("ReduceMean", "ReduceMax", "ReduceSum")},
}  # fmt: skip
BELOW_4: dict[tuple[str, str], Rewrite] = {("", "HardSwish"): hard_swish, ("", "Elu"): elu}
