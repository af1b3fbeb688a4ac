"""Slices that move with the step of a Loop, as lookups by that step: the form in which the port map
of a TensorIterator has them.

before:  Loop(n){ p = Slice(x, 2*i, 2*i + 2, axis 1) }
after:   t = Gather(x, [[0,1],[2,3],..], axis 1); Loop(n){ p = Gather(t, i, axis 1) }
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.legacy.rules.context import scalar_of
from converter.graph.build import builder_before
from converter.graph.extensions import replace
from converter.graph.infer import Array, evaluate, known, shape_of
from converter.graph.names import Names
from converter.graph.shapes import infer_graph
from converter.graph.sizes import arange
from converter.graph.value import optional, producer_of
from converter.graph.walk import all_graphs
from converter.passes.dead_code import remove_dead_code

AFFINE = ("Add", "Sub", "Mul", "Reshape", "Unsqueeze", "Squeeze", "Cast", "Identity")


def slices_by_step(model: ir.Model) -> None:
    """Rewrite Slices that move with the iteration as a Gather by its number, in loops of known
    count.
    """
    names = Names(model)
    changed = False
    for graph in all_graphs(model.graph):
        for loop in list(graph):
            trips = scalar_of(loop.inputs[0]) if loop.op_type == "Loop" and loop.inputs else None
            if trips is not None and trips >= 1:
                body = loop.attributes["body"].as_graph()
                found = [
                    _rewrite(node, loop, body, int(trips), names)
                    for node in list(body)
                    if node.op_type == "Slice" and not node.domain
                ]
                changed |= any(found)
    if changed:
        remove_dead_code(model)
        infer_graph(model.graph)


def _rewrite(node: ir.Node, loop: ir.Node, body: ir.Graph, trips: int, names: Names) -> bool:
    x, axes = node.inputs[0], known(optional(node, 3))
    shape = shape_of(x)
    if x is None or x.graph is body or shape is None or len(node.inputs) > 4:
        return False
    if axes is None or axes.size != 1:
        return False
    step = body.inputs[0]
    start, stop = node.inputs[1:3]
    places = [_at(start, step, 0), _at(stop, step, 0), _at(start, step, 1)]
    numbers = [int(v.reshape(-1)[0]) for v in places if v is not None and v.size == 1]
    if len(numbers) < len(places):
        return False
    first, end, second = numbers
    axis, stride, part = int(axes.reshape(-1)[0]) % len(shape), second - first, end - first
    index = first + stride * arange(trips)[:, None] + arange(part)
    if part < 1 or index.min() < 0 or index.max() >= shape[axis]:
        return False
    inner = builder_before(node, names)
    if part == 1 and trips == shape[axis] and abs(stride) == 1:
        place = step if stride == 1 else inner.Sub(trips - 1, step)
        replace(node, [inner.Unsqueeze(inner.Gather(x, place, axis=axis), [axis])], inner)
    else:
        table = builder_before(loop, names).op("Gather", x, index, axis=axis)
        replace(node, [inner.Gather(table, step, axis=axis)], inner)
    return True


def _at(value: ir.Value | None, step: ir.Value, number: int) -> Array | None:
    """Return the value of `value` in the given iteration, if it is computed from its number by
    sums, differences and products with constants; else None.
    """
    if value is step:
        return np.array(number, np.int64)
    array, producer = known(value), producer_of(value)
    if array is not None or producer is None or producer.op_type not in AFFINE:
        return array
    inputs = [_at(v, step, number) for v in producer.inputs]
    square = producer.op_type == "Mul" and all(known(v) is None for v in producer.inputs)
    found = [] if square or any(v is None for v in inputs) else evaluate(producer, inputs)
    return found[0] if found else None
