"""RNN, LSTM and SVDF: one step each, and the sequence forms as loops over steps.

NNAPI's LSTM clips the cell state (ONNX clips the gates before their activation) and may project its output, so the step is written
out in plain operators; NNAPI has no ONNX operator of its own meaning here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.ops.args import Args, lifts
from converter.formats.nnapi.ops.emit import Emit, lowers
from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import Builder
from converter.graph.infer import shape_of
from converter.mapping.node import MappingError

Activation = Callable[[Builder, ir.Value], ir.Value]
ACTIVATIONS: dict[int, Activation] = {
    0: lambda b, x: x,
    1: lambda b, x: b.op("Relu", x),
    2: lambda b, x: b.op("Clip", x, b.like(x, -1), b.like(x, 1)),
    3: lambda b, x: b.op("Clip", x, b.like(x, 0), b.like(x, 6)),
    4: lambda b, x: b.op("Tanh", x),
    6: lambda b, x: b.op("Sigmoid", x),
}


def activation(a: Args) -> Activation:
    code = a.integer("activation")
    if code not in ACTIVATIONS:
        raise MappingError(f"activation {code} is not known", "R110")
    return ACTIVATIONS[code]


def dense(b: Builder, x: ir.Value, weights: ir.Value) -> ir.Value:
    """x [batch, in] times weights [out, in]."""
    return b.op("MatMul", x, b.op("Transpose", weights, perm=[1, 0]))


def total(b: Builder, terms: Sequence[ir.Value | None]) -> ir.Value:
    present = [t for t in terms if t is not None]
    result = present[0]
    for t in present[1:]:
        result = b.op("Add", result, t)
    return result


@lifts("RNN")
def rnn(a: Args) -> tuple[ir.Value, ir.Value]:
    y = rnn_step(a.b, activation(a), *(a.real(n) for n in ("input", "hidden_state_in", "weights", "recurrent_weights", "bias")))
    return y, a.b.op("Identity", y)


def rnn_step(b: Builder, f: Activation, x: ir.Value, h: ir.Value, w: ir.Value, r: ir.Value, bias: ir.Value, aux: ir.Value | None = None) -> ir.Value:
    return f(b, total(b, [dense(b, x, w), dense(b, h, r), bias, aux]))


Step = Callable[[Builder, ir.Value, list[ir.Value]], tuple[ir.Value, list[ir.Value]]]


def loop(b: Builder, x: ir.Value, states: Sequence[ir.Value], step: Step, backward: bool = False) -> list[ir.Value]:
    """Runs `step(builder, x_t, states)` over axis 0 of `x`; the final states, then the outputs stacked on axis 0 (in time order)."""
    steps = b.op("Gather", b.op("Shape", x), 0)
    if backward:
        x = reversed_time(b, x)
    body = b.body("steps")
    i = body.input("step", ir.DataType.INT64, [])
    condition = body.input("condition", ir.DataType.BOOL, [])
    carried = [body.input("state", s.dtype or ir.DataType.FLOAT, list(s.shape) if s.shape is not None else None) for s in states]
    y, new = step(body, body.op("Gather", x, i, axis=0), carried)
    body.output(body.op("Identity", condition), *new, y)
    results = list(b.ops("Loop", steps, np.array(True), *states, body=body.graph, outputs=len(states) + 1))
    if x.shape is not None and results[-1].shape is not None:
        results[-1].shape = ir.Shape([x.shape[0], *list(results[-1].shape)[1:]])
    if backward:
        results[-1] = reversed_time(b, results[-1])
    return results


def reversed_time(b: Builder, x: ir.Value) -> ir.Value:
    return b.op("Slice", x, [-1], [np.iinfo(np.int64).min + 1], [0], [-1])


def width_of(x: ir.Value) -> int:
    shape = shape_of(x)
    if shape is None:
        raise MappingError("the shape of a sequence must be static", "X203")
    return shape[2]


def time_major(a: Args, x: ir.Value) -> ir.Value:
    """[batch, time, ...] <-> [time, batch, ...] unless the operation is time-major already."""
    return x if a.flag("time_major") else a.b.op("Transpose", x, perm=[1, 0, 2])


@lifts("UNIDIRECTIONAL_SEQUENCE_RNN")
def sequence_rnn(a: Args) -> tuple[ir.Value, ...]:
    return tuple(_sequence_rnn(a, "", time_major(a, a.real("input")), False, None))


def _sequence_rnn(a: Args, prefix: str, x: ir.Value, backward: bool, aux: ir.Value | None) -> list[ir.Value]:
    f, w, r, bias = activation(a), a.real(f"{prefix}weights"), a.real(f"{prefix}recurrent_weights"), a.real(f"{prefix}bias")
    width = width_of(x)
    both = x if aux is None else a.b.op("Concat", x, aux, axis=2)
    extra = a.real(f"{prefix}aux_weights") if aux is not None else None

    def step(b: Builder, x_t: ir.Value, states: list[ir.Value]) -> tuple[ir.Value, list[ir.Value]]:
        more = None
        if extra is not None:
            more = dense(b, b.op("Slice", x_t, [width], [np.iinfo(np.int64).max], [1]), extra)
            x_t = b.op("Slice", x_t, [0], [width], [1])
        y = rnn_step(b, f, x_t, states[0], w, r, bias, more)
        return y, [b.op("Identity", y)]

    last, y = loop(a.b, both, [a.real(f"{prefix}hidden_state_in")], step, backward)
    return [time_major(a, y), last]


@lifts("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_rnn(a: Args) -> tuple[ir.Value, ...]:
    """The auxiliary input is a second input of both directions, or, without weights of its own, the backward direction's input."""
    x = time_major(a, a.real("input"))
    aux = time_major(a, a.real("aux_input")) if a.has("aux_input") else None
    weighted = aux is not None and a.has("fw_aux_weights")
    forward = _sequence_rnn(a, "fw_", x, False, aux if weighted else None)
    backward = _sequence_rnn(a, "bw_", x if weighted or aux is None else aux, True, aux if weighted else None)
    return merge(a, forward[0], backward[0], [forward[1], backward[1]])


