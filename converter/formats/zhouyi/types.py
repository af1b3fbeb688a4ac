"""Types: those of the shared graph and those of the format."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.values import DType

# the behavior of the vendor's tools for types that their hardware lacks
NARROW = {
    ir.DataType.INT64: ir.DataType.INT32,
    ir.DataType.UINT64: ir.DataType.UINT32,
    ir.DataType.DOUBLE: ir.DataType.FLOAT,
    ir.DataType.BOOL: ir.DataType.UINT8,
}
_IR = {
    DType.FLOAT64: ir.DataType.DOUBLE,
    DType.FLOAT32: ir.DataType.FLOAT,
    DType.FLOAT16: ir.DataType.FLOAT16,
    DType.BFLOAT16: ir.DataType.BFLOAT16,
    DType.FLOAT8_E5M2: ir.DataType.FLOAT8E5M2,
    DType.FLOAT8_E4M3FN: ir.DataType.FLOAT8E4M3FN,
    DType.BOOL: ir.DataType.BOOL,
    DType.INT64: ir.DataType.INT64,
    DType.UINT64: ir.DataType.UINT64,
    DType.INT32: ir.DataType.INT32,
    DType.UINT32: ir.DataType.UINT32,
    DType.INT16: ir.DataType.INT16,
    DType.UINT16: ir.DataType.UINT16,
    DType.INT8: ir.DataType.INT8,
    DType.UINT8: ir.DataType.UINT8,
}
_NAME = {v: k for k, v in _IR.items()}
# 4 and 12 bits are kept in 8 and 16
_WIDE = {"int4": DType.INT8, "uint4": DType.UINT8, "int12": DType.INT16, "uint12": DType.UINT16}


def ir_dtype(dtype: DType) -> ir.DataType:
    """Return the type of the graph for a type of the format. Raises MappingError X201 if there is
    none.
    """
    found = _IR.get(_WIDE.get(dtype.value.removeprefix("aligned_"), dtype))
    if found is None:
        raise MappingError(f"type {dtype} is not supported", "X201")
    return found


def dtype_name(dtype: ir.DataType) -> DType:
    """Return the format's name of a type that it has (see NARROW for those it lacks)."""
    found = _NAME.get(dtype)
    if found is None:
        raise MappingError(f"type {dtype} is not supported", "X201")
    return found


def is_float(dtype: ir.DataType | None) -> bool:
    """Return whether a type is known and a floating-point type."""
    return dtype is not None and dtype.is_floating_point()


def is_index(dtype: ir.DataType | None) -> bool:
    """Return whether look-ups take indices of this type."""
    return dtype in (ir.DataType.INT32, ir.DataType.INT64)


def numpy_type(value: ir.Value) -> Any:
    """Return the numpy type of the elements, float32 if it is not declared."""
    return np.float32 if value.dtype is None else value.dtype.numpy()
