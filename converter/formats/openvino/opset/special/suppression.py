"""Non-maximum suppression: of one class as ONNX does it, with decaying scores, of rotated boxes and of all classes together."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.fields import element_type
from converter.formats.openvino.opset.special.base import Emit, attributes, cast, filled, given, lifts, lowers, operand, opset, optional
from converter.graph.build import Builder
from converter.graph.infer import known
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType
LOWEST = float(np.finfo(np.float32).min)
SMALL = np.float32(1e-30)  # an overlap that no two boxes have, but not one that processors take for 0
BELOW, ABOVE = np.float32(1 - 2**-24), np.float32(1 + 2**-23)  # times a number: the one before or behind it


@lifts("NonMaxSuppression")
def lift_nms(layer: Layer, b: Builder) -> list[ir.Value]:
    """An overlap that reaches the threshold is too much here, in ONNX one that exceeds it; from opset5 on also the scores and the count."""
    a = attributes(layer, box_encoding="corner", sort_result_descending=True, output_type="i64")
    if a.box_encoding not in ("corner", "center"):
        raise MappingError(f"box_encoding={a.box_encoding!r} is not known", "R110")
    boxes, scores = (cast(b, operand(layer, i), T.FLOAT) for i in (0, 1))
    count, overlap, least, sigma = _limits(layer, b, 4)
    centred = int(a.box_encoding == "center")
    value = known(sigma)
    if value is None or np.any(value > 0):
        hard = int(opset(layer) < 9)
        picked, best = b.exts("SoftNonMaxSuppression", boxes, scores, count, overlap, least, sigma, center_point_box=centred, hard=hard, outputs=2)
    else:
        picked = b.op("NonMaxSuppression", boxes, scores, *_reaching(b, count, overlap), least, center_point_box=centred)
        best = b.op("GatherND", scores, picked)
    return _found(layer, b, picked, best, vars(a), rows=opset(layer) >= 5)


def _limits(layer: Layer, b: Builder, count: int) -> list[ir.Value]:
    """The number of boxes, the greatest overlap, the least score and sigma, each of shape [1]; 0 where one is absent."""
    found = []
    for i in range(2, 2 + count):
        v, kind = optional(layer, i), T.INT64 if i == 2 else T.FLOAT
        v = b.const(np.zeros(1, kind.numpy())) if v is None else cast(b, v, kind)
        found.append(b.op("Reshape", v, [1]) if known(v) is None else b.const(np.reshape(np.asarray(known(v)), [1])))
    return found


def _reaching(b: Builder, most: ir.Value, overlap: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The limits of ONNX: the largest number below the threshold; any two boxes reach an overlap of 0, so that only the first is left."""
    value, room = known(overlap), known(most)
    if value is None:
        below = b.op("Max", b.op("Mul", overlap, b.const(BELOW)), 0.0)
        return b.op("Where", b.op("Greater", overlap, 0.0), most, b.op("Min", most, [1])), below
    if value[0] <= 0:
        most = b.op("Min", most, [1]) if room is None else b.const(np.minimum(room, 1))
    return most, b.const(np.maximum(np.nextafter(value, np.float32(-np.inf)), np.float32(0)))


def _found(layer: Layer, b: Builder, picked: ir.Value, best: ir.Value, a: dict[str, Any], rows: bool) -> list[ir.Value]:
    """The results of the suppression of single classes: sorted if asked, with `rows` also the scores, which are floats whatever goes in."""
    if a["sort_result_descending"]:
        best, order = b.ops("TopK", best, b.op("Shape", best), axis=0, largest=1, sorted=1, outputs=2)
        picked = b.op("Gather", picked, order, axis=0)
    to = T(element_type.lift(a["output_type"]))
    if not rows:
        return [cast(b, picked, to)]
    places = b.op("Cast", b.op("Slice", picked, [0], [2], [1]), to=int(T.FLOAT))
    table = b.op("Concat", places, b.op("Unsqueeze", best, [1]), axis=1)
    return [cast(b, picked, to), table, cast(b, b.op("Shape", picked, start=0, end=1), to)]


