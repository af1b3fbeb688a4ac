"""Resizing, cropping and sampling of images."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.coreml.mlprogram.rules.context import LiftContext, LowerContext
from converter.formats.coreml.mlprogram.rules.fields import listed, mil
from converter.graph.demands import above, at_least
from converter.graph.infer import constant, known
from converter.graph.interpolation import between, rounded_down
from converter.graph.sizes import arange
from converter.graph.symbolic import dimensions
from converter.graph.symbolic import sizes_of as symbolic_sizes
from converter.graph.value import Value, array_type
from converter.graph.windows import FIX
from converter.mapping.codecs import Codec, enum
from converter.mapping.concepts.resize import (
    Rule,
    Sampling,
    choose_rule,
    half_pixel_rule,
    sampling_of,
    spatial_results,
)
from converter.mapping.fields import Attr, Field, Guard, RequireAttr, RequireKey
from converter.mapping.rules import Custom, custom
from converter.mapping.rules import Rule as Row

MODES = {
    "STRICT_ALIGN_CORNERS": "align_corners",
    "ALIGN_CORNERS": "align_corners",
    "DEFAULT": "asymmetric",
    "UNALIGN_CORNERS": "half_pixel",
}
TARGET = ("target_size_height", "target_size_width")
IOS16 = 7  # the first version with a value for samples outside of an image
IOS17 = 8  # the first version with sizes that are computed
SAMPLING = {
    "STRICT_ALIGN_CORNERS": "strict_align_endpoints",
    "ALIGN_CORNERS": "align_endpoints",
    "DEFAULT": "upsample",
    "OFFSET_CORNERS": "roi_align",
}


def sized(r: LiftContext, x: Value, size: list[int | None], linear: bool, rule: str) -> Value:
    """Resize the last axes to the given sizes (None: unchanged) by ONNX's coordinate rule."""
    b, rank = r.b, r.rank(x)
    own = b.Shape(x)
    first = rank - len(size)
    lengths = [own[i : i + 1] if n is None else [n] for i, n in enumerate(size, first)]
    sizes = b.Concat(own[:first], *lengths, axis=0)
    array = known(sizes)
    operand = sizes if array is None else b.const(array, "sizes")
    return b.Resize(x, None, None, operand, **resize_attributes(linear, rule))


def resize_attributes(linear: bool, rule: str) -> dict[str, str]:
    """Return the attributes of a Resize by ONNX's rule for coordinates."""
    rounding = (
        {} if linear else {"nearest_mode": "floor" if rule == "asymmetric" else "round_prefer_ceil"}
    )
    mode = "linear" if linear else "nearest"
    return {"mode": mode, "coordinate_transformation_mode": rule, **rounding}


def bilinear(r: LiftContext, x: Value, size: list[int | None], mode: str) -> Value:
    """Resize each axis with the sampling grid of the mode, where ONNX has no such rule."""
    if mode not in (*MODES, "OFFSET_CORNERS"):
        raise MappingError(f"sampling_mode {mode!r} is not known", "R110")
    if mode == "OFFSET_CORNERS" or (mode == "ALIGN_CORNERS" and 1 in size):
        for i, m in enumerate(size):
            axis = r.rank(x) - len(size) + i
            n = r.static(x)[axis]
            if m is None or (mode == "ALIGN_CORNERS" and m == n == 1):
                continue
            at_least(1, target_size=m)
            if mode == "OFFSET_CORNERS":
                step = max(1, n - 1) / m
                places = (arange(m) + 0.5) * step
            else:
                places = np.full(1, (n - 1) / 2) if m == 1 else arange(m) * (n - 1) / (m - 1)
            x = between(r.b, x, axis, places)
        return x
    return sized(r, x, size, True, MODES[mode])


def resize_bilinear(r: LiftContext) -> Value:
    """Lift a linear resize to target sizes."""
    size: list[int | None] = [r.attr(k, int, 1) for k in TARGET]
    return bilinear(r, r.x, size, r.attr("sampling_mode", str, "DEFAULT"))


def resize_nearest(r: LiftContext) -> Value:
    """Lift a resize to the nearest element with target sizes."""
    size: list[int | None] = [r.attr(k, int) for k in TARGET]
    return sized(r, r.x, size, False, "half_pixel")


