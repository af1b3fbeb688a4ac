"""If, Loop, TensorIterator and states.

Bodies of the format are closed: Parameters stand for values of the outer graph, named in a port map. In the shared graph a body
reads outer values as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.ir import Layer as IrLayer
from converter.formats.openvino.ir import PortMap, SubNet
from converter.formats.openvino.opset.special.base import dim, lifts, operand, rank
from converter.graph.build import Builder
from converter.graph.infer import known, shape_of
from converter.mapping.drive import Lifting
from converter.mapping.node import Layer, MappingError

T = ir.DataType


@lifts("If")
def lift_if(layer: Layer, b: Builder) -> list[ir.Value]:
    source, outer = layer.extra
    ports = {p.id: i for i, p in enumerate(source.inputs)}
    branches, order = [], [p.id for p in source.outputs]
    for tag in ("then_body", "else_body"):
        sub = source.bodies.get(tag)
        if sub is None:
            raise MappingError(f"the {tag} is absent", "R105")
        inner = b.body(tag)
        lift = _body(outer, inner, sub)
        for m in sub.inputs:
            lift.given[m.internal_layer_id] = operand(layer, ports[m.external_port_id])
        _run(lift, sub, outer)
        by_port = {m.external_port_id: lift.outputs[m.internal_layer_id] for m in sub.outputs}
        inner.output(*(by_port[i] for i in order))
        branches.append(inner.graph)
    condition = operand(layer, 0)
    if rank(condition):
        condition = b.op("Reshape", condition, np.zeros(0, np.int64))
    if condition.dtype != T.BOOL:
        condition = b.op("Cast", condition, to=int(T.BOOL))
    return list(b.ops("If", condition, then_branch=branches[0], else_branch=branches[1], outputs=len(order)))


def _body(outer: Any, inner: Builder, sub: SubNet) -> Any:
    lifting = Lifting(outer.lifting.mapping, inner, outer.lifting.format)
    return type(outer)(outer.net, inner, lifting)


def _run(lift: Any, sub: SubNet, outer: Any) -> None:
    lift.run(sub)
    if lift.lifting.problems:
        outer.lifting.problems.extend(lift.lifting.problems)
        raise MappingError("its body cannot be converted")
    if lift.variables:
        raise MappingError("a state inside a body")


@dataclass
class Iteration:
    """What a loop's port maps say. Everything is keyed by Parameter and Result ids of the body."""

    source: IrLayer
    body: SubNet
    values: list[ir.Value | None]
    sliced: list[PortMap] = field(default_factory=list)
    whole: dict[int, ir.Value] = field(default_factory=dict)  # invariants and initial states
    back: dict[int, int] = field(default_factory=dict)  # Parameter -> Result that feeds it

    def __post_init__(self) -> None:
        ports = {p.id: i for i, p in enumerate(self.source.inputs)}
        self.back = {e.to_layer: e.from_layer for e in self.body.back_edges}
        for m in self.body.inputs:
            if m.external_port_id == -1:
                continue
            value = self.values[ports[m.external_port_id]]
            if value is None:
                raise MappingError(f"input port {m.external_port_id} is not connected", "R105")
            if m.axis is not None:
                self.sliced.append(m)
            else:
                self.whole[m.internal_layer_id] = value

    def value(self, m: PortMap) -> ir.Value:
        ports = {p.id: i for i, p in enumerate(self.source.inputs)}
        value = self.values[ports[m.external_port_id]]
        assert value is not None
        return value

    def purpose(self, name: str, maps: list[PortMap]) -> int | None:
        return next((m.internal_layer_id for m in maps if m.purpose == name), None)


@lifts("TensorIterator", "Loop")
def lift_loop(layer: Layer, b: Builder) -> list[ir.Value]:
    source, outer = layer.extra
    sub = source.bodies.get("body")
    if sub is None:
        raise MappingError("the body is absent", "R105")
    it = Iteration(source, sub, layer.inputs)
    trips, condition = _trips(layer, b, it)
    inner = b.body("body")
    number = inner.input("iteration", T.INT64, [])
    inner.input("go_on", T.BOOL, [])
    lift = _body(outer, inner, sub)
    states = [p for p in it.whole if p in it.back]
    for p, v in it.whole.items():
        lift.given[p] = _state(inner, sub, p, v) if p in it.back else v
    for m in it.sliced:
        lift.given[m.internal_layer_id] = _piece(inner, it.value(m), m, number)
    current = it.purpose("current_iteration", sub.inputs)
    if current is not None:
        lift.given[current] = _like_parameter(inner, sub, current, number)
    _run(lift, sub, outer)
    return _finish(layer, b, it, lift, inner, states, (trips, condition))


