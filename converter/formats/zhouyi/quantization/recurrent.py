"""Integer LSTM and GRU, step by step: products in 32 bits, gates from tables of 8-bit integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import IntegerReading
from converter.formats.zhouyi.quantization.requantize import (
    INT8,
    INT32,
    Limits,
    real,
    rescale,
    stored,
)
from converter.graph.infer import Array
from converter.graph.value import Value

AMOUNTS: Limits = (-127.0, 127.0)


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

    def table(self, name: str, value: Value) -> Value:
        return self.r.looked_up(value, name, 8, True)

    def product(self, value: Value, weights: Array) -> Value:
        return value @ self.r.b.const(weights, "weights")

    def rescaled(self, value: Value, by: Any, limits: Limits) -> Value:
        return rescale(self.r.b, value, by, 0, limits)


def _steps(r: IntegerReading, lengths: list[int]) -> Steps:
    layer = r.layer
    if "scale" not in layer.blobs or "shift" not in layer.blobs or r.width()[0] != 8:
        what = f"only an 8-bit {layer.kind} with a scale for each channel"
        raise MappingError(f"{what} has an integer form here")
    scale, shift = (r.blob(k).reshape(-1).astype(np.float64) for k in ("scale", "shift"))
    if scale.size < sum(lengths) and scale.size == shift.size:
        raise MappingError(f"{layer.kind} with one scale for all channels has no integer form here")
    if scale.size != sum(lengths) or shift.size != scale.size:
        raise MappingError(f"{scale.size} scales, {sum(lengths)} are needed", "R105")
    size = r.attr("input_size", int)
    w = r.blob("weights").astype(np.float32).T
    pieces = np.split((scale * 2.0**-shift).astype(np.float32), np.cumsum(lengths)[:-1])
    biases = r.blob("biases").reshape(-1).astype(np.float32)
    return Steps(r, w[:size], w[size:], biases, pieces)


def _time(r: IntegerReading) -> tuple[list[Value], bool]:
    """The input at each step, [batch, x] each, in the order of the direction."""
    x = real(r.b, r.input(0))
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
    state, states = real(r.b, r.input(1)), []
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
    """Gates i, c, f, o; the cell has a scale of its own at each step."""
    n, time = r.attr("cell_size", int), r.static(r.input(0))[1]
    s = _steps(r, [1, 4 * n, n, 1, 1, *[1] * (2 * time)])
    shifts = r.layer.blobs.get("diff_shifts", np.zeros(time))
    extra = np.asarray(shifts).reshape(-1).astype(np.float64)
    steps, reverse = _time(r)
    h, c, states = real(r.b, r.input(1)), real(r.b, r.input(2)), []
    by = [s.factors[1][:n], s.factors[2], s.factors[1][2 * n : 3 * n], s.factors[1][3 * n :]]
    for t, x in enumerate(steps):
        hidden = s.rescaled(s.product(h, s.h), s.factors[0], INT32)
        total = s.product(x, s.x) + hidden + s.biases
        parts = r.b.Split(total, [n] * 4, axis=1, outputs=4)
        gates = [s.rescaled(p, f, INT8) for p, f in zip(parts, by, strict=True)]
        i, g, f, o = map(s.table, ("lut_it", "lut_ct", "lut_ft", "lut_ot"), gates)
        more = np.float32(2.0 ** -extra[t])
        kept = s.rescaled(f * c, s.factors[5 + 2 * t] * more, INT32)
        cell = s.rescaled(i * g, more, INT32) + kept
        shown = s.table("lut_h", s.rescaled(cell, s.factors[3] / more, AMOUNTS))
        h = s.rescaled(o * shown, s.factors[4], AMOUNTS)
        c = s.rescaled(cell, s.factors[6 + 2 * t] / more, AMOUNTS)
        states.append(h)
    return _outputs(r, {"H": h, "C": c}, states, reverse)
