"""Strings as begins, ends and bytes."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.graph.build import Builder, Value
from converter.graph.extensions import extension, opaque
from converter.graph.infer import rank_of
from converter.graph.value import INT32, INT64

BYTES = ir.StringTensor([bytes([i]) for i in range(256)], shape=ir.Shape([256]))
EMPTY = ir.StringTensor([b""], shape=ir.Shape([1]))


@extension
def StringPack(b: Builder, begins: Value, ends: Value, symbols: Value) -> Value:
    """Strings of the shape of `begins`: the bytes (UTF-8) of symbols[n] from each begin to its end.

    begins and ends int32 or int64 of one shape; symbols uint8. Source: OpenVINO,
    StringTensorPack-15.
    """
    start = b.Reshape(b.Cast(begins, to=INT64), [-1])
    sizes = b.Reshape(b.Cast(ends, to=INT64), [-1]) - start
    longest = b.ReduceMax(b.Concat(sizes, [0], axis=0), [0], keepdims=0)
    nothing = b.Expand(b.const(EMPTY, "nothing"), b.Shape(start))
    table = b.const(BYTES, "bytes")
    with b.loop(longest, nothing) as body:
        at, (texts,) = body.iteration, body.states
        inside = at < sizes
        positions = body.Where(inside, start + at, 0)
        letters = body.Gather(table, body.Cast(body.Gather(symbols, positions), to=INT64))
        (joined,) = body.end(body.StringConcat(texts, body.Where(inside, letters, nothing)))
    return b.Reshape(joined, b.Shape(begins)) if rank_of(begins) != 1 else joined


@opaque
def StringUnpack(b: Any, texts: Value) -> list[tuple[ir.DataType, list[Any] | None]]:
    """Return the inverse of StringPack: begins and ends (int32, of the shape of `texts`) and the
    bytes of all strings.

    Source: OpenVINO, StringTensorUnpack-15.
    """
    shape = None if texts.shape is None else list(texts.shape)
    return [(INT32, shape), (INT32, shape), (ir.DataType.UINT8, [None])]
