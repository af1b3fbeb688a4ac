"""If, Loop, TensorIterator and states.

Bodies of the format are closed: values of the outer graph enter through Parameters, listed in a
port map. In the shared graph a body captures outer values directly.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.ir import Layer as IrLayer
from converter.formats.openvino.ir import SubNet
from converter.formats.openvino.loops import Iteration, inside, span
from converter.formats.openvino.loops import scalar as to_scalar
from converter.formats.openvino.opset.rules.context import (
    Inner,
    LiftContext,
    LowerContext,
    OpsetLayer,
    element_type,
)
from converter.formats.openvino.opset.rules.fields import (
    parse_shape,
    scalar,
)
from converter.graph.build import Builder
from converter.graph.infer import known, rank_of
from converter.graph.walk import captured
from converter.mapping.rules import custom

T = ir.DataType


# reading -----------------------------------------------------------------------------------------


def _sub(source: IrLayer, tag: str) -> SubNet:
    if tag not in source.bodies:
        raise MappingError(f"the {tag} is absent", "R105")
    return source.bodies[tag]


def lift_if(r: LiftContext) -> list[ir.Value]:
    """Lift an If with its two bodies."""
    source, outer = r.context
    ports = {p.id: i for i, p in enumerate(source.inputs)}
    branches = []
    for tag in ("then_body", "else_body"):
        sub, inner = _sub(source, tag), r.b.body(tag)
        given = {inside(m): r.input(ports[m.external_port_id]) for m in sub.inputs}
        made = outer.body(inner, sub, given)
        by_port = {m.external_port_id: made[inside(m)] for m in sub.outputs}
        inner.output(*(by_port[p.id] for p in source.outputs))
        branches.append(inner.graph)
    condition = to_scalar(r.b, r.input(0), T.BOOL)
    then, other = branches
    count = len(source.outputs)
    return list(r.b.If(condition, outputs=count, then_branch=then, else_branch=other))


def lift_loop(r: LiftContext) -> list[ir.Value]:
    """Lift a Loop or a TensorIterator."""
    source, outer = r.context
    sub = _sub(source, "body")
    it = Iteration(r, source)
    trips, condition = _trips(r, it)
    given = it.given(lambda place, initial: _state(it.inner, sub, place[0], initial))
    for m in sub.inputs:
        if m.purpose == "current_iteration":
            given[inside(m)] = _like_parameter(it.inner, sub, m.internal_layer_id, it.number)
    return it.finish(outer.body(it.inner, sub, given), trips, condition)


def _trips(r: LiftContext, it: Iteration) -> tuple[ir.Value | None, ir.Value]:
    """Return trip count and condition. A TensorIterator runs once for each slice of its input."""
    b = r.b
    if r.layer.kind == "Loop":
        trips, condition = r.input(0), r.input(1)
        count = known(trips)
        endless = count is not None and count.reshape(-1)[0] < 0
        limit = None if endless else to_scalar(b, trips, T.INT64)
        return limit, to_scalar(b, condition, T.BOOL)
    if not it.sliced:
        raise MappingError("a TensorIterator needs a sliced input")
    if parts := next(filter(None, map(it.parts, it.sliced)), None):
        return b.const(parts.count), b.const(True)
    m = it.sliced[0]
    if span(m) not in ((0, -1, 1, 1), (-1, 0, -1, 1)):
        raise MappingError("the number of iterations depends on a dynamic dimension", "X203")
    length = b.Shape(it.value(m), start=m.axis, end=(m.axis or 0) + 1)
    return to_scalar(b, length, T.INT64), b.const(True)


def _state(inner: Builder, sub: SubNet, parameter: int, initial: ir.Value) -> ir.Value:
    """Return a loop-carried input; its shape is that of the body's Parameter."""
    declared = sub.by_id()[parameter]
    shape = parse_shape(declared.data.get("shape", ""))
    return inner.input(declared.name, initial.dtype or T.FLOAT, shape)


