"""Nodes in an order in which every name is written before it is read, and sparse tensors made
dense.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from converter.errors import ConverterError, Where, unreadable
from converter.formats.onnx.codec import TensorFiles
from converter.graph.lazy_tensor import LazyTensor

DENSE_LIMIT = 1 << 28  # elements of a sparse tensor written out


def sorted_nodes(
    graph: Any, known: Mapping[str, Any], refusal: Callable[[str, int], ConverterError]
) -> Iterator[tuple[int, onnx.NodeProto]]:
    """Return (index, node) in the file's order if it is valid, else in a stable topological order;
    refuse cycles and missing producers.
    """
    needs = [_needs(n) for n in graph.node]
    seen = set(known)
    for node, names in zip(graph.node, needs, strict=True):
        if not names <= seen:
            return iter(_sorted(graph, known, needs, refusal))
        seen.update(node.output)
    return iter(enumerate(graph.node))


def _sorted(
    graph: Any,
    known: Mapping[str, Any],
    needs: list[set[str]],
    refusal: Callable[[str, int], ConverterError],
) -> list[tuple[int, onnx.NodeProto]]:
    writer = {o: i for i, n in enumerate(graph.node) for o in n.output if o}
    order = TopologicalSorter[int]({i: () for i in range(len(needs))})
    for i, names in enumerate(needs):
        missing = names - known.keys()
        if unknown := missing - writer.keys():
            raise refusal(f"name {min(unknown, key=str)!r} is read but never written", i)
        order.add(i, *(writer[n] for n in missing))
    try:
        return [(i, graph.node[i]) for i in order.static_order()]
    except CycleError as e:
        stuck = min(e.args[1])
        own = f"{graph.node[stuck].op_type} depends on its own output"
        raise refusal(f"the graph is cyclic: {own}", stuck) from None


def _needs(node: onnx.NodeProto) -> set[str]:
    """Return every name that a node reads, those that its bodies capture included."""
    names = {i for i in node.input if i}
    for a in node.attribute:
        if a.HasField("g"):
            names |= _captured(a.g)
    return names


def _captured(graph: onnx.GraphProto) -> set[str]:
    own = (
        {v.name for v in graph.input}
        | {t.name for t in graph.initializer}
        | {s.values.name for s in graph.sparse_initializer}
    )
    own.update(o for n in graph.node for o in n.output)
    names = {o.name for o in graph.output}
    for node in graph.node:
        names |= _needs(node)
    return names - own


def dense(weights: TensorFiles, sparse: onnx.SparseTensorProto, path: str) -> ir.TensorProtocol:
    """Return a sparse tensor written out: indices are linear (rank 1) or coordinates (rank 2)."""
    where = Where(str(weights.model), path=f"{path} sparse tensor {sparse.values.name}")
    shape = tuple(int(d) for d in sparse.dims)
    size = math.prod(shape)
    values, indices = weights.tensor(sparse.values).numpy(), weights.tensor(sparse.indices).numpy()
    if min(shape, default=0) < 0 or size > DENSE_LIMIT:
        raise unreadable("R103", f"a sparse tensor has the invalid shape {list(shape)}", where)
    if (
        indices.dtype != np.int64
        or values.ndim != 1
        or indices.shape[:1] != values.shape
        or (indices.ndim == 2 and indices.shape[1] != len(shape))
    ):
        raise unreadable(
            "R103", "the indices and values of a sparse tensor have different lengths", where
        )
    limits = np.array(shape) if indices.ndim == 2 else size
    if indices.ndim > 2 or np.any(indices < 0) or np.any(indices >= limits):
        raise unreadable("R103", "an index of a sparse tensor is outside its shape", where)
    result = np.zeros(shape, values.dtype)
    if indices.ndim == 1:
        result.reshape(-1)[indices] = values
    else:
        result[tuple(indices.T)] = values
    return LazyTensor(result, name=sparse.values.name)
