"""TensorIterator as Loop, and back.

The body has no inputs of its own: a port of a body layer that no edge feeds is fed by the port map
(a slice along an axis in each iteration, or the same value every time) and, from the second
iteration on, by a back edge.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.ir import BackEdge, PortMap, SubNet
from converter.formats.openvino.legacy.rules.context import LiftContext, LowerContext, scalar_of
from converter.formats.openvino.legacy.rules.fields import SPELLING
from converter.formats.openvino.loops import Iteration, along_axis, slicing
from converter.graph.infer import known
from converter.graph.value import producer_of
from converter.mapping.context import static
from converter.mapping.lifting import FormatMapping
from converter.mapping.lowering import Lowering
from converter.mapping.node import Layer
from converter.mapping.rules import Table, custom
from converter.record import record


class LayerWriter(Protocol):
    """Interface for writing the layers of a body.

    `feeds`  values from outside, each with the layer and the port that it feeds
    `made`   values with the layer and the port that produce them
    """

    feeds: list[tuple[ir.Value, int, int]]
    made: dict[ir.Value, tuple[int, int]]

    def add(self, layer: Layer) -> Any:
        """Write a layer."""


def lift(r: LiftContext) -> list[ir.Value]:
    """Lift a TensorIterator to a Loop of known count."""
    source, outer = r.layer.extra
    it = Iteration(r, source)
    count = r.b.const(_steps(r, it))
    feeds = it.given(
        lambda place, initial: it.inner.input(
            "state", initial.dtype or ir.DataType.FLOAT, static(initial)
        )
    )
    return it.finish(outer.body(it.inner, it.body, feeds), count, r.b.const(True))


def _steps(r: LiftContext, it: Iteration) -> int:
    """Return the number of iterations, on which all sliced inputs and outputs must agree."""
    ports = {p.id: r.dims(i) for i, p in enumerate(it.source.outputs)}
    found = {parts.count for m in it.sliced if (parts := it.parts(m)) is not None}
    for m in filter(along_axis, it.body.outputs):
        dims = ports[m.external_port_id]
        cut = slicing(m, dims[m.axis or 0], len(dims))
        if abs(cut.step) != cut.part or cut.count * cut.part != dims[cut.axis]:
            raise MappingError("the parts of an output overlap or leave gaps", "R110")
        found.add(cut.count)
    if len(found) != 1:
        raise MappingError(
            (f"the port map requires {sorted(found)} iterations, which must be one number")
            if found
            else "the iteration count is unknown, because no port is sliced",
            "R105",
        )
    return found.pop()


# writing -----------------------------------------------------------------------------------------


@record
class Slice:
    """A body value that is element i of `source` along `axis`, from the end if `backwards`."""

    source: ir.Value
    axis: int
    backwards: bool


@record
class LoopPlan:
    """A plan for writing the body of a Loop as that of a TensorIterator."""

    node: ir.Node
    body: ir.Graph
    count: int
    # formal -> (initial, next)
    states: dict[ir.Value, tuple[ir.Value, ir.Value]] = field(default_factory=dict)
    # result of a Gather by the iteration number -> its slice
    slices: dict[ir.Value, Slice] = field(default_factory=dict)
    # (output of the loop, body value)
    last: list[tuple[ir.Value, ir.Value]] = field(default_factory=list)
    every: list[tuple[ir.Value, ir.Value]] = field(default_factory=list)


def lower(w: LowerContext) -> None:
    """Write a loop with a known number of iterations and no early exit."""
    node, body = w.node, w.attr("body")
    trips = scalar_of(node.input(0))
    start = known(node.input(1)) if node.input(1) is not None else np.array(True)
    again = _constant(body.outputs[0], body)
    goes_on = start is not None and start.all() and again is not None and again.all()
    if trips is None or trips < 1 or not goes_on:
        raise MappingError("only loops with a constant iteration count are supported")
    owner = node.outputs[0].producer()
    assert owner is not None
    plan = LoopPlan(owner, body, int(trips))
    count = len(node.inputs) - 2
    for i in range(count):
        plan.states[body.inputs[2 + i]] = (w.input(2 + i), body.outputs[1 + i])
    _find_slices(plan)
    for i, out in enumerate(node.outputs):
        if out.uses() or out.is_graph_output():
            (plan.last if i < count else plan.every).append((out, body.outputs[1 + i]))
            static(body.outputs[1 + i])
    w.low.add("TensorIterator", [], [o for o, _ in (*plan.last, *plan.every)], extra=plan)


def counts(node: ir.Node) -> bool:
    """Return whether the port map determines the iteration count of a Loop: an input is sliced, or
    an output collected, iteration by iteration.
    """
    body = node.attributes["body"].as_graph()
    if _constant(body.outputs[0], body) is None:
        return False
    collected = node.outputs[len(node.inputs) - 2 :]
    return bool(body.inputs[0].uses()) or any(v.uses() or v.is_graph_output() for v in collected)


def _constant(value: ir.Value, body: ir.Graph) -> np.ndarray | None:
    """Return whether a condition is constant, or the loop's own condition passed on."""
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
    """Return whether `index` is count - 1 - step, which runs through the elements from the end."""
    producer = producer_of(index)
    if producer is None or producer.op_type != "Sub" or producer.inputs[1] is not step:
        return False
    return scalar_of(producer.inputs[0]) == count - 1


