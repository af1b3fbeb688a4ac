"""Padding and reversing."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.special.base import (
    Emit,
    attributes,
    cast,
    filled,
    given,
    int64,
    ints,
    lifts,
    lowers,
    near_axis,
    operand,
    optional,
    rank,
    transpose,
)
from converter.graph.build import Builder
from converter.graph.infer import known, rank_of
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType


@lifts("Pad")
def lift_pad(layer: Layer, b: Builder) -> ir.Value:
    a, x = attributes(layer, pad_mode=str), operand(layer, 0)
    amounts = [int64(b, operand(layer, i), flat=True) for i in (1, 2)]
    fill = optional(layer, 3)
    if a.pad_mode == "symmetric":
        return _symmetric(b, x, *(ints(v, "the padding") for v in amounts))
    if a.pad_mode not in ("constant", "edge", "reflect"):
        raise MappingError(f"pad_mode={a.pad_mode!r} is not known", "R110")
    both = [known(v) for v in amounts]
    joined: Any = [int(v) for v in np.concatenate(both)] if all(v is not None for v in both) else b.op("Concat", *amounts, axis=0)  # type: ignore[arg-type]
    if a.pad_mode != "constant":
        if isinstance(joined, list) and min(joined, default=0) < 0:
            x, joined = _cropped(b, x, joined)
        return b.op("Pad", x, joined, mode=a.pad_mode)
    if fill is not None and x.dtype is not None:
        fill = cast(b, fill, x.dtype)
        fill = b.op("Reshape", fill, np.zeros(0, np.int64)) if rank_of(fill) != 0 else fill
    return b.op("Pad", x, joined, fill, mode="constant")


def _cropped(b: Builder, x: ir.Value, pads: list[int]) -> tuple[ir.Value, list[int]]:
    """Negative padding is cut off first: the values to repeat are those of the rest."""
    n = len(pads) // 2
    axes = [i for i in range(n) if pads[i] < 0 or pads[n + i] < 0]
    ends = [min(pads[n + i], 0) or np.iinfo(np.int64).max for i in axes]
    return b.op("Slice", x, [max(0, -pads[i]) for i in axes], ends, axes), [max(0, p) for p in pads]


def _symmetric(b: Builder, x: ir.Value, begin: list[int], end: list[int]) -> ir.Value:
    """Mirrors with the border element repeated."""
    x, pads = _cropped(b, x, [*begin, *end]) if min([*begin, *end], default=0) < 0 else (x, [*begin, *end])
    n = len(begin)
    for axis in range(n):
        before, after = pads[axis], pads[n + axis]
        parts: list[ir.Value] = [x]
        if before:
            parts.insert(0, b.op("Slice", x, [before - 1], [np.iinfo(np.int64).min], [axis], [-1]))
        if after:
            parts.append(b.op("Slice", x, [-1], [-after - 1], [axis], [-1]))
        x = b.op("Concat", *parts, axis=axis) if len(parts) > 1 else x
    return x


@lowers("Pad")
def lower_pad(node: Node, low: Lowering) -> None:
    e, x, mode = Emit(node, low), given(node, 0), filled(node)["mode"]
    if mode == "wrap":
        raise MappingError("mode='wrap' cannot be expressed")
    pads = known(node.input(1))
    n = rank(x)
    if pads is None or (node.input(3) is not None and known(node.input(3)) is None):
        _computed_pad(e, low, x, n, mode)
        return
    axes = ints(node.input(3), "the axes") if node.input(3) is not None else list(range(n))
    begin, end = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for i, axis in enumerate(axes):
        begin[axis], end[axis] = pads[i], pads[len(axes) + i]
    if ((begin < 0).any() or (end < 0).any()) and (low.version < 12 or mode != "constant"):
        raise MappingError("negative padding cannot be expressed here")
    fill: Any = node.input(2) if mode == "constant" else None
    if fill is None:
        fill = np.zeros((), (x.dtype or T.FLOAT).numpy())
    elif known(fill) is not None:
        fill = known(fill).reshape(())  # type: ignore[union-attr]
    e.out("Pad", x, begin, end, fill if mode == "constant" else None, pad_mode=mode)


def _computed_pad(e: Emit, low: Lowering, x: ir.Value, n: int, mode: str) -> None:
    """Amounts, or the axes they are for, that are known at run time only."""
    node = e.node
    zero = np.array(0, np.int64)
    halves = [low.value("pads", T.INT64, None) for _ in range(2)]
    e.out("Split", e.ints(node.input(1)), zero, outputs=halves, num_splits=2)
    amounts: list[ir.Value] = halves
    if node.input(3) is not None:
        axes = e.op("Convert", node.input(3), dtype=T.INT64, destination_type="i64")
        wrapped = e.op("FloorMod", axes, [n], auto_broadcast="numpy")
        amounts = [e.op("ScatterElementsUpdate", np.zeros(n, np.int64), wrapped, v, zero, dtype=T.INT64, **_plain(low)) for v in halves]
    fill: Any = node.input(2)
    if fill is None:
        fill = np.zeros((), (x.dtype or T.FLOAT).numpy())
    elif rank_of(fill) != 0:
        fill = e.op("Reshape", fill, np.zeros(0, np.int64), special_zero=False)
    e.out("Pad", x, *amounts, fill if mode == "constant" else None, pad_mode=mode)


def _plain(low: Lowering) -> dict[str, Any]:
    return {"reduction": "none", "use_init_val": True} if low.version >= 12 else {}


@lifts("Reverse")
def lift_reverse(layer: Layer, b: Builder) -> ir.Value:
    a, x = attributes(layer, mode=str), operand(layer, 0)
    if a.mode not in ("index", "mask"):
        raise MappingError(f"mode={a.mode!r} is not known", "R110")
    found = ints(operand(layer, 1), "the axes")
    axes = found if a.mode == "index" else [i for i, v in enumerate(found) if v]
    if not axes:
        return b.op("Identity", x)
    k = len(axes)
    return b.op("Slice", x, [-1] * k, [np.iinfo(np.int64).min] * k, axes, [-1] * k)


@lifts("ReverseSequence")
def lift_reverse_sequence(layer: Layer, b: Builder) -> ir.Value:
    a, x = attributes(layer, batch_axis=0, seq_axis=1), operand(layer, 0)
    n = rank(x)
    batch, time = near_axis(a.batch_axis, n), near_axis(a.seq_axis, n)
    lengths = int64(b, operand(layer, 1), flat=True)
    if (batch, time) in ((0, 1), (1, 0)):
        return b.op("ReverseSequence", x, lengths, batch_axis=batch, time_axis=time)
    perm = [batch, time, *(i for i in range(n) if i not in (batch, time))]
    y = b.op("ReverseSequence", transpose(b, x, perm), lengths, batch_axis=0, time_axis=1)
    return transpose(b, y, [int(i) for i in np.argsort(perm)])


@lowers("ReverseSequence")
def lower_reverse_sequence(node: Node, low: Lowering) -> None:
    a = filled(node)
    e = Emit(node, low)
    e.out("ReverseSequence", node.input(0), e.ints(node.input(1)), batch_axis=a["batch_axis"], seq_axis=a["time_axis"])
