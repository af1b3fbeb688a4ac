"""The passes that legalize a graph for operations: those for all versions, and those for one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.classifier import Classifier, take_out
from converter.formats.coreml.description import declared_features
from converter.formats.coreml.mlprogram.collector import MOST_AXES, MilLowering
from converter.formats.coreml.mlprogram.legalize import REWRITES
from converter.formats.coreml.mlprogram.mapping import MAPPING
from converter.graph.snapshot import Snapshot
from converter.passes.clamp_masks import clamp_masks_to_halves
from converter.passes.collapse_dims import join_reshape_chains, lower_ranks, with_fewer_axes
from converter.passes.constants import decode_weights, holds_numbers, unpack_constants
from converter.passes.fold import fold_constants
from converter.passes.fold_empty import fold_empty_values
from converter.passes.fuse_attention import fuse_attentions
from converter.passes.labels import take_out_class_names
from converter.passes.legalize import rewrite_illegal
from converter.passes.pipeline import Context, Pass, check_target
from converter.passes.rare import STACK_SEQUENCES, implied_shapes
from converter.passes.small_types import SMALL, widen_small_types
from converter.passes.stored_halves import keep_stored_halves
from converter.passes.unroll import unroll_loops
from converter.record import record

D = ir.DataType
ATTENTION_SINCE = 9  # the specification version that has it as one operation


COMPRESSED_SINCE = 7  # the one that has compressed weights


@record
class Spec(Context):
    """A conversion for a version of the specification; `half`: in half precision. `legal` is a
    graph in which all operators are supported.
    """

    version: int = 0
    half: bool = False
    classifier: list[Classifier | None] = field(default_factory=list)  # taken out of the graph
    legal: Snapshot | None = None

    @property
    def attempt(self) -> str:
        return f"version {self.version}" if self.version else ""


def decodes(node: ir.Node) -> bool:
    """Return whether a node decompresses compact weights, which stay compact. All other operations
    on constants are folded: coremltools computes them while it loads a program, and fails on some.
    """
    types = {v.dtype for v in node.inputs if v is not None and v.dtype is not None}
    half = node.op_type == "Cast" and D.FLOAT16 in types
    return half or any(t.bitwidth <= 8 for t in types - {D.BOOL, D.STRING})


def refused_by(version: int, half: bool) -> Callable[[ir.Node], bool]:
    """Return whether no row matches an operator: the rows are tried, and the operations are
    discarded.
    """

    def refused(node: ir.Node) -> bool:
        low = MilLowering(MAPPING, version, half)
        try:
            low.lower(node)
        except MappingError:
            return True
        return bool(low.problems)

    return refused


def _legalize(model: ir.Model, context: Spec) -> None:
    legal = context.legal is not None and context.legal.holds(model)
    rewrite_illegal(
        model,
        (lambda node: False) if legal else refused_by(context.version, context.half),
        with_fewer_axes(REWRITES, MOST_AXES),
    )


def _take_out_classifier(model: ir.Model, context: Spec) -> None:
    declared = declared_features(context.network, model)[0]
    context.classifier.append(take_out(declared, model))


PREPARE: list[Pass[Spec]] = [
    widen_small_types(SMALL),
    check_target(MAPPING.target),
    STACK_SEQUENCES,
    implied_shapes(),
    Pass(
        "take-out-classifier",
        "Remove class-selecting operators, which the program declares as a classifier instead",
        _take_out_classifier,
    ),
    take_out_class_names(),
    unpack_constants(),
    fold_constants(holds_numbers, limit=4096),
    fold_empty_values(),
    unroll_loops(),
]
LEGALIZE: list[Pass[Spec]] = [
    clamp_masks_to_halves(applies=lambda context: context.half),
    decode_weights(applies=lambda context: context.version < COMPRESSED_SINCE),
    keep_stored_halves(),
    lower_ranks(MOST_AXES),
    fuse_attentions(lambda context: context.version >= ATTENTION_SINCE),
    Pass(
        "legalize",
        "Rewrite operators that the specification version lacks",
        _legalize,
    ),
    join_reshape_chains(MOST_AXES),
    fold_constants(decodes, limit=4096),
]
PIPELINE: list[Pass[Spec]] = [*PREPARE, *LEGALIZE]
