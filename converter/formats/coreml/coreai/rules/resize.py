"""Resizing and sampling of images."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.coreai.rules.context import INDEX, SIZE, LiftContext, LowerContext
from converter.formats.coreml.coreai.rules.fields import word
from converter.graph.infer import Array, shape_of
from converter.graph.interpolation import coordinates
from converter.graph.symbolic import dimensions
from converter.graph.value import Value, known_sizes
from converter.mapping.concepts.resize import demand_ratios, half_pixel_rule
from converter.mapping.rules import Custom, Rule, custom
from converter.passes.decompositions.resizing import along_axis

D = ir.DataType
MODE = word("interpolation_mode")
LINEAR, NEAREST = "linear", "nearest_neighbor"
RULES_OF_AXES = ("half_pixel", "align_corners", "asymmetric")


def interpolate(r: LiftContext) -> Value:
    """Create a Resize if ONNX has a rule with the same coordinates, else resample axis by axis."""
    x, mode = r.input(0), r.attr("interpolation_mode", MODE)
    size = r.static(x)
    result = [int(n) for n in r.known(r.input(1), "output_shape").reshape(-1)]
    scale, offset = (r.known(r.input(i), "a factor").reshape(-1) for i in (2, 3))
    if not len(size) == len(result) == len(scale) == len(offset):
        raise MappingError("sizes and scales must have one element per axis", "R105")
    places = [
        np.clip((np.arange(m) + np.float32(0.5) - o) / s - np.float32(0.5), 0, n - 1)
        for n, m, s, o in zip(size, result, scale, offset, strict=True)
    ]
    if 0 in result:
        raise MappingError("images without elements are not supported")
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


def at_coordinates(r: LiftContext) -> Value:
    """Select the elements at points [count, axes], which are clamped to the image."""
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


def write_resize(w: LowerContext) -> None:
    """Write a linear Resize of the whole image (no crop), with one of the supported coordinate
    rules.
    """
    a: Any = w.attr
    rule, size, result = a("coordinate_transformation_mode"), known_sizes(w.data), shape_of(w.out)
    rule = half_pixel_rule(rule, (dimensions(w.out) or [])[2:])
    dynamic = ("pytorch_half_pixel",) if result is None or size is None or None in size else ()
    if a("mode") != "linear" or a("antialias", 0) or a("exclude_outside", 0) or a("axes", None):
        raise MappingError("only linear interpolation of all axes is supported by this operation")
    if size is None or 0 in size or rule not in (*RULES_OF_AXES, *dynamic):
        raise MappingError(
            f"coordinate_transformation_mode={rule} is not supported for these sizes"
        )
    if w.data.dtype not in (D.FLOAT, D.FLOAT16):
        raise MappingError("only floating-point data can be interpolated")
    if result is not None:
        demand_ratios(w, size, result)
    elif a("keep_aspect_ratio_policy") != "stretch":
        raise MappingError("keep_aspect_ratio_policy needs static sizes")
    given = w.optional(2)
    factors = None if given is None or shape_of(given) == (0,) else w.constant(2, "scales")
    if result is None or None in size:
        operands = _computed(w, rule, factors)
    else:
        scales, offsets = [], []
        for i, (n, m) in enumerate(zip(size, result, strict=True)):
            s = m / (n or 1) if factors is None else float(factors[i])
            if rule == "align_corners":
                s = (m - 1) / ((n or 1) - 1) if n != 1 and m > 1 else 1.0
            scales.append(1.0 if n == m else s)
            offsets.append(0.0 if rule == "half_pixel" else 0.5 - 0.5 * scales[-1])
        lines = [w.const(np.array(v, np.float32)) for v in (scales, offsets)]
        operands = [w.numbers(result), *lines]
    w.low.exact.update(operands[1:])
    w.put("interpolate", w.data, *operands, interpolation_mode=MODE.lower(LINEAR))


def _computed(w: LowerContext, rule: str, factors: Array | None) -> list[ir.Value]:
    """Compute sizes, factors and offsets at run time, for dynamic sizes."""
    rank = w.rank()

    def real(value: ir.Value) -> ir.Value:
        made = w.emit("cast", value, dtype=D.FLOAT, shape=[rank])
        w.low.exact.add(made)
        return made

    def step(kind: str, *operands: ir.Value) -> ir.Value:
        made = w.emit(f"broadcasting_{kind}", *operands, dtype=D.FLOAT, shape=[rank])
        w.low.exact.add(made)
        return made

    def line(values: Any) -> ir.Value:
        made = w.const(np.asarray(values, np.float32))
        w.low.exact.add(made)
        return made

    own = real(w.emit("get_shape", w.data, dtype=SIZE, shape=[rank]))
    if factors is None:
        sizes = w.whole(3)
        scale = step("divide", real(sizes), own)
    else:
        scale = line(factors)
        sizes = w.emit("cast", step("mul", own, scale), dtype=INDEX, shape=[rank])
    half, one = line([0.5] * rank), line([1.0] * rank)
    made = real(sizes)

    def alone(value: ir.Value) -> ir.Value:
        """Return which axes have one element."""
        return w.emit("broadcasting_equal", value, one, dtype=D.BOOL, shape=[rank])

    if rule == "align_corners":
        between = step("divide", step("sub", made, one), step("sub", own, one))
        scale = step("where", alone(own), one, between)
        scale = step("where", alone(made), one, scale)
    offset, moved = line([0.0] * rank), step("sub", half, step("mul", half, scale))
    if rule == "pytorch_half_pixel":
        offset = step("where", alone(made), moved, offset)
    elif rule != "half_pixel":
        offset = moved
    return [sizes, scale, offset]


RULES: list[Rule | Custom] = [
    custom("Resize", "interpolate", interpolate, write_resize),
    custom("", "interpolate_coordinates", at_coordinates),
]
