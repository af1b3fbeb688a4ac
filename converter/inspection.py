"""What is in a model, as plain data."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from converter.graph.walk import all_graphs, all_nodes

if TYPE_CHECKING:
    from converter.model import Model, TensorInfo


def summary(model: Model) -> dict[str, Any]:
    """Format, inputs and outputs, operators with counts, weights in elements and bytes, warnings of reading."""
    tensors = [v.const_value for g in all_graphs(model.ir.graph) for v in g.initializers.values() if v.const_value is not None]
    operators = Counter(f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in all_nodes(model.ir.graph))
    return {
        "format": model.format,
        "inputs": [_tensor(i) for i in model.inputs],
        "outputs": [_tensor(o) for o in model.outputs],
        "nodes": sum(operators.values()),
        "operators": dict(sorted(operators.items())),
        "weights": {"tensors": len(tensors), "elements": int(sum(t.size for t in tensors)), "bytes": int(sum(t.nbytes for t in tensors))},
        "notes": [d.as_json() for d in model.notes],
    }


def _tensor(info: TensorInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "type": "string" if info.dtype == np.dtype(object) else str(info.dtype),
        "shape": None if info.shape is None else list(info.shape),
    }
