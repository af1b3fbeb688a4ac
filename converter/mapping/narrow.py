"""What targets with fewer types and no dynamic shapes ask for before lowering."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from converter.diagnostics import Diagnostic, Where
from converter.graph.infer import Array, shape_of
from converter.graph.names import public_name
from converter.graph.walk import all_graphs
from converter.mapping.node import MappingError


@dataclass
class Narrowing:
    """Types that a target lacks and what it carries instead, such as INT64 -> INT32.

    Constants are checked value by value; an activation gets one warning X205, since its values are known only at run time.
    """

    table: Mapping[ir.DataType, ir.DataType]
    notes: list[Diagnostic] = field(default_factory=list)
    _warned: set[ir.Value] = field(default_factory=set)

    def dtype(self, value: ir.Value) -> ir.DataType:
        """The type in which `value` is written."""
        own = value.dtype or ir.DataType.FLOAT
        narrow = self.table.get(own)
        if narrow is None:
            return own
        boundary = value.is_graph_input() or value.is_graph_output()
        if boundary and value not in self._warned:
            self._warned.add(value)
            self.notes.append(
                Diagnostic("X205", f"{public_name(value)} is {own.name}, written as {narrow.name}", level="warning", where=Where(layer=public_name(value)))
            )
        return narrow

    def array(self, tensor: ir.TensorProtocol, name: str = "") -> Array:
        """The constant in the type in which it is written; MappingError X204 when a value does not survive."""
        narrow = self.table.get(tensor.dtype)
        return tensor.numpy() if narrow is None else narrow_array(tensor.numpy(), narrow.numpy(), name or tensor.name or "constant")


def narrow_array(array: Array, dtype: np.dtype, name: str) -> Array:
    """`array` as `dtype`; floats may round, but neither overflow nor lose an integer."""
    with np.errstate(over="ignore", invalid="ignore"):
        result = array.astype(dtype)
    if np.dtype(dtype).kind == "f" and array.dtype.kind == "f":
        lost = np.isinf(result.astype(np.float64)) & ~np.isinf(array.astype(np.float64))
    else:
        changed = (result < 0) != (array < 0)  # there and back, 2^32 - 1 as a signed number would be itself again
        lost = ((result.astype(array.dtype) != array) | changed) & ~(_is_nan(array))
    if lost.any():
        raise MappingError(f"{name} holds {array[lost].reshape(-1)[0]}, which {np.dtype(dtype).name} cannot hold", "X204")
    return result


def _is_nan(array: Array) -> Array:
    return np.isnan(array) if array.dtype.kind == "f" else np.zeros(array.shape, bool)


def other_values(model: ir.Model, target: str, types: Container[ir.DataType] | None = None) -> list[Diagnostic]:
    """X202 for inputs and outputs that are no tensors, or, where `types` lists those of the target, of another type."""
    found = []
    for side, values in (("input", model.graph.inputs), ("output", model.graph.outputs)):
        for value in values:
            dtype = value.dtype
            if isinstance(value.type, ir.SequenceType | ir.OptionalType):
                what = "a sequence" if isinstance(value.type, ir.SequenceType) else "an optional value"
            elif types is not None and dtype is not None and dtype not in types:
                what = dtype.name
            else:
                continue
            found.append(Diagnostic("X202", f"the {side} {public_name(value)} is {what}, which {target} does not have", where=_where(value)))
    return found


def dynamic_values(model: ir.Model) -> list[Diagnostic]:
    """X203 for every value whose shape is not static: first the inputs, and only when all of these are fixed the others."""
    dynamic = [v for v in model.graph.inputs if shape_of(v) is None]
    help = "fix the inputs with --inputs NAME:1,3,224,224" if dynamic else "its size depends on the data, not on the shapes of the inputs"
    if not dynamic:
        dynamic = [
            o
            for g in all_graphs(model.graph)
            for n in g
            for o in n.outputs
            if isinstance(o.type, ir.TensorType | None) and shape_of(o) is None and (o.uses() or (o.is_graph_output() and o.shape is not None))
        ]
    return [
        Diagnostic(
            "X203",
            f"{public_name(v)} has the shape {v.shape}, the target needs static shapes",
            where=_where(v),
            help=help,
        )
        for v in dynamic
    ]


def _where(value: ir.Value) -> Where:
    node = value.producer()
    props = node.metadata_props if node is not None else {}
    return Where(layer=props.get("netconv.layer", value.name or ""), kind=node.op_type if node is not None else "input")
