"""com.microsoft linear attention: a state for each head that every token changes.

B batch, S tokens, N heads, K size of a key, V size of a value.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.microsoft import ROWS, plus
from converter.formats.onnx.op import Op, Results
from converter.graph.build import Builder
from converter.graph.infer import rank_of
from converter.graph.linear_attention import recurrence
from converter.graph.value import Value

_FLOAT = ir.DataType.FLOAT


def repeated(b: Builder, x: Value, heads: int, times: int) -> Value:
    """[B,N,S,D] -> [B,N*times,S,D]: each head `times` times in a row."""
    if times == 1:
        return x
    index = np.repeat(np.arange(heads), times)
    return b.Gather(x, b.const(index, "heads"), axis=1)


@ROWS.always("LinearAttention")
def linear_attention(op: Op, b: Builder) -> Results:
    """(query, key, value [B,S,N*D], past state [B,N,K,V], decay [B,S,N or N*K], beta [B,S,N or 1])
    -> output, state
    """
    if op.attr("state_window", 0):
        raise MappingError("LinearAttention that returns a window of states is not supported")
    queries, heads = int(op.attrs["q_num_heads"]), int(op.attrs["kv_num_heads"])
    most = max(queries, heads)
    q = repeated(b, _heads(b, op.x, queries), queries, most // queries)
    rest = (_heads(b, op.need(i), heads) for i in (1, 2))
    k, v = (repeated(b, x, heads, most // heads) for x in rest)
    size, decay, beta = op.shape(0)[-1] // queries, op.input(4), op.input(5)
    decay = None if decay is None else _heads(b, decay, heads)
    if beta is not None:
        beta = b.Transpose(b.Unsqueeze(beta, [3]), perm=[0, 2, 1, 3])
    gates = [_widened(b, g, heads, most // heads) for g in (decay, beta)]
    state = op.input(3)
    state = _zeros(b, q, heads, v) if state is None else state
    state = repeated(b, state, heads, most // heads)
    scale = op.number("scale", 0.0) or float(1 / np.sqrt(size))
    y, last = recurrence(b, op.attr("update_rule", "gated_delta"), state, q * scale, k, v, *gates)
    if most > heads:
        last = b.Gather(last, b.const(np.arange(heads) * (most // heads), "heads"), axis=1)
    return b.Reshape(b.Transpose(y, perm=[0, 2, 1, 3]), [0, 0, -1]), last


def _heads(b: Builder, x: Value, heads: int) -> Value:
    """[B,S,N*D] -> [B,N,S,D]"""
    return b.Transpose(b.Reshape(x, [0, 0, heads, -1]), perm=[0, 2, 1, 3])


def _widened(b: Builder, gate: Value | None, heads: int, times: int) -> Value | None:
    """Repeat the heads of a gate, unless it has one for all."""
    alone = gate is not None and gate.shape is not None and gate.shape[1] == 1
    return gate if gate is None or alone else repeated(b, gate, heads, times)


def _zeros(b: Builder, q: Value, heads: int, v: Value) -> Value:
    """Return a state of zeros, [B,N,K,V]."""
    batch, key, value = b.Shape(q, start=0, end=1), b.Shape(q, start=3), b.Shape(v, start=3)
    return b.Expand(b.like(q, 0), b.Concat(batch, [heads], key, value, axis=0))


@ROWS.always("LinearAttentionGate")
def linear_attention_gate(op: Op, b: Builder) -> Results:
    """(a, bias, scale, b) -> scale * softplus(a + bias), sigmoid(b), computed in floats."""
    x = b.Cast(op.x, to=_FLOAT)
    decay = b.Cast(b.Softplus(x + op.need(1)) * op.need(2), to=op.x.dtype)
    rate = op.input(3)
    return decay, None if rate is None else b.Sigmoid(rate)


@ROWS.always("GatedDeltaNet")
def gated_delta_net(op: Op, b: Builder) -> Results:
    """(query, key, value [T,N,D] or [B,S,N,D], -, decay, beta, state [B,N,V,K], A, bias)"""
    if op.input(3) is not None or op.attr("state_update_capacity", 0) or op.has_output(2):
        raise MappingError(
            "GatedDeltaNet of requests of different lengths, or with state updates, is not "
            "supported",
            help="export it with one length for all requests, without cu_seqlens",
        )
    if op.input(1) is None:
        raise MappingError(
            "GatedDeltaNet with query, key and value in one operand is not supported"
        )
    parts = [_tokens(op, b, op.need(i)) for i in range(3)]  # [B,S,N,D]
    if op.attr("qk_l2_norm", 0):
        parts[:2] = [x / b.Sqrt(b.ReduceSumSquare(x, [-1]) + 1e-6) for x in parts[:2]]
    few, many = op.shape(0)[-2], op.shape(2)[-2]
    q, k, v = (b.Transpose(b.Cast(x, to=_FLOAT), perm=[0, 2, 1, 3]) for x in parts)
    q, k = (repeated(b, x, few, many // few) for x in (q, k))
    decay, beta = _gates(op, b, many)
    given = op.input(6)
    state = _zeros(b, q, many, v) if given is None else b.Transpose(given, perm=[0, 1, 3, 2])
    scale = op.number("scale", 0.0) or float(1 / np.sqrt(op.shape(0)[-1]))
    y, last = recurrence(
        b, op.attr("update_rule", "gated_delta"), state, q * scale, k, v, decay, beta
    )
    y = b.Cast(b.Transpose(y, perm=[0, 2, 1, 3]), to=op.x.dtype)
    y = b.Reshape(y, [-1, many, op.shape(2)[-1]]) if op.rank(0) == 3 else y
    return y, b.Transpose(last, perm=[0, 1, 3, 2])


def _tokens(op: Op, b: Builder, x: Value) -> Value:
    """Reshape [T,N,D] to [B,S,N,D], with the batch size of the state."""
    if rank_of(x) == 4:
        return x
    if op.input(6) is None:
        raise MappingError(
            "GatedDeltaNet needs a state, which determines the number of requests", "R105"
        )
    batch = b.Shape(op.need(6), start=0, end=1)
    return b.Reshape(x, b.Concat(batch, [-1], b.Shape(x, start=1), axis=0))


def _gates(op: Op, b: Builder, heads: int) -> tuple[Value | None, Value | None]:
    """Return the logarithm of the decay [B,N,S,1 or K] and beta [B,N,S,1]."""
    decay, beta = op.input(4), op.input(5)
    if decay is not None:
        decay = _activated_decay(op, b, b.Cast(_by_token(op, b, decay, heads), to=_FLOAT), heads)
        decay = b.Transpose(decay, perm=[0, 2, 1, 3])
    if beta is not None:
        beta = b.Transpose(b.Cast(_by_token(op, b, beta, heads), to=_FLOAT), perm=[0, 2, 1, 3])
        kind = op.attr("beta_activation", "none")
        beta = b.Sigmoid(beta) if kind == "sigmoid" else beta
    return decay, beta


def _by_token(op: Op, b: Builder, gate: Value, heads: int) -> Value:
    """[T,N], [T,N,K], [B,S,N] or [B,S,N,K] -> [B,S,N,1 or K]"""
    if op.rank(0) == 3:
        wide = gate if rank_of(gate) == 3 else b.Unsqueeze(gate, [2])
        return _tokens(op, b, wide)
    return gate if rank_of(gate) == 4 else b.Unsqueeze(gate, [3])


def _activated_decay(op: Op, b: Builder, x: Value, heads: int) -> Value:
    kind = op.attr("gate_activation", "none")
    if kind == "none":
        return x
    log, bias = op.input(7), op.input(8)
    if log is None:
        raise MappingError("GatedDeltaNet with a gate activation lacks a_log", "R105")
    moved = plus(x, None if bias is None else b.Reshape(bias, [heads, -1]))
    rate = b.Reshape(b.Exp(log), [heads, 1])
    if kind in ("softplus", "qwen"):
        return -rate * b.Softplus(moved)
    return b.Sigmoid(rate * moved) * op.number("gate_lower_bound", -5.0)
