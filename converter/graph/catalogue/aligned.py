"""Regions of bilinear samples beyond ONNX's RoiAlign: rotated ones, and the largest sample of each bin."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.catalogue.overlaps import FLOAT, INT64, length, numbers
from converter.graph.extensions import extension
from converter.graph.sizes import arange

Value = ir.Value
Point = tuple[Value, Value]


@extension
def ROIAlignRotated(
    b: Builder, x: Value, rois: Value, index: Value, *, pooled_h: int, pooled_w: int, sampling_ratio: int, spatial_scale: float, clockwise_mode: int = 0
) -> Value:
    """Means of bilinear samples in pooled_h x pooled_w bins of rotated regions: [R, C, pooled_h, pooled_w].

    x[N, C, H, W], rois[R, 5], index[R]: the image of each. Regions are scaled and moved by half a pixel up and left; sampling_ratio samples
    per bin and direction, 0: as many as there are pixels. A sample more than a pixel outside counts as 0. Source: OpenVINO, ROIAlignRotated-15.
    """
    plane = b.op("Reshape", x, [0, 0, -1])
    height, width = length(b, x, 2), length(b, x, 3)
    place = b.op("Cast", index, to=INT64)
    inner = b.body("region")
    i = inner.input("i", ir.DataType.INT64, [])
    inner.input("go", ir.DataType.BOOL, [])
    cx, cy, w, h, angle = inner.ops("Split", inner.op("Gather", rois, i, axis=0), [1] * 5, outputs=5, axis=0)
    cx, cy = (inner.op("Sub", inner.op("Mul", v, spatial_scale), 0.5) for v in (cx, cy))
    down, down_count = _samples(inner, inner.op("Mul", h, spatial_scale), pooled_h, sampling_ratio)
    across, across_count = _samples(inner, inner.op("Mul", w, spatial_scale), pooled_w, sampling_ratio)
    down, across = inner.op("Unsqueeze", down, [1, 3]), inner.op("Unsqueeze", across, [0, 2])  # [ph, 1, sy, 1] and [1, pw, 1, sx]
    turned = inner.op("Neg", angle) if clockwise_mode else angle
    cos, sin = inner.op("Cos", turned), inner.op("Sin", turned)
    at_y = inner.op("Add", inner.op("Sub", inner.op("Mul", down, cos), inner.op("Mul", across, sin)), cy)
    at_x = inner.op("Add", inner.op("Add", inner.op("Mul", down, sin), inner.op("Mul", across, cos)), cx)
    image = inner.op("Gather", plane, inner.op("Gather", place, i, axis=0), axis=0)
    values = _bilinear(inner, image, (at_x, at_y), (width, height))
    number = inner.op("Max", inner.op("Cast", inner.op("Mul", down_count, across_count), to=FLOAT), 1.0)
    inner.output(inner.const(True, "again"), inner.op("Div", inner.op("ReduceSum", values, [3, 4], keepdims=0), number))
    return b.op("Loop", b.op("Squeeze", length(b, rois, 0), [0]), True, body=inner.graph)


@extension
def ROIAlignMax(
    b: Builder, x: Value, rois: Value, index: Value, *, pooled_h: int, pooled_w: int, sampling_ratio: int = 0, spatial_scale: float = 1.0, half_pixel: int = 0
) -> Value:
    """The largest bilinear sample of each of pooled_h x pooled_w bins, at least 0: [R, C, pooled_h, pooled_w].

    x[N, C, H, W], rois[R, 4] (x1, y1, x2, y2), index[R]: the image of each. sampling_ratio samples per bin and direction, 0: as many as there
    are pixels. half_pixel moves the scaled regions by half a pixel up and left; without it their sides are one pixel at least.
    Source: OpenVINO, ROIAlign-9 with mode max, and its reference for the 0.
    """
    place = b.op("Cast", index, to=INT64)
    if sampling_ratio:  # a bin for each sample
        each = b.op(
            "RoiAlign", x, rois, place, output_height=pooled_h * sampling_ratio, output_width=pooled_w * sampling_ratio, spatial_scale=spatial_scale,
            sampling_ratio=1, coordinate_transformation_mode="half_pixel" if half_pixel else "output_half_pixel",
        )  # fmt: skip
        return b.op("Relu", b.op("MaxPool", each, kernel_shape=[sampling_ratio] * 2, strides=[sampling_ratio] * 2))
    plane, sizes = b.op("Reshape", x, [0, 0, -1]), (length(b, x, 3), length(b, x, 2))
    inner = b.body("region")
    i = inner.input("i", ir.DataType.INT64, [])
    inner.input("go", ir.DataType.BOOL, [])
    ends = inner.op("Sub", inner.op("Mul", inner.op("Gather", rois, i, axis=0), spatial_scale), 0.5 if half_pixel else 0.0)
    x1, y1, x2, y2 = inner.ops("Split", ends, [1] * 4, outputs=4, axis=0)
    at = []
    for low, high, bins, axes in ((x1, x2, pooled_w, [0, 2]), (y1, y2, pooled_h, [1, 3])):
        size = inner.op("Sub", high, low) if half_pixel else inner.op("Max", inner.op("Sub", high, low), 1.0)
        places = inner.op("Add", _samples(inner, size, bins, 0, least=1)[0], inner.op("Add", low, inner.op("Mul", size, 0.5)))
        at.append(inner.op("Unsqueeze", places, axes))
    at_x, at_y = inner.op("Add", at[0], inner.op("Mul", at[1], 0.0)), inner.op("Add", at[1], inner.op("Mul", at[0], 0.0))
    values = _bilinear(inner, inner.op("Gather", plane, inner.op("Gather", place, i, axis=0), axis=0), (at_x, at_y), sizes)
    inner.output(inner.const(True, "again"), inner.op("Max", inner.op("ReduceMax", values, [3, 4], keepdims=0), 0.0))
    return b.op("Loop", b.op("Squeeze", length(b, rois, 0), [0]), True, body=inner.graph)


def _samples(b: Builder, size: Value, bins: int, ratio: int, least: int = 0) -> tuple[Value, Value]:
    """Positions of the samples of `bins` equal parts of an interval of `size`, counted from its middle: [bins, S], and S as int64[1].

    S is `ratio`, or when that is 0 the number of pixels, `least` at least.
    """
    step = b.op("Div", size, float(bins))
    count = b.const([ratio]) if ratio else b.op("Max", b.op("Cast", b.op("Ceil", step), to=INT64), least)
    inside = b.op("Div", b.op("Add", b.op("Cast", numbers(b, count), to=FLOAT), 0.5), b.op("Cast", count, to=FLOAT))
    part = b.op("Add", b.op("Unsqueeze", inside, [0]), arange(bins, dtype=np.float32).reshape(-1, 1))
    return b.op("Sub", b.op("Mul", part, step), b.op("Mul", size, 0.5)), count


def _bilinear(b: Builder, image: Value, at: Point, sizes: tuple[Value, Value]) -> Value:
    """image[C, H*W] at points [...] (x, y): [C, ...]. Up to a pixel outside the border counts, beyond it is 0."""
    valid, low, high, part = None, [], [], []
    for v, size in zip(at, sizes, strict=True):
        inside = b.op("And", b.op("GreaterOrEqual", v, -1.0), b.op("LessOrEqual", v, b.op("Cast", size, to=FLOAT)))
        valid = inside if valid is None else b.op("And", valid, inside)
        last = b.op("Sub", size, 1)
        held = b.op("Min", b.op("Max", v, 0.0), b.op("Cast", last, to=FLOAT))
        low.append(b.op("Cast", b.op("Floor", held), to=INT64))
        high.append(b.op("Min", b.op("Add", low[-1], 1), last))
        part.append(b.op("Sub", held, b.op("Floor", held)))
    assert valid is not None
    total: Value | None = None
    for right, bottom in ((0, 0), (1, 0), (0, 1), (1, 1)):
        column, row = (high if right else low)[0], (high if bottom else low)[1]
        weights = [v if far else b.op("Sub", 1.0, v) for v, far in zip(part, (right, bottom), strict=True)]
        value = b.op("Gather", image, b.op("Add", b.op("Mul", row, sizes[0]), column), axis=1)
        term = b.op("Mul", value, b.op("Mul", *weights))
        total = term if total is None else b.op("Add", total, term)
    assert total is not None
    return b.op("Where", valid, total, 0.0)