def merge(a: Args, forward: ir.Value, backward: ir.Value, states: list[ir.Value]) -> tuple[ir.Value, ...]:
    states = states if len([v for v in a.binding.outputs.values() if v is not None]) > 2 - int(a.flag("merge_outputs")) else []
    if a.flag("merge_outputs"):
        return (a.b.op("Concat", forward, backward, axis=2), *states)
    return (forward, backward, *states)


class LstmWeights:
    """The weights of one LSTM by gate; an absent input gate is coupled to the forget gate (CIFG)."""

    def __init__(self, a: Args, prefix: str = "") -> None:
        def get(name: str) -> ir.Value | None:
            return a.real(prefix + name) if a.has(prefix + name) else None

        gates = ("input", "forget", "cell", "output")
        self.x = {g: get(f"input_to_{g}_weights") for g in gates}
        self.h = {g: get(f"recurrent_to_{g}_weights") for g in gates}
        self.c = {g: get(f"cell_to_{g}_weights") for g in ("input", "forget", "output")}
        self.bias = {g: get("cell_bias" if g == "cell" else f"{g}_gate_bias") for g in gates}
        self.norm = {g: get(f"{g}_layer_norm_weights") for g in gates}
        self.aux = {g: get(f"aux_input_to_{g}_weights") for g in gates}
        self.projection, self.projection_bias = get("projection_weights"), get("projection_bias")
        self.cell_clip, self.projection_clip = a.number("cell_clip"), a.number("proj_clip")
        self.activation = activation(a)

    def gate(self, b: Builder, g: str, x: ir.Value, h: ir.Value, c: ir.Value | None, aux: ir.Value | None) -> ir.Value:
        """The gate before its activation: products, peephole, then (layer norm) and bias."""
        wx, wh, peephole = self.x[g], self.h[g], self.c.get(g)
        if wx is None or wh is None:
            raise MappingError(f"the weights of the {g} gate are left out", "R131")
        terms = [dense(b, x, wx), dense(b, h, wh)]
        weights = self.aux[g]
        if aux is not None and weights is not None:
            terms.append(dense(b, aux, weights))
        if peephole is not None and c is not None:
            terms.append(b.op("Mul", c, peephole))
        norm = self.norm[g]
        if norm is None:
            return total(b, [*terms, self.bias[g]])
        return total(b, [b.op("Mul", normalised(b, total(b, terms)), norm), self.bias[g]])

    def step(self, b: Builder, x: ir.Value, h: ir.Value, c: ir.Value, aux: ir.Value | None = None) -> tuple[ir.Value, ir.Value]:
        """(output state, cell state) after one step."""
        forget = b.op("Sigmoid", self.gate(b, "forget", x, h, c, aux))
        coupled = self.x["input"] is None
        enter = b.op("Sub", b.like(forget, 1), forget) if coupled else b.op("Sigmoid", self.gate(b, "input", x, h, c, aux))
        candidate = self.activation(b, self.gate(b, "cell", x, h, None, aux))
        cell = clipped(b, b.op("Add", b.op("Mul", forget, c), b.op("Mul", enter, candidate)), self.cell_clip)
        out = b.op("Mul", b.op("Sigmoid", self.gate(b, "output", x, h, cell, aux)), self.activation(b, cell))
        if self.projection is not None:
            out = clipped(b, total(b, [dense(b, out, self.projection), self.projection_bias]), self.projection_clip)
        return out, cell


def clipped(b: Builder, x: ir.Value, limit: float) -> ir.Value:
    """Between -limit and limit; 0 means no limit."""
    return b.op("Clip", x, b.like(x, -limit), b.like(x, limit)) if limit > 0 else x


