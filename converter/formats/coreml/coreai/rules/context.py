"""The contexts in which an operation of Core AI is read and written.


All parameters of an operation are operands, also strides and axes: constants of si32 for positions,
of ui32 for sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.demands import axis_of
from converter.graph.infer import constant, known
from converter.graph.value import Value
from converter.mapping import context
from converter.mapping.codecs import PLAIN, Codec, Kind
from converter.mapping.narrow import narrow_array
from converter.mapping.node import Layer

if TYPE_CHECKING:
    from converter.formats.coreml.coreai.collector import CoreAILowering

D = ir.DataType
INDEX, SIZE = D.INT32, D.UINT32  # the types of positions, and of sizes


class Block(Protocol):
    """A block that is being read, for use in rows."""

    def is_complex(self, value: ir.Value) -> bool:
        """Return whether a value represents complex numbers."""

    def is_seen(self, but: str) -> bool:
        """Return whether operations other than `coreai.{but}` use the results of the current
        operation.
        """

    def inlined(self, index: int, b: Builder, inputs: Sequence[Any]) -> list[Any]:
        """Return the results of a block of the operation that is being read."""


class LiftContext(context.LiftContext):
    """One operation that is being read; `block` is the block that contains it, None for an
    operation without a block.
    """

    def __init__(
        self,
        layer: Layer,
        b: Builder,
        version: int = 0,
        spelling: Mapping[Kind, Codec] = PLAIN,
        channels_last: bool = False,
        block: Block | None = None,
    ) -> None:
        super().__init__(layer, b, version, spelling, channels_last)
        self._block = block

    @property
    def block(self) -> Block:
        assert self._block is not None, "an operation with blocks, or without its own"
        return self._block

    def is_complex(self, value: ir.Value | None) -> bool:
        """Return whether a value represents complex numbers."""
        return self._block is not None and value is not None and self._block.is_complex(value)

    def is_seen(self, but: str) -> bool:
        """Return whether other operations than `but` read the results."""
        return self._block is not None and self._block.is_seen(but)

    def axis(self, index: int, rank: int) -> int:
        """Return the axis in operand `index`, counted from the front."""
        return axis_of(int(self.number(index, "the axis")), rank)

    def flag(self, index: int, what: str) -> bool:
        """Return the boolean in operand `index`."""
        return bool(self.number(index, what))

    def whole(self, index: int) -> Value:
        """Return operand `index`, which contains positions or sizes, as int64, which ONNX
        requires.
        """
        value = self.input(index)
        array = known(value)
        if array is not None:
            return self.b.const(array.astype(np.int64), "const")
        return self.cast(value, D.INT64)


class LowerContext(context.LowerContext):
    """One operator that is being written as operations."""

    low: CoreAILowering

    def emit(
        self,
        kind: str,
        *operands: Any,
        dtype: ir.DataType | None = None,
        shape: Iterable[Any] | None = None,
        **attrs: Any,
    ) -> ir.Value:
        sizes = None if shape is None else list(shape)
        return super().emit(kind, *operands, dtype=dtype, shape=sizes, **attrs)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return integers in another type; a constant is checked, number by number, and stays a
        constant.
        """
        if value.dtype == dtype:
            return value
        array = constant(value)
        if array is not None:
            return self.const(narrowed(array, dtype), value.name or "const")
        return self.emit("cast", value, dtype=dtype, shape=value.shape)

    def numbers(self, values: Any, dtype: ir.DataType = INDEX) -> ir.Value:
        """Return an operand with known positions or sizes."""
        return self.const(narrowed(np.asarray(values, np.int64), dtype))

    def index_constant(self, value: int | list[int], what: str) -> ir.Value:
        return self.numbers(value, SIZE if what == "perm" else INDEX)

    def indices(self, value: ir.Value) -> ir.Value:
        return self.cast(value, INDEX)

    def whole(self, index: int, dtype: ir.DataType = INDEX) -> ir.Value:
        """Return operand `index`, which contains positions or sizes, in the type that operations
        require.
        """
        return self.cast(self.input(index), dtype)


def narrowed(array: Any, dtype: ir.DataType) -> Any:
    """Return integers in a narrower type, clamped to its range, so that the ends of the int64 range
    become its ends.
    """
    ends, own = np.iinfo(np.int64), np.iinfo(dtype.numpy())
    if array.dtype == np.int64 and dtype == INDEX:
        array = np.where(array >= ends.max - 1, own.max, array)
        array = np.where(array <= ends.min + 1, own.min + 1, array)
    return narrow_array(np.asarray(array), dtype.numpy(), "an operand")
