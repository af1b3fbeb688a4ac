"""Pooling of image regions as matrix products with weights and as masks, if the sizes are known.

Source: ONNX operators RoiAlign (opset 16) and MaxRoiPool (opset 1); onnxruntime for unspecified
details.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attributes
from converter.graph.infer import known, shape_of
from converter.graph.value import FLOAT, INT64, array_type, operand
from converter.passes.decompositions.activations import back, wide, x_of
from converter.passes.decompositions.table import Table

MOST = 64  # samples per bin and direction


def roi_align(node: ir.Node, b: Builder) -> Value | None:
    """Compute bilinear samples as weights of the rows times the image times weights of the columns.

    The mean of the samples uses the mean of the weights. The maximum is taken over all samples of
    each of the four products, as onnxruntime does.
    """
    x, rois, a = wide(b, x_of(node)), wide(b, x_of(node, 1)), attributes(node)
    shape, count = shape_of(x), shape_of(rois)
    counts = None if count is None or shape is None else samples(node, shape)
    if shape is None or count is None or counts is None:
        return None
    half = a["coordinate_transformation_mode"] == "half_pixel"
    sides = [a[f"output_{side}"] for side in ("height", "width")]
    ends = rois * a["spatial_scale"] - (0.5 if half else 0.0)
    weights = []
    for axis, bins in enumerate(sides):
        first, last = (ends[:, i : i + 1] for i in (1 - axis, 3 - axis))
        size = last - first if half else b.Max(last - first, 1)
        weights.append(taps(b, first, size, bins, counts[axis], shape[2 + axis]))
    image = of_regions(b, x, operand(node, 2))
    if a["mode"] == "max":
        if counts.shape[1] > 1:  # each region has its own number of samples
            return None
        return back(b, _largest(b, image, weights, counts), x_of(node))
    rows, columns = (
        b.ReduceSum(b.Reshape(low + high, [count[0], bins, -1, extent]), [2], keepdims=0)
        for (low, high), bins, extent in zip(weights, sides, shape[2:], strict=True)
    )
    number = np.reciprocal(counts.prod(0)).reshape(-1, 1, 1)
    rows = (rows * b.const(number.astype(np.float32), "share"))[:, None]
    columns = b.Transpose(columns, perm=[0, 2, 1])[:, None]
    return back(b, rows @ image @ columns, x_of(node))


def samples(node: ir.Node, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return the samples per bin along height and width [2, regions or 1]; None if they depend on
    computed regions, or are too many.
    """
    a = attributes(node)
    if given := a["sampling_ratio"]:
        return np.full((2, 1), float(given)) if given <= MOST else None
    rois = known(node.inputs[1])
    if rois is None:
        return None
    sides = [a[f"output_{side}"] for side in ("height", "width")]
    scaled = rois.astype(np.float32) * np.float32(a["spatial_scale"])
    sizes = np.stack([scaled[:, 3] - scaled[:, 1], scaled[:, 2] - scaled[:, 0]])
    if a["coordinate_transformation_mode"] != "half_pixel":
        sizes = np.maximum(sizes, 1)
    found = np.ceil(sizes / np.array(sides, np.float32)[:, None])
    return found if found.size and found.min() >= 1 and found.max() <= MOST else None


def taps(
    b: Builder, first: Value, size: Value, bins: int, counts: np.ndarray, extent: int
) -> tuple[Value, Value]:
    """Return the weights [regions, bins * samples, extent] of the pixels before and after each
    sample.

    Regions begin at `first` [regions, 1] and have the size `size`. Samples more than one pixel
    outside have zero weights, as have those beyond the `counts` of a region.
    """
    most, dtype = int(counts.max()), array_type(first)
    bin_, sample = (i.reshape(-1) for i in np.mgrid[:bins, :most].astype(np.float64))
    share = (bin_ + (sample + 0.5) / counts.reshape(-1, 1)) / bins  # [regions or 1, samples]
    position = first + size * b.const(share.astype(dtype), "share")
    inside = ~(position < -1) & ~(position > extent)
    if (sample >= counts.reshape(-1, 1)).any():
        inside = inside & b.const(sample < counts.reshape(-1, 1))
    position = b.Min(b.Max(position, 0), extent - 1)
    low = b.Floor(position)
    exists = b.Cast(inside, to=int(position.dtype or FLOAT))
    line = b.const(np.arange(extent, dtype=dtype), "pixels")
    found = []
    for pixel, weight in ((low, b.like(low, 1) - (position - low)), (low + 1, position - low)):
        hit = b.Equal(pixel[:, :, None], line)
        chosen = b.Cast(hit, to=int(position.dtype or FLOAT))
        found.append(chosen * (weight * exists)[:, :, None])
    return found[0], found[1]


