"""Integer LSTM and GRU, step by step: products in 32 bits, gates from tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import IntegerReading
from converter.formats.zhouyi.quantization.requantize import (
    INT8,
    INT32,
    Limits,
    beside,
    rescale,
    stored,
    zeros_of,
)
from converter.graph.infer import Array
from converter.graph.value import Value


@dataclass
class Steps:
    """What the steps of one layer share: weights [x, rows] and [h, rows], biases, factors
    scale * 2 ** -shift in pieces.
    """

    r: IntegerReading
    x: Array
    h: Array
    biases: Array
    factors: list[Array]

    bits: int = 8

    @property
    def limits(self) -> Limits:
        return -(2.0 ** (self.bits - 1)), 2.0 ** (self.bits - 1) - 1

    @property
    def amounts(self) -> Limits:
        """The limits without the least number, whose amount has no counterpart."""
        low, high = self.limits
        return low + 1, high

    def table(self, name: str, value: Value) -> Value:
        return self.r.looked_up(value, name, self.bits, True)

    def product(self, value: Value, weights: Array) -> Value:
        return value @ beside(self.r.b, weights, value, "weights")

    def rescaled(self, value: Value, by: Any, limits: Limits) -> Value:
        return rescale(self.r.b, value, by, 0, limits)


def _steps(r: IntegerReading, lengths: list[int]) -> Steps:
    layer, (bits, _) = r.layer, r.width()
    if "scale" not in layer.blobs or "shift" not in layer.blobs or bits != 8:
        what = f"only an 8-bit {layer.kind} with a scale for each channel"
        raise MappingError(f"{what} has an integer form here")
    scale, shift = (r.blob(k).reshape(-1).astype(np.float64) for k in ("scale", "shift"))
    if scale.size < sum(lengths) and scale.size == shift.size:
        raise MappingError(f"{layer.kind} with one scale for all channels has no integer form here")
    if scale.size != sum(lengths) or shift.size != scale.size:
        raise MappingError(f"{scale.size} scales, {sum(lengths)} are needed", "R105")
    size = r.attr("input_size", int)
    w = r.blob("weights").T
    pieces = np.split((scale * 2.0**-shift).astype(np.float32), np.cumsum(lengths)[:-1])
    biases = r.blob("biases").reshape(-1).astype(np.float64)
    return Steps(r, w[:size], w[size:], biases, pieces)


def _time(r: IntegerReading) -> tuple[list[Value], bool]:
    """The input at each step, [batch, x] each, in the order of the direction."""
    x = r.whole()
    reverse = r.attr("direction", str, "forward").upper() == "REVERSE"
    count = r.static(x)[1]
    steps = [r.b.Squeeze(r.b.Slice(x, [t], [t + 1], [1]), [1]) for t in range(count)]
    return steps[::-1] if reverse else steps, reverse


def _outputs(
    r: IntegerReading, found: dict[str, Value], all_steps: list[Value], reverse: bool
) -> list[Value]:
    names = [str(n).upper() for n in r.layer.attrs.get("out_sequence", [])]
    ordered = all_steps[::-1] if reverse else all_steps
    first = "Y" if r.layer.kind == "BasicLSTM" else "H"
    found[first] = r.b.Concat(*[r.b.Unsqueeze(h, [1]) for h in ordered], axis=1)
    if any(n not in found for n in names):
        raise MappingError(f"out_sequence={names} names what is not known", "R110")
    return [stored(r.b, found[n], r.tensors.types[i]) for i, n in enumerate(names)]


def lift_gru(r: IntegerReading) -> list[Value]:
    """Gates r, z, then the candidate: GRUv3 from the state that r lets through, GRUv1 from what r
    lets through of its product.
    """
    n = r.attr("cell_size", int)
    s = _steps(r, [2 * n, 2 * n, n, n, 1, 1])
    steps, reverse = _time(r)
    state, states = r.whole(1), []
    for x in steps:
        hidden = s.rescaled(s.product(state, s.h[:, : 2 * n]), s.factors[0], INT32)
        total = s.product(x, s.x[:, : 2 * n]) + hidden + s.biases[: 2 * n]
        both = s.rescaled(total, s.factors[1], INT8)
        halves = r.b.Split(both, [n, n], axis=1, outputs=2)
        reset, update = map(s.table, ("lut_rt", "lut_zt"), halves)
        hidden = s.rescaled(_let_through(s, reset, state, n), s.factors[2], INT32)
        total = s.product(x, s.x[:, 2 * n :]) + hidden + s.biases[2 * n : 3 * n]
        candidate = s.table("lut_ht", s.rescaled(total, s.factors[3], INT8))
        new = s.rescaled((127 - update) * candidate, s.factors[4], INT32)
        state = s.rescaled(new + update * state, s.factors[5], INT8)
        states.append(state)
    return _outputs(r, {"HN": state}, states, reverse)


def _let_through(s: Steps, reset: Value, state: Value, n: int) -> Value:
    """What the candidate takes of the state, as a product."""
    r = s.r
    if r.layer.kind == "GRUv3":
        return s.product(r.b.Round(reset * state * (1 / 256)), s.h[:, 2 * n :])
    by = r.attr("hidden_scale_value", int) * 2.0 ** -r.attr("hidden_shift_value", int)
    total = s.product(state, s.h[:, 2 * n :]) + s.biases[3 * n :]
    return reset * s.rescaled(total, by, INT8)


def lift_lstm(r: IntegerReading) -> list[Value]:
    """Gates i, c, f, o; the cell has a scale of its own at each step.

    Factors: of the state's product, of the gates (all rows), of the candidate, of the cell before
    its table, of the result, then two for each step: of the cell that is kept, and stored.
    """
    n, time = r.attr("cell_size", int), r.static(r.input(0))[1]
    scales, shifts = (_factor_parts(r, k, n, time) for k in ("scale", "shift"))
    size, (bits, _) = r.attr("input_size", int), r.width()
    w = (r.blob("weights") + zeros_of(r.layer, "weights").reshape(-1, 1)).T
    biases = r.blob("biases").reshape(-1) + zeros_of(r.layer, "biases")
    factors = [f * 2.0**-e for f, e in zip(scales, shifts, strict=True)]
    s = Steps(r, w[:size], w[size:], biases, factors, bits)
    gates = _gates(s, scales, shifts)
    extra = r.layer.blobs.get("diff_shifts", np.zeros(time))
    lost = 2.0 ** -np.asarray(extra).reshape(-1).astype(np.float64)
    steps, reverse = _time(r)
    h, c, states = r.whole(1), r.whole(2), []
    for x, less, keep, store in zip(steps, lost, factors[5::2], factors[6::2], strict=True):
        parts = r.b.Split(gates(x, h), [n] * 4, axis=1, outputs=4)
        i, g, f, o = (
            s.table(name, p)
            for name, p in zip(("lut_it", "lut_ct", "lut_ft", "lut_ot"), parts, strict=True)
        )
        cell = s.rescaled(i * g, less, INT32) + s.rescaled(f * c, keep * less, INT32)
        cell = s.rescaled(cell, 1.0, INT32)
        shown = s.table("lut_h", s.rescaled(cell, factors[3] / less, s.amounts))
        h = s.rescaled(o * shown, factors[4], s.amounts)
        c = s.rescaled(cell, store / less, s.amounts)
        states.append(h)
    return _outputs(r, {"H": h, "C": c}, states, reverse)


def _factor_parts(r: IntegerReading, name: str, n: int, time: int) -> list[Array]:
    """The constant `scale` or `shift` of an LSTM in its parts: one number for all rows of the
    gates, or one for each.
    """
    given = r.blob(name).reshape(-1).astype(np.float64)
    rows, cells = (4 * n, n) if given.size == 4 * n + n + 3 + 2 * time else (1, 1)
    lengths = [1, rows, cells, 1, 1, *[1] * (2 * time)]
    if given.size != sum(lengths):
        message = f"{given.size} numbers in {name}, {sum(lengths)} or {5 * n + 3 + 2 * time} needed"
        raise MappingError(message, "R105")
    return np.split(given, np.cumsum(lengths)[:-1])


def _gates(s: Steps, scales: list[Array], shifts: list[Array]) -> Callable[[Value, Value], Value]:
    """What makes the gates of an input and a state, before their tables."""
    n = s.x.shape[1] // 4
    scale, shift = (_by_row(v[1], v[2], n) for v in (scales, shifts))
    if s.bits == 8:

        def gates(x: Value, h: Value) -> Value:
            hidden = s.rescaled(s.product(h, s.h), s.factors[0], INT32)
            return s.rescaled(s.product(x, s.x) + hidden + s.biases, scale * 2.0**-shift, s.limits)

        return gates
    kept = s.r.attr("lut_shift_value", int)
    coarse = 2.0 ** (kept - shifts[1])
    of_input_gate = np.broadcast_to(shifts[1], 4 * n)[:n]
    more = _by_row(np.full(1, kept), shifts[2] - of_input_gate + kept, n)
    biases = np.clip(np.rint(s.biases * coarse), *INT32)

    def wide_gates(x: Value, h: Value) -> Value:
        """Products lose their lowest bits before they are added."""
        hidden = s.rescaled(s.product(h, s.h), 2.0 ** (kept - shifts[0]), INT32)
        hidden = s.rescaled(hidden, scales[0] * 2.0 ** -shifts[1], INT32)
        total = s.rescaled(s.product(x, s.x), coarse, INT32) + hidden + biases
        total = s.rescaled(total, 1.0, INT32)
        return s.rescaled(total, scale * 2.0**-more, s.limits)

    return wide_gates


def _by_row(of_gates: Array, of_candidate: Array, n: int) -> Array:
    """Numbers of the 4 * n rows i, c, f, o: those of the candidate c are stored apart."""
    rows = np.broadcast_to(of_gates, 4 * n).copy()
    rows[n : 2 * n] = of_candidate
    return rows
