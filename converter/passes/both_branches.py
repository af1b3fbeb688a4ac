"""Compute both branches of an If whose condition is only known at run time, and select one result,
for targets without branches.

before:  y = If(c) { Mul(x, 2) } { Neg(x) }        after:  y = Where(c, Mul(x, 2), Neg(x))
"""

from __future__ import annotations

import onnx_ir as ir

from converter.graph.build import RecordingBuilder
from converter.graph.extensions import replace
from converter.graph.infer import RANDOM, shape_of
from converter.graph.names import Names
from converter.graph.shapes import infer_all
from converter.graph.value import operand
from converter.graph.walk import release, subgraphs
from converter.passes.unroll import inlined

# operators that may fail or take long if they run although their branch is not taken
_GUARDED = {*RANDOM, "Loop", "If", "Gather", "GatherND", "GatherElements", "ScatterND"}
_GUARDED |= {"ScatterElements", "OneHot", "Range", "Expand", "Tile"}
_OF_INTEGERS = {"Div", "Mod"}  # fail if the divisor is 0


def compute_both(model: ir.Model) -> None:
    """Rewrite, in place, each If of the main graph whose branches have results of the same known
    shapes and contain only operators that are safe to run in any case. Inner ones come first.
    """
    if _compute_both(model.graph, Names(model)):
        infer_all(model)


def _compute_both(graph: ir.Graph, names: Names) -> bool:
    changed = False
    for node in list(graph):
        if node.op_type != "If" or node.domain:
            continue
        branches = [node.attributes[k].as_graph() for k in ("then_branch", "else_branch")]
        for branch in branches:
            changed |= _compute_both(branch, names)
        if not _harmless(node, branches):
            continue
        b = RecordingBuilder(graph, names, node)
        condition = b.Reshape(operand(node), [1])
        results = [
            b.Where(condition if shape_of(one) else b.Squeeze(condition, [0]), one, other)
            for one, other in zip(*(inlined(branch, b) for branch in branches), strict=True)
        ]
        release(node)
        replace(node, results, b)
        changed = True
    return changed


def _harmless(choice: ir.Node, branches: list[ir.Graph]) -> bool:
    condition = shape_of(choice.inputs[0])
    return (
        condition is not None
        and all(d == 1 for d in condition)
        and all(
            shape_of(a) is not None and shape_of(a) == shape_of(b) and a.dtype == b.dtype
            for a, b in zip(*(branch.outputs for branch in branches), strict=True)
        )
        and all(_always(node) for branch in branches for node in branch)
    )


def _always(node: ir.Node) -> bool:
    """Return whether a node can be computed for all values of its operands."""
    of_integers = node.op_type in _OF_INTEGERS and not (
        node.outputs[0].dtype is not None and node.outputs[0].dtype.is_floating_point()
    )
    return node.op_type not in _GUARDED and not of_integers and not any(subgraphs(node))
