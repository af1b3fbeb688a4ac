"""Non-maximum suppression."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.fields import element_type
from converter.formats.openvino.opset.special.base import Emit, attributes, cast, filled, given, lifts, lowers, operand, opset, optional
from converter.graph.build import Builder
from converter.graph.infer import known, rank_of
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType
LOWEST = float(np.finfo(np.float32).min)


@lifts("NonMaxSuppression")
def lift_nms(layer: Layer, b: Builder) -> list[ir.Value]:
    """Boxes at the threshold are taken here and left by ONNX; from opset5 on also the scores and the count."""
    a = attributes(layer, box_encoding="corner", sort_result_descending=True, output_type="i64")
    boxes, scores = (cast(b, operand(layer, i), T.FLOAT) for i in (0, 1))
    count, overlap = (_one(b, optional(layer, i), t) for i, t in ((2, T.INT64), (3, T.FLOAT)))
    sigma = optional(layer, 5)
    if sigma is not None and (known(sigma) is None or np.any(known(sigma) != 0)):
        raise MappingError("soft suppression (soft_nms_sigma) has no counterpart")
    threshold, scores = _below(b, optional(layer, 4), scores)
    picked = b.op("NonMaxSuppression", boxes, scores, count, overlap, threshold, center_point_box=int(a.box_encoding == "center"))
    best = b.op("GatherND", scores, picked)
    if a.sort_result_descending:
        size = b.op("Shape", best)
        best, order = b.ops("TopK", best, size, axis=0, largest=1, sorted=1, outputs=2)
        picked = b.op("Gather", picked, order, axis=0)
    to = T(element_type.lift(a.output_type))
    result = [cast(b, picked, to)]
    if opset(layer) < 5:
        return result
    places = b.op("Cast", b.op("Slice", picked, [0], [2], [1]), to=int(T.FLOAT))
    rows = b.op("Concat", places, b.op("Unsqueeze", best, [1]), axis=1)
    kind = operand(layer, 1).dtype
    total = b.op("Shape", picked, start=0, end=1)
    return [*result, cast(b, rows, kind or T.FLOAT), cast(b, total, to)]


def _one(b: Builder, v: ir.Value | None, dtype: ir.DataType) -> ir.Value | None:
    if v is None:
        return None
    v = cast(b, v, dtype)
    return b.op("Reshape", v, [1]) if rank_of(v) != 1 else v


def _below(b: Builder, v: ir.Value | None, scores: ir.Value) -> tuple[ir.Value, ir.Value]:
    """`>` there is `>=` here: the largest number below the threshold (0 when it is absent), or scores without those below it."""
    value = np.zeros(1, np.float32) if v is None else known(v)
    if value is not None:
        with np.errstate(over="ignore"):  # below the lowest number lies -inf, and that is meant
            return b.const(np.nextafter(value.reshape(1).astype(np.float32), np.float32(-np.inf))), scores
    assert v is not None
    high = b.op("GreaterOrEqual", scores, b.op("Reshape", cast(b, v, T.FLOAT), np.zeros(0, np.int64)))
    return b.const(np.array([LOWEST], np.float32)), b.op("Where", high, scores, b.const(np.float32(-np.inf)))


@lowers("NonMaxSuppression")
def lower_nms(node: Node, low: Lowering) -> None:
    e, a = Emit(node, low), filled(node)
    boxes, scores = given(node, 0), given(node, 1)
    if scores.dtype != T.FLOAT or boxes.dtype != T.FLOAT:
        raise MappingError("boxes or scores of another type than float")
    threshold = np.array([LOWEST], np.float32)
    if node.input(4) is not None:
        value = known(node.input(4))
        if value is not None:
            threshold = np.nextafter(value.reshape(1).astype(np.float32), np.float32(np.inf))
        else:
            high = e.op("Greater", scores, e.op("Reshape", node.input(4), [1], special_zero=False), dtype=T.BOOL, auto_broadcast="numpy")
            scores = e.op("Select", high, scores, np.array(-np.inf, np.float32), dtype=T.FLOAT, auto_broadcast="numpy")
    count: Any = node.input(2) if node.input(2) is not None else np.zeros(1, np.int64)
    overlap: Any = node.input(3) if node.input(3) is not None else np.zeros(1, np.float32)
    more = [low.value("scores", T.FLOAT, None), low.value("count", T.INT64, None)]
    encoding = "center" if a["center_point_box"] else "corner"
    e.out(
        "NonMaxSuppression", boxes, scores, count, overlap, threshold, outputs=[node.outputs[0], *more], box_encoding=encoding,
        sort_result_descending=False, output_type="i64",
    )  # fmt: skip