def _like_parameter(inner: Builder, sub: SubNet, parameter: int, number: ir.Value) -> ir.Value:
    """Return the iteration number in the type and rank of a Parameter."""
    declared = sub.by_id()[parameter]
    dtype = T(element_type.lift(declared.data.get("element_type", "i64")))
    value = inner.Cast(number, to=dtype) if dtype != T.INT64 else number
    shape = parse_shape(declared.data.get("shape", ""))
    return inner.Reshape(value, [1] * len(shape)) if shape else value


# states ------------------------------------------------------------------------------------------


def lift_read(r: LiftContext) -> ir.Value:
    """Read a state as an additional input and output."""
    source, outer = r.context
    return outer.state(source, r.input(0) if r.layer.inputs else None)


def lift_assign(r: LiftContext) -> ir.Value:
    """Assign a variable; the result is the assigned value."""
    source, outer = r.context
    outer.assign(source.data.get("variable_id", ""), r.input(0))
    return r.input(0)


# writing -----------------------------------------------------------------------------------------


def lower_if(w: LowerContext) -> None:
    """Write an If. Raises MappingError X203 if the branches give results of different ranks."""
    branches = [w.node.attrs[k] for k in ("then_branch", "else_branch")]
    for value, *results in zip(w.node.outputs, *(g.outputs for g in branches), strict=True):
        ranks = [rank_of(v) for v in results]
        if rank_of(value) is None and None not in ranks and len(set(ranks)) > 1:
            message = (
                f"the branches give results of rank {ranks[0]} and {ranks[1]}, "
                "but the runtime needs known ranks"
            )
            help = "fix the shapes that the condition depends on with --inputs"
            raise MappingError(message, "X203", help)
    outer = [captured(g) for g in branches]
    values = list(dict.fromkeys(v for found in outer for v in found))
    bodies = {}
    for tag, graph, found in zip(("then_body", "else_body"), branches, outer, strict=True):
        bodies[tag] = Inner(graph, [(1 + values.index(v), v) for v in found], list(graph.outputs))
    condition = w.data
    condition = condition if rank_of(condition) == 1 else scalar(w, condition)
    _put(w, "If", [condition, *values], bodies)


def lower_loop(w: LowerContext) -> None:
    """Write the inputs of a Loop: trip count (-1 for none), condition, initial states, outer
    values.
    """
    graph: ir.Graph = w.node.attrs["body"]
    trips, condition, initial = w.optional(0), w.optional(1), w.node.inputs[2:]
    if any(v is None for v in initial):
        raise MappingError("a state needs an initial value")
    number, go, *states = graph.inputs
    outer = captured(graph)
    trip = w.const(-1) if trips is None else scalar(w, trips)
    start = w.const(np.array(True)) if condition is None else scalar(w, condition)
    inner = Inner(graph, goes_on=graph.outputs[0], iteration=number if number.uses() else None)
    inner.inputs = [(2 + i, v) for i, v in enumerate([*states, *outer])]
    inner.back = dict(zip(states, graph.outputs[1:], strict=False))
    if go.uses():  # the condition is a state like any other
        inner.inputs.append((1, go))
        inner.back[go] = graph.outputs[0]
    inner.outputs = list(graph.outputs[1:])
    inner.stacked = set(range(len(states), len(inner.outputs)))
    _put(w, "Loop", [trip, start, *initial, *outer], {"body": inner})


def _put(
    w: LowerContext, kind: str, inputs: list[ir.Value | None], bodies: dict[str, Inner]
) -> None:
    layer = OpsetLayer(kind, w.low.name, inputs=inputs, outputs=list(w.node.outputs))
    layer.bodies = bodies
    w.low.layers.append(layer)


RULES = [
    custom("If", "If", lift_if, lower_if),
    custom("Loop", "Loop TensorIterator", lift_loop, lower_loop),
    custom("", "ReadValue", lift_read),
    custom("", "Assign", lift_assign),
]
