"""Suppression of overlapping boxes, and the class of the largest probability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.mlprogram.rules.context import LiftContext
from converter.formats.coreml.mlprogram.rules.fields import Results, mil
from converter.graph.demands import floating_type
from converter.graph.value import Value
from converter.mapping.fields import Attr, Const, Detail
from converter.mapping.rules import Custom, Rule, custom

IOS17 = 8


def exchange_box_axes(r: LiftContext) -> None:
    """Exchange the last two axes of boxes and scores: from iOS17 on, the boxes are the last one."""
    if r.version < IOS17 or r.has("score_threshold"):
        return
    r.node.inputs = [exchanged(r, v) for v in r.operands()]
    r.after_emit(lambda results: [*(exchanged(r, v) for v in results[:2]), *results[2:]])


def exchanged(r: LiftContext, value: ir.Value) -> Value:
    """Return a tensor of three axes with its last two exchanged."""
    return r.b.Transpose(value, perm=[0, 2, 1])


class LeastScore(Const):
    """The score threshold, which operations from iOS17 on do not have."""

    def lift(self, r: Any) -> None:
        least = float(np.finfo(floating_type(r.data)).min)
        r.set_input(self.index, np.float32(r.attr(self.key, float, least)))

    def lower(self, w: Any) -> None:
        if w.version >= IOS17:
            raise MappingError("score thresholds are only supported before iOS 17", "X206")
        super().lower(w)


def classify(r: LiftContext) -> Sequence[ir.Value]:
    """Return the class with the largest probability, and the probabilities in the order
    of classes.
    """
    b = r.b
    probabilities = b.Reshape(r.value("probabilities"), [-1])
    classes = r.given_as("classes")
    if isinstance(classes, list) and all(isinstance(c, str) for c in classes):
        names = b.const(np.array(classes, object))
    elif isinstance(classes, list | np.ndarray):
        names = b.const(np.asarray(classes, np.int64).reshape(-1))
    else:
        raise MappingError("class labels must be strings or integers", "R105")
    best = b.ArgMax(probabilities, axis=0, keepdims=0)
    return [b.Gather(names, best, axis=0), probabilities]


RULES: list[Rule | Custom] = [
    mil(
        "netconv::SuppressBoxes",
        "non_maximum_suppression",
        "boxes scores",
        Detail(read=exchange_box_axes),
        Const(2, "iou_threshold", float, np.float32),
        LeastScore(3, "score_threshold", float, np.float32),
        Const(4, "max_boxes", int, np.int64),
        Attr("per_class", "per_class_suppression", bool, 0),
        Results(4),
        example_inputs="1,4,4 1,4,2 =f32:(0.5) =f32:(0.1) =i64:(3) -> 4",
    ),
    custom("", "classify", classify),
]
