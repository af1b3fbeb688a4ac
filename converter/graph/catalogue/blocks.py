"""Extension operators that move blocks of height and width to and from the batch."""

from __future__ import annotations

from converter.graph.build import Builder, Value
from converter.graph.demands import of_counts, of_length
from converter.graph.extensions import extension
from converter.graph.sizes import static


@extension(x=4)
def BatchToSpace(b: Builder, x: Value, *, block_size: list[int]) -> Value:
    """[bh*bw*N, C, H, W] -> [N, C, H*bh, W*bw]; the block's offsets are the slower axes of the
    batch.

    block_size: (bh, bw). Source: NNAPI, BATCH_TO_SPACE_ND.
    """
    of_counts(2, block_size=block_size)
    bh, bw = block_size
    n, c, h, w = static(x)
    y = b.Transpose(b.Reshape(x, [bh, bw, n // (bh * bw), c, h, w]), perm=[2, 3, 4, 0, 5, 1])
    return b.Reshape(y, [n // (bh * bw), c, h * bh, w * bw])


@extension(x=4)
def SpaceToBatch(b: Builder, x: Value, *, block_size: list[int], pads: list[int]) -> Value:
    """Pad height and width with zeros ([top, left, bottom, right]), then [N, C, H*bh, W*bw] ->
    [bh*bw*N, C, H, W].

    block_size: (bh, bw). Source: NNAPI, SPACE_TO_BATCH_ND.
    """
    of_counts(2, block_size=block_size)
    of_length(4, pads=pads)
    (bh, bw), (top, left, bottom, right) = block_size, pads
    x = b.Pad(x, [0, 0, top, left, 0, 0, bottom, right])
    n, c, h, w = static(x)
    y = b.Transpose(b.Reshape(x, [n, c, h // bh, bh, w // bw, bw]), perm=[3, 5, 0, 1, 2, 4])
    return b.Reshape(y, [n * bh * bw, c, h // bh, w // bw])
