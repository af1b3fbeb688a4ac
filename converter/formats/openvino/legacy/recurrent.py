"""Recurrent cells and sequences. Weights are [gates*H, I+H] with rows of x and h side by side; gates f, i, c, o (LSTM) and z, r, h (GRU)."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.legacy.access import as_int64, dims, flag, integer, number, numbers, operand, optional, shape, text, weights
from converter.formats.openvino.legacy.register import lifts
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.mapping.node import Layer, MappingError

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FROM_FICO = [1, 3, 0, 2]  # ONNX has i, o, f, c
FUNCTIONS = {
    "sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu", "elu": "Elu", "softsign": "Softsign", "softplus": "Softplus",
    "hardsigmoid": "HardSigmoid", "leakyrelu": "LeakyRelu", "thresholdedrelu": "ThresholdedRelu", "affine": "Affine", "scaledtanh": "ScaledTanh",
}  # fmt: skip
CELL = (
    "hidden_size",
    "activations",
    "activations_alpha",
    "activations_beta",
    "activation_alpha",
    "activation_beta",
    "clip",
    "linear_before_reset",
    "input_size",
)


def parameters(layer: Layer, kind: str, width: int, hidden: int) -> tuple[Array, Array, Array]:
    """W [1, G*H, I], R [1, G*H, H] and B [1, 2*G*H] in ONNX's order of gates."""
    gates = GATES[kind]
    lbr = kind == "GRU" and flag(layer, "linear_before_reset")
    both = weights(layer, "weights", [gates, hidden, width + hidden])
    bias = weights(layer, "biases", [gates + lbr, hidden]) if "biases" in layer.blobs else np.zeros((gates + lbr, hidden), both.dtype)
    own = np.zeros((gates, hidden), bias.dtype)
    if lbr:  # the fourth bias belongs to the hidden state's part of the h gate
        own[2] = bias[3]
        bias = bias[:3]
    if kind == "LSTM":
        both, bias = both[FROM_FICO], bias[FROM_FICO]
    rows = both.reshape(1, gates * hidden, width + hidden)
    return rows[:, :, :width], rows[:, :, width:], np.concatenate([bias.reshape(1, -1), own.reshape(1, -1)], 1)


def attributes(layer: Layer, kind: str, hidden: int) -> dict[str, Any]:
    """Activations, their parameters and the clip as ONNX has them; what is the default is left out."""
    found: dict[str, Any] = {"hidden_size": hidden}
    default = {"LSTM": "sigmoid,tanh,tanh", "GRU": "sigmoid,tanh", "RNN": "tanh"}[kind]
    names = [v.strip().lower() for v in text(layer, "activations", default).split(",")]
    if any(n not in FUNCTIONS for n in names):
        raise MappingError(f"activations={text(layer, 'activations')!r} has an unknown function", "R110")
    if names != default.split(","):
        found["activations"] = [FUNCTIONS[n] for n in names]
    for k in ("alpha", "beta"):
        values = numbers(layer, f"activations_{k}", numbers(layer, f"activation_{k}", []))
        if values:
            found[f"activation_{k}"] = values
    if number(layer, "clip", 0.0) > 0:
        found["clip"] = number(layer, "clip")
    if kind == "GRU" and flag(layer, "linear_before_reset"):
        found["linear_before_reset"] = 1
    return found


@lifts("LSTMCell GRUCell RNNCell", *CELL)
def lift_cell(layer: Layer, b: Builder) -> list[ir.Value]:
    """One step is a sequence of length 1."""
    kind = layer.kind.removesuffix("Cell")
    x, states = operand(layer), [operand(layer, i) for i in range(1, 3 if kind == "LSTM" else 2)]
    (rows, width), hidden = shape(x), integer(layer, "hidden_size", shape(states[0])[-1])
    w, r, bias = (b.const(a, f"{layer.name}.{n}") for n, a in zip("WRB", parameters(layer, kind, width, hidden), strict=True))
    initial = [b.op("Reshape", s, [1, rows, hidden]) for s in states]
    steps = b.op("Reshape", x, [1, rows, width])
    results = b.ops(kind, steps, w, r, bias, None, *initial, outputs=1 + len(states), **attributes(layer, kind, hidden))
    return [b.op("Reshape", v, [rows, hidden]) for v in results[1:]][: len(layer.outputs)]


@lifts("LSTMSequence GRUSequence RNNSequence", *CELL, "direction", "axis", "sequence_dim", "has_num_directions", "batch_dim")
def lift_sequence(layer: Layer, b: Builder) -> list[ir.Value]:
    """Runs along `axis` (0 or 1), forwards or backwards; the outputs are all hidden states and the last states."""
    kind, axis = layer.kind.removesuffix("Sequence"), integer(layer, "axis", 1)
    direction = {"forward": "forward", "backward": "reverse", "reverse": "reverse"}.get(text(layer, "direction", "Forward").lower())
    if direction is None or axis not in (0, 1):
        raise MappingError("only one direction along axis 0 or 1 is known", "R110")
    count = 2 if kind == "LSTM" else 1
    x, states = operand(layer), [operand(layer, i) for i in range(1, 1 + count)]
    hidden, width = integer(layer, "hidden_size", shape(states[0])[-1]), shape(x)[2]
    steps = b.op("Transpose", x, perm=[1, 0, 2]) if axis == 1 else x
    rows = shape(steps)[1]
    lengths = optional(layer, 1 + count)
    length = None if lengths is None else b.op("Cast", as_int64(b, lengths), to=int(ir.DataType.INT32))
    w, r, bias = (b.const(a, f"{layer.name}.{n}") for n, a in zip("WRB", parameters(layer, kind, width, hidden), strict=True))
    initial = [b.op("Reshape", s, [1, rows, hidden]) for s in states]
    found = b.ops(kind, steps, w, r, bias, length, *initial, outputs=1 + count, direction=direction, **attributes(layer, kind, hidden))
    every = b.op("Squeeze", found[0], [1])
    every = b.op("Transpose", every, perm=[1, 0, 2]) if axis == 1 else every
    results = [every, *(b.op("Reshape", v, list(shape(s))) for v, s in zip(found[1:], states, strict=True))]
    return [b.op("Reshape", v, list(dims(layer, i))) for i, v in enumerate(results[: len(layer.outputs)])]
