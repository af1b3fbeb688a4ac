"""Merge nodes that compute the same value.

before:  Mul(Reshape(x, [6]), Reshape(x, [6]))      after:  r = Reshape(x, [6]); Mul(r, r)
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import attrs_of
from converter.graph.extensions import can_expand
from converter.graph.infer import RANDOM
from converter.graph.walk import all_graphs, discard, replace_uses, subgraphs
from converter.passes.pipeline import Context, Pass, change

_SMALL = 256  # bytes of a constant that is compared by its content
_OTHER_EACH_TIME = RANDOM | {"Dropout"}


def eliminate_common_subexpressions(model: ir.Model) -> None:
    """Remove, in place, nodes with the same inputs and attributes as an earlier node of their
    graph.
    """
    for graph in all_graphs(model.graph):
        made: dict[Any, ir.Node] = {}
        for node in list(graph):
            if (
                any(subgraphs(node))
                or not _repeatable(node)
                or any(o.is_graph_output() for o in node.outputs)
            ):
                continue
            first = made.setdefault(_key(node), node)
            if first is not node:
                replace_uses(list(zip(node.outputs, first.outputs, strict=True)))
                discard(node)


def _repeatable(node: ir.Node) -> bool:
    return (
        can_expand(node)
        if node.domain == EXTENSION_DOMAIN
        else node.op_type not in _OTHER_EACH_TIME
    )


def _key(node: ir.Node) -> Any:
    attributes = repr(sorted(attrs_of(node).items(), key=lambda a: a[0]))
    return (
        node.domain,
        node.op_type,
        node.overload,
        attributes,
        len(node.outputs),
        tuple(map(_operand, node.inputs)),
    )


def _operand(value: ir.Value | None) -> Any:
    """Return the value itself, or the contents of a small constant."""
    tensor = None if value is None or value.is_graph_input() else value.const_value
    if tensor is None or tensor.nbytes > _SMALL or tensor.dtype == ir.DataType.STRING:
        return value
    return tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes()


def share_common() -> Pass[Context]:
    """Return the pass of a pipeline; see `eliminate_common_subexpressions`."""
    return change(
        "share-common",
        "Merge equal computations",
        eliminate_common_subexpressions,
    )
