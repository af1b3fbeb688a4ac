"""Nodes -> float layers, as for a float IR; layers with quantized weights know them, quantization
is written as separate layers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.constants import QuantizedConstant, quantized_constant
from converter.formats.zhouyi.quantization.quant_params import params_of_node
from converter.formats.zhouyi.quantization.weights import Made, StoredWeights
from converter.graph.infer import Array
from converter.mapping.lifting import FormatMapping
from converter.mapping.lowering import Lowering, view_of
from converter.mapping.node import Node

QUANTIZE, DEQUANTIZE = "(quantise)", "(dequantise)"
LINEAR = ("QuantizeLinear", "DequantizeLinear")


class QuantizedLowering(Lowering):
    """Lower a graph of QuantizeLinear and DequantizeLinear around float operators."""

    def __init__(self, mapping: FormatMapping) -> None:
        super().__init__(mapping)
        self.constants: dict[ir.Value, QuantizedConstant] = {}
        self._constants: dict[ir.Value, QuantizedConstant | None] = {}

    def constant_of(self, value: ir.Value | None) -> QuantizedConstant | None:
        """Return the quantized constant of a value, or None if it has none."""
        if value is None or value.producer() is None:
            return None
        if value not in self._constants:
            found = self._constants[value] = quantized_constant(value)
            if found is not None:
                self.constants[found.value] = found
        return self._constants[value]

    def reason(self, node: ir.Node) -> MappingError | None:
        """Return why `node` cannot be a float layer; quantization and constants before it need
        none.
        """
        mark = len(self.layers)
        try:
            self.lower(node)
        except MappingError as e:
            return e
        finally:
            del self.layers[mark:]
        return None

    def lower(self, node: ir.Node) -> None:
        if node.domain == "" and node.op_type in LINEAR:
            self._linear(node)
            return
        near, mark = view_of(node), len(self.layers)
        found = [self.constant_of(v) for v in near.inputs]
        if found and found[0] is not None and self.constant_of(node.outputs[0]) is not None:
            return
        numbers = [v if c is None else c.value for c, v in zip(found, near.inputs, strict=True)]
        self.name = name_of(node)
        self.lower_view(replace(near, inputs=numbers))
        for layer in self.layers[mark:]:
            if layer.extra is not None:
                raise MappingError("sub-graphs are not supported in an integer IR")
            layer.extra = Made(node)
        weights, biases = [*found, None, None, None][1:3]
        made = self.layers[mark:]
        if weights is not None and len(made) == 1 and "weights" in made[0].blobs:
            made[0].extra.stored = self._stored(near, weights, biases)

    def _linear(self, node: ir.Node) -> None:
        if self.constant_of(node.outputs[0]) is not None:
            return
        self.name = name_of(node)
        kind = QUANTIZE if node.op_type == "QuantizeLinear" else DEQUANTIZE
        held = self.constant_of(node.inputs[0])
        source = node.inputs[0] if held is None else held.value
        layer = self.add(kind, [source], node.outputs, extra=Made(node))
        layer.attrs["params"] = params_of_node(node)

    def _stored(
        self, near: Node, weights: QuantizedConstant, biases: QuantizedConstant | None
    ) -> StoredWeights:
        """Lower the integers, scales and zero points of the weights by the row for the real
        weights.
        """
        if near.op == "Gemm" and float(near.attrs.get("alpha", 1.0)) != 1.0:
            raise MappingError("alpha scales stored weights, which this layer does not have")
        parts = []
        for array in (weights.stored, weights.scales, weights.zeros):
            operands = [near.inputs[0], weights.as_float(array), *[None] * (len(near.inputs) - 2)]
            self.lower_view(replace(near, inputs=operands))
            parts.append(self.layers.pop().blobs["weights"])
        whole = np.asarray(parts[0]).astype(weights.stored.dtype)
        groups = int(near.attrs.get("group", 1)) if near.op == "ConvTranspose" else 1
        scales, zeros = (_rows(part, groups) for part in parts[1:])
        return StoredWeights(whole, scales, zeros.astype(np.int64), biases)


def name_of(node: ir.Node) -> str:
    """Return the name of a node's layer."""
    return node.metadata_props.get("netconv.layer") or node.name or node.op_type


def _rows(array: Array, groups: int) -> Array:
    """Return the number for each output channel; transposed weights have the rows of one group, the
    groups along the last axis.
    """
    pieces = np.stack(np.split(array, groups, axis=-1))
    flat = pieces.reshape(groups, pieces.shape[1], -1)
    if flat.size and np.any(flat != flat[..., :1]):
        raise MappingError("scales along an axis other than the output channels are not supported")
    return np.asarray(flat[..., 0]).reshape(-1)
