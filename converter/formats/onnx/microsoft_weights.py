"""com.microsoft operators with quantized weights around an operator on floats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.microsoft import ROWS, embed_layer_normalization
from converter.formats.onnx.microsoft_attention import attention
from converter.formats.onnx.microsoft_quantised import columns, packed, unpack
from converter.formats.onnx.op import Op, Results
from converter.graph.build import Builder
from converter.graph.catalogue.bits import NF4
from converter.graph.lazy_tensor import LazyTensor

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
    """The tables, gamma and beta with one scale and zero point each."""
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
    """Rows of a table in blocks along `quantize_axis`; bytes hold two 4-bit numbers, the low one
    first, where `bits` is 4.
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
    """A [.., K] times the transpose of [N, K] codes, the high one of a byte first, times the
    largest number of their block.
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
