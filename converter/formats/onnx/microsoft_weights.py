"""com.microsoft operators with quantized weights around an operator on floats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.microsoft import ROWS, embed_layer_normalization, plus, rms
from converter.formats.onnx.microsoft_attention import attention
from converter.formats.onnx.microsoft_quantized import columns, matmul_n_bits, packed, unpack
from converter.formats.onnx.op import Op, Results
from converter.graph.build import Builder
from converter.graph.catalogue.bits import NF4
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.value import Value

_FLOAT = ir.DataType.FLOAT

# the 4-bit floats of bitsandbytes: a sign, then 0, 1/192, 2/3, 1, 1/3, 1/2, 1/6, 1/4
_FP4 = np.array([0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4], np.float32)


@ROWS.always("QAttention")
def q_attention(op: Op, b: Builder) -> Results:
    """(input, weights, bias, scales of both, mask, zero points of both, past)"""
    x = b.DequantizeLinear(op.x, op.need(3), op.input(6))
    inputs: list[ir.Value | None] = [
        x,
        columns(op, b, 1, 4, 7),
        op.input(2),
        op.input(5),
        op.input(8),
    ]
    return attention(replace(op, inputs=inputs), b)


@ROWS.always("QEmbedLayerNormalization")
def q_embed_layer_normalization(op: Op, b: Builder) -> Results:
    """Convert QEmbedLayerNormalization: the tables, gamma and beta have one scale and zero point
    each.
    """
    tables = [
        b.DequantizeLinear(op.need(i), op.need(i + 6), op.input(i + 11))
        if op.input(i) is not None
        else None
        for i in range(2, 7)
    ]
    inputs: list[ir.Value | None] = [op.x, op.input(1), *tables, op.input(7)]
    return embed_layer_normalization(replace(op, inputs=inputs), b)


@ROWS.always("GatherBlockQuantized")
def gather_block_quantized(op: Op, b: Builder) -> Results:
    """Look up rows of a table with a scale for each block along `quantize_axis`; with `bits` 4,
    bytes hold two numbers, the low one first.
    """
    rank, bits = op.rank(0), int(op.attr("bits", 4))
    axis, block = int(op.attr("quantize_axis", 1)) % rank, int(op.attr("block_size", 128))
    table, zero = op.x, op.input(3)
    if table.dtype == ir.DataType.UINT8:
        if bits == 4:
            table = b.const(_four(op.constant(0)), "table")
            zero = None if zero is None else b.const(_four(op.constant(3), op.shape(2)[-1]))
        if zero is None:
            half = np.full(op.shape(2), 1 << (bits - 1))
            zero = b.const(packed(half, ir.DataType.UINT4 if bits == 4 else ir.DataType.UINT8))
    rows = b.DequantizeLinear(table, op.need(2), zero, axis=axis, block_size=block)
    return b.Gather(rows, op.need(1), axis=op.attr("gather_axis", 0))


def _four(data: np.ndarray, count: int | None = None) -> ir.TensorProtocol:
    return packed(unpack(data, 4)[..., :count], ir.DataType.UINT4)


@ROWS.always("MatMulBnb4")
def matmul_bnb4(op: Op, b: Builder) -> Results:
    """Multiply A [..., K] by the transpose of the weights [N, K]: 4-bit codes, the high one of a
    byte first, times the largest number of their block.
    """
    k, n, block, kind = (int(op.attrs[a]) for a in ("K", "N", "block_size", "quant_type"))
    if not op.attr("transB", 1):
        raise MappingError("MatMulBnb4 with weights that are not transposed is not supported")
    if block < 1 or n * k % block or n * k % 2:
        raise MappingError(
            f"MatMulBnb4 with weights of {n} x {k} in blocks of {block} is not supported"
        )
    stored = op.constant(1).reshape(-1)[: n * k // 2]
    low_first = LazyTensor(stored << 4 | stored >> 4, ir.DataType.UINT4, [n * k // block, block])
    table = b.const(NF4 if kind == 1 else np.concatenate([_FP4, -_FP4]), "table")
    scales = b.Reshape(op.need(2), [-1, 1])
    codes = b.Cast(b.const(low_first, "weight"), to=ir.DataType.INT32)
    if scales.dtype is not None and scales.dtype != table.dtype:
        table = b.Cast(table, to=scales.dtype)
    real = b.Gather(table, codes) * scales
    return op.x @ b.Transpose(b.Reshape(real, [n, k]), perm=[1, 0])


_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


@ROWS.always("MatMulBlockQuantizedFp8Weight")
def matmul_fp8(op: Op, b: Builder) -> Results:
    """(A [..,K], B [N,K] of 8-bit floats, a scale for each block of K, scale of A, bias)"""
    block, width = int(op.attr("block_size", 128)), op.shape(1)[1]
    x = op.x
    if (scale := op.input(3)) is not None:
        point = np.zeros((), ml_dtypes.float8_e4m3fn)
        given = b.Reshape(scale, [])
        coded = b.QuantizeLinear(b.Cast(x, to=_FLOAT), given, point)
        x = b.Cast(b.DequantizeLinear(coded, given, point), to=op.x.dtype)
    real = b.Cast(op.need(1), to=_FLOAT) * _by_block(b, op.need(2), block, width)
    return plus(x @ b.Transpose(b.Cast(real, to=op.x.dtype), perm=[1, 0]), op.input(4))


@ROWS.always("MatMulBlockQuantizedFp4Weight")
def matmul_fp4(op: Op, b: Builder) -> Results:
    """(A [..,K], B [N,K/2] of 4-bit floats, low bits first, 8-bit floats as scales of blocks of K,
    scale of all, -, bias)
    """
    rows, width = op.shape(1)[0], 2 * op.shape(1)[1]
    codes = b.const(LazyTensor(op.constant(1), ir.DataType.UINT4, [rows, width]), "weight")
    table = b.const(np.concatenate([_E2M1, -_E2M1]), "table")
    scales = op.constant(2).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    unit = b.const(scales, "scales") * b.Cast(b.Reshape(op.need(3), []), to=_FLOAT)
    block = int(op.attr("block_size", 16))
    numbers = b.Gather(table, b.Cast(codes, to=ir.DataType.INT32))
    real = b.Cast(numbers * _by_block(b, unit, block, width), to=op.x.dtype)
    return plus(op.x @ b.Transpose(real, perm=[1, 0]), op.input(5))


def _by_block(b: Builder, scales: Value, block: int, width: int) -> Value:
    """Repeat each scale for the numbers of its block: [N,blocks] -> [N,K]."""
    wide = b.Gather(scales, b.const(np.arange(width) // block, "blocks"), axis=1)
    return wide if wide.dtype == _FLOAT else b.Cast(wide, to=_FLOAT)


@ROWS.always("MatMulNBitsMlp")
def gated_products(op: Op, b: Builder) -> Results:
    """(A, skip, scale of the norm, packed weights, scales and bias of gate, and of up) ->
    activation(gate) * up, the sum that was normalized
    """
    x, total = _normalized(op, b)
    gate, up = (_product(op, b, x, i, int(op.attrs["N"])) for i in (3, 6))
    kind = op.attrs["activation"]
    if kind not in ("silu", "relu", "gelu"):
        raise MappingError(f"MatMulNBitsMlp with the activation {kind!r} is not supported")
    opened = gate * b.Sigmoid(gate) if kind == "silu" else b.op(kind.capitalize(), gate)
    return opened * up, total


@ROWS.always("MatMulNBitsQkv")
def three_products(op: Op, b: Builder) -> Results:
    """(A, skip, scale of the norm, packed weights, scales and bias of Q, of K and of V)"""
    x, total = _normalized(op, b)
    widths = [int(op.attrs[n]) for n in ("Nq", "Nkv", "Nkv")]
    products = [_product(op, b, x, i, n) for i, n in zip((3, 6, 9), widths, strict=True)]
    return [*products, total]


def _normalized(op: Op, b: Builder) -> tuple[Value, Value | None]:
    """Return A plus the skip input, normalized by its root mean square if there is a scale; and the
    sum.
    """
    total = plus(op.x, op.input(1))
    scale = op.input(2)
    x = total if scale is None else rms(b, total, scale, op.number("epsilon", 1e-5))[0]
    return x, total


def _product(op: Op, b: Builder, x: Value, index: int, width: int) -> Value:
    """Return one of several MatMulNBits, whose operands begin at `index`."""
    operands: list[ir.Value | None] = [
        x,
        op.input(index),
        op.input(index + 1),
        None,
        None,
        op.input(index + 2),
    ]
    given: dict[str, Any] = {k: v for k, v in op.attrs.items() if k in ("K", "bits", "block_size")}
    return matmul_n_bits(
        Op("MatMulNBits", op.domain, op.version, operands, {**given, "N": width}), b
    )
