"""Rows of layers that only move data: axes, pieces, indices, blocks."""

from __future__ import annotations

import numpy as np

from converter.formats.zhouyi.ops.fields import axis, word
from converter.mapping.fields import Attr, Const, Group, Guard
from converter.mapping.node import Layer, MappingError
from converter.mapping.table import op

SQUARE = Group(
    ("blocksize",),
    ("block_size_x", "block_size_y"),
    lambda far, near: {"blocksize": _square(far)},
    lambda near, far: {"block_size_x": int(near.attrs["blocksize"]), "block_size_y": int(near.attrs["blocksize"])},
)


def _square(far: Layer) -> int:
    x, y = far.attrs["block_size_x"], far.attrs["block_size_y"]
    if x != y:
        raise MappingError(f"blocks of {y} x {x} are not square", "X202")
    return int(x)


ROWS = [
    op("Transpose", "Transpose", Attr("perm", "perm"), lift_only=True),
    op("Concat", "Concat", axis(), given="2,3 2,3"),
    op("Tile", "Tile", Const(1, "repeats", dtype=np.int64), given="2,3 =2"),
    op("GatherElements", "GatherElements", axis(default=0), given="2,3 2,3"),
    op("DepthToSpace", "DepthToSpace", SQUARE, word("mode", "mode", {"DCR": "DCR", "CRD": "CRD"}, far_default="DCR"), given="1,8,2,2"),
    op("SpaceToDepth", "SpaceToDepth", SQUARE, given="1,2,4,4"),
    op("ReverseSequence", "ReverseSequence", Attr("batch_axis", "batch_axis", far_default=1), Attr("time_axis", "time_axis", far_default=0), given="3,2 2"),
    op(
        "Compress", "Compress", axis(), Guard("without an axis the data are flattened first", lower_if=lambda near: near.attrs.get("axis") is not None),
    ),
]  # fmt: skip
