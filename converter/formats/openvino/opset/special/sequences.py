"""Decoding of sequences and their losses; embeddings and segments."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from converter.formats.openvino.opset.fields import element_type
from converter.formats.openvino.opset.special.base import Emit, attributes, cast, filled, given, lifts, lowers, needs, operand, optional
from converter.graph.build import Builder
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

T = ir.DataType


@lifts("CTCGreedyDecoderSeqLen")
def lift_decoder(layer: Layer, b: Builder) -> list[ir.Value]:
    a = attributes(layer, merge_repeated=True, classes_index_type="i32", sequence_length_type="i32")
    labels, counts = b.exts("CTCGreedyDecoderSeqLen", *layer.inputs, merge_repeated=int(a.merge_repeated), outputs=2)
    return [cast(b, labels, T(element_type.lift(a.classes_index_type))), cast(b, counts, T(element_type.lift(a.sequence_length_type)))]


@lowers("CTCGreedyDecoderSeqLen", domain="netconv")
def lower_decoder(node: Node, low: Lowering) -> None:
    needs(low, "CTCGreedyDecoderSeqLen", 6)
    e, blank = Emit(node, low), node.input(2)
    inputs = [given(node, 0), e.op("Convert", node.input(1), dtype=T.INT32, destination_type="i32")]
    if blank is not None:
        inputs.append(e.op("Convert", blank, dtype=T.INT32, destination_type="i32"))
    more = [low.value("counts", T.INT64, None)][: 2 - len(node.outputs)]
    e.out(
        "CTCGreedyDecoderSeqLen", *inputs, outputs=[*node.outputs, *more], merge_repeated=bool(filled(node)["merge_repeated"]),
        classes_index_type="i64", sequence_length_type="i64",
    )  # fmt: skip


@lifts("CTCLoss")
def lift_loss(layer: Layer, b: Builder) -> ir.Value:
    a = attributes(layer, preprocess_collapse_repeated=False, ctc_merge_repeated=True, unique=False)
    flags: dict[str, Any] = {"collapse_repeated": int(a.preprocess_collapse_repeated), "merge_repeated": int(a.ctc_merge_repeated), "unique": int(a.unique)}
    return b.ext("CTCLoss", *(operand(layer, i) for i in range(4)), optional(layer, 4), **flags)


@lowers("CTCLoss", domain="netconv")
def lower_loss(node: Node, low: Lowering) -> None:
    needs(low, "CTCLoss", 4)
    a = filled(node)
    collapse, merge, unique = (bool(a[k]) for k in ("collapse_repeated", "merge_repeated", "unique"))
    Emit(node, low).out("CTCLoss", *node.inputs, preprocess_collapse_repeated=collapse, ctc_merge_repeated=merge, unique=unique)


def _reduction(layer: Layer) -> str:
    found = str(attributes(layer, reduction="sum").reduction)
    if found not in ("sum", "mean"):
        raise MappingError(f"reduction={found!r} is not known", "R110")
    return found


@lifts("EmbeddingSegmentsSum")
def lift_segments(layer: Layer, b: Builder) -> ir.Value:
    attributes(layer)
    return b.ext("EmbeddingSegments", *(operand(layer, i) for i in range(4)), optional(layer, 4), optional(layer, 5))


@lowers("EmbeddingSegments", domain="netconv")
def lower_segments(node: Node, low: Lowering) -> None:
    needs(low, "EmbeddingSegmentsSum", 3)
    if filled(node)["reduction"] != "sum":
        raise MappingError("segments are summed, not averaged")
    _with_default(node, low, "EmbeddingSegmentsSum", 4)


def _with_default(node: Node, low: Lowering, kind: str, at: int, **attrs: Any) -> None:
    """Inputs whose default index stands at `at`; weights behind it need one: -1, which is none."""
    inputs, e = list(node.inputs), Emit(node, low)
    if node.input(at) is None and node.input(at + 1) is not None:
        inputs[at] = e.op("Convert", [-1], dtype=given(node, 1).dtype, destination_type=element_type.lower(int(given(node, 1).dtype or T.INT64)))
        inputs[at] = e.op("Reshape", inputs[at], [], special_zero=False)
    e.out(kind, *inputs, **attrs)


@lifts("EmbeddingBagPackedSum", "EmbeddingBagPacked")
def lift_packed(layer: Layer, b: Builder) -> ir.Value:
    return b.ext("EmbeddingBagPacked", operand(layer, 0), operand(layer, 1), optional(layer, 2), reduction=_reduction(layer))


@lifts("EmbeddingBagOffsetsSum", "EmbeddingBagOffsets")
def lift_offsets(layer: Layer, b: Builder) -> ir.Value:
    return b.ext("EmbeddingBagOffsets", *(operand(layer, i) for i in range(3)), optional(layer, 3), optional(layer, 4), reduction=_reduction(layer))


@lowers("EmbeddingBagPacked EmbeddingBagOffsets", domain="netconv")
def lower_bags(node: Node, low: Lowering) -> None:
    """Before opset15 an operation of its own, which sums."""
    reduction: str = filled(node)["reduction"]
    needs(low, node.op, 3 if reduction == "sum" else 15)
    attrs: dict[str, Any]
    kind, attrs = (node.op, {"reduction": reduction}) if low.version >= 15 else (f"{node.op}Sum", {})
    if node.op == "EmbeddingBagOffsets":
        _with_default(node, low, kind, 3, **attrs)
    else:
        Emit(node, low).out(kind, *node.inputs, **attrs)


@lifts("SegmentMax")
def lift_segment_max(layer: Layer, b: Builder) -> ir.Value:
    """Without a number of segments, as many as the last (the segments ascend)."""
    a, x, segments, count = attributes(layer, fill_mode=str), operand(layer, 0), operand(layer, 1), optional(layer, 2)
    if a.fill_mode not in ("zero", "lowest"):
        raise MappingError(f"fill_mode={a.fill_mode!r} is not known", "R110")
    return b.ext("SegmentMax", x, segments, count, fill=a.fill_mode, half=int(_declared_half(layer)))


def _declared_half(layer: Layer) -> bool:
    return layer.extra is not None and bool(layer.extra[0].outputs) and layer.extra[0].outputs[0].precision.upper() == "FP16"


@lowers("SegmentMax", domain="netconv")
def lower_segment_max(node: Node, low: Lowering) -> None:
    needs(low, "SegmentMax", 16)
    Emit(node, low).out("SegmentMax", *node.inputs, fill_mode=str(filled(node)["fill"]).upper())


@lifts("SparseFillEmptyRows")
def lift_fill(layer: Layer, b: Builder) -> list[ir.Value]:
    attributes(layer)
    return list(b.exts("FillEmptyRows", *(operand(layer, i) for i in range(4)), outputs=3))


@lowers("FillEmptyRows", domain="netconv")
def lower_fill(node: Node, low: Lowering) -> None:
    needs(low, "SparseFillEmptyRows", 16)
    more = [low.value("empty_rows", t, None) for t in (given(node, 2).dtype, given(node, 0).dtype, T.BOOL)][len(node.outputs) :]
    Emit(node, low).out("SparseFillEmptyRows", *node.inputs, outputs=[*node.outputs, *more])


@lifts("GroupedMatMul")
def lift_grouped(layer: Layer, b: Builder) -> ir.Value:
    attributes(layer)
    return b.ext("GroupedMatMul", operand(layer, 0), operand(layer, 1), optional(layer, 2))


@lowers("GroupedMatMul", domain="netconv")
def lower_grouped(node: Node, low: Lowering) -> None:
    needs(low, "GroupedMatMul", 17)
    Emit(node, low).out("GroupedMatMul", *node.inputs)