def resize(r: LiftContext) -> Value:
    """Resize the last axes; a size of 0 leaves an axis unchanged."""
    x, mode = r.x, r.attr("sampling_mode", str, "DEFAULT")
    count = int(r.array("resized_dims").reshape(-1)[0])
    word = r.attr("interpolation_mode", str, "LINEAR")
    linear = word == "LINEAR"
    if not linear and (word != "NEAREST_NEIGHBOR" or mode != "DEFAULT"):
        raise MappingError(f"{word} with sampling_mode={mode!r} is not supported", "X202")
    target = r.value("shape")
    if constant(target) is None:
        return computed_size(r, x, r.whole(target), count, linear, mode)
    size = [n or None for n in listed(r, "shape") or []][-count:]
    return bilinear(r, x, size, mode) if linear else sized(r, x, size, False, "half_pixel")


def computed_size(
    r: LiftContext, x: Value, target: Value, count: int, linear: bool, mode: str
) -> Value:
    """Return the sizes of the last `count` axes, which are known only at run time."""
    if linear and mode not in ("DEFAULT", "STRICT_ALIGN_CORNERS", "UNALIGN_CORNERS"):
        message = f"sampling_mode={mode!r} with computed sizes is not supported"
        raise MappingError(message, "X202")
    b, first = r.b, r.rank(x) - count
    own = b.Shape(x)
    last = b.Slice(target, [-count], [np.iinfo(np.int64).max], [0])
    last = b.Where(b.Equal(last, b.like(last, 0)), own[first:], last)
    sizes = b.Concat(own[:first], last, axis=0) if first else last
    rule = MODES[mode] if linear else "half_pixel"
    return b.Resize(x, None, None, sizes, **resize_attributes(linear, rule))


def upsampled(r: LiftContext, linear: bool, rule: str) -> Value:
    """Resize by factors, with sizes rounded down; the coordinates follow from the sizes, not from
    the factors.
    """
    x = r.x
    factors = [r.attr(f"scale_factor_{k}", float, 1.0) for k in ("height", "width")]
    above(0, scale_factor=factors)
    if r.rank(x) < 2:
        raise MappingError("the input must have height and width", "R105")
    shape = list(x.shape or ())[-2:]
    if all(isinstance(n, int) for n in shape):
        pairs = zip(shape, factors, strict=True)
        size: list[int | None] = [int(np.floor(int(n) * np.float32(f))) for n, f in pairs]  # type: ignore[arg-type]
        return sized(r, x, size, linear, rule)
    scales = np.array([*[1.0] * (r.rank(x) - 2), *factors], np.float32)
    if (scales == np.floor(scales)).all():
        return r.b.Resize(x, None, scales, **resize_attributes(linear, rule))
    sizes = r.b.Floor(r.b.Cast(r.b.Shape(x), to=ir.DataType.FLOAT) * scales)
    sizes = r.b.Cast(sizes, to=ir.DataType.INT64)
    return r.b.Resize(x, None, None, sizes, **resize_attributes(linear, rule))


def upsample_bilinear(r: LiftContext) -> Value:
    """Lift a linear upsampling by factors, at the coordinates that its flags select."""
    corners = r.attr("align_corners", bool, True)
    half = r.attr("half_pixel_centers", bool, not corners)
    rule = "align_corners" if corners else "half_pixel" if half else "asymmetric"
    return upsampled(r, True, rule)


def upsample_nearest(r: LiftContext) -> Value:
    """Lift an upsampling by repeated elements."""
    return upsampled(r, False, "asymmetric")


SAMPLINGS = {Rule("linear", rule): mode for mode, rule in reversed(MODES.items())}
HALF_PIXELS = Rule("nearest", "half_pixel", "round_prefer_ceil")


def write_bilinear(w: LowerContext) -> None:
    """Write a linear Resize to static sizes, with the sampling mode of its coordinates."""
    wanted = sampling_of(w)
    sampling = SAMPLINGS[choose_rule(wanted, tuple(SAMPLINGS))]
    size = dict(zip(TARGET, sizes_of(wanted), strict=True))
    w.operation("resize_bilinear", x=w.data, **size, sampling_mode=sampling)


