"""The pieces of a row.

A field owns something on either side and carries it across: `lift(far, near, emit)` reads the foreign layer and completes
the canonical node, `lower(near, far)` the other way. What it owns is declared, so that a leftover is noticed:
`near`/`far` attribute names, `blobs` of the far side, `takes` input positions of the near side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from converter.graph.infer import constant
from converter.mapping.codecs import Codec, same
from converter.mapping.node import Layer, MappingError, Node

MISSING: Any = object()


class Emit(Protocol):
    """What a field may ask of the graph under construction: constants."""

    def const(self, data: Any, name: str = "const", dtype: Any = None) -> ir.Value: ...


class Field:
    """Owns attributes `near` (canonical) and `far` (foreign), blobs, and near inputs `takes`; all default to none."""

    near: tuple[str, ...] = ()
    far: tuple[str, ...] = ()
    blobs: tuple[str, ...] = ()
    takes: tuple[int, ...] = ()

    def lift(self, far: Layer, near: Node, emit: Emit) -> None: ...
    def lower(self, near: Node, far: Layer) -> None: ...


def _equal(a: Any, b: Any) -> bool:
    """Attribute equality: numbers by value (1 == "1" is not decided here), lists element by element."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(np.asarray(a), np.asarray(b)))
    return bool(a == b)


@dataclass(frozen=True)
class Attr(Field):
    """near key <-> far key, through a codec.

    `default`: what the canonical side means when the key is absent (ONNX's own schema defaults need not be repeated);
    `far_default`: what the foreign side means when the key is absent; MISSING makes it required.
    `omit`: do not write the far key when it equals `far_default`.
    """

    name: str
    as_: str
    codec: Codec = same
    default: Any = MISSING
    far_default: Any = MISSING
    omit: bool = False

    near = property(lambda self: (self.name,))
    far = property(lambda self: (self.as_,))

    def lift(self, far: Layer, near: Node, emit: Emit) -> None:
        if self.as_ in far.attrs:
            try:
                near.attrs[self.name] = self.codec.lift(far.attrs[self.as_])
            except (ValueError, TypeError, OverflowError):
                raise MappingError(f"{self.as_}={far.attrs[self.as_]!r} is not a valid value", "R110") from None
        elif self.far_default is MISSING:
            raise MappingError(f"required attribute {self.as_!r} is absent", "R110")
        elif self.far_default is not None:
            near.attrs[self.name] = self.far_default

    def lower(self, near: Node, far: Layer) -> None:
        value = near.attrs.get(self.name, self.default)
        if value is MISSING:
            if self.far_default is MISSING:
                raise MappingError(f"required attribute {self.name!r} is absent")
            return
        if value is not None and not (self.omit and _equal(value, self.far_default)):
            far.attrs[self.as_] = self.codec.lower(value)


@dataclass(frozen=True)
class Fixed(Field):
    """The far side always has this value: a discriminator. `absent`: it may also be left out when reading."""

    as_: str
    value: Any
    absent: bool = False
    far = property(lambda self: (self.as_,))

    def lift(self, far: Layer, near: Node, emit: Emit) -> None:
        found = far.attrs.get(self.as_, self.value if self.absent else MISSING)
        if found is MISSING or not _equal(found, self.value):
            raise MappingError(f"{self.as_}={'(absent)' if found is MISSING else repr(found)}, only {self.value!r} is known here", "R110")

    def lower(self, near: Node, far: Layer) -> None:
        far.attrs[self.as_] = self.value


@dataclass(frozen=True)
class Only(Field):
    """The near side may have the key only with this value; the far side cannot say it."""

    name: str
    value: Any
    near = property(lambda self: (self.name,))

    def lift(self, far: Layer, near: Node, emit: Emit) -> None:
        if self.value is not None:
            near.attrs[self.name] = self.value

    def lower(self, near: Node, far: Layer) -> None:
        if not _equal(near.attrs.get(self.name, self.value), self.value):
            raise MappingError(f"{self.name}={near.attrs[self.name]!r} cannot be expressed (only {self.value!r})")


