"""RNN, GRU and LSTM -> recurrent layers, with [Seq,Batch,C] <-> [Seq,Batch,C,1,1] around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.lowering import CoreLowering, attrs_with_defaults, numbers, shape_list, x_of
from converter.formats.coreml.special.lower_arithmetic import core
from converter.formats.coreml.special.recurrent import ORDER
from converter.formats.coreml.special.registry import lowers
from converter.graph.infer import shape_of
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node

Value = ir.Value
_NAMES = {"Sigmoid": "sigmoid", "Tanh": "tanh", "Relu": "ReLU", "Affine": "linear", "HardSigmoid": "sigmoidHard", "ScaledTanh": "scaledTanh"}
_PARAMETERS = {"Affine": (1.0, 0.0), "HardSigmoid": (0.2, 0.5), "ScaledTanh": (1.7159, 2 / 3)}
_FIELD = {"input": "inputGate", "output": "outputGate", "forget": "forgetGate", "block": "blockInput"}


def chosen(near: Node, defaults: Sequence[str], directions: int) -> list[dict[str, Any]]:
    """The activations of the first direction as messages; both directions must agree, other parameters than the layers' have no place."""
    names = [str(n) for n in near.attrs.get("activations") or [*defaults] * directions]
    alphas, betas = (list(near.attrs.get(k) or []) for k in ("activation_alpha", "activation_beta"))
    if directions == 2 and names[: len(defaults)] != names[len(defaults) :]:
        raise MappingError("different activations per direction")
    found: list[dict[str, Any]] = []
    for name in names[: len(defaults)]:
        if name not in _NAMES:
            raise MappingError(f"the activation {name} in a recurrent layer")
        parameters: dict[str, float] = {}
        if name in _PARAMETERS:
            default = {"HardSigmoid": (0.2, 0.5)}.get(name)
            alpha = alphas.pop(0) if alphas else (default or (None, None))[0]
            beta = betas.pop(0) if betas else (default or (None, None))[1]
            if alpha is None or beta is None or not np.allclose((alpha, beta), _PARAMETERS[name], rtol=1e-5):
                raise MappingError(f"{name} with alpha={alpha}, beta={beta} (only {_PARAMETERS[name]})")
            parameters = {"alpha": alpha, "beta": beta}
        found.append({_NAMES[name]: parameters})
    return found


