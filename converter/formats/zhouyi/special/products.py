"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.special.register import blob, lifts, lowers, need, need_number, operand, static
from converter.graph.build import Builder
from converter.graph.infer import constant
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node


@lifts("FullyConnected")
def lift_fully_connected(layer: Layer, b: Builder) -> ir.Value:
    """Weights [out, in]."""
    x, weights, biases = operand(layer), blob(layer, "weights"), layer.blobs.get("biases")
    w = b.const(weights.reshape(weights.shape[0], -1).T, f"{layer.name}.weights")
    bias = None if biases is None or not np.asarray(biases).any() else b.const(np.asarray(biases).reshape(-1), f"{layer.name}.biases")
    if len(static(x)) == 2:
        return b.op("Gemm", x, w, bias)
    y = b.op("MatMul", x, w)
    return y if bias is None else b.op("Add", y, bias)


@lowers("Gemm")
def lower_gemm(node: Node, low: Lowering) -> None:
    """With constant weights a FullyConnected layer that has the factors folded in, else a Gemm."""
    a, weights, bias = operand(node), constant(node.input(1)), constant(node.input(2))
    alpha, beta = float(node.attrs.get("alpha", 1.0)), float(node.attrs.get("beta", 1.0))
    turn_a, turn_b = bool(node.attrs.get("transA", 0)), bool(node.attrs.get("transB", 0))
    outputs = static(node.outputs[0])[1]
    flat = bias is None or (bias.size in (1, outputs) and bias.shape[-1:] in ((), (1,), (outputs,)) and (bias.ndim < 2 or bias.shape[0] == 1))
    if weights is not None and weights.dtype.kind == "f" and not turn_a and (node.input(2) is None or bias is not None) and flat:
        w = weights if turn_b else weights.T
        w = w if alpha == 1.0 else (w * np.asarray(alpha, w.dtype))
        added = np.zeros(outputs, w.dtype) if bias is None else np.broadcast_to(bias.reshape(-1) * np.asarray(beta, bias.dtype), (outputs,))
        low.add("FullyConnected", [a], node.outputs, {"num_output": outputs}, {"weights": w, "biases": added})
        return
    if a.dtype is None or not a.dtype.is_floating_point():
        raise MappingError("integers have no counterpart")
    if node.input(2) is None:
        raise MappingError("a Gemm without its third operand is a MatMul")
    low.add("Gemm", node.inputs, node.outputs, {"trans_a": turn_a, "trans_b": turn_b, "alpha": alpha, "beta": beta})


@lifts("Gemm")
def lift_gemm(layer: Layer, b: Builder) -> ir.Value:
    attrs: dict[str, Any] = {"transA": int(bool(need(layer, "trans_a", False))), "transB": int(bool(need(layer, "trans_b", False)))}
    c = layer.inputs[2] if len(layer.inputs) > 2 else None
    return b.op("Gemm", operand(layer), operand(layer, 1), c, alpha=need_number(layer, "alpha", 1.0), beta=need_number(layer, "beta", 1.0), **attrs)


def _flag(layer: Layer, *names: str) -> bool:
    return any(bool(layer.attrs.get(n, False)) for n in names)


@lifts("MatMul")
def lift_mat_mul(layer: Layer, b: Builder) -> ir.Value:
    """Batches broadcast; the keys for transposition have several spellings in section 4.3."""
    x, y = operand(layer), operand(layer, 1)
    if _flag(layer, "trans_a", "adj_x"):
        x = _turned(b, x)
    if _flag(layer, "trans_b", "tans_b", "adj_y"):
        y = _turned(b, y)
    product = b.op("MatMul", x, y)
    factor = need_number(layer, "fused_multiplier", 1.0)
    return product if factor == 1.0 else b.op("Mul", product, b.like(product, factor))


def _turned(b: Builder, x: ir.Value) -> ir.Value:
    rank = len(static(x))
    return b.op("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])


@lowers("MatMul")
def lower_mat_mul(node: Node, low: Lowering) -> None:
    """Two axes times a constant is a FullyConnected layer; else both operands have equally many axes."""
    x, y = operand(node), operand(node, 1)
    weights = constant(y)
    if len(static(x)) == 2 and weights is not None and weights.ndim == 2 and weights.dtype.kind == "f":
        attrs = {"num_output": weights.shape[1]}
        low.add("FullyConnected", [x], node.outputs, attrs, {"weights": weights.T, "biases": np.zeros(weights.shape[1], weights.dtype)})
        return
    if len(static(x)) != len(static(y)) or len(static(x)) < 2:
        raise MappingError("operands with unequally many axes have no counterpart")
    if static(x)[:-2] != static(y)[:-2]:
        raise MappingError("batches of unequal shapes have no counterpart")
    low.add("MatMul", [x, y], node.outputs, {"trans_a": False, "trans_b": False})
