"""The numbers of a constant, from the file they are read from to the file they are written to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

Array = npt.NDArray[Any]
Source = Array | Callable[[], Array]


class LazyTensor(ir.LazyTensor):
    """A constant's element type and shape, and where its bytes are.

    `source` is an array of any strides (as a rule a view of a mapped file), or a function that
    computes one whenever it is needed and keeps nothing. Types of less than a byte lie packed in
    uint8, as ONNX packs them, or one element in each item of the array. Without `dtype` and `shape`
    they are those of the array.

    `element` is a format's own name for the type in which the bytes are stored, "" where `dtype`
    says it; where numbers of `dtype` have to be computed from such bytes, `decode` does so, as many
    or more than `shape` has.

    Two weights are equal when they are the same bytes of memory or file, or of the same function,
    of the same `element`, and of as many numbers.
    """

    def __init__(
        self,
        source: Source,
        dtype: ir.DataType | None = None,
        shape: Sequence[int] | None = None,
        name: str | None = "",
        *,
        element: str = "",
        decode: Callable[[Array], Array] | None = None,
    ) -> None:
        if isinstance(source, np.ndarray):
            dtype = (
                ir.DataType.from_numpy(source.dtype.newbyteorder("=")) if dtype is None else dtype
            )
            shape = source.shape if shape is None else shape
        assert dtype is not None and shape is not None, "of a function both have to be told"
        dims = tuple(int(d) for d in shape)
        super().__init__(
            partial(_tensor, source, dtype, dims, decode), dtype, ir.Shape(dims), name=name
        )
        self.source, self.element, self.decode = source, element, decode
        plain = decode is None and dtype.bitwidth >= 8
        self._array = (
            source if plain and isinstance(source, np.ndarray) and source.shape == dims else None
        )

    @classmethod
    def of(cls, tensor: ir.TensorProtocol) -> LazyTensor:
        """Any tensor, but text."""
        if isinstance(tensor, LazyTensor):
            return tensor
        return cls(tensor.numpy, tensor.dtype, tensor.shape.numpy(), tensor.name or "")

    def numpy(self) -> Array:
        """The numbers in their shape: a view of the source unless they have to be computed."""
        return super().numpy() if self._array is None else self._array

    @property
    def length(self) -> int:
        """How many bytes are stored."""
        if self.decode is not None and isinstance(self.source, np.ndarray):
            return self.source.nbytes
        return self.nbytes

    def stored(self) -> Array:
        """The array whose elements in C order are the stored bytes, little endian, of any strides:
        not copied but for another byte order or packing. AssertionError when a function made
        another number of bytes than was announced.
        """
        array = self.source() if callable(self.source) else self.source
        if self.decode is None and self.dtype.bitwidth < 8 and array.dtype != np.uint8:
            array = np.frombuffer(ir.Tensor(array, self.dtype).tobytes(), np.uint8)
        if array.nbytes != self.length:
            raise AssertionError(
                f"a weight of {self.length} bytes was announced, {array.nbytes} were made"
            )
        return (
            array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array
        )

    def is_view(self) -> bool:
        """Whether `stored` takes no memory: neither computes nor packs."""
        if callable(self.source) or self.source.dtype.byteorder == ">":
            return False
        return self.decode is not None or self.dtype.bitwidth >= 8 or self.source.dtype == np.uint8

    def bytes(self) -> npt.NDArray[np.uint8]:
        """The stored bytes, flat; a view of the source where that is contiguous."""
        return np.ascontiguousarray(self.stored()).reshape(-1).view(np.uint8)

    def reshaped(self, shape: Sequence[int], name: str | None = None) -> LazyTensor:
        """The same bytes in another shape, which may have one -1."""
        if -1 in shape:
            rest = self.size // -math.prod(shape)
            shape = [rest if d == -1 else d for d in shape]
        source, name = self.source, (self.name or "") if name is None else name
        if isinstance(source, np.ndarray) and source.flags.c_contiguous and self._array is not None:
            source = source.reshape(shape)
        return LazyTensor(source, self.dtype, shape, name, element=self.element, decode=self.decode)

    def transposed(self, perm: Sequence[int] | None = None) -> LazyTensor:
        """The numbers with their axes in another order, reversed without `perm`: a view, unless
        they have to be computed.
        """
        order = tuple(reversed(range(len(self.shape))) if perm is None else perm)
        if self._array is not None:
            return LazyTensor(self._array.transpose(order), self.dtype, name=self.name)
        dims = self.shape.numpy()
        return self.derived(Permuted(order), shape=[dims[i] for i in order])

    def untransposed(self) -> LazyTensor | None:
        """The matrices whose last two axes were exchanged to make these, where these are a view of
        them or computed from them; None otherwise.
        """
        rank = len(self.shape)
        if rank < 2:
            return None
        if isinstance(self.source, _Derived):
            tensor, own = self.source.tensor, len(self.source.tensor.shape)
            swap = Permuted((*range(own - 2), own - 1, own - 2))
            sizes = [*self.shape.numpy()[:-2], *self.shape.numpy()[:-3:-1]]
            same = self.source.change == swap and list(tensor.shape.numpy()[-2:]) == sizes[-2:]
            return tensor.reshaped(sizes) if same else None
        if self.decode is not None or callable(self.source):
            return None
        array = self.numpy()
        stored = array.swapaxes(-1, -2)
        turned = stored.flags.c_contiguous and not array.flags.c_contiguous
        return LazyTensor(stored, self.dtype) if turned else None

    def derived(
        self,
        change: Callable[[Array], Array],
        dtype: ir.DataType | None = None,
        shape: Sequence[int] | None = None,
    ) -> LazyTensor:
        """What `change` makes of the numbers, computed when it is needed; of the same type and
        shape unless others are given. Two are equal when the same `change` makes them of equal
        tensors.
        """
        return LazyTensor(
            _Derived(self, change),
            self.dtype if dtype is None else dtype,
            self.shape.numpy() if shape is None else shape,
            self.name or "",
        )

    def decoded(self) -> LazyTensor:
        """The same numbers, stored as `dtype` says: those of a format's own type are computed when
        they are needed.
        """
        return self if self.decode is None else self.derived(np.asarray)

    def called(self, element: str) -> LazyTensor:
        """The same bytes under a format's own name for their type."""
        dims = self.shape.numpy()
        return LazyTensor(self.source, self.dtype, dims, self.name, element=element)

    @property
    def place(self) -> tuple[Any, ...]:
        """Where the stored bytes are, in memory or in a mapped file: the same for two weights that
        are the same bytes.
        """
        source = self.source
        if callable(source):
            return (source,)
        start = source.__array_interface__["data"][0] if source.size else 0
        return (start, source.shape, source.strides, source.dtype.str)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, LazyTensor)
            and self.element == other.element
            and self.size == other.size
            and self.place == other.place
        )

    def __hash__(self) -> int:
        return hash(self.place)


