"""Recurrent layers: two directions as two layers, batch first as time first."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.zhouyi.rewrites.register import attributes, operand, optional, rewrites, static
from converter.graph.build import Builder


@rewrites("LSTM", "GRU", "RNN")
def recurrent(node: ir.Node, b: Builder) -> list[ir.Value] | None:
    """What is no layer after that, and what has alphas or betas for each direction, is written out by the common decomposition."""
    a = attributes(node)
    count = 3 if node.op_type == "LSTM" else 2
    if a.get("layout", 0):
        return _time_first(node, b, count)
    if a.get("direction", "forward") != "bidirectional" or a.get("activation_alpha") or a.get("activation_beta"):
        return None
    names = a.get("activations")
    halves = []
    for d, direction in enumerate(("forward", "reverse")):
        # weights, biases and states have the direction first; steps and lengths have none
        operands = [v if v is None or i in (0, 4) else b.op("Slice", v, [d], [d + 1], [0]) for i, v in enumerate(node.inputs)]
        mine = names[d * len(names) // 2 : (d + 1) * len(names) // 2] if names else None
        halves.append(b.ops(node.op_type, *operands, outputs=count, **{**a, "direction": direction, "activations": mine}))
    axes = (1, 0, 0)
    return [b.op("Concat", first, second, axis=axis) for first, second, axis in zip(*halves, axes[:count], strict=True)]


def _time_first(node: ir.Node, b: Builder, count: int) -> list[ir.Value]:
    operands = [optional(node, i) for i in range(len(node.inputs))]
    operands[0] = b.op("Transpose", operand(node), perm=[1, 0, 2])
    for i in range(5, min(len(operands), 7)):
        v = operands[i]
        operands[i] = None if v is None else b.op("Transpose", v, perm=[1, 0, 2])
    results = b.ops(node.op_type, *operands, outputs=count, **{**attributes(node), "layout": 0})
    perms = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
    assert static(results[0])
    return [b.op("Transpose", v, perm=perm) for v, perm in zip(results, perms, strict=False)]
