"""The contexts in which an operation of a program is read and written.


All operands of an operation are named parameters. Rows access them as the attributes of a layer:
small constants as Python values, all others as values of the graph. Numbers without a type of their
own are written in the type of the operation's first operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.mlprogram.operations import FLOATS
from converter.graph.build import Builder, attrs_of
from converter.graph.infer import Array, known
from converter.graph.lazy_tensor import Converted, LazyTensor
from converter.graph.states import Variables
from converter.graph.value import Value, with_operators
from converter.mapping import context
from converter.mapping.codecs import PLAIN, Codec, Kind
from converter.mapping.context import REQUIRED
from converter.mapping.fusing import only_user
from converter.mapping.node import Layer
from converter.passes.constants import is_constant

if TYPE_CHECKING:
    from converter.formats.coreml.mlprogram.collector import MilLowering

SMALL = 1 << 10  # elements of a constant that is an attribute


class Block(Protocol):
    """A block that is being read, for use in rows."""

    variables: Variables

    @property
    def nested(self) -> bool:
        """Return whether the block is a branch, or the body of a loop."""

    def as_value(self, given: Any) -> Any:
        """Return a name's value as a value of the graph; a state stays a state."""

    def inlined(self, index: int, b: Builder, inputs: Sequence[Any]) -> list[Any]:
        """The results of a nested block on these inputs."""


class LiftContext(context.LiftContext):
    """One operation that is being read.


    `block` is the block that contains it, `used` are the parameters that were accessed.
    """

    def __init__(self, layer: Layer, b: Builder, version: int, block: Block) -> None:
        super().__init__(layer, b, version, PLAIN)
        self.block = block
        self.used: set[str] = set()

    def has(self, name: str) -> bool:
        self.used.add(name)
        return name in self.layer.attrs

    def given_as(self, name: str) -> Any:
        """Return the single argument of a parameter, which may be a string, a list or a state."""
        if not self.has(name) or len(self.layer.extra[name]) != 1:
            raise MappingError(f"input {name!r} is absent", "R105")
        return self.layer.extra[name][0]

    def value(self, name: str) -> Value:
        """Return a parameter as a value of the graph; raise MappingError R105 if it is omitted."""
        found = self.values(name)
        if len(found) != 1:
            raise MappingError(f"input {name!r} must be one value, got {len(found)}", "R105")
        return found[0]

    @property
    def x(self) -> Value:
        """Return the parameter `x`, with which most operations compute."""
        return self.value("x")

    def operands(self) -> list[Value]:
        """Return the inputs of the operator so far, without those that are omitted."""
        return [with_operators(v) for v in self.node.inputs if v is not None]

    def whole(self, of: ir.Value | str) -> Value:
        """Return a value or parameter that contains indices, sizes or axes as int64, which ONNX
        requires.
        """
        return self.cast(self.value(of) if isinstance(of, str) else of, ir.DataType.INT64)

    def given(self, name: str) -> Value | None:
        """Return a parameter as a value of the graph; None if it is omitted."""
        return self.value(name) if self.has(name) else None

    def values(self, name: str) -> list[Value]:
        """Return all values of a parameter that may have several."""
        if not self.has(name):
            raise MappingError(f"input {name!r} is absent", "R105")
        return [with_operators(self.block.as_value(g)) for g in self.layer.extra[name]]

    def array(self, name: str) -> Array:
        """Return the elements of a parameter that must be constant."""
        given = self.given_as(name)
        found = known(given) if isinstance(given, ir.Value) else given
        if isinstance(found, LazyTensor):
            found = found.numpy()
        if isinstance(given, ir.Value) and found is None and given.const_value is not None:
            found = given.const_value.numpy()
        if not isinstance(found, np.ndarray):
            raise MappingError(f"{name!r} must be constant", "X202")
        return found

    def integers(self, source: str | int, what: str, default: Any = REQUIRED) -> list[int]:
        if isinstance(source, str) and self.has(source):
            return [int(n) for n in self.array(source).reshape(-1)]
        return super().integers(source, what, default)

    def attr(self, key: str, kind: Kind | Codec, default: Any = REQUIRED) -> Any:
        self.used.add(key)
        found = self.layer.attrs.get(key)
        if isinstance(found, ir.Value):
            array = known(found)
            if array is None:
                raise MappingError(f"{key!r} must be constant", "X202")
            return self.parse(key, array.tolist(), kind)
        return super().attr(key, kind, default)

    def bind(self, operands: Sequence[str]) -> None:
        """Cast floats to the precision of the first operand, or of the second if only that is
        computed.
        """
        if operands[-1].endswith("*"):
            self.node.inputs = [*self.values(operands[-1][:-1])]
            return
        inputs = [
            self.given(name[:-1]) if name.endswith("?") else self.value(name) for name in operands
        ]
        computed = (v for v in inputs[:2] if v is not None and v.const_value is None)
        first = next(computed, inputs[0])
        kind = None if first is None else first.dtype
        if kind is not None and kind in FLOATS:
            inputs = [
                self.cast(v, kind) if v is not None and v.dtype in FLOATS else v for v in inputs
            ]
        self.node.inputs = [*inputs]


