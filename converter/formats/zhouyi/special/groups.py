"""Undocumented layers of detection networks: boxes decoded class by class, filtered, and picked after suppression."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.special.detection import declared, numbers
from converter.formats.zhouyi.special.register import choose, declared_types, lifts, need_int, need_number, operand, static
from converter.graph.build import Builder
from converter.graph.catalogue.selection import front, take
from converter.graph.catalogue.ssd import class_of, labels_of, present
from converter.graph.sizes import arange
from converter.mapping.node import Layer

FLOAT = int(ir.DataType.FLOAT)


def floats(layer: Layer, b: Builder) -> list[ir.Value]:
    found = [operand(layer, i) for i in range(len(layer.inputs))]
    return [v if v.dtype == ir.DataType.FLOAT else b.op("Cast", v, to=FLOAT) for v in found]


@lifts("DetectionOutput")
def lift_detection_output(layer: Layer, b: Builder) -> list[ir.Value]:
    """Scores [B, P, 1 + C] (background first), deltas [B, P, C, 4] and proposals [B, P, 4] -> scores, boxes, counts, classes, number of classes.

    Deltas and boxes are y, x, h, w and y1, x1, y2, x2, or with anchor_mode=caffe_detection x first.
    """
    scores, deltas, proposals = floats(layer, b)
    caffe = choose(layer, "anchor_mode", {"DEFAULT_DETECT": False, "CAFFE_DETECTION": True}, "DEFAULT_DETECT")
    batch, count, classes, _ = static(deltas)
    by_class = b.op("Transpose", deltas, perm=[0, 2, 1, 3])  # [B, C, P, 4]
    variance = numbers(layer, "variance", [10.0, 10.0, 5.0, 5.0])
    moves = [b.op("Div", b.op("Gather", by_class, np.array(i), axis=3), b.like(deltas, v)) for i, v in enumerate(variance)]
    corner = [b.op("Unsqueeze", b.op("Gather", proposals, np.array(i), axis=2), [1]) for i in range(4)]
    limits = [need_number(layer, f"image_{side}") for side in (("width", "height") if caffe else ("height", "width"))]
    low, high = [], []
    for i, limit in enumerate(limits):
        size = b.op("Sub", corner[2 + i], corner[i])
        centre = b.op("Add", b.op("Mul", moves[i], size), b.op("Mul", b.op("Add", corner[i], corner[2 + i]), 0.5))
        half = b.op("Mul", b.op("Mul", b.op("Exp", moves[2 + i]), size), 0.5)
        low.append(b.op("Clip", b.op("Sub", centre, half), 0.0, limit))
        high.append(b.op("Clip", b.op("Add", centre, half), 0.0, limit))
    order = (1, 0) if caffe else (0, 1)
    boxes = b.op("Concat", *(b.op("Unsqueeze", part[i], [3]) for part in (low, high) for i in order), axis=3)
    own = b.op("Transpose", b.op("Slice", scores, [1], [classes + 1], [2]), perm=[0, 2, 1])
    mask = b.op("Greater", own, b.like(own, need_number(layer, "score_threshold")))
    size_, width = declared(layer, 0), declared(layer, 2)
    places, real = front(b, b.op("Reshape", mask, [batch, classes * count]), size_)
    kept = take(b, b.op("Reshape", boxes, [batch, classes * count, 4]), places, real)
    values = take(b, b.op("Reshape", own, [batch, classes * count]), places, real)
    counts = _within(b, b.op("ReduceSum", b.op("Cast", mask, to=FLOAT), [2], keepdims=0), size_)
    per_class, number = present(b, counts, width)
    return declared_types(layer, b, [values, kept, per_class, labels_of(b, counts, width), number])


def _within(b: Builder, counts: ir.Value, size: int) -> ir.Value:
    """counts[b, C] cut where all together exceed `size`."""
    before = b.op("CumSum", counts, b.const(np.array(1)), exclusive=1)
    return b.op("Min", counts, b.op("Max", b.op("Sub", b.like(counts, size), before), b.like(counts, 0)))


@lifts("FilterBoxes")
def lift_filter_boxes(layer: Layer, b: Builder) -> list[ir.Value]:
    """Of grouped boxes those above the score threshold and not smaller than min_size (h, w); classes without boxes vanish."""
    boxes, scores, counts, labels, number = floats(layer, b)
    n, classes = static(scores)[1], static(counts)[1]
    smallest, most = numbers(layer, "min_size"), need_int(layer, "maxnum")
    index, real, _ = class_of(b, counts, None, number, n)
    mask = b.op("And", real, b.op("Greater", scores, b.like(scores, need_number(layer, "score_threshold"))))
    y1, x1, y2, x2 = (b.op("Gather", boxes, np.array(i), axis=2) for i in range(4))
    for low, high, least in ((y1, y2, smallest[0]), (x1, x2, smallest[1])):
        mask = b.op("And", mask, b.op("GreaterOrEqual", b.op("Sub", high, low), b.like(boxes, least)))
    places, found = front(b, mask, most)
    member = b.op("Equal", b.op("Unsqueeze", index, [1]), b.const(arange(classes, dtype=np.float32).reshape(classes, 1)))
    sums = b.op("ReduceSum", b.op("Cast", b.op("And", member, b.op("Unsqueeze", mask, [1])), to=FLOAT), [2], keepdims=0)
    sums = _within(b, sums, most)
    per_class, total = present(b, sums, classes)
    at, there = front(b, b.op("Greater", sums, b.like(sums, 0)), classes)
    result = [take(b, boxes, places, found), take(b, scores, places, found), per_class, take(b, labels, at, there), total]
    return declared_types(layer, b, result)


@lifts("PostNMS1")
def lift_post_nms(layer: Layer, b: Builder) -> list[ir.Value]:
    """The first `proposal_cnt` boxes that a suppression kept, in pixels and as parts of the longer side of the image."""
    boxes, keep, counts = floats(layer, b)
    (batch, n, _), most = static(boxes), need_int(layer, "proposal_cnt")
    every = b.const(np.full([batch, 1], static(counts)[1], np.float32))
    _, real, starts = class_of(b, counts, None, every, static(keep)[1])
    place = b.op("Add", keep, b.op("Where", real, starts, b.like(starts, 0)))
    good = b.op("And", real, b.op("Less", place, b.like(place, n)))
    index = b.op("Cast", b.op("Where", good, place, b.like(place, 0)), to=int(ir.DataType.INT64))
    chosen = take(b, boxes, index, good)
    size = static(chosen)[1]
    chosen = b.op("Slice", chosen, [0], [most], [1]) if size >= most else b.op("Pad", chosen, [0, 0, 0, 0, most - size, 0])
    longer = max(need_number(layer, "image_height"), need_number(layer, "image_width"))
    return declared_types(layer, b, [chosen, b.op("Div", chosen, b.like(chosen, longer))])
