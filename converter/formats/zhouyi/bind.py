"""Constants get their bytes: sizes against types and shapes, ranges against the .bin and against
each other.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from converter.errors import Diagnostic, ReadError
from converter.formats.zhouyi.ir import Array, Constant, Document, Layer


def size_error(c: Constant) -> str:
    """Return why the size of a constant does not fit its type and shape, or an empty text."""
    count = math.prod(c.shape)
    if any(d < 0 for d in c.shape):
        return f"the shape {list(c.shape)} has a negative dimension"
    if c.size == count * c.dtype.numpy.itemsize or _is_packed(c):
        return ""
    return (
        f"{c.dtype} {list(c.shape)} needs {count * c.dtype.numpy.itemsize} "
        f"bytes, but size is {c.size}"
    )


def _is_packed(c: Constant) -> bool:
    count = math.prod(c.shape)
    return c.dtype.is_4bit and count > 1 and c.size == (count + 1) // 2


def bind_constants(document: Document) -> None:
    """Replace every constant by one with data; raise ReadError with all that do not fit. Equal
    ranges may be shared, partial overlaps are refused.
    """
    found: list[Diagnostic] = []
    bound = [
        (layer, group, index, _bind(document, layer, group, c, found))
        for layer, group, index, c in document.constants()
    ]
    found += overlaps(document)
    if found:
        raise ReadError(found)
    for layer, group, index, constant in bound:
        if index is None:
            layer.constants[group] = constant
        else:
            layer.constant_lists[group][index] = constant


def _bind(
    document: Document, layer: Layer, group: str, c: Constant, found: list[Diagnostic]
) -> Constant:
    where = layer.where(f"{group}_offset")
    if message := size_error(c):
        found.append(
            Diagnostic("R103", f"constant {group}: {message}", where=layer.where(f"{group}_size"))
        )
        return c
    assert document.bin is not None and c.offset is not None
    try:
        raw = document.bin.slice(c.offset, c.size, where)
        return (
            replace(c, data=raw, packed=True)
            if _is_packed(c)
            else replace(c, data=_view(raw, c.dtype.numpy, c.shape))
        )
    except ReadError as e:
        found += e.diagnostics
    except (ValueError, OverflowError) as e:
        found.append(
            Diagnostic(
                "R103",
                f"constant {group} does not fit the shape {list(c.shape)} ({e})",
                where=where,
            )
        )
    return c


def _view(raw: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    # a byte other than 0 and 1 is no numpy bool
    return (raw != 0).reshape(shape) if dtype == np.bool_ else raw.view(dtype).reshape(shape)


def overlaps(document: Document) -> list[Diagnostic]:
    """Return one diagnostic for each constant that shares some, but not all of its bytes with an
    earlier one.
    """
    found = []
    ranges = sorted(
        (
            (c.offset, c.offset + c.size, layer, group)
            for layer, group, _, c in document.constants()
            if c.size and c.offset is not None
        ),
        key=lambda r: r[:2],
    )
    end, start, owner = 0, 0, ""
    for first, last, layer, group in ranges:
        if first < end and (first, last) != (start, end):
            message = f"constant {group} ({first}..{last}) overlaps {owner} ({start}..{end})"
            found.append(Diagnostic("R103", message, where=layer.where(f"{group}_offset")))
        if last > end:
            start, end, owner = first, last, f'{group} of "{layer.name}"'
    return found
