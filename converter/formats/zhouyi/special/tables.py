"""Look-ups, segments, histograms, selections, decoding and colour."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.special.detection import declared, numbers
from converter.formats.zhouyi.special.register import choose, declared_types, lifts, lowers, need, need_int, need_number, operand, places, static
from converter.graph import EXTENSION_DOMAIN
from converter.graph.build import Builder
from converter.graph.sizes import arange
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node


@lifts("EmbeddingLookupSparse")
def lift_embedding(layer: Layer, b: Builder) -> ir.Value:
    if str(layer.attrs.get("max_norm", "NONE")).upper() != "NONE":
        raise MappingError("max_norm has no counterpart")
    combiner = choose(layer, "combiner", {c: c for c in ("MEAN", "SUM", "SQRTN")}, "MEAN")
    return b.ext(
        "EmbeddingLookupSparse",
        operand(layer),
        *(places(b, operand(layer, i)) for i in (1, 2)),
        operand(layer, 3),
        count=declared(layer, 0, 0),
        combiner=combiner,
    )


@lowers("EmbeddingLookupSparse", domain=EXTENSION_DOMAIN)
def lower_embedding(node: Node, low: Lowering) -> None:
    low.add("EmbeddingLookupSparse", node.inputs, node.outputs, {"combiner": node.attrs["combiner"], "max_norm": "NONE"})


@lifts("SegmentReduce")
def lift_segment(layer: Layer, b: Builder) -> ir.Value:
    choose(layer, "method", {"SUM": True})
    return b.ext("SegmentSum", operand(layer), operand(layer, 1), rows=declared(layer, 0, 0))


@lowers("SegmentSum", domain=EXTENSION_DOMAIN)
def lower_segment(node: Node, low: Lowering) -> None:
    low.add("SegmentReduce", node.inputs, node.outputs, {"method": "SUM"})


@lifts("Count")
def lift_count(layer: Layer, b: Builder) -> list[ir.Value]:
    attrs: dict[str, Any] = {"nbins": need_int(layer, "nbins"), "low": need_number(layer, "min"), "high": need_number(layer, "max")}
    x = operand(layer)
    x = b.op("Reshape", x, [static(x)[0], -1]) if len(static(x)) != 2 else x
    return declared_types(layer, b, [b.ext("Histogram", x, closed=int(bool(need(layer, "discrete", True))), **attrs)])


@lowers("Histogram", domain=EXTENSION_DOMAIN)
def lower_count(node: Node, low: Lowering) -> None:
    a = node.attrs
    attrs = {"nbins": int(a["nbins"]), "min": float(a["low"]), "max": float(a["high"]), "discrete": bool(a["closed"])}
    low.add("Count", node.inputs, node.outputs, attrs)


@lifts("AccidentalHits")
def lift_accidental_hits(layer: Layer, b: Builder) -> list[ir.Value]:
    return declared_types(layer, b, b.exts("AccidentalHits", operand(layer), operand(layer, 1), size=declared(layer, 0, 0), outputs=3))


@lowers("AccidentalHits", domain=EXTENSION_DOMAIN)
def lower_accidental_hits(node: Node, low: Lowering) -> None:
    low.add("AccidentalHits", node.inputs, node.outputs)


@lifts("Filter")
def lift_filter(layer: Layer, b: Builder) -> list[ir.Value]:
    """The selector is the last input."""
    *data, selector = [operand(layer, i) for i in range(len(layer.inputs))]
    if need_int(layer, "num", len(data)) != len(data):
        raise MappingError(f"num={layer.attrs['num']}, but {len(data)} tensors are selected from", "R105")
    return declared_types(layer, b, b.exts("FilterSlices", selector, *data, axis=need_int(layer, "axis", 0), outputs=len(data) + 1))


@lowers("FilterSlices", domain=EXTENSION_DOMAIN)
def lower_filter(node: Node, low: Lowering) -> None:
    selector, *data = node.inputs
    low.add("Filter", [*data, selector], node.outputs, {"num": len(data), "axis": int(node.attrs["axis"])})


@lifts("InTopK")
def lift_in_top_k(layer: Layer, b: Builder) -> ir.Value:
    return b.ext("InTopK", operand(layer), operand(layer, 1), k=need_int(layer, "k"))


@lowers("InTopK", domain=EXTENSION_DOMAIN)
def lower_in_top_k(node: Node, low: Lowering) -> None:
    low.add("InTopK", node.inputs, node.outputs, {"k": int(node.attrs["k"])})


@lifts("ZeroFraction")
def lift_zero_fraction(layer: Layer, b: Builder) -> ir.Value:
    x = operand(layer)
    zero = b.op("Cast", b.op("Equal", x, b.like(x, 0)), to=int(ir.DataType.FLOAT))
    return b.op("ReduceMean", zero, None, keepdims=0)


@lifts("CTCGreedyDecoder")
def lift_ctc(layer: Layer, b: Builder) -> list[ir.Value]:
    """Batch-major logits and the lengths of the sequences; the last class is the blank. The labels are filled up with -1."""
    x, lengths = operand(layer), operand(layer, 1)
    batch, time, _ = static(x)
    width = declared(layer, 0)
    steps = b.const(arange(time, dtype=np.float32).reshape(time, 1))
    mask = b.op("Cast", b.op("Less", steps, b.op("Cast", b.op("Reshape", lengths, [1, batch]), to=int(ir.DataType.FLOAT))), to=int(ir.DataType.FLOAT))
    merged = int(bool(need(layer, "merge_repeated", True)))
    found = b.ext("CTCGreedyDecoder", b.op("Transpose", x, perm=[1, 0, 2]), mask, ctc_merge_repeated=merged)
    padded = b.op("Pad", found, [0, 0, 0, 0, 0, width - time, 0, 0], b.like(found, -1))
    return declared_types(layer, b, [padded])


def _coefficient(layer: Layer) -> tuple[list[float], int]:
    values, shift = numbers(layer, "coefficient"), layer.attrs.get("coefficient_shift", 0)
    if len(values) != 15 or not isinstance(shift, int):
        raise MappingError(f"coefficient has {len(values)} numbers, 15 are needed", "R110")
    return values, int(shift)


FORMATS = {f: f for f in ("I420", "YV12", "NV12", "NV21")}


@lifts("RgbToYuv")
def lift_rgb(layer: Layer, b: Builder) -> list[ir.Value]:
    values, shift = _coefficient(layer)
    x = operand(layer)
    wide = x if x.dtype == ir.DataType.FLOAT else b.op("Cast", x, to=int(ir.DataType.FLOAT))
    return declared_types(layer, b, [b.ext("RgbToYuv", wide, coefficient=values, shift=shift, format=choose(layer, "format", FORMATS, "I420"))])


@lifts("YuvToRgb")
def lift_yuv(layer: Layer, b: Builder) -> list[ir.Value]:
    values, shift = _coefficient(layer)
    x = operand(layer)
    wide = x if x.dtype == ir.DataType.FLOAT else b.op("Cast", x, to=int(ir.DataType.FLOAT))
    size: dict[str, Any] = {"height": declared(layer, 0, 1), "width": declared(layer, 0, 2)}
    found = b.ext("YuvToRgb", wide, coefficient=values, shift=shift, format=choose(layer, "format", FORMATS, "I420"), **size)
    return declared_types(layer, b, [found])


@lowers("RgbToYuv", "YuvToRgb", domain=EXTENSION_DOMAIN)
def lower_colour(node: Node, low: Lowering) -> None:
    a = node.attrs
    attrs: dict[str, Any] = {"format": a["format"], "bits": 8, "conversion": "SELF", "coefficient": [float(v) for v in a["coefficient"]]}
    low.add(node.op, node.inputs, node.outputs, {**attrs, "coefficient_shift": int(a["shift"]), "shape": list(static(node.outputs[0]))})
