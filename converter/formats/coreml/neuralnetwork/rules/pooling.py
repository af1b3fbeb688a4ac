"""Pooling over two and three axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.neuralnetwork import operands as blobs
from converter.formats.coreml.neuralnetwork.rules.context import LiftContext, LowerContext
from converter.formats.coreml.neuralnetwork.rules.convolution import (
    AXES,
    SIDES,
    Conv1dAsConv2d,
    ImageWindow,
    Window3D,
)
from converter.formats.coreml.neuralnetwork.rules.fields import (
    NOTHING_MORE,
    RANK_4,
    AsRank,
    border_amounts,
)
from converter.mapping.concepts.window import Geometry
from converter.mapping.fields import Field, Guard, RequireAttr, RequireKey, WriteKey, ignore
from converter.mapping.node import Node
from converter.mapping.rules import Rule, op

Value = ir.Value


class PoolPlanes(ImageWindow):
    """A pool over height and width; `includeLastPixel` rounds up."""

    keys = ("kernelSize", "stride", "valid", "same", "includeLastPixel")
    dilated = False

    def kernel(self, node: Node) -> list[int]:
        return [int(k) for k in node.attrs["kernel_shape"]]

    def read(self, r: LiftContext) -> Geometry:
        found = super().read(r)
        ceil = "includeLastPixel" in r.layer.attrs and (any(found.pads) or cuts(r, found))
        return replace(found, ceil=ceil)

    def explicit(self, r: LiftContext) -> list[int]:
        last = r.attr("includeLastPixel", dict, None)
        if last is None:
            return super().explicit(r)
        amounts = [int(n) for n in last.get("paddingAmounts") or [0, 0]]
        if len(amounts) != 2:
            raise MappingError(f"{amounts} must have two elements (height, width)", "R110")
        return amounts * 2


class PoolVolumes(Window3D):
    """A pool over three axes."""

    keys = (
        *(f"{name}{axis}" for name in ("kernel", "stride") for axis in AXES),
        *SIDES,
        "paddingType",
    )
    dilated = False

    def kernel(self, node: Node) -> list[int]:
        return [int(k) for k in node.attrs["kernel_shape"]]


def cuts(r: LiftContext, window: Geometry) -> bool:
    """Return whether rounding up changes the result."""
    kernel, strides, _ = window.steps
    windows = zip(blobs.dims(r, 2)[-2:], kernel, strides, strict=True)
    return any(n is None or n % s != k % s for n, k, s in windows)


def pads_of(attrs: Mapping[str, Any]) -> list[int]:
    """Return the pads of a pool, zeros for SAME padding of an unknown size: it stays an `auto_pad`,
    is never as wide as the kernel, and nothing is rounded up.
    """
    pads: list[int] = attrs.get("pads") or [0] * (2 * len(attrs["kernel_shape"]))
    return pads


class WidePadding(Field):
    """Padding that is not smaller than the kernel, which ONNX's pools do not support, becomes a Pad
    before the pool.
    """

    def __init__(self, value: float) -> None:
        self.value = value

    def lift(self, r: LiftContext) -> None:
        a = r.node.attrs
        pads, n = pads_of(a), len(a["kernel_shape"])
        if any(p >= k for p, k in zip(pads, a["kernel_shape"] * 2, strict=True)):
            amounts = [0, 0, *pads[:n], 0, 0, *pads[n:]]
            r.data = r.b.Pad(r.data, amounts, self.value)
            a["pads"] = [0] * (2 * n)


class CountedPadding(Field):
    """The padding of averages. Unless padding is excluded, the count is always the kernel's size,
    even where rounding up adds more padding.
    """

    names = ("count_include_pad",)

    def __init__(self, key: str) -> None:
        self.keys = (key,)

    def lift(self, r: LiftContext) -> None:
        b, a, x = r.b, r.node.attrs, r.data
        kernel, stride, pads = a["kernel_shape"], a["strides"], pads_of(a)
        exclude, ceil, n = r.attr(self.keys[0], bool), a.get("ceil_mode"), len(kernel)
        wide = any(p >= k for p, k in zip(pads, kernel * 2, strict=True))
        a["count_include_pad"] = int(not exclude)
        if exclude or not (ceil or wide):
            return
        size = blobs.dims(x)[-n:]
        amounts: Any = [0, 0, *pads[:n], 0, 0, *pads[n:]]
        if ceil and None in size:
            more = _more_at_run_time(r, x, kernel, stride, pads)
            amounts = b.Concat(amounts[: n + 4], more, axis=0)
        elif ceil:
            windows = zip(size, kernel, stride, pads[n:], pads[:n], strict=True)
            amounts[n + 4 :] = [
                after + _more(d or 0, k, s, after, p) for d, k, s, after, p in windows
            ]
        r.data = b.Pad(x, amounts, 0.0)
        a["pads"], a["ceil_mode"], a["count_include_pad"] = [0] * (2 * n), 0, 0

    def lower(self, w: LowerContext) -> None:
        w.set(**{self.keys[0]: not w.attr("count_include_pad")})


def _more(size: int, kernel: int, stride: int, after: int, before: int) -> int:
    """Return how far the last window extends beyond the padded input when rounding up; it must not
    begin in the padding after it.
    """
    whole = size + before + after
    steps = -(-(whole - kernel) // stride)
    if (before or after) and steps * stride >= size + before:
        steps -= 1
    return max(0, steps * stride + kernel - whole)


def _more_at_run_time(
    r: LiftContext, x: Value, kernel: list[int], stride: list[int], pads: list[int]
) -> Value:
    """Compute the pads after each axis, `_more` included, from the shape at run time."""
    b, n = r.b, len(kernel)
    before, after, width, step = (np.array(v) for v in (pads[:n], pads[n:], kernel, stride))
    size = b.Shape(x, start=2)
    whole = size + (before + after)
    steps = (whole + (step - width - 1)) / step
    late = b.Cast(steps * step >= size + before, to=ir.DataType.INT64)
    steps = steps - late * ((before + after) > 0).astype(np.int64)
    return b.Max(steps * step + width - whole, 0) + after


UP_TO_TWO = Guard(
    "only one or two spatial axes are supported by this layer", lambda w: w.rank() in (3, 4)
)
THREE = Guard("only three spatial axes are supported by this layer", lambda w: w.rank() == 5)
LOCAL, GLOBAL = RequireKey("globalPooling", False), RequireKey("globalPooling", True)
WINDOWS = ("kernelSize", "stride", "same", "includeLastPixel", "avgPoolExcludePadding")
PLANES = (UP_TO_TWO, LOCAL, AsRank(4), PoolPlanes())
VOLUMES = (THREE, AsRank(5), PoolVolumes())
NO_COUNT, NO_COUNT_3D = ignore("avgPoolExcludePadding"), ignore("countExcludePadding")
MAXIMUM = (WidePadding(float("-inf")), NOTHING_MORE, RequireAttr("storage_order", 0))
SQUARES = (WidePadding(0.0), RequireAttr("p", 2))
MAX, AVERAGE, L2 = (RequireKey("type", kind) for kind in ("MAX", "AVERAGE", "L2"))
COUNTED, COUNTED_3D = CountedPadding("avgPoolExcludePadding"), CountedPadding("countExcludePadding")
ALL = (
    GLOBAL,
    AsRank(4),
    RANK_4,
    ignore(*WINDOWS),
    WriteKey("valid", {"paddingAmounts": border_amounts([0] * 4)}),
)
ALL_3D = (AsRank(5), THREE)
IMAGE, VOLUME = "1,4,8,8", "1,4,4,4,4"

ROUNDS_UP = Guard("ceil_mode must be 1", lambda w: bool(w.attr("ceil_mode")))
ROUNDS_DOWN = Guard("ceil_mode must be 0", lambda w: not w.attr("ceil_mode"))


def pool(name: str, kind: str, *fields: Field, example_inputs: str) -> list[Rule]:
    """Write a pool that rounds down; one that rounds up is written with other pads."""
    return [
        op(name, kind, ROUNDS_DOWN, *fields, example_inputs=example_inputs),
        op(name, kind, ROUNDS_UP, *fields, example_inputs=example_inputs, lower_only=True),
    ]


RULES: list[Rule] = [
    op("GlobalMaxPool", "pooling", MAX, *ALL, example_inputs=IMAGE),
    op("GlobalAveragePool", "pooling", AVERAGE, *ALL, example_inputs=IMAGE),
    op("GlobalLpPool", "pooling", L2, *ALL, RequireAttr("p", 2), example_inputs=IMAGE),
    op("GlobalMaxPool", "globalPooling3d", MAX, *ALL_3D, example_inputs=VOLUME),
    op("GlobalAveragePool", "globalPooling3d", AVERAGE, *ALL_3D, example_inputs=VOLUME),
    *pool(
        "MaxPool",
        "pooling",
        MAX,
        *PLANES,
        *MAXIMUM,
        NO_COUNT,
        Conv1dAsConv2d(),
        example_inputs=IMAGE,
    ),
    *pool(
        "AveragePool", "pooling", AVERAGE, *PLANES, COUNTED, Conv1dAsConv2d(), example_inputs=IMAGE
    ),
    *pool(
        "LpPool", "pooling", L2, *PLANES, *SQUARES, NO_COUNT, Conv1dAsConv2d(), example_inputs=IMAGE
    ),
    *pool("MaxPool", "pooling3d", MAX, *VOLUMES, *MAXIMUM, NO_COUNT_3D, example_inputs=VOLUME),
    *pool("AveragePool", "pooling3d", AVERAGE, *VOLUMES, COUNTED_3D, example_inputs=VOLUME),
]
