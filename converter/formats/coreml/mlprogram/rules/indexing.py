"""Gather and scatter operations."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.mlprogram.rules.context import LiftContext, LowerContext
from converter.formats.coreml.mlprogram.rules.elementwise import DTYPES
from converter.formats.coreml.mlprogram.rules.fields import (
    TransposedIndices,
    first_axis,
    mil,
    numbers,
    size_of,
)
from converter.formats.coreml.mlprogram.rules.quantization import write_looked_up
from converter.graph.build import Builder
from converter.graph.demands import axis_of
from converter.graph.infer import constant, set_type
from converter.graph.value import Value, with_operators
from converter.mapping.codecs import enum
from converter.mapping.concepts.axes import Axis
from converter.mapping.fields import Attr, Detail, Guard, InputType, RequireAttr, RequireKey, ignore
from converter.mapping.rules import Custom, Rule, custom
from converter.passes.indices import batched_gather_orders
from converter.passes.layout.axes import inverse

LARGE = np.iinfo(np.int64).max
IOS16 = 7  # the specification version
CHECKED = ignore("validate_indices")
JOINING = enum({"add": "add", "mul": "mul", "max": "max", "min": "min", "none": "update"})


def gather_in_batches(r: LiftContext) -> None:
    """Read a gather along `axis`, where data and indices share the first `batch_dims` axes."""
    x, indices = r.operands()
    rank, depth, batch = r.rank(x), r.rank(indices), r.attr("batch_dims", int, 0)
    axis = axis_of(r.attr("axis", int, 0), rank)
    if not 0 <= batch <= min(axis, depth):
        raise MappingError(f"batch_dims={batch} with axis={axis} is not supported", "R110")
    order, back = batched_gather_orders(rank, depth, axis, batch)
    r.set(batch_dims=batch)
    r.set_inputs(r.transpose(x, order), r.b.Unsqueeze(indices, [-1]))
    r.after_first(lambda y: r.transpose(y, back))


def read_joined(r: LiftContext) -> None:
    """Read the mode in which a scatter combines updates with the data; a subtracted update is added
    negated. The mode is always written, since addition is the default.
    """
    mode, updates = r.attr("mode", str, "add"), r.operands()[2]
    if mode == "sub":
        mode, r.node.inputs[2] = "add", -updates
    elif mode == "div":
        mode, r.node.inputs[2] = "mul", r.b.Reciprocal(updates)
    r.set(reduction=JOINING.lift(mode))


def write_joined(w: LowerContext) -> None:
    """Write the reduction of updates as `mode`."""
    w.set(mode=JOINING.lower(w.attr("reduction", "none")))


JOINED = Detail(read=read_joined, write=write_joined, keys=("mode",), names=("reduction",))


def scatter_slices(r: LiftContext) -> None:
    """Scatter whole slices along `axis`: that axis is moved to the front and back."""
    x, indices, updates = r.operands()
    rank, depth = r.rank(x), r.rank(indices)
    axis = axis_of(r.attr("axis", int, 0), rank)
    order = [axis, *(i for i in range(rank) if i != axis)]
    transposed = [*range(axis, axis + depth), *range(axis), *range(axis + depth, rank + depth - 1)]
    places = r.b.Unsqueeze(indices, [-1])
    r.set_inputs(r.transpose(x, order), places, r.transpose(updates, transposed))
    r.after_first(lambda y: r.transpose(y, inverse(order)))


def join_off_and_on(r: LiftContext) -> None:
    """Return the values at the index and at all other positions."""
    on, off = (r.given(k) for k in ("on_value", "off_value"))
    on = r.b.const(np.int32(1)) if on is None else on
    off = r.b.like(on, 0) if off is None else off
    r.set_input(2, r.b.Concat(r.b.Reshape(off, [1]), r.b.Reshape(on, [1]), axis=0))


class Unbatched(RequireKey):
    """`batch_dims` = 0; operations before iOS16 do not have this attribute."""

    def lower(self, w: LowerContext) -> None:
        return


def make_indices_nonnegative(w: LowerContext) -> None:
    """Replace negative constant indices by ones that count from the start."""
    array = constant(w.input(1))
    if array is None or (array >= 0).all():
        return
    size = size_of(w.data, first_axis(w, w.attr("axis", 0)))
    if not isinstance(size, int):
        return
    found = np.where(array < 0, array + size, array)
    w.layer.attrs["indices"] = w.const(found, "indices")


NONNEGATIVE_INDICES = Detail(write=make_indices_nonnegative)


def _cut(shape: ir.Shape | None, indices: ir.Shape | None, axis: int | None) -> bool:
    """Return whether indices have other sizes than the data, but along the axis."""
    if shape is None or indices is None:
        return True
    pairs = enumerate(zip(shape, indices, strict=True))
    return any(i != axis and n != m for i, (n, m) in pairs)


def alike(w: LowerContext) -> bool:
    """Return whether indices have the sizes of the data along the other axes."""
    return not _cut(w.data.shape, w.input(1).shape, first_axis(w, w.attr("axis", 0)))


# lists: a list is the tensor of its elements ------------------------------------------------------


def make_list(r: LiftContext) -> Value:
    """Create a list of its initial number of elements, zeros. A size that is the name of a symbol
    is 1, until an element of another size is written.
    """
    b = r.b
    count = r.whole("init_length") if r.has("init_length") else numbers(r, [1])
    given = r.layer.extra["elem_shape"] if r.has("elem_shape") else []
    values = [numbers(r, [1]) if isinstance(g, str) else r.block.as_value(g) for g in given]
    sizes = [b.Reshape(r.whole(with_operators(v)), [1]) for v in values]
    shape = b.Concat(b.Reshape(count, [1]), *sizes, axis=0)
    dtype = DTYPES.get(r.attr("dtype", str, "fp32"), ir.DataType.FLOAT)
    found = b.Expand(b.const(np.zeros((), dtype.numpy())), shape)
    if r.attr("dynamic_length", bool, True) and found.shape is not None:
        set_type(found, None, [None, *list(found.shape)[1:]])
    return found


def as_large(b: Builder, ls: Value, rows: Value) -> Value:
    """Return a list whose elements have the size of those that are written, if it is symbolic."""
    pairs = zip(list(ls.shape or ())[1:], list(rows.shape or ())[1:], strict=False)
    if all(n == m or (isinstance(n, int) and n != 1) for n, m in pairs):
        return ls
    return b.Expand(ls, b.Concat([1], b.Shape(rows)[1:], axis=0))


def list_write(r: LiftContext) -> Value:
    """Replace one element of a list, or append one."""
    b = r.b
    value = b.Unsqueeze(r.value("value"), [0])
    ls = as_large(b, r.value("ls"), value)
    index = b.Reshape(r.whole("index"), [1])
    if ls.shape is not None and isinstance(ls.shape[0], int):
        return b.ScatterND(ls, b.Reshape(index, [1, 1]), value)
    front, back = b.Slice(ls, [0], index, [0]), b.Slice(ls, index + 1, [LARGE], [0])
    missing = index - b.Slice(b.Shape(front), [0], [1], [0])
    rank = r.rank(ls)
    amounts = b.Concat(np.zeros(rank, np.int64), missing, np.zeros(rank - 1, np.int64), axis=0)
    return b.Concat(b.Pad(front, amounts), value, back, axis=0)


def scattered(r: LiftContext) -> None:
    """Set the inputs of a ScatterND that replaces elements of a list."""
    ls, indices, rows = r.operands()
    r.set_inputs(as_large(r.b, ls, rows), r.b.Unsqueeze(indices, [-1]), rows)


def length(r: LiftContext) -> None:
    """Read the length of a list as the first size of its shape."""
    r.set_inputs(r.b.Shape(r.data), 0)


ALIKE = Guard("indices must have the sizes of the data along the other axes", alike)
FIRST, UPDATED = RequireAttr("axis", 0), "data indices updates"
RULES: list[Rule | Custom] = [
    custom("Gather", "constexpr_lut_to_dense", None, write_looked_up),
    mil(
        "Gather",
        "gather",
        "x indices",
        Unbatched("batch_dims", 0, absent=True),
        Attr("axis", kind=int, default=0),
        InputType((1,)),
        NONNEGATIVE_INDICES,
        CHECKED,
        example_inputs="2,3 =[1,0]",
    ),
    mil(
        "GatherND",
        "gather",
        "x indices",
        InputType((1,)),
        Detail(read=gather_in_batches, keys=("axis", "batch_dims")),
        CHECKED,
        lift_only=True,
    ),
    mil(
        "GatherElements",
        "gather_along_axis",
        "x indices",
        ALIKE,
        Attr("axis", kind=int, default=0),
        InputType((1,)),
        NONNEGATIVE_INDICES,
        CHECKED,
        example_inputs="4,4 i64:4,4",
    ),
    mil(
        "GatherND",
        "gather_nd",
        "x indices",
        Attr("batch_dims", kind=int, default=0, omit=True, since=IOS16),
        InputType((1,)),
        CHECKED,
        example_inputs="4,4 i64:4,1",
    ),
    mil(
        "ScatterND",
        "scatter",
        UPDATED,
        InputType((1,)),
        JOINED,
        Detail(read=scatter_slices, keys=("axis",)),
        CHECKED,
        lift_only=True,
    ),
    mil(
        "ScatterND",
        "scatter_nd",
        UPDATED,
        InputType((1,)),
        JOINED,
        CHECKED,
    ),
    mil(
        "ScatterElements",
        "scatter_along_axis",
        UPDATED,
        ALIKE,
        Axis(default=0, signed=True),
        InputType((1,)),
        JOINED,
        CHECKED,
        example_inputs="4,4 i64:4,4 4,4",
    ),
    mil(
        "netconv::OneHotFromFront",
        "one_hot",
        "indices one_hot_vector_size",
        InputType((0, 1)),
        InputType((1,), None, scalar=True),
        Detail(read=join_off_and_on, keys=("on_value", "off_value")),
        Attr("axis", kind=int, default=-1),
        lift_only=True,
    ),
    mil("NonZero", "non_zero", "x", TransposedIndices()),
    custom("", "make_list", make_list),
    custom("", "list_write", list_write),
    mil(
        "Gather",
        "list_read",
        "ls index",
        InputType((1,)),
        InputType((1,), None, scalar=True),
        FIRST,
        lift_only=True,
    ),
    mil("Gather", "list_gather", "ls indices", InputType((1,)), FIRST, lift_only=True),
    mil(
        "ScatterND",
        "list_scatter",
        "ls indices value",
        InputType((1,)),
        before_lift=scattered,
        lift_only=True,
    ),
    mil("Gather", "list_length", "ls", FIRST, before_lift=length, lift_only=True),
]
