"""com.microsoft DynamicQuantizeLSTM: X, and the state in each step, are quantized to bytes by their
own range before they are multiplied by the weights.

Source: onnxruntime's kernel. All of X that any sequence reaches is quantized at once, separately
for each direction; the state is quantized for a whole batch, where the kernel may split a batch
into as many parts as it has threads. After the end of a sequence its row is zeros if Y is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.microsoft import ROWS, plus
from converter.formats.onnx.microsoft_quantized import product
from converter.formats.onnx.op import Op, Results
from converter.graph.build import Builder
from converter.graph.recurrent import (
    Function,
    entry,
    gate_functions,
    lstm_gates,
    with_batch_of,
)
from converter.graph.value import Value

_T = ir.DataType
_WAYS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@ROWS.always("DynamicQuantizeLSTM")
def dynamic_quantize_lstm(op: Op, b: Builder) -> Results:
    """(X [steps, batch, I], W [ways, I, 4H], R [ways, H, 4H], B, lengths, h, c, P, scales and zero
    points of W and R [ways] or [ways, 4H]).
    """
    if op.attr("layout", 0):
        raise MappingError("DynamicQuantizeLSTM with layout=1 is not supported")
    ways = _WAYS[op.attr("direction", "forward")]
    functions = gate_functions("LSTM", op.attrs)
    if functions is None or op.shape(2)[0] != len(ways):
        raise MappingError(
            "DynamicQuantizeLSTM with these activations and directions is not supported"
        )
    found = [_direction(op, b, d, backward, functions[d]) for d, backward in enumerate(ways)]
    ys, *states = zip(*found, strict=True)
    results = [_joined(b, ys, 1), *(_joined(b, each, 0) for each in states)]
    return results[: len(op.outputs)]


def _direction(
    op: Op, b: Builder, d: int, backward: bool, functions: Sequence[Function]
) -> list[Value]:
    """Return Y [steps, batch, H], then state and cell after the last step, [batch, H] each."""
    size = op.shape(2)[1]
    lengths = None if (given := op.input(4)) is None else b.Cast(given, to=_T.INT64)
    steps = b.Shape(op.x, start=0, end=1)
    x = _reversed(b, op.x, lengths) if backward else op.x
    weights = [entry(b, op.need(i), d) for i in (1, 8, 9)]
    rows = product(b, b.DynamicQuantizeLinear(_reached(b, x, lengths, steps), outputs=3), *weights)
    recurrent = [entry(b, op.need(i), d) for i in (2, 10, 11)]
    bias, peepholes = None, None
    if (given := op.input(3)) is not None:
        bias = b.Add(*b.Split(entry(b, given, d), outputs=2, axis=0, num_outputs=2))
    if (given := op.input(7)) is not None:
        peepholes = list(b.Split(entry(b, given, d), outputs=3, axis=0, num_outputs=3))
    coupled, zeroed = bool(op.attr("input_forget", 0)), op.has_output(0)
    start = [_initial(op, b, i, d, size) for i in (5, 6)]
    more = start[:1] if zeroed and lengths is not None else []
    with b.loop(b.Squeeze(steps), *start, *more) as inner:
        t, (h, c, *_), fed = inner.iteration, inner.states, inner.states[-1 if more else 0]
        behind = product(inner, inner.DynamicQuantizeLinear(fed, outputs=3), *recurrent)
        total = plus(inner.Gather(rows, t, axis=0) + behind, bias)
        new = lstm_gates(inner, total, c, size, functions, peepholes, coupled)
        y = new[0]
        if lengths is not None:
            here = inner.Unsqueeze(lengths > t, [1])
            new = [inner.Where(here, n, old) for n, old in zip(new, (h, c), strict=True)]
            y = inner.Where(here, y, inner.like(y, 0))
        h, c, *_, y = inner.end(*new, *([y] if more else []), y)
    if lengths is not None:
        some = b.Unsqueeze(lengths > 0, [1])
        h, c = (b.Where(some, v, b.like(v, 0)) for v in (h, c))
    return [_reversed(b, y, lengths) if backward else y, h, c]


def _reached(b: Builder, x: Value, lengths: Value | None, steps: Value) -> Value:
    """Return X with zeros in steps after the end of the longest sequence: zero is in every
    range.
    """
    if lengths is None:
        return x
    positions = b.Range(0, b.Squeeze(steps), 1)
    here = positions < b.ReduceMax(lengths, keepdims=0)
    return b.Where(b.Unsqueeze(here, [1, 2]), x, b.like(x, 0))


def _reversed(b: Builder, x: Value, lengths: Value | None) -> Value:
    """Reverse each sequence from its end to its start, [steps, batch, ...]."""
    if lengths is None:
        return x[::-1]
    return b.ReverseSequence(x, lengths, batch_axis=1, time_axis=0)


def _initial(op: Op, b: Builder, index: int, d: int, size: int) -> Value:
    if (given := op.input(index)) is not None:
        return with_batch_of(entry(b, given, d), op.x)
    shape = op.x.shape
    if shape is not None and isinstance(shape[1], int):
        return b.const(np.zeros((shape[1], size), np.float32))
    batch = b.Shape(op.x, start=1, end=2)
    return b.ConstantOfShape(b.Concat(batch, [size], axis=0), value=np.zeros(1, np.float32))


def _joined(b: Builder, ways: Sequence[Value], axis: int) -> Value:
    """Return the results of the directions along a new axis."""
    parts = [b.Unsqueeze(v, [axis]) for v in ways]
    return parts[0] if len(parts) == 1 else b.Concat(*parts, axis=axis)
