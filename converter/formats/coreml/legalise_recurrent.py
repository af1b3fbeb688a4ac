"""Recurrent operators that have no layer, written as loops over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of
from converter.graph.infer import Array, shape_of
from converter.graph.value import Value, operand, optional
from converter.passes.constants import evaluate_constant
from converter.passes.split_directions import split_directions

_FUNCTIONS = {"Sigmoid", "Tanh", "Relu", "Softsign", "Softplus"}


def gru(node: ir.Node, b: Builder) -> Sequence[ir.Value] | None:
    """A GRU whose reset gate comes after the recurrent matrix (as PyTorch has it); two directions
    apart first.

    z = f(x Wz' + h Rz' + bz), r alike, n = g(x Wn' + bn + r * (h Rn' + rbn)), h = (1 - z) * n + z *
    h
    """
    attrs, x = attrs_of(node), operand(node)
    if attrs.get("direction") == "bidirectional":
        return split_directions(node, b)
    names = attrs.get("activations") or ["Sigmoid", "Tanh"]
    plain = attrs.get("linear_before_reset", 0) and not attrs.get("clip")
    steps = x.shape[0] if x.shape is not None else None
    if not plain or not set(names) <= _FUNCTIONS or not isinstance(steps, int):
        return None
    w, r, bias = (evaluate_constant(optional(node, i)) for i in (1, 2, 3))
    computed = bias is None and optional(node, 3) is not None
    if w is None or r is None or computed or optional(node, 4) is not None:
        return None
    hidden = r.shape[2]
    both = np.zeros((2, 3 * hidden), np.float32) if bias is None else bias.reshape(2, -1)
    backwards = attrs.get("direction") == "reverse"
    shares = (reversed_time(b, x) if backwards else x) @ _constant(b, w[0].T)
    given = optional(node, 5)
    start = _nothing(b, x, hidden) if given is None else b.Squeeze(given, [0])
    recursion, constant = _constant(b, r[0].T), _constant(b, both[1])
    inputs = shares + _constant(b, both[0])
    states, last = _loop(b, inputs, start, recursion, constant, names, steps)
    states = reversed_time(b, states) if backwards else states
    return [b.Unsqueeze(states, [1]), b.Unsqueeze(last, [0])]


def reversed_time(b: Builder, x: Value) -> Value:
    return x[::-1]


def _constant(b: Builder, array: Array) -> Value:
    return b.const(np.ascontiguousarray(array))


def _nothing(b: Builder, x: Value, hidden: int) -> Value:
    """Zeros [Batch,H] for x [Seq,Batch,I]."""
    size = shape_of(x)
    if size is not None:
        return b.const(np.zeros((size[1], hidden), np.float32))
    return b.ConstantOfShape(b.Concat(b.Shape(x, start=1, end=2), [hidden], axis=0))


def _loop(
    b: Builder,
    inputs: Value,
    start: Value,
    recursion: Value,
    bias: Value,
    names: list[str],
    count: int,
) -> tuple[Value, Value]:
    """All states [Seq,Batch,H] and the last one; `inputs` are the gates' shares of x
    [Seq,Batch,3H].
    """
    body = b.body("gru")
    i = body.input("i", ir.DataType.INT64, [])
    keep = body.input("keep", ir.DataType.BOOL, [])
    h = body.input("h", ir.DataType.FLOAT, list(start.shape) if start.shape is not None else None)
    with body:
        of_x, of_h = (
            body.Split(v, outputs=3, axis=-1, num_outputs=3)
            for v in (body.Gather(inputs, i, axis=0), h @ recursion + bias)
        )
        update, reset = (body.op(names[0], of_x[k] + of_h[k]) for k in (0, 1))
        candidate = body.op(names[1], of_x[2] + reset * of_h[2])
        state = candidate + update * (h - candidate)
    trips = b.const(count)
    if shape_of(start) is not None:
        body.output(body.Identity(keep), state, body.Identity(state))
        last, steps = b.Loop(trips, None, start, outputs=2, body=body.graph)
        return steps, last
    # what a loop collects has a size known beforehand: of an unknown batch the states are written
    # into a tensor that goes round
    begun = b.ConstantOfShape(b.Concat([count], b.Shape(start), axis=0))
    states = body.input("states", ir.DataType.FLOAT, list(begun.shape or ()))
    written = body.ScatterND(states, body.Reshape(i, [1, 1]), body.Unsqueeze(state, [0]))
    body.output(body.Identity(keep), state, written)
    last, steps = b.Loop(trips, None, start, begun, outputs=2, body=body.graph)
    return steps, last
