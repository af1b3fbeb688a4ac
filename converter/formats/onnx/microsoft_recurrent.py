"""com.microsoft DynamicQuantizeLSTM: X, and the state in each step, are rounded to bytes by their
own range before they meet the weights.

Source: onnxruntime's kernel. All of X that any sequence reaches is rounded at once, for each
direction by itself; the state of a whole batch is, where the kernel may take a batch in parts, as
many as it has threads. Behind the end of a sequence its row is zeros if Y is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.onnx.canonical import loop
from converter.formats.onnx.microsoft import ROWS
from converter.formats.onnx.microsoft_quantised import product
from converter.formats.onnx.op import Op, Results
from converter.graph.build import Builder
from converter.passes.decompositions.recurrent import Function, entry, gate_functions, lstm_gates

_T = ir.DataType
_WAYS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@ROWS.always("DynamicQuantizeLSTM")
def dynamic_quantize_lstm(op: Op, b: Builder) -> Results:
    """(X [steps, batch, I], W [ways, I, 4H], R [ways, H, 4H], B, lengths, h, c, P, scales and zero
    points of W and R [ways] or [ways, 4H]).
    """
    if op.attrs.get("layout", 0):
        raise MappingError("DynamicQuantizeLSTM with the batch first is not supported")
    ways = _WAYS[op.attrs.get("direction", "forward")]
    functions = gate_functions("LSTM", op.attrs, len(ways))
    if functions is None or op.shape(2)[0] != len(ways):
        raise MappingError(
            "DynamicQuantizeLSTM with these activations and directions is not supported"
        )
    found = [_direction(op, b, d, backward, functions[d]) for d, backward in enumerate(ways)]
    y = _joined(b, [b.op("Unsqueeze", each[0], [1]) for each in found], 1)
    return [
        y,
        *(_joined(b, [b.op("Unsqueeze", each[i], [0]) for each in found], 0) for i in (1, 2)),
    ][: len(op.outputs)]


def _direction(
    op: Op, b: Builder, d: int, backward: bool, functions: Sequence[Function]
) -> list[ir.Value]:
    """Y [steps, batch, H], then state and cell behind the last step, [batch, H] each."""
    size = op.shape(2)[1]
    lengths = None if (given := op.input(4)) is None else b.op("Cast", given, to=int(_T.INT64))
    steps = b.op("Shape", op.need(0), start=0, end=1)
    x = _turned(b, op.need(0), lengths) if backward else op.need(0)
    weights = [entry(b, op.need(i), d) for i in (1, 8, 9)]
    rows = product(
        b, b.ops("DynamicQuantizeLinear", _reached(b, x, lengths, steps), outputs=3), *weights
    )
    recurrent = [entry(b, op.need(i), d) for i in (2, 10, 11)]
    bias = (
        None
        if (both := op.input(3)) is None
        else b.op("Add", *b.ops("Split", entry(b, both, d), outputs=2, axis=0, num_outputs=2))
    )
    peepholes = (
        None
        if (three := op.input(7)) is None
        else list(b.ops("Split", entry(b, three, d), outputs=3, axis=0, num_outputs=3))
    )
    coupled, zeroed = bool(op.attrs.get("input_forget", 0)), op.has_output(0)

    def step(inner: Builder, t: ir.Value, states: list[ir.Value]) -> list[ir.Value]:
        (h, c), fed = states[:2], states[-1] if zeroed and lengths is not None else states[0]
        behind = product(inner, inner.ops("DynamicQuantizeLinear", fed, outputs=3), *recurrent)
        total = inner.op("Add", inner.op("Gather", rows, t, axis=0), behind)
        new = lstm_gates(
            inner,
            total if bias is None else inner.op("Add", total, bias),
            c,
            size,
            functions,
            peepholes,
            coupled,
        )
        if lengths is None:
            return [*new, new[0]]
        here = inner.op("Unsqueeze", inner.op("Greater", lengths, t), [1])
        kept = [inner.op("Where", here, n, old) for n, old in zip(new, (h, c), strict=True)]
        y = inner.op("Where", here, new[0], inner.like(new[0], 0))
        return [*kept, *([y] if zeroed else []), y]

    start = [_initial(op, b, i, d, size) for i in (5, 6)]
    results = loop(
        b,
        b.op("Squeeze", steps),
        [*start, *(start[:1] if zeroed and lengths is not None else [])],
        1,
        step,
    )
    (h, c), y = results[:2], results[-1]
    if lengths is not None:
        some = b.op("Unsqueeze", b.op("Greater", lengths, np.array(0)), [1])
        h, c = (b.op("Where", some, v, b.like(v, 0)) for v in (h, c))
    return [_turned(b, y, lengths) if backward else y, h, c]


def _reached(b: Builder, x: ir.Value, lengths: ir.Value | None, steps: ir.Value) -> ir.Value:
    """X, zeros in steps behind the end of the longest sequence: zero is in every range."""
    if lengths is None:
        return x
    places = b.op("Range", np.array(0), b.op("Squeeze", steps), np.array(1))
    here = b.op("Less", places, b.op("ReduceMax", lengths, keepdims=0))
    return b.op("Where", b.op("Unsqueeze", here, [1, 2]), x, b.like(x, 0))


def _turned(b: Builder, x: ir.Value, lengths: ir.Value | None) -> ir.Value:
    """Each sequence from its end to its start, [steps, batch, ...]."""
    if lengths is None:
        return b.op("Slice", x, [-1], [np.iinfo(np.int64).min], [0], [-1])
    return b.op("ReverseSequence", x, lengths, batch_axis=1, time_axis=0)


def _initial(op: Op, b: Builder, index: int, d: int, size: int) -> ir.Value:
    if (given := op.input(index)) is not None:
        return entry(b, given, d)
    shape = op.need(0).shape
    if shape is not None and isinstance(shape[1], int):
        return b.const(np.zeros((shape[1], size), np.float32))
    batch = b.op("Shape", op.need(0), start=1, end=2)
    return b.op(
        "ConstantOfShape", b.op("Concat", batch, [size], axis=0), value=np.zeros(1, np.float32)
    )


def _joined(b: Builder, parts: list[ir.Value], axis: int) -> ir.Value:
    return parts[0] if len(parts) == 1 else b.op("Concat", *parts, axis=axis)
