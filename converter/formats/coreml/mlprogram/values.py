"""Constants of a program: the content of a Value message, immediate or in the storage of
weights.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.bits import packed_tensor, unpacked
from converter.formats.coreml.mlprogram.blobs import BITS, Blobs
from converter.graph.infer import Array
from converter.graph.lazy_tensor import LazyTensor

D = ir.DataType
# numbers of MIL.proto's DataType -> types of the graph; integers of 1, 2, 3 and 6 bits are bytes
TYPES = {
    **{1: D.BOOL, 2: D.STRING, 10: D.FLOAT16, 11: D.FLOAT, 12: D.DOUBLE, 13: D.BFLOAT16},
    **{21: D.INT8, 22: D.INT16, 23: D.INT32, 24: D.INT64, 25: D.INT4},
    **{31: D.UINT8, 32: D.UINT16, 33: D.UINT32, 34: D.UINT64, 35: D.UINT4},
    **{36: D.UINT8, 37: D.UINT8, 38: D.UINT8, 39: D.UINT8},
    **{40: D.FLOAT8E4M3FN, 41: D.FLOAT8E5M2},
}
SMALL = 1 << 10  # elements that are taken apart at once
# the field of a TensorValue that has the elements
_FIELDS = {"bools": "?", "floats": "<f4", "doubles": "<f8", "ints": "<i4", "longInts": "<i8"}


def dtype_of(tensor_type: Any) -> ir.DataType:
    """Return the type of a TensorType; raise MappingError X201 for one that the graph does
    not have.
    """
    found = TYPES.get(tensor_type.dataType)
    if found is None:
        raise MappingError(f"type {tensor_type.dataType} is not known", "X201")
    return found


def dims_of(tensor_type: Any) -> list[int | None] | None:
    """Return the sizes of a TensorType, None for those that are not known; None for an unknown
    number of axes.
    """
    found: list[int | None] = []
    for d in tensor_type.dimensions:
        if d.HasField("constant"):
            found.append(int(d.constant.size))
        elif d.unknown.variadic:
            return None
        else:
            found.append(None)
    return found


def constant(value: Any, blobs: Blobs) -> Any:
    """Return the array of a tensor, a string for one that is a single string, a list for tuples and
    lists. Many numbers of less than a byte stay packed: a LazyTensor.

    Raise MappingError R103 if the number of elements does not match the type.
    """
    if value.WhichOneof("value") == "blobFileValue":
        at, kind = value.blobFileValue, value.type.tensorType
        data = blobs.bytes(at.fileName, at.offset, kind.dataType)
        if kind.dataType in BITS and math.prod(_sizes(kind)) > SMALL:
            return _packed(data, kind)
        return _shaped(_numbers(data, kind), kind)
    immediate = value.immediateValue
    match immediate.WhichOneof("value"):
        case "tensor":
            return _immediate(immediate.tensor, value.type.tensorType)
        case "tuple":
            return [constant(v, blobs) for v in immediate.tuple.values]
        case "list":
            return [constant(v, blobs) for v in immediate.list.values]
        case "dictionary":
            pairs = immediate.dictionary.values
            return {str(constant(p.key, blobs)): constant(p.value, blobs) for p in pairs}
        case _:
            raise MappingError("a value is empty", "R103")


def _immediate(tensor: Any, kind: Any) -> Any:
    field = tensor.WhichOneof("value")
    if field == "strings":
        words = list(tensor.strings.values)
        return words[0] if not kind.rank and len(words) == 1 else words
    if field == "bytes":
        return _shaped(_numbers(np.frombuffer(tensor.bytes.values, np.uint8), kind), kind)
    if field is None:
        return _shaped(np.zeros(0, dtype_of(kind).numpy()), kind)
    values = np.asarray(getattr(tensor, field).values, _FIELDS[field])
    return _shaped(values.astype(dtype_of(kind).numpy()), kind)


def _numbers(data: Array, kind: Any) -> Array:
    """Return the elements of stored bytes."""
    dtype, bits = dtype_of(kind), BITS.get(kind.dataType)
    if bits is None:
        if data.nbytes % dtype.numpy().itemsize:
            raise MappingError(f"{data.nbytes} bytes cannot be split into elements", "R103")
        return data.view(dtype.numpy())
    numbers = unpacked(data, bits)[: math.prod(_sizes(kind))]
    if dtype == D.INT4:
        signed = ((numbers ^ 8).astype(np.int8) - 8).astype(np.int8)
        return signed.astype(ml_dtypes.int4)
    return numbers.astype(ml_dtypes.uint4) if dtype == D.UINT4 else numbers


def _packed(data: Array, kind: Any) -> LazyTensor:
    """Return numbers of less than a byte without copying them: 4-bit numbers are packed as in ONNX,
    others are unpacked when they are needed.
    """
    dtype, bits, sizes = dtype_of(kind), BITS[kind.dataType], _sizes(kind)
    count = math.prod(sizes)
    if data.nbytes != -(-count * bits // 8):
        message = (
            f"{data.nbytes} bytes are stored for {count} elements of {bits} bits (shape {sizes})"
        )
        raise MappingError(message, "R103")
    return packed_tensor(data, bits, dtype, sizes)


def _sizes(kind: Any) -> list[int]:
    sizes = dims_of(kind)
    if sizes is None or None in sizes:
        raise MappingError("a constant has no shape", "R103")
    return [n for n in sizes if n is not None]


def _shaped(array: Array, kind: Any) -> Array:
    sizes = _sizes(kind)
    if array.size != math.prod(sizes):
        message = (
            f"{array.size} elements are stored for the shape {sizes} of {math.prod(sizes)} elements"
        )
        raise MappingError(message, "R103")
    return array.reshape(sizes)
