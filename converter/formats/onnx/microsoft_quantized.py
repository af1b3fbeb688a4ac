"""com.microsoft quantized operators: DequantizeLinear, the operator in floats, QuantizeLinear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.canonical import explicit
from converter.formats.onnx.microsoft import ROWS, channels_first, channels_last, plus, softmax_from
from converter.formats.onnx.op import Op, Results
from converter.graph.build import Builder
from converter.graph.infer import rank_of, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.sizes import arange
from converter.graph.value import Value


def _real(op: Op, b: Builder, index: int) -> Value:
    """Return the operand at `index`, dequantized by the scale and zero point that follow it."""
    return b.DequantizeLinear(op.need(index), op.need(index + 1), op.input(index + 2))


def _stored(op: Op, b: Builder, y: Value, scale: int) -> Value:
    zero = op.input(scale + 1)
    return b.QuantizeLinear(y, op.need(scale), np.array(0, np.uint8) if zero is None else zero)


def _plain(op: Op) -> str:
    """Return the operator on floats."""
    return op.kind.removeprefix("QLinear")


@ROWS.always("QLinearAdd", "QLinearMul")
def binary(op: Op, b: Builder) -> Results:
    """Rewrite a quantized Add or Mul as the operator on floats between DequantizeLinear and
    QuantizeLinear.
    """
    return _stored(op, b, b.op(_plain(op), _real(op, b, 0), _real(op, b, 3)), 6)


@ROWS.always("QLinearSigmoid", "QLinearLeakyRelu")
def unary(op: Op, b: Builder) -> Results:
    """Rewrite a quantized Sigmoid or LeakyRelu as the operator on floats."""
    return _stored(op, b, b.op(_plain(op), _real(op, b, 0), **op.attrs), 3)


@ROWS.always("QLinearSoftmax")
def softmax(op: Op, b: Builder) -> Results:
    """Convert a quantized Softmax; with an `opset` below 13 over all axes from `axis` on."""
    x, axis, rank = _real(op, b, 0), op.attr("axis", -1), op.rank(0)
    single = op.attr("opset", 13) >= 13 or axis % rank == rank - 1
    return _stored(op, b, b.Softmax(x, axis=axis) if single else softmax_from(b, x, axis), 3)


@ROWS.always("QLinearAveragePool", "QLinearGlobalAveragePool")
def pool(op: Op, b: Builder) -> Results:
    """Rewrite a quantized average pooling as the operator on floats, in either layout."""
    x, rank, last = _real(op, b, 0), op.rank(0), op.take("channels_last", 0)
    y = explicit(b, _plain(op), [channels_first(b, x, rank) if last else x], op.attrs)
    return _stored(op, b, channels_last(b, y, rank) if last else y, 3)


@ROWS.always("QLinearConcat")
def concat(op: Op, b: Builder) -> Results:
    """(scale, zero point of the result, then operand, scale, zero point each)"""
    parts = [_real(op, b, i) for i in range(2, len(op.inputs), 3)]
    return _stored(op, b, b.Concat(*parts, axis=op.attrs["axis"]), 0)


@ROWS.always("QLinearReduceMean")
def reduce_mean(op: Op, b: Builder) -> Results:
    """Rewrite a quantized ReduceMean as the operator on floats."""
    axes, kept = op.attr("axes"), op.attr("keepdims", 1)
    return _stored(op, b, b.ReduceMean(_real(op, b, 0), axes, keepdims=kept), 3)


@ROWS.always("QLinearWhere")
def where(op: Op, b: Builder) -> Results:
    """Rewrite a quantized Where as the operator on floats."""
    return _stored(op, b, b.Where(op.x, _real(op, b, 1), _real(op, b, 4)), 7)


@ROWS.always("QGemm")
def gemm(op: Op, b: Builder) -> Results:
    """(A, B with scale and zero point each, C int32 in units of scaleA * scaleB, scale and zero
    point of the result)
    """
    permuted, alpha = [op.attr(f"trans{side}", 0) for side in "AB"], op.number("alpha", 1.0)
    a, w = _real(op, b, 0), columns(op, b, 3, 4, 5, permuted[1])
    y = b.Gemm(a, w, transA=permuted[0], transB=permuted[1], alpha=alpha)
    if op.input(6) is not None:
        unit = op.need(1) * op.need(4) * alpha
        y = y + b.Cast(op.need(6), to=ir.DataType.FLOAT) * unit
    return y if op.input(7) is None else _stored(op, b, y, 7)


def columns(op: Op, b: Builder, index: int, scale: int, zero: int, transposed: int = 0) -> Value:
    """Return scales of a matrix, one for all or one for each column, so that they broadcast to the
    product.
    """
    per_column = rank_of(op.need(scale)) == 1 and op.shape(scale) != (1,)
    axis = (0 if transposed else op.rank(index) - 1) if per_column else 1
    s, z = op.need(scale), op.input(zero)
    if not per_column and rank_of(s) == 1:
        s, z = b.Reshape(s, []), None if z is None else b.Reshape(z, [])
    return b.DequantizeLinear(op.need(index), s, z, axis=axis)


def product(
    b: Builder, quantized: Sequence[Any], weight: Value, w_scale: Value, w_zero: Value | None
) -> Value:
    """(bytes, their scale and zero point) times a matrix of bytes with one scale and zero point, or
    one for each column: integers up to the scales.
    """
    x, scale, zero = quantized
    one = rank_of(w_scale) == 1 and shape_of(w_scale) == (1,)
    factor, point = (v if v is None or not one else b.Reshape(v, []) for v in (w_scale, w_zero))
    total = b.Cast(b.MatMulInteger(x, weight, zero, point), to=ir.DataType.FLOAT)
    unit: Value = scale * factor
    return total * unit


@ROWS.always("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(op: Op, b: Builder) -> Results:
    """(A float, B, its scale and zero point, bias): A is quantized by its own range first."""
    quantized = b.DynamicQuantizeLinear(op.x, outputs=3)
    return plus(product(b, quantized, op.need(1), op.need(2), op.input(3)), op.input(4))


@ROWS.always("MatMulIntegerToFloat")
def matmul_integer_to_float(op: Op, b: Builder) -> Results:
    """(A, B, scales of A and B, zero points of A and B, bias)"""
    quantized = (op.x, op.need(2), op.input(4))
    return plus(product(b, quantized, op.need(1), op.need(3), op.input(5)), op.input(6))


@ROWS.always("MatMulNBits")
def matmul_n_bits(op: Op, b: Builder) -> Value:
    """Multiply A [..., K] by B [N, blocks, bytes] of 2, 4 or 8 bits, low bits first, with a scale
    and zero point for each block of K.
    """
    if op.input(4) is not None:
        raise MappingError("MatMulNBits with group indices is not supported")
    k, n, bits, block = (
        int(op.attr(a, d)) for a, d in (("K", 0), ("N", 0), ("bits", 4), ("block_size", 0))
    )
    if bits not in (2, 4, 8):
        raise MappingError(f"MatMulNBits of {bits} bits is not supported")
    blocks = -(-k // block)
    scales = b.Reshape(op.need(2), [n, blocks])
    dtype = ir.DataType.UINT8 if bits == 8 else ir.DataType.UINT4
    zero = op.input(3)
    if zero is not None and zero.dtype != ir.DataType.UINT8:
        weights = b.const(numbers(op.constant(1), bits, [n, blocks, block]), "weight")
        centered = b.Cast(weights, to=scales.dtype) - b.Reshape(zero, [n, blocks, 1])
        real = b.Reshape(centered * b.Unsqueeze(scales, [2]), [n, blocks * block])
    else:
        points = (
            np.full((n, blocks), 1 << (bits - 1), np.uint8)
            if zero is None
            else unpack(op.constant(3).reshape(n, -1), bits)[:, :blocks]
        )
        weights = b.const(numbers(op.constant(1), bits, [n, blocks * block]), "weight")
        real = b.DequantizeLinear(weights, scales, packed(points, dtype), axis=1, block_size=block)
    if blocks * block != k:
        real = real[:, :k]
    return plus(op.x @ b.Transpose(real, perm=[1, 0]), op.input(5))


def unpack(data: np.ndarray, bits: int) -> np.ndarray:
    """Return the last axis of bytes as numbers of `bits` bits, lowest first."""
    if bits == 8:
        return data
    shifts = arange(0, 8, bits, dtype=np.uint8)
    return ((data[..., None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(*data.shape[:-1], -1)


def numbers(data: np.ndarray, bits: int, shape: list[int]) -> ir.TensorProtocol:
    """Return the bytes of numbers of `bits` bits, whose rows are padded to full bytes; 4-bit
    numbers stay packed, as in ONNX, 2-bit ones are widened to 4.
    """
    if bits == 4:
        return LazyTensor(data, ir.DataType.UINT4, shape)
    if bits == 2:
        low, high = (unpack(data.reshape(-1), 2).reshape(-1, 2)[:, i] for i in (0, 1))
        return LazyTensor(low | high << 4, ir.DataType.UINT4, shape)
    return LazyTensor(data.reshape(shape), ir.DataType.UINT8)


def packed(data: np.ndarray, dtype: ir.DataType) -> ir.TensorProtocol:
    """Return integers as a tensor of a type that may have less than 8 bits."""
    return LazyTensor(np.ascontiguousarray(data).astype(dtype.numpy()), dtype)
