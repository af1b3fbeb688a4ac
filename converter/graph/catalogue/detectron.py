"""The operators of Detectron's region networks (opset6's ExperimentalDetectron family)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from converter.graph.build import Builder, Value
from converter.graph.catalogue.proposals import filled, large_enough, refine, survivors, top
from converter.graph.catalogue.suppression import one_class, ranked
from converter.graph.demands import above, at_least, not_zero
from converter.graph.extensions import extension
from converter.graph.infer import shape_of
from converter.graph.sizes import arange, static
from converter.graph.value import FLOAT, INT32, INT64


@extension(priors=2, features=4, image=4)
def DetectronPriorGridGenerator(
    b: Builder,
    priors: Value,
    features: Value,
    image: Value,
    *,
    flatten: int = 1,
    h: int = 0,
    w: int = 0,
    stride_x: float = 0.0,
    stride_y: float = 0.0,
) -> Value:
    """Anchors priors[P, 4] at the center of every cell of features[1, C, H, W] of an image[1, C,
    H', W']: [H*W*P, 4] or [H, W, P, 4].

    h, w and the strides override the sizes of the feature map and of its cells unless they are 0.
    Source: OpenVINO, ExperimentalDetectronPriorGridGenerator-6.
    """
    fm, im = static(features, "the features"), static(image, "the image")
    height, width = h or fm[2], w or fm[3]
    not_zero(height=height, width=width)
    step_y, step_x = stride_y or im[2] / height, stride_x or im[3] / width
    y, x = np.meshgrid(
        (arange(height) + 0.5) * step_y, (arange(width) + 0.5) * step_x, indexing="ij"
    )
    centers = np.stack([x, y, x, y], -1)[:, :, None, :].astype(np.float32)
    grid = centers + priors
    return b.Reshape(grid, [-1, 4]) if flatten else grid


@extension
def DetectronTopKROIs(b: Builder, rois: Value, scores: Value, *, max_rois: int) -> Value:
    """Return the max_rois rows of rois[R, 4] with the best scores[R], in descending order:
    [max_rois, 4], padded with zeros.

    Source: OpenVINO, ExperimentalDetectronTopKROIs-6.
    """
    return filled(b, top(b, rois, scores, max_rois)[0], max_rois)


@extension(deltas=3, scores=3)
def DetectronGenerateProposals(
    b: Builder,
    image: Value,
    anchors: Value,
    deltas: Value,
    scores: Value,
    *,
    min_size: float,
    nms_threshold: float,
    post_nms_count: int,
    pre_nms_count: int,
) -> tuple[Value, Value]:
    """Proposals of one image: boxes [post_nms_count, 4] and scores [post_nms_count], padded with
    zeros.

    image = (height, width, scale), anchors[H*W*A, 4], deltas[4*A, H, W], scores[A, H, W]. Source:
    OpenVINO, ExperimentalDetectronGenerateProposalsSingleImage-6.
    """
    a, h, w = static(scores, "the scores")
    moves = b.Reshape(b.Transpose(b.Reshape(deltas, [a, 4, h, w]), perm=[2, 3, 0, 1]), [-1, 4])
    limit = _limit(b, image) - 1.0
    moved = refine(b, anchors, moves, 1.0, limit=math.log(1000.0 / 16.0)) - np.array(
        [0, 0, 1, 1], np.float32
    )
    boxes = b.Max(b.Min(moved, limit), 0.0)
    flat = b.Reshape(b.Transpose(scores, perm=[1, 2, 0]), [-1])
    flat = flat * b.Cast(large_enough(b, boxes, float(min_size), 1.0), to=FLOAT)
    boxes, flat = top(b, boxes, flat, pre_nms_count)
    best, positions, real = survivors(b, boxes, flat, post_nms_count, nms_threshold, 0.0)
    return filled(b, b.Gather(boxes, positions), post_nms_count, real), filled(
        b, best, post_nms_count, real
    )


def _limit(b: Builder, image: Value) -> Value:
    """Return (w, h, w, h) of an image described by (height, width, ...)."""
    return b.Gather(b.Reshape(image, [-1]), [1, 0, 1, 0])


@extension(rois=2, deltas=2, scores=2)
def DetectronDetectionOutput(
    b: Builder,
    rois: Value,
    deltas: Value,
    scores: Value,
    image: Value,
    *,
    score_threshold: float,
    nms_threshold: float,
    num_classes: int,
    post_nms_count: int,
    max_detections_per_image: int,
    max_delta_log_wh: float,
    deltas_weights: Sequence[float],
    class_agnostic_box_regression: int = 0,
) -> tuple[Value, Value, Value]:
    """Detections of one image: boxes [D, 4], classes [D] (int32), scores [D], D =
    max_detections_per_image, padded with zeros.

    rois[R, 4], deltas[R, C*4] ([R, 2*4] if class-agnostic), scores[R, C], image (height, width,
    ...). Class 0 is the background. Detections are ordered by class; if there are too many, only
    the best remain, in descending order of score. Source: OpenVINO,
    ExperimentalDetectronDetectionOutput-6.
    """
    count, _ = static(rois, "the regions")
    at_least(1, regions=count)
    kinds = (
        2 if class_agnostic_box_regression and (shape_of(deltas) or (0, 0))[1] == 8 else num_classes
    )
    low, high = b.Split(rois, [2, 2], outputs=2, axis=1)  # regions without an area are skipped
    flat = b.ReduceMin(high - low, [1], keepdims=1) <= 0.0
    scores = b.Where(flat, 0, scores)
    weights = 1.0 / np.array(deltas_weights, np.float32)
    moves = b.Reshape(deltas, [count, kinds, 4]) * weights
    boxes = refine(b, rois[:, None], moves, 1.0, limit=max_delta_log_wh)
    boxes = boxes - np.array([0, 0, 1, 1], np.float32)
    boxes = b.Max(boxes, 0.0)
    found = [
        _one_class(
            b,
            boxes,
            scores,
            c,
            1 if kinds < num_classes else c,
            score_threshold,
            nms_threshold,
            post_nms_count,
        )
        for c in range(1, num_classes)
    ]
    box, score = (b.Concat(*(f[i] for f in found), axis=0) for i in (0, 1))
    kind = np.repeat(arange(1, num_classes, dtype=np.float32), [static(f[1])[0] for f in found])
    there = score > float("-inf")
    crowded = b.Greater(b.ReduceSum(b.Cast(there, to=INT64), [0]), [max_detections_per_image])
    in_turn = b.Where(there, arange(0, -kind.size, -1, dtype=np.float32), float("-inf"))
    key, order = b.TopK(
        b.Where(crowded, score, in_turn),
        [min(kind.size, max_detections_per_image)],
        outputs=2,
        axis=0,
    )
    real, values = key > float("-inf"), b.Gather(score, order)
    return (
        filled(b, b.Gather(box, order), max_detections_per_image, real),
        b.Cast(
            filled(b, b.Gather(kind, order), max_detections_per_image, real),
            to=INT32,
        ),
        filled(b, values, max_detections_per_image, real),
    )


def _one_class(
    b: Builder,
    boxes: Value,
    scores: Value,
    c: int,
    column: int,
    least: float,
    threshold: float,
    most: int,
) -> tuple[Value, Value]:
    """Return boxes and scores of at most `most` detections of class c, in descending order; unused
    scores are -inf.
    """
    box, score = b.Gather(boxes, column, axis=1), b.Gather(scores, c, axis=1)
    strong = b.Where(score > float(least), score, float("-inf"))
    far = box + np.array([0, 0, 1, 1], np.float32)
    values, positions, _ = ranked(b, one_class(b, far, strong, threshold), strong, most)
    return b.Gather(box, positions), values


@extension
def DetectronROIFeatureExtractor(
    b: Builder,
    rois: Value,
    *pyramid: Value,
    output_size: int,
    sampling_ratio: int = 0,
    pyramid_scales: Sequence[int],
    aligned: int = 0,
) -> Value:
    """RoiAlign of rois[R, 4] on the pyramid level floor(2 + log2(sqrt(area)/224)) of each: [R, C,
    output_size, output_size].

    `aligned` moves the regions by half a cell up and left; their sides are at least one cell in
    either case. Regions without an area result in 0. Source: OpenVINO,
    ExperimentalDetectronROIFeatureExtractor-6.
    """
    low, high = b.Split(rois, [2, 2], outputs=2, axis=1)
    size = high - low
    area = b.ReduceProd(size, [1], keepdims=0)
    side = b.Sqrt(b.Max(area, 0.0))
    level = b.Floor(b.Log(side / 224.0 + 1e-6) / math.log(2.0) + 2.0)
    level = b.Where(area > 0.0, b.Clip(level, 0.0, float(len(pyramid) - 1)), -1.0)
    level = level[:, None, None, None]
    zero = b.Cast(b.Gather(rois, 0, axis=1), to=INT64) * 0
    mode = "half_pixel" if aligned else "output_half_pixel"
    above(0, pyramid_scales=pyramid_scales)
    result: Value = b.const(np.float32(0))
    for i, (features, scale) in enumerate(zip(pyramid, pyramid_scales, strict=False)):
        regions = b.Concat(low, low + b.Max(size, float(scale)), axis=1) if aligned else rois
        one = b.RoiAlign(
            features,
            regions,
            zero,
            output_height=output_size,
            output_width=output_size,
            sampling_ratio=sampling_ratio,
            spatial_scale=1.0 / scale,
            coordinate_transformation_mode=mode,
        )
        result = b.Where(b.Equal(level, float(i)), one, result)
    return result
