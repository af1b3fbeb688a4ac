"""Recurrent layers: cells, and sequences in one direction or both.

Operands are found by the names that NNAPI gives them; TensorFlow Lite has them in the same order.
Functions that read a sequence return its outputs, and the last states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.context import LiteLiftContext, LiteLowerContext
from converter.formats.lite.fields import CODES
from converter.formats.lite.quantization import Quantization, dequantize, quantize
from converter.graph.activations import ACTIVATIONS
from converter.graph.build import Builder, attrs_of
from converter.graph.catalogue.cells import Cell, Gate, Step, rnn_step, steps_of
from converter.graph.infer import Array, constant
from converter.graph.recurrent import DEFAULT_ACTIVATIONS
from converter.graph.value import Value, operand, optional, with_operators
from converter.mapping.context import static

GATES = ("input", "forget", "cell", "output")  # in the order of the operands
ONNX_GATES = ("input", "output", "forget", "cell")  # peepholes have the first three
BIASES = {g: "cell_bias" if g == "cell" else f"{g}_gate_bias" for g in GATES}
CELL = (
    *(f"input_to_{g}_weights" for g in GATES),
    *(f"recurrent_to_{g}_weights" for g in GATES),
    *(f"cell_to_{g}_weights" for g in GATES if g != "cell"),
    *BIASES.values(),
    "projection_weights",
    "projection_bias",
)
STATES = ("output_state_in", "cell_state_in")
BOTH_STATES = ("activation_state_in", "cell_state_in")
RNN = ("weights", "recurrent_weights", "bias", "hidden_state_in")
_AUX = tuple(f"aux_input_to_{g}_weights" for g in GATES)


def _both(*names: str) -> tuple[str, ...]:
    return tuple(prefix + name for prefix in ("fw_", "bw_") for name in names)


# The names of the operands of each layer.
OPERANDS = {
    "LSTM": ("input", *CELL, *STATES, *(f"{g}_layer_norm_weights" for g in GATES)),
    "RNN": ("input", *RNN),
    "BIDIRECTIONAL_SEQUENCE_LSTM": (
        *("input", *_both(*CELL), *_both(*BOTH_STATES)),
        *("aux_input", *_both(*_AUX)),
    ),
    "BIDIRECTIONAL_SEQUENCE_RNN": ("input", *_both(*RNN), "aux_input", *_both("aux_weights")),
}
OPERANDS["UNIDIRECTIONAL_SEQUENCE_LSTM"] = OPERANDS["LSTM"]
OPERANDS["UNIDIRECTIONAL_SEQUENCE_RNN"] = OPERANDS["RNN"]

Rounding = Callable[[Builder, Value], Value]


# cells -------------------------------------------------------------------------------------------


def rounding(dtype: ir.DataType, found: Quantization | None) -> Rounding:
    """Return a function that rounds real numbers as storing them would."""
    if found is None:
        return lambda b, x: x
    return lambda b, x: with_operators(dequantize(b, quantize(b, x, dtype, found), found))


def rounding_of(r: LiteLiftContext, name: str) -> Rounding:
    """Return the rounding of an operand that the layer stores quantized."""
    key = r.key(name)
    return rounding(r.stored_type(key), r.quantization(key))


def optional_operand(r: LiteLiftContext, name: str) -> Value | None:
    """Return the real numbers of an operand, None when it is omitted."""
    return r.optional_real(r.key(name))


def optional_bias(r: LiteLiftContext, name: str, *factors: str) -> Value | None:
    """Return the real numbers of a bias, which has the product of the scales of `factors`."""
    found = r.real_bias(r.key(name), [r.key(factor) for factor in factors])
    return None if found is None else with_operators(found)


def lstm_cell(r: LiteLiftContext, prefix: str = "", hidden: Rounding | None = None) -> Cell:
    """Return the cell of an LSTM; `hidden` rounds its output before the projection."""

    def given(name: str) -> Value | None:
        return optional_operand(r, prefix + name)

    def gate(name: str) -> Gate:
        weights, norm = f"{prefix}input_to_{name}_weights", f"{name}_layer_norm_weights"
        # with layer normalization the scale is that of the normalized values
        plain = r.has(r.key(weights)) and not r.has(r.key(prefix + norm))
        bias = optional_bias(r, prefix + BIASES[name], *(("input", weights) if plain else ()))
        return Gate(
            given(f"input_to_{name}_weights"),
            given(f"recurrent_to_{name}_weights"),
            bias,
            given(f"cell_to_{name}_weights"),
            given(norm),
            given(f"aux_input_to_{name}_weights"),
        )

    return Cell(
        gate("input"),
        gate("forget"),
        gate("cell"),
        gate("output"),
        given("projection_weights"),
        optional_bias(r, f"{prefix}projection_bias"),
        r.attr(r.activation_key, CODES),
        r.attr("cell_clip", float),
        r.attr("proj_clip", float),
        hidden,
    )


def lstm_step(r: LiteLiftContext, cell: Cell, states: Sequence[str]) -> Step:
    """Return one iteration of an LSTM, whose states are stored as those operands are."""
    keep_h, keep_c = (rounding_of(r, name) for name in states)

    def step(b: Builder, x: Value, states: Sequence[Value], aux: Value | None) -> list[Value]:
        h, c = cell(b, x, states[0], states[1], aux)
        return [keep_h(b, h), keep_c(b, c)]

    return step


def rnn_cell(r: LiteLiftContext, prefix: str = "") -> Step:
    """Return one iteration of a recurrent cell."""
    f, beside = ACTIVATIONS[r.attr(r.activation_key, CODES)], f"{prefix}aux_weights"
    weights, recurrent = (r.real(r.key(prefix + name)) for name in RNN[:2])
    bias, aux_weights = optional_bias(r, f"{prefix}bias"), optional_operand(r, beside)
    keep = rounding_of(r, f"{prefix}hidden_state_in")

    def step(b: Builder, x: Value, states: Sequence[Value], aux: Value | None) -> list[Value]:
        if aux is not None and aux_weights is None:
            raise MappingError(f"the input {beside!r} is absent", "R105")
        more = () if aux is None or aux_weights is None else (aux, aux_weights)
        return [keep(b, f(b, rnn_step(b, x, states[0], weights, recurrent, bias, *more)))]

    return step


# sequences that are read -------------------------------------------------------------------------


def time_major(r: LiteLiftContext, x: ir.Value) -> Value:
    """Transpose [batch, time, ...] to [time, batch, ...] and back, unless the layer is time-major
    already.
    """
    if r.attr("time_major", bool):
        return with_operators(x)
    return r.b.Transpose(x, perm=[1, 0, 2])


def sequence(
    r: LiteLiftContext,
    step: Step,
    names: Sequence[str],
    x: Value | None = None,
    aux: Value | None = None,
    backward: bool = False,
) -> list[Value]:
    """Return a loop over axis 0 of `x`, by default the input, with states of these names."""
    data = time_major(r, r.real(r.key("input"))) if x is None else x
    states = [r.real(r.key(name)) for name in names]
    y, *last = steps_of(r.b, step, data, states, aux, backward)
    return [time_major(r, y), *last]


def is_plain(r: LiteLiftContext, cell: Cell) -> bool:
    """Return whether ONNX's LSTM computes the same as this LSTM."""
    gates = (cell.input, cell.forget, cell.cell, cell.output)
    return (
        r.quantization(r.key("input")) is None
        and cell.activation == "Tanh"
        and cell.projection is None
        and not cell.cell_clip
        and all(g.norm is None and g.aux is None for g in gates)
    )


