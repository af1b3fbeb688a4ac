"""Detection: boxes decoded, grouped by class, fused, suppressed, and cut out of feature maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.rules.context import LiftContext
from converter.formats.zhouyi.rules.fields import (
    CAST_TO_DECLARED,
    DeclaredSize,
    constant_of,
    method,
    word,
    words,
)
from converter.formats.zhouyi.types import dtype_name, numpy_type
from converter.formats.zhouyi.unsupported import undocumented
from converter.graph.build import Builder
from converter.graph.catalogue.compact import first_true_indices, take
from converter.graph.catalogue.proposals import filled, survivors, top
from converter.graph.catalogue.ssd import class_of, labels_of, present
from converter.graph.demands import of_length, representable, shaped
from converter.graph.infer import Array, constant
from converter.graph.sizes import arange, demand_small
from converter.graph.value import Value, stack
from converter.mapping.codecs import Floats, enum
from converter.mapping.context import LowerContext, static
from converter.mapping.fields import Attr, Detail, Field, Guard, WriteKey, attrs, ignore
from converter.mapping.rules import custom, op
from converter.record import record

FLOAT = ir.DataType.FLOAT

# grouped boxes -----------------------------------------------------------------------------------


class Anchors(Field):
    """Anchors [P, 4]: a third input, the constant `weights`, or four constants, which are
    written.
    """

    inputs = (2,)
    blobs = ("weights", "weight", "ycenter", "xcenter", "ha", "wa")

    def lift(self, r: LiftContext) -> None:
        if r.optional(2) is not None:
            return
        if "xcenter" in r.layer.blobs:
            parts = [r.blob(k).reshape(-1) for k in self.blobs[2:]]
            if len({part.size for part in parts}) > 1:
                raise MappingError("ycenter, xcenter, ha and wa must have the same length", "R105")
            anchors = np.stack(parts, axis=1)
        else:
            anchors = r.blob("weights" if "weights" in r.layer.blobs else "weight")
        r.node.set_input(2, r.weights("anchors", anchors.reshape(-1, 4)))

    def lower(self, w: LowerContext) -> None:
        anchors = constant_of(w, 2, "the anchors")
        parts = {name: anchors[:, i] for i, name in enumerate(self.blobs[2:])}
        w.layer.blobs |= {"weights": anchors, **parts}


@record
class Spelled(Attr):
    """A key with several spellings: the first one that exists is read, `key` is written."""

    others: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "keys", (self.key, *self.others))

    def lift(self, r: LiftContext) -> None:
        found = [k for k in self.keys if k in r.layer.attrs]
        r.node.attrs[self.name] = r.attr((found or [self.key])[0], self.kind)


def write_grid(w: LowerContext) -> None:
    """Write the keys that repeat the shape of the data: boxes and size of the grid, number of
    classes.
    """
    _, height, width, boxes, depth = w.static()
    w.set(box_per_grid=boxes, class_num=depth - 5, grid_width=width, grid_height=height)


class OwnDivisors(Field):
    """Divisors, which are read; only 10, 10, 5, 5 are written, by leaving them out."""

    names = ("divisors",)
    keys = ("std_div",)
    usual = (10.0, 10.0, 5.0, 5.0)

    def lift(self, r: LiftContext) -> None:
        r.node.attrs["divisors"] = r.attr("std_div", Floats, list(self.usual))

    def lower(self, w: LowerContext) -> None:
        if tuple(w.attr("divisors", self.usual)) != self.usual:
            raise MappingError("variance must be 10, 10, 5, 5")


# suppression -------------------------------------------------------------------------------------


def read_kept(r: LiftContext) -> None:
    """Read the number of boxes (from the declared output), and the largest number of boxes of a
    class.
    """
    size = r.declared_size(0)
    r.node.attrs |= {"size": size, "per_class": r.attr("max_output_size", int, size)}


def write_kept(w: LowerContext) -> None:
    """Write the number of boxes that each class keeps."""
    w.set(max_output_size=int(w.attr("per_class")))


KEPT = Detail(
    read=read_kept,
    write=write_kept,
    names=("size", "per_class"),
    keys=("max_output_size",),
)


def flatten_scores(r: LiftContext) -> None:
    """Reshape the scores to [N, boxes], and convert all operands to floats."""
    batch, n = r.static(least=2)[:2]
    scores = r.b.Reshape(r.input(3), [batch, n])
    r.node.inputs = [_as_float(r, v) for v in (*(r.input(i) for i in range(3)), scores)]


def _as_float(r: LiftContext, value: Value) -> Value:
    return value if value.dtype == FLOAT else r.b.Cast(value, to=FLOAT)


NOT_LINEAR = Guard(
    "method=LINEAR is not supported: its decay is undocumented, and the "
    "vendor's executor computes HARD instead",
    lift_if=lambda r: r.layer.attrs.get("method") != "LINEAR",
)
CORNERS = Guard(
    "center_point_box=1 with method=GAUSSIAN is not supported: the vendor's "
    "executor reads corners instead",
    lift_if=lambda r: not r.attr("center_point_box", int, 0),
)
IMAGE = (WriteKey("image_width", 1), WriteKey("image_height", 1))
SUPPRESSION = (
    KEPT,
    Detail(read=flatten_scores),
    Attr("iou_threshold", kind=float),
    Attr("score_threshold", kind=float, default=float("-inf")),
    *IMAGE,
    CAST_TO_DECLARED,
)
GROUPS = "1,6,4 1,3 1,1 1,6 -> 4"

# pieces of feature maps --------------------------------------------------------------------------


def spatial_scale(r: LiftContext, keys: tuple[str, ...], stem: str) -> list[float]:
    """Return [y, x], stored as a list or as two keys."""
    for key in keys:
        if isinstance(r.layer.attrs.get(key), list | int | float):
            found: list[float] = r.attr(key, Floats)
            return found * 2 if len(found) == 1 else r.number_list(key, 2)
    return [r.attr(f"{stem}_{axis}", float) for axis in "yx"]


def regions(r: LiftContext, scale: list[float]) -> tuple[Value, Value]:
    """Return the images [n], and the boxes x1, y1, x2, y2 [n, 4] in pixels of the feature map.

    Operand 1 is a table [n, 5] of batch, y1, x1, y2, x2; `scale` is that of y and of x.
    """
    rois, b = r.input(1), r.b
    rois = b.Reshape(rois, [-1, 5]) if len(r.static(rois)) != 2 else rois
    boxes = b.Gather(rois, np.array([2, 1, 4, 3]), axis=1)
    dtype = numpy_type(rois)
    factors = b.const(representable([scale[1], scale[0]] * 2, dtype, "the scale of regions"))
    batch = rois[:, 0]
    return batch, boxes * factors


def exchanged(w: LowerContext, value: ir.Value, order: list[int]) -> ir.Value:
    """Return the columns of a table of boxes in another order."""
    index = w.const(np.array(order, np.int32))
    return w.emit("Gather", value, index, shape=static(value), axis=1, batch_dims=0)


class AlignedRegions(Field):
    """Boxes and their image indices <-> a table of regions; the scale is read as a factor."""

    names = ("spatial_scale",)
    keys = ("spatial_scale_value", "spatial_scale_y", "spatial_scale_x", "spatial_scale_type")
    inputs = (1, 2)

    def lift(self, r: LiftContext) -> None:
        scale = spatial_scale(r, ("spatial_scale_value",), "spatial_scale")
        batch, boxes = regions(r, scale)
        index = r.b.Cast(batch, to=ir.DataType.INT64)
        r.node.inputs = [r.input(0), boxes, index]
        r.node.attrs["spatial_scale"] = 1.0

    def lower(self, w: LowerContext) -> None:
        boxes, batch = w.input(1), w.input(2)
        n, dtype = static(boxes)[0], boxes.dtype or ir.DataType.FLOAT
        swapped = exchanged(w, boxes, [1, 0, 3, 2])
        found = constant(batch)
        if found is not None:
            number = w.const(found.astype(dtype.numpy()).reshape(n, 1))
        else:
            how: dict[str, Any] = {"ignore_scale_zp": True, "clip_mode": "TRUNCATION"}
            to = dtype_name(dtype)
            cast = w.emit("Cast", batch, dtype=dtype, shape=[n], to_dtype=to, **how)
            number = w.put(
                "Reshape", cast, outputs=[w.temporary("batch", dtype, [n, 1])], shape=[n, 1]
            ).outputs[0]
        rois = w.emit("Concat", number, swapped, shape=[n, 5], axis=1)
        w.layer.inputs = [w.input(0), rois]
        scale = float(w.attr("spatial_scale"))
        w.layer.attrs["spatial_scale_value"] = [scale, scale]


def read_pooled_regions(r: LiftContext) -> None:
    """Read a table of regions; the scale becomes a factor."""
    batch, boxes = regions(r, spatial_scale(r, ("spatial", "spatial_scale_value"), "spatial"))
    table = r.b.Concat(batch[:, None], boxes, axis=1)
    r.node.inputs, r.node.attrs["spatial_scale"] = [r.input(0), table], 1.0


def write_pooled_regions(w: LowerContext) -> None:
    """Write the regions with x and y exchanged, and the scale of both axes."""
    w.layer.inputs = [w.input(0), exchanged(w, w.input(1), [0, 2, 1, 4, 3])]
    scale = float(w.attr("spatial_scale"))
    w.layer.attrs["spatial"] = [scale, scale]


POOLED_REGIONS = Detail(
    read=read_pooled_regions,
    write=write_pooled_regions,
    names=("spatial_scale",),
    keys=("spatial", "spatial_x", "spatial_y", "spatial_scale_value", "spatial_scale_type"),
    inputs=(1,),
)


@record
class PooledShape(Field):
    """[height, width] of the pieces <-> `pooled_shape`, or the sizes of the declared output."""

    names: tuple[str, ...]
    keys = ("pooled_shape",)

    def lift(self, r: LiftContext) -> None:
        size = r.count_list("pooled_shape", 2, list((r.declared() or ())[-3:-1]))
        one = len(self.names) == 1
        r.node.attrs |= {self.names[0]: size} if one else dict(zip(self.names, size, strict=True))

    def lower(self, w: LowerContext) -> None:
        values = w.attr(self.names[0]) if len(self.names) == 1 else [w.attr(n) for n in self.names]
        w.set(pooled_shape=[int(v) for v in values])


class Samples(Field):
    """One number for both axes."""

    names = ("sampling_ratio",)
    keys = ("sample",)

    def lift(self, r: LiftContext) -> None:
        sample = r.attr("sample", list, [0, 0])
        if len(set(sample)) != 1:
            message = f"sample must be equal along both axes, got {sample}"
            raise MappingError(message)
        r.node.attrs["sampling_ratio"] = sample[0]

    def lower(self, w: LowerContext) -> None:
        w.set(sample=[int(w.attr("sampling_ratio"))] * 2)


# undocumented layers -----------------------------------------------------------------------------

# of dy, dx, dh, dw, and the pixels between two anchors: the vendor's executor has them built in
PROPOSAL_DIVISORS = (10.0, 10.0, 5.0, 5.0)
ANCHOR_STRIDE = 16
# areas at which the next coarser feature map begins, of boxes that are parts of the image and of
# boxes in pixels: those of squares with a side of 112, 224 and 448; the executor adds 1e-6 to the
# logarithm of the side
PYRAMID_PARTS = (0.005978503007119795, 0.02391401202847918, 0.09565604811391672)
PYRAMID_PIXELS = tuple(side**2 * 2**-2e-6 for side in (112, 224, 448))


def floats(r: LiftContext, *counts: int) -> list[Value]:
    """Return the operands as floats; if `counts` are given, their number must be one of them."""
    if counts and len(r.operands) not in counts:
        needed = " or ".join(map(str, counts))
        raise MappingError(f"{needed} inputs are needed, got {len(r.operands)}", "R105")
    return [_as_float(r, v) for v in r.operands]


def lift_detection_output(r: LiftContext) -> list[ir.Value]:
    """Boxes decoded class by class, those above the score threshold, grouped by class.

    Scores [B, P, 1 + C] (background first), deltas [B, P, C, 4] and proposals [B, P, 4] -> scores,
    boxes, counts, classes, number of classes.

    Deltas and boxes are y, x, h, w and y1, x1, y2, x2, or with anchor_mode=caffe_detection x first.
    """
    b, (scores, deltas, proposals) = r.b, floats(r, 3)
    modes = enum({False: "DEFAULT_DETECT", True: "CAFFE_DETECTION"})
    caffe = r.attr("anchor_mode", modes, False)
    batch, count, classes, _ = r.static(deltas, axes=4)
    boxes = _decoded(r, deltas, proposals, caffe)
    own = b.Transpose(scores[..., 1 : classes + 1], perm=[0, 2, 1])
    mask = own > r.attr("score_threshold", float)
    size, width = r.declared_size(0), r.declared_size(2)
    places, real = first_true_indices(b, b.Reshape(mask, [batch, classes * count]), size)
    kept = take(b, b.Reshape(boxes, [batch, classes * count, 4]), places, real)
    values = take(b, b.Reshape(own, [batch, classes * count]), places, real)
    counts = at_most(r, b.ReduceSum(b.Cast(mask, to=FLOAT), [2], keepdims=0), size)
    per_class, number = present(b, counts, width)
    return r.typed([values, kept, per_class, labels_of(b, counts, width), number])


def _decoded(r: LiftContext, deltas: Value, proposals: Value, caffe: bool) -> ir.Value:
    """Return the decoded boxes [B, C, P, 4], clipped to the image."""
    b = r.b
    variance = r.number_list("variance", 4, [10.0, 10.0, 5.0, 5.0])
    moves = [deltas[..., i] / by for i, by in enumerate(variance)]
    edges = [proposals[..., i : i + 1] for i in range(4)]
    low, high = [], []
    for i, side in enumerate(("width", "height") if caffe else ("height", "width")):
        limit = r.attr(f"image_{side}", float)
        size = edges[2 + i] - edges[i]
        center = moves[i] * size + (edges[i] + edges[2 + i]) * 0.5
        half = b.Exp(moves[2 + i]) * size * 0.5
        low.append(b.Clip(center - half, 0.0, limit))
        high.append(b.Clip(center + half, 0.0, limit))
    order = (1, 0) if caffe else (0, 1)
    return b.Transpose(stack(part[i] for part in (low, high) for i in order), perm=[0, 2, 1, 3])


def at_most(r: LiftContext, counts: Value, size: int) -> Value:
    """Reduce counts[b, C] so that their sum does not exceed `size`."""
    b = r.b
    room = size - b.CumSum(counts, np.array(1), exclusive=1)
    return b.Min(counts, b.Max(room, 0))


def lift_filter_boxes(r: LiftContext) -> list[ir.Value]:
    """Select grouped boxes above the score threshold and not smaller than min_size (h, w). Classes
    without boxes are removed.
    """
    b, (boxes, scores, counts, labels, number) = r.b, floats(r, 5)
    n, classes = r.static(scores, axes=2)[1], r.static(counts, axes=2)[1]
    smallest, most = r.number_list("min_size", 2), r.count("maxnum")
    index, real, _ = class_of(b, counts, None, number, n)
    y1, x1, y2, x2 = (boxes[..., i] for i in range(4))
    mask = real & (scores > r.attr("score_threshold", float))
    mask = mask & (y2 - y1 >= smallest[0]) & (x2 - x1 >= smallest[1])
    places, found = first_true_indices(b, mask, most)
    every = arange(classes, dtype=np.float32).reshape(classes, 1)
    member = b.Equal(index[:, None], every) & mask[:, None]
    sums = at_most(r, b.ReduceSum(b.Cast(member, to=FLOAT), [2], keepdims=0), most)
    per_class, total = present(b, sums, classes)
    at, there = first_true_indices(b, sums > 0, classes)
    kept = [take(b, v, places, found) for v in (boxes, scores)]
    return r.typed([*kept, per_class, take(b, labels, at, there), total])


def lift_post_nms(r: LiftContext) -> list[ir.Value]:
    """Return the first `proposal_cnt` boxes of a suppression, in pixels, and relative to the longer
    side of the image.
    """
    b, (boxes, keep, counts) = r.b, floats(r, 3)
    (batch, n, _), most = r.static(boxes, axes=3), r.count("proposal_cnt")
    every = b.const(np.full([batch, 1], r.static(counts, axes=2)[1], np.float32))
    _, real, starts = class_of(b, counts, None, every, r.static(keep, axes=2)[1])
    place = keep + b.Where(real, starts, 0)
    good = real & (place < n)
    index = b.Cast(b.Where(good, place, 0), to=ir.DataType.INT64)
    chosen = take(b, boxes, index, good)
    missing = max(0, most - r.static(chosen)[1])
    chosen = b.Pad(chosen, [0, 0, 0, 0, missing, 0])[:, :most]
    longer = max(r.attr(f"image_{side}", float) for side in ("height", "width"))
    return r.typed([chosen, chosen / longer])


def lift_proposal(r: LiftContext) -> list[ir.Value]:
    """Boxes decoded from anchors, those above the score threshold, in the order of the anchors.

    Scores [B, P, 2] (background first) and deltas y, x, h, w [B, P, 4] -> scores [B, size], boxes
    y1, x1, y2, x2 [B, size, 4] within the image, their count in the first of [B, classes], and the
    number of classes [B, 1], which is 1.
    """
    b, (scores, deltas) = r.b, floats(r, 2)
    moves = deltas / np.array(PROPOSAL_DIVISORS, np.float32)
    edges = []
    for i, names in enumerate(("ycenter ha height", "xcenter wa width")):
        *anchors, limit = names.split()
        center, side = (r.blob(k).reshape(-1).astype(np.float32) for k in anchors)
        edges.append(_moved_edges(b, moves, i, center, side, r.attr(limit, float)))
    boxes = _corners(edges)
    own = scores[..., 1]
    return r.typed(chosen_proposals(r, own, boxes, own > r.attr("score_threshold", float)))


def chosen_proposals(r: LiftContext, scores: Value, boxes: Value, mask: Value) -> list[Value]:
    """Return the results of a Proposal: the elements of scores [B, P] and boxes [B, P, 4] where the
    mask is true, padded to the declared size, their count, and the number of classes.
    """
    b = r.b
    places, real = first_true_indices(b, mask, r.declared_size(0))
    count = b.ReduceSum(b.Cast(real, to=FLOAT), [1])
    count = b.Pad(count, [0, 0, 0, r.declared_size(2) - 1])
    one = b.const(np.ones((r.static(scores)[0], 1), np.float32))
    return [take(b, scores, places, real), take(b, boxes, places, real), count, one]


def _moved_edges(
    b: Builder, deltas: Value, axis: int, center: Array, side: Array, limit: float
) -> list[Value]:
    """Return both edges [B, P] of anchors [P] along one axis, moved by column `axis` of deltas [B,
    P, 4] and grown by column `axis` + 2, within 0 and `limit`.
    """
    move, grow = (deltas[..., axis + k] for k in (0, 2))
    middle, half = move * side + center, b.Exp(grow) * side / 2.0
    return [b.Clip(v, 0.0, limit) for v in (middle - half, middle + half)]


def _corners(edges: list[list[Value]]) -> Value:
    """Return the boxes [B, P, 4] from both edges along both axes."""
    return stack(axis[k] for k in (0, 1) for axis in edges)


def lift_generated_proposals(r: LiftContext) -> list[ir.Value]:
    """Return the best boxes of an image, larger than min_size, without a better neighbor.

    Scores [B, H, W, A], deltas dx, dy, dw, dh [B, H, W, 4 * A] and an image's size, which the
    executor does not read -> scores [B, N], boxes x1, y1, x2, y2 [B, N, 4] with their last pixels
    inside, zeros [B, N, 1] and counts [B, 1], N = post_nms_topn.
    """
    b, (scores, deltas) = r.b, floats(r, 2, 3)[:2]
    batch, *grid = r.static(scores, axes=4)
    size, n = r.count("post_nms_topn"), int(np.prod(grid))
    demand_small(batch, size)
    anchors = _spread_anchors(
        shaped(r.blob("weights"), -1, 4, what="weights").astype(np.float32), grid
    )
    moves = b.Reshape(deltas, [batch, n, 4])
    edges = [
        _moved_edges(b, moves, i, anchors[:, 2 + i], anchors[:, i], r.attr(limit, float) - 1.0)
        for i, limit in enumerate(("image_width", "image_height"))
    ]
    every, own = _corners(edges), b.Reshape(scores, [batch, n])
    found = []
    for image in range(batch):
        boxes, values = top(b, every[image], own[image], r.count("pre_nms_topn"))
        low, high = b.Split(boxes, [2, 2], outputs=2, axis=1)
        smaller = b.ReduceMin(high - low + 1.0, [1], keepdims=0)
        values = b.Where(smaller > r.attr("min_size", float), values, float("-inf"))
        best, places, real = survivors(b, boxes, values, size, r.attr("iou_threshold", float), 1.0)
        count = b.ReduceSum(b.Cast(real, to=FLOAT), [0])
        boxes = filled(b, b.Gather(boxes, places), size, real)
        found.append([filled(b, best, size, real), boxes, count])
    values, boxes, counts = (stack(column, 0) for column in zip(*found, strict=True))
    zeros = b.const(np.zeros((batch, size, 1), np.float32))
    return r.typed([values, boxes, zeros, counts])


def _spread_anchors(anchors: Array, grid: Sequence[int]) -> Array:
    """Widths, heights and centers x, y [P, 4] of the anchors of all cells of a grid (H, W, A).

    Anchors are those of all cells already, or x1, y1, x2, y2 [A, 4] in the first cell. Then the
    executor traverses the cells with the width as the outer loop and treats it as y: in a grid that
    is not square the deltas are not at their cells.
    """
    height, width, count = grid
    if len(anchors) == height * width * count:
        return anchors
    if len(anchors) != count:
        message = f"the weights must have {count} anchors (one per score), got {len(anchors)}"
        raise MappingError(message, "R110")
    y, x = np.meshgrid(np.arange(width), np.arange(height), indexing="ij")
    shifts = np.stack([x, y, x, y], axis=-1).reshape(-1, 1, 4) * np.float32(ANCHOR_STRIDE)
    corners = (anchors + shifts.astype(np.float32)).reshape(-1, 4)
    sides = corners[:, 2:] - corners[:, :2] + 1
    return np.concatenate([sides, corners[:, :2] + sides * np.float32(0.5)], axis=1)


def lift_pyramid(r: LiftContext) -> ir.Value:
    """Boxes y1, x1, y2, x2 [1, R, 4] cut out of four feature maps [1, H, W, C], each out of the one
    that suits its area: [R, resize_height, resize_width, C].

    Boxes are pixels of the image, and a cell is a mean of samples; with proposal_normalized they
    are parts of the image, and a cell is one sample.
    """
    b, (boxes, *maps) = r.b, four_maps(r, floats(r))
    boxes = b.Squeeze(boxes, [0])
    low, high = b.Split(boxes, [2, 2], outputs=2, axis=1)
    area = b.ReduceProd(high - low, [1], keepdims=0)
    parts = r.attr("proposal_normalized", bool, False)
    pieces = (_corner_pieces if parts else _mean_pieces)(r, boxes, maps)
    result = of_level(b, area, PYRAMID_PARTS if parts else PYRAMID_PIXELS, pieces)
    if not parts:
        # without half_pixel a region is a cell large at least
        real = area > 0.0 if is_half_pixel(r) else area >= 0.0
        result = b.Where(b.Unsqueeze(real, [1, 2, 3]), result, 0.0)
    return b.Transpose(result, perm=[0, 2, 3, 1])


def four_maps(r: LiftContext, values: list[Value]) -> list[Value]:
    """Return boxes and the four feature maps of the first image; the executor ignores all
    others.
    """
    if len(values) != 5:
        raise MappingError(f"four feature maps are needed, got {len(values) - 1}", "R110")
    boxes, *maps = values
    sizes = [r.static(boxes, least=1), *(r.static(v, "a feature map", axes=4) for v in maps)]
    return [v[:1] if s[0] > 1 else v for v, s in zip(values, sizes, strict=True)]


def of_level(b: Builder, area: Value, levels: Sequence[float], pieces: list[Value]) -> Value:
    """Select, from pieces [R, ...] for each of four feature maps, the one for the area [R] of a
    region; an area that equals a limit selects the last.
    """
    least, middle, most = levels
    masks = [area < least, (area > least) & (area < middle), (area > middle) & (area < most)]
    return override(b, pieces[3], masks, pieces[:3])


def override(b: Builder, y: Value, masks: list[Value], pieces: list[Value]) -> Value:
    """Return `y` [R, h, w, c], with the piece of the last mask [R] that is true instead."""
    for mask, piece in zip(masks, pieces, strict=True):
        y = b.Where(b.Unsqueeze(mask, [1, 2, 3]), piece, y)
    return y


def is_half_pixel(r: LiftContext) -> bool:
    """Return whether coordinates are shifted by half a pixel."""
    modes = enum({True: "HALF_PIXEL", False: "OUTPUT_HALF_PIXEL"})
    return bool(r.attr("coordinate_transformation_mode", modes))


def _mean_pieces(r: LiftContext, boxes: Value, maps: list[Value]) -> list[Value]:
    """Return the means of the samples of all boxes [R, 4] on each feature map, [R, C, height,
    width].
    """
    b, scales, samples = r.b, r.number_list("spatial_scale_value", 4), r.attr("sample", list)
    of_length(2, sample=samples)
    if len(set(samples)) != 1 and min(samples) <= 0:
        what = "the number of samples per cell is known along one axis only"
        raise MappingError(f"sample={samples} is not supported: {what}")
    size = [r.count(f"resize_{side}") for side in ("height", "width")]
    regions = b.Gather(boxes, np.array([1, 0, 3, 2]), axis=1)
    image = b.const(np.zeros(r.static(boxes)[0], np.int64))
    mode = "half_pixel" if is_half_pixel(r) else "output_half_pixel"
    pairs = zip(maps, scales, strict=True)
    if len(set(samples)) != 1:
        return [_unequal(r, boxes * scale, features, size, samples) for features, scale in pairs]
    return [
        b.RoiAlign(
            b.Transpose(features, perm=[0, 3, 1, 2]),
            regions,
            image,
            output_height=size[0],
            output_width=size[1],
            sampling_ratio=max(samples[0], 0),
            spatial_scale=scale,
            coordinate_transformation_mode=mode,
        )
        for features, scale in pairs
    ]


def _unequal(
    r: LiftContext, boxes: Value, features: Value, size: list[int], samples: list[int]
) -> Value:
    """Return means of different numbers of samples vertically and horizontally; samples more than a
    pixel outside of the image count as 0.
    """
    b, count = r.b, r.static(boxes)[0]
    _, *sides, channels = r.static(features)
    half = is_half_pixel(r)
    lines, known = [], []
    for axis, (cells, number) in enumerate(zip(size, samples, strict=True)):
        first, last = (boxes[:, i : i + 1] for i in (axis, axis + 2))
        length = last - first
        length = length if half else b.Max(length, 1.0)
        steps = (arange(cells * number, dtype=np.float32) + 0.5) / (cells * number)
        place = first + length * steps - (0.5 if half else 0.0)
        known.append((place >= -1) & (place <= sides[axis]))
        lines.append(b.Clip(place, 0, sides[axis] - 1))
    samples_at = [c * n for c, n in zip(size, samples, strict=True)]
    found = _at_lines(r, features, lines, samples_at)
    mask = b.Unsqueeze(known[0], [2]) & known[1][:, None]
    found = b.Where(mask[:, None], found, 0.0)
    shape = [count, channels, size[0], samples[0], size[1], samples[1]]
    return b.ReduceMean(b.Reshape(found, shape), [3, 5], keepdims=0)


def _at_lines(r: LiftContext, features: Value, lines: list[Value], size: list[int]) -> Value:
    """Interpolate a feature map [1, H, W, C] at the crossings of rows [R, h] and columns [R, w]:
    [R, C, h, w].
    """
    b, count = r.b, r.static(lines[0])[0]
    _, *sides, channels = r.static(features)
    spread = []
    for axis, place in enumerate(lines):
        line = b.Unsqueeze(place * (2.0 / max(sides[axis] - 1, 1)) - 1.0, [2 - axis])
        spread.append(b.Expand(line, [count, *size]))
    # x comes first; the pieces are concatenated vertically in one image
    grid = b.Reshape(stack(reversed(spread)), [1, count * size[0], size[1], 2])
    image = b.Transpose(features, perm=[0, 3, 1, 2])
    found = b.GridSample(image, grid, align_corners=1, padding_mode="border")
    found = b.Reshape(found, [channels, count, *size])
    return b.Transpose(found, perm=[1, 0, 2, 3])


def _corner_pieces(r: LiftContext, boxes: Value, maps: list[Value]) -> list[Value]:
    """Samples from edge to edge of all boxes [R, 4] of each feature map, [R, C, height, width].

    The executor takes the width of a feature map for its height when it scales the boxes.
    """
    b, size, pieces = r.b, corner_size(r), []
    for features in maps:
        sides, lines = r.static(features)[1:3], []
        for axis in (0, 1):
            first, last = (boxes[:, i : i + 1] for i in (axis, axis + 2))
            steps = arange(size[axis], dtype=np.float32) / (size[axis] - 1)
            place = (first + (last - first) * steps) * (sides[1 - axis] - 1)
            lines.append(b.Clip(place, 0, sides[axis] - 1))
        pieces.append(_at_lines(r, features, lines, size))
    return pieces


def corner_size(r: LiftContext) -> list[int]:
    """Return the number of rows and columns of samples from edge to edge."""
    size = [r.attr("resize_height", int), r.attr("resize_width", int)]
    if min(size) < 2:
        raise undocumented("where a single sample lies (resize_height or resize_width of 1)")
    return size


def lift_heatmap_keypoints(r: LiftContext) -> list[ir.Value]:
    """Heat maps [n, s, s, k] and boxes [n, 4]: scores [n, k, 1], positions [n, k, 2], and zeros
    instead of probabilities. Scores are truncated, and no box is smaller than a pixel. Source: the
    vendor's executor, heatmapMaxkeypoint.py.
    """
    b = r.b
    if r.attr("isSoftmax", bool, False):
        raise undocumented("what HeatmapMaxKeypoint with isSoftmax=true computes")
    n, height, width, k = r.static(0, "the heat maps", axes=4)
    if height != width:
        raise MappingError(f"heat maps must be square, got {height} x {width}", "R105")
    maps = b.Transpose(r.input(0), perm=[0, 3, 1, 2])
    whole = b.Cast(b.Cast(maps, to=ir.DataType.INT32), to=FLOAT)
    low, high = b.Split(r.cast(r.input(1), FLOAT), [2, 2], outputs=2, axis=1)
    boxes = b.Concat(low, low + b.Max(high - low, 1.0), axis=1)
    scores, places = b.HeatmapKeypoints(whole, boxes, outputs=2)
    return [b.Unsqueeze(scores, [2]), places, b.const(np.zeros((n, k, 1), np.float32))]


def lift_post_nms_by_class(r: LiftContext) -> list[ir.Value]:
    """Return the kept boxes [1, n, 4] of each class, repeated as often as there are indices in
    `keep`, class after class, up to `proposal_cnt`; zeros for the scores, and the number of boxes.
    Source: the vendor's executor, postnms2.py.
    """
    b, most = r.b, r.count("proposal_cnt")
    demand_small(most)
    boxes = r.input(0)
    counts, classes_in_use, keep = (r.cast(r.input(i), ir.DataType.INT64) for i in (1, 3, 5))
    batch, n, _ = r.static(boxes, "the boxes", axes=3)
    classes, kept = r.static(counts, axes=2)[1], r.static(keep, axes=2)[1]
    if batch != 1:
        raise MappingError(f"only one image is supported, got {batch}", "X202")
    number = b.Reshape(counts, [classes])
    number = b.Where(b.Less(arange(classes), b.Reshape(classes_in_use, [-1])[:1]), number, 0)
    first = b.CumSum(number, 0) - number
    usable = b.Max(b.Min(number, kept - first), 0)
    ends = b.CumSum(usable * kept, 0)
    row = b.const(arange(most))
    passed = b.Cast(b.LessOrEqual(ends[None], row[:, None]), to=ir.DataType.INT64)
    kind = b.ReduceSum(passed, [1], keepdims=0)
    real, kind = kind < classes, b.Min(kind, classes - 1)
    length, start = b.Max(b.Gather(usable, kind, axis=0), 1), b.Gather(first, kind, axis=0)
    place = start + (row - b.Gather(ends - usable * kept, kind, axis=0)) % length
    index = b.Gather(b.Reshape(keep, [kept]), b.Min(b.Max(place, 0), kept - 1), axis=0) + start
    index = b.Min(b.Max(index, 0), n - 1)
    found = b.Where(real[None, :, None], b.Gather(boxes, index, axis=1), 0)
    scores = b.const(np.zeros((1, most), np.float32))
    total = b.ReduceSum(number, keepdims=0)
    declared = r.layer.outputs[2].dtype if len(r.layer.outputs) > 2 else None
    return [found, scores, total if declared is None else b.Cast(total, to=declared)]


RULES = [
    op(
        "netconv::RefineBoxes",
        "BoundingBox",
        Guard(
            "coordinate_order is not supported",
            lift_if=lambda r: r.layer.attrs.get("coordinate_order") is None,
        ),
        ignore("coordinate_order"),
        OwnDivisors(),
        example_inputs="1,6,4 1,6,4",
    ),
    op(
        "netconv::DecodeBoxes",
        "DecodeBox",
        Attr("class_num", kind=int),
        Attr("threshold", "score_threshold", float),
        DeclaredSize("size", 0, 1, "max_box_num"),
        DeclaredSize("classes", 1, 1),
        Attr("variance", kind=Floats, default=[10.0, 10.0, 5.0, 5.0]),
        Attr("clip", kind=bool, default=1),
        Anchors(),
        *IMAGE,
        WriteKey("proposal_normalized", True),
        ignore("feature_map", "firstbox_scale"),
        CAST_TO_DECLARED,
        example_inputs="1,6,3 1,6,4 =6,4 -> 5",
    ),
    op(
        "netconv::RegionGroups",
        "Region",
        DeclaredSize("size", 1, 1, "max_box_num", given=True),
        Spelled("threshold", "obj_thresh", float, others=("obj_threshold",)),
        Attr("anchors", kind=Floats),
        Attr("compensate", "grid_compensate", bool, default=1),
        Detail(write=write_grid, keys=("box_per_grid", "class_num", "grid_width", "grid_height")),
        CAST_TO_DECLARED,
        example_inputs="1,2,2,2,7 -> 5",
    ),
    op(
        "netconv::FuseRegions",
        "RegionFuse",
        DeclaredSize("size", 0, 1),
        DeclaredSize("classes", 3, 1),
        Attr("classes", "class_num", int, default=None),
        CAST_TO_DECLARED,
        example_inputs="1,6 1,6 1,6,4 1,6,4 1,3 1,3 1,3 1,3 1,1 1,1 -> 5",
    ),
    op(
        "netconv::GroupedNMS",
        "NMS",
        NOT_LINEAR,
        method("HARD", absent=True),
        Attr("center_point_box", kind=int, default=0),
        *SUPPRESSION,
        WriteKey("soft_nms_sigma", 0.0),
        example_inputs=GROUPS,
    ),
    op(
        "netconv::GroupedSoftNMS",
        "NMS",
        NOT_LINEAR,
        method("GAUSSIAN"),
        CORNERS,
        *SUPPRESSION,
        Attr("sigma", "soft_nms_sigma", float),
        WriteKey("center_point_box", 0),
        example_inputs=GROUPS,
    ),
    op(
        "netconv::MultiboxDecode",
        "MultiboxTransformLoc",
        Spelled("threshold", "score_threshold", float, others=("score_threshold_value",)),
        Spelled("variances", "variance", Floats, others=("variances",)),
        ignore("score_threshold_type", "std_div"),
        CAST_TO_DECLARED,
        example_inputs="1,3,6 1,24 1,6,4 -> 2",
        before_lower=lambda w: w.layer.attrs.update(variances=w.layer.attrs["variance"]),
    ),
    op(
        "netconv::GetValidCount",
        "GetValidCount",
        *attrs(score_threshold=float, score_index=1, id_index=-1),
        ignore("score_threshold_type"),
        CAST_TO_DECLARED,
        example_inputs="1,6,6 -> 3",
    ),
    op(
        "RoiAlign",
        "RoiAlign",
        AlignedRegions(),
        PooledShape(("output_height", "output_width")),
        Samples(),
        word("mode", "method", words("avg max")),
        word(
            "coordinate_transformation_mode",
            "coordinate_transformation_mode",
            words("half_pixel output_half_pixel"),
            default="half_pixel",
        ),
        example_inputs="1,4,8,8 =[[0.5,1,4,5],[0,0,6,7]] =[0,0]",
    ),
    op(
        "MaxRoiPool",
        "MaxRoiPool",
        POOLED_REGIONS,
        PooledShape(("pooled_shape",)),
        example_inputs="1,4,8,8 =[[0,0,1,4,5],[0,1,1,6,7]]",
    ),
    custom("", "DetectionOutput", lift=lift_detection_output),
    custom("", "FilterBoxes", lift=lift_filter_boxes),
    custom("", "PostNMS1", lift=lift_post_nms),
    custom("", "PostNMS2", lift=lift_post_nms_by_class, ignored="image_width image_height"),
    custom("", "HeatmapMaxKeypoint", lift=lift_heatmap_keypoints),
    custom("", "Proposal", lift=lift_proposal, ignored="scale_anchor"),
    custom("", "GenerateProposals", lift=lift_generated_proposals),
    custom(
        "",
        "PyramidROIAlign",
        lift=lift_pyramid,
        # the size of the image counts for parts of it, the others for pixels
        ignored="image_height image_width sample spatial_scale_value "
        "coordinate_transformation_mode",
    ),
]
