"""Recurrent layers. Blobs are [Seq,Batch,C,1,1], states [1,Batch,H,1,1]; ONNX has [Seq,Batch,C] and [directions,Batch,H]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.blobs import floats, operand, rank, squeeze, unsqueeze
from converter.formats.coreml.special.registry import lifts
from converter.graph.build import Builder
from converter.mapping.node import Layer, MappingError

Value = ir.Value
UNBOUND = 50.0  # gates saturate long before: a threshold from here on does not bind
# parameters that the activations have inside recurrent layers although files leave them out
FIXED = {"linear": ("Affine", 1.0, 0.0), "sigmoidHard": ("HardSigmoid", 0.2, 0.5), "scaledTanh": ("ScaledTanh", 1.7159, 2 / 3)}
PLAIN = {"sigmoid": "Sigmoid", "tanh": "Tanh", "ReLU": "Relu"}


def activations(chosen: Sequence[dict[str, Any]], defaults: Sequence[str], times: int = 1) -> dict[str, Any]:
    """ONNX's `activations` with their alphas and betas; nothing when they are the defaults. An empty scaledTanh{} is tanh."""
    names, alphas, betas = [], [], []
    for entry, default in zip(list(chosen) or [{d: {}} for d in defaults], defaults, strict=True):
        chosen_one: tuple[str, dict[str, float]] = next(iter(entry.items()), (default, {}))
        kind, p = chosen_one
        given = (p.get("alpha", 0.0), p.get("beta", 0.0))
        if kind == "scaledTanh" and given == (0.0, 0.0):
            kind = "tanh"
        if kind in PLAIN:
            names.append(PLAIN[kind])
        elif kind in FIXED:
            name, alpha, beta = FIXED[kind]
            names.append(name)
            alphas.append(given[0] if any(given) else alpha)
            betas.append(given[1] if any(given) else beta)
        else:
            raise MappingError(f"activation {kind} in a recurrent layer", "R110")
    if names == [PLAIN[d] for d in defaults]:
        return {}
    return {"activations": names * times, **({"activation_alpha": alphas * times, "activation_beta": betas * times} if alphas else {})}


def gates(layer: Layer, b: Builder, names: Sequence[str], shape: Sequence[int]) -> Value:
    """The weights of several gates below each other, with a leading axis for the direction."""
    missing = [n for n in names if n not in layer.blobs]
    if missing:
        raise MappingError(f"the weights {missing[0]!r} are absent", "R110")
    values = [layer.blobs[n].lift(b, shape) for n in names]
    arrays = [v.const_value for v in values]
    if all(a is not None for a in arrays):
        whole = np.concatenate([a.numpy() for a in arrays if a is not None])
        return b.const(whole[None], f"{layer.name}.{names[0]}")
    return b.op("Unsqueeze", b.op("Concat", *values, axis=0), [0])


def vectors(layer: Layer, names: Sequence[str], size: int) -> np.ndarray:
    missing = [n for n in names if n not in layer.blobs]
    if missing:
        raise MappingError(f"the weights {missing[0]!r} are absent", "R110")
    return np.concatenate([layer.blobs[n].array([size]) for n in names])


def sequence(b: Builder, x: Value) -> Value:
    """[Seq,Batch,C,1,1] -> [Seq,Batch,C]."""
    r = rank(x)
    if r != 5:
        raise MappingError(f"a recurrent layer needs blobs of rank 5, not {r}", "R105")
    return squeeze(b, floats(b, x), [3, 4])


def state(layer: Layer, b: Builder, index: int) -> Value | None:
    """An initial state [1,Batch,H]. Files exist that have it as [Batch,H,1,1,1]: the same numbers in the same order."""
    if index >= len(layer.inputs):
        return None
    value, size = sequence(b, operand(layer, index)), int(layer.attrs["outputVectorSize"])
    fits = value.shape is not None and value.shape[2] == size and value.shape[0] in (1, None)
    return value if fits else b.op("Reshape", value, [1, -1, size])


