"""Computing what is constant although it is written as nodes: compact weights that some layer needs as plain numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import attrs_of
from converter.graph.infer import Array, constant, evaluate

_DEEPEST = 8
_FOLDABLE = {"Cast", "DequantizeLinear", "Add", "Sub", "Mul", "Div", "Neg", "Gather", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Concat"}


def is_constant(value: ir.Value | None, depth: int = 0) -> bool:
    """Whether `evaluate_constant` would give an array, told without computing anything."""
    if value is None or value.const_value is not None or constant(value) is not None:
        return value is not None
    node = value.producer()
    if node is None or depth > _DEEPEST or (node.op_type not in _FOLDABLE and node.op_type != "UnpackBits"):
        return False
    return bool(node.inputs) and all(v is None or is_constant(v, depth + 1) for v in node.inputs)


def evaluate_constant(value: ir.Value | None, depth: int = 0) -> Array | None:
    """The array of a value that depends on constants only; None for activations."""
    found = constant(value)
    if found is not None or value is None:
        return found
    node = value.producer()
    if node is None or depth > _DEEPEST or (node.op_type not in _FOLDABLE and node.op_type != "UnpackBits"):
        return None
    inputs = [evaluate_constant(v, depth + 1) if v is not None else None for v in node.inputs]
    if any(v is not None and a is None for v, a in zip(node.inputs, inputs, strict=True)):
        return None
    if node.op_type == "UnpackBits" and inputs[0] is not None:
        attrs = attrs_of(node)
        count = int(np.prod(attrs["shape"]))
        return None if attrs.get("order", "msb") != "msb" else unpack(inputs[0], int(attrs["bits"]))[:count].reshape(attrs["shape"])
    results = evaluate(node, inputs) if not node.domain else []
    return results[0] if results else None


def holds_numbers(node: ir.Node) -> bool:
    """Whether a node computes numbers or codes and not shapes: compact weights stay as they are, shape arithmetic is folded."""
    return any(o.dtype not in (ir.DataType.INT64, ir.DataType.BOOL) for o in node.outputs)


def unpack(packed: Array, bits: int) -> Array:
    """uint8 numbers of `bits` bits each, most significant bit first."""
    stream = np.unpackbits(np.ascontiguousarray(packed))
    whole = stream[: stream.size // bits * bits].reshape(-1, bits)
    return whole @ (1 << np.arange(bits - 1, -1, -1)).astype(np.uint8)
