"""Sizes of inputs that a call changes: while a file is read again, they are names instead of
numbers, so that nothing that is read can rely on the numbers of the file.

file: x[1,3,224,224], changed to [1,3,320,320]      read: x[1,3,from_224_to_320,from_224_to_320]

Equal changes have equal names: inputs that had one size keep one size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import onnx_ir as ir

from converter.graph import BROADCAST, UNARY
from converter.record import record


@record
class Change:
    """The shape of an input in the file, and the requested one."""

    old: tuple[int | str | None, ...]
    new: tuple[int, ...]

    def opened(self) -> list[int | str | None]:
        """Return the shape with names for the sizes that change."""
        return [
            f"from_{a}_to_{b}" if isinstance(a, int) and a != b else a
            for a, b in zip(self.old, self.new, strict=True)
        ]


_CURRENT: ContextVar[Mapping[str, Change] | None] = ContextVar("netconv.open_sizes", default=None)


@contextmanager
def reading_open(changes: Mapping[str, Change]) -> Iterator[None]:
    """Read files inside the block with names for the sizes that change."""
    token = _CURRENT.set(changes)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def is_open() -> bool:
    """Return whether sizes that a file declares for results may be those before a change."""
    return bool(_CURRENT.get())


# operators whose results have the sizes of their operands
_SAME_SIZES = UNARY | BROADCAST | {"BatchNormalization"}


def sizes_in_file(value: ir.Value) -> list[int | None]:
    """Return the sizes that a value has in the file, before a change; None for those not known."""
    changes = (_CURRENT.get() or {}).values()
    pairs = [p for c in changes for p in zip(c.opened(), c.old, strict=True)]
    numbers = {n: d for n, d in pairs if isinstance(n, str) and isinstance(d, int)}
    return _sizes(value, numbers, {})


def _sizes(
    value: ir.Value, numbers: Mapping[str, int], seen: dict[ir.Value, list[int | None]]
) -> list[int | None]:
    if value not in seen:
        seen[value] = _computed(value, numbers, seen)
    return seen[value]


def _computed(
    value: ir.Value, numbers: Mapping[str, int], seen: dict[ir.Value, list[int | None]]
) -> list[int | None]:
    from converter.graph.size_expressions import Size, evaluated, parse

    found: list[int | None] = []
    for d in value.shape or ():
        size = d if isinstance(d, int) else parse(d.value) if d.value else None
        found.append(evaluated(size, numbers) if isinstance(size, Size) else size)
    node = value.producer()
    if None not in found or node is None or node.op_type not in _SAME_SIZES or node.domain:
        return found
    # sizes that are equal in the file, not as expressions
    operands = [_sizes(v, numbers, seen) for v in node.inputs if v is not None]
    columns = zip(*(s for s in operands if len(s) == len(found)), strict=True)
    known = [[n for n in column if n is not None] for column in columns]
    return [max(c, default=None) if d is None else d for d, c in zip(found, known, strict=False)]


def opened(name: str, shape: Sequence[Any] | None) -> Sequence[Any] | None:
    """Return the shape of an input, with names for the sizes that change."""
    change = (_CURRENT.get() or {}).get(name)
    if change is None or shape is None:
        return shape
    sizes = [d if isinstance(d, int | str) else getattr(d, "value", None) for d in shape]
    same = len(sizes) == len(change.old) and all(
        a == b for a, b in zip(sizes, change.old, strict=True) if isinstance(b, int)
    )
    return change.opened() if same else shape


def open_input(value: ir.Value, name: str) -> None:
    """Give an input of a file names for the sizes that change."""
    if value.shape is not None and (_CURRENT.get() or {}).get(name) is not None:
        value.shape = ir.Shape(opened(name, list(value.shape)) or [])
