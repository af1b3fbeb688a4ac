"""LSTM, GRU and RNN, as cells and as sequences.

Sequences here are batch first: X [N, S, I], states [N, D, H], Y [N, D, S, H]. Weights are [D, gates*H, I]; the gates of LSTM are
f, i, c, o (ONNX: i, o, f, c), those of GRU z, r, h as in ONNX.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.special.base import Emit, FloatList, attributes, cast, dim, filled, given, lifts, lowers, operand, optional, static
from converter.graph.build import Builder
from converter.graph.infer import constant
from converter.graph.sizes import demand_small
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType
GATES = {"LSTM": (4, (1, 3, 0, 2)), "GRU": (3, (0, 1, 2)), "RNN": (1, (0,))}  # ours -> ONNX's order
BACK = {"LSTM": (2, 0, 3, 1), "GRU": (0, 1, 2), "RNN": (0,)}
NAMES = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu", "hardsigmoid": "HardSigmoid", "elu": "Elu", "softsign": "Softsign", "softplus": "Softplus"}
USUAL = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
DIRECTIONS = ("forward", "reverse", "bidirectional")


@dataclass
class Recurrence:
    """The operands of one layer, all with a direction axis: weights [D, g*H, I], [D, g*H, H], biases [D, g*H] (GRU after reset: [D, 4*H])."""

    kind: str
    x: ir.Value
    hidden: ir.Value
    cell: ir.Value | None
    lengths: ir.Value | None
    w: ir.Value
    r: ir.Value
    bias: ir.Value | None


def gates(b: Builder, value: ir.Value, count: int, order: tuple[int, ...]) -> ir.Value:
    """Reorders the gates along axis 1."""
    if order == tuple(range(count)):
        return value
    array = constant(value)
    if array is not None:
        return b.const(np.concatenate([np.split(array, count, axis=1)[i] for i in order], axis=1), value.name or "weights")
    parts = b.ops("Split", value, axis=1, num_outputs=count, outputs=count)
    return b.op("Concat", *(parts[i] for i in order), axis=1)


def _options(layer: Layer, kind: str, **more: Any) -> Any:
    a = attributes(
        layer, "weights_format", hidden_size=int, activations=USUAL[kind], activations_alpha=FloatList(), activations_beta=FloatList(), clip=0.0,
        input_forget=False, linear_before_reset=False, **more,
    )  # fmt: skip
    if a.input_forget:
        raise MappingError("input_forget=true")
    unknown = [n for n in a.activations if n not in NAMES]
    if unknown:
        raise MappingError(f"the activation {unknown[0]!r} is not known", "R110")
    return a


def _bias(b: Builder, seq: Recurrence, a: Any, hidden: int) -> ir.Value | None:
    """ONNX keeps a bias for the input and one for the state: [D, 2*g*H]; the state's is zero but for GRU after reset."""
    if seq.bias is None:
        return None
    count, order = GATES[seq.kind]
    if a.linear_before_reset:
        z, r, hx, hr = b.ops("Split", seq.bias, [hidden] * 4, axis=1, outputs=4)
        none = b.op("Mul", z, b.like(z, 0))
        return b.op("Concat", z, r, hx, none, none, hr, axis=1)
    bias = gates(b, seq.bias, count, order)
    array = constant(bias)
    if array is not None:
        return b.const(np.concatenate([array, np.zeros_like(array)], axis=1), "bias")
    return b.op("Concat", bias, b.op("Mul", bias, b.like(bias, 0)), axis=1)


def run(b: Builder, seq: Recurrence, a: Any, direction: str) -> tuple[ir.Value, ...]:
    """One ONNX node: Y [S, D, N, H], final states [D, N, H]."""
    both = 2 if direction == "bidirectional" else 1
    plain = tuple(a.activations) == USUAL[seq.kind]
    alpha, beta = _per_function(a.activations, a.activations_alpha), _per_function(a.activations, a.activations_beta, beta=True)
    extra: dict[str, Any] = {
        "hidden_size": a.hidden_size,
        "direction": direction,
        "clip": a.clip if a.clip > 0 and np.isfinite(a.clip) else None,
        "activations": None if plain else [NAMES[n] for n in a.activations] * both,
        "activation_alpha": None if plain or not alpha else alpha * both,
        "activation_beta": None if plain or not beta else beta * both,
    }
    if seq.kind == "GRU":
        extra["linear_before_reset"] = int(a.linear_before_reset)
    count, order = GATES[seq.kind]
    w, r = gates(b, seq.w, count, order), gates(b, seq.r, count, order)
    lengths = None if seq.lengths is None else cast(b, seq.lengths, T.INT32)
    cell = [seq.cell] if seq.kind == "LSTM" else []
    return b.ops(seq.kind, seq.x, w, r, _bias(b, seq, a, a.hidden_size), lengths, seq.hidden, *cell, outputs=3 if cell else 2, **extra)


