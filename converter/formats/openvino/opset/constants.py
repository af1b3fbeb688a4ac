"""Const layers <-> tensors of the shared graph."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.ir import Layer, Port
from converter.formats.openvino.opset.codes import (
    CODES,
    code_of,
    coded,
    read_strings,
    write_strings,
)
from converter.formats.openvino.opset.rules.context import ELEMENT_TYPES
from converter.formats.openvino.opset.rules.fields import HALVES
from converter.formats.openvino.opset.rules.fields import computed as computed
from converter.formats.openvino.types import ELEMENT_TYPES as SIZES
from converter.graph.lazy_tensor import Converted, LazyTensor
from converter.mapping.codecs import csv

DATA_TYPES = {name: ir.DataType(number) for number, name in ELEMENT_TYPES.items()}
NAMES = {d: name for name, d in DATA_TYPES.items()}


def precision(dtype: ir.DataType | None) -> str:
    """Return a port's spelling of a type: FP32, I64, BOOL, ..."""
    name = NAMES.get(dtype or ir.DataType.FLOAT)
    if name is None:
        raise MappingError(f"type {dtype} is not supported")
    return "STRING" if name == "string" else SIZES[name].precision


def read_const(layer: Layer) -> ir.TensorProtocol:
    """Return the tensor of a Const layer: a view of the .bin; 4-bit types stay packed (low nibble
    first, as in ONNX), halves become float32 when used.
    """
    name, shape = layer.data.get("element_type", ""), csv.lift(layer.data.get("shape", ""))
    dtype = DATA_TYPES.get(name)
    raw = layer.blobs["value"].bytes() if "value" in layer.blobs else np.empty(0, np.uint8)
    if name in CODES:
        return coded(name, raw, shape, layer.name)
    if dtype is None:
        raise MappingError(f"constants of element type {name!r} are not supported", "X201")
    if dtype == ir.DataType.STRING:
        try:
            return read_strings(raw, shape)
        except ValueError as e:
            raise MappingError(str(e), "R103") from None
    if dtype.bitwidth < 8:
        return LazyTensor(raw, dtype, shape, layer.name)
    # every byte but 0 is true, which is written as 1
    array = (
        raw != 0
        if dtype == ir.DataType.BOOL and raw.size and raw.max() > 1
        else raw.view(dtype.numpy())
    )
    stored = LazyTensor(array.reshape(shape), dtype, name=layer.name)
    if dtype not in HALVES:
        return stored
    wide = computed(dtype)
    return stored.derived(Converted(wide), wide)


def write_const(id: int, name: str, tensor: ir.TensorProtocol) -> Layer:
    """Write a Const layer; the bytes are read from the tensor when the file is written."""
    shape = [int(d) for d in tensor.shape.numpy()]
    element = code_of(tensor) or NAMES.get(tensor.dtype)
    if element is None:
        raise MappingError(f"constants of type {tensor.dtype} are not supported")
    shown = SIZES[element].precision if code_of(tensor) else precision(tensor.dtype)
    text = tensor.dtype == ir.DataType.STRING
    return Layer(
        id,
        name,
        "Const",
        "opset1",
        data={"element_type": element, "shape": ", ".join(map(str, shape))},
        outputs=[Port(0, tuple(shape), shown)],
        blobs={"value": write_strings(tensor) if text else LazyTensor.of(tensor)},
    )


def quantizes(node: ir.Node) -> bool:
    """Return whether a node computes quantized weights, or moves them: their integers must be
    preserved.
    """
    if node.op_type == "FakeQuantize":
        return True
    producer = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
    return (
        node.op_type in ("Reshape", "Transpose", "Cast")
        and producer is not None
        and quantizes(producer)
    )
