"""A node as an ONNX file has it, between the protobuf and the canonical graph, and the tables that
rewrite it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, NoReturn, TypeVar

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.build import Builder
from converter.graph.infer import constant, rank_of, shape_of
from converter.graph.value import Value, with_operators
from converter.record import record

Results = ir.Value | Sequence[ir.Value | None] | None


@record
class Op:
    """An operator that is read. `attrs` are Python values (tensors as onnx_ir tensors, graphs as
    GraphProto); `outputs` are names, "" for none. `notes` are warnings that onnxruntime deviates
    from ONNX's definition of the operator, which netconv follows.
    """

    kind: str
    domain: str
    version: int
    inputs: list[ir.Value | None]
    attrs: dict[str, Any]
    outputs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def input(self, index: int) -> Value | None:
        """Return an input, None if it is absent."""
        return with_operators(self.inputs[index]) if index < len(self.inputs) else None

    def need(self, index: int) -> Value:
        """Return an input. Raises MappingError R105 if it is absent."""
        value = self.input(index)
        if value is None:
            raise MappingError(f"{self.kind} lacks input {index}", "R105")
        return value

    @property
    def x(self) -> Value:
        """Return the first input."""
        return self.need(0)

    def set_input(self, index: int, value: ir.Value | None) -> None:
        """Set an input; the ones before it that are missing become absent."""
        self.inputs.extend([None] * (index + 1 - len(self.inputs)))
        self.inputs[index] = value

    def set_constant(
        self, b: Builder, index: int, name: str, value: Any, dtype: Any = np.int64
    ) -> None:
        """Set input `index` from a value that was an attribute before; no input if it is None."""
        if value is not None:
            self.set_input(index, b.const(np.array(value, dtype), name))

    def has_output(self, index: int) -> bool:
        """Return whether an output is named."""
        return index < len(self.outputs) and self.outputs[index] != ""

    def take(self, name: str, default: Any = None) -> Any:
        """Remove an attribute and return it."""
        return self.attrs.pop(name, default)

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or the default."""
        return self.attrs.get(name, default)

    def number(self, name: str, default: float) -> float:
        """Return an attribute as a float."""
        return float(self.attr(name, default))

    def rank(self, index: int = 0) -> int:
        """Return the rank of an input. Raises MappingError if it is unknown."""
        rank = rank_of(self.need(index))
        if rank is None:
            raise MappingError(
                f"{self.kind} of this version needs the rank of input {index}, which is unknown"
            )
        return rank

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Return the shape of an input. Raises MappingError if it is dynamic."""
        shape = shape_of(self.need(index))
        if shape is None:
            raise MappingError(f"{self.kind} of this form needs the static shape of input {index}")
        return shape

    def constant(self, index: int) -> np.ndarray:
        """Return a constant input. Raises MappingError if it is computed."""
        array = constant(self.need(index))
        if array is None:
            raise MappingError(f"{self.kind} needs a constant input {index}")
        return array


Row = Callable[[Op, Builder], Results]
AnyRow = TypeVar("AnyRow", bound=Row)


class Rows:
    """Rewrites by operator. A row edits the Op in place and returns None, or returns the values
    that replace it. It writes further operators with the builder that it receives.
    """

    def __init__(self) -> None:
        self.table: dict[str, list[tuple[int, Row]]] = {}

    def until(self, version: int, *kinds: str) -> Callable[[AnyRow], AnyRow]:
        """Enter a row for operators as they were up to and including an opset version."""

        def enter(row: AnyRow) -> AnyRow:
            for kind in kinds:
                rows = self.table.setdefault(kind, [])
                rows.append((version, row))
                rows.sort(key=lambda r: r[0])
            return row

        return enter

    def always(self, *kinds: str) -> Callable[[AnyRow], AnyRow]:
        """Register a function for operators of every opset version."""
        return self.until(1 << 30, *kinds)

    def enter(self, **rows: Row) -> None:
        """Enter rows of one expression for all versions, by their operators."""
        for kind, row in rows.items():
            self.always(kind)(row)

    def apply(self, op: Op, b: Builder) -> Results:
        """Return the rows for the operator's version, oldest first; the first that returns
        values ends it.
        """
        kind = op.kind
        for until, row in self.table.get(kind, ()):
            if op.version <= until:
                with b:
                    results = row(op, b)
                if results is not None:
                    return results
        return None if op.kind == kind else self.apply(op, b)


def missing(op: Op) -> NoReturn:
    """Raise MappingError for an operator that the opset or the domain does not have."""
    raise MappingError(
        f"operator {op.kind} is not known"
        + (f" of the domain {op.domain}" if op.domain else f" in opset {op.version}")
    )


def several(results: Results) -> Sequence[ir.Value | None]:
    """Return results as a list: of one value, of several, or empty for None."""
    return [results] if isinstance(results, ir.Value) else list(results or ())


def plain(value: Any) -> Any:
    """Return a tensor as an array, other values unchanged."""
    return value.numpy() if isinstance(value, ir.TensorProtocol) else value
