"""Resampling, padding of blocks, dilation and erosion."""

from __future__ import annotations

import functools
import itertools
import operator
from typing import Any

import numpy as np

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import (
    IntegerLiftContext,
    IntegerLowerContext,
    Written,
)
from converter.formats.zhouyi.quantization.requantize import constant_like, real, rescale
from converter.formats.zhouyi.rules.fields import words
from converter.formats.zhouyi.types import numpy_type
from converter.formats.zhouyi.unsupported import undocumented
from converter.formats.zhouyi.values import DType
from converter.graph.infer import Array
from converter.graph.sizes import arange
from converter.graph.value import Value
from converter.mapping.codecs import enum

MODES = set(
    [
        "HALF_PIXEL",
        "PYTORCH_HALF_PIXEL",
        "HALF_PIXEL_SYMMETRIC",
        "TF_HALF_PIXEL_FOR_NN",
        "ALIGN_CORNERS",
        "ASYMMETRIC",
    ]
)
RATIOS = frozenset(("ratio_x", "ratio_y"))  # only the sizes are used
INTERPOLATION_BITS = 13
Line = tuple[tuple[Array, Array], tuple[Array, Array]]  # two neighbors, each with its weight


def lift_resize(r: IntegerLiftContext) -> Value:
    """Read Resize: BILINEAR uses the four neighbors of each position, with weights of
    `interp_shift_value` bits.
    """
    if r.attr("method", enum(words("BILINEAR CUBIC"))) == "CUBIC":
        raise undocumented("whether CUBIC is cubic, or bilinear as in the vendor's executor")
    b, x, mode = r.b, r.input(0), r.attr("mode", str, "HALF_PIXEL")
    shape = r.static(r.layer.outputs[0])
    if len(shape) != 4 or mode not in MODES:
        raise undocumented(f"where mode={mode} samples data of {len(shape)} axes")
    if r.attr("antialias", bool, False):
        return _smoothed(r, r.bit_count("interp_shift_value"))
    steps = 2.0 ** r.bit_count("interp_shift_value", INTERPOLATION_BITS, 0)
    rows, columns = (_neighbors_and_weights(r.static(x)[a], shape[a], mode) for a in (1, 2))
    y = real(x)
    parts = []
    for (row, by_row), (column, by_column) in itertools.product(rows, columns):
        weights = np.floor(np.outer(by_row, by_column) * steps + 0.5)
        under = b.Gather(b.Gather(y, row, axis=1), column, axis=2)
        parts.append(under * constant_like(weights.astype(np.float32)[None, :, :, None], y))
    total = functools.reduce(operator.add, parts)
    return r.stored(rescale(total, 1 / steps, 0, r.limits()))


def _smoothed(r: IntegerLiftContext, bits: int) -> Value:
    """Resize by sums of weighted neighbors, `bound_*_min` to `bound_*_max`, rounded with the scale
    of the input: along x first, then along y.
    """
    b, y, shape = r.b, r.whole(), r.shape
    for axis, name in ((2, "x"), (1, "y")):
        weights = r.blob(f"weight_coefficients_{name}").reshape(-1)
        low, high = (
            r.blob(f"bound_{name}_{end}").reshape(-1).astype(np.int64) for end in ("min", "max")
        )
        window = weights.size // max(low.size, 1)
        _check_bounds(low, high, window, shape[axis])
        matrix = np.zeros((shape[axis], low.size))
        for i, (first, last) in enumerate(zip(low, high, strict=True)):
            matrix[first:last, i] = weights[i * window : i * window + last - first]
        perm = [0, 1, 3, 2] if axis == 2 else [0, 2, 3, 1]
        back = [0, 1, 3, 2] if axis == 2 else [0, 3, 1, 2]
        y = b.Transpose(b.Transpose(y, perm=perm) @ b.const(matrix, "weights"), perm=back)
        y = rescale(y, 2.0**-bits, 0, r.input_limits(0))
    return r.stored(y)


def _check_bounds(low: Array, high: Array, window: int, size: int) -> None:
    """Raise MappingError R105 unless the number of windows is right and all lie within an axis of
    `size`.
    """
    inside = low.size == high.size and np.all((low >= 0) & (high <= size) & (low <= high))
    if not low.size or not inside or np.any(high - low > window):
        message = f"windows from {low.tolist()} to {high.tolist()} of {window} weights do not fit"
        raise MappingError(f"{message} along an axis of {size}", "R105")


def _neighbors_and_weights(size: int, count: int, mode: str) -> Line:
    """Return, for each of `count` positions along an axis, the two neighbors and their weights."""
    i = arange(count, dtype=np.float64)
    if mode == "ALIGN_CORNERS":
        at = i * (size - 1) / max(1, count - 1)
    elif mode in ("ASYMMETRIC", "TF_HALF_PIXEL_FOR_NN"):
        at = (i if mode == "ASYMMETRIC" else i + 0.5) * size / count
    else:
        at = (i + 0.5) * size / count - 0.5
        at = np.zeros_like(at) if mode == "PYTORCH_HALF_PIXEL" and count == 1 else at
    first, second = np.maximum(np.floor(at), 0), np.minimum(np.ceil(at), size - 1)
    rest = at - first
    return (first.astype(np.int64), 1 - rest), (second.astype(np.int64), rest)


def lower_resize(w: IntegerLowerContext) -> Written:
    """Write a linear resize of integers. Raises MappingError for other methods."""
    if w.method != "BILINEAR" or w.layer.attrs.get("antialias"):
        raise MappingError(f"{w.method} has no integer form")
    return w.written({"interp_shift_value": INTERPOLATION_BITS, "interp_shift_type": DType.INT8})


def lift_space_to_batch(r: IntegerLiftContext) -> Value:
    """Read SpaceToBatch; the padding is the quantized value of 0."""
    return r.requantized(r.as_numbers(r.real()), 1.0)


def lift_morphology(r: IntegerLiftContext) -> Value:
    """Read dilation and erosion: data and weights are first rescaled to a common scale."""
    first, second = r.operand_scales()
    x = r.real() * first
    weights = np.asarray(r.blob("weights") * second, numpy_type(x))
    return r.requantized(r.as_numbers(x, weights=weights), r.first_factor)


def lift_colors(r: IntegerLiftContext) -> Value:
    """Read color conversion with integer coefficients; the executor always packs planes as I420,
    independent of `format`.
    """
    given = r.attr("format", str, "I420")
    if given != "I420":
        raise undocumented(f"whether planes are stored as {given}, or as I420 as in the executor")
    b, x = r.b, real(r.input(0), narrow=True)
    keys: dict[str, Any] = {"coefficient": r.number_list("coefficient", 15)}
    keys["shift"] = r.bit_count("coefficient_shift")
    if r.layer.kind == "YuvToRgb":
        keys |= {name: r.declared_size(0, 1 + i) for i, name in enumerate(("height", "width"))}
    return r.stored(b.Round(b.ext(r.layer.kind, x, **keys)))
