"""Upsampling, bilinear resizing, rearrangement of pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.neuralnetwork import operands as blobs
from converter.formats.coreml.neuralnetwork.rules.context import LiftContext, LowerContext
from converter.formats.coreml.neuralnetwork.rules.fields import AsRank, static
from converter.graph.demands import at_least, of_counts, of_length
from converter.graph.infer import Array
from converter.graph.interpolation import between, rounded_down
from converter.graph.size_expressions import Size
from converter.graph.sizes import arange
from converter.graph.symbolic import dimensions
from converter.graph.windows import FIX
from converter.mapping.codecs import Codec, Floats, enum, unset
from converter.mapping.concepts.resize import demand_ratios, half_pixel_rule
from converter.mapping.fields import (
    Attr,
    Field,
    Guard,
    ImpliedAttrs,
    RequireAttr,
    RequireKey,
    ignore,
)
from converter.mapping.rules import Rule, op

Value = ir.Value

# positions ---------------------------------------------------------------------------------------


def sampling_grid(mode: str, size: int, count: int) -> Array:
    """The `count` positions on [0, size-1] at which a SamplingMode reads."""
    i = arange(count, dtype=np.float64)
    last = size - 1
    if mode == "ALIGN_ENDPOINTS_MODE" and count == 1:
        return np.array([last / 2])
    if mode in ("STRICT_ALIGN_ENDPOINTS_MODE", "ALIGN_ENDPOINTS_MODE"):
        return i * (last / (count - 1)) if count > 1 else np.zeros(1)
    if mode in ("UPSAMPLE_MODE", "UPSAMPLE"):
        spacing = (size - size / count) / (count - 1) if count > 1 else 0.0
        return np.minimum(last, i * spacing)
    if mode == "ROI_ALIGN_MODE":
        spacing = max(1.0, last) / count
        return np.minimum(last, (i + 0.5) * spacing)
    raise MappingError(f"mode={mode!r} is not known", "R110")


def resample(r: LiftContext, grids: list[Array]) -> Value:
    """Interpolate bilinearly at the crossings of two grids of positions on the last two axes."""
    rows, columns = grids
    return between(r.b, between(r.b, r.data, -2, rows), -1, columns)


# upsample ----------------------------------------------------------------------------------------

LINEAR = enum(
    {
        "asymmetric": "DEFAULT",
        "align_corners": "ALIGN_CORNERS_TRUE",
        "half_pixel": "ALIGN_CORNERS_FALSE",
    }
)


def factors_of(r: LiftContext) -> list[float]:
    """Return the factors of height and width; fractional ones take precedence over integers."""
    whole = r.attr("scalingFactor", list) or [1, 1]
    factors = r.attr("fractionalScalingFactor", Floats) or whole
    of_length(2, scalingFactor=factors)
    return [float(f) for f in factors]


def _are_integers(factors: list[float]) -> bool:
    return all(f.is_integer() for f in factors)


class IntegerFactors(Field):
    """Integer factors of the last two axes."""

    keys = ("scalingFactor", "fractionalScalingFactor")
    inputs = (1, 2, 3)
    names = ("axes", "antialias")

    def lift(self, r: LiftContext) -> None:
        r.set_input(2, np.array([1.0, 1.0, *factors_of(r)], np.float32))

    def lower(self, w: LowerContext) -> None:
        w.set(scalingFactor=[int(f) for f in wanted_factors(w)[0]])


class Fractions(IntegerFactors):
    """Fractional factors: the size is floor(factor * size), and determines the positions."""

    def lift(self, r: LiftContext) -> None:
        b, x, factors = r.b, r.data, [1.0, 1.0, *factors_of(r)]
        size = blobs.dims(x)
        if None not in size:
            pairs = zip(size, factors, strict=True)
            sizes: ir.Value = b.const([int(np.floor(int(n or 0) * f)) for n, f in pairs])
        else:
            shape = b.Cast(b.Shape(x), to=ir.DataType.FLOAT)
            scaled = b.Floor(shape * b.const(np.array(factors, np.float32)))
            sizes = b.Cast(scaled, to=ir.DataType.INT64)
        r.set_input(3, sizes)

    def lower(self, w: LowerContext) -> None:
        factors, _, spatial = wanted_factors(w)
        if w.attr("coordinate_transformation_mode") == "asymmetric":
            raise MappingError(f"scales {factors} without alignment are not supported")
        if w.attr("antialias") and any(f < 1 for f in factors):
            raise MappingError("antialiased downsampling is not supported")
        if None not in (*spatial[0], *spatial[1]):
            factors = [_factor(int(i), int(o)) for i, o in zip(*spatial, strict=True)]
        w.set(fractionalScalingFactor=Floats(factors))


def wanted_factors(w: LowerContext) -> tuple[list[float], bool, tuple[list[Any], list[Any]]]:
    """Return the factors of the last two axes, whether they are integers, and the sizes before and
    after.
    """
    x, rank = w.data, w.rank()
    given = w.known(2) if w.has(2) else None
    if given is None and w.has(2) and w.dims(w.input(2)) != [0]:
        raise MappingError("computed scales are not supported")
    size, result = w.dims(x), w.dims(w.out)
    spatial = (size or [None] * rank)[-2:], (result or [None] * rank)[-2:]
    known = None not in (*spatial[0], *spatial[1])
    computed = rounded_down(x, w.optional(3))
    factors = None if computed is None or (computed[:-2] != 1).any() else computed[-2:].tolist()
    if given:
        factors = [float(f) for f in given[-2:]]
    if factors is None and known:
        factors = [float(o) / float(i) for i, o in zip(*spatial, strict=True)]
    beside = given is not None and any(f != 1 for f in given[:-2])
    if beside or rank < 3 or factors is None or w.attr("axes", None):
        message = "only the last two axes can be resized, to sizes known at conversion time"
        raise MappingError(message)
    if size is not None and result is not None:
        pairs = zip(size[:-2], result[:-2], strict=True)
        # an axis that is dynamic in the image alone is resized to its fixed size in the result
        if any(i != o for i, o in pairs if o is not None and (i is not None or given is None)):
            raise MappingError("only the last two axes can be resized")
    demand_ratios(w, *spatial)
    whole = all(f >= 1 and f.is_integer() for f in factors)
    if not whole and given and not known:
        message = "factors of a dynamic image must be integers (positions follow from sizes)"
        raise MappingError(message, "X203", FIX)
    sizes = zip(factors, *spatial, strict=True) if not whole and given else ()
    if any(abs(f * i - o) > 1e-4 for f, i, o in sizes):
        message = "scales must lead to integer sizes"
        raise MappingError(f"{message} (the layer derives positions from the sizes)")
    return factors, whole, spatial


def last_results(w: LowerContext) -> list[Size]:
    """Return the sizes of the last two axes of the result, as expressions."""
    factors, whole, _ = wanted_factors(w)
    before, after = ((dimensions(v) or [])[-2:] for v in (w.data, w.out))
    return [n * int(f) for n, f in zip(before, factors, strict=True)] if whole else after


def _factor(size: int, wanted: int) -> float:
    """Return a float32 factor for which floor(size * factor) is `wanted`, however the product is
    rounded.
    """
    factor = np.float32(wanted / size)
    while float(factor) * size < wanted or np.float32(size) * factor < np.float32(wanted):
        factor = np.nextafter(factor, np.float32(np.inf))
    return float(factor)


class Positions(Field):
    """The sampling positions of a bilinear layer."""

    names = ("coordinate_transformation_mode", "nearest_mode")
    keys = ("linearUpsampleMode",)

    def lift(self, r: LiftContext) -> None:
        r.set(coordinate_transformation_mode=r.attr("linearUpsampleMode", LINEAR))

    def lower(self, w: LowerContext) -> None:
        where = half_pixel_rule(w.attr("coordinate_transformation_mode"), last_results(w))
        if where not in ("asymmetric", "align_corners", "half_pixel"):
            raise MappingError(
                f"mode=linear with coordinate_transformation_mode={where} is not supported"
            )
        if where != "asymmetric":
            w.set(linearUpsampleMode=LINEAR.lower(where))


def by_fractions(r: LiftContext) -> Value:
    """Compute the positions for fractional factors without alignment; the operator is an Identity
    after them.
    """
    size = static(blobs.dims(r, 2)[-2:], "fractional factors")
    out = [int(np.floor(n * f)) for n, f in zip(size, factors_of(r), strict=True)]
    at_least(1, **{"the scaled size": out})
    grids = [sampling_grid("UPSAMPLE", n, m) for n, m in zip(size, out, strict=True)]
    return resample(r, grids)


UNALIGNED = Guard(
    "only fractional scales without alignment are supported by this layer",
    lift_if=lambda r: (
        r.attr("linearUpsampleMode", str) == "DEFAULT" and not _are_integers(factors_of(r))
    ),
)


# resizeBilinear ----------------------------------------------------------------------------------

ALIGNED = {
    "STRICT_ALIGN_ENDPOINTS_MODE": "align_corners",
    "ALIGN_ENDPOINTS_MODE": "align_corners",
    "UPSAMPLE_MODE": "asymmetric",
}
STRICT = "STRICT_ALIGN_ENDPOINTS_MODE"


def target_of(r: LiftContext) -> tuple[str, list[int], list[int]]:
    """Return the sampling mode, and height and width before and after."""
    mode: str = r.attr("mode", dict, {}).get("samplingMethod", STRICT)
    size = static(blobs.dims(r, 2)[-2:], "resizeBilinear")
    target = r.attr("targetSize", list) or [1, 1]
    of_counts(2, targetSize=target)
    return mode, size, target


def _is_resize(r: LiftContext) -> bool:
    """Return whether ONNX's Resize samples at the same positions."""
    mode, size, target = target_of(r)
    exact = mode != "UPSAMPLE_MODE" or all(
        n and t % n == 0 for n, t in zip(size, target, strict=True)
    )
    sizes = blobs.dims(r)
    known = len(sizes) == 4 and None not in sizes[:2]
    return mode in ALIGNED and exact and known and min(target) > 1 and min(size) > 1


