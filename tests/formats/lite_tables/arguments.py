"""The arguments of an operation of a table by the names of its signature, while it is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from converter.formats.nnapi.operations import Binding
from converter.formats.nnapi.table import Dimensions, Lifetime, Operand, Subgraph


class Arguments:
    """A bound operation's arguments by name: shapes, constant values, flags."""

    def __init__(self, binding: Binding, subgraph: Subgraph, lifetimes: Sequence[Lifetime]) -> None:
        self.binding = binding
        self._subgraph = subgraph
        self._lifetimes = lifetimes

    def operand(self, name: str) -> Operand | None:
        index = self.binding.inputs.get(name)
        return self._subgraph.operands[index] if isinstance(index, int) else None

    def given(self, name: str) -> bool:
        """Whether the argument is there and is not an operand without value."""
        index = self.binding.inputs.get(name)
        return isinstance(index, int) and self._lifetimes[index] is not Lifetime.NO_VALUE

    def shape(self, name: str) -> Dimensions:
        operand = self.operand(name)
        return None if operand is None else operand.shape

    def rank(self, name: str) -> int | None:
        shape = self.shape(name)
        return None if shape is None else len(shape)

    def dim(self, name: str, axis: int) -> int:
        """One dimension of an argument; 0 when it is not known."""
        shape = self.shape(name)
        return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else 0

    def values(self, name: str) -> list[int] | None:
        """The elements of a constant tensor of integers; None when it is not a constant."""
        operand = self.operand(name)
        return (
            None
            if operand is None or operand.value is None
            else [int(v) for v in operand.array().reshape(-1)]
        )

    def scalar(self, name: str) -> Any:
        """The value of a constant scalar, or the default of an argument that was left out.

        None when it is only known at run time.
        """
        operand = self.operand(name)
        if operand is None:
            return next((a.default for a in self.binding.signature.inputs if a.name == name), None)
        return operand.array().reshape(-1)[0].item() if operand.value is not None else None
