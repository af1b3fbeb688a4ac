"""Inputs and outputs of more dimensions than an operation takes: stored with fewer, and the table says which they had."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.infer import shape_of
from converter.graph.names import Names, public_name, set_public_name

MOST = 4
Shapes = dict[str, tuple[int, ...]]


def narrow_boundary(model: ir.Model) -> tuple[Shapes, Shapes]:
    """Inputs and outputs get at most four dimensions (in place); by public name, the shapes that they had."""
    names, inputs, outputs = Names(model), Shapes(), Shapes()
    graph = model.graph
    first = next(iter(graph), None)
    for i, value in enumerate(list(graph.inputs)):
        shape, name = shape_of(value), public_name(value)
        if shape is not None and len(shape) > MOST and 0 not in shape:
            stored = ir.Value(name=names.fresh("stored"), type=value.type, shape=ir.Shape(fewer(shape)))
            graph.inputs[i] = stored
            b = Builder(graph, names, before=first)
            whole = b.op("Reshape", stored, list(shape))
            for j, output in enumerate(list(graph.outputs)):
                if output is value:
                    graph.outputs[j] = whole
            value.replace_all_uses_with(whole)
            set_public_name(stored, name)
            inputs[name] = shape
    for i, value in enumerate(list(graph.outputs)):
        shape, name = shape_of(value), public_name(value)
        if shape is not None and len(shape) > MOST and 0 not in shape:
            outputs[name] = shape
            graph.outputs[i] = Builder(graph, names).op("Reshape", value, fewer(shape))
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


def fewer(shape: Sequence[int]) -> list[int]:
    """At most four dimensions: ones in front go first, then the foremost are one."""
    found = list(shape)
    while len(found) > MOST and found[0] == 1:
        del found[0]
    return found if len(found) <= MOST else [int(np.prod(found[: len(found) - MOST + 1])), *found[len(found) - MOST + 1 :]]