def to_target(r: LiftContext) -> None:
    """Set sizes and coordinates of a Resize to the target of the layer."""
    mode, _, target = target_of(r)
    r.set_inputs(*r.node.inputs, None, None, [*blobs.dims(r)[:2], *target])
    r.set(mode="linear", coordinate_transformation_mode=ALIGNED[mode])


def by_positions(r: LiftContext) -> Value:
    """Resample along both axes at the positions of the layer's sampling grid."""
    mode, size, target = target_of(r)
    grids = [sampling_grid(mode, n, t) for n, t in zip(size, target, strict=True)]
    return resample(r, grids)


# pixels ------------------------------------------------------------------------------------------


class BlockSize(Field):
    """The size of a block; a block of a single pixel has no effect."""

    names = ("blocksize",)
    keys = ("blockSize",)

    def lift(self, r: LiftContext) -> None:
        r.set(blocksize=r.attr("blockSize", int))

    def lower(self, w: LowerContext) -> None:
        w.set(blockSize=int(w.attr("blocksize")))
        if w.attr("blocksize") < 2:
            w.alias(w.data)


SAMPLING = Codec(
    lambda v: str(v.get("samplingMethod", STRICT)).removesuffix("_MODE").lower(),
    lambda v: {"samplingMethod": f"{v.upper()}_MODE"},
)
CORNERS = Codec(
    lambda v: str(v.get("boxMode", "CORNERS_HEIGHT_FIRST")).lower(),
    lambda v: {"boxMode": v.upper()},
)
SIZE = Codec(lambda v: [int(n) for n in v] or [1, 1], list)
# other modes are not supported by the layers
UNUSED = ImpliedAttrs(
    ("keep_aspect_ratio_policy", "extrapolation_value", "exclude_outside", "cubic_coeff_a")
)
IMAGE = "1,2,4,4 ? =f32:[1,1,2,3]"
HALVES = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
REPEATED = Guard("only integer scales are supported by this layer", lambda w: wanted_factors(w)[1])
MIDDLES = Guard(
    "only nearest interpolation at half pixels is supported by this layer",
    lambda w: (
        w.attr("coordinate_transformation_mode") in HALVES
        and w.attr("nearest_mode").startswith("round")
    ),
)
INTEGER_FACTORS = Guard(
    "only integer scales are supported by this layer",
    lambda w: wanted_factors(w)[1],
    lift_if=lambda r: _are_integers(factors_of(r)),
)
BILINEAR = RequireKey("mode", "BILINEAR")
NEAREST = (
    RequireKey("mode", "NN"),
    RequireAttr("mode", "nearest"),
    AsRank(4),
    IntegerFactors(),
    ignore("linearUpsampleMode"),
    UNUSED,
)
LINEAR_MODE = (BILINEAR, RequireAttr("mode", "linear"), AsRank(4), UNUSED)
TARGET = ignore("targetSize", "mode")

