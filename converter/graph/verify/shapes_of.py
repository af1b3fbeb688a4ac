"""Helpers of the checks: known shapes of operands, attributes, and the location of a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from converter.graph.value import known_sizes, optional

BODY = "netconv.body"  # metadata key of a graph inside a node
Dims = list[int | None]
Law = Callable[[ir.Node], str | None]  # returns why a node cannot be executed, or None


def dims_of(node: ir.Node, index: int) -> Dims | None:
    """Return the sizes of an operand with None for dynamic ones, or None without a known rank."""
    return known_sizes(optional(node, index))


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    """Return the value of an attribute, or the default if it is absent or refers to one of a
    function.
    """
    return (
        node.attributes[name].value
        if name in node.attributes and not node.attributes[name].is_ref()
        else default
    )


def differ(a: int | None, b: int | None) -> bool:
    """Return whether two sizes are known and not equal."""
    return a is not None and b is not None and a != b


def unlike(given: Dims | None, wanted: Sequence[int | None]) -> bool:
    """Return whether a shape differs from the wanted one, as far as both are known."""
    return given is not None and (len(given) != len(wanted) or any(map(differ, given, wanted)))


def broadcasts(given: Dims, to: Dims) -> bool:
    """Return whether a shape may broadcast to another one, as far as both are known."""
    pairs = zip(given[::-1], to[::-1], strict=False)
    return len(given) <= len(to) and not any(s != 1 and differ(s, d) for s, d in pairs)


def window_of(node: ir.Node, axes: int) -> tuple[list[int], list[int], list[int]]:
    """Return strides, dilations and pads of a window over `axes` axes."""
    defaults = (("strides", [1] * axes), ("dilations", [1] * axes), ("pads", [0] * 2 * axes))
    strides, dilations, pads = (list(attribute(node, name, given)) for name, given in defaults)
    return strides, dilations, pads


def sizes_of(value: ir.Value | None) -> list[int] | None:
    """Return the sizes of a value if all of them are known, else None."""
    if value is None or value.shape is None or not all(isinstance(d, int) for d in value.shape):
        return None
    return [int(d) for d in value.shape if isinstance(d, int)]


def in_body(node: ir.Node) -> bool:
    """Return whether a node is in the body of an operator, such as a branch or a loop."""
    return isinstance(node.graph, ir.Graph) and BODY in node.graph.meta
