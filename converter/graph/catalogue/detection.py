"""DetectionOutput: decoding of boxes, suppression of overlaps and the rows of detections, as in
Caffe's SSD and MXNet's multibox.
"""

from __future__ import annotations

import math

import numpy as np

from converter.errors import MappingError
from converter.graph.build import Builder, Value
from converter.graph.catalogue.overlaps import NOTHING, decoded, scatter_scores, upright
from converter.graph.demands import at_least
from converter.graph.extensions import SOME, extension
from converter.graph.sizes import arange, static
from converter.graph.value import FLOAT, INT64, LOWEST
from converter.record import record


@extension(location=SOME, confidence=SOME, priors=SOME)
def DetectionOutput(
    b: Builder,
    location: Value,
    confidence: Value,
    priors: Value,
    arm_confidence: Value | None = None,
    arm_location: Value | None = None,
    *,
    num_classes: int = 0,
    background_label_id: int = 0,
    top_k: int = -1,
    keep_top_k: int = -1,
    code_type: str = "corner",
    nms_threshold: float,
    confidence_threshold: float = LOWEST,
    share_location: int = 1,
    variance_encoded_in_target: int = 0,
    clip_before_nms: int = 0,
    clip_after_nms: int = 0,
    decrease_label_id: int = 0,
    normalized: int = 1,
    input_height: int = 1,
    input_width: int = 1,
    objectness_score: float = 0.0,
) -> Value:
    """Return rows [image, label, score, x1, y1, x2, y2] as [1, 1, K, 7], ordered by image, label
    and descending score.

    location[N, P*L*4] (L = 1 if shared, else the classes), confidence[N, P*C], priors[1 or N, 1 or
    2, P*4] (P*5 if not normalized), the optional pair of a refinement network: arm_confidence[N,
    P*2], arm_location like location. num_classes 0: determined by confidence. code_type: corner,
    center_size or corner_size. `decrease_label_id`: MXNet's suppression, with one label per box. K
    = N*keep_top_k, or N*top_k*C, or N*P*C. Unused rows are 0; the first of them begins with -1.
    Source: OpenVINO, DetectionOutput-8.
    """
    size = 4 if normalized else 5
    n, p = static(location, "the locations")[0], static(priors, "the priors")[-1] // size
    at_least(1, priors=p)
    c = num_classes or math.prod(static(confidence, "the scores")[1:]) // p
    pixels = (input_width, input_height) if not normalized else None
    boxes, variances = _priors(b, priors, p, size, bool(variance_encoded_in_target), pixels)
    scores = b.Reshape(confidence, [n, p, c])
    classes = 1 if share_location else c

    def moved(start: Value, deltas: Value) -> Value:
        apart = b.Reshape(deltas, [n, p, classes, 4])
        found = _decode(b, start, apart if variances is None else apart * variances, code_type)
        return b.Clip(found, 0.0, 1.0) if clip_before_nms else found

    if arm_location is not None:
        boxes = moved(boxes, arm_location)
        if pixels is not None:  # every decoding divides its priors, including decoded ones
            boxes = boxes / np.array(pixels * 2, np.float32)
    if arm_confidence is not None:
        # the scores are background where the refinement network detects no object
        weak = b.Reshape(arm_confidence, [n, p, 2])[:, :, 1:2] < objectness_score
        scores = b.Where(weak, (arange(c) == background_label_id).astype(np.float32), scores)
    corners = moved(boxes, location)
    corners = b.Transpose(corners, perm=[0, 2, 1, 3])  # [N, L, P, 4]
    by_class = b.Transpose(scores, perm=[0, 2, 1])
    candidates = (
        _best_label(b, by_class, confidence_threshold)
        if decrease_label_id
        else _labels(b, by_class, confidence_threshold, background_label_id)
    )
    candidates = _strongest(b, candidates, top_k, (n, c, p), together=bool(decrease_label_id))
    kept = _suppress(b, corners, candidates, nms_threshold, (n, c, p), top_k)
    room = keep_top_k if keep_top_k > 0 else top_k * c if top_k > 0 else p * c
    rows = _Rows(
        n,
        c,
        p,
        keep_top_k if keep_top_k > -1 else p * c,
        n * room,
        bool(share_location),
        bool(decrease_label_id),
        bool(clip_after_nms),
    )
    return rows.write(b, corners, kept)


def _priors(
    b: Builder, priors: Value, p: int, size: int, encoded: bool, pixels: tuple[int, int] | None
) -> tuple[Value, Value | None]:
    """Return corner boxes [1 or N, P, 1, 4] relative to the image, and their variances unless these
    are encoded in the target.
    """
    boxes = b.Reshape(priors[:, :1], [0, p, 1, size])
    if pixels is not None:
        boxes = boxes[..., 1:5] / np.array(pixels * 2, np.float32)
    if encoded or static(priors)[1] == 1:
        return boxes, None
    return boxes, b.Reshape(priors[:, 1:2, : 4 * p], [0, p, 1, 4])


