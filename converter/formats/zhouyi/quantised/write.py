"""The shared graph, quantised -> Document of an integer IR: `zhouyi+int8`."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.diagnostics import Diagnostic
from converter.errors import UnsupportedError
from converter.format import Flavour
from converter.formats.zhouyi.integer.grids import Grid
from converter.formats.zhouyi.ir import Document
from converter.formats.zhouyi.lower import DocumentWriter, static_loops
from converter.formats.zhouyi.mapping import mapping
from converter.formats.zhouyi.quantised.held import held
from converter.formats.zhouyi.quantised.lowering import LINEAR, QuantisedLowering
from converter.formats.zhouyi.quantised.plan import Plan
from converter.formats.zhouyi.quantised.prepare import prepare
from converter.formats.zhouyi.rewrites import REWRITES
from converter.mapping.drive import refuse
from converter.mapping.narrow import dynamic_values, other_values
from converter.model import Model
from converter.passes.channels_last import to_last
from converter.passes.fold import fold
from converter.passes.legalise import legalise

KEPT = {("", op) for op in LINEAR}
NOT_QUANTISED = "the network is not quantised: no layer stands between DequantizeLinear and QuantizeLinear"
HELP = "an integer IR that was read needs --dequantize; float networks go to zhouyi without +int8"


def lower_integer(model: Model, flavour: Flavour, notes: list[Diagnostic]) -> tuple[Document, dict[str, str]]:
    """As `lower.lower`, with layers on stored integers wherever the network is quantised; float layers become a note.

    UnsupportedError also for quantised layers that have no integer form, and for networks that are not quantised at all.
    """
    refuse(other_values(model.ir, "Zhouyi"))
    graph = model.ir.clone()
    prepare(graph)
    fold(graph, keep=holds)
    static_loops(graph)
    refuse(dynamic_values(graph))
    low = QuantisedLowering(mapping())
    legalise(graph, lambda n: (n.domain, n.op_type) not in KEPT and low.reason(n) is not None, REWRITES)
    prepare(graph)
    fold(graph, keep=holds)
    notes.extend(to_last(graph, flavour.io_layout or "keep"))
    low = QuantisedLowering(mapping())
    for node in graph.graph:
        low.node(node)
    plan = Plan(low.layers, low.constants)
    plan.run()
    refuse([*low.problems, *plan.problems])
    names = ", ".join(dict.fromkeys(f"{x.name} ({x.kind})" for x in plan.floats))
    if not plan.integers and (names or not plan.grids):
        raise UnsupportedError(Diagnostic("X202", f"{NOT_QUANTISED}{': ' if names else ''}{names[:500]}", help=HELP))
    if names:
        notes.append(Diagnostic("X209", f"layers that the network computes in floats stay so: {names}", level="warning"))
    writer = IntegerWriter(graph.graph, notes, plan.grids)
    writer.run(plan.layers)
    refuse(writer.problems)
    document, names_changed = writer.document(model.ir.graph.name or "model")
    # the vendor's tools know an integer IR by the absence of these
    for key in ("precision", "compat_quantized_model", "model_domain"):
        document.header.pop(key, None)
    return document, names_changed


def holds(node: ir.Node) -> bool:
    """Whether a node moves stored integers: its numbers may be known, but the integers are wanted."""
    return held(node.outputs[0]) is not None


class IntegerWriter(DocumentWriter):
    """Adds the scales, zero points and ranges that the quantiser writes: the reciprocal of the step, the negative of ONNX's zero point."""

    def __init__(self, graph: ir.Graph, notes: list[Diagnostic], grids: dict[ir.Value, Grid]) -> None:
        super().__init__(graph, notes)
        self.grids = grids

    def _more(self, outputs: list[ir.Value]) -> dict[str, Any]:
        found = [self.grids.get(v) for v in outputs]
        if all(g is None for g in found):
            return {"unquantifiable": True}
        known = [g or Grid.of(1.0, 0, v.dtype or ir.DataType.INT32) for g, v in zip(found, outputs, strict=True)]
        return {
            "layer_top_range": [[g.low, g.high] for g in known],
            "layer_top_scale": [1 / g.scale for g in known],
            "layer_top_zp": [-g.zero for g in known],
            "activation_quantization_axis": ["None"] * len(known),
            "unquantifiable": False,
        }
