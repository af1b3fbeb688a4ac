"""Sums and other reductions of rows that share a segment, and weighted look-ups of a table."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.tflite.rules.context import LiftContext
from converter.formats.tflite.rules.fields import data
from converter.graph.infer import known
from converter.graph.value import Value
from converter.mapping.codecs import enum
from converter.mapping.fields import Attr, Field, Guard, RequireAttr
from converter.mapping.rules import op

LARGE = np.iinfo(np.int64).max
COMBINERS = enum({"SUM": 0, "MEAN": 1, "SQRTN": 2})


def scattered(r: LiftContext, rows: Value, ids: Value, start: float) -> None:
    """Scatter the data to the indices `ids` of a tensor [rows, ...] filled with `start`."""
    b, x = r.b, data(r)
    shape = b.Concat(b.Reshape(rows, [1]), b.Shape(x)[r.rank(ids) :], axis=0)
    r.set_inputs(b.Expand(b.like(x, start), shape), b.Unsqueeze(ids, [-1]), x)


# sorted segments ---------------------------------------------------------------------------------


def known_rows(r: LiftContext) -> None:
    """Set the number of rows from constant ids, which are in ascending order."""
    if r.rank(data(r)) < 1 or r.rank(r.input(1)) != 1:
        raise MappingError("there must be one segment id per row", "R105")
    r.set(rows=max(r.ints(1, "the segments"), default=-1) + 1)


def segment_sum(r: LiftContext) -> None:
    """Read SegmentSum; the last id determines the number of rows."""
    ids = r.whole(1)
    scattered(r, ids[-1:] + 1, ids, 0)


KNOWN = Guard(
    "only floating-point data with constant segment ids are supported",
    lift_if=lambda r: data(r).dtype == ir.DataType.FLOAT and known(r.input(1)) is not None,
)


# segments in any order ---------------------------------------------------------------------------


class AnyOrder(Field):
    """Inputs are [data, ids, number of segments]. Elements with a negative id are ignored: they are
    written to an additional last row. A segment without elements has the neutral element; for the
    extremes, the last finite number.
    """

    def lift(self, r: LiftContext) -> None:
        ids, count = r.whole(1), r.b.Reshape(r.whole(2), [1])
        kind = np.dtype((data(r).dtype or ir.DataType.FLOAT).numpy())
        if kind not in (np.float32, np.int32):
            raise MappingError(f"segments of {kind} are not supported", "X201")
        limits = np.finfo(kind) if kind == np.float32 else np.iinfo(kind)
        neutral = {"add": 0, "mul": 1, "max": limits.min, "min": limits.max}
        places = r.b.Where(ids < 0, count, ids)
        scattered(r, count + 1, places, neutral[r.node.attrs["reduction"]])
        r.after_first(lambda y: y[:-1])


# weighted look-ups -------------------------------------------------------------------------------


def rows_of_sparse(r: LiftContext) -> None:
    """Read the inputs [ids, indices, sizes, weights, table]: indices [ids, axes] into a sparse
    tensor of these sizes, which is summed along its last axis. The other axes are rows of the
    result.
    """
    b, table = r.b, r.input(4)
    sizes = r.ints(2, "the sizes of the sparse tensor")[:-1]
    strides = np.cumprod([1, *sizes[:0:-1]])[::-1].astype(np.int64)
    places = r.whole(1)[:, : len(sizes)]
    rows = b.ReduceSum(places * strides, [1], keepdims=0)
    r.set_inputs(table, rows, r.whole(0), r.input(3))
    r.set(count=int(np.prod(sizes)))
    if len(sizes) != 1:
        front = np.asarray(sizes, np.int64)
        r.after_first(lambda y: b.Reshape(y, b.Concat(front, b.Shape(table)[1:], axis=0)))


RULES = [
    op("netconv::SegmentSum", "SEGMENT_SUM", KNOWN, before_lift=known_rows, lift_only=True),
    op(
        "ScatterND",
        "SEGMENT_SUM",
        RequireAttr("reduction", "add"),
        before_lift=segment_sum,
        lift_only=True,
    ),
    *(
        op(
            "ScatterND",
            f"UNSORTED_SEGMENT_{name}",
            RequireAttr("reduction", reduction),
            AnyOrder(),
            lift_only=True,
        )
        for name, reduction in (("SUM", "add"), ("PROD", "mul"), ("MAX", "max"), ("MIN", "min"))
    ),
    op(
        "netconv::EmbeddingLookupSparse",
        "EMBEDDING_LOOKUP_SPARSE",
        Attr("combiner", kind=COMBINERS),
        before_lift=rows_of_sparse,
        lift_only=True,
    ),
]