def blob(b: Builder, x: Value) -> Value:
    """[n,Batch,H] -> [n,Batch,H,1,1]."""
    return unsqueeze(b, x, [3, 4])


def result(b: Builder, y: Value, last: Value, whole: bool, backwards: bool) -> Value:
    """The output blob: all time steps in processing order, or the last one."""
    if not whole:
        return blob(b, last)
    steps = b.op("Squeeze", y, [1])
    if backwards:
        steps = b.op("Slice", steps, [-1], [np.iinfo(np.int64).min], [0], [-1])
    return blob(b, steps)


@lifts("simpleRecurrent")
def lift_simple_recurrent(layer: Layer, b: Builder) -> list[Value]:
    p = layer.attrs
    into, size = int(p["inputVectorSize"]), int(p["outputVectorSize"])
    weights, recursion = gates(layer, b, ["weightMatrix"], [size, into]), gates(layer, b, ["recursionMatrix"], [size, size])
    bias = _bias(b, vectors(layer, ["biasVector"], size), size) if p["hasBiasVector"] else None
    chosen = activations([p["activation"]] if "activation" in p else [], ["tanh"])
    y, last = b.ops(
        "RNN",
        sequence(b, operand(layer)), weights, recursion, bias, None, state(layer, b, 1),
        outputs=2, hidden_size=size, direction=_direction(p), **chosen,
    )  # fmt: skip
    return [result(b, y, last, p["sequenceOutput"], p["reverseInput"]), blob(b, last)]


def _direction(p: dict[str, Any]) -> str:
    return "reverse" if p["reverseInput"] else "forward"


def _bias(b: Builder, values: np.ndarray, size: int) -> Value:
    """One bias per gate; ONNX's second half (recurrent biases) is zero."""
    return b.const(np.concatenate([values, np.zeros_like(values)])[None].astype(np.float32), "bias")


@lifts("gru")
def lift_gru(layer: Layer, b: Builder) -> list[Value]:
    """The reset gate is applied before the recurrent matrix (linear_before_reset=0). Gates z, r, h."""
    p = layer.attrs
    into, size = int(p["inputVectorSize"]), int(p["outputVectorSize"])
    order = ("update", "reset", "output")
    weights = gates(layer, b, [f"{g}GateWeightMatrix" for g in order], [size, into])
    recursion = gates(layer, b, [f"{g}GateRecursionMatrix" for g in order], [size, size])
    bias = _bias(b, vectors(layer, [f"{g}GateBiasVector" for g in order], size), size) if p["hasBiasVectors"] else None
    y, last = b.ops(
        "GRU",
        sequence(b, operand(layer)), weights, recursion, bias, None, state(layer, b, 1),
        outputs=2, hidden_size=size, direction=_direction(p), linear_before_reset=0, **activations(p["activations"], ["sigmoid", "tanh"]),
    )  # fmt: skip
    return [result(b, y, last, p["sequenceOutput"], p["reverseInput"]), blob(b, last)]


ORDER = ("input", "output", "forget", "block")  # ONNX's i, o, f, c
_FIELD = {"input": "inputGate", "output": "outputGate", "forget": "forgetGate", "block": "blockInput"}


