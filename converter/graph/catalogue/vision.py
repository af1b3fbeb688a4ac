"""Extension operators on images and feature maps. Layout N, C, spatial... unless said otherwise."""

from __future__ import annotations

import onnx_ir as ir

from converter.graph.build import Builder
from converter.graph.extensions import extension


@extension
def ShuffleChannels(b: Builder, x: ir.Value, *, group: int) -> ir.Value:
    """Interleaves channels: x[N, group*m, ...] is seen as [N, group, m, ...] and becomes [N, m*group, ...]."""
    rank = x.shape.rank() if x.shape is not None else 4
    shape = b.op("Shape", x)
    spatial = b.op("Slice", shape, [2], [rank])
    split = b.op("Concat", [0, group, -1], spatial, axis=0)
    grouped = b.op("Reshape", x, split)
    swapped = b.op("Transpose", grouped, perm=[0, 2, 1, *range(3, rank + 1)])
    return b.op("Reshape", swapped, shape)
