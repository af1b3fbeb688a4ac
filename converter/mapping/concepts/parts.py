"""Sizes of the parts of a Split."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.infer import known


def complete_sizes(r: Any, x: ir.Value, sizes: ir.Value, axis: int) -> ir.Value:
    """Return the sizes of parts, INT64, of which one may be -1, the rest of the axis."""
    given, b = known(sizes), r.b
    if given is not None and not np.any(given == -1):
        return sizes
    stated, size = b.Max(sizes, [0]), b.Shape(x, start=axis, end=axis + 1)
    rest = size - b.ReduceSum(stated, [0], keepdims=1)
    found: ir.Value = b.Where(b.Less(sizes, [0]), rest, sizes)
    return found
