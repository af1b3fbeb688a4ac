"""Recurrent layers: cells as separate operators, and sequences as loops over their time steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.fields import CODES
from converter.formats.lite.recurrent import (
    BOTH_STATES,
    RNN,
    STATES,
    both_directions,
    lstm_cell,
    lstm_operands,
    lstm_sequence,
    lstm_step,
    reason_against,
    rnn_cell,
    sequence,
    sequence_weights,
)
from converter.formats.nnapi.collector import Ref
from converter.formats.nnapi.rules.context import LiftContext, LowerContext
from converter.formats.nnapi.rules.indexing import put_slice
from converter.graph.build import open_builder
from converter.graph.catalogue.cells import (
    Step,
    dense,
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
from converter.graph.recurrent import clipped
from converter.graph.value import Value
from converter.mapping.fields import Attr, Guard, attrs
from converter.mapping.rules import Custom, Rule, custom, op


def in_both(r: LiftContext, step: Callable[[str], Step], *names: str) -> Sequence[ir.Value]:
    """Lift both directions, and their last states where the operation gives them."""
    *states, weights = names
    if r.attr("merge_outputs", bool) != (r.binding.outputs["bw_output"] is None):
        raise MappingError("merge_outputs contradicts the number of outputs", "R105")
    return both_directions(r, step, states, weights)


def bidirectional_rnn(r: LiftContext) -> Sequence[ir.Value]:
    """Lift an RNN of two directions, each with weights and states of its own."""
    return in_both(r, lambda prefix: rnn_cell(r, prefix), RNN[-1], "aux_weights")


def bidirectional_lstm(r: LiftContext) -> Sequence[ir.Value]:
    """Lift an LSTM of two directions, each with weights and states of its own."""

    def step(prefix: str) -> Step:
        states = [prefix + name for name in BOTH_STATES]
        return lstm_step(r, lstm_cell(r, prefix), states)

    return in_both(r, step, *BOTH_STATES, "aux_input_to_forget_weights")


def power_of_two(scale: float) -> int:
    """Return the exponent of a scale that is close to a power of two; raise MappingError for other
    scales.
    """
    exponent = float(np.log2(scale)) if scale > 0 else 0.0
    if abs(exponent - round(exponent)) >= 1e-3 or not -15 <= round(exponent) <= -9:
        message = (
            f"the scale of the cell state must be a power of two from 2^-15 to 2^-9, got {scale}"
        )
        raise MappingError(message, "R110")
    return round(exponent)


def normalized(y: Value, units: int, weights: Value, bias: Value, scale: Any) -> Value:
    """Compute the layer normalization of integers in Q3.12: mean and deviation have 10 fractional
    bits, and so have the products with the weights, which determines their scale.
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
    """Return x * y / unit of scales as a 32-bit float; raise MappingError if it is not a valid
    factor.
    """
    with np.errstate(all="ignore"):
        found = float(np.float32(x * y / unit))
    if not 0 <= found < 2.0**31:
        raise MappingError(f"{x} * {y} / {unit} is not a valid factor between scales", "R110")
    return found


def quantized_lstm(r: LiftContext) -> tuple[ir.Value, ...]:
    """Return one step on integers of 8 bits, in the fixed-point arithmetic that Android
    computes with.

    Products are whole multiples of the scale of their gate, activations take 16 bits of Q3.12 and
    give Q0.15. A bias has no scale of its own: that of input and weights, or with a layer
    normalization 1/1024 of that of its weights. Without a projection the hidden state's integers
    are the output's, at any scale, and a zero point of the hidden state is subtracted from
    them. Factors between scales are 32-bit floats.

    Source: NNAPI, QUANTIZED_LSTM; AOSP, QLSTM.cpp, QuantUtils.cpp.
    """
    b, out = r.b, r.output()

    def scale(name: str) -> Any:
        return np.float32(r.operand(name).scale)

    def number(name: str, *default: float) -> Any:
        return np.float32(r.attr(name, float, *default))

    def without_zero_point(name: str) -> Value:
        zero = r.operand(name).zero_point
        integers = double(r.stored(name))
        return integers - zero if zero else integers

    exponent = power_of_two(r.operand("cell_state_in").scale)

    with b:
        x, h, c = (without_zero_point(n) for n in ("input", *STATES))

        def gate(name: str, cell: Value | None) -> Value:
            unit, norm = number(f"{name}_intermediate_scale"), f"{name}_layer_norm_weights"
            own, other = f"input_to_{name}_weights", f"recurrent_to_{name}_weights"
            bias = without_zero_point("cell_bias" if name == "cell" else f"{name}_gate_bias")
            product = dense(b, x, without_zero_point(own))
            if not r.has(norm):
                product += bias
            y = limited(scaled(product, factor(scale(own), scale("input"), unit)), *INT16_RANGE)
            product = dense(b, h, without_zero_point(other))
            by = factor(scale(other), scale("output_state_in"), unit)
            y = limited(y + scaled(product, by), *INT16_RANGE)
            peephole = f"cell_to_{name}_weights"
            if cell is not None and r.has(peephole):
                by = factor(np.float64(2.0**exponent), scale(peephole), unit)
                y = limited(y + scaled(cell * without_zero_point(peephole), by), *INT16_RANGE)
            if not r.has(norm):
                return y
            return normalized(y, r.shape(norm)[0], without_zero_point(norm), bias, scale(norm))

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
            product = dense(b, y + zero, without_zero_point(weights))
            if r.has("projection_bias"):
                product += without_zero_point("projection_bias")
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


