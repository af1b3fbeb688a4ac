"""Operations that equal earlier ones in everything that is checked: an unrolled loop has as many of
each as it has iterations, and one of them is checked.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from converter.formats.nnapi.table import Operand, Operation, Subgraph

_FEW = 64  # bytes of a value that is compared; larger ones are equal if they are one operand
_OTHER = frozenset({"IF", "WHILE", "OEM_OPERATION"})  # whose checks look elsewhere


def signature(operation: Operation, subgraph: Subgraph) -> Hashable | None:
    """Return type and operands of an operation, with their types, dimensions, and constants; None
    if its checks depend on more.
    """
    if operation.type in _OTHER:
        return None
    found: list[Hashable] = [operation.type, len(operation.inputs)]
    first: dict[int, int] = {}
    for index in (*operation.inputs, *operation.outputs):
        place = first.setdefault(index, len(first))  # one operand may be used twice
        found.append((place, _operand(subgraph.operands[index], index)))
    return tuple(found)


def _operand(operand: Operand, index: int) -> Hashable:
    value: Hashable = None
    if operand.value is not None:
        is_small = isinstance(operand.value, np.ndarray) and operand.value.nbytes <= _FEW
        value = operand.value.tobytes() if is_small else index
    return (
        operand.type,
        *operand.dimensions,
        operand.scale,
        operand.zero_point,
        operand.lifetime,
        None if operand.channel_quant is None else index,
        value,
    )
