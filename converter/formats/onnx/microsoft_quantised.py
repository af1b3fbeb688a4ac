"""com.microsoft quantised operators: DequantizeLinear, the operator in floats, QuantizeLinear."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.canonical import ROWS as CANONICAL
from converter.formats.onnx.microsoft import ROWS
from converter.formats.onnx.op import Op, Results
from converter.graph.build import Builder
from converter.graph.infer import rank_of, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.sizes import arange


def _real(op: Op, b: Builder, index: int) -> ir.Value:
    """Operand, scale and zero point from `index` on, as floats."""
    return b.op("DequantizeLinear", op.need(index), op.need(index + 1), op.input(index + 2))


def _stored(op: Op, b: Builder, y: ir.Value, scale: int) -> ir.Value:
    zero = op.input(scale + 1)
    return b.op(
        "QuantizeLinear", y, op.need(scale), zero if zero is not None else np.array(0, np.uint8)
    )


def _binary(kind: str) -> Callable[[Op, Builder], Results]:
    def row(op: Op, b: Builder) -> Results:
        return _stored(op, b, b.op(kind, _real(op, b, 0), _real(op, b, 3)), 6)

    return row


ROWS.always("QLinearAdd")(_binary("Add"))
ROWS.always("QLinearMul")(_binary("Mul"))


@ROWS.always("QLinearSigmoid", "QLinearLeakyRelu")
def unary(op: Op, b: Builder) -> Results:
    return _stored(op, b, b.op(op.kind[7:], _real(op, b, 0), **op.attrs), 3)


@ROWS.always("QLinearSoftmax")
def softmax(op: Op, b: Builder) -> Results:
    """`opset` below 13: over all axes from `axis` on."""
    x, axis, rank = _real(op, b, 0), op.attrs.get("axis", -1), op.rank(0)
    if op.attrs.get("opset", 13) >= 13 or axis % rank == rank - 1:
        return _stored(op, b, b.op("Softmax", x, axis=axis), 3)
    rows = b.op("Softmax", b.op("Flatten", x, axis=axis), axis=-1)
    return _stored(op, b, b.op("Reshape", rows, b.op("Shape", x)), 3)


@ROWS.always("QLinearAveragePool", "QLinearGlobalAveragePool")
def pool(op: Op, b: Builder) -> Results:
    x, rank, last = _real(op, b, 0), op.rank(0), op.take("channels_last", 0)
    if last:
        x = b.op("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
    plain = Op(op.kind[7:], "", 21, [x], op.attrs, op.outputs)
    y = CANONICAL.apply(plain, b)
    if not isinstance(y, ir.Value):
        y = b.op(plain.kind, *plain.inputs, **plain.attrs)
    return _stored(op, b, b.op("Transpose", y, perm=[0, *range(2, rank), 1]) if last else y, 3)


@ROWS.always("QLinearConcat")
def concat(op: Op, b: Builder) -> Results:
    """(scale, zero point of the result, then operand, scale, zero point each)"""
    parts = [_real(op, b, i) for i in range(2, len(op.inputs), 3)]
    return _stored(op, b, b.op("Concat", *parts, axis=op.attrs["axis"]), 0)


@ROWS.always("QLinearReduceMean")
def reduce_mean(op: Op, b: Builder) -> Results:
    return _stored(
        op,
        b,
        b.op(
            "ReduceMean",
            _real(op, b, 0),
            op.attrs.get("axes"),
            keepdims=op.attrs.get("keepdims", 1),
        ),
        3,
    )


@ROWS.always("QLinearWhere")
def where(op: Op, b: Builder) -> Results:
    return _stored(op, b, b.op("Where", op.need(0), _real(op, b, 1), _real(op, b, 4)), 7)


@ROWS.always("QGemm")
def gemm(op: Op, b: Builder) -> Results:
    """(A, B with scale and zero point each, C int32 in units of scaleA * scaleB, scale and zero
    point of the result)
    """
    a, w = _real(op, b, 0), columns(op, b, 3, 4, 5, op.attrs.get("transB", 0))
    alpha = op.attrs.get("alpha", 1.0)
    y = b.op(
        "Gemm",
        a,
        w,
        transA=op.attrs.get("transA", 0),
        transB=op.attrs.get("transB", 0),
        alpha=alpha,
    )
    if op.input(6) is not None:
        unit = b.op("Mul", b.op("Mul", op.need(1), op.need(4)), b.like(op.need(1), alpha))
        y = b.op("Add", y, b.op("Mul", b.op("Cast", op.need(6), to=ir.DataType.FLOAT), unit))
    return y if op.input(7) is None else _stored(op, b, y, 7)


def columns(op: Op, b: Builder, index: int, scale: int, zero: int, transposed: int = 0) -> ir.Value:
    """A matrix with one scale, or one for each column of the product."""
    per_column = rank_of(op.need(scale)) == 1 and op.shape(scale) != (1,)
    axis = (0 if transposed else op.rank(index) - 1) if per_column else 1
    s, z = op.need(scale), op.input(zero)
    if not per_column and rank_of(s) == 1:
        s, z = (
            b.op("Reshape", s, np.zeros(0, np.int64)),
            None if z is None else b.op("Reshape", z, np.zeros(0, np.int64)),
        )
    return b.op("DequantizeLinear", op.need(index), s, z, axis=axis)


def product(
    b: Builder,
    quantised: Sequence[ir.Value | None],
    weight: ir.Value,
    w_scale: ir.Value,
    w_zero: ir.Value | None,
) -> ir.Value:
    """(bytes, their scale and zero point) times a matrix of bytes with one scale and zero point, or
    one for each column: whole numbers up to the scales.
    """
    x, scale, zero = quantised
    one = rank_of(w_scale) == 1 and shape_of(w_scale) == (1,)
    factor, point = (
        v if v is None or not one else b.op("Reshape", v, np.zeros(0, np.int64))
        for v in (w_scale, w_zero)
    )
    total = b.op("Cast", b.op("MatMulInteger", x, weight, zero, point), to=int(ir.DataType.FLOAT))
    return b.op("Mul", total, b.op("Mul", scale, factor))


@ROWS.always("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(op: Op, b: Builder) -> Results:
    """(A float, B, its scale and zero point, bias): A is quantised by its own range first."""
    y = product(
        b,
        b.ops("DynamicQuantizeLinear", op.need(0), outputs=3),
        op.need(1),
        op.need(2),
        op.input(3),
    )
    return y if op.input(4) is None else b.op("Add", y, op.need(4))


@ROWS.always("MatMulIntegerToFloat")
def matmul_integer_to_float(op: Op, b: Builder) -> Results:
    """(A, B, scales of A and B, zero points of A and B, bias)"""
    y = product(b, (op.need(0), op.need(2), op.input(4)), op.need(1), op.need(3), op.input(5))
    return y if op.input(6) is None else b.op("Add", y, op.need(6))


@ROWS.always("MatMulNBits")
def matmul_n_bits(op: Op, b: Builder) -> Results:
    """A [.., K] times B [N, blocks, bytes] of 2, 4 or 8 bit, low bits first, one scale and zero
    point for each block of K.
    """
    if op.input(4) is not None:
        raise MappingError("MatMulNBits with group indices is not supported")
    k, n, bits, block = (
        int(op.attrs.get(a, d)) for a, d in (("K", 0), ("N", 0), ("bits", 4), ("block_size", 0))
    )
    if bits not in (2, 4, 8):
        raise MappingError(f"MatMulNBits of {bits} bits is not supported")
    blocks = -(-k // block)
    scales = b.op("Reshape", op.need(2), [n, blocks])
    dtype = ir.DataType.UINT4 if bits == 4 else ir.DataType.UINT8
    zero = op.input(3)
    if zero is not None and zero.dtype != ir.DataType.UINT8:
        centred = b.op(
            "Sub",
            b.op(
                "Cast",
                b.const(_numbers(op.constant(1), bits, [n, blocks, block]), "weight"),
                to=scales.dtype,
            ),
            b.op("Reshape", zero, [n, blocks, 1]),
        )
        real = b.op(
            "Reshape", b.op("Mul", centred, b.op("Unsqueeze", scales, [2])), [n, blocks * block]
        )
    else:
        points = (
            np.full((n, blocks), 1 << (bits - 1), np.uint8)
            if zero is None
            else unpack(op.constant(3).reshape(n, -1), bits)[:, :blocks]
        )
        weights = b.const(_numbers(op.constant(1), bits, [n, blocks * block]), "weight")
        real = b.op(
            "DequantizeLinear",
            weights,
            scales,
            b.const(_packed(points, dtype)),
            axis=1,
            block_size=block,
        )
    if blocks * block != k:
        real = b.op("Slice", real, [0], [k], [1])
    y = b.op("MatMul", op.need(0), b.op("Transpose", real, perm=[1, 0]))
    return y if op.input(5) is None else b.op("Add", y, op.need(5))


def unpack(data: np.ndarray, bits: int) -> np.ndarray:
    """The last axis of bytes as numbers of `bits` bits, lowest first."""
    if bits == 8:
        return data
    shifts = arange(0, 8, bits, dtype=np.uint8)
    return ((data[..., None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(*data.shape[:-1], -1)


def _numbers(data: np.ndarray, bits: int, shape: list[int]) -> ir.TensorProtocol:
    """Bytes of numbers of `bits` bits, each row of them full; 4 bits stay packed, as ONNX packs
    them too.
    """
    if bits == 4:
        return LazyTensor(data, ir.DataType.UINT4, shape)
    return LazyTensor(unpack(data.reshape(shape[0], -1), bits).reshape(shape), ir.DataType.UINT8)


def _packed(data: np.ndarray, dtype: ir.DataType) -> ir.TensorProtocol:
    return LazyTensor(np.ascontiguousarray(data).astype(dtype.numpy()), dtype)
