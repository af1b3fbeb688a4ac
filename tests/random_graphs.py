"""Random small networks of canonical operators, and their conversions to each format.

`STEPS` holds one writer per operator: it is given the builder, a seeded generator and a value, and
returns the new value, or None when the operator does not take such a value. Parameters are drawn
from all that the operator allows, odd ones included. `outcome` takes a network through a format and
back: "same", or the code of the refusal. Everything else raises.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

import converter
from converter.api import Model
from converter.errors import ConverterError, MappingError
from converter.graph.build import Builder, new_model
from converter.graph.infer import InferenceError
from mutations import SUFFIXES
from support import processor_time

T = ir.DataType
LIMIT = 30  # seconds for one network through one format
Step = Callable[["Draw", ir.Value], "ir.Value | None"]
STEPS: dict[str, Step] = {}


class Draw:
    """A builder with a seeded source of parameters."""

    def __init__(self, builder: Builder, seed: str) -> None:
        self.b = builder
        self.r = random.Random(seed)
        self.rng = np.random.default_rng(self.r.randrange(1 << 32))

    def weights(self, *shape: int) -> np.ndarray:
        return (self.rng.integers(-8, 9, shape) / 8).astype(np.float32)

    def flag(self, chance: float = 0.5) -> bool:
        return self.r.random() < chance

    def one(self, *choices: object) -> object:
        return self.r.choice(choices)

    def number(self, low: int, high: int) -> int:
        return self.r.randint(low, high)

    def axis(self, rank: int) -> int:
        return self.r.randrange(-rank, rank)

    def axes(self, rank: int) -> list[int]:
        chosen = sorted(self.r.sample(range(rank), self.number(1, rank)))
        return [a - rank if self.flag(0.3) else a for a in chosen]

    def input(self, shape: list[int], dtype: ir.DataType = T.FLOAT) -> ir.Value:
        return self.b.input("x", dtype, shape)

    def other(self, x: ir.Value) -> ir.Value | np.ndarray:
        """A second operand that broadcasts with `x`: a constant or an input, of equal or lower or
        higher rank.
        """
        shape = [d if self.flag(0.7) else 1 for d in dims(x)]
        shape = shape[self.number(0, len(shape)) :] if self.flag(0.4) else shape
        if len(dims(x)) < 5 and self.flag(0.15):
            shape = [self.number(1, 3), *[d if self.flag(0.5) else 1 for d in dims(x)]]
        if self.flag(0.5):
            return self.input(shape, x.dtype)
        if x.dtype == T.BOOL:
            return self.rng.integers(0, 2, shape).astype(bool)
        return (
            self.weights(*shape)
            if x.dtype == T.FLOAT
            else self.rng.integers(-4, 5, shape).astype(x.dtype.numpy())
        )


def dims(x: ir.Value) -> list[int]:
    assert x.shape is not None
    return [int(d) for d in x.shape]


def step(dtypes: str = "f", low: int = 1, high: int = 6, name: str = "") -> Callable[[Step], Step]:
    """Enters a writer for values of the types ("f", "i", "b") and of `low` to `high` axes."""
    kinds = {"f": (T.FLOAT,), "i": (T.INT64, T.INT32), "b": (T.BOOL,)}
    allowed = [t for d in dtypes for t in kinds[d]]

    def enter(write: Step) -> Step:
        def guarded(d: Draw, x: ir.Value) -> ir.Value | None:
            static = x.shape is not None and all(isinstance(n, int) for n in x.shape)
            return (
                write(d, x)
                if static and x.dtype in allowed and low <= len(dims(x)) <= high
                else None
            )

        STEPS[name or write.__name__] = guarded
        return guarded

    return enter


def _unary(op: str, prepare: str = "", **attributes: object) -> None:
    def write(d: Draw, x: ir.Value) -> ir.Value:
        if prepare:
            x = d.b.op("Add", d.b.op("Abs", x), np.float32(0.5))
        drawn = {k: v(d) if callable(v) else v for k, v in attributes.items()}
        return d.b.op(
            op,
            d.b.op("Clip", x, np.float32(-0.9), np.float32(0.9))
            if op in ("Asin", "Acos", "Atanh", "Tan")
            else x,
            **drawn,
        )

    step(low=0, name=op)(write)


for _op in [
    "Relu",
    "Sigmoid",
    "Tanh",
    "Abs",
    "Neg",
    "Exp",
    "Sin",
    "Cos",
    "Tan",
    "Asin",
    "Acos",
    "Atan",
    "Sinh",
    "Cosh",
    "Asinh",
    "Atanh",
    "Softplus",
    "Softsign",
    "Erf",
    "Ceil",
    "Floor",
    "Round",
    "Sign",
    "HardSwish",
    "Mish",
]:
    _unary(_op)
for _op in ["Sqrt", "Log", "Reciprocal"]:
    _unary(_op, prepare="positive")
_unary("LeakyRelu", alpha=lambda d: d.one(0.01, 0.25, 1.5, -0.5, 0.0))
_unary("Elu", alpha=lambda d: d.one(1.0, 0.25, 2.0))
_unary("Selu", alpha=lambda d: d.one(1.5, 1.67), gamma=lambda d: d.one(1.0, 1.05))
_unary("Celu", alpha=lambda d: d.one(1.0, 0.5, 2.0))
_unary("ThresholdedRelu", alpha=lambda d: d.one(1.0, 0.5, -0.5))
_unary("HardSigmoid", alpha=lambda d: d.one(0.2, 0.5), beta=lambda d: d.one(0.5, 0.25))
_unary("Gelu", approximate=lambda d: d.one("none", "tanh"))
_unary("Shrink", lambd=lambda d: d.one(0.5, 0.25), bias=lambda d: d.one(0.0, 0.5))


def _binary(op: str, dtypes: str) -> None:
    def write(d: Draw, x: ir.Value) -> ir.Value:
        y = d.b.value(d.other(x))
        if op in ("Div", "Mod", "Pow") and x.dtype == T.FLOAT:
            y = d.b.op("Add", d.b.op("Abs", y), np.float32(0.5))
        elif op in ("Div", "Mod"):
            y = d.b.op("Add", d.b.op("Abs", y), d.b.like(y, 1))
        if op == "Pow":
            return (
                d.b.op(op, d.b.op("Abs", x), y)
                if d.flag()
                else d.b.op(op, x, np.float32(d.one(2, 3, 1, 0)))
            )
        extra = {"fmod": 1} if op == "Mod" and (x.dtype == T.FLOAT or d.flag()) else {}
        return (
            d.b.op(op, y, x, **extra)
            if d.flag(0.4) and op != "Div" and op != "Mod"
            else d.b.op(op, x, y, **extra)
        )

    step(dtypes, low=0, name=op)(write)


for _op, _types in {
    "Add": "fi",
    "Sub": "fi",
    "Mul": "fi",
    "Div": "fi",
    "Max": "fi",
    "Min": "fi",
    "Pow": "f",
    "Mod": "fi",
}.items():
    _binary(_op, _types)
for _op in ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"]:
    _binary(_op, "fi")
for _op in ["And", "Or", "Xor"]:
    _binary(_op, "b")


@step("b", 0)
def Not(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op("Not", x)


@step("f", name="Sum")
def _sum(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op(
        d.one("Sum", "Mean", "Max", "Min"), x, *[d.other(x) for _ in range(d.number(0, 2))]
    )


@step("f", name="PRelu")
def _prelu(d: Draw, x: ir.Value) -> ir.Value:
    shape = d.one(
        [1],
        [dims(x)[1] if len(dims(x)) > 1 else 1, *[1] * max(0, len(dims(x)) - 2)],
        dims(x)[-1:],
        dims(x),
    )
    return d.b.op("PRelu", x, np.abs(d.weights(*shape)))


@step("fi", 0, name="Clip")
def _clip(d: Draw, x: ir.Value) -> ir.Value:
    low, high = d.one((-0.5, 0.5), (0, 6), (None, 1), (-1, None), (-1, 1))
    return d.b.op(
        "Clip",
        x,
        None if low is None else d.b.like(x, low),
        None if high is None else d.b.like(x, high),
    )


@step("b", name="Where")
def _where(d: Draw, x: ir.Value) -> ir.Value:
    shape = dims(x)
    parts = [
        d.input(
            [s if d.flag(0.7) else 1 for s in shape][
                d.number(0, len(shape)) if d.flag(0.3) else 0 :
            ]
        )
        for _ in range(2)
    ]
    return d.b.op("Where", x, *parts)


@step("fib", 0, name="Cast")
def _cast(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op("Cast", x, to=int(d.one(T.FLOAT, T.INT32, T.INT64, T.BOOL)))


def _window(
    d: Draw, spatial: list[int], dilated: bool = True, ceil: bool = False
) -> dict[str, object] | None:
    """Kernel, strides, pads, dilations that fit."""
    kernel = [d.number(1, min(3, n)) for n in spatial]
    dilations = [d.number(1, 2) if dilated and d.flag(0.4) else 1 for _ in spatial]
    pads = [d.number(0, (k - 1) // 1 if k > 1 else 0) if d.flag() else 0 for k in kernel + kernel]
    n = len(spatial)
    if any(
        s + pads[i] + pads[i + n] < (k - 1) * e + 1
        for i, (s, k, e) in enumerate(zip(spatial, kernel, dilations, strict=True))
    ):
        return None
    result: dict[str, object] = {
        "kernel_shape": kernel,
        "strides": [d.number(1, 3) if d.flag() else 1 for _ in spatial],
        "pads": pads,
    }
    if dilated:
        result["dilations"] = dilations
    if ceil and d.flag(0.3):
        result["ceil_mode"] = 1
    if d.flag(0.15) and "ceil_mode" not in result and not any(e > 1 for e in dilations):
        del result["pads"]
        result["auto_pad"] = d.one("SAME_UPPER", "SAME_LOWER", "VALID")
    return result


@step("f", 3, 5, "Conv")
def _conv(d: Draw, x: ir.Value) -> ir.Value | None:
    _, c, *spatial = dims(x)
    window = _window(d, spatial)
    if window is None:
        return None
    group = d.one(1, 1, *[g for g in range(2, c + 1) if c % g == 0])
    m = group * d.number(1, 3)
    return d.b.op(
        "Conv",
        x,
        d.weights(m, c // group, *window["kernel_shape"]),
        d.weights(m) if d.flag() else None,
        group=group,
        **window,
    )


@step("f", 3, 5, "ConvTranspose")
def _deconv(d: Draw, x: ir.Value) -> ir.Value | None:
    _, c, *spatial = dims(x)
    window = _window(d, spatial)
    if window is None:
        return None
    group = d.one(1, 1, *[g for g in range(2, c + 1) if c % g == 0])
    m = d.number(1, 3)
    if "auto_pad" in window and any(
        k < s for k, s in zip(window["kernel_shape"], window["strides"], strict=True)
    ):
        return None  # onnxruntime leaves out the last rows, which the standard has
    if d.flag(0.3):
        window["output_padding"] = [d.number(0, s - 1) for s in window["strides"]]
    y = d.b.op(
        "ConvTranspose",
        x,
        d.weights(c, m, *window["kernel_shape"]),
        d.weights(m * group) if d.flag() else None,
        group=group,
        **window,
    )
    return y if min(dims(y)) > 0 else None


@step("f", 3, 5, "MaxPool")
def _max_pool(d: Draw, x: ir.Value) -> ir.Value | None:
    window = _window(d, dims(x)[2:], ceil=True)
    return None if window is None else d.b.op("MaxPool", x, **window)


@step("f", 3, 5, "AveragePool")
def _average_pool(d: Draw, x: ir.Value) -> ir.Value | None:
    window = _window(d, dims(x)[2:], dilated=d.flag(0.3), ceil=True)
    return (
        None
        if window is None
        else d.b.op("AveragePool", x, count_include_pad=d.number(0, 1), **window)
    )


@step("f", 3, 4, "LpPool")
def _lp_pool(d: Draw, x: ir.Value) -> ir.Value | None:
    window = _window(d, dims(x)[2:], dilated=False)
    return None if window is None else d.b.op("LpPool", x, p=d.number(1, 3), **window)


@step("f", 3, 5, "GlobalPool")
def _global_pool(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op(d.one("GlobalAveragePool", "GlobalMaxPool"), x)


@step("f", 2, 2, "Gemm")
def _gemm(d: Draw, x: ir.Value) -> ir.Value:
    ta, tb, n = d.flag(0.3), d.flag(), d.number(1, 4)
    m, k = reversed(dims(x)) if ta else dims(x)
    w = d.weights(n, k) if tb else d.weights(k, n)
    bias = d.one(
        None, d.weights(n), d.weights(1, n), d.weights(m, 1), d.weights(m, n), np.float32(0.5)
    )
    return d.b.op(
        "Gemm",
        x,
        w,
        bias,
        transA=int(ta),
        transB=int(tb),
        alpha=d.one(1.0, 0.5),
        beta=d.one(1.0, 2.0),
    )


@step("f", 1, 5, "MatMul")
def _matmul(d: Draw, x: ir.Value) -> ir.Value:
    shape, n = dims(x), d.number(1, 4)
    choices: list[list[int]] = [[shape[-1], n], [shape[-1]]]
    if len(shape) > 2:
        choices += [
            [*shape[:-2], shape[-1], n],
            [*shape[1:-2], shape[-1], n],
            [1] * (len(shape) - 2) + [shape[-1], n],
        ]
    if len(shape) < 4:
        choices.append([2, *([1] * max(0, len(shape) - 2)), shape[-1], n])
    chosen = d.one(*choices)
    return d.b.op("MatMul", x, d.weights(*chosen) if d.flag() else d.input(chosen))


for _op in ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"]:

    def _reduce(d: Draw, x: ir.Value, op: str = f"Reduce{_op}") -> ir.Value:
        if op == "ReduceLogSum":
            x = d.b.op("Add", d.b.op("Abs", x), np.float32(0.5))
        rank = len(dims(x))
        axes = None if d.flag(0.2) else d.axes(rank)
        return d.b.op(op, x, axes, keepdims=d.number(0, 1))

    step("fi" if _op in ("Sum", "Max", "Min") else "f", name=f"Reduce{_op}")(_reduce)


@step(name="Softmax")
def _softmax(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op(d.one("Softmax", "LogSoftmax"), x, axis=d.axis(len(dims(x))))


@step("f", 1, 5, "Hardmax")
def _hardmax(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op("Hardmax", x, axis=d.axis(len(dims(x))))


@step("fi", name="Concat")
def _concat(d: Draw, x: ir.Value) -> ir.Value:
    axis = d.axis(len(dims(x)))
    parts = [x]
    for _ in range(d.number(0, 2)):
        shape = dims(x)
        shape[axis] = d.number(1, 3)
        parts.append(
            d.input(shape, x.dtype)
            if d.flag() or x.dtype != T.FLOAT
            else d.b.const(d.weights(*shape))
        )
    d.r.shuffle(parts)
    return d.b.op("Concat", *parts, axis=axis)


@step("fi", name="Split")
def _split(d: Draw, x: ir.Value) -> ir.Value | None:
    axis = d.axis(len(dims(x)))
    n = dims(x)[axis]
    if n < 2:
        return None
    if d.flag():
        first = d.number(1, n - 1)
        parts = d.b.ops("Split", x, [first, n - first], axis=axis, outputs=2)
    else:
        parts = d.b.ops("Split", x, axis=axis, num_outputs=2, outputs=2)
    d.b.output(parts[0])
    return parts[1]


@step("fi", name="Slice")
def _slice(d: Draw, x: ir.Value) -> ir.Value | None:
    axes = d.axes(len(dims(x)))
    starts, ends, steps = [], [], []
    for a in axes:
        n = dims(x)[a]
        pace = d.one(1, 1, 2, 3, -1, -2)
        start, end = d.number(-n - 1, n + 1), d.number(-n - 1, n + 1)
        if d.flag(0.3):
            start, end = (0, (1 << 63) - 1) if pace > 0 else (n, -(1 << 63))
        if not range(n)[slice(start, end, pace)]:
            start, end = (0, n) if pace > 0 else (-1, -n - 1)
        starts, ends, steps = [*starts, start], [*ends, end], [*steps, pace]
    return d.b.op("Slice", x, starts, ends, axes, None if set(steps) == {1} else steps)


@step("f", name="Pad")
def _pad(d: Draw, x: ir.Value) -> ir.Value | None:
    shape = dims(x)
    mode = d.one("constant", "reflect", "edge", "wrap")
    limit = [min(2, n - 1) if mode in ("reflect", "wrap") else 2 for n in shape]
    pads = [d.number(0, m) if d.flag(0.6) else 0 for m in limit + limit]
    if mode == "constant" and d.flag(0.2):
        pads = [-1 if p and n > 2 else p for p, n in zip(pads, shape + shape, strict=True)]
    return d.b.op(
        "Pad",
        x,
        pads,
        d.one(None, np.float32(0.5), np.float32(0)) if mode == "constant" else None,
        mode=mode,
    )


@step("fi", name="Gather")
def _gather(d: Draw, x: ir.Value) -> ir.Value | None:
    axis = d.axis(len(dims(x)))
    n = dims(x)[axis]
    shape = d.one((), (2,), (3,), (2, 2), (1,))
    if len(dims(x)) - 1 + len(shape) > 5:
        return None
    return d.b.op("Gather", x, d.rng.integers(-n, n, shape).astype(np.int64), axis=axis)


@step("fi", name="GatherElements")
def _gather_elements(d: Draw, x: ir.Value) -> ir.Value:
    axis = d.axis(len(dims(x)))
    return d.b.op(
        "GatherElements", x, d.rng.integers(0, dims(x)[axis], dims(x)).astype(np.int64), axis=axis
    )


@step("f", 2, 4, name="GatherND")
def _gather_nd(d: Draw, x: ir.Value) -> ir.Value:
    shape = dims(x)
    k = d.number(1, len(shape))
    index = np.stack([d.rng.integers(0, n, (3,)) for n in shape[:k]], axis=-1).astype(np.int64)
    return d.b.op("GatherND", x, index)


@step("fi", 0, name="Reshape")
def _reshape(d: Draw, x: ir.Value) -> ir.Value:
    shape = dims(x)
    total = int(np.prod(shape))
    choices = [
        [-1],
        [1, -1],
        [*shape[:1], -1],
        [0, -1] if len(shape) > 1 else [-1],
        [*shape[::-1]],
        [1, *shape][:5] if len(shape) < 5 else [-1],
    ]
    choices += [[f, -1] for f in (2, 3, 4) if total % f == 0]
    return d.b.op("Reshape", x, d.one(*choices))


@step("fi", name="Transpose")
def _transpose(d: Draw, x: ir.Value) -> ir.Value:
    perm = list(range(len(dims(x))))
    d.r.shuffle(perm)
    return d.b.op("Transpose", x, perm=None if d.flag(0.15) else perm)


@step("fi", name="Squeeze")
def _squeeze(d: Draw, x: ir.Value) -> ir.Value | None:
    ones = [i for i, n in enumerate(dims(x)) if n == 1]
    if not ones:
        return d.b.op("Unsqueeze", x, [d.axis(len(dims(x)) + 1)]) if len(dims(x)) < 5 else None
    return d.b.op("Squeeze", x, None if d.flag(0.2) else d.r.sample(ones, d.number(1, len(ones))))


@step("fi", 0, 4, name="Unsqueeze")
def _unsqueeze(d: Draw, x: ir.Value) -> ir.Value:
    rank = len(dims(x))
    axes = d.r.sample(range(rank + 2), 2) if rank < 4 and d.flag() else [d.axis(rank + 1)]
    return d.b.op("Unsqueeze", x, axes)


@step("fi", 0, name="Expand")
def _expand(d: Draw, x: ir.Value) -> ir.Value:
    shape = [n if n > 1 else d.number(1, 3) for n in dims(x)]
    if len(shape) < 5 and d.flag(0.3):
        shape = [d.number(1, 2), *shape]
    return d.b.op("Expand", x, [1 if d.flag(0.2) else n for n in shape])


@step("fi", name="Tile")
def _tile(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op("Tile", x, [d.number(1, 3) if d.flag() else 1 for _ in dims(x)])


@step("f", name="ArgMax")
def _argmax(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op(
        d.one("ArgMax", "ArgMin"),
        x,
        axis=d.axis(len(dims(x))),
        keepdims=d.number(0, 1),
        select_last_index=int(d.flag(0.2)),
    )


@step("f", name="TopK")
def _topk(d: Draw, x: ir.Value) -> ir.Value:
    axis = d.axis(len(dims(x)))
    values, indices = d.b.ops(
        "TopK", x, [d.number(1, dims(x)[axis])], axis=axis, largest=d.number(0, 1), outputs=2
    )
    if d.flag():
        d.b.output(indices)
    return values


@step("fi", name="CumSum")
def _cumsum(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op(
        "CumSum",
        x,
        np.array(d.axis(len(dims(x)))),
        exclusive=d.number(0, 1),
        reverse=d.number(0, 1),
    )


@step("f", 3, 5, "Resize")
def _resize(d: Draw, x: ir.Value) -> ir.Value | None:
    shape = dims(x)
    mode = d.one("nearest", "linear", "nearest", "linear", "cubic")
    if (mode == "cubic" and len(shape) != 4) or (
        mode == "linear" and len(shape) == 5 and d.flag(0.5)
    ):
        return None
    coordinates = d.one("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    extra: dict[str, object] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        extra["nearest_mode"] = d.one("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        extra["cubic_coeff_a"] = d.one(-0.75, -0.5)
    if d.flag():
        return d.b.op(
            "Resize",
            x,
            None,
            np.array(
                [1, 1, *[d.one(0.5, 1, 2, 3) if n > 1 else d.one(1, 2) for n in shape[2:]]],
                np.float32,
            ),
            **extra,
        )
    return d.b.op(
        "Resize", x, None, None, [*shape[:2], *[d.number(1, 2 * n) for n in shape[2:]]], **extra
    )


@step("f", 4, 4, "DepthToSpace")
def _depth_to_space(d: Draw, x: ir.Value) -> ir.Value | None:
    _, c, h, w = dims(x)
    if c % 4 == 0:
        return d.b.op("DepthToSpace", x, blocksize=2, mode=d.one("DCR", "CRD"))
    return d.b.op("SpaceToDepth", x, blocksize=2) if h % 2 == 0 and w % 2 == 0 else None


@step("f", 3, 5, "LRN")
def _lrn(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op(
        "LRN",
        x,
        size=d.one(1, 3, 5),
        alpha=d.one(0.0001, 0.5),
        beta=d.one(0.75, 0.5),
        bias=d.one(1.0, 2.0),
    )


@step("f", 2, 5, "BatchNormalization")
def _batch_norm(d: Draw, x: ir.Value) -> ir.Value:
    c = dims(x)[1]
    return d.b.op(
        "BatchNormalization",
        x,
        d.weights(c),
        d.weights(c),
        d.weights(c),
        np.abs(d.weights(c)) + 0.5,
        epsilon=d.one(1e-5, 0.01),
    )


@step("f", 3, 5, "InstanceNormalization")
def _instance_norm(d: Draw, x: ir.Value) -> ir.Value:
    c = dims(x)[1]
    return d.b.op("InstanceNormalization", x, d.weights(c), d.weights(c), epsilon=d.one(1e-5, 0.01))


@step("f", 1, 5, "LayerNormalization")
def _layer_norm(d: Draw, x: ir.Value) -> ir.Value:
    axis = d.axis(len(dims(x)))
    shape = dims(x)[axis:]
    return d.b.op(
        "LayerNormalization",
        x,
        d.weights(*shape),
        d.weights(*shape) if d.flag() else None,
        axis=axis,
        epsilon=d.one(1e-5, 0.01),
    )


@step("f", 3, 4, "GroupNormalization")
def _group_norm(d: Draw, x: ir.Value) -> ir.Value:
    c = dims(x)[1]
    group = d.one(*[g for g in range(1, c + 1) if c % g == 0])
    return d.b.op("GroupNormalization", x, d.weights(c), d.weights(c), num_groups=group)


@step("f", 1, 5, "LpNormalization")
def _lp_norm(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op(
        "LpNormalization",
        d.b.op("Add", d.b.op("Abs", x), np.float32(0.5)),
        axis=d.axis(len(dims(x))),
        p=d.number(1, 2),
    )


@step("f", 3, 3, "Recurrent")
def _recurrent(d: Draw, x: ir.Value) -> ir.Value:
    op = d.one("LSTM", "GRU", "RNN")
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    direction = d.one("forward", "reverse", "bidirectional")
    ways, h, (s, n, c) = 2 if direction == "bidirectional" else 1, d.number(1, 3), dims(x)
    bias = d.weights(ways, 2 * gates * h) if d.flag() else None
    lengths = d.rng.integers(1, s + 1, n).astype(np.int32) if d.flag(0.2) else None
    state = d.weights(ways, n, h) if d.flag(0.4) else None
    extra: dict[str, object] = {"hidden_size": h, "direction": direction}
    if op == "GRU":
        extra["linear_before_reset"] = d.number(0, 1)
    operands = [
        x,
        d.weights(ways, gates * h, c),
        d.weights(ways, gates * h, h),
        bias,
        lengths,
        state,
    ]
    if op == "LSTM":
        operands += [
            d.weights(ways, n, h) if d.flag(0.4) else None,
            d.weights(ways, 3 * h) if d.flag(0.2) else None,
        ]
    results = d.b.ops(op, *operands, outputs=3 if op == "LSTM" else 2, **extra)
    if d.flag():
        d.b.output(results[1])
    return results[0]


@step("fi", name="ScatterND")
def _scatter(d: Draw, x: ir.Value) -> ir.Value | None:
    if x.dtype != T.FLOAT:
        return None
    shape = dims(x)
    rows = np.array(d.r.sample(range(shape[0]), d.number(1, shape[0])), np.int64)[:, None]
    return d.b.op("ScatterND", x, rows, d.weights(len(rows), *shape[1:]))


@step("f", 2, 4, "Einsum")
def _einsum(d: Draw, x: ir.Value) -> ir.Value:
    letters = "abcd"[: len(dims(x))]
    return d.b.op(
        "Einsum",
        x,
        d.weights(dims(x)[-1], 3),
        equation=f"{letters},{letters[-1]}z->{letters[:-1]}z",
    )


@step("f", name="Dropout")
def _dropout(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op("Dropout", x, np.float32(0.5))


@step("f", name="Flatten")
def _flatten(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op("Flatten", x, axis=d.axis(len(dims(x))))


@step("f", name="Trilu", low=2)
def _trilu(d: Draw, x: ir.Value) -> ir.Value:
    return d.b.op("Trilu", x, np.array(d.number(-2, 2)), upper=d.number(0, 1))


# functions with jumps are computed from inputs alone: the rounding before it would matter
EXACT = frozenset(
    [
        "Ceil",
        "Floor",
        "Round",
        "Sign",
        "Equal",
        "Less",
        "Greater",
        "LessOrEqual",
        "GreaterOrEqual",
        "Cast",
        "ArgMax",
        "TopK",
        "Mod",
        "Hardmax",
        "ThresholdedRelu",
        "Shrink",
        "Div",
        "IsNaN",
        "IsInf",
        "Compress",
        "NonZero",
        "Unique",
        "Quantised",
        "FakeQuantize",
        "InTopK",
        "CTCGreedyDecoder",
        "TopKIntegers",
        "If",
        "RegionPools",
        "RoiAlign",
        "GridSample",
        "RoundTrip",
        "ResizeOdd",
        "CastLike",
        "MeanVarianceNormalization",
        "Integers",
        "Bits",
        "BitShift",
        "WherePick",
        "MatrixInverse",
        "Det",
    ]
)
KINDS = (T.FLOAT,) * 6 + (T.INT64, T.INT32, T.BOOL)


def network(seed: str, size: int = 1, only: str = "") -> Model | None:
    """A network of `size` operators (`only` this one) as a reader gives it; None when none of the
    drawn operators takes existing values.
    """
    model = drawn(seed, size, only)
    return None if model is None else canonical(model)


def drawn(seed: str, size: int = 1, only: str = "") -> Model | None:
    """The same as it was built: with automatic padding, shorthands, unused constants."""
    model, b = new_model("random")
    d = Draw(b, seed)
    values, made = [], 0
    for _ in range(size * 12):
        if made == size:
            break
        name = only or d.r.choice(list(STEPS))
        fresh = (
            not values or name in EXACT or d.flag(0.25)
        )  # jumps are computed from inputs alone: the rounding before them would matter
        x = _fresh(d, name) if fresh else d.r.choice(values)
        mark = _mark(b)
        try:
            y = STEPS[name](d, x)
        except (InferenceError, MappingError):
            y = None
        if y is None or not _sensible(y):
            _undo(b, mark)
            continue
        values.append(y)
        made += 1
    if not made:
        return None
    b.output(*[v for v in values if not v.uses() and v not in b.graph.outputs])
    for v in [v for v in b.graph.inputs if not v.uses()]:
        b.graph.inputs.remove(v)
    return Model(model, "onnx") if b.graph.inputs else None


def _sensible(y: ir.Value) -> bool:
    """Neither empty nor large; a shape that is not known goes as well."""
    if y.shape is None or any(not isinstance(n, int) for n in y.shape):
        return True
    return min(dims(y), default=1) > 0 and np.prod(dims(y)) <= 4000 and len(dims(y)) <= 6


def canonical(model: Model) -> Model:
    """As every reader gives it: explicit pads, no shorthand."""
    with tempfile.TemporaryDirectory() as folder:
        converter.save(model, Path(folder) / "net.onnx")
        return converter.load(Path(folder) / "net.onnx")


def _fresh(d: Draw, name: str) -> ir.Value:
    dtype = d.r.choice(KINDS)
    if name in ("And", "Or", "Xor", "Not", "Where", "ReduceBool"):
        dtype = T.BOOL
    if name in ("Integers", "Bits", "BitShift", "WherePick", "OneHot", "Unique", "TopKIntegers"):
        dtype = d.r.choice((T.INT64, T.INT32))
    rank = d.number(0, 6) if d.flag(0.6) else 4
    shape = [d.number(1, 4) for _ in range(rank)]
    if rank > 2:
        shape = [d.number(1, 2), d.number(1, 4), *[d.number(1, 6) for _ in shape[2:]]]
    return d.input(shape, dtype)


def _mark(b: Builder) -> tuple[int, int, int]:
    return len(b.graph), len(b.graph.outputs), len(b.graph.inputs)


def _undo(b: Builder, mark: tuple[int, int, int]) -> None:
    del b.graph.outputs[mark[1] :]
    for node in list(reversed(list(b.graph)))[: len(b.graph) - mark[0]]:
        b.graph.remove(node, safe=True)
    del b.graph.inputs[mark[2] :]


def feeds_of(
    model: Model, seed: int = 0, bindings: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Numbers that every type of a format holds exactly; no two equal neighbors matter more than
    any other.
    """
    rng = np.random.default_rng(seed)
    result = {}
    for info in model.inputs:
        shape = [
            n if isinstance(n, int) else (bindings or {}).get(str(n), 2) for n in info.shape or ()
        ]
        if info.dtype == np.bool_:
            result[info.name] = rng.integers(0, 2, shape).astype(bool)
        elif info.dtype.kind in "iu":
            result[info.name] = rng.integers(-9, 10, shape).astype(info.dtype)
        else:
            count = int(np.prod(shape))
            result[info.name] = (
                rng.permutation(2 * count + 3)[:count].reshape(shape) * (4 / (2 * count + 3)) - 1.93
            ).astype(np.float32)
    return result


