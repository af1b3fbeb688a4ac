"""Windows over one axis as windows over two, explicit padding, and products that the format has only for other ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.ops.fields import explicit_pads, kernel_of
from converter.formats.zhouyi.rewrites.patches import best_places, computed_kernel, computed_weights, filled, first_pads
from converter.formats.zhouyi.rewrites.register import attributes, operand, optional, rewrites, static
from converter.graph.build import Builder
from converter.graph.infer import constant
from converter.mapping.node import MappingError
from converter.passes.decompose import batch_normalization

SPATIAL = ("kernel_shape", "strides", "dilations", "output_padding", "output_shape")


def widen(node: ir.Node, b: Builder, weights: bool) -> ir.Value | None:
    """[N, C, L] -> [N, C, 1, L], the window 1 high."""
    x, a = operand(node), attributes(node)
    shape = static(x)
    if len(shape) != 3 or len(node.outputs) != 1:
        return None
    near = filled(node)
    kernel = kernel_of(near)
    pads = [] if a.get("output_shape") else explicit_pads(near, kernel)
    a = {k: ([0, *v] if k == "output_padding" else [1, *v]) if k in SPATIAL and v else v for k, v in a.items()}
    a.pop("auto_pad", None)
    a["kernel_shape"] = [1, *kernel]
    if pads:
        a["pads"] = [0, pads[0], 0, pads[1]]
    operands = [b.op("Reshape", x, [*shape[:2], 1, shape[2]])]
    if weights:
        w = operand(node, 1)
        operands += [b.op("Reshape", w, [*static(w)[:2], 1, static(w)[2]]) if constant(w) is None else _flat(b, w), optional(node, 2)]  # type: ignore[list-item]
    return b.op("Reshape", b.op(node.op_type, *operands, **a), static(node.outputs[0]))


def _flat(b: Builder, w: ir.Value) -> ir.Value:
    array = constant(w)
    assert array is not None
    return b.const(array[:, :, None, :], str(w.name))


@rewrites("Conv")
def conv(node: ir.Node, b: Builder) -> ir.Value | None:
    if len(static(operand(node))) == 3:
        return widen(node, b, weights=True)
    bias = optional(node, 2)
    if bias is not None and constant(bias) is None and constant(operand(node, 1)) is not None:
        return _bias_behind(node, b, bias)
    return computed_weights(node, b) if constant(operand(node, 1)) is None else None


def _bias_behind(node: ir.Node, b: Builder, bias: ir.Value) -> ir.Value:
    y = b.op(node.op_type, operand(node), operand(node, 1), **attributes(node))
    return b.op("Add", y, b.op("Reshape", bias, [1, -1, *[1] * (len(static(node.outputs[0])) - 2)]))


@rewrites("ConvTranspose")
def conv_transpose(node: ir.Node, b: Builder) -> ir.Value | None:
    """Output padding and a given output shape are less padding, and zeros behind where the padding does not suffice."""
    shape, a = static(operand(node)), attributes(node)
    bias = optional(node, 2)
    if constant(operand(node, 1)) is None:
        return computed_kernel(node, b)
    if len(shape) == 3:
        return widen(node, b, weights=True)
    if bias is not None and constant(bias) is None:
        return _bias_behind(node, b, bias)
    near = filled(node)
    kernel = kernel_of(near)
    rank = len(kernel)
    strides, dilations = a.get("strides") or [1] * rank, a.get("dilations") or [1] * rank
    out = static(node.outputs[0])[2:]
    full = [s * (n - 1) + (k - 1) * d + 1 for n, k, s, d in zip(shape[2:], kernel, strides, dilations, strict=True)]
    begin = first_pads(a, full, out, rank)
    end = [f - p - o for f, p, o in zip(full, begin, out, strict=True)]
    short = [max(0, -e) for e in end]
    plain: dict[str, Any] = {"group": a.get("group", 1), "strides": strides, "dilations": dilations, "kernel_shape": kernel}
    plain["pads"] = [*begin, *[max(0, e) for e in end]]
    if min(begin) < 0:
        raise MappingError("negative padding has no counterpart")
    if not any(short):
        return b.op("ConvTranspose", operand(node), operand(node, 1), bias, **plain)
    y = b.op("Pad", b.op("ConvTranspose", operand(node), operand(node, 1), **plain), [0] * (rank + 4) + short)
    return y if bias is None else b.op("Add", y, b.op("Reshape", bias, [1, -1, *[1] * rank]))


@rewrites("AveragePool", "MaxPool", "LpPool")
def pool(node: ir.Node, b: Builder) -> ir.Value | tuple[ir.Value, ...] | None:
    """Rounding up is more padding behind. Where an average counts its padding, the data are padded first."""
    x, a = operand(node), attributes(node)
    shape = static(x)
    if len(node.outputs) != 1:
        return best_places(node, b)
    if len(shape) == 3:
        return widen(node, b, weights=False)
    near = filled(node)
    kernel = kernel_of(near)
    rank = len(kernel)
    pads = explicit_pads(near, kernel)
    strides, dilations = a.get("strides") or [1] * rank, a.get("dilations") or [1] * rank
    out = static(node.outputs[0])[2:]
    if any((o - 1) * s >= n + pads[i] for i, (o, s, n) in enumerate(zip(out, strides, shape[2:], strict=True))):
        raise MappingError("a window that starts in the padding behind has no counterpart")
    over = [
        max(0, (o - 1) * s + (k - 1) * d + 1 - n - pads[i] - pads[i + rank])
        for i, (o, s, k, d, n) in enumerate(zip(out, strides, kernel, dilations, shape[2:], strict=True))
    ]
    if not a.get("ceil_mode", 0) and a.get("auto_pad", "NOTSET") == "NOTSET":
        return _larger(node, b, kernel) if node.op_type == "LpPool" else None
    kept = {k: v for k, v in a.items() if k not in ("ceil_mode", "auto_pad", "pads")}
    if node.op_type == "AveragePool" and a.get("count_include_pad", 0) and any(over) and any(pads):
        x = b.op("Pad", x, [0, 0, *pads[:rank], 0, 0, *pads[rank:]])
        pads = [0] * (2 * rank)
    if any(over):
        kept.pop("count_include_pad", None)
    return b.op(node.op_type, x, **kept, pads=[*pads[:rank], *[p + o for p, o in zip(pads[rank:], over, strict=True)]])


def _larger(node: ir.Node, b: Builder, kernel: list[int]) -> ir.Value | None:
    """Other powers than 1 and 2, and other ranks, from an average of powers."""
    x, a = operand(node), attributes(node)
    p = float(a["p"])
    if len(kernel) == 2 and p in (1, 2):
        return None
    kept = {k: v for k, v in a.items() if k in ("kernel_shape", "strides", "pads", "dilations")}
    mean = b.op("AveragePool", b.op("Pow", b.op("Abs", x), b.like(x, p)), **kept, count_include_pad=1)
    return b.op("Pow", b.op("Mul", mean, b.like(x, float(np.prod(kernel)))), b.like(x, 1.0 / p))


@rewrites("GlobalLpPool")
def global_lp(node: ir.Node, b: Builder) -> ir.Value:
    x, p = operand(node), float(attributes(node)["p"])
    axes = list(range(2, len(static(x))))
    if p in (1, 2):
        return b.op("ReduceL1" if p == 1 else "ReduceL2", x, axes)
    return b.op("Pow", b.op("ReduceSum", b.op("Pow", b.op("Abs", x), b.like(x, p)), axes), b.like(x, 1.0 / p))


@rewrites("BatchNormalization")
def computed_statistics(node: ir.Node, b: Builder) -> Any:
    """Constant statistics are the format's own layer; computed ones are arithmetic."""
    found = batch_normalization(node, b)
    if found is not None or attributes(node).get("training_mode", 0):
        return found
    x = operand(node)
    scale, shift, mean, var = (b.op("Reshape", operand(node, i), [1, -1, *[1] * (len(static(x)) - 2)]) for i in range(1, 5))
    d = b.op("Sqrt", b.op("Add", var, b.like(var, attributes(node)["epsilon"])))
    return b.op("Add", b.op("Mul", b.op("Div", b.op("Sub", x, mean), d), scale), shift)


