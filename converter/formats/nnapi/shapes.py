"""Dimensions of outputs from dimensions and constants of inputs; Android's own validator does not look at them.

A shape is a list of ints with 0 for an unspecified dimension, or None when not even the rank is known. `infer` returns one per output.
Formulas are those of AOSP's code where the documentation slips (pooling sizes, LSTM scratch, SVDF state; see `operations.json`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from converter.formats.nnapi.operations import Binding
from converter.formats.nnapi.table import Lifetime, Operand, Subgraph

Shape = list[int] | None


class ShapeError(Exception):
    """Operand shapes that do not fit together; the message names the arguments."""


class Arguments:
    """A bound operation's arguments by name: shapes, constant values, flags."""

    def __init__(self, binding: Binding, subgraph: Subgraph, lifetimes: Sequence[Lifetime]) -> None:
        self.binding = binding
        self._subgraph = subgraph
        self._lifetimes = lifetimes

    def operand(self, name: str) -> Operand | None:
        index = self.binding.inputs.get(name)
        return self._subgraph.operands[index] if isinstance(index, int) else None

    def given(self, name: str) -> bool:
        """Whether the argument is there and is not an operand without value."""
        index = self.binding.inputs.get(name)
        return isinstance(index, int) and self._lifetimes[index] is not Lifetime.NO_VALUE

    def may_be_left_out(self, name: str) -> bool:
        """Whether the argument is an input of the model, which a run may give no value where it is optional."""
        index = self.binding.inputs.get(name)
        return isinstance(index, int) and self._lifetimes[index] is Lifetime.MODEL_INPUT

    def shape(self, name: str) -> Shape:
        operand = self.operand(name)
        return None if operand is None else shape_of(operand)

    def shapes(self, name: str) -> list[Shape]:
        indexes = self.binding.inputs[name]
        return [shape_of(self._subgraph.operands[i]) for i in indexes] if isinstance(indexes, list) else []

    def output_shape(self, name: str) -> Shape:
        """What the operand of an output states."""
        index = self.binding.outputs.get(name)
        return shape_of(self._subgraph.operands[index]) if isinstance(index, int) else None

    def rank(self, name: str) -> int | None:
        shape = self.shape(name)
        return None if shape is None else len(shape)

    def dim(self, name: str, axis: int) -> int:
        """One dimension of an argument; 0 when it is not known."""
        shape = self.shape(name)
        return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else 0

    def values(self, name: str) -> list[int] | None:
        """The elements of a constant tensor of integers; None when it is not a constant."""
        operand = self.operand(name)
        return None if operand is None or operand.value is None else [int(v) for v in operand.array().reshape(-1)]

    def scalar(self, name: str) -> Any:
        """The value of a constant scalar, the default of an argument that was left out, None when it is only known at run time."""
        operand = self.operand(name)
        if operand is None:
            return next((a.default for a in self.binding.signature.inputs if a.name == name), None)
        return operand.array().reshape(-1)[0].item() if operand.value is not None else None

    def axis(self, name: str, rank: int) -> int | None:
        """A constant axis counted from the front; ShapeError when it is outside the rank."""
        value = self.scalar(name)
        if value is None:
            return None
        if not -rank <= value < rank:
            raise ShapeError(f"{name} {value} is outside the rank {rank}")
        return int(value % rank)


def shape_of(operand: Operand) -> Shape:
    return None if operand.type.is_tensor and not operand.dimensions else [int(n) for n in operand.dimensions]


def expect(condition: bool, message: str) -> None:
    if not condition:
        raise ShapeError(message)


def agree(a: int, b: int, what: str) -> int:
    """The dimension that two sides share; 0 gives way to what is known."""
    expect(not a or not b or a == b, f"{what}: {a} and {b} differ")
    return a or b


