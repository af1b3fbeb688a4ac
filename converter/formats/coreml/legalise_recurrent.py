"""Recurrent operators that have no layer, written as loops over time."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of
from converter.graph.infer import shape_of
from converter.graph.value import optional
from converter.passes.constants import evaluate_constant
from converter.passes.split_directions import split_directions

Value = ir.Value
_FUNCTIONS = {"Sigmoid", "Tanh", "Relu", "Softsign", "Softplus"}


def gru(node: ir.Node, b: Builder) -> list[Value] | None:
    """A GRU whose reset gate comes after the recurrent matrix (as PyTorch has it); two directions
    apart first.

    z = f(x Wz' + h Rz' + bz), r alike, n = g(x Wn' + bn + r * (h Rn' + rbn)), h = (1 - z) * n + z *
    h
    """
    attrs = attrs_of(node)
    if attrs.get("direction") == "bidirectional":
        return split_directions(node, b)
    names = attrs.get("activations") or ["Sigmoid", "Tanh"]
    x, w, r = node.inputs[:3]
    steps = x.shape[0] if x is not None and x.shape is not None else None
    arrays = [evaluate_constant(v) for v in (w, r)]
    given = [optional(node, i) for i in (3, 4, 5)]
    bias = evaluate_constant(given[0]) if given[0] is not None else None
    unknown = (
        any(a is None for a in arrays)
        or (given[0] is not None and bias is None)
        or given[1] is not None
    )
    if (
        not attrs.get("linear_before_reset", 0)
        or x is None
        or not isinstance(steps, int)
        or unknown
        or not set(names) <= _FUNCTIONS
        or attrs.get("clip")
    ):
        return None
    weights, recursion = (np.asarray(a)[0] for a in arrays)
    hidden = recursion.shape[1]
    both = np.zeros((2, 3 * hidden), np.float32) if bias is None else bias.reshape(2, 3 * hidden)
    backwards = attrs.get("direction") == "reverse"
    sequence = b.Slice(x, [-1], [-(1 << 62)], [0], [-1]) if backwards else x
    inputs = (sequence @ b.const(np.ascontiguousarray(weights.T))) + b.const(
        np.ascontiguousarray(both[0])
    )
    start = b.Squeeze(given[2], [0]) if given[2] is not None else _nothing(b, x, hidden)
    states, last = _loop(
        b,
        inputs,
        start,
        np.ascontiguousarray(recursion.T),
        np.ascontiguousarray(both[1]),
        names,
        steps,
    )
    if backwards:
        states = b.Slice(states, [-1], [-(1 << 62)], [0], [-1])
    return [b.Unsqueeze(states, [1]), b.Unsqueeze(last, [0])]


def _nothing(b: Builder, x: Value, hidden: int) -> Value:
    """Zeros [Batch,H] for x [Seq,Batch,I]."""
    size = shape_of(x)
    if size is not None:
        return b.const(np.zeros((size[1], hidden), np.float32))
    return b.ConstantOfShape(b.Concat(b.Shape(x, start=1, end=2), [hidden], axis=0))


def _loop(
    b: Builder, inputs: Value, start: Value, recursion: Any, bias: Any, names: list[str], count: int
) -> tuple[Value, Value]:
    """All states [Seq,Batch,H] and the last one; `inputs` are the gates' shares of x
    [Seq,Batch,3H].
    """
    matrix, constant = b.const(recursion), b.const(bias)
    body = b.body("gru")
    i = body.input("i", ir.DataType.INT64, [])
    keep = body.input("keep", ir.DataType.BOOL, [])
    h = body.input("h", ir.DataType.FLOAT, list(start.shape) if start.shape is not None else None)
    from_x = body.Split(body.Gather(inputs, i, axis=0), outputs=3, axis=-1, num_outputs=3)
    from_h = body.Split(
        body.Add(body.MatMul(h, matrix), constant),
        outputs=3,
        axis=-1,
        num_outputs=3,
    )
    update, reset = (body.op(names[0], body.Add(from_x[k], from_h[k])) for k in (0, 1))
    candidate = body.op(names[1], body.Add(from_x[2], body.Mul(reset, from_h[2])))
    state = body.Add(candidate, body.Mul(update, body.Sub(h, candidate)))
    trips = b.const(np.array(count, np.int64))
    if shape_of(start) is not None:
        body.output(body.Identity(keep), state, body.Identity(state))
        last, steps = b.Loop(trips, None, start, outputs=2, body=body.graph)
        return steps, last
    # what a loop collects has a size known beforehand: of an unknown batch the states are written
    # into a tensor that goes round
    begun = b.ConstantOfShape(b.Concat([count], b.Shape(start), axis=0))
    states = body.input("states", ir.DataType.FLOAT, list(begun.shape or ()))
    body.output(
        body.Identity(keep),
        state,
        body.ScatterND(states, body.Reshape(i, [1, 1]), body.Unsqueeze(state, [0])),
    )
    last, steps = b.Loop(trips, None, start, begun, outputs=2, body=body.graph)
    return steps, last
