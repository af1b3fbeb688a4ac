"""Recurrent operations as ONNX's own, with another order of gates.

x is [steps, batch, size]; states of both directions are concatenated, [batch, 2 * hidden]. The
result of a single reverse direction is in the order of processing: its first step belongs to the
last input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.coreml.mlprogram.rules.context import LiftContext, LowerContext
from converter.formats.coreml.mlprogram.rules.fields import size_of
from converter.graph.infer import Array
from converter.graph.value import Value
from converter.mapping.rules import custom
from converter.passes.layout.axes import inverse

NAMES = {
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "scaled_tanh": "Tanh",  # alpha and beta are 1 inside of these operations
    "relu": "Relu",
    "linear": "Affine",
    "hard_sigmoid": "HardSigmoid",
    "sigmoid_hard": "HardSigmoid",
    "softsign": "Softsign",
    "softplus": "Softplus",
}
D = ir.DataType
IOS17, IOS18 = 8, 9  # specification versions
# indices of ONNX's gates among those of the operation
LSTM, GRU, RNN = (0, 2, 1, 3), (2, 0, 1), (0,)  # i f o z -> i o f c; r o z -> z r h


def blocks(array: Array, order: Sequence[int]) -> Array:
    """Reorder the rows of the gates."""
    if not array.ndim or len(array) % len(order):
        raise MappingError(
            f"weights of {len(order)} gates cannot have the shape {list(array.shape)}", "R105"
        )
    size = len(array) // len(order)
    return np.concatenate([array[i * size : (i + 1) * size] for i in order])


class CellParts:
    """The parameters that all recurrent operations have, in ONNX's layout."""

    def __init__(self, r: LiftContext, order: Sequence[int]) -> None:
        self.r, self.b, self.order = r, r.b, order
        self.x = self.r.x
        self.dtype = (self.x.dtype or ir.DataType.FLOAT).numpy()
        self.direction = r.attr("direction", str, "forward")
        if self.direction not in ("forward", "reverse", "bidirectional"):
            raise MappingError(f"direction {self.direction!r} is not known", "R110")
        self.both = self.direction == "bidirectional"
        self.ways = 2 if self.both else 1
        weights = self.r.array("weight_hh")
        if weights.ndim != 2:
            raise MappingError(f"weight_hh must have 2 axes, got {weights.ndim}", "R105")
        self.hidden = weights.shape[1]

    def stacked(self, name: str) -> Array | None:
        """Return a parameter as [directions, gates * hidden, ...]; None if it is omitted."""
        if not self.r.has(name):
            return None
        found = [blocks(self.r.array(name), self.order)]
        if self.both:
            found.append(blocks(self.r.array(f"{name}_back"), self.order))
        return np.stack(found).astype(self.dtype)

    def bias(self) -> Array | None:
        """Return both biases of ONNX; the operation has their sum."""
        found = self.stacked("bias")
        return None if found is None else np.concatenate([found, np.zeros_like(found)], axis=-1)

    def state(self, name: str) -> Value:
        """Reshape [batch, directions * hidden] to [directions, batch, hidden]."""
        value = self.b.Cast(self.r.value(name), to=D.from_numpy(self.dtype))
        split = self.b.Reshape(value, [-1, self.ways, self.hidden])
        return self.b.Transpose(split, perm=[1, 0, 2])

    def final(self, state: Value) -> Value:
        """Reshape [directions, batch, hidden] to [batch, directions * hidden]."""
        transposed = self.b.Transpose(state, perm=[1, 0, 2])
        return self.b.Reshape(transposed, [-1, self.ways * self.hidden])

    def sequence(self, y: Value, last: Value) -> Value:
        """Reshape [steps, directions, batch, hidden] to [steps, batch, directions * hidden]; if
        only the last state is an output, to one step.
        """
        b = self.b
        if not self.r.attr("output_sequence", bool, False):
            return b.Unsqueeze(last, [0])
        transposed = b.Transpose(y, perm=[0, 2, 1, 3])
        size = self.hidden * self.ways
        found = b.Reshape(transposed, b.Concat(b.Shape(transposed)[:2], [size], axis=0))
        if self.direction != "reverse":
            return found
        return found[::-1]

    def activations(self, *keys: tuple[str, str]) -> dict[str, Any]:
        """Return the attributes for the activations of the layer, for each direction. Raises
        MappingError R110 for unknown ones.
        """
        words = [self.r.attr(k, str, default) for k, default in keys]
        for word in words:
            if word not in NAMES:
                raise MappingError(f"activation {word!r} is not known", "R110")
        names = [NAMES[w] for w in words] * self.ways
        if "Affine" not in names:
            return {"activations": names}
        alphas = {"Affine": [1.0], "HardSigmoid": [0.2]}
        betas = {"Affine": [0.0], "HardSigmoid": [0.5]}
        return {
            "activations": names,
            "activation_alpha": [a for n in names for a in alphas.get(n, [])],
            "activation_beta": [a for n in names for a in betas.get(n, [])],
        }


