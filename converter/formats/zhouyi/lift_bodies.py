"""If and Loop: their sub-graphs become bodies. How they are laid out is told in `bodies`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import onnx_ir as ir

from converter.formats.zhouyi.ir import Graph, Layer, Tensor
from converter.formats.zhouyi.special.register import index_of, truth_of
from converter.formats.zhouyi.types import ir_dtype
from converter.graph.infer import shape_of
from converter.mapping.node import MappingError
from converter.mapping.trouble import TROUBLE, told

if TYPE_CHECKING:
    from converter.formats.zhouyi.lift import GraphLift

BRANCHES = ("then_branch", "else_branch")


def lift_if(lift: GraphLift, layer: Layer) -> list[ir.Value]:
    """Each branch has the inputs behind the condition that belong to it, in this order."""
    b, inputs = lift.builder, [lift.env[t.name] for t in layer.inputs]
    graphs = [_subgraph(lift, layer, key) for key in BRANCHES]
    given = [layer.attrs.get(f"{key}_inputs_num", len(g.input_tensors)) for key, g in zip(BRANCHES, graphs, strict=True)]
    counts = [n for n in given if isinstance(n, int)]
    if len(counts) != 2 or 1 + sum(counts) != len(inputs):
        raise MappingError(f"the branches take {given} inputs, {len(inputs) - 1} stand behind the condition", "R105")
    first = counts[0]
    bodies = []
    for key, graph, fed in zip(BRANCHES, graphs, (inputs[1 : 1 + first], inputs[1 + first :]), strict=True):
        inner = _inner(lift, graph, key)
        names = graph.input_tensors
        _fits(layer, key, len(names), len(fed), "inputs")
        inner.env |= dict(zip(names, fed, strict=True))
        inner.run()
        results = _results(lift, inner, graph, layer, len(layer.outputs), 0)
        typed = [inner._declared(t, v) for t, v in zip(layer.outputs, results, strict=True)]
        inner.builder.output(*typed)
        bodies.append(inner.builder.graph)
    condition = b.op("Reshape", truth_of(b, inputs[0]), [])
    return list(b.ops("If", condition, outputs=len(layer.outputs), then_branch=bodies[0], else_branch=bodies[1]))


def lift_loop(lift: GraphLift, layer: Layer) -> list[ir.Value]:
    """A body that reads the number of turns is refused: real executors feed that of all turns, ONNX and its writers mean that of the turn."""
    b, inputs, graph = lift.builder, [lift.env[t.name] for t in layer.inputs], _subgraph(lift, layer, "body")
    names = graph.input_tensors
    if len(inputs) < 2:
        raise MappingError("a Loop needs the number of turns and the condition", "R131")
    _fits(layer, "body", len(names), len(inputs), "inputs")
    if names[0] in {t.name for x in graph.layers for t in x.inputs} | set(graph.output_tensors):
        raise MappingError("the body reads the number of turns: is it that of the turn, or that of all turns as the executor feeds it?", "X202")
    inner = _inner(lift, graph, "body")
    states = len(inputs) - 2
    inner.env[names[0]] = inner.builder.input("turn", ir.DataType.INT64, [])
    go = inner.builder.input("go", ir.DataType.BOOL, [])
    tops = {t.name: t for x in graph.layers for t in x.outputs}
    if names[1] in tops:
        inner.env[names[1]] = inner._declared(tops[names[1]], go)
    for name, value in zip(names[2:], inputs[2:], strict=True):
        if value.dtype is None:
            raise MappingError(f"the type of {value.name} is not known", "R103")
        inner.env[name] = inner.builder.input(name, value.dtype, shape_of(value))
    inner.run()
    more = len(layer.outputs) - states
    for key, count in (("dependency_inputs_num", states), ("scan_outputs_num", more)):
        if layer.attrs.get(key, count) != count:
            raise MappingError(f"{key}={layer.attrs[key]}, but the layer has {count}", "R105")
    results = _results(lift, inner, graph, layer, 1 + states + more, 1)
    kept = [_like(inner, v, t) for v, t in zip(results[1:], layer.outputs, strict=True)]
    inner.builder.output(inner.builder.op("Reshape", truth_of(inner.builder, results[0]), []), *kept)
    turns, condition = (b.op("Reshape", v, []) for v in (index_of(b, inputs[0]), truth_of(b, inputs[1])))
    return list(b.ops("Loop", turns, condition, *inputs[2:], outputs=len(layer.outputs), body=inner.builder.graph))


def _like(inner: GraphLift, value: ir.Value, tensor: Tensor) -> ir.Value:
    """`value` in the type that the Loop declares; a state keeps its shape, what is stacked lacks the first axis."""
    if tensor.dtype is None or value.dtype == ir_dtype(tensor.dtype):
        return value
    return inner._declared(Tensor(tensor.name, None, tensor.dtype), value)


def _subgraph(lift: GraphLift, layer: Layer, key: str) -> Graph:
    name = str(layer.attrs.get(key, ""))
    if name not in lift.subgraphs:
        raise MappingError(f"{key}={name} names no sub-graph" if name else f"required attribute {key!r} is absent", "R105" if name else "R110")
    return lift.subgraphs[name]


def _inner(lift: GraphLift, graph: Graph, key: str) -> GraphLift:
    """A lift of a sub-graph into a body; it may read the tensors of the graphs around it (the vendor's reader does not let it, others do)."""
    if any(graph is g for g in lift.open):
        raise MappingError(f"the sub-graph {graph.name} contains itself", "R105")
    inner = type(lift)(graph, lift.builder.body(key), lift)
    inner.env = dict(lift.env)
    inner.lifting.problems, inner.notes = lift.lifting.problems, lift.notes
    return inner


def _fits(layer: Layer, key: str, known: int, given: int, what: str) -> None:
    if known != given:
        raise MappingError(f"the sub-graph {layer.attrs[key]} has {known} {what}, the layer gives it {given}", "R105")


def _results(lift: GraphLift, inner: GraphLift, graph: Graph, layer: Layer, count: int, extra: int) -> list[ir.Value]:
    names = graph.output_tensors
    if len(names) != count:
        raise MappingError(f"the sub-graph {graph.name} has {len(names)} outputs, the layer {count - extra}{' and its condition' if extra else ''}", "R105")
    missing = [n for n in names if n not in inner.env]
    if missing:
        raise MappingError(f"the sub-graph {graph.name} could not be read up to {', '.join(missing)}", "X201")
    return [inner.env[n] for n in names]


CONTROL: dict[str, Callable[[GraphLift, Layer], list[ir.Value]]] = {"If": lift_if, "Loop": lift_loop}


def lift_control(lift: GraphLift, layer: Layer) -> None:
    """Lifts the layer into `lift.env`, or notes why it cannot be."""
    far, b = lift._far(layer), lift.builder
    try:
        with b.provenance(format="zhouyi", layer=layer.name, type=layer.type, where=str(layer.where().line)):
            for tensor, value in zip(layer.outputs, CONTROL[layer.type](lift, layer), strict=True):
                lift.env[tensor.name] = lift._declared(tensor, value)
    except TROUBLE as e:
        code, message, help = told(e)
        lift.lifting.refuse(far, message, code, help)