def lstm_sequence(r: LiteLiftContext, cell: Cell) -> list[Value]:
    """Return the outputs of an LSTM in one direction, and its last states: an ONNX LSTM if that
    computes the same, else a loop over the time axis.
    """
    if not is_plain(r, cell):
        return sequence(r, lstm_step(r, cell, STATES), STATES)
    y, *last = onnx_lstm(r, cell, time_major(r, r.real(r.key("input"))))
    return [time_major(r, y), *last]


def onnx_lstm(r: LiteLiftContext, cell: Cell, x: Value, stateless: bool = False) -> list[Value]:
    """Create ONNX's LSTM of [time, batch, size]. A coupled input gate, 1 - sigmoid(z), is
    sigmoid(-z). `stateless`: the initial state is zeros, and the last column of the weights belongs
    to no input.
    """
    b, f = r.b, cell.forget
    gates = {"input": cell.input, "forget": f, "cell": cell.cell, "output": cell.output}
    if cell.input.x is None:
        parts = (f.x, f.h, f.bias, f.cell)
        gates["input"] = Gate(*(None if v is None else -v for v in parts))

    def joined(parts: Sequence[Value | None], what: str) -> Value:
        if any(v is None for v in parts):
            raise MappingError(f"{what} of a gate are absent", "R105")
        return b.Concat(*parts, axis=0)

    weights = joined([gates[n].x for n in ONNX_GATES], "the weights")
    if stateless:
        weights = weights[:, :-1]
    recurrent = joined([gates[n].h for n in ONNX_GATES], "the recurrent weights")
    biases = joined([gates[n].bias for n in ONNX_GATES], "the biases")
    peeps = [gates[n].cell for n in ONNX_GATES[:3]]
    peepholes = None if None in peeps else b.Unsqueeze(joined(peeps, "the peepholes"), [0])
    found = b.LSTM(
        x,
        b.Unsqueeze(weights, [0]),
        b.Unsqueeze(recurrent, [0]),
        b.Unsqueeze(b.Concat(biases, biases * 0.0, axis=0), [0]),
        None,
        *(None if stateless else b.Unsqueeze(r.real(r.key(n)), [0]) for n in STATES),
        peepholes,
        hidden_size=r.static(recurrent, "the recurrent weights")[1],
        outputs=3,
    )
    return [b.Squeeze(v, [axis]) for v, axis in zip(found, (1, 0, 0), strict=True)]


