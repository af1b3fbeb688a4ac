"""Suppression of overlapping boxes, and the class of the largest probability."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.mlprogram.rules.context import Reading, Writing
from converter.graph.demands import floating_type
from converter.graph.value import Value
from converter.mapping.rules import custom

IOS17 = 8


def suppression(r: Reading) -> Sequence[ir.Value]:
    """Boxes [n, boxes, 4] and scores [n, boxes, classes], since iOS17 with the boxes last."""
    b = r.b
    late = r.version >= IOS17 and not r.has("score_threshold")
    boxes, scores = (turned(r, r.value(k), late) for k in ("boxes", "scores"))
    kind = floating_type(boxes)
    least = r.attr("score_threshold", float, float(np.finfo(kind).min))
    numbers = [np.float32(r.attr("iou_threshold", float)), np.float32(least)]
    found = b.SuppressBoxes(
        boxes,
        scores,
        *(b.const(n) for n in numbers),
        b.const(np.array(r.attr("max_boxes", int), np.int64)),
        per_class=int(r.attr("per_class_suppression", bool, False)),
        outputs=4,
    )
    if late:
        return [turned(r, found[0], True), turned(r, found[1], True), found[2]]
    return found


def turned(r: Reading, value: Value, late: bool) -> Value:
    return r.b.Transpose(value, perm=[0, 2, 1]) if late else value


def classify(r: Reading) -> Sequence[ir.Value]:
    """The class with the largest probability, and the probabilities in the order of classes."""
    b = r.b
    probabilities = b.Reshape(r.value("probabilities"), [-1])
    classes = r.given_as("classes")
    if isinstance(classes, list) and all(isinstance(c, str) for c in classes):
        names = b.const(np.array(classes, object))
    elif isinstance(classes, list | np.ndarray):
        names = b.const(np.asarray(classes, np.int64).reshape(-1))
    else:
        raise MappingError("classes are neither words nor numbers", "R105")
    best = b.ArgMax(probabilities, axis=0, keepdims=0)
    return [b.Gather(names, best, axis=0), probabilities]


def write_suppression(w: Writing) -> None:
    """With a least score, as before iOS17; thresholds are constant."""
    if w.version >= IOS17:
        raise MappingError("a least score, which operations since iOS17 do not have", "X206")
    limits = [w.constant(i, "a threshold").reshape(-1)[0] for i in (2, 3)]
    w.operation(
        "non_maximum_suppression",
        boxes=w.data,
        scores=w.input(1),
        iou_threshold=float(limits[0]),
        score_threshold=float(limits[1]),
        max_boxes=w.ints(4, "the number of boxes")[0],
        per_class_suppression=bool(w.attr("per_class", 0)),
    )


RULES = [
    custom("netconv::SuppressBoxes", "non_maximum_suppression", suppression, write_suppression),
    custom("", "classify", classify),
]
