"""Activations that follow an operator, for targets whose operators have a fused activation."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.infer import known
from converter.graph.value import optional


def only_user(value: ir.Value) -> ir.Node | None:
    """Return the only consumer of a value; None if it has several, or is needed outside its
    graph.
    """
    nodes = [u.node for u in value.uses()]
    if len(nodes) != 1 or value.is_graph_output() or nodes[0].graph is not value.graph:
        return None
    return nodes[0]


def activation_of(node: ir.Node) -> str:
    """Return Relu, Relu1 (-1..1) or Relu6 for a Relu or Clip, "" for every other node."""
    if node.domain == "" and node.op_type == "Relu":
        return "Relu"
    if node.domain != "" or node.op_type != "Clip":
        return ""
    bounds = [optional(node, i) for i in (1, 2)]
    low, high = (known(v) for v in bounds)
    if low is None or (bounds[1] is not None and high is None):
        return ""
    least = float(low.reshape(-1)[0])
    most = np.inf if high is None else float(high.reshape(-1)[0])
    if least == 0 and most >= np.finfo(np.float32).max:
        return "Relu"
    return {(-1.0, 1.0): "Relu1", (0.0, 6.0): "Relu6"}.get((least, most), "")
