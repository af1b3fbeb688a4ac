"""Extension operators on plain arrays: linear algebra, one-hot encoding, beam search."""

from __future__ import annotations

import numpy as np

from converter.errors import MappingError
from converter.graph.build import Builder, Value
from converter.graph.extensions import extension
from converter.graph.infer import shape_of
from converter.graph.sizes import arange, static
from converter.graph.value import FLOAT, INT32, INT64, array_type

LARGEST = 32


@extension
def MatrixInverse(b: Builder, x: Value, *, adjoint: int = 0) -> Value:
    """Invert each n x n matrix of x [..., n, n] by Gauss-Jordan elimination with row pivoting;
    `adjoint`: return the transposed inverse.

    x: floats, static, n at most 32. Result: the shape and type of x. Without an inverse the result
    is infinite or NaN. Source: OpenVINO, Inverse-14.
    """
    shape = shape_of(x)
    if shape is None or len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] > LARGEST:
        raise MappingError(
            f"the inverse needs static square matrices of at most {LARGEST} rows", "X203"
        )
    n = shape[-1]
    work = b.Reshape(x, [-1, n, n])
    count = int(np.prod(shape[:-2]))
    eye = b.Expand(np.eye(n, dtype=array_type(x))[None], [count, n, n])
    joined = b.Concat(work, eye, axis=2)
    rows = b.const(arange(n)[None, :, None])
    for k in range(n):
        column = joined[:, k:n, k : k + 1]
        pivot = b.ArgMax(b.Abs(column), axis=1) + k  # [count, 1, 1]
        here, there = b.Equal(rows, k), b.Equal(rows, pivot)
        at = b.Expand(pivot, [count, 1, 2 * n])
        found = b.GatherElements(joined, at, axis=1)
        own = joined[:, k : k + 1]
        joined = b.Where(here, found, b.Where(there, own, joined))
        head = found[:, :, k : k + 1]
        scaled = found / head
        factors = joined[:, :, k : k + 1]
        joined = b.Where(here, scaled, joined - factors * scaled)
    inverse = joined[:, :, n : 2 * n]
    if adjoint:
        inverse = b.Transpose(inverse, perm=[0, 2, 1])
    return b.Reshape(inverse, list(shape))


@extension
def OneHotFromFront(
    b: Builder, indices: Value, depth: Value, values: Value, *, axis: int = -1
) -> Value:
    """ONNX's OneHot without negative indices: like an index beyond the depth, a negative one
    selects nothing.

    Inputs and result are those of ONNX's OneHot. Source: TensorFlow, one_hot, to which OpenVINO's
    legacy layer refers.
    """
    size = b.Reshape(b.Cast(depth, to=int(indices.dtype or INT64)), [])
    return b.OneHot(b.Where(indices < 0, size, indices), depth, values, axis=axis)


@extension(step_ids=3, parents=3)
def GatherTree(b: Builder, step_ids: Value, parents: Value, lengths: Value, end: Value) -> Value:
    """Trace beams back from their last step: ids and parents [T, B, W], lengths [B], one end token.
    Result [T, B, W].

    Steps after a beam's length, and after its first end token, contain the end token. Source:
    OpenVINO, GatherTree-1.
    """
    steps, batch, width = static(step_ids, "the steps")
    dtype = step_ids.dtype or FLOAT
    index = b.Cast(parents, to=INT64)
    last = b.Min(b.Cast(lengths, to=INT64), [steps])
    last = b.Reshape(last, [batch, 1]) - 1
    beam = b.Expand(arange(width)[None, :], [batch, width])
    stop = b.Reshape(end, [1])
    found: list[Value] = []
    for t in reversed(range(steps)):
        ids = b.Reshape(step_ids[t : t + 1], [batch, width])
        origin = b.Reshape(index[t : t + 1], [batch, width])
        alive = b.LessOrEqual(t, last)
        found.append(b.Where(alive, b.GatherElements(ids, beam, axis=1), stop))
        beam = b.Where(alive, b.GatherElements(origin, beam, axis=1), beam)
    rows: list[Value] = []
    ended: Value | None = None
    for ids in reversed(found):
        rows.append((ids if ended is None else b.Where(ended, stop, ids))[None])
        here = b.Equal(ids, stop)
        ended = here if ended is None else ended | here
    return b.Cast(b.Concat(*rows, axis=0), to=dtype)


@extension
def IntegerMean(b: Builder, x: Value, *, axes: list[int], keepdims: int = 0) -> Value:
    """Return the mean of integers over `axes`, rounded towards zero.

    x: integers of any shape; keepdims 1 keeps the axes with size 1. Result: the type of x.
    """
    total = b.ReduceSum(b.Cast(x, to=INT64), axes, keepdims=keepdims)
    count = b.ReduceProd(b.Gather(b.Shape(x), list(axes), axis=0), [0], keepdims=0)
    return b.Cast(total / count, to=x.dtype or INT64)


@extension
def FloorDiv(b: Builder, x: Value, y: Value) -> Value:
    """Integer division, rounded towards minus infinity; the operands broadcast.

    x and y: integers of one type, which is also that of the result.
    """
    quotient, zero = x / y, b.like(x, 0)
    inexact = ~b.Equal(quotient * y, x)
    negative = (x < zero) ^ (y < zero)
    return quotient - b.Cast(inexact & negative, to=x.dtype or INT32)
