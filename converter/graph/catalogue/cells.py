"""Single steps of recurrent networks as Android computes them, and its L2 pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add

import onnx_ir as ir

from converter.errors import MappingError
from converter.graph.activations import ACTIVATIONS
from converter.graph.build import Builder, Value, writing
from converter.graph.demands import at_least
from converter.graph.extensions import extension
from converter.graph.recurrent import clipped
from converter.graph.sizes import static
from converter.record import record

Activation = Callable[[Value], Value]
# A function for one step: the builder, the input, the states, and the auxiliary input -> the new
# states, of which the first is the output.
Step = Callable[[Builder, Value, Sequence[Value], "Value | None"], Sequence[Value]]


def dense(b: Builder, x: Value, weights: Value) -> Value:
    """Multiply x [batch, in] by weights [out, in]."""
    return x @ b.Transpose(weights, perm=[1, 0])


def total(*terms: Value | None) -> Value:
    """Return the sum of the terms that are not None."""
    return reduce(add, [t for t in terms if t is not None])


def rnn_step(
    b: Builder,
    x: Value,
    h: Value,
    weights: Value,
    recurrent: Value,
    bias: Value | None,
    *more: Value,
) -> Value:
    """Return weights x + recurrent h + bias; `more` are an auxiliary input and its weights."""
    products = [dense(b, x, weights), dense(b, h, recurrent), bias]
    return total(*products, *([dense(b, *more)] if more else []))


@writing
def steps_of(
    b: Builder,
    step: Step,
    x: Value,
    states: Sequence[Value],
    aux: Value | None = None,
    backward: bool = False,
) -> list[Value]:
    """Loop over axis 0 of `x`, [steps, batch, size]; return the outputs of all steps, in the order
    of the input, and the final states.
    """
    own = x.shape
    size = None if own is None or len(own) < 3 else own[2]
    if aux is not None and not isinstance(size, int):
        raise MappingError("the shape of a sequence must be static", "X203")
    source = x if aux is None else b.Concat(x, aux, axis=2)
    if backward:
        source = source[::-1]
    with b.loop(b.Gather(b.Shape(x), 0), *states) as body:
        now, aside = body.Gather(source, body.iteration, axis=0), None
        if aux is not None and isinstance(size, int):
            now, aside = now[:, :size], now[:, size:]
        new = step(body, now, body.states, aside)
        *last, y = body.end(*new, body.Identity(new[0]))
    if y.shape is not None and own is not None:
        y.shape = ir.Shape([own[0], *list(y.shape)[1:]])
    return [y[::-1] if backward else y, *last]


@record
class Gate:
    """The weights of one gate.

    Those of the input [units, inputs], of the previous output [units, outputs], the bias [units],
    and optionally those of the cell state [units], of a layer normalization [units] and of an
    auxiliary input [units, inputs].
    """

    x: Value | None
    h: Value | None
    bias: Value | None
    cell: Value | None = None
    norm: Value | None = None
    aux: Value | None = None

    def __call__(
        self, b: Builder, x: Value, h: Value, cell: Value | None, aux: Value | None
    ) -> Value:
        """Compute the gate before its activation: products, peephole, layer norm (optional) and
        bias.
        """
        if self.x is None or self.h is None:
            raise MappingError("the weights of a gate are absent", "R131")
        y = total(dense(b, x, self.x), dense(b, h, self.h))
        if aux is not None and self.aux is not None:
            y = y + dense(b, aux, self.aux)
        if self.cell is not None and cell is not None:
            y = y + cell * self.cell
        if self.norm is not None:
            y = normalised(b, y) * self.norm
        return total(y, self.bias)


@record
class Cell:
    """A long short-term memory.

    An absent input gate is coupled to the forget gate (CIFG). The cell state is clipped (ONNX clips
    gates before their activation), the output may be projected. A clip of 0 means none. `hidden` is
    applied to the output before its projection, for example to round to quantized values.
    """

    input: Gate
    forget: Gate
    cell: Gate
    output: Gate
    projection: Value | None
    projection_bias: Value | None
    activation: str
    cell_clip: float
    proj_clip: float
    hidden: Callable[[Builder, Value], Value] | None = None

    def __call__(
        self, b: Builder, x: Value, h: Value, c: Value, aux: Value | None = None
    ) -> tuple[Value, Value]:
        """Return the output and the cell state after one step."""
        act = partial(ACTIVATIONS[self.activation], b)
        forget = b.Sigmoid(self.forget(b, x, h, c, aux))
        own = None if self.input.x is None else self.input(b, x, h, c, aux)
        enter = 1 - forget if own is None else b.Sigmoid(own)
        candidate = act(self.cell(b, x, h, None, aux))
        cell = forget * c + enter * candidate
        cell = clipped(b, cell, self.cell_clip)
        out = b.Sigmoid(self.output(b, x, h, cell, aux)) * act(cell)
        if self.projection is not None:
            out = out if self.hidden is None else self.hidden(b, out)
            out = total(dense(b, out, self.projection), self.projection_bias)
            out = clipped(b, out, self.proj_clip)
        return out, cell


def normalised(b: Builder, x: Value) -> Value:
    """Return (x - mean) / sqrt(variance + 1e-8) over the last axis."""
    centered = x - b.ReduceMean(x, [-1])
    variance = b.ReduceMean(centered * centered, [-1])
    return centered / b.Sqrt(variance + 1e-8)


@extension
def LSTMCell(
    b: Builder,
    x: Value,
    wi: Value | None,
    wf: Value,
    wc: Value,
    wo: Value,
    ri: Value | None,
    rf: Value,
    rc: Value,
    ro: Value,
    pi: Value | None,
    pf: Value | None,
    po: Value | None,
    bi: Value | None,
    bf: Value,
    bc: Value,
    bo: Value,
    projection: Value | None,
    projection_bias: Value | None,
    h: Value,
    c: Value,
    ni: Value | None = None,
    nf: Value | None = None,
    nc: Value | None = None,
    no: Value | None = None,
    *,
    activation: str,
    cell_clip: float,
    proj_clip: float,
) -> tuple[Value, Value, Value, Value]:
    """Return one step of a long short-term memory: `Cell`, with weights w of the input, r of the
    output, p of the cell state, n of the layer normalization, and biases b of the gates i, f, c, o.

    Results: zeros [batch, 3 or 4 times the units], output state, cell state, output. Source: NNAPI,
    LSTM.
    """
    gates = Gate(wi, ri, bi, pi, ni), Gate(wf, rf, bf, pf, nf), Gate(wc, rc, bc, None, nc)
    output = Gate(wo, ro, bo, po, no)
    cell = Cell(*gates, output, projection, projection_bias, activation, cell_clip, proj_clip)
    y, state = cell(b, x, h, c)
    zeros = state * 0
    scratch = b.Concat(*[zeros] * (3 if wi is None else 4), axis=1)
    return scratch, y, state, b.Identity(y)


@extension
def RNNCell(
    b: Builder, x: Value, w: Value, r: Value, bias: Value, h: Value, *, activation: str
) -> tuple[Value, Value]:
    """Return one step of a recurrent network: activation(w x + r h + bias), as state and as output.

    Source: NNAPI, RNN.
    """
    y = ACTIVATIONS[activation](b, rnn_step(b, x, h, w, r, bias))
    return y, b.Identity(y)


@extension(time=2)
def SVDF(
    b: Builder,
    x: Value,
    feature: Value,
    time: Value,
    bias: Value | None,
    state: Value,
    *,
    rank: int,
    activation: str,
) -> tuple[Value, Value]:
    """Return one step of a layer whose filters are products of a filter over features [filters,
    inputs] and one over time [filters, memory]; `rank` filters form one unit. Results: state,
    output.

    The state is [batch, filters * memory]. Each filter's memory is shifted and the newest feature
    is added at the end. The output is computed before the shift that leaves the last column of the
    state 0, as in AOSP. Source: NNAPI, SVDF.
    """
    at_least(1, rank=rank)
    filters, memory = static(time, "weights_time")
    features = b.Reshape(dense(b, x, feature), [-1, filters, 1])
    stored = b.Reshape(state, [-1, filters, memory])
    current = b.Concat(stored[:, :, : memory - 1], features, axis=2)
    products = b.ReduceSum(current * time, [2], keepdims=0)
    units = b.ReduceSum(b.Reshape(products, [-1, filters // rank, rank]), [2], keepdims=0)
    y = ACTIVATIONS[activation](b, total(units, bias))
    shifted = b.Concat(current[:, :, 1:], features * 0, axis=2)
    return b.Reshape(shifted, [-1, memory * filters]), y


@extension
def L2Pool(
    b: Builder,
    x: Value,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int] = (),
) -> Value:
    """Return the square root of the mean of squares over each window; padding does not count.

    ONNX's LpPool computes the sum instead of the mean. Source: NNAPI, L2_POOL_2D.
    """
    mean = b.AveragePool(
        x * x,
        kernel_shape=list(kernel_shape),
        strides=list(strides),
        pads=list(pads),
        dilations=list(dilations) or None,
    )
    return b.Sqrt(mean)
