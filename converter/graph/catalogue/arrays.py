"""Extension operators on plain arrays: linear algebra, beams."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.extensions import extension
from converter.graph.infer import shape_of
from converter.graph.sizes import arange
from converter.mapping.node import MappingError

LARGEST = 32


@extension
def MatrixInverse(b: Builder, x: ir.Value, *, adjoint: int = 0) -> ir.Value:
    """The inverse of each n x n matrix of x [..., n, n] by Gauss-Jordan elimination with row pivoting; `adjoint`: transposed."""
    shape = shape_of(x)
    if shape is None or len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] > LARGEST:
        raise MappingError(f"the inverse needs static square matrices of at most {LARGEST} rows", "X203")
    n = shape[-1]
    work = b.op("Reshape", x, [-1, n, n])
    count = int(np.prod(shape[:-2]))
    eye = b.op("Expand", b.const(np.eye(n, dtype=(x.dtype or ir.DataType.FLOAT).numpy())[None]), [count, n, n])
    joined = b.op("Concat", work, eye, axis=2)
    rows = b.const(arange(n)[None, :, None])
    for k in range(n):
        column = b.op("Slice", joined, [k, k], [n, k + 1], [1, 2])
        pivot = b.op("Add", b.op("ArgMax", b.op("Abs", column), axis=1, keepdims=1), [k])  # [count, 1, 1]
        here, there = b.op("Equal", rows, b.const(np.int64(k))), b.op("Equal", rows, pivot)
        at = b.op("Expand", pivot, [count, 1, 2 * n])
        found = b.op("GatherElements", joined, at, axis=1)
        own = b.op("Slice", joined, [k], [k + 1], [1])
        joined = b.op("Where", here, found, b.op("Where", there, own, joined))
        head = b.op("Slice", found, [k], [k + 1], [2])
        scaled = b.op("Div", found, head)
        factors = b.op("Slice", joined, [k], [k + 1], [2])
        joined = b.op("Where", here, scaled, b.op("Sub", joined, b.op("Mul", factors, scaled)))
    inverse = b.op("Slice", joined, [n], [2 * n], [2])
    if adjoint:
        inverse = b.op("Transpose", inverse, perm=[0, 2, 1])
    return b.op("Reshape", inverse, list(shape))


@extension
def GatherTree(b: Builder, step_ids: ir.Value, parents: ir.Value, lengths: ir.Value, end: ir.Value) -> ir.Value:
    """Beams followed back from their last step: ids and parents [T, B, W], lengths [B], end one token. Result [T, B, W].

    Steps behind a beam's length, and behind its first end token, hold the end token.
    """
    shape = shape_of(step_ids)
    if shape is None:
        raise MappingError("the steps, batch and beams must be static", "X203")
    steps, batch, width = shape
    dtype = step_ids.dtype or ir.DataType.FLOAT
    index = b.op("Cast", parents, to=int(ir.DataType.INT64))
    last = b.op("Min", b.op("Cast", lengths, to=int(ir.DataType.INT64)), [steps])
    last = b.op("Sub", b.op("Reshape", last, [batch, 1]), [1])
    beam = b.op("Expand", b.const(arange(width)[None, :]), [batch, width])
    stop = b.op("Reshape", end, [1])
    found: list[ir.Value] = []
    for t in reversed(range(steps)):
        ids = b.op("Reshape", b.op("Slice", step_ids, [t], [t + 1], [0]), [batch, width])
        origin = b.op("Reshape", b.op("Slice", index, [t], [t + 1], [0]), [batch, width])
        alive = b.op("LessOrEqual", b.const(np.int64(t)), last)
        found.append(b.op("Where", alive, b.op("GatherElements", ids, beam, axis=1), stop))
        beam = b.op("Where", alive, b.op("GatherElements", origin, beam, axis=1), beam)
    rows: list[ir.Value] = []
    ended: ir.Value | None = None
    for ids in reversed(found):
        rows.append(b.op("Unsqueeze", ids if ended is None else b.op("Where", ended, stop, ids), [0]))
        here = b.op("Equal", ids, stop)
        ended = here if ended is None else b.op("Or", ended, here)
    return b.op("Cast", b.op("Concat", *rows, axis=0), to=int(dtype))


@extension
def IntegerMean(b: Builder, x: ir.Value, *, axes: list[int], keepdims: int = 0) -> ir.Value:
    """The mean of integers over `axes`, rounded towards zero."""
    total = b.op("ReduceSum", b.op("Cast", x, to=int(ir.DataType.INT64)), axes, keepdims=keepdims)
    count = b.op("ReduceProd", b.op("Gather", b.op("Shape", x), list(axes), axis=0), [0], keepdims=0)
    return b.op("Cast", b.op("Div", total, count), to=int(x.dtype or ir.DataType.INT64))


@extension
def FloorDiv(b: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """The quotient of whole numbers, rounded towards minus infinity; the operands broadcast."""
    quotient, zero = b.op("Div", x, y), b.like(x, 0)
    inexact = b.op("Not", b.op("Equal", b.op("Mul", quotient, y), x))
    negative = b.op("Xor", b.op("Less", x, zero), b.op("Less", y, zero))
    return b.op("Sub", quotient, b.op("Cast", b.op("And", inexact, negative), to=int(x.dtype or ir.DataType.INT32)))
