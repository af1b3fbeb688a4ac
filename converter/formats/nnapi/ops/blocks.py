"""Operations that move blocks between space, channels and batch."""

from __future__ import annotations

import onnx_ir as ir

from converter.formats.nnapi.ops.args import Args, lifts
from converter.formats.nnapi.ops.emit import Emit, lowers
from converter.formats.nnapi.ops.shapes import axis
from converter.graph import EXTENSION_DOMAIN
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


@lifts("BATCH_TO_SPACE_ND")
def batch_to_space(a: Args) -> ir.Value:
    return a.twin("BatchToSpace", a.real("input"), extension=True, block_size=a.ints("block_sizes"))


@lowers("BatchToSpace", domain=EXTENSION_DOMAIN)
def lower_batch_to_space(e: Emit) -> None:
    x = e.image()
    e.put("BATCH_TO_SPACE_ND", e.result(image=True), input=x, block_sizes=e.attrs["block_size"])


@lifts("SPACE_TO_BATCH_ND")
def space_to_batch(a: Args) -> ir.Value:
    (top, bottom), (left, right) = a.array("paddings").reshape(2, 2).tolist()
    return a.twin("SpaceToBatch", a.real("input"), extension=True, block_size=a.ints("block_sizes"), pads=[top, left, bottom, right])


@lowers("SpaceToBatch", domain=EXTENSION_DOMAIN)
def lower_space_to_batch(e: Emit) -> None:
    top, left, bottom, right = e.attrs["pads"]
    x = e.image()
    e.put("SPACE_TO_BATCH_ND", e.result(image=True), input=x, block_sizes=e.attrs["block_size"], paddings=[[top, bottom], [left, right]])


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
