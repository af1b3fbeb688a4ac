"""What the writers of legacy layers have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.infer import Array, constant, known, shape_of
from converter.mapping.codecs import number_text
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16)


def need(node: Node, index: int) -> ir.Value:
    value = node.input(index)
    if value is None:
        raise MappingError(f"input {index} is absent")
    return value


def static(value: ir.Value | None) -> list[int]:
    """The shape of a value; legacy ports have no unknown or zero dimensions."""
    shape = None if value is None else shape_of(value)
    if value is None or shape is None:
        raise MappingError("the target needs static shapes", "X203", "fix the inputs with --inputs NAME:1,3,224,224")
    return list(shape)


def array_of(node: Node, index: int, what: str) -> Array:
    """The constant that is input `index`."""
    array = constant(node.input(index))
    if array is None:
        raise MappingError(f"{what} must be constant: the target stores them with the layer")
    return array


def ints_of(node: Node, index: int, what: str) -> list[int]:
    array = known(node.input(index))
    if array is None:
        raise MappingError(f"{what} must be constant")
    return [int(v) for v in array.reshape(-1)]


def scalar_of(value: ir.Value | None) -> float | None:
    """The number of a constant with one element."""
    array = known(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 and array.dtype.kind in "fiu" else None


def is_float(value: ir.Value) -> bool:
    return value.dtype is None or value.dtype in FLOATS


def csv(values: Sequence[float | int]) -> str:
    return ",".join(str(v) if isinstance(v, int) else number_text(v) for v in values)


def const(low: Lowering, array: Any, name: str = "const") -> ir.Value:
    """A constant that becomes a Const layer in front of its user."""
    array = np.asarray(array)
    value = low.value(name, None, array.shape)
    value.const_value = ir.Tensor(array)
    value.type = ir.TensorType(value.const_value.dtype)
    return value


def ints(low: Lowering, values: Sequence[int]) -> ir.Value:
    return const(low, np.array(values, np.int64))


def step(low: Lowering, kind: str, inputs: Sequence[ir.Value | None], like: ir.Value, shape: Sequence[int], attrs: Any = None, blobs: Any = None) -> ir.Value:
    """A layer between two others; its result has the type of `like`."""
    out = low.value(kind.lower(), like.dtype, shape)
    low.add(kind, inputs, [out], attrs, blobs)
    return out


def reshaped(low: Lowering, value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """`value` in another shape: a constant is written in it, anything else through a Reshape layer."""
    if shape_of(value) == tuple(shape):
        return value
    producer = value.producer()
    if producer is not None and producer.op_type in ("Reshape", "Squeeze", "Unsqueeze") and not producer.domain:
        before = producer.inputs[0]
        if before is not None and shape_of(before) == tuple(shape):
            return before
    array = constant(value)
    if array is not None and value.const_value is not None:
        return const(low, array.reshape(shape), value.name or "const")
    if not shape:
        return step(low, "Squeeze", [value, ints(low, range(len(static(value))))], value, [])
    return step(low, "Reshape", [value, ints(low, shape)], value, shape)


def finish(low: Lowering, value: ir.Value, out: ir.Value) -> None:
    """Lets `value`, in the shape of `out`, be the node's output."""
    shape = static(out)
    if shape:
        low.add("Reshape", [value, ints(low, shape)], [out])
    else:
        value = value if static(value) else reshaped(low, value, [1])
        low.add("Squeeze", [value, ints(low, range(len(static(value))))], [out])


def widened(low: Lowering, value: ir.Value, rank: int) -> ir.Value:
    """Leading axes of length 1 up to `rank`: the engine broadcasts between equal ranks only."""
    shape = static(value)
    return reshaped(low, value, [1] * (rank - len(shape)) + shape)
