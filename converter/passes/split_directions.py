"""Split bidirectional recurrent operators into two, for targets with unidirectional ones.

before:  Y, Y_h = GRU(X, W[2,..], R[2,..], direction="bidirectional")
after:   F, F_h = GRU(X, W[:1], R[:1]); B, B_h = GRU(X, W[1:], R[1:], direction="reverse");
         Y = Concat(F, B, axis=1); Y_h = Concat(F_h, B_h, axis=0)
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of
from converter.graph.infer import constant
from converter.graph.value import operand


def split_directions(node: ir.Node, b: Builder) -> list[ir.Value] | None:
    """Split a bidirectional LSTM, GRU or RNN into a forward and a reverse operator.

    Operators with alphas or betas are not split, as these cannot be assigned to a direction.
    """
    attrs = attrs_of(node)
    factors = attrs.get("activation_alpha") or attrs.get("activation_beta")
    if attrs.get("direction") != "bidirectional" or factors:
        return None
    names, halves, batch_first = attrs.get("activations"), [], bool(attrs.get("layout", 0))
    for d, direction in enumerate(("forward", "reverse")):
        operands = [
            v if i in (0, 4) else _half(b, v, d, int(batch_first and i in (5, 6)))
            for i, v in enumerate(node.inputs)
        ]
        part = {**attrs, "direction": direction}
        if names:
            part["activations"] = names[d * len(names) // 2 : (d + 1) * len(names) // 2]
        halves.append(b.ops(node.op_type, *operands, outputs=len(node.outputs), **part))
    axes = (2, 1, 1) if batch_first else (1, 0, 0)
    pairs = zip(*halves, axes[: len(node.outputs)], strict=True)
    return [b.Concat(first, second, axis=axis) for first, second, axis in pairs]


def _half(b: Builder, value: ir.Value | None, d: int, axis: int) -> ir.Value | None:
    """Return the part of an operand for direction `d`; the directions are along `axis`."""
    array = constant(value)
    if value is None or array is None:
        return value if value is None else b.Slice(value, [d], [d + 1], [axis])
    return b.const(np.ascontiguousarray(array.take([d], axis)), "half")


def forward_alone(node: ir.Node, b: Builder) -> list[ir.Value] | None:
    """Rewrite each direction as a forward operator, the reverse one on reversed time, for targets
    without reverse operators.

    Sequences must not have individual lengths, and time must be the first axis.
    """
    attrs = attrs_of(node)
    if attrs.pop("direction", "forward") != "reverse":
        return split_directions(node, b)
    operands = operand(node)[::-1], *node.inputs[1:]
    y, *states = b.ops(node.op_type, *operands, outputs=len(node.outputs), **attrs)
    return [y[::-1], *states]
