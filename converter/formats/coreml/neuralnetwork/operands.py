"""Core ML's one kind of tensor (float32, at least rank 1) in a graph that knows types, and the few
shapes that layers share.

In the graph a value keeps its natural type: a comparison is bool, an index int64. A layer requests
the type it needs with `floats`, `ints` or `bools`; Casts are inserted only where a type changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.build import Builder
from converter.graph.infer import constant, rank_of, shape_of
from converter.graph.value import (
    Value,
    known_sizes,
    optional,
    producer_if,
    producer_operand,
    with_operators,
)
from converter.mapping.context import LiftContext

T = ir.DataType
_CASTS = "coreml.casts"


def cast(b: Builder, value: ir.Value, dtype: ir.DataType) -> Value:
    """Return `value` as `dtype`. One Cast is created for each value and graph; a lossless Cast
    before it is skipped.
    """
    if value.dtype == dtype:
        return with_operators(value)
    made: dict[Any, Value] = value.meta.setdefault(_CASTS, {})
    key = (b.graph, dtype)
    if key not in made:
        origin = with_operators(_origin(value, dtype))
        made[key] = origin if origin.dtype == dtype else b.Cast(origin, to=dtype)
    return made[key]


def _origin(value: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return the source of a widening Cast (bool or integer to float), for a cast back to its type
    or to another exact one.
    """
    whole, source = (T.INT64, T.INT32), producer_operand(value, "Cast")
    if source is None or value.dtype not in (T.FLOAT, *whole):
        return value
    exact = source.dtype == T.BOOL or (source.dtype in whole and dtype in whole)
    return source if exact else value


def floats(b: Builder, value: ir.Value) -> Value:
    """Return a value as float32."""
    return cast(b, value, T.FLOAT)


def ints(b: Builder, value: ir.Value) -> Value:
    """Return a value as int64."""
    return cast(b, value, T.INT64)


def vector(b: Builder, value: ir.Value) -> Value:
    """Return integers on one axis: shapes, repeats and lengths, which Core ML accepts as a blob of
    any rank ([1,1] is common, since it has no rank 0).
    """
    whole = ints(b, value)
    return whole if rank_of(whole) == 1 else b.Reshape(whole, [-1])


def bools(b: Builder, value: ir.Value) -> Value:
    """Return a value as booleans."""
    return cast(b, value, T.BOOL)


def rank(of: ir.Value | LiftContext, least: int = 0) -> int:
    """Return the number of axes of a value, or of the first operand of a layer."""
    value = of.input(0) if isinstance(of, LiftContext) else of
    found = rank_of(value)
    if found is None:
        raise MappingError(f"the rank of {value.name} is unknown")
    if found < least:
        raise MappingError(f"the input has rank {found}, at least {least} is needed", "R105")
    return found


def dims(of: ir.Value | LiftContext, least: int = 0) -> list[int | None]:
    """Return the sizes of a value, or of the first operand of a layer, None for dynamic ones. There
    must be at least the given number of axes.
    """
    value = of.input(0) if isinstance(of, LiftContext) else of
    if rank(value) < least:
        raise MappingError(f"the input has {rank(value)} axes, at least {least} are needed", "R105")
    return known_sizes(value) or []


def unsqueeze(b: Builder, value: ir.Value, axes: Sequence[int]) -> ir.Value:
    """Add the axes; undo a Squeeze of the same axes instead."""
    if not axes:
        return value
    before = undone(value, "Squeeze", axes)
    return before if before is not None else b.Unsqueeze(value, list(axes))


def squeeze(b: Builder, value: ir.Value, axes: Sequence[int]) -> ir.Value:
    """Remove the axes (of size 1); undo an Unsqueeze of the same axes instead. Never below rank
    1.
    """
    if not axes:
        return value
    before = undone(value, "Unsqueeze", axes)
    if before is not None:
        return before
    return b.Reshape(value, [-1]) if rank_of(value) == len(axes) else b.Squeeze(value, list(axes))


def undone(value: ir.Value, op_type: str, axes: Sequence[int]) -> ir.Value | None:
    """Return the input of the Squeeze or Unsqueeze of the same axes that produces the value, so
    that both cancel; else None.
    """
    node = producer_if(value, op_type)
    found = None if node is None else constant(optional(node, 1))
    same = found is not None and found.tolist() == list(axes)
    return node.inputs[0] if node is not None and same else None


def unreshaped(value: ir.Value) -> ir.Value:
    """Return the input of the Reshape that produces a value, since two consecutive Reshapes are
    one; other values are unchanged.
    """
    source = producer_operand(value, "Reshape")
    return value if source is None or shape_of(value) is None else source


def reshape(b: Builder, value: ir.Value, shape: Any) -> ir.Value:
    """Reshape to a shape in which 0 means a size of 0."""
    return b.Reshape(unreshaped(value), shape)


def shape_as(b: Builder, parts: Sequence[int | None], source: ir.Value) -> Any:
    """Return `parts` as a shape operand; None entries are computed from the same axis of `source`
    at run time.
    """
    if all(p is not None for p in parts):
        return [int(p) for p in parts if p is not None]
    whole = b.Shape(source)
    pieces = [whole[i : i + 1] if p is None else [p] for i, p in enumerate(parts)]
    return b.Concat(*pieces, axis=0)


def ranked(
    b: Builder, value: ir.Value, wanted: int
) -> tuple[ir.Value, Callable[[ir.Value], ir.Value]]:
    """Return a tensor whose leading axes are batch axes, reshaped to exactly `wanted` axes, and a
    function that gives a result of it the axes back.
    """
    r = rank(value)
    extra, lead = list(range(r - wanted)), list(range(wanted - r))
    if r <= wanted:
        return unsqueeze(b, value, lead), lambda y: squeeze(b, y, lead)
    if all(d == 1 for d in dims(value)[: len(extra)]):
        return squeeze(b, value, extra), lambda y: unsqueeze(b, y, extra)
    shape, count = b.Shape(value), len(extra) + 1
    front, tail = shape[:count], shape[count:]

    def back(y: ir.Value) -> ir.Value:
        after = b.Shape(y)[1:]
        return b.Reshape(y, b.Concat(front, after, axis=0))

    return b.Reshape(value, b.Concat([-1], tail, axis=0)), back


def with_shape(b: Builder, value: Value, shape: Sequence[int]) -> Value:
    """Return the numbers in the shape that the operator requires: one number, or a list of them on
    one axis.
    """
    known_to_fit = value.shape is not None and rank_of(value) == len(shape) == 1 and shape == (-1,)
    return value if known_to_fit else b.Reshape(value, np.array(shape, np.int64))