@dataclass(frozen=True)
class _Derived:
    """A function of the numbers of a tensor."""

    tensor: LazyTensor
    change: Callable[[Array], Array]

    def __call__(self) -> Array:
        return self.change(self.tensor.numpy())


@dataclass(frozen=True)
class Permuted:
    """The change of the order of axes, for `derived`."""

    order: tuple[int, ...]

    def __call__(self, array: Array) -> Array:
        return array.transpose(self.order)


@dataclass(frozen=True)
class Converted:
    """The change of numbers to another type, for `derived`."""

    dtype: ir.DataType

    def __call__(self, array: Array) -> Array:
        return array.astype(self.dtype.numpy())


def lazy(data: Array | ir.TensorProtocol) -> ir.TensorProtocol:
    """The lazy tensor of an array or of another tensor; text, whose elements have no size, stays
    as it is.
    """
    if not isinstance(data, np.ndarray):
        return data if data.dtype == ir.DataType.STRING else LazyTensor.of(data)
    if data.dtype.kind not in "OSU":
        return LazyTensor(data)
    words = [w.encode() if isinstance(w, str) else w for w in data.reshape(-1)]
    return ir.StringTensor(words, shape=ir.Shape(data.shape))


def _tensor(
    source: Source,
    dtype: ir.DataType,
    shape: tuple[int, ...],
    decode: Callable[[Array], Array] | None,
) -> ir.TensorProtocol:
    array = source() if callable(source) else source
    if decode is not None:
        array = decode(array)[: math.prod(shape)]
    elif dtype.bitwidth < 8 and array.dtype == np.uint8:
        return ir.PackedTensor(array.reshape(-1), dtype, shape=ir.Shape(shape))
    return ir.Tensor(array.reshape(shape), dtype)


_WHOLE_BYTES = {"int4": np.int8, "int2": np.int8, "uint4": np.uint8, "uint2": np.uint8}


def whole_bytes(array: Array) -> Array:
    """Numbers of 2 or 4 bits as numbers of 8; others as they are."""
    return array.astype(_WHOLE_BYTES.get(array.dtype.name, array.dtype), copy=False)