def _trips(layer: Layer, b: Builder, it: Iteration) -> tuple[ir.Value | None, ir.Value | None]:
    """Trip count and condition. A TensorIterator runs as often as its sliced input has parts."""
    if layer.kind == "Loop":
        trips, condition = operand(layer, 0), operand(layer, 1)
        count = known(trips)
        limit = None if count is not None and count.reshape(-1)[0] < 0 else _scalar(b, trips, T.INT64)
        return limit, _scalar(b, condition, T.BOOL)
    for m in it.sliced:
        size, part = dim(it.value(m), m.axis or 0), abs(m.part_size or 1)
        if size is None:
            if (m.start or 0, m.end if m.end is not None else -1, abs(m.stride or 1), part) in ((0, -1, 1, 1), (-1, 0, 1, 1)):
                return _scalar(b, b.op("Shape", it.value(m), start=m.axis, end=(m.axis or 0) + 1), T.INT64), b.const(True)
            raise MappingError("the number of iterations depends on a dynamic dimension", "X203")
        return b.const(np.int64(_count(m, size))), b.const(True)
    raise MappingError("a TensorIterator without a sliced input")


def _count(m: PortMap, size: int) -> int:
    """Parts between start and end, both counted from the end when negative (-1 is one behind the last)."""
    start, end = m.start or 0, m.end if m.end is not None else -1
    first = start if start >= 0 else size + 1 + start
    last = end if end >= 0 else size + 1 + end
    return abs(last - first) // abs(m.stride or 1)


def _scalar(b: Builder, v: ir.Value, dtype: ir.DataType) -> ir.Value:
    v = b.op("Reshape", v, np.zeros(0, np.int64)) if v.shape is None or len(v.shape) else v
    return b.op("Cast", v, to=int(dtype)) if v.dtype != dtype else v


def _state(inner: Builder, sub: SubNet, parameter: int, initial: ir.Value) -> ir.Value:
    """A loop-carried input; its shape is what the body's Parameter promises."""
    from converter.formats.openvino.opset.lift import parse_shape

    declared = sub.by_id()[parameter]
    shape = parse_shape(declared.data.get("shape", ""))
    return inner.input(declared.name, initial.dtype or T.FLOAT, shape)


def _like_parameter(inner: Builder, sub: SubNet, parameter: int, number: ir.Value) -> ir.Value:
    from converter.formats.openvino.opset.constants import DATA_TYPES
    from converter.formats.openvino.opset.lift import parse_shape

    declared = sub.by_id()[parameter]
    dtype = DATA_TYPES.get(declared.data.get("element_type", "i64"), T.INT64)
    value = inner.op("Cast", number, to=int(dtype)) if dtype != T.INT64 else number
    shape = parse_shape(declared.data.get("shape", ""))
    return inner.op("Reshape", value, [1] * len(shape)) if shape else value


def _piece(inner: Builder, x: ir.Value, m: PortMap, number: ir.Value) -> ir.Value:
    """Part `number` of x along the axis; the axis stays, with the size of a part."""
    part, stride, start = abs(m.part_size or 1), m.stride or 1, m.start or 0
    axis = m.axis or 0
    if stride < 0:  # from the end; start -1 is one behind the last
        size = inner.op("Shape", x, start=axis, end=axis + 1)
        top = inner.op("Add", size, [start + 1]) if start < 0 else inner.const([start])
        end = inner.op("Add", top, inner.op("Mul", inner.op("Reshape", number, [1]), [stride]))
        return inner.op("Slice", x, inner.op("Sub", end, [part]), end, [axis])
    begin = inner.op("Mul", inner.op("Reshape", number, [1]), [stride])
    if start < 0:
        begin = inner.op("Add", begin, inner.op("Add", inner.op("Shape", x, start=axis, end=axis + 1), [start + 1]))
    elif start:
        begin = inner.op("Add", begin, [start])
    return inner.op("Slice", x, begin, inner.op("Add", begin, [part]), [axis])


