"""Axes of a layer: a single axis, several axes, or a permutation of all axes.

`source` is the location of the axes in the layer: the key of an attribute, or the index of a
constant operand. Negative numbers count from the end; axes are always written counted from the
front.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from converter.errors import MappingError
from converter.graph.demands import axis_of
from converter.graph.infer import known, rank_of
from converter.graph.value import INT64, known_sizes
from converter.mapping.fields import MISSING, Field
from converter.record import record

NONE, ALL = "none", "all"


def nonnegative_axes(axes: Iterable[int], rank: int) -> list[int]:
    """Return the axes as non-negative numbers, sorted and without duplicates.

    Raise MappingError R110 if an axis is out of range for the rank.
    """
    return sorted({axis_of(int(axis), rank) for axis in axes})


@record
class Axis(Field):
    """An axis: an attribute of the operator <-> one integer, or a list of one, of the layer.

    `default`  the axis of a layer without the key; in data of lower rank, the last axis. None
               leaves the operator's attribute unset
    `signed`   a negative axis is read unchanged
    `of`       the input of the operator whose axes are counted
    `added`    how many axes the result has in addition; the axis may be one of these
    """

    source: str | int = "axis"
    default: Any = MISSING
    signed: bool = False
    name: str = "axis"
    of: int = 0
    added: int = 0

    def __post_init__(self) -> None:
        self.names = (self.name,)
        self.keys = (self.source,) if isinstance(self.source, str) else ()

    def lift(self, r: Any) -> None:
        axis = self.read(r)
        if axis is not None:
            r.node.attrs[self.name] = axis
        if isinstance(self.source, int):
            del r.node.inputs[self.source : self.source + 1]

    def read(self, r: Any) -> Any:
        """Return the axis of the layer, or its default."""
        found, data = r.integers(self.source, "the axis", None), r.node.input(self.of)
        if data is None:
            raise MappingError(f"input {self.of} is absent", "R105")
        rank = rank_of(data)
        rank = None if rank is None else rank + self.added
        if found is None:
            if self.default is MISSING:
                raise MappingError(f"required attribute {self.source!r} is absent", "R110")
            if self.default is None or self.signed or not rank:
                return None if self.default is None else int(self.default)
            found = [min(self.default, rank - 1)]
        if len(found) != 1:
            raise MappingError(f"{self.source} must be one axis, got {found}", "R110")
        if self.signed and rank is None:
            return int(found[0])
        axis = axis_of(found[0], r.rank(data) + self.added)
        return int(found[0]) if self.signed else axis

    def lower(self, w: Any) -> None:
        if w.attr(self.name, None) is not None:
            w.set_integers(self.source, self.written(w), self.name)

    def written(self, w: Any) -> int:
        """Return the axis of the operator, counted from the front."""
        axis, rank = int(w.attr(self.name)), rank_of(w.node.input(self.of))
        if rank is None and axis >= 0:
            return axis
        return axis_of(axis, w.rank(self.of) + self.added)


@record
class FixedAxis(Field):
    """An axis of the operator that the layer does not store because it is always at `position`,
    which counts from the end: -1 is the last axis.

    With `signed` it is read as that negative number, otherwise counted from the front.
    """

    position: int
    signed: bool = False
    names = ("axis",)

    def lift(self, r: Any) -> None:
        rank = r.rank(r.data)
        if rank + self.position < 0:
            raise MappingError(
                f"the input has rank {rank}, so it has no axis {self.position}", "R105"
            )
        r.set(axis=self.position if self.signed else rank + self.position)

    def lower(self, w: Any) -> None:
        axis, rank = int(w.attr("axis")), w.rank()
        if axis_of(axis, rank) != rank + self.position:
            raise MappingError(f"axis must be {self.position}, got {axis}")


@record
class AxisInput(Field):
    """An axis: a constant scalar input of the operator <-> one integer of the layer."""

    source: str | int = "axis"
    index: int = 1
    default: Any = MISSING

    def __post_init__(self) -> None:
        self.inputs = (self.index,)
        self.keys = (self.source,) if isinstance(self.source, str) else ()

    def lift(self, r: Any) -> None:
        axis = Axis(self.source, self.default).read(r)
        r.set_input(self.index, axis)

    def lower(self, w: Any) -> None:
        (axis,) = w.ints(self.index, "the axis")
        w.set_integers(self.source, axis_of(axis, w.rank()), "axis")


@record
class Axes(Field):
    """The axes of a reduction: input `index` of the operator <-> a list of the layer.

    An operator without axes reduces all of them, unless `noop_with_empty_axes` is set.

    `empty`     how an empty list is read: NONE or ALL; any other value refuses it
    `writable`  an empty list may be written, meaning no axes
    `absent`    the list may be left out, meaning all axes
    `every`     the key of a flag that is set, instead of a list, if all axes are reduced
    `computed`  the layer accepts axes that are known only at run time
    """

    source: str | int = "axes"
    index: int = 1
    empty: str = ""
    writable: bool = False
    absent: bool = False
    every: str = ""
    computed: bool = False

    def __post_init__(self) -> None:
        self.names = ("noop_with_empty_axes",)
        self.inputs = (self.index,)
        self.keys = tuple(key for key in (self.source, self.every) if key and isinstance(key, str))

    def lift(self, r: Any) -> None:
        if self.computed and known(r.input(self.source)) is None:
            axes: Any = r.b.Reshape(r.cast(r.input(self.source), INT64), [-1])
            none = self.empty == NONE
        else:
            named = self.read(r)
            whole = self.every and len(named) == r.rank(r.data)
            axes = None if whole else r.b.const(named, "axes")
            none = self.empty == NONE and not named
        del r.node.inputs[self.index :]
        r.set_input(self.index, axes)
        if none:
            r.set(noop_with_empty_axes=1)

    def read(self, r: Any) -> list[int]:
        """Return the axes that the layer reduces."""
        rank = r.rank(r.data)
        if self.every and r.attr(self.every, bool, False):
            return list(range(rank))
        found = r.integers(self.source, "the axes", range(rank) if self.absent else MISSING)
        if not found and not self.empty:
            raise MappingError(f"{self.source} must name at least one axis", "R110")
        return nonnegative_axes(found or (range(rank) if self.empty == ALL else ()), rank)

    def lower(self, w: Any) -> None:
        if self.computed and w.has(self.index) and known(w.input(self.index)) is None:
            w.set_operand(self.source, w.indices(self.some(w)))
            return
        axes = self.reduced(w)
        if self.every and len(axes) == w.rank():
            w.set(**{self.every: True})
        else:
            w.set_integers(self.source, axes, "axes")

    def reduced(self, w: Any) -> list[int]:
        """Return the axes that the operator reduces."""
        rank, nothing = w.rank(), bool(w.attr("noop_with_empty_axes", 0))
        axes = nonnegative_axes(w.ints(self.index, "the axes", ()), rank)
        axes = axes if axes or nothing else list(range(rank))
        if not axes and not self.writable and (nothing or not self.every):
            raise no_axes(w)
        return axes

    def some(self, w: Any) -> Any:
        """Return computed axes.

        Raise MappingError X203 unless there is at least one axis, or an empty list means no axes in
        both the operator and the layer.
        """
        axes = w.input(self.index)
        count = (known_sizes(axes) or [None])[0]
        alike = self.writable and w.attr("noop_with_empty_axes", 0)
        if not count and not alike:
            what = "the axes must be known at conversion time, because no axes would mean all axes"
            raise MappingError(what, "X203", "make the axes constant")
        return axes


def no_axes(w: Any) -> MappingError:
    """Return the refusal of a reduction over an empty list of axes, which means no axis."""
    what = f"{w.node.op} over no axes is not supported by the target"
    return MappingError(what, help="name the axes, or remove the operator")


@record
class Permutation(Field):
    """`perm` of a Transpose <-> a list of the layer. An operator without `perm` reverses the axes.
    `absent`: the list may be omitted or empty, which also reverses the axes.
    """

    source: str | int = "perm"
    absent: bool = False
    names = ("perm",)

    def __post_init__(self) -> None:
        self.keys = (self.source,) if isinstance(self.source, str) else ()

    def lift(self, r: Any) -> None:
        perm = r.integers(self.source, "perm", [] if self.absent else MISSING)
        if isinstance(self.source, int):
            del r.node.inputs[self.source : self.source + 1]
        if perm or not self.absent:
            known_rank = rank_of(r.data)
            rank = len(perm) if known_rank is None else known_rank
            found = [axis_of(p, rank) for p in perm]
            if sorted(found) != list(range(rank)):
                raise MappingError(f"{perm} is not a permutation of {rank} axes", "R110")
            r.set(perm=found)

    def lower(self, w: Any) -> None:
        w.set_integers(self.source, permutation(w), "perm")


def permutation(w: Any) -> list[int]:
    """Return the permutation of a Transpose that is written."""
    return [int(p) for p in w.attr("perm", None) or reversed(range(w.rank()))]
