"""Recurrent layers: cells as operators of their own, and sequences as loops over steps of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.nnapi.collector import Ref
from converter.formats.nnapi.rules.context import Reading, Writing
from converter.formats.nnapi.rules.fields import CODES
from converter.formats.nnapi.rules.indexing import put_slice
from converter.formats.nnapi.table import Array
from converter.graph.build import Builder, attrs_of
from converter.graph.catalogue.cells import (
    ACTIVATIONS,
    Cell,
    Gate,
    Step,
    dense,
    normalised,
    rnn_step,
    steps_of,
)
from converter.graph.catalogue.recurrent import stored_as
from converter.graph.infer import constant
from converter.graph.recurrent import clipped
from converter.graph.value import Value, optional, with_operators
from converter.mapping.context import static
from converter.mapping.fields import Attr, Guard, attrs
from converter.mapping.rules import Custom, Rule, custom, op

LSTM_STATES = ("output_state_in", "cell_state_in")


def present(r: Reading, name: str) -> Value | None:
    """The real numbers of an argument that may be left out."""
    return r.real(name) if r.has(name) else None


def rnn_cell(r: Reading, prefix: str = "") -> Step:
    f, aux_weights = ACTIVATIONS[r.attr("activation", CODES)], present(r, f"{prefix}aux_weights")
    names = ("weights", "recurrent_weights", "bias")
    weights, recurrent, bias = (r.real(prefix + name) for name in names)

    def step(b: Builder, x: Value, states: Sequence[Value], aux: Value | None) -> list[Value]:
        if aux is not None and aux_weights is None:
            raise MappingError(f"the input '{prefix}aux_weights' is absent", "R105")
        more = () if aux is None or aux_weights is None else (aux, aux_weights)
        return [f(b, rnn_step(b, x, states[0], weights, recurrent, bias, *more))]

    return step


def lstm_cell(r: Reading, prefix: str = "") -> Step:
    def get(name: str) -> Value | None:
        return present(r, prefix + name)

    def gate(name: str) -> Gate:
        bias = "cell_bias" if name == "cell" else f"{name}_gate_bias"
        names = (f"input_to_{name}_weights", f"recurrent_to_{name}_weights", bias)
        more = (f"cell_to_{name}_weights", f"{name}_layer_norm_weights")
        return Gate(*(get(n) for n in (*names, *more, f"aux_input_to_{name}_weights")))

    cell = Cell(
        gate("input"),
        gate("forget"),
        gate("cell"),
        gate("output"),
        get("projection_weights"),
        get("projection_bias"),
        r.attr("activation", CODES),
        r.attr("cell_clip", float),
        r.attr("proj_clip", float),
    )
    return lambda b, x, states, aux: cell(b, x, states[0], states[1], aux)


def sequence(
    r: Reading,
    step: Step,
    names: Sequence[str],
    x: Value,
    aux: Value | None = None,
    backward: bool = False,
) -> list[ir.Value]:
    """A loop over axis 0 of `x`, with states of these names; the outputs, and the last states."""
    static(x, "a sequence")
    states = [r.real(name) for name in names]
    y, *last = steps_of(r.b, step, x, states, aux, backward)
    return [time_major(r, y), *last]


def both_directions(
    r: Reading, cell: Callable[[Reading, str], Step], names: Sequence[str], weights: str
) -> tuple[ir.Value, ...]:
    """The auxiliary input is a second input of both directions, with weights of its own.

    Without them it is the input of the backward direction.
    """
    x, aux = time_major(r, r.real("input")), None
    second = x
    if r.has("aux_input"):
        second = time_major(r, r.real("aux_input"))
        if r.has(f"fw_{weights}"):
            second, aux = x, second
    forward, *states = sequence(r, cell(r, "fw_"), [f"fw_{n}" for n in names], x, aux)
    backward, *more = sequence(r, cell(r, "bw_"), [f"bw_{n}" for n in names], second, aux, True)
    merged = r.attr("merge_outputs", bool)
    if merged != (r.binding.outputs["bw_output"] is None):
        raise MappingError("merge_outputs does not fit the number of outputs", "R105")
    y = (r.b.Concat(forward, backward, axis=2),) if merged else (forward, backward)
    return (*y, *states, *more) if len(r.results) > len(y) else y


def time_major(r: Reading, x: ir.Value) -> Value:
    """[batch, time, ...] <-> [time, batch, ...] unless the operation is time-major already."""
    major = r.attr("time_major", bool)
    return with_operators(x) if major else r.b.Transpose(x, perm=[1, 0, 2])


def sequence_rnn(r: Reading) -> list[ir.Value]:
    return sequence(r, rnn_cell(r), ["hidden_state_in"], time_major(r, r.real("input")))


def bidirectional_rnn(r: Reading) -> tuple[ir.Value, ...]:
    return both_directions(r, rnn_cell, ["hidden_state_in"], "aux_weights")


def sequence_lstm(r: Reading) -> list[ir.Value]:
    return sequence(r, lstm_cell(r), LSTM_STATES, time_major(r, r.real("input")))


def bidirectional_lstm(r: Reading) -> tuple[ir.Value, ...]:
    states = ("activation_state_in", "cell_state_in")
    return both_directions(r, lstm_cell, states, "aux_input_to_forget_weights")


Q10, Q12, Q15 = 2.0**-10, 2.0**-12, 2.0**-15  # units of what is normalised, of gates, of shares


def quantized_lstm(r: Reading) -> tuple[ir.Value, ...]:
    """One step on integers of 8 bits, computed on real numbers and rounded wherever AOSP rounds.

    Products are whole multiples of the scale of their gate, activations take 16 bits of Q3.12 and
    give Q0.15. A bias has no scale of its own: that of input and weights, or beside a layer
    normalisation 1/1024 of that of its weights. Without a projection the hidden state's integers
    are the output's, whatever its scale. Source: NNAPI, QUANTIZED_LSTM; AOSP, QLSTM.cpp.
    """
    b, out = r.b, r.output()
    x, h, c = (r.real(n) for n in ("input", *LSTM_STATES))

    def bias(name: str, unit: float) -> Value:
        return r.cast(r.stored(name), ir.DataType.FLOAT) * unit

    def gate(name: str, cell: Value | None) -> Value:
        unit = float(r.attr(f"{name}_intermediate_scale", float))
        own, norm = f"input_to_{name}_weights", f"{name}_layer_norm_weights"
        addend = "cell_bias" if name == "cell" else f"{name}_gate_bias"
        product = dense(b, x, r.real(own))
        if not r.has(norm):
            product += bias(addend, r.operand("input").scale * r.operand(own).scale)
        other = dense(b, h, r.real(f"recurrent_to_{name}_weights"))
        y = stored_as(b, stored_as(b, product, unit) + stored_as(b, other, unit), unit)
        peephole = present(r, f"cell_to_{name}_weights")
        if cell is not None and peephole is not None:
            y = stored_as(b, y + stored_as(b, cell * peephole, unit), unit)
        if not r.has(norm):
            return y * (Q12 / unit)
        scaled = stored_as(b, normalised(b, y), Q10) * r.real(norm)
        return stored_as(b, scaled + bias(addend, r.operand(norm).scale * Q10), Q12)

    with b:
        forget = stored_as(b, b.Sigmoid(gate("forget", c)), Q15)
        own = gate("input", c) if r.has("input_to_input_weights") else None
        enter = 32767 * Q15 - forget if own is None else stored_as(b, b.Sigmoid(own), Q15)
        candidate = stored_as(b, b.Tanh(gate("cell", None)), Q15)
        unit = r.operand("cell_state_in").scale
        kept, added = stored_as(b, forget * c, unit), stored_as(b, enter * candidate, unit)
        cell = clipped(b, stored_as(b, kept + added, unit), r.attr("cell_clip", float, 0.0))
        y = stored_as(b, b.Sigmoid(gate("output", cell)), Q15) * stored_as(b, b.Tanh(cell), Q15)
        hidden, zero = r.attr("hidden_state_scale", float), r.attr("hidden_state_zero_point", int)
        whole = b.Clip(b.Round(y * (1 / hidden)) + zero, -128.0, 127.0)
        if r.has("projection_weights"):
            weights = "projection_weights"
            y = dense(b, (whole - zero) * hidden, r.real(weights))
            if r.has("projection_bias"):
                y += bias("projection_bias", hidden * r.operand(weights).scale)
            y = clipped(b, y, r.attr("proj_clip", float, 0.0))
        else:
            y = (whole - out.zero_point) * out.scale
    return y, cell, b.Identity(y)


# ONNX's own operators as sequence operations: forward, time first, weights constant --------------

ORDER = ("input", "output", "forget", "cell")  # of the gates in ONNX; of peepholes without the cell


def state(w: Writing, index: int, size: int, x: Ref) -> Ref:
    """An initial state [1, batch, size] as [batch, size]; zeros when it is absent."""
    batch, value = w.static()[1], w.optional(index)
    if value is None:
        return w.number(np.zeros((batch, size)), x)
    return w.reshaped(w.stored(value), [batch, size])


def whole(node: ir.Node, steps: int) -> None:
    """MappingError when sequences have lengths of their own or another layout."""
    lengths = optional(node, 4)
    array = constant(lengths)
    own = lengths is not None and (array is None or (array != steps).any())
    if own or attrs_of(node).get("layout", 0):
        raise MappingError("sequences of different lengths, or batch first, are not possible")


def check(w: Writing, activations: list[str]) -> None:
    whole(w.source, w.static()[0])
    forward = w.attr("direction", "forward") == "forward"
    if not forward or w.attr("clip", 0) or w.attr("input_forget", 0):
        raise MappingError(
            "directions other than forward, clipped or coupled gates are not possible"
        )
    found = list(w.attr("activations", None) or activations)
    if found != activations:
        raise MappingError(f"its activations are {found}, not {activations}")


def deliver(w: Writing, y: Ref) -> None:
    """[time, batch, size] as Y [time, 1, batch, size] and Y_h, its last step."""
    steps, batch, size = w.about(y).dimensions
    if w.used(0):
        w.operation("RESHAPE", w.target(w.out), input=y, shape=[steps, 1, batch, size])
    if w.used(1):
        last = [slice(steps - 1, steps, 1), slice(0, batch, 1), slice(0, size, 1)]
        put_slice(w, y, w.target(w.node.outputs[1]), last)


def constants(w: Writing, rows: int) -> tuple[Array, Array, Array]:
    """Weights, recurrent weights and the sum of both biases."""
    weights, recurrent = (w.constant(i, "the weights")[0] for i in (1, 2))
    if not w.has(3):
        return weights, recurrent, np.zeros(rows, weights.dtype)
    return weights, recurrent, w.constant(3, "the bias").reshape(2, rows).sum(0)


def lower_lstm(w: Writing) -> None:
    check(w, ["Sigmoid", "Tanh", "Tanh"])
    x, size = w.stored(w.data), w.static(2)[2]
    weights, recurrent, bias = constants(w, 4 * size)
    more: dict[str, Any] = {"activation": 4, "cell_clip": 0.0, "proj_clip": 0.0, "time_major": True}
    for i, gate in enumerate(ORDER):
        rows = slice(i * size, (i + 1) * size)
        more[f"input_to_{gate}_weights"] = w.number(weights[rows], x)
        more[f"recurrent_to_{gate}_weights"] = w.number(recurrent[rows], x)
        more["cell_bias" if gate == "cell" else f"{gate}_gate_bias"] = w.number(bias[rows], x)
        if w.has(7) and gate != "cell":
            peephole = w.constant(7, "the peepholes")[0][rows]
            more[f"cell_to_{gate}_weights"] = w.number(peephole, x)
    more["output_state_in"], more["cell_state_in"] = state(w, 5, size, x), state(w, 6, size, x)
    steps, batch = w.static()[:2]
    outputs = [w.temp([steps, batch, size], x)]
    if w.used(2):
        outputs += [w.temp([batch, size], x), w.temp([batch, size], x)]
    w.operation("UNIDIRECTIONAL_SEQUENCE_LSTM", outputs, input=x, **more)
    deliver(w, outputs[0])
    if w.used(2):
        y_c = w.target(w.node.outputs[2])
        w.operation("RESHAPE", y_c, input=outputs[2], shape=[1, batch, size])


def lower_rnn(w: Writing) -> None:
    names = list(w.attr("activations", None) or ["Tanh"])
    if names[0] not in ("Relu", "Tanh", "Sigmoid"):
        raise MappingError(f"the activation {names[0]} is not possible")
    check(w, names)
    x, size = w.stored(w.data), w.static(2)[2]
    found = zip(("weights", "recurrent_weights", "bias"), constants(w, size), strict=True)
    more: dict[str, Any] = {name: w.number(array, x) for name, array in found}
    more |= {"activation": CODES.lower(names[0]), "time_major": 1}
    more["hidden_state_in"] = state(w, 5, size, x)
    y = w.temp([*w.static()[:2], size], x)
    w.operation("UNIDIRECTIONAL_SEQUENCE_RNN", y, input=x, **more)
    deliver(w, y)


ACTIVATION = Attr("activation", kind=CODES)
INTEGERS = Guard("it takes stored integers alone", lambda w: w.quantised)
RULES: list[Rule | Custom] = [
    op("netconv::RNNCell", "RNN", ACTIVATION, given="2,3 =4,3 =4,4 =4 2,4"),
    custom("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", sequence_rnn, lower_rnn),
    custom("", "BIDIRECTIONAL_SEQUENCE_RNN", bidirectional_rnn),
    op(
        "netconv::LSTMCell",
        "LSTM",
        ACTIVATION,
        *attrs(cell_clip=float, proj_clip=float),
        given="2,3 =4,3 =4,3 =4,3 =4,3 =4,4 =4,4 =4,4 =4,4 ? ? ? =4 =4 =4 =4 ? ? 2,4 2,4",
    ),
    custom("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", sequence_lstm, lower_lstm),
    custom("", "BIDIRECTIONAL_SEQUENCE_LSTM", bidirectional_lstm),
    op(
        "netconv::SVDF",
        "SVDF",
        Attr("rank", kind=int),
        ACTIVATION,
        given="2,3 =4,3 =4,5 =2 2,20",
    ),
    custom("", "QUANTIZED_LSTM", quantized_lstm),
    op("netconv::LSTM16", "QUANTIZED_16BIT_LSTM", INTEGERS),
]
