"""What the checks look at: known shapes of operands, attributes, where a node stands."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.graph.value import input_of

BODY = "netconv.body"  # key of the meta data of a graph inside a node
Dims = list[int | None]


def dims_of(node: ir.Node, index: int) -> Dims | None:
    value = input_of(node, index)
    return (
        None
        if value is None or value.shape is None
        else [d if isinstance(d, int) else None for d in value.shape]
    )


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    return (
        node.attributes[name].value
        if name in node.attributes and not node.attributes[name].is_ref()
        else default
    )


def differ(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a != b


def sizes_of(value: ir.Value | None) -> list[int] | None:
    if value is None or value.shape is None or not all(isinstance(d, int) for d in value.shape):
        return None
    return [int(d) for d in value.shape if isinstance(d, int)]


def in_body(node: ir.Node) -> bool:
    return isinstance(node.graph, ir.Graph) and BODY in node.graph.meta
