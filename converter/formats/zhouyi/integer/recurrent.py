"""Integer LSTM and GRU, step by step: products in 32 bits, gates from tables of 8-bit integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.integer.register import Quantised, bits_of, integer, look_up, real, rescale, stored
from converter.formats.zhouyi.special.register import blob, need, need_int, operand, static
from converter.graph.build import Builder
from converter.graph.infer import Array
from converter.mapping.node import Layer, MappingError

LOW, HIGH = float(-(2**31)), float(2**31 - 1)


@dataclass
class Steps:
    """What the steps of one layer share: weights [x, rows] and [h, rows], biases, factors scale * 2 ** -shift in pieces."""

    layer: Layer
    b: Builder
    x: Array
    h: Array
    biases: Array
    factors: list[Array]

    def table(self, name: str, value: ir.Value) -> ir.Value:
        return look_up(self.b, value, blob(self.layer, name).reshape(-1), 8, True)

    def product(self, value: ir.Value, weights: Array) -> ir.Value:
        return self.b.op("MatMul", value, self.b.const(weights, "weights"))


def _steps(layer: Layer, b: Builder, lengths: list[int], q: Quantised) -> Steps:
    if "scale" not in layer.blobs or "shift" not in layer.blobs or bits_of(q)[0] != 8:
        raise MappingError(f"only an 8-bit {layer.kind} with a scale for each channel has an integer form here")
    scale, shift = (blob(layer, k).reshape(-1).astype(np.float64) for k in ("scale", "shift"))
    if scale.size < sum(lengths) and scale.size == shift.size:
        raise MappingError(f"{layer.kind} with one scale for all channels has no integer form here")
    if scale.size != sum(lengths) or shift.size != scale.size:
        raise MappingError(f"{scale.size} scales, {sum(lengths)} are needed", "R105")
    size = need_int(layer, "input_size")
    w = blob(layer, "weights").astype(np.float32).T
    pieces = np.split((scale * 2.0**-shift).astype(np.float32), np.cumsum(lengths)[:-1])
    return Steps(layer, b, w[:size], w[size:], blob(layer, "biases").reshape(-1).astype(np.float32), pieces)


def _time(layer: Layer, b: Builder) -> tuple[list[ir.Value], bool]:
    """The input at each step, [batch, x] each, in the order of the direction."""
    x = real(b, operand(layer))
    reverse = str(need(layer, "direction", "forward")).upper() == "REVERSE"
    count = static(x)[1]
    steps = [b.op("Squeeze", b.op("Slice", x, [t], [t + 1], [1]), [1]) for t in range(count)]
    return steps[::-1] if reverse else steps, reverse


def _outputs(layer: Layer, b: Builder, q: Quantised, found: dict[str, ir.Value], all_steps: list[ir.Value], reverse: bool) -> list[ir.Value]:
    names = [str(n).upper() for n in need(layer, "out_sequence", [])]
    ordered = all_steps[::-1] if reverse else all_steps
    first = "Y" if layer.kind == "BasicLSTM" else "H"
    found[first] = b.op("Concat", *[b.op("Unsqueeze", h, [1]) for h in ordered], axis=1)
    if any(n not in found for n in names):
        raise MappingError(f"out_sequence={names} names what is not known", "R110")
    return [stored(b, found[n], q.types[i]) for i, n in enumerate(names)]


@integer("GRUv1", "GRUv3")
def gru(layer: Layer, b: Builder, q: Quantised) -> list[ir.Value]:
    """Gates r, z, then the candidate: GRUv3 from the state that r lets through, GRUv1 from what r lets through of its product."""
    n = need_int(layer, "cell_size")
    s = _steps(layer, b, [2 * n, 2 * n, n, n, 1, 1], q)
    steps, reverse = _time(layer, b)
    state, states = real(b, operand(layer, 1)), []
    low, high = -128.0, 127.0
    for x in steps:
        hidden = rescale(b, s.product(state, s.h[:, : 2 * n]), s.factors[0], 0, LOW, HIGH)
        total = b.op("Add", b.op("Add", s.product(x, s.x[:, : 2 * n]), hidden), b.const(s.biases[: 2 * n]))
        both = rescale(b, total, s.factors[1], 0, low, high)
        r, u = (s.table(name, v) for name, v in zip(("lut_rt", "lut_zt"), b.ops("Split", both, [n, n], axis=1, outputs=2), strict=True))
        hidden = rescale(b, _let_through(s, r, state, n), s.factors[2], 0, LOW, HIGH)
        total = b.op("Add", b.op("Add", s.product(x, s.x[:, 2 * n :]), hidden), b.const(s.biases[2 * n : 3 * n]))
        c = s.table("lut_ht", rescale(b, total, s.factors[3], 0, low, high))
        new = rescale(b, b.op("Mul", b.op("Sub", b.like(u, 127), u), c), s.factors[4], 0, LOW, HIGH)
        state = rescale(b, b.op("Add", new, b.op("Mul", u, state)), s.factors[5], 0, low, high)
        states.append(state)
    return _outputs(layer, b, q, {"HN": state}, states, reverse)


def _let_through(s: Steps, r: ir.Value, state: ir.Value, n: int) -> ir.Value:
    """What the candidate takes of the state, as a product."""
    b, layer = s.b, s.layer
    if layer.kind == "GRUv3":
        return s.product(b.op("Round", b.op("Mul", b.op("Mul", r, state), b.like(r, 1 / 256))), s.h[:, 2 * n :])
    by = need_int(layer, "hidden_scale_value") * 2.0 ** -need_int(layer, "hidden_shift_value")
    total = b.op("Add", s.product(state, s.h[:, 2 * n :]), b.const(s.biases[3 * n :]))
    return b.op("Mul", r, rescale(b, total, by, 0, -128.0, 127.0))


@integer("BasicLSTM")
def lstm(layer: Layer, b: Builder, q: Quantised) -> list[ir.Value]:
    """Gates i, c, f, o; the cell has a scale of its own at each step."""
    n, time = need_int(layer, "cell_size"), static(operand(layer))[1]
    s = _steps(layer, b, [1, 4 * n, n, 1, 1, *[1] * (2 * time)], q)
    extra = blob(layer, "diff_shifts").reshape(-1).astype(np.float64) if "diff_shifts" in layer.blobs else np.zeros(time)
    steps, reverse = _time(layer, b)
    h, c, states = real(b, operand(layer, 1)), real(b, operand(layer, 2)), []
    for t, x in enumerate(steps):
        hidden = rescale(b, s.product(h, s.h), s.factors[0], 0, LOW, HIGH)
        total = b.op("Add", b.op("Add", s.product(x, s.x), hidden), b.const(s.biases))
        parts = b.ops("Split", total, [n] * 4, axis=1, outputs=4)
        by = [s.factors[1][:n], s.factors[2], s.factors[1][2 * n : 3 * n], s.factors[1][3 * n :]]
        gates = [rescale(b, p, f, 0, -128.0, 127.0) for p, f in zip(parts, by, strict=True)]
        i, g, f, o = (s.table(name, v) for name, v in zip(("lut_it", "lut_ct", "lut_ft", "lut_ot"), gates, strict=True))
        more = np.float32(2.0 ** -extra[t])
        kept = rescale(b, b.op("Mul", f, c), s.factors[5 + 2 * t] * more, 0, LOW, HIGH)
        cell = b.op("Add", rescale(b, b.op("Mul", i, g), more, 0, LOW, HIGH), kept)
        shown = s.table("lut_h", rescale(b, cell, s.factors[3] / more, 0, -127.0, 127.0))
        h = rescale(b, b.op("Mul", o, shown), s.factors[4], 0, -127.0, 127.0)
        c = rescale(b, cell, s.factors[6 + 2 * t] / more, 0, -127.0, 127.0)
        states.append(h)
    return _outputs(layer, b, q, {"H": h, "C": c}, states, reverse)
