"""Operations that pick by index, and those that put something somewhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.mlprogram.rules.context import Reading, Writing
from converter.formats.mlprogram.rules.elementwise import DTYPES
from converter.formats.mlprogram.rules.fields import Whole, first_axis, mil, numbers, size_of
from converter.formats.mlprogram.rules.quantization import write_looked_up
from converter.graph.demands import axis_of
from converter.graph.infer import constant, set_type
from converter.graph.value import Value
from converter.mapping.fields import Attr, Field, Fixed, Guard, ignore
from converter.mapping.rules import Custom, Rule, custom

LARGE = np.iinfo(np.int64).max
IOS16 = 7  # the specification version
CHECKED = ignore("validate_indices")
REDUCTIONS = {"add": "add", "mul": "mul", "max": "max", "min": "min", "update": "none"}


def batched(r: Reading) -> Value:
    """Along `axis`, with leading axes that data and indices share."""
    b = r.b
    x, indices = r.x, r.whole("indices")
    rank, depth, batch = r.rank(x), r.rank(indices), r.attr("batch_dims", int, 0)
    axis = r.attr("axis", int, 0) % rank
    if not 0 <= batch <= min(axis, depth):
        raise MappingError(f"batch_dims {batch}, axis {axis}", "R110")
    order = [*range(batch), axis, *(i for i in range(batch, rank) if i != axis)]
    y = b.GatherND(r.transpose(x, order), b.Unsqueeze(indices, [-1]), batch_dims=batch)
    between = axis - batch
    own, tail = list(range(batch, depth)), list(range(depth, depth + rank - 1 - batch))
    back = [*range(batch), *tail[:between], *own, *tail[between:]]
    return r.transpose(y, back)


def changed(r: Reading, updates: Value) -> tuple[Value, str]:
    """Updates, and how they join what is there: what is taken away is added negated."""
    mode = r.attr("mode", str, "add")
    if mode == "sub":
        return -updates, "add"
    if mode == "div":
        return r.b.Reciprocal(updates), "mul"
    if mode not in REDUCTIONS:
        raise MappingError(f"mode {mode!r} is not known", "R110")
    return updates, REDUCTIONS[mode]


def scatter_nd(r: Reading) -> Value:
    updates, mode = changed(r, r.value("updates"))
    indices = r.whole("indices")
    return r.b.ScatterND(r.value("data"), indices, updates, reduction=mode)


def scatter_along(r: Reading) -> Value:
    updates, mode = changed(r, r.value("updates"))
    indices, axis = r.whole("indices"), r.attr("axis", int, 0)
    return r.b.ScatterElements(r.value("data"), indices, updates, axis=axis, reduction=mode)


def scatter(r: Reading) -> Value:
    """Whole slices along `axis`: that axis goes to the front and comes back."""
    b = r.b
    x, indices = r.value("data"), r.whole("indices")
    updates, mode = changed(r, r.value("updates"))
    rank, depth = r.rank(x), r.rank(indices)
    axis = axis_of(r.attr("axis", int, 0), rank)
    order = [axis, *(i for i in range(rank) if i != axis)]
    turned = [*range(axis, axis + depth), *range(axis), *range(axis + depth, rank + depth - 1)]
    y = b.ScatterND(
        r.transpose(x, order),
        b.Unsqueeze(indices, [-1]),
        r.transpose(updates, turned),
        reduction=mode,
    )
    return r.transpose(y, [order.index(i) for i in range(rank)])


def one_hot(r: Reading) -> Value:
    """An index outside of the depth, also a negative one, is nowhere."""
    b = r.b
    indices = r.whole("indices")
    depth = b.Reshape(r.whole("one_hot_vector_size"), [])
    on, off = (r.given(k) for k in ("on_value", "off_value"))
    on = b.const(np.int32(1)) if on is None else on
    off = b.like(on, 0) if off is None else off
    inside = b.Where(indices < b.like(indices, 0), depth, indices)
    ends = b.Concat(b.Reshape(off, [1]), b.Reshape(on, [1]), axis=0)
    return b.OneHot(inside, depth, ends, axis=r.attr("axis", int, -1))


def places(r: Reading) -> Value:
    return r.b.Transpose(r.b.NonZero(r.x), perm=[1, 0])


class Unbatched(Fixed):
    """`batch_dims` 0, which operations before iOS16 do not know."""

    def lower(self, w: Writing) -> None:
        return


class Places(Field):
    """Indices that are constant count from the front."""

    def lower(self, w: Writing) -> None:
        array = constant(w.input(1))
        if array is None or (array >= 0).all():
            return
        size = size_of(w.data, first_axis(w, w.attr("axis", 0)))
        if not isinstance(size, int):
            return
        found = np.where(array < 0, array + size, array)
        w.layer.attrs["indices"] = w.const(found, "indices")


def write_scatter(kind: str) -> Callable[[Writing], None]:
    """`kind`: the operation; how updates join is said always, since addition is the default."""
    modes = {v: k for k, v in REDUCTIONS.items()}

    def lower(w: Writing) -> None:
        mode = w.attr("reduction", "none")
        if mode not in modes:
            raise MappingError(f"reduction {mode!r}")
        data, indices, updates = (w.input(i) for i in range(3))
        along = kind == "scatter_along_axis"
        axis = first_axis(w, w.attr("axis", 0)) if along else None
        if along and _cut(w.data.shape, w.input(1).shape, axis):
            raise MappingError("indices of other sizes than the data beside the axis")
        w.operation(kind, data=data, indices=indices, updates=updates, axis=axis, mode=modes[mode])

    return lower


def _cut(shape: ir.Shape | None, indices: ir.Shape | None, axis: int | None) -> bool:
    """Whether indices have other sizes than the data, but along the axis."""
    if shape is None or indices is None:
        return True
    pairs = enumerate(zip(shape, indices, strict=True))
    return any(i != axis and n != m for i, (n, m) in pairs)


def alike(w: Writing) -> bool:
    return not _cut(w.data.shape, w.input(1).shape, first_axis(w, w.attr("axis", 0)))


# lists: a list is the tensor of its elements ------------------------------------------------------


def make_list(r: Reading) -> Value:
    """As many elements as it begins with, zeros."""
    b = r.b
    count = r.whole("init_length") if r.has("init_length") else numbers(r, [1])
    sizes = [b.Reshape(r.whole(v), [1]) for v in r.values("elem_shape")]
    shape = b.Concat(b.Reshape(count, [1]), *sizes, axis=0)
    dtype = DTYPES.get(r.attr("dtype", str, "fp32"), ir.DataType.FLOAT)
    found = b.Expand(b.const(np.zeros((), dtype.numpy())), shape)
    if r.attr("dynamic_length", bool, True) and found.shape is not None:
        set_type(found, None, [None, *list(found.shape)[1:]])
    return found


def list_write(r: Reading) -> Value:
    """One element replaced, or one more behind the last."""
    b = r.b
    ls, value = r.value("ls"), b.Unsqueeze(r.value("value"), [0])
    index = b.Reshape(r.whole("index"), [1])
    if ls.shape is not None and isinstance(ls.shape[0], int):
        return b.ScatterND(ls, b.Reshape(index, [1, 1]), value)
    front, back = b.Slice(ls, [0], index, [0]), b.Slice(ls, index + 1, [LARGE], [0])
    missing = index - b.Slice(b.Shape(front), [0], [1], [0])
    rank = r.rank(ls)
    amounts = b.Concat(np.zeros(rank, np.int64), missing, np.zeros(rank - 1, np.int64), axis=0)
    return b.Concat(b.Pad(front, amounts), value, back, axis=0)


def list_read(r: Reading) -> Value:
    index = r.b.Reshape(r.whole("index"), [])
    return r.b.Gather(r.value("ls"), index, axis=0)


def list_gather(r: Reading) -> Value:
    return r.b.Gather(r.value("ls"), r.whole("indices"), axis=0)


def list_scatter(r: Reading) -> Value:
    indices = r.b.Unsqueeze(r.whole("indices"), [-1])
    return r.b.ScatterND(r.value("ls"), indices, r.value("value"))


def list_length(r: Reading) -> Value:
    return r.b.Gather(r.b.Shape(r.value("ls")), 0, axis=0)


RULES: list[Rule | Custom] = [
    custom("Gather", "constexpr_lut_to_dense", None, write_looked_up),
    mil(
        "Gather",
        "gather",
        "x indices",
        Unbatched("batch_dims", 0, absent=True),
        Attr("axis", kind=int, default=0),
        Whole(1),
        Places(),
        CHECKED,
        given="2,3 =[1,0]",
    ),
    custom("", "gather", batched),
    mil(
        "GatherElements",
        "gather_along_axis",
        "x indices",
        Guard("indices of other sizes than the data beside the axis", alike),
        Attr("axis", kind=int, default=0),
        Whole(1),
        Places(),
        CHECKED,
        given="2,3 i64:2,3",
    ),
    mil(
        "GatherND",
        "gather_nd",
        "x indices",
        Attr("batch_dims", kind=int, default=0, omit=True, since=IOS16),
        Whole(1),
        CHECKED,
        given="2,3 i64:2,1",
    ),
    custom("", "scatter", scatter),
    custom("ScatterND", "scatter_nd", scatter_nd, write_scatter("scatter_nd")),
    custom(
        "ScatterElements",
        "scatter_along_axis",
        scatter_along,
        write_scatter("scatter_along_axis"),
    ),
    custom("", "one_hot", one_hot),
    custom("", "non_zero", places),
    custom("", "make_list", make_list),
    custom("", "list_write", list_write),
    custom("", "list_read", list_read),
    custom("", "list_gather", list_gather),
    custom("", "list_scatter", list_scatter),
    custom("", "list_length", list_length),
]
