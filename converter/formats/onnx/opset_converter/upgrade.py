"""ai.onnx operators of older opsets in their opset-21 form: one row for each change of meaning or
spelling.

Changes that only widened types need no row. The history is that of onnx's own schemas
(Changelog.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.op import Op, Results, Rows
from converter.graph import REDUCTIONS
from converter.graph.build import Builder
from converter.graph.demands import at_least
from converter.graph.infer import constant, known
from converter.graph.value import Value

ROWS = Rows()


@ROWS.until(13, "BatchNormalization")
def batch_normalization(op: Op, b: Builder) -> Results:
    """Convert `spatial` = 0, before opset 9: statistics for each element of a sample instead of
    each channel.
    """
    op.take("is_test")
    if any(op.outputs[1:]):
        raise MappingError(
            "BatchNormalization in training mode, as written before opset 14, is not supported"
        )
    if op.take("spatial", 1):
        return None
    x, scale, bias, mean, var = (op.need(i) for i in range(5))
    deviation = b.Sqrt(var + op.attr("epsilon", 1e-5))
    return (x - mean) / deviation * scale + bias


@ROWS.until(10, "Clip")
def clip(op: Op, b: Builder) -> None:
    """Make the limits of Clip inputs."""
    for index, key in ((1, "min"), (2, "max")):
        bound = op.take(key)
        if bound is not None:
            op.set_input(index, b.like(op.x, bound, key))


@ROWS.until(19, "DFT")
def dft(op: Op, b: Builder) -> None:
    """Make the axis of DFT, 1 by default, an input."""
    op.set_constant(b, 2, "axis", op.take("axis", 1))


@ROWS.until(19, "GridSample")
def grid_sample(op: Op, b: Builder) -> None:
    """Rename the mode of GridSample."""
    mode = op.attr("mode", "bilinear")
    op.attrs["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)


@ROWS.until(20, "GroupNormalization")
def group_normalization(op: Op, b: Builder) -> None:
    """Repeat scale and bias, which had one element per group before 21."""
    groups = int(op.attrs["num_groups"])
    at_least(1, num_groups=groups)
    channels = op.x.shape[1] if op.x.shape is not None else None
    if isinstance(channels, int):
        target: Any = [groups, channels // groups]
    else:
        target = b.Concat([groups], b.Shape(op.x, start=1, end=2) / groups, axis=0)
    for i in (1, 2):
        column = b.Reshape(op.need(i), [-1, 1])
        op.set_input(i, b.Reshape(b.Expand(column, target), [-1]))


@ROWS.until(12, "Softmax", "LogSoftmax", "Hardmax")
def softmax(op: Op, b: Builder) -> Results:
    """Apply a softmax to rows: before 13 the input was seen as a matrix, split at `axis` (default
    1).
    """
    x, rank, axis = op.x, op.rank(0), op.take("axis", 1)
    axis += rank if axis < 0 else 0
    if axis == rank - 1:
        op.attrs["axis"] = -1
        return None
    rows = b.op(op.kind, b.Flatten(x, axis=axis), axis=-1)
    return b.Reshape(rows, b.Shape(x))


@ROWS.until(10, "Pad")
def pad(op: Op, b: Builder) -> None:
    """Make the amounts and the value of Pad inputs."""
    op.set_constant(b, 1, "pads", op.take("pads", []))
    value = op.take("value", 0.0)
    if value:
        op.set_input(2, b.like(op.x, value, "value"))


@ROWS.until(12, "ReduceSum", "Squeeze", "Unsqueeze")
@ROWS.until(17, *(kind for kind in REDUCTIONS if kind != "ReduceSum"))
def axes_input(op: Op, b: Builder) -> None:
    """Make the axes an input."""
    op.set_constant(b, 1, "axes", op.take("axes") or None)


@ROWS.until(9, "Upsample")
def upsample(op: Op, b: Builder) -> None:
    """Make the scales of Upsample an input, and the operator a Resize."""
    op.set_constant(b, 1, "scales", op.take("scales"), np.float32)
    op.kind, op.version = "Resize", 10


@ROWS.until(10, "Resize")
def resize_10(op: Op, b: Builder) -> Results:
    """Convert Resize of opset 10, which samples at i / scale; mode nearest rounds down when it
    enlarges and up when it shrinks.
    """
    x, scales = op.x, op.need(1)
    mode = op.attr("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode

    def resized(y: Value, scales: Any, rounding: str | None) -> Value:
        where = "asymmetric"
        return b.Resize(
            y, None, scales, nearest_mode=rounding, mode=mode, coordinate_transformation_mode=where
        )

    if mode == "linear":
        return resized(x, scales, None)
    numbers = known(scales)
    if numbers is None:
        return resized(resized(x, b.Max(scales, [1.0]), "floor"), b.Min(scales, [1.0]), "ceil")
    up, down = (f(numbers, 1).astype(np.float32) for f in (np.maximum, np.minimum))
    shrinks = bool(np.any(down != 1))
    y = resized(x, up, "floor") if np.any(up != 1) or not shrinks else x
    return resized(y, down, "ceil") if shrinks else y


@ROWS.always("Resize")
def resize(op: Op, b: Builder) -> None:
    """Replace empty tensors, which mean omitted operands. tf_half_pixel_for_nn (removed in opset
    13, but tf2onnx writes it and engines accept it) samples at (i + 0.5) / scale, half a pixel
    after half_pixel: rounding down there is rounding up here.
    """
    for i in (1, 2, 3):
        value = op.input(i)
        if value is not None and value.shape is not None and list(value.shape) == [0]:
            op.set_input(i, None)
    if op.attr("coordinate_transformation_mode") != "tf_crop_and_resize":
        op.set_input(1, None)
    if op.attr("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        if (
            op.attr("mode", "nearest") != "nearest"
            or op.attr("nearest_mode", "round_prefer_floor") != "floor"
        ):
            raise MappingError(
                "Resize in tf_half_pixel_for_nn mode is only supported with mode=nearest, "
                "nearest_mode=floor"
            )
        op.attrs.update(
            coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil"
        )


@ROWS.until(15, "RoiAlign")
def roi_align(op: Op, b: Builder) -> None:
    """Spell out the coordinate transformation that was the only one."""
    op.attrs.setdefault("coordinate_transformation_mode", "output_half_pixel")


@ROWS.until(10, "Scatter")
def scatter(op: Op, b: Builder) -> None:
    """Rename Scatter to ScatterElements."""
    op.kind = "ScatterElements"


@ROWS.until(9, "Slice")
def slice_(op: Op, b: Builder) -> None:
    """Make the limits of Slice inputs."""
    for index, key in ((1, "starts"), (2, "ends"), (3, "axes")):
        op.set_constant(b, index, key, op.take(key))


@ROWS.until(12, "Split")
def split(op: Op, b: Builder) -> None:
    """Convert `split`, which is an input in version 1 and an attribute in versions 2 and 11."""
    op.attrs.setdefault("axis", 0)
    sizes = op.take("split")
    if sizes:
        op.set_constant(b, 1, "split", sizes)
    elif (given := op.input(1)) is not None and given.dtype != ir.DataType.INT64:
        op.set_input(1, b.Cast(given, to=ir.DataType.INT64))


@ROWS.until(17, "Split")
def split_equal(op: Op, b: Builder) -> None:
    """Spell out the number of parts of a Split without sizes."""
    if op.input(1) is None:
        op.attrs["num_outputs"] = len(op.outputs)


@ROWS.until(9, "TopK")
def top_k(op: Op, b: Builder) -> None:
    """Make k of TopK an input."""
    op.set_constant(b, 1, "k", [op.take("k", 1)])


@ROWS.always("Dropout")
def dropout(op: Op, b: Builder) -> Results:
    """Replace Dropout by Identity, unless training mode is requested: then it is kept, and is
    random.
    """
    if op.version >= 12 and op.input(2) is not None:
        training, ratio = (
            constant(op.input(2)),
            constant(op.input(1)) if op.input(1) is not None else np.array(0.5),
        )
        if (training is None or bool(training)) and (ratio is None or float(ratio) != 0):
            return None
    mask = None
    if op.has_output(1):
        x = op.x
        ones = b.ConstantOfShape(b.Shape(x), value=np.array([True]))
        mask = ones if op.version >= 10 else b.Cast(ones, to=x.dtype)
    return (op.x, mask)
