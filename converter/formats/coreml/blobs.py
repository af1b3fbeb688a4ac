"""Core ML's one kind of tensor (float32, at least rank 1) in a graph that knows types, and the few shapes that layers share.

In the graph a value keeps its natural type: a comparison is bool, an index int64. What a layer needs it asks for with
`floats`, `ints` or `bools`; Casts appear only where a type really changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.infer import constant, known, rank_of, shape_of
from converter.mapping.node import Layer, MappingError

T = ir.DataType
_CASTS = "coreml.casts"


def cast(b: Builder, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    """`value` as `dtype`; a Cast is made once per value and graph, and looks through a lossless Cast before it."""
    if value.dtype == dtype:
        return value
    made: dict[Any, ir.Value] = value.meta.setdefault(_CASTS, {})
    key = (b.graph, dtype)
    if key not in made:
        made[key] = b.op("Cast", _origin(value, dtype), to=int(dtype)) if _origin(value, dtype).dtype != dtype else _origin(value, dtype)
    return made[key]


def _origin(value: ir.Value, dtype: ir.DataType) -> ir.Value:
    """The source of a widening Cast (bool or integer -> float), when going back to its type or to another exact one."""
    node = value.producer()
    if node is None or node.op_type != "Cast" or node.domain:
        return value
    source = node.inputs[0]
    exact = source is not None and (source.dtype == T.BOOL or (source.dtype in (T.INT64, T.INT32) and dtype in (T.INT64, T.INT32)))
    return source if exact and source is not None and value.dtype in (T.FLOAT, T.INT64, T.INT32) else value


def floats(b: Builder, value: ir.Value) -> ir.Value:
    return cast(b, value, T.FLOAT)


def ints(b: Builder, value: ir.Value) -> ir.Value:
    return cast(b, value, T.INT64)


def vector(b: Builder, value: ir.Value) -> ir.Value:
    """Whole numbers on one axis: shapes, repeats and lengths, which Core ML takes from a blob of any rank (it has no rank 0, so [1,1] is common)."""
    whole = ints(b, value)
    return whole if rank_of(whole) == 1 else b.op("Reshape", whole, [-1])


def bools(b: Builder, value: ir.Value) -> ir.Value:
    return cast(b, value, T.BOOL)


def together(b: Builder, values: Sequence[ir.Value]) -> list[ir.Value]:
    """The values in one type: their own when they agree, else float."""
    return list(values) if len({v.dtype for v in values}) == 1 else [floats(b, v) for v in values]


def operand(layer: Layer, index: int = 0) -> ir.Value:
    value = layer.inputs[index] if index < len(layer.inputs) else None
    if value is None:
        raise MappingError(f"input {index} is absent", "R105")
    return value


def operands(layer: Layer) -> list[ir.Value]:
    return [operand(layer, i) for i in range(len(layer.inputs))]


def rank(value: ir.Value, least: int = 0) -> int:
    found = rank_of(value)
    if found is None:
        raise MappingError(f"the rank of {value.name} is not known")
    if found < least:
        raise MappingError(f"the input has rank {found}, {least} is the least", "R105")
    return found


def static(value: ir.Value) -> tuple[int, ...]:
    shape = shape_of(value)
    if shape is None:
        raise MappingError(f"the shape of {value.name} must be static", "X203", "fix the inputs with --inputs NAME:1,3,224,224")
    return shape


def dims(value: ir.Value) -> list[int | None]:
    """Sizes that are known, None for the others."""
    rank(value)
    assert value.shape is not None
    return [d if isinstance(d, int) else None for d in value.shape]


def axis_of(axis: int, r: int) -> int:
    """A non-negative axis; an axis outside the rank is an error."""
    if not -r <= axis < r:
        raise MappingError(f"axis {axis} of a tensor of rank {r}", "R110")
    return axis % r


def unsqueeze(b: Builder, value: ir.Value, axes: Sequence[int]) -> ir.Value:
    """Adds the axes; undoes a Squeeze of the same axes instead."""
    if not axes:
        return value
    before = _undone(value, "Squeeze", axes)
    return before if before is not None else b.op("Unsqueeze", value, list(axes))


def squeeze(b: Builder, value: ir.Value, axes: Sequence[int]) -> ir.Value:
    """Removes the axes (of size 1); undoes an Unsqueeze of the same axes instead. Never below rank 1."""
    if not axes:
        return value
    before = _undone(value, "Unsqueeze", axes)
    if before is not None:
        return before
    return b.op("Reshape", value, [-1]) if rank_of(value) == len(axes) else b.op("Squeeze", value, list(axes))


def _undone(value: ir.Value, op_type: str, axes: Sequence[int]) -> ir.Value | None:
    node = value.producer()
    if node is None or node.op_type != op_type or node.domain or len(node.inputs) < 2:
        return None
    found = constant(node.inputs[1])
    return node.inputs[0] if found is not None and found.tolist() == list(axes) else None


def reshape(b: Builder, value: ir.Value, shape: Any) -> ir.Value:
    """Reshape with literal zeros; two in a row are one."""
    node = value.producer()
    if node is not None and node.op_type == "Reshape" and not node.domain and node.inputs[0] is not None and shape_of(value) is not None:
        value = node.inputs[0]
    return b.op("Reshape", value, shape)


def shape_as(b: Builder, parts: Sequence[int | None], source: ir.Value) -> Any:
    """`parts` as a shape operand; None entries are taken from the same axis of `source` at run time."""
    if all(p is not None for p in parts):
        return [int(p) for p in parts if p is not None]
    whole = b.op("Shape", source)
    pieces = [b.const([p]) if p is not None else b.op("Slice", whole, [i], [i + 1]) for i, p in enumerate(parts)]
    return b.op("Concat", *pieces, axis=0)


def with_rank(b: Builder, value: ir.Value, wanted: int, f: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """`f` of a tensor whose leading axes are batch axes, seen with exactly `wanted` axes; the result gets them back."""
    r = rank(value)
    if r == wanted:
        return f(value)
    if r < wanted:
        lead = list(range(wanted - r))
        return squeeze(b, f(unsqueeze(b, value, lead)), lead)
    extra = list(range(r - wanted))
    if all(d == 1 for d in dims(value)[: len(extra)]):
        return unsqueeze(b, f(squeeze(b, value, extra)), extra)
    shape = b.op("Shape", value)
    merged = f(b.op("Reshape", value, b.op("Concat", [-1], b.op("Slice", shape, [len(extra) + 1], [r]), axis=0)))
    tail = b.op("Slice", b.op("Shape", merged), [1], [wanted])
    return b.op("Reshape", merged, b.op("Concat", b.op("Slice", shape, [0], [len(extra) + 1]), tail, axis=0))


def number(value: ir.Value) -> int | None:
    """A scalar that is known without running the network."""
    found = known(value)
    return int(found.reshape(-1)[0]) if found is not None and found.size == 1 else None
