"""Unusual but valid ONNX graphs, each target's file in the engine that it is for.

    python tests/unusual_graphs.py [--count N] [--seed S] [--targets onnx,openvino,...] [--keep DIR]

Sizes 0, rank 0, one operand, empty reductions, extreme strides and bounds, unused inputs, outputs
that are inputs, equal constants, dynamic dimensions, NaN and infinities, integers beyond 32 bits,
half precision, quantized operands, and chains of such operators. The graphs are made with
onnx.helper, not with netconv's own builder. The expected numbers are onnxruntime's without
optimizations; where the onnx package's reference implementation computes something else, the case
is left out: the specification is silent, or one of them is wrong.

A target without an engine among the packages is judged by the kit of judges (see judged.py) where
that is present.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import math
import random
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import converter
from converter.engines import file_child
from converter.engines.file import MODULES
from converter.errors import ConverterError
from hostile import supervise

F = np.float32
OPSET = 21
BIG = 2**31 - 1
ENGINES = {"onnx": "onnxruntime", "openvino": "openvino", "tflite": "litert"}
SUFFIXES = {
    "onnx": ".onnx",
    "openvino": ".xml",
    "tflite": ".tflite",
    "coreml": ".mlmodel",
    "mlprogram": ".mlpackage",
    "zhouyi": ".txt",
    "nnapi": ".nnapi.json",
}
TARGETS = ("onnx", "onnx+opset=13", "openvino", "openvino+ir=10", "tflite")


@dataclass
class Graph:
    """A graph in the making. `r` and `rng` are seeded; values have names and numpy arrays: the
    numbers that the generator knows of inputs and constants.
    """

    seed: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    free: list[str] = field(default_factory=list)
    atol: float = 2e-4
    rtol: float = 2e-3

    def __post_init__(self) -> None:
        self.r = random.Random(self.seed)
        self.rng = np.random.default_rng(self.r.randrange(1 << 32))

    def one(self, *choices: Any) -> Any:
        return self.r.choice(choices)

    def numbers(self, shape: Sequence[int], dtype: Any = F) -> np.ndarray:
        drawn = self.rng.integers(0 if np.dtype(dtype).kind == "u" else -9, 10, tuple(shape))
        if np.dtype(dtype).kind == "b":
            return np.asarray(drawn > 0)
        return np.asarray(drawn / 4 if np.dtype(dtype).kind == "f" else drawn, dtype)

    def input(self, shape: Sequence[int], dtype: Any = F, data: Any = None) -> str:
        name = f"x{len(self.feeds)}"
        if data is None:
            self.free.append(name)
        self.feeds[name] = self.numbers(shape, dtype) if data is None else np.asarray(data, dtype)
        return name

    def any(self, shape: Sequence[int], *dtypes: Any) -> str:
        """Return an input for an operator that moves its elements, of any type and any number."""
        dtype = np.dtype(self.one(F, F, F, *(dtypes or MOVED)))
        data = self.numbers(shape, dtype)
        if dtype.kind == "f" and self.r.random() < 0.2:
            places = self.rng.random(data.shape) < 0.3
            data = np.where(places, self.rng.choice([np.nan, np.inf, -np.inf], data.shape), data)
        elif dtype == np.int64 and self.r.random() < 0.3:
            data = data * 2**33 + data
        return self.input((), dtype, data)

    def const(self, data: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(data, dtype), name))
        return name

    def operand(self, shape: Sequence[int], dtype: Any = F) -> str:
        """Return an input or a constant."""
        if self.r.random() < 0.6:
            return self.input(shape, dtype)
        return self.const(self.numbers(shape, dtype), dtype)

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        names = [f"{kind.lower()}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(
            helper.make_node(kind, inputs, names, f"n{len(self.nodes)}", **attributes)
        )
        return names

    def shape(
        self, low: int = 0, high: int = 4, sizes: Sequence[int] = (0, 1, 1, 2, 3)
    ) -> list[int]:
        return [self.one(*sizes) for _ in range(self.r.randint(low, high))]

    def axis(self, rank: int) -> int:
        return self.r.randrange(-rank, rank) if rank else 0

    def axes(self, rank: int) -> list[int]:
        chosen = self.r.sample(range(rank), self.r.randint(0, rank))  # in any order
        return [a - rank if self.r.random() < 0.3 else a for a in chosen]

    def broadcast(self, shape: Sequence[int]) -> list[int]:
        """Return a shape that broadcasts with another one."""
        kept = list(shape)[self.r.randint(0, len(shape)) :]
        return [1 if self.r.random() < 0.3 else d for d in kept]


H = np.float16
MOVED = (np.int64, np.int32, np.uint8, np.int8, np.bool_, H)
MAKERS: dict[str, Callable[[Graph], list[str]]] = {}
Maker = Callable[[Graph], list[str]]


def maker(*names: str) -> Callable[[Callable[..., list[str]]], Callable[..., list[str]]]:
    """Register a maker, or one for each of several operators, which it is given as `kind`."""

    def enter(make: Callable[..., list[str]]) -> Callable[..., list[str]]:
        for name in names or (make.__name__,):
            MAKERS[name] = (lambda g, n=name: make(g, n)) if names else make
        return make

    return enter


UNARY = (
    "Abs Neg Sign Relu Floor Ceil Round Sigmoid Tanh Exp Erf Softplus HardSwish Identity Not "
    "Softsign Gelu Elu Mish Selu"
)


@maker(*UNARY.split())
def unary(g: Graph, kind: str) -> list[str]:
    integral = kind in ("Abs", "Neg", "Sign", "Relu", "Identity")
    dtype = bool if kind == "Not" else g.one(F, F, np.int32, np.int64) if integral else F
    if kind == "Identity":
        return g.op(kind, g.any(g.shape(high=5)))
    if dtype == F and g.r.random() < 0.1:
        dtype, g.rtol, g.atol = H, 1e-2, 1e-3
    data = g.numbers(g.shape(high=5), dtype)
    if dtype == np.int64 and g.one(0, 0, 1):
        data = data * 2**33 + data
        return g.op(kind, g.input((), dtype, data))
    return g.op(kind, g.input(data.shape, dtype))


@maker("IsNaN", "IsInf")
def is_special(g: Graph, kind: str) -> list[str]:
    data = g.numbers(g.shape(high=5))
    data[g.rng.random(data.shape) < 0.5] = g.one(np.nan, np.inf, -np.inf)
    more = {"detect_negative": g.one(0, 1)} if kind == "IsInf" else {}
    return g.op(kind, g.input((), F, data), **more)


@maker()
def NonZero(g: Graph) -> list[str]:
    return g.op("NonZero", g.input(g.shape(1, 4, (1, 2, 3)), g.one(F, np.int64, bool)))


@maker("And", "Or", "Xor")
def logic(g: Graph, kind: str) -> list[str]:
    shape = g.shape(high=5)
    return g.op(kind, g.input(shape, bool), g.operand(g.broadcast(shape), bool))


@maker("BitwiseAnd", "BitwiseXor")
def bits(g: Graph, kind: str) -> list[str]:
    shape, dtype = g.shape(), g.one(np.uint8, np.int8, np.int32)
    return g.op(kind, g.input(shape, dtype), g.operand(g.broadcast(shape), dtype))


@maker("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Equal", "Less", "GreaterOrEqual", "PRelu")
def binary(g: Graph, kind: str) -> list[str]:
    dtype = g.one(F, F, np.int32, np.int64)
    shape = g.shape(high=5)
    if kind == "PRelu":
        return g.op(kind, g.input(shape), g.operand(g.broadcast(shape)))
    if dtype == F and kind in ("Add", "Sub", "Mul", "Equal", "Less") and g.r.random() < 0.15:
        dtype, g.rtol, g.atol = H, 1e-2, 1e-2
    other = g.numbers(g.broadcast(shape), dtype)
    if dtype == np.int64 and kind in ("Add", "Sub", "Equal", "Less") and g.one(0, 0, 1):
        other = other * 2**33 + other
    if kind in ("Div", "Mod", "Pow"):
        other = np.abs(other) + np.asarray(1, dtype)
        if kind != "Pow":
            other = (other * g.one(1, -1)).astype(dtype)
    first = g.numbers(shape, dtype)
    if kind == "Pow":
        first = np.abs(first)
    b = g.input((), dtype, other) if g.one(0, 1) else g.const(other, dtype)
    pair = [g.input((), dtype, first), b]
    more = {"fmod": 1 if dtype == F else g.one(0, 1)} if kind == "Mod" else {}
    if kind not in ("Div", "Mod", "Pow", "PRelu") and g.one(0, 1):
        pair.reverse()
    return g.op(kind, *pair, **more)


@maker("Sum", "Mean", "Max", "Min")
def variadic(g: Graph, kind: str) -> list[str]:
    dtype = F if kind in ("Sum", "Mean") else g.one(F, np.int32, np.int64)
    shape = g.shape()
    operands = [g.broadcast(shape) for _ in range(g.one(0, 1, 2, 3))]
    names = [g.input(shape, dtype), *(g.operand(s, dtype) for s in operands)]
    return g.op(kind, *g.r.sample(names, len(names)))


@maker("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
       "ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum")  # fmt: skip
def reduction(g: Graph, kind: str) -> list[str]:
    shape = g.shape()
    data = g.numbers(shape)
    x = g.input((), F, np.abs(data) + F(0.5) if kind == "ReduceLogSum" else data)
    axes = g.axes(len(shape))
    given = [g.const(axes)] if axes or g.one(0, 1) else []
    return g.op(kind, x, *given, keepdims=g.one(0, 1), noop_with_empty_axes=g.one(0, 0, 1))


@maker("ArgMax", "ArgMin")
def extreme_index(g: Graph, kind: str) -> list[str]:
    shape = g.shape(1, 4, (1, 2, 3))
    return g.op(kind, g.input(shape, g.one(F, np.int32)), axis=g.axis(len(shape)),
                keepdims=g.one(0, 1), select_last_index=g.one(0, 1))  # fmt: skip


@maker()
def TopK(g: Graph) -> list[str]:
    shape = g.shape(1, 3, (1, 2, 4))
    axis = g.axis(len(shape))
    data = g.rng.permutation(math.prod(shape)).reshape(shape)
    k = g.r.randint(0, shape[axis])
    return g.op("TopK", g.input((), F, data), g.const([k]), outputs=2, axis=axis,
                largest=g.one(0, 1), sorted=1)  # fmt: skip


@maker()
def Slice(g: Graph) -> list[str]:
    shape = g.shape(1, 4, (0, 1, 3, 5))
    axes = g.axes(len(shape))
    limits = (-(2**31), -BIG, -6, -2, -1, 0, 1, 2, 6, BIG)
    steps = [g.one(1, 1, 2, -1, -2, 7, -7, BIG, -BIG) for _ in axes]
    starts, ends = ([g.one(*limits) for _ in axes] for _ in range(2))
    # "to the end" backwards is understood in more than one way
    ends = [
        g.one(-BIG, -6, 0, 1) if s < 0 and e == BIG else e for s, e in zip(steps, ends, strict=True)
    ]
    dtype = g.one(np.int64, np.int32)
    return g.op("Slice", g.any(shape), *(g.const(v, dtype) for v in (starts, ends, axes, steps)))


@maker()
def Pad(g: Graph) -> list[str]:
    shape = g.shape(1, 4, (2, 3, 4))
    mode = g.one("constant", "constant", "edge", "reflect")
    low = -1 if mode == "constant" else 0
    pads = [g.r.randint(low, 1) for _ in range(2 * len(shape))]
    value = [g.const(g.one(0, 1.5, -2), F)] if mode == "constant" and g.one(0, 1) else []
    x = g.input(shape) if value else g.any(shape, F, np.int32, np.int64)
    return g.op("Pad", x, g.const(pads), *value, mode=mode)


@maker()
def Expand(g: Graph) -> list[str]:
    wanted = g.shape()
    return g.op("Expand", g.any(g.broadcast([d or 1 for d in wanted])), g.const(wanted))


@maker()
def Reshape(g: Graph) -> list[str]:
    shape = g.shape()
    count = math.prod(shape)
    wanted = g.one(
        [count], [1, count], [count, 1, 1], [-1] if count else [0], [1] * g.one(0, 2, 5) + [count]
    )
    allow = int(0 in wanted) or g.one(0, 1)
    return g.op("Reshape", g.any(shape), g.const(wanted), allowzero=allow)


@maker()
def Flatten(g: Graph) -> list[str]:
    shape = g.shape()
    return g.op("Flatten", g.any(shape), axis=g.r.randint(-len(shape), len(shape)))


@maker()
def Squeeze(g: Graph) -> list[str]:
    shape = g.shape(1, 5, (1, 1, 2, 0))
    ones = [i - g.one(0, len(shape)) for i, d in enumerate(shape) if d == 1]
    return g.op("Squeeze", g.any(shape), g.const(g.r.sample(ones, len(ones))))


@maker()
def Unsqueeze(g: Graph) -> list[str]:
    shape = g.shape(0, 3)
    rank = len(shape) + g.one(1, 2)
    return g.op("Unsqueeze", g.any(shape), g.const(g.r.sample(range(rank), rank - len(shape))))


@maker()
def Transpose(g: Graph) -> list[str]:
    shape = g.shape(0, 6)
    more = {"perm": g.r.sample(range(len(shape)), len(shape))} if g.one(0, 1, 1) and shape else {}
    return g.op("Transpose", g.any(shape), **more)


@maker()
def Concat(g: Graph) -> list[str]:
    shape = g.shape(1, 4)
    axis = g.axis(len(shape))
    parts = []
    for _ in range(g.one(1, 2, 4)):
        part = list(shape)
        part[axis] = g.one(0, 1, 2)
        parts.append(g.operand(part))
    return g.op("Concat", g.input(shape), *parts, axis=axis)


@maker()
def Split(g: Graph) -> list[str]:
    sizes = [g.one(0, 1, 2) for _ in range(g.one(1, 2, 3))]
    shape = g.shape(1, 4)
    axis = g.axis(len(shape))
    shape[axis] = sum(sizes)
    return g.op("Split", g.any(shape), g.const(sizes), axis=axis, outputs=len(sizes))


@maker()
def Tile(g: Graph) -> list[str]:
    shape = g.shape(0, 4)
    return g.op("Tile", g.any(shape), g.const([g.one(0, 1, 1, 2) for _ in shape]))


@maker()
def Gather(g: Graph) -> list[str]:
    shape = g.shape(1, 4, (1, 2, 3))
    axis = g.axis(len(shape))
    indices = g.rng.integers(-shape[axis], shape[axis], g.shape(0, 2))
    where = g.const(indices) if g.one(0, 1) else g.input((), np.int64, indices)
    return g.op("Gather", g.any(shape), where, axis=axis)


@maker()
def GatherElements(g: Graph) -> list[str]:
    shape = g.shape(1, 3, (1, 2, 3))
    axis = g.axis(len(shape))
    picked = [g.one(*range(d + 1)) for d in shape]
    indices = g.rng.integers(-shape[axis], shape[axis], picked)
    return g.op("GatherElements", g.any(shape), g.input((), np.int64, indices), axis=axis)


@maker()
def GatherND(g: Graph) -> list[str]:
    shape = g.shape(1, 4, (1, 2, 3))
    depth = g.r.randint(1, len(shape))
    lead = g.shape(0, 2, (1, 2))
    indices = np.stack([g.rng.integers(-d, d, lead) for d in shape[:depth]], -1)
    return g.op("GatherND", g.any(shape), g.input((), np.int64, indices))


@maker("ScatterElements", "ScatterND")
def scatter(g: Graph, kind: str) -> list[str]:
    shape = g.shape(1, 3, (2, 3))
    how = g.one("none", "add", "mul", "max", "min")
    if kind == "ScatterND":
        depth = g.r.randint(1, len(shape))
        flat = g.r.sample(range(math.prod(shape[:depth])), g.one(0, 1, 2))
        indices = np.stack(np.unravel_index(np.array(flat, int), shape[:depth]), -1).reshape(
            len(flat), depth
        )
        updates = g.input([len(flat), *shape[depth:]])
        return g.op(kind, g.input(shape), g.input((), np.int64, indices), updates, reduction=how)
    axis = g.axis(len(shape))
    indices = np.argsort(g.rng.random(shape), axis)
    if how == "none" and g.one(0, 1):
        indices -= shape[axis]
    return g.op(kind, g.input(shape), g.const(indices), g.input(shape), axis=axis, reduction=how)


@maker()
def Where(g: Graph) -> list[str]:
    shape = g.shape()
    dtype = g.one(F, F, np.int32, np.int64, bool, np.uint8)
    return g.op("Where", g.input(g.broadcast(shape), bool), g.input(shape, dtype),
                g.operand(g.broadcast(shape), dtype))  # fmt: skip


@maker()
def CumSum(g: Graph) -> list[str]:
    shape = g.shape(1, 4)
    return g.op("CumSum", g.input(shape), g.const(g.axis(len(shape))), exclusive=g.one(0, 1),
                reverse=g.one(0, 1))  # fmt: skip


@maker()
def OneHot(g: Graph) -> list[str]:
    depth = g.one(1, 3)
    indices = g.rng.integers(-depth, depth, g.shape(0, 2))
    rank = indices.ndim + 1
    return g.op("OneHot", g.input((), np.int64, indices), g.const([depth]), g.const([-1, 2.5], F),
                axis=g.axis(rank))  # fmt: skip


@maker()
def MatMul(g: Graph) -> list[str]:
    k, batch = g.one(0, 1, 3), g.shape(0, 2, (1, 2))
    a = [k] if g.one(0, 0, 1) else [*g.broadcast(batch), g.one(0, 1, 2), k]
    b = [k] if g.one(0, 0, 1) else [*batch, k, g.one(0, 1, 2)]
    return g.op("MatMul", g.input(a), g.operand(b))


@maker()
def Gemm(g: Graph) -> list[str]:
    m, k, n = g.one(1, 2), g.one(0, 1, 3), g.one(1, 3)
    ta, tb = g.one(0, 1), g.one(0, 1)
    inputs = [g.input([k, m] if ta else [m, k]), g.operand([n, k] if tb else [k, n])]
    if g.one(0, 1):
        inputs.append(g.operand(g.one([], [1], [n], [m, 1], [1, n], [m, n])))
    return g.op(
        "Gemm",
        *inputs,
        transA=ta,
        transB=tb,
        alpha=g.one(1.0, 0.0, -0.5),
        beta=g.one(1.0, 0.0, 2.0),
    )


def window(g: Graph, n: int, pad: bool = True) -> dict[str, Any]:
    """Draw kernel, strides, dilations and pads of a window over n axes; all pads are smaller than
    the kernel.
    """
    kernel = [g.one(1, 2, 3) for _ in range(n)]
    how: dict[str, Any] = {"kernel_shape": kernel, "strides": [g.one(1, 2, 3) for _ in kernel]}
    form = g.one("pads", "same", "dilations", "valid")
    if form == "same":
        how["auto_pad"] = g.one("SAME_UPPER", "SAME_LOWER")
    elif form == "valid":
        how["auto_pad"] = "VALID"
    elif pad:
        how["pads"] = [g.r.randint(0, k - 1) for k in kernel * 2]
    if form == "dilations":
        how["dilations"] = [g.one(1, 2) for _ in kernel]
    return how


@maker()
def Conv(g: Graph) -> list[str]:
    n = g.one(1, 2, 2, 3)
    how = window(g, n)
    groups, each = g.one(1, 1, 2, 4), g.one(1, 2)
    out = groups * g.one(1, 2)
    x = g.input([g.one(1, 2), groups * each, *(g.one(5, 7) for _ in range(n))])
    w = g.operand([out, each, *how["kernel_shape"]])
    bias = [g.operand([out])] if g.one(0, 1) else []
    return g.op("Conv", x, w, *bias, group=groups, **how)


@maker()
def ConvTranspose(g: Graph) -> list[str]:
    n = g.one(1, 2, 2)
    kernel = [g.one(2, 3) for _ in range(n)]
    strides = [g.one(1, 2) for _ in kernel]
    how: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
    if g.one(0, 1):
        how["pads"] = [g.r.randint(0, k - 1) for k in kernel * 2]
        how["output_padding"] = [g.r.randint(0, s - 1) for s in strides]
    if g.one(0, 1):
        how["dilations"] = [g.one(1, 2) for _ in kernel]
    groups = g.one(1, 2)
    x = g.input([1, 2, *(g.one(3, 5) for _ in kernel)])
    w = g.const(g.numbers([2, g.one(1, 2), *kernel]), F)
    return g.op("ConvTranspose", x, w, group=groups, **how)


@maker("MaxPool", "AveragePool", "LpPool")
def pool(g: Graph, kind: str) -> list[str]:
    n = g.one(1, 2, 2, 3)
    how = window(g, n)
    if "auto_pad" in how and kind != "MaxPool":
        how.pop("dilations", None)
    if kind == "AveragePool":
        how["count_include_pad"] = g.one(0, 1)
    if kind == "LpPool":
        how["p"] = g.one(1, 2, 3)
    if "auto_pad" not in how and kind == "MaxPool":
        how["ceil_mode"] = g.one(0, 1)
    return g.op(kind, g.input([1, 2, *(g.one(5, 6) for _ in range(n))]), **how)


@maker("GlobalAveragePool", "GlobalMaxPool")
def global_pool(g: Graph, kind: str) -> list[str]:
    return g.op(kind, g.input([g.one(1, 2), g.one(1, 3), *g.shape(1, 3, (1, 3))]))


@maker("Softmax", "LogSoftmax", "Hardmax")
def softmax(g: Graph, kind: str) -> list[str]:
    shape = g.shape(1, 5, (1, 1, 2, 3))
    data = g.rng.permutation(math.prod(shape)).reshape(shape) / 4
    return g.op(kind, g.input((), F, data), axis=g.axis(len(shape)))


@maker()
def LayerNormalization(g: Graph) -> list[str]:
    shape = g.shape(1, 4, (2, 3))
    axis = g.axis(len(shape))
    tail = shape[axis:]
    bias = [g.operand(tail)] if g.one(0, 1) else []
    return g.op(
        "LayerNormalization", g.input(shape), g.operand(tail), *bias, axis=axis, epsilon=0.5
    )


@maker()
def BatchNormalization(g: Graph) -> list[str]:
    shape = [g.one(1, 2), g.one(1, 3), *g.shape(0, 3, (1, 2))]
    values = [g.const(np.abs(g.numbers(shape[1:2])) + F(0.5), F) for _ in range(4)]
    return g.op("BatchNormalization", g.input(shape), *values, epsilon=0.01)


@maker()
def InstanceNormalization(g: Graph) -> list[str]:
    c = g.one(1, 3)
    return g.op("InstanceNormalization", g.input([1, c, *g.shape(1, 3, (2, 3))]), g.operand([c]),
                g.operand([c]), epsilon=0.5)  # fmt: skip


@maker()
def LpNormalization(g: Graph) -> list[str]:
    shape = g.shape(1, 4, (1, 2, 3))
    data = np.abs(g.numbers(shape)) + F(0.5)
    return g.op("LpNormalization", g.input((), F, data), axis=g.axis(len(shape)), p=g.one(1, 2))


@maker()
def LRN(g: Graph) -> list[str]:
    return g.op(
        "LRN", g.input([1, g.one(1, 5), 2, 2]), size=g.one(1, 3, 5, 7), alpha=0.5, beta=0.75
    )


@maker()
def Clip(g: Graph) -> list[str]:
    dtype = g.one(F, F, np.int32, np.int64)
    low, high = g.const(g.one(-1, 0, 1), dtype), g.const(g.one(1, 2), dtype)
    bounds = g.one([low, high], [low], ["", high], [low, low])
    return g.op("Clip", g.input(g.shape(), dtype), *bounds)


@maker()
def Resize(g: Graph) -> list[str]:
    spatial = g.one([3, 4], [1, 5], [2, 1])
    mode = g.one("nearest", "linear")
    how = g.one("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    more = (
        {"nearest_mode": g.one("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")}
        if mode == "nearest"
        else {}
    )
    sizes = [1, 2, *(g.one(1, 2, 3, 5, 7) for _ in spatial)]
    return g.op("Resize", g.input([1, 2, *spatial]), "", "", g.const(sizes), mode=mode,
                coordinate_transformation_mode=how, **more)  # fmt: skip


@maker()
def Cast(g: Graph) -> list[str]:
    kinds = (np.float32, np.float16, np.int32, np.int64, np.uint8, np.int8, np.bool_)
    source, target = g.r.sample(kinds, 2)
    data = g.numbers(g.shape(), F)
    if np.uint8 in (source, target):
        data = np.abs(data)
    return g.op("Cast", g.input((), source, data), to=code_of(target))


@maker("QuantizeLinear", "DequantizeLinear")
def quantization(g: Graph, kind: str) -> list[str]:
    shape = g.shape(1, 4, (1, 2, 3))
    axis, dtype = g.axis(len(shape)), g.one(np.int8, np.uint8)
    along = [shape[axis]] if g.one(0, 1) else []
    scale = g.const(np.full(along, g.one(0.5, 0.25)), F)
    zero = g.const(np.full(along, g.one(0, 3)), dtype)
    data = np.abs(g.numbers(shape, F)) * 4
    return g.op(
        kind, g.input((), F if kind == "QuantizeLinear" else dtype, data), scale, zero, axis=axis
    )


@maker("LSTM", "GRU", "RNN")
def recurrent(g: Graph, kind: str) -> list[str]:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    direction = g.one("forward", "reverse", "bidirectional")
    d, t, n, i, h = 2 if direction == "bidirectional" else 1, g.one(1, 3), g.one(1, 2), 2, 3
    w, r = g.const(g.numbers([d, gates * h, i]), F), g.const(g.numbers([d, gates * h, h]), F)
    bias = g.const(g.numbers([d, 2 * gates * h]), F) if g.one(0, 1) else ""
    lengths = g.const([g.r.randint(0, t) for _ in range(n)], np.int32) if g.one(0, 1) else ""
    start = g.operand([d, n, h]) if g.one(0, 1) else ""
    more = {"linear_before_reset": g.one(0, 1)} if kind == "GRU" else {}
    count = 3 if kind == "LSTM" else 2
    return g.op(kind, g.input([t, n, i]), w, r, bias, lengths, start, hidden_size=h, outputs=count,
                direction=direction, **more)  # fmt: skip


@maker()
def Range(g: Graph) -> list[str]:
    start, limit, delta = g.one((0, 0, 1), (3, 0, 1), (5, -1, -2), (0, 7, 3))
    names = [g.const(v, np.int64) for v in (start, limit, delta)]
    (found,) = g.op("Range", *names)
    return g.op("Add", found, g.input([], np.int64))


@maker()
def ConstantOfShape(g: Graph) -> list[str]:
    shape = g.shape(0, 3)
    (found,) = g.op(
        "ConstantOfShape", g.const(shape), value=numpy_helper.from_array(np.array([2], F))
    )
    return g.op("Add", found, g.input(g.broadcast(shape)))


@maker()
def Shape(g: Graph) -> list[str]:
    shape = g.shape(0, 4)
    return g.op("Shape", g.input(shape), start=g.r.randint(-6, 6), end=g.r.randint(-6, 6))


@maker()
def Trilu(g: Graph) -> list[str]:
    shape = [*g.shape(0, 2, (1, 2)), g.one(0, 1, 3), g.one(1, 4)]
    return g.op("Trilu", g.input(shape), g.const(g.one(-9, -1, 0, 2, 9)), upper=g.one(0, 1))


@maker()
def EyeLike(g: Graph) -> list[str]:
    return g.op("EyeLike", g.input([g.one(1, 3), g.one(1, 4)]), k=g.one(-5, -1, 0, 2, 5))


@maker("DepthToSpace", "SpaceToDepth")
def blocks(g: Graph, kind: str) -> list[str]:
    size = g.one(1, 2, 3)
    if kind == "SpaceToDepth":
        return g.op(kind, g.input([1, 2, 2 * size, size]), blocksize=size)
    return g.op(kind, g.input([1, 2 * size * size, 1, 3]), blocksize=size, mode=g.one("DCR", "CRD"))


@maker()
def Einsum(g: Graph) -> list[str]:
    equation, shapes = g.one(
        ("ij,jk->ki", ([2, 3], [3, 1])),
        ("i,j->ij", ([2], [0])),
        ("ii->i", ([3, 3],)),
        ("bij,bjk", ([1, 2, 3], [1, 3, 2])),
        ("ij->", ([2, 3],)),
        ("...i,...i->...", ([2, 3, 4], [3, 4])),
    )
    return g.op("Einsum", *(g.input(s) for s in shapes), equation=equation)


@maker()
def Loop(g: Graph) -> list[str]:
    """A loop of 0 to 3 iterations, whose condition may be false from the beginning."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_out"]),
            helper.make_node("Add", ["state", "state"], ["state_out"]),
            helper.make_node("Neg", ["state"], ["scan"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [2]),
        ],
        [
            helper.make_tensor_value_info("go_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state_out", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("scan", TensorProto.FLOAT, [2]),
        ],
    )
    count, go = g.const(g.one(0, 1, 3)), g.const(g.one(True, True, False), bool)
    state, scanned = g.op("Loop", count, go, g.input([2]), outputs=2, body=body)
    # the checker demands shapes of outputs, and inference gives a state none
    return [*g.op("Reshape", state, g.const([2])), scanned]


