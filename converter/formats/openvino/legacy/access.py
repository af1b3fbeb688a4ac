"""What legacy layers have in common: attributes as text, types by precision, ports whose dimensions decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.infer import Array, constant, known, shape_of
from converter.mapping.codecs import float_of
from converter.mapping.node import Layer, MappingError

FLOAT, INT64, INT32, BOOL = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL

# precision -> type of the data; half precision is exposed as float by the engine, Q78 as 16-bit integers
PRECISIONS = {
    "FP32": FLOAT, "FP16": ir.DataType.FLOAT16, "I64": INT64, "I32": INT32, "I16": ir.DataType.INT16, "U16": ir.DataType.UINT16,
    "I8": ir.DataType.INT8, "U8": ir.DataType.UINT8, "BOOL": BOOL, "Q78": ir.DataType.INT16, "MIXED": FLOAT, "UNSPECIFIED": FLOAT, "": FLOAT,
}  # fmt: skip

LEGACY = "openvino.legacy"  # on nodes that were one layer before: its type. What that layer cannot do is nothing that they do


def marked(value: ir.Value, layer: Layer) -> ir.Value:
    """Marks the node that makes `value` as the whole of a legacy layer."""
    producer = value.producer()
    if producer is not None:
        producer.metadata_props[LEGACY] = layer.kind
    return value


def kind_before(value: ir.Value) -> str:
    """The type of the legacy layer that the node behind `value` was, or nothing."""
    producer = value.producer()
    return producer.metadata_props.get(LEGACY, "") if producer is not None else ""


def exposed(precision: str) -> ir.DataType:
    """The type in which a value of this precision is computed."""
    found = PRECISIONS.get(precision.upper())
    if found is None:
        raise MappingError(f"the precision {precision!r} is not known", "R110")
    return FLOAT if found == ir.DataType.FLOAT16 else found


def operand(layer: Layer, index: int = 0) -> ir.Value:
    value = layer.inputs[index] if index < len(layer.inputs) else None
    if value is None:
        raise MappingError(f"input {index} is absent", "R105")
    return value


def optional(layer: Layer, index: int) -> ir.Value | None:
    return layer.inputs[index] if index < len(layer.inputs) else None


def dims(layer: Layer, index: int = 0) -> tuple[int, ...]:
    """The declared dimensions of an output port: in legacy IR they decide, nothing is inferred again."""
    if index >= len(layer.outputs):
        raise MappingError(f"output port {index} is absent", "R105")
    shape = shape_of(layer.outputs[index])
    assert shape is not None
    return shape


def shape(value: ir.Value) -> tuple[int, ...]:
    found = shape_of(value)
    if found is None:
        raise MappingError(f"the shape of {value.name} is not static", "X203")
    return found


def text(layer: Layer, key: str, default: str | None = None) -> str:
    value = layer.attrs.get(key, default)
    if value is None:
        raise MappingError(f"required attribute {key!r} is absent", "R110")
    return str(value)


def number(layer: Layer, key: str, default: float | None = None) -> float:
    """A float as the engine reads it: inf and nan spelled out, a decimal comma is not one."""
    value = text(layer, key, None if default is None else str(default))
    try:
        return float_of(value)
    except ValueError:
        raise MappingError(f"{key}={value!r} is not a number", "R110") from None


def integer(layer: Layer, key: str, default: int | None = None) -> int:
    value = number(layer, key, default)
    if not _whole(value):
        raise MappingError(f"{key}={text(layer, key)!r} is not an integer", "R110")
    return int(value)


def _whole(value: float) -> bool:
    """Whether a float is an integer, exactly."""
    return math.isfinite(value) and value == int(value) and abs(value) <= 1 << 53


def flag(layer: Layer, key: str, default: bool = False) -> bool:
    value = text(layer, key, "1" if default else "0").strip().lower()
    if value in ("true", "1"):
        return True
    if value in ("false", "0", "-1"):
        return False
    raise MappingError(f"{key}={value!r} is neither true nor false", "R110")


def numbers(layer: Layer, key: str, default: Sequence[float] | None = None) -> list[float]:
    if key not in layer.attrs and default is not None:
        return list(default)
    try:
        return [float_of(v) for v in text(layer, key).replace(" ", "").split(",") if v]
    except ValueError:
        raise MappingError(f"{key}={text(layer, key)!r} is not a list of numbers", "R110") from None


def integers(layer: Layer, key: str, default: Sequence[int] | None = None) -> list[int]:
    found = numbers(layer, key, default)
    if not all(map(_whole, found)):
        raise MappingError(f"{key}={text(layer, key)!r} is not a list of integers", "R110")
    return [int(v) for v in found]


def blob(layer: Layer, name: str, count: int | None = None) -> Array | None:
    """The numbers of a blob as a flat float array; None when there is none. `count`: how many are needed."""
    array = layer.blobs.get(name)
    if array is None:
        return None
    if count is not None and array.size != count:
        raise MappingError(f"the blob {name!r} has {array.size} elements, {count} are needed", "R103")
    return np.asarray(array)


def weights(layer: Layer, name: str, wanted: Sequence[int]) -> Array:
    """The numbers of a blob in their shape; MappingError when it is absent or of another size."""
    array = blob(layer, name, int(np.prod(wanted)))
    if array is None:
        raise MappingError(f"the blob {name!r} is absent", "R110")
    return array.reshape(wanted)


def cast(b: Builder, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    """`value` as `dtype`; a number becomes true when it is not 0."""
    if value.dtype == dtype or value.dtype is None:
        return value
    array = constant(value)
    if array is not None and value.producer() is None and dtype != BOOL:
        return b.const(array.astype(dtype.numpy()), str(value.name))
    return b.op("Cast", value, to=int(dtype))


def as_int64(b: Builder, value: ir.Value) -> ir.Value:
    return cast(b, value, INT64)


def as_float(b: Builder, value: ir.Value) -> ir.Value:
    return cast(b, value, FLOAT)


def known_ints(value: ir.Value, what: str) -> list[int]:
    array = known(value)
    if array is None:
        raise MappingError(f"{what} must be constant")
    return [int(v) for v in array.reshape(-1)]


def axis_of(layer: Layer, rank: int, default: int | None = None, key: str = "axis") -> int:
    axis = integer(layer, key, default)
    if not -rank <= axis < rank:
        raise MappingError(f"{key}={axis} is outside of a tensor of rank {rank}", "R110")
    return axis % rank


def fit(b: Builder, value: ir.Value, wanted: Sequence[int]) -> ir.Value:
    """`value` in the declared shape; another number of elements is a contradiction in the file."""
    found = shape_of(value)
    if found == tuple(wanted):
        return value
    if found is not None and int(np.prod(found)) != int(np.prod(wanted)):
        raise MappingError(f"the output port declares {'x'.join(map(str, wanted))}, the layer gives {'x'.join(map(str, found))}", "R105")
    return b.op("Reshape", value, list(wanted))


def any_of(attributes: dict[str, Any], *keys: str) -> bool:
    return any(k in attributes for k in keys)
