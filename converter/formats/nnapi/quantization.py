"""Quantized values and their real numbers: (stored - zero point) * scale."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.lite.quantization import Quantization, dequantize, quantize
from converter.formats.nnapi.table import Operand, OperandType
from converter.graph.build import Builder

T = OperandType
QUANTIZED = frozenset(t for t in T if "QUANT" in t.name)
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


def operand_quantization(operand: Operand) -> Quantization | None:
    """Return scale and zero point of a quantized operand."""
    if (channel := operand.channel_quant) is not None:
        return Quantization(tuple(channel.scales), axis=channel.dim)
    if not operand.scale or operand.type not in QUANTIZED | {T.TENSOR_INT32}:
        return None
    zeros = () if operand.type is T.TENSOR_INT32 else (operand.zero_point,)
    return Quantization((operand.scale,), zeros)


def dequantize_operand(b: Builder, value: ir.Value, operand: Operand) -> ir.Value:
    """Return the real numbers of a value; integers without a scale and floats stay as they are."""
    return dequantize(b, value, operand_quantization(operand))


def quantize_operand(b: Builder, value: ir.Value, operand: Operand) -> ir.Value:
    """Return a result as the operand stores it."""
    found = operand_quantization(operand) if operand.type in QUANTIZED else None
    return quantize(b, value, DATA_TYPES[operand.type], found)
