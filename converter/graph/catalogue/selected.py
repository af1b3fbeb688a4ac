"""Suppression of boxes in several classes at once, and the best rows of all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.catalogue.overlaps import FLOAT, INT64, NOTHING, apart, corner_overlap, fullest, greedy, length, numbers, product, ranked, sides
from converter.graph.extensions import extension
from converter.mapping.node import MappingError

Value = ir.Value


def _capped(b: Builder, count: Value, most: int) -> Value:
    """count, at most `most` when that is not negative."""
    return count if most < 0 else b.op("Min", count, [most])


@dataclass(frozen=True)
class _Selection:
    """The rows that a suppression of several classes gives."""

    sort: str
    across: bool
    most: int
    rank_classes: bool  # sorting by class also orders within an image

    def rows(self, b: Builder, kept: Value, flat: Value, shared: bool) -> tuple[Value, Value, Value]:
        """Rows [class, score, box], their indices [S, 1] and their number per image of kept[B, C, N] (-inf: not selected); flat[.., 4]: all boxes."""
        classes, count = length(b, kept, 1), length(b, kept, 2)
        together = b.op("Reshape", kept, b.op("Concat", [0], b.op("Mul", classes, count), axis=0))
        values, places = b.ops("TopK", together, _capped(b, length(b, together, 1), self.most), outputs=2, axis=1)
        real = b.op("Greater", values, NOTHING)
        found = b.op("ReduceSum", b.op("Cast", real, to=INT64), [1], keepdims=0)
        image = b.op("Expand", b.op("Unsqueeze", numbers(b, length(b, kept, 0)), [1]), b.op("Shape", places))
        columns = [image, b.op("Div", places, count), b.op("Mod", places, count), values]
        chosen = b.op("Reshape", real, [-1])
        image, label, box, value = (b.op("Compress", b.op("Reshape", v, [-1]), chosen, axis=0) for v in columns)
        if (order := self._order(b, image, label, value, classes)) is not None:
            image, label, box, value = (b.op("Gather", v, order) for v in (image, label, box, value))
        row = b.op("Add", b.op("Mul", image if shared else label, count), box)
        index = row if shared else b.op("Add", b.op("Mul", box, classes), label)
        head = [b.op("Unsqueeze", v, [1]) for v in (b.op("Cast", label, to=FLOAT), value)]
        return b.op("Concat", *head, b.op("Gather", flat, row), axis=1), b.op("Unsqueeze", index, [1]), found

    def _order(self, b: Builder, image: Value, label: Value, value: Value, classes: Value) -> Value | None:
        """Sorting of the rows, which come image by image and falling by score; TopK leaves equals in their order."""
        count = b.op("Shape", value)
        if self.sort == "score" and self.across:
            return b.ops("TopK", value, count, outputs=2, axis=0)[1]
        if self.sort == "classid" and (self.across or self.rank_classes):
            key = label if self.across else b.op("Add", b.op("Mul", image, classes), label)
            return b.ops("TopK", key, count, outputs=2, axis=0, largest=0)[1]
        return None


def _strongest(b: Builder, scores: Value, usable: Value, background: int, most: int) -> tuple[Value, Value]:
    """The `most` best usable scores[B, C, N] of each class, falling, and their places: as many as the fullest class has, -inf in the others.

    The background is left out.
    """
    if background >= 0:
        label = b.op("Unsqueeze", numbers(b, length(b, scores, 1)), [1])
        usable = b.op("And", usable, b.op("Not", b.op("Equal", label, background)))
    found = b.ops("TopK", b.op("Where", usable, scores, NOTHING), _capped(b, fullest(b, usable), most), outputs=2, axis=2)
    return found[0], found[1]


def _back(b: Builder, scores: Value, places: Value, values: Value) -> Value:
    """values[B, C, K] at their places in [B, C, N], -inf elsewhere."""
    nothing = b.op("Expand", b.const(np.float32(NOTHING)), b.op("Shape", scores))
    return b.op("ScatterElements", nothing, places, values, axis=2)


@extension
def MulticlassNms(
    b: Builder, boxes: Value, scores: Value, roisnum: Value | None = None, *, sort_result_type: str = "none", sort_result_across_batch: int = 0,
    iou_threshold: float = 0.0, score_threshold: float = 0.0, nms_top_k: int = -1, keep_top_k: int = -1, background_class: int = -1,
    normalized: int = 1, nms_eta: float = 1.0,
) -> tuple[Value, Value, Value]:  # fmt: skip
    """Suppression within each class, then the best of all classes: rows [class, score, x1, y1, x2, y2], indices int64 [S, 1], numbers int64 [B].

    boxes[B, N, 4] and scores[B, C, N]; or boxes[C, M, 4] and scores[C, M] of all images one behind the other, whose numbers roisnum[B] tells.
    Indices count all boxes of the batch: image*N + box, with roisnum box*C + class. nms_top_k bounds the candidates of a class,
    keep_top_k the rows of an image (-1: no bound); not normalized boxes include their last pixel. sort_result_type: none and score go by
    score, classid by class and score, within each image or across the batch. Source: OpenVINO, MulticlassNonMaxSuppression-9, and for an
    overlap that equals the threshold, which suppresses, its reference and runtime.
    """
    boxes = ranked(b, boxes, 3)
    flat, shared = b.op("Reshape", boxes, [-1, 4]), roisnum is None
    scores = ranked(b, scores, 3 if shared else 2)
    each = scores if roisnum is None else _by_image(b, scores, roisnum)
    values, places = _strongest(b, each, b.op("GreaterOrEqual", each, score_threshold), background_class, nms_top_k)
    owner = b.op("Unsqueeze", numbers(b, length(b, boxes, 0)), [1, 2] if shared else [1])
    sorted_boxes = b.op("Gather", flat, b.op("Add", b.op("Mul", owner, length(b, boxes, 1)), places))
    groups = b.op("Mul", length(b, places, 0), length(b, places, 1))
    group = b.op("Reshape", sorted_boxes, b.op("Concat", groups, length(b, places, 2), [4], axis=0), allowzero=1)
    usable = b.op("Reshape", b.op("Greater", values, NOTHING), b.op("Concat", groups, length(b, places, 2), axis=0), allowzero=1)
    stays = greedy(b, group, usable, corner_overlap(0.0 if normalized else 1.0), iou_threshold, eta=nms_eta, reached=True)
    kept = b.op("Where", b.op("Reshape", stays, b.op("Shape", places), allowzero=1), values, NOTHING)
    selection = _Selection(sort_result_type, bool(sort_result_across_batch), keep_top_k, rank_classes=True)
    return selection.rows(b, _back(b, each, places, kept), flat, shared)


def _by_image(b: Builder, scores: Value, roisnum: Value) -> Value:
    """scores[C, M] as [B, C, M], -inf where a box belongs to another image."""
    count = b.op("Max", b.op("Cast", roisnum, to=INT64), 0)
    end = b.op("CumSum", count, b.const(np.array(0)))
    start, end = (b.op("Unsqueeze", v, [1, 2]) for v in (b.op("Sub", end, count), end))
    box = numbers(b, length(b, scores, 1))
    return b.op("Where", b.op("And", b.op("GreaterOrEqual", box, start), b.op("Less", box, end)), b.op("Unsqueeze", scores, [0]), NOTHING)


@extension
def MatrixNms(
    b: Builder, boxes: Value, scores: Value, *, sort_result_type: str = "none", sort_result_across_batch: int = 0, score_threshold: float = 0.0,
    nms_top_k: int = -1, keep_top_k: int = -1, background_class: int = -1, decay_function: str = "linear", gaussian_sigma: float = 2.0,
    post_threshold: float = 0.0, normalized: int = 1,
) -> tuple[Value, Value, Value]:  # fmt: skip
    """Matrix NMS (Wang et al., 2020): scores decay by the overlaps with better boxes of their class; results as of MulticlassNms.

    boxes[B, N, 4] (x1, y1, x2, y2), scores[B, C, N]. Candidates exceed score_threshold, their decayed scores post_threshold. An image's
    rows go by score; only across the batch they go by class too. Source: OpenVINO, MatrixNonMaxSuppression-8, and its reference for the order.
    """
    if decay_function not in ("linear", "gaussian"):
        raise MappingError(f"decay_function={decay_function!r} is not known", "R110")
    boxes, scores = ranked(b, boxes, 3), ranked(b, scores, 3)
    flat = b.op("Reshape", boxes, [-1, 4])
    values, places = _strongest(b, scores, b.op("Greater", scores, score_threshold), background_class, nms_top_k)
    owner = b.op("Mul", b.op("Unsqueeze", numbers(b, length(b, boxes, 0)), [1, 2]), length(b, boxes, 1))
    chosen = b.op("Gather", flat, b.op("Add", owner, places))  # [B, C, K, 4]
    groups = b.op("Concat", b.op("Mul", length(b, places, 0), length(b, places, 1)), length(b, places, 2), [4], axis=0)
    factor = _decay(b, b.op("Reshape", chosen, groups, allowzero=1), decay_function, gaussian_sigma, 0.0 if normalized else 1.0)
    # -inf times a factor of 0 is no number, which no comparison lets through
    decayed = b.op("Mul", b.op("Reshape", factor, b.op("Shape", places), allowzero=1), values)
    kept = b.op("Where", b.op("Greater", decayed, max(post_threshold, float(np.finfo(np.float32).min))), decayed, NOTHING)
    selection = _Selection(sort_result_type, bool(sort_result_across_batch), keep_top_k, rank_classes=False)
    return selection.rows(b, _back(b, scores, places, kept), flat, shared=True)


def _decay(b: Builder, boxes: Value, function: str, sigma: float, edge: float) -> Value:
    """Factors [G, K] for the scores of boxes[G, K, 4], which fall by score: box by box, so that no more than one row of overlaps is there."""
    rank = numbers(b, length(b, boxes, 1))
    ones = b.op("Expand", b.const(np.float32(1)), b.op("Shape", boxes, end=2))
    inner = b.body("box")
    i = inner.input("i", ir.DataType.INT64, [])
    inner.input("go", ir.DataType.BOOL, [])
    worst, factor = (inner.input(name, ir.DataType.FLOAT, list(ones.shape or [])) for name in ("worst", "factor"))
    place = inner.op("Reshape", i, [1])
    earlier, here = inner.op("Less", rank, place), inner.op("Equal", rank, place)
    shared = inner.op("Where", earlier, _overlap(inner, inner.op("Gather", boxes, place, axis=1), boxes, edge), 0.0)
    if function == "gaussian":
        power = inner.op("Sub", inner.op("Mul", worst, worst), inner.op("Mul", shared, shared))
        decay = inner.op("Exp", inner.op("Mul", power, sigma))
    else:
        decay = inner.op("Div", inner.op("Sub", 1.0, shared), inner.op("Add", inner.op("Sub", 1.0, worst), 1e-10))
    own = inner.op("Min", inner.op("ReduceMin", inner.op("Where", earlier, decay, 1.0), [1], keepdims=1), 1.0)
    most = inner.op("ReduceMax", shared, [1], keepdims=1)
    inner.output(inner.const(True, "again"), inner.op("Where", here, most, worst), inner.op("Where", here, own, factor))
    rounds = b.op("Squeeze", length(b, boxes, 1), [0])
    return b.ops("Loop", rounds, True, b.op("Mul", ones, 0.0), ones, body=inner.graph, outputs=2)[1]


def _overlap(b: Builder, one: Value, many: Value, edge: float) -> Value:
    """Intersection over union as Matrix NMS takes it: 0 where the boxes lie apart, and no area for those turned inside out."""
    (low1, high1, area1), (low2, high2, area2) = sides(b, one, edge), sides(b, many, edge)
    size = b.op("Sub", b.op("Min", high1, high2), b.op("Max", low1, low2))
    common = product(b, b.op("Add", size, edge) if edge else size)
    whole = b.op("Sub", b.op("Add", _upright(b, low1, high1, area1), _upright(b, low2, high2, area2)), common)
    beyond = b.op("Or", apart(b, low1, high2), apart(b, low2, high1))
    real = b.op("Not", b.op("Or", beyond, b.op("Equal", whole, 0.0)))
    return b.op("Where", real, b.op("Div", common, whole), 0.0)


def _upright(b: Builder, low: Value, high: Value, area: Value) -> Value:
    """The area, 0 for a box turned inside out."""
    return b.op("Where", apart(b, low, high), 0.0, area)