@dataclass(frozen=True)
class Ignore(Field):
    """Far keys that say nothing about the meaning (informative, redundant with shapes); never written."""

    keys: tuple[str, ...]
    far = property(lambda self: self.keys)

    def lift(self, far: Layer, near: Node, emit: Emit) -> None: ...
    def lower(self, near: Node, far: Layer) -> None: ...


def ignore(*keys: str) -> Ignore:
    return Ignore(keys)


@dataclass(frozen=True)
class Group(Field):
    """Several keys at once; both directions in one expression.

    `raise_(far_layer, near_node)` returns near attributes, `lower_(near_node, far_layer)` returns far attributes; both may look at
    the values of inputs and outputs (types, shapes), never further.
    """

    near: tuple[str, ...] = field(default=())
    far: tuple[str, ...] = field(default=())
    lift_: Callable[[Layer, Node], dict[str, Any]] = field(default=lambda far, near: {})
    lower_: Callable[[Node, Layer], dict[str, Any]] = field(default=lambda near, far: {})
    blobs: tuple[str, ...] = ()

    def lift(self, far: Layer, near: Node, emit: Emit) -> None:
        try:
            near.attrs |= self.lift_(far, near)
        except KeyError as e:
            raise MappingError(f"required attribute {e.args[0]!r} is absent", "R110") from None

    def lower(self, near: Node, far: Layer) -> None:
        try:
            far.attrs |= self.lower_(near, far)
        except KeyError as e:
            raise MappingError(f"required attribute {e.args[0]!r} is absent") from None


