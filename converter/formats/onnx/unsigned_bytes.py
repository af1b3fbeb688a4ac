"""Write signed quantized bytes as unsigned ones, whose products onnxruntime's kernels do not
saturate.

before:  QuantizeLinear(x, z: int8) -> DequantizeLinear -> Conv(.., DequantizeLinear(w: int8))
after:   QuantizeLinear(x, z + 128: uint8) -> DequantizeLinear -> Conv(.., DequantizeLinear(w'))
         where w' = w + 128 is uint8

On processors with AVX2 and without VNNI, onnxruntime multiplies by signed weights with sums of 16
bits that saturate (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html).
The numbers are the same, so that nothing else changes.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, builder_before
from converter.graph.infer import constant
from converter.graph.names import Names
from converter.graph.value import optional, producer_if
from converter.graph.walk import all_graphs
from converter.passes.dead_code import remove_unread_initializers, unread_initializers
from converter.passes.pipeline import Context

_INT8, _UINT8 = ir.DataType.INT8, ir.DataType.UINT8
_PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm")


def write_unsigned(model: ir.Model) -> None:
    """Make quantized activations and weights unsigned, in place: QuantizeLinear, DequantizeLinear
    and constants.
    """
    names = Names(model)
    if not any(_signed_weights(n) for g in all_graphs(model.graph) for n in g):
        return
    unread = unread_initializers(model)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            if node.op_type == "QuantizeLinear" and not node.domain and _is_signed(node, 0, True):
                _pair(node, names)
            elif _gives_data(node):
                _requantize(node.outputs[0], node, names)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            if _signed_weights(node):
                _unsigned_weights(node, names)
    remove_unread_initializers(model, unread)


def _signed_weights(node: ir.Node) -> bool:
    """Return whether a node dequantizes signed weights of a product."""
    if node.op_type != "DequantizeLinear" or node.domain:
        return False
    stored, zero = optional(node, 0), optional(node, 2)
    points = None if zero is None else constant(zero)
    return (
        stored is not None
        and stored.dtype == _INT8
        and stored.const_value is not None
        and not stored.is_graph_output()
        and all(u.node.op_type == "DequantizeLinear" and u.idx == 0 for u in stored.uses())
        and (zero is None or (points is not None and not points.any()))
        and any(u.node.op_type in _PRODUCTS and not u.node.domain for u in node.outputs[0].uses())
    )


def _is_signed(node: ir.Node, index: int, output: bool) -> bool:
    """Return whether a node quantizes to, or dequantizes from, int8 with a known zero point."""
    value = node.outputs[0] if output else optional(node, index)
    zero = optional(node, 2)
    known = zero is None or constant(zero) is not None
    return (
        value is not None and value.dtype == _INT8 and known and "block_size" not in node.attributes
    )


def _pair(node: ir.Node, names: Names) -> None:
    """Make the result of a QuantizeLinear unsigned, if only DequantizeLinear reads it."""
    value = node.outputs[0]
    readers = [u.node for u in value.uses()]
    if value.is_graph_output() or not readers:
        if (source := node.inputs[0]) is not None and source.producer() is not None:
            _requantize(source, node, names, only=node)
        return
    for reader in readers:
        if (
            reader.op_type != "DequantizeLinear"
            or reader.domain
            or not _is_signed(reader, 0, False)
        ):
            return
    for each in (node, *readers):
        _shift(each, names)
    node.attributes.pop("output_dtype", None)
    value.type = ir.TensorType(_UINT8)


def _gives_data(node: ir.Node) -> bool:
    """Return whether a node dequantizes signed data of a product that no QuantizeLinear makes."""
    stored = optional(node, 0)
    if node.op_type != "DequantizeLinear" or node.domain or not _is_signed(node, 0, False):
        return False
    if stored is None or stored.const_value is not None or producer_if(stored, "QuantizeLinear"):
        return False
    uses = node.outputs[0].uses()
    return any(u.node.op_type in _PRODUCTS and not u.node.domain for u in uses)


def _requantize(value: ir.Value, like: ir.Node, names: Names, only: ir.Node | None = None) -> None:
    """Quantize a value to unsigned bytes and back, with the scale of `like`; its consumers (or
    `only`) read the same numbers.
    """
    users = [(u.node, u.idx) for u in value.uses() if only in (None, u.node)]
    if value.is_graph_output() or any(user.graph is not like.graph for user, _ in users):
        return
    readers = {user for user, _ in users}
    assert isinstance(like.graph, ir.Graph)
    first = next(n for n in like.graph if n in readers)
    b = builder_before(first, names)
    scale = optional(like, 1)
    zero = optional(like, 2)
    old = np.zeros((), np.int8) if zero is None else np.asarray(constant(zero))
    points = b.const((old.astype(np.int16) + 128).astype(np.uint8), "zero_point")
    same = b.DequantizeLinear(b.QuantizeLinear(value, scale, points), scale, points)
    for user, index in users:
        user.replace_input_with(index, same)


def _shift(node: ir.Node, names: Names) -> None:
    """Add 128 to the zero point of a node, as an unsigned byte."""
    b = builder_before(node, names)
    zero = optional(node, 2)
    scale = optional(node, 1)
    old = np.zeros((), np.int8) if zero is None else np.asarray(constant(zero))
    if zero is None and scale is not None and scale.shape is not None and len(scale.shape):
        old = np.zeros([int(d) for d in scale.shape], np.int8)  # type: ignore[arg-type]
    _set_zero(node, b, (old.astype(np.int16) + 128).astype(np.uint8))


def _set_zero(node: ir.Node, b: Builder, points: np.ndarray) -> None:
    value = b.const(points, "zero_point")
    if len(node.inputs) > 2:
        node.replace_input_with(2, value)
    else:
        node.resize_inputs(3)
        node.replace_input_with(2, value)


def _unsigned_weights(node: ir.Node, names: Names) -> None:
    """Store weights as unsigned bytes, for all DequantizeLinear that read them."""
    stored = node.inputs[0]
    if stored is None or stored.const_value is None or stored.dtype != _INT8:
        return  # changed with another reader
    readers = [u.node for u in stored.uses()]
    if not all(map(_signed_weights, readers)) or not all(map(_signed_data, readers)):
        return
    b = builder_before(node, names)
    moved = stored.const_value.numpy().view(np.uint8) ^ np.uint8(128)
    fresh = b.const(moved, str(stored.name))
    stored.replace_all_uses_with(fresh)
    for reader in readers:
        _shift(reader, names)


def _signed_data(node: ir.Node) -> bool:
    """Return whether no product combines the weights with data that are still signed, which no
    kernel accepts.
    """
    for use in node.outputs[0].uses():
        data = optional(use.node, 1 - use.idx if use.idx < 2 else 0)
        source = producer_if(data, "DequantizeLinear")
        if use.node.op_type not in _PRODUCTS or source is None:
            return False
        if source.inputs[0] is None or source.inputs[0].dtype != _UINT8:
            return False
    return True


def unsigned_bytes(model: ir.Model, context: Context) -> None:
    """Apply the pass; see `write_unsigned`."""
    write_unsigned(model)
