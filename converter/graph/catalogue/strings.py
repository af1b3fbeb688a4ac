"""Strings as begins, ends and bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.extensions import extension, opaque
from converter.graph.infer import rank_of

INT64 = int(ir.DataType.INT64)
BYTES = ir.StringTensor([bytes([i]) for i in range(256)], shape=ir.Shape([256]))
EMPTY = ir.StringTensor([b""], shape=ir.Shape([1]))


@extension
def StringPack(b: Builder, begins: ir.Value, ends: ir.Value, symbols: ir.Value) -> ir.Value:
    """Strings of the shape of `begins`: the bytes (UTF-8) of symbols[n] from each begin to its end."""
    start = b.op("Reshape", b.op("Cast", begins, to=INT64), [-1])
    sizes = b.op("Sub", b.op("Reshape", b.op("Cast", ends, to=INT64), [-1]), start)
    longest = b.op("ReduceMax", b.op("Concat", sizes, [0], axis=0), [0], keepdims=0)
    nothing = b.op("Expand", b.const(EMPTY, "nothing"), b.op("Shape", start))
    table = b.const(BYTES, "bytes")
    body = b.body("letter")
    at = body.input("at", ir.DataType.INT64, [])
    body.input("on", ir.DataType.BOOL, [])
    texts = body.input("texts", ir.DataType.STRING, [None])
    inside = body.op("Less", at, sizes)
    places = body.op("Where", inside, body.op("Add", start, at), body.const(np.int64(0)))
    letters = body.op("Gather", table, body.op("Cast", body.op("Gather", symbols, places), to=INT64))
    body.output(body.const(np.array(True), "go_on"), body.op("StringConcat", texts, body.op("Where", inside, letters, nothing)))
    joined = b.op("Loop", longest, b.const(np.array(True)), nothing, body=body.graph)
    return b.op("Reshape", joined, b.op("Shape", begins)) if rank_of(begins) != 1 else joined


@opaque
def StringUnpack(b: Any, texts: ir.Value) -> list[tuple[ir.DataType, list[Any] | None]]:
    """The inverse: begins and ends (int32, of the shape of `texts`) and the bytes of all strings."""
    shape = None if texts.shape is None else list(texts.shape)
    return [(ir.DataType.INT32, shape), (ir.DataType.INT32, shape), (ir.DataType.UINT8, [None])]
