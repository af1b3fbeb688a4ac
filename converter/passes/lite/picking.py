"""Selection of elements, and movement of booleans, by the kernels that TensorFlow Lite and NNAPI
share.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attributes, same_attrs
from converter.graph.infer import Array, known, rank_of
from converter.graph.value import Value, operand
from converter.passes.indices import from_start, never_negative


def gather(node: ir.Node, b: Builder) -> Value | Sequence[ir.Value] | None:
    """Convert indices to count from the front, as GATHER requires."""
    x, axis = operand(node), attributes(node)["axis"]
    index, rank = operand(node, 1), rank_of(x)
    if rank is None:
        return booleans_as_floats(node, b)
    size = list(x.shape or ())[axis]
    numbers = None if isinstance(size, int) else known(index)
    counted_back = numbers is not None and bool((numbers < 0).any())
    if has_nonnegative_indices(node) and not counted_back:
        return booleans_as_floats(node, b)
    if not isinstance(size, int):
        positions = rank_of(index)
        if positions is None:
            return None
        # of a scalar, to which [1] would add an axis, the size is a scalar
        size = (
            b.Shape(x, start=axis % rank, end=axis % rank + 1)
            if positions
            else b.Gather(b.Shape(x), np.array(axis % rank))
        )
        if numbers is not None:
            return b.Gather(x, _counted_from_start(b, numbers, size), axis=axis)
    return b.Gather(x, from_start(b, index, size), axis=axis)


def _counted_from_start(b: Builder, numbers: Array, size: Value) -> Value:
    """Return constant indices, of which some count from the end of a dynamic axis."""
    extent = b.Cast(size, to=ir.DataType.INT32)
    added = extent if (numbers < 0).all() else extent * b.const((numbers < 0).astype(np.int32))
    # indices before the start are not valid; this says that there are none
    return b.Max(added + b.const(numbers.astype(np.int32)), b.const(np.int32(0)))


UNSIGNED = (ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64)


def top_k(node: ir.Node, b: Builder) -> Sequence[ir.Value] | None:
    """Select the largest along the last axis, as TOPK_V2 does: another axis is moved there, and the
    smallest are the largest of the negated data.
    """
    x, a = operand(node), attributes(node)
    rank, least = rank_of(x), not a["largest"]
    if rank is None:
        return None
    axis, last = a["axis"] % rank, rank - 1
    if axis != last:
        perm = [*(i for i in range(rank) if i != axis), axis]
        back = [perm.index(i) for i in range(rank)]
        transposed = b.Transpose(x, perm=perm)
        found = b.TopK(transposed, node.inputs[1], outputs=2, largest=int(not least))
        return [b.Transpose(y, perm=back) for y in found]
    if not least:
        return None
    signed = b.Cast(x, to=ir.DataType.INT64) if x.dtype in UNSIGNED else x
    values, positions = b.TopK(signed * -1, node.inputs[1], outputs=2)
    return (values * -1 if signed is x else b.Cast(values * -1, to=x.dtype)), positions


def booleans_as_floats(node: ir.Node, b: Builder) -> Sequence[ir.Value] | None:
    """Move booleans as 0.0 and 1.0; there is no common decomposition for this."""
    if node.outputs[0].dtype != ir.DataType.BOOL:
        return None
    inputs, first = list(node.inputs), 1 if node.op_type == "Where" else 0
    for i, v in enumerate(inputs):
        if i >= first and v is not None and v.dtype == ir.DataType.BOOL:
            inputs[i] = b.Cast(v, to=ir.DataType.FLOAT)
    made = b.ops(node.op_type, *inputs, outputs=len(node.outputs), **same_attrs(node))
    return [b.Cast(y, to=ir.DataType.BOOL) for y in made]


def has_nonnegative_indices(node: ir.Node) -> bool:
    """Return whether the indices of a Gather are known to be non-negative.

    They are constants, or proven to be, or come from NNAPI, which has no negative indices.
    """
    return (
        known(node.inputs[1]) is not None
        or node.metadata_props.get("netconv.format") == "nnapi"
        or never_negative(node.inputs[1])
    )
