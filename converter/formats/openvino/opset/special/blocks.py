"""Moving space into channels, batch or patches and back."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from converter.formats.openvino.opset.fields import explicit_pads
from converter.formats.openvino.opset.special.base import Emit, attributes, filled, ints, lifts, lowers, near_axis, operand, rank, static
from converter.graph.build import Builder
from converter.mapping.drive import Lowering
from converter.mapping.node import Layer, MappingError, Node

MODES = {"blocks_first": "DCR", "depth_first": "CRD"}


@lifts("DepthToSpace")
def lift_depth_to_space(layer: Layer, b: Builder) -> ir.Value:
    a, x = attributes(layer, block_size=1, mode=str), operand(layer, 0)
    if a.mode not in MODES:
        raise MappingError(f"mode={a.mode!r} is not known", "R110")
    if rank(x) == 4:
        return b.op("DepthToSpace", x, blocksize=a.block_size, mode=MODES[a.mode])
    shape = static(x)
    n, size = len(shape) - 2, a.block_size
    depth = shape[1] // size**n
    if a.mode == "blocks_first":  # N, b.., c, d..
        y = b.op("Reshape", x, [shape[0], *[size] * n, depth, *shape[2:]])
        first, channel = 1, n + 1
    else:  # N, c, b.., d..
        y = b.op("Reshape", x, [shape[0], depth, *[size] * n, *shape[2:]])
        first, channel = 2, 1
    perm = [0, channel, *(v for i in range(n) for v in (n + 2 + i, first + i))]
    return b.op("Reshape", b.op("Transpose", y, perm=perm), [shape[0], depth, *(d * size for d in shape[2:])])


@lowers("DepthToSpace")
def lower_depth_to_space(node: Node, low: Lowering) -> None:
    a = filled(node)
    mode = {v: k for k, v in MODES.items()}[a["mode"]]
    Emit(node, low).out("DepthToSpace", node.input(0), block_size=a["blocksize"], mode=mode)


@lifts("SpaceToDepth")
def lift_space_to_depth(layer: Layer, b: Builder) -> ir.Value:
    a, x = attributes(layer, block_size=1, mode=str), operand(layer, 0)
    if a.mode not in MODES:
        raise MappingError(f"mode={a.mode!r} is not known", "R110")
    if rank(x) == 4 and a.mode == "blocks_first":
        return b.op("SpaceToDepth", x, blocksize=a.block_size)
    shape = static(x)
    n, size = len(shape) - 2, a.block_size
    y = b.op("Reshape", x, [*shape[:2], *(v for d in shape[2:] for v in (d // size, size))])
    outer, inner = [2 + 2 * i for i in range(n)], [3 + 2 * i for i in range(n)]
    perm = [0, *inner, 1, *outer] if a.mode == "blocks_first" else [0, 1, *inner, *outer]
    return b.op("Reshape", b.op("Transpose", y, perm=perm), [shape[0], shape[1] * size**n, *(d // size for d in shape[2:])])


@lowers("SpaceToDepth")
def lower_space_to_depth(node: Node, low: Lowering) -> None:
    Emit(node, low).out("SpaceToDepth", node.input(0), block_size=node.attrs["blocksize"], mode="blocks_first")


@lifts("ShuffleChannels")
def lift_shuffle(layer: Layer, b: Builder) -> ir.Value:
    a, x = attributes(layer, axis=1, group=1), operand(layer, 0)
    axis = near_axis(a.axis, rank(x))
    if axis == 1:
        return b.ext("ShuffleChannels", x, group=a.group)
    shape = static(x)
    y = b.op("Reshape", x, [*shape[:axis], a.group, shape[axis] // a.group, *shape[axis + 1 :]])
    perm = [*range(axis), axis + 1, axis, *range(axis + 2, len(shape) + 1)]
    return b.op("Reshape", b.op("Transpose", y, perm=perm), list(shape))


@lowers("ShuffleChannels", domain="netconv")
def lower_shuffle(node: Node, low: Lowering) -> None:
    Emit(node, low).out("ShuffleChannels", node.input(0), axis=1, group=node.attrs["group"])


@lifts("SpaceToBatch")
def lift_space_to_batch(layer: Layer, b: Builder) -> ir.Value:
    """(data, block, pads_begin, pads_end): padded, cut in blocks, the places in the block go to the batch in front."""
    x, block = operand(layer, 0), ints(operand(layer, 1), "the block shape")
    begin, end = ints(operand(layer, 2), "the padding"), ints(operand(layer, 3), "the padding")
    if any(begin) or any(end):
        x = b.op("Pad", x, [*begin, *end])
    shape, n = static(x), len(block)
    y = b.op("Reshape", x, [v for d, s in zip(shape, block, strict=True) for v in (d // s, s)])
    perm = [*(2 * i + 1 for i in range(n)), *(2 * i for i in range(n))]
    size = [shape[0] // block[0] * int(np.prod(block)), *(d // s for d, s in zip(shape[1:], block[1:], strict=True))]
    return b.op("Reshape", b.op("Transpose", y, perm=perm), size)


@lifts("BatchToSpace")
def lift_batch_to_space(layer: Layer, b: Builder) -> ir.Value:
    x, block = operand(layer, 0), ints(operand(layer, 1), "the block shape")
    begin, end = ints(operand(layer, 2), "the crops"), ints(operand(layer, 3), "the crops")
    shape, n = static(x), len(block)
    batch = shape[0] // int(np.prod(block))
    y = b.op("Reshape", x, [*block, batch, *shape[1:]])
    perm = [v for i in range(n) for v in (n + i, i)]
    size = [d * s for d, s in zip((batch, *shape[1:]), block, strict=True)]
    y = b.op("Reshape", b.op("Transpose", y, perm=perm), size)
    if not any(begin) and not any(end):
        return y
    return b.op("Slice", y, begin, [d - e for d, e in zip(size, end, strict=True)], list(range(n)))


@lifts("ExtractImagePatches")
def lift_patches(layer: Layer, b: Builder) -> ir.Value:
    """Each output position holds the whole window: channels are (row, column, channel) of the window."""
    a, x = attributes(layer, sizes=list, strides=list, rates=list, auto_pad=str), operand(layer, 0)
    size = [int(d) for d in static(x)[2:]]
    pads = explicit_pads(a.auto_pad, size, a.sizes, a.strides, a.rates)
    if any(pads):
        x = b.op("Pad", x, [0, 0, *pads[:2], 0, 0, *pads[2:]])
    full = static(x)[2:]
    out = [(f - (k - 1) * r - 1) // s + 1 for f, k, r, s in zip(full, a.sizes, a.rates, a.strides, strict=True)]
    if min(out) <= 0:
        raise MappingError("the window is larger than the image", "R105")
    parts = []
    for i in range(a.sizes[0]):
        for j in range(a.sizes[1]):
            start = [i * a.rates[0], j * a.rates[1]]
            stop = [p + (o - 1) * s + 1 for p, o, s in zip(start, out, a.strides, strict=True)]
            parts.append(b.op("Slice", x, start, stop, [2, 3], a.strides))
    return b.op("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
