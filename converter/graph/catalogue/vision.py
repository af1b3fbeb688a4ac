"""Extension operators on images and feature maps. Layout N, C, spatial... unless declared
otherwise.
"""

from __future__ import annotations

from converter.graph.build import Builder, Value
from converter.graph.extensions import extension


@extension
def ShuffleChannels(b: Builder, x: Value, *, group: int) -> Value:
    """Interleave channels: x[N, group*m, ...] is viewed as [N, group, m, ...] and becomes [N,
    m*group, ...].

    Result: the shape of x. Source: OpenVINO, ShuffleChannels-1 with axis 1.
    """
    rank = x.shape.rank() if x.shape is not None else 4
    shape = b.Shape(x)
    spatial = shape[2:rank]
    split = b.Concat([0, group, -1], spatial, axis=0)
    grouped = b.Reshape(x, split)
    swapped = b.Transpose(grouped, perm=[0, 2, 1, *range(3, rank + 1)])
    return b.Reshape(swapped, shape)
