"""Inputs and outputs whose layout or shape in the table differs from the source, and the notes on
that.

Those of more dimensions than an operation supports are stored with fewer. A table that was read is
written with its inputs and outputs as it stored them, in the axis order that it noted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

import onnx_ir as ir

from converter.errors import Diagnostic
from converter.formats.nnapi.table import Operand, Table
from converter.graph.build import Builder
from converter.graph.infer import shape_of
from converter.graph.names import Names, public_name, set_public_name
from converter.passes.channels_last import restore_boundary
from converter.passes.layout.axes import inverse
from converter.record import record

MOST = 4
Shapes = dict[str, tuple[int, ...]]


@record
class StoredEnds:
    """The inputs and outputs of a table that was read, as operands by public name."""

    inputs: Mapping[str, Operand] = field(default_factory=dict)
    outputs: Mapping[str, Operand] = field(default_factory=dict)

    def transpose_boundary(self, model: ir.Model) -> None:
        """Transpose inputs and outputs, in place, to the axis order of the table."""
        restore_boundary(model, *self._permutations(inverse))

    def restore(self, model: ir.Model) -> None:
        """Undo `transpose_boundary`, and restore the shapes that the source had; in place."""
        restore_boundary(model, *self._permutations(tuple))
        ends = ((model.graph.inputs, self.inputs), (model.graph.outputs, self.outputs))
        stored = ([side.get(public_name(v)) for v in values] for values, side in ends)
        shapes = [[None if o is None else o.source_shape for o in side] for side in stored]
        _reshape_ends(model, *shapes)

    def _permutations(
        self, order: Callable[[list[int]], tuple[int, ...]]
    ) -> Iterator[dict[str, tuple[int, ...]]]:
        """Return, by name, for inputs and for outputs, the permutation that `order` computes from
        their notes.
        """
        for side in (self.inputs, self.outputs):
            yield {name: order(o.permutation) for name, o in side.items() if o.permutation}

    def note(self, table: Table) -> None:
        """Copy the notes on axis order from the operands of the old table to those of the new
        one.
        """
        for indexes, side in ((table.inputs, self.inputs), (table.outputs, self.outputs)):
            for operand in (table.operands[i] for i in indexes):
                if operand.name in side and (permutation := side[operand.name].permutation):
                    operand.boundary = {**(operand.boundary or {}), "permutation": permutation}


def note_shapes(table: Table, inputs: Shapes, outputs: Shapes) -> list[Diagnostic]:
    """Note the original dimensions of operands that are stored with fewer; return a warning for
    each.
    """
    warnings = []
    for side, indexes, shapes in (
        ("input", table.inputs, inputs),
        ("output", table.outputs, outputs),
    ):
        for operand in (table.operands[i] for i in indexes):
            if operand.name in shapes:
                operand.boundary = {**(operand.boundary or {}), "shape": list(shapes[operand.name])}
                had = list(shapes[operand.name])
                message = f"the {side} {operand.name} has more than {MOST} axes, {had}; "
                message += f"in NNAPI it has the shape {operand.dimensions}"
                warnings.append(Diagnostic("X211", message, "warning"))
    return warnings


def narrow_boundary(model: ir.Model, stored: StoredEnds) -> tuple[Shapes, Shapes]:
    """Give inputs and outputs at most four dimensions, or those that they were `stored` with.

    In place; returns their previous shapes by public name.
    """
    ends = (model.graph.inputs, stored.inputs), (model.graph.outputs, stored.outputs)
    had: tuple[Shapes, Shapes] = {}, {}
    new: list[list[list[int] | None]] = []
    for (values, side), shapes in zip(ends, had, strict=True):
        new.append([_narrow(shape_of(v), side.get(public_name(v))) for v in values])
        for value, dims in zip(values, new[-1], strict=True):
            if dims is not None:
                shapes[public_name(value)] = shape_of(value) or ()
    _reshape_ends(model, *new)
    return had


def _reshape_ends(
    model: ir.Model, inputs: Sequence[list[int] | None], outputs: Sequence[list[int] | None]
) -> None:
    """Give inputs and outputs the given shapes, by a Reshape inside the graph; in place."""
    names, graph = Names(model), model.graph
    first, public = next(iter(graph), None), [public_name(v) for v in graph.outputs]
    for i, dims in enumerate(inputs):
        value = graph.inputs[i]
        if dims is None:
            continue
        end = ir.Value(name=names.fresh("end"), type=value.type, shape=ir.Shape(dims))
        graph.inputs[i] = end
        inner = Builder(graph, names, before=first).Reshape(end, list(shape_of(value) or (-1,)))
        for j, output in enumerate(list(graph.outputs)):
            if output is value:
                graph.outputs[j] = inner
        value.replace_all_uses_with(inner)
        set_public_name(end, public_name(value))
    for i, dims in enumerate(outputs):
        if dims is not None:
            graph.outputs[i] = Builder(graph, names).Reshape(graph.outputs[i], dims)
            set_public_name(graph.outputs[i], public[i])


def _narrow(shape: tuple[int, ...] | None, stored: Operand | None) -> list[int] | None:
    """Return the dimensions as which a value of `shape` is stored, with axes in the source's order;
    None if they are unchanged.
    """
    if shape is None or 0 in shape:
        return None
    if stored is not None and tuple(stored.source_shape or ()) == shape:
        order = inverse(stored.permutation) if stored.permutation else range(len(stored.dimensions))
        return [stored.dimensions[i] for i in order]
    return fewer(shape) if len(shape) > MOST else None


def fewer(shape: Sequence[int]) -> list[int]:
    """Return a shape of at most four dimensions: leading ones are dropped, then leading axes are
    merged.
    """
    found = list(shape)
    while len(found) > MOST and found[0] == 1:
        del found[0]
    front = len(found) - MOST + 1
    return [math.prod(found[:front]), *found[front:]] if front > 1 else found