def write_nearest(w: LowerContext) -> None:
    """Write a Resize to the nearest element with static sizes; it supports half pixels only."""
    wanted = sampling_of(w)
    choose_rule(wanted, (HALF_PIXELS,))
    size = dict(zip(TARGET, sizes_of(wanted), strict=True))
    w.operation("resize_nearest_neighbor", x=w.data, **size)


def sizes_of(wanted: Sampling) -> list[int]:
    """Return the target sizes of the two spatial axes. Raises MappingError X203 if they are
    dynamic.
    """
    if wanted.dynamic:
        raise MappingError("the sizes of the image must be static", "X203", FIX)
    return [m for _, m, _ in wanted.sides]


def write_upsampled(w: LowerContext) -> None:
    """Write a Resize by integer factors for any image size, or by other factors if sizes are
    rounded down and determine the coordinates.
    """
    given, sized = w.optional(2), rounded_down(w.data, w.optional(3))
    factors = sized if given is None else w.constant(2, "the factors").reshape(-1)
    if w.rank() != 4 or factors is None or len(factors) != 4 or (factors[:2] != 1).any():
        raise MappingError("only scales of the last two of four axes are supported")
    whole = (factors >= 1).all() and (factors == np.floor(factors)).all()
    if w.attr("keep_aspect_ratio_policy") != "stretch":
        raise MappingError("keep_aspect_ratio_policy is not supported")
    if (sized is None and not whole) or w.attr("antialias", 0):
        raise MappingError("fractional scales and antialiasing are not supported")
    names = ("scale_factor_height", "scale_factor_width")
    scales = {k: np.float32(f) for k, f in zip(names, factors[2:], strict=True)}
    rule, mode = coordinates_of(w), w.attr("mode")
    nearest = (rule, w.attr("nearest_mode"))
    rounded = [("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")]
    if mode == "linear" and rule in ("half_pixel", "align_corners"):
        corners = rule == "align_corners"
        w.operation("upsample_bilinear", x=w.data, **scales, align_corners=corners)
    elif mode == "nearest" and nearest in [("asymmetric", "floor"), *(rounded if whole else [])]:
        w.operation("upsample_nearest_neighbor", x=w.data, **scales)
    else:
        raise MappingError(
            f"mode={mode!r} with coordinate_transformation_mode={rule!r} is not supported"
        )


def coordinates_of(w: LowerContext) -> str:
    """Return the coordinate rule; that for a single element only if a result may have it."""
    return half_pixel_rule(w.attr("coordinate_transformation_mode"), spatial_results(w))


def write_computed_size(w: LowerContext) -> None:
    """Write a Resize of the last two axes to computed sizes, which determine the coordinates."""
    sizes, axes = w.optional(3), w.attr("axes", None) or list(range(w.rank()))
    if sizes is None or w.rank() != 4 or len(axes) < 2 or list(axes)[-2:] != [2, 3]:
        raise no_match("other than computed sizes of the last two of four axes")
    own, wanted = dimensions(w.data), symbolic_sizes(sizes)
    if len(axes) == 4 and (own is None or wanted is None or own[:2] != wanted[:2]):
        raise MappingError("resize supports only the last two axes")
    if w.attr("keep_aspect_ratio_policy") != "stretch" or w.attr("antialias", 0):
        raise MappingError("resize does not support antialiasing or keeping the aspect ratio")
    rule, mode = coordinates_of(w), w.attr("mode")
    if mode == "nearest":
        if (rule, w.attr("nearest_mode")) != HALF_PIXELS[1:]:
            raise MappingError(
                f"computed sizes need other coordinates than {rule!r} in mode {mode!r}"
            )
        options = {"interpolation_mode": "NEAREST_NEIGHBOR", "sampling_mode": "DEFAULT"}
    else:
        sampling = SAMPLINGS.get(Rule(mode, rule))
        if sampling is None or rule == "align_corners":
            raise MappingError(
                f"computed sizes need other coordinates than {rule!r} in mode {mode!r}"
            )
        options = {"interpolation_mode": "LINEAR", "sampling_mode": sampling}
    if w.version < IOS17:
        raise MappingError("resize needs iOS17", "X206")
    target = sizes
    if len(axes) > 2:
        first = len(axes) - 2
        target = w.made("slice_by_index", sizes.dtype, [2], x=sizes, begin=[first], end=[len(axes)])
    w.operation("resize", x=w.data, shape=target, resized_dims=np.uint32(2), **options)


