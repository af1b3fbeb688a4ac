"""LSTM, GRU and plain RNN, batch-major, one direction. Rows of the weights are blocks of gates: i c f o, and r z c; columns are [W | R]."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.special.moving import turn
from converter.formats.zhouyi.special.register import blob, constant_value, fixed, lifts, lowers, need, operand, static
from converter.graph.build import Builder
from converter.graph.infer import Array, constant
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

# positions of ONNX's gates (i o f c; z r h) among those of the format
LSTM_TO_ONNX, GRU_TO_ONNX = (0, 3, 2, 1), (1, 0, 2)
LSTM_FROM_ONNX, GRU_FROM_ONNX = (0, 3, 2, 1), (1, 0, 2)
RUN = ("SIGMOID", "TANH")  # activations of recurrent layers that the vendor's executor knows; the definition lists more
FUNCTIONS = {name.upper(): name for name in ("Sigmoid", "Tanh", "Relu", "HardSigmoid", "Elu", "Softsign", "Softplus", "LeakyRelu", "ThresholdedRelu")}


def gates(array: Array, order: tuple[int, ...], count: int) -> Array:
    """Blocks of rows in another order."""
    return array.reshape(count, -1, *array.shape[1:])[list(order)].reshape(-1, *array.shape[1:])


def _functions(layer: Layer, count: int) -> list[str]:
    given = need(layer, "activations", ["SIGMOID", "TANH", "TANH"][:count])
    if not isinstance(given, list) or len(given) != count or any(str(a).upper() not in FUNCTIONS for a in given):
        raise MappingError(f"activations={given!r} are not {count} known functions", "R110")
    if layer.attrs.get("activation_alpha") is not None or layer.attrs.get("activation_beta") is not None:
        raise MappingError("activation_alpha and activation_beta have no counterpart")
    return [FUNCTIONS[str(a).upper()] for a in given]


def _shared(layer: Layer) -> tuple[dict[str, Any], bool]:
    reverse = str(need(layer, "direction", "forward")).upper()
    if reverse not in ("FORWARD", "REVERSE"):
        raise MappingError(f"direction={reverse.lower()} is neither forward nor reverse", "R110")
    for key in ("cell_clip", "forget_bias"):
        if layer.attrs.get(key) not in (None, 0, 0.0, float("inf")):
            raise MappingError(f"{key} has no counterpart")
    threshold = layer.attrs.get("threshold")
    attrs: dict[str, Any] = {"direction": reverse.lower(), "layout": 0}
    if threshold is not None and np.isfinite(threshold):
        attrs["clip"] = float(threshold)
    return attrs, reverse == "REVERSE"


def _parts(layer: Layer, order: tuple[int, ...]) -> tuple[Array, Array, int]:
    """W [1, gates * h, x] and R [1, gates * h, h] in ONNX's order of gates."""
    weights, h = blob(layer, "weights"), int(static(operand(layer, 1))[-1])
    count = len(order)
    if weights.ndim != 2 or weights.shape[0] != count * h or weights.shape[1] <= h:
        raise MappingError(f"weights of the shape {list(weights.shape)} do not fit {count} gates of {h} cells", "R105")
    x = weights.shape[1] - h
    ordered = gates(weights, order, count)
    return ordered[None, :, :x], ordered[None, :, x:], h


@lifts("BasicLSTM")
def lift_lstm(layer: Layer, b: Builder) -> list[ir.Value]:
    w, r, h = _parts(layer, LSTM_TO_ONNX)
    attrs, _ = _shared(layer)
    biases = gates(blob(layer, "biases").reshape(-1), LSTM_TO_ONNX, 4)
    bias = b.const(np.concatenate([biases, np.zeros_like(biases)])[None], f"{layer.name}.biases")
    x = b.op("Transpose", operand(layer), perm=[1, 0, 2])
    state = [b.op("Unsqueeze", operand(layer, i), [0]) for i in (1, 2)]
    y, hidden, cell = b.ops(
        "LSTM", x, b.const(w, f"{layer.name}.W"), b.const(r, f"{layer.name}.R"), bias, None, *state,
        outputs=3, hidden_size=h, activations=_functions(layer, 3), **attrs,
    )  # fmt: skip
    return _sequence(layer, b, {"Y": y, "H": hidden, "C": cell}, "Y")


