"""Recurrent operators. Their states are variable tensors: inputs of the network that may be left
out, and outputs that are the states afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.tflite.rules.context import LiteReading
from converter.formats.tflite.rules.fields import CODES, reading
from converter.formats.tflite.tensors import dequantise, is_quantised, quantise
from converter.graph.build import Builder
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
from converter.graph.value import Value, with_operators
from converter.mapping.context import Reading
from converter.mapping.rules import Custom, Rule, custom

GATES = ("input", "forget", "cell", "output")  # the order of a file
ONNX = ("input", "output", "forget", "cell")


def present(t: LiteReading, index: int) -> Value | None:
    return t.real(index) if t.has(index) else None


def bias(t: LiteReading, index: int) -> Value | None:
    found = t.real_bias(index)
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

    def gate(self, t: LiteReading, name: str) -> Gate:
        i = GATES.index(name)
        peep = (0, 1, None, 2)[i]
        return Gate(
            present(t, self.weights + i),
            present(t, self.recurrent + i),
            bias(t, self.biases + i),
            None if peep is None else present(t, self.peepholes + peep),
            None if self.norms < 0 else present(t, self.norms + i),
            None if self.aux < 0 else present(t, self.aux + i),
        )

    def cell_of(self, t: LiteReading) -> Cell:
        enter, forget, cell, out = (self.gate(t, name) for name in GATES)
        return Cell(
            enter,
            forget,
            cell,
            out,
            present(t, self.projection),
            bias(t, self.projection + 1),
            t.attr("fused_activation_function", CODES),
            t.attr("cell_clip", float),
            t.attr("proj_clip", float),
        )


FORWARD = Places(1, 5, 9, 12, 16, 18, 19, 20)
FIRST, SECOND = Places(1, 5, 9, 12, 16, 35, 36, aux=40), Places(18, 22, 26, 29, 33, 37, 38, aux=44)


def rounded(t: LiteReading, index: int) -> Callable[[Builder, Value], Value]:
    """What a state is once it was stored."""
    tensor = t.tensor(index)
    if not is_quantised(tensor):
        return lambda b, x: x
    return lambda b, x: with_operators(dequantise(b, quantise(b, x, tensor), tensor))


def step_of(t: LiteReading, places: Places) -> Step:
    cell = places.cell_of(t)
    keep_h, keep_c = rounded(t, places.hidden), rounded(t, places.cell)

    def step(b: Builder, x: Value, states: Sequence[Value], aux: Value | None) -> list[Value]:
        h, c = cell(b, x, states[0], states[1], aux)
        return [keep_h(b, h), keep_c(b, c)]

    return step


# the operators ------------------------------------------------------------------------------------


def time_major(t: LiteReading, x: Value) -> Value:
    """[batch, time, ...] <-> [time, batch, ...] unless the operator is time-major already."""
    return x if t.attr("time_major", bool) else t.b.Transpose(x, perm=[1, 0, 2])


def lstm_step(r: Reading) -> Sequence[ir.Value]:
    """One step; with five inputs that of the older kernel."""
    t = reading(r)
    if r.attr("kernel_type", int, 0) == 1:
        return basic(t)
    states = [t.real(18), t.real(19)]
    h, c = step_of(t, FORWARD)(r.b, t.real(0), states, None)
    t.leave(18, h)
    t.leave(19, c)
    return [h]


def basic(t: LiteReading) -> Sequence[ir.Value]:
    """Inputs are [x, h, weights, bias, c], all gates in one matrix: input, cell, forget, output.
    The weights take x and h side by side.
    """
    b, x, h, c = t.b, t.real(0), t.real(1), t.real(4)
    joined = b.Concat(x, h, axis=1)
    product = total(b, dense(b, joined, t.real(2)), bias(t, 3))
    enter, new, forget, out = b.Split(product, outputs=4, axis=1, num_outputs=4)
    cell = b.Sigmoid(forget) * c + b.Sigmoid(enter) * b.Tanh(new)
    return [b.Sigmoid(out) * b.Tanh(cell), cell, joined, product]


def lstm_sequence(r: Reading) -> Sequence[ir.Value]:
    t, places = reading(r), FORWARD
    x = time_major(t, t.real(0))
    if is_plain(t, places):
        y, h, c = standard(t, places, x)
    else:
        states = [t.real(places.hidden), t.real(places.cell)]
        y, h, c = steps_of(r.b, step_of(t, places), x, states)
    t.leave(places.hidden, h)
    t.leave(places.cell, c)
    return [time_major(t, y)]


def is_plain(t: LiteReading, places: Places) -> bool:
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


def standard(t: LiteReading, places: Places, x: Value) -> tuple[Value, Value, Value]:
    """ONNX's LSTM. Where the input gate is coupled, 1 - sigmoid(z) is sigmoid(-z)."""
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
        b.Unsqueeze(t.real(places.hidden), [0]),
        b.Unsqueeze(t.real(places.cell), [0]),
        peepholes,
        hidden_size=size,
        outputs=3,
    )
    return b.Squeeze(y, [1]), b.Squeeze(h, [0]), b.Squeeze(c, [0])


