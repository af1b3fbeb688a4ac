"""com.microsoft GroupQueryAttention: attention over a cache of keys and values, in standard
operators.

B batch, S new tokens, P extent of the past, T extent of the present, N query heads, M heads of keys
and values, D head size.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.microsoft import ROWS, rms
from converter.formats.onnx.microsoft_attention import (
    head_size,
    heads_of,
    joined,
    masked,
    rotated,
    scaled_scores,
)
from converter.formats.onnx.op import Op, Results
from converter.graph.build import Builder
from converter.graph.value import Value

_I64, _FLOAT = ir.DataType.INT64, ir.DataType.FLOAT


@ROWS.always("GroupQueryAttention")
def group_query_attention(op: Op, b: Builder) -> Results:
    """(query, key, value, past key, past value [B,M,P,D], lengths - 1 [B], longest length, cos,
    sin, positions, bias, sinks) -> [B,S,N*D], present key, value. A query packed with key and value
    has no key. Tokens are numbered from the past's end.
    """
    _check(op)
    heads, groups = int(op.attrs["num_heads"]), int(op.attrs["kv_num_heads"])
    q, k, v = _operands(op, b, heads, groups)
    fresh = _scalar(b, b.Shape(q, start=2, end=3))
    lengths = b.Cast(b.Reshape(op.need(5), [-1]), to=_I64) + 1
    past = b.Max(lengths - fresh, 0)  # [B]; a first prompt may be shorter than S
    positions = b.Unsqueeze(past, [1]) + b.Range(0, fresh, 1)  # [B,S]
    if op.attr("do_rotary", 0):
        given = b.Cast(op.need(9), to=_I64) if op.input(9) is not None else positions
        pairs = bool(op.attr("rotary_interleaved", 0))
        q, k = (rotated(op, b, x, op.need(7), op.need(8), given, pairs) for x in (q, k))
    scales = [_cache_scale(op, b, i, groups, q) for i in (12, 13)]
    k, v = (_quantized(b, x, s) for x, s in zip((k, v), scales, strict=True))
    if op.input(3) is not None:
        k, v = (_extended(op, b, op.need(i), x, past) for i, x in ((3, k), (4, v)))
    read = [
        x if scale is None else b.Cast(x, to=q.dtype or _FLOAT) * scale
        for x, scale in zip((k, v), scales, strict=True)
    ]
    spread = [_spread(b, x, heads // groups) for x in read]
    y = _attend(op, b, q, spread[0], spread[1], positions)
    return joined(b, y), k, v


def _cache_scale(op: Op, b: Builder, index: int, groups: int, q: Value) -> Value | None:
    """Return the scale of a cache of 8-bit integers, for all numbers or for each channel of each
    head; None for a cache of floats.
    """
    kind = op.attr("k_quant_type" if index == 12 else "v_quant_type", "NONE")
    if op.input(index) is None or kind == "NONE":
        return None
    cache = op.input(3)
    bits = op.attr("kv_cache_bit_width", 0)
    if bits not in (0, 8) or (cache is not None and cache.dtype != ir.DataType.INT8):
        raise MappingError(
            "GroupQueryAttention with a cache of other numbers than floats and 8-bit integers is "
            "not supported",
            help="export the model with a cache of int8 or of floats",
        )
    scale = op.need(index)
    scale = scale if scale.dtype == q.dtype else b.Cast(scale, to=q.dtype or _FLOAT)
    return b.Reshape(scale, [1, 1, 1, 1] if kind == "PER_TENSOR" else [1, groups, 1, -1])


def _quantized(b: Builder, x: Value, scale: Value | None) -> Value:
    """Return new keys or values as the cache stores them."""
    if scale is None:
        return x
    whole = b.Round(x / scale)
    clipped = b.Clip(whole, b.like(whole, -128), b.like(whole, 127))
    return b.Cast(clipped, to=ir.DataType.INT8)


def _check(op: Op) -> None:
    if op.input(16) is not None:
        raise MappingError("GroupQueryAttention with query_seqlens is not supported")
    if op.attr("qk_output", 0) or op.has_output(3):
        raise MappingError("GroupQueryAttention with a scores output is not supported")
    if op.attr("sliding_window_cache", 0):
        raise MappingError(
            "GroupQueryAttention with a cache as large as its window is not supported"
        )


@ROWS.always("SparseAttention")
def sparse_attention(op: Op, b: Builder) -> Results:
    """(query, key, value, past key, past value [B,M,T,D], rows and columns of the blocks that are
    kept, longest length, lengths [B], cos, sin), with as many layouts of blocks as the heads use in
    turn.
    """
    heads, groups = int(op.attrs["num_heads"]), int(op.attrs["kv_num_heads"])
    lengths = b.Cast(b.Reshape(op.need(8), [-1]), to=_I64)
    inner = replace(op, inputs=[*op.inputs[:5], None, op.need(7)], attrs=dict(op.attrs))
    q, k, v = _operands(inner, b, heads, groups)
    fresh = _scalar(b, b.Shape(q, start=2, end=3))
    past = b.Max(lengths - fresh, 0)
    positions = b.Unsqueeze(past, [1]) + b.Range(0, fresh, 1)  # [B,S]
    if op.attr("do_rotary", 0):
        pairs = bool(op.attr("rotary_interleaved", 0))
        q, k = (rotated(op, b, x, op.need(9), op.need(10), positions, pairs) for x in (q, k))
    k, v = (_extended(inner, b, op.need(i), x, past) for i, x in ((3, k), (4, v)))
    blocks, size = _block_mask(op), int(op.attrs["sparse_block_size"])
    kept = np.kron(blocks, np.ones((size, size), bool))[np.arange(heads) % len(blocks)]
    rows = b.Gather(b.const(kept, "kept"), positions, axis=1)  # [N,B,S,T]
    columns = b.Range(0, _scalar(b, b.Shape(k, start=2, end=3)), 1)
    rows = b.Gather(b.Transpose(rows, perm=[1, 0, 2, 3]), columns, axis=3)
    keep = rows & (columns <= b.Unsqueeze(positions, [1, 3]))
    spread = [_spread(b, x, heads // groups) for x in (k, v)]
    scores = masked(b, keep, scaled_scores(op, b, q, spread[0], head_size(op, q)))
    return joined(b, b.Softmax(scores, axis=-1) @ spread[1]), k, v


def _block_mask(op: Op) -> np.ndarray:
    """Return which blocks of keys each block of queries reads, [layouts, blocks, blocks]."""
    starts, columns = op.constant(5), op.constant(6)
    count = starts.shape[1] - 1
    kept = np.zeros((len(starts), count, count), bool)
    for layout, (bounds, where) in enumerate(zip(starts, columns, strict=True)):
        for row in range(count):
            kept[layout, row, where[bounds[row] : bounds[row + 1]]] = True
    return kept


def _scalar(b: Builder, x: Value) -> Value:
    return b.Reshape(x, [])


def _operands(op: Op, b: Builder, heads: int, groups: int) -> list[Value]:
    """Return query, key and value as [B, heads, S, D], normalized if there are weights for that."""
    if op.input(1) is not None:
        parts = [op.need(i) for i in range(3)]
    else:
        width = head_size(op, op.x) // (heads + 2 * groups)
        sizes = [n * width for n in (heads, groups, groups)]
        parts = list(b.Split(op.x, sizes, outputs=3, axis=-1))
    q, k, v = (heads_of(b, x, n) for x, n in zip(parts, (heads, groups, groups), strict=True))
    if op.input(14) is not None:
        epsilon = op.number("qk_norm_epsilon", 1e-6)
        q, k = (rms(b, x, op.need(i), epsilon)[0] for x, i in ((q, 14), (k, 15)))
    return [q, k, v]


def _extended(op: Op, b: Builder, cache: Value, new: Value, past: Value) -> Value:
    """Return [B,M,T,D]: the first `past` entries of each sample's cache, followed by the new ones.
    T is P if the cache has room for all.
    """
    room = b.Shape(cache, start=2, end=3)
    total = b.Max(room, b.Cast(b.Reshape(op.need(6), [1]), to=_I64))
    both = b.Concat(cache, new, axis=2)
    positions = b.Unsqueeze(b.Range(0, _scalar(b, total), 1), [0])  # [1,T]
    start = b.Unsqueeze(past, [1])
    moved = positions - start + room
    last = b.Shape(both, start=2, end=3) - 1
    fresh = positions - start < b.Shape(new, start=2, end=3)
    taken = (positions >= start) & fresh
    index = b.Where(taken, moved, b.Min(positions, last))  # [B,T]
    batch = cache.shape[0] if cache.shape is not None else None
    if batch == 1:
        return b.Gather(both, b.Reshape(index, [-1]), axis=2)
    rows = b.GatherND(b.Transpose(both, perm=[0, 2, 1, 3]), b.Unsqueeze(index, [2]), batch_dims=1)
    return b.Transpose(rows, perm=[0, 2, 1, 3])


def _spread(b: Builder, x: Value, times: int) -> Value:
    """Repeat each head `times` times in a row: [B,M,T,D] -> [B,N,T,D]."""
    if times == 1:
        return x
    shape = b.Shape(x)
    batch, heads, steps, size = (shape[i : i + 1] for i in range(4))
    wide = b.Expand(b.Unsqueeze(x, [2]), b.Concat(batch, heads, [times], steps, size, axis=0))
    return b.Reshape(wide, b.Concat(batch, heads * times, steps, size, axis=0))


def _attend(op: Op, b: Builder, q: Value, k: Value, v: Value, positions: Value) -> Value:
    scores = scaled_scores(op, b, q, k, head_size(op, q))
    if cap := op.number("softcap", 0.0):
        scores = b.Tanh(scores / cap) * cap
    columns = b.Range(0, _scalar(b, b.Shape(k, start=2, end=3)), 1)  # [T]
    if op.input(10) is not None:
        scores = scores + _bias(op, b, columns)
    own = b.Unsqueeze(positions, [1, 3])  # [B,1,S,1]
    keep = columns <= own
    if not op.attr("causal", 1):
        keep = columns <= b.ReduceMax(own, [2])
    window = int(op.attr("local_window_size", -1))
    if window > 0:
        keep = keep & (columns > own - window)
    return _softmax(op, b, masked(b, keep, scores)) @ v


def _bias(op: Op, b: Builder, columns: Value) -> Value:
    """Extend the bias, which has as many columns as there are tokens; the columns after them are
    masked.
    """
    bias = op.need(10)
    missing = b.Shape(columns) - b.Shape(bias, start=3, end=4)
    return b.Pad(bias, b.Concat([0], b.Max(missing, [0]), axis=0), None, [3])


def _softmax(op: Op, b: Builder, scores: Value) -> Value:
    """Compute Softmax with `head_sink` (zeros for smooth_softmax) as an additional score in the
    denominator.
    """
    sink = op.input(11)
    if sink is None and op.attr("smooth_softmax", 0) != 1:
        return b.Softmax(scores, axis=-1)
    column = b.Reshape(b.like(scores, 0) if sink is None else sink, [1, -1, 1, 1])
    shape = b.Concat(b.Shape(scores, start=0, end=3), [1], axis=0)
    both = b.Softmax(b.Concat(scores, b.Expand(column, shape), axis=-1), axis=-1)
    return both[..., :-1]
