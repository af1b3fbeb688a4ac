"""Reductions of truth values, variances, products on the run, the best k."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.ops.fields import axes_of, axis_of
from converter.formats.zhouyi.special.register import choose, fixed, lifts, lowers, need, need_int, operand, static, truth_of
from converter.graph.build import Builder
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node


@lifts("Reduce/ALL", "Reduce/ANY")
def lift_all_any(layer: Layer, b: Builder) -> ir.Value:
    truth = b.op("Cast", truth_of(b, operand(layer)), to=int(ir.DataType.INT32))
    result = b.op("ReduceMin" if layer.attrs["method"].upper() == "ALL" else "ReduceMax", truth, axes_of(layer))
    return b.op("Cast", result, to=int(ir.DataType.BOOL))


@lifts("Reduce/VARIANCE", "Reduce/UNBIASED_VARIANCE")
def lift_variance(layer: Layer, b: Builder) -> ir.Value:
    x, axes = operand(layer), axes_of(layer)
    d = b.op("Sub", x, b.op("ReduceMean", x, axes))
    squares = b.op("Mul", d, d)
    if layer.attrs["method"].upper() == "VARIANCE":
        return b.op("ReduceMean", squares, axes)
    count = int(np.prod([static(x)[a] for a in axes]))
    return b.op("Div", b.op("ReduceSum", squares, axes), b.like(x, count - 1))


@lifts("Cumulate")
def lift_cumulate(layer: Layer, b: Builder) -> ir.Value:
    x, axes = operand(layer), axes_of(layer)
    axis = axis_of(axes[0], len(static(x)))
    if len(axes) != 1:
        raise MappingError(f"axis={axes}: only one axis has a counterpart")
    exclusive, reverse = int(bool(need(layer, "exclusive", False))), int(bool(need(layer, "reverse", False)))
    if choose(layer, "method", {"SUM": True, "PROD": False}):
        return b.op("CumSum", x, b.const(np.array(axis, np.int64)), exclusive=exclusive, reverse=reverse)
    return b.ext("CumProd", x, axis=axis, exclusive=exclusive, reverse=reverse)


@lowers("CumSum")
def lower_cum_sum(node: Node, low: Lowering) -> None:
    axis = axis_of(int(fixed(node, 1, "the axis").reshape(-1)[0]), len(static(operand(node))))
    _cumulate(node, low, "SUM", axis)


@lowers("CumProd", domain="netconv")
def lower_cum_prod(node: Node, low: Lowering) -> None:
    _cumulate(node, low, "PROD", axis_of(int(node.attrs["axis"]), len(static(operand(node)))))


def _cumulate(node: Node, low: Lowering, method: str, axis: int) -> None:
    flags = {k: bool(node.attrs.get(k, 0)) for k in ("exclusive", "reverse")}
    low.add("Cumulate", [node.input(0)], node.outputs, {"method": method, "axis": axis, **flags})


@lifts("TopK")
def lift_top_k(layer: Layer, b: Builder) -> list[ir.Value]:
    """Among equals the first comes first; the format's own default, last, says nothing about float networks that the tools write."""
    k = layer.attrs.get("k")
    if k is None:
        raise MappingError("a computed k has no counterpart")
    flags: dict[str, Any] = {name: int(bool(layer.attrs.get(name, True))) for name in ("largest", "sorted")}
    return list(b.ops("TopK", operand(layer), [need_int(layer, "k")], axis=need_int(layer, "axis"), outputs=2, **flags))


@lowers("TopK")
def lower_top_k(node: Node, low: Lowering) -> None:
    x = operand(node)
    attrs = {"k": int(fixed(node, 1, "k").reshape(-1)[0]), "axis": axis_of(int(node.attrs.get("axis", -1)), len(static(x)))}
    flags = {name: bool(node.attrs.get(name, 1)) for name in ("largest", "sorted")}
    low.add("TopK", [x], node.outputs, {**attrs, **flags, "select_index": "first"})
