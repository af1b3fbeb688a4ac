"""Resampling and color: resize, grids, crops."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.rules.context import LiftContext
from converter.formats.zhouyi.rules.fields import (
    CAST_TO_DECLARED,
    FOUR_AXES,
    DeclaredSize,
    constant_of,
    keys,
    word,
    words,
)
from converter.graph import CHANNELS_LAST_DOMAIN
from converter.graph.demands import above, at_least
from converter.mapping.codecs import enum
from converter.mapping.context import LowerContext, static
from converter.mapping.fields import Attr, Field, Guard, InputType
from converter.mapping.rules import op

METHODS = {"linear": "BILINEAR", "nearest": "NEAREST", "cubic": "CUBIC"}
MODES = words(
    "half_pixel align_corners asymmetric pytorch_half_pixel tf_half_pixel_for_nn "
    "half_pixel_symmetric"
)
NEAREST = words("round_prefer_floor round_prefer_ceil floor ceil")
_FLAGS = ("antialias", "exclude_outside")


class ResultSize(Field):
    """The size of the result <-> `size` and ratio_z, ratio_y, ratio_x. The declared size is read;
    the ratios are used if they give that size, since they are more precise than sizes. Scales are
    written as ratios, sizes as a size.
    """

    inputs = (1, 2, 3)
    keys = ("size", "ratio_z", "ratio_y", "ratio_x")

    def lift(self, r: LiftContext) -> None:
        x, shape = r.input(0), r.static(least=3)
        size, ratios, source = self.size(r), self.ratios(r), shape[1:-1]
        r.node.inputs = [x, None, None, r.b.const([shape[0], shape[-1], *size], "size")]
        if "size" in r.layer.attrs or not ratios:
            return
        if r.layer.attrs.get("mode") == "TF_HALF_PIXEL_FOR_NN":
            return
        if _scaled(source, [float(np.float32(v)) for v in ratios]) == size:
            r.node.inputs = [x, None, r.b.const([1.0, 1.0, *ratios], "scales")]

    def size(self, r: LiftContext) -> list[int]:
        """Return the size of the result: as given, as declared, or by the ratios."""
        declared, ratios = r.declared(), self.ratios(r)
        source = r.shape
        rank = len(source)
        given: list[int] = r.attr("size", list, [])
        at_least(1, size=given)
        if len(given) in (rank, rank - 2):
            return given[1:-1] if len(given) == rank else given
        if declared is not None and len(declared) == rank:
            return list(declared[1:-1])
        if ratios is None:
            raise MappingError("the size or the ratios must be given", "R110")
        return _scaled(source[1:-1], ratios)

    def ratios(self, r: LiftContext) -> list[float] | None:
        """Return the ratios of the spatial axes, or None unless all are given."""
        rank = len(r.shape) - 2
        given = [key for key in keys("ratio", rank) if key in r.layer.attrs]
        found = {key: r.attr(key, float) for key in given}
        above(0, **found)
        if np.inf in found.values():
            raise MappingError(f"{found} are not valid ratios", "R110")
        return list(found.values()) if len(found) == rank else None

    def lower(self, w: LowerContext) -> None:
        source, out, scales = list(w.static()), list(static(w.out)), w.optional(2)
        if not w.node.last:
            source, out = ([v[0], *v[2:], v[1]] for v in (source, out))
        if len(source) != 4 or source[0] != out[0] or source[-1] != out[-1]:
            raise MappingError("only the spatial axes of data of rank 4 can be resized")
        mode = MODES.get(w.attr("coordinate_transformation_mode"), "")
        if mode == "HALF_PIXEL_SYMMETRIC" or (mode == "ALIGN_CORNERS" and 1 in out[1:-1]):
            message = (
                f"{mode} to {out[1:-1]} is not supported: the vendor's executor "
                "computes it differently"
            )
            raise MappingError(message)
        factors = [t / s for s, t in zip(source[1:-1], out[1:-1], strict=True)]
        if scales is not None and static(scales) != (0,):
            factors = [float(v) for v in constant_of(w, 2, "the scales")[2:]]
        else:
            w.set(size=out)
        w.layer.attrs |= {"ratio_y": factors[0], "ratio_x": factors[1]}


def _scaled(size: tuple[int, ...], ratios: list[float]) -> list[int]:
    return [int(np.floor(s * v)) for s, v in zip(size, ratios, strict=True)]


class NearestMode(Field):
    """`nearest_mode`, of that method only. SIMPLE is ceil when shrinking, floor when growing.

    TF_HALF_PIXEL_FOR_NN with FLOOR, (i + 0.5) * scale rounded down without the half taken off
    again, is half_pixel rounded half up.
    """

    folds = True  # it has no effect for other methods
    names = ("nearest_mode",)
    keys = ("nearest_mode",)

    def lift(self, r: LiftContext) -> None:
        a, nearest = r.node.attrs, "round_prefer_floor"
        if a["mode"] == "nearest":
            nearest = r.attr("nearest_mode", enum(NEAREST | {"": "SIMPLE"}), nearest)
            source = r.shape[1:-1]
            shrinks = all(t <= s for t, s in zip(ResultSize().size(r), source, strict=True))
            a["nearest_mode"] = nearest or ("ceil" if shrinks else "floor")
        if a["coordinate_transformation_mode"] == "tf_half_pixel_for_nn":
            if a.get("nearest_mode") != "floor":
                message = "TF_HALF_PIXEL_FOR_NN is only supported with nearest_mode=FLOOR"
                raise MappingError(message)
            a["coordinate_transformation_mode"] = "half_pixel"
            a["nearest_mode"] = "round_prefer_ceil"

    def lower(self, w: LowerContext) -> None:
        coordinates = w.attr("coordinate_transformation_mode")
        mode, nearest = w.attr("mode"), w.attr("nearest_mode")
        if coordinates == "tf_half_pixel_for_nn" and (mode, nearest) != ("nearest", "floor"):
            raise MappingError(f"coordinate_transformation_mode={coordinates!r} is not supported")
        if mode == "nearest":
            w.set(nearest_mode=NEAREST[w.attr("nearest_mode")])


class BothWays(Field):
    """A Resize with SIMPLE that shrinks one axis and enlarges another: the first is resampled
    separately.
    """

    def lift(self, r: LiftContext) -> None:
        a, source, size = r.node.attrs, r.shape, ResultSize().size(r)
        smaller = [t < s for t, s in zip(size, source[1:-1], strict=True)]
        simple = str(r.layer.attrs.get("nearest_mode")).upper() == "SIMPLE"
        if a["mode"] != "nearest" or not simple or len(set(smaller)) == 1:
            return
        first = [t if less else s for t, s, less in zip(size, source[1:-1], smaller, strict=True)]
        sizes = [r.b.const([source[0], source[-1], *v], "size") for v in (first, size)]
        attrs = {k: a[k] for k in ("mode", "coordinate_transformation_mode")}
        attrs |= {"nearest_mode": "ceil", "domain": CHANNELS_LAST_DOMAIN}
        x = r.b.op("Resize", r.input(0), None, None, sizes[0], **attrs)
        r.node.inputs = [x, None, None, sizes[1]]


class Plain(Field):
    """Flags that are read, and always written as false."""

    names = ("antialias", "exclude_outside", "axes", "keep_aspect_ratio_policy")
    keys = _FLAGS

    def lift(self, r: LiftContext) -> None:
        if any(r.layer.attrs.get(k) for k in _FLAGS):
            r.node.attrs |= {k: r.attr(k, bool, 0) for k in _FLAGS}

    def lower(self, w: LowerContext) -> None:
        policy = w.attr("keep_aspect_ratio_policy")
        if any(w.attr(k, 0) for k in (*_FLAGS, "axes")) or policy != "stretch":
            message = (
                "antialias, exclude_outside, axes and keep_aspect_ratio_policy are not supported"
            )
            raise MappingError(message)
        w.set(antialias=False, exclude_outside=False)


class Coefficients(Field):
    """`cubic_coeff_a` and `extrapolation_value`, which belong to methods that are not written."""

    names = ("cubic_coeff_a", "extrapolation_value")
    keys = ("cubic_coeff_a", "extrapolation_value")


def _is_run(w: LowerContext) -> bool:
    method, border = w.attr("mode"), w.attr("padding_mode")
    return method in ("linear", "bilinear", "nearest") and border != "reflection"


class GridSize(Field):
    """[N, C, H, W]: a constant input <-> `size`, else from the declared output N, H, W, 2."""

    inputs = (1,)
    keys = ("size",)

    def lift(self, r: LiftContext) -> None:
        declared = r.declared()
        default = (
            () if declared is None or len(declared) < 2 else ([declared[0], 1, *declared[1:-1]],)
        )
        r.set_input(1, r.attr("size", list, *default))

    def lower(self, w: LowerContext) -> None:
        w.set(size=w.ints(1, "the size"))


class Coefficient(Field):
    """15 coefficients, written with the keys that declare them as custom."""

    names = ("coefficient", "shift")
    keys = ("coefficient", "coefficient_shift", "bits", "conversion", "shape", "coefficient_dtype")

    def lift(self, r: LiftContext) -> None:
        values, shift = r.number_list("coefficient", 15), r.attr("coefficient_shift", int, 0)
        r.node.attrs |= {"coefficient": values, "shift": shift}

    def lower(self, w: LowerContext) -> None:
        w.layer.attrs["coefficient"] = [float(v) for v in w.attr("coefficient")]
        w.set(bits=8, conversion="SELF", coefficient_shift=int(w.attr("shift")))
        w.set(shape=list(static(w.out)))


FORMAT = word("format", "format", words("I420 YV12 NV12 NV21"), default="I420")
COLOR = (InputType((0,), ir.DataType.FLOAT), Coefficient(), FORMAT, CAST_TO_DECLARED)
KNOWN = Guard(
    "mode='cubic' is not supported (only BILINEAR and NEAREST)",
    lambda w: w.attr("mode") != "cubic",
)
RUN = Guard(
    "BICUBIC and REFLECTION are not supported: the vendor's executor silently "
    "computes bilinear and zeros instead",
    _is_run,
)
GRID_METHODS = {"linear": "BILINEAR", "nearest": "NEAREST", "cubic": "BICUBIC"}
BORDERS = words("zeros border reflection")
ALIGNED = Attr("align_corners", kind=bool, default=0)

RULES = [
    op(
        "Resize",
        "Resize",
        KNOWN,
        Plain(),
        word("mode", "method", METHODS),
        word("coordinate_transformation_mode", "mode", MODES, default="half_pixel"),
        NearestMode(),
        ResultSize(),
        BothWays(),
        Coefficients(),
        example_inputs="1,4,8,8 ? =[1,1,2,0.5]",
    ),
    op(
        "GridSample",
        "GridSample",
        FOUR_AXES,
        RUN,
        word("mode", "method", GRID_METHODS, default="linear"),
        word("padding_mode", "padding_mode", BORDERS, default="zeros"),
        ALIGNED,
        example_inputs="1,2,4,4 1,3,3,2",
    ),
    op(
        "AffineGrid",
        "AffineGrid",
        GridSize(),
        ALIGNED,
        lift_only=True,
        example_inputs="2,2,3 =[2,1,4,5]",
    ),
    op(
        "netconv::CropAndResize",
        "CropAndResize",
        word("method", "method", words("BILINEAR NEAREST")),
        Attr("crop_size", kind=list),
        Attr("extrapolation_value", kind=float, default=0.0),
        example_inputs="1,4,8,8 2,4 i32:2",
    ),
    op("netconv::RgbToYuv", "RgbToYuv", *COLOR, example_inputs="1,4,4,3"),
    op(
        "netconv::YuvToRgb",
        "YuvToRgb",
        *COLOR,
        DeclaredSize("height", axis=1),
        DeclaredSize("width", axis=2),
        example_inputs="1,24",
    ),
]
