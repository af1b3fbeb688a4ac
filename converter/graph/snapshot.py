"""Detection of changes of a graph: results for an unchanged graph need not be computed again."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from converter.graph.walk import all_graphs


class Snapshot:
    """The nodes of a graph with all that determines their results: attributes, operands, types,
    shapes, constants, inputs and outputs of the graph.
    """

    def __init__(self, model: ir.Model) -> None:
        self._parts = list(
            _parts(model)
        )  # the objects stay alive, so that none has the id of another

    def holds(self, model: ir.Model) -> bool:
        """Return whether nothing has changed since the snapshot."""
        now = list(_parts(model))
        return len(now) == len(self._parts) and all(
            a is b or (isinstance(a, str | tuple) and a == b)
            for a, b in zip(now, self._parts, strict=True)
        )


def _parts(model: ir.Model) -> Iterator[object]:
    for graph in all_graphs(model.graph):
        yield graph
        for value in (*graph.inputs, *graph.initializers.values(), *graph.outputs):
            yield from _value(value)
        for node in graph:
            yield node
            yield from (node.domain, node.op_type)
            yield from node.attributes.values()
            yield from node.inputs
            for value in node.outputs:
                yield from _value(value)


def _value(value: ir.Value) -> Iterator[object]:
    yield value
    yield value.dtype
    yield value.const_value
    yield None if value.shape is None else tuple(map(str, value.shape))
