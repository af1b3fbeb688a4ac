"""Nodes that the format lacks, rewritten with those that it has, where the common decompositions
(`converter/passes/decompositions`) do not apply or need more layers.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi import legalize_windows as windows
from converter.formats.zhouyi.legalize_windows import attributes, static
from converter.formats.zhouyi.types import is_float, numpy_type
from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import Builder, same_attrs
from converter.graph.demands import broadcast
from converter.graph.infer import constant, known, shape_of
from converter.graph.names import Names
from converter.graph.sizes import arange
from converter.graph.value import LOWEST, Value, operand, optional
from converter.graph.walk import all_graphs, is_needed
from converter.passes.decompositions.indexing import strides_of
from converter.passes.equal_shapes import equal_shapes
from converter.passes.legalize import Rewrites, rewritten
from converter.passes.split_directions import split_directions

# elementwise --------------------------------------------------------------------------------------


def extremes(node: ir.Node, b: Builder) -> Value | None:
    """Rewrite Max and Min as operators on two operands of one shape; one number for all elements is
    a bound of a Clip.
    """
    if len(node.inputs) != 2:
        return None
    for x, other in ((operand(node), operand(node, 1)), (operand(node, 1), operand(node))):
        bound = constant(other)
        same = shape_of(x) is not None and shape_of(x) == shape_of(node.outputs[0])
        if not same or bound is None or bound.size != 1 or not is_float(x.dtype):
            continue
        if abs(float(bound.reshape(-1)[0])) <= float(np.finfo(np.float32).max):  # and no NaN
            limit = bound.reshape(())
            return b.Clip(x, limit, None) if node.op_type == "Max" else b.Clip(x, None, limit)
    return equal_shapes(node, b)


def integer_div(node: ir.Node, b: Builder) -> Value | None:
    """Return the quotient of integers, truncated. The layer divides floats; the result is exact
    beyond their precision, since the remainder is subtracted from the dividend first. The smallest
    integer is a special case.
    """
    x, y = operand(node), operand(node, 1)
    if x.dtype is None or x.dtype.is_floating_point():
        return None
    signed = x.dtype.is_signed()
    exact = x - b.Mod(x, y, fmod=int(signed))
    guess = _rounded(b, exact, y, x.dtype)
    if signed and x.dtype.itemsize > 2:
        guess = guess + _rounded(b, exact - guess * y, y, x.dtype)
    return guess


def _rounded(b: Builder, x: Value, y: Value, dtype: ir.DataType) -> Value:
    """Divide x by y as floats and round to the nearest integer: large quotients are off by a few
    units, which a second step corrects.
    """
    numerator, denominator = (b.Cast(v, to=ir.DataType.FLOAT) for v in (x, y))
    return b.Cast(b.Round(numerator / denominator), to=dtype)


# reductions ---------------------------------------------------------------------------------------


def axes_of(node: ir.Node) -> list[int] | None:
    """Return the axes as written; None for all, [] for none."""
    source = optional(node, 1)
    array = constant(source)
    if source is not None and array is None:
        raise MappingError("the axes must be constant")
    if array is None or array.size == 0:
        return [] if attributes(node).get("noop_with_empty_axes", 0) else None
    return [int(a) for a in array.reshape(-1)]


def kept(node: ir.Node, b: Builder) -> Value | None:
    """Remove the reduced axes by a Reshape, since the layers keep them. The common decompositions
    do not have sums, and need more layers for the others. A reduction over no axes is the identity;
    booleans are reduced as numbers.
    """
    x, axes, a = operand(node), axes_of(node), attributes(node)
    reduce = b.operator(node.op_type)
    if axes == []:
        return x if node.op_type not in ("ReduceL1", "ReduceL2") else b.Abs(x)
    if not static(x):
        return b.Reshape(reduce(b.Reshape(x, [1]), [0]), [])
    if x.dtype == ir.DataType.BOOL:
        wide = reduce(b.Cast(x, to=ir.DataType.UINT8), axes, keepdims=a["keepdims"])
        return b.Cast(wide, to=ir.DataType.BOOL)
    if not a["keepdims"]:
        return b.Reshape(reduce(x, axes, keepdims=1), static(node.outputs[0]))
    return reduce(x, axes, keepdims=1) if a.get("noop_with_empty_axes", 0) else None


def best(node: ir.Node, b: Builder) -> Value | None:
    """Remove the reduced axis of ArgMax and ArgMin by a Reshape."""
    a = attributes(node)
    if a["keepdims"]:
        return None
    found = b.operator(node.op_type)(operand(node), **{**a, "keepdims": 1})
    return b.Reshape(found, static(node.outputs[0]))


def with_shift(node: ir.Node, b: Builder) -> Value | None:
    """Give a LayerNorm the constant scale and shift that the layer needs: a missing shift is
    written as zeros, computed ones are operators after it.
    """
    if len(node.outputs) > 1:
        return None
    x, scale, shift, a = operand(node), operand(node, 1), optional(node, 2), attributes(node)
    axis = a["axis"] % len(static(x))
    shape, dtype = static(x)[axis:], numpy_type(x)
    known = constant(scale) if shift is None and len(static(scale)) <= len(shape) else None
    factors = np.ones(shape, dtype) if known is None else broadcast(known, shape, "the scale")
    zeros = np.zeros(shape, dtype)
    y = b.LayerNormalization(x, factors, zeros, axis=axis, epsilon=a["epsilon"])
    if known is not None:
        return y
    return y * scale if shift is None else y * scale + shift


# look-ups and scatters ----------------------------------------------------------------------------


def unsqueeze_scalar_index(node: ir.Node, b: Builder) -> Value | None:
    """Give a scalar index an axis, which is removed afterwards; executors expect an axis there."""
    index = operand(node, 1)
    if static(index):
        return None
    found = b.Gather(operand(node), b.Reshape(index, [1]), **attributes(node))
    return b.Reshape(found, static(node.outputs[0]))


def extreme(node: ir.Node, b: Builder) -> Value | None:
    """Scatter reductions MAX and MIN, also of integers, which the common decomposition does not
    support: a table marks which update belongs to which element, and each element gets the extreme
    of its updates.
    """
    a, (x, index, updates) = attributes(node), (operand(node, i) for i in range(3))
    if (word := a.get("reduction")) not in ("max", "min"):
        return None
    shape, dtype = static(x), numpy_type(index)
    if node.op_type == "ScatterElements":
        axis = a["axis"] % len(shape)
        region = [*static(index)[:axis], shape[axis], *static(index)[axis + 1 :]]
        every = list(range(len(region)))
        part = x if region == shape else b.Slice(x, [0] * len(region), region, every)
        return _put_back(b, x, _extremes(b, part, index, updates, axis, word), region)
    *positions, depth = static(index)
    rest, count = math.prod(shape[depth:]), math.prod(positions)
    index = b.Where(index < 0, index + np.array(shape[:depth], dtype), index)
    flat = b.ReduceSum(index * np.array(strides_of(shape[:depth]), dtype), [-1], keepdims=0)
    rows = b.Tile(b.Reshape(flat, [count, 1]), [1, rest])
    x, updates = b.Reshape(x, [math.prod(shape[:depth]), rest]), b.Reshape(updates, [count, rest])
    return b.Reshape(_extremes(b, x, rows, updates, 0, word), shape)


def _extremes(
    b: Builder, x: Value, index: Value, updates: Value, axis: int, reduction: str
) -> Value:
    """Compute Max or Min for index and updates, which have the shape of x except along `axis`."""
    n, m, rank = static(x)[axis], static(index)[axis], len(static(x))
    if math.prod(static(x)) * m > 1 << 24:
        raise MappingError("a scatter of this size cannot be written as a table")
    assert x.dtype is not None
    low, high = (x.dtype.min, x.dtype.max) if x.dtype.is_integer() else (-np.inf, np.inf)
    neutral = low if reduction == "max" else high
    index = b.Where(index < 0, index + n, index)
    columns = arange(n).reshape([-1] + [1] * (rank - axis - 1)).astype(numpy_type(index))
    hit = b.Equal(b.Unsqueeze(index, [axis + 1]), columns)
    table = b.Where(hit, b.Unsqueeze(updates, [axis + 1]), neutral)
    word = reduction.capitalize()
    return b.operator(word)(x, b.operator(f"Reduce{word}")(table, [axis], keepdims=0))


def _put_back(b: Builder, x: Value, part: Value, region: list[int]) -> Value:
    """Return x with its first elements along all axes replaced by `part`."""
    for axis in reversed(range(len(region))):
        size = static(x)[axis]
        if region[axis] < size:
            first = [n if i == axis else 0 for i, n in enumerate(region)]
            rest = b.Slice(x, first, [*region[:axis], *static(x)[axis:]], list(range(len(region))))
            part = b.Concat(part, rest, axis=axis)
    return part


# suppression of boxes -----------------------------------------------------------------------------


def suppression_mask(node: ir.Node, b: Builder) -> Value:
    """Treat each class as an image of its own; the indices that the NMS keeps become ones in a row
    of zeros.
    """
    boxes, scores, iou = operand(node), operand(node, 1), constant(operand(node, 2))
    if iou is None:
        raise MappingError(
            "the overlap must be constant, because the target stores it with the layer"
        )
    batch, classes, n = static(scores)
    images = batch * classes
    if attributes(node).get("center_point_box", 0):
        boxes = corners(b, boxes)
    each = b.Reshape(b.Tile(b.Reshape(boxes, [batch, 1, n, 4]), [1, classes, 1, 1]), [images, n, 4])
    counts, one = (np.full([images, 1], v, np.float32) for v in (n, 1))
    _, kept, _, inner = b.GroupedNMS(
        each,
        counts,
        one,
        b.Reshape(scores, [images, n]),
        outputs=4,
        size=n,
        per_class=n,
        iou_threshold=float(iou.reshape(-1)[0]),
        score_threshold=LOWEST,
    )
    positions = b.Where(kept > arange(n, dtype=np.float32)[None], inner, n)
    index = b.Cast(positions, to=ir.DataType.INT64)
    zeros, ones = np.zeros([images, n + 1], np.float32), np.ones([images, n], np.float32)
    marked = b.ScatterElements(zeros, index, ones, axis=1)[:, :n]
    return b.Cast(b.Reshape(marked, [batch, classes, n]), to=ir.DataType.BOOL)


def corners(b: Builder, boxes: Value) -> Value:
    """Convert center x, y, width, height to y1, x1, y2, x2, since the format's layer ignores
    `center_point_box`. A box of negative size overlaps nothing; its corners would be those of a box
    of the opposite size, since the layer accepts any two corners.
    """
    x, y, w, h = b.Split(boxes, [1, 1, 1, 1], outputs=4, axis=2)
    down, across = b.Relu(h) * 0.5, b.Relu(w) * 0.5
    return b.Concat(y - down, x - across, y + down, x + across, axis=2)


# loops --------------------------------------------------------------------------------------------


def flatten_scan_outputs(node: ir.Node, b: Builder) -> tuple[Value, ...] | None:
    """Stack the outputs of a Loop as vectors, which are rows of a matrix; their shapes are restored
    after the Loop.
    """
    body, states = node.attributes["body"].as_graph(), len(node.inputs) - 2
    shapes = [static(v) for v in node.outputs[states:]]
    if all(len(shape) == 2 for shape in shapes):
        return None
    inside = Builder(body, b.names)
    for i in range(1 + states, len(body.outputs)):
        body.outputs[i] = inside.Reshape(body.outputs[i], [-1])
    results = b.ops("Loop", *node.inputs, outputs=len(node.outputs), body=body)
    for value, shape in zip(results[states:], shapes, strict=True):
        value.shape = ir.Shape([shape[0], math.prod(shape[1:])])
    stacked = zip(results[states:], shapes, strict=True)
    return (*results[:states], *(b.Reshape(v, shape) for v, shape in stacked))


def keep_initial_states(model: ir.Model) -> None:
    """Select the initial states after each Loop that may end before its first iteration, in place.

    The executor takes the states from the last iteration of the body, and without iterations they
    are zeros.
    """
    names = Names(model)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            if node.op_type == "Loop" and not node.domain and not _runs(node):
                rewritten(node, names, _states_of_loop)


def _runs(loop: ir.Node) -> bool:
    """Return whether a Loop is known to have an iteration."""
    trips, go = (optional(loop, i) for i in range(2))
    counted, started = known(trips), known(go)
    return (trips is None or (counted is not None and bool((counted > 0).all()))) and (
        go is None or (started is not None and bool(started.all()))
    )


def _states_of_loop(node: ir.Node, b: Builder) -> list[Value]:
    results = list(b.ops("Loop", *node.inputs, outputs=len(node.outputs), **same_attrs(node)))
    for new, old in zip(results, node.outputs, strict=True):
        new.shape = old.shape
    trips, go = optional(node, 0), optional(node, 1)
    found = [b.Reshape(v, []) for v in (None if trips is None else trips > 0, go) if v is not None]
    runs = found[0] if len(found) == 1 else b.And(*found)
    for i, start in enumerate(node.inputs[2:]):
        if start is not None and is_needed(node.outputs[i]):
            results[i] = b.Where(runs, results[i], start)
    return results


# rewrites --------------------------------------------------------------------------------

_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_REDUCTIONS = ("L1", "L2", "Max", "Mean", "Min", "Prod", "Sum")

REWRITES: Rewrites = {
    **{("", op): equal_shapes for op in (*_COMPARISONS, "And", "Or", "Xor", "Where")},
    **{("", op): extremes for op in ("Max", "Min")},
    ("", "Div"): integer_div,
    **{("", f"Reduce{op}"): kept for op in _REDUCTIONS},
    **{("", op): best for op in ("ArgMax", "ArgMin")},
    ("", "LayerNormalization"): with_shift,
    ("", "Conv"): windows.conv,
    ("", "ConvTranspose"): windows.conv_transpose,
    **{("", op): windows.pool for op in ("AveragePool", "MaxPool", "LpPool")},
    **{("", f"{kind}Normalization"): windows.computed_scale for kind in ("Instance", "Group")},
    ("", "Gather"): unsqueeze_scalar_index,
    **{("", op): extreme for op in ("ScatterElements", "ScatterND")},
    ("", "MatMul"): windows.mat_mul,
    # two layers, where the common decomposition unrolls every step, which supports alphas or betas
    # for each direction
    **{("", op): split_directions for op in ("LSTM", "GRU", "RNN")},
    ("", "Loop"): flatten_scan_outputs,
    (EXTENSION_DOMAIN, "SuppressionMask"): suppression_mask,
}
