"""Ranks that NNAPI does not have: one spatial dimension becomes two, more than four dimensions are merged, loops of known length are unrolled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.nnapi.legalise_integers import product
from converter.graph.build import Builder, attrs_of, same_attrs
from converter.graph.infer import constant, known, shape_of
from converter.graph.walk import subgraphs
from converter.passes.constants import plain_weights
from converter.passes.fewer_axes import reshaped
from converter.passes.fold import fold
from converter.passes.legalise import Rewrite
from converter.passes.ranks import lower_ranks
from converter.passes.unroll import LARGEST, unroll

MOST = 4


_MOVING = frozenset({"DequantizeLinear", "QuantizeLinear", "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity"})
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


def _plain(weight: ir.Value) -> bool:
    """Whether a computed constant is stored as its numbers: quantised weights that are only moved may stay quantised, but for recurrent layers."""
    producer = weight.producer()
    return (producer is not None and producer.op_type not in _MOVING) or any(user.op_type in _RECURRENT for user, _ in weight.uses())


def _countable(node: ir.Node) -> bool:
    """Whether a loop has a known number of turns that all fit, or a choice a known condition."""
    if node.op_type == "If":
        return known(node.inputs[0]) is not None
    trips = known(node.inputs[0]) if node.op_type == "Loop" else None
    return trips is not None and 0 < int(trips.reshape(-1)[0]) <= LARGEST // max(1, len(next(subgraphs(node))))


def prepare(model: ir.Model) -> None:
    """What is done once, whatever the level: loops and choices written out, high ranks lowered."""
    unroll(model, _countable, LARGEST)
    fold(model)
    plain_weights(model, _plain)
    lower_ranks(model, MOST)


def two_spatial(node: ir.Node, b: Builder) -> ir.Value | None:
    """A window over one spatial dimension works on images of height 1."""
    x, target = node.inputs[0], shape_of(node.outputs[0])
    shape = None if x is None else shape_of(x)
    if x is None or shape is None or len(shape) != 3 or target is None or (len(node.outputs) > 1 and node.outputs[1].uses()):
        return None
    attributes: dict[str, Any] = {k: list(v) if isinstance(v, list | tuple) else v for k, v in attrs_of(node).items()}
    for name, one in (("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("output_padding", 0)):
        if name in attributes:
            attributes[name] = [one, *attributes[name]]
    if "pads" in attributes:
        before, after = attributes["pads"]
        attributes["pads"] = [0, before, 0, after]
    if "output_shape" in attributes:
        attributes["output_shape"] = [1, *attributes["output_shape"]]
    image = b.op("Reshape", x, [shape[0], shape[1], 1, shape[2]])
    rest = [*node.inputs[1:]]
    if node.op_type in ("Conv", "ConvTranspose") and rest[0] is not None:
        rest[0] = with_height(b, rest[0])
    y = b.op(node.op_type, image, *rest, **attributes)
    return b.op("Reshape", y, list(target))


def with_height(b: Builder, w: ir.Value) -> ir.Value:
    array = constant(w)
    return b.const(array[:, :, None, :], str(w.name)) if array is not None else b.op("Unsqueeze", w, [2])


def resize(node: ir.Node, b: Builder) -> ir.Value | None:
    """One spatial dimension becomes two."""
    x, target = node.inputs[0], shape_of(node.outputs[0])
    shape = None if x is None else shape_of(x)
    a = attrs_of(node)
    if x is None or shape is None or target is None or len(shape) != 3 or a.get("axes") or a.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    scales = node.inputs[2] if len(node.inputs) > 2 and node.inputs[2] is not None and shape_of(node.inputs[2]) != (0,) else None
    factors = None if scales is None else known(scales)
    if scales is not None and factors is None:
        return None
    image = b.op("Reshape", x, [shape[0], shape[1], 1, shape[2]])
    if factors is not None:
        y = b.op("Resize", image, None, np.array([*factors[:2], 1, factors[2]], np.float32), **same_attrs(node))
    else:
        y = b.op("Resize", image, None, None, [target[0], target[1], 1, target[2]], **same_attrs(node))
    return b.op("Reshape", y, list(target))


def matmul(node: ir.Node, b: Builder) -> ir.Value | None:
    """Vectors become matrices, operands get the same rank; products of whole numbers are written out."""
    a, w = node.inputs
    shapes = [None if v is None else shape_of(v) for v in (a, w)]
    target = shape_of(node.outputs[0])
    if a is None or w is None or shapes[0] is None or shapes[1] is None or target is None:
        return None
    left = (1, *shapes[0]) if len(shapes[0]) == 1 else shapes[0]
    right = (*shapes[1], 1) if len(shapes[1]) == 1 else shapes[1]
    rank = max(len(left), len(right))
    if len(right) > 2:
        left, right = (1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right
    if (left, right) == (shapes[0], shapes[1]):
        return product(node, b)
    return b.op("Reshape", b.op("MatMul", reshaped(b, a, left), reshaped(b, w, right)), list(target))


def dilated_groups(node: ir.Node, b: Builder) -> ir.Value | None:
    """Dilations that an operation does not take, GROUPED_CONV_2D's and those of level 1 and 2, are zeros in the filter."""
    w, a = constant(node.inputs[1]), attrs_of(node)
    dilations = [int(d) for d in a.get("dilations", ())]
    if w is None or w.ndim != 4 or int(a.get("group", 1)) == 1 or all(d == 1 for d in dilations):
        return two_spatial(node, b)
    attributes = {k: v for k, v in a.items() if k not in ("dilations", "kernel_shape")}
    full = spread(w, dilations)
    return b.op("Conv", node.inputs[0], full, *node.inputs[2:], kernel_shape=list(full.shape[2:]), **attributes)


def spread(w: np.ndarray[Any, Any], dilations: Sequence[int]) -> np.ndarray[Any, Any]:
    """A filter [.., .., kh, kw] with dilations - 1 zeros between its elements."""
    (kh, kw), (dh, dw) = w.shape[2:], dilations
    full = np.zeros((*w.shape[:2], (kh - 1) * dh + 1, (kw - 1) * dw + 1), w.dtype)
    full[:, :, ::dh, ::dw] = w
    return full


def grouped_transpose(node: ir.Node, b: Builder) -> ir.Value | None:
    """Groups and dilations of a transposed convolution are zeros in its filter."""
    w = constant(node.inputs[1])
    a = attrs_of(node)
    group, dilations = int(a.get("group", 1)), [int(d) for d in a.get("dilations", ())]
    if w is None or w.ndim != 4 or (group == 1 and all(d == 1 for d in dilations)):
        return two_spatial(node, b)
    depth, per_group, kh, kw = w.shape
    dense = np.zeros((depth, group * per_group, kh, kw), w.dtype)
    for g in range(group):
        rows = slice(g * depth // group, (g + 1) * depth // group)
        dense[rows, g * per_group : (g + 1) * per_group] = w[rows]
    full = spread(dense, dilations or (1, 1))
    attributes = {k: v for k, v in a.items() if k not in ("group", "dilations", "kernel_shape")}
    return b.op("ConvTranspose", node.inputs[0], full, *node.inputs[2:], kernel_shape=list(full.shape[2:]), **attributes)


SHAPES: dict[tuple[str, str], Rewrite] = {
    ("", "Conv"): dilated_groups,
    **{("", op): two_spatial for op in ("MaxPool", "AveragePool", "InstanceNormalization", "LRN", "GlobalAveragePool", "GlobalMaxPool")},
    ("", "Resize"): resize, ("", "MatMul"): matmul, ("", "ConvTranspose"): grouped_transpose,
}  # fmt: skip