def normalised(b: Builder, x: ir.Value) -> ir.Value:
    """(x - mean) / sqrt(variance + 1e-8) over the last axis."""
    centred = b.op("Sub", x, b.op("ReduceMean", x, [-1], keepdims=1))
    variance = b.op("ReduceMean", b.op("Mul", centred, centred), [-1], keepdims=1)
    return b.op("Div", centred, b.op("Sqrt", b.op("Add", variance, b.like(x, 1e-8))))


@lifts("LSTM")
def lstm(a: Args) -> tuple[ir.Value, ...]:
    """Outputs: scratch (unspecified, zeros here), output state, cell state, output."""
    out, cell = LstmWeights(a).step(a.b, a.real("input"), a.real("output_state_in"), a.real("cell_state_in"))
    scratch = a.output(0)
    zeros = a.b.op("Expand", a.b.like(out, 0), [int(d) for d in scratch.dimensions])
    return zeros, out, cell, a.b.op("Identity", out)


def _sequence_lstm(a: Args, prefix: str, x: ir.Value, states: tuple[str, str], backward: bool, aux: ir.Value | None) -> list[ir.Value]:
    weights = LstmWeights(a, prefix)
    width = width_of(x)
    both = x if aux is None else a.b.op("Concat", x, aux, axis=2)

    def step(b: Builder, x_t: ir.Value, carried: list[ir.Value]) -> tuple[ir.Value, list[ir.Value]]:
        more = None
        if aux is not None:
            more = b.op("Slice", x_t, [width], [np.iinfo(np.int64).max], [1])
            x_t = b.op("Slice", x_t, [0], [width], [1])
        out, cell = weights.step(b, x_t, carried[0], carried[1], more)
        return out, [b.op("Identity", out), cell]

    h, c, y = loop(a.b, both, [a.real(states[0]), a.real(states[1])], step, backward)
    return [time_major(a, y), h, c]


@lifts("UNIDIRECTIONAL_SEQUENCE_LSTM")
def sequence_lstm(a: Args) -> tuple[ir.Value, ...]:
    return tuple(_sequence_lstm(a, "", time_major(a, a.real("input")), ("output_state_in", "cell_state_in"), False, None))


@lifts("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_lstm(a: Args) -> tuple[ir.Value, ...]:
    x = time_major(a, a.real("input"))
    aux = time_major(a, a.real("aux_input")) if a.has("aux_input") else None
    weighted = aux is not None and a.has("fw_aux_input_to_forget_weights")
    forward = _sequence_lstm(a, "fw_", x, ("fw_activation_state_in", "fw_cell_state_in"), False, aux if weighted else None)
    backward = _sequence_lstm(a, "bw_", x if weighted or aux is None else aux, ("bw_activation_state_in", "bw_cell_state_in"), True, aux if weighted else None)
    return merge(a, forward[0], backward[0], [*forward[1:], *backward[1:]])


@lifts("SVDF")
def svdf(a: Args) -> tuple[ir.Value, ...]:
    """State [batch, memory * filters]: each filter's memory is shifted and the newest feature product enters it at the end.

    The output is taken before the shift that leaves the last column 0 in the state (AOSP).
    """
    b, (filters, _) = a.b, a.shape("weights_feature")
    memory, batch = a.shape("weights_time")[1], a.shape("input")[0]
    rank = a.integer("rank")
    state = b.op("Reshape", a.real("state_in"), [batch, filters, memory])
    feature = b.op("Reshape", dense(b, a.real("input"), a.real("weights_feature")), [batch, filters, 1])
    current = b.op("Concat", b.op("Slice", state, [0], [memory - 1], [2]), feature, axis=2)
    products = b.op("ReduceSum", b.op("Mul", current, a.real("weights_time")), [2], keepdims=0)
    units = b.op("ReduceSum", b.op("Reshape", products, [batch, filters // rank, rank]), [2], keepdims=0)
    y = activation(a)(b, total(b, [units, a.real("bias") if a.has("bias") else None]))
    shifted = b.op("Concat", b.op("Slice", current, [1], [memory], [2]), b.op("Mul", feature, b.like(feature, 0)), axis=2)
    return b.op("Reshape", shifted, [batch, memory * filters]), y


_GATES = ("input", "forget", "cell", "output")
_LSTM16 = (
    "input", *(f"{kind}_to_{g}_weights" for kind in ("input", "recurrent") for g in _GATES),
    *("cell_bias" if g == "cell" else f"{g}_gate_bias" for g in _GATES), "cell_state_in", "output_in",
)  # fmt: skip


@lifts("QUANTIZED_16BIT_LSTM")
def lstm16(a: Args) -> Sequence[ir.Value]:
    return a.b.exts("LSTM16", *(a.real(name) for name in _LSTM16), outputs=2)


@lowers("LSTM16", domain=EXTENSION_DOMAIN)
def lower_lstm16(e: Emit) -> None:
    if not e.quantised:
        raise MappingError("it takes stored integers alone")
    e.put("QUANTIZED_16BIT_LSTM", [e.result(0), e.result(1)], **{name: e.real(i) for i, name in enumerate(_LSTM16)})