def pads(begin: str, end: str, codec: Codec = same) -> Group:
    """ONNX pads=[b0,b1,..,e0,e1,..] <-> two lists."""

    def lift(far: Layer, near: Node) -> dict[str, Any]:
        return {"pads": [*codec.lift(far.attrs[begin]), *codec.lift(far.attrs[end])]}

    def lower(near: Node, far: Layer) -> dict[str, Any]:
        p = near.attrs["pads"]
        return {begin: codec.lower(p[: len(p) // 2]), end: codec.lower(p[len(p) // 2 :])}

    return Group(("pads",), (begin, end), lift, lower)


def spread(name: str, *keys: str, codec: Codec = same) -> Group:
    """[a, b, ...] <-> scalars under `keys` in the same order."""

    def lower(near: Node, far: Layer) -> dict[str, Any]:
        values = near.attrs[name]
        if len(values) != len(keys):
            raise MappingError(f"{name} has {len(values)} entries, the target needs {len(keys)}")
        return {k: codec.lower(v) for k, v in zip(keys, values, strict=True)}

    return Group((name,), keys, lambda far, near: {name: [codec.lift(far.attrs[k]) for k in keys]}, lower)


@dataclass(frozen=True)
class Const(Field):
    """A constant near *input* <-> a far attribute (Reduce axes, Clip bounds, Pad amounts ...).

    `default`: far value when the input is left out (MISSING: then the key is not written); `far_default` as in Attr.
    `dtype`: of the canonical constant; None means the type of near input 0.
    """

    index: int
    as_: str
    codec: Codec = same
    dtype: Any = np.int64
    default: Any = MISSING
    far_default: Any = MISSING

    far = property(lambda self: (self.as_,))
    takes = property(lambda self: (self.index,))

    def lift(self, far: Layer, near: Node, emit: Emit) -> None:
        value = far.attrs.get(self.as_, self.far_default)
        if value is MISSING:
            raise MappingError(f"required attribute {self.as_!r} is absent", "R110")
        if value is not None:
            try:
                data = self.codec.lift(value) if self.as_ in far.attrs else value
                near.set_input(self.index, emit.const(np.array(data, self.dtype or _dtype(near)), self.as_))
            except (ValueError, TypeError, OverflowError):
                raise MappingError(f"{self.as_}={value!r} is not a valid value", "R110") from None

    def lower(self, near: Node, far: Layer) -> None:
        source = near.input(self.index)
        if source is None:
            if self.default is not MISSING:
                far.attrs[self.as_] = self.codec.lower(self.default)
            elif self.far_default is MISSING:
                raise MappingError(f"input {self.index} is absent, the target needs {self.as_!r}")
            return
        array = constant(source)
        if array is None:
            raise MappingError(f"input {self.index} ({source.name}) must be constant for {self.as_!r}")
        far.attrs[self.as_] = self.codec.lower(array.tolist())


def _dtype(near: Node) -> Any:
    first = near.input(0)
    return first.dtype.numpy() if first is not None and first.dtype is not None else np.float32


@dataclass(frozen=True)
class Weight(Field):
    """A constant near input <-> a far blob; `perm` takes the near axes to the far order (a view, nothing is copied).

    `perm` may be a function of the near rank. `optional`: the input and the blob may both be absent.
    `shape(far, near)`: the near shape of a far blob that is stored flat.
    """

    blob: str
    index: int
    perm: Sequence[int] | Callable[[int], Sequence[int]] | None = None
    optional: bool = False
    shape: Callable[[Layer, Node], Sequence[int]] | None = None

    blobs = property(lambda self: (self.blob,))
    takes = property(lambda self: (self.index,))

    def _perm(self, rank: int) -> Sequence[int] | None:
        return self.perm(rank) if callable(self.perm) else self.perm

    def lift(self, far: Layer, near: Node, emit: Emit) -> None:
        array = far.blobs.get(self.blob)
        if array is None:
            if not self.optional:
                raise MappingError(f"the weights {self.blob!r} are absent", "R110")
            return
        if isinstance(array, ir.Value):
            near.set_input(self.index, array)
            return
        array = np.asarray(array)
        if self.shape is not None:
            array = _reshape(array, self.shape(far, near), self.blob)
        perm = self._perm(array.ndim)
        if perm is not None:
            array = array.transpose(np.argsort(np.asarray(perm)))
        near.set_input(self.index, emit.const(array, f"{far.name}.{self.blob}" if far.name else self.blob))

    def lower(self, near: Node, far: Layer) -> None:
        source = near.input(self.index)
        if source is None:
            if not self.optional:
                raise MappingError(f"input {self.index} is absent, the target needs {self.blob!r}")
            return
        array = constant(source)
        if array is None:
            raise MappingError(f"input {self.index} ({source.name}) must be constant: the target stores {self.blob!r} with the layer")
        perm = self._perm(array.ndim)
        far.blobs[self.blob] = array if perm is None else array.transpose(perm)


def _reshape(array: Any, shape: Sequence[int], blob: str) -> Any:
    count = int(np.prod([int(s) for s in shape]))
    if min(shape, default=0) < 0 or array.size != count:
        raise MappingError(f"the weights {blob!r} have {array.size} elements, {'x'.join(map(str, shape))} = {count} are needed", "R103")
    return array.reshape(shape)


@dataclass(frozen=True)
class Ports(Field):
    """Another order of activations: far input i is near input `order[i]` (constant near inputs are not counted in)."""

    order: tuple[int, ...]

    def lift(self, far: Layer, near: Node, emit: Emit) -> None:
        near.inputs = [near.inputs[self.order.index(i)] for i in range(len(self.order))]

    def lower(self, near: Node, far: Layer) -> None:
        far.inputs = [far.inputs[i] for i in self.order]


@dataclass(frozen=True)
class Guard(Field):
    """A condition on shapes, types or versions; the reason is the refusal's text.

    `lower_if(near)`/`lift_if(far)` return True when the row applies; the reason says why not.
    """

    reason: str
    lower_if: Callable[[Node], bool] = lambda near: True
    lift_if: Callable[[Layer], bool] = lambda far: True

    def lift(self, far: Layer, near: Node, emit: Emit) -> None:
        if not self.lift_if(far):
            raise MappingError(self.reason)

    def lower(self, near: Node, far: Layer) -> None:
        if not self.lower_if(near):
            raise MappingError(self.reason)
