"""com.microsoft attention operators in standard operators. B batch, S query length, T key length, N
heads, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.microsoft import ROWS, plus
from converter.formats.onnx.op import Op, Results
from converter.graph.build import Builder
from converter.graph.value import LOWEST, Value


@ROWS.always("Attention")
def attention(op: Op, b: Builder) -> Results:
    """(input [B,S,H], weights [H, q+k+v], bias, mask, past [2,B,N,P,D], bias to the scores) ->
    [B,S,v], present.
    """
    shared = op.attr("past_present_share_buffer") or op.input(6) is not None
    if op.attr("do_rotary") or shared:
        raise MappingError("Attention with rotary embedding or a shared buffer is not supported")
    heads = int(op.attrs["num_heads"])
    total = op.shape(1)[1]
    sizes = list(op.attr("qkv_hidden_sizes") or [total // 3] * 3)
    projected = plus(op.x @ op.need(1), op.input(2))
    q, k, v = (heads_of(b, part, heads) for part in b.Split(projected, sizes, outputs=3, axis=-1))
    present = None
    if (past := op.input(4)) is not None:
        k = b.Concat(b.Gather(past, 0, axis=0), k, axis=2)
        v = b.Concat(b.Gather(past, 1, axis=0), v, axis=2)
    if op.has_output(1):
        present = b.Concat(b.Unsqueeze(k, [0]), b.Unsqueeze(v, [0]), axis=0)
    y = _attend(op, b, q, k, v, sizes[0] // heads, op.input(3), op.input(5))
    return y, present


@ROWS.always("MultiHeadAttention")
def multi_head_attention(op: Op, b: Builder) -> Results:
    """(query, key, value, bias, key padding mask, bias to the scores, past key, past value) ->
    [B,S,v], present key, value.

    Query may hold all three ([B,S,N,3,D]), key may hold key and value ([B,T,N,2,D]) or be split
    into heads already.
    """
    if any(op.input(i) is not None for i in (8, 9)):
        raise MappingError(
            "MultiHeadAttention with a cache indirection or a shared buffer is not supported"
        )
    heads = int(op.attrs["num_heads"])
    q, k, v = _operands(op, b, heads)
    if op.input(6) is not None:
        k, v = b.Concat(op.need(6), k, axis=2), b.Concat(op.need(7), v, axis=2)
    return _attend(op, b, q, k, v, head_size(op, q), op.input(4), op.input(5)), k, v


def _operands(op: Op, b: Builder, heads: int) -> tuple[Value, Value, Value]:
    query, key, value, bias = op.x, op.input(1), op.input(2), op.input(3)
    biases: list[Value | None] = [None] * 3
    if bias is not None:
        hidden = (
            [op.shape(i)[-1] for i in (0, 1, 2)]
            if op.rank(0) == 3 and value is not None and op.rank(2) == 3
            else [op.shape(3)[0] // 3] * 3
        )
        biases = list(b.Split(bias, hidden, outputs=3, axis=0))
    if op.rank(0) == 5:
        q, k, v = (_packed(b, query, i, biases[i], heads) for i in range(3))
        return q, k, v
    q = heads_of(b, plus(query, biases[0]), heads)
    if key is None:
        raise MappingError("MultiHeadAttention without a key is not supported", "R105")
    if op.rank(1) == 5:
        k, v = (_packed(b, key, i, biases[1 + i], heads) for i in range(2))
        return q, k, v
    if value is None:
        raise MappingError("MultiHeadAttention without a value is not supported", "R105")
    if op.rank(1) == 4:
        return q, key, value
    k, v = (heads_of(b, plus(x, h), heads) for x, h in ((key, biases[1]), (value, biases[2])))
    return q, k, v


def _packed(b: Builder, x: Value, i: int, bias: Value | None, heads: int) -> Value:
    """Return operand `i` of several that are packed in [B,S,N,count,D], as [B,N,S,D]."""
    y = b.Transpose(b.Gather(x, i, axis=3), perm=[0, 2, 1, 3])
    return y if bias is None else y + b.Reshape(bias, [1, heads, 1, -1])


def head_size(op: Op, x: Value) -> int:
    """Return the size of the last axis. Raises MappingError if it is dynamic."""
    size = x.shape[-1] if x.shape is not None else None
    if not isinstance(size, int):
        raise MappingError(f"{op.kind} needs a static head size")
    return size


def heads_of(b: Builder, x: Value, heads: int) -> Value:
    """[B,S,N*D] -> [B,N,S,D]"""
    return b.Transpose(b.Reshape(x, [0, 0, heads, -1]), perm=[0, 2, 1, 3])


def joined(b: Builder, x: Value) -> Value:
    """[B,N,S,D] -> [B,S,N*D]"""
    return b.Reshape(b.Transpose(x, perm=[0, 2, 1, 3]), [0, 0, -1])


def _attend(
    op: Op,
    b: Builder,
    q: Value,
    k: Value,
    v: Value,
    size: int,
    mask: Value | None,
    bias: Value | None,
) -> Value:
    scores = plus(scaled_scores(op, b, q, k, size), bias)
    if mask is not None:
        scores = scores + _penalty(op, b, scores, mask, op.attr("mask_filter_value", -10000.0))
    if op.attr("unidirectional", 0):
        ones = b.Expand(True, b.Shape(scores, start=2))
        past = b.Shape(k, start=2, end=3) - b.Shape(q, start=2, end=3)
        scores = masked(b, b.Trilu(ones, b.Squeeze(past), upper=0), scores)
    return joined(b, b.Softmax(scores, axis=-1) @ v)


def scaled_scores(op: Op, b: Builder, q: Value, k: Value, size: int) -> Value:
    """Return the scaled attention scores [B,N,S,T]."""
    scale = op.attr("scale", 0.0) or 1.0 / np.sqrt(size)
    return q @ b.Transpose(k, perm=[0, 1, 3, 2]) * b.like(q, scale)


def masked(b: Builder, keep: Value, scores: Value) -> Value:
    """Set masked scores to the lowest number of their type."""
    half = scores.dtype == ir.DataType.FLOAT16
    return b.Where(keep, scores, b.like(scores, -65504.0 if half else LOWEST))


def _penalty(op: Op, b: Builder, scores: Value, mask: Value, value: float) -> Value:
    """Return the penalty added to masked scores, from a mask of ones and zeros or from lengths."""
    rank = mask.shape.rank() if mask.shape is not None else None
    if rank == 1:
        sizes = [v.shape[0] if v.shape is not None else None for v in (scores, mask)]
        batch, count = (n if isinstance(n, int) else 0 for n in sizes)
        if not batch or count not in (batch, 2 * batch):
            raise MappingError(f"{op.kind} with a mask of lengths needs a static batch size")
        positions = b.Range(0, b.Squeeze(b.Shape(scores, start=3, end=4)), 1)
        lengths = b.Reshape(b.Cast(mask, to=ir.DataType.INT64), [count // batch, batch, 1, 1, 1])
        keep = positions < b.Gather(lengths, 0, axis=0)
        if count == 2 * batch:
            keep = keep & (positions >= b.Gather(lengths, 1, axis=0))
    elif rank in (2, 3):
        keep = b.Unsqueeze(b.Cast(mask, to=ir.DataType.BOOL), [1, 2] if rank == 2 else [1])
    else:
        raise MappingError(f"{op.kind} with a mask of rank {rank} is not supported")
    return b.Where(keep, b.like(scores, 0.0), b.like(scores, value))


@ROWS.always("RotaryEmbedding")
def rotary_embedding(op: Op, b: Builder) -> Results:
    """(x [B,S,H] or [B,N,S,D], position ids [1] or [B,S], cos and sin [max, R/2]): pairs of
    features are rotated by an angle.
    """
    if op.attr("is_packed_batching", 0):
        raise MappingError("RotaryEmbedding with packed batching is not supported")
    x, rank, positions = op.x, op.rank(0), op.need(1)
    half = op.shape(2)[1]
    partial = int(op.attr("rotary_embedding_dim", 0))
    heads = int(op.attr("num_heads", 0))
    if rank == 3:
        shape = [0, 0, heads, -1] if partial and heads else [0, 0, -1, 2 * half]
        x = b.Transpose(b.Reshape(x, shape), perm=[0, 2, 1, 3])
    if op.rank(1) == 1:
        length = b.Squeeze(b.Shape(x, start=2, end=3))
        positions = b.Unsqueeze(b.Range(0, length, 1) + positions, [0])
    y = rotated(op, b, x, op.need(2), op.need(3), positions, bool(op.attr("interleaved", 0)))
    return b.Reshape(b.Transpose(y, perm=[0, 2, 1, 3]), b.Shape(op.x)) if rank == 3 else y


@ROWS.always("MRotaryEmbedding")
def multimodal_rotary_embedding(op: Op, b: Builder) -> Results:
    """(x [B,S,H] or [B,N,S,D], positions [3,B,S], cos and sin [max, R/2]): each angle is that of
    one of three positions.
    """
    if op.attr("is_packed_batching", 0) or op.number("scale", 1.0) != 1.0:
        raise MappingError("MRotaryEmbedding with packed batching or a scale is not supported")
    x, half, heads = op.x, op.shape(2)[1], int(op.attr("num_heads", 0))
    sections = [int(n) for n in op.attrs["mrope_section"]]
    stream = np.repeat(np.arange(3), sections)
    if op.attr("mrope_layout", 0):
        stream = np.zeros(half, np.int64)
        for i in (1, 2):
            stream[i : 3 * sections[i] : 3] = i
    if op.rank(0) == 3:
        shape = [0, 0, heads, -1] if heads else [0, 0, -1, 2 * half]
        x = b.Transpose(b.Reshape(x, shape), perm=[0, 2, 1, 3])
    tables = []
    for i in (2, 3):
        rows = b.Gather(op.need(i), op.need(1))  # [3,B,S,R/2]
        index = np.broadcast_to(stream, (1, 1, 1, half)).astype(np.int64)
        where = b.Expand(b.const(index, "streams"), b.Concat([1], b.Shape(rows, start=1), axis=0))
        tables.append(b.GatherElements(rows, where, axis=0))
    factors = [b.Transpose(t, perm=[1, 0, 2, 3]) for t in tables]  # [B,1,S,R/2]
    y = _by_factors(op, b, x, factors, 2 * half, bool(op.attr("interleaved", 0)))
    return b.Reshape(b.Transpose(y, perm=[0, 2, 1, 3]), b.Shape(op.x)) if op.rank(0) == 3 else y


@ROWS.always("GemmaRotaryEmbedding")
def gemma_rotary_embedding(op: Op, b: Builder) -> Results:
    """(angles [B,S,D], q, q with its halves exchanged, k, k with its halves exchanged)"""
    factors = [
        b.Unsqueeze(b.Cast(b.op(kind, op.x), to=op.need(1).dtype), [1]) for kind in ("Cos", "Sin")
    ]
    pairs = ((op.need(i), op.need(i + 1)) for i in (1, 3))
    return [x * factors[0] + other * factors[1] for x, other in pairs]


def rotated(
    op: Op, b: Builder, x: Value, cos: Value, sin: Value, positions: Value, interleaved: bool
) -> Value:
    """Return x [B,N,S,D] with its first R features rotated by the angles of its positions [B,S];
    cos, sin [max, R/2].
    """
    factors = [b.Unsqueeze(b.Gather(table, positions), [1]) for table in (cos, sin)]  # [B,1,S,R/2]
    return _by_factors(op, b, x, factors, 2 * head_size(op, cos), interleaved)


def _by_factors(
    op: Op, b: Builder, x: Value, factors: Sequence[Value], width: int, interleaved: bool
) -> Value:
    """Return x with its first `width` features rotated by the cosines and sines [B,1,S,R/2]."""
    size = head_size(op, x)
    first, rest = x, None
    if width < size:
        first, rest = b.Split(x, [width, size - width], outputs=2, axis=3)
    y = (_interleaved if interleaved else _halves)(b, first, *factors)
    return y if rest is None else b.Concat(y, rest, axis=-1)


def _rotate(b: Builder, first: Value, second: Value, cos: Value, sin: Value) -> tuple[Value, Value]:
    real = first * cos - second * sin
    return real, first * sin + second * cos


def _halves(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
    first, second = b.Split(x, outputs=2, axis=-1, num_outputs=2)
    return b.Concat(*_rotate(b, first, second, cos, sin), axis=-1)


def _interleaved(b: Builder, x: Value, cos: Value, sin: Value) -> Value:
    end = np.iinfo(np.int64).max
    first, second = x[..., :end:2], x[..., 1:end:2]
    pair = [b.Unsqueeze(part, [-1]) for part in _rotate(b, first, second, cos, sin)]
    return b.Reshape(b.Concat(*pair, axis=-1), b.Shape(x))
