"""Reductions, normalisations, softmax, matrix products, selections."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.formats.nnapi.ops.args import Args, lifts
from converter.formats.nnapi.ops.shapes import axis, rank
from converter.mapping.node import MappingError

REDUCE = {"MEAN": "ReduceMean", "REDUCE_MAX": "ReduceMax", "REDUCE_MIN": "ReduceMin", "REDUCE_PROD": "ReduceProd", "REDUCE_SUM": "ReduceSum"}


@lifts(*REDUCE)
def reduce(a: Args) -> ir.Value:
    axes = sorted({i % rank(a) for i in a.ints("axes")})
    return a.b.op(REDUCE[a.name], a.real("input"), axes, keepdims=int(a.flag("keep_dims")), noop_with_empty_axes=1)


@lifts("REDUCE_ALL", "REDUCE_ANY")
def reduce_logical(a: Args) -> ir.Value:
    """all and any as minimum and maximum of 0 and 1."""
    axes = sorted({i % rank(a) for i in a.ints("axes")})
    number = a.b.op("Cast", a.stored("input"), to=int(ir.DataType.INT32))
    kind = "ReduceMin" if a.name == "REDUCE_ALL" else "ReduceMax"
    return a.b.op("Cast", a.b.op(kind, number, axes, keepdims=int(a.flag("keep_dims"))), to=int(ir.DataType.BOOL))


@lifts("ARGMAX", "ARGMIN")
def arg(a: Args) -> ir.Value:
    return a.b.op("Cast", a.b.op("ArgMax" if a.name == "ARGMAX" else "ArgMin", a.real("input"), axis=axis(a), keepdims=0), to=int(ir.DataType.INT32))


@lifts("TOPK_V2")
def top_k(a: Args) -> tuple[ir.Value, ir.Value]:
    values, indices = a.b.ops("TopK", a.real("input"), [a.integer("k")], axis=-1, outputs=2)
    return values, a.b.op("Cast", indices, to=int(ir.DataType.INT32))


@lifts("SOFTMAX", "LOG_SOFTMAX")
def softmax(a: Args) -> ir.Value:
    x, beta = a.real("input"), a.number("beta", 1.0)
    scaled = x if beta == 1.0 else a.b.op("Mul", x, a.b.like(x, beta))
    return a.b.op("Softmax" if a.name == "SOFTMAX" else "LogSoftmax", scaled, axis=axis(a))


def on_channels(a: Args, x: ir.Value, i: int) -> tuple[ir.Value, list[int] | None]:
    """`x` as rank 4 with axis `i` in second place, and the permutation that leads back (None: it was there)."""
    if len(x.shape or ()) != 4:
        raise MappingError("only rank 4 is supported")
    if i == 1:
        return x, None
    order = [0, i, *(k for k in range(1, 4) if k != i)] if i else [1, 0, 2, 3]
    return a.b.op("Transpose", x, perm=order), [order.index(k) for k in range(4)]


@lifts("LOCAL_RESPONSE_NORMALIZATION")
def lrn(a: Args) -> ir.Value:
    """x / (bias + alpha * sum over `radius` neighbours on either side of x^2) ^ beta; ONNX divides alpha by the window."""
    x, i, size = a.real("input"), axis(a), 2 * a.integer("radius") + 1
    attributes: dict[str, Any] = {"size": size, "alpha": a.number("alpha") * size, "beta": a.number("beta"), "bias": a.number("bias")}
    if i == rank(a) - 1 == 3:
        return a.twin("LRN", x, **attributes)
    shape = list(a.shape())
    padded = a.b.op("Reshape", x, [*[1] * (4 - len(shape)), *shape])
    turned, back = on_channels(a, padded, i + 4 - len(shape))
    y = a.b.op("LRN", turned, **attributes)
    y = y if back is None else a.b.op("Transpose", y, perm=back)
    return a.b.op("Reshape", y, shape)


@lifts("L2_NORMALIZATION")
def l2_normalization(a: Args) -> ir.Value:
    x = a.real("input")
    norm = a.b.op("ReduceL2", x, [axis(a)], keepdims=1)
    return a.b.op("Div", x, norm)


@lifts("INSTANCE_NORMALIZATION")
def instance_normalization(a: Args) -> ir.Value:
    x, channels = a.real("input"), a.channels()
    import numpy as np

    dtype = x.dtype.numpy() if x.dtype is not None else np.float32
    gamma, beta = (np.full(channels, a.number(n), dtype) for n in ("gamma", "beta"))
    return a.twin("InstanceNormalization", x, gamma, beta, epsilon=a.number("epsilon"))


@lifts("BATCH_MATMUL")
def batch_matmul(a: Args) -> ir.Value:
    def side(name: str, adjoint: str) -> ir.Value:
        value, n = a.real(name), rank(a, name)
        return a.b.op("Transpose", value, perm=[*range(n - 2), n - 1, n - 2]) if a.has(adjoint) and a.flag(adjoint) else value

    return a.b.op("MatMul", side("a", "adjoint_a"), side("b", "adjoint_b"))
