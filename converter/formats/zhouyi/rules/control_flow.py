"""Writing If and Loop, whose bodies are sub-graphs of the file.

How they are laid out is described in bodies.py; lift_bodies.py reads them.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.bodies import GraphBody
from converter.graph.walk import captured
from converter.mapping.context import LowerContext, static
from converter.mapping.rules import custom

MANY = (1 << 31) - 1  # iterations of a Loop that only ends by its condition


def lower_if(w: LowerContext) -> None:
    """Write an If with two subgraphs, which take the values that they capture as inputs; all
    results must have static shapes.
    """
    for value in w.node.outputs:
        static(value, str(value.name))
    bodies = []
    for key in ("then_branch", "else_branch"):
        graph: ir.Graph = w.attr(key)
        bodies.append(GraphBody(key, graph, captured(graph), list(graph.outputs)))
    inputs = [v for body in bodies for v in body.inputs]
    counts = {f"{body.key}_inputs_num": len(body.inputs) for body in bodies}
    layer = w.put("If", w.input(0), *inputs)
    layer.attrs, layer.extra = counts, bodies


def lower_loop(w: LowerContext) -> None:
    """Write a Loop: captured outer values follow the states. The results of iterations are vectors,
    which are stacked: the executor concatenates anything else along the first axis.
    """
    graph: ir.Graph = w.attr("body")
    states, outside = len(w.node.inputs) - 2, captured(graph)
    shapes = [static(v, str(v.name)) for v in w.node.outputs]
    if any(len(shape) != 2 for shape in shapes[states:]):
        raise MappingError("each iteration of a Loop must produce vectors only")
    turns = w.optional(0) or w.const(np.array(MANY, np.int32), "turns")
    go = w.optional(1) or w.const(np.array(1, np.uint8), "go")
    layer = w.put(
        "Loop",
        turns,
        go,
        *(w.input(2 + i) for i in range(states)),
        *outside,
        dependency_inputs_num=states,
        scan_outputs_num=len(w.node.outputs) - states,
    )
    layer.extra = [GraphBody("body", graph, [*graph.inputs, *outside], list(graph.outputs))]


RULES = [custom("If", "If", lower=lower_if), custom("Loop", "Loop", lower=lower_loop)]
