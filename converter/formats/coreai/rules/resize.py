"""Sampling between the elements of an image."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreai.rules.context import Reading, Writing
from converter.formats.coreai.rules.fields import word
from converter.graph.infer import Array, shape_of
from converter.graph.interpolation import coordinates
from converter.graph.value import Value
from converter.mapping.rules import Custom, Rule, custom
from converter.passes.decompositions.resizing import along_axis

D = ir.DataType
MODE = word("interpolation_mode")
LINEAR, NEAREST = "linear", "nearest_neighbor"
RULES_OF_AXES = ("half_pixel", "align_corners", "asymmetric")


def interpolate(r: Reading) -> Value:
    """A Resize where ONNX has a rule with the same coordinates, else axis by axis."""
    x, mode = r.input(0), r.attr("interpolation_mode", MODE)
    size = r.static(x)
    result = [int(n) for n in r.known(r.input(1), "output_shape").reshape(-1)]
    scale, offset = (r.known(r.input(i), "a factor").reshape(-1) for i in (2, 3))
    if not len(size) == len(result) == len(scale) == len(offset):
        raise MappingError("sizes and factors of another number of axes", "R105")
    places = [
        np.clip((np.arange(m) + np.float32(0.5) - o) / s - np.float32(0.5), 0, n - 1)
        for n, m, s, o in zip(size, result, scale, offset, strict=True)
    ]
    if 0 in result:
        raise MappingError("an image without elements")
    for rule in RULES_OF_AXES if mode == LINEAR else ():
        own = [
            coordinates(rule, n, m, m / n, None, np.float32)
            for n, m in zip(size, result, strict=True)
        ]
        ends = [np.clip(c, 0, n - 1) for c, n in zip(own, size, strict=True)]
        if all(np.allclose(a, b, atol=1e-5) for a, b in zip(places, ends, strict=True)):
            sizes = np.array(result, np.int64)
            return r.b.Resize(
                x, None, None, sizes, mode="linear", coordinate_transformation_mode=rule
            )
    for axis, at in enumerate(places):
        if not np.array_equal(at, np.arange(size[axis])):
            x = along_axis(r.b, x, _weights(at, size[axis], mode), axis, len(size))
    return r.b.Identity(x) if x is r.input(0) else x


def _weights(at: Array, size: int, mode: str) -> Array:
    matrix, rows = np.zeros((len(at), size)), np.arange(len(at))
    if mode == NEAREST:
        matrix[rows, np.round(at).astype(int)] = 1
        return matrix
    low = np.floor(at).astype(int)
    np.add.at(matrix, (rows, low), 1 - (at - low))
    np.add.at(matrix, (rows, np.minimum(low + 1, size - 1)), at - low)
    return matrix


def at_coordinates(r: Reading) -> Value:
    """Elements at points [count, axes], which are clamped to the image."""
    b, x, mode = r.b, r.input(0), r.attr("interpolation_mode", MODE)
    size = r.static(x)
    at = b.Min(b.Max(r.input(1), np.float32(0)), np.array(size, np.float32) - 1)
    if mode == NEAREST:
        return b.GatherND(x, b.Cast(b.Round(at), to=D.INT64))
    low = b.Floor(at)
    part, total, real = at - low, None, x.dtype or D.FLOAT
    for corner in product((0, 1), repeat=len(size)):
        ends = np.array(corner, np.float32)
        place = b.Min(low + ends, np.array(size, np.float32) - 1)
        factors = part * (2 * ends - 1) + (1 - ends)
        weight = b.Cast(b.ReduceProd(factors, np.array([1]), keepdims=0), to=real)
        value = b.GatherND(x, b.Cast(place, to=D.INT64)) * weight
        total = value if total is None else total + value
    assert total is not None
    return total


def write_resize(w: Writing) -> None:
    """Linear, of known sizes, by a rule without a smaller part of the image."""
    a: Any = w.attr
    rule, size, result = a("coordinate_transformation_mode"), shape_of(w.data), shape_of(w.out)
    if a("mode") != "linear" or a("antialias", 0) or a("exclude_outside", 0):
        raise MappingError("only linear interpolation is one operation")
    if size is None or result is None or 0 in size or rule not in RULES_OF_AXES:
        raise MappingError(f"coordinate_transformation_mode={rule} of these sizes")
    if w.data.dtype not in (D.FLOAT, D.FLOAT16):
        raise MappingError("only floats are interpolated")
    given = w.optional(2)
    factors = None if given is None or shape_of(given) == (0,) else w.constant(2, "scales")
    if factors is not None and len(factors) != len(size):
        raise MappingError("factors of some axes")
    scales, offsets = [], []
    for i, (n, m) in enumerate(zip(size, result, strict=True)):
        s = m / n if factors is None else float(factors[i])
        if rule == "align_corners":
            s = (m - 1) / (n - 1) if n > 1 and m > 1 else 1.0
        if n == m:
            s = 1.0
        scales.append(s)
        offsets.append(0.0 if rule == "half_pixel" else 0.5 - 0.5 * s)
    lines = [w.const(np.array(v, np.float32)) for v in (scales, offsets)]
    w.low.exact.update(lines)
    w.put("interpolate", w.data, w.numbers(result), *lines,
          interpolation_mode=MODE.lower(LINEAR))  # fmt: skip


RULES: list[Rule | Custom] = [
    custom("Resize", "interpolate", interpolate, write_resize),
    custom("", "interpolate_coordinates", at_coordinates),
]
