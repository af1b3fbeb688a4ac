"""Custom operators of MediaPipe's published models.

Images are channels-last with a batch of 1, matrices [1, 4, 4], landmarks consecutive (x, y) or (x,
y, z). Source: mediapipe/util/tflite/operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.fields import CODES
from converter.formats.lite.weights import Filter
from converter.formats.tflite.rules.context import LiftContext, dims_of
from converter.formats.tflite.rules.convolution import BIAS
from converter.formats.tflite.rules.elementwise import angle
from converter.formats.tflite.rules.fields import data
from converter.formats.tflite.rules.pooling import MOST, windows
from converter.graph.activations import ACTIVATIONS
from converter.graph.sizes import demand_small
from converter.graph.value import LOWEST, Value
from converter.graph.windows import halves, same_pads
from converter.mapping.fields import Field
from converter.mapping.rules import Custom, Rule, custom, op

SAME, VALID = 1, 2  # of the structure's own enumeration


def scheme(r: LiftContext) -> int:
    """Return the padding, SAME or VALID; raise MappingError R110 for other numbers."""
    found: int = r.attr("padding", int)
    if found not in (SAME, VALID):
        raise MappingError(f"padding must be SAME (1) or VALID (2), got {found}", "R110")
    return found


def extents(r: LiftContext, x: ir.Value) -> list[int]:
    """Return height and width of an image."""
    found = [n for n in dims_of(x)[1:-1] if n is not None]
    if len(found) != 2:
        raise MappingError("the size of the image must be static", "X203")
    return found


# convolutions and pools --------------------------------------------------------------------------


class Leftover(Field):
    """The part of the last window that SAME crops, because it extends beyond the strides."""

    names = ("strides", "pads", "kernel_shape")
    keys = ("padding", "stride_w", "stride_h")

    def lift(self, r: LiftContext) -> None:
        weights = r.node.inputs[1]
        kernel = r.static(weights, "the filter")[2:] if weights is not None else ()
        strides = [r.attr(k, int) for k in ("stride_h", "stride_w")]
        totals = [0, 0]
        if len(kernel) != 2 or min(*kernel, *strides) < 1:
            raise MappingError(
                f"a filter of {kernel} with the strides {strides} is not supported", "R110"
            )
        if scheme(r) == SAME:
            found = zip(extents(r, data(r)), kernel, strides, strict=True)
            totals = [max(0, k - (n - 1) % s - 1) for n, k, s in found]
        pads = halves(totals)
        r.node.attrs |= {"strides": strides, "kernel_shape": list(kernel), "pads": pads}


def pool_sizes(r: LiftContext) -> tuple[list[int], list[int]]:
    """Return sizes and strides of the window, height first."""
    kernel, strides = ([r.attr(f"{k}_{x}", int) for x in "hw"] for k in ("filter", "stride"))
    if min(*kernel, *strides) < 1:
        raise MappingError(
            f"a window of {kernel} with the strides {strides} is not supported", "R110"
        )
    if math.prod(kernel) > MOST:
        raise MappingError(f"a window of {kernel} elements is not supported")
    return kernel, strides


def pool_with_indices(r: LiftContext) -> Sequence[ir.Value]:
    """Return the largest number of each window, and its index in the window, row by row: a float,
    and the index plus 0.1.
    """
    b, x, (kernel, strides) = r.b, data(r), pool_sizes(r)
    if scheme(r) == SAME:
        top, left, bottom, right = same_pads(extents(r, x), kernel, strides)
        x = b.Pad(x, [0, top, left, 0, 0, bottom, right, 0], LOWEST)
    rows = windows(r, x, 1, kernel[0], strides[0], 1)
    cells = [c for row in rows for c in windows(r, row, 2, kernel[1], strides[1], 1)]
    stack = b.Concat(*(b.Unsqueeze(c, [-1]) for c in cells), axis=-1)
    largest = b.ReduceMax(stack, [-1], keepdims=0)
    places = b.Cast(b.ArgMax(stack, axis=-1, keepdims=0), to=ir.DataType.FLOAT)
    name = r.attr("fused_activation_function", CODES)
    return ACTIVATIONS[name](b, largest) if name else largest, places + np.float32(0.1)


def unpooled(r: LiftContext) -> Value:
    """Write each number to its position in a window of zeros."""
    b, x, (kernel, strides) = r.b, data(r), pool_sizes(r)
    scheme(r)
    if kernel != strides:
        raise MappingError(f"windows of {kernel} with the strides {strides} are not supported")
    count = math.prod(kernel)
    places = b.Unsqueeze(b.Cast(r.input(1), to=ir.DataType.INT64), [-1])
    chosen = b.Equal(places, np.arange(count))
    spread = b.Where(chosen, b.Unsqueeze(x, [-1]), b.like(x, 0))
    cells = b.Transpose(b.Reshape(spread, [0, 0, 0, 0, *kernel]), perm=[0, 1, 4, 2, 5, 3])
    return b.Reshape(cells, b.Shape(x) * np.array([1, *kernel, 1]))


# transformations ---------------------------------------------------------------------------------


def affine(r: LiftContext, index: int) -> tuple[Value, Value]:
    """Return the factors of x and y, [2, 2], and the offsets, [2], of a 4 x 4 matrix."""
    matrix = r.b.Reshape(r.input(index), [4, 4])
    rows = matrix[:2]
    return rows[:, :2], r.b.Gather(rows, 3, axis=1)


def one_image(r: LiftContext) -> None:
    """Raise MappingError unless the data are one image, of rank 3 or 4."""
    if r.rank(data(r)) not in (3, 4):
        raise MappingError(f"data of rank {r.rank(data(r))} are not supported", "R105")
    if dims_of(data(r))[0] not in (1, None):
        raise MappingError("batches of more than 1 are not supported", "X202")


def moved_landmarks(r: LiftContext) -> Value:
    """Transform x and y of each landmark by a matrix; other coordinates are unchanged.

    Input of rank 3 has an axis for the coordinates, input of rank 4 has all landmarks on one axis.
    """
    one_image(r)
    b, x, (factors, shift) = r.b, data(r), affine(r, 1)
    whole = r.rank(x) == 3
    depth = dims_of(x)[-1] if whole else r.attr("dimensions", int)
    if depth not in (2, 3):
        raise MappingError(f"landmarks of {depth} numbers are not supported", "R110")
    if not whole:
        shift = shift * np.float32(r.attr("scale", float, 1.0))
    points = b.Reshape(x, [-1, depth])
    moved = points[:, :2] @ b.Transpose(factors, perm=[1, 0]) + shift
    rest = points[:, 2:depth]
    return b.Reshape(b.Concat(moved, rest, axis=1) if depth == 3 else moved, b.Shape(x))


def moved_image(r: LiftContext) -> Value:
    """Sample an image bilinearly at the result's coordinates transformed by a matrix; 0 outside.
    Version 2 of the operator has its coordinates at pixel centers.
    """
    one_image(r)
    b, x, (factors, shift) = r.b, data(r), affine(r, 1)
    height, width = extents(r, x)
    rows, columns = counts(r, "output_size")
    grid = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), -1).reshape(-1, 2)
    middle = np.float32(0.5 if r.layer.kind == "TransformTensorBilinear" else 0)
    places = b.const(grid.astype(np.float32) + middle) @ b.Transpose(factors, perm=[1, 0])
    places = places + shift - middle
    ends = b.const(np.array([width - 1, height - 1], np.float32))
    inside = b.Max(b.Min(places, ends), 0.0)
    outside = ~b.Equal(inside, places)
    outside = b.ReduceMax(b.Cast(outside, to=ir.DataType.INT32), [1], keepdims=1)
    low = b.Floor(inside)
    high, part = b.Min(low + np.float32(1), ends), inside - low
    flat = b.Reshape(x, [height * width, -1])

    def pixels(x_of: Value, y_of: Value) -> Value:
        column, row = (b.Gather(v, i, axis=1) for i, v in enumerate((x_of, y_of)))
        index = b.Cast(row * np.float32(width) + column, to=ir.DataType.INT64)
        return b.Gather(flat, index, axis=0)

    right, lower = (part[:, i : i + 1] for i in (0, 1))
    upper_row, lower_row = (
        pixels(low, v) * (np.float32(1) - right) + pixels(high, v) * right for v in (low, high)
    )
    y = upper_row * (np.float32(1) - lower) + lower_row * lower
    y = b.Where(outside > np.int32(0), 0.0, y)
    return b.Reshape(y, [1, rows, columns, -1])


class RotatedBox:
    """The rotated box around landmarks: `turn` rotates it upright, `size` and `middle` are those of
    the upright box, each [1, 2].
    """

    def __init__(self, r: LiftContext, points: Value, turn: Value, subset: str) -> None:
        b, self.r = r.b, r
        places = r.attr(subset, list)
        if not places:
            raise MappingError(f"{subset} has no landmarks", "R110")
        chosen = b.Gather(points, np.array(places, np.int64), axis=0)
        upright = chosen @ b.Transpose(self.rotation(turn), perm=[1, 0])
        high, low = (f(upright, [0], keepdims=1) for f in (b.ReduceMax, b.ReduceMin))
        self.size, middle = high - low, (high + low) * np.float32(0.5)
        self.back = self.rotation(-turn)
        self.middle = middle @ b.Transpose(self.back, perm=[1, 0])

    def rotation(self, turn: Value) -> Value:
        """Return the rotation matrix [2, 2] of an angle without axes."""
        b = self.r.b
        cos, sin = b.Cos(turn), b.Sin(turn)
        parts = [b.Reshape(v, [1]) for v in (cos, -sin, sin, cos)]
        return b.Reshape(b.Concat(*parts, axis=0), [2, 2])


def counts(r: LiftContext, key: str) -> list[int]:
    """Return two sizes of at least two elements each."""
    found = [int(n) for n in r.attr(key, list)]
    if len(found) != 2 or min(found) < 2:
        raise MappingError(f"{key}={found}", "R110")
    demand_small(*found)
    return found


def point(r: LiftContext, points: Value, key: str) -> tuple[Value, Value]:
    """Return x and y of the point at the index that an attribute names."""
    found = r.b.Gather(points, np.int64(r.attr(key, int)), axis=0)
    return r.b.Gather(found, 0, axis=0), r.b.Gather(found, 1, axis=0)


def matrix_of(r: LiftContext, factors: Value, shift: Value) -> Value:
    """Return a matrix [1, 4, 4] of factors [2, 2] and offsets [1, 2]."""
    b = r.b
    nothing = b.const(np.zeros((2, 1), np.float32))
    rows = b.Concat(factors, nothing, b.Transpose(shift, perm=[1, 0]), axis=1)
    ends = b.const(np.array([[0, 0, 1, 0], [0, 0, 0, 1]], np.float32))
    return b.Unsqueeze(b.Concat(rows, ends, axis=0), [0])


def pair_of(r: LiftContext, first: float, second: float) -> Value:
    """Return two numbers as a constant [1, 2]."""
    return r.b.const(np.array([[first, second]], np.float32))


def crop_matrix(r: LiftContext) -> Value:
    """Return the matrix from coordinates in a crop to those in the image, of landmarks (x, y, z):
    the crop is the box around some of them, rotated by the angle of the line between two.
    """
    one_image(r)
    b = r.b
    points = b.Reshape(data(r), [-1, 3])[:, :2]
    ends = (point(r, points, f"{side}_rotation_idx") for side in ("left", "right"))
    (left_x, left_y), (right_x, right_y) = ends
    across, up = right_x - left_x, right_y - left_y
    if r.rank(data(r)) == 4:
        return _relative(r, RotatedBox(r, points, -b.Atan(up / across), "subset"))
    wanted = np.float32(r.attr("target_rotation_radians", float))
    crop = RotatedBox(r, points, wanted - b.Where(*angle(b, up, across)), "subset_idxs")
    size = (r.attr("output_width", int), r.attr("output_height", int))
    if min(size) < 1:
        raise MappingError(f"an image of {size} pixels is not supported", "R110")
    scale = [r.attr(k, float) / n for k, n in zip(("scale_x", "scale_y"), size, strict=True)]
    factors = crop.back * (crop.size * pair_of(r, scale[0], scale[1]))
    corner = pair_of(r, -size[0] / 2, -size[1] / 2)
    return matrix_of(r, factors, corner @ b.Transpose(factors, perm=[1, 0]) + crop.middle)


def _relative(r: LiftContext, crop: RotatedBox) -> Value:
    """Compute the first version, with coordinates between -1 and 1."""
    if r.attr("dimensions", int) != 3:
        raise MappingError("landmarks must have 3 numbers", "R110")
    b, span = r.b, np.float32(r.attr("landmarks_range", int))
    if span == 0:
        raise MappingError("landmarks_range=0 is not supported", "R110")
    into, out = (counts(r, k) for k in ("input_hw", "output_hw"))
    half = pair_of(r, (into[1] - 1) / 2, (into[0] - 1) / 2)
    box = crop.size * np.float32(r.attr("bbox_size_multiplier", float)) / span
    transposed = b.Transpose(half, perm=[1, 0]) * (crop.back * box)
    middle = half * (crop.middle / span * np.float32(2) - np.float32(1)) + half
    corner = pair_of(r, -1, -1) @ b.Transpose(transposed, perm=[1, 0])
    return matrix_of(
        r, transposed * pair_of(r, 2 / (out[1] - 1), 2 / (out[0] - 1)), corner + middle
    )


RULES: list[Rule | Custom] = [
    op(
        "ConvTranspose",
        "Convolution2DTransposeBias",
        Filter((1, 2, 3, 0), 1, 1),
        BIAS,
        Leftover(),
        lift_only=True,
    ),
    custom("", "MaxPoolingWithArgmax2D", pool_with_indices),
    custom("", "MaxUnpooling2D", unpooled),
    custom("", "TransformLandmarks", moved_landmarks),
    custom("", "TransformTensor TransformTensorBilinear", moved_image),
    custom("", "Landmarks2TransformMatrix", crop_matrix),
]
