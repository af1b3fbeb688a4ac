"""Recurrent operators. Their states are variable tensors: inputs of the network that may be left
out, and outputs that are the states afterwards.

LiteRT keeps variable tensors from one invocation to the next. An LSTM that begins with zeros each
time is written with one more step in front, which clears the states (`cleared`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.fields import CODES
from converter.formats.tflite.rules.context import Reading, Writing
from converter.formats.tflite.tensors import dequantise, is_quantised, quantise
from converter.graph.build import Builder, attrs_of
from converter.graph.catalogue.cells import (
    ACTIVATIONS,
    Cell,
    Gate,
    Step,
    dense,
    rnn_step,
    steps_of,
    total,
)
from converter.graph.infer import Array, constant, known, shape_of
from converter.graph.names import public_name
from converter.graph.value import Value, operand, optional, with_operators
from converter.mapping.fusing import only_user
from converter.mapping.rules import Custom, Rule, custom

GATES = ("input", "forget", "cell", "output")  # the order of a file
ONNX = ("input", "output", "forget", "cell")


def bias(t: Reading, index: int, factors: Sequence[int] = ()) -> Value | None:
    found = t.real_bias(index, factors)
    return None if found is None else with_operators(found)


@dataclass(frozen=True)
class Places:
    """Where the operands of one direction of an LSTM are among the operator's inputs.

    `weights` of the input, `recurrent` ones, `peepholes` (without the cell), `biases` and `norms`
    of the gates in the order of GATES; -1: there are none.
    """

    weights: int
    recurrent: int
    peepholes: int
    biases: int
    projection: int
    hidden: int
    cell: int
    norms: int = -1
    aux: int = -1

    def gate(self, t: Reading, name: str) -> Gate:
        i = GATES.index(name)
        peep = (0, 1, None, 2)[i]
        return Gate(
            t.optional(self.weights + i),
            t.optional(self.recurrent + i),
            bias(t, self.biases + i, self.factors(t, i)),
            None if peep is None else t.optional(self.peepholes + peep),
            None if self.norms < 0 else t.optional(self.norms + i),
            None if self.aux < 0 else t.optional(self.aux + i),
        )

    def factors(self, t: Reading, i: int) -> tuple[int, ...]:
        """The inputs whose scales make that of the bias of gate `i`; with a layer normalization
        it is that of the normalized values.
        """
        normalized = self.norms >= 0 and t.has(self.norms + i)
        return () if normalized or not t.has(self.weights + i) else (0, self.weights + i)

    def cell_of(self, t: Reading) -> Cell:
        enter, forget, cell, out = (self.gate(t, name) for name in GATES)
        return Cell(
            enter,
            forget,
            cell,
            out,
            t.optional(self.projection),
            bias(t, self.projection + 1),
            t.attr("fused_activation_function", CODES),
            t.attr("cell_clip", float),
            t.attr("proj_clip", float),
            rounded_hidden(t),
        )


FORWARD = Places(1, 5, 9, 12, 16, 18, 19, 20)
FIRST, SECOND = Places(1, 5, 9, 12, 16, 35, 36, aux=40), Places(18, 22, 26, 29, 33, 37, 38, aux=44)


def rounded(t: Reading, index: int) -> Callable[[Builder, Value], Value]:
    """What a state is once it was stored."""
    tensor = t.tensor(index)
    if not is_quantised(tensor):
        return lambda b, x: x
    return lambda b, x: with_operators(dequantise(b, quantise(b, x, tensor), tensor))


HIDDEN = 4  # of the intermediates of an LSTM of quantized values: the output before its projection


def rounded_hidden(t: Reading) -> Callable[[Builder, Value], Value] | None:
    """How the output of a cell is rounded before its projection; None where it is not."""
    found = t.operator.intermediates
    tensor = t.graph.tensors[found[HIDDEN]] if len(found) > HIDDEN else None
    if tensor is None or not t.quantised or not is_quantised(tensor):
        return None
    return lambda b, x: with_operators(dequantise(b, quantise(b, x, tensor), tensor))


def step_of(t: Reading, places: Places) -> Step:
    cell = places.cell_of(t)
    keep_h, keep_c = rounded(t, places.hidden), rounded(t, places.cell)

    def step(b: Builder, x: Value, states: Sequence[Value], aux: Value | None) -> list[Value]:
        h, c = cell(b, x, states[0], states[1], aux)
        return [keep_h(b, h), keep_c(b, c)]

    return step


# the operators ------------------------------------------------------------------------------------


def time_major(t: Reading, x: Value) -> Value:
    """[batch, time, ...] <-> [time, batch, ...] unless the operator is time-major already."""
    return x if t.attr("time_major", bool) else t.b.Transpose(x, perm=[1, 0, 2])


def lstm_step(r: Reading) -> Sequence[ir.Value]:
    """One step; with five inputs that of the older kernel."""
    if r.attr("kernel_type", int, 0) == 1:
        return basic(r)
    states = [r.input(18), r.input(19)]
    h, c = step_of(r, FORWARD)(r.b, r.input(0), states, None)
    r.leave(18, h)
    r.leave(19, c)
    return [h]


def basic(t: Reading) -> Sequence[ir.Value]:
    """Inputs are [x, h, weights, bias, c], all gates in one matrix: input, cell, forget, output.
    The weights take x and h side by side.
    """
    b, x, h, c = t.b, t.input(0), t.input(1), t.input(4)
    joined = b.Concat(x, h, axis=1)
    product = total(dense(b, joined, t.input(2)), bias(t, 3, (0, 2)))
    enter, new, forget, out = b.Split(product, outputs=4, axis=1, num_outputs=4)
    cell = b.Sigmoid(forget) * c + b.Sigmoid(enter) * b.Tanh(new)
    return [b.Sigmoid(out) * b.Tanh(cell), cell, joined, product]


def lstm_sequence(r: Reading) -> Sequence[ir.Value]:
    places = FORWARD
    x = time_major(r, r.input(0))
    if is_plain(r, places):
        if (data := behind_clearing(r, places)) is not None:
            y = standard(r, places, data, stateless=True)[0]
            return [r.b.Pad(y, [1, 0, 0, 0, 0, 0])]
        y, h, c = standard(r, places, x)
    else:
        states = [r.input(places.hidden), r.input(places.cell)]
        y, h, c = steps_of(r.b, step_of(r, places), x, states)
    r.leave(places.hidden, h)
    r.leave(places.cell, c)
    return [time_major(r, y)]


def is_plain(t: Reading, places: Places) -> bool:
    """Whether ONNX's LSTM says the same."""
    cell = places.cell_of(t)
    gates = (cell.input, cell.forget, cell.cell, cell.output)
    return (
        not t.quantised
        and cell.activation == "Tanh"
        and cell.projection is None
        and not cell.cell_clip
        and all(g.norm is None and g.aux is None for g in gates)
    )


