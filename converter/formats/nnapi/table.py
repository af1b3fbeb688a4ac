"""The nodes of an NNAPI model: a Table of operands and operations, as the HAL structures have them
(types.hal 1.0, `Model`).

A table that was read keeps the content of the file (locations, consumer counts, unknown keys,
pools) so that writing it again gives the same JSON values and pool bytes. A table built by a
lowering leaves `lifetime`, `consumers`, `location` and `feature_level` as None: the writer computes
them (`layout.py`). Values are numpy arrays, zero-copy views of the mapped file when read, or
weights of the graph.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from converter.graph.lazy_tensor import LazyTensor
from converter.record import comparable, structure

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


class OperandType(enum.IntEnum):
    """Types of operands with their codes; `since` is the first feature level that has the type,
    `dtype` its storage (None: no value).
    """

    FLOAT32 = 0, 1, "<f4"
    INT32 = 1, 1, "<i4"
    UINT32 = 2, 1, "<u4"
    TENSOR_FLOAT32 = 3, 1, "<f4"
    TENSOR_INT32 = 4, 1, "<i4"
    TENSOR_QUANT8_ASYMM = 5, 1, "u1"
    BOOL = 6, 3, "?"
    TENSOR_QUANT16_SYMM = 7, 3, "<i2"
    TENSOR_FLOAT16 = 8, 3, "<f2"
    TENSOR_BOOL8 = 9, 3, "?"
    FLOAT16 = 10, 3, "<f2"
    TENSOR_QUANT8_SYMM_PER_CHANNEL = 11, 3, "i1"
    TENSOR_QUANT16_ASYMM = 12, 3, "<u2"
    TENSOR_QUANT8_SYMM = 13, 3, "i1"
    TENSOR_QUANT8_ASYMM_SIGNED = 14, 4, "i1"
    SUBGRAPH = 15, 4, ""
    OEM = 10000, 1, "u1"
    TENSOR_OEM_BYTE = 10001, 1, "u1"

    since: int
    dtype: np.dtype[Any] | None
    is_tensor: bool

    def __new__(cls, code: int, since: int, dtype: str) -> OperandType:
        member = int.__new__(cls, code)
        member._value_ = code
        member.since = since
        member.dtype = np.dtype(dtype) if dtype else None
        return member

    def __init__(self, *_: Any) -> None:
        self.is_tensor = self.name.startswith("TENSOR_")

    @property
    def is_oem(self) -> bool:
        """Return whether the type is driver-defined, so that the length of a value is independent
        of its dimensions.
        """
        return self in (OperandType.OEM, OperandType.TENSOR_OEM_BYTE)


class Lifetime(enum.IntEnum):
    """The location of an operand's value; the numbers are those of the HAL."""

    TEMPORARY_VARIABLE = 0
    MODEL_INPUT = 1
    MODEL_OUTPUT = 2
    CONSTANT_COPY = 3
    CONSTANT_REFERENCE = 4
    NO_VALUE = 5
    SUBGRAPH = 6

    @property
    def is_constant(self) -> bool:
        return self in (Lifetime.CONSTANT_COPY, Lifetime.CONSTANT_REFERENCE)


Value = Array | LazyTensor


@comparable
class Location:
    """Bytes of a constant: `offset` and `length` in operandValues (CONSTANT_COPY) or in pool
    `pool`; a subgraph's index is its offset.
    """

    pool: int = 0
    offset: int = 0
    length: int = 0


@comparable
class ChannelQuant:
    """Scales of a TENSOR_QUANT8_SYMM_PER_CHANNEL operand, one for each index along `dim`."""

    dim: int
    scales: tuple[float, ...]


Dimensions = list[int] | None


def fits(a: Dimensions, b: Dimensions) -> bool:
    """Return whether two shapes can be the same once everything is known."""
    if a is None or b is None:
        return True
    return len(a) == len(b) and all(m == n or not m or not n for m, n in zip(a, b, strict=True))


