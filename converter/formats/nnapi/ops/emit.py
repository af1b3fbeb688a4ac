"""How a lower function sees a node: values as operands, arguments by the names of the schema, numbers as scalars of the right type.

@lowers("LRN")
def lower_lrn(e: Emit) -> None:
    x, y = e.image(0), e.result(image=True)
    e.put("LOCAL_RESPONSE_NORMALIZATION", y, input=x, radius=2, bias=1.0, alpha=0.5, beta=0.75)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.operations import Argument, OperationSpec, Signature, operations
from converter.formats.nnapi.table import Array, Lifetime, Operand, OperandType
from converter.formats.nnapi.writing import Ref, Writer, parameters
from converter.graph.channels_last import base_domain
from converter.graph.infer import constant, known, shape_of
from converter.mapping.drive import near_of
from converter.mapping.node import MappingError
from converter.mapping.table import defaults

LowerOp = Callable[["Emit"], None]
LOWER: dict[tuple[str, str], LowerOp] = {}
LAZY: dict[tuple[str, str], Callable[[ir.Node], bool]] = {}  # nodes that vanish into their users where this says so


def lowers(*names: str, domain: str = "") -> Callable[[LowerOp], LowerOp]:
    """Enters a function under the names of canonical operators (twins come under the name of their operator)."""

    def enter(f: LowerOp) -> LowerOp:
        for name in names:
            assert (domain, name) not in LOWER, name
            LOWER[domain, name] = f
        return f

    return enter


def key_of(node: ir.Node) -> tuple[str, str]:
    return base_domain(node), node.op_type


def only_user(value: ir.Value) -> ir.Node | None:
    nodes = [u.node for u in value.uses()]
    return nodes[0] if len(nodes) == 1 and not value.is_graph_output() and nodes[0].graph is value.graph else None


HUGE_SCALE = 2.0**100  # of attention masks that reach down to the lowest float


class Emit:
    """One node on its way into a table. `quantised`: the operations work on the stored integers around the node."""

    def __init__(self, writer: Writer, node: ir.Node, quantised: bool) -> None:
        self.writer, self.node, self.quantised = writer, node, quantised
        near = near_of(node)
        self.op, self.last = near.op, near.last
        self.attrs: dict[str, Any] = {**defaults(near.op, near.domain), **near.attrs}
        self.activation = 0
        self.level = writer.level

    # --- inputs ---------------------------------------------------------------------------------------------------------------------------

    def value(self, index: int) -> ir.Value:
        """Input `index`, which must be there."""
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        if value is None:
            raise MappingError(f"input {index} is absent")
        return value

    def has(self, index: int) -> bool:
        return index < len(self.node.inputs) and self.node.inputs[index] is not None

    def constant(self, index: int) -> Array:
        array = constant(self.value(index))
        if array is None:
            raise MappingError(f"input {index} must be constant")
        return array

    def ints(self, index: int) -> list[int]:
        return [int(n) for n in self.constant(index).reshape(-1)]

    def shape(self, source: int | ir.Value = 0) -> tuple[int, ...]:
        value = self.value(source) if isinstance(source, int) else source
        shape = shape_of(value)
        if shape is None:
            raise MappingError(f"the shape of {value.name} must be static", "X203")
        return shape

    @property
    def out(self) -> tuple[int, ...]:
        """The shape of the first output."""
        return self.shape(self.node.outputs[0])

    def axis(self, default: int = 0) -> int:
        return int(self.attrs.get("axis", default)) % max(1, len(self.shape()))

    def stored(self, source: int | ir.Value, dims: Sequence[int] | None = None) -> Ref:
        """The operand of a value as it is."""
        return self.writer.operand(self.value(source) if isinstance(source, int) else source, dims)

    def real(self, source: int | ir.Value, dims: Sequence[int] | None = None) -> Ref:
        """The operand of a value that is computed with: its stored integers where the node is written quantised."""
        value = self.value(source) if isinstance(source, int) else source
        if not self.quantised or value.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
            return self.stored(value, dims)
        producer = value.producer()
        if producer is None or producer.op_type != "DequantizeLinear":
            raise MappingError(f"{value.name} is not quantised")
        found, stored = parameters(producer), producer.inputs[0]
        if found is None or stored is None or found[0].size != 1:
            raise MappingError(f"{value.name} has no single constant scale")
        ref = self.stored(stored, dims)
        operand = self.writer.subgraph.operands[ref.index]
        if (np.float32(operand.scale), operand.zero_point) != (np.float32(found[0].reshape(-1)[0]), int(found[1].reshape(-1)[0])):
            raise MappingError(f"the integers of {value.name} are read with several scales")
        return ref

    def image(self, index: int = 0) -> Ref:
        """The data input of a layout-sensitive operator, channels last."""
        if len(self.shape(index)) != 4:
            raise MappingError("only two spatial dimensions are possible")
        return self.real(index, self.turned(self.shape(index)))

    def turned(self, shape: Sequence[int]) -> list[int]:
        """A shape of the graph as it will be when the graph is channels-last."""
        return list(shape) if self.last else [shape[i] for i in (0, 2, 3, 1)]

    def spatial(self, source: int | ir.Value = 0) -> tuple[int, int]:
        return tuple(self.turned(self.shape(source))[1:3])  # type: ignore[return-value]

    def channels(self, source: int | ir.Value = 0) -> int:
        return self.turned(self.shape(source))[3]

    def operand(self, ref: Ref) -> Operand:
        return self.writer.subgraph.operands[ref.index]

    # --- outputs --------------------------------------------------------------------------------------------------------------------------

    def result(self, index: int = 0, fuse: bool = False, image: bool = False) -> Ref:
        """The operand to write output `index` to. `fuse` takes an activation that follows into `self.activation`."""
        return self.result_of(self.node.outputs[index], fuse, image)

    def result_of(self, value: ir.Value, fuse: bool = False, image: bool = False) -> Ref:
        real = value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16)
        if fuse and real:
            value = self._activated(value)
        if self.quantised and real:
            user = only_user(value)
            if user is None or user.op_type != "QuantizeLinear" or user.inputs[0] is not value or (p := parameters(user)) is None or p[0].size != 1:
                raise MappingError("the result is not quantised")
            if not float(p[0].reshape(-1)[0]) < HUGE_SCALE:
                raise MappingError("multiples of such a scale are beyond the floats in which integers are scaled")
            self.writer.enter(self.writer.done, user, True)
            value = user.outputs[0]
        return self.writer.new(value, self.turned(self.shape(value)) if image else None)

    def alias(self, value: ir.Value, source: ir.Value) -> None:
        """`value` is the same operand as `source`."""
        self.writer.enter(self.writer.operands, value, self.stored(source).index)

    def constant_alias(self, value: ir.Value, array: Array) -> None:
        """`value` is a constant of its own type."""
        like = self.writer.like(value)
        assert like.type.dtype is not None
        ref = self.writer.tensor(array.astype(like.type.dtype, copy=False), like.type, like.name, scale=like.scale, zero_point=like.zero_point)
        self.writer.enter(self.writer.operands, value, ref.index)

    def absorb(self, node: ir.Node) -> ir.Value:
        """A following node becomes part of this one; its output."""
        self.writer.enter(self.writer.done, node, True)
        return node.outputs[0]

    def _activated(self, value: ir.Value) -> ir.Value:
        user = only_user(value)
        code = 0 if user is None else activation_code(user)
        if user is None or not code or user.inputs[0] is not value:
            return value
        self.activation = code
        return self.absorb(user)

    def temp(self, dims: Sequence[int], like: Ref, name: str = "", kind: OperandType | None = None) -> Ref:
        """An operand between two operations of this node, of another one's type and scale."""
        source = self.operand(like)
        if kind is not None and kind is not source.type:
            source = Operand(kind)
        fresh = name or f"{self.node.outputs[0].name}.{len(self.writer.subgraph.operands)}"
        return self.writer.add(Operand(source.type, list(dims) or [1], fresh, source.scale, source.zero_point))

    def step(self, kind: str, dims: Sequence[int], like: Ref, /, **arguments: Any) -> Ref:
        """An operation into an operand of its own."""
        y = self.temp(dims, like)
        self.put(kind, y, **arguments)
        return y

    def reshaped(self, x: Ref, dims: Sequence[int]) -> Ref:
        dims = list(dims) or [1]
        return x if self.operand(x).dimensions == dims else self.step("RESHAPE", dims, x, input=x, shape=dims)

    # --- operations -----------------------------------------------------------------------------------------------------------------------

    def put(self, kind: str, outputs: Ref | Sequence[Ref], /, **arguments: Any) -> None:
        """An operation with its arguments by name: operands, numbers (scalars), lists (int32 tensors), None (left out)."""
        results = [outputs] if isinstance(outputs, Ref) else list(outputs)
        spec = operations()[kind]
        signature = next(s for s in spec.signatures if arguments.keys() <= s.names)
        inputs: list[int] = []
        row = self._row(spec, signature, arguments, results)
        for argument in signature.inputs[: self._count(signature, arguments)]:
            given = arguments.get(argument.name)
            for one in list(given or ()) if argument.repeat else [given]:
                inputs.append(self._argument(argument, one, row).index)
        self.writer.operation(kind, inputs, [r.index for r in results])

    def _count(self, signature: Signature, arguments: dict[str, Any]) -> int:
        """How many arguments are written: up to the last one that is given, and as many as the signature allows."""
        count = max(i + 1 for i, a in enumerate(signature.inputs) if arguments.get(a.name) is not None)
        while count < len(signature.inputs) and signature.inputs[count].since is None:
            count += 1
        return min((c for c in signature.counts if c >= count), default=count)

    def _row(self, spec: OperationSpec, signature: Signature, arguments: dict[str, Any], outputs: list[Ref]) -> dict[str, OperandType]:
        """The operand types of the type variables that have no operand here."""
        have: dict[str, OperandType] = {}
        for a in signature.inputs:
            given = arguments.get(a.name)
            ref = given[0] if a.repeat and given else given
            if isinstance(ref, Ref):
                have.setdefault(a.type, self.operand(ref).type)
        for a, ref in zip(spec.outputs, outputs, strict=False):
            have.setdefault(a.type, self.operand(ref).type)
        return next((row for row in spec.rows if all(row.get(k, v) is v for k, v in have.items())), spec.rows[0])

    def _argument(self, argument: Argument, given: Any, row: dict[str, OperandType]) -> Ref:
        if isinstance(given, Ref):
            return given
        kind = row[argument.type] if argument.type in row else OperandType[argument.type]
        if given is None and argument.default is None:
            dims = [0] * (argument.rank[0] if argument.rank else 0)
            return self.writer.add(Operand(kind, dims, lifetime=Lifetime.NO_VALUE))
        if given is None:
            given = argument.default
        if kind.dtype is not None and kind.dtype.kind in "iu" and not kind.name.startswith("TENSOR_QUANT") and not _within(given, kind.dtype):
            raise MappingError(f"{argument.name} is {str(given)[:80]}, beyond {kind.dtype}")
        if kind.is_tensor:
            return self.writer.tensor(np.asarray(given, kind.dtype), kind)
        return self.writer.scalar(kind, given)

    def number(self, array: Any, like: Ref, name: str = "") -> Ref:
        """A constant of a float operand's type."""
        kind = self.operand(like).type
        if kind.dtype is None or kind.dtype.kind == "u" or kind.dtype.itemsize == 1:
            raise MappingError("the constant is not quantised")
        return self.writer.tensor(np.asarray(array, kind.dtype), kind, name)


