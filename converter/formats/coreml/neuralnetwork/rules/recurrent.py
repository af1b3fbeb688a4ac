"""Recurrent layers.

Blobs are [Seq,Batch,C,1,1], states [1,Batch,H,1,1]; ONNX has [Seq,Batch,C] and
[directions,Batch,H].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.neuralnetwork import operands as blobs
from converter.formats.coreml.neuralnetwork.rules.context import LiftContext, LowerContext
from converter.formats.coreml.neuralnetwork.rules.fields import FIX
from converter.graph.demands import of_length
from converter.graph.infer import Array, shape_of
from converter.graph.value import producer_if, producer_operand
from converter.mapping.rules import custom

Value = ir.Value
UNBOUND = 50.0  # gates saturate long before: a threshold from here on does not bind
PLAIN = {"sigmoid": "Sigmoid", "tanh": "Tanh", "ReLU": "Relu"}
# with the parameters that they have inside recurrent layers although files leave them out
FIXED = {
    "linear": ("Affine", 1.0, 0.0),
    "sigmoidHard": ("HardSigmoid", 0.2, 0.5),
    "scaledTanh": ("ScaledTanh", 1.7159, 2 / 3),
}
NAMES = {v: k for k, v in PLAIN.items()} | {v[0]: k for k, v in FIXED.items()}
PARAMETERS = {name: (alpha, beta) for name, alpha, beta in FIXED.values()}
# the gates in ONNX's order, by the prefix of the names of their weights
RNN = ("",)
GRU = ("updateGate", "resetGate", "outputGate")
LSTM = ("inputGate", "outputGate", "forgetGate", "blockInput")


def path(gate: str, part: str) -> str:
    """Return the path of a gate's weights: `updateGateBiasVector`, or `biasVector` for a layer
    without gates.
    """
    name = gate + part
    return name[0].lower() + name[1:]


# reading -----------------------------------------------------------------------------------------


def activations(
    chosen: Sequence[dict[str, Any]], defaults: Sequence[str], times: int = 1
) -> dict[str, Any]:
    """Return ONNX's `activations` with their alphas and betas; empty if they are the defaults. An
    empty scaledTanh{} is tanh.
    """
    names, alphas, betas = [], [], []
    if chosen:
        of_length(len(defaults), activations=chosen)
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
            raise MappingError(f"activation {kind} is not supported in a recurrent layer", "R110")
    if names == [PLAIN[d] for d in defaults]:
        return {}
    found: dict[str, Any] = {"activations": names * times}
    if alphas:
        found |= {"activation_alpha": alphas * times, "activation_beta": betas * times}
    return found


def matrices(r: LiftContext, gates: Sequence[str], part: str, width: int) -> Value:
    """Concatenate the weights of several gates, and add a leading axis for the direction."""
    values = [r.weights(path(g, part), [r.attr("outputVectorSize", int), width]) for g in gates]
    arrays = [v.const_value for v in values]
    if all(a is not None for a in arrays):
        whole = np.concatenate([a.numpy() for a in arrays if a is not None])
        return r.b.const(whole[None], f"{r.layer.name}.{path(gates[0], part)}")
    return r.b.Unsqueeze(r.b.Concat(*values, axis=0), [0])


def vectors(r: LiftContext, gates: Sequence[str], part: str) -> Array:
    """Concatenate the vectors of the gates."""
    size = [r.attr("outputVectorSize", int)]
    return np.concatenate([r.numbers(path(g, part), size) for g in gates])


def stored(r: LiftContext, gates: Sequence[str], biased: bool) -> list[Value | None]:
    """Return W, R and B of one direction; the second half of ONNX's biases (recurrent ones) is
    zero.
    """
    size, into = (r.attr(f"{k}VectorSize", int) for k in ("output", "input"))
    weights = matrices(r, gates, "WeightMatrix", into)
    recursion = matrices(r, gates, "RecursionMatrix", size)
    values = vectors(r, gates, "BiasVector") if biased else np.zeros(len(gates) * size, np.float32)
    if r.layer.attrs.get("params", {}).get("forgetBias", False):
        values = values + np.repeat(np.array([0, 0, 1, 0], np.float32), size)
    if not biased and not values.any():
        return [weights, recursion, None]
    both = np.concatenate([values, np.zeros_like(values)])
    return [weights, recursion, r.b.const(both[None].astype(np.float32), "bias")]


def sequence(r: LiftContext, index: int) -> Value:
    """Reshape [Seq,Batch,C,1,1] to [Seq,Batch,C]."""
    rank = blobs.rank(r.input(index))
    if rank != 5:
        raise MappingError(f"the data of a recurrent layer must have rank 5, got {rank}", "R105")
    return blobs.squeeze(r.b, r.floats(index), [3, 4])


def state(r: LiftContext, index: int) -> Value | None:
    """Return an initial state [1,Batch,H]. Some files have it as [Batch,H,1,1,1]: the same numbers
    in the same order.
    """
    if index >= len(r.layer.inputs):
        return None
    value, size = sequence(r, index), r.attr("outputVectorSize", int)
    fits = value.shape is not None and value.shape[2] == size and value.shape[0] in (1, None)
    return value if fits else r.b.Reshape(value, [1, -1, size])


def blob(r: LiftContext, x: Value) -> Value:
    """Reshape [n,Batch,H] to [n,Batch,H,1,1]."""
    return blobs.unsqueeze(r.b, x, [3, 4])


def result(r: LiftContext, y: Value, last: Value, whole: bool) -> Value:
    """Return the output blob: all time steps in processing order, or the last one."""
    if not whole:
        return blob(r, last)
    steps = r.b.Squeeze(y, [1])
    if r.attr("reverseInput", bool):
        steps = steps[::-1]
    return blob(r, steps)


def common(r: LiftContext, direction: str = "") -> dict[str, Any]:
    """Return the attributes that all of them share."""
    way = direction or ("reverse" if r.attr("reverseInput", bool) else "forward")
    return {"hidden_size": r.attr("outputVectorSize", int), "direction": way}


def lift_one_state(
    r: LiftContext, gates: Sequence[str], biased: bool, **options: Any
) -> list[Value]:
    """Read an RNN or a GRU."""
    operands = (sequence(r, 0), *stored(r, gates, biased), None, state(r, 1))
    y, last = r.b.ops(options.pop("op"), *operands, outputs=2, **common(r), **options)
    return [result(r, y, last, r.layer.attrs["sequenceOutput"]), blob(r, last)]


def lift_rnn(r: LiftContext) -> list[Value]:
    """Lift simpleRecurrent: its sequence and last state."""
    given = r.layer.attrs
    chosen = activations([given["activation"]] if "activation" in given else [], ["tanh"])
    return lift_one_state(r, RNN, given["hasBiasVector"], op="RNN", **chosen)


def lift_gru(r: LiftContext) -> list[Value]:
    """Read a GRU. The reset gate is applied before the recurrent matrix (linear_before_reset=0).
    Gates z, r, h.
    """
    given = r.layer.attrs
    chosen = activations(given["activations"], ["sigmoid", "tanh"])
    options = {**chosen, "linear_before_reset": 0}
    return lift_one_state(r, GRU, given["hasBiasVectors"], op="GRU", **options)


def lstm_weights(r: LiftContext, prefix: str) -> list[Value | None]:
    """Return W [1,4H,I], R [1,4H,H], B [1,8H] and P [1,3H] of one direction."""
    q, gates = r.layer.attrs.get("params", {}), [prefix + g for g in LSTM]
    peepholes = None
    if q.get("hasPeepholeVectors", False):
        array = vectors(r, gates[:3], "PeepholeVector")
        peepholes = r.b.const(array[None], "peepholes")
    return [*stored(r, gates, q.get("hasBiasVectors", False)), peepholes]


def lstm(r: LiftContext, prefixes: Sequence[str], **options: Any) -> tuple[Value, ...]:
    """Create an LSTM for the directions whose weights have these prefixes, or the extension
    operator with clipped cells if the clip threshold has an effect. States are h and c of the first
    direction, then of the second one.
    """
    q = r.layer.attrs.get("params", {})
    directions = [
        [*lstm_weights(r, prefix), state(r, 1 + 2 * i), state(r, 2 + 2 * i)]
        for i, prefix in enumerate(prefixes)
    ]
    joined = (_joined(r, parts) for parts in zip(*directions, strict=True))
    weights, recursion, bias, peepholes, hidden, cell = joined
    operands = (sequence(r, 0), weights, recursion, bias, None, hidden, cell, peepholes)
    clip = float(q.get("cellClipThreshold", 0.0))
    if q.get("coupledInputAndForgetGate", False):
        options["input_forget"] = 1
    if 0 < clip < UNBOUND:
        return r.b.exts("CellClippedLSTM", *operands, outputs=3, cell_clip=clip, **options)
    return r.b.ops("LSTM", *operands, outputs=3, **options)


def lift_lstm(r: LiftContext) -> list[Value]:
    """Lift uniDirectionalLSTM: its sequence, last hidden state and last cell state."""
    chosen = activations(r.layer.attrs["activations"], ["sigmoid", "tanh", "tanh"])
    y, *last = lstm(r, ["weightParams."], **common(r), **chosen)
    whole = r.layer.attrs.get("params", {}).get("sequenceOutput", False)
    return [result(r, y, last[0], whole), *(blob(r, v) for v in last)]


def lift_bidirectional(r: LiftContext) -> list[Value]:
    """Read a bidirectional LSTM; the backward half of the output is aligned with time."""
    b, given = r.b, r.layer.attrs
    chosen = activations(given["activationsForwardLSTM"], ["sigmoid", "tanh", "tanh"], 2)
    prefixes = ["weightParams[0].", "weightParams[1]."]
    y, *last = lstm(r, prefixes, **common(r, "bidirectional"), **chosen)
    (h, back_h), (c, back_c) = (b.Split(v, outputs=2, axis=0, num_outputs=2) for v in last)
    if given.get("params", {}).get("sequenceOutput", False):
        size = 2 * r.attr("outputVectorSize", int)
        joined = b.Reshape(b.Transpose(y, perm=[0, 2, 1, 3]), [0, 0, size])
    else:
        joined = b.Concat(h, back_h, axis=2)
    return [blob(r, v) for v in (joined, h, c, back_h, back_c)]


def _joined(r: LiftContext, parts: Sequence[Value | None]) -> Value | None:
    """Concatenate the weights of the directions; empty where one has none."""
    values = [v for v in parts if v is not None]
    if len(values) < len(parts):
        return None
    if len(values) == 1:
        return values[0]
    arrays = [v.const_value.numpy() for v in values if v.const_value is not None]
    if len(arrays) == len(values):
        return r.b.const(np.concatenate(arrays), str(values[0].name))
    return r.b.Concat(*values, axis=0)


# writing -----------------------------------------------------------------------------------------


def chosen(w: LowerContext, defaults: Sequence[str], directions: int) -> list[dict[str, Any]]:
    """Return the activations of the first direction as messages; both directions must agree, and
    have the layers' parameters.
    """
    names = [str(n) for n in w.attr("activations", None) or [*defaults] * directions]
    alphas, betas = (list(w.attr(k, None) or []) for k in ("activation_alpha", "activation_beta"))
    if directions == 2 and names[: len(defaults)] != names[len(defaults) :]:
        raise MappingError("activations must be the same in both directions")
    found: list[dict[str, Any]] = []
    for name in names[: len(defaults)]:
        if name not in NAMES:
            raise MappingError(f"activation {name} is not supported in a recurrent layer")
        parameters: dict[str, float] = {}
        if name in PARAMETERS:
            default: Any = PARAMETERS[name] if name == "HardSigmoid" else (None, None)
            alpha = alphas.pop(0) if alphas else default[0]
            beta = betas.pop(0) if betas else default[1]
            absent = alpha is None or beta is None
            if absent or not np.allclose((alpha, beta), PARAMETERS[name], rtol=1e-5):
                only = f"(only {PARAMETERS[name]})"
                raise MappingError(
                    f"{name} with alpha={alpha}, beta={beta} is not supported {only}"
                )
            parameters = {"alpha": alpha, "beta": beta}
        found.append({NAMES[name]: parameters})
    return found


class Recurrent:
    """One recurrent operator: its sizes, gates and states."""

    def __init__(self, w: LowerContext, gates: int, both: bool = False) -> None:
        self.w, self.gates = w, gates
        if w.attr("layout", 0) or w.attr("clip", None):
            raise MappingError("layout=1 and clip are not supported in a recurrent layer")
        if w.has(4):
            raise MappingError("sequence_lens is not supported in a recurrent layer")
        self.direction = str(w.attr("direction"))
        self.directions = 2 if self.direction == "bidirectional" else 1
        if self.directions == 2 and not both:
            name = w.node.op
            raise MappingError(
                f"a bidirectional {name} is not supported (only LSTM has two directions)"
            )
        size = shape_of(w.input(1))
        if size is None:
            raise MappingError("the weights of a recurrent operator must be constant")
        self.size, self.into = size[1] // gates, size[2]
        self.steps, self.batch, *_ = self.w.dims(w.data) or [None, None]

    def blobs(self, gates: Sequence[str], direction: int = 0) -> dict[str, Any]:
        """Return the weights of one direction by their paths."""
        parts = {
            "WeightMatrix": self.weights(1, direction),
            "RecursionMatrix": self.weights(2, direction),
        }
        if self.w.has(3):
            parts["BiasVector"] = self.biases(direction)
        if self.w.has(7):
            array = self.w.numbers(7, "the peepholes")[direction].reshape(3, self.size)
            parts["PeepholeVector"] = [self.w.plain(a) for a in array]
        return {
            path(gate, part): value
            for part, values in parts.items()
            for gate, value in zip(gates, values, strict=False)
        }

    def weights(self, index: int, direction: int) -> list[Any]:
        """Return the gates' matrices: the inputs of their Concat (compact ones stay compact), or
        views.
        """
        parts = _parts(self.w.input(index)) if self.directions == 1 else None
        if parts is not None and len(parts) == self.gates:
            return [self.w.stored(p) for p in parts]
        array = self.w.numbers(index, "the weights of a recurrent operator")[direction]
        return [self.w.plain(a) for a in array.reshape(self.gates, self.size, -1)]

    def biases(self, direction: int) -> list[Any]:
        """Return the biases of a direction for each gate, those of input and state added."""
        array = self.w.numbers(3, "the biases")[direction]
        both = array.reshape(2, self.gates, self.size)
        return [self.w.plain(a) for a in both[0] + both[1]]

    def inputs(self, states: Sequence[Value | None], needed: bool) -> list[Value]:
        """Return the sequence and the states as blobs; absent states are zeros if the layer or
        another state requires them.
        """
        x = self.blob(self.w.data)
        if all(s is None for s in states) and not needed:
            return [x]
        made = [self.blob(s) if s is not None else self._zeros() for s in states]
        if self.directions == 1:
            return [x, *made]
        halves = [self._halves(s) for s in made]
        return [x, halves[0][0], halves[1][0], halves[0][1], halves[1][1]]

    def blob(self, value: Value) -> Value:
        """Append two axes of size 1 to a state."""
        shape = self.w.dims(value)
        longer = None if shape is None else [*shape, 1, 1]
        return self.w.emit("expandDims", value, shape=longer, axes=[3, 4])

    def _zeros(self) -> Value:
        if self.batch is None:
            message = "an initial state of zeros needs a static batch size"
            raise MappingError(message, "X203", FIX)
        shape = [self.directions, self.batch, self.size, 1, 1]
        options: dict[str, Any] = {"value": 0.0, "targetShape": shape}
        return self.w.emit("fillStatic", dtype=ir.DataType.FLOAT, shape=shape, **options)

    def _state(self) -> Value:
        shape = [1, self.batch, self.size, 1, 1]
        return self.w.temporary("state", ir.DataType.FLOAT, shape)

    def _halves(self, state: Value) -> list[Value]:
        outs = [self._state(), self._state()]
        self.w.put("splitND", state, outputs=outs, axis=0, numSplits=2)
        return outs

    def result(self, blob: Value, out: Value, sequence: bool) -> None:
        """A blob [n,Batch,H,1,1] as ONNX's output; sequences get the axis of directions and,
        backwards, the order of time.
        """
        w, seq, batch = self.w, self.steps, self.batch
        if not sequence:
            w.put("squeeze", blob, outputs=[out], axes=[3, 4])
            return
        if self.direction == "reverse":
            first = [True, False, False, False, False]
            blob = w.emit("reverse", blob, shape=self.w.dims(blob), reverseDim=first)
        width = self.directions * self.size
        steps = w.emit("squeeze", blob, shape=[seq, batch, width], axes=[3, 4])
        if self.directions == 1:
            w.put("expandDims", steps, outputs=[out], axes=[1])
            return
        halves = [w.temporary("half", out.dtype, [seq, batch, self.size]) for _ in (0, 1)]
        w.put("splitND", steps, outputs=halves, axis=2, numSplits=2)
        w.put("stack", *halves, outputs=[out], axis=1)

    def outputs(self, count: int) -> list[Value]:
        """Create new blobs: the sequence and `count` states for each direction."""
        shape = [self.steps, self.batch, self.directions * self.size, 1, 1]
        whole = self.w.temporary("sequence", ir.DataType.FLOAT, shape)
        return [whole, *(self._state() for _ in range(count * self.directions))]

    def write(
        self,
        kind: str,
        inputs: list[Value],
        states: int,
        attrs: dict[str, Any],
        weights: dict[str, Any],
    ) -> None:
        """Write the layer, and the operators between its blobs and the used outputs of the
        operator.
        """
        made = self.outputs(states)
        sizes: dict[str, Any] = {"inputVectorSize": self.into, "outputVectorSize": self.size}
        if self.directions == 1:
            sizes["reverseInput"] = self.direction == "reverse"
        self.w.low.add(kind, inputs, made, {**sizes, **attrs}, weights)
        outputs = self.w.node.outputs
        if self.w.used(0):
            self.result(made[0], outputs[0], True)
        for i in filter(self.w.used, range(1, 1 + states)):
            blob = made[i]
            if self.directions == 2:
                shape = [2, self.batch, self.size, 1, 1]
                blob = self.w.emit("concatND", blob, made[states + i], shape=shape, axis=0)
            self.result(blob, outputs[i], False)


def _parts(value: Value) -> list[Value] | None:
    """Return the operands of Unsqueeze(Concat(..)), as lifting creates it from compact weights of
    the gates.
    """
    inner = producer_if(producer_operand(value, "Unsqueeze"), "Concat")
    return None if inner is None else [v for v in inner.inputs if v is not None]


def lower_rnn(w: LowerContext) -> None:
    """Write an RNN as simpleRecurrent."""
    r = Recurrent(w, 1)
    attrs = {"activation": chosen(w, ["Tanh"], 1)[0], "hasBiasVector": w.has(3)}
    inputs = r.inputs([w.optional(5)], needed=True)
    r.write("simpleRecurrent", inputs, 1, {**attrs, "sequenceOutput": True}, r.blobs(RNN))


def lower_gru(w: LowerContext) -> None:
    """Write a GRU with linear_before_reset=0."""
    if w.attr("linear_before_reset"):
        message = "linear_before_reset=1 is not supported"
        raise MappingError(message)
    r, functions = Recurrent(w, 3), chosen(w, ["Sigmoid", "Tanh"], 1)
    attrs = {"activations": functions, "hasBiasVectors": w.has(3)}
    inputs = r.inputs([w.optional(5)], needed=False)
    r.write("gru", inputs, 1, {**attrs, "sequenceOutput": True}, r.blobs(GRU))


def lower_lstm(w: LowerContext) -> None:
    """Write an LSTM as uniDirectionalLSTM or biDirectionalLSTM."""
    r = Recurrent(w, 4, both=True)
    functions = chosen(w, ["Sigmoid", "Tanh", "Tanh"], r.directions)
    params = {
        "sequenceOutput": True,
        "hasBiasVectors": w.has(3),
        "hasPeepholeVectors": w.has(7),
        "coupledInputAndForgetGate": bool(w.attr("input_forget", 0)),
        "cellClipThreshold": float(w.attr("cell_clip", 50000.0)),
    }
    inputs = r.inputs([w.optional(5), w.optional(6)], needed=False)
    if r.directions == 1:
        attrs = {"activations": functions, "params": params}
        weights = r.blobs([f"weightParams.{g}" for g in LSTM])
        r.write("uniDirectionalLSTM", inputs, 2, attrs, weights)
        return
    weights = {}
    for i in (0, 1):
        weights |= r.blobs([f"weightParams[{i}].{g}" for g in LSTM], i)
    both = {"activationsForwardLSTM": functions, "activationsBackwardLSTM": functions}
    r.write("biDirectionalLSTM", inputs, 2, {**both, "params": params}, weights)


RULES = [
    custom("RNN", "simpleRecurrent", lift_rnn, lower_rnn),
    custom("GRU", "gru", lift_gru, lower_gru),
    custom("LSTM netconv::CellClippedLSTM", "uniDirectionalLSTM", lift_lstm, lower_lstm),
    custom("", "biDirectionalLSTM", lift_bidirectional),
]
