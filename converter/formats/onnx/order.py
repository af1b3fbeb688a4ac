"""Nodes in an order in which every name is written before it is read, and sparse tensors made
dense.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from converter.errors import ConverterError, Where, unreadable
from converter.formats.onnx.codec import Weights
from converter.graph.lazy_tensor import LazyTensor

DENSE_LIMIT = 1 << 28  # elements of a sparse tensor written out


def sorted_nodes(
    graph: Any, known: Mapping[str, Any], refusal: Callable[[str, int], ConverterError]
) -> Iterator[tuple[int, onnx.NodeProto]]:
    """(index, node) in the file's order where that is valid, else in a stable topological order;
    refuses cycles and gaps.
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
    readers: dict[int, list[int]] = defaultdict(list)
    waiting = []
    for i, names in enumerate(needs):
        missing = {n for n in names if n not in known}
        unknown = missing - writer.keys()
        if unknown:
            raise refusal(f"the name {min(unknown, key=str)!r} is read but never written", i)
        waiting.append(len({writer[n] for n in missing}))
        for w in {writer[n] for n in missing}:
            readers[w].append(i)
    ready, result = deque(i for i, count in enumerate(waiting) if count == 0), []
    while ready:
        i = ready.popleft()
        result.append((i, graph.node[i]))
        for r in readers[i]:
            waiting[r] -= 1
            if waiting[r] == 0:
                ready.append(r)
    if len(result) != len(graph.node):
        stuck = next(i for i, count in enumerate(waiting) if count)
        raise refusal(
            f"the graph is cyclic: {graph.node[stuck].op_type} reads what follows from its "
            "own output",
            stuck,
        )
    return result


def _needs(node: onnx.NodeProto) -> set[str]:
    """Every name that a node reads, those that its bodies capture included."""
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


def dense(weights: Weights, sparse: onnx.SparseTensorProto, path: str) -> ir.TensorProtocol:
    """A sparse tensor written out: indices are linear (rank 1) or coordinates (rank 2)."""
    where = Where(str(weights.model), path=f"{path} sparse tensor {sparse.values.name}")
    shape = tuple(int(d) for d in sparse.dims)
    size = 1
    for d in shape:
        size *= d
    values, indices = weights.tensor(sparse.values).numpy(), weights.tensor(sparse.indices).numpy()
    if min(shape, default=0) < 0 or size > DENSE_LIMIT:
        raise unreadable("R103", f"a sparse tensor of shape {list(shape)}", where)
    if (
        indices.dtype != np.int64
        or values.ndim != 1
        or indices.shape[:1] != values.shape
        or (indices.ndim == 2 and indices.shape[1] != len(shape))
    ):
        raise unreadable(
            "R103", "the indices and values of the sparse tensor do not fit each other", where
        )
    limits = np.array(shape) if indices.ndim == 2 else size
    if indices.ndim > 2 or np.any(indices < 0) or np.any(indices >= limits):
        raise unreadable("R103", "an index of the sparse tensor is outside its shape", where)
    result = np.zeros(shape, values.dtype)
    if indices.ndim == 1:
        result.reshape(-1)[indices] = values
    else:
        result[tuple(indices.T)] = values
    return LazyTensor(result, name=sparse.values.name)