RECURRENT = ("recurrent_activation", "sigmoid")


def lstm(r: LiftContext) -> Sequence[ir.Value]:
    """Lift an lstm: its sequence, last hidden state and last cell state."""
    p = CellParts(r, LSTM)
    weights, recurrent = p.stacked("weight_ih"), p.stacked("weight_hh")
    peephole = _peepholes(p) if p.r.has("peephole") else None
    operands = [p.x, weights, recurrent, p.bias(), None]
    operands += [p.state("initial_h"), p.state("initial_c"), peephole]
    more = p.activations(RECURRENT, ("cell_activation", "tanh"), ("activation", "tanh"))
    more |= {"hidden_size": p.hidden, "direction": p.direction}
    clip = r.attr("clip", float, 0.0) if p.r.has("clip") else 0.0
    if clip:
        y, h, c = r.b.CellClippedLSTM(*operands, outputs=3, cell_clip=clip, **more)
    else:
        y, h, c = r.b.LSTM(*operands, outputs=3, **more)
    last, cell = p.final(h), p.final(c)
    return p.sequence(y, last), last, cell


def _peepholes(p: CellParts) -> Array:
    """Reorder peephole weights from gates i, f, o to i, o, f."""
    names = ["peephole", *(["peephole_back"] if p.both else [])]
    return np.stack([blocks(p.r.array(n), (0, 2, 1)) for n in names]).astype(p.dtype)


def gru(r: LiftContext) -> Sequence[ir.Value]:
    """Lift a gru: its sequence and last hidden state."""
    p = CellParts(r, GRU)
    bias = p.bias()
    if p.r.has("input_bias"):
        own, inner = blocks(p.r.array("input_bias"), GRU), blocks(p.r.array("bias"), GRU)
        bias = np.concatenate([own, inner])[None].astype(p.dtype)
    more = p.activations(RECURRENT, ("activation", "tanh"))
    after = r.attr("reset_after", bool, False)
    operands = [p.x, p.stacked("weight_ih"), p.stacked("weight_hh"), bias, None]
    y, h = r.b.GRU(
        *operands,
        p.state("initial_h"),
        outputs=2,
        hidden_size=p.hidden,
        direction=p.direction,
        linear_before_reset=int(after),
        **more,
    )
    last = p.final(h)
    return p.sequence(y, last), last


def rnn(r: LiftContext) -> Sequence[ir.Value]:
    """Lift an rnn: its sequence and last hidden state."""
    p = CellParts(r, RNN)
    operands = [p.x, p.stacked("weight_ih"), p.stacked("weight_hh"), p.bias(), None]
    more = p.activations(("activation", "tanh"))
    y, h = r.b.RNN(
        *operands,
        p.state("initial_h"),
        outputs=2,
        hidden_size=p.hidden,
        direction=p.direction,
        **more,
    )
    last = p.final(h)
    return p.sequence(y, last), last


