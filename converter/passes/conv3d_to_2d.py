"""Rewrite convolutions and pools over three axes for targets whose windows have two: channels and
depth are merged into one axis.

before:  Conv(x[1,3,8,16,16], w[4,3,2,3,3])
after:   Conv(x[1,24,16,16], w'[28,24,3,3]), w' zero where a channel lies outside the window
before:  AveragePool(x[1,3,8,16,16], kernel 2,3,3)
after:   over the planes of [1,24,16,16], then over the depth of [1,3,8,256]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attributes
from converter.graph.infer import Array, constant
from converter.graph.value import known_sizes, optional

LARGEST = 1 << 24  # elements of the expanded weights


def sizes_of(value: ir.Value | None) -> list[int] | None:
    """Return the sizes of five axes, of which the first may be -1 for an unknown batch; None for
    other values.
    """
    found = known_sizes(value)
    if found is None or len(found) != 5 or None in found[1:]:
        return None
    return [-1 if n is None else n for n in found]


def convolution(node: ir.Node, b: Builder, most: int) -> Sequence[ir.Value] | None:
    """Rewrite Conv and ConvTranspose: each pair of an input depth and an output depth has the
    weights of their distance in the window, or zeros.
    """
    a, weights = attributes(node), constant(node.inputs[1])
    x, y = sizes_of(node.inputs[0]), sizes_of(node.outputs[0])
    if (
        most != 4
        or weights is None
        or x is None
        or y is None
        or a["auto_pad"] != "NOTSET"
        or a.get("output_shape")
    ):
        return None
    transposed = node.op_type == "ConvTranspose"
    read, written = x[1] * x[2], y[1] * y[2]
    if read * written * math.prod(weights.shape[3:]) > LARGEST:
        return None
    stride, step, begin = (
        int((a.get(name) or [d])[0]) for name, d in (("strides", 1), ("dilations", 1), ("pads", 0))
    )
    full = _by_channels(
        weights, a["group"], transposed
    )  # [output channels, input channels, depth, height, width]
    flat = np.zeros((y[1], y[2], x[1], x[2], *full.shape[3:]), full.dtype)
    for k in range(full.shape[2]):
        for i in range(x[2] if transposed else y[2]):
            j = i * stride - begin + k * step
            if 0 <= j < (y[2] if transposed else x[2]):
                out, source = (j, i) if transposed else (i, j)
                flat[:, out, :, source] = full[:, :, k]
    flat = flat.reshape(written, read, *full.shape[3:])
    bias = optional(node, 2)
    if bias is not None:
        given = constant(bias)
        if given is None:
            return None
        bias = b.const(np.repeat(given, y[2]))
    kernel = b.const(np.ascontiguousarray(flat.swapaxes(0, 1)) if transposed else flat, "weights")
    plane = {
        **_of_plane(a),
        **(
            {"output_padding": list(a["output_padding"])[1:]}
            if transposed and a.get("output_padding")
            else {}
        ),
    }
    return [
        b.op(
            node.op_type,
            b.Reshape(node.inputs[0], [x[0], read, *x[3:]]),
            kernel,
            bias,
            **plane,
        )
    ]


def _by_channels(weights: Array, group: int, transposed: bool) -> Array:
    """Return the weights [output, input, depth, height, width] of a single group, with zeros
    between channels of different groups.
    """
    parts = np.split(weights, group)
    parts = [p.swapaxes(0, 1) for p in parts] if transposed else parts
    out, inner = parts[0].shape[:2]
    full = np.zeros((out * group, inner * group, *weights.shape[2:]), weights.dtype)
    for i, part in enumerate(parts):
        full[i * out : (i + 1) * out, i * inner : (i + 1) * inner] = part
    return full


def pool(node: ir.Node, b: Builder, most: int) -> Sequence[ir.Value] | None:
    """Rewrite a mean or maximum over planes and then over depths; each plane of a window has the
    same number of elements.
    """
    a = attributes(node)
    x = sizes_of(node.inputs[0])
    if (
        most != 4
        or x is None
        or a["auto_pad"] != "NOTSET"
        or (len(node.outputs) > 1 and node.outputs[1].uses())
    ):
        return None
    common = {k: a[k] for k in ("ceil_mode", "count_include_pad") if k in a}
    planes = b.op(
        node.op_type,
        b.Reshape(node.inputs[0], [x[0], x[1] * x[2], *x[3:]]),
        **_of_plane(a),
        **common,
    )
    size = known_sizes(planes) or [None]
    height, width = size[-2:] if len(size) == 4 else (None, None)
    if height is None or width is None:
        return None
    depths = b.Reshape(planes, [x[0], x[1], x[2], height * width])
    window: dict[str, Any] = {
        name: [int((a.get(name) or [1])[0]), 1] for name in ("kernel_shape", "strides", "dilations")
    }
    pads = list(a.get("pads") or [0] * 6)
    return [b.op(node.op_type, depths, **window, pads=[pads[0], 0, pads[3], 0], **common)]


def _of_plane(a: dict[str, Any]) -> dict[str, Any]:
    """Return kernel, strides, dilations and pads without those of the depth."""
    found = {
        name: list(a[name])[1:] for name in ("kernel_shape", "strides", "dilations") if a.get(name)
    }
    pads = list(a.get("pads") or [0] * 6)
    return {**found, "pads": [*pads[1:3], *pads[4:6]]}


VOLUMES = {
    **dict.fromkeys(("Conv", "ConvTranspose"), convolution),
    **dict.fromkeys(("AveragePool", "MaxPool"), pool),
}
