"""Canonical recurrent operators of one step -> cells; Loop -> TensorIterator."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.legacy.recurrent import FROM_FICO, FUNCTIONS, GATES
from converter.formats.openvino.legacy.register import lowers
from converter.formats.openvino.legacy.writing import array_of, const, csv, finish, need, reshaped, scalar_of, static, step
from converter.graph.infer import known
from converter.mapping.codecs import number_text
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node

TO_FICO = [FROM_FICO.index(i) for i in range(4)]
DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}


@lowers("LSTM", "GRU", "RNN")
def lower_cell(node: Node, low: Lowering) -> None:
    """A sequence of length 1 in forward direction."""
    x = need(node, 0)
    steps, rows, width = static(x)
    if steps != 1 or node.attrs.get("direction", "forward") == "bidirectional" or node.attrs.get("layout"):
        raise MappingError("a sequence of more than one step must be a loop")
    lengths = known(node.input(4))
    if node.input(7) is not None or node.attrs.get("input_forget") or (node.input(4) is not None and (lengths is None or np.any(lengths != 1))):
        raise MappingError("peepholes, coupled gates and lengths are not known to the target")
    blobs = _blobs(node)
    hidden = blobs["biases"].size // (GATES[node.op] + bool(node.op == "GRU" and node.attrs.get("linear_before_reset")))
    states = [_state(node, low, 5 + i, [rows, hidden]) for i in range(2 if node.op == "LSTM" else 1)]
    results = [low.value("h", x.dtype, [rows, hidden]) for _ in states]
    low.add(f"{node.op}Cell", [reshaped(low, x, [rows, width]), *states], results, _attributes(node, hidden), blobs)
    used = [(i, o) for i, o in enumerate(node.outputs) if o.uses() or o.is_graph_output()]
    if len({max(0, i - 1) for i, _ in used}) < len(results):
        results = _alone(low, results, max(0, used[0][0] - 1), [rows, hidden])
    for i, out in used:
        finish(low, results[max(0, i - 1)], out)


def _alone(low: Lowering, results: list[ir.Value], index: int, shape: list[int]) -> list[ir.Value]:
    """One of two results: the port of the other must not be left over, it would become an output of the net."""
    both = step(low, "Concat", results, results[0], [shape[0], 2 * shape[1]], {"axis": "1"})
    attrs = {"axis": "1", "offset": str(index * shape[1]), "dim": str(shape[1])}
    return [step(low, "Crop", [both], results[0], shape, attrs)] * 2


def _state(node: Node, low: Lowering, index: int, shape: list[int]) -> ir.Value:
    value = node.input(index)
    return const(low, np.zeros(shape, np.float32), "state") if value is None else reshaped(low, value, shape)


def _blobs(node: Node) -> dict[str, np.ndarray]:
    gates = GATES[node.op]
    w, r = array_of(node, 1, "the weights")[0], array_of(node, 2, "the weights")[0]
    hidden = r.shape[1]
    rows = np.concatenate([w, r], 1).reshape(gates, hidden, -1)
    both = (array_of(node, 3, "the biases")[0] if node.input(3) is not None else np.zeros(2 * gates * hidden, w.dtype)).reshape(2, gates, hidden)
    if node.op == "GRU" and node.attrs.get("linear_before_reset"):
        bias = np.concatenate([both[0, :2] + both[1, :2], both[0, 2:], both[1, 2:]])
    else:
        bias = both.sum(0, dtype=w.dtype)
    if node.op == "LSTM":
        rows, bias = rows[TO_FICO], bias[TO_FICO]
    return {"weights": rows.reshape(gates * hidden, -1), "biases": bias.reshape(-1)}


def _attributes(node: Node, hidden: int) -> dict[str, str]:
    attrs = {"hidden_size": str(hidden)}
    spelled = {v: k for k, v in FUNCTIONS.items()}
    names = node.attrs.get("activations") or DEFAULTS[node.op]
    if any(n not in ("Sigmoid", "Tanh", "Relu") for n in names) and names != DEFAULTS[node.op]:
        raise MappingError(f"the activations {names} are not known to the target")
    if list(names) != DEFAULTS[node.op] or node.op == "RNN":
        attrs["activations"] = ",".join(spelled[n] for n in names)
    for k in ("alpha", "beta"):
        if node.attrs.get(f"activation_{k}"):
            attrs[f"activations_{k}"] = csv(list(node.attrs[f"activation_{k}"]))
    if node.attrs.get("clip"):
        attrs["clip"] = number_text(node.attrs["clip"])
    if node.op == "GRU" and node.attrs.get("linear_before_reset"):
        attrs["linear_before_reset"] = "1"
    return attrs


@dataclass
class Slice:
    """A body value that is element i of `source` along `axis`, counted from the end when `backwards`."""

    source: ir.Value
    axis: int
    backwards: bool


@dataclass
class LoopPlan:
    """How the body of a Loop becomes that of a TensorIterator."""

    node: ir.Node
    body: ir.Graph
    count: int
    states: dict[ir.Value, tuple[ir.Value, ir.Value]] = field(default_factory=dict)  # formal -> (initial, next)
    slices: dict[ir.Value, Slice] = field(default_factory=dict)  # result of a Gather by the step -> what it is
    last: list[tuple[ir.Value, ir.Value]] = field(default_factory=list)  # (output of the loop, body value)
    every: list[tuple[ir.Value, ir.Value]] = field(default_factory=list)


@lowers("Loop")
def lower_loop(node: Node, low: Lowering) -> None:
    """A loop with a known number of steps and no way out before."""
    body = node.attrs["body"]
    trips = scalar_of(node.input(0))
    start = known(node.input(1)) if node.input(1) is not None else np.array(True)
    again = _constant(body.outputs[0], body)
    if trips is None or trips < 1 or start is None or not start.all() or again is None or not again.all():
        raise MappingError("only loops with a constant number of steps are known to the target")
    owner = node.outputs[0].producer()
    assert owner is not None
    plan = LoopPlan(owner, body, int(trips))
    count = len(node.inputs) - 2
    for i in range(count):
        plan.states[body.inputs[2 + i]] = (need(node, 2 + i), body.outputs[1 + i])
    _find_slices(plan)
    for i, out in enumerate(node.outputs):
        if out.uses() or out.is_graph_output():
            (plan.last if i < count else plan.every).append((out, body.outputs[1 + i]))
            static(body.outputs[1 + i])
    low.add("TensorIterator", [], [o for o, _ in (*plan.last, *plan.every)], extra=plan)


def counts(node: ir.Node) -> bool:
    """Whether the port map would say how many steps a Loop makes: something is read, or collected, step by step, whatever comes out."""
    body = node.attributes["body"].as_graph()
    if _constant(body.outputs[0], body) is None:
        return False
    collected = node.outputs[len(node.inputs) - 2 :]
    return bool(body.inputs[0].uses()) or any(v.uses() or v.is_graph_output() for v in collected)


def _constant(value: ir.Value, body: ir.Graph) -> np.ndarray | None:
    """A condition that is constant, or the loop's own condition handed on."""
    array = known(value)
    producer = value.producer()
    while array is None and producer is not None and producer.op_type in ("Identity", "Cast"):
        value = producer.inputs[0]  # type: ignore[assignment]
        array, producer = known(value), value.producer()
    return np.array(True) if array is None and value is body.inputs[1] else array


def _find_slices(plan: LoopPlan) -> None:
    step = plan.body.inputs[0]
    inside = {o for n in plan.body for o in n.outputs} | set(plan.body.inputs)
    for n in plan.body:
        if n.op_type != "Gather" or n.domain or n.inputs[0] in inside or n.inputs[0] is None:
            continue
        shape = static(n.inputs[0])
        axis = n.attributes["axis"].as_int() % len(shape) if "axis" in n.attributes else 0
        backwards = _backwards(n.inputs[1], step, plan.count)
        if shape[axis] == plan.count and (n.inputs[1] is step or backwards):
            plan.slices[n.outputs[0]] = Slice(n.inputs[0], axis, backwards)


def _backwards(index: ir.Value | None, step: ir.Value, count: int) -> bool:
    """Whether `index` is count - 1 - step."""
    producer = index.producer() if index is not None else None
    if producer is None or producer.op_type != "Sub" or producer.inputs[1] is not step:
        return False
    return scalar_of(producer.inputs[0]) == count - 1
