"""LSTM, GRU and RNN written with simpler operators: the products with the data at once, then one
time step after the other in matrix products and activations.

before:  Y, Y_h = GRU(X[3,B,I], ..)
after:   P = MatMul(X, W); h1 = step(P[0], h0); h2 = step(P[1], h1); h3 = step(P[2], h2)
         Y = Concat(h1, h2, h3)

Source: ONNX operators LSTM, GRU, RNN (opset 14). After its end, a shorter sequence keeps its state
and its outputs are zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of, writing
from converter.graph.infer import constant, shape_of
from converter.graph.value import Value, array_type, known_sizes, operands
from converter.record import record

Function = Callable[[Builder, Value], Value]
# A function that writes one time step: the builder, the products with the data [batch, gates], the
# states [batch, size] -> the new states, of which the first is the output.
Step = Callable[[Builder, Value, Sequence[Value]], list[Value]]
DEFAULT_ACTIVATIONS = {
    "LSTM": ["Sigmoid", "Tanh", "Tanh"],
    "GRU": ["Sigmoid", "Tanh"],
    "RNN": ["Tanh"],
}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
# alpha and beta of activations that have them
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


@record
class Recurrent:
    """One of the three operators: its name, attributes and operands (X, W, R, B, sequence_lens,
    initial_h, initial_c, P), None for those that are left out.

    `cell_clip` limits the cell state to +-cell_clip; 0 means no limit.
    """

    kind: str
    attrs: dict[str, Any]
    operands: Sequence[Value | None]
    cell_clip: float = 0.0

    @classmethod
    def of(cls, node: ir.Node) -> Recurrent:
        """Return the view of a recurrent node: its attributes and its eight operands."""
        return cls(node.op_type, attrs_of(node), operands(node, 8))


@record
class Direction:
    """One direction of an operator, with time as the first axis.

    `rows`      the products of the data with the weights of all gates, [time, batch, gates]
    `states`    the initial states, [batch, size]
    `lengths`   the lengths of the sequences; None if all have the full length
    `step`      writes one time step
    `backward`  whether time is reversed
    """

    rows: Value
    states: list[Value]
    lengths: Value | None
    step: Step
    backward: bool


# writes all time steps: Y [time, batch, size], then the final states
Steps = Callable[[Builder, Direction], Sequence[Value]]


@writing
def written(b: Builder, *, layer: Recurrent, steps: Steps) -> list[Value] | None:
    """Return Y, Y_h and for an LSTM Y_c as the operator does; None if an activation is unknown."""
    functions, (x, w, r, *_) = gate_functions(layer.kind, layer.attrs), layer.operands
    if functions is None or x is None or w is None or r is None or shape_of(r) is None:
        return None
    batch_first = bool(layer.attrs.get("layout", 0))
    x = b.Transpose(x, perm=[1, 0, 2]) if batch_first else x
    ways = [_direction(b, layer, x, d, own) for d, own in enumerate(functions)]
    begun = [v for v in layer.operands[5:7] if v is not None]
    found = [_without_steps(b, way, steps(b, way)) if begun else steps(b, way) for way in ways]
    y, *ends = zip(*found, strict=True)
    results = [_joined(b, y, 1), *(_joined(b, v, 0) for v in ends)]
    if batch_first:
        orders = [[2, 0, 1, 3], *[[1, 0, 2]] * len(ends)]
        results = [b.Transpose(v, perm=p) for v, p in zip(results, orders, strict=True)]
    return results


def _without_steps(b: Builder, way: Direction, found: Sequence[Value]) -> Sequence[Value]:
    """Set the final states of empty sequences to zeros and ignore the initial states.

    The specification does not define them; onnxruntime and OpenVINO return zeros.
    """
    lengths = constant(way.lengths)
    if way.lengths is None or (lengths is not None and (lengths > 0).all()):
        return found
    y, *ends = found
    some = b.Unsqueeze(way.lengths > 0, [1])
    return [y, *(b.Where(some, v, b.like(v, 0)) for v in ends)]


def _direction(
    b: Builder, layer: Recurrent, x: Value, d: int, functions: list[Function]
) -> Direction:
    """Return direction `d` of a layer with data x [time, batch, features]."""
    attrs, (_, w, r, bias, lengths, *states, peepholes) = layer.attrs, layer.operands
    assert w is not None and r is not None
    _, _, size = shape_of(r) or (0, 0, 0)

    def cut(value: Value | None, count: int, width: int) -> list[Value | None]:
        if value is None:
            return [None] * count
        whole = entry(b, value, d)
        return [b.Slice(whole, [i * width], [(i + 1) * width], [0]) for i in range(count)]

    of_data, of_state = cut(bias, 2, _GATES[layer.kind] * size)
    peeps = None if peepholes is None else [v for v in cut(peepholes, 3, size) if v is not None]
    cell = _Cell(size, entry(b, r, d, True), of_state, peeps, functions, attrs, layer.cell_clip)
    whole, time = constant(lengths), (known_sizes(x) or [None])[0]
    return Direction(
        _products(b, x, entry(b, w, d, True), of_data),
        [
            _initial(b, v, d, x, size, bool(attrs.get("layout", 0)))
            for v in states[: 2 if layer.kind == "LSTM" else 1]
        ],
        None if whole is not None and (whole == time).all() else lengths,
        _STEPS[layer.kind](b, cell),
        d == 1 or attrs.get("direction", "forward") == "reverse",
    )


def unrolled(b: Builder, way: Direction) -> list[Value]:
    """Write all time steps, whose number must be known, one after the other."""
    time, results = (known_sizes(way.rows) or [None])[0] or 0, {}
    states: Sequence[Value] = way.states
    for t in reversed(range(time)) if way.backward else range(time):
        new = way.step(b, b.Squeeze(way.rows[t : t + 1], [0]), states)
        states, y = _within(b, way, t, new, states)
        results[t] = b.Unsqueeze(y, [0])
    y = results[0] if time == 1 else b.Concat(*(results[t] for t in range(time)), axis=0)
    return [y, *states]


def in_a_loop(b: Builder, way: Direction) -> list[Value]:
    """Write a Loop over the time steps."""
    (time, *_) = known_sizes(way.rows) or (None,)
    steps = b.Gather(b.Shape(way.rows), 0) if time is None else b.const(time)
    with b.loop(steps, *way.states) as body:
        t = steps - 1 - body.iteration if way.backward else body.iteration
        new = way.step(body, body.Gather(way.rows, t, axis=0), body.states)
        states, y = _within(body, way, body.Cast(t, to=ir.DataType.INT32), new, body.states)
        *ends, y = body.end(*states, y)
    return [y[::-1] if way.backward else y, *ends]


def _within(
    b: Builder, way: Direction, t: Value | int, new: Sequence[Value], old: Sequence[Value]
) -> tuple[Sequence[Value], Value]:
    """Return the states after time step `t`, and its output.

    After the end of a sequence, the states are unchanged and the output is zero.
    """
    if way.lengths is None:
        return new, new[0]
    here = b.Unsqueeze(way.lengths > t, [1])
    states = [b.Where(here, n, o) for n, o in zip(new, old, strict=True)]
    return states, b.Where(here, new[0], 0)


def entry(b: Builder, value: ir.Value, d: int, transposed: bool = False) -> Value:
    """Return entry `d` along axis 0, without that axis; matrices are transposed if `transposed`."""
    array = constant(value)
    if array is not None:
        return b.const(
            np.ascontiguousarray(array[d].T if transposed else array[d]), str(value.name)
        )
    part = b.Squeeze(b.Slice(value, [d], [d + 1], [0]), [0])
    return b.Transpose(part, perm=[1, 0]) if transposed else part


def _products(b: Builder, x: Value, w: Value, bias: Value | None) -> Value:
    """Return x [time, batch, features] @ w + bias, as a single matrix product if the sizes are
    known.
    """
    shape, width = shape_of(x), shape_of(w)
    if shape is None or width is None:
        return plus(x @ w, bias)
    rows = plus(b.Reshape(x, [math.prod(shape[:2]), shape[2]]) @ w, bias)
    return b.Reshape(rows, [*shape[:2], width[1]])


def _initial(
    b: Builder, given: Value | None, d: int, like: Value, size: int, batch_first: bool
) -> Value:
    """Return the initial state [batch, size] of direction `d`: by default zeros, with the batch
    size of `like` [time, batch, ...].
    """
    if given is not None:
        state = entry(b, b.Transpose(given, perm=[1, 0, 2]) if batch_first else given, d)
        return with_batch_of(state, like)
    shape = shape_of(like)
    if shape is not None:
        return b.const(np.zeros((shape[1], size), array_type(like)))
    return b.Expand(b.like(like, 0), b.Concat(b.Shape(like)[1:2], [size], axis=0))


def with_batch_of(state: Value, x: ir.Value) -> Value:
    """Name the dynamic batch of an initial state [batch, size] as that of the data [time, batch,
    ...], which the operators demand to be equal.
    """
    if state.shape is None or x.shape is None or isinstance(state.shape[0], int):
        return state
    batch = x.shape[1]
    if isinstance(batch, int) or batch.value is not None:
        state.shape = ir.Shape([batch, *state.shape[1:]])
    return state


def _joined(b: Builder, ways: Sequence[Value], axis: int) -> Value:
    """Stack the results of the directions along a new axis."""
    parts = [b.Unsqueeze(v, [axis]) for v in ways]
    return parts[0] if len(parts) == 1 else b.Concat(*parts, axis=axis)


@record
class _Cell:
    """The constants of a time step: the recurrent weights, transposed for multiplication from the
    left, the biases and peepholes, and the activations of the gates.
    """

    size: int
    r: Value
    bias: Value | None
    peepholes: list[Value] | None
    functions: list[Function]
    attrs: dict[str, Any]
    clip: float

    def of_state(self, h: Value) -> Value:
        """Return the contribution of the state to all gates."""
        return plus(h @ self.r, self.bias)


def _lstm(_b: Builder, cell: _Cell) -> Step:
    coupled = bool(cell.attrs.get("input_forget", 0))

    def step(b: Builder, row: Value, states: Sequence[Value]) -> list[Value]:
        h, c = states
        total = row + cell.of_state(h)
        return lstm_gates(
            b, total, c, cell.size, cell.functions, cell.peepholes, coupled, cell.clip
        )

    return step


@writing
def lstm_gates(
    b: Builder,
    total: Value,
    c: Value,
    size: int,
    functions: Sequence[Function],
    peepholes: Sequence[Value] | None,
    coupled: bool,
    cell_clip: float = 0.0,
) -> list[Value]:
    """Return the next state and cell, [batch, size], from the sums of the gates in the order i, o,
    f, c; peepholes are i, o, f.
    """
    f, g, out = functions
    i, o, forget, new = (_gate(b, total, size, k) for k in range(4))
    p = peepholes
    i = f(b, i if p is None else i + p[0] * c)
    forget = 1 - i if coupled else f(b, forget if p is None else forget + p[2] * c)
    c = clipped(b, forget * c + i * g(b, new), cell_clip)
    o = f(b, o if p is None else o + p[1] * c)
    return [o * out(b, c), c]


def _gate(b: Builder, x: Value, size: int, i: int) -> Value:
    return b.Slice(x, [i * size], [(i + 1) * size], [1])


def _gru(b: Builder, cell: _Cell) -> Step:
    """Write a GRU with gates in the order z, r, h.

    Weights and biases are sliced once for all time steps.
    """
    (f, g), size, linear = cell.functions, cell.size, cell.attrs.get("linear_before_reset", 0)
    ends = ((0, 2 * size), (2 * size, 3 * size))
    z_r, last = (b.Slice(cell.r, [start], [end], [1]) for start, end in ends)
    first, rest = (
        None if cell.bias is None else b.Slice(cell.bias, [start], [end], [0])
        for start, end in ends
    )

    def step(b: Builder, row: Value, states: Sequence[Value]) -> list[Value]:
        (h,) = states
        both = cell.of_state(h) if linear else plus(h @ z_r, first)
        update, reset = (f(b, _gate(b, row, size, k) + _gate(b, both, size, k)) for k in (0, 1))
        inner = reset * _gate(b, both, size, 2) if linear else plus(reset * h @ last, rest)
        candidate = g(b, _gate(b, row, size, 2) + inner)
        return [candidate + update * (h - candidate)]

    return step


def _rnn(_b: Builder, cell: _Cell) -> Step:
    return lambda b, row, states: [cell.functions[0](b, row + cell.of_state(states[0]))]


_STEPS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


def plus(x: Value, y: Value | None) -> Value:
    """Return x + y, or x if y is None."""
    return x if y is None else x + y


def clipped(b: Builder, x: Value, limit: float) -> Value:
    """Clip x to -limit..limit; a limit of 0 means no limit."""
    return b.Clip(x, -limit, limit) if limit > 0 else x


def gate_functions(kind: str, attrs: dict[str, Any]) -> list[list[Function]] | None:
    """Return the activations of each direction; None if one of them is unknown.

    Alphas and betas are assigned in order to the activations that have them; missing ones have
    defaults.
    """
    ways = 2 if attrs.get("direction") == "bidirectional" else 1
    names = list(attrs.get("activations") or DEFAULT_ACTIVATIONS[kind] * ways)
    if len(names) != len(DEFAULT_ACTIVATIONS[kind]) * ways or not set(names) <= _KNOWN:
        return None
    alphas, betas, clip = (
        iter(attrs.get("activation_alpha") or ()),
        iter(attrs.get("activation_beta") or ()),
        float(attrs.get("clip") or 0),
    )
    count = len(DEFAULT_ACTIVATIONS[kind])
    # the last function of an LSTM is applied to the cell state, which engines do not clip
    made = [
        _function(name, _parameters(name, alphas, betas), 0.0 if i % count == 2 else clip)
        for i, name in enumerate(names)
    ]
    return [made[d * count : (d + 1) * count] for d in range(ways)]


def _parameters(name: str, alphas: Iterator[float], betas: Iterator[float]) -> dict[str, Any]:
    found: dict[str, Any] = {"alpha": next(alphas, _ALPHA[name])} if name in _ALPHA else {}
    return {**found, **({"beta": next(betas, _BETA[name])} if name in _BETA else {})}


def _function(name: str, p: dict[str, Any], clip: float) -> Function:
    """Return the activation; `clip` limits its input."""

    def apply(b: Builder, x: Value) -> Value:
        x = clipped(b, x, clip)
        if name == "Affine":
            return x * float(p["alpha"]) + float(p["beta"])
        if name == "ScaledTanh":
            return b.Tanh(x * float(p["beta"])) * float(p["alpha"])
        y: Value = b.operator(name)(x, **p)
        return y

    return apply
