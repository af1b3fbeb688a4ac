"""Suppression of overlapping boxes where ONNX's own operator does not reach: decayed scores, moving thresholds, selections of several classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.extensions import extension
from converter.mapping.node import MappingError

Value = ir.Value
Overlap = Callable[[Builder, Value, Value], Value]
FLOAT, INT64, BOOL = (int(t) for t in (ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.BOOL))
NOTHING = float("-inf")  # the score of what takes no part


# sizes that may be known at run time only -------------------------------------------------------------------------------


def length(b: Builder, value: Value, axis: int) -> Value:
    """One dimension as int64[1]."""
    return b.op("Shape", value, start=axis, end=axis + 1)


def numbers(b: Builder, count: Value) -> Value:
    """0, 1, .. count-1 for an int64[1]."""
    return b.op("Range", 0, b.op("Squeeze", count, [0]), 1)


def _ranked(b: Builder, value: Value, rank: int) -> Value:
    """`value` with its rank known, where the file leaves even that open."""
    return value if value.shape is not None else b.op("Reshape", value, [0] * (rank - 1) + [-1])


def _capped(b: Builder, count: Value, most: int) -> Value:
    """count, at most `most` when that is not negative."""
    return count if most < 0 else b.op("Min", count, [most])


# overlaps -----------------------------------------------------------------------------------------------------------------


def sides(b: Builder, boxes: Value, edge: float) -> tuple[Value, Value, Value]:
    """Low and high corners [.., 2] of boxes[.., 4] and width times height [..], sides `edge` longer than the difference."""
    low, high = b.ops("Split", boxes, [2, 2], outputs=2, axis=-1)
    size = b.op("Sub", high, low)
    return low, high, _product(b, b.op("Add", size, edge) if edge else size)


def _product(b: Builder, pair: Value) -> Value:
    """The product along the last axis, which has two elements."""
    x, y = b.ops("Split", pair, [1, 1], outputs=2, axis=-1)
    return b.op("Squeeze", b.op("Mul", x, y), [-1])


def _apart(b: Builder, low: Value, high: Value) -> Value:
    """Whether high[.., 2] lies before low[.., 2] in x or y: what is between them is turned inside out."""
    return b.op("Less", b.op("ReduceMin", b.op("Sub", high, low), [-1], keepdims=0), 0.0)


def corner_overlap(edge: float, *, touching: bool = False) -> Overlap:
    """Intersection over union of corner boxes; 0 where one has no area, and with `touching` where they lie apart (`edge` could hide that)."""

    def overlap(b: Builder, one: Value, many: Value) -> Value:
        (low1, high1, area1), (low2, high2, area2) = sides(b, one, edge), sides(b, many, edge)
        low, high = b.op("Max", low1, low2), b.op("Min", high1, high2)
        size = b.op("Sub", high, low)
        common = _product(b, b.op("Max", b.op("Add", size, edge) if edge else size, 0.0))
        real = b.op("Greater", b.op("Min", area1, area2), 0.0)
        if touching:
            real = b.op("And", real, b.op("Not", _apart(b, low, high)))
        return b.op("Where", real, b.op("Div", common, b.op("Sub", b.op("Add", area1, area2), common)), 0.0)

    return overlap


# one box after the other --------------------------------------------------------------------------------------------------


def greedy(
    b: Builder, boxes: Value, usable: Value, overlap: Overlap, threshold: Value | float, *,
    most: Value | int | None = None, eta: float = 1.0, reached: bool = False,
) -> Value:  # fmt: skip
    """Which of boxes[G, K, D] stay, bool [G, K]: each usable one that no earlier one that stays overlaps by more than the threshold.

    Boxes fall by score within each of the G groups. `most` bounds the number that stay per group. With eta < 1 the threshold of a group
    is multiplied by it after each box that stays, as long as it exceeds 0.5. `reached`: an overlap of the threshold itself is too much, too.
    """
    rank = numbers(b, length(b, boxes, 1))
    rounds = b.op("ReduceMax", b.op("ReduceSum", b.op("Cast", usable, to=INT64), [1], keepdims=0), keepdims=0)
    first = b.op("Slice", usable, [0], [1], [1])
    none = b.op("And", usable, b.const(np.array(False)))
    limit = b.op("Expand", threshold, b.op("Shape", first))
    count = b.op("Mul", b.op("Cast", first, to=INT64), 0)
    inner = b.body("box")
    i = inner.input("i", ir.DataType.INT64, [])
    inner.input("go", ir.DataType.BOOL, [])
    kept, bound, number = (inner.input(n, v.dtype or ir.DataType.FLOAT, list(v.shape or [])) for n, v in (("kept", none), ("limit", limit), ("count", count)))
    place = inner.op("Reshape", i, [1])
    shared = inner.op("And", kept, inner.op("GreaterOrEqual" if reached else "Greater", overlap(inner, inner.op("Gather", boxes, place, axis=1), boxes), bound))
    hit = inner.op("ReduceMax", inner.op("Cast", shared, to=FLOAT), [1], keepdims=1)
    stays = inner.op("And", inner.op("Gather", usable, place, axis=1), inner.op("Equal", hit, 0.0))
    if most is not None:
        stays = inner.op("And", stays, inner.op("Less", number, most))
    after = inner.op("Add", number, inner.op("Cast", stays, to=INT64))
    moved = inner.op("Where", inner.op("And", stays, inner.op("Greater", bound, 0.5)), inner.op("Mul", bound, eta), bound) if eta < 1 else bound
    result = inner.op("Or", kept, inner.op("And", stays, inner.op("Equal", rank, place)))
    inner.output(inner.const(True, "again"), result, moved, after)
    return b.ops("Loop", rounds, True, none, limit, count, body=inner.graph, outputs=3)[0]


@extension
def SoftNonMaxSuppression(
    b: Builder, boxes: Value, scores: Value, most: Value, iou: Value, least: Value, sigma: Value, *, center_point_box: int = 0, hard: int = 0
) -> tuple[Value, Value]:
    """Soft suppression (Bodla et al., 2017): boxes are taken by falling score, and each lowers the scores of those that it overlaps.

    boxes[B, N, 4] any two opposite corners, or centre x, y, width, height with center_point_box; scores[B, C, N]. A score is multiplied by
    exp(-overlap^2 / (2*sigma)), and the box is out when it does not exceed `least`. sigma 0, or `hard` in any case: boxes whose overlap
    reaches `iou` are out. At most `most` boxes of each class. Rows [image, class, box] int64 [K, 3] and their scores [K], class by class.
    """
    boxes, scores = _ranked(b, boxes, 3), _ranked(b, scores, 3)
    plain = _plain_corners(b, boxes, bool(center_point_box))
    classes, count = length(b, scores, 1), length(b, scores, 2)
    each = b.op("Reshape", scores, b.op("Concat", [-1], count, axis=0))
    owner = b.op("Div", numbers(b, length(b, each, 0)), classes)
    all_boxes = b.op("Gather", plain, owner, axis=0)
    limits = [b.op("Reshape", v, [1]) for v in (iou, least, sigma)]
    wanted = b.op("Reshape", b.op("Cast", most, to=INT64), [1])
    start = b.op("Where", b.op("Greater", each, limits[1]), each, NOTHING)
    best, place = _decaying(b, all_boxes, start, b.op("Min", wanted, count), limits, bool(hard))
    found = b.op("And", b.op("Greater", best, NOTHING), b.op("Less", numbers(b, length(b, best, 1)), wanted))
    at = b.op("Transpose", b.op("NonZero", found), perm=[1, 0])  # group and rank, class by class
    group = b.op("Slice", at, [0], [1], [1])
    box = b.op("Unsqueeze", b.op("GatherND", place, at), [1])
    return b.op("Concat", b.op("Div", group, classes), b.op("Mod", group, classes), box, axis=1), b.op("GatherND", best, at)


def _plain_corners(b: Builder, boxes: Value, centred: bool) -> Value:
    first, second = b.ops("Split", boxes, [2, 2], outputs=2, axis=-1)
    if centred:
        half = b.op("Mul", second, 0.5)
        first, second = b.op("Sub", first, half), b.op("Add", first, half)
    return b.op("Concat", b.op("Min", first, second), b.op("Max", first, second), axis=-1)


def _decaying(b: Builder, boxes: Value, scores: Value, rounds: Value, limits: Sequence[Value], hard: bool) -> tuple[Value, Value]:
    """The best score left in each round [G, T] and its place; boxes[G, N, 4], scores[G, N]."""
    iou, least, sigma = limits
    soft = b.op("Greater", sigma, 0.0)
    scale = b.op("Where", soft, b.op("Div", -0.5, sigma), 0.0)
    rank = numbers(b, length(b, scores, 1))
    inner = b.body("box")
    inner.input("i", ir.DataType.INT64, [])
    inner.input("go", ir.DataType.BOOL, [])
    left = inner.input("scores", scores.dtype or ir.DataType.FLOAT, list(scores.shape or []))
    place = inner.op("ArgMax", left, axis=1, keepdims=1)
    best = inner.op("ReduceMax", left, [1], keepdims=0)
    one = inner.op("Unsqueeze", inner.op("GatherND", boxes, place, batch_dims=1), [1])
    shared = corner_overlap(0.0)(inner, one, boxes)
    weight = inner.op("Exp", inner.op("Mul", scale, inner.op("Mul", shared, shared)))
    out = inner.op("GreaterOrEqual", shared, iou)
    if not hard:
        out = inner.op("And", out, inner.op("Not", soft))
    lower = inner.op("Where", out, NOTHING, inner.op("Mul", left, weight))
    stays = inner.op("And", inner.op("Greater", lower, least), inner.op("Not", inner.op("Equal", rank, place)))
    inner.output(inner.const(True, "again"), inner.op("Where", stays, lower, NOTHING), best, inner.op("Squeeze", place, [1]))
    _, bests, places = b.ops("Loop", b.op("Squeeze", b.op("Max", rounds, [1]), [0]), True, scores, body=inner.graph, outputs=3)
    return b.op("Transpose", bests, perm=[1, 0]), b.op("Transpose", places, perm=[1, 0])


# selections of all classes ------------------------------------------------------------------------------------------------


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
    """The `most` best usable scores[B, C, N] of each class, falling, and their places; -inf is not usable. The background is left out."""
    if background >= 0:
        label = b.op("Unsqueeze", numbers(b, length(b, scores, 1)), [1])
        usable = b.op("And", usable, b.op("Not", b.op("Equal", label, background)))
    found = b.ops("TopK", b.op("Where", usable, scores, NOTHING), _capped(b, length(b, scores, 2), most), outputs=2, axis=2)
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
    boxes = _ranked(b, boxes, 3)
    flat, shared = b.op("Reshape", boxes, [-1, 4]), roisnum is None
    scores = _ranked(b, scores, 3 if shared else 2)
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
    boxes, scores = _ranked(b, boxes, 3), _ranked(b, scores, 3)
    flat = b.op("Reshape", boxes, [-1, 4])
    values, places = _strongest(b, scores, b.op("Greater", scores, score_threshold), background_class, nms_top_k)
    owner = b.op("Mul", b.op("Unsqueeze", numbers(b, length(b, boxes, 0)), [1, 2]), length(b, boxes, 1))
    chosen = b.op("Gather", flat, b.op("Add", owner, places))  # [B, C, K, 4]
    shared, earlier = _pairs(b, chosen, 0.0 if normalized else 1.0)
    worst = b.op("Unsqueeze", b.op("ReduceMax", shared, [3], keepdims=0), [2])
    if decay_function == "gaussian":
        decay = b.op("Exp", b.op("Mul", b.op("Sub", b.op("Mul", worst, worst), b.op("Mul", shared, shared)), gaussian_sigma))
    else:
        decay = b.op("Div", b.op("Sub", 1.0, shared), b.op("Add", b.op("Sub", 1.0, worst), 1e-10))
    factor = b.op("Min", b.op("ReduceMin", b.op("Where", earlier, decay, 1.0), [3], keepdims=0), 1.0)
    # -inf times a factor of 0 is no number, which no comparison lets through
    decayed = b.op("Mul", factor, values)
    kept = b.op("Where", b.op("Greater", decayed, max(post_threshold, float(np.finfo(np.float32).min))), decayed, NOTHING)
    selection = _Selection(sort_result_type, bool(sort_result_across_batch), keep_top_k, rank_classes=False)
    return selection.rows(b, _back(b, scores, places, kept), flat, shared=True)


def _pairs(b: Builder, boxes: Value, edge: float) -> tuple[Value, Value]:
    """For boxes[.., K, 4] the overlap of each (rows) with those before it (columns), 0 for the others; and which are before it [K, K]."""
    low1, high1, area1 = sides(b, b.op("Unsqueeze", boxes, [3]), edge)
    low2, high2, area2 = sides(b, b.op("Unsqueeze", boxes, [2]), edge)
    low, high = b.op("Max", low1, low2), b.op("Min", high1, high2)
    size = b.op("Sub", high, low)
    common = _product(b, b.op("Add", size, edge) if edge else size)
    whole = b.op("Sub", b.op("Add", _upright(b, low1, high1, area1), _upright(b, low2, high2, area2)), common)
    rank = numbers(b, length(b, boxes, 2))
    earlier = b.op("Less", b.op("Unsqueeze", rank, [0]), b.op("Unsqueeze", rank, [1]))
    apart = b.op("Or", _apart(b, low1, high2), _apart(b, low2, high1))
    real = b.op("And", earlier, b.op("Not", b.op("Or", apart, b.op("Equal", whole, 0.0))))
    return b.op("Where", real, b.op("Div", common, whole), 0.0), earlier


def _upright(b: Builder, low: Value, high: Value, area: Value) -> Value:
    """The area, 0 for a box turned inside out."""
    return b.op("Where", _apart(b, low, high), 0.0, area)
