"""Views of a layer that is read and of an operator that is written, for the rows of both formats.

A key names an operand of a layer: TensorFlow Lite numbers them, NNAPI has names. Quantized tensors
are read as DequantizeLinear -> operator -> QuantizeLinear; an operator between the two is first
written on the quantized values around it (`quantized`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.quantization import (
    FLOATS,
    Quantization,
    dequantize,
    single_quantization,
)
from converter.graph.build import attrs_of
from converter.graph.infer import Array, constant, shape_of
from converter.graph.value import Value, operand, producer_if
from converter.mapping import context
from converter.mapping.fusing import activation_of, only_user

Key = int | str
WHOLE = (ir.DataType.INT32, ir.DataType.INT64)


def swapped(rank: int) -> list[int]:
    """Return the order of axes with the last two exchanged."""
    return [*range(rank - 2), rank - 1, rank - 2]


class LiteLiftContext(context.LiftContext, ABC):
    """One layer that is being read."""

    activation_key: str  # of the attribute that is the code of an activation

    def key(self, name: str) -> Any:
        """Return the key of the operand with this NNAPI name; None if the layer has no such
        operand.
        """
        return name

    @abstractmethod
    def has(self, key: Any) -> bool:
        """Return whether an operand is present."""

    @abstractmethod
    def stored_type(self, key: Any) -> ir.DataType:
        """The type in which an operand is stored."""

    @abstractmethod
    def stored(self, key: Any) -> Value:
        """Return the value of an operand in its storage type: the integers of a quantized
        tensor.
        """

    @abstractmethod
    def real(self, key: Any) -> Value:
        """Return the value of an operand as real numbers; unchanged if it has no scale."""

    @abstractmethod
    def quantization(self, key: Any) -> Quantization | None:
        """Scale and zero point of an operand."""

    def bias_scales(self, key: Any, factors: Sequence[Any]) -> Array:
        """Return the scales of an integer bias together with the operands whose scales it is the
        product of.
        """
        return self.product_of_scales(factors)

    def product_of_scales(self, keys: Sequence[Any]) -> Array:
        """Return the product of the scales of several operands; empty if one has no scale."""
        found = np.ones(1, np.float32)
        for quantization in map(self.quantization, keys):
            if quantization is None:
                return np.zeros(0, np.float32)
            found = found * np.asarray(quantization.scales, np.float32)
        return found

    @abstractmethod
    def channels(self) -> int | None:
        """Return how many channels the image has, None where that is not known."""

    def optional_real(self, key: Any) -> Value | None:
        """Return an operand as real numbers; None if it is omitted."""
        return self.real(key) if self.has(key) else None

    def permuted(self, key: Any, perm: Sequence[int]) -> ir.Value:
        """Return weights with their axes permuted, as real numbers.

        A constant becomes a view, which keeps its quantized values; a computed value gets a
        Transpose.
        """
        stored = self.stored(key)
        if (rank := self.rank(stored, "the weights")) != len(perm):
            raise MappingError(f"weights must have {len(perm)} axes, got {rank}", "R105")
        if stored.const_value is None:
            return self.transpose(self.real(key), perm)
        found, order = self.quantization(key), list(perm)
        axis = order.index(found.axis) if found is not None and found.axis in order else 0
        return dequantize(self.b, self.transpose(stored, perm), found, axis)

    def real_bias(self, key: Any, factors: Sequence[Any] = ()) -> ir.Value | None:
        """Return the bias as real numbers, None if it is omitted. The scale of integers is the
        product of the scales of `factors`, the data and the weights, since engines do not read the
        bias's own scale.
        """
        if not self.has(key):
            return None
        value = self.stored(key)
        scales = self.bias_scales(key, factors) if value.dtype in WHOLE else np.zeros(0)
        if not scales.size:
            return self.real(key)
        scale = scales.reshape(()) if scales.size == 1 else scales
        if value.dtype == ir.DataType.INT64:
            return self.b.Cast(value, to=ir.DataType.FLOAT) * scale
        return self.b.DequantizeLinear(value, scale, axis=0)


class LiteLowerContext(context.LowerContext, ABC):
    """One operator that is being written as layers. `quantized`: it is written with the quantized
    values around it.
    """

    quantized: bool
    computes_bias = False  # whether layers take biases that are computed

    # operands and results ------------------------------------------------------------------------

    @abstractmethod
    def place(self, key: Any, operand: Any) -> None:
        """Make a value, or the array of a constant, an operand of the layer."""

    @abstractmethod
    def placed(self, key: Any) -> Any:
        """Return the operand that `place` assigned to the layer."""

    @abstractmethod
    def absorb(self, node: ir.Node) -> ir.Value:
        """Fuse a following node into this operator; return the node's output."""

    @abstractmethod
    def alias(self, value: ir.Value, source: ir.Value) -> None:
        """Make `value` the same operand as `source`."""

    @abstractmethod
    def image(self, value: ir.Value) -> Sequence[int | None]:
        """The sizes of an image with its channels last."""

    def untransposed(self, index: int) -> ir.Value | None:
        """Return the input of the Transpose of the last two axes that produces operand `index`, or
        None.
        """
        before, order = self.before_transpose(self.input(index))
        return before if order == swapped(len(order)) else None

    @abstractmethod
    def weights(self, perm: Sequence[int], outputs: int) -> Any:
        """The operand of the constant or computed weights at input 1, with their axes permuted.

        `outputs` is the axis of the permuted weights that counts the results. Where the operator
        is written quantized, these are quantized values.
        """

    @abstractmethod
    def bias(self, value: ir.Value | None, count: int, weights: Any) -> Any:
        """Return the bias operand, zeros if there is none, for the operand of the weights."""

    def as_matrix(self, units: int) -> None:
        """Reshape the data to a matrix, and the result of so many columns back; raise MappingError
        if the layers of the format take any number of axes.
        """
        raise MappingError(f"the data must be a matrix, and the result must have {units} columns")

    def has_activation(self, value: ir.Value) -> bool:
        """Return whether a layer with this result may have an activation."""
        return True

    def activation(self) -> str:
        """Return the name of the activation after the operator, which becomes a part of it; "" for
        none.
        """
        value = self.layer.outputs[0]
        user = only_user(value) if self.has_activation(value) else None
        name = "" if user is None or user.inputs[0] is not value else activation_of(user)
        if user is not None and name:
            self.layer.outputs[0] = self.absorb(user)
        return name

    def added_bias(self, count: int) -> ir.Value | None:
        """Return a vector that is added to the result along its last axis, and becomes a part of
        the operator: a constant, or (`computes_bias`) an input of the network.
        """
        value = self.layer.outputs[0]
        user = only_user(value)
        if user is None or user.op_type != "Add" or user.domain:
            return None
        other = user.inputs[1 if user.inputs[0] is value else 0]
        node, shape = producer_if(other, "DequantizeLinear"), shape_of(other)
        if other is None or shape is None or value.shape is None:
            return None
        stored = constant(other if node is None else node.inputs[0])
        given = self.computes_bias and (node is not None or other.producer() is None)
        if stored is None and not given:
            return None
        if math.prod(shape) != count or shape[-1:] != (count,) or len(shape) > len(value.shape):
            return None
        self.layer.outputs[0] = self.absorb(user)
        return other

    # quantized values ----------------------------------------------------------------------------

    @property
    def graph(self) -> Any:
        """Return the graph that contains the operator; None if the operator was removed
        from its graph.
        """
        own = self.node.outputs[0].producer()
        return None if own is None else own.graph

    def before_transpose(
        self, value: ir.Value, perm: Sequence[int] | None = None
    ) -> tuple[ir.Value, list[int]]:
        """Return the input of the Transpose that produces a value in the same graph, and the order
        in which `perm` (of the value itself) puts its axes.

        A body receives values of an outer graph as inputs.
        """
        node, order = producer_if(value, "Transpose"), list(perm or range(len(value.shape or ())))
        if node is None or node.graph is not self.graph:
            return value, order
        own = [int(i) for i in attrs_of(node)["perm"]]
        return operand(node), [own[i] for i in order]

    def read_quantized(self, value: ir.Value) -> tuple[ir.Value, Quantization] | None:
        """Return the quantized values of which a DequantizeLinear makes an operand, and their
        quantization; None where the operator is written on real numbers.
        """
        if not self.quantized or value.dtype not in FLOATS:
            return None
        node = producer_if(value, "DequantizeLinear")
        if node is None:
            raise MappingError(f"{value.name} is not quantized")
        if self.graph is not None and node.graph is not self.graph:
            raise MappingError(f"{value.name} is dequantized outside of the subgraph that reads it")
        return operand(node), single_quantization(node)

    def written_quantized(self, value: ir.Value) -> tuple[ir.Node, Quantization] | None:
        """Return the QuantizeLinear after a result, which becomes a part of the operator, and its
        quantization; None where the operator is written on real numbers.
        """
        if not self.quantized or value.dtype not in FLOATS:
            return None
        user = only_user(value)
        quantizes = user is not None and user.op_type == "QuantizeLinear" and not user.domain
        if user is None or not quantizes or user.inputs[0] is not value:
            raise MappingError("the result is not quantized")
        return user, single_quantization(user)
