"""The passes that legalize a graph for the operations of Core AI and fold constants."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.coreml.coreai.legalize import REWRITES
from converter.formats.coreml.coreai.mapping import MAPPING
from converter.passes.constants import holds_numbers, unpack_constants
from converter.passes.fold import fold_constants
from converter.passes.fuse_attention import fuse_attentions
from converter.passes.labels import take_out_class_names
from converter.passes.legalize import legalize
from converter.passes.pipeline import Context, Pass, check_target
from converter.passes.rare import BOTH_BRANCHES, STACK_SEQUENCES, implied_shapes
from converter.passes.small_types import INTEGERS, UNCOMMON, widen_small_types
from converter.passes.unroll import unroll_loops

D = ir.DataType
LARGEST = 1 << 24  # elements of a result of constants that is computed beforehand


def decodes(node: ir.Node) -> bool:
    """Return whether a node decompresses compact weights, which stay compact."""
    types = {v.dtype for v in node.inputs if v is not None and v.dtype is not None}
    return any(t.bitwidth <= 8 for t in types - {D.BOOL, D.STRING})


PREPARE: list[Pass[Context]] = [
    widen_small_types(UNCOMMON | INTEGERS.keys()),
    check_target(MAPPING.target),
    STACK_SEQUENCES,
    implied_shapes(),
    take_out_class_names(),
    unpack_constants(),
    fold_constants(holds_numbers, LARGEST),
    unroll_loops(),
    BOTH_BRANCHES,
    fuse_attentions(),
    legalize(lambda node, _: MAPPING.reason_against(node) is not None, REWRITES),
    fold_constants(decodes, LARGEST),
]
# where the bindings would compute operations of constants that are not there yet
FOR_BINDINGS: list[Pass[Context]] = [fold_constants(limit=LARGEST)]
PIPELINE: list[Pass[Context]] = [*PREPARE, *FOR_BINDINGS]
