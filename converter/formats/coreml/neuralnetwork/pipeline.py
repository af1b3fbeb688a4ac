"""The passes that legalize a graph for layers: those before the boundary is declared, and those
after.
"""

from __future__ import annotations

import onnx_ir as ir

from converter.errors import Diagnostic
from converter.formats.coreml.neuralnetwork.legalize import REWRITES
from converter.formats.coreml.neuralnetwork.mapping import MAPPING
from converter.formats.coreml.neuralnetwork.rules.control_flow import unconditional
from converter.graph.infer import shape_of
from converter.graph.names import source_location
from converter.graph.walk import all_nodes
from converter.passes.collapse_dims import join_reshape_chains, lower_ranks, with_fewer_axes
from converter.passes.constants import holds_numbers
from converter.passes.decompositions.bitwise import BITS
from converter.passes.fold import fold_constants
from converter.passes.fold_empty import fold_empty_values
from converter.passes.legalize import legalize
from converter.passes.pipeline import Context, Pass, check_target
from converter.passes.rare import STACK_SEQUENCES, implied_shapes
from converter.passes.round_halves import round_to_halves
from converter.passes.small_types import SMALL, widen_small_types
from converter.passes.stored_halves import keep_stored_halves
from converter.passes.unroll import unroll_loops
from converter.record import record

MOST_AXES = 5


@record
class Spec(Context):
    """A conversion for a version of the specification."""

    version: int = 7


def _large_bits(node: ir.Node) -> bool:
    """Return whether the bits of integers of 32 or 64 bits are joined, or shifted."""
    dtype = node.outputs[0].dtype
    bits = node.op_type in (*BITS, "BitwiseNot", "BitShift") and not node.domain
    return bits and dtype is not None and dtype.bitwidth > 16


def _of_bits(node: ir.Node) -> Diagnostic:
    return Diagnostic(
        "X205",
        "Core ML computes in float32, which represents integers up to 2^24: "
        "bit operations on larger ones lose bits",
        level="warning",
        where=source_location(node),
    )


def stops_collecting(node: ir.Node) -> bool:
    """Return whether a loop gathers results until a condition ends it: only written out their
    number is known.
    """
    return (
        node.op_type == "Loop"
        and len(node.outputs) > len(node.inputs) - 2
        and not unconditional(node.attributes["body"].as_graph())
    )


def _refused(node: ir.Node, version: int) -> bool:
    """Return whether `node` as it is has no layer. For control flow, its inner nodes are checked
    instead; the stacked outputs of a loop need static sizes.
    """
    if node.op_type == "If" and not node.domain:
        return False
    if node.op_type == "Loop" and not node.domain:
        return any(shape_of(v) is None for v in node.outputs[len(node.inputs) - 2 :])
    return MAPPING.reason_against(node, version) is not None


PREPARE: list[Pass[Spec]] = [
    widen_small_types(SMALL),
    check_target(MAPPING.target),
    STACK_SEQUENCES,
    implied_shapes(),
    keep_stored_halves(),
    fold_constants(holds_numbers, limit=4096),
    fold_empty_values(),
    unroll_loops(lambda node: node.op_type == "If" or stops_collecting(node)),
    round_to_halves(),
    Pass(
        "check-bits",
        "Warn about bit operations on large integers, which float32 does not represent",
        lambda model, context: context.notes.extend(
            _of_bits(n) for n in all_nodes(model.graph) if _large_bits(n)
        ),
    ),
]
LEGALIZE: list[Pass[Spec]] = [
    lower_ranks(MOST_AXES),
    legalize(
        lambda node, context: _refused(node, context.version), with_fewer_axes(REWRITES, MOST_AXES)
    ),
    join_reshape_chains(MOST_AXES),
]
PIPELINE: list[Pass[Spec]] = [*PREPARE, *LEGALIZE]
