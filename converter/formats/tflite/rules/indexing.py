"""Operators that pick by index, and those that put something somewhere."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.lite.elementwise import number
from converter.formats.tflite.rules.context import (
    TENSOR_INT32,
    TENSOR_INT64,
    Dims,
    LiftContext,
    LowerContext,
    dims_of,
)
from converter.formats.tflite.rules.fields import Int64Operand, axis_of, data
from converter.formats.tflite.rules.shape import small
from converter.graph.build import Builder
from converter.graph.infer import Array, known, rank_of, shape_of
from converter.graph.value import Value
from converter.mapping.concepts.axes import Axis
from converter.mapping.fields import Detail, Field, Guard, RequireAttr, RequireKey, ignore
from converter.mapping.rules import op
from converter.passes.indices import batched_gather_orders, never_negative

LARGE = np.iinfo(np.int64).max


class Indices(Int64Operand):
    """Non-negative indices; a negative one is an error in the kernel."""

    def lower(self, w: LowerContext) -> None:
        value = w.input(1)
        array, shape = known(value), dims_of(w.data)
        if array is not None:
            if (array < 0).any():
                single = w.node.op == "Gather"
                sizes = [shape[axis_of(w)]] if single else shape[: array.shape[-1]]
                if None in sizes:
                    raise MappingError(
                        "negative indices along an axis of unknown size are not supported", "X203"
                    )
                ends = np.array(sizes[0] if single else sizes)
                array = np.where(array < 0, array + ends, array)
            value = w.int32(array, "indices")
        w.place(1, value)
        w.one_scale()


def has_nonnegative_indices(w: LowerContext) -> bool:
    """Return whether no index is negative at run time: it is known, or it comes from a format
    without negative indices.
    """
    given = w.origin[0] in ("nnapi", "tflite")
    return given or known(w.input(1)) is not None or never_negative(w.input(1))


NONNEGATIVE_INDICES = Guard(
    "negative indices are not supported by TensorFlow Lite", lower_if=has_nonnegative_indices
)


def read_batch_axes(r: LiftContext) -> None:
    """Read `axis`, and the number of leading axes that data and indices share. GatherND indexes the
    axis after those, so the axis is transposed there and back.
    """
    x, indices = data(r), r.whole(1)
    rank, depth = r.rank(x), r.rank(indices)
    axis, batch = r.attr("axis", int) % max(1, rank), r.attr("batch_dims", int)
    batch = batch % max(1, depth) if batch < 0 else batch
    if not 0 <= batch <= min(axis, depth):
        raise MappingError(f"batch_dims={batch} with axis={axis} is not supported", "R110")
    order, back = batched_gather_orders(rank, depth, axis, batch)
    r.set_inputs(r.transpose(x, order), r.b.Unsqueeze(indices, [-1]))
    r.set(batch_dims=batch)
    r.after_first(lambda y: r.transpose(y, back))


BATCH_AXES = Detail(read=read_batch_axes, names=("batch_dims",), keys=("axis", "batch_dims"))


def rows_of_table(r: LiftContext) -> None:
    """Read the inputs [indices, table]."""
    r.set_inputs(r.input(1), r.whole(0))


def dense_of_sparse(r: LiftContext) -> None:
    """Read the inputs [indices, shape, values, default]; indices into a single axis may be plain
    numbers.
    """
    b, places, shape = r.b, r.whole(0), r.whole(1)
    values, default, rank = r.input(2), r.input(3), rank_of(data(r))
    if rank == 0:
        places = b.Reshape(places, [1, 1])
    elif rank == 1:
        places = b.Reshape(places, [-1, 1])
    count = b.Shape(places)[:1]
    r.set_inputs(b.Expand(default, shape), places, b.Expand(values, count))


class OneHotIndices(Field):
    """Indices and the depth. An index out of range, also a negative one, selects no element;
    negative indices of ONNX count from the end.
    """

    inputs = (0, 1)

    def lift(self, r: LiftContext) -> None:
        indices, depth = r.whole(0), r.b.Reshape(r.whole(1), [])
        r.node.inputs[:2] = [r.b.Where(indices < 0, depth, indices), depth]

    def lower(self, w: LowerContext) -> None:
        depth = number(w.input(1))
        if depth is None:
            count = w.emit("RESHAPE", small(w, w.input(1)), w.int32([]), shape=[])
        else:
            count = w.int32(int(depth))
        w.layer.inputs = [self.nonnegative_axes(w, depth, count), count]

    def nonnegative_axes(self, w: LowerContext, depth: float | None, count: ir.Value) -> ir.Value:
        """Return indices that count from the begin; negative ones of computed depth are moved.
        Raises MappingError if they may be negative at a constant depth.
        """
        indices, array = w.data, known(w.data)
        if array is not None and (depth is not None or not (array < 0).any()):
            return w.int32(np.where(array < 0, array + int(depth or 0), array))
        if never_negative(indices):
            return indices
        if depth is not None:
            raise MappingError("indices that may be negative are not supported")
        shape, narrow = dims_of(indices), small(w, indices)
        moved = w.emit("ADD", narrow, count, shape=shape)
        test = w.emit("LESS", narrow, w.int32(0), dtype=ir.DataType.BOOL, shape=shape)
        return w.emit("SELECT_V2", test, moved, narrow, dtype=ir.DataType.INT32, shape=shape)


def read_on_and_off(r: LiftContext) -> None:
    """(..., on, off) <-> [off, on]."""
    values = (r.b.Reshape(r.input(i), [1]) for i in (3, 2))
    r.node.inputs[2:] = [r.b.Concat(*values, axis=0)]


def write_on_and_off(w: LowerContext) -> None:
    """Write both values of OneHot as scalars, the one for 1 first."""
    ends = known(w.input(2))
    for place, i in ((2, 1), (3, 0)):
        if ends is None:
            one = w.emit("SLICE", w.input(2), w.int32([i]), w.int32([1]), shape=[1])
            w.place(place, w.emit("RESHAPE", one, w.int32([]), shape=[]))
        else:
            w.place(place, np.asarray(ends.reshape(-1)[i]))


ON_AND_OFF = Detail(read=read_on_and_off, write=write_on_and_off, inputs=(2,))


def read_largest(r: LiftContext) -> None:
    """Return how many of the largest along the last axis."""
    r.node.inputs[1], r.node.attrs["axis"] = r.b.Reshape(r.whole(1), [1]), -1


def write_largest(w: LowerContext) -> None:
    """Write k of a TopK along the last axis; the indices, int32, are cast to int64."""
    value = w.input(1)
    if axis_of(w, default=-1) != w.rank() - 1:
        raise MappingError("only the last axis is supported")
    w.place(1, scalar_count(w, value))
    if w.used(1):
        places = w.result("places", ir.DataType.INT32, 1)
        types = {"in_data_type": TENSOR_INT32, "out_data_type": TENSOR_INT64}
        w.after_emit(lambda: w.put("CAST", places, outputs=[w.node.outputs[1]], **types))
    else:
        w.result("places", ir.DataType.INT32, 1)


def scalar_count(w: LowerContext, value: ir.Value) -> ir.Value:
    """Return a count of one element as a scalar."""
    k = number(value)
    if k is not None:
        return w.int32(int(k), "k")
    return w.emit("RESHAPE", small(w, value), np.zeros(0, np.int32), shape=[])


K_LARGEST = Detail(read=read_largest, write=write_largest, names=("axis",), inputs=(1,))


def read_boundaries(r: LiftContext) -> None:
    """Return how many boundaries, which rise, are not above a number."""
    b, x = r.b, data(r)
    limits = np.asarray(r.layer.attrs.get("boundaries", []), np.float32)
    if x.dtype != ir.DataType.DOUBLE:
        x = r.cast(x, ir.DataType.FLOAT)
    limits = limits.astype((x.dtype or ir.DataType.FLOAT).numpy())
    above = b.Unsqueeze(x, [-1]) < b.const(limits)
    r.set_inputs(b.Cast(~above, to=ir.DataType.INT32), [-1])


BOUNDARIES = Detail(read=read_boundaries, keys=("boundaries",))


def rows_as_columns(w: LowerContext) -> None:
    """Transpose the indices: one row for each index here, one column in ONNX."""
    rows = w.result("where")
    rows.shape = ir.Shape([None, w.rank()])
    w.after_emit(lambda: w.put("TRANSPOSE", rows, w.int32([1, 0])))


MOST_PAIRS = 1 << 20  # of updates that are compared with each other


def are_distinct(value: ir.Value, array: Array | None) -> bool:
    """Return whether no index occurs twice: the indices are known, or the result of NonZero or
    NonMaxSuppression.
    """
    if array is not None:
        rows = array.reshape(-1, array.shape[-1]) if array.ndim else array.reshape(1, 1)
        return len(np.unique(rows, axis=0)) == len(rows)
    node = value.producer()
    while node is not None and node.op_type in ("Transpose", "Cast") and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node is not None and node.op_type in ("NonZero", "NonMaxSuppression")


def last_update_wins(t: LowerContext, places: ir.Value, updates: ir.Value) -> ir.Value:
    """Return the updates, with zeros for those that a later update of the same index overrides."""
    *dims, depth = dims_of(t.input(1))
    count = None if None in dims else math.prod(int(n or 0) for n in dims)
    if depth is None or (count is not None and count * count > MOST_PAIRS):
        raise MappingError(
            f"more than {MOST_PAIRS} pairs of computed indices may be equal, which "
            "are too many to compare"
        )
    boolean, whole, square = ir.DataType.BOOL, ir.DataType.INT32, [count, count]
    rows = t.emit("RESHAPE", places, t.int32([-1, depth]), shape=[count, depth])
    shape = t.emit("SHAPE", rows, dtype=whole, shape=[2], out_type=TENSOR_INT32)
    number_ = t.emit("GATHER", shape, t.int32(0), shape=[], axis=0)
    order = t.emit("RANGE", t.int32(0), number_, t.int32(1), dtype=whole, shape=[count])

    def sides(value: ir.Value, rest: Dims) -> list[ir.Value]:
        """Return a value as rows and as columns of a square matrix."""
        return [
            t.emit("EXPAND_DIMS", value, t.int32(axis), shape=[*ends, *rest])
            for axis, ends in ((1, [count, 1]), (0, [1, count]))
        ]

    equal = t.emit("EQUAL", *sides(rows, [depth]), dtype=boolean, shape=[*square, depth])
    same = t.emit("REDUCE_ALL", equal, t.int32([2]), shape=square, keep_dims=False)
    later = t.emit("LESS", *sides(order, []), dtype=boolean, shape=square)
    replaced = t.emit("LOGICAL_AND", same, later, shape=square)
    gone = t.emit("REDUCE_ANY", replaced, t.int32([1]), shape=[count], keep_dims=False)
    wanted = dims_of(updates)
    line = [*dims, *[1] * (len(wanted) - len(dims))]
    mask = t.emit("RESHAPE", gone, t.shape(line, t.input(1)), shape=line)
    zero = t.like(updates, 0)
    return t.emit("SELECT_V2", mask, zero, updates, dtype=updates.dtype, shape=wanted)


def read_updates_of_zeros(r: LiftContext) -> None:
    """Read the inputs [indices, updates, shape]. Updates with equal indices are added, starting
    from zeros; booleans are combined by OR.
    """
    updates = r.input(1)
    r.set_inputs(r.b.Expand(r.b.like(updates, 0), r.whole(2)), r.whole(0), updates)
    r.set(reduction="add")
    if updates.dtype == ir.DataType.BOOL:
        for i in (0, 2):
            r.set_input(i, r.b.Cast(r.node.inputs[i], to=ir.DataType.INT32))
        r.set(reduction="max")
        r.after_first(lambda y: r.b.Cast(y, to=ir.DataType.BOOL))


def write_updates_of_zeros(w: LowerContext) -> None:
    """Add the scattered updates to the data; a replacement selects elements by a mask."""
    reduction, sizes = w.attr("reduction", "none"), dims_of(w.data)
    if w.quantized or reduction not in ("none", "add"):
        raise MappingError(f"reduction={reduction!r} of these data is not supported")
    places, array = nonnegative_indices(w, sizes)
    shape, updates = w.shape(sizes, w.data), w.input(2)
    if reduction == "none" and not are_distinct(w.input(1), array):
        updates = last_update_wins(w, places, updates)
    w.layer.inputs = [places, updates, shape]
    there = w.result("scatter_nd")
    if reduction == "add":
        w.after_emit(lambda: w.put("ADD", w.data, there))
    else:
        w.after_emit(lambda: w.put("SELECT_V2", hit(w, places, updates, shape), there, w.data))


def nonnegative_indices(w: LowerContext, sizes: Dims) -> tuple[ir.Value, Array | None]:
    """Return indices that count from the front, and their array if it is known."""
    array = known(w.input(1))
    if array is None:
        return small(w, w.input(1)), None
    if (array < 0).any():
        if None in sizes:
            raise MappingError(
                "negative indices along axes of unknown size are not supported", "X203"
            )
        array = np.where(array < 0, array + np.array(sizes[: array.shape[-1]]), array)
    return w.int32(array, "places"), array


ON_ZEROS = Detail(
    read=read_updates_of_zeros, write=write_updates_of_zeros, names=("reduction",), inputs=(0, 1, 2)
)


def hit(w: LowerContext, places: ir.Value, updates: ir.Value, shape: ir.Value) -> ir.Value:
    """Return the mask of updated elements, computed by scattering ones."""
    size, sizes, whole = dims_of(updates), dims_of(w.data), ir.DataType.INT32
    ones = w.emit("FILL", w.shape(size, updates), w.int32(1), dtype=whole, shape=size)
    hits = w.emit("SCATTER_ND", places, ones, shape, dtype=whole, shape=sizes)
    return w.emit("GREATER", hits, w.int32(0), dtype=ir.DataType.BOOL, shape=sizes)


def read_unique(r: LiftContext) -> None:
    """Return distinct values in the order of their first occurrence, and the index of each element
    among them.
    """
    r.outputs = 4
    r.after_emit(lambda found: [found[0], found[2]])


def updated_slice(r: LiftContext) -> None:
    """Replace a slice of the data; its begin is clamped so that it fits."""
    b, x, update, start = r.b, data(r), r.input(1), r.whole(2)
    room = b.Shape(x) - b.Shape(update)
    first = b.Max(b.Min(start, room), b.like(start, 0))
    r.set_inputs(x, positions(b, update, r.rank(update)) + first, update)


def positions(b: Builder, x: ir.Value, rank: int) -> Value:
    """Return the index of each element of a value, along a new last axis."""
    shape = shape_of(x)
    if shape is not None:
        grid = np.stack(np.meshgrid(*(np.arange(n) for n in shape), indexing="ij"), -1)
        return b.const(grid.astype(np.int64))
    sizes = b.Shape(x)
    columns = [
        b.Reshape(b.Range(0, b.Gather(sizes, np.array(i)), 1), [-1, *[1] * (rank - 1 - i)])
        for i in range(rank)
    ]
    return b.Concat(*(b.Unsqueeze(b.Expand(c, sizes), [-1]) for c in columns), axis=-1)


def matrix_of_diagonal(r: LiftContext) -> None:
    """Select the diagonal, where row and column are equal."""
    x = data(r)
    mask = r.b.const(np.eye(r.static(x, least=1)[-1], dtype=bool), "diagonal")
    r.set_inputs(mask, r.b.Unsqueeze(x, [-1]), r.b.like(x, 0))


def with_diagonal(r: LiftContext) -> None:
    """Set the inputs of a Where that selects the new diagonal, padded to the columns."""
    x, values = data(r), r.input(1)
    rows, columns = r.static(x, least=2)[-2:]
    mask = r.b.const(np.eye(rows, columns, dtype=bool), "diagonal")
    ends = r.static(values, "the diagonal", least=1)[-1]
    missing = np.zeros((2, len(r.static(values))), np.int64)
    missing[1, -1] = columns - ends
    row = r.b.Pad(values, missing.reshape(-1)) if columns > ends else values
    if columns < ends:
        raise MappingError("the diagonal is longer than the matrix", "R105")
    r.set_inputs(mask, r.b.Unsqueeze(row, [-2]), x)


RULES = [
    op(
        "Gather",
        "GATHER",
        NONNEGATIVE_INDICES,
        RequireKey("batch_dims", 0),
        Axis(signed=True),
        Indices(),
        example_inputs="4,3 =i64:[2,0]",
    ),
    op("GatherND", "GATHER", BATCH_AXES, lift_only=True),
    op(
        "GatherND",
        "GATHER_ND",
        NONNEGATIVE_INDICES,
        RequireAttr("batch_dims", 0),
        Indices(),
        example_inputs="4,3 =i64:[[2],[0]]",
    ),
    op(
        "Gather",
        "EMBEDDING_LOOKUP",
        RequireAttr("axis", 0),
        before_lift=rows_of_table,
        lift_only=True,
    ),
    op(
        "ScatterND",
        "SCATTER_ND",
        NONNEGATIVE_INDICES,
        ON_ZEROS,
        example_inputs="4,3 =i64:[[2],[0]] 2,3",
    ),
    op(
        "ScatterND",
        "SPARSE_TO_DENSE",
        ignore("validate_indices"),
        before_lift=dense_of_sparse,
        lift_only=True,
    ),
    op(
        "OneHot",
        "ONE_HOT",
        Axis(signed=True, added=1),
        OneHotIndices(),
        ON_AND_OFF,
        example_inputs="=i64:[2,0] =i64:(3) 2",
    ),
    op("TopK", "TOPK_V2", RequireAttr("largest", 1), RequireAttr("sorted", 1), K_LARGEST),
    op("ReduceSum", "BUCKETIZE", RequireAttr("keepdims", 0), BOUNDARIES, lift_only=True),
    op(
        "NonZero",
        "WHERE",
        after_lift=lambda r, y: r.b.Transpose(y, perm=[1, 0]),
        before_lower=rows_as_columns,
    ),
    op("Unique", "UNIQUE", RequireAttr("sorted", 0), before_lift=read_unique, lift_only=True),
    op("ScatterND", "DYNAMIC_UPDATE_SLICE", before_lift=updated_slice, lift_only=True),
    op("Where", "MATRIX_DIAG", before_lift=matrix_of_diagonal, lift_only=True),
    op("Where", "MATRIX_SET_DIAG", before_lift=with_diagonal, lift_only=True),
]
