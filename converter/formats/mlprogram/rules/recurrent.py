"""Recurrent operations as ONNX's own, whose gates stand in another order.

x is [steps, batch, size]; states of both directions stand side by side, [batch, 2 * hidden]. The
result of a single reverse direction is in the order of processing: its first step belongs to the
last input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.mlprogram.rules.context import MilReading, reading
from converter.graph.infer import Array
from converter.graph.value import Value
from converter.mapping.context import Reading
from converter.mapping.rules import custom

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
# places of ONNX's gates among those of the operation
LSTM, GRU, RNN = (0, 2, 1, 3), (2, 0, 1), (0,)  # i f o z -> i o f c; r o z -> z r h


def blocks(array: Array, order: Sequence[int]) -> Array:
    """The rows of each gate, in another order."""
    size = len(array) // len(order)
    return np.concatenate([array[i * size : (i + 1) * size] for i in order])


class Parts:
    """What the operations have in common, read in ONNX's order."""

    def __init__(self, r: Reading, order: Sequence[int]) -> None:
        self.t, self.b, self.order = reading(r), r.b, order
        self.x = self.t.value("x")
        self.dtype = (self.x.dtype or ir.DataType.FLOAT).numpy()
        self.direction = r.attr("direction", str, "forward")
        if self.direction not in ("forward", "reverse", "bidirectional"):
            raise MappingError(f"direction {self.direction!r} is not known", "R110")
        self.both = self.direction == "bidirectional"
        self.hidden = self.t.array("weight_hh").shape[-1]

    def stacked(self, name: str) -> Array | None:
        """[directions, gates * hidden, ...] of a parameter; None where it is left out."""
        if not self.t.has(name):
            return None
        found = [blocks(self.t.array(name), self.order)]
        if self.both:
            found.append(blocks(self.t.array(f"{name}_back"), self.order))
        return np.stack(found).astype(self.dtype)

    def bias(self) -> Array | None:
        """Both biases of ONNX; the operation has their sum."""
        found = self.stacked("bias")
        return None if found is None else np.concatenate([found, np.zeros_like(found)], axis=-1)

    def state(self, name: str) -> Value:
        """[batch, directions * hidden] -> [directions, batch, hidden]."""
        value = self.b.Cast(self.t.value(name), to=int(D.from_numpy(self.dtype)))
        ways = 2 if self.both else 1
        split = self.b.Reshape(value, [-1, ways, self.hidden])
        return self.b.Transpose(split, perm=[1, 0, 2])

    def final(self, state: Value) -> Value:
        """The way back."""
        ways = 2 if self.both else 1
        turned = self.b.Transpose(state, perm=[1, 0, 2])
        return self.b.Reshape(turned, [-1, ways * self.hidden])

    def sequence(self, y: Value, last: Value) -> Value:
        """[steps, directions, batch, hidden] -> [steps, batch, directions * hidden], or the last
        state alone as one step.
        """
        b = self.b
        if not self.t.attr("output_sequence", bool, False):
            return b.Unsqueeze(last, [0])
        turned = b.Transpose(y, perm=[0, 2, 1, 3])
        size = self.hidden * (2 if self.both else 1)
        found = b.Reshape(turned, b.Concat(b.Slice(b.Shape(turned), [0], [2], [0]), [size], axis=0))
        if self.direction != "reverse":
            return found
        return b.Slice(found, [-1], [np.iinfo(np.int64).min + 1], [0], [-1])

    def activations(self, *keys: tuple[str, str]) -> dict[str, Any]:
        words = [self.t.attr(k, str, default) for k, default in keys]
        for word in words:
            if word not in NAMES:
                raise MappingError(f"the activation {word!r} is not known", "R110")
        names = [NAMES[w] for w in words] * (2 if self.both else 1)
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


def lstm(r: Reading) -> Sequence[ir.Value]:
    p = Parts(r, LSTM)
    weights, recurrent = p.stacked("weight_ih"), p.stacked("weight_hh")
    peephole = _peepholes(p.t, p) if p.t.has("peephole") else None
    operands = [p.x, weights, recurrent, p.bias(), None]
    operands += [p.state("initial_h"), p.state("initial_c"), peephole]
    more = p.activations(RECURRENT, ("cell_activation", "tanh"), ("activation", "tanh"))
    more |= {"hidden_size": p.hidden, "direction": p.direction}
    clip = r.attr("clip", float, 0.0) if p.t.has("clip") else 0.0
    if clip:
        y, h, c = r.b.CellClippedLSTM(*operands, outputs=3, cell_clip=clip, **more)
    else:
        y, h, c = r.b.LSTM(*operands, outputs=3, **more)
    last, cell = p.final(h), p.final(c)
    return p.sequence(y, last), last, cell


def _peepholes(t: MilReading, p: Parts) -> Array:
    """Of the gates i, f, o -> i, o, f."""
    names = ["peephole", *(["peephole_back"] if p.both else [])]
    return np.stack([blocks(t.array(n), (0, 2, 1)) for n in names]).astype(p.dtype)


def gru(r: Reading) -> Sequence[ir.Value]:
    p = Parts(r, GRU)
    bias = p.bias()
    if p.t.has("input_bias"):
        own, inner = blocks(p.t.array("input_bias"), GRU), blocks(p.t.array("bias"), GRU)
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


def rnn(r: Reading) -> Sequence[ir.Value]:
    p = Parts(r, RNN)
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


RULES = [custom("", "lstm", lstm), custom("", "gru", gru), custom("", "rnn", rnn)]
