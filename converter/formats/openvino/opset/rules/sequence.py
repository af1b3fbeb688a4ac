"""Decoding of sequences and their losses; embeddings and segments."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.formats.openvino.fields import words
from converter.formats.openvino.opset.rules.context import LiftContext, LowerContext, element_type
from converter.mapping.fields import Attr, Detail, Field, Outputs, OutputType, RequireAttr, attrs
from converter.mapping.rules import Rule, op
from converter.record import record

T = ir.DataType


@record
class AsInt32(Field):
    """Operands that the runtime supports as i32 only."""

    positions: tuple[int, ...]

    def lower(self, w: LowerContext) -> None:
        for i in self.positions:
            if w.has(i):
                w.layer.inputs[i] = w.cast(w.input(i), T.INT32)


@record
class DefaultIndex(Field):
    """The index for empty bags (-1 means none), and the weights after it, which require one."""

    position: int

    def lower(self, w: LowerContext) -> None:
        dtype = w.input(1).dtype or T.INT64
        if not w.has(self.position) and w.has(self.position + 1):
            none = w.cast(w.const([-1]), dtype)
            w.layer.inputs[self.position] = w.emit("Reshape", none, [], special_zero=False)


def read_half(r: LiftContext) -> None:
    """Return whether the lowest number is that of half precision, the declared output type."""
    outputs = [] if r.layer.extra is None else r.context[0].outputs
    r.set(half=int(bool(outputs) and outputs[0].precision.upper() == "FP16"))


REDUCTION = Attr("reduction", kind=words("sum", "mean"), default="sum")
SUMS = RequireAttr("reduction", "sum")


def bags(*fields: Field, kind: str = "", **options: Any) -> list[Rule]:
    """Return a bag for each row of the indices, or for each offset into them."""
    name = "EmbeddingBagPacked", "EmbeddingBagOffsets"
    return [
        op(f"netconv::{name[0]}", name[0] + kind, *fields, example_inputs="4,2 i64:3,2", **options),
        op(
            f"netconv::{name[1]}",
            name[1] + kind,
            *fields,
            DefaultIndex(3),
            example_inputs="4,2 i64:3 i64:2",
            **options,
        ),
    ]


RULES = [
    op(
        "netconv::CTCGreedyDecoderSeqLen",
        "CTCGreedyDecoderSeqLen",
        Attr("merge_repeated", kind=bool, default=1),
        AsInt32((1, 2)),
        OutputType("classes_index_type", element_type, (0,), default=T.INT32),
        OutputType("sequence_length_type", element_type, (1,), default=T.INT32),
        Outputs((T.INT64, T.INT64)),
        since=6,
        example_inputs="2,3,4 i32:2",
    ),
    op(
        "netconv::CTCLoss",
        "CTCLoss",
        Attr("collapse_repeated", "preprocess_collapse_repeated", bool, default=0),
        Attr("merge_repeated", "ctc_merge_repeated", bool, default=1),
        *attrs(unique=False),
        since=4,
        example_inputs="2,3,4 i32:2 i32:2,3 i32:2",
    ),
    op(
        "netconv::EmbeddingSegments",
        "EmbeddingSegmentsSum",
        SUMS,
        DefaultIndex(4),
        since=3,
        example_inputs="4,2 i64:3 i64:3 =i64:[3]",
    ),
    *bags(REDUCTION, since=15),
    # sums are separate operations, which are replaced by the others once these exist
    *bags(SUMS, kind="Sum", since=3, until=14),
    *bags(SUMS, kind="Sum", since=15, lift_only=True),
    op(
        "netconv::SegmentMax",
        "SegmentMax",
        Attr("fill", "fill_mode", words("zero", "lowest", upper=True)),
        Detail(read=read_half, names=("half",)),
        since=16,
        example_inputs="4,2 =i64:[0,0,1,2]",
    ),
    op(
        "netconv::FillEmptyRows",
        "SparseFillEmptyRows",
        Outputs((T.INT64, None, T.BOOL)),
        since=16,
        example_inputs="3 i64:2 i64:3,2 =",
    ),
]