def _written(e: Emit, node: Node) -> list[Any]:
    """boxes, scores, the number of boxes, the overlap that is too much, and the greatest score that is too small."""
    boxes, scores = given(node, 0), given(node, 1)
    if scores.dtype != T.FLOAT or boxes.dtype != T.FLOAT:
        raise MappingError("boxes or scores of another type than float")
    count, overlap, least = (node.input(i) for i in (2, 3, 4))
    value = np.zeros(1, np.float32) if overlap is None else known(overlap)
    limit: Any
    if value is not None:
        limit = np.maximum(np.nextafter(value.reshape(1), np.float32(np.inf)), SMALL)
    else:
        limit = e.op("Multiply", overlap, ABOVE, dtype=T.FLOAT, auto_broadcast="numpy")
        limit = e.op("Maximum", limit, SMALL, dtype=T.FLOAT, auto_broadcast="numpy")
    return [boxes, scores, count if count is not None else np.zeros(1, np.int64), limit, least if least is not None else np.array([LOWEST], np.float32)]


@lowers("NonMaxSuppression")
def lower_nms(node: Node, low: Lowering) -> None:
    e = Emit(node, low)
    more = [low.value("scores", T.FLOAT, None), low.value("count", T.INT64, None)]
    e.out(
        "NonMaxSuppression", *_written(e, node), outputs=[node.outputs[0], *more], sort_result_descending=False, output_type="i64",
        box_encoding="center" if filled(node)["center_point_box"] else "corner",
    )  # fmt: skip


@lowers("SoftNonMaxSuppression", domain="netconv")
def lower_soft(node: Node, low: Lowering) -> None:
    """A box that overlaps too much is out in opset5, whatever sigma is, and stays with a lower score in opset9."""
    e, a = Emit(node, low), filled(node)
    inputs: list[Any] = list(node.inputs)
    if not a["hard"] and low.version < 9:
        sigma = known(inputs[5])
        if sigma is None or not np.all(sigma > 0):
            raise MappingError("soft suppression needs opset9 when sigma is computed", "X206")
        inputs[3] = np.array([2], np.float32)  # no two boxes overlap that much
    rows, count = low.value("scores", T.FLOAT, None), low.value("count", T.INT64, None)
    picked, best = (*node.outputs, low.value("best", T.FLOAT, None))[:2]
    e.out(
        "NonMaxSuppression", *inputs, outputs=[picked, rows, count], revision=5 if a["hard"] or low.version < 9 else None,
        box_encoding="center" if a["center_point_box"] else "corner", sort_result_descending=False, output_type="i64",
    )  # fmt: skip
    e.out("Gather", rows, np.array(2, np.int64), np.array(1, np.int64), outputs=[best], batch_dims=0)


# rotated boxes, and all classes together ---------------------------------------------------------------------------------


@lifts("NMSRotated")
def lift_rotated(layer: Layer, b: Builder) -> list[ir.Value]:
    a = attributes(layer, sort_result_descending=True, output_type="i64", clockwise=True)
    boxes, scores = (cast(b, operand(layer, i), T.FLOAT) for i in (0, 1))
    most, overlap, least = _limits(layer, b, 3)
    picked, best = b.exts("NMSRotated", boxes, scores, *_reaching(b, most, overlap), least, clockwise=int(a.clockwise), outputs=2)
    return _found(layer, b, picked, best, vars(a), rows=True)


@lowers("NMSRotated", domain="netconv")
def lower_rotated(node: Node, low: Lowering) -> None:
    if low.version < 13:
        raise MappingError("rotated boxes need opset13", "X206")
    e = Emit(node, low)
    rows, count = low.value("scores", T.FLOAT, None), low.value("count", T.INT64, None)
    picked, best = (*node.outputs, low.value("best", T.FLOAT, None))[:2]
    clockwise = bool(filled(node)["clockwise"])
    e.out("NMSRotated", *_written(e, node), outputs=[picked, rows, count], sort_result_descending=False, output_type="i64", clockwise=clockwise)
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
