"""Operations of Core AI, written and read in this process: those that netconv writes agree with
the definitions of ONNX, and those that it only reads agree with Apple's runtime.

Expected numbers are formulas in numpy. The slow tests try all of them in Apple's runtime, which
has to give the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.errors import ConverterError, MappingError
from converter.formats.coreml.coreai.elements import dense, type_text
from converter.graph.build import Builder
from formats.coreai_text import read_text, through_text
from formats.test_coreai import (
    CASES,
    COMPOSITES,
    IMAGE,
    INTS,
    LINE,
    ODD,
    Case,
    authored,
    model_of,
    native,
    needs_runtime,
    written,
)

D = ir.DataType
F = np.float32
NAN, INF = np.nan, np.inf


def run_alike(model: Any, feeds: dict[str, Any], expected: Any) -> None:
    results = list(model.run(feeds).values())
    expected = list(expected) if len(results) > 1 else [expected]
    for actual, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)


# read -------------------------------------------------------------------------------------------


@dataclass
class In:
    """An operand that is an input of the network; others are constants."""

    array: Any


@dataclass
class Read:
    """One operation with its operands and the expected results."""

    kind: str
    operands: list[Any]
    expected: Any
    attrs: str = ""
    known_to_runtime: bool = True

    def results(self) -> list[Any]:
        return list(self.expected) if isinstance(self.expected, tuple) else [self.expected]

    def feeds(self) -> dict[str, Any]:
        given = [(i, v.array) for i, v in enumerate(self.operands) if isinstance(v, In)]
        return {f"x{i}": array for i, array in given}

    def text(self) -> str:
        values = [v.array if isinstance(v, In) else v for v in self.operands]
        types = [type_of(v) for v in values]
        inputs = [i for i, v in enumerate(self.operands) if isinstance(v, In)]
        lines = [
            f'%{i} = "coreai.constant"() <{{value = {dense(v, dtype_of(v))}}}> : () -> {types[i]}'
            for i, v in enumerate(values)
            if i not in inputs
        ]
        given = ", ".join(f"%{i}" for i in range(len(values)))
        wanted = [type_of(np.asarray(v)) for v in self.results()]
        made = "%y = " if len(wanted) == 1 else f"%y:{len(wanted)} = "
        names = ["%y"] if len(wanted) == 1 else [f"%y#{i}" for i in range(len(wanted))]
        attrs = f" <{{{self.attrs}}}>" if self.attrs else ""
        name = f"decomposable.{self.kind}" if self.kind.startswith("broadcasting_") else self.kind
        lines.append(
            f'{made}"coreai.{name}"({given}){attrs} : ({", ".join(types)}) -> ({", ".join(wanted)})'
        )
        lines.append(f'"coreai.output"({", ".join(names)}) : ({", ".join(wanted)}) -> ()')
        own = ", ".join(types[i] for i in inputs)
        named = ", ".join(f'{{coreai.name = "x{i}"}}' for i in inputs)
        outputs = ", ".join(f'{{coreai.name = "y{i}"}}' for i in range(len(wanted)))
        head = (
            f"arg_attrs = [{named}], function_type = ({own}) -> ({', '.join(wanted)}), "
            f'param_decls = #param.decl.array<[]>, res_attrs = [{outputs}], sym_name = "main"'
        )
        arguments = ", ".join(f"%{i}: {types[i]}" for i in inputs)
        body = "\n".join([f"^bb0({arguments}):" if inputs else "", *lines])
        graph = f'"coreai.graph"() <{{{head}}}> ({{\n{body}\n}}) : () -> ()'
        return f'"builtin.module"() ({{\n{graph}\n}}) : () -> ()\n'


def dtype_of(array: Any) -> ir.DataType:
    return D.COMPLEX64 if array.dtype.kind == "c" else D.from_numpy(array.dtype)


def type_of(array: Any) -> str:
    return type_text(dtype_of(array), array.shape)


def i32(*values: int) -> Any:
    return np.array(values, np.int32)


def u32(*values: int) -> Any:
    return np.array(values, np.uint32)


def one(value: Any, dtype: Any = np.int32) -> Any:
    """A scalar."""
    return np.array(value, dtype)


def word(name: str, value: str) -> str:
    return f"{name} = #coreai.{name}<{value}>"


LINEAR, NEAREST = (word("interpolation_mode", m) for m in ("linear", "nearest_neighbor"))


def sampled(x: Any, axis: int, at: Any, nearest: bool = False) -> Any:
    """Elements of an axis at positions between its elements."""
    at = np.clip(at, 0, x.shape[axis] - 1)
    if nearest:
        return x.take(np.round(at).astype(int), axis)
    return np.apply_along_axis(lambda line: np.interp(at, np.arange(len(line)), line), axis, x)


def interpolate(size: list[int], scale: list[float], offset: list[float], nearest: bool) -> Read:
    found = PICTURE.astype(np.float64)
    for axis, (m, s, o) in enumerate(zip(size, scale, offset, strict=True)):
        found = sampled(found, axis, (np.arange(m) + 0.5 - o) / s - 0.5, nearest)
    operands = [In(PICTURE), i32(*size), np.array(scale, F), np.array(offset, F)]
    return Read("interpolate", operands, found.astype(F), NEAREST if nearest else LINEAR)


RNG = np.random.default_rng(5)
PICTURE = RNG.normal(size=(1, 2, 3, 4)).astype(F)
TABLE = RNG.normal(size=(3, 4)).astype(F)
POINTS = np.array([[0.25, 1.75], [-2, 1.5], [1.6, 9], [2, 3]], F)
WHOLES = np.array([[3, -7, 5, 2], [0, 4, -1, 9], [6, 1, 8, -3]], np.int32)
HOLES = np.array([[3, NAN, 1, 2], [7, 4, NAN, 9], [6, 1, NAN, 8]], F)
C = (RNG.normal(size=(2, 3)) + 1j * RNG.normal(size=(2, 3))).astype(np.complex64)
E = np.array([[1 + 2j, 0.5j, -1], [3 - 1j, 2, 1j]], np.complex64)
EQUAL = np.where(np.eye(2, 3) > 0, C, E).astype(np.complex64)


def at_points(nearest: bool) -> Any:
    y, x = (np.clip(POINTS[:, i], 0, n - 1) for i, n in enumerate(TABLE.shape))
    if nearest:
        return TABLE[np.round(y).astype(int), np.round(x).astype(int)]
    rows = np.stack([np.interp(x, np.arange(4), row) for row in TABLE])
    return np.array([np.interp(y[i], np.arange(3), rows[:, i]) for i in range(len(y))], F)


def running(x: Any, axis: int, mode: int, back: bool) -> Any:
    step = {0: np.add, 1: np.multiply, 2: np.fmin, 3: np.fmax}[mode]
    x = np.flip(x, axis) if back else x
    found = step.accumulate(x, axis, dtype=x.dtype)
    return np.flip(found, axis) if back else found


def scan(x: Any, axis: int, mode: int, back: bool) -> Read:
    operands = [In(x), one(axis, np.uint32), one(back, np.bool_)]
    return Read("scan", operands, running(x, axis, mode, back), f"scan_op = {mode} : i32")


def ordered(x: Any, axis: int, down: bool) -> Any:
    """Positions in order; NaN is last in both directions."""
    key = (
        np.where(np.isnan(x), INF, -x if down else x) if x.dtype.kind == "f" else x * (1 - 2 * down)
    )
    return np.argsort(key, axis, kind="stable")


def sort(kind: str, x: Any, axis: int, down: bool) -> Read:
    at = ordered(x, axis, down)
    found = at.astype(np.int32) if kind == "argsort" else np.take_along_axis(x, at, axis)
    operands = [In(x), one(axis), one(down, np.bool_), one(True, np.bool_)]
    return Read(kind, operands, found)


def statistics(axis: int, low: float, high: float) -> list[Read]:
    rest = 1 - axis
    most = np.abs(TABLE).max(rest) * 2 / (high - low)
    top, bottom = np.maximum(TABLE.max(rest), 0), np.minimum(TABLE.min(rest), 0)
    scale = (top - bottom) / (high - low)
    zero = low - bottom / scale
    operands = [In(TABLE), np.array([low, high], F), one(axis)]
    kind = "symmetric_quantization_statistics"
    return [Read(kind, operands, most), Read(f"a{kind}", operands, (scale, zero))]


def slice_update() -> Any:
    found = TABLE.copy()
    found[0:3:2, 1:3] = 7
    return found


def in_pairs(x: Any, before: list[int], after: list[int], mode: str) -> Read:
    amounts = np.array([before, after], np.uint32).T.reshape(-1)
    pairs = list(zip(before, after, strict=True))
    options: dict[str, Any] = {"constant_values": 5} if mode == "constant" else {}
    own = {"constant": "constant", "replicate": "edge", "circular": "wrap"}.get(mode, mode)
    expected = np.pad(x, pairs, own, **options)  # type: ignore[call-overload]
    return Read("pad", [In(x), amounts, one(5, x.dtype)], expected, word("padding_mode", mode))


def scattered(mode: str) -> Read:
    found, update = TABLE.copy(), np.array([[2, 4, 0.5, 1]], F)
    step: dict[str, Callable[..., Any]] = {
        "update": lambda a, b: b, "add": np.add, "sub": np.subtract, "mul": np.multiply,
        "div": np.divide, "max": np.maximum, "min": np.minimum}  # fmt: skip
    at = i32(2, 0, 1, 2)[None]
    for column, row in enumerate(at[0]):
        found[row, column] = step[mode](found[row, column], update[0, column])
    operands = [In(TABLE), at, In(update), one(0)]
    return Read("scatter_along_axis", operands, found, word("scatter_mode", mode))


def largest(x: Any, ceil: bool) -> Read:
    """A maximum of windows of 2 with stride 2 on axes of 3 and 4 elements."""
    bottom = np.iinfo(x.dtype).min if x.dtype.kind == "i" else -INF
    padded = (
        np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 0)), constant_values=bottom) if ceil else x[:, :, :2]
    )
    found = padded.reshape(*x.shape[:2], -1, 2, 2, 2).max((3, 5))
    operands = [In(x), u32(2, 2), u32(2, 2), u32(1, 1), one(ceil, np.bool_)]
    return Read("max_pool_2d", operands, found)


def total(x: Any) -> Read:
    found = np.stack([x[:, :, i : i + 2].sum((2, 3)) for i in range(2)], -1)
    operands = [In(x), u32(2, x.shape[3]), u32(1, 1), u32(1, 1)]
    return Read("sum_pool_2d", operands, found[..., None].astype(x.dtype))


def saturated(x: Any, dtype: Any) -> Read:
    ends = np.iinfo(dtype)
    kept = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0, posinf=ends.max, neginf=ends.min)
    return Read("cast", [In(x)], np.clip(kept, ends.min, ends.max).astype(dtype))


def quantized(axis: int | None, added: float) -> list[Read]:
    """A table in 8 bits and back, with a scale for all, or for each element of an axis."""
    count = 1 if axis is None else TABLE.shape[axis]
    scale, zero = np.linspace(0.125, 0.25, count, dtype=F), np.arange(count).astype(np.uint8) + 9
    more = np.full(count, added, F) * np.arange(1, count + 1)
    line = [1, 1] if axis is None else [-1 if i == axis else 1 for i in range(2)]
    s, z, a = (v.reshape(line).astype(np.float64) for v in (scale, zero, more))
    operands = [scale, zero, more.astype(F)]
    operands = [v.reshape(()) for v in operands] if axis is None else operands
    numbers = np.arange(12, dtype=np.uint8).reshape(3, 4)
    back = ((numbers - z) * s + a).astype(F)
    there = np.clip(np.round((TABLE - a) / s) + z, 0, 255).astype(np.uint8)
    return [
        Read("dequantize", [In(numbers), *operands, one(axis or 0)], back),
        Read("quantize", [In(TABLE), *operands, one(axis or 0)], there),
    ]


def blockwise(offset: Any, added: float) -> Read:
    data = (np.arange(12) - 6).astype(np.int8).reshape(3, 4)
    scale = np.array([[0.5, 0.25], [1, 2], [3, 0.125]], F)
    more = np.full(scale.shape, added, F)
    wide = [
        np.repeat(np.broadcast_to(v, scale.shape).astype(np.float64), 2, 1)
        for v in (scale, offset, more)
    ]
    found = (wide[0] * (data - wide[1]) + wide[2]).astype(F)
    known = offset.shape == scale.shape and offset.dtype == data.dtype
    return Read("blockwise_shift_scale", [data, scale, offset, more], found, "", known)


def looked_up(table: Any, axis: int) -> Read:
    """Indices of two rows, with a table for all or for each row, of one or two values each."""
    at = np.array([[3, 0, 201, 2], [1, 1, 0, 255]], np.uint8)
    rows = [table[min(i, table.shape[0] - 1), 0][at[i]] for i in range(2)]
    found = np.stack(rows)  # [2, 4, width]
    found = found.reshape(2, -1) if axis == 1 else found.transpose(0, 2, 1).reshape(-1, 4)
    return Read("lut_to_dense", [at, table, one(axis, np.int16)], found)


def elementwise(
    kind: str, formula: Callable[..., Any], x: Any, y: Any, runtime: str = "both"
) -> list[Read]:
    """An operation of operands of equal shapes, and its form that broadcasts. `runtime`: which of
    them the runtime has for operands of this type.
    """
    return [
        Read(kind, [In(x), In(y)], formula(x, y), "", runtime in ("both", "equal")),
        Read(f"broadcasting_{kind}", [In(x), In(y[:1])], formula(x, y[:1]), "", runtime == "both"),
    ]


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def gates(x: Any) -> Any:
    return x / (1 + np.exp(-1.702 * x))


NARROW, WIDE = RNG.normal(size=(2, 1, 256, 1)).astype(F), RNG.normal(size=(1, 1, 256, 2)).astype(F)
READ: list[Read] = [
    # complex numbers
    *(r for kind, f in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply),
                        ("divide", np.divide)) for r in elementwise(kind, f, C, E)),
    *elementwise("equal", np.equal, EQUAL, E, "equal"),
    *elementwise("not_equal", np.not_equal, EQUAL, E, "equal"),
    *(Read(kind, [In(C)], getattr(np, kind)(C)) for kind in ("exp", "sin", "cos", "sinh", "cosh")),
    Read("create_complex", [In(C.real.copy()), In(C.imag.copy())], C),
    Read("real_part", [In(C)], C.real), Read("imaginary_part", [In(C)], C.imag),
    # between elements
    interpolate([1, 2, 6, 8], [1, 1, 2, 2], [0, 0, 0, 0], False),
    interpolate([1, 2, 5, 7], [1, 1, 2, 2], [0, 0, -0.5, -0.5], False),
    interpolate([1, 2, 7, 5], [1, 1, 1.7, 1.3], [0, 0, 0.3, -0.2], False),
    interpolate([1, 2, 2, 7], [1, 1, 0.7, 1.6], [0, 0, 0, 0.1], True),
    interpolate([1, 2, 6, 8], [1, 1, 2, 2], [0, 0, 0, 0], True),
    interpolate([1, 2, 3, 4], [1, 1, 1, 1], [0, 0, 0, 0], True),
    Read("interpolate_coordinates", [In(TABLE), In(POINTS)], at_points(False), LINEAR),
    Read("interpolate_coordinates", [In(TABLE), In(POINTS)], at_points(True), NEAREST),
    # order and running totals
    *(scan(x, axis, mode, back) for mode in (1, 2, 3) for x, axis, back in (
        (TABLE, 1, False), (WHOLES, 1, True), (WHOLES, 0, False))),
    scan(TABLE, 0, 0, True), scan(HOLES, 1, 2, False), scan(HOLES, 1, 3, True),
    *(sort(kind, x, axis, down) for kind in ("sort", "argsort") for x, axis, down in (
        (WHOLES, 1, False), (WHOLES, 0, True), (HOLES, 1, False), (HOLES, 1, True))),
    *statistics(0, -128, 127), *statistics(1, 0, 15),
    # shapes
    Read("slice_update", [In(TABLE), i32(0, 1), i32(3, 3), i32(2, 1), In(np.full((2, 2), 7, F))],
         slice_update()),
    Read("slice", [In(WHOLES), i32(-1, 2), i32(-3, -9), i32(-1, -1)], WHOLES[-1:-3:-1, 2:0:-1]),
    Read("slice", [In(WHOLES), i32(0, 1), i32(3, 4), i32(2, 2)], WHOLES[0:3:2, 1:4:2]),
    Read("broadcast_in_dims", [In(TABLE[:, None]), u32(5), i32(1)],
         np.repeat(TABLE[:, None], 5, 1)),
    Read("broadcast_shapes", [In(u32(2, 1, 4)), In(u32(3, 1))], u32(2, 3, 4)),
    Read("broadcast_shapes", [In(u32(3, 1)), In(u32(2, 1, 4))], u32(2, 3, 4)),
    *(in_pairs(TABLE, [1, 0], [0, 2], mode) for mode in (
        "constant", "symmetric", "reflect", "replicate", "circular")),
    in_pairs(TABLE, [0, 2], [3, 0], "symmetric"),
    Read("split", [In(TABLE), one(3, np.uint32), one(1)], (TABLE[:, :3], TABLE[:, 3:])),
    Read("split", [In(TABLE), u32(1, 2, 1), one(1)], (TABLE[:, :1], TABLE[:, 1:3], TABLE[:, 3:])),
    Read("tile", [In(TABLE), u32(2)], np.tile(TABLE, (1, 2))),
    Read("tile", [In(TABLE), u32(2, 3)], np.tile(TABLE, (2, 3))),
    Read("get_shape", [In(TABLE)], u32(3, 4)),
    Read("reverse", [In(TABLE), i32(1)], TABLE[:, ::-1]),
    Read("range", [In(one(2)), In(one(9)), In(one(3))], i32(2, 5, 8)),
    # elements
    *map(scattered, ("update", "add", "sub", "mul", "div", "max", "min")),
    Read("non_zero", [In(i32(0, 3, 0, 1).reshape(2, 2))], i32(0, 1, 1, 1).reshape(2, 2)),
    Read("argmax", [In(HOLES), one(1)], u32(0, 3, 3)[:, None]),
    Read("argmax", [In(WHOLES), one(0)], u32(2, 1, 2, 1)[None]),
    # windows
    *(largest(x[None, None], ceil) for x in (TABLE, WHOLES.astype(np.int8))
      for ceil in (False, True)),
    *(total(x[None, None]) for x in (TABLE, WHOLES)),
    # arithmetic
    Read("gelu", [In(TABLE)], gates(TABLE), word("approximate", "sigmoid")),
    Read("gelu", [In(TABLE)], TABLE * (1 + np.vectorize(math.erf)(TABLE / 2**0.5)).astype(F) / 2,
         word("approximate", "none")),
    Read("silu", [In(TABLE)], TABLE / (1 + np.exp(-TABLE))),
    Read("rsqrt", [In(np.abs(TABLE))], 1 / np.sqrt(np.abs(TABLE))),
    Read("relu", [In(WHOLES)], np.maximum(WHOLES, 0)), Read("round", [In(WHOLES)], WHOLES),
    *elementwise("floor_divide", np.floor_divide, TABLE, PICTURE[0, 0]),
    *elementwise("floor_divide", np.floor_divide, WHOLES, np.abs(WHOLES) + 1),
    *elementwise("modulo", np.fmod, WHOLES, np.abs(WHOLES) + 1),
    *elementwise("pow", np.power, WHOLES, np.abs(WHOLES) % 4),
    *elementwise("greater", np.greater, TABLE, PICTURE[0, 0]),
    *elementwise("greater", lambda x, y: x & ~y, TABLE > 0, PICTURE[0, 0] > 0, ""),
    *elementwise("add", np.logical_or, TABLE > 0, PICTURE[0, 0] > 0, "equal"),
    *elementwise("not_equal", np.not_equal, WHOLES, np.abs(WHOLES)),
    Read("all", [In(TABLE > -1), i32(1)], (TABLE > -1).all(1, keepdims=True)),
    Read("any", [In(TABLE > 1), i32(0)], (TABLE > 1).any(0, keepdims=True)),
    Read("reduce_sum", [In(WHOLES.astype(np.int8)), i32(1)],
         WHOLES.astype(np.int8).sum(1, np.int8, keepdims=True)),
    # types
    *(saturated(ODD * 100, t) for t in (np.int8, np.uint8, np.int32)),
    saturated(np.array([300.5, -3e9, 3e9, NAN, INF, 70000], F), np.int32),
    saturated((ODD * 100).astype(np.float16), np.uint8),
    saturated(INTS, np.int8), saturated(INTS, np.uint8), saturated(INTS, np.int64),
    Read("cast", [In(INTS > 0)], (INTS > 0).astype(np.int32)),
    # constants in few bits
    *(r for axis in (None, 0, 1) for added in (0, 0.5) for r in quantized(axis, added)),
    blockwise(np.zeros((3, 2), np.int8), 0), blockwise(np.full((1, 1), 3, np.int8), 0),
    *(blockwise(np.arange(6, dtype=np.int8).reshape(3, 2), added) for added in (0, 0.5)),
    blockwise(np.full((3, 2), 0.5, F), 0),
    looked_up(NARROW[:1], 1), looked_up(NARROW, 1), looked_up(WIDE, 1), looked_up(WIDE, 0),
]  # fmt: skip


def parameters(cases: list[Read]) -> list[Any]:
    return [pytest.param(case, id=f"{i}-{case.kind}") for i, case in enumerate(cases)]


@pytest.mark.parametrize("case", parameters(READ))
def test_an_operation_is_read(case: Read) -> None:
    run_alike(Model.of(read_text(case.text())), case.feeds(), case.expected)


@needs_runtime
@pytest.mark.slow
@pytest.mark.parametrize("case", parameters([case for case in READ if case.known_to_runtime]))
def test_the_runtime_agrees_with_the_formula(case: Read, tmp_path: Path) -> None:
    path = authored(case.text(), tmp_path / "m.aimodel")
    results = native(path, case.feeds())
    for actual, wanted in zip(results, case.results(), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


# written ------------------------------------------------------------------------------------------


def counted(b: Builder, x: Any, n: Any) -> Any:
    """A loop of a computed number of iterations, which stacks its results."""
    with b.loop(n, x) as body:
        (before,) = body.states
        after = before + before
    return body.end(after, after)


def while_small(b: Builder, x: Any) -> Any:
    """A loop that a condition ends."""
    with b.loop(None, x) as body:
        (before,) = body.states
        after = before * 2.0
        going = b_less(body, after)
    return body.end(after, going=going)


def b_less(b: Builder, x: Any) -> Any:
    return b.Less(b.ReduceMax(x, keepdims=0), b.const(F(40)))


def resized(
    rule: str, size: list[int], by_scales: bool = False, image: Any = PICTURE, scales: Any = None
) -> Case:
    """A linear Resize of an image; `scales` are those of the operator, else quotients of sizes."""
    expected = image.astype(np.float64)
    ratios = [m / n for n, m in zip(image.shape, size, strict=True)] if scales is None else scales
    for axis, (n, m, s) in enumerate(zip(image.shape, size, ratios, strict=True)):
        at = np.arange(m)
        places = {
            "half_pixel": (at + 0.5) / s - 0.5,
            "asymmetric": at / s,
            "align_corners": at * (n - 1) / (m - 1) if m > 1 else at * 0.0,
            "pytorch_half_pixel": (at + 0.5) / s - 0.5 if m > 1 else at * 0.0,
        }[rule]
        expected = sampled(expected, axis, places)

    def write(b: Builder, x: Any) -> Any:
        own = [None, np.array(ratios, F)] if by_scales else [None, None, np.array(size, np.int64)]
        return b.Resize(x, *own, mode="linear", coordinate_transformation_mode=rule)

    return write, {"x": image}, expected.astype(F)


THIN = PICTURE[:, :, :, :1].copy()
HALF_SCALES = [1, 1, 1.4, 1.8]
BITS = np.arange(-8, 8, dtype=np.int32)
RESIZED: dict[str, Case] = {
    "half pixels": resized("half_pixel", [1, 2, 6, 8]),
    "corners": resized("align_corners", [1, 2, 5, 7]),
    "corners, one element": resized("align_corners", [1, 2, 1, 7]),
    "corners of one element": resized("align_corners", [1, 2, 5, 3], image=THIN),
    "asymmetric": resized("asymmetric", [1, 2, 6, 8]),
    "asymmetric to fewer": resized("asymmetric", [1, 2, 2, 3]),
    "by scales": resized("asymmetric", [1, 2, 4, 7], True, scales=HALF_SCALES),
    "half pixels by scales": resized("half_pixel", [1, 2, 4, 7], True, scales=HALF_SCALES),
    "half pixels but of one element": resized("pytorch_half_pixel", [1, 2, 1, 8]),
}
WRITTEN: dict[str, Case] = {
    "a part of computed size": (
        lambda b, x, n: b.Split(x, b.Concat(n, n, axis=0), axis=1, outputs=2),
        {"x": TABLE, "n": np.array([2], np.int64)}, [TABLE[:, :2], TABLE[:, 2:]]),
    "the largest, as many as computed": (
        lambda b, x, n: b.TopK(x, n, axis=0, outputs=2),
        {"x": TABLE, "n": np.array([2], np.int64)},
        [np.sort(TABLE, 0)[::-1][:2], np.argsort(-TABLE, 0)[:2]]),
    "the smallest of the last axis": (
        lambda b, x: b.TopK(x, [3], axis=-1, largest=0, outputs=2), {"x": TABLE},
        [np.sort(TABLE, 1)[:, :3], np.argsort(TABLE, 1)[:, :3]]),
    "a computed shape of more axes": (
        lambda b, x, n: b.Expand(x, n), {"x": TABLE, "n": np.array([2, 1, 4], np.int64)},
        np.broadcast_to(TABLE, (2, 3, 4))),
    "a computed shape of fewer axes": (
        lambda b, x, n: b.Expand(x, n), {"x": TABLE[:, :1].copy(), "n": np.array([4], np.int64)},
        np.repeat(TABLE[:, :1], 4, 1)),
    "a loop of a computed number of iterations": (
        counted, {"x": TABLE, "n": np.array(3, np.int64)},
        [TABLE * 8, np.stack([TABLE * 2, TABLE * 4, TABLE * 8])]),
    "a loop that a condition ends": (while_small, {"x": np.array([1, 3], F)}, F([16, 48])),
    "sizes as small integers": (
        lambda b, x: b.Cast(b.Shape(x), to=D.INT32) + b.const(i32(1, 2)), {"x": TABLE}, [4, 6]),
    "scales of an axis, without a zero point": (
        lambda b, x: b.DequantizeLinear(x, b.const(np.array([0.5, 1, 2], F)), axis=0),
        {"x": WHOLES.astype(np.int8)}, WHOLES * F([[0.5], [1], [2]])),
    "one scale in a list": (
        lambda b, x: b.QuantizeLinear(x, b.const(F([0.125])), b.const(np.array([7], np.uint8))),
        {"x": TABLE}, np.clip(np.round(TABLE / 0.125) + 7, 0, 255)),
    "scales of the last axis": (
        lambda b, x: b.QuantizeLinear(x, b.const(np.array([1, 0.5, 0.25, 2], F)),
                                      b.const(np.array([1, 0, 3, -7], np.int8)), axis=-1),
        {"x": TABLE}, np.clip(np.round(TABLE / F([1, 0.5, 0.25, 2])) + F([1, 0, 3, -7]), -128, 127),
    ),
    "a small table": (
        lambda b, x: x + b.Gather(b.const(F([0.5, -1, 4])), b.Cast(
            b.const(np.array([[2, 0, 1, 1]], np.uint8)), to=D.INT32), axis=0),
        {"x": TABLE}, TABLE + F([[4, 0.5, -1, -1]])),
    "the first of the last axis": (
        lambda b, x: b.ArgMax(x, axis=-1, keepdims=0), {"x": TABLE}, TABLE.argmax(1)),
    "a sum that drops its axes": (
        lambda b, x: b.ReduceSum(x, [0, 2], keepdims=0), {"x": LINE}, LINE.sum((0, 2))),
    "a sum that keeps its axes": (
        lambda b, x: b.ReduceSum(x, [-1], keepdims=1), {"x": LINE}, LINE.sum(2, keepdims=True)),
    "elements that are no zeros": (lambda b, x: b.NonZero(x), {"x": i32(0, 3, 0, 1)}, [[1, 3]]),
    "computed numbers in order": (
        lambda b, n: b.Range(b.const(np.int64(1)), n, b.const(np.int64(2))),
        {"n": np.array(8, np.int64)}, [1, 3, 5, 7]),
    "computed steps": (
        lambda b, n: b.Range(b.const(np.int64(1)), b.const(np.int64(9)), n),
        {"n": np.array(3, np.int64)}, [1, 4, 7]),
    "steps without end": (
        lambda b, n: b.Range(b.const(np.int64(1)), b.const(np.int64(4)), n),
        {"n": np.array(0, np.int64)}, [1, 2, 3]),
    "starts that are computed": (
        lambda b, x, n: b.Slice(x, n, [4], [1]), {"x": TABLE, "n": np.array([1], np.int64)},
        TABLE[:, 1:]),
    "padding that is computed": (
        lambda b, x, n: b.Pad(x, b.Concat([0], n, n, [0], axis=0), b.const(F(2))),
        {"x": TABLE, "n": np.array([1], np.int64)},
        np.pad(TABLE, ((0, 1), (1, 0)), constant_values=2)),
    "a new axis": (lambda b, x: b.Unsqueeze(x, [0, 2]), {"x": TABLE}, TABLE[None, :, None]),
    "axes of one element": (lambda b, x: b.Squeeze(x), {"x": TABLE[None, :, None]}, TABLE),
    "attention with a mask": (
        lambda b, x: b.ScaledDotProductAttention(x, x, x, None, scale=0.5), {"x": PICTURE},
        np.einsum("bhij,bhjk->bhik", _softmax(np.einsum("bhik,bhjk->bhij", PICTURE, PICTURE) / 2),
                  PICTURE)),
}  # fmt: skip
# written, but not read
UNREAD = {"a part of computed size": "the sizes must be known"}
ALL = {**CASES, **{f"resize: {k}": v for k, v in RESIZED.items()}, **WRITTEN}


@pytest.mark.parametrize("name", ALL)
def test_a_written_operation_is_read_alike(name: str) -> None:
    write, feeds, expected = ALL[name]
    network = model_of(write, feeds)
    if name in UNREAD:
        with pytest.raises(ConverterError, match=UNREAD[name]):
            through_text(network)
        return
    run_alike(Model.of(through_text(network)), feeds, expected)


@pytest.mark.parametrize("name", ALL)
def test_sizes_may_be_dynamic(name: str) -> None:
    """With dynamic sizes an operation computes the same, or is refused."""
    write, feeds, expected = ALL[name]
    try:
        network = through_text(model_of(write, feeds, *feeds))
    except (ConverterError, MappingError):
        return
    run_alike(Model.of(network), feeds, expected)


@needs_runtime
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ALL if name not in CASES])
def test_the_runtime_computes_the_same(name: str, tmp_path: Path) -> None:
    """With static sizes, and every second operation with dynamic ones, too."""
    for dynamic in [False, True][: 1 + len(name) % 2]:
        in_the_runtime(name, dynamic, tmp_path)


def in_the_runtime(name: str, dynamic: bool, tmp_path: Path) -> None:
    """Compare the results of the runtime with those expected, or have the sizes refused."""
    write, feeds, expected = ALL[name]
    try:
        model = model_of(write, feeds, *(feeds if dynamic else ()))
        path = written(model, tmp_path / f"{dynamic}.aimodel")
    except ConverterError:
        assert dynamic
        return
    results = native(path, feeds)
    expected = list(expected) if isinstance(expected, list) and len(results) > 1 else [expected]
    for actual, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", COMPOSITES)
def test_a_graph_with_a_declaration_is_read_as_its_operator(kind: str) -> None:
    write, expected = COMPOSITES[kind]
    network = through_text(model_of(write, {"x": IMAGE}))
    run_alike(Model.of(network), {"x": IMAGE}, expected)


def test_an_image_that_keeps_its_aspect_is_resized_by_one_operation() -> None:
    """The common factor is the ratio of the sizes of each axis."""
    x = np.arange(24, dtype=F).reshape(4, 6)

    def build(b: Builder, x: ir.Value) -> ir.Value:
        how = {"mode": "linear", "keep_aspect_ratio_policy": "not_smaller"}
        return b.Resize(x, None, None, np.array([5, 12]), **how)

    model = model_of(build, {"x": x})
    again = Model.of(through_text(Model.of(model)))
    assert [n.op_type for n in again.ir.graph] == ["Resize"]
    (expected,) = Model.of(model).run({"x": x}).values()
    run_alike(again, {"x": x}, expected)