RULES: list[Rule] = [
    op(
        "Resize",
        "upsample",
        REPEATED,
        RequireAttr("coordinate_transformation_mode", "asymmetric"),
        RequireAttr("nearest_mode", "floor"),
        *NEAREST,
        example_inputs=IMAGE,
    ),
    op(
        "Resize",
        "upsample",
        REPEATED,
        MIDDLES,
        *NEAREST,
        ImpliedAttrs(("coordinate_transformation_mode", "nearest_mode")),
        example_inputs=IMAGE,
        lower_only=True,
    ),
    op(
        "Identity",
        "upsample",
        UNALIGNED,
        BILINEAR,
        ignore("scalingFactor", "fractionalScalingFactor", "linearUpsampleMode"),
        before_lift=by_fractions,
        lift_only=True,
    ),
    op(
        "Resize",
        "upsample",
        INTEGER_FACTORS,
        *LINEAR_MODE,
        IntegerFactors(),
        Positions(),
        example_inputs=IMAGE,
    ),
    op(
        "Resize",
        "upsample",
        *LINEAR_MODE,
        Fractions(),
        Positions(),
        example_inputs="1,2,4,4 ? ? =[1,2,6,5]",
    ),
    op(
        "Resize",
        "resizeBilinear",
        Guard("the layer samples at positions that Resize does not have", lift_if=_is_resize),
        TARGET,
        before_lift=to_target,
        lift_only=True,
    ),
    op("Identity", "resizeBilinear", TARGET, before_lift=by_positions, lift_only=True),
    op(
        "netconv::CropResize",
        "cropResize",
        Attr("size", "targetSize", SIZE),
        Attr("normalized", "normalizedCoordinates", bool),
        Attr("sampling", "mode", SAMPLING, default="strict_align_endpoints"),
        Attr("coordinates", "boxIndicesMode", CORNERS, default="corners_height_first"),
        Attr("spatial_scale", "spatialScale", unset(1.0)),
        RequireAttr("extrapolate", 0),
        ImpliedAttrs(("extrapolation_value",)),
        example_inputs="1,1,2,8,8 3,1,4,1,1",
    ),
    op(
        "SpaceToDepth",
        "reorganizeData",
        RequireKey("mode", "SPACE_TO_DEPTH"),
        AsRank(4),
        BlockSize(),
    ),
    *(
        op(
            "DepthToSpace",
            "reorganizeData",
            RequireKey("mode", mode),
            RequireAttr("mode", order),
            AsRank(4),
            BlockSize(),
        )
        for mode, order in (("DEPTH_TO_SPACE", "DCR"), ("PIXEL_SHUFFLE", "CRD"))
    ),
]
