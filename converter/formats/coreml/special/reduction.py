"""Reductions, arg-reductions, sorting, running sums."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.coreml.blobs import axis_of, dims, floats, ints, operand, rank
from converter.formats.coreml.special.registry import lifts
from converter.graph.build import Builder
from converter.graph.infer import rank_of
from converter.mapping.node import Layer, MappingError

Value = ir.Value
_AXES = {"CHW": [-3, -2, -1], "HW": [-2, -1], "C": [-3], "H": [-2], "W": [-1]}
_MODES = {
    "SUM": "ReduceSum", "AVG": "ReduceMean", "PROD": "ReduceProd", "SUMSQUARE": "ReduceSumSquare", "L1": "ReduceL1", "L2": "ReduceL2",
    "MAX": "ReduceMax", "MIN": "ReduceMin",
}  # fmt: skip


@lifts("reduce")
def lift_reduce(layer: Layer, b: Builder) -> Value:
    """LOGSUM is the sum of logarithms; ARGMAX of several axes counts in their flattened order."""
    p, x = layer.attrs, floats(b, operand(layer))
    r = rank(x)
    axes = [axis_of(a, r) for a in _AXES[p["axis"]]]
    if p["mode"] == "LOGSUM":
        return b.op("ReduceSum", b.op("Log", b.op("Add", x, p["epsilon"] or 1e-6)), axes, keepdims=1)
    if p["mode"] != "ARGMAX":
        return b.op(_MODES[p["mode"]], x, axes, keepdims=1)
    if len(axes) == 1:
        return b.op("ArgMax", x, axis=axes[0], keepdims=1)
    flat = b.op("Reshape", x, b.op("Concat", b.op("Slice", b.op("Shape", x), [0], [axes[0]]), [-1], axis=0))
    return b.op("Unsqueeze", b.op("ArgMax", flat, axis=axes[0], keepdims=1), axes[1:])


REDUCTIONS = "reduceL1 reduceL2 reduceMax reduceMin reduceSum reduceProd reduceMean reduceLogSum reduceSumSquare reduceLogSumExp"


@lifts(REDUCTIONS)
def lift_reduction(layer: Layer, b: Builder) -> Value:
    p, x = layer.attrs, floats(b, operand(layer))
    op = "Reduce" + layer.kind.removeprefix("reduce")
    r = rank_of(x)
    everything = p["reduceAll"] or not p["axes"] or (r is not None and len({a % r for a in p["axes"]}) == r)
    keep = int(p["keepDims"])
    axes = None if everything else [axis_of(int(a), rank(x)) for a in p["axes"]]
    y = b.op(op, x, axes, keepdims=keep)
    return b.op("Reshape", y, [1]) if everything and not keep else y


@lifts("argMax argMin")
def lift_arg(layer: Layer, b: Builder) -> Value:
    p, x = layer.attrs, floats(b, operand(layer))
    r = rank(x)
    axis = axis_of(int(p["axis"]), r)
    op = "ArgMax" if layer.kind == "argMax" else "ArgMin"
    return b.op(op, x, axis=axis, keepdims=0 if p["removeDim"] and r > 1 else 1)


@lifts("topK")
def lift_top_k(layer: Layer, b: Builder) -> tuple[Value, ...]:
    p, x = layer.attrs, floats(b, operand(layer))
    axis = axis_of(int(p["axis"]), rank(x))
    if len(layer.inputs) > 1:
        k = b.op("Reshape", ints(b, operand(layer, 1)), [1])
    else:
        size = dims(x)[axis]
        if size is not None and p["K"] > size:
            raise MappingError(f"K={p['K']} of {size} elements", "R110")
        k = b.const([int(p["K"])])
    return b.ops("TopK", x, k, outputs=2, axis=axis, largest=int(not p["useBottomK"]), sorted=1)


@lifts("argSort")
def lift_arg_sort(layer: Layer, b: Builder) -> Value:
    p, x = layer.attrs, floats(b, operand(layer))
    axis = axis_of(int(p["axis"]), rank(x))
    k = b.op("Slice", b.op("Shape", x), [axis], [axis + 1])
    return b.ops("TopK", x, k, outputs=2, axis=axis, largest=int(p["descending"]), sorted=1)[1]


@lifts("cumSum")
def lift_cum_sum(layer: Layer, b: Builder) -> Value:
    p, x = layer.attrs, floats(b, operand(layer))
    axis: object = int(p["axis"])
    if len(layer.inputs) > 1:
        axis = b.op("Reshape", ints(b, operand(layer, 1)), b.const([], dtype="int64"))
    return b.op("CumSum", x, axis, exclusive=int(p["excludeFinalSum"]), reverse=int(p["reverse"]))


@lifts("whereNonZero")
def lift_where_non_zero(layer: Layer, b: Builder) -> Value:
    return b.op("Transpose", b.op("NonZero", operand(layer)), perm=[1, 0])
