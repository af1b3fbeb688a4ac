"""Weights in units of a scale for each block, piece by piece in the processor's cache."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from converter.graph.infer import Array
from converter.io.mapped_file import release

_ROUNDS = np.float32(1.5 * 2**23)  # a sum with it has the rounded number in its lowest bits
_PIECE = 1 << 17  # weights that are computed at once, so that they stay in the cache


def nonzero(steps: Array) -> Array:
    """Return scales, 1 for weights that are all zero."""
    return np.where(np.abs(steps) < np.finfo(steps.dtype).tiny, steps.dtype.type(1), steps)


def block_steps(array: Array, axis: int, block: int) -> Array:
    """Return the scale of each block of weights along an axis, with which the largest weight is -8.
    It is negative if that weight is positive; 15 levels, -7 ... 7, lose 1 dB more.

    Source: `signed` scales of NNCF, and Q4_0 of https://github.com/ggml-org/ggml.
    """
    blocks = in_blocks(array, axis, block)
    steps = np.empty((*blocks.shape[: axis + 1], *blocks.shape[axis + 2 :]), array.dtype)
    for tile in _tiles(blocks.shape, axis + 1):
        part = np.asarray(blocks[tile], np.float32)
        most, least = part.max(axis=axis + 1), part.min(axis=axis + 1)
        ends = np.where(most > -least, most, least)
        steps[tile[: axis + 1] + tile[axis + 2 :]] = ends * np.float32(-1 / 8)
    release()
    return steps


def in_blocks(array: Array, axis: int, block: int) -> Array:
    """Split an axis into blocks. The last block is padded with zeros; without padding the result is
    a view.
    """
    if rest := -array.shape[axis] % block:
        array = np.pad(array, [(0, rest if i == axis else 0) for i in range(array.ndim)])
    return array.reshape(*array.shape[:axis], -1, block, *array.shape[axis + 1 :])


def _tiles(shape: tuple[int, ...], whole: int) -> Iterator[tuple[slice, ...]]:
    """Yield pieces of an array that stay in the processor's cache; the axis `whole` is not cut."""
    room, sizes = max(1, _PIECE // max(1, shape[whole])), [*shape]
    for i in reversed(range(len(shape))):
        if i != whole:
            sizes[i] = max(1, min(shape[i], room))
            room = max(1, room // sizes[i])
    ranges = (range(0, d, n or 1) for d, n in zip(shape, sizes, strict=True))
    for starts in itertools.product(*ranges):
        yield tuple(slice(i, i + n) for i, n in zip(starts, sizes, strict=True))


def integers(steps: Array, most: int, array: Array) -> Array:
    """Return integers of up to `most`; scales broadcast."""
    made = np.empty(array.shape, np.uint8)
    factors = np.broadcast_to(1 / steps.astype(np.float32), array.shape)
    for tile in _tiles(array.shape, array.ndim - 1):
        numbers = np.multiply(array[tile], factors[tile], dtype=np.float32)
        np.minimum(numbers, most, out=numbers)
        numbers += _ROUNDS
        made[tile] = numbers.view(np.uint32)
    release()
    return made.view(np.int8)


def packed(steps: Array, axis: int, block: int, array: Array) -> Array:
    """Return the weights of blocks in units of their scales, two in a byte."""
    spread = np.expand_dims(steps, axis + 1)
    codes = integers(spread, 7, in_blocks(array, axis, block))
    codes = codes.reshape(*array.shape[:axis], -1, *array.shape[axis + 1 :])
    return nibbles(codes[(slice(None),) * axis + (slice(array.shape[axis]),)])


def nibbles(codes: Array) -> Array:
    """Return integers of 4 bits, two in a byte."""
    flat = codes.reshape(-1)
    pairs = np.pad(flat, (0, flat.size % 2)).view(np.uint16) if flat.size % 2 else flat.view("<u2")
    made = np.empty(pairs.shape, np.uint8)
    for i in range(0, pairs.size, _PIECE):
        part = pairs[i : i + _PIECE]
        made[i : i + _PIECE] = part & 15 | part >> 4 & 240
    return made
