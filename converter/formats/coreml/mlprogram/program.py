"""Operations -> the protobuf message of a program, and its storage of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, UnsupportedError
from converter.formats.coreml.mlprogram.blobs import NewBlobs
from converter.formats.coreml.mlprogram.collector import COMPRESSED, MilLowering
from converter.formats.coreml.mlprogram.names import Identifiers
from converter.formats.coreml.mlprogram.operations import FLOATS
from converter.graph.infer import Array
from converter.graph.lazy_tensor import Converted, LazyTensor
from converter.mapping.lowering import layer_refusal
from converter.mapping.narrow import narrow_array
from converter.mapping.node import Layer

D = ir.DataType
CODES = {
    **{D.BOOL: 1, D.STRING: 2, D.FLOAT16: 10, D.FLOAT: 11, D.INT32: 23, D.INT64: 24},
    **{D.INT8: 21, D.UINT8: 31, D.INT4: 25, D.UINT4: 35, D.UINT32: 33},
}
WEIGHTS = "@model_path/weights/weight.bin"
STORED = (D.FLOAT16, D.FLOAT, D.INT8, D.UINT8, D.INT4, D.UINT4)  # types that iOS15 can store
IMMEDIATE = 10  # constants with at least so many elements are in the storage
_FIELDS = {D.BOOL: "bools", D.FLOAT: "floats", D.INT32: "ints", D.INT64: "longInts"}


def set_tensor_type(message: Any, dtype: ir.DataType, shape: Sequence[Any]) -> None:
    """Fill in a tensor type; sizes that are not integers are unknown."""
    message.dataType, message.rank = CODES[dtype], len(shape)
    for size in shape:
        dimension = message.dimensions.add()
        if isinstance(size, int):
            dimension.constant.size = size
        else:
            dimension.unknown.variadic = False


class ProgramWriter:
    """Write the messages of one function, with names for its values. Constants are written before
    their first user in each block.
    """

    def __init__(self, low: MilLowering, blobs: NewBlobs) -> None:
        self.low, self.blobs = low, blobs
        self.names, self.operation_names = Identifiers(), Identifiers()
        self.named: dict[ir.Value, str] = {}

    def name(self, value: ir.Value) -> str:
        """Return the name of a value in the program."""
        if value not in self.named:
            self.named[value] = self.names.fresh(value.name or "value")
        return self.named[value]

    def value_type(self, message: Any, value: ir.Value, dtype: ir.DataType | None = None) -> None:
        """Fill in the type of a value. Raise MappingError X203 if the rank is unknown."""
        if value.shape is None:
            message_ = f"the rank of {value.name} is unknown"
            raise MappingError(message_, "X203", "fix the shapes with --inputs")
        shape = list(value.shape)
        set_tensor_type(message.tensorType, dtype or self.low.carried(value), shape)

    def block(self, message: Any, layers: Sequence[Layer], outputs: Sequence[ir.Value]) -> None:
        """Fill in a block: its constants, operations and outputs."""
        here: set[ir.Value] = set()
        for layer in layers:
            try:
                self._layer(message, layer, here)
            except MappingError as e:
                raise UnsupportedError(layer_refusal(layer, e)) from None
        message.outputs.extend(self.name(v) for v in outputs)
        for value in here:  # other blocks do not see it
            del self.named[value]

    def _layer(self, message: Any, layer: Layer, here: set[ir.Value]) -> None:
        for given in layer.attrs.values():
            for one in given if isinstance(given, list | tuple) else (given,):
                if isinstance(one, ir.Value) and one.const_value is not None:
                    self._constant(message, one, here)
        self._operation(message, layer)

    def _constant(self, block: Any, value: ir.Value, here: set[ir.Value]) -> None:
        """Write a constant as an operation, in the first block that uses it."""
        if value in here or value in self.named:
            return
        here.add(value)
        assert value.const_value is not None
        operation = block.operations.add(type="const")
        name = self.name(value)
        set_word(operation.attributes["name"], name)
        self.set_value(operation.attributes["val"], value.const_value)
        out = operation.outputs.add(name=name)
        out.type.CopyFrom(operation.attributes["val"].type)

    def _operation(self, block: Any, layer: Layer) -> None:
        operation = block.operations.add(type=layer.kind)
        set_word(operation.attributes["name"], self.operation_names.fresh(layer.name or layer.kind))
        real = self._real(layer)
        old = layer.kind.startswith(COMPRESSED) and self.low.version < 9
        for key in layer.attrs:
            if old:
                self.set_parameter(operation.attributes[key], layer.attrs[key], real)
                continue
            given = layer.attrs[key]
            argument = operation.inputs[key]
            several = isinstance(given, tuple) or (
                isinstance(given, list) and any(isinstance(g, ir.Value) for g in given)
            )
            for one in given if several else (given,):
                binding = argument.arguments.add()
                if isinstance(one, ir.Value):
                    binding.name = self.name(one)
                else:
                    self.set_parameter(binding.value, one, real)
        for value in layer.outputs:
            out = operation.outputs.add(name=self.name(value))
            self.value_type(out.type, value)
        for layers, inputs, outputs in layer.extra or ():
            inner = operation.blocks.add()
            for value in inputs:
                given = inner.inputs.add(name=self.name(value))
                self.value_type(given.type, value)
            self.block(inner, layers, outputs)

    def _real(self, layer: Layer) -> ir.DataType:
        """Return the type of numbers that are parameters: the floating-point type of the first
        operand that has one.
        """
        for given in layer.attrs.values():
            one = given[0] if isinstance(given, list | tuple) and given else given
            if isinstance(one, ir.Value) and one.dtype in FLOATS:
                return self.low.carried(one)
        return D.FLOAT16 if self.low.half else D.FLOAT

    def set_parameter(self, message: Any, given: Any, real: ir.DataType) -> None:
        """Set a parameter that is not a value of the graph; Python numbers without type are of the
        type `real`, or 32-bit integers.
        """
        if isinstance(given, str):
            set_word(message, given)
        elif isinstance(given, ir.Value):
            assert given.const_value is not None
            self.set_value(message, given.const_value)
        elif isinstance(given, np.ndarray | np.generic):
            self._array(message, np.asarray(given))
        elif isinstance(given, ir.TensorProtocol):
            self._stored(message, LazyTensor.of(given))
        else:
            array = np.asarray(given)
            dtype = {"i": D.INT32, "f": real, "b": D.BOOL}[array.dtype.kind]
            self._array(message, narrow_array(array, dtype.numpy(), "a parameter"))

    def set_value(self, message: Any, tensor: ir.TensorProtocol) -> None:
        """Fill in a constant of the graph, in the type in which it is written."""
        dtype = carried_constant(tensor, self.low)
        if dtype == tensor.dtype and dtype in STORED and tensor.size >= IMMEDIATE:
            self._stored(message, LazyTensor.of(tensor))
            return
        name = tensor.name or "a constant"
        if tensor.dtype == D.INT64:
            tensor = LazyTensor.of(tensor).derived(ends_of_ranges)
        if tensor.size < IMMEDIATE or dtype not in STORED:
            self._array(message, narrow_array(tensor.numpy(), dtype.numpy(), name))
            return
        narrow_array(tensor.numpy(), dtype.numpy(), name)  # whether every number survives
        self._stored(message, LazyTensor.of(tensor).derived(Converted(dtype), dtype))

    def _stored(self, message: Any, tensor: LazyTensor) -> None:
        dtype = tensor.dtype
        set_tensor_type(message.type.tensorType, dtype, tensor.shape.numpy())
        message.blobFileValue.fileName = WEIGHTS
        message.blobFileValue.offset = self.blobs.add(tensor, CODES[dtype])

    def _array(self, message: Any, array: Array) -> None:
        """Return an array in a type that programs support; small ones are immediate."""
        dtype = D.from_numpy(array.dtype)
        if dtype in STORED and array.size >= IMMEDIATE:
            self._stored(message, LazyTensor(array, dtype))
            return
        set_tensor_type(message.type.tensorType, dtype, array.shape)
        tensor = message.immediateValue.tensor
        if dtype in _FIELDS:
            getattr(tensor, _FIELDS[dtype]).values.extend(array.reshape(-1).tolist())
            getattr(tensor, _FIELDS[dtype]).SetInParent()
        else:
            tensor.bytes.values = packed(array)


def ends_of_ranges(array: Array) -> Array:
    """Replace the limits of int64 by those of int32, which mean "to the end" of ranges."""
    ends, own = np.iinfo(np.int64), np.iinfo(np.int32)
    array = np.where(array == ends.max, own.max, array)
    return np.where(array <= ends.min + 1, own.min + 1, array)


def carried_constant(tensor: ir.TensorProtocol, low: MilLowering) -> ir.DataType:
    """Return the type that a constant is written with. Raises MappingError for strings."""
    if tensor.dtype == D.STRING:
        raise MappingError("constant strings are not supported")
    value = ir.Value(type=ir.TensorType(tensor.dtype))
    return low.carried(value)


def set_word(message: Any, word: str) -> None:
    """Fill in a value that is a string."""
    message.type.tensorType.dataType = CODES[D.STRING]
    message.immediateValue.tensor.strings.values.append(word)


def packed(array: Array) -> bytes:
    """Return elements as they are stored: two 4-bit numbers per byte, the first in the low half."""
    if array.dtype in (ml_dtypes.int4, ml_dtypes.uint4):
        return ir.Tensor(array).tobytes()
    return np.ascontiguousarray(array).tobytes()
