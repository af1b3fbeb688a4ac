"""The shared graph, quantized -> Document of an integer IR: `zhouyi+int8`."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.errors import Diagnostic, UnsupportedError
from converter.formats.format import Flavor
from converter.formats.zhouyi.ir import Document
from converter.formats.zhouyi.lower import DocumentWriter
from converter.formats.zhouyi.mapping import MAPPING
from converter.formats.zhouyi.quantization.lowering import QuantizedLowering
from converter.formats.zhouyi.quantization.pipeline import PIPELINE
from converter.formats.zhouyi.quantization.plan import Plan
from converter.formats.zhouyi.quantization.quant_params import QuantParams
from converter.graph.network import Network
from converter.mapping.lifting import refuse
from converter.passes.pipeline import Context, run_passes

NOT_QUANTIZED = (
    "the network is not quantized: it has no layer between DequantizeLinear and QuantizeLinear"
)
HELP = (
    "use --dequantize for an integer IR that was read; write float networks to zhouyi without +int8"
)


def lower_integer(
    model: Network, flavor: Flavor, notes: list[Diagnostic]
) -> tuple[Document, dict[str, str]]:
    """Lower a network as `lower.lower` does, with layers on integers wherever it is quantized;
    float layers become a note.

    UnsupportedError also for quantized layers that have no integer form, and for networks that are
    not quantized at all.
    """
    graph = model.ir.clone()
    run_passes(PIPELINE, graph, Context(model, flavor.io_layout, notes))
    low = QuantizedLowering(MAPPING)
    for node in graph.graph:
        low.node(node)
    plan = Plan(low.layers, low.constants, "npu" in flavor.options)
    plan.run()
    refuse([*low.problems, *plan.problems])
    names = ", ".join(f"{name} ({what})" for name, what in plan.floats.items())
    if not plan.params:
        message = f"{NOT_QUANTIZED}{': ' if names else ''}{names[:500]}"
        raise UnsupportedError(Diagnostic("X202", message, help=HELP))
    if names:
        message = f"these layers compute in floating point: {names}"
        notes.append(Diagnostic("X209", message, level="warning"))
    writer = IntegerWriter(graph.graph, notes, plan.params)
    writer.run(plan.layers)
    refuse(writer.problems)
    document, names_changed = writer.document(model.ir.graph.name or "model")
    # the vendor's tools know an integer IR by the absence of these
    for key in ("precision", "compat_quantized_model", "model_domain"):
        document.header.pop(key, None)
    return document, names_changed


class IntegerWriter(DocumentWriter):
    """Add the scales, zero points and ranges that the quantizer writes: the reciprocal of ONNX's
    scale, and the negative of its zero point.
    """

    def __init__(
        self, graph: ir.Graph, notes: list[Diagnostic], params: dict[ir.Value, QuantParams]
    ) -> None:
        super().__init__(graph, notes)
        self.params = params

    def _more(self, outputs: list[ir.Value]) -> dict[str, Any]:
        found = [self.params.get(v) for v in outputs]
        if all(g is None for g in found):
            return {"unquantifiable": True}
        known = [
            g or QuantParams.of(1.0, 0, v.dtype or ir.DataType.INT32)
            for g, v in zip(found, outputs, strict=True)
        ]
        return {
            "layer_top_range": [[g.low, g.high] for g in known],
            "layer_top_scale": [1 / g.scale for g in known],
            "layer_top_zp": [-g.zero for g in known],
            "activation_quantization_axis": ["None"] * len(known),
            "unquantifiable": False,
        }
