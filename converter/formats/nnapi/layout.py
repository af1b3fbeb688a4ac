"""The location of the constants of a new table: small ones in operandValues, large ones in one pool
(NeuralNetworks.h, setOperandValue).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field, replace
from typing import TypeVar

import numpy as np

from converter.formats.nnapi.table import (
    Array,
    Bytes,
    Lifetime,
    Location,
    Operand,
    OperandType,
    Subgraph,
    Table,
)
from converter.graph.equal_weights import EqualWeights
from converter.graph.lazy_tensor import LazyTensor
from converter.record import record

# Alignment of every value in the pool, so that a mapped pool suits any driver
POOL_ALIGNMENT = 64
_S = TypeVar("_S", bound=Subgraph)


@record
class Layout:
    """The lifetime and location of each operand of each subgraph, the bytes of operandValues, and
    the pool as (offset, operand) in file order.
    """

    lifetimes: list[list[Lifetime]] = field(default_factory=list)
    locations: list[list[Location]] = field(default_factory=list)
    values: bytes = b""
    chunks: list[tuple[int, Operand]] = field(default_factory=list)
    pool_size: int = 0
    shared: dict[OperandType, EqualWeights[Location]] = field(
        default_factory=lambda: defaultdict(EqualWeights)
    )

    def pool(self) -> Iterator[Array]:
        """Yield the content of the pool: the values and the gaps between them, each value computed
        only when it is needed.
        """
        position = 0
        for offset, operand in self.chunks:
            if offset > position:
                yield np.zeros(offset - position, np.uint8)
            array = _checked(operand)
            yield array
            position = offset + array.nbytes


def lay_out(table: Table) -> Layout:
    """Compute the lifetime and location of every operand from the values of a table, which is not
    changed.
    """
    layout = Layout()
    values = bytearray()
    for _, subgraph in table.subgraphs():
        lifetimes = subgraph.lifetimes()
        locations = []
        for operand, lifetime in zip(subgraph.operands, lifetimes, strict=True):
            locations.append(_location(operand, lifetime, values, layout))
        layout.lifetimes.append(lifetimes)
        layout.locations.append(locations)
    layout.values = bytes(values)
    return layout


def by_size(table: Table) -> Table:
    """Return the table with constants stored as small or large by their size alone, as
    NeuralNetworks.h does; the source may have stored a small value in a pool.
    """

    def clean(graph: _S) -> _S:
        return replace(
            graph,
            operands=[
                replace(o, lifetime=None) if o.lifetime and o.lifetime.is_constant else o
                for o in graph.operands
            ],
        )

    return replace(clean(table), referenced=[clean(s) for s in table.referenced])


def _location(operand: Operand, lifetime: Lifetime, values: bytearray, layout: Layout) -> Location:
    if lifetime is Lifetime.SUBGRAPH:
        return Location(0, operand.subgraph or 0, 0)
    if operand.value is None or not lifetime.is_constant:
        return Location()
    size = operand.value.nbytes
    if lifetime is Lifetime.CONSTANT_COPY:
        values.extend(bytes(-len(values) % copy_alignment(size)))
        location = Location(0, len(values), size)
        values.extend(value_bytes(operand))
        return location
    value = operand.value
    weight = LazyTensor(value) if isinstance(value, np.ndarray) else value
    return layout.shared[operand.type].once(weight, lambda: _append(operand, size, layout))


def _append(operand: Operand, size: int, layout: Layout) -> Location:
    offset = layout.pool_size + -layout.pool_size % POOL_ALIGNMENT
    layout.chunks.append((offset, operand))
    layout.pool_size = offset + size
    return Location(0, offset, size)


def copy_alignment(size: int) -> int:
    """Return the alignment of a value of `size` bytes in operandValues, as Android's runtime
    appends them.
    """
    return 1 if size < 2 else 2 if size < 4 else 4


def value_bytes(operand: Operand) -> Bytes:
    """Return the little-endian bytes of an operand's value; raise ValueError if they are not as
    many as its type and dimensions say.
    """
    return np.ascontiguousarray(_checked(operand)).reshape(-1).view(np.uint8)


def _checked(operand: Operand) -> Array:
    array = operand.array()
    dtype = operand.type.dtype
    if dtype is not None and not operand.type.is_oem and array.dtype != dtype:
        array = array.astype(dtype, casting="same_kind" if array.dtype != np.bool_ else "unsafe")
    if operand.nbytes is not None and array.nbytes != operand.nbytes:
        raise ValueError(
            f"the value of operand {operand.name!r} has {array.nbytes} bytes, its type and "
            f"dimensions need {operand.nbytes}"
        )
    return array
