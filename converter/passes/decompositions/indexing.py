"""Lookups by several coordinates as one Gather from the flattened tensor, if the shapes are known.

before:  GatherND(x[2,3,4], index[5,2])
after:   Gather(Reshape(x, [6,4]), index[:,0] * 3 + index[:,1])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attributes
from converter.graph.infer import Array, known, shape_of
from converter.graph.sizes import arange
from converter.graph.value import INT64, with_operators
from converter.passes.decompositions.activations import x_of
from converter.passes.decompositions.table import Table


def _counted(index: ir.Value, extents: list[int], b: Builder) -> Value:
    """Make negative indices, which count from the end of their axis, non-negative; `extents`
    broadcasts along the last axis of `index`.
    """
    values = known(index)
    if values is not None:
        return b.const(np.where(values < 0, values + np.array(extents), values).astype(np.int64))
    position = with_operators(index)
    if position.dtype != INT64:
        position = b.Cast(position, to=INT64)
    return b.Where(position < 0, position + np.array(extents), position)


def strides_of(extents: Sequence[int]) -> list[int]:
    """Return the row-major strides in elements."""
    return [math.prod(extents[i + 1 :]) for i in range(len(extents))]


def own_indices(positions: Sequence[int], strides: Sequence[int], axis: int) -> Array:
    """Return the flat index of each element computed from its own coordinates except the one along
    `axis`.

    `axis` has length 1 in the result.
    """
    own = [
        arange(n if i != axis else 1).reshape([-1 if i == j else 1 for j in range(len(positions))])
        * strides[i]
        for i, n in enumerate(positions)
    ]
    return sum(own[1:], own[0])


def gather_nd(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite GatherND of a static shape as a Gather of rows by flat indices."""
    shape, index, out = shape_of(x_of(node)), node.inputs[1], shape_of(node.outputs[0])
    positions = shape_of(index)
    if shape is None or index is None or out is None or not positions:
        return None
    batch, depth = attributes(node)["batch_dims"], positions[-1]
    looked_up, row = shape[: batch + depth], math.prod(shape[batch + depth :])
    if not depth or not row or not all(looked_up):
        return None
    flat = _counted(index, list(looked_up[batch:]), b)
    steps = zip(
        b.Split(flat, outputs=depth, axis=-1, num_outputs=depth),
        strides_of(looked_up)[batch:],
        strict=True,
    )
    flat = reduce(
        b.Add,
        [b.Squeeze(one * np.array(step) if step > 1 else one, [-1]) for one, step in steps],
    )
    if batch:
        first = arange(math.prod(looked_up[:batch])).reshape(
            *looked_up[:batch], *[1] * (len(positions) - 1 - batch)
        )
        flat = flat + first * math.prod(looked_up[batch:])
    rows = b.Reshape(x_of(node), [math.prod(looked_up), row])
    return b.Reshape(b.Gather(rows, b.Reshape(flat, [-1])), list(out))


def reverse_sequence(node: ir.Node, b: Builder) -> Value | None:
    """Reorder rows of (time, batch): before the end of its sequence, each time step takes the one
    at the same distance from the end.
    """
    shape, lengths, a = shape_of(x_of(node)), node.inputs[1], attributes(node)
    if shape is None or lengths is None or lengths.dtype is None or 0 in shape:
        return None
    batch_first = a["batch_axis"] == 0
    times, count = (shape[1], shape[0]) if batch_first else shape[:2]
    dtype = lengths.dtype.numpy()
    time, batch = (
        arange(n).astype(dtype).reshape(s) for n, s in ((times, (1, -1)), (count, (-1, 1)))
    )
    if not batch_first:
        time, batch = time.T, batch.T
    end = b.Reshape(lengths, list(batch.shape))
    mirrored = end - np.ones(1, dtype) - time
    source = b.Where(end > time, mirrored, time)
    flat = source + batch * times if batch_first else source * np.array(count, dtype) + batch
    rows = b.Gather(
        b.Reshape(x_of(node), [times * count, math.prod(shape[2:])]), b.Reshape(flat, [-1])
    )
    return b.Reshape(rows, list(shape))


def gather_elements(node: ir.Node, b: Builder) -> Value | None:
    """Compute the flat index of each element: its own coordinates, with the given index along the
    axis.
    """
    shape, index, out = shape_of(x_of(node)), node.inputs[1], shape_of(node.outputs[0])
    if not shape or index is None or out is None or not all(shape):
        return None
    axis = attributes(node)["axis"] % len(shape)
    strides = strides_of(shape)
    flat = _counted(index, [shape[axis]], b)
    flat = flat if strides[axis] == 1 else flat * np.array(strides[axis])
    own = own_indices(out, strides, axis)
    flat = flat + own if np.any(own) else flat
    return b.Reshape(b.Gather(b.Reshape(x_of(node), [-1]), b.Reshape(flat, [-1])), list(out))


TABLE: Table = {
    ("", "GatherND"): gather_nd,
    ("", "ReverseSequence"): reverse_sequence,
    ("", "GatherElements"): gather_elements,
}