def _within(given: Any, dtype: np.dtype[Any]) -> bool:
    """Whether an integer type has all these numbers."""
    low, high = _bounds(dtype)
    if isinstance(given, int):
        return low <= given <= high
    found = np.asarray(given)
    return not found.size or bool(low <= found.min() <= found.max() <= high)


@functools.cache
def _bounds(dtype: np.dtype[Any]) -> tuple[int, int]:
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def activation_code(node: ir.Node) -> int:
    """1 RELU, 2 RELU1, 3 RELU6, 0 for a node that is none of them."""
    if node.domain == "" and node.op_type == "Relu":
        return 1
    if node.domain != "" or node.op_type != "Clip":
        return 0
    bounds = [known(node.inputs[i]) if i < len(node.inputs) else None for i in (1, 2)]
    if bounds[0] is None or (len(node.inputs) > 2 and node.inputs[2] is not None and bounds[1] is None):
        return 0
    low, high = float(bounds[0].reshape(-1)[0]), np.inf if bounds[1] is None else float(bounds[1].reshape(-1)[0])
    if low == 0 and high >= np.finfo(np.float32).max:
        return 1
    return {(-1.0, 1.0): 2, (0.0, 6.0): 3}.get((low, high), 0)


__all__ = ["LAZY", "LOWER", "Emit", "Ref", "activation_code", "key_of", "lowers", "only_user"]