def write_loop(
    inner: LayerWriter, sub: SubNet, plan: LoopPlan, layers: list[Layer]
) -> list[ir.Value]:
    """Write the layers of the body `sub` and return the values they need from outside, in the order
    of the loop's ports.

    A slice along an axis keeps that axis with length 1; a reshape in the body removes it. Likewise
    a value that is collected over the iterations gets a first axis of length 1.
    """
    w = LowerContext.for_no_operator(Lowering(FormatMapping(Table([]), spelling=SPELLING)))
    sliced: dict[ir.Value, Slice] = {}
    front: list[Layer] = []
    for value, cut in plan.slices.items():
        shape = static(value)
        part = w.temporary("part", value.dtype, [*shape[: cut.axis], 1, *shape[cut.axis :]])
        sliced[part] = cut
        front.append(_reshape(w, part, value))
    count = w.temporary("count", ir.DataType.INT64, [1])
    steps = w.const(range(plan.count))
    sliced[count] = Slice(steps, 0, False)
    own = [layer for layer in layers if plan.slices.keys().isdisjoint(layer.outputs)]
    if plan.body.inputs[0] in {v for layer in own for v in layer.inputs}:
        squeeze = w.put("Squeeze", count, [0], outputs=[plan.body.inputs[0]])
        squeeze.name = "step"
        front.append(squeeze)
    back: list[Layer] = []
    every: dict[ir.Value, ir.Value] = {}
    for _, value in plan.every:
        every[value] = w.temporary("every", value.dtype, [1, *static(value)])
        back.append(_reshape(w, value, every[value]))
    for layer in (*front, *own, *back):
        inner.add(layer)
    collected = [(every[value], True) for _, value in plan.every]
    return _connect(inner, sub, plan, sliced, [*((v, False) for _, v in plan.last), *collected])


def _reshape(w: LowerContext, value: ir.Value, out: ir.Value) -> Layer:
    shape = static(out)
    kind, second = ("Reshape", list(shape)) if shape else ("Squeeze", range(len(static(value))))
    layer = w.put(kind, value, second, outputs=[out])
    layer.name = f"{value.name}/{kind.lower()}"
    return layer


def _connect(
    inner: LayerWriter,
    sub: SubNet,
    plan: LoopPlan,
    sliced: dict[ir.Value, Slice],
    results: list[tuple[ir.Value, bool]],
) -> list[ir.Value]:
    """Return the port map and the back edges; of the results, whether they are collected along the
    first axis.
    """
    sources: dict[ir.Value, int] = {}  # value from outside -> port
    for value, layer, port in inner.feeds:
        source, cut = value, sliced.get(value)
        if value in plan.states:
            source, following = plan.states[value]
            producer, maker_port = inner.made[following]
            sub.back_edges.append(BackEdge(producer, layer, maker_port, port))
        elif cut is not None:
            source = cut.source
        entry = PortMap(sources.setdefault(source, len(sources)), layer, port)
        if cut is not None:
            entry.axis, entry.part_size = cut.axis, 1
            entry.start, entry.end, entry.stride = (-1, 0, -1) if cut.backwards else (0, -1, 1)
        sub.inputs.append(entry)
    for external, (value, collected) in enumerate(results, len(sources)):
        entry = PortMap(external, *inner.made[value])
        if collected:
            entry.axis, entry.part_size = 0, 1
            entry.start, entry.end, entry.stride = 0, -1, 1
        sub.outputs.append(entry)
    return list(sources)


RULES = [custom("Loop", "TensorIterator", lift=lift, lower=lower)]
