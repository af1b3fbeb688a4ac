"""If and Loop as branches and loops over variables. Their layers are read by lift_bodies.py."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.neuralnetwork.collector import CoreLowering, scalar
from converter.formats.coreml.neuralnetwork.rules.context import LowerContext
from converter.graph.infer import shape_of
from converter.graph.value import known_sizes, producer_operand
from converter.mapping.rules import custom

Value = ir.Value


def apart(low: CoreLowering) -> CoreLowering:
    """Return the collector for the layers of a body."""
    inner = CoreLowering(low.mapping, low.version, low.half)
    inner.aliases, inner.notes = low.aliases, low.notes
    return inner


def lower_if(w: LowerContext) -> None:
    """Write an If; both branches write the results under the same names."""
    node, low = w.node, w.low
    bodies = {}
    for far, key in (("ifBranch", "then_branch"), ("elseBranch", "else_branch")):
        graph = node.attrs[key]
        inner = apart(low)
        for step in graph:
            inner.node(step)
        for out, value in zip(node.outputs, graph.outputs, strict=True):
            inner.add("copy", [value], [out])
        low.problems += inner.problems
        bodies[far] = inner.layers
    low.add("branch", [w.data], [], extra=bodies)


def lower_loop(w: LowerContext) -> None:
    """Write a loop whose states are variables: copied before the loop, read in the body, and
    assigned at the end of the body, all at once.
    """
    node, low = w.node, w.low
    body = node.attrs["body"]
    carried = len(node.inputs) - 2
    trips, cond = node.input(0), node.input(1)
    inner = apart(low)
    finals: list[tuple[Value, Value]] = []
    for i in range(carried):
        formal, start = body.inputs[2 + i], node.inputs[2 + i]
        low.add("copy", [start], [formal])
        finals.append((formal, body.outputs[1 + i]))
        low.alias(node.outputs[i], formal)
    counter = body.inputs[0]
    scans = list(zip(node.outputs[carried:], body.outputs[1 + carried :], strict=True))
    counted = bool(counter.uses()) or bool(scans)
    if counted:
        low.add("copy", [low.const([0.0])], [counter])
    for step in body:
        inner.node(step)
    for out, value in scans:
        _scan(low, inner, out, value, counter)
    attrs, extra = _condition(low, inner, body, cond)
    _assign(inner, finals)
    if counted:
        inner.add("copy", [inner.one("add", [counter], [1], {"alpha": 1.0})], [counter])
    low.problems += inner.problems
    _close(low, trips, attrs, {"bodyNetwork": inner.layers, **extra})


def _assign(inner: CoreLowering, finals: list[tuple[Value, Value]]) -> None:
    temporaries = [
        (formal, inner.one("copy", [value], known_sizes(value))) for formal, value in finals
    ]
    for formal, value in temporaries:
        inner.add("copy", [value], [formal])


def origin(value: Value) -> Value:
    """Return the value before any Identity operators."""
    while (source := producer_operand(value, "Identity")) is not None:
        value = source
    return value


def unconditional(body: Any) -> bool:
    """Return whether the body passes its condition on unchanged, or always gives true."""
    source = origin(body.outputs[0])
    return source is body.inputs[1] or scalar(source) == 1.0


def _condition(
    low: CoreLowering, inner: CoreLowering, body: Any, cond: Value | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the condition as a variable that a network with one copy layer reads (for attributes
    and bodies of the loop); nothing if it is always true.
    """
    end, keep = body.outputs[0], body.inputs[1]
    forever, start = unconditional(body), None if cond is None or scalar(cond) == 1.0 else cond
    if forever and start is None:
        if keep.uses():
            low.add("copy", [low.const([1.0])], [keep])
        return {}, {}
    low.add("copy", [low.const([1.0]) if start is None else start], [keep])
    if not forever:
        inner.add("copy", [end], [keep])
    tested = low.value("condition", ir.DataType.FLOAT, [1])
    network = apart(low)
    network.add("copy", [keep], [tested])
    return {"conditionVar": tested}, {"conditionNetwork": network.layers}


def _scan(low: CoreLowering, inner: CoreLowering, out: Value, value: Value, counter: Value) -> None:
    """Write a scan output: a tensor of the full size, into which each iteration writes its part."""
    shape = shape_of(out)
    if shape is None or 0 in shape:
        raise MappingError(
            "the loop's iteration count is not known at conversion time, so its "
            "stacked output has no shape"
        )
    low.add("fillStatic", [], [out], {"value": 0.0, "targetShape": list(shape)})
    part = inner.one("reshapeStatic", [value], [1, *shape[1:]], {"targetShape": [1, *shape[1:]]})
    written = inner.one(
        "scatter", [out, counter, part], list(shape), {"axis": 0, "mode": "SCATTER_UPDATE"}
    )
    inner.add("copy", [written], [out])


def _close(
    low: CoreLowering, trips: Value | None, attrs: dict[str, Any], extra: dict[str, Any]
) -> None:
    if trips is None and not attrs:
        raise MappingError("an infinite loop is not supported")
    most = None if trips is None else scalar(trips)
    if most is not None and not (attrs and most >= 1 << 53):
        attrs["maxLoopIterations"] = int(max(0.0, most))
    inputs = [] if trips is None or most is not None else [trips]
    low.add("loop", inputs, [], attrs, extra=extra)


RULES = [custom("If", "", lower=lower_if), custom("Loop", "", lower=lower_loop)]
