"""If and Loop: their sub-graphs become bodies, with the operands described in bodies.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.ir import Layer, Tensor
from converter.formats.zhouyi.lift import GraphLift
from converter.formats.zhouyi.types import ir_dtype
from converter.graph.infer import shape_of
from converter.mapping.context import static

BRANCHES = ("then_branch", "else_branch")


def lift_if(lift: GraphLift, layer: Layer) -> Sequence[ir.Value]:
    """Lift an If, whose branches have consecutive inputs of their own after the condition."""
    b, (condition, *inputs) = lift.builder, (lift.env[t.name] for t in layer.inputs)
    inner = [_inner(lift, layer, key) for key in BRANCHES]
    given = [
        layer.attrs.get(f"{key}_inputs_num", len(i.document.input_tensors))
        for key, i in zip(BRANCHES, inner, strict=True)
    ]
    counts = [n for n in given if isinstance(n, int)]
    if len(counts) != 2 or sum(counts) != len(inputs):
        message = f"the branches need {given} inputs, but {len(inputs)} follow the condition"
        raise MappingError(message, "R105")
    for i, fed in zip(inner, (inputs[: counts[0]], inputs[counts[0] :]), strict=True):
        i.env |= zip(_names(i, fed), fed, strict=True)
        results = zip(layer.outputs, _run(i, layer), strict=True)
        i.builder.output(*(i._declared(t, v) for t, v in results))
    bodies: dict[str, Any] = dict(zip(BRANCHES, (i.builder.graph for i in inner), strict=True))
    truth = b.Reshape(lift.cast(condition, ir.DataType.BOOL), [])
    return b.ops("If", truth, outputs=len(layer.outputs), **bodies)


def lift_loop(lift: GraphLift, layer: Layer) -> Sequence[ir.Value]:
    """Read a Loop; its body receives the iteration number, as in the vendor's executor."""
    b, inputs = lift.builder, [lift.env[t.name] for t in layer.inputs]
    inner = _inner(lift, layer, "body")
    graph = inner.document
    if len(inputs) < 2:
        raise MappingError("a Loop needs the iteration count and the condition", "R131")
    turn, keep, *names = _names(inner, inputs)
    states = _states(layer, len(names))
    declared = {t.name: t for x in graph.layers for t in x.outputs}
    for name, dtype in ((turn, ir.DataType.INT64), (keep, ir.DataType.BOOL)):
        fed: ir.Value = inner.builder.input("turn" if name == turn else "go", dtype, [])
        inner.env[name] = inner._declared(declared[name], fed) if name in declared else fed
    for name, value in zip(names[:states], inputs[2 : 2 + states], strict=True):
        if value.dtype is None:
            raise MappingError(f"the type of {value.name} is unknown", "R103")
        inner.env[name] = inner.builder.input(name, value.dtype, shape_of(value))
    inner.env |= zip(names[states:], inputs[2 + states :], strict=True)
    again, *results = _run(inner, layer, 1)
    kept = [_like(inner, v, t) for v, t in zip(results, layer.outputs, strict=True)]
    inner.builder.output(inner.builder.Reshape(inner.cast(again, ir.DataType.BOOL), []), *kept)
    types = (ir.DataType.INT64, ir.DataType.BOOL)
    turns = [b.Reshape(lift.cast(v, t), []) for v, t in zip(inputs[:2], types, strict=True)]
    body: Any = inner.builder.graph
    found = b.ops("Loop", *turns, *inputs[2 : 2 + states], outputs=len(layer.outputs), body=body)
    joined = map(partial(_joined, lift), *(x[states:] for x in (found, kept, layer.outputs)))
    return [*found[:states], *joined]


def _states(layer: Layer, given: int) -> int:
    """Return how many of the `given` inputs after the condition are states; captured outer values,
    which are the same in every iteration, follow them.
    """
    states = layer.attrs.get("dependency_inputs_num", given)
    if not isinstance(states, int) or not 0 <= states <= given:
        message = f"dependency_inputs_num={states}, but {given} inputs follow the condition"
        raise MappingError(message, "R105")
    stacked = layer.attrs.get("scan_outputs_num", len(layer.outputs) - states)
    if stacked != len(layer.outputs) - states:
        counts = f"{len(layer.outputs)} outputs and {states} states"
        raise MappingError(f"scan_outputs_num={stacked}, but the layer has {counts}", "R105")
    return states


def _joined(lift: GraphLift, stacked: ir.Value, turn: ir.Value, tensor: Tensor) -> ir.Value:
    """The executor concatenates the results of the iterations along the first axis, scalars as one
    row. The number of iterations is only declared in the file.
    """
    shape = static(turn)
    rows = math.prod(shape[:1]) if len(shape) > 1 else 1
    if tensor.shape and rows:
        stacked.shape = ir.Shape([tensor.shape[0] // rows, *shape])
    return stacked if len(shape) == 1 else lift.builder.Reshape(stacked, [-1, *(shape[1:] or (1,))])


def _like(inner: GraphLift, value: ir.Value, tensor: Tensor) -> ir.Value:
    """Return `value` in the type that the Loop declares; a state keeps its shape."""
    if tensor.dtype is None or value.dtype == ir_dtype(tensor.dtype):
        return value
    return inner._declared(Tensor(tensor.name, None, tensor.dtype), value)


def _inner(lift: GraphLift, layer: Layer, key: str) -> GraphLift:
    """Return a lift of the sub-graph that `key` names into a body. It may read the tensors of the
    graphs around it (which the vendor's reader does not allow, but others do).
    """
    name = str(layer.attrs.get(key, ""))
    if not name:
        raise MappingError(f"required attribute {key!r} is absent", "R110")
    if name not in lift.subgraphs:
        raise MappingError(f"{key}={name} is not a sub-graph", "R105")
    graph = lift.subgraphs[name]
    if any(graph is g for g in lift.open):
        raise MappingError(f"sub-graph {graph.name} contains itself", "R105")
    inner = type(lift)(graph, lift.builder.body(key), lift)
    inner.env, inner.control = dict(lift.env), lift.control
    inner.lifting.problems, inner.notes = lift.lifting.problems, lift.notes
    return inner


def _names(inner: GraphLift, fed: Sequence[ir.Value]) -> list[str]:
    """Return the inputs of a sub-graph, as many as the layer feeds."""
    names = inner.document.input_tensors
    if len(names) != len(fed):
        message = f"has {len(names)} inputs, but the layer has {len(fed)}"
        raise MappingError(f"sub-graph {inner.document.name} {message}", "R105")
    return names


def _run(inner: GraphLift, layer: Layer, more: int = 0) -> list[ir.Value]:
    """Return the results of a sub-graph, `more` than the layer has: a condition before them."""
    inner.run()
    names, what = inner.document.output_tensors, f"the sub-graph {inner.document.name}"
    if len(names) != len(layer.outputs) + more:
        counts = f"has {len(names)} outputs, but the layer has {len(layer.outputs)}"
        raise MappingError(f"{what} {counts}{' and its condition' if more else ''}", "R105")
    missing = [n for n in names if n not in inner.env]
    if missing:
        raise MappingError(f"{what} cannot be converted up to {', '.join(missing)}", "X201")
    return [inner.env[n] for n in names]


CONTROL: dict[str, Callable[[GraphLift, Layer], Sequence[ir.Value]]] = {
    "If": lift_if,
    "Loop": lift_loop,
}
