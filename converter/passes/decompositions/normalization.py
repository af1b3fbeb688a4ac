"""Normalizations as means, squares and roots.

Statistics are computed in float if the input is narrower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, Value, attributes, attrs_of
from converter.graph.infer import rank_of, shape_of
from converter.graph.value import optional
from converter.graph.verify.shapes_of import window_of
from converter.graph.windows import rounded_up
from converter.passes.decompositions.activations import back, scaled, wide, x_of
from converter.passes.decompositions.table import Table


def _centered(
    b: Builder, x: Value, axes: Sequence[int], epsilon: float
) -> tuple[Value, Value, Value]:
    """(x - mean) / sqrt(variance + epsilon), the mean, and the factor"""
    mean = b.ReduceMean(x, list(axes))
    distance = x - mean
    variance = b.ReduceMean(distance * distance, list(axes))
    factor = b.Reciprocal(b.Sqrt(variance + epsilon))
    return distance * factor, mean, factor


def _per_channel(b: Builder, value: ir.Value | None, rank: int) -> Any:
    return None if value is None else b.Reshape(value, [1, -1, *[1] * (rank - 2)])


def _affine(b: Builder, y: Value, scale: Any, bias: Any) -> Value:
    y = y if scale is None else y * scale
    return y if bias is None else y + bias


def instance_normalization(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite InstanceNormalization of at least three axes as means and a scale by channel."""
    x, rank = x_of(node), rank_of(x_of(node))
    if rank is None or rank < 3:
        return None
    y, _, _ = _centered(b, wide(b, x), range(2, rank), attributes(node)["epsilon"])
    return _affine(
        b,
        back(b, y, x),
        _per_channel(b, node.inputs[1], rank),
        _per_channel(b, node.inputs[2], rank),
    )


def layer_normalization(node: ir.Node, b: Builder) -> Sequence[Value] | None:
    """Rewrite LayerNormalization, all three results, as means; not where its precision is not
    float32.
    """
    x, rank, attrs = x_of(node), rank_of(x_of(node)), attributes(node)
    if rank is None or attrs["stash_type"] != 1 or x.dtype == ir.DataType.DOUBLE:
        return None
    axis = attrs["axis"] % rank
    y, mean, factor = _centered(b, wide(b, x), range(axis, rank), attrs["epsilon"])
    return [
        _affine(b, back(b, y, x), node.inputs[1], optional(node, 2)),
        mean,
        factor,
    ]


def group_normalization(node: ir.Node, b: Builder) -> Value | None:
    """Merge the channels of each group and all spatial axes into one axis."""
    x, rank, attrs = x_of(node), rank_of(x_of(node)), attributes(node)
    if rank is None:
        return None
    grouped = b.Reshape(wide(b, x), [0, attrs["num_groups"], -1])
    y, _, _ = _centered(b, grouped, [2], attrs["epsilon"])
    y = back(b, b.Reshape(y, b.Shape(x)), x)
    return _affine(
        b, y, _per_channel(b, node.inputs[1], rank), _per_channel(b, node.inputs[2], rank)
    )


def mean_variance_normalization(node: ir.Node, b: Builder) -> Value:
    """Add 1e-9 to the deviation, as the operator's own definition does."""
    x, axes = x_of(node), attributes(node)["axes"]
    distance = x - b.ReduceMean(x, axes)
    deviation = b.Sqrt(b.ReduceMean(distance * distance, axes))
    return distance / (deviation + 1e-9)


def lp_normalization(node: ir.Node, b: Builder) -> Value:
    """Divide by the norm; a norm of zero results in zeros."""
    x, attrs = x_of(node), attributes(node)
    norm = b.operator(f"ReduceL{attrs['p']}")(x, [attrs["axis"]])
    least = float(np.finfo(np.float16 if x.dtype == ir.DataType.FLOAT16 else np.float32).tiny)
    return x / b.Max(norm, least)


def global_lp_pool(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite GlobalLpPool as a reduction over the spatial axes."""
    rank, p = rank_of(x_of(node)), int(attributes(node)["p"])
    if rank is None:
        return None
    axes = list(range(2, rank))
    if p in (1, 2):
        return b.operator(f"ReduceL{p}")(x_of(node), axes)
    total = b.ReduceSum(b.Abs(x_of(node)) ** p, axes)
    return total ** (1 / p)


def lp_pool(node: ir.Node, b: Builder) -> Value | None:
    """Compute the mean of |x|^p over the window, times its size, to the power of 1/p.

    Sizes that are rounded up are padded at the end, which adds nothing to the sum.
    """
    attrs = attrs_of(node)
    p, x = int(attrs.pop("p", 2)), x_of(node)
    if attrs.pop("ceil_mode", 0):
        sizes, counts = shape_of(x), shape_of(node.outputs[0])
        if sizes is None or counts is None or attrs.get("auto_pad", "NOTSET") != "NOTSET":
            return None
        strides, dilations, pads = window_of(node, len(sizes) - 2)
        window = attrs["kernel_shape"], strides, dilations
        attrs["pads"] = rounded_up(pads, sizes[2:], *window, counts[2:])
    size = b.Abs(x)
    powers = x * x if p == 2 else size if p == 1 else size**p
    mean = b.AveragePool(powers, **attrs, count_include_pad=1)
    total = scaled(b, mean, float(np.prod(attrs["kernel_shape"])))
    return total if p == 1 else b.Sqrt(total) if p == 2 else total ** (1 / p)


def local_response(node: ir.Node, b: Builder) -> Value:
    """x / (bias + alpha * mean of squares over a window of channels)^beta, with a pool that
    includes its padding
    """
    attrs = attributes(node)
    x, size = x_of(node), attrs["size"]
    before = (size - 1) // 2
    flat = b.Reshape(x * x, b.Concat([0, 1], b.Shape(x)[1:2], [-1], axis=0))
    padded = b.Pad(flat, [0, 0, before, 0, 0, 0, size - 1 - before, 0], 0)
    mean = b.Reshape(b.AveragePool(padded, kernel_shape=[size, 1]), b.Shape(x))
    total = mean * float(attrs["alpha"]) + float(attrs["bias"])
    return x / total ** float(attrs["beta"])


TABLE: Table = {
    ("", "InstanceNormalization"): instance_normalization,
    ("", "LayerNormalization"): layer_normalization,
    ("", "GroupNormalization"): group_normalization,
    ("", "MeanVarianceNormalization"): mean_variance_normalization,
    ("", "LpNormalization"): lp_normalization,
    ("", "GlobalLpPool"): global_lp_pool,
    ("", "LpPool"): lp_pool,
    ("", "LRN"): local_response,
}
