"""Activations that layers apply to their results, by name."""

from __future__ import annotations

from collections.abc import Callable

from converter.graph.build import Builder, Value

# by the operators' names for them; "" is none
ACTIVATIONS: dict[str, Callable[[Builder, Value], Value]] = {
    "": lambda b, x: x,
    "Relu": lambda b, x: b.Relu(x),
    "Relu1": lambda b, x: b.Clip(x, -1, 1),
    "Relu6": lambda b, x: b.Clip(x, 0, 6),
    "Tanh": lambda b, x: b.Tanh(x),
    "Sigmoid": lambda b, x: b.Sigmoid(x),
}