def of_regions(b: Builder, x: Value, index: Value) -> Value:
    """Return the image of each region [regions, C, H, W]; a single image is broadcast."""
    shape = shape_of(x)
    return x if shape is not None and shape[0] == 1 else b.Gather(x, index, axis=0)


def _largest(
    b: Builder, image: Value, weights: list[tuple[Value, Value]], counts: np.ndarray
) -> Value:
    parts = [
        rows[:, None] @ image @ b.Transpose(columns, perm=[0, 2, 1])[:, None]
        for rows in weights[0]
        for columns in weights[1]
    ]
    steps = [int(n) for n in counts[:, 0]]
    return b.MaxPool(b.Max(*parts), kernel_shape=steps, strides=steps)


def max_roi_pool(node: ir.Node, b: Builder) -> Value | None:
    """Return the largest pixel of each bin, reducing its rows before its columns; an empty bin is
    0.
    """
    x, rois, a = x_of(node), x_of(node, 1), attributes(node)
    shape, out = shape_of(x), shape_of(node.outputs[0])
    if shape is None or out is None or x.dtype is None or math.prod(out) == 0:
        return None
    scaled = rois[:, 1:5] * a["spatial_scale"]
    ends = b.Sign(scaled) * b.Floor(b.Abs(scaled) + 0.5)  # like round() in C
    index = b.Cast(b.Reshape(rois[:, :1], [-1]), to=INT64)
    result = of_regions(b, x, index)
    lowest = b.like(x, float(np.finfo(x.dtype.numpy()).min))
    empty = None
    for axis in (2, 3):
        first, last = (ends[:, i : i + 1] for i in (3 - axis, 5 - axis))
        begins, stops = bounds(b, first, last, out[axis], shape[axis])
        line = b.const(np.arange(shape[axis], dtype=x.dtype.numpy()), "pixels")
        along = [out[0], 1, -1, 1] if axis == 2 else [out[0], 1, 1, -1]
        bins = []
        for i in range(out[axis]):
            begin, stop = (v[:, i : i + 1] for v in (begins, stops))
            mask = b.Reshape(~(line < begin) & (line < stop), along)
            bins.append(b.ReduceMax(b.Where(mask, result, lowest), [axis]))
        result = b.Concat(*bins, axis=axis)
        none = b.Reshape(~(begins < stops), along)
        empty = none if empty is None else empty | none
    return b.Where(empty, 0, result)


def bounds(b: Builder, first: Value, last: Value, bins: int, extent: int) -> tuple[Value, Value]:
    """Return the first pixel of each bin and the pixel after its last, [regions, bins], for regions
    from pixel `first` to pixel `last` [regions, 1].
    """
    size = b.Max(last - first + 1, 1) / float(bins)
    steps = np.arange(bins, dtype=array_type(size))
    begins = b.Floor(size * b.const(steps, "steps")) + first
    stops = b.Ceil(size * b.const(steps + 1, "steps")) + first
    zero, most = b.like(size, 0), b.like(size, extent)
    clipped = [b.Min(b.Max(v, zero), most) for v in (begins, stops)]
    return clipped[0], clipped[1]


TABLE: Table = {("", "RoiAlign"): roi_align, ("", "MaxRoiPool"): max_roi_pool}
