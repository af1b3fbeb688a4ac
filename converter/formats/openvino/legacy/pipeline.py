"""The passes that legalize a graph for layers of legacy IR, and those after which its types are the
target's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx_ir as ir

from converter.errors import Diagnostic, MappingError
from converter.formats.openvino.legacy.fuse import fuse
from converter.formats.openvino.legacy.legalize import REWRITES, unfit
from converter.formats.openvino.legacy.loop_slices import slices_by_step
from converter.formats.openvino.legacy.mapping import MAPPING
from converter.formats.openvino.legacy.rules.control_flow import counts
from converter.formats.openvino.legacy.types import (
    booleans_as_numbers,
    keeps_type,
    kind_before,
    widen_inputs,
    wrap_small_integers,
    written,
)
from converter.graph.build import Builder
from converter.graph.infer import shape_of
from converter.graph.walk import all_nodes
from converter.mapping.lowering import refusal
from converter.mapping.target import dynamic_values
from converter.passes.constants import decode_weights, lazily
from converter.passes.finite_masks import FINITE_MASKS
from converter.passes.fold import fold_constants
from converter.passes.fold_empty import fold_empty_values
from converter.passes.legalize import legalize, rewrite_illegal
from converter.passes.pipeline import Context, Pass, change, check_target
from converter.passes.rare import BOTH_BRANCHES, FIXED_ROWS, STACK_SEQUENCES
from converter.passes.round_halves import round_to_halves
from converter.passes.small_types import SMALL, widen_small_types
from converter.passes.unroll import unroll_loops
from converter.record import record

D = ir.DataType
SMALL_ENOUGH = 1 << 20  # elements of a constant that may be larger than its inputs
LARGEST = 1 << 31


@record
class Version(Context):
    """A conversion for a version of the IR."""

    version: int = 7


def _grows(node: ir.Node) -> bool:
    """Return whether a node computes a large tensor from small constants: the engine does that when
    it loads the file.
    """
    size = math.prod(shape_of(node.outputs[0]) or ())
    return size > SMALL_ENOUGH and size > sum(
        math.prod(shape_of(v) or ()) for v in node.inputs if v is not None
    )


def _of_text(node: ir.Node) -> bool:
    return any(v is not None and v.dtype == D.STRING for v in (*node.inputs, *node.outputs))


def needless(node: ir.Node) -> bool:
    """Remove identities, reshapes that do not change the shape, and casts between types that are
    written alike.
    """
    if (
        node.op_type == "Reshape"
        and not node.domain
        and node.inputs[0] is not None
        and not kind_before(node.outputs[0])
    ):
        return shape_of(node.outputs[0]) is not None and shape_of(node.inputs[0]) == shape_of(
            node.outputs[0]
        )
    if node.op_type != "Cast" or node.inputs[0] is None:
        return node.op_type == "Identity"
    if node.attributes["to"].as_int() == D.BOOL or keeps_type(node.inputs[0]):
        return False
    before, after = (v.dtype for v in (node.inputs[0], node.outputs[0]))
    return written(before) == written(after)


def without(node: ir.Node, b: Builder) -> ir.Value | None:
    """Return the input of a Cast or Reshape without effect, else None."""
    del b
    return node.inputs[0] if needless(node) else None


def _dynamic_inputs(model: ir.Model, context: Context) -> Iterable[Diagnostic]:
    return [d for d in dynamic_values(model) if d.where.kind == "input"]


def _text(model: ir.Model, context: Context) -> Iterable[Diagnostic]:
    unknown = MappingError("strings are not supported")
    return [refusal(n, unknown) for n in all_nodes(model.graph) if _of_text(n)]


DECODE = decode_weights(lambda value: lazily(value) is not None)
FOLD: Pass[Context] = fold_constants(_grows, LARGEST)
PREPARE: list[Pass[Version]] = [
    widen_small_types(SMALL),
    check_target(MAPPING.target),
    STACK_SEQUENCES,
    Pass(
        "check-inputs",
        "Refuse inputs of dynamic shape",
        lambda model, _: None,
        requires=_dynamic_inputs,
    ),
    DECODE,
    FOLD,
    DECODE,  # scales are constants once they are folded
    FOLD,
    FINITE_MASKS,
    FIXED_ROWS,
    fold_empty_values(),
    change(
        "slice-by-step",
        "Slice loop inputs by the iteration number",
        slices_by_step,
    ),
    unroll_loops(lambda node: node.op_type == "If" or not counts(node)),
    BOTH_BRANCHES,
    change("fuse", "Fuse operators into single layers", fuse),
    round_to_halves(),
    legalize(
        lambda node, context: (
            unfit(node)
            or (not needless(node) and MAPPING.reason_against(node, context.version) is not None)
        ),
        REWRITES,
    ),
    Pass(FOLD.name, FOLD.effect, FOLD.call, ensures=_text),
    change(
        "wrap-integers",
        "Make small integers wrap around as in their own types",
        wrap_small_integers,
    ),
    change("widen-inputs", "Give inputs the types that the format has for them", widen_inputs),
]
IN_OWN_TYPES: list[Pass[Version]] = [
    change("truth-as-numbers", "Write booleans as floating-point data", booleans_as_numbers),
    change(
        "drop-needless",
        "Remove Casts and Reshapes without effect in the types of the format",
        lambda model: rewrite_illegal(
            model, needless, {("", k): without for k in ("Cast", "Reshape")}
        ),
    ),
]
PIPELINE: list[Pass[Version]] = [*PREPARE, *IN_OWN_TYPES]