@lifts("GRUv1", "GRUv3")
def lift_gru(layer: Layer, b: Builder) -> list[ir.Value]:
    """GRUv1 resets behind the recurrent product and has a bias of its own there, GRUv3 before."""
    w, r, h = _parts(layer, GRU_TO_ONNX)
    attrs, _ = _shared(layer)
    biases = blob(layer, "biases").reshape(-1)
    behind = layer.kind == "GRUv1"
    if biases.size != (4 if behind else 3) * h:
        raise MappingError(f"{biases.size} biases do not fit {h} cells", "R105")
    first, second = gates(biases[: 3 * h], GRU_TO_ONNX, 3), np.zeros(3 * h, biases.dtype)
    if behind:
        second[2 * h :] = biases[3 * h :]
    bias = b.const(np.concatenate([first, second])[None], f"{layer.name}.biases")
    x, state = b.op("Transpose", operand(layer), perm=[1, 0, 2]), b.op("Unsqueeze", operand(layer, 1), [0])
    y, hidden = b.ops(
        "GRU", x, b.const(w, f"{layer.name}.W"), b.const(r, f"{layer.name}.R"), bias, None, state,
        outputs=2, hidden_size=h, activations=_functions(layer, 2), linear_before_reset=int(behind), **attrs,
    )  # fmt: skip
    return _sequence(layer, b, {"H": y, "HN": hidden}, "H")


PLAIN = {"TANH": "Tanh", "SIGMOID": "Sigmoid", "RELU": "Relu"}


@lifts("RNN")
def lift_rnn(layer: Layer, b: Builder) -> list[ir.Value]:
    """One gate; `activations` is a word. The executor always gives all steps, then the last state."""
    w, r, h = _parts(layer, (0,))
    attrs, _ = _shared(layer)
    given = need(layer, "activations", "TANH")
    name = str(given[0] if isinstance(given, list) and len(given) == 1 else given).upper()
    if name not in PLAIN:
        raise MappingError(f"activations={name} has no counterpart (known: {', '.join(PLAIN)})", "R110")
    biases = blob(layer, "biases").reshape(-1)
    if biases.size != h:
        raise MappingError(f"{biases.size} biases do not fit {h} cells", "R105")
    bias = b.const(np.concatenate([biases, np.zeros_like(biases)])[None], f"{layer.name}.biases")
    x, state = b.op("Transpose", operand(layer), perm=[1, 0, 2]), b.op("Unsqueeze", operand(layer, 1), [0])
    operands = (x, b.const(w, f"{layer.name}.W"), b.const(r, f"{layer.name}.R"), bias, None, state)
    y, hidden = b.ops("RNN", *operands, outputs=2, hidden_size=h, activations=[PLAIN[name]], **attrs)
    return _sequence(layer, b, {"H": y, "HN": hidden}, "H")


@lowers("RNN")
def lower_rnn(node: Node, low: Lowering) -> None:
    a = node.attrs
    direction, names = a.get("direction", "forward"), [f.upper() for f in a.get("activations") or ["Tanh"]]
    if direction not in ("forward", "reverse") or a.get("layout", 0) or node.input(4) is not None:
        raise MappingError("two directions, layout=1 or sequence lengths have no counterpart")
    if names[0] not in RUN or a.get("activation_alpha") or a.get("activation_beta"):
        raise MappingError("these activations have no counterpart")
    x, w, r = operand(node), fixed(node, 1, "the weights")[0], fixed(node, 2, "the weights")[0]
    (time, batch, size), h = static(x), r.shape[1]
    both = np.zeros(2 * h, w.dtype) if node.input(3) is None else fixed(node, 3, "the biases")[0]
    turned = low.value("steps", x.dtype, [batch, time, size])
    turn(low, x, turned, [1, 0, 2])
    used = [low.value("state", x.dtype, s) for s in ([batch, time, h], [batch, h])]
    attrs: dict[str, Any] = {"time_steps": time, "input_size": size, "cell_size": h, "direction": direction, "out_sequence": ["H", "Hn"]}
    attrs["activations"] = names[0]
    if a.get("clip"):
        attrs["threshold"] = float(a["clip"])
    blobs = {"weights": np.concatenate([w, r], axis=1), "biases": both[:h] + both[h:]}
    low.add("RNN", [turned, _state(node, low, 5, [batch, h])], used, attrs, blobs)
    _results(node, low, used, [time, batch, h])


def _sequence(layer: Layer, b: Builder, found: dict[str, ir.Value], all_steps: str) -> list[ir.Value]:
    """The outputs that `out_sequence` names: all steps as [batch, time, cells], states as [batch, cells]."""
    names = [str(n).upper() for n in need(layer, "out_sequence", list(found))]
    result = []
    for name in names:
        if name not in found:
            raise MappingError(f"out_sequence names {name}, which is none of {', '.join(found)}", "R110")
        value = b.op("Squeeze", found[name], [1] if name == all_steps else [0])
        result.append(b.op("Transpose", value, perm=[1, 0, 2]) if name == all_steps else value)
    return result


