"""Convolutions and their transposes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.codes import AS_STORED, bits
from converter.formats.openvino.opset.fields import AUTO_PAD, explicit_pads, window
from converter.formats.openvino.opset.special.base import (
    Emit,
    attributes,
    constant_input,
    filled,
    given,
    int64,
    ints,
    lifts,
    lowers,
    operand,
    optional,
    rank,
    reshape,
    static,
)
from converter.graph.build import Builder
from converter.graph.infer import constant
from converter.graph.laws_values import deformed
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

EXPLICIT = ("explicit", "notset")


def ungroup(b: Builder, weights: ir.Value) -> tuple[ir.Value, int]:
    """[G, a, b, k...] -> [G*a, b, k...] and G."""
    shape = static(weights, "the weights")
    return reshape(b, weights, [shape[0] * shape[1], *shape[2:]]), shape[0]


@lifts("Convolution", "GroupConvolution")
def lift_convolution(layer: Layer, b: Builder) -> ir.Value:
    attributes(layer, "strides", "pads_begin", "pads_end", "dilations", "auto_pad", "output_padding")
    x, w = operand(layer, 0), operand(layer, 1)
    group = 1
    if layer.kind == "GroupConvolution":
        w, group = ungroup(b, w)
    near = Node("Conv", inputs=[x, w])
    field = window(kernel=False)
    field.lift(Layer("", attrs={k: v for k, v in layer.attrs.items() if k != "output_padding"}), near, b)
    return b.op("Conv", x, w, group=group, **near.attrs)


def _grouped(e: Emit, weights: ir.Value, group: int) -> Any:
    """[G*a, b, k...] -> [G, a, b, k...]"""
    shape = static(weights, "the weights")
    return e.reshape(weights, [group, shape[0] // group, *shape[1:]]) if group > 1 else weights


@lowers("Conv")
def lower_convolution(node: Node, low: Lowering) -> None:
    if node.input(2) is not None:
        raise MappingError("a bias is an Add in the opsets")
    x, w, group, e = given(node, 0), given(node, 1), node.attrs.get("group", 1), Emit(node, low)
    static(w, "the weights")
    layer = Layer("Convolution")
    window(kernel=False).lower(node, layer)
    e.out("GroupConvolution" if group > 1 else "Convolution", x, _grouped(e, w, group), **layer.attrs)


@lifts("ConvolutionBackpropData", "GroupConvolutionBackpropData")
def lift_transposed(layer: Layer, b: Builder) -> ir.Value:
    """The weights are ConvTranspose's own [I, O/G, k...]; a third input asks for an output shape, which fixes the padding."""
    a = attributes(layer, strides=[], pads_begin=[], pads_end=[], dilations=[], auto_pad="explicit", output_padding=[])
    x, w, wanted = operand(layer, 0), operand(layer, 1), optional(layer, 2)
    group = 1
    if layer.kind.startswith("Group"):
        w, group = ungroup(b, w)
    kernel = list(static(w, "the weights")[2:])
    n = len(kernel)
    strides, dilations = a.strides or [1] * n, a.dilations or [1] * n
    extra = a.output_padding or [0] * n
    if a.auto_pad not in AUTO_PAD:
        raise MappingError(f"auto_pad={a.auto_pad!r} is not known", "R110")
    explicit = a.auto_pad in EXPLICIT
    begin, end = (explicit and a.pads_begin) or [0] * n, (explicit and a.pads_end) or [0] * n
    if wanted is not None:
        full = [s * (d - 1) + (k - 1) * r + 1 for s, d, k, r in zip(strides, static(x)[2:], kernel, dilations, strict=True)]
        excess = [f + e - t for f, e, t in zip(full, extra, ints(wanted, "the output shape")[-n:], strict=True)]
        if a.auto_pad in ("same_upper", "same_lower"):  # the larger half goes from the begin for same_upper, unlike that of a convolution
            begin = [max(0, e + (a.auto_pad == "same_upper")) // 2 for e in excess]
        rest = [e - p for e, p in zip(excess, begin, strict=True)]  # the begin stands, the end is cut off or grows
        end, extra = [max(0, r) for r in rest], [e + max(0, -r) for e, r in zip(extra, rest, strict=True)]
    return _transposed(b, x, w, strides, dilations, begin, end, extra, group)


def _transposed(
    b: Builder, x: ir.Value, w: ir.Value, strides: list[int], dilations: list[int], begin: list[int], end: list[int], extra: list[int], group: int
) -> ir.Value:
    """ConvTranspose takes less than a stride of output padding; what is more cuts less off the end, or is zeros behind it."""
    spare = [max(0, e - s + 1) for e, s in zip(extra, strides, strict=True)]
    less = [min(e, r) for e, r in zip(end, spare, strict=True)]
    zeros = [r - c for r, c in zip(spare, less, strict=True)]
    pads = [*begin, *(e - c for e, c in zip(end, less, strict=True))]
    extra = [e - r for e, r in zip(extra, spare, strict=True)]
    y = b.op("ConvTranspose", x, w, strides=strides, dilations=dilations, pads=pads, output_padding=extra, group=group, kernel_shape=static(w)[2:])
    return b.op("Pad", y, [0] * (len(zeros) + 4) + zeros) if any(zeros) else y


@lowers("ConvTranspose")
def lower_transposed(node: Node, low: Lowering) -> None:
    if node.input(2) is not None:
        raise MappingError("a bias is an Add in the opsets")
    if node.attrs.get("auto_pad", "NOTSET") != "NOTSET" or node.attrs.get("output_shape"):
        raise MappingError("implicit padding")
    x, w, group, e = given(node, 0), given(node, 1), node.attrs.get("group", 1), Emit(node, low)
    n = rank(w) - 2
    pads = node.attrs.get("pads") or [0] * (2 * n)
    e.out(
        "GroupConvolutionBackpropData" if group > 1 else "ConvolutionBackpropData",
        x,
        _grouped(e, w, group),
        strides=node.attrs.get("strides") or [1] * n,
        pads_begin=pads[:n],
        pads_end=pads[n:],
        dilations=node.attrs.get("dilations") or [1] * n,
        output_padding=node.attrs.get("output_padding") or [0] * n,
        auto_pad="explicit",
    )


@lifts("DeformableConvolution")
def lift_deformable(layer: Layer, b: Builder) -> ir.Value:
    """(data, offsets, filters[, mask]); DeformConv's bilinear samples outside of the image are those of `bilinear_interpolation_pad`."""
    a = attributes(
        layer, strides=[], pads_begin=[], pads_end=[], dilations=[], auto_pad="explicit", group=1, deformable_group=1, bilinear_interpolation_pad=False
    )
    x, offset, w, mask = operand(layer, 0), operand(layer, 1), operand(layer, 2), optional(layer, 3)
    kernel = list(static(w, "the weights")[2:])
    begin, end = a.pads_begin or [0, 0], a.pads_end or [0, 0]
    strides, dilations = a.strides or [1, 1], a.dilations or [1, 1]
    if a.auto_pad not in EXPLICIT:
        pads = explicit_pads(a.auto_pad, [int(d) for d in static(x)[2:]], kernel, strides, dilations)
        begin, end = pads[:2], pads[2:]
    shapes = [None if v is None or v.shape is None else [d if isinstance(d, int) else None for d in v.shape] for v in (x, w, offset, mask)]
    if reason := deformed(shapes, a.group, a.deformable_group, strides, dilations, [*begin, *end]):
        raise MappingError(reason, "R105")
    return b.ext(
        "DeformableConvolution", x, offset, w, mask, strides=strides, pads=[*begin, *end], dilations=dilations, group=a.group,
        deformable_group=a.deformable_group, bilinear_pad=int(a.bilinear_interpolation_pad),
    )  # fmt: skip


@lowers("DeformableConvolution", domain="netconv")
def lower_deformable(node: Node, low: Lowering) -> None:
    a = node.attrs
    if low.version < 8 and (node.input(3) is not None or a["bilinear_pad"]):
        raise MappingError("a mask needs opset8", "X206")
    pads = a["pads"]
    Emit(node, low).out(
        "DeformableConvolution", *node.inputs, strides=a["strides"], pads_begin=pads[:2], pads_end=pads[2:], dilations=a["dilations"], auto_pad="explicit",
        group=a["group"], deformable_group=a["deformable_group"], bilinear_interpolation_pad=bool(a["bilinear_pad"]),
    )  # fmt: skip


@lifts("BinaryConvolution")
def lift_binary(layer: Layer, b: Builder) -> ir.Value:
    """xnor-popcount: zeros and ones stand for -1 and 1; padding of `pad_value`."""
    a = attributes(layer, strides=[], pads_begin=[], pads_end=[], dilations=[], auto_pad="explicit", mode="xnor-popcount", pad_value=float)
    x, w = operand(layer, 0), operand(layer, 1)
    if a.mode != "xnor-popcount":
        raise MappingError(f"mode={a.mode!r} is not known", "R110")
    kernel = list(static(w, "the weights")[2:])
    strides, dilations = a.strides or [1, 1], a.dilations or [1, 1]
    if a.auto_pad in EXPLICIT:
        pads = [*(a.pads_begin or [0, 0]), *(a.pads_end or [0, 0])]
    else:
        pads = explicit_pads(a.auto_pad, [int(d) for d in static(x)[2:]], kernel, strides, dilations)
    return b.ext("BinaryConvolution", x, b.op("Cast", w, to=int(x.dtype or 1)), strides=strides, pads=pads, dilations=dilations, pad_value=a.pad_value)


@lowers("BinaryConvolution", domain="netconv")
def lower_binary(node: Node, low: Lowering) -> None:
    """The weights are single bits, and constant."""
    a, e, w = filled(node), Emit(node, low), constant(node.input(1))
    if w is None or not np.isin(w, (0, 1)).all() or a["group"] != 1 or len(a["strides"]) != 2:
        raise MappingError("the weights must be constant zeros and ones, of one group")
    stored = constant_input(low, bits(w, "weights"))
    stored.meta[AS_STORED] = True
    pads = a["pads"]
    e.out(
        "BinaryConvolution", node.input(0), stored, strides=a["strides"], pads_begin=pads[:2], pads_end=pads[2:], dilations=a["dilations"],
        mode="xnor-popcount", pad_value=float(a["pad_value"]), auto_pad="explicit",
    )  # fmt: skip


@lifts("Col2Im")
def lift_col2im(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, strides=[], dilations=[], pads_begin=[], pads_end=[])
    n = 2
    pads = [*(a.pads_begin or [0] * n), *(a.pads_end or [0] * n)]
    x = operand(layer, 0)
    columns = b.op("Unsqueeze", x, [0]) if rank(x) == 2 else x
    image = b.op(
        "Col2Im", columns, int64(b, operand(layer, 1)), int64(b, operand(layer, 2)), strides=a.strides or [1] * n, dilations=a.dilations or [1] * n, pads=pads
    )
    return b.op("Squeeze", image, [0]) if rank(x) == 2 else image


@lowers("Col2Im")
def lower_col2im(node: Node, low: Lowering) -> None:
    if low.version < 15:
        raise MappingError("Col2Im needs opset15", "X206")
    if static(given(node, 1), "the image's shape") != (2,):
        raise MappingError("Col2Im of the opsets is two-dimensional")
    pads = node.attrs.get("pads") or [0] * 4
    strides, dilations = (node.attrs.get(k) or [1, 1] for k in ("strides", "dilations"))
    Emit(node, low).out("Col2Im", *node.inputs, strides=strides, dilations=dilations, pads_begin=pads[:2], pads_end=pads[2:])
