"""Writing If and Loop, whose bodies are sub-graphs of the file.

How they are laid out is described in bodies.py; lift_bodies.py reads them.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.bodies import Body, captured
from converter.mapping.context import Writing, static
from converter.mapping.rules import custom

MANY = (1 << 31) - 1  # turns of a Loop that only its condition ends


def lower_if(w: Writing) -> None:
    for value in w.node.outputs:
        static(value, str(value.name))
    bodies = []
    for key in ("then_branch", "else_branch"):
        graph: ir.Graph = w.attr(key)
        bodies.append(Body(key, graph, captured(graph), list(graph.outputs)))
    inputs = [v for body in bodies for v in body.inputs]
    counts = {f"{body.key}_inputs_num": len(body.inputs) for body in bodies}
    layer = w.put("If", w.input(0), *inputs)
    layer.attrs, layer.extra = counts, bodies


def lower_loop(w: Writing) -> None:
    """Values from outside are states that stay as they are."""
    for value in w.node.outputs:
        static(value, str(value.name))
    graph: ir.Graph = w.attr("body")
    states, outside = len(w.node.inputs) - 2, captured(graph)
    turns = w.optional(0) or w.const(np.array(MANY, np.int32), "turns")
    go = w.optional(1) or w.const(np.array(1, np.uint8), "go")
    kept = [w.temporary("kept", v.dtype, static(v)) for v in outside]
    own, inner = w.node.outputs, list(graph.outputs)
    results = [*inner[: 1 + states], *outside, *inner[1 + states :]]
    layer = w.put(
        "Loop",
        turns,
        go,
        *(w.input(2 + i) for i in range(states)),
        *outside,
        outputs=[*own[:states], *kept, *own[states:]],
        dependency_inputs_num=states + len(outside),
        scan_outputs_num=len(own) - states,
    )
    layer.extra = [Body("body", graph, [*graph.inputs, *outside], results)]


RULES = [custom("If", "If", lower=lower_if), custom("Loop", "Loop", lower=lower_loop)]
