"""Stored integers, and the real numbers that they stand for: (stored - zero point) * scale."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.table import Array, Operand, OperandType
from converter.graph.build import Builder

T = OperandType
QUANTISED = frozenset(t for t in T if "QUANT" in t.name)
DATA_TYPES = {
    T.TENSOR_FLOAT32: ir.DataType.FLOAT,
    T.FLOAT32: ir.DataType.FLOAT,
    T.TENSOR_FLOAT16: ir.DataType.FLOAT16,
    T.FLOAT16: ir.DataType.FLOAT16,
    T.TENSOR_INT32: ir.DataType.INT32,
    T.INT32: ir.DataType.INT32,
    T.UINT32: ir.DataType.UINT32,
    T.TENSOR_BOOL8: ir.DataType.BOOL,
    T.BOOL: ir.DataType.BOOL,
    T.TENSOR_QUANT8_ASYMM: ir.DataType.UINT8,
    T.TENSOR_QUANT8_ASYMM_SIGNED: ir.DataType.INT8,
    T.TENSOR_QUANT8_SYMM: ir.DataType.INT8,
    T.TENSOR_QUANT16_SYMM: ir.DataType.INT16,
    T.TENSOR_QUANT16_ASYMM: ir.DataType.UINT16,
    T.TENSOR_QUANT8_SYMM_PER_CHANNEL: ir.DataType.INT8,
}
FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def zero_point(operand: Operand) -> Array:
    return np.array(operand.zero_point, DATA_TYPES[operand.type].numpy())


def dequantise(b: Builder, value: ir.Value, operand: Operand, axis: int | None = None) -> ir.Value:
    """The real numbers of a value; integers without a scale and floats stay as they are.

    `axis`: that of per-channel scales, where it is not the operand's.
    """
    if operand.channel_quant is not None:
        dim = operand.channel_quant.dim if axis is None else axis
        scales = np.array(operand.channel_quant.scales, np.float32)
        return b.DequantizeLinear(value, scales, axis=dim)
    scale = np.array(operand.scale, np.float32)
    if operand.type == T.TENSOR_INT32 and operand.scale:
        return b.DequantizeLinear(value, scale)
    if operand.type not in QUANTISED or not operand.scale:
        return value
    return b.DequantizeLinear(value, scale, zero_point(operand))


def quantise(b: Builder, value: ir.Value, operand: Operand) -> ir.Value:
    """The stored form of a real result; other results are cast to the operand's own type."""
    wanted = DATA_TYPES[operand.type]
    if operand.type in QUANTISED and operand.scale and value.dtype in FLOATS:
        if value.dtype != ir.DataType.FLOAT:
            value = b.Cast(value, to=ir.DataType.FLOAT)
        scale = np.array(operand.scale, np.float32)
        return b.QuantizeLinear(value, scale, zero_point(operand))
    if value.dtype == wanted or value.dtype is None:
        return value
    return b.Cast(value, to=wanted)
