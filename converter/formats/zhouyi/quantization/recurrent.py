"""Integer LSTM and GRU, step by step: products in 32 bits, gates from tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from converter.errors import MappingError
from converter.formats.zhouyi.quantization.context import IntegerLiftContext
from converter.formats.zhouyi.quantization.requantize import (
    INT32,
    Limits,
    constant_like,
    double,
    limits_of_bits,
    numbers,
    of_sizes,
    rescale,
    single,
    zeros_of,
)
from converter.formats.zhouyi.quantization.weights import with_zero_points
from converter.graph.infer import Array
from converter.graph.value import Value, stack


@dataclass
class Steps:
    """The common parameters of the steps of one layer: weights [x, rows] and [h, rows], biases,
    factors scale * 2 ** -shift in pieces.

    `single`: all results are rounded to 32-bit floats, as in the executor.
    """

    r: IntegerLiftContext
    x: Array
    h: Array
    biases: Array
    factors: list[Array]
    single: bool = False

    @property
    def bits(self) -> int:
        return self.r.width()[0]

    @property
    def limits(self) -> Limits:
        return limits_of_bits(self.bits, True)

    @property
    def amounts(self) -> Limits:
        """Return the limits without the least number, whose magnitude cannot be represented."""
        low, high = self.limits
        return low + 1, high

    def table(self, name: str, value: Value) -> Value:
        """Return the results of a lookup table of the layer."""
        return self.r.looked_up(value, name, self.bits, True)

    def rounded(self, value: Value) -> Value:
        """Round to float32, where the executor computes so."""
        return double(single(value)) if self.single else value

    def product(self, value: Value, weights: Array) -> Value:
        """Return the product with weights as float64."""
        value = single(value) if self.single else value
        return double(value @ constant_like(weights, value, "weights"))

    def rescaled(self, value: Value, by: Any, limits: Limits) -> Value:
        """Rescale a value and clamp it to limits."""
        return self.rounded(rescale(value, by, 0, limits))


def _parts(
    r: IntegerLiftContext, lengths: list[int]
) -> tuple[list[Array], list[Array], list[Array]]:
    """Return scales, shifts, and scale * 2 ** -shift in parts of these lengths: a number for each
    row, or one for all rows of a part.
    """
    found = []
    for name in ("scale", "shift"):
        given = numbers(r.layer, name, 0)
        of_sizes(given, name, sum(lengths), len(lengths))
        parts = lengths if given.size == sum(lengths) else [1] * len(lengths)
        found.append(np.split(given, np.cumsum(parts)[:-1]))
    scales, shifts = found
    return scales, shifts, [f * 2.0**-e for f, e in zip(scales, shifts, strict=True)]


def _weights(r: IntegerLiftContext, gates: int) -> tuple[int, Array]:
    """Return the size of the input, and the weights [gates * cells, input size + cells]."""
    n, size, weights = r.count("cell_size"), r.count("input_size"), r.blob("weights")
    if weights.shape != (gates * n, size + n):
        cells = f"{gates} gates of {n} cells and an input of {size}"
        message = f"weights of the shape {list(weights.shape)} do not fit {cells}"
        raise MappingError(message, "R105")
    return size, weights


def _time(r: IntegerLiftContext) -> tuple[list[Value], bool]:
    """Return the input at each step, [batch, x] each, in the order of the direction."""
    x = r.whole()
    reverse = r.attr("direction", str, "FORWARD") == "REVERSE"
    steps = [x[:, t] for t in range(r.static(x)[1])]
    return steps[::-1] if reverse else steps, reverse


def _outputs(
    r: IntegerLiftContext, found: dict[str, Value], all_steps: list[Value], reverse: bool
) -> list[Value]:
    given = r.layer.attrs.get("out_sequence", [])
    names = [str(n) for n in (given if isinstance(given, list) else [given])]
    if len(names) != len(r.types):
        raise MappingError(f"out_sequence={names} is invalid for {len(r.types)} outputs", "R110")
    ordered = all_steps[::-1] if reverse else all_steps
    first = "Y" if r.layer.kind == "BasicLSTM" else "H"
    found[first] = stack(ordered, 1)
    if any(n not in found for n in names):
        raise MappingError(f"out_sequence={names} contains an unknown name", "R110")
    return r.all_stored(found[n] for n in names)


def lift_gru(r: IntegerLiftContext) -> list[Value]:
    """Gates r, z, then the candidate: GRUv3 applies r to the state, GRUv1 to the product of the
    state.

    Sums of more than 8 bits lose their lowest bits before they are added; the biases lose the same
    number of bits again at each step, as in the executor.
    """
    n, first = r.count("cell_size"), r.layer.kind == "GRUv1"
    scales, shifts, factors = _parts(r, [2 * n, 2 * n, n, n, 1, 1])
    size, weights = _weights(r, 3)
    w, biases = weights.astype(np.float64).T, r.flat("biases")
    of_sizes(biases, "biases", 4 * n, 4 * n if first else 3 * n)
    s = Steps(r, w[:size], w[size:], biases, factors, r.width()[0] > 8)
    (steps, reverse), state, states = _time(r), r.whole(1), []
    batch = r.shape[0]
    gates, candidates = (_Sum(s, scales[i : i + 2], shifts[i : i + 2]) for i in (0, 2))
    own = gates.biases(s.biases[: 2 * n], batch, len(steps))
    inner = candidates.biases(s.biases[2 * n : 3 * n], batch, len(steps))
    hidden = (
        candidates.biases(s.biases[3 * n :], batch, len(steps), of_state=True) if first else own
    )
    largest = s.limits[1]
    for t, x in enumerate(steps):
        product = s.product(state, s.h[:, : 2 * n])
        both = gates.of(product, s.product(x, s.x[:, : 2 * n]), own[:, t])
        reset, update = s.table("lut_rt", both[:, :n]), s.table("lut_zt", both[:, n:])
        if first:
            by = r.factor_of("hidden")
            total = s.rounded(s.product(state, s.h[:, 2 * n :]) + hidden[:, t])
            product = s.rounded(reset * s.rescaled(total, by, s.limits))
        else:
            through = r.b.Round(s.rounded(reset * state) * 2.0**-s.bits)
            product = s.product(through, s.h[:, 2 * n :])
        total = candidates.of(product, s.product(x, s.x[:, 2 * n :]), inner[:, t])
        candidate = s.table("lut_ht", total)
        new = rescale((largest - update) * candidate, s.factors[4], 0, INT32)
        sum_ = s.rounded(new + s.rounded(update * state))
        state = s.rescaled(sum_, s.factors[5], s.amounts)
        states.append(state)
    return _outputs(r, {"HN": state}, states, reverse)


class _Sum:
    """A product of the state, rescaled, plus one of the input and a bias, rescaled: multipliers and
    shifts of both. For 16-bit integers the part of a shift that exceeds `remain_shift` bits is
    applied first.
    """

    def __init__(self, s: Steps, scales: list[Array], shifts: list[Array]) -> None:
        kept = float(s.r.bit_count("remain_shift", 10)) if s.bits > 8 else np.inf
        self.s, self.scales = s, scales
        self.lost = [np.maximum(e - kept, 0) for e in shifts]
        self.shifts = [np.minimum(kept, e) for e in shifts]
        self.shifts[0] = self.shifts[0] + self.lost[1]

    def biases(self, given: Array, batch: int, steps: int, of_state: bool = False) -> Array:
        """Return [batch, step, row]: element by element of the batch, step by step."""
        found, lost = [], 2.0 ** -self.lost[0 if of_state else 1]
        for _ in range(batch * steps):
            given = np.clip(np.rint(given * lost), *INT32) if np.any(lost != 1) else given
            if self.s.single:
                given = given.astype(np.float32).astype(np.float64)
            found.append(given)
        return np.stack(found).reshape(batch, steps, -1)

    def of(self, state: Value, x: Value, biases: Array) -> Value:
        s = self.s
        if np.any(self.lost[0]):
            state = s.rescaled(state, 2.0 ** -self.lost[0], INT32)
        state = s.rescaled(state, self.scales[0] * 2.0 ** -self.shifts[0], INT32)
        if np.any(self.lost[1]):
            x = s.rescaled(x, 2.0 ** -self.lost[1], INT32)
        total = s.rounded(s.rounded(x + state) + biases)
        return s.rescaled(total, self.scales[1] * 2.0 ** -self.shifts[1], s.limits)


def lift_lstm(r: IntegerLiftContext) -> list[Value]:
    """Gates i, c, f, o; the cell has a scale of its own at each step.

    Factors: of the state's product, of the gates (all rows), of the candidate, of the cell before
    its table, of the result, then two for each step: of the cell that is kept, and stored.
    """
    n, time = r.count("cell_size"), r.shape[1]
    scales, shifts, factors = _parts(r, [1, 4 * n, n, 1, 1, *[1] * (2 * time)])
    size, weights = _weights(r, 4)
    zeros = of_sizes(zeros_of(r.layer, "weights"), "weights_zp", 1, 4 * n)
    w = (weights + zeros.reshape(-1, 1)).T
    biases = of_sizes(with_zero_points(r.layer, "biases"), "biases", 4 * n)
    s = Steps(r, w[:size], w[size:], biases, factors)
    gates = _gates(s, scales, shifts)
    extra = np.asarray(r.layer.blobs.get("diff_shifts", np.zeros(time))).reshape(-1)
    lost = 2.0 ** -of_sizes(extra, "diff_shifts", time).astype(np.float64)
    steps, reverse = _time(r)
    h, c, states = r.whole(1), r.whole(2), []
    for x, less, keep, store in zip(steps, lost, factors[5::2], factors[6::2], strict=True):
        parts = r.b.Split(gates(x, h), [n] * 4, axis=1, outputs=4)
        i, g, f, o = (s.table(f"lut_{k}t", v) for k, v in zip("icfo", parts, strict=True))
        cell = s.rescaled(i * g, less, INT32) + s.rescaled(f * c, keep * less, INT32)
        cell = s.rescaled(cell, 1.0, INT32)
        shown = s.table("lut_h", s.rescaled(cell, factors[3] / less, s.amounts))
        h = s.rescaled(o * shown, factors[4], s.amounts)
        c = s.rescaled(cell, store / less, s.amounts)
        states.append(h)
    return _outputs(r, {"H": h, "C": c}, states, reverse)


def _gates(s: Steps, scales: list[Array], shifts: list[Array]) -> Callable[[Value, Value], Value]:
    """Return the gates of an input and a state, before their tables."""
    n = s.x.shape[1] // 4
    scale, shift = (_by_row(v[1], v[2], n) for v in (scales, shifts))
    if s.bits == 8:

        def gates(x: Value, h: Value) -> Value:
            hidden = s.rescaled(s.product(h, s.h), s.factors[0], INT32)
            return s.rescaled(s.product(x, s.x) + hidden + s.biases, scale * 2.0**-shift, s.limits)

        return gates
    kept = s.r.bit_count("lut_shift_value")
    coarse = 2.0 ** (kept - shifts[1])
    of_input_gate = np.broadcast_to(shifts[1], 4 * n)[:n]
    more = _by_row(np.full(1, kept), shifts[2] - of_input_gate + kept, n)
    biases = np.clip(np.rint(s.biases * coarse), *INT32)

    def wide_gates(x: Value, h: Value) -> Value:
        """Truncate the lowest bits of the products before they are added."""
        hidden = s.rescaled(s.product(h, s.h), 2.0 ** (kept - shifts[0]), INT32)
        hidden = s.rescaled(hidden, scales[0] * 2.0 ** -shifts[1], INT32)
        total = s.rescaled(s.product(x, s.x), coarse, INT32) + hidden + biases
        total = s.rescaled(total, 1.0, INT32)
        return s.rescaled(total, scale * 2.0**-more, s.limits)

    return wide_gates


def _by_row(of_gates: Array, of_candidate: Array, n: int) -> Array:
    """Return one number for each of the 4 * n rows i, c, f, o; those of the candidate c are stored
    separately.
    """
    rows = np.broadcast_to(of_gates, 4 * n).copy()
    rows[n : 2 * n] = of_candidate
    return rows
