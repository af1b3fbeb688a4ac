"""Interpolate and GridSample's relatives <-> Resize."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.special.base import (
    Emit,
    attributes,
    filled,
    given,
    int64,
    ints,
    is_float,
    lifts,
    lowers,
    near_axis,
    operand,
    opset,
    optional,
    rank,
    static,
)
from converter.formats.openvino.opset.special.resampling import resampled
from converter.graph.build import Builder
from converter.graph.infer import known, set_known, shape_of
from converter.graph.sizes import arange
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType
COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")

PILLOW = -0.5  # the runtime has Pillow's curve whatever cube_coeff says, and preprocessing counts on that: it writes -0.75
AT_ONCE = {4: 2, 5: 3}  # rank -> the most axes that the runtime takes


@lifts("Interpolate")
def lift_interpolate(layer: Layer, b: Builder) -> ir.Value:
    if opset(layer) < 4:
        return _first(layer, b)
    a = attributes(
        layer, mode=str, shape_calculation_mode=str, coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_floor",
        antialias=False, pads_begin=[], pads_end=[], cube_coeff=-0.75,
    )  # fmt: skip
    x = _padded(b, operand(layer, 0), a.pads_begin, a.pads_end)
    newest = opset(layer) >= 11
    by_scales = a.shape_calculation_mode == "scales"
    target = operand(layer, 1 if newest or not by_scales else 2)
    axes_at = optional(layer, 2 if newest else 3)
    axes = [near_axis(v, rank(x)) for v in ints(axes_at, "the axes")] if axes_at is not None else list(range(rank(x)))
    if by_scales and a.mode.endswith("_pillow"):  # whose weights follow from the sizes, whatever the scales say
        target, by_scales = _scaled(b, x, target, axes), False
    return resized(b, x, target, axes, by_scales, a)


def _scaled(b: Builder, x: ir.Value, scales: ir.Value, axes: list[int]) -> ir.Value:
    """The sizes that factors give, in float32 and rounded down."""
    sizes = b.op("Gather", b.op("Cast", b.op("Shape", x), to=int(T.FLOAT)), axes, axis=0)
    factors = b.op("Reshape", b.op("Cast", scales, to=int(T.FLOAT)), [-1])
    return b.op("Cast", b.op("Floor", b.op("Mul", sizes, factors)), to=int(T.INT64))


def _padded(b: Builder, x: ir.Value, begin: list[int], end: list[int]) -> ir.Value:
    if not any(begin) and not any(end):
        return x
    n = rank(x)
    begin, end = (v + [0] * (n - len(v)) for v in (begin, end))
    return b.op("Pad", x, [*begin, *end])


def _first(layer: Layer, b: Builder) -> ir.Value:
    """opset1: axes are an attribute, the input is the size of these axes; the nearest is the next one up where the size shrinks, else down."""
    a = attributes(layer, axes=list, mode=str, align_corners=True, antialias=False, pads_begin=[], pads_end=[])
    if a.mode not in ("nearest", "linear", "cubic", "area"):
        raise MappingError(f"mode={a.mode!r} is not one of the first operation set", "R110")
    x = _padded(b, operand(layer, 0), a.pads_begin, a.pads_end)
    a.coordinate_transformation_mode = "align_corners" if a.align_corners else "asymmetric"
    axes, sizes, shape = [near_axis(v, rank(x)) for v in a.axes], known(operand(layer, 1)), shape_of(x)
    grows = sizes is not None and shape is not None and all(int(n) >= shape[i] for i, n in zip(axes, sizes.reshape(-1), strict=True))
    a.nearest_mode, a.cube_coeff = "floor" if grows else "simple", -0.75
    if a.mode == "area":
        raise MappingError("mode='area' cannot be expressed")
    return resized(b, x, operand(layer, 1), axes, False, a)


def resized(b: Builder, x: ir.Value, target: ir.Value, axes: list[int], by_scales: bool, a: Any) -> ir.Value:
    coordinates = a.coordinate_transformation_mode
    smoothed = a.mode == "linear" and a.antialias
    if smoothed and rank(x) < 5:
        raise MappingError("mode='linear' with antialias: engines do not agree with the specification here")
    if smoothed or (coordinates == "tf_half_pixel_for_nn" and a.mode in ("linear", "linear_onnx", "cubic")):
        return resampled(b, x, target, axes, by_scales, a)
    sizes_of_middle = list(x.shape or ())[1:] if a.mode in ("cubic", "bicubic_pillow") and rank(x) == 4 and sorted(axes) == [1, 2] else []
    if sizes_of_middle and known(target) is not None and all(isinstance(d, int) for d in sizes_of_middle):
        return _middle(b, x, [float(v) for v in known(target).reshape(-1)[np.argsort(axes)]], by_scales, a)  # type: ignore[union-attr]
    mode, options = _mode(a)
    if mode == "nearest" and (coordinates == "tf_half_pixel_for_nn" or a.nearest_mode == "simple"):
        return _nearest(b, x, target, axes, by_scales, a)
    if coordinates not in COORDINATES:
        raise MappingError(f"coordinate_transformation_mode={coordinates!r} with mode={a.mode!r} cannot be expressed")
    scales, sizes = (b.op("Cast", target, to=1), None) if by_scales else (None, int64(b, target, flat=True))
    if by_scales and target.dtype == T.FLOAT:
        scales = target
    order = [int(i) for i in np.argsort(axes)]
    if order != list(range(len(axes))):
        scales, sizes = (None if v is None else b.op("Gather", v, order, axis=0) for v in (scales, sizes))
        axes = sorted(axes)
    source = x if is_float(x) or mode == "nearest" else b.op("Cast", x, to=1)
    scales, sizes, every = _every_axis(b, x, scales, sizes, axes)
    y = b.op("Resize", source, None, scales, sizes, axes=None if every else axes, mode=mode, coordinate_transformation_mode=coordinates, **options)
    if source is x:
        return y
    assert x.dtype is not None
    return b.op("Cast", b.op("Round", y), to=int(x.dtype))


def _middle(b: Builder, x: ir.Value, targets: list[float], by_scales: bool, a: Any) -> ir.Value:
    """Height and width of [N, H, W, C], one after the other as the first of two last axes: of others onnxruntime has no cubic modes.

    (It also takes away Transposes around a Resize, and stumbles over what it made.)
    """
    height, width, channels = (int(d) for d in list(x.shape or ())[1:])  # type: ignore[arg-type]
    made: list[int] = []
    for rows, columns, goal in ((height, width * channels, targets[0]), (width, channels, targets[1])):
        made.append(int(np.floor(np.float32(rows) * np.float32(goal))) if by_scales else int(goal))
        value = b.const(np.array([goal, 1], np.float32) if by_scales else np.array([made[-1], columns], np.int64))
        x = resized(b, b.op("Reshape", x, [-1, 1, rows, columns]), value, [2, 3], by_scales, a)
    return b.op("Reshape", x, [-1, *made, channels])


def _every_axis(b: Builder, x: ir.Value, scales: ir.Value | None, sizes: ir.Value | None, axes: list[int]) -> tuple[ir.Value | None, ir.Value | None, bool]:
    """Sizes or scales for all axes where that is known: engines stumble over a Resize of some axes next to a Transpose."""
    factors, lengths, shape = known(scales), known(sizes), shape_of(x)
    if factors is not None:
        every = np.ones(rank(x), np.float32)
        every[axes] = factors
        return b.const(every), None, True
    if lengths is not None and shape is not None:
        whole = np.array(shape, np.int64)
        whole[axes] = lengths
        return None, b.const(whole), True
    return scales, sizes, False


def _mode(a: Any) -> tuple[str, dict[str, Any]]:
    if a.mode == "nearest":
        return "nearest", {"nearest_mode": a.nearest_mode}
    if a.mode in ("linear", "linear_onnx"):
        return "linear", {}
    if a.mode == "cubic":
        return "cubic", {"cubic_coeff_a": a.cube_coeff}
    if a.mode in ("bilinear_pillow", "bicubic_pillow"):
        extra: dict[str, Any] = {"antialias": 1, "exclude_outside": 1}
        return ("linear", extra) if a.mode == "bilinear_pillow" else ("cubic", {**extra, "cubic_coeff_a": PILLOW})
    raise MappingError(f"mode={a.mode!r} is not known", "R110")


def _nearest(b: Builder, x: ir.Value, target: ir.Value, axes: list[int], by_scales: bool, a: Any) -> ir.Value:
    """What Resize has no name for: the source positions are computed here and gathered."""
    values = known(target)
    if values is None:
        raise MappingError(f"{a.coordinate_transformation_mode} {a.nearest_mode} needs a constant size")
    for axis, value in zip(axes, values.reshape(-1), strict=True):
        size = int(static(x)[axis])
        scale = float(value) if by_scales else int(value) / size
        out = int(np.floor(size * np.float32(scale))) if by_scales else int(value)
        positions = source_positions(arange(out, dtype=np.float64), scale, size, out, a.coordinate_transformation_mode)
        picked = np.clip(_rounded(positions, a.nearest_mode, scale), 0, size - 1).astype(np.int64)
        x = b.op("Gather", x, picked, axis=axis)
    return x


def source_positions(at: Any, scale: float, size: int, out: int, mode: str) -> Any:
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and out > 1):
        return (at + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return at * 0
    return at * (size - 1) / max(out - 1, 1) if mode == "align_corners" else at / scale


def _rounded(positions: Any, mode: str, scale: float) -> Any:
    if mode == "simple":
        return np.ceil(positions) if scale < 1 else np.trunc(positions)
    if mode in ("floor", "ceil"):
        return np.floor(positions) if mode == "floor" else np.ceil(positions)
    return np.ceil(positions - 0.5) if mode == "round_prefer_floor" else np.floor(positions + 0.5)


def _far_mode(a: dict[str, Any], version: int) -> str:
    if not a["antialias"]:
        if a["exclude_outside"] and a["mode"] == "cubic":
            raise MappingError("exclude_outside=1 cannot be expressed")
        return {"nearest": "nearest", "linear": "linear_onnx", "cubic": "cubic"}[a["mode"]]
    if version < 11 or a["mode"] == "nearest" or not a["exclude_outside"]:
        raise MappingError("antialias=1 with these options cannot be expressed")
    if a["mode"] == "cubic" and a["cubic_coeff_a"] != PILLOW:
        raise MappingError("antialias=1 with another curve than Pillow's cannot be expressed")
    return "bilinear_pillow" if a["mode"] == "linear" else "bicubic_pillow"


@lowers("Resize")
def lower_resize(node: Node, low: Lowering) -> None:
    a, x, e = filled(node), given(node, 0), Emit(node, low)
    scales, sizes = node.input(2), node.input(3)
    if a["keep_aspect_ratio_policy"] != "stretch" or a["coordinate_transformation_mode"] not in COORDINATES:
        raise MappingError(f"{a['coordinate_transformation_mode']} {a['keep_aspect_ratio_policy']} cannot be expressed")
    mode = _far_mode(a, low.version)
    axes = [near_axis(v, rank(x)) for v in a.get("axes") or range(rank(x))]
    if sizes is not None and (listed := known(sizes)) is not None and listed.size == 0:
        sizes = None
    if mode.endswith("_pillow") and sizes is None:
        sizes, axes = _exact(x, node.outputs[0], scales, axes), list(range(rank(x)))
    by_sizes = sizes is not None
    wanted = sizes if by_sizes else scales
    assert wanted is not None
    values: Any = known(wanted)
    if values is not None and len(axes) > 2:  # axes that stay are left out: the linear modes are made for two or three
        same = [int(v) == _size(x, i) if by_sizes else float(v) == 1.0 for i, v in zip(axes, values, strict=True)]
        keep = [i for i, s in enumerate(same) if not s] or [len(axes) - 1]
        if mode == "linear_onnx" and rank(x) > 3 and all(axes[i] > 1 for i in keep):
            keep = [i for i, axis in enumerate(axes) if axis > 1]  # all of space: of a constant it is computed so only
        elif mode != "nearest" and len(keep) == 1 and len(axes) > 1:
            keep = sorted({keep[0], len(axes) - 1 if keep[0] != len(axes) - 1 else len(axes) - 2})
        values, axes = values[keep], [axes[i] for i in keep]
        if len(axes) > AT_ONCE.get(rank(x), len(axes)):
            raise MappingError(f"{len(axes)} axes are resized at once")
    options = {
        "mode": mode, "shape_calculation_mode": "sizes" if by_sizes else "scales", "coordinate_transformation_mode": a["coordinate_transformation_mode"],
        "nearest_mode": a["nearest_mode"], "antialias": False, "pads_begin": [0], "pads_end": [0], "cube_coeff": a["cubic_coeff_a"],
    }  # fmt: skip
    target: Any = wanted if values is None else values
    if low.version >= 11:
        e.out("Interpolate", x, target, axes, **options)
    elif by_sizes:
        e.out("Interpolate", x, target, np.ones(len(axes), np.float32), axes, **options)
    else:
        e.out("Interpolate", x, np.zeros(len(axes), np.int64), target, axes, **options)


def _exact(x: ir.Value, y: ir.Value, scales: ir.Value | None, axes: list[int]) -> ir.Value:
    """The sizes of all axes in place of the factors that give just them: the runtime's weights follow from the sizes."""
    factors, before, after = known(scales), shape_of(x), shape_of(y)
    if factors is None or before is None or after is None:
        raise MappingError("antialias=1 of factors needs static shapes", "X203", "fix the shapes with --inputs")
    if any(np.float32(after[axis]) / np.float32(before[axis]) != np.float32(f) for axis, f in zip(axes, factors, strict=True)):
        raise MappingError("antialias=1 of factors that are not the ratio of the sizes")
    sizes = ir.Value(name="sizes", type=ir.TensorType(T.INT64), shape=ir.Shape([len(after)]))
    set_known(sizes, np.array(after, np.int64))
    return sizes


def _size(x: ir.Value, axis: int) -> int | None:
    found = x.shape[axis] if x.shape is not None else None
    return found if isinstance(found, int) else None