def code_of(dtype: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


QUANTIZED: dict[str, Callable[[Graph, str, list[int]], list[str]]] = {
    "": lambda g, x, s: [x],
    "Cast": lambda g, x, s: g.op("Cast", x, to=code_of(g.one(np.int32, np.int64, np.bool_))),
    "NonZero": lambda g, x, s: g.op("NonZero", x),
    "Not": lambda g, x, s: g.op("Not", *g.op("Cast", x, to=code_of(bool))),
    "Sign": lambda g, x, s: g.op("Sign", x),
    "ArgMax": lambda g, x, s: g.op("ArgMax", x, axis=g.axis(len(s)), keepdims=g.one(0, 1)),
    "ArgMin": lambda g, x, s: g.op("ArgMin", x, axis=g.axis(len(s)), keepdims=g.one(0, 1)),
    "Pad": lambda g, x, s: g.op("Pad", x, g.const([1] * 2 * len(s)),
                                *g.one([], [g.const(g.one(0, 1, -30.5), F)])),
    "Pad reflect": lambda g, x, s: g.op("Pad", x, g.const([1] * 2 * len(s)), mode="reflect"),
    "Transpose": lambda g, x, s: g.op("Transpose", x),
    "Reshape": lambda g, x, s: g.op("Reshape", x, g.const([-1])),
    "Slice": lambda g, x, s: g.op("Slice", x, g.const([5]), g.const([-9]), g.const([-1]),
                                  g.const([-1])),
    "Gather": lambda g, x, s: g.op("Gather", x, g.const([-1, 0]), axis=g.axis(len(s))),
    "Tile": lambda g, x, s: g.op("Tile", x, g.const([2] * len(s))),
    "Expand": lambda g, x, s: g.op("Expand", x, g.const([2, *s])),
    "Split": lambda g, x, s: g.op("Split", x, g.const([1, s[-1] - 1]), axis=-1, outputs=2),
    "Relu": lambda g, x, s: g.op("Relu", x),
    "Clip": lambda g, x, s: g.op("Clip", x, g.const(-1, F), g.const(2, F)),
    "ReduceMax": lambda g, x, s: g.op("ReduceMax", x, g.const([g.axis(len(s))])),
    "ReduceMin": lambda g, x, s: g.op("ReduceMin", x, keepdims=0),
    "ReduceSum": lambda g, x, s: g.op("ReduceSum", x, g.const([g.axis(len(s))])),
    "ReduceMean": lambda g, x, s: g.op("ReduceMean", x, keepdims=0),
    "TopK": lambda g, x, s: g.op("TopK", x, g.const([1]), outputs=2)[:1],
    "CumSum": lambda g, x, s: g.op("CumSum", x, g.const(g.axis(len(s)))),
    "Abs": lambda g, x, s: g.op("Abs", x),
    "Neg": lambda g, x, s: g.op("Neg", x),
    "Softmax": lambda g, x, s: g.op("Softmax", x, axis=g.axis(len(s))),
    "Sigmoid": lambda g, x, s: g.op("Sigmoid", x),
    "Flatten": lambda g, x, s: g.op("Flatten", x),
}  # fmt: skip
QUANTIZED_PAIRS = ("Add", "Sub", "Mul", "Max", "Min", "Equal", "Less", "GreaterOrEqual", "Concat",
                   "Where", "MatMul")  # fmt: skip
QUANTIZED_IMAGES = ("Resize nearest", "Resize linear", "MaxPool", "AveragePool", "DepthToSpace",
                    "GlobalAveragePool", "Conv")  # fmt: skip


def dequantized(g: Graph, shape: Sequence[int]) -> str:
    """Return quantized numbers as floats, whose zero point is seldom 0."""
    dtype = np.dtype(g.one(np.int8, np.uint8, np.int8, np.uint8, np.int16))
    least = np.iinfo(dtype).min
    zero = 0 if dtype == np.int16 else g.one(3, 100, least, least + 128)
    data = np.clip(zero + g.rng.integers(-20, 21, tuple(shape)), least, np.iinfo(dtype).max)
    x = g.input((), dtype, data) if g.r.random() < 0.8 else g.const(data, dtype)
    scale = g.const(g.one(0.25, 0.5, 0.125), F)  # exact, or Cast truncates otherwise
    return g.op("DequantizeLinear", x, scale, g.const(zero, dtype))[0]


def of_image(g: Graph, kind: str) -> list[str]:
    x = dequantized(g, [1, 4, 3, 2])
    if kind.startswith("Resize"):
        mode = kind.split()[1]
        how = g.one("asymmetric", "half_pixel", "align_corners")
        return g.op("Resize", x, "", "", g.const([1, 4, g.one(2, 6), g.one(1, 4)]), mode=mode,
                    coordinate_transformation_mode=how)  # fmt: skip
    if kind == "Conv":
        weights = g.op("DequantizeLinear", g.const(g.numbers([2, 4, 2, 2]), np.int8),
                       g.const(0.125, F))  # fmt: skip
        return g.op("Conv", x, *weights, pads=[1, 1, 0, 0])
    if kind == "DepthToSpace":
        return g.op(kind, x, blocksize=2)
    if kind == "GlobalAveragePool":
        return g.op(kind, x)
    more = {"count_include_pad": g.one(0, 1)} if kind == "AveragePool" else {}
    return g.op(kind, x, kernel_shape=[2, 2], pads=[1, 0, 0, 1], **more)


@maker(*(f"Q{k}" for k in (*QUANTIZED, *QUANTIZED_PAIRS, *QUANTIZED_IMAGES)))
def quantized_chain(g: Graph, kind: str) -> list[str]:
    """An operator between a DequantizeLinear and, often, a QuantizeLinear of another scale."""
    kind = kind[1:]
    shape = g.shape(1, 4, (2, 3))
    if kind in QUANTIZED:
        results = QUANTIZED[kind](g, dequantized(g, shape), shape)
    elif kind in QUANTIZED_IMAGES:
        results = of_image(g, kind)
    else:
        if kind == "MatMul":
            pair = [dequantized(g, [2, 3]), dequantized(g, [3, 2])]
        else:
            other = shape if kind == "Concat" else g.broadcast(shape)
            pair = [dequantized(g, shape), dequantized(g, other)]
        first = [g.input(shape, bool)] if kind == "Where" else []
        results = g.op(kind, *first, *pair, **({"axis": -1} if kind == "Concat" else {}))
    if g.r.random() < 0.7 and kind not in ("Cast", "NonZero", "Not", "ArgMax", "ArgMin", "Equal",
                                           "Less", "GreaterOrEqual"):  # fmt: skip
        dtype = np.dtype(g.one(np.int8, np.uint8))
        scale, zero = g.const(g.one(0.25, 0.5, 0.2), F), g.const(g.one(3, 100), dtype)
        results = [g.op("QuantizeLinear", r, scale, zero)[0] for r in results]
        g.atol = 1.01  # a step: engines round halves in more than one way
    return results


def link(g: Graph, results: list[str], start: int, made: set[str]) -> bool:
    """Let the operators from `start` on read the first of `results` instead of an input of their
    own; whether there is such an input. `made`: the inputs that there were before.
    """
    free = [n for n in g.free if n not in made and g.feeds[n].dtype == F]
    model = model_of(g, results, g.nodes[:start]) if free else None
    if model is None:
        return False
    out = model.graph.output[0].type.tensor_type
    dims = [d.dim_value if d.HasField("dim_value") else -1 for d in out.shape.dim]
    count = math.prod(dims)
    if count <= 0 or -1 in dims:
        return False
    name = g.one(*free)
    shape = g.feeds.pop(name).shape
    g.free.remove(name)
    later = g.nodes[start:]
    x = results[0]
    if out.elem_type != TensorProto.FLOAT:
        x = g.op("Cast", x, to=TensorProto.FLOAT)[0]
    if dims != list(shape):
        (x,) = g.op("Reshape", x, g.const([-1]))
        if count == math.prod(shape):
            (x,) = g.op("Reshape", x, g.const(shape), allowzero=1)
        else:
            taken = np.arange(math.prod(shape)).reshape(shape) % count
            (x,) = g.op("Gather", x, g.const(taken))
    added = g.nodes[start + len(later) :]
    for node in later:
        node.input[:] = [x if i == name else i for i in node.input]
    g.nodes[start:] = [*added, *later]
    return True


def finish(g: Graph, results: list[str]) -> onnx.ModelProto | None:
    """Add the nodes around the operator, and return the model; None where it is not valid."""
    g.outputs = results
    odd = g.one(*[""] * 3, "after", "unused input", "input is output", "unused constant",
                "equal constants", "dynamic")  # fmt: skip
    if odd == "after":
        g.outputs = [*results[1:], *g.op("Identity", results[0])]
    elif odd == "unused input":
        g.input([g.one(0, 2)])
    elif odd == "unused constant":
        g.const(g.numbers([2]), F)
    elif odd == "input is output" and g.feeds:
        g.outputs = [*results, next(iter(g.feeds))]
    elif odd == "equal constants" and g.atol < 1:  # a step stays a step
        first, second = (g.const(1.5, F) for _ in range(2))
        g.outputs = g.op("Mul", *g.op("Add", results[0], first), second)
    return model_of(
        g, g.outputs, g.nodes, dynamic=odd == "dynamic" and all(a.size for a in g.feeds.values())
    )


def model_of(
    g: Graph, results: list[str], nodes: list[onnx.NodeProto], dynamic: bool = False
) -> onnx.ModelProto | None:
    """Return a model; None where it is not valid."""
    inputs = [
        helper.make_tensor_value_info(
            n,
            code_of(a.dtype),
            [f"{n}_{i}" if dynamic and n in g.free else d for i, d in enumerate(a.shape)],
        )
        for n, a in g.feeds.items()
    ]
    graph = helper.make_graph(
        nodes, "unusual", inputs, [onnx.ValueInfoProto(name=n) for n in results], g.constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        known = {v.name: v for v in (*inferred.graph.value_info, *inferred.graph.output, *inputs)}
        del model.graph.output[:]
        model.graph.output.extend(known[n] for n in results)
        onnx.checker.check_model(model, full_check=True)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, KeyError):
        return None
    return model


@dataclass(frozen=True)
class Case:
    """A model with its feeds and expected outputs."""

    name: str
    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]
    atol: float
    rtol: float

    def large(self) -> bool:
        """Whether an integer is beyond 32 bits."""
        arrays = [*self.feeds.values(), *self.expected.values()]
        constants = [numpy_helper.to_array(t) for t in self.model.graph.initializer]
        return any(
            a.dtype.kind in "iu" and a.size and bool((np.abs(a.astype(np.float64)) > BIG).any())
            for a in (*arrays, *constants)
        )


