"""Merge equal weights.

before:  y = MatMul(MatMul(x, v), w), v and w with the same numbers
after:   y = MatMul(MatMul(x, v), v)
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import onnx_ir as ir

from converter.graph.equal_weights import EqualWeights
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.walk import all_graphs

LEAST = 1 << 12  # bytes: smaller ones keep their names


def share_weights(model: ir.Model) -> None:
    """Merge, in place, initializers of the same type, shape and bytes, separately in each graph."""
    for graph in all_graphs(model.graph):
        shared: dict[Any, EqualWeights[ir.Value]] = defaultdict(EqualWeights)
        for value in list(graph.initializers.values()):
            tensor = value.const_value
            if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.nbytes < LEAST:
                continue
            weight = LazyTensor.of(tensor)
            first = _first(shared[tensor.dtype, tuple(tensor.shape.numpy())], weight, value)
            if first is not value and not value.is_graph_output():
                value.replace_all_uses_with(first)
                del graph.initializers[str(value.name)]


def _first(shared: EqualWeights[ir.Value], weight: LazyTensor, value: ir.Value) -> ir.Value:
    return shared.once(weight, lambda: value)
