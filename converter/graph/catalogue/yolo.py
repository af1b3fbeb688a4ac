"""Operators of the Darknet family and the greedy decoder of CTC."""

from __future__ import annotations

from collections.abc import Sequence

from converter.errors import MappingError
from converter.graph.build import Builder, Value
from converter.graph.catalogue.sequences import changes, move_to_front
from converter.graph.demands import at_least
from converter.graph.extensions import extension
from converter.graph.sizes import static
from converter.graph.value import FLOAT


@extension
def RegionYolo(
    b: Builder,
    x: Value,
    *,
    coords: int = 4,
    classes: int,
    num: int,
    do_softmax: int = 1,
    mask: Sequence[int] = (),
    axis: int = 1,
    end_axis: int = 3,
) -> Value:
    """YOLO's last activation on x[N, regions*(coords+1+classes), H, W].

    The first two coordinates and the objectness get a sigmoid; the classes a softmax (do_softmax,
    `num` regions, result flattened from `axis` to `end_axis`) or sigmoids (as many regions as
    `mask` names, result [N, regions*(coords+1+classes), H, W]). Source: OpenVINO, RegionYolo-1.
    """
    regions = num if do_softmax else len(mask)
    split = b.Reshape(
        x,
        b.Concat(b.Shape(x)[:1], [regions, coords + 1 + classes], _spatial(b, x), axis=0),
    )
    xy, rest, obj, cls = b.Split(split, [2, coords - 2, 1, classes], outputs=4, axis=2)
    scores = b.Softmax(cls, axis=2) if do_softmax else b.Sigmoid(cls)
    joined = b.Concat(b.Sigmoid(xy), rest, b.Sigmoid(obj), scores, axis=2)
    result = b.Reshape(joined, b.Concat(b.Shape(x)[:1], [-1], _spatial(b, x), axis=0))
    if not do_softmax:
        return result
    end = end_axis % 4 + 1
    shape = b.Shape(result)
    return b.Reshape(result, b.Concat(shape[: axis % 4], [-1], shape[end:4], axis=0))


def _spatial(b: Builder, x: Value) -> Value:
    return b.Shape(x)[2:4]


@extension(x=4)
def ReorgYolo(b: Builder, x: Value, *, stride: int) -> Value:
    """Darknet's reorg: [N, C, H, W] -> [N, C*s*s, H/s, W/s].

    The buffer of x is reinterpreted as [N, C/(s*s), H*s, W*s] and split into s x s blocks; this is
    Darknet's arithmetic, not a space-to-depth of x. Source: OpenVINO, ReorgYolo-1.
    """
    at_least(1, stride=stride)
    n, c, h, w = static(x)
    blocks = b.Reshape(x, [n, c // (stride * stride), h, stride, w, stride])
    return b.Reshape(
        b.Transpose(blocks, perm=[0, 3, 5, 1, 2, 4]),
        [n, c * stride * stride, h // stride, w // stride],
    )


@extension(logits=3, mask=2)
def CTCGreedyDecoder(
    b: Builder, logits: Value, mask: Value, *, ctc_merge_repeated: int = 1
) -> Value:
    """Best path of logits[T, N, C]: the labels without blanks (C-1) and, if merged, without
    repetitions: [N, T, 1, 1], padded with -1.

    `mask`[T, N]: a sequence ends before its first 0. Source: OpenVINO, CTCGreedyDecoder-1.
    """
    shape = logits.shape
    if shape is None or not isinstance(shape[2], int):
        raise MappingError("CTCGreedyDecoder needs the number of classes", "X203")
    label = b.Transpose(b.ArgMax(logits, axis=2, keepdims=0), perm=[1, 0])  # [N, T]
    ended = b.Cast(b.Equal(b.Transpose(mask, perm=[1, 0]), 0), to=FLOAT)
    keep = b.Equal(b.CumSum(ended, 1), 0.0) & (label < shape[2] - 1)
    if ctc_merge_repeated:
        keep = keep & changes(b, label)
    result = move_to_front(b, b.Cast(label, to=FLOAT), keep, -1)[:, :, None, None]
    return result if logits.dtype in (None, FLOAT) else b.CastLike(result, logits)