def standard(
    t: Reading, places: Places, x: Value, stateless: bool = False
) -> tuple[Value, Value, Value]:
    """ONNX's LSTM. Where the input gate is coupled, 1 - sigmoid(z) is sigmoid(-z). `stateless`: it
    begins with zeros, and the last column of the weights is that of the clearing step.
    """
    b = t.b
    gates = {name: places.gate(t, name) for name in GATES}
    coupled, f = gates["input"].x is None, gates["forget"]
    if coupled:
        parts = (f.x, f.h, f.bias, f.cell)
        gates["input"] = Gate(*(None if v is None else -v for v in parts))

    def joined(parts: Sequence[Value | None], what: str) -> Value:
        if any(v is None for v in parts):
            raise MappingError(f"{what} of a gate are left out", "R105")
        return b.Concat(*parts, axis=0)

    weights = joined([gates[n].x for n in ONNX], "the weights")
    if stateless:
        weights = weights[:, :-1]
    recurrent = joined([gates[n].h for n in ONNX], "the recurrent weights")
    biases = joined([gates[n].bias for n in ONNX], "the biases")
    peeps = [gates[n].cell for n in ("input", "output", "forget")]
    peepholes = None if None in peeps else b.Unsqueeze(joined(peeps, "the peepholes"), [0])
    size = t.static(gates["forget"].h, "the recurrent weights")[1]  # type: ignore[arg-type]
    y, h, c = b.LSTM(
        x,
        b.Unsqueeze(weights, [0]),
        b.Unsqueeze(recurrent, [0]),
        b.Unsqueeze(b.Concat(biases, biases * 0.0, axis=0), [0]),
        None,
        None if stateless else b.Unsqueeze(t.input(places.hidden), [0]),
        None if stateless else b.Unsqueeze(t.input(places.cell), [0]),
        peepholes,
        hidden_size=size,
        outputs=3,
    )
    return b.Squeeze(y, [1]), b.Squeeze(h, [0]), b.Squeeze(c, [0])