# regions -----------------------------------------------------------------------------------------


def crop_resize(r: LiftContext) -> Value:
    """Sample regions of images. Boxes are [N,1,4 or 5,1,1] before iOS17, then [N,4] with an operand
    for the image of each box.
    """
    b = r.b
    x, late = r.x, r.has("boxes")
    boxes = r.value("boxes" if late else "roi")
    mode = r.attr("sampling_mode" if r.has("sampling_mode") else "sampling", str, "DEFAULT")
    if mode not in SAMPLING:
        raise MappingError(f"regions with sampling_mode={mode!r} are not supported", "X202")
    x, boxes = (b.Cast(v, to=ir.DataType.FLOAT) for v in (x, boxes))
    if late:
        if r.has("box_indices"):
            numbers = b.Cast(r.value("box_indices"), to=boxes.dtype or ir.DataType.FLOAT)
        else:
            line = b.Range(0, b.Gather(b.Shape(boxes), 0), 1)
            numbers = b.Cast(line, to=boxes.dtype or ir.DataType.FLOAT)
        boxes = b.Concat(b.Reshape(numbers, [-1, 1]), boxes, axis=1)
        boxes = b.Reshape(boxes, [-1, 1, 5, 1, 1])
    y = b.CropResize(
        b.Unsqueeze(x, [0]),
        boxes,
        size=[r.attr("target_height", int, 1), r.attr("target_width", int, 1)],
        sampling=SAMPLING[mode],
        coordinates=r.attr("box_coordinate_mode", str, "CORNERS_HEIGHT_FIRST").lower(),
        normalized=int(r.attr("normalized_coordinates", bool, False)),
        spatial_scale=r.attr("spatial_scale", float, 1.0),
        extrapolate=int(r.version >= IOS16),
        extrapolation_value=r.attr("pad_value", float, 0.0),
    )
    return b.Squeeze(y, [1]) if late else y


# sampling ----------------------------------------------------------------------------------------

PADDING = {
    "constant": ("zeros", False),
    "border": ("border", False),
    "reflection": ("reflection", True),  # about the centers of the outermost elements
    "symmetric": ("reflection", False),  # about their edges
}


class ValueOutside(Field):
    """The value outside of an image. In ONNX it is 0, so the value is subtracted before and added
    after.
    """

    keys, names = ("padding_mode", "padding_value"), ("padding_mode", "align_corners")

    def lift(self, r: LiftContext) -> None:
        word, value = r.attr("padding_mode", LOWER), r.attr("padding_value", float, 0.0)
        if word not in PADDING:
            raise MappingError(f"padding_mode={word!r} is not known", "X202")
        name, centers = PADDING[word]
        r.set(padding_mode=name, align_corners=int(centers))
        if value and word == "constant":
            r.data = r.data - value
            r.after_first(lambda y: y + value)

    def lower(self, w: LowerContext) -> None:
        words, mode = {v: k for k, v in PADDING.items()}, w.attr("padding_mode")
        about_centers = mode == "reflection" and bool(w.attr("align_corners"))
        w.set(padding_mode=words[mode, about_centers], padding_value=0.0)


