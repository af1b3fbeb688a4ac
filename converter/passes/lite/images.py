"""Windows and images: one spatial dimension becomes two; groups and dilations of filters become
zeros in the filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attributes, attrs_of, same_attrs
from converter.graph.infer import constant, known, shape_of
from converter.graph.value import Value, optional
from converter.passes.images import window_over_images, with_height


def two_spatial(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite a window over one spatial dimension to work on images of height 1.

    The operator is preserved, whereas the common decompositions would expand it to sums and
    products.
    """
    if len(node.outputs) > 1 and node.outputs[1].uses():
        return None
    return window_over_images(node, b)


def resize(node: ir.Node, b: Builder) -> Value | None:
    """Insert a height dimension, whereas the common decomposition would multiply by a matrix of the
    old times the new size.
    """
    a = attrs_of(node)
    if a.get("axes") or a.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    given, sizes = optional(node, 2), optional(node, 3)
    by_scales = given is not None and shape_of(given) != (0,)
    factors, target = known(given) if by_scales else None, shape_of(node.outputs[0])
    if (by_scales and factors is None) or (target is None and not by_scales and sizes is None):
        return None
    found = with_height(node, b)
    if found is None:
        return None
    image, result = found
    if factors is not None:
        operands: list[Any] = [None, np.array([*factors[:2], 1, factors[2]], np.float32)]
    elif target is not None:
        operands = [None, None, [*target[:2], 1, target[2]]]
    else:
        assert sizes is not None
        operands = [None, None, b.Concat(sizes[:2], [1], sizes[2:], axis=0)]
    return result(b.Resize(image, *operands, **same_attrs(node)))


def dilated_groups(node: ir.Node, b: Builder) -> ir.Value | None:
    """Expand unsupported dilations, of GROUPED_CONV_2D or before feature level 3, to zeros in the
    filter.
    """
    w, a = constant(node.inputs[1]), attributes(node)
    dilations = [int(d) for d in a.get("dilations", ())]
    if w is None or w.ndim != 4 or a["group"] == 1 or all(d == 1 for d in dilations):
        return two_spatial(node, b)
    return _with_filter(node, b, spread(w, dilations), "dilations")


def grouped_transpose(node: ir.Node, b: Builder) -> ir.Value | None:
    """Expand groups and dilations of a transposed convolution to zeros in its filter."""
    w, a = constant(node.inputs[1]), attributes(node)
    group, dilations = a["group"], [int(d) for d in a.get("dilations", ())]
    if w is None or w.ndim != 4 or (group == 1 and all(d == 1 for d in dilations)):
        return two_spatial(node, b)
    depth, per_group, kh, kw = w.shape
    dense = np.zeros((depth, group * per_group, kh, kw), w.dtype)
    for g in range(group):
        rows = slice(g * depth // group, (g + 1) * depth // group)
        dense[rows, g * per_group : (g + 1) * per_group] = w[rows]
    return _with_filter(node, b, spread(dense, dilations or (1, 1)), "dilations", "group")


def _with_filter(node: ir.Node, b: Builder, full: np.ndarray[Any, Any], *said: str) -> ir.Value:
    """Return the convolution with another filter and changed attributes."""
    kept = same_attrs(node, *said, "kernel_shape")
    rest, size = node.inputs[2:], list(full.shape[2:])
    return b.op(node.op_type, node.inputs[0], full, *rest, kernel_shape=size, **kept)


def spread(w: np.ndarray[Any, Any], dilations: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return the filter [.., .., kh, kw] with dilations - 1 zeros between its elements."""
    (kh, kw), (dh, dw) = w.shape[2:], dilations
    full = np.zeros((*w.shape[:2], (kh - 1) * dh + 1, (kw - 1) * dw + 1), w.dtype)
    full[:, :, ::dh, ::dw] = w
    return full