def both_directions(
    t: Reading, steps: Sequence[Step], states: Sequence[Sequence[int]], aux: int, weights: int
) -> list[ir.Value]:
    """The auxiliary input is a second input of both directions, with weights of its own; without
    them it is the input of the backward direction.
    """
    x, beside = time_major(t, t.input(0)), None
    second = x
    if t.has(aux):
        second = time_major(t, t.input(aux))
        if t.has(weights):
            second, beside = x, second
    results = []
    for i, (step, places) in enumerate(zip(steps, states, strict=True)):
        own = [t.input(p) for p in places]
        y, *last = steps_of(t.b, step, second if i else x, own, beside, backward=bool(i))
        for place, value in zip(places, last, strict=True):
            t.leave(place, value)
        results.append(time_major(t, y))
    if t.attr("merge_outputs", bool):
        return [t.b.Concat(*results, axis=2)]
    return list(results)


def lstm_both(r: Reading) -> Sequence[ir.Value]:
    steps = [step_of(r, p) for p in (FIRST, SECOND)]
    states = [(p.hidden, p.cell) for p in (FIRST, SECOND)]
    return both_directions(r, steps, states, 39, FIRST.aux + 1)


def rnn_of(t: Reading, first: int, aux: int = -1) -> Step:
    """Inputs from `first` on are [weights, recurrent weights, bias, state]."""
    f = ACTIVATIONS[t.attr("fused_activation_function", CODES)]
    weights, recurrent, addend = t.input(first), t.input(first + 1), bias(t, first + 2)
    beside = t.optional(aux) if aux >= 0 else None
    keep = rounded(t, first + 3)

    def step(b: Builder, x: Value, states: Sequence[Value], given: Value | None) -> list[Value]:
        more = () if given is None or beside is None else (given, beside)
        return [keep(b, f(b, rnn_step(b, x, states[0], weights, recurrent, addend, *more)))]

    return step


def rnn(r: Reading) -> ir.Value:
    (h,) = rnn_of(r, 1)(r.b, r.input(0), [r.input(4)], None)
    r.leave(4, h)
    return h


def rnn_sequence(r: Reading) -> ir.Value:
    y, h = steps_of(r.b, rnn_of(r, 1), time_major(r, r.input(0)), [r.input(4)])
    r.leave(4, h)
    return time_major(r, y)


def rnn_both(r: Reading) -> Sequence[ir.Value]:
    return both_directions(r, [rnn_of(r, 1, 10), rnn_of(r, 5, 11)], [(4,), (8,)], 9, 10)


