"""The pairs that no row can say; lift_x and lower_x side by side."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.fields import as_ints, window
from converter.graph.build import Builder
from converter.graph.infer import known, shape_of
from converter.mapping.drive import Lowering, LowerSpecial
from converter.mapping.node import Layer, MappingError, Node

LIFT = {}
LOWER: dict[tuple[str, str], LowerSpecial] = {}


def operand(layer: Layer, index: int) -> ir.Value:
    value = layer.inputs[index] if index < len(layer.inputs) else None
    if value is None:
        raise MappingError(f"input {index} is absent", "R105")
    return value


def lift_transpose(layer: Layer, b: Builder) -> ir.Value:
    order = known(layer.inputs[1])
    if order is None:
        raise MappingError("the order of a Transpose must be known")
    return b.op("Transpose", operand(layer, 0), perm=as_ints(order) or None)


def lower_transpose(node: Node, low: Lowering) -> None:
    perm = node.attrs.get("perm") or list(range(len(shape_of(node.outputs[0]) or ())))[::-1]
    low.add("Transpose", [node.input(0), constant_input(low, np.array(perm, np.int64))], node.outputs)


def constant_input(low: Lowering, array: np.ndarray) -> ir.Value:
    """A constant that becomes a Const layer in front of the layer that uses it."""
    value = low.value("const", None, array.shape)
    value.const_value = ir.Tensor(array)
    value.type = ir.TensorType(value.const_value.dtype)
    return value


def lower_conv(node: Node, low: Lowering) -> None:
    """Conv is Convolution, or GroupConvolution with weights [G, O/G, I/G, k..]; a bias is an Add."""
    weights, bias, group = node.input(1), node.input(2), node.attrs.get("group", 1)
    shape = shape_of(weights) if weights is not None else None
    if weights is None or shape is None:
        raise MappingError("the shape of the weights must be static")
    layer = Layer("Convolution")
    window(kernel=False).lower(node, layer)
    kind = "Convolution"
    if group > 1:
        kind = "GroupConvolution"
        grouped = [group, shape[0] // group, *shape[1:]]
        if weights.const_value is not None:
            weights = constant_input(low, weights.const_value.numpy().reshape(grouped))
        else:
            reshaped = low.value("weights", weights.dtype, grouped)
            low.add("Reshape", [weights, constant_input(low, np.array(grouped, np.int64))], [reshaped], {"special_zero": "false"})
            weights = reshaped
    out = node.outputs[0]
    if bias is None:
        low.add(kind, [node.input(0), weights], [out], layer.attrs)
        return
    inner = low.value("conv", out.dtype, out.shape)
    low.add(kind, [node.input(0), weights], [inner], layer.attrs)
    spatial = [1] * (len(shape) - 2)
    if bias.const_value is not None:
        flat = constant_input(low, bias.const_value.numpy().reshape([1, shape[0], *spatial]))
    else:
        flat = low.value("bias", bias.dtype, [1, shape[0], *spatial])
        low.add("Reshape", [bias, constant_input(low, np.array([1, shape[0], *spatial], np.int64))], [flat], {"special_zero": "false"})
    low.add("Add", [inner, flat], [out], {"auto_broadcast": "numpy"})


LIFT["Transpose"] = lift_transpose
LOWER["", "Transpose"] = lower_transpose
LOWER["", "Conv"] = lower_conv
