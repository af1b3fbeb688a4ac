"""Floats of 4 bits, which onnxruntime does not load, as indices of 4 bits into their table.

before:  y = DequantizeLinear(w, scale, axis, block_size)   with w of 8 bits, each a number of E2M1
after:   y = Reshape(Gather(table, Cast(codes)) * scale)    with blocks as an axis of their own
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir

from converter.graph.build import attributes, builder_before
from converter.graph.demands import axis_of
from converter.graph.extensions import replace
from converter.graph.infer import Array, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.names import Names
from converter.graph.value import array_type, operand, optional
from converter.graph.walk import operators

D = ir.DataType
TABLE = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
_LEAST = 64  # weights for which the table does not take more than it saves
_BYTES = TABLE.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)  # the table in the type of weights


def store_four_bits(model: ir.Model) -> None:
    """Rewrite weights in blocks, in place."""
    names = Names(model)
    for node in operators(model.graph, "DequantizeLinear"):
        _rewrite(node, names)


def _rewrite(node: ir.Node, names: Names) -> None:
    weights, scale, attrs = operand(node), operand(node, 1), attributes(node)
    tensor, shape, block = weights.const_value, shape_of(weights), attrs.get("block_size", 0)
    if tensor is None or shape is None or weights.dtype != D.FLOAT8E4M3FN or tensor.size < _LEAST:
        return
    axis = axis_of(attrs["axis"], len(shape))
    if optional(node, 2) is not None or not block or shape[axis] % block:
        return
    whole = LazyTensor.of(tensor)
    if not np.isin(np.unique(whole.numpy().view(np.uint8)), _BYTES).all():
        return
    b, before, after = builder_before(node, names), shape[:axis], shape[axis + 1 :]
    codes = b.const(whole.derived(_codes, D.UINT4), str(weights.name))
    numbers = b.Gather(b.const(TABLE.astype(array_type(scale))), b.Cast(codes, to=D.INT32), axis=0)
    parts = b.Reshape(numbers, [*before, shape[axis] // block, block, *after])
    made = b.Mul(parts, b.Unsqueeze(scale, [axis + 1]))
    replace(node, [b.Reshape(made, shape)], b)


def _codes(array: Array) -> Array:
    codes = np.zeros(256, np.uint8)
    codes[_BYTES] = np.arange(16)
    return codes[array.view(np.uint8)].astype(D.UINT4.numpy())