def draw(seed: str, kind: str = "") -> Case | None:
    """Return the case of a seed; None where it is not valid or its meaning is not certain."""
    g = Graph(seed)
    kind = kind or g.one(*MAKERS)
    results, kinds = MAKERS[kind](g), [kind]
    while g.r.random() < 0.4 and len(kinds) < 3 and g.atol < 1:
        start, made, before = len(g.nodes), set(g.feeds), dict(g.feeds)
        more = g.one(*MAKERS)
        later = MAKERS[more](g)
        if not link(g, results, start, made):
            g.nodes[start:], g.feeds = [], before
            break
        kinds.append(more)
        results = later
    model, kind = finish(g, results), "-".join(kinds).replace(" ", "")
    if model is None:
        return None
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, ["CPUExecutionProvider"]
        )
        wanted = session.run(None, g.feeds)
    except Exception:
        return None
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            second = ReferenceEvaluator(model).run(None, g.feeds)
    except Exception:
        second = wanted  # the reference has no such operator
    if any(differences(w, s, g.atol, g.rtol) for w, s in zip(wanted, second, strict=True)):
        return None
    return Case(
        f"{kind}-{seed.replace(' ', '-')}",
        model,
        g.feeds,
        dict(zip(g.outputs, wanted, strict=True)),
        g.atol,
        g.rtol,
    )


