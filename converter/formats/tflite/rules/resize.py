"""Resizing of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.tflite.rules.context import LiftContext, LowerContext, dims_of
from converter.formats.tflite.rules.fields import data
from converter.formats.tflite.rules.shape import small
from converter.formats.tflite.schema import schema
from converter.graph.infer import Array, known
from converter.graph.sizes import arange
from converter.graph.value import Value
from converter.graph.windows import FIX
from converter.mapping.concepts import resize
from converter.mapping.concepts.resize import Rule, Sampling
from converter.mapping.fields import Field, Guard, RequireAttr
from converter.mapping.rules import op
from converter.passes.lite.resizing import FLAGS as OF_RULES
from converter.passes.lite.resizing import rule_of

ONE = 1 << 10  # of a coordinate
FLAGS = ("align_corners", "half_pixel_centers")


def flags(r: LiftContext) -> tuple[bool, bool]:
    """Return the flags for aligned corners and for half pixels."""
    corners, half = (bool(r.attr(k, bool)) for k in FLAGS)
    return corners, half


class Resize(resize.Resize):
    """The size at input 1, and the rule for coordinates."""

    keys = FLAGS
    rules = tuple(OF_RULES)

    def read(self, r: LiftContext) -> tuple[Any, Rule]:
        if 0 in dims_of(r.data):
            raise MappingError("empty images are not supported", "R105")
        ends = r.b.Gather(r.b.Shape(r.data), np.array([0, 3]), axis=0)
        wanted = r.b.Concat(ends, r.whole(1), axis=0)
        array = known(wanted)
        if array is not None and (array[2:] < 1).any():
            raise MappingError(f"a size of {array[2:].tolist()} is not supported", "R105")
        sizes = wanted if array is None else r.b.const(array, "sizes")
        return sizes, rule_of(r.node.attrs["mode"], *flags(r))

    def write(self, w: LowerContext, wanted: Sampling, rule: Rule) -> None:
        w.layer.attrs |= dict(zip(FLAGS, OF_RULES[rule], strict=True))
        if not wanted.dynamic:
            w.place(1, w.int32([int(n or 0) for n in wanted.after], "size"))
        elif wanted.factors is not None:
            w.place(1, w.image_size([_integer_factor(f) for f in wanted.factors], [0, 0]))
        else:
            w.place(1, self.computed_size(w))
        w.one_scale()

    def computed_size(self, w: LowerContext) -> ir.Value:
        """Return height and width of sizes in ONNX's order, which they have for any order of the
        data.
        """
        axes = [int(a) for a in w.attr("axes", None) or range(w.rank())]
        if w.optional(3) is None or w.static(3, "the sizes") != (len(axes),):
            raise MappingError("the sizes of the result must be known", "X203", FIX)
        if axes[-2:] != [2, 3]:
            raise MappingError(f"sizes of the axes {axes}, of which the last must be 2 and 3")
        sizes = small(w, w.input(3))
        if len(axes) == 2:
            return sizes
        place, count = w.int32([len(axes) - 2]), w.int32([2])
        return w.emit("SLICE", sizes, place, count, shape=[2])


def _integer_factor(factor: float) -> int:
    """Return a factor by which each size is divisible: the layer computes with the ratio of the
    sizes.
    """
    if not factor.is_integer():
        message = f"the factor {factor:g} of a dynamic image is not the ratio of the rounded sizes"
        raise MappingError(message, "X203", FIX)
    return int(factor)


class HalfwayCorners(Field):
    """A resize with both flags: half is added before a coordinate between the corners is rounded.
    Rows are gathered before the operator, which selects columns.
    """

    keys = FLAGS

    def lift(self, r: LiftContext) -> None:
        size = r.ints(1, "the size")
        if len(size) != 2 or min(size) < 1 or r.rank(data(r)) != 4:
            raise MappingError(
                f"a size of {size} does not fit data of rank {r.rank(data(r))}", "R105"
            )
        rows, columns = (
            self.nearest_indices(n, m) for n, m in zip(r.static(data(r))[1:3], size, strict=True)
        )
        r.set_inputs(r.b.Gather(data(r), rows, axis=1), columns)

    def nearest_indices(self, n: int, m: int) -> Array:
        """Return the index of the nearest of `n` elements for each of `m` results."""
        scale = np.float32(n - 1) / np.float32(m - 1) if m > 1 else np.float32(n) / np.float32(m)
        positions = np.floor(
            (arange(m, dtype=np.float32) + np.float32(0.5)) * scale + np.float32(0.5)
        )
        return np.asarray(np.clip(positions, 0, n - 1), np.int64)


def is_fixed_point(r: LiftContext) -> bool:
    """Return whether the data are a 16-bit image of static size with known target."""
    extents = dims_of(data(r))[1:3]
    sized = len(extents) == 2 and None not in extents and known(r.input(1)) is not None
    return sized and r.tensor(0).type == schema.TensorType.INT16


class FixedPoint(Field):
    """The resize of 16-bit data, with 10 fractional bits in coordinates and scale, which is much
    less precise than the data; other types do not show it. Two neighbors are interpolated: the
    operator adds a part of their difference to the first.
    """

    keys = FLAGS

    def lift(self, r: LiftContext) -> None:
        extents, wanted = [int(n or 0) for n in dims_of(data(r))[1:3]], r.ints(1, "the size")
        if len(wanted) != 2 or min(*wanted, *extents) < 1:
            raise MappingError(f"resizing images of {extents} to {wanted} is not supported", "R105")
        first, part = self.joined(r, data(r), 1, extents[0], wanted[0])
        r.set_inputs(*self.joined(r, first + part, 2, extents[1], wanted[1]))

    def joined(self, r: LiftContext, x: Value, axis: int, n: int, m: int) -> tuple[Value, Value]:
        """Return the lower element of each position and the weighted difference to the next one."""
        corners, half = flags(r)
        steps = (n - 1, m - 1) if corners and m > 1 else (n, m)
        scale = (ONE * steps[0] + steps[1] // 2) // steps[1]
        positions = arange(m) * scale + ((scale // 2 - ONE // 2) if half else 0)
        low = np.clip(positions // ONE, 0, n - 1)
        part = np.clip(positions - low * ONE, 0, ONE).reshape([-1] + [1] * (3 - axis))
        first, second = (r.b.Gather(x, i, axis=axis) for i in (low, np.minimum(low + 1, n - 1)))
        return first, (second - first) * r.b.const((part / ONE).astype(np.float32))


FIXED_POINT = Guard(
    "only 16-bit images of static size are supported by this rule", lift_if=is_fixed_point
)
ONE_FLAG = Guard(
    "align_corners and half_pixel_centers must not both be set",
    lift_if=lambda r: flags(r) != (True, True),
)
BOTH_FLAGS = Guard(
    "align_corners and half_pixel_centers must both be set",
    lift_if=lambda r: flags(r) == (True, True),
)
RULES = [
    op("Add", "RESIZE_BILINEAR", FIXED_POINT, FixedPoint(), lift_only=True),
    *(
        op(
            "Resize",
            f"RESIZE_{kind}",
            ONE_FLAG,
            RequireAttr("mode", mode),
            Resize(),
            example_inputs="1,2,3,4 ? =[1,1,2,2]",
        )
        for mode, kind in (("linear", "BILINEAR"), ("nearest", "NEAREST_NEIGHBOR"))
    ),
    op(
        "Gather",
        "RESIZE_NEAREST_NEIGHBOR",
        BOTH_FLAGS,
        RequireAttr("axis", 2),
        HalfwayCorners(),
        lift_only=True,
    ),
]