def broadcast(a: Shape, b: Shape) -> Shape:
    if a is None or b is None:
        return None
    rank = max(len(a), len(b))
    pairs = zip([1] * (rank - len(a)) + a, [1] * (rank - len(b)) + b, strict=True)
    result = []
    for x, y in pairs:
        expect(x == y or x in (0, 1) or y in (0, 1), f"{a} and {b} cannot be broadcast")
        result.append(max(x, y) if x and y else (x or y if (x or y) > 1 else 0))
    return result


def window(size: int, kernel: int, stride: int, before: int, after: int, dilation: int = 1) -> int:
    """Positions of a window with explicit padding; 0 when something is not known."""
    if not size or not kernel:
        return 0
    room = size + before + after - ((kernel - 1) * dilation + 1)
    expect(room >= 0, f"a window of {(kernel - 1) * dilation + 1} does not fit into {size} + {before} + {after}")
    return room // stride + 1


def same_padding(size: int, kernel: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """What padding SAME adds before and after: enough for ceil(size / stride) positions, the odd one after."""
    total = max(0, (math.ceil(size / stride) - 1) * stride + (kernel - 1) * dilation + 1 - size)
    return total // 2, total - total // 2


def spatial(x: Arguments, kernel: tuple[int, int], dilation: tuple[int, int] = (1, 1)) -> tuple[int, int, int, int]:
    """(batch, output height, output width, input channels) of a windowed operation with `input`, in either layout."""
    batch, height, width, channels = channels_last(x, "input")
    sizes = []
    for size, k, d, (stride, before, after) in zip(
        (height, width),
        kernel,
        dilation,
        (("stride_height", "pad_top", "pad_bottom"), ("stride_width", "pad_left", "pad_right")),
        strict=True,
    ):
        step, scheme = x.scalar(stride), x.scalar("padding")
        if scheme is None and "padding" not in x.binding.inputs:
            pads = (x.scalar(before), x.scalar(after))
        else:
            pads = (0, 0) if scheme == 2 else same_padding(size, k, step, d) if scheme == 1 and step else (None, None)
        known = step and None not in pads
        sizes.append(window(size, k, step, pads[0] or 0, pads[1] or 0, d) if known else 0)
    return batch, sizes[0], sizes[1], channels


def channels_last(x: Arguments, name: str) -> tuple[int, int, int, int]:
    shape = x.shape(name) or [0, 0, 0, 0]
    expect(len(shape) == 4, f"{name} has rank {len(shape)}, not 4")
    n, a, b, c = shape
    return (n, b, c, a) if x.scalar("nchw") else (n, a, b, c)


def image(x: Arguments, n: int, h: int, w: int, c: int) -> Shape:
    flag = x.scalar("nchw")
    if flag is None and "nchw" in x.binding.inputs:
        return None if x.operand("nchw") is not None else [n, h, w, c]
    return [n, c, h, w] if flag else [n, h, w, c]


Rule = Callable[[Arguments], list[Shape]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def infer(binding: Binding, subgraph: Subgraph, lifetimes: Sequence[Lifetime]) -> list[Shape]:
    """The shape of each output of a bound operation, None where nothing is known; ShapeError when the inputs do not fit together."""
    from converter.formats.nnapi import shape_recurrent, shape_rules  # noqa: F401  they fill RULES

    found = RULES.get(binding.spec.name)
    return found(Arguments(binding, subgraph, lifetimes)) if found is not None else []


def reduced(shape: Shape, axes: Sequence[int] | None, keep: Any) -> Shape:
    """A shape with axes reduced to 1 or removed; everything removed leaves [1]."""
    if shape is None or axes is None or keep is None:
        return None
    rank = len(shape)
    for a in axes:
        expect(-rank <= a < rank, f"axis {a} is outside the rank {rank}")
    gone = {a % rank for a in axes}
    if keep and keep > 0:
        return [1 if i in gone else n for i, n in enumerate(shape)]
    return [n for i, n in enumerate(shape) if i not in gone] or [1]


def product(shape: Shape) -> int:
    """Number of elements, 0 when not known."""
    return 0 if shape is None else math.prod(shape)