def lstm_weights(layer: Layer, b: Builder, prefix: str) -> tuple[Value, Value, Value | None, Value | None]:
    """W [1,4H,I], R [1,4H,H], B [1,8H] and P [1,3H] of one direction."""
    p, q = layer.attrs, layer.attrs.get("params", {})
    into, size = int(p["inputVectorSize"]), int(p["outputVectorSize"])
    names = [prefix + _FIELD[g] for g in ORDER]
    weights = gates(layer, b, [f"{n}WeightMatrix" for n in names], [size, into])
    recursion = gates(layer, b, [f"{n}RecursionMatrix" for n in names], [size, size])
    biased = q.get("hasBiasVectors", False)
    values = vectors(layer, [f"{n}BiasVector" for n in names], size) if biased else np.zeros(4 * size, np.float32)
    if q.get("forgetBias", False):
        values = values + np.repeat(np.array([0, 0, 1, 0], np.float32), size)
    bias = _bias(b, values, size) if values.any() or biased else None
    peepholes = None
    if q.get("hasPeepholeVectors", False):
        peepholes = b.const(vectors(layer, [f"{prefix}{_FIELD[g]}PeepholeVector" for g in ORDER[:3]], size)[None], "peepholes")
    return weights, recursion, bias, peepholes


def lstm(layer: Layer, b: Builder, operands: list[Value | None], chosen: dict[str, Any], direction: str) -> tuple[Value, ...]:
    """LSTM, or the extension operator whose cells are clipped where the threshold is low enough to bind."""
    q = layer.attrs.get("params", {})
    clip = float(q.get("cellClipThreshold", 0.0))
    attributes = {"hidden_size": int(layer.attrs["outputVectorSize"]), "direction": direction, **chosen}
    if q.get("coupledInputAndForgetGate", False):
        attributes["input_forget"] = 1
    if 0 < clip < UNBOUND:
        return b.exts("CellClippedLSTM", *operands, outputs=3, cell_clip=clip, **attributes)
    return b.ops("LSTM", *operands, outputs=3, **attributes)


@lifts("uniDirectionalLSTM")
def lift_lstm(layer: Layer, b: Builder) -> list[Value]:
    p = layer.attrs
    weights, recursion, bias, peepholes = lstm_weights(layer, b, "weightParams.")
    operands = [sequence(b, operand(layer)), weights, recursion, bias, None, state(layer, b, 1), state(layer, b, 2), peepholes]
    chosen = activations(p["activations"], ["sigmoid", "tanh", "tanh"])
    y, hidden, cell = lstm(layer, b, operands, chosen, _direction(p))
    whole = p.get("params", {}).get("sequenceOutput", False)
    return [result(b, y, hidden, whole, p["reverseInput"]), blob(b, hidden), blob(b, cell)]


@lifts("biDirectionalLSTM")
def lift_bidirectional(layer: Layer, b: Builder) -> list[Value]:
    """States are h, c, h reversed, c reversed; the backward half of the output is aligned with time."""
    p = layer.attrs
    parts = [lstm_weights(layer, b, f"weightParams[{i}].") for i in (0, 1)]
    weights, recursion, bias, peepholes = (_both(b, [part[i] for part in parts]) for i in range(4))
    states = [_both(b, [state(layer, b, i), state(layer, b, i + 2)]) for i in (1, 2)]
    chosen = activations(p["activationsForwardLSTM"], ["sigmoid", "tanh", "tanh"], 2)
    operands = [sequence(b, operand(layer)), weights, recursion, bias, None, *states, peepholes]
    y, hidden, cell = lstm(layer, b, operands, chosen, "bidirectional")
    halves = [b.ops("Split", v, outputs=2, axis=0, num_outputs=2) for v in (hidden, cell)]
    size = int(p["outputVectorSize"])
    if p.get("params", {}).get("sequenceOutput", False):
        joined = b.op("Reshape", b.op("Transpose", y, perm=[0, 2, 1, 3]), [0, 0, 2 * size])
    else:
        joined = b.op("Concat", *halves[0], axis=2)
    return [blob(b, v) for v in (joined, halves[0][0], halves[1][0], halves[0][1], halves[1][1])]


def _both(b: Builder, values: list[Value | None]) -> Value | None:
    first, second = values
    if first is None or second is None:
        return None
    if first.const_value is not None and second.const_value is not None:
        return b.const(np.concatenate([first.const_value.numpy(), second.const_value.numpy()]), str(first.name))
    return b.op("Concat", first, second, axis=0)
