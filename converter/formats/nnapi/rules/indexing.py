"""Slices, and operations that pick by index, key or hash."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.nnapi.collector import Ref
from converter.formats.nnapi.rules.context import LiftContext, LowerContext, Stored
from converter.formats.nnapi.rules.fields import from_level
from converter.formats.nnapi.table import OperandType
from converter.graph.demands import of_length
from converter.graph.infer import known
from converter.mapping.concepts.axes import Axis
from converter.mapping.fields import Attr, Detail, Field, Guard, RequireAttr
from converter.mapping.rules import op
from converter.passes.lite.picking import has_nonnegative_indices
from converter.record import record

LARGE = 1 << 30  # "to the end": small enough for engines that choose limits as floats


def parts(w: LowerContext) -> list[slice]:
    """Return the range of each axis that a Slice selects; an end of -1 with a negative step means
    the beginning.
    """
    shape, starts, ends = w.static(), w.ints(1, "the starts"), w.ints(2, "the ends")
    axes = w.ints(3, "the axes", range(len(starts)))
    steps = w.ints(4, "the steps", [1] * len(starts))
    found = [slice(0, n, 1) for n in shape]
    for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
        i = axis % len(shape)
        found[i] = slice(*slice(*bounds).indices(shape[i]))
    return found


def sliced(found: list[slice]) -> dict[str, Any]:
    """Return the arguments of SLICE."""
    begin, size = [p.start for p in found], [p.stop - p.start for p in found]
    return {"begin": begin, "size": size}


def strided(found: list[slice]) -> dict[str, Any]:
    """Return the arguments of STRIDED_SLICE."""
    mask = sum(1 << i for i, p in enumerate(found) if p.stop < 0)
    bounds: dict[str, Any] = {"begin_mask": 0, "end_mask": mask, "shrink_axis_mask": 0}
    names = (("begin", "start"), ("end", "stop"), ("strides", "step"))
    return bounds | {key: [getattr(p, name) for p in found] for key, name in names}


def put_slice(w: LowerContext, x: Ref, y: Ref, found: list[slice]) -> None:
    """Write SLICE from level 3 on (integers, any rank), STRIDED_SLICE before."""
    if w.version >= 3:
        w.operation("SLICE", y, input=x, **sliced(found))
    else:
        w.operation("STRIDED_SLICE", y, input=x, **strided(found))


def read_begin_and_size(r: LiftContext) -> None:
    """Read begin and size of each axis, which may be computed; a size of -1 means up to the end."""
    b, names = r.b, ("begin", "size")
    begin, size = (r.cast(r.layer.blobs[n], ir.DataType.INT64) for n in names)
    count = r.rank(r.data)
    for name, v in zip(names, (begin, size), strict=True):
        if r.static(v, name, axes=1) != (count,):
            raise MappingError(
                f"{name} have {r.static(v)[0]} elements for an input of {count} axes", "R105"
            )
    starts, sizes = known(begin), known(size)
    if starts is not None and sizes is not None:
        ends: Any = np.where(sizes == -1, LARGE, starts + sizes)
    else:
        ends = b.Where(b.Equal(size, -1), LARGE, begin + size)
    r.set_inputs(r.data, begin, ends, list(range(r.static(begin)[0])))


def write_begin_and_size(w: LowerContext) -> None:
    """Write a Slice with steps of 1."""
    found = parts(w)
    if any(p.step != 1 for p in found):
        raise MappingError("only steps of 1 are supported")
    w.layer.attrs |= sliced(found)


BEGIN_AND_SIZE = Detail(
    read=read_begin_and_size,
    write=write_begin_and_size,
    inputs=(1, 2, 3, 4),
    blobs=("begin", "size"),
)


class Strides(Field):
    """Begin, end and stride of each axis, and masks with a bit for each axis.

    Bit i of begin_mask or end_mask: that bound of axis i is ignored. Bit i of shrink_axis_mask:
    axis i is indexed at `begin` and removed.
    """

    inputs = (1, 2, 3, 4)
    keys = ("begin", "end", "strides", "begin_mask", "end_mask", "shrink_axis_mask")

    def lift(self, r: LiftContext) -> None:
        masks = [r.attr(key, int) for key in self.keys[3:]]
        of_length(r.rank(r.data), **{key: r.attr(key, list) for key in self.keys[:3]})
        bounds = zip(*(r.attr(key, list) for key in self.keys[:3]), strict=True)
        found = [
            self._bounds(*axis, *(bool(m >> i & 1) for m in masks)) for i, axis in enumerate(bounds)
        ]
        starts, ends, steps = ([f[k] for f in found] for k in range(3))
        r.set_inputs(r.data, starts, ends, list(range(len(found))), steps)
        if dropped := [i for i in range(len(found)) if masks[2] >> i & 1]:
            r.after_first(lambda y: r.b.Squeeze(y, dropped))

    def _bounds(
        self, start: int, end: int, step: int, begins: bool, ends: bool, shrinks: bool
    ) -> tuple[int, int, int]:
        if shrinks:
            return start, start + 1 if start != -1 else LARGE, 1
        if begins:
            start = LARGE if step < 0 else 0
        if ends:
            end = -LARGE if step < 0 else LARGE
        return start, end, step

    def lower(self, w: LowerContext) -> None:
        w.layer.attrs |= strided(parts(w))


def read_reversed_axis(r: LiftContext) -> None:
    """Read the axis to reverse, of which only one is supported."""
    first = int(np.iinfo(np.int64).min) + 1
    r.set_inputs(r.data, [-1], [first], r.attr("axis", list)[:1], [-1])


REVERSED_AXIS = Detail(read=read_reversed_axis, inputs=(1, 2, 3, 4), keys=("axis",))


@record
class Indices(Field):
    """Non-negative indices. A single index is written as a list of one; a RESHAPE removes
    its axis.
    """

    name: str = "indices"
    inputs = (1,)

    def __post_init__(self) -> None:
        self.blobs = (self.name,)

    def lift(self, r: LiftContext) -> None:
        r.set_input(1, r.layer.blobs[self.name])

    def lower(self, w: LowerContext) -> None:
        given, shape = known(w.input(1)), w.static()
        axis = w.axis()
        if given is not None:
            given = np.where(given < 0, given + shape[axis], given).astype(np.int32)
            indices = w.writer.tensor(given, OperandType.TENSOR_INT32)
        else:
            indices = w.stored(w.input(1))
        w.layer.attrs[self.name] = indices
        dims = [*shape[:axis], *w.about(indices).dimensions, *shape[axis + 1 :]]
        if dims != (list(w.result_shape()) or [1]):
            w.after_first(dims, w.reshape)


def is_old(w: LowerContext) -> bool:
    """Return whether the feature level does not have GATHER yet."""
    return w.version < 3


NONNEGATIVE_INDICES = Guard(
    "negative indices are not supported by NNAPI",
    lambda w: has_nonnegative_indices(w.source),
)
RULES = [
    op("Slice", "SLICE", from_level(3), BEGIN_AND_SIZE, example_inputs="4,6 =[1] =[4]"),
    op("Slice", "STRIDED_SLICE", Strides()),
    op("Slice", "REVERSE", REVERSED_AXIS, lift_only=True),
    op("Gather", "GATHER", NONNEGATIVE_INDICES, Axis(), Indices()),
    op(
        "Gather",
        "EMBEDDING_LOOKUP",
        NONNEGATIVE_INDICES,
        Guard("GATHER must be used where it is available", is_old),
        RequireAttr("axis", 0),
        Stored(),
        Indices("lookups"),
        example_inputs="4,3 =i64:[2,0]",
    ),
    op(
        "netconv::HashtableLookup",
        "HASHTABLE_LOOKUP",
        Stored(),
        example_inputs="i32:2 =i32:[0,1,2] 3,4",
    ),
    op(
        "netconv::LSHProjection",
        "LSH_PROJECTION",
        Stored(),
        Attr("kind", kind=int),
        example_inputs="=3,2 i32:2,3 =2",
    ),
]