class Cell:
    """The properties of an ONNX operator that the operations need; raise MappingError for those
    that they do not support.

    `words`: keys of the activations and their defaults.
    """

    def __init__(
        self, w: LowerContext, order: Sequence[int], words: Sequence[tuple[str, str]]
    ) -> None:
        self.w, self.order = w, order
        self.direction = w.attr("direction", "forward")
        self.both = self.direction == "bidirectional"
        self.ways = 2 if self.both else 1
        self.steps, self.batch = (size_of(w.data, i) for i in range(2))
        self.hidden = w.static(2, "the weights")[2]
        unsupported = ("clip", "input_forget", "layout", "activation_alpha", "activation_beta")
        if w.has(4) or any(w.attr(k, 0) for k in unsupported):
            raise MappingError("sequence_lens, clip and activation parameters are not supported")
        names = list(w.attr("activations", None) or [])
        usual = [NAMES[d] for _, d in words]
        own = names[: len(words)] or usual
        back = {v: k for k, v in reversed(NAMES.items())}
        if (self.both and names and names[len(words) :] != own) or not set(own) <= set(back):
            raise MappingError(f"activations {', '.join(names)} are not supported")
        if {"Affine", "HardSigmoid"} & set(own):
            raise MappingError("activation parameters are not supported")
        self.words = {k: back[n] for (k, _), n in zip(words, own, strict=True)}
        half = w.low.carried(w.data) == D.FLOAT16
        if half and w.version < IOS17:
            raise MappingError("recurrent operations in half precision are not supported", "X206")

    def stacked(self, index: int, key: str) -> dict[str, Any]:
        """Return a parameter for each direction; both biases are added."""
        if not self.w.has(index):
            return {}
        array = self.w.constant(index, key).astype(self.w.real)
        if key == "bias":
            half = array.shape[-1] // 2
            array = array[:, :half] + array[:, half:]
        return {
            name: self.w.const(blocks(array[i], inverse(self.order)), name)
            for i, name in enumerate((key, f"{key}_back")[: len(array)])
        }

    def initial(self, index: int) -> ir.Value:
        """Reshape [directions, batch, hidden] to [batch, directions * hidden]; an omitted state is
        zeros.
        """
        value, shape = self.w.optional(index), [self.batch, self.ways * self.hidden]
        if value is None and isinstance(self.batch, int):
            return self.w.const(np.zeros(shape, self.w.real), "initial")
        if value is None:
            return self._zeros(shape)
        if self.both:
            size = [self.batch, self.ways, self.hidden]
            value = self.w.made("transpose", value.dtype, size, x=value, perm=[1, 0, 2])
        return self.w.made("reshape", value.dtype, shape, x=value, shape=reshape_sizes(shape))

    def _zeros(self, shape: Sequence[Any]) -> ir.Value:
        """Return initial states of zeros, with the batch size of the data at run time."""
        whole, w = ir.DataType.INT32, self.w
        sizes = w.made("shape", whole, [3], x=w.data)
        cut = {"begin": [1], "end": [2]}
        batch = w.made("slice_by_index", whole, [1], x=sizes, **cut)
        width = w.const(np.array([shape[1]], np.int32), "width")
        given = {"values": [batch, width], "axis": 0, "interleave": False}
        zero = w.const(np.zeros((), w.real), "zero")
        filled = {"shape": w.made("concat", whole, [2], **given), "value": zero}
        return w.made("fill", w.data.dtype, shape, **filled)

    def write(self, kind: str, states: dict[str, ir.Value], **given: Any) -> None:
        """Write the operation, and its results in ONNX's layout."""
        dtype = self.w.data.dtype
        outputs = [*self.w.node.outputs, None, None][: 1 + len(states)]
        sizes = [self.steps, self.batch, self.ways * self.hidden]
        made = [self.w.temporary("sequence", dtype, sizes)]
        made += [self.w.temporary("last", dtype, sizes[1:]) for _ in states]
        self.w.operation(
            *(kind, made),
            x=self.w.data,
            **{f"initial_{k}": v for k, v in states.items()},
            **self.stacked(1, "weight_ih"),
            **self.stacked(2, "weight_hh"),
            direction=self.direction,
            output_sequence=True,
            **self.words,
            **given,
        )
        if outputs[0] is not None:
            self._sequence(made[0], outputs[0])
        for value, out in zip(made[1:], outputs[1:], strict=True):
            if out is not None:
                self._last(value, out)

    def _sequence(self, value: ir.Value, out: ir.Value) -> None:
        """Reshape [steps, batch, directions * hidden] to [steps, directions, batch, hidden]."""
        if self.direction == "reverse":
            value = self.w.made("reverse", value.dtype, value.shape, x=value, axes=[0])
        if not self.both:
            self.w.operation("expand_dims", [out], x=value, axes=[1])
            return
        size = [self.steps, self.batch, self.hidden]
        parts = [self.w.temporary(n, value.dtype, size) for n in ("forward", "backward")]
        self.w.operation("split", parts, x=value, num_splits=2, axis=2)
        wide = [self.steps, 1, self.batch, self.hidden]
        rows = [self.w.made("expand_dims", p.dtype, wide, x=p, axes=[1]) for p in parts]
        self.w.operation("concat", [out], values=rows, axis=1, interleave=False)

    def _last(self, value: ir.Value, out: ir.Value) -> None:
        """Reshape [batch, directions * hidden] to [directions, batch, hidden]."""
        if not self.both:
            self.w.operation("expand_dims", [out], x=value, axes=[0])
            return
        shape = [self.batch, 2, self.hidden]
        split = self.w.made("reshape", value.dtype, shape, x=value, shape=reshape_sizes(shape))
        self.w.operation("transpose", [out], x=split, perm=[1, 0, 2])


