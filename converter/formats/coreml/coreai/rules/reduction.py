"""Reductions, sorting, and cumulative operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.coreai.rules.context import INDEX, SIZE, LiftContext, LowerContext
from converter.formats.coreml.coreai.rules.elementwise import NUMBERS, REALS
from converter.formats.coreml.coreai.rules.fields import KEPT, KeptAxis, demand_wide
from converter.graph.demands import shaped
from converter.graph.infer import constant
from converter.graph.value import Value
from converter.mapping.fields import AttrInput, Field, RequireKey
from converter.mapping.rules import Custom, Rule, custom, op, ops

D = ir.DataType


def sort(r: LiftContext) -> Any:
    """Sort all elements of an axis; NaN is last in both directions."""
    x, b = r.input(0), r.b
    axis, down = r.axis(1, r.rank()), r.flag(2, "descending")
    shape = b.Shape(x)
    count = b.Gather(shape, np.array([axis]))
    key = x
    if x.dtype is not None and x.dtype.is_floating_point() and down:
        key = b.Where(b.IsNaN(x), b.like(x, -np.inf), x)
    values, positions = b.TopK(key, count, axis=axis, largest=int(down), sorted=1, outputs=2)
    if r.layer.kind == "argsort":
        return positions
    return values if key is x else b.GatherElements(x, positions, axis=axis)


def write_top(w: LowerContext) -> None:
    """Write the largest elements: sort all, and take the first ones."""
    if not w.attr("sorted", 1) and not w.attr("largest", 1):
        raise MappingError("sorted=0 is not supported")
    rank = w.rank()
    axis, x = int(w.attr("axis", -1)) % rank, w.data
    count = constant(w.input(1))
    values = w.node.outputs[0]
    positions = w.node.outputs[1] if len(w.node.outputs) > 1 else None
    operands = [w.numbers(axis), w.const(np.array(bool(w.attr("largest", 1)))), TRUE(w)]
    order = w.emit("argsort", x, *operands, dtype=INDEX, shape=x.shape)
    first = order
    shape = [(int(count[0]) if count is not None else None) if i == axis else d
             for i, d in enumerate(x.shape or ())]  # fmt: skip
    if count is not None:
        ends = [int(count[0]) if i == axis else (1 << 31) - 1 for i in range(rank)]
        ends_ = w.numbers(ends)
    else:
        before, after = [np.full(n, (1 << 31) - 1) for n in (axis, rank - axis - 1)]
        parts = [w.numbers(before), w.whole(1), w.numbers(after)]
        ends_ = w.emit("concat", w.numbers(0), *parts, shape=[rank])
    first = w.emit("slice", order, w.numbers([0] * rank), ends_, w.numbers([1] * rank), shape=shape)
    if positions is not None and w.used(1):
        w.put("cast", first, outputs=[positions])
    w.put("gather_along_axis", x, first, w.numbers(axis), outputs=[values])


def TRUE(w: LowerContext) -> ir.Value:
    """Return a constant true."""
    return w.const(np.array(True))


class Running(Field):
    """The axis of a cumulative sum, and whether it starts at the end."""

    names = ("reverse", "exclusive")
    inputs = (1,)

    def lift(self, r: LiftContext) -> None:
        r.set(reverse=int(r.flag(2, "reverse")), exclusive=0)
        r.set_inputs(r.input(0), np.array(r.axis(1, r.rank())))

    def lower(self, w: LowerContext) -> None:
        demand_wide(w)
        if w.attr("exclusive", 0):
            raise MappingError("exclusive=1 is not supported")
        axis = w.ints(1, "the axis")[0] % max(1, w.rank())
        w.layer.inputs = [w.data, w.numbers(axis, SIZE), w.const(np.array(bool(w.attr("reverse"))))]


def scan(r: LiftContext) -> Value:
    """Compute a cumulative product, minimum or maximum by doubling: after each step, elements
    combine twice as many. NaN is ignored by minimum and maximum.
    """
    x, b, mode = r.input(0), r.b, r.attr("scan_op", int)
    axis, back = r.axis(1, r.rank(x)), r.flag(2, "reverse")
    size, dtype = r.static(x)[axis], (x.dtype or D.FLOAT).numpy()
    ends = (
        (-np.inf, np.inf) if dtype.kind not in "iu" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    )
    neutral = {1: 1, 2: ends[1], 3: ends[0]}.get(mode)
    if neutral is None:
        raise MappingError(f"scan_op must be 0 to 3, got {mode}", "R110")
    fill = b.const(np.array(neutral, dtype))
    if mode != 1 and dtype.kind not in "iu":
        x = b.Where(b.IsNaN(x), fill, x)
    combine = {1: b.Mul, 2: b.Min, 3: b.Max}[mode]
    step, rank = 1, r.rank(x)
    while step < size:
        pads = np.zeros((2, rank), np.int64)
        pads[int(back), axis], pads[int(not back), axis] = step, -step
        x = combine(x, b.Pad(x, pads.reshape(-1), fill))
        step *= 2
    return x


def statistics(r: LiftContext) -> Any:
    """Scale, and zero point where it is not symmetric, of numbers that are to be quantized. The
    range of the numbers includes 0.
    """
    b, x, kind = r.b, r.input(0), r.layer.kind
    low, high = shaped(r.known(r.input(1), "range"), 2, what="range").tolist()
    rank = r.rank(x)
    rest = np.delete(np.arange(rank), r.axis(2, rank))
    if kind.startswith("symmetric"):
        most = b.ReduceMax(b.Abs(x), rest, keepdims=0)
        return most * 2.0 / b.like(most, high - low)
    top, bottom = (reduce(x, rest, keepdims=0) for reduce in (b.ReduceMax, b.ReduceMin))
    top, bottom = b.Max(top, b.like(top, 0)), b.Min(bottom, b.like(bottom, 0))
    scale = (top - bottom) / b.like(top, high - low)
    return scale, b.like(top, low) - bottom / scale


def booleans_as_int32(r: LiftContext) -> None:
    """Cast booleans to int32, which reductions take."""
    r.data = r.cast(r.input(0), D.INT32)


def as_boolean(r: LiftContext, y: Value) -> ir.Value:
    """Cast the result to booleans."""
    return r.cast(y, D.BOOL)


TOP = "2,6 =i64:[2] -> 2"
RULES: list[Rule | Custom] = [
    op("ReduceMean", "reduce_mean", REALS, *KEPT, example_inputs="2,3 =i64:[1]"),
    *ops(
        "ReduceSum=reduce_sum ReduceProd=reduce_product ReduceMax=reduce_max ReduceMin=reduce_min",
        *(NUMBERS, *KEPT),
        example_inputs="2,3 =i64:[1]",
    ),
    op(
        "ReduceMin",
        "all",
        *KEPT,
        before_lift=booleans_as_int32,
        after_lift=as_boolean,
        lift_only=True,
    ),
    op(
        "ReduceMax",
        "any",
        *KEPT,
        before_lift=booleans_as_int32,
        after_lift=as_boolean,
        lift_only=True,
    ),
    op("ArgMax", "argmax", KeptAxis()),
    op("Softmax", "softmax", REALS, AttrInput("axis", 1, int, np.int32)),
    op("CumSum", "scan", RequireKey("scan_op", 0), Running(), example_inputs="2,3 =i32:(1)"),
    custom("", "scan", scan),
    custom("TopK", "sort argsort", sort, write_top),
    custom("", "symmetric_quantization_statistics asymmetric_quantization_statistics", statistics),
]
