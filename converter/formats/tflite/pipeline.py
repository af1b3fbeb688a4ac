"""The passes that legalize a graph for TensorFlow Lite: operators, types, ranks and layout. Nodes
that cannot be rewritten are left for the lowering to refuse.
"""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.tflite.integers import (
    has_signed_weights,
    move_integers,
    quantize_fakes,
    sign_four_bits,
    sign_integers,
)
from converter.formats.tflite.legalize import (
    MOST,
    REWRITES,
    countable,
    decode_outputs,
    is_compact,
    keep_wide,
    widen,
)
from converter.formats.tflite.mapping import MAPPING
from converter.passes.channels_last import channels_last
from converter.passes.collapse_dims import join_reshape_chains
from converter.passes.common_subexpressions import share_common
from converter.passes.constants import unpack_constants
from converter.passes.fold import fold_constants
from converter.passes.fold_empty import fold_empty_values
from converter.passes.fuse_constants import merge_biases
from converter.passes.legalize import legalize
from converter.passes.pipeline import Context, Pass, change, check_target
from converter.passes.rare import STACK_SEQUENCES, implied_shapes
from converter.passes.small_types import SMALL, widen_small_types
from converter.passes.unroll import unroll_loops


def _sign_integers(model: ir.Model) -> None:
    if has_signed_weights(model):
        sign_integers(model)


MOVE_INTEGERS = change(
    "move-integers",
    "Move quantized data instead of floating-point data, where operators only move them",
    move_integers,
)
WIDEN: Pass[Context] = Pass(
    "widen-types",
    "Cast around operators whose kernels lack a type; warn about narrowed 64-bit integers",
    lambda model, context: widen(model, context.notes),
)
LEGALIZE: list[Pass[Context]] = [
    change("sign-four-bits", "Store unsigned 4-bit weights as signed ones", sign_four_bits),
    MOVE_INTEGERS,
    change(
        "keep-wide",
        "Compute 64-bit integers with kernels that support them",
        keep_wide,
    ),
    WIDEN,
    legalize(lambda node, _: MAPPING.reason_against(node) is not None, REWRITES),
    fold_empty_values(),
    join_reshape_chains(MOST),
]
PIPELINE: list[Pass[Context]] = [
    widen_small_types(SMALL),
    check_target(MAPPING.target),
    STACK_SEQUENCES,
    implied_shapes(squeezes=False),
    unpack_constants(),
    fold_constants(is_compact),
    fold_empty_values(),
    merge_biases(),
    unroll_loops(countable),
    fold_constants(is_compact),
    change(
        "quantize-fakes",
        "Replace FakeQuantize by QuantizeLinear and DequantizeLinear",
        quantize_fakes,
    ),
    change("sign-integers", "Store unsigned quantized data as signed ones", _sign_integers),
    *LEGALIZE,
    channels_last(),
    *LEGALIZE,  # the new order of axes has made other nodes
    MOVE_INTEGERS,
    WIDEN,
    fold_constants(is_compact),
    change(
        "decode-outputs",
        "Store constants that are dequantized into outputs as floating-point data",
        decode_outputs,
    ),
    share_common(),
    join_reshape_chains(MOST),
]
