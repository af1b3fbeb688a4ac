"""Where rewrites are entered, and what they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from converter.graph.build import attrs_of
from converter.graph.infer import shape_of
from converter.mapping.node import MappingError
from converter.mapping.table import defaults
from converter.passes.legalise import Rewrite

REWRITES: dict[tuple[str, str], Rewrite] = {}


def rewrites(*ops: str, domain: str = "") -> Callable[[Rewrite], Rewrite]:
    def enter(f: Rewrite) -> Rewrite:
        for name in ops:
            assert (domain, name) not in REWRITES, name
            REWRITES[domain, name] = f
        return f

    return enter


def operand(node: ir.Node, index: int = 0) -> ir.Value:
    value = optional(node, index)
    if value is None:
        raise MappingError(f"input {index} is absent")
    return value


def optional(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def static(value: ir.Value) -> list[int]:
    shape = shape_of(value)
    if shape is None:
        raise MappingError(f"the shape of {value.name} must be static", "X203")
    return list(shape)


def attributes(node: ir.Node) -> dict[str, Any]:
    """The attributes with the schema's defaults filled in."""
    return {**defaults(node.op_type, node.domain), **attrs_of(node)}
