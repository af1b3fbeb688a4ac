"""Gather, scatter and select layers."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError, no_match
from converter.formats.openvino.fields import bounds_below, words
from converter.formats.openvino.legacy.rules.context import LiftContext, LowerContext, is_float
from converter.formats.openvino.legacy.rules.fields import MARK_LAYER, TRUTH
from converter.graph.demands import axis_of
from converter.graph.infer import constant, known, set_type
from converter.graph.value import Value
from converter.mapping.context import Results
from converter.mapping.fields import Attr, Detail, Field, Guard, RequireAttr, ignore, ignore_inputs
from converter.mapping.rules import Rule, op
from converter.passes.indices import NOT_NEGATIVE

D = ir.DataType


def gathered_axis(r: LiftContext, place: int) -> int:
    """Return the axis, which may also be an operand."""
    if r.optional(place) is not None:
        return axis_of(int(r.number(place, "axis")), r.rank())
    return r.axis(0)


class Indices(Field):
    """Operands (data, indices) and `axis`, as the engine and the Model Optimizer define them.
    Indices may have any numeric type.
    """

    names = ("axis",)
    keys = ("axis",)

    def lift(self, r: LiftContext) -> None:
        r.set(axis=gathered_axis(r, 2))
        r.set_inputs(r.data, r.cast(r.input(1), D.INT64))

    def lower(self, w: LowerContext) -> None:
        """Write constant indices as non-negative numbers, and never as a scalar."""
        x, index = w.data, w.input(1)
        size = w.shape()
        axis = w.attr("axis") % len(size)
        array = constant(index)
        if array is not None:
            plain = np.where(array < 0, array + size[axis], array).astype(np.int32)
            index = w.const(plain.reshape(array.shape or (1,)))
        else:
            shape = w.shape(index)
            index = index if 1 <= len(shape) <= 5 else w.reshaped(index, [math.prod(shape)])
            index = index if w.before() else self._from_zero(w, index, size[axis])
        w.set_inputs(x, index)
        w.set(axis=axis)
        w.gives([*size[:axis], *w.shape(index), *size[axis + 1 :]])

    def _from_zero(self, w: LowerContext, index: ir.Value, size: int) -> ir.Value:
        """Make indices nonnegative that are known at run time only: the engine does not support
        negative ones.
        """
        shape = w.shape(index)
        dtype = index.dtype.numpy() if index.dtype is not None else np.float32

        def eltwise(operation: str, *operands: ir.Value) -> ir.Value:
            return w.emit("Eltwise", *operands, shape=shape, operation=operation)

        zero, length = (w.const(np.full([1] * len(shape), n, dtype)) for n in (0, size))
        added = eltwise("mul", eltwise("less", index, zero), length)
        return eltwise("sum", index, added)


def read_one_hot(r: LiftContext) -> None:
    """Read OneHot, which always gives floats, independent of its port."""
    axis, dtype = r.attr("axis", int, -1), r.declared().numpy()
    values = [r.attr("off_value", float, 0.0), r.attr("on_value", float, 1.0)]
    dims = r.dims()
    depth = r.b.const(r.attr("depth", int, dims[axis_of(axis, len(dims))]))
    index = r.cast(r.input(0), D.INT64)
    r.set_inputs(index, depth, np.array(values, dtype))
    r.set(axis=axis)


def write_one_hot(w: LowerContext) -> None:
    """Write OneHot with constant depth and values; the layer gives floats."""
    values = known(w.optional(2))
    if values is None:
        raise MappingError("the values must be constant")
    depth, given = w.ints(1, "the depth")[0], w.shape()
    axis = w.attr("axis") % len(w.shape(w.out)) if given else 1
    x = w.reshaped(w.data, given or [1])
    shape = w.shape(x)
    shape.insert(axis, depth)
    w.set_inputs(x)
    w.set(axis=axis, depth=depth, on_value=float(values[1]), off_value=float(values[0]))
    w.gives(shape, D.FLOAT)


ONE_HOT = Detail(
    read=read_one_hot,
    write=write_one_hot,
    names=("axis",),
    keys=("axis", "depth", "on_value", "off_value"),
    inputs=(1, 2),
)


def read_scalars(r: LiftContext) -> None:
    """Reshape operands of one element to scalars."""
    values = [r.input(i) for i in range(3)]
    if len({v.dtype for v in values}) > 1:
        values = [r.cast(v, r.declared()) for v in values]
    r.node.inputs = [v if not r.static(v) else r.b.Reshape(v, []) for v in values]

    def sized(results: Results) -> Results:
        set_type(results[0], None, r.dims())
        return results

    r.after_emit(sized)


def write_scalars(w: LowerContext) -> None:
    """Write the limits of a Range as vectors of one element."""
    w.shape(w.out)
    if not is_float(w.data) and None in map(constant, w.node.inputs):
        raise MappingError("limits of integers must be constant: the layer divides without rest")
    w.set_inputs(*(w.reshaped(w.input(i), [1]) for i in range(3)))


SCALARS = Detail(read=read_scalars, write=write_scalars)


def scatter_rows(r: LiftContext) -> None:
    """Read ScatterUpdate: rows of `updates` replace those at `indices` along the axis."""
    b, x, size = r.b, r.input(0), r.static()
    axis, index = gathered_axis(r, 3), r.cast(r.input(1), D.INT64)
    flat = b.Reshape(index, [-1, *[1] * (len(size) - axis - 1)])
    rows = [*size[:axis], math.prod(r.static(1)), *size[axis + 1 :]]
    updates = b.Reshape(r.cast(r.input(2), x.dtype or D.FLOAT), rows)
    r.set_inputs(x, b.Expand(flat, rows), updates)
    r.set(axis=axis)


class Sparse(Field):
    """Operands (indices, shape, values, default): elements are scattered into a constant filled
    with the default.
    """

    def lift(self, r: LiftContext) -> None:
        b, values, dims = r.b, r.input(2), list(r.dims())
        default = r.optional(3) or b.like(values, 0)
        number = b.Reshape(r.cast(default, values.dtype or D.FLOAT), [1])
        index = r.cast(r.input(0), D.INT64)
        count = r.static(index, least=1)[0]
        if r.static(values) != (count,):
            values = b.Expand(b.Reshape(values, [1]), [count])
        r.set_inputs(b.Expand(number, dims), index, values)

    def lower(self, w: LowerContext) -> None:
        number, shape = self._number(w), w.shape(w.out)
        if number is None:
            raise MappingError("ScatterND is only supported into a tensor of one element")
        if is_float(w.input(2)):
            raise MappingError("ScatterND is only supported for integers")
        if len(w.shape(1)) != 2 or w.shape(1)[1] != len(shape):
            raise MappingError("ScatterND is only supported for single elements")
        w.set_inputs(w.input(1), shape, w.input(2), number)

    def _number(self, w: LowerContext) -> ir.Value | None:
        """Return the number that all elements of the data equal."""
        value = w.data
        array, producer = constant(value), value.producer()
        if array is not None and array.size and (array == array.reshape(-1)[0]).all():
            return w.const(array.reshape(-1)[0])
        made = producer is not None and producer.op_type == "Expand"
        source = producer.inputs[0] if producer is not None and made else None
        if source is not None and math.prod(w.shape(source)) == 1:
            return w.reshaped(source, [])
        return None


# choices by value --------------------------------------------------------------------------------

NO_INTEGERS = Guard("TopK of integers is not supported", lambda w: best_of_floats(w))


def best_of_floats(w: LowerContext) -> bool:
    """Compute comparisons and indices as floats, as the engine does."""
    return is_float(w.data) or w.data.dtype == D.BOOL


def read_best(r: LiftContext) -> None:
    """k and `axis`. `sort`: by value, by index (which needs a second sort) or none."""
    axis = r.axis(-1)
    k = [r.dims()[axis]] if r.optional(1) is None else r.ints(1, "k")
    order = r.attr("sort", str, "index")
    if order not in ("value", "index", "none"):
        raise MappingError("sort must be value, index or none", "R110")
    r.node.attrs["axis"], r.outputs = axis, 2
    r.set_inputs(r.data, k)

    def by_index(found: Results) -> Results:
        index, place = r.b.TopK(found[1], k, outputs=2, axis=axis, largest=0)
        return [r.b.GatherElements(found[0], place, axis=axis), index]

    if order == "index" and k[0] > 1:
        r.after_emit(by_index)


def write_best(w: LowerContext) -> None:
    """Write a TopK whose values and indices both have a consumer."""
    if not (w.used(0) and w.used(1)):
        raise no_match(
            "every output must have a consumer, because an unused port would be an "
            "output of the network"
        )
    w.set_inputs(w.data, w.ints(1, "k")[0])
    w.set(axis=w.attr("axis") % len(w.shape()), sort="value")


BEST = Detail(
    read=read_best,
    write=write_best,
    names=("axis",),
    keys=("axis", "sort"),
    inputs=(1,),
)


def rows_of(r: LiftContext, x: ir.Value) -> Value:
    """Return data with all axes after the first as one: [N, 1, ...]."""
    if not (sizes := r.static(x)):
        raise MappingError("without an axis, data need at least 1 axis", "R110")
    return r.b.Reshape(x, [sizes[0], 1, -1])


def read_best_alone(r: LiftContext) -> None:
    """Read ArgMax: values or indices. Indices are floats. Without an axis attribute, the maximum is
    over all axes after the first, and the result is [N, 1, k], or with the values appended [N, 2,
    k].
    """
    x, k = r.input(0), r.attr("top_k", int, 1)
    pairs, whole = r.attr("out_max_val", bool, 0), "axis" not in r.layer.attrs
    x = rows_of(r, x) if whole else x
    r.set(axis=2 if whole else r.axis())
    r.node.inputs, r.outputs = [x, r.b.const([k])], 2

    def chosen(found: Results) -> Results:
        if pairs and not whole:
            return found[:1]
        places = r.floats(found[1])
        return [r.b.Concat(places, found[0], axis=1) if pairs else places]

    r.after_emit(chosen)


def write_best_alone(w: LowerContext) -> None:
    """Write an ArgMax, or a TopK of which one result is used, as ArgMax; indices are floats."""
    values = w.node.op == "TopK" and w.used(0)
    axis = w.attr("axis") % len(w.shape())
    k = w.ints(1, "k")[0] if w.node.op == "TopK" else 1
    w.set_inputs(w.data)
    w.layer.outputs = [w.node.outputs[0 if values or w.node.op != "TopK" else 1]]
    w.set(axis=axis, out_max_val=int(values), top_k=k)
    if not values:
        shape = [k if i == axis else n for i, n in enumerate(w.shape())]
        w.gives(shape, D.FLOAT, w.layer.outputs[0])


BEST_ALONE = Detail(
    read=read_best_alone,
    write=write_best_alone,
    names=("axis", "keepdims"),
    keys=("axis", "out_max_val", "top_k"),
    inputs=(1,),
)


def boundaries_below(r: LiftContext) -> None:
    """Read Bucketize; an empty list of boundaries gives 0."""
    x, bounds = (r.floats(r.input(i)) for i in (0, 1))
    bounds_below(r, x, bounds, not r.attr("with_right_bound", bool, 0))


def read_unique_parts(r: LiftContext) -> None:
    """Read all three results; unused ones would be outputs of the net and are omitted on
    writing.
    """
    asked = [True, *(r.attr(k, bool, 0) for k in ("return_inverse", "return_counts"))]
    r.outputs = 3
    r.after_emit(lambda found: [v for v, a in zip(found, asked, strict=True) if a])


def write_unique_parts(w: LowerContext) -> None:
    """Write the results of Unique that have a consumer, and the flags that ask for them."""
    used = [True, *(w.used(i) for i in (1, 2))]
    w.layer.outputs = [v for v, u in zip(w.node.outputs, used, strict=False) if u]
    w.layer.attrs |= {
        k: TRUTH.lower(u)
        for k, u in zip(("return_inverse", "return_counts"), used[1:], strict=True)
    }


UNIQUE_PARTS = Detail(
    read=read_unique_parts,
    write=write_unique_parts,
    keys=("return_inverse", "return_counts"),
)


def count_rows(r: LiftContext) -> None:
    """Write the number of rows, which is that of the port."""
    r.set(rows=r.dims(least=1)[0])


def read_filled_rows(r: LiftContext) -> None:
    """Read the operands (indices, values, shape, default). The third port has as many elements as
    there are rows.
    """
    values, ports = r.input(1), len(r.layer.outputs)
    rows = r.dims(2, least=1)[0] if ports > 2 else r.ints(2, "the dense shape")[0]
    r.node.attrs |= {"rows": rows, "length": r.dims(least=1)[0]}
    default = r.cast(r.input(3), values.dtype or D.FLOAT)
    r.node.inputs, r.outputs = [r.input(0), values, default], 3


def write_filled_rows(w: LowerContext) -> None:
    """Write the shape of the rows to fill, and the default as a vector of one element."""
    rows, index = w.attr("rows"), w.data
    size = [rows, max(1, w.attr("length") // rows)]
    shape = w.const(np.array(size, index.dtype.numpy() if index.dtype else np.int64))
    w.set_inputs(index, w.input(1), shape, w.reshaped(w.input(2), [1]))


FILLED_ROWS = Detail(read=read_filled_rows, write=write_filled_rows, names=("rows", "length"))


def read_weighted_sum(r: LiftContext) -> None:
    """Read the operands (indices, values, shape, table, default, weights)."""
    weights = r.optional(5)
    rest = [] if weights is None else [r.floats(weights)]
    r.set(rows=r.dims()[0])
    r.set_inputs(*(r.input(i) for i in (0, 1, 3, 4)), *rest)


def write_weighted_sum(w: LowerContext) -> None:
    """Write the shape of the rows to sum, the default as a scalar, and the weights if there are
    any.
    """
    shape = [w.attr("rows"), w.shape(1)[0]]
    rest = [w.input(4)] if w.has(4) else []
    default = w.reshaped(w.input(3), [])
    w.set_inputs(w.data, w.input(1), shape, w.input(2), default, *rest)


WEIGHTED_SUM = Detail(read=read_weighted_sum, write=write_weighted_sum, names=("rows",))
WEIGHTED_SHAPE = ignore_inputs(2)  # the port has it, too


SEGMENTS = "4,3 =i64:[0,1,2] =i64:[0,0,1]"
ENTRIES = "=i64:[[0,0],[1,1]] =i64:[0,1] 4,3 =i64: 2"
LARGEST = words({1: "max", 0: "min"})
TOP = "2,6 =i64:[2]"

RULES: list[Rule] = [
    op("Gather", "Gather", Indices(), MARK_LAYER, example_inputs="2,3 =i64:2"),
    op("OneHot", "OneHot", NOT_NEGATIVE, ONE_HOT, example_inputs="=i64:4 =[3] =[0,1]"),
    op("netconv::OneHotFromFront", "OneHot", ONE_HOT, example_inputs="i64:4 =[3] =[0,1]"),
    op("Range", "Range", SCALARS, example_inputs="= = ="),
    *(op("Shape", kind, ignore("output_type"), lift_only=True) for kind in ("Shape", "ShapeOf")),
    op(
        "ScatterElements",
        "ScatterUpdate",
        ignore("axis"),
        before_lift=scatter_rows,
        lift_only=True,
    ),
    op(
        "ScatterND",
        "SparseToDense",
        RequireAttr("reduction", "none"),
        Sparse(),
        ignore_inputs(1),  # the shape is that of the port
        example_inputs="=i32:[[7,7],[7,7]] =i64:[[0,1],[1,1]] i32:2",
    ),
    op(
        "TopK",
        "TopK",
        NO_INTEGERS,
        BEST,
        Attr("largest", "mode", LARGEST, 1),
        RequireAttr("sorted", 1),
        example_inputs=TOP,
    ),
    op(
        "TopK",
        "ArgMax",
        NO_INTEGERS,
        RequireAttr("largest", 1),
        BEST_ALONE,
        RequireAttr("sorted", 1),
        example_inputs=TOP,
    ),
    op(
        "ArgMax",
        "ArgMax",
        NO_INTEGERS,
        RequireAttr("select_last_index", 0),
        BEST_ALONE,
        lower_only=True,
    ),
    op(
        "ReduceSum",
        "Bucketize",
        RequireAttr("keepdims", 0),
        ignore("with_right_bound"),
        before_lift=boundaries_below,
        lift_only=True,
    ),
    op("netconv::FixedUnique", "Unique", UNIQUE_PARTS, Attr("sorted", kind=TRUTH, default=1)),
    *(
        op(
            "netconv::SparseSegment",
            kind,
            RequireAttr("mode", kind[13:].lower()),
            Detail(read=count_rows, names=("rows",)),
            example_inputs=SEGMENTS,
        )
        for kind in ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN")
    ),
    op(
        "netconv::SparseFillEmptyRows",
        "SparseFillEmptyRows",
        FILLED_ROWS,
        ignore_inputs(2),  # the shape of the whole has no part in the results
        example_inputs="=i64:[[0,0],[1,1]] 2 =",
    ),
    op(
        "netconv::SparseWeightedSum",
        "ExperimentalSparseWeightedSum",
        WEIGHTED_SUM,
        WEIGHTED_SHAPE,
        example_inputs=ENTRIES,
    ),
    op(
        "netconv::SparseWeightedSum",
        "ExperimentalSparseWeightedReduce",
        WEIGHTED_SUM,
        WEIGHTED_SHAPE,
        lift_only=True,
        example_inputs=ENTRIES,
    ),
]
