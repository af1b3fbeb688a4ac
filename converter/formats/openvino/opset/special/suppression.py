"""Non-maximum suppression: of one class as ONNX does it, with decaying scores, of rotated boxes and of all classes together."""

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
    if a.box_encoding not in ("corner", "center"):
        raise MappingError(f"box_encoding={a.box_encoding!r} is not known", "R110")
    boxes, scores = (cast(b, operand(layer, i), T.FLOAT) for i in (0, 1))
    count, overlap = (_one(b, optional(layer, i), t) for i, t in ((2, T.INT64), (3, T.FLOAT)))
    sigma, centred = optional(layer, 5), int(a.box_encoding == "center")
    if sigma is not None and (known(sigma) is None or np.any(known(sigma) > 0)):
        limits = [_one(b, optional(layer, i), T.FLOAT) or b.const(np.zeros(1, np.float32)) for i in (3, 4, 5)]
        most = count if count is not None else b.const(np.zeros(1, np.int64))
        hard = int(opset(layer) < 9)
        picked, best = b.exts("SoftNonMaxSuppression", boxes, scores, most, *limits, center_point_box=centred, hard=hard, outputs=2)
    else:
        threshold, scores = _below(b, optional(layer, 4), scores)
        picked = b.op("NonMaxSuppression", boxes, scores, count, overlap, threshold, center_point_box=centred)
        best = b.op("GatherND", scores, picked)
    return _found(layer, b, picked, best, vars(a), rows=opset(layer) >= 5)


def _found(layer: Layer, b: Builder, picked: ir.Value, best: ir.Value, a: dict[str, Any], rows: bool) -> list[ir.Value]:
    """The results of the suppression of single classes: sorted if asked, the scores (with `rows`) in the type of the thresholds."""
    if a["sort_result_descending"]:
        best, order = b.ops("TopK", best, b.op("Shape", best), axis=0, largest=1, sorted=1, outputs=2)
        picked = b.op("Gather", picked, order, axis=0)
    to = T(element_type.lift(a["output_type"]))
    if not rows:
        return [cast(b, picked, to)]
    places = b.op("Cast", b.op("Slice", picked, [0], [2], [1]), to=int(T.FLOAT))
    table = b.op("Concat", places, b.op("Unsqueeze", best, [1]), axis=1)
    kind = next((v.dtype for v in (optional(layer, 4), optional(layer, 3)) if v is not None), None)
    return [cast(b, picked, to), cast(b, table, kind or T.FLOAT), cast(b, b.op("Shape", picked, start=0, end=1), to)]


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


@lowers("SoftNonMaxSuppression", domain="netconv")
def lower_soft(node: Node, low: Lowering) -> None:
    """Soft suppression that is also hard was opset5's meaning; opset9's is the other one."""
    e, a = Emit(node, low), filled(node)
    if low.version < 9 or a["hard"]:
        raise MappingError("soft suppression needs opset9, which drops no box by its overlap alone", "X206")
    rows = low.value("scores", T.FLOAT, None)
    picked, best = (*node.outputs, low.value("best", T.FLOAT, None))[:2]
    count = low.value("count", T.INT64, None)
    e.out(
        "NonMaxSuppression", *node.inputs, outputs=[picked, rows, count], box_encoding="center" if a["center_point_box"] else "corner",
        sort_result_descending=False, output_type="i64",
    )  # fmt: skip
    e.out("Gather", rows, np.array(2, np.int64), np.array(1, np.int64), outputs=[best], batch_dims=0)


# rotated boxes, and all classes together ---------------------------------------------------------------------------------


@lifts("NMSRotated")
def lift_rotated(layer: Layer, b: Builder) -> list[ir.Value]:
    a = attributes(layer, sort_result_descending=True, output_type="i64", clockwise=True)
    boxes, scores = (cast(b, operand(layer, i), T.FLOAT) for i in (0, 1))
    limits = [_one(b, operand(layer, i), t) for i, t in ((2, T.INT64), (3, T.FLOAT), (4, T.FLOAT))]
    picked, best = b.exts("NMSRotated", boxes, scores, *limits, clockwise=int(a.clockwise), outputs=2)
    return _found(layer, b, picked, best, vars(a), rows=True)


@lowers("NMSRotated", domain="netconv")
def lower_rotated(node: Node, low: Lowering) -> None:
    if low.version < 13:
        raise MappingError("rotated boxes need opset13", "X206")
    e = Emit(node, low)
    rows, count = low.value("scores", T.FLOAT, None), low.value("count", T.INT64, None)
    picked, best = (*node.outputs, low.value("best", T.FLOAT, None))[:2]
    e.out(
        "NMSRotated", *node.inputs, outputs=[picked, rows, count], sort_result_descending=False, output_type="i64", clockwise=bool(filled(node)["clockwise"])
    )
    e.out("Gather", rows, np.array(2, np.int64), np.array(1, np.int64), outputs=[best], batch_dims=0)


SELECTION: dict[str, Any] = {
    "sort_result_type": "none", "sort_result_across_batch": False, "score_threshold": 0.0, "nms_top_k": -1, "keep_top_k": -1, "background_class": -1,
    "normalized": True,
}  # fmt: skip


def _selection(layer: Layer, **defaults: Any) -> tuple[dict[str, Any], ir.DataType]:
    a = vars(attributes(layer, output_type="i64", **SELECTION, **defaults))
    if a["sort_result_type"] not in ("none", "score", "classid"):
        raise MappingError(f"sort_result_type={a['sort_result_type']!r} is not known", "R110")
    to = T(element_type.lift(a.pop("output_type")))
    return {k: int(v) if isinstance(v, bool) else v for k, v in a.items()}, to


def _selected(node: Node, low: Lowering, kind: str) -> None:
    flags = ("sort_result_across_batch", "normalized")
    a = {k: bool(v) if k in flags else v for k, v in filled(node).items()}
    more = [low.value(n, t, None) for n, t in (("rows", T.FLOAT), ("indices", T.INT64), ("counts", T.INT64))]
    Emit(node, low).out(kind, *node.inputs, outputs=[*node.outputs, *more[len(node.outputs) :]], output_type="i64", **a)


@lifts("MatrixNms")
def lift_matrix(layer: Layer, b: Builder) -> list[ir.Value]:
    a, to = _selection(layer, decay_function="linear", gaussian_sigma=2.0, post_threshold=0.0)
    rows, *rest = b.exts("MatrixNms", operand(layer, 0), operand(layer, 1), **a, outputs=3)
    return [rows, *(cast(b, v, to) for v in rest)]


@lowers("MatrixNms", domain="netconv")
def lower_matrix(node: Node, low: Lowering) -> None:
    if low.version < 8:
        raise MappingError("MatrixNms needs opset8", "X206")
    _selected(node, low, "MatrixNms")


@lifts("MulticlassNms")
def lift_multiclass(layer: Layer, b: Builder) -> list[ir.Value]:
    a, to = _selection(layer, iou_threshold=0.0, nms_eta=1.0)
    rows, *rest = b.exts("MulticlassNms", operand(layer, 0), operand(layer, 1), optional(layer, 2), **a, outputs=3)
    return [rows, *(cast(b, v, to) for v in rest)]


@lowers("MulticlassNms", domain="netconv")
def lower_multiclass(node: Node, low: Lowering) -> None:
    if low.version < 8 or (low.version < 9 and node.input(2) is not None):
        raise MappingError("MulticlassNms needs opset8, with boxes of their own for each class opset9", "X206")
    _selected(node, low, "MulticlassNms")
