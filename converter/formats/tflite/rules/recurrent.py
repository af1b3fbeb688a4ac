"""Recurrent operators. Their states are variable tensors: inputs of the network that may be
omitted, and outputs that are the states afterwards.

LiteRT keeps variable tensors from one invocation to the next. An LSTM that always begins with zeros
is written with one more time step before the others, which clears the states (`cleared`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.fields import CODES
from converter.formats.lite.recurrent import (
    BOTH_STATES,
    ONNX_GATES,
    OPERANDS,
    RNN,
    STATES,
    both_directions,
    is_plain,
    lstm_cell,
    lstm_operands,
    lstm_sequence,
    lstm_step,
    onnx_lstm,
    reason_against,
    rnn_cell,
    rounding,
    sequence,
    sequence_weights,
)
from converter.formats.tflite.rules.context import LiftContext, LowerContext
from converter.formats.tflite.tensors import is_quantized, tensor_quantization, type_of
from converter.graph.activations import ACTIVATIONS
from converter.graph.build import attrs_of
from converter.graph.catalogue.cells import (
    Cell,
    Gate,
    Step,
    dense,
    total,
)
from converter.graph.infer import Array, constant, known, shape_of
from converter.graph.names import public_name
from converter.graph.value import Value, operand, optional, with_operators
from converter.mapping.fusing import only_user
from converter.mapping.rules import Custom, Rule, custom

RNN_STATE = RNN[-1]
HIDDEN = 4  # of the intermediates of an LSTM of quantized values: the output before its projection


def cell_of(r: LiftContext, prefix: str = "") -> Cell:
    """Return the cell of an LSTM."""
    found, hidden = r.operator.intermediates, None
    tensor = r.graph.tensors[found[HIDDEN]] if len(found) > HIDDEN else None
    if tensor is not None and r.quantized and is_quantized(tensor):
        hidden = rounding(type_of(tensor), tensor_quantization(tensor))
    return lstm_cell(r, prefix, hidden)


# the operators ------------------------------------------------------------------------------------


def leave(r: LiftContext, values: Sequence[ir.Value], *names: str) -> None:
    """Set the variables of these names to these values from now on."""
    for name, value in zip(names, values, strict=True):
        r.leave(OPERANDS[r.layer.kind].index(name), value)


def single_lstm(r: LiftContext) -> Sequence[ir.Value]:
    """Read one step of an LSTM; with five inputs it is that of the older kernel."""
    if r.attr("kernel_type", int) == 1:
        return basic(r)
    states = [r.real(r.key(name)) for name in STATES]
    h, c = lstm_step(r, cell_of(r), STATES)(r.b, r.input(0), states, None)
    leave(r, [h, c], *STATES)
    return [h]


def basic(t: LiftContext) -> Sequence[ir.Value]:
    """Read the inputs [x, h, weights, bias, c] with all gates in one matrix: input, cell, forget,
    output. The weights apply to x and h concatenated.
    """
    b, x, h, c = t.b, t.input(0), t.input(1), t.input(4)
    joined = b.Concat(x, h, axis=1)
    product = total(dense(b, joined, t.input(2)), with_operators(t.real_bias(3, (0, 2))))
    enter, new, forget, out = b.Split(product, outputs=4, axis=1, num_outputs=4)
    cell = b.Sigmoid(forget) * c + b.Sigmoid(enter) * b.Tanh(new)
    return [b.Sigmoid(out) * b.Tanh(cell), cell, joined, product]


def read_sequence(r: LiftContext) -> Sequence[ir.Value]:
    """Lift UNIDIRECTIONAL_SEQUENCE_LSTM; the form that is written for a stateless LSTM is
    recognized.
    """
    cell = cell_of(r)
    data = after_clearing(r, cell) if is_plain(r, cell) else None
    if data is not None:
        y = onnx_lstm(r, cell, data, stateless=True)[0]
        return [r.b.Pad(y, [1, 0, 0, 0, 0, 0])]
    y, *last = lstm_sequence(r, cell)
    leave(r, last, *STATES)
    return [y]


def lstm_both(r: LiftContext) -> Sequence[ir.Value]:
    """Lift an LSTM of two directions."""

    def step(prefix: str) -> Step:
        return lstm_step(r, cell_of(r, prefix), [prefix + name for name in BOTH_STATES])

    return in_both(r, step, BOTH_STATES, "aux_input_to_forget_weights")


def in_both(
    r: LiftContext, step: Callable[[str], Step], names: Sequence[str], weights: str
) -> Sequence[ir.Value]:
    """Lift both directions, and set their states at the end."""
    found = both_directions(r, step, names, weights)
    states = [prefix + name for prefix in ("fw_", "bw_") for name in names]
    leave(r, found[-len(states) :], *states)
    return found[: -len(states)]


def rnn(r: LiftContext) -> ir.Value:
    """Lift one step of an RNN, and set its state."""
    (h,) = rnn_cell(r)(r.b, r.input(0), [r.input(4)], None)
    leave(r, [h], RNN_STATE)
    return h


def rnn_sequence(r: LiftContext) -> ir.Value:
    """Lift an RNN over a sequence, and set its state."""
    y, h = sequence(r, rnn_cell(r), [RNN_STATE])
    leave(r, [h], RNN_STATE)
    return y


def rnn_both(r: LiftContext) -> Sequence[ir.Value]:
    """Lift an RNN of two directions."""
    return in_both(r, lambda prefix: rnn_cell(r, prefix), [RNN_STATE], "aux_weights")


def svdf(r: LiftContext) -> ir.Value:
    """Filters that are products of one in features [filters, inputs] and one in time [filters,
    memory]; each unit sums `rank` of them. The state [batch, filters * memory] is shifted by one,
    and the newest feature is appended. The kernel for quantized values rounds the feature to the
    scale of the state; its only activation is the range of the result. Source:
    tensorflow/lite/kernels/svdf.cc.
    """
    b, rank = r.b, r.attr("rank", int)
    time = r.input(2)
    filters, memory = r.static(time, "the weights of time")
    if rank < 1 or filters % rank:
        raise MappingError(f"{filters} filters of rank {rank} are not supported", "R110")
    feature = b.Reshape(dense(b, r.input(0), r.input(1)), [-1, filters, 1])
    if r.quantized:
        feature = rounding(r.stored_type(4), r.quantization(4))(b, feature)
    stored = b.Reshape(r.input(4), [-1, filters, memory])
    state = b.Concat(stored[:, :, 1:memory], feature, axis=2)
    r.leave(4, b.Reshape(state, [-1, filters * memory]))
    products = b.ReduceSum(state * time, [2], keepdims=0)
    units = b.ReduceSum(b.Reshape(products, [-1, filters // rank, rank]), [2], keepdims=0)
    activation = ACTIVATIONS[r.attr("fused_activation_function", CODES)]
    bias = r.real_bias(3, (4, 2))
    found = total(units, None if bias is None else with_operators(bias))
    return found if r.quantized else activation(b, found)


# LSTM -------------------------------------------------------------------------------

CLOSED = 100.0  # below minus this a sigmoid is zero in float32
LARGEST_CELL = 2.0**20  # that a peephole sees: each step adds at most one
FEW = 4  # steps that are fewer operators written out


def after_clearing(t: LiftContext, cell: Cell) -> Value | None:
    """Return the data [time, batch, size] of an LSTM without its first step, if that step closes
    the input, forget and output gates for any states and so sets both states to zero; None if there
    is no such step.

    The step and the additional last feature are padding: ones before the step, zeros in the others.
    """
    step = t.input(0).producer()
    feature = None if step is None else operand(step).producer()
    if step is None or feature is None or not t.attr("time_major", bool):
        return None
    if not is_padding(step, [1, 0, 0, 0, 0, 0], 1) or not is_padding(feature, [0] * 5 + [1], 0):
        return None
    for name in ("input", "forget", "output"):
        gate: Gate = getattr(cell, name)
        parts = [known(v) for v in (gate.x, gate.h, gate.bias)]
        if any(v is None for v in parts):
            return None
        weights, recurrent, bias = (np.asarray(v, np.float64) for v in parts)
        total = weights.sum(1) + bias + np.abs(recurrent).sum(1)
        if gate.cell is not None:
            peephole = known(gate.cell)
            total += np.inf if peephole is None else np.abs(peephole) * LARGEST_CELL
        if (total > -CLOSED).any():
            return None
    return operand(feature)


def is_padding(node: ir.Node, pads: list[int], number: float) -> bool:
    """Return whether a node is a constant Pad with these amounts and this number, over all axes."""
    if node.op_type != "Pad" or attrs_of(node).get("mode", "constant") != "constant":
        return False
    amounts, filling = known(node.inputs[1]), known(optional(node, 2))
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        return False
    own = 0.0 if filling is None else float(filling.reshape(-1)[0])
    return amounts is not None and amounts.tolist() == pads and own == number


def states_of(node: ir.Node) -> list[tuple[ir.Value, ir.Value]]:
    """Return the states of the network [batch, size] that only an LSTM reads and updates: (input,
    output) of the network for h and c; empty if there are none.

    The graph's meta "states" are the names of such inputs and outputs that begin with zeros.
    """
    known_states = {} if node.graph is None else node.graph.meta.get("states", {})
    found = []
    for before, after in ((5, 1), (6, 2)):
        given = alone(optional(node, before))
        left = only_reshaped(node.outputs[after] if after < len(node.outputs) else None)
        if given is None or left is None or given.dtype != ir.DataType.FLOAT:
            return []
        if known_states.get(public_name(given)) != public_name(left):
            return []
        if shape_of(given) is None or len(shape_of(given) or ()) != 2:
            return []
        found.append((given, left))
    return found


def alone(value: ir.Value | None) -> ir.Value | None:
    """Return the input of the network that was reshaped to a value, if it has no other consumer."""
    while value is not None and len(value.uses()) == 1:
        if value.is_graph_input():
            return value
        node = value.producer()
        value = node.inputs[0] if node is not None and node.op_type in RESHAPED else None
    return None


def only_reshaped(value: ir.Value | None) -> ir.Value | None:
    """Return the output of the network to which a value is reshaped, if that is its only use."""
    while value is not None and not value.is_graph_output():
        user = only_user(value)
        value = user.outputs[0] if user is not None and user.op_type in RESHAPED else None
    return None if value is None or value.uses() else value


RESHAPED = ("Squeeze", "Unsqueeze", "Reshape")


def reason_against_lstm(node: ir.Node) -> str:
    """Return why an LSTM of ONNX cannot be a UNIDIRECTIONAL_SEQUENCE_LSTM, in any direction; "" if
    it can.
    """
    shape = shape_of(operand(node))
    if operand(node).dtype != ir.DataType.FLOAT or shape is None:
        return "only floating-point data of static shape are supported by this operator"
    if reason := reason_against(node, ("Sigmoid", "Tanh", "Tanh")):
        return reason
    weights = [optional(node, i) for i in (1, 2, 3, 7)]
    if any(v is not None and constant(v) is None for v in weights):
        return "the weights must be constant"
    if states_of(node):
        return ""
    states = [known(v) for i in (5, 6) if (v := optional(node, i)) is not None]
    if any(v is None or v.any() for v in states):
        return "the initial states must be zero or states of the network"
    if shape[0] <= FEW:
        return "short sequences are written as single steps"
    cell = node.outputs[2] if len(node.outputs) > 2 else None
    if cell is not None and (cell.uses() or cell.is_graph_output()):
        return "the final cell state is an output, which this operator does not have"
    return ""


def lower_lstm(w: LowerContext) -> None:
    """Write a forward LSTM of floats; one without states gets a first step that clears the
    variables.
    """
    x, node = w.data, w.out.producer()
    assert node is not None
    if reason := reason_against_lstm(node):
        raise MappingError(reason)
    if w.attr("direction", "forward") != "forward" or w.quantized:
        raise MappingError("only direction=forward and floating-point data are supported")
    steps, batch, _ = w.static()
    weights, recurrent, bias = sequence_weights(w, 4 * w.static(2)[2])
    size = recurrent.shape[1]
    peepholes = w.constant(7, "the peepholes")[0] if w.has(7) else None
    states = states_of(node)
    if states:
        variables = [w.low.hold(*pair) for pair in states]
    else:
        x, weights = cleared(w, x, weights, recurrent, bias, peepholes)
        variables = [w.low.variable(name, [batch, size]) for name in ("hidden", "cell")]
        steps += 1
    names = dict(zip(STATES, variables, strict=True))
    found = {"input": x, **lstm_operands(weights, recurrent, bias, peepholes), **names}
    operands = map(found.get, OPERANDS["LSTM"])
    y = w.emit(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        *operands,
        shape=[steps, batch, size],
        fused_activation_function=CODES.lower("Tanh"),
        time_major=True,
    )
    deliver(w, y, steps, batch, size, 0 if states else 1)


def cleared(
    w: LowerContext,
    x: ir.Value,
    weights: Array,
    recurrent: Array,
    bias: Array,
    peepholes: Array | None,
) -> tuple[ir.Value, Array]:
    """Return the data [time, batch, size] with one more step at the beginning and one more feature,
    and weights [4 * units, size] with one more column.

    The column closes the input, forget and output gates in that step, so that h and c are zero
    after it for any previous states. The feature is zero in all other steps.
    """
    steps, batch, size = w.static()
    wide = w.emit("PADV2", x, pairs(0, 0, 1), np.float32(0), shape=[steps, batch, size + 1])
    x = w.emit("PADV2", wide, pairs(1, 0, 0), np.float32(1), shape=[steps + 1, batch, size + 1])
    units = recurrent.shape[1]
    # upper bound of the contribution of the other features, which are ones in that step, and of the
    # states, which are at most one
    other = np.abs(weights).sum(1) + np.abs(recurrent).sum(1) + np.abs(bias)
    if peepholes is not None:
        other[: 3 * units] += np.abs(peepholes) * LARGEST_CELL
    column = -np.ceil(other + 2 * CLOSED)
    column[ONNX_GATES.index("cell") * units :] = 0
    return x, np.concatenate([weights, column[:, None].astype(weights.dtype)], axis=1)


def pairs(time: int, batch: int, feature: int) -> Array:
    """Return the padding before the time and batch axes, and after the features."""
    return np.array([[time, 0], [batch, 0], [0, feature]], np.int32)


def deliver(w: LowerContext, y: ir.Value, steps: int, batch: int, size: int, skipped: int) -> None:
    """Return [time, batch, size] without the first steps as ONNX's Y [time, 1, batch, size], and
    its last step as Y_h [1, batch, size].
    """

    def part(first: int, count: int) -> ir.Value:
        sizes = np.array([count, batch, size], np.int32)
        return w.emit("SLICE", y, np.array([first, 0, 0], np.int32), sizes, shape=sizes.tolist())

    if w.used(0):
        own = part(skipped, steps - skipped) if skipped else y
        shape = np.array([steps - skipped, 1, batch, size], np.int32)
        w.put("RESHAPE", own, shape, outputs=[w.out])
    if w.used(1):
        shape = np.array([1, batch, size], np.int32)
        w.put("RESHAPE", part(steps - 1, 1), shape, outputs=[w.node.outputs[1]])


RULES: list[Rule | Custom] = [
    custom("", "LSTM", single_lstm),
    custom("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", read_sequence, lower_lstm),
    custom("", "BIDIRECTIONAL_SEQUENCE_LSTM", lstm_both),
    custom("", "RNN", rnn),
    custom("", "UNIDIRECTIONAL_SEQUENCE_RNN", rnn_sequence),
    custom("", "BIDIRECTIONAL_SEQUENCE_RNN", rnn_both),
    custom("", "SVDF", svdf),
]
