"""Recurrent operators of two directions as two operators, for targets that have them in one.

before:  Y, Y_h = GRU(X, W[2,..], R[2,..], direction="bidirectional")
after:   F, F_h = GRU(X, W[:1], R[:1]); B, B_h = GRU(X, W[1:], R[1:], direction="reverse");
         Y = Concat(F, B, axis=1); Y_h = Concat(F_h, B_h, axis=0)
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of
from converter.graph.value import operand
from converter.passes.constants import evaluate_constant


def split_directions(node: ir.Node, b: Builder) -> list[ir.Value] | None:
    """A bidirectional LSTM, GRU or RNN as two of one direction, for targets that have these; alphas
    and betas do not say which direction they belong to.
    """
    attrs = attrs_of(node)
    factors = attrs.get("activation_alpha") or attrs.get("activation_beta")
    if attrs.get("direction") != "bidirectional" or factors:
        return None
    names, halves = attrs.get("activations"), []
    for d, direction in enumerate(("forward", "reverse")):
        operands = [_half(b, v, d, i) for i, v in enumerate(node.inputs)]
        part = {**attrs, "direction": direction}
        if names:
            part["activations"] = names[d * len(names) // 2 : (d + 1) * len(names) // 2]
        halves.append(b.ops(node.op_type, *operands, outputs=len(node.outputs), **part))
    pairs = zip(*halves, (1, 0, 0)[: len(node.outputs)], strict=True)
    return [b.Concat(first, second, axis=axis) for first, second, axis in pairs]


def _half(b: Builder, value: ir.Value | None, d: int, index: int) -> ir.Value | None:
    """What direction `d` has of operand `index`: weights, biases and states have the direction
    first, steps and lengths have none.
    """
    if value is None or index in (0, 4):
        return value
    array = evaluate_constant(value)
    if array is None:
        return b.Slice(value, [d], [d + 1], [0])
    return b.const(np.ascontiguousarray(array[d : d + 1]), "half")


def forward_alone(node: ir.Node, b: Builder) -> list[ir.Value] | None:
    """Each direction as a forward operator, the second one on reversed time, for targets that know
    no other; sequences must be whole, and time in front.
    """
    attrs = attrs_of(node)
    if attrs.pop("direction", "forward") != "reverse":
        return split_directions(node, b)
    operands = operand(node)[::-1], *node.inputs[1:]
    y, *states = b.ops(node.op_type, *operands, outputs=len(node.outputs), **attrs)
    return [y[::-1], *states]