def _finish(layer: Layer, b: Builder, it: Iteration, lift: Any, inner: Builder, states: list[int], head: tuple[Any, Any]) -> list[ir.Value]:
    """Body outputs: condition, states, collected values; then the layer's outputs from those of the Loop."""
    sub = it.body
    going = it.purpose("execution_condition", sub.outputs)
    goes_on = lift.outputs[going] if going is not None else inner.const(True)
    inner.output(_scalar(inner, goes_on, T.BOOL))
    for p in states:
        inner.output(lift.outputs[it.back[p]])
    carried = {it.back[p]: i for i, p in enumerate(states)}
    maps = {m.external_port_id: m for m in sub.outputs if m.external_port_id != -1}
    collected: list[int] = []
    for port in it.source.outputs:
        m = maps[port.id]
        if m.axis is not None or m.internal_layer_id not in carried:
            collected.append(port.id)
            inner.output(lift.outputs[m.internal_layer_id])
    parts = {port: dim(lift.outputs[maps[port].internal_layer_id], maps[port].axis or 0) for port in collected}
    initial = [it.whole[p] for p in states]
    results = b.ops("Loop", *head, *initial, body=inner.graph, outputs=len(states) + len(collected))
    found = []
    for port in it.source.outputs:
        m = maps[port.id]
        if port.id in collected:
            found.append(_collected(b, results[len(states) + collected.index(port.id)], m, parts[port.id]))
        else:
            found.append(results[carried[m.internal_layer_id]])
    return found


def _collected(b: Builder, stacked: ir.Value, m: PortMap, part: int | None) -> ir.Value:
    """[T, ...] -> the parts side by side along the axis; or, without an axis, the last one."""
    if m.axis is None:
        return b.op("Gather", stacked, b.const(np.int64(-1)), axis=0)
    if (m.stride or 1) < 0:
        stacked = b.op("Slice", stacked, [-1], [np.iinfo(np.int64).min], [0], [-1])
    axis = m.axis + (rank(stacked) - 1 if m.axis < 0 else 0)
    moved = b.op("Transpose", stacked, perm=[*range(1, axis + 1), 0, *range(axis + 1, rank(stacked))]) if axis else stacked
    shape = shape_of(stacked)
    if shape is not None:
        rest = list(shape[1:])
        rest[axis] *= shape[0]
        return b.op("Reshape", moved, rest)
    if part == 1:
        return b.op("Squeeze", moved, [axis + 1])
    sizes = b.op("Shape", moved)
    lead, tail = b.op("Slice", sizes, [0], [axis]), b.op("Slice", sizes, [axis + 2], [np.iinfo(np.int64).max])
    return b.op("Reshape", moved, b.op("Concat", lead, [-1], tail, axis=0))


@lifts("ReadValue")
def lift_read(layer: Layer, b: Builder) -> ir.Value:
    """A state is an input and an output more; its initial value, when it is known, is the input's default."""
    source, outer = layer.extra
    name = source.data.get("variable_id", "")
    initial = operand(layer, 0) if layer.inputs else _zeros(source, b)
    return outer.state(name, initial)  # type: ignore[no-any-return]


def _zeros(source: IrLayer, b: Builder) -> ir.Value:
    """What a state without an initial value begins with."""
    from converter.formats.openvino.opset.constants import DATA_TYPES, computed
    from converter.formats.openvino.opset.lift import parse_shape

    dtype, shape = DATA_TYPES.get(source.data.get("variable_type", "")), parse_shape(source.data.get("variable_shape", "..."))
    if dtype is None or shape is None or None in shape:
        raise MappingError("a state without an initial value and without a static shape", "X203")
    return b.const(np.zeros(shape, computed(dtype).numpy()), "initial")


@lifts("Assign")
def lift_assign(layer: Layer, b: Builder) -> ir.Value:
    source, outer = layer.extra
    value = operand(layer, 0)
    outer.assign(source.data.get("variable_id", ""), value)
    return value