@rewrites("InstanceNormalization", "GroupNormalization")
def computed_scale(node: ir.Node, b: Builder) -> ir.Value | None:
    """Scale and shift that are computed stand behind the layer; 3-D data become 4-D."""
    x, a = operand(node), attributes(node)
    shape = static(x)
    ones = np.ones(shape[1], x.dtype.numpy() if x.dtype else np.float32)
    plain = b.op(node.op_type, x, b.const(ones), b.const(np.zeros_like(ones)), **a)
    scale, shift = (b.op("Reshape", operand(node, i), [1, -1, *[1] * (len(shape) - 2)]) for i in (1, 2))
    return b.op("Add", b.op("Mul", plain, scale), shift)


@rewrites("MatMul")
def mat_mul(node: ir.Node, b: Builder) -> ir.Value | None:
    """Equally many axes, equal batches: leading ones by Reshape, broadcast by Tile."""
    x, y = operand(node), operand(node, 1)
    sx, sy = static(x), static(y)
    if len(sx) == len(sy) and sx[:-2] == sy[:-2] and len(sx) >= 2:
        return None
    sx, sy = ([1, *sx] if len(sx) == 1 else sx), ([*sy, 1] if len(sy) == 1 else sy)
    rank = max(len(sx), len(sy))
    sx, sy = [1] * (rank - len(sx)) + sx, [1] * (rank - len(sy)) + sy
    x, y = (v if static(v) == s else b.op("Reshape", v, s) for v, s in ((x, sx), (y, sy)))
    batch = [max(m, n) if m and n else 0 for m, n in zip(sx[:-2], sy[:-2], strict=True)]
    x, y = (v if s[:-2] == batch else b.op("Tile", v, [m // n if n else 1 for m, n in zip(batch, s[:-2], strict=True)] + [1, 1]) for v, s in ((x, sx), (y, sy)))
    z = b.op("MatMul", x, y)
    return z if static(z) == static(node.outputs[0]) else b.op("Reshape", z, static(node.outputs[0]))


@rewrites("Gemm")
def gemm(node: ir.Node, b: Builder) -> ir.Value | None:
    """Without its third operand a Gemm is a MatMul; integers are multiplied as they are."""
    from converter.passes.decompose import gemm as plain

    found = plain(node, b)
    return found if isinstance(found, ir.Value) else None