def reshape_sizes(shape: Sequence[Any]) -> list[int]:
    """Return sizes for `reshape`, with -1 for an unknown one."""
    sizes = [n if isinstance(n, int) else -1 for n in shape]
    if sizes.count(-1) > 1:
        raise MappingError("at most one size may be unknown", "X203")
    return sizes


def write_lstm(w: LowerContext) -> None:
    """Write an LSTM; peepholes must be constant."""
    words = (RECURRENT, ("cell_activation", "tanh"), ("activation", "tanh"))
    cell = Cell(w, LSTM, words)
    peephole = {}
    if w.has(7):
        array = w.constant(7, "peepholes").astype(cell.w.real)
        names = ("peephole", "peephole_back")[: len(array)]
        peephole = {n: w.const(blocks(array[i], (0, 2, 1)), n) for i, n in enumerate(names)}
    states = {"h": cell.initial(5), "c": cell.initial(6)}
    cell.write("lstm", states, **cell.stacked(3, "bias"), **peephole)


def write_gru(w: LowerContext) -> None:
    """Write a GRU; the variant with the reset gate after the product (linear_before_reset) needs
    iOS18.
    """
    cell, after = (
        Cell(w, GRU, (RECURRENT, ("activation", "tanh"))),
        w.attr("linear_before_reset"),
    )
    if cell.both:
        raise MappingError("direction=bidirectional is not supported")
    if not after:
        cell.write("gru", {"h": cell.initial(5)}, **cell.stacked(3, "bias"))
        return
    w.needs(IOS18)
    biases = {}
    if w.has(3):
        array = w.constant(3, "the bias").astype(cell.w.real)[0]
        pair = (blocks(part, inverse(GRU)) for part in np.split(array, 2))
        biases = {k: w.const(a, k) for k, a in zip(("input_bias", "bias"), pair, strict=True)}
    cell.write("gru", {"h": cell.initial(5)}, reset_after=True, **biases)


def write_rnn(w: LowerContext) -> None:
    """Write an RNN of one direction."""
    cell = Cell(w, RNN, (("activation", "tanh"),))
    if cell.both:
        raise MappingError("direction=bidirectional is not supported")
    cell.write("rnn", {"h": cell.initial(5)}, **cell.stacked(3, "bias"))


RULES = [
    custom("LSTM", "lstm", lstm, write_lstm),
    custom("GRU", "gru", gru, write_gru),
    custom("RNN", "rnn", rnn, write_rnn),
]