def differences(actual: Any, expected: Any, atol: float = 2e-4, rtol: float = 2e-3) -> str:
    """Return how two results differ, or "". Shapes count, types do not: formats have fewer."""
    a, e = np.asarray(actual), np.asarray(expected)
    if a.shape != e.shape:
        return f"shape {list(a.shape)}, expected {list(e.shape)}"
    if a.dtype.kind in "iub" and e.dtype.kind in "iub" and np.array_equal(a, e):
        return ""
    large = e.dtype.kind in "iu" and e.size and int(np.abs(e.astype(np.float64)).max()) > BIG
    a, e = a.astype(np.float64), e.astype(np.float64)
    with np.errstate(all="ignore"):
        if not large and np.allclose(a, e, rtol=rtol, atol=atol, equal_nan=True):
            return ""
        return f"{a.ravel()[:6]}, expected {e.ravel()[:6]}"


def judge(case: Case, target: str, folder: Path) -> tuple[str, str]:
    """Convert a case and run the file in its engine: "right", "refused" (by netconv), "warned"
    (integers beyond 32 bits, or onnxruntime differs from ONNX), "wrong", "cannot" (the engine
    refuses the file), or "crash" (no ConverterError), with details.
    """
    base = target.partition("+")[0]
    source, written = folder / f"{case.name}.onnx", folder / f"out{SUFFIXES[base]}"
    source.write_bytes(case.model.SerializeToString())
    try:
        notes = converter.convert(source, written, target=target, force=True)
    except ConverterError as e:
        return "refused", " ".join(str(e).split())
    except Exception as e:
        return "crash", f"{type(e).__name__}: {e}"
    try:
        by_name, in_order = run_engine(ENGINES[base], written, case.feeds)
    except Exception as e:  # each engine has a family of its own
        return "cannot", " ".join(str(e).split())
    for i, (name, wanted) in enumerate(case.expected.items()):
        found = by_name.get(name)
        if found is None and len(in_order) == len(case.expected):
            found = in_order[i]
        if found is None:
            return "cannot", f"no output {name} among {sorted(by_name)}"
        if text := differences(found, wanted, case.atol, case.rtol):
            # OpenVINO's CPU plugin has 32 bits for int64, whoever wrote the file
            narrow = base == "openvino" or any(n.level == "warning" for n in notes)
            known = (case.large() and narrow) or any(n.code == "X213" for n in notes)
            return "warned" if known else "wrong", f"{name}: {text}"
    return "right", ""


