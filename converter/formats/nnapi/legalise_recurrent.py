"""Recurrent operators with an operation for one direction: directions one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of
from converter.graph.infer import constant, shape_of
from converter.mapping.node import MappingError
from converter.passes.legalise import Rewrite

_FIRST = int(np.iinfo(np.int64).min) + 1


def part(b: Builder, value: ir.Value | None, d: int) -> ir.Value | None:
    """Entry `d` of axis 0, kept as an axis of length 1."""
    array = constant(value)
    if value is None or array is not None:
        return None if array is None else b.const(array[d : d + 1], str(value.name) if value is not None else "part")
    return b.op("Slice", value, [d], [d + 1], [0])


def reversed_time(b: Builder, x: ir.Value) -> ir.Value:
    return b.op("Slice", x, [-1], [_FIRST], [0], [-1])


def directions(node: ir.Node, b: Builder) -> Sequence[ir.Value | None] | None:
    """Each direction is a forward operator, the second on reversed time."""
    a, x = attrs_of(node), node.inputs[0]
    direction, shape = a.get("direction", "forward"), None if x is None else shape_of(x)
    if x is None or shape is None or direction == "forward" or a.get("activation_alpha") or a.get("activation_beta"):
        return None
    whole(node, shape[0])
    count = 2 if direction == "bidirectional" else 1
    found = [_direction(node, b, x, d, count, direction == "reverse" or d == 1) for d in range(count)]
    if count == 1:
        return found[0]
    return [b.op("Concat", *(f[k] for f in found), axis=1 if k == 0 else 0) for k in range(len(node.outputs))]


def _direction(node: ir.Node, b: Builder, x: ir.Value, d: int, count: int, backward: bool) -> list[ir.Value]:
    attributes: dict[str, Any] = {k: v for k, v in attrs_of(node).items() if k != "direction"}
    names = attributes.get("activations")
    if names:
        size = len(names) // count
        attributes["activations"] = list(names[d * size : (d + 1) * size])
    inputs = [v if i in (0, 4) else part(b, v, d) for i, v in enumerate(node.inputs)]
    inputs[0] = reversed_time(b, x) if backward else x
    results = list(b.ops(node.op_type, *inputs, outputs=len(node.outputs), **attributes))
    if backward:
        results[0] = reversed_time(b, results[0])
    return results


def whole(node: ir.Node, steps: int) -> None:
    """MappingError when sequences have lengths of their own or another layout."""
    lengths = node.inputs[4] if len(node.inputs) > 4 else None
    array = constant(lengths)
    if (lengths is not None and (array is None or (array != steps).any())) or attrs_of(node).get("layout", 0):
        raise MappingError("sequences of different lengths, or batch first, are not possible")


RECURRENT: dict[tuple[str, str], Rewrite] = {("", op): directions for op in ("LSTM", "RNN")}
