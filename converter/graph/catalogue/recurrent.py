"""Recurrent networks that ONNX's own operators do not say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.build import Builder, Value
from converter.graph.extensions import extension

Function = tuple[str, dict[str, Any]]
_NAMES = ("Sigmoid", "Tanh", "Tanh")


@extension
def CellClippedLSTM(
    b: Builder,
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    hidden: Value | None = None,
    cell: Value | None = None,
    peepholes: Value | None = None,
    *,
    hidden_size: int,
    cell_clip: float,
    direction: str = "forward",
    input_forget: int = 0,
    activations: Sequence[str] = (),
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
) -> tuple[Value, Value, Value]:
    """ONNX's LSTM (same inputs, outputs and layouts, without sequence lengths) with every cell
    state c_t limited to +-`cell_clip`.

    Results Y, Y_h, Y_c of ONNX's LSTM. Source: ONNX, LSTM; NNAPI, LSTM for the limit.
    """
    if lengths is not None:
        raise MappingError("CellClippedLSTM with sequence lengths")
    directions = 2 if direction == "bidirectional" else 1
    names = list(activations) or list(_NAMES) * directions
    functions = _functions(names, list(activation_alpha), list(activation_beta))
    results = []
    for d in range(directions):
        backwards = direction == "reverse" or d == 1
        part = [v if v is None else b.Squeeze(v[d : d + 1], [0]) for v in (w, r, bias, peepholes)]
        batch = b.Shape(x)[1:2]
        zero = b.Expand(b.like(x, 0), b.Concat(batch, [hidden_size], axis=0))
        initial = [zero if v is None else b.Squeeze(v[d : d + 1], [0]) for v in (hidden, cell)]
        results.append(
            _direction(
                b,
                x,
                part,
                initial,
                functions[3 * d : 3 * d + 3],
                cell_clip,
                input_forget,
                backwards,
            )
        )
    y = b.Concat(*(b.Unsqueeze(v[0], [1]) for v in results), axis=1)
    return y, *(b.Concat(*(b.Unsqueeze(v[i], [0]) for v in results), axis=0) for i in (1, 2))  # type: ignore[return-value]


def _functions(names: list[str], alphas: list[float], betas: list[float]) -> list[Function]:
    """(operator, its attributes) per activation; alphas and betas go to those that take them, in
    order.
    """
    found = []
    for name in names:
        parameters: dict[str, Any] = {}
        if name in ("Affine", "HardSigmoid", "ScaledTanh") and alphas and betas:
            parameters = {"alpha": alphas.pop(0), "beta": betas.pop(0)}
        found.append((name, parameters))
    return found


def _apply(b: Builder, function: Function, x: Value) -> Value:
    name, p = function
    if name == "Affine":
        return x * float(p["alpha"]) + float(p["beta"])
    if name == "ScaledTanh":
        return b.Tanh(x * float(p["beta"])) * float(p["alpha"])
    return b.operator(name)(x, alpha=p.get("alpha"), beta=p.get("beta"))


def _direction(
    b: Builder,
    x: Value,
    part: list[Value | None],
    initial: list[Value],
    functions: list[Function],
    clip: float,
    coupled: int,
    backwards: bool,
) -> list[Value]:
    """All time steps of one direction: y [Seq,Batch,H], the last h and c."""
    w, r, bias, peepholes = part
    assert w is not None and r is not None
    steps = b.Squeeze(b.Shape(x)[:1], [0])
    if backwards:
        x = x[::-1]
    inputs = x @ b.Transpose(w, perm=[1, 0])
    if bias is not None:
        both = b.Split(bias, outputs=2, axis=0, num_outputs=2)
        inputs = inputs + (both[0] + both[1])
    recursion = b.Transpose(r, perm=[1, 0])
    peeps = b.Split(peepholes, outputs=3, axis=0, num_outputs=3) if peepholes is not None else None
    with b.body("lstm") as body:
        i = body.input("i", ir.DataType.INT64, [])
        keep = body.input("keep", ir.DataType.BOOL, [])
        h, c = (
            body.input(n, v.dtype or ir.DataType.FLOAT, list(v.shape) if v.shape else None)
            for n, v in zip(("h", "c"), initial, strict=True)
        )
        gates = body.Gather(inputs, i, axis=0) + h @ recursion
        h1, c1 = _cell(body, gates, c, peeps, functions, clip, coupled)
        body.output(body.Identity(keep), h1, c1, body.Identity(h1))
    last, cell, y = b.Loop(steps, None, *initial, outputs=3, body=body.graph)
    return [y[::-1] if backwards else y, last, cell]


def _cell(
    b: Builder,
    gates: Value,
    c: Value,
    peeps: tuple[Value, ...] | None,
    functions: list[Function],
    clip: float,
    coupled: int,
) -> tuple[Value, Value]:
    f, g, h = functions
    i, o, forget, z = b.Split(gates, outputs=4, axis=1, num_outputs=4)
    if peeps is not None:
        i, forget = (i + c * peeps[0], forget + c * peeps[2])
    i = _apply(b, f, i)
    forget = 1.0 - i if coupled else _apply(b, f, forget)
    cell = forget * c + i * _apply(b, g, z)
    cell = b.Clip(cell, b.like(cell, -clip), b.like(cell, clip))
    if peeps is not None:
        o = o + cell * peeps[1]
    return _apply(b, f, o) * _apply(b, h, cell), cell


@extension
def LSTM16(
    b: Builder,
    x: Value,
    wi: Value,
    wf: Value,
    wc: Value,
    wo: Value,
    ri: Value,
    rf: Value,
    rc: Value,
    ro: Value,
    bi: Value,
    bf: Value,
    bc: Value,
    bo: Value,
    cell: Value,
    state: Value,
) -> tuple[Value, Value]:
    """One step of Android's LSTM of 16 bits, on real numbers: the gates are rounded to Q3.12, the
    cell state to Q4.11. Results: cell state, output.

    x [n, i], weights w [h, i] and r [h, h], biases [h], cell and state [n, h]. As Android computes
    it, the weights joined as (r, w) multiply the data joined as (x, state). Source: NNAPI,
    QUANTIZED_16BIT_LSTM.
    """
    data = b.Concat(x, state, axis=1)

    def gate(w: Value, r: Value, bias: Value) -> Value:
        weights = b.Transpose(b.Concat(r, w, axis=1), perm=[1, 0])
        return stored_as(b, data @ weights + bias, 2.0**-12)

    enter, forget, out = (b.Sigmoid(gate(*g)) for g in ((wi, ri, bi), (wf, rf, bf), (wo, ro, bo)))
    new = forget * cell + enter * b.Tanh(gate(wc, rc, bc))
    new = stored_as(b, new, 2.0**-11)
    return new, out * b.Tanh(new)


def stored_as(b: Builder, x: Value, unit: float) -> Value:
    """x as 16 bits hold it: whole multiples of a unit, at the ends the largest ones."""
    number = b.Round(x * (1 / unit))
    return b.Clip(number, b.like(x, -32768), b.like(x, 32767)) * unit