def both_directions(
    r: LiteLiftContext, cell: Callable[[str], Step], names: Sequence[str], weights: str
) -> list[Value]:
    """Return a sequence and a reversed one. The auxiliary input is a second input of both
    directions, with `weights` of its own; without them it is the input of the backward direction.
    """
    x, aux = time_major(r, r.real(r.key("input"))), None
    second: Value = x
    if (beside := optional_operand(r, "aux_input")) is not None:
        second = time_major(r, beside)
        if r.has(r.key(f"fw_{weights}")):
            second, aux = x, second
    forward, *states = sequence(r, cell("fw_"), [f"fw_{n}" for n in names], x, aux)
    backward, *more = sequence(r, cell("bw_"), [f"bw_{n}" for n in names], second, aux, True)
    merged = r.attr("merge_outputs", bool)
    y = [r.b.Concat(forward, backward, axis=2)] if merged else [forward, backward]
    return [*y, *states, *more]


# sequences that are written: forward, time first, weights constant -------------------------------


def reason_against_lengths(node: ir.Node) -> str:
    """Return why a sequence of ONNX has no fixed length, or another layout; "" if neither."""
    lengths = optional(node, 4)
    steps, count = constant(lengths), static(operand(node), "the sequence", least=1)[0]
    own = lengths is not None and (steps is None or (steps != count).any())
    if own or attrs_of(node).get("layout"):
        return "sequence_lens and layout=1 are not supported"
    return ""


def reason_against(node: ir.Node, activations: Sequence[str]) -> str:
    """Return why neither format supports an ONNX sequence, in any direction; "" if they may."""
    a = attrs_of(node)
    names = list(a.get("activations") or DEFAULT_ACTIVATIONS[node.op_type])
    if a.get("clip") or a.get("input_forget"):
        return "clip and input_forget are not supported"
    if any(n != d for n, d in zip(names, [*activations] * 2, strict=False)):
        return f"activations must be {list(activations)}, got {names}"
    return reason_against_lengths(node)


def sequence_weights(w: LiteLowerContext, rows: int) -> tuple[Array, Array, Array]:
    """Return the weights, the recurrent weights and the sum of both biases."""
    weights, recurrent = (w.constant(i, "the weights")[0] for i in (1, 2))
    if not w.has(3):
        return weights, recurrent, np.zeros(rows, weights.dtype)
    return weights, recurrent, w.constant(3, "the bias").reshape(2, rows).sum(0)


def lstm_operands(
    weights: Array, recurrent: Array, bias: Array, peepholes: Array | None
) -> dict[str, Any]:
    """Return the operands of an LSTM by their names."""
    found, size = {}, recurrent.shape[1]
    for i, gate in enumerate(ONNX_GATES):
        rows = slice(i * size, (i + 1) * size)
        found[f"input_to_{gate}_weights"] = weights[rows]
        found[f"recurrent_to_{gate}_weights"] = recurrent[rows]
        found[BIASES[gate]] = bias[rows]
        if peepholes is not None and gate != "cell":
            found[f"cell_to_{gate}_weights"] = peepholes[rows]
    return found
