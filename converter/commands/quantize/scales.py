"""Ranges of values, measured on data, and the scales that they give."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from converter.engines.file_child import import_onnxruntime
from converter.graph.infer import Array
from converter.graph.record import record

METHODS = ("minmax", "entropy", "percentile", "mse")
BITS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32767, 32767)}
LARGEST = 1e30  # larger numbers stand for infinity, as those of masks do
PERCENTILE = 99.99
BINS = {"percentile": 2048, "entropy": 512, "mse": 2048}
_STEPS = 80  # of a range that is tried shorter and shorter


@record
class Range:
    """The least and the greatest of the numbers that are represented, and those of channels,
    whose numbers broadcast in `shape`.
    """

    low: float
    high: float
    channels: Sequence[Range] = ()
    shape: tuple[int, ...] = ()

    def scale(self, dtype: str) -> tuple[np.float32, int]:
        """Return scale and zero point: 0 is represented exactly, and is the zero point of 16
        bits.
        """
        first, last = BITS[dtype]
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        if dtype == "int16":
            low, high = -max(-low, high), max(-low, high)
        step = np.float32((high - low) / (last - first))
        if not step >= np.finfo(np.float32).tiny:
            return np.float32(1.0), min(max(first, 0), last)
        return step, min(max(round(first - low / float(step)), first), last)

    def by_channel(self, dtype: str) -> tuple[Array, Array]:
        """Return scales and zero points that broadcast along axis 1."""
        scales, zeros = zip(*(c.scale(dtype) for c in self.channels), strict=True)
        return np.reshape(scales, self.shape), np.reshape(zeros, self.shape)


class Observer:
    """Collects the numbers of values, sample by sample; the memory that it takes does not depend on
    how many there are. `seen`: the bounds of a value, and how many numbers were not finite.

    `channels`: the bounds of each channel of the values `by_channel`.

    Histograms are those of onnxruntime's calibrators, whose entropy and percentiles are used.
    """

    def __init__(self, method: str, by_channel: Collection[str] = ()) -> None:
        self.method, self.seen = method, dict[str, tuple[float, float, int]]()
        self.by_channel = frozenset(by_channel)
        self.channels = dict[str, tuple[Array, Array]]()
        self.collector: Any = None
        if method != "minmax":
            import_onnxruntime()
            from onnxruntime.quantization.calibrate import HistogramCollector

            kind = "entropy" if method == "entropy" else "percentile"
            self.collector = HistogramCollector(kind, False, BINS[method], 128, PERCENTILE, "same")

    def add(self, values: Mapping[str, Array]) -> None:
        """Extend the ranges of values by their arrays in one sample; numbers that are not finite
        are counted.
        """
        for name, array in values.items():
            finite = np.isfinite(array)
            odd = array.size - int(np.count_nonzero(finite))
            finite &= np.abs(array) < LARGEST
            array = np.asarray(array if finite.all() else array[finite], np.float32)
            low, high, before = self.seen.get(name, (np.inf, -np.inf, 0))
            low = min(low, float(array.min(initial=np.inf)))
            high = max(high, float(array.max(initial=-np.inf)))
            self.seen[name] = low, high, odd + before
            if name in self.by_channel and finite.all():
                rest = (0, *range(2, array.ndim))
                ends = [f(axis=rest, initial=0, keepdims=True)[0] for f in (array.min, array.max)]
                least, most = self.channels.get(name, (ends[0], ends[1]))
                self.channels[name] = np.minimum(least, ends[0]), np.maximum(most, ends[1])
            if self.collector is not None and array.size:
                self.collector.collect_value({name: array})

    def ranges(self, dtype: str) -> dict[str, Range]:
        """Return the range of each value for a quantized type, by channel where requested."""
        found = self._wholes(dtype)
        for name, ends in self.channels.items():
            low, high = found[name].low, found[name].high
            clipped = zip(*(np.clip(e, low, high).ravel().tolist() for e in ends), strict=True)
            found[name] = Range(low, high, [Range(*pair) for pair in clipped], ends[0].shape)
        return found

    def _wholes(self, dtype: str) -> dict[str, Range]:
        found = {n: Range(low, high) for n, (low, high, _) in self.seen.items() if low <= high}
        if self.collector is None or not self.collector.histogram_dict:
            return found
        if self.method == "mse":
            histograms = self.collector.histogram_dict.items()
            return found | {n: _least_error(found[n], h, e, dtype) for n, (h, e, *_) in histograms}
        with contextlib.redirect_stdout(io.StringIO()):  # it prints its progress
            ends = self.collector.compute_collection_result()
        return found | {n: Range(float(low), float(high)) for n, (low, high, *_) in ends.items()}


def _least_error(whole: Range, counts: Array, edges: Array, dtype: str) -> Range:
    """Return the part of a range for which rounding and clipping lose least."""
    centers = (edges[1:] + edges[:-1]) / 2
    best, least = whole, np.inf
    for i in range(_STEPS):
        part = Range(whole.low * (1 - i / _STEPS), whole.high * (1 - i / _STEPS))
        lost = float((counts * (rounded(centers, part, dtype) - centers) ** 2).sum())
        if lost < least:
            best, least = part, lost
    return best


def rounded(array: Array, found: Range, dtype: str) -> Array:
    """Return the numbers as they are after quantization."""
    step, zero = found.scale(dtype)
    return np.asarray((stored(array, step, zero, dtype) - zero) * np.float64(step))


def stored(array: Array, step: Any, zero: int, dtype: str) -> Array:
    """Return the integers of numbers."""
    return np.asarray(np.clip(np.rint(array / np.float64(step)) + zero, *BITS[dtype]))
