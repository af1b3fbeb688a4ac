"""Source coordinates of the elements of a resized axis, linear interpolation between elements, and
the cubic interpolation kernel.

Sources: the formulas of ONNX's Resize; R. Keys, Cubic convolution interpolation for digital image
processing (1981), where `a` is cubic_coeff_a of ONNX's Resize.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.graph.size_expressions import factor_between
from converter.graph.sizes import arange
from converter.graph.symbolic import dimensions, sizes_of
from converter.graph.value import Value, known_sizes

# by nearest_mode
ROUND: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda c: np.ceil(c - c.dtype.type(0.5)),
    "round_prefer_ceil": lambda c: np.floor(c + c.dtype.type(0.5)),
}


def coordinates(
    rule: str,
    size: int,
    result: int,
    factor: float,
    part: tuple[float, float] | None = None,
    dtype: type[np.float32] | type[np.float64] = np.float64,
) -> Array:
    """Return the source coordinate of each of `result` elements of an axis of `size` elements,
    which may be outside of it: [result], `dtype`.

    `rule` is a coordinate_transformation_mode, `part` the start and the end that tf_crop_and_resize
    uses along the axis. Raise MappingError for a rule that ONNX does not have.
    """
    i, one = arange(result, dtype=dtype), dtype
    half, scale = one(0.5), one(factor)
    if rule == "align_corners":
        return i * one(size - 1) / one(result - 1) if result > 1 else i * 0
    if rule == "asymmetric":
        return i / scale
    if rule == "tf_half_pixel_for_nn":  # of operator set 11
        return (i + half) / scale
    if rule == "pytorch_half_pixel" and result == 1:
        return i * 0
    if rule == "tf_crop_and_resize" and part is not None:
        start, end = (one(p) for p in part)
        if result == 1:
            return i + half * (start + end) * one(size - 1)
        return start * one(size - 1) + i * ((end - start) * one(size - 1) / one(result - 1))
    if rule == "half_pixel_symmetric":
        offset = one(size) / one(2) * (one(1) - one(result) / (scale * one(size)))
        return offset + (i + half) / scale - half
    if rule in ("half_pixel", "pytorch_half_pixel"):
        return (i + half) / scale - half
    raise MappingError(f"coordinate_transformation_mode={rule!r} is not supported")


def aspect_factor(policy: str, sizes: Sequence[int], wanted: Sequence[float]) -> float:
    """Return the common factor of axes that keep their aspect ratio: with `not_larger` no result is
    larger than `wanted`, with `not_smaller` none is smaller.
    """
    ratios = [m / n for m, n in zip(wanted, sizes, strict=True)]
    return float(min(ratios) if policy == "not_larger" else max(ratios))


def between(b: Builder, x: ir.Value, axis: int, positions: Array) -> Value:
    """Interpolate linearly along an axis of known size at known coordinates; coordinates outside
    are clamped.
    """
    sizes = known_sizes(x) or []
    last = (sizes[axis] or 1) - 1
    positions = np.clip(positions, 0, last)
    low = np.floor(positions).astype(np.int64)
    first, share = b.Gather(x, low, axis=axis), positions - low
    if not share.any():
        return first
    second, shape = b.Gather(x, np.minimum(low + 1, last), axis=axis), [1] * len(sizes)
    shape[axis] = -1
    dtype = (x.dtype or ir.DataType.FLOAT).numpy()
    return first + (second - first) * b.const(share.astype(dtype).reshape(shape))


def rounded_down(x: ir.Value, sizes: ir.Value | None) -> Array | None:
    """Return the factors, in float32, of which the products with the sizes of `x`, rounded down,
    are computed sizes; None if there are none.
    """
    own, wanted = dimensions(x), sizes_of(sizes)
    if own is None or wanted is None or len(own) != len(wanted):
        return None
    pairs = zip(wanted, own, strict=True)
    found = [None if size is None else factor_between(size, n) for size, n in pairs]
    factors = [ratio.factor for ratio in found if ratio is not None]
    if len(factors) < len(found):
        return None
    nearest = np.array(factors, np.float32)  # not below the factor, whose products may be integers
    below = nearest.astype(np.float64) < factors
    return np.where(below, np.nextafter(nearest, np.float32(np.inf)), nearest)


def cubic_factors(a: float, inner: bool) -> tuple[float, ...]:
    """Return the polynomial in the distance, the highest power first: for 0..1 (`inner`), or for
    1..2.
    """
    return (a + 2, -(a + 3), 0.0, 1.0) if inner else (a, -5 * a, 8 * a, -4 * a)


def cubic(distance: Array, a: float) -> Array:
    """Return the weights of neighbors at these distances."""
    d = np.abs(distance)
    near, far = (np.polyval(cubic_factors(a, inner), d) for inner in (True, False))
    return np.where(d <= 1, near, np.where(d < 2, far, 0))
