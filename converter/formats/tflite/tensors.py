"""Tensors of a file as values of the graph: types, constants, and the real numbers of quantized
values.

An integer with a scale is (stored - zero point) * scale. A complex number is two floats along a
last axis of its own.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.quantization import Quantization, dequantize, quantize
from converter.formats.tflite.codec import LiteGraph, LiteOperator, LiteTensor
from converter.formats.tflite.schema import schema
from converter.formats.tflite.sparsity import dense
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.graph.lazy_tensor import LazyTensor

T, D = schema.TensorType, ir.DataType
COMPLEX = (T.COMPLEX64, T.COMPLEX128)
# types that came after the package `tflite` of today
# (https://github.com/google-ai-edge/LiteRT/blob/main/tflite/converter/schema/schema.fbs)
INT2, UINT4, FLOAT8_E4M3FN, FLOAT8_E5M2 = range(19, 23)
TYPES = {
    T.FLOAT32: D.FLOAT,
    T.FLOAT16: D.FLOAT16,
    T.BFLOAT16: D.BFLOAT16,
    T.FLOAT64: D.DOUBLE,
    T.INT8: D.INT8,
    T.INT16: D.INT16,
    T.INT32: D.INT32,
    T.INT64: D.INT64,
    T.UINT8: D.UINT8,
    T.UINT16: D.UINT16,
    T.UINT32: D.UINT32,
    T.UINT64: D.UINT64,
    T.INT4: D.INT4,
    T.BOOL: D.BOOL,
    T.STRING: D.STRING,
    T.COMPLEX64: D.FLOAT,
    T.COMPLEX128: D.DOUBLE,
}
NUMBERS = {dtype: number for number, dtype in reversed(TYPES.items()) if number not in COMPLEX}
# types that are read; two bits are written where four hold such numbers (`few_bits`)
TYPES |= {INT2: D.INT4, UINT4: D.UINT4}
# whether a byte with two numbers of four bits holds only -2 to 1
_TWO_BITS = np.isin(np.arange(256) >> 4, (0, 1, 14, 15)) & np.isin(
    np.arange(256) & 15, (0, 1, 14, 15)
)
TYPES |= {FLOAT8_E4M3FN: D.FLOAT8E4M3FN, FLOAT8_E5M2: D.FLOAT8E5M2}
NUMBERS[D.COMPLEX64] = T.COMPLEX64
TYPE_NAMES = {v: k for k, v in vars(T).items() if isinstance(v, int)}
TYPE_NAMES |= {INT2: "INT2", UINT4: "UINT4"}
TYPE_NAMES |= {FLOAT8_E4M3FN: "FLOAT8_E4M3FN", FLOAT8_E5M2: "FLOAT8_E5M2"}
STORED = (D.INT4, D.INT8, D.UINT8, D.INT16, D.UINT16)  # possible storage types of an activation
STORED_TYPES = frozenset(NUMBERS[d] for d in STORED)


def type_of(tensor: LiteTensor) -> ir.DataType:
    """Return the type of a tensor in the graph; raise MappingError X201 if there is none."""
    found = TYPES.get(tensor.type)
    if found is None:
        name = TYPE_NAMES.get(tensor.type, str(tensor.type))
        raise MappingError(f"tensor {tensor.name!r} is {name}, which is not supported", "X201")
    return found


def shape_in_graph(tensor: LiteTensor) -> list[int | None]:
    """Return the shape of a tensor, with None for dynamic sizes; complex numbers have their parts
    on a last axis of 2.
    """
    sizes: list[int | None] = [None if n < 0 else n for n in tensor.shape]
    return [*sizes, 2] if tensor.type in COMPLEX else sizes


def is_quantized(tensor: LiteTensor) -> bool:
    """Return whether the integers of a tensor are quantized values. 32-bit and 64-bit integers are
    biases, whose scale only their operator reads.
    """
    return bool(tensor.scales) and TYPES.get(tensor.type) in (*STORED, D.UINT4)


def constant_of(tensor: LiteTensor) -> Array | LazyTensor:
    """Return the elements of a constant, a view of the file; 4-bit numbers stay packed (low half of
    a byte first, as in ONNX). Raise MappingError R103 if the bytes do not match the shape.
    """
    dtype = type_of(tensor)
    data = np.zeros(0, np.uint8) if tensor.data is None else np.asarray(tensor.data).view(np.uint8)
    shape = [max(n, 0) for n in tensor.shape]
    if dtype == D.STRING:
        return _shaped(_strings(data, tensor), shape, tensor)
    if tensor.type == INT2:
        return _two_bits(data, shape, tensor)
    if dtype in (D.INT4, D.UINT4):
        return _four_bits(data, shape, tensor, dtype)
    kind = dtype.numpy()
    if data.nbytes % kind.itemsize:
        raise MappingError(
            f"tensor {tensor.name!r} has {data.nbytes} bytes, which are too few for its shape",
            "R103",
        )
    found = data.view(kind)
    if tensor.sparsity is not None:
        return dense(found, shape, tensor.sparsity)
    return _shaped(found, [*shape, 2] if tensor.type in COMPLEX else shape, tensor)


def _shaped(found: Array, shape: list[int], tensor: LiteTensor) -> Array:
    if found.size != math.prod(shape):
        message = f"tensor {tensor.name!r} has {found.size} elements, but its shape is {shape}"
        raise MappingError(message, "R103")
    return found.reshape(shape)


def _four_bits(
    data: Array, shape: list[int], tensor: LiteTensor, dtype: ir.DataType
) -> Array | LazyTensor:
    if tensor.sparsity is not None:
        every = LazyTensor(data, dtype, [2 * data.nbytes]).numpy()
        return dense(every[: math.prod(shape)], shape, tensor.sparsity)
    return LazyTensor(_bytes_of(data, shape, tensor, 4), dtype, shape)


def _two_bits(data: Array, shape: list[int], tensor: LiteTensor) -> Array | LazyTensor:
    """Return signed 2-bit numbers as 4-bit ones, which the graph supports."""
    if tensor.sparsity is not None:
        raise MappingError(f"sparse tensor {tensor.name!r} of two bits is not supported", "X201")
    stored = _bytes_of(data, shape, tensor, 2)

    def four_bits() -> Array:
        pairs = np.stack([stored & 15, stored >> 4], -1).reshape(-1)  # of two numbers each
        wide = (pairs & 3) | (pairs >> 2) << 4
        found: Array = wide | (wide & 0x22) << 1 | (wide & 0x22) << 2
        return found[: -(-math.prod(shape) // 2)]

    return LazyTensor(four_bits, D.INT4, shape)


def _bytes_of(data: Array, shape: list[int], tensor: LiteTensor, bits: int) -> Array:
    size = -(-math.prod(shape) * bits // 8)
    if data.nbytes < size:
        message = f"tensor {tensor.name!r} has {data.nbytes} bytes, but its shape is {shape}"
        raise MappingError(message, "R103")
    return data[:size]


def few_bits(graph: LiteGraph) -> None:
    """Store 4-bit constants in two bits, in place, if they are between -2 and 1 and only a
    DEQUANTIZE or a CAST uses them.
    """
    users: dict[int, list[LiteOperator]] = {}
    for operator in graph.operators:
        for i in operator.inputs:
            users.setdefault(i, []).append(operator)
    for i, tensor in enumerate(graph.tensors):
        readers = users.get(i, [])
        if tensor.type != T.INT4 or tensor.data is None or i in graph.outputs:
            continue
        if any(o.builtin not in ("DEQUANTIZE", "CAST") for o in readers):
            continue
        packed = _packed(tensor)
        if packed.size and _TWO_BITS[packed[:4096]].all() and _TWO_BITS[packed].all():
            numbers = LazyTensor(packed, D.INT4, tensor.shape).numpy().astype(np.int8).reshape(-1)
            fields = np.pad(numbers & 3, (0, -numbers.size % 4)).reshape(-1, 4).astype(np.uint8)
            shifted = fields << np.array([0, 2, 4, 6], np.uint8)
            tensor.type, tensor.data = INT2, np.bitwise_or.reduce(shifted, axis=1)
            for operator in readers:
                if operator.builtin == "CAST":
                    operator.options["in_data_type"] = INT2


def _packed(tensor: LiteTensor) -> Array:
    data = tensor.data
    stored = data.stored() if isinstance(data, LazyTensor) else np.asarray(data)
    return np.ascontiguousarray(stored).reshape(-1).view(np.uint8)


def _strings(data: Array, tensor: LiteTensor) -> Array:
    """Return a buffer of strings: their count, count + 1 offsets, bytes."""
    if not data.size:
        return np.zeros(0, object)
    count = int(data[:4].view("<i4")[0]) if data.nbytes >= 4 else -1
    if count < 0 or data.nbytes < 8 + 4 * count:
        raise MappingError(f"strings of tensor {tensor.name!r} lie outside its buffer", "R103")
    ends = data[4 : 8 + 4 * count].view("<i4")
    if (np.diff(ends) < 0).any() or ends[0] < 0 or ends[-1] > data.nbytes:
        raise MappingError(f"strings of tensor {tensor.name!r} lie outside its buffer", "R103")
    pairs = itertools.pairwise(ends)
    return np.array([data[a:b].tobytes() for a, b in pairs], object)


# quantized values and real numbers ----------------------------------------------------------------


def zero_points(tensor: LiteTensor) -> Array:
    """Return the zero points in the tensor's own type, one for each scale."""
    dtype = type_of(tensor).numpy()
    numbers = np.asarray(tensor.zero_points or [0] * len(tensor.scales), np.int64)
    if len(numbers) not in (1, len(tensor.scales)) or (numbers != numbers.astype(dtype)).any():
        message = (
            f"the zero points {numbers[:4].tolist()} of tensor {tensor.name!r} are not supported"
        )
        raise MappingError(message, "R103")
    found: Array = np.broadcast_to(numbers, len(tensor.scales)).astype(dtype)
    return found


def is_by_axis(tensor: LiteTensor) -> bool:
    """Return whether a tensor has several scales, one for each index along an axis."""
    return len(tensor.scales) > 1


def tensor_quantization(tensor: LiteTensor) -> Quantization | None:
    """Return scales and zero points of a quantized tensor."""
    if not is_quantized(tensor):
        return None
    axis = tensor.axis if is_by_axis(tensor) else None
    return Quantization(tuple(tensor.scales), tuple(map(int, zero_points(tensor))), axis)


def dequantize_tensor(b: Builder, value: ir.Value, tensor: LiteTensor) -> ir.Value:
    """Return the real numbers of a value; a value without a scale stays as it is."""
    return dequantize(b, value, tensor_quantization(tensor))


def quantize_tensor(b: Builder, value: ir.Value, tensor: LiteTensor) -> ir.Value:
    """Return a result as the tensor stores it."""
    return quantize(b, value, type_of(tensor), tensor_quantization(tensor))