DEFAULTS = {"hardsigmoid": (0.2, 0.5), "elu": (1.0, 0.0)}


def _per_function(names: tuple[str, ...], values: list[float], beta: bool = False) -> list[float]:
    """ONNX hands the numbers out to the functions that take them, in order."""
    takes = [n for n in names if n in ("hardsigmoid",) or (n == "elu" and not beta)]
    if not takes:
        return []
    if len(values) == len(names):
        return [values[i] for i, n in enumerate(names) if n in takes]
    if values:
        raise MappingError(f"{len(values)} numbers for the activations {names}")
    return [DEFAULTS[n][beta] for n in takes]


@lifts("LSTMCell", "GRUCell", "RNNCell")
def lift_cell(layer: Layer, b: Builder) -> list[ir.Value]:
    kind = layer.kind.removesuffix("Cell")
    a = _options(layer, kind)
    first = 3 if kind == "LSTM" else 2
    if len(layer.inputs) > first + 3:
        raise MappingError("peepholes")
    w, r, bias = (optional(layer, first + i) for i in range(3))
    if w is None or r is None:
        raise MappingError("the weights are absent", "R105")
    up = [b.op("Unsqueeze", operand(layer, i), [0]) for i in range(first)]
    lead = [None if v is None else _unsqueezed(b, v) for v in (w, r, bias)]
    assert lead[0] is not None and lead[1] is not None
    seq = Recurrence(kind, up[0], up[1], up[2] if kind == "LSTM" else None, None, lead[0], lead[1], lead[2])
    states = run(b, seq, a, "forward")[1:]
    return [b.op("Squeeze", v, [0]) for v in states]


def _unsqueezed(b: Builder, v: ir.Value) -> ir.Value:
    array = constant(v)
    return b.const(array[None], v.name or "weights") if array is not None else b.op("Unsqueeze", v, [0])


@lifts("LSTMSequence", "GRUSequence", "RNNSequence")
def lift_sequence(layer: Layer, b: Builder) -> list[ir.Value]:
    kind = layer.kind.removesuffix("Sequence")
    a = _options(layer, kind, direction="forward")
    if a.direction not in DIRECTIONS:
        raise MappingError(f"direction={a.direction!r} is not known", "R110")
    n = 3 if kind == "LSTM" else 2
    x = b.op("Transpose", operand(layer, 0), perm=[1, 0, 2])
    states = [b.op("Transpose", operand(layer, i), perm=[1, 0, 2]) for i in range(1, n)]
    lengths = operand(layer, n)
    full = constant(lengths)
    size = dim(operand(layer, 0), 1)
    lengths_ = None if full is not None and size is not None and np.all(full == size) else lengths
    w, r, bias = (operand(layer, n + i) for i in (1, 2, 3))
    seq = Recurrence(kind, x, states[0], states[1] if kind == "LSTM" else None, lengths_, w, r, bias)
    y, *final = run(b, seq, a, a.direction)
    return [b.op("Transpose", y, perm=[2, 1, 0, 3]), *(b.op("Transpose", v, perm=[1, 0, 2]) for v in final)]


# writing -------------------------------------------------------------------------------------------------------------


def _zeros(e: Emit, x: ir.Value, directions: int, hidden: int) -> Any:
    """Initial states [N, D, H] of zeros; x is [N, S, I]."""
    dtype = (x.dtype or T.FLOAT).numpy()
    batch = dim(e.node.input(0), 1)  # type: ignore[arg-type]
    if batch is not None:
        demand_small(batch, directions, hidden)
        return np.zeros((batch, directions, hidden), dtype)
    count = e.op("Gather", e.op("ShapeOf", x, dtype=T.INT64, output_type="i64"), [0], np.array(0, np.int64), batch_dims=0)
    shape = e.op("Concat", count, [directions, hidden], dtype=T.INT64, axis=0)
    return e.op("Broadcast", np.zeros((), dtype), shape, mode="numpy")


def _lengths(e: Emit, x: ir.Value) -> Any:
    found = e.node.input(4)
    if found is not None:
        return found
    seq, batch = (dim(e.node.input(0), i) for i in (0, 1))  # type: ignore[arg-type]
    if seq is not None and batch is not None:
        demand_small(batch)
        return np.full(batch, seq, np.int64)
    shape = e.op("ShapeOf", x, dtype=T.INT64, output_type="i64")
    axis = np.array(0, np.int64)
    seq_, batch_ = (e.op("Gather", shape, [i], axis, batch_dims=0) for i in (1, 0))
    return e.op("Broadcast", seq_, batch_, mode="numpy")


