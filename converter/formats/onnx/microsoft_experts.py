"""com.microsoft mixtures of experts, and the gated activations in them.

T tokens, E experts, H features of a token, I features inside an expert.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.microsoft import ROWS, plus
from converter.formats.onnx.microsoft_quantized import numbers, packed, unpack
from converter.formats.onnx.op import Op, Results
from converter.graph.build import Builder
from converter.graph.value import MAX, Value

_FLOAT, _I64 = ir.DataType.FLOAT, ir.DataType.INT64


def gated(b: Builder, gate: Value, up: Value, alpha: float, beta: float, limit: float) -> Value:
    """Return clamped gate * sigmoid(alpha * gate) * (clamped up + beta); no limit is infinite."""
    if np.isfinite(limit):
        gate = b.Min(gate, b.like(gate, limit))
        up = b.Clip(up, b.like(up, -limit), b.like(up, limit))
    y = gate * b.Sigmoid(gate if alpha == 1.0 else gate * alpha)
    return y * (up + beta if beta else up)


@ROWS.always("SwiGLU")
def swi_glu(op: Op, b: Builder) -> Results:
    """Compute SwiGLU of (gate, up), or of one operand with both halves."""
    if op.attr("round_activation", 0):
        raise MappingError("SwiGLU that rounds in between is not supported")
    gate, up = op.x, op.input(1)
    if up is None:
        gate, up = b.Split(gate, outputs=2, axis=-1, num_outputs=2)
    alpha, beta = op.number("activation_alpha", 1.0), op.number("activation_beta", 0.0)
    limit = op.number("limit", 0.0)
    return gated(b, gate, up, alpha, beta, limit if limit > 0 else np.inf)


@ROWS.always("MoE")
def mixture(op: Op, b: Builder) -> Results:
    """(x [T,H] or [B,S,H], router logits [T,E], weights and biases of fc1, fc2 and fc3)"""
    layers = [(op.input(i), op.input(i + 1)) for i in (2, 4, 6)]
    return _experts(op, b, layers, None)


@ROWS.always("QMoE")
def quantized_mixture(op: Op, b: Builder) -> Results:
    """(x, router logits, weights, scales and biases of fc1, fc2 and fc3, their zero points, weights
    of the router): integers of 2, 4 or 8 bits, low bits first.
    """
    if op.attr("quant_type", "int") != "int" or any(op.input(i) is not None for i in range(15, 21)):
        raise MappingError(
            "QMoE of other weights than integers is not supported",
            help="export the experts with integers of 4 or 8 bits",
        )
    layers = []
    for i, name in ((2, "fc1"), (5, "fc2"), (8, "fc3")):
        bits = int(op.attr(f"{name}_expert_weight_bits") or op.attr("expert_weight_bits", 4))
        weights = None if op.input(i) is None else _dequantized(op, b, i, bits)
        layers.append((weights, op.input(i + 2)))
    return _experts(op, b, layers, op.input(14))


def _dequantized(op: Op, b: Builder, index: int, bits: int) -> Value:
    """Return weights [E,N,K], with one scale for each row or for each block of it."""
    if bits not in (2, 4, 8):
        raise MappingError(f"QMoE of {bits} bits is not supported")
    data, scales = op.constant(index), op.need(index + 1)
    experts, rows, width = data.shape
    size = width * 8 // bits
    block = int(op.attr("block_size", 0)) or size
    blocks = size // block
    dtype = ir.DataType.UINT8 if bits == 8 else ir.DataType.UINT4
    given = op.input((11, 12, 13)[(index - 2) // 3])
    if given is None:
        points = np.full((experts, rows, blocks), 1 << (bits - 1), np.uint8)
    else:
        stored = op.constant((11, 12, 13)[(index - 2) // 3])
        flat = unpack(stored, bits)
        flat = flat[..., :blocks] if stored.ndim == 3 else flat[..., :rows]
        points = flat.reshape(experts, rows, blocks)
    return b.DequantizeLinear(
        b.const(numbers(data, bits, [experts, rows, size]), "experts"),
        b.Reshape(scales, [experts, rows, blocks]),
        packed(points, dtype),
        axis=2,
        block_size=block,
    )


def _experts(
    op: Op, b: Builder, layers: list[tuple[Value | None, Value | None]], router: Value | None
) -> Value:
    """Compute all experts for all tokens, and sum them with the weights of the router."""
    if op.attr("use_sparse_mixer", 0) or op.attr("swiglu_limit_after_activation", 0):
        raise MappingError(f"{op.kind} with a sparse mixer or a limit at its end is not supported")
    x = b.Unsqueeze(b.Reshape(op.x, [-1, op.shape(0)[-1]]) if op.rank(0) == 3 else op.x, [0])
    first, second, third = (None if w is None else (w, bias) for w, bias in layers)
    if first is None or second is None:
        raise MappingError(f"{op.kind} needs the weights of fc1 and fc2", "R105")
    h = _activated(op, b, _linear(b, x, *first), None if third is None else _linear(b, x, *third))
    y = _linear(b, h, *second) * b.Unsqueeze(_routed(op, b, router), [2])  # [E,T,H]
    total = b.ReduceSum(y, [0], keepdims=0)
    return b.Reshape(total, b.Shape(op.x)) if op.rank(0) == 3 else total


def _linear(b: Builder, x: Value, weights: Value, bias: Value | None) -> Value:
    """[1 or E,T,K], [E,N,K] -> [E,T,N]"""
    y = x @ b.Transpose(weights, perm=[0, 2, 1])
    return plus(y, None if bias is None else b.Unsqueeze(bias, [1]))


def _activated(op: Op, b: Builder, h: Value, third: Value | None) -> Value:
    up: Value | None
    kind, fusion = op.attr("activation_type", "relu"), int(op.attr("swiglu_fusion", 0))
    if kind == "swiglu":
        if fusion == 1:
            gate, up = h[..., 0:MAX:2], h[..., 1:MAX:2]
        elif fusion == 2:
            gate, up = b.Split(h, outputs=2, axis=-1, num_outputs=2)
        else:
            gate, up = h, third
        if up is None:
            raise MappingError(f"{op.kind} with swiglu lacks fc3", "R105")
        alpha, beta = op.number("activation_alpha", 1.0), op.number("activation_beta", 0.0)
        return gated(b, gate, up, alpha, beta, op.number("swiglu_limit", np.inf))
    y: Value
    if kind in ("relu", "identity"):
        y = b.Relu(h) if kind == "relu" else h
    elif kind in ("silu", "gelu"):
        y = h * b.Sigmoid(h) if kind == "silu" else b.Gelu(h, approximate="tanh")
    else:
        raise MappingError(f"{op.kind} with the activation {kind!r} is not supported")
    return y if third is None else y * third


def _routed(op: Op, b: Builder, router: Value | None) -> Value:
    """Return the weight of each expert for each token, [E,T]: 0 for those that are not chosen."""
    logits, count = op.need(1), int(op.attr("k", 1))
    experts = op.shape(1)[-1]
    _, chosen = b.TopK(logits, [count], outputs=2, axis=-1)
    mask = b.ReduceSum(
        b.OneHot(chosen, [experts], np.array([0, 1], np.float32), axis=-1), [1], keepdims=0
    )
    mask = mask if logits.dtype == _FLOAT else b.Cast(mask, to=logits.dtype)
    weights = (b.Softmax(logits, axis=-1) if router is None else router) * mask
    # onnxruntime's kernel of QMoE always normalizes the weights that it computes
    if op.attr("normalize_routing_weights", 0) or (op.kind == "QMoE" and router is None):
        weights = weights / b.ReduceSum(weights, [1])
    return b.Transpose(weights, perm=[1, 0])


@ROWS.always("MoEGroupRouter")
def group_router(op: Op, b: Builder) -> Results:
    """(logits [..,E], bias [E]) -> logarithms of the scores of the chosen experts, among the groups
    with the best experts.
    """
    if op.has_output(1) or op.input(2) is not None:
        raise MappingError("MoEGroupRouter that gives all scores is not supported")
    experts = op.shape(0)[-1]
    groups, best = int(op.attr("n_group", 1)), int(op.attr("topk_group", 1))
    scores = b.Sigmoid(b.Reshape(op.x, [-1, experts]))
    biased = scores + op.need(1)
    apart = b.Reshape(biased, [-1, groups, experts // groups])
    top, _ = b.TopK(apart, [min(int(op.attr("group_topk", 2)), experts // groups)], outputs=2)
    _, chosen = b.TopK(b.ReduceSum(top, [2], keepdims=0), [best], outputs=2)
    kept = b.Unsqueeze(_among(b, chosen, groups), [2])
    lowest = b.like(biased, float(np.finfo(np.float32).min))
    masked = b.Reshape(b.Where(kept, apart, lowest), [-1, experts])
    _, positions = b.TopK(masked, [int(op.attr("top_k", 1))], outputs=2)
    logs = b.Log(b.Max(scores, b.like(scores, 1e-20)))
    return b.Where(
        _among(b, positions, experts), logs, b.like(logs, op.number("router_sentinel", -1e4))
    )


def _among(b: Builder, positions: Value, count: int) -> Value:
    """Return which of `count` numbers are in each row of indices, [rows, count]."""
    ones = b.OneHot(positions, [count], np.array([0, 1], np.float32), axis=-1)
    return b.ReduceSum(ones, [1], keepdims=0) > 0.5
