"""Layers that choose elements by their values, and sparse tensors."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.openvino.legacy.access import (
    FLOAT,
    INT64,
    as_float,
    as_int64,
    axis_of,
    cast,
    dims,
    flag,
    integer,
    known_ints,
    operand,
    optional,
    shape,
    text,
)
from converter.formats.openvino.legacy.register import lifts
from converter.graph.build import Builder
from converter.graph.sizes import arange
from converter.mapping.node import Layer, MappingError


@lifts("TopK", "axis", "mode", "sort")
def lift_top_k(layer: Layer, b: Builder) -> list[ir.Value]:
    """`sort`: by value, by index (which asks for a second sort) or not at all."""
    x = operand(layer)
    axis = axis_of(layer, len(shape(x)), -1)
    k = known_ints(operand(layer, 1), "k") if optional(layer, 1) is not None else [dims(layer)[axis]]
    largest = {"max": 1, "min": 0}.get(text(layer, "mode", "max").lower())
    order = text(layer, "sort", "index").lower()
    if largest is None or order not in ("value", "index", "none"):
        raise MappingError("mode must be max or min, sort must be value, index or none", "R110")
    values, indices = b.ops("TopK", x, k, outputs=2, axis=axis, largest=largest)
    if order == "index" and k[0] > 1:
        indices, places = b.ops("TopK", indices, k, outputs=2, axis=axis, largest=0)
        values = b.op("GatherElements", values, places, axis=axis)
    return [values, indices]


@lifts("ArgMax", "axis", "out_max_val", "top_k")
def lift_arg_max(layer: Layer, b: Builder) -> ir.Value:
    """With an axis: indices or values of the best. Without: indices over all trailing axes [N, 1, k], or with the values below [N, 2, k]."""
    x, k, pairs = operand(layer), integer(layer, "top_k", 1), flag(layer, "out_max_val")
    size = shape(x)
    if "axis" in layer.attrs:
        values, indices = b.ops("TopK", x, [k], outputs=2, axis=axis_of(layer, len(size)))
        return values if pairs else as_float(b, indices)
    values, indices = b.ops("TopK", b.op("Reshape", x, [size[0], 1, -1]), [k], outputs=2, axis=2)
    return b.op("Concat", as_float(b, indices), values, axis=1) if pairs else as_float(b, indices)


@lifts("NonMaxSuppression", "center_point_box", "sort_result_descending", "output_type", "box_encoding")
def lift_nms(layer: Layer, b: Builder) -> ir.Value:
    bounds = [None if (v := optional(layer, i)) is None else as_float(b, v) for i in (3, 4)]
    return b.ext("FixedNonMaxSuppression", operand(layer), operand(layer, 1), optional(layer, 2), *bounds, rows=dims(layer)[0],
                 center_point_box=int(flag(layer, "center_point_box")), sort_result_descending=int(flag(layer, "sort_result_descending", True)))  # fmt: skip


@lifts("Bucketize", "with_right_bound")
def lift_bucketize(layer: Layer, b: Builder) -> ir.Value:
    """The number of boundaries below x (or not above it): written out, an empty list of boundaries gives 0."""
    x, bounds = as_float(b, operand(layer)), as_float(b, operand(layer, 1))
    below = b.op("Less" if flag(layer, "with_right_bound") else "LessOrEqual", bounds, b.op("Unsqueeze", x, [-1]))
    return b.op("ReduceSum", b.op("Cast", below, to=int(INT64)), [-1], keepdims=0)


@lifts("Unique", "sorted", "return_inverse", "return_counts")
def lift_unique(layer: Layer, b: Builder) -> list[ir.Value]:
    values, inverse, counts = b.exts("FixedUnique", operand(layer), outputs=3, sorted=int(flag(layer, "sorted", True)))
    asked = [values, *([inverse] if flag(layer, "return_inverse") else []), *([counts] if flag(layer, "return_counts") else [])]
    return asked[: len(layer.outputs)]


@lifts("SparseSegmentMean SparseSegmentSqrtN SparseSegmentSum")
def lift_sparse_segment(layer: Layer, b: Builder) -> ir.Value:
    mode = layer.kind.removeprefix("SparseSegment").lower()
    return b.ext("SparseSegment", *(operand(layer, i) for i in range(3)), rows=dims(layer)[0], mode=mode)


@lifts("SparseFillEmptyRows")
def lift_fill_empty(layer: Layer, b: Builder) -> list[ir.Value]:
    """The dense shape (input 2) is not needed: the third port has as many elements as there are rows."""
    values = operand(layer, 1)
    default = cast(b, operand(layer, 3), values.dtype or FLOAT)
    rows = dims(layer, 2)[0] if len(layer.outputs) > 2 else known_ints(operand(layer, 2), "the dense shape")[0]
    return list(b.exts("SparseFillEmptyRows", operand(layer), values, default, outputs=3, rows=rows, length=dims(layer)[0]))[: len(layer.outputs)]


@lifts("SparseToDense")
def lift_sparse_to_dense(layer: Layer, b: Builder) -> ir.Value:
    values = operand(layer, 2)
    default = optional(layer, 3) or b.like(values, 0)
    empty = b.op("Expand", b.op("Reshape", cast(b, default, values.dtype or FLOAT), [1]), list(dims(layer)))
    indices = as_int64(b, operand(layer))
    count = shape(indices)[0]
    spread = values if shape(values) == (count,) else b.op("Expand", b.op("Reshape", values, [1]), [count])
    return b.op("ScatterND", empty, indices, spread)


@lifts("ExperimentalSparseWeightedSum ExperimentalSparseWeightedReduce")
def lift_weighted_sum(layer: Layer, b: Builder) -> ir.Value:
    indices, values, table, default = (operand(layer, i) for i in (0, 1, 3, 4))
    weights = optional(layer, 5)
    return b.ext("SparseWeightedSum", indices, values, table, default, None if weights is None else as_float(b, weights), rows=dims(layer)[0])


@lifts("GatherTree")
def lift_gather_tree(layer: Layer, b: Builder) -> ir.Value:
    """Walks the beams back from the last step; written out over the steps, whose number is static."""
    steps, parents, last, end = (as_int64(b, operand(layer, i)) for i in range(4))
    time, batch, beam = shape(steps)
    end = b.op("Reshape", end, [])
    place = b.op("Expand", arange(beam).reshape(1, beam), [batch, beam])
    limit = b.op("Unsqueeze", last, [1])
    rows: list[ir.Value] = []
    for t in range(time - 1, -1, -1):
        inside = b.op("Less", t, limit)
        found = b.op("GatherElements", b.op("Gather", steps, t), place, axis=1)
        rows.insert(0, b.op("Unsqueeze", b.op("Where", inside, found, end), [0]))
        parent = b.op("GatherElements", b.op("Gather", parents, t), place, axis=1)
        place = b.op("Where", inside, parent, place)
    tree = b.op("Concat", *rows, axis=0)
    stopped = b.op("CumSum", b.op("Cast", b.op("Equal", tree, end), to=int(INT64)), 0)
    return b.op("Where", b.op("Greater", stopped, 0), end, tree)
