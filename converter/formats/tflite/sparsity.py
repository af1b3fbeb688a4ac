"""Constants that are stored without their zeros.

A tensor of n axes with k blocked ones is walked along n + k axes in `order`; those from n on are
within blocks of the axes `blocks`. Each is dense or compressed (compressed sparse rows: the indices
of entry p of the axis before are `indices[segments[p]:segments[p + 1]]`). Source: schema.fbs,
SparsityParameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from converter.errors import MappingError
from converter.graph.infer import Array
from converter.graph.sizes import demand_small


@dataclass
class Dimension:
    """One of the traversed axes: `size` elements, or those of `indices`."""

    size: int
    segments: Array | None = None
    indices: Array | None = None


@dataclass
class Sparsity:
    """The storage of a sparse tensor."""

    order: list[int]
    blocks: list[int]
    dimensions: list[Dimension]


def dense(stored: Array, shape: Sequence[int], sparsity: Sparsity) -> Array:
    """Return all elements of a tensor from its `stored` ones."""
    n = len(shape)
    walked, blocks = n + len(sparsity.blocks), sparsity.blocks
    fits = sorted(sparsity.order) == list(range(walked)) and len(sparsity.dimensions) == walked
    if not fits or not n or any(not 0 <= b < n for b in blocks):
        raise MappingError("the sparsity of the tensor contradicts its shape", "R103")
    demand_small(*shape)
    positions = _stored_indices(sparsity, [_size(shape, sparsity, i) for i in sparsity.order])
    if len(positions) != stored.size:
        message = f"{stored.size} elements are stored, but the sparsity declares {len(positions)}"
        raise MappingError(message, "R103")
    along = np.zeros((walked, len(positions)), np.int64)
    along[sparsity.order] = positions.T
    for i, axis in enumerate(blocks):
        along[axis] = along[axis] * _size(shape, sparsity, n + i) + along[n + i]
    if any((along[i] >= shape[i]).any() for i in range(n)):
        raise MappingError("the sparsity of the tensor points outside its shape", "R103")
    full = np.zeros(tuple(shape), stored.dtype)
    full[tuple(along[:n])] = stored.reshape(-1)
    return full


def _size(shape: Sequence[int], sparsity: Sparsity, axis: int) -> int:
    """Return the size of a traversed axis; for a blocked one, the number of blocks."""
    n = len(shape)
    own = sparsity.dimensions[sparsity.order.index(axis)].size
    if axis >= n:
        return own
    inner = [n + i for i, b in enumerate(sparsity.blocks) if b == axis]
    return shape[axis] // max(1, math.prod(_size(shape, sparsity, i) for i in inner))


def _stored_indices(sparsity: Sparsity, sizes: Sequence[int]) -> Array:
    """Return the indices of the stored elements, one row each, in traversal order."""
    positions = np.zeros((1, 0), np.int64)
    for dimension, size in zip(sparsity.dimensions, sizes, strict=True):
        if dimension.segments is None or dimension.indices is None:
            demand_small(size, len(positions), positions.shape[1] + 1)
            parents = np.repeat(np.arange(len(positions)), size)
            own = np.tile(np.arange(size), len(positions))
        else:
            segments, indices = dimension.segments, dimension.indices
            counts = np.diff(segments)
            rising = len(segments) == len(positions) + 1 and not segments[:1].any()
            if not rising or (counts < 0).any() or segments[-1] != len(indices):
                raise MappingError(
                    "the segments of the sparse tensor contradict its indices", "R103"
                )
            parents, own = np.repeat(np.arange(len(positions)), counts), indices
        demand_small(len(own), positions.shape[1] + 1)
        positions = np.concatenate([positions[parents], own[:, None]], axis=1)
    return positions
