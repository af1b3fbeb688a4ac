"""Suppression of overlapping boxes, and detections of anchors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.elementwise import number
from converter.formats.tflite.rules.context import (
    INT32,
    TENSOR_INT32,
    TENSOR_INT64,
    LiftContext,
    LowerContext,
)
from converter.formats.tflite.rules.fields import data
from converter.formats.tflite.rules.shape import small
from converter.graph.infer import known
from converter.graph.value import Value, with_operators
from converter.mapping.fields import Attr, Detail, Group, RequireAttr, spread
from converter.mapping.rules import Custom, Rule, custom, op

NOTHING = np.zeros(0, np.int64)


def below(number: float) -> float:
    """Return the largest float32 number below `number`: exceeding it means reaching `number`."""
    return float(np.nextafter(np.float32(number), np.float32(-np.inf)))


def above(number: float) -> float:
    """Return the next larger float32."""
    return float(np.nextafter(np.float32(number), np.float32(np.inf)))


def one(r: LiftContext, index: int) -> float | None:
    """Return the number at an input, None where it is computed."""
    array = known(r.input(index))
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def kept_boxes(r: LiftContext) -> tuple[Value, Value]:
    """Return the selected boxes, by descending score, and their scores.

    Inputs are [boxes, scores, most, overlap, least score, (sigma)]. A box is removed if its overlap
    reaches the threshold, in ONNX if it exceeds it.
    """
    b, boxes, scores = r.b, r.b.Unsqueeze(data(r), [0]), r.b.Unsqueeze(r.input(1), [0, 1])
    most, overlap, least = (b.Reshape(r.input(i), [1]) for i in (2, 3, 4))
    most = r.whole(most)
    threshold, soft = one(r, 3), len(r.layer.inputs) > 5 and one(r, 5) != 0
    if not soft and threshold is not None and 0 < threshold <= 1:
        limit = b.const(np.array([below(threshold)], np.float32))
        rows = b.NonMaxSuppression(boxes, scores, most, limit, least)
        places = b.Gather(rows, 2, axis=1)
        return places, b.Gather(r.input(1), places, axis=0)
    sigma = b.Reshape(r.input(5), [1]) if soft else b.const(np.zeros(1, np.float32))
    rows, left = b.SoftNonMaxSuppression(
        boxes, scores, most, overlap, least, sigma, hard=1, outputs=2
    )
    return b.Gather(rows, 2, axis=1), with_operators(left)


def suppressed(r: LiftContext) -> Sequence[ir.Value]:
    """Return boxes (and scores) padded with zeros to the number of allowed boxes, and the number of
    selected boxes.
    """
    b = r.b
    places, scores = kept_boxes(r)
    found = b.Shape(places)
    room = b.Concat([0], b.Reshape(r.whole(2), [1]) - found, axis=0)
    filled = [b.Pad(v, room) for v in (places, scores)]
    count = b.Reshape(found, NOTHING)
    return [filled[0], count] if r.layer.kind.endswith("V4") else [*filled, count]


MOST_CLASSES = 256  # of all images together, each of which is an operator


def limits_of(t: LowerContext, boxes: int) -> tuple[list[ir.Value], int | None]:
    """Return the number of boxes to keep per class, the overlap and score limits, and the first of
    these as a constant if known. ONNX requires an overlap above the limit, TensorFlow Lite one that
    reaches it.
    """
    most, overlap, least = (t.optional(i) for i in (2, 3, 4))
    count = 0 if most is None else number(most)
    limit = None if count is None else min(int(count), boxes)
    if limit is not None:
        first = t.int32(limit)
    else:
        assert most is not None
        scalar = t.emit("RESHAPE", small(t, most, largest=True), t.int32([]), shape=[])
        first = t.emit("MINIMUM", scalar, t.int32(boxes), shape=[])
    exact = 0.0 if overlap is None else number(overlap)
    if exact is not None:
        found = [first, t.const(np.float32(above(exact)))]
    else:
        assert overlap is not None
        scalar = t.emit("RESHAPE", overlap, t.int32([]), shape=[])
        found = [first, t.emit("MUL", scalar, t.const(np.float32(above(1.0))), shape=[])]
    if least is None:
        return [*found, t.const(np.finfo(np.float32).min)], limit
    score = number(least)
    if score is not None:
        return [*found, t.const(np.float32(score))], limit
    return [*found, t.emit("RESHAPE", least, t.int32([]), shape=[])], limit


def corners_of(t: LowerContext) -> ir.Value:
    """Convert [x, y, width, height] around the center to two corners."""
    x, shape = t.data, list(t.static(0))
    matrix = np.zeros((4, 4), np.float32)
    for axis, (place, size) in enumerate(((1, 3), (0, 2), (1, 3), (0, 2))):
        matrix[axis, place], matrix[axis, size] = 1, -0.5 if axis < 2 else 0.5
    shape = [*shape[:-1], 4]
    return t.emit(
        "FULLY_CONNECTED",
        x,
        t.const(matrix),
        None,
        shape=shape,
        keep_num_dims=True,
        weights_format=0,
        fused_activation_function=0,
    )


def lower_suppression(w: LowerContext) -> None:
    """Write one operator for each class of each image, and rows [image, class, box] of the selected
    boxes.
    """
    (images, classes, boxes) = w.static(1, "the scores")
    if images * classes > MOST_CLASSES:
        raise MappingError(
            f"all images have {images * classes} classes together, limit {MOST_CLASSES}"
        )
    limits, count = limits_of(w, boxes)
    corners = w.data if not w.attr("center_point_box", 0) else corners_of(w)
    rows = []
    for image in range(images):
        own = w.emit("GATHER", corners, w.int32(image), shape=[boxes, 4], axis=0)
        for one_class in range(classes):
            place = w.int32([[image, one_class]])
            scores = w.emit("GATHER_ND", w.input(1), place, shape=[1, boxes])
            line = w.emit("RESHAPE", scores, w.int32([boxes]), shape=[boxes])
            kept = w.temporary("kept", INT32, [count])
            found = w.temporary("count", INT32, [])
            w.put("NON_MAX_SUPPRESSION_V4", own, line, *limits, outputs=[kept, found])
            ends = w.emit("RESHAPE", found, w.int32([1]), shape=[1])
            found = w.emit("SLICE", kept, w.int32([0]), ends, shape=[None])
            column = w.emit("EXPAND_DIMS", found, w.int32(1), shape=[None, 1])
            paddings = w.int32([[0, 0], [2, 0]])
            wide = w.emit("PAD", column, paddings, shape=[None, 3])
            rows.append(w.emit("ADD", wide, w.int32([[image, one_class, 0]]), shape=[None, 3]))
    joined = w.emit("CONCATENATION", *rows, shape=[None, 3], axis=0) if len(rows) > 1 else rows[0]
    w.put("CAST", joined, in_data_type=TENSOR_INT32, out_data_type=TENSOR_INT64)


# detections --------------------------------------------------------------------------------------


def read_thresholds(r: LiftContext) -> dict[str, Any]:
    """Return the thresholds for ONNX, moved to the next float since one format includes the limit
    and the other excludes it.
    """
    score, overlap = (r.attr(k, float) for k in THRESHOLDS.keys)
    if not 0 < overlap <= 1:
        raise MappingError(
            f"nms_iou_threshold must be above 0 and at most 1, got {overlap}", "R110"
        )
    lowest = max(score, float(np.finfo(np.float32).min) / 2)
    return {"score_threshold": below(lowest), "iou_threshold": above(overlap)}


def written_thresholds(w: LowerContext) -> dict[str, Any]:
    """Return the thresholds of the operator from those of ONNX."""
    score, overlap = (float(w.attr(n)) for n in THRESHOLDS.names)
    return dict(zip(THRESHOLDS.keys, (above(score), below(overlap)), strict=True))


# A score may be equal to its threshold here, an overlap too: in the graph, as Android has it, the
# one has to exceed it, and the other must not reach it.
THRESHOLDS = Group(
    ("score_threshold", "iou_threshold"),
    ("nms_score_threshold", "nms_iou_threshold"),
    read_thresholds,
    written_thresholds,
)


def read_classes(r: LiftContext) -> None:
    """Return how many classes a box may have, and whether class 0 of the scores is the
    background.
    """
    each = bool(r.attr("use_regular_nms", bool, False))
    if not each and r.attr("max_classes_per_detection", int) != 1:
        # the runtime writes them past the end of its results
        raise MappingError("several classes per box need suppression by class", "X202")
    most = min(r.attr("detections_per_class", int, 100), r.attr("max_detections", int))
    r.node.attrs |= {"per_class": int(each), "classes_each": 1, "limit_each": most}
    deltas, scores, anchors = (r.input(i) for i in range(3))
    if [r.rank(v) for v in (deltas, scores, anchors)] != [3, 3, 2]:
        raise MappingError("boxes and scores must have 3 axes, anchors 2", "R105")
    if r.outputs != 4:
        raise MappingError(f"a detection must have 4 outputs, got {r.outputs}", "R105")
    r.set_inputs(add_background(r, scores), deltas, anchors)
    r.after_emit(lambda results: [results[1], results[2], results[0], results[3]])


def add_background(r: LiftContext, scores: Value) -> Value:
    """Pad scores by one for the background, unless they have it already."""
    spare = r.static(scores, "the scores")[-1] - r.attr("num_classes", int)
    if spare not in (0, 1):
        raise MappingError(
            f"the scores must have num_classes elements, or one more, got {spare} more", "R105"
        )
    return r.b.Pad(scores, [0, 0, 1, 0, 0, 0]) if spare == 0 else scores


def write_classes(w: LowerContext) -> None:
    """Write the numbers of classes and boxes of one image. Raises MappingError for quantized data
    and for batches.
    """
    each = bool(w.attr("per_class"))
    scores, deltas = w.static(0, "the scores"), w.static(1, "the boxes")
    if w.quantized or scores[0] != 1 or deltas[-1] != 4:
        raise MappingError("only one image, and boxes of four numbers, are supported")
    if not each and w.attr("classes_each") != 1:
        raise MappingError("several classes per box need suppression by class")
    values = (1, scores[-1] - 1, each, int(w.attr("limit_each")) or int(w.attr("limit")))
    w.layer.attrs |= dict(zip(CLASSES.keys, values, strict=True))
    w.layer.inputs = [w.input(1), w.data, w.input(2)]
    cast_results(w)


def cast_results(w: LowerContext) -> None:
    """Cast labels and count, which are real numbers there, and reorder the results."""
    found, boxes, labels, count = w.layer.outputs
    real = [w.temporary("real", ir.DataType.FLOAT, v.shape) for v in (labels, count)]
    w.layer.outputs = [boxes, real[0], found, real[1]]
    types = {"in_data_type": 0, "out_data_type": TENSOR_INT32}
    for value, result in zip(real, (labels, count), strict=True):
        w.after_emit(lambda v=value, y=result: w.low.add("CAST", [v], [y], types))  # type: ignore[misc]


CLASSES = Detail(
    read=read_classes,
    write=write_classes,
    keys=("max_classes_per_detection", "num_classes", "use_regular_nms", "detections_per_class"),
    names=("per_class", "classes_each", "limit_each"),
)


RULES: list[Rule | Custom] = [
    custom(
        "NonMaxSuppression",
        "NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5",
        suppressed,
        lower_suppression,
    ),
    op(
        "netconv::AnchorDetections",
        "TFLite_Detection_PostProcess",
        spread("scales", "y_scale", "x_scale", "h_scale", "w_scale", kind=float),
        Attr("limit", "max_detections", int),
        THRESHOLDS,
        CLASSES,
        RequireAttr("background", 0),
        example_inputs="1,6,3 1,6,4 =6,4 -> 4",
    ),
]
