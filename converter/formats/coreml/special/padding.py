"""Padding and cropping."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.coreml.blobs import dims, floats, ints, operand, rank
from converter.formats.coreml.special.convolution import borders
from converter.formats.coreml.special.registry import lifts
from converter.graph.build import Builder
from converter.mapping.node import Layer, MappingError

Value = ir.Value


@lifts("padding")
def lift_padding(layer: Layer, b: Builder) -> Value:
    """The last two axes; reflection does not repeat the edge."""
    p, x = layer.attrs, floats(b, operand(layer))
    top, left, bottom, right = borders(p.get("paddingAmounts"))
    lead = [0] * (rank(x, 2) - 2)
    pads = [*lead, top, left, *lead, bottom, right]
    if "reflection" in p:
        return b.op("Pad", x, pads, mode="reflect")
    if "replication" in p:
        return b.op("Pad", x, pads, mode="edge")
    return b.op("Pad", x, pads, float(p.get("constant", {}).get("value", 0.0)))


@lifts("constantPad")
def lift_constant_pad(layer: Layer, b: Builder) -> Value:
    """Amounts [before0, after0, before1, ..]: an attribute or, flattened, the second input."""
    p, x = layer.attrs, floats(b, operand(layer))
    value = float(p["value"])
    r = rank(x)
    if len(layer.inputs) > 1:
        pairs = b.op("Reshape", ints(b, operand(layer, 1)), [r, 2])
        if p["padToGivenOutputSizeMode"]:
            missing = b.op("Max", b.op("Sub", pairs, b.op("Unsqueeze", b.op("Shape", x), [1])), 0)
            pairs = b.op("Where", b.op("Greater", pairs, 0), missing, 0)
        return b.op("Pad", x, b.op("Reshape", b.op("Transpose", pairs, perm=[1, 0]), [-1]), value)
    amounts = [int(a) for a in p["padAmounts"]]
    if len(amounts) != 2 * r:
        raise MappingError(f"{len(amounts)} amounts for {r} axes (2 for each)", "R110")
    before, after = amounts[::2], amounts[1::2]
    if p["padToGivenOutputSizeMode"]:
        before, after = _to_size(before, dims(x)), _to_size(after, dims(x))
    return b.op("Pad", x, [*before, *after], value)


def _to_size(targets: list[int], size: list[int | None]) -> list[int]:
    """Amounts that reach the given sizes; 0 means no padding on that side."""
    if any(t and n is None for t, n in zip(targets, size, strict=True)):
        raise MappingError("padding to an output size needs static shapes", "X203", "fix the inputs with --inputs")
    return [max(0, t - int(n or 0)) if t else 0 for t, n in zip(targets, size, strict=True)]


@lifts("crop")
def lift_crop(layer: Layer, b: Builder) -> Value:
    """One input: borders are cut off. Two inputs: the first is cut to height and width of the second, from `offset` on."""
    p, x = layer.attrs, operand(layer)
    r = rank(x, 2)
    if len(layer.inputs) < 2:
        top, left, bottom, right = borders(p.get("cropAmounts"))
        last = np.iinfo(np.int64).max
        return b.op("Slice", x, [top, left], [-bottom if bottom else last, -right if right else last], [r - 2, r - 1])
    offset = [int(o) for o in p["offset"]] or [0, 0]
    like = operand(layer, 1)
    size = dims(like)[-2:]
    if None not in size:
        return b.op("Slice", x, offset, [o + int(n or 0) for o, n in zip(offset, size, strict=True)], [r - 2, r - 1])
    ends = b.op("Add", b.op("Shape", like, start=rank(like) - 2), offset)
    return b.op("Slice", x, offset, ends, [r - 2, r - 1])
