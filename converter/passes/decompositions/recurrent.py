"""Recurrent operators written out: the products with the data at once, then step after step in
matrix products and activations.

before:  Y, Y_h = GRU(X[3,B,I], ..)      after:  P = MatMul(X, W); h1 = step(P[0], h0); h2 =
step(P[1], h1); h3 = step(P[2], h2); Y = Concat(h1, h2, h3)

Source: ONNX operators LSTM, GRU, RNN (opset 14). A sequence that is shorter than others keeps its
state behind its end and gives zeros there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attrs_of, writing
from converter.graph.infer import constant, shape_of
from converter.graph.value import optional, with_operators
from converter.passes.decompositions.table import Table

MOST_STEPS = 1000
FEW_STEPS = 4
Function = Callable[[Builder, Value], Value]
Step = Callable[[Value, list[Value]], list[Value]]
_DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
# alpha and beta of those activations that have them
_ALPHA = {
    "Affine": 1.0,
    "LeakyRelu": 0.01,
    "ThresholdedRelu": 1.0,
    "ScaledTanh": 1.0,
    "HardSigmoid": 0.2,
    "Elu": 1.0,
}
_BETA = {"Affine": 0.0, "ScaledTanh": 1.0, "HardSigmoid": 0.5}
_KNOWN = {"Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", *_ALPHA}


@dataclass(frozen=True)
class Cell:
    """One direction: weights turned for products from the left, what is added behind them, and the
    functions of its gates.
    """

    b: Builder
    size: int
    w: Value
    r: Value
    from_data: Value | None
    from_state: Value | None
    peepholes: list[Value] | None
    functions: list[Function]

    def gate(self, x: Value, i: int) -> Value:
        return gate(self.b, x, self.size, i)

    def plus(self, x: Value, y: Value | None) -> Value:
        return x if y is None else self.b.Add(x, y)


def recurrent(node: ir.Node, b: Builder) -> Sequence[Value] | None:
    """All steps one behind the other."""
    return _written(node, b, _direction, MOST_STEPS)


def looped(node: ir.Node, b: Builder) -> Sequence[Value] | None:
    """More than a few steps as a Loop, whose body is one of them."""
    shape = shape_of(node.inputs[0]) if node.inputs[0] is not None else None
    time = 1 if attrs_of(node).get("layout", 0) else 0
    if shape is None or shape[time] <= FEW_STEPS:
        return None
    return _written(node, b, _in_a_loop, shape[time])


def _written(
    node: ir.Node, b: Builder, direction: Callable[..., list[Value]], most: int
) -> Sequence[Value] | None:
    a = attrs_of(node)
    x = node.inputs[0]
    if x is None or x.dtype is None or not x.dtype.is_floating_point():
        return None
    x = b.Transpose(x, perm=[1, 0, 2]) if a.get("layout", 0) else with_operators(x)
    shape, weights = shape_of(x), None if node.inputs[2] is None else shape_of(node.inputs[2])
    if shape is None or weights is None or not 0 < shape[0] <= most or 0 in shape:
        return None
    ways, found = weights[0], []
    functions = gate_functions(node.op_type, a, ways)
    if functions is None:
        return None
    for d in range(ways):
        backward = d == 1 or a.get("direction", "forward") == "reverse"
        cell = _cell(node, b, d, weights[2], functions[d])
        found.append(
            direction(
                node,
                cell,
                x,
                shape,
                d,
                backward,
                bool(a.get("layout", 0)),
                lambda cell: _step(node.op_type, a, cell),
            )
        )
    y = _joined(b, [b.Unsqueeze(f[0], [1]) for f in found], 1)
    ends = [_joined(b, [b.Unsqueeze(f[i], [0]) for f in found], 0) for i in range(1, len(found[0]))]
    if a.get("layout", 0):
        y, ends = (
            b.Transpose(y, perm=[2, 0, 1, 3]),
            [b.Transpose(v, perm=[1, 0, 2]) for v in ends],
        )
    return [y, *ends][: len(node.outputs)]


def entry(b: Builder, value: ir.Value, d: int, turned: bool = False) -> Value:
    """Entry `d` of axis 0 without that axis; matrices may be turned."""
    array = constant(value)
    if array is not None:
        return b.const(np.ascontiguousarray(array[d].T if turned else array[d]), str(value.name))
    shape = shape_of(value) or ()
    part = b.Reshape(b.Slice(value, [d], [d + 1], [0]), list(shape[1:]))
    return b.Transpose(part, perm=[1, 0]) if turned else part


def _cell(node: ir.Node, b: Builder, d: int, size: int, functions: list[Function]) -> Cell:
    w, r, bias, peepholes = (optional(node, i) for i in (1, 2, 3, 7))
    assert w is not None and r is not None
    gates = _GATES[node.op_type]
    from_data = from_state = peeps = None
    if bias is not None:
        both = entry(b, bias, d)
        from_data, from_state = (
            b.Slice(both, [i * gates * size], [(i + 1) * gates * size], [0]) for i in (0, 1)
        )
    if peepholes is not None:
        all_three = entry(b, peepholes, d)
        peeps = [b.Slice(all_three, [i * size], [(i + 1) * size], [0]) for i in range(3)]
    return Cell(
        b, size, entry(b, w, d, True), entry(b, r, d, True), from_data, from_state, peeps, functions
    )


def _direction(
    node: ir.Node,
    cell: Cell,
    x: Value,
    shape: Sequence[int],
    d: int,
    backward: bool,
    batch_first: bool,
    step_of: Callable[[Cell], Step],
) -> list[Value]:
    """Y [time, batch, size], then the states behind the last step, [batch, size] each."""
    b, (steps, batch, _), step = cell.b, shape, step_of(cell)
    rows, states = _begun(node, cell, x, shape, d, batch_first)
    lengths, results = _lengths(node, steps), {}
    for t in range(steps - 1, -1, -1) if backward else range(steps):
        row = b.Reshape(b.Slice(rows, [t], [t + 1], [0]), [batch, _GATES[node.op_type] * cell.size])
        new = step(row, states)
        if lengths is None:
            states, y = new, new[0]
        else:
            here = b.Reshape(lengths > t, [batch, 1])
            states, y = (
                [b.Where(here, n, old) for n, old in zip(new, states, strict=True)],
                b.Where(here, new[0], b.like(row, 0)),
            )
        results[t] = b.Reshape(y, [1, batch, cell.size])
    return [_joined(b, [results[t] for t in range(steps)], 0), *states]


def _begun(
    node: ir.Node, cell: Cell, x: Value, shape: Sequence[int], d: int, batch_first: bool
) -> tuple[Value, list[Value]]:
    """The products with the data, [time, batch, gates], and the first states."""
    b, (steps, batch, features), gates = cell.b, shape, _GATES[node.op_type]
    flat = b.Reshape(x, [steps * batch, features]) @ cell.w
    rows = b.Reshape(cell.plus(flat, cell.from_data), [steps, batch, gates * cell.size])
    places = (5, 6) if node.op_type == "LSTM" else (5,)
    return rows, [_initial(node, cell, i, d, batch, batch_first) for i in places]


def _in_a_loop(
    node: ir.Node,
    cell: Cell,
    x: Value,
    shape: Sequence[int],
    d: int,
    backward: bool,
    batch_first: bool,
    step_of: Callable[[Cell], Step],
) -> list[Value]:
    """The same as `_direction`."""
    b, (steps, batch, _) = cell.b, shape
    rows, states = _begun(node, cell, x, shape, d, batch_first)
    lengths, body = _lengths(node, steps), b.body("step")
    with body:
        turn = body.input("turn", ir.DataType.INT64, [])
        again = body.input("again", ir.DataType.BOOL, [])
        old = [
            body.input("state", v.dtype or ir.DataType.FLOAT, [batch, cell.size]) for v in states
        ]
        place = np.int64(steps - 1) - turn if backward else turn
        new = step_of(replace(cell, b=body))(body.Gather(rows, place, axis=0), old)
        y = new[0]
        if lengths is not None:
            here = body.Reshape(body.Cast(lengths, to=int(ir.DataType.INT64)) > place, [batch, 1])
            y = body.Where(here, y, body.like(y, 0))
            new = [body.Where(here, n, o) for n, o in zip(new, old, strict=True)]
        body.output(again, *new, y)
    *ends, stacked = b.Loop(steps, None, *states, body=body.graph, outputs=len(old) + 1)
    if backward:
        stacked = b.Slice(stacked, [-1], [np.iinfo(np.int64).min + 1], [0], [-1])
    return [stacked, *ends]


def _initial(node: ir.Node, cell: Cell, index: int, d: int, batch: int, batch_first: bool) -> Value:
    given, b = optional(node, index), cell.b
    if given is None:
        dtype = cell.w.dtype
        return b.const(np.zeros((batch, cell.size), np.float32 if dtype is None else dtype.numpy()))
    return entry(b, b.Transpose(given, perm=[1, 0, 2]) if batch_first else given, d)


def _lengths(node: ir.Node, steps: int) -> Value | None:
    """None where every sequence takes all steps."""
    lengths = optional(node, 4)
    array = constant(lengths)
    return None if lengths is None or (array is not None and (array == steps).all()) else lengths


def _joined(b: Builder, parts: list[Value], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else b.Concat(*parts, axis=axis)


def _step(kind: str, a: dict[str, Any], cell: Cell) -> Step:
    if kind == "LSTM":
        return lambda row, states: _lstm(
            cell, row, states[0], states[1], bool(a.get("input_forget", 0))
        )
    if kind == "GRU":
        return _gru(cell, bool(a.get("linear_before_reset", 0)))
    return lambda row, states: [cell.functions[0](cell.b, cell.plus(row, _behind(cell, states[0])))]


def _behind(cell: Cell, h: Value) -> Value:
    """The part of the state in all gates."""
    return cell.plus(cell.b.MatMul(h, cell.r), cell.from_state)


def _lstm(cell: Cell, row: Value, h: Value, c: Value, coupled: bool) -> list[Value]:
    return lstm_gates(
        cell.b,
        cell.plus(row, _behind(cell, h)),
        c,
        cell.size,
        cell.functions,
        cell.peepholes,
        coupled,
    )


@writing
def lstm_gates(
    b: Builder,
    total: Value,
    c: Value,
    size: int,
    functions: Sequence[Function],
    peepholes: Sequence[Value] | None,
    coupled: bool,
) -> list[Value]:
    """The next state and cell, [batch, size], from the sums that go into the gates, in the order i,
    o, f, c; peepholes i, o, f.
    """
    f, g, out = functions
    i, o, forget, new = (gate(b, total, size, k) for k in range(4))
    p = peepholes
    i = f(b, i if p is None else i + p[0] * c)
    forget = 1 - i if coupled else f(b, forget if p is None else forget + p[2] * c)
    c = forget * c + i * g(b, new)
    o = f(b, o if p is None else o + p[1] * c)
    return [o * out(b, c), c]


def gate(b: Builder, x: Value, size: int, i: int) -> Value:
    return b.Slice(x, [i * size], [(i + 1) * size], [1])


def _gru(cell: Cell, linear: bool) -> Step:
    """Gates in the order z, r, h. What is cut from weights and biases is cut once for all steps."""
    b, (f, g) = cell.b, cell.functions
    z_r, last = [
        b.Slice(cell.r, [k * cell.size], [end * cell.size], [1]) for k, end in ((0, 2), (2, 3))
    ]
    first, rest = (
        None
        if cell.from_state is None
        else b.Slice(cell.from_state, [k * cell.size], [end * cell.size], [0])
        for k, end in ((0, 2), (2, 3))
    )

    def step(row: Value, states: list[Value]) -> list[Value]:
        (h,) = states
        both = _behind(cell, h) if linear else cell.plus(h @ z_r, first)
        update, reset = (f(b, cell.gate(row, k) + cell.gate(both, k)) for k in (0, 1))
        inner = reset * cell.gate(both, 2) if linear else cell.plus(reset * h @ last, rest)
        candidate = g(b, cell.gate(row, 2) + inner)
        return [candidate + update * (h - candidate)]

    return step


def gate_functions(kind: str, a: dict[str, Any], ways: int) -> list[list[Function]] | None:
    """The activations of each direction.

    Alphas and betas go to those that have some, in order; what is left out has its default.
    """
    names = list(a.get("activations") or _DEFAULTS[kind] * ways)
    if len(names) != len(_DEFAULTS[kind]) * ways or not set(names) <= _KNOWN:
        return None
    alphas, betas, clip = (
        iter(a.get("activation_alpha") or ()),
        iter(a.get("activation_beta") or ()),
        float(a.get("clip") or math.inf),
    )
    count = len(_DEFAULTS[kind])
    # what the last function of an LSTM takes is the cell state, which engines do not clip
    made = [
        _function(name, _parameters(name, alphas, betas), math.inf if i % count == 2 else clip)
        for i, name in enumerate(names)
    ]
    return [made[d * count : (d + 1) * count] for d in range(ways)]


def _parameters(name: str, alphas: Iterator[float], betas: Iterator[float]) -> dict[str, Any]:
    found: dict[str, Any] = {"alpha": next(alphas, _ALPHA[name])} if name in _ALPHA else {}
    return {**found, **({"beta": next(betas, _BETA[name])} if name in _BETA else {})}


def _function(name: str, p: dict[str, Any], clip: float) -> Function:
    """`clip` bounds what goes in."""

    def apply(b: Builder, x: Value) -> Value:
        x = x if math.isinf(clip) else b.Clip(x, b.like(x, -clip), b.like(x, clip))
        if name == "Affine":
            return x * float(p["alpha"]) + float(p["beta"])
        if name == "ScaledTanh":
            return b.Tanh(x * float(p["beta"])) * float(p["alpha"])
        y: Value = b.operator(name)(x, **p)
        return y

    return apply


TABLE: Table = {
    ("", "LSTM"): recurrent,
    ("", "GRU"): recurrent,
    ("", "RNN"): recurrent,
}
