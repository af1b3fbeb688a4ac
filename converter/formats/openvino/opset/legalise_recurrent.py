"""An LSTM that LSTMSequence cannot say (peepholes, coupled gates) as a Loop over its steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from converter.graph.build import Builder, attrs_of
from converter.graph.infer import shape_of

T = ir.DataType
ACTIVATIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu", "softsign": "Softsign", "softplus": "Softplus"}


def lstm(node: ir.Node, b: Builder) -> list[ir.Value | None] | None:
    """Y [S, D, N, H] and the final states; None for sequences of unequal lengths, other activations or unknown sizes."""
    x, w, r, bias, lengths, h0, c0, peep = ([*node.inputs, *[None] * 8])[:8]
    a = attrs_of(node)
    size = shape_of(r) if r is not None else None
    names = [str(n).lower() for n in a.get("activations") or ["sigmoid", "tanh", "tanh"] * 2]
    if x is None or w is None or r is None or size is None or lengths is not None or any(n not in ACTIVATIONS for n in names):
        return None
    if a.get("layout", 0) or (a.get("activation_alpha") or a.get("activation_beta")):
        return None
    directions, _, hidden = size
    parts = []
    for d in range(directions):
        backwards = a.get("direction", "forward") == "reverse" or d == 1
        own = [None if v is None else _row(b, v, d) for v in (w, r, bias, h0, c0, peep)]
        functions = [ACTIVATIONS[n] for n in names[3 * d : 3 * d + 3]]
        parts.append(_direction(b, x, own, hidden, backwards, functions, a))
    if directions == 1:
        y, h, c = parts[0]
        return [b.op("Unsqueeze", y, [1]), b.op("Unsqueeze", h, [0]), b.op("Unsqueeze", c, [0])]
    joined = [b.op("Concat", *(b.op("Unsqueeze", p[i], [axis]) for p in parts), axis=axis) for i, axis in ((0, 1), (1, 0), (2, 0))]
    return list(joined)


def _row(b: Builder, v: ir.Value, d: int) -> ir.Value:
    return b.const(v.const_value.numpy()[d], v.name or "weights") if v.const_value is not None else b.op("Gather", v, b.const(np.int64(d)), axis=0)


def _direction(b: Builder, x: ir.Value, own: list[Any], hidden: int, backwards: bool, functions: list[str], a: Any) -> tuple[ir.Value, ...]:
    w, r, bias, h0, c0, peep = own
    if backwards:
        x = b.op("Slice", x, [-1], [np.iinfo(np.int64).min], [0], [-1])
    sizes = b.op("Shape", x)
    zeros = b.op("Expand", b.like(x, 0), b.op("Concat", b.op("Slice", sizes, [1], [2]), [hidden], axis=0))
    inner = b.body("step")
    number = inner.input("t", T.INT64, [])
    inner.input("go", T.BOOL, [])
    h, c = (inner.input(n, x.dtype or T.FLOAT, [None, hidden]) for n in ("h", "c"))
    step = inner.op("Gather", x, number, axis=0)
    gates = inner.op("Add", inner.op("MatMul", step, _turned(b, w)), inner.op("MatMul", h, _turned(b, r)))
    if bias is not None:
        gates = inner.op("Add", gates, b.op("Add", *b.ops("Split", bias, [4 * hidden] * 2, axis=0, outputs=2)))
    i, o, f, g = inner.ops("Split", gates, [hidden] * 4, axis=1, outputs=4)
    pi, po, pf = b.ops("Split", peep, [hidden] * 3, axis=0, outputs=3) if peep is not None else (None, None, None)
    i = _gate(inner, i, pi, c, functions[0], a)
    f = inner.op("Sub", inner.like(i, 1), i) if a.get("input_forget", 0) else _gate(inner, f, pf, c, functions[0], a)
    g = _gate(inner, g, None, c, functions[1], a)
    cell = inner.op("Add", inner.op("Mul", f, c), inner.op("Mul", i, g))
    out = inner.op("Mul", _gate(inner, o, po, cell, functions[0], a), inner.op(functions[2], cell))
    inner.output(inner.const(True, "again"), out, cell)
    inner.output(out)
    count = b.op("Gather", sizes, b.const(np.int64(0)), axis=0)
    final_h, final_c, y = b.ops("Loop", count, True, zeros if h0 is None else h0, zeros if c0 is None else c0, body=inner.graph, outputs=3)
    return (b.op("Slice", y, [-1], [np.iinfo(np.int64).min], [0], [-1]) if backwards else y), final_h, final_c


def _turned(b: Builder, v: ir.Value) -> ir.Value:
    return b.const(v.const_value.numpy().T, v.name or "weights") if v.const_value is not None else b.op("Transpose", v, perm=[1, 0])


def _gate(b: Builder, v: ir.Value, peep: ir.Value | None, cell: ir.Value, function: str, a: Any) -> ir.Value:
    if peep is not None:
        v = b.op("Add", v, b.op("Mul", peep, cell))
    if a.get("clip"):
        v = b.op("Clip", v, b.like(v, -a["clip"]), b.like(v, a["clip"]))
    return b.op(function, v)
