"""Reductions, normalisations, softmax, matrix products, selections."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.ops.args import Args, lifts
from converter.formats.nnapi.ops.elementwise import factor_of, scales_a_softmax
from converter.formats.nnapi.ops.emit import Emit, lowers
from converter.formats.nnapi.ops.shapes import axis, rank
from converter.formats.nnapi.table import OperandType
from converter.graph import EXTENSION_DOMAIN
from converter.graph.sizes import arange
from converter.mapping.node import MappingError

REDUCE = {"MEAN": "ReduceMean", "REDUCE_MAX": "ReduceMax", "REDUCE_MIN": "ReduceMin", "REDUCE_PROD": "ReduceProd", "REDUCE_SUM": "ReduceSum"}


@lifts(*REDUCE)
def reduce(a: Args) -> ir.Value:
    axes = sorted({i % rank(a) for i in a.ints("axes")})
    return a.b.op(REDUCE[a.name], a.real("input"), axes, keepdims=int(a.flag("keep_dims")), noop_with_empty_axes=1)


@lowers(*REDUCE.values())
def lower_reduce(e: Emit) -> None:
    axes = [i % len(e.shape()) for i in (e.ints(1) if e.has(1) else [])]
    if not axes and not e.attrs.get("noop_with_empty_axes"):
        axes = list(range(len(e.shape())))
    kind = next(k for k, v in REDUCE.items() if v == e.op)
    x, y = e.real(0), e.result()
    e.put(kind, y, input=x, axes=axes, keep_dims=bool(e.attrs["keepdims"]))


@lifts("REDUCE_ALL", "REDUCE_ANY")
def reduce_logical(a: Args) -> ir.Value:
    """all and any as minimum and maximum of 0 and 1."""
    axes = sorted({i % rank(a) for i in a.ints("axes")})
    number = a.b.op("Cast", a.stored("input"), to=int(ir.DataType.INT32))
    kind = "ReduceMin" if a.name == "REDUCE_ALL" else "ReduceMax"
    return a.b.op("Cast", a.b.op(kind, number, axes, keepdims=int(a.flag("keep_dims"))), to=int(ir.DataType.BOOL))


@lifts("ARGMAX", "ARGMIN")
def arg(a: Args) -> ir.Value:
    """The axis goes, but a vector gives [1]: there are no scalars."""
    x = a.real("input")
    vector = x.shape is not None and len(x.shape) == 1
    return a.b.op("Cast", a.b.op("ArgMax" if a.name == "ARGMAX" else "ArgMin", x, axis=axis(a), keepdims=int(vector)), to=int(ir.DataType.INT32))


@lowers("ArgMax", "ArgMin")
def lower_arg(e: Emit) -> None:
    if e.attrs.get("select_last_index"):
        raise MappingError("of equal values the first is chosen there")
    kind, axis = e.op.upper(), e.axis()
    x, y = e.real(0), e.result()
    if not e.attrs["keepdims"] or len(e.shape()) == 1:
        e.put(kind, y, input=x, axis=axis)
        return
    dims = [n for i, n in enumerate(e.shape()) if i != axis]
    found = e.step(kind, dims, y, input=x, axis=axis)
    e.put("EXPAND_DIMS", y, input=found, axis=axis)


@lifts("TOPK_V2")
def top_k(a: Args) -> tuple[ir.Value, ir.Value]:
    values, indices = a.b.ops("TopK", a.real("input"), [a.integer("k")], axis=-1, outputs=2)
    return values, a.b.op("Cast", indices, to=int(ir.DataType.INT32))


@lowers("TopK")
def lower_top_k(e: Emit) -> None:
    """Of another axis than the last: turned before and back behind. The least are the largest of the negatives."""
    x, shape, axis, k, least = e.real(0), e.shape(), e.axis(-1), e.ints(1)[0], not e.attrs.get("largest", 1)
    if axis == len(shape) - 1 and not least:
        e.put("TOPK_V2", [e.result(0), e.result(1)], input=x, k=k)
        return
    perm = [*(i for i in range(len(shape)) if i != axis), axis]
    turned, found = [shape[i] for i in perm], [*(shape[i] for i in perm[:-1]), k]
    if axis != len(shape) - 1:
        x = e.step("TRANSPOSE", turned, x, input=x, permutation=perm)
    if least:
        x = e.step("MUL", turned, x, a=x, b=e.number([-1], x), activation=0)
    values, places = e.temp(found, x), e.temp(found, x, kind=OperandType.TENSOR_INT32)
    e.put("TOPK_V2", [values, places], input=x, k=k)
    if least:
        values = e.step("MUL", found, values, a=values, b=e.number([-1], values), activation=0)
    back = [perm.index(i) for i in range(len(shape))]
    e.put("TRANSPOSE", e.result(0), input=values, permutation=back)
    order = arange(int(np.prod(found))).reshape(found).transpose(back)  # whole numbers have no TRANSPOSE: they are picked one by one
    flat = e.step("GATHER", [order.size], places, input=e.reshaped(places, [order.size]), axis=0, indices=[int(n) for n in order.reshape(-1)])
    e.put("RESHAPE", e.result(1), input=flat, shape=list(order.shape))


@lifts("SOFTMAX", "LOG_SOFTMAX")
def softmax(a: Args) -> ir.Value:
    x, beta = a.real("input"), a.number("beta", 1.0)
    scaled = x if beta == 1.0 else a.b.op("Mul", x, a.b.like(x, beta))
    return a.b.op("Softmax" if a.name == "SOFTMAX" else "LogSoftmax", scaled, axis=axis(a))


@lowers("Softmax", "LogSoftmax")
def lower_softmax(e: Emit) -> None:
    """Along the last axis as rows of a matrix where the rank is none of level 1's; a factor before it is its beta."""
    producer = e.value(0).producer()
    factor = factor_of(producer) if producer is not None and scales_a_softmax(producer) else None
    value, beta = factor or (e.value(0), 1.0)
    x, axis, dims, kind = e.real(value), e.axis(-1), list(e.shape()), "SOFTMAX" if e.op == "Softmax" else "LOG_SOFTMAX"
    if kind == "LOG_SOFTMAX" or axis != len(dims) - 1:
        e.put(kind, e.result(), input=x, beta=beta, axis=axis)
        return
    y = e.result()
    if len(dims) in (2, 4):
        e.put(kind, y, input=x, beta=beta)
        return
    rows = [int(np.prod(dims[:-1])), dims[-1]]
    z = e.step(kind, rows, y, input=e.reshaped(x, rows), beta=beta)
    e.put("RESHAPE", y, input=z, shape=e.operand(y).dimensions)


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


