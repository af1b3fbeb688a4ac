"""Nodes -> float layers, as for a float IR; layers with stored weights know them, quantisation stands as layers of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.integer.grids import Grid
from converter.formats.zhouyi.quantised.held import Held, held
from converter.graph.build import attrs_of
from converter.graph.infer import Array, constant
from converter.mapping.drive import FormatMapping, Lowering, near_of
from converter.mapping.node import Layer, MappingError, Node

QUANTIZE, DEQUANTIZE = "(quantise)", "(dequantise)"
LINEAR = ("QuantizeLinear", "DequantizeLinear")


@dataclass(eq=False)
class Stored:
    """The weights of one layer in the format's order: integers, and a step and a zero point for each output channel."""

    weights: Array
    scales: Array
    zeros: Array
    biases: Held | None


@dataclass(eq=False)
class Made:
    """What a float layer was made from."""

    node: ir.Node
    stored: Stored | None = None


class QuantisedLowering(Lowering):
    """Lowers a graph of QuantizeLinear and DequantizeLinear around float operators."""

    def __init__(self, mapping: FormatMapping) -> None:
        super().__init__(mapping)
        self.constants: dict[ir.Value, Held] = {}
        self._held: dict[ir.Value, Held | None] = {}

    def held(self, value: ir.Value | None) -> Held | None:
        if value is None or value.producer() is None:
            return None
        if value not in self._held:
            found = self._held[value] = held(value)
            if found is not None:
                self.constants[found.value] = found
        return self._held[value]

    def reason(self, node: ir.Node) -> MappingError | None:
        """Why `node` cannot be a float layer; quantisation and constants behind it need none."""
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
        near = near_of(node)
        found = [self.held(v) for v in near.inputs]
        if found and found[0] is not None and self.held(node.outputs[0]) is not None:
            return
        mark = len(self.layers)
        self._near(node, near, [h.value if h is not None else v for h, v in zip(found, near.inputs, strict=True)])
        for layer in self.layers[mark:]:
            if layer.extra is not None:
                raise MappingError("sub-graphs have no place in an integer IR")
            layer.extra = Made(node)
        weights = found[1] if len(found) > 1 else None
        if weights is not None and len(self.layers) == mark + 1 and "weights" in self.layers[mark].blobs:
            self.layers[mark].extra.stored = self._stored(node, near, weights, found[2] if len(found) > 2 else None)

    def _near(self, node: ir.Node, near: Node, inputs: list[ir.Value | None]) -> None:
        self._name = node.metadata_props.get("netconv.layer") or node.name or node.op_type
        self.lower_near(Node(near.op, near.domain, dict(near.attrs), inputs, near.outputs, near.last))

    def _linear(self, node: ir.Node) -> None:
        if self.held(node.outputs[0]) is not None:
            return
        self._name = node.metadata_props.get("netconv.layer") or node.name or node.op_type
        kind = QUANTIZE if node.op_type == "QuantizeLinear" else DEQUANTIZE
        layer = self.add(kind, [node.inputs[0]], node.outputs, extra=Made(node))
        layer.attrs["grid"] = grid_of(node)

    def _stored(self, node: ir.Node, near: Node, weights: Held, biases: Held | None) -> Stored:
        """The row that places the numbers of the weights places their integers, steps and zero points as well."""
        if near.op == "Gemm" and float(near.attrs.get("alpha", 1.0)) != 1.0:
            raise MappingError("alpha is a factor of stored weights, which have none")
        parts = []
        for array in (weights.stored, weights.scales, weights.zeros):
            mark = len(self.layers)
            self._near(node, near, [near.inputs[0], weights.as_float(array), *[None] * (len(near.inputs) - 2)])
            parts.append(self.layers.pop(mark).blobs["weights"])
        whole = np.asarray(parts[0]).astype(weights.stored.dtype)
        groups = int(near.attrs.get("group", 1)) if near.op == "ConvTranspose" else 1
        return Stored(whole, _rows(parts[1], groups), _rows(parts[2], groups).astype(np.int64), biases)


def _rows(array: Array, groups: int) -> Array:
    """The one number of each output channel; transposed weights hold the rows of one group, the groups along the last axis."""
    pieces = np.stack(np.split(array, groups, axis=-1))
    flat = pieces.reshape(groups, pieces.shape[1], -1)
    if flat.size and np.any(flat != flat[..., :1]):
        raise MappingError("scales along another axis than the output channels have no counterpart")
    return np.asarray(flat[..., 0]).reshape(-1)


def grid_of(node: ir.Node) -> Grid:
    """The grid of a QuantizeLinear or DequantizeLinear of an activation; MappingError when it has several or is computed."""
    scale = constant(node.inputs[1])
    given: Any = node.inputs[2] if len(node.inputs) > 2 else None
    zero = np.zeros(1, np.int64) if given is None else constant(given)
    stored = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    if scale is None or zero is None or stored is None or stored.dtype is None:
        raise MappingError("scale and zero point must be constant")
    if scale.size != 1 or attrs_of(node).get("block_size", 0):
        raise MappingError("an activation with several scales has no counterpart")
    if not stored.dtype.is_integer() or stored.dtype.bitwidth not in (8, 16, 32):
        raise MappingError(f"{stored.dtype.name} has no counterpart", "X201")
    if not float(scale.reshape(-1)[0]) > 0:
        raise MappingError(f"the scale {scale.reshape(-1)[0]} is not positive")
    return Grid.of(float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]), stored.dtype)


def made(layer: Layer) -> Made:
    assert isinstance(layer.extra, Made)
    return layer.extra
