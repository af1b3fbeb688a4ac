"""com.microsoft attention operators in standard operators. B batch, S query length, T key length, N
heads, D head size.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.microsoft import ROWS
from converter.formats.onnx.op import Op, Results
from converter.graph.build import Builder

_LOWEST = float(np.finfo(np.float32).min)


@ROWS.always("Attention")
def attention(op: Op, b: Builder) -> Results:
    """(input [B,S,H], weights [H, q+k+v], bias, mask, past [2,B,N,P,D], bias to the scores) ->
    [B,S,v], present.
    """
    if (
        op.attrs.get("do_rotary")
        or op.attrs.get("past_present_share_buffer")
        or op.input(6) is not None
    ):
        raise MappingError("Attention with rotary embedding or a shared buffer is not supported")
    heads = int(op.attrs["num_heads"])
    total = op.shape(1)[1]
    sizes = list(op.attrs.get("qkv_hidden_sizes") or [total // 3] * 3)
    projected = b.op("MatMul", op.need(0), op.need(1))
    if op.input(2) is not None:
        projected = b.op("Add", projected, op.need(2))
    q, k, v = (
        heads_of(b, part, heads) for part in b.ops("Split", projected, sizes, outputs=3, axis=-1)
    )
    present = None
    if (past := op.input(4)) is not None:
        k = b.op("Concat", b.op("Gather", past, np.array(0), axis=0), k, axis=2)
        v = b.op("Concat", b.op("Gather", past, np.array(1), axis=0), v, axis=2)
    if op.has_output(1):
        present = b.op("Concat", b.op("Unsqueeze", k, [0]), b.op("Unsqueeze", v, [0]), axis=0)
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
        k, v = b.op("Concat", op.need(6), k, axis=2), b.op("Concat", op.need(7), v, axis=2)
    size = q.shape[3] if q.shape is not None else None
    if not isinstance(size, int):
        raise MappingError("MultiHeadAttention needs a static head size")
    return _attend(op, b, q, k, v, size, op.input(4), op.input(5)), k, v


def _operands(op: Op, b: Builder, heads: int) -> tuple[ir.Value, ir.Value, ir.Value]:
    query, key, value, bias = op.need(0), op.input(1), op.input(2), op.input(3)
    biases: list[ir.Value | None] = [None] * 3
    if bias is not None:
        hidden = (
            [op.shape(i)[-1] for i in (0, 1, 2)]
            if op.rank(0) == 3 and value is not None and op.rank(2) == 3
            else [op.shape(3)[0] // 3] * 3
        )
        biases = list(b.ops("Split", bias, hidden, outputs=3, axis=0))
    if op.rank(0) == 5:
        parts = [
            b.op("Transpose", b.op("Gather", query, np.array(i), axis=3), perm=[0, 2, 1, 3])
            for i in range(3)
        ]
        return tuple(_biased(b, p, h, heads) for p, h in zip(parts, biases, strict=True))  # type: ignore[return-value]
    q = heads_of(b, query if biases[0] is None else b.op("Add", query, biases[0]), heads)
    if key is None:
        raise MappingError("MultiHeadAttention without a key", code="R105")
    if op.rank(1) == 5:
        k, v = (
            b.op("Transpose", b.op("Gather", key, np.array(i), axis=3), perm=[0, 2, 1, 3])
            for i in range(2)
        )
        return q, _biased(b, k, biases[1], heads), _biased(b, v, biases[2], heads)
    if value is None:
        raise MappingError("MultiHeadAttention without a value", code="R105")
    if op.rank(1) == 4:
        return q, key, value
    k, v = (
        x if h is None else b.op("Add", x, h) for x, h in ((key, biases[1]), (value, biases[2]))
    )
    return q, heads_of(b, k, heads), heads_of(b, v, heads)


def _biased(b: Builder, x: ir.Value, bias: ir.Value | None, heads: int) -> ir.Value:
    return x if bias is None else b.op("Add", x, b.op("Reshape", bias, [1, heads, 1, -1]))


def heads_of(b: Builder, x: ir.Value, heads: int) -> ir.Value:
    """[B,S,N*D] -> [B,N,S,D]"""
    return b.op("Transpose", b.op("Reshape", x, [0, 0, heads, -1]), perm=[0, 2, 1, 3])


def _attend(
    op: Op,
    b: Builder,
    q: ir.Value,
    k: ir.Value,
    v: ir.Value,
    size: int,
    mask: ir.Value | None,
    bias: ir.Value | None,
) -> ir.Value:
    scale = op.attrs.get("scale", 0.0) or 1.0 / np.sqrt(size)
    scores = b.op(
        "Mul", b.op("MatMul", q, b.op("Transpose", k, perm=[0, 1, 3, 2])), b.like(q, scale)
    )
    if bias is not None:
        scores = b.op("Add", scores, bias)
    if mask is not None:
        scores = b.op(
            "Add",
            scores,
            _penalty(op, b, scores, mask, op.attrs.get("mask_filter_value", -10000.0)),
        )
    if op.attrs.get("unidirectional", 0):
        ones = b.op("Expand", np.array(True), b.op("Shape", scores, start=2))
        past = b.op("Sub", b.op("Shape", k, start=2, end=3), b.op("Shape", q, start=2, end=3))
        seen = b.op("Trilu", ones, b.op("Squeeze", past), upper=0)
        scores = b.op(
            "Where",
            seen,
            scores,
            b.like(scores, _LOWEST if scores.dtype != ir.DataType.FLOAT16 else -65504.0),
        )
    y = b.op("MatMul", b.op("Softmax", scores, axis=-1), v)
    return b.op("Reshape", b.op("Transpose", y, perm=[0, 2, 1, 3]), [0, 0, -1])


def _penalty(op: Op, b: Builder, scores: ir.Value, mask: ir.Value, value: float) -> ir.Value:
    """What is added to masked scores, from a mask of ones and zeros or from lengths."""
    rank = mask.shape.rank() if mask.shape is not None else None
    if rank == 1:
        batch, count = (
            scores.shape[0] if scores.shape is not None else None,
            mask.shape[0] if mask.shape is not None else None,
        )
        if (
            not isinstance(batch, int)
            or not isinstance(count, int)
            or count not in (batch, 2 * batch)
        ):
            raise MappingError(f"{op.kind} with a mask of lengths needs a static batch")
        places = b.op(
            "Range",
            np.array(0, np.int64),
            b.op("Squeeze", b.op("Shape", scores, start=3, end=4)),
            np.array(1, np.int64),
        )
        lengths = b.op(
            "Reshape", b.op("Cast", mask, to=ir.DataType.INT64), [count // batch, batch, 1, 1, 1]
        )
        keep = b.op("Less", places, b.op("Gather", lengths, np.array(0), axis=0))
        if count == 2 * batch:
            keep = b.op(
                "And",
                keep,
                b.op("GreaterOrEqual", places, b.op("Gather", lengths, np.array(1), axis=0)),
            )
    elif rank in (2, 3):
        keep = b.op(
            "Unsqueeze", b.op("Cast", mask, to=ir.DataType.BOOL), [1, 2] if rank == 2 else [1]
        )
    else:
        raise MappingError(f"{op.kind} with a mask of rank {rank} is not supported")
    return b.op("Where", keep, b.like(scores, 0.0), b.like(scores, value))


@ROWS.always("RotaryEmbedding")
def rotary_embedding(op: Op, b: Builder) -> Results:
    """(x [B,S,H] or [B,N,S,D], position ids [1] or [B,S], cos and sin [max, R/2]): pairs of
    features are turned by an angle.
    """
    if op.attrs.get("is_packed_batching", 0):
        raise MappingError("RotaryEmbedding with packed batching is not supported")
    x, rank, places = op.need(0), op.rank(0), op.need(1)
    half = op.shape(2)[1]
    partial = int(op.attrs.get("rotary_embedding_dim", 0))
    heads = int(op.attrs.get("num_heads", 0))
    if rank == 3:
        x = (
            heads_of(b, x, heads)
            if partial and heads
            else b.op("Transpose", b.op("Reshape", x, [0, 0, -1, 2 * half]), perm=[0, 2, 1, 3])
        )
    if op.rank(1) == 1:
        length = b.op("Squeeze", b.op("Shape", x, start=2, end=3))
        places = b.op(
            "Unsqueeze",
            b.op(
                "Add", b.op("Range", np.array(0, np.int64), length, np.array(1, np.int64)), places
            ),
            [0],
        )
    y = turned(op, b, x, op.need(2), op.need(3), places, bool(op.attrs.get("interleaved", 0)))
    return (
        b.op("Reshape", b.op("Transpose", y, perm=[0, 2, 1, 3]), b.op("Shape", op.need(0)))
        if rank == 3
        else y
    )


def turned(
    op: Op,
    b: Builder,
    x: ir.Value,
    cos: ir.Value,
    sin: ir.Value,
    places: ir.Value,
    interleaved: bool,
) -> ir.Value:
    """x [B,N,S,D] with its first R features turned by the angles of its places [B,S]; cos, sin
    [max, R/2].
    """
    size, width = (v.shape[-1] if v.shape is not None else None for v in (x, cos))
    if not isinstance(size, int) or not isinstance(width, int):
        raise MappingError(f"{op.kind} needs a static head size")
    factors = [
        b.op("Unsqueeze", b.op("Gather", table, places), [1]) for table in (cos, sin)
    ]  # [B,1,S,R/2]
    first, rest = x, None
    if 2 * width < size:
        first, rest = (
            b.op("Slice", x, [0], [2 * width], [3]),
            b.op("Slice", x, [2 * width], [np.iinfo(np.int64).max], [3]),
        )
    y = (_interleaved if interleaved else _halves)(b, first, *factors)
    return y if rest is None else b.op("Concat", y, rest, axis=-1)


def _rotate(
    b: Builder, first: ir.Value, second: ir.Value, cos: ir.Value, sin: ir.Value
) -> tuple[ir.Value, ir.Value]:
    real = b.op("Sub", b.op("Mul", first, cos), b.op("Mul", second, sin))
    return real, b.op("Add", b.op("Mul", first, sin), b.op("Mul", second, cos))


def _halves(b: Builder, x: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
    first, second = b.ops("Split", x, outputs=2, axis=-1, num_outputs=2)
    return b.op("Concat", *_rotate(b, first, second, cos, sin), axis=-1)


def _interleaved(b: Builder, x: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
    end = np.iinfo(np.int64).max
    first, second = b.op("Slice", x, [0], [end], [-1], [2]), b.op("Slice", x, [1], [end], [-1], [2])
    pair = [b.op("Unsqueeze", part, [-1]) for part in _rotate(b, first, second, cos, sin)]
    return b.op("Reshape", b.op("Concat", *pair, axis=-1), b.op("Shape", x))
