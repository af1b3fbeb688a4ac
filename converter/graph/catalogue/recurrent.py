"""Recurrent networks that ONNX's own operators cannot express."""

from __future__ import annotations

from collections.abc import Sequence

from converter.errors import MappingError
from converter.graph.build import Builder, Value
from converter.graph.extensions import extension
from converter.graph.recurrent import Recurrent, in_a_loop, written


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
    """ONNX's LSTM (same inputs, outputs and layouts) with every cell
    state c_t limited to +-`cell_clip`.

    Results Y, Y_h, Y_c of ONNX's LSTM. Source: ONNX, LSTM; NNAPI, LSTM for the limit.
    """
    attrs = {
        "direction": direction,
        "input_forget": input_forget,
        "activations": activations,
        "activation_alpha": activation_alpha,
        "activation_beta": activation_beta,
    }
    operands = [x, w, r, bias, lengths, hidden, cell, peepholes]
    layer = Recurrent("LSTM", attrs, operands, cell_clip)
    found = written(b, layer=layer, steps=in_a_loop)
    if found is None:
        raise MappingError(
            "CellClippedLSTM with these activations or weights of unknown size is not supported"
        )
    y, h, c = found
    return y, h, c


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
    """Return one step of Android's 16-bit LSTM, on real numbers: the gates are rounded to Q3.12,
    the cell state to Q4.11. Results: cell state, output.

    x [n, i], weights w [h, i] and r [h, h], biases [h], cell and state [n, h]. As Android computes
    it, the weights concatenated as (r, w) multiply the data concatenated as (x, state). Source:
    NNAPI, QUANTIZED_16BIT_LSTM.
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
    """Round x to multiples of a unit and saturate it to 16 bits."""
    number = b.Round(x * (1 / unit))
    return b.Clip(number, -32768, 32767) * unit