@structure
class Operand:
    """One operand. `dimensions`: empty for a scalar, 0 for an unspecified dimension; channels last
    where an operation cares.

    `value` is the constant (None for everything else); `subgraph` the index into `Table.referenced`
    of a SUBGRAPH operand; `boundary` belongs to model inputs and outputs: `{"permutation": [0, 2,
    3, 1]}` means operand axis i is axis permutation[i] of the tensor that the source model had,
    `{"shape": [2, 1, 3, 4, 5]}` gives the shape of that tensor, with more dimensions. `extra` holds
    unknown keys, `omitted` the known keys that are absent from the file.
    """

    type: OperandType
    dimensions: list[int] = field(default_factory=list)
    name: str = ""
    scale: float = 0.0
    zero_point: int = 0
    value: Value | None = None
    channel_quant: ChannelQuant | None = None
    boundary: dict[str, Any] | None = None
    subgraph: int | None = None
    lifetime: Lifetime | None = None
    consumers: int | None = None
    location: Location | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    omitted: frozenset[str] = frozenset()

    @property
    def shape(self) -> Dimensions:
        """Return the dimensions, 0 where one is unspecified; None for a tensor of
        unspecified rank.
        """
        return self.dimensions if self.dimensions or not self.type.is_tensor else None

    @property
    def elements(self) -> int | None:
        """Return the number of elements; None if a dimension is unspecified."""
        count = math.prod(self.dimensions)
        return count if count or not self.type.is_tensor else None

    @property
    def nbytes(self) -> int | None:
        """Return the number of bytes of a value of this operand; None if dimensions or type do not
        determine it.
        """
        count, dtype = self.elements, self.type.dtype
        return (
            None if count is None or dtype is None or self.type.is_oem else count * dtype.itemsize
        )

    @property
    def permutation(self) -> list[int] | None:
        return (self.boundary or {}).get("permutation")

    @property
    def source_shape(self) -> list[int] | None:
        """Return the shape that the source model had, where it has more dimensions than an
        operation takes.
        """
        return (self.boundary or {}).get("shape")

    @property
    def outside(self) -> list[int]:
        """Return the dimensions of an input or output in a form with any number of axes; those of
        an operand in another axis order are its own.
        """
        return (
            self.dimensions
            if self.permutation is not None
            else self.source_shape or self.dimensions
        )

    def array(self) -> Array:
        """Return the constant as an array of the operand's type and dimensions; only for operands
        that have a value.
        """
        if self.value is None:
            raise ValueError(f"operand {self.name!r} has no value")
        return self.value if isinstance(self.value, np.ndarray) else self.value.numpy()


@structure
class Operation:
    """One operation: `type` is a name of `operations.json`, inputs and outputs are operand indexes
    in the order of the signature.
    """

    type: str
    inputs: list[int]
    outputs: list[int]
    extra: dict[str, Any] = field(default_factory=dict)


@structure
class Subgraph:
    """Operands, and operations in execution order; `inputs` and `outputs` are operand indexes."""

    operands: list[Operand] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    omitted: frozenset[str] = frozenset()

    def add(self, operand: Operand) -> int:
        """Append an operand; return its index."""
        self.operands.append(operand)
        return len(self.operands) - 1

    def consumers(self) -> list[int]:
        """Return, for each operand, the number of times it is an input of operations, repetitions
        counted; model outputs do not count.
        """
        counts = [0] * len(self.operands)
        for operation in self.operations:
            for i in operation.inputs:
                if i < len(counts):
                    counts[i] += 1
        return counts

    def lifetimes(self) -> list[Lifetime]:
        """Return the lifetime of each operand: as stated, or derived from its value, its occurrence
        in `inputs`/`outputs` and its producers.
        """
        computed = [Lifetime.NO_VALUE] * len(self.operands)
        for indexes, lifetime in (
            (
                (i for operation in self.operations for i in operation.outputs),
                Lifetime.TEMPORARY_VARIABLE,
            ),
            (self.outputs, Lifetime.MODEL_OUTPUT),
            (self.inputs, Lifetime.MODEL_INPUT),
        ):
            for i in indexes:
                if i < len(computed):
                    computed[i] = lifetime
        for i, operand in enumerate(self.operands):
            if operand.lifetime is not None:
                computed[i] = operand.lifetime
            elif operand.subgraph is not None:
                computed[i] = Lifetime.SUBGRAPH
            elif operand.value is not None:
                computed[i] = (
                    Lifetime.CONSTANT_COPY
                    if operand.value.nbytes <= COPY_LIMIT
                    else Lifetime.CONSTANT_REFERENCE
                )
        return computed


# A value up to this many bytes is copied into the model, a larger one is referred to
# (NeuralNetworks.h, setOperandValue).
COPY_LIMIT = 128


@structure
class ValueBytes:
    """The value bytes of a table that was read: `operandValues`, and each pool with its file
    name.
    """

    values: Bytes
    pools: list[Bytes]
    names: list[str]
    stem: str = ""


@structure
class Table(Subgraph):
    """The main subgraph and the properties of the whole model.

    `relaxed`: float32 may be computed as float16.
    """

    referenced: list[Subgraph] = field(default_factory=list)
    relaxed: bool = False
    feature_level: int | None = None
    stored: ValueBytes | None = None

    def subgraphs(self) -> Iterator[tuple[str, Subgraph]]:
        """Yield every subgraph with its JSON path prefix: "" for the main one, then
        "referenced[0]." and so on.
        """
        yield "", self
        for i, subgraph in enumerate(self.referenced):
            yield f"referenced[{i}].", subgraph
