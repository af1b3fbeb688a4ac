"""LSTMs with an operation for one direction: directions one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.nnapi.legalise_numbers import operand
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import constant, shape_of
from converter.graph.value import Value

_FIRST = int(np.iinfo(np.int64).min) + 1


def part(b: Builder, value: ir.Value | None, d: int) -> Value | None:
    """Entry `d` of axis 0, kept as an axis of length 1."""
    if value is None:
        return None
    array = constant(value)
    if array is not None:
        return b.const(array[d : d + 1], str(value.name))
    return b.Slice(value, [d], [d + 1], [0])


def reversed_time(b: Builder, x: Value) -> Value:
    return b.Slice(x, [-1], [_FIRST], [0], [-1])


def directions(node: ir.Node, b: Builder) -> Sequence[ir.Value | None] | None:
    """Each direction is a forward operator, the second on reversed time: one operation, where the
    common decomposition writes out every step.
    """
    a, x = attrs_of(node), operand(node)
    direction, shape = a.get("direction", "forward"), shape_of(x)
    if shape is None or direction == "forward":
        return None
    if a.get("activation_alpha") or a.get("activation_beta"):
        return None
    whole(node, shape[0])
    if direction == "reverse":
        return _direction(node, b, 0, 1, True)
    found = [_direction(node, b, d, 2, d == 1) for d in range(2)]
    axes = (1, 0, 0)[: len(node.outputs)]
    return [b.Concat(*(f[k] for f in found), axis=axis) for k, axis in enumerate(axes)]


def _direction(node: ir.Node, b: Builder, d: int, count: int, backward: bool) -> list[ir.Value]:
    attributes: dict[str, Any] = {k: v for k, v in attrs_of(node).items() if k != "direction"}
    if names := attributes.get("activations"):
        size = len(names) // count
        attributes["activations"] = list(names[d * size : (d + 1) * size])
    inputs = [v if i in (0, 4) else part(b, v, d) for i, v in enumerate(node.inputs)]
    if backward:
        inputs[0] = reversed_time(b, operand(node))
    y, *states = b.ops(node.op_type, *inputs, outputs=len(node.outputs), **attributes)
    return [reversed_time(b, y) if backward else y, *states]


def whole(node: ir.Node, steps: int) -> None:
    """MappingError when sequences have lengths of their own or another layout."""
    lengths = node.inputs[4] if len(node.inputs) > 4 else None
    array = constant(lengths)
    own = lengths is not None and (array is None or (array != steps).any())
    if own or attrs_of(node).get("layout", 0):
        raise MappingError("sequences of different lengths, or batch first, are not possible")
