"""Compressed constants in Apple's formats: scales of blocks, lookup tables, and sparse elements
with a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.infer import Array
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.sizes import demand_small
from converter.graph.value import Value
from converter.mapping.context import LiftContext

D = ir.DataType


def later(
    r: LiftContext, make: Callable[[], Array], dtype: np.dtype[Any], shape: Sequence[int]
) -> Value:
    """Return a constant that is computed when it is written."""
    demand_small(*shape)
    return r.b.const(LazyTensor(make, D.from_numpy(dtype), shape))


def spread(array: Array, shape: Sequence[int], but: int = -1) -> Array:
    """Repeat the scales of blocks along each axis but one, so that there is one for each
    element.
    """
    demand_blocks(array, shape)
    for axis, (own, wanted) in enumerate(zip(array.shape, shape, strict=True)):
        if axis != but and own != wanted:
            array = np.repeat(array, wanted // own, axis=axis)
    return array


def demand_blocks(array: Array, shape: Sequence[int]) -> None:
    """Raise MappingError R105 unless each axis is a multiple of its number of blocks."""
    for own, wanted in zip(array.shape, shape, strict=True):
        if own != wanted and (not own or wanted % own):
            raise MappingError(f"{own} blocks do not fit a shape of {wanted} elements", "R105")


def dequantized(
    r: LiftContext, given: Array | LazyTensor, scale: Array, offset: Array | None
) -> Value:
    """Return scale * (data - offset), with a scale for each block of the data, as a
    DequantizeLinear.
    """
    shape = list(given.shape if isinstance(given, np.ndarray) else given.shape.numpy())
    kind = given.dtype.numpy() if isinstance(given, LazyTensor) else given.dtype
    demand_blocks(scale, shape)
    several = [i for i, n in enumerate(scale.shape) if n > 1]
    if not several:
        zero = None if offset is None else offset.reshape(()).astype(kind)
        return r.b.DequantizeLinear(given, scale.reshape(()), zero)
    if len(several) == 1 and scale.shape[several[0]] == shape[several[0]]:
        zeros = None if offset is None else offset.reshape(-1).astype(kind)
        return r.b.DequantizeLinear(given, scale.reshape(-1), zeros, axis=several[0])
    blocks = [n // m for n, m in zip(shape, scale.shape, strict=True)]
    axis = max(range(len(shape)), key=lambda i: blocks[i])
    wide = spread(scale, shape, axis)
    wide_zeros = None if offset is None else spread(offset, shape, axis).astype(kind)
    return r.b.DequantizeLinear(given, wide, wide_zeros, axis=axis, block_size=blocks[axis])


def looked_up(indices: Array, table: Array, axis: int) -> Array:
    """Look up the values in each group's own table; several values of an index are unfolded along
    `axis`.
    """
    places = []
    for i, (n, groups) in enumerate(zip(indices.shape, table.shape[:-2], strict=True)):
        own = np.arange(n) // max(1, n // groups)
        places.append(own.reshape([-1 if j == i else 1 for j in range(indices.ndim)]))
    found = table[(*places, indices.astype(np.int64))]
    if found.shape[-1] == 1:
        return np.asarray(found[..., 0])
    axis %= indices.ndim
    moved: Array = np.moveaxis(found, -1, axis + 1)
    shape = list(indices.shape)
    shape[axis] *= found.shape[-1]
    return moved.reshape(shape)


def demand_as_many(mask: Array, values: Array) -> None:
    """Raise MappingError R103 unless there is a value for each set element of the mask."""
    if int(mask.sum()) != values.size:
        raise MappingError(
            f"{values.size} values are stored for a mask of {int(mask.sum())} elements", "R103"
        )


@dataclass(frozen=True, eq=False)
class Scattered:
    """A mostly zero constant: the positions of the nonzero elements, and their values. Formats with
    sparse constants recognize it as the source of a lazy tensor.
    """

    mask: LazyTensor
    values: Array

    def __call__(self) -> Array:
        return full(self.mask.numpy() != 0, self.values)


def scattered(r: LiftContext, mask: LazyTensor, values: Array) -> Value:
    """Return the constant with these elements where the mask is set."""
    return later(r, Scattered(mask, values), values.dtype, mask.shape.numpy())


def full(mask: Array, values: Array) -> Array:
    """Return the values where the mask is set, zeros elsewhere."""
    demand_as_many(mask, values)
    found = np.zeros(mask.shape, values.dtype)
    found[mask] = values.reshape(-1)
    return found
