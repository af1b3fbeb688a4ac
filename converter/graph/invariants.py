"""Invariants of a canonical graph; the tests check them after every lift and pass."""

from __future__ import annotations

import onnx_ir as ir

from converter.graph import CHANNELS_LAST_DOMAIN, EXTENSION_DOMAIN, IR_VERSION, OPSET
from converter.graph.extensions import lookup
from converter.graph.infer import schema_of


def violations(model: ir.Model) -> list[str]:
    """Return all violations as sentences; empty for a canonical graph."""
    found: list[str] = []
    if model.ir_version != IR_VERSION or model.graph.opset_imports.get("") != OPSET:
        found.append(
            f"the model has ir version {model.ir_version} and opset "
            f"{model.graph.opset_imports.get('')}"
        )
    seen: set[str] = set()
    _graph(model.graph, set(), seen, found)
    return found


def _graph(graph: ir.Graph, outer: set[ir.Value], seen: set[str], found: list[str]) -> None:
    defined = outer | set(graph.inputs) | set(graph.initializers.values())
    for value in [*graph.inputs, *graph.initializers.values()]:
        _value(value, seen, found)
    for node in graph:
        _node(node, found)
        found.extend(
            f"{node.op_type} reads {v.name}, which is not defined before it"
            for v in node.inputs
            if v is not None and v not in defined
        )
        for inner in (
            a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH
        ):
            _graph(inner, defined, seen, found)
        for out in node.outputs:
            _value(out, seen, found)
            defined.add(out)
    found.extend(f"output {v.name} is not defined" for v in graph.outputs if v not in defined)


def _value(value: ir.Value, seen: set[str], found: list[str]) -> None:
    if not value.name or value.name in seen:
        found.append(f"name {value.name!r} is empty or used twice")
    seen.add(value.name or "")
    if value.type is None and value.uses():
        found.append(f"{value.name} has no type")


def _node(node: ir.Node, found: list[str]) -> None:
    if node.domain == "" and ((schema := schema_of(node.op_type)) is None or schema.deprecated):
        found.append(f"{node.op_type} is not an operator of opset {OPSET}")
    if node.domain == EXTENSION_DOMAIN and lookup(node.op_type) is None:
        found.append(f"{node.op_type} is not in the extension catalogue")
    if node.op_type == "Constant":
        found.append("a constant is a node, not an initializer")
    if (
        node.domain in ("", CHANNELS_LAST_DOMAIN)
        and "auto_pad" in node.attributes
        and node.attributes["auto_pad"].as_string() != "NOTSET"
    ):
        found.append(f"{node.op_type} has implicit padding")
