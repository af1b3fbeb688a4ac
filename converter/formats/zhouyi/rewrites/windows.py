"""Windows over one axis as windows over two, explicit padding, and products that the format has
only for other ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.rewrites.operands import (
    Geometry,
    attributes,
    geometry,
    padded,
    static,
)
from converter.formats.zhouyi.rewrites.patches import (
    best_places,
    column,
    computed_kernel,
    computed_weights,
    group_of,
    transposed_begin,
    whole_size,
)
from converter.formats.zhouyi.types import numpy_type
from converter.graph.build import Builder
from converter.graph.infer import constant
from converter.graph.value import Value, operand, optional, with_operators
from converter.passes.images import window_over_images


def conv(node: ir.Node, b: Builder) -> ir.Value | None:
    """A layer has constant weights and biases over two or three axes."""
    if len(static(operand(node))) == 3:
        return window_over_images(node, b)
    bias = optional(node, 2)
    if bias is not None and constant(bias) is None and constant(operand(node, 1)) is not None:
        return _bias_behind(node, b, bias)
    return computed_weights(node, b) if constant(operand(node, 1)) is None else None


def _bias_behind(node: ir.Node, b: Builder, bias: Value) -> ir.Value:
    y = b.op(node.op_type, operand(node), operand(node, 1), **attributes(node))
    return with_operators(y) + column(b, bias, static(node.outputs[0]))


def conv_transpose(node: ir.Node, b: Builder) -> ir.Value | None:
    """Output padding and a given output shape are less padding, and zeros behind where the padding
    does not suffice.
    """
    x, w, bias = operand(node), operand(node, 1), optional(node, 2)
    if constant(w) is None:
        return computed_kernel(node, b)
    if len(static(x)) == 3:
        return window_over_images(node, b)
    if bias is not None and constant(bias) is None:
        return _bias_behind(node, b, bias)
    g = geometry(node)
    begin = transposed_begin(node, g)
    if min(begin) < 0:
        raise MappingError("negative padding has no counterpart")
    end = whole_size(g) - begin - g.out
    short, rank = np.maximum(-end, 0), len(begin)
    plain: dict[str, Any] = {"group": group_of(node), "kernel_shape": g.kernel}
    plain |= {"strides": g.strides, "dilations": g.dilations}
    plain["pads"] = [*begin, *np.maximum(end, 0)]
    y: Value = b.ConvTranspose(x, w, None if short.any() else bias, **plain)
    if not short.any():
        return y
    y = b.Pad(y, [0] * (rank + 4) + short.tolist())
    return y if bias is None else y + column(b, bias, static(node.outputs[0]))


def pool(node: ir.Node, b: Builder) -> ir.Value | tuple[ir.Value, ...] | None:
    """Rounding up is more padding behind, where the common decomposition pads apart. Where an
    average counts its padding, the data are padded first.
    """
    x, a = operand(node), attributes(node)
    shape = static(x)
    if len(node.outputs) != 1:
        return best_places(node, b)
    if len(shape) == 3:
        return window_over_images(node, b)
    g = geometry(node)
    last = (g.out - 1) * g.strides
    if (last >= g.data + g.begin).any():
        raise MappingError("a window that starts in the padding behind has no counterpart")
    if not a.get("ceil_mode", 0):
        return _larger(node, b, g) if node.op_type == "LpPool" else None
    over = np.maximum(0, last + g.reach + 1 - g.data - g.begin - g.end)
    kept = {k: v for k, v in a.items() if k not in ("ceil_mode", "pads")}
    begin, end = g.begin, g.end
    if node.op_type == "AveragePool" and a.get("count_include_pad", 0) and over.any():
        x = padded(b, x, begin, end)
        begin, end = 0 * begin, 0 * end
    if over.any():
        kept.pop("count_include_pad", None)
    return b.op(node.op_type, x, **kept, pads=[*begin, *end + over])


def _larger(node: ir.Node, b: Builder, g: Geometry) -> ir.Value | None:
    """Other powers than 1 and 2, and other ranks, from an average of powers."""
    x, a = operand(node), attributes(node)
    p = float(a["p"])
    if len(g.kernel) == 2 and p in (1, 2):
        return None
    kept = {k: v for k, v in a.items() if k in ("kernel_shape", "strides", "pads", "dilations")}
    mean: Value = b.AveragePool(b.Abs(x) ** p, **kept, count_include_pad=1)
    return (mean * float(np.prod(g.kernel))) ** (1.0 / p)


def computed_scale(node: ir.Node, b: Builder) -> ir.Value | None:
    """Scale and shift that are computed stand behind the layer, which the common decomposition does
    not use at all.
    """
    x, a = operand(node), attributes(node)
    shape = static(x)
    ones = np.ones(shape[1], numpy_type(x))
    plain: Value = b.operator(node.op_type)(x, b.const(ones), b.const(np.zeros_like(ones)), **a)
    scale, shift = (column(b, operand(node, i), shape) for i in (1, 2))
    return plain * scale + shift


def mat_mul(node: ir.Node, b: Builder) -> ir.Value | None:
    """Equally many axes, equal batches: leading ones by Reshape, broadcast by Tile; fewer layers
    than the common decomposition makes.
    """
    x, y = operand(node), operand(node, 1)
    sx, sy = static(x), static(y)
    if len(sx) == len(sy) and sx[:-2] == sy[:-2] and len(sx) >= 2:
        return None
    sx, sy = ([1, *sx] if len(sx) == 1 else sx), ([*sy, 1] if len(sy) == 1 else sy)
    rank = max(len(sx), len(sy))
    sx, sy = [1] * (rank - len(sx)) + sx, [1] * (rank - len(sy)) + sy
    x, y = (v if static(v) == s else b.Reshape(v, s) for v, s in ((x, sx), (y, sy)))
    batch = [max(m, n) if m and n else 0 for m, n in zip(sx[:-2], sy[:-2], strict=True)]
    x, y = (
        v
        if s[:-2] == batch
        else b.Tile(v, [m // n if n else 1 for m, n in zip(batch, s[:-2], strict=True)] + [1, 1])
        for v, s in ((x, sx), (y, sy))
    )
    z = x @ y
    return z if static(z) == static(node.outputs[0]) else b.Reshape(z, static(node.outputs[0]))