def state(w: LowerContext, index: int, size: int, x: Ref) -> Ref:
    """Return an initial state [1, batch, size] as [batch, size]; zeros if it is absent."""
    batch, value = w.static()[1], w.optional(index)
    if value is None:
        return w.number(np.zeros((batch, size)), x)
    return w.reshaped(w.stored(value), [batch, size])


def check(w: LowerContext, activations: Sequence[str]) -> None:
    """Raise MappingError for a recurrent operator that is not supported: other attributes,
    activations or directions.
    """
    if reason := reason_against(w.source, activations):
        raise MappingError(reason)
    if w.attr("direction", "forward") != "forward":
        raise MappingError("only direction=forward is supported")


def deliver(w: LowerContext, y: Ref) -> None:
    """Return [time, batch, size] as ONNX's Y [time, 1, batch, size] and Y_h, its last step."""
    steps, batch, size = w.about(y).dimensions
    if w.used(0):
        w.operation("RESHAPE", w.target(w.out), input=y, shape=[steps, 1, batch, size])
    if w.used(1):
        last = [slice(steps - 1, steps, 1), slice(0, batch, 1), slice(0, size, 1)]
        put_slice(w, y, w.target(w.node.outputs[1]), last)


def lower_lstm(w: LowerContext) -> None:
    """Write a forward LSTM as UNIDIRECTIONAL_SEQUENCE_LSTM."""
    check(w, ["Sigmoid", "Tanh", "Tanh"])
    x, size = w.stored(w.data), w.static(2)[2]
    peepholes = w.constant(7, "the peepholes")[0] if w.has(7) else None
    found = lstm_operands(*sequence_weights(w, 4 * size), peepholes)
    more: dict[str, Any] = {"activation": 4, "cell_clip": 0.0, "proj_clip": 0.0, "time_major": True}
    more |= {name: w.number(array, x) for name, array in found.items()}
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


def lower_rnn(w: LowerContext) -> None:
    """Write a forward RNN as UNIDIRECTIONAL_SEQUENCE_RNN, which has no other activation of ONNX."""
    check(w, ["Relu"])
    x, size = w.stored(w.data), w.static(2)[2]
    found = zip(("weights", "recurrent_weights", "bias"), sequence_weights(w, size), strict=True)
    more: dict[str, Any] = {name: w.number(array, x) for name, array in found}
    more |= {"activation": CODES.lower("Relu"), "time_major": 1}
    more["hidden_state_in"] = state(w, 5, size, x)
    y = w.temp([*w.static()[:2], size], x)
    w.operation("UNIDIRECTIONAL_SEQUENCE_RNN", y, input=x, **more)
    deliver(w, y)


ACTIVATION = Attr("activation", kind=CODES)
INTEGERS = Guard("only quantized data are supported by this operation", lambda w: w.quantized)
RULES: list[Rule | Custom] = [
    op("netconv::RNNCell", "RNN", ACTIVATION, example_inputs="2,3 =4,3 =4,4 =4 2,4"),
    custom(
        "RNN",
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        lambda r: sequence(r, rnn_cell(r), RNN[-1:]),
        lower_rnn,
    ),
    custom("", "BIDIRECTIONAL_SEQUENCE_RNN", bidirectional_rnn),
    op(
        "netconv::LSTMCell",
        "LSTM",
        ACTIVATION,
        *attrs(cell_clip=float, proj_clip=float),
        example_inputs="2,3 =4,3 =4,3 =4,3 =4,3 =4,4 =4,4 =4,4 =4,4 ? ? ? =4 =4 =4 =4 ? ? 2,4 2,4",
    ),
    custom(
        "LSTM",
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        lambda r: lstm_sequence(r, lstm_cell(r)),
        lower_lstm,
    ),
    custom("", "BIDIRECTIONAL_SEQUENCE_LSTM", bidirectional_lstm),
    op(
        "netconv::SVDF",
        "SVDF",
        Attr("rank", kind=int),
        ACTIVATION,
        example_inputs="2,3 =4,3 =4,5 =2 2,20",
    ),
    custom("", "QUANTIZED_LSTM", quantized_lstm),
    op("netconv::LSTM16", "QUANTIZED_16BIT_LSTM", INTEGERS),
]
