"""If and Loop, whose bodies are sub-graphs of the file; how they are laid out is told in `bodies`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.bodies import Body, captured
from converter.formats.zhouyi.special.register import constant_value, lowers, operand, static
from converter.mapping.drive import Lowering
from converter.mapping.node import MappingError, Node

MANY = (1 << 31) - 1  # turns of a Loop that only its condition ends


def _static(node: Node) -> None:
    for value in node.outputs:
        static(value)


@lowers("If")
def lower_if(node: Node, low: Lowering) -> None:
    _static(node)
    bodies = []
    for key in ("then_branch", "else_branch"):
        graph: ir.Graph = node.attrs[key]
        bodies.append(Body(key, graph, captured(graph), list(graph.outputs)))
    inputs = [v for body in bodies for v in body.inputs]
    attrs = {f"{body.key}_inputs_num": len(body.inputs) for body in bodies}
    low.add("If", [operand(node), *inputs], node.outputs, attrs, extra=bodies)


@lowers("Loop")
def lower_loop(node: Node, low: Lowering) -> None:
    """Values from outside are states that stay as they are."""
    _static(node)
    graph: ir.Graph = node.attrs["body"]
    states = len(node.inputs) - 2
    outside = captured(graph)
    if any(graph.outputs[1 + i] is v for i in range(states) for v in graph.inputs[:1]):
        raise MappingError("a body that gives the number of its turn has no counterpart")
    turns = node.input(0) or constant_value(low, np.array(MANY, np.int32), "turns")
    go = node.input(1) or constant_value(low, np.array(1, np.uint8), "go")
    inputs = [turns, go, *(operand(node, 2 + i) for i in range(states)), *outside]
    kept = [low.value("kept", v.dtype, static(v)) for v in outside]
    outputs = [*node.outputs[:states], *kept, *node.outputs[states:]]
    inner = list(graph.outputs)
    body = Body("body", graph, [*graph.inputs, *outside], [*inner[: 1 + states], *outside, *inner[1 + states :]])
    attrs = {"dependency_inputs_num": states + len(outside), "scan_outputs_num": len(node.outputs) - states}
    low.add("Loop", inputs, outputs, attrs, extra=[body])