class Recurrent:
    """One node: its sizes, gates and states."""

    def __init__(self, near: Node, low: CoreLowering, gates: int) -> None:
        self.near, self.low, self.gates = near, low, gates
        attrs = attrs_with_defaults(near)
        if attrs.get("layout", 0) or near.attrs.get("clip"):
            raise MappingError("batch-major layout or clipped gates of a recurrent operator")
        if near.input(4) is not None:
            raise MappingError("sequence lengths of a recurrent operator")
        self.direction = str(attrs.get("direction", "forward"))
        self.directions = 2 if self.direction == "bidirectional" else 1
        size = shape_of(x_of(near, 1))
        if size is None:
            raise MappingError("the weights of a recurrent operator must be constant")
        self.size, self.into = size[1] // gates, size[2]
        self.x = x_of(near)

    def weights(self, index: int, direction: int) -> list[Any]:
        """The gates' matrices: the values that a Concat was made of (compact ones stay compact), or views."""
        value = x_of(self.near, index)
        parts = _parts(value) if self.directions == 1 else None
        if parts is not None and len(parts) == self.gates:
            return [self.low.weights(p) for p in parts]
        array = numbers(value, "the weights of a recurrent operator")[direction]
        return [self.low.plain(a) for a in array.reshape(self.gates, self.size, -1)]

    def biases(self, direction: int) -> list[Any] | None:
        value = self.near.input(3)
        if value is None:
            return None
        both = numbers(value, "the biases")[direction].reshape(2, self.gates, self.size)
        return [self.low.plain(a) for a in both[0] + both[1]]

    def inputs(self, states: Sequence[Value | None], needed: bool) -> list[Value]:
        """The sequence and the states as blobs; absent states are zeros where the layer or another state needs them."""
        x = self.blob(self.x)
        if all(s is None for s in states) and not needed:
            return [x]
        made = [self.blob(s) if s is not None else self._zeros() for s in states]
        if self.directions == 1:
            return [x, *made]
        halves = [self._halves(s) for s in made]
        return [x, halves[0][0], halves[1][0], halves[0][1], halves[1][1]]

    def blob(self, value: Value) -> Value:
        shape = shape_list(value)
        return self.low.one("expandDims", [value], [*shape, 1, 1] if shape else None, {"axes": [3, 4]})

    def _zeros(self) -> Value:
        batch = (shape_list(self.x) or [None, None])[1]
        if batch is None:
            raise MappingError("an initial state of zeros needs a static batch size", "X203", "fix the inputs with --inputs")
        shape = [self.directions, batch, self.size, 1, 1]
        return self.low.one("fillStatic", [], shape, {"value": 0.0, "targetShape": shape})

    def _halves(self, state: Value) -> list[Value]:
        batch = (shape_list(self.x) or [None, None])[1]
        outs = [self.low.value("state", state.dtype, [1, batch, self.size, 1, 1]) for _ in (0, 1)]
        self.low.add("splitND", [state], outs, {"axis": 0, "numSplits": 2})
        return outs

    def result(self, blob: Value, out: Value, sequence: bool) -> None:
        """A blob [n,Batch,H,1,1] as ONNX's output; sequences get the axis of directions and, backwards, the order of time."""
        shape = shape_list(out)
        if not sequence:
            self.low.add("squeeze", [blob], [out], {"axes": [3, 4]})
            return
        if self.direction == "reverse":
            blob = self.low.one("reverse", [blob], shape_list(blob), {"reverseDim": [True, False, False, False, False]})
        if self.directions == 1:
            moved = [shape[0], shape[2], shape[3]] if shape else None
            steps = self.low.one("squeeze", [blob], moved, {"axes": [3, 4]})
            self.low.add("expandDims", [steps], [out], {"axes": [1]})
            return
        seq, batch = (shape[0], shape[2]) if shape else (None, None)
        steps = self.low.one("squeeze", [blob], [seq, batch, 2 * self.size], {"axes": [3, 4]})
        apart = self.low.one("splitND", [steps], [seq, batch, self.size], {"axis": 2, "numSplits": 2})
        other = self.low.value("backward", out.dtype, [seq, batch, self.size])
        self.low.layers[-1].outputs.append(other)
        self.low.add("stack", [apart, other], [out], {"axis": 1})

    def outputs(self, count: int) -> list[Value]:
        """New blobs: the sequence and `count` states per direction."""
        shape = shape_list(self.x) or [None, None, None]
        whole = self.low.value("sequence", ir.DataType.FLOAT, [shape[0], shape[1], self.directions * self.size, 1, 1])
        states = [self.low.value("state", ir.DataType.FLOAT, [1, shape[1], self.size, 1, 1]) for _ in range(count * self.directions)]
        return [whole, *states]

    def used(self, index: int) -> bool:
        return index < len(self.near.outputs) and (bool(self.near.outputs[index].uses()) or self.near.outputs[index].is_graph_output())

    def finish(self, blobs: list[Value], states: int) -> None:
        """Connects the layer's blobs with the node's outputs that somebody reads."""
        if self.used(0):
            self.result(blobs[0], self.near.outputs[0], True)
        for i in range(states):
            if not self.used(1 + i):
                continue
            blob = blobs[1 + i]
            if self.directions == 2:
                shape = shape_list(blob) or [None] * 5
                blob = self.low.one("concatND", [blobs[1 + i], blobs[1 + states + i]], [2, *shape[1:]], {"axis": 0})
            self.result(blob, self.near.outputs[1 + i], False)


def _parts(value: Value) -> list[Value] | None:
    """The gates of Unsqueeze(Concat(..)), as lifting makes them of compact weights."""
    node = value.producer()
    inner = node.inputs[0].producer() if node is not None and node.op_type == "Unsqueeze" and node.inputs[0] is not None else None
    return [v for v in inner.inputs if v is not None] if inner is not None and inner.op_type == "Concat" else None


