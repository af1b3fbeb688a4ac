"""Recurrent layers that the format lacks, step by step: plain RNNs, peepholes, lengths, computed weights, other activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from converter.formats.zhouyi.rewrites.register import attributes, operand, optional, static
from converter.graph.build import Builder
from converter.mapping.node import MappingError

LONGEST = 64  # steps; longer sequences would make files of many thousand layers
GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
FUNCTIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


# what the functions take beside the sum, with ONNX's defaults
PARAMETERS: dict[str, tuple[float, ...]] = {"HardSigmoid": (0.2, 0.5), "LeakyRelu": (0.01,), "ThresholdedRelu": (1.0,), "Elu": (1.0,)}
PLAIN = {"Sigmoid", "Tanh", "Relu", "Softsign", "Softplus"}


def parameters(names: list[str], alphas: list[float], betas: list[float]) -> list[tuple[float, ...]]:
    """alpha and beta of each function: the given ones are used up in the order of the functions that take any."""
    rest, found = {"alpha": list(alphas), "beta": list(betas)}, []
    for name in names:
        taken = zip(("alpha", "beta"), PARAMETERS.get(name, ()), strict=False)
        found.append(tuple(rest[key].pop(0) if rest[key] else default for key, default in taken))
    return found


class Unrolled:
    """One direction of a node, unrolled into `b`."""

    def __init__(self, node: ir.Node, b: Builder) -> None:
        self.node, self.b, self.a = node, b, attributes(node)
        self.kind = node.op_type
        steps, self.batch, _ = static(operand(node))
        if steps > LONGEST:
            raise MappingError(f"{steps} steps are too many to unroll")
        self.steps, self.h = steps, static(operand(node, 2))[2]
        w, r = (b.op("Transpose", b.op("Squeeze", operand(node, i), [0]), perm=[1, 0]) for i in (1, 2))
        self.w, self.r = w, r
        bias = optional(node, 3)
        zeros = np.zeros([1, 2 * GATES[self.kind] * self.h], self._type())
        self.wb, self.rb = b.ops("Split", bias if bias is not None else b.const(zeros), [zeros.size // 2] * 2, axis=1, outputs=2)
        names = (self.a.get("activations") or FUNCTIONS[self.kind])[: len(FUNCTIONS[self.kind])]
        more = parameters(names, *(list(self.a.get(f"activation_{k}") or []) for k in ("alpha", "beta")))
        # the clip is for the sums that enter the gates, not for the cell
        self.f = [self._function(name, self.a.get("clip") if i < 2 else None, p) for i, (name, p) in enumerate(zip(names, more, strict=True))]

    def _type(self) -> Any:
        dtype = operand(self.node).dtype
        return dtype.numpy() if dtype is not None else np.float32

    def _function(self, name: str, clip: float | None, more: tuple[float, ...]) -> Callable[[ir.Value], ir.Value]:
        if name not in PLAIN and name not in PARAMETERS:
            raise MappingError(f"the activation {name} has no counterpart")
        attrs: dict[str, Any] = dict(zip(("alpha", "beta"), more, strict=False))

        def apply(x: ir.Value) -> ir.Value:
            return self.b.op(name, self.b.op("Clip", x, self.b.like(x, -clip), self.b.like(x, clip)) if clip else x, **attrs)

        return apply

    def state(self, index: int) -> ir.Value:
        given = optional(self.node, index)
        if given is None:
            return self.b.const(np.zeros([self.batch, self.h], self._type()), "initial")
        return self.b.op("Reshape", given, [self.batch, self.h])

    def run(self) -> list[ir.Value]:
        b, x = self.b, operand(self.node)
        h, c = self.state(5), self.state(6) if self.kind == "LSTM" else None
        order = range(self.steps - 1, -1, -1) if self.a.get("direction") == "reverse" else range(self.steps)
        outputs: dict[int, ir.Value] = {}
        for t in order:
            now = b.op("Squeeze", b.op("Slice", x, [t], [t + 1], [0]), [0])
            new, cell = self.step(now, h, c)
            alive = self.alive(t)
            outputs[t] = new if alive is None else b.op("Where", alive, new, b.const(np.zeros([self.batch, self.h], self._type())))
            h = new if alive is None else b.op("Where", alive, new, h)
            c = cell if alive is None or cell is None or c is None else b.op("Where", alive, cell, c)
        y = b.op("Concat", *[b.op("Unsqueeze", outputs[t], [0, 1]) for t in range(self.steps)], axis=0)
        last = [b.op("Unsqueeze", v, [0]) for v in (h, c) if v is not None]
        return [y, *last]

    def alive(self, t: int) -> ir.Value | None:
        """[batch, h]: whether step t lies within each sequence."""
        lengths = optional(self.node, 4)
        if lengths is None:
            return None
        number = self.b.const(np.full([self.batch, self.h], t, lengths.dtype.numpy() if lengths.dtype else np.int32))
        return self.b.op("Less", number, self.b.op("Tile", self.b.op("Reshape", lengths, [self.batch, 1]), [1, self.h]))

    def step(self, x: ir.Value, h: ir.Value, c: ir.Value | None) -> tuple[ir.Value, ir.Value | None]:
        b, count = self.b, GATES[self.kind]
        left = b.op("Add", b.op("MatMul", x, self.w), self.wb)
        right = b.op("Add", b.op("MatMul", h, self.r), self.rb)
        if self.kind == "RNN":
            return self.f[0](b.op("Add", left, right)), None
        xs, hs = (b.ops("Split", v, [self.h] * count, axis=1, outputs=count) for v in (left, right))
        return self.lstm(xs, hs, c) if c is not None else (self.gru(x, h, xs, hs), None)

    def lstm(self, xs: Any, hs: Any, c: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Gates i, o, f, c; peepholes i, o, f."""
        b = self.b
        i, o, f, g = (b.op("Add", p, q) for p, q in zip(xs, hs, strict=True))
        peep = optional(self.node, 7)
        parts = b.ops("Split", peep, [self.h] * 3, axis=1, outputs=3) if peep is not None else (None, None, None)

        def seen(gate: ir.Value, part: ir.Value | None, cell: ir.Value) -> ir.Value:
            return gate if part is None else b.op("Add", gate, b.op("Mul", part, cell))

        i = self.f[0](seen(i, parts[0], c))
        f = b.op("Sub", b.like(i, 1), i) if self.a.get("input_forget") else self.f[0](seen(f, parts[2], c))
        cell = b.op("Add", b.op("Mul", f, c), b.op("Mul", i, self.f[1](g)))
        return b.op("Mul", self.f[0](seen(o, parts[1], cell)), self.f[2](cell)), cell

    def gru(self, x: ir.Value, h: ir.Value, xs: Any, hs: Any) -> ir.Value:
        """Gates z, r, h."""
        b = self.b
        z, r = (self.f[0](b.op("Add", p, q)) for p, q in zip(xs[:2], hs[:2], strict=True))
        if self.a.get("linear_before_reset", 0):
            n = self.f[1](b.op("Add", xs[2], b.op("Mul", r, hs[2])))
        else:
            weights = b.op("Slice", self.r, [2 * self.h], [3 * self.h], [1])
            bias = b.op("Slice", self.rb, [2 * self.h], [3 * self.h], [1])
            n = self.f[1](b.op("Add", xs[2], b.op("Add", b.op("MatMul", b.op("Mul", r, h), weights), bias)))
        return b.op("Add", b.op("Mul", b.op("Sub", b.like(z, 1), z), n), b.op("Mul", z, h))
