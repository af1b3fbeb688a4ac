"""Selections of fixed size: selected elements are moved to the front, the rest is filled."""

from __future__ import annotations

import numpy as np

from converter.graph.build import Builder, Value, writing
from converter.graph.demands import at_least, not_zero
from converter.graph.extensions import extension
from converter.graph.sizes import arange, demand_small, static
from converter.graph.value import FLOAT, INT64


@writing
def first_true_indices(b: Builder, mask: Value, count: int) -> tuple[Value, Value]:
    """Return the indices of the first `count` true elements of mask[b, n] in order, int64 [b,
    count], and which of these are valid.
    """
    n = static(mask, "the mask", axes=2)[1]
    key = b.Cast(mask, to=FLOAT) * b.const(arange(n, 0, -1, dtype=np.float32))
    if count > n:
        key = b.Pad(key, [0, 0, 0, count - n])
    top, positions = b.TopK(key, [count], axis=1, outputs=2)
    return b.Where(top > 0.0, positions, 0), top > 0.0


@writing
def take(b: Builder, data: Value, positions: Value, real: Value, fill: float = 0.0) -> Value:
    """Return data[b, n] or data[b, n, d] at the indices `positions`, or `fill` if these are not
    valid.
    """
    shape = static(data)
    if len(shape) == 3:
        index = b.Expand(positions[:, :, None], [shape[0], static(positions)[1], shape[2]])
        return b.Where(real[:, :, None], b.GatherElements(data, index, axis=1), fill)
    return b.Where(real, b.GatherElements(data, positions, axis=1), fill)


@writing
def total(b: Builder, mask: Value, most: int, *, keepdims: int = 0) -> Value:
    """Return the number of true elements of mask[b, n], int64, at most `most`."""
    count = b.ReduceSum(b.Cast(mask, to=INT64), [1], keepdims=keepdims)
    return b.Min(count, most)


@extension(x=3)
def GetValidCount(
    b: Builder, x: Value, *, score_threshold: float, score_index: int = 1, id_index: int = -1
) -> tuple[Value, Value, Value]:
    """Move rows of x[b, n, d] with a score above the threshold (and a non-negative id) to the
    front, followed by -1.

    Results: their number [b] int64, the rows [b, n, d], their indices [b, n] int64.
    """
    n = static(x)[1]
    mask = b.Gather(x, np.array(score_index), axis=2) > score_threshold
    if id_index >= 0:
        mask = mask & (b.Gather(x, np.array(id_index), axis=2) >= 0)
    positions, real = first_true_indices(b, mask, n)
    return (
        total(b, mask, n),
        take(b, x, positions, real, -1.0),
        b.Where(real, positions, -1),
    )


@extension(selector=1)
def FilterSlices(b: Builder, selector: Value, *data: Value, axis: int) -> tuple[Value, ...]:
    """Move the slices along `axis` of each of `data` for which selector[n] is not 0 to the front,
    followed by zeros; the last result is their number, int64 scalar.
    """
    n = static(selector)[0]
    mask = ~b.Equal(b.Reshape(selector, [1, n]), 0)
    positions, real = first_true_indices(b, mask, n)
    flat = b.Reshape(positions, [n])
    results = []
    for x in data:
        rank = len(static(x))
        kept = b.Reshape(real, [n if i == axis % rank else 1 for i in range(rank)])
        results.append(b.Where(kept, b.Gather(x, flat, axis=axis), 0))
    return (*results, b.Reshape(total(b, mask, n), []))


@extension(true_classes=2, sampled=1)
def AccidentalHits(
    b: Builder, true_classes: Value, sampled: Value, *, size: int
) -> tuple[Value, Value, Value]:
    """Find the pairs for which sampled[s] equals true_classes[r, t]: rows r and indices in
    `sampled`, row by row, padded with 0 to `size`; and their number [1]. int64.
    """
    rows, trues = static(true_classes)
    samples = static(sampled)[0]
    hits = b.Equal(true_classes[:, :, None], b.Reshape(sampled, [1, 1, samples]))
    mask = b.Reshape(hits, [1, rows * trues * samples])
    positions, real = first_true_indices(b, mask, size)
    zero = b.const(np.array(0, np.int64))
    row = b.Where(real, positions / (trues * samples), zero)
    column = b.Where(real, positions % samples, zero)
    return b.Reshape(row, [size]), b.Reshape(column, [size]), total(b, mask, size)


@extension(predictions=2)
def InTopK(b: Builder, predictions: Value, targets: Value, *, k: int) -> Value:
    """Return whether predictions[i, targets[i]] is among the k largest of row i, ties with the last
    included: bool [n].

    predictions[n, c], targets[n] integers. Source: TensorFlow, InTopKV2.
    """
    n, classes = static(predictions)
    best = b.TopK(predictions, [min(k, classes)], axis=1, outputs=2)[0]
    least = b.ReduceMin(best, [1], keepdims=1)
    own = b.GatherElements(predictions, b.Cast(b.Reshape(targets, [n, 1]), to=INT64), axis=1)
    return b.Reshape(own >= least, [n])


@extension(x=2)
def Histogram(
    b: Builder, x: Value, *, nbins: int, low: float, high: float, closed: int = 1
) -> Value:
    """Count the values of each row of x[b, n] in `nbins` equal bins of low..high, float [b, nbins].

    Values outside do not count; `closed`: the last bin includes `high` itself. If low > high, bins
    are counted from the other end.
    """
    at_least(1, nbins=nbins)
    demand_small(nbins)
    not_zero(**{"max - min": high - low})
    rows, n = static(x)
    first, last = min(low, high), max(low, high)
    edges = np.linspace(first, last, nbins + 1)
    wide = b.Reshape(b.Cast(x, to=FLOAT), [rows, n, 1])
    if closed:
        position = b.Floor((wide - first) * (nbins / (last - first)))
        position = b.Where(b.Equal(wide, last), nbins - 1, position)
        hit = b.Equal(position, arange(nbins, dtype=np.float32))
    else:
        lower, upper = b.const(edges[:-1].astype(np.float32)), b.const(edges[1:].astype(np.float32))
        hit = (wide >= lower) & (wide < upper)
    counts = b.ReduceSum(b.Cast(hit, to=FLOAT), [1], keepdims=0)
    return b.Gather(counts, arange(nbins)[::-1].copy(), axis=1) if low > high else counts
