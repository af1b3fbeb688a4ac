"""Inference for control flow, as graph.infer does for other operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.known import known, set_type
from converter.graph.value import optional


def infer(node: ir.Node) -> None:
    """Infer types and shapes of an If or a Loop from its bodies."""
    bodies = {
        a.name: a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH
    }
    if node.op_type == "If":
        for out, a, b in zip(
            node.outputs, bodies["then_branch"].outputs, bodies["else_branch"].outputs, strict=True
        ):
            out.type = a.type or b.type
            set_type(out, None, _merge(a.shape, b.shape))
    elif node.op_type == "Loop":
        body = bodies["body"]
        carried = max(len(node.inputs) - 2, 0)
        trips = known(node.inputs[0])
        stops = known(node.inputs[1]) if optional(node, 1) is not None else np.array(True)
        fixed = trips is not None and stops is not None and bool(stops.all()) and _goes_on(body)
        for i, out in enumerate(node.outputs):
            inner = body.outputs[i + 1]
            if i < carried:
                initial = node.inputs[i + 2]
                out.type = inner.type or (initial.type if initial is not None else None)
                set_type(
                    out,
                    None,
                    _merge(inner.shape, initial.shape if initial is not None else inner.shape),
                )
            elif inner.shape is not None:
                set_type(
                    out,
                    inner.dtype,
                    [int(trips.reshape(())) if fixed and trips is not None else None, *inner.shape],
                )
            else:
                set_type(out, inner.dtype, None)


def _goes_on(body: ir.Graph) -> bool:
    """Return whether the body of a Loop never ends it: its condition is true, or passed through
    unchanged.
    """
    condition: ir.Value | None = body.outputs[0]
    while (
        condition is not None
        and (producer := condition.producer()) is not None
        and producer.op_type == "Identity"
    ):
        condition = producer.inputs[0]
    found = known(condition)
    return condition is body.inputs[1] if found is None else bool(found.all())


def _merge(a: ir.Shape | None, b: ir.Shape | None) -> list[Any] | None:
    if a is None or b is None or len(a) != len(b):
        return None
    return [x if x == y else None for x, y in zip(a, b, strict=True)]
