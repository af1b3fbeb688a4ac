"""Resize as a linear, separable operator: a matrix product along each axis that changes; with
dynamic sizes the coordinates are computed.

The weights follow the formulas of the ONNX operator Resize (coordinate_transformation_mode,
nearest_mode, cubic_coeff_a, antialias).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attributes
from converter.graph.infer import Array, constant, known, rank_of, shape_of
from converter.graph.interpolation import ROUND, aspect_factor, coordinates, cubic
from converter.graph.sizes import arange
from converter.graph.symbolic import dimensions, sizes_of
from converter.graph.value import FLOAT, INT64, array_type, optional
from converter.passes.decompositions.activations import x_of
from converter.passes.decompositions.table import Table


def resize_by_axes(node: ir.Node, b: Builder) -> Value | None:
    """Resize one axis after the other; axes whose elements are only selected use a Gather.

    Return None if sizes or factors are unknown.
    """
    x, matrices = x_of(node), axis_matrices(node)
    if (
        matrices is None
        or x.dtype is None
        or not (x.dtype.is_floating_point() or all(_picks(m) for m in matrices.values()))
    ):
        return None
    for axis, matrix in matrices.items():
        x = along_axis(b, x, matrix, axis, len(shape_of(x) or ()))
    return b.Identity(x) if x is x_of(node) else x


def resized(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite Resize as Gather and MatMul for each axis; images of dynamic sizes at computed
    coordinates.
    """
    found = resize_by_axes(node, b)
    return resize_computed(node, b) if found is None else found


def axis_matrices(node: ir.Node) -> dict[int, Array] | None:
    """Return the weights [result, size] of each axis that changes; None if they depend on unknown
    values, or the result is not linear.
    """
    size, result, attrs = shape_of(x_of(node)), shape_of(node.outputs[0]), attributes(node)
    operands = [optional(node, i) for i in range(4)]
    if (
        size is None
        or result is None
        or any(v is not None and constant(v) is None and shape_of(v) != (0,) for v in operands[1:3])
    ):
        return None
    roi, factors = (constant(v) for v in operands[1:3])
    crop = attrs["coordinate_transformation_mode"] == "tf_crop_and_resize"
    if (
        0 in size
        or 0 in result
        or (crop and (attrs["extrapolation_value"] or roi is None or not roi.size))
    ):
        return None
    axes = [int(a) % len(size) for a in attrs.get("axes") or range(len(size))]
    policy, given, kept = attrs["keep_aspect_ratio_policy"], known(operands[3]), None
    if policy != "stretch" and (factors is None or not factors.size):
        if given is None:
            return None
        kept = aspect_factor(policy, [size[a] for a in axes], given.reshape(-1).tolist())
    found = {}
    for k, axis in enumerate(axes):
        factor = float(result[axis]) / float(size[axis]) if kept is None else kept
        if factors is not None and factors.size:
            factor = float(factors.reshape(-1)[k])
        part = (
            (float(roi.reshape(-1)[k]), float(roi.reshape(-1)[k + len(axes)]))
            if crop and roi is not None
            else None
        )
        if part is None and factor == 1 and size[axis] == result[axis]:
            continue
        found[axis] = weights(attrs, size[axis], result[axis], factor, part)
    return found


def resize_computed(node: ir.Node, b: Builder) -> Value | None:
    """Resize images of dynamic sizes, one axis after the other, at coordinates that are computed
    when the network runs: linear, or to the nearest element.
    """
    x, attrs, axes = x_of(node), attributes(node), _changed_axes(node)
    plain = not attrs["antialias"] and attrs["keep_aspect_ratio_policy"] == "stretch"
    rule = attrs["coordinate_transformation_mode"]
    if not axes or not plain or attrs["mode"] == "cubic" or rule == "tf_crop_and_resize":
        return None
    if attrs["mode"] == "linear" and (x.dtype is None or not x.dtype.is_floating_point()):
        return None
    shape, given = b.Cast(b.Shape(x), to=INT64), optional(node, 3)
    for position, axis, factor in axes:
        size = b.Cast(shape[axis], to=FLOAT)
        if given is not None:
            count = b.Cast(given[position], to=INT64)
            scale = b.Cast(count, to=FLOAT) / size
        else:
            scale = b.const(np.float32(factor))
            count = b.Cast(b.Floor(size * scale), to=INT64)
        at = _computed_coordinates(b, rule, size, b.Cast(count, to=FLOAT), scale)
        x = _picked(b, x, axis, at, size, attrs)
    return x


def _changed_axes(node: ir.Node) -> list[tuple[int, int, float]]:
    """Return the axes whose size changes: the index of each among the sizes or factors, the axis,
    and the factor, 1 if it follows from the sizes.
    """
    own, a = dimensions(x_of(node)), attributes(node)
    if own is None:
        return []
    axes = [int(i) % len(own) for i in a.get("axes") or range(len(own))]
    factors, wanted = constant(optional(node, 2)), sizes_of(optional(node, 3))
    if factors is not None and len(factors) == len(axes):
        pairs = enumerate(zip(axes, factors.tolist(), strict=True))
        return [(i, axis, factor) for i, (axis, factor) in pairs if factor != 1]
    if wanted is None or len(wanted) != len(axes):
        return []
    return [(i, axis, 1.0) for i, axis in enumerate(axes) if own[axis] != wanted[i]]