@lowers("LRN")
def lower_lrn(e: Emit) -> None:
    size = int(e.attrs["size"])
    if size % 2 == 0:
        raise MappingError("a window of an even number of channels is not possible")
    x, y = e.image(), e.result(image=True)
    a = e.attrs
    e.put("LOCAL_RESPONSE_NORMALIZATION", y, input=x, radius=size // 2, bias=a["bias"], alpha=a["alpha"] / size, beta=a["beta"])


SMALLEST_NORM = 1e-6  # AOSP divides by the larger of this and the norm


@lifts("L2_NORMALIZATION")
def l2_normalization(a: Args) -> ir.Value:
    x = a.real("input")
    half = x.dtype == ir.DataType.FLOAT16  # its own square would vanish there
    wide = a.b.op("Cast", x, to=int(ir.DataType.FLOAT)) if half else x
    y = a.b.ext("NormalizeL2", wide, axes=[axis(a)], eps=SMALLEST_NORM**2, eps_mode="max")
    return a.b.op("Cast", y, to=int(ir.DataType.FLOAT16)) if half else y


@lowers("NormalizeL2", domain=EXTENSION_DOMAIN)
def lower_normalize(e: Emit) -> None:
    """Level 1 takes the last of four axes, level 3 any."""
    axes, rank_ = [int(i) % len(e.shape()) for i in e.attrs["axes"]], len(e.shape())
    limit = SMALLEST_NORM**2
    if len(axes) != 1 or not (e.attrs["eps"] <= limit if e.attrs["eps_mode"] == "add" else np.isclose(e.attrs["eps"], limit, rtol=1e-3)):
        raise MappingError("the smallest norm is 1e-6 there, and one axis is normalised")
    more = {} if rank_ == 4 and axes[0] == 3 else {"axis": axes[0]}
    x = e.real(0)
    e.put("L2_NORMALIZATION", e.result(), input=x, **more)


@lifts("INSTANCE_NORMALIZATION")
def instance_normalization(a: Args) -> ir.Value:
    x, channels = a.real("input"), a.channels()
    dtype = x.dtype.numpy() if x.dtype is not None else np.float32
    gamma, beta = (np.full(channels, a.number(n), dtype) for n in ("gamma", "beta"))
    return a.twin("InstanceNormalization", x, gamma, beta, epsilon=a.number("epsilon"))


@lowers("InstanceNormalization")
def lower_instance_normalization(e: Emit) -> None:
    """One factor and one addend for all channels there; others follow as operations of their own."""
    gamma, beta = e.constant(1), e.constant(2)
    x, uniform = e.image(), bool((gamma == gamma[0]).all() and (beta == beta[0]).all())
    factors = {"gamma": float(gamma[0]), "beta": float(beta[0])} if uniform else {"gamma": 1.0, "beta": 0.0}
    more = {"input": x, "epsilon": e.attrs["epsilon"], "nchw": False, **factors}
    y = e.result(fuse=not uniform, image=True)
    if uniform:
        e.put("INSTANCE_NORMALIZATION", y, **more)
        return
    z = e.step("INSTANCE_NORMALIZATION", e.operand(x).dimensions, x, **more)
    z = e.step("MUL", e.operand(x).dimensions, x, a=z, b=e.number(gamma, x), activation=0)
    e.put("ADD", y, a=z, b=e.number(beta, x), activation=e.activation)


@lifts("BATCH_MATMUL")
def batch_matmul(a: Args) -> ir.Value:
    def side(name: str, adjoint: str) -> ir.Value:
        value, n = a.real(name), rank(a, name)
        return a.b.op("Transpose", value, perm=[*range(n - 2), n - 1, n - 2]) if a.has(adjoint) and a.flag(adjoint) else value

    return a.b.op("MatMul", side("a", "adjoint_a"), side("b", "adjoint_b"))