class Coordinates(Field):
    """Sampling coordinates (x, y), [batch, h, w, 2], which in ONNX range from -1 to 1."""

    keys = ("coordinates_mode", "align_corners")

    def lift(self, r: LiftContext) -> None:
        x, places = r.operands()
        places = r.cast(places, x.dtype or ir.DataType.FLOAT)
        height, width = r.static(x, axes=4)[2:]
        size = r.b.const(np.array([width, height], array_type(places)))
        corners, word = r.attr("align_corners", bool), r.attr("coordinates_mode", LOWER)
        if word not in SHARES:
            raise MappingError(f"coordinates_mode {word!r} is not known", "R110")
        if word != "unnormalized":
            share = (places + 1.0) * 0.5 if word == ACROSS else places
            places = share * (size - 1.0) if corners else share * size - 0.5
        if MODE.lift(LOWER.lift(r.layer.attrs["sampling_mode"])) == "nearest":
            places = self._rounded(r, places, size)
        edges = (places * 2.0 + 1.0) / size - 1.0
        if r.node.attrs["align_corners"]:
            edges = places * 2.0 / r.b.Max(size - 1.0, r.b.like(size, 1)) - 1.0
        r.set_input(1, edges)

    @staticmethod
    def _rounded(r: LiftContext, places: Value, size: Value) -> Value:
        """Return the coordinates of the nearest elements, halves rounded to even: in ONNX's
        coordinates a half would not be preserved. Reflection about the edges of the image changes
        the parity of a coordinate, so that happens first; reflection about the centers does not.
        """
        b, a = r.b, r.node.attrs
        if a["padding_mode"] == "reflection" and not a["align_corners"]:
            far = b.Abs(places + 0.5)
            turns = b.Floor(far / size)
            rest = far - turns * size
            odd = turns - b.Floor(turns * 0.5) * 2.0
            places = rest + odd * (size - rest * 2.0) - 0.5
            places = b.Min(b.Max(places, b.like(places, 0)), size - 1.0)
            r.set(padding_mode="border")
        return b.Round(places)

    def lower(self, w: LowerContext) -> None:
        """Write the grid, whose coordinates have 32 bits before iOS16, independent of the image's
        type.
        """
        grid = w.input(1)
        w.set(coordinates_mode=ACROSS, align_corners=bool(w.attr("align_corners")))
        if w.version < IOS16 and w.low.carried(grid) == ir.DataType.FLOAT16:
            wide = w.temporary("coordinates", ir.DataType.FLOAT, grid.shape)
            w.low.exact.add(wide)
            w.operation("cast", [wide], x=grid, dtype="fp32")
            w.layer.attrs["coordinates"] = wide


class View(Field):
    """The size of the image that a matrix [batch, 6] shows."""

    keys = ("output_height", "output_width")

    def lift(self, r: LiftContext) -> None:
        x, matrix = r.operands()
        size = r.b.Concat(r.b.Shape(x)[:2], [r.attr(k, int) for k in self.keys], axis=0)
        rows = r.b.Reshape(matrix, [-1, 2, 3])
        r.set_input(1, r.b.AffineGrid(rows, size, align_corners=1))


LOWER = Codec(lambda v: str(v).lower(), str)
ACROSS = "normalized_minus_one_to_one"
SHARES = (ACROSS, "normalized_zero_to_one", "unnormalized")
MODE = enum({"linear": "bilinear", "nearest": "nearest"})
RULES: list[Row | Custom] = [
    custom("Resize", "resize_bilinear", resize_bilinear, write_bilinear),
    custom("Resize", "resize_nearest_neighbor", resize_nearest, write_nearest),
    custom("", "upsample_bilinear", upsample_bilinear),
    custom("Resize", "upsample_bilinear upsample_nearest_neighbor", None, write_upsampled),
    custom("Resize", "resize", resize, write_computed_size),
    custom("", "upsample_nearest_neighbor", upsample_nearest),
    custom("", "crop_resize", crop_resize),
    mil(
        "GridSample",
        "resample",
        "x coordinates",
        Guard("only data of rank 4 are supported", lambda w: w.rank() == 4),
        Attr("mode", "sampling_mode", Codec(lambda v: MODE.lift(LOWER.lift(v)), MODE.lower)),
        ValueOutside(),
        Coordinates(),
        example_inputs="1,2,4,5 1,3,2,2",
    ),
    mil(
        "GridSample",
        "affine",
        "x transform_matrix",
        RequireKey("sampling_mode", "bilinear", kind=LOWER),
        RequireKey("padding_mode", "constant", kind=LOWER),
        RequireKey("padding_value", 0.0, absent=True),
        RequireKey("coordinates_mode", ACROSS, kind=LOWER),
        RequireKey("align_corners", True, kind=bool),
        RequireAttr("align_corners", 1),
        View(),
        lift_only=True,
    ),
]
