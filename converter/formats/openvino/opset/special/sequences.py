"""Decoding of sequences, embeddings, segments."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.fields import element_type
from converter.formats.openvino.opset.special.base import Emit, attributes, cast, dim, filled, given, int64, is_float, lifts, lowers, operand, optional, rank
from converter.graph.build import Builder
from converter.graph.infer import known
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
    e = Emit(node, low)
    if low.version < 6:
        raise MappingError("CTCGreedyDecoderSeqLen needs opset6", "X206")
    blank = node.input(2)
    inputs = [given(node, 0), e.op("Convert", node.input(1), dtype=T.INT32, destination_type="i32")]
    if blank is not None:
        inputs.append(e.op("Convert", blank, dtype=T.INT32, destination_type="i32"))
    more = [low.value("counts", T.INT64, None)][: 2 - len(node.outputs)]
    e.out(
        "CTCGreedyDecoderSeqLen", *inputs, outputs=[*node.outputs, *more], merge_repeated=bool(filled(node)["merge_repeated"]),
        classes_index_type="i64", sequence_length_type="i64",
    )  # fmt: skip


def _reduction(layer: Layer) -> str:
    found = str(attributes(layer, reduction="sum").reduction)
    if found not in ("sum", "mean"):
        raise MappingError(f"reduction={found!r} is not known", "R110")
    return found


@lifts("EmbeddingSegmentsSum")
def lift_segments(layer: Layer, b: Builder) -> ir.Value:
    attributes(layer)
    return b.ext("EmbeddingSegments", *(operand(layer, i) for i in range(4)), optional(layer, 4), optional(layer, 5))


@lifts("EmbeddingBagPackedSum", "EmbeddingBagPacked")
def lift_packed(layer: Layer, b: Builder) -> ir.Value:
    """indices [B, N]: every row is a bag."""
    table, indices, weights = operand(layer, 0), int64(b, operand(layer, 1)), optional(layer, 2)
    rows = b.op("Gather", table, indices, axis=0)
    if weights is not None:
        rows = b.op("Mul", rows, b.op("Unsqueeze", weights, list(range(2, rank(table) + 1))))
    return b.op("ReduceSum" if _reduction(layer) == "sum" else "ReduceMean", rows, [1], keepdims=0)


@lifts("EmbeddingBagOffsetsSum", "EmbeddingBagOffsets")
def lift_offsets(layer: Layer, b: Builder) -> ir.Value:
    """offsets [B] say where each bag begins; the default index fills empty bags unless it is -1."""
    table, indices, offsets = operand(layer, 0), operand(layer, 1), int64(b, operand(layer, 2))
    size = dim(indices, 0)
    if size is None:
        raise MappingError("the number of indices must be static", "X203")
    numbers = b.const(np.arange(size)[:, None])
    started = b.op("Cast", b.op("GreaterOrEqual", numbers, b.op("Unsqueeze", offsets, [0])), to=int(T.INT64))
    segments = b.op("Sub", b.op("ReduceSum", started, [1], keepdims=0), [1])
    return b.ext("EmbeddingSegments", table, indices, segments, b.op("Shape", offsets), optional(layer, 3), optional(layer, 4), reduction=_reduction(layer))


@lifts("SegmentMax")
def lift_segment_max(layer: Layer, b: Builder) -> ir.Value:
    a, x, segments, count = attributes(layer, fill_mode=str), operand(layer, 0), operand(layer, 1), optional(layer, 2)
    if a.fill_mode not in ("zero", "lowest"):
        raise MappingError(f"fill_mode={a.fill_mode!r} is not known", "R110")
    if count is None:
        count = b.op("Add", b.op("Slice", int64(b, segments), [-1], [np.iinfo(np.int64).max], [0]), [1])
    elif (size := known(count)) is None or (listed := known(segments)) is None or np.max(listed, initial=-1) >= size.reshape(-1)[0]:
        raise MappingError("segments beyond the number of segments cannot be ruled out")
    return b.ext("SegmentMax", x, segments, count, fill=a.fill_mode)


@lifts("NV12toRGB", "NV12toBGR", "I420toRGB", "I420toBGR")
def lift_colour(layer: Layer, b: Builder) -> ir.Value:
    """BT.601 with limited range; the planes below each other in one input, or one input for each."""
    planes = [v for v in layer.inputs if v is not None]
    dtype = planes[0].dtype or T.FLOAT
    wide = [b.op("Cast", v, to=int(T.FLOAT)) for v in planes]
    interleaved = layer.kind.startswith("NV12")
    luma, u, v = _whole(b, wide[0], interleaved) if len(wide) == 1 else _separate(b, wide, interleaved)
    c = b.op("Mul", b.op("Sub", luma, np.float32(16)), np.float32(1.164))
    d, e = b.op("Sub", u, np.float32(128)), b.op("Sub", v, np.float32(128))
    red = b.op("Add", c, b.op("Mul", e, np.float32(1.596)))
    green = b.op("Sub", b.op("Sub", c, b.op("Mul", e, np.float32(0.813))), b.op("Mul", d, np.float32(0.391)))
    blue = b.op("Add", c, b.op("Mul", d, np.float32(2.018)))
    order = (red, green, blue) if layer.kind.endswith("RGB") else (blue, green, red)
    image = b.op("Clip", b.op("Concat", *order, axis=3), np.float32(0), np.float32(255))
    return b.op("Cast", image if is_float(planes[0]) else b.op("Round", image), to=int(dtype))


def _twice(b: Builder, plane: ir.Value) -> ir.Value:
    """[N, h, w, 1] -> [N, 2h, 2w, 1], every value four times."""
    return b.op("Resize", plane, None, np.array([1, 2, 2, 1], np.float32), mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def _separate(b: Builder, planes: list[ir.Value], interleaved: bool) -> list[ir.Value]:
    chroma = list(b.ops("Split", planes[1], [1, 1], axis=3, outputs=2)) if interleaved else planes[1:]
    return [planes[0], *(_twice(b, p) for p in chroma)]


def _whole(b: Builder, x: ir.Value, interleaved: bool) -> list[ir.Value]:
    rows, width, batch = dim(x, 1), dim(x, 2), dim(x, 0)
    if rows is None or width is None or batch is None:
        raise MappingError("the image's size must be static", "X203")
    height = rows * 2 // 3
    luma, rest = b.op("Slice", x, [0], [height], [1]), b.op("Slice", x, [height], [rows], [1])
    if interleaved:
        pairs = b.op("Reshape", rest, [batch, height // 2, width // 2, 2])
        return [luma, *(_twice(b, p) for p in b.ops("Split", pairs, [1, 1], axis=3, outputs=2))]
    both = b.op("Reshape", rest, [batch, 2, height // 2, width // 2])
    return [luma, *(_twice(b, b.op("Reshape", p, [batch, height // 2, width // 2, 1])) for p in b.ops("Split", both, [1, 1], axis=1, outputs=2))]
