"""The elements of a constant, from the file they are read from to the file they are written to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from converter.record import comparable

Array = npt.NDArray[Any]
Source = Array | Callable[[], Array]


class LazyTensor(ir.LazyTensor):
    """A constant with an element type, a shape, and a source of its bytes.

    `source` is an array with any strides (usually a view of a mapped file), or a function that
    computes one on every use and caches nothing. Types of less than a byte are packed in uint8, as
    in ONNX, or have one element per item of the array. `dtype` and `shape` default to those of the
    array.

    `element` is a format's own name for the type in which the bytes are stored, "" if that is
    `dtype`. If elements of `dtype` have to be computed from such bytes, `decode` does so; it may
    return more elements than `shape` has.

    Two weights are equal if they have the same bytes in memory or in a file, or the same function,
    and the same `element` and number of elements.
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
        assert dtype is not None and shape is not None, (
            "a function needs both its type and its shape"
        )
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
        """Return any tensor except text as a lazy tensor."""
        if isinstance(tensor, LazyTensor):
            return tensor
        return cls(tensor.numpy, tensor.dtype, tensor.shape.numpy(), tensor.name or "")

    def numpy(self) -> Array:
        """Return the elements in their shape: a view of the source unless they have to be
        computed.
        """
        return super().numpy() if self._array is None else self._array

    @property
    def length(self) -> int:
        """Return the number of bytes that are stored."""
        if self.decode is not None and isinstance(self.source, np.ndarray):
            return self.source.nbytes
        return self.nbytes

    def stored(self) -> Array:
        """Return the array whose elements in C order are the stored bytes, little endian, with any
        strides.

        It is only copied to change the byte order or packing. Raise AssertionError if a function
        computed a different number of bytes than declared.
        """
        array = self.source() if callable(self.source) else self.source
        if self.decode is None and self.dtype.bitwidth < 8 and array.dtype != np.uint8:
            array = np.frombuffer(ir.Tensor(array, self.dtype).tobytes(), np.uint8)
        if array.nbytes != self.length:
            raise AssertionError(
                f"a weight of {self.length} bytes was declared, but {array.nbytes} were produced"
            )
        return (
            array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array
        )

    def is_view(self) -> bool:
        """Return whether `stored` allocates no memory: it neither computes nor packs."""
        if callable(self.source) or self.source.dtype.byteorder == ">":
            return False
        return self.decode is not None or self.dtype.bitwidth >= 8 or self.source.dtype == np.uint8

    def bytes(self) -> npt.NDArray[np.uint8]:
        """Return the stored bytes, flat; a view of the source if that is contiguous."""
        return np.ascontiguousarray(self.stored()).reshape(-1).view(np.uint8)

    def reshaped(self, shape: Sequence[int], name: str | None = None) -> LazyTensor:
        """Return the same bytes in another shape, which may have one -1."""
        if -1 in shape:
            rest = self.size // -math.prod(shape)
            shape = [rest if d == -1 else d for d in shape]
        source, name = self.source, (self.name or "") if name is None else name
        if isinstance(source, np.ndarray) and source.flags.c_contiguous and self._array is not None:
            source = source.reshape(shape)
        return LazyTensor(source, self.dtype, shape, name, element=self.element, decode=self.decode)

    def transposed(self, perm: Sequence[int] | None = None) -> LazyTensor:
        """Return the elements with permuted axes, reversed without `perm`: a view, unless they have
        to be computed.
        """
        order = tuple(reversed(range(len(self.shape))) if perm is None else perm)
        if self._array is not None:
            return LazyTensor(self._array.transpose(order), self.dtype, name=self.name)
        dims = self.shape.numpy()
        return self.derived(Permuted(order), shape=[dims[i] for i in order])

    def untransposed(self) -> LazyTensor | None:
        """Return the original matrices if these are a view of them, or computed from them, with the
        last two axes exchanged; None otherwise.
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
        permuted = stored.flags.c_contiguous and not array.flags.c_contiguous
        return LazyTensor(stored, self.dtype) if permuted else None

    def derived(
        self,
        change: Callable[[Array], Array],
        dtype: ir.DataType | None = None,
        shape: Sequence[int] | None = None,
    ) -> LazyTensor:
        """Return the result of `change` on the elements, computed on use; type and shape are
        unchanged unless given.

        Two are equal if the same `change` is applied to equal tensors.
        """
        return LazyTensor(
            _Derived(self, change),
            self.dtype if dtype is None else dtype,
            self.shape.numpy() if shape is None else shape,
            self.name or "",
        )

    def decoded(self) -> LazyTensor:
        """Return the same elements, stored as `dtype`: those of a format's own type are computed on
        use.
        """
        return self if self.decode is None else self.derived(np.asarray)

    def called(self, element: str) -> LazyTensor:
        """Return the same bytes with a format's own name for their type."""
        dims = self.shape.numpy()
        return LazyTensor(self.source, self.dtype, dims, self.name, element=element)

    @property
    def place(self) -> tuple[Any, ...]:
        """Return the location of the stored bytes, in memory or in a mapped file, which is equal
        for two weights with the same bytes.
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


@comparable
class _Derived:
    """A function of the elements of a tensor."""

    tensor: LazyTensor
    change: Callable[[Array], Array]

    def __call__(self) -> Array:
        return self.change(self.tensor.numpy())


@comparable
class Permuted:
    """A permutation of axes, for `derived`."""

    order: tuple[int, ...]

    def __call__(self, array: Array) -> Array:
        return array.transpose(self.order)


@comparable
class Converted:
    """A conversion to another type, for `derived`."""

    dtype: ir.DataType

    def __call__(self, array: Array) -> Array:
        return array.astype(self.dtype.numpy())


def lazy(data: Array | ir.TensorProtocol) -> ir.TensorProtocol:
    """Return the lazy tensor of an array or of another tensor; text, whose elements have no size,
    is returned unchanged.
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
    """Return 2-bit and 4-bit numbers as 8-bit numbers; others unchanged."""
    return array.astype(_WHOLE_BYTES.get(array.dtype.name, array.dtype), copy=False)