def expected(
    model: Model, feeds: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray] | None:
    """The results of onnxruntime; None when it has no kernel for this network."""
    try:
        return model.run(dict(feeds) if feeds is not None else feeds_of(model))
    except ConverterError:
        return None


def outcome(
    model: Model,
    reference: dict[str, np.ndarray],
    target: str,
    feeds: dict[str, np.ndarray] | None = None,
    engine: str = "onnxruntime",
) -> str:
    """ "same", or the code of the refusal on writing; raises when the network came back as another
    one, or did not come back.

    With another `engine` the file read back is executed there; "not executed" when that engine
    cannot.
    """
    feeds = feeds_of(model) if feeds is None else feeds
    with processor_time(LIMIT), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"net{suffix_of(target)}"
        try:
            converter.save(model, path, target, "keep" if target == "nnapi+blob" else "")
        except ConverterError as e:
            assert not list(Path(folder).iterdir()), "left behind after a refusal"
            return e.diagnostics[0].code
        back = converter.load(path, target.partition("+")[0])
        try:
            compare(back, feeds, reference, engine)
        except AssertionError:
            if (
                engine != "onnxruntime"
                or not _halves(reference)
                or not converter.verify(model, back, feeds, native="off").passed
            ):
                raise
        except ConverterError:
            if engine == "onnxruntime":
                raise
            return "not executed"
        return "same"


