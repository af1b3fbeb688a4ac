"""The passes that legalize a quantized graph for layers of an integer IR."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.zhouyi.legalize import REWRITES
from converter.formats.zhouyi.mapping import MAPPING
from converter.formats.zhouyi.pipeline import UNROLL
from converter.formats.zhouyi.quantization.constants import quantized_constant
from converter.formats.zhouyi.quantization.lowering import LINEAR, QuantizedLowering
from converter.formats.zhouyi.quantization.prepare import prepare
from converter.passes.channels_last import channels_last
from converter.passes.common_subexpressions import share_common
from converter.passes.fold import fold_constants
from converter.passes.legalize import rewrite_illegal
from converter.passes.pipeline import Context, Pass, change, check_static_shapes, check_target
from converter.passes.rare import STACK_SEQUENCES

KEPT = {("", op) for op in LINEAR}


def holds(node: ir.Node) -> bool:
    """Return whether a node moves quantized values: its numbers may be known, but the integers are
    needed.
    """
    return quantized_constant(node.outputs[0]) is not None


def _legalize(model: ir.Model) -> None:
    low = QuantizedLowering(MAPPING)
    rewrite_illegal(
        model, lambda n: (n.domain, n.op_type) not in KEPT and low.reason(n) is not None, REWRITES
    )


QUANTIZE = change(
    "quantize",
    "Write quantized operators with QuantizeLinear and DequantizeLinear, with "
    "biases in their layers",
    prepare,
)
PIPELINE: list[Pass[Context]] = [
    check_target(MAPPING.target),
    STACK_SEQUENCES,
    share_common(),  # a DequantizeLinear for each user is one value
    QUANTIZE,
    fold_constants(holds),
    UNROLL,
    check_static_shapes(),
    change("legalize", "Rewrite operators that the format lacks", _legalize),
    QUANTIZE,
    fold_constants(holds),
    channels_last(),
]