class LowerContext(context.LowerContext):
    """One operator that is being written as operations, whose parameters are the attributes of a
    layer.
    """

    low: MilLowering
    named: Sequence[str]

    def bind(self, operands: Sequence[str]) -> None:
        given, self.layer.inputs = self.layer.inputs, []
        if operands[-1].endswith("*"):
            self.layer.attrs[operands[-1][:-1]] = [v for v in given if v is not None]
            return
        if any(v is not None for v in given[len(operands) :]):
            raise MappingError(f"{self.layer.kind} has {len(operands)} operands")
        self.named = operands
        for name, value in zip(operands, [*given, *[None] * len(operands)], strict=False):
            if value is None and not name.endswith("?"):
                raise MappingError(f"{self.layer.kind} needs the operand {name!r}")
            if value is not None:
                self.layer.attrs[name.rstrip("?")] = value

    def set_operand(self, index: int, value: ir.Value | None) -> None:
        self.layer.attrs[self.named[index].rstrip("?")] = value

    def untransposed(self, index: int) -> ir.Value | None:
        """Return the input of the Transpose that computes operand `index` for this operator
        alone.
        """
        return before_swap(self.input(index))

    def operation(self, kind: str, outputs: Any = None, /, **given: Any) -> None:
        """Append an operation; its results are those of the operator unless `outputs` (values) are
        given.
        """
        attrs = {k: v for k, v in given.items() if v is not None}
        self.low.add(kind, [], self.node.outputs if outputs is None else outputs, attrs)

    def made(self, kind: str, dtype: ir.DataType | None, shape: Any, /, **given: Any) -> ir.Value:
        """Append an operation with one result of this type and shape; return the result."""
        result = self.temporary(kind, dtype, shape)
        self.operation(kind, [result], **given)
        return result

    def weight(self, index: int, what: str) -> ir.Value:
        """Return an operand that must be constant, or a compressed constant. One that is stored in
        half precision and cast when the network runs is stored as it is used.
        """
        value = self.input(index)
        if value.const_value is not None or compressed(value):
            return value
        if (stored := cast_constant(value)) is None:
            raise MappingError(f"{what} must be constant")
        return self.const(stored, str(value.name))

    @property
    def real(self) -> Any:
        """Return the floating-point type to use together with the first operand."""
        return self.real_of(self.input(0))

    def real_of(self, value: ir.Value) -> Any:
        half = self.low.carried(value) == ir.DataType.FLOAT16
        return np.float16 if half else np.float32


def cast_constant(value: ir.Value) -> LazyTensor | None:
    """Return the tensor that a Cast makes of a constant; None for other values."""
    node = value.producer()
    source = node.inputs[0] if node is not None and node.op_type == "Cast" else None
    if source is None or source.const_value is None or value.dtype is None:
        return None
    return LazyTensor.of(source.const_value).derived(Converted(value.dtype), value.dtype)


def compressed(value: ir.Value | None) -> bool:
    """Return whether a value is a DequantizeLinear of constants, or looked up in a table."""
    node = value.producer() if value is not None else None
    if node is None:
        return False
    if node.op_type == "Gather":
        places = node.inputs[1].producer() if node.inputs[1] is not None else None
        source = None if places is None or places.op_type != "Cast" else places.inputs[0]
        operands = [node.inputs[0], source]
        return all(v is not None and v.const_value is not None for v in operands)
    first, *rest = node.inputs
    stored = first is not None and first.const_value is not None
    known = all(v is None or is_constant(v) for v in rest)
    return stored and known and node.op_type == "DequantizeLinear"


def before_swap(value: ir.Value) -> ir.Value | None:
    """Return the input of a Transpose that swaps the last two axes and has a single consumer."""
    node, rank = value.producer(), len(value.shape or ())
    if node is None or node.op_type != "Transpose" or node.domain or only_user(value) is None:
        return None
    perm = [int(i) for i in attrs_of(node)["perm"]]
    return node.inputs[0] if perm == [*range(rank - 2), rank - 1, rank - 2] else None
