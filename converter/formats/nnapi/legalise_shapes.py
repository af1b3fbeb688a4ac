"""Ranks that NNAPI does not have, and groups and dilations of filters.

One spatial dimension becomes two, more than four dimensions are merged, loops of known length are
unrolled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of, same_attrs
from converter.graph.infer import constant, known, shape_of
from converter.graph.value import Value, optional
from converter.graph.walk import subgraphs
from converter.passes.collapse_dims import collapse_dims
from converter.passes.constants import plain_weights
from converter.passes.fold import fold
from converter.passes.images import image_of, window_over_images
from converter.passes.legalise import Rewrite
from converter.passes.unroll import LARGEST, unroll

MOST = 4
_MOVING = frozenset(
    {
        "DequantizeLinear",
        "QuantizeLinear",
        "Transpose",
        "Reshape",
        "Unsqueeze",
        "Squeeze",
        "Flatten",
        "Identity",
    }
)
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


def _plain(weight: ir.Value) -> bool:
    """Whether a computed constant is stored as its numbers.

    Quantised weights that are only moved may stay quantised, but for recurrent layers.
    """
    producer = weight.producer()
    return (producer is not None and producer.op_type not in _MOVING) or any(
        user.op_type in _RECURRENT for user, _ in weight.uses()
    )


def _countable(node: ir.Node) -> bool:
    """Whether a loop has a known number of turns that all fit, or a choice a known condition."""
    if node.op_type == "If":
        return known(node.inputs[0]) is not None
    trips = known(node.inputs[0]) if node.op_type == "Loop" else None
    most = LARGEST // max(1, len(next(subgraphs(node))))
    return trips is not None and 0 < int(trips.reshape(-1)[0]) <= most


def prepare(model: ir.Model) -> None:
    """What is done once, whatever the level: loops and choices written out, high ranks lowered."""
    unroll(model, _countable, LARGEST)
    fold(model)
    plain_weights(model, _plain)
    collapse_dims(model, MOST)


def two_spatial(node: ir.Node, b: Builder) -> Value | None:
    """A window over one spatial dimension works on images of height 1.

    NNAPI's own operation stays, where the common decompositions write out sums and products.
    """
    if len(node.outputs) > 1 and node.outputs[1].uses():
        return None
    return window_over_images(node, b)


def resize(node: ir.Node, b: Builder) -> Value | None:
    """One spatial dimension becomes two, where the common decomposition multiplies by a matrix of
    old times new size.
    """
    a = attrs_of(node)
    if a.get("axes") or a.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    given = optional(node, 2)
    by_scales = given is not None and shape_of(given) != (0,)
    factors = known(given) if by_scales else None
    found = None if by_scales and factors is None else image_of(node, b)
    if found is None:
        return None
    image, target = found
    if factors is None:
        operands: list[Any] = [None, None, [*target[:2], 1, target[2]]]
    else:
        operands = [None, np.array([*factors[:2], 1, factors[2]], np.float32)]
    return b.Reshape(b.Resize(image, *operands, **same_attrs(node)), target)


def dilated_groups(node: ir.Node, b: Builder) -> ir.Value | None:
    """Dilations that an operation does not take, GROUPED_CONV_2D's and those of level 1 and 2, are
    zeros in the filter.
    """
    w, a = constant(node.inputs[1]), attrs_of(node)
    dilations = [int(d) for d in a.get("dilations", ())]
    if w is None or w.ndim != 4 or int(a.get("group", 1)) == 1 or all(d == 1 for d in dilations):
        return two_spatial(node, b)
    return _with_filter(node, b, spread(w, dilations), "dilations")


def grouped_transpose(node: ir.Node, b: Builder) -> ir.Value | None:
    """Groups and dilations of a transposed convolution are zeros in its filter."""
    w, a = constant(node.inputs[1]), attrs_of(node)
    group, dilations = int(a.get("group", 1)), [int(d) for d in a.get("dilations", ())]
    if w is None or w.ndim != 4 or (group == 1 and all(d == 1 for d in dilations)):
        return two_spatial(node, b)
    depth, per_group, kh, kw = w.shape
    dense = np.zeros((depth, group * per_group, kh, kw), w.dtype)
    for g in range(group):
        rows = slice(g * depth // group, (g + 1) * depth // group)
        dense[rows, g * per_group : (g + 1) * per_group] = w[rows]
    return _with_filter(node, b, spread(dense, dilations or (1, 1)), "dilations", "group")


def _with_filter(node: ir.Node, b: Builder, full: np.ndarray[Any, Any], *said: str) -> ir.Value:
    """The convolution with another filter, which says what these attributes said."""
    kept = {k: v for k, v in attrs_of(node).items() if k not in (*said, "kernel_shape")}
    rest, size = node.inputs[2:], list(full.shape[2:])
    return b.op(node.op_type, node.inputs[0], full, *rest, kernel_shape=size, **kept)


def spread(w: np.ndarray[Any, Any], dilations: Sequence[int]) -> np.ndarray[Any, Any]:
    """A filter [.., .., kh, kw] with dilations - 1 zeros between its elements."""
    (kh, kw), (dh, dw) = w.shape[2:], dilations
    full = np.zeros((*w.shape[:2], (kh - 1) * dh + 1, (kw - 1) * dw + 1), w.dtype)
    full[:, :, ::dh, ::dw] = w
    return full


SHAPES: dict[str, Rewrite] = {
    "Conv": dilated_groups,
    "ConvTranspose": grouped_transpose,
    "Resize": resize,
    **dict.fromkeys(
        ("MaxPool", "AveragePool", "InstanceNormalization", "LRN", "GlobalMaxPool"), two_spatial
    ),
}
