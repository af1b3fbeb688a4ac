"""ONNX's recurrent operators as NNAPI's sequence operations: forward, time first, weights constant."""

from __future__ import annotations

from typing import Any

import numpy as np

from converter.formats.nnapi.legalise_recurrent import whole
from converter.formats.nnapi.ops.emit import Emit, Ref, lowers
from converter.formats.nnapi.ops.shapes import put_slice
from converter.formats.nnapi.table import Array
from converter.mapping.node import MappingError

CODES = {"Relu": 1, "Tanh": 4, "Sigmoid": 6}


def state(e: Emit, index: int, size: int, x: Ref) -> Ref:
    """An initial state [1, batch, size] as [batch, size]; zeros when it is absent."""
    batch = e.shape()[1]
    if not e.has(index):
        return e.number(np.zeros((batch, size)), x)
    return e.reshaped(e.stored(index), [batch, size])


def check(e: Emit, activations: list[str]) -> None:
    whole(e.node, e.shape()[0])
    if e.attrs.get("direction", "forward") != "forward" or e.attrs.get("clip") or e.attrs.get("input_forget"):
        raise MappingError("directions other than forward, clipped or coupled gates are not possible")
    if list(e.attrs.get("activations") or activations) != activations:
        raise MappingError(f"its activations are {e.attrs['activations']}, not {activations}")


def used(e: Emit, index: int) -> bool:
    value = e.node.outputs[index] if index < len(e.node.outputs) else None
    return value is not None and (bool(value.uses()) or value.is_graph_output())


def deliver(e: Emit, y: Ref) -> None:
    """[time, batch, size] as Y [time, 1, batch, size] and Y_h, its last step."""
    steps, batch, size = e.operand(y).dimensions
    if used(e, 0):
        e.put("RESHAPE", e.result(0), input=y, shape=[steps, 1, batch, size])
    if used(e, 1):
        put_slice(e, y, e.result(1), [slice(steps - 1, steps, 1), slice(0, batch, 1), slice(0, size, 1)])


def constants(e: Emit, rows: int) -> tuple[Array, Array, Array]:
    """Weights, recurrent weights and the sum of both biases."""
    w, r = e.constant(1)[0], e.constant(2)[0]
    return w, r, e.constant(3).reshape(2, rows).sum(0) if e.has(3) else np.zeros(rows, w.dtype)


@lowers("LSTM")
def lower_lstm(e: Emit) -> None:
    """ONNX has the gates in the order input, output, forget, cell, peepholes input, output, forget."""
    check(e, ["Sigmoid", "Tanh", "Tanh"])
    x, size = e.stored(0), e.shape(2)[2]
    w, r, b = constants(e, 4 * size)
    more: dict[str, Any] = {}
    for i, gate in enumerate(("input", "output", "forget", "cell")):
        rows = slice(i * size, (i + 1) * size)
        more[f"input_to_{gate}_weights"], more[f"recurrent_to_{gate}_weights"] = e.number(w[rows], x), e.number(r[rows], x)
        more["cell_bias" if gate == "cell" else f"{gate}_gate_bias"] = e.number(b[rows], x)
        if e.has(7) and gate != "cell":
            more[f"cell_to_{gate}_weights"] = e.number(e.constant(7)[0][rows], x)
    more["output_state_in"], more["cell_state_in"] = state(e, 5, size, x), state(e, 6, size, x)
    steps, batch = e.shape()[:2]
    y = e.temp([steps, batch, size], x)
    outputs = [y]
    if used(e, 2):
        outputs += [e.temp([batch, size], x), cell := e.temp([batch, size], x)]
    e.put("UNIDIRECTIONAL_SEQUENCE_LSTM", outputs, input=x, activation=4, cell_clip=0.0, proj_clip=0.0, time_major=True, **more)
    deliver(e, y)
    if used(e, 2):
        e.put("RESHAPE", e.result(2), input=cell, shape=[1, batch, size])


@lowers("RNN")
def lower_rnn(e: Emit) -> None:
    names = list(e.attrs.get("activations") or ["Tanh"])
    if names[0] not in CODES:
        raise MappingError(f"the activation {names[0]} is not possible")
    check(e, names)
    x, size = e.stored(0), e.shape(2)[2]
    w, r, b = constants(e, size)
    y = e.temp([*e.shape()[:2], size], x)
    weights = {"weights": e.number(w, x), "recurrent_weights": e.number(r, x), "bias": e.number(b, x)}
    h = state(e, 5, size, x)
    e.put("UNIDIRECTIONAL_SEQUENCE_RNN", y, input=x, hidden_state_in=h, activation=CODES[names[0]], time_major=1, **weights)
    deliver(e, y)
