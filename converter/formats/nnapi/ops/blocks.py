"""Operations that move blocks between space, channels and batch."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.nnapi.ops.args import Args, lifts
from converter.formats.nnapi.ops.emit import Emit, lowers
from converter.formats.nnapi.ops.shapes import axis
from converter.graph import EXTENSION_DOMAIN
from converter.graph.infer import shape_of
from converter.mapping.node import MappingError


@lifts("DEPTH_TO_SPACE")
def depth_to_space(a: Args) -> ir.Value:
    return a.twin("DepthToSpace", a.real("input"), blocksize=a.integer("block_size"), mode="DCR")


@lifts("SPACE_TO_DEPTH")
def space_to_depth(a: Args) -> ir.Value:
    return a.twin("SpaceToDepth", a.real("input"), blocksize=a.integer("block_size"))


@lifts("CHANNEL_SHUFFLE")
def channel_shuffle(a: Args) -> ir.Value:
    """Axis size = groups * m; seen as [groups, m] and transposed."""
    shape, i, groups = list(a.shape()), axis(a), a.integer("groups")
    if i == len(shape) - 1 and len(shape) == 4:
        return a.twin("ShuffleChannels", a.real("input"), extension=True, group=groups)
    split_ = a.b.op("Reshape", a.real("input"), [*shape[:i], groups, shape[i] // groups, *shape[i + 1 :]])
    order = [*range(i), i + 1, i, *range(i + 2, len(shape) + 1)]
    return a.b.op("Reshape", a.b.op("Transpose", split_, perm=order), shape)


def first_layout(a: Args, x: ir.Value) -> ir.Value:
    return x if a.domain == "" else a.b.op("Transpose", x, perm=[0, 3, 1, 2])


def own_layout(a: Args, x: ir.Value) -> ir.Value:
    return x if a.domain == "" else a.b.op("Transpose", x, perm=[0, 2, 3, 1])


def static(x: ir.Value) -> tuple[int, ...]:
    shape = shape_of(x)
    if shape is None:
        raise MappingError("the shape must be static", "X203")
    return shape


@lifts("BATCH_TO_SPACE_ND")
def batch_to_space(a: Args) -> ir.Value:
    """[bh*bw*N, C, H, W] -> [N, C, H*bh, W*bw]."""
    bh, bw = a.ints("block_sizes")
    x = first_layout(a, a.real("input"))
    n, c, h, w = static(x)
    y = a.b.op("Transpose", a.b.op("Reshape", x, [bh, bw, n // (bh * bw), c, h, w]), perm=[2, 3, 4, 0, 5, 1])
    return own_layout(a, a.b.op("Reshape", y, [n // (bh * bw), c, h * bh, w * bw]))


@lifts("SPACE_TO_BATCH_ND")
def space_to_batch(a: Args) -> ir.Value:
    """Pads height and width, then [N, C, H*bh, W*bw] -> [bh*bw*N, C, H, W]."""
    (bh, bw), ((top, bottom), (left, right)) = a.ints("block_sizes"), a.array("paddings").reshape(2, 2).tolist()
    x = a.b.op("Pad", first_layout(a, a.real("input")), [0, 0, top, left, 0, 0, bottom, right])
    n, c, h, w = static(x)
    y = a.b.op("Transpose", a.b.op("Reshape", x, [n, c, h // bh, bh, w // bw, bw]), perm=[3, 5, 0, 1, 2, 4])
    return own_layout(a, a.b.op("Reshape", y, [n * bh * bw, c, h // bh, w // bw]))


@lowers("DepthToSpace", "SpaceToDepth")
def lower_blocks(e: Emit) -> None:
    if e.op == "DepthToSpace" and e.attrs["mode"] != "DCR":
        raise MappingError("the channels of a block come first there")
    x = e.image()
    kind = "DEPTH_TO_SPACE" if e.op == "DepthToSpace" else "SPACE_TO_DEPTH"
    e.put(kind, e.result(image=True), input=x, block_size=e.attrs["blocksize"])


@lowers("ShuffleChannels", domain=EXTENSION_DOMAIN)
def lower_shuffle(e: Emit) -> None:
    x = e.image()
    e.put("CHANNEL_SHUFFLE", e.result(image=True), input=x, groups=e.attrs["group"], axis=3)
