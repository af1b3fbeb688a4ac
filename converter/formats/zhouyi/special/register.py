"""Where special pairs are entered, and what they share: operands, keys, types that the format lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph import CHANNELS_LAST_DOMAIN
from converter.graph.build import Builder
from converter.graph.infer import Array, constant, shape_of
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node
from converter.mapping.pairs import Pairs

LARGEST = 1 << 63
PAIRS = Pairs()
LIFT, LOWER, lifts, lowers = PAIRS.lift, PAIRS.lower, PAIRS.lifts, PAIRS.lowers


def operand(layer: Layer | Node, index: int = 0) -> ir.Value:
    value = layer.inputs[index] if index < len(layer.inputs) else None
    if value is None:
        raise MappingError(f"input {index} is absent", "R105")
    return value


def need(layer: Layer, key: str, default: Any = None) -> Any:
    value = layer.attrs.get(key, default)
    if value is None:
        raise MappingError(f"required attribute {key!r} is absent", "R110")
    return value


def need_int(layer: Layer, key: str, default: int | None = None) -> int:
    value = need(layer, key, default)
    if not isinstance(value, int) or not -LARGEST <= value < LARGEST:
        raise MappingError(f"{key}={str(value)[:60]} is not an integer of 64 bits", "R110")
    return int(value)


def need_number(layer: Layer, key: str, default: float | None = None) -> float:
    value = need(layer, key, default)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise MappingError(f"{key}={value!r} is not a number", "R110")
    return float(value)


def need_ints(layer: Layer, key: str, default: Sequence[int] | None = None) -> list[int]:
    value = need(layer, key, default)
    value = [value] if isinstance(value, int) else value
    if not isinstance(value, list | tuple | range) or not all(isinstance(v, int) and -LARGEST <= v < LARGEST for v in value):
        raise MappingError(f"{key}={str(value)[:200]} is not a list of integers of 64 bits", "R110")
    return [int(v) for v in value]


def choose(layer: Layer, key: str, table: dict[str, Any], default: str | None = None) -> Any:
    """The canonical counterpart of a word; words are compared in upper case."""
    value = str(need(layer, key, default)).upper()
    if value not in table:
        raise MappingError(f"{key}={value} has no counterpart (known: {', '.join(table)})", "R110")
    return table[value]


def blob(layer: Layer, name: str) -> Array:
    array = layer.blobs.get(name)
    if array is None:
        raise MappingError(f"the constant {name!r} is absent", "R110")
    return np.asarray(array)


def static(value: ir.Value) -> tuple[int, ...]:
    shape = shape_of(value)
    if shape is None:
        raise MappingError(f"the shape of {value.name} must be static", "X203")
    return shape


def fixed(node: Node, index: int, what: str) -> Array:
    """The array of a constant input; refused where it is computed or left out."""
    array = constant(node.input(index))
    if array is None:
        raise MappingError(f"{what} must be constant: the target stores {what} with the layer")
    return array


def twin(b: Builder, op: str, *inputs: Any, outputs: int = 1, base: str = "", **attrs: Any) -> tuple[ir.Value, ...]:
    """An operator whose data are stored N, spatial..., C."""
    more = {"base_domain": base} if base else {}
    return b.ops(op, *inputs, domain=CHANNELS_LAST_DOMAIN, outputs=outputs, **attrs, **more)


def cast_of(b: Builder, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    """`value` in a type that the format lacks. A value that was cast from that type on the way in is taken from before its Cast."""
    if value.dtype == dtype:
        return value
    array = constant(value)
    if array is not None:
        return b.const((array != 0) if dtype == ir.DataType.BOOL else array.astype(dtype.numpy()), str(value.name))
    node = value.producer()
    if node is not None and node.op_type == "Cast" and node.domain == "" and node.inputs[0] is not None and node.inputs[0].dtype == dtype:
        return node.inputs[0]
    return b.op("Cast", value, to=int(dtype))


def truth_of(b: Builder, value: ir.Value) -> ir.Value:
    return cast_of(b, value, ir.DataType.BOOL)


def index_of(b: Builder, value: ir.Value) -> ir.Value:
    return cast_of(b, value, ir.DataType.INT64)


def places(b: Builder, value: ir.Value) -> ir.Value:
    """Indices of a type that look-ups take: small integers become int32."""
    return value if value.dtype in (ir.DataType.INT32, ir.DataType.INT64) else b.op("Cast", value, to=int(ir.DataType.INT32))


def constant_value(low: Lowering, array: Array, name: str = "const") -> ir.Value:
    """A constant that becomes a Constant layer."""
    value = low.value(name, None, array.shape)
    value.const_value = ir.Tensor(np.asarray(array))
    value.type = ir.TensorType(value.const_value.dtype)
    return value


def declared_types(layer: Layer, b: Builder, values: Sequence[ir.Value]) -> list[ir.Value]:
    """Results in the types that the file declares: counts and numbers of boxes are floats in some files, integers in others."""
    result = []
    for value, out in zip(values, [*layer.outputs, *values[len(layer.outputs) :]], strict=False):
        result.append(value if out.dtype in (None, value.dtype) else b.op("Cast", value, to=int(out.dtype)))
    return result