def _computed_coordinates(b: Builder, rule: str, size: Value, count: Value, scale: Value) -> Value:
    """Return the source coordinate of each element of an axis, as `coordinates` does."""
    i = b.Cast(b.Range(0, b.Cast(count, to=INT64), 1), to=FLOAT)
    if rule == "align_corners":
        return i * ((size - 1) / b.Max(count - 1, b.const(np.float32(1))))
    if rule == "asymmetric":
        return i / scale
    if rule == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    at = (i + 0.5) / scale - 0.5
    if rule == "half_pixel_symmetric":
        return at + size * 0.5 * (1 - count / (scale * size))
    return b.Where(count < 1.5, i, at) if rule == "pytorch_half_pixel" else at


def _picked(
    b: Builder, x: Value, axis: int, at: Value, size: Value, attrs: dict[str, Any]
) -> Value:
    """Return the elements of an axis at coordinates, which are clamped to the axis."""
    last, zero = size - 1, b.const(np.float32(0))
    if attrs["mode"] == "nearest":
        nearest = b.Min(b.Max(_ROUNDED[attrs["nearest_mode"]](b, at), zero), last)
        return b.Gather(x, b.Cast(nearest, to=INT64), axis=axis)
    inside = b.Min(b.Max(at, zero), last)
    low = b.Floor(inside)
    high = b.Min(low + 1, last)
    first, second = (b.Gather(x, b.Cast(v, to=INT64), axis=axis) for v in (low, high))
    line = [1] * (rank_of(x) or 1)
    line[axis] = -1
    share = b.Reshape(inside - low, line)
    return first + (second - first) * (share if x.dtype == FLOAT else b.Cast(share, to=x.dtype))


_ROUNDED: dict[str, Callable[[Builder, Value], Value]] = {
    "floor": lambda b, at: b.Floor(at),
    "ceil": lambda b, at: b.Ceil(at),
    "round_prefer_floor": lambda b, at: b.Ceil(at - 0.5),
    "round_prefer_ceil": lambda b, at: b.Floor(at + 0.5),
}


def weights(
    attrs: dict[str, Any],
    size: int,
    result: int,
    factor: float,
    part: tuple[float, float] | None = None,
) -> Array:
    """Return the weight of each source element in each result element: [result, size], float64."""
    mode = attrs["mode"]
    rule = attrs["coordinate_transformation_mode"]
    # in float32, so that ties are rounded as in the engines
    at = coordinates(rule, size, result, factor, part, np.float32)
    matrix = np.zeros((result, size))
    rows = arange(result)
    if mode == "nearest":
        matrix[
            rows,
            np.clip(ROUND[attrs["nearest_mode"]](at), 0, size - 1).astype(int),
        ] = 1
    else:
        inside = (
            np.clip(at, 0, size - 1)
            if mode == "linear" and not (attrs["antialias"] and factor < 1)
            else at
        )
        _taps(matrix, attrs, inside.astype(np.float64), factor)
    if part is not None:
        matrix[(at < 0) | (at > size - 1)] = 0  # outside the image: extrapolation_value, which is 0
    return matrix


def _taps(matrix: Array, attrs: dict[str, Any], at: Array, factor: float) -> None:
    """Set the weights of the neighbors of each coordinate, as many as the filter covers.

    Neighbors outside the image are replaced by the border, or excluded.
    """
    reach = 1 if attrs["mode"] == "linear" else 2
    pace = min(factor, 1.0) if attrs["antialias"] else 1.0
    shape = _hat if reach == 1 else lambda d: cubic(d, attrs["cubic_coeff_a"])
    first = int(np.floor(-reach / pace) + 1)
    offsets = arange(first, 2 - first)
    size = matrix.shape[1]
    for row, position in enumerate(at):
        base = np.floor(position)
        found = shape((offsets - (position - base)) * pace)
        index = (base + offsets).astype(int)
        if pace < 1:
            found = found / found.sum()
        if attrs["exclude_outside"] and (attrs["mode"] == "cubic" or pace < 1):
            found = np.where((index >= 0) & (index < size), found, 0)
            found = found / found.sum()
        np.add.at(matrix[row], np.clip(index, 0, size - 1), found)


def _hat(distance: Array) -> Array:
    return np.asarray(np.clip(1 - np.abs(distance), 0, 1))


def _picks(matrix: Array) -> bool:
    return bool(((matrix == 0) | (matrix == 1)).all() and (matrix.sum(1) == 1).all())


def along_axis(b: Builder, x: Value, matrix: Array, axis: int, rank: int) -> Value:
    """Apply a matrix along an axis: as a Gather if it only selects elements, else as a matrix
    product.
    """
    if _picks(matrix):
        return b.Gather(x, matrix.argmax(1).astype(np.int64), axis=axis)
    table = matrix.astype(array_type(x))
    if axis == rank - 1:
        return x @ b.const(np.ascontiguousarray(table.T))
    if axis == rank - 2:
        return b.const(table) @ x
    order = [*(i for i in range(rank) if i != axis), axis]
    y = b.Transpose(x, perm=order) @ b.const(np.ascontiguousarray(table.T))
    return b.Transpose(y, perm=[order.index(i) for i in range(rank)])


TABLE: Table = {
    ("", "Resize"): resized,
}