def _decode(b: Builder, boxes: Value, deltas: Value, code_type: str) -> Value:
    """Return the corner boxes of the deltas; all are [.., P, L, 4]."""
    kind = code_type.rsplit(".", 1)[-1].lower()
    low, high = b.Split(boxes, [2, 2], outputs=2, axis=3)
    size = high - low
    if kind == "corner":
        return boxes + deltas
    if kind == "corner_size":
        return boxes + deltas * b.Concat(size, size, axis=3)
    if kind == "center_size":
        return decoded(b, (low + high) * 0.5, size, deltas)
    raise MappingError(f"code_type={code_type!r} is not known", "R110")


def _labels(b: Builder, scores: Value, threshold: float, background: int) -> Value:
    """Return scores[N, C, P] of all classes except the background that exceed the threshold."""
    use = scores > threshold
    _, classes, _ = static(scores)
    if 0 <= background < classes:
        use = use & (arange(classes) != background).reshape(1, -1, 1)
    return b.Where(use, scores, NOTHING)


def _best_label(b: Builder, scores: Value, threshold: float) -> Value:
    """Return scores[N, C, P] with only the best class of each box, ignoring class 0."""
    labels = arange(static(scores)[1]).reshape(1, -1, 1)
    objects = b.Where(labels > 0, scores, NOTHING)
    best = b.Equal(b.ArgMax(objects, axis=1), labels)
    return b.Where(best & (objects >= threshold), objects, NOTHING)


def _strongest(
    b: Builder, scores: Value, k: int, sizes: tuple[int, int, int], together: bool
) -> Value:
    """Keep the k best scores of each class, or of all classes together."""
    n, c, p = sizes
    if k < 0 or k >= (c * p if together else p):
        return scores
    flat = b.Reshape(scores, [n, 1, c * p]) if together else scores
    values, positions = b.TopK(flat, [k], outputs=2, axis=2)
    return b.Reshape(scatter_scores(b, flat, positions, values), [n, c, p])


def _suppress(
    b: Builder, boxes: Value, scores: Value, threshold: float, sizes: tuple[int, int, int], k: int
) -> Value:
    """Return scores[N, C, P] of the boxes that survive; boxes[N, L, P, 4]. At most `k` boxes of a
    class have scores, if it is not negative.

    An inverted box has no area and suppresses nothing.
    """
    n, c, p = sizes
    batch, classes = (n, c) if static(boxes)[1] == 1 else (n * c, 1)
    by_batch = b.Reshape(scores, [batch, classes, p])
    plain = b.Reshape(upright(b, boxes), [batch, p, 4])
    limit = np.array([threshold], np.float32)
    mask = b.SuppressionMask(plain, by_batch, limit, most=k if 0 <= k < p else -1)
    return b.Reshape(b.Where(mask, by_batch, NOTHING), [n, c, p])


@record
class _Rows:
    """The rows of detections: at most `k` per image, `total` in all."""

    n: int
    c: int
    p: int
    k: int
    total: int
    shared: bool
    decrease: bool
    clip: bool

    def write(self, b: Builder, boxes: Value, scores: Value) -> Value:
        """Return [1, 1, total, 7] for boxes[N, L, P, 4] and the remaining scores[N, C, P]."""
        n, c, p = self.n, self.c, self.p
        count = min(self.k, c * p)
        best, position = b.TopK(b.Reshape(scores, [n, c * p]), [count], outputs=2, axis=1)
        image = np.repeat(arange(n), count)
        best, position = b.Reshape(best, [-1]), b.Reshape(position, [-1])
        valid = best > LOWEST
        label, prior = position / p, position % p
        # a stable sort orders by image and label, preserves descending scores and moves invalid
        # rows to the end
        key = b.Where(valid, label + image * c, n * c)
        order = b.TopK(key, [n * count], outputs=2, axis=0, largest=0)[1]
        corner = label * 0 if self.shared else label
        where = b.Concat(*(v[:, None] for v in (image, corner, prior)), axis=1)
        box = b.GatherND(boxes, where)
        box = b.Clip(box, 0.0, 1.0) if self.clip else box
        named = label - 1 if self.decrease else label
        columns = [b.Cast(v, to=FLOAT) for v in (b.const(image), named)]
        head = [v[:, None] for v in (*columns, best)]
        rows = b.Where(valid[:, None], b.Concat(*head, box, axis=1), 0.0)
        rows = b.Gather(rows, order, axis=0)
        return self._close(b, rows, b.ReduceSum(b.Cast(valid, to=INT64), keepdims=0), n * count)

    def _close(self, b: Builder, rows: Value, valid: Value, count: int) -> Value:
        """Pad or truncate the rows to their number, and mark the end of the valid ones with -1."""
        if self.total > count:
            rows = b.Pad(rows, [0, 0, self.total - count, 0], 0.0)
        elif self.total < count:
            rows = rows[: self.total]
        end = b.Equal(arange(self.total), valid)[:, None]
        mark = end & np.array([[True, *[False] * 6]])
        return b.Reshape(b.Where(mark, -1.0, rows), [1, 1, self.total, 7])
