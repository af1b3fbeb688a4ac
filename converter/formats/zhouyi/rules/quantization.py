"""Quantized values: scales and zero points in constants of the layer, products of integers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.rules.context import LiftContext
from converter.formats.zhouyi.rules.convolution import CONV_2D, GROUP
from converter.formats.zhouyi.rules.fields import Window
from converter.formats.zhouyi.rules.matmul import ZeroPoint
from converter.graph.value import with_operators
from converter.mapping.fields import Detail, Weight, ignore
from converter.mapping.rules import custom, op


def add_biases(r: LiftContext) -> None:
    """Add `biases`, which are 32-bit sums, after the product."""
    array = r.layer.blobs.get("biases")
    if array is not None and np.asarray(array).any():
        bias = r.b.const(np.asarray(array).reshape(-1).astype(np.int32))
        r.after_emit(lambda results: [results[0] + bias])


def lift_quantize(r: LiftContext) -> ir.Value:
    """Quantize in ONNX's sense: x / scale + zero point, and back."""
    x, kind = r.input(0), r.layer.kind
    scale, zero = (r.blob(f"quantize_{part}") for part in ("scale", "zp"))
    dtype = r.declared_type if kind == "Quantize" else x.dtype
    if dtype is None or not dtype.is_integer():
        raise MappingError("the stored type must be an integer type", "R105")
    flat = scale.astype(np.float32).reshape(() if scale.size == 1 else -1)
    if zero.size != flat.size:
        raise MappingError(f"{zero.size} zero points do not fit {scale.size} scales", "R110")
    zeros = r.b.const(zero.astype(dtype.numpy()).reshape(flat.shape))
    op = "QuantizeLinear" if kind == "Quantize" else "DequantizeLinear"
    return r.b.op(op, x, r.b.const(flat), zeros, axis=r.attr("axis", int, 1))


def lift_fake_quantize(r: LiftContext) -> ir.Value:
    """Round to a grid of unsigned integers and back, as the vendor's executor does: bounds are
    shifted so that 0 is on the grid, and zero points have one bit less. All in 32-bit floats.
    """
    b, x = r.b, with_operators(r.input(0))
    low, high = (np.float32(r.attr(k, float)) for k in ("min", "max"))
    bits, zero = r.attr("num_bits", int, 8), np.float32(0)
    if not low <= high or not 1 < bits <= 16:
        raise MappingError(
            f"min={low}, max={high}, num_bits={bits} do not define a quantization range", "R110"
        )
    levels = np.float32((1 << bits) - 1)
    if low > 0:
        low, high = zero, high - low
    elif high < 0:
        low, high = low - high, zero
    else:
        step = (high - low) / levels
        moved = step * np.rint(low / step) if step else low
        low, high = moved, high + moved - low
    scale = levels / (high - low) if high - low >= np.finfo(np.float32).eps else np.float32(1)
    most = float(2 ** (bits - 1) - 1)
    point = np.float32(np.clip(np.rint(scale * low), -most, most))
    y = b.Clip(
        b.Round(x * scale - point), float(r.attr("narrow_range", bool, False)), float(levels)
    )
    return b.Clip((y + point) / scale, float(low), float(high))


RULES = [
    custom("", "FakeQuantWithMinMaxVars", lift=lift_fake_quantize),
    op(
        "ConvInteger",
        "ConvInteger",
        Window(2),
        GROUP,
        Weight("weights", 1, CONV_2D),
        ZeroPoint(2, "x_zero_point", 0),
        ZeroPoint(3, "w_zero_point", 1),
        Detail(read=add_biases, blobs=("biases",)),
        ignore("num_output"),
        lift_only=True,
        example_inputs="u8:1,4,8,8 =u8:6,4,3,3 =u8: =u8:",
    ),
    custom("", "Quantize DeQuantize", lift=lift_quantize),
]
