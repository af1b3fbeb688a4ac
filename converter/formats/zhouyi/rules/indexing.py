"""Look-ups and selections: gathered and scattered elements, classes, segments, embeddings."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.zhouyi.rules.context import LiftContext
from converter.formats.zhouyi.rules.fields import (
    CAST_TO_DECLARED,
    DeclaredSize,
    booleans,
    constant_of,
    indices,
    int64,
    method,
    word,
    words,
)
from converter.formats.zhouyi.types import numpy_type
from converter.graph.catalogue.compact import first_true_indices, take
from converter.graph.demands import at_least, axis_of, representable
from converter.graph.infer import constant
from converter.graph.sizes import arange, demand_small
from converter.graph.value import stack, with_operators
from converter.mapping.codecs import Floats
from converter.mapping.concepts.axes import Axis
from converter.mapping.context import LowerContext, static
from converter.mapping.fields import Attr, Detail, Field, Guard, RequireKey
from converter.mapping.rules import custom, op
from converter.passes.indices import batched_gather_orders, never_negative

T = ir.DataType

# gathered ----------------------------------------------------------------------------------------


def read_batched_axis(r: LiftContext) -> None:
    """Read one axis after the batch axes, with separate indices for each batch. For GatherND the
    axis is transposed to directly after the batch axes, and the axes between are transposed back.
    """
    b, x, indices = r.b, r.input(0), r.indices(1)
    rank, batch = len(r.static(x)), r.attr("batch_dims", int)
    axis = r.axis(0)
    at_least(0, batch_dims=batch)
    if axis < batch:
        raise MappingError(f"axis={axis} must not be less than batch_dims={batch}", "R110")
    if axis > batch:
        order, back = batched_gather_orders(rank, len(r.static(indices)), axis, batch)
        x = b.Transpose(x, perm=order)
        r.after_first(lambda y: b.Transpose(y, perm=back))
    r.node.inputs = [x, r.cast(indices, T.INT64)[..., None]]
    r.node.attrs["batch_dims"] = batch


def write_batched_axis(w: LowerContext) -> None:
    """Write the axis; the layer has as many batch axes as there are axes before the one of the
    indices.
    """
    indices = w.input(1)
    w.layer.inputs[1] = w.emit("Reshape", indices, shape=static(indices)[:-1], dtype=indices.dtype)
    batch = int(w.attr("batch_dims"))
    w.set(axis=batch, batch_dims=batch)


BATCHED_AXIS = Detail(
    read=read_batched_axis,
    write=write_batched_axis,
    names=("batch_dims",),
    keys=("axis", "batch_dims"),
)


def _is_batched(r: LiftContext) -> bool:
    return bool(r.attr("batch_dims", int, 0))


# one of several classes --------------------------------------------------------------------------


class Classes(Field):
    """Depth and values, off and on: constant inputs <-> keys. A Where of an Equal when reading.

    An index out of range, a negative one too, is off everywhere; in ONNX negative indices count
    from the end.
    """

    folds = True
    names = ("axis",)
    keys = ("depth", "values", "axis")
    inputs = (1, 2)

    def lift(self, r: LiftContext) -> None:
        b, x, values = r.b, r.input(0), r.layer.attrs.get("values")
        depth, axis = r.attr("depth", int), r.attr("axis", int, -1)
        if values is None:
            raise MappingError("required attribute 'values' is absent", "R110")
        if not isinstance(values, list) or len(values) != 2:
            raise MappingError(f"values={values!r} must be two numbers", "R110")
        dtype = np.dtype(np.float32) if r.declared_type is None else r.declared_type.numpy()
        rank = len(r.static(x)) + 1
        demand_small(depth)
        shape = [depth if a == axis_of(axis, rank) else 1 for a in range(rank)]
        classes = b.const(arange(depth).reshape(shape), "classes")
        wide = b.Cast(b.Unsqueeze(x, [axis]), to=T.INT64)
        off, on = (b.const(v) for v in representable(values, dtype, "values"))
        r.node.op, r.node.inputs = "Where", [b.Equal(wide, classes), on, off]

    def lower(self, w: LowerContext) -> None:
        x, depth = w.input(0), int(constant_of(w, 1, "the depth").reshape(-1)[0])
        values, known = constant_of(w, 2, "the values").reshape(-1), constant(x)
        if known is None and not never_negative(x):
            message = "negative indices are not supported"
            raise MappingError(message)
        if known is not None:
            wrapped = np.where(known < 0, known + depth, known)
            w.layer.inputs = [w.const(wrapped.astype(np.int32), "indices")]
        w.set(depth=depth, values=Floats(values.tolist()))
        w.set(axis=axis_of(int(w.attr("axis")), len(static(w.out))))


# selected ----------------------------------------------------------------------------------------


def read_selector(r: LiftContext) -> None:
    """Move the selector, which is the operator's first and the layer's last input; `num` is the
    number of the others.
    """
    *data, selector = r.operands
    if (num := r.attr("num", int, len(data))) != len(data):
        message = f"num={num}, but there are {len(data)} tensors to select from"
        raise MappingError(message, "R105")
    r.node.inputs, r.outputs = [selector, *data], len(data) + 1


def write_selector(w: LowerContext) -> None:
    """Move the selector after the data, and write their number."""
    selector, *data = w.layer.inputs
    w.layer.inputs = [*data, selector]
    w.set(num=len(data))


SELECTOR = Detail(read=read_selector, write=write_selector, keys=("num",))


def read_no_norm(r: LiftContext) -> None:
    """Refuse `max_norm`, which has no counterpart."""
    if str(r.layer.attrs.get("max_norm", "NONE")).upper() != "NONE":
        raise MappingError("max_norm is not supported")


def write_no_norm(w: LowerContext) -> None:
    """Write that no norm is limited."""
    w.set(max_norm="NONE")


NO_NORM = Detail(read=read_no_norm, write=write_no_norm, keys=("max_norm",))


def count_positions(r: LiftContext) -> None:
    """Return the indices of nonzero elements, and their count as a second result."""

    def both(results: list[ir.Value]) -> list[ir.Value]:
        count = r.b.Shape(results[0])[1:2]
        return r.typed([results[0], count][: len(r.layer.outputs)])

    r.outputs = 1
    r.after_emit(both)


# views and slots ---------------------------------------------------------------------------------


def lift_slot_update(r: LiftContext) -> ir.Value:
    """Write rows into x[B, views, L, D], for each view at its own indices."""
    b, x, declared = r.b, r.input(0), r.declared()
    batch, views, _, size = r.static(x, axes=4)
    if declared is None or len(r.layer.inputs) - 1 != views:
        message = f"{views} views need as many lists of indices, and layer_top_shape"
        raise MappingError(message, "R105")
    y: ir.Value = b.const(np.zeros(declared, numpy_type(x)))
    for i in range(views):
        index = r.cast(r.input(1 + i), T.INT64)
        count = r.static(index, "a list", axes=1)[0]
        shape = [batch, count, size]
        rows = b.Reshape(x[:, i : i + 1, :count], shape)
        spread = b.Expand(b.Reshape(index, [1, count, 1]), shape)
        y = b.ScatterElements(y, spread, rows, axis=1, reduction="add")
    return y


def lift_cache_update(r: LiftContext) -> list[ir.Value]:
    """Rows x[B, heads, T, D] are written into a block of the cache [blocks, 1, L, heads * D], at
    the given positions [1, T]; the first result are those rows of the cache, of which one position
    means all up to it. Source: the vendor's executor, cacheupdate.py.
    """
    b, cache, x = r.b, r.input(0), r.input(2)
    blocks, _, length, width = r.static(cache, "the cache", axes=4)
    batch, heads, count, size = r.static(x, "the rows", axes=4)
    block = r.attr("block_index", int)
    if batch != 1 or heads * size != width or not 0 <= block < blocks:
        raise MappingError(f"rows of shape {[batch, heads, count, size]} do not fit", "R105")
    at = b.Reshape(r.cast(r.input(1), T.INT64), [count])
    rows = b.Reshape(b.Transpose(x, perm=[0, 2, 1, 3]), [count, width])
    flat = b.Reshape(cache, [blocks * length, width])
    place = b.Where(at < 0, at + length, at) + block * length
    flat = b.ScatterND(flat, b.Unsqueeze(place, [1]), r.cast(rows, cache.dtype or T.FLOAT))
    own = flat[block * length : (block + 1) * length]
    chosen = b.Slice(own, [0], at + 1, [0]) if count == 1 else b.Gather(own, at, axis=0)
    parts = b.Reshape(chosen, [1, -1, heads, size])
    found = b.Transpose(parts, perm=[0, 2, 1, 3])
    return [found, b.Reshape(flat, list(r.static(cache)))]


def lift_collapse_repeated(r: LiftContext) -> list[ir.Value]:
    """Labels [B, n] within their lengths [B] that differ from the one before, followed by zeros;
    and how many. Source: the vendor's executor, collapse_repeated.py.
    """
    b, labels = r.b, r.input(0)
    batch, n = r.static(labels, "the labels", axes=2)
    lengths = b.Reshape(r.cast(r.input(1), T.INT64), [batch, 1])
    mask = b.Less(arange(n)[None], lengths)
    if n > 1:
        wide = r.cast(labels, T.FLOAT)
        differs = ~b.Equal(wide[:, 1:], wide[:, : n - 1])
        mask = mask & b.Concat(np.ones((batch, 1), np.bool_), differs, axis=1)
    places, real = first_true_indices(b, mask, r.declared_size(0))
    count = b.ReduceSum(b.Cast(mask, to=T.INT64), [1], keepdims=0)
    return [take(b, with_operators(labels), places, real), count]


def lift_switch(r: LiftContext) -> ir.Value:
    """Return the first input with elements, else the first one."""
    inputs = [r.input(i) for i in range(len(r.layer.inputs))]
    return next((v for v in inputs if 0 not in r.static(v)), inputs[0])


def lift_query_rebatch(r: LiftContext) -> ir.Value:
    """Return the rows of x[B, Q, D] that each list of indices names, padded with zeros: [B, lists,
    longest list, D].
    """
    b, x = r.b, r.input(0)
    lists = [r.cast(r.input(i), T.INT64) for i in range(1, len(r.layer.inputs))]
    longest = max(r.static(v, "a list", axes=1)[0] for v in lists)
    parts = []
    for v in lists:
        rows = b.Gather(x, v, axis=1)
        missing = longest - r.static(v)[0]
        rows = b.Pad(rows, [0, 0, 0, 0, missing, 0]) if missing else rows
        parts.append(rows)
    return stack(parts, 1)


def lift_ctc(r: LiftContext) -> list[ir.Value]:
    """Batch-major logits and the lengths of the sequences; the last class is the blank.

    The labels are filled up with the largest number of the declared type, and a length below 1 is
    the whole sequence: both as the vendor's executor does, the document is silent.
    """
    b, x = r.b, r.input(0)
    batch, time, _ = r.static(x, axes=3)
    steps = b.const(arange(time, dtype=np.float32).reshape(time, 1))
    lengths = b.Cast(b.Reshape(r.input(1), [1, batch]), to=T.FLOAT)
    mask = b.Cast((steps < lengths) | (lengths < 1.0), to=T.FLOAT)
    merged = r.attr("merge_repeated", bool, 1)
    transposed = b.Transpose(x, perm=[1, 0, 2])
    found = b.CTCGreedyDecoder(transposed, mask, ctc_merge_repeated=merged)
    missing = r.declared_size(0) - time
    padded = b.Pad(found, [0, 0, 0, 0, 0, missing, 0, 0], -1)
    (labels,) = r.typed([padded])
    if labels.dtype is None or not labels.dtype.is_integer():
        raise MappingError("labels must be integers", "R105")
    return [b.Where(padded < 0.0, int(labels.dtype.max), labels)]


def lift_unique(r: LiftContext) -> list[ir.Value]:
    """Return the distinct values, the index of the first occurrence of each, the index of each
    element's value, and counts.
    """
    b, x, axis = r.b, r.input(0), r.layer.attrs.get("axis")
    whole = x.dtype is not None and x.dtype.is_integer()
    wide = b.Cast(x, to=T.INT64) if whole else x
    keys = {"sorted": r.attr("sorted", bool, 1)}
    if axis is not None and str(axis).upper() != "NONE":
        keys["axis"] = r.axis()
    return r.typed([*b.Unique(wide, **keys, outputs=4)])


BATCHED = Guard("batch_dims is not supported", lambda w: w.attr("batch_dims") > 0, _is_batched)
REDUCTION = word("reduction", "reduction", words("none add mul max min"), default="none")
KNOWN = Guard(
    "reduction='max' and 'min' are not supported (only NONE, ADD and MUL)",
    lambda w: w.attr("reduction") in ("none", "add", "mul"),
)
KEPT = Guard(
    "indices of a single element are not supported: executors expect an axis that would be removed",
    lambda w: not 0 < len(static(w.out)) <= w.attr("axis") % len(w.static()),
)
RULES = [
    op(
        "Gather",
        "Gather",
        KEPT,
        Axis(default=0),
        RequireKey("batch_dims", 0, True, int),
        indices(1),
        example_inputs="4,3 i64:2",
    ),
    op("GatherND", "Gather", BATCHED, BATCHED_AXIS, lift_only=True, example_inputs="5,5 i64:5,2,1"),
    op("GatherND", "GatherND", int64(1), Attr("batch_dims", kind=int, default=0)),
    op("GatherElements", "GatherElements", Axis(default=0), indices(1), example_inputs="2,3 2,3"),
    op("ScatterElements", "ScatterElements", KNOWN, Axis(), indices(1), REDUCTION),
    op("ScatterND", "ScatterND", KNOWN, int64(1), REDUCTION),
    op("OneHot", "OneHot", Classes(), example_inputs="u8:2,3 =(3) =[0,1]"),
    op("NonZero", "NonZero", Detail(read=count_positions), lift_only=True),
    op(
        "Compress",
        "Compress",
        Guard(
            "axis must be given",
            lambda w: w.attr("axis", None) is not None,
        ),
        booleans(1),
        Axis(default=None),
    ),
    op(
        "netconv::FilterSlices",
        "Filter",
        SELECTOR,
        Axis(default=0, of=1),
        CAST_TO_DECLARED,
        example_inputs="b:3 3,3 -> 2",
    ),
    op(
        "netconv::EmbeddingLookupSparse",
        "EmbeddingLookupSparse",
        indices(1, 2),
        DeclaredSize("count"),
        word("combiner", "combiner", words("MEAN SUM SQRTN"), default="MEAN"),
        NO_NORM,
        example_inputs="4,3 i32:3 i32:3 3",
    ),
    op(
        "netconv::SegmentSum",
        "SegmentReduce",
        method("SUM"),
        DeclaredSize("rows"),
        example_inputs="4,3 i32:4",
    ),
    op(
        "netconv::AccidentalHits",
        "AccidentalHits",
        DeclaredSize("size"),
        CAST_TO_DECLARED,
        example_inputs="i32:2,2 i32:3 -> 3",
    ),
    custom("", "SlotUpdate", lift=lift_slot_update),
    custom("", "CacheUpdate", lift=lift_cache_update),
    custom("", "CollapseRepeated", lift=lift_collapse_repeated),
    custom("", "Switch", lift=lift_switch),
    custom("", "QueryRebatch", lift=lift_query_rebatch),
    custom("", "CTCGreedyDecoder", lift=lift_ctc),
    custom("", "Unique", lift=lift_unique),
]
