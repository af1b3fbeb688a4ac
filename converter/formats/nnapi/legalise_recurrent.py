"""Recurrent operators: directions one by one; GRU, which NNAPI does not have, and LSTM for TensorFlow Lite, whose own keeps its state, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of
from converter.graph.infer import constant, shape_of
from converter.mapping.node import MappingError
from converter.passes.legalise import Rewrite

Step = Callable[[ir.Value, list[ir.Value]], list[ir.Value]]
_FIRST = int(np.iinfo(np.int64).min) + 1
MOST_STEPS = 1000


def part(b: Builder, value: ir.Value | None, d: int) -> ir.Value | None:
    """Entry `d` of axis 0, kept as an axis of length 1."""
    array = constant(value)
    if value is None or array is not None:
        return None if array is None else b.const(array[d : d + 1], str(value.name) if value is not None else "part")
    return b.op("Slice", value, [d], [d + 1], [0])


def reversed_time(b: Builder, x: ir.Value) -> ir.Value:
    return b.op("Slice", x, [-1], [_FIRST], [0], [-1])


def directions(node: ir.Node, b: Builder) -> Sequence[ir.Value | None] | None:
    """Each direction is a forward operator, the second on reversed time."""
    attributes = attrs_of(node)
    direction = attributes.get("direction", "forward")
    x = node.inputs[0]
    if x is None or direction == "forward":
        return {"GRU": gru, "RNN": rnn}.get(node.op_type, lambda n, b: None)(node, b)
    count = 2 if direction == "bidirectional" else 1
    found = [_direction(node, b, x, d, count, direction == "reverse" or d == 1) for d in range(count)]
    if count == 1:
        return found[0]
    return [b.op("Concat", *(f[k] for f in found), axis=1 if k == 0 else 0) for k in range(len(node.outputs))]


def _direction(node: ir.Node, b: Builder, x: ir.Value, d: int, count: int, backward: bool) -> list[ir.Value]:
    attributes: dict[str, Any] = {k: v for k, v in attrs_of(node).items() if k != "direction"}
    names = attributes.get("activations")
    if names:
        size = len(names) // count
        attributes["activations"] = list(names[d * size : (d + 1) * size])
    inputs = [v if i in (0, 4) else part(b, v, d) for i, v in enumerate(node.inputs)]
    inputs[0] = reversed_time(b, x) if backward else x
    results = list(b.ops(node.op_type, *inputs, outputs=len(node.outputs), **attributes))
    if backward:
        results[0] = reversed_time(b, results[0])
    return results


def whole(node: ir.Node, steps: int) -> None:
    """MappingError when sequences have lengths of their own or another layout."""
    lengths = node.inputs[4] if len(node.inputs) > 4 else None
    array = constant(lengths)
    if (lengths is not None and (array is None or (array != steps).any())) or attrs_of(node).get("layout", 0):
        raise MappingError("sequences of different lengths, or batch first, are not possible")


def gru(node: ir.Node, b: Builder) -> list[ir.Value | None] | None:
    """The products with the input all at once, then one step after the other."""
    x, shape = node.inputs[0], None if node.inputs[0] is None else shape_of(node.inputs[0])
    w, r = constant(node.inputs[1]), constant(node.inputs[2])
    a = attrs_of(node)
    bias = constant(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] is not None else None
    if (
        x is None
        or shape is None
        or w is None
        or r is None
        or a.get("activations") not in (None, ["Sigmoid", "Tanh"])
        or a.get("clip")
        or shape[0] > MOST_STEPS
    ):
        return None
    whole(node, shape[0])
    size = r.shape[2]
    offsets = np.zeros((2, 3 * size), w.dtype) if bias is None else bias.reshape(2, 3 * size)
    product = b.op("Add", b.op("MatMul", x, b.const(w[0].T)), b.const(offsets[0]))
    linear = bool(a.get("linear_before_reset", 0))
    return _steps(node, b, product, shape, size, lambda row, now: [_gru_step(b, row, now[0], r[0], offsets[1], size, linear)])


def _steps(node: ir.Node, b: Builder, product: ir.Value, shape: Sequence[int], size: int, step: Step, states: int = 1) -> list[ir.Value | None]:
    """Y and the last states of a cell, of which the first is the result; `product` [time, batch, gates * size] is the part of the input."""
    zeros = np.zeros((shape[1], size), product.dtype.numpy() if product.dtype is not None else np.float32)
    given = [*node.inputs[5 : 5 + states], *[None] * states][:states]
    now = [b.const(zeros) if v is None else b.op("Reshape", v, [shape[1], size]) for v in given]
    width = (shape_of(product) or (0,))[-1]
    results = []
    for t in range(shape[0]):
        now = step(b.op("Reshape", b.op("Slice", product, [t], [t + 1], [0]), [shape[1], width]), now)
        results.append(b.op("Reshape", now[0], [1, 1, shape[1], size]))
    y = b.op("Concat", *results, axis=0) if len(results) > 1 else results[0]
    found: list[ir.Value | None] = [y, *(b.op("Reshape", v, [1, shape[1], size]) for v in now)]
    return found[: len(node.outputs)]


def lstm(node: ir.Node, b: Builder) -> list[ir.Value | None] | None:
    """Without peepholes: the gates i, o, f and c of all steps' inputs at once, then one step after the other."""
    x, shape = node.inputs[0], None if node.inputs[0] is None else shape_of(node.inputs[0])
    w, r, a = constant(node.inputs[1]), constant(node.inputs[2]), attrs_of(node)
    other = a.get("activations") not in (None, ["Sigmoid", "Tanh", "Tanh"]) or a.get("clip") or a.get("input_forget")
    if x is None or shape is None or w is None or r is None or other or (len(node.inputs) > 7 and node.inputs[7] is not None) or shape[0] > MOST_STEPS:
        return None
    whole(node, shape[0])
    size = r.shape[2]
    bias = constant(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] is not None else None
    total = np.zeros(4 * size, w.dtype) if bias is None else bias.reshape(2, 4 * size).sum(0)
    recurrent = b.const(np.ascontiguousarray(r[0].T))
    product = b.op("Add", b.op("MatMul", x, b.const(w[0].T)), b.const(total))

    def step(row: ir.Value, now: list[ir.Value]) -> list[ir.Value]:
        gates = b.op("Add", row, b.op("MatMul", now[0], recurrent))
        i, o, f, c = (b.op("Slice", gates, [k * size], [(k + 1) * size], [1]) for k in range(4))
        kept, new = b.op("Mul", b.op("Sigmoid", f), now[1]), b.op("Mul", b.op("Sigmoid", i), b.op("Tanh", c))
        cell = b.op("Add", kept, new)
        return [b.op("Mul", b.op("Sigmoid", o), b.op("Tanh", cell)), cell]

    return _steps(node, b, product, shape, size, step, states=2)


