"""Recurrent layers: cells as operators of their own, and sequences as loops over steps of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.fields import CODES
from converter.formats.nnapi.collector import Ref
from converter.formats.nnapi.rules.context import Reading, Writing
from converter.formats.nnapi.rules.indexing import put_slice
from converter.formats.nnapi.table import Array
from converter.graph.build import Builder, attrs_of, open_builder
from converter.graph.catalogue.cells import (
    ACTIVATIONS,
    Cell,
    Gate,
    Step,
    dense,
    rnn_step,
    steps_of,
)
from converter.graph.fixed_point import (
    INT16_RANGE,
    divided,
    double,
    high_product,
    inverse_root,
    limited,
    logistic_table,
    looked_up,
    scaled,
    tanh_table,
    toward_zero,
)
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


def power_of_two(scale: float) -> int:
    """The exponent of a scale that is about a power of two; MappingError for another scale."""
    exponent = float(np.log2(scale)) if scale > 0 else 0.0
    if abs(exponent - round(exponent)) >= 1e-3 or not -15 <= round(exponent) <= -9:
        message = f"the scale of the cell state is {scale}, not a power of two from 2^-15 to 2^-9"
        raise MappingError(message, "R110")
    return round(exponent)


def normalized(y: Value, units: int, weights: Value, bias: Value, scale: Any) -> Value:
    """The layer normalization of whole numbers, in Q3.12: mean and deviation have 10 bits after
    the point, and so have the products with the weights, whose scale this is.
    """
    b = open_builder()
    mean = toward_zero(b.ReduceSum(y, [-1]) * 1024 / max(units, 1))
    squares = b.ReduceSum(y * y, [-1]) * (2**20 // max(units, 1))
    variance = b.Max(toward_zero((squares - mean * mean) * 2.0**-20), b.const(np.float64(0)))
    multiplier, power = inverse_root(variance)
    shares = divided(high_product(y * 1024 - mean, multiplier), power)
    product = divided(shares * weights + bias, 2.0**-10)
    return limited(scaled(product, factor(scale, 2**12, 1)), *INT16_RANGE)


def factor(x: Any, y: Any, unit: Any) -> float:
    """x * y / unit of scales, as a 32-bit float; MappingError where it is no factor."""
    with np.errstate(all="ignore"):
        found = float(np.float32(x * y / unit))
    if not 0 <= found < 2.0**31:
        raise MappingError(f"{x} * {y} / {unit} is no factor between scales", "R110")
    return found


def quantized_lstm(r: Reading) -> tuple[ir.Value, ...]:
    """One step on integers of 8 bits, in the fixed-point arithmetic that Android computes with.

    Products are whole multiples of the scale of their gate, activations take 16 bits of Q3.12 and
    give Q0.15. A bias has no scale of its own: that of input and weights, or beside a layer
    normalization 1/1024 of that of its weights. Without a projection the hidden state's integers
    are the output's, whatever its scale, and a zero point of the hidden state is subtracted from
    them. Factors between scales are 32-bit floats.

    Source: NNAPI, QUANTIZED_LSTM; AOSP, QLSTM.cpp, QuantUtils.cpp.
    """
    b, out = r.b, r.output()

    def scale(name: str) -> Any:
        return np.float32(r.operand(name).scale)

    def number(name: str, *default: float) -> Any:
        return np.float32(r.attr(name, float, *default))

    def whole(name: str) -> Value:
        zero = r.operand(name).zero_point
        integers = double(r.stored(name))
        return integers - zero if zero else integers

    exponent = power_of_two(r.operand("cell_state_in").scale)

    with b:
        x, h, c = (whole(n) for n in ("input", *LSTM_STATES))

        def gate(name: str, cell: Value | None) -> Value:
            unit, norm = number(f"{name}_intermediate_scale"), f"{name}_layer_norm_weights"
            own, other = f"input_to_{name}_weights", f"recurrent_to_{name}_weights"
            bias = whole("cell_bias" if name == "cell" else f"{name}_gate_bias")
            product = dense(b, x, whole(own))
            if not r.has(norm):
                product += bias
            y = limited(scaled(product, factor(scale(own), scale("input"), unit)), *INT16_RANGE)
            product = dense(b, h, whole(other))
            by = factor(scale(other), scale("output_state_in"), unit)
            y = limited(y + scaled(product, by), *INT16_RANGE)
            peephole = f"cell_to_{name}_weights"
            if cell is not None and r.has(peephole):
                by = factor(np.float64(2.0**exponent), scale(peephole), unit)
                y = limited(y + scaled(cell * whole(peephole), by), *INT16_RANGE)
            if not r.has(norm):
                return y
            return normalized(y, r.shape(norm)[0], whole(norm), bias, scale(norm))

        def share(y: Value) -> Value:
            return looked_up(y, logistic_table(), "logistic")

        forget = share(gate("forget", c))
        own = gate("input", c) if r.has("input_to_input_weights") else None
        enter = 32767 - forget if own is None else share(own)
        candidate = looked_up(gate("cell", None), tanh_table(3), "tanh")
        kept = divided(forget * c, 2.0**-15)
        added = divided(enter * candidate, 2.0 ** -(30 + exponent))
        cell = limited(kept + added, *INT16_RANGE)
        limit = number("cell_clip", 0.0) / scale("cell_state_in")
        cell = clipped(b, cell, min(float(np.trunc(limit)), 32767.0))
        shares = share(gate("output", cell))
        y = shares * looked_up(cell, tanh_table(15 + exponent), "tanh")
        hidden, zero = number("hidden_state_scale"), r.attr("hidden_state_zero_point", int)
        by = factor(np.float64(2.0**-30), 1, hidden)
        y = limited(scaled(y, by) - zero, -128, 127)  # as Android has it: subtracted here
        if r.has("projection_weights"):
            weights = "projection_weights"
            product = dense(b, y + zero, whole(weights))
            if r.has("projection_bias"):
                product += whole("projection_bias")
            state = np.float32(out.scale)
            y = scaled(product, factor(scale(weights), hidden, state)) + out.zero_point
            y = limited(y, -128, 127) - out.zero_point
            y = clipped(b, y, float(np.trunc(number("proj_clip", 0.0) / state)))
        else:
            y -= out.zero_point
        y = r.cast(y * float(out.scale), ir.DataType.FLOAT)
        cell = r.cast(cell * float(r.operand("cell_state_in").scale), ir.DataType.FLOAT)
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
