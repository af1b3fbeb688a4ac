"""The context in which an operator of a file is read.

A row sees an operator as a layer: its options are the attributes, by the names of the schema, and
all its tensors are inputs, in their order in the file, constants too. Inputs are real numbers: what
is stored as integers with a scale stands behind a DequantizeLinear, and results are quantised as
their tensors say, so that a quantised operator becomes one on real numbers. Images are
channels-last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.tflite.flatbuffer import LiteOperator, LiteTensor
from converter.formats.tflite.tensors import dequantise, is_quantised
from converter.graph.build import Builder
from converter.graph.infer import rank_of
from converter.graph.value import Value, with_operators
from converter.mapping import context
from converter.mapping.codecs import PLAIN
from converter.mapping.node import Layer
from converter.mapping.rules import Rule

if TYPE_CHECKING:
    from converter.formats.tflite.lift import GraphLifting


class Reading(context.Reading):
    """One operator on its way into the graph.

    `operator`  as the file has it
    `graph`     the subgraph that is being read, with the values of its tensors
    """

    def __init__(
        self, layer: Layer, b: Builder, operator: LiteOperator, graph: GraphLifting
    ) -> None:
        super().__init__(layer, b, 0, PLAIN, channels_last=True)
        self.operator, self.graph = operator, graph

    def begin(self, rule: Rule) -> None:
        super().begin(rule)
        first = self.node.last and self.layer.inputs and 0 not in rule.owned("inputs")
        rank = rank_of(self.input(0)) if first else None
        if rank is not None and rank < 3:
            raise MappingError(f"an image of {rank} axes", "R105")

    # tensors, by their position among the operator's ---------------------------------------------

    def has(self, index: int) -> bool:
        return index < len(self.operator.inputs) and self.operator.inputs[index] >= 0

    def tensor(self, index: int) -> LiteTensor:
        """What the file says of input `index`; MappingError R105 when it is left out."""
        if not self.has(index):
            raise MappingError(f"input {index} is absent", "R105")
        return self.graph.tensors[self.operator.inputs[index]]

    def result(self, index: int = 0) -> LiteTensor:
        """What the file says of result `index`."""
        if index >= len(self.operator.outputs):
            raise MappingError(f"output {index} is absent", "R105")
        return self.graph.tensors[self.operator.outputs[index]]

    def stored(self, index: int) -> Value:
        """Input `index` as it is stored: the integers of a quantised tensor."""
        if not self.has(index):
            raise MappingError(f"input {index} is absent", "R105")
        return with_operators(self.graph.value(self.operator.inputs[index]))

    def real(self, index: int) -> Value:
        """Input `index` as real numbers; integers without a scale as they are."""
        return with_operators(self.input(index))

    def permuted(self, index: int, perm: Sequence[int]) -> ir.Value:
        """Constant or computed weights with their axes in another order, as real numbers: a
        quantised constant stays integers behind a DequantizeLinear.
        """
        tensor = self.tensor(index)
        if self.rank(self.stored(index), "the weights") != len(perm):
            raise MappingError(f"weights of other than {len(perm)} axes", "R105")
        turned = self.transpose(self.stored(index), perm)
        axis = list(perm).index(tensor.axis) if tensor.axis < len(perm) else 0
        return dequantise(self.b, turned, tensor, axis)

    def real_bias(self, index: int) -> ir.Value | None:
        """The bias at input `index` as real numbers, None when it is left out.

        Integers of 32 or 64 bits have the scale of the input times that of the weights.
        """
        if not self.has(index):
            return None
        tensor, value = self.tensor(index), self.stored(index)
        if not tensor.scales or value.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
            return self.real(index)
        scales = np.asarray(tensor.scales, np.float32)
        scale = scales.reshape(()) if len(scales) == 1 else scales
        if value.dtype == ir.DataType.INT64:
            number = self.b.Cast(value, to=int(ir.DataType.FLOAT))
            return number * scale
        return self.b.DequantizeLinear(value, scale, axis=0)

    @property
    def quantised(self) -> bool:
        """Whether the first input is stored as integers that stand for real numbers."""
        return is_quantised(self.tensor(0))

    # states --------------------------------------------------------------------------------------

    def leave(self, index: int, value: ir.Value) -> None:
        """`value` is what the variable at input `index` holds from now on."""
        self.graph.leave(self.operator.inputs[index], value)