@lowers("RNN")
def lower_rnn(near: Node, low: Lowering) -> None:
    r = Recurrent(near, core(low), 1)
    if r.directions == 2:
        raise MappingError("a bidirectional RNN (only LSTMs have two directions)")
    bias = r.biases(0)
    blobs = {"weightMatrix": r.weights(1, 0)[0], "recursionMatrix": r.weights(2, 0)[0], **({"biasVector": bias[0]} if bias else {})}
    attrs = {**_sizes(r), "activation": chosen(near, ["Tanh"], 1)[0], "sequenceOutput": True, "hasBiasVector": bool(bias)}
    outs = r.outputs(1)
    low.add("simpleRecurrent", r.inputs([near.input(5)], needed=True), outs, attrs, blobs)
    r.finish(outs, 1)


def _sizes(r: Recurrent) -> dict[str, Any]:
    base: dict[str, Any] = {"inputVectorSize": r.into, "outputVectorSize": r.size}
    return base if r.directions == 2 else {**base, "reverseInput": r.direction == "reverse"}


@lowers("GRU")
def lower_gru(near: Node, low: Lowering) -> None:
    if near.attrs.get("linear_before_reset", 0):
        raise MappingError("a GRU whose reset gate comes after the matrix (linear_before_reset=1)")
    r = Recurrent(near, core(low), 3)
    if r.directions == 2:
        raise MappingError("a bidirectional GRU (only LSTMs have two directions)")
    blobs: dict[str, Any] = {}
    bias = r.biases(0)
    for i, gate in enumerate(("update", "reset", "output")):
        blobs[f"{gate}GateWeightMatrix"], blobs[f"{gate}GateRecursionMatrix"] = r.weights(1, 0)[i], r.weights(2, 0)[i]
        if bias:
            blobs[f"{gate}GateBiasVector"] = bias[i]
    attrs = {**_sizes(r), "activations": chosen(near, ["Sigmoid", "Tanh"], 1), "sequenceOutput": True, "hasBiasVectors": bool(bias)}
    outs = r.outputs(1)
    low.add("gru", r.inputs([near.input(5)], needed=False), outs, attrs, blobs)
    r.finish(outs, 1)


def lstm_blobs(r: Recurrent, prefix: str, direction: int) -> dict[str, Any]:
    blobs: dict[str, Any] = {}
    weights, recursion, bias = r.weights(1, direction), r.weights(2, direction), r.biases(direction)
    peepholes = r.near.input(7)
    for i, gate in enumerate(ORDER):
        name = f"{prefix}{_FIELD[gate]}"
        blobs[f"{name}WeightMatrix"], blobs[f"{name}RecursionMatrix"] = weights[i], recursion[i]
        if bias:
            blobs[f"{name}BiasVector"] = bias[i]
        if peepholes is not None and gate != "block":
            blobs[f"{name}PeepholeVector"] = r.low.plain(numbers(peepholes, "the peepholes")[direction].reshape(3, r.size)[i])
    return blobs


def _lower_lstm(near: Node, low: Lowering, clip: float) -> None:
    r = Recurrent(near, core(low), 4)
    functions = chosen(near, ["Sigmoid", "Tanh", "Tanh"], r.directions)
    params = {
        "sequenceOutput": True,
        "hasBiasVectors": near.input(3) is not None,
        "hasPeepholeVectors": near.input(7) is not None,
        "coupledInputAndForgetGate": bool(near.attrs.get("input_forget", 0)),
        "cellClipThreshold": clip,
    }
    outs = r.outputs(2)
    inputs = r.inputs([near.input(5), near.input(6)], needed=False)
    if r.directions == 1:
        low.add("uniDirectionalLSTM", inputs, outs, {**_sizes(r), "activations": functions, "params": params}, lstm_blobs(r, "weightParams.", 0))
    else:
        both = {"activationsForwardLSTM": functions, "activationsBackwardLSTM": functions}
        blobs = {**lstm_blobs(r, "weightParams[0].", 0), **lstm_blobs(r, "weightParams[1].", 1)}
        low.add("biDirectionalLSTM", inputs, outs, {**_sizes(r), **both, "params": params}, blobs)
    r.finish(outs, 2)


@lowers("LSTM")
def lower_lstm(near: Node, low: Lowering) -> None:
    _lower_lstm(near, low, 50000.0)


@lowers("CellClippedLSTM", domain="netconv")
def lower_clipped_lstm(near: Node, low: Lowering) -> None:
    _lower_lstm(near, low, float(near.attrs["cell_clip"]))
