"""com.microsoft GroupQueryAttention: attention over a cache of keys and values, in standard
operators.

B batch, S new tokens, P extent of the past, T extent of the present, N query heads, M heads of keys
and values, D head size.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.microsoft import ROWS, rms
from converter.formats.onnx.microsoft_attention import heads_of, turned
from converter.formats.onnx.op import Op, Results
from converter.graph.build import Builder

_I64 = ir.DataType.INT64
_ONE = np.array(1, np.int64)


@ROWS.always("GroupQueryAttention")
def group_query_attention(op: Op, b: Builder) -> Results:
    """(query, key, value, past key, past value [B,M,P,D], lengths - 1 [B], longest length, cos,
    sin, positions, bias, sinks) -> [B,S,N*D], present key, value. A query packed with key and value
    has no key. Tokens are numbered from the past's end.
    """
    _check(op)
    heads, groups = int(op.attrs["num_heads"]), int(op.attrs["kv_num_heads"])
    q, k, v = _operands(op, b, heads, groups)
    fresh = _scalar(b, b.op("Shape", q, start=2, end=3))
    lengths = b.op("Add", b.op("Cast", b.op("Reshape", op.need(5), [-1]), to=_I64), _ONE)
    past = b.op(
        "Max", b.op("Sub", lengths, fresh), np.array(0, np.int64)
    )  # [B]; a first prompt may be shorter than S
    places = b.op(
        "Add", b.op("Unsqueeze", past, [1]), b.op("Range", np.array(0, np.int64), fresh, _ONE)
    )  # [B,S]
    if op.attrs.get("do_rotary", 0):
        given = b.op("Cast", op.need(9), to=_I64) if op.input(9) is not None else places
        q, k = (
            turned(
                op, b, x, op.need(7), op.need(8), given, bool(op.attrs.get("rotary_interleaved", 0))
            )
            for x in (q, k)
        )
    if op.input(3) is not None:
        k, v = (_extended(op, b, op.need(i), x, past) for i, x in ((3, k), (4, v)))
    y = _attend(op, b, q, _spread(b, k, heads // groups), _spread(b, v, heads // groups), places)
    return b.op("Reshape", b.op("Transpose", y, perm=[0, 2, 1, 3]), [0, 0, -1]), k, v


def _check(op: Op) -> None:
    for i, what in ((12, "a quantised cache"), (13, "a quantised cache")):
        if op.input(i) is not None:
            raise MappingError(f"GroupQueryAttention with {what} is not supported")
    if op.attrs.get("qk_output", 0) or op.has_output(3):
        raise MappingError("GroupQueryAttention with the scores as an output is not supported")
    if op.attrs.get("sliding_window_cache", 0):
        raise MappingError(
            "GroupQueryAttention with a cache as large as its window is not supported"
        )


def _scalar(b: Builder, x: ir.Value) -> ir.Value:
    return b.op("Reshape", x, np.zeros(0, np.int64))


def _operands(op: Op, b: Builder, heads: int, groups: int) -> list[ir.Value]:
    """Query, key and value as [B, heads, S, D], normalised where weights for that are given."""
    if op.input(1) is not None:
        parts = [op.need(i) for i in range(3)]
    else:
        size = op.need(0).shape[-1] if op.need(0).shape is not None else None  # type: ignore[index]
        if not isinstance(size, int):
            raise MappingError("GroupQueryAttention of packed operands needs their static width")
        width = size // (heads + 2 * groups)
        parts = list(
            b.ops(
                "Split",
                op.need(0),
                [heads * width, groups * width, groups * width],
                outputs=3,
                axis=-1,
            )
        )
    q, k, v = (heads_of(b, x, n) for x, n in zip(parts, (heads, groups, groups), strict=True))
    if op.input(14) is not None:
        q, k = (
            rms(b, x, op.need(i), op.attrs.get("qk_norm_epsilon", 1e-6))[0]
            for x, i in ((q, 14), (k, 15))
        )
    return [q, k, v]


def _extended(op: Op, b: Builder, cache: ir.Value, new: ir.Value, past: ir.Value) -> ir.Value:
    """[B,M,T,D]: the first `past` entries of the cache of each sample, then the new ones. T is P
    where the cache has room for all.
    """
    room = b.op("Shape", cache, start=2, end=3)
    total = b.op("Max", room, b.op("Cast", b.op("Reshape", op.need(6), [1]), to=_I64))
    both = b.op("Concat", cache, new, axis=2)
    places = b.op(
        "Unsqueeze", b.op("Range", np.array(0, np.int64), _scalar(b, total), _ONE), [0]
    )  # [1,T]
    start = b.op("Unsqueeze", past, [1])
    moved = b.op("Add", b.op("Sub", places, start), room)
    last = b.op("Sub", b.op("Shape", both, start=2, end=3), _ONE)
    fresh = b.op("Less", b.op("Sub", places, start), b.op("Shape", new, start=2, end=3))
    taken = b.op("And", b.op("GreaterOrEqual", places, start), fresh)
    index = b.op("Where", taken, moved, b.op("Min", places, last))  # [B,T]
    batch = cache.shape[0] if cache.shape is not None else None
    if batch == 1:
        return b.op("Gather", both, b.op("Reshape", index, [-1]), axis=2)
    rows = b.op(
        "GatherND",
        b.op("Transpose", both, perm=[0, 2, 1, 3]),
        b.op("Unsqueeze", index, [2]),
        batch_dims=1,
    )
    return b.op("Transpose", rows, perm=[0, 2, 1, 3])


def _spread(b: Builder, x: ir.Value, times: int) -> ir.Value:
    """[B,M,T,D] -> [B,N,T,D]: each head `times` times in a row."""
    if times == 1:
        return x
    shape = b.op("Shape", x)
    part = [b.op("Slice", shape, [i], [i + 1]) for i in range(4)]
    wide = b.op(
        "Expand",
        b.op("Unsqueeze", x, [2]),
        b.op("Concat", part[0], part[1], [times], part[2], part[3], axis=0),
    )
    return b.op(
        "Reshape",
        wide,
        b.op("Concat", part[0], b.op("Mul", part[1], [times]), part[2], part[3], axis=0),
    )


def _attend(
    op: Op, b: Builder, q: ir.Value, k: ir.Value, v: ir.Value, places: ir.Value
) -> ir.Value:
    size = q.shape[3] if q.shape is not None else None
    if not isinstance(size, int):
        raise MappingError("GroupQueryAttention needs a static head size")
    scores = b.op(
        "Mul",
        b.op("MatMul", q, b.op("Transpose", k, perm=[0, 1, 3, 2])),
        b.like(q, op.attrs.get("scale", 0.0) or 1 / np.sqrt(size)),
    )
    if cap := op.attrs.get("softcap", 0.0):
        scores = b.op("Mul", b.op("Tanh", b.op("Div", scores, b.like(q, cap))), b.like(q, cap))
    columns = b.op(
        "Range", np.array(0, np.int64), _scalar(b, b.op("Shape", k, start=2, end=3)), _ONE
    )  # [T]
    if op.input(10) is not None:
        scores = b.op("Add", scores, _bias(op, b, columns))
    own = b.op("Unsqueeze", places, [1, 3])  # [B,1,S,1]
    keep = b.op("LessOrEqual", columns, own)
    if not op.attrs.get("causal", 1):
        keep = b.op("LessOrEqual", columns, b.op("ReduceMax", own, [2]))
    window = int(op.attrs.get("local_window_size", -1))
    if window > 0:
        keep = b.op(
            "And", keep, b.op("Greater", columns, b.op("Sub", own, np.array(window, np.int64)))
        )
    lowest = (
        np.finfo(np.float16).min if q.dtype == ir.DataType.FLOAT16 else np.finfo(np.float32).min
    )
    scores = b.op("Where", keep, scores, b.like(q, float(lowest)))
    return b.op("MatMul", _softmax(op, b, scores), v)


def _bias(op: Op, b: Builder, columns: ir.Value) -> ir.Value:
    """The bias speaks of as many columns as there are tokens; the room behind them is masked."""
    bias = op.need(10)
    missing = b.op("Sub", b.op("Shape", columns), b.op("Shape", bias, start=3, end=4))
    return b.op(
        "Pad",
        bias,
        b.op("Concat", [0], b.op("Max", missing, np.zeros(1, np.int64)), axis=0),
        None,
        [3],
    )


def _softmax(op: Op, b: Builder, scores: ir.Value) -> ir.Value:
    """`head_sink` (zeros for smooth_softmax) is one more score in the denominator."""
    sink = op.input(11)
    if sink is None and op.attrs.get("smooth_softmax", 0) != 1:
        return b.op("Softmax", scores, axis=-1)
    column = (
        b.op("Reshape", sink, [1, -1, 1, 1])
        if sink is not None
        else b.op("Reshape", b.like(scores, 0), [1, 1, 1, 1])
    )
    shape = b.op("Concat", b.op("Shape", scores, start=0, end=3), [1], axis=0)
    both = b.op("Softmax", b.op("Concat", scores, b.op("Expand", column, shape), axis=-1), axis=-1)
    return b.op("Slice", both, [0], [-1], [-1])