class OpenVino(file_child.OpenVino):
    """OpenVINO, which compiles a network with its default options only where layers could be
    quantized: compiling takes longer than everything else, and other networks are compiled alike
    with the exact options.
    """

    def _compile(self, config: dict[str, str]) -> None:
        kinds = {n.get_type_name() for n in self.model.get_ops()}
        if config or kinds & {"FakeQuantize", "Loop", "TensorIterator", "If"}:
            super()._compile(config)


def run_engine(
    name: str, path: Path, feeds: dict[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Return a file's outputs by name and in order."""
    kind = OpenVino if name == "openvino" else file_child.ENGINES[name]
    engine = kind(str(path), "")
    engine.exact()  # OpenVINO's default on some processors is bfloat16
    ports, names, arrays = engine.inputs(), list(feeds), list(feeds.values())
    places = file_child.matched(ports, engine.required(), names, len(names))
    results = engine.run({p: file_child.fitted(ports[p], arrays[i]) for p, i in places.items()})
    by_name = {
        n: r for port, r in zip(engine.outputs(), results, strict=True) for n in port["names"]
    }
    return by_name, results


def write_case(case: Case, folder: Path) -> None:
    """Write a case as the kit of judges reads it."""
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    np.savez(folder / "inputs.npz", **case.feeds)
    np.savez(folder / "outputs.npz", **case.expected)
    (folder / "case.json").write_text(json.dumps({"atol": case.atol, "rtol": case.rtol}))


def judge_all(
    count: int, seed: int, targets: Sequence[str], keep: Path | None = None
) -> tuple[dict[str, collections.Counter[str]], list[str]]:
    """Judge `count` graphs in each target: the verdicts by target, and a line for each fault. An
    engine that ends its process costs one case (see hostile/supervise.py).
    """
    verdicts: dict[str, collections.Counter[str]] = {t: collections.Counter() for t in targets}
    faults = []
    for engine in {MODULES[ENGINES[t.partition("+")[0]]] for t in targets}:
        importlib.import_module(engine)  # once, not in each process
    with tempfile.TemporaryDirectory() as folder:
        cases = [c for n in range(count) if (c := draw(f"{seed} {n}")) is not None]
        pairs = [(c, t) for c in cases for t in targets]
        calls = [lambda c=c, t=t: json.dumps(judge(c, t, Path(folder))) for c, t in pairs]
        for number, answer, detail in supervise.supervised(calls):
            case, target = pairs[number]
            verdict, text = ("cannot", detail) if answer == "fault" else json.loads(answer)
            verdicts[target][verdict] += 1
            if verdict in ("right", "refused", "warned"):
                continue
            faults.append(f"{case.name} -> {target}: {verdict} {text[:200]}")
            if keep is not None and not (keep / case.name).exists():
                write_case(case, keep / case.name)
    return verdicts, faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--keep", type=Path, help="folder for the cases that have a fault")
    parser.add_argument("--write", type=Path, help="only write the cases, for the kit of judges")
    given = parser.parse_args()
    if given.write:
        shutil.rmtree(given.write, ignore_errors=True)
        for case in filter(None, (draw(f"{given.seed} {n}") for n in range(given.count))):
            write_case(case, given.write / case.name)
        return 0
    verdicts, faults = judge_all(given.count, given.seed, given.targets.split(","), given.keep)
    print("\n".join(faults))
    for target, counts in verdicts.items():
        print(f"{target:16} " + "  ".join(f"{k} {n}" for k, n in sorted(counts.items())))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
