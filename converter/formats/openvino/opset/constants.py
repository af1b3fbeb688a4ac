"""Const layers <-> tensors of the shared graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.ir import Blob, Layer, Port
from converter.formats.openvino.opset.codes import CODES, Coded, read_strings, write_strings
from converter.formats.openvino.opset.fields import ELEMENT_TYPES
from converter.formats.openvino.types import ELEMENT_TYPES as SIZES
from converter.mapping.codecs import csv
from converter.mapping.node import MappingError

DATA_TYPES = {name: ir.DataType(number) for number, name in ELEMENT_TYPES.items()}
NAMES = {d: name for name, d in DATA_TYPES.items()}


STORED = "netconv.weights"  # the model's note that its weights are stored in half precision: f16 or bf16
HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
HALF = "openvino.half"  # key of a value's notes: the half-precision type that the file gives it, while it is computed as float32


def computed(dtype: ir.DataType) -> ir.DataType:
    """The type in which values are computed: half precision is for storage and for the network's inputs and outputs, as in the runtime."""
    return ir.DataType.FLOAT if dtype in HALVES else dtype


def precision(dtype: ir.DataType | None) -> str:
    """A port's spelling of a type: FP32, I64, BOOL, ..."""
    name = NAMES.get(dtype or ir.DataType.FLOAT)
    if name is None:
        raise MappingError(f"the type {dtype} has no counterpart")
    return "STRING" if name == "string" else SIZES[name].precision


def read_const(layer: Layer) -> ir.TensorProtocol:
    """The tensor of a Const layer: a view of the .bin; 4-bit types stay packed (low nibble first, as in ONNX), halves become float32 when used."""
    name, shape = layer.data.get("element_type", ""), csv.lift(layer.data.get("shape", ""))
    dtype = DATA_TYPES.get(name)
    raw = layer.blobs["value"].array if "value" in layer.blobs else np.empty(0, np.uint8)
    if name in CODES:
        return Coded(name, raw, shape, layer.name)
    if dtype is None:
        raise MappingError(f"constants of element type {name!r} have no counterpart", "X201")
    if dtype == ir.DataType.STRING:
        try:
            return read_strings(raw, shape)
        except ValueError as e:
            raise MappingError(str(e), "R103") from None
    if dtype.bitwidth < 8:
        return ir.PackedTensor(raw, dtype, shape=ir.Shape(shape))
    # every byte but 0 is true, which is written as 1
    array = (raw != 0 if dtype == ir.DataType.BOOL and raw.size and raw.max() > 1 else raw.view(dtype.numpy())).reshape(shape)
    if dtype not in HALVES:
        return ir.Tensor(array, dtype)
    wide = computed(dtype)
    return ir.LazyTensor(lambda: ir.Tensor(array.astype(wide.numpy())), dtype=wide, shape=ir.Shape(shape), name=layer.name)


def write_const(id: int, name: str, tensor: ir.TensorProtocol) -> Layer:
    """A Const layer; the bytes are taken from the tensor when the file is written."""
    shape = [int(d) for d in tensor.shape.numpy()]
    element = tensor.element if isinstance(tensor, Coded) else NAMES.get(tensor.dtype)
    if element is None:
        raise MappingError(f"constants of type {tensor.dtype} have no counterpart")
    shown = SIZES[element].precision if isinstance(tensor, Coded) else precision(tensor.dtype)
    data = {"element_type": element, "shape": ", ".join(map(str, shape))}
    content: Any
    if tensor.dtype == ir.DataType.STRING:
        content = write_strings(tensor)
    elif isinstance(tensor, Coded):
        content = tensor.packed
    else:
        content = tensor.tobytes if tensor.dtype.bitwidth < 8 else tensor.numpy()
    return Layer(id, name, "Const", "opset1", data=data, outputs=[Port(0, tuple(shape), shown)], blobs={"value": Blob(content)})
