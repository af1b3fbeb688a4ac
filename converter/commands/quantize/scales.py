"""Ranges of values, measured on data, and the scales that they give."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from converter.engines.file_child import import_onnxruntime
from converter.graph.infer import Array
from converter.record import record

BITS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32767, 32767)}
LARGEST = 1e30  # larger numbers stand for infinity, as those of masks do
PERCENTILE = 99.99
BINS = {"percentile": 2048, "entropy": 512, "mse": 2048}
_STEPS = 80  # of a range that is tried shorter and shorter


@record
class Scale:
    """Scale and zero point of integers of a type: numbers, or arrays where each channel has its
    own.
    """

    step: Any
    zero: Any
    dtype: str

    def stored(self, array: Array) -> Array:
        """Return the integers of numbers."""
        rounded = np.rint(array / np.float64(self.step)) + self.zero
        return np.asarray(np.clip(rounded, *BITS[self.dtype]))

    def numbers(self, integers: Any) -> Array:
        """Return the numbers that integers represent."""
        return np.asarray((integers - self.zero) * np.float64(self.step))


@record
class Range:
    """The least and the greatest of the numbers that are represented: numbers, or arrays that
    broadcast along axis 1 where each channel has its own.
    """

    low: Any
    high: Any

    def scale(self, dtype: str) -> Scale:
        """Return the scale: 0 is represented exactly, and is the zero point of 16 bits. A channel
        of zeros has the range of all channels.
        """
        first, last = BITS[dtype]
        low, high = np.minimum(np.float64(self.low), 0), np.maximum(np.float64(self.high), 0)
        zero = low == high
        low, high = np.where(zero, low.min(), low), np.where(zero, high.max(), high)
        if dtype == "int16":
            low, high = -np.maximum(-low, high), np.maximum(-low, high)
        steps = np.asarray((high - low) / (last - first), np.float32)
        empty = ~(steps >= np.finfo(np.float32).tiny)
        steps = np.where(empty, np.float32(1), steps)
        zeros = np.where(empty, 0, np.rint(first - low / np.float64(steps)))
        return Scale(steps, np.clip(zeros, first, last).astype(int), dtype)


def whole(*ranges: Range) -> Range:
    """Return the range of all numbers of some ranges."""
    return Range(min(np.min(r.low) for r in ranges), max(np.max(r.high) for r in ranges))


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
            if name in self.by_channel:
                rest, plain = (0, *range(2, array.ndim)), np.where(finite, array, 0)
                ends = [f(axis=rest, initial=0, keepdims=True)[0] for f in (plain.min, plain.max)]
                least, most = self.channels.get(name, (ends[0], ends[1]))
                self.channels[name] = np.minimum(least, ends[0]), np.maximum(most, ends[1])
            array = np.asarray(array if finite.all() else array[finite], np.float32)
            low, high, before = self.seen.get(name, (np.inf, -np.inf, 0))
            low = min(low, float(array.min(initial=np.inf)))
            high = max(high, float(array.max(initial=-np.inf)))
            self.seen[name] = low, high, odd + before
            if self.collector is not None and array.size:
                self.collector.collect_value({name: array})

    def ranges(self, dtype: str) -> dict[str, Range]:
        """Return the range of each value for a quantized type, by channel where requested."""
        found = self._wholes(dtype)
        for name in found.keys() & self.channels.keys():
            ends = (np.clip(e, found[name].low, found[name].high) for e in self.channels[name])
            found[name] = Range(*(e.astype(np.float64) for e in ends))
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


def _least_error(found: Range, counts: Array, edges: Array, dtype: str) -> Range:
    """Return the part of a range for which rounding and clipping lose least."""
    centers = (edges[1:] + edges[:-1]) / 2

    def lost(part: Range) -> float:
        scale = part.scale(dtype)
        return float((counts * (scale.numbers(scale.stored(centers)) - centers) ** 2).sum())

    shares = (1 - i / _STEPS for i in range(_STEPS))
    return min((Range(found.low * s, found.high * s) for s in shares), key=lost)
