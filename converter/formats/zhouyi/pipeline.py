"""The passes that legalize a graph for layers of a float IR; those of an integer IR are in
converter.formats.zhouyi.quantization.pipeline.
"""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.zhouyi.legalize import REWRITES, keep_initial_states
from converter.formats.zhouyi.mapping import MAPPING
from converter.graph import EXTENSION_DOMAIN
from converter.graph.infer import shape_of
from converter.graph.shapes import infer_all
from converter.passes.channels_last import channels_last
from converter.passes.constants import decode_weights
from converter.passes.fold import fold, fold_constants
from converter.passes.fold_empty import fold_empty_values
from converter.passes.fuse_constants import merge_constants
from converter.passes.legalize import legalize, rewrite_illegal
from converter.passes.pipeline import Context, Pass, change, check_static_shapes, check_target
from converter.passes.rare import FIXED_ROWS, STACK_SEQUENCES
from converter.passes.small_types import INTEGERS, UNCOMMON, widen_small_types
from converter.passes.unroll import unroll


def _refused(node: ir.Node) -> bool:
    return MAPPING.reason_against(node) is not None


def hides_loop(node: ir.Node) -> bool:
    """Return whether an extension operator has results whose shapes are only known from its
    expanded definition.
    """
    return (
        node.domain == EXTENSION_DOMAIN
        and any(shape_of(o) is None for o in node.outputs)
        and all(shape_of(v) is not None for v in node.inputs if v is not None)
    )


def static_loops(graph: ir.Model) -> bool:
    """Write out loops and choices that are known beforehand; whether there were any."""
    found = unroll(graph)
    if found:
        infer_all(graph)
        fold(graph)
    return found


def _unrolled_and_legalized(model: ir.Model) -> None:
    if static_loops(model):
        rewrite_illegal(model, _refused, REWRITES)


UNROLL = change(
    "unroll-loops",
    "Unroll loops with known iteration counts and branches with known conditions",
    static_loops,
)
PIPELINE: list[Pass[Context]] = [
    widen_small_types(UNCOMMON | INTEGERS.keys()),
    check_target(MAPPING.target),
    STACK_SEQUENCES,
    fold_constants(),
    FIXED_ROWS,
    fold_empty_values(storable=False),
    decode_weights(),
    merge_constants(),
    change(
        "write-out-hidden-loops",
        "Decompose extension operators whose result shapes only a loop determines",
        lambda model: rewrite_illegal(model, hides_loop, {}),
    ),
    UNROLL,
    check_static_shapes(),
    change(
        "keep-initial-states",
        "Select the initial states of loops that may have no iteration",
        keep_initial_states,
    ),
    legalize(lambda node, _: _refused(node), REWRITES),
    change(
        "unroll-again",
        "Unroll loops that have become static, and legalize their operators",
        _unrolled_and_legalized,
    ),
    fold_constants(),
    channels_last(),
    legalize(lambda node, _: node.op_type == "Gather" and _refused(node), REWRITES),
]
