"""Field kinds of the rows: windows in named keys (kernel_x, pad_top, ...), axes, words and truth values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from converter.graph.infer import constant, rank_of, shape_of
from converter.mapping.codecs import Codec, enum
from converter.mapping.fields import Attr, Emit, Field, Fixed, Group
from converter.mapping.node import Layer, MappingError, Node

truth = Codec(lambda v: int(bool(v)), lambda v: bool(v))
number = Codec(float, lambda v: float(str(np.float32(v))))  # the shortest decimal that reads back as the same float32


def word(name: str, as_: str, table: Mapping[Any, str], **options: Any) -> Attr:
    """A canonical value <-> a word of the format; words are compared in upper case (reading makes them so)."""
    return Attr(name, as_, enum(table), **options)


def method(value: str) -> Fixed:
    return Fixed("method", value)


def keys(stem: str, rank: int) -> tuple[str, ...]:
    """`kernel` for rank 2 -> kernel_y, kernel_x: the keys in the order of spatial axes (section 4.3; x is the width)."""
    return tuple(f"{stem}_{axis}" for axis in "zyx"[3 - rank :])


def pad_keys(rank: int) -> tuple[str, ...]:
    """The keys in the order of ONNX `pads`: all begins, then all ends."""
    if rank == 2:
        return ("pad_top", "pad_left", "pad_bottom", "pad_right")
    return tuple(f"pad_{axis}_{end}" for end in ("begin", "end") for axis in "zyx"[3 - rank :])


class Window(Field):
    """kernel_*, stride_*, pad_*, dilation_* <-> kernel_shape, strides, pads, dilations, all written out; `rank` is 2 or 3.

    A window without pads is refused: section 4.3 leaves open what is meant then, and the vendor's reader fails.
    """

    near = ("kernel_shape", "strides", "pads", "dilations", "auto_pad")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.far = (*keys("kernel", rank), *keys("stride", rank), *pad_keys(rank), *keys("dilation", rank))

    def lift(self, far: Layer, near: Node, emit: Emit) -> None:
        near.attrs["kernel_shape"] = _ints(far, keys("kernel", self.rank), None)
        near.attrs["strides"] = _ints(far, keys("stride", self.rank), 1)
        near.attrs["pads"] = _ints(far, pad_keys(self.rank), None)
        near.attrs["dilations"] = _ints(far, keys("dilation", self.rank), 1)

    def lower(self, near: Node, far: Layer) -> None:
        kernel = kernel_of(near)
        if len(kernel) != self.rank:
            raise MappingError(f"a window over {len(kernel)} axes has no counterpart")
        pads = explicit_pads(near, kernel)
        if min(pads) < 0:
            raise MappingError("negative padding has no counterpart")
        far.attrs |= dict(zip(keys("kernel", self.rank), kernel, strict=True))
        far.attrs |= dict(zip(keys("stride", self.rank), near.attrs.get("strides") or [1] * self.rank, strict=True))
        far.attrs |= dict(zip(pad_keys(self.rank), pads, strict=True))
        far.attrs |= dict(zip(keys("dilation", self.rank), near.attrs.get("dilations") or [1] * self.rank, strict=True))


def _ints(far: Layer, names: Sequence[str], default: int | None) -> list[int]:
    result = []
    for name in names:
        value = far.attrs.get(name, default)
        if not isinstance(value, int):
            raise MappingError(f"required attribute {name!r} is absent" if value is None else f"{name}={value!r} is not an integer", "R110")
        result.append(int(value))
    return result


def kernel_of(near: Node) -> list[int]:
    """The kernel size: an attribute, or that of the weights (input 1: O, I, spatial...)."""
    given = near.attrs.get("kernel_shape")
    if given:
        return [int(k) for k in given]
    weights = near.input(1)
    shape = shape_of(weights) if weights is not None else None
    if shape is None or len(shape) < 3:
        raise MappingError("the size of the kernel is not known")
    return list(shape[2:])


def spatial(near: Node, value: int = 0) -> list[int]:
    """The spatial dimensions of input `value`, in whichever layout it is stored."""
    x = near.input(value)
    shape = shape_of(x) if x is not None else None
    if shape is None:
        raise MappingError("the shape of the input must be static", "X203")
    return list(shape[1:-1] if near.last else shape[2:])


def explicit_pads(near: Node, kernel: Sequence[int]) -> list[int]:
    auto = near.attrs.get("auto_pad", "NOTSET")
    rank = len(kernel)
    if auto == "NOTSET":
        return [int(p) for p in near.attrs.get("pads") or [0] * (2 * rank)]
    if auto == "VALID":
        return [0] * (2 * rank)
    strides, dilations = near.attrs.get("strides") or [1] * rank, near.attrs.get("dilations") or [1] * rank
    total = [max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n) for n, k, s, d in zip(spatial(near), kernel, strides, dilations, strict=True)]
    small, big = [t // 2 for t in total], [t - t // 2 for t in total]
    return [*small, *big] if auto == "SAME_UPPER" else [*big, *small]


def rank_of_input(near: Node, index: int = 0) -> int:
    value = near.input(index)
    rank = rank_of(value) if value is not None else None
    if rank is None:
        raise MappingError("the rank of the input is not known")
    return rank


def axis_of(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


def axis(name: str = "axis", as_: str = "axis", default: Any = None) -> Group:
    """An axis, counted from the front when written."""

    def lift(far: Layer, near: Node) -> dict[str, Any]:
        value = far.attrs.get(as_, default)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if not isinstance(value, int):
            raise KeyError(as_)
        return {name: value}

    return Group((name,), (as_,), lift, lambda near, far: {as_: axis_of(int(near.attrs[name]), rank_of_input(near))})


class Axes(Field):
    """A list of axes: a constant near input <-> `axis`; the input left out or empty means all axes."""

    far = ("axis",)

    def __init__(self, index: int = 1) -> None:
        self.index = index
        self.takes = (index,)

    def lift(self, far: Layer, near: Node, emit: Emit) -> None:
        near.set_input(self.index, emit.const(np.array(axes_of(far), np.int64), "axes"))

    def lower(self, near: Node, far: Layer) -> None:
        rank = rank_of_input(near)
        source = near.input(self.index)
        array = constant(source)
        if source is not None and array is None:
            raise MappingError("the axes must be constant")
        chosen = [axis_of(int(a), rank) for a in ([] if array is None else np.asarray(array).reshape(-1))]
        far.attrs["axis"] = sorted(chosen) or list(range(rank))


def axes_of(far: Layer) -> list[int]:
    """`axis` as a list; a scalar is a list of one."""
    found = far.attrs.get("axis")
    found = [found] if isinstance(found, int) else found
    if not isinstance(found, list) or not all(isinstance(a, int) for a in found):
        raise MappingError("required attribute 'axis' is absent" if found is None else f"axis={found!r} is not a list of axes", "R110")
    return [int(a) for a in found]