def split(e: Emit, value: ir.Value, count: int) -> list[ir.Value]:
    """`value` in equal parts along axis 1."""
    parts = [e.low.value("part", value.dtype, None) for _ in range(count)]
    e.out("Split", value, np.array(1, np.int64), outputs=parts, num_splits=count)
    return parts


def _written_weights(e: Emit, value: ir.Value, kind: str) -> Any:
    count, _ = GATES[kind]
    array = constant(value)
    if array is not None:
        return np.concatenate([np.split(array, count, axis=1)[i] for i in BACK[kind]], axis=1)
    if count == 1 or BACK[kind] == tuple(range(count)):
        return value
    parts = split(e, value, count)
    return e.op("Concat", *(parts[i] for i in BACK[kind]), axis=1)


def _computed_bias(e: Emit, bias: ir.Value, kind: str, hidden: int, reset: bool) -> ir.Value:
    x, h = split(e, bias, 2)
    if not reset:
        return _written_weights(e, e.op("Add", x, h, auto_broadcast="numpy"), kind)  # type: ignore[no-any-return]
    xs, hs = split(e, x, 3), split(e, h, 3)
    summed = [e.op("Add", xs[i], hs[i], auto_broadcast="numpy") for i in (0, 1)]
    return e.op("Concat", *summed, xs[2], hs[2], axis=1)


def _written_bias(e: Emit, kind: str, directions: int, hidden: int, reset: bool, dtype: Any) -> Any:
    count, _ = GATES[kind]
    bias = e.node.input(3)
    if bias is None:
        return np.zeros((directions, (4 if reset else count) * hidden), dtype)
    array = constant(bias)
    if array is None:
        return _computed_bias(e, bias, kind, hidden, reset)
    x, h = np.split(array, 2, axis=1)
    if reset:
        cut = 2 * hidden
        return np.concatenate([x[:, :cut] + h[:, :cut], x[:, cut:], h[:, cut:]], axis=1)
    total = x + h
    return np.concatenate([np.split(total, count, axis=1)[i] for i in BACK[kind]], axis=1)


@lowers("LSTM", "GRU", "RNN")
def lower_recurrent(node: Node, low: Lowering) -> None:
    a, kind, e = filled(node), node.op, Emit(node, low)
    if a.get("layout", 0) or a.get("input_forget", 0) or node.input(7) is not None:
        raise MappingError("layout, input_forget and peepholes cannot be expressed")
    w, r = given(node, 1), given(node, 2)
    directions, _, hidden = static(r, "the weights")
    reset = bool(a.get("linear_before_reset", 0))
    names = [str(n).lower() for n in a.get("activations") or []] or list(USUAL[kind]) * directions
    names = names[: len(USUAL[kind]) * directions]  # the schema's default names two, whatever the direction
    if set(names) - {"sigmoid", "tanh", "relu"} or names != names[: len(USUAL[kind])] * directions:
        raise MappingError(f"the activations {names} cannot be expressed")
    x = e.op("Transpose", given(node, 0), [1, 0, 2])
    states = []
    for i in (5, 6)[: 2 if kind == "LSTM" else 1]:
        v = node.input(i)
        states.append(_zeros(e, x, directions, hidden) if v is None else e.op("Transpose", v, [1, 0, 2]))
    weights = [_written_weights(e, m, kind) for m in (w, r)]
    bias = _written_bias(e, kind, directions, hidden, reset, (w.dtype or T.FLOAT).numpy())
    outputs = [low.value(n, node.input(0).dtype, None) for n in ("y", "h", "c")[: 3 if kind == "LSTM" else 2]]  # type: ignore[union-attr]
    extra = {"linear_before_reset": reset} if kind == "GRU" else {}
    e.out(
        f"{kind}Sequence", x, *states, _lengths(e, x), *weights, bias, outputs=outputs, direction=a["direction"], hidden_size=hidden,
        activations=names[: len(USUAL[kind])], activations_alpha=[], activations_beta=[], clip=float(a.get("clip") or 0.0), **extra,
    )  # fmt: skip
    for out, inner, perm in zip(node.outputs, outputs, ([2, 1, 0, 3], [1, 0, 2], [1, 0, 2]), strict=False):
        e.out("Transpose", inner, perm, outputs=[out])
