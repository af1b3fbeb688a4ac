"""Operators that pick by index, and those that put something somewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.tflite.rules.context import (
    TENSOR_INT32,
    TENSOR_INT64,
    Dims,
    Reading,
    Writing,
    dims_of,
    number,
)
from converter.formats.tflite.rules.fields import OneAxis, axis_of, data
from converter.formats.tflite.rules.shape import small
from converter.graph.infer import Array, known, rank_of
from converter.graph.value import Value
from converter.mapping.fields import Field, Fixed, Guard, Only
from converter.mapping.rules import Custom, Rule, custom, op
from converter.passes.indices import never_negative

LARGE = np.iinfo(np.int64).max


class Indices(Field):
    """Indices at input 1 count from the front; a negative one is an error there."""

    inputs = (1,)

    def lift(self, r: Reading) -> None:
        r.node.inputs[1] = r.whole(1)

    def lower(self, w: Writing) -> None:
        value = w.input(1)
        array, shape = known(value), dims_of(w.data)
        if array is not None:
            if (array < 0).any():
                single = w.node.op == "Gather"
                sizes = [shape[axis_of(w)]] if single else shape[: array.shape[-1]]
                if None in sizes:
                    raise MappingError("negative indices along an axis of unknown size", "X203")
                ends = np.array(sizes[0] if single else sizes)
                array = np.where(array < 0, array + ends, array)
            value = w.int32(array, "indices")
        w.place(1, value)
        w.one_scale()


def counts_from_front(w: Writing) -> bool:
    """Whether no index is negative at run time: it is known, or it comes from a format that has no
    negative ones.
    """
    given = w.origin[0] in ("nnapi", "tflite")
    return given or known(w.input(1)) is not None or never_negative(w.input(1))


FROM_FRONT = Guard(
    "negative indices count from the end, which they do not do there", lower_if=counts_from_front
)


def batched_gather(r: Reading) -> Value:
    """Along `axis`, with `batch_dims` leading axes that data and indices share: GatherND picks
    along the axis behind those, so that the axis goes there and comes back.
    """
    x, indices = data(r), r.whole(1)
    rank, depth = r.rank(x), r.rank(indices)
    axis, batch = r.attr("axis", int) % max(1, rank), r.attr("batch_dims", int)
    batch = batch % max(1, depth) if batch < 0 else batch
    if not 0 <= batch <= min(axis, depth):
        raise MappingError(f"batch_dims {batch}, axis {axis}", "R110")
    order = [*range(batch), axis, *(i for i in range(batch, rank) if i != axis)]
    places = r.b.Unsqueeze(indices, [-1])
    y = r.b.GatherND(r.transpose(x, order), places, batch_dims=batch)
    between = axis - batch  # axes of the data in front of the axis, now behind the indices
    own = list(range(batch, depth))
    tail = list(range(depth, depth + rank - 1 - batch))
    back = [*range(batch), *tail[:between], *own, *tail[between:]]
    return r.transpose(y, back)


class Lookup(Field):
    """Inputs are [indices, table]."""

    names = ("axis",)

    def lift(self, r: Reading) -> None:
        r.node.inputs, r.node.attrs["axis"] = [r.input(1), r.whole(0)], 0


def scattered(r: Reading) -> Value:
    """Updates at places of zeros of a shape; those at one place are added."""
    b, updates = r.b, r.input(1)
    blank = b.Expand(b.like(updates, 0), r.whole(2))
    if updates.dtype == ir.DataType.BOOL:
        number = b.ScatterND(
            b.Cast(blank, to=ir.DataType.INT32),
            r.whole(0),
            b.Cast(updates, to=ir.DataType.INT32),
            reduction="max",
        )
        return b.Cast(number, to=ir.DataType.BOOL)
    return b.ScatterND(blank, r.whole(0), updates, reduction="add")


def dense_of_sparse(r: Reading) -> Value:
    """Inputs are [places, shape, values, default]; places of one axis are single numbers."""
    b, places, shape = r.b, r.whole(0), r.whole(1)
    values, default, rank = r.input(2), r.input(3), rank_of(data(r))
    if rank == 0:
        places = b.Reshape(places, [1, 1])
    elif rank == 1:
        places = b.Reshape(places, [-1, 1])
    count = b.Shape(places)[:1]
    return b.ScatterND(b.Expand(default, shape), places, b.Expand(values, count))


def one_hot(r: Reading) -> Value:
    """An index outside of the depth, also a negative one, is nowhere."""
    b, indices = r.b, r.whole(0)
    depth, on, off = r.whole(1), r.input(2), r.input(3)
    depth = b.Reshape(depth, [])
    inside = b.Where(indices < 0, depth, indices)
    ends = b.Concat(b.Reshape(off, [1]), b.Reshape(on, [1]), axis=0)
    return b.OneHot(inside, depth, ends, axis=r.attr("axis", int))


class Largest(Field):
    """How many of the largest along the last axis."""

    names = ("axis",)
    inputs = (1,)

    def lift(self, r: Reading) -> None:
        r.node.inputs[1], r.node.attrs["axis"] = r.b.Reshape(r.whole(1), [1]), -1

    def lower(self, w: Writing) -> None:
        value = w.input(1)
        if axis_of(w, default=-1) != w.rank() - 1:
            raise MappingError("it looks along the last axis")
        k = number(value)
        if k is None:
            shape: list[int] = []
            count = w.emit("RESHAPE", small(w, value), np.zeros(0, np.int32), shape=shape)
        else:
            count = w.int32(int(k), "k")
        w.place(1, count)
        if w.used(1):
            places = w.result("places", ir.DataType.INT32, 1)
            types = {"in_data_type": TENSOR_INT32, "out_data_type": TENSOR_INT64}
            w.then(lambda: w.put("CAST", places, outputs=[w.node.outputs[1]], **types))
        else:
            w.result("places", ir.DataType.INT32, 1)


def bucket(r: Reading) -> Value:
    """How many boundaries, which rise, are not above a number."""
    b, x = r.b, data(r)
    limits = np.asarray(r.layer.attrs.get("boundaries", []), np.float32)
    if x.dtype != ir.DataType.DOUBLE:
        x = r.cast(x, ir.DataType.FLOAT)
    above = b.Unsqueeze(x, [-1]) < b.const(limits.astype((x.dtype or ir.DataType.FLOAT).numpy()))
    return b.ReduceSum(b.Cast(~above, to=ir.DataType.INT32), [-1], keepdims=0)


def places_of_truth(r: Reading) -> Value:
    return r.b.Transpose(r.b.NonZero(data(r)), perm=[1, 0])


def lower_places_of_truth(w: Writing) -> None:
    rank = w.rank()
    found = w.emit("WHERE", w.data, dtype=ir.DataType.INT64, shape=[None, rank])
    w.put("TRANSPOSE", found, w.int32([1, 0]))


MOST_PAIRS = 1 << 20  # of updates that are compared with each other


def are_distinct(value: ir.Value, array: Array | None) -> bool:
    """Whether no place is listed twice: they are known, or what an operator found."""
    if array is not None:
        rows = array.reshape(-1, array.shape[-1]) if array.ndim else array.reshape(1, 1)
        return len(np.unique(rows, axis=0)) == len(rows)
    node = value.producer()
    while node is not None and node.op_type in ("Transpose", "Cast") and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node is not None and node.op_type in ("NonZero", "NonMaxSuppression")


def last_ones(t: Writing, places: ir.Value, updates: ir.Value) -> ir.Value:
    """The updates with zeros in place of those that a later one of the same place replaces."""
    *dims, depth = dims_of(t.input(1))
    count = None if None in dims else math.prod(int(n or 0) for n in dims)
    if depth is None or (count is not None and count * count > MOST_PAIRS):
        raise MappingError("so many updates whose places may be the same ones")
    boolean, whole, square = ir.DataType.BOOL, ir.DataType.INT32, [count, count]
    rows = t.emit("RESHAPE", places, t.int32([-1, depth]), shape=[count, depth])
    shape = t.emit("SHAPE", rows, dtype=whole, shape=[2], out_type=TENSOR_INT32)
    number_ = t.emit("GATHER", shape, t.int32(0), shape=[], axis=0)
    order = t.emit("RANGE", t.int32(0), number_, t.int32(1), dtype=whole, shape=[count])

    def sides(value: ir.Value, rest: Dims) -> list[ir.Value]:
        """A value as rows and as columns of a square."""
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


def lower_scatter(w: Writing) -> None:
    """Updates are added to zeros there. What they replace is chosen by a mask, which is made of
    ones in the same way.
    """
    reduction = w.attr("reduction", "none")
    x, updates = w.data, w.input(2)
    if w.quantised or reduction not in ("none", "add") or not counts_from_front(w):
        raise MappingError(f"updates of the kind {reduction!r}, or places from the end")
    sizes = dims_of(x)
    array = known(w.input(1))
    if array is not None and (array < 0).any():
        if None in sizes:
            raise MappingError("negative places of unknown sizes", "X203")
        array = np.where(array < 0, array + np.array(sizes[: array.shape[-1]]), array)
    places = small(w, w.input(1)) if array is None else w.int32(array, "places")
    shape = w.shape(sizes, x)
    if reduction == "none" and not are_distinct(w.input(1), array):
        updates = last_ones(w, places, updates)
    there = w.emit("SCATTER_ND", places, updates, shape, dtype=x.dtype, shape=sizes)
    if reduction == "add":
        w.put("ADD", x, there)
        return
    size = dims_of(updates)
    ones = w.emit("FILL", w.shape(size, updates), w.int32(1), dtype=ir.DataType.INT32, shape=size)
    hits = w.emit("SCATTER_ND", places, ones, shape, dtype=ir.DataType.INT32, shape=sizes)
    mask = w.emit("GREATER", hits, w.int32(0), dtype=ir.DataType.BOOL, shape=sizes)
    w.put("SELECT_V2", mask, there, x)


def lower_one_hot(w: Writing) -> None:
    """An index counts from the front; outside of the depth it is nowhere."""
    depth = number(w.input(1))
    indices, rank, nothing = w.data, w.rank(), w.int32([])
    array = known(indices)
    count = w.int32(int(depth or 0))
    if depth is None:
        count = w.emit("RESHAPE", small(w, w.input(1)), nothing, shape=[])
    if array is not None and (depth is not None or not (array < 0).any()):
        indices = w.int32(np.where(array < 0, array + int(depth or 0), array))
    elif not never_negative(indices):
        if depth is not None:
            raise MappingError("indices that may count from the end")
        shape = dims_of(indices)
        narrow = small(w, indices)
        moved = w.emit("ADD", narrow, count, shape=shape)
        test = w.emit("LESS", narrow, w.int32(0), dtype=ir.DataType.BOOL, shape=shape)
        chosen = (test, moved, narrow)
        indices = w.emit("SELECT_V2", *chosen, dtype=ir.DataType.INT32, shape=shape)
    axis = int(w.attr("axis", -1)) % (rank + 1)
    one = w.int32([1])
    off, on = (
        w.emit(
            "RESHAPE", w.emit("SLICE", w.input(2), w.int32([i]), one, shape=[1]), nothing, shape=[]
        )
        for i in (0, 1)
    )
    ends = known(w.input(2))
    if ends is not None:
        off, on = (w.const(np.asarray(v)) for v in ends.reshape(-1))
    w.put("ONE_HOT", indices, count, on, off, axis=axis)


def distinct(r: Reading) -> Sequence[ir.Value]:
    """Values in the order of their first places, and where each is."""
    y, _, places, _ = r.b.Unique(data(r), sorted=0, outputs=4)
    return y, places


def updated_slice(r: Reading) -> Value:
    """A part of the data replaced; it begins where it still fits."""
    b, x, update, start = r.b, data(r), r.input(1), r.whole(2)
    shape = r.static(update, "the update")
    room = b.Shape(x) - np.array(shape, np.int64)
    first = b.Max(b.Min(start, room), b.like(start, 0))
    grid = np.stack(np.meshgrid(*(np.arange(n) for n in shape), indexing="ij"), -1)
    return b.ScatterND(x, grid.astype(np.int64) + first, update)


def diagonal(r: Reading, size: int) -> Value:
    """Where row and column are the same."""
    return r.b.const(np.eye(size, dtype=bool), "diagonal")


def matrix_of_diagonal(r: Reading) -> Value:
    x = data(r)
    mask = diagonal(r, r.static(x, least=1)[-1])
    return r.b.Where(mask, r.b.Unsqueeze(x, [-1]), r.b.like(x, 0))


def with_diagonal(r: Reading) -> Value:
    x, values = data(r), r.input(1)
    rows, columns = r.static(x, least=2)[-2:]
    mask = r.b.const(np.eye(rows, columns, dtype=bool), "diagonal")
    ends = r.static(values, "the diagonal", least=1)[-1]
    missing = np.zeros((2, len(r.static(values))), np.int64)
    missing[1, -1] = columns - ends
    row = r.b.Pad(values, missing.reshape(-1)) if columns > ends else values
    if columns < ends:
        raise MappingError("the diagonal is longer than the matrix", "R105")
    return r.b.Where(mask, r.b.Unsqueeze(row, [-2]), x)


RULES: list[Rule | Custom] = [
    op(
        "Gather",
        "GATHER",
        FROM_FRONT,
        Fixed("batch_dims", 0),
        OneAxis(),
        Indices(),
        given="4,3 =i64:[2,0]",
    ),
    custom("", "GATHER", batched_gather),
    op(
        "GatherND",
        "GATHER_ND",
        FROM_FRONT,
        Only("batch_dims", 0),
        Indices(),
        given="4,3 =i64:[[2],[0]]",
    ),
    op("Gather", "EMBEDDING_LOOKUP", Lookup(), lift_only=True),
    custom("ScatterND", "SCATTER_ND", scattered, lower_scatter),
    custom("", "SPARSE_TO_DENSE", dense_of_sparse),
    custom("OneHot", "ONE_HOT", one_hot, lower_one_hot),
    op("TopK", "TOPK_V2", Only("largest", 1), Only("sorted", 1), Largest()),
    custom("", "BUCKETIZE", bucket),
    custom("NonZero", "WHERE", places_of_truth, lower_places_of_truth),
    custom("", "UNIQUE", distinct),
    custom("", "DYNAMIC_UPDATE_SLICE", updated_slice),
    custom("", "MATRIX_DIAG", matrix_of_diagonal),
    custom("", "MATRIX_SET_DIAG", with_diagonal),
]