def rnn(node: ir.Node, b: Builder) -> list[ir.Value | None] | None:
    """With an activation that NNAPI's own cell does not have."""
    x, shape = node.inputs[0], None if node.inputs[0] is None else shape_of(node.inputs[0])
    w, r, a = constant(node.inputs[1]), constant(node.inputs[2]), attrs_of(node)
    activation = next(iter(a.get("activations") or ["Tanh"]))
    if x is None or shape is None or w is None or r is None or activation not in ("Tanh", "Sigmoid", "Relu") or a.get("clip") or shape[0] > MOST_STEPS:
        return None
    whole(node, shape[0])
    size = r.shape[2]
    bias = constant(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] is not None else None
    total = np.zeros(size, w.dtype) if bias is None else bias.reshape(2, size).sum(0)
    recurrent = b.const(np.ascontiguousarray(r[0].T))
    product = b.op("Add", b.op("MatMul", x, b.const(w[0].T)), b.const(total))
    return _steps(node, b, product, shape, size, lambda row, now: [b.op(activation, b.op("Add", row, b.op("MatMul", now[0], recurrent)))])


def _gru_step(b: Builder, row: ir.Value, h: ir.Value, r: Any, offsets: Any, size: int, linear: bool) -> ir.Value:
    """`row`: products of the input for the gates z, r, h."""
    z_x, r_x, h_x = (b.op("Slice", row, [i * size], [(i + 1) * size], [1]) for i in range(3))

    def recurrent(value: ir.Value, gate: int) -> ir.Value:
        part_ = slice(gate * size, (gate + 1) * size)
        return b.op("Add", b.op("MatMul", value, b.const(np.ascontiguousarray(r[part_].T))), b.const(offsets[part_]))

    update = b.op("Sigmoid", b.op("Add", z_x, recurrent(h, 0)))
    reset = b.op("Sigmoid", b.op("Add", r_x, recurrent(h, 1)))
    inner = b.op("Mul", reset, recurrent(h, 2)) if linear else recurrent(b.op("Mul", reset, h), 2)
    candidate = b.op("Tanh", b.op("Add", h_x, inner))
    return b.op("Add", candidate, b.op("Mul", update, b.op("Sub", h, candidate)))


def lstm_apart(node: ir.Node, b: Builder) -> Sequence[ir.Value | None] | None:
    return lstm(node, b) if attrs_of(node).get("direction", "forward") == "forward" else directions(node, b)


RECURRENT: dict[tuple[str, str], Rewrite] = {("", op): directions for op in ("LSTM", "GRU", "RNN")}