@lowers("LSTM", "GRU")
def lower_recurrent(node: Node, low: Lowering) -> None:
    """[time, batch, x] of one direction, constant weights; Transposes and Reshapes around the batch-major layer."""
    a, lstm = node.attrs, node.op == "LSTM"
    direction, count = a.get("direction", "forward"), 3 if lstm else 2
    _refuse(node, direction, count)
    x, w, r = operand(node), fixed(node, 1, "the weights")[0], fixed(node, 2, "the weights")[0]
    time, batch, size = static(x)
    h = r.shape[1]
    order = LSTM_FROM_ONNX if lstm else GRU_FROM_ONNX
    weights = np.concatenate([gates(w, order, len(order)), gates(r, order, len(order))], axis=1)
    biases = _biases(node, h, lstm, w.dtype)
    turned = low.value("steps", x.dtype, [batch, time, size])
    turn(low, x, turned, [1, 0, 2])
    states = [_state(node, low, i, [batch, h]) for i in ((5, 6) if lstm else (5,))]
    names = ("Y", "H", "C") if lstm else ("H", "Hn")
    shapes = ([batch, time, h], [batch, h], [batch, h])
    used = [low.value("state", x.dtype, s) for s in shapes[: len(names)]]
    attrs = {"time_steps": time, "input_size": size, "cell_size": h, "direction": direction, "out_sequence": list(names)}
    attrs["activations"] = [f.upper() for f in a.get("activations") or ["Sigmoid", "Tanh", "Tanh"][:count]]
    if a.get("clip"):
        attrs["threshold"] = float(a["clip"])
    kind = "BasicLSTM" if lstm else "GRUv1" if a.get("linear_before_reset", 0) else "GRUv3"
    low.add(kind, [turned, *states], used, attrs, {"weights": weights, "biases": biases})
    _results(node, low, used, [time, batch, h])


def _refuse(node: Node, direction: str, count: int) -> None:
    a = node.attrs
    functions = [f.upper() for f in a.get("activations") or []]
    if direction not in ("forward", "reverse") or a.get("layout", 0):
        raise MappingError("two directions or layout=1 have no counterpart")
    if any(node.input(i) is not None for i in (4, 7)) or a.get("input_forget", 0):
        raise MappingError("sequence lengths, peepholes and coupled gates have no counterpart")
    if any(f not in RUN for f in functions[:count]) or a.get("activation_alpha") or a.get("activation_beta"):
        raise MappingError("these activations have no counterpart")


def _biases(node: Node, h: int, lstm: bool, dtype: Any) -> Array:
    count = 4 if lstm else 3
    both = np.zeros(2 * count * h, dtype) if node.input(3) is None else fixed(node, 3, "the biases")[0]
    first, second = both[: count * h], both[count * h :]
    if lstm:
        return gates(first + second, LSTM_FROM_ONNX, 4)
    first, second = gates(first, GRU_FROM_ONNX, 3), gates(second, GRU_FROM_ONNX, 3)
    if not node.attrs.get("linear_before_reset", 0):
        return np.asarray(first + second)
    return np.concatenate([first[: 2 * h] + second[: 2 * h], first[2 * h :], second[2 * h :]])


def _state(node: Node, low: Lowering, index: int, shape: list[int]) -> ir.Value:
    """The initial state as [batch, cells]; zeros where there is none, since the layer always has one."""
    value = node.input(index)
    dtype = operand(node).dtype
    if value is None:
        return constant_value(low, np.zeros(shape, dtype.numpy() if dtype is not None else np.float32), "initial")
    array = constant(value)
    if array is not None:
        return constant_value(low, array.reshape(shape), "initial")
    flat = low.value("initial", value.dtype, shape)
    low.add("Reshape", [value], [flat], {"shape": shape})
    return flat


def _read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _results(node: Node, low: Lowering, found: list[ir.Value], steps: list[int]) -> None:
    """[batch, time, cells] -> [time, 1, batch, cells], [batch, cells] -> [1, batch, cells]."""
    time, batch, h = steps
    if node.outputs and _read(node.outputs[0]):
        turned = low.value("steps", found[0].dtype, steps)
        turn(low, found[0], turned, [1, 0, 2])
        low.add("Reshape", [turned], [node.outputs[0]], {"shape": [time, 1, batch, h]})
    for value, out in zip(found[1:], node.outputs[1:], strict=False):
        if _read(out):
            low.add("Reshape", [value], [out], {"shape": [1, batch, h]})