def both_directions(
    t: LiteReading, steps: Sequence[Step], states: Sequence[Sequence[int]], aux: int, weights: int
) -> list[ir.Value]:
    """The auxiliary input is a second input of both directions, with weights of its own; without
    them it is the input of the backward direction.
    """
    x, beside = time_major(t, t.real(0)), None
    second = x
    if t.has(aux):
        second = time_major(t, t.real(aux))
        if t.has(weights):
            second, beside = x, second
    results = []
    for i, (step, places) in enumerate(zip(steps, states, strict=True)):
        own = [t.real(p) for p in places]
        y, *last = steps_of(t.b, step, second if i else x, own, beside, backward=bool(i))
        for place, value in zip(places, last, strict=True):
            t.leave(place, value)
        results.append(time_major(t, y))
    if t.attr("merge_outputs", bool):
        return [t.b.Concat(*results, axis=2)]
    return list(results)


def lstm_both(r: Reading) -> Sequence[ir.Value]:
    t = reading(r)
    steps = [step_of(t, p) for p in (FIRST, SECOND)]
    states = [(p.hidden, p.cell) for p in (FIRST, SECOND)]
    return both_directions(t, steps, states, 39, FIRST.aux + 1)


def rnn_of(t: LiteReading, first: int, aux: int = -1) -> Step:
    """Inputs from `first` on are [weights, recurrent weights, bias, state]."""
    f = ACTIVATIONS[t.attr("fused_activation_function", CODES)]
    weights, recurrent, addend = t.real(first), t.real(first + 1), bias(t, first + 2)
    beside = present(t, aux) if aux >= 0 else None
    keep = rounded(t, first + 3)

    def step(b: Builder, x: Value, states: Sequence[Value], given: Value | None) -> list[Value]:
        more = () if given is None or beside is None else (given, beside)
        return [keep(b, f(b, rnn_step(b, x, states[0], weights, recurrent, addend, *more)))]

    return step


def rnn(r: Reading) -> ir.Value:
    t = reading(r)
    (h,) = rnn_of(t, 1)(r.b, t.real(0), [t.real(4)], None)
    t.leave(4, h)
    return h


def rnn_sequence(r: Reading) -> ir.Value:
    t = reading(r)
    y, h = steps_of(r.b, rnn_of(t, 1), time_major(t, t.real(0)), [t.real(4)])
    t.leave(4, h)
    return time_major(t, y)


def rnn_both(r: Reading) -> Sequence[ir.Value]:
    t = reading(r)
    return both_directions(t, [rnn_of(t, 1, 10), rnn_of(t, 5, 11)], [(4,), (8,)], 9, 10)


def svdf(r: Reading) -> ir.Value:
    """Filters that are products of one in features [filters, inputs] and one in time [filters,
    memory]; `rank` of them make a unit. The state [batch, filters * memory] moves on by one place,
    and the newest feature enters it at the end.
    """
    t, b, rank = reading(r), r.b, r.attr("rank", int)
    time = t.real(2)
    filters, memory = r.static(time, "the weights of time")
    if rank < 1 or filters % rank:
        raise MappingError(f"{filters} filters of rank {rank}", "R110")
    feature = b.Reshape(dense(b, t.real(0), t.real(1)), [-1, filters, 1])
    stored = b.Reshape(t.real(4), [-1, filters, memory])
    state = b.Concat(b.Slice(stored, [1], [memory], [2]), feature, axis=2)
    t.leave(4, b.Reshape(state, [-1, filters * memory]))
    products = b.ReduceSum(state * time, [2], keepdims=0)
    units = b.ReduceSum(b.Reshape(products, [-1, filters // rank, rank]), [2], keepdims=0)
    activation = ACTIVATIONS[r.attr("fused_activation_function", CODES)]
    return activation(b, total(b, units, bias(t, 3)))


RULES: list[Rule | Custom] = [
    custom("", "LSTM", lstm_step),
    custom("", "UNIDIRECTIONAL_SEQUENCE_LSTM", lstm_sequence),
    custom("", "BIDIRECTIONAL_SEQUENCE_LSTM", lstm_both),
    custom("", "RNN", rnn),
    custom("", "UNIDIRECTIONAL_SEQUENCE_RNN", rnn_sequence),
    custom("", "BIDIRECTIONAL_SEQUENCE_RNN", rnn_both),
    custom("", "SVDF", svdf),
]
