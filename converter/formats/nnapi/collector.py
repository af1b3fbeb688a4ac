"""A subgraph that is being written: values become operands on first use, nodes become operations
that are validated at once.

Quantized graphs are DequantizeLinear -> operator -> QuantizeLinear. A node is first tried on the
quantized values (its DequantizeLinear and QuantizeLinear become scales and zero points); where
NNAPI has no such operation it is written in floats between DEQUANTIZE and QUANTIZE. The validator's
finding about an operation is the reason why its node cannot be written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from converter.errors import Diagnostic, MappingError
from converter.formats.lite.quantization import parameters
from converter.formats.nnapi.findings import Findings
from converter.formats.nnapi.levels import bound_level
from converter.formats.nnapi.quantization import DATA_TYPES, QUANTIZED
from converter.formats.nnapi.repeated import signature
from converter.formats.nnapi.table import (
    Array,
    Lifetime,
    Operand,
    OperandType,
    Operation,
    Subgraph,
    Table,
)
from converter.formats.nnapi.validate_operations import check_operation
from converter.graph.channels_last import base_domain
from converter.graph.infer import InferenceError, shape_of
from converter.graph.lazy_tensor import LazyTensor
from converter.graph.names import public_name
from converter.graph.value import producer_if, producer_operand, type_name
from converter.mapping import context
from converter.mapping.lowering import refusal
from converter.mapping.narrow import Narrowing
from converter.mapping.rules import Table as Rows
from converter.record import record

T = OperandType
BYTES = (ir.DataType.INT8, ir.DataType.UINT8)
NARROW = {
    ir.DataType.INT64: ir.DataType.INT32,
    ir.DataType.UINT32: ir.DataType.INT32,
    ir.DataType.DOUBLE: ir.DataType.FLOAT,
}
_LARGEST = 2**31 - 1  # of a dimension
_NEAR = 32  # values
TENSORS = {d: t for t, d in reversed(DATA_TYPES.items()) if t.is_tensor} | {
    ir.DataType.INT8: T.TENSOR_QUANT8_ASYMM_SIGNED
}


@dataclass(eq=False, repr=False)  # a record is made more slowly, and there are hundreds
class Ref:
    """An operand as an argument, to distinguish it from a number."""

    index: int


class Lifetimes(list[Lifetime]):
    """The lifetimes of the operands that the checks of one operation need, without a pass over the
    whole subgraph.
    """

    def __init__(self, operands: list[Operand]) -> None:
        super().__init__()
        self.operands = operands

    def __getitem__(self, index: Any) -> Any:
        operand = self.operands[index]
        return operand.lifetime or (
            Lifetime.TEMPORARY_VARIABLE if operand.value is None else Lifetime.CONSTANT_COPY
        )


OnDemand = Mapping[tuple[str, str], Callable[[ir.Node], bool]]


class OperationRows(Protocol):
    """The operators that become operations: a part of the format's mapping.


    `on_demand`: operators such as activations that are fused into most of their consumers; they are
    written only for consumers that do not fuse them.
    """

    @property
    def table(self) -> Rows: ...
    @property
    def writing(self) -> Callable[..., context.LowerContext]: ...
    @property
    def on_demand(self) -> OnDemand: ...


Objection = Callable[[Subgraph, Operation, Lifetimes], str | None]


@record
class Writer:
    """Collect the operands and operations of one graph, up to feature level `level`. `dry`: one
    node is tried, and its inputs become operands directly. `objects` returns why a form of the
    table does not support an operation, or None.
    """

    operators: OperationRows
    level: int
    dry: bool = False
    objects: Objection | None = None
    subgraph: Subgraph = field(default_factory=Subgraph)
    operands: dict[ir.Value, int] = field(default_factory=dict)
    scalars: dict[tuple[OperandType, Any], int] = field(default_factory=dict)
    done: dict[ir.Node, bool] = field(default_factory=dict)
    problems: list[Diagnostic] = field(default_factory=list)
    narrowing: Narrowing = field(default_factory=lambda: Narrowing(NARROW))
    _journal: list[tuple[dict[Any, Any], Any]] = field(default_factory=list)
    _plain: set[ir.Value] = field(default_factory=set)  # integers without a scale
    # the levels that valid operations need, which equal ones need, too
    _levels: dict[Hashable, int] = field(default_factory=dict)

    def fresh(self) -> Writer:
        """Return a writer for dry runs, with the same limits."""
        return Writer(self.operators, self.level, dry=True, objects=self.objects)

    # --- entries can be rolled back -------------------------------------------------------

    def enter(self, table: dict[Any, Any], key: Any, entry: Any) -> None:
        """Set an entry of a dictionary so that `undo` removes it."""
        table[key] = entry
        self._journal.append((table, key))

    def mark(self) -> tuple[int, int, int]:
        """Return the current state, for `undo`."""
        return len(self.subgraph.operands), len(self.subgraph.operations), len(self._journal)

    def undo(self, mark: tuple[int, int, int]) -> None:
        """Remove all that was added since the mark."""
        del self.subgraph.operands[mark[0] :], self.subgraph.operations[mark[1] :]
        for table, key in self._journal[mark[2] :]:
            table.pop(key, None)
        del self._journal[mark[2] :]

    # --- operands ---------------------------------------------------------------------------------

    def add(self, operand: Operand) -> Ref:
        """Add an operand to the table."""
        return Ref(self.subgraph.add(operand))

    def scalar(self, kind: OperandType, number: Any) -> Ref:
        """Return the operand of a scalar. Raises MappingError X204 if its type is too narrow."""
        assert kind.dtype is not None
        try:
            with np.errstate(over="ignore"):  # overflow gives infinity
                array = np.array(number, kind.dtype)
        except OverflowError:
            raise MappingError(f"{number} is outside the range of {kind.name}", "X204") from None
        key = (kind, array.tobytes())
        if key not in self.scalars:
            self.enter(self.scalars, key, self.subgraph.add(Operand(kind, value=array)))
        return Ref(self.scalars[key])

    def tensor(
        self, array: Array | LazyTensor, kind: OperandType, name: str = "", **more: Any
    ) -> Ref:
        """Return the operand of a constant; a scalar gets one dimension."""
        if isinstance(array, np.ndarray) and array.ndim == 0:
            array = array.reshape(1)
        if not array.size:
            raise MappingError(
                f"constant {name!r} is empty; NNAPI does not support empty tensors", "X203"
            )
        dims = [int(n) for n in array.shape if isinstance(n, int)]
        return self.add(Operand(kind, dims, name, value=array, **more))

    def like(self, value: ir.Value, dims: Sequence[int] | None = None) -> Operand:
        """Return an operand for a value, without its constant."""
        dtype = self.narrowing.dtype(value)
        kind = TENSORS.get(dtype)
        if kind is None:
            raise MappingError(f"{value.name} is {type_name(dtype)}, which NNAPI does not support")
        shape = dims if dims is not None else shape_of(value)
        if shape is None or 0 in shape:
            raise MappingError(
                f"{public_name(value)} has the shape {value.shape}; NNAPI needs "
                "static shapes that are not empty",
                "X203",
            )
        if max(shape, default=0) > _LARGEST:
            raise MappingError(
                f"{public_name(value)} has the shape {value.shape}; NNAPI dimensions have 32 bits",
                "X204",
            )
        operand = Operand(kind, [int(n) for n in shape] or [1], public_name(value))
        if kind in QUANTIZED:
            operand.scale, operand.zero_point = self.quantization(value) or (1.0, 0)
        elif kind is T.TENSOR_INT32 and dtype == value.dtype:
            operand.scale = (self.quantization(value) or (0.0, 0))[0]
        return operand

    def quantization(self, value: ir.Value) -> tuple[float, int] | None:
        """Return the quantization of a value. A dry run only searches near the value, and repeats
        this each time: the graph still changes.
        """
        if self.dry:
            return quantization(value, set(), _NEAR)
        return quantization(value, self._plain, sys.maxsize)

    def new(self, value: ir.Value, dims: Sequence[int] | None = None) -> Ref:
        """Return the operand that an operation will write `value` to."""
        ref = self.add(self.like(value, dims))
        self.enter(self.operands, value, ref.index)
        return ref

    def operand(self, value: ir.Value, dims: Sequence[int] | None = None) -> Ref:
        """Return the operand of a value that is read; `dims` are those of a dry run, where images
        are not channels-last yet.
        """
        if value in self.operands:
            return Ref(self.operands[value])
        if value.const_value is not None:
            operand = self.like(value, value.const_value.shape.numpy())
            if value.dtype in self.narrowing.table:
                narrow = self.narrowing.array(value.const_value, public_name(value))
                operand.value = narrow.reshape(operand.dimensions)
            else:
                operand.value = LazyTensor.of(value.const_value).reshaped(operand.dimensions)
            self.enter(self.operands, value, self.subgraph.add(operand))
            return Ref(self.operands[value])
        producer = value.producer()
        if self.dry or producer is None:
            return self.new(value, dims)
        if producer not in self.done:
            self.node(producer, forced=True)
        if value not in self.operands and not self.problems:
            raise MappingError(
                f"no operation produces {value.name}, output "
                f"{producer.outputs.index(value)} of {producer.op_type}"
            )
        return Ref(self.operands[value]) if value in self.operands else self.new(value)

    # --- operations -------------------------------------------------------------------------------

    def operation(self, kind: str, inputs: list[int], outputs: list[int]) -> None:
        """Append an operation; raise MappingError if it is not valid, or needs a higher feature
        level.
        """
        subgraph, operation = self.subgraph, Operation(kind, inputs, outputs)
        subgraph.operations.append(operation)
        lifetimes, same = Lifetimes(subgraph.operands), signature(operation, subgraph)
        needed = self._levels.get(same)
        if needed is None:
            found = Findings(subgraph)
            binding = check_operation(Table(), lifetimes, found, operation)
            if found.errors:
                raise MappingError(f"{kind}: {found.errors[0].message}")
            needed = bound_level(binding, subgraph) if binding is not None else 1
            if same is not None:
                self._levels[same] = needed
        if needed > self.level:
            raise MappingError(
                f"{kind} with these operands needs feature level {needed}, the "
                f"limit is {self.level}",
                "X206",
            )
        if self.objects is not None and (reason := self.objects(subgraph, operation, lifetimes)):
            raise MappingError(reason)

    def node(self, node: ir.Node, forced: bool = False) -> None:
        """Write the operations of a node, or record why there are none. Nodes that are usually
        fused into others are written only if `forced`.
        """
        if node in self.done:
            return
        try:
            self.lower(node, forced)
        except MappingError as e:
            self.problems.append(refusal(node, e))
            self.enter(self.done, node, True)

    def lower(self, node: ir.Node, forced: bool = False) -> None:
        """Write a node, on integers if its operands permit, unless its consumers write it. Raises
        MappingError and leaves nothing if it cannot be written.
        """
        by_user = self.operators.on_demand.get((base_domain(node), node.op_type))
        if not forced and by_user is not None and by_user(node):
            return
        mark = self.mark()
        self.enter(self.done, node, True)
        if self.takes_integers(node):
            return
        self.undo(mark)
        self.enter(self.done, node, True)
        try:
            self._write(node, quantized=False)
        except MappingError:
            self.undo(mark)
            raise
        except InferenceError as e:  # a table that would be too large, mostly
            self.undo(mark)
            raise MappingError(str(e)) from None

    def takes_integers(self, node: ir.Node) -> bool:
        """Try to write the node as an operation on the quantized values; return whether there is
        one.
        """
        if not any(dequantized(v) is not None for v in node.inputs):
            return False
        try:
            self._write(node, quantized=True)
        except (MappingError, InferenceError):
            return False
        return True

    def _write(self, node: ir.Node, quantized: bool) -> None:
        self.operators.table.lower(self.operators.writing(node, self, quantized))


def dequantized(value: ir.Value | None) -> ir.Node | None:
    """Return the DequantizeLinear that produces a value, also through the Transpose of a filter."""
    return producer_if(producer_operand(value, "Transpose") or value, "DequantizeLinear")


def one_scale(node: ir.Node) -> tuple[float, int] | None:
    """Return the scale and zero point of a QuantizeLinear or DequantizeLinear that has one of each,
    in a comparable form.
    """
    found = parameters(node)
    if found is None or found[0].size != 1:
        return None
    return float(found[0][0]), int(found[1][0])


_MOVES = {
    "Gather",
    "Where",
    "Identity",
    "Reshape",
    "Transpose",
    "Slice",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Expand",
    "Tile",
    "Split",
    "HashtableLookup",
}


def quantization(value: ir.Value, plain: set[ir.Value], most: int) -> tuple[float, int] | None:
    """Return the scale and zero point of a value's quantized values; None for plain integers.


    They are searched at the value itself, then through operators that only move elements, in at
    most `most` values and consumers of a value. Values for which no search found any are added to
    `plain`.
    """
    seen: set[ir.Value] = set()
    pending = [value]
    while pending and len(seen) < most:
        v = pending.pop()
        if v in plain or v in seen:
            continue
        seen.add(v)
        producer, users = v.producer(), [u.node for u in islice(v.uses(), most) if u.idx == 0]
        behind = [n for n in users if n.op_type == "DequantizeLinear"]
        for node in filter(None, (producer_if(v, "QuantizeLinear"), *behind)):
            if (found := one_scale(node)) is not None:
                return found
        moves = [producer] if producer is not None and producer.op_type in _MOVES else []
        around = [i for n in moves for i in n.inputs if i is not None] + [
            o for n in users if n.op_type in _MOVES for o in n.outputs
        ]
        pending += [o for o in reversed(around) if o.dtype == value.dtype]
    if not pending:
        plain |= seen
    return None
