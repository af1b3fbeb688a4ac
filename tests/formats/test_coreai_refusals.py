"""Operators that Core AI does not support, and operations that are not read, by their messages;
and operators in unusual forms.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from converter.api import Model
from converter.errors import ConverterError, UnsupportedError
from converter.formats.coreml.coreai.lower import MainFunction, lowered, prepared
from formats.coreai_text import read_text, through_text
from formats.test_coreai import model_of
from formats.test_coreai_operations import In, Read, i32, one, run_alike, u32, word

D = ir.DataType
F = np.float32
Array = np.ndarray[Any, Any]
Build = Callable[..., Any]
rng = np.random.default_rng(31)


def floats(*shape: int) -> Array:
    return rng.normal(size=shape).astype(F)


X, IMAGE = {"x": floats(2, 3)}, {"x": floats(1, 2, 3, 4)}
INTS = {"x": i32(7, -3, 5)}
BYTES = np.arange(6, dtype=np.int8).reshape(2, 3)
REFUSED: dict[str, tuple[Build, dict[str, Any], tuple[str, ...], str]] = {
    "a divisor of 0": (
        lambda b, x: b.Div(x, i32(1, 0, 2)),
        INTS,
        (),
        "a division by 0 terminates the runtime's process",
    ),
    "the largest of no elements": (
        lambda b, x: b.ArgMax(x, axis=0, keepdims=0),
        {"x": floats(0, 3)},
        (),
        "ArgMax over an empty axis is not supported",
    ),
    "no repetition": (
        lambda b, x: b.Tile(x, [1, 0]),
        X,
        (),
        "repeating an axis 0 times is not supported: it does not compile",
    ),
    "the aspect ratio of dynamic images": (
        lambda b, x: b.Resize(
            x, None, None, [1, 2, 6, 6], mode="linear", keep_aspect_ratio_policy="not_larger"
        ),
        IMAGE,
        ("x",),
        "keep_aspect_ratio_policy needs static sizes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_operators_are_refused_with_a_reason(name: str) -> None:
    write, feeds, dynamic, reason = REFUSED[name]
    with pytest.raises(UnsupportedError, match=re.escape(reason)):
        through_text(model_of(write, feeds, *dynamic))


T = floats(3, 4)
C = (T[:2] + 1j * T[1:]).astype(np.complex64)
UNREAD: dict[str, tuple[Read, str]] = {
    "an unknown total": (
        Read("scan", [In(T), one(0, np.uint32), one(False, np.bool_)], T, "scan_op = 7 : i32"),
        "scan_op must be 0 to 3, got 7",
    ),
    "no parts": (
        Read("split", [In(T), one(0, np.uint32), one(1)], (T, T)),
        "empty parts are not supported",
    ),
    "parts of an axis that is not there": (
        Read("split", [In(T), one(2, np.uint32), one(2)], (T[:2], T[2:])),
        "axis 2 is outside the rank 2",
    ),
    "totals of an axis that is not there": (
        Read("scan", [In(T), one(2, np.uint32), one(False, np.bool_)], T, "scan_op = 1 : i32"),
        "axis 2 is outside the rank 2",
    ),
    "an inserted axis that is not there": (
        Read("broadcast_in_dims", [In(T[:, None]), u32(5), i32(3)], floats(3, 5, 4)),
        "axis 3 is outside the rank 3",
    ),
    "sizes of too few axes": (
        Read(
            "interpolate",
            [In(T), i32(6), np.ones(2, F), np.zeros(2, F)],
            floats(6, 4),
            word("interpolation_mode", "linear"),
        ),
        "sizes and scales must have one element per axis",
    ),
    "an image without rows": (
        Read(
            "interpolate",
            [In(T), i32(0, 4), np.ones(2, F), np.zeros(2, F)],
            floats(0, 4),
            word("interpolation_mode", "linear"),
        ),
        "images without elements are not supported",
    ),
    "a word of another kind": (
        Read("gelu", [In(T)], T, 'approximate = "erf"'),
        "is not a approximate",
    ),
    "the tangent of complex numbers": (
        Read("tan", [In(C)], C),
        "tan of complex numbers is not supported",
    ),
    "scales of another rank": (
        Read("blockwise_shift_scale", [BYTES, np.ones(2, F), one(0, np.int8), one(0, F)], BYTES),
        "scales have 1 axes, the data have 2",
    ),
    "computed scales of a constant": (
        Read(
            "blockwise_shift_scale",
            [BYTES, In(np.ones((1, 3), F)), np.zeros((1, 3), np.int8), np.zeros((1, 3), F)],
            BYTES.astype(F),
        ),
        "the scales of a compressed constant must be constant",
    ),
    "computed data of a constant": (
        Read(
            "blockwise_shift_scale",
            [In(BYTES), np.ones((1, 3), F), np.zeros((1, 3), np.int8), np.zeros((1, 3), F)],
            BYTES.astype(F),
        ),
        "the data of a compressed constant must be constant",
    ),
    "tables of another rank": (
        Read("lut_to_dense", [BYTES.astype(np.uint8), np.ones((1, 8, 1), F), one(0, np.int16)], T),
        "the lookup tables have 1 axes for data of rank 2",
    ),
    "a dense constant as a sparse one": (
        Read("sparse_with_bitmask_to_dense", [In(T)], T),
        "the operand must be sparse",
    ),
}


@pytest.mark.parametrize("name", UNREAD)
def test_operations_are_refused_with_a_reason(name: str) -> None:
    case, reason = UNREAD[name]
    with pytest.raises(ConverterError, match=re.escape(reason)):
        read_text(case.text())


def test_the_parts_of_real_numbers() -> None:
    for kind, expected in (("real_part", T), ("imaginary_part", T * 0)):
        case = Read(kind, [In(T)], expected)
        run_alike(Model.of(read_text(case.text())), case.feeds(), expected)


@pytest.mark.parametrize("kind", ["dequantize", "quantize"])
def test_one_scale_may_be_a_list(kind: str) -> None:
    x = BYTES if kind == "dequantize" else floats(2, 3)
    back = (BYTES - F(3)) * F(0.5)
    there = np.clip(np.round(x / F(0.5)) + 3, -128, 127).astype(np.int8)
    expected = back if kind == "dequantize" else there
    case = Read(kind, [In(x), F([0.5]), np.array([3], np.int8), F([0]), one(0)], expected)
    run_alike(Model.of(read_text(case.text())), case.feeds(), expected)


def text_of(write: Build, feeds: dict[str, Any]) -> str:
    network = model_of(write, feeds)
    model = prepared(network, [])
    return MainFunction(network, model.graph, lowered(model, False), []).text()


TEXTS: dict[str, tuple[Build, dict[str, Any], str]] = {
    "an axis that is reversed from its last element": (
        lambda b, x: b.Slice(x, [2], [-100], [1], [-1]),
        X,
        r'(?s)^(?!.*"coreai\.slice").*"coreai\.reverse"',
    ),
    "an axis that is reversed from beyond its last element": (
        lambda b, x: b.Slice(x, [9], [-100], [1], [-1]),
        X,
        r'(?s)^(?!.*"coreai\.slice").*"coreai\.reverse"',
    ),
    "an average that counts the padding": (
        lambda b, x: b.AveragePool(x, kernel_shape=[2, 3], pads=[1, 1, 1, 1], count_include_pad=1),
        IMAGE,
        "avg_pool_2d",
    ),
    "factors of channels": (
        lambda b, x: b.InstanceNormalization(x, F([1, 2]), F([0.5, 3])),
        IMAGE,
        r"tensor<1x2x3x4xf32>, tensor<2x1x1xf32>, tensor<2x1x1xf32>",
    ),
    "many numbers of eight bits": (
        lambda b, x: b.Add(x, b.Cast(np.arange(600, dtype=np.int8).reshape(200, 3), to=1)),
        {"x": floats(200, 3)},
        r'"coreai.blockwise_shift_scale"',
    ),
    "a small table": (
        lambda b, x: b.Add(x, b.Gather(F([1, 2, 4]), b.Cast(np.uint8([2, 0, 1]), to=6))),
        X,
        r"tensor<1x16x1xf32>",
    ),
    "a larger table": (
        lambda b, x: b.Add(x, b.Gather(floats(20), b.Cast(np.uint8([2, 19, 1]), to=6))),
        X,
        r"tensor<1x256x1xf32>",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_operations_of_apple_are_written(name: str) -> None:
    write, feeds, pattern = TEXTS[name]
    assert re.search(pattern, text_of(write, feeds))


def begun(b: Any, x: Any, go: Any) -> Any:
    """A loop that begins only if a vector of one element is true."""
    body = b.loop(3, x)
    body.start = go
    return body.end(body.Mul(body.states[0], 2.0))


FORMS: dict[str, tuple[Build, dict[str, Any], Any]] = {
    "the first elements backwards": (
        lambda b, x: b.Slice(x, [1], [-100], [1], [-1]),
        X,
        X["x"][:, 1::-1],
    ),
    "a sum over computed axes": (
        lambda b, x, a: _declared(b.ReduceSum(x, a, keepdims=1), 2, 1),
        {**X, "a": np.array([1])},
        X["x"].sum(1, keepdims=True),
    ),
    "a sum over computed axes to a declared size": (
        lambda b, x, a: _declared(b.ReduceSum(x, a, keepdims=0), 2),
        {**X, "a": np.array([1])},
        X["x"].sum(1),
    ),
    "starts and ends for both axes": (
        lambda b, x, s: b.Slice(x, s, [2, 3], [0, 1]),
        {**X, "s": np.array([0, 1])},
        X["x"][:, 1:],
    ),
    "unsigned numbers of 64 bits": (
        lambda b, x: b.Cast(b.Cast(x, to=int(D.UINT64)), to=int(D.INT64)),
        {"x": np.array([1, -3, 1 << 40])},
        [1, -3, 1 << 40],
    ),
    "unsigned numbers of eight bits": (
        lambda b, x: b.Cast(b.Cast(x, to=int(D.UINT8)), to=int(D.INT32)),
        {"x": i32(300, -3, 17)},
        [44, 253, 17],
    ),
    "a hard sigmoid": (
        lambda b, x: b.HardSigmoid(x, alpha=1 / 6, beta=0.5),
        X,
        np.clip(X["x"] / 6 + 0.5, 0, 1),
    ),
    "the last of the largest": (
        lambda b, x: b.ArgMax(x, axis=1, select_last_index=1, keepdims=0),
        {"x": F([[1, 3, 3, 2], [5, 5, 5, 0]])},
        [2, 2],
    ),
    "repetitions of nothing": (
        lambda b, x: b.Tile(x, [1, 2]),
        {"x": floats(2, 0)},
        np.zeros((2, 0), F),
    ),
    "parts of an axis that does not divide": (
        lambda b, x: b.Split(x, axis=1, num_outputs=2, outputs=2),
        X,
        [X["x"][:, :2], X["x"][:, 2:]],
    ),
    "scales of blocks": (
        lambda b, x: b.QuantizeLinear(
            x,
            F([[0.5, 0.25], [1, 2]]),
            np.array([[1, 0], [-3, 4]], np.int8),
            axis=1,
            block_size=2,
        ),
        {"x": F([[1, 2, 3, 4], [5, -6, 7, 8]])},
        [[3, 5, 12, 16], [2, -9, 8, 8]],
    ),
    "a loop that begins": (begun, {**X, "go": np.array([True])}, X["x"] * 8),
    "a loop that does not begin": (begun, {**X, "go": np.array([False])}, X["x"]),
    "a loop without a condition": (
        lambda b, x: b.ops("Loop", 3, None, x, outputs=1, body=_doubling(b, x)),
        X,
        X["x"] * 8,
    ),
    "a padding value in a list": (
        lambda b, x: b.Pad(x, [0, 1, 0, 0], F([0.5])),
        X,
        np.pad(X["x"], ((0, 0), (1, 0)), constant_values=0.5),
    ),
    "a quotient of integers": (
        lambda b, x: b.Div(x, i32(2, -1, -2)),
        INTS,
        i32(3, 3, -2),
    ),
    "a slice of no axis": (
        lambda b, x: b.Slice(x, np.zeros(0, np.int64), np.zeros(0, np.int64)),
        X,
        X["x"],
    ),
    "constants in eight bits": (
        lambda b, x: b.Add(
            x, b.DequantizeLinear(BYTES, F([0.5, 2]), np.array([1, -2], np.int8), axis=0)
        ),
        X,
        X["x"] + (BYTES - F([[1], [-2]])) * F([[0.5], [2]]),
    ),
}


def _declared(y: Any, *shape: int) -> Any:
    """A value of a declared shape."""
    y.shape = ir.Shape(shape)
    return y


def _doubling(b: Any, x: Any) -> ir.Graph:
    body = b.loop(3, x)
    body.output(body.const(True), body.Mul(body.states[0], 2.0))
    graph: ir.Graph = body.graph
    return graph


def test_parts_of_a_dynamic_axis() -> None:
    model = model_of(lambda b, x: b.Split(x, axis=1, num_outputs=2, outputs=2), X, "x")
    run_alike(Model.of(through_text(model)), X, [X["x"][:, :2], X["x"][:, 2:]])


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_written_and_read(name: str) -> None:
    write, feeds, expected = FORMS[name]
    run_alike(Model.of(through_text(model_of(write, feeds))), feeds, expected)
