"""Sums and other reductions of rows that share a segment, and weighted look-ups of a table."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.tflite.rules.context import Reading
from converter.formats.tflite.rules.fields import data
from converter.graph.infer import known
from converter.graph.value import Value
from converter.mapping.fields import Field, Guard
from converter.mapping.rules import Custom, Rule, custom, op

LARGE = np.iinfo(np.int64).max
COMBINERS = ("SUM", "MEAN", "SQRTN")


def tail(r: Reading, value: ir.Value, first: int) -> Value:
    """The sizes of the axes from `first` on."""
    return r.b.Shape(value)[first:]


def scattered(r: Reading, rows: Value, ids: Value, x: ir.Value, start: float, how: str) -> Value:
    """[rows, ...]: what the elements of `x` at places `ids` are reduced to, `start` where there is
    none.
    """
    b = r.b
    shape = b.Concat(b.Reshape(rows, [1]), tail(r, x, r.rank(ids)), axis=0)
    blank = b.Expand(b.like(x, start), shape)
    return b.ScatterND(blank, b.Unsqueeze(ids, [-1]), x, reduction=how)


# sorted segments ---------------------------------------------------------------------------------


class KnownRows(Field):
    """As many rows as constant ids say, which never fall."""

    names = ("rows",)

    def lift(self, r: Reading) -> None:
        if r.rank(data(r)) < 1 or r.rank(r.input(1)) != 1:
            raise MappingError("one segment for each row", "R105")
        r.set(rows=max(r.ints(1, "the segments"), default=-1) + 1)


def segment_sum(r: Reading) -> Value:
    """The last id says how many rows there are."""
    ids = r.whole(1)
    rows = ids[-1:] + 1
    return scattered(r, rows, ids, data(r), 0, "add")


KNOWN = Guard(
    "of real numbers, in segments that are known",
    lift_if=lambda r: data(r).dtype == ir.DataType.FLOAT and known(r.input(1)) is not None,
)


# segments in any order ---------------------------------------------------------------------------


def unsorted_segments(r: Reading) -> Value:
    """Inputs are [data, ids, number of segments]. What has a negative id is left out: it goes into
    a row behind the others. A segment without elements has the neutral element, for the extremes
    the last finite number.
    """
    how = r.layer.kind.rpartition("_")[2].lower()
    x, ids, count = data(r), r.whole(1), r.b.Reshape(r.whole(2), [1])
    kind = np.dtype((x.dtype or ir.DataType.FLOAT).numpy())
    if kind not in (np.float32, np.int32):
        raise MappingError(f"segments of {kind}", "X201")
    limits = np.finfo(kind) if kind == np.float32 else np.iinfo(kind)
    start = {"sum": 0, "prod": 1, "max": limits.min, "min": limits.max}[how]
    places = r.b.Where(ids < 0, count, ids)
    reduction = {"sum": "add", "prod": "mul"}.get(how, how)
    y = scattered(r, count + 1, places, x, start, reduction)
    return y[:-1]


# weighted look-ups -------------------------------------------------------------------------------


def sparse_places(r: Reading) -> tuple[Value, list[int]]:
    """The row of the result for each id, and the sizes of the axes that these rows are.

    Inputs 1 and 2 are the places [ids, axes] in a sparse tensor and its sizes; along the last axis
    is summed.
    """
    sizes = r.ints(2, "the sizes of the sparse tensor")[:-1]
    strides = np.cumprod([1, *sizes[:0:-1]])[::-1].astype(np.int64)
    places = r.whole(1)[:, : len(sizes)]
    return r.b.ReduceSum(places * strides, [1], keepdims=0), sizes


def combiner(r: Reading) -> str:
    found = r.attr("combiner", int)
    if not 0 <= found < len(COMBINERS):
        raise MappingError(f"combiner {found} is none of SUM, MEAN, SQRTN (0 to 2)", "R110")
    return COMBINERS[found]


def sparse_lookup(r: Reading) -> Value:
    """Inputs are [ids, places, sizes, weights, table]; a row without ids is 0."""
    b, table = r.b, r.input(4)
    rows, sizes = sparse_places(r)
    y = b.EmbeddingLookupSparse(
        table,
        rows,
        r.whole(0),
        r.input(3),
        count=int(np.prod(sizes)),
        combiner=combiner(r),
    )
    if len(sizes) == 1:
        return y
    return b.Reshape(y, b.Concat(np.asarray(sizes, np.int64), tail(r, table, 1), axis=0))


RULES: list[Rule | Custom] = [
    op("netconv::SegmentSum", "SEGMENT_SUM", KNOWN, KnownRows(), lift_only=True),
    custom("", "SEGMENT_SUM", segment_sum),
    custom(
        "",
        " ".join(f"UNSORTED_SEGMENT_{name}" for name in ("SUM", "PROD", "MAX", "MIN")),
        unsorted_segments,
    ),
    custom("", "EMBEDDING_LOOKUP_SPARSE", sparse_lookup),
]
