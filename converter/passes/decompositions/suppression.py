"""Non-maximum suppression without loops and dynamic sizes, for targets that have neither.

Two forms, of which the shorter is written: a table of the overlaps of all candidates, whose rows
are applied one after the other, or as many rounds as boxes may be selected, each with the overlaps
of the best remaining box alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, UnsupportedError
from converter.graph.build import Builder, Value, attributes
from converter.graph.catalogue.overlaps import corner_overlap, pairs, plain_corners
from converter.graph.infer import known
from converter.graph.sizes import arange, static
from converter.graph.value import FLOAT, LOWEST, operand, optional
from converter.mapping.lowering import refusal

LARGEST = 1 << 22  # elements of the table of overlaps
MOST_ROUNDS = 512
_OF_A_ROUND = 8  # operators of a round for each operator of a row of the table


def suppression_mask(node: ir.Node, b: Builder) -> Value:
    """Suppress the candidates, which are the boxes with a score, in descending order of score."""
    scores = operand(node, 1)
    batch, classes, count = static(scores, "the scores")
    groups, most = batch * classes, attributes(node)["most"]
    most = min(count, most) if most > 0 else count
    _demand_table(node, groups, most)
    each = b.Reshape(scores, [groups, count])
    values, order = b.TopK(each, [count], axis=1, outputs=2)
    if most < count:
        values = values[:, :most]
    boxes = b.Gather(
        b.Reshape(_corners(node, b), [batch * count, 4]),
        b.Reshape(order[:, :most] if most < count else order, [-1]) + _first(node, most),
        axis=0,
    )
    kept = _by_table(b, b.Reshape(boxes, [groups, most, 4]), values, operand(node, 2))
    kept = b.Pad(kept, [0, 0, 0, count - most]) if most < count else kept
    # the inverse of a permutation is the order that sorts it
    _, back = b.TopK(b.Cast(order, to=FLOAT), [count], axis=1, outputs=2, largest=0)
    mask = b.GatherElements(kept, back, axis=1)
    return b.Reshape(mask, [batch, classes, count]) > 0.5


def non_max_suppression(node: ir.Node, b: Builder) -> Value | None:
    """Select the best remaining box of each class in each round, where the table of all overlaps
    would be longer.
    """
    from converter.graph.catalogue.sparse import suppressed_rows

    scores = operand(node, 1)
    batch, classes, count = static(scores, "the scores")
    given = optional(node, 2)
    limit = known(given)
    if given is not None and limit is None:
        return None
    rounds = count if limit is None else min(int(limit.reshape(-1)[0]), count)
    is_longer = batch * classes * count**2 > LARGEST or rounds * _OF_A_ROUND < count
    if not 0 < rounds <= MOST_ROUNDS or not is_longer:
        return None
    a = attributes(node)
    iou, least = (_number(b, optional(node, i), n) for i, n in ((3, 1.0), (4, 0.0)))
    pending = b.Reshape(b.Where(scores > least, scores, LOWEST), [batch * classes, count])
    boxes = _of_groups(b, _corners(node, b), classes)
    found = [_Round(b, boxes, iou)(pending)]
    while len(found) < rounds:
        found.append(_Round(b, boxes, iou)(found[-1][2]))
    values, positions = (b.Concat(*(each[i] for each in found), axis=1) for i in (0, 1))
    shape = [batch, classes, rounds]
    values, positions = b.Reshape(values, shape), b.Reshape(positions, shape)
    ordered = bool(a["sort_result_descending"])
    return suppressed_rows(b, values, positions, values > LOWEST, a["rows"], ordered)


def _demand_table(node: ir.Node, groups: int, count: int) -> None:
    """Refuse the network: no other rewrite can be tried."""
    if groups * count**2 > LARGEST:
        largest = math.isqrt(LARGEST // groups)
        reason = MappingError(
            f"the overlaps of {count} boxes in {groups} classes are too many for a table "
            f"(limit {largest} boxes), and the target has no loops",
            "X202",
            "limit the boxes that the detector selects (top_k, max_output_boxes_per_class) to "
            f"{MOST_ROUNDS}, or choose another target",
        )
        raise UnsupportedError(refusal(node, reason))


def _number(b: Builder, value: ir.Value | None, default: float) -> Value:
    return b.const(np.float32(default)) if value is None else b.Reshape(value, [])


def _corners(node: ir.Node, b: Builder) -> Value:
    return plain_corners(b, operand(node), bool(attributes(node)["center_point_box"]))


def _of_groups(b: Builder, boxes: Value, classes: int) -> Value:
    """Return boxes[B, N, 4] once for each class: [B * classes, N, 4]."""
    batch, count, _ = static(boxes)
    if classes == 1:
        return boxes
    each = b.Tile(b.Reshape(boxes, [batch, 1, count, 4]), [1, classes, 1, 1])
    return b.Reshape(each, [batch * classes, count, 4])


def _first(node: ir.Node, most: int) -> np.ndarray:
    """Return the index of the first box of the image of each candidate: [groups * most]."""
    batch, classes, count = static(operand(node, 1))
    return np.repeat(arange(batch) * count, classes * most)


def _by_table(b: Builder, boxes: Value, scores: Value, threshold: Value) -> Value:
    """Return 1.0 for the boxes[G, K, 4] that are kept, which are in descending order of
    scores[G, K], else 0.0.
    """
    count = static(scores)[1]
    usable = b.Cast(scores > LOWEST, to=FLOAT)
    limit = b.Reshape(threshold, [])
    over = b.Cast(pairs(b, boxes, corner_overlap(0.0)) > limit, to=FLOAT)
    later = np.triu(np.ones((count, count), np.float32), 1)
    rows: Sequence[Value] = b.Split(over * later, axis=1, num_outputs=count, outputs=count)
    kept = usable
    for i in range(count - 1):
        kept = b.Relu(kept - kept[:, i : i + 1] * b.Squeeze(rows[i], [1]))
    return kept


class _Round:
    """The selection of the best box of each group."""

    def __init__(self, b: Builder, boxes: Value, threshold: Value) -> None:
        self.b, self.boxes, self.threshold = b, boxes, threshold

    def __call__(self, pending: Value) -> tuple[Value, Value, Value]:
        """Return its score [G, 1], LOWEST if none is left, its index [G, 1], and the scores of the
        boxes that remain.
        """
        b = self.b
        groups, count, _ = static(self.boxes)
        position = b.ArgMax(pending, axis=1, keepdims=1)
        best = b.ReduceMax(pending, [1], keepdims=1)
        at = b.Reshape(position, [groups]) + arange(groups) * count
        box = b.Gather(b.Reshape(self.boxes, [groups * count, 4]), at, axis=0)
        shared = corner_overlap(0.0)(b, box[:, None], self.boxes)
        gone = (shared > self.threshold) | b.Equal(position, arange(count)[None])
        return best, position, b.Where(gone, LOWEST, pending)
