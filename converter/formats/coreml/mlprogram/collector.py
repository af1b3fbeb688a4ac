"""Collection of the operations of a program; operators that programs do not support are refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.mlprogram.operations import in_program, takes
from converter.graph.infer import shape_of
from converter.mapping.lowering import LayerTable, Lowering
from converter.mapping.node import Layer

MOST_AXES = 5
COMPRESSED = "constexpr_"


class MilLowering(Lowering):
    """Collect the operations of a program. `half`: floating-point numbers are written in half
    precision. `exact`: values that keep their type. `stored`: maps values that most operations take
    as int32 to their quantized values.
    """

    def __init__(self, mapping: LayerTable, version: int = 0, half: bool = False) -> None:
        super().__init__(mapping, version)
        self.half = half
        self.exact: set[ir.Value] = set()
        self.stored: dict[ir.Value, ir.Value] = {}

    def inner(self) -> MilLowering:
        """Return the collector for the operations of a block."""
        low = MilLowering(self.mapping, self.version, self.half)
        low.exact, low.stored, low.notes = self.exact, self.stored, self.notes
        return low

    def carried(self, value: ir.Value) -> ir.DataType:
        """Return the type in which a value is written."""
        if value in self.exact and value.dtype is not None:
            return value.dtype
        return in_program(value.dtype, self.half)

    def check(self, layer: Layer) -> None:
        """Check that types, sizes and numbers of axes are supported in programs."""
        operands = list(operands_of(layer.attrs))
        if operands and not takes(layer.kind, operands[0].dtype or ir.DataType.FLOAT):
            dtype = operands[0].dtype
            raise MappingError(f"{layer.kind} does not support data of type {dtype and dtype.name}")
        for value in (*operands, *layer.outputs):
            shape = shape_of(value)
            if shape is not None and 0 in shape:
                raise MappingError(f"{value.name} is empty; Core ML does not support empty tensors")
            if value.shape is not None and len(value.shape) > MOST_AXES:
                if value.const_value is not None or layer.kind.startswith(COMPRESSED):
                    continue
                what = f"{value.name} has {len(value.shape)} axes"
                raise MappingError(f"{what}; ML Programs support at most {MOST_AXES}")


def operands_of(attrs: dict[str, Any]) -> Iterator[ir.Value]:
    """The values among parameters, in their order."""
    for given in attrs.values():
        for one in given if isinstance(given, list | tuple) else (given,):
            if isinstance(one, ir.Value):
                yield one


def needed(layers: list[Layer], results: Iterable[ir.Value]) -> list[Layer]:
    """Return the operations that results depend on, in their order."""
    wanted, kept = set(results), []
    for layer in reversed(layers):
        if wanted.isdisjoint(layer.outputs):
            continue
        kept.append(layer)
        wanted.update(operands_of(layer.attrs))
        for inner, _, outputs in layer.extra or ():
            wanted.update(outputs)
            wanted.update(reached(inner))
    return kept[::-1]


def reached(layers: list[Layer]) -> set[ir.Value]:
    """Yield the operands of operations and of the blocks in them."""
    found = {v for layer in layers for v in operands_of(layer.attrs)}
    for layer in layers:
        for inner, _, outputs in layer.extra or ():
            found |= {*outputs, *reached(inner)}
    return found
