"""Inputs and outputs that a table stores in another form than the source has them, and the notes that say so.

Those of more dimensions than an operation takes are stored with fewer. A table that was read is written with its inputs and outputs as it stored
them, in whatever order of axes it noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from converter.diagnostics import Diagnostic
from converter.formats.nnapi.table import Operand, Table
from converter.graph.build import Builder
from converter.graph.infer import shape_of
from converter.graph.names import Names, public_name, set_public_name
from converter.passes.channels_last import restore_boundary
from converter.passes.layout.axes import inverse

MOST = 4
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Stored:
    """The inputs and outputs of a table that was read, by public name."""

    inputs: Mapping[str, Operand] = field(default_factory=dict)
    outputs: Mapping[str, Operand] = field(default_factory=dict)

    def turn(self, model: ir.Model) -> None:
        """Inputs and outputs of the graph get the order of axes in which the table stored them; in place."""
        turns = [{name: inverse(o.permutation) for name, o in side.items() if o.permutation} for side in (self.inputs, self.outputs)]
        restore_boundary(model, turns[0], turns[1])

    def note(self, table: Table) -> None:
        """The operands of a new table say what those of the old one said of their order."""
        for indexes, side in ((table.inputs, self.inputs), (table.outputs, self.outputs)):
            for operand in (table.operands[i] for i in indexes):
                if operand.name in side and (permutation := side[operand.name].permutation):
                    operand.boundary = {**(operand.boundary or {}), "permutation": permutation}


def note_shapes(table: Table, inputs: Shapes, outputs: Shapes) -> list[Diagnostic]:
    """The operands that are stored with fewer dimensions say which they had; a warning for each."""
    warnings = []
    for side, indexes, shapes in (("input", table.inputs, inputs), ("output", table.outputs, outputs)):
        for operand in (table.operands[i] for i in indexes):
            if operand.name in shapes:
                operand.boundary = {**(operand.boundary or {}), "shape": list(shapes[operand.name])}
                message = f"the {side} {operand.name} has more than {MOST} axes, {list(shapes[operand.name])}; NNAPI has it as {operand.dimensions}"
                warnings.append(Diagnostic("X211", message, "warning"))
    return warnings


def narrow_boundary(model: ir.Model, stored: Stored) -> tuple[Shapes, Shapes]:
    """Inputs and outputs get at most four dimensions, or those that they were `stored` with (in place); by public name, the shapes that they had."""
    names, inputs, outputs = Names(model), Shapes(), Shapes()
    graph = model.graph
    first = next(iter(graph), None)
    for i, value in enumerate(list(graph.inputs)):
        shape, name = shape_of(value), public_name(value)
        dims = _narrow(shape, stored.inputs.get(name))
        if shape is not None and dims is not None:
            narrow = ir.Value(name=names.fresh("stored"), type=value.type, shape=ir.Shape(dims))
            graph.inputs[i] = narrow
            b = Builder(graph, names, before=first)
            whole = b.op("Reshape", narrow, list(shape))
            for j, output in enumerate(list(graph.outputs)):
                if output is value:
                    graph.outputs[j] = whole
            value.replace_all_uses_with(whole)
            set_public_name(narrow, name)
            inputs[name] = shape
    for i, value in enumerate(list(graph.outputs)):
        shape, name = shape_of(value), public_name(value)
        dims = _narrow(shape, stored.outputs.get(name))
        if shape is not None and dims is not None:
            outputs[name] = shape
            graph.outputs[i] = Builder(graph, names).op("Reshape", value, dims)
            set_public_name(graph.outputs[i], name)
    return inputs, outputs


def widen_boundary(model: ir.Model, inputs: Shapes, outputs: Shapes) -> None:
    """The reverse: inputs and outputs by public name get the shapes that the table records."""
    names, graph = Names(model), model.graph
    for i, stored in enumerate(list(graph.inputs)):
        name, shape = public_name(stored), inputs.get(public_name(stored))
        if shape is not None:
            value = ir.Value(name=names.fresh("whole"), type=stored.type, shape=ir.Shape(shape))
            graph.inputs[i] = value
            narrow = Builder(graph, names, before=next(iter(graph), None)).op("Reshape", value, list(shape_of(stored) or (-1,)))
            for j, output in enumerate(list(graph.outputs)):
                if output is stored:
                    graph.outputs[j] = narrow
            stored.replace_all_uses_with(narrow)
            set_public_name(value, name)
    for i, stored in enumerate(list(graph.outputs)):
        name, shape = public_name(stored), outputs.get(public_name(stored))
        if shape is not None:
            graph.outputs[i] = Builder(graph, names).op("Reshape", stored, list(shape))
            set_public_name(graph.outputs[i], name)


def _narrow(shape: tuple[int, ...] | None, stored: Operand | None) -> list[int] | None:
    """The dimensions with which a value of `shape` is stored, its axes in the source's order; None when they are its own."""
    if shape is None or 0 in shape:
        return None
    if stored is not None and tuple(stored.source_shape or ()) == shape:
        order = inverse(stored.permutation) if stored.permutation else range(len(stored.dimensions))
        return [stored.dimensions[i] for i in order]
    return fewer(shape) if len(shape) > MOST else None


def fewer(shape: Sequence[int]) -> list[int]:
    """At most four dimensions: ones in front go first, then the foremost are one."""
    found = list(shape)
    while len(found) > MOST and found[0] == 1:
        del found[0]
    return found if len(found) <= MOST else [int(np.prod(found[: len(found) - MOST + 1])), *found[len(found) - MOST + 1 :]]
