"""Inference over a whole graph: after reading, and again when input shapes are fixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from converter.graph.infer import infer, shape_of
from converter.graph.names import public_name
from converter.graph.walk import all_nodes, subgraphs


def infer_all(model: ir.Model) -> None:
    """Types and shapes of all values, sub-graphs before their owners. Declared shapes stay where inference knows less."""
    infer_graph(model.graph)


def infer_graph(graph: ir.Graph) -> None:
    for node in graph:
        if node.op_type in ("Loop", "Scan"):
            _bind_body_inputs(node)
        for inner in subgraphs(node):
            infer_graph(inner)
        declared = [(o.type, o.shape) for o in node.outputs]
        infer(node)
        for out, (type_, shape) in zip(node.outputs, declared, strict=True):
            _keep_better(out, type_, shape)


def _keep_better(out: ir.Value, type_: ir.TypeProtocol | None, shape: ir.Shape | None) -> None:
    if out.type is None:
        out.type = type_
    if shape is not None and (out.shape is None or (shape_of(out) is None and len(out.shape) == len(shape))):
        known = list(out.shape) if out.shape is not None else [None] * len(shape)
        out.shape = ir.Shape([k if isinstance(k, int) else s for k, s in zip(known, shape, strict=True)])


def _bind_body_inputs(node: ir.Node) -> None:
    """A Loop body's inputs take the types of the initial values; shapes only where the body keeps them (unknown here)."""
    body = next(subgraphs(node))
    for formal, actual in zip(body.inputs[2:], node.inputs[2:], strict=False):
        if actual is not None and formal.type is None:
            formal.type = actual.type


def fix_inputs(model: ir.Model, shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """Sets input shapes by public name and infers again; returns the names that no input has."""
    by_name = {public_name(v): v for v in model.graph.inputs}
    for name, shape in shapes.items():
        if name in by_name:
            by_name[name].shape = ir.Shape(shape)
    for node in all_nodes(model.graph):
        for out in node.outputs:
            out.meta.pop("netconv.known", None)
            out.shape = None
    infer_all(model)
    return [n for n in shapes if n not in by_name]