def svdf(r: Reading) -> ir.Value:
    """Filters that are products of one in features [filters, inputs] and one in time [filters,
    memory]; `rank` of them make a unit. The state [batch, filters * memory] moves on by one place,
    and the newest feature enters it at the end. The kernel for quantized values rounds the feature
    to the scale of the state and has no activation but the range of the result. Source:
    tensorflow/lite/kernels/svdf.cc.
    """
    b, rank = r.b, r.attr("rank", int)
    time = r.input(2)
    filters, memory = r.static(time, "the weights of time")
    if rank < 1 or filters % rank:
        raise MappingError(f"{filters} filters of rank {rank}", "R110")
    feature = b.Reshape(dense(b, r.input(0), r.input(1)), [-1, filters, 1])
    if r.quantised:
        feature = rounded(r, 4)(b, feature)
    stored = b.Reshape(r.input(4), [-1, filters, memory])
    state = b.Concat(stored[:, :, 1:memory], feature, axis=2)
    r.leave(4, b.Reshape(state, [-1, filters * memory]))
    products = b.ReduceSum(state * time, [2], keepdims=0)
    units = b.ReduceSum(b.Reshape(products, [-1, filters // rank, rank]), [2], keepdims=0)
    activation = ACTIVATIONS[r.attr("fused_activation_function", CODES)]
    found = total(units, bias(r, 3, (4, 2)))
    return found if r.quantised else activation(b, found)


# an LSTM of its own -------------------------------------------------------------------------------

CLOSED = 100.0  # below minus this a sigmoid is zero in float32
LARGEST_CELL = 2.0**20  # that a peephole sees: each step adds at most one
FEW = 4  # steps that are fewer operators written out


def behind_clearing(t: Reading, places: Places) -> Value | None:
    """The data [time, batch, size] of an LSTM in whose first step the input, forget and output
    gates are closed whatever its states are: both states are zero behind it. None if there is no
    such step.

    The step and its feature, the last one, are padding: of ones in front of zeros.
    """
    step = t.input(0).producer()
    feature = None if step is None else operand(step).producer()
    if step is None or feature is None or not t.attr("time_major", bool):
        return None
    if not is_padding(step, [1, 0, 0, 0, 0, 0], 1) or not is_padding(feature, [0] * 5 + [1], 0):
        return None
    for name in ("input", "forget", "output"):
        gate = places.gate(t, name)
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
    if node.op_type != "Pad" or attrs_of(node).get("mode", "constant") != "constant":
        return False
    amounts, filling = known(node.inputs[1]), known(optional(node, 2))
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        return False
    own = 0.0 if filling is None else float(filling.reshape(-1)[0])
    return amounts is not None and amounts.tolist() == pads and own == number


def states_of(node: ir.Node) -> list[tuple[ir.Value, ir.Value]]:
    """The states of the network [batch, size] that an LSTM, and nothing else, goes on from and
    leaves: (input, output) of the network for h and c; nothing if there are none.

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
    """The input of the network of which a value is another shape, where nothing else reads it."""
    while value is not None and len(value.uses()) == 1:
        if value.is_graph_input():
            return value
        node = value.producer()
        value = node.inputs[0] if node is not None and node.op_type in RESHAPES else None
    return None


def only_reshaped(value: ir.Value | None) -> ir.Value | None:
    """The output of the network that a value becomes in another shape, and nothing else."""
    while value is not None and not value.is_graph_output():
        user = only_user(value)
        value = user.outputs[0] if user is not None and user.op_type in RESHAPES else None
    return None if value is None or value.uses() else value


RESHAPES = ("Squeeze", "Unsqueeze", "Reshape")


def reason_against_lstm(node: ir.Node) -> str:
    """Why an LSTM of ONNX is no UNIDIRECTIONAL_SEQUENCE_LSTM, whatever its direction; "" if it
    is one.
    """
    a, shape = attrs_of(node), shape_of(operand(node))
    names = a.get("activations") or ["Sigmoid", "Tanh", "Tanh"]
    if operand(node).dtype != ir.DataType.FLOAT or shape is None:
        return "it is not of floats of known sizes"
    if a.get("layout") or a.get("clip") or a.get("input_forget"):
        return "batch first, clipped or coupled gates are not possible"
    if any(n != d for n, d in zip(names, ["Sigmoid", "Tanh", "Tanh"] * 2, strict=False)):
        return f"its activations are {names}"
    if a.get("activation_alpha") or a.get("activation_beta"):
        return "its activations have factors"
    lengths, weights = optional(node, 4), [optional(node, i) for i in (1, 2, 3, 7)]
    steps = None if lengths is None else constant(lengths)
    if lengths is not None and (steps is None or (steps != shape[0]).any()):
        return "sequences of different lengths are not possible"
    if any(v is not None and constant(v) is None for v in weights):
        return "its weights are computed"
    if states_of(node):
        return ""
    states = [known(v) for i in (5, 6) if (v := optional(node, i)) is not None]
    if any(v is None or v.any() for v in states):
        return "its states are neither zero at first nor those of the network"
    if shape[0] <= FEW:
        return "it has few steps"
    cell = node.outputs[2] if len(node.outputs) > 2 else None
    if cell is not None and (cell.uses() or cell.is_graph_output()):
        return "its last cell state is a result"
    return ""


def lower_lstm(w: Writing) -> None:
    x, node = w.data, w.out.producer()
    assert node is not None
    if reason := reason_against_lstm(node):
        raise MappingError(reason)
    if w.attr("direction", "forward") != "forward" or w.quantised:
        raise MappingError("directions other than forward, or stored integers, are not possible")
    steps, batch, _ = w.static()
    weights, recurrent = (w.constant(i, "the weights")[0] for i in (1, 2))
    size = recurrent.shape[1]
    bias = np.zeros(4 * size, np.float32)
    if w.has(3):
        bias = w.constant(3, "the bias").reshape(2, -1).sum(0)
    peepholes = w.constant(7, "the peepholes")[0] if w.has(7) else None
    states = states_of(node)
    if states:
        variables = [w.low.hold(*pair) for pair in states]
    else:
        x, weights = cleared(w, x, weights, recurrent, bias, peepholes)
        variables = [w.low.variable(name, [batch, size]) for name in ("hidden", "cell")]
        steps += 1
    operands: list[Any] = [x, *[None] * 23]
    for i, name in enumerate(GATES):
        rows = slice(ONNX.index(name) * size, (ONNX.index(name) + 1) * size)
        for place, array in (
            (FORWARD.weights, weights),
            (FORWARD.recurrent, recurrent),
            (FORWARD.biases, bias),
        ):
            operands[place + i] = array[rows]
    if peepholes is not None:
        for i, place in enumerate((0, 2, 1)):  # input, output, forget
            operands[FORWARD.peepholes + place] = peepholes[i * size : (i + 1) * size]
    operands[FORWARD.hidden], operands[FORWARD.cell] = variables
    y = w.emit(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        *operands,
        shape=[steps, batch, size],
        fused_activation_function=CODES.lower("Tanh"),
        time_major=True,
    )
    deliver(w, y, steps, batch, size, 0 if states else 1)


def cleared(
    w: Writing,
    x: ir.Value,
    weights: Array,
    recurrent: Array,
    bias: Array,
    peepholes: Array | None,
) -> tuple[ir.Value, Array]:
    """The data [time, batch, size] with one more step in front and one more feature, and weights
    [4 * units, size] with one more column, which closes the input, forget and output gates in that
    step: h and c are zero behind it, whatever they were. The feature is zero in all other steps.
    """
    steps, batch, size = w.static()
    wide = w.emit("PADV2", x, pairs(0, 0, 1), np.float32(0), shape=[steps, batch, size + 1])
    x = w.emit("PADV2", wide, pairs(1, 0, 0), np.float32(1), shape=[steps + 1, batch, size + 1])
    units = recurrent.shape[1]
    # what the other features, ones in that step, and the states, at most one, add
    other = np.abs(weights).sum(1) + np.abs(recurrent).sum(1) + np.abs(bias)
    if peepholes is not None:
        other[: 3 * units] += np.abs(peepholes) * LARGEST_CELL
    column = -np.ceil(other + 2 * CLOSED)
    column[ONNX.index("cell") * units :] = 0
    return x, np.concatenate([weights, column[:, None].astype(weights.dtype)], axis=1)


def pairs(time: int, batch: int, feature: int) -> Array:
    """Padding: so much in front of the steps and of the batch, and behind the features."""
    return np.array([[time, 0], [batch, 0], [0, feature]], np.int32)


def deliver(w: Writing, y: ir.Value, steps: int, batch: int, size: int, skipped: int) -> None:
    """[time, batch, size] without the first steps as Y [time, 1, batch, size], and its last step
    as Y_h [1, batch, size].
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
    custom("", "LSTM", lstm_step),
    custom("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", lstm_sequence, lower_lstm),
    custom("", "BIDIRECTIONAL_SEQUENCE_LSTM", lstm_both),
    custom("", "RNN", rnn),
    custom("", "UNIDIRECTIONAL_SEQUENCE_RNN", rnn_sequence),
    custom("", "BIDIRECTIONAL_SEQUENCE_RNN", rnn_both),
    custom("", "SVDF", svdf),
]