def _halves(reference: dict[str, np.ndarray]) -> bool:
    """Whether rounding is coarse enough to be measured instead of guessed."""
    return any(a.dtype == np.float16 for a in reference.values())


def suffix_of(target: str) -> str:
    return (
        ".nnapi"
        if target == "nnapi+blob"
        else ".tflite"
        if target == "tflite"
        else ".mlpackage"
        if target == "mlprogram"
        else SUFFIXES.get(target) or SUFFIXES[target.partition("+")[0]]
    )


def compare(
    back: Model,
    feeds: dict[str, np.ndarray],
    reference: dict[str, np.ndarray],
    engine: str = "onnxruntime",
) -> None:
    names = [i.name for i in back.inputs]
    results = back.run(
        feeds if set(names) == set(feeds) else dict(zip(names, feeds.values(), strict=True)), engine
    )
    if set(results) == set(reference):  # legacy IR keeps names but not the order
        results = {name: results[name] for name in reference}
    assert len(results) == len(reference), f"{len(results)} outputs instead of {len(reference)}"
    for (name, want), got in zip(reference.items(), results.values(), strict=True):
        got = (
            got.reshape(want.shape) if {got.shape, want.shape} == {(), (1,)} else got
        )  # the targets without scalars say [1] of both
        assert got.shape == want.shape, f"{name}: shape {got.shape} instead of {want.shape}"
        with np.errstate(over="ignore"):
            got = (
                got.astype(want.dtype) if want.dtype == np.float16 else got
            )  # float32 still overflows where half does
        scale = (
            float(np.max(np.abs(want[np.isfinite(want)]), initial=1.0))
            if want.dtype.kind == "f"
            else 1.0
        )
        close = (
            (1e-2, 4e-3 * scale) if want.dtype == np.float16 else (1e-3, 2e-4 * scale)
        )  # half precision rounds at every step, single at none
        np.testing.assert_allclose(
            got.astype(np.float64),
            want.astype(np.float64),
            rtol=close[0],
            atol=close[1],
            err_msg=name,
        )
