"""The contexts in which operations of the opsets are read and written."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.codes import AS_STORED, code_of
from converter.graph.infer import Array, known
from converter.graph.lazy_tensor import LazyTensor
from converter.mapping import context
from converter.mapping.codecs import Codec, enum
from converter.mapping.node import Layer
from converter.record import record

if TYPE_CHECKING:
    from converter.formats.openvino.ir import Layer as IrLayer
    from converter.formats.openvino.ir import SubNet
    from converter.graph.build import Builder


class NetView(Protocol):
    """A net or a body that is being read, for use in rows; `read` are the ports that are read."""

    read: Collection[tuple[int, int]]

    def body(
        self, inner: Builder, sub: SubNet, given: Mapping[Any, ir.Value]
    ) -> dict[Any, ir.Value]:
        """The values of a nested body on these inputs, written with `inner`."""

    def state(self, source: IrLayer, initial: ir.Value | None) -> ir.Value:
        """Return the value of a state before it is assigned."""

    def assign(self, name: str, value: ir.Value) -> None:
        """Set the value of a state for the next run."""


ELEMENT_TYPES = {
    1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64", 8: "string", 9: "boolean",
    10: "f16", 11: "f64", 12: "u32", 13: "u64", 16: "bf16", 17: "f8e4m3", 19: "f8e5m2", 21: "u4",
    22: "i4", 23: "f4e2m1", 24: "f8e8m0", 25: "u2",
}  # fmt: skip


_element_type = enum(ELEMENT_TYPES)  # ONNX data type number <-> the IR's name
element_type = Codec(
    lambda v: _element_type.lift(str(v).strip().lower()), _element_type.lower, ELEMENT_TYPES
)


class LiftContext(context.LiftContext):
    """The context of an operation that is read. `version` is the number of its opset, which
    determines the revision. `layer.extra` is the layer as in the file, and the reader of the body
    that contains it.
    """

    @property
    def context(self) -> tuple[IrLayer, NetView]:
        source, body = self.layer.extra
        return source, body

    def used(self, index: int) -> bool:
        """Return whether an output of the operation has a consumer."""
        if self.layer.extra is None:
            return True
        source, body = self.context
        return index < len(source.outputs) and (source.id, source.outputs[index].id) in body.read


@record
class Inner:
    """One body for the writer; it becomes closed, with a Parameter for every outer value that it
    reads.

    `inputs`     the position of an input of the layer, and the value that it is in the body
    `outputs`    in the order of the layer's outputs
    `back`       body input -> body output that feeds it
    `stacked`    positions in `outputs` that are collected along a new axis 0
    `iteration`, `goes_on`: the body's values with these purposes
    """

    graph: ir.Graph
    inputs: list[tuple[int, ir.Value]] = field(default_factory=list)
    outputs: list[ir.Value] = field(default_factory=list)
    back: dict[ir.Value, ir.Value] = field(default_factory=dict)
    stacked: set[int] = field(default_factory=set)
    iteration: ir.Value | None = None
    goes_on: ir.Value | None = None


@dataclass(eq=False)
class OpsetLayer(Layer):
    """An operation that is written.

    `revision`  the opset of an operation whose newest form means something else; 0: the newest
    `bodies`    the bodies of an If or a Loop by their tags
    """

    revision: int = 0
    bodies: dict[str, Inner] = field(default_factory=dict)


class LowerContext(context.LowerContext):
    """The context of an operation that is written. `version` is the newest opset that readers of
    the IR version support.
    """

    layer: OpsetLayer

    def begin(self, rule: context.Row) -> None:
        super().begin(rule)
        self.layer = OpsetLayer(**vars(self.layer))

    def known(self, value: ir.Value | None) -> ir.Value | Array | None:
        """Return the elements of an operand as a new constant where they are known, else
        the operand.
        """
        array = known(value)
        return value if array is None else np.asarray(array)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Insert a Convert before the operator; none if the value already has the type."""
        to = element_type.lower(int(dtype))
        same = value.dtype == dtype
        return value if same else self.emit("Convert", value, dtype=dtype, destination_type=to)

    def reshape(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        if value.const_value is not None:
            weight = LazyTensor.of(value.const_value)
            return self.const(weight.reshaped(shape), value.name or "const")
        return self.emit("Reshape", value, list(shape), special_zero=False)

    def stored(self, value: ir.Value) -> ir.Value:
        """Return the operand; a constant with a packed element type is passed without a Convert,
        for readers that support it.
        """
        if not code_of(value.const_value):
            return value
        result = self.const(value.const_value, value.name or "const")
        result.meta[AS_STORED] = True
        return result
