"""Rewrites of operators that legacy IR and the opsets share."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.graph.build import Builder, Value, attrs_of
from converter.graph.infer import constant, rank_of
from converter.graph.value import with_operators
from converter.passes.decompositions.activations import x_of


def operands(node: ir.Node, count: int) -> list[Any]:
    """The inputs of a node, None for each that is left out."""
    found = [with_operators(v) for v in node.inputs]
    return found + [None] * (count - len(found))


def bias_apart(node: ir.Node, b: Builder) -> Value | None:
    """Neither dialect has a convolution with a bias that is computed; the opsets have none at
    all.
    """
    (*_, bias), rank = operands(node, 3), rank_of(x_of(node, 1))
    if bias is None or rank is None:
        return None
    shape, tensor = [1, -1, *[1] * (rank - 2)], bias.const_value
    plain = tensor is not None and tensor.numpy().reshape(shape)
    added = b.Reshape(bias, shape) if tensor is None else b.const(plain, str(bias.name))
    y: Value = b.operator(node.op_type)(*node.inputs[:2], **attrs_of(node))
    return y + added


def one_way(node: ir.Node, b: Builder) -> list[Value] | None:
    """An LSTM, GRU or RNN in both directions as one for each, which further rewrites know.

    Directions are the first axis of weights and states, and axis 1 of the results of all steps.
    None with alphas and betas: which of them belong to which direction is not decided here.
    """
    x, w, r, bias, lengths, h, c, peepholes = operands(node, 8)
    attrs = attrs_of(node)
    functions = attrs.get("activations") or []
    if attrs.get("activation_alpha") or attrs.get("activation_beta"):
        return None

    def cut(value: Value | None, k: int) -> Value | None:
        array = constant(value)
        if value is None or array is None:
            return value if value is None else b.Slice(value, [k], [k + 1], [0])
        return b.const(array[k : k + 1])

    parts = []
    for k, direction in enumerate(("forward", "reverse")):
        own = {**attrs, "direction": direction}
        if functions:
            half = len(functions) // 2
            own["activations"] = functions[k * half : (k + 1) * half]
        weights, states = [cut(v, k) for v in (w, r, bias)], [cut(v, k) for v in (h, c, peepholes)]
        count = 3 if node.op_type == "LSTM" else 2
        parts.append(b.operator(node.op_type)(x, *weights, lengths, *states, outputs=count, **own))
    return [b.Concat(*pair, axis=int(i == 0)) for i, pair in enumerate(zip(*parts, strict=True))]
