"""Interpolate <-> Resize, and color space conversions of images."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.openvino.fields import dim
from converter.formats.openvino.opset.rules.context import LiftContext, LowerContext
from converter.formats.openvino.opset.rules.fields import RESIZED_AT_ONCE, is_float
from converter.graph.build import defaults
from converter.graph.demands import at_least, axis_of
from converter.graph.infer import Array, known, set_known, shape_of
from converter.graph.interpolation import coordinates
from converter.graph.sizes import arange
from converter.graph.value import Value
from converter.mapping.context import FIX_INPUTS
from converter.mapping.fields import Attr, RequireAttr
from converter.mapping.rules import Custom, Rule, custom, op
from converter.passes.decompositions.resizing import along_axis, weights

T = ir.DataType
COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
# the runtime has Pillow's curve and ignores cube_coeff, and preprocessing counts on that: it
# writes -0.75
PILLOW = -0.5


# reading -----------------------------------------------------------------------------------------


def lift_interpolate(r: LiftContext) -> ir.Value:
    """Lift Interpolate of any version."""
    if r.version < 4:
        return _first(r)
    a = r.attributes(
        mode=str,
        shape_calculation_mode=str,
        coordinate_transformation_mode="half_pixel",
        nearest_mode="round_prefer_floor",
        antialias=False,
        pads_begin=[],
        pads_end=[],
        cube_coeff=-0.75,
    )
    x = _padded(r, a.pads_begin, a.pads_end)
    rank, by_scales = r.rank(x), a.shape_calculation_mode == "scales"
    target = r.input(1 if r.version >= 11 or not by_scales else 2)
    axes_at = 2 if r.version >= 11 else 3
    listed = range(rank) if r.optional(axes_at) is None else r.ints(axes_at, "the axes")
    axes = [axis_of(v, rank) for v in listed]
    if by_scales and a.mode.endswith("_pillow"):
        # whose weights follow from the sizes, independent of the scales
        target, by_scales = _scaled(r, x, target, axes), False
    return resized(r, x, target, axes, by_scales, a)


def _scaled(r: LiftContext, x: ir.Value, scales: ir.Value, axes: list[int]) -> Value:
    """Return the sizes that factors give, in float32 and rounded down."""
    sizes = r.b.Gather(r.cast(r.b.Shape(x), T.FLOAT), axes, axis=0)
    factors = r.b.Reshape(r.b.Cast(scales, to=T.FLOAT), [-1])
    return r.b.Cast(r.b.Floor(sizes * factors), to=T.INT64)


def _padded(r: LiftContext, begin: list[int], end: list[int]) -> Value:
    x = r.input(0)
    if not any(begin) and not any(end):
        return x
    begin, end = (v + [0] * (r.rank(x) - len(v)) for v in (begin, end))
    return r.b.Pad(x, [*begin, *end])


def _first(r: LiftContext) -> ir.Value:
    """Read opset1: axes are an attribute, the input is the size of these axes. Mode nearest rounds
    up where the size shrinks, else down.
    """
    a = r.attributes(
        axes=list, mode=str, align_corners=True, antialias=False, pads_begin=[], pads_end=[]
    )
    if a.mode not in ("nearest", "linear", "cubic", "area"):
        raise MappingError(f"mode={a.mode!r} is not supported in opset1", "R110")
    if a.mode == "area":
        raise MappingError("mode='area' is not supported")
    x = _padded(r, a.pads_begin, a.pads_end)
    a.coordinate_transformation_mode = "align_corners" if a.align_corners else "asymmetric"
    axes = [axis_of(v, r.rank(x)) for v in a.axes]
    sizes, shape = _goals(r.input(1), axes), shape_of(x)
    grows = False
    if sizes is not None and shape is not None:
        grows = all(int(n) >= shape[i] for i, n in zip(axes, sizes, strict=True))
    a.nearest_mode, a.cube_coeff = "floor" if grows else "simple", -0.75
    return resized(r, x, r.input(1), axes, False, a)


def _goals(target: ir.Value, axes: list[int]) -> Array | None:
    """Return the sizes or scales of the axes, None if they are computed.

    Raise MappingError R105 if there is not one for each axis, R110 if one is negative.
    """
    found = known(target)
    if found is None:
        return None
    if found.size != len(axes):
        raise MappingError(f"{found.size} sizes are given for {len(axes)} axes", "R105")
    at_least(0, sizes=found.reshape(-1).tolist())
    return found.reshape(-1)


def resized(
    r: LiftContext, x: Value, target: ir.Value, axes: list[int], by_scales: bool, a: SimpleNamespace
) -> ir.Value:
    """Resize the `axes` of x to the sizes, or by the scales, of `target`; `a` are the attributes of
    opset4.
    """
    rule, smoothed = a.coordinate_transformation_mode, a.mode == "linear" and a.antialias
    if smoothed and r.rank(x) < 5:
        message = (
            "mode='linear' with antialias is not supported: engines contradict the specification"
        )
        raise MappingError(message)
    own_rule = rule == "tf_half_pixel_for_nn" and not a.mode.endswith("_pillow")
    if smoothed or own_rule or (a.mode, a.nearest_mode) == ("nearest", "simple"):
        return resampled(r, x, target, axes, by_scales, a)
    goal = _goals(target, axes)
    if goal is not None and _of_the_middle(x, axes, a.mode):
        goals = [float(v) for v in goal[np.argsort(axes)]]
        return _middle(r, x, goals, by_scales, a)
    mode, options = _mode(a)
    if rule not in COORDINATES:
        how = f"coordinate_transformation_mode={rule!r} with mode={a.mode!r}"
        raise MappingError(f"{how} is not supported")
    source = x if is_float(x) or mode == "nearest" else r.b.Cast(x, to=1)
    scales, sizes, chosen = _wanted(r, x, target, axes, by_scales)
    options |= {"mode": mode, "coordinate_transformation_mode": rule, "axes": chosen}
    return _typed(r, x, r.b.Resize(source, None, scales, sizes, **options))


def _typed(r: LiftContext, x: ir.Value, y: ir.Value) -> ir.Value:
    """Return y in the type of x; integers are rounded."""
    if y.dtype == x.dtype or x.dtype is None:
        return y
    return r.b.Cast(r.b.Round(y), to=x.dtype)


def _wanted(
    r: LiftContext, x: Value, target: ir.Value, axes: list[int], by_scales: bool
) -> tuple[ir.Value | None, ir.Value | None, list[int] | None]:
    """Return scales, sizes, and the axes in order; None for all axes. Axes are listed if they are
    known, since engines fail on a Resize of some axes next to a Transpose.
    """
    b, order, goal = r.b, [int(i) for i in np.argsort(axes)], _goals(target, axes)
    if by_scales:
        wanted = r.cast(target, T.FLOAT)
    else:
        wanted = r.cast(target, T.INT64)
        wanted = wanted if r.rank(wanted) == 1 else b.Reshape(wanted, [-1])
    if order != list(range(len(axes))):
        wanted = b.Gather(wanted, order, axis=0)
    chosen: list[int] | None = sorted(axes)
    shape = (1,) * r.rank(x) if by_scales else shape_of(x)
    if goal is not None and shape is not None:
        whole = np.array(shape, np.float32 if by_scales else np.int64)
        whole[axes] = goal
        wanted, chosen = b.const(whole), None
    return (wanted, None, chosen) if by_scales else (None, wanted, chosen)


def _of_the_middle(x: ir.Value, axes: list[int], mode: str) -> bool:
    """Return whether height and width of [N, H, W, C] get a cubic mode."""
    if mode not in ("cubic", "bicubic_pillow") or sorted(axes) != [1, 2] or x.shape is None:
        return False
    return len(x.shape) == 4 and all(isinstance(d, int) for d in list(x.shape)[1:])


def _middle(
    r: LiftContext, x: ir.Value, targets: list[float], by_scales: bool, a: SimpleNamespace
) -> ir.Value:
    """Resize height and width of [N, H, W, C], each transposed to the first of the last two axes.
    onnxruntime has no cubic modes for other axes. (It also removes Transposes around a Resize, and
    then fails on the result.)
    """
    height, width, channels = (int(d) for d in list(x.shape or ())[1:])  # type: ignore[arg-type]
    made: list[int] = []
    planes = ((height, width * channels, targets[0]), (width, channels, targets[1]))
    for rows, columns, goal in planes:
        made.append(_size_of(rows, goal, by_scales))
        wanted = np.array([goal, 1], np.float32) if by_scales else np.array([made[-1], columns])
        plane = r.b.Reshape(x, [-1, 1, rows, columns])
        x = resized(r, plane, r.b.const(wanted), [2, 3], by_scales, a)
    return r.b.Reshape(x, [-1, *made, channels])


def _size_of(size: int, goal: float, by_scales: bool) -> int:
    """Return the size that an axis gets: `goal` is it, or a factor."""
    return int(np.floor(np.float32(size) * np.float32(goal))) if by_scales else int(goal)


def _mode(a: SimpleNamespace) -> tuple[str, dict[str, Any]]:
    """Return the mode of Resize, and the attributes that belong to it."""
    pillow: dict[str, Any] = {"antialias": 1, "exclude_outside": 1}
    modes: dict[str, tuple[str, dict[str, Any]]] = {
        "nearest": ("nearest", {"nearest_mode": a.nearest_mode}),
        "linear": ("linear", {}),
        "linear_onnx": ("linear", {}),
        "cubic": ("cubic", {"cubic_coeff_a": a.cube_coeff}),
        "bilinear_pillow": ("linear", pillow),
        "bicubic_pillow": ("cubic", {**pillow, "cubic_coeff_a": PILLOW}),
    }
    if a.mode not in modes:
        raise MappingError(f"mode={a.mode!r} is not known", "R110")
    return modes[a.mode]


# modes that Resize does not have
# ---------------------------------------------------------------------


def _steps(
    r: LiftContext, x: Value, target: ir.Value, axes: list[int], by_scales: bool, what: str
) -> list[tuple[int, int, int, float]]:
    """Return axis, size before, size after and scale of each axis, which must be known."""
    goals = _goals(target, axes)
    if goals is None:
        raise MappingError(f"{what} needs a constant size")
    found, shape = [], r.static(x)
    for axis, goal in zip(axes, goals, strict=True):
        size = int(shape[axis])
        scale = float(goal) if by_scales else int(goal) / size
        found.append((axis, size, _size_of(size, goal, by_scales), scale))
    return found


def resampled(
    r: LiftContext, x: Value, target: ir.Value, axes: list[int], by_scales: bool, a: SimpleNamespace
) -> ir.Value:
    """Resample axis by axis, by selecting elements or by a product with a matrix: in these modes
    every weight is a product of one weight for each axis.
    """
    picks = a.mode == "nearest"
    what = (
        f"{a.coordinate_transformation_mode} {a.nearest_mode}"
        if picks
        else f"mode={a.mode!r} with these options"
    )
    y = x if picks or is_float(x) else r.b.Cast(x, to=T.FLOAT)
    for axis, size, out, scale in _steps(r, x, target, axes, by_scales, what):
        if picks or out != size or scale != 1:
            y = along_axis(r.b, y, _weights(a, size, out, scale), axis, r.rank(x))
    return _typed(r, x, y)


def _weights(a: SimpleNamespace, size: int, out: int, scale: float) -> Array:
    """Return the weights [out, size] of the mode, as OpenVINO's specification of Interpolate
    defines them.
    """
    rule = a.coordinate_transformation_mode
    if a.mode == "nearest" and a.nearest_mode == "simple":
        a = SimpleNamespace(**{**vars(a), "nearest_mode": "ceil" if scale < 1 else "floor"})
    if a.mode != "linear" or not a.antialias:
        mode, options = _mode(a)
        attrs = {**defaults("Resize"), **options, "mode": mode}
        attrs["coordinate_transformation_mode"] = rule
        return weights(attrs, size, out, scale)
    at, places = coordinates(rule, size, out, scale)[:, None], arange(size)[None, :]
    found = np.maximum(0, 1 - scale * np.abs(at - places))
    total = found.sum(1, keepdims=True)
    return np.asarray(np.where(total == 0, 0, found / np.where(total == 0, 1, total)))


# writing -----------------------------------------------------------------------------------------


def _mode_to_write(w: LowerContext) -> str:
    mode = w.attr("mode")
    if not w.attr("antialias"):
        if w.attr("exclude_outside") and mode == "cubic":
            raise MappingError("exclude_outside=1 is not supported")
        return "linear_onnx" if mode == "linear" else str(mode)
    if w.version < 11 or mode == "nearest" or not w.attr("exclude_outside"):
        raise MappingError("antialias=1 with these options is not supported")
    if mode == "cubic" and w.attr("cubic_coeff_a") != PILLOW:
        raise MappingError("antialias=1 is only supported with Pillow's curve")
    return "bilinear_pillow" if mode == "linear" else "bicubic_pillow"


def lower_resize(w: LowerContext) -> None:
    """Write a Resize by sizes or scales. Raises MappingError if more axes change than the runtime
    resizes at once.
    """
    x, rank, scales, sizes = w.data, w.rank(), w.optional(2), w.optional(3)
    policy = w.attr("keep_aspect_ratio_policy")
    rule = w.attr("coordinate_transformation_mode")
    if policy != "stretch" or rule not in COORDINATES:
        raise MappingError(f"{rule} {policy} is not supported")
    mode = _mode_to_write(w)
    axes = [axis_of(v, rank) for v in w.attr("axes", None) or range(rank)]
    listed = known(sizes)
    if listed is not None and listed.size == 0:
        sizes = None
    if mode.endswith("_pillow") and sizes is None:
        sizes, axes = _exact(x, w.out, scales, axes), list(range(rank))
    wanted = sizes if sizes is not None else scales
    assert wanted is not None
    target: Any = known(wanted)
    if target is None:
        target = wanted
    elif len(axes) > 2:
        keep = _axes_to_write(x, axes, target, sizes is not None, mode)
        target, axes = target[keep], [axes[i] for i in keep]
        if len(axes) > RESIZED_AT_ONCE.get(rank, len(axes)):
            raise MappingError(f"{len(axes)} axes cannot be resized at once")
    operands = [x, target, axes]
    if w.version < 11 and sizes is not None:
        operands.insert(2, np.ones(len(axes), np.float32))
    elif w.version < 11:
        operands.insert(1, np.zeros(len(axes), np.int64))
    w.put(
        "Interpolate",
        *operands,
        mode=mode,
        shape_calculation_mode="scales" if sizes is None else "sizes",
        coordinate_transformation_mode=rule,
        nearest_mode=w.attr("nearest_mode"),
        antialias=False,
        pads_begin=[0],
        pads_end=[0],
        cube_coeff=w.attr("cubic_coeff_a"),
    )


def _axes_to_write(
    x: ir.Value, axes: list[int], target: Array, by_sizes: bool, mode: str
) -> list[int]:
    """Return positions in `axes`: unchanged axes are omitted, as the linear modes support two or
    three.
    """
    rank = len(x.shape or ())
    pairs = list(zip(axes, target, strict=True))
    same = [int(v) == dim(x, i) if by_sizes else float(v) == 1.0 for i, v in pairs]
    keep = [i for i, s in enumerate(same) if not s]
    if mode == "linear_onnx" and rank > 3 and all(axes[i] > 1 for i in keep):
        # all of space: of a constant it is computed so only
        return [i for i, axis in enumerate(axes) if axis > 1]
    unchanged = [i for i, s in enumerate(same) if s]
    missing = max(0, (1 if mode == "nearest" else 2) - len(keep))
    return sorted([*keep, *unchanged[::-1][:missing]])


def _exact(x: ir.Value, y: ir.Value, scales: ir.Value | None, axes: list[int]) -> ir.Value:
    """Return the sizes of all axes, instead of factors that give these sizes: the runtime computes
    its weights from the sizes.
    """
    factors, before, after = known(scales), shape_of(x), shape_of(y)
    if factors is None or before is None or after is None:
        raise MappingError("antialias=1 with scales needs static shapes", "X203", FIX_INPUTS)
    ratios = [np.float32(after[axis]) / np.float32(before[axis]) for axis in axes]
    if any(ratio != np.float32(f) for ratio, f in zip(ratios, factors, strict=True)):
        raise MappingError("antialias=1 needs scales that are the ratio of the sizes")
    sizes = ir.Value(name="sizes", type=ir.TensorType(T.INT64), shape=ir.Shape([len(after)]))
    set_known(sizes, np.array(after, np.int64))
    return sizes


# colors -----------------------------------------------------------------------------------------


class OnePlane(Attr):
    """`single`: the planes are stacked in one output; otherwise brightness and colors are two
    outputs.
    """

    def lift(self, r: LiftContext) -> None:
        super().lift(r)
        r.outputs = 1 if r.node.attrs[self.name] else 2

    def lower(self, w: LowerContext) -> None:
        super().lower(w)
        if not w.attr(self.name) and len(w.layer.outputs) < 2:
            w.layer.outputs.append(w.temporary("plane", w.data.dtype))


ORDERS = ("RGB", "BGR")
RULES: list[Rule | Custom] = [
    custom("Resize", "Interpolate", lift_interpolate, lower_resize),
    *(
        op(
            "netconv::PlanesToColor",
            f"{planes}to{order}",
            RequireAttr("order", order),
            RequireAttr("pairs", int(planes == "NV12")),
            since=8,
            example_inputs="1,12,8,1",
        )
        for planes in ("NV12", "I420")
        for order in ORDERS
    ),
    *(
        op(
            "netconv::ColorToPlanes",
            f"{order}toNV12",
            RequireAttr("order", order),
            OnePlane("single", "single_plane", bool, 1),
            since=17,
            example_inputs="1,8,8,3",
        )
        for order in ORDERS
    ),
]
