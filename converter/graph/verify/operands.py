"""Constraints of operators on how constants and operands fit together: see node.py, which calls
these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from converter.graph.known import constant
from converter.graph.value import known_sizes, optional
from converter.graph.verify.shapes_of import (
    Dims,
    Law,
    attribute,
    broadcasts,
    differ,
    dims_of,
    in_body,
    sizes_of,
    unlike,
    window_of,
)

Array = npt.NDArray[Any]
MOST = 1 << 20  # elements of a constant that are inspected


def _numbers(node: ir.Node, index: int) -> Array | None:
    """Return a constant operand; None if it is not constant, is large, or is in a branch of an If
    that may never be taken.
    """
    value = optional(node, index)
    found = None if value is None or in_body(node) else constant(value)
    small = found is not None and found.dtype.kind in "biuf" and 0 < found.size <= MOST
    return found if small else None


def _count(dims: Dims | None) -> int | None:
    """Return the number of elements; None if it is unknown."""
    sizes = [d for d in dims or () if d is not None]
    return None if dims is None or len(sizes) < len(dims) else math.prod(sizes)


def _outside(found: Array, end: int, what: str) -> str | None:
    wrong = found[(found < 0) | (found >= end)]
    return f"{what} must be 0 to {end - 1}, got {wrong[0]}" if wrong.size else None


def _along(node: ir.Node) -> str | None:
    """Check CumSum: the axis must be a single one."""
    x, axis = dims_of(node, 0), _numbers(node, 1)
    if axis is None or x is None:
        return None
    return (
        None
        if axis.size == 1 and -len(x) <= axis.reshape(-1)[0] < len(x)
        else f"{axis.reshape(-1)[:8].tolist()} is not an axis of the shape {x}"
    )


def _triangle(node: ir.Node) -> str | None:
    count = _count(dims_of(node, 1))
    return f"the diagonal must be one number, got {count}" if count not in (None, 1) else None


def _axes(node: ir.Node) -> str | None:
    x = dims_of(node, 0)
    return None if x is None else different_axes(list(attribute(node, "axes", [0, 2, 3])), x)


def different_axes(axes: Sequence[int], x: Dims) -> str | None:
    """Return the reason why these are not different axes of a shape, or None."""
    fits = all(-len(x) <= a < len(x) for a in axes) and len({a % len(x) for a in axes}) == len(axes)
    return None if fits else f"axes {axes} must be different axes of the shape {x}"


def _reverse_sequence(node: ir.Node) -> str | None:
    """Check ReverseSequence: one length per batch entry, none longer than the time axis."""
    x, batch, time = (
        dims_of(node, 0),
        int(attribute(node, "batch_axis", 1)),
        int(attribute(node, "time_axis", 0)),
    )
    if {batch, time} != {0, 1}:
        return f"batch_axis={batch} and time_axis={time} must be 0 and 1"
    if x is None or len(x) < 2:
        return None if x is None else f"the shape {x} has no time axis"
    if unlike(dims_of(node, 1), [x[batch]]):
        return f"lengths of the shape {dims_of(node, 1)} do not fit a batch of {x[batch]}"
    lengths, most = _numbers(node, 1), x[time]
    return None if lengths is None or most is None else _outside(lengths, most + 1, "length")


def _resize(node: ir.Node) -> str | None:
    x, axes = dims_of(node, 0), attribute(node, "axes", None)
    scales, sizes = _numbers(node, 2), _numbers(node, 3)
    if scales is not None and not (scales > 0).all():
        return f"scales must be positive, got {scales[~(scales > 0)][0]}"
    if sizes is not None and (sizes < 0).any():
        return f"sizes must not be negative, got {sizes[sizes < 0][0]}"
    regions, wanted = (
        _count(dims_of(node, 1)),
        None if x is None else 2 * len(x if axes is None else axes),
    )
    cropping = (
        attribute(node, "coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    )
    return (
        f"roi must have {wanted} numbers, got {regions}"
        if cropping and regions and differ(regions, wanted)
        else None
    )


def _range(node: ir.Node) -> str | None:
    step = _numbers(node, 2)
    return "the step must not be 0" if step is not None and (step == 0).any() else None


def _groups(node: ir.Node) -> str | None:
    """Check GroupNormalization: groups divide the channels, with a scale and a bias per channel."""
    x, groups = dims_of(node, 0), int(attribute(node, "num_groups", 1))
    channels = x[1] if x is not None and len(x) > 1 else None
    if groups < 1 or (channels is not None and channels % groups):
        return f"{channels} channels cannot be divided into {groups} groups"
    wrong = [dims_of(node, i) for i in (1, 2) if unlike(dims_of(node, i), [channels])]
    return f"an operand of the shape {wrong[0]} does not fit {channels} channels" if wrong else None


def _columns(node: ir.Node) -> str | None:
    """Check Col2Im: [n, channels x block, block positions]."""
    x, image, block = dims_of(node, 0), _numbers(node, 1), _numbers(node, 2)
    if x is None or image is None or block is None:
        return None
    n = image.size
    strides, dilations, pads = map(np.array, window_of(node, n))
    if (
        len(x) != 3
        or block.size != n
        or (len(strides), len(dilations), len(pads)) != (n, n, 2 * n)
        or (block < 1).any()
        or (strides < 1).any()
    ):
        return (
            f"columns of the shape {x} do not fit blocks {block.tolist()} of an "
            f"image {image.tolist()}"
        )
    positions = (image + pads[:n] + pads[n:] - (block - 1) * dilations - 1) // strides + 1
    if (
        (x[1] is not None and x[1] % int(np.prod(block)))
        or (positions < 1).any()
        or differ(x[2], int(np.prod(positions)))
    ):
        return (
            f"columns of the shape {x} do not fit {positions.tolist()} positions of "
            f"blocks {block.tolist()}"
        )
    return None


def _aligned(node: ir.Node) -> str | None:
    """Check RoiAlign: boxes [n, 4] with one image index each; valid size and sampling."""
    x, boxes, image = dims_of(node, 0), dims_of(node, 1), _numbers(node, 2)
    sizes = [int(attribute(node, name, 1)) for name in ("output_height", "output_width")]
    ratio, scale = (
        int(attribute(node, "sampling_ratio", 0)),
        float(attribute(node, "spatial_scale", 1.0)),
    )
    if min(sizes) < 1 or ratio < 0 or not math.isfinite(scale):
        return (
            f"a result of {sizes[0]} x {sizes[1]} from {ratio} samples at the "
            f"scale {scale} cannot be computed"
        )
    if unlike(boxes, [None, 4]):
        return f"boxes cannot have the shape {boxes}"
    images = x[0] if x else None
    return None if image is None or images is None else _outside(image, images, "image")


def _pooled(node: ir.Node) -> str | None:
    """Check MaxRoiPool: rows of image and box."""
    rows, shape = dims_of(node, 1), list(attribute(node, "pooled_shape", [1, 1]))
    if unlike(rows, [None, 5]):
        return f"rows cannot have the shape {rows}"
    return (
        None if len(shape) == 2 and min(shape) > 0 else f"the result cannot have the shape {shape}"
    )


def _unpooled(node: ir.Node) -> str | None:
    """Check MaxUnpool: one index per element; constant indices are within the result."""
    x, place, found = dims_of(node, 0), dims_of(node, 1), _numbers(node, 1)
    if x is not None and unlike(place, x):
        return f"indices of the shape {place} do not fit data of the shape {x}"
    total = None if (sizes := sizes_of(node.outputs[0])) is None else math.prod(sizes)
    return None if found is None or total is None else _outside(found, total, "place")


def _bias(node: ir.Node) -> str | None:
    """Check Gemm: the third operand broadcasts to the product."""
    c = dims_of(node, 2)
    y = known_sizes(node.outputs[0]) or []
    if c is None or len(y) != 2 or broadcasts(c, y):
        return None
    return f"a third operand of the shape {c} does not fit the product {y}"


def _loss(node: ir.Node) -> str | None:
    """Check that there is a valid class per element, and a weight per class."""
    x, target, left_out = dims_of(node, 0), _numbers(node, 1), attribute(node, "ignore_index", None)
    classes = x[1] if x is not None and len(x) > 1 else None
    if classes is None:
        return None
    if unlike(dims_of(node, 2), [classes]):
        return f"weights of the shape {dims_of(node, 2)} do not fit {classes} classes"
    return (
        None
        if target is None
        else _outside(target if left_out is None else target[target != left_out], classes, "class")
    )


def power(node: ir.Node) -> str | None:
    """Return the reason why the exponent `p` of a norm is invalid, or None."""
    p = int(attribute(node, "p", 2))
    return None if p >= 1 else f"p must be positive, got {p}"


def _points(node: ir.Node) -> str | None:
    """Check integer products: scales and zero points are a single number, or one per row of the
    first and column of the second matrix.
    """
    first, second = (0, 3) if node.op_type == "QLinearMatMul" else (0, 1)
    a, w = dims_of(node, first), dims_of(node, second)
    rows, columns = a[-2] if a is not None and len(a) > 1 else None, w[-1] if w else None
    positions = (
        ((1, rows), (2, rows), (4, columns), (5, columns), (6, rows), (7, rows))
        if node.op_type == "QLinearMatMul"
        else ((2, rows), (3, columns))
    )
    wrong = [
        given
        for i, wanted in positions
        if (given := dims_of(node, i)) is not None
        and len(given) == 1
        and given[0] != 1
        and differ(given[0], wanted)
    ]
    return (
        (f"an operand of the shape {wrong[0]} does not fit {rows} rows and {columns} columns")
        if wrong
        else None
    )


def _zero_points(node: ir.Node) -> str | None:
    """Check ConvInteger: a single zero point of the data, and one for the weights or one per
    filter.
    """
    w, one, many = dims_of(node, 1), dims_of(node, 2), dims_of(node, 3)
    filters = w[0] if w else None
    if _count(one) not in (None, 1):
        return f"a zero point must be one number, got the shape {one}"
    return (
        f"zero points of the shape {many} do not fit {filters} filters"
        if _count(many) not in (None, 1) and unlike(many, [filters])
        else None
    )


def _padded(node: ir.Node) -> str | None:
    """Check that the elements that are repeated at an end exist."""
    x, amounts, axes = dims_of(node, 0), _numbers(node, 1), _numbers(node, 3)
    if (
        attribute(node, "mode", "constant") == "constant"
        or x is None
        or amounts is None
        or 0 not in x
        or amounts.size % 2
    ):
        return None
    positions = range(len(x)) if axes is None else axes.reshape(-1).tolist()
    empty = [
        a
        for a, by in zip(positions, amounts.reshape(2, -1).T, strict=False)
        if x[int(a)] == 0 and (by > 0).any()
    ]
    return f"an empty axis cannot be repeated (axis {empty[0]} of the shape {x})" if empty else None


def _deformed(node: ir.Node) -> str | None:
    """Check DeformConv."""
    x, w, offset, bias, mask = (dims_of(node, i) for i in range(5))
    if bias is not None and unlike(bias, [w[0] if w else None]):
        return f"the bias {bias} does not fit the weights {w}"
    groups = int(attribute(node, "group", 1)), int(attribute(node, "offset_group", 1))
    return deformed((x, w, offset, mask), *groups, *window_of(node, 2))


def deformed(
    shapes: Sequence[Dims | None],
    group: int,
    parts: int,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> str | None:
    """Return why a deformable convolution of data, weights, offsets and factors of these shapes is
    impossible, or None.

    There must be two offsets and a factor per kernel element, offset group and output position.
    """
    x, w, offset, mask = shapes
    if min(group, parts, *strides, *dilations) < 1 or (len(strides), len(dilations), len(pads)) != (
        2,
        2,
        4,
    ):
        return (
            f"{group} groups, {parts} groups of offsets, strides "
            f"{list(strides)}, dilations {list(dilations)} and pads "
            f"{list(pads)} do not fit each other"
        )
    if any(d is not None and len(d) != 4 for d in shapes):
        return f"operands of the shapes {list(shapes)} are invalid"
    if x is None or w is None or None in w or x[1] is None:
        return None
    out, inside, *kernel = (int(d or 0) for d in w)
    if out % group or x[1] != inside * group or x[1] % parts:
        return (
            f"the weights {w} in {group} groups and {parts} groups of offsets do not fit the "
            f"{x[1]} channels of the input"
        )
    sizes = zip(x[2:], kernel, strides, dilations, pads[:2], pads[2:], strict=True)
    after: Dims = [
        None if n is None else (n + p + q - (k - 1) * d - 1) // s + 1 for n, k, s, d, p, q in sizes
    ]
    for given, each in ((offset, 2), (mask, 1)):
        wanted: Dims = [x[0], each * parts * math.prod(kernel), *after]
        if unlike(given, wanted):
            return f"an operand must have the shape {wanted}, got {given}"
    return None


CHECKS: dict[str, Law] = {
    "CumSum": _along,
    "Trilu": _triangle,
    "MeanVarianceNormalization": _axes,
    "ReverseSequence": _reverse_sequence,
    "Resize": _resize,
    "Range": _range,
    "GroupNormalization": _groups,
    "Col2Im": _columns,
    "RoiAlign": _aligned,
    "MaxRoiPool": _pooled,
    "MaxUnpool": _unpooled,
    "Gemm": _bias,
    "Pad": _padded,
    "DeformConv": _deformed,
    "NegativeLogLikelihoodLoss": _loss,
    "SoftmaxCrossEntropyLoss": _loss,
    "GlobalLpPool": power,
    "QLinearMatMul": _points,
    "MatMulInteger": _points,
    "ConvInteger": _zero_points,
}
