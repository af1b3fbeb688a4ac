"""Running aggregates along an axis."""

from __future__ import annotations

import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.extensions import extension
from converter.graph.infer import shape_of
from converter.mapping.node import MappingError


@extension
def CumProd(b: Builder, x: ir.Value, *, axis: int, exclusive: int = 0, reverse: int = 0) -> ir.Value:
    """Products of all elements up to (exclusive: before) each one along `axis`, from the end when `reverse`. Same shape as x."""
    shape = shape_of(x)
    if shape is None:
        raise MappingError("the shape of the data must be static", "X203")
    count = shape[axis]
    order = range(count - 1, -1, -1) if reverse else range(count)
    parts: dict[int, ir.Value] = {}
    product = None
    for i in order:
        one = b.op("Slice", x, [i], [i + 1], [axis])
        before = product
        product = one if product is None else b.op("Mul", product, one)
        parts[i] = product if not exclusive else before if before is not None else b.op("Expand", b.like(one, 1), b.op("Shape", one))
    return b.op("Concat", *[parts[i] for i in range(count)], axis=axis) if count > 1 else parts[0] if count else x
